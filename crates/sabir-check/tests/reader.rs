//! Reader and gates together: what a model wrote, and what would run.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which may panic like the tests")]

use sabir_call::dialect::Selection;
use sabir_call::{Cut, Draft, Protocol, Reader, ToolSet};
use sabir_check::{Audience, CallState, Checker, Repetition, feedback};

const TOOLS: &str = r#"[
 {"name": "read_file", "parameters": {"type": "object", "required": ["path"], "properties":
   {"path": {"type": "string"}, "start_line": {"type": "integer"}}}},
 {"name": "ask", "parameters": {"type": "object", "required": ["question"], "properties":
   {"question": {"type": "string"}, "follow_up": {"type": "array", "items": {"type": "string"}}}}},
 {"name": "use_mcp_tool", "parameters": {"type": "object", "required": ["tool_name"], "properties":
   {"tool_name": {"type": "string"}, "arguments": {"type": "object"}}}}
]"#;

/// What would run, one call a line; else the feedback's first two lines.
fn gated(dialect: &str, text: &str) -> String {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let mut draft = Draft::default();
    let mut reader = Reader::new(Selection::from_name(dialect).unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Cut::Ended, &mut draft);
    let checked = Checker::new(tools.clone()).check_all(&draft);
    let protocol = Protocol::Prompted(dialect.to_owned());
    if let Some(words) = feedback(
        &checked,
        &draft.faults,
        text,
        &Audience { protocol: &protocol, tools: &tools, told: &Repetition::default() },
    ) {
        return words.lines().take(2).collect::<Vec<_>>().join(" ");
    }
    assert!(checked.iter().all(|call| call.state == CallState::Complete));
    let line =
        |call: &sabir_check::Checked| format!("{} {}", call.name, serde_json::to_string(&call.arguments).unwrap());
    checked.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn calls_through_reader_and_gates() {
    let rows = [
        (
            "cline",
            "<read_file>\n<path>a &amp; b</path>\n<start_line>10</start_line>\n</read_file>",
            r#"read_file {"path":"a &amp; b","start_line":10}"#,
        ),
        (
            "cline",
            "<ask>\n<question>Which?</question>\n<follow_up>\n<suggest>a</suggest>\n<suggest mode=\"code\">b</suggest>\n</follow_up>\n</ask>",
            r#"ask {"question":"Which?","follow_up":["a","b"]}"#,
        ),
        (
            "invoke",
            "<function_calls>\n<invoke name=\"use_mcp_tool\">\n<parameter name=\"tool_name\">t</parameter>\n<parameter name=\"arguments\">{\"n\": [1]}</parameter>\n</invoke>\n</function_calls>",
            r#"use_mcp_tool {"tool_name":"t","arguments":{"n":[1]}}"#,
        ),
        (
            "cline",
            "<read_file>\n<path>a</path>\n<start_line>ten</start_line>\n</read_file>",
            "Your call 1 (`read_file`) was not run. error[wrong_type]: `start_line` must be an integer, but is \"ten\"",
        ),
        (
            "invoke",
            "<function_calls>\n<invoke name=\"reda_fil\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n</function_calls>",
            "Your call 1 (`reda_fil`) was not run. error[unknown_tool]: there is no tool `reda_fil`",
        ),
        (
            "cline",
            "<read_file>\n<path>a",
            "Your call 1 (`read_file`) was cut and not run. error[cut_call]: the call of `read_file` was cut inside `path`, 1 bytes into its value: the message ended there; it was not run (write the whole call again and close it)",
        ),
    ];
    for (dialect, text, expected) in rows {
        assert_eq!(gated(dialect, text), expected, "{text}");
    }
}

/// The first fault of the first call, as a compiler would print it.
fn diagnosed(dialect: &str, text: &str) -> String {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let mut draft = Draft::default();
    let mut reader = Reader::new(Selection::from_name(dialect).unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Cut::Ended, &mut draft);
    draft.source = text.to_owned();
    let checked = Checker::new(tools).check_all(&draft);
    let fault = checked.first().unwrap().faults.first().unwrap();
    fault.diagnostic(text).lines().skip(3).take(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_caret_stands_under_what_is_wrong() {
    let rows = [
        ("cline", "<red_fil>\n<path>a</path>\n</red_fil>", "1 | <red_fil>\n  |  ^^^^^^^"),
        (
            "invoke",
            "<function_calls>\n<invoke name=\"reda_fil\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n</function_calls>",
            "2 | <invoke name=\"reda_fil\">\n  |               ^^^^^^^^",
        ),
        (
            "invoke",
            "<function_calls>\n<invoke id=1 name = 'TOOL_NAME'>\n<parameter name=\"PARAM_NAME\">a</parameter>\n</invoke>\n</function_calls>",
            "2 | <invoke id=1 name = 'TOOL_NAME'>\n  |                      ^^^^^^^^^",
        ),
        (
            "cline",
            "<use_mcp_tool>\n<tool_name>t</tool_name>\n<arguments>\n{\"n\" 1}\n</arguments>\n</use_mcp_tool>",
            "4 | {\"n\" 1}\n  |      ^",
        ),
        (
            "cline",
            "<read_file>\n<path>漢\t字</path>\t<start_line>zehn</start_line>\n</read_file>",
            "2 | <path>漢\t字</path>\t<start_line>zehn</start_line>\n  |         \t         \t            ^^^^",
        ),
        (
            "invoke",
            "<function_calls>\n<invoke name=\"read_file\">\n<parameter name=\"pth\">a</parameter>\n</invoke>\n</function_calls>",
            "3 | <parameter name=\"pth\">a</parameter>\n  |                  ^^^",
        ),
        ("cline", "<read_file>\n<path>\na &amp; b\n</path>\n</read_file>", "3 | a &amp; b\n  |   ^^^^^"),
    ];
    for (dialect, text, expected) in rows {
        assert_eq!(diagnosed(dialect, text), expected, "{text}");
    }
}

#[test]
fn every_mistake_is_told_at_once_with_what_was_meant() {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let text = "<read_file>\n<pth>x</pth>\n<start_line>ten</start_line>\n</read_file>\nDone.";
    let mut draft = Draft::default();
    let mut reader = Reader::new(Selection::from_name("cline").unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Cut::Ended, &mut draft);
    draft.source = text.to_owned();
    let checker = Checker::new(tools);
    let (checked, loose) = (checker.check_all(&draft), checker.loose(&draft));
    let told = |fault: &sabir_call::Fault| {
        let place = fault.place(text);
        format!("{} {}:{} {}", fault.kind.name(), place.line, place.column, fault.hint.as_deref().unwrap_or_default())
    };
    let mut lines: Vec<String> = checked.iter().flat_map(|call| &call.faults).chain(&loose).map(told).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "missing_argument 1:2 `pth` was given; did you mean `path`?",
            "text_after_call 5:1 stop after the call; its result comes first",
            "unknown_argument 2:2 did you mean `path`?",
            "wrong_type 3:13 write an integer in `start_line`",
        ]
    );
}
