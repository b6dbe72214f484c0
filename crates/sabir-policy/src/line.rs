//! Parses a command line with `brush-parser`, after checks for text that must not even reach the parser.
//!
//! The parser is another project's, and it recurses. So lines are checked for what could make it slow, overflow the stack or read
//! something else than the shell does: length, nesting, control characters (a carriage return moves the cursor, so the user would
//! see another line) and invisible ones. Within these limits a panic of the parser is caught and counts as a line that cannot be
//! parsed, which asks even if all commands are approved.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ParserOptions;
use brush_parser::ast::Program;

/// The longest line, in bytes, that is parsed.
const MAX_BYTES: usize = 64 << 10;
/// The deepest nesting that is parsed: the parser recurses, and tries some alternatives twice on each level.
const MAX_DEPTH: usize = 10;

/// Parses a command line.
///
/// # Errors
/// Returns the reason if the line is too long, too deeply nested, holds invisible or control characters, or is not valid.
pub(crate) fn parse_line(text: &str) -> Result<Program, &'static str> {
    check_line(text)?;
    // `bash -c` runs without extended globs, where `!(a)` is not a word.
    let options = ParserOptions {
        enable_extended_globbing: false,
        ..ParserOptions::default()
    };
    // A panic in the third-party parser must not end the task.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let tokens =
            brush_parser::uncached_tokenize_str(text, &options.tokenizer_options()).ok()?;
        brush_parser::parse_tokens(&tokens, &options).ok()
    }));
    parsed.ok().flatten().ok_or("it cannot be parsed")
}

/// Rejects lines that must not reach the parser.
fn check_line(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_BYTES {
        return Err("it is too long to be checked");
    }
    if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        return Err("it holds control characters");
    }
    if text.chars().any(is_deceptive_char) {
        return Err("it holds invisible characters");
    }
    if nesting_depth(text) > MAX_DEPTH {
        return Err("it is nested too deeply to be checked");
    }
    Ok(())
}

/// Reports whether a character is invisible, looks like a blank, or changes the direction of text.
///
/// Such characters can make a command or a name look different from what it is.
///
/// ```
/// use sabir_policy::is_deceptive_char;
///
/// // A right-to-left override shows the rest of the line backwards.
/// assert!(is_deceptive_char('\u{202e}'));
/// assert!(!is_deceptive_char('é'));
/// ```
pub fn is_deceptive_char(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
        || c != ' ' && c != '\n' && c != '\t' && c.is_whitespace()
}

/// Estimates how deep brackets and compound commands nest. The estimate may be too high (quotes are not considered).
fn nesting_depth(text: &str) -> usize {
    let mut open = 0_usize;
    let mut deepest = 0_usize;
    let mut note = |opens: bool| {
        open = if opens {
            open.saturating_add(1)
        } else {
            open.saturating_sub(1)
        };
        deepest = deepest.max(open);
    };
    for c in text.chars() {
        match c {
            '(' | '{' => note(true),
            ')' | '}' => note(false),
            _ => {}
        }
    }
    let mut open = 0_usize;
    let mut deepest_words = 0_usize;
    // Keywords nest like brackets, and the parser recurses for each of them.
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        match word {
            "if" | "while" | "until" | "for" | "case" | "select" | "coproc" | "time" => {
                open = open.saturating_add(1)
            }
            "fi" | "done" | "esac" => open = open.saturating_sub(1),
            _ => {}
        }
        deepest_words = deepest_words.max(open);
    }
    deepest.max(deepest_words)
}
