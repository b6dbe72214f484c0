//! Calls in the spellings of other agents: their tools, their arguments, and what is refused with a hint.

use std::collections::{BTreeMap, BTreeSet};

use sabir_call::compatibility::{ARGUMENT_ALIASES, FOREIGN_TOOLS, ForeignMeaning};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::{Value, json};

use crate::dialects::pipe;
use crate::world::{WAYS, Way, World, code, events, stderr, stdout, turn};

/// Calls as models write them for the tools of other agents, with what becomes of each.
const TABLE: &str = include_str!("../compatibility/calls.jsonl");

const NATIVE: Way = WAYS[1];
const CLINE: Way = WAYS[2];

/// One line of the table.
struct Spelling {
    agent: String,
    text: String,
    /// The call that it becomes; `None` if it is refused.
    call: Option<(String, Value)>,
    /// A part of the hint with which it is refused.
    hint: String,
    /// The same call as the model would make it through an API: name and arguments.
    native: (String, Value),
}

/// The number of calls of each agent that run, and of those that get the right hint.
type Counts = BTreeMap<String, (usize, usize)>;

fn spellings() -> Vec<Spelling> {
    let read = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        Spelling {
            agent: text("agent"),
            text: text("text"),
            call: row["tool"]
                .as_str()
                .map(|tool| (tool.to_owned(), row["arguments"].clone())),
            hint: text("hint"),
            native: (
                row["native"]["name"].as_str().unwrap().to_owned(),
                row["native"]["arguments"].clone(),
            ),
        }
    };
    TABLE.lines().map(read).collect()
}

impl Spelling {
    fn count_in(&self, counts: &mut Counts) {
        let count = counts.entry(self.agent.clone()).or_default();
        match self.call {
            Some(_) => count.0 += 1,
            None => count.1 += 1,
        }
    }
}

/// Checks that docs/compatibility.md has these numbers.
fn assert_documented(counts: &Counts) {
    let page = include_str!("../../../../docs/compatibility.md");
    let mut expected: Vec<String> = counts
        .iter()
        .map(|(agent, (run, hinted))| format!("| {agent} | {} | {run} | {hinted} |", run + hinted))
        .collect();
    let run: usize = counts.values().map(|(run, _)| run).sum();
    let hinted: usize = counts.values().map(|(_, hinted)| hinted).sum();
    expected.push(format!("| all | {} | {run} | {hinted} |", run + hinted));
    let expected = expected.join("\n");
    assert!(page.contains(&expected), "the page lacks:\n{expected}");
}

/// The report of `sabir parse` about a text.
fn parsed(world: &World, text: &str, options: &[&str]) -> (i32, Value) {
    let arguments = [&["parse", "--output", "json"], options].concat();
    let (code, out, errors) = pipe(world, &arguments, text);
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{text}: {errors}"));
    (code, report)
}

/// The calls of a report.
fn calls(report: &Value) -> Vec<&Value> {
    let parts = report["parts"].as_array().unwrap();
    parts.iter().filter(|part| part["type"] == "call").collect()
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn calls_in_the_spellings_of_other_agents() {
    let world = World::new();
    let all = spellings();
    assert!(all.len() >= 300, "{}", all.len());
    let mut counts = Counts::new();
    let mut wrong = Vec::new();
    for spelling in &all {
        let (code, report) = parsed(&world, &spelling.text, &[]);
        let found = calls(&report);
        let told = report["feedback"].as_str().unwrap_or_default();
        let is_right = match (&spelling.call, found.as_slice()) {
            (Some((name, arguments)), [call]) => {
                code == 0
                    && call["state"] == "complete"
                    && call["name"] == *name
                    && call["arguments"] == *arguments
            }
            // Refused: not run, and the model learns what to write instead.
            (None, [call]) => {
                code == 4 && call["state"] != "complete" && told.contains(&spelling.hint)
            }
            _ => false,
        };
        if is_right {
            spelling.count_in(&mut counts);
        } else {
            wrong.push(format!("{}\n{report:#}", spelling.text));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n\n")
    );
    assert_documented(&counts);
}

/// The same calls through an API, in a task of each agent that makes them all in one message.
#[test]
fn the_same_calls_are_understood_natively() {
    let all = spellings();
    let mut counts = Counts::new();
    let mut wrong = Vec::new();
    let agents: BTreeSet<&str> = all.iter().map(|spelling| spelling.agent.as_str()).collect();
    for agent in agents {
        let made: Vec<&Spelling> = all.iter().filter(|it| it.agent == agent).collect();
        let calls = made.iter().enumerate();
        let message = calls.fold(ProviderReply::text(""), |reply, (at, spelling)| {
            let (name, arguments) = &spelling.native;
            reply.with_call(&format!("call_{at}"), name, arguments.clone())
        });
        let world = World::new();
        let provider = world.provider(ReplyScript::new([message, done()]));
        // Nothing is approved: what would change something is understood, and denied.
        let output = world.run(&provider, NATIVE, &["--output", "events", "go"]);
        let events = events(&output);
        let of_kind = |kind: &'static str| events.iter().filter(move |it| it["kind"] == kind);
        let answered = of_kind("answered").next().unwrap();
        let parts = answered["parts"].as_array().unwrap();
        let checks = answered["checks"].as_array().unwrap();
        assert_eq!((parts.len(), checks.len()), (made.len(), made.len()));
        for (spelling, (part, check)) in made.iter().zip(parts.iter().zip(checks)) {
            let result = of_kind("result").find(|it| it["id"] == part["id"]);
            let told = result.and_then(|it| it["content"].as_str());
            let told = told.unwrap_or_default();
            let is_right = match &spelling.call {
                Some((name, arguments)) => {
                    check["passed"] == true
                        && part["name"] == *name
                        && part["arguments"] == *arguments
                }
                None => check["passed"] == false && told.contains(&spelling.hint),
            };
            if is_right {
                spelling.count_in(&mut counts);
            } else {
                wrong.push(format!("{agent} {:?}: {part} {told}", spelling.native));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n\n")
    );
    assert_documented(&counts);
}

/// docs/compatibility.md lists all names of the table.
#[test]
fn the_page_lists_the_table() {
    let page = include_str!("../../../../docs/compatibility.md");
    let line_with = |start: &str| page.lines().find(|line| line.starts_with(start));
    for row in &ARGUMENT_ALIASES {
        let line = line_with(&format!("| `{}` |", row.argument)).unwrap_or_default();
        for name in row.aliases.iter().chain(row.hints) {
            assert!(
                line.contains(&format!("`{name}`")),
                "{}: {name}",
                row.argument
            );
        }
    }
    for row in FOREIGN_TOOLS {
        for name in row.names {
            let listed = format!("`{name}`");
            let line = match row.meaning {
                ForeignMeaning::Tool(target)
                | ForeignMeaning::ToolIfOffered { tool: target, .. } => {
                    line_with(&format!("| `{target}` |"))
                }
                ForeignMeaning::Refused(hint) => page
                    .lines()
                    .find(|line| line.contains(&listed) && line.ends_with(&format!("| {hint} |"))),
                ForeignMeaning::SubCommand { .. } => Some(page),
            };
            let is_known = row.is_extension() || line.is_some_and(|line| line.contains(&listed));
            assert!(is_known, "{name}");
        }
    }
}

/// A body of the provider with one native call whose argument text is this.
fn raw_call(name: &str, arguments: &str) -> ProviderReply {
    let call = json!({"index": 0, "id": "call_1", "type": "function",
        "function": {"name": name, "arguments": arguments}});
    let chunk = json!({"id": "x", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": null}]});
    let end = json!({"id": "x", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".to_owned()),
        body: format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n"),
    })
}

fn done() -> ProviderReply {
    NATIVE.reply(
        &turn("", vec![("attempt_completion", json!({"result": "done"}))]),
        9,
    )
}

fn done_in_text() -> ProviderReply {
    ProviderReply::text("<attempt_completion>\n<result>done</result>\n</attempt_completion>")
}

/// What the model was sent last.
fn last_request(provider: &sabir_testkit::ScriptedProvider) -> String {
    let requests = provider.received_requests();
    requests.last().unwrap().body["messages"].to_string()
}

#[test]
fn a_file_is_written_with_file_text() {
    let world = World::new();
    let text =
        "<write_to_file>\n<path>a.txt</path>\n<file_text>\nhello\n</file_text>\n</write_to_file>";
    let provider = world.provider(ReplyScript::new([
        ProviderReply::text(text),
        done_in_text(),
    ]));
    let output = world.run(&provider, CLINE, &["--approve", "edits", "do it"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // The value stands on lines of its own, so the file ends with a newline.
    assert_eq!(world.read("a.txt"), "hello\n");
    let native = turn(
        "",
        vec![(
            "write_to_file",
            json!({"file_path": "b.txt", "body": "hi\n"}),
        )],
    );
    let provider = world.provider(ReplyScript::new([NATIVE.reply(&native, 1), done()]));
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "do it"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(world.read("b.txt"), "hi\n");
}

/// What could be meant in two ways is refused, and what is likely is asked.
#[test]
fn aliases_that_are_not_safe_are_asked_about() {
    let world = World::new();
    let check = |text: &str, expected: &str| {
        let (code, report) = parsed(&world, text, &[]);
        let told = report["feedback"].as_str().unwrap_or_default();
        assert!(code == 4 && told.contains(expected), "{text}: {report:#}");
    };
    let json = |name: &str, arguments: Value| {
        format!(
            "<tool_call>\n{}\n</tool_call>",
            json!({"name": name, "arguments": arguments})
        )
    };
    check(
        &json(
            "write_to_file",
            json!({"path": "a", "file_path": "b", "content": "x"}),
        ),
        "did you mean `path`?",
    );
    check(
        &json(
            "write_to_file",
            json!({"path": "a", "file_text": "x", "body": "y"}),
        ),
        "did you mean `content`?",
    );
    check(
        &json(
            "execute_command",
            json!({"command": "ls", "timeout_ms": 5000}),
        ),
        "did you mean `timeout`?",
    );
    check(
        "<write_to_file><path>a</path><content>x</content><file_text>y</file_text></write_to_file>",
        "content",
    );
    // A tool that has such an argument of its own keeps it.
    let tools = world.write(
        "tools.json",
        &json!([{"name": "store", "parameters": {"type": "object", "required": ["content"],
            "properties": {"content": {"type": "string"}, "data": {"type": "string"}}}}])
        .to_string(),
    );
    let call = json("store", json!({"content": "a", "data": "b"}));
    let (code, report) = parsed(&world, &call, &["--tools", tools.to_str().unwrap()]);
    assert_eq!(
        (code, &calls(&report)[0]["arguments"]),
        (0, &json!({"content": "a", "data": "b"}))
    );
}

/// A value that holds another name of an argument that was given stays whole.
#[test]
fn aliases_do_not_end_values() {
    let world = World::new();
    let content = "a </content>\n<file_text>b</file_text> c";
    let text =
        format!("<write_to_file>\n<path>a</path>\n<content>{content}</content>\n</write_to_file>");
    let (_, report) = parsed(&world, &text, &[]);
    assert_eq!(
        calls(&report)[0]["arguments"],
        json!({"path": "a", "content": content})
    );
    let text = "<write_to_file>\n<content>a</content>\n<file>evil</file>\n<path>b</path>\n</write_to_file>";
    let (code, report) = parsed(&world, text, &[]);
    assert_eq!((code, &calls(&report)[0]["state"]), (4, &json!("rejected")));
}

/// Markup with the names of other agents' tools in it is not a call.
#[test]
fn markup_with_such_names_stays_prose() {
    let world = World::new();
    for text in [
        "<view>\n<p>Hello</p>\n</view>",
        "<list>\n<item>a</item>\n</list>",
        "<task/>",
        "<edit class=\"x\">a</edit>",
        "<bash>ls</bash>",
        "See <skill> and\n<read>",
        "<View style={a}>\n<Text>b</Text>\n</View>",
    ] {
        let (code, report) = parsed(&world, text, &[]);
        assert!(code == 0 && calls(&report).is_empty(), "{text}: {report:#}");
    }
}

/// The rules see the tool that a call becomes, under whatever name it came.
#[test]
fn policy_checks_the_tool_that_is_meant() {
    for (way, bash) in [(NATIVE, "Bash"), (CLINE, "run_command")] {
        let world = World::new();
        let reply = |command: &str| match way.protocol {
            "native" => NATIVE.reply(&turn("", vec![("Bash", json!({"command": command}))]), 1),
            _ => ProviderReply::text(format!("<{bash}>\n<command>{command}</command>\n</{bash}>")),
        };
        let end = if way == NATIVE {
            done()
        } else {
            done_in_text()
        };
        let provider = world.provider(ReplyScript::new([
            reply("touch made"),
            reply("touch other"),
            end,
        ]));
        let output = world.run(
            &provider,
            way,
            &["--allow", "touch made", "--output", "events", "do it"],
        );
        let names = |kind: &str| -> Vec<String> {
            let all = events(&output);
            let of_kind = all
                .iter()
                .filter(|event| event["event"] == kind || event["type"] == kind);
            of_kind.map(|event| event["name"].to_string()).collect()
        };
        assert!(
            world.work.path().join("made").exists(),
            "{}",
            stderr(&output)
        );
        assert!(
            !world.work.path().join("other").exists(),
            "{:?}",
            names("tool")
        );
        let sent = last_request(&provider);
        assert!(
            sent.contains("execute_command") && !sent.contains("\"Bash\""),
            "{sent}"
        );
        let rules = world
            .sabir()
            .args(["policy", "simulate", &world.only_task()])
            .output()
            .unwrap();
        assert!(
            stdout(&rules).contains("touch other"),
            "{}{}",
            stdout(&rules),
            stderr(&rules)
        );
    }
}

#[test]
fn tools_that_do_not_exist_are_refused_with_the_right_name() {
    let world = World::new();
    let provider = world.provider(ReplyScript::new([
        ProviderReply::text(
            "<browser_action>\n<action>launch</action>\n<url>http://a</url>\n</browser_action>",
        ),
        ProviderReply::text("<codebase_search>\n<query>login</query>\n</codebase_search>"),
        done_in_text(),
    ]));
    let output = world.run(&provider, CLINE, &["do it"]);
    let sent = last_request(&provider);
    for told in [
        "there is no browser",
        "fetch_url",
        "there is no search by meaning",
        "search_files",
    ] {
        assert!(sent.contains(told), "{told}: {sent}");
    }
    assert!(!sent.contains("held no call"), "{} {sent}", stderr(&output));
}

#[test]
fn rules_of_compatibility_can_be_switched_off() {
    let world = World::new();
    let call = "<tool_call>\n{\"name\": \"functions.Bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    let (code, report) = parsed(&world, call, &[]);
    let rules: Vec<&str> = calls(&report)[0]["repairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|repair| repair["rule"].as_str().unwrap())
        .collect();
    assert_eq!(
        (code, rules.as_slice()),
        (0, ["tool_namespace", "foreign_tool"].as_slice())
    );
    let (code, report) = parsed(&world, call, &["--no-repair", "foreign_tool"]);
    let told = report["feedback"].as_str().unwrap();
    assert!(
        code == 4 && told.contains("did you mean `execute_command`?"),
        "{told}"
    );
    let call = "<execute_command><command>ls</command><requires_approval>true</requires_approval></execute_command>";
    let (code, _) = parsed(&world, call, &["--no-repair", "foreign_argument"]);
    assert_eq!(code, 4);
}

#[test]
fn one_call_a_message_is_taught_and_kept() {
    for (configured, options) in [
        (true, vec!["--approve", "edits", "do it"]),
        (
            false,
            vec!["--calls-per-message", "1", "--approve", "edits", "do it"],
        ),
    ] {
        let world = World::new();
        if configured {
            world.configure("calls_per_message = 1\n");
        }
        let write = |path: &str| {
            format!(
                "<write_to_file>\n<path>{path}</path>\n<content>x</content>\n</write_to_file>\n"
            )
        };
        let provider = world.provider(ReplyScript::new([
            ProviderReply::text(write("a") + &write("b")),
            done_in_text(),
        ]));
        let output = world.run(&provider, CLINE, &options);
        assert_eq!(
            (world.read("a"), world.read("b")),
            ("x".to_owned(), String::new()),
            "{}",
            stderr(&output)
        );
        let requests = provider.received_requests();
        let taught = requests[0].body["messages"].to_string();
        assert!(taught.contains("One call a message"), "{taught}");
        let answered = requests[1].body["messages"].to_string();
        assert!(
            answered.contains("one call was expected in a message"),
            "{answered}"
        );
    }
    // Several are the default, and the option goes before the configuration.
    let world = World::new();
    world.configure("calls_per_message = 1\n");
    let both = turn(
        "",
        vec![
            ("write_to_file", json!({"path": "a", "content": "x"})),
            ("write_to_file", json!({"path": "b", "content": "x"})),
        ],
    );
    let provider = world.provider(ReplyScript::new([NATIVE.reply(&both, 1), done()]));
    let output = world.run(
        &provider,
        NATIVE,
        &["--calls-per-message", "many", "--approve", "edits", "do it"],
    );
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("x".to_owned(), "x".to_owned()),
        "{}",
        stderr(&output)
    );
    let provider = world.provider(ReplyScript::new([done()]));
    world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(
        provider.received_requests()[0].body["parallel_tool_calls"],
        json!(false)
    );
}

#[test]
fn wrong_numbers_of_calls_are_refused() {
    let world = World::new();
    let output = world.piped(&["run", "--calls-per-message", "3", "do it"], "");
    assert!(
        code(&output) == 2 && stderr(&output).contains("use 1, or many"),
        "{}",
        stderr(&output)
    );
    world.configure("calls_per_message = 3\n");
    let output = world.piped(&["models"], "");
    assert!(
        code(&output) == 2 && stderr(&output).contains("calls_per_message: 3 cannot be set"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn tags_as_native_arguments_are_read_as_the_call() {
    let invoke = |name: &str| {
        format!(
            "<function_calls>\n<invoke name=\"{name}\">\n<parameter name=\"path\">a.txt</parameter>\n<parameter name=\"content\">hi</parameter>\n</invoke>\n</function_calls>"
        )
    };
    let cline =
        "<write_to_file>\n<path>a.txt</path>\n<content>hi</content>\n</write_to_file>".to_owned();
    for arguments in [invoke("write_to_file"), cline] {
        let world = World::new();
        let provider = world.provider(ReplyScript::new([
            raw_call("write_to_file", &arguments),
            done(),
        ]));
        let output = world.run(&provider, NATIVE, &["--approve", "edits", "do it"]);
        assert_eq!(
            (code(&output), world.read("a.txt")),
            (0, "hi".to_owned()),
            "{}",
            stderr(&output)
        );
        let sent = last_request(&provider);
        assert!(
            !sent.contains("function_calls") && sent.contains("a.txt"),
            "{sent}"
        );
    }
    let half = invoke("write_to_file").replace("</invoke>", "");
    for (arguments, told) in [
        (
            invoke("execute_command"),
            "hold a call of `execute_command` in tags",
        ),
        (half, "tags that cannot be read as one whole call"),
        (
            invoke("write_to_file") + &invoke("write_to_file"),
            "tags that cannot be read as one whole call",
        ),
        (
            "<path>a.txt</path>".to_owned(),
            "tags that cannot be read as one whole call",
        ),
    ] {
        let world = World::new();
        let provider = world.provider(ReplyScript::new([
            raw_call("write_to_file", &arguments),
            done(),
        ]));
        world.run(&provider, NATIVE, &["--approve", "all", "do it"]);
        let sent = last_request(&provider);
        assert!(sent.contains(told), "{arguments}: {sent}");
        assert_eq!(world.read("a.txt"), "");
    }
}

#[test]
fn numbered_blocks_apply_at_their_lines() {
    let world = World::new();
    let block = |search: &str, replace: &str| {
        format!("------- SEARCH\n{search}\n=======\n{replace}\n+++++++ REPLACE\n")
    };
    let check = |search: &str, replace: &str, expected: Option<&str>| {
        world.write("f.txt", "x\nb\nx\nb\nz\n");
        let output = world.piped(
            &["edit", "f.txt", "--format", "search-replace"],
            &block(search, replace),
        );
        let is_applied = code(&output) == 0;
        assert_eq!(
            is_applied,
            expected.is_some(),
            "{search}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        assert_eq!(
            world.read("f.txt"),
            expected.unwrap_or("x\nb\nx\nb\nz\n"),
            "{search}"
        );
    };
    // At the numbered place, with numbers in REPLACE or without.
    check("3 | x\n4 | b", "3 | y\n4 | b", Some("x\nb\ny\nb\nz\n"));
    check("3 | x\n4 | b", "y\nb", Some("x\nb\ny\nb\nz\n"));
    check(
        "1 | x\n2 | b",
        "1 | y\n2 |\n3 | b",
        Some("y\n\nb\nx\nb\nz\n"),
    );
    // Elsewhere only where it is the only place.
    check("9 | z", "9 | q", Some("x\nb\nx\nb\nq\n"));
    check("2 | x\n3 | b", "y", None);
    // Numbers in a part of the lines may be content.
    check("3 | x\nb", "y", None);
    check("3 | x\n4 | b", "3 | y\nb", None);
    check("3 | x\n9 | b", "y", None);
    let diff = block("3 | x\n4 | b", "y\nb");
    world.write("f.txt", "x\nb\nx\nb\nz\n");
    let read = turn("", vec![("read_file", json!({"path": "f.txt"}))]);
    let edit = turn(
        "",
        vec![("replace_in_file", json!({"path": "f.txt", "diff": diff}))],
    );
    let provider = world.provider(ReplyScript::new([
        NATIVE.reply(&read, 1),
        NATIVE.reply(&edit, 2),
        done(),
    ]));
    let output = world.run(&provider, NATIVE, &["--approve", "edits", "do it"]);
    assert_eq!(
        (code(&output), world.read("f.txt").as_str()),
        (0, "x\nb\ny\nb\nz\n"),
        "{}",
        stderr(&output)
    );
}
