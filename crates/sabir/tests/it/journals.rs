//! Tests the commands on journals: listing, resuming after each outcome, forking, and two processes with one task.

use std::process::{Child, Output};
use std::time::{Duration, Instant};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, World, code, events, stderr, stdout, turn};

const NATIVE: crate::world::Way = WAYS[1];

fn done() -> Turn {
    turn(
        "",
        vec![("attempt_completion", json!({"result": "All done."}))],
    )
}

fn append(word: &str) -> Turn {
    turn(
        "I append.",
        vec![(
            "execute_command",
            json!({"command": format!("echo {word} >> log.txt")}),
        )],
    )
}

fn sabir(world: &World, arguments: &[&str]) -> Output {
    world.sabir().args(arguments).output().unwrap()
}

/// The records of a task, as `sabir log` prints them.
fn records(world: &World, id: &str) -> Vec<Value> {
    events(&sabir(world, &["log", id, "--output", "events"]))
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record["kind"].as_str().unwrap())
        .collect()
}

/// Returns the number of the first record of one of these kinds.
fn first(records: &[Value], is: impl Fn(&Value) -> bool) -> usize {
    records.iter().position(is).unwrap() + 1
}

/// The newest task of the home.
fn newest(world: &World) -> String {
    find_newest(world).unwrap()
}

/// The newest task of the home, if one has a record already.
fn find_newest(world: &World) -> Option<String> {
    let listed: Value =
        serde_json::from_str(&stdout(&sabir(world, &["tasks", "--output", "json"]))).unwrap();
    Some(listed[0]["task"].as_str()?.to_owned())
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    assert_eq!(code(output), 2, "{}", stderr(output));
    for word in words {
        assert!(stderr(output).contains(word), "{word}: {}", stderr(output));
    }
}

fn interrupt(child: &Child) {
    std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
}

fn wait_for(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_numbers_the_records_and_shows_a_range() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[append("a"), done()]);
    assert_eq!(
        code(&world.run(
            &provider,
            NATIVE,
            &["--approve", "all", "do this", "and that"]
        )),
        0
    );
    let id = world.only_task();
    let all = records(&world, &id);
    assert_eq!(
        kinds(&all),
        [
            "started", "context", "answered", "running", "result", "answered", "result", "ended"
        ]
    );
    let log = stdout(&sabir(&world, &["log", &id]));
    for (number, words) in [
        (1, "task "),
        (3, "I append."),
        (4, "  running "),
        (5, "  ✓ "),
        (8, "ended (completed)"),
    ] {
        assert!(
            log.contains(&format!("\n{number:>4}  {words}"))
                || log.starts_with(&format!("{number:>4}  {words}")),
            "{log}"
        );
    }
    assert!(
        log.contains("      > do this and that\n")
            && log.contains("      ● execute_command {\"command\":"),
        "{log}"
    );
    assert!(log.contains("\nin all: "), "{log}");

    for (range, expected) in [
        ("2..4", &all[1..4]),
        ("5", &all[4..5]),
        ("6..", &all[5..]),
        ("..1", &all[..1]),
        ("9..", &[]),
    ] {
        let shown = sabir(
            &world,
            &["log", &id, "--records", range, "--output", "events"],
        );
        assert_eq!(
            (code(&shown), events(&shown)),
            (0, expected.to_vec()),
            "{range}"
        );
    }
    let shown = stdout(&sabir(&world, &["log", "--records", "4..5", &id]));
    assert!(
        shown.starts_with("   4  ") && shown.contains("\n   5  ") && !shown.contains("\n   6  "),
        "{shown}"
    );
    refused(
        &sabir(&world, &["log", &id, "--records", "4..2"]),
        &["`4..2` is not a range of records", "counted from 1"],
    );
    // The log of a task that no process works on is shown and not followed.
    let followed = sabir(&world, &["log", &id, "--follow", "--output", "events"]);
    assert_eq!(events(&followed), all);
    refused(
        &sabir(&world, &["log", &id, "--follow", "--output", "json"]),
        &["cannot be followed"],
    );
}

#[test]
fn a_log_follows_a_task_to_its_end() {
    let world = World::new();
    let wait = turn(
        "",
        vec![(
            "execute_command",
            json!({"command": "until test -e go; do sleep 0.1; done"}),
        )],
    );
    let provider = world.plays(NATIVE, &[wait, done()]);
    let mut task = world.sabir_with(&provider);
    let mut task = task
        .args([
            "run",
            "--model",
            NATIVE.model(),
            "--approve",
            "all",
            "--sandbox",
            "off",
            "x",
        ])
        .spawn()
        .unwrap();
    wait_for("the command does not run", || {
        let folder = world.home.path().join(".local/share/sabir/tasks");
        let task = folder.is_dir().then(|| find_newest(&world)).flatten();
        task.is_some_and(|task| kinds(&records(&world, &task)).contains(&"running"))
    });
    let id = newest(&world);
    let shown = world.home.path().join("shown");
    let mut follower = world.sabir();
    follower
        .args(["log", &id, "--follow", "--output", "events"])
        .stdout(std::fs::File::create(&shown).unwrap());
    let mut follower = follower.spawn().unwrap();
    wait_for("nothing is followed", || {
        std::fs::read_to_string(&shown)
            .unwrap()
            .contains("\"running\"")
    });
    world.write("go", "");
    assert_eq!(task.wait().unwrap().code(), Some(0));
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    let lines = std::fs::read_to_string(&shown).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, records(&world, &id));
}

#[test]
fn tasks_are_found_by_their_text() {
    let world = World::new();
    for prompt in ["mend the Parser of files", "write a parser", "clean up"] {
        let provider = world.plays(NATIVE, &[done()]);
        assert_eq!(code(&world.run(&provider, NATIVE, &[prompt])), 0);
    }
    for (words, expected) in [
        (&["parser"][..], 2),
        (&["FILES", "pars"], 1),
        (&["the parser files"], 1),
        (&["nothing"], 0),
        (&[], 3),
    ] {
        let shown = world.sabir().arg("tasks").args(words).output().unwrap();
        assert_eq!(
            (code(&shown), stdout(&shown).lines().count()),
            (0, expected),
            "{words:?}: {}",
            stdout(&shown)
        );
    }
}

#[test]
fn a_task_is_resumed_after_any_end_but_completion() {
    // Unfinished, denied, limit, provider failed, misconfigured.
    let words = || turn("I stop.", vec![]);
    let failing = |status| ReplyScript::from_fn(move |_, _| ProviderReply::error_status(status));
    let played = |turns: &[Turn]| {
        ReplyScript::new(
            turns
                .iter()
                .enumerate()
                .map(|(at, turn)| NATIVE.reply(turn, at + 1))
                .collect::<Vec<_>>(),
        )
    };
    let rows = [
        (
            played(&[words(), words(), words()]),
            &["--approve", "all", "--completion", "call"][..],
            3,
            "unfinished",
        ),
        (
            played(&[append("a"), words(), words(), words()]),
            &[],
            5,
            "denied",
        ),
        (
            played(&[append("a"), append("b")]),
            &["--approve", "all", "--max-turns", "1"],
            6,
            "limit",
        ),
        (failing(400), &[], 7, "provider_failed"),
        (failing(401), &[], 2, "misconfigured"),
    ];
    for (script, options, exit, outcome) in rows {
        let world = World::new();
        let provider = world.provider(script);
        let ran = world.run(&provider, NATIVE, &[options, &["do it"]].concat());
        let id = world.only_task();
        let before = records(&world, &id);
        assert_eq!(
            (code(&ran), &before.last().unwrap()["outcome"]),
            (exit, &json!(outcome)),
            "{}",
            stderr(&ran)
        );
        let provider = world.plays(NATIVE, &[done()]);
        let resumed = world
            .sabir_with(&provider)
            .args(["resume", "--output", "text", &id, "go on"])
            .output()
            .unwrap();
        assert_eq!(code(&resumed), 0, "{outcome}: {}", stderr(&resumed));
        assert!(
            provider.received_requests()[0]
                .body
                .to_string()
                .contains("go on"),
            "{outcome}"
        );
        let after = records(&world, &id);
        assert_eq!(
            after[..before.len()],
            before,
            "{outcome}: what was kept stays as it is"
        );
        assert_eq!(after.last().unwrap()["outcome"], "completed");
        let again = world
            .sabir_with(&provider)
            .args(["resume", "--output", "text", &id])
            .output()
            .unwrap();
        refused(
            &again,
            &[
                "the task is completed",
                &format!("`sabir resume {} WORDS` continues it", &id[id.len() - 6..]),
            ],
        );
        assert_eq!(records(&world, &id), after, "a refusal writes nothing");
        refused(
            &world
                .sabir_with(&provider)
                .args(["resume", "--output", "text"])
                .output()
                .unwrap(),
            &["no task that could be resumed"],
        );
    }
}

#[test]
fn killed_and_cancelled_tasks_resume_and_a_running_one_is_refused() {
    for killed in [true, false] {
        let world = World::new();
        let wait = turn(
            "",
            vec![(
                "execute_command",
                json!({"command": "echo x >> log.txt; sleep 600"}),
            )],
        );
        let provider = world.plays(NATIVE, &[wait]);
        let mut command = world.sabir_with(&provider);
        let mut task = command
            .args(["run", "--model", NATIVE.model(), "--approve", "all", "x"])
            .spawn()
            .unwrap();
        wait_for("the command does not run", || {
            world.read("log.txt") == "x\n"
        });
        let id = world.only_task();
        // The message names the process that holds it.
        let second = world
            .sabir_with(&provider)
            .args(["resume", "--output", "text", &id])
            .output()
            .unwrap();
        refused(
            &second,
            &[
                &format!(
                    "the task `{id}` is in use by process {}, which has",
                    task.id()
                ),
                "end that one first",
            ],
        );
        if killed {
            task.kill().unwrap();
        } else {
            interrupt(&task);
        }
        task.wait().unwrap();
        let before = records(&world, &id);
        assert_eq!(kinds(&before).contains(&"ended"), !killed);
        let provider = world.plays(NATIVE, &[done()]);
        let resumed = world
            .sabir_with(&provider)
            .args(["resume", "--output", "text", &id])
            .output()
            .unwrap();
        assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
        let all = records(&world, &id);
        let endings: Vec<_> = all
            .iter()
            .filter(|record| record["kind"] == "result")
            .map(|record| &record["ending"])
            .collect();
        assert_eq!(endings, ["interrupted", "done"], "one result each");
        assert_eq!(world.read("log.txt"), "x\n", "nothing ran twice");
    }
}

#[test]
fn two_tasks_in_one_folder_do_not_write_over_each_other() {
    let world = World::new();
    world.write("shared.txt", "one\ntwo\n");
    let edit = |from: &str, to: &str| {
        let diff = format!("------- SEARCH\n{from}\n=======\n{to}\n+++++++ REPLACE");
        turn(
            "",
            vec![(
                "replace_in_file",
                json!({"path": "shared.txt", "diff": diff}),
            )],
        )
    };
    let read = || turn("", vec![("read_file", json!({"path": "shared.txt"}))]);
    let wait = || {
        turn(
            "",
            vec![(
                "execute_command",
                json!({"command": "touch ready; until test -e go; do sleep 0.1; done"}),
            )],
        )
    };
    let a = world.plays(
        NATIVE,
        &[
            read(),
            wait(),
            edit("two", "A"),
            read(),
            edit("two", "A"),
            done(),
        ],
    );
    let mut command = world.sabir_with(&a);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--approve",
        "all",
        "--sandbox",
        "off",
        "--output",
        "events",
        "a",
    ]);
    let a_task = command.spawn().unwrap();
    wait_for("task A does not wait", || {
        world.work.path().join("ready").exists()
    });
    let b = world.plays(NATIVE, &[read(), edit("one", "B"), done()]);
    let ran = world.run(&b, NATIVE, &["--approve", "all", "--output", "events", "b"]);
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(world.read("shared.txt"), "B\ntwo\n");
    world.write("go", "");
    let output = a_task.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    let stale = &results[2];
    assert_eq!(
        (&stale["name"], &stale["ending"]),
        (&json!("replace_in_file"), &json!("failed")),
        "{stale}"
    );
    let words = stale["content"].as_str().unwrap();
    assert!(
        words.contains("changed") && words.contains("read"),
        "the model hears to read again: {words}"
    );
    assert_eq!(
        (&results[4]["name"], &results[4]["ending"]),
        (&json!("replace_in_file"), &json!("done"))
    );
    assert_eq!(world.read("shared.txt"), "B\nA\n", "neither change is lost");
}

#[test]
fn a_fork_continues_from_any_record() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[append("a"), append("b"), done()]);
    assert_eq!(
        code(&world.run(
            &provider,
            NATIVE,
            &["--approve", "all", "--sandbox", "off", "do it"]
        )),
        0
    );
    let id = world.only_task();
    let file = world
        .home
        .path()
        .join(format!(".local/share/sabir/tasks/{id}.journal"));
    let (bytes, old) = (std::fs::read(&file).unwrap(), records(&world, &id));
    for number in 1..=old.len() {
        let provider = world.plays(NATIVE, &[done()]);
        let forked = world
            .sabir_with(&provider)
            .args([
                "fork",
                "--sandbox",
                "off",
                "--allow-denied",
                "--output",
                "json",
                &format!("{id}@{number}"),
                "and then",
            ])
            .output()
            .unwrap();
        assert_eq!(code(&forked), 0, "@{number}: {}", stderr(&forked));
        let end: Value = serde_json::from_str(&stdout(&forked)).unwrap();
        let new = records(&world, end["task"].as_str().unwrap());
        assert_eq!(
            new[0]["from"],
            json!({"by": "fork", "task": id, "record": number})
        );
        assert_eq!(
            (&new[0]["task"], &new[0]["prompt"]),
            (&end["task"], &json!("do it"))
        );
        let taken = if number == old.len() {
            number - 1
        } else {
            number
        };
        assert_eq!(new[1..taken], old[1..taken], "@{number}");
        // Every call has one result, whatever the record was.
        let calls: Vec<_> = new
            .iter()
            .filter_map(|record| record["checks"].as_array())
            .flatten()
            .map(|check| &check["call"])
            .collect();
        let mut results: Vec<_> = new
            .iter()
            .filter(|record| record["kind"] == "result")
            .map(|record| &record["id"])
            .collect();
        assert_eq!(results.len(), calls.len(), "@{number}");
        results.dedup();
        assert_eq!(results, calls, "@{number}");
        // The same applies to a completion without a result: it was written before that message.
        let asked: Vec<_> = provider
            .received_requests()
            .iter()
            .map(|request| request.body.to_string())
            .collect();
        assert!(asked[0].contains("and then"), "@{number}: {asked:?}");
        assert_eq!(
            std::fs::read(&file).unwrap(),
            bytes,
            "@{number}: the old task is as it was"
        );
    }
    assert_eq!(world.read("log.txt"), "a\nb\n", "nothing ran again");
    let fork = |from: &str| {
        world
            .sabir_with(&provider)
            .args(["fork", "--output", "text", from])
            .output()
            .unwrap()
    };
    refused(
        &fork(&format!("{id}@99")),
        &[&format!("has {} records", old.len()), "sabir log"],
    );
    refused(&fork(&format!("{id}@0")), &["names no record"]);
    refused(&fork("nothing"), &["there is no task `nothing`"]);
}

#[test]
fn a_fork_may_use_another_model_and_protocol() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[append("a"), done()]);
    assert_eq!(
        code(&world.run(&provider, NATIVE, &["--approve", "all", "do it"])),
        0
    );
    let id = world.only_task();
    let result = first(&records(&world, &id), |record| record["kind"] == "result");
    for way in [WAYS[0], WAYS[2]] {
        let provider = world.plays(way, &[done()]);
        let forked = world
            .sabir_with(&provider)
            .args([
                "fork",
                "--model",
                way.model(),
                "--protocol",
                way.protocol,
                "--output",
                "json",
            ])
            .arg(format!("{id}@{result}"))
            .output()
            .unwrap();
        assert_eq!(code(&forked), 0, "{way:?}: {}", stderr(&forked));
        let end: Value = serde_json::from_str(&stdout(&forked)).unwrap();
        let new = records(&world, end["task"].as_str().unwrap());
        assert_eq!(new[0]["model"], way.model());
        let body = &provider.received_requests()[0].body;
        assert_eq!(
            body.get("tools").is_some(),
            way.protocol == "native",
            "{way:?}"
        );
        assert!(
            body.to_string().contains("echo a >> log.txt"),
            "{way:?}: the call before is in the request"
        );
        // It continues with the model of the fork.
        let log = stdout(&sabir(&world, &["log", end["task"].as_str().unwrap()]));
        assert!(
            log.contains(&format!("      forked from {id}, record {result}\n")),
            "{log}"
        );
    }
}

#[test]
fn a_fork_can_restore_files() {
    let write = |content: &str| {
        turn(
            "",
            vec![(
                "write_to_file",
                json!({"path": "a.txt", "content": content}),
            )],
        )
    };
    let world = World::new();
    world.write("a.txt", "zero\n");
    let provider = world.plays(NATIVE, &[write("one\n"), write("two\n"), done()]);
    assert_eq!(
        code(&world.run(&provider, NATIVE, &["--approve", "all", "do it"])),
        0
    );
    let id = world.only_task();
    let result = first(&records(&world, &id), |record| record["kind"] == "result");
    let fork = |more: &[&str]| {
        let provider = world.plays(NATIVE, &[done()]);
        let from = format!("{id}@{result}");
        world
            .sabir_with(&provider)
            .args(["fork", "--output", "json"])
            .args(more)
            .arg(from)
            .output()
            .unwrap()
    };
    assert_eq!(code(&fork(&[])), 0);
    assert_eq!(
        world.read("a.txt"),
        "two\n",
        "without it files stay as they are"
    );
    // A change by somebody else is not overwritten, and no task starts.
    world.write("a.txt", "mine\n");
    let count = || stdout(&sabir(&world, &["tasks"])).lines().count();
    let before = count();
    let forked = fork(&["--restore"]);
    assert_eq!(
        (count(), world.read("a.txt").as_str()),
        (before, "mine\n"),
        "{}",
        stderr(&forked)
    );
    refused(&forked, &["cannot be restored", "nothing was changed"]);
    world.write("a.txt", "two\n");
    let forked = fork(&["--restore"]);
    assert_eq!(
        (code(&forked), world.read("a.txt").as_str()),
        (0, "one\n"),
        "{}",
        stderr(&forked)
    );
    assert!(
        stderr(&forked).contains("1 path restored"),
        "{}",
        stderr(&forked)
    );
    let forked = fork(&["--restore"]);
    assert!(
        code(&forked) == 0 && stderr(&forked).contains("no call after that record"),
        "{}",
        stderr(&forked)
    );
}

#[test]
fn a_fork_of_a_running_task_does_not_affect_it() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("x").with_fault(ScriptedFault::StallBeforeHeaders)
    }));
    let mut command = world.sabir_with(&provider);
    let mut task = command
        .args(["run", "--model", NATIVE.model(), "say hello"])
        .spawn()
        .unwrap();
    wait_for("the model is not asked", || {
        !provider.received_requests().is_empty()
    });
    let id = world.only_task();
    let second = world.plays(NATIVE, &[done()]);
    let forked = world
        .sabir_with(&second)
        .args(["fork", "--output", "text", &id])
        .output()
        .unwrap();
    assert_eq!(code(&forked), 0, "{}", stderr(&forked));
    interrupt(&task);
    assert_eq!(task.wait().unwrap().code(), Some(130));
    assert_eq!(
        kinds(&records(&world, &id)),
        ["started", "context", "ended"]
    );
}

#[test]
fn a_task_that_was_killed_before_its_first_record_is_not_listed() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    assert_eq!(code(&world.run(&provider, NATIVE, &["do it"])), 0);
    let tasks = world.home.path().join(".local/share/sabir/tasks");
    for (name, bytes) in [
        ("a", &b""[..]),
        ("b", b"sabir jou"),
        ("c", b"sabir journal 2\n"),
        ("d", b"sabir journal 2\n\x09"),
    ] {
        std::fs::write(tasks.join(format!("{name}.journal")), bytes).unwrap();
    }
    let listed = sabir(&world, &["tasks", "--output", "json"]);
    let listed: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let text = sabir(&world, &["tasks"]);
    assert_eq!(stdout(&text).lines().count(), 1);
    assert_eq!(stderr(&text), "");
}

/// SES-013: the folder of a task is its own, not the current one.
#[test]
fn a_task_that_is_resumed_elsewhere_says_so() {
    let world = World::new();
    let stops = || turn("I stop.", vec![]);
    let provider = world.plays(NATIVE, &[(); 9].map(|()| stops()));
    let first = world.work.path().join("first");
    let other = world.work.path().join("other");
    for folder in [&first, &other] {
        std::fs::create_dir(folder).unwrap();
    }
    let folder = first.to_str().unwrap();
    _ = world.run(&provider, NATIVE, &["-C", folder, "do it"]);
    let id = world.only_task();
    let resume = |current: &std::path::Path, more: &[&str]| {
        let output = world
            .sabir_with(&provider)
            .args(["resume", "--output", "text", &id, "go on"])
            .args(more)
            .current_dir(current)
            .output()
            .unwrap();
        stderr(&output)
    };
    assert!(!resume(&first, &[]).contains("this task"));
    let said = resume(&other, &[]);
    assert!(said.contains("and not in the current folder"), "{said}");
    let said = resume(&first, &["-C", other.to_str().unwrap()]);
    assert!(said.contains("this task began in"), "{said}");
}

/// A resumed task still knows which files its model has seen: one that changed meanwhile has to be read again.
#[test]
fn a_resumed_task_remembers_what_its_model_has_seen() {
    let way = WAYS[1];
    let world = World::new();
    world.write("read.txt", "one\n");
    world.write("kept.txt", "one\n");
    let write = |path: &str, content: &str| {
        turn(
            "",
            vec![("write_to_file", json!({"path": path, "content": content}))],
        )
    };
    let read = || turn("", vec![("read_file", json!({"path": "read.txt"}))]);
    let provider = world.plays(
        way,
        &[
            turn("", vec![("read_file", json!({"path": "kept.txt"}))]),
            read(),
            write("made.txt", "mine\n"),
            done(),
        ],
    );
    let ran = world.run(&provider, way, &["--approve", "all", "go"]);
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    let id = world.only_task();
    world.write("read.txt", "one\nthe user's\n");
    world.write("made.txt", "mine\nthe user's\n");
    let provider = world.plays(
        way,
        &[
            write("kept.txt", "two\n"),
            write("read.txt", "two\n"),
            write("made.txt", "two\n"),
            read(),
            write("read.txt", "one\nthe user's\ntwo\n"),
            done(),
            done(),
        ],
    );
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", &id, "--approve", "all", "--output", "events"])
        .arg("go on")
        .output()
        .unwrap();
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
    let told: Vec<_> = events(&resumed)
        .iter()
        .filter(|event| event["kind"] == "result" && event["name"] == "write_to_file")
        .map(|event| {
            let content = event["content"].as_str().unwrap();
            (
                event["ending"].as_str().unwrap().to_owned(),
                content.contains("changed on disk since you last read"),
            )
        })
        .collect();
    let expected = [
        ("done", false),
        ("failed", true),
        ("failed", true),
        ("done", false),
    ];
    assert_eq!(
        told,
        expected.map(|(ending, stale)| (ending.to_owned(), stale))
    );
    assert_eq!(world.read("kept.txt"), "two\n");
    assert_eq!(world.read("made.txt"), "mine\nthe user's\n");
    assert_eq!(world.read("read.txt"), "one\nthe user's\ntwo\n");
}
