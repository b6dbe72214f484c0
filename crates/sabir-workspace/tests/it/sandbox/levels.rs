//! Tests the level in force, the refusal if a level is not available, and the explanation for the
//! model.

use super::{Scene, Told, worlds};

#[test]
fn the_effective_level_is_reported() {
    for &(level, who) in worlds() {
        let told = Scene::new(who).run(level, "exit 7");
        assert_eq!(told.end, "Exited(7) 0");
        assert!(
            told.level.starts_with(&format!("level {level}: ")),
            "{told}"
        );
        assert!(told.level.contains("system call filter"), "{told}");
    }
    assert_eq!(Scene::new(super::Who::Me).run("off", "true").level, "off");
}

/// Checks the start of the result if `lacking` is missing from the kernel, for a requested level.
/// `Ok` means that the command ran.
#[track_caller]
fn check(lacking: &[&str], level: &str, expected: Result<&str, &str>) {
    for who in [super::Who::Me, super::Who::Stranger] {
        if !worlds().iter().any(|(_, other)| *other == who) {
            continue;
        }
        let scene = Scene::new(who);
        let before: Vec<&str> = lacking.iter().flat_map(|call| ["without", call]).collect();
        let told = scene.run_with(&before, level, "denied", "touch ran");
        match expected {
            Ok(level) => assert!(
                told.level.starts_with(level) && scene.at("ws/ran").exists(),
                "{lacking:?} {told}"
            ),
            Err(words) => {
                let start =
                    "error: the command was not run, because its sandbox is not available: ";
                assert!(
                    told.end.starts_with(&format!("{start}{words}")),
                    "{lacking:?} {told}"
                );
                assert!(
                    !scene.at("ws/ran").exists(),
                    "{lacking:?}: it ran all the same"
                );
            }
        }
    }
}

#[test]
fn unavailable_levels_are_refused() {
    check(
        &["landlock"],
        "1",
        Err("Landlock is not available: level 1 needs Linux 6.2"),
    );
    check(
        &["seccomp"],
        "1",
        Err("the system call filter could not be installed (Function not implemented"),
    );
    check(&["namespaces"], "2", Err("namespaces are not available"));
    check(
        &["mounts"],
        "2",
        Err("its view of the files could not be mounted"),
    );
    check(
        &["seccomp"],
        "2",
        Err("the system call filter could not be installed"),
    );
    check(
        &["namespaces", "landlock"],
        "best",
        Err("namespaces are not available"),
    );
    check(&["seccomp"], "best", Err("the system call filter"));
}

#[test]
fn the_best_level_uses_what_is_available() {
    check(&[], "1", Ok("level 1: Landlock"));
    if worlds().iter().any(|(level, _)| *level == "2") {
        check(&[], "best", Ok("level 2: namespaces, Landlock"));
        check(
            &["landlock"],
            "best",
            Ok("level 2: namespaces, system call filter"),
        );
        check(
            &["landlock"],
            "2",
            Ok("level 2: namespaces, system call filter"),
        );
    }
    check(&["namespaces"], "best", Ok("level 1: Landlock"));
    check(&["mounts"], "best", Ok("level 1: Landlock"));
}

#[test]
fn secrets_in_the_workspace_need_tier_2() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        std::fs::write(scene.at("ws/.env"), "KEY=1\n").unwrap();
        scene.give(&scene.at("ws"));
        let hidden = scene.at("ws/.env").into_os_string();
        let told = scene.run_seeing(
            &[],
            (level, "denied"),
            (scene.at("out").into(), hidden),
            "exec 2>&1; cat .env; cat inside",
        );
        let out = scene.at("out").into();
        let hidden = scene.at("ws/.env").into();
        let neither = scene.run_seeing(
            &["without", "namespaces"],
            ("best", "denied"),
            (out, hidden),
            "touch ran",
        );
        assert!(
            neither
                .end
                .contains("level 2 is not available here, and level 1 cannot hide"),
            "{neither}"
        );
        assert!(!scene.at("ws/ran").exists());
        match level {
            "1" => assert!(told.end.contains("level 1 cannot hide secrets"), "{told}"),
            _ => assert_eq!(
                told.output.trim(),
                "cat: .env: Permission denied\ninside",
                "{told}"
            ),
        }
    }
}

#[test]
fn denials_are_explained() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let note = |text: &str| scene.run(level, text).note;
        let outside = scene.name("out/new");
        let told = note(&format!("echo x > {outside}"));
        assert!(
            told.contains(&format!("`{outside}` is outside of what it may change")),
            "level {level}: {told}"
        );
        assert!(
            told.contains(&format!("It can write in `{}`", scene.name("ws"))),
            "{told}"
        );
        let told = note(&format!(
            "'{}' try tcp 127.0.0.1:9 | sed 's/^/connect: /'; exit 1",
            scene.helper.display()
        ));
        // Level 2 has a private loopback without listeners, so this is not a denial.
        assert_eq!(
            told.contains("it has no network"),
            level == "1",
            "level {level}: {told}"
        );
        let told = note("echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6");
        assert!(told.contains("it has no network"), "{told}");
        assert_eq!(note("echo ordinary failure; exit 1"), "");
        assert_eq!(note("echo permission denied; exit 0"), "");
    }
}

#[test]
fn temporary_files_are_private_and_removed() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        std::os::unix::fs::symlink(scene.at("ws"), scene.at("ws/tmp-link")).unwrap();
        let text = "f=$(mktemp) && echo x > \"$f\" && mkdir -p \"$TMPDIR/a/b\" && chmod 000 \"$TMPDIR/a\" && echo \"$TMPDIR\"; ls -a";
        let told = scene.run(level, text);
        let tmp = told.output.lines().next().unwrap().to_owned();
        assert_eq!(told.end, "Exited(0) 0", "{told}");
        if level == "2" {
            assert_eq!(tmp, "/tmp");
        } else {
            assert!(tmp.starts_with("/tmp/sabir-"), "{told}");
            assert!(
                !std::path::Path::new(&tmp).exists(),
                "{tmp} was left behind"
            );
        }
        let names: Vec<_> = std::fs::read_dir(scene.at("ws"))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}

#[test]
fn long_commands_run() {
    let scene = Scene::new(super::Who::Me);
    for &(level, _) in worlds() {
        let told: Told = scene.run(level, &format!("echo {} | wc -c", "x".repeat(120_000)));
        assert_eq!(told.output.trim(), "120001", "{told}");
    }
    let error = crate::commands::block_on(
        crate::commands::command(&format!("echo {}", "x".repeat(200_000)))
            .sandbox(sabir_workspace::Sandbox::new(
                sabir_workspace::SandboxLevel::Best,
            ))
            .run(&crate::Place::new().workspace, |_, _| {}),
    );
    assert!(error.unwrap_err().to_string().contains("has 200005 bytes"));
}

#[test]
fn ordinary_work_is_not_disturbed() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let text = "exec 2>&1; set -e
            mkdir -p src && printf '#!/bin/sh\\necho built\\n' > src/build.sh && chmod +x src/build.sh && src/build.sh
            cp -p src/build.sh copy && mv copy src/moved && ln src/moved hard && ln -s src soft && tar cf a.tar src && tar xf a.tar
            sleep 0.01 & wait; (echo sub | cat) > sub; find . -name moved | xargs cat > /dev/null; rm -r src; test -e hard
            echo done > \"$TMPDIR/x\"; cat \"$TMPDIR/x\"; echo err > /dev/stderr";
        let told = scene.run(level, text);
        assert_eq!(
            (told.end.as_str(), told.output.trim()),
            ("Exited(0) 0", "built\ndone\nerr"),
            "{told}"
        );
    }
}

/// Files with secrets, to a command that only reads: empty, or at least unreadable.
#[test]
fn secrets_look_empty_to_readers() {
    use sabir_workspace::{Sandbox, SandboxLevel};

    let has = |wanted: &str| worlds().iter().any(|(level, _)| *level == wanted);
    for (name, level) in [
        ("off", SandboxLevel::Off),
        ("1", SandboxLevel::One),
        ("2", SandboxLevel::Two),
    ] {
        if name != "off" && !has(name) {
            continue;
        }
        let place = crate::Place::new();
        std::fs::write(place.inner(".env"), "KEY=hidden\n").unwrap();
        std::fs::write(place.inner("plain"), "KEY=shown\n").unwrap();
        let secrets = place
            .workspace
            .list_files_named(&|path| path.ends_with(".env"));
        let sandbox = Sandbox::new(level).read_only().show_as_empty(secrets);
        let text = "grep -rh KEY . 2>/dev/null; cat .e* 2>/dev/null; test -f .env && echo there";
        let outcome = crate::commands::block_on(
            crate::commands::command(text)
                .sandbox(sandbox)
                .run(&place.workspace, |_, _| {}),
        )
        .unwrap();
        let output = outcome.output.text();
        assert_eq!(
            output.contains("hidden"),
            name == "off",
            "level {name}: {output}"
        );
        assert!(
            output.contains("shown") && output.contains("there"),
            "level {name}: {output}"
        );
        if name == "2" {
            // No error is printed either: the file is empty.
            let quiet = crate::commands::command("cat .env && grep -r KEY .");
            let sandbox = Sandbox::new(level)
                .read_only()
                .show_as_empty([place.inner(".env")]);
            let outcome =
                crate::commands::block_on(quiet.sandbox(sandbox).run(&place.workspace, |_, _| {}))
                    .unwrap();
            assert_eq!(outcome.output.text().trim(), "./plain:KEY=shown");
        }
    }
}

#[test]
fn a_launcher_that_was_started_ahead_runs_the_next_command() {
    for &(level, who) in worlds() {
        if level != "2" {
            continue;
        }
        let scene = Scene::new(who);
        let text = "cut -d' ' -f22 /proc/$$/stat; echo $PREPARED";
        let told = scene.run("second-2", text);
        let [start, prepared] = told.output.lines().collect::<Vec<_>>()[..] else {
            panic!("{told}");
        };
        assert!(
            !prepared.is_empty() && start == prepared,
            "{told} as {who:?}"
        );
        // Another one is started if this one was killed meanwhile.
        let told = scene.run("broken-2", text);
        let [start, prepared] = told.output.lines().collect::<Vec<_>>()[..] else {
            panic!("{told}");
        };
        assert!(
            !prepared.is_empty() && start != prepared,
            "{told} as {who:?}"
        );
        assert_eq!(told.end, "Exited(0) 0");
    }
}
