//! Removes secrets from text that is written to disk, by recognizing their formats.
//!
//! Journals, JSON lines, recordings and logs are kept and shared. Text sent to a model stays
//! unchanged, because edits depend on every byte; text that is *written down* passes through here.
//! A marker such as `[redacted: GitHub token]` replaces each secret, so a reader sees that
//! something was removed.
//!
//! **Only the format counts.** A pattern must be specific: a vendor's prefix plus the length and
//! alphabet of its keys, delimited on both sides. Variable names and the entropy of a text are not
//! considered, so hashes, ids and lock files stay readable. A password without a known format is
//! not found. `redact/secret_patterns.rs` is the table.
//!
//! Each byte is examined a bounded number of times, at most about 1,700 bytes are held back, and
//! chunk boundaries do not change the result.
//!
//! ```
//! use sabir_call::redact;
//!
//! let said = format!("push with ghp_{} please", "0123456789abcdef".repeat(3));
//! assert_eq!(redact::redact_text(&said), "push with [redacted: GitHub token] please");
//!
//! // The same, as it streams.
//! let mut redactor = redact::Redactor::default();
//! let mut shown: String = said.split_inclusive('_').map(|piece| redactor.redact_piece(piece)).collect();
//! shown.push_str(&redactor.finish_text());
//! assert_eq!(shown, redact::redact_text(&said));
//! ```

mod secret_patterns;

use std::borrow::Cow;

use secret_patterns::{SecretMatch, SecretRest, SecretScan};

/// The number of preceding bytes that can decide whether a secret begins.
const CONTEXT: usize = 24;

/// A streaming redactor for text that arrives in pieces.
#[derive(Debug, Default)]
pub struct Redactor {
    /// The last bytes that were emitted (as context), followed by the bytes that are held back.
    held: Vec<u8>,
    /// The position in `held` where the held-back bytes begin.
    at: usize,
    /// The position in `held` after the last secret. Context does not reach before it, because a
    /// marker was written there.
    fresh: usize,
    /// The length of `held` below which another scan is not worthwhile.
    next_scan_len: usize,
    /// The continuation of the last secret.
    rest: SecretRest,
}

/// A piece of redacted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedactedPiece<'a> {
    /// Nothing secret.
    Plain(&'a [u8]),
    /// The known beginning of a secret.
    Secret {
        /// The kind of secret.
        name: &'static str,
        /// The number of bytes.
        bytes: usize,
    },
    /// A continuation of the previous secret, in bytes.
    More(usize),
}

/// Returns the text without secrets.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut shown = Vec::new();
    let mut found = false;
    let mut redactor = Redactor::default();
    let mut take = |piece: RedactedPiece<'_>| {
        found |= !matches!(piece, RedactedPiece::Plain(_));
        piece.write_to(&mut shown);
    };
    redactor.push(text.as_bytes(), &mut take);
    redactor.finish(&mut take);
    if found {
        Cow::Owned(String::from_utf8_lossy(&shown).into_owned())
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns a JSON text without the secrets in its strings, escaped or not; everything else stays
/// unchanged. A text without string literals is redacted as plain text.
pub fn redact_json(json: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    // `copied` is the end of the input that is already in `shown`.
    let mut copied = 0;
    let mut from = 0;
    while let Some((begin, end)) = next_literal(json.as_bytes(), from) {
        from = end;
        let Some(quoted) = json.get(begin..end) else {
            break;
        };
        if let Some(changed) = redact_literal(quoted) {
            shown.push_str(json.get(copied..begin).unwrap_or_default());
            shown.push_str(&changed);
            copied = end;
        }
    }
    // Without a single string literal this is not JSON with contents worth parsing.
    if from == 0 {
        return redact_text(json);
    }
    if copied == 0 {
        Cow::Borrowed(json)
    } else {
        Cow::Owned(shown + json.get(copied..).unwrap_or_default())
    }
}

/// Returns the start and end of the next string literal, including its quotes; an unterminated one
/// ends with the text.
fn next_literal(json: &[u8], from: usize) -> Option<(usize, usize)> {
    let begin = from + memchr::memchr(b'"', json.get(from..)?)?;
    let mut at = begin + 1;
    while let Some(next) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += next + 1;
        if json.get(at - 1) == Some(&b'"') {
            return Some((begin, at));
        }
        // A backslash: the character after it is escaped, even if it is a quote.
        at += 1;
    }
    Some((begin, json.len()))
}

/// Returns a literal without its secrets, or `None` if it holds none.
fn redact_literal(literal: &str) -> Option<String> {
    // Escapes are decoded first, because a secret may contain one (`\/`) and an escape may resemble
    // part of a secret. Literals without escapes are not parsed, since that would copy the whole
    // text.
    let decoded = if literal.contains('\\') {
        serde_json::from_str::<String>(literal).ok()
    } else {
        None
    };
    match decoded {
        Some(decoded) => match redact_text(&decoded) {
            Cow::Borrowed(_) => None,
            Cow::Owned(changed) => serde_json::to_string(&changed).ok(),
        },
        None => {
            let inner = literal.strip_prefix('"').unwrap_or(literal);
            let (inner, close) = inner
                .strip_suffix('"')
                .map_or((inner, ""), |inner| (inner, "\""));
            match redact_text(inner) {
                Cow::Borrowed(_) => None,
                // A redaction marker needs no escapes, so the literal stays valid JSON.
                Cow::Owned(changed) => Some(format!("\"{changed}{close}")),
            }
        }
    }
}

impl Redactor {
    /// Redacts the decided part of the next piece of a text.
    pub fn redact_piece(&mut self, piece: &str) -> String {
        let mut shown = Vec::new();
        self.push(piece.as_bytes(), &mut |piece| piece.write_to(&mut shown));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Returns the redacted text that was held back, at the end of a text. The next piece begins a
    /// new text.
    pub fn finish_text(&mut self) -> String {
        let mut shown = Vec::new();
        self.finish(&mut |piece| piece.write_to(&mut shown));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Processes more bytes and emits the decided part in order, each byte in exactly one piece.
    pub fn push(&mut self, bytes: &[u8], take: &mut impl FnMut(RedactedPiece<'_>)) {
        // A secret may be split anywhere between two chunks, so the bytes are joined before they
        // are matched.
        self.held.extend_from_slice(bytes);
        if self.held.len() >= self.next_scan_len {
            self.process_held(false, take);
        }
    }

    /// Emits everything that was held back: the text has ended.
    pub fn finish(&mut self, take: &mut impl FnMut(RedactedPiece<'_>)) {
        self.process_held(true, take);
        *self = Self::default();
    }

    /// Returns the number of bytes that are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len() - self.at
    }

    /// Emits what is decided of the held bytes, and keeps the rest with its context.
    fn process_held(&mut self, ended: bool, take: &mut impl FnMut(RedactedPiece<'_>)) {
        let mut undecided = false;
        while self.at < self.held.len() && !undecided {
            let more = self
                .rest
                .take_bytes(self.held.get(self.at..).unwrap_or_default());
            if more > 0 {
                take(RedactedPiece::More(more));
                self.at += more;
                self.fresh = self.at;
                continue;
            }
            // The last secret has ended.
            self.rest = SecretRest::Nothing;
            undecided = self.emit_plain(ended, take);
        }
        let known = self.at.saturating_sub(CONTEXT);
        // The last emitted bytes stay as context for the start of the next secret.
        self.held.drain(..known);
        self.at -= known;
        self.fresh = self.fresh.saturating_sub(known);
        // The next scan waits for a quarter more text, so that single bytes do not take quadratic
        // time.
        let held = self.held_bytes();
        self.next_scan_len = if undecided {
            self.held.len() + 1 + held / 4
        } else {
            0
        };
    }

    /// Emits the text before the next secret, and its beginning. Returns true if later text may
    /// still become one.
    fn emit_plain(&mut self, ended: bool, take: &mut impl FnMut(RedactedPiece<'_>)) -> bool {
        let (begin, secret, undecided) = self.find_next(ended);
        let plain = begin + secret.as_ref().map_or(0, |secret| secret.from);
        match self.held.get(self.at..plain) {
            Some(bytes) if !bytes.is_empty() => take(RedactedPiece::Plain(bytes)),
            _ => {}
        }
        self.at = plain;
        if let Some(SecretMatch {
            name,
            from,
            to,
            rest,
        }) = secret
        {
            take(RedactedPiece::Secret {
                name,
                bytes: to - from,
            });
            self.at = begin + to;
            self.fresh = self.at;
            self.rest = rest;
        }
        undecided
    }

    /// Finds the next secret: its position, the match, and whether it is still undecided. Without
    /// one, returns the end of the text.
    fn find_next(&self, ended: bool) -> (usize, Option<SecretMatch>, bool) {
        let mut at = self.at;
        while let Some(rest) = self.held.get(at..) {
            // Most bytes begin no secret; this test rules them out before any pattern is tried.
            let Some(next) = rest
                .iter()
                .position(|byte| secret_patterns::may_begin(*byte))
            else {
                break;
            };
            at += next;
            match secret_patterns::match_at(
                self.held.get(self.fresh..).unwrap_or_default(),
                at - self.fresh,
                ended,
            ) {
                SecretScan::Nothing => at += 1,
                SecretScan::Undecided => return (at, None, true),
                SecretScan::Secret(secret) => return (at, Some(secret), false),
            }
        }
        (self.held.len(), None, false)
    }
}

impl RedactedPiece<'_> {
    /// Appends the piece; a secret is replaced by its marker.
    pub fn write_to(self, to: &mut Vec<u8>) {
        match self {
            Self::Plain(bytes) => to.extend_from_slice(bytes),
            Self::Secret { name, .. } => to.extend_from_slice(redaction_marker(name).as_bytes()),
            Self::More(_) => {}
        }
    }
}

/// Returns the text that replaces a secret.
pub fn redaction_marker(name: &str) -> String {
    format!("[redacted: {name}]")
}

#[cfg(test)]
mod tests;
