//! Checks that markup which belongs to no call is left out with a warning, that it stays where it is quoted, and that a message which
//! holds nothing else is a fault.

use sabir_call::dialect::DialectSet;
use sabir_call::{DraftResponse, DraftState, FaultKind, Severity, ToolSet};

use crate::notation::{lines, read_chunks};

/// Markup around calls that holds none.
const EMPTY: [(&str, &str); 30] = [
    ("hermes", "<tool_call>\n</tool_call>"),
    ("qwen_coder", "<tool_call>\n\n</tool_call>"),
    ("glm", "<tool_call></tool_call>"),
    ("spark25", "<tool_call></tool_call>"),
    ("mimo", "<tool_call>\n</tool_call>"),
    ("invoke", "<function_calls>\n</function_calls>"),
    ("muse", "<atem:function_calls></atem:function_calls>"),
    ("dots", "<dots_function_call></dots_function_call>"),
    ("minimax", "<minimax:tool_call>\n</minimax:tool_call>"),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[</tool_call>",
    ),
    ("seed_oss", "<seed:tool_call>\n</seed:tool_call>"),
    (
        "dsml",
        "<｜DSML｜function_calls>\n</｜DSML｜function_calls>",
    ),
    ("dsml", "<｜DSML｜tool_calls></｜DSML｜tool_calls>"),
    ("dsml", "<｜DSML｜ calls></｜DSML｜ calls>"),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_calls_section_end|>",
    ),
    ("kimi", "<|tool_call_begin|><|tool_call_end|>"),
    ("kimi_k3", "<|open|>tools<|sep|><|close|>tools<|sep|>"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"),
    ("deepseek", "<｜tool▁call▁begin｜><｜tool▁call▁end｜>"),
    ("mistral", "[TOOL_CALLS] []"),
    ("cohere", "<|START_ACTION|>\n[]\n<|END_ACTION|>"),
    ("granite", "<|tool_call|>[]"),
    ("sarashina", "<|tool_calls|>[]"),
    ("jamba", "<tool_calls>[\n]</tool_calls>"),
    ("jamba", "<tool_calls></tool_calls>"),
    ("deci", "<TOOLCALL>[]</TOOLCALL>"),
    (
        "hunyuan",
        "<tool_calls>\n<tool_call></tool_call>\n</tool_calls>",
    ),
    ("apertus", "<|tools_prefix|>[]<|tools_suffix|>"),
    ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>"),
    ("solar", "<|tool_call:begin|><|tool_call:end|>"),
];

/// A call with markup around it that belongs to none, and the names of the dialects that read it.
const AROUND_CALLS: [(&str, &str); 20] = [
    (
        "glm",
        "<tool_calls>\n<tool_call>get_time</tool_call>\n</tool_calls>",
    ),
    (
        "glm",
        "<tool_calls><tool_call>get_time</tool_call></tool_calls>",
    ),
    ("glm", "<tools>\n<tool_call>get_time</tool_call>\n</tools>"),
    (
        "hermes",
        "<tool_calls>\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>\n</tool_calls>",
    ),
    (
        "hermes",
        "<function_calls>\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>\n</function_calls>",
    ),
    (
        "qwen_coder",
        "<tools>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>\n</tools>",
    ),
    ("cline", "<tools>\n<get_time></get_time>\n</tools>"),
    ("cline", "<get_time></get_time></get_time>"),
    (
        "hermes",
        "<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call></tool_calls>",
    ),
    (
        "hermes",
        "</tool_call>\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>",
    ),
    (
        "invoke",
        "</invoke>\n<function_calls><invoke name=\"get_time\"></invoke></function_calls>",
    ),
    (
        "mistral",
        "[TOOL_CALLS][TOOL_CALLS] [{\"name\": \"get_time\", \"arguments\": {}}]",
    ),
    (
        "mistral",
        "[TOOL_CALLS]\n[TOOL_CALLS]\n[TOOL_CALLS] [{\"name\": \"get_time\", \"arguments\": {}}]",
    ),
    (
        "qwen_coder",
        "<function=get_time><function=get_time>\n</function>",
    ),
    ("glm", "<tool_call><tool_call>get_time</tool_call>"),
    ("glm", "<tool_call>get_time</tool_call></s>"),
    ("glm", "<tool_call>get_time</tool_call><|end_of_sentence|>"),
    ("glm", "<tool_call>get_time</tool_call>\n<|return|>"),
    ("glm", "<tool_call>get_time</tool_call>\n<|assistant|>"),
    ("glm", "<tool_call>get_time</tool_call><|observation|>"),
];

/// Tokens of templates and closing tags that are words of a sentence about them.
const QUOTED: [&str; 12] = [
    "The token <|return|> ends a turn.",
    "The token `<|assistant|>` begins a turn.",
    "The token \"<|im_start|>\" begins a turn.",
    "```\nhi<|end_of_sentence|>\n```\n",
    "The tag </tool_call> ends it.",
    "The tag `</tool_calls>` ends it.",
    "The tag \"</function_calls>\" ends it.",
    "```\n</tool_call>\n```\n",
    "Use <tools> for that.\n",
    "<tools>\n<hammer/>\n</tools>\n",
    "`<tool_calls></tool_calls>` is empty.",
    "An empty block is \"<tool_call></tool_call>\" there.\n",
];

fn tools() -> ToolSet {
    ToolSet::from_json(r#"[{"name": "get_time", "parameters": {"properties": {}}}]"#).unwrap()
}

/// Reads a text whole and in bytes, which must give the same draft.
fn read_both(dialect: &str, text: &str, wrong: &mut Vec<String>) -> DraftResponse {
    let dialects = DialectSet::built_in();
    let selection = dialects.select(dialect).unwrap();
    let whole = read_chunks(selection, &tools(), [text.as_bytes()]);
    for size in [1, 3, 8] {
        let pieces = read_chunks(selection, &tools(), text.as_bytes().chunks(size));
        if whole != pieces {
            wrong.push(format!("{dialect} {text:?} in chunks of {size}"));
        }
    }
    whole
}

fn has_fault(draft: &DraftResponse, kind: FaultKind, severity: Severity) -> bool {
    let mut faults = draft.faults.iter();
    faults.any(|fault| fault.kind == kind && fault.severity == severity)
}

/// Returns the number of calls that would run.
fn count_runs(draft: &DraftResponse) -> usize {
    let runs = |index| draft.errors_of(index).count() == 0;
    let calls = draft.calls();
    calls
        .filter(|call| call.state == DraftState::Closed && runs(call.index))
        .count()
}

#[test]
fn empty_markup_is_left_out_and_alone_it_is_a_fault() {
    let mut wrong = Vec::new();
    for (name, markup) in EMPTY {
        let call = DialectSet::built_in().find(name).unwrap();
        let call = call.render_calls(&[get_time()], &tools());
        for dialect in [name, "auto"] {
            for (text, words) in [
                (markup.to_owned(), ""),
                (format!("{markup}\n"), ""),
                (format!("I am done.\n\n{markup}"), "I am done."),
                (format!("{markup}\nI am done."), "I am done."),
            ] {
                let draft = read_both(dialect, &text, &mut wrong);
                // An empty list beside words says that no call is meant.
                let is_list = markup.contains("[]") || markup.contains("[\n]");
                let is_fault = has_fault(&draft, FaultKind::NoCall, Severity::Error);
                if draft.text().trim() != words
                    || !has_fault(&draft, FaultKind::StrayText, Severity::Warning)
                    || is_fault != (words.is_empty() || !is_list)
                {
                    wrong.push(format!("{dialect} {text:?}: {}", lines(&draft, &text)));
                }
            }
            // With a call in the message it is no more than a warning.
            let text = format!("{markup}\n{call}");
            let draft = read_both(dialect, &text, &mut wrong);
            if count_runs(&draft) != 1 || has_fault(&draft, FaultKind::NoCall, Severity::Error) {
                wrong.push(format!("{dialect} {text:?}: {}", lines(&draft, &text)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn get_time() -> sabir_call::Call {
    sabir_call::Call {
        id: sabir_call::CallId::new("c1"),
        name: "get_time".to_owned(),
        arguments: serde_json::Map::new(),
        dialect: None,
    }
}

#[test]
fn markup_around_a_call_that_belongs_to_none_is_left_out() {
    let mut wrong = Vec::new();
    for (name, markup) in AROUND_CALLS {
        for dialect in [name, "auto"] {
            for before in ["", "I look.\n\n"] {
                let text = format!("{before}{markup}");
                let draft = read_both(dialect, &text, &mut wrong);
                let is_clean = draft.text().trim() == before.trim();
                if count_runs(&draft) != 1 || !is_clean {
                    wrong.push(format!("{dialect} {text:?}: {}", lines(&draft, &text)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn quoted_markup_stays_in_the_text() {
    let mut wrong = Vec::new();
    for dialect in ["glm", "hermes", "qwen_coder", "cline", "auto"] {
        for text in QUOTED {
            let draft = read_both(dialect, text, &mut wrong);
            if draft.text() != text {
                wrong.push(format!("{dialect} {text:?}: {}", lines(&draft, text)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
