//! Tests the tour of the built binary with an empty home and without a network.

use std::path::Path;

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::world::{WAYS, World, code, stderr, stdout};

/// The file that the binary holds.
const CASSETTE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/tour.jsonl");

const TASK: &str = "greet.sh should greet everybody it is given, not only the first. Mend it and show that it works.";

/// What the model writes, in the cline dialect. Its second message holds two mistakes that models really make: a word
/// where a number belongs, and an argument that the tool does not have.
const REPLIES: [&str; 6] = [
    "<thinking>The script is small; I should read it before I change it.</thinking>\nI will look at the script first.\n\n\
     <read_file>\n<path>greet.sh</path>\n</read_file>",
    "It greets `$1` only. Let me see the line again.\n\n\
     <read_file>\n<path>greet.sh</path>\n<start_line>three</start_line>\n<lines>1</lines>\n</read_file>",
    "The line number must be a number, and there is no `lines`.\n\n\
     <read_file>\n<path>greet.sh</path>\n<start_line>3</start_line>\n</read_file>",
    "A loop over all arguments does it.\n\n\
     <replace_in_file>\n<path>greet.sh</path>\n<diff>\n------- SEARCH\necho \"Hello, $1!\"\n=======\nfor name in \"$@\"; do\n  \
     echo \"Hello, $name!\"\ndone\n+++++++ REPLACE\n</diff>\n</replace_in_file>",
    "Now I run it with two names.\n\n<execute_command>\n<cmd>sh greet.sh Ada Grace && wc -l < greet.sh</cmd>\n</execute_command>",
    "<attempt_completion>\n<result>greet.sh now greets everybody it is given; I ran it with two names.</result>\n</attempt_completion>",
];

/// What the tour approves.
const APPROVED: [&str; 2] = ["edits", "command=sh greet.sh Ada Grace && wc -l < greet.sh"];

/// Records the tour with a scripted provider. Differences between machines are removed.
fn recorded() -> String {
    let world = World::new();
    world.write(
        "greet.sh",
        "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n",
    );
    // The date would make the recording differ every day.
    world.configure("place = false\n");
    let provider = world.provider(ReplyScript::new(
        REPLIES.map(|text| ProviderReply::text(text).in_deltas(16)),
    ));
    let tape = world.home.path().join("tour.jsonl");
    let path = tape.display().to_string();
    let approve = APPROVED.map(|rule| ["--approve", rule]);
    let output = world.run(
        &provider,
        WAYS[2],
        &[&approve.concat()[..], &["--record", &path, TASK]].concat(),
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let folder = world
        .work
        .path()
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let text = std::fs::read_to_string(tape)
        .unwrap()
        .replace(&folder, "/tour");
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] == "cassette" {
            line["provider"]["base_url"] = json!("http://127.0.0.1/v1");
            line["task"]["start"]["task"] = json!("tour");
        }
        format!("{line}\n")
    });
    lines.collect()
}

/// Returns the lines without times and without the provider's settings, which the requests show; split bytes are
/// joined.
fn comparable(cassette: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = Vec::new();
    for line in cassette.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        for field in ["at", "by", "provider"] {
            line.as_object_mut().unwrap().remove(field);
        }
        match lines.last_mut() {
            Some(last)
                if last["kind"] == line["kind"]
                    && line["text"].is_string()
                    && last["text"].is_string() =>
            {
                last["text"] = json!(format!(
                    "{}{}",
                    last["text"].as_str().unwrap(),
                    line["text"].as_str().unwrap()
                ));
            }
            _ => lines.push(line),
        }
    }
    lines
}

#[test]
fn the_cassette_holds_what_the_tour_asks() {
    let now = recorded();
    if std::env::var_os("SABIR_RENEW").is_some() {
        return std::fs::write(CASSETTE, now).unwrap();
    }
    let kept = std::fs::read_to_string(Path::new(CASSETTE)).unwrap();
    for (at, (kept, now)) in comparable(&kept).iter().zip(&comparable(&now)).enumerate() {
        let renew = "record it again with: SABIR_RENEW=1 cargo test -p sabir --test it tour";
        assert_eq!(
            kept,
            now,
            "line {} of the tour's cassette is not what the tour would record: {renew}",
            at + 1
        );
    }
    assert_eq!(comparable(&kept).len(), comparable(&now).len());
}

#[test]
fn the_tour_shows_every_step() {
    let world = World::new();
    let output = world
        .sabir()
        .args(["tour", "--folder", "scratch"])
        .output()
        .unwrap();
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(code(&output), 0, "{err}");
    assert_eq!(
        world.read("scratch/greet.sh"),
        "#!/bin/sh\n# Greets the people it is given.\nfor name in \"$@\"; do\n  echo \"Hello, $name!\"\ndone\n"
    );
    assert!(err.contains("refused: read_file is not run"), "{err}");
    assert!(
        err.contains("error[wrong_type]") && err.contains("^^^^^"),
        "{err}"
    );
    assert!(err.contains("unknown_argument"), "{err}");
    assert!(
        err.contains("repaired in execute_command (argument_alias)"),
        "{err}"
    );
    assert!(err.contains("Hello, Ada!\nHello, Grace!\n"), "{err}");
    assert!(out.contains("for name in"), "{out}");
    assert!(
        !world.home.path().join(".local").exists(),
        "the home stays empty"
    );
}
