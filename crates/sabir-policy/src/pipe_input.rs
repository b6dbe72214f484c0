//! Tracks whether a pipe carries only names of files in the workspace.
//!
//! `find … | xargs wc -l` reads only files of the workspace, because find prints nothing but their names. Anything that can put
//! other words into the pipe, or replaces the pipe by a file, makes the input unknown.

use brush_parser::ast::{Command, CommandPrefixOrSuffixItem, SimpleCommand};

use super::evaluator::{CommandEvaluator, ShellScope, words_of};
use super::path_scope::check_readable;
use super::word::ShellWord;

/// The known content of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeInput {
    /// Any text.
    Unknown,
    /// Names of files inside of the workspace.
    FileNames,
    /// Names of files inside of the workspace, none of which begins with `-`.
    PlainFileNames,
}

impl CommandEvaluator<'_> {
    /// Returns the output of a command in a pipeline whose input is `fed`.
    pub(crate) fn pipe_output(
        &self,
        command: &Command,
        scope: &ShellScope,
        fed: PipeInput,
    ) -> PipeInput {
        let Command::Simple(simple) = command else {
            return PipeInput::Unknown;
        };
        if is_redirected(simple) || simple.prefix.is_some() {
            return PipeInput::Unknown;
        }
        let words: Vec<_> = words_of(simple)
            .map(|raw| self.scan_in_scope(raw, scope).word)
            .collect();
        let known: Vec<_> = words.iter().filter_map(ShellWord::known_text).collect();
        let has = |options: &[&str]| known.iter().any(|word| options.contains(word));
        let only = |rest: &[&str], letters: &str| rest.iter().all(|word| is_cluster(word, letters));
        let names = match known.as_slice() {
            ["find", rest @ ..] => {
                // Programs run by `-exec` print anything, and `-ls` also prints the targets of links.
                let prints = rest
                    .iter()
                    .any(|word| matches!(*word, "-exec" | "-ls" | "-printf"));
                return if prints || known.len() < words.len() {
                    PipeInput::Unknown
                } else {
                    PipeInput::PlainFileNames
                };
            }
            ["fd" | "fdfind", ..] | ["git", "ls-files", ..] => {
                !known.iter().any(|word| word.starts_with("--format"))
            }
            // `ls -a` also prints `..`.
            ["ls", rest @ ..] => rest
                .iter()
                .all(|word| !word.starts_with('-') || is_cluster(word, "1AtrSRX")),
            // xargs interprets quotes and backslashes, and so do some versions of echo, so only plain characters are accepted.
            ["echo", ..] => words.iter().all(|word| {
                let plain = |text: &str| {
                    !text.starts_with('-')
                        && text
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "_./+,@%-".contains(c))
                };
                word.known_text().is_some_and(plain)
                    && check_readable(word, &scope.folder, &self.facts.root).is_ok()
            }),
            ["git", "diff", rest @ ..] => {
                has(&["--name-only"])
                    && rest
                        .iter()
                        .all(|word| *word == "--name-only" || !word.starts_with('-'))
            }
            ["git", "grep", ..] => has(&["--name-only", "-l", "--files-with-matches"]),
            ["rg", ..] => has(&["-l", "--files", "--files-with-matches"]),
            ["grep", rest @ ..] if fed == PipeInput::Unknown => {
                has(&["-l", "-rl", "-lr", "-rln", "-rli", "--files-with-matches"])
                    && !rest.iter().any(|word| word.starts_with("--label"))
            }
            // Filters pass their input on if they read no files and print whole lines.
            ["sort", rest @ ..] if known.len() == words.len() && only(rest, "urnVfzh") => {
                return fed;
            }
            ["uniq", rest @ ..] if known.len() == words.len() && only(rest, "udiz") => return fed,
            ["head" | "tail", rest @ ..] if known.len() == words.len() && is_line_count(rest) => {
                return fed;
            }
            ["grep", rest @ .., pattern]
                if known.len() == words.len()
                    && !pattern.starts_with('-')
                    && only(rest, "vEFiPwxz") =>
            {
                return fed;
            }
            _ => false,
        };
        if names {
            PipeInput::FileNames
        } else {
            PipeInput::Unknown
        }
    }
}

/// Reports whether a command redirects its input or output away from the pipe. `2>/dev/null` does not count.
pub(crate) fn is_redirected(simple: &SimpleCommand) -> bool {
    let items = simple.prefix.iter().flat_map(|prefix| &prefix.0);
    items
        .chain(simple.suffix.iter().flat_map(|suffix| &suffix.0))
        .any(|item| match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirection) => {
                redirection.to_string().replace(' ', "") != "2>/dev/null"
            }
            _ => false,
        })
}

/// Reports whether a word is a cluster of short options with only these letters.
fn is_cluster(word: &str, letters: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| letters.contains(c)))
}

/// Reports whether the arguments of `head` or `tail` are empty or only a number of lines: `-5`, `-n5`, `-n 5`.
fn is_line_count(words: &[&str]) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match words {
        [] => true,
        [one] => one
            .strip_prefix("-n")
            .or_else(|| one.strip_prefix('-'))
            .is_some_and(digits),
        ["-n", count] => digits(count.trim_start_matches('+')),
        _ => false,
    }
}
