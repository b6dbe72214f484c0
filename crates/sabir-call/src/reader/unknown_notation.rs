//! Recognizes the arguments of a tool in a notation that no dialect has, behind markup that opens a call.
//!
//! Such a call is not understood, so it is unknown where it ends. Calls behind it may be content of its arguments and must not run.

use super::CallReader;

/// The length of the text that decides, in bytes.
const HEAD_CAP: usize = 256;
/// What some formats write before a tool's name.
const NAMESPACE: &str = "functions.";
/// How special tokens begin and end.
const SPECIAL_TOKENS: [(&str, &str); 2] = [("<|", "|>"), ("<｜", "｜>")];

/// Returns the text that decides, and whether all of it is there.
pub(super) fn cap_head(rest: &str, last: bool) -> (&str, bool) {
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
        let (head, is_whole) = cap_head(rest, last);
        let (tool, text) = match tool {
            Some(tool) => (tool, head),
            None => {
                let is_in_namespace = !is_whole && NAMESPACE.starts_with(head);
                let named = head.strip_prefix(NAMESPACE).unwrap_or(head);
                let name = word_of(named, is_name_character);
                let is_in_name =
                    name.len() == named.len() && self.vocabulary.begins_tool_name(name);
                if !is_whole && (is_in_namespace || is_in_name) {
                    return None;
                }
                let name = name.trim_end_matches([':', '.']);
                let Some(tool) = self.vocabulary.find_exact_tool(name) else {
                    return Some(false);
                };
                (tool, named.get(name.len()..).unwrap_or_default())
            }
        };
        // Kimi numbers its calls.
        let text = text.strip_prefix(':').map_or(text, |number| {
            number.trim_start_matches(|c: char| c.is_ascii_digit())
        });
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
                Some((_, behind)) => behind,
                None if is_whole => return Some(false),
                None => return None,
            },
            None => text,
        };
        let text = text.trim_start();
        let inside = text.trim_start_matches(|c: char| "([{".contains(c) || c.is_whitespace());
        let is_enclosed = inside.len() < text.len();
        if inside.starts_with('"') || is_enclosed && inside.starts_with(['\'', '`']) {
            return Some(true);
        }
        let dashed = inside.trim_start_matches('-');
        let is_option = inside.len() - dashed.len() == 2;
        let key = word_of(dashed, |c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        let behind = dashed.get(key.len()..).unwrap_or_default().trim_start();
        if behind.is_empty() && !is_whole {
            return None;
        }
        let is_declared = self.vocabulary.declares_argument(Some(tool), key);
        let is_assigned = !key.is_empty() && behind.starts_with(['=', ':']);
        Some(is_assigned && (is_enclosed || is_declared) || is_option && is_declared)
    }
}

/// Returns the characters at the start of the text that are part of a word.
fn word_of(text: &str, is_part: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Returns true for characters of a tool's name, and those that separate it from a number.
fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}
