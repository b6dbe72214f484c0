//! Lexes tags for all dialects that write calls in tags.
//!
//! Supported: `<name>`, `</name>`, `<name attributes>`, `<name/>`. A name consists of letters,
//! digits, `_ - . :` and any character outside ASCII; next to the bars of a sentinel also spaces.
//!
//! Unsupported, and therefore plain text: comments, `<!…>`, a space before the name, `<` inside a
//! tag.
//!
//! Grammar as implemented: `'<' '/'? name (blank attributes)? '/'? '>'`; some names may be followed
//! by a stray quote. A tag longer than [`TAG_CAP`] bytes is text.

use crate::dialect::grammar::{TagNotation, is_unclosed_key, name_closed_by};

/// The maximum length of a tag, in bytes.
pub(crate) const TAG_CAP: usize = 256;
/// The maximum length of a name, in bytes.
const NAME_CAP: usize = 128;

/// The result of lexing at a `<`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LexedTag<'w> {
    /// No tag, or an irrelevant one.
    No,
    /// The text ends before the tag does.
    Partial,
    /// A tag.
    Tag(Tag<'w>),
}

/// A complete tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag<'w> {
    /// True for `</…>`.
    pub(crate) close: bool,
    /// The name with its prefix, if any.
    pub(crate) name: &'w str,
    /// The text after the name, without the slash of a self-closing tag.
    pub(crate) attributes: &'w str,
    /// The position of the attributes in the tag.
    attributes_at: usize,
    /// True for `<…/>`.
    pub(crate) empty: bool,
    /// The length of the whole tag, in bytes.
    pub(crate) len: usize,
    /// True if the tag says that its value is JSON.
    pub(crate) json: bool,
}

/// The forms in which a tag with a given name is relevant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagRelevance {
    /// In no form.
    None,
    /// Only without attributes.
    Plain,
    /// In any form.
    Any,
    /// In any form, even with a stray quote directly after the name.
    Quoted,
}

impl<'w> Tag<'w> {
    /// Returns true if the tag has neither attributes nor a slash.
    pub(crate) fn is_plain(&self) -> bool {
        self.attributes.is_empty() && !self.empty
    }

    /// Returns true for `<name>` with that name.
    pub(crate) fn is_opening_tag(&self, name: &str) -> bool {
        !self.close && names_match(self.name, name)
    }

    /// Returns true for `</name>` with that name.
    pub(crate) fn is_closing_tag(&self, name: &str) -> bool {
        self.close && names_match(self.name, name)
    }

    /// Returns the prefix, and the name without it.
    pub(crate) fn split_name(&self) -> (&'w str, &'w str) {
        split_name(self.name)
    }

    /// Returns the same tag, preceded by a marker of that length.
    fn shift_by(self, marker: usize) -> Self {
        Self {
            attributes_at: self.attributes_at + marker,
            len: self.len + marker,
            ..self
        }
    }

    /// Returns the value after an equals sign right after the tag's name (`<function=f>`), with its
    /// position in the tag.
    pub(crate) fn equals_value(&self) -> Option<(usize, &'w str)> {
        let value = self.attributes.strip_prefix('=')?.trim_start();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let at =
            self.attributes_at + self.attributes.len() - value.len() + usize::from(quote.is_some());
        let value = match quote {
            Some(quote) => value.get(1..)?.split(quote).next()?,
            None => value.split(char::is_whitespace).next()?,
        };
        Some((at, value))
    }

    /// Returns the value of an attribute: `key="v"`, `key='v'` or `key=v`, with optional spaces
    /// around `=`.
    pub(crate) fn attribute_value(&self, key: &str) -> Option<&'w str> {
        self.find_attribute(key).map(|(_, value)| value)
    }

    /// Returns the value of an attribute, with its position in the tag.
    pub(crate) fn find_attribute(&self, key: &str) -> Option<(usize, &'w str)> {
        let mut rest = self.attributes.trim_start();
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| c == '=' || c.is_whitespace())
                .unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end)?;
            let Some(after) = after.trim_start().strip_prefix('=') else {
                rest = after.trim_start();
                continue;
            };
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let value_at = self.attributes_at + self.attributes.len() - after.len()
                + usize::from(quote.is_some());
            let (value, after) = match quote {
                Some(quote) => after.get(1..)?.split_once(quote)?,
                None => after
                    .split_at_checked(after.find(char::is_whitespace).unwrap_or(after.len()))?,
            };
            if name == key {
                return Some((value_at, value));
            }
            rest = after.trim_start();
        }
        None
    }
}

/// Splits a name after the last colon or sentinel bar (`｜DSML｜`) of its prefix.
pub(crate) fn split_name(name: &str) -> (&str, &str) {
    // Most names are ASCII without a prefix, so characters are decoded only where a byte calls for
    // it.
    let may_separate = |byte: &u8| matches!(byte, b':' | b'|') || !byte.is_ascii();
    let end = match name.as_bytes().iter().rposition(may_separate) {
        None => 0,
        Some(_) => name
            .char_indices()
            .rfind(|(_, c)| *c == ':' || is_bar(*c))
            .map_or(0, |(at, c)| at + c.len_utf8()),
    };
    let (prefix, base) = name.split_at_checked(end).unwrap_or(("", name));
    (prefix, base.trim_start_matches(' '))
}

/// Returns true if two names are the same. The bars of a sentinel leak in several shapes, with
/// spaces after them; all shapes count as one.
pub(crate) fn names_match(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    if !one.starts_with(is_bar) || !other.starts_with(is_bar) {
        return false;
    }
    let letters = |name: &str| -> Vec<char> {
        let plain = name
            .chars()
            .filter(|c| *c != ' ')
            .map(|c| if is_bar(c) { '|' } else { c });
        let mut letters: Vec<char> = plain.collect();
        // A doubled bar counts as one.
        letters.dedup_by(|next, before| *next == '|' && *before == '|');
        letters
    };
    letters(one) == letters(other)
}

fn is_bar(c: char) -> bool {
    matches!(c, '|' | '｜' | '‖')
}

/// Lexes a tag at the start of `window` in the given notation.
pub(crate) fn lex_in_notation<'w>(
    notation: TagNotation,
    window: &'w str,
    last: bool,
    interest: impl FnOnce(&str, bool) -> TagRelevance,
) -> LexedTag<'w> {
    match notation {
        TagNotation::Angle => lex_tag(window, last, interest),
        TagNotation::Marked(marker) => match window.strip_prefix(marker) {
            Some(rest) if rest.starts_with('<') => match lex_tag(rest, last, interest) {
                LexedTag::Tag(tag) => LexedTag::Tag(tag.shift_by(marker.len())),
                lexed => lexed,
            },
            // The `<` after the marker may still arrive.
            Some("") if !last => LexedTag::Partial,
            None if !last && marker.starts_with(window) => LexedTag::Partial,
            _ => LexedTag::No,
        },
        TagNotation::Delimited { open, close, end } => {
            lex_delimited(window, last, TagDelimiters { open, close, end }, interest)
        }
    }
}

/// The markers of a tag in place of `<`, `</` and `>`.
#[derive(Debug, Clone, Copy)]
struct TagDelimiters<'m> {
    open: &'m str,
    close: &'m str,
    end: &'m str,
}

fn lex_delimited<'w>(
    window: &'w str,
    last: bool,
    delimiters: TagDelimiters<'_>,
    interest: impl FnOnce(&str, bool) -> TagRelevance,
) -> LexedTag<'w> {
    let TagDelimiters { open, close, end } = delimiters;
    let (marker, closes) = if window.starts_with(open) {
        (open, false)
    } else if window.starts_with(close) {
        (close, true)
    } else {
        let partial = !last && (open.starts_with(window) || close.starts_with(window));
        return if partial {
            LexedTag::Partial
        } else {
            LexedTag::No
        };
    };
    let inside = window.get(marker.len()..).unwrap_or_default();
    let mut cap = inside.len().min(TAG_CAP);
    while !inside.is_char_boundary(cap) {
        cap -= 1;
    }
    let Some(length) = inside.get(..cap).and_then(|inside| inside.find(end)) else {
        return if last || inside.len() >= TAG_CAP {
            LexedTag::No
        } else {
            LexedTag::Partial
        };
    };
    let text = inside.get(..length).unwrap_or_default();
    // Its own end is missing, and this is the end of a later tag.
    if text.contains(open) {
        return LexedTag::No;
    }
    // Special tokens written out as text may leave a space before the name.
    let blank = text.len() - text.trim_start().len();
    let text = text.trim_start();
    let name_end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (name, attributes) = text.split_at_checked(name_end).unwrap_or((text, ""));
    if name.is_empty() || interest(name, closes) == TagRelevance::None {
        return LexedTag::No;
    }
    let attributes_at =
        marker.len() + blank + name_end + attributes.len() - attributes.trim_start().len();
    let len = marker.len() + length + end.len();
    LexedTag::Tag(Tag {
        close: closes,
        name,
        attributes: attributes.trim(),
        attributes_at,
        empty: false,
        len,
        json: false,
    })
}

/// Lexes a key and the opening tag of its value as one tag: its name is the key's tag, its
/// attributes are the key.
pub(crate) fn lex_key_value<'w>(
    window: &'w str,
    last: bool,
    key: &str,
    value: &str,
) -> LexedTag<'w> {
    // The pair consists of several tags, so it may be twice as long as one.
    let partial = if last || window.len() >= 2 * TAG_CAP {
        LexedTag::No
    } else {
        LexedTag::Partial
    };
    let LexedTag::Tag(open) = lex_tag(window, last, |name, close| plain_if(name == key && !close))
    else {
        return LexedTag::No;
    };
    let rest = window.get(open.len..).unwrap_or_default();
    let Some(length) = rest.find('<').filter(|length| *length <= TAG_CAP) else {
        return if rest.len() > TAG_CAP {
            LexedTag::No
        } else {
            partial
        };
    };
    let name = rest.get(..length).unwrap_or_default();
    let behind = rest.get(length..).unwrap_or_default();
    let close_len = match is_unclosed_key(key) {
        true => 0,
        false => match lex_tag(behind, last, |name, close| plain_if(name == key && close)) {
            LexedTag::Tag(tag) => tag.len,
            LexedTag::Partial => return partial,
            LexedTag::No => return LexedTag::No,
        },
    };
    let behind = behind.get(close_len..).unwrap_or_default();
    let blank = behind.len() - behind.trim_ascii_start().len();
    if blank > TAG_CAP {
        return LexedTag::No;
    }
    let opening = behind.trim_ascii_start();
    if opening.is_empty() {
        return partial;
    }
    let value = match lex_tag(opening, last, |name, close| {
        if name == value && !close {
            TagRelevance::Any
        } else {
            TagRelevance::None
        }
    }) {
        LexedTag::Tag(tag) => tag,
        LexedTag::Partial => return partial,
        LexedTag::No => return LexedTag::No,
    };
    let len = open.len + length + close_len + blank + value.len;
    // A longer pair would be found or not depending on the chunks.
    if len > 2 * TAG_CAP {
        return LexedTag::No;
    }
    let json = value.attribute_value("encoding") == Some("json");
    LexedTag::Tag(Tag {
        attributes: name.trim(),
        attributes_at: open.len,
        len,
        json,
        ..open
    })
}

fn plain_if(wanted: bool) -> TagRelevance {
    if wanted {
        TagRelevance::Plain
    } else {
        TagRelevance::None
    }
}

/// Lexes a tag at the start of `window`, which begins with `<`.
///
/// `interest` is called as soon as the name is complete, so irrelevant tags never wait for more
/// text. With `last`, no more text will come and nothing is partial.
pub(crate) fn lex_tag<'w>(
    window: &'w str,
    last: bool,
    interest: impl FnOnce(&str, bool) -> TagRelevance,
) -> LexedTag<'w> {
    let partial = |len: usize| {
        if last || len >= TAG_CAP {
            LexedTag::No
        } else {
            LexedTag::Partial
        }
    };
    let bytes = window.as_bytes();
    if !bytes.is_empty() && bytes.first() != Some(&b'<') {
        return LexedTag::No;
    }
    let close = bytes.get(1) == Some(&b'/');
    let start = 1 + usize::from(close);
    let length = name_length(bytes.get(start..).unwrap_or_default());
    let end = start + length;
    if length > NAME_CAP {
        return LexedTag::No;
    }
    let Some(after) = bytes.get(end) else {
        return partial(window.len());
    };
    // Most `<` in code begin no tag, so this check comes before any comparison.
    if length == 0
        || !matches!(
            after,
            b'>' | b' ' | b'\t' | b'\n' | b'\r' | b'/' | b'"' | b'='
        )
    {
        return LexedTag::No;
    }
    let mut name = window.get(start..end).unwrap_or_default();
    let mut close = close;
    if name.starts_with('|')
        && let Some(closed) = name_closed_by(name)
    {
        name = closed;
        close = true;
    }
    let interest = interest(name, close);
    if interest == TagRelevance::None || (*after == b'"' && interest != TagRelevance::Quoted) {
        return LexedTag::No;
    }
    if *after == b'>' {
        return LexedTag::Tag(Tag {
            close,
            name,
            attributes: "",
            attributes_at: end,
            empty: false,
            len: end + 1,
            json: false,
        });
    }
    if interest == TagRelevance::Plain {
        return LexedTag::No;
    }
    let rest = bytes.iter().skip(end).take(TAG_CAP - end);
    // The end must be found within the cap, whatever the chunks are.
    for (offset, byte) in rest.enumerate() {
        match byte {
            // Another tag begins, so this one is not a tag.
            b'<' => return LexedTag::No,
            b'>' => {
                let text = window.get(end..end + offset).unwrap_or_default();
                let attributes_at = end + text.len() - text.trim_start().len();
                let text = text.trim();
                let (attributes, empty) = text
                    .strip_suffix('/')
                    .map_or((text, false), |text| (text.trim_end(), true));
                let len = end + offset + 1;
                return LexedTag::Tag(Tag {
                    close,
                    name,
                    attributes,
                    attributes_at,
                    empty,
                    len,
                    json: false,
                });
            }
            _ => {}
        }
    }
    partial(window.len())
}

/// The bytes of names, as a table: each byte of each tag is looked up, and a chain of comparisons takes several times as long.
#[expect(
    clippy::indexing_slicing,
    reason = "a byte is an index of 256 entries, and this is computed when it is compiled"
)]
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-' | b'.' | b':' | b'|')
            || !byte.is_ascii();
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

/// Returns the length of the name at the start. Next to the bars of a sentinel, a name may contain
/// spaces.
pub(crate) fn name_length(bytes: &[u8]) -> usize {
    let run = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        let rest = rest.get(..=NAME_CAP).unwrap_or(rest);
        let is_end = |byte: &u8| NAME_BYTES.get(usize::from(*byte)) == Some(&false);
        from + rest.iter().position(is_end).unwrap_or(rest.len())
    };
    let mut length = run(0);
    // Ruled out by one byte, since hardly any name begins with a bar.
    if !matches!(bytes.first(), Some(b'|' | 0x80..)) {
        return length;
    }
    let bars = [&b"|"[..], "｜".as_bytes(), "‖".as_bytes()];
    if !bars.iter().any(|bar| bytes.starts_with(bar)) {
        return length;
    }
    // One space after each bar, and one before the second: `｜ DSML ｜ invoke`.
    for _ in 0..3 {
        let (name, rest) = bytes.split_at_checked(length).unwrap_or_default();
        let Some(rest) = rest.strip_prefix(b" ") else {
            break;
        };
        let beside = bars
            .iter()
            .any(|bar| name.ends_with(bar) || rest.starts_with(bar) || bar.starts_with(rest));
        if !beside || length > NAME_CAP {
            break;
        }
        let end = run(length + 1);
        // An attribute after a whole token, as in `|tool_arg:value| encoding="json"`, is no name.
        if bytes.get(end) == Some(&b'=') {
            break;
        }
        // A bar or a `=` may still arrive, so this part may not belong to the name. If the name
        // without it is short enough, the tag must not be ruled out.
        if end == bytes.len() && end > NAME_CAP {
            break;
        }
        length = end;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::{LexedTag, TagRelevance, lex_tag};

    #[test]
    fn a_space_behind_the_longest_name_decides_nothing() {
        let name = format!("｜{}", "x".repeat(super::NAME_CAP - "｜".len()));
        for end in [" ", "  ", " a", " a ", " a='b'"] {
            check(&format!("<{name}{end}"), "partial");
        }
        check(&format!("<{name} ｜"), "partial");
        check(&format!("<{name} ｜ "), "no");
        let barred = format!("{}|", "|".repeat(super::NAME_CAP - 1));
        check(&format!("<{barred} abc"), "partial");
        check(&format!("<{barred} abc="), "partial");
        check(&format!("<{barred} abc>"), "no");
    }

    fn check(text: &str, expected: &str) {
        let shown = match lex_tag(text, false, |_, _| TagRelevance::Any) {
            LexedTag::No => "no".to_owned(),
            LexedTag::Partial => "partial".to_owned(),
            LexedTag::Tag(tag) => {
                format!(
                    "{}{}[{}]{}{}",
                    if tag.close { "/" } else { "" },
                    tag.name,
                    tag.attributes,
                    if tag.empty { "/" } else { "" },
                    tag.len
                )
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn tags() {
        check("<path>x", "path[]6");
        check("</path>", "/path[]7");
        check("<invoke name=\"f\" >x", "invoke[name=\"f\"]18");
        check("<a/>", "a[]/4");
        check("<pa", "partial");
        check("<", "partial");
        check("< path>", "no");
        check("<3", "partial");
        check("<a <b", "no");
        check("<a&b>", "no");
        check("<!-- x", "no");
        check(&format!("<{}", "a".repeat(129)), "no");
        check(&format!("<a {}", "b".repeat(300)), "no");
    }

    #[test]
    fn attributes() {
        let value = |text: &str| match lex_tag(text, true, |_, _| TagRelevance::Any) {
            LexedTag::Tag(tag) => tag.attribute_value("name").map(str::to_owned),
            _ => None,
        };
        assert_eq!(value("<i name=\"f\">").as_deref(), Some("f"));
        assert_eq!(value("<i x name='f g'>").as_deref(), Some("f g"));
        assert_eq!(value("<i id=3 name = f>").as_deref(), Some("f"));
        assert_eq!(value("<i id=3>"), None);
        assert_eq!(value("<i name=\"f>"), None);
        for text in [
            "<i name=\"f\">",
            "<i x name = 'f'/>",
            "<i\n id=\"name\" name=f >",
        ] {
            let LexedTag::Tag(tag) = lex_tag(text, true, |_, _| TagRelevance::Any) else {
                panic!("{text}")
            };
            let (at, value) = tag.find_attribute("name").unwrap();
            assert!(
                text.split_at(at).1.starts_with(value) && value == "f",
                "{text}: {at}"
            );
        }
    }

    #[test]
    fn a_stray_quote_only_where_it_is_expected() {
        let lexed = |interest: TagRelevance| lex_tag("<calls\">x", false, |_, _| interest);
        assert_eq!(lexed(TagRelevance::Any), LexedTag::No);
        assert!(
            matches!(lexed(TagRelevance::Quoted), LexedTag::Tag(tag) if tag.name == "calls" && tag.len == 8)
        );
    }
}
