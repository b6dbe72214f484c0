//! Tests `trust`: a repository may make git run exactly the programs that the user has reviewed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::{World, code, stderr, stdout};

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=n", "-c", "user.email=e"])
        .args(arguments)
        .current_dir(folder);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
}

/// A repository whose configuration runs a script of its own.
fn hostile(world: &World, name: &str) -> std::path::PathBuf {
    let folder = world.work.path().join(name);
    fs::create_dir_all(&folder).unwrap();
    git(&folder, &["init", "-q", "-b", "main"]);
    fs::write(folder.join("monitor.sh"), "#!/bin/sh\n").unwrap();
    git(
        &folder,
        &["config", "core.fsmonitor", "./monitor.sh --fast"],
    );
    folder
}

/// Returns the verdict for git commands in a folder, and its reason.
fn policy_verdict(world: &World, folder: &Path) -> (String, String) {
    let explain = ["policy", "explain", "--output", "json", "--", "git status"];
    let output = world
        .sabir()
        .args(explain)
        .current_dir(folder)
        .output()
        .unwrap();
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    (text("verdict"), text("reason"))
}

#[track_caller]
fn check(world: &World, folder: &Path, verdict: &str, said: &str) {
    let (found, reason) = policy_verdict(world, folder);
    assert_eq!(found, verdict, "{reason}");
    assert!(reason.contains(said), "{reason}");
}

#[track_caller]
fn trust(world: &World, folder: &Path, flags: &[&str], expected: i32) -> String {
    let output = world
        .sabir()
        .arg("trust")
        .args(flags)
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(code(&output), expected, "{}", stderr(&output));
    stdout(&output) + &stderr(&output)
}

/// A relative folder in `PATH` would let the repository bring its own `git`, whatever of its configuration is trusted.
#[test]
fn trust_does_not_reach_beyond_the_search_path() {
    let world = World::new();
    let folder = hostile(&world, "w");
    let path = format!(".:{}", std::env::var("PATH").unwrap());
    let run = |arguments: &[&str]| {
        let mut command = world.sabir();
        command.args(arguments).env("PATH", &path);
        command.current_dir(&folder).output().unwrap()
    };
    let trusted = run(&["trust", "--yes"]);
    assert_eq!(code(&trusted), 0, "{}", stderr(&trusted));
    assert!(
        stderr(&trusted).contains("every command asks here, trusted or not"),
        "{}",
        stderr(&trusted)
    );
    let explained = run(&["policy", "explain", "--", "git status"]);
    assert!(
        stdout(&explained).contains("search path"),
        "{}",
        stdout(&explained)
    );
    check(&world, &folder, "allow", "");
}

/// The programs of an activated virtual environment ask by their own names, and the system's are checked as ever.
#[test]
fn an_activated_environment_in_the_folder_hides_no_program() {
    let world = World::new();
    let folder = hostile(&world, "w");
    let programs = folder.join(".venv/bin");
    std::fs::create_dir_all(&programs).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let verdict = |line: &str| {
        let mut command = world.sabir();
        command
            .args(["policy", "explain", "--output", "json", "--", line])
            .env("PATH", &path)
            .env("VIRTUAL_ENV", folder.join(".venv"))
            .current_dir(&folder);
        let output = command.output().unwrap();
        let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
        format!("{}: {}", value["verdict"], value["reason"])
    };
    for name in ["python", "python3", "pip", "pytest", "activate"] {
        std::fs::write(programs.join(name), "#!/bin/sh\n").unwrap();
    }
    for line in [
        "ls",
        "cat README.md | head -3",
        "wc -l *.rs",
        "git --version",
    ] {
        let found = verdict(line);
        assert!(found.starts_with("\"allow\""), "{line}: {found}");
    }
    for line in [
        "pytest --version",
        "pip list",
        "python3 --version",
        "ls && pytest",
    ] {
        let found = verdict(line);
        assert!(found.starts_with("\"ask\""), "{line}: {found}");
        assert!(
            found.contains("is a program of the workspace"),
            "{line}: {found}"
        );
    }
    // So do those that start one of them, behind whatever they are.
    for line in [
        "find . -name README.md -exec pytest {} +",
        "timeout 5 python3 --version",
        "env -i pip list",
        "gcloud --version",
    ] {
        let found = verdict(line);
        assert!(found.starts_with("\"ask\""), "{line}: {found}");
    }
    std::fs::write(programs.join("cat"), "#!/bin/sh\n").unwrap();
    assert!(verdict("ls").contains("search path"), "{}", verdict("ls"));
}

/// TOC-005
#[test]
fn trust_covers_exactly_the_shown_programs() {
    let world = World::new();
    let folder = hostile(&world, "w");
    check(&world, &folder, "ask", "core.fsmonitor); `sabir trust`");
    let shown = trust(&world, &folder, &[], 2);
    assert!(
        shown.contains("core.fsmonitor = `./monitor.sh --fast`"),
        "{shown}"
    );
    assert!(shown.contains("file ./monitor.sh = `10 bytes`"), "{shown}");
    assert!(shown.contains("nobody can be asked here"), "{shown}");
    check(&world, &folder, "ask", "core.fsmonitor");
    trust(&world, &folder, &["--yes"], 0);
    check(&world, &folder, "allow", "");
    let file = world.home.path().join(".local/share/sabir/trust.json");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let listed = trust(&world, &folder, &["--list"], 0);
    assert!(
        listed.contains(folder.file_name().unwrap().to_str().unwrap()),
        "{listed}"
    );

    let changes: [(&str, &dyn Fn(bool)); 5] = [
        ("file ./monitor.sh", &|on| {
            fs::write(
                folder.join("monitor.sh"),
                if on { "evil\n" } else { "#!/bin/sh\n" },
            )
            .unwrap()
        }),
        ("core.fsmonitor", &|on| {
            git(
                &folder,
                &[
                    "config",
                    "core.fsmonitor",
                    if on {
                        "./monitor.sh"
                    } else {
                        "./monitor.sh --fast"
                    },
                ],
            );
        }),
        ("diff.x.textconv", &|on| match on {
            true => git(&folder, &["config", "diff.x.textconv", "sh"]),
            false => git(&folder, &["config", "--remove-section", "diff.x"]),
        }),
        ("hooks/post-index-change", &|on| {
            fs::create_dir_all(folder.join(".git/hooks")).unwrap();
            let hook = folder.join(".git/hooks/post-index-change");
            if on {
                fs::write(hook, "x").unwrap()
            } else {
                fs::remove_file(hook).unwrap()
            }
        }),
        ("core.editor", &|on| {
            fs::write(folder.join("more"), "[core]\neditor = evil\n").unwrap();
            match on {
                true => git(&folder, &["config", "include.path", "../more"]),
                false => git(&folder, &["config", "--unset", "include.path"]),
            }
        }),
    ];
    for (thing, change) in changes {
        change(true);
        check(
            &world,
            &folder,
            "ask",
            &format!("has changed since you trusted it ({thing}"),
        );
        change(false);
        check(&world, &folder, "allow", "");
    }
    git(&folder, &["config", "core.fsmonitor", "sh -c evil"]);
    // CFG-035: what is new is marked.
    let shown = trust(&world, &folder, &["--yes"], 0);
    assert!(
        shown.contains("core.fsmonitor = `sh -c evil` (changed since you trusted it)"),
        "{shown}"
    );
    assert!(shown.contains("file ./monitor.sh is gone"), "{shown}");
    check(&world, &folder, "allow", "");
    trust(&world, &folder, &["--revoke"], 0);
    check(&world, &folder, "ask", "core.fsmonitor");
    trust(&world, &folder, &["--revoke"], 2);
    assert!(trust(&world, &folder, &["--list"], 0).contains("no repository is trusted"));
}

/// CFG-034
#[test]
fn a_nested_repository_needs_its_own_trust() {
    let world = World::new();
    let folder = hostile(&world, "w");
    trust(&world, &folder, &["--yes"], 0);
    let inner = hostile(&world, "w/sub");
    check(&world, &folder, "allow", "");
    check(&world, &inner, "ask", "can run programs");
    trust(&world, &inner, &["--yes"], 0);
    check(&world, &inner, "allow", "");
    // The configuration of a submodule is part of the outer repository's.
    git(
        &inner,
        &[
            "-c",
            "core.fsmonitor=false",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    );
    git(&folder, &["-c", "core.fsmonitor=false", "add", "sub"]);
    check(
        &world,
        &folder,
        "ask",
        "has changed since you trusted it (sub/.git: core.fsmonitor",
    );
}

#[test]
fn a_damaged_trust_file_trusts_nothing() {
    let world = World::new();
    let folder = hostile(&world, "w");
    trust(&world, &folder, &["--yes"], 0);
    let file = world.home.path().join(".local/share/sabir/trust.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, "{").unwrap();
    let explain = ["policy", "explain", "--", "git status"];
    let output = world
        .sabir()
        .args(explain)
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(stdout(&output).starts_with("ask"), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("no repository is trusted"),
        "{}",
        stderr(&output)
    );
    fs::write(
        &file,
        text.replacen("\"core.fsmonitor\": \"", "\"core.fsmonitor\": \"0", 1),
    )
    .unwrap();
    check(&world, &folder, "ask", "");
    // A trust file in the workspace has no effect.
    fs::create_dir(folder.join(".sabir")).unwrap();
    fs::write(folder.join(".sabir/trust.json"), text).unwrap();
    check(&world, &folder, "ask", "");
    let clean = world.work.path().join("clean");
    fs::create_dir(&clean).unwrap();
    trust(&world, &clean, &[], 2);
    git(&clean, &["init", "-q"]);
    assert!(trust(&world, &clean, &["--yes"], 0).contains("makes git run nothing"));
}
