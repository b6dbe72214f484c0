//! Checks, for every dialect, that a text which ends inside a call is never silent and never runs other calls.

use sabir_call::dialect::{Dialect, DialectSelection, DialectSet};
use sabir_call::{
    Call, CallId, CallReader, DraftCall, DraftResponse, DraftState, Event, Severity, ToolSet,
    Truncation,
};
use serde_json::{Map, Value, json};

use crate::case_count::sampled_positions;
use crate::notation::read;

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"required": ["path"], "properties": {
                "path": {"type": "string"}, "content": {"type": "string"}, "size": {"type": "integer"},
                "lines": {"type": "array"}}}},
            {"name": "get_time", "parameters": {"properties": {}}}]"#,
    )
    .unwrap()
}

fn call(name: &str, arguments: Value) -> Call {
    let Value::Object(arguments) = arguments else {
        panic!("{arguments}")
    };
    Call {
        id: CallId::new("c1"),
        name: name.to_owned(),
        arguments,
        dialect: None,
    }
}

/// The calls of one text each.
fn true_calls() -> Vec<Vec<Call>> {
    let write = || {
        call(
            "write_to_file",
            json!({"path": "a.txt", "content": "one\ntwo \"three\" (x), [y] {z}"}),
        )
    };
    let typed = || {
        call(
            "write_to_file",
            json!({"path": "b", "size": 12, "lines": [1, {"a": "b"}]}),
        )
    };
    let empty = || call("get_time", Value::Object(Map::new()));
    vec![
        vec![write()],
        vec![typed()],
        vec![empty()],
        vec![write(), empty(), typed()],
    ]
}

/// A call that would run, as far as the reader decides about that.
fn runnable(draft: &DraftResponse) -> impl Iterator<Item = &DraftCall> {
    draft
        .calls()
        .filter(|call| call.state == DraftState::Closed && draft.errors_of(call.index).count() == 0)
}

/// Returns true if a user of the draft learns that something is wrong with the text.
fn is_reported(draft: &DraftResponse) -> bool {
    draft.calls().any(|call| call.state != DraftState::Closed)
        || draft
            .faults
            .iter()
            .any(|fault| fault.severity == Severity::Error)
}

fn is_same(one: &DraftCall, other: &DraftCall) -> bool {
    let arguments = |call: &DraftCall| -> Vec<(String, String)> {
        let pair =
            |argument: &sabir_call::DraftArgument| (argument.name.clone(), argument.text.clone());
        call.arguments.iter().map(pair).collect()
    };
    one.name == other.name && arguments(one) == arguments(other)
}

/// The byte range of a call in its text.
struct CallExtent {
    start: usize,
    end: usize,
}

/// Returns the extents of all calls of a text.
fn find_extents(selection: DialectSelection<'_>, text: &str) -> Vec<CallExtent> {
    let mut extents = Vec::new();
    let mut reader = CallReader::new(selection, &tools());
    let mut out = |event: Event<'_>| match event {
        Event::CallStart { at, .. } => extents.push(CallExtent { start: at, end: at }),
        Event::CallEnd { at, .. } => extents.last_mut().unwrap().end = at,
        _ => {}
    };
    reader.push(text, &mut out);
    reader.finish(Truncation::Ended, &mut out);
    extents
}

/// Returns the length of the beginning of a call by which it is known as one: its opening marker, or the tool's name. A tag
/// behind another call needs no more than its first letter.
fn opening_length(call: &str, name: &str, is_first: bool) -> usize {
    let is_tag = |text: &str| {
        let mut chars = text.chars();
        chars.next() == Some('<') && chars.next().is_some_and(char::is_alphabetic)
    };
    let marker_end = match call.as_bytes()[0] {
        b'<' if !is_first && is_tag(call) => Some(2),
        b'<' | b']' => call.find('>').map(|at| at + 1),
        b'[' if call.starts_with("[TOOL_CALLS]") => Some("[TOOL_CALLS]".len()),
        _ => None,
    };
    marker_end.unwrap_or_else(|| call.find(name).unwrap() + name.len())
}

/// Returns what is wrong with the prefixes of a dialect's calls.
fn check(dialect: &Dialect, calls: &[Call], wrong: &mut Vec<String>) {
    let selection = DialectSet::built_in().select(dialect.name).unwrap();
    let text = dialect.render_calls(calls, &tools());
    let whole = read(selection, &tools(), &text);
    assert_eq!(
        runnable(&whole).count(),
        calls.len(),
        "{}: {text}",
        dialect.name
    );
    for (index, extent) in find_extents(selection, &text).iter().enumerate() {
        let is_first = index == 0;
        let opening = opening_length(&text[extent.start..], &calls[index].name, is_first);
        let first = extent.start + opening;
        for end in sampled_positions(first, extent.end, 1).filter(|end| *end >= first) {
            let Some(prefix) = text.get(..end) else {
                continue;
            };
            let draft = read(selection, &tools(), prefix);
            // The end of a message closes some dialects' calls, and then this call is there.
            let is_whole = runnable(&draft).count() == index + 1;
            if !is_whole && !is_reported(&draft) {
                wrong.push(format!("{}: silent: {prefix:?}", dialect.name));
            }
            for call in runnable(&draft) {
                let meant = whole.call_by_index(call.index).unwrap();
                if !is_same(call, meant) {
                    wrong.push(format!("{}: {call:?} ran: {prefix:?}", dialect.name));
                }
            }
        }
    }
}

#[test]
fn a_text_that_ends_inside_a_call_is_reported() {
    let mut wrong = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        for calls in true_calls() {
            check(dialect, &calls, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
