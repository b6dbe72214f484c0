//! Tests which edit tool a model is offered.

use serde_json::{Value, json};

use crate::world::{Turn, WAYS, World, code, events, stderr, turn};

const EDIT_TOOLS: [&str; 3] = ["replace_in_file", "edit_file", "apply_patch"];

fn end() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// The edit tools in a request.
fn offered(body: &Value) -> Vec<String> {
    let name = |tool: &Value| {
        tool.get("function").unwrap_or(tool)["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let names = body["tools"].as_array().unwrap().iter().map(name);
    names.filter(|name| EDIT_TOOLS.contains(&&**name)).collect()
}

#[track_caller]
fn check(model: &str, arguments: &[&str], config: &str, expected: &str) {
    let world = World::new();
    let way = WAYS[usize::from(!model.starts_with("anthropic"))];
    let provider = world.plays(way, &[end()]);
    let config = world.write("config.toml", config);
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        model,
        "--config",
        config.to_str().unwrap(),
        "--output",
        "events",
        "do it",
    ]);
    let output = command.args(arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        offered(&provider.received_requests()[0].body),
        [expected],
        "{model} {arguments:?} {config:?}"
    );
    assert_eq!(events(&output)[0]["edit_tool"], expected);
}

#[test]
fn a_model_gets_the_edit_tool_of_its_family() {
    check("openai/scripted", &[], "", "replace_in_file");
    check("openai/gpt-5.9-codex", &[], "", "apply_patch");
    check("anthropic/claude-sonnet-4-5", &[], "", "edit_file");
    check(
        "openai/gpt-5",
        &["--edit-tool", "replace_in_file"],
        "edit_tool = \"edit_file\"\n",
        "replace_in_file",
    );
    check(
        "openai/gpt-5",
        &[],
        "edit_tool = \"edit_file\"\n",
        "edit_file",
    );
    check(
        "openai/scripted",
        &[],
        "[[models]]\npattern = \"script\"\nedit_tool = \"apply_patch\"\n",
        "apply_patch",
    );
}

#[test]
fn an_unknown_edit_tool_is_refused() {
    let world = World::new();
    let output = world
        .sabir()
        .args(["run", "--model", "openai/x", "--edit-tool", "sed", "do it"])
        .output()
        .unwrap();
    let expected = "`sed` is not an edit tool: the edit tools are `replace_in_file`, `edit_file`, `apply_patch`";
    // A missing key is reported first.
    assert_eq!(code(&output), 2);
    let config = world.write(
        "config.toml",
        "[[models]]\npattern = \"x\"\nedit_tool = \"sed\"\n",
    );
    let output = world
        .sabir()
        .args(["models", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert!(
        code(&output) == 2 && stderr(&output).contains(expected),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_task_keeps_its_edit_tool() {
    let world = World::new();
    let touch = turn("", vec![("execute_command", json!({"command": "true"}))]);
    let provider = world.plays(WAYS[1], &[touch, end()]);
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        "openai/gpt-5",
        "--approve",
        "all",
        "--max-turns",
        "1",
        "--output",
        "text",
        "do it",
    ]);
    assert_eq!(code(&command.output().unwrap()), 6);
    let id = world.only_task();
    let resume = |more: &[&str]| {
        let mut command = world.sabir_with(&provider);
        command
            .args(["resume", "--output", "text"])
            .args(more)
            .arg(&id)
            .output()
            .unwrap()
    };
    let other = resume(&["--edit-tool", "edit_file"]);
    assert_eq!(code(&other), 2);
    assert!(
        stderr(&other).contains("locked to the edit tool `apply_patch`"),
        "{}",
        stderr(&other)
    );
    assert_eq!(code(&resume(&["--model", "openai/scripted"])), 0);
    assert_eq!(
        offered(&provider.received_requests()[1].body),
        ["apply_patch"]
    );
}

/// Models call the tool that they were trained on, offered or not.
#[test]
fn an_edit_tool_that_is_not_offered_runs() {
    for way in [WAYS[0], WAYS[1], WAYS[2], WAYS[3]] {
        let world = World::new();
        world.write("a.txt", "one\ntwo\n");
        let blocks = "------- SEARCH\ntwo\n=======\n2\n+++++++ REPLACE\n";
        let edit = turn(
            "",
            vec![("replace_in_file", json!({"path": "a.txt", "diff": blocks}))],
        );
        let provider = world.plays(way, &[edit, end()]);
        let output = world.run(
            &provider,
            way,
            &["--approve", "all", "--edit-tool", "apply_patch", "do it"],
        );
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(world.read("a.txt"), "one\n2\n", "{way:?}");
        let first = provider.received_requests()[0].body.to_string();
        assert!(
            first.contains("apply_patch") && !first.contains("replace_in_file"),
            "{first}"
        );
    }
}

/// `parse` knows all of them, whichever a model would be offered; `prompt` shows one.
#[test]
fn all_edit_tools_are_understood_and_one_is_offered() {
    let world = World::new();
    for (tool, arguments) in [
        (
            "edit_file",
            "<path>a</path><old_string>b</old_string><new_string>c</new_string>",
        ),
        (
            "replace_in_file",
            "<path>a</path><diff>------- SEARCH\na\n=======\nb\n+++++++ REPLACE</diff>",
        ),
        (
            "apply_patch",
            "<patch>*** Begin Patch\n*** Delete File: a\n*** End Patch</patch>",
        ),
    ] {
        let output = world.piped(
            &["parse", "--output", "json"],
            &format!("<{tool}>{arguments}</{tool}>"),
        );
        let parsed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let call = &parsed["parts"][0];
        assert_eq!(
            (code(&output), &call["name"], &call["state"]),
            (0, &json!(tool), &json!("complete")),
            "{parsed}"
        );
    }
    let prompt = world.piped(&["prompt", "--dialect", "cline"], "");
    let prompt = String::from_utf8(prompt.stdout).unwrap();
    assert!(
        prompt.contains("replace_in_file")
            && !prompt.contains("edit_file")
            && !prompt.contains("apply_patch")
    );
}

/// A first request is at most 10 KB natively; in bytes / 4, at most 2500 tokens natively and 3000 prompted.
#[test]
fn a_first_request_is_small() {
    for tool in EDIT_TOOLS {
        for (way, most) in WAYS.into_iter().zip([10_000, 10_000, 12_000, 12_000]) {
            let world = World::new();
            let provider = world.plays(way, &[end()]);
            let output = world.run(&provider, way, &["--edit-tool", tool, "do it"]);
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            let bytes = provider.received_requests()[0].body.to_string().len();
            assert!(bytes <= most, "{tool}, {way:?}: {bytes} bytes");
        }
    }
}
