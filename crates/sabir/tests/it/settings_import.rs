//! Tests `sabir import settings`: what is carried over from other programs, what is shown first, and what is left out.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::world::{World, code, stderr, stdout};

/// Writes a file below the home folder.
fn put(world: &World, name: &str, text: &str) {
    let path = world.home.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes the settings of all known programs.
fn put_all(world: &World) {
    put(
        world,
        ".claude.json",
        &json!({
            "numStartups": 3,
            "mcpServers": {"tracker": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer sk-ant-abcdefghijklmnopqrstuvwxyz0123"}}},
            "projects": {"/x": {"mcpServers": {"local": {"command": "y"}}}},
        })
        .to_string(),
    );
    put(
        world,
        ".claude/settings.json",
        &json!({
            "model": "opus",
            "permissions": {
                "allow": ["Bash(npm run test:*)", "Bash(*)", "WebSearch"],
                "ask": ["Bash(git push:*)"],
                "deny": ["Read(./.env)"],
                "defaultMode": "acceptEdits",
            },
            "hooks": {"Stop": []},
        })
        .to_string(),
    );
    put(
        world,
        ".codex/config.toml",
        "model = \"gpt-5.1\"\napproval_policy = \"never\"\n[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"server-files\"]\nenv = { LEVEL = \"debug\" }\n",
    );
    put(
        world,
        ".gemini/settings.json",
        "{\n  // comments are common\n  \"model\": {\"name\": \"gemini-3-pro\"},\n  \"tools\": {\"allowed\": [\"run_shell_command(git log)\"], \"exclude\": [\"run_shell_command(rm)\"]}\n}\n",
    );
    put(
        world,
        ".config/opencode/opencode.json",
        &json!({
            "model": "anthropic/claude-sonnet-4-5",
            "permission": {"edit": "allow", "bash": {"cargo check *": "allow", "*": "ask"}},
            "mcp": {"local": {"type": "local", "command": ["bun", "x", "server"], "enabled": false}},
        })
        .to_string(),
    );
    put(
        world,
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        &json!({"mcpServers": {"cline-one": {"command": "node", "args": ["a.js"], "autoApprove": ["x"]}, "files": {"command": "other"}}})
            .to_string(),
    );
    put(
        world,
        ".config/Code/User/settings.json",
        "{\n  \"editor.fontSize\": 14,\n  \"roo-cline.allowedCommands\": [\"git diff\"],\n  \"roo-cline.deniedCommands\": [\"git reset\"],\n}\n",
    );
}

#[test]
fn settings_of_every_program_are_shown_and_then_written() {
    let world = World::new();
    put_all(&world);
    let before: Vec<_> = [".claude.json", ".codex/config.toml"]
        .map(|name| std::fs::read(world.home.path().join(name)).unwrap())
        .to_vec();
    let run = |arguments: &[&str]| {
        let words = [&["import", "settings"], arguments].concat();
        world.sabir().args(words).output().unwrap()
    };
    // Shown, and not written where nobody can be asked.
    let shown = run(&[]);
    assert_eq!(code(&shown), 2, "{}", stderr(&shown));
    let text = stdout(&shown);
    for said in [
        "mcp.servers.tracker: https://mcp.example.com/mcp",
        "mcp.servers.files: LEVEL=… npx -y server-files",
        "mcp.servers.local: bun x server",
        "mcp.servers.cline-one: node a.js",
        "allow: npm run test **",
        "allow: git log **",
        "allow: cargo check **",
        "allow: git diff **",
        "ask: git push **",
        "deny: path=.env",
        "deny: rm **",
        "deny: git reset **",
        "model: openai/gpt-5.1",
        "`Bash(*)`: it allows every command",
        "`WebSearch`: Sabir has no such tool",
        "the model `opus`: no full name",
        "permissions.defaultMode",
        "hooks: they run with `import",
        "approval_policy",
        "model: gemini/gemini-3-pro: codex already gives one",
        "permission.edit",
        "`autoApprove` is not carried over",
        "mcp.servers.files: other: codex already gives one",
        "the MCP servers of the folder /x alone",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("sk-ant-"), "{text}");
    let config = world.home.path().join(".config/sabir/config.toml");
    assert!(!config.exists());
    let written = run(&["--yes"]);
    assert_eq!(code(&written), 0, "{}", stderr(&written));
    let mode = std::fs::metadata(&config).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let check = world.sabir().args(["config", "check"]).output().unwrap();
    assert_eq!(code(&check), 0, "{}", stderr(&check));
    let list = world
        .sabir()
        .args(["mcp", "list", "--json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_str(&stdout(&list)).unwrap();
    let names: Vec<&str> = list["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["cline-one", "files", "local", "tracker"]);
    assert_eq!(list["servers"][2]["disabled"], true);
    // A second time there is nothing to do, and the files of the others are as they were.
    let again = run(&[]);
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    assert!(stdout(&again).contains("(nothing)"), "{}", stdout(&again));
    let after: Vec<_> = [".claude.json", ".codex/config.toml"]
        .map(|name| std::fs::read(world.home.path().join(name)).unwrap())
        .to_vec();
    assert_eq!(before, after);
}

#[test]
fn an_import_keeps_what_the_configuration_has() {
    let world = World::new();
    put_all(&world);
    let path = world.configure(
        "# mine\nmodel = \"anthropic/mine\" # keep\nallow = [\"git log **\"]\n\n[mcp.servers.files]\ncommand = \"mine\"\n",
    );
    let words = ["import", "settings", "codex", "gemini", "--yes"];
    let output = world.sabir().args(words).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.starts_with("# mine\nmodel = \"anthropic/mine\" # keep\n"),
        "{text}"
    );
    assert!(
        text.contains("command = \"mine\"") && !text.contains("npx"),
        "{text}"
    );
    assert!(text.contains("deny = [\"rm **\"]"), "{text}");
    assert_eq!(text.matches("git log **").count(), 1, "{text}");
    let unknown = world
        .sabir()
        .args(["import", "settings", "vim"])
        .output()
        .unwrap();
    assert_eq!(code(&unknown), 2);
    assert!(
        stderr(&unknown).contains("claude-code, codex"),
        "{}",
        stderr(&unknown)
    );
    // Nothing to import is not a mistake, and a broken file is named.
    let world = World::new();
    let none = world.sabir().args(["import", "settings"]).output().unwrap();
    assert_eq!(code(&none), 0);
    assert!(stdout(&none).contains("No settings"), "{}", stdout(&none));
    put(&world, ".gemini/settings.json", "{broken");
    let broken = world.sabir().args(["import", "settings"]).output().unwrap();
    assert_eq!(code(&broken), 0, "{}", stderr(&broken));
    assert!(
        stdout(&broken).contains("the whole file"),
        "{}",
        stdout(&broken)
    );
}

/// No name in the settings of another program makes a line that passes for one of the review, or of Sabir.
#[test]
fn names_of_other_programs_forge_no_line() {
    let world = World::new();
    let forged = "x\n  deny: everything\nsabir: forged\r\x1b[2K\tz";
    put(
        &world,
        ".claude.json",
        &json!({
            "mcpServers": {forged: {"command": "y"}, "s": {"command": forged}, "u": {"type": "http", "url": forged}},
            "projects": {forged: {"mcpServers": {"local": {"command": "y"}}}},
        })
        .to_string(),
    );
    put(
        &world,
        ".claude/settings.json",
        &json!({"model": forged, "permissions": {"allow": [forged, format!("Bash({forged})")], "deny": [forged, format!("Read({forged})")]}})
            .to_string(),
    );
    put(
        &world,
        ".config/opencode/opencode.json",
        &json!({"model": format!("a/{forged}"), "permission": {forged: "allow", "bash": {forged: "ask", "z": forged}}}).to_string(),
    );
    put(
        &world,
        ".gemini/settings.json",
        &json!({"model": {"name": forged}, "tools": {"allowed": [forged], "exclude": [format!("run_shell_command({forged})")]}}).to_string(),
    );
    let output = world.sabir().args(["import", "settings"]).output().unwrap();
    let shown = stdout(&output) + &stderr(&output);
    assert!(shown.contains("forged"), "{shown}");
    for line in shown.lines() {
        let is_forged = line.starts_with("sabir: forged") || line.starts_with("  deny: everything");
        assert!(
            !is_forged && !line.contains(['\x1b', '\r', '\t']),
            "{shown}"
        );
    }
}
