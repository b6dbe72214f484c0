//! Tests parser and checks together: from the model's text to the calls that would run.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which may panic like the tests"
)]

use sabir_call::dialect::DialectSet;
use sabir_call::{CallReader, DraftResponse, ToolProtocol, ToolSet, Truncation};
use sabir_check::{
    CallChecker, CallState, FeedbackContext, MistakeCounter, RepairSet, render_feedback,
};

const TOOLS: &str = r#"[
 {"name": "read_file", "parameters": {"type": "object", "required": ["path"], "properties":
   {"path": {"type": "string"}, "start_line": {"type": "integer"}}}},
 {"name": "ask", "parameters": {"type": "object", "required": ["question"], "properties":
   {"question": {"type": "string"}, "follow_up": {"type": "array", "items": {"type": "string"}}}}},
 {"name": "use_mcp_tool", "parameters": {"type": "object", "required": ["tool_name"], "properties":
   {"tool_name": {"type": "string"}, "arguments": {"type": "object"}}}}
]"#;

/// Returns the calls that would run, one per line; otherwise the feedback's first two lines.
fn check_text(dialect: &str, text: &str) -> String {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().select(dialect).unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    let checked = CallChecker::new(tools.clone()).check_all(&draft);
    let protocol = ToolProtocol::Prompted(dialect.to_owned());
    if let Some(words) = render_feedback(
        &checked,
        &draft.faults,
        text,
        &FeedbackContext {
            protocol: &protocol,
            dialects: DialectSet::built_in(),
            tools: &tools,
            repetition: &MistakeCounter::default(),
        },
    ) {
        return words.lines().take(2).collect::<Vec<_>>().join(" ");
    }
    assert!(checked.iter().all(|call| call.state == CallState::Complete));
    let line = |call: &sabir_check::CheckedCall| {
        format!(
            "{} {}",
            call.name,
            serde_json::to_string(&call.arguments).unwrap()
        )
    };
    checked.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn calls_through_reader_and_checks() {
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
        assert_eq!(check_text(dialect, text), expected, "{text}");
    }
}

/// The first fault of the first call, as a compiler would print it.
fn diagnosed(dialect: &str, text: &str) -> String {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().select(dialect).unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft.source = text.to_owned();
    let checked = CallChecker::new(tools).check_all(&draft);
    let fault = checked.first().unwrap().faults.first().unwrap();
    fault
        .render_diagnostic(text)
        .lines()
        .skip(3)
        .take(2)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_caret_marks_the_faulty_text() {
    let rows = [
        (
            "cline",
            "<red_fil>\n<path>a</path>\n</red_fil>",
            "1 | <red_fil>\n  |  ^^^^^^^",
        ),
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
        (
            "cline",
            "<read_file>\n<path>\na &amp; b\n</path>\n</read_file>",
            "3 | a &amp; b\n  |   ^^^^^",
        ),
    ];
    for (dialect, text, expected) in rows {
        assert_eq!(diagnosed(dialect, text), expected, "{text}");
    }
}

#[test]
fn all_mistakes_are_reported_together_with_hints() {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let text = "<read_file>\n<pth>x</pth>\n<start_line>ten</start_line>\n</read_file>\nDone.";
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().select("cline").unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft.source = text.to_owned();
    let checker = CallChecker::new(tools);
    let (checked, loose) = (checker.check_all(&draft), checker.unattached_faults(&draft));
    let told = |fault: &sabir_call::Fault| {
        let place = fault.position_in(text);
        format!(
            "{} {}:{} {}",
            fault.kind.name(),
            place.line,
            place.column,
            fault.hint.as_deref().unwrap_or_default()
        )
    };
    let mut lines: Vec<String> = checked
        .iter()
        .flat_map(|call| &call.faults)
        .chain(&loose)
        .map(told)
        .collect();
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

/// Describes the verdict on the first call with these repairs: its state, its repairs and its errors.
fn check_with_repairs(dialect: &str, text: &str, repairs: RepairSet) -> String {
    let tools = ToolSet::from_json(TOOLS).unwrap();
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().select(dialect).unwrap(), &tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft.source = text.to_owned();
    let checked = CallChecker::new(tools)
        .with_repairs(repairs)
        .check_all(&draft);
    let call = checked.first().unwrap();
    let mut line = format!("{:?}", call.state);
    for repair in &call.repairs {
        line += &format!(
            " {}@{} {} -> {}",
            repair.rule,
            repair.span.start,
            repair.before.escape_debug(),
            repair.after
        );
    }
    for fault in &call.faults {
        line += &format!(" {}@{}", fault.kind.name(), fault.span.start);
    }
    line
}

#[test]
fn parser_repairs_are_recorded_and_can_be_switched_off() {
    // (dialect, text, with every repair, the rule, without it)
    let rows = [
        (
            "json",
            "{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\nb\"}}",
            "Complete control_character@46 \\n -> \\n",
            "control_character",
            "Rejected control_character@46",
        ),
        (
            "json",
            "[{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"} , },]",
            "Complete trailing_comma@50 , } -> } trailing_comma@53 ,] -> ]",
            "trailing_comma",
            "Rejected trailing_comma@52 trailing_comma@54",
        ),
        (
            "hermes",
            "<tool_call>{'name': 'read_file', \"arguments\": {\"path\": \"a\"}}</tool_call>",
            "Complete single_quotes@12 \\'name\\' -> \"name\"",
            "single_quotes",
            "Rejected single_quotes@12",
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}}</tool_call>",
            "Complete extra_bracket@60 } -> ",
            "extra_bracket",
            "Rejected extra_bracket@60",
        ),
        (
            "lfm2",
            "<|tool_call_start|>[read_file(path='a\nb')]<|tool_call_end|>",
            "Complete control_character@37 \\n -> \\n",
            "control_character",
            "Rejected control_character@37",
        ),
    ];
    for (dialect, text, with, rule, without) in rows {
        assert_eq!(
            check_with_repairs(dialect, text, RepairSet::all()),
            with,
            "{text}"
        );
        assert_eq!(
            check_with_repairs(dialect, text, RepairSet::all().without_rule(rule).unwrap()),
            without,
            "{text}"
        );
        assert_eq!(
            check_with_repairs(dialect, text, RepairSet::none()),
            without,
            "{text}"
        );
    }
}

#[test]
fn feedback_holds_no_pattern_and_shows_the_dialect_that_was_tried() {
    // (dialect, text, what the feedback must hold)
    let rows = [
        ("cline", "<read_file path=\"a\"/>", "<read_file>\n<path>"),
        (
            "cline",
            "<read_file path=\"a\">\n<path>a</path>\n</read_file>",
            "<read_file>\n<path>",
        ),
        ("cline", "<read_file/>", "<read_file>\n<path>"),
        (
            "cline",
            "<read_file>\n{\"path\": \"a\"}\n</read_file>",
            "<read_file>\n<path>",
        ),
        (
            "invoke",
            "@e>\n<parameter name=\"path\">a</parameter>\n</#e>",
            "A correct call",
        ),
        (
            "invoke",
            "@e name=\"read_file\">\n<path>a</path>\n</#e>",
            "A correct call",
        ),
        (
            "lfm2",
            "<|tool_call_start|>[read_file(\"a\")]<|tool_call_end|>",
            "A correct call",
        ),
        (
            "functiongemma",
            "<start_function_call>call:read_file[path]<end_function_call>",
            "A correct call",
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"read_file\", \"path\": 1}</tool_call>",
            "A correct call",
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": <path>a</path>}}</tool_call>",
            "tag_in_json",
        ),
        ("native", "<read_file path=\"a\"/>", "Correct arguments"),
        (
            "native",
            "@ name=\"read_file\">\n<parameter name=\"path\">a</parameter>\n</#>",
            "name=\"path\"",
        ),
    ];
    let tools = ToolSet::from_json(TOOLS).unwrap();
    for (dialect, text, expected) in rows {
        let text = text
            .replace('@', "<TAG")
            .replace('#', "TAG")
            .replace("TAG", "invok");
        let (read, protocol) = match dialect {
            "native" => ("auto", ToolProtocol::Native),
            other => (other, ToolProtocol::Prompted(other.to_owned())),
        };
        let mut draft = DraftResponse::default();
        let mut reader = CallReader::new(DialectSet::built_in().select(read).unwrap(), &tools);
        reader.push(&text, &mut draft);
        reader.finish(Truncation::Ended, &mut draft);
        draft.source.clone_from(&text);
        let checker = CallChecker::new(tools.clone());
        let (checked, loose) = (checker.check_all(&draft), checker.unattached_faults(&draft));
        let audience = FeedbackContext {
            protocol: &protocol,
            dialects: DialectSet::built_in(),
            tools: &tools,
            repetition: &MistakeCounter::default(),
        };
        let words = render_feedback(&checked, &loose, &text, &audience).unwrap_or_default();
        assert!(words.contains(expected), "{dialect} {text}\n{words}");
        assert!(
            !words.contains("…>") && !words.contains("=\"…\"") && !words.contains("=\"value\""),
            "{words}"
        );
    }
}
