//! Lines: from text to brush's tree, with a gate before it for what must not even be parsed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ParserOptions;
use brush_parser::ast::Program;

/// Longer lines are not looked at.
const MAX_BYTES: usize = 64 << 10;
/// The parser recurses, and tries some ways twice.
const MAX_DEPTH: usize = 10;

/// Parses a command line, or says why it cannot be read.
pub(crate) fn parse_line(text: &str) -> Result<Program, &'static str> {
    check_line(text)?;
    // Without extended globs, as `bash -c` reads it: `!(a)` is no word there.
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    // The parser is another's, and a bug of it must not end the task.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let tokens = brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()).ok()?;
        brush_parser::parse_tokens(&tokens, &options).ok()
    }));
    parsed.ok().flatten().ok_or("it cannot be parsed")
}

fn check_line(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_BYTES {
        return Err("it is too long to be judged");
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return Err("it holds control characters");
    }
    if text.chars().any(is_deceiving) {
        return Err("it holds invisible characters");
    }
    if nesting_depth(text) > MAX_DEPTH {
        return Err("it is nested too deeply to be judged");
    }
    Ok(())
}

/// Characters that look like nothing, like a blank, or change the direction of text.
pub fn is_deceiving(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || c != ' ' && c != '\n' && c != '\t' && c.is_whitespace()
}

/// How deep brackets and compound commands can nest, whatever stands between them. A guess upwards.
fn nesting_depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0_usize);
    let mut note = |opens: bool| {
        open = if opens { open.saturating_add(1) } else { open.saturating_sub(1) };
        deepest = deepest.max(open);
    };
    for c in text.chars() {
        match c {
            '(' | '{' => note(true),
            ')' | '}' => note(false),
            _ => {}
        }
    }
    let (mut open, mut words) = (0_usize, 0_usize);
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        match word {
            "if" | "while" | "until" | "for" | "case" | "select" | "coproc" | "time" => open = open.saturating_add(1),
            "fi" | "done" | "esac" => open = open.saturating_sub(1),
            _ => {}
        }
        words = words.max(open);
    }
    deepest.max(words)
}
