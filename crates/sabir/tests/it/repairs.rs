//! Tests switching off repairs, and the limit of one call per message: by options, by the configuration, in tasks.

use serde_json::{Value, json};

use crate::dialects::pipe;
use crate::world::{WAYS, World, code, stderr, stdout, turn};

/// A call that takes two repairs: `wrong_case_name` and `stringified_value`.
fn slips() -> String {
    let arguments = json!({"path": "a", "start_line": "1"});
    format!(
        "<tool_call>\n{}\n</tool_call>",
        json!({"name": "Read_File", "arguments": arguments})
    )
}

/// Parses the mistakes; returns the exit code, the rules that repaired them, and the kinds of the faults.
fn check(world: &World, options: &[&str], expected: (i32, &[&str], &[&str])) {
    let arguments = [&["parse", "--output", "json"], options].concat();
    let (code, out, errors) = pipe(world, &arguments, &slips());
    let out: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{options:?}: {errors}"));
    let all = |list: &Value, key: &str| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|item| item[key].as_str().unwrap().to_owned())
            .collect()
    };
    let (rules, kinds) = (
        all(&out["parts"][0]["repairs"], "rule"),
        all(&out["faults"], "kind"),
    );
    let (rules, kinds): (Vec<_>, Vec<_>) = (
        rules.iter().map(String::as_str).collect(),
        kinds.iter().map(String::as_str).collect(),
    );
    assert_eq!(
        (code, rules.as_slice(), kinds.as_slice()),
        expected,
        "{options:?}"
    );
}

#[test]
fn repairs_follow_options_and_configuration() {
    let world = World::new();
    let (name, value) = ("wrong_case_name", "stringified_value");
    check(&world, &[], (0, &[name, value], &[]));
    check(
        &world,
        &["--no-repair", value],
        (4, &[name], &["wrong_type"]),
    );
    check(
        &world,
        &["--no-repair", name, "--no-repair", "near_name"],
        (4, &[], &["unknown_tool"]),
    );
    check(&world, &["--no-repair", "all"], (4, &[], &["unknown_tool"]));
    world.configure("repairs_off = [\"stringified_value\"]\n");
    check(&world, &[], (4, &[name], &["wrong_type"]));
    check(&world, &["--no-repair", "all"], (4, &[], &["unknown_tool"]));
    for command in ["check", "explain"] {
        let (code, text, _) = pipe(&world, &[command], &slips());
        assert!(
            code == 4 && text.contains("error[wrong_type]"),
            "{command}: {text}"
        );
    }
}

#[test]
fn unknown_rules_are_refused() {
    let world = World::new();
    for command in ["parse", "check", "explain"] {
        let (code, _, errors) = pipe(&world, &[command, "--no-repair", "near_nam"], "");
        let told = [
            "`near_nam` is not a repair",
            "did you mean `near_name`?",
            "use all, wrong_case_name, near_name, ",
        ];
        assert!(
            code == 2 && told.iter().all(|part| errors.contains(part)),
            "{command}: {errors}"
        );
    }
    world.configure("repairs_off = [\"near_name\", \"al\"]\n");
    let (code, _, errors) = pipe(&world, &["parse"], "");
    assert!(
        code == 2 && errors.contains("config.toml, line 1: repairs_off: `al` is not a repair"),
        "{errors}"
    );
}

#[test]
fn one_call_per_message_can_be_enforced() {
    let world = World::new();
    let input = "<read_file><path>a</path></read_file>\n<read_file><path>b</path></read_file>\n";
    let (code, text, _) = pipe(&world, &["check"], input);
    assert_eq!(
        (code, text.as_str()),
        (0, "2 calls, 0 errors, 0 warnings\n")
    );
    let (code, text, _) = pipe(&world, &["check", "--one"], input);
    assert!(
        code == 4
            && text.contains("error[extra_call]")
            && text.ends_with("\n2 calls, 1 error, 0 warnings\n"),
        "{text}"
    );
    for command in ["parse", "explain"] {
        let (code, text, _) = pipe(&world, &[command, "--one"], input);
        assert!(
            code == 4 && text.contains("error[extra_call]"),
            "{command}: {text}"
        );
    }
}

#[test]
fn commands_without_events_do_not_offer_them() {
    let world = World::new();
    for command in ["check", "explain"] {
        let (_, help, _) = pipe(&world, &[command, "--help"], "");
        assert!(
            help.contains("- json:") && !help.contains("events"),
            "{command}: {help}"
        );
        let (code, _, errors) = pipe(&world, &[command, "--output", "events"], "");
        assert!(
            code == 2 && errors.contains("possible values: text, json"),
            "{command}: {errors}"
        );
    }
}

#[test]
fn tasks_follow_the_repair_configuration() {
    let world = World::new();
    let way = WAYS[1];
    let slip = || turn("", vec![("Attempt_Completion", json!({"result": "done"}))]);
    let right = || turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let turns = |output: std::process::Output| {
        let end: Value = serde_json::from_str(&stdout(&output))
            .unwrap_or_else(|_| panic!("{}", stderr(&output)));
        (code(&output), end["turns"].as_u64().unwrap())
    };
    let with = ["--output", "json", "do it"];
    assert_eq!(
        turns(world.run(&world.plays(way, &[slip()]), way, &with)),
        (0, 1),
        "set right"
    );
    world.configure("repairs_off = [\"wrong_case_name\", \"near_name\"]\n");
    assert_eq!(
        turns(world.run(&world.plays(way, &[slip(), right()]), way, &with)),
        (0, 2),
        "rejected"
    );
    let provider = world.plays(way, &[slip(), slip(), right()]);
    let stopped = world.run(
        &provider,
        way,
        &["--max-turns", "1", "--output", "json", "do it"],
    );
    assert_eq!(turns(stopped), (6, 1));
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", "--output", "json"])
        .output()
        .unwrap();
    assert_eq!(turns(resumed), (0, 2), "rejected after a resume, too");
}

#[test]
fn a_last_call_without_its_closing_markup_runs_only_where_that_was_allowed() {
    let world = World::new();
    let arguments = json!({"path": "a"});
    let text = format!(
        "<tool_call>\n{}\n",
        json!({"name": "read_file", "arguments": arguments})
    );
    let read = |options: &[&str]| {
        let arguments = [&["parse", "--output", "json"], options].concat();
        let (code, out, errors) = pipe(&world, &arguments, &text);
        let out: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{errors}"));
        (code, out["parts"][0].clone())
    };
    let (code, call) = read(&[]);
    assert_eq!((code, &call["state"]), (4, &json!("cut")));
    let (code, call) = read(&["--repair", "missing_last_close"]);
    assert_eq!((code, &call["state"]), (0, &json!("complete")), "{call}");
    assert_eq!(
        (&call["repairs"][0]["rule"], &call["repairs"][0]["after"]),
        (&json!("missing_last_close"), &json!("</tool_call>"))
    );
    let off = ["--repair", "missing_last_close", "--no-repair", "all"];
    let (code, call) = read(&off);
    assert_eq!((code, &call["state"]), (4, &json!("rejected")), "{call}");
    let (code, _, errors) = pipe(&world, &["parse", "--repair", "near_name"], &text);
    assert!(
        code == 2 && errors.contains("`near_name` is not a repair that is off by default"),
        "{errors}"
    );
    world.configure("[[models]]\npattern = \"m\"\nrepairs_on = [\"near_name\"]\n");
    let (code, _, errors) = pipe(&world, &["parse"], &text);
    assert!(
        code == 2 && errors.contains("repairs_on: `near_name`"),
        "{errors}"
    );
}
