//! Tests `lint` through the binary: lines, JSON, exit codes, and the built-in tools.

use serde_json::{Value, json};

use crate::dialects::pipe;
use crate::world::World;

const BAD: &str = r#"[
  {"name": "thinking", "description": "Thinks.", "examples": [{"a": "x"}], "parameters":
    {"type": "object", "properties": {"a": {"type": "string", "description": "A."}}}},
  {"name": "look", "parameters": {"type": "object", "properties": {"look": {"type": "array"}}, "required": ["at"]}}
]"#;

#[test]
fn each_finding_is_one_line() {
    let world = World::new();
    let file = world.write("tools.json", BAD).display().to_string();
    let (code, text, _) = pipe(&world, &["lint", &file], "");
    assert_eq!(code, 4, "{text}");
    for part in [
        "lint[reserved_name]: error:",
        "tools.json#/0/name",
        "lint[untyped_array]: error:",
        "lint[undeclared_required]: error:",
        "tools.json#/1/parameters/required",
        "lint[argument_like_tool]: warning:",
        "lint[missing_description]: warning:",
        "= hint: ",
        "= in: cline",
        "2 tools, ",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let (code, out, _) = pipe(&world, &["lint", "-", "--output", "json"], BAD);
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &out["findings"][0]["pointer"]),
        (4, &json!("/0/name")),
        "{out}"
    );
    assert!(out["errors"].as_u64().unwrap() >= 3 && out["warnings"].as_u64().unwrap() >= 2);
}

#[test]
fn exit_codes_follow_the_findings() {
    let world = World::new();
    let warned = r#"[{"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
                     {"name": "class", "description": "C.", "parameters": {"type": "object", "properties": {}}}]"#;
    assert_eq!(pipe(&world, &["lint", "-"], warned).0, 0);
    assert_eq!(
        pipe(&world, &["lint", "-", "--deny", "warnings"], warned).0,
        4
    );
    assert_eq!(
        pipe(
            &world,
            &["lint", "-", "--deny", "warnings", "--dialect", "hermes"],
            warned
        )
        .0,
        0
    );
    assert_eq!(
        pipe(&world, &["lint", "-", "--dialect", "llama4"], warned).0,
        0,
        "an alias"
    );
    for (text, expected) in [("[1,\n oops]", "line 2"), ("{}", "an array")] {
        let (code, _, errors) = pipe(&world, &["lint", "-"], text);
        assert!(code == 2 && errors.contains(expected), "{text}: {errors}");
    }
    let (code, _, errors) = pipe(&world, &["lint", "missing.json"], "");
    assert!(
        code == 2 && errors.contains("missing.json cannot be read"),
        "{errors}"
    );
    let (code, _, errors) = pipe(&world, &["lint", "-", "--dialect", "morse"], "[]");
    assert!(
        code == 2 && errors.contains("`morse` is not a dialect"),
        "{errors}"
    );
}

#[test]
fn the_built_in_tools_are_clean() {
    let world = World::new();
    let specs: Vec<_> = sabir_tools::builtin_specs()
        .into_iter()
        .chain(sabir_agent::control::control_specs())
        .collect();
    let (code, text, errors) = pipe(
        &world,
        &["lint", "-", "--deny", "warnings"],
        &json!(specs).to_string(),
    );
    let (sizes, counts) = text.split_once('\n').unwrap();
    let expected = format!("{} tools, 0 errors, 0 warnings\n", specs.len());
    assert_eq!((code, counts), (0, &*expected), "{errors}");
    assert!(
        sizes.starts_with("prompt sizes (tokens): cline "),
        "{sizes}"
    );
    // The size is that of the prompt which is sent.
    let (_, prompt, _) = pipe(
        &world,
        &["prompt", "--dialect", "invoke", "--output", "json"],
        "",
    );
    let prompt: Value = serde_json::from_str(&prompt).unwrap();
    let size = &prompt["tokens_estimated"];
    assert!(
        sizes.contains(&format!(", invoke {size}, ")),
        "{size} in {sizes}"
    );
    let only = ["lint", "-", "--dialect", "invoke", "--output", "json"];
    let (_, out, _) = pipe(&world, &only, &json!(specs).to_string());
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["prompt_sizes"], json!({"invoke": size}));
    let (_, out, _) = pipe(
        &world,
        &["lint", "-", "--output", "json"],
        r#"[{"name": "a"}, {"name": "a"}]"#,
    );
    assert!(
        out.contains("\"prompt_sizes\":null"),
        "tools that cannot be offered have no prompt: {out}"
    );
}
