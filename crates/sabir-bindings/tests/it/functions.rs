//! Tests the functions on whole texts, and the errors with their positions.

use sabir_bindings::{
    ReaderOptions, apply_edit, check_message, decode_response, detect_dialects, explain_message,
    guess_tools, lint_definitions, list_known_dialects, parse_message, render_calls,
    render_tool_prompt, render_tool_result,
};
use serde_json::{Value, json};

const SHAPES: [&str; 4] = [
    r#"[{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]"#,
    r#"[{"name": "look", "input_schema": SCHEMA}]"#,
    r#"{"tools": [{"name": "look", "inputSchema": SCHEMA}]}"#,
    r#"[{"name": "look", "parameters": SCHEMA}]"#,
];

const SCHEMA: &str = r#"{"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}, "required": ["path"]}"#;

fn options(more: &str) -> ReaderOptions {
    let tools = SHAPES[0].replace("SCHEMA", SCHEMA);
    ReaderOptions::from_json(&format!(r#"{{"tools": {tools}{more}}}"#)).unwrap()
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn every_shape_of_tools_gives_the_same_call() {
    for shape in SHAPES {
        let tools = shape.replace("SCHEMA", SCHEMA);
        let options = ReaderOptions::from_json("")
            .unwrap()
            .with_tools_json(&tools)
            .unwrap();
        let report = value(&parse_message(
            b"<look><path>a</path><line>3</line></look>",
            &options,
        ));
        assert_eq!(
            report["parts"][0]["arguments"],
            json!({"path": "a", "line": 3}),
            "{shape}"
        );
    }
}

#[test]
fn a_check_has_diagnostics_and_feedback() {
    let text = "<look>\n<line>ten</line>\n</look>";
    let check = value(&check_message(text.as_bytes(), &options("")));
    assert_eq!(check["ok"], false);
    assert_eq!(check["calls"][0]["state"], "rejected");
    let faults = check["faults"].as_array().unwrap();
    let wrong = faults
        .iter()
        .find(|fault| fault["kind"] == "wrong_type")
        .unwrap();
    assert_eq!(
        (&wrong["line"], &wrong["span"]),
        (&json!(2), &json!([13, 16]))
    );
    assert!(wrong["diagnostic"].as_str().unwrap().contains("^^^"));
    assert!(check["feedback"].as_str().unwrap().contains("path"));
}

#[test]
fn calls_are_rendered_and_read_back() {
    let options = options(r#", "dialect": "hermes""#);
    let written = render_calls(
        r#"[{"name": "look", "arguments": {"path": "a\nb"}}]"#,
        &options,
    )
    .unwrap();
    let report = value(&parse_message(written.as_bytes(), &options));
    assert_eq!(report["parts"][0]["arguments"]["path"], "a\nb");
    assert!(render_tool_prompt(&options).unwrap().contains("look"));
    assert!(render_tool_result("look", "</result>", true).starts_with("[look, failed]"));
}

#[test]
fn dialects_and_tools_are_detected() {
    let none = ReaderOptions::from_json("{}").unwrap();
    let text = b"<tool_call>\n{\"name\": \"look\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    let found = value(&detect_dialects(text, &none));
    assert_eq!(found["dialects"][0]["dialect"], "hermes");
    assert_eq!(found["wire"], Value::Null);
    let tools = value(&guess_tools(text, &none));
    assert_eq!(
        (&tools[0]["name"], &tools[0]["parameters"]["properties"]),
        (&json!("look"), &json!({"path": {}}))
    );
    assert_eq!(value(&guess_tools(b"only words", &none)), json!([]));
    assert!(value(&list_known_dialects()).as_array().unwrap().len() > 40);
}

#[test]
fn bodies_are_decoded() {
    let body = r#"{"choices": [{"message": {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{\"path\": \"a\"}"}}]}, "finish_reason": "tool_calls"}]}"#;
    let report = value(&decode_response(body.as_bytes(), "auto", &options("")).unwrap());
    assert_eq!(report["parts"][0]["name"], "look");
    assert_eq!(report["failed"], false);
    assert_eq!(
        decode_response(b"hello", "auto", &options(""))
            .unwrap_err()
            .code(),
        "unknown_body"
    );
}

#[test]
fn edits_are_applied_or_explained() {
    let edited =
        value(&apply_edit("a b\n", r#"{"old_string": "b", "new_string": "c"}"#, "auto").unwrap());
    assert_eq!(edited["content"], "a c\n");
    let error = apply_edit(
        "a\n",
        "<<<<<<< SEARCH\nzz\n=======\ny\n>>>>>>> REPLACE\n",
        "auto",
    )
    .unwrap_err();
    let report = value(&error.to_json());
    assert_eq!(report["code"], "edit_failed");
    assert_eq!(report["problems"][0]["kind"], "not_found");
    assert_eq!(
        apply_edit("", "", "magic").unwrap_err().code(),
        "unknown_word"
    );
}

#[test]
fn lints_and_explanations_are_reports() {
    let report =
        value(&lint_definitions(&SHAPES[1].replace("SCHEMA", SCHEMA), Some("auto")).unwrap());
    assert!(report["prompt_sizes"]["cline"].is_u64());
    let explained = value(&explain_message(
        b"<look><path>a</path></look>",
        &options(""),
    ));
    assert_eq!(explained["found"][0]["dialect"], "cline");
}

#[test]
fn errors_have_codes_and_positions() {
    let check = |json: &str, code: &str, span: Option<[usize; 2]>| {
        let error = ReaderOptions::from_json(json).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.span().map(Into::into), span, "{json}: {error}");
    };
    check("{\n\"dialect\": }", "invalid_options", Some([13, 14]));
    check(r#"{"dialects": 3}"#, "invalid_options", Some([13, 14]));
    check(r#"{"dialekt": "auto"}"#, "invalid_options", Some([9, 10]));
    check(r#"{"dialect": "clime"}"#, "unknown_dialect", None);
    check(r#"{"tools": {}}"#, "invalid_tools", None);
    check(
        r#"{"repairs": [["none_such", true]]}"#,
        "unknown_repair",
        None,
    );
    check(
        r#"{"dialects": [{"name": "auto", "machine": "json", "open": "<acme>"}]}"#,
        "invalid_dialect",
        None,
    );
    let options = ReaderOptions::from_json("").unwrap();
    let error = options.clone().with_tools_json("[{]").unwrap_err();
    assert_eq!(
        (error.code(), error.span().map(|span| span.start)),
        ("invalid_tools", Some(2))
    );
    assert_eq!(
        render_calls("[]", &options).unwrap_err().code(),
        "no_dialect"
    );
}

#[test]
fn calls_of_other_shapes_are_rendered_and_nothing_is_lost() {
    let hermes = options(r#", "dialect": "hermes""#);
    let own = r#"[{"name": "look", "arguments": {"path": "a"}}]"#;
    let expected = render_calls(own, &hermes).unwrap();
    for calls in [
        r#"[{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a"}}]"#,
        r#"[{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"path\": \"a\"}"}}]"#,
    ] {
        assert_eq!(render_calls(calls, &hermes).unwrap(), expected);
    }
    for lost in [
        r#"[{"name": "look", "args": {"path": "a"}}]"#,
        r#"[{"name": "look", "arguments": "{"}]"#,
        r#"[{"arguments": {}}]"#,
    ] {
        let error = render_calls(lost, &hermes).unwrap_err();
        assert_eq!(error.code(), "invalid_calls");
        assert!(error.to_string().contains("call 0"), "{error}");
    }
}

#[test]
fn a_name_that_is_not_read_back_is_refused() {
    for (dialect, call) in [
        ("qwen_coder", r#"[{"name": "f>\n", "arguments": {}}]"#),
        ("cline", r#"[{"name": "look", "arguments": {"a b": "x"}}]"#),
        ("cline", r#"[{"name": "look", "arguments": {"$x": "x"}}]"#),
    ] {
        let options = options(&format!(r#", "dialect": "{dialect}""#));
        let error = render_calls(call, &options).unwrap_err();
        assert_eq!(error.code(), "invalid_calls", "{dialect}");
        assert!(error.to_string().contains("read back"), "{error}");
    }
}

#[test]
fn repairs_and_dialects_have_more_than_one_name() {
    let cut = b"<tool_call>\n{\"name\": \"look\", \"arguments\": {\"path\": \"a\"}}";
    let state =
        |members: &str| value(&check_message(cut, &options(members)))["calls"][0]["state"].clone();
    assert_eq!(state(""), "cut");
    assert_eq!(
        state(r#", "repairs": [["missing_last_close", true]]"#),
        "complete"
    );
    assert_eq!(
        state(r#", "closes_last_call": true, "repairs": [["missing_last_close", false]]"#),
        "cut"
    );
    options(r#", "repairs": [["all", false], ["near_name", true]]"#);
    let error = ReaderOptions::from_json(r#"{"repairs": [["nope", true]]}"#).unwrap_err();
    assert!(error.to_string().contains("near_name"), "{error}");
    options(r#", "dialect": "Qwen-Coder""#);
}
