//! Finds calls in text that only repeat something that the model has read.
//!
//! A file or a web page can contain the markup of a call. A model that quotes it writes that call,
//! and no client could tell such a call from one that the model meant. So a call in the text whose
//! markup occurs in the result of an earlier call is left as text. The texts are compared without
//! blanks, line numbers, quotation marks of e-mail, backslashes and entities, because tools and
//! models add and remove those.

use std::collections::HashMap;

use sabir_call::{History, MessagePart};
use sabir_check::location_prefix_length;

/// The least length of a normalized call: a shorter one, such as `[ls()]`, occurs by chance.
const MIN_LENGTH: usize = 8;

/// The most bytes of results that are searched for the calls of one request. Calls beyond it count as found: an answer with thousands of
/// different calls that all begin like a call in a result is not intended.
const MAX_SEARCHED: usize = 256 << 20;

/// The results of earlier calls, and the text of the current response.
#[derive(Debug, Default)]
pub(crate) struct EchoDetector {
    /// The history, while its results have not been read.
    history: Option<History>,
    /// The normalized results, after the first call in text.
    results: Vec<String>,
    /// The source text of the response; empty if there are no results.
    source: String,
    /// True if the history has results, so that the source is kept.
    has_results: bool,
    /// The texts that were looked for, and whether a result holds them. Calls of one tool begin alike,
    /// so an answer of many calls does not search the history for each.
    searches: HashMap<String, bool>,
    /// The bytes of results that were searched.
    searched: usize,
}

impl EchoDetector {
    /// Makes a detector for the responses to that history.
    pub(crate) fn new(history: &History) -> Self {
        let has_results = history
            .iter()
            .flat_map(|message| &message.parts)
            .any(|part| matches!(part, MessagePart::Result(_)));
        Self {
            history: has_results.then(|| history.clone()),
            has_results,
            ..Self::default()
        }
    }

    /// Forgets the text of the response, because another one begins.
    pub(crate) fn start_response(&mut self) {
        self.source.clear();
    }

    /// Takes the next piece of the source.
    pub(crate) fn push_source(&mut self, text: &str) {
        if self.has_results {
            self.source.push_str(text);
        }
    }

    /// Returns true if the beginning of a call, up to the end of the tool's name, occurs in a result, so that the call may be a repetition.
    /// Text after the name is not compared.
    pub(crate) fn may_repeat(&mut self, start: usize, name_end: usize) -> bool {
        if !self.has_results {
            return false;
        }
        // A name that is not where it should be says nothing.
        let beginning = self.source.get(start..name_end).map(normalize);
        beginning.is_none_or(|beginning| self.occurs(beginning))
    }

    /// Returns the source of a call if it occurs in a result.
    pub(crate) fn find_repetition(&mut self, start: usize, end: usize) -> Option<&str> {
        if !self.has_results {
            return None;
        }
        let markup = self.source.get(start..end).map(normalize)?;
        let is_repeated = markup.len() >= MIN_LENGTH && self.occurs(markup);
        self.source.get(start..end).filter(|_| is_repeated)
    }

    /// Returns true if a result holds this normalized text.
    fn occurs(&mut self, text: String) -> bool {
        if let Some(history) = self.history.take() {
            self.results = history
                .iter()
                .flat_map(|message| &message.parts)
                .filter_map(|part| match part {
                    MessagePart::Result(result) => Some(normalize(&result.content)),
                    _ => None,
                })
                .collect();
        }
        if let Some(occurs) = self.searches.get(&text) {
            return *occurs;
        }
        if self.searched > MAX_SEARCHED {
            return true;
        }
        self.searched += self.results.iter().map(String::len).sum::<usize>();
        let occurs = self.results.iter().any(|result| result.contains(&text));
        self.searches.insert(text, occurs);
        occurs
    }
}

/// Normalizes a text for comparison: removes blanks, backslashes, line numbers and quotation marks at
/// the beginning of lines, and decodes entities.
fn normalize(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for line in text.split('\n') {
        let mut chars = strip_line_start(line).chars();
        while let Some(char) = chars.next() {
            match char {
                '\\' => push_escape(&mut chars, &mut normal),
                '&' => normal.push(decode_entity(&mut chars)),
                char if char.is_whitespace() => {}
                char => normal.push(char),
            }
        }
    }
    normal
}

/// Removes the place that a search prints, line numbers and quotation marks from the beginning of a
/// line.
fn strip_line_start(line: &str) -> &str {
    let mut rest = line
        .get(location_prefix_length(line)..)
        .unwrap_or_default()
        .trim_start();
    while let Some(quoted) = rest.strip_prefix('>') {
        rest = quoted.trim_start();
    }
    let unnumbered = rest.trim_start_matches(|char: char| char.is_ascii_digit());
    let is_numbered = unnumbered.len() < rest.len()
        && unnumbered.starts_with(['\t', ' ', '|', ':', '-', '→', '│']);
    if is_numbered {
        unnumbered.trim_start_matches(['\t', ' ', '|', ':', '-', '→', '│'])
    } else {
        rest
    }
}

/// Adds the character of an escape whose backslash was read. Escaped blanks are blanks.
fn push_escape(chars: &mut std::str::Chars<'_>, normal: &mut String) {
    let mut ahead = chars.clone();
    match ahead.next() {
        Some('n' | 't' | 'r') => *chars = ahead,
        Some('u') => {
            let digits: String = ahead.by_ref().take(4).collect();
            let is_code = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let code = u32::from_str_radix(&digits, 16).ok().filter(|_| is_code);
            if let Some(char) = code.and_then(char::from_u32) {
                *chars = ahead;
                if !char.is_whitespace() {
                    normal.push(char);
                }
            }
        }
        // The character behind it is read next, and may be a backslash itself.
        _ => {}
    }
}

/// Returns the character of an entity whose `&` was read, or `&` itself.
fn decode_entity(chars: &mut std::str::Chars<'_>) -> char {
    const ENTITIES: [(&str, char); 6] = [
        ("lt;", '<'),
        ("gt;", '>'),
        ("amp;", '&'),
        ("quot;", '"'),
        ("apos;", '\''),
        ("#39;", '\''),
    ];
    let rest = chars.as_str();
    for (name, char) in ENTITIES {
        if let Some(rest) = rest.strip_prefix(name) {
            *chars = rest.chars();
            return char;
        }
    }
    '&'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_and_quotations_change_is_removed() {
        let call = "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"command\": \"a\\nb\"}}\n</tool_call>";
        let normal = normalize(call);
        let numbered: Vec<String> = call
            .lines()
            .enumerate()
            .map(|(number, line)| format!("{:>6}\t{line}", number + 1))
            .collect();
        let found: Vec<String> = call
            .lines()
            .enumerate()
            .map(|(number, line)| format!("docs/a.md:{}:{line}", number + 1))
            .collect();
        for changed in [
            call.replace('\n', "\r\n    "),
            call.replace('\n', "\n> "),
            call.replace('<', "&lt;").replace('>', "&gt;"),
            serde_json::Value::from(call).to_string(),
            serde_json::Value::from(call)
                .to_string()
                .replace('<', "\\u003c"),
            call.replace('_', "\\_"),
            numbered.join("\n"),
            found.join("\n"),
        ] {
            assert!(normalize(&changed).contains(&normal), "{changed}");
        }
        assert!(!normalize("the run of a and b").contains(&normal));
    }

    #[test]
    fn odd_escapes_and_entities_are_kept() {
        for (text, normal) in [
            ("a\\", "a"),
            ("a\\u12", "au12"),
            ("a\\ud800b", "aud800b"),
            ("a & b &x;", "a&b&x;"),
            ("12", "12"),
            ("12: a", "a"),
            ("1x", "1x"),
        ] {
            assert_eq!(normalize(text), normal, "{text}");
        }
    }
}
