//! Tests dialects through the binary: the list, the specs, and user-defined dialects from prompt to completed task.

use std::io::Write;
use std::process::Stdio;

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::case_count::sampled_positions;
use crate::world::{Way, World, code, names, stderr, stdout};

/// A dialect for each machine, in one file.
const TABLES: &str = r#"
[dialects.acme]
machine = "json"
aliases = ["acme_v1"]
summary = "A JSON object in an <acme> block."
open = "<acme>"
close = "</acme>"

[dialects.deeds]
machine = "tagged"
tags = { call = "deed", argument = "with", wrapper = "deeds" }

[dialects.snake]
machine = "python"
open = "<py>"
close = "</py>"

[dialects.gem]
machine = "gemma"
open = "<gem>"
close = "</gem>"
quote = "<q>"

[dialects.headed]
machine = "json"
open = "<do:this>"
close = "<do:end>"
json = { head_end = "<do:with>" }
"#;

const MINE: [&str; 5] = ["acme", "deeds", "snake", "gem", "headed"];

/// Writes the table of one of [`MINE`] into a file of its own: each start proves every table that it gets.
fn write_own_table(world: &World, name: &str) -> String {
    let head = format!("[dialects.{name}]");
    let body = TABLES.split_once(&head).unwrap().1;
    let body = body.split("\n[dialects.").next().unwrap();
    let file = world.write(&format!("{name}.toml"), &format!("{head}{body}"));
    file.display().to_string()
}

pub(crate) fn pipe(world: &World, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = world
        .sabir()
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read its input.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    (code(&output), stdout(&output), stderr(&output))
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

/// Returns the example call of a tool in a prompt: the text between `## NAME … Usage:` and the next heading.
fn usage(prompt: &str, tool: &str) -> String {
    let section = prompt.split(&format!("## {tool}\n")).nth(1).unwrap();
    let usage = section.split("Usage:\n").nth(1).unwrap();
    usage
        .split("\n\n## ")
        .next()
        .unwrap()
        .split("\n\n# ")
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn dialects_are_listed_and_their_specs_printed() {
    let world = World::new();
    let (code, text, _) = pipe(&world, &["dialects"], "");
    assert_eq!(code, 0);
    let (_, list, _) = pipe(&world, &["dialects", "--output", "json"], "");
    let list = object(&list);
    assert!(list.as_array().unwrap().len() >= 29);
    for dialect in list.as_array().unwrap() {
        let name = dialect["name"].as_str().unwrap();
        assert!(
            text.contains(name) && text.contains(dialect["summary"].as_str().unwrap()),
            "{name}"
        );
        let (_, spec, _) = pipe(&world, &["dialects", name], "");
        assert!(
            spec.starts_with(&format!("# The {name} dialect")),
            "{name}: {spec}"
        );
        assert_eq!(dialect["defined"], json!(false));
    }
    let spec = pipe(&world, &["dialects", "invoke"], "").1;
    assert_eq!(
        pipe(&world, &["help", "dialect", "claude"], "").1,
        spec,
        "help knows it, by an alias too"
    );
    assert_eq!(
        object(&pipe(&world, &["dialects", "roo", "--output", "json"], "").1)["name"],
        json!("cline")
    );
}

/// Every name and alias is accepted wherever a dialect is named.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn names_and_aliases_are_accepted_by_every_command() {
    let world = World::new();
    let (_, list, _) = pipe(&world, &["dialects", "--output", "json"], "");
    for dialect in object(&list).as_array().unwrap() {
        let name = dialect["name"].as_str().unwrap();
        let aliases = dialect["aliases"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str);
        let (_, first, _) = pipe(&world, &["prompt", "--dialect", name], "");
        let call = usage(&first, "read_file");
        for name in std::iter::once(name).chain(aliases) {
            let (code, prompt, _) = pipe(&world, &["prompt", "--dialect", name], "");
            assert_eq!((code, &prompt), (0, &first), "{name}");
            let (code, out, _) = pipe(
                &world,
                &["parse", "--dialect", name, "--output", "json"],
                &call,
            );
            let out = object(&out);
            assert_eq!(
                (code, &out["dialect"]),
                (0, &dialect["name"]),
                "{name}: {call}: {out}"
            );
            assert_eq!(
                out["parts"][0]["arguments"]["path"],
                json!("src/main.rs"),
                "{name}: {out}"
            );
            assert!(out["parts"][0]["how"]["rule"].is_string(), "{name}: {out}");
            assert_eq!(
                pipe(&world, &["check", "--dialect", name], &call).0,
                0,
                "{name}"
            );
            assert_eq!(
                pipe(&world, &["explain", "--dialect", name], &call).0,
                0,
                "{name}"
            );
        }
    }
}

#[test]
fn the_documented_forms_are_read() {
    let world = World::new();
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/dialects.md"
    ))
    .unwrap();
    let tools = world.write(
        "tools.json",
        r#"[{"name": "f", "description": "F.", "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}}]"#,
    );
    let tools = tools.display().to_string();
    let rows: Vec<Vec<String>> = document
        .lines()
        .filter(|line| {
            line.starts_with("| `") && line.ends_with('|') && line.matches(" | ").count() == 4
        })
        .map(|line| {
            let line = line.replace("\\|", "\u{1}");
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().replace('\u{1}', "|"))
                .collect()
        })
        .collect();
    let (_, list, _) = pipe(&world, &["dialects", "--output", "json"], "");
    let list = object(&list);
    let listed: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|dialect| dialect["name"].as_str().unwrap())
        .collect();
    let told: Vec<_> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(told, listed, "docs/dialects.md has a row for each dialect");
    for (row, dialect) in rows.iter().zip(list.as_array().unwrap()) {
        let aliases: Vec<_> = row[1]
            .split(", ")
            .map(|alias| alias.trim_matches('`'))
            .filter(|it| !it.is_empty())
            .collect();
        assert_eq!(json!(aliases), dialect["aliases"], "{}", row[0]);
        let call = row[2]
            .trim_start_matches("````")
            .trim_end_matches("````")
            .trim_matches(' ');
        let call = call
            .strip_prefix('`')
            .and_then(|call| call.strip_suffix('`'))
            .unwrap_or(call)
            .replace('⏎', "\n");
        let name = row[0].trim_matches('`');
        let (code, out, _) = pipe(
            &world,
            &[
                "parse",
                "--dialect",
                name,
                "--tools",
                &tools,
                "--output",
                "json",
            ],
            &call,
        );
        let out = object(&out);
        assert_eq!(
            (code, &out["parts"][0]["arguments"]),
            (0, &json!({"k": "v"})),
            "{name}: {call}: {out}"
        );
        assert!(
            ["full", "seen", "confirmed", "unconfirmed"].contains(&row[4].as_str()),
            "{row:?}"
        );
    }
}

/// Tests dialects from tables: the prompt, the example in it, and parsing in any chunks, alone and among all dialects.
#[test]
fn a_dialect_table_suffices_for_prompts_and_parsing() {
    let world = World::new();
    let all = world.write("mine.toml", TABLES).display().to_string();
    for name in MINE {
        let file = write_own_table(&world, name);
        let (code, prompt, errors) = pipe(
            &world,
            &["prompt", "--dialect", name, "--dialects", &file],
            "",
        );
        assert_eq!(code, 0, "{name}: {errors}");
        let tools = ["read_file", "write_to_file", "attempt_completion"];
        for at in sampled_positions(name.len() % tools.len(), tools.len(), 1) {
            let tool = tools[at];
            let call = usage(&prompt, tool);
            let mut first: Option<Value> = None;
            for selection in [name, "auto"] {
                for chunk in ["0", "1", "5"] {
                    let arguments = [
                        "--dialects",
                        &file,
                        "parse",
                        "--dialect",
                        selection,
                        "--chunk",
                        chunk,
                        "--output",
                        "json",
                    ];
                    let (code, out, errors) =
                        pipe(&world, &arguments, &format!("Words.\n\n{call}"));
                    assert_eq!(code, 0, "{name}: {call}\n{out}{errors}");
                    let mut part = object(&out)["parts"][1].clone();
                    assert_eq!(
                        (&part["name"], &part["dialect"]),
                        (&json!(tool), &json!(name)),
                        "{out}"
                    );
                    part.as_object_mut().unwrap().remove("how");
                    assert_eq!(
                        &part,
                        first.get_or_insert(part.clone()),
                        "{name}, {selection}, {chunk}"
                    );
                }
            }
        }
        let (_, spec, _) = pipe(&world, &["dialects", name, "--dialects", &file], "");
        assert!(
            spec.contains("Defined by a table") && spec.contains("src/main.rs"),
            "{spec}"
        );
        let (_, list, _) = pipe(&world, &["dialects", "--dialects", &all], "");
        assert!(
            list.contains(&format!("\n{name}")) && list.contains("[defined]"),
            "{list}"
        );
        let cut = usage(&prompt, "read_file");
        let cut: String = cut.chars().take(cut.chars().count() / 2).collect();
        let (code, out, _) = pipe(
            &world,
            &["parse", "--dialect", name, "--dialects", &file],
            &cut,
        );
        assert_eq!(code, 4, "{name}: a cut call never counts: {cut}\n{out}");
    }
    let (code, _, _) = pipe(
        &world,
        &["parse", "--dialect", "acme_v1", "--dialects", &all],
        "x",
    );
    assert_eq!(code, 0, "an alias of a table");
}

#[test]
fn a_task_runs_in_a_user_defined_dialect() {
    let tables = World::new();
    let way = Way {
        wire: sabir_wire::Wire::OpenAiChat,
        protocol: "acme",
    };
    for (name, from_config) in MINE
        .iter()
        .map(|name| (*name, false))
        .chain([("acme", true)])
    {
        let file = write_own_table(&tables, name);
        let world = World::new();
        world.write("a.txt", &"one\n".repeat(100));
        let flags: Vec<&str> = if from_config {
            vec![]
        } else {
            vec!["--dialects", &file]
        };
        if from_config {
            world.configure(TABLES);
        }
        let (_, prompt, _) = pipe(
            &world,
            &[&flags[..], &["prompt", "--dialect", name]].concat(),
            "",
        );
        let call = |tool: &str, from: &str, to: &str| usage(&prompt, tool).replace(from, to);
        let replies = [
            format!("I look.\n\n{}", call("read_file", "src/main.rs", "a.txt")),
            format!("Done.\n\n{}", usage(&prompt, "attempt_completion")),
        ];
        let provider = world.provider(ReplyScript::new(replies.map(ProviderReply::text).to_vec()));
        let arguments = [
            &flags[..],
            &[
                "run",
                "--model",
                way.model(),
                "--protocol",
                name,
                "--output",
                "json",
                "do it",
            ],
        ];
        let output = world
            .sabir_with(&provider)
            .args(arguments.concat())
            .output()
            .unwrap();
        assert_eq!(
            code(&output),
            0,
            "{name}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        let requests = provider.received_requests();
        assert_eq!(requests.len(), 2, "{name}");
        let (first, second) = (requests[0].body.to_string(), requests[1].body.to_string());
        assert!(
            requests[0].body.get("tools").is_none(),
            "{name} is prompted"
        );
        assert!(first.contains("You act by calling tools"), "{name}");
        assert!(
            second.contains("one") && second.contains("[read_file]"),
            "{name}: the result of its call went back"
        );
        // A task in a removed dialect cannot continue, and the message says so.
        let task = world.only_task();
        if !from_config {
            let output = world
                .sabir_with(&provider)
                .args(["resume", &task, "--output", "text"])
                .output()
                .unwrap();
            assert_eq!(code(&output), 2, "{}", stderr(&output));
            assert!(
                stderr(&output).contains("not defined here"),
                "{}",
                stderr(&output)
            );
        }
    }
    let files = names(tables.work.path());
    assert_eq!(
        files,
        ["acme", "deeds", "gem", "headed", "snake"].map(|name| format!("{name}.toml"))
    );
}

#[test]
fn the_documented_tables_are_read() {
    let world = World::new();
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/dialects.md"
    ))
    .unwrap();
    let tables = document
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let file = world.write("documented.toml", tables).display().to_string();
    for (name, call) in [
        (
            "acme",
            r#"<acme>{"name": "read_file", "arguments": {"path": "v"}}</acme>"#,
        ),
        (
            "deeds",
            r#"<deeds><deed name="read_file"><with name="path">v</with></deed></deeds>"#,
        ),
        ("snake", r#"<py>[read_file(path="v")]</py>"#),
        ("gem", "<gem>call:read_file{path:<q>v<q>}</gem>"),
    ] {
        let (code, out, errors) = pipe(
            &world,
            &[
                "parse",
                "--dialects",
                &file,
                "--dialect",
                name,
                "--output",
                "json",
            ],
            call,
        );
        assert_eq!(
            (code, &object(&out)["parts"][0]["arguments"]),
            (0, &json!({"path": "v"})),
            "{name}: {out}{errors}"
        );
    }
}

/// A bad file: exit 2, with file, line, key and what to do.
#[test]
fn invalid_tables_are_explained() {
    let world = World::new();
    let good = "[dialects.a1]\nmachine = \"json\"\nopen = \"<a1>\"\n";
    for (text, expected) in [
        ("machine = ", vec!["line 1"]),
        (
            "\n[dialects.x]\nmachine = \"jason\"\n",
            vec!["line 3", "jason", "tagged"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\nopens = \"<a>\"\n",
            vec!["line 3", "opens"],
        ),
        ("[dialects.x]\nopen = \"<a>\"\n", vec!["machine", "line 1"]),
        (
            "[dialects.x]\nmachine = \"json\"\nopen = \"<\"\n",
            vec!["line 3", "`open`", "3 to 64 bytes"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\nopen = \"call\"\n",
            vec!["line 3", "`open`"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\n",
            vec!["line 1", "`open`"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\nopen = \"<a>\"\n\n[dialects.x.json]\nhead_end = \"abc\"\n",
            vec!["line 6", "`json.head_end`"],
        ),
        (
            "[dialects.x]\nmachine = \"tagged\"\ntags = { call = \"a b\" }\n",
            vec!["line 3", "`tags.call`"],
        ),
        (
            "[dialects.cline]\nmachine = \"json\"\nopen = \"<a>\"\n",
            vec!["line 1", "`cline` already"],
        ),
        (
            "[dialects.x]\nname = \"y\"\nmachine = \"json\"\nopen = \"<a>\"\n",
            vec!["line 2", "`name`", "`x`"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\nopen = \"<a>\"\n[dialects.x.json]\nname_key = \"verb\"\n",
            vec!["cannot read what it writes"],
        ),
        (
            "[dialects.x]\nmachine = \"json\"\nopen = \"<|tool_call_begin|>functions.\"\nclose = \"<|tool_call_end|>\"\n\
             json = { head_end = \"<|tool_call_argument_begin|>\" }\n",
            vec!["`kimi`", "choose other markers"],
        ),
        ("", vec!["holds no dialect"]),
        (
            "name = \"Bad Name\"\nmachine = \"json\"\nopen = \"<a>\"\n",
            vec!["line 1", "`Bad Name`"],
        ),
    ] {
        let file = world.write("bad.toml", text).display().to_string();
        let (code, _, errors) = pipe(&world, &["--dialects", &file, "parse"], "x");
        assert_eq!(code, 2, "{text}: {errors}");
        assert!(
            errors.contains("bad.toml") && errors.contains("sabir help dialects"),
            "{text}: {errors}"
        );
        expected
            .iter()
            .for_each(|part| assert!(errors.contains(part), "{text}: no `{part}` in {errors}"));
    }
    let (code, _, errors) = pipe(&world, &["parse", "--dialects", "missing.toml"], "x");
    assert!(
        code == 2 && errors.contains("missing.toml cannot be read"),
        "{errors}"
    );
    // The same in the configuration, for any command.
    world.configure("model = \"a\"\n[dialects.x]\nmachine = \"json\"\nopen = \"<\"\n");
    let (code, _, errors) = pipe(&world, &["parse"], "x");
    assert!(
        code == 2 && errors.contains("config.toml, line 4"),
        "{errors}"
    );
    world.configure(good);
    let (code, _, errors) = pipe(&world, &["parse", "--dialect", "a1"], "x");
    assert_eq!(code, 0, "{errors}");
}

#[test]
fn a_file_may_hold_one_bare_table() {
    let world = World::new();
    let file = world
        .write(
            "one.toml",
            "name = \"solo\"\nmachine = \"python\"\nopen = \"<solo>\"\n",
        )
        .display()
        .to_string();
    let call = "<solo>[read_file(path=\"a\")]";
    let (code, out, errors) = pipe(
        &world,
        &["parse", "--dialects", &file, "--output", "json"],
        call,
    );
    assert_eq!(
        (code, &object(&out)["parts"][0]["dialect"]),
        (0, &json!("solo")),
        "{out}{errors}"
    );
    // Defining the same dialect twice is not a conflict.
    assert_eq!(
        pipe(
            &world,
            &["--dialects", &file, "parse", "--dialects", &file],
            call
        )
        .0,
        0
    );
}

#[test]
fn unknown_names_suggest_the_nearest() {
    let world = World::new();
    for command in ["parse", "check", "explain", "prompt"] {
        let (code, _, errors) = pipe(&world, &[command, "--dialect", "hermez"], "");
        assert!(
            code == 2 && errors.contains("did you mean `hermes`?"),
            "{command}: {errors}"
        );
    }
    let (code, _, errors) = pipe(&world, &["dialects", "mistrall"], "");
    assert!(
        code == 2 && errors.contains("did you mean `mistral`?"),
        "{errors}"
    );
    let arguments = ["run", "--model", "openai/x", "--protocol", "clin", "x"];
    let output = world
        .sabir()
        .env("OPENAI_API_KEY", "k")
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        crate::world::code(&output) == 2 && stderr(&output).contains("did you mean `cline`?"),
        "{}",
        stderr(&output)
    );
    for (topic, expected) in [
        (vec![], "Toolbox"),
        (vec!["parse"], "--chunk"),
        (vec!["wire", "decode"], "--wire"),
        (vec!["dialects"], "## Your own dialects"),
        (vec!["lints"], "reserved_name"),
        (vec!["dialect"], "hermes"),
    ] {
        let (code, out, errors) = pipe(&world, &[&["help"], &topic[..]].concat(), "");
        assert!(
            code == 0 && out.contains(expected),
            "{topic:?}: {out}{errors}"
        );
    }
    let (code, _, errors) = pipe(&world, &["help", "pars"], "");
    assert!(
        code == 2 && errors.contains("did you mean `parse`?"),
        "{errors}"
    );
}

/// A chat template that writes calls as Hermes does.
pub(crate) const HERMES_TEMPLATE: &str = "{%- if tools %}Tools: {{ tools | tojson }}\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}";

#[test]
fn the_dialect_of_a_chat_template_is_recognized() {
    let world = World::new();
    let examine = |text: &str, arguments: &[&str]| {
        let path = world.write("template.jinja", text).display().to_string();
        let mut command = world.sabir();
        command.args(["dialects", "--from-template", &path]);
        let output = command.args(arguments).output().unwrap();
        (code(&output), stdout(&output), stderr(&output))
    };
    let (code, text, _) = examine(HERMES_TEMPLATE, &[]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "dialect: hermes\n",
        "    <tool_call>\n",
        "get_sabir_forecast {\"city\":\"Oslo-7\",\"days\":3} (hermes, complete)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let config = json!({"chat_template": HERMES_TEMPLATE}).to_string();
    let (code, text, _) = examine(&config, &["--output", "json"]);
    let report = &object(&text)[0];
    assert_eq!((code, &report["dialect"]), (0, &json!("hermes")));
    assert_eq!(report["proof"]["understood"][0]["arguments"]["days"], 3);
    let file = |tool_use: &str| {
        let plain = json!({"name": "default", "template": "{{ messages[0].content }}"});
        json!({"chat_template": [plain, {"name": "tool_use", "template": tool_use}]}).to_string()
    };
    let (code, text, _) = examine(&file(HERMES_TEMPLATE), &[]);
    assert_eq!(code, 0, "{text}");
    let parts = [
        "template default\ndialect: none",
        "template tool_use\ndialect: hermes",
    ];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let unreadable = "{{ tools | tojson }}{{ messages[0].content }}";
    let (code, text, _) = examine(&file(unreadable), &[]);
    assert_eq!(code, 4, "{text}");
    let (code, text, _) = examine(&file("{{ broken("), &[]);
    assert_eq!(code, 4, "{text}");
    let (code, text, error) = pipe(
        &world,
        &["dialects", "--from-template", "-"],
        HERMES_TEMPLATE,
    );
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("dialect: hermes\n"), "{text}");
    let (code, text, _) = examine("{{ messages[0].content }}", &[]);
    assert_eq!(code, 4);
    assert!(text.starts_with("dialect: none\n"), "{text}");
    let (code, _, error) = examine("{{ .Messages }}", &[]);
    assert_eq!(code, 2);
    assert!(error.contains("template of Go"), "{error}");
}

#[test]
fn a_template_without_an_end_is_refused() {
    let world = World::new();
    let output = world
        .sabir()
        .args(["dialects", "--from-template", "/dev/zero"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    let error = stderr(&output);
    assert!(error.contains("it has more than 64 MiB"), "{error}");
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_template_that_takes_all_memory_is_stopped() {
    let world = World::new();
    // A short description of 2^64 copies of a long text, which the engine writes without counting.
    let bomb = "{% set ns = namespace(x=['a' * 10000000]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x ~ '' }}";
    let path = world.write("bomb.jinja", bomb).display().to_string();
    let output = world
        .sabir()
        .args(["dialects", "--from-template", &path])
        .output()
        .unwrap();
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(
        stdout(&output).contains("too much time or memory"),
        "{}",
        stdout(&output)
    );
}
