//! A real terminal: no byte from a model, a program, a file or a provider controls the terminal.

use std::fs;
use std::process::{Command, Stdio};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::json;

use crate::world::{WAYS, World, turn};

use super::folders::has;

/// Returns control sequences that terminals act on, each with the id of its case.
fn sequences() -> Vec<(&'static str, String)> {
    let all = [
        ("TRM-001", "\u{1b}]52;c;ZXZpbA==\u{7}"),
        ("TRM-002", "\u{1b}]52;c;?\u{7}"),
        (
            "TRM-004",
            "\u{1b}]8;;https://evil\u{1b}\\good\u{1b}]8;;\u{1b}\\",
        ),
        ("TRM-005", "\u{1b}]9;text\u{7}"),
        ("TRM-007", "\u{1b}]7;file://x\u{7}"),
        ("TRM-008", "\u{1b}]1337;File=name=eA==:eA==\u{7}"),
        ("TRM-010", "\u{1b}]11;?\u{7}"),
        ("TRM-011", "\u{1b}[6n"),
        ("TRM-013", "\u{1b}P$qm\u{1b}\\"),
        ("TRM-014", "\u{1b}[2J\u{1b}[H"),
        ("TRM-016", "\u{1b}[?1049h"),
        ("TRM-017", "\u{1b}[?1000h"),
        ("TRM-019", "\u{9b}2J"),
        ("TRM-020", "\u{9d}52;c;ZXZpbA==\u{9c}"),
        (
            "TRM-022",
            "\u{1b}Ptmux;\u{1b}\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}\\",
        ),
        ("TRM-023", "\u{1b}_Gf=32;AAAA\u{1b}\\"),
        ("TRM-025", "\u{1b}^x\u{1b}\\\u{1b}Xy\u{1b}\\"),
        ("TRM-026", "\u{1b}[8mhidden\u{1b}[0m"),
        ("TRM-028", "\u{1b}(0"),
        ("TRM-029", "\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}"),
        ("TRM-031", "evil\rgood"),
    ];
    all.map(|(id, text)| (id, text.to_owned())).to_vec()
}

/// Runs a command at a terminal, and returns the bytes that reach it.
fn shown(command: &Command) -> Vec<u8> {
    let quoted =
        |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''"));
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quoted)
        .collect();
    let mut terminal = Command::new("script");
    terminal
        .args(["-q", "-e", "-c", &words.join(" "), "/dev/null"])
        .stdin(Stdio::null())
        .env_clear();
    terminal.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    terminal
        .env("TERM", "xterm-256color")
        .env("SHELL", "/bin/sh");
    terminal
        .current_dir(command.get_current_dir().unwrap())
        .output()
        .unwrap()
        .stdout
}

/// Only line ends, and of sequences only those that our own renderer writes: colours, and the end of a line being cleared.
#[track_caller]
fn check(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let around = |at: usize| {
        text.chars()
            .skip(at.saturating_sub(60))
            .take(120)
            .collect::<String>()
    };
    let characters: Vec<char> = text.chars().collect();
    for (at, c) in characters.iter().enumerate() {
        let next = characters.get(at + 1);
        let fine = match c {
            '\n' | '\t' => true,
            '\r' => matches!(next, Some('\n' | '\r' | '\u{1b}') | None),
            '\u{1b}' => {
                let rest: String = characters[at + 1..].iter().take(12).collect();
                let body = rest
                    .strip_prefix('[')
                    .unwrap_or("x")
                    .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
                body.starts_with(['m', 'K']) && !rest.starts_with("[8m")
            }
            c => !c.is_control(),
        };
        assert!(fine, "{what}: {c:?} reaches the terminal: {:?}", around(at));
    }
}

fn play(world: &World, deltas: Option<usize>) -> ScriptedProvider {
    let all: String = sequences()
        .into_iter()
        .map(|(id, text)| format!("{id} {text} "))
        .collect();
    let words: &'static str = Box::leak(all.clone().into_boxed_str());
    let escaped: String = all.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let print = format!("printf '{escaped}'; printf '\\233\\062\\112'");
    let turns = [
        turn(
            words,
            vec![
                ("execute_command", json!({"command": print})),
                ("read_file", json!({"path": "\u{1b}]52;c;eA==\u{7}missing"})),
                ("list_files", json!({"path": "."})),
                ("execute_command", json!({"command": "touch '\u{1b}[2J'"})),
                (
                    "write_to_file",
                    json!({"path": "made\u{1b}[6n", "content": all}),
                ),
                ("no_such\u{1b}[2J_tool", json!({"x\u{7}": "\u{9b}2J"})),
            ],
        ),
        turn(words, vec![("attempt_completion", json!({"result": all}))]),
    ];
    let replies = turns
        .iter()
        .enumerate()
        .map(|(at, turn)| WAYS[1].reply(turn, at + 1));
    let replies: Vec<ProviderReply> = replies
        .map(|reply| deltas.map_or(reply.clone(), |size| reply.in_deltas(size)))
        .collect();
    world.provider(ReplyScript::new(replies))
}

#[test]
fn nothing_foreign_steers_the_terminal() {
    if !has("script") {
        return crate::world::skipped("there is no script(1) to make a terminal with");
    }
    for deltas in [None, Some(1)] {
        let world = World::new();
        fs::write(world.work.path().join("a\u{1b}]0;evil\u{7}.txt"), "x").unwrap();
        let provider = play(&world, deltas);
        let mut command = world.sabir_with(&provider);
        command.args([
            "run",
            "--model",
            WAYS[1].model(),
            "--protocol",
            "native",
            "--approve",
            "all",
            "do \u{1b}[2J it",
        ]);
        let bytes = shown(&command);
        assert!(
            String::from_utf8_lossy(&bytes).contains("TRM-031"),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        check("run", &bytes);
        let id = world.only_task();
        for words in [
            vec!["tasks"],
            vec!["log", &id],
            vec!["diff", &id],
            vec!["undo", &id],
        ] {
            let mut command = world.sabir();
            command.args(&words);
            check(&words.join(" "), &shown(&command));
        }
    }
    let world = World::new();
    for (id, text) in sequences() {
        let mut command = world.sabir();
        command.args(["policy", "explain", "--", &format!("ls {text}")]);
        check(id, &shown(&command));
    }
}

/// One line of many bytes, and many marks on one character, come to an end.
#[test]
fn long_lines_come_through() {
    let (world, way) = (World::new(), WAYS[1]);
    let marks: &'static str = Box::leak(format!("e{}", "\u{301}".repeat(1000)).into_boxed_str());
    let turns = [
        turn(
            marks,
            vec![(
                "execute_command",
                json!({"command": "head -c 10485760 /dev/zero | tr '\\0' x"}),
            )],
        ),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.plays(way, &turns);
    let output = world.run(&provider, way, &["go"]);
    assert_eq!(
        crate::world::code(&output),
        0,
        "{}",
        crate::world::stderr(&output)
    );
    assert!(
        crate::world::stderr(&output).matches('\u{301}').count() < 100,
        "TRM-035: marks are cut"
    );
}
