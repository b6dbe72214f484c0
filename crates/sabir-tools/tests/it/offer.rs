//! Tests the specs that a model is offered, and the accesses that the policy checks.

use std::os::unix::fs::symlink;

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, ToolChoice, ToolInstructions};
use sabir_policy::Access;
use sabir_tools::EditTool;
use serde_json::{Value, json};

use crate::Place;

/// Estimates the tokens of a prompt: four bytes are one, and so is a special token such as `<|im_end|>` of any length.
fn estimate_tokens(prompt: &str) -> usize {
    let mut tokens = 0;
    let mut rest = prompt;
    while let Some((before, after)) = rest.split_once("<|") {
        tokens += before.len() / 4;
        rest = match after.split_once("|>") {
            Some((name, behind)) if !name.contains(char::is_whitespace) => {
                tokens += 1;
                behind
            }
            _ => after,
        };
    }
    tokens + rest.len() / 4
}

/// Bounds the size of a first request, in bytes / 4, with each of the edit tools. The rest of a request (instructions, the task)
/// is less than 500 of that.
#[test]
fn the_offer_is_small() {
    for edit_tool in EditTool::ALL {
        let place = Place::editing_by(edit_tool);
        let set = place.registry.tool_set();
        let native: usize = set
            .iter()
            .map(|spec| json!({"name": spec.name, "description": spec.description, "parameters": spec.parameters}))
            .map(|spec| spec.to_string().len())
            .sum();
        let edit_tools: Vec<_> = EditTool::ALL
            .into_iter()
            .filter(|tool| set.is_tool_offered(tool.name()))
            .collect();
        assert_eq!(edit_tools, [edit_tool]);
        assert!(native / 4 <= 2000, "{edit_tool:?}: {} tokens", native / 4);
        for dialect in DialectSet::built_in().iter() {
            let choice = ToolChoice::default();
            let lesson = ToolInstructions {
                tools: set,
                servers: &[],
                parallel_calls: ParallelCalls::Many,
                tool_choice: &choice,
            };
            let taught = estimate_tokens(&lesson.render_prompt(dialect));
            assert!(
                taught <= 2600,
                "{edit_tool:?}, {}: {taught} tokens",
                dialect.name
            );
        }
    }
}

#[test]
fn specs_are_strict_and_their_examples_run() {
    let place = Place::new();
    let names: Vec<_> = place
        .registry
        .tool_set()
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    assert_eq!(
        names[..10],
        [
            "read_file",
            "list_files",
            "search_files",
            "list_code_definition_names",
            "write_to_file",
            "replace_in_file",
            "fetch_url",
            "execute_command",
            "read_command_output",
            "stop_command",
        ]
    );
    assert!(
        place
            .registry
            .tool_set()
            .iter()
            .take(10)
            .eq(&sabir_tools::builtin_specs())
    );
    for spec in place.registry.tool_set().all_tools() {
        assert_eq!(
            spec.parameters["additionalProperties"],
            Value::Bool(false),
            "{}",
            spec.name
        );
        assert_eq!(spec.examples.len(), 1, "{}", spec.name);
        for argument in spec.declared_arguments() {
            assert!(
                !argument.description().is_empty(),
                "{} {}",
                spec.name,
                argument.name
            );
            assert!(
                !argument.required || spec.examples[0].contains_key(argument.name),
                "{}",
                spec.name
            );
        }
        assert!(
            spec.examples[0]
                .keys()
                .all(|name| spec.find_argument(name).is_some()),
            "{}",
            spec.name
        );
    }
    place.put("src/server.rs", "fn main() {\n    let port = 80;\n}\n");
    place.put("src/main.rs", "fn load_config() {}\n".repeat(50));
    for name in &names[..6] {
        let example = place.registry.tool_set().get(name).unwrap().examples[0].clone();
        let (output, _) = place.run(name, Value::Object(example));
        assert!(!output.failed, "{name}: {}", output.content);
    }
    assert_eq!(
        place.get("src/server.rs"),
        "fn main() {\n    let port = 8080;\n}\n"
    );
}

#[test]
fn only_reading_tools_run_at_the_same_time() {
    let place = Place::new();
    let reads = |name| place.registry.get(name).unwrap().is_read_only();
    assert!(reads("read_file") && reads("list_files") && reads("search_files"));
    assert!(reads("list_code_definition_names") && reads("fetch_url"));
    assert!(!reads("write_to_file") && !reads("replace_in_file") && !reads("execute_command"));
}

#[test]
fn accesses() {
    let place = Place::with(&[("src/a.rs", "")]);
    symlink("src", place.inner("link")).unwrap();
    symlink(".git", place.inner("notes")).unwrap();
    symlink(place.outside.path(), place.inner("out")).unwrap();
    std::fs::create_dir(place.inner(".git")).unwrap();
    let read = |path: &str, outside| Access::Read {
        path: path.to_owned(),
        outside,
    };
    let write = |path: &str, protected: Option<&str>| Access::Write {
        path: path.to_owned(),
        protected: protected.map(str::to_owned),
    };
    for (tool, other) in [
        ("read_file", None),
        ("list_files", None),
        ("search_files", Some("regex")),
    ] {
        let access = |path: &str| {
            let mut arguments = crate::object(json!({"path": path}));
            arguments.extend(other.map(|other| (other.to_owned(), json!("x"))));
            place
                .registry
                .get(tool)
                .unwrap()
                .prepare(&arguments)
                .access()
        };
        assert_eq!(access("./src/../src/a.rs"), read("src/a.rs", false));
        assert_eq!(access("link/a.rs"), read("src/a.rs", false));
        assert_eq!(access("missing"), read("missing", false));
        assert_eq!(access("/etc/passwd"), read("/etc/passwd", true));
        assert_eq!(access("../x"), read("../x", true));
        assert_eq!(access("out/x"), read("out/x", true));
        assert!(matches!(access("a\0b"), Access::Invalid { .. }));
    }
    assert_eq!(
        place.access("search_files", json!({"regex": "x"})),
        read(".", false)
    );
    for (tool, other) in [("write_to_file", "content"), ("replace_in_file", "diff")] {
        let access = |path: &str| place.access(tool, json!({"path": path, (other): ""}));
        assert_eq!(access("link/new.rs"), write("src/new.rs", None));
        assert_eq!(
            access("notes/hooks/x"),
            write(".git/hooks/x", Some("git's own files"))
        );
        for outside in ["/etc/passwd", "../x", "out/x", ""] {
            assert!(
                matches!(access(outside), Access::Invalid { .. }),
                "{outside}"
            );
        }
    }
    let patch = |path: &str| json!({"patch": format!("*** Begin Patch\n*** Update File: src/a.rs\n*** Move to: {path}\n*** End Patch")});
    let both = |other| Access::Several(vec![write("src/a.rs", None), other]);
    assert_eq!(
        place.access("apply_patch", patch("b.rs")),
        both(write("b.rs", None))
    );
    assert_eq!(
        place.access("apply_patch", patch("notes/x")),
        both(write(".git/x", Some("git's own files")))
    );
    assert!(matches!(
        place.access("apply_patch", patch("../x")),
        Access::Invalid { .. }
    ));
    assert_eq!(
        place.access("apply_patch", json!({"patch": "no patch"})),
        Access::Nothing
    );
    let several = json!({"path": "src/a.rs", "more_paths": ["link/a.rs:1-2", "../x"]});
    let all = vec![
        read("src/a.rs", false),
        read("src/a.rs", false),
        read("../x", true),
    ];
    assert_eq!(place.access("read_file", several), Access::Several(all));
    let command = json!({"command": "ls && rm x"});
    assert!(
        matches!(place.access("execute_command", command), Access::Command { command, .. } if command == "ls && rm x")
    );
    assert!(matches!(
        place.access("execute_command", json!({})),
        Access::Invalid { .. }
    ));
    assert_eq!(
        place.access("read_command_output", json!({})),
        Access::Nothing
    );
    assert_eq!(
        place.access("stop_command", json!({"job": 1})),
        Access::Nothing
    );
}
