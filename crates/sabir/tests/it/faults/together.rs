//! Tests many concurrent processes: in one folder, and with one configuration file.

use std::collections::BTreeSet;

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::json;

use crate::world::{WAYS, Way, World, code, names, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];

/// The number of tasks that start at the same time.
const TASKS: usize = 50;

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn fifty_tasks_can_start_at_once_in_one_folder() {
    let world = World::new();
    let config =
        world.configure("max_turns = 9\n\n[[models]]\npattern = \"scripted\"\ncontext = 100000\n");
    let before = std::fs::read(&config).unwrap();
    let provider = world.provider(ReplyScript::from_fn(|_, request| -> ProviderReply {
        let asked = request.body["messages"].to_string();
        let number = asked
            .split("file number ")
            .nth(1)
            .and_then(|rest| rest.split('.').next())
            .unwrap()
            .to_owned();
        if asked.contains("\"role\":\"tool\"") {
            return NATIVE.reply(
                &turn("", vec![("attempt_completion", json!({"result": "done"}))]),
                2,
            );
        }
        let (path, text) = (format!("f{number}.txt"), format!("{number}\n"));
        let calls = vec![
            ("write_to_file", json!({"path": path, "content": text})),
            (
                "execute_command",
                json!({"command": format!("echo {number} >> all.txt")}),
            ),
        ];
        NATIVE.reply(&turn("", calls), 1)
    }));
    let children: Vec<_> = (0..TASKS)
        .map(|number| {
            let mut command = world.sabir_with(&provider);
            command.args([
                "run",
                "--model",
                NATIVE.model(),
                "--approve",
                "all",
                "--sandbox",
                "off",
                "--output",
                "text",
            ]);
            command
                .arg(format!("Write file number {number}."))
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (code(&output), stdout(&output).as_str()),
            (0, "done\n"),
            "{}",
            stderr(&output)
        );
    }
    for number in 0..TASKS {
        assert_eq!(world.read(&format!("f{number}.txt")), format!("{number}\n"));
    }
    let all: BTreeSet<_> = world
        .read("all.txt")
        .lines()
        .map(|line| line.parse::<usize>().unwrap())
        .collect();
    assert_eq!(all, (0..TASKS).collect());
    assert_eq!(std::fs::read(&config).unwrap(), before);
    let left: Vec<String> = names(world.work.path())
        .into_iter()
        .filter(|name| name != "all.txt" && !name.starts_with('f'))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "nothing is left in the folder");
    let listed = world
        .sabir()
        .args(["tasks", "--output", "json"])
        .output()
        .unwrap();
    assert_eq!(stdout(&listed).matches("\"completed\"").count(), TASKS);
}

/// Each process writes a finding about a different model: no finding is lost, and readers always see a whole file.
#[test]
fn concurrent_writers_of_a_configuration_lose_nothing() {
    let world = World::new();
    let config = world.configure("# mine\nmax_turns = 9\n");
    let provider = world.provider(crate::doctor::obedient(false));
    let models: Vec<String> = (0..12).map(|number| format!("openai/m-{number}")).collect();
    let children: Vec<_> = models
        .iter()
        .map(|model| {
            let mut command = world.sabir_with(&provider);
            command
                .args(["doctor", model, "--store", "--output", "json"])
                .spawn()
                .unwrap()
        })
        .collect();
    let mut read = 0;
    for mut child in children {
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&config).unwrap();
            assert!(
                text.starts_with("# mine\nmax_turns = 9\n"),
                "half a file: {text}"
            );
            read += 1;
        }
        let output = child.wait_with_output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
    let text = std::fs::read_to_string(&config).unwrap();
    let modes = world.sabir().arg("modes").output().unwrap();
    assert_eq!(code(&modes), 0, "{}", stderr(&modes));
    for model in models {
        let id = model.trim_start_matches("openai/");
        assert!(
            text.contains(&format!("pattern = \"{id}\"")),
            "{id} is lost: {text}"
        );
    }
    assert_eq!(names(config.parent().unwrap()), ["config.toml"]);
    println!("read {read} times meanwhile");
}
