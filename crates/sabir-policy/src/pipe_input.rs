//! Tracks whether a pipe carries only names of files in the workspace.
//!
//! `find … | xargs wc -l` reads only files of the workspace, because find prints nothing but their names. Anything that can put
//! other words into the pipe, or replaces the pipe by a file, makes the input unknown.
//!
//! Names are text until a command splits them. `xargs` splits at blanks and quotes, `read` at line feeds, and a repository may
//! hold a folder `a ` with a file `etc/passwd` in it. So names that are not separated by NUL bytes (`-print0`, `-z`) count
//! only if the caller has found that no name in the workspace can be split ([`FileNames::Plain`]). Names that git prints come
//! from its index or history, where a name may be one that no file has.
//!
//! | output | names, if separated by line feeds | with NUL bytes |
//! | --- | --- | --- |
//! | `find`, `fd`, `rg -l`, `grep -l`, `ls` | if no file of the workspace has an odd name | `-print0`, `-0`, `-Z` |
//! | `git ls-files`, `git diff --name-only` | if no entry of the index has one, either | `-z` |
//! | `git diff --name-only REVISION`, `git grep -l` | never: history may hold any name | `-z` |
//! | `echo a.txt` | the words were checked one by one | – |
//! | `sort`, `uniq`, `head`, `grep PATTERN` | as their input | with `-z`, as their input |
//! | anything else, a redirection, `find -printf` | never | never |

use brush_parser::ast::{Command, CommandPrefixOrSuffixItem, SimpleCommand};

use super::command_facts::FileNames;
use super::evaluator::{CommandEvaluator, ShellScope, words_of};
use super::path_scope::check_readable;
use super::secret_reach::FileReach;
use super::word::ShellWord;

/// The known content of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeInput {
    /// Any text.
    Unknown,
    /// Names of files inside of the workspace.
    Names(PipedNames),
}

/// Names of files that one command hands to the next as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PipedNames {
    /// True if each name ends with a NUL byte; otherwise a line feed ends it, and no name can be split.
    pub(crate) ends_with_nul: bool,
    /// True if no name begins with `-`.
    pub(crate) starts_plain: bool,
    /// True if a file that usually holds secrets may be among them.
    pub(crate) may_hold_secret: bool,
}

/// The source of the names in a pipe, which decides what is known about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameSource {
    /// The files of the workspace.
    Tree,
    /// The index of the repository: a name may belong to a file that is gone.
    Index,
    /// Commits: a name may never have been a file here.
    History,
    /// The words of the line itself, which were checked one by one.
    Words,
}

/// A command of a pipeline, by its words.
struct PipedCommand<'a> {
    program: &'a str,
    /// The words behind the program.
    words: &'a [ShellWord],
    /// The certain ones among them.
    arguments: Vec<&'a str>,
    /// True if all words are certain.
    certain: bool,
}

impl PipedCommand<'_> {
    /// Reports whether one of these words is among the arguments.
    fn has(&self, options: &[&str]) -> bool {
        self.arguments.iter().any(|word| options.contains(word))
    }

    /// Reports whether an argument, certain or not, begins with a text.
    fn has_start(&self, start: &str) -> bool {
        self.words.iter().any(|word| word.text.starts_with(start))
    }

    /// Returns the output of a filter that reads no files and prints whole names, or `Unknown` for any other program.
    fn filter_output(&self, fed: PipeInput) -> PipeInput {
        if !self.certain {
            return PipeInput::Unknown;
        }
        let arguments = self.arguments.as_slice();
        let by_nul = is_zero_mode(arguments);
        match (self.program, arguments) {
            ("sort", _) if only_clusters(arguments, "urnVfzh") => filter_names(fed, by_nul),
            ("uniq", _) if only_clusters(arguments, "udiz") => filter_names(fed, by_nul),
            ("head" | "tail", _) => {
                let counts: Vec<&str> = arguments
                    .iter()
                    .copied()
                    .filter(|word| *word != "-z")
                    .collect();
                match is_line_count(&counts) {
                    true => filter_names(fed, by_nul),
                    false => PipeInput::Unknown,
                }
            }
            ("grep", [options @ .., pattern])
                if !pattern.starts_with('-') && only_clusters(options, "vEFiPwxz") =>
            {
                filter_names(fed, is_zero_mode(options))
            }
            _ => PipeInput::Unknown,
        }
    }
}

impl CommandEvaluator<'_> {
    /// Returns the output of a command in a pipeline whose input is `fed`.
    pub(crate) fn pipe_output(
        &mut self,
        command: &Command,
        scope: &ShellScope,
        fed: PipeInput,
    ) -> PipeInput {
        // The output of a loop or a group is that of several commands.
        let Command::Simple(simple) = command else {
            return PipeInput::Unknown;
        };
        if is_redirected(simple) || simple.prefix.is_some() {
            return PipeInput::Unknown;
        }
        let words: Vec<_> = words_of(simple)
            .map(|raw| self.scan_in_scope(raw, scope).word)
            .collect();
        let Some((first, rest)) = words.split_first() else {
            return PipeInput::Unknown;
        };
        let arguments: Vec<&str> = rest.iter().filter_map(ShellWord::known_text).collect();
        let piped = PipedCommand {
            program: first.known_text().unwrap_or_default(),
            words: rest,
            // A word that is not certain may be an option that changes the output.
            certain: arguments.len() == rest.len() && first.known_text().is_some(),
            arguments,
        };
        match piped.program {
            "git" => self.git_output(&piped),
            "rg" | "fd" | "fdfind" => self.search_output(&piped, scope),
            "grep" if fed == PipeInput::Unknown => self.grep_output(&piped),
            "find" => {
                // Programs run by `-exec` print anything, and `-ls` also prints the targets of
                // links.
                if !piped.certain || piped.has(&["-exec", "-ls", "-printf"]) {
                    return PipeInput::Unknown;
                }
                let reach = self.find_reach(rest, scope);
                self.names_output(NameSource::Tree, piped.has(&["-print0"]), true, &reach)
            }
            // `ls -a` also prints `..`.
            "ls" if piped
                .arguments
                .iter()
                .all(|word| !word.starts_with('-') || is_cluster(word, "1AtrSRX")) =>
            {
                self.names_output(NameSource::Tree, false, false, &[FileReach::everything()])
            }
            // xargs, and some versions of echo, interpret quotes and backslashes, so only plain
            // characters are accepted.
            "echo" if rest.iter().all(|word| self.is_plain_operand(word, scope)) => {
                self.names_output(NameSource::Words, false, true, &[])
            }
            _ => piped.filter_output(fed),
        }
    }

    /// Returns the output of a git command that prints names.
    fn git_output(&mut self, piped: &PipedCommand<'_>) -> PipeInput {
        let rest = piped.arguments.get(1..).unwrap_or_default();
        match piped.arguments.first().copied() {
            Some("ls-files") if !piped.has_start("--format") => {
                // Submodules have indexes of their own.
                let source = match piped.has(&["--recurse-submodules"]) {
                    true => NameSource::History,
                    false => NameSource::Index,
                };
                let pathspecs = rest.iter().filter(|word| !word.starts_with('-'));
                let names: Vec<String> = pathspecs.map(|word| (*word).to_owned()).collect();
                // A pathspec with a folder or magic in it may mean more than a name.
                let is_name = |glob: &String| glob.contains('*') && !glob.contains(['/', ':']);
                let limits = piped.certain && names.iter().all(is_name);
                let reach =
                    FileReach::everything().with_names(if limits { names } else { Vec::new() });
                self.names_output(source, piped.has(&["-z"]), false, &[reach])
            }
            Some("diff") if piped.has(&["--name-only"]) => {
                let plain = |word: &&str| matches!(*word, "--name-only" | "-z");
                let staged = |word: &&str| matches!(*word, "--cached" | "--staged");
                if !rest
                    .iter()
                    .all(|word| plain(word) || staged(word) || !word.starts_with('-'))
                {
                    return PipeInput::Unknown;
                }
                // Without a revision it compares the files with the index.
                let source = match piped.certain && rest.iter().all(plain) {
                    true => NameSource::Index,
                    false => NameSource::History,
                };
                self.names_output(
                    source,
                    piped.has(&["-z"]),
                    false,
                    &[FileReach::everything()],
                )
            }
            // The files were read by the search itself, so it asked about them.
            Some("grep") if piped.has(&["--name-only", "-l", "--files-with-matches"]) => self
                .names_output(
                    NameSource::History,
                    piped.has(&["-z", "--null"]),
                    false,
                    &[],
                ),
            _ => PipeInput::Unknown,
        }
    }

    /// Returns the output of `rg` and `fd`, which skip hidden and ignored files unless an option brings them back.
    fn search_output(&mut self, piped: &PipedCommand<'_>, scope: &ShellScope) -> PipeInput {
        let is_rg = piped.program == "rg";
        let lists = !is_rg || piped.has(&["-l", "--files", "--files-with-matches"]);
        if !lists || piped.has_start("--format") {
            return PipeInput::Unknown;
        }
        let letters = if is_rg { "ugL." } else { "HIuL" };
        let widens = |word: &&str| {
            is_cluster_with(word, letters)
                || ["hidden", "ignore", "glob", "follow"]
                    .iter()
                    .any(|part| word.starts_with("--") && word.contains(part))
        };
        // A folder that an operand names is searched even if it is hidden. The first operand of fd
        // is its pattern.
        let operands = piped
            .arguments
            .iter()
            .filter(|word| !word.starts_with('-'))
            .count();
        let skips = scope.folder.path() == Some(".")
            && piped.certain
            && !piped.arguments.iter().any(widens)
            && operands <= usize::from(!is_rg);
        let reach = FileReach::everything().without_ignored(skips);
        // With `-l` the search read the files itself, so it asked about them.
        let reach = if is_rg && !piped.has(&["--files"]) {
            Vec::new()
        } else {
            vec![reach]
        };
        let nul = piped.has(&["-0", "--null", "--print0"])
            || !is_rg
                && piped
                    .arguments
                    .iter()
                    .any(|word| is_cluster_with(word, "0"));
        self.names_output(NameSource::Tree, nul, false, &reach)
    }

    /// Returns the output of `grep -l`. The files were read by the search itself, so it asked about them.
    fn grep_output(&mut self, piped: &PipedCommand<'_>) -> PipeInput {
        let cluster = |word: &&str, letter: &str| {
            is_cluster_with(word, letter) && is_cluster(word, "rlniwEFvIsZ")
        };
        let lists = piped.has(&["--files-with-matches"])
            || piped.arguments.iter().any(|word| cluster(word, "l"));
        let nul = piped.has(&["--null"]) || piped.arguments.iter().any(|word| cluster(word, "Z"));
        // `--label` prints any text as a name.
        if lists && !piped.has_start("--label") {
            self.names_output(NameSource::Tree, nul, false, &[])
        } else {
            PipeInput::Unknown
        }
    }

    /// Returns names as the content of a pipe, unless they may be split into other names.
    fn names_output(
        &mut self,
        source: NameSource,
        ends_with_nul: bool,
        starts_plain: bool,
        reach: &[FileReach],
    ) -> PipeInput {
        // The program that opens the files follows symbolic links, and unknown names may be links.
        self.follows_symlinks |= self.facts.file_names == FileNames::Unknown && !ends_with_nul;
        let plain = match source {
            _ if ends_with_nul => false,
            NameSource::Words => true,
            NameSource::Tree => {
                self.needs_file_names |= self.facts.file_names == FileNames::Unknown;
                self.facts.file_names == FileNames::Plain
            }
            NameSource::Index => {
                self.needs_file_names |= self.facts.file_names == FileNames::Unknown;
                self.needs_index_names |= self.facts.index_names == FileNames::Unknown;
                self.facts.file_names == FileNames::Plain
                    && self.facts.index_names == FileNames::Plain
            }
            NameSource::History => false,
        };
        if !plain && !ends_with_nul {
            return PipeInput::Unknown;
        }
        PipeInput::Names(PipedNames {
            ends_with_nul,
            // No component of a plain name begins with `-`.
            starts_plain: starts_plain || plain,
            may_hold_secret: self.may_reach_secret(reach),
        })
    }

    /// Reports whether an operand of echo is a path of plain characters inside of the workspace.
    fn is_plain_operand(&self, word: &ShellWord, scope: &ShellScope) -> bool {
        let plain = |text: &str| {
            !text.starts_with('-')
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_./+,@%-".contains(c))
        };
        word.known_text().is_some_and(plain)
            && check_readable(word, &scope.folder, &self.facts.root).is_ok()
    }
}

/// Returns the output of a filter that keeps or reorders whole names. A filter that splits at the other separator would cut
/// names or join them.
fn filter_names(fed: PipeInput, by_nul: bool) -> PipeInput {
    match fed {
        PipeInput::Names(names) if names.ends_with_nul == by_nul => fed,
        _ => PipeInput::Unknown,
    }
}

/// Reports whether a filter splits its input at NUL bytes.
fn is_zero_mode(arguments: &[&str]) -> bool {
    arguments.iter().any(|word| is_cluster_with(word, "z"))
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

/// Reports whether all arguments are clusters of short options with only these letters.
fn only_clusters(arguments: &[&str], letters: &str) -> bool {
    arguments.iter().all(|word| is_cluster(word, letters))
}

/// Reports whether a word is a cluster of short options with only these letters.
fn is_cluster(word: &str, letters: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| letters.contains(c)))
}

/// Reports whether a word is a cluster of short options with one of these letters.
fn is_cluster_with(word: &str, letters: &str) -> bool {
    !word.starts_with("--")
        && word
            .strip_prefix('-')
            .is_some_and(|rest| rest.contains(|c| letters.contains(c)))
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
