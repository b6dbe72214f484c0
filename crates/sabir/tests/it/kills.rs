//! `kill -9` at random moments of a task of twenty turns: it is resumed to its end, nothing is done twice, nothing that was
//! acknowledged is lost, no process is left.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sabir_call::Part;
use sabir_testkit::{Recorded, Reply, Script};
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, processes_with, stderr, stdout, turn};

const TURNS: usize = 20;
const KILLS: usize = 200;

/// How many results the history holds: the turn to play.
fn results(request: &Recorded) -> usize {
    let Some(Ok(incoming)) = &request.incoming else { return 0 };
    let parts = incoming.request.messages.iter().flat_map(|message| &message.parts);
    parts.filter(|part| matches!(part, Part::Result(_))).count()
}

fn script(way: Way, mark: &'static str) -> Script {
    Script::by(move |_, request| -> Reply {
        let done = results(request);
        if done >= TURNS {
            return way.reply(&turn("", vec![("attempt_completion", json!({"result": "done"}))]), done + 1);
        }
        let call = if done % 4 == 3 {
            ("write_to_file", json!({"path": format!("f{done}.txt"), "content": format!("{done}\n").repeat(200)}))
        } else {
            // A child that outlives its shell, deaf to polite requests, so that something could be left behind.
            let deaf =
                if done.is_multiple_of(5) { format!("(trap '' TERM; exec sleep 7{mark}) & ") } else { String::new() };
            ("execute_command", json!({"command": format!("{deaf}echo {done} >> log.txt; sleep 0.01; echo ok {done}")}))
        };
        way.reply(&turn("", vec![call]), done + 1)
    })
}

/// A generator that needs no crate: good enough to choose moments.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Starts the command, kills it after a while, and returns the records that it had acknowledged on its output.
fn kill_after(mut command: Command, wait: Duration) -> (bool, Vec<String>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).collect::<Vec<_>>());
    let begun = Instant::now();
    let mut ended = false;
    while begun.elapsed() < wait {
        if child.try_wait().unwrap().is_some() {
            ended = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    child.wait().unwrap();
    let lines = reader.join().unwrap();
    // The last line may have been torn by the kill; a whole one was on disk before it was printed.
    (ended, lines.into_iter().filter(|line| serde_json::from_str::<Value>(line).is_ok()).collect())
}

fn durable(lines: &[String]) -> Vec<Value> {
    let kinds = ["started", "answered", "judged", "running", "result", "said", "failed", "ended"];
    let values = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    values.filter(|value| kinds.contains(&value["kind"].as_str().unwrap())).collect()
}

#[test]
fn two_hundred_kills() {
    let way = WAYS[1];
    let mark = "31";
    let mut seed = 0x5ab1_2026_u64;
    let mut kills = 0;
    while kills < KILLS {
        let world = World::new();
        let provider = world.provider(script(way, mark));
        let mut command = world.sabir_with(&provider);
        command.args(["run", "--model", way.model(), "--approve", "all", "--output", "events", "twenty turns"]);
        let mut acknowledged = Vec::new();
        let (mut ended, lines) = kill_after(command, Duration::from_millis(30 + random(&mut seed) % 400));
        acknowledged.extend(durable(&lines));
        kills += usize::from(!ended);
        if acknowledged.is_empty() {
            continue;
        }
        let id = world.only_task();
        for resumed in 0.. {
            if ended {
                break;
            }
            let mut command = world.sabir_with(&provider);
            command.args(["resume", "--approve", "all", "--output", "events", &id]);
            // On a busy machine a task may be killed again and again before it has begun: in the end it is left alone.
            let wait = if kills < KILLS && resumed < 60 { 30 + random(&mut seed) % 400 } else { 60_000 };
            let (over, lines) = kill_after(command, Duration::from_millis(wait));
            acknowledged.extend(durable(&lines));
            kills += usize::from(!over);
            ended = over;
            assert!(ended || resumed < 60, "left alone for a minute, it does not end");
        }
        check(&world, &id, &acknowledged);
    }
    assert_gone(mark);
}

fn check(world: &World, id: &str, acknowledged: &[Value]) {
    let log = world.sabir().args(["log", id, "--output", "events"]).output().unwrap();
    assert_eq!(code(&log), 0, "{}", stderr(&log));
    let mut journal: Vec<Value> = stdout(&log).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &mut journal {
        // Only the journal knows these.
        record.as_object_mut().unwrap().retain(|name, _| name != "at" && name != "seal");
    }
    let mut rest = journal.iter();
    for record in acknowledged {
        assert!(rest.any(|kept| kept == record), "acknowledged and lost: {record}");
    }
    assert_eq!(journal.last().unwrap()["outcome"], "completed");
    let lines = world.read("log.txt");
    let mut numbers: Vec<u32> = lines.lines().map(|line| line.parse().unwrap()).collect();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "done twice: {lines}");
    assert!(numbers.is_sorted(), "{lines}");
    // A completion that was killed before its result is interrupted, and asked for once more.
    let calls = journal.iter().filter_map(|record| record["checks"].as_array()).map(Vec::len).sum::<usize>();
    let results = journal.iter().filter(|record| record["kind"] == "result").count();
    assert_eq!(results, calls, "each call has one result");
    assert!(results > TURNS, "{results} results");
    for number in (3..TURNS).step_by(4) {
        let text = world.read(&format!("f{number}.txt"));
        assert!(text.is_empty() || text == format!("{number}\n").repeat(200), "half a file");
    }
}

fn assert_gone(mark: &str) {
    let begun = Instant::now();
    let name = format!("sleep\u{0}7{mark}");
    while !processes_with(&name).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "left behind: {:?}", processes_with(&name));
        std::thread::sleep(Duration::from_millis(50));
    }
}
