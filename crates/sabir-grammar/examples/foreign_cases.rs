//! Writes cases for other readers of grammars, one JSON object a line: a dialect, a format, the grammar, and texts that must be
//! accepted or refused. `crates/sabir-testkit/grammar/run` gives them to llguidance and XGrammar.
#![allow(clippy::unwrap_used, reason = "the tools of the tests are valid")]

use std::io::Write;

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, ParallelCalls, ToolSet};
use sabir_grammar::{CallGrammar, GrammarFormat, Sampler, build_grammar, write_grammar};
use serde_json::{Value, json};

#[path = "../tests/it/tools.rs"]
mod tools;

/// Values that notations escape, or that begin like markup.
const CONTENTS: [&str; 6] = [
    "",
    "plain",
    "a < b && c > \"d\"\n\te\\f ü 日 😀",
    "<b>bold</b> </i",
    "\n\n",
    "[x](y) {z} 'q' `c`",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for (name, tools) in [
        ("plain", tools::plain_tools()),
        ("all", tools::all_tools()),
        ("bounded", tools::bounded_tools()),
    ] {
        for dialect in DialectSet::built_in().iter() {
            let built = build_grammar(dialect, &tools, ParallelCalls::One)?;
            let accepted = accepted_texts(dialect, &tools, &built);
            let refused: Vec<String> = accepted
                .iter()
                .flat_map(|text| damaged_texts(text))
                .filter(|text| !built.grammar.accepts(text))
                .collect();
            for format in GrammarFormat::ALL {
                let case = match write_grammar(&built, &tools, ParallelCalls::One, format) {
                    Ok(grammar) => {
                        json!({"dialect": dialect.name, "tools": name, "format": format.name(), "grammar": grammar, "accepted": accepted, "refused": refused})
                    }
                    Err(error) => {
                        json!({"dialect": dialect.name, "tools": name, "format": format.name(), "inexpressible": error.to_string()})
                    }
                };
                writeln!(out, "{case}")?;
            }
        }
    }
    Ok(())
}

/// Returns rendered calls and samples of the grammar.
fn accepted_texts(dialect: &Dialect, tools: &ToolSet, built: &CallGrammar) -> Vec<String> {
    let arguments = |content: &str| {
        [
            (
                "write_to_file",
                json!({"path": "a.txt", "content": content, "mode": "append"}),
            ),
            (
                "read_file",
                json!({"path": content, "start_line": 12, "quick": true}),
            ),
            (
                "set_limits",
                json!({"label": content, "ratio": -1.5e-7, "sizes": [1, -2], "range": {"from": 3, "to": null, "note": content}}),
            ),
            ("get_time", json!({})),
            (
                "file_issue",
                json!({"title": content, "label": "a \"b\"\n", "due": "tomorrow", "owner": content, "kind": "bug"}),
            ),
        ]
    };
    let calls = CONTENTS.into_iter().flat_map(arguments);
    let rendered = calls.filter_map(|(name, arguments)| {
        let Value::Object(arguments) = arguments else {
            return None;
        };
        let call = Call {
            id: CallId::new("c1"),
            name: name.to_owned(),
            arguments,
            dialect: None,
        };
        Some(dialect.render_calls([&call], tools))
    });
    let mut texts: Vec<String> = rendered
        .filter(|text| built.grammar.accepts(text))
        .collect();
    let mut sampler = Sampler::new(&built.grammar, 3);
    // The foreign readers are slow with long texts.
    let samples = (0..60).map(|_| sampler.next_text().unwrap());
    texts.extend(samples.filter(|text| text.len() < 600).take(6));
    texts
}

/// Returns a text with its end cut off, with something after it, and with a changed character in the middle.
fn damaged_texts(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let half = chars.len() / 2;
    let cut: String = chars.iter().take(chars.len().saturating_sub(1)).collect();
    let head: String = chars.iter().take(half).collect();
    let tail: String = chars.iter().skip(half + 1).collect();
    vec![
        cut,
        format!("{text}x"),
        format!("{head}\u{1}{tail}"),
        format!("{head}{tail}"),
    ]
}
