//! Checkpoints through the binary: a task changes a folder, and `diff`, `undo` and `restore` look at it and go back.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

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
fn a_task_is_gone_back_on_call_by_call() {
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
    let output = sabir(&world, &["undo"]);
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).starts_with(&format!(
        "Before call 3 of task {task} (execute_command: rm -rf .git src"
    )));
    assert!(
        stdout(&output).contains("  bring back   src/main.rs\n")
            && stdout(&output).contains("  delete       gone.txt\n")
    );
    assert_eq!(stderr(&output), "Nothing was changed. --yes does it.\n");
    assert!(!world.work.path().join("src").exists());

    let output = sabir(&world, &["undo", "--yes"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("paths restored. To go back on that: sabir restore @4\n"),
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
    assert!(
        done(&world, &["checkpoints"]).contains("   1  write_to_file: new/a.txt  (gone back on)\n")
    );

    // And forth again: before the first undo.
    done(&world, &["restore", "@4", "--yes"]);
    assert!(world.work.path().join("gone.txt").exists() && !world.work.path().join("src").exists());
    done(&world, &["restore", &format!("{task}@3"), "src", "--yes"]);
    assert_eq!(world.read("src/main.rs"), "fn main() {}\n");
    assert!(!world.work.path().join(".git").exists());
}

#[test]
fn everything_comes_back_byte_for_byte() {
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
    done(&world, &["undo", "3", "--yes"]);
    assert_eq!(before, tree(world.work.path()));
}

#[test]
fn what_the_user_changed_is_left_alone() {
    let (world, _) = played(&[]);
    world.write("gone.txt", "my own words\n");
    let output = sabir(&world, &["undo", "--yes", "--output", "json"]);
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

/// However much would go, what is left alone is said, and what the paths beyond the cap become.
#[test]
fn a_long_preview_ends_with_what_is_left_alone() {
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
        "--force goes over what somebody else has changed.",
    ];
    assert_eq!(lines, expected, "{shown}");
    assert!(done(&world, &["undo", "--force"]).ends_with("  … and 50 paths: delete 50\n"));
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
    check(&["undo", "-C", "/nonexistent"], "does not exist");
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
fn checkpoints_can_be_off_and_cannot_fail_unseen() {
    let (world, output) = played(&["--no-checkpoints"]);
    assert!(
        stderr(&output).contains("checkpoints are off: `sabir undo` cannot go back"),
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
