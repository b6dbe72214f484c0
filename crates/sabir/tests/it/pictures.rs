//! Tests pictures: from the user and from tools to the model on every wire, kept by resumes and forks, and refused early.

use std::io::Write;
use std::process::{Output, Stdio};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, events, stderr, stdout, turn};

/// A PNG of one pixel, and a GIF of one.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const GIF: &str = "R0lGODlhAQABAAAAACw=";

/// The six wires natively, and two dialects.
const ALL: [Way; 8] = [
    WAYS[0],
    WAYS[1],
    Way {
        wire: Wire::OpenAiResponses,
        protocol: "native",
    },
    Way {
        wire: Wire::Gemini,
        protocol: "native",
    },
    Way {
        wire: Wire::Ollama,
        protocol: "native",
    },
    Way {
        wire: Wire::Bedrock,
        protocol: "native",
    },
    WAYS[2],
    WAYS[3],
];

fn bytes(base64: &str) -> Vec<u8> {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits = base64
        .trim_end_matches('=')
        .bytes()
        .map(sextet)
        .collect::<Vec<_>>();
    let (mut held, mut count, mut all) = (0_u32, 0, Vec::new());
    for bit in bits {
        (held, count) = (held << 6 | u32::from(bit), count + 6);
        if count >= 8 {
            count -= 8;
            all.push((held >> count) as u8);
        }
    }
    all
}

fn world() -> World {
    let world = World::new();
    std::fs::write(world.work.path().join("p.png"), bytes(PNG)).unwrap();
    std::fs::write(world.work.path().join("q.gif"), bytes(GIF)).unwrap();
    world
}

fn look() -> Turn {
    turn("I look.", vec![("read_file", json!({"path": "q.gif"}))])
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "Seen."}))])
}

/// The binary with that provider under the name `t`, whatever its wire.
fn run(world: &World, provider: &ScriptedProvider, way: Way, arguments: &[&str]) -> Output {
    let base = provider.base_url(way.wire);
    let path = world.configure(format!(
        "[providers.t]\nwire = \"{}\"\nbase_url = \"{base}\"\nkey_env = \"TEST_KEY\"\n",
        way.wire.name()
    ));
    assert!(path.is_file());
    let mut command = world.sabir();
    command
        .env("TEST_KEY", "sk-secret-test")
        .env("AWS_REGION", "eu-west-1");
    command.args(arguments).args(["--model", "t/scripted"]);
    if arguments.first() == Some(&"run") {
        command.args(["--protocol", way.protocol]);
    }
    command.output().unwrap()
}

fn bodies(provider: &ScriptedProvider) -> Vec<String> {
    provider
        .received_requests()
        .iter()
        .map(|request| request.body.to_string())
        .collect()
}

#[test]
fn pictures_reach_the_model_on_every_wire_and_are_kept() {
    for way in ALL {
        let world = world();
        let provider = world.plays(way, &[look()]);
        let output = run(
            &world,
            &provider,
            way,
            &[
                "run",
                "--image",
                "p.png",
                "--max-turns",
                "1",
                "What is to be seen?",
            ],
        );
        assert_eq!(code(&output), 6, "{way:?}: {}", stderr(&output));
        let first = bodies(&provider).remove(0);
        assert_eq!(
            (first.matches(PNG).count(), first.matches(GIF).count()),
            (1, 0),
            "{way:?}: {first}"
        );
        assert!(first.contains("What is to be seen?"), "{way:?}");

        // The journal holds it, and the resumed task shows it again, with what the tool showed.
        let provider = world.plays(way, &[done()]);
        let output = run(
            &world,
            &provider,
            way,
            &["resume", "--output", "text", "--image", "q.gif"],
        );
        assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
        let second = bodies(&provider).remove(0);
        assert_eq!(
            (second.matches(PNG).count(), second.matches(GIF).count()),
            (1, 2),
            "{way:?}: {second}"
        );
    }
}

#[test]
fn logs_exports_and_forks_have_the_pictures() {
    let world = world();
    let way = WAYS[1];
    let provider = world.plays(way, &[look(), done()]);
    let output = run(
        &world,
        &provider,
        way,
        &["run", "--image", "p.png", "--output", "events", "Look."],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = events(&output);
    let said: Vec<_> = told
        .iter()
        .filter(|event| event["kind"] == "said")
        .collect();
    assert_eq!(
        said[0]["images"],
        json!([{"media_type": "image/png", "data": PNG}])
    );
    let task = world.only_task();
    let log = world.sabir().args(["log", &task]).output().unwrap();
    assert!(
        stdout(&log).contains("[a picture: image/png, 7"),
        "{}",
        stdout(&log)
    );
    for (format, holds) in [
        ("md", "a picture (image/png"),
        ("json", PNG),
        ("html", "a picture (image/png"),
    ] {
        let export = world
            .sabir()
            .args(["export", &task, "--to", format])
            .output()
            .unwrap();
        assert!(
            stdout(&export).contains(holds),
            "{format}: {} {}",
            stdout(&export),
            stderr(&export)
        );
    }
    let provider = world.plays(way, &[done()]);
    let output = run(
        &world,
        &provider,
        way,
        &["fork", &format!("{task}@2"), "--output", "text", "Again."],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let body = bodies(&provider).remove(0);
    assert_eq!(
        (body.matches(PNG).count(), body.matches(GIF).count()),
        (1, 0),
        "{body}"
    );
}

#[test]
fn unusable_pictures_are_refused_before_a_request() {
    let world = world();
    let provider = world.plays(WAYS[1], &[]);
    world.write("a.txt", "no picture");
    let mut wide = bytes(PNG);
    wide[16..20].copy_from_slice(&9000_u32.to_be_bytes());
    std::fs::write(world.work.path().join("wide.png"), &wide).unwrap();
    wide.resize(6 << 20, 0);
    std::fs::write(world.work.path().join("large.png"), &wide).unwrap();
    let check = |file: &str, why: &str| {
        let output = run(
            &world,
            &provider,
            WAYS[1],
            &["run", "--image", file, "Look."],
        );
        assert!(
            code(&output) == 2 && stderr(&output).contains(why),
            "{file}: {}",
            stderr(&output)
        );
    };
    check(
        "none.png",
        "the picture none.png cannot be shown: No such file",
    );
    check("a.txt", "it is not a PNG, JPEG, GIF or WebP image");
    check("wide.png", "no side may have more than 8000 pixels");
    check("large.png", "at most 3,932,160 bytes can be");
    check(".", "it is not a file");
    let taped = ["run", "--image", "p.png", "--record", "tape", "Look."];
    let output = run(&world, &provider, WAYS[1], &taped);
    assert!(
        code(&output) == 2 && stderr(&output).contains("a recording cannot hold your pictures"),
        "{}",
        stderr(&output)
    );
    assert!(provider.received_requests().is_empty());
}

#[test]
fn pictures_for_a_text_only_model_are_refused() {
    let world = world();
    world.configure("[[models]]\npattern = \"scripted\"\nimages = false\n");
    let way = WAYS[1];
    let provider = world.plays(way, &[look(), done()]);
    let output = world.run(&provider, way, &["--image", "p.png", "Look."]);
    assert!(
        code(&output) == 2 && stderr(&output).contains("reads no pictures"),
        "{}",
        stderr(&output)
    );
    assert!(provider.received_requests().is_empty());
    // A picture from a tool is described in words.
    let output = world.run(&provider, way, &["Look."]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let last = bodies(&provider).pop().unwrap();
    assert!(
        last.contains("[A picture (image/gif) was left out: you cannot read pictures.]"),
        "{last}"
    );
    assert!(!last.contains(GIF), "{last}");
}

#[test]
fn a_program_sends_pictures_in_control_lines() {
    let world = world();
    let way = WAYS[1];
    let provider = world.provider(ReplyScript::from_fn(move |count, request| {
        let shown = request.body.to_string().contains(GIF);
        if shown {
            way.reply(&done(), count + 1)
        } else {
            ProviderReply::text("What else?")
        }
    }));
    let mut command = world.sabir_with(&provider);
    command
        .args([
            "run",
            "--model",
            way.model(),
            "--output",
            "events",
            "--control",
        ])
        .stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let png = json!({"media_type": "image/png", "data": PNG});
    let lines: [Value; 4] = [
        json!({"kind": "message", "text": "Look.", "images": [{"media_type": "image/gif", "data": PNG}]}),
        json!({"kind": "message", "text": "Look.", "images": [png]}),
        json!({"kind": "message", "text": "No.", "images": [{"path": "none.png"}]}),
        json!({"kind": "message", "images": [{"path": "q.gif"}]}),
    ];
    let mut input = child.stdin.take().unwrap();
    lines
        .iter()
        .for_each(|line| writeln!(input, "{line}").unwrap());
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let bodies = bodies(&provider);
    assert_eq!(
        (
            bodies[0].matches(PNG).count(),
            bodies.last().unwrap().matches(GIF).count()
        ),
        (1, 1)
    );
    let said = stderr(&output);
    assert!(
        said.contains("control line 1: a picture of the message is image/png, not image/gif"),
        "{said}"
    );
    assert!(
        said.contains("control line 3: the picture none.png cannot be shown"),
        "{said}"
    );
    assert!(!bodies.last().unwrap().contains("No."));
}

#[test]
fn a_compaction_notes_removed_pictures() {
    let world = world();
    let way = WAYS[1];
    let read = |name: &'static str| turn("I read.", vec![("read_file", json!({"path": name}))]);
    for name in ["a.txt", "b.txt", "c.txt"] {
        world.write(name, &"a line of notes\n".repeat(300));
    }
    let provider = world.plays(way, &[look(), read("a.txt"), read("b.txt"), read("c.txt")]);
    let output = world.run(
        &provider,
        way,
        &["--image", "p.png", "--max-turns", "4", "Look."],
    );
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let task = world.only_task();
    let context = |argument: &str| {
        let output = world
            .sabir()
            .args(["context", &task, argument, "--plain"])
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    };
    context("--compact");
    let resume = || {
        let provider = world.plays(way, &[read("a.txt")]);
        let arguments = ["resume", "--output", "text", "--max-turns", "1"];
        assert_eq!(
            code(
                &world
                    .sabir_with(&provider)
                    .args(arguments)
                    .output()
                    .unwrap()
            ),
            6
        );
        bodies(&provider).remove(0)
    };
    let body = resume();
    assert!(!body.contains(PNG) && !body.contains(GIF), "{body}");
    assert!(
        body.contains("Pictures that were shown so far and are left out here: 2."),
        "{body}"
    );
    let output = world
        .sabir()
        .args(["context", &task, "--undo"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let body = resume();
    assert_eq!(
        (body.matches(PNG).count(), body.matches(GIF).count()),
        (1, 1),
        "{body}"
    );
}
