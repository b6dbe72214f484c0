//! Recognizes the arguments of a tool in a notation that no dialect has, behind markup that opens a call.
//!
//! Such a call is not understood, so it is unknown where it ends. Calls behind it may be content of its arguments and must not run.

use super::CallReader;
use super::marker_dispatch::{HEAD_CAP, header_words, word_length};

/// The maximum number of words of a header that may precede a tool's name.
const MAX_WORDS: usize = 4;
/// The keys of a call's name.
const NAME_KEYS: [&str; 6] = [
    "name",
    "tool",
    "tool_name",
    "function",
    "function_name",
    "action",
];
/// The keys around all arguments.
const ARGUMENTS_KEYS: [&str; 5] = ["arguments", "args", "parameters", "params", "input"];
/// The ending after a name in prose that is no string.
const GENITIVE: &str = "'s ";
/// A prefix that some formats write before a tool's name.
const NAMESPACE: &str = "functions.";
/// The delimiters of special tokens.
const SPECIAL_TOKENS: [(&str, &str); 2] = [("<|", "|>"), ("<｜", "｜>")];

/// Returns the first [`HEAD_CAP`] bytes of a text, and whether no more of them can come.
pub(super) fn bounded_prefix(rest: &str, last: bool) -> (&str, bool) {
    let end = rest.floor_char_boundary(HEAD_CAP);
    let is_whole = last || rest.len() >= HEAD_CAP;
    (rest.get(..end).unwrap_or_default(), is_whole)
}

impl CallReader {
    /// Returns true if arguments of a tool begin at the start of `rest`, such as `("a.md"`, `path="a.md"` or `{path: a.md`; `None`
    /// while that is undecided. `tool` is the tool that the markup before `rest` names; if it names none, the name precedes the
    /// arguments.
    ///
    /// Only the text is read that is there in chunks of any size.
    pub(super) fn starts_unknown_arguments(
        &self,
        tool: Option<usize>,
        rest: &str,
        last: bool,
    ) -> Option<bool> {
        let (head, is_whole) = bounded_prefix(rest, last);
        let is_tag = tool.is_some();
        let (tool, text) = match tool {
            Some(tool) => (tool, head),
            None => {
                let is_in_namespace = !is_whole && NAMESPACE.starts_with(head);
                let named = head.strip_prefix(NAMESPACE).unwrap_or(head);
                let name = named.get(..word_length(named)).unwrap_or_default();
                if is_in_namespace || name.len() == named.len() && !is_whole {
                    return None;
                }
                let behind = named.get(name.len()..).unwrap_or_default();
                if NAME_KEYS.contains(&name.trim_end_matches(':')) {
                    return self.starts_with_value_of_tool(name, behind, is_whole);
                }
                let Some(tool) = self.vocabulary.resolve_tool(bare_name(name)) else {
                    return Some(false);
                };
                (tool, behind)
            }
        };
        let text = text.strip_prefix(':').unwrap_or(text);
        // Some end the name with a special token.
        let is_part_of_token = !is_whole
            && SPECIAL_TOKENS
                .iter()
                .any(|(open, _)| open.starts_with(text));
        let token = SPECIAL_TOKENS
            .iter()
            .find(|(open, _)| text.starts_with(open));
        let text = match token {
            _ if is_part_of_token => return None,
            Some((_, close)) => match text.split_once(close) {
                Some((_, behind)) => behind.strip_prefix(':').unwrap_or(behind),
                None if is_whole => return Some(false),
                None => return None,
            },
            None => text,
        };
        self.starts_argument(tool, text, is_tag, is_whole)
    }

    /// Returns true if the text begins with a string, or with a key and its value, perhaps behind brackets and bullets; `None` while
    /// that is undecided. `is_tag` is true if a tag ends before the text, so that a quotation mark is no part of a word.
    fn starts_argument(
        &self,
        tool: usize,
        text: &str,
        is_tag: bool,
        is_whole: bool,
    ) -> Option<bool> {
        let is_bullet = |c: char| c.is_whitespace() || "-*•$@.".contains(c);
        let inside = text.trim_start_matches(|c: char| "([{（".contains(c) || is_bullet(c));
        let skipped = text.get(..text.len() - inside.len()).unwrap_or_default();
        let is_enclosed = skipped.contains(['(', '[', '{', '（']);
        let is_option = skipped.ends_with("--");
        // A name in the genitive (`write_file's path`) is prose.
        if !is_whole && !inside.is_empty() && GENITIVE.starts_with(inside) {
            return None;
        }
        let is_quoted = inside.starts_with(['"', '“'])
            || (is_tag || !skipped.is_empty())
                && inside.starts_with(['\'', '`'])
                && !inside.starts_with(GENITIVE);
        if is_quoted && !skipped.contains(['.', '$', '@']) {
            return Some(true);
        }
        let key = leading_word(inside, |c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        let behind = inside.get(key.len()..).unwrap_or_default();
        let behind = behind.trim_start_matches(|c: char| c.is_whitespace() || c == '*');
        if behind.is_empty() && !is_whole {
            return None;
        }
        let is_given = |_: &str| false;
        let is_known = |key: &str| {
            ARGUMENTS_KEYS.contains(&key)
                || self.vocabulary.declares_argument(Some(tool), key)
                || self
                    .vocabulary
                    .understands_argument(Some(tool), key, is_given)
        };
        let is_known = !key.is_empty() && (is_known(key) || is_known(&key.to_lowercase()));
        let is_assigned = !key.is_empty() && behind.starts_with(['=', ':', '：']);
        let is_string = is_known && behind.starts_with(['"', '\'']);
        Some(is_assigned && (is_enclosed || is_known) || is_option && is_known || is_string)
    }

    /// Returns true if a tool's name is the value of this key. `text` follows the key.
    fn starts_with_value_of_tool(&self, key: &str, text: &str, is_whole: bool) -> Option<bool> {
        let text = text.trim_start();
        let value = text.strip_prefix([':', '=']);
        if value.is_none() && !key.ends_with(':') {
            return (is_whole || !text.is_empty()).then_some(false);
        }
        let value = value.unwrap_or(text);
        let value = value.trim_start_matches(|c: char| c.is_whitespace() || "\"'`".contains(c));
        let name = value.get(..word_length(value)).unwrap_or_default();
        if name.len() == value.len() && !is_whole {
            return None;
        }
        Some(self.vocabulary.resolve_tool(bare_name(name)).is_some())
    }

    /// Returns true if a tool's name among the first words of a message's header is followed by such arguments; `None` while that is
    /// undecided. `rest` begins with the header.
    pub(super) fn header_has_unknown_arguments(&self, rest: &str, last: bool) -> Option<bool> {
        let (head, _) = bounded_prefix(rest, last);
        let is_start = |(at, _): &(usize, &str)| {
            head.get(..*at)
                .is_some_and(|before| before.is_empty() || before.ends_with([' ', '=', '>']))
        };
        // In small chunks nothing behind the words of the header has come yet.
        let words = header_words(head).match_indices(|c: char| c.is_alphabetic());
        for (at, _) in words.filter(is_start).take(MAX_WORDS) {
            let text = rest.get(at..).unwrap_or_default();
            if self.starts_unknown_arguments(None, text, last)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Returns a tool's name without the number that Kimi writes behind it, and without a colon.
fn bare_name(name: &str) -> &str {
    let name = name.trim_end_matches([':', '.']);
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    letters.strip_suffix(':').unwrap_or(name)
}

/// Returns the characters at the start of the text that are part of a word.
fn leading_word(text: &str, is_part: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}
