//! The first hour of a new user: nothing is lost, nothing is false, nothing is in the way.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Output, Stdio};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::approval::Seat;
use crate::interactive::Talk;
use crate::world::{Turn, WAYS, Way, World, code, stderr, stdout, turn};

const NATIVE: Way = WAYS[1];
const PROMPTED: Way = WAYS[2];

fn done() -> Turn {
    turn(
        "",
        vec![("attempt_completion", json!({"result": "All done."}))],
    )
}

fn write(path: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": path, "content": "x\n"}))],
    )
}

fn command(line: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": line}))])
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

fn requests(provider: &ScriptedProvider) -> usize {
    provider.received_requests().len()
}

/// The text of the last request.
fn last_request(provider: &ScriptedProvider) -> String {
    let requests = provider.received_requests();
    requests.last().unwrap().body.to_string()
}

#[test]
fn a_completion_after_denials_is_no_success() {
    let run = |turns: &[Turn], arguments: &[&str]| {
        let world = World::new();
        let provider = world.plays(NATIVE, turns);
        let ran = world.run(&provider, NATIVE, &[arguments, &["do it"]].concat());
        (world, ran)
    };
    let json = ["--output", "json"];
    let (_world, ran) = run(&[write("a.txt"), command("touch b"), done()], &json);
    let report_of = report(&ran);
    assert_eq!(code(&ran), 5, "{report_of}");
    assert_eq!(report_of["outcome"], "denied");
    assert_eq!(report_of["denied"][0]["tool"], "write_to_file");
    assert_eq!(report_of["denied"][0]["subject"], "a.txt");
    assert_eq!(report_of["denied"][1]["subject"], "touch b");
    assert_eq!(report_of["changed_files"], json!([]));
    let message = report_of["message"].as_str().unwrap();
    assert!(
        message.contains("write_to_file a.txt") && message.contains("All done."),
        "{message}"
    );

    // The same in text says what was denied, and leaves standard output to results.
    let (_world, ran) = run(&[write("a.txt"), done()], &[]);
    assert_eq!(
        (code(&ran), stdout(&ran).as_str()),
        (5, ""),
        "{}",
        stderr(&ran)
    );
    assert!(
        stderr(&ran).contains("denied: write_to_file a.txt"),
        "{}",
        stderr(&ran)
    );

    // The user may accept it.
    let (_world, ran) = run(
        &[write("a.txt"), done()],
        &["--allow-denied", "--output", "json"],
    );
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(report(&ran)["denied"][0]["subject"], "a.txt");
}

#[test]
fn a_denial_that_is_made_good_does_not_count() {
    let world = World::new();
    let outside = turn(
        "",
        vec![("execute_command", json!({"command": "touch a.txt"}))],
    );
    let turns = [outside.clone(), write("a.txt"), outside, done()];
    let provider = world.plays(NATIVE, &turns);
    let ran = world.run(&provider, NATIVE, &["--approve", "edits", "do it"]);
    // The command was never done.
    assert_eq!(code(&ran), 5, "{}", stderr(&ran));
    let task = world.only_task();
    let provider = world.plays(NATIVE, &[command("touch a.txt"), done()]);
    let mut resumed = world.sabir_with(&provider);
    resumed.args(["resume", "--output", "json", "--approve", "all", &task]);
    let ran = resumed.output().unwrap();
    assert_eq!(code(&ran), 0, "{}{}", stdout(&ran), stderr(&ran));
}

#[test]
fn a_summary_names_what_failed_and_what_changed() {
    let world = World::new();
    let turns = [
        write("a.txt"),
        turn(
            "",
            vec![(
                "replace_in_file",
                json!({"path": "a.txt", "diff": "------- SEARCH\nnope\n=======\ny\n+++++++ REPLACE"}),
            )],
        ),
        command("echo 1 > made.txt"),
        done(),
    ];
    let provider = world.plays(NATIVE, &turns);
    let ran = world.run(
        &provider,
        NATIVE,
        &["--approve", "all", "--output", "json", "do it"],
    );
    let report = report(&ran);
    assert_eq!(code(&ran), 0, "{report}");
    assert_eq!(
        report["changed_files"],
        json!(["a.txt", "made.txt"]),
        "{report}"
    );
    assert_eq!(report["failed"][0]["tool"], "replace_in_file", "{report}");
    assert_eq!(report["denied"], json!([]));
}

/// What git ignores is counted, and listed in JSON only.
#[test]
fn a_summary_folds_what_git_ignores() {
    let world = World::new();
    std::fs::create_dir(world.work.path().join(".git")).unwrap();
    world.write(".gitignore", "cache/\n");
    let line = "mkdir cache && echo 1 > cache/a && echo 1 > cache/b && echo 1 > made.txt";
    let provider = world.plays(NATIVE, &[command(line), done()]);
    let ran = world.run(&provider, NATIVE, &["--approve", "all", "do it"]);
    let text = stderr(&ran);
    assert_eq!(code(&ran), 0, "{text}");
    // The folder is the third one.
    let changed = "changed: made.txt\nchanged: 3 paths that git ignores\n";
    assert!(text.contains(changed), "{text}");
}

/// On a terminal the answer has been read while it streamed; with a redirection, or after a call, the result is printed.
#[test]
fn an_answer_is_shown_once() {
    let ask = |turns: &[Turn]| {
        let world = World::new();
        world.write("main.rs", "fn main() {}\n");
        let provider = world.plays(NATIVE, turns);
        let mut command = world.sabir_with(&provider);
        command.args(["run", "--model", NATIVE.model(), "explain main.rs"]);
        let mut seat = Seat::running(command, "");
        let shown = seat.wait_for("tokens");
        assert_eq!(seat.end().code(), Some(0), "{shown}");
        shown + &seat.rest()
    };
    let answer = "It is an empty program.";
    let shown = ask(&[turn(answer, vec![])]);
    assert_eq!(shown.matches(answer).count(), 1, "{shown}");
    let read = turn("I look.", vec![("read_file", json!({"path": "main.rs"}))]);
    let shown = ask(&[read, turn(answer, vec![])]);
    assert_eq!(shown.matches(answer).count(), 1, "{shown}");
    // Standard output is a file of the user.
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn(answer, vec![])]);
    let ran = world.run(&provider, NATIVE, &["explain"]);
    assert_eq!(stdout(&ran), format!("{answer}\n"));
}

#[test]
fn an_answer_is_a_result_where_nothing_was_changed() {
    let answer = turn("It prints the time.", vec![]);
    let read = turn("", vec![("read_file", json!({"path": "main.rs"}))]);
    let world = World::new();
    world.write("main.rs", "fn main() {}\n");
    let provider = world.plays(NATIVE, &[read, answer.clone()]);
    let ran = world.run(&provider, NATIVE, &["explain main.rs"]);
    assert_eq!(
        (code(&ran), stdout(&ran).as_str(), requests(&provider)),
        (0, "It prints the time.\n", 2),
        "{}",
        stderr(&ran)
    );

    // A model that changed something must say that it is done.
    let provider = world.plays(NATIVE, &[write("a"), answer.clone(), done()]);
    let ran = world.run(&provider, NATIVE, &["--approve", "all", "do it"]);
    assert_eq!(
        (code(&ran), stdout(&ran).as_str()),
        (0, "All done.\n"),
        "{}",
        stderr(&ran)
    );

    // A prompted protocol teaches the call, and the flag asks for it.
    let provider = world.plays(PROMPTED, &[answer.clone(), done()]);
    let ran = world.run(&provider, PROMPTED, &["explain it"]);
    assert_eq!(
        (code(&ran), requests(&provider)),
        (0, 2),
        "{}",
        stderr(&ran)
    );
    let provider = world.plays(NATIVE, &[answer, done()]);
    let ran = world.run(&provider, NATIVE, &["--completion", "call", "explain it"]);
    assert_eq!(
        (code(&ran), requests(&provider)),
        (0, 2),
        "{}",
        stderr(&ran)
    );
}

#[test]
fn a_single_unknown_word_is_no_paid_task() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done()]);
    for (word, hint) in [
        ("login", "sabir models"),
        ("plugins", "sabir -- plugins"),
        ("version", "sabir --version"),
        ("logs", "did you mean `sabir log`?"),
        ("status", "did you mean `sabir tasks`?"),
        ("taks", "did you mean `sabir tasks`?"),
        ("-", "sabir run -"),
    ] {
        let mut command = world.sabir_with(&provider);
        let ran = command
            .args(["--model", NATIVE.model(), word])
            .output()
            .unwrap();
        assert_eq!(code(&ran), 2, "{word}: {}", stderr(&ran));
        assert!(stderr(&ran).contains(hint), "{word}: {}", stderr(&ran));
    }
    assert_eq!(requests(&provider), 0);
    let mut talk = world.sabir_with(&provider);
    talk.args(["--model", NATIVE.model(), "--", "login"]);
    talk.output().unwrap();
    assert!(last_request(&provider).contains("login"));
}

/// Runs `sabir run` with a pipe.
fn piped(world: &World, provider: &ScriptedProvider, words: &[&str], input: &str) -> Output {
    let mut command = world.sabir_with(provider);
    command.args(["run", "--model", NATIVE.model()]).args(words);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_is_a_part_of_the_task() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[done(), done(), done()]);
    let text = "  line one\n\n\tline two\n";
    let ran = piped(&world, &provider, &["explain", "this"], text);
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    let sent = last_request(&provider);
    assert!(
        sent.contains("explain this\\n\\n<stdin>\\n  line one\\n\\n\\tline two\\n</stdin>"),
        "{sent}"
    );
    for words in [&["-"][..], &[]] {
        let ran = piped(&world, &provider, words, "fix the bug in x.rs\n");
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        let sent = last_request(&provider);
        assert!(
            sent.contains("fix the bug in x.rs") && !sent.contains("<stdin>"),
            "{sent}"
        );
    }
    let ran = piped(&world, &provider, &[], "");
    assert_eq!(
        (code(&ran), requests(&provider)),
        (2, 3),
        "{}",
        stderr(&ran)
    );
}

#[test]
fn a_failure_is_said_once() {
    let world = World::new();
    for (status, end) in [(401, 2), (404, 2)] {
        let provider = world.provider(ReplyScript::from_fn(move |_, _| {
            ProviderReply::error_status(status)
        }));
        let ran = world.run(&provider, NATIVE, &["do it"]);
        let shown = stderr(&ran);
        assert_eq!(code(&ran), end, "{shown}");
        // As a word: the name of the task or a port may hold the digits.
        let is_said = |line: &&str| {
            line.split(|c: char| !c.is_ascii_alphanumeric())
                .any(|word| word == status.to_string())
        };
        let count = shown.lines().filter(is_said).count();
        assert_eq!(count, 1, "{shown}");
        assert!(
            !shown.contains("0 turns") && !shown.contains("? tokens"),
            "{shown}"
        );
    }
}

#[test]
fn a_refused_loopback_connection_is_said_once() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut command = world.sabir();
    command.args([
        "run",
        "--model",
        &format!("http://127.0.0.1:{port}/v1#m"),
        "do it",
    ]);
    let ran = command.output().unwrap();
    let shown = stderr(&ran);
    assert_eq!(code(&ran), 7, "{shown}");
    assert_eq!(shown.matches("refused").count(), 1, "{shown}");
    assert!(!shown.contains("attempt"), "{shown}");
}

/// Words that come while a result is on the screen are read before the task is over.
#[test]
fn words_beside_a_result_are_not_lost() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let body = request.body.to_string();
        let number = if body.contains("Add a test too.") {
            2
        } else {
            1
        };
        let result = if number == 2 {
            "With a test."
        } else {
            "It is made."
        };
        NATIVE.reply(
            &turn("", vec![("attempt_completion", json!({"result": result}))]),
            number,
        )
    }));
    let mut seat = crate::approval::Seat::at(&world, &provider, "");
    seat.wait_for("It is made.");
    // The question follows a moment later. The words are about the result, whichever comes first.
    seat.keys("Add a test too.\n");
    seat.wait_for("With a test.");
    assert_eq!(seat.accept(), Some(0));
    assert!(last_request(&provider).contains("Add a test too."));
}

#[test]
fn lines_that_look_like_commands_are_not_sent() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[turn("What now?", vec![]), turn("Fine.", vec![]), done()],
    );
    let mut talk = Talk::begin(&world, &provider, NATIVE);
    talk.wait_for("What now?");
    talk.wait_for("> ");
    for (line, shown) in [
        ("/compcat", "Did you mean `/compact`?"),
        ("?", "/image FILE"),
        ("!ls", "`!` runs no commands here"),
        ("@main.rs explain", "`@` attaches no files"),
        ("/frobnicate all", "there is no command `/frobnicate`"),
    ] {
        talk.say(line);
        talk.wait_for(shown);
        talk.wait_for("\n> ");
    }
    assert_eq!(requests(&provider), 1);
    talk.say("/say /frobnicate all");
    talk.wait_for("Fine.");
    talk.wait_for("> ");
    assert!(last_request(&provider).contains("/frobnicate all"));
    talk.say("exit");
    assert_eq!(talk.code(), Some(3));
    assert_eq!(requests(&provider), 2);
}

/// A home with two tasks in the folder `work/project`, and one elsewhere.
fn three_tasks() -> (World, Vec<String>) {
    let world = World::new();
    let mut ids = Vec::new();
    for (folder, words) in [
        ("other", "Paint the fence"),
        ("project", "Fix the parser"),
        ("project", "Write a changelog"),
    ] {
        let path = world.work.path().join(folder);
        std::fs::create_dir_all(path.join("src/deep")).unwrap();
        let provider = world.plays(NATIVE, &[write("made.txt"), done()]);
        let mut command = world.sabir_with(&provider);
        command.current_dir(&path);
        command.args([
            "run",
            "--model",
            NATIVE.model(),
            "--approve",
            "all",
            "--output",
            "json",
            words,
        ]);
        let ran = command.output().unwrap();
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        ids.push(report(&ran)["task"].as_str().unwrap().to_owned());
    }
    (world, ids)
}

/// Runs the binary in a folder of the workspace.
fn within(world: &World, folder: &str, arguments: &[&str]) -> Output {
    let mut command = world.sabir();
    command
        .current_dir(world.work.path().join(folder))
        .args(arguments);
    command.output().unwrap()
}

#[test]
fn every_command_finds_tasks_by_the_same_names() {
    let (world, ids) = three_tasks();
    let ending = |id: &str| id[id.len() - 6..].to_owned();
    let [fence, parser, changelog] = [&ids[0], &ids[1], &ids[2]];
    for (name, id) in [
        (parser.clone(), parser),
        (ending(parser), parser),
        (ending(fence), fence),
        ("@1".to_owned(), changelog),
        ("@2".to_owned(), parser),
        ("parser".to_owned(), parser),
        ("FIX parser".to_owned(), parser),
        ("fence".to_owned(), fence),
    ] {
        for command in [
            &["log", "--records", "1", "--output", "events"][..],
            &["export", "--to", "json"],
            &["context", "--output", "json"],
        ] {
            let ran = within(&world, "project/src/deep", &[command, &[&name]].concat());
            assert_eq!(code(&ran), 0, "{command:?} {name}: {}", stderr(&ran));
            assert!(
                stdout(&ran).contains(id.as_str()),
                "{command:?} {name}: {}",
                stdout(&ran)
            );
        }
    }
    // Without a name it is the newest task of the folder, from a subfolder too.
    for command in ["log", "export", "diff", "checkpoints"] {
        let ran = within(&world, "project/src", &[command]);
        assert_eq!(code(&ran), 0, "{command}: {}", stderr(&ran));
    }
    assert!(stdout(&within(&world, "project/src", &["export"])).contains("Write a changelog"));
    for command in ["diff", "checkpoints"] {
        let ran = within(&world, "project", &[command, "parser"]);
        assert_eq!(code(&ran), 0, "{command}: {}", stderr(&ran));
    }
    let ran = within(&world, "project", &["log", "the"]);
    assert_eq!(
        code(&ran),
        0,
        "only one of this folder has the word: {}",
        stderr(&ran)
    );
    let ran = within(&world, "", &["log", "the"]);
    assert_eq!(code(&ran), 2);
    assert!(
        stderr(&ran).contains("2 tasks have the words `the`")
            && stderr(&ran).contains(&ending(parser)),
        "{}",
        stderr(&ran)
    );
    let ran = within(&world, "project", &["log", "@3"]);
    assert!(stderr(&ran).contains("has 2 tasks"), "{}", stderr(&ran));
}

#[test]
fn tasks_are_listed_for_the_folder() {
    let (world, ids) = three_tasks();
    let list = stdout(&within(&world, "project/src", &["tasks"]));
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    assert!(
        lines[0].starts_with("@1") && lines[0].contains(&ids[2][ids[2].len() - 6..]),
        "{list}"
    );
    for words in ["just now", "completed", "Write a changelog"] {
        assert!(lines[0].contains(words), "{words}: {list}");
    }
    assert!(
        lines[1].starts_with("@2") && lines[1].contains("Fix the parser"),
        "{list}"
    );
    let all = stdout(&within(&world, "project", &["tasks", "--everywhere"]));
    assert!(
        all.contains("Paint the fence") && all.contains("other]"),
        "{all}"
    );
    let none = within(&world, "other/src", &["tasks", "parser"]);
    assert!(stderr(&none).contains("--everywhere"), "{}", stderr(&none));
}

#[test]
fn a_resumed_task_shows_where_it_stood() {
    let (world, ids) = three_tasks();
    let provider = world.plays(NATIVE, &[turn("Hello again.", vec![])]);
    let mut command = world.sabir_with(&provider);
    command.current_dir(world.work.path().join("project/src"));
    command.args(["-c", "-m", NATIVE.model()]);
    let mut talk = Talk::of(command);
    talk.wait_for(&ids[2][ids[2].len() - 6..]);
    talk.wait_for("you:\n    Write a changelog");
    talk.wait_for("model:\n    All done.");
    talk.wait_for("> ");
    talk.say("And now?");
    talk.wait_for("Hello again.");
    talk.wait_for("> ");
    talk.say("/quit");
    talk.code();
    let sent = last_request(&provider);
    assert!(
        sent.contains("Write a changelog") && sent.contains("And now?"),
        "{sent}"
    );

    // Headless too, with the flags that other programs have.
    let provider = world.plays(NATIVE, &[turn("Once more.", vec![])]);
    let mut command = world.sabir_with(&provider);
    command.current_dir(world.work.path().join("project"));
    command.args(["-m", NATIVE.model(), "-p", "-c", "Say it."]);
    let ran = command.output().unwrap();
    assert_eq!(
        (code(&ran), stdout(&ran).as_str()),
        (0, "Once more.\n"),
        "{}",
        stderr(&ran)
    );
    assert!(last_request(&provider).contains("And now?"));
}

#[test]
fn options_may_stand_in_front_of_a_command() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[
            turn("Yes.", vec![]),
            turn("Yes.", vec![]),
            turn("Yes.", vec![]),
        ],
    );
    for arguments in [
        &["--model", NATIVE.model(), "run", "is it?"][..],
        &["-m", NATIVE.model(), "-p", "is it?"],
        &["-p", "is it?", "--model", NATIVE.model()],
    ] {
        let ran = world
            .sabir_with(&provider)
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(
            (code(&ran), stdout(&ran).as_str()),
            (0, "Yes.\n"),
            "{}",
            stderr(&ran)
        );
    }
    let config = world.write("c.toml", "max_turns = \"x\"\n");
    for arguments in [
        ["--config", config.to_str().unwrap(), "tasks"],
        ["tasks", "--config", config.to_str().unwrap()],
    ] {
        let ran = world.sabir().args(arguments).output().unwrap();
        assert_eq!(code(&ran), 2, "{arguments:?}");
        assert!(stderr(&ran).contains("c.toml"), "{}", stderr(&ran));
    }
}

#[test]
fn help_groups_commands_and_options() {
    let world = World::new();
    let help = stdout(&world.sabir().arg("--help").output().unwrap());
    let at = |words: &str| {
        help.find(words)
            .unwrap_or_else(|| panic!("{words}: {help}"))
    };
    assert!(at("\nTasks:\n") < at("\n  run ") && at("\n  run ") < at("\nGateway:\n"));
    assert!(at("\nGateway:\n") < at("\nToolbox") && at("\nToolbox") < at("\n  parse "));
    assert!(at("\nTask:\n") < at("\nOptions:\n") && at("--model") < at("--interface"));
    // The list of commands fits into a usual terminal.
    let list = help[at("\nTasks:\n")..at("\nTask:\n")].lines();
    let longest = list.max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 80, "{longest}");
    let of_log = stdout(&world.sabir().args(["log", "--help"]).output().unwrap());
    let own = of_log.find("--records").unwrap();
    assert!(own < of_log.find("Global options:").unwrap(), "{of_log}");
    assert!(own < of_log.find("--dialects").unwrap(), "{of_log}");
}

/// One message, an edit and a test run: both are one undo.
#[test]
fn an_undo_takes_back_what_one_message_did() {
    let world = World::new();
    world.write("a.txt", "old\n");
    let first = [write("b.txt"), done()];
    let provider = world.plays(NATIVE, &first);
    assert_eq!(
        code(&world.run(&provider, NATIVE, &["--approve", "all", "make b"])),
        0
    );
    let second = [
        write("a.txt"),
        command("mkdir -p cache && echo 1 > cache/x.pyc"),
        done(),
    ];
    let provider = world.plays(NATIVE, &second);
    let mut resumed = world.sabir_with(&provider);
    resumed.args([
        "run",
        "-c",
        "-m",
        NATIVE.model(),
        "--approve",
        "all",
        "change a",
    ]);
    let ran = resumed.output().unwrap();
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(
        (
            world.read("a.txt").as_str(),
            world.read("cache/x.pyc").as_str()
        ),
        ("x\n", "1\n")
    );
    let undone = world.sabir().args(["undo", "--yes"]).output().unwrap();
    assert_eq!(code(&undone), 0, "{}", stderr(&undone));
    assert_eq!(
        (world.read("a.txt").as_str(), world.read("b.txt").as_str()),
        ("old\n", "x\n")
    );
    assert!(!world.work.path().join("cache").exists());
    // The message before it is the next.
    world.sabir().args(["undo", "--yes"]).output().unwrap();
    assert!(!world.work.path().join("b.txt").exists());
}

#[test]
fn nobody_is_asked_about_an_edit_that_cannot_apply() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    let edit = |search: &str| {
        let diff = format!("------- SEARCH\n{search}\n=======\nthree\n+++++++ REPLACE");
        turn(
            "",
            vec![("replace_in_file", json!({"path": "a.txt", "diff": diff}))],
        )
    };
    let provider = world.plays(NATIVE, &[edit("nowhere to be found"), edit("two"), done()]);
    let mut talk = Talk::begin(&world, &provider, NATIVE);
    talk.wait_for("failed: replace_in_file a.txt");
    let before = talk.wait_for("allow it?");
    let reason = "block 1, line 1 of the diff: SEARCH is not in the text";
    assert!(
        before.contains(reason),
        "not only the first line is shown: {before}"
    );
    talk.say("y");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    assert_eq!(world.read("a.txt"), "one\nthree\n");
}
