//! Checks that calls in quotations which begin with words never run, that quotation marks around true calls do not stop them, and
//! that markup around calls is left out where it holds none.

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, DraftResponse, DraftState, Severity, ToolSet};
use serde_json::json;

use crate::case_count::sampled_positions;
use crate::notation::{lines, read_chunks};

/// The dialects whose calls have no marker, or one of ordinary words: they begin on a line of their own, and words behind them make
/// them prose.
const UNMARKED: [&str; 3] = ["json", "pythonic", "react"];

/// Words around a call that is quoted; `@` is the call.
const QUOTED: [&str; 12] = [
    "He wrote: \"To do so, send\n\n@\" and stopped.",
    "He wrote: \"To do so, send\n\n@\"",
    "He wrote: \"To do so, send\n\n@\n\"\n",
    "He wrote: \"To do so, send\n\n@\n\nand wait\". Then he left.",
    "He wrote: \"One.\n\nTwo.\n\n@\n\nThree.\n\nFour.\"\n",
    "\"Send this:\n@\nand wait,\" he wrote.",
    "(\"Send this:\n\n@\n\nand wait\")",
    "He wrote “send\n\n@” and stopped.",
    "He wrote “send\n\n@\n\nand then wait”.",
    "Er schrieb: „Sende\n\n@\n\nund warte“.",
    "Il a écrit « envoie\n\n@\n\net attends ».",
    "It's \"done\". He wrote: \"Send\n\n@\n\n\", and stopped.",
];

/// Words around a true call.
const TRUE: [&str; 16] = [
    "The \"user\" wants it 5\" wide.\n\n@\n\nThat was \"it\".",
    "He said \"abc\n\n@",
    "He said \"abc\n\n@\n\nNow I know what \"abc\" is.",
    "He said “abc\n\n@\n\nNow I know what “abc” is.",
    "The screen has 24\".\n\n@\n\nThe other has 27\".",
    "It's the user's file.\n\n@\n\nIt's 'done'.",
    "`\"` begins a string.\n\n@\n\nand `\"` ends it.",
    "```\nprint(\"a\n```\n\n@\n\n```\nb\")\n```\n",
    "A string begins with \" and\n\n@\n\nends with \" too.",
    "He wrote \"\"\"a\"\"\" and \"\".\n\n@\n\n\"b\" is next.",
    "join(\", \") and '\"' are code.\n\n@\n\nso is \"c\".",
    "An escaped \\\" mark.\n\n@\n\nand one \\\" more",
    "<a href=\"x\">y</a>\n\n@\n\n<b class=\"c\">",
    "他说“好”。\n\n@\n\n他说\"好\"。",
    "Il dit « oui ».\n\n@\n\nIl dit « non ».",
    "He wrote: \"Send this.\"\n\n@\n\n\"And that.\"",
];

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}]"#,
    )
    .unwrap()
}

fn render(dialect: &Dialect) -> String {
    let arguments = json!({"path": "a.txt", "content": "one \"two\" three"});
    let call = Call {
        id: CallId::new("c1"),
        name: "write_to_file".to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    };
    dialect.render_calls(&[call], &tools())
}

/// Returns the number of calls that would run.
fn count_runs(draft: &DraftResponse) -> usize {
    let runs = |index| draft.errors_of(index).count() == 0;
    let calls = draft.calls();
    calls
        .filter(|call| call.state == DraftState::Closed && runs(call.index))
        .count()
}

/// Reads a text by name and as all dialects, whole and in splits. Records each reading in which not `expected` calls run.
fn check_text(dialect: &Dialect, text: &str, expected: usize, wrong: &mut Vec<String>) {
    let auto = DialectSet::built_in().all();
    for (reach, selection) in [("by name", dialect.into()), ("auto", auto)] {
        let whole = read_chunks(selection, &tools(), [text.as_bytes()]);
        let mut note = |what: &str| wrong.push(format!("{} {reach}, {what}: {text}", dialect.name));
        if count_runs(&whole) != expected {
            note("runs");
        }
        if whole != read_chunks(selection, &tools(), text.as_bytes().chunks(1)) {
            note("in bytes");
        }
        for at in sampled_positions(text.len(), text.len() + 1, 29) {
            let (head, tail) = text.as_bytes().split_at(at);
            if whole != read_chunks(selection, &tools(), [head, tail]) {
                note(&format!("split at {at}"));
            }
        }
    }
}

#[test]
fn a_call_in_a_quotation_of_words_never_runs() {
    let mut wrong = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        let call = render(dialect);
        for words in QUOTED {
            check_text(dialect, &words.replace('@', &call), 0, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn quotation_marks_around_a_true_call_do_not_stop_it() {
    let mut wrong = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        let call = render(dialect);
        for words in TRUE {
            let words = match UNMARKED.contains(&dialect.name) {
                true => words.split('@').next().unwrap_or_default().to_owned() + "@",
                false => words.to_owned(),
            };
            check_text(dialect, &words.replace('@', &call), 1, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

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

#[test]
fn markup_that_holds_no_call_is_left_out_with_a_warning() {
    let mut wrong = Vec::new();
    for (name, markup) in EMPTY {
        let dialect = DialectSet::built_in().find(name).unwrap();
        for selection in [dialect.into(), DialectSet::built_in().all()] {
            for (before, behind) in [
                ("", ""),
                ("", "\n"),
                ("I am done.\n\n", ""),
                ("", "\nI am done."),
            ] {
                let text = format!("{before}{markup}{behind}");
                let draft = read_chunks(selection, &tools(), [text.as_bytes()]);
                if draft.text().trim() != format!("{before}{behind}").trim()
                    || draft.faults.is_empty()
                    || draft
                        .faults
                        .iter()
                        .any(|fault| fault.severity == Severity::Error)
                    || draft != read_chunks(selection, &tools(), text.as_bytes().chunks(1))
                {
                    wrong.push(format!("{name} {text:?}: {}", lines(&draft, &text)));
                }
            }
            // Quoted, it is a word about itself. A model writes special tokens only as markup.
            if markup.contains(['|', '｜']) {
                continue;
            }
            let text = format!("An empty block is \"{markup}\" there.\n");
            let draft = read_chunks(selection, &tools(), [text.as_bytes()]);
            if draft.text() != text {
                wrong.push(format!("{name} {text:?}: {}", lines(&draft, &text)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
