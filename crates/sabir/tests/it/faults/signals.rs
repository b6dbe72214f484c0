//! Tests signals at random moments, twice, to a stopped process, from a closed terminal; and readers that leave, sleep or never read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::{Value, json};

use super::preload;
use crate::kills::{self, Figures, left_behind, random, script};
use crate::world::{Turn, WAYS, Way, World, code, processes_with, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const PATIENCE: Duration = Duration::from_secs(60);

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn run(command: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": command}))])
}

fn send(signal: &str, child: &Child) {
    assert!(
        Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[track_caller]
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end, with a limit that only a hang exceeds.
#[track_caller]
fn end_of(child: &mut Child) -> Option<i32> {
    wait_for("the end of the process", || {
        child.try_wait().unwrap().is_some()
    });
    child.wait().unwrap().code()
}

fn task<'a>(command: &'a mut Command, more: &[&str]) -> &'a mut Command {
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--approve",
        "all",
        "--sandbox",
        "off",
        "--output",
        "events",
    ]);
    command.args(more).arg("go")
}

/// Starts the command, and reads what it prints. `waits`: until its first line is there.
fn begin(mut command: Command, waits: bool) -> (Child, JoinHandle<Vec<String>>) {
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    if waits {
        output.read_line(&mut first).unwrap();
    }
    let reader = std::thread::spawn(move || {
        let rest = output.lines().map_while(Result::ok);
        (!first.is_empty())
            .then_some(first)
            .into_iter()
            .chain(rest)
            .collect()
    });
    (child, reader)
}

#[test]
fn interrupts_at_some_moments_leave_no_process() {
    interrupt_and_resume(6);
}

/// `SABIR_SIGNALS` sets the number.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn interrupts_at_any_moment_leave_no_process() {
    interrupt_and_resume(
        std::env::var("SABIR_SIGNALS").map_or(100, |count| count.parse().unwrap()),
    );
}

/// Sends this many signals. Each ends its task: code 130, an `ended` record, no process left, and the task can be resumed.
fn interrupt_and_resume(most: usize) {
    let (way, mark) = (WAYS[1], "32");
    let mut seed = 0x51a1_2026_u64;
    let (mut sent, mut met, mut before, mut figures) = (0, 0, 0, Figures::default());
    while sent < most {
        let world = kills::world();
        let provider = world.provider(script(way, mark));
        let (mut acknowledged, mut over, mut begun) = (Vec::new(), false, false);
        while !over {
            let mut command = world.sabir_with(&provider);
            if begun {
                command.args([
                    "resume",
                    "--approve",
                    "all",
                    "--output",
                    "events",
                    &world.only_task(),
                ]);
            } else {
                command.args([
                    "run",
                    "--model",
                    way.model(),
                    "--approve",
                    "all",
                    "--output",
                    "events",
                    "work",
                ]);
            }
            // Most of them while it works, some while it begins.
            let (mut child, reader) = begin(command, sent % 8 != 0);
            if sent < most {
                std::thread::sleep(Duration::from_millis(random(&mut seed) % 250));
                if child.try_wait().unwrap().is_none() {
                    send(["-INT", "-TERM"][sent % 2], &child);
                    sent += 1;
                }
            }
            let code = child.wait().unwrap().code();
            let lines: Vec<Value> = reader
                .join()
                .unwrap()
                .iter()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let Some(last) = lines.last() else {
                // Before a handler was installed: the signal's default effect.
                assert!(code.is_none(), "{code:?}");
                before += 1;
                if !begun {
                    _ = std::fs::remove_dir_all(world.home.path().join(".local/share/sabir/tasks"));
                }
                continue;
            };
            begun = true;
            match code {
                Some(0) => over = true,
                Some(130) => {
                    met += 1;
                    assert_eq!(
                        (&last["kind"], &last["outcome"]),
                        (&json!("ended"), &json!("cancelled")),
                        "{last}"
                    );
                }
                // The signal came before it was listened for.
                None => before += 1,
                other => panic!("{other:?}: {last}"),
            }
            acknowledged.extend(kills::durable(&lines));
        }
        kills::check(&world, &acknowledged, &mut figures);
    }
    let left = left_behind(mark);
    println!(
        "{sent} signals: {met} ended with 130, {before} came before anybody listened; {figures:?}"
    );
    // Most are sent after the first event, when the task has its handler.
    assert!(met * 2 > sent, "{met} of {sent}");
    assert_eq!((figures.doubled, left), (0, Vec::new()));
}

/// The first one is being handled, and something does not end: the second one ends the process at once.
#[test]
fn a_second_interrupt_ends_at_once() {
    let Some(library) = preload::library() else {
        return;
    };
    let world = World::new();
    let slow = world.home.path().join("slow");
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
    }));
    let mut command = world.sabir_with(&provider);
    let wishes = [("FAULTS_SLOW", slow.to_str().unwrap())];
    let mut child = preload::with(task(&mut command, &["--no-checkpoints"]), library, &wishes)
        .spawn()
        .unwrap();
    wait_for("the request", || !provider.received_requests().is_empty());
    // From now on the disk is so slow that storing the end of the task takes two hours.
    std::fs::write(&slow, "3600000").unwrap();
    send("-INT", &child);
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the end is kept first");
    let begun = Instant::now();
    send("-INT", &child);
    assert_eq!(end_of(&mut child), Some(130));
    println!("{:?} from the second interrupt to the end", begun.elapsed());
    let provider = world.plays(NATIVE, &[done()]);
    let id = world.only_task();
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text", &id])
        .output()
        .unwrap();
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
}

/// Stopped in the middle of an answer for longer than every deadline: one answer may be lost, no more.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_stopped_process_continues_without_many_retries() {
    let Some(library) = preload::library() else {
        return;
    };
    for hours in [false, true] {
        let world = World::new();
        let provider = world.provider(ReplyScript::from_fn(|asked, request| {
            if request.body["messages"]
                .to_string()
                .contains("\"role\":\"tool\"")
            {
                return NATIVE.reply(&done(), asked + 1);
            }
            let slow = ProviderReply::text("Slowly. ".repeat(40))
                .in_deltas(8)
                .in_chunks(ChunkSplit::Size(60));
            ProviderReply {
                pause: 20,
                ..slow.with_call(
                    "c",
                    "execute_command",
                    json!({"command": "echo x >> log.txt"}),
                )
            }
        }));
        let steady = world.home.path().join("steady");
        let mut command = world.sabir_with(&provider);
        let wishes = [("FAULTS_STEADY", steady.to_str().unwrap())];
        let mut child = preload::with(task(&mut command, &[]), library, &wishes)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut seen = vec![lines.find(|line| line.contains("\"delta\"")).unwrap()];
        send("-STOP", &child);
        std::thread::sleep(Duration::from_millis(700));
        if hours {
            std::fs::write(&steady, "36000").unwrap();
        }
        send("-CONT", &child);
        seen.extend(lines);
        assert_eq!(end_of(&mut child), Some(0), "{seen:?}");
        assert_eq!(world.read("log.txt"), "x\n", "it runs once");
        let failed = seen
            .iter()
            .filter(|line| line.contains("\"kind\":\"failed\""))
            .count();
        assert!(
            failed <= usize::from(hours),
            "{failed} answers lost: {seen:?}"
        );
        assert!(
            provider.received_requests().len() <= 3,
            "{} requests",
            provider.received_requests().len()
        );
    }
}

/// `sabir … | head -1`: the reader has gone, which is not an error, and the task does its work.
#[test]
fn a_reader_that_stops_does_not_stop_the_task() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "I say much. ",
                vec![(
                    "execute_command",
                    json!({"command": "seq 20000; touch made"}),
                )],
            ),
            done(),
        ],
    );
    let mut command = world.sabir_with(&provider);
    let mut child = task(&mut command, &[]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(end_of(&mut child), Some(0), "{said}");
    assert!(
        first.contains("started") && world.work.path().join("made").exists(),
        "{first}"
    );
    assert!(
        !said.contains("panicked") && !said.contains("roken pipe"),
        "{said}"
    );
    let id = world.only_task();
    for arguments in [
        &["log", &id][..],
        &["log", "--output", "events", &id],
        &["tasks"],
        &["export", &id],
    ] {
        let mut child = world.sabir().args(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(
            (end_of(&mut child), said.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

/// More output than a pipe holds, with a slow reader: all of it arrives, including the end.
#[test]
fn a_slow_reader_gets_all_output() {
    let world = World::new();
    let words = "All of this is to be read. ".repeat(12_000);
    let text = words.clone();
    let provider = world.provider(ReplyScript::from_fn(move |asked, _| match asked {
        0 => ProviderReply::text(text.clone()).in_deltas(400).with_call(
            "c",
            "execute_command",
            json!({"command": "echo x"}),
        ),
        _ => NATIVE.reply(&done(), 2),
    }));
    let mut command = world.sabir_with(&provider);
    let mut child = task(&mut command, &[])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    // The pipe is full by now, so the writer waits.
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for its reader"
    );
    while let Ok(count @ 1..) = output.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(end_of(&mut child), Some(0));
    let events: Vec<Value> = String::from_utf8(all)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.last().unwrap()["outcome"], "completed");
    let said: String = events
        .iter()
        .filter(|event| event["event"] == "text")
        .filter_map(|event| event["text"].as_str())
        .collect();
    assert_eq!(said.len(), words.len());
}

/// Standard input is open and silent.
#[test]
fn an_open_standard_input_is_not_waited_for() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[run("cat; echo x > log.txt"), done()]);
    let mut command = world.sabir_with(&provider);
    let mut child = task(&mut command, &[])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    assert_eq!(
        (end_of(&mut child), world.read("log.txt").as_str()),
        (Some(0), "x\n")
    );
    drop(open);
}

/// A task at its own terminal: our side of it, and the process.
fn seat(world: &World, provider: &ScriptedProvider) -> (File, Child) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let mut command = world.sabir_with(provider);
    command.args([
        "--sandbox",
        "off",
        "--approve",
        "all",
        "--model",
        NATIVE.model(),
        "do",
        "it",
    ]);
    // `setsid -c` makes the terminal the controlling one, so that its end is a SIGHUP.
    let mut leader = Command::new("setsid");
    leader.env_clear().envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    leader
        .current_dir(world.work.path())
        .args(["-c", env!("CARGO_BIN_EXE_sabir")])
        .args(command.get_args());
    let child = leader
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    (File::from(ours), child)
}

#[test]
fn a_closed_terminal_ends_the_task_and_its_commands() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[run(
            "(trap '' HUP TERM; exec sleep 7433) & touch ready; sleep 7433",
        )],
    );
    let (ours, mut child) = seat(&world, &provider);
    wait_for("the command", || world.work.path().join("ready").exists());
    drop(ours);
    let code = end_of(&mut child);
    assert_eq!(code, Some(130), "{code:?}");
    wait_for("the end of what it ran", || {
        processes_with("sleep\u{0}7433").is_empty()
    });
    let log = world
        .sabir()
        .args(["log", "--output", "events", &world.only_task()])
        .output()
        .unwrap();
    let last: Value = serde_json::from_str(stdout(&log).lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["kind"], &last["outcome"]),
        (&json!("ended"), &json!("cancelled"))
    );
}

/// A thousand changes to windows of every size, while a task works and gets answers.
#[test]
fn the_window_size_may_change_at_any_time() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|asked, _| match asked {
        0 => {
            let words = ProviderReply::text("Words that fill lines. ".repeat(50))
                .in_deltas(20)
                .in_chunks(ChunkSplit::Size(120));
            ProviderReply {
                pause: 5,
                ..words.with_call("c", "execute_command", json!({"command": "seq 200"}))
            }
        }
        _ => NATIVE.reply(&done(), 2),
    }));
    let (ours, mut child) = seat(&world, &provider);
    let mut screen = ours.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if seen.contains("what is missing: ") {
                break;
            }
        }
        seen
    });
    for nth in 0..1000_u16 {
        let (ws_col, ws_row) =
            [(1, 1), (0, 0), (80, 24), (nth, nth), (65_535, 65_535)][usize::from(nth) % 5];
        tcsetwinsize(
            ours.as_fd(),
            Winsize {
                ws_row,
                ws_col,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
    }
    let seen = reader.join().unwrap();
    assert!(
        seen.contains("Words that fill lines.") && !seen.contains("panicked"),
        "{seen}"
    );
    let mut keys = ours;
    std::thread::sleep(Duration::from_millis(400));
    keys.write_all(b"y\n").unwrap();
    // The session stays open after the completion, and what is typed next waits for its prompt.
    keys.write_all(b"/quit\n").unwrap();
    assert_eq!(end_of(&mut child), Some(0), "{seen}");
}
