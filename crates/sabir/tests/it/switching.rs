//! Tests switching modes through the binary: by the model, by the user, with other models, and after kills, resumes and forks.

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::headless::Desk;
use crate::world::{Turn, WAYS, Way, World, code, events, stderr, stdout, turn};

const WAY: Way = WAYS[1];

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn to(mode: &str) -> (&'static str, Value) {
    (
        "switch_mode",
        json!({"mode": mode, "reason": "It is time."}),
    )
}

fn write(path: &str) -> (&'static str, Value) {
    ("write_to_file", json!({"path": path, "content": "x\n"}))
}

/// Returns the status and text of each call's result.
fn results(events: &[Value]) -> Vec<String> {
    let results = events
        .iter()
        .filter(|event| event["kind"] == "result" && event["name"] != "attempt_completion");
    let words = |event: &Value| {
        format!(
            "{} {}",
            event["ending"].as_str().unwrap(),
            event["content"].as_str().unwrap()
        )
    };
    results.map(words).collect()
}

/// The models that were asked, with the tools that they were offered.
fn asked(provider: &ScriptedProvider) -> Vec<(String, Vec<String>)> {
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    let one = |body: Value| {
        let tools = body["tools"]
            .as_array()
            .map(|tools| tools.iter().map(name).collect())
            .unwrap_or_default();
        (body["model"].as_str().unwrap().to_owned(), tools)
    };
    provider
        .received_requests()
        .into_iter()
        .map(|request| one(request.body))
        .collect()
}

fn models(provider: &ScriptedProvider) -> Vec<String> {
    asked(provider)
        .into_iter()
        .map(|(model, _)| model)
        .collect()
}

fn has(expected: &[&str], found: &[String]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (expected, found) in expected.iter().zip(found) {
        assert!(found.contains(expected), "{found} should hold {expected}");
    }
}

/// Calls and files after a switch are checked in the new mode; sent messages do not change.
#[test]
fn a_switch_applies_to_all_later_calls() {
    let world = World::new();
    let calls = vec![
        write("a"),
        to("plan"),
        write("b"),
        ("execute_command", json!({"command": "touch c"})),
    ];
    let provider = world.plays(WAY, &[turn("", calls), done()]);
    let output = world.run(
        &provider,
        WAY,
        &["--approve", "all", "--output", "events", "go"],
    );
    has(
        &[
            "done",
            "done The mode is now `plan`: look and think",
            "the mode `plan` does not change files",
            "the mode `plan` runs only commands that are known to only read",
        ],
        &results(&events(&output)),
    );
    assert_eq!(crate::world::names(world.work.path()), ["a"]);
    let asked = asked(&provider);
    assert!(
        asked[0].1.contains(&"write_to_file".to_owned())
            && !asked[0].1.contains(&"switch_mode".to_owned())
    );
    assert!(
        !asked[1].1.contains(&"write_to_file".to_owned())
            && asked[1].1.contains(&"switch_mode".to_owned())
    );
    let bodies: Vec<Value> = provider
        .received_requests()
        .into_iter()
        .map(|request| request.body)
        .collect();
    let [first, second] = [&bodies[0], &bodies[1]].map(|body| body["messages"].as_array().unwrap());
    assert_eq!(first[..], second[..first.len()]);
}

/// Nobody can be asked, and no other approval allows the switch.
#[test]
fn a_wider_mode_is_denied_where_nobody_can_be_asked() {
    let world = World::new();
    let run = |flags: &[&str]| {
        let provider = world.plays(WAY, &[turn("", vec![to("code"), write("a")]), done()]);
        results(&events(&world.run(
            &provider,
            WAY,
            &[flags, &["--mode", "plan", "--output", "events", "go"]].concat(),
        )))
    };
    let denied = [
        "denied The policy did not allow this call: it switches from `plan` to the mode `code`, which can also",
        "plan",
    ];
    has(
        &denied,
        &run(&[
            "--approve",
            "all",
            "--allow",
            "switch_mode **",
            "--approve",
            "mode=docs",
        ]),
    );
    has(
        &["done The mode is now `code`: all tools.", "done"],
        &run(&["--approve", "edits", "--approve", "mode=code"]),
    );
    assert_eq!(world.read("a"), "x\n");
}

/// A program is asked, the question names the new abilities, and its answer counts.
#[test]
fn a_program_is_asked_about_a_wider_mode() {
    let world = World::new();
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![to("docs")]),
            turn("", vec![to("code"), write("a")]),
            done(),
        ],
    );
    let mut desk = Desk::begin(
        &world,
        &provider,
        &["--mode", "plan", "--approve", "edits", "go"],
    );
    let question = desk.wait_for("question");
    assert_eq!(question["subject"], "docs");
    assert_eq!(question["detail"], "It is time.");
    assert!(
        question["reason"]
            .as_str()
            .unwrap()
            .contains("to the mode `docs`, which can also change **/*.md")
    );
    desk.say(json!({"kind": "deny", "call": question["call"], "reason": "not yet"}));
    let question = desk.wait_for("question");
    assert!(
        question["reason"]
            .as_str()
            .unwrap()
            .contains("run commands that change something"),
        "{question}"
    );
    desk.say(json!({"kind": "approve", "call": question["call"]}));
    assert_eq!(desk.complete(), ("completed".to_owned(), 0));
    assert_eq!(world.read("a"), "x\n");
}

/// A switch by the user needs no approval, is a record, and makes the open call be checked again.
#[test]
fn a_program_switches_the_mode_by_a_control_line() {
    let world = World::new();
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![write("a")]),
            turn("", vec![write("b")]),
            done(),
        ],
    );
    let mut desk = Desk::begin(&world, &provider, &["go"]);
    let question = desk.wait_for("question");
    desk.say(json!({"kind": "mode", "mode": "plann"}));
    desk.wait_to_hear("there is no mode `plann`: did you mean `plan`?");
    desk.say(json!({"kind": "mode", "mode": "read-only"}));
    let shift = desk.wait_for("context");
    let shift = if shift["change"] == "begun" {
        desk.wait_for("context")
    } else {
        shift
    };
    assert_eq!(
        (&shift["change"], &shift["mode"]),
        (&json!("moded"), &json!("plan"))
    );
    let result = desk.wait_for("result");
    assert_eq!(result["id"], question["call"]);
    assert!(
        result["content"]
            .as_str()
            .unwrap()
            .contains("the mode `plan` does not change files"),
        "{result}"
    );
    assert_eq!(desk.complete(), ("completed".to_owned(), 0));
    assert_eq!(crate::world::names(world.work.path()), [""; 0]);
    let last = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(
        last.contains("The user has switched to another mode. The mode is now `plan`"),
        "{last}"
    );
}

const TWO_MODELS: &str = "model = \"openai/usual\"\n[modes.plan]\nmodel = \"openai/thinker\"\n[modes.architect]\nmodel = \"openai/writer\"\n";

/// The request after a switch names the other model; a resume and a fork continue with it.
#[test]
fn a_mode_can_set_the_model() {
    let world = World::new();
    let config = world.configure(TWO_MODELS);
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![to("plan")]),
            turn("", vec![to("docs")]),
            turn("", vec![]),
        ],
    );
    let flags = [
        "--approve",
        "mode=docs",
        "--max-turns",
        "3",
        "--output",
        "events",
        "go",
    ];
    let output = world
        .sabir_with(&provider)
        .arg("run")
        .args(flags)
        .output()
        .unwrap();
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    assert_eq!(models(&provider), ["usual", "thinker", "writer"]);
    assert!(
        stderr(&output).contains("mode plan: the model is now openai/thinker"),
        "{}",
        stderr(&output)
    );
    let id = world.only_task();
    let again = |words: &[&str]| {
        let provider = world.plays(WAY, &[turn("", vec![write("x")]), done()]);
        let words = [words, &["--approve", "all", "--output", "events"]].concat();
        let output = world.sabir_with(&provider).args(words).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        (
            models(&provider),
            results(&events(&output)),
            provider.received_requests()[0].body.to_string(),
        )
    };
    let (models, _, body) = again(&["fork", &id]);
    assert_eq!(models, ["writer", "writer"]);
    // The instructions are those of the beginning.
    assert!(
        body.contains("The mode is now `docs`") && !body.contains("\\nMode: docs."),
        "{body}"
    );
    let (models, results, _) = again(&["fork", &id, "--mode", "code"]);
    assert_eq!(models, ["usual", "usual"]);
    has(&["done"], &results);
    let (models, results, _) = again(&["resume", &id, "--model", "openai/mine"]);
    assert_eq!(models, ["mine", "mine"]);
    has(&["the mode `docs` changes only"], &results);
    let listed = stdout(&world.sabir().arg("modes").output().unwrap());
    assert!(
        listed.contains("; model: openai/thinker\n") && listed.contains("; model: openai/writer\n"),
        "{listed}"
    );
    std::fs::write(
        &config,
        "[modes.plan]\nmodel = \"openai/x\"\ntools = [\"read\"]\n",
    )
    .unwrap();
    let output = world.sabir().arg("modes").output().unwrap();
    assert!(
        stderr(&output).contains("of a built-in mode only `model` can be set"),
        "{}",
        stderr(&output)
    );
}

/// A task that starts in a mode has the mode's model, unless `--model` names another.
#[test]
fn a_task_starts_with_the_model_of_its_mode() {
    let world = World::new();
    world.configure(TWO_MODELS);
    let run = |flags: &[&str]| {
        let provider = world.plays(WAY, &[turn("", vec![to("code")]), done()]);
        let words = [
            &["run", "--mode", "plan", "--approve", "mode=code"],
            flags,
            &["go"],
        ]
        .concat();
        let output = world.sabir_with(&provider).args(words).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        models(&provider)
    };
    assert_eq!(run(&[]), ["thinker", "usual"]);
    assert_eq!(run(&["--model", "openai/mine"]), ["mine", "mine"]);
}

/// Another server is asked for another provider's model; one that needs a dialect stays out of a native task.
#[test]
fn a_mode_can_set_another_server_and_dialect() {
    let world = World::new();
    let other = world.plays(WAY, &[done()]);
    let url = other.base_url(sabir_wire::Wire::OpenAiChat);
    world.configure(format!(
        "model = \"openai/usual\"\n[modes.plan]\nmodel = \"box/far\"\n[modes.ask]\nmodel = \"openai/texter\"\n[providers.box]\n\
         wire = \"openai-chat\"\nbase_url = \"{url}\"\n[[models]]\npattern = \"texter\"\nnative = false\ndialect = \"cline\"\n"
    ));
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![to("ask")]),
            turn("", vec![to("plan")]),
            done(),
        ],
    );
    let flags = ["run", "--output", "events", "--approve", "mode=plan", "go"];
    let output = world.sabir_with(&provider).args(flags).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        (models(&provider), models(&other)),
        (vec!["usual".to_owned(); 2], vec!["far".to_owned()])
    );
    let said = "mode ask: its model openai/texter is not used, but openai/usual: it has to be asked in the dialect cline, and the task \
                is locked to native calls";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    // A task in a dialect can teach it to any model.
    let provider = world.plays(WAYS[2], &[turn("", vec![to("ask")]), done()]);
    let output = world
        .sabir_with(&provider)
        .args(["run", "--protocol", "cline", "go"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(models(&provider), ["usual", "texter"]);
}

/// A recording replays the switch and the models, and repeats the approval.
#[test]
fn a_switch_is_recorded() {
    let world = World::new();
    world.configure(TWO_MODELS);
    let file = world.home.path().join("tape");
    let file = file.to_str().unwrap();
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![to("plan")]),
            turn("", vec![to("code")]),
            turn("", vec![write("a")]),
            done(),
        ],
    );
    let flags = [
        "--approve",
        "edits",
        "--approve",
        "mode=code",
        "--output",
        "events",
    ];
    let record = [&["run", "--record", file], &flags[..], &["go"]].concat();
    let recorded = world.sabir_with(&provider).args(record).output().unwrap();
    assert_eq!(code(&recorded), 0, "{}", stderr(&recorded));
    assert_eq!(models(&provider), ["usual", "thinker", "usual", "usual"]);
    std::fs::remove_file(world.work.path().join("a")).unwrap();
    std::fs::remove_file(world.home.path().join(".config/sabir/config.toml")).unwrap();
    let played = world
        .sabir()
        .args([&["run", "--replay", file], &flags[..]].concat())
        .output()
        .unwrap();
    assert_eq!(code(&played), 0, "{}", stderr(&played));
    assert_eq!(results(&events(&played)), results(&events(&recorded)));
    assert_eq!(world.read("a"), "x\n");
}

/// Killed with an open question, a task comes back in the mode that it was in, and is asked again.
#[test]
fn an_unanswered_question_switches_nothing() {
    let world = World::new();
    let provider = world.plays(WAY, &[turn("", vec![to("ask"), to("code")])]);
    let mut desk = Desk::begin(&world, &provider, &["--mode", "plan", "go"]);
    desk.wait_for("question");
    desk.kill();
    let provider = world.plays(WAY, &[turn("", vec![write("a")]), done()]);
    let words = [
        "resume",
        &world.only_task(),
        "--approve",
        "all",
        "--output",
        "events",
    ];
    let output = world.sabir_with(&provider).args(words).output().unwrap();
    has(
        &[
            "denied The policy did not allow this call: it switches from `ask`",
            "mode `ask` does not change files",
        ],
        &results(&events(&output)),
    );
    let provider = world.plays(WAY, &[]);
    assert_eq!(models(&provider), [""; 0]);
}

/// The mode of a resume is kept: the next resume is in that mode too, and the model learns about it once.
#[test]
fn a_mode_of_a_resume_is_remembered() {
    let world = World::new();
    let provider = world.plays(WAY, &[turn("", vec![to("plan")])]);
    world.run(&provider, WAY, &["--max-turns", "1", "go"]);
    let id = world.only_task();
    let resume = |flags: &[&str]| {
        let provider = world.plays(WAY, &[turn("", vec![write("a")])]);
        let words = [
            &[
                "resume",
                &id,
                "--max-turns",
                "1",
                "--approve",
                "all",
                "--output",
                "events",
            ],
            flags,
        ]
        .concat();
        let output = world.sabir_with(&provider).args(words).output().unwrap();
        (
            results(&events(&output)).pop().unwrap_or_default(),
            provider.received_requests()[0].body.to_string(),
        )
    };
    assert!(resume(&[]).0.contains("the mode `plan`"));
    let (result, body) = resume(&["--mode", "code"]);
    assert!(
        result.starts_with("done")
            && body.contains("The user has switched to another mode. The mode is now `code`")
    );
    let (result, body) = resume(&[]);
    assert!(
        result.starts_with("done") && body.matches("The mode is now `code`").count() == 1,
        "{result} {body}"
    );
}

/// Only the user can allow a switch to a repository's mode, and it never replaces another mode.
#[test]
fn a_mode_of_the_folder_needs_approval() {
    let world = World::new();
    let text = "customModes:\n  - slug: wide\n    name: Wide\n    groups: [read, edit, command]\n  - slug: plan\n    name: P\n    groups: [edit]\n";
    std::fs::write(world.work.path().join(".roomodes"), text).unwrap();
    let provider = world.plays(
        WAY,
        &[
            turn("", vec![to("wide"), to("plan"), to("nothing"), write("a")]),
            done(),
        ],
    );
    let flags = [
        "--mode",
        "ask",
        "--approve",
        "all",
        "--approve",
        "mode=wide",
        "--approve",
        "mode=plan",
        "--output",
        "events",
        "go",
    ];
    let output = world.run(&provider, WAY, &flags);
    has(
        &[
            "denied The policy did not allow this call: it switches from `ask` to the mode `wide` of the repository",
            "done The mode is now `plan`: look and think",
            "failed There is no mode `nothing`. The modes are:\n- `code`: all tools\n- `plan`",
            "the mode `plan` does not change files",
        ],
        &results(&events(&output)),
    );
}

/// The summary of a compaction names the mode, since the message about the mode is left out.
#[test]
fn a_summary_names_the_mode() {
    let world = World::new();
    for at in 0..4 {
        world.write(&format!("{at}.txt"), &format!("line {at}\n").repeat(1000));
    }
    let turns: Vec<Turn> = std::iter::once(turn("", vec![to("plan")]))
        .chain((0..4).map(|at| {
            turn(
                "looking",
                vec![("read_file", json!({"path": format!("{at}.txt")}))],
            )
        }))
        .collect();
    let provider = world.plays(WAY, &turns);
    world.run(&provider, WAY, &["--max-turns", "5", "go"]);
    let id = world.only_task();
    let output = world
        .sabir_with(&provider)
        .args(["context", &id, "--compact", "--plain"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let provider = world.provider(ReplyScript::new(vec![WAY.reply(&done(), 1)]));
    world
        .sabir_with(&provider)
        .args(["resume", &id, "--output", "json"])
        .output()
        .unwrap();
    let body = &provider.received_requests()[0].body;
    let head = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["role"] == "user")
        .unwrap()
        .to_string();
    assert!(
        head.contains("The mode is now `plan`: look and think"),
        "{head}"
    );
    let tools = asked(&provider).remove(0).1;
    assert!(!tools.contains(&"write_to_file".to_owned()), "{tools:?}");
}

/// It reads and delegates, under each of its names.
#[test]
fn an_orchestrator_changes_nothing_itself() {
    let world = World::new();
    world.write("a.txt", "a\n");
    let calls = vec![
        ("read_file", json!({"path": "a.txt"})),
        write("b"),
        ("execute_command", json!({"command": "ls"})),
    ];
    let provider = world.plays(WAY, &[turn("", calls), done()]);
    let output = world.run(
        &provider,
        WAY,
        &[
            "--mode",
            "orchestrator",
            "--approve",
            "all",
            "--output",
            "events",
            "go",
        ],
    );
    let does_not = [
        "done",
        "the mode `orchestrator` does not change files",
        "the mode `orchestrator` does not run commands",
    ];
    has(&does_not, &results(&events(&output)));
    let system = provider.received_requests()[0].body["messages"][0].to_string();
    assert!(
        system.contains("Mode: orchestrator. Divide the task into parts"),
        "{system}"
    );
}

/// Signatures and encrypted thoughts go back only to the model that wrote them, also after a resume with another model.
#[test]
fn opaque_thoughts_go_only_to_their_own_model() {
    let world = World::new();
    world.configure(
        "model = \"anthropic/usual\"\n[modes.architect]\nmodel = \"anthropic/writer\"\n",
    );
    let thought = |number: usize, calls: Vec<(&'static str, Value)>| {
        let signature = format!("signature-{number}");
        calls.into_iter().fold(
            ProviderReply::text("").with_thought("Hm.", Some(&signature)),
            |reply, (name, arguments)| reply.with_call(&format!("c{number}"), name, arguments),
        )
    };
    let list = || ("list_files", json!({"path": "."}));
    let provider = world.provider(ReplyScript::new([
        thought(1, vec![list()]),
        thought(2, vec![to("docs")]),
        thought(3, vec![list()]),
        thought(4, vec![to("code")]),
        thought(5, vec![("attempt_completion", json!({"result": "done"}))]),
    ]));
    let flags = [
        "run",
        "--approve",
        "mode=docs",
        "--approve",
        "mode=code",
        "go",
    ];
    let output = world.sabir_with(&provider).args(flags).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let sent = |provider: &ScriptedProvider| -> Vec<(String, Vec<usize>)> {
        let requests = provider.received_requests();
        let one = |body: &Value| {
            let text = body["messages"].to_string();
            let numbers = (1..=5).filter(|number| text.contains(&format!("signature-{number}")));
            (
                body["model"].as_str().unwrap().to_owned(),
                numbers.collect(),
            )
        };
        requests.iter().map(|request| one(&request.body)).collect()
    };
    let expected = [
        ("usual", vec![]),
        ("usual", vec![1]),
        ("writer", vec![]),
        ("writer", vec![3]),
        ("usual", vec![1, 2]),
    ];
    let expected = expected.map(|(model, numbers)| (model.to_owned(), numbers));
    assert_eq!(sent(&provider), expected);
    let id = world.only_task();
    for (model, numbers) in [("writer", vec![3, 4]), ("usual", vec![1, 2, 5])] {
        let provider = world.plays(WAYS[0], &[done()]);
        let output = world
            .sabir_with(&provider)
            .args(["fork", &id, "--model", &format!("anthropic/{model}")])
            .args(["--output", "text", "go on"])
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(sent(&provider), [(model.to_owned(), numbers)]);
    }
    let provider = world.plays(WAYS[0], &[done()]);
    let output = world
        .sabir_with(&provider)
        .args(["resume", &id, "--model", "anthropic/third"])
        .args(["--output", "text", "go on"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(sent(&provider), [("third".to_owned(), vec![])]);
}
