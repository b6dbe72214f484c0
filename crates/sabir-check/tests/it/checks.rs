//! Tests the checks from outside, with responses built from events by hand, and verdicts and feedback compared as lines.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests, which may panic like the tests"
)]

use sabir_call::dialect::DialectSet;
use sabir_call::{
    ArgumentEncoding, DraftResponse, Event, EventSink, Fault, FaultKind, ParallelCalls, Span,
    StopReason, ToolProtocol, ToolSet, Truncation,
};
use sabir_check::{
    CallChecker, CallState, CheckedCall, FEEDBACK_CAP, FeedbackContext, MistakeCounter, RepairSet,
    render_feedback,
};

const TOOLS: &str = r##"[
 {"name": "read_file", "parameters": {"type": "object", "additionalProperties": false, "required": ["path"], "properties":
   {"path": {"type": "string"}, "start_line": {"type": "integer"}, "end_line": {"type": ["integer", "null"]}}}},
 {"name": "write_to_file", "parameters": {"type": "object", "required": ["path", "content"], "properties":
   {"path": {"type": "string"}, "content": {"type": "string"}}}},
 {"name": "execute_command", "parameters": {"type": "object", "required": ["command"], "properties":
   {"command": {"type": "string"}, "requires_approval": {"type": "boolean"}, "timeout": {"type": "number", "maximum": 600}}}},
 {"name": "use_mcp_tool", "parameters": {"type": "object", "required": ["server_name", "tool_name"], "properties":
   {"server_name": {"type": "string"}, "tool_name": {"type": "string"}, "arguments": {"type": "object"}}}},
 {"name": "ask", "parameters": {"type": "object", "required": ["question"], "properties":
   {"question": {"type": "string"}, "follow_up": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    "kind": {"enum": ["yes_no", "open"]}, "limit": {"anyOf": [{"const": "auto"}, {"type": "integer"}]}}}},
 {"name": "tree", "parameters": {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["name"],
   "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}},
 {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
 {"name": "anything", "parameters": {"type": "object"}},
 {"name": "broken", "parameters": {"type": "object", "properties": {"a": {"type": "strin"}}}},
 {"name": "act", "parameters": {"type": "object", "required": ["action"], "properties": {"action": {"type": "string"}}}}
]"##;

fn tools() -> ToolSet {
    ToolSet::from_json(TOOLS).unwrap()
}

/// A draft of one call. Each argument is `name=raw text`, `name:=string` or `name:json`.
fn draft(name: &str, arguments: &[&str], end: Option<Truncation>) -> DraftResponse {
    let mut draft = DraftResponse::default();
    let mut at = 10;
    draft.push_event(Event::CallStart {
        index: 0,
        id: None,
        name,
        dialect: Some("cline"),
        at: 0,
        name_at: 1,
    });
    for (position, argument) in arguments.iter().enumerate() {
        let (name, rest) = argument.split_at(argument.find(['=', ':']).unwrap());
        let (form, text) = match (rest.strip_prefix(":="), rest.strip_prefix('=')) {
            (Some(text), _) => (ArgumentEncoding::String, text),
            (_, Some(text)) => (ArgumentEncoding::Raw, text),
            _ => (ArgumentEncoding::Json, &rest[1..]),
        };
        draft.push_event(Event::ArgStart {
            index: 0,
            name,
            form,
            at,
        });
        if !text.is_empty() {
            draft.push_event(Event::ArgDelta { index: 0, text });
        }
        at += text.len();
        if end.is_none() || position + 1 < arguments.len() {
            draft.push_event(Event::ArgEnd {
                index: 0,
                lead: "",
                at,
            });
        }
    }
    draft.push_event(match end {
        None => Event::CallEnd { index: 0, at },
        Some(why) => Event::CallCut { index: 0, why, at },
    });
    draft
}

fn line(checked: &CheckedCall) -> String {
    let mut line = match checked.state {
        CallState::Complete => "runs".to_owned(),
        CallState::Rejected => "rejected".to_owned(),
        CallState::Cut => "cut".to_owned(),
    };
    line += &format!(
        " {} {}",
        checked.name,
        serde_json::to_string(&checked.arguments).unwrap()
    );
    for repair in &checked.repairs {
        line += &format!(" +{}", repair.rule);
    }
    for fault in &checked.faults {
        let hint = fault.hint.as_deref().unwrap_or("");
        line += &format!(
            "\n  {}@{}: {} [{hint}]",
            fault.kind.name(),
            fault.span.start,
            fault.message
        );
    }
    line
}

#[track_caller]
fn check(name: &str, arguments: &[&str], expected: &str) {
    let draft = draft(name, arguments, None);
    assert_eq!(
        line(&CallChecker::new(tools()).check_all(&draft)[0]),
        expected
    );
}

#[test]
fn calls_that_run() {
    check(
        "read_file",
        &["path=a.txt", "start_line=10", "end_line=null"],
        r#"runs read_file {"path":"a.txt","start_line":10,"end_line":null}"#,
    );
    check("get_time", &[], "runs get_time {}");
    check(
        "write_to_file",
        &["path=p", "content= \n<a>&amp;\r\n"],
        r#"runs write_to_file {"path":"p","content":" \n<a>&amp;\r\n"}"#,
    );
    check(
        "use_mcp_tool",
        &["server_name=s", "tool_name=t", "arguments={\"q\": [1]}"],
        r#"runs use_mcp_tool {"server_name":"s","tool_name":"t","arguments":{"q":[1]}}"#,
    );
    check(
        "anything",
        &["x:{\"y\":1}", "z=1"],
        r#"runs anything {"x":{"y":1},"z":"1"}"#,
    );
    check(
        "ask",
        &["question=q", "follow_up=<s>a</s><s>b</s>"],
        r#"runs ask {"question":"q","follow_up":["a","b"]}"#,
    );
    check(
        "tree",
        &[
            "name=r",
            "children=<c><name>x</name><children><d><name>y</name></d></children></c>",
        ],
        r#"runs tree {"name":"r","children":[{"name":"x","children":[{"name":"y"}]}]}"#,
    );
    check(
        "execute_command",
        &["command=a && b", "timeout=30"],
        r#"runs execute_command {"command":"a && b","timeout":30}"#,
    );
}

#[test]
fn a_string_in_a_union_yields_only_to_the_schema() {
    check(
        "ask",
        &["question=q", "limit=auto"],
        r#"runs ask {"question":"q","limit":"auto"}"#,
    );
    check(
        "ask",
        &["question=q", "limit=10"],
        r#"runs ask {"question":"q","limit":10}"#,
    );
    check(
        "ask",
        &["question=q", "limit:=10"],
        r#"runs ask {"question":"q","limit":10} +stringified_value"#,
    );
    check(
        "ask",
        &["question=q", "limit=many"],
        "rejected ask {\"question\":\"q\",\"limit\":\"many\"}\n  invalid_value@11: `limit`: value is not valid under any of the schemas listed in the 'anyOf' keyword; found \"many\" []",
    );
}

#[test]
fn names_of_tools() {
    check(
        "Read_File",
        &["path=a"],
        r#"runs read_file {"path":"a"} +wrong_case_name"#,
    );
    check(
        "red_fil",
        &["path=a"],
        "rejected red_fil {\"path\":\"a\"}\n  unknown_tool@1: there is no tool `red_fil` [did you mean `read_file`?]",
    );
    check(
        "zzz",
        &["tool_name=x"],
        "rejected zzz {\"tool_name\":\"x\"}\n  unknown_tool@1: there is no tool `zzz` [the tools are `read_file`, `write_to_file`, `execute_command`, `use_mcp_tool`, `ask`, `tree`, `get_time`, `anything`, …]",
    );
    check(
        "TOOL_NAME",
        &["PARAM_NAME=PARAM_VALUE"],
        "rejected TOOL_NAME {\"PARAM_NAME\":\"PARAM_VALUE\"}\n  placeholder@1: `TOOL_NAME` is a placeholder of the instructions, not a tool [put the name of a tool in its place]\n  placeholder@10: `PARAM_NAME` is a placeholder of the instructions, not an argument [put the name of an argument in its place]",
    );
    let checked = CallChecker::new(ToolSet::default()).check_all(&draft("x", &[], None));
    assert_eq!(
        line(&checked[0]),
        "rejected x {}\n  unknown_tool@1: `x` was called, but no tools are available [answer in words]"
    );
}

#[test]
fn names_of_arguments() {
    check(
        "read_file",
        &["Path=a"],
        r#"runs read_file {"path":"a"} +wrong_case_argument"#,
    );
    check(
        "execute_command",
        &["cmd=ls"],
        r#"runs execute_command {"command":"ls"} +argument_alias"#,
    );
    check(
        "read_file",
        &["file_path=a"],
        r#"runs read_file {"path":"a"} +argument_alias"#,
    );
    check(
        "act",
        &["operation=go"],
        r#"runs act {"action":"go"} +argument_alias"#,
    );
    check(
        "write_to_file",
        &["file=a", "contents=b"],
        r#"runs write_to_file {"path":"a","content":"b"} +argument_alias +argument_alias"#,
    );
    // Two aliases for one argument, or an alias beside its target, are two readings.
    check(
        "execute_command",
        &["cmd=ls", "bash=rm"],
        "rejected execute_command {\"cmd\":\"ls\",\"bash\":\"rm\"}\n  unknown_argument@10: `execute_command` has no argument `cmd` [did you mean `command`?]\n  unknown_argument@12: `execute_command` has no argument `bash` [did you mean `command`?]\n  missing_argument@1: `execute_command` needs the argument `command` (a string), which is missing [`cmd` was given; did you mean `command`?]",
    );
    check(
        "read_file",
        &["path=a", "file=b"],
        "rejected read_file {\"path\":\"a\",\"file\":\"b\"}\n  unknown_argument@11: `read_file` has no argument `file` [did you mean `path`?]",
    );
    check(
        "read_file",
        &["pth=a"],
        "rejected read_file {\"pth\":\"a\"}\n  unknown_argument@10: `read_file` has no argument `pth` [did you mean `path`?]\n  missing_argument@1: `read_file` needs the argument `path` (a string), which is missing [`pth` was given; did you mean `path`?]",
    );
    check(
        "get_time",
        &["zone=x"],
        "rejected get_time {\"zone\":\"x\"}\n  unknown_argument@10: `get_time` has no argument `zone` [it takes no arguments]",
    );
    check(
        "read_file",
        &["path=a", "path=b"],
        "rejected read_file {\"path\":\"a\"}\n  doubled_argument@11: `path` is given twice; one value was expected [give it once; the first value was kept, and nothing was run]",
    );
    check(
        "read_file",
        &["path=PARAM_VALUE", "parameter1_name=x"],
        "rejected read_file {\"path\":\"PARAM_VALUE\",\"parameter1_name\":\"x\"}\n  placeholder@10: `path` holds `PARAM_VALUE`, a placeholder of the instructions [put the real value in its place]\n  placeholder@21: `parameter1_name` is a placeholder of the instructions, not an argument [put the name of an argument in its place]",
    );
    check(
        "execute_command",
        &["command=grep tool_name"],
        r#"runs execute_command {"command":"grep tool_name"}"#,
    );
    check(
        "execute_command",
        &["command=tool_name"],
        r#"runs execute_command {"command":"tool_name"}"#,
    );
}

#[test]
fn values_that_the_schema_refuses() {
    check(
        "read_file",
        &["path=a", "start_line=ten"],
        "rejected read_file {\"path\":\"a\",\"start_line\":\"ten\"}\n  wrong_type@11: `start_line` must be an integer, but is \"ten\" [write an integer in `start_line`]",
    );
    check(
        "read_file",
        &["path=a", "start_line:null"],
        r#"runs read_file {"path":"a"} +null_argument"#,
    );
    let strict = CallChecker::new(tools())
        .with_repairs(RepairSet::all().without_rule("null_argument").unwrap());
    assert_eq!(
        line(&strict.check_all(&draft("read_file", &["path=a", "start_line:null"], None))[0]),
        "rejected read_file {\"path\":\"a\",\"start_line\":null}\n  wrong_type@11: `start_line` must be an integer, but is null [write an integer there]"
    );
    let required =
        &CallChecker::new(tools()).check_all(&draft("read_file", &["path:null"], None))[0];
    assert_eq!(
        (required.state, required.repairs.len()),
        (CallState::Rejected, 0),
        "{required:?}"
    );
    check(
        "read_file",
        &["path=a", "start_line= 7 "],
        r#"runs read_file {"path":"a","start_line":7} +trimmed_scalar"#,
    );
    check(
        "read_file",
        &["path:=a", "start_line:=7"],
        r#"runs read_file {"path":"a","start_line":7} +stringified_value"#,
    );
    check(
        "read_file",
        &["path:10"],
        "rejected read_file {\"path\":10}\n  wrong_type@10: `path` must be a string, but is integer 10 [write a string there]",
    );
    check(
        "execute_command",
        &["command=x", "timeout=601", "requires_approval=yes"],
        "rejected execute_command {\"command\":\"x\",\"timeout\":601,\"requires_approval\":\"yes\"}\n  wrong_type@14: `requires_approval` must be true or false, but is \"yes\" [write true or false in `requires_approval`]\n  invalid_value@11: `timeout`: value is greater than the maximum of 600; found 601 []",
    );
    check(
        "ask",
        &["question=q", "kind=yes_know", "follow_up:[1, \"b\", \"c\"]"],
        "rejected ask {\"question\":\"q\",\"kind\":\"yes_know\",\"follow_up\":[1,\"b\",\"c\"]}\n  invalid_value@11: `kind` must be one of [\"yes_no\",\"open\"], but is \"yes_know\" [did you mean `yes_no`?]\n  invalid_value@19: `follow_up`: value has more than 2 items; found [1,\"b\",\"c\"] []\n  wrong_type@19: `follow_up` at `/0` must be a string, but is integer 1 [write a string there]",
    );
    check(
        "tree",
        &["name=r", "children:[{\"name\": 1}, {}]"],
        "rejected tree {\"name\":\"r\",\"children\":[{\"name\":1},{}]}\n  wrong_type@11: `children` at `/0/name` must be a string, but is integer 1 [write a string there]\n  invalid_value@11: `children` at `/1` needs `name`, but is {} [add `name`]",
    );
    check(
        "use_mcp_tool",
        &["server_name=s", "tool_name=t", "arguments={\"a\": 1"],
        "rejected use_mcp_tool {\"server_name\":\"s\",\"tool_name\":\"t\",\"arguments\":\"{\\\"a\\\": 1\"}\n  malformed_json@19: `arguments` is not valid JSON: the text ends too early; found its end in \"{\\\"a\\\": 1\" [write valid JSON: double quotes, no comma before a closing bracket]",
    );
}

#[test]
fn near_names_are_repaired_only_when_unambiguous() {
    check(
        "readFile",
        &["path=a"],
        r#"runs read_file {"path":"a"} +near_name"#,
    );
    check(
        "readFile",
        &["path=a", "start_line=1"],
        r#"runs read_file {"path":"a","start_line":1} +near_name"#,
    );
    check("getTime", &[], "runs get_time {} +near_name");
    check(
        "read_file",
        &["path=a", "startLine=3"],
        r#"runs read_file {"path":"a","start_line":3} +near_argument"#,
    );
    // Arguments that are not exactly the tool's own speak for another tool.
    for arguments in [
        &["path=a", "mode=x"][..],
        &["Path=a"],
        &[],
        &["start_line=1"],
    ] {
        let checked = &CallChecker::new(tools()).check_all(&draft("readFile", arguments, None))[0];
        assert_eq!(
            (checked.name.as_str(), checked.state),
            ("readFile", CallState::Rejected),
            "{arguments:?}"
        );
        assert_eq!(
            checked.faults[0].hint.as_deref(),
            Some("did you mean `read_file`?")
        );
    }
    // Two spellings of one argument are two values.
    for arguments in [
        ["path=a", "start_line=1", "startLine=2"],
        ["path=a", "start-line=1", "startLine=2"],
    ] {
        let checked =
            &CallChecker::new(tools()).check_all(&draft("read_file", &arguments, None))[0];
        assert_eq!(checked.state, CallState::Rejected, "{arguments:?}");
    }
    // A tool that takes any arguments takes those that are nearly its own.
    let open = r#"[{"name": "put", "parameters": {"type": "object", "properties": {"start_line": {}}, "additionalProperties": true}}]"#;
    let checked = &CallChecker::new(ToolSet::from_json(open).unwrap()).check_all(&draft(
        "put",
        &["startLine=1"],
        None,
    ))[0];
    assert_eq!(line(checked), r#"runs put {"startLine":"1"}"#);
    let risky = r#"[{"name": "read_file"}, {"name": "read_files"}, {"name": "delete_file"}, {"name": "set_mode"}]"#;
    for name in ["read_fil", "read_filez", "delte_fil", "get_mode", "set_mod"] {
        let checked = &CallChecker::new(ToolSet::from_json(risky).unwrap()).check_all(&draft(
            name,
            &[],
            None,
        ))[0];
        assert_eq!(checked.state, CallState::Rejected, "{name}");
    }
}

#[test]
fn very_many_arguments_are_one_fault() {
    let names: Vec<String> = (0..20_000)
        .map(|n| format!("PATH{n}=x"))
        .chain([format!("{}=x", "p".repeat(1 << 20))])
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let checked = &CallChecker::new(tools()).check_all(&draft("read_file", &names, None))[0];
    assert_eq!(
        (checked.state, checked.faults.len()),
        (CallState::Rejected, 2)
    );
}

#[test]
fn json_in_a_tag_has_its_own_fault() {
    let json = r#"{"path": "a", "content": "b"}"#;
    let told = |place: &str, at: usize| {
        format!(
            "json_in_tag@{at}: {place} holds arguments as one JSON object, where a tag for each was expected; found \"{{\\\"path\\\": \\\"a\\\", \\\"content\\\": \\\"b\\\"}}\" [write `path`, `content` in a tag of its own, with nothing but the value in it]"
        )
    };
    let shown = json.replace('"', "\\\"");
    for name in ["arguments", "input", ""] {
        let place = if name.is_empty() {
            "the call".to_owned()
        } else {
            format!("`{name}`")
        };
        let expected = format!(
            "rejected write_to_file {{\"{name}\":\"{shown}\"}}\n  {}",
            told(place.as_str(), 10)
        );
        check("write_to_file", &[&format!("{name}={json}")], &expected);
    }
    check(
        "write_to_file",
        &[&format!("path=\n{json}")],
        &format!(
            "rejected write_to_file {{\"path\":\"\\n{shown}\"}}\n  {}",
            told("`path`", 11)
        ),
    );
    check(
        "read_file",
        &["path=a", "start_line={\"start_line\": 3}"],
        "rejected read_file {\"path\":\"a\",\"start_line\":\"{\\\"start_line\\\": 3}\"}\n  json_in_tag@11: `start_line` holds arguments as one JSON object, where a tag for each was expected; found \"{\\\"start_line\\\": 3}\" [write `start_line` in a tag of its own, with nothing but the value in it]",
    );
    // If no argument is missing, the text may be intended.
    let checked = &CallChecker::new(tools()).check_all(&draft(
        "read_file",
        &["path={\"path\": \"a\"}"],
        None,
    ))[0];
    assert!(
        line(checked).starts_with(
            "runs read_file {\"path\":\"{\\\"path\\\": \\\"a\\\"}\"}\n  json_in_tag@10"
        ),
        "{}",
        line(checked)
    );
    check(
        "write_to_file",
        &["path=a", "content={\"path\": \"b\"}"],
        r#"runs write_to_file {"path":"a","content":"{\"path\": \"b\"}"}"#,
    );
    check(
        "anything",
        &["x={\"y\": 1}"],
        r#"runs anything {"x":"{\"y\": 1}"}"#,
    );
}

#[test]
fn tags_in_json_have_their_own_fault() {
    check(
        "ask",
        &[
            "question:=q",
            "follow_up:=<suggest>a</suggest>\n<suggest>b</suggest>",
        ],
        "rejected ask {\"question\":\"q\",\"follow_up\":\"<suggest>a</suggest>\\n<suggest>b</suggest>\"}\n  tag_in_json@11: `follow_up` must be an array in JSON, but holds tags: \"<suggest>a</suggest>\\n<suggest>b</suggest>\" [write [\"a\",\"b\"] in `follow_up`]",
    );
    check(
        "read_file",
        &["path:=a", "start_line:=<n>3</n>"],
        "rejected read_file {\"path\":\"a\",\"start_line\":\"<n>3</n>\"}\n  tag_in_json@11: `start_line` must be an integer in JSON, but holds tags: \"<n>3</n>\" [write 3 in `start_line`]",
    );
    check(
        "ask",
        &["question:=q", "follow_up:[<suggest>a</suggest>]"],
        "rejected ask {\"question\":\"q\",\"follow_up\":\"[<suggest>a</suggest>]\"}\n  tag_in_json@12: `follow_up` is not valid JSON: expected value; found \"<suggest>a</suggest>]\" [write the value as JSON, not in tags]",
    );
    check(
        "write_to_file",
        &["path:=a", "content:=<p>x</p>"],
        r#"runs write_to_file {"path":"a","content":"<p>x</p>"}"#,
    );
}

#[test]
fn a_key_given_twice_in_a_value_is_no_value() {
    check(
        "use_mcp_tool",
        &[
            "server_name=s",
            "tool_name=t",
            "arguments={\"q\": {\"a\": 1, \"a\": 2}}",
        ],
        "rejected use_mcp_tool {\"server_name\":\"s\",\"tool_name\":\"t\",\"arguments\":\"{\\\"q\\\": {\\\"a\\\": 1, \\\"a\\\": 2}}\"}\n  invalid_value@27: in `arguments` the key `a` is given twice; each key was expected once [give the key once: which of its values is meant cannot be known]",
    );
    for value in [
        ":{\"a\": [{\"b\": 1, \"b\": 1}]}",
        "={'a': 1, 'a': 1}",
        ":={\"a\": 1, \"a\": 2}",
    ] {
        let arguments = ["server_name=s", "tool_name=t", &format!("arguments{value}")];
        let checked =
            &CallChecker::new(tools()).check_all(&draft("use_mcp_tool", &arguments, None))[0];
        assert_eq!(checked.state, CallState::Rejected, "{value}");
    }
}

/// The arguments of a `write_to_file` that were read, the trailing text, and the expected verdict.
type Rest = (&'static [&'static str], &'static str, &'static str);

#[track_caller]
fn check_rests(rows: &[Rest]) {
    for (read, rest, expected) in rows {
        let arguments: Vec<&str> = read.iter().copied().chain([*rest]).collect();
        let checked =
            &CallChecker::new(tools()).check_all(&draft("write_to_file", &arguments, None))[0];
        assert_eq!(line(checked), *expected, "{rest}");
        let without = CallChecker::new(tools())
            .with_repairs(RepairSet::none())
            .check_all(&draft("write_to_file", &arguments, None));
        assert_eq!(without[0].state, CallState::Rejected, "{rest}");
        let cut = CallChecker::new(tools()).check_all(&draft(
            "write_to_file",
            &arguments,
            Some(Truncation::Ended),
        ));
        assert_eq!(
            (cut[0].state, cut[0].repairs.len()),
            (CallState::Cut, 0),
            "{rest}"
        );
    }
}

#[test]
fn the_rest_of_arguments_that_stop_being_json() {
    check_rests(&[
        (
            &["path:=a"],
            ":'content': 'x'}",
            r#"runs write_to_file {"path":"a","content":"x"} +single_quotes"#,
        ),
        (
            &["path:=a"],
            ":, 'content': 'x',}",
            r#"runs write_to_file {"path":"a","content":"x"} +trailing_comma +single_quotes"#,
        ),
        (
            &["path:=a", "content:=x"],
            ":}",
            r#"runs write_to_file {"path":"a","content":"x"} +trailing_comma"#,
        ),
        (
            &["path:=a", "content:=x"],
            ":, }",
            r#"runs write_to_file {"path":"a","content":"x"} +trailing_comma"#,
        ),
        (
            &[],
            ":{'path': 'a', \"content\": 'x'}",
            r#"runs write_to_file {"path":"a","content":"x"} +single_quotes"#,
        ),
        (
            &[],
            ":=\n```json\n{\"path\": \"a\", \"content\": \"x\"}\n```",
            r#"runs write_to_file {"path":"a","content":"x"} +double_encoding +fenced_json"#,
        ),
        (
            &[],
            ":```\n{'path': 'a', 'content': '```'}\n```\n",
            r#"runs write_to_file {"path":"a","content":"```"} +fenced_json +single_quotes"#,
        ),
    ]);
}

#[test]
fn irreparable_trailing_arguments_are_rejected() {
    check_rests(&[
        (
            &["path:=a"],
            ":\"content\": 'x', 'path': 'b'}",
            "rejected write_to_file {\"path\":\"a\",\"content\":\"x\"} +single_quotes\n  doubled_argument@36: `path` is given twice; one value was expected [give it once; the first value was kept, and nothing was run]",
        ),
        (
            &["path:=a"],
            ":'content': 'x', 'content': 'y'}",
            "rejected write_to_file {\"path\":\"a\",\"content\":\"x\"} +single_quotes\n  doubled_argument@39: `content` is given twice; one value was expected [give it once; the first value was kept, and nothing was run]",
        ),
        (
            &["path:=a"],
            ":content: \"x\"}",
            "rejected write_to_file {\"path\":\"a\"}\n  malformed_json@11: the arguments are not JSON object: a key in double quotes was expected; found \"content: \\\"x\\\"}\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &["path:=a"],
            ":, 'content': 'x' 'y'}",
            "rejected write_to_file {\"path\":\"a\"}\n  malformed_json@28: the arguments are not JSON object: expected `,` or `}`; found \"'y'}\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &["path:=a"],
            ":\"content\": \"x\"}",
            "rejected write_to_file {\"path\":\"a\"}\n  malformed_json@11: the arguments are not JSON object: `,` or `}` was expected after the value before it; found \"\\\"content\\\": \\\"x\\\"}\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &["path:=a"],
            ":\"content\": <content>x</content>}",
            "rejected write_to_file {\"path\":\"a\"}\n  tag_in_json@22: the arguments are not JSON object: expected value; found \"<content>x</content>}\" [write the value as JSON, not in tags]",
        ),
        (
            &["path:=a"],
            ":'content': 'x",
            "rejected write_to_file {\"path\":\"a\"}\n  malformed_json@22: the arguments are not JSON object: the string that begins here has no closing `'`; found \"'x\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &[],
            ":",
            "rejected write_to_file {}\n  malformed_json@10: the arguments are not JSON object: an object `{…}` was expected; found no text [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &[],
            ":}",
            "rejected write_to_file {}\n  malformed_json@10: the arguments are not JSON object: an object `{…}` was expected; found \"}\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
        (
            &["path:=a", "content:=x"],
            ":{}",
            "rejected write_to_file {\"path\":\"a\",\"content\":\"x\"}\n  malformed_json@12: the arguments are not JSON object: a key in double quotes was expected; found \"{}\" [write one JSON object, for example {\"path\": \"a.txt\"}]",
        ),
    ]);
}

#[test]
fn a_comma_that_is_missing_before_the_rest_is_seen_in_the_text() {
    for (source, state) in [
        ("{\"path\": 1, 'a': 2}", CallState::Complete),
        ("{\"path\": 1 'a': 2}", CallState::Rejected),
    ] {
        let (one, rest) = (source.find('1').unwrap(), source.find('\'').unwrap());
        let mut draft = DraftResponse {
            source: source.to_owned(),
            ..DraftResponse::default()
        };
        draft.push_event(Event::CallStart {
            index: 0,
            id: None,
            name: "anything",
            dialect: Some("hermes"),
            at: 0,
            name_at: 0,
        });
        for (name, at, end) in [("path", one, one + 1), ("", rest, source.len())] {
            draft.push_event(Event::ArgStart {
                index: 0,
                name,
                form: ArgumentEncoding::Json,
                at,
            });
            draft.push_event(Event::ArgDelta {
                index: 0,
                text: &source[at..end],
            });
            draft.push_event(Event::ArgEnd {
                index: 0,
                lead: "",
                at: end,
            });
        }
        draft.push_event(Event::CallEnd {
            index: 0,
            at: source.len(),
        });
        let checked = &CallChecker::new(tools()).check_all(&draft)[0];
        assert_eq!(checked.state, state, "{}", line(checked));
    }
}

/// Two calls, with the words before, between and after them.
fn two_calls(words: [&str; 3]) -> DraftResponse {
    let call = "<get_time></get_time>";
    let mut draft = DraftResponse {
        source: format!("{}{call}{}{call}{}", words[0], words[1], words[2]),
        ..DraftResponse::default()
    };
    let mut at = 0;
    for (index, words) in words.iter().enumerate() {
        if !words.is_empty() {
            draft.push_event(Event::Text {
                text: words.strip_prefix("</function_calls>").unwrap_or(words),
            });
        }
        at += words.len();
        if index < 2 {
            let index = u32::try_from(index).unwrap();
            draft.push_event(Event::CallStart {
                index,
                id: None,
                name: "get_time",
                dialect: Some("cline"),
                at,
                name_at: at + 1,
            });
            at += call.len();
            draft.push_event(Event::CallEnd { index, at });
        }
    }
    draft
}

#[test]
fn calls_after_the_first_are_rejected_where_one_is_allowed() {
    let draft = two_calls(["a ", " ", ""]);
    let one = CallChecker::new(tools())
        .with_parallel(ParallelCalls::One)
        .check_all(&draft);
    assert_eq!(
        one.iter().map(line).collect::<Vec<_>>(),
        [
            "runs get_time {}",
            "rejected get_time {}\n  extra_call@25: one call was expected in a message, and `get_time` came before this one; it was not run [make one call, wait for its result, then make the next]",
        ]
    );
    assert!(
        CallChecker::new(tools())
            .check_all(&draft)
            .iter()
            .all(|call| call.state == CallState::Complete)
    );
}

#[test]
fn text_after_a_broken_call_is_not_reported() {
    let mut draft = two_calls(["", "", "and so on"]);
    draft.push_event(Event::Fault(
        &Fault::error(FaultKind::MalformedJson, Span::new(30, 31), "m").in_call(1),
    ));
    assert_eq!(CallChecker::new(tools()).unattached_faults(&draft), []);
}

#[test]
fn text_after_the_last_call_is_reported_at_its_position() {
    let rows = [
        (["a", "b", "\n\n"], None),
        (["a", "b", ""], None),
        (["", "", "\nDone. é\nAll of it.\n"], Some("Done. é")),
        (["", "", "</function_calls>\nf"], Some("f")),
        (
            ["", "", "</function_calls>\n  It is late.\n"],
            Some("It is late."),
        ),
    ];
    for (words, expected) in rows {
        let draft = two_calls(words);
        let loose = CallChecker::new(tools()).unattached_faults(&draft);
        let found = loose.first().map(|fault| {
            assert_eq!(
                (fault.kind, fault.severity),
                (FaultKind::TextAfterCall, sabir_call::Severity::Warning)
            );
            &draft.source[fault.span.start..fault.span.end]
        });
        assert_eq!(
            (found, loose.len()),
            (expected, usize::from(expected.is_some())),
            "{words:?}"
        );
    }
}

#[test]
fn entities_are_reported_and_kept() {
    check(
        "execute_command",
        &["command=cd a &amp;&amp; grep \"x\" > b"],
        "runs execute_command {\"command\":\"cd a &amp;&amp; grep \\\"x\\\" > b\"}\n  entities@15: `command` holds `&amp;`; values are taken as they are, so this is not `&` [write `&` itself if that is what you mean]",
    );
    // Beside raw special characters an entity is meant literally; so is one in a JSON string.
    for command in [
        "=sed 's/&/\\&amp;/g' a",
        "=echo '<p>&lt;</p>'",
        ":=a &amp;&amp; b",
        "=a & b",
        "=a &amp b",
    ] {
        let draft = draft("execute_command", &[&format!("command{command}")], None);
        assert_eq!(
            CallChecker::new(tools()).check_all(&draft)[0].faults,
            [],
            "{command}"
        );
    }
}

#[test]
fn whole_numbers_that_would_lose_their_last_digits() {
    // (JSON, the position in it of the number that is rejected)
    let rows = [
        ("9223372036854775807", None),
        ("-9223372036854775808", None),
        ("18446744073709551615", None),
        ("18446744073709551616", Some(0)),
        ("-9223372036854775809", Some(0)),
        ("1.8446744073709551616", None),
        ("18446744073709551616e-3", None),
        (
            "[1, {\"18446744073709551616\": \"18446744073709551616\"}]",
            None,
        ),
        ("[1, {\"n\": 18446744073709551616}]", Some(10)),
        ("[1, {'n': 18446744073709551616,}]", Some(10)),
    ];
    for (json, place) in rows {
        let checked = line(
            &CallChecker::new(tools()).check_all(&draft("anything", &[&format!("x:{json}")], None))
                [0],
        );
        let fault = place.map(|at| {
            format!(
                "malformed_json@{}: `x` is not valid JSON: a whole number",
                10 + at
            )
        });
        assert!(
            fault.as_ref().is_none_or(|fault| checked.contains(fault)),
            "{json}: {checked}"
        );
        assert_eq!(
            checked.starts_with("runs"),
            fault.is_none(),
            "{json}: {checked}"
        );
    }
    let raw = line(
        &CallChecker::new(tools()).check_all(&draft(
            "read_file",
            &["path=a", "start_line=18446744073709551616"],
            None,
        ))[0],
    );
    assert!(raw.contains("wrong_type@11"), "{raw}");
}

#[test]
fn no_text_in_a_string_means_no_arguments() {
    check("get_time", &[":="], "runs get_time {} +double_encoding");
    check("get_time", &[":= \n"], "runs get_time {} +double_encoding");
    check(
        "read_file",
        &[":="],
        "rejected read_file {} +double_encoding\n  missing_argument@1: `read_file` needs the argument `path` (a string), which is missing [add `path`]",
    );
}

#[test]
fn whole_arguments_in_one_text() {
    check(
        "read_file",
        &[r#":={"path": "a.txt", "start_line": 3}"#],
        r#"runs read_file {"path":"a.txt","start_line":3} +double_encoding"#,
    );
    check(
        "read_file",
        &[":{'path': 'a.txt',}"],
        r#"runs read_file {"path":"a.txt"} +trailing_comma +single_quotes"#,
    );
    check(
        "read_file",
        &[r#":={"path": "a", "path": "b"}"#],
        "rejected read_file {\"path\":\"a\"} +double_encoding\n  doubled_argument@33: `path` is given twice; one value was expected [give it once; the first value was kept, and nothing was run]",
    );
    for text in [
        r#":={"path": "a"#,
        ":=",
        ":=[1]",
        ":=null",
        ":{'path': 'a",
        ":{'path': 'a', 'path': 'b'}",
    ] {
        let checked = CallChecker::new(tools()).check_all(&draft("read_file", &[text], None));
        assert_eq!(
            (checked[0].state, checked[0].faults.len()),
            (CallState::Rejected, 1),
            "{text}"
        );
    }
}

#[test]
fn repairs_can_be_switched_off() {
    let rows = [
        ("wrong_case_name", "Read_File", "path=a"),
        ("wrong_case_argument", "read_file", "PATH=a"),
        ("near_name", "readFile", "path=a"),
        ("near_argument", "execute_command", "com_mand=a"),
        ("argument_alias", "read_file", "file=a"),
        ("fenced_json", "read_file", ":```\n{\"path\": \"a\"}\n```"),
        ("double_encoding", "read_file", ":={\"path\": \"a\"}"),
        ("single_quotes", "read_file", ":{'path': 'a'}"),
    ];
    for (rule, tool, argument) in rows {
        let draft = draft(tool, &[argument], None);
        let with = &CallChecker::new(tools()).check_all(&draft)[0];
        assert_eq!(
            with.repairs
                .iter()
                .map(|repair| repair.rule.clone())
                .collect::<Vec<_>>(),
            [rule]
        );
        assert_eq!(
            (with.state, with.repairs[0].before.is_empty()),
            (CallState::Complete, false),
            "{rule}"
        );
        let without =
            CallChecker::new(tools()).with_repairs(RepairSet::all().without_rule(rule).unwrap());
        assert_eq!(
            without.check_all(&draft)[0].state,
            CallState::Rejected,
            "{rule}"
        );
    }
}

#[test]
fn cut_calls_never_run() {
    let cut = |why| {
        line(
            &CallChecker::new(tools()).check_all(&draft(
                "write_to_file",
                &["path=a", "content=half"],
                Some(why),
            ))[0],
        )
    };
    assert_eq!(
        cut(Truncation::Ended),
        "cut write_to_file {\"path\":\"a\",\"content\":\"half\"}\n  cut_call@15: the call of `write_to_file` was cut inside `content`, 4 bytes into its value: the message ended there; it was not run [write the whole call again and close it]",
    );
    assert!(
        cut(Truncation::Limit)
            .contains("output limit was reached there; it was not run [write less in one call")
    );
    assert!(cut(Truncation::Broken).contains("the connection broke"));
    assert!(cut(Truncation::Cancelled).contains("the user stopped it"));
    // The text alone cannot tell a limit from an end; the provider's stop reason can.
    let mut limited = draft("read_file", &["start_line=te"], Some(Truncation::Ended));
    limited.push_event(Event::Stop {
        reason: StopReason::Length,
        raw: "max_tokens",
    });
    limited.push_event(Event::Fault(
        &Fault::error(FaultKind::CutCall, Span::new(1, 2), "the parser's own").in_call(0),
    ));
    let checked = &CallChecker::new(tools()).check_all(&limited)[0];
    assert_eq!(
        checked.faults.len(),
        1,
        "no fault about a value that may still grow, and one about the cut"
    );
    assert!(checked.faults[0].message.contains("the output limit"));
    // A call that is still open is no better.
    let mut open = DraftResponse::default();
    open.push_event(Event::CallStart {
        index: 0,
        id: None,
        name: "get_time",
        dialect: None,
        at: 0,
        name_at: 0,
    });
    assert_eq!(
        CallChecker::new(tools()).check_all(&open)[0].state,
        CallState::Cut
    );
}

#[test]
fn the_parsers_faults_count_and_are_not_repeated() {
    let mut doubled = draft("read_file", &["path=a", "path=b"], None);
    let fault = Fault::error(FaultKind::DoubledArgument, Span::new(3, 4), "twice")
        .in_call(0)
        .in_argument("path");
    doubled.push_event(Event::Fault(&fault));
    assert_eq!(
        line(&CallChecker::new(tools()).check_all(&doubled)[0]),
        "rejected read_file {\"path\":\"a\"}\n  doubled_argument@3: twice []"
    );
    let mut nameless = draft("", &[], None);
    nameless.push_event(Event::Fault(
        &Fault::error(FaultKind::MissingName, Span::new(0, 1), "no name").in_call(0),
    ));
    assert_eq!(
        line(&CallChecker::new(tools()).check_all(&nameless)[0]),
        "rejected  {}\n  missing_name@0: no name []"
    );
    let mut stray = draft("get_time", &[], None);
    stray.push_event(Event::Fault(
        &Fault::warning(FaultKind::MissingWrapper, Span::new(0, 1), "no wrapper").in_call(0),
    ));
    assert_eq!(
        CallChecker::new(tools()).check_all(&stray)[0].state,
        CallState::Complete
    );
    stray.push_event(Event::Fault(
        &Fault::error(FaultKind::WrongClose, Span::new(0, 1), "wrong close").in_call(0),
    ));
    assert_eq!(
        CallChecker::new(tools()).check_all(&stray)[0].state,
        CallState::Rejected
    );
    let mut broken = draft("read_file", &[], None);
    broken.push_event(Event::Fault(
        &Fault::error(FaultKind::MalformedJson, Span::new(0, 1), "no JSON").in_call(0),
    ));
    assert_eq!(
        CallChecker::new(tools()).check_all(&broken)[0].faults.len(),
        1,
        "what is missing from broken text is unknown"
    );
}

#[test]
fn an_invalid_schema_is_reported_once() {
    let checker = CallChecker::new(tools());
    let draft = draft("broken", &["a=1"], None);
    assert!(line(&checker.check_all(&draft)[0]).starts_with(
        "runs broken {\"a\":\"1\"}\n  invalid_value@0: the schema of `broken` is invalid"
    ));
    assert_eq!(
        line(&checker.check_all(&draft)[0]),
        "runs broken {\"a\":\"1\"}"
    );
}

#[test]
fn checkers_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    shared(&CallChecker::new(tools()));
}

fn words(source: &str, draft: &DraftResponse, protocol: &ToolProtocol) -> Option<String> {
    let tools = tools();
    render_feedback(
        &CallChecker::new(tools.clone()).check_all(draft),
        &draft.faults,
        source,
        &FeedbackContext {
            protocol,
            dialects: DialectSet::built_in(),
            tools: &tools,
            repetition: &MistakeCounter::default(),
        },
    )
}

#[test]
fn feedback_says_what_to_do() {
    let source = "<red_fil>";
    let draft_of = |name: &str| draft(name, &["path=a"], None);
    let text = words(
        source,
        &draft_of("red_fil"),
        &ToolProtocol::Prompted("cline".to_owned()),
    )
    .unwrap();
    let expected = "Your call 1 (`red_fil`) was not run.\nerror[unknown_tool]: there is no tool `red_fil`\n --> line 1, column 2\n  |\n1 | <red_fil>\n  |  ^^^^^^^\n  = hint: did you mean `read_file`?\nA correct call of `read_file`:\n<read_file>";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(
        words(source, &draft_of("read_file"), &ToolProtocol::Native),
        None
    );
    let native = words(source, &draft_of("red_fil"), &ToolProtocol::Native).unwrap();
    assert!(
        native.ends_with("Correct arguments of `read_file`:\n{\"path\":\"text\"}\n"),
        "{native}"
    );
}

#[test]
fn feedback_on_a_cut_call_has_no_example() {
    let draft = draft(
        "write_to_file",
        &["path=a", "content=half"],
        Some(Truncation::Limit),
    );
    let text = words("", &draft, &ToolProtocol::Prompted("cline".to_owned())).unwrap();
    assert!(
        text.contains("output limit") && text.contains("smaller pieces"),
        "{text}"
    );
    assert!(!text.contains("correct call"), "{text}");
}

#[test]
fn feedback_covers_faults_of_no_call() {
    let mut draft = DraftResponse::default();
    draft.push_event(Event::Fault(&Fault::warning(
        FaultKind::MissingWrapper,
        Span::new(0, 1),
        "warned",
    )));
    assert_eq!(words("<x>", &draft, &ToolProtocol::Native), None);
    let fault = Fault::error(FaultKind::MissingName, Span::new(0, 3), "a name is missing");
    draft.push_event(Event::Fault(
        &fault.with_hint("name a tool, such as `get_time`"),
    ));
    let text = words("<x>", &draft, &ToolProtocol::Prompted("invoke".to_owned())).unwrap();
    assert!(
        text.contains("^^^") && text.contains("get_time\""),
        "{text}"
    );
}

#[test]
fn feedback_is_capped_and_holds_no_file() {
    let file = "é🌍x".repeat(4_000);
    let content = format!("content:{}", serde_json::to_string(&[&file]).unwrap());
    let mut draft = DraftResponse::default();
    for index in 0..40 {
        draft.push_event(Event::CallStart {
            index,
            id: None,
            name: "write_to_file",
            dialect: Some("cline"),
            at: 0,
            name_at: 0,
        });
        let json = content.strip_prefix("content:").unwrap();
        for (name, form, text) in [
            ("path", ArgumentEncoding::Json, "1"),
            ("content", ArgumentEncoding::Json, json),
            (&file, ArgumentEncoding::Raw, "x"),
        ] {
            draft.push_event(Event::ArgStart {
                index,
                name,
                form,
                at: 5,
            });
            draft.push_event(Event::ArgDelta { index, text });
            draft.push_event(Event::ArgEnd {
                index,
                lead: "",
                at: 6,
            });
        }
        draft.push_event(Event::CallEnd { index, at: 9 });
    }
    for source in ["", file.as_str()] {
        let text = words(source, &draft, &ToolProtocol::Prompted("cline".to_owned())).unwrap();
        assert!(
            text.len() <= FEEDBACK_CAP && text.contains("of 40 shown"),
            "{text}"
        );
    }
}
