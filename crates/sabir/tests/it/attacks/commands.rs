//! Command lines of the policy's tables, called by a model: attacks have no effect, and harmless lines run.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::case_count::sampled_positions;
use crate::world::{WAYS, Way, World, code, events, stderr, turn};

use super::folders::{Case, Folders, cases, has, search};

/// The number of calls in one answer; more than a few hundred are not accepted.
const AT_ONCE: usize = 400;
const NAMES: [&str; 5] = ["plain", "hostile", "hostile2", "sub", "filter"];

/// Runs one task whose model makes all of these calls at once, and returns the ending of each.
pub(super) fn endings(
    world: &World,
    way: Way,
    folder: &Path,
    calls: Vec<Value>,
    flags: &[&str],
) -> (Output, Vec<String>) {
    let calls = calls
        .into_iter()
        .map(|arguments| ("execute_command", arguments))
        .collect();
    let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(way, &[turn("I will run these.", calls), done.clone(), done]);
    let folder = folder.to_str().unwrap();
    let given = ["-C", folder, "--output", "events", "--no-checkpoints"];
    let all: Vec<&str> = given
        .iter()
        .chain(flags)
        .copied()
        .chain(["do it"])
        .collect();
    let output = world.run(&provider, way, &all);
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    let results = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result" && event["name"] == "execute_command");
    let endings = results
        .map(|event| event["ending"].as_str().unwrap().to_owned())
        .collect();
    (output, endings)
}

/// Runs these attacks in every folder, and checks that each is denied and leaves no trace.
#[track_caller]
fn check(chosen: &[Case], way: Way, flags: &[&str], call: impl Fn(&str) -> Value) {
    let Some(folders) = Folders::new() else {
        return;
    };
    for name in NAMES {
        let lines: Vec<&str> = chosen
            .iter()
            .filter(|case| case.folder == name)
            .map(|case| case.line.as_str())
            .collect();
        for some in lines.chunks(AT_ONCE) {
            let calls = some.iter().map(|line| call(line)).collect();
            let (output, endings) =
                endings(&World::new(), way, &folders.project(name), calls, flags);
            // Six denials in a row end a task.
            if some.len() >= 6 {
                assert_ne!(code(&output), 0, "{}", stderr(&output));
            }
            assert_eq!(
                endings.len(),
                some.len(),
                "each call has a result: {}",
                stderr(&output)
            );
            let run: Vec<_> = some
                .iter()
                .zip(&endings)
                .filter(|(_, ending)| *ending != "denied")
                .collect();
            assert!(run.is_empty(), "{name} {flags:?}: {run:?}");
        }
    }
    assert!(
        folders.given_away().is_empty(),
        "{:?}",
        folders.given_away()
    );
}

fn attacks() -> Vec<Case> {
    cases(2)
        .into_iter()
        .filter(|case| !case.harmless && case.shell == "bash")
        .collect()
}

fn every(step: usize, from: Vec<Case>) -> Vec<Case> {
    from.into_iter().step_by(step).collect()
}

#[test]
fn attacks_have_no_effect_without_a_user() {
    check(
        &attacks(),
        WAYS[1],
        &[],
        |line| json!({"command": line, "timeout": 10}),
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn attacks_have_no_effect_in_other_protocols_or_settings() {
    let some = every(31, attacks());
    for way in [WAYS[0], WAYS[2], WAYS[3]] {
        check(&some, way, &[], |line| json!({"command": line}));
    }
    check(
        &some,
        WAYS[1],
        &["--approve", "edits"],
        |line| json!({"command": line, "terminal": true}),
    );
    check(
        &some,
        WAYS[1],
        &["--sandbox", "off"],
        |line| json!({"command": line, "background": true}),
    );
}

#[test]
fn harmless_commands_run() {
    let Some(folders) = Folders::new() else {
        return;
    };
    let harmless: Vec<String> = cases(1)
        .into_iter()
        .chain(every(9, cases(2)))
        .filter(|case| case.harmless)
        .map(|case| case.line)
        .collect();
    let lines: Vec<&String> = sampled_positions(0, harmless.len(), 1)
        .map(|at| &harmless[at])
        .collect();
    let calls = lines
        .iter()
        .map(|line| json!({"command": line, "timeout": 20}))
        .collect();
    let (output, endings) = endings(
        &World::new(),
        WAYS[1],
        &folders.project("plain"),
        calls,
        &[],
    );
    assert_eq!(endings.len(), lines.len(), "{}", stderr(&output));
    let denied: Vec<_> = lines
        .iter()
        .zip(&endings)
        .filter(|(_, ending)| *ending == "denied")
        .collect();
    assert!(denied.is_empty(), "{denied:?}");
    let done = endings.iter().filter(|ending| *ending == "done").count();
    assert!(
        done * 10 > lines.len() * 7,
        "only {done} of {} came to a good end: the folder is not as they expect",
        lines.len()
    );
    assert!(
        folders.given_away().is_empty(),
        "{:?}",
        folders.given_away()
    );
}

/// Irreversible commands are denied even if everything is approved.
#[test]
fn irreversible_commands_do_not_run() {
    let Some(folders) = Folders::new() else {
        return;
    };
    let project = folders.project("plain");
    let outside = project.parent().unwrap().join("outside");
    std::fs::write(&outside, "keep").unwrap();
    let lines = [
        "rm -rf .",
        "rm -rf .git",
        "rm -rf src/../.git",
        "rm *",
        "rm ../outside",
        "rm -rf ..",
        "bash -c 'rm -rf .git'",
        "sudo rm -rf src",
        "env rm -rf .GIT/../.git",
        "find . -delete",
        "find . -exec rm -rf {} +",
        "ls | xargs rm -rf",
        "for x in src; do rm -r $x; done",
        "(cd ..; rm -rf proj)",
        "git reset --hard",
        "git clean -fdx",
        "git push --force origin main",
        "git push origin +main",
        "git checkout .",
        "git branch -D main",
        "git update-ref -d refs/heads/main",
        "dd if=/dev/zero of=../outside count=1",
        "mv ../outside x",
        "chmod -R 000 .",
        "mkfs.ext4 /dev/null",
        "shred ../outside",
    ];
    let calls = lines
        .iter()
        .map(|line| json!({"command": line, "timeout": 10}))
        .collect();
    let (output, endings) = endings(
        &World::new(),
        WAYS[1],
        &project,
        calls,
        &["--approve", "all"],
    );
    assert_ne!(code(&output), 0);
    let run: Vec<_> = lines
        .iter()
        .zip(&endings)
        .filter(|(_, ending)| *ending != "denied")
        .collect();
    assert!(run.is_empty() && endings.len() == lines.len(), "{run:?}");
    for kept in [
        project.join("a.txt"),
        project.join(".git/HEAD"),
        project.join("src/main.rs"),
        outside,
    ] {
        assert!(kept.exists(), "{}", kept.display());
    }
}

/// Programs that some attacks need.
const PROGRAMS: [&str; 32] = [
    "zsh",
    "gcc",
    "cc",
    "node",
    "python3",
    "perl",
    "rg",
    "fdfind",
    "gawk",
    "zip",
    "make",
    "man",
    "vim",
    "vi",
    "view",
    "ex",
    "ed",
    "curl",
    "wget",
    "ssh",
    "scp",
    "openssl",
    "busybox",
    "strace",
    "sponge",
    "xxd",
    "bc",
    "cargo",
    "npm",
    "dash",
    "gdb",
    "ssh-keygen",
];
/// Parts of attacks that have an effect only at a terminal or with a server.
const ELSEWHERE: [&str; 5] = ["-p log", "man -P", "--hostname-bin", "/dev/tcp/", "evil.so"];

/// Each attack has its effect in a real shell: with a broken fixture every attack would look harmless.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn attacks_have_an_effect_in_a_real_shell() {
    let Some(folders) = Folders::new() else {
        return;
    };
    // Only a sample is run by default; `SABIR_CASES=all` runs all of them.
    let step = if std::env::var_os("SABIR_CASES").is_some_and(|value| value == "all") {
        1
    } else {
        23
    };
    let (mut tried, mut left_out, mut without) = (0, 0, Vec::new());
    for case in every(step, cases(2))
        .into_iter()
        .filter(|case| !case.harmless)
    {
        let words = || {
            case.line
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        };
        let missing = PROGRAMS.iter().find(|name| {
            (words().any(|word| word == **name) || case.shell == **name) && !has(name)
        });
        if missing.is_some()
            || ELSEWHERE.iter().any(|part| case.line.contains(part))
            || case.line.contains("-P 'touch")
        {
            eprintln!(
                "skipped: {:?} needs {}",
                case.line,
                missing.unwrap_or(&"a terminal or a server")
            );
            left_out += 1;
            continue;
        }
        tried += 1;
        let copy = TempDir::new_in(sabir_testkit::find_temp_base()).unwrap();
        let from = folders.project(&case.folder);
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&from)
            .arg(copy.path())
            .status()
            .unwrap();
        assert!(copied.success());
        let script = "command -v timeout >/dev/null && exec timeout 30 \"$0\" -c \"$1\"; exec \"$0\" -c \"$1\"";
        let ran = Command::new("sh")
            .args(["-c", script, &case.shell, &case.line])
            .current_dir(copy.path().join("proj"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut found = Vec::new();
        search(copy.path(), &mut found);
        if found.is_empty() {
            without.push(format!(
                "{:?}: {}",
                case.line,
                String::from_utf8_lossy(&ran.stderr)
            ));
        }
    }
    if left_out > 0 {
        crate::world::skipped(&format!(
            "{left_out} attacks of {} need programs that are not here",
            left_out + tried
        ));
    }
    assert!(
        without.len() * 20 <= tried,
        "{} of {tried} without effect:\n{}",
        without.len(),
        without.join("\n")
    );
}
