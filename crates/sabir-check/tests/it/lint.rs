//! Tests the lints: each finds its problem, and none finds anything in correct tools.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails by panicking is doing its work"
)]

use sabir_call::Severity;
use sabir_call::dialect::DialectSet;
use sabir_check::lint::{LINTS, LintScope, lint_tools};
use serde_json::{Value, json};

/// Returns a tool without findings.
fn good(name: &str) -> Value {
    json!({"name": name, "description": "Reads a file.", "examples": [{"path": "a.rs"}], "parameters": {
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": {"path": {"type": "string", "description": "Which."}}}})
}

/// Returns the same tool with another value at a pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut tool = good("read_file");
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    tool.pointer_mut(parent).unwrap()[key] = value;
    tool
}

/// `error lint /pointer` of each finding, in order.
fn lines(tools: &Value, scope: &LintScope) -> Vec<String> {
    let line = |finding: &sabir_check::lint::LintFinding| {
        let severity = if finding.severity == Severity::Error {
            "error"
        } else {
            "warning"
        };
        format!("{severity} {} {}", finding.lint, finding.pointer)
    };
    let mut lines: Vec<_> = lint_tools(tools, scope).iter().map(line).collect();
    lines.dedup();
    lines
}

fn check(tools: Value, expected: &[&str]) {
    assert_eq!(
        lines(&tools, &LintScope::all(DialectSet::built_in())),
        expected,
        "{tools}"
    );
}

#[test]
fn valid_tools_have_no_findings() {
    check(json!([good("read_file"), good("list_all")]), &[]);
    check(json!([]), &[]);
}

#[test]
fn names() {
    check(
        json!([1, {"description": "x"}]),
        &["error not_a_tool /0", "error not_a_tool /1"],
    );
    check(
        json!([good("a"), good("a")]),
        &["error doubled_name /1/name"],
    );
    check(
        json!([good("a b")]),
        &[
            "error unwritable_name /0/name",
            "error wire_name /0/name",
            "warning python_identifier /0/name",
        ],
    );
    check(json!([good("a.b")]), &["error wire_name /0/name"]);
    check(json!([good("a-b")]), &["warning python_identifier /0/name"]);
    check(json!([good(&"a".repeat(65))]), &["error wire_name /0/name"]);
    check(json!([good("class")]), &["warning python_keyword /0/name"]);
    check(
        json!([good("getFile"), good("getfile")]),
        &["warning case_collision /1/name"],
    );
    check(
        json!([good("get_file"), good("getfile")]),
        &["warning near_names /1/name"],
    );
    check(
        json!([good("read_file"), good("read_files")]),
        &["warning near_names /1/name"],
    );
    check(
        json!([good("read_file"), good("raed_file")]),
        &["warning near_names /1/name"],
    );
    check(json!([good("read_file_1"), good("read_file_2")]), &[]);
    check(
        json!([good("read_file"), good("path")]),
        &[
            "warning argument_like_tool /0/parameters/properties/path",
            "warning argument_like_tool /1/parameters/properties/path",
        ],
    );
}

#[test]
fn reserved_names() {
    for name in ["invoke", "tool_call", "function_calls"] {
        let found = lines(
            &json!([good(name)]),
            &LintScope::all(DialectSet::built_in()),
        );
        assert!(
            found.contains(&"warning reserved_name /0/name".to_owned()),
            "{name}: {found:?}"
        );
    }
    let found = lines(
        &json!([good("thinking")]),
        &LintScope::all(DialectSet::built_in()),
    );
    assert!(
        found.contains(&"error reserved_name /0/name".to_owned()),
        "{found:?}"
    );
    // Where no name is a tag, none collides with one.
    assert_eq!(
        lines(
            &json!([good("thinking")]),
            &LintScope::for_dialect(
                DialectSet::built_in(),
                DialectSet::built_in().find("kimi").unwrap()
            )
        ),
        [""; 0]
    );
}

#[test]
fn schemas() {
    let properties = "/parameters/properties/path";
    let of = |schema: Value| with(properties, schema);
    let described = |mut schema: Value| {
        schema["description"] = json!("Which.");
        json!([{"name": "read_file", "description": "Reads.", "examples": [{}], "parameters": {
            "type": "object", "properties": {"path": schema}}}])
    };
    check(
        json!([with("/parameters", json!([]))]),
        &["error no_object_schema /0/parameters"],
    );
    check(
        json!([with("/parameters/type", json!("array"))]),
        &[
            "error no_object_schema /0/parameters/type",
            "warning contradiction /0/examples/0",
        ],
    );
    check(
        json!([with("/parameters/oneOf", json!([{}]))]),
        &["error top_level_union /0/parameters/oneOf"],
    );
    check(
        json!([with("/parameters/patternProperties", json!({"^x": {}}))]),
        &["warning pattern_properties /0/parameters/patternProperties"],
    );
    check(
        json!([with("/parameters/required", json!(["path", "line"]))]),
        &[
            "error undeclared_required /0/parameters/required",
            "warning contradiction /0/examples/0",
        ],
    );
    check(
        json!([of(json!({"type": "strin", "description": "x"}))]),
        &["error invalid_schema /0/parameters"],
    );
    check(
        described(json!({"$ref": "https://example.com/x.json"})),
        &[
            "error outside_reference /0/parameters/properties/path/$ref",
            "warning missing_type /0/parameters/properties/path",
        ],
    );
    check(
        described(json!({})),
        &["warning missing_type /0/parameters/properties/path"],
    );
    check(
        described(json!({"type": "array"})),
        &["error untyped_array /0/parameters/properties/path"],
    );
    check(
        described(json!({"type": "object"})),
        &["warning hard_in_tags /0/parameters/properties/path"],
    );
    check(
        described(json!({"type": "array", "items": {"type": "object"}})),
        &["warning hard_in_tags /0/parameters/properties/path"],
    );
    check(
        described(json!({"type": ["string", "integer"]})),
        &["warning hard_in_tags /0/parameters/properties/path"],
    );
    check(described(json!({"type": ["string", "null"]})), &[]);
    check(
        described(json!({"type": "integer", "default": "x"})),
        &["warning contradiction /0/parameters/properties/path/default"],
    );
    check(
        described(json!({"type": "integer", "enum": [1, "x"]})),
        &["warning contradiction /0/parameters/properties/path/enum"],
    );
    check(
        described(json!({"type": "integer", "enum": ["x"]})),
        &["error contradiction /0/parameters/properties/path/enum"],
    );
    check(
        described(json!({"type": "string", "enum": ["a"], "default": "b"})),
        &["warning contradiction /0/parameters/properties/path/default"],
    );
    check(
        json!([with("/examples", json!([{"path": 1}]))]),
        &["warning contradiction /0/examples/0"],
    );
    let mut untyped = good("f");
    untyped["parameters"]
        .as_object_mut()
        .unwrap()
        .remove("type");
    check(json!([untyped]), &["warning missing_type /0/parameters"]);
}

#[test]
fn teaching() {
    check(
        json!([with("/description", json!(" "))]),
        &["warning missing_description /0"],
    );
    check(
        json!([with("/examples", json!([]))]),
        &["warning missing_description /0"],
    );
    check(
        json!([with(
            "/parameters/properties/path",
            json!({"type": "string"})
        )]),
        &["warning missing_description /0/parameters/properties/path"],
    );
    check(
        json!([with("/description", json!("long ".repeat(3000)))]),
        &["warning prompt_size /0"],
    );
}

#[test]
fn arguments_that_no_dialect_holds() {
    let tool = |argument: &str| {
        json!([{"name": "f", "description": "F.", "examples": [{}], "parameters": {
            "type": "object", "properties": {argument: {"type": "string", "description": "x"}}}}])
    };
    let found = lint_tools(&tool("a b<"), &LintScope::all(DialectSet::built_in()));
    let unread = found
        .iter()
        .find(|finding| finding.lint == "unreadable_call")
        .unwrap();
    assert_eq!(unread.pointer, "/0/parameters/properties/a b<");
    assert!(
        unread.dialects.contains(&"cline") && !unread.dialects.contains(&"hermes"),
        "{:?}",
        unread.dialects
    );
    let found = lines(&tool(""), &LintScope::all(DialectSet::built_in()));
    assert!(
        found.contains(&"error empty_argument /0/parameters/properties".to_owned()),
        "{found:?}"
    );
    assert!(
        lines(&tool("a/b~c"), &LintScope::all(DialectSet::built_in()))
            .iter()
            .any(|line| line.ends_with("/a~1b~0c"))
    );
}

#[test]
fn one_dialect_alone() {
    let hermes = LintScope::for_dialect(
        DialectSet::built_in(),
        DialectSet::built_in().find("hermes").unwrap(),
    );
    assert_eq!(lines(&json!([good("a-b")]), &hermes), [""; 0]);
    assert_eq!(lines(&json!([good(&"a".repeat(65))]), &hermes), [""; 0]);
    assert_eq!(
        lines(
            &json!([good("class")]),
            &LintScope::for_dialect(
                DialectSet::built_in(),
                DialectSet::built_in().find("pythonic").unwrap()
            )
        ),
        ["warning python_keyword /0/name"]
    );
}

#[test]
fn every_lint_is_documented_and_unique() {
    for rule in &LINTS {
        assert!(
            rule.doc.ends_with('.')
                && rule
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_'),
            "{}",
            rule.name
        );
        assert_eq!(
            LINTS.iter().filter(|other| other.name == rule.name).count(),
            1,
            "{}",
            rule.name
        );
    }
}
