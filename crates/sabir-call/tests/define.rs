//! Tests of dialects defined by tables, in a process of their own: definitions stay, and other
//! tests count dialects.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails by panicking is doing its work"
)]

use std::sync::Mutex;

use proptest::prelude::*;
use sabir_call::dialect::{
    DefineError, Dialect, DialectSelection, DialectTable, all_dialects, define_dialect, find_dialect,
};
use sabir_call::{Call, CallId, CallReader, DraftResponse, DraftState, ToolSet, Truncation};
use serde_json::{Map, Value, json};

/// A lock for the tests, because a dialect defined by one test is active in all.
static TURNS: Mutex<()> = Mutex::new(());

fn table(mut table: Value, name: &str) -> DialectTable {
    table["name"] = json!(name);
    serde_json::from_value(table).unwrap()
}

fn tools() -> ToolSet {
    let properties = json!({"path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "array"}});
    let tools = json!([{"name": "write_to_file", "parameters": {"type": "object", "properties": properties}}]);
    ToolSet::from_json(&tools.to_string()).unwrap()
}

fn arguments(content: &str) -> Map<String, Value> {
    let arguments = json!({"path": "a.txt", "content": content, "lines": [1, null, "x"]});
    arguments.as_object().unwrap().clone()
}

fn calls(contents: &[&str]) -> Vec<Call> {
    let one = |content: &&str| Call {
        id: CallId::new("c"),
        name: "write_to_file".to_owned(),
        arguments: arguments(content),
        dialect: None,
    };
    contents.iter().map(one).collect()
}

fn read(selection: DialectSelection, text: &str, size: usize) -> DraftResponse {
    let tools = tools();
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(selection, &tools);
    for chunk in text.as_bytes().chunks(size) {
        reader.push_bytes(chunk, &mut draft);
    }
    reader.finish(Truncation::Ended, &mut draft);
    draft
}

/// Checks that every call is read back as it was written, in any chunks, and that a truncated text
/// never closes the last call.
fn round_trip(made: &'static Dialect, contents: &[&str]) {
    let written = made.render_calls(&calls(contents), &tools());
    let text = format!("Words.\n\n{written}");
    for selection in [DialectSelection::from(made), DialectSelection::AUTO] {
        let whole = read(selection, &text, text.len());
        for size in [1, 2, 3, 7] {
            assert_eq!(read(selection, &text, size), whole, "chunks of {size}: {text}");
        }
        let read: Vec<_> = whole.calls().collect();
        assert_eq!(read.len(), contents.len(), "{text}\n{whole:?}");
        assert_eq!(whole.text().trim(), "Words.", "{text}");
        for (call, content) in read.iter().zip(contents) {
            assert_eq!((call.name.as_str(), call.state), ("write_to_file", DraftState::Closed), "{text}");
            assert_eq!(whole.errors_of(call.index).count(), 0, "{text}: {:?}", whole.faults);
            let values: Vec<Value> = call
                .arguments
                .iter()
                .map(|argument| match (argument.name.as_str(), argument.form) {
                    ("lines", _) | (_, sabir_call::ArgForm::Json) => serde_json::from_str(&argument.text).unwrap(),
                    _ => json!(argument.text),
                })
                .collect();
            assert_eq!(values, arguments(content).values().cloned().collect::<Vec<_>>(), "{text}");
        }
    }
}

/// Returns a table for each parser and each of its keys.
fn rows() -> Vec<(&'static str, Value)> {
    vec![
        ("t_json", json!({"machine": "json", "open": "<acme>", "close": "</acme>"})),
        ("t_json_open", json!({"machine": "json", "open": "@@call"})),
        ("t_json_list", json!({"machine": "json", "open": "[[calls]]", "json": {"list": true}})),
        (
            "t_json_keys",
            json!({"machine": "json", "open": "<|acme|>", "close": "<|/acme|>",
                   "json": {"name_key": "tool_name", "arguments_key": "input"}}),
        ),
        (
            "t_json_head",
            json!({"machine": "json", "open": "<acme:call>", "close": "<acme:end>", "json": {"head_end": "<acme:with>"}}),
        ),
        ("t_json_line", json!({"machine": "json", "open": "!call!", "json": {"head_end": "=>"}})),
        ("t_tags", json!({"machine": "tagged", "tags": {"call": "do", "argument": "with", "wrapper": "todo"}})),
        ("t_tags_equals", json!({"machine": "tagged", "tags": {"call": "exec", "argument": "with", "name_in": "="}})),
        ("t_tags_key", json!({"machine": "tagged", "tags": {"call": "play", "argument": "arg", "name_in": "key"}})),
        (
            "t_tags_each",
            json!({"machine": "tagged", "tags": {"call": "act", "argument": "arg", "wrapper": "one", "each": true}}),
        ),
        ("t_tags_prefix", json!({"machine": "tagged", "tags": {"call": "act", "argument": "arg", "prefix": "acme:"}})),
        ("t_tags_own", json!({"machine": "tagged", "tags": {"call": "perform", "wrapper": "acts"}})),
        ("t_python", json!({"machine": "python", "open": "<py>", "close": "</py>"})),
        ("t_python_open", json!({"machine": "python", "open": "#!calls"})),
        ("t_gemma", json!({"machine": "gemma", "open": "<g>", "close": "</g>", "quote": "<q>"})),
    ]
}

#[test]
fn every_parser_and_key() {
    let _turn = TURNS.lock();
    for (name, row) in rows() {
        let row = table(row, name);
        let made = define_dialect(&row).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(made.is_defined() && find_dialect(name).is_some());
        assert_eq!(define_dialect(&row).unwrap().name, name, "the same table is the same dialect");
        round_trip(made, &["plain"]);
        round_trip(made, &["a < b && \"c\"\n", "</acme></do></with></py>\n</g>"]);
        round_trip(made, &["\n\n", "{\"name\": 1}]", "x</act>\r\n<act>"]);
        assert!(made.render_example(tools().get("write_to_file").unwrap()).contains("write_to_file"), "{name}");
    }
}

fn refused(row: Value) -> DefineError {
    define_dialect(&serde_json::from_value(row.clone()).unwrap()).expect_err(&row.to_string())
}

#[test]
fn invalid_tables_are_rejected() {
    let _turn = TURNS.lock();
    let before = all_dialects().len();
    for name in ["", "auto", "native", "Acme", "a b", "a-b", "é"] {
        let error = refused(json!({"name": name, "machine": "json", "open": "<acme>"}));
        assert!(matches!(error, DefineError::Name(_)), "{name}: {error}");
    }
    for name in ["cline", "roo"] {
        let error = refused(json!({"name": name, "machine": "json", "open": "<acme>"}));
        assert!(matches!(error, DefineError::Taken(_)), "{name}: {error}");
        let error = refused(json!({"name": "x", "aliases": [name], "machine": "json", "open": "<acme>"}));
        assert!(matches!(error, DefineError::Taken(_)), "{name}: {error}");
    }
    let long = "<".to_owned() + &"a".repeat(63) + ">";
    for marker in [
        "",
        "<",
        "a",
        "{",
        "call",
        "<<",
        "<a",
        "[a",
        " <a>",
        "<a>\n",
        "</a>",
        "<think>",
        "```call",
        "\"a\"",
        "a\u{1b}b>",
        &long,
    ] {
        let error = refused(json!({"name": "x", "machine": "json", "open": marker}));
        assert_eq!(error.table_key(), Some("open"), "{marker}: {error}");
    }
    let error = refused(json!({"name": "x", "machine": "json", "open": "<a>", "json": {"name_key": "verb"}}));
    assert!(matches!(error, DefineError::Unreadable { .. }), "what no rule sees, the trial does: {error}");
    for unknown in [json!({"machine": "json", "opens": "<a>"}), json!({"machine": "harmony"}), json!({"open": "<a>"})] {
        assert!(serde_json::from_value::<DialectTable>(unknown.clone()).is_err(), "{unknown}");
    }
    assert_eq!(all_dialects().len(), before, "what is refused leaves nothing behind");
}

#[test]
fn errors_name_the_wrong_key() {
    let _turn = TURNS.lock();
    for (key, row) in [
        ("close", json!({"machine": "json", "open": "<a>", "close": "}"})),
        ("close", json!({"machine": "json", "open": "<a>", "close": "end"})),
        ("close", json!({"machine": "gemma", "open": "<a>", "quote": "<q>"})),
        ("quote", json!({"machine": "gemma", "open": "<a>", "close": "</a>"})),
        ("quote", json!({"machine": "gemma", "open": "<a>", "close": "</a>", "quote": "q"})),
        ("quote", json!({"machine": "json", "open": "<a>", "quote": "q"})),
        ("open", json!({"machine": "python"})),
        ("open", json!({"machine": "tagged", "open": "<a>", "tags": {"call": "c"}})),
        ("tags", json!({"machine": "json", "open": "<a>", "tags": {"call": "c"}})),
        ("json", json!({"machine": "python", "open": "<a>", "json": {}})),
        ("tags.call", json!({"machine": "tagged"})),
        ("tags.call", json!({"machine": "tagged", "tags": {"call": "a b"}})),
        ("tags.call", json!({"machine": "tagged", "tags": {"call": "think"}})),
        ("tags.call", json!({"machine": "tagged", "tags": {"call": "a:b"}})),
        ("tags.argument", json!({"machine": "tagged", "tags": {"call": "a", "argument": "a"}})),
        ("tags.wrapper", json!({"machine": "tagged", "tags": {"call": "a", "argument": "b", "wrapper": "a"}})),
        ("tags.prefix", json!({"machine": "tagged", "tags": {"call": "a", "prefix": "b-"}})),
        ("tags.name_in", json!({"machine": "tagged", "tags": {"call": "a", "name_in": "a b"}})),
        ("tags.each", json!({"machine": "tagged", "tags": {"call": "a", "each": true}})),
        ("json.head_end", json!({"machine": "json", "open": "<a>", "json": {"head_end": "with"}})),
        ("json.head_end", json!({"machine": "json", "open": "<a>", "json": {"head_end": ""}})),
        ("json.list", json!({"machine": "json", "open": "<a>", "json": {"head_end": "=>", "list": true}})),
    ] {
        let mut row = row;
        row["name"] = json!("x");
        let error = refused(row.clone());
        assert_eq!(error.table_key(), Some(key), "{row}: {error}");
        assert!(error.to_string().contains('`'), "{error}");
    }
}

#[test]
fn shadowed_dialects_are_rejected() {
    let _turn = TURNS.lock();
    define_dialect(&table(json!({"machine": "tagged", "tags": {"call": "sing", "argument": "with"}}), "t_first"))
        .unwrap();
    let row =
        table(json!({"machine": "tagged", "tags": {"call": "sing", "argument": "with", "name_in": "="}}), "t_second");
    let error = define_dialect(&row).unwrap_err();
    assert!(matches!(&error, DefineError::Unheard { .. }), "{error}");
}

#[test]
fn no_dialect_takes_calls_from_another() {
    let _turn = TURNS.lock();
    let row = table(
        json!({"machine": "json", "open": "<|tool_call_begin|>functions.", "close": "<|tool_call_end|>",
                           "json": {"head_end": "<|tool_call_argument_begin|>"}}),
        "t_thief",
    );
    let error = define_dialect(&row).unwrap_err();
    assert!(matches!(&error, DefineError::Clash { other, .. } if other == "kimi"), "{error}");
    assert!(find_dialect("t_thief").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that every accepted table reads what it writes, and that nothing panics or hangs.
    #[test]
    fn any_marker(open in "[<\\[{(@#!|:a-c =>\\]}]{0,6}", close in "[</|>a-c\\]}@#]{0,5}", end in "[=>:<|a(\\[]{1,3}", machine in 0..4) {
        let _turn = TURNS.lock();
        let row = match machine {
            0 => json!({"machine": "json", "open": open, "close": close}),
            1 => json!({"machine": "json", "open": open, "close": close, "json": {"head_end": end}}),
            2 => json!({"machine": "python", "open": open, "close": close}),
            _ => json!({"machine": "gemma", "open": open, "close": close, "quote": end}),
        };
        let name = format!("p{}", all_dialects().len());
        if let Ok(made) = define_dialect(&table(row, &name)) {
            round_trip(made, &["plain", &format!("{open}x{close}{end}\n\"'\\")]);
        }
    }
}
