//! Runs the specs as tests: each `input` block must read as the `parts` block after it, in any
//! chunks.

use sabir_call::ToolSet;
use sabir_call::dialect::DialectSet;

use crate::case_count::sampled_positions;
use crate::notation::{lines, read, read_chunks};

/// A fenced block: its info string, its text, and the line it starts on.
struct Block {
    info: String,
    text: String,
    line: usize,
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<String> = None;
    for (at, line) in markdown.lines().enumerate() {
        match &open {
            Some(fence) if line.trim_end() == fence => open = None,
            Some(_) => {
                let block = blocks.last_mut().unwrap();
                block.text += line;
                block.text += "\n";
            }
            None => {
                let ticks = line.chars().take_while(|c| *c == '`').count();
                if ticks >= 3 {
                    open = Some("`".repeat(ticks));
                    blocks.push(Block {
                        info: line[ticks..].trim().to_owned(),
                        text: String::new(),
                        line: at + 1,
                    });
                }
            }
        }
    }
    assert!(open.is_none(), "an open fence");
    blocks
}

fn check_spec(name: &str, spec: &str) -> usize {
    let blocks = blocks(spec);
    let tools = blocks
        .iter()
        .find(|block| block.info == "json tools")
        .expect("a spec declares its tools");
    let tools = ToolSet::from_json(&tools.text).unwrap();
    let mut examples = 0;
    for pair in blocks.windows(2) {
        let [input, parts] = pair else { continue };
        let Some(selection) = input.info.strip_prefix("input") else {
            continue;
        };
        assert_eq!(
            parts.info, "parts",
            "{name}, line {}: no expectation",
            input.line
        );
        let selection = DialectSet::built_in()
            .select(if selection.is_empty() {
                name
            } else {
                selection.trim()
            })
            .unwrap();
        // The last line feed belongs to the fence.
        let text = input.text.strip_suffix('\n').unwrap_or_default();
        let text = &text.replace("\\r", "\r");
        if renews() {
            write_parts(name, parts, &lines(&read(selection, &tools, text), text));
            examples += 1;
            continue;
        }
        assert_eq!(
            lines(&read(selection, &tools, text), text),
            parts.text,
            "{name}, line {}",
            input.line
        );
        for size in sampled_positions(input.line, text.len() + 1, 3).filter(|size| *size > 0) {
            let draft = read_chunks(selection, &tools, text.as_bytes().chunks(size));
            assert_eq!(
                lines(&draft, text),
                parts.text,
                "{name}, line {}, in chunks of {size}",
                input.line
            );
        }
        for selection in [selection, DialectSet::built_in().all()] {
            let whole = lines(&read(selection, &tools, text), text);
            for at in sampled_positions(input.line, text.len() + 1, 3) {
                let (head, tail) = text.as_bytes().split_at(at);
                assert_eq!(
                    lines(&read_chunks(selection, &tools, [head, tail]), text),
                    whole,
                    "{name}, line {}, split at {at}",
                    input.line
                );
            }
        }
        examples += 1;
    }
    examples
}

/// Returns true if the specs are to be rewritten as the examples read: `SABIR_RENEW=1`.
fn renews() -> bool {
    std::env::var_os("SABIR_RENEW").is_some()
}

/// Replaces the expectation of an example in the spec's file, if it differs.
fn write_parts(name: &str, parts: &Block, text: &str) {
    if parts.text == text {
        return;
    }
    let path = format!("{}/src/specs/{name}.md", env!("CARGO_MANIFEST_DIR"));
    let spec = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        spec.matches(&parts.text).count(),
        1,
        "{name}, line {}",
        parts.line
    );
    std::fs::write(path, spec.replacen(&parts.text, text, 1)).unwrap();
}

/// Returns the minimum number of examples in a spec; the dialects that are used most need the most.
fn least(name: &str) -> usize {
    match name {
        "cline" | "invoke" => 20,
        "hermes" | "kimi" | "deepseek" | "mistral" | "llama" | "json" | "pythonic" => 15,
        _ => 8,
    }
}

#[test]
fn every_example_of_every_spec() {
    for dialect in DialectSet::built_in().iter() {
        let examples = check_spec(dialect.name, dialect.spec);
        assert!(
            examples >= least(dialect.name),
            "{} has only {examples} examples",
            dialect.name
        );
    }
}
