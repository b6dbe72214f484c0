//! Checks the contract table of `event.rs` on any text: valid event sequences, bounded hold-back,
//! and that a truncated call never ends.

use proptest::prelude::*;
use sabir_call::dialect::{DialectSelection, DialectSet};
use sabir_call::{CallReader, DraftState, Event, EventSink, Truncation, json::ArgumentScanner};

use crate::chunks::{selections, text, tools};
use crate::notation::read;

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    InArgument,
    Over,
}

/// An event sink that records violations of the contract.
#[derive(Debug, Default)]
struct Watch {
    calls: Vec<Stage>,
    /// The last position in each call.
    positions: Vec<usize>,
    wrong: Vec<String>,
}

impl Watch {
    fn expect(&mut self, right: bool, event: &Event<'_>) {
        if !right {
            self.wrong.push(format!(
                "{event:?} with calls {:?} at {:?}",
                self.calls, self.positions
            ));
        }
    }

    fn stage(&self, index: u32) -> Option<Stage> {
        self.calls.get(index as usize).copied()
    }

    fn go(&mut self, index: u32, stage: Stage, at: usize, event: &Event<'_>) {
        let at_least = self
            .positions
            .get(index as usize)
            .copied()
            .unwrap_or_default();
        self.expect(at >= at_least, event);
        if let (Some(known), Some(position)) = (
            self.calls.get_mut(index as usize),
            self.positions.get_mut(index as usize),
        ) {
            *known = stage;
            *position = at;
        }
    }
}

impl EventSink for Watch {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Source { text, .. } | Event::Text { text } | Event::Thought { text } => {
                self.expect(!text.is_empty(), &event);
            }
            Event::CallStart {
                index, at, name_at, ..
            } => {
                self.expect(index as usize == self.calls.len(), &event);
                self.expect(name_at >= at, &event);
                self.calls.push(Stage::Open);
                self.positions.push(at);
            }
            Event::ArgStart { index, at, .. } => {
                self.expect(self.stage(index) == Some(Stage::Open), &event);
                self.go(index, Stage::InArgument, at, &event);
            }
            Event::ArgDelta { index, text } => {
                self.expect(
                    !text.is_empty() && self.stage(index) == Some(Stage::InArgument),
                    &event,
                );
            }
            Event::ArgEnd { index, lead, at } => {
                self.expect(self.stage(index) == Some(Stage::InArgument), &event);
                self.expect(["", "\n", "\r\n"].contains(&lead), &event);
                self.go(index, Stage::Open, at, &event);
            }
            Event::CallEnd { index, at } => {
                self.expect(self.stage(index) == Some(Stage::Open), &event);
                self.go(index, Stage::Over, at, &event);
            }
            Event::CallCut { index, at, .. } => {
                self.expect(
                    matches!(self.stage(index), Some(Stage::Open | Stage::InArgument)),
                    &event,
                );
                self.go(index, Stage::Over, at, &event);
            }
            Event::Fault(fault) => {
                let known = fault
                    .call
                    .is_none_or(|index| (index as usize) < self.calls.len());
                self.expect(
                    known && fault.span.start <= fault.span.end && !fault.message.is_empty(),
                    &event,
                );
            }
            _ => {}
        }
    }
}

/// Returns the violations in the events of a text, read in chunks of that size.
pub(crate) fn watch(
    selection: DialectSelection,
    text: &str,
    size: usize,
    why: Truncation,
) -> Vec<String> {
    let mut watch = Watch::default();
    let mut reader = CallReader::new(selection, &tools());
    for chunk in text.as_bytes().chunks(size) {
        reader.push_bytes(chunk, &mut watch);
    }
    reader.finish(why, &mut watch);
    if watch.calls.iter().any(|stage| *stage != Stage::Over) {
        watch
            .wrong
            .push(format!("calls without an end: {:?}", watch.calls));
    }
    watch.wrong
}

/// An event sink that counts the bytes of a text shown so far: text, thoughts, values, and markup
/// up to a known position.
#[derive(Debug, Default)]
struct Shown {
    upto: usize,
    /// True while the open call is broken: its rest is skipped, which emits nothing.
    skipping: bool,
}

impl Shown {
    /// Returns true if the bytes that are not shown may be a call without a marker. Those have a
    /// bound of their own, of a mebibyte, and unit tests.
    fn may_hold_bare_call(&self, text: &str) -> bool {
        let mut rest = text.get(self.upto..).unwrap_or_default().trim_start();
        while let Some(behind) = SILENT_TAGS.iter().find_map(|tag| rest.strip_prefix(tag)) {
            rest = behind.trim_start();
        }
        rest.starts_with(['{', '[', '`'])
    }
}

impl EventSink for Shown {
    fn push_event(&mut self, event: Event<'_>) {
        let at = match event {
            Event::Text { text } | Event::Thought { text } | Event::ArgDelta { text, .. } => {
                self.upto + text.len()
            }
            Event::CallStart { at, .. } | Event::ArgStart { at, .. } => at,
            Event::ArgEnd { at, .. } | Event::CallEnd { at, .. } | Event::CallCut { at, .. } => at,
            _ => self.upto,
        };
        self.upto = self.upto.max(at);
        self.skipping = match event {
            Event::Fault(fault) => self.skipping || fault.call.is_some(),
            Event::CallStart { .. } | Event::CallEnd { .. } | Event::CallCut { .. } => false,
            _ => self.skipping,
        };
    }
}

/// The markup for which no event is emitted.
const SILENT_TAGS: [&str; 4] = [
    "<thinking>",
    "</thinking>",
    "<function_calls>",
    "</function_calls>",
];

/// Returns the bytes of markup for which no event is emitted; the count may lag behind by that
/// much.
fn silent(text: &str) -> usize {
    SILENT_TAGS
        .iter()
        .map(|tag| text.matches(tag).count() * tag.len())
        .sum()
}

/// Returns the length of the longest white space in a text.
fn blank(text: &str) -> usize {
    let runs = text.split(|c: char| !c.is_ascii_whitespace()).map(str::len);
    runs.max().unwrap_or_default()
}

/// Returns true if a tag follows another one directly. The first may open an element that belongs to no
/// tool, which is held up to its end.
fn may_hold_element(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('>') {
        let next = behind.trim_start().strip_prefix('<');
        if next.is_some_and(|next| next.starts_with(|c: char| c.is_ascii_alphabetic())) {
            return true;
        }
        rest = behind;
    }
    false
}

/// The length of the longest whole tag among the pieces of the generated texts.
const TAG: usize = 40;

/// The bytes that are held behind the start of a special token that no dialect has, until it is known whether
/// JSON behind it names a declared tool: the token, the white space and the JSON (`unknown_marker.rs`).
const UNKNOWN_MARKER: usize = 64 + 64 + 512;

/// Returns the additional bytes that may be held because a text has the start of a special token.
fn unknown_marker(text: &str) -> usize {
    if text.contains("<|") || text.contains("<｜") {
        UNKNOWN_MARKER
    } else {
        0
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequences_keep_the_contract(text in text(), selection in selections(), size in 1usize..9, why in proptest::sample::select(&[Truncation::Ended, Truncation::Limit][..])) {
        prop_assert_eq!(watch(selection, &text, size, why), Vec::<String>::new(), "{}", text);
    }

    #[test]
    fn held_bytes_are_bounded(text in text(), selection in selections()) {
        let mut shown = Shown::default();
        let mut reader = CallReader::new(selection, &tools());
        let silent = silent(&text) + text.matches(char::is_whitespace).count() * usize::from(silent(&text) > 0);
        // A partial tag, after a candidate with its white space: a wrapper and the tag in it, or a
        // closing tag.
        let most = silent + 256 + 2 * (TAG + blank(&text)) + unknown_marker(&text);
        for (at, byte) in text.bytes().enumerate() {
            reader.push_bytes(&[byte], &mut shown);
            let exempt = shown.skipping || shown.may_hold_bare_call(&text) || may_hold_element(&text);
            prop_assert!(exempt || at < shown.upto + most, "{} of {} bytes after {:?}", shown.upto, at + 1, text);
        }
        // Nothing that is held is longer than this, so from here on each byte is shown as it comes.
        let words = "x".repeat(300 + UNKNOWN_MARKER);
        reader.push(&words, &mut shown);
        let before = shown.upto;
        reader.push(&words, &mut shown);
        let exempt = shown.skipping || shown.may_hold_bare_call(&text) || may_hold_element(&text);
        prop_assert!(exempt || shown.upto - before == words.len(), "{} of {} bytes after {:?}", shown.upto - before, words.len(), text);
    }

    #[test]
    fn arguments_keep_the_contract(text in "[{}\\[\\]\"'`,:a\\\\u0d8n1 ]{0,40}", size in 1usize..5) {
        let mut watch = Watch::default();
        watch.push_event(Event::CallStart { index: 0, id: None, name: "", dialect: None, at: 0, name_at: 0 });
        let mut scanner = ArgumentScanner::new(0);
        for chunk in text.as_bytes().chunks(size) {
            scanner.push(std::str::from_utf8(chunk).unwrap(), &mut watch);
        }
        scanner.finish(&mut watch);
        prop_assert_eq!(&watch.wrong, &Vec::<String>::new(), "{}", text);
    }
}

/// Renders several calls; each part is either a complete call or words between two calls.
const MESSAGES: [(&str, &[&str]); 2] = [
    (
        "cline",
        &[
            "Words first.\n",
            "<read_file>\n<path>a</path>\n</read_file>",
            "\n",
            "<write_to_file>\n<path>b.md</path>\n<content>\nSay </content> or\n<write_to_file>\n<path>x</path>\n</write_to_file>\n</content>\n</write_to_file>",
            "<get_time></get_time>",
            "\nAnd `<get_time></get_time>` last.",
        ],
    ),
    (
        "invoke",
        &[
            "Words first.\n<function_calls>\n",
            "<invoke name=\"read_file\">\n<parameter name=\"path\">a</parameter>\n</invoke>",
            "\n",
            "<invoke name=\"write_to_file\">\n<parameter name=\"content\">Say </parameter> or\n<invoke name=\"get_time\">\n<parameter name=\"path\">x</parameter>\n</invoke>.</parameter>\n</invoke>",
            "\n</function_calls>\n<function_calls>",
            "<invoke name=\"get_time\"></invoke>",
            "</function_calls>\nThe end.",
        ],
    ),
];

#[test]
fn a_call_whose_end_was_not_seen_never_ends() {
    for (dialect, parts) in MESSAGES {
        let text = parts.concat();
        let is_call = |part: &&&str| {
            part.starts_with("<read")
                || part.starts_with("<write")
                || part.starts_with("<get")
                || part.starts_with("<invoke")
        };
        assert_eq!(
            read(
                DialectSet::built_in().select(dialect).unwrap(),
                &tools(),
                &text
            )
            .calls()
            .count(),
            3
        );
        for at in 0..=text.len() {
            let mut before = 0;
            let whole = parts.iter().filter(|part| {
                before += part.len();
                is_call(part) && before <= at
            });
            let whole = whole.count();
            for name in [dialect, "auto"] {
                let draft = read(
                    DialectSet::built_in().select(name).unwrap(),
                    &tools(),
                    &text[..at],
                );
                let closed = draft
                    .calls()
                    .filter(|call| call.state == DraftState::Closed)
                    .count();
                assert_eq!(closed, whole, "{name}: {}", &text[..at]);
                assert!(draft.calls().all(|call| call.state != DraftState::Open));
            }
        }
    }
}
