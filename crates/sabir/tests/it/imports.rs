//! Tests `sabir import`: histories of other programs become tasks that can be read, checked, exported and forked.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, stderr, stdout, turn};

/// Writes the files of a task of Cline's or Roo Code's.
fn folder(world: &World, files: &[(&str, Value)]) -> PathBuf {
    let folder = world.work.path().join("1763800000000");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, content) in files {
        std::fs::write(folder.join(name), content.to_string()).unwrap();
    }
    folder
}

/// Imports, and returns the task with its records.
#[track_caller]
fn import(world: &World, path: &std::path::Path) -> (String, Vec<Value>) {
    let output = world.sabir().arg("import").arg(path).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let id = stdout(&output).trim().to_owned();
    let log = world
        .sabir()
        .args(["log", &id, "--output", "events"])
        .output()
        .unwrap();
    assert_eq!(code(&log), 0, "{}", stderr(&log));
    let records = events(&log);
    for note in records[0]["from"]["notes"].as_array().into_iter().flatten() {
        assert!(
            stderr(&output).contains(note.as_str().unwrap()),
            "{note} is told: {}",
            stderr(&output)
        );
    }
    (id, records)
}

/// Describes each record in a few words.
fn told(records: &[Value]) -> Vec<String> {
    let word = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let one = |record: &Value| match record["kind"].as_str().unwrap() {
        "started" => format!("started: {}", word(record, "prompt")),
        "said" => format!("{}: {}", word(record, "by"), word(record, "text")),
        "answered" => {
            let parts = record["parts"].as_array().unwrap().iter().map(|part| {
                match part["type"].as_str().unwrap() {
                    "call" => format!("{} {}", part["name"].as_str().unwrap(), part["arguments"]),
                    "text" | "thought" => word(part, "text"),
                    other => other.to_owned(),
                }
            });
            format!("model: {}", parts.collect::<Vec<_>>().join(" | "))
        }
        "result" => format!(
            "{} {}: {}",
            word(record, "name"),
            word(record, "ending"),
            word(record, "content")
        ),
        "ended" => format!(
            "ended {}: {}",
            word(record, "outcome"),
            word(record, "message")
        ),
        other => other.to_owned(),
    };
    records.iter().map(one).collect()
}

fn notes(records: &[Value]) -> String {
    records[0]["from"]["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| format!("{}\n", note.as_str().unwrap()))
        .collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

const ENVIRONMENT: &str = "<environment_details>\n# VSCode Visible Files\n</environment_details>";

/// A task of Cline's with calls in text: one is done, one denied, one cut, one completes.
fn cline(world: &World) -> PathBuf {
    let says = |words: &str| json!({"role": "assistant", "content": [text(words)], "modelInfo": {"modelId": "claude-sonnet-4-5"}});
    folder(
        world,
        &[
            (
                "api_conversation_history.json",
                json!([
                    {"role": "user", "content": [text("<task>\ncorrect <b>the heading</b>\n</task>"), text(ENVIRONMENT)]},
                    says("<thinking>I look.</thinking>\nI read it.\n\n<read_file>\n<path>NOTES.md</path>\n<task_progress>- [ ] read</task_progress>\n</read_file>"),
                    {"role": "user", "content": [text("[read_file for 'NOTES.md'] Result:"), text("# Ntoes\n"), text(ENVIRONMENT)]},
                    says("<execute_command>\n<command>rm -r x && ls</command>\n<requires_approval>true</requires_approval>\n</execute_command>"),
                    {"role": "user", "content": [text("[execute_command for 'rm -r x && ls'] Result:\nThe user denied this operation."), text("<feedback>\nno\n</feedback>")]},
                    says("Then I write.\n<write_to_file>\n<path>NOTES.md</path>\n<content>\n# Notes\n"),
                    {"role": "user", "content": [text("[ERROR] You did not use a tool in your previous response!")]},
                    says("<attempt_completion>\n<result>\nThe heading is right.\n</result>\n</attempt_completion>"),
                ]),
            ),
            (
                "ui_messages.json",
                json!([
                    {"ts": 1763800000000_u64, "type": "say", "say": "task", "text": "correct <b>the heading</b>"},
                    {"ts": 1763800000100_u64, "type": "say", "say": "api_req_started", "text": "{\"request\":\"x\",\"tokensIn\":10,\"tokensOut\":5,\"cacheReads\":2}"},
                    {"ts": 1763800000200_u64, "type": "say", "say": "api_req_started", "text": "{\"request\":\"x\",\"tokensIn\":11,\"tokensOut\":5}"},
                    {"ts": 1763800000300_u64, "type": "say", "say": "api_req_started", "text": "{\"request\":\"x\",\"tokensIn\":12,\"tokensOut\":5}"},
                    {"ts": 1763800000400_u64, "type": "say", "say": "api_req_started", "text": "{\"request\":\"x\",\"tokensIn\":13,\"tokensOut\":5}"},
                ]),
            ),
        ],
    )
}

#[test]
fn a_cline_history_with_calls_in_text_is_imported() {
    let world = World::new();
    let (_, records) = import(&world, &cline(&world));
    assert_eq!(
        told(&records),
        [
            "started: correct <b>the heading</b>",
            &format!("sabir: {ENVIRONMENT}"),
            "model: I look. | \nI read it.\n\n | read_file {\"path\":\"NOTES.md\",\"task_progress\":\"- [ ] read\"}",
            "read_file done: # Ntoes\n",
            &format!("sabir: {ENVIRONMENT}"),
            "model: execute_command {\"command\":\"rm -r x && ls\",\"requires_approval\":\"true\"}",
            "execute_command denied: The user denied this operation.",
            "user: <feedback>\nno\n</feedback>",
            "model: Then I write.\n | write_to_file {\"path\":\"NOTES.md\",\"content\":\"# Notes\\n\"}",
            "write_to_file interrupted: The history contains no result of this call.",
            "user: [ERROR] You did not use a tool in your previous response!",
            "model: attempt_completion {\"result\":\"The heading is right.\"}",
            "attempt_completion done: The history ends here.",
            "ended completed: The heading is right.",
        ]
        .map(|line| line.to_owned())
    );
    let start = &records[0];
    assert_eq!(
        (&start["model"], &start["protocol"]),
        (&json!("claude-sonnet-4-5"), &json!({"prompted": "cline"}))
    );
    assert_eq!(
        (&start["from"]["program"], &start["at"]),
        (&json!("cline"), &json!(1763800000000_u64))
    );
    assert_eq!(
        records[2]["usage"],
        json!({"input": 12, "output": 5, "cache_read": 2})
    );
    assert!(
        notes(&records).contains("calls without a result, which have an interrupted one: 1\n"),
        "{}",
        notes(&records)
    );
}

#[test]
fn an_imported_task_is_checked_and_exported() {
    let world = World::new();
    let (id, _) = import(&world, &cline(&world));
    // The cut call is found by `check`.
    let checked = world
        .sabir()
        .args(["check", "--task", &id])
        .output()
        .unwrap();
    assert_eq!(code(&checked), 4, "{}", stderr(&checked));
    assert!(
        stdout(&checked).contains("record 9, turn 3: write_to_file was refused\n"),
        "{}",
        stdout(&checked)
    );
    assert!(
        stdout(&checked).ends_with("4 calls, 1 refused\n"),
        "{}",
        stdout(&checked)
    );
    let checked = world
        .sabir()
        .args(["check", "--task", &id, "--output", "json"])
        .output()
        .unwrap();
    let checked: Value = serde_json::from_str(&stdout(&checked)).unwrap();
    assert_eq!(
        (
            &checked["calls"],
            &checked["refused"],
            &checked["findings"][0]["record"]
        ),
        (&json!(4), &json!(1), &json!(9))
    );
    for form in ["md", "json", "html"] {
        let exported = world
            .sabir()
            .args(["export", &id, "--to", form])
            .output()
            .unwrap();
        assert!(
            code(&exported) == 0 && stdout(&exported).contains("The heading is right."),
            "{form}"
        );
    }
    let listed = stdout(
        &world
            .sabir()
            .args(["tasks", "--everywhere"])
            .output()
            .unwrap(),
    );
    assert!(
        listed.contains("completed        correct <b>the heading</b>"),
        "{listed}"
    );
}

#[test]
fn both_formats_of_roo_code_are_imported() {
    let call = |id: &str, path: &str| json!({"type": "tool_use", "id": id, "name": "read_file", "input": {"path": path}});
    let item = json!({
        "id": "1", "number": 1, "ts": 1763800000000_u64, "task": "look", "tokensIn": 1, "tokensOut": 2, "totalCost": 0.25,
        "workspace": "/home/ada/app", "mode": "code",
    });
    let early = json!([
        {"role": "user", "content": [text("<task>\nlook\n</task>")], "ts": 1763800000001_u64},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("Two files."), call("t1", "a"), call("t2", "b")], "ts": 1763800000002_u64},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t2", "content": "B", "is_error": true},
            {"type": "tool_result", "tool_use_id": "t1", "content": [text("A"), {"type": "hologram", "data": 1}]},
        ], "ts": 1763800000003_u64},
        {"role": "assistant", "content": [{"type": "hologram", "data": 2}, text("So it is.")], "isSummary": true, "ts": 1763800000004_u64},
    ]);
    let later = json!({"version": 2, "messages": [
        {"role": "user", "content": [text("<task>\nlook\n</task>")], "ts": 1763800000001_u64},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "hm"}, text("Two files."),
            {"type": "tool-call", "toolCallId": "t1", "toolName": "read_file", "input": {"path": "a"}},
            {"type": "tool-call", "toolCallId": "t2", "toolName": "read_file", "input": {"path": "b"}},
        ], "ts": 1763800000002_u64},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "t2", "toolName": "read_file", "output": {"type": "error-text", "value": "B"}},
            {"type": "tool-result", "toolCallId": "t1", "toolName": "read_file", "output": {"type": "text", "value": "A"}},
        ], "ts": 1763800000003_u64},
        {"role": "assistant", "content": [text("So it is.")], "ts": 1763800000004_u64},
    ]});
    for (messages, first, last) in [
        (
            early,
            "read_file done: A\n{\"type\":\"hologram\",\"data\":1}",
            "model: opaque | So it is.",
        ),
        (later, "read_file done: A", "model: So it is."),
    ] {
        let world = World::new();
        let path = folder(
            &world,
            &[
                ("api_conversation_history.json", messages),
                ("history_item.json", item.clone()),
            ],
        );
        // A file of the folder does as well.
        let (id, records) = import(&world, &path.join("api_conversation_history.json"));
        assert_eq!(
            told(&records),
            [
                "started: look",
                "model: hm | Two files. | read_file {\"path\":\"a\"} | read_file {\"path\":\"b\"}",
                "read_file failed: B",
                first,
                last,
            ]
        );
        let start = &records[0];
        assert_eq!(
            (&start["workspace"], &start["from"]["program"]),
            (&json!("/home/ada/app"), &json!("roo"))
        );
        assert!(notes(&records).contains("$0.25"), "{}", notes(&records));
        assert_eq!(
            last.contains("opaque"),
            notes(&records).contains("of the unknown type `hologram`"),
            "{}",
            notes(&records)
        );
        assert_eq!(
            code(
                &world
                    .sabir()
                    .args(["check", "--task", &id])
                    .output()
                    .unwrap()
            ),
            0
        );
    }
}

/// Lines of a history of Claude Code, with what all of them have.
fn lines(lines: &[Value]) -> String {
    let one = |(number, line): (usize, &Value)| {
        let mut line = line.clone();
        let common = json!({
            "uuid": format!("u{number}"), "parentUuid": null, "sessionId": "5b1c", "cwd": "/home/ada/app", "version": "2.1.0",
            "timestamp": format!("2025-11-22T08:26:4{}.000Z", number % 10),
        });
        for (name, value) in common.as_object().unwrap() {
            line.as_object_mut()
                .unwrap()
                .entry(name)
                .or_insert(value.clone());
        }
        format!("{line}\n")
    };
    lines.iter().enumerate().map(one).collect()
}

/// A history of Claude Code with an answer in three lines, a denied call, and much that is not
/// imported.
fn claude_history() -> String {
    let says = |id: &str, block: Value, output: u64| {
        let usage =
            json!({"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": output});
        json!({"type": "assistant", "message": {"id": id, "role": "assistant", "model": "claude-opus-4-5", "content": [block], "usage": usage}})
    };
    let call = |id: &str, command: &str| json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}});
    let result = |id: &str, content: &str| {
        json!({"type": "user", "toolUseResult": {"stdout": content}, "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": content}]}})
    };
    let mut history = lines(&[
        json!({"type": "summary", "summary": "Parser", "leafUuid": "u9"}),
        json!({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}),
        json!({"type": "user", "isMeta": true, "message": {"role": "user", "content": "Caveat: the messages below…"}}),
        json!({"type": "user", "message": {"role": "user", "content": "mend the parser"}}),
        says(
            "msg_1",
            json!({"type": "thinking", "thinking": "Let me see.", "signature": "sig"}),
            1,
        ),
        says("msg_1", text("I look."), 2),
        says("msg_1", call("toolu_1", "ls"), 30),
        result("toolu_1", "parser.rs\n"),
        json!({"type": "assistant", "isSidechain": true, "message": {"id": "msg_s", "content": [text("a subagent's")]}}),
        says("msg_2", call("toolu_2", "rm parser.rs"), 7),
        result(
            "toolu_2",
            "The user doesn't want to proceed with this tool use.",
        ),
        json!({"type": "user", "message": {"role": "user", "content": [text("[Request interrupted by user]")]}}),
        json!({"type": "system", "subtype": "api_error", "content": "x"}),
    ]);
    // A repeated line, a truncated one, and one of an unknown kind.
    history.push_str(&lines(&[
        json!({"type": "assistant", "uuid": "u5", "message": {"content": []}}),
    ]));
    history.push_str("{\"type\":\"assistant\",\"mess\n");
    history
}

#[test]
fn a_claude_code_history_is_imported() {
    let world = World::new();
    let path = world.write("5b1c.jsonl", &claude_history());
    let (_, records) = import(&world, &path);
    assert_eq!(
        told(&records),
        [
            "started: mend the parser",
            "sabir: Caveat: the messages below…",
            "model: Let me see. | I look. | Bash {\"command\":\"ls\"}",
            "Bash done: parser.rs\n",
            "model: Bash {\"command\":\"rm parser.rs\"}",
            "Bash denied: The user doesn't want to proceed with this tool use.",
            "user: [Request interrupted by user]",
        ]
    );
    let start = &records[0];
    assert_eq!(
        (&start["model"], &start["workspace"]),
        (&json!("claude-opus-4-5"), &json!("/home/ada/app"))
    );
    assert_eq!(
        (&records[2]["usage"], &records[2]["at"]),
        (
            &json!({"input": 103, "output": 30, "cache_read": 100}),
            &json!(1763800006000_u64)
        )
    );
    for note in [
        "lines of type `summary`, which are not imported: 1\n",
        "lines of type `file-history-snapshot`, which are not imported: 1\n",
        "lines of type `system`, which are not imported: 1\n",
        "lines of subagents, which are not imported: 1\n",
        "lines that are there twice, and taken over once: 1\n",
        "lines that are not JSON, which are left out: 1\n",
    ] {
        assert!(
            notes(&records).contains(note),
            "{note}: {}",
            notes(&records)
        );
    }
}

#[test]
fn an_imported_task_is_forked_instead_of_resumed() {
    let world = World::new();
    let (id, _) = import(&world, &world.write("5b1c.jsonl", &claude_history()));
    let provider = world.plays(
        WAYS[1],
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "done"}))],
        )],
    );
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text", &id])
        .output()
        .unwrap();
    assert!(
        code(&resumed) == 2 && stderr(&resumed).contains("sabir fork"),
        "{}",
        stderr(&resumed)
    );
    let newest = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text", "-C", "."])
        .output()
        .unwrap();
    assert!(
        stderr(&newest).contains("no task that could be resumed"),
        "{}",
        stderr(&newest)
    );
    let elsewhere = world
        .sabir_with(&provider)
        .args([
            "fork",
            &id,
            "--model",
            "openai/scripted",
            "--output",
            "text",
        ])
        .output()
        .unwrap();
    assert!(
        code(&elsewhere) == 2 && stderr(&elsewhere).contains("with -C"),
        "{}",
        stderr(&elsewhere)
    );
    let forked = world
        .sabir_with(&provider)
        .args([
            "fork",
            &id,
            "--model",
            "openai/scripted",
            "-C",
            ".",
            "--output",
            "text",
            "go on",
        ])
        .output()
        .unwrap();
    assert_eq!(
        (code(&forked), stdout(&forked).as_str()),
        (0, "done\n"),
        "{}",
        stderr(&forked)
    );
    let body = provider.received_requests()[0].body.to_string();
    assert!(
        body.contains("parser.rs") && body.contains("go on") && body.contains("Bash"),
        "{body}"
    );
}

#[test]
fn a_minimal_history_is_imported() {
    let world = World::new();
    let said =
        json!([{"role": "user", "content": "mend it"}, {"role": "assistant", "content": "How?"}]);
    let path = folder(&world, &[("api_conversation_history.json", said)]);
    let (id, records) = import(&world, &path);
    assert_eq!(told(&records), ["started: mend it", "model: How?"]);
    assert_eq!(
        notes(&records),
        "histories without times, which begin when the file was written: 1\n"
    );
    assert!(
        records[0]["at"].as_u64().unwrap() > 1_700_000_000_000
            && records[0]["at"] == records[1]["at"]
    );
    let source = records[0]["from"]["source"].as_str().unwrap();
    assert!(
        source.starts_with('/') && source.ends_with("/1763800000000"),
        "{source}"
    );
    let log = stdout(&world.sabir().args(["log", &id]).output().unwrap());
    assert!(
        log.contains("      in a folder that is not known\n"),
        "{log}"
    );
    let output = world
        .sabir()
        .arg("import")
        .arg(&path)
        .args(["--output", "json"])
        .output()
        .unwrap();
    let output: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&output["records"], &output["notes"]),
        (&json!(2), &records[0]["from"]["notes"])
    );
}

#[test]
fn other_files_are_refused_and_nothing_is_written() {
    let world = World::new();
    let empty = folder(&world, &[]);
    let check = |path: &std::path::Path, words: &str| {
        let output = world.sabir().arg("import").arg(path).output().unwrap();
        assert!(
            code(&output) == 2 && stderr(&output).contains(words),
            "{}: {}",
            path.display(),
            stderr(&output)
        );
    };
    check(&empty, "holds none of them");
    check(&world.work.path().join("nowhere"), "does not exist");
    check(
        &world.write("x.jsonl", "hello\n{}\n[1]\n"),
        "contains no text of a user",
    );
    check(
        &folder(
            &world,
            &[("api_conversation_history.json", json!({"a": 1}))],
        ),
        "holds no array of messages",
    );
    check(
        &folder(
            &world,
            &[(
                "api_conversation_history.json",
                json!([1, null, {"role": 3}]),
            )],
        ),
        "contains no text of a user",
    );
    std::fs::write(empty.join("api_conversation_history.json"), "[{").unwrap();
    check(&empty, "is not JSON");
    assert_eq!(stdout(&world.sabir().arg("tasks").output().unwrap()), "");
}
