//! Writes to standard output and standard error; no other module but `screen.rs`, through which it
//! writes, writes to the terminal. The formats of short texts are those of the toolbox.
//!
//! Text from models, tools and files must pass [`sanitize_text`] or a
//! [`Sanitizer`](crate::sanitizer::Sanitizer) before it reaches a terminal. A closed pipe
//! is not an error: the reader (`head`, for example) has stopped reading on purpose.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, stdout};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabir_session::Notice;
use sabir_session::call::redact;
use sabir_toolbox::text::is_invisible_char;
use serde::Serialize;

pub use sabir_toolbox::text::{count_noun, indent_lines, quote_short, quote_text, usage_text};

pub use crate::sanitizer::sanitize_text;
use crate::screen::{self, OutputStream};

/// Set when output was lost for another reason than a closed pipe.
static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Set when the reader of standard output has closed it.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Returns true if standard output is a terminal. The result is cached, since every written line needs it.
pub(crate) fn is_stdout_terminal() -> bool {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| stdout().is_terminal());
    *IS_TERMINAL
}

/// Writes text to standard output: cleaned if that is a terminal, else without changes.
pub fn write_stdout(text: &str) {
    write_stdout_bytes(text.as_bytes());
}

/// Writes JSON to standard output, and keeps it the same JSON on a terminal: characters that a
/// terminal could act on become escapes.
pub fn write_json_text(json: &str) {
    write_stdout(&escape_for_terminal(json));
}

/// Escapes the characters of JSON text that a terminal could act on, if standard output is one.
pub(crate) fn escape_for_terminal(json: &str) -> Cow<'_, str> {
    if is_stdout_terminal() {
        escape_json_text(json)
    } else {
        Cow::Borrowed(json)
    }
}

/// Replaces characters that are invisible or control a terminal by JSON escapes. They can only
/// occur inside strings: between its tokens, JSON has no such characters except white space.
fn escape_json_text(json: &str) -> Cow<'_, str> {
    let acts =
        |c: char| (c.is_control() && !matches!(c, '\n' | '\t' | '\r')) || is_invisible_char(c);
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if acts(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a string cannot fail.
                _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns true if some standard output could not be written, for example because the disk is full.
/// A command that lost output must not report success.
pub fn is_output_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}

/// Returns true if the reader of standard output has closed it, as far as writing has shown. Work whose only purpose is its output can end.
pub fn is_reader_gone() -> bool {
    READER_GONE.load(Ordering::Relaxed)
}

/// Returns the width of the terminal on standard output; `None` if it is not a terminal.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Writes text to standard error without changes.
pub fn write_stderr(text: &str) {
    write_stderr_bytes(text.as_bytes());
}

/// Writes a prompt to standard error. What the user types continues its line.
pub(crate) fn write_prompt(text: &str) {
    // There is no other place to report that standard error cannot be written.
    _ = screen::write_output(OutputStream::Stderr, text.as_bytes(), true);
}

/// Writes bytes to standard output and flushes it. A terminal gets them as cleaned text, whatever
/// the caller did: cleaning twice changes nothing, and no caller can forget it.
pub fn write_stdout_bytes(bytes: &[u8]) {
    let bytes = if is_stdout_terminal() {
        Cow::Owned(sanitize_text(&String::from_utf8_lossy(bytes)).into_bytes())
    } else {
        Cow::Borrowed(bytes)
    };
    let written = screen::write_output(OutputStream::Stdout, &bytes, false);
    // Stored instead of reported: the command continues, and `main` turns it into an exit code.
    match written.map_err(|error| error.kind()) {
        Ok(()) => {}
        Err(ErrorKind::BrokenPipe) => READER_GONE.store(true, Ordering::Relaxed),
        Err(_) => OUTPUT_LOST.store(true, Ordering::Relaxed),
    }
}

/// Writes bytes to standard error and flushes it; not for foreign text on a terminal.
pub fn write_stderr_bytes(bytes: &[u8]) {
    // There is no other place to report that standard error cannot be written.
    _ = screen::write_output(OutputStream::Stderr, bytes, false);
}

/// Returns a foreign text as a part of one line, with its control characters as escapes, so that no
/// part of it can be mistaken for another line.
pub(crate) fn escape_controls(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Renders a time in words: `7 s`, `2 min`, `2 min 5 s`.
pub fn duration_text(time: Duration) -> String {
    // Rounded up, so that a countdown ends with 1.
    let seconds = time.as_millis().div_ceil(1000);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Writes a notice of the session layer to standard error.
pub fn print_notice(notice: &Notice) {
    write_stderr(&sanitize_text(&format!("sabir: {}\n", notice.text)));
}

/// Writes one JSON object and a line feed.
pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(mut line) => {
            line.push('\n');
            write_json_text(&line);
        }
        Err(error) => write_stderr(&format!("sabir: this cannot be written as JSON: {error}\n")),
    }
}

/// Writes one JSON object and a line feed, with known secret formats redacted; used for data of
/// tasks, whose texts come from files and commands. The object stays valid JSON.
pub fn print_redacted_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => write_json_text(&format!("{}\n", redact::redact_json(&line))),
        Err(error) => write_stderr(&format!("sabir: this cannot be written as JSON: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_is_the_same_json() {
        for text in [
            "plain",
            "a\u{202e}b",
            "\u{9b}31m",
            "\u{7f}",
            "\u{e0041}tag",
            "line\nfeed",
        ] {
            let json = serde_json::to_string(&[text]).unwrap();
            let escaped = escape_json_text(&json);
            assert_eq!(
                serde_json::from_str::<[String; 1]>(&escaped).unwrap(),
                [text]
            );
            assert_eq!(sanitize_text(&escaped), escaped);
        }
    }
}
