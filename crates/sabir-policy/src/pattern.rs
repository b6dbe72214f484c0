//! Parses and matches patterns of rules. They are compared with the words of a command, never with
//! its text.
//!
//! `cargo test *` is matched word by word after quote removal: a lone `*` matches one word, `**` at the end any number of words,
//! and a `*` inside of a word any characters but `/`. A deny or ask rule without any `*` is a prefix. An allow rule only matches words that are certain; a deny or ask rule also
//! matches words that may become what it names.
//!
//! | rule | matches | does not match |
//! | --- | --- | --- |
//! | allow `cargo test *` | `cargo test a`, `cargo 'test' a` | `cargo test`, `cargo test a b`, `cargo test $x` |
//! | allow `cargo test **` | the same with any number of words | `cargo test a > out`: redirections are checked apart |
//! | deny `git push` | `git push`, `git push origin main`, `sudo git push`, `git -C . push` | `git pull`, `echo git push` |
//! | deny `touch *.rs` | `touch a.rs`, `touch $x` (it may be) | `touch a.md` |
//!
//! The asymmetry is deliberate: a rule that widens must be certain of what it allows, and one that narrows must not be evaded by
//! spelling.

use super::command_kinds;
use super::word::{ShellWord, WordForm};

/// The pattern of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RulePattern {
    /// The words of a command.
    Command(Vec<String>),
    /// The name of a kind of command, which has its own grammar.
    Kind(String),
    /// A glob for paths, without a final `/`. It is relative to the workspace unless it begins with `/` or `~/`.
    Path(String),
    /// A host in lower case.
    Host(String),
    /// Patterns for the name of an MCP server and of its tool.
    Server(String, String),
}

/// The reach of a rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleReach {
    /// Exactly these words.
    Exact,
    /// Other commands, too.
    Wide,
}

impl RulePattern {
    /// Parses a rule: `path=GLOB`, `host=NAME`, `kind=NAME`, `mcp=SERVER/TOOL`, or the words of a command.
    pub(crate) fn parse(rule: &str) -> Option<Self> {
        let rule = rule.trim();
        let named = |name: &str| {
            rule.strip_prefix(name)
                .map(str::trim)
                .filter(|rest| !rest.is_empty())
        };
        if let Some(glob) = named("path=") {
            return parse_path_rule(glob);
        }
        if let Some(host) = named("host=") {
            return Some(Self::Host(host.to_ascii_lowercase()));
        }
        if let Some(kind) = named("kind=") {
            return command_kinds::find_kind(kind).map(|_| Self::Kind(kind.to_owned()));
        }
        if let Some(name) = named("mcp=") {
            let (server, tool) = name.split_once('/').unwrap_or((name, "*"));
            let whole = !server.is_empty() && !tool.is_empty();
            return whole.then(|| Self::Server(server.to_owned(), tool.to_owned()));
        }
        if ["path=", "host=", "mcp="]
            .iter()
            .any(|name| rule.starts_with(name))
        {
            return None;
        }
        let words = split_words(rule)?;
        // A rule must name the program, and `**` is only allowed at the end.
        let first = words.first()?;
        let last = words.len().checked_sub(1)?;
        let inner = words.iter().take(last).any(|word| word == "**");
        (!first.contains('*') && !inner).then_some(Self::Command(words))
    }

    /// Reports whether the rule matches a tool of an MCP server.
    pub(crate) fn matches_tool(&self, server: &str, tool: &str) -> bool {
        let Self::Server(servers, tools) = self else {
            return false;
        };
        // Names of tools may contain a slash, which a single `*` would not match.
        matches_glob(&servers.replace('*', "**"), server)
            && matches_glob(&tools.replace('*', "**"), tool)
    }

    /// Reports whether the rule matches the tools of every server.
    pub(crate) fn is_any_server(&self) -> bool {
        matches!(self, Self::Server(server, _) if server.chars().all(|c| c == '*'))
    }

    /// Returns the reach of the rule if, as an allow rule, it matches a command.
    pub(crate) fn allow_reach(&self, command: &[ShellWord]) -> Option<RuleReach> {
        match self {
            Self::Command(pattern) => {
                let (last, fixed) = pattern.split_last()?;
                let open = last == "**";
                let pattern = if open { fixed } else { pattern.as_slice() };
                if command.len() < pattern.len() || !open && command.len() > pattern.len() {
                    return None;
                }
                let (front, rest) = command.split_at_checked(pattern.len())?;
                // Words matched by `**` may be uncertain, but must not become options. Each fixed
                // word must be certain and equal.
                let same = pattern
                    .iter()
                    .zip(front)
                    .all(|(pattern, word)| is_word_allowed(pattern, word));
                let certain = rest.iter().all(|word| {
                    word.known_text().is_some() || !word.may_be_option() && !is_uncertain_word(word)
                });
                // Only a rule that can mean one command may allow what cannot be undone.
                let exact = !open && pattern.iter().all(|word| !word.contains('*'));
                (same && certain).then_some(if exact {
                    RuleReach::Exact
                } else {
                    RuleReach::Wide
                })
            }
            Self::Kind(name) => command_kinds::find_kind(name)
                .filter(|kind| kind.is_match(command))
                .map(|_| RuleReach::Wide),
            Self::Path(_) | Self::Host(_) | Self::Server(..) => None,
        }
    }

    /// Reports whether the rule, as a deny or ask rule, may match a command or one that the command runs from its arguments.
    pub(crate) fn may_match(&self, command: &[ShellWord]) -> bool {
        // The command is also matched without git's own options, so that `git -C . push` matches a
        // rule for `git push`.
        let split = command
            .split_first()
            .filter(|(first, _)| first.known_text().is_some_and(|name| name.ends_with("git")));
        let bare = split.map(|(first, rest)| {
            let behind = rest.iter().position(|word| {
                !word.known_prefix().starts_with('-') && word.known_text() != Some(".")
            });
            std::iter::once(first)
                .chain(rest.get(behind.unwrap_or_default()..).unwrap_or_default())
                .cloned()
                .collect::<Vec<_>>()
        });
        self.may_match_words(command) || bare.is_some_and(|bare| self.may_match_words(&bare))
    }

    /// Compares the pattern with the words of a command, and with each command that may begin at one of its words: for `sudo git push`
    /// a rule for `git push` counts, for `echo git push` it does not.
    fn may_match_words(&self, command: &[ShellWord]) -> bool {
        // A program that only prints its arguments runs none of them.
        let starts = match super::may_wrap_command(command) {
            true => command.len(),
            false => 1,
        };
        // Only a certain word counts as the name of a nested command; otherwise an uncertain
        // operand would match every rule.
        let named = |at: &usize| {
            *at == 0
                || command
                    .get(*at)
                    .is_some_and(|word| word.known_text().is_some())
        };
        (0..starts)
            .filter(named)
            .filter_map(|at| command.get(at..))
            .any(|command| match self {
                Self::Command(pattern) => {
                    // A rule without wildcards is a prefix: a rule against `git push` also covers
                    // `git push origin main`.
                    let is_open = !pattern.iter().any(|word| word.contains('*'));
                    words_may_match(pattern, command, is_open)
                }
                Self::Kind(name) => {
                    command_kinds::find_kind(name).is_some_and(|kind| kind.begins_like(command))
                }
                Self::Path(_) | Self::Host(_) | Self::Server(..) => false,
            })
    }
}

/// Parses the glob of a path rule. A glob with `..` is rejected, because a rule does not belong to any folder.
fn parse_path_rule(glob: &str) -> Option<RulePattern> {
    if glob.split('/').any(|part| part == "..") {
        return None;
    }
    let plain = super::paths::normalize_path(glob);
    Some(RulePattern::Path(if plain.is_empty() {
        "**".to_owned()
    } else {
        plain
    }))
}

/// Reports whether a word is too uncertain to match. The home folder (`~`) is unknown here, so its paths count as uncertain.
fn is_uncertain_word(word: &ShellWord) -> bool {
    matches!(word.form, WordForm::Odd(_) | WordForm::Fields) || word.raw.starts_with('~')
}

/// Reports whether a word of an allow rule matches a word of a command.
fn is_word_allowed(pattern: &str, word: &ShellWord) -> bool {
    match word.known_text() {
        Some(text) => pattern == "*" || matches_glob(pattern, text),
        None => {
            pattern == "*"
                && !word.may_be_option()
                && !is_uncertain_word(word)
                && !matches!(word.form, WordForm::Glob(_))
        }
    }
}

/// Reports whether the words of a command may match a deny or ask rule. A word that is not certain can be anything. `is_open`
/// is true if more words may follow.
fn words_may_match(pattern: &[String], command: &[ShellWord], is_open: bool) -> bool {
    match (pattern.split_first(), command.split_first()) {
        (None, None) => true,
        (None, Some(_)) if is_open => true,
        (Some((last, [])), _) if last == "**" => true,
        (None, Some(_)) => false,
        (Some((first, rest)), Some((word, behind))) => {
            if is_uncertain_word(word) || matches!(word.form, WordForm::Glob(_)) {
                return true;
            }
            // `/usr/bin/rm` is `rm`.
            let text = word.known_text().map(|text| {
                text.strip_prefix("/usr/bin/")
                    .or(text.strip_prefix("/bin/"))
                    .unwrap_or(text)
            });
            text.is_none_or(|text| first == "*" || matches_glob(first, text))
                && words_may_match(rest, behind, is_open)
        }
        (Some(_), None) => false,
    }
}

/// Reports whether a text matches a glob: `*` matches any characters but `/`, and `**` any characters.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(before) else {
        return false;
    };
    let (rest, across) = match rest.strip_prefix('*') {
        // `src/**/x` is also `src/x`.
        Some(rest) => (
            rest.strip_prefix('/')
                .filter(|rest| !rest.is_empty() && matches_glob(rest, text))
                .unwrap_or(rest),
            true,
        ),
        None => (rest, false),
    };
    loop {
        if matches_glob(rest, text) {
            return true;
        }
        match text.chars().next() {
            Some(c) if across || c != '/' => text = text.get(c.len_utf8()..).unwrap_or_default(),
            _ => return false,
        }
    }
}

/// Splits a rule into words at blanks. Quotes keep blanks in a word; `None` if a quote is not closed or there are no words.
fn split_words(rule: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for c in rule.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (quote.is_none() && !words.is_empty()).then_some(words)
}
