//! Finds the words of a command line that are run: programs, and the scripts of interpreters.
//!
//! This is no parser of shells. It errs on the side of words that are not run, which only makes a hook need trust in more files.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Words before a command, and programs that start the one behind them.
const PREFIXES: &[&str] = &[
    "!", "command", "do", "elif", "else", "env", "exec", "if", "nice", "nohup", "then", "time",
    "until", "while", "xargs", "{", "}",
];
/// Programs that run the file that they are given.
const INTERPRETERS: &[&str] = &[
    ".",
    "bash",
    "bun",
    "dash",
    "deno",
    "node",
    "perl",
    "php",
    "ruby",
    "run-parts",
    "sh",
    "source",
    "tsx",
    "zsh",
];

/// An assignment of a text without anything that the shell would expand.
#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static ASSIGNMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?:^|[\s;&|(])([A-Za-z_]\w*)=(?:"([^"$`*?\[{]*)"|'([^'$`*?\[{]*)'|([^\s;&|()$`*?\[{"']*))(?:$|[\s;&|)])"#)
        .unwrap()
});

#[expect(clippy::unwrap_used, reason = "a constant, which a test compiles")]
static VARIABLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)").unwrap());

/// Puts the values of variables that the line itself sets in the place of their names.
pub(super) fn expand_assignments(text: &str) -> String {
    let mut values: BTreeMap<String, Option<String>> = BTreeMap::new();
    for found in ASSIGNMENT.captures_iter(text) {
        let value = (2..=4).find_map(|group| found.get(group));
        let value = value.map_or("", |value| value.as_str()).to_owned();
        // With two values only the shell knows which one counts.
        let entry = values.entry(found[1].to_owned());
        entry
            .and_modify(|known| *known = None)
            .or_insert(Some(value));
    }
    let put_value = |found: &Captures<'_>| {
        let name = found
            .get(1)
            .or(found.get(2))
            .map_or("", |name| name.as_str());
        match values.get(name) {
            Some(Some(value)) => value.clone(),
            _ => found[0].to_owned(),
        }
    };
    VARIABLE.replace_all(text, put_value).into_owned()
}

/// Returns the words that are run.
pub(super) fn find_run_words(text: &str) -> Vec<String> {
    let text: String = text.chars().filter(|c| !"\"'\\".contains(*c)).collect();
    let mut words = Vec::new();
    let mut depth = 0_usize;
    for part in text.split_inclusive([';', '&', '|', '\n', '(', ')', '`']) {
        let command = part.trim_end_matches([';', '&', '|', '\n', '(', ')', '`']);
        let is_pattern = part.ends_with(')') && depth == 0;
        match part.chars().last() {
            Some('(') => depth += 1,
            Some(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        // What stands before a `)` that closes nothing is a pattern of `case`.
        if !is_pattern {
            add_run_words(command, &mut words);
        }
    }
    words
}

fn add_run_words(command: &str, words: &mut Vec<String>) {
    let mut all = command.split_whitespace().peekable();
    if all.peek() == Some(&"for") {
        words.extend(all.skip(3).map(str::to_owned));
        return;
    }
    let is_assignment = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
    };
    let mut is_script = false;
    for word in all {
        if word.starts_with('-') || is_assignment(word) || (!is_script && PREFIXES.contains(&word))
        {
            continue;
        }
        words.push(word.to_owned());
        let name = word.rsplit('/').next().unwrap_or_default();
        let interprets = INTERPRETERS.contains(&name) || name.starts_with("python");
        if is_script || !interprets {
            return;
        }
        is_script = true;
    }
}

/// The part of a run word that only the shell knows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnknownPart {
    /// It names something in this folder.
    Below(String),
    /// It may name anything.
    Anywhere,
}

/// Returns the part of a run word that only the shell knows; `None` if it is known, or comes from the environment of the hook, which
/// the folder does not set. `text` is the line.
pub(super) fn find_unknown_part(word: &str, text: &str) -> Option<UnknownPart> {
    let start = word.find(['$', '*', '?', '[', '{'])?;
    // Tests, which are not files.
    if word.chars().all(|c| "[]{}".contains(c)) {
        return None;
    }
    let (known, rest) = word.split_at(start);
    if let Some((folder, _)) = known.rsplit_once('/')
        && !folder.trim_matches(['.', '/']).is_empty()
    {
        return Some(UnknownPart::Below(folder.to_owned()));
    }
    let Some(found) = VARIABLE
        .captures(rest)
        .filter(|found| rest.starts_with(&found[0]))
    else {
        // `$?`, `$1` and the like name no file.
        let is_special = rest.len() > 1
            && rest.starts_with('$')
            && rest
                .chars()
                .skip(1)
                .all(|c| c.is_ascii_digit() || "?!#@*-$".contains(c));
        return (!is_special).then_some(UnknownPart::Anywhere);
    };
    let name = found
        .get(1)
        .or(found.get(2))
        .map_or("", |name| name.as_str());
    let is_set = Regex::new(&format!(
        r"\b{name}=|\b(for|read|mapfile|readarray)\b[^;|&]*\b{name}\b"
    ))
    .is_ok_and(|set| set.is_match(text));
    let rest = &rest[found[0].len()..];
    (is_set || rest.contains(['$', '*', '?', '[', '{'])).then_some(UnknownPart::Anywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts_are_found() {
        let check = |line: &str, expected: &[&str]| {
            assert_eq!(find_run_words(line), expected, "{line}");
        };
        check(
            "cat | ./a.sh --x y; X=1 env -i python3 -u b.py c",
            &["cat", "./a.sh", "python3", "b.py"],
        );
        check(
            "if [ \"$(jq -r .x)\" = y ]; then sh -c './x'; fi",
            &["[", "jq", "=", "sh", "./x", "fi"],
        );
        check(
            "for f in hooks/*.sh; do . \"$f\"; done",
            &["hooks/*.sh", ".", "$f", "done"],
        );
        check(
            "case $f in *.py) ruff $f;; *.js) eslint;; esac",
            &["ruff", "eslint", "esac"],
        );
    }

    #[test]
    fn values_that_the_line_sets_are_put_in_place() {
        assert_eq!(
            expand_assignments("d=hooks; ./$d/a.sh ${d}"),
            "d=hooks; ./hooks/a.sh hooks"
        );
        assert_eq!(
            expand_assignments("d='my hooks' && $d/a"),
            "d='my hooks' && my hooks/a"
        );
        assert_eq!(expand_assignments("d=a; d=b; $d/x"), "d=a; d=b; $d/x");
        assert_eq!(expand_assignments("d=$(cat x); $d"), "d=$(cat x); $d");
    }

    #[test]
    fn parts_that_only_the_shell_knows_are_told_apart() {
        let part = |word: &str, line: &str| find_unknown_part(word, line);
        assert_eq!(part("./a.sh", ""), None);
        assert_eq!(
            part("hooks/*.sh", ""),
            Some(UnknownPart::Below("hooks".to_owned()))
        );
        assert_eq!(part("./*.sh", ""), Some(UnknownPart::Anywhere));
        assert_eq!(part("$f", "read -r f; $f"), Some(UnknownPart::Anywhere));
        assert_eq!(part("$f", "f=$(cat x); $f"), Some(UnknownPart::Anywhere));
        assert_eq!(part("$SHELL", "$SHELL -c x"), None);
        assert_eq!(part("$", "$(cat x)"), Some(UnknownPart::Anywhere));
        assert_eq!(part("$1", ""), None);
        assert_eq!(part("[[", ""), None);
    }
}
