//! Removes leftover call markup from a model's text.
//!
//! The parser of dialects takes calls out of the text. It leaves markup that belongs to no call: a
//! marker at the end of the response, and special tokens that servers forgot to remove. They are
//! dropped here: **a special token anywhere, other markup only at the very end of a response.**
//! Text in code (between backticks or fences) is a mention and stays.
//!
//! The beginning of a marker (`<fun`) at the end is kept as text if the model ended its response
//! there. Only if the response was cut is it taken for an unfinished marker.
//!
//! At most one marker and the white space after it are held back.

/// Special tokens, which no text contains by accident.
const SPECIAL_TOKENS: [&str; 32] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|start|>",
    "<|return|>",
    "<|call|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "<|tool_call|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_start|>",
    "<|tool_call_argument_begin|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|observation|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<｜end▁of▁sentence｜>",
    "<｜begin▁of▁sentence｜>",
];

/// Markup that may also be ordinary text, so that it is dropped only at the end.
const TRAILING_MARKERS: [&str; 18] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<function_call>",
    "<function_calls>",
    "</function_calls>",
    "<function=",
    "</function>",
    "<invoke name=",
    "</invoke>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<seed:tool_call>",
    "<start_function_call>",
    "<TOOLCALL>",
    "<｜DSML｜",
    "[TOOL_CALLS]",
];

/// The shortest unfinished marker in bytes that is dropped. A shorter one may be anything, such as
/// `a <`.
const MIN_CUT_MARKER: usize = 4;

/// The number of bytes of white space after a marker that are held back.
const MAX_TRAILING_SPACE: usize = 256;

/// A filter for a text on its way to the client.
#[derive(Debug, Default)]
pub(crate) struct MarkupFilter {
    /// The tags of the tools on offer.
    tags: Vec<String>,
    /// The text that may be the beginning of a marker, or a marker at the end.
    held: String,
    /// The state of code at the end of the text that was passed on.
    code: CodeTracker,
    /// The number of dropped pieces of markup.
    dropped: u32,
}

/// A tracker of whether the text is inside code.
#[derive(Debug, Default, Clone, Copy)]
struct CodeTracker {
    /// The number of backticks that opened the code; 0 outside of code.
    open: usize,
    /// The number of backticks in the current run.
    run: usize,
}

/// The kind of text at a position.
enum MarkupMatch {
    /// A special token of this length in bytes.
    Token(usize),
    /// Possibly a marker, or one at the end; it must be held back.
    Held,
    /// Ordinary text.
    Text,
}

impl MarkupFilter {
    /// Makes a filter for responses to a request with tools of these names.
    pub(crate) fn new<'t>(tools: impl Iterator<Item = &'t str>) -> Self {
        let tags = tools
            .flat_map(|name| [format!("<{name}>"), format!("</{name}>")])
            .collect();
        Self {
            tags,
            ..Self::default()
        }
    }

    /// Takes the next piece, and passes the text for the client to `say`.
    pub(crate) fn push(&mut self, text: &str, say: &mut impl FnMut(&str)) {
        if self.held.is_empty() {
            let rest = self.scan_text(text, say);
            self.held.push_str(rest);
        } else {
            let mut window = std::mem::take(&mut self.held);
            window.push_str(text);
            let rest = self.scan_text(&window, say);
            self.held.push_str(rest);
        }
    }

    /// Passes on held text that is too short to be markup, because something else follows it.
    pub(crate) fn flush_short_end(&mut self, say: &mut impl FnMut(&str)) {
        if self.held.len() < MIN_CUT_MARKER {
            emit_text(Some(&std::mem::take(&mut self.held)), say);
        }
    }

    /// Ends the text: passes on the held text unless it is incomplete markup, and returns the
    /// number of dropped pieces. `cut` is true if the response was cut.
    pub(crate) fn finish(&mut self, cut: bool, say: &mut impl FnMut(&str)) -> u32 {
        let held = std::mem::take(&mut self.held);
        let words = held.trim_ascii_end();
        let token = || SPECIAL_TOKENS.iter().any(|token| token.starts_with(words));
        if words.len() >= MIN_CUT_MARKER
            && (cut || token() || self.trailing_markers().any(|mark| mark == words))
        {
            self.dropped += 1;
        } else if !held.is_empty() {
            say(&held);
        }
        // The next text begins a new part.
        self.code = CodeTracker::default();
        std::mem::take(&mut self.dropped)
    }

    /// Passes on the text that is certain, and returns the rest, which must be held back.
    fn scan_text<'t>(&mut self, text: &'t str, say: &mut impl FnMut(&str)) -> &'t str {
        let mut said = 0;
        let mut at = 0;
        while let Some(byte) = text.as_bytes().get(at) {
            // Only these two characters begin markup, and code is a mention.
            let rest = text
                .get(at..)
                .filter(|_| matches!(byte, b'<' | b'[') && !self.code.is_code_before());
            match rest.map_or(MarkupMatch::Text, |rest| self.match_markup(rest)) {
                MarkupMatch::Token(length) => {
                    self.dropped += 1;
                    emit_text(text.get(said..at), say);
                    at += length;
                    said = at;
                }
                MarkupMatch::Held => {
                    emit_text(text.get(said..at), say);
                    return text.get(at..).unwrap_or_default();
                }
                MarkupMatch::Text => {
                    self.code.push(*byte);
                    at += 1;
                }
            }
        }
        emit_text(text.get(said..), say);
        ""
    }

    /// Iterates over the markup that is dropped at the end: the table's, and the tags of the tools.
    fn trailing_markers(&self) -> impl Iterator<Item = &str> {
        TRAILING_MARKERS
            .iter()
            .copied()
            .chain(self.tags.iter().map(String::as_str))
    }

    /// Classifies the text from a bracket on.
    fn match_markup(&self, rest: &str) -> MarkupMatch {
        if let Some(token) = SPECIAL_TOKENS
            .iter()
            .find(|token| rest.starts_with(**token))
        {
            return MarkupMatch::Token(token.len());
        }
        let begun = |mark: &str| mark.starts_with(rest);
        let last = |mark: &str| {
            let behind = rest.strip_prefix(mark);
            behind.is_some_and(|behind| {
                behind.len() <= MAX_TRAILING_SPACE
                    && behind.bytes().all(|byte| byte.is_ascii_whitespace())
            })
        };
        let held = SPECIAL_TOKENS.iter().any(|token| begun(token))
            || self
                .trailing_markers()
                .any(|mark| begun(mark) || last(mark));
        if held {
            MarkupMatch::Held
        } else {
            MarkupMatch::Text
        }
    }
}

impl CodeTracker {
    /// Follows the next byte of the text.
    fn push(&mut self, byte: u8) {
        if byte == b'`' {
            self.run += 1;
            return;
        }
        self.open = self.fence_after_run();
        self.run = 0;
        // Inline code, with fewer than three backticks, ends with its line.
        if byte == b'\n' && self.open < 3 {
            self.open = 0;
        }
    }

    /// Returns true if the next character is in code.
    fn is_code_before(self) -> bool {
        self.fence_after_run() > 0
    }

    /// Returns the number of backticks that enclose the text after the current run; 0 for none.
    fn fence_after_run(self) -> usize {
        match self.run {
            0 => self.open,
            // Code ends at a run of at least as many backticks as opened it.
            run if self.open == 0 => run,
            run if run >= self.open => 0,
            _ => self.open,
        }
    }
}

/// Passes a text on, unless it is empty.
fn emit_text(text: Option<&str>, say: &mut impl FnMut(&str)) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_pieces<'t>(cut: bool, pieces: impl IntoIterator<Item = &'t str>) -> (String, u32) {
        let (mut words, mut text) = (MarkupFilter::new(["read_file"].into_iter()), String::new());
        for piece in pieces {
            words.push(piece, &mut |said| text.push_str(said));
        }
        let dropped = words.finish(cut, &mut |said| text.push_str(said));
        (text, dropped)
    }

    fn check(text: &str, expected: &str, dropped: u32) {
        check_end(false, text, expected, dropped);
    }

    fn check_end(cut: bool, text: &str, expected: &str, dropped: u32) {
        let expected = (expected.to_owned(), dropped);
        assert_eq!(filter_pieces(cut, [text]), expected, "{text:?}");
        assert_eq!(
            filter_pieces(cut, text.split_inclusive(|_| true)),
            expected,
            "{text:?} by characters"
        );
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            assert_eq!(
                filter_pieces(cut, [head, tail]),
                expected,
                "{text:?} split at {at}"
            );
        }
    }

    #[test]
    fn leftover_markup_is_dropped() {
        check("hi <tool_call>", "hi ", 1);
        check("hi <tool_call>\n", "hi ", 1);
        check("hi <read_file>", "hi ", 1);
        for cut in ["hi <tool_ca", "hi <read_fi", "hi [TOOL_CA", "hi <fun"] {
            check_end(true, cut, "hi ", 1);
        }
        check_end(true, "hi <fu", "hi <fu", 0);
        check("a<|tool_call_end|> b<|im_end|>", "a b", 2);
        check("a</tool_call>", "a", 1);
        check("a <｜tool▁ca", "a ", 1);
    }

    #[test]
    fn mentions_of_markup_are_kept() {
        let whole = |text: &str| check(text, text, 0);
        whole("");
        whole("a <");
        whole("1 <t and 2");
        whole("the tag <tool_call> opens a call");
        whole("`<|im_end|>` ends a message, and so does\n```\n<|im_end|>\n```\n");
        whole("Vec<u8> [1] <b>x</b>");
        for begun in [
            "use <fun",
            "use <function",
            "see [TOOL",
            "a <read_fi",
            "close it with </fun\n",
        ] {
            whole(begun);
        }
        check("`a\n<|im_end|>", "`a\n", 1);
    }
}
