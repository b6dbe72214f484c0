//! Tests `sabir sandbox`, and the sandbox of tasks' commands.

use serde_json::{Value, json};

use crate::world::{
    WAYS, World, code, events, names, processes_with, skipped, stderr, stdout, turn,
};

/// Arguments in front of the command, the command, and its exit code, output and the beginning of what is said of the level.
#[track_caller]
fn check(options: &[&str], words: &[&str], expected: (i32, &str, &str)) {
    let world = World::new();
    let output = world
        .sabir()
        .arg("sandbox")
        .args(options)
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    let said = (output.status.code().unwrap(), stdout(&output));
    assert_eq!(
        (said.0, said.1.as_str()),
        (expected.0, expected.1),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains(expected.2), "{}", stderr(&output));
}

#[test]
fn a_command_is_confined() {
    check(
        &["--level", "1"],
        &["echo", "a  b"],
        (0, "a  b\n", "sabir: the sandbox was level 1: Landlock"),
    );
    check(
        &["--level", "off"],
        &["exit 3"],
        (3, "", "sabir: there was no sandbox"),
    );
    check(
        &["--level", "1"],
        &["echo x > inside; cat inside; exit 7"],
        (7, "x\n", "level 1"),
    );
    check(&[], &["kill -TERM $$"], (143, "", "the sandbox was level"));
    check(
        &["--level", "1"],
        &["echo x > /usr/new"],
        (1, "", "`/usr/new` is outside of what it may change"),
    );
    check(
        &["--level", "3"],
        &["true"],
        (2, "", "`3` is not a sandbox level: write off, 1, 2 or best"),
    );
    check(
        &["--write", "/no/such"],
        &["true"],
        (
            2,
            "",
            "`/no/such`, which its sandbox is to show, cannot be found",
        ),
    );
}

/// The folders of masks move between the workspace and the data folder, and every command is kept from the names.
#[test]
fn masks_are_kept_between_commands() {
    let world = World::new();
    let root = world.work.path();
    let run = |line: &str| {
        let arguments = ["sandbox", "--level", "2", "--", line];
        world.sabir().args(arguments).output().unwrap()
    };
    if code(&run("true")) != 0 {
        skipped("level 2 is not available");
        return;
    }
    let pool = world.home.path().join(".local/share/sabir/masks");
    let kept = names(&pool);
    assert!(kept.len() > 10, "{kept:?}");
    for line in [
        "echo x > .vscode/tasks.json",
        "rmdir .vscode",
        "mv .vscode gone",
        "chmod 700 .idea && echo x > .idea/a",
        "rm -rf AGENTS.md && echo x > AGENTS.md",
    ] {
        let output = run(line);
        assert_ne!(code(&output), 0, "{line}: {}", stdout(&output));
        assert_eq!(names(root), [""; 0], "{line}");
        assert_eq!(names(&pool), kept, "{line}");
    }
    // What the user makes meanwhile is theirs, and no folder of the pool is put over it.
    std::fs::write(root.join("AGENTS.md"), "mine").unwrap();
    assert_eq!(stdout(&run("cat AGENTS.md")), "mine");
    // A folder with content never becomes a mask.
    for name in &kept {
        std::fs::write(pool.join(name).join("tasks.json"), "{}").unwrap();
    }
    let output = run("find . -name tasks.json");
    assert_eq!(stdout(&output), "", "{}", stderr(&output));
    assert_eq!(names(root), ["AGENTS.md"]);
}

/// A workspace and a home in shared memory are seen, and nothing beside them.
#[test]
fn a_workspace_in_shared_memory_can_be_used() {
    let mut world = World::new();
    let probe = ["sandbox", "--level", "2", "--", "true"];
    if code(&world.sabir().args(probe).output().unwrap()) != 0 {
        return skipped("level 2 is not available");
    }
    let Ok(memory) = tempfile::TempDir::new_in("/dev/shm") else {
        return skipped("there is no shared memory that can be written");
    };
    let beside = memory.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    world.work = tempfile::TempDir::new_in(memory.path()).unwrap();
    world.home = tempfile::TempDir::new_in(memory.path()).unwrap();
    let run = |line: &str| {
        let arguments = ["sandbox", "--level", "2", "--", line];
        world.sabir().args(arguments).output().unwrap()
    };
    let output = run("echo x > made; cat made; ls -d ../beside; touch ../new");
    assert_eq!(stdout(&output), "x\n", "{}", stderr(&output));
    assert!(
        stderr(&output).contains("'../beside'"),
        "{}",
        stderr(&output)
    );
    assert_eq!(names(world.work.path()), ["made"]);
    let found = names(memory.path());
    assert_eq!(found.len(), 3, "{found:?}");
}

/// The limits and names of docs/sandbox.md that nothing else tries.
#[test]
fn limits_of_files_and_temporary_folders_are_as_documented() {
    check(
        &["--level", "1"],
        &["ulimit -c; ulimit -f"],
        (0, "0\n67108864\n", "level 1"),
    );
    check(
        &[],
        &["touch .travis.yml && ls -A | grep travis"],
        (0, ".travis.yml\n", "withheld-.travis.yml"),
    );
    let world = World::new();
    let line = "cd /tmp && echo x > a && cat /var/tmp/a; echo $XDG_CACHE_HOME $GOCACHE $npm_config_cache $PIP_CACHE_DIR";
    let arguments = ["sandbox", "--level", "2", "--", line];
    let output = world.sabir().args(arguments).output().unwrap();
    if code(&output) == 2 {
        skipped("level 2 is not available");
        return;
    }
    let said = stdout(&output);
    assert_eq!(said.matches("/tmp/.cache/").count(), 4, "{said}");
}

#[test]
fn secrets_of_the_home_are_hidden() {
    let world = World::new();
    std::fs::create_dir(world.home.path().join(".ssh")).unwrap();
    std::fs::write(world.home.path().join(".ssh/id"), "secret").unwrap();
    for (level, expected) in [("off", 0), ("1", 1), ("best", 1)] {
        let output = world
            .sabir()
            .args(["sandbox", "--level", level, "--", "cat ~/.ssh/id"])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(expected),
            "level {level}: {}",
            stderr(&output)
        );
    }
}

/// PTH-031: files hidden from the tools are hidden from commands too, however they name them.
#[test]
fn hidden_files_are_hidden_from_commands() {
    let (world, way) = (World::new(), WAYS[1]);
    for folder in ["vault", "sub", "svc"] {
        std::fs::create_dir(world.work.path().join(folder)).unwrap();
    }
    world.write(".sabirignore", "vault/\n*.key\n");
    world.write("vault/k", "zebra 1\n");
    world.write("sub/a.key", "zebra 2\n");
    world.write("svc/private.txt", "zebra 3\n");
    world.write("seen.txt", "seen\n");
    let lines = [
        "grep -r zebra .",
        "cat sub/a.key",
        "cat sub/*",
        "python3 -c 'print(open(\"svc/priv\" + \"ate.txt\").read())'",
        "mv vault v2; cat v2/k",
        "cat seen.txt",
    ];
    let calls: Vec<_> = lines
        .iter()
        .map(|line| ("execute_command", json!({"command": line})))
        .collect();
    let done = || turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(way, &[turn("", calls), done(), done()]);
    let options = [
        "--approve",
        "all",
        "--deny",
        "path=**/private.txt",
        "--output",
        "events",
        "go",
    ];
    let output = world.run(&provider, way, &options);
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    let content = |at: usize| results[at]["content"].as_str().unwrap();
    for (at, line) in lines.iter().enumerate() {
        for secret in ["zebra 1", "zebra 2", "zebra 3"] {
            assert!(!content(at).contains(secret), "{line}: {}", content(at));
        }
    }
    if !stderr(&output).contains("in the sandbox at level 2") && !content(5).contains("seen") {
        assert!(
            content(5).contains("level"),
            "without level 2 nothing runs: {}",
            content(5)
        );
        return crate::world::skipped("this machine has no namespaces");
    }
    assert!(content(5).contains("seen"), "{}", content(5));
    assert_eq!(world.read("vault/k"), "zebra 1\n");
}

/// Runs one command in a task, and returns the model's result and the user's output.
fn task(options: &[&str], arguments: Value) -> (World, String, String) {
    let (world, way) = (World::new(), WAYS[1]);
    let turns = [
        turn("", vec![("execute_command", arguments)]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    let output = world.run(
        &provider,
        way,
        &[options, &["--output", "events", "go"]].concat(),
    );
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event.to_string().contains("\"ending\""))
        .collect();
    let content = results
        .iter()
        .find_map(|event| find(event, "content"))
        .unwrap_or_default();
    (world, content, stderr(&output))
}

/// The first string of that name, however deep.
fn find(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| fields.values().find_map(|inner| find(inner, name))),
        Value::Array(all) => all.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

#[test]
fn commands_of_tasks_are_confined_by_default() {
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let line = format!("echo x > {}/new; echo over", outside.path().display());
    let exact = format!("command={line}");
    let (_, result, said) = task(&["--approve", &exact], json!({"command": line}));
    assert!(
        said.contains("sabir: commands run in a sandbox, without network (level "),
        "{said}"
    );
    assert!(!outside.path().join("new").exists(), "{result}");
    let (_, result, said) = task(
        &["--approve", &exact, "--sandbox", "off"],
        json!({"command": line}),
    );
    assert!(
        said.contains("sabir: commands run without a sandbox, with all your rights"),
        "{said}"
    );
    assert!(outside.path().join("new").exists(), "{result}");
    let (_, _, said) = task(&["--network"], json!({"command": "true"}));
    assert!(
        said.contains("commands run in a sandbox, with the network"),
        "{said}"
    );
}

#[test]
fn leaving_the_sandbox_needs_approval() {
    for options in [
        &["--approve", "all"][..],
        &["--approve", "commands", "--approve", "command=touch left"],
    ] {
        let (world, result, _) = task(
            options,
            json!({"command": "touch left", "unconfined": true}),
        );
        assert!(result.contains("runs outside of the sandbox"), "{result}");
        assert_eq!(names(world.work.path()), [""; 0]);
        let (world, result, _) = task(
            &[options, &["--sandbox", "off"]].concat(),
            json!({"command": "touch left", "unconfined": true}),
        );
        assert_eq!(names(world.work.path()), ["left"], "{result}");
    }
}

#[test]
fn read_only_commands_cannot_write() {
    // A program of the repository's name in front of the known one would be asked about; a test
    // cannot make a wrong decision, so it looks at the mounts, or the rights, of a right one.
    let (_, result, _) = task(
        &[],
        json!({"command": "test -w . && echo writable || echo read-only"}),
    );
    let level_2 = task(&[], json!({"command": "true"})).2.contains("(level 2");
    if level_2 {
        assert!(result.contains("read-only"), "{result}");
    }
}

#[test]
fn a_task_leaves_no_temporary_files() {
    let left = |mark: &str| processes_with(&format!("sleep\u{0}9{mark}"));
    for (level, mark) in [("1", "1061"), ("best", "1062")] {
        let tree = format!(
            "(setsid sh -c \"trap '' TERM HUP; sleep 9{mark}\" &); sh -c 'sh -c \"sleep 9{mark} & exit\" & exit'; \
             nohup sleep 9{mark} & trap '' TERM; kill -9 $PPID 2>/dev/null; echo kept > $TMPDIR/x; sleep 9{mark}"
        );
        for background in [false, true] {
            let options = ["--approve", "all", "--sandbox", level];
            let (_, result, said) = task(
                &options,
                json!({"command": tree, "background": background, "timeout": 2}),
            );
            assert!(said.contains("commands run in a sandbox"), "{said}");
            assert_eq!(
                left(mark),
                Vec::<String>::new(),
                "{level} {background}: {result}"
            );
        }
    }
    let mine = |entry: &std::fs::DirEntry| {
        let fresh = entry
            .metadata()
            .and_then(|found| found.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|ago| ago.as_secs() < 1));
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("sabir-task-")
            && fresh
            && entry.path().join("x").exists()
    };
    let kept = std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .flatten()
        .filter(mine)
        .count();
    assert_eq!(kept, 0);
}

#[test]
fn an_unavailable_level_runs_nothing_and_explains_why() {
    // Landlock and the filter need no privileges, so a machine without them cannot be simulated
    // here; a missing writable folder stops every command as well.
    let world = World::new();
    let output = world
        .sabir()
        .args([
            "sandbox",
            "--level",
            "2",
            "--write",
            "/no/such",
            "--",
            "touch ran",
        ])
        .output()
        .unwrap();
    assert_eq!(
        (code(&output), world.work.path().join("ran").exists()),
        (2, false),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_profile_for_macos_is_printed() {
    let world = World::new();
    let output = world
        .sabir()
        .args(["sandbox", "--profile", "seatbelt"])
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let work = world.work.path().canonicalize().unwrap();
    assert!(text.starts_with("(version 1)\n(deny default)\n"), "{text}");
    assert!(
        text.contains(&format!(
            "(allow file-write* (subpath \"{}\")",
            work.display()
        )),
        "{text}"
    );
}

/// The parent of a process.
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The processes below this one that were started as supervisors.
fn supervisors_of(agent: u32) -> Vec<u32> {
    let is_below = |process: u32| {
        let mut above = process;
        while let Some(parent) = parent_of(above).filter(|parent| *parent > 1) {
            if parent == agent {
                return true;
            }
            above = parent;
        }
        false
    };
    crate::world::processes_with("__supervise")
        .iter()
        .filter_map(|path| path.rsplit('/').next()?.parse().ok())
        .filter(|process| is_below(*process))
        .collect()
}

/// Killing the agent and its supervisors together leaves no command behind, also without namespaces.
#[test]
fn killing_the_agent_and_its_supervisors_together_leaves_nothing() {
    for (level, digit) in [("off", 1), ("1", 2)] {
        // Another run of this test on the machine has other marks.
        let mark = format!("{}{digit}", std::process::id());
        let world = World::new();
        let probe = world
            .sabir()
            .args(["sandbox", "--level", level, "--", "true"])
            .output();
        if code(&probe.unwrap()) != 0 {
            crate::world::skipped("no sandbox of level 1");
            continue;
        }
        for _ in 0..5 {
            let line = format!(
                "(setsid sleep {mark} &); sleep {mark} & (trap '' TERM HUP; sleep {mark}); true"
            );
            let provider = world.plays(
                WAYS[1],
                &[turn(
                    "",
                    vec![("execute_command", json!({"command": line}))],
                )],
            );
            let mut agent = world
                .sabir_with(&provider)
                .args(["run", "--model", WAYS[1].model(), "--approve", "all"])
                .args(["--sandbox", level, "go"])
                .spawn()
                .unwrap();
            let name = format!("sleep\u{0}{mark}\u{0}");
            let begun = std::time::Instant::now();
            while crate::world::processes_with(&name).len() < 3 {
                assert!(
                    begun.elapsed().as_secs() < 120,
                    "the command does not begin"
                );
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let mut killed = supervisors_of(agent.id());
            // The server makes the next supervisor a moment after the command has begun.
            assert!(
                (2..=3).contains(&killed.len()),
                "the fork server, the supervisor and the next one, and no reaper: {killed:?}"
            );
            killed.push(agent.id());
            let numbers = killed.iter().map(u32::to_string);
            let status = std::process::Command::new("kill")
                .arg("-KILL")
                .args(numbers)
                .status();
            assert!(status.unwrap().success());
            agent.wait().unwrap();
            let begun = std::time::Instant::now();
            while !crate::world::processes_with(&name).is_empty() {
                assert!(
                    begun.elapsed().as_secs() < 120,
                    "level {level}: {:?} are left",
                    crate::world::processes_with(&name)
                );
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// What package managers have fetched into the home is there without a network. What a command changes in it stays in the sandbox, and a
/// part that is hidden is not shown in another place.
#[test]
fn caches_of_the_home_are_read_and_never_written() {
    let world = World::new();
    for name in [".npm/_cacache/index-v5/a", ".m2/repository/x/y.pom"] {
        let path = world.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "fetched\n").unwrap();
    }
    let run = |line: &str| {
        let output = world
            .sabir()
            .args(["sandbox", "--level", "2", "--", line])
            .output()
            .unwrap();
        (code(&output), stdout(&output))
    };
    let npm = "npm_config_cache/_cacache/index-v5";
    let line = format!(
        ": npm mvn; cd /tmp/.cache; cat {npm}/a maven/x/y.pom; echo planted > {npm}/a; rm maven/x/y.pom; touch {npm}/b; cat {npm}/a; ls {npm}; \
         echo \"$MAVEN_OPTS\""
    );
    let repository = "-Dmaven.repo.local=/tmp/.cache/maven";
    let expected = format!("fetched\nfetched\nplanted\na\nb\n{repository}\n");
    assert_eq!(run(&line), (0, expected));
    for name in [".npm/_cacache/index-v5/a", ".m2/repository/x/y.pom"] {
        let text = std::fs::read_to_string(world.home.path().join(name)).unwrap();
        assert_eq!(text, "fetched\n", "{name}");
    }
    assert!(!world.home.path().join(".npm/_cacache/index-v5/b").exists());
    // A cache that leads to secrets of the home is none.
    let secret = world.home.path().join(".ssh");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("id"), "private\n").unwrap();
    let cache = world.home.path().join(".m2/repository");
    std::fs::remove_dir_all(&cache).unwrap();
    for target in [&secret, world.home.path()] {
        std::os::unix::fs::symlink(target, &cache).unwrap();
        let (_, shown) = run(": mvn; cat /tmp/.cache/maven/id /tmp/.cache/maven/.ssh/id; true");
        assert_eq!(shown, "", "{}", target.display());
        std::fs::remove_file(&cache).unwrap();
    }
    // Neither is one at another place.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("id"), "of the host\n").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &cache).unwrap();
    let (_, shown) = run(": mvn; cat /tmp/.cache/maven/id; true");
    assert_eq!(shown, "");
}

/// An earlier command of the task puts links at the places of a cache and its changes, so that the changes of a later one would
/// reach the files that git runs.
#[test]
fn changes_of_a_cache_follow_no_link() {
    let links = [
        "mkdir -p /tmp/.cache w; ln -s $PWD/.git /tmp/.cache/maven.changes; ln -s $PWD/w /tmp/.cache/maven.scratch",
        "mkdir -p /tmp/.cache; ln -s $PWD/.git /tmp/.cache/maven",
        "ln -s $PWD/.git /tmp/.cache",
        "mkdir -p /tmp/.cache w /tmp/.cache/maven.changes; ln -s $PWD/.git/hooks /tmp/.cache/maven.scratch",
    ];
    for link in links {
        let world = World::new();
        let repository = world.home.path().join(".m2/repository");
        std::fs::create_dir_all(&repository).unwrap();
        let git = |arguments: &[&str]| {
            let done = std::process::Command::new("git")
                .args(arguments)
                .current_dir(world.work.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", stderr(&done));
        };
        git(&["init", "-q"]);
        let before = tree_names(&world.work.path().join(".git"));
        let plant = ": mvn; mkdir -p /tmp/.cache/maven/hooks; echo evil > /tmp/.cache/maven/hooks/pre-commit; \
                     echo '[core] fsmonitor = evil' > /tmp/.cache/maven/config; true";
        let command = |line: &str| turn("", vec![("execute_command", json!({"command": line}))]);
        let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
        let provider = world.plays(WAYS[0], &[command(link), command(plant), done]);
        let output = world.run(
            &provider,
            WAYS[0],
            &["--sandbox", "2", "--approve", "all", "Go."],
        );
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        assert_eq!(provider.received_requests().len(), 3, "{}", stderr(&output));
        let config = std::fs::read_to_string(world.work.path().join(".git/config")).unwrap();
        assert!(!config.contains("evil"), "{link}");
        assert_eq!(
            tree_names(&world.work.path().join(".git")),
            before,
            "{link}"
        );
    }
}

/// Returns the paths of all files and folders in a folder.
fn tree_names(folder: &std::path::Path) -> std::collections::BTreeSet<std::path::PathBuf> {
    let mut names = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            names.extend(tree_names(&path));
        }
        names.insert(path);
    }
    names
}
