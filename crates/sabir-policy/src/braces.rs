//! Expands braces such as `{a,b}.txt` and `{1..5}`, in the cases where the result is certain.
//!
//! Only words of plain characters are expanded, and each brace must hold a list or a range without inner braces. For such words
//! bash and zsh agree, and a shell without brace expansion uses the word as a name in the same folder.
//!
//! Expansion comes first in bash, before variables and patterns: `{a,$x}` becomes the two words `a` and `$x`. A brace in the position
//! of an option could make one (`-{o,x}`), and `{1..99999999}` could fill the memory, so both are left as they are and ask.

/// The most words that one word may expand to; a word that becomes more is not analyzed.
const MAX_WORDS: usize = 200;

/// Returns the words that a word expands to, none of them empty. `None` if it holds no braces or the result is not certain.
pub(crate) fn expand_braces(raw: &str) -> Option<Vec<String>> {
    // Quotes, `$` and backslashes inside of a brace mean different things to different shells.
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./,{}*?@%+:=-".contains(c);
    let (head, _) = raw.split_once('{').filter(|_| raw.chars().all(plain))?;
    let mut words = vec![String::new()];
    let mut rest = raw;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inner, after) = behind.split_once('}').filter(|_| !before.contains('}'))?;
        let parts = brace_parts(inner)?;
        if words.len() * parts.len() > MAX_WORDS {
            return None;
        }
        let joined = words.iter().flat_map(|word| {
            parts
                .iter()
                .map(move |part| format!("{word}{before}{part}"))
        });
        words = joined.collect();
        rest = after;
    }
    if rest.contains('}') {
        return None;
    }
    words.iter_mut().for_each(|word| word.push_str(rest));
    // In an option only the value may hold braces (`--include=*.{c,h}`), so that no new option can
    // appear.
    let valued = head.starts_with("--") && head.contains('=');
    let certain = words
        .iter()
        .all(|word| !word.is_empty() && (valued || !word.starts_with('-')));
    certain.then_some(words)
}

/// Returns the parts of one brace: the elements of a list, or every value of a range.
fn brace_parts(inner: &str) -> Option<Vec<String>> {
    if inner.contains('{') {
        return None;
    }
    if inner.contains(',') {
        return Some(inner.split(',').map(str::to_owned).collect());
    }
    let ends: Vec<&str> = inner.split("..").collect();
    let [from, to] = ends.as_slice() else {
        return None;
    };
    let letter = |text: &str| text.bytes().next().filter(|_| text.len() == 1);
    match (letter(from), letter(to)) {
        (Some(from @ b'a'..=b'z'), Some(to @ b'a'..=b'z'))
        | (Some(from @ b'A'..=b'Z'), Some(to @ b'A'..=b'Z')) => Some(
            number_range(from.into(), to.into())
                .filter_map(|c| char::from_u32(c).map(String::from))
                .collect(),
        ),
        _ => {
            let digits = |text: &str| {
                (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
            };
            if !digits(from) || !digits(to) {
                return None;
            }
            let first: u32 = from.parse().ok()?;
            let last: u32 = to.parse().ok()?;
            // A leading zero at either end pads all values to the longer end, as in bash.
            let padded = [from, to]
                .iter()
                .any(|text| text.starts_with('0') && text.len() > 1);
            let width = if padded { from.len().max(to.len()) } else { 0 };
            let few = first.abs_diff(last) < MAX_WORDS as u32;
            few.then(|| {
                number_range(first, last)
                    .map(|number| format!("{number:0width$}"))
                    .collect()
            })
        }
    }
}

/// Counts from one number to the other, upwards or downwards, both included.
fn number_range(from: u32, to: u32) -> Box<dyn Iterator<Item = u32>> {
    if from <= to {
        Box::new(from..=to)
    } else {
        Box::new((to..=from).rev())
    }
}

#[cfg(test)]
mod tests {
    use super::expand_braces;

    #[track_caller]
    fn check(raw: &str, expected: &str) {
        let words = expand_braces(raw)
            .map(|words| words.join(" "))
            .unwrap_or_default();
        assert_eq!(words, expected, "{raw}");
    }

    /// The expected words were taken from bash.
    #[test]
    fn expands_like_bash() {
        check("{a,b}.txt", "a.txt b.txt");
        check("src/{a,b/c}", "src/a src/b/c");
        check("{1..5}", "1 2 3 4 5");
        check("x{3..1}", "x3 x2 x1");
        check("{08..10}", "08 09 10");
        check("{a..c}{1,2}", "a1 a2 b1 b2 c1 c2");
        check("{1..3,5}", "1..3 5");
        check("a{,.bak}", "a a.bak");
        check("--include=*.{c,h}", "--include=*.c --include=*.h");
    }

    #[test]
    fn uncertain_words_are_not_expanded() {
        for raw in [
            "a",
            "{a}",
            "{}",
            "{a,{b,c}}",
            "{a,b",
            "a}b{c,d}",
            "{,a}",
            "{a,-o}",
            "-{a,b}",
            "{a,$x}",
            "{a,'b'}",
            "{a..Z}",
            "{1..a}",
            "{1..100000}",
            "{1..5..2}",
            "{a,b}\\x",
            "~/{a,b}",
            "{-1..2}",
            "{a,b}}",
        ] {
            check(raw, "");
        }
    }
}
