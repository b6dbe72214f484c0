//! Tests that everything a confined command starts ends with it, and that its sandbox is cleaned
//! up.

use std::time::Duration;

use sabir_workspace::{CommandExit, Sandbox, SandboxLevel};

use super::{Scene, Who, worlds};
use crate::Place;
use crate::commands::{block_on, command};
use crate::trees::{HIDERS, PATIENCE, alive, wait_for};

fn levels() -> Vec<SandboxLevel> {
    let mine = worlds().iter().filter(|(_, who)| *who == Who::Me);
    mine.map(|(level, _)| level.parse().unwrap()).collect()
}

/// Returns the temporary folders that a sandbox made for this place, and everything else that its
/// command left.
fn left(place: &Place) -> Vec<String> {
    let mut left = alive(place);
    let entries = std::fs::read_dir(place.root.path()).unwrap().flatten();
    left.extend(entries.map(|entry| entry.path().display().to_string()));
    left
}

#[track_caller]
fn check(
    end: CommandExit,
    set_up: impl Fn(sabir_workspace::ShellCommand) -> sabir_workspace::ShellCommand,
    text: &str,
) {
    for level in levels() {
        let place = Place::new();
        let command = set_up(command(text))
            .grace_period(Duration::from_millis(300))
            .sandbox(Sandbox::new(level));
        let start = std::time::Instant::now();
        let outcome = block_on(command.run(&place.workspace, |_, _| {})).unwrap();
        assert_eq!(
            (outcome.end, outcome.unkillable_processes),
            (end, 0),
            "level {level}: {}",
            outcome.output.text()
        );
        assert_eq!(left(&place), Vec::<String>::new(), "level {level}");
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn nothing_is_left_after_exit() {
    check(
        CommandExit::Exited(3),
        |command| command,
        &format!("{HIDERS} exit 3"),
    );
}

#[test]
fn nothing_is_left_after_a_time_out() {
    check(
        CommandExit::TimedOut,
        |command| command.timeout(Duration::from_secs(1)),
        &format!("{HIDERS} sleep 1000"),
    );
    let deaf = "trap '' TERM; while :; do sleep 0.1; done";
    check(
        CommandExit::TimedOut,
        |command| command.timeout(Duration::from_millis(300)),
        deaf,
    );
}

#[test]
fn nothing_is_left_after_a_cancellation() {
    let cancel = |command: sabir_workspace::ShellCommand| {
        command.cancel_when(async { tokio::time::sleep(Duration::from_secs(1)).await })
    };
    check(
        CommandExit::Cancelled,
        cancel,
        &format!("{HIDERS} sleep 1000"),
    );
}

#[test]
fn nothing_is_left_after_the_shell_was_killed() {
    check(
        CommandExit::Signaled(9),
        |command| command,
        &format!("{HIDERS} kill -KILL $$"),
    );
    check(
        CommandExit::Signaled(15),
        |command| command,
        "kill -TERM $$",
    );
}

#[test]
fn attacks_on_the_supervisor_fail() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let helper = scene.helper.display();
        // A tracer of the ended first process must not delay anything.
        let told = scene.run(level, &format!("'{helper}' try ptrace 1; '{helper}' try ptrace $PPID; kill -9 $PPID; kill -STOP $PPID; kill -9 1; exit 4"));
        assert_eq!(told.end, "Exited(4) 0", "level {level} as {who:?}: {told}");
    }
}

#[test]
fn nothing_is_left_after_too_much_memory() {
    let greedy = "head -c 300M /dev/zero | tail -c 300M | sleep 1000";
    for level in levels() {
        let place = Place::new();
        let sandbox = Sandbox::new(level).memory_mib(100);
        let outcome = block_on(
            command(greedy)
                .sandbox(sandbox)
                .run(&place.workspace, |_, _| {}),
        )
        .unwrap();
        assert_eq!(
            (outcome.end, outcome.unkillable_processes),
            (CommandExit::OutOfMemory(100), 0),
            "level {level}"
        );
        assert_eq!(left(&place), Vec::<String>::new(), "level {level}");
    }
}

#[test]
fn nothing_is_left_after_the_future_was_dropped() {
    for level in levels() {
        let place = Place::new();
        block_on(async {
            let text = format!("{HIDERS} touch ready; sleep 1000");
            let running = command(&text)
                .sandbox(Sandbox::new(level))
                .run(&place.workspace, |_, _| {});
            let ready = async {
                while !place.inner("ready").exists() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                _ = running => panic!("the command ended"),
                () = ready => {}
            }
        });
        std::fs::remove_file(place.inner("ready")).unwrap();
        wait_for("the end of all", || left(&place).is_empty());
    }
}

#[test]
fn nothing_is_left_after_kill_9_of_the_agent() {
    for &(level, who) in worlds() {
        for round in 0..4_u64 {
            let scene = Scene::new(who);
            std::fs::create_dir(scene.at("temporary")).unwrap();
            scene.give(&scene.at("temporary"));
            let shown = scene.at("out").into_os_string();
            let mut agent = scene.process(&["confined", level, "denied"]);
            agent
                .arg(scene.at("ws"))
                .arg("100000")
                .args([shown, "".into()])
                .arg(format!("{HIDERS} touch ready; sleep 1000"));
            let mut agent = agent.stdout(std::process::Stdio::null()).spawn().unwrap();
            // Also in the middle of building the sandbox.
            match round {
                0 => wait_for("the command", || scene.at("ws/ready").exists()),
                _ => std::thread::sleep(Duration::from_millis(round * 4)),
            }
            agent.kill().unwrap();
            agent.wait().unwrap();
            let _ = std::fs::remove_file(scene.at("ws/ready"));
            let ws = scene.at("ws").canonicalize().unwrap();
            let lives = || {
                let entries = std::fs::read_dir("/proc").unwrap().flatten();
                entries
                    .filter(|entry| {
                        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == ws)
                    })
                    .count()
            };
            let count = |name: &str| std::fs::read_dir(scene.at(name)).unwrap().count();
            wait_for("the end of all", || {
                lives() == 0 && count("ws") == 2 && (count("temporary") == 0 || round > 0)
            });
            // If it is killed before it had a supervisor, the folder is left to the next task.
            scene.run(level, "true");
            assert_eq!(
                count("temporary"),
                0,
                "level {level} as {who:?}, round {round}"
            );
        }
    }
}
