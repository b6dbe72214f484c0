//! Feeds: what a command of a pipeline gets from the one before it.
//!
//! `find … | xargs wc -l` reads files of the workspace, because find prints nothing else. Whatever can put other words into the
//! pipe, or another file into its place, makes it unknown.

use brush_parser::ast::{Command, CommandPrefixOrSuffixItem, SimpleCommand};

use super::evaluator::{CommandEvaluator, ShellScope, words_of};
use super::path_scope::check_readable;
use super::word::ShellWord;

/// What comes through a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeInput {
    Unknown,
    /// Names of files inside of the workspace.
    FileNames,
    /// Such names, none of which begins with `-`.
    PlainFileNames,
}

impl CommandEvaluator<'_> {
    /// What a command prints that gets this.
    pub(crate) fn pipe_output(&self, command: &Command, scope: &ShellScope, fed: PipeInput) -> PipeInput {
        let Command::Simple(simple) = command else { return PipeInput::Unknown };
        if is_redirected(simple) || simple.prefix.is_some() {
            return PipeInput::Unknown;
        }
        let words: Vec<_> = words_of(simple).map(|raw| self.scan_in_scope(raw, scope).word).collect();
        let known: Vec<_> = words.iter().filter_map(ShellWord::known_text).collect();
        let has = |options: &[&str]| known.iter().any(|word| options.contains(word));
        let only = |rest: &[&str], letters: &str| rest.iter().all(|word| is_cluster(word, letters));
        let names = match known.as_slice() {
            ["find", rest @ ..] => {
                // What it runs prints what it likes, and long listings show where links lead.
                let prints = rest.iter().any(|word| matches!(*word, "-exec" | "-ls" | "-printf"));
                return if prints || known.len() < words.len() {
                    PipeInput::Unknown
                } else {
                    PipeInput::PlainFileNames
                };
            }
            ["fd" | "fdfind", ..] | ["git", "ls-files", ..] => !known.iter().any(|word| word.starts_with("--format")),
            // `-a` prints `..`.
            ["ls", rest @ ..] => rest.iter().all(|word| !word.starts_with('-') || is_cluster(word, "1AtrSRX")),
            // xargs reads quotes and backslashes, and so does echo.
            ["echo", ..] => words.iter().all(|word| {
                let plain = |text: &str| {
                    !text.starts_with('-') && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./+,@%-".contains(c))
                };
                word.known_text().is_some_and(plain) && check_readable(word, &scope.folder, &self.facts.root).is_ok()
            }),
            ["git", "diff", rest @ ..] => {
                has(&["--name-only"]) && rest.iter().all(|word| *word == "--name-only" || !word.starts_with('-'))
            }
            ["git", "grep", ..] => has(&["--name-only", "-l", "--files-with-matches"]),
            ["rg", ..] => has(&["-l", "--files", "--files-with-matches"]),
            ["grep", rest @ ..] if fed == PipeInput::Unknown => {
                has(&["-l", "-rl", "-lr", "-rln", "-rli", "--files-with-matches"])
                    && !rest.iter().any(|word| word.starts_with("--label"))
            }
            // Filters, as long as they read nothing else and give whole lines.
            ["sort", rest @ ..] if known.len() == words.len() && only(rest, "urnVfzh") => return fed,
            ["uniq", rest @ ..] if known.len() == words.len() && only(rest, "udiz") => return fed,
            ["head" | "tail", rest @ ..] if known.len() == words.len() && is_line_count(rest) => return fed,
            ["grep", rest @ .., pattern]
                if known.len() == words.len() && !pattern.starts_with('-') && only(rest, "vEFiPwxz") =>
            {
                return fed;
            }
            _ => false,
        };
        if names { PipeInput::FileNames } else { PipeInput::Unknown }
    }
}

/// Whether a command has its input or output elsewhere than in the pipe; what becomes of its errors does not matter.
pub(crate) fn is_redirected(simple: &SimpleCommand) -> bool {
    let items = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    items.chain(simple.suffix.iter().flat_map(|suffix| &suffix.0)).any(|item| match item {
        CommandPrefixOrSuffixItem::IoRedirect(redirection) => redirection.to_string().replace(' ', "") != "2>/dev/null",
        _ => false,
    })
}

/// Short options without values, of these letters alone.
fn is_cluster(word: &str, letters: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| letters.contains(c)))
}

/// `-5`, `-n5`, `-n 5`, or nothing.
fn is_line_count(words: &[&str]) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match words {
        [] => true,
        [one] => one.strip_prefix("-n").or_else(|| one.strip_prefix('-')).is_some_and(digits),
        ["-n", count] => digits(count.trim_start_matches('+')),
        _ => false,
    }
}
