//! Tests that the content of a repository can only restrict a task: the cases CFG-001 to CFG-047.
//!
//! Missing, because the features do not exist yet: MCP servers and their annotations (CFG-028, CFG-035 for their
//! entries, CFG-043), hooks of our own (CFG-032), an editor to open files in (CFG-040), deep links (CFG-041), imports of instruction
//! files (CFG-044: such files are not read at all), trust of package managers at the start (CFG-038: none is started).

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, names, stderr, stdout, turn};

fn done() -> (&'static str, Value) {
    ("attempt_completion", json!({"result": "done"}))
}

/// CFG-001 to CFG-027: edits are approved, and these files need an approval nevertheless.
#[test]
fn protected_files_need_approval_even_if_edits_are_approved() {
    let names = [
        ".git/hooks/pre-commit",
        ".git/config",
        ".gitmodules",
        ".gitattributes",
        ".vscode/settings.json",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".mcp.json",
        ".cursor/mcp.json",
        ".claude/settings.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".roo/mcp.json",
        ".clinerules",
        ".sabir/config.toml",
        ".Sabir/Config.toml",
        ".envrc",
        ".npmrc",
        ".yarnrc.yml",
        ".cargo/config.toml",
        ".bashrc",
        ".ripgreprc",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".devcontainer/devcontainer.json",
        ".pre-commit-config.yaml",
        ".husky/pre-commit",
        "sub/.vscode/settings.json",
        "AGENTS.md",
        "CLAUDE.md",
    ];
    let world = World::new();
    for chunk in names.chunks(5) {
        let calls = chunk
            .iter()
            .map(|name| ("write_to_file", json!({"path": name, "content": "x"})));
        let provider = world.plays(
            WAYS[1],
            &[turn("a", calls.collect()), turn("b", vec![done()])],
        );
        let output = world.run(
            &provider,
            WAYS[1],
            &["--approve", "edits", "--output", "events", "go"],
        );
        let events = events(&output);
        let results: Vec<_> = events
            .iter()
            .filter(|event| event["kind"] == "result")
            .collect();
        for (name, result) in chunk.iter().zip(results) {
            assert_eq!(result["ending"], "denied", "{name}: {result}");
            assert!(
                result["content"]
                    .as_str()
                    .unwrap()
                    .contains("protected path"),
                "{name}: {result}"
            );
        }
    }
    assert_eq!(crate::world::names(world.work.path()), [""; 0]);
}

/// CFG-029: a `.env` cannot redirect Sabir's folders. CFG-031: a `.sabir` cannot approve anything, and a notice says so.
#[test]
fn a_repository_cannot_approve_or_redirect_anything() {
    let world = World::new();
    let own = world.work.path().join(".sabir");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(
        own.join("config.toml"),
        "approve = [\"all\"]\nallow = [\"touch **\"]\n",
    )
    .unwrap();
    let home = own.display();
    world.write(
        ".env",
        &format!("SABIR_HOME={home}\nHOME={home}\nXDG_CONFIG_HOME={home}\nXDG_DATA_HOME={home}\n"),
    );
    world.write(".envrc", &format!("export XDG_CONFIG_HOME={home}\n"));
    std::fs::create_dir(world.work.path().join("sabir")).unwrap();
    world.write("sabir/config.toml", "approve = [\"all\"]\n");
    let calls = vec![("execute_command", json!({"command": "touch x"}))];
    let provider = world.plays(WAYS[1], &[turn("a", calls), turn("b", vec![done()])]);
    let output = world.run(&provider, WAYS[1], &["go"]);
    let said = "a repository cannot approve anything: the configuration in its folder `.sabir` is not read";
    assert_eq!(
        stderr(&output).matches(said).count(),
        1,
        "{}",
        stderr(&output)
    );
    assert!(!world.work.path().join("x").exists());
    assert_eq!(names(&own), ["config.toml"]);
    world.only_task();
}

/// An empty folder `.sabir` configures nothing: a killed sandbox may have left it as a placeholder.
#[test]
fn an_empty_folder_of_ours_gets_no_notice() {
    let world = World::new();
    std::fs::create_dir(world.work.path().join(".sabir")).unwrap();
    let provider = world.plays(WAYS[1], &[turn("a", vec![done()])]);
    let output = world.run(&provider, WAYS[1], &["go"]);
    let said = stderr(&output);
    assert!(!said.contains("cannot approve anything"), "{said}");
}

/// The proxy is named where it cannot be reached, without its password, instead of the base URL.
#[test]
fn an_unreachable_proxy_is_named() {
    for proxy in ["http://user:hidden@127.0.0.1:1", "http://127.0.0.1:1"] {
        let world = World::new();
        let mut command = world.sabir();
        command.env("HTTPS_PROXY", proxy);
        command.env("OPENAI_API_KEY", "x");
        command.args(["run", "--retries", "0", "-m", "openai/gpt-5", "hi"]);
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert!(said.contains("the proxy http://127.0.0.1:1"), "{said}");
        assert!(said.contains("`HTTPS_PROXY`"), "{said}");
        assert!(!said.contains("base URL is right"), "{said}");
        assert!(!said.contains("hidden"), "{said}");
    }
}

/// `tasks` lists those of another folder, and says plainly that a folder has none.
#[test]
fn the_tasks_of_another_folder_are_listed() {
    let world = World::new();
    let provider = world.plays(WAYS[1], &[turn("a", vec![done()])]);
    world.run(&provider, WAYS[1], &["greet", "everybody"]);
    let elsewhere = |words: &[&str]| {
        let mut command = world.sabir();
        command.current_dir(world.home.path());
        command.arg("tasks").args(words).output().unwrap()
    };
    let folder = world.work.path().display().to_string();
    let listed = elsewhere(&["-C", &folder]);
    assert!(
        stdout(&listed).contains("greet everybody"),
        "{}",
        stdout(&listed)
    );
    let none = elsewhere(&[]);
    assert!(
        stderr(&none).contains("there are no tasks of this folder"),
        "{}",
        stderr(&none)
    );
    let found = elsewhere(&["greet"]);
    assert!(
        stderr(&found).contains("there are no such tasks"),
        "{}",
        stderr(&found)
    );
}

/// CFG-037: a branch name is never executed, neither by tools nor by git, and is printed safely.
#[test]
fn a_branch_name_never_runs_as_a_command() {
    let world = World::new();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=n", "-c", "user.email=e"])
            .args(arguments)
            .current_dir(world.work.path());
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    git(&["checkout", "-q", "-b", "x$(touch${IFS}PWNED)"]);
    git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    let command = |line: &str| ("execute_command", json!({"command": line}));
    let calls = vec![
        command("git status"),
        command("git branch --show-current"),
        command("git checkout $(git branch --show-current)"),
    ];
    let provider = world.plays(WAYS[1], &[turn("a", calls), turn("b", vec![done()])]);
    let output = world.run(
        &provider,
        WAYS[1],
        &["--allow-denied", "--output", "events", "go"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("x$(touch${IFS}PWNED)"));
    world.sabir().args(["trust"]).output().unwrap();
    world.sabir().args(["doctor"]).output().unwrap();
    assert!(!world.work.path().join("PWNED").exists());
}

/// CFG-046: invalid rules allow nothing, and the task does not start.
#[test]
fn invalid_rules_allow_nothing() {
    let world = World::new();
    for (text, said) in [
        ("allow = [\"touch **\"", "cannot be used: line 1"),
        (
            "allow = [\"touch **\"]\ndeny = [\"* x\"]\n",
            "deny: `* x` is not a rule",
        ),
        (
            "approve = [\"all\", \"everything\"]\n",
            "`everything` is not an approval rule",
        ),
        ("approve = \"all\"\n", "cannot be used"),
        (
            "approve = [\"all\"]\nallowed = [\"touch **\"]\n",
            "line 2, column 1: unknown key `allowed`: did you mean `allow`?",
        ),
        (
            "deny = [\"path=\"]\napprove = [\"all\"]\n",
            "deny: `path=` is not a rule",
        ),
        // A pattern of another program's syntax, which Sabir would take literally, is refused.
        (
            "approve = [\"all\"]\ndeny = [\n \"path=a\",\n \"path=[a\"]\n",
            "line 4: deny: `[` has no meaning in `[a`",
        ),
        (
            "approve = [\"all\"]\ndeny = [\"path=*.{pem,key}\"]\n",
            "line 2: deny: `{` has no meaning",
        ),
        (
            "approve = [\"all\"]\ndeny = [\"path=~root/x\"]\n",
            "line 2: deny: `~root` would be another user's home folder",
        ),
        (
            "approve = [\"all\"]\nask = [\"path=!src/**\"]\n",
            "line 2: ask: `!src/**` cannot negate another rule",
        ),
        (
            "approve = [\"all\", \"host=*.example.org\"]\n",
            "line 1: approve: `*.example.org` is not a name of a host",
        ),
    ] {
        world.configure(text);
        let calls = vec![("execute_command", json!({"command": "touch x"}))];
        let provider = world.plays(WAYS[1], &[turn("a", calls), turn("b", vec![done()])]);
        let output = world.run(&provider, WAYS[1], &["go"]);
        assert_eq!(code(&output), 2, "{text}");
        assert!(
            stderr(&output).contains(said),
            "{text}: {}",
            stderr(&output)
        );
        assert!(provider.received_requests().is_empty());
        assert!(!world.work.path().join("x").exists());
    }
}

/// The same in a flag, where the message names no file.
#[test]
fn contradictory_flags_are_refused() {
    let world = World::new();
    for (flag, pattern, said) in [
        ("--deny", "path=[a", "deny: `[` has no meaning in `[a`"),
        (
            "--deny",
            "path=~root/x",
            "write the folder itself, as in /home/root",
        ),
        ("--allow", "path=a?", "allow: `?` has no meaning"),
        (
            "--approve",
            "host=https://example.org",
            "approve: `https://example.org` is not a name of a host",
        ),
    ] {
        let output = world
            .sabir()
            .args(["policy", "explain", flag, pattern, "--", "ls"])
            .output()
            .unwrap();
        assert_eq!(code(&output), 2, "{pattern}");
        assert!(
            stderr(&output).contains(said),
            "{pattern}: {}",
            stderr(&output)
        );
    }
    let output = world
        .sabir()
        .args([
            "policy",
            "explain",
            "--deny",
            "path=./~root",
            "--",
            "cat ~root",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

/// CFG-047: such a name is only a name.
#[test]
fn rules_for_odd_names_affect_no_other_files() {
    let world = World::new();
    let explain = |flags: &[&str]| {
        let output = world
            .sabir()
            .args([&["policy", "explain"], flags, &["--", "touch x"]].concat())
            .output()
            .unwrap();
        stdout(&output)
    };
    for name in ["toString", "__proto__", "constructor"] {
        assert!(explain(&["--allow", name, "--deny", name]).starts_with("ask"));
        assert!(explain(&["--allow", name, "--allow", "touch x"]).starts_with("allow"));
        let config = format!(
            "[modes.{name}]\ntools = [\"read\"]\n[providers.{name}]\nwire = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1\"\n"
        );
        let file = world.home.path().join("c.toml");
        std::fs::write(&file, config).unwrap();
        let listed = world
            .sabir()
            .args(["modes", "--config"])
            .arg(Path::new(&file))
            .output()
            .unwrap();
        assert!(stdout(&listed).contains(name), "{}", stderr(&listed));
    }
}
