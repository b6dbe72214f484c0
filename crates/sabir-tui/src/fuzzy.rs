//! Finds names by a few of their letters.
//!
//! The letters must occur in the name in their order. Matches at the beginning of words, next to each other and near the end of
//! a path count more. The usual library for this (`nucleo-matcher`) has a licence that this repository does not take in.

/// Returns the best names for a pattern, the best first.
pub fn best_matches<'a>(
    pattern: &str,
    names: impl Iterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    let pattern: Vec<char> = pattern.chars().flat_map(char::to_lowercase).collect();
    let mut scored: Vec<_> = names
        .filter_map(|name| Some((score_match(&pattern, name)?, name)))
        .collect();
    scored.sort_by(|one, other| {
        let by_score = other.0.cmp(&one.0);
        by_score
            .then_with(|| one.1.len().cmp(&other.1.len()))
            .then_with(|| one.1.cmp(other.1))
    });
    scored
        .into_iter()
        .take(count)
        .map(|(_, name)| name)
        .collect()
}

/// Scores a name; `None` if it lacks a letter. `pattern` is in lower case.
fn score_match(pattern: &[char], name: &str) -> Option<i64> {
    // Most names lack a letter, and are left out before anything is allocated for them.
    let mut letters = name.chars().flat_map(char::to_lowercase);
    if !pattern.iter().all(|wanted| letters.any(|c| c == *wanted)) {
        return None;
    }
    let chars: Vec<char> = name.chars().collect();
    let file = chars.iter().rposition(|c| *c == '/').map_or(0, |at| at + 1);
    // First in the last part of a path, which is what people think of.
    let within = |start: usize| score_from(pattern, &chars, start);
    match within(file) {
        Some(score) => Some(score + 40),
        None if file > 0 => within(0),
        None => None,
    }
}

fn score_from(pattern: &[char], chars: &[char], start: usize) -> Option<i64> {
    let mut score = 0;
    let mut at = start;
    let mut last: Option<usize> = None;
    for wanted in pattern {
        let rest = chars.get(at..)?;
        let is_it = |c: &char| c.to_lowercase().eq([*wanted]);
        let begins = |position: usize| {
            position == start
                || chars
                    .get(position - 1)
                    .is_some_and(|before| !before.is_alphanumeric())
                || chars.get(position).is_some_and(|c| c.is_uppercase())
        };
        let next = at + rest.iter().position(is_it)?;
        // A match that continues or begins a word is better than the next best letter.
        let better = rest
            .iter()
            .enumerate()
            .filter(|(_, c)| is_it(c))
            .map(|(offset, _)| at + offset)
            .find(|position| begins(*position));
        let follows = last.is_some_and(|last| next == last + 1);
        let position = if follows {
            next
        } else {
            better.unwrap_or(next)
        };
        // Falling back keeps the rest of the pattern reachable.
        let position = if can_follow(pattern, wanted, chars, position) {
            position
        } else {
            next
        };
        score += 1;
        if last.is_some_and(|last| position == last + 1) {
            score += 8;
        }
        if begins(position) {
            score += 6;
        }
        last = Some(position);
        at = position + 1;
    }
    Some(score)
}

/// Returns true if no later letter gets lost by matching `wanted` at `position`.
fn can_follow(pattern: &[char], wanted: &char, chars: &[char], position: usize) -> bool {
    let Some(index) = pattern.iter().position(|c| c == wanted) else {
        return true;
    };
    let mut rest = chars.get(position + 1..).unwrap_or_default().iter();
    pattern
        .iter()
        .skip(index + 1)
        .all(|c| rest.any(|other| other.to_lowercase().eq([*c])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_letters() {
        let names = [
            "src/main.rs",
            "src/markdown.rs",
            "docs/main.md",
            "crates/tui/src/app.rs",
            "README.md",
        ];
        let find = |pattern: &str| best_matches(pattern, names.iter().copied(), 2);
        assert_eq!(find("main"), ["src/main.rs", "docs/main.md"]);
        assert_eq!(find("mkd"), ["src/markdown.rs"]);
        assert_eq!(find("tapp"), ["crates/tui/src/app.rs"]);
        assert_eq!(find("RM").first(), Some(&"README.md"));
        assert_eq!(find("xyz"), Vec::<&str>::new());
        assert_eq!(find("").len(), 2);
    }
}
