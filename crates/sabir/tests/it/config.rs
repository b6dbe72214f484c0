//! Tests `sabir config` and `sabir help config`: what a user sees, what is written, and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::world::{World, code, stderr, stdout};

fn sabir(world: &World, arguments: &[&str]) -> Output {
    world.sabir().args(arguments).output().unwrap()
}

/// Runs a command that must succeed, and returns its output.
fn printed(world: &World, arguments: &[&str]) -> String {
    let output = sabir(world, arguments);
    assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs a command that must be refused, and returns the message.
fn refused(world: &World, arguments: &[&str]) -> String {
    let output = sabir(world, arguments);
    assert_eq!(code(&output), 2, "{arguments:?}: {}", stdout(&output));
    format!("{}{}", stdout(&output), stderr(&output))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Every mistake is reported at once, each with its line and what was meant. No value is shown, since it may be a key.
#[test]
fn a_check_reports_every_mistake_with_its_line() {
    let world = World::new();
    world.configure(
        "modle = \"openai/gpt-5\"\nmax_turns = \"many\"\nrecovery = \"maybe\"\napprove = [\"edits\", \"everything\"]\nat_once = 2\n\
         ask_timeout = \"soon\"\nprotocol = \"clien\"\n\n[subtasks]\nat_onec = 2\nat_once = 0\nreview = 1\n\n[providers.box]\n\
         wire = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\nidle_second = 5\nretries = \"sk-secret-4711\"\n\n[[models]]\n\
         pattern = \"a\"\n\n[[models]]\npattern = \"b\"\nimage = true\nedit_tool = \"ed\"\n\n[gateway.models.q]\nfaulty_calls = \"retry\"\n",
    );
    let told = refused(&world, &["config", "check"]);
    for line in [
        "config.toml, line 1: unknown key `modle`: did you mean `model`?",
        "config.toml, line 2: `max_turns` must be a whole number, as in `max_turns = 100`",
        "config.toml, line 3: `recovery` must be `off`, `ask` or `on`, as in",
        "config.toml, line 4: approve: `everything` is not an approval rule",
        "config.toml, line 5: unknown key `at_once`: did you mean `subtasks.at_once`?",
        "config.toml, line 6: ask_timeout: `soon`",
        "config.toml, line 7: `clien` is not a dialect: did you mean `cline`?",
        "config.toml, line 10: unknown key `at_onec` in `[subtasks]`: did you mean `at_once`?",
        "config.toml, line 11: [subtasks] at_once: give 1 or more",
        "config.toml, line 12: `subtasks.review` must be true or false",
        "config.toml, line 14: [providers.box]: `openai` is not a wire",
        "config.toml, line 17: unknown key `idle_second` in `[providers.box]`: did you mean `idle_seconds`?",
        "config.toml, line 18: `providers.box.retries` must be a whole number",
        "config.toml, line 25: unknown key `image` in `[models.1]`: did you mean `images`?",
        "config.toml, line 26: edit_tool: `ed`",
        "give one of `to` and `upstreams`",
        "16 problems\n",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    assert!(!told.contains("4711"), "{told}");
    let output = sabir(&world, &["config", "check", "--output", "json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["problems"].as_array().unwrap().len(), 16);
    assert_eq!(report["problems"][4]["key"], "at_once");
    assert_eq!(report["problems"][4]["line"], 5);

    // A file by its name, one that is not TOML, one that is right, and none.
    let other = world.write("other.toml", "max_turns = = 1\n");
    let told = refused(&world, &["config", "check", "other.toml"]);
    assert!(told.contains("other.toml, line 1: "), "{told}");
    std::fs::write(&other, "max_turns = 1\n").unwrap();
    assert!(
        printed(&world, &["config", "check", "other.toml"]).contains("other.toml: no problems")
    );
    assert!(
        refused(&world, &["config", "check", "none.toml"]).contains("none.toml cannot be read")
    );
    let fresh = World::new();
    assert!(printed(&fresh, &["config", "check"]).contains("there is no configuration file"));
    // A key that others may read.
    let path = fresh.configure("[providers.openai]\nkey = \"sk-secret\"\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&fresh, &["config", "check"]).contains("(mode 644): chmod 600"));
}

/// Other commands stop at the first mistake, and say it in the same words.
#[test]
fn every_command_suggests_the_key_that_was_meant() {
    let world = World::new();
    world.configure("max_turn = 3\n");
    let told = refused(&world, &["models"]);
    assert!(
        told.contains("line 1, column 1: unknown key `max_turn`: did you mean `max_turns`?"),
        "{told}"
    );
}

/// Whatever the file holds, help can be read and shells can complete.
#[test]
fn a_broken_file_keeps_nobody_from_help() {
    let world = World::new();
    world.configure("max_turn = 3\n");
    for arguments in [
        &["help", "config"][..],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        assert!(!printed(&world, arguments).is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_value_is_set_and_comments_stay() {
    let world = World::new();
    let path =
        world.configure("# mine\nmax_turns = 7 # few\n\n[subtasks] # helpers\noffered = true\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let set = |arguments: &[&str]| printed(&world, &[&["config", "set"], arguments].concat());
    let told = set(&["max_turns", "50"]);
    assert!(told.starts_with("max_turns = 50  # was 7; in "), "{told}");
    set(&["subtasks.at_once", "2"]);
    set(&["approve", "edits", "command=cargo test"]);
    set(&["ignore_files", "[\".hidden\"]"]);
    set(&["max_cost", "0.5"]);
    set(&["providers.box.base_url", "http://127.0.0.1:8000/v1"]);
    set(&["model", "box/m"]);
    set(&["models.0.pattern", "m"]);
    set(&["models.0.prices.input", "0.5"]);
    set(&["gateway.models.\"gpt-4.1\".to", "box/m"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = "# mine\nmax_turns = 50 # few\napprove = [\"edits\", \"command=cargo test\"]\nignore_files = [\".hidden\"]\n\
        max_cost = 0.5\nmodel = \"box/m\"\n\n[subtasks] # helpers\noffered = true\nat_once = 2\n\n[providers.box]\n\
        base_url = \"http://127.0.0.1:8000/v1\"\n\n[[models]]\npattern = \"m\"\nprices = { input = 0.5 }\n\n\
        [gateway.models.\"gpt-4.1\"]\nto = \"box/m\"\n";
    assert_eq!(text, expected);
    assert_eq!(mode(&path), 0o600);
    assert!(printed(&world, &["config", "check"]).contains("no problems"));
    let told = printed(&world, &["config", "unset", "subtasks"]);
    assert!(told.starts_with("# subtasks is removed from "), "{told}");
    assert!(!std::fs::read_to_string(&path).unwrap().contains("subtasks"));
    assert!(
        refused(&world, &["config", "unset", "subtasks.depth"]).contains("is not set in the file")
    );
}

#[test]
fn what_cannot_be_used_is_refused_and_the_file_stays() {
    let world = World::new();
    let path = world.configure("max_turns = 7\n");
    let before = std::fs::read_to_string(&path).unwrap();
    for (key, value, said) in [
        ("max_turn", "1", "did you mean `max_turns`?"),
        ("at_once", "1", "did you mean `subtasks.at_once`?"),
        ("subtask.at_once", "1", "did you mean `subtasks"),
        ("frobnicate", "1", "`sabir help config` lists all keys"),
        (
            "max_turns",
            "many",
            "`max_turns` is a whole number: for example 100",
        ),
        ("max_turns", "-1", "is left as it is: "),
        ("network", "yes", "expected true, false or \"registries\""),
        ("recovery", "maybe", "must be `off`, `ask` or `on`"),
        (
            "compact_at",
            "5",
            "compact_at: give a percentage of the context from 10 to 95",
        ),
        ("sandbox", "9", "sandbox: "),
        (
            "approve",
            "everything",
            "`everything` is not an approval rule",
        ),
        ("mode", "plain", "did you mean `plan`?"),
        (
            "subtasks",
            "1",
            "`subtasks` is a table: set a key of it, such as subtasks.",
        ),
        ("models.3.native", "true", "0 entries of [[models]]"),
        ("a..b", "1", "`a..b` is not a key"),
    ] {
        let told = refused(&world, &["config", "set", key, value]);
        assert!(told.contains(said), "{key}: {told}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "{key}");
    }
    // A mistake that was there before does not keep the user from setting something else.
    world.configure("modle = \"x\"\n");
    printed(&world, &["config", "set", "max_turns", "3"]);
    // A file that is not TOML is left alone.
    world.configure("max_turns = = 1\n");
    assert!(refused(&world, &["config", "set", "max_turns", "3"]).contains("it is not TOML"));
}

#[test]
fn a_new_file_is_private_and_config_chooses_another() {
    let world = World::new();
    printed(&world, &["config", "set", "max_turns", "3"]);
    let own = world.home.path().join(".config/sabir/config.toml");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "max_turns = 3\n");
    assert_eq!(mode(&own), 0o600);
    let other = world.write("other.toml", "# shared\n");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
    printed(
        &world,
        &["--config", "other.toml", "config", "set", "max_turns", "4"],
    );
    assert!(
        std::fs::read_to_string(&other)
            .unwrap()
            .contains("max_turns = 4")
    );
    assert_eq!(
        mode(&other),
        0o644,
        "no key is in it, and it is not the user's own"
    );
    printed(
        &world,
        &[
            "--config",
            "other.toml",
            "config",
            "set",
            "--user",
            "max_turns",
            "5",
        ],
    );
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "max_turns = 5\n");
    let told = printed(
        &world,
        &[
            "--config",
            "other.toml",
            "config",
            "set",
            "providers.openai.key",
            "sk-secret",
        ],
    );
    assert!(
        told.contains("\"(hidden)\"") && !told.contains("sk-secret"),
        "{told}"
    );
    assert_eq!(mode(&other), 0o600, "a key is in it");
}

#[test]
fn a_value_names_its_source() {
    let world = World::new();
    world.configure(
        "# mine\nmax_turns = 7\n\n[subtasks]\nat_once = 2\n\n[providers.box]\nbase_url = \"http://127.0.0.1:1/v1\"\nkey = \"sk-secret-1\"\n",
    );
    std::fs::set_permissions(
        world.home.path().join(".config/sabir/config.toml"),
        std::fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let get = |key: &str| {
        let mut command = world.sabir();
        command
            .env("OPENAI_API_KEY", "sk-secret-2")
            .env("OPENAI_BASE_URL", "http://127.0.0.1:2/v1");
        let output = command.args(["config", "get", key]).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    };
    assert!(
        get("max_turns").starts_with("max_turns = 7  # /"),
        "{}",
        get("max_turns")
    );
    assert!(get("max_turns").ends_with("config.toml, line 2\n"));
    assert_eq!(get("compact_at"), "compact_at = 80  # the default\n");
    assert_eq!(
        get("model"),
        "# model: not set; by default: none: `--model` is needed\n"
    );
    assert!(
        get("subtasks").contains("at_once = 2  # ")
            && get("subtasks").contains("subtasks.depth = 2  # the default")
    );
    assert_eq!(
        get("providers.openai.base_url"),
        "providers.openai.base_url = \"http://127.0.0.1:2/v1\"  # the variable OPENAI_BASE_URL\n"
    );
    assert_eq!(
        get("providers.openai.key"),
        "providers.openai.key = \"(hidden)\"  # the variable OPENAI_API_KEY\n"
    );
    let all = {
        let mut command = world.sabir();
        command.env("OPENAI_API_KEY", "sk-secret-2");
        let output = command
            .args(["config", "get", "--output", "json"])
            .output()
            .unwrap();
        stdout(&output)
    };
    let values: Value = serde_json::from_str(&all).unwrap();
    let keys: Vec<&str> = values
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value["key"].as_str().unwrap())
        .collect();
    for key in [
        "max_turns",
        "subtasks.at_once",
        "providers.box.base_url",
        "providers.box.key",
        "providers.openai.key",
    ] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    assert!(
        !all.contains("sk-secret") && !keys.contains(&"compact_at"),
        "{all}"
    );
    // The output is TOML, so it can be kept.
    let told = printed(&world, &["config", "get"]);
    assert!(told.lines().all(|line| line.contains(" = ")), "{told}");
    assert!(refused(&world, &["config", "get", "max_turn"]).contains("did you mean `max_turns`?"));
    // The file that `--config` names.
    world.write("other.toml", "max_turns = 9\n");
    let told = printed(
        &world,
        &["--config", "other.toml", "config", "get", "max_turns"],
    );
    assert_eq!(told, "max_turns = 9  # other.toml, line 1\n");
}

#[test]
fn the_files_that_are_read_are_listed_in_order() {
    let world = World::new();
    world.write("AGENTS.md", "Be brief.\n");
    world.write(
        "mine.toml",
        "name = \"mine\"\nmachine = \"json\"\nopen = \"<mine>\"\n",
    );
    world.configure("max_turns = 1\nignore_files = [\".hidden\"]\n");
    let told = printed(&world, &["config", "path", "--dialects", "mine.toml"]);
    let at = |part: &str| told.find(part).unwrap_or_else(|| panic!("{part}\n{told}"));
    let config = world.home.path().join(".config/sabir/config.toml");
    assert!(
        told.starts_with(&format!(" 1. configuration         {}\n", config.display())),
        "{told}"
    );
    let order = [
        "mine.toml",
        "trust.json",
        ".config/sabir/AGENTS.md",
        "/AGENTS.md\n",
        "/.clinerules",
        ".hidden",
        ".roomodes",
    ];
    let places: Vec<_> = order.map(at).to_vec();
    assert!(places.is_sorted(), "{told}");
    let missing = |name: &str| {
        told.lines()
            .any(|line| line.contains(name) && line.ends_with("(missing)"))
    };
    assert!(
        missing("CLAUDE.md") && missing(".hidden") && !missing("mine.toml"),
        "{told}"
    );
    // Without a configuration, and with one that cannot be used.
    let fresh = World::new();
    assert!(printed(&fresh, &["config", "path"]).contains("config.toml  (missing)"));
    fresh.configure("modle = 1\n");
    assert!(printed(&fresh, &["config", "path"]).contains("config.toml\n"));
}

#[test]
fn the_help_lists_all_keys() {
    let world = World::new();
    let told = printed(&world, &["help", "config"]);
    for part in [
        "\n[subtasks]\n",
        "\n  at_once = 2\n      whole number; default 3\n",
        "option --max-turns",
        "\n[[models]]\n",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(
        told.lines()
            .filter(|line| !line.contains(" = "))
            .all(|line| line.chars().count() <= 100)
    );
    // The options that the reference names exist.
    let mut options: Vec<&str> = told
        .split("option --")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    options.dedup();
    let help: String = ["run", "gateway", "parse"]
        .map(|name| printed(&world, &["help", name]))
        .concat();
    for option in options {
        assert!(help.contains(&format!("--{option}")), "--{option}");
    }
}
