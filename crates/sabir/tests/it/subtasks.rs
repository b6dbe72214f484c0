//! Subtasks over a real provider: children that complete, fail, wait, ask, are cancelled, and are resumed after their
//! process was killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabir_call::{MessagePart, Role};
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::{Value, json};

use crate::headless::Desk;
use crate::world::{Turn, WAYS, Way, World, code, events, names, stderr, stdout, turn};

pub(crate) const NATIVE: Way = WAYS[1];

/// Returns the first word of a task's prompt, which is its name in these tests.
pub(crate) fn who(request: &ReceivedRequest) -> String {
    let Some(Ok(incoming)) = &request.incoming else {
        return String::new();
    };
    let first = incoming
        .request
        .messages
        .iter()
        .find(|message| message.role == Role::User);
    let text = first.and_then(|message| {
        message.parts.iter().find_map(|part| {
            if let MessagePart::Text { text } = part {
                Some(text.clone())
            } else {
                None
            }
        })
    });
    text.unwrap_or_default()
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Counts the results in the history of a request.
pub(crate) fn results(request: &ReceivedRequest) -> usize {
    let Some(Ok(incoming)) = &request.incoming else {
        return 0;
    };
    let parts = incoming
        .request
        .messages
        .iter()
        .flat_map(|message| &message.parts);
    parts
        .filter(|part| matches!(part, MessagePart::Result(_)))
        .count()
}

pub(crate) fn new_task(message: &str) -> (&'static str, Value) {
    ("new_task", json!({"message": message}))
}

pub(crate) fn done(result: &str) -> Turn {
    turn("", vec![("attempt_completion", json!({"result": result}))])
}

fn command(line: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": line}))])
}

fn write(path: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": path, "content": "1"}))],
    )
}

/// A provider that answers each task by its first word and the results that it has.
fn family(
    world: &World,
    play: impl Fn(&str, usize, &ReceivedRequest) -> ProviderReply + Send + Sync + 'static,
) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(move |_, request| {
        play(&who(request), results(request), request)
    }))
}

/// The turn as the answer to a request with so many results.
fn say(turn: &Turn, results: usize) -> ProviderReply {
    NATIVE.reply(turn, results + 1)
}

fn stall() -> ProviderReply {
    ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
}

fn begin(world: &World, provider: &ScriptedProvider, arguments: &[&str]) -> Command {
    let mut command = world.sabir_with(provider);
    command
        .args([
            "run",
            "--model",
            NATIVE.model(),
            "--subtasks",
            "--output",
            "events",
        ])
        .args(arguments)
        .arg("root");
    command
}

fn run(world: &World, provider: &ScriptedProvider, arguments: &[&str]) -> Output {
    begin(world, provider, arguments).output().unwrap()
}

fn resume(world: &World, provider: &ScriptedProvider, task: &str, arguments: &[&str]) -> Output {
    let mut command = world.sabir_with(provider);
    command
        .args(["resume", "--output", "events"])
        .args(arguments)
        .arg(task)
        .output()
        .unwrap()
}

/// Returns the journals of a home: the main task and its subtasks.
pub(crate) fn journals(world: &World) -> (String, Vec<String>) {
    let all = names(&world.home.path().join(".local/share/sabir/tasks"));
    let mut all: Vec<_> = all
        .iter()
        .filter_map(|name| name.strip_suffix(".journal").map(str::to_owned))
        .collect();
    all.sort_by_key(String::len);
    let root = all.remove(0);
    assert!(
        all.iter().all(|child| child.starts_with(&root)),
        "{root}: {all:?}"
    );
    (root, all)
}

/// The records of a task.
pub(crate) fn log(world: &World, task: &str) -> Vec<Value> {
    let output = world
        .sabir()
        .args(["log", "--output", "events", task])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn text(world: &World, arguments: &[&str]) -> String {
    let output = world.sabir().args(arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

/// The result that the call of `new_task` has in the journal of its task.
fn result(records: &[Value]) -> (String, String) {
    let mut results = records
        .iter()
        .filter(|record| record["kind"] == "result" && record["name"] == "new_task");
    let result = results
        .next()
        .unwrap_or_else(|| panic!("no result: {records:?}"));
    assert!(results.next().is_none(), "each call has one result");
    (
        result["ending"].as_str().unwrap().to_owned(),
        result["content"].as_str().unwrap().to_owned(),
    )
}

fn outcome(records: &[Value]) -> &str {
    let last = records.last().unwrap();
    assert_eq!(last["kind"], "ended", "{last}");
    last["outcome"].as_str().unwrap()
}

/// Waits until another process has had an effect.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_subtask_answers_the_call() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(&turn("", vec![new_task("alpha writes one")]), results),
        ("root", _) => say(&done("all is done"), results),
        (_, 0) => say(&write("one"), results),
        _ => say(&done("one is written"), results),
    });
    let output = run(&world, &provider, &["--approve", "all"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(world.read("one"), "1");
    let (root, children) = journals(&world);
    let [child] = children.as_slice() else {
        panic!("{children:?}")
    };
    let lines = events(&output);
    // Every line of the subtask names it.
    let of_child = lines.iter().filter(|line| line["task"] == child.as_str());
    let kinds: BTreeSet<_> = of_child
        .map(|line| line["kind"].as_str().unwrap())
        .collect();
    for kind in [
        "started", "asking", "answered", "running", "result", "ended",
    ] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let last = lines.last().unwrap();
    assert!(
        last["kind"] == "ended" && last["task"].is_null() && last["outcome"] == "completed",
        "{last}"
    );
    let records = log(&world, &root);
    assert_eq!(
        result(&records),
        ("done".to_owned(), "one is written".to_owned())
    );
    let told: Vec<_> = records
        .iter()
        .filter(|record| record["kind"] == "subtask")
        .collect();
    assert_eq!(
        (told.len(), told[0]["child"].as_str()),
        (2, Some(child.as_str()))
    );
    assert_eq!(
        (&told[1]["ended"]["outcome"], &told[1]["ended"]["turns"]),
        (&json!("completed"), &json!(2))
    );
    let own = log(&world, child);
    assert_eq!(
        (&own[0]["prompt"], &own[0]["from"]["by"]),
        (&json!("alpha writes one"), &json!("subtask"))
    );
    assert_eq!(outcome(&own), "completed");
    // The lists name it where it belongs.
    let list = text(&world, &["tasks"]);
    assert!(
        list.lines().count() == 1 && list.contains("1 subtask"),
        "{list}"
    );
    let list = text(&world, &["tasks", "--all"]);
    assert!(
        list.lines().count() == 2
            && list
                .lines()
                .nth(1)
                .unwrap()
                .trim_start()
                .starts_with(&child[child.len() - 6..]),
        "{list}"
    );
    assert!(text(&world, &["log", &root[..20]]).contains(&format!("subtask {child} is completed")));
    assert!(text(&world, &["export", &root]).contains(child.as_str()));
    // What it changed is undone under its name.
    text(&world, &["undo", child, "--yes"]);
    assert!(!world.work.path().join("one").exists());
}

/// The user sees only records, each line under the name of its subtask, and the result of the task.
#[test]
fn the_terminal_shows_subtasks_by_their_records() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn(
                "Two parts.",
                vec![new_task("alpha writes one"), new_task("beta reads it")],
            ),
            results,
        ),
        ("root", _) => say(&done("all is done"), results),
        ("alpha", 0) => say(&write("one"), results).in_deltas(3),
        (_, 0) => say(&command("touch two"), results),
        _ => say(&done("part"), results),
    });
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--subtasks",
        "--approve",
        "edits",
        "root",
    ]);
    let output = command.output().unwrap();
    assert_eq!(
        (code(&output), stdout(&output).as_str()),
        (0, "all is done\n"),
        "{}",
        stderr(&output)
    );
    let shown = stderr(&output);
    let lines: Vec<_> = shown
        .lines()
        .filter(|line| line.starts_with("  [code "))
        .collect();
    for words in [
        "] begins: alpha writes one",
        "] ● write_to_file one",
        "✓ write_to_file one",
        "✗ denied:",
        "] is completed",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(words)),
            "{words}: {shown}"
        );
    }
    let (_, children) = journals(&world);
    let named = |line: &&str| {
        children
            .iter()
            .any(|child| line.starts_with(&format!("  [code {}] ", &child[child.len() - 4..])))
    };
    assert!(lines.iter().all(named), "{shown}");
    command.args(["--output", "json"]);
    let output = command.output().unwrap();
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&told["outcome"], &told["message"]),
        (&json!("completed"), &json!("all is done"))
    );
}

/// Three run concurrently, each waits until it has seen the others; the fourth waits for its turn.
#[test]
fn three_subtasks_run_at_once_and_the_fourth_waits() {
    let world = World::new();
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let provider = family(&world, move |who, results, _| {
        let mut seen = seen.lock().unwrap();
        match (who, results) {
            ("root", 0) => say(
                &turn(
                    "",
                    ["alpha", "beta", "gamma", "delta"]
                        .map(new_task)
                        .into_iter()
                        .collect(),
                ),
                results,
            ),
            ("root", _) => say(&done("all"), results),
            (who, _) => {
                seen.insert(who.to_owned());
                // A request that fails is sent again in a while.
                if seen.len() < 3 {
                    ProviderReply::error_status(503)
                } else {
                    say(&done(who), results)
                }
            }
        }
    });
    let output = run(&world, &provider, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let (root, children) = journals(&world);
    assert_eq!(children.len(), 4);
    let lines = events(&output);
    let at = |kind: &str, nth: usize| {
        let found = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line["kind"] == kind && !line["task"].is_null());
        found.map(|(at, _)| at).nth(nth).unwrap()
    };
    // The first of the lines that start is the task's own.
    assert!(
        at("started", 3) < at("ended", 0),
        "three begin before one has ended"
    );
    assert!(
        at("started", 4) > at("ended", 0),
        "the fourth begins behind the end of one"
    );
    assert_eq!(outcome(&log(&world, &root)), "completed");
    let last = provider
        .received_requests()
        .pop()
        .unwrap()
        .incoming
        .unwrap()
        .unwrap()
        .request;
    let parts = last.messages.iter().flat_map(|message| &message.parts);
    let results: Vec<_> = parts
        .filter_map(|part| {
            if let MessagePart::Result(result) = part {
                Some(result.content.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        results,
        ["alpha", "beta", "gamma", "delta"],
        "the model reads results in the order of its calls"
    );
}

#[test]
fn a_subtask_that_does_not_complete_is_a_failed_call() {
    let check = |reply: fn(usize) -> ProviderReply, words: &str, ended: &str| {
        let world = World::new();
        let provider = family(&world, move |who, results, _| match (who, results) {
            ("root", 0) => say(&turn("", vec![new_task("alpha")]), results),
            ("root", _) => say(&done("without it"), results),
            _ => reply(results),
        });
        let output = run(&world, &provider, &["--completion", "call"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let (root, children) = journals(&world);
        let (ending, content) = result(&log(&world, &root));
        assert!(
            ending == "failed" && content.contains(words) && content.contains(&children[0]),
            "{ending}: {content}"
        );
        assert_eq!(outcome(&log(&world, &children[0])), ended);
    };
    check(
        |_| ProviderReply::error_status(400),
        "the provider failed",
        "provider_failed",
    );
    check(
        |_| ProviderReply::error_status(401),
        "cannot be answered as things are set up",
        "misconfigured",
    );
    check(
        |_| ProviderReply::text("I think so."),
        "ended without completing",
        "unfinished",
    );
    let denied = |results| {
        if results == 0 {
            say(&command("touch x"), 0)
        } else {
            ProviderReply::text("No.")
        }
    };
    check(denied, "calls were denied", "denied");
}

#[test]
fn limits_apply_to_a_task_and_its_subtasks() {
    let world = World::new();
    world.write("a", "a");
    let provider = family(&world, |who, results, _| match who {
        "root" => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        _ => say(
            &turn(
                "",
                vec![("read_file", json!({"path": "a", "start_line": results + 1}))],
            ),
            results,
        ),
    });
    let output = run(&world, &provider, &["--max-turns", "5"]);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    // Running requests are finished when the limit is reached.
    let asked = provider.received_requests().len();
    assert!((5..=6).contains(&asked), "{asked} requests");
    let (root, children) = journals(&world);
    for task in children.iter().chain([&root]) {
        assert_eq!(outcome(&log(&world, task)), "limit");
    }
}

/// Two subtasks are permitted at the same moment, and run one after the other: the second has only what the first has left.
#[test]
fn a_subtask_that_begins_after_another_has_what_is_left() {
    let world = World::new();
    world.configure("[subtasks]\nat_once = 1\n");
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        ("root", _) | (_, 1) => say(&done("done"), results),
        _ => say(
            &turn("", vec![("list_files", json!({"path": "."}))]),
            results,
        ),
    });
    let output = run(&world, &provider, &["--max-turns", "3"]);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    // One turn of the task and two of the first subtask.
    assert_eq!(provider.received_requests().len(), 3, "{}", stderr(&output));
}

#[test]
fn subtasks_nest_to_the_depth_limit() {
    let world = World::new();
    let provider = family(&world, |who, results, request| {
        let below = match who {
            "root" => "alpha",
            "alpha" => "beta",
            _ => "",
        };
        let offered = request.body["tools"].to_string().contains("\"new_task\"");
        assert_eq!(offered, !below.is_empty(), "{who}");
        if results == 0 && offered {
            say(&turn("", vec![new_task(below)]), 0)
        } else {
            say(&done(who), results)
        }
    });
    let output = run(&world, &provider, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let (root, children) = journals(&world);
    let [alpha, beta] = children.as_slice() else {
        panic!("{children:?}")
    };
    assert!(beta.starts_with(alpha.as_str()));
    assert_eq!(result(&log(&world, &root)).1, "alpha");
    assert_eq!(result(&log(&world, alpha)).1, "beta");
    let tree = text(&world, &["tasks", "--all"]);
    let starts: Vec<_> = tree
        .lines()
        .map(|line| line.len() - line.trim_start().len())
        .collect();
    // The name of the newest task of the folder takes the place of its indentation.
    assert_eq!(starts, [0, 7, 9], "{tree}");
    let unwanted = world.sabir_with(&provider);
    let plain = { unwanted }
        .args(["run", "--model", NATIVE.model(), "beta"])
        .output()
        .unwrap();
    assert_eq!(
        code(&plain),
        0,
        "nothing is offered where it is not asked for: {}",
        stderr(&plain)
    );
}

/// A mode delegates only to modes that allow no more than itself, and an unknown name is reported.
#[test]
fn a_mode_cannot_delegate_more_than_it_allows() {
    let check = |mode: &str, wanted: &str, words: Option<&str>| {
        let (world, wanted) = (World::new(), wanted.to_owned());
        let provider = family(&world, move |who, results, _| match (who, results) {
            ("root", 0) => say(
                &turn(
                    "",
                    vec![("new_task", json!({"message": "alpha", "mode": wanted}))],
                ),
                results,
            ),
            _ => say(&done(who), results),
        });
        let output = run(&world, &provider, &["--mode", mode]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let (root, children) = journals(&world);
        let (ending, content) = result(&log(&world, &root));
        match words {
            Some(words) => assert!(ending == "failed" && content.contains(words), "{content}"),
            None => {
                assert_eq!((ending.as_str(), content.as_str()), ("done", "alpha"));
                assert_eq!(log(&world, &children[0])[0]["mode"], "plan");
            }
        }
    };
    check("code", "plan", None);
    check("orchestrator", "plan", None);
    check("plan", "plan", Some("gives no work to subtasks"));
    check("code", "poet", Some("there is no mode `poet`"));
}

/// The damage of a journal by the crash.
/// The current mode of a task limits its subtasks, not the mode in which it started.
#[test]
fn a_switched_mode_cannot_delegate_more_than_it_allows() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn(
                "",
                vec![(
                    "switch_mode",
                    json!({"mode": "plan", "reason": "to look first"}),
                )],
            ),
            0,
        ),
        ("root", 1) => say(
            &turn(
                "",
                vec![("new_task", json!({"message": "child", "mode": "code"}))],
            ),
            1,
        ),
        ("root", _) => say(&done("no"), results),
        (who, _) => panic!("{who} was begun"),
    });
    let output = run(&world, &provider, &["--approve", "all"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let (root, _) = journals(&world);
    let (ending, content) = result(&log(&world, &root));
    assert_eq!(ending, "failed");
    assert!(
        content.contains("The mode `plan` gives no work to subtasks"),
        "{content}"
    );
}

/// A mode that changes nothing itself has subtasks without being asked, which do the work; they stay in their modes.
#[test]
fn an_orchestrator_has_subtasks() {
    let world = World::new();
    let provider = family(&world, |who, results, request| {
        let tools = request.body["tools"].to_string();
        match (who, results) {
            ("root", 0) => {
                assert!(
                    tools.contains("new_task") && !tools.contains("write_to_file"),
                    "{tools}"
                );
                say(
                    &turn(
                        "",
                        vec![("new_task", json!({"message": "child", "mode": "code"}))],
                    ),
                    0,
                )
            }
            ("child", 0) => {
                assert!(
                    tools.contains("write_to_file") && !tools.contains("switch_mode"),
                    "{tools}"
                );
                say(&write("a.txt"), 0)
            }
            _ => say(&done("made"), results),
        }
    });
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--mode",
        "orchestrator",
        "--approve",
        "edits",
        "root",
    ]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(world.read("a.txt"), "1");
}

fn tear(world: &World, task: &str) {
    let path = world
        .home
        .path()
        .join(format!(".local/share/sabir/tasks/{task}.journal"));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 3).unwrap();
}

/// The process is killed while a subtask works. The resumed task continues it, and nothing is done twice.
#[test]
fn a_killed_task_continues_with_its_subtasks() {
    for torn in [[false, false], [true, false], [false, true], [true, true]] {
        let world = World::new();
        let killed: Arc<Mutex<bool>> = Arc::default();
        let again = Arc::clone(&killed);
        let provider = family(&world, move |who, results, _| match (who, results) {
            ("root", 0) => say(&turn("", vec![new_task("alpha")]), results),
            ("root", _) => say(&done("all"), results),
            (_, 0) => say(&command("echo once >> log.txt"), results),
            (_, 1) => say(&command("echo twice >> log.txt"), results),
            _ if !*again.lock().unwrap() => stall(),
            _ => say(&done("alpha is done"), results),
        });
        let mut process = begin(&world, &provider, &["--approve", "all"])
            .spawn()
            .unwrap();
        wait_until("the subtask does not come so far", || {
            provider.received_requests().len() >= 4
        });
        process.kill().unwrap();
        process.wait().unwrap();
        *killed.lock().unwrap() = true;
        let (root, children) = journals(&world);
        let [child] = children.as_slice() else {
            panic!("{children:?}")
        };
        for (task, torn) in [&root, child].into_iter().zip(torn) {
            if torn {
                tear(&world, task);
            }
        }
        let before = provider.received_requests().len();
        let output = resume(&world, &provider, &root, &["--approve", "all"]);
        assert_eq!(code(&output), 0, "{torn:?}: {}", stderr(&output));
        assert_eq!(world.read("log.txt"), "once\ntwice\n", "{torn:?}");
        assert_eq!(
            result(&log(&world, &root)),
            ("done".to_owned(), "alpha is done".to_owned())
        );
        assert_eq!(
            (outcome(&log(&world, &root)), outcome(&log(&world, child))),
            ("completed", "completed")
        );
        // One answer of the subtask and one of the task: nothing was requested again.
        assert_eq!(provider.received_requests().len() - before, 2, "{torn:?}");
    }
}

/// A subtask is resumed alone to its end: the parent takes its result without a model request.
#[test]
fn a_subtask_can_be_resumed_alone() {
    let world = World::new();
    let stopped: Arc<Mutex<bool>> = Arc::default();
    let again = Arc::clone(&stopped);
    let provider = family(&world, move |who, results, _| match (who, results) {
        ("root", 0) => say(&turn("", vec![new_task("alpha")]), results),
        (_, 0) if !*again.lock().unwrap() => stall(),
        _ => say(&done(who), results),
    });
    let mut process = begin(&world, &provider, &[]).spawn().unwrap();
    wait_until("the subtask is not asked for", || {
        provider.received_requests().len() >= 2
    });
    let (root, children) = journals(&world);
    let output = resume(&world, &provider, &children[0], &[]);
    assert!(
        code(&output) == 2 && stderr(&output).contains("process"),
        "one works on it: {}",
        stderr(&output)
    );
    process.kill().unwrap();
    process.wait().unwrap();
    *stopped.lock().unwrap() = true;
    assert_eq!(code(&resume(&world, &provider, &children[0], &[])), 0);
    let before = provider.received_requests().len();
    assert_eq!(code(&resume(&world, &provider, &root, &[])), 0);
    assert_eq!(
        result(&log(&world, &root)),
        ("done".to_owned(), "alpha".to_owned())
    );
    assert_eq!(
        provider.received_requests().len() - before,
        1,
        "only the task itself is asked"
    );
    assert!(text(&world, &["check", "--task", &root]).contains("call"));
}

#[test]
fn an_interrupt_ends_all_subtasks_and_resume_continues_them() {
    let world = World::new();
    let stopped: Arc<Mutex<bool>> = Arc::default();
    let again = Arc::clone(&stopped);
    let provider = family(&world, move |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        ("root", _) => say(&done("all"), results),
        _ if !*again.lock().unwrap() => stall(),
        _ => say(&done(who), results),
    });
    let process = begin(&world, &provider, &[]).spawn().unwrap();
    wait_until("the subtasks are not asked for", || {
        provider.received_requests().len() >= 3
    });
    let pid = process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = process.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    let (root, children) = journals(&world);
    assert_eq!(children.len(), 2);
    for task in children.iter().chain([&root]) {
        assert_eq!(outcome(&log(&world, task)), "cancelled", "{task}");
    }
    *stopped.lock().unwrap() = true;
    let output = resume(&world, &provider, &root, &[]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for task in children.iter().chain([&root]) {
        assert_eq!(outcome(&log(&world, task)), "completed", "{task}");
    }
}

#[test]
fn a_program_cancels_one_subtask() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        ("root", _) => say(&done("all"), results),
        ("alpha", _) => stall(),
        _ => say(&done(who), results),
    });
    let mut desk = Desk::of(begin(&world, &provider, &["--control"]));
    let alpha = loop {
        let started = desk.wait_for("started");
        if started["prompt"] == "alpha" {
            break started["task"].clone();
        }
    };
    desk.say(json!({"kind": "cancel", "task": "another"}));
    desk.wait_to_hear("no such task is running");
    desk.say(json!({"kind": "cancel", "task": alpha}));
    desk.accept_completion();
    while desk.wait_for("ended")["task"] != Value::Null {}
    assert_eq!(desk.code(), 0);
    let (root, _) = journals(&world);
    let records = log(&world, &root);
    let mut endings: Vec<_> = records
        .iter()
        .filter(|record| record["name"] == "new_task")
        .map(|record| record["ending"].as_str().unwrap())
        .collect();
    // Results are recorded as they come: either may be the first.
    endings.sort_unstable();
    assert_eq!(endings, ["done", "interrupted"]);
    assert_eq!(outcome(&log(&world, alpha.as_str().unwrap())), "cancelled");
}

/// Two subtasks ask at the same time about calls of one name.
#[test]
fn a_program_answers_the_subtask_that_asked() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        ("root", _) => say(&done("all"), results),
        (who, 0) => say(&write(who), results),
        _ => say(&done(who), results),
    });
    let mut desk = Desk::of(begin(&world, &provider, &["--control"]));
    let (first, second) = (desk.wait_for("question"), desk.wait_for("question"));
    assert_eq!(first["call"], second["call"]);
    assert!(first["task"] != second["task"] && first["task"].is_string());
    desk.say(json!({"kind": "approve", "call": first["call"]}));
    desk.wait_to_hear("say which with `task`");
    desk.say(json!({"kind": "approve", "call": first["call"], "task": first["task"]}));
    while desk.wait_for("result")["task"] != first["task"] {}
    // Only this question is open now.
    desk.say(json!({"kind": "deny", "call": second["call"]}));
    desk.accept_completion();
    while desk.wait_for("ended")["task"] != Value::Null {}
    assert_eq!(desk.code(), 0);
    let made = |name: &str| world.work.path().join(name).exists();
    let path = |question: &Value| {
        question["subject"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!((made(&path(&first)), made(&path(&second))), (true, false));
}

/// With the setting, the user sees the result of a subtask before its task does, and may send it back.
#[test]
fn a_setting_asks_before_a_subtasks_result_goes_to_its_task() {
    let world = World::new();
    world.configure("[subtasks]\nreview = true\n");
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(&turn("", vec![new_task("alpha")]), results),
        ("root", _) => say(&done("all"), results),
        (_, 0) => say(&done("half of it"), results),
        _ => say(&done("the whole"), results),
    });
    let mut desk = Desk::of(begin(&world, &provider, &["--control"]));
    let question = desk.wait_for("question");
    assert_eq!(
        (&question["about"], &question["result"]),
        (&json!("completion"), &json!("half of it"))
    );
    assert!(question["task"].is_string(), "{question}");
    desk.say(json!({"kind": "deny", "call": question["call"], "reason": "and the rest?", "task": question["task"]}));
    let question = desk.wait_for("question");
    assert_eq!(question["result"], "the whole");
    desk.say(json!({"kind": "approve", "call": question["call"]}));
    desk.accept_completion();
    while desk.wait_for("ended")["task"] != Value::Null {}
    assert_eq!(desk.code(), 0);
    let (root, _) = journals(&world);
    assert_eq!(
        result(&log(&world, &root)),
        ("done".to_owned(), "the whole".to_owned())
    );
}

/// At a terminal or a pipe: one question is open at a time, and names its task.
#[test]
fn a_user_answers_subtasks_one_after_another() {
    let world = World::new();
    let provider = family(&world, |who, results, _| match (who, results) {
        ("root", 0) => say(
            &turn("", vec![new_task("alpha"), new_task("beta")]),
            results,
        ),
        ("root", _) => say(&done("all"), results),
        (who, 0) => say(&write(who), results),
        _ => say(&done(who), results),
    });
    let mut command = world.sabir_with(&provider);
    command.args(["--model", NATIVE.model(), "--subtasks", "--", "root"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let (into, mut from, mut typed) = (
        Arc::clone(&shown),
        child.stderr.take().unwrap(),
        child.stdin.take().unwrap(),
    );
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = std::io::Read::read(&mut from, &mut buffer) {
            into.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
    let count = |words: &str| shown.lock().unwrap().matches(words).count();
    for nth in 1..=2 {
        wait_until("nobody is asked", || count("allow it?") == nth);
        assert_eq!(count("asks:"), nth, "{}", shown.lock().unwrap());
        // A call is decided while the other waits.
        writeln!(typed, "{}", if nth == 1 { "y" } else { "n" }).unwrap();
    }
    wait_until("the task is not reviewed", || count("is that right?") == 1);
    writeln!(typed, "y").unwrap();
    // The session stays open after the completion; the end of the input ends it.
    drop(typed);
    let ended = child.wait().unwrap();
    let text = shown.lock().unwrap().clone();
    assert_eq!(ended.code(), Some(0), "{text}");
    let made = ["alpha", "beta"]
        .into_iter()
        .filter(|name| world.work.path().join(name).exists())
        .count();
    assert_eq!(made, 1, "{text}");
    // Two lines of the name, mode and digits, that begin and end each.
    assert!(
        count("] begins: ") == 2 && count("] is completed") == 2 && count("  [code ") >= 8,
        "{text}"
    );
}

/// A fork of a task with an open subtask restarts it under the name of the fork.
#[test]
fn a_fork_restarts_an_open_subtask() {
    let world = World::new();
    let stopped: Arc<Mutex<bool>> = Arc::default();
    let again = Arc::clone(&stopped);
    let provider = family(&world, move |who, results, _| match (who, results) {
        ("root", 0) => say(&turn("", vec![new_task("alpha")]), results),
        ("root", _) => say(&done("all"), results),
        _ if !*again.lock().unwrap() => stall(),
        _ => say(&done(who), results),
    });
    let mut process = begin(&world, &provider, &[]).spawn().unwrap();
    wait_until("the subtask is not asked for", || {
        provider.received_requests().len() >= 2
    });
    process.kill().unwrap();
    process.wait().unwrap();
    *stopped.lock().unwrap() = true;
    let (root, children) = journals(&world);
    let mut command = world.sabir_with(&provider);
    let output = command
        .args(["fork", "--output", "events", &root])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines = events(&output);
    let started = lines
        .iter()
        .find(|line| line["kind"] == "started" && line["prompt"] == "alpha")
        .unwrap();
    assert!(started["task"] != children[0].as_str(), "{started}");
    assert_ne!(
        log(&world, &children[0]).last().unwrap()["kind"],
        "ended",
        "the other one is as it was"
    );
}

#[test]
fn a_recording_contains_one_task() {
    let world = World::new();
    let provider = family(&world, |_, results, _| say(&done("x"), results));
    let output = run(&world, &provider, &["--record", "tape"]);
    assert!(
        code(&output) == 2 && stderr(&output).contains("--record and subtasks"),
        "{}",
        stderr(&output)
    );
    world.configure("[subtasks]\noffered = true\n");
    let mut command = world.sabir_with(&provider);
    command.args(["run", "--model", NATIVE.model(), "--record", "tape", "root"]);
    let output = command.output().unwrap();
    assert!(
        code(&output) == 0 && stderr(&output).contains("none are offered"),
        "{}",
        stderr(&output)
    );
    world.configure("[subtasks]\nat_once = 0\n");
    let output = run(&world, &provider, &[]);
    assert!(
        code(&output) == 2 && stderr(&output).contains("at_once"),
        "{}",
        stderr(&output)
    );
}
