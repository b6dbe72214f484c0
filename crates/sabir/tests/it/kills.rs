//! Tests `kill -9` at random moments of a task of twenty turns that uses every feature: it is resumed to its end, nothing is done
//! twice, nothing acknowledged is lost, no process is left. `.ci/slow-tests` kills more often, and `SABIR_KILLS` sets the
//! number.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use sabir_call::MessagePart;
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript};
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, processes_with, stderr, stdout, turn};

const TURNS: usize = 20;

type Calls = Vec<(&'static str, Value)>;
type Happening = (&'static str, fn(usize, &str) -> Calls);

/// The kinds of turns, repeated in a cycle: a name, and the calls of the turn with that number.
/// `mark` distinguishes the processes of tests. Every effect writes the number of its turn.
const HAPPENINGS: &[Happening] = &[
    ("a command", |n, _| {
        vec![command(format!(
            "echo {n} >> log.txt; sleep 0.01; echo ok {n}"
        ))]
    }),
    ("a new file", |n, _| {
        vec![(
            "write_to_file",
            json!({"path": format!("f{n}.txt"), "content": content(n)}),
        )]
    }),
    // A child that outlives its shell and ignores signals, so that something could be left behind.
    ("a deaf child", |n, mark| {
        vec![command(format!(
            "(trap '' TERM; exec sleep 7{mark}) & echo {n} >> log.txt; echo ok {n}"
        ))]
    }),
    ("a replacement", |n, _| {
        let diff = format!("------- SEARCH\nend\n=======\n{n}\nend\n+++++++ REPLACE");
        vec![(
            "replace_in_file",
            json!({"path": "edits.txt", "diff": diff}),
        )]
    }),
    ("a long read", |n, _| {
        vec![("read_file", json!({"path": notes(n, 0)}))]
    }),
    ("a patch", |n, _| {
        let patch = format!(
            "*** Begin Patch\n*** Update File: edits.txt\n@@\n-end\n+{n}\n+end\n*** End Patch"
        );
        vec![("apply_patch", json!({"patch": patch}))]
    }),
    ("a job", |n, mark| {
        let line = format!("echo {n} >> jobs.txt; sleep 7{mark}");
        vec![(
            "execute_command",
            json!({"command": line, "background": true}),
        )]
    }),
    ("a todo list", |n, _| {
        vec![(
            "update_todo_list",
            json!({"todos": format!("[x] Turn {n}\n[ ] The rest")}),
        )]
    }),
    ("a string", |n, _| {
        vec![(
            "edit_file",
            json!({"path": "edits.txt", "old_string": "end\n", "new_string": format!("{n}\nend\n")}),
        )]
    }),
    ("reads and a command at once", |n, _| {
        let read = |at| ("read_file", json!({"path": notes(n, at)}));
        vec![
            read(0),
            read(1),
            command(format!("echo {n} >> log.txt; echo ok {n}")),
        ]
    }),
];

/// A file that no other turn reads: what was seen is not sent twice, and would not fill the context.
fn notes(number: usize, at: usize) -> String {
    format!("notes_{number}_{at}.txt")
}

fn command(line: String) -> (&'static str, Value) {
    ("execute_command", json!({"command": line}))
}

fn content(number: usize) -> String {
    format!("{number}\n").repeat(200)
}

/// The number of the last turn that the history shows. Results before a compaction are not in it, the last ones always are.
fn last_turn(request: &ReceivedRequest) -> usize {
    let Some(Ok(incoming)) = &request.incoming else {
        return 0;
    };
    let parts = incoming
        .request
        .messages
        .iter()
        .flat_map(|message| &message.parts);
    let turns = parts.filter_map(|part| match part {
        MessagePart::Result(result) => result
            .id
            .as_str()
            .strip_prefix("call_")?
            .split('_')
            .next()?
            .parse()
            .ok(),
        _ => None,
    });
    turns.max().unwrap_or(0)
}

/// The model of such a task, which decides by the history, as a real model does.
pub(crate) fn script(way: Way, mark: &'static str) -> ReplyScript {
    ReplyScript::from_fn(move |_, request| -> ProviderReply {
        if request.body.to_string().contains("You summarise the work") {
            return ProviderReply::text(
                "Numbers were written to several files, each once. More are to come.",
            );
        }
        let number = last_turn(request) + 1;
        if number > TURNS {
            return way.reply(
                &turn("", vec![("attempt_completion", json!({"result": "done"}))]),
                number,
            );
        }
        let (_, calls) = HAPPENINGS[(number - 1) % HAPPENINGS.len()];
        way.reply(&turn("I go on.", calls(number, mark)), number)
    })
}

/// Creates the folder, and a configuration with a small context window.
pub(crate) fn world() -> World {
    let world = World::new();
    world.configure("context_window = 16000\ncompact_at = 60\n[completion]\nreview = false\n");
    for (number, at) in (1..=TURNS).flat_map(|number| [(number, 0), (number, 1)]) {
        world.write(
            &notes(number, at),
            &"a line of notes, long enough to matter\n".repeat(250),
        );
    }
    world.write("edits.txt", "end\n");
    world
}

/// A generator that needs no crate: good enough to choose moments.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The number of tasks and kills, and the findings.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    kills: usize,
    starts: usize,
    tasks: usize,
    acknowledged: usize,
    calls: usize,
    interrupted: usize,
    compacted: usize,
    said: usize,
    jobs: usize,
    pub(crate) doubled: usize,
}

/// The moment of a kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After so long.
    Time(Duration),
    /// Right after this line of output: an event that is printed before it is stored would show.
    Line(usize),
}

/// Starts the command, sends it a message, kills it at that moment, and returns the records that it had printed.
fn kill_at(mut command: Command, words: &str, moment: Moment) -> (bool, Vec<Value>) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (output, mut input) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let (sender, coming) = channel();
    std::thread::spawn(move || {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .all(|line| sender.send(line).is_ok())
    });
    let (begun, mut lines, mut said) = (Instant::now(), Vec::new(), false);
    let early = |lines: usize| match moment {
        Moment::Time(wait) => begun.elapsed() < wait,
        Moment::Line(last) => lines < last,
    };
    let ended = loop {
        if !early(lines.len()) {
            break false;
        }
        match coming.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break true,
        }
        if !said && (begun.elapsed() > Duration::from_millis(60) || lines.len() > 2) {
            said = true;
            // It may be over.
            _ = writeln!(input, "{}", json!({"kind": "message", "text": words}));
        }
    };
    if !ended {
        _ = child.kill();
    }
    child.wait().unwrap();
    lines.extend(coming);
    // The last line may have been torn by the kill; a whole one was on disk before it was printed.
    (
        ended,
        lines
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .collect(),
    )
}

/// Those events that are records.
pub(crate) fn durable(lines: &[Value]) -> Vec<Value> {
    let kinds = [
        "started", "answered", "judged", "running", "result", "said", "failed", "context", "ended",
    ];
    lines
        .iter()
        .filter(|value| kinds.contains(&value["kind"].as_str().unwrap()))
        .cloned()
        .collect()
}

#[test]
fn a_task_survives_kills_at_some_moments() {
    kill_and_resume(5);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_task_survives_kills_at_any_moment() {
    kill_and_resume(std::env::var("SABIR_KILLS").map_or(60, |count| count.parse().unwrap()));
}

/// Kills and resumes tasks until this number of kills is reached, and checks what each task left.
fn kill_and_resume(most: usize) {
    let (way, mark) = (WAYS[1], "31");
    let mut seed = 0x5ab1_2026_u64;
    let mut figures = Figures::default();
    let options = ["--approve", "all", "--output", "events", "--control"];
    while figures.kills < most {
        let world = world();
        let provider = world.provider(script(way, mark));
        let mut acknowledged: Vec<Value> = Vec::new();
        for attempt in 0.. {
            let mut command = world.sabir_with(&provider);
            if acknowledged.is_empty() {
                // Killed before it had begun, if not for the first time.
                _ = std::fs::remove_dir_all(world.home.path().join(".local/share/sabir/tasks"));
                command
                    .args(["run", "--model", way.model()])
                    .args(options)
                    .arg("twenty turns");
            } else {
                command.arg("resume").args(options).arg(world.only_task());
            }
            // On a busy machine a task may be killed again and again before it has begun: in the
            // end it is left alone.
            let moment = match random(&mut seed) {
                _ if figures.kills >= most || attempt >= 60 => {
                    Moment::Time(Duration::from_secs(120))
                }
                even if even % 2 == 0 => Moment::Time(Duration::from_millis(30 + even / 2 % 350)),
                odd => Moment::Line(1 + usize::try_from(odd / 2 % 40).unwrap()),
            };
            let (ended, lines) = kill_at(command, &format!("word {attempt}"), moment);
            acknowledged.extend(durable(&lines));
            figures.starts += 1;
            figures.kills += usize::from(!ended);
            if ended {
                break;
            }
            assert!(attempt < 60, "left alone, it does not end");
        }
        check(&world, &acknowledged, &mut figures);
    }
    let left = left_behind(mark);
    println!("{figures:?}, left behind: {}", left.len());
    assert_eq!((figures.doubled, left), (0, Vec::new()));
    assert!(
        figures.compacted > 0 || figures.kills < 60,
        "no task filled its context"
    );
}

/// Checks a task that was interrupted repeatedly and then completed: all acknowledged records exist, and each effect happened at most
/// once.
pub(crate) fn check(world: &World, acknowledged: &[Value], figures: &mut Figures) {
    let log = world
        .sabir()
        .args(["log", &world.only_task(), "--output", "events"])
        .output()
        .unwrap();
    assert_eq!(code(&log), 0, "{}", stderr(&log));
    let mut journal: Vec<Value> = stdout(&log)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for record in &mut journal {
        // Only the journal knows these.
        record
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "at" && name != "seal");
    }
    let mut rest = journal.iter();
    for record in acknowledged {
        assert!(
            rest.any(|kept| kept == record),
            "acknowledged and lost: {record}"
        );
    }
    assert_eq!(journal.last().unwrap()["outcome"], "completed");
    let results: Vec<&Value> = journal
        .iter()
        .filter(|record| record["kind"] == "result")
        .collect();
    // A completion that was killed before its result is interrupted, and requested once more.
    let calls = journal
        .iter()
        .filter_map(|record| record["checks"].as_array())
        .map(Vec::len)
        .sum::<usize>();
    assert_eq!(results.len(), calls, "each call has one result");
    assert!(results.len() > TURNS, "{} results", results.len());
    let count = |name: &str, value: &str| {
        journal
            .iter()
            .filter(|record| record[name] == value)
            .count()
    };
    figures.tasks += 1;
    figures.acknowledged += acknowledged.len();
    figures.calls += calls;
    figures.interrupted += count("ending", "interrupted");
    figures.compacted += count("change", "compacted");
    figures.said += count("by", "user");
    for name in ["log.txt", "edits.txt", "jobs.txt"] {
        let text = world.read(name);
        let lines: Vec<&str> = text.lines().filter(|line| *line != "end").collect();
        let different: BTreeSet<usize> = lines.iter().map(|line| line.parse().unwrap()).collect();
        figures.doubled += lines.len() - different.len();
        figures.jobs += if name == "jobs.txt" { lines.len() } else { 0 };
        // Every result `done` had its effect.
        for told in results
            .iter()
            .filter(|result| result["ending"] == "done" && name == "log.txt")
        {
            let content = told["content"].as_str().unwrap();
            let Some(number) = content.lines().find_map(|line| line.strip_prefix("ok ")) else {
                continue;
            };
            assert!(
                lines.contains(&number),
                "{number} is told and not done: {text}"
            );
        }
    }
    assert!(
        world.read("edits.txt").ends_with("end\n"),
        "half a file: {}",
        world.read("edits.txt")
    );
    for number in 1..=TURNS {
        let text = world.read(&format!("f{number}.txt"));
        assert!(text.is_empty() || text == content(number), "half a file");
    }
}

/// The processes with that mark, after those that are ending have ended.
pub(crate) fn left_behind(mark: &str) -> Vec<String> {
    let begun = Instant::now();
    let name = format!("sleep\u{0}7{mark}");
    loop {
        let left = processes_with(&name);
        if left.is_empty() || begun.elapsed() > Duration::from_secs(120) {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
