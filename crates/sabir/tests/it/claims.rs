//! The claims of the documents that Sabir implements, one by one: how calls are recognized, checked,
//! shown and answered.

use std::fs;
use std::path::{Path, PathBuf};

use sabir_testkit::{ChunkSplit, ProviderReply, ReplyPart, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, events, skipped, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const CLINE: Way = WAYS[2];
const INVOKE: Way = WAYS[3];

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// Runs a task in which the model writes these texts, and then completes.
fn run_texts(
    world: &World,
    way: Way,
    texts: &[&str],
    arguments: &[&str],
) -> (i32, Vec<Value>, String) {
    let mut replies: Vec<_> = texts
        .iter()
        .map(|text| ProviderReply::text(*text))
        .collect();
    replies.push(way.reply(&done(), 9));
    let provider = world.provider(ReplyScript::new(replies));
    let output = world.run(&provider, way, arguments);
    let requests = provider
        .received_requests()
        .iter()
        .map(|request| request.body.clone())
        .collect();
    (code(&output), requests, stderr(&output))
}

/// The newest message of a request.
fn newest_message(request: &Value) -> String {
    let message = request["messages"].as_array().unwrap().last().unwrap();
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
    }
}

fn parse(world: &World, dialect: &str, input: &str) -> Value {
    let mut first = None;
    for chunk in ["0", "1", "5"] {
        let output = world.piped(
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
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let first = first.get_or_insert_with(|| report.clone());
        assert_eq!(*first, report, "chunks of {chunk}");
    }
    first.unwrap()
}

/// The calls of a report: name and state.
fn calls(report: &Value) -> Vec<(String, String)> {
    let word = |part: &Value, field: &str| part[field].as_str().unwrap().to_owned();
    report["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["type"] == "call")
        .map(|part| (word(part, "name"), word(part, "state")))
        .collect()
}

/// The faults of a report: severity, kind and line.
fn faults(report: &Value) -> Vec<(String, String, u64)> {
    let word = |fault: &Value, field: &str| fault[field].as_str().unwrap().to_owned();
    report["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            let line = fault["line"].as_u64().unwrap();
            (word(fault, "severity"), word(fault, "kind"), line)
        })
        .collect()
}

const ELEMENT: &str = "I ask the server.\n\n<use_widget>\n<server_name>x</server_name>\n\
<arguments>\n{\"a\": [1, 2]}\n</arguments>\n</use_widget>\n";

#[test]
fn an_unknown_tool_with_children_is_a_call_of_it_in_prompted_sessions() {
    for way in [CLINE, INVOKE] {
        let world = World::new();
        let (code, requests, errors) = run_texts(&world, way, &[ELEMENT], &["go"]);
        assert_eq!((code, requests.len()), (0, 2), "{way:?}: {errors}");
        let told = newest_message(&requests[1]);
        assert!(
            told.contains("there is no tool `use_widget`") && !told.contains("held no call"),
            "{told}"
        );
    }
    // A model that calls natively answers in words, and this is a part of them.
    let world = World::new();
    let arguments = ["--completion", "call", "go"];
    let (code, requests, errors) = run_texts(&world, NATIVE, &[ELEMENT], &arguments);
    assert_eq!(code, 0, "{errors}");
    let told = newest_message(&requests[1]);
    assert!(told.contains("held no call"), "{told}");
}

#[test]
fn elements_are_calls_only_in_the_shape_and_place_of_calls() {
    let world = World::new();
    let element = "<use_widget>\n<server_name>x</server_name>\n</use_widget>";
    let call = vec![("use_widget".to_owned(), "rejected".to_owned())];
    for input in [
        element.to_owned(),
        format!("Words.\n{element}\n"),
        "<use_widget><a_b>1</a_b><c>2</c></use_widget>".to_owned(),
    ] {
        let report = parse(&world, "cline", &input);
        assert_eq!(calls(&report), call, "{input}: {report}");
    }
    // Around a tool's call an element is prose.
    let report = parse(
        &world,
        "cline",
        "<my_plan>\n<first_step>x</first_step>\n<list_files>\n<path>.</path>\n</list_files>\n</my_plan>",
    );
    assert_eq!(
        calls(&report),
        [("list_files".to_owned(), "complete".to_owned())]
    );
    // The arguments are exactly those of a tool, under a name that none has.
    let report = parse(&world, "auto", "<runner>\n<command>ls</command>\n</runner>");
    assert_eq!(
        calls(&report),
        [("runner".to_owned(), "rejected".to_owned())]
    );
    // Tools of other agents, whose names look like those of elements.
    for (name, argument) in [
        ("Glob", "pattern"),
        ("glob", "path"),
        ("MultiEdit", "edits"),
    ] {
        let input = format!("<{name}>\n<{argument}>*</{argument}>\n</{name}>");
        let rejected = vec![(name.to_owned(), "rejected".to_owned())];
        assert_eq!(calls(&parse(&world, "cline", &input)), rejected);
    }
    for prose in [
        format!("```xml\n{element}\n```\n"),
        format!("Write `{element}` for it.\n"),
        format!("> {}\n", element.replace('\n', "\n> ")),
        format!("{element} is how it is written.\n"),
        format!("Say {element}\n"),
        element.replace("</use_widget>", ""),
        element.replace("</server_name>", ""),
        element.replace("<server_name>", "<server_name id=\"1\">"),
        element.replace("<use_widget>\n", "<use_widget>\nSome words.\n"),
        "<use_widget>\n</use_widget>\n".to_owned(),
        "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n".to_owned(),
        "<details>\n<summary>More</summary>\n\nWords.\n</details>\n".to_owned(),
        "<dependency>\n<groupId>a</groupId>\n<version>1</version>\n</dependency>\n".to_owned(),
        "<my-element>\n<b>x</b>\n</my-element>\n".to_owned(),
        format!(
            "<use_widget>\n<a>{}</a>\n</use_widget>\n",
            "x".repeat(70_000)
        ),
    ] {
        let report = parse(&world, "auto", &prose);
        assert_eq!(calls(&report), [], "{prose}");
        assert!(stdout_text(&report) == prose, "{report}");
    }
}

/// The text parts of a report.
fn stdout_text(report: &Value) -> String {
    let parts = report["parts"].as_array().unwrap().iter();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Collects the Markdown and HTML files below a folder, in order.
fn collect_documents(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_document = path.extension().is_some_and(|end| {
            ["md", "html", "htm", "xml", "svg"]
                .iter()
                .any(|it| end == *it)
        });
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("specs") {
            collect_documents(&path, found);
        } else if is_document {
            found.push(path);
        }
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn the_documents_of_this_repository_and_its_libraries_stay_prose() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = Vec::new();
    collect_documents(&root.join("docs"), &mut documents);
    documents.push(root.join("README.md"));
    let own = documents.len();
    assert!(own > 10, "{documents:?}");
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(
        || std::env::home_dir().unwrap_or_default().join(".cargo"),
        PathBuf::from,
    );
    collect_documents(&cargo_home.join("registry/src"), &mut documents);
    if documents.len() == own {
        skipped("no sources of libraries are here");
    }
    let world = World::new();
    // Each file is parsed by a process of its own, so a part of them must do.
    let step = 1 + (documents.len() - own) / 150;
    let chosen = documents
        .iter()
        .enumerate()
        .filter(|(at, _)| *at < own || at % step == 0);
    for (_, path) in chosen {
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
        let output = world.piped(&["parse", "--dialect", "cline", "--output", "json"], &text);
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(calls(&report), [], "{}", path.display());
    }
}

const CALL: &str =
    "<invoke name=\"read_file\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n";

#[test]
fn the_validator_names_missing_closing_tags() {
    let world = World::new();
    let complete = vec![("read_file".to_owned(), "complete".to_owned())];
    let fault = |severity: &str, kind: &str, line| (severity.to_owned(), kind.to_owned(), line);
    // The reading is clear and the call runs, but the missing tag is named.
    let unclosed = format!("<function_calls>\n{CALL}");
    for dialect in ["invoke", "auto"] {
        let report = parse(&world, dialect, &unclosed);
        assert_eq!(calls(&report), complete);
        assert_eq!(faults(&report), [fault("warning", "wrong_close", 4)]);
        let repair = &report["parts"][0]["repairs"][0];
        assert_eq!(
            (&repair["rule"], &repair["after"]),
            (&json!("missing_close"), &json!("</function_calls>"))
        );
    }
    let output = world.piped(&["check", "--dialect", "invoke"], &unclosed);
    let text = stdout(&output);
    assert!(
        code(&output) == 0
            && text.contains("warning[wrong_close]: `</function_calls>` is missing")
            && text.contains("1 call, 0 errors, 1 warning"),
        "{text}"
    );
    // Several blocks, each closed.
    let closed = format!("<function_calls>\n{CALL}</function_calls>\n").repeat(2);
    assert_eq!(faults(&parse(&world, "invoke", &closed)), []);
    // Without the close of a call or an argument nothing runs.
    for (input, message) in [
        (
            CALL.replace("</invoke>", ""),
            "found `</function_calls>` where `</invoke>` was expected",
        ),
        (
            CALL.replace("</parameter>", ""),
            "`</parameter>` is missing",
        ),
        (
            CALL.replace("</parameter>\n</invoke>", ""),
            "`</parameter>` and `</invoke>` are missing",
        ),
    ] {
        let input = format!("<function_calls>\n{input}</function_calls>\n");
        let report = parse(&world, "invoke", &input);
        assert_eq!(calls(&report), [("read_file".to_owned(), "cut".to_owned())]);
        let first = &report["faults"][0];
        assert!(
            first["kind"] == "wrong_close" && first["message"].as_str().unwrap().contains(message),
            "{report}"
        );
    }
}

#[test]
fn the_validator_names_blocks_without_calls_and_stray_words() {
    let world = World::new();
    for content in ["", "\n", "\n<read_file>\n<path>a</path>\n</read_file>\n"] {
        let input = format!("<function_calls>{content}</function_calls>\n");
        let report = parse(&world, "invoke", &input);
        assert_eq!(calls(&report), [], "{input}");
        let first = &report["faults"][0];
        assert_eq!(
            (&first["severity"], &first["kind"]),
            (&json!("error"), &json!("no_call")),
            "{report}"
        );
        let output = world.piped(&["check", "--dialect", "invoke"], &input);
        assert_eq!(code(&output), 4, "{}", stdout(&output));
    }
    let words = parse(
        &world,
        "invoke",
        "<function_calls>\nread it\n</function_calls>\n",
    );
    assert_eq!(
        faults(&words),
        [("error".to_owned(), "stray_text".to_owned(), 1)]
    );
    let between = format!("<function_calls>\n{CALL}and then\n{CALL}</function_calls>\n");
    let report = parse(&world, "invoke", &between);
    assert_eq!(calls(&report).len(), 2);
    assert_eq!(
        faults(&report),
        [("warning".to_owned(), "stray_text".to_owned(), 6)]
    );
    // Prose about blocks has no faults.
    for prose in [
        "An empty block is <function_calls></function_calls>.\n",
        "```\n<function_calls>\n</function_calls>\n```\n",
    ] {
        let report = parse(&world, "auto", prose);
        assert!(
            faults(&report)
                .iter()
                .all(|(severity, _, _)| severity == "warning"),
            "{report}"
        );
    }
}

#[test]
fn bare_json_is_read_under_invoke_as_in_a_session() {
    let world = World::new();
    world.write("a", "content of a");
    for input in [
        r#"{"name": "read_file", "arguments": {"path": "a"}}"#,
        r#"{"tool": "read_file", "parameters": {"path": "a"}}"#,
        r#"{"tool": "read_file", "params": {"path": "a"}}"#,
        "I look.\n```json\n{\"tool\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n```",
        "<function_calls>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</function_calls>",
    ] {
        let report = parse(&world, "invoke", input);
        assert_eq!(
            calls(&report),
            [("read_file".to_owned(), "complete".to_owned())],
            "{input}"
        );
        let (code, requests, errors) = run_texts(&world, INVOKE, &[input], &["go"]);
        assert_eq!(code, 0, "{errors}");
        assert!(
            newest_message(&requests[1]).contains("content of a"),
            "{input}"
        );
    }
    let shown = "{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\nis a call.";
    assert_eq!(calls(&parse(&world, "invoke", shown)), []);
}

#[test]
fn half_a_marker_is_not_shown_while_it_streams() {
    for half in ["====", "---", "+++++++ REP"] {
        let world = World::new();
        world.write("a", "x\n");
        let text = format!(
            "<replace_in_file>\n<path>a</path>\n<diff>\n------- SEARCH\nx\n=======\ny\n{half}"
        );
        let provider = world.provider(ReplyScript::new([
            ProviderReply::text(text)
                .in_deltas(3)
                .in_chunks(ChunkSplit::Size(11)),
            CLINE.reply(&done(), 2),
        ]));
        let output = world.run(&provider, CLINE, &["go"]);
        let shown = stderr(&output);
        let lines: Vec<_> = shown
            .lines()
            .filter_map(|line| line.strip_prefix("    │ "))
            .collect();
        assert_eq!(
            lines,
            ["------- SEARCH", "x", "=======", "y"],
            "{half}: {shown}"
        );
    }
}

#[test]
fn a_native_name_in_pieces_is_joined() {
    let world = World::new();
    world.write("a", "content of a");
    let delta = |call: Value| {
        let choice = json!({"index": 0, "delta": {"tool_calls": [call]}});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    let mut body = String::new();
    for name in ["read", "_", "file"] {
        body += &delta(
            json!({"index": 0, "id": "call_1", "function": {"name": name, "arguments": ""}}),
        );
    }
    for arguments in ["{\"path\"", ": \"a\"}"] {
        body += &delta(json!({"index": 0, "function": {"arguments": arguments}}));
    }
    let end =
        json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    body += &format!("data: {end}\n\ndata: [DONE]\n\n");
    let pieces = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body,
    });
    assert_eq!(NATIVE.wire, Wire::OpenAiChat);
    let provider = world.provider(ReplyScript::new([pieces, NATIVE.reply(&done(), 2)]));
    let output = world.run(&provider, NATIVE, &["--output", "events", "go"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    assert_eq!(
        (&results[0]["name"], &results[0]["ending"]),
        (&json!("read_file"), &json!("done")),
        "{results:?}"
    );
    assert!(
        results[0]["content"]
            .as_str()
            .unwrap()
            .contains("content of a")
    );
}

#[test]
fn a_reply_without_a_call_gets_feedback_in_its_protocol() {
    for (way, syntax) in [
        (CLINE, "<attempt_completion>"),
        (INVOKE, "<invoke name=\"attempt_completion\">"),
    ] {
        let world = World::new();
        let (code, requests, errors) = run_texts(
            &world,
            way,
            &["I am nearly there.", "Still working."],
            &["go"],
        );
        assert_eq!((code, requests.len()), (0, 3), "{way:?}: {errors}");
        let first = newest_message(&requests[1]);
        assert!(
            first.starts_with("Your message held no call")
                && first.contains("Write the call as text")
                && !first.contains(syntax),
            "{first}"
        );
        let second = newest_message(&requests[2]);
        assert!(
            second.contains(syntax) && second.contains("A correct call"),
            "{second}"
        );
    }
    let world = World::new();
    let write = turn(
        "",
        vec![("write_to_file", json!({"path": "a", "content": "x"}))],
    );
    let words = |text| ProviderReply::text(text);
    let provider = world.provider(ReplyScript::new([
        NATIVE.reply(&write, 1),
        words("I am nearly there."),
        words("Still working."),
        NATIVE.reply(&done(), 4),
    ]));
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "go"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let requests = provider.received_requests();
    let first = newest_message(&requests[2].body);
    assert!(
        first.contains("through the tool calling of the API"),
        "{first}"
    );
    let second = newest_message(&requests[3].body);
    assert!(
        second.contains("Correct arguments of `attempt_completion`") && !second.contains('<'),
        "{second}"
    );
}

#[test]
fn a_wrapped_content_keeps_the_last_line_end_of_its_file() {
    let write = |content: &str| {
        format!("<write_to_file>\n<path>a</path>\n<content>{content}</content>\n</write_to_file>\n")
    };
    for (old, content, expected, note) in [
        (None, "\none\ntwo\n", "one\ntwo\n", true),
        (None, "\r\none\r\ntwo\r\n", "one\r\ntwo\r\n", true),
        (None, "one", "one", false),
        (None, "\none\n\n", "one\n", false),
        (None, "\n\n", "", false),
        (Some("old\n"), "\nnew\n", "new\n", true),
        (Some("old"), "\nnew\n", "new", false),
        (Some(""), "\nnew\n", "new\n", true),
    ] {
        let world = World::new();
        if let Some(old) = old {
            world.write("a", old);
        }
        let read = "<read_file>\n<path>a</path>\n</read_file>\n";
        let text = write(content);
        let texts: &[&str] = if old.is_some() {
            &[read, &text]
        } else {
            &[&text]
        };
        let (code, requests, errors) =
            run_texts(&world, CLINE, texts, &["--approve", "edits", "go"]);
        assert_eq!(code, 0, "{content:?}: {errors}");
        assert_eq!(world.read("a"), expected, "{old:?} {content:?}");
        let told = newest_message(requests.last().unwrap());
        assert_eq!(
            told.contains("[Its last line ends with a newline.]"),
            note,
            "{content:?}: {told}"
        );
    }
    // A native content is exact.
    let world = World::new();
    let write = turn(
        "",
        vec![("write_to_file", json!({"path": "a", "content": "one\ntwo"}))],
    );
    let provider = world.plays(NATIVE, &[write, done()]);
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "go"]);
    assert_eq!((code(&output), world.read("a")), (0, "one\ntwo".to_owned()));
}

#[test]
fn rendered_history_gains_no_blank_lines() {
    for (way, call) in [
        (CLINE, "<list_files>\n<path>.</path>\n</list_files>"),
        (
            INVOKE,
            "<function_calls>\n<invoke name=\"list_files\">\n<parameter name=\"path\">.</parameter>\n</invoke>\n</function_calls>",
        ),
    ] {
        for words in ["I look.\n\n", "I look.\n", "I look.\n\n\nAgain:\n\n\n"] {
            let world = World::new();
            let text = format!("{words}{call}");
            let (code, requests, errors) = run_texts(&world, way, &[&text, &text], &["go"]);
            assert_eq!(code, 0, "{errors}");
            let said: Vec<_> = requests[2]["messages"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|message| message["role"] == "assistant")
                .map(|message| message["content"].as_str().unwrap().to_owned())
                .collect();
            let expected: Vec<_> = said.iter().map(|_| text.clone()).collect();
            assert_eq!(said, expected, "{way:?}");
        }
    }
}

/// The documents, and the table of what they claim.
const TABLE: &str = include_str!("../../../../docs/claims.md");

/// The sections of the table, and the number of their rows.
const SECTIONS: [(&str, usize); 7] = [
    ("TEA", 7),
    ("REA", 7),
    ("NAT", 7),
    ("PRO", 2),
    ("CAL", 6),
    ("FIN", 8),
    ("VAL", 9),
];

/// Checks the table: no row is missing, each says what holds, and each test that it names exists and runs.
#[test]
fn every_claim_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = Vec::new();
    for row in TABLE.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [id, claim, native, prompted, shown] = cells[..] else {
            panic!("no five cells: {row}")
        };
        if id == "Id" || id.starts_with("---") {
            continue;
        }
        assert!(claim.len() > 20, "{id}: what is claimed?");
        for holds in [native, prompted] {
            assert!(["yes", "no", "–"].contains(&holds), "{id}: `{holds}`");
        }
        if native == "no" || prompted == "no" {
            assert!(shown.starts_with("Not done: "), "{id}: say what is missing");
        }
        let named: Vec<&str> = shown
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.contains(".rs::"))
            .collect();
        assert!(!named.is_empty(), "{id} names no test");
        for test in named {
            let (file, name) = test.split_once("::").unwrap();
            let text = fs::read_to_string(crates.join(file))
                .unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
            let at = text
                .find(&format!("fn {name}("))
                .unwrap_or_else(|| panic!("{id}: no test `{name}` in {file}"));
            // The attributes of the function: those after the end of what comes before it.
            let before = text[..at]
                .rsplit_once("}\n")
                .map_or(&text[..at], |(_, attributes)| attributes);
            let is_test = before.contains("#[test]") || before.contains("#[tokio::test");
            assert!(is_test, "{id}: `{name}` in {file} is not a test: {before}");
            let is_run =
                !before.contains("#[ignore") || before.contains("slow: .ci/slow-tests runs it");
            assert!(is_run, "{id}: nobody runs `{name}`");
        }
        seen.push(id.to_owned());
    }
    let expected: Vec<_> = SECTIONS
        .iter()
        .flat_map(|(section, rows)| (1..=*rows).map(move |row| format!("{section}-{row}")))
        .collect();
    assert_eq!(seen, expected);
}

/// The text of a reply.
fn text_of(reply: &ProviderReply) -> String {
    let texts = reply.say.iter().filter_map(|part| match part {
        ReplyPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The three forms of calls in which the claims about the loop are checked.
const FORMS: [Way; 3] = [NATIVE, CLINE, INVOKE];

/// Runs a task with these turns. Returns the world, the exit code, the requests and what was shown.
fn run_turns(
    way: Way,
    turns: &[Turn],
    config: &str,
    arguments: &[&str],
) -> (World, i32, Vec<Value>, String) {
    let world = World::new();
    world.configure(config);
    let provider = world.plays(way, turns);
    let output = world.run(&provider, way, arguments);
    let requests = provider.received_requests();
    let requests = requests.iter().map(|request| request.body.clone());
    (world, code(&output), requests.collect(), stderr(&output))
}

#[test]
fn a_completion_beside_a_failed_call_is_refused() {
    let both = turn(
        "",
        vec![
            ("read_file", json!({"path": "none"})),
            ("attempt_completion", json!({"result": "done"})),
        ],
    );
    for way in FORMS {
        let (_world, code, requests, shown) = run_turns(way, &[both.clone(), done()], "", &["go"]);
        assert_eq!((code, requests.len()), (0, 2), "{way:?}: {shown}");
        let told = newest_message(&requests[1]);
        assert!(
            told.contains("Not completed: the call of read_file in the same message"),
            "{way:?}: {told}"
        );
    }
}

#[test]
fn a_completion_with_open_todos_is_refused_where_configured() {
    let todos = |list: &str| turn("", vec![("update_todo_list", json!({ "todos": list }))]);
    let turns = [todos("[ ] a\n[x] b"), done(), todos("[x] a\n[x] b"), done()];
    for way in FORMS {
        let config = "[completion]\ntodos = true\n";
        let (_world, code, requests, shown) = run_turns(way, &turns, config, &["go"]);
        assert_eq!((code, requests.len()), (0, 4), "{way:?}: {shown}");
        let told = newest_message(&requests[2]);
        assert!(
            told.contains("Not completed: 1 todo is not done: `a`"),
            "{way:?}: {told}"
        );
        // Otherwise the list is for the user alone.
        let (_world, code, requests, shown) = run_turns(way, &turns[..2], "", &["go"]);
        assert_eq!((code, requests.len()), (0, 2), "{way:?}: {shown}");
    }
}

#[test]
fn mistakes_end_a_task_unless_a_call_succeeds_between() {
    let wrong = || turn("", vec![("no_such_tool", json!({"a": "b"}))]);
    let right = || turn("", vec![("list_files", json!({"path": "."}))]);
    for way in FORMS {
        let turns = vec![wrong(); 12];
        let (_world, code, requests, shown) = run_turns(way, &turns, "", &["go"]);
        let limit = requests.len();
        assert!(
            code == 3 && limit < 12 && shown.contains(&format!("{limit} calls in a row failed")),
            "{way:?}: {shown}"
        );
        let mut turns = vec![wrong(); limit - 1];
        turns.push(right());
        turns.extend(vec![wrong(); limit - 1]);
        turns.push(done());
        let (_world, code, requests, shown) = run_turns(way, &turns, "", &["go"]);
        assert_eq!((code, requests.len()), (0, 2 * limit), "{way:?}: {shown}");
    }
}

#[test]
fn calls_of_a_message_run_in_order_and_once() {
    let append = |word: &str| {
        let command = format!("echo {word} >> log");
        ("execute_command", json!({ "command": command }))
    };
    let calls = vec![append("1"), append("2"), append("2"), append("3")];
    for way in FORMS {
        let turns = [turn("", calls.clone()), done()];
        let options = ["--sandbox", "off", "--approve", "all", "go"];
        let (world, code, requests, shown) = run_turns(way, &turns, "", &options);
        assert_eq!((code, requests.len()), (0, 2), "{way:?}: {shown}");
        assert_eq!(world.read("log"), "1\n2\n2\n3\n", "{way:?}: {shown}");
    }
}

#[test]
fn a_call_that_is_cut_runs_in_no_protocol() {
    let call = turn(
        "",
        vec![("execute_command", json!({"command": "touch made"}))],
    );
    for way in [CLINE, INVOKE] {
        let whole = text_of(&way.reply(&call, 1));
        let close = if way == CLINE {
            "</execute_command>"
        } else {
            "</invoke>"
        };
        let start = whole.find("touch").unwrap();
        let end = whole.find(close).unwrap() + close.len();
        let cuts: Vec<usize> = (start..end).step_by(4).chain([end - 1]).collect();
        // A few in a task: the same mistake again and again ends it.
        for cuts in cuts.chunks(3) {
            let world = World::new();
            let look = turn("", vec![("list_files", json!({"path": "."}))]);
            let mut script: Vec<_> = cuts
                .iter()
                .flat_map(|cut| [ProviderReply::text(&whole[..*cut]), way.reply(&look, 1)])
                .collect();
            script.push(way.reply(&done(), 9));
            let provider = world.provider(ReplyScript::new(script));
            let options = ["--sandbox", "off", "--approve", "all", "go"];
            let output = world.run(&provider, way, &options);
            assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
            assert!(!world.work.path().join("made").exists(), "{way:?}");
            let sent = provider.received_requests();
            assert!(newest_message(&sent[1].body).contains("was cut"), "{way:?}");
        }
    }
    // The whole JSON of the arguments but for its last byte.
    let cut = json!({"index": 0, "id": "c", "type": "function",
        "function": {"name": "execute_command", "arguments": "{\"command\": \"touch made\""}});
    let chunk = json!({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [cut]}, "finish_reason": "tool_calls"}]});
    let world = World::new();
    let reply = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: format!("data: {chunk}\n\ndata: [DONE]\n\n"),
    });
    let provider = world.provider(ReplyScript::new([reply, NATIVE.reply(&done(), 9)]));
    let options = ["--sandbox", "off", "--approve", "all", "go"];
    let output = world.run(&provider, NATIVE, &options);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!world.work.path().join("made").exists());
}

#[test]
fn a_call_in_a_thought_never_runs() {
    let call = turn(
        "",
        vec![("execute_command", json!({"command": "touch made"}))],
    );
    for way in FORMS {
        let spelt = if way == NATIVE { CLINE } else { way };
        let thought = format!("I could do this:\n{}\n", text_of(&spelt.reply(&call, 1)));
        let end = way.reply(&done(), 9);
        let reply = if way == NATIVE {
            ProviderReply::default()
                .with_thought(&thought, None)
                .with_call("call_1", "attempt_completion", json!({"result": "done"}))
        } else {
            let end = text_of(&end);
            ProviderReply::text(format!("<thinking>\n{thought}</thinking>\n{end}"))
        };
        let world = World::new();
        let provider = world.provider(ReplyScript::new([reply, end]));
        let options = ["--sandbox", "off", "--approve", "all", "go"];
        let output = world.run(&provider, way, &options);
        assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
        assert_eq!(provider.received_requests().len(), 1, "{way:?}");
        assert!(!world.work.path().join("made").exists(), "{way:?}");
    }
}

fn prompt_of(world: &World, arguments: &[&str]) -> String {
    let output = world
        .sabir()
        .arg("prompt")
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_prompt_teaches_what_the_documents_ask() {
    let world = World::new();
    let rules = [
        "named exactly as declared",
        "Think first, in <thinking> tags",
        "Put them at the end, after any words, and stop there.",
        "Wait for the results; never write them yourself",
        "Give each required argument, each at most once, with real values: no placeholders.",
        "do not escape `<`, `&` or quotes, and put no code fence around a call",
        "short SEARCH blocks that match the file exactly, line for line, in the file's order",
        "give the whole content, nothing left out",
    ];
    let forms = [
        (
            "cline",
            "the tool's name is the tag, and each argument is a tag of its own",
        ),
        (
            "invoke",
            "one `invoke` tag with the tool's name for each call",
        ),
    ];
    for (dialect, form) in forms {
        let prompt = prompt_of(&world, &["--dialect", dialect]);
        for words in rules.iter().chain([&form]) {
            assert!(prompt.contains(words), "{dialect}: {words}\n{prompt}");
        }
        let sections: Vec<&str> = prompt.split("\n## ").skip(1).collect();
        assert!(sections.len() >= 10, "{dialect}: {} tools", sections.len());
        for section in sections {
            let name = section.lines().next().unwrap();
            let parts = section.split("\nUsage:\n").collect::<Vec<_>>();
            let [about, usage] = parts[..] else {
                panic!("{dialect}: {name} has no usage")
            };
            let arguments = about.lines().filter(|line| line.starts_with("- "));
            for argument in arguments {
                let is_stated =
                    argument.contains(", required)") || argument.contains(", optional)");
                assert!(is_stated, "{dialect}: {name}: {argument}");
            }
            let usage = usage.split("\n# How to use the tools").next().unwrap();
            let checked = world.piped(&["check", "--dialect", dialect], usage);
            assert_eq!(
                stdout(&checked),
                "1 call, 0 errors, 0 warnings\n",
                "{dialect}: {name}: {usage}"
            );
        }
    }
}

#[test]
fn the_prompt_teaches_connected_servers() {
    let world = World::new();
    let servers = json!([{
        "name": "weather", "instructions": "Ask for one city at a time.",
        "tools": [{"name": "forecast", "description": "The forecast of a city.", "parameters":
            {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}],
        "resources": [["weather://cities", "cities"]],
    }]);
    let path = world.write("servers.json", &servers.to_string());
    for dialect in ["cline", "invoke"] {
        let prompt = prompt_of(
            &world,
            &["--dialect", dialect, "--servers", path.to_str().unwrap()],
        );
        for words in [
            "# Connected MCP servers",
            "weather",
            "forecast",
            "\"city\"",
            "weather://cities",
        ] {
            assert!(prompt.contains(words), "{dialect}: {words}\n{prompt}");
        }
    }
}

#[test]
fn native_tools_are_closed_schemas() {
    for way in [WAYS[0], WAYS[1]] {
        let world = World::new();
        let provider = world.plays(way, &[done()]);
        let ran = world.run(&provider, way, &["go"]);
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        let body = &provider.received_requests()[0].body;
        let tools = body["tools"].as_array().unwrap();
        assert!(tools.len() >= 10, "{}", tools.len());
        for tool in tools {
            let schema = tool
                .get("input_schema")
                .unwrap_or_else(|| &tool["function"]["parameters"]);
            assert_eq!(schema["additionalProperties"], false, "{way:?}: {tool}");
        }
    }
}

/// What the parser of the documents cut, refused or changed.
#[test]
fn values_with_markup_are_read_whole() {
    let world = World::new();
    let values = [
        "cargo build && cargo test || echo 'a < b > c'",
        "cat <<EOF > out.txt\n<x a=\"1\">&amp;</x>\nEOF",
        "printf '%s' '<command>ls</command>'",
        "echo '</command>' '</parameter>'",
        "git log --format='<%an> %s' | grep -c '<function_calls>'",
    ];
    for value in values {
        for (dialect, call) in [
            (
                "cline",
                format!("<execute_command>\n<command>{value}</command>\n</execute_command>"),
            ),
            (
                "invoke",
                format!(
                    "<function_calls>\n<invoke name=\"execute_command\">\n<parameter name=\"command\">{value}</parameter>\n</invoke>\n</function_calls>"
                ),
            ),
        ] {
            let read = parse(&world, dialect, &call);
            assert_eq!(
                calls(&read),
                [("execute_command".to_owned(), "complete".to_owned())],
                "{dialect}: {call}"
            );
            assert!(
                read.to_string()
                    .contains(&serde_json::to_string(value).unwrap()),
                "{dialect}: {read}"
            );
        }
    }
    let page = "<html><content>x</content></html>\n";
    let call = format!(
        "<write_to_file>\n<path>a.html</path>\n<content>\n{page}</content>\n</write_to_file>"
    );
    let read = parse(&world, "cline", &call);
    assert!(
        read.to_string()
            .contains("<html><content>x</content></html>"),
        "{read}"
    );
}

#[test]
fn tools_without_parameters_are_called() {
    let world = World::new();
    let tools = json!([{"name": "ping", "description": "Pings.",
        "parameters": {"type": "object", "properties": {}}}]);
    let path = world.write("tools.json", &tools.to_string());
    for (dialect, call) in [
        ("cline", "<ping>\n</ping>"),
        ("cline", "<ping></ping>"),
        (
            "invoke",
            "<function_calls>\n<invoke name=\"ping\">\n</invoke>\n</function_calls>",
        ),
        ("invoke", "{\"tool\": \"ping\", \"params\": {}}"),
        ("auto", "{\"name\": \"ping\", \"arguments\": {}}"),
    ] {
        let output = world.piped(
            &[
                "parse",
                "--dialect",
                dialect,
                "--tools",
                path.to_str().unwrap(),
                "--output",
                "json",
            ],
            call,
        );
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(
            calls(&report),
            [("ping".to_owned(), "complete".to_owned())],
            "{dialect}: {call}"
        );
    }
}

#[test]
fn placeholders_are_refused() {
    let world = World::new();
    for (dialect, call, words) in [
        (
            "invoke",
            "<function_calls>\n<invoke name=\"tool_name\">\n<parameter name=\"parameter1_name\">value1</parameter>\n</invoke>\n</function_calls>",
            "`tool_name` is a placeholder of the instructions, not a tool",
        ),
        (
            "cline",
            "<read_file>\n<path>parameter1_value</path>\n</read_file>",
            "`path` holds `parameter1_value`, a placeholder of the instructions",
        ),
    ] {
        let output = world.piped(&["check", "--dialect", dialect], call);
        assert_eq!(code(&output), 4, "{}", stdout(&output));
        assert!(stdout(&output).contains(words), "{}", stdout(&output));
    }
}
