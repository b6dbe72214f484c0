//! Tests `kill -9` at random moments of a task with subtasks: it is resumed to its end, each subtask from its own journal; nothing is
//! done twice, nothing acknowledged is lost, no process is left. `.ci/slow-tests` kills more often, and `SABIR_KILLS` sets the
//! number.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::subtasks::{NATIVE, done, journals, log, new_task, results, who};
use crate::world::{World, processes_with, turn};

/// Commands of each subtask.
const STEPS: usize = 4;
/// A part of the command lines that must not outlive their task.
const MARK: &str = "8231";

/// The observations of the test.
#[derive(Debug, Default)]
struct Figures {
    kills: usize,
    tasks: usize,
    subtasks: usize,
    acknowledged: usize,
}

/// Two concurrent subtasks, one of which has its own subtask; then one more.
fn script() -> ReplyScript {
    ReplyScript::from_fn(|_, request| -> ProviderReply {
        let (who, done_so_far) = (who(request), results(request));
        let next = match (who.as_str(), done_so_far) {
            ("root", 0) => turn("", vec![new_task("alpha"), new_task("beta")]),
            ("root", 2) => turn("", vec![new_task("delta")]),
            ("alpha", STEPS) => turn("", vec![new_task("gamma")]),
            ("root", _) => done("all"),
            (_, count) if count >= STEPS => done(&who),
            (_, count) => {
                let deaf = if count == 1 {
                    format!("(trap '' TERM; exec sleep {MARK}) & ")
                } else {
                    String::new()
                };
                let line = format!("{deaf}echo {who} {count} >> log.txt; sleep 0.01; echo ok");
                turn("", vec![("execute_command", json!({"command": line}))])
            }
        };
        NATIVE.reply(&next, done_so_far + 1)
    })
}

/// A generator that needs no crate: good enough to choose moments.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Runs the command and kills it after a while. Returns true if it ended before, and the whole lines that it printed.
fn kill_after(mut command: Command, wait: Duration) -> (bool, Vec<Value>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    let (begun, mut ended) = (Instant::now(), false);
    while !ended && begun.elapsed() < wait {
        ended = child.try_wait().unwrap().is_some();
        std::thread::sleep(Duration::from_millis(1));
    }
    _ = child.kill();
    child.wait().unwrap();
    (
        ended,
        reader
            .join()
            .unwrap()
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect(),
    )
}

/// Groups the records among the lines by their task, in the form of its journal.
fn note(lines: Vec<Value>, root: &str, acknowledged: &mut HashMap<String, Vec<Value>>) {
    let passing = ["asking", "delta", "output", "waiting", "question"];
    for mut line in lines {
        if passing.contains(&line["kind"].as_str().unwrap()) {
            continue;
        }
        let task = line["task"].as_str().unwrap_or(root).to_owned();
        if line["kind"] != "started" {
            line.as_object_mut().unwrap().remove("task");
        }
        acknowledged.entry(task).or_default().push(line);
    }
}

#[test]
fn a_task_with_subtasks_survives_some_kills() {
    kill_families(4);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_task_with_subtasks_survives_many_kills() {
    kill_families(std::env::var("SABIR_KILLS").map_or(100, |count| count.parse().unwrap()));
}

/// Kills and resumes tasks with subtasks until this number of kills is reached.
fn kill_families(wanted: usize) {
    let (mut seed, mut figures) = (0x5ab1_0008_u64, Figures::default());
    while figures.kills < wanted {
        one_family(wanted, &mut seed, &mut figures);
    }
    let begun = Instant::now();
    let name = format!("sleep\u{0}{MARK}");
    while !processes_with(&name).is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "left behind: {:?}",
            processes_with(&name)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{figures:?}: nothing lost, nothing done twice, nothing left");
}

/// Runs a task that is killed until it has ended, or until there were enough kills.
fn one_family(wanted: usize, seed: &mut u64, figures: &mut Figures) {
    let world = World::new();
    let provider = world.provider(script());
    let options = ["--approve", "all", "--sandbox", "off", "--output", "events"];
    let mut acknowledged = HashMap::new();
    let mut root = None;
    for begun in 0.. {
        let mut command = world.sabir_with(&provider);
        match &root {
            None => command
                .args(["run", "--model", NATIVE.model(), "--subtasks"])
                .args(options)
                .arg("root"),
            Some(root) => command
                .args(["resume", "--subtasks"])
                .args(options)
                .arg(root),
        };
        // On a busy machine a task may be killed again and again before it has begun: in the end it
        // is left alone.
        let wait = if figures.kills < wanted && begun < 60 {
            60 + random(seed) % 500
        } else {
            120_000
        };
        let (ended, lines) = kill_after(command, Duration::from_millis(wait));
        figures.kills += usize::from(!ended);
        if root.is_none() && !lines.iter().any(|line| line["kind"] == "started") {
            // It was not acknowledged; there may be a journal or not.
            if ended || begun >= 60 {
                panic!("it does not begin: {lines:?}");
            }
            return;
        }
        let (id, _) = journals(&world);
        note(lines, &id, &mut acknowledged);
        root = Some(id);
        if ended {
            break;
        }
        assert!(begun < 61, "left alone for two minutes, it does not end");
    }
    check(&world, &acknowledged, figures);
}

fn check(world: &World, acknowledged: &HashMap<String, Vec<Value>>, figures: &mut Figures) {
    let (root, children) = journals(world);
    let mut interrupted = 0;
    for task in children.iter().chain([&root]) {
        let mut journal = log(world, task);
        for record in &mut journal {
            // Only the journal has these fields.
            record
                .as_object_mut()
                .unwrap()
                .retain(|name, _| name != "at" && name != "seal");
        }
        let told = acknowledged
            .get(task)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut rest = journal.iter();
        for record in told {
            assert!(
                rest.any(|kept| kept == record),
                "{task}: acknowledged and lost: {record}"
            );
        }
        figures.acknowledged += told.len();
        assert_eq!(
            journal.last().unwrap()["outcome"],
            "completed",
            "{task}: {:?}",
            journal.last()
        );
        let calls = journal
            .iter()
            .filter_map(|record| record["checks"].as_array())
            .map(Vec::len)
            .sum::<usize>();
        let results: Vec<_> = journal
            .iter()
            .filter(|record| record["kind"] == "result")
            .collect();
        assert_eq!(results.len(), calls, "{task}: each call has one result");
        assert!(
            results
                .iter()
                .all(|result| result["name"] != "new_task" || result["ending"] == "done"),
            "{results:?}"
        );
        interrupted += results
            .iter()
            .filter(|result| result["ending"] == "interrupted")
            .count();
    }
    figures.tasks += 1;
    figures.subtasks += children.len();
    assert_eq!(
        children.len(),
        4,
        "alpha, beta, gamma and delta, each once: {children:?}"
    );
    let text = world.read("log.txt");
    let mut lines: Vec<_> = text.lines().collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "done twice: {text}");
    assert!(
        count + interrupted >= 4 * STEPS,
        "{count} lines, {interrupted} interrupted: {text}"
    );
}
