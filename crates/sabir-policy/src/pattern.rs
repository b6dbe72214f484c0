//! Patterns: the user's rules, compared with the words of a command, never with its text.
//!
//! `cargo test *` is matched word by word after quote removal: `*` alone stands for one word, `**` at the end for any number,
//! and a `*` inside of a word for any characters but `/`. A rule that allows needs certain words; one that forbids also takes
//! the uncertain.

use super::command_kinds;
use super::word::{ShellWord, WordForm};

/// A rule for commands, paths or hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RulePattern {
    Command(Vec<String>),
    /// A kind of command with its own grammar, by name.
    Kind(String),
    /// Without a `/` at its end, and seen from the workspace unless it begins with `/` or `~/`.
    Path(String),
    Host(String),
    /// Tools of a server: its name, and the tool's.
    Server(String, String),
}

/// How much a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleReach {
    /// These very words.
    Exact,
    /// More than it names.
    Wide,
}

impl RulePattern {
    /// Reads a rule: `path=GLOB`, `host=NAME`, `kind=NAME`, `mcp=SERVER/TOOL`, or the words of a command.
    pub(crate) fn parse(rule: &str) -> Option<Self> {
        let rule = rule.trim();
        let named = |name: &str| rule.strip_prefix(name).map(str::trim).filter(|rest| !rest.is_empty());
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
        if ["path=", "host=", "mcp="].iter().any(|name| rule.starts_with(name)) {
            return None;
        }
        let words = split_words(rule)?;
        // A rule for any program is no rule; and `**` stands at the end alone.
        let (first, last) = (words.first()?, words.len().checked_sub(1)?);
        let inner = words.iter().take(last).any(|word| word == "**");
        (!first.contains('*') && !inner).then_some(Self::Command(words))
    }

    /// Whether it means a tool of a server.
    pub(crate) fn matches_tool(&self, server: &str, tool: &str) -> bool {
        let Self::Server(servers, tools) = self else { return false };
        // Names of tools may hold anything, a slash too.
        matches_glob(&servers.replace('*', "**"), server) && matches_glob(&tools.replace('*', "**"), tool)
    }

    /// Whether it means the tools of any server whatsoever.
    pub(crate) fn is_any_server(&self) -> bool {
        matches!(self, Self::Server(server, _) if server.chars().all(|c| c == '*'))
    }

    /// Whether it allows a command, and how much more.
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
                let same = pattern.iter().zip(front).all(|(pattern, word)| is_word_allowed(pattern, word));
                let certain =
                    rest.iter().all(|word| word.known_text().is_some() || !word.may_be_option() && !is_odd(word));
                let exact = !open && pattern.iter().all(|word| !word.contains('*'));
                (same && certain).then_some(if exact { RuleReach::Exact } else { RuleReach::Wide })
            }
            Self::Kind(name) => {
                command_kinds::find_kind(name).filter(|kind| kind.is_match(command)).map(|_| RuleReach::Wide)
            }
            Self::Path(_) | Self::Host(_) | Self::Server(..) => None,
        }
    }

    /// Whether it may mean a command, or one that stands somewhere behind the words of another.
    pub(crate) fn may_match(&self, command: &[ShellWord]) -> bool {
        // git's own options do not hide what it does: `git -C . push`.
        let split =
            command.split_first().filter(|(first, _)| first.known_text().is_some_and(|name| name.ends_with("git")));
        let bare = split.map(|(first, rest)| {
            let behind =
                rest.iter().position(|word| !word.known_prefix().starts_with('-') && word.known_text() != Some("."));
            std::iter::once(first)
                .chain(rest.get(behind.unwrap_or_default()..).unwrap_or_default())
                .cloned()
                .collect::<Vec<_>>()
        });
        self.may_match_words(command) || bare.is_some_and(|bare| self.may_match_words(&bare))
    }

    fn may_match_words(&self, command: &[ShellWord]) -> bool {
        let starts = match super::may_wrap_command(command) {
            true => command.len(),
            false => 1,
        };
        // Behind other words only a program that is certain counts: an operand can be anything.
        let named = |at: &usize| *at == 0 || command.get(*at).is_some_and(|word| word.known_text().is_some());
        (0..starts).filter(named).filter_map(|at| command.get(at..)).any(|command| match self {
            Self::Command(pattern) => words_may_match(pattern, command),
            Self::Kind(name) => command_kinds::find_kind(name).is_some_and(|kind| kind.begins_like(command)),
            Self::Path(_) | Self::Host(_) | Self::Server(..) => false,
        })
    }
}

/// A rule for paths: `..` has no meaning in one, since it may be written of any folder.
fn parse_path_rule(glob: &str) -> Option<RulePattern> {
    if glob.split('/').any(|part| part == "..") {
        return None;
    }
    let plain = super::paths::normalize_path(glob);
    Some(RulePattern::Path(if plain.is_empty() { "**".to_owned() } else { plain }))
}

/// Something in the home folder is named by its path, not by what is before it.
fn is_odd(word: &ShellWord) -> bool {
    matches!(word.form, WordForm::Odd(_) | WordForm::Fields) || word.raw.starts_with('~')
}

fn is_word_allowed(pattern: &str, word: &ShellWord) -> bool {
    match word.known_text() {
        Some(text) => pattern == "*" || matches_glob(pattern, text),
        None => pattern == "*" && !word.may_be_option() && !is_odd(word) && !matches!(word.form, WordForm::Glob(_)),
    }
}

/// Whether the words can be what a rule forbids: what is not certain can be anything.
fn words_may_match(pattern: &[String], command: &[ShellWord]) -> bool {
    match (pattern.split_first(), command.split_first()) {
        (None, None) => true,
        (Some((last, [])), _) if last == "**" => true,
        (None, Some(_)) => false,
        (Some((first, rest)), Some((word, behind))) => {
            if is_odd(word) || matches!(word.form, WordForm::Glob(_)) {
                return true;
            }
            let text = word
                .known_text()
                .map(|text| text.strip_prefix("/usr/bin/").or(text.strip_prefix("/bin/")).unwrap_or(text));
            text.is_none_or(|text| first == "*" || matches_glob(first, text)) && words_may_match(rest, behind)
        }
        (Some(_), None) => false,
    }
}

/// Whether a text matches: `*` for any characters but `/`, `**` for any.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(before) else { return false };
    let (rest, across) = match rest.strip_prefix('*') {
        // `src/**/x` is also `src/x`.
        Some(rest) => {
            (rest.strip_prefix('/').filter(|rest| !rest.is_empty() && matches_glob(rest, text)).unwrap_or(rest), true)
        }
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

/// The words of a rule: parted by blanks, with quotes for blanks in a word.
fn split_words(rule: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
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
