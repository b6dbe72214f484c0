//! Executes the specs of the tools: each section is a task of the binary, natively and prompted, in a fresh folder.
//!
//! `SABIR_BLESS=1 cargo test -p sabir --test it tools` writes what the model really received into the specs; read the
//! difference before you keep it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use crate::case_count::sampled_positions;
use crate::world::{Turn, WAYS, Way, World, events, stderr};

/// Text between marks that differs from run to run.
const ANY: &str = "{*}";

/// One fenced block.
#[derive(Debug, Clone)]
struct Block {
    /// The words after the fence.
    info: String,
    text: String,
    /// The position of the text in the spec.
    at: std::ops::Range<usize>,
}

/// One task: the preparation of each turn, its calls, and the results.
#[derive(Debug, Default)]
struct Section {
    title: String,
    options: Vec<String>,
    turns: Vec<Planned>,
    results: Vec<Block>,
    checks: Vec<String>,
}

#[derive(Debug, Default, Clone)]
struct Planned {
    before: Vec<String>,
    calls: Vec<(String, Value)>,
}

fn blocks(text: &str) -> Vec<(Option<String>, Block)> {
    let (mut found, mut title, mut open) = (Vec::new(), None, None::<(String, String, usize)>);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        let fence: String = bare.chars().take_while(|c| *c == '`').collect();
        match open.take() {
            Some((mark, info, start)) if bare == mark => {
                let range = start..at;
                found.push((
                    title.take(),
                    Block {
                        info,
                        text: text[range.clone()].to_owned(),
                        at: range,
                    },
                ));
            }
            Some(open_still) => open = Some(open_still),
            None if fence.len() >= 3 => {
                open = Some((
                    fence.clone(),
                    bare[fence.len()..].trim().to_owned(),
                    at + line.len(),
                ));
            }
            None => {
                if let Some(words) = bare.strip_prefix("## ") {
                    title = Some(words.to_owned());
                }
            }
        }
        at += line.len();
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

fn sections(tool: &str, text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let (mut before, mut adjacent) = (Vec::new(), false);
    for (title, block) in blocks(text) {
        if let Some(title) = title {
            sections.push(Section {
                title,
                ..Section::default()
            });
            assert!(before.is_empty(), "{tool}: a script before no call");
        }
        let section = sections
            .last_mut()
            .unwrap_or_else(|| panic!("{tool}: a block before the first section"));
        let mut words = block.info.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let was_adjacent = std::mem::replace(&mut adjacent, kind == "call");
        match kind {
            "options" => section.options = block.text.lines().map(str::to_owned).collect(),
            "sh" => before.push(block.text),
            "call" => {
                let name = words.next().unwrap_or(tool).to_owned();
                let arguments = serde_json::from_str(&block.text).unwrap_or_else(|error| {
                    panic!("{tool}, {}: {error}: {}", section.title, block.text)
                });
                if !was_adjacent || section.turns.is_empty() {
                    section.turns.push(Planned::default());
                }
                let turn = section.turns.last_mut().unwrap();
                turn.before.append(&mut before);
                turn.calls.push((name, arguments));
            }
            "result" => section.results.push(block),
            "check" => section.checks.push(block.text),
            // An illustration.
            _ => {}
        }
    }
    sections
}

fn shell(folder: &Path, home: &Path, script: &str) -> Result<(), String> {
    let mut command = Command::new("bash");
    command
        .args(["-ec", script])
        .current_dir(folder)
        .env_clear()
        .env("HOME", home);
    let output = command
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{script}\n{}", stderr(&output)))
    }
}

/// Returns what the model received for each call: the status and the text.
fn play(section: &Section, way: Way) -> Vec<(String, String)> {
    let world = World::new();
    let (folder, home) = (world.work.path().to_owned(), world.home.path().to_owned());
    let turns: Vec<_> = section.turns.clone();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let (inside, outside) = (folder.clone(), home.clone());
    let provider = world.provider(ReplyScript::from_fn(move |at, request| {
        seen.lock().unwrap().push(request.body.to_string());
        let Some(planned) = turns.get(at) else {
            let done = Turn {
                words: "",
                calls: vec![("attempt_completion", json!({"result": "done"}))],
            };
            return way.reply(&done, at + 1);
        };
        for script in &planned.before {
            shell(&inside, &outside, script).unwrap_or_else(|error| panic!("{error}"));
        }
        // The names live as long as the process, as those of other tests do.
        let calls = planned
            .calls
            .iter()
            .map(|(name, value)| (&*name.clone().leak(), value.clone()))
            .collect();
        way.reply(&Turn { words: "", calls }, at + 1)
    }));
    let options: Vec<&str> = if section.options.is_empty() {
        vec!["--approve", "all"]
    } else {
        section
            .options
            .iter()
            .flat_map(|line| {
                line.split_once(' ')
                    .map_or(vec![&**line], |(a, b)| vec![a, b])
            })
            .collect()
    };
    let output = world.run(
        &provider,
        way,
        &[&options[..], &["--output", "events", "do it"]].concat(),
    );
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    let events = events(&output);
    let ends = |event: &Value| event["name"] == "attempt_completion" && event["ending"] == "done";
    let results: Vec<_> = events
        .iter()
        .filter(|event| event["kind"] == "result" && !ends(event))
        .map(|event| {
            let words = event["content"].as_str().unwrap().to_owned();
            (event["ending"].as_str().unwrap().to_owned(), words)
        })
        .collect();
    let last = bodies.lock().unwrap().last().cloned().unwrap_or_default();
    for (_, words) in &results {
        let quoted = serde_json::to_string(words.trim()).unwrap();
        assert!(
            last.contains(quoted.trim_matches('"')),
            "{}: the model never read {words:?}: {last}",
            section.title
        );
    }
    for check in &section.checks {
        shell(&folder, &home, check).unwrap_or_else(|error| panic!("{}: {error}", section.title));
    }
    results
}

/// Returns true if the text is the expected one, in which [`ANY`] matches any text.
fn fits(expected: &str, found: &str) -> bool {
    let parts: Vec<_> = expected.split(ANY).collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return expected == found;
    };
    let Some(mut rest) = found.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// The sections about tens of megabytes, which take most of the time of all. They are left out where all specs are played in turn.
const SLOW_SECTIONS: [&str; 5] = [
    "A file of 2 GB",
    "A file that cannot be searched to its end",
    "A flood in one line",
    "A flood of lines",
    "More than is kept",
];

/// The protocols that the sections of a spec are played in.
#[derive(Clone, Copy, PartialEq)]
enum Played {
    /// Each section in one of the two: a task takes a fifth of a second, and there are hundreds. Without `SABIR_CASES` a third of them.
    InTurn,
    /// Each section in both.
    InBoth,
}

/// Plays the sections of one spec, all of them with `plays_all`; with `bless` the results are written into it.
fn check_spec(path: &Path, played: Played, plays_all: bool, bless: bool) -> Vec<String> {
    let tool = path.file_stem().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let sections = sections(tool, &text);
    assert!(!sections.is_empty(), "{tool}: the spec has no section");
    // Not the same sections of each tool.
    let first = tool.len() % sections.len();
    let sampled: Vec<usize> = sampled_positions(first, sections.len(), 1).collect();
    let (mut wrong, mut blessed) = (Vec::new(), text.clone());
    let mut changes = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let is_slow = SLOW_SECTIONS.contains(&section.title.as_str());
        if !plays_all && (is_slow || !sampled.contains(&at)) {
            continue;
        }
        let ways = [WAYS[1], WAYS[2]];
        let ways = match played {
            Played::InTurn => &ways[at % 2..][..1],
            Played::InBoth => &ways[..],
        };
        for &way in ways {
            let found = play(section, way);
            let title = format!("{tool}, {}, {}", section.title, way.protocol);
            if found.len() != section.results.len() {
                wrong.push(format!(
                    "{title}: {} results, expected {}: {found:#?}",
                    found.len(),
                    section.results.len()
                ));
                continue;
            }
            for (block, (ending, words)) in section.results.iter().zip(found) {
                let wanted = block.info.split_whitespace().nth(1).unwrap_or("done");
                let same = fits(
                    block.text.trim_end_matches('\n'),
                    words.trim_end_matches('\n'),
                );
                if wanted == ending && same {
                    continue;
                }
                wrong.push(format!(
                    "{title}\n--- expected ({wanted})\n{}\n--- found ({ending})\n{words}\n",
                    block.text
                ));
                if way == ways[0] {
                    let info = if ending == "done" {
                        "result".to_owned()
                    } else {
                        format!("result {ending}")
                    };
                    changes.push((block.at.clone(), block.info.len(), info, words));
                }
            }
        }
    }
    if bless && !changes.is_empty() {
        changes.sort_by_key(|(at, ..)| std::cmp::Reverse(at.start));
        for (at, info_bytes, info, words) in changes {
            blessed.replace_range(at.clone(), &format!("{}\n", words.trim_end_matches('\n')));
            blessed.replace_range(at.start - 1 - info_bytes..at.start - 1, &info);
        }
        std::fs::write(path, blessed).unwrap();
    }
    wrong
}

#[test]
fn tool_specs_match_what_models_receive() {
    check_specs(Played::InTurn);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn tool_specs_match_what_models_receive_in_both_protocols() {
    check_specs(Played::InBoth);
}

fn check_specs(played: Played) {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folders = ["sabir-tools/src/specs", "sabir-agent/src/control/specs"]
        .map(|folder| crates.join(folder));
    let only = std::env::var("SABIR_SPEC").unwrap_or_default();
    let files = |folder: &PathBuf| {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let mut paths: Vec<PathBuf> = folders.iter().flat_map(files).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|end| end == "md") && path.to_string_lossy().contains(&only)
    });
    paths.sort();
    assert!(!paths.is_empty());
    let bless = std::env::var_os("SABIR_BLESS").is_some();
    let plays_all = bless || !only.is_empty() || played == Played::InBoth;
    let wrong: Vec<_> = std::thread::scope(|scope| {
        let works: Vec<_> = paths
            .iter()
            .map(|path| scope.spawn(move || check_spec(path, played, plays_all, bless)))
            .collect();
        works
            .into_iter()
            .flat_map(|work| work.join().unwrap())
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} differ:\n\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn placeholders_match_any_text() {
    for (expected, found, fit) in [
        ("a", "a", true),
        ("a", "b", false),
        ("a{*}c", "abc", true),
        ("a{*}c", "ac", true),
        ("a{*}bc", "ab", false),
        ("{*}x{*}y", "1x2y", true),
        ("{*}x{*}y", "1y2x", false),
    ] {
        assert_eq!(fits(expected, found), fit, "{expected} {found}");
    }
}
