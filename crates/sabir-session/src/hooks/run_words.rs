//! Finds the words of a command line that name programs, or scripts of interpreters.
//!
//! This is not a shell parser. In doubt it includes a word that is not run; then the trust in a
//! hook only covers more files.

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

/// Returns the words that are run. In them, what quotes keep from the shell is left out.
pub(super) fn find_executed_words(text: &str) -> Vec<String> {
    let mut scanner = Scanner {
        letters: text.chars().collect(),
        at: 0,
        found: Vec::new(),
    };
    while scanner.at < scanner.letters.len() {
        scanner.scan_commands(None, 0);
    }
    scanner.found
}

/// The deepest nesting of substitutions that is looked into.
const MAX_DEPTH: usize = 20;

/// A word of a command.
#[derive(Default)]
struct CommandWord {
    /// Its text without quotes.
    raw: String,
    /// The same, without the wildcards and dollars that quotes keep from the shell.
    open: String,
}

impl CommandWord {
    fn push(&mut self, letter: char, is_quoted: bool) {
        self.raw.push(letter);
        if !(is_quoted && "$*?[{`".contains(letter)) {
            self.open.push(letter);
        }
    }
}

/// Reads a line of a shell.
struct Scanner {
    letters: Vec<char>,
    at: usize,
    found: Vec<String>,
}

impl Scanner {
    /// Reads commands up to this letter, or up to the end.
    fn scan_commands(&mut self, end: Option<char>, depth: usize) {
        let mut command: Vec<CommandWord> = Vec::new();
        let mut word = CommandWord::default();
        let mut is_double = false;
        while let Some(&letter) = self.letters.get(self.at) {
            self.at += 1;
            match letter {
                '\\' => {
                    word.push(self.letters.get(self.at).copied().unwrap_or(' '), true);
                    self.at += 1;
                }
                '"' => is_double = !is_double,
                '`' if end == Some('`') => break,
                '(' if word.raw.ends_with('$') && depth < MAX_DEPTH => {
                    self.scan_commands(Some(')'), depth + 1);
                }
                '`' if depth < MAX_DEPTH => {
                    word.push('$', false);
                    self.scan_commands(Some('`'), depth + 1);
                }
                _ if is_double => word.push(letter, letter != '$'),
                '\'' => {
                    let rest = self.letters.iter().skip(self.at);
                    let quoted: Vec<char> = rest.take_while(|c| **c != '\'').copied().collect();
                    self.at += quoted.len() + 1;
                    quoted.iter().for_each(|letter| word.push(*letter, true));
                }
                ')' if end == Some(')') => break,
                // A `)` without an opening one ends a pattern of `case`, so the words before it are
                // not run.
                ')' => {
                    command.clear();
                    word = CommandWord::default();
                }
                ';' | '&' | '|' | '\n' | '(' => {
                    command.push(std::mem::take(&mut word));
                    self.add_command(&std::mem::take(&mut command), depth);
                    if letter == '(' && depth < MAX_DEPTH {
                        self.scan_commands(Some(')'), depth + 1);
                    }
                }
                _ if letter.is_whitespace() => command.push(std::mem::take(&mut word)),
                _ => word.push(letter, false),
            }
        }
        command.push(word);
        self.add_command(&command, depth);
    }

    fn add_command(&mut self, command: &[CommandWord], depth: usize) {
        let words: Vec<&CommandWord> = command.iter().filter(|word| !word.raw.is_empty()).collect();
        let open = |word: &&CommandWord| word.open.clone();
        if words.first().is_some_and(|word| word.raw == "for") {
            self.found.extend(words.iter().skip(3).map(open));
            return;
        }
        let mut interpreter: Option<&str> = None;
        for (at, word) in words.iter().enumerate() {
            let raw = word.raw.as_str();
            match interpreter {
                Some(name) if raw.starts_with('-') => {
                    let is_shell = name.ends_with("sh");
                    if is_shell && raw.contains('c') && depth < MAX_DEPTH {
                        let line = words.get(at + 1).map_or("", |line| line.raw.as_str());
                        self.found.extend(find_executed_words(line));
                        return;
                    }
                    // A program or the name of a module follows.
                    if !is_shell && ["-c", "-e", "-m", "-p", "--eval"].contains(&raw) {
                        return;
                    }
                }
                None if raw.starts_with('-') || is_assignment(raw) || PREFIXES.contains(&raw) => {}
                None if raw == "eval" => {
                    let rest: Vec<_> = words
                        .iter()
                        .skip(at + 1)
                        .map(|word| word.raw.as_str())
                        .collect();
                    self.found.extend(find_executed_words(&rest.join(" ")));
                    return;
                }
                _ => {
                    self.found.push(word.open.clone());
                    let name = raw.rsplit('/').next().unwrap_or_default();
                    let interprets = INTERPRETERS.contains(&name) || name.starts_with("python");
                    if interpreter.is_some() || !interprets {
                        return;
                    }
                    interpreter = Some(name);
                }
            }
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The part of a run word that only the shell knows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnknownPart {
    /// It names something in this folder.
    Below(String),
    /// It may name anything.
    Anywhere,
}

/// Returns the part of a run word that only the shell can expand; `None` if there is none, or if it comes from the hook's environment,
/// which the folder cannot set. `text` is the command line.
pub(super) fn find_unknown_part(word: &str, text: &str) -> Option<UnknownPart> {
    let start = word.find(['$', '*', '?', '[', '{'])?;
    // `[`, `[[` and `{` are words of the shell.
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
        r"\b{name}=|\b(read|mapfile|readarray)\b[^;|&]*\b{name}\b"
    ))
    .is_ok_and(|set| set.is_match(text));
    let rest = rest.strip_prefix(&found[0]).unwrap_or_default();
    (is_set || rest.contains(['$', '*', '?', '[', '{'])).then_some(UnknownPart::Anywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts_are_found() {
        let check = |line: &str, expected: &[&str]| {
            assert_eq!(find_executed_words(line), expected, "{line}");
        };
        check(
            "cat | ./a.sh --x y; X=1 env -i python3 -u b.py c",
            &["cat", "./a.sh", "python3", "b.py"],
        );
        check(
            "if [ \"$(jq -r .x)\" = y ]; then sh -c './x'; fi",
            &["jq", "[", "sh", "./x", "fi"],
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
