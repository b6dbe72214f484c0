//! Tests of the dialects with tags and channels: chunks never change the sequence of events, and
//! only its own close closes a call.

use proptest::prelude::*;
use sabir_call::dialect::{DialectSelection, DialectSet};

use crate::chunks::sequence;

/// Pieces that are difficult in any order.
const FIXED: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<function=read_file>",
    "<function=get_time>",
    "<Function=get_time>",
    "<function=>",
    "<function=get_time",
    "<invoke name=\"get_time\"",
    "</function>",
    "<parameter=path>",
    "<parameter=n>",
    "</parameter>",
    "read_file",
    "get_time",
    "<arg_key>path</arg_key>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<seed:think>",
    "</seed:think>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"read_file\">",
    "<invok name=\"read_file\">",
    "</invoke>",
    "<parameter name=\"path\">",
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<｜DSML｜invoke name=\"read_file\">",
    "<|DSML|parameter name=\"path\" string=\"true\">",
    "<｜DSML｜ parameter name=\"n\" string=\"false\">",
    "</｜DSML｜parameter>",
    "</‖DSML‖invoke>",
    "]<]minimax[>[<tool_call>",
    "]<]minimax[>[</tool_call>",
    "]<]minimax[>[<invoke name=\"read_file\">",
    "]<]minimax[>[</invoke>",
    "]<]minimax[>[<path>",
    "]<]minimax[>[</path>",
    "]<]minimax[>[",
    "]",
    "<|open|>tools<|sep|>",
    "<|close|>tools<|sep|>",
    "<|open|>call tool=\"read_file\"<|sep|>",
    "<|close|>call<|sep|>",
    "<|open|>argument key=\"path\" type=\"string\"<|sep|>",
    "<|close|>argument<|sep|>",
    "<|open|>think<|sep|>",
    "<|close|>think<|sep|>",
    "<|open|>response<|sep|>",
    "<|close|> response<|sep|>",
    "<｜tool_calls_begin｜>",
    "<｜tool_call_begin｜>function<｜tool_sep｜>",
    "<｜tool_call_begin｜>",
    "<｜tool_sep｜>",
    "<｜tool_call_end｜>",
    "<｜tool_calls_end｜>",
    "<steptml:invoke name=\"read_file\">",
    "</steptml:invoke>",
    "<steptml:parameter name=\"path\">",
    "</steptml:parameter>",
    "<|start|>assistant",
    "<|channel|>commentary to=functions.read_file",
    "<|channel|>analysis",
    "<|channel|>final",
    "<|message|>",
    "{\"path\": \"a\"}",
    "<|call|>",
    "<|end|>",
    "<think>",
    "</think>",
    "<reasoning>",
    "</reasoning>",
    "<code>",
    "</code>",
    "<pre>",
    "</pre>",
    "<read_fil>",
    "<path>",
    "</path>",
    "<",
    "</",
    "\n",
    "\n",
    " ",
    "\r\n",
    "`",
    "```\n",
    "```",
    "\"",
    "“",
    "”",
    "a",
    "é",
];

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![30 => proptest::sample::select(FIXED).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

fn selections() -> impl Strategy<Value = DialectSelection<'static>> {
    const NAMES: &[&str] = &[
        "auto",
        "qwen_coder",
        "seed_oss",
        "glm",
        "minimax",
        "minimax_m3",
        "dsml",
        "kimi_k3",
        "step3",
        "harmony",
        "auto",
    ];
    proptest::sample::select(NAMES).prop_map(|name| DialectSet::built_in().select(name).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_any_tags(pieces in proptest::collection::vec(piece(), 0..24), selection in selections(), size in 2usize..9) {
        let text = pieces.concat();
        let whole = sequence(selection, text.as_bytes(), usize::MAX);
        prop_assert_eq!(sequence(selection, text.as_bytes(), 1), whole.clone(), "{}", text);
        prop_assert_eq!(sequence(selection, text.as_bytes(), size), whole, "{}", text);
    }
}

/// A call of each dialect without its last closing tag, and that tag.
const CALLS: [(&str, &str, &str); 9] = [
    (
        "qwen_coder",
        "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n",
        "</function>",
    ),
    (
        "seed_oss",
        "<seed:tool_call>\n<function=read_file>\n<parameter=path>a</parameter>\n",
        "</function>",
    ),
    (
        "glm",
        "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n",
        "</tool_call>",
    ),
    (
        "minimax",
        "<minimax:tool_call><invoke name=\"read_file\"><parameter name=\"path\">a</parameter>",
        "</invoke>",
    ),
    (
        "minimax_m3",
        "]<]minimax[>[<invoke name=\"read_file\">]<]minimax[>[<path>a]<]minimax[>[</path>",
        "]<]minimax[>[</invoke>",
    ),
    (
        "dsml",
        "<｜DSML｜invoke name=\"read_file\"><｜DSML｜parameter name=\"path\" string=\"true\">a</｜DSML｜parameter>",
        "</｜DSML｜invoke>",
    ),
    (
        "kimi_k3",
        "<|open|>call tool=\"read_file\"<|sep|><|open|>argument key=\"path\" type=\"string\"<|sep|>a<|close|>argument<|sep|>",
        "<|close|>call<|sep|>",
    ),
    (
        "step3",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"read_file\"><steptml:parameter name=\"path\">a</steptml:parameter>",
        "</steptml:invoke>",
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.read_file<|message|>{\"path\": \"a\"",
        "}",
    ),
];

#[test]
fn a_call_without_its_close_never_ends() {
    for (dialect, open, close) in CALLS {
        for name in [dialect, "auto"] {
            let ends = |text: &str| {
                let events = sequence(
                    DialectSet::built_in().select(name).unwrap(),
                    text.as_bytes(),
                    usize::MAX,
                );
                events
                    .iter()
                    .filter(|event| event.contains("CallEnd"))
                    .count()
            };
            for at in (0..open.len()).filter(|at| open.is_char_boundary(*at)) {
                assert_eq!(ends(&open[..at]), 0, "{name}: {}", &open[..at]);
            }
            assert_eq!(ends(open), 0, "{name}: {open}");
            for (at, _) in close.char_indices() {
                assert_eq!(
                    ends(&format!("{open}{}", &close[..at])),
                    0,
                    "{name}: {open}{}",
                    &close[..at]
                );
            }
            assert_eq!(ends(&format!("{open}{close}")), 1, "{name}: {open}{close}");
        }
    }
}

#[test]
fn keys_of_any_length_do_not_depend_on_chunks() {
    let glm = DialectSet::built_in().select("glm").unwrap();
    for length in [100, 255, 256, 257, 300, 480, 520] {
        let key = "k".repeat(length);
        let blank = " ".repeat(length % 7 * 40);
        let text = format!(
            "<tool_call>write_to_file\n<arg_key>content</arg_key>\n<arg_value>a</arg_value>\n\
             <arg_key>{key}</arg_key>{blank}<arg_value>b</arg_value>\n</tool_call>"
        );
        let whole = sequence(glm, text.as_bytes(), usize::MAX);
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(
                sequence(glm, text.as_bytes(), size),
                whole,
                "{length} in chunks of {size}"
            );
        }
    }
}

#[test]
fn abandoned_tags_do_not_depend_on_chunks() {
    let texts = [
        "<think>he <｜DSML｜tool_calls\"x} name=\"p g>\u{b}y z</think>",
        "so <steptm+:invoke : {\"a\": \"get_time\"<tool_call|> on",
        "so <steptml:invoke\u{b}get_time <b> on",
        "so <steptml:invoke get_time <b> on",
    ];
    for text in texts {
        let whole = sequence(DialectSet::built_in().all(), text.as_bytes(), usize::MAX);
        for size in [1, 2, 5] {
            assert_eq!(
                sequence(DialectSet::built_in().all(), text.as_bytes(), size),
                whole,
                "{text} in chunks of {size}"
            );
        }
    }
}
