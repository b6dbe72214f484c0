//! Drives a region parser in the same way as the reader, for the tests of `python` and `gemma`.

use serde_json::{Map, Value};

use crate::draft::{DraftPart, DraftResponse, DraftState};
use crate::event::{ArgumentEncoding, Event, EventSink, MarkupRole, Truncation};
use crate::fault::Severity;
use crate::reader::region::{RegionParser, RegionProgress, TextView};

/// The result of parsing a region.
#[derive(Debug, Default)]
pub(in crate::reader) struct ParsedRegion {
    /// The events, with adjacent deltas merged, one per line.
    pub(in crate::reader) events: Vec<String>,
    pub(in crate::reader) draft: DraftResponse,
    /// The offset at which the region ended.
    pub(in crate::reader) over: Option<usize>,
    /// The maximum number of bytes held between two chunks.
    pub(in crate::reader) held: usize,
}

impl ParsedRegion {
    fn record_event(&mut self, event: Event<'_>) {
        self.draft.push_event(event);
        let line = match event {
            Event::ArgDelta { index, text } => {
                assert!(!text.is_empty());
                let start = format!("{index} | ");
                if let Some(last) = self
                    .events
                    .last_mut()
                    .filter(|last| last.starts_with(&start))
                {
                    last.push_str(text);
                    return;
                }
                start + text
            }
            Event::Mark(mark) => {
                assert_eq!((mark.role, mark.dialect), (MarkupRole::Call, Some("d")));
                format!("mark {}..{}", mark.span.start, mark.span.end)
            }
            Event::CallStart {
                index,
                name,
                at,
                name_at,
                dialect,
                id,
            } => {
                assert_eq!((dialect, id), (Some("d"), None));
                format!("{index} call {name} {at} {name_at}")
            }
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => format!("{index} arg {name} {form:?} {at}"),
            Event::ArgEnd {
                index,
                lead: "",
                at,
            } => format!("{index} arg end {at}"),
            Event::CallEnd { index, at } => format!("{index} end {at}"),
            Event::CallCut { index, why, at } => format!("{index} cut {why:?} {at}"),
            Event::Fault(fault) => {
                let word = if fault.severity == Severity::Error {
                    "error"
                } else {
                    "warning"
                };
                let call = fault
                    .call
                    .map_or(String::from("-"), |call| call.to_string());
                let span = fault.span;
                format!(
                    "{call} {word} {} {}..{} {}",
                    fault.kind.name(),
                    span.start,
                    span.end,
                    fault.message
                )
            }
            other => panic!("{other:?}"),
        };
        self.events.push(line);
    }

    /// Returns the calls that were closed and may run: names and arguments.
    pub(in crate::reader) fn runnable_calls(&self) -> Vec<(String, Map<String, Value>)> {
        let calls = self.draft.parts.iter().filter_map(|part| match part {
            DraftPart::Call(call) if call.state == DraftState::Closed => Some(call),
            _ => None,
        });
        let right = calls.filter(|call| {
            let mut faults = self.draft.faults.iter();
            !faults.any(|fault| {
                fault.severity == Severity::Error && fault.call.is_none_or(|it| it == call.index)
            })
        });
        let arguments = right.map(|call| {
            let arguments = call.arguments.iter().map(|argument| {
                assert!(!argument.partial);
                let value = match argument.form {
                    ArgumentEncoding::Json => serde_json::from_str(&argument.text).unwrap(),
                    _ => Value::from(argument.text.clone()),
                };
                (argument.name.clone(), value)
            });
            (call.name.clone(), arguments.collect())
        });
        arguments.collect()
    }
}

/// Passes the chunks to the parser, and ends the text.
pub(in crate::reader) fn run_parser<'t>(
    region: &mut dyn RegionParser,
    chunks: impl IntoIterator<Item = &'t str>,
    why: Truncation,
) -> ParsedRegion {
    // Like the reader, keeps what the parser did not consume and passes it again.
    let mut driven = ParsedRegion::default();
    let mut hold = String::new();
    let mut offset = 0;
    for chunk in chunks {
        if hold.is_empty()
            && region.take_chunk(chunk, &mut |event: Event<'_>| driven.record_event(event))
        {
            offset += chunk.len();
            continue;
        }
        hold.push_str(chunk);
        let view = TextView {
            text: &hold,
            offset,
            last: false,
        };
        match region.parse_view(view, &mut |event: Event<'_>| driven.record_event(event)) {
            RegionProgress::More(taken) => {
                offset += taken;
                hold.drain(..taken);
                driven.held = driven.held.max(hold.len());
            }
            RegionProgress::Over(taken) => {
                driven.over = Some(offset + taken);
                return driven;
            }
        }
    }
    let view = TextView {
        text: &hold,
        offset,
        last: true,
    };
    match region.parse_view(view, &mut |event: Event<'_>| driven.record_event(event)) {
        RegionProgress::More(_) => {
            region.cut_region(why, offset + hold.len(), &mut |event: Event<'_>| {
                driven.record_event(event)
            })
        }
        RegionProgress::Over(taken) => driven.over = Some(offset + taken),
    }
    driven
}

/// Splits a text into chunks of that many bytes, at least one character each.
pub(in crate::reader) fn split_chunks(text: &str, size: usize) -> Vec<&str> {
    let mut rest = text;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// Checks that the events do not depend on the chunks: whole, split in two at every position, and in pieces of one to nine bytes.
pub(in crate::reader) fn in_every_split<R: RegionParser>(
    text: &str,
    new: impl Fn() -> R,
) -> ParsedRegion {
    let whole = run_parser(&mut new(), [text], Truncation::Ended);
    let same = |chunks: Vec<&str>| {
        let other = run_parser(&mut new(), chunks.iter().copied(), Truncation::Ended);
        assert_eq!(other.events, whole.events, "{chunks:?}");
        assert_eq!(other.over, whole.over, "{chunks:?}");
    };
    // Long texts are split at about two hundred places only.
    for (at, _) in text.char_indices().step_by(1 + text.len() / 200) {
        let (head, tail) = text.split_at(at);
        same(vec![head, tail]);
    }
    for size in 1..10 {
        same(split_chunks(text, size));
    }
    whole
}

/// Checks that a text cut at any place closes only calls that it had already closed there.
pub(in crate::reader) fn cut_anywhere<R: RegionParser>(text: &str, new: impl Fn() -> R) {
    for (at, _) in text.char_indices() {
        let (head, _) = text.split_at(at);
        for why in [Truncation::Limit, Truncation::Ended] {
            let driven = run_parser(&mut new(), [head], why);
            assert_eq!(driven.runnable_calls(), [], "{}", head);
            let starts = driven
                .events
                .iter()
                .filter(|line| line.contains(" call "))
                .count();
            let cuts = driven
                .events
                .iter()
                .filter(|line| line.contains(" cut "))
                .count();
            assert_eq!(starts, cuts, "{}", head);
        }
    }
}

/// Generates any JSON value, with difficult strings.
pub(in crate::reader) fn any_value() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-20i64..20).prop_map(Value::from),
        any::<f64>().prop_map(Value::from).prop_filter(
            "a number that serde_json itself reads back",
            |number| {
                serde_json::from_str::<Value>(&number.to_string())
                    .is_ok_and(|read| read == *number && read.is_number())
            }
        ),
    ];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any_text().prop_map(Value::from)
    ];
    scalar.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((any_text(), inner), 0..5)
                .prop_map(|pairs| Value::from(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Generates any arguments.
pub(in crate::reader) fn any_arguments()
-> impl proptest::strategy::Strategy<Value = Map<String, Value>> {
    use proptest::prelude::*;
    let name = prop_oneof![4 => "[a-z_][a-z0-9_]{0,6}", 1 => any_text()];
    proptest::collection::vec((name, any_value()), 0..5)
        .prop_map(|pairs| pairs.into_iter().collect())
}

fn any_text() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    const PIECES: &[&str] = &[
        "\"",
        "'",
        "\\",
        "\n",
        "\r\n",
        "\t",
        "\0",
        "\u{1b}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "🌍",
        "é",
        "<",
        ">",
        "|",
        "<|\"|>",
        "<|\"|",
        "<escape>",
        "<tool_call|>",
        "<end>",
        "call:",
        "\"\"\"",
        "'''",
        ")]",
        "(",
        "{",
        "}",
        ",",
        ":",
        "=",
        "\\u0041",
        "\\x",
        "#",
        " ",
        "x",
        "None",
    ];
    let piece = prop_oneof![4 => proptest::sample::select(PIECES).prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}
