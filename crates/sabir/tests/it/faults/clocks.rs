//! Tests clocks that are wrong, jump, or are in another time zone.

use std::process::{Command, Output};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::Value;
use serde_json::json;

use super::preload;
use crate::world::{Turn, WAYS, Way, World, code, events, skipped, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const RUN: [&str; 8] = [
    "--model",
    "openai/scripted",
    "--sandbox",
    "off",
    "--approve",
    "all",
    "--output",
    "events",
];
const DAY: i64 = 86_400;

fn run(command: &str) -> Turn {
    turn(
        "",
        vec![(
            "execute_command",
            json!({"command": command, "timeout": 30}),
        )],
    )
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// Returns the times in the journal of the only task, in the order of its records, in seconds.
fn moments(world: &World) -> Vec<u64> {
    let log = world
        .sabir()
        .args(["log", "--output", "events", &world.only_task()])
        .output()
        .unwrap();
    let text = stdout(&log);
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .map(|record| record["at"].as_u64().unwrap() / 1000)
        .collect()
}

fn check_completed(world: &World, output: &Output, what: &str) {
    assert_eq!(code(output), 0, "{what}: {}", stderr(output));
    let all = events(output);
    let results = all
        .iter()
        .filter(|event| event["kind"] == "result" && event["ending"] == "done")
        .count();
    assert_eq!(results, 3, "{what}: {all:?}");
    assert_eq!(world.read("log.txt"), "a\nb\n", "{what}");
    // Listings and logs work as well, whatever the clock shows then.
    for arguments in [&["log"][..], &["tasks"], &["checkpoints"]] {
        let id = world.only_task();
        let more: &[&str] = if arguments == ["log"] { &[&id] } else { &[] };
        let told = world.sabir().args(arguments).args(more).output().unwrap();
        assert_eq!(code(&told), 0, "{what}: {arguments:?}: {}", stderr(&told));
        assert!(
            !stdout(&told).contains("-1 ") && !stderr(&told).contains("panicked"),
            "{what}: {}",
            stdout(&told)
        );
    }
}

/// A day ahead, a day behind, at the beginning of time, before it; and a jump to there in the middle of a command.
#[test]
fn the_wall_clock_may_show_any_time() {
    let Some(library) = preload::library() else {
        return;
    };
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    for offset in [DAY, -DAY, -now, -now - DAY, DAY * 365 * 200] {
        for jump in [false, true] {
            let world = World::new();
            let wall = world.home.path().join("wall");
            let set = format!("echo a >> log.txt; echo {offset} > {}", wall.display());
            if !jump {
                std::fs::write(&wall, offset.to_string()).unwrap();
            }
            let provider = world.plays(NATIVE, &[run(&set), run("echo b >> log.txt"), done()]);
            let mut command = world.sabir_with(&provider);
            let wishes = [("FAULTS_WALL", wall.to_str().unwrap())];
            let output = preload::with(&mut command, library, &wishes)
                .arg("run")
                .args(RUN)
                .arg("x")
                .output()
                .unwrap();
            let what = format!("{offset} seconds off, in the middle: {jump}");
            check_completed(&world, &output, &what);
            let (first, last) = (moments(&world)[0], *moments(&world).last().unwrap());
            let (before, after) = (
                u64::try_from(now + offset).unwrap_or(0),
                u64::try_from(now).unwrap(),
            );
            assert!(
                last.abs_diff(before) < 3600,
                "{what}: the last record says {last}"
            );
            assert!(
                !jump || first.abs_diff(after) < 3600,
                "{what}: the first record says {first}"
            );
            let undone = world
                .sabir()
                // Without a sandbox nothing tells the command's changes from those of others.
                .args(["undo", "--yes", "--force", &world.only_task(), "1"])
                .output()
                .unwrap();
            assert!(
                code(&undone) == 0 && world.read("log.txt") == "a\n",
                "{what}: {}",
                stderr(&undone)
            );
        }
    }
}

/// The clock of all deadlines jumps by a day while the model is asked and while a command runs: one answer may be lost and is
/// requested again, and nothing runs twice.
#[test]
fn the_monotonic_clock_may_jump() {
    let Some(library) = preload::library() else {
        return;
    };
    let world = World::new();
    let steady = world.home.path().join("steady");
    let jump = steady.clone();
    let provider = world.provider(ReplyScript::from_fn(move |asked, request| {
        let results = request.body["messages"]
            .to_string()
            .matches("\"role\":\"tool\"")
            .count();
        match (asked, results) {
            (0, _) => {
                std::fs::write(&jump, DAY.to_string()).unwrap();
                ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
            }
            (_, 0) => NATIVE.reply(&run("echo a >> log.txt"), 1),
            (_, 1) => NATIVE.reply(&run("echo b >> log.txt"), 2),
            _ => NATIVE.reply(&done(), 3),
        }
    }));
    let mut command = world.sabir_with(&provider);
    let wishes = [("FAULTS_STEADY", steady.to_str().unwrap())];
    // Something has to wake it: on a real machine that is the end of its sleep.
    let child = preload::with(&mut command, library, &wishes)
        .arg("run")
        .args(RUN)
        .arg("x")
        .spawn()
        .unwrap();
    while provider.received_requests().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for signal in ["-STOP", "-CONT"] {
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }
    let output = child.wait_with_output().unwrap();
    check_completed(&world, &output, "a day later");
    assert_eq!(
        provider.received_requests().len(),
        4,
        "one more than the turns"
    );
}

/// A machine that has been up for a day more, or for no time at all.
#[test]
fn the_monotonic_clock_may_start_anywhere() {
    for days in ["1", "1000"] {
        let world = World::new();
        let provider = world.plays(
            NATIVE,
            &[run("echo a >> log.txt"), run("echo b >> log.txt"), done()],
        );
        let seconds = (days.parse::<i64>().unwrap() * DAY).to_string();
        let ways = [
            &["--user", "--map-root-user", "--time", "--monotonic"][..],
            &["--time", "--monotonic"],
        ];
        let able = |how: &&&[&str]| {
            let tried = Command::new("unshare")
                .args(**how)
                .args([&seconds, "true"])
                .output();
            tried.is_ok_and(|output| output.status.success())
        };
        let Some(how) = ways.iter().find(able) else {
            return skipped("no clock of a namespace's own on this machine");
        };
        let plain = world.sabir_with(&provider);
        let mut command = Command::new("unshare");
        command.env_clear().envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command.current_dir(world.work.path()).args(*how).args([
            &seconds,
            env!("CARGO_BIN_EXE_sabir"),
            "run",
        ]);
        let output = command.args(RUN).arg("x").output().unwrap();
        check_completed(&world, &output, &format!("{days} days up"));
    }
}

/// Times are UTC in the order of the records, in every time zone.
#[test]
fn time_zones_change_nothing() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[run("echo a >> log.txt"), run("echo b >> log.txt"), done()],
    );
    let zones = [
        "UTC",
        "Pacific/Apia",
        "Europe/Berlin",
        "right/UTC",
        "EST5EDT,M3.2.0,M11.1.0",
        "nonsense",
        "",
    ];
    let mut command = world.sabir_with(&provider);
    let output = command
        .env("TZ", "Pacific/Apia")
        .arg("run")
        .args(RUN)
        .arg("x")
        .output()
        .unwrap();
    check_completed(&world, &output, "in Apia");
    assert!(moments(&world).is_sorted());
    let id = world.only_task();
    for arguments in [
        &["log", &id][..],
        &["tasks"],
        &["checkpoints"],
        &["export", &id],
    ] {
        let told = |zone: &str| {
            let output = world
                .sabir()
                .env("TZ", zone)
                .args(arguments)
                .output()
                .unwrap();
            assert_eq!(code(&output), 0, "{zone}: {}", stderr(&output));
            stdout(&output)
        };
        let expected = told("UTC");
        assert!(!expected.is_empty());
        for zone in zones {
            assert_eq!(told(zone), expected, "{zone}: {arguments:?}");
        }
    }
}
