//! Tests checkpoints through the binary: a task changes a folder, and `diff`, `undo` and `restore` show and undo the changes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, World, code, stderr, stdout, turn};

const DESTROYS: &str = "rm -rf .git src && echo gone > gone.txt";

/// Writes, edits, and a command that destroys half of a repository.
fn turns() -> Vec<Turn> {
    vec![
        turn(
            "",
            vec![(
                "write_to_file",
                json!({"path": "new/a.txt", "content": "one\n"}),
            )],
        ),
        turn("", vec![("read_file", json!({"path": "kept.txt"}))]),
        turn(
            "",
            vec![("execute_command", json!({"command": "cat kept.txt"}))],
        ),
        turn(
            "",
            vec![(
                "write_to_file",
                json!({"path": "kept.txt", "content": "mine\nand the model's\n"}),
            )],
        ),
        turn("", vec![("execute_command", json!({"command": DESTROYS}))]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ]
}

fn repository(world: &World) {
    world.write("kept.txt", "mine\n");
    std::fs::create_dir(world.work.path().join("src")).unwrap();
    world.write("src/main.rs", "fn main() {}\n");
    std::fs::set_permissions(
        world.work.path().join("src/main.rs"),
        PermissionsExt::from_mode(0o750),
    )
    .unwrap();
    let script = "git init -q . && git add . && git -c user.name=ada -c user.email=ada@example.org commit -qm first";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(world.work.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn played(arguments: &[&str]) -> (World, Output) {
    let world = World::new();
    repository(&world);
    let way = WAYS[1];
    let provider = world.plays(way, &turns());
    let line = format!("command={DESTROYS}");
    // A sandbox would not let it take `.git` away.
    let usual = ["--sandbox", "off", "--approve", "all", "--approve", &line];
    let output = world.run(&provider, way, &[&usual, arguments, &["go"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    (world, output)
}

fn sabir(world: &World, arguments: &[&str]) -> Output {
    world.sabir().args(arguments).output().unwrap()
}

#[track_caller]
fn done(world: &World, arguments: &[&str]) -> String {
    let output = sabir(world, arguments);
    assert_eq!(
        code(&output),
        0,
        "{arguments:?}: {}{}",
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}

/// Names, modes and contents.
fn tree(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            let content = if path.is_dir() {
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            if path.is_dir() {
                left.push(path.clone());
            }
            found.push((path.display().to_string(), mode, content));
        }
    }
    found.sort();
    found
}

#[test]
fn a_task_is_undone_call_by_call() {
    let before = World::new();
    repository(&before);
    let (world, output) = played(&[]);
    assert!(!stderr(&output).contains("checkpoints are off"));
    let task = world.only_task();
    let list = done(&world, &["checkpoints"]);
    let expected = format!(
        "task {task}\n   1  write_to_file: new/a.txt\n   2  write_to_file: kept.txt\n   \
         3  execute_command: rm -rf .git src && echo gone > gone.txt\n"
    );
    assert_eq!(list, expected, "the call that only read is not counted");

    let diff = done(&world, &["diff", "2"]);
    for part in [
        "--- a/kept.txt\n+++ b/kept.txt\n@@ -1 +1,2 @@\n mine\n+and the model's\n",
        "+++ b/gone.txt",
        "-fn main() {}",
    ] {
        assert!(diff.contains(part), "{part}\n{diff}");
    }
    assert!(!diff.contains("a.txt\n+one"), "{diff}");
    assert!(done(&world, &["diff", &task]).contains("+++ b/new/a.txt"));

    // Without a terminal it is only shown.
    let output = sabir(&world, &["undo", "1"]);
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).starts_with(&format!(
        "Before call 3 of task {task} (execute_command: rm -rf .git src"
    )));
    assert!(
        stdout(&output).contains("  bring back   src/main.rs\n")
            && stdout(&output).contains(
                "  leave alone  gone.txt: it changed while a command ran that could not be watched"
            )
    );
    assert_eq!(
        stderr(&output),
        "Nothing was changed. Give --yes to apply it.\n"
    );
    assert!(!world.work.path().join("src").exists());

    let output = sabir(&world, &["undo", "1", "--yes", "--force"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("paths restored. To undo that: sabir restore @4\n"),
        "{}",
        stderr(&output)
    );
    let status = std::process::Command::new("git")
        .args(["--no-optional-locks", "status", "--porcelain"])
        .current_dir(world.work.path())
        .output();
    assert_eq!(stdout(&status.unwrap()), " M kept.txt\n?? new/\n");
    done(&world, &["undo", &task[..30], "2", "--yes"]);
    assert_eq!(world.read("kept.txt"), "mine\n");
    assert!(!world.work.path().join("new").exists());
    let output = sabir(&world, &["undo"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("has no changing call left to undo"),
        "{}",
        stderr(&output)
    );
    assert!(done(&world, &["checkpoints"]).contains("   1  write_to_file: new/a.txt  (undone)\n"));

    // And a redo: the state before the first undo.
    done(&world, &["restore", "@4", "--yes"]);
    assert!(world.work.path().join("gone.txt").exists() && !world.work.path().join("src").exists());
    done(&world, &["restore", &format!("{task}@3"), "src", "--yes"]);
    assert_eq!(world.read("src/main.rs"), "fn main() {}\n");
    assert!(!world.work.path().join(".git").exists());
}

#[test]
fn everything_is_restored_byte_for_byte() {
    let (world, way) = (World::new(), WAYS[1]);
    repository(&world);
    let before = tree(world.work.path());
    let provider = world.plays(way, &turns());
    let line = format!("command={DESTROYS}");
    let usual = [
        "--sandbox",
        "off",
        "--approve",
        "all",
        "--approve",
        &line,
        "go",
    ];
    assert_eq!(code(&world.run(&provider, way, &usual)), 0);
    assert_ne!(before, tree(world.work.path()));
    done(&world, &["undo", "3", "--yes", "--force"]);
    assert_eq!(before, tree(world.work.path()));
}

#[test]
fn changes_by_the_user_are_kept() {
    let (world, _) = played(&[]);
    world.write("gone.txt", "my own words\n");
    let output = sabir(&world, &["undo", "1", "--yes", "--output", "json"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        told["restored"]["left_alone"],
        json!([{"path": "gone.txt", "why": "somebody else has changed it since"}])
    );
    assert_eq!(told["before_call"], 3);
    assert_eq!(world.read("gone.txt"), "my own words\n");
    assert_eq!(world.read("src/main.rs"), "fn main() {}\n");
    done(&world, &["restore", "@3", "gone.txt", "--yes", "--force"]);
    assert!(!world.work.path().join("gone.txt").exists());
    let number = told["restored"]["number"].as_u64().unwrap() + 1;
    done(
        &world,
        &["restore", &format!("@{number}"), "gone.txt", "--yes"],
    );
    assert_eq!(world.read("gone.txt"), "my own words\n");
}

/// A long preview still lists skipped paths, and counts the paths beyond the limit by action.
#[test]
fn a_long_preview_ends_with_skipped_paths() {
    let (world, way) = (World::new(), WAYS[1]);
    let turns = vec![
        turn(
            "",
            vec![(
                "execute_command",
                json!({"command": "for i in $(seq 101 250); do echo task > f$i; done"}),
            )],
        ),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    assert_eq!(
        code(&world.run(&provider, way, &["--approve", "all", "go"])),
        0
    );
    world.write("f250", "my own words\n");
    let shown = done(&world, &["undo"]);
    let lines: Vec<_> = shown.lines().skip(100).collect();
    let expected = [
        "  delete       f200",
        "  … and 49 paths: delete 49",
        "  leave alone  f250: somebody else has changed it since",
        "--force overwrites what others have changed.",
    ];
    assert_eq!(lines, expected, "{shown}");
    assert!(done(&world, &["undo", "--force"]).contains("\n  … and 50 paths: delete 50\n"));
}

#[test]
fn messages_say_what_to_do() {
    let (world, _) = played(&[]);
    let task = world.only_task();
    let other = tempfile::TempDir::new_in(sabir_testkit::find_temp_base()).unwrap();
    let elsewhere = other.path().to_str().unwrap();
    let check = |arguments: &[&str], expected: &str| {
        let output = sabir(&world, arguments);
        assert_eq!(
            (code(&output), stdout(&output).as_str()),
            (2, ""),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(expected),
            "{arguments:?}: {}",
            stderr(&output)
        );
    };
    check(&["undo", "nonesuch"], "there is no task `nonesuch`");
    check(
        &["undo", "-C", elsewhere],
        "no task has changed anything in it; if the folder was moved",
    );
    check(
        &["undo", &task, "-C", elsewhere],
        "give that folder with -C",
    );
    // A name in a folder that only this test has: what lies elsewhere on the machine is not known.
    let absent = other.path().join("absent");
    check(&["undo", "-C", absent.to_str().unwrap()], "does not exist");
    check(&["undo", "9"], "or not so many");
    check(&["undo", "0"], "give 1 or more");
    check(&["restore", "3"], "write TASK@N");
    check(
        &["restore", "@77"],
        "has no changing call 77; its last one is 3",
    );
    check(&["restore", "@3", "../x"], "outside the workspace");
    check(
        &["restore", "@3", "nothing"],
        "is in no checkpoint since that call",
    );
}

#[test]
fn checkpoints_can_be_disabled_and_failures_are_reported() {
    let (world, output) = played(&["--no-checkpoints"]);
    assert!(
        stderr(&output).contains("checkpoints are off: `sabir undo` cannot undo"),
        "{}",
        stderr(&output)
    );
    let data = world.home.path().join(".local/share/sabir");
    assert!(!data.join("checkpoints").exists());

    let way = WAYS[1];
    let config = world.home.path().join("config.toml");
    std::fs::write(&config, "checkpoints_mib = 3\n").unwrap();
    let provider = world.plays(way, &turns());
    let output = world.run(
        &provider,
        way,
        &[
            "--approve",
            "all",
            "--config",
            config.to_str().unwrap(),
            "go",
        ],
    );
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("give at least 16"),
        "{}",
        stderr(&output)
    );

    // Where no checkpoint can be taken, the call does not run.
    std::fs::write(data.join("checkpoints"), "a file in the way\n").unwrap();
    std::fs::write(&config, "checkpoints = true\n").unwrap();
    world.write("kept.txt", "mine\n");
    let provider = world.plays(way, &turns());
    let arguments = [
        "--approve",
        "all",
        "--config",
        config.to_str().unwrap(),
        "--output",
        "events",
        "go",
    ];
    let output = world.run(&provider, way, &arguments);
    assert!(
        stdout(&output).contains("Nothing was done: no checkpoint could be taken before the call"),
        "{}",
        stdout(&output)
    );
    assert_eq!(world.read("kept.txt"), "mine\n");
    assert_eq!(
        std::fs::metadata(data).unwrap().permissions().mode() & 0o077,
        0
    );
}

/// Runs a command that edits, creates, renames and removes files, and waits until the user has done the same in between.
fn edited_meanwhile(sandbox: &str) -> World {
    let world = World::new();
    for name in [
        "notes.txt",
        "theirs.txt",
        "moved.txt",
        "gone.txt",
        "both.txt",
    ] {
        world.write(name, "mine\n");
    }
    world.write(".gitignore", "*.log\n");
    let line = "cd . && sed -i s/mine/theirs/ theirs.txt && mv moved.txt sub.txt && rm gone.txt && mkdir -p deep/er && \
                (cd deep && echo new > er/made.txt) && echo 1 > x.log && echo one >> both.txt && touch begun && \
                until test -e go; do sleep 0.05; done";
    let way = WAYS[1];
    let provider = world.plays(
        way,
        &[
            turn("", vec![("execute_command", json!({ "command": line }))]),
            turn("", vec![("attempt_completion", json!({"result": "done"}))]),
        ],
    );
    let exact = format!("command={line}");
    let mut task = world.sabir_with(&provider);
    let mut task = task
        .args(["run", "--model", way.model(), "--sandbox", sandbox])
        .args(["--approve", "all", "--approve", &exact, "x"])
        .spawn()
        .unwrap();
    while !world.work.path().join("begun").exists() {
        assert!(
            task.try_wait().unwrap().is_none(),
            "the command does not run"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    world.write("notes.txt", "mine, and edited meanwhile\n");
    world.write("users.txt", "new, and mine\n");
    world.write("go", "");
    assert_eq!(task.wait().unwrap().code(), Some(0));
    world
}

/// The supervisor sees what a command in the sandbox writes, so an undo tells its changes from those that the user made meanwhile.
#[test]
fn an_edit_made_during_a_command_survives_its_undo() {
    for sandbox in ["1", "2"] {
        let world = edited_meanwhile(sandbox);
        let diff = done(&world, &["diff"]);
        assert!(
            diff.contains("+theirs") && !diff.contains("edited"),
            "{diff}"
        );
        let preview = stdout(&sabir(&world, &["undo"]));
        for kept in ["go", "notes.txt", "users.txt"] {
            let line = format!(
                "  leave alone  {kept}: it changed while a command ran, and not by the command alone\n"
            );
            assert!(preview.contains(&line), "{sandbox}: {preview}");
        }
        let output = sabir(&world, &["undo", "--yes", "--output", "json"]);
        assert_eq!(code(&output), 3, "{}", stderr(&output));
        let undone: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(
            undone["restored"]["left_alone"].as_array().unwrap().len(),
            3,
            "{undone}"
        );
        for name in ["theirs.txt", "moved.txt", "gone.txt", "both.txt"] {
            assert_eq!(world.read(name), "mine\n", "{sandbox}: {name}");
        }
        for name in ["sub.txt", "deep", "begun"] {
            assert!(
                !world.work.path().join(name).exists(),
                "{sandbox}: {name} is undone"
            );
        }
        assert_eq!(world.read("notes.txt"), "mine, and edited meanwhile\n");
        assert_eq!(world.read("users.txt"), "new, and mine\n");
        // Forced, it is undone too, and comes back.
        let forced = done(
            &world,
            &["restore", "@1", "--yes", "--force", "--output", "json"],
        );
        assert_eq!(world.read("notes.txt"), "mine\n");
        assert!(!world.work.path().join("users.txt").exists());
        let forced: Value = serde_json::from_str(&forced).unwrap();
        let back = format!("@{}", forced["restored"]["number"]);
        done(&world, &["restore", &back, "--yes"]);
        assert_eq!(world.read("notes.txt"), "mine, and edited meanwhile\n");
        assert_eq!(world.read("users.txt"), "new, and mine\n");
    }
}

/// What the user made of a file that the command wrote too is never undone silently: before the command wrote it, after it, in
/// place, by another file, and where the command had removed it.
#[test]
fn a_file_that_a_command_and_the_user_wrote_is_left_alone() {
    const BOTH: [&str; 5] = [
        "again.txt",
        "early.txt",
        "inplace.txt",
        "late.txt",
        "swapped.txt",
    ];
    let line = "cd . && for f in inplace swapped only; do echo theirs >> $f.txt; done && rm again.txt && touch begun && \
                until test -e go; do sleep 0.05; done && sed -i s/users/theirs/ early.txt && echo theirs >> late.txt";
    for sandbox in ["1", "2"] {
        let world = World::new();
        for name in BOTH.iter().chain(&["only.txt"]) {
            world.write(name, "mine\n");
        }
        let way = WAYS[1];
        let provider = world.plays(
            way,
            &[
                turn("", vec![("execute_command", json!({ "command": line }))]),
                turn("", vec![("attempt_completion", json!({"result": "done"}))]),
            ],
        );
        let exact = format!("command={line}");
        let mut task = world.sabir_with(&provider);
        let mut task = task
            .args(["run", "--model", way.model(), "--sandbox", sandbox])
            .args(["--approve", "all", "--approve", &exact, "x"])
            .spawn()
            .unwrap();
        while !world.work.path().join("begun").exists() {
            assert!(
                task.try_wait().unwrap().is_none(),
                "the command does not run"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        for name in BOTH.iter().filter(|name| **name != "swapped.txt") {
            world.write(name, "users\n");
        }
        let other = world.write("swapped.new", "users\n");
        std::fs::rename(other, world.work.path().join("swapped.txt")).unwrap();
        world.write("go", "");
        assert_eq!(task.wait().unwrap().code(), Some(0));
        let after: Vec<_> = BOTH.iter().map(|name| world.read(name)).collect();
        assert_eq!(
            after,
            [
                "users\n",
                "theirs\n",
                "users\n",
                "users\ntheirs\n",
                "users\n"
            ]
        );
        let preview = stdout(&sabir(&world, &["undo"]));
        for kept in BOTH {
            let told = format!(
                "  leave alone  {kept}: it changed while a command ran, and not by the command alone\n"
            );
            assert!(preview.contains(&told), "{sandbox}: {kept}: {preview}");
        }
        let shown = stderr(&sabir(&world, &["diff"]));
        let theirs = "others wrote them while a command ran: again.txt, early.txt, go, inplace.txt, late.txt, swapped.txt\n";
        assert!(shown.contains(theirs), "{sandbox}: {shown}");
        let output = sabir(&world, &["undo", "--yes"]);
        assert_eq!(code(&output), 3, "{}", stderr(&output));
        let advice = "6 paths left alone; to overwrite them as well: sabir restore @1 --force\n";
        assert!(stderr(&output).contains(advice), "{}", stderr(&output));
        let kept: Vec<_> = BOTH.iter().map(|name| world.read(name)).collect();
        assert_eq!(after, kept, "{sandbox}");
        assert_eq!(world.read("only.txt"), "mine\n", "{sandbox}");
        assert!(!world.work.path().join("begun").exists());
        done(&world, &["restore", "@1", "--yes", "--force"]);
        for name in BOTH {
            assert_eq!(world.read(name), "mine\n", "{sandbox}: {name}");
        }
        let shown = sabir(&world, &["diff"]);
        assert_eq!((code(&shown), stdout(&shown)), (0, String::new()));
        assert!(stderr(&shown).contains("nothing of it is left"));
    }
}

/// After a message that changed nothing an undo says that it goes back to an earlier one.
#[test]
fn an_undo_of_an_earlier_message_says_so() {
    let (world, _) = played(&[]);
    let provider = world.plays(WAYS[1], &[turn("Because.", vec![])]);
    let mut asked = world.sabir_with(&provider);
    asked.args(["run", "--continue", "why"]);
    let output = asked.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let shown = done(&world, &["undo"]);
    let expected = "Your last message changed nothing; an earlier one did.\nBefore call 1 of";
    assert!(shown.starts_with(expected), "{shown}");
}

/// While a command of one task runs, a command of another one changes the folder: an undo of the first leaves that alone, and
/// names the second.
#[test]
fn tasks_that_run_at_once_undo_nothing_of_each_other() {
    let (world, way) = (World::new(), WAYS[1]);
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let body = request.body.to_string();
        let line = if body.contains("the long task") {
            "echo long > long.txt; touch begun; until test -e go; do sleep 0.05; done"
        } else {
            "echo short > short.txt"
        };
        let calls = if body.contains("Exit code 0") {
            vec![("attempt_completion", json!({"result": "done"}))]
        } else {
            vec![("execute_command", json!({"command": line}))]
        };
        way.reply(&turn("", calls), 1)
    }));
    let begin = |words: &str| {
        let mut task = world.sabir_with(&provider);
        task.args(["run", "--model", way.model(), "--approve", "all", words]);
        task
    };
    let mut long = begin("the long task").spawn().unwrap();
    while !world.work.path().join("begun").exists() {
        assert!(long.try_wait().unwrap().is_none(), "it does not run");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let short = begin("the short task").output().unwrap();
    assert_eq!(code(&short), 0, "{}", stderr(&short));
    world.write("go", "");
    let long = long.wait_with_output().unwrap();
    assert_eq!(code(&long), 0, "{}", stderr(&long));
    let name_of = |output: &Output| {
        let shown = stderr(output);
        let name = shown.split("task ").nth(1).unwrap();
        name.split_whitespace().next().unwrap().to_owned()
    };
    let long = name_of(&long);
    let short = name_of(&short);
    let undone = sabir(&world, &["undo", &long, "--yes"]);
    assert_eq!(code(&undone), 3, "{}", stderr(&undone));
    let told =
        format!("  leave alone  short.txt: a call of the task {short} ran at the same moment");
    assert!(stdout(&undone).contains(&told), "{}", stdout(&undone));
    assert_eq!(world.read("short.txt"), "short\n");
    assert!(!world.work.path().join("long.txt").exists());
}

/// Writes of every kind are seen: by name, relative to folders, through links, by renaming a folder, from several processes.
#[test]
fn whatever_a_command_writes_is_undone_with_it() {
    let line = "set -e; mkdir -p a/b/c; for i in $(seq 40); do echo $i > a/b/c/f$i & done; wait; tar cf t.tar a; mkdir x; \
                tar xf t.tar -C x; cp -rp x y; mv y z; mv z/a/b z/moved; rm -rf x; ln -s a link; ln a/b/c/f1 hard; \
                echo more >> link/b/c/f2; (cd a/b && echo up > ../up && : > c/f3 && chmod 700 c); chmod 640 kept.txt; \
                sed -i s/mine/theirs/ kept.txt; mv src/main.rs src/lib.rs; rmdir empty; \
                git -c user.name=ada -c user.email=ada@example.org commit -qam second";
    for sandbox in ["1", "2"] {
        let world = World::new();
        repository(&world);
        std::fs::create_dir(world.work.path().join("empty")).unwrap();
        let before = tree(world.work.path());
        let way = WAYS[1];
        let command = turn("", vec![("execute_command", json!({"command": line}))]);
        let end = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
        let provider = world.plays(way, &[command, end]);
        let exact = format!("command={line}");
        let approved = [
            "--sandbox",
            sandbox,
            "--approve",
            "all",
            "--approve",
            &exact,
            "x",
        ];
        let ran = world.run(&provider, way, &approved);
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        assert!(
            world.work.path().join("z/moved/c/f40").exists(),
            "{}",
            stderr(&ran)
        );
        done(&world, &["undo", "--yes"]);
        assert_eq!(before, tree(world.work.path()), "{sandbox}");
    }
}

/// Without a sandbox nothing tells the changes apart. Then nothing that has content is undone, unless the user says so.
#[test]
fn changes_of_a_command_that_is_not_watched_are_undone_only_by_force_or_by_name() {
    let world = edited_meanwhile("off");
    let ignored = "  1 path that git ignores: leave alone 1\n";
    let preview = done(&world, &["undo"]);
    assert!(preview.contains(ignored), "{preview}");
    assert!(preview.contains("--force undoes them all"), "{preview}");
    let diff = sabir(&world, &["diff"]);
    assert!(
        stderr(&diff).contains("what others changed while its commands ran may be among them"),
        "{}",
        stderr(&diff)
    );
    let output = sabir(&world, &["undo", "--yes"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    for name in ["notes.txt", "theirs.txt", "users.txt", "sub.txt"] {
        let line = format!(
            "  leave alone  {name}: it changed while a command ran that could not be watched\n"
        );
        assert!(stdout(&output).contains(&line), "{}", stdout(&output));
    }
    assert_eq!(world.read("gone.txt"), "mine\n", "nothing is lost by that");
    assert_eq!(world.read("notes.txt"), "mine, and edited meanwhile\n");
    done(&world, &["restore", "@1", "theirs.txt", "--yes"]);
    assert_eq!(world.read("theirs.txt"), "mine\n", "named by the user");
    done(&world, &["restore", "@1", "--yes", "--force"]);
    assert_eq!(world.read("notes.txt"), "mine\n");
    assert!(!world.work.path().join("sub.txt").exists());
}

/// A new file moves others beyond the size of a checkpoint. That changes nothing about them, and blames nobody.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn nobody_is_blamed_for_what_is_beyond_the_size_of_a_checkpoint() {
    let (world, way) = (World::new(), WAYS[1]);
    std::fs::create_dir(world.work.path().join("many")).unwrap();
    for number in 0..200_020 {
        world.write(&format!("many/f{number:06}"), "");
    }
    let line =
        "for i in $(seq 10); do echo task > a$i; done; echo task > z; echo more >> many/f000000";
    let turns = [
        turn("", vec![("execute_command", json!({"command": line}))]),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    assert_eq!(
        code(&world.run(&provider, way, &["--approve", "all", "go"])),
        0
    );
    let shown = done(&world, &["undo"]);
    assert!(!shown.contains("somebody else has changed it"), "{shown}");
    let output = sabir(&world, &["undo", "--yes"]);
    assert!(
        !stdout(&output).contains("somebody else has changed it"),
        "{}",
        stdout(&output)
    );
    assert!(!world.work.path().join("a1").exists());
    assert!(!world.work.path().join("z").exists());
    assert_eq!(world.read("many/f000000"), "");
}

/// Files that git ignores, and git's own, are one line each; the patch has the user's files.
#[test]
fn incidental_files_are_folded() {
    let world = World::new();
    repository(&world);
    world.write(".gitignore", "cache/\n*.log\n");
    let line = "echo 2 >> kept.txt && mkdir -p cache/deep && echo 1 > cache/a.pyc && echo 2 > cache/deep/b.pyc && echo 3 > x.log && \
                git -c user.name=ada -c user.email=ada@example.org commit -qam second";
    let way = WAYS[1];
    let command = turn("", vec![("execute_command", json!({"command": line}))]);
    let end = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(way, &[command, end]);
    let exact = format!("command={line}");
    let ran = world.run(
        &provider,
        way,
        &["--approve", "all", "--approve", &exact, "add a line"],
    );
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));

    let diff = sabir(&world, &["diff"]);
    let patch = stdout(&diff);
    assert!(patch.contains("+++ b/kept.txt"), "{patch}");
    for hidden in ["cache", "x.log", ".git/"] {
        assert!(!patch.contains(hidden), "{hidden}: {patch}");
    }
    let heading = stderr(&diff);
    let task = world.only_task();
    for words in [
        &format!("changes of task {task} (`add a line`) by all its calls"),
        "paths that git ignores: new ",
        "of git itself, in .git: ",
    ] {
        assert!(heading.contains(words), "{words}: {heading}");
    }
    // Programs get all of it.
    let json: Value = serde_json::from_str(&done_json(&world)).unwrap();
    let kind_of = |path: &str| {
        let changes = json["changes"].as_array().unwrap();
        let change = changes.iter().find(|change| change["path"] == path);
        change.unwrap_or_else(|| panic!("{path}"))["kind"].clone()
    };
    assert_eq!(kind_of("kept.txt"), "own");
    assert_eq!(kind_of("cache/deep/b.pyc"), "ignored");
    assert_eq!(kind_of("x.log"), "ignored");

    let preview = sabir(&world, &["undo"]);
    let shown = stdout(&preview);
    assert!(shown.contains("  change back  kept.txt\n"), "{shown}");
    assert!(shown.contains("paths that git ignores: delete "), "{shown}");
    assert!(
        !shown.contains("  delete       cache") && !shown.contains("  delete       x.log"),
        "{shown}"
    );
    // They are undone all the same.
    sabir(&world, &["undo", "--yes"]);
    assert!(!world.work.path().join("cache").exists());
    assert_eq!(world.read("kept.txt"), "mine\n");
}

fn done_json(world: &World) -> String {
    done(world, &["diff", "--output", "json"])
}
