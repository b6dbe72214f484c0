//! Redacts the texts of a provider for clients of a gateway: its secrets, and the address of its
//! server.
//!
//! A text is searched as its reader will see it: the escapes of JSON are resolved, at any depth of
//! JSON inside of JSON, and line breaks are left out. Everything is replaced as a whole or not at
//! all, because a provider that repeats the text of a client would otherwise reveal how much of a
//! guess was right.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::{self, Finder};
use memchr::{memchr, memchr2, memchr3};

use crate::provider::{KNOWN_PROVIDERS, Provider, host_of};
use crate::secret::{MIN_SECRET_BYTES, Secret};

/// The replacement for a secret.
const SECRET_MARK: &[u8] = b"[secret]";

/// The replacement for an address.
const ADDRESS_MARK: &[u8] = b"[address]";

/// The bytes of an escape such as `\u0073`.
const UNIT_ESCAPE: usize = 6;

/// Finds the secrets and the address of a provider in its texts, and replaces them.
#[derive(Default)]
pub struct ClientRedactor {
    /// The secrets, as a reader sees them.
    secrets: Vec<Finder<'static>>,
    /// The escapes that a text with a secret may have.
    escapes: SearchedEscapes,
    /// The names of the server, in lower case.
    names: Vec<Finder<'static>>,
}

/// The escapes that are resolved before a text is searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SearchedEscapes {
    /// Those of letters, digits and most signs, such as `\u0073`.
    #[default]
    Units,
    /// Also `\"`, `\\` and `\/`.
    All,
}

impl SearchedEscapes {
    /// Returns true if a text may have such escapes, or a line break inside.
    fn may_occur(self, text: &[u8]) -> bool {
        let text = text.trim_ascii_end();
        memchr2(b'\n', b'\r', text).is_some()
            || match self {
                Self::Units => memmem::find(text, br"\u00").is_some(),
                Self::All => memchr(b'\\', text).is_some(),
            }
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
        let secrets = secrets
            .into_iter()
            .map(|secret| {
                Finder::new(&*ReadText::new(secret.as_bytes(), SearchedEscapes::All, false).bytes)
                    .into_owned()
            })
            .collect();
        let names = server_names(&provider.base_url)
            .into_iter()
            .map(|name| Finder::new(&name).into_owned())
            .collect();
        Self {
            secrets,
            escapes,
            names,
        }
    }

    /// Replaces the secrets in a text; `None` if it has none.
    pub fn redact_secrets(&self, text: &[u8]) -> Option<Vec<u8>> {
        if self.secrets.is_empty() {
            return None;
        }
        let read = ReadText::new(text, self.escapes, false);
        let found = self
            .secrets
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

    /// Returns the number of bytes that the longest secret has if all its signs are escaped.
    pub fn longest_secret(&self) -> usize {
        let lengths = self.secrets.iter().map(|secret| secret.needle().len());
        lengths.max().unwrap_or(0) * UNIT_ESCAPE
    }
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

/// A text as its reader sees it, with the ranges from which its bytes come.
struct ReadText<'t> {
    /// The bytes, without escapes and line breaks.
    bytes: Cow<'t, [u8]>,
    /// The range in the text of each byte; empty if the offsets are the same.
    sources: Vec<Range<usize>>,
}

impl<'t> ReadText<'t> {
    /// Resolves the escapes of a text. `folds_case` makes its letters lower case.
    fn new(text: &'t [u8], escapes: SearchedEscapes, folds_case: bool) -> Self {
        let mut read = Self {
            bytes: Cow::Borrowed(text),
            sources: Vec::new(),
        };
        if escapes.may_occur(text) {
            read.resolve_escapes(text);
        }
        if folds_case {
            read.bytes.to_mut().make_ascii_lowercase();
        }
        read
    }

    fn resolve_escapes(&mut self, text: &[u8]) {
        let mut bytes = Vec::with_capacity(text.len());
        let mut sources = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            // JSON inside of JSON has more than one backslash.
            let slashes = rest.iter().take_while(|byte| **byte == b'\\').count();
            let Some(sign) = rest.get(slashes) else {
                break;
            };
            let unit = (slashes > 0 && *sign == b'u')
                .then(|| rest.get(slashes + 1..slashes + UNIT_ESCAPE - 1))
                .flatten()
                .and_then(parse_unit);
            let end = at + slashes + unit.map_or(1, |_| UNIT_ESCAPE - 1);
            match unit {
                Some(char) => {
                    let mut buffer = [0; 4];
                    for byte in char.encode_utf8(&mut buffer).bytes() {
                        bytes.push(byte);
                        sources.push(at..end);
                    }
                }
                None if matches!(sign, b'\n' | b'\r') => {}
                None => {
                    bytes.push(*sign);
                    sources.push(at..end);
                }
            }
            at = end;
        }
        self.bytes = Cow::Owned(bytes);
        self.sources = sources;
    }

    /// Returns the ranges of the text in which a pattern was found.
    fn find(&self, pattern: &Finder<'_>) -> Vec<Range<usize>> {
        let length = pattern.needle().len();
        pattern
            .find_iter(&self.bytes)
            .filter_map(|at| self.source(at..at + length))
            .collect()
    }

    /// Returns the ranges of the text in which a name was found that is not a part of a longer one.
    fn find_names(&self, name: &Finder<'_>) -> Vec<Range<usize>> {
        let length = name.needle().len();
        let is_part = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        };
        name.find_iter(&self.bytes)
            .filter(|at| {
                let before = at.checked_sub(1).and_then(|before| self.bytes.get(before));
                !is_part(before) && !is_part(self.bytes.get(at + length))
            })
            .filter_map(|at| self.source(at..at + length))
            .collect()
    }

    /// Returns the range of the text from which a range of bytes comes.
    fn source(&self, found: Range<usize>) -> Option<Range<usize>> {
        if self.sources.is_empty() {
            return Some(found);
        }
        let first = self.sources.get(found.start)?;
        let last = self.sources.get(found.end.checked_sub(1)?)?;
        Some(first.start..last.end)
    }
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
