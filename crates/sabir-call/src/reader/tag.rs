//! Tags: the one lexer under all dialects that spell calls with angle brackets.
//!
//! Supported: `<name>`, `</name>`, `<name attributes>`, `<name/>`. A name is letters, digits, `_ - . :` and anything
//! outside ASCII. Unsupported, and so plain text: comments, `<!…>`, a space before the name, `<` inside a tag.
//!
//! Grammar as implemented: `'<' '/'? name (blank attributes)? '/'? '>'`; some names may carry a stray quote. A tag longer than [`TAG_CAP`] bytes is text.

/// The longest tag, in bytes.
pub(crate) const TAG_CAP: usize = 256;
/// The longest name, in bytes.
const NAME_CAP: usize = 128;

/// What stands at a `<`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lexed<'w> {
    /// No tag, or none that matters here.
    No,
    /// The text ends before that is known.
    Partial,
    /// A tag.
    Tag(Tag<'w>),
}

/// A whole tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag<'w> {
    /// `</…>`.
    pub(crate) close: bool,
    /// The name with its prefix, if any.
    pub(crate) name: &'w str,
    /// What follows the name, without the slash of a self-closing tag.
    pub(crate) attributes: &'w str,
    /// Where in the tag the attributes begin.
    attributes_at: usize,
    /// `<…/>`.
    pub(crate) empty: bool,
    /// Length of the whole tag in bytes.
    pub(crate) len: usize,
}

/// How much of a tag matters, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Not at all.
    None,
    /// Only without attributes.
    Plain,
    /// In any form.
    Any,
    /// In any form, even with a stray quote right behind the name.
    Quoted,
}

impl<'w> Tag<'w> {
    /// Neither attributes nor a slash.
    pub(crate) fn is_plain(&self) -> bool {
        self.attributes.is_empty() && !self.empty
    }

    /// `<name>` of exactly that name.
    pub(crate) fn opens(&self, name: &str) -> bool {
        !self.close && self.name == name
    }

    /// `</name>` of exactly that name.
    pub(crate) fn closes(&self, name: &str) -> bool {
        self.close && self.name == name
    }

    /// The name without a prefix such as `antml:`, and that prefix with its colon.
    pub(crate) fn split_name(&self) -> (&'w str, &'w str) {
        match self.name.rfind(':').and_then(|at| self.name.split_at_checked(at + 1)) {
            Some((prefix, base)) => (prefix, base),
            None => ("", self.name),
        }
    }

    /// The value of an attribute: `key="v"`, `key='v'` or `key=v`, blanks around `=` allowed.
    pub(crate) fn attribute(&self, key: &str) -> Option<&'w str> {
        self.find_attribute(key).map(|(_, value)| value)
    }

    /// The value of an attribute, after its place in the tag.
    pub(crate) fn find_attribute(&self, key: &str) -> Option<(usize, &'w str)> {
        let mut rest = self.attributes.trim_start();
        while !rest.is_empty() {
            let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end)?;
            let Some(after) = after.trim_start().strip_prefix('=') else {
                rest = after.trim_start();
                continue;
            };
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let value_at = self.attributes_at + self.attributes.len() - after.len() + usize::from(quote.is_some());
            let (value, after) = match quote {
                Some(quote) => after.get(1..)?.split_once(quote)?,
                None => after.split_at_checked(after.find(char::is_whitespace).unwrap_or(after.len()))?,
            };
            if name == key {
                return Some((value_at, value));
            }
            rest = after.trim_start();
        }
        None
    }
}

/// Lexes the tag at the start of `window`, which begins with `<`.
///
/// `interest` is asked as soon as the name is whole, so that a tag which does not matter is never waited for. With
/// `last`, no more text will come and nothing is partial.
pub(crate) fn lex<'w>(window: &'w str, last: bool, interest: impl FnOnce(&str, bool) -> Interest) -> Lexed<'w> {
    let partial = |len: usize| if last || len >= TAG_CAP { Lexed::No } else { Lexed::Partial };
    let bytes = window.as_bytes();
    let close = bytes.get(1) == Some(&b'/');
    let start = 1 + usize::from(close);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':') || !b.is_ascii();
    let length = bytes.iter().skip(start).take_while(|b| is_name(b)).take(NAME_CAP + 1).count();
    let end = start + length;
    if length > NAME_CAP {
        return Lexed::No;
    }
    let Some(after) = bytes.get(end) else { return partial(window.len()) };
    // Most of what begins with `<` in code is no tag at all: that must be seen before anything is compared.
    if length == 0 || !matches!(after, b'>' | b' ' | b'\t' | b'\n' | b'\r' | b'/' | b'"') {
        return Lexed::No;
    }
    let name = window.get(start..end).unwrap_or_default();
    let interest = interest(name, close);
    if interest == Interest::None || (*after == b'"' && interest != Interest::Quoted) {
        return Lexed::No;
    }
    if *after == b'>' {
        return Lexed::Tag(Tag { close, name, attributes: "", attributes_at: end, empty: false, len: end + 1 });
    }
    if interest == Interest::Plain {
        return Lexed::No;
    }
    let rest = bytes.iter().skip(end).take(TAG_CAP - end);
    for (offset, byte) in rest.enumerate() {
        match byte {
            b'<' => return Lexed::No,
            b'>' => {
                let text = window.get(end..end + offset).unwrap_or_default();
                let attributes_at = end + text.len() - text.trim_start().len();
                let text = text.trim();
                let (attributes, empty) = text.strip_suffix('/').map_or((text, false), |text| (text.trim_end(), true));
                return Lexed::Tag(Tag { close, name, attributes, attributes_at, empty, len: end + offset + 1 });
            }
            _ => {}
        }
    }
    partial(window.len())
}

#[cfg(test)]
mod tests {
    use super::{Interest, Lexed, lex};

    fn check(text: &str, expected: &str) {
        let shown = match lex(text, false, |_, _| Interest::Any) {
            Lexed::No => "no".to_owned(),
            Lexed::Partial => "partial".to_owned(),
            Lexed::Tag(tag) => {
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
        let value = |text: &str| match lex(text, true, |_, _| Interest::Any) {
            Lexed::Tag(tag) => tag.attribute("name").map(str::to_owned),
            _ => None,
        };
        assert_eq!(value("<i name=\"f\">").as_deref(), Some("f"));
        assert_eq!(value("<i x name='f g'>").as_deref(), Some("f g"));
        assert_eq!(value("<i id=3 name = f>").as_deref(), Some("f"));
        assert_eq!(value("<i id=3>"), None);
        assert_eq!(value("<i name=\"f>"), None);
        for text in ["<i name=\"f\">", "<i x name = 'f'/>", "<i\n id=\"name\" name=f >"] {
            let Lexed::Tag(tag) = lex(text, true, |_, _| Interest::Any) else { panic!("{text}") };
            let (at, value) = tag.find_attribute("name").unwrap();
            assert!(text.split_at(at).1.starts_with(value) && value == "f", "{text}: {at}");
        }
    }

    #[test]
    fn a_stray_quote_only_where_it_is_expected() {
        let lexed = |interest: Interest| lex("<calls\">x", false, |_, _| interest);
        assert_eq!(lexed(Interest::Any), Lexed::No);
        assert!(matches!(lexed(Interest::Quoted), Lexed::Tag(tag) if tag.name == "calls" && tag.len == 8));
    }
}
