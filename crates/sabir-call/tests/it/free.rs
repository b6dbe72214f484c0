//! Tests of the dialects without tags: any calls are read back as they were written, chunks never
//! matter, and prose stays prose.

use proptest::prelude::*;
use sabir_call::dialect::{DialectSelection, DialectSet};
use sabir_call::{ArgumentEncoding, Call, CallId, DraftResponse, DraftState, ToolSet, Truncation};
use serde_json::{Map, Value};

use crate::chunks::{sequence, tools};
use crate::contract::watch;
use crate::notation::{read, read_chunks};

const NAMES: [&str; 25] = [
    "hermes",
    "kimi",
    "deepseek",
    "mistral",
    "llama",
    "granite",
    "granite_20b",
    "phi",
    "cohere",
    "functionary",
    "jamba",
    "deci",
    "json",
    "react",
    "pythonic",
    "lfm2",
    "olmo3",
    "gemma",
    "functiongemma",
    "apertus",
    "internlm",
    "longcat",
    "gigachat",
    "plamo3",
    "k2_horizon_json",
];

/// Text that resembles a marker, a string or a bracket of some dialect.
const TEMPTING: &[&str] = &[
    "<|tools_prefix|>[{\"get_time\": {}}]<|tools_suffix|>",
    "<|function_call|>",
    "function call<|role_sep|>",
    "<longcat_tool_call>",
    "</longcat_tool_call>",
    "<|action_start|>",
    "<|plugin|>",
    "<|action_end|>",
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_time",
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>",
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    "<ifm|tool_call>",
    "</ifm|tool_call>",
    "analysis<|message|>",
    " to=functions.get_time<|message|>",
    "<|start|>assistant to=user<|message|>",
    "<|start|>assistant to=self<|message|>",
    "<|start|>assistant to=get_time<|message|>",
    "<atem:invoke name=\"get_time\"></atem:invoke>",
    "<invoke name=\"get_time\"></invoke>",
    "<get_time></get_time>",
    "<|eom|>",
    " and so",
    " words",
    "`",
    "Observation:",
    "</tool_call>",
    "<|tool_call_end|>",
    "<｜tool▁call▁end｜>",
    "```",
    "\n",
    "\r\n",
    "[TOOL_CALLS]",
    "[ARGS]",
    "\"",
    "'",
    "\\",
    "\\u0041",
    "}",
    "]",
    "{",
    "[",
    ")",
    ",",
    "; ",
    "<|END_ACTION|>",
    "</tool_calls>",
    "<|tool_call_end|>",
    "Action: get_time\nAction Input: {}",
    "<|\"|>",
    "<escape>",
    "</think>",
    "\u{0}",
    "\u{7f}",
    "\u{2028}",
    "é🌍",
    "<",
    "call:get_time{}",
    "\"\"\"",
    "'''",
    "{\"name\": \"get_time\", \"arguments\": {}}",
];

/// Words, markup and brackets that occur in prose, without the name of a tool.
const PROSE: &[&str] = &[
    "The ",
    "config",
    " is ",
    "{\"name\": \"demo\", \"version\": 2}",
    "{\"name\": \"x\", \"arguments\": {}}",
    "[link](http://x)",
    "[1, 2]",
    "functools.partial(f)",
    "functools[0]",
    "functools",
    "`code`",
    "```json\n",
    "```\n",
    "\n",
    "\n\n",
    "> ",
    "    ",
    "<tool_call>",
    "</tool_call>",
    "<tool_call>\n<think>",
    "<tool_calls>",
    "<TOOLCALL>",
    "<function_call>",
    "Action: ",
    "Action Input: ",
    "call: ",
    "call:f{",
    "<think>",
    "</think>",
    "[f(x=1)]",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    ": ",
    ", ",
    "<b>",
    "</b>",
    "<details>",
    "|",
    "a",
    "<function=f>",
    "</function>",
    "{\"arguments\": {\"path\": 1}}",
    "[[",
    "]]",
    "- [ ] ",
    "* ",
];

/// The pieces of calls in all these dialects.
const MARKUP: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "functions.get_time:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "read_file",
    "\n",
    "```json\n",
    "```",
    "<｜tool▁call▁end｜>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[/TOOL_CALLS]",
    "<|python_tag|>",
    "<function=",
    ">",
    "</function>",
    "<|tool_call|>",
    "<function_call>",
    "functools",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<tool_calls>",
    "</tool_calls>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "Action:",
    "Action Input:",
    "<|python_start|>",
    "<|python_end|>",
    "<|tool_call_start|>",
    "<function_calls>",
    "</function_calls>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "call:",
    "<|channel>thought",
    "<channel|>",
    "<turn|>",
    "<think>",
    "</think>",
    "{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}",
    "{\"name\": \"get_time\", ",
    "\"arguments\": ",
    "{\"path\": \"a\"}",
    "{}",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "read_file(path='a')",
    "get_time()",
    "get_time",
    "path:",
    "path=",
    ",",
    ";",
    ":",
    " ",
    "'",
    "\"",
    "`",
    "\\",
    "<",
    "é",
    "a",
    "\r",
];

/// Generates any text, and difficult text.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![2 => proptest::sample::select(TEMPTING).prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => string().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<i32>().prop_map(|number| Value::from(f64::from(number) / 8.0)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::vec((string(), inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let names = proptest::sample::select(&["read_file", "write_to_file", "get_time"][..]);
    let argument = (
        prop_oneof![
            Just("path".to_owned()),
            Just("content".to_owned()),
            "[a-z_]{1,8}"
        ],
        value(),
    );
    let call =
        (names, proptest::collection::vec(argument, 0..4)).prop_map(|(name, arguments)| Call {
            id: CallId::new("c"),
            name: name.to_owned(),
            arguments: arguments.into_iter().collect(),
            dialect: None,
        });
    proptest::collection::vec(call, 1..4)
}

/// Returns the calls that were read, with the reason for those that could not run.
fn made(draft: &DraftResponse) -> Vec<(String, Value)> {
    let one = |(at, call): (usize, &sabir_call::DraftCall)| {
        let whole = call.state == DraftState::Closed
            && draft.errors_of(u32::try_from(at).unwrap()).count() == 0;
        let value = |argument: &sabir_call::DraftArgument| match argument.form {
            ArgumentEncoding::Json => {
                serde_json::from_str(&argument.text).unwrap_or(Value::from("no JSON"))
            }
            _ => Value::from(argument.text.clone()),
        };
        let arguments: Map<_, _> = call
            .arguments
            .iter()
            .map(|it| (it.name.clone(), value(it)))
            .collect();
        (
            if whole {
                call.name.clone()
            } else {
                format!("{} {:?}", call.name, call.state)
            },
            arguments.into(),
        )
    };
    draft.calls().enumerate().map(one).collect()
}

fn prose() -> impl Strategy<Value = String> {
    let piece = prop_oneof![10 => proptest::sample::select(PROSE).prop_map(str::to_owned), 1 => "\\PC{0,6}"];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![30 => proptest::sample::select(MARKUP).prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn selections() -> impl Strategy<Value = DialectSelection<'static>> {
    let names: Vec<&str> = NAMES.into_iter().chain(["auto"; 12]).collect();
    proptest::sample::select(names).prop_map(|name| DialectSet::built_in().select(name).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(100), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_read_back(calls in calls(), size in 1usize..40) {
        let expected: Vec<_> = calls.iter().map(|call| (call.name.clone(), Value::from(call.arguments.clone()))).collect();
        for name in NAMES {
            let text = DialectSet::built_in().find(name).unwrap().render_calls(&calls, &tools());
            let selection = DialectSet::built_in().select(name).unwrap();
            let draft = read_chunks(selection, &tools(), text.as_bytes().chunks(size));
            prop_assert_eq!(&made(&draft), &expected, "{}: {} {:?}", name, &text, &draft.faults);
            prop_assert!(draft.text().trim().is_empty(), "{}: {}", name, &text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prose_without_a_tool_makes_no_call(text in prose(), size in 1usize..9) {
        let draft = read_chunks(DialectSet::built_in().all(), &tools(), text.as_bytes().chunks(size));
        let run: Vec<_> = made(&draft).into_iter().filter(|(name, _)| tools().iter().any(|tool| tool.name == *name)).collect();
        prop_assert_eq!(run, Vec::new(), "{}", text);
    }

    #[test]
    fn any_split_of_any_markup(text in markup(), selection in selections(), size in 1usize..9) {
        let whole = sequence(selection, text.as_bytes(), usize::MAX);
        prop_assert_eq!(&sequence(selection, text.as_bytes(), 1), &whole, "{}", &text);
        prop_assert_eq!(&sequence(selection, text.as_bytes(), size), &whole, "{}", &text);
    }

    #[test]
    fn any_markup_keeps_the_contract(text in markup(), selection in selections(), size in 1usize..9) {
        prop_assert_eq!(watch(selection, &text, size, Truncation::Ended), Vec::<String>::new(), "{}", &text);
    }
}

#[test]
fn without_tools_nothing_is_a_call() {
    for name in NAMES {
        let text = DialectSet::built_in().find(name).unwrap().render_call(
            "get_time",
            &Map::new(),
            &ToolSet::default(),
        );
        let draft = read(
            DialectSet::built_in().select(name).unwrap(),
            &ToolSet::default(),
            &text,
        );
        assert_eq!(
            (draft.calls().count(), draft.text().as_str()),
            (0, text.as_str()),
            "{name}"
        );
    }
}

#[test]
fn names_may_have_letters_of_any_alphabet() {
    let tools = r#"[{"name": "größe_lesen", "parameters": {"properties": {"pfad": {"type": "string"}}, "required": ["pfad"]}},
        {"name": "天气", "parameters": {"properties": {}}}, {"name": "srv/get", "parameters": {"properties": {}}}]"#;
    let tools = ToolSet::from_json(tools).unwrap();
    for (text, name) in [
        (
            "{\"name\": \"größe_lesen\", \"arguments\": {\"pfad\": \"ä\"}}",
            "größe_lesen",
        ),
        ("[größe_lesen(pfad=\"ä\")]", "größe_lesen"),
        ("{\"name\": \"天气\", \"arguments\": {}}", "天气"),
        ("[天气()]", "天气"),
        (
            "<tool_call>\n{\"name\": \"srv/get\", \"arguments\": {}}\n</tool_call>",
            "srv/get",
        ),
        (
            "<function_calls><invoke name=\"srv/get\"></invoke></function_calls>",
            "srv/get",
        ),
        (
            "<tool_call>\n<function=srv/get>\n</function>\n</tool_call>",
            "srv/get",
        ),
        (
            "<|tool_call_begin|>functions.srv/get:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
            "srv/get",
        ),
    ] {
        for size in 1..=text.len() {
            let selection = DialectSet::built_in().all();
            let draft = read_chunks(selection, &tools, text.as_bytes().chunks(size));
            let names: Vec<_> = draft.calls().map(|call| call.name.as_str()).collect();
            assert_eq!(names, [name], "{text} in chunks of {size}");
        }
    }
}

#[test]
fn bare_json_behind_a_header_of_another_dialect_in_a_sentence_is_only_mentioned() {
    let text = "Such as <|message_model|>get_time<|content_invoke_tool_json|>{\"name\": \"get_time\", \"args\": {}}<|end_message|> is fine.";
    let call = "I look.\n{\"name\": \"get_time\", \"args\": {}}";
    for name in ["json", "llama", "mistral"] {
        let selection = DialectSet::built_in().select(name).unwrap();
        let draft = read(selection, &tools(), text);
        let calls: Vec<_> = draft.calls().map(|call| call.index).collect();
        assert!(
            calls
                .iter()
                .all(|index| draft.errors_of(*index).count() > 0),
            "{name}: {draft:?}"
        );
        assert_eq!(read(selection, &tools(), call).calls().count(), 1, "{name}");
    }
}
