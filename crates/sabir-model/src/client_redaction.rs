//! Redacts the texts of a provider for clients of a gateway: its secrets, and the address of its
//! server.
//!
//! A text is searched as its reader will see it: the escapes of JSON are resolved, at any depth of
//! JSON inside of JSON, and line breaks are left out, though a name may also end at one. Everything
//! is replaced as a whole or not at all, because a provider that repeats the text of a client would
//! otherwise reveal how much of a guess was right. Only at the end of a text that was cut, a part
//! is replaced.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2, memchr3};

use crate::provider::{KNOWN_PROVIDERS, Provider, host_of};
use crate::secret::{MIN_SECRET_BYTES, Secret};

/// The replacement for a secret.
const SECRET_MARK: &[u8] = b"[secret]";

/// The replacement for an address.
const ADDRESS_MARK: &[u8] = b"[address]";

/// The bytes of an escape such as `\u0073`.
const UNIT_ESCAPE: usize = 6;

/// The length in bytes below which a secret is not searched for in answers of chat models. Servers
/// that need no key get words such as `ollama` or `not-needed` for one.
const MIN_CREDENTIAL_BYTES: usize = 12;

/// The length in bytes from which the beginning of a secret or name at the end of a cut text is
/// replaced. A shorter one may be there by chance.
const MIN_CUT_BYTES: usize = 8;

/// The bytes of an escape in two levels of JSON inside of JSON, such as `\\\\u0073`.
const LONGEST_ESCAPE: usize = UNIT_ESCAPE + 3;

/// Finds the escapes that may stand for a sign of a secret or name.
static UNIT_ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br"\u00"));

/// Finds the secrets and the address of a provider in its texts, and replaces them.
pub struct ClientRedactor {
    /// The secrets, as a reader sees them.
    secrets: Vec<Finder<'static>>,
    /// Those of the secrets that are replaced in what models write.
    credentials: Vec<Finder<'static>>,
    /// The escapes that a text with a secret may have.
    escapes: SearchedEscapes,
    /// The names of the server, in lower case.
    names: Vec<Finder<'static>>,
}

/// The escapes that are resolved before a text is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchedEscapes {
    /// Those of letters, digits and most signs, such as `\u0073`.
    Units,
    /// Also `\"`, `\\` and `\/`.
    All,
}

impl SearchedEscapes {
    /// Returns true if a text may have such escapes, or a line break inside.
    fn may_occur(self, text: &[u8]) -> bool {
        let text = text.trim_ascii_end();
        memchr2(b'\n', b'\r', text).is_some()
            || memchr(b'\\', text).is_some_and(|first| match self {
                Self::Units => UNIT_ESCAPES
                    .find(text.get(first..).unwrap_or_default())
                    .is_some(),
                Self::All => true,
            })
    }
}

impl std::fmt::Debug for ClientRedactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientRedactor").finish_non_exhaustive()
    }
}

impl ClientRedactor {
    /// Collects the secrets and the names of a provider's server. A server that everybody knows keeps
    /// its name, because clients parse names like that.
    pub fn new(provider: &Provider) -> Self {
        let known = provider.all_secrets();
        let secrets: Vec<&str> = known
            .iter()
            .map(Secret::expose)
            .filter(|secret| secret.len() >= MIN_SECRET_BYTES)
            .collect();
        let escapes = match secrets
            .iter()
            .any(|secret| secret.contains(['"', '\\', '/']))
        {
            true => SearchedEscapes::All,
            false => SearchedEscapes::Units,
        };
        let credentials = provider.credentials();
        let credentials: Vec<&str> = credentials
            .iter()
            .map(Secret::expose)
            .filter(|secret| secret.len() >= MIN_CREDENTIAL_BYTES && !is_word_or_number(secret))
            .collect();
        let credentials = make_finders(&credentials);
        let secrets = make_finders(&secrets);
        let names = server_names(&provider.base_url)
            .into_iter()
            .map(|name| Finder::new(&name).into_owned())
            .collect();
        Self {
            secrets,
            credentials,
            escapes,
            names,
        }
    }

    /// Replaces the secrets in a text; `None` if it has none.
    pub fn redact_secrets(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.replace_secrets(text, &self.secrets)
    }

    /// Replaces the secrets in an event of a chat model's answer; `None` if it has none. Those that
    /// may be ordinary words stay: short ones, and values of headers that hold no credential.
    pub fn redact_credentials(&self, event: &[u8]) -> Option<Vec<u8>> {
        self.replace_secrets(event, &self.credentials)
    }

    fn replace_secrets(&self, text: &[u8], secrets: &[Finder<'_>]) -> Option<Vec<u8>> {
        if secrets.is_empty() {
            return None;
        }
        let read = ReadText::new(text, self.escapes, false);
        let found = secrets
            .iter()
            .flat_map(|secret| read.find(secret))
            .collect();
        replace_ranges(text, found, SECRET_MARK)
    }

    /// Replaces the names of the server in a text, in any case, where they are not a part of a longer
    /// name; `None` if it has none.
    pub fn redact_address(&self, text: &[u8]) -> Option<Vec<u8>> {
        // Each name has a dot or a colon.
        if self.names.is_empty() || memchr3(b'.', b':', b'\\', text).is_none() {
            return None;
        }
        let read = ReadText::new(text, SearchedEscapes::Units, true);
        let found = self
            .names
            .iter()
            .flat_map(|name| read.find_names(name))
            .collect();
        replace_ranges(text, found, ADDRESS_MARK)
    }

    /// Replaces the secrets and the names of the server in a text; `None` if it has neither.
    pub fn redact_all(&self, text: &[u8]) -> Option<Vec<u8>> {
        let redacted = self.redact_secrets(text);
        let address = self.redact_address(redacted.as_deref().unwrap_or(text));
        address.or(redacted)
    }

    /// Replaces the secrets and the names of the server in a text.
    pub fn redact_text(&self, text: String) -> String {
        match self.redact_all(text.as_bytes()) {
            Some(redacted) => String::from_utf8_lossy(&redacted).into_owned(),
            None => text,
        }
    }

    /// Returns true for the name of a header that holds neither a secret, in any case, nor a name of
    /// the server.
    pub fn is_header_public(&self, name: &str) -> bool {
        let is_in = |secret: &Finder<'_>| {
            let needle = secret.needle();
            let mut parts = name.as_bytes().windows(needle.len().max(1));
            parts.any(|part| part.eq_ignore_ascii_case(needle))
        };
        !self.secrets.iter().chain(&self.names).any(is_in)
    }

    /// Replaces the beginning of a secret or name at the end of a text that was cut there; `None` if it
    /// has none.
    pub fn redact_cut_end(&self, text: &[u8]) -> Option<Vec<u8>> {
        let marked = |read: ReadText<'_>, patterns: &[Finder<'_>], mark: &[u8]| {
            let beginnings = patterns
                .iter()
                .filter_map(|pattern| read.beginning_at_end(pattern.needle()));
            let start = beginnings.min()?;
            Some([text.get(..start)?, mark].concat())
        };
        let whole = text.get(..text.len() - cut_escape_length(text))?;
        let secrets = ReadText::new(whole, self.escapes, false);
        marked(secrets, &self.secrets, SECRET_MARK).or_else(|| {
            let names = ReadText::new(whole, SearchedEscapes::Units, true);
            marked(names, &self.names, ADDRESS_MARK)
        })
    }

    /// Returns the number of bytes that the longest secret has if all its signs are escaped, in JSON
    /// inside of JSON inside of JSON.
    pub fn longest_secret(&self) -> usize {
        let lengths = self.secrets.iter().map(|secret| secret.needle().len());
        lengths.max().unwrap_or(0) * LONGEST_ESCAPE
    }
}

/// Returns true for a text without letters, which may be a part of a number, or without digits, which
/// may be words, such as `sk-no-key-required`.
fn is_word_or_number(secret: &str) -> bool {
    let has = |is: fn(&u8) -> bool| secret.as_bytes().iter().any(is);
    !has(u8::is_ascii_digit) || !has(u8::is_ascii_alphabetic)
}

/// Returns true for a text that may be a number of JSON.
fn is_number(secret: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-');
    secret.first().is_some_and(u8::is_ascii_digit) && secret.iter().all(is_part)
}

/// Returns true if a number in a text is a part of a longer one, or a number of JSON.
fn is_in_number(text: &[u8], number: &Range<usize>) -> bool {
    let before = text.get(..number.start).unwrap_or_default();
    let after = text.get(number.end..).unwrap_or_default();
    let is_sign = |byte: u8| matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E');
    let continues_before = match before {
        [.., digit, sign] if is_sign(*sign) => digit.is_ascii_digit(),
        [.., last] => last.is_ascii_digit(),
        [] => false,
    };
    let continues_after = match after {
        [sign, digit, ..] if is_sign(*sign) => digit.is_ascii_digit(),
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    };
    if continues_before || continues_after {
        return true;
    }
    let is_between_values = matches!(before.trim_ascii_end(), [.., b':' | b'[' | b',' | b'-'])
        && matches!(after.trim_ascii_start(), [b',' | b']' | b'}', ..]);
    is_between_values && is_behind_string(before)
}

/// Returns true behind a string of JSON, and false inside of one and in a text without any.
fn is_behind_string(before: &[u8]) -> bool {
    let mut quotes = 0;
    let mut is_escaped = false;
    for byte in before {
        match byte {
            b'"' if !is_escaped => quotes += 1,
            b'\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            _ => {}
        }
        is_escaped = false;
    }
    quotes > 0 && quotes % 2 == 0
}

/// Makes a finder of each secret.
fn make_finders(secrets: &[&str]) -> Vec<Finder<'static>> {
    let read = |secret: &str| {
        ReadText::new(secret.as_bytes(), SearchedEscapes::All, false)
            .bytes
            .into_owned()
    };
    let read = secrets.iter().map(|secret| read(secret));
    // Backslashes alone are read as nothing.
    read.filter(|secret| !secret.is_empty())
        .map(|secret| Finder::new(&secret).into_owned())
        .collect()
}

/// Returns the names of the server at an address, in lower case: with its port, and without.
fn server_names(base_url: &str) -> Vec<String> {
    let (_, rest) = base_url.split_once("://").unwrap_or(("", base_url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, authority)| authority)
        .to_ascii_lowercase();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|sign| sign.is_ascii_digit()) => host,
        _ => &authority,
    };
    let is_public = KNOWN_PROVIDERS
        .iter()
        .any(|known| !known.is_local() && host_of(known.base_url) == host);
    if is_public {
        return Vec::new();
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut names: Vec<String> = [&*authority, host, bare]
        .into_iter()
        // A host without dots could be an ordinary word, unless a port follows it.
        .filter(|name| name.contains(['.', ':']) && name.len() > 1)
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

/// A text as its reader sees it.
struct ReadText<'t> {
    /// The text as it is.
    text: &'t [u8],
    /// The bytes, without escapes and line breaks.
    bytes: Cow<'t, [u8]>,
    /// True if their offsets are not those of the text.
    // The ranges of a few bytes are looked up again when they are needed: a table of all would take
    // many times the memory of the text.
    is_resolved: bool,
}

impl<'t> ReadText<'t> {
    /// Resolves the escapes of a text. `folds_case` makes its letters lower case.
    fn new(text: &'t [u8], escapes: SearchedEscapes, folds_case: bool) -> Self {
        let is_resolved = escapes.may_occur(text);
        let mut bytes = Cow::Borrowed(text);
        if is_resolved {
            let mut resolved = Vec::with_capacity(text.len());
            for piece in (TextPieces { text, at: 0 }) {
                resolved.extend_from_slice(piece.read.as_bytes());
            }
            bytes = Cow::Owned(resolved);
        }
        if folds_case {
            bytes.to_mut().make_ascii_lowercase();
        }
        Self {
            text,
            bytes,
            is_resolved,
        }
    }

    /// Returns the ranges of the text in which a secret was found. One that is a number is not replaced in other numbers, or as one
    /// of JSON, which would be no JSON then.
    fn find(&self, secret: &Finder<'_>) -> Vec<Range<usize>> {
        let mut sources = self.sources(&self.find_read(secret));
        if is_number(secret.needle()) {
            sources.retain(|source| !is_in_number(self.text, source));
        }
        sources
    }

    /// Returns the ranges of the text in which a name was found that is not a part of a longer one.
    fn find_names(&self, name: &Finder<'_>) -> Vec<Range<usize>> {
        let found = self.find_read(name);
        let sources = self.sources(&found);
        found
            .iter()
            .zip(sources)
            .filter(|(found, source)| {
                let before = found.start.checked_sub(1).and_then(|at| self.bytes.get(at));
                let after = self.bytes.get(found.end);
                let is_begin =
                    !is_name_part(before) || ends_with_break(self.text.get(..source.start));
                is_begin && (!is_name_part(after) || starts_with_break(self.text.get(source.end..)))
            })
            .map(|(_, source)| source)
            .collect()
    }

    /// Returns the offset in the text of the longest beginning of a pattern with which the text ends.
    fn beginning_at_end(&self, pattern: &[u8]) -> Option<usize> {
        let longest = pattern.len().saturating_sub(1).min(self.bytes.len());
        let length = (MIN_CUT_BYTES..=longest).rev().find(|length| {
            let beginning = pattern.get(..*length);
            beginning.is_some_and(|beginning| self.bytes.ends_with(beginning))
        })?;
        let found = self.bytes.len() - length..self.bytes.len();
        Some(self.sources(&[found]).first()?.start)
    }

    /// Returns the ranges of the read bytes in which a pattern was found.
    fn find_read(&self, pattern: &Finder<'_>) -> Vec<Range<usize>> {
        let length = pattern.needle().len();
        let found = pattern.find_iter(&self.bytes);
        found.map(|at| at..at + length).collect()
    }

    /// Returns 1 if a byte is the letter of an escape such as `\n`, which stays, and 0 otherwise.
    /// Without it the backslash would break the JSON.
    fn escape_letter_at(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        let slashes = before.iter().rev().take_while(|byte| **byte == b'\\');
        let is_letter = self.text.get(at).copied().is_some_and(is_blank_letter);
        usize::from(is_letter && slashes.count() % 2 == 1)
    }

    /// Returns the ranges of the text from which ranges of the read bytes come. They are in order,
    /// and none is empty.
    fn sources(&self, found: &[Range<usize>]) -> Vec<Range<usize>> {
        if !self.is_resolved || found.is_empty() {
            let sources = found.iter().cloned();
            return sources
                .map(|range| range.start + self.escape_letter_at(range.start)..range.end)
                .collect();
        }
        let ends = |range: &Range<usize>| [range.start, range.end.saturating_sub(1)];
        let mut wanted = found.iter().flat_map(ends).peekable();
        let mut sources = Vec::with_capacity(found.len() * 2);
        let mut read = 0;
        for piece in (TextPieces {
            text: self.text,
            at: 0,
        }) {
            let start = read;
            read += piece.read.as_bytes().len();
            while let Some(byte) = wanted.next_if(|byte| *byte < read) {
                sources.push(piece.source_of(byte - start));
            }
            if wanted.peek().is_none() {
                break;
            }
        }
        let pairs = sources.chunks_exact(2);
        pairs
            .filter_map(|pair| Some(pair.first()?.start..pair.last()?.end))
            .collect()
    }
}

/// Splits a text into pieces that are read in the same way.
struct TextPieces<'t> {
    /// The text.
    text: &'t [u8],
    /// The offset of the next piece.
    at: usize,
}

/// A piece of a text.
struct TextPiece<'t> {
    /// The bytes that a reader sees in its place.
    read: ReadPiece<'t>,
    /// The range of the text that they stand for.
    source: Range<usize>,
}

/// The bytes that a reader sees in the place of a piece.
enum ReadPiece<'t> {
    /// The same bytes; none in the place of a line break.
    Same(&'t [u8]),
    /// The character of an escape.
    Escaped(EscapedChar),
}

/// The character of an escape, in UTF-8.
struct EscapedChar {
    /// Its bytes, and unused ones.
    bytes: [u8; 4],
    /// The number of its bytes.
    length: usize,
}

impl ReadPiece<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Same(bytes) => bytes,
            Self::Escaped(char) => char.bytes.get(..char.length).unwrap_or_default(),
        }
    }
}

impl TextPiece<'_> {
    /// Returns the range of the text from which one of the read bytes comes.
    fn source_of(&self, byte: usize) -> Range<usize> {
        let Range { start, end } = self.source;
        match self.read {
            ReadPiece::Same(_) => start + byte..start + byte + 1,
            ReadPiece::Escaped(_) => start..end,
        }
    }
}

impl<'t> Iterator for TextPieces<'t> {
    type Item = TextPiece<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let plain = memchr3(b'\\', b'\n', b'\r', rest).unwrap_or(rest.len());
        if plain > 0 {
            self.at += plain;
            return Some(TextPiece {
                read: ReadPiece::Same(rest.get(..plain)?),
                source: start..self.at,
            });
        }
        // JSON inside of JSON has more than one backslash.
        let slashes = count_leading(rest, |byte| byte == b'\\');
        let after = rest.get(slashes..)?;
        let breaks = count_leading(after, is_line_break);
        let Some(sign) = after.first().filter(|_| breaks == 0) else {
            self.at += slashes + breaks;
            return Some(TextPiece {
                read: ReadPiece::Same(&[]),
                source: start..self.at,
            });
        };
        let unit = (*sign == b'u')
            .then(|| after.get(1..UNIT_ESCAPE - 1))
            .flatten()
            .and_then(parse_unit);
        let Some(char) = unit else {
            self.at += slashes + 1;
            let char = EscapedChar {
                bytes: [*sign, 0, 0, 0],
                length: 1,
            };
            // Backslashes that are no part of the sign's escape stay when it is replaced.
            let own = match sign {
                b'"' | b'/' => slashes,
                _ => slashes % 2,
            };
            return Some(TextPiece {
                read: ReadPiece::Escaped(char),
                source: start + slashes - own..self.at,
            });
        };
        self.at += slashes + UNIT_ESCAPE - 1;
        let mut bytes = [0; 4];
        let length = char.encode_utf8(&mut bytes).len();
        Some(TextPiece {
            read: ReadPiece::Escaped(EscapedChar { bytes, length }),
            source: start..self.at,
        })
    }
}

/// Returns the length of an escape at the end of a text whose rest was cut off.
fn cut_escape_length(text: &[u8]) -> usize {
    let digits = text
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.take(UNIT_ESCAPE).count();
    let before = text.get(..text.len() - digits).unwrap_or_default();
    let letter = match before {
        [.., b'\\', b'u'] if digits < UNIT_ESCAPE - 2 => digits + 1,
        _ => 0,
    };
    let before = text.get(..text.len() - letter).unwrap_or_default();
    let slashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    letter + slashes.count()
}

/// Returns the number of bytes at the start of a text that satisfy a condition.
fn count_leading(text: &[u8], is_counted: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_counted(**byte)).count()
}

/// Returns true for a byte that can be a part of a server's name.
fn is_name_part(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Returns true for a byte that breaks a line.
fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Returns true for the letter of a JSON escape that is white space, such as `\n`.
fn is_blank_letter(letter: u8) -> bool {
    matches!(letter, b'n' | b'r' | b't' | b'f' | b'b')
}

/// Returns true for a text that ends with a line break, or with an escape for white space.
fn ends_with_break(text: Option<&[u8]>) -> bool {
    match text {
        Some([.., b'\\', letter]) => is_blank_letter(*letter),
        Some([.., byte]) => is_line_break(*byte),
        _ => false,
    }
}

/// Returns true for a text that starts with a line break, or with an escape for white space.
fn starts_with_break(text: Option<&[u8]>) -> bool {
    let text = text.unwrap_or_default();
    let slashes = count_leading(text, |byte| byte == b'\\');
    let sign = text.get(slashes).copied();
    sign.is_some_and(|sign| is_line_break(sign) || slashes > 0 && is_blank_letter(sign))
}

/// Parses the four digits of an escape. Half of a pair is no sign of a secret or name.
fn parse_unit(digits: &[u8]) -> Option<char> {
    let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|_| is_hexadecimal)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    Some(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// Replaces ranges of a text, those that overlap by a single mark; `None` if there are none.
fn replace_ranges(text: &[u8], mut ranges: Vec<Range<usize>>, mark: &[u8]) -> Option<Vec<u8>> {
    if ranges.is_empty() {
        return None;
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut replaced = Vec::with_capacity(text.len());
    let mut done = 0;
    for range in ranges {
        if range.start >= done {
            replaced.extend_from_slice(text.get(done..range.start).unwrap_or_default());
            replaced.extend_from_slice(mark);
        }
        done = done.max(range.end);
    }
    replaced.extend_from_slice(text.get(done..).unwrap_or_default());
    Some(replaced)
}

#[cfg(test)]
mod tests {
    use sabir_wire::Wire;

    use super::*;

    fn redactor(base: &str) -> ClientRedactor {
        let key = Some(Secret::new("sk-a\"b\\c/d"));
        let mut provider = Provider::new("box", Wire::OpenAiChat, base, key);
        let headers = &mut provider.headers;
        headers.push(("x-long".to_owned(), Secret::new("sk-longer-key")));
        headers.push(("x-short".to_owned(), Secret::new("sk-longer")));
        ClientRedactor::new(&provider)
    }

    fn redact(base: &str, text: &str) -> String {
        let redacted = redactor(base).redact_all(text.as_bytes());
        redacted.map_or_else(|| text.to_owned(), |text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_number_as_a_secret_leaves_the_numbers_of_json() {
        let key = Some(Secret::new("123456"));
        let provider = Provider::new("box", Wire::OpenAiChat, "https://x.example", key);
        let redactor = ClientRedactor::new(&provider);
        for (text, expected) in [
            (r#"{"n": 123456, "m": [0.123456, -123456,123456]}"#, None),
            (r#"{"n": 1123456, "m": 1234567, "o": 1e123456}"#, None),
            (
                r#"{"a": "key: 123456, 123456."}"#,
                Some(r#"{"a": "key: [secret], [secret]."}"#),
            ),
            (
                r#"{"a\"": "\"123456, b"}"#,
                Some(r#"{"a\"": "\"[secret], b"}"#),
            ),
            ("key: 123456, no", Some("key: [secret], no")),
            ("Wrong key 123456.", Some("Wrong key [secret].")),
        ] {
            let redacted = redactor.redact_secrets(text.as_bytes());
            let redacted = redacted.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(redacted.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn secrets_are_found_as_a_reader_sees_them() {
        for (text, expected) in [
            (r#"a sk-a"b\c/d b"#, "a [secret] b"),
            (
                r#"{"a": "sk-a\"b\\c\/d", "b": "\u0041"}"#,
                r#"{"a": "[secret]", "b": "\u0041"}"#,
            ),
            (
                r#"{"a": "\n\u0073\u006B-longer\u002dkey\n"}"#,
                r#"{"a": "\n[secret]\n"}"#,
            ),
            // JSON in a string of JSON in a string of JSON.
            (r#"\\\"\\\\u0073k-longer-key\\\""#, r#"\\\"[secret]\\\""#),
            ("sk-longer-keysk-longer", "[secret][secret]"),
            ("sk-lon\r\nger-key", "[secret]"),
            // A part of a key shows nothing about the rest.
            (
                r"sk-longe sk-a \u0073k-longe",
                r"sk-longe sk-a \u0073k-longe",
            ),
            (r"\u00 \u \", r"\u00 \u \"),
            (r"sk-\longer-key \u00", r"[secret] \u00"),
            // Backslashes in front of a key are not a part of it.
            (r"C:\\sk-longer-key \u0041", r"C:\\[secret] \u0041"),
            (r"C:\\\sk-longer-key \u0041", r"C:\\[secret] \u0041"),
        ] {
            assert_eq!(redact("http://box", text), expected);
        }
        assert_eq!(
            redactor("http://box").redact_secrets(b"\xff sk-longe"),
            None
        );
        let redacted = redactor("http://box").redact_secrets(b"\xff sk-longer \xfe");
        assert_eq!(redacted.unwrap(), b"\xff [secret] \xfe");
    }

    #[test]
    fn the_letter_of_an_escape_before_a_secret_stays() {
        let key = Some(Secret::new("nsk-0123456789"));
        let provider = Provider::new("box", Wire::OpenAiChat, "http://box", key);
        let redactor = ClientRedactor::new(&provider);
        for (text, expected) in [
            (r#""line\nsk-0123456789""#, r#""line\n[secret]""#),
            (r#""line\\nsk-0123456789""#, r#""line\\[secret]""#),
            (r#""line\nnsk-0123456789""#, r#""line\n[secret]""#),
        ] {
            let redacted = redactor.redact_credentials(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(redacted).unwrap(), expected);
        }
    }

    #[test]
    fn credentials_in_parameters_of_the_address_are_secrets() {
        let base = "https://box.example/v1?api-version=2025-01-01&Api-Token=ab%2Fcd012345678#x";
        let provider = Provider::new("box", Wire::OpenAiChat, base, None);
        let redactor = ClientRedactor::new(&provider);
        let text = b"?api-version=2025-01-01&Api-Token=ab%2Fcd012345678, or ab/cd012345678";
        let expected = "?api-version=2025-01-01&Api-Token=[secret], or [secret]";
        for redacted in [
            redactor.redact_secrets(text),
            redactor.redact_credentials(text),
        ] {
            assert_eq!(String::from_utf8(redacted.unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn chat_answers_keep_secrets_that_may_be_words() {
        for word in ["not-needed", "sk-no-key-required", "123456789012"] {
            let key = Some(Secret::new(word));
            let provider = Provider::new("box", Wire::OpenAiChat, "http://box", key);
            let redactor = ClientRedactor::new(&provider);
            assert!(redactor.redact_credentials(word.as_bytes()).is_none());
        }
        let key = Some(Secret::new("not-needed"));
        let mut provider = Provider::new("box", Wire::OpenAiChat, "http://box", key);
        for (name, value) in [
            ("X-Empty-Key", r"\\\\\\\\\\\\"),
            ("X-Title", "a long assistant"),
            ("X-Api-Key", "key-0123456789"),
        ] {
            provider.headers.push((name.to_owned(), Secret::new(value)));
        }
        let redactor = ClientRedactor::new(&provider);
        let text = br"not-needed, a long assistant, key-0123\u003456789";
        let redacted = |text: Option<Vec<u8>>| String::from_utf8(text.unwrap()).unwrap();
        assert_eq!(
            redacted(redactor.redact_credentials(text)),
            "not-needed, a long assistant, [secret]"
        );
        assert_eq!(
            redacted(redactor.redact_secrets(text)),
            "[secret], [secret], [secret]"
        );
    }

    #[test]
    fn the_beginning_of_a_secret_at_a_cut_is_redacted() {
        let redactor = redactor("http://gpu.example.lan:8000");
        for (text, expected) in [
            ("bad sk-longer", Some("bad [secret]")),
            ("bad sk-longer-ke", Some("bad [secret]")),
            (r"bad \u0073k-longer\u002", Some("bad [secret]")),
            (r"bad sk-longer-\\u", Some("bad [secret]")),
            ("bad sk-lon\nger\\", Some("bad [secret]")),
            ("at GPU.exam", Some("at [address]")),
            ("at gpu.example.lan:80", Some("at [address]")),
            // Too short, or followed by something else.
            ("bad sk-long", None),
            ("bad sk-longer ", None),
            ("", None),
            (r"\u00", None),
        ] {
            let redacted = redactor.redact_cut_end(text.as_bytes());
            let redacted = redacted.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(redacted.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_address_is_redacted_for_clients() {
        let text = "http://box:8000/v1 of box at box:8000 refused 10.0.0.7";
        assert_eq!(
            redact("http://box:8000/v1", text),
            "http://[address]/v1 of box at [address] refused 10.0.0.7"
        );
        assert_eq!(
            redact("http://10.0.0.7:81?x=1", text),
            "http://box:8000/v1 of box at box:8000 refused [address]"
        );
        assert_eq!(
            redact("https://gpu.lan", "see https://gpu.lan:443/x"),
            "see https://[address]:443/x"
        );
        // Libraries write hosts in lower case, and addresses without brackets.
        assert_eq!(
            redact("http://GPU.lan:8000", "gpu.lan:8000 and my-gpu.lan"),
            "[address] and my-gpu.lan"
        );
        assert_eq!(
            redact("http://[fd00::1]:8000", "fd00::1 port 8000"),
            "[address] port 8000"
        );
        assert_eq!(
            redact("http://10.0.0.7", "10.0.0.70 but 10.0.0.7."),
            "10.0.0.70 but [address]."
        );
        // A line break ends a name, but a name may also be split over two lines.
        for break_of_line in ["\n", "\r\n", r"\n", r"\t", r"\r", r"\\n", r"\u000a"] {
            let text = |address: &str| {
                format!("failed:{break_of_line}{address}{break_of_line}please {address}")
            };
            for address in ["10.0.0.7", "10.0.0.7:81"] {
                assert_eq!(
                    redact("http://10.0.0.7:81", &text(address)),
                    text("[address]")
                );
            }
        }
        assert_eq!(
            redact(
                "http://10.0.0.7",
                "at 10.0.\n0.7\nnow, \\u0031\\n0.0.7 \\x10.0.0.7"
            ),
            "at [address]\nnow, \\u0031\\n0.0.7 \\x10.0.0.7"
        );
        // Known to everybody, and clients parse such names.
        let public = "service generativelanguage.googleapis.com";
        assert_eq!(
            redact("https://generativelanguage.googleapis.com", public),
            public
        );
        assert_eq!(redact("http://box", text), text);
        assert_eq!(redact("", text), text);
    }
}
