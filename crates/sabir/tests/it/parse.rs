//! Tests `parse`, `check`, `prompt` and `wire decode` over real pipes, as scripts use them.

use serde_json::{Value, json};

use crate::world::{World, code, stdout};

pub(crate) fn pipe(world: &World, arguments: &[&str], input: &str) -> (i32, String) {
    let output = world.piped(arguments, input);
    (code(&output), stdout(&output))
}

fn parsed(world: &World, dialect: &str, input: &str) -> (i32, Value) {
    let mut first: Option<(i32, Value)> = None;
    for chunk in ["0", "1", "3", "7", "64"] {
        let (code, out) = pipe(
            world,
            &[
                "parse",
                "--dialect",
                dialect,
                "--output",
                "json",
                "--chunk",
                chunk,
            ],
            input,
        );
        let result = (code, serde_json::from_str(&out).unwrap());
        let first = first.get_or_insert(result.clone());
        assert_eq!(*first, result, "chunks of {chunk}");
    }
    first.unwrap()
}

#[test]
fn parse_prints_the_documented_object() {
    let world = World::new();
    let input = "Grüße:\n<read_file>\n<path>a.rs</path>\n<start_line>10</start_line>\n</read_file>";
    let (code, out) = parsed(&world, "auto", input);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        json!({"dialect": "auto", "parts": [
            {"type": "text", "text": "Grüße:\n"},
            {"type": "call", "name": "read_file", "id": null, "dialect": "cline", "state": "complete",
             "arguments": {"path": "a.rs", "start_line": 10}, "span": [9, 79], "repairs": [],
             "how": {"sure": "likely", "rule": "a tool's tag, followed by an argument's tag or its own close"}}],
            "faults": [], "feedback": null})
    );
}

#[test]
fn faults_are_reported_with_their_position() {
    let world = World::new();
    let (code, out) = parsed(
        &world,
        "cline",
        "<read_file>\n<path>a</path>\n<start_line>ten</start_line>\n</read_file>",
    );
    assert_eq!(code, 4);
    let fault = &out["faults"][0];
    assert_eq!(
        (&fault["kind"], &fault["line"], &fault["column"]),
        (&json!("wrong_type"), &json!(3), &json!(13)),
        "{out}"
    );
    assert_eq!(out["parts"][0]["state"], "rejected");
    assert!(out["feedback"].as_str().unwrap().contains("start_line"));
    let (code, text) = pipe(&world, &["check"], "<red_fil>\n<path>a</path>\n</red_fil>");
    assert_eq!(code, 4);
    assert!(
        text.contains("unknown_tool") && text.contains("read_file") && text.contains('^'),
        "{text}"
    );
    // Another spelling of the same letters, and a call that fits: repaired to the only possible
    // name, and reported.
    let (code, out) = parsed(&world, "cline", "<readFile>\n<path>a</path>\n</readFile>");
    assert_eq!(
        (code, &out["parts"][0]["repairs"][0]["rule"]),
        (0, &json!("near_name")),
        "{out}"
    );
    // Text after the call does not matter.
    let (code, text) = pipe(
        &world,
        &["check"],
        "<read_file>\n<path>a</path>\n</read_file>\nIt is done.\n",
    );
    assert_eq!(code, 0);
    assert!(
        text.contains("warning[text_after_call]")
            && text.contains("4 | It is done.\n  | ^^^^^^^^^^^\n"),
        "{text}"
    );
}

#[test]
fn cut_and_mentioned_calls_are_never_complete() {
    let world = World::new();
    let (code, out) = parsed(&world, "auto", "<write_to_file><path>a</path><content>half");
    assert_eq!((code, &out["parts"][0]["state"]), (4, &json!("cut")));
    let (code, out) = parsed(
        &world,
        "auto",
        "```\n<read_file><path>a</path></read_file>\n```",
    );
    assert_eq!((code, out["parts"].as_array().unwrap().len()), (0, 1));
}

#[test]
fn each_event_is_one_line() {
    let world = World::new();
    let (code, out) = pipe(
        &world,
        &["parse", "--output", "events"],
        "<read_file><path>a</path></read_file>",
    );
    let kinds: Vec<_> = out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["event"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        (code, kinds.join(" ").as_str()),
        (0, "call_start arg_start arg_delta arg_end call_end")
    );
}

#[test]
fn recorded_responses_are_parsed() {
    let world = World::new();
    let body = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}}]}\n\n\
                data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";
    let (code, out) = pipe(
        &world,
        &[
            "wire",
            "decode",
            "--wire",
            "openai-chat",
            "--output",
            "json",
            "--chunk",
            "1",
        ],
        body,
    );
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &out["parts"][0]["arguments"], &out["usage"]["input"]),
        (0, &json!({"a": 1}), &json!(3)),
        "{out}"
    );
    assert_eq!(
        (&out["parts"][0]["state"], &out["stop"]["reason"]),
        (&json!("complete"), &json!("calls"))
    );
    let (code, _) = pipe(
        &world,
        &[
            "wire",
            "decode",
            "--wire",
            "openai-chat",
            "--output",
            "json",
        ],
        &body[..120],
    );
    assert_eq!(code, 4, "a cut body holds a cut call");
}

#[test]
fn provider_faults_are_not_blamed_on_the_model() {
    let world = World::new();
    let line = "{\"message\":{\"content\":\"a\"},\"done\":false}\n";
    for (wire, body) in [
        (
            "openai-chat",
            "{\"error\":{\"message\":\"boom\"}}".to_owned(),
        ),
        (
            "gemini",
            "[{\"error\":{\"code\":503,\"message\":\"boom\"}}]".to_owned(),
        ),
        (
            "ollama",
            format!("{line}garbage\n{}", line.replace("false", "true")),
        ),
        ("ollama", format!("{line}{{\"error\":\"boom\"}}\n")),
    ] {
        let (code, out) = pipe(
            &world,
            &["wire", "decode", "--wire", wire, "--output", "json"],
            &body,
        );
        let out: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, &out["feedback"]),
            (7, &Value::Null),
            "{wire}: {body}: {out}"
        );
        assert_eq!(out["faults"][0]["kind"], "provider", "{out}");
    }
}

#[test]
fn a_doubly_encoded_call_is_read_without_tool_definitions() {
    let world = World::new();
    let twice = json!(json!({"a": 1}).to_string()).to_string();
    let call = json!({"id": "c", "function": {"name": "f", "arguments": twice}});
    let body =
        json!({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
            .to_string();
    let (code, out) = pipe(
        &world,
        &[
            "wire",
            "decode",
            "--wire",
            "openai-chat",
            "--output",
            "json",
        ],
        &body,
    );
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &out["parts"][0]["arguments"]),
        (0, &json!({"a": 1})),
        "{out}"
    );
    assert_eq!(
        out["parts"][0]["repairs"][0]["rule"], "double_encoding",
        "{out}"
    );
}

#[test]
fn prompts_are_small() {
    let world = World::new();
    for dialect in ["cline", "invoke"] {
        let (code, out) = pipe(
            &world,
            &["prompt", "--dialect", dialect, "--output", "json"],
            "",
        );
        let out: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, 0);
        assert!(
            out["tokens_estimated"].as_u64().unwrap() <= 3000,
            "{dialect}: {}",
            out["tokens_estimated"]
        );
        let prompt = out["prompt"].as_str().unwrap();
        for name in [
            "read_file",
            "write_to_file",
            "replace_in_file",
            "execute_command",
            "attempt_completion",
        ] {
            assert!(
                prompt.contains(&format!("## {name}\n")),
                "{dialect} teaches {name}"
            );
        }
    }
}
