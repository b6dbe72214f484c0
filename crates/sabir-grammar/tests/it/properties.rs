//! Checks the properties that a grammar promises, for every dialect.

use proptest::option::of;
use proptest::prelude::*;
use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, CallReader, DraftResponse, ParallelCalls, ToolSet, Truncation};
use sabir_check::{CallChecker, CallState};
use sabir_grammar::{CallGrammar, Sampler, build_grammar};
use serde_json::{Map, Value, json};

use crate::case_count::case_count;
use crate::tools::all_tools;

fn dialects() -> impl Iterator<Item = &'static Dialect> {
    DialectSet::built_in().iter()
}

fn read(dialect: &Dialect, tools: &ToolSet, text: &str) -> DraftResponse {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().only(dialect), tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft.drop_blank_text();
    draft
}

/// Returns why a text is not read as this many valid calls; `None` if it is.
fn find_misreading(dialect: &Dialect, tools: &ToolSet, text: &str, most: usize) -> Option<String> {
    let draft = read(dialect, tools, text);
    let checked = CallChecker::new(tools.clone()).check_all(&draft);
    if checked.is_empty() || checked.len() > most {
        return Some(format!("{} calls", checked.len()));
    }
    if !draft.text().is_empty() {
        return Some(format!("text {:?} beside the calls", draft.text()));
    }
    if let Some(fault) = draft.faults.first() {
        return Some(format!("{fault:?}"));
    }
    let bad = checked
        .iter()
        .find(|call| call.state != CallState::Complete || !call.repairs.is_empty());
    // Objects with any keys are noted as relaxed, since no grammar excludes that a key is repeated.
    let bad = bad.filter(|call| {
        !call
            .faults
            .iter()
            .all(|fault| fault.message.contains("is given twice"))
            || call.faults.is_empty()
    });
    bad.map(|call| format!("{:?} {:?} {:?}", call.state, call.faults, call.repairs))
}

fn built(dialect: &Dialect, tools: &ToolSet, calls: ParallelCalls) -> CallGrammar {
    build_grammar(dialect, tools, calls).unwrap_or_else(|error| panic!("{}: {error}", dialect.name))
}

fn check_samples(count: u32) {
    let tools = all_tools();
    let mut wrong = Vec::new();
    for dialect in dialects() {
        let grammar = built(dialect, &tools, ParallelCalls::One);
        let mut sampler = Sampler::new(&grammar.grammar, 25);
        let mut failures = 0;
        let mut example = String::new();
        for _ in 0..count {
            let text = sampler.next_text().unwrap();
            if let Some(why) = find_misreading(dialect, &tools, &text, 1) {
                failures += 1;
                if example.is_empty() || text.len() < example.len() {
                    example = format!("{why}\n{text}");
                }
            }
        }
        if failures > 0 {
            wrong.push(format!(
                "{}: {failures} of {count}: {example}",
                dialect.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_accepted_text_is_one_valid_call() {
    check_samples(case_count(200));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn every_one_of_many_accepted_texts_is_one_valid_call() {
    check_samples(100_000);
}

#[test]
fn several_calls_are_read_as_valid_calls() {
    let tools = all_tools();
    let mut wrong = Vec::new();
    for dialect in dialects() {
        let grammar = built(dialect, &tools, ParallelCalls::Many);
        let mut sampler = Sampler::new(&grammar.grammar, 7);
        for _ in 0..case_count(100) {
            let text = sampler.next_text().unwrap();
            if let Some(why) = find_misreading(dialect, &tools, &text, usize::MAX) {
                wrong.push(format!("{}: {why}\n{text}", dialect.name));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The pieces that values are made of: markup of several dialects, and characters that notations escape.
const PIECES: &[&str] = &[
    "a",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "\\",
    "'",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "</",
    "&",
    "ü",
    "😀",
    "<b>",
    "</b>",
    "if a < b && c > d",
    "<div class=\"x\">",
    "<think>",
    "</think>",
    "```\n",
    "\u{7f}",
    "\u{2028}",
    "\u{0}",
    "<|x|>",
    "]]>",
    "<![CDATA[",
    "<escape>",
    "<|\"|>",
    "{\"name\": \"get_time\", \"arguments\": {}}",
    "[get_time()]",
    "<path>",
    "<parameter=path>",
    "<parameter name=\"path\">",
    "<tool_call>",
    "<invoke name=\"get_time\">",
    "<function=get_time>",
    "<arg_key>",
    "<get_time>",
    "\u{feff}",
    "None",
    "true",
    "0",
    "-",
];

fn text_value() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![6 => proptest::sample::select(PIECES).prop_map(str::to_owned), 1 => "\\PC{0,4}"],
        0..8,
    )
    .prop_map(|pieces| pieces.concat())
}

fn arguments_of(tool: &str) -> BoxedStrategy<Map<String, Value>> {
    let map = |pairs: Vec<(&str, Option<Value>)>| -> Map<String, Value> {
        let pairs = pairs.into_iter();
        pairs
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    };
    match tool {
        "write_to_file" => (
            text_value(),
            text_value(),
            of(proptest::sample::select(&["append", "truncate"][..])),
        )
            .prop_map(move |(path, content, mode)| {
                map(vec![
                    ("path", Some(json!(path))),
                    ("content", Some(json!(content))),
                    ("mode", mode.map(Value::from)),
                ])
            })
            .boxed(),
        "read_file" => (text_value(), of(1..=99_999), of(any::<bool>()))
            .prop_map(move |(path, line, quick)| {
                map(vec![
                    ("path", Some(json!(path))),
                    ("start_line", line.map(Value::from)),
                    ("quick", quick.map(Value::from)),
                ])
            })
            .boxed(),
        "set_limits" => (
            of(of(text_value())),
            -1e6..1e6_f64,
            of(proptest::collection::vec(-1_000_000..1_000_000_i64, 1..=3)),
            of((any::<i32>(), of(of(any::<i32>())), of(text_value()))),
        )
            .prop_map(move |(label, ratio, sizes, range)| {
                let range = range.map(|(from, to, note)| {
                    Value::Object(map(vec![
                        ("from", Some(json!(from))),
                        ("to", to.map(Value::from)),
                        ("note", note.map(Value::from)),
                    ]))
                });
                map(vec![
                    ("label", label.map(Value::from)),
                    ("ratio", Some(json!(ratio))),
                    ("sizes", sizes.map(Value::from)),
                    ("range", range),
                ])
            })
            .boxed(),
        "apply_changes" => (text_value(), text_value(), any::<bool>(), of(text_value()))
            .prop_map(move |(name, child, flag, extra)| {
                map(vec![
                    (
                        "tree",
                        Some(json!({"name": name, "children": [{"name": child, "children": []}]})),
                    ),
                    (
                        "extra",
                        extra.map(|extra| json!([extra, null, {"deep": 1.5}])),
                    ),
                    ("options", flag.then(|| json!({"verbose": flag}))),
                ])
            })
            .boxed(),
        _ => Just(Map::new()).boxed(),
    }
}

fn any_call() -> impl Strategy<Value = (String, Map<String, Value>)> {
    const NAMES: [&str; 5] = [
        "write_to_file",
        "read_file",
        "set_limits",
        "apply_changes",
        "get_time",
    ];
    proptest::sample::select(&NAMES[..]).prop_flat_map(|name| {
        arguments_of(name).prop_map(move |arguments| (name.to_owned(), arguments))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: case_count(50), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rendered_calls_are_accepted((name, arguments) in any_call(), at in 0..DialectSet::built_in().iter().count()) {
        let tools = all_tools();
        let dialect = dialects().nth(at).unwrap();
        let call = Call { id: CallId::new("c1"), name, arguments, dialect: None };
        let text = dialect.render_calls([&call], &tools);
        let grammar = built(dialect, &tools, ParallelCalls::One);
        if !grammar.grammar.accepts(&text) {
            // A value in a tag that contains closing markup of its call is the documented
            // exception.
            let holds_markup = grammar.holds_own_markup(&call);
            prop_assert!(holds_markup, "{} does not accept {text}", dialect.name);
        } else {
            prop_assert_eq!(find_misreading(dialect, &tools, &text, 1), None, "{}: {}", dialect.name, text);
        }
    }

    #[test]
    fn rendered_runs_are_accepted(calls in proptest::collection::vec(any_call(), 1..4), at in 0..DialectSet::built_in().iter().count()) {
        let tools = all_tools();
        let dialect = dialects().nth(at).unwrap();
        let calls: Vec<Call> = calls.into_iter().map(|(name, arguments)| Call { id: CallId::new("c1"), name, arguments, dialect: None }).collect();
        let text = dialect.render_calls(&calls, &tools);
        let grammar = built(dialect, &tools, ParallelCalls::Many);
        if !grammar.grammar.accepts(&text) {
            prop_assert!(calls.iter().any(|call| grammar.holds_own_markup(call)), "{} does not accept {text}", dialect.name);
        }
    }
}

#[test]
fn examples_of_prompts_are_accepted() {
    let tools = all_tools();
    for dialect in dialects() {
        let grammar = built(dialect, &tools, ParallelCalls::One).grammar;
        for tool in tools.iter() {
            let text = dialect.render_example(tool);
            assert!(grammar.accepts(&text), "{}: {text}", dialect.name);
        }
        for broken in ["", "x", "<tool_call>", "get_time", "{}", "[]"] {
            assert!(
                !grammar.accepts(broken),
                "{} accepts {broken:?}",
                dialect.name
            );
        }
    }
}
