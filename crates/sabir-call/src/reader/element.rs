//! Recognizes the shape of a call in a tag that belongs to no tool.
//!
//! A model that was trained with other tools calls them as it learned to: `<use_mcp_tool>` with a
//! tag for each argument. Prose and HTML have tags as well, so only a whole element counts: on lines
//! of its own, with nothing but child elements in it, and closed.
//!
//! Supported: children without attributes, each closed, with any text in them.
//!
//! Unsupported, and therefore prose: attributes, comments, text between the children, an element of
//! more than [`ELEMENT_CAP`] bytes.

use memchr::memmem;

use super::tag::{LexedTag, TagRelevance, lex_tag};
use super::vocabulary::Vocabulary;

/// The maximum length of an element, in bytes. Its text is held back until its end is seen.
const ELEMENT_CAP: usize = 64 * 1024;
/// The number of elements of a message that may turn out to be prose. Each is read twice, so without a limit a text with many opening tags
/// would be read many times.
pub(super) const MAX_PROSE_ELEMENTS: u8 = 8;

/// The state of reading an element. It holds positions, not text, so that no byte is read twice.
#[derive(Debug)]
pub(super) struct ElementShape {
    /// The number of bytes of the text that were read.
    read: usize,
    position: ElementPosition,
    /// The names of the children.
    children: Vec<String>,
}

/// The position within an element.
#[derive(Debug)]
enum ElementPosition {
    /// Before a child, or before the close.
    Between,
    /// Inside the last child, whose closing tag this is.
    Inside(String),
    /// After the close.
    Behind,
}

/// The verdict on an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementVerdict {
    /// More text is needed.
    Wait,
    /// A call.
    Call,
    /// Prose.
    Prose,
}

impl ElementShape {
    /// Creates the state for an element, if a tag of this name with a child of that name may begin a call.
    pub(super) fn try_begin(name: &str, child: &str, vocabulary: &Vocabulary) -> Option<Self> {
        let may_begin = is_tool_word(name)
            && !vocabulary.is_dialect_tag(name)
            && !vocabulary.is_any_argument(name)
            && is_argument_word(child, vocabulary)
            && (name.contains('_') || vocabulary.is_any_argument(child));
        may_begin.then(|| Self {
            read: 0,
            position: ElementPosition::Between,
            children: Vec::new(),
        })
    }

    /// Reads the text after the opening tag of the element `name`. Each call gets the whole of it.
    pub(super) fn read_text(
        &mut self,
        name: &str,
        text: &str,
        last: bool,
        vocabulary: &Vocabulary,
    ) -> ElementVerdict {
        // Decided within the same bytes however the text is split.
        let is_full = text.len() >= ELEMENT_CAP;
        let last = last && !is_full;
        let text = text
            .get(..text.floor_char_boundary(ELEMENT_CAP))
            .unwrap_or_default();
        match self.read_shape(name, text, last, vocabulary) {
            ElementVerdict::Wait if last || is_full => ElementVerdict::Prose,
            ElementVerdict::Call if !self.names_call(name, vocabulary) => ElementVerdict::Prose,
            verdict => verdict,
        }
    }

    /// Returns true if the name and the children are those of a call: HTML has no underscores in its
    /// names, and no children that are exactly the arguments of a tool.
    fn names_call(&self, name: &str, vocabulary: &Vocabulary) -> bool {
        name.contains('_') || vocabulary.is_any_signature(&self.children)
    }

    fn read_shape(
        &mut self,
        name: &str,
        text: &str,
        last: bool,
        vocabulary: &Vocabulary,
    ) -> ElementVerdict {
        loop {
            let rest = text.get(self.read..).unwrap_or_default();
            match &self.position {
                ElementPosition::Between => {
                    let blank = rest.len() - rest.trim_ascii_start().len();
                    self.read += blank;
                    let rest = rest.trim_ascii_start();
                    if rest.is_empty() {
                        return ElementVerdict::Wait;
                    }
                    let tag = match lex_tag(rest, last, |_, _| TagRelevance::Any) {
                        LexedTag::Partial => return ElementVerdict::Wait,
                        LexedTag::No => return ElementVerdict::Prose,
                        LexedTag::Tag(tag) => tag,
                    };
                    if tag.is_closing_tag(name) {
                        self.position = ElementPosition::Behind;
                    } else if !tag.close && tag.is_plain() && is_argument_word(tag.name, vocabulary)
                    {
                        self.children.push(tag.name.to_owned());
                        self.position = ElementPosition::Inside(format!("</{}>", tag.name));
                    } else {
                        return ElementVerdict::Prose;
                    }
                    self.read += tag.len;
                }
                ElementPosition::Inside(close) => {
                    let Some(at) = memmem::find(rest.as_bytes(), close.as_bytes()) else {
                        // The close may have begun at the end of this text.
                        let begun = rest.len().saturating_sub(close.len() - 1);
                        self.read += rest.floor_char_boundary(begun);
                        return ElementVerdict::Wait;
                    };
                    self.read += at + close.len();
                    self.position = ElementPosition::Between;
                }
                ElementPosition::Behind => {
                    let line = rest.trim_start_matches([' ', '\t', '\r']);
                    return match line.as_bytes().first() {
                        None if last => ElementVerdict::Call,
                        None => ElementVerdict::Wait,
                        Some(b'\n' | b'<') => ElementVerdict::Call,
                        Some(_) => ElementVerdict::Prose,
                    };
                }
            }
        }
    }
}

/// Returns true if a name could be that of an argument. An element around other markup (a call, a thought) is prose.
fn is_argument_word(name: &str, vocabulary: &Vocabulary) -> bool {
    is_tool_word(name)
        && vocabulary.find_exact_tool(name).is_none()
        && vocabulary.thought_tag(name).is_none()
        && !vocabulary.is_dialect_tag(name)
}

/// Returns true if a name could be that of a tool or an argument.
fn is_tool_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
