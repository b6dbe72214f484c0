//! Redaction: secrets are taken out of what is written down, by their shape.
//!
//! Journals, JSON lines, recordings and logs outlive the moment and get into other hands. What a model is told stays as it is, since
//! edits depend on every byte; what is *written down* passes here. A secret leaves the sign `[redacted: GitHub token]`, so that the
//! fact is seen.
//!
//! The decision is that **only the shape counts**, and a shape must be hardly anything else: a vendor's beginning with the length
//! and the letters of its keys, standing for itself. Neither names of variables nor the disorder of a text are asked, so that
//! hashes, ids and lock files stay. A password without such a shape is not found. `redact/secret_patterns.rs` is the table.
//!
//! Each byte is looked at a bounded number of times, at most some 1,700 are held, and chunks change nothing: a secret that is
//! split over many is taken out as in one.
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

/// How many bytes before a text decide about its beginning.
const CONTEXT: usize = 24;

/// Takes secrets out of a text that comes in pieces.
#[derive(Debug, Default)]
pub struct Redactor {
    /// The end of what was passed on, and what is held behind it.
    held: Vec<u8>,
    /// Where in `held` that begins.
    at: usize,
    /// Where in `held` the last secret ends: a sign stands there, and no word goes on behind it.
    fresh: usize,
    /// With fewer bytes than these no new look is worth it.
    patience: usize,
    /// What still belongs to the last secret.
    rest: SecretRest,
}

/// A piece of a text without its secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedactedPiece<'a> {
    /// Nothing secret.
    Plain(&'a [u8]),
    /// A secret begins; this many bytes of it are known.
    Secret {
        /// What it is taken for.
        name: &'static str,
        /// The bytes.
        bytes: usize,
    },
    /// This many bytes more of the secret before.
    More(usize),
}

/// The text without secrets.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let (mut shown, mut found) = (Vec::new(), false);
    let mut redactor = Redactor::default();
    let mut take = |piece: RedactedPiece<'_>| {
        found |= !matches!(piece, RedactedPiece::Plain(_));
        piece.write_to(&mut shown);
    };
    redactor.push(text.as_bytes(), &mut take);
    redactor.finish(&mut take);
    if found { Cow::Owned(String::from_utf8_lossy(&shown).into_owned()) } else { Cow::Borrowed(text) }
}

/// A JSON text with the secrets taken out of its strings, whatever is escaped in them. Everything else stays as it is. What is no
/// JSON is taken as text as far as that is so.
pub fn redact_json(json: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    // Up to here it is in `shown`.
    let (mut copied, mut from) = (0, 0);
    while let Some((begin, end)) = next_literal(json.as_bytes(), from) {
        from = end;
        let Some(quoted) = json.get(begin..end) else { break };
        if let Some(changed) = redact_literal(quoted) {
            shown.push_str(json.get(copied..begin).unwrap_or_default());
            shown.push_str(&changed);
            copied = end;
        }
    }
    if from == 0 {
        return redact_text(json);
    }
    if copied == 0 { Cow::Borrowed(json) } else { Cow::Owned(shown + json.get(copied..).unwrap_or_default()) }
}

/// Where the next string literal begins and ends, quotes included; one that does not end, at the end.
fn next_literal(json: &[u8], from: usize) -> Option<(usize, usize)> {
    let begin = from + memchr::memchr(b'"', json.get(from..)?)?;
    let mut at = begin + 1;
    while let Some(next) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += next + 1;
        if json.get(at - 1) == Some(&b'"') {
            return Some((begin, at));
        }
        at += 1;
    }
    Some((begin, json.len()))
}

/// A literal without its secrets; `None`: it holds none.
fn redact_literal(literal: &str) -> Option<String> {
    let decoded = if literal.contains('\\') { serde_json::from_str::<String>(literal).ok() } else { None };
    match decoded {
        Some(decoded) => match redact_text(&decoded) {
            Cow::Borrowed(_) => None,
            Cow::Owned(changed) => serde_json::to_string(&changed).ok(),
        },
        None => {
            let inner = literal.strip_prefix('"').unwrap_or(literal);
            let (inner, close) = inner.strip_suffix('"').map_or((inner, ""), |inner| (inner, "\""));
            match redact_text(inner) {
                Cow::Borrowed(_) => None,
                Cow::Owned(changed) => Some(format!("\"{changed}{close}")),
            }
        }
    }
}

impl Redactor {
    /// The next piece of a text, as far as it is certain.
    pub fn redact_piece(&mut self, piece: &str) -> String {
        let mut shown = Vec::new();
        self.push(piece.as_bytes(), &mut |piece| piece.write_to(&mut shown));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// What was held, at the end of a text. The next piece begins another one.
    pub fn finish_text(&mut self) -> String {
        let mut shown = Vec::new();
        self.finish(&mut |piece| piece.write_to(&mut shown));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Takes more bytes and passes on what is certain, in order, each byte in exactly one piece.
    pub fn push(&mut self, bytes: &[u8], take: &mut impl FnMut(RedactedPiece<'_>)) {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= self.patience {
            self.process_held(false, take);
        }
    }

    /// Passes on all that was held: the text is over.
    pub fn finish(&mut self, take: &mut impl FnMut(RedactedPiece<'_>)) {
        self.process_held(true, take);
        *self = Self::default();
    }

    /// How many bytes are held.
    pub fn held_bytes(&self) -> usize {
        self.held.len() - self.at
    }

    fn process_held(&mut self, ended: bool, take: &mut impl FnMut(RedactedPiece<'_>)) {
        let mut undecided = false;
        while self.at < self.held.len() && !undecided {
            let more = self.rest.take_bytes(self.held.get(self.at..).unwrap_or_default());
            if more > 0 {
                take(RedactedPiece::More(more));
                self.at += more;
                self.fresh = self.at;
                continue;
            }
            self.rest = SecretRest::Nothing;
            undecided = self.emit_plain(ended, take);
        }
        let known = self.at.saturating_sub(CONTEXT);
        self.held.drain(..known);
        (self.at, self.fresh) = (self.at - known, self.fresh.saturating_sub(known));
        // Looked at anew only when there is a good part more of it, so that single bytes cost no more than one chunk.
        let held = self.held_bytes();
        self.patience = if undecided { self.held.len() + 1 + held / 4 } else { 0 };
    }

    /// Passes on what stands before the next secret, and its beginning. Says whether something may become one.
    fn emit_plain(&mut self, ended: bool, take: &mut impl FnMut(RedactedPiece<'_>)) -> bool {
        let (begin, secret, undecided) = self.find_next(ended);
        let plain = begin + secret.as_ref().map_or(0, |secret| secret.from);
        match self.held.get(self.at..plain) {
            Some(bytes) if !bytes.is_empty() => take(RedactedPiece::Plain(bytes)),
            _ => {}
        }
        self.at = plain;
        if let Some(SecretMatch { name, from, to, rest }) = secret {
            take(RedactedPiece::Secret { name, bytes: to - from });
            self.at = begin + to;
            (self.fresh, self.rest) = (self.at, rest);
        }
        undecided
    }

    /// Where the next secret is, or what may become one; else the end.
    fn find_next(&self, ended: bool) -> (usize, Option<SecretMatch>, bool) {
        let mut at = self.at;
        while let Some(rest) = self.held.get(at..) {
            let Some(next) = rest.iter().position(|byte| secret_patterns::may_begin(*byte)) else { break };
            at += next;
            match secret_patterns::match_at(self.held.get(self.fresh..).unwrap_or_default(), at - self.fresh, ended) {
                SecretScan::Nothing => at += 1,
                SecretScan::Undecided => return (at, None, true),
                SecretScan::Secret(secret) => return (at, Some(secret), false),
            }
        }
        (self.held.len(), None, false)
    }
}

impl RedactedPiece<'_> {
    /// Appends it, or the sign that stands for it.
    pub fn write_to(self, to: &mut Vec<u8>) {
        match self {
            Self::Plain(bytes) => to.extend_from_slice(bytes),
            Self::Secret { name, .. } => to.extend_from_slice(redaction_marker(name).as_bytes()),
            Self::More(_) => {}
        }
    }
}

/// What stands where a secret was.
pub fn redaction_marker(name: &str) -> String {
    format!("[redacted: {name}]")
}

#[cfg(test)]
mod tests;
