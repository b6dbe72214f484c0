//! Tests bad input: one clear sentence, exit code 2, and no changes.

use crate::world::{World, code, names, stderr};

/// Runs the binary and checks the sentence; the home and the workspace stay empty.
fn check(world: &World, arguments: &[&str], environment: &[(&str, &str)], expected: &[&str]) {
    let before = names(world.work.path());
    let output = world
        .sabir()
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let errors = stderr(&output);
    assert_eq!(code(&output), 2, "{arguments:?}: {errors}");
    for part in expected {
        assert!(
            errors.contains(part),
            "{arguments:?}: no `{part}` in: {errors}"
        );
    }
    assert!(!errors.contains("panicked"), "{errors}");
    assert_eq!(names(world.work.path()), before);
    assert!(
        !world.home.path().join(".local").exists(),
        "nothing was begun"
    );
}

#[test]
fn missing_keys_and_unknown_models_are_explained() {
    let world = World::new();
    check(
        &world,
        &["run", "--model", "openai/gpt-5", "x"],
        &[],
        &["no key for openai", "OPENAI_API_KEY"],
    );
    check(
        &world,
        &["run", "--model", "claude-sonnet-4", "x"],
        &[],
        &["ANTHROPIC_API_KEY"],
    );
    check(
        &world,
        &["run", "x"],
        &[],
        &["no model is chosen", "--model"],
    );
    check(
        &world,
        &["run", "--model", "wonder", "x"],
        &[],
        &["`wonder` is unknown", "PROVIDER/NAME"],
    );
    check(
        &world,
        &["run", "--model", "nowhere/x", "x"],
        &[],
        &["`nowhere/x` is unknown"],
    );
    let key = [("OPENAI_API_KEY", "k")];
    check(
        &world,
        &["run", "--model", "openai/x", "--protocol", "morse", "x"],
        &key,
        &["`morse` is not a protocol", "cline"],
    );
    check(
        &world,
        &["run", "--model", "openai/x", "--approve", "most", "x"],
        &key,
        &["`most` is not an approval rule"],
    );
    check(
        &world,
        &["run", "--model", "openai/x", "--max-time", "soon", "x"],
        &key,
        &["`soon` is not a time"],
    );
    let endless = [
        "run",
        "--model",
        "openai/x",
        "--max-time",
        "18446744073709551615",
        "x",
    ];
    check(&world, &endless, &key, &["is not a time"]);
    check(
        &world,
        &["run", "--model", "openai/x", " "],
        &key,
        &["there is no task"],
    );
    check(
        &world,
        &["run", "--model", "openai/x", "-C", "no/such/folder", "x"],
        &key,
        &["no/such/folder"],
    );
}

#[test]
fn a_model_unknown_to_the_provider_is_explained() {
    use sabir_testkit::{ProviderReply, ReplyScript};
    let world = World::new();
    let body = r#"{"error":{"message":"The model `gpt-9` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#;
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        ProviderReply::error_status(404).with_body(body)
    }));
    let output = world
        .sabir_with(&provider)
        .args(["run", "--model", "openai/gpt-9", "x"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("gpt-9"), "{}", stderr(&output));
}

#[test]
fn invalid_configuration_is_explained() {
    let world = World::new();
    let config = world.home.path().join("config.toml");
    let path = config.display().to_string();
    let run = ["run", "--config", &path, "--model", "openai/x", "x"];
    check(&world, &run, &[], &["config.toml cannot be read"]);
    std::fs::write(&config, "model = \"a\"\nprotocol = [\n").unwrap();
    check(&world, &run, &[], &["config.toml", "line 2", "column"]);
    std::fs::write(&config, "modell = \"a\"\n").unwrap();
    check(&world, &run, &[], &["modell", "line 1"]);
    std::fs::write(&config, b"\xff\xfe").unwrap();
    check(&world, &run, &[], &["not UTF-8"]);
    std::fs::write(
        &config,
        "[providers.box]\nwire = \"morse\"\nbase_url = \"http://127.0.0.1:1\"\n",
    )
    .unwrap();
    check(
        &world,
        &["run", "--config", &path, "--model", "box/x", "x"],
        &[],
        &["`morse` is not a wire"],
    );
}

/// The command never blocks: neither on a FIFO nor on a terminal.
#[test]
fn a_configuration_must_be_a_regular_file() {
    let world = World::new();
    let fifo = world.write("fifo", "");
    std::fs::remove_file(&fifo).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for arguments in [
        &["run", "--config", "fifo", "--model", "openai/x", "x"][..],
        &["--config", "fifo", "--model", "openai/x", "do", "x"],
        &["policy", "explain", "--config", "fifo", "--", "ls"],
        &["modes", "--config", "fifo"],
    ] {
        check(
            &world,
            arguments,
            &[],
            &[
                "fifo cannot be read: it is not a regular file",
                "write it into one",
            ],
        );
    }
    check(
        &world,
        &["modes", "--config", "."],
        &[],
        &[". cannot be read: it is a folder"],
    );
    check(
        &world,
        &["modes", "--config", "/dev/tty"],
        &[],
        &["not a regular file"],
    );
    let output = world
        .sabir()
        .args(["modes", "--config", "/dev/null"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

/// With options before it, a command is still a command and not the prompt of a task.
#[test]
fn options_before_a_command_are_explained() {
    let world = World::new();
    world.write("c.toml", "");
    // They move behind the command, which says if it has them.
    let explained = world
        .sabir()
        .args(["--config", "c.toml", "policy", "explain", "--", "ls"])
        .output()
        .unwrap();
    assert_eq!(code(&explained), 0, "{}", stderr(&explained));
    check(
        &world,
        &["--model", "openai/x", "run", "x"],
        &[],
        &["no key for openai"],
    );
    check(
        &world,
        &["--approve", "all", "tasks"],
        &[],
        &["unexpected argument '--approve'"],
    );
    // These are prompts, so the command fails only at the missing key.
    for words in [
        &["--", "run", "the", "tests"][..],
        &["run the tests"],
        &["please", "run", "x"],
        &["please", "--", "run"],
    ] {
        check(
            &world,
            &[&["--model", "openai/x"], words].concat(),
            &[],
            &["no key for openai"],
        );
    }
    let output = world
        .sabir()
        .args(["--dialects", "c.toml", "modes"])
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("c.toml holds no dialect"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn invalid_tools_and_dialects_are_explained() {
    let world = World::new();
    let tools = world.write("tools.json", "[{\"name\": \"f\"},\n oops]");
    let tools = tools.display().to_string();
    check(
        &world,
        &["parse", "--tools", &tools],
        &[],
        &["tools.json", "line 2"],
    );
    check(
        &world,
        &["parse", "--tools", "missing.json"],
        &[],
        &["missing.json cannot be read"],
    );
    check(
        &world,
        &["parse", "--dialect", "latin"],
        &[],
        &["`latin` is not a dialect", "invoke"],
    );
    check(
        &world,
        &["wire", "decode", "--wire", "telex"],
        &[],
        &["`telex` is not a wire"],
    );
    world.write("tools.json", "[{\"name\": \"f\"}, {\"name\": \"f\"}]");
    check(
        &world,
        &["prompt", "--tools", &tools],
        &[],
        &["`f` is defined twice"],
    );
}

#[test]
fn unknown_tasks_are_explained() {
    let world = World::new();
    check(&world, &["log", "abc"], &[], &["there is no task `abc`"]);
    check(
        &world,
        &["resume", "abc", "--output", "text"],
        &[],
        &["there is no task `abc`"],
    );
    check(
        &world,
        &["resume", "--output", "text"],
        &[],
        &["no task that could be resumed"],
    );
    check(&world, &["tour", "--folder", "."], &[], &["cannot be made"]);
}
