//! Checks that no call runs that is content of a call in a notation which no dialect has.

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, DraftState, ToolSet};
use serde_json::Map;

use crate::case_count::sampled_positions;
use crate::notation::{lines, read, read_chunks};

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
            {"name": "get_time", "parameters": {"properties": {}}}]"#,
    )
    .unwrap()
}

fn render(dialect: &Dialect, name: &str, arguments: &[(&str, &str)]) -> String {
    let call = Call {
        id: CallId::new("c1"),
        name: name.to_owned(),
        arguments: arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect::<Map<_, _>>(),
        dialect: None,
    };
    dialect.render_calls(&[call], &tools())
}

/// The number of other dialects whose calls are tried in a text.
const OTHERS: usize = 9;

/// An object of words without quotation marks.
const BARE_WORDS: &str = "{path: a.md, content: …}";

/// What may follow a tool's name in a notation that nobody defined; `…` is the value.
const NOTATIONS: [&str; 20] = [
    "(\"a.md\", \"…\")",
    "(path=\"a.md\", content=\"…\")",
    "(path: \"a.md\", content: \"…\")",
    " path=\"a.md\" content=\"…\"",
    "{path: \"a.md\", content: \"…\"}",
    BARE_WORDS,
    "{\"path\": \"a.md\", \"content\": \"…\"}",
    "{'path': 'a.md', 'content': '…'}",
    "[path=\"a.md\", content=\"…\"]",
    "[\"a.md\", \"…\"]",
    " \"a.md\" \"…\"",
    "\npath: a.md\ncontent: …\n",
    " --path a.md --content \"…\"",
    ": \"a.md\", \"…\"",
    ": path=\"a.md\" content=\"…\"",
    ":\n  arguments:\n    path: a.md\n    content: |\n…\n",
    "\nargs:\n- path: a.md\n- content: …\n",
    "\n- Path: a.md\n- Content: …\n",
    " 'a.md' '…'",
    "(**{\"path\": \"a.md\", \"content\": \"…\"})",
];

/// Returns the markup before the arguments of a call, with the tool's name and without it, and the markup behind them.
fn frames(dialect: &Dialect) -> Vec<(String, String)> {
    let mark = "\u{e000}";
    let frame = render(dialect, "write_to_file", &[("path", mark)]);
    let name = frame.find("write_to_file").unwrap();
    let end = name + "write_to_file".len();
    let value = frame.find(mark).unwrap_or(end);
    let behind = frame.get(value + mark.len()..).unwrap_or_default();
    let is_marker = frame.starts_with('<') || frame.starts_with("[TOOL_CALLS]");
    // A list without any marker may be a part of prose.
    let mut starts = Vec::new();
    if is_marker {
        starts.push(frame[..end].to_owned());
    }
    let tail = &frame[end..value.max(end)];
    // A tag around a key is a part of the arguments.
    let is_key = |close: &usize| {
        ["arg_key", "tool_arg:"]
            .iter()
            .any(|key| tail[..*close].contains(key))
    };
    if let Some(close) = tail.find('>').filter(|close| !is_key(close)) {
        starts.push(frame[..end + close + 1].to_owned());
    }
    let first = match frame.find("<|sep|>") {
        Some(end) => Some(end + "<|sep|>".len() - 1),
        None => frame[..name].find(['>', ']']),
    };
    if let Some(close) = first.filter(|_| is_marker) {
        starts.push(format!("{}write_to_file", &frame[..=close]));
        starts.push(format!("{}\nwrite_to_file", &frame[..=close]));
        starts.push(format!("{}\nname: write_to_file", &frame[..=close]));
        starts.push(format!("{}functions.write_to_file:0", &frame[..=close]));
    }
    starts
        .into_iter()
        .map(|start| (start, behind.to_owned()))
        .collect()
}

/// Returns true if a call runs that is not the outer one.
fn runs_inner_call(selection: &str, text: &str) -> bool {
    let draft = read(
        DialectSet::built_in().select(selection).unwrap(),
        &tools(),
        text,
    );
    draft.calls().any(|call| {
        let is_whole = call.state == DraftState::Closed && draft.errors_of(call.index).count() == 0;
        is_whole && call.name == "get_time"
    })
}

/// Checks that the text reads in small chunks as in one piece.
fn check_chunks(selection: &str, text: &str, size: usize) {
    let selection = DialectSet::built_in().select(selection).unwrap();
    let whole = read(selection, &tools(), text);
    let chunked = read_chunks(selection, &tools(), text.as_bytes().chunks(size));
    assert_eq!(
        lines(&chunked, text),
        lines(&whole, text),
        "in chunks of {size}: {text:?}"
    );
}

#[test]
fn no_call_runs_inside_of_an_unknown_notation() {
    let set = DialectSet::built_in();
    let inner: Vec<String> = set
        .iter()
        .map(|dialect| render(dialect, "get_time", &[]))
        .collect();
    let mut wrong = Vec::new();
    let mut read = 0;
    for dialect in set.iter() {
        for (start, behind) in frames(dialect) {
            for notation in NOTATIONS {
                // The dialect's own markup, and some of all others.
                let own = render(dialect, "get_time", &[]);
                let first = read;
                let others = sampled_positions(first % OTHERS, OTHERS, OTHERS)
                    .map(|at| inner[(first + at * 7) % inner.len()].as_str());
                for inner in others.chain([own.as_str()]) {
                    // Any closing bracket ends an object of bare words, and this markup begins with one.
                    if inner.starts_with(']') && notation == BARE_WORDS {
                        continue;
                    }
                    for value in [format!("x\n{inner}\ny"), inner.to_owned()] {
                        for behind in ["", &behind] {
                            let text = format!("{start}{}{behind}", notation.replace('…', &value));
                            for selection in [dialect.name, "auto"] {
                                read += 1;
                                if read % 8 == 0 {
                                    check_chunks(selection, &text, 1 + read / 8 % 7);
                                }
                                if runs_inner_call(selection, &text) {
                                    wrong.push(format!("{selection}: {text:?}"));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "inner calls of {} texts of {read} ran, such as:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

#[test]
fn calls_behind_words_about_markup_still_run() {
    for (selection, words) in [
        ("hermes", "I will call write_to_file first.\n"),
        (
            "hermes",
            "The markup `<tool_call>write_to_file(path=\"a.md\")` is wrong, so:\n",
        ),
        (
            "hermes",
            "<tool_call> write_to_file is what I would use, but:\n",
        ),
        (
            "invoke",
            "Use <invoke name=\"write_to_file\"> and then words.\n",
        ),
        ("glm", "With <tool_call>write_to_file you write files.\n"),
        ("auto", "<tool_call> write_to_file: not needed now.\n"),
        (
            "auto",
            "`Vec<write_to_file>`: a list, Vec<write_to_file> \"too\".\n",
        ),
        (
            "auto",
            "The option `<write_to_file path=` and cat <write_to_file path=1\n",
        ),
        (
            "auto",
            "It begins with <function=write_to_file and ends with </function>.\n",
        ),
        (
            "hermes",
            "<|channel|>analysis<|message|>write_to_file(path=\"x\") is next.<|end|>\n",
        ),
        (
            "hermes",
            "<|tool_response|>write_to_file(path=\"x\") failed\n",
        ),
    ] {
        let dialect = if selection == "auto" {
            "hermes"
        } else {
            selection
        };
        let call = render(
            DialectSet::built_in().find(dialect).unwrap(),
            "get_time",
            &[],
        );
        let text = format!("{words}{call}");
        assert!(runs_inner_call(selection, &text), "{selection}: {text}");
    }
}
