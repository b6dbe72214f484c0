//! Tests the plain interactive mode over a pipe, line by line.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::json;

use crate::world::{WAYS, Way, World, turn};

/// A task at a terminal, with everything that it has shown.
pub(crate) struct Talk {
    child: Child,
    typed: ChildStdin,
    shown: Receiver<String>,
    seen: String,
}

impl Talk {
    pub(crate) fn begin(world: &World, provider: &ScriptedProvider, way: Way) -> Self {
        let mut command = world.sabir_with(provider);
        command.args([
            "--model",
            way.model(),
            "--protocol",
            way.protocol,
            "make",
            "a",
            "file",
        ]);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (mut errors, typed) = (child.stderr.take().unwrap(), child.stdin.take().unwrap());
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut buffer) {
                let _ = sender.send(String::from_utf8_lossy(&buffer[..count]).into_owned());
            }
        });
        Self {
            child,
            typed,
            shown,
            seen: String::new(),
        }
    }

    /// Waits until the words are shown, and returns what was shown before them.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        while !self.seen.contains(words) {
            match self.shown.recv_timeout(Duration::from_secs(60)) {
                Ok(text) => self.seen.push_str(&text),
                Err(_) => panic!("`{words}` is not shown: {}", self.seen),
            }
        }
        let at = self.seen.find(words).unwrap();
        let before = self.seen[..at].to_owned();
        self.seen.drain(..at + words.len());
        before
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.typed, "{line}").unwrap();
    }

    /// Leaves the session, which stays open after a completion, and returns the exit code.
    pub(crate) fn leave(mut self) -> Option<i32> {
        self.wait_for("> ");
        self.say("/quit");
        self.code()
    }

    /// Waits for the end, and returns the exit code.
    pub(crate) fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_user_answers_approves_and_reviews() {
    let world = World::new();
    let way = WAYS[2];
    let done = || {
        turn(
            "",
            vec![("attempt_completion", json!({"result": "It is made."}))],
        )
    };
    let provider = world.plays(
        way,
        &[
            turn("Hello.", vec![]),
            turn(
                "",
                vec![(
                    "ask_followup_question",
                    json!({"question": "Which name?", "follow_up": ["one", "two"]}),
                )],
            ),
            turn(
                "",
                vec![("write_to_file", json!({"path": "one", "content": "1"}))],
            ),
            turn(
                "",
                vec![("write_to_file", json!({"path": "two", "content": "2"}))],
            ),
            done(),
            done(),
        ],
    );
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("Hello.");
    talk.wait_for("> ");
    talk.say("Go on, please.");
    talk.wait_for("Which name?");
    talk.wait_for("> ");
    talk.say("2");
    talk.wait_for("allow it?");
    talk.say("no, I said two");
    talk.wait_for("allow it?");
    talk.say("y");
    talk.wait_for("is that right?");
    talk.say("check it again");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    assert_eq!(
        (
            world.read("two").as_str(),
            world.work.path().join("one").exists()
        ),
        ("2", false)
    );
    let last = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    for words in ["Go on, please.", "I said two", "check it again"] {
        assert!(last.contains(words), "{words}");
    }
}

/// Messages typed while the model writes: queued ones wait for its end, `/now` interrupts the answer.
#[test]
fn messages_typed_during_work_are_queued() {
    let world = World::new();
    let way = WAYS[1];
    let done = || {
        turn(
            "",
            vec![("attempt_completion", json!({"result": "It is made."}))],
        )
    };
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let asked = request.body.to_string();
        if asked.contains("Shorter.") {
            return way.reply(&done(), 2);
        }
        ProviderReply::text("On and on. ".repeat(50))
            .in_deltas(16)
            .with_fault(ScriptedFault::StallAfter(4000))
    }));
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("On and on.");
    talk.say("And a test.");
    talk.wait_for("queued:\n    And a test.");
    talk.say("/now Shorter.");
    talk.wait_for("interrupted by the user's message");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    let last = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(
        last.find("And a test.") < last.find("Shorter.") && !last.contains("On and on"),
        "{last}"
    );
}

/// `/mode` answers no question; the open call is checked again in the new mode, and the model learns about the switch.
#[test]
fn a_user_switches_the_mode() {
    let world = World::new();
    let way = WAYS[1];
    let write = |path: &str| {
        turn(
            "",
            vec![("write_to_file", json!({"path": path, "content": "x"}))],
        )
    };
    let done = || {
        turn(
            "",
            vec![("attempt_completion", json!({"result": "It is made."}))],
        )
    };
    let provider = world.plays(
        way,
        &[write("a"), turn("What now?", vec![]), write("b"), done()],
    );
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("allow it?");
    talk.say("/mode plain");
    talk.wait_for("there is no mode `plain`: did you mean `plan`?");
    // The question is drawn again, or the screen would seem to hang.
    talk.wait_for("allow it?");
    talk.say("/mode plan");
    talk.wait_for("does not change files");
    talk.wait_for("What now?");
    talk.wait_for("> ");
    talk.say("/mode code");
    talk.wait_for("The mode is now `code`");
    talk.say("Write b.");
    talk.wait_for("allow it?");
    talk.say("y");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    assert_eq!(crate::world::names(world.work.path()), ["b"]);
    let last = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    let at = |words: &str| {
        last.find(words)
            .unwrap_or_else(|| panic!("{words}: {last}"))
    };
    assert!(
        at("The mode is now `plan`") < at("The mode is now `code`")
            && at("The mode is now `code`") < at("Write b.")
    );
}

/// Output during a question does not close it: the question is drawn again, and answered.
#[test]
fn a_question_outlives_a_switch() {
    let world = World::new();
    let way = WAYS[1];
    let ask = turn(
        "",
        vec![("ask_followup_question", json!({"question": "Which port?"}))],
    );
    let done = turn(
        "",
        vec![(
            "attempt_completion",
            json!({"result": "It listens on 8080."}),
        )],
    );
    let provider = world.plays(way, &[ask, turn("Hm.", vec![]), done]);
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("Which port?");
    talk.say("/mode plan");
    talk.wait_for("The mode is now `plan`");
    talk.wait_for("Which port?");
    talk.wait_for("> ");
    talk.say("8080");
    talk.wait_for("Hm.");
    talk.wait_for("> ");
    talk.say("/mode code");
    talk.wait_for("The mode is now `code`");
    talk.wait_for("> ");
    talk.say("Go on.");
    talk.wait_for("is that right?");
    talk.say("/mode debug");
    talk.wait_for("The mode is now `debug`");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    assert!(
        provider.received_requests()[1]
            .body
            .to_string()
            .contains("8080")
    );
}

/// Commands work while a question is open, and report their result.
#[test]
fn a_user_compacts_and_sees_what_fills_the_context() {
    let world = World::new();
    let way = WAYS[1];
    for name in ["a.txt", "b.txt", "c.txt"] {
        world.write(name, &"a line of notes\n".repeat(300));
    }
    let summary =
        "The files a, b and c hold nothing but lines of notes, and nothing was changed so far.";
    let read = |name: &'static str| turn("I read.", vec![("read_file", json!({"path": name}))]);
    let turns = [
        read("a.txt"),
        read("b.txt"),
        read("c.txt"),
        turn("Read.", vec![]),
        turn("Again.", vec![]),
    ];
    let done = turn(
        "",
        vec![("attempt_completion", json!({"result": "It is made."}))],
    );
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let body = request.body.to_string();
        if body.contains("You summarise the work") {
            return ProviderReply::text(summary);
        }
        let answers = request.body["messages"].as_array().unwrap();
        let answered = answers
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count();
        match () {
            () if body.contains("Finish.") => way.reply(&done, 9),
            () if body.contains(summary) => ProviderReply::text("I know it by heart.").in_deltas(4),
            () => way.reply(&turns[answered.min(4)], answered + 1),
        }
    }));
    let mut talk = Talk::begin(&world, &provider, way);
    talk.say("/compact");
    talk.wait_for("there is nothing that a compaction could leave out of the context");
    talk.wait_for("Read.");
    talk.wait_for("> ");
    talk.say("/context");
    talk.wait_for("about ");
    talk.wait_for("results");
    talk.wait_for("> ");
    talk.say("/compact");
    talk.wait_for("the model is asked for a summary of what came before");
    talk.wait_for("the context was compacted from about ");
    talk.wait_for("> ");
    talk.say("And now?");
    talk.wait_for("I know it by heart.");
    talk.wait_for("> ");
    talk.say("Finish.");
    talk.wait_for("is that right?");
    // A question about a call stays as it is.
    talk.say("/context");
    talk.wait_for("about ");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    let bodies: Vec<_> = provider
        .received_requests()
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    let compacted = bodies
        .iter()
        .position(|body| body.contains("You summarise the work"))
        .unwrap();
    assert!(bodies[compacted + 1].contains(summary) && bodies[compacted + 1].contains("And now?"));
    assert_eq!(
        bodies
            .iter()
            .filter(|body| body.contains("You summarise the work"))
            .count(),
        1
    );
}

#[test]
fn a_user_compacts_while_the_model_works() {
    let world = World::new();
    let way = WAYS[1];
    for name in ["a.txt", "b.txt", "c.txt"] {
        world.write(name, &"a line of notes\n".repeat(300));
    }
    let summary =
        "The files a, b and c hold nothing but lines of notes, and nothing was changed so far.";
    let read = |name: &'static str| turn("I read.", vec![("read_file", json!({"path": name}))]);
    let turns = [read("a.txt"), read("b.txt"), read("c.txt")];
    let write = turn(
        "",
        vec![("write_to_file", json!({"path": "d.txt", "content": "d"}))],
    );
    let done = turn(
        "",
        vec![("attempt_completion", json!({"result": "It is made."}))],
    );
    let provider = world.provider(ReplyScript::from_fn(move |count, request| {
        let body = request.body.to_string();
        match count {
            0..3 => way.reply(&turns[count], count + 1),
            3 => way.reply(&write, 4),
            4 => {
                assert!(body.contains("You summarise the work"), "{body}");
                ProviderReply::text(summary)
            }
            _ => {
                assert!(body.contains(summary), "{body}");
                way.reply(&done, count + 1)
            }
        }
    }));
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("allow it?");
    talk.say("/compact");
    talk.wait_for("the context is compacted before the model is asked for its next turn");
    talk.wait_for("allow it?");
    talk.say("y");
    talk.wait_for("the context was compacted from about ");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    assert_eq!(world.read("d.txt"), "d");
}

#[test]
fn a_user_shows_pictures() {
    let gif = "R0lGODlhAQABAAAAACw=";
    let world = World::new();
    std::fs::write(
        world.work.path().join("my a.gif"),
        b"GIF89a\x01\0\x01\0\0\0\0,",
    )
    .unwrap();
    let way = WAYS[1];
    let done = turn(
        "",
        vec![("attempt_completion", json!({"result": "It is made."}))],
    );
    let provider = world.plays(
        way,
        &[
            turn("Hello.", vec![]),
            turn("I see.", vec![]),
            turn("Both.", vec![]),
            done,
        ],
    );
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("Hello.");
    talk.wait_for("> ");
    talk.say("/image none.png");
    talk.wait_for("the picture none.png cannot be shown");
    talk.say("/image \"my a.gif\"");
    talk.wait_for("my a.gif will be attached to your next message");
    talk.say("This one.");
    talk.wait_for("I see.");
    talk.wait_for("> ");
    talk.say("/image \"my a.gif\" And once more.");
    talk.wait_for("Both.");
    talk.wait_for("> ");
    talk.say("Finish.");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.leave(), Some(0));
    let shown = |at: usize| {
        provider.received_requests()[at]
            .body
            .to_string()
            .matches(gif)
            .count()
    };
    assert_eq!([shown(0), shown(1), shown(2), shown(3)], [0, 1, 2, 2]);
    let said = provider.received_requests()[1].body["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .to_string();
    assert!(said.contains("This one.") && said.contains(gif), "{said}");
}

/// A picture is a whole answer to the question about a completion: with words or alone, and it ends nothing.
#[test]
fn a_picture_answers_a_completion() {
    let gif = "R0lGODlhAQABAAAAACw=";
    for way in [WAYS[1], WAYS[2]] {
        let world = World::new();
        std::fs::write(
            world.work.path().join("a.gif"),
            b"GIF89a\x01\0\x01\0\0\0\0,",
        )
        .unwrap();
        let done = || {
            turn(
                "",
                vec![("attempt_completion", json!({"result": "It is made."}))],
            )
        };
        let provider = world.plays(way, &[done(), done(), done()]);
        let mut talk = Talk::begin(&world, &provider, way);
        talk.wait_for("is that right?");
        talk.say("/image none.png It looks like this.");
        talk.wait_for("the picture none.png cannot be shown");
        talk.wait_for("is that right?");
        talk.say("/image a.gif It looks like this.");
        talk.wait_for("is that right?");
        // Without words, it goes with the next answer.
        talk.say("/image a.gif");
        talk.wait_for("a.gif");
        talk.wait_for("is that right?");
        talk.say("Still wrong.");
        talk.wait_for("is that right?");
        talk.say("y");
        assert_eq!(talk.leave(), Some(0));
        let bodies: Vec<_> = provider
            .received_requests()
            .iter()
            .map(|request| request.body["messages"].to_string())
            .collect();
        let shown: Vec<_> = bodies
            .iter()
            .map(|body| body.matches(gif).count())
            .collect();
        assert_eq!(shown, [0, 1, 2], "{way:?}");
        assert!(bodies[1].contains("It looks like this."), "{}", bodies[1]);
        assert!(bodies[2].contains("Still wrong."), "{}", bodies[2]);
    }
}

/// A picture is checked by the model of the present mode, not by the one that the task began with.
#[test]
fn a_picture_is_checked_by_the_model_of_the_mode() {
    let gif = "R0lGODlhAQABAAAAACw=";
    let world = World::new();
    world.configure(
        "model = \"openai/sighted\"\n[modes.plan]\nmodel = \"openai/blind\"\n\
         [[models]]\npattern = \"blind\"\nimages = false\n",
    );
    std::fs::write(
        world.work.path().join("a.gif"),
        b"GIF89a\x01\0\x01\0\0\0\0,",
    )
    .unwrap();
    let way = WAYS[1];
    let provider = world.plays(
        way,
        &[
            turn("Hello.", vec![]),
            turn("No picture.", vec![]),
            turn("I see.", vec![]),
        ],
    );
    let mut command = world.sabir_with(&provider);
    command.args(["--protocol", "native", "Say", "hello."]);
    let mut talk = Talk::of(command);
    talk.wait_for("Hello.");
    talk.wait_for("> ");
    talk.say("/mode plan");
    talk.wait_for("the model is now openai/blind");
    talk.say("/image a.gif Look.");
    talk.wait_for("the model openai/blind reads no pictures");
    talk.say("Then not.");
    talk.wait_for("No picture.");
    talk.wait_for("> ");
    talk.say("/mode code");
    talk.wait_for("the model is now openai/sighted");
    talk.say("/image a.gif Look.");
    talk.wait_for("I see.");
    // Nothing was completed.
    assert_eq!(talk.leave(), Some(3));
    let shown: Vec<_> = provider
        .received_requests()
        .iter()
        .map(|request| {
            let model = request.body["model"].as_str().unwrap().to_owned();
            (model, request.body.to_string().contains(gif))
        })
        .collect();
    let expected = [("sighted", false), ("blind", false), ("sighted", true)];
    assert_eq!(
        shown,
        expected.map(|(model, shows)| (model.to_owned(), shows))
    );
}

/// A command of the folder is listed, is sent as its text, and never replaces a command of Sabir or answers a question.
#[test]
fn commands_of_the_folder_are_listed_and_sent() {
    let world = World::new();
    let folder = world.work.path().join(".claude/commands");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "---\ndescription: Looks at\u{1b}[2J it.\n---\nLook at $1 well.";
    std::fs::write(folder.join("look.md"), text).unwrap();
    std::fs::write(folder.join("help.md"), "NOT THE HELP").unwrap();
    let way = WAYS[1];
    let write = turn(
        "",
        vec![("write_to_file", json!({"path": "a", "content": "x\n"}))],
    );
    let provider = world.plays(
        way,
        &[turn("Hello.", vec![]), write, turn("Written.", vec![])],
    );
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("Hello.");
    talk.wait_for("> ");
    talk.say("/help");
    talk.wait_for("/look");
    talk.wait_for("(this folder's)");
    talk.wait_for("> ");
    talk.say("/lok");
    talk.wait_for("Did you mean `/look`?");
    talk.wait_for("> ");
    talk.say("Write a.");
    talk.wait_for("allow it?");
    talk.say("/look src");
    talk.say("y");
    talk.wait_for("Written.");
    assert_eq!(talk.leave(), Some(3));
    assert_eq!(world.read("a"), "x\n");
    let requests = provider.received_requests();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains("Look at src well."), "{last}");
    assert!(!last.contains("NOT THE HELP"), "{last}");
}
