//! Tests modes and rules through the binary, also on resume.

use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, events, stderr, stdout, turn};

const WAY: Way = WAYS[1];

fn done() -> (&'static str, Value) {
    ("attempt_completion", json!({"result": "done"}))
}

/// The verdicts of the calls, in their order, with the reasons.
fn results(events: &[Value]) -> Vec<String> {
    let results = events
        .iter()
        .filter(|event| event["kind"] == "result" && event["name"] != "attempt_completion");
    results
        .map(|event| {
            format!(
                "{} {}",
                event["ending"].as_str().unwrap(),
                event["content"].as_str().unwrap()
            )
        })
        .collect()
}

/// Runs a task of these calls and checks their results.
#[track_caller]
fn check(world: &World, flags: &[&str], calls: Vec<(&'static str, Value)>, expected: &[&str]) {
    let provider = world.plays(WAY, &[turn("a", calls), turn("b", vec![done()])]);
    let output = world.run(
        &provider,
        WAY,
        &[flags, &["--output", "events", "go"]].concat(),
    );
    let results = results(&events(&output));
    assert_eq!(
        results.len(),
        expected.len(),
        "{results:?} {}",
        stderr(&output)
    );
    for (result, expected) in results.iter().zip(expected) {
        assert!(
            result.contains(expected),
            "{flags:?}: {result} should hold {expected}"
        );
    }
}

fn command(line: &str) -> (&'static str, Value) {
    ("execute_command", json!({"command": line}))
}

fn write(path: &str) -> (&'static str, Value) {
    ("write_to_file", json!({"path": path, "content": "x\n"}))
}

/// APR-011: no approval loosens a mode.
#[test]
fn a_plan_changes_nothing() {
    let world = World::new();
    let all = [
        "--mode",
        "plan",
        "--approve",
        "all",
        "--approve",
        "command=touch x",
        "--allow",
        "path=**",
    ];
    check(
        &world,
        &all,
        vec![
            command("touch x"),
            write("a.md"),
            command("ls > y"),
            command("echo seen"),
        ],
        &[
            "denied The policy did not allow this call: the mode `plan` runs only commands that are known to only read",
            "the mode `plan` does not change files",
            "denied",
            "seen",
        ],
    );
    assert_eq!(crate::world::names(world.work.path()), [""; 0]);
}

#[test]
fn the_docs_mode_changes_only_documents() {
    let world = World::new();
    check(
        &world,
        &["--mode", "architect", "--approve", "all"],
        vec![write("a.md"), write("src/b.rs"), command("touch c")],
        &["done", "the mode `docs` changes only", "denied"],
    );
    assert_eq!(world.read("a.md"), "x\n");
    assert!(!world.work.path().join("src").exists());
}

/// A tool outside of the mode is not offered, and the model learns about the mode.
#[test]
fn tools_outside_of_a_mode_are_not_offered() {
    let world = World::new();
    let provider = world.plays(WAY, &[turn("b", vec![done()])]);
    world.run(&provider, WAY, &["--mode", "ask", "go"]);
    let body: Value = provider.received_requests()[0].body.clone();
    let text = body.to_string();
    for name in ["read_file", "fetch_url", "Mode: ask."] {
        assert!(text.contains(name), "{name}");
    }
    let names: Vec<_> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].clone())
        .collect();
    for name in [
        "write_to_file",
        "execute_command",
        "replace_in_file",
        "stop_command",
    ] {
        assert!(!names.contains(&json!(name)), "{names:?}");
    }
}

#[test]
fn a_resumed_task_keeps_its_mode_unless_overridden() {
    let world = World::new();
    let provider = world.plays(WAY, &[turn("a", vec![write("a")]), turn("b", vec![])]);
    let output = world.run(
        &provider,
        WAY,
        &[
            "--mode",
            "plan",
            "--approve",
            "all",
            "--max-turns",
            "1",
            "go",
        ],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let id = world.only_task();
    let provider = world.plays(WAY, &[turn("a", vec![write("b")]), turn("b", vec![])]);
    let resume = |flags: &[&str]| {
        let flags = [
            &[
                "resume",
                "--approve",
                "all",
                "--max-turns",
                "1",
                "--output",
                "events",
            ],
            flags,
            &[&id],
        ]
        .concat();
        results(&events(
            &world.sabir_with(&provider).args(flags).output().unwrap(),
        ))
    };
    assert!(resume(&[])[0].contains("the mode `plan`"));
    let provider = world.plays(WAY, &[turn("a", vec![write("c")]), turn("b", vec![])]);
    let flags = [
        "resume",
        "--approve",
        "all",
        "--max-turns",
        "1",
        "--output",
        "events",
        "--mode",
        "code",
        &id,
    ];
    let output = world.sabir_with(&provider).args(flags).output().unwrap();
    assert!(
        results(&events(&output))[0].starts_with("done"),
        "{}",
        stderr(&output)
    );
    assert_eq!(world.read("c"), "x\n");
}

#[test]
fn users_can_define_modes() {
    let world = World::new();
    let config = world.home.path().join("own.toml");
    let text = "mode = \"tests\"\n[modes.tests]\nabout = \"tests only\"\ntools = [\"read\", \"edit\"]\nwrite = [\"tests/**\"]\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let calls = vec![write("tests/a"), write("b"), command("ls")];
    check(
        &world,
        &["--config", config, "--approve", "all"],
        calls,
        &["done", "the mode `tests` changes only tests/**", "denied"],
    );
    let listed = stdout(
        &world
            .sabir()
            .args(["modes", "--config", config])
            .output()
            .unwrap(),
    );
    for row in [
        "code ",
        "plan ",
        "docs ",
        "ask ",
        "debug ",
        "tests",
        "tests only",
        "(tests/**)",
    ] {
        assert!(listed.contains(row), "{row}: {listed}");
    }
    let json: Value = serde_json::from_str(&stdout(
        &world
            .sabir()
            .args(["modes", "--output", "json"])
            .output()
            .unwrap(),
    ))
    .unwrap();
    assert_eq!(json["modes"][0]["name"], "code");
    let wrong = |text: &str, said: &str| {
        std::fs::write(world.home.path().join("own.toml"), text).unwrap();
        // Every command that reads the file reports the mistake, whether it uses a mode or not.
        for words in [&["modes"][..], &["models"], &["policy", "explain"]] {
            let mut command = world.sabir();
            command.args(words).args(["--config", config]);
            let output = if words.len() > 1 {
                command.args(["--", "ls"])
            } else {
                &mut command
            }
            .output()
            .unwrap();
            assert_eq!(code(&output), 2, "{words:?}");
            assert!(
                stderr(&output).contains(said),
                "{words:?}: {}",
                stderr(&output)
            );
        }
    };
    wrong(
        "\n[modes.plan]\ntools = [\"edit\"]\n",
        "own.toml, line 2: [modes.plan]: this name has a meaning already",
    );
    wrong(
        "[modes.act]\ntools = [\"edit\"]\n",
        "own.toml, line 1: [modes.act]: this name has a meaning already",
    );
    wrong(
        "[modes.x]\ntools = [\"read\",\n \"edits\"]\n",
        "line 3: [modes.x]: `edits` is none of read, edit, command, fetch, server",
    );
    wrong(
        "[modes.x]\nwrite = [\"a\"]\n",
        "line 1: [modes.x]: it has no `tools`: name what may be done in it",
    );
    wrong(
        "[modes.x]\ntools = [\"edit\"]\nwrite = [\"a\", \"src/[a\"]\n",
        "line 3: [modes.x]: `[` has no meaning",
    );
    wrong(
        "[modes.x]\ntools = [\"edit\"]\nwrite = [\"~/a\"]\n",
        "line 3: [modes.x]: `~/a` is not in the workspace",
    );
    wrong(
        "[modes.x]\ntools = [\"edit\"]\nwrite = [\"\"]\n",
        "line 3: [modes.x]: ",
    );
    wrong(
        "model = \"a/b\"\nmode = \"cde\"\n",
        "line 2: there is no mode `cde`: did you mean `code`?",
    );
    wrong(
        "[modes.x]\ntool = [\"a\"]\n",
        "unknown key `tool` in `[modes.x]`: did you mean `tools`?",
    );
    let output = world
        .sabir()
        .args(["run", "--mode", "plann", "--model", "openai/x", "go"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
}

#[test]
fn command_line_rules_apply_to_tasks() {
    let world = World::new();
    world.write("a.txt", "a\n");
    std::fs::create_dir(world.work.path().join("svc")).unwrap();
    world.write("svc/.env", "KEY=1\n");
    check(
        &world,
        &[
            "--allow",
            "touch **",
            "--ask",
            "touch y",
            "--deny",
            "path=**/.env",
            "--deny",
            "wc **",
        ],
        vec![
            command("touch x"),
            command("touch y"),
            command("wc a.txt"),
            command("cat svc/.e*"),
            ("read_file", json!({"path": "svc/.env"})),
            command("cat a.txt"),
        ],
        &[
            "done",
            "a rule asks about it",
            "a rule forbids it",
            "a rule forbids the path",
            "is hidden by a rule",
            "Output:\na",
        ],
    );
    // PTH-031
    check(
        &world,
        &["--approve", "all", "--deny", "path=**/.env"],
        vec![
            command("mv svc/.env svc/e && cat svc/e"),
            ("search_files", json!({"regex": "KEY", "path": "."})),
        ],
        &["denied", "done"],
    );
    assert_eq!(world.read("svc/.env"), "KEY=1\n");
    let output = world
        .sabir()
        .args(["policy", "explain", "--deny", "path=../x", "--", "ls"])
        .output()
        .unwrap();
    assert_eq!(
        (
            code(&output),
            stderr(&output).contains("deny: `path=../x` is not a rule")
        ),
        (2, true)
    );
}

/// A link out of the workspace is not followed unasked.
#[test]
fn a_link_out_of_the_workspace_needs_approval() {
    let world = World::new();
    let secret = world.home.path().join("secret.txt");
    std::fs::write(&secret, "hush\n").unwrap();
    std::os::unix::fs::symlink(&secret, world.work.path().join("link")).unwrap();
    std::os::unix::fs::symlink(world.home.path(), world.work.path().join("folder")).unwrap();
    world.write("a.txt", "a\n");
    std::os::unix::fs::symlink("a.txt", world.work.path().join("inner")).unwrap();
    let leads = "leads out of the workspace by a link";
    check(
        &world,
        &[],
        vec![
            command("cat link"),
            command("cat l*k"),
            command("cat folder/secret.txt"),
            command("cat < link"),
            command("cat ./folder/../a.txt"),
            command("cat inner"),
        ],
        &[leads, leads, leads, leads, leads, "Output:\na"],
    );
}

/// PTH-032
#[test]
fn writes_in_a_whole_home_need_approval() {
    let world = World::new();
    let home = world.home.path().to_str().unwrap();
    let provider = world.plays(WAY, &[turn("a", vec![write("a")]), turn("b", vec![done()])]);
    let output = world.run(
        &provider,
        WAY,
        &["-C", home, "--approve", "all", "--output", "events", "go"],
    );
    assert!(
        stderr(&output).contains("your whole home"),
        "{}",
        stderr(&output)
    );
    assert!(results(&events(&output))[0].starts_with("denied"));
    let provider = world.plays(
        WAY,
        &[
            turn("a", vec![write("tmp/sabir-never")]),
            turn("b", vec![done()]),
        ],
    );
    let output = world.run(
        &provider,
        WAY,
        &[
            "-C",
            "/",
            "--no-checkpoints",
            "--approve",
            "all",
            "--output",
            "events",
            "go",
        ],
    );
    assert!(
        stderr(&output).contains("the whole machine"),
        "{}",
        stderr(&output)
    );
    assert!(results(&events(&output))[0].starts_with("denied"));
}

/// `policy simulate` on the journal of a real task.
#[test]
fn policy_simulate_checks_a_journal_again() {
    let world = World::new();
    world.write("a.txt", "a\n");
    let calls = vec![
        ("read_file", json!({"path": "a.txt"})),
        write("b.txt"),
        command("ls"),
        command("touch c"),
        command("git push --force"),
        ("read_file", json!({"path": ".env"})),
    ];
    check(
        &world,
        &["--approve", "edits"],
        calls,
        &["done", "done", "done", "denied", "denied", "denied"],
    );
    let id = world.only_task();
    let simulate = |flags: &[&str]| {
        let output = world
            .sabir()
            .args([&["policy", "simulate", &id], flags].concat())
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    };
    let text = simulate(&[]);
    assert!(
        text.contains("6 calls: allow 2, ask 4, deny 0, unknown 0"),
        "{text}"
    );
    assert!(
        text.contains("allow  was unasked         read_file `a.txt`"),
        "{text}"
    );
    assert!(
        text.contains("--approve 'kind=new files' would have answered 1 question"),
        "{text}"
    );
    let json = |flags: &[&str]| -> Value {
        serde_json::from_str(&simulate(&[flags, &["--output", "json"]].concat())).unwrap()
    };
    let counts = |value: &Value| {
        ["allow", "ask", "deny"].map(|name| value["counts"][name].as_u64().unwrap())
    };
    let value = json(&[
        "--approve",
        "edits",
        "--deny",
        "git **",
        "--allow",
        "touch *",
    ]);
    assert_eq!(counts(&value), [4, 1, 1], "{value}");
    assert_eq!(value["calls"][3]["was"], "denied");
    assert_eq!(value["calls"][3]["judgement"]["verdict"], "allow");
    let value = json(&["--mode", "plan", "--approve", "all"]);
    assert_eq!(counts(&value), [2, 1, 3], "{value}");
    let journal = world
        .home
        .path()
        .join(format!(".local/share/sabir/tasks/{id}.journal"));
    let output = world
        .sabir()
        .args(["policy", "simulate"])
        .arg(&journal)
        .output()
        .unwrap();
    assert_eq!(stdout(&output), text);
}

/// No request is made for a task that cannot start.
#[test]
fn a_missing_mode_prevents_a_resume() {
    let world = World::new();
    let config = world.home.path().join("own.toml");
    std::fs::write(&config, "[modes.mine]\ntools = [\"read\"]\n").unwrap();
    let provider = world.plays(WAY, &[turn("a", vec![])]);
    let own = [
        "--config",
        config.to_str().unwrap(),
        "--mode",
        "mine",
        "--max-turns",
        "1",
        "go",
    ];
    world.run(&provider, WAY, &own);
    let provider = world.provider(ReplyScript::new(Vec::new()));
    let output = world
        .sabir_with(&provider)
        .args(["resume", "--output", "json", &world.only_task()])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("there is no mode `mine`"),
        "{}",
        stderr(&output)
    );
}

/// A repository's own modes, as Roo Code has them.
#[test]
fn modes_of_a_folder_are_read() {
    let world = World::new();
    let text = r#"
customModes:
  - slug: writer
    name: Writer
    roleDefinition: You write documents.
    groups:
      - read
      - - edit
        - fileRegex: ^docs/.*\.md$
  - slug: code
    name: Mine
    groups: [read, edit, command]
  - slug: odd
    name: Odd
    groups: [[edit, {fileRegex: "(?!x)"}]]
"#;
    std::fs::write(world.work.path().join(".roomodes"), text).unwrap();
    let all = ["--mode", "writer", "--approve", "all"];
    check(
        &world,
        &all,
        vec![
            write("docs/a.md"),
            write("a.md"),
            write(".roomodes"),
            command("ls"),
        ],
        &[
            "done",
            "`a.md` cannot be written, and nothing was: the mode `writer` changes only /^docs/.*\\.md$/",
            "the mode `writer` changes only",
            "the mode `writer` does not run commands",
        ],
    );
    assert!(world.work.path().join("docs/a.md").exists());
    let listed = world
        .sabir()
        .args(["modes", "-C", world.work.path().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        stdout(&listed).contains("\nwriter        Writer\n"),
        "{}",
        stdout(&listed)
    );
    assert!(
        stderr(&listed).contains(".roomodes: the mode `code`: the name is that of a built-in mode")
    );
    let provider = world.plays(WAY, &[]);
    let output = world.run(&provider, WAY, &["--mode", "odd", "go"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("`fileRegex` `(?!x)` cannot be used"),
        "{}",
        stderr(&output)
    );
}
