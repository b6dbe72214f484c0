//! Tests dialects that are defined by tables.

use proptest::prelude::*;
use sabir_call::dialect::{DefineError, DialectSelection, DialectSet, DialectTable};
use sabir_call::{Call, CallId, CallReader, DraftResponse, DraftState, ToolSet, Truncation};
use serde_json::{Map, Value, json};

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

fn read(selection: DialectSelection<'_>, text: &str, size: usize) -> DraftResponse {
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
fn there_and_back(dialects: &DialectSet, name: &str, contents: &[&str]) {
    let made = dialects.find(name).unwrap();
    let written = made.render_calls(&calls(contents), &tools());
    let text = format!("Words.\n\n{written}");
    for selection in [
        dialects.only(made),
        dialects.all(),
        DialectSelection::from(made),
    ] {
        let whole = read(selection, &text, text.len());
        for size in [1, 2, 3, 7] {
            assert_eq!(
                read(selection, &text, size),
                whole,
                "chunks of {size}: {text}"
            );
        }
        let read: Vec<_> = whole.calls().collect();
        assert_eq!(read.len(), contents.len(), "{text}\n{whole:?}");
        assert_eq!(whole.text().trim(), "Words.", "{text}");
        for (call, content) in read.iter().zip(contents) {
            assert_eq!(
                (call.name.as_str(), call.state),
                ("write_to_file", DraftState::Closed),
                "{text}"
            );
            assert_eq!(
                whole.errors_of(call.index).count(),
                0,
                "{text}: {:?}",
                whole.faults
            );
            let values: Vec<Value> = call
                .arguments
                .iter()
                .map(|argument| match (argument.name.as_str(), argument.form) {
                    ("lines", _) | (_, sabir_call::ArgumentEncoding::Json) => {
                        serde_json::from_str(&argument.text).unwrap()
                    }
                    _ => json!(argument.text),
                })
                .collect();
            assert_eq!(
                values,
                arguments(content).values().cloned().collect::<Vec<_>>(),
                "{text}"
            );
        }
    }
}

/// Returns a table for each parser and each of its keys.
fn rows() -> Vec<(&'static str, Value)> {
    vec![
        (
            "t_json",
            json!({"machine": "json", "open": "<acme>", "close": "</acme>"}),
        ),
        ("t_json_open", json!({"machine": "json", "open": "@@call"})),
        (
            "t_json_list",
            json!({"machine": "json", "open": "[[calls]]", "json": {"list": true}}),
        ),
        (
            "t_json_keys",
            json!({"machine": "json", "open": "<|acme|>", "close": "<|/acme|>",
                   "json": {"name_key": "tool_name", "arguments_key": "input"}}),
        ),
        (
            "t_json_head",
            json!({"machine": "json", "open": "<acme:call>", "close": "<acme:end>", "json": {"head_end": "<acme:with>"}}),
        ),
        (
            "t_json_line",
            json!({"machine": "json", "open": "!call!", "json": {"head_end": "=>"}}),
        ),
        (
            "t_tags",
            json!({"machine": "tagged", "tags": {"call": "do", "argument": "with", "wrapper": "todo"}}),
        ),
        (
            "t_tags_equals",
            json!({"machine": "tagged", "tags": {"call": "exec", "argument": "with", "name_in": "="}}),
        ),
        (
            "t_tags_key",
            json!({"machine": "tagged", "tags": {"call": "play", "argument": "arg", "name_in": "key"}}),
        ),
        (
            "t_tags_each",
            json!({"machine": "tagged", "tags": {"call": "act", "argument": "arg", "wrapper": "one", "each": true}}),
        ),
        (
            "t_tags_prefix",
            json!({"machine": "tagged", "tags": {"call": "act", "argument": "arg", "prefix": "acme:"}}),
        ),
        (
            "t_tags_capitals",
            json!({"machine": "tagged", "tags": {"call": "Zeta", "argument": "Xi", "wrapper": "ZetaCalls"}}),
        ),
        (
            "t_tags_own",
            json!({"machine": "tagged", "tags": {"call": "perform", "wrapper": "acts"}}),
        ),
        (
            "t_python",
            json!({"machine": "python", "open": "<py>", "close": "</py>"}),
        ),
        (
            "t_python_open",
            json!({"machine": "python", "open": "#!calls"}),
        ),
        (
            "t_gemma",
            json!({"machine": "gemma", "open": "<g>", "close": "</g>", "quote": "<q>"}),
        ),
    ]
}

#[test]
fn every_machine_and_key() {
    let mut dialects = DialectSet::default();
    for (name, row) in rows() {
        let row = table(row, name);
        dialects
            .define(&row)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let before = dialects.clone();
        dialects.define(&row).unwrap();
        assert_eq!(dialects, before, "the same table is the same dialect");
        let made = dialects.find(name).unwrap();
        assert!(made.is_defined());
        there_and_back(&dialects, name, &["plain"]);
        there_and_back(
            &dialects,
            name,
            &["a < b && \"c\"\n", "</acme></do></with></py>\n</g>"],
        );
        there_and_back(
            &dialects,
            name,
            &["\n\n", "{\"name\": 1}]", "x</act>\r\n<act>"],
        );
        assert!(
            made.render_example(tools().get("write_to_file").unwrap())
                .contains("write_to_file"),
            "{name}"
        );
    }
}

fn refused(row: Value) -> DefineError {
    let mut dialects = DialectSet::default();
    let error = dialects
        .define(&serde_json::from_value(row.clone()).unwrap())
        .expect_err(&row.to_string());
    assert_eq!(
        &dialects,
        DialectSet::built_in(),
        "what is refused leaves nothing behind"
    );
    error
}

#[test]
fn invalid_tables_are_refused() {
    for name in ["", "auto", "native", "Acme", "a b", "a-b", "é"] {
        let error = refused(json!({"name": name, "machine": "json", "open": "<acme>"}));
        assert!(matches!(error, DefineError::Name(_)), "{name}: {error}");
    }
    for name in ["cline", "roo"] {
        let error = refused(json!({"name": name, "machine": "json", "open": "<acme>"}));
        assert!(
            matches!(error, DefineError::NameInUse(_)),
            "{name}: {error}"
        );
        let error =
            refused(json!({"name": "x", "aliases": [name], "machine": "json", "open": "<acme>"}));
        assert!(
            matches!(error, DefineError::NameInUse(_)),
            "{name}: {error}"
        );
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
    let error = refused(
        json!({"name": "x", "machine": "json", "open": "<a>", "json": {"name_key": "verb"}}),
    );
    assert!(
        matches!(error, DefineError::Unreadable { .. }),
        "what no rule sees, the trial does: {error}"
    );
    for unknown in [
        json!({"machine": "json", "opens": "<a>"}),
        json!({"machine": "harmony"}),
        json!({"open": "<a>"}),
    ] {
        assert!(
            serde_json::from_value::<DialectTable>(unknown.clone()).is_err(),
            "{unknown}"
        );
    }
}

#[test]
fn the_key_that_is_wrong_is_named() {
    for (key, row) in [
        (
            "close",
            json!({"machine": "json", "open": "<a>", "close": "}"}),
        ),
        (
            "close",
            json!({"machine": "json", "open": "<a>", "close": "end"}),
        ),
        (
            "close",
            json!({"machine": "gemma", "open": "<a>", "quote": "<q>"}),
        ),
        (
            "quote",
            json!({"machine": "gemma", "open": "<a>", "close": "</a>"}),
        ),
        (
            "quote",
            json!({"machine": "gemma", "open": "<a>", "close": "</a>", "quote": "q"}),
        ),
        (
            "quote",
            json!({"machine": "json", "open": "<a>", "quote": "q"}),
        ),
        ("open", json!({"machine": "python"})),
        (
            "open",
            json!({"machine": "tagged", "open": "<a>", "tags": {"call": "c"}}),
        ),
        (
            "tags",
            json!({"machine": "json", "open": "<a>", "tags": {"call": "c"}}),
        ),
        (
            "json",
            json!({"machine": "python", "open": "<a>", "json": {}}),
        ),
        ("tags.call", json!({"machine": "tagged"})),
        (
            "tags.call",
            json!({"machine": "tagged", "tags": {"call": "a b"}}),
        ),
        (
            "tags.call",
            json!({"machine": "tagged", "tags": {"call": "think"}}),
        ),
        (
            "tags.call",
            json!({"machine": "tagged", "tags": {"call": "a:b"}}),
        ),
        (
            "tags.argument",
            json!({"machine": "tagged", "tags": {"call": "a", "argument": "a"}}),
        ),
        (
            "tags.wrapper",
            json!({"machine": "tagged", "tags": {"call": "a", "argument": "b", "wrapper": "a"}}),
        ),
        (
            "tags.prefix",
            json!({"machine": "tagged", "tags": {"call": "a", "prefix": "b-"}}),
        ),
        (
            "tags.name_in",
            json!({"machine": "tagged", "tags": {"call": "a", "name_in": "a b"}}),
        ),
        (
            "tags.each",
            json!({"machine": "tagged", "tags": {"call": "a", "each": true}}),
        ),
        (
            "json.head_end",
            json!({"machine": "json", "open": "<a>", "json": {"head_end": "with"}}),
        ),
        (
            "json.head_end",
            json!({"machine": "json", "open": "<a>", "json": {"head_end": ""}}),
        ),
        (
            "json.list",
            json!({"machine": "json", "open": "<a>", "json": {"head_end": "=>", "list": true}}),
        ),
    ] {
        let mut row = row;
        row["name"] = json!("x");
        let error = refused(row.clone());
        assert_eq!(error.table_key(), Some(key), "{row}: {error}");
        assert!(error.to_string().contains('`'), "{error}");
    }
}

#[test]
fn a_dialect_shadowed_by_another_is_refused() {
    let mut dialects = DialectSet::default();
    dialects
        .define(&table(
            json!({"machine": "tagged", "tags": {"call": "sing", "argument": "with"}}),
            "t_first",
        ))
        .unwrap();
    let row = table(
        json!({"machine": "tagged", "tags": {"call": "sing", "argument": "with", "name_in": "="}}),
        "t_second",
    );
    let error = dialects.define(&row).unwrap_err();
    assert!(matches!(&error, DefineError::Shadowed { .. }), "{error}");
}

#[test]
fn no_dialect_takes_calls_from_another() {
    let row = table(
        json!({"machine": "json", "open": "<|tool_call_begin|>functions.", "close": "<|tool_call_end|>",
                           "json": {"head_end": "<|tool_call_argument_begin|>"}}),
        "t_thief",
    );
    let mut dialects = DialectSet::default();
    let error = dialects.define(&row).unwrap_err();
    assert!(
        matches!(&error, DefineError::MarkerConflict { other, .. } if other == "kimi"),
        "{error}"
    );
    assert!(dialects.find("t_thief").is_none());
}

/// Two sets give one name to different tables, and threads that read with either at the same time never mix them up.
#[test]
fn sets_do_not_share_names() {
    let row = |open: &str, close: &str| {
        let row = json!({"machine": "json", "open": open, "close": close});
        let mut dialects = DialectSet::default();
        dialects.define(&table(row, "acme")).unwrap();
        dialects
    };
    let sets = [row("<one>", "</one>"), row("@@two", "@@end")];
    let texts = sets.each_ref().map(|set| {
        set.find("acme")
            .unwrap()
            .render_calls(&calls(&["x"]), &tools())
    });
    std::thread::scope(|scope| {
        for (set, own, other) in [
            (&sets[0], &texts[0], &texts[1]),
            (&sets[1], &texts[1], &texts[0]),
        ] {
            scope.spawn(move || {
                for size in (1..own.len()).cycle().take(500) {
                    for selection in [set.select("acme").unwrap(), set.all()] {
                        let draft = read(selection, own, size);
                        let call = draft.call_by_index(0).unwrap();
                        assert_eq!(
                            (call.state, call.dialect.as_deref()),
                            (DraftState::Closed, Some("acme")),
                            "{own}"
                        );
                        assert_eq!(read(selection, other, size).calls().count(), 0, "{other}");
                    }
                }
            });
        }
    });
    assert!(DialectSet::built_in().find("acme").is_none());
    let mut taken = sets[0].clone();
    let error = taken
        .define(&table(
            json!({"machine": "json", "open": "<three>"}),
            "acme",
        ))
        .unwrap_err();
    assert!(
        matches!(&error, DefineError::NameInUse(name) if name == "acme"),
        "{error}"
    );
}

/// A change of one clone leaves the others as they are.
#[test]
fn clones_are_independent() {
    let root = DialectSet::with_shared_definitions();
    let row = table(json!({"machine": "json", "open": "<acme>"}), "acme");
    let mut sets = [root.clone(), root.clone()];
    sets[0].define(&row).unwrap();
    assert_eq!(
        (&root, &sets[1]),
        (DialectSet::built_in(), DialectSet::built_in())
    );
    sets[1].define(&row).unwrap();
    let name = |set: &DialectSet| set.find("acme").unwrap().name.as_ptr();
    assert_eq!(
        name(&sets[0]),
        name(&sets[1]),
        "equal tables of related sets are kept once"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(300), failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that every accepted table reads what it writes, and that nothing panics or hangs.
    #[test]
    fn any_marker(open in "[<\\[{(@#!|:a-c =>\\]}]{0,6}", close in "[</|>a-c\\]}@#]{0,5}", end in "[=>:<|a(\\[]{1,3}", machine in 0..4) {
            let row = match machine {
            0 => json!({"machine": "json", "open": open, "close": close}),
            1 => json!({"machine": "json", "open": open, "close": close, "json": {"head_end": end}}),
            2 => json!({"machine": "python", "open": open, "close": close}),
            _ => json!({"machine": "gemma", "open": open, "close": close, "quote": end}),
        };
        let mut dialects = DialectSet::default();
        if dialects.define(&table(row, "p")).is_ok() {
            there_and_back(&dialects, "p", &["plain", &format!("{open}x{close}{end}\n\"'\\")]);
        }
    }
}
