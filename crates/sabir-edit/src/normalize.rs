//! Normalizes lines so that they compare equal if only trailing white space and typography differ.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;

/// Returns the plain ASCII character that a typographic one is compared as; most characters are
/// returned unchanged.
///
/// Editors and chat interfaces replace the ASCII forms by these, and models repeat either form.
pub(super) fn normalize_char(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        _ => c,
    }
}

/// Normalizes a line: removes trailing white space, replaces typographic quotes, dashes and spaces
/// by their ASCII forms, and composes accents with their letters (NFC), since composed and
/// decomposed forms look the same.
pub(super) fn normalize_line(line: &str) -> Cow<'_, str> {
    // By far the commonest case, and it needs neither a copy nor Unicode tables.
    if line.is_ascii() {
        return Cow::Borrowed(line.trim_end());
    }
    let line = line.trim_end_matches(|c| normalize_char(c).is_whitespace());
    let composer = ComposingNormalizerBorrowed::new_nfc();
    if line.chars().all(|c| normalize_char(c) == c) {
        return composer.normalize(line);
    }
    let plain: String = line.chars().map(normalize_char).collect();
    Cow::Owned(composer.normalize(&plain).into_owned())
}

/// Normalizes a line as [`normalize_line`] does and removes its indentation.
pub(super) fn normalize_unindented(line: &str) -> Cow<'_, str> {
    match normalize_line(line) {
        Cow::Borrowed(line) => Cow::Borrowed(line.trim_start_matches(is_blank)),
        Cow::Owned(line) => Cow::Owned(line.trim_start_matches(is_blank).to_owned()),
    }
}

/// Returns the tabs and spaces that a line begins with.
pub(super) fn leading_indent(line: &str) -> &str {
    line.strip_suffix(line.trim_start_matches(is_blank))
        .unwrap_or_default()
}

/// Returns true for the characters that indent code.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(normalize_line("  a \t"), "  a");
        assert_eq!(normalize_line("“a” – ‘b’\u{a0}c\u{a0}"), "\"a\" - 'b' c");
        assert_eq!(normalize_line("é"), "é");
        assert_eq!(normalize_line("e\u{301} \u{2013}"), "\u{e9} -");
        assert_eq!(
            normalize_line("\u{fb01}"),
            "\u{fb01}",
            "another text is not the same text"
        );
        assert_eq!(normalize_unindented("\t a"), "a");
        assert_eq!(normalize_unindented("\u{a0}“"), "\"");
        assert_eq!(leading_indent("\t  a b"), "\t  ");
        assert_eq!(leading_indent("  "), "  ");
        assert_eq!(leading_indent("a"), "");
    }
}
