//! Runs the script of the GitHub Action (`action.yml`) with the binary, and reads the SARIF that it writes.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, stderr, turn};

/// The script of the action: the indented block behind `run: |`.
fn script() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../action.yml");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, block) = text.split_once("      run: |\n").unwrap();
    block
        .lines()
        .map(|line| line.strip_prefix("        ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs the script with these inputs, which the action passes as variables; returns what it wrote for later steps, too.
fn run_action(world: &World, mut command: Command, inputs: &[(&str, &str)]) -> (Output, String) {
    let outputs = world.work.path().join("github-output");
    std::fs::write(&outputs, "").unwrap();
    for name in ["PROMPT", "MODEL", "ARGUMENTS", "TOOLS", "DENY"] {
        command.env(format!("INPUT_{name}"), "");
    }
    command
        .env("INPUT_SABIR", env!("CARGO_BIN_EXE_sabir"))
        .env("INPUT_OUTPUT", "out")
        .env("GITHUB_OUTPUT", &outputs);
    for (name, value) in inputs {
        command.env(format!("INPUT_{name}"), value);
    }
    let output = command.output().unwrap();
    (output, std::fs::read_to_string(outputs).unwrap())
}

/// A command for bash with the environment of the binary.
fn bash(from: &Command, world: &World) -> Command {
    let mut bash = Command::new("bash");
    bash.env_clear().arg("-c").arg(script());
    bash.current_dir(world.work.path());
    for (name, value) in from.get_envs() {
        if let Some(value) = value {
            bash.env(name, value);
        }
    }
    bash
}

#[test]
fn tool_definitions_are_linted_as_sarif() {
    let world = World::new();
    world.write(
        "tools.json",
        "[\n  {\"name\": \"good\", \"description\": \"Does it.\", \"parameters\": {\"type\": \"object\"}},\n  {\"name\": \"thinking\", \"parameters\": {}}\n]\n",
    );
    let command = bash(&world.sabir(), &world);
    let inputs = [("COMMAND", "lint"), ("TOOLS", "tools.json")];
    let (output, written) = run_action(&world, command, &inputs);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(written.contains("sarif=out/lint.sarif") && written.contains("exit-code=4"));
    let sarif: Value = serde_json::from_str(&world.read("out/lint.sarif")).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let reserved = results
        .iter()
        .find(|result| result["ruleId"] == "reserved_name")
        .unwrap();
    let place = &reserved["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "tools.json");
    assert_eq!(place["region"]["startLine"], 3);
}

#[test]
fn a_task_leaves_its_answer_and_its_changes_as_files() {
    let world = World::new();
    let way = WAYS[1];
    let call = json!({"path": "a.txt", "content": "new\n"});
    let provider = world.plays(
        way,
        &[
            turn("", vec![("write_to_file", call)]),
            turn(
                "",
                vec![("attempt_completion", json!({"result": "Written."}))],
            ),
        ],
    );
    let command = bash(&world.sabir_with(&provider), &world);
    let inputs = [
        ("COMMAND", "run"),
        // A prompt that looks like an option is words.
        ("PROMPT", "--help me"),
        ("MODEL", way.model()),
        ("ARGUMENTS", "--approve=edits\n"),
    ];
    let (output, written) = run_action(&world, command, &inputs);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(written.contains("result=out/result.md") && written.contains("exit-code=0"));
    assert_eq!(world.read("out/result.md"), "Written.\n");
    assert!(world.read("out/changes.diff").contains("+new"));
    let asked = provider.received_requests()[0].body.to_string();
    assert!(asked.contains("--help me"), "{asked}");
}
