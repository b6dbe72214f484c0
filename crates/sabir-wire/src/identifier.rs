//! Call ids restricted to the alphabet of a wire.

use std::borrow::Cow;
use std::fmt::Write;

/// The longest id that is kept unchanged. OpenAI refuses longer ones.
const MAX_LENGTH: usize = 40;

/// The number of characters of a changed id that are kept before its hash.
const KEPT_CHARS: usize = 20;

/// Returns the id unchanged if it consists of `a-z A-Z 0-9 _ -` and is short enough, else a
/// readable part of it and a hash.
///
/// The same id always gives the same result, so calls and results stay paired. Different ids give
/// different results.
///
/// Anthropic and Bedrock refuse a request with any other character in an id, and ids of one
/// provider end up at another when a task changes its model.
pub(crate) fn portable_id(id: &str) -> Cow<'_, str> {
    sanitize_id(id, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Works as [`portable_id`] with any visible ASCII: Kimi expects its own `functions.name:0` back.
pub(crate) fn visible_ascii_id(id: &str) -> Cow<'_, str> {
    sanitize_id(id, |c| c.is_ascii_graphic())
}

/// Returns the id if it is short and has only allowed characters; else its first characters, with `_` for those that are not allowed, and
/// the hash of the whole id.
fn sanitize_id(id: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= MAX_LENGTH && id.chars().all(&allowed) {
        return Cow::Borrowed(id);
    }
    // A readable start helps people who read logs; the hash makes the id unique.
    let mut text: String = id
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .take(KEPT_CHARS)
        .collect();
    // FNV-1a never changes, unlike the standard library's hashers, so resumed sessions send the
    // same ids.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let _ = write!(text, "_{hash:016x}");
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_use_only_the_alphabet() {
        assert_eq!(portable_id("toolu_01-A"), "toolu_01-A");
        for id in ["", "functions.f:0", "ü", &"x".repeat(41)] {
            let mapped = portable_id(id);
            assert!(
                mapped.len() <= MAX_LENGTH
                    && mapped
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || c == '_'),
                "{id}"
            );
        }
        assert_eq!(visible_ascii_id("functions.f:0"), "functions.f:0");
        assert_ne!(portable_id("a.b"), portable_id("a:b"));
        assert_eq!(portable_id("a.b"), portable_id("a.b"));
    }
}
