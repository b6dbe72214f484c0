//! Resumes journals that were written by the version before `sabir-session`, byte for byte as it left them.
//!
//! `tests/journals/NAME/` holds the journals of one task: how the task ended is its name.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, stderr, stdout, turn};

/// One stored task.
struct OldTask {
    folder: &'static str,
    /// Text that the request must contain when the task continues.
    remembered: &'static [&'static str],
    /// Turns that the model takes before it completes: a parent reads its resumed subtask's result first.
    completions: usize,
}

const fn old(folder: &'static str, remembered: &'static [&'static str]) -> OldTask {
    OldTask {
        folder,
        remembered,
        completions: 1,
    }
}

const OLD_TASKS: [OldTask; 11] = [
    old(
        "completed",
        &["change the notes", "I edit.", "All done.", "and now?"],
    ),
    old("forked", &["change the notes", "another way", "and now?"]),
    old(
        "killed",
        &[
            "wait for it",
            "Sabir was stopped while this ran",
            "and now?",
        ],
    ),
    old("cancelled", &["wait for it", "and now?"]),
    // Its last answer broke off in a call; the journal ends before the next one.
    old(
        "prompted",
        &["read and write", "<write_to_file>", "and now?"],
    ),
    OldTask {
        folder: "family",
        remembered: &["Look at the notes."],
        completions: 2,
    },
    old("compacted", &["read much", "and now?"]),
    old("provider-failed", &["fail there", "and now?"]),
    old("modes", &["plan first", "rm -rf /", "and now?"]),
    old("picture", &["see it", "data:image/png;base64,", "and now?"]),
    old("todos", &["with todos", "did you mean", "and now?"]),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals")
}

/// Copies the journals of a task into the home and returns the name of the first one: a child's name extends its parent's.
fn install(world: &World, task: &OldTask) -> String {
    let tasks = world.home.path().join(".local/share/sabir/tasks");
    fs::create_dir_all(&tasks).unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(fixtures().join(task.folder)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), tasks.join(entry.file_name())).unwrap();
        let name = entry.file_name().into_string().unwrap();
        names.push(name.trim_end_matches(".journal").to_owned());
    }
    names.sort_by_key(String::len);
    names.swap_remove(0)
}

#[test]
fn every_stored_task_is_listed_here() {
    let mut stored = crate::world::names(&fixtures());
    stored.sort();
    let mut listed = OLD_TASKS.map(|task| task.folder);
    listed.sort_unstable();
    assert_eq!(stored, listed);
}

#[test]
fn journals_of_the_previous_version_are_shown_and_exported() {
    for task in &OLD_TASKS {
        let world = World::new();
        let id = install(&world, task);
        let log = world
            .sabir()
            .args(["log", &id, "--output", "events"])
            .output()
            .unwrap();
        assert_eq!(code(&log), 0, "{}: {}", task.folder, stderr(&log));
        assert!(events(&log).len() > 2, "{}", task.folder);
        let export = world
            .sabir()
            .args(["export", &id, "--to", "json"])
            .output()
            .unwrap();
        assert_eq!(code(&export), 0, "{}: {}", task.folder, stderr(&export));
        let export: Value = serde_json::from_str(&stdout(&export)).unwrap();
        assert_eq!(export["task"]["task"], json!(id), "{}", task.folder);
        let listed = world
            .sabir()
            .args(["tasks", "--everywhere", "--output", "json"])
            .output()
            .unwrap();
        assert!(stdout(&listed).contains(&id), "{}", task.folder);
    }
}

#[test]
fn journals_of_the_previous_version_resume() {
    for task in &OLD_TASKS {
        let world = World::new();
        world.write("notes.txt", "one\n2\nthree\n");
        let id = install(&world, task);
        let journal = world
            .home
            .path()
            .join(format!(".local/share/sabir/tasks/{id}.journal"));
        let before = fs::read(&journal).unwrap();
        let done = turn(
            "",
            vec![("attempt_completion", json!({"result": "Resumed."}))],
        );
        let way = if task.folder == "prompted" {
            WAYS[2]
        } else {
            WAYS[1]
        };
        let provider = world.plays(way, &vec![done; task.completions]);
        let mut resume = world.sabir_with(&provider);
        resume.args(["resume", &id, "--approve", "all", "--output", "json", "-C"]);
        resume.arg(world.work.path()).arg("and now?");
        let resumed = resume.output().unwrap();
        assert_eq!(code(&resumed), 0, "{}: {}", task.folder, stderr(&resumed));
        let summary: Value = serde_json::from_str(&stdout(&resumed)).unwrap();
        assert_eq!(summary["outcome"], "completed", "{}", task.folder);
        let sent: Vec<String> = provider
            .received_requests()
            .iter()
            .map(|request| request.body.to_string())
            .collect();
        assert_eq!(sent.len(), task.completions, "{}: {sent:#?}", task.folder);
        let sent = sent.concat();
        for word in task.remembered {
            assert!(
                sent.contains(word),
                "{}: no {word:?} in {sent}",
                task.folder
            );
        }
        let after = fs::read(&journal).unwrap();
        assert!(
            after.starts_with(&before),
            "{}: a journal is only appended to",
            task.folder
        );
    }
}
