//! Checks that no call runs with other arguments than were meant, in any dialect, when a value of it holds markup of any
//! dialect and one of its own marks is missing. A message has up to two pieces of markup, both in one value or one in each.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests, which may panic like the tests"
)]

use std::cell::RefCell;
use std::ops::Range;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, CallReader, DraftResponse, ToolSet, Truncation};
use sabir_check::{CallChecker, CallState};
use serde_json::{Map, Value, json};

/// The arguments that are meant, with letters that occur in no mark in the place of the values.
const ARGUMENTS: [(&str, char); 2] = [("path", '\u{e000}'), ("content", '\u{e001}')];

/// Marks that are no tags, of the dialects that have them.
const WORDS: [&str; 9] = [
    "[TOOL_CALLS]",
    "[ARGS]",
    "functools",
    "Action:",
    "Action Input:",
    ">>>",
    "```json",
    "```",
    "call:",
];

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"type": "object", "required": ["path", "content"],
                "additionalProperties": false, "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
            {"name": "get_time", "parameters": {"type": "object", "properties": {}}}]"#,
    )
    .unwrap()
}

fn render(dialect: &Dialect, name: &str, arguments: Map<String, Value>) -> String {
    let call = Call {
        id: CallId::new("c"),
        name: name.to_owned(),
        arguments,
        dialect: None,
    };
    dialect.render_calls([&call], &tools())
}

/// Renders the call without its values.
fn render_frame(dialect: &Dialect) -> String {
    let places = ARGUMENTS.map(|(name, place)| (name.to_owned(), json!(place.to_string())));
    render(dialect, "write_to_file", Map::from_iter(places))
}

/// Returns the byte ranges of all marks of a rendered call: tags and tokens, words, brackets and quotation marks.
fn find_marks(frame: &str) -> Vec<Range<usize>> {
    const TAGS: [(&str, &str); 4] = [
        ("<|open|>", "<|sep|>"),
        ("<|close|>", "<|sep|>"),
        ("]<]minimax[>[", ">"),
        ("<", ">"),
    ];
    let mut marks = Vec::new();
    let mut at = 0;
    while let Some(first) = frame[at..].chars().next() {
        let rest = &frame[at..];
        let tag = TAGS.iter().find_map(|(open, close)| {
            let body = rest.strip_prefix(open)?;
            Some(open.len() + body.find(close)? + close.len())
        });
        let word = WORDS.iter().find(|word| rest.starts_with(**word));
        let single = "{}[]()\"'".contains(first).then_some(1);
        let found = tag.or(word.map(|word| word.len())).or(single);
        if let Some(length) = found {
            marks.push(at..at + length);
        }
        at += found.unwrap_or(first.len_utf8());
    }
    marks
}

/// Returns the form in which a model writes a value in a dialect; `None` if it cannot.
fn write_value(frame: &str, value: &str) -> Option<String> {
    let (before, after) = frame.split_once(ARGUMENTS[0].1).unwrap();
    for quote in ["<|\"|>", "<escape>"] {
        if before.ends_with(quote) && after.starts_with(quote) {
            // Nothing escapes this mark.
            return Some(value.to_owned()).filter(|value| !value.contains(quote));
        }
    }
    let json = json!(value).to_string();
    Some(match before.ends_with('"') {
        true => json[1..json.len() - 1].to_owned(),
        false => value.to_owned(),
    })
}

/// A reader and checks that are made once.
struct DialectChecks {
    dialect: &'static Dialect,
    frame: String,
    marks: Vec<Range<usize>>,
    /// Those that open or close something for themselves; the others are brackets and quotation marks.
    markers: Vec<usize>,
    readers: [CallReader; 2],
}

impl DialectChecks {
    fn new(dialect: &'static Dialect) -> Self {
        let frame = render_frame(dialect);
        let marks = find_marks(&frame);
        let is_marker = |at: &usize| marks[*at].len() > 1;
        let set = DialectSet::built_in();
        let named = set.select(dialect.name).unwrap();
        Self {
            dialect,
            markers: (0..marks.len()).filter(is_marker).collect(),
            marks,
            frame,
            readers: [named, set.all()].map(|selection| CallReader::new(selection, &tools())),
        }
    }

    /// Returns a call that runs and was not meant. `missing` is the number of the mark that is left out; one that there is not
    /// leaves out none.
    fn wrong_calls(&self, missing: usize, values: [&str; 2]) -> Option<String> {
        let mut text = self.frame.clone();
        let mut removed = "";
        if let Some(mark) = self.marks.get(missing) {
            removed = &self.frame[mark.clone()];
            // Without the words or brackets that open them, these calls are prose.
            let first_value = self.frame.find(ARGUMENTS[0].1).unwrap();
            if mark.start < first_value && !self.frame.starts_with(['<', ']']) {
                return None;
            }
            // The value may hold the mark, and the call is whole again.
            let is_whole_again = |value: &&str| {
                // Some dialects accept two spellings of an argument's tag.
                value.contains(removed)
                    || removed.contains("=path>") && value.contains("name=\"path\"")
                    || removed.contains("=content>") && value.contains("name=\"content\"")
            };
            if values.iter().any(is_whole_again) {
                return None;
            }
            text.replace_range(mark.clone(), "");
        }
        for ((_, place), value) in ARGUMENTS.iter().zip(values) {
            text = text.replace(*place, &write_value(&self.frame, value)?);
        }
        self.readers.iter().find_map(|reader| {
            let mut draft = DraftResponse::default();
            let mut reader = reader.for_next_text();
            reader.push(&text, &mut draft);
            reader.finish(Truncation::Ended, &mut draft);
            let checked = CallChecker::new(tools()).check_all(&draft);
            let mut running = checked
                .iter()
                .filter(|call| call.state == CallState::Complete);
            let wrong = running.find(|call| {
                let is_meant = |((name, _), value): (&(&str, char), &str)| {
                    let read = call.arguments.get(*name).and_then(Value::as_str);
                    read.is_some_and(|read| is_same(read, value))
                };
                call.name != "write_to_file" || !ARGUMENTS.iter().zip(values).all(is_meant)
            })?;
            Some(format!(
                "{} without {removed:?}: {text}\nran as {} {:?}",
                self.dialect.name, wrong.name, wrong.arguments
            ))
        })
    }
}

/// Returns true if the value that was read is the one that was meant, apart from line feeds around it, which are layout in some
/// dialects.
fn is_same(read: &str, meant: &str) -> bool {
    let feeds = ['\r', '\n'];
    read.trim_matches(feeds) == meant.trim_matches(feeds)
}

thread_local! {
    static ALL: RefCell<Vec<DialectChecks>> = RefCell::new(DialectSet::built_in().iter().map(DialectChecks::new).collect());
    static MARKUP: Vec<String> = all_markup();
}

/// Returns whole calls and single marks of all dialects.
fn all_markup() -> Vec<String> {
    let mut markup = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        let frame = render_frame(dialect);
        markup.extend(
            find_marks(&frame)
                .into_iter()
                .map(|mark| frame[mark].to_owned()),
        );
        markup.push(render(dialect, "get_time", Map::new()));
        let evil = [("path", json!("evil")), ("content", json!("evil"))];
        let evil = evil.map(|(name, value)| (name.to_owned(), value));
        markup.push(render(dialect, "write_to_file", Map::from_iter(evil)));
    }
    markup.sort();
    markup.dedup();
    // A fence that is never closed hides the end of the call that it is in.
    markup.retain(|mark| mark.matches("```").count() % 2 == 0);
    markup
}

/// Generates words that may stand around markup in a value.
fn words() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&["", "", "a", " b ", "\n", "a\n\n", "path, ", "\\"][..])
}

/// Generates a value with this many pieces of markup between words.
fn value(pieces: usize) -> impl Strategy<Value = String> {
    let piece = (0..MARKUP.with(Vec::len), words());
    (words(), proptest::collection::vec(piece, pieces)).prop_map(|(first, pieces)| {
        let join =
            |text: String, (at, words): &(usize, &str)| MARKUP.with(|all| text + &all[*at] + words);
        pieces.iter().fold(first.to_owned(), join)
    })
}

/// Generates the values of both arguments.
fn values() -> impl Strategy<Value = [String; 2]> {
    prop_oneof![
        value(1).prop_map(|first| [first, "text".to_owned()]),
        value(1).prop_map(|second| ["a.txt".to_owned(), second]),
        value(2).prop_map(|first| [first, "text".to_owned()]),
        value(2).prop_map(|second| ["a.txt".to_owned(), second]),
        [value(1), value(1)],
    ]
}

#[test]
fn a_call_of_any_dialect_inside_a_value_never_runs() {
    let mut wrong = Vec::new();
    ALL.with_borrow(|all| {
        for (at, checks) in all.iter().enumerate() {
            // Each mark with some of the dialects, all of them over all marks.
            for missing in 0..=checks.marks.len() {
                let count = all.len();
                for inner in (0..3).map(|step| &all[(at + 7 * missing + step * 17) % count]) {
                    let whole = render(inner.dialect, "get_time", Map::new());
                    for value in [
                        whole.clone(),
                        format!("a\n{whole}\nb"),
                        format!("a {whole}"),
                    ] {
                        wrong.extend(checks.wrong_calls(missing, ["a.txt", &value]));
                        wrong.extend(checks.wrong_calls(missing, [&value, "text"]));
                    }
                }
            }
        }
    });
    let count = wrong.len();
    wrong.truncate(600);
    assert!(
        wrong.is_empty(),
        "{count} wrong calls ran, such as:\n{}",
        wrong.join("\n\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_markup_of_any_dialect_changes_the_arguments(
        values in values(), dialect in 0_usize..1000, missing in 0_usize..60) {
        let values = values.each_ref().map(String::as_str);
        let wrong = ALL.with_borrow(|all| {
            let checks = &all[dialect % all.len()];
            let marker = checks.markers.get(missing % (checks.markers.len() + 1));
            let missing = marker.copied().unwrap_or(usize::MAX);
            checks.wrong_calls(missing, values)
        });
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// Tries many messages and lists all wrong calls, not only the first: to look for new classes of them.
/// `SABIR_CASES=20 SABIR_SEED=7 cargo test -p sabir-check --test it random_messages -- --ignored` tries 400,000 with that seed; with
/// `SABIR_DIALECT=minimax_m3` all of them in that dialect.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn random_messages_run_no_wrong_call() {
    let seed: u8 = std::env::var("SABIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0);
    let only = std::env::var("SABIR_DIALECT").ok();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let messages = (values(), 0_usize..1000, 0_usize..60);
    let mut wrong = Vec::new();
    for _ in 0..crate::case_count::case_count(20_000) {
        let (values, dialect, missing) = messages.new_tree(&mut runner).unwrap().current();
        let values = values.each_ref().map(String::as_str);
        wrong.extend(ALL.with_borrow(|all| {
            let is_chosen = |checks: &&DialectChecks| only.as_deref() == Some(checks.dialect.name);
            let checks = match &only {
                Some(_) => all.iter().find(is_chosen).expect("a known dialect"),
                None => &all[dialect % all.len()],
            };
            let marker = checks.markers.get(missing % (checks.markers.len() + 1));
            checks.wrong_calls(marker.copied().unwrap_or(usize::MAX), values)
        }));
    }
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} wrong calls ran:\n{}",
        wrong.join("\n\n")
    );
}
