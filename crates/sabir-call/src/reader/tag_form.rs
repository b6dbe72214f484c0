//! Describes how a call in tags is written, and answers what a given tag means in it.
//!
//! Everything here depends on one tag, the row of the dialect's table, and the prefix of the call's
//! own tag.

use std::borrow::Cow;

use crate::dialect::grammar::{
    MESSAGE_ENDS, NamePosition, TagNotation, TagScheme, TaggedCalls, is_unclosed_key,
    render_angle_close,
};

use super::tag::{
    LexedTag, Tag, TagRelevance, lex_in_notation, lex_key_value, names_match, split_name,
};
use super::vocabulary::{TagDialect, Vocabulary};

/// The tag name for a call whose tags are the header and the end of a message.
pub(super) const MESSAGE_CALL: &str = "rfl:call";

/// The tags that make up one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TagForm {
    tagged: &'static TaggedCalls,
    /// The name of the call's tag; the tool's name where each tool has its own tag.
    pub(super) call: Box<str>,
}

impl TagForm {
    /// Creates the form of a call whose tag has that name.
    pub(super) fn new(TagDialect { tagged, .. }: TagDialect, call: &str) -> Self {
        Self {
            tagged,
            call: call.into(),
        }
    }

    /// Returns the prefix of this call's tags.
    ///
    /// In `<invoke …>` that is `antml:`, and its argument tags must have it too.
    fn tag_prefix(&self) -> &str {
        match self.tagged.tags {
            TagScheme::Fixed { .. } => split_name(&self.call).0,
            TagScheme::Own | TagScheme::Keyed { .. } => "",
        }
    }

    /// Returns the wrapper that should enclose calls.
    pub(super) fn wrapper_name(&self) -> Option<&'static str> {
        self.tagged.wrappers.first().copied()
    }

    /// Returns true if each argument is a tag of its own name.
    pub(super) fn has_argument_tags(&self) -> bool {
        matches!(
            self.tagged.tags,
            TagScheme::Own | TagScheme::Fixed { argument: "", .. }
        )
    }

    /// Returns true if a tag of this name is a wrapper around such calls.
    pub(super) fn is_wrapper(&self, name: &str) -> bool {
        self.tagged.is_wrapper_name(name)
    }

    /// Returns true if `text` starts with a wrapper's name, or with the part of it that has arrived. The first letter alone would match
    /// many other names.
    pub(super) fn may_begin_wrapper(&self, text: &[u8]) -> bool {
        let begins = |name: &&str| name.bytes().zip(text).all(|(own, given)| own == *given);
        self.tagged.wrappers.iter().any(begins)
    }

    /// Returns true if the tool's name is text after the call's tag.
    pub(super) fn has_name_after_tag(&self) -> bool {
        matches!(self.tagged.tags, TagScheme::Keyed { .. })
    }

    /// Returns true if a value may be a CDATA section.
    pub(super) fn has_text_sections(&self) -> bool {
        self.tagged.sections_of_text
    }

    /// Returns true if a line feed at both ends of a value is a part of it.
    pub(super) fn has_exact_values(&self) -> bool {
        self.tagged.exact_values
    }

    /// Returns true if every value is written on its own lines.
    pub(super) fn has_value_lines(&self) -> bool {
        let is_equals = matches!(
            self.tagged.tags,
            TagScheme::Fixed {
                argument_name: NamePosition::Equals,
                ..
            }
        );
        is_equals || self.tagged.header_opens
    }

    /// Renders a closing tag of that name, for messages.
    pub(super) fn format_close_tag(&self, name: &str) -> String {
        if self.tagged.header_opens && name == MESSAGE_CALL {
            return "<|call|>".to_owned();
        }
        match self.tagged.notation {
            TagNotation::Delimited { close, end, .. } => format!("{close}{name}{end}"),
            TagNotation::Angle | TagNotation::Marked(_) => render_angle_close(name),
        }
    }

    /// Returns true if the tag opens a call, or a wrapper around calls.
    pub(super) fn begins_call(&self, tag: &Tag<'_>, vocabulary: &Vocabulary) -> bool {
        let call = match self.tagged.tags {
            // Exactly: inside a value a tag that only resembles a tool's is far more likely
            // content.
            TagScheme::Own => vocabulary.find_exact_tool(tag.name).is_some(),
            TagScheme::Fixed { call, .. } => tag.split_name().1 == call,
            TagScheme::Keyed { call, .. } => tag.name == call,
        };
        !tag.close && (call || self.tagged.is_wrapper_name(tag.name))
    }

    /// Returns true if each tool is a tag of its own name.
    pub(super) fn has_tool_tags(&self) -> bool {
        self.tagged.tags == TagScheme::Own
    }

    /// Lexes a tag in the notation of this call.
    pub(super) fn lex_tag<'w>(
        &self,
        window: &'w str,
        last: bool,
        interest: impl Fn(&str, bool) -> TagRelevance,
    ) -> LexedTag<'w> {
        if let TagScheme::Keyed { key, value, .. } = self.tagged.tags
            && let LexedTag::Tag(tag) = lex_in_notation(TagNotation::Angle, window, last, &interest)
            && tag.is_opening_tag(key)
        {
            // Key and value tags together open an argument, so they are lexed as one tag.
            return lex_key_value(window, last, key, value);
        }
        if self.tagged.header_opens {
            return self.lex_message_tag(window, last, interest);
        }
        lex_in_notation(self.tagged.notation, window, last, interest)
    }

    /// Lexes a tag of a call whose message ends it: a token for that end counts as the closing tag.
    fn lex_message_tag<'w>(
        &self,
        window: &'w str,
        last: bool,
        interest: impl Fn(&str, bool) -> TagRelevance,
    ) -> LexedTag<'w> {
        let is_end = |name: &str| MESSAGE_ENDS.contains(&name);
        let interest = |name: &str, close| match is_end(name) {
            true => TagRelevance::Plain,
            false => interest(name, close),
        };
        match lex_in_notation(self.tagged.notation, window, last, interest) {
            LexedTag::Tag(mut tag) if is_end(tag.name) && !tag.close => {
                tag.name = MESSAGE_CALL;
                tag.close = true;
                LexedTag::Tag(tag)
            }
            other => other,
        }
    }

    /// Returns the first byte of every tag.
    pub(super) fn first_byte(&self) -> u8 {
        match self.tagged.notation {
            TagNotation::Angle => b'<',
            TagNotation::Marked(marker) => marker.as_bytes().first().copied().unwrap_or(b'<'),
            TagNotation::Delimited { open, .. } => open.as_bytes().first().copied().unwrap_or(b'<'),
        }
    }

    /// Decodes a name from a tag. Where special tokens replace angle brackets, names are escaped as
    /// in XML.
    pub(super) fn decode_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if !matches!(self.tagged.notation, TagNotation::Delimited { .. }) || !name.contains('&') {
            return Cow::Borrowed(name);
        }
        let plain = name
            .replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">");
        // Last, so that `&amp;lt;` becomes `&lt;` and not `<`.
        Cow::Owned(plain.replace("&amp;", "&"))
    }

    /// Returns the name of the argument that a tag opens.
    pub(super) fn argument_name<'t>(&self, tag: &Tag<'t>) -> Option<&'t str> {
        let named = |argument| {
            let (prefix, base) = tag.split_name();
            // A call uses one prefix throughout: a tag with another prefix is content.
            base == argument && names_match(prefix, self.tag_prefix())
        };
        match self.tagged.tags {
            _ if tag.close => None,
            TagScheme::Own | TagScheme::Fixed { argument: "", .. } => Some(tag.name),
            TagScheme::Fixed {
                argument,
                argument_name,
                ..
            } if named(argument) => Some(argument_name.read_name(tag)),
            // The lexer puts the text between key tags in the place of attributes.
            TagScheme::Keyed { key, .. } if tag.name == key => Some(tag.attributes),
            _ => None,
        }
    }

    /// Returns true if a tag would open an argument with the prefix of the call.
    pub(super) fn lacks_call_prefix(&self, tag: &Tag<'_>) -> bool {
        match self.tagged.tags {
            TagScheme::Fixed { argument, .. } if !argument.is_empty() => {
                !tag.close && tag.split_name().1 == argument && self.argument_name(tag).is_none()
            }
            _ => false,
        }
    }

    /// Returns true if a tag opens a value without its key.
    pub(super) fn opens_value_without_key(&self, tag: &Tag<'_>) -> bool {
        matches!(self.tagged.tags, TagScheme::Keyed { value, .. } if tag.is_opening_tag(value))
    }

    /// Returns true if the text begins with a key or a value that is not a complete pair.
    pub(super) fn begins_half_pair(&self, text: &str) -> bool {
        let TagScheme::Keyed { key, value, .. } = self.tagged.tags else {
            return false;
        };
        let opens = |name: &str| {
            text.strip_prefix('<')
                .and_then(|text| text.strip_prefix(name))
                .is_some_and(|text| text.starts_with('>'))
        };
        opens(key) || opens(value)
    }

    /// Returns true if a tag of this name opens an argument but does not close it.
    pub(super) fn is_key(&self, name: &str) -> bool {
        matches!(self.tagged.tags, TagScheme::Keyed { key, .. } if key == name)
    }

    /// Returns the name of the tag that closes the argument opened by `tag`.
    pub(super) fn value_close<'t>(&self, tag: &Tag<'t>) -> &'t str {
        match self.tagged.tags {
            TagScheme::Keyed { value, .. } => value,
            _ => tag.name,
        }
    }

    /// Returns true if a tag says that the value is JSON.
    pub(super) fn is_json(&self, tag: &Tag<'_>) -> bool {
        let typed = match self.tagged.tags {
            TagScheme::Fixed {
                typed: Some((key, yes, _)),
                ..
            } => tag.attribute_value(key).is_some_and(|kind| kind != yes),
            _ => false,
        };
        // Every tagged dialect accepts the renderer's own marking of JSON values.
        typed || tag.json || tag.attribute_value("encoding") == Some("json")
    }

    /// Renders the opening tag of an argument, for messages.
    pub(super) fn format_argument_tag(&self, name: &str) -> String {
        match self.tagged.tags {
            TagScheme::Own | TagScheme::Fixed { argument: "", .. } => format!("<{name}>"),
            TagScheme::Fixed {
                argument,
                argument_name,
                ..
            } => {
                format!(
                    "<{}{argument}{}>",
                    self.tag_prefix(),
                    argument_name.format_tag_name(name)
                )
            }
            TagScheme::Keyed { key, value, .. } if is_unclosed_key(key) => {
                format!("<{key}>{name}<{value}>")
            }
            TagScheme::Keyed { key, value, .. } => format!("<{key}>{name}</{key}><{value}>"),
        }
    }

    /// Renders a whole call, for messages.
    pub(super) fn format_call_tag(&self, name: &str, argument: &str) -> String {
        let open = self.format_argument_tag(argument);
        match self.tagged.tags {
            TagScheme::Own => format!("<{name}>{open}…</{argument}></{name}>"),
            TagScheme::Fixed {
                call,
                argument: tag,
                call_name,
                ..
            } => {
                let prefix = self.tag_prefix();
                let tag = if tag.is_empty() { argument } else { tag };
                format!(
                    "<{prefix}{call}{}>{open}…</{prefix}{tag}></{prefix}{call}>",
                    call_name.format_tag_name(name)
                )
            }
            TagScheme::Keyed { call, value, .. } => {
                let value_close = render_angle_close(value);
                format!(
                    "<{call}>{name}{open}…{value_close}{}",
                    render_angle_close(call)
                )
            }
        }
    }
}

impl NamePosition {
    /// Returns the name in a tag.
    pub(super) fn read_name<'t>(self, tag: &Tag<'t>) -> &'t str {
        self.find_name(tag).1
    }

    /// Returns the position of the name in a tag, and the name.
    pub(super) fn find_name<'t>(self, tag: &Tag<'t>) -> (usize, &'t str) {
        match self {
            Self::Attribute(key) => tag.find_attribute(key).unwrap_or_default(),
            Self::Equals => tag
                .equals_value()
                .or_else(|| tag.find_attribute("name"))
                .unwrap_or_default(),
        }
    }

    /// Renders the name in its position: ` name="f"` or `=f`.
    fn format_tag_name(self, name: &str) -> String {
        match self {
            Self::Attribute(key) => format!(" {key}=\"{name}\""),
            Self::Equals => format!("={name}"),
        }
    }
}
