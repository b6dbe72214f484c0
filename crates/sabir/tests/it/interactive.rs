//! The plain interactive mode over a pipe, line by line.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sabir_testkit::{Reply, Script, ScriptedProvider, Trouble};
use serde_json::json;

use crate::world::{WAYS, Way, World, turn};

/// A task at a terminal, with everything that it has shown.
struct Talk {
    child: Child,
    typed: ChildStdin,
    shown: Receiver<String>,
    seen: String,
}

impl Talk {
    fn begin(world: &World, provider: &ScriptedProvider, way: Way) -> Self {
        let mut command = world.sabir_with(provider);
        command.args(["--model", way.model(), "--protocol", way.protocol, "make", "a", "file"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut errors, typed) = (child.stderr.take().unwrap(), child.stdin.take().unwrap());
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut buffer) {
                let _ = sender.send(String::from_utf8_lossy(&buffer[..count]).into_owned());
            }
        });
        Self { child, typed, shown, seen: String::new() }
    }

    fn wait_for(&mut self, words: &str) {
        while !self.seen.contains(words) {
            match self.shown.recv_timeout(Duration::from_secs(30)) {
                Ok(text) => self.seen.push_str(&text),
                Err(_) => panic!("`{words}` is not shown: {}", self.seen),
            }
        }
        let at = self.seen.find(words).unwrap() + words.len();
        self.seen.drain(..at);
    }

    fn say(&mut self, line: &str) {
        writeln!(self.typed, "{line}").unwrap();
    }
}

#[test]
fn a_user_answers_approves_and_reviews() {
    let world = World::new();
    let way = WAYS[2];
    let done = || turn("", vec![("attempt_completion", json!({"result": "It is made."}))]);
    let provider = world.plays(
        way,
        &[
            turn("Hello.", vec![]),
            turn("", vec![("ask_followup_question", json!({"question": "Which name?", "follow_up": ["one", "two"]}))]),
            turn("", vec![("write_to_file", json!({"path": "one", "content": "1"}))]),
            turn("", vec![("write_to_file", json!({"path": "two", "content": "2"}))]),
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
    assert_eq!(talk.child.wait().unwrap().code(), Some(0));
    assert_eq!((world.read("two").as_str(), world.work.path().join("one").exists()), ("2", false));
    let last = provider.requests().last().unwrap().body.to_string();
    for words in ["Go on, please.", "I said two", "check it again"] {
        assert!(last.contains(words), "{words}");
    }
}

/// Words that are typed while the model writes: queued ones wait for its end, `/now` gives the answer up.
#[test]
fn a_user_speaks_while_it_works() {
    let world = World::new();
    let way = WAYS[1];
    let done = || turn("", vec![("attempt_completion", json!({"result": "It is made."}))]);
    let provider = world.provider(Script::by(move |_, request| {
        let asked = request.body.to_string();
        if asked.contains("Shorter.") {
            return way.reply(&done(), 2);
        }
        Reply::text("On and on. ".repeat(50)).in_deltas(16).but(Trouble::StallAfter(4000))
    }));
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("On and on.");
    talk.say("And a test.");
    talk.wait_for("queued:\n    And a test.");
    talk.say("/now Shorter.");
    talk.wait_for("given up for what the user says");
    talk.wait_for("is that right?");
    talk.say("y");
    assert_eq!(talk.child.wait().unwrap().code(), Some(0));
    let last = provider.requests().last().unwrap().body.to_string();
    assert!(last.find("And a test.") < last.find("Shorter.") && !last.contains("On and on"), "{last}");
}

/// `/mode` is the user's own word: it answers no question, has what is asked about judged anew, and is told to the model.
#[test]
fn a_user_switches_the_mode() {
    let world = World::new();
    let way = WAYS[1];
    let write = |path: &str| turn("", vec![("write_to_file", json!({"path": path, "content": "x"}))]);
    let done = || turn("", vec![("attempt_completion", json!({"result": "It is made."}))]);
    let provider = world.plays(way, &[write("a"), turn("What now?", vec![]), write("b"), done()]);
    let mut talk = Talk::begin(&world, &provider, way);
    talk.wait_for("allow it?");
    talk.say("/mode plain");
    talk.wait_for("there is no mode `plain`: did you mean `plan`?");
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
    assert_eq!(talk.child.wait().unwrap().code(), Some(0));
    assert_eq!(crate::world::names(world.work.path()), ["b"]);
    let last = provider.requests().last().unwrap().body.to_string();
    let at = |words: &str| last.find(words).unwrap_or_else(|| panic!("{words}: {last}"));
    assert!(
        at("The mode is now `plan`") < at("The mode is now `code`") && at("The mode is now `code`") < at("Write b.")
    );
}
