//! Finds calls of formats that no dialect knows: a special token, then JSON or a name that means a
//! declared tool.
//!
//! Such a call never runs. The fault says that a call was probably lost, so that a call in a new
//! format is never silently taken for an answer.

use crate::fault::{Fault, FaultKind, Span};

use super::CallReader;

/// The maximum length of a token's name, in bytes.
const NAME_CAP: usize = 64;
/// The maximum white space between a token and the JSON.
const BLANK_CAP: usize = 64;
/// The length of the JSON in which the tool's name is searched.
const JSON_CAP: usize = 512;

impl CallReader {
    /// Notes a special token at the start of `rest` that no dialect has, if a call of a declared tool
    /// follows. `None` means that more text is needed.
    pub(super) fn note_unknown_marker(
        &mut self,
        rest: &str,
        start: usize,
        last: bool,
    ) -> Option<()> {
        let (marker, behind) = match split_token(rest) {
            SplitToken::Token(marker, behind) => (marker, behind),
            SplitToken::Partial => return last.then_some(()),
            SplitToken::None => return Some(()),
        };
        let text = behind.trim_ascii_start();
        let blank = behind.len() - text.len();
        // A token with much white space behind it ended something; it opens no call.
        if blank > BLANK_CAP {
            return Some(());
        }
        if text.is_empty() {
            return last.then_some(());
        }
        // JSON may be a call in a dialect that is read.
        let is_json = text.starts_with(['{', '[']);
        let mut is_unread = is_json && !self.vocabulary.bare_anywhere;
        let is_call = if is_json {
            // Decides on the same bytes for any chunks. The text is held until then, only
            // after a special token that no dialect has.
            if text.len() < JSON_CAP && !last {
                return None;
            }
            let end = text.floor_char_boundary(JSON_CAP.min(text.len()));
            self.vocabulary
                .quotes_tool_name(text.get(..end).unwrap_or_default())
        } else {
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
            let length = text
                .char_indices()
                .take(NAME_CAP)
                .find(|(_, c)| !is_name(*c))
                .map(|(at, _)| at);
            let Some(length) = length else {
                return (last || text.len() > 4 * NAME_CAP).then_some(());
            };
            let (name, after) = text.split_at_checked(length).unwrap_or_default();
            let begins_call = after.starts_with(['{', '(', '[', '<'])
                && self.vocabulary.find_exact_tool(name).is_some();
            let starts = self.starts_unknown_arguments(None, text, last);
            is_unread = starts != Some(false) && !is_role_token(marker) && starts?;
            begins_call || is_unread
        };
        if is_call {
            let span = Span::new(start, start + marker.len());
            let message = format!(
                "`{marker}` looks like the marker of a call, but belongs to no known dialect; nothing was run"
            );
            let fault = Fault::error(FaultKind::OtherDialect, span, message);
            self.diagnostics
                .note_failed_open(fault.with_hint("write the call in the dialect that was taught"));
            if is_unread {
                self.note_unread_call(span);
            }
        }
        Some(())
    }
}

/// Words in the names of special tokens around messages and results.
const ROLES: [&str; 12] = [
    "assistant",
    "user",
    "system",
    "human",
    "observation",
    "message",
    "channel",
    "response",
    "output",
    "result",
    "text",
    "eot",
];

/// Returns true if a special token begins or ends a message or a result, of which a tool's name may be a word.
pub(super) fn is_role_token(marker: &str) -> bool {
    let name = marker.to_lowercase();
    ROLES.iter().any(|role| name.contains(role))
}

/// The beginning of a text as a special token.
enum SplitToken<'a> {
    /// The token, and the text behind it.
    Token(&'a str, &'a str),
    /// The text may become a token.
    Partial,
    None,
}

/// Splits a special token such as `<|call|>` off the start of the text.
fn split_token(text: &str) -> SplitToken<'_> {
    let Some(inner) = text.strip_prefix('<') else {
        return SplitToken::None;
    };
    let Some(bar) = inner.chars().next() else {
        return SplitToken::Partial;
    };
    if !matches!(bar, '|' | '｜') {
        return SplitToken::None;
    }
    let body = inner.get(bar.len_utf8()..).unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '▁' | ' ' | '.' | ':');
    let mut characters = body.char_indices();
    let Some((length, _)) = characters
        .by_ref()
        .take(NAME_CAP)
        .find(|(_, c)| !is_name(*c))
    else {
        // The text ended, or the name is too long.
        return match characters.next() {
            None if body.chars().count() < NAME_CAP => SplitToken::Partial,
            _ => SplitToken::None,
        };
    };
    let tail = body.get(length..).unwrap_or_default();
    match tail.strip_prefix(bar) {
        Some("") => SplitToken::Partial,
        Some(tail) if length > 0 && tail.starts_with('>') => {
            let (marker, behind) = text
                .split_at_checked(text.len() - tail.len() + 1)
                .unwrap_or_default();
            SplitToken::Token(marker, behind)
        }
        _ => SplitToken::None,
    }
}
