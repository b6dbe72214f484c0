//! Tests commands in a sandbox: the exceptions that they ask for, and the limits that they are kept to.

use std::io::Write;
use std::time::{Duration, Instant};

use sabir_agent::CallPermit;
use sabir_call::CallId;
use sabir_policy::{Access, ExtraPermissions};
use sabir_workspace::{NetworkAccess, Sandbox, SandboxLevel};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Place;

/// Returns the sandbox levels that this machine supports.
fn levels() -> Vec<SandboxLevel> {
    let has = |level: &SandboxLevel| {
        let (output, _) = Place::confined(Sandbox::new(*level))
            .run("execute_command", json!({"command": "true"}));
        if output.failed {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: level {level}: {}",
                output.content
            );
        }
        !output.failed
    };
    [SandboxLevel::One, SandboxLevel::Two]
        .into_iter()
        .filter(has)
        .collect()
}

/// Checks whether a command fails, and the text of its result.
#[track_caller]
fn check(place: &Place, arguments: Value, (failed, words): (bool, &str)) {
    let (output, _) = place.run("execute_command", arguments);
    assert_eq!(output.failed, failed, "{}", output.content);
    assert!(output.content.contains(words), "{}", output.content);
}

/// Runs git outside of any sandbox, and returns its output and errors.
#[track_caller]
fn git(place: &Place, arguments: &[&str]) -> (String, String) {
    let ran = std::process::Command::new("git")
        .args(arguments)
        .current_dir(place.root.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&ran.stdout), text(&ran.stderr))
}

#[test]
fn arguments_request_exceptions_from_the_sandbox() {
    let beyond = |sandbox: &Sandbox, more: Value| {
        let mut arguments = json!({"command": "true"});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        match Place::confined(sandbox.clone()).access("execute_command", arguments) {
            Access::Command { beyond, .. } => beyond,
            other => panic!("{other:?}"),
        }
    };
    let (off, on) = (
        Sandbox::new(SandboxLevel::Off),
        Sandbox::new(SandboxLevel::Best),
    );
    let online = on.clone().with_network(NetworkAccess::Allowed);
    for (more, [without, within, with_network]) in [
        (json!({}), [ExtraPermissions::Nothing; 3]),
        (
            json!({"network": false, "unconfined": false}),
            [ExtraPermissions::Nothing; 3],
        ),
        (
            json!({"network": true}),
            [
                ExtraPermissions::Nothing,
                ExtraPermissions::Network,
                ExtraPermissions::Nothing,
            ],
        ),
        (
            json!({"unconfined": true}),
            [
                ExtraPermissions::Nothing,
                ExtraPermissions::Unconfined,
                ExtraPermissions::Unconfined,
            ],
        ),
        (
            json!({"network": true, "unconfined": true}),
            [
                ExtraPermissions::Nothing,
                ExtraPermissions::Unconfined,
                ExtraPermissions::Unconfined,
            ],
        ),
    ] {
        assert_eq!(beyond(&off, more.clone()), without, "{more}");
        assert_eq!(beyond(&on, more.clone()), within, "{more}");
        assert_eq!(beyond(&online, more.clone()), with_network, "{more}");
    }
}

#[test]
fn permitted_exceptions_from_the_sandbox_take_effect() {
    for level in levels() {
        let folder = TempDir::new().unwrap();
        let place = Place::confined(Sandbox::new(level).allow_read([folder.path().to_path_buf()]));
        let outside = folder.path().join("new");
        let line = format!("echo x > {}", outside.display());
        check(
            &place,
            json!({"command": line}),
            (true, "call again with unconfined: the user is asked."),
        );
        assert!(!outside.exists());
        check(
            &place,
            json!({"command": line, "unconfined": true}),
            (false, "Exit code 0"),
        );
        assert!(outside.exists());
        let line = "echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6";
        check(
            &place,
            json!({"command": line}),
            (
                true,
                "call again with registries; if it cannot do without the network, with network: the user is asked.",
            ),
        );
        // A call that has the exception needs no advice.
        check(
            &place,
            json!({"command": line, "network": true}),
            (true, "example.org"),
        );
        let (output, _) = place.run("execute_command", json!({"command": line, "network": true}));
        assert!(!output.content.contains("sandbox"), "{}", output.content);
    }
}

/// A call that nobody approved reaches no port of the machine, even if its line names it.
#[test]
fn only_approved_commands_reach_the_loopback() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            _ = client.and_then(|mut client| std::io::Write::write_all(&mut client, b"pong"));
        }
    });
    let line = format!("bash -c 'cat < /dev/tcp/127.0.0.1/{port}'");
    for level in levels() {
        let place = Place::confined(Sandbox::new(level));
        for (user_approved, read_only) in [(false, false), (false, true), (true, true)] {
            let permit = CallPermit {
                user_approved,
                read_only,
                ..CallPermit::unchecked(CallId::new("1"))
            };
            let (output, _) =
                place.run_by(&permit, "execute_command", json!({"command": line.clone()}));
            assert!(!output.content.contains("pong"), "{}", output.content);
        }
        if level != SandboxLevel::Two {
            continue;
        }
        let approved = CallPermit {
            user_approved: true,
            ..CallPermit::unchecked(CallId::new("1"))
        };
        let (output, _) = place.run_by(
            &approved,
            "execute_command",
            json!({"command": line.clone()}),
        );
        assert!(output.content.contains("pong"), "{}", output.content);
        let walled = Place::confined(Sandbox::new(level).with_loopback(false));
        let (output, _) = walled.run_by(
            &approved,
            "execute_command",
            json!({"command": line.clone()}),
        );
        assert!(
            output.content.contains("this machine's loopback"),
            "{}",
            output.content
        );
    }
}

#[test]
fn read_only_commands_cannot_write() {
    for level in levels() {
        let place = Place::confined(Sandbox::new(level).share_temp_dir());
        place.put("inside", "old");
        let permit = CallPermit {
            read_only: true,
            ..CallPermit::unchecked(CallId::new("1"))
        };
        let line = "exec 2> /dev/null; cat inside; echo x > inside; echo x > new; rm inside; mkdir folder; echo y > $TMPDIR/note; cat $TMPDIR/note";
        let (output, _) = place.run_by(&permit, "execute_command", json!({"command": line}));
        assert!(
            output.content.starts_with("Exit code 0. Output:\nold")
                && output.content.ends_with('y'),
            "{output:?}"
        );
        assert_eq!(place.get("inside"), "old", "level {level}");
        assert!(
            !place.inner("new").exists() && !place.inner("folder").exists(),
            "level {level}"
        );
        let (output, _) = place.run_by(
            &permit,
            "execute_command",
            json!({"command": "echo x > inside"}),
        );
        assert!(
            output
                .content
                .contains("As a command that only reads, it can write in"),
            "{}",
            output.content
        );
    }
}

#[test]
fn read_only_commands_can_query_git() {
    for level in levels() {
        let place = Place::confined(Sandbox::new(level));
        place.put("a.txt", "old");
        git(&place, &["init", "-q", "."]);
        git(&place, &["add", "-A"]);
        git(
            &place,
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=b",
                "commit",
                "-qm",
                "c",
            ],
        );
        place.put("a.txt", "new");
        let permit = CallPermit {
            read_only: true,
            ..CallPermit::unchecked(CallId::new("1"))
        };
        let (output, _) = place.run_by(
            &permit,
            "execute_command",
            json!({"command": "git status --short; git diff --stat"}),
        );
        assert!(
            output
                .content
                .starts_with("Exit code 0. Output:\n M a.txt\n a.txt | 2 +-"),
            "{}",
            output.content
        );
    }
}

#[test]
fn commands_of_a_task_share_a_temporary_folder() {
    for level in levels() {
        let sandbox = Sandbox::new(level).share_temp_dir();
        let place = Place::confined(sandbox.clone());
        check(
            &place,
            json!({"command": "echo kept > $TMPDIR/x; echo $TMPDIR"}),
            (false, "/tmp"),
        );
        check(&place, json!({"command": "cat $TMPDIR/x"}), (false, "kept"));
        check(
            &Place::confined(Sandbox::new(level).share_temp_dir()),
            json!({"command": "cat $TMPDIR/x"}),
            (true, "No such file"),
        );
        if level == SandboxLevel::Two {
            check(
                &place,
                json!({"command": "cat /tmp/x /var/tmp/x"}),
                (false, "kept\nkept"),
            );
        }
    }
}

#[test]
fn caches_can_be_written() {
    for level in levels() {
        let place = Place::confined(Sandbox::new(level).share_temp_dir());
        let line = "for d in $XDG_CACHE_HOME $GOCACHE $npm_config_cache $PIP_CACHE_DIR; do mkdir -p $d/a && echo made; done";
        check(
            &place,
            json!({"command": line}),
            (false, "made\nmade\nmade\nmade"),
        );
    }
}

#[test]
fn a_failed_job_names_its_sandbox() {
    for level in levels() {
        let folder = TempDir::new().unwrap();
        let place = Place::confined(Sandbox::new(level).allow_read([folder.path().to_path_buf()]));
        let line = format!("echo x > {}/new", folder.path().display());
        let words = "which may be why";
        place.run(
            "execute_command",
            json!({"command": line, "background": true}),
        );
        let read = || {
            place
                .run("read_command_output", json!({"output": 1, "start_line": 1}))
                .0
                .content
        };
        let begun = Instant::now();
        while !read().contains(words) && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let told = read();
        assert!(
            told.contains(words) && told.contains(&format!("level {level}")),
            "{told}"
        );
    }
}

#[test]
fn placeholders_of_a_running_job_are_hidden() {
    for level in levels() {
        let place = Place::confined(Sandbox::new(level));
        place.put("a.txt", "text");
        git(&place, &["init", "-q", "."]);
        check(
            &place,
            json!({"command": "echo up; sleep 1000", "background": true}),
            (false, "runs in the background"),
        );
        let (listed, _) = place.run("list_files", json!({"path": ".", "recursive": true}));
        assert!(
            !listed.content.contains(".vscode") && listed.content.contains("a.txt"),
            "{}",
            listed.content
        );
        assert_eq!(
            git(&place, &["status", "--short"]),
            ("?? a.txt\n".to_owned(), String::new())
        );
        for (tool, arguments) in [
            ("read_file", json!({"path": "AGENTS.md"})),
            ("read_file", json!({"path": ".vscode/tasks.json"})),
            ("list_files", json!({"path": ".vscode"})),
        ] {
            let (told, _) = place.run(tool, arguments.clone());
            assert!(
                told.content.contains("does not exist"),
                "level {level}, {tool} {arguments}: {}",
                told.content
            );
        }
        place.run("stop_command", json!({"job": 1}));
        let names = std::fs::read_dir(place.root.path()).unwrap().count();
        assert_eq!(names, 2, "level {level}");
    }
}
