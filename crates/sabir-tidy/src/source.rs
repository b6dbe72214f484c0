//! Lexes Rust far enough to tell code from comments, strings and tests.
//!
//! The rules look for words, so they only need to know which words are code. A full parser would
//! tell more, but would have to follow each edition of the language, and could not read a file that
//! does not compile.

/// Returns the text with comments, strings and character literals replaced by blanks. Line breaks stay, so line numbers are the same.
///
/// Lexing never fails: an unclosed comment or string reaches to the end of the text.
pub(crate) fn blank_non_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let skipped = skip_length(rest, c, before);
        let (piece, after) = rest
            .split_at_checked(skipped.unwrap_or(c.len_utf8()))
            .unwrap_or((rest, ""));
        match skipped {
            Some(_) => out.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            None => out.push_str(piece),
        }
        // Needed for raw strings: the `r` of `for"x"` belongs to a word.
        before = c;
        rest = after;
    }
    out
}

/// Iterates over the numbered lines before the inline test module, which ends a file by convention.
pub(crate) fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut lines = text.lines().enumerate().peekable();
    std::iter::from_fn(move || {
        let (index, line) = lines.next()?;
        let module =
            |next: &(usize, &str)| next.1.trim_start().starts_with("mod ") && next.1.ends_with('{');
        let tests = line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(module);
        (!tests).then_some((index + 1, line))
    })
}

/// Returns the identifier at the front of `text`; empty if there is none.
pub(crate) fn leading_word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Returns the length in bytes of the comment or literal at the front of `rest`. `None` if there is none.
fn skip_length(rest: &str, c: char, before: char) -> Option<usize> {
    match c {
        '/' if rest.starts_with("//") => Some(rest.find('\n').unwrap_or(rest.len())),
        // Nested block comments end too early here. This tree has none.
        '/' if rest.starts_with("/*") => Some(rest.find("*/").map_or(rest.len(), |at| at + 2)),
        '"' => Some(string_length(rest)),
        // `br"…"` begins with a byte prefix, whose `b` stays as code; its string is found by its
        // quote.
        'r' if !before.is_alphanumeric() && before != '_' => raw_string_length(rest),
        '\'' => char_literal_length(rest),
        _ => None,
    }
}

/// Returns the length of a string literal with its quotes.
fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a raw string literal such as `r#"…"#`.
fn raw_string_length(rest: &str) -> Option<usize> {
    let hashes = rest
        .strip_prefix('r')?
        .chars()
        .take_while(|c| *c == '#')
        .count();
    rest.get(1 + hashes..)?.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    // Behind the `r`, the hashes and the quote.
    let from = hashes + 2;
    Some(
        rest.get(from..)?
            .find(&close)
            .map_or(rest.len(), |at| from + at + close.len()),
    )
}

/// Returns the length of a character literal. `None` for a lifetime, which has no closing quote.
fn char_literal_length(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next();
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars
        .next()
        .filter(|(_, c)| *c == '\'')
        .map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{blank_non_code, without_tests};

    fn check(text: &str, expected: &str) {
        assert_eq!(
            blank_non_code(text)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            expected,
            "{text}"
        );
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        check("a // std::fs\nb /* std::env */ c", "a b c");
        check(
            "f(\"x \\\" // y\", 'z', '\\'', '\"', b\"q\")",
            "f( , , , , b )",
        );
        check("r#\"a \" b\"# + r\"c\\\" + for_\"x\"", "+ + for_");
        check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
    }

    #[test]
    fn tests_end_a_file() {
        let lines = |text: &str| {
            without_tests(text)
                .map(|(_, line)| line.to_owned())
                .collect::<Vec<_>>()
                .join("|")
        };
        assert_eq!(lines("a\n#[cfg(test)]\nmod tests {\n}\n"), "a");
        assert_eq!(
            lines("a\n#[cfg(test)]\nmod tests;\nb\n"),
            "a|#[cfg(test)]|mod tests;|b"
        );
    }
}
