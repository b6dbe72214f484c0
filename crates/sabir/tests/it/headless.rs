//! Tests tasks that a program controls: control lines over a real pipe, and every outcome with its exit code.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::{Value, json};

use crate::events::checked;
use crate::world::{Turn, WAYS, Way, World, code, events, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const PATIENCE: Duration = Duration::from_secs(60);

/// A task with a program at the other end of its pipes.
pub(crate) struct Desk {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    seen: Vec<Value>,
}

fn read(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(stream)
            .lines()
            .map_while(Result::ok)
            .all(|line| sender.send(line).is_ok())
    });
    lines
}

impl Desk {
    pub(crate) fn begin(world: &World, provider: &ScriptedProvider, arguments: &[&str]) -> Self {
        let mut command = world.sabir_with(provider);
        command
            .args([
                "run",
                "--model",
                NATIVE.model(),
                "--output",
                "events",
                "--control",
            ])
            .args(arguments);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (lines, complaints) = (
            read(child.stdout.take().unwrap()),
            read(child.stderr.take().unwrap()),
        );
        Self {
            input: child.stdin.take(),
            child,
            lines,
            complaints,
            seen: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, line: Value) {
        self.say_raw(&line.to_string());
    }

    fn say_raw(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for the event of that kind.
    pub(crate) fn wait_for(&mut self, kind: &str) -> Value {
        self.wait_for_any(&[kind])
    }

    /// Waits for an event of one of these kinds.
    pub(crate) fn wait_for_any(&mut self, kinds: &[&str]) -> Value {
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("none of {kinds:?}: {:?}", self.seen));
            let event = checked(&line);
            self.seen.push(event.clone());
            if kinds.iter().any(|kind| event["kind"] == *kind) {
                return event;
            }
        }
    }

    /// Waits until standard error says so.
    pub(crate) fn wait_to_hear(&mut self, words: &str) {
        loop {
            let line = self
                .complaints
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("`{words}` is not said"));
            if line.contains(words) {
                return;
            }
        }
    }

    /// The code that it ends with.
    pub(crate) fn code(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Accepts the completion that the model proposes next.
    pub(crate) fn accept_completion(&mut self) {
        let question = self.wait_for("question");
        assert_eq!(question["about"], "completion", "{question}");
        self.say(json!({"kind": "approve", "call": question["call"]}));
    }

    /// The outcome and the code of a task that completes. Its completion is accepted.
    pub(crate) fn complete(mut self) -> (String, i32) {
        self.accept_completion();
        self.end()
    }

    /// The outcome and the code.
    pub(crate) fn end(mut self) -> (String, i32) {
        let ended = self.wait_for("ended");
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (ended["outcome"].as_str().unwrap().to_owned(), code)
    }
}

fn ended(outcome: &str, code: i32) -> (String, i32) {
    (outcome.to_owned(), code)
}

fn message(text: &str) -> Value {
    json!({"kind": "message", "text": text})
}

fn write_one() -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": "one", "content": "1"}))],
    )
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn last_request(provider: &ScriptedProvider) -> String {
    provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string()
}

#[test]
fn a_program_approves_the_call_that_it_names() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[write_one(), done()]);
    let mut desk = Desk::begin(&world, &provider, &["make one"]);
    let question = desk.wait_for("question");
    let call = question["call"].as_str().unwrap().to_owned();
    assert_eq!(
        (&question["about"], &question["tool"]),
        (&json!("approval"), &json!("write_to_file"))
    );
    // None of these is an answer.
    for (line, complaint) in [
        (
            json!({"kind": "approve", "call": "another"}).to_string(),
            "no question about that call is open",
        ),
        (
            json!({"kind": "answer", "call": call, "text": "yes"}).to_string(),
            "an answer approves nothing",
        ),
        ("yes".to_owned(), "expected"),
        (
            json!({"kind": "approve", "call": call, "always": true}).to_string(),
            "unknown field `always`",
        ),
        (
            json!({"kind": "message", "text": " "}).to_string(),
            "the message is empty",
        ),
    ] {
        desk.say_raw(&line);
        desk.wait_to_hear(complaint);
    }
    desk.say(message("yes"));
    desk.wait_for("said");
    assert!(!world.work.path().join("one").exists());
    desk.say(json!({"kind": "approve", "call": call}));
    desk.say(json!({"kind": "deny", "call": call}));
    desk.wait_to_hear("no question about that call is open");
    assert_eq!(desk.complete(), ended("completed", 0));
    assert_eq!(world.read("one"), "1");
    assert!(
        last_request(&provider).contains("\"yes\""),
        "the message is read behind the result"
    );
}

#[test]
fn a_program_denies_with_a_reason_and_answers_the_model() {
    let world = World::new();
    let ask = turn(
        "",
        vec![(
            "ask_followup_question",
            json!({"question": "Which port?", "follow_up": ["1", "2"]}),
        )],
    );
    let provider = world.plays(NATIVE, &[write_one(), ask, done()]);
    let mut desk = Desk::begin(&world, &provider, &["make one"]);
    let call = desk.wait_for("question")["call"].clone();
    desk.say(json!({"kind": "deny", "call": call, "reason": "not that name"}));
    let question = desk.wait_for("question");
    assert_eq!(
        (&question["about"], &question["options"]),
        (&json!("followup"), &json!(["1", "2"]))
    );
    desk.say(json!({"kind": "approve", "call": question["call"]}));
    desk.wait_to_hear("use `answer`");
    desk.say(json!({"kind": "answer", "call": question["call"], "text": "8080"}));
    assert_eq!(desk.complete(), ended("completed", 0));
    let last = last_request(&provider);
    assert!(
        last.contains("not that name") && last.contains("8080"),
        "{last}"
    );
    assert!(!world.work.path().join("one").exists());
}

/// Words and a picture on a completion are the answer to it, as an `answer` or as a message.
#[test]
fn a_program_reviews_the_completion() {
    const GIF: &str = "R0lGODlhAQABAAAAACw=";
    let world = World::new();
    let provider = world.plays(NATIVE, &[done(), done(), done()]);
    let mut desk = Desk::begin(&world, &provider, &["make one"]);
    let question = desk.wait_for("question");
    assert_eq!(
        (&question["about"], &question["result"]),
        (&json!("completion"), &json!("done"))
    );
    desk.say(json!({
        "kind": "answer", "call": question["call"], "text": "It looks like this.",
        "images": [{"media_type": "image/gif", "data": GIF}],
    }));
    let result = desk.wait_for("result");
    assert!(
        result["content"]
            .as_str()
            .unwrap()
            .contains("<feedback>\nIt looks like this.\n</feedback>"),
        "{result}"
    );
    assert_eq!(result["images"][0]["data"], GIF, "{result}");
    assert_eq!(desk.wait_for("question")["about"], "completion");
    assert!(last_request(&provider).contains(GIF));
    desk.say(message("The docs are missing."));
    assert_eq!(desk.wait_for("said")["text"], "The docs are missing.");
    desk.accept_completion();
    assert!(last_request(&provider).contains("The docs are missing."));
    let ended = desk.wait_for("ended");
    assert_eq!(ended["outcome"], "completed");
    assert_eq!(
        ended["used"]["tools"],
        json!({"attempt_completion": {"calls": 3}})
    );
    assert_eq!(desk.code(), 0);
}

#[test]
fn a_setting_accepts_completions_without_a_question() {
    let world = World::new();
    world.configure("[completion]\nreview = false\n");
    let provider = world.plays(NATIVE, &[done()]);
    let desk = Desk::begin(&world, &provider, &["make one"]);
    assert_eq!(desk.end(), ended("completed", 0));
}

/// An answer to the model's question may hold a picture.
#[test]
fn a_program_answers_with_a_picture() {
    const GIF: &str = "R0lGODlhAQABAAAAACw=";
    let world = World::new();
    let ask = turn(
        "",
        vec![(
            "ask_followup_question",
            json!({"question": "How?", "follow_up": ["1"]}),
        )],
    );
    let provider = world.plays(NATIVE, &[ask, done()]);
    let mut desk = Desk::begin(&world, &provider, &["make one"]);
    let call = desk.wait_for("question")["call"].clone();
    let picture = json!({"media_type": "image/gif", "data": GIF});
    desk.say(json!({"kind": "answer", "call": call, "images": [picture]}));
    assert_eq!(desk.wait_for("result")["images"][0]["data"], GIF);
    assert_eq!(desk.complete(), ended("completed", 0));
    assert!(last_request(&provider).contains(GIF));
}

/// The end tells tokens and the use of each tool, also after a resume.
#[test]
fn the_end_tells_what_was_used() {
    let world = World::new();
    let calls = turn(
        "",
        vec![
            ("list_files", json!({"path": "."})),
            ("read_file", json!({"path": "none"})),
            ("write_to_file", json!({"path": "one", "content": "1"})),
            ("no_such_tool", json!({})),
        ],
    );
    let provider = world.plays(NATIVE, &[calls, done()]);
    let output = world
        .sabir_with(&provider)
        .args(["run", "--model", NATIVE.model(), "--output", "events", "go"])
        .output()
        .unwrap();
    let events = events(&output);
    let used = &events.last().unwrap()["used"];
    assert_eq!(
        used["tools"],
        json!({
            "_OTHER": {"calls": 1, "failures": 1},
            "attempt_completion": {"calls": 1},
            "list_files": {"calls": 1},
            "read_file": {"calls": 1, "failures": 1},
            "write_to_file": {"calls": 1, "denials": 1},
        }),
        "{used}"
    );
    assert!(
        used["usage"]["output"].is_u64() || used["estimate"]["output"].is_u64(),
        "{used}"
    );
    let provider = world.plays(NATIVE, &[done()]);
    let output = world
        .sabir_with(&provider)
        .args(["resume", &world.only_task(), "--output", "json", "again"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        report["tools"]["attempt_completion"],
        json!({"calls": 2}),
        "{report}"
    );
    assert_eq!(report["tools"]["write_to_file"]["denials"], 1, "{report}");
    let provider = world.plays(NATIVE, &[done()]);
    let output = world
        .sabir_with(&provider)
        .args(["resume", &world.only_task(), "--output", "text", "again"])
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains(
            "tools: unknown tools 1 (1 failed), attempt_completion 3, list_files 1, read_file 1 (1 failed), write_to_file 1 (1 denied)\n"
        ),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_first_message_is_the_task() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let mut desk = Desk::begin(&world, &provider, &[]);
    desk.say_raw("{\"kind\":\"approve\",\"call\":\"early\"}\nnonsense");
    desk.wait_to_hear("control line 1: no question");
    desk.wait_to_hear("control line 2: expected");
    desk.say(message("make it so"));
    assert_eq!(desk.wait_for("started")["prompt"], "make it so");
    assert_eq!(desk.complete(), ended("completed", 0));
    for (line, expected) in [("", 2), ("{\"kind\":\"cancel\"}", 130)] {
        let mut desk = Desk::begin(&world, &provider, &[]);
        desk.say_raw(line);
        drop(desk.input.take());
        assert_eq!(desk.child.wait().unwrap().code(), Some(expected), "{line}");
    }
    let output = world
        .sabir_with(&provider)
        .args(["run", "--model", NATIVE.model(), "--control", "x"])
        .output()
        .unwrap();
    assert!(
        code(&output) == 2 && stderr(&output).contains("--control needs --output events"),
        "{}",
        stderr(&output)
    );
}

/// Messages sent before the model's first answer are all kept, in order, after that answer.
#[test]
fn messages_are_queued_in_order_after_the_answer() {
    let world = World::new();
    let slow = NATIVE
        .reply(&turn("Thinking about it.", vec![]), 1)
        .in_deltas(4)
        .in_chunks(sabir_testkit::ChunkSplit::Size(40));
    let provider = world.provider(ReplyScript::from_fn(move |count, _| match count {
        0 => ProviderReply {
            pause: 40,
            ..slow.clone()
        },
        _ => NATIVE.reply(&done(), 2),
    }));
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    desk.wait_for("asking");
    (1..=3).for_each(|n| desk.say(message(&format!("word {n}"))));
    for n in 1..=3 {
        let said = desk.wait_for("said");
        assert_eq!(
            (&said["text"], &said["when"]),
            (&json!(format!("word {n}")), &json!("later"))
        );
    }
    assert_eq!(desk.complete(), ended("completed", 0));
    let requests = provider.received_requests();
    let (first, second) = (&requests[0].body["messages"], &requests[1].body["messages"]);
    let (first, second) = (first.as_array().unwrap(), second.as_array().unwrap());
    assert_eq!(
        &second[..first.len()],
        first,
        "what was sent stays as it was"
    );
    let rest = serde_json::to_string(&second[first.len()..]).unwrap();
    let places: Vec<_> = ["Thinking", "word 1", "word 2", "word 3"]
        .map(|words| rest.find(words).expect(words))
        .into();
    assert!(places.is_sorted(), "{rest}");
}

#[test]
fn an_interrupting_message_ends_an_endless_answer() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|count, _| match count {
        0 => ProviderReply::text("On and on. ".repeat(50))
            .in_deltas(16)
            .with_fault(ScriptedFault::StallAfter(4000)),
        _ => NATIVE.reply(&done(), 2),
    }));
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    desk.wait_for("delta");
    desk.say(json!({"kind": "message", "text": "Shorter, please.", "steer": true}));
    assert_eq!(
        desk.wait_for("failed")["message"],
        "interrupted by the user's message"
    );
    assert_eq!(desk.wait_for("said")["text"], "Shorter, please.");
    assert_eq!(desk.complete(), ended("completed", 0));
    assert!(
        last_request(&provider).contains("Shorter, please.")
            && !last_request(&provider).contains("On and on")
    );
}

#[test]
fn a_cancel_ends_running_work() {
    let world = World::new();
    let sleeps = turn(
        "",
        vec![("execute_command", json!({"command": "sleep 7414"}))],
    );
    let stalls = ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders);
    for (reply, until) in [
        (stalls, "asking"),
        (NATIVE.reply(&sleeps, 1), "running"),
        (NATIVE.reply(&write_one(), 1), "question"),
    ] {
        let provider = world.provider(ReplyScript::new([reply]));
        let mut desk = Desk::begin(&world, &provider, &["--approve", "commands", "go"]);
        desk.wait_for(until);
        desk.say(message("last words"));
        desk.say(json!({"kind": "cancel"}));
        desk.say(json!({"kind": "cancel"}));
        desk.say(message("too late"));
        assert_eq!(
            desk.wait_for("said")["text"],
            "last words",
            "what came before it is kept"
        );
        assert_eq!(desk.end(), ended("cancelled", 130), "{until}");
        assert!(!world.work.path().join("one").exists());
    }
}

/// The input has ended: open questions are denied, and the task continues. Lines before the end count.
#[test]
fn the_end_of_the_input_denies_open_questions() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[write_one(), write_one(), done()]);
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    desk.wait_for("question");
    drop(desk.input.take());
    let judged = desk.wait_for("judged");
    assert_eq!(
        (&judged["verdict"], &judged["by"]),
        (&json!("deny"), &json!("policy"))
    );
    assert_eq!(
        desk.wait_for("judged")["by"],
        "policy",
        "nor is anything asked from then on"
    );
    assert_eq!(
        desk.end(),
        ended("denied", 5),
        "nothing was done in its place"
    );
    assert!(!world.work.path().join("one").exists());
    let provider = world.plays(NATIVE, &[write_one(), done()]);
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    let call = desk.wait_for("question")["call"].clone();
    desk.say(json!({"kind": "approve", "call": call}));
    drop(desk.input.take());
    assert_eq!(desk.end(), ended("completed", 0));
    assert_eq!(world.read("one"), "1");
}

#[test]
fn no_answer_of_a_program_in_time_denies() {
    let world = World::new();
    world.configure("ask_timeout = \"1s\"\n");
    let provider = world.plays(NATIVE, &[write_one(), done()]);
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    let call = desk.wait_for("question")["call"].clone();
    assert!(
        desk.wait_for("judged")["reason"]
            .as_str()
            .unwrap()
            .contains("nobody answered within 1 seconds")
    );
    desk.say(json!({"kind": "approve", "call": call}));
    assert_eq!(desk.complete(), ended("completed", 0));
    assert!(!world.work.path().join("one").exists());
}

/// Messages that a cancelled task had not read are read when it is resumed, by a program as well.
#[test]
fn a_resumed_task_gets_its_queued_messages() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, request| {
        match request.body.to_string().contains("mind the gap") {
            false => ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders),
            true => NATIVE.reply(&done(), 2),
        }
    }));
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    desk.wait_for("asking");
    desk.say(message("mind the gap"));
    desk.say(json!({"kind": "cancel"}));
    assert_eq!(desk.end(), ended("cancelled", 130));
    let mut command = world.sabir_with(&provider);
    command.args([
        "resume",
        "--output",
        "events",
        "--control",
        &world.only_task(),
    ]);
    assert_eq!(Desk::of(command).complete(), ended("completed", 0));
    assert!(last_request(&provider).contains("mind the gap"));
}

/// A way in which a task ends, with the outcome and the exit code that are expected.
struct End<'a> {
    what: &'a str,
    script: ReplyScript,
    arguments: &'a [&'a str],
    /// The signal, or `cancel` for the control line; `None` lets the task end by itself.
    stop: Option<&'a str>,
    outcome: &'a str,
    code: i32,
}

impl<'a> End<'a> {
    fn new(
        what: &'a str,
        script: ReplyScript,
        arguments: &'a [&'a str],
        stop: Option<&'a str>,
        outcome: &'a str,
        code: i32,
    ) -> Self {
        Self {
            what,
            script,
            arguments,
            stop,
            outcome,
            code,
        }
    }
}

/// Tests every outcome: its cause, the last record, the exit code.
#[test]
fn every_outcome_has_its_exit_code() {
    let words = || turn("I think it is fine.", vec![]);
    let touch = || {
        turn(
            "",
            vec![("execute_command", json!({"command": "touch made"}))],
        )
    };
    let play = |turns: Vec<Turn>| {
        ReplyScript::new(
            turns
                .iter()
                .enumerate()
                .map(|(at, turn)| NATIVE.reply(turn, at + 1))
                .collect::<Vec<_>>(),
        )
    };
    let stall = || {
        ReplyScript::from_fn(|_, _| {
            ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
        })
    };
    let priced = "[[models]]\npattern = \"scripted\"\nprices = { input = 1000, output = 1000 }\n";
    let ends: Vec<End<'_>> = vec![
        End::new("completed", play(vec![done()]), &[], None, "completed", 0),
        End::new(
            "without completing",
            play(vec![words(), words(), words()]),
            &["--completion", "call"],
            None,
            "unfinished",
            3,
        ),
        End::new(
            "denied",
            play(vec![touch(), words(), words(), words()]),
            &[],
            None,
            "denied",
            5,
        ),
        End::new(
            "turns",
            play(vec![touch()]),
            &["--approve", "all", "--max-turns", "1"],
            None,
            "limit",
            6,
        ),
        End::new("time", stall(), &["--max-time", "1s"], None, "limit", 6),
        End::new(
            "cost",
            play(vec![touch()]),
            &["--approve", "all", "--max-cost", "0.01"],
            None,
            "limit",
            6,
        ),
        End::new(
            "provider",
            ReplyScript::from_fn(|_, _| ProviderReply::error_status(400)),
            &[],
            None,
            "provider_failed",
            7,
        ),
        End::new(
            "key",
            ReplyScript::from_fn(|_, _| ProviderReply::error_status(401)),
            &[],
            None,
            "misconfigured",
            2,
        ),
        End::new("SIGINT", stall(), &[], Some("-INT"), "cancelled", 130),
        End::new("SIGTERM", stall(), &[], Some("-TERM"), "cancelled", 130),
        End::new("SIGHUP", stall(), &[], Some("-HUP"), "cancelled", 130),
        End::new(
            "cancel",
            stall(),
            &["--control"],
            Some("cancel"),
            "cancelled",
            130,
        ),
    ];
    // Each waits for seconds, for a standard input that stays open and says nothing.
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || check_end(end, priced));
        }
    });
}

/// Runs a task to its end, and checks its outcome, its exit code and the last record of its journal.
fn check_end(end: End<'_>, config: &str) {
    let world = World::new();
    world.configure(config);
    let provider = world.provider(end.script);
    let mut command = world.sabir_with(&provider);
    command
        .args(["run", "--model", NATIVE.model(), "--output", "events"])
        .args(end.arguments)
        .arg("go");
    let mut desk = Desk::of(command);
    if let Some(stop) = end.stop {
        desk.wait_for("asking");
        match stop {
            "cancel" => desk.say(json!({"kind": "cancel"})),
            signal => {
                let killed = Command::new("kill")
                    .args([signal, &desk.child.id().to_string()])
                    .status()
                    .unwrap();
                assert!(killed.success());
            }
        }
    }
    assert_eq!(desk.end(), ended(end.outcome, end.code), "{}", end.what);
    let log = world
        .sabir()
        .args(["log", "--output", "json", &world.only_task()])
        .output()
        .unwrap();
    let log: Value = serde_json::from_slice(&log.stdout).unwrap();
    let last = log["records"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["kind"], &last["outcome"]),
        (&json!("ended"), &json!(end.outcome)),
        "{}: in the journal",
        end.what
    );
}

/// Tests ends without a record: nothing started, or nothing could be written.
#[test]
fn ends_without_a_record_have_their_exit_codes() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    let run = |arguments: &[&str]| {
        world
            .sabir_with(&provider)
            .args(arguments)
            .output()
            .unwrap()
    };
    assert_eq!(code(&run(&["run", "--no-such-flag", "x"])), 2);
    assert_eq!(
        code(
            &world
                .sabir()
                .args(["run", "--model", "no-such-provider/x", "x"])
                .output()
                .unwrap()
        ),
        2
    );
    assert_eq!(
        code(&run(&["resume", "--output", "events", "no-such-task"])),
        2
    );
    let tasks = world.home.path().join(".local/share/sabir");
    std::fs::create_dir_all(&tasks).unwrap();
    std::fs::write(tasks.join("tasks"), "no folder").unwrap();
    let output = run(&["run", "--model", NATIVE.model(), "x"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(
        provider.received_requests().is_empty(),
        "nothing is asked that cannot be kept"
    );
}

/// Tests a disk that becomes full during a task: an event that cannot be stored has no effect.
#[test]
fn a_journal_that_cannot_be_written_ends_the_task() {
    let world = World::new();
    let long = ProviderReply::text("x".repeat(300_000)).with_call(
        "c",
        "write_to_file",
        json!({"path": "one", "content": "1"}),
    );
    let provider = world.provider(ReplyScript::new([long]));
    let mut command = world.sabir_with(&provider);
    let environment: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    let line = format!(
        "trap '' XFSZ; ulimit -f 64; exec {} run --no-checkpoints --model {} --approve all --output events go",
        env!("CARGO_BIN_EXE_sabir"),
        NATIVE.model()
    );
    command = Command::new("bash");
    command.env_clear().envs(
        environment
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = command
        .current_dir(world.work.path())
        .args(["-c", &line])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let events = events(&output);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["outcome"]),
        (&json!("ended"), &json!("store_failed")),
        "{last}"
    );
    assert!(
        events.iter().all(|event| event["kind"] != "answered"),
        "{events:?}"
    );
    let log = world
        .sabir()
        .args(["log", "--output", "events", &world.only_task()])
        .output()
        .unwrap();
    assert!(
        !stdout(&log).contains("\"ended\""),
        "what could not be kept is in no journal: {}",
        stdout(&log)
    );
    assert!(!world.work.path().join("one").exists());
}
