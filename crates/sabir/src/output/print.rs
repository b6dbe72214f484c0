//! Writes to standard output and standard error; no other module writes to the terminal.
//!
//! Text from models, tools and files must pass [`sanitize_text`] or a
//! [`Sanitizer`](crate::output::sanitizer::Sanitizer) before it reaches a terminal. A closed pipe
//! is not an error: the reader (`head`, for example) has stopped reading on purpose.

use std::io::{ErrorKind, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_call::redact;
use serde::Serialize;

use crate::output::sanitizer::is_unseen;
pub(crate) use crate::output::sanitizer::sanitize_text;

/// Set when output was lost for another reason than a closed pipe.
static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Writes text to standard output without changes.
pub(crate) fn write_stdout(text: &str) {
    write_stdout_bytes(text.as_bytes());
}

/// Returns true if some standard output could not be written, for example because the disk is full.
pub(crate) fn is_output_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}

/// Writes text to standard error without changes.
pub(crate) fn write_stderr(text: &str) {
    write_stderr_bytes(text.as_bytes());
}

/// Writes bytes to standard output and flushes it; not for foreign text on a terminal.
pub(crate) fn write_stdout_bytes(bytes: &[u8]) {
    let mut stream = stdout().lock();
    let written = stream.write_all(bytes).and_then(|()| stream.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        OUTPUT_LOST.store(true, Ordering::Relaxed);
    }
}

/// Writes bytes to standard error and flushes it; not for foreign text on a terminal.
pub(crate) fn write_stderr_bytes(bytes: &[u8]) {
    let mut stream = stderr().lock();
    // There is no other place to report that standard error cannot be written.
    _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

/// Writes one JSON object and a line feed.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(mut line) => {
            line.push('\n');
            write_stdout(&line);
        }
        Err(error) => write_stderr(&format!("sabir: this cannot be written as JSON: {error}\n")),
    }
}

/// Writes one JSON object and a line feed, with known secret formats redacted; used for data of
/// tasks.
pub(crate) fn print_redacted_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => write_stdout(&format!("{}\n", redact::redact_json(&line))),
        Err(error) => write_stderr(&format!("sabir: this cannot be written as JSON: {error}\n")),
    }
}

/// Formats a count with its noun: `1 call`, `2 calls`.
pub(crate) fn count_noun(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Quotes foreign text in backticks on one line: escapes control characters and invisible marks,
/// and leaves out the middle of a long text.
pub(crate) fn quote_short(text: &str) -> String {
    const HEAD: usize = 40;
    const TAIL: usize = 16;
    let shown = quote_text;
    let head = text
        .char_indices()
        .nth(HEAD)
        .map_or(text.len(), |(at, _)| at);
    let tail = text
        .char_indices()
        .rev()
        .nth(TAIL - 1)
        .map_or(0, |(at, _)| at);
    if tail <= head + TAIL {
        return format!("`{}`", shown(text));
    }
    let head = text.get(..head).unwrap_or_default();
    let tail = text.get(tail..).unwrap_or_default();
    format!("`{}…{}`", shown(head), shown(tail))
}

/// Writes foreign text on one line: escapes control characters and invisible marks.
pub(crate) fn quote_text(text: &str) -> String {
    let show = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c.is_control() || is_unseen(c) || c == '\u{fffd}' => {
            format!("\\u{{{:x}}}", u32::from(c))
        }
        c => c.to_string(),
    };
    text.chars().map(show).collect()
}

/// Indents every line, so that foreign text cannot pass for our own.
pub(crate) fn indent_lines(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::quote_short;

    #[test]
    fn quotations_are_short_and_safe() {
        assert_eq!(quote_short("<a>\n\tx\r"), "`<a>\\n\\tx\\r`");
        assert_eq!(
            quote_short("\u{1b}[2J\u{202e}\u{fffd}"),
            "`\\u{1b}[2J\\u{202e}\\u{fffd}`"
        );
        assert_eq!(
            quote_short(&"é".repeat(60)),
            format!("`{}`", "é".repeat(60))
        );
        assert_eq!(
            quote_short(&"é".repeat(1000)),
            format!("`{}…{}`", "é".repeat(40), "é".repeat(16))
        );
        assert_eq!(quote_short(""), "``");
    }
}
