//! Executes every command in the documents, except those that `.ci/run` executes.

use std::process::Command;

use sabir_testkit::ReplyScript;
use serde_json::json;

use crate::world::{WAYS, World, turn};

/// The lines of all `sh` blocks.
fn commands(markdown: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in markdown.lines() {
        match line {
            "```sh" => inside = true,
            _ if line.starts_with("```") => inside = false,
            _ if inside => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

#[test]
fn commands_of_the_main_documents_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |name: &str| std::fs::read_to_string(format!("{root}/{name}")).unwrap();
    let ci = read(".ci/run");
    let world = World::new();
    let done = || turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        // A prompted model answers in text, a native one with a call.
        let way = if request.body.get("tools").is_some() {
            WAYS[1]
        } else {
            WAYS[2]
        };
        // One document is about the changes of a task.
        let asked = request.body.to_string();
        if asked.contains("correct the heading") && !asked.contains("\"tool_call_id\"") {
            let written = json!({"path": "NOTES.md", "content": "# Notes\n"});
            return way.reply(&turn("", vec![("write_to_file", written)]), 1);
        }
        way.reply(&done(), 2)
    }));
    let names = [
        "README.md",
        "docs/models.md",
        "docs/dialects.md",
        "docs/recording.md",
        "docs/checkpoints.md",
        "docs/journal.md",
    ];
    let commands: Vec<_> = names
        .iter()
        .flat_map(|name| commands(&read(name)))
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    std::fs::copy(
        format!("{root}/crates/sabir/src/commands/tour.jsonl"),
        world.work.path().join("tour.jsonl"),
    )
    .unwrap();
    let mut task = String::new();
    for line in commands {
        // The second one renews a recording that has a separate test.
        if line.starts_with("export ") || line == "SABIR_RENEW=1 cargo test -p sabir --test it tour"
        {
            continue;
        }
        if line.starts_with("cargo ") {
            let known = ["cargo run --release -- tour", "cargo test --workspace"];
            assert!(known.contains(&line.as_str()), "nobody runs `{line}`");
            assert!(
                ci.contains("cargo test --workspace") && ci.contains("tour"),
                "CI runs them"
            );
            continue;
        }
        let line = line
            .replace("TASK", &task)
            .replace("--model ollama/", "--model openai/");
        let mut shell = Command::new("bash");
        shell.args([
            "-c",
            &format!(
                "set -o pipefail; printf 'y\\n' > typed; sabir() {{ \"$SABIR\" \"$@\"; }}; {line}"
            ),
        ]);
        shell
            .current_dir(world.work.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        shell
            .env("HOME", world.home.path())
            .env("SABIR", env!("CARGO_BIN_EXE_sabir"))
            .env("OPENAI_API_KEY", "k");
        shell.env(
            "OPENAI_BASE_URL",
            provider.base_url(sabir_wire::Wire::OpenAiChat),
        );
        let interactive = line.starts_with("sabir --model") || line.starts_with("sabir resume");
        shell.stdin(std::process::Stdio::null());
        let output = shell.output().unwrap();
        let words = format!(
            "{line}\n{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let expected: &[i32] = match () {
            // No user sits at this terminal, so the interactive task cannot be accepted.
            () if interactive => &[2, 3],
            () if line.contains("sabir check") && !line.contains("sabir checkpoints") => &[4],
            () => &[0],
        };
        assert!(expected.contains(&output.status.code().unwrap()), "{words}");
        if line == "sabir tasks" {
            task = String::from_utf8_lossy(&output.stdout)
                .split_whitespace()
                .next()
                .unwrap()
                .to_owned();
        }
    }
}

/// The `sh` blocks of a document, each as it stands.
fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut inside = false;
    for line in markdown.lines() {
        match line {
            "```sh" => {
                inside = true;
                blocks.push(String::new());
            }
            _ if line.starts_with("```") => inside = false,
            _ if inside => blocks.last_mut().unwrap().extend([line, "\n"]),
            _ => {}
        }
    }
    blocks
}

#[test]
fn commands_of_the_other_documents_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let world = World::new();
    let mut executed = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        // The decisions contain only prose.
        if path.is_dir() {
            continue;
        }
        // These need a provider; the test above has one, and that of the guide.
        if ["recording.md", "checkpoints.md", "journal.md", "guide.md"]
            .iter()
            .any(|name| path.ends_with(name))
        {
            continue;
        }
        for block in blocks(&std::fs::read_to_string(&path).unwrap()) {
            let mut shell = Command::new("bash");
            shell.args([
                "-c",
                &format!("set -eo pipefail; sabir() {{ \"$SABIR\" \"$@\"; }}; {block}"),
            ]);
            shell
                .current_dir(world.work.path())
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap());
            shell
                .env("HOME", world.home.path())
                .env("SABIR", env!("CARGO_BIN_EXE_sabir"));
            shell.stdin(std::process::Stdio::null());
            let output = shell.output().unwrap();
            assert!(
                output.status.success(),
                "{}:\n{block}\n{}",
                path.display(),
                String::from_utf8_lossy(&output.stderr)
            );
            executed += 1;
        }
    }
    assert!(executed >= 3, "{executed} blocks");
}
