//! Checks the words of a command, including wrappers such as `timeout` and `xargs`, which are checked by the command that they run.
//!
//! | command | checked by |
//! | --- | --- |
//! | `timeout 5 C`, `nice C`, `env A=1 C`, `command C`, `xargs C` | the words behind its own options (`WRAPPERS`) |
//! | `bash -c T`, `sh -lc T`, `bash <<EOF` | the text as a line of its own (`ShellInvocation`) |
//! | `eval W…`, `env -S T` | the words joined into a line |
//! | `… \| sh`, `bash <(…)`, `source /dev/stdin` | nothing: it asks whatever is approved |
//! | `find … -exec C`, `git …`, `cd`, `read`, `test` | handlers of their own |
//! | `cargo tree`, `docker ps` | the table of everyday commands |
//! | a program that only reads | its grammar, and the files in its reach |
//! | anything else | not known, so it asks; commands in its arguments are checked, too |
//!
//! A verdict other than allow goes through the table of destructive commands at last. The same holds for commands that hide in the
//! arguments of a program that takes lines (`ssh h 'rm -rf /'`) or code (`python -c`); there the search is a heuristic, and it can
//! only make the answer stricter.

use super::ask_reason::AskReason;
use super::builds::is_build_setting;
use super::command_facts::SymlinkTraversal;
use super::destructive::CommandLocation;
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::everyday::{ReadOnlyCommand, find_read_only_command};
use super::find;
use super::git;
use super::grammar::OperandKind::{Nothing, Text};
use super::grammar::{PathContext, ProgramGrammar};
use super::pattern::RuleReach;
use super::pipe_input::PipeInput;
use super::programs::{self, BUILTINS, is_harmless_assignment, may_assign_variable};
use super::word::{ShellWord, TextTraits, WordForm};
use super::{BY_TRUST, PolicyRules, Verdict};

/// The shells, whose language is the same for simple lines.
const SHELLS: [&str; 9] = [
    "bash", "sh", "dash", "zsh", "ash", "ksh", "mksh", "rbash", "fish",
];

/// Programs that run a line of shell commands from one of their arguments.
const TAKES_LINES: [&str; 22] = [
    "ssh",
    "su",
    "script",
    "flock",
    "watch",
    "parallel",
    "tmux",
    "screen",
    "trap",
    "npx",
    "at",
    "batch",
    "docker",
    "podman",
    "kubectl",
    "vagrant",
    "nix-shell",
    "expect",
    "hyperfine",
    "entr",
    "xvfb-run",
    "chroot",
];

/// Programs that run code of another language from one of their arguments.
const TAKES_CODE: [&str; 16] = [
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "php",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "lua",
    "deno",
    "bun",
    "tclsh",
    "osascript",
    "vim",
];

/// The deepest nesting of lines in lines in which hidden commands are looked for.
const MAX_NESTED_LINES: usize = 4;

/// The wrappers, with the options that they accept in front of the command.
const WRAPPERS: &[ProgramGrammar] = &[
    ProgramGrammar::new(
        &["timeout"],
        "-s= -k= -v --signal= --kill-after= --foreground --preserve-status --verbose",
        Text,
    ),
    ProgramGrammar::new(&["nice"], "-n= -# --adjustment=", Nothing),
    ProgramGrammar::new(&["ionice"], "-c= -n= -t --class= --classdata=", Nothing),
    ProgramGrammar::new(
        &["stdbuf"],
        "-i= -o= -e= --input= --output= --error=",
        Nothing,
    ),
    ProgramGrammar::new(&["nohup"], "", Nothing),
    ProgramGrammar::new(&["time"], "-p -v --verbose --portability", Nothing),
    ProgramGrammar::new(&["env"], "-i --ignore-environment", Nothing),
    ProgramGrammar::new(&["command"], "-p", Nothing),
    ProgramGrammar::new(&["builtin"], "", Nothing),
    ProgramGrammar::new(
        &["xargs"],
        "-0 -n= -P= -L= -I= -r -t -d= -a=@ -s= -x --null --max-args= --max-procs= --max-lines=? --no-run-if-empty --delimiter= --verbose --replace=?",
        Nothing,
    ),
];

/// Returns true for a program that runs the command behind its own options.
pub(crate) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|row| row.names.contains(&name))
}

impl CommandEvaluator<'_> {
    /// Checks the words of a command: by the user's rules, and then by the grammar of the program.
    ///
    /// A deny or ask rule is compared first, but the command is still checked, because a command that it runs may be denied as well. An
    /// allow rule with `*` does not cover destructive commands; one that names exactly these words does.
    pub(crate) fn evaluate_words(
        &mut self,
        words: &[ShellWord],
        scope: &mut ShellScope,
        fed: PipeInput,
    ) -> PolicyFinding {
        self.note_dependencies(words, scope);
        let ruled = self.rules.user_rule_finding(words);
        match ruled {
            // The command inside of a wrapper may be denied, which is stricter than a question.
            Some((finding, _)) if finding.verdict != Verdict::Allow => {
                self.asked_by_rule |= finding.verdict == Verdict::Ask;
                let inner = self.evaluate_command_words(words, scope, fed);
                finding.stricter(inner)
            }
            // The user named exactly this command, so it may even be destructive.
            Some((finding, RuleReach::Exact)) => finding,
            // A pattern does not cover an irreversible command, in any disguise among the words.
            Some((finding, RuleReach::Wide)) => {
                match self.destructive_line_reason(&join_raw(words), scope) {
                    Some(reason) => PolicyFinding::always_ask(reason),
                    None => finding,
                }
            }
            None => self.evaluate_command_words(words, scope, fed),
        }
    }

    /// Checks the words of a command by its program.
    ///
    /// The name decides which check applies. A path is not a name: `./ls` is a file of the workspace, which may be any program. Only
    /// `/bin`, `/usr/bin` and `/usr/local/bin` hold programs of the system. Builtins are known by their bare name only, since `/bin/cd` is
    /// another program.
    fn evaluate_command_words(
        &mut self,
        words: &[ShellWord],
        scope: &mut ShellScope,
        fed: PipeInput,
    ) -> PolicyFinding {
        let Some((first, rest)) = words.split_first() else {
            return PolicyFinding::allow("does nothing");
        };
        let Some(written) = first.known_text() else {
            // Not even an approval of all commands covers a program whose name is unknown.
            return PolicyFinding::always_ask(match first.form {
                WordForm::Odd(odd) => format!("{} holds {odd}", first.raw),
                _ => format!("which program {} becomes is not certain", first.raw),
            });
        };
        // A path such as `./ls` runs a file of the workspace, which can be anything.
        let Some(name) = system_name(written) else {
            return PolicyFinding::ask(format!("{written} is not a program of the system"));
        };
        let finding = match name {
            _ if written == name
                && let Some(reason) = self.workspace_program_reason(name) =>
            {
                PolicyFinding::ask(reason)
            }
            // `/bin/cd` is another program than the builtin, so builtins are only recognized by
            // their bare name.
            "cd" if written == name => self.evaluate_cd(rest, scope),
            "read" if written == name => self.evaluate_read(rest, scope),
            "set" | "exit" | "return" | "break" | "continue" if written == name => {
                plain_control(name, rest)
            }
            "test" | "[" => self.evaluate_test(name, rest),
            "find" => self.evaluate_find(rest, scope),
            "bash" | "zsh" if matches!(rest, [only] if only.known_text() == Some("--version")) => {
                PolicyFinding::allow("only tells its version")
            }
            "git" => self.evaluate_git(rest, scope),
            _ if SHELLS.contains(&name) => self.evaluate_shell(name, rest, scope),
            "eval" if written == name => self.evaluate_eval(rest, scope),
            "source" | "." if written == name => evaluate_source(rest),
            "exec" if written == name => self.evaluate_exec(rest, scope, fed),
            _ => match WRAPPERS.iter().find(|row| row.names.contains(&name)) {
                Some(row) => self.evaluate_wrapper(row, rest, scope, fed),
                None if let Some((row, rest)) = find_read_only_command(words) => {
                    self.evaluate_read_only_command(row, rest, scope)
                }
                None if programs::find_program(name).is_some() => {
                    let finding = self.evaluate_known_program(name, rest, scope);
                    let finding = self.check_program_reach(name, rest, scope, finding);
                    if follows_symlinks(name, rest) {
                        self.check_symlink_traversal(finding)
                    } else {
                        finding
                    }
                }
                None => self.evaluate_unknown_program(name, rest, scope),
            },
        };
        if finding.verdict == Verdict::Allow {
            return finding;
        }
        // Even an approval of all commands does not allow a destructive one.
        let location = self.command_location(scope);
        let hidden = || {
            let takes_code = TAKES_CODE.contains(&name);
            rest.iter()
                .filter_map(ShellWord::known_text)
                .filter(|text| text.contains(char::is_whitespace))
                .find_map(|text| match takes_code {
                    true => super::destructive::destructive_code_reason(text, location),
                    false => None,
                })
        };
        let reason = super::destructive::destructive_reason(words, location).or_else(hidden);
        let reason = reason.or_else(|| {
            let texts = rest.iter().filter_map(ShellWord::known_text);
            let lines: Vec<&str> = texts
                .filter(|text| TAKES_LINES.contains(&name) && text.contains(char::is_whitespace))
                .collect();
            lines
                .into_iter()
                .find_map(|line| self.destructive_line_reason(line, scope))
        });
        let reason = reason.or_else(|| self.protected_target_reason(name, rest, scope));
        let finding = match reason {
            Some(reason) => finding.stricter(PolicyFinding::always_ask(reason)),
            None => finding,
        };
        match name {
            "git" => self.add_push_target(rest, scope, finding),
            _ => finding,
        }
    }

    /// Explains why a bare name may run a file of the workspace, if it may.
    fn workspace_program_reason(&self, name: &str) -> Option<String> {
        if BUILTINS.contains(&name) || is_shell_word(name) {
            None
        } else if !self.facts.clean_path {
            Some("the search path leads into the workspace, or is not known".to_owned())
        } else if self.facts.workspace_programs.iter().any(|own| own == name) {
            Some(format!(
                "{name} is a program of the workspace: the search path has its folder"
            ))
        } else if super::programs::starts_python(name)
            && let Some(python) = self
                .facts
                .workspace_programs
                .iter()
                .find(|own| own.starts_with("python"))
        {
            Some(format!(
                "{name} may start {python}, a program of the workspace"
            ))
        } else {
            None
        }
    }

    /// Returns where a command would run.
    fn command_location<'s>(&'s self, scope: &'s ShellScope) -> CommandLocation<'s> {
        CommandLocation {
            folder: &scope.folder,
            root: &self.facts.root,
        }
    }

    /// Returns the reason why a line asks even if all commands are approved, or `None` if it does not.
    ///
    /// The line is checked by a separate evaluator, so its parts are not shown. A text that cannot be parsed has no such reason.
    fn destructive_line_reason(&self, line: &str, scope: &ShellScope) -> Option<String> {
        if self.line_depth >= MAX_NESTED_LINES || super::line::parse_line(line).is_err() {
            return None;
        }
        let rules = PolicyRules {
            commands: true,
            ..PolicyRules::default()
        };
        let mut evaluator = CommandEvaluator {
            line_depth: self.line_depth + 1,
            ..CommandEvaluator::new(&rules, self.facts)
        };
        // Only questions that remain with all commands approved are left.
        evaluator.evaluate_line(line, &mut scope.clone());
        let parts = evaluator.parts.into_iter();
        parts
            .map(|part| part.segment)
            .find(|segment| segment.verdict != Verdict::Allow)
            .map(|segment| segment.reason)
    }

    /// Checks a program by its grammar.
    fn evaluate_known_program(
        &self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        // zsh evaluates the operands of number conversions as arithmetic.
        if name == "printf"
            && self.facts.shell == super::ShellKind::Zsh
            && programs::evaluates_numbers(rest)
        {
            return PolicyFinding::ask("printf evaluates numbers in zsh");
        }
        let finding = match programs::find_program(name) {
            Some(_) if matches!(rest, [only] if matches!(only.known_text(), Some("--version" | "--help"))) => {
                Ok(format!("{name} only tells of itself"))
            }
            // Which option is unknown says nothing of a program that is only asked for its version.
            Some(row) if row.is_version_only() => row
                .check_arguments(rest, context)
                .map(|()| format!("{name} only tells its version"))
                .map_err(|_| programs::describe_effect(name).into()),
            Some(row) => row
                .check_arguments(rest, context)
                .map(|()| format!("{name} only reads")),
            None => Err(format!("{name} is not known to only read").into()),
        };
        PolicyFinding::from(finding)
    }

    /// Checks a command that only prints information, unless the repository can choose the program that runs.
    ///
    /// A row that needs facts which are not known asks, and the facts are noted for the caller.
    fn evaluate_read_only_command(
        &mut self,
        row: &ReadOnlyCommand,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        if let Err(reason) = row.grammar.check_arguments(rest, context) {
            return PolicyFinding::ask(reason);
        }
        if let Some(file) = self.find_possible_file(row.absent, scope) {
            return PolicyFinding::ask(format!("{file} may choose what it runs"));
        }
        if row.needs_confinement && !self.facts.confined {
            return PolicyFinding::ask("without a sandbox it may fetch or write what is missing");
        }
        if row.starts_git {
            let state =
                git::check_repository(&scope.folder, self.facts, &mut self.wanted_repositories);
            if let Err(reason) = state {
                return PolicyFinding::ask(reason);
            }
        }
        PolicyFinding::allow("only looks")
    }

    /// Returns the first of these files that may be in the folder of a command or one above it, up to the workspace.
    fn find_possible_file(&mut self, names: &[&str], scope: &ShellScope) -> Option<String> {
        if names.is_empty() {
            return None;
        }
        let Some(folder) = scope.folder.path() else {
            return names.first().map(|name| (*name).to_owned());
        };
        // Programs look for such files upwards, from the folder where they start.
        let mut folders = vec![String::new()];
        if folder != "." {
            let ends = folder
                .match_indices('/')
                .map(|(at, _)| at)
                .chain([folder.len()]);
            folders.extend(ends.filter_map(|end| Some(format!("{}/", folder.get(..end)?))));
        }
        let paths = folders
            .iter()
            .flat_map(|folder| names.iter().map(move |name| format!("{folder}{name}")));
        let unknown: Vec<String> = paths
            .filter(|path| !self.facts.absent_files.contains(path))
            .collect();
        let first = unknown.first().cloned();
        for path in unknown {
            if !self.wanted_absent.contains(&path) {
                self.wanted_absent.push(path);
            }
        }
        first
    }

    /// Asks about an unknown program.
    fn evaluate_unknown_program(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let finding = PolicyFinding::ask(format!("{name} is not known to only read"));
        self.add_embedded_commands(rest, scope, finding)
    }

    /// Adds the findings of commands in the arguments of a program, which may run them as `sudo` does.
    fn add_embedded_commands(
        &mut self,
        rest: &[ShellWord],
        scope: &ShellScope,
        finding: PolicyFinding,
    ) -> PolicyFinding {
        let runs = |word: &ShellWord| {
            let name = word
                .known_text()
                .and_then(|text| text.rsplit('/').next())
                .unwrap_or_default();
            SHELLS.contains(&name)
                || matches!(name, "find" | "eval")
                || WRAPPERS.iter().any(|row| row.names.contains(&name))
        };
        match rest.iter().position(runs).and_then(|at| rest.get(at..)) {
            Some(inner) => {
                finding.stricter(self.evaluate_words(inner, &mut scope.clone(), PipeInput::Unknown))
            }
            None => finding,
        }
    }

    /// Checks `cd` and changes the folder of the scope.
    ///
    /// A `cd` that may leave the workspace asks; relative paths after it are checked as outside, for the case that the user allows it.
    fn evaluate_cd(&self, rest: &[ShellWord], scope: &mut ShellScope) -> PolicyFinding {
        let [folder] = rest else {
            // Without an operand it goes to the home folder.
            scope.folder = super::path_scope::FolderScope::outside();
            return PolicyFinding::ask("cd is understood only with exactly one folder");
        };
        let joined = match folder.known_text() {
            Some(path) if !path.starts_with('-') => scope.folder.join(path, &self.facts.root),
            _ => Err(format!("where cd {} leads is not certain", folder.raw).into()),
        };
        match joined {
            Ok(folder) => {
                scope.folder = folder;
                PolicyFinding::allow("changes the folder inside the workspace")
            }
            // The user may allow it, and the rest of the line must be checked for that case.
            Err(reason) => {
                scope.folder = super::path_scope::FolderScope::outside();
                PolicyFinding::ask(reason)
            }
        }
    }

    /// Checks `read -r name`. Only plain names are accepted, because the shell evaluates a subscript (`a[$(cmd)]`).
    fn evaluate_read(&mut self, rest: &[ShellWord], scope: &mut ShellScope) -> PolicyFinding {
        const ROW: ProgramGrammar = ProgramGrammar::new(&["read"], "-r -s -d= -n= -t= -p=", Text);
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let seen = match ROW.parse_arguments(rest, context) {
            Ok(seen) => seen,
            Err(reason) => return PolicyFinding::ask(reason),
        };
        let plain = !seen.operands.is_empty()
            && seen
                .operands
                .iter()
                .all(|word| word.known_text().is_some_and(may_assign_variable));
        let finding = if plain {
            Ok("reads a line".to_owned())
        } else {
            Err("what read sets is not certain".into())
        };
        // The old values are gone, even if the new ones are unknown.
        let names: Vec<_> = seen.operands.iter().map(|word| word.text.clone()).collect();
        names.iter().for_each(|name| scope.forget_variable(name));
        if self.facts.shell == super::ShellKind::Zsh {
            return PolicyFinding::ask("read is not understood in zsh");
        }
        // A line of a pipe of file names is one file name, as long as `read` gets a single variable
        // and no delimiter.
        let ends_with_nul = match seen.options.as_slice() {
            [] | [("-r", _)] => Some(false),
            // `read -r -d ''` reads up to a NUL byte.
            [("-r", _), ("-d=", Some(end))] | [("-d=", Some(end)), ("-r", _)]
                if end.known_text() == Some("") =>
            {
                Some(true)
            }
            _ => None,
        };
        if let ([name], true, PipeInput::Names(piped)) = (names.as_slice(), plain, self.input)
            && ends_with_nul == Some(piped.ends_with_nul)
        {
            self.follows_symlinks |= self.facts.symlink_traversal == SymlinkTraversal::Unknown;
            // A name that may be one of a secret is not known well enough to be opened.
            let inside =
                self.facts.symlink_traversal == SymlinkTraversal::Inside && !piped.may_hold_secret;
            scope.bind_variable(
                name,
                TextTraits {
                    plain: false,
                    inside,
                    name: false,
                    word: false,
                },
            );
        }
        PolicyFinding::from(finding)
    }

    /// Checks `find` and the commands that it runs.
    ///
    /// find replaces `{}` by names below its start paths, which stay inside and do not begin with `-`. Files with secrets may be among
    /// them, which matters only for commands that open their arguments.
    fn evaluate_find(&mut self, rest: &[ShellWord], scope: &ShellScope) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        match find::exec_commands(rest, context) {
            Err(reason) => PolicyFinding::ask(reason),
            Ok(runs) => {
                let follows =
                    |word: &ShellWord| matches!(word.known_text(), Some("-L" | "-follow"));
                let roams = rest.iter().any(follows) || runs.iter().any(|run| opens_files(run));
                let finding = PolicyFinding::allow("find only reads");
                let finding = if roams {
                    self.check_symlink_traversal(finding)
                } else {
                    finding
                };
                // `find` itself shows names; the commands that it runs may read what it found.
                let reads = runs
                    .iter()
                    .any(|run| super::secret_reach::opens_contents(run));
                let finding = match reads {
                    true => {
                        let reach = self.find_reach(rest, scope);
                        self.check_reach(&reach, finding)
                    }
                    false => finding,
                };
                runs.iter().fold(finding, |finding, run| {
                    finding.stricter(self.evaluate_words(
                        run,
                        &mut scope.clone(),
                        PipeInput::Unknown,
                    ))
                })
            }
        }
    }

    /// Checks `git`.
    fn evaluate_git(&mut self, rest: &[ShellWord], scope: &ShellScope) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let git = match git::parse_invocation(rest, context) {
            Ok(git) => git,
            Err(reason) => return PolicyFinding::ask(reason),
        };
        let looks = git.check_read_only(self.facts, &mut self.wanted_repositories);
        let finding = PolicyFinding::from(looks.map(|()| "git only looks".to_owned()));
        if let Some(path) = git.named_secret() {
            return finding.stricter(PolicyFinding::ask(format!("{path} usually holds secrets")));
        }
        let reach = self.git_reach(&git, scope);
        let finding = self.check_reach(&reach, finding);
        self.check_tracked_secrets(&git, finding)
    }

    /// Checks a shell by the line that it runs: `bash -c 'TEXT'`, `bash -lc 'TEXT'`, a here document. A script file is not read. Input from
    /// a pipe is unknown, so it asks even if all commands are approved.
    fn evaluate_shell(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let uncertain =
            || PolicyFinding::always_ask(format!("what {name} would run is not certain"));
        let Some(invocation) = ShellInvocation::parse(rest) else {
            return uncertain();
        };
        let document = self.document.take();
        let text = match (&invocation.source, document) {
            (ShellSource::Line(text), _) => text.clone(),
            (ShellSource::Script, _) => {
                return PolicyFinding::ask(format!("{name} runs a script"));
            }
            (ShellSource::Input, Some(text)) => text,
            (ShellSource::Input, None) => {
                return PolicyFinding::always_ask(format!("{name} runs whatever it reads"));
            }
        };
        // `sh` may be dash, where `[[` and braces mean nothing.
        let plain = std::mem::replace(&mut self.plain_shell, matches!(name, "sh" | "dash" | "ash"));
        self.evaluate_line(&text, &mut scope.clone());
        self.plain_shell = plain;
        match name {
            "bash" | "sh" | "dash" => {}
            "zsh" if self.facts.shell == super::ShellKind::Zsh => {}
            _ => return PolicyFinding::ask("it is another shell"),
        }
        match invocation.reads_profile {
            true => PolicyFinding::ask(format!("{name} first runs its start files")),
            false => PolicyFinding::allow("is checked by what it runs"),
        }
    }

    /// Checks `eval` by the line that its words make.
    fn evaluate_eval(&mut self, rest: &[ShellWord], scope: &mut ShellScope) -> PolicyFinding {
        let texts: Option<Vec<&str>> = rest.iter().map(ShellWord::known_text).collect();
        match texts {
            Some(texts) => {
                self.evaluate_line(&texts.join(" "), scope);
                PolicyFinding::ask("eval reads its words once more")
            }
            None => PolicyFinding::always_ask("what eval would run is not certain"),
        }
    }

    /// Checks `exec COMMAND` by the command. Without one, `exec` redirects the rest of the line.
    fn evaluate_exec(
        &mut self,
        rest: &[ShellWord],
        scope: &ShellScope,
        fed: PipeInput,
    ) -> PolicyFinding {
        let finding = PolicyFinding::ask("exec changes how the line continues");
        match rest {
            [] => finding,
            _ => finding.stricter(self.evaluate_words(rest, &mut scope.clone(), fed)),
        }
    }

    /// Checks the line of `env -S 'LINE'`, which env splits into words itself. `None` without that option.
    fn evaluate_split_string(
        &mut self,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> Option<PolicyFinding> {
        let at = rest.iter().position(|word| {
            let head = word.known_prefix();
            head.starts_with("--split")
                || head.starts_with('-') && !head.starts_with("--") && head.contains('S')
        })?;
        let word = rest.get(at)?;
        let attached = word
            .text
            .split_once("--split-string=")
            .map(|(_, text)| text)
            .or_else(|| word.text.split_once('S').map(|(_, text)| text))
            .filter(|text| {
                !text.is_empty()
                    && word.known_text().is_some()
                    && !word.text.starts_with("--split-string ")
            });
        let mut texts: Vec<String> = attached.map(str::to_owned).into_iter().collect();
        for more in rest.get(at + 1..).unwrap_or_default() {
            let Some(text) = more.known_text() else {
                return Some(PolicyFinding::always_ask(
                    "what env would run is not certain",
                ));
            };
            texts.push(text.to_owned());
        }
        self.evaluate_line(&texts.join(" "), &mut scope.clone());
        Some(PolicyFinding::ask(
            "env splits a text into the words of a command",
        ))
    }

    /// Checks a wrapper by its options and by the command that it runs.
    fn evaluate_wrapper(
        &mut self,
        row: &ProgramGrammar,
        rest: &[ShellWord],
        scope: &mut ShellScope,
        fed: PipeInput,
    ) -> PolicyFinding {
        let name = row.names.first().copied().unwrap_or_default();
        if name == "command"
            && rest
                .first()
                .is_some_and(|word| matches!(word.known_text(), Some("-v" | "-V")))
        {
            let names = rest.get(1..).unwrap_or_default();
            return self.evaluate_known_program("which", names, scope);
        }
        if name == "env"
            && let Some(finding) = self.evaluate_split_string(rest, scope)
        {
            return finding;
        }
        let (options, mut command) = match split_options(row, rest) {
            Ok(split) => split,
            Err(reason) => {
                return self.add_embedded_commands(rest, scope, PolicyFinding::ask(reason));
            }
        };
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        if let Err(reason) = row.check_arguments(options, context) {
            return self.add_embedded_commands(rest, scope, PolicyFinding::ask(reason));
        }
        let mut finding = match name {
            // nohup writes this file if its output is a terminal.
            "nohup" => PolicyFinding::ask("nohup may write nohup.out"),
            _ => PolicyFinding::allow("is checked by what it runs"),
        };
        // Settings that ask of most commands and cannot change what a build runs.
        let mut settings = PolicyFinding::allow("only sets variables");
        if name == "env" {
            while let Some((word, behind)) = command
                .split_first()
                .filter(|(word, _)| word.raw.contains('='))
            {
                let set = word.known_text().and_then(|text| text.split_once('='));
                if !set.is_some_and(|(name, value)| is_harmless_assignment(name, value)) {
                    let question =
                        PolicyFinding::ask(format!("{} may change what programs do", word.raw));
                    if set.is_some_and(|(name, value)| is_build_setting(name, value)) {
                        settings = settings.stricter(question);
                    } else {
                        finding = finding.stricter(question);
                    }
                }
                command = behind;
            }
        }
        let own = match name {
            "xargs" => return finding.stricter(self.evaluate_xargs(options, command, scope, fed)),
            "env" if command.is_empty() => {
                return finding.stricter(PolicyFinding::allow("env only prints"));
            }
            "command" | "builtin" => scope,
            _ => &mut scope.clone(),
        };
        match command {
            [] => PolicyFinding::ask("it runs nothing that is known"),
            _ => {
                let mut found = self.evaluate_words(command, own, fed);
                if finding.verdict == Verdict::Allow {
                    found = self.apply_build_trust(command, found, own);
                }
                // Kept with its reason, by which the wrappers around this one know it.
                if finding.verdict == Verdict::Allow && found.reason == BY_TRUST {
                    return found;
                }
                // The reason of the program precedes that of a setting: it also says how builds run
                // unasked.
                finding.stricter(found).stricter(settings)
            }
        }
    }

    /// Checks the command of xargs, with an unknown word appended or put in the place of the `-I` mark.
    ///
    /// xargs splits its input at blanks, quotes and line feeds, and appends the words. They are known only if the pipe carries names that
    /// cannot be split, or names that end with NUL bytes, with `-0` on both sides.
    fn evaluate_xargs(
        &mut self,
        options: &[ShellWord],
        command: &[ShellWord],
        scope: &ShellScope,
        fed: PipeInput,
    ) -> PolicyFinding {
        let mark = options
            .iter()
            .enumerate()
            .find_map(|(at, word)| match word.known_text()? {
                "-I" => options.get(at + 1)?.known_text(),
                "--replace" => Some("{}"),
                text => text
                    .strip_prefix("-I")
                    .or_else(|| text.strip_prefix("--replace=")),
            });
        if options.iter().any(|word| {
            word.known_prefix().contains('I')
                && word.known_prefix() != "-I"
                && !word.known_prefix().starts_with("-I")
        }) {
            return PolicyFinding::ask("how xargs puts in what it reads is not certain");
        }
        // With `-a` xargs reads a file instead of the pipe, which may contain anything.
        let from_file = options.iter().any(|word| {
            !word.known_prefix().starts_with("--") && word.known_prefix().contains('a')
        });
        let fed = if from_file { PipeInput::Unknown } else { fed };
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let row = WRAPPERS.iter().find(|row| row.names == ["xargs"]);
        // `xargs -P -0`: whether `-0` is a value or an option depends on the version.
        let odd_value = options.windows(2).any(|pair| match pair {
            [option, value] => {
                row.is_some_and(|row| row.takes_next(option.known_prefix()))
                    && value.known_prefix().starts_with('-')
            }
            _ => false,
        });
        let fed = if odd_value { PipeInput::Unknown } else { fed };
        let by_nul = row
            .and_then(|row| row.parse_arguments(options, context).ok())
            .is_some_and(|seen| {
                seen.has_option(&["-0", "--null"]) && !seen.has_option(&["-d=", "--delimiter="])
            });
        // Names that end with NUL bytes stay whole only with `-0`; the others hold nothing at which
        // xargs splits.
        let names = match fed {
            PipeInput::Names(names) if names.ends_with_nul == by_nul => Some(names),
            _ => None,
        };
        let plain = names.is_some_and(|names| names.starts_plain);
        let inside = names.is_some();
        let put = ShellWord::field("{}", "", plain, inside);
        let words: Vec<ShellWord> = match mark {
            Some("") => {
                return PolicyFinding::ask("how xargs puts in what it reads is not certain");
            }
            Some(mark) => {
                let put_in = |word: &ShellWord| {
                    if word.raw.contains(mark) || word.text.contains(mark) {
                        ShellWord::field(
                            &word.raw,
                            word.text.split(mark).next().unwrap_or_default(),
                            plain && word.text == mark,
                            inside && word.text == mark,
                        )
                    } else {
                        word.clone()
                    }
                };
                command.iter().map(put_in).collect()
            }
            // Without a command xargs runs echo.
            None if command.is_empty() => vec![ShellWord::literal("echo"), put],
            // xargs appends any number of names; two words represent them, so that limits on one
            // operand are noticed.
            None => command.iter().cloned().chain([put.clone(), put]).collect(),
        };
        let finding = self.evaluate_words(&words, &mut scope.clone(), PipeInput::Unknown);
        let finding = match names {
            None if finding.reason == "what {} becomes is not known" => {
                PolicyFinding::ask("what xargs reads may be split into names of other files")
            }
            _ => finding,
        };
        let secret = names.is_some_and(|names| names.may_hold_secret);
        let finding = match secret && super::secret_reach::opens_contents(&words) {
            // A path of a rule may be among them, too, which no approval of commands covers.
            true if self.rules.has_path_rules() => finding.stricter(PolicyFinding::always_ask(
                "a path that a rule speaks of may be among the names that xargs reads",
            )),
            true => finding.stricter(PolicyFinding::ask(
                "a file that usually holds secrets may be among the names that xargs reads",
            )),
            false => finding,
        };
        if inside && opens_files(&words) {
            self.check_symlink_traversal(finding)
        } else {
            finding
        }
    }

    /// Adds a question to the finding of a command that follows symbolic links, if one of them may lead out of the workspace.
    ///
    /// `grep -R`, `find -L` and programs that open found names follow links that the line does not name; the caller knows whether any
    /// link of the workspace leads out of it.
    fn check_symlink_traversal(&mut self, finding: PolicyFinding) -> PolicyFinding {
        match &self.facts.symlink_traversal {
            SymlinkTraversal::Inside => finding,
            SymlinkTraversal::Outside(link) => finding.stricter(PolicyFinding::ask(format!(
                "{link} leads out of the workspace, and it follows such links"
            ))),
            SymlinkTraversal::Unknown => {
                self.follows_symlinks = true;
                finding.stricter(PolicyFinding::ask(
                    "where the links lead that it follows is not known",
                ))
            }
        }
    }

    /// Checks `test` and `[`. Operators must be certain, because some of them look up variables, which can run commands.
    fn evaluate_test(&self, name: &str, rest: &[ShellWord]) -> PolicyFinding {
        let words = match (name, rest.split_last()) {
            ("[", Some((last, words))) if last.known_text() == Some("]") => words,
            ("[", _) => return PolicyFinding::ask("[ without its ]"),
            _ => rest,
        };
        if let Some(word) = words.iter().find(|word| {
            matches!(
                word.form,
                WordForm::Fields | WordForm::Glob(_) | WordForm::Odd(_)
            )
        }) {
            return PolicyFinding::ask(format!("what {} becomes is not certain", word.raw));
        }
        let zsh = self.facts.shell == super::ShellKind::Zsh;
        let mut parts =
            words.split(|word| words.len() > 4 && matches!(word.known_text(), Some("-a" | "-o")));
        let certain = words.len() <= 4 || words.iter().all(|word| word.known_text().is_some());
        if certain && parts.all(|part| plain_test(part, zsh)) {
            PolicyFinding::allow("only tests")
        } else {
            PolicyFinding::ask("what it tests is not certain")
        }
    }
}

/// A shell started by a line, by its arguments.
struct ShellInvocation {
    source: ShellSource,
    /// True if it runs the user's start files first (`-l`, `-i`).
    reads_profile: bool,
}

/// The place that a shell reads its commands from.
enum ShellSource {
    /// The text behind `-c`.
    Line(String),
    /// A file.
    Script,
    /// Standard input.
    Input,
}

impl ShellInvocation {
    /// Parses the words behind the name of a shell. `None` if it is not certain what the shell would run.
    fn parse(rest: &[ShellWord]) -> Option<Self> {
        /// Letters that only change how the line runs.
        const LETTERS: &str = "ceuxfnvBhHkmabtCETP";
        let mut words = rest.iter();
        let mut runs_text = false;
        let mut reads_input = false;
        let mut reads_profile = false;
        let mut operand = None;
        while let Some(word) = words.next() {
            // Every word counts: an unknown one may be `-c` or the end of the options.
            let text = word.known_text()?;
            match text {
                "--" | "-" => {
                    operand = words.next();
                    break;
                }
                "--norc" | "--noprofile" | "--posix" => {}
                // The file is run like a script, before anything else.
                "--rcfile" | "--init-file" => {
                    words.next()?;
                    reads_profile = true;
                }
                _ if text.starts_with("--") => reads_profile = true,
                _ if text.starts_with(['-', '+']) => {
                    let letters = text.get(1..).unwrap_or_default();
                    runs_text |= letters.contains('c');
                    reads_input |= letters.contains('s');
                    reads_profile |= !letters
                        .chars()
                        .all(|c| LETTERS.contains(c) || "so".contains(c));
                    // `-o pipefail`, also at the end of a cluster: `-euo pipefail`.
                    if letters.ends_with(['o', 'O']) {
                        words.next()?;
                    }
                }
                _ => {
                    operand = Some(word);
                    break;
                }
            }
        }
        let source = match operand {
            Some(word) if runs_text => ShellSource::Line(word.known_text()?.to_owned()),
            None if runs_text => return None,
            // With `-s` operands are arguments, and the commands come from standard input.
            Some(_) if reads_input => ShellSource::Input,
            Some(word) => {
                let path = word.known_text()?;
                // These name what is piped in, too.
                match path.starts_with("/dev/") || path.starts_with("/proc/") {
                    true => ShellSource::Input,
                    false => ShellSource::Script,
                }
            }
            None => ShellSource::Input,
        };
        Some(Self {
            source,
            reads_profile,
        })
    }
}

/// Checks `source FILE`: a file is not read, and a pipe in its place cannot be.
fn evaluate_source(rest: &[ShellWord]) -> PolicyFinding {
    match rest.first().and_then(ShellWord::known_text) {
        Some(path) if !path.starts_with("/dev/") && !path.starts_with("/proc/") => {
            PolicyFinding::ask(format!("runs the commands in {path}"))
        }
        _ => PolicyFinding::always_ask("which commands it would run is not certain"),
    }
}

/// Joins words as they were written.
fn join_raw(words: &[ShellWord]) -> String {
    let raws: Vec<&str> = words.iter().map(|word| word.raw.as_str()).collect();
    raws.join(" ")
}

/// Reports whether the options of a reading program make it follow the symbolic links that it meets.
fn follows_symlinks(name: &str, rest: &[ShellWord]) -> bool {
    let (letter, long): (char, &[&str]) = match name {
        "grep" | "egrep" | "fgrep" => ('R', &["--dereference-recursive"]),
        "rg" | "fd" | "fdfind" => ('L', &["--follow"]),
        "ls" | "dir" | "vdir" | "du" => ('L', &["--dereference"]),
        "tree" => ('l', &[]),
        "diff" => ('r', &["--recursive"]),
        _ => return false,
    };
    rest.iter().any(|word| match word.known_text() {
        Some(text) => {
            long.contains(&text)
                || text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        }
        None => word.may_be_option(),
    })
}

/// Reports whether a command opens the files that it is given, and so follows symbolic links.
fn opens_files(command: &[ShellWord]) -> bool {
    const NAMES: [&str; 9] = [
        "echo", "printf", "ls", "basename", "dirname", "readlink", "git", "test", "[",
    ];
    !command
        .first()
        .and_then(ShellWord::known_text)
        .is_some_and(|name| NAMES.contains(&name))
}

/// Reports whether a test of at most four words has only harmless operators.
fn plain_test(words: &[ShellWord], zsh: bool) -> bool {
    const UNARY: [&str; 20] = [
        "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-p", "-r", "-s", "-u", "-w", "-x", "-L",
        "-S", "-N", "-n", "-z", "-O",
    ];
    const TEXTS: [&str; 8] = ["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"];
    const NUMBERS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
    let number = |word: &ShellWord| {
        word.known_text().is_some_and(|text| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-')
        }) || !zsh && word.known_text().is_none()
    };
    match words {
        [] | [_] => true,
        [operator, _] if operator.known_text() == Some("!") => true,
        [operator, _] => operator
            .known_text()
            .is_some_and(|text| UNARY.contains(&text)),
        [left, operator, right] => match operator.known_text() {
            Some(text) if TEXTS.contains(&text) => true,
            Some(text) if NUMBERS.contains(&text) => number(left) && number(right),
            _ => {
                left.known_text() == Some("!")
                    && plain_test(words.get(1..).unwrap_or_default(), zsh)
            }
        },
        [not, ..] if words.len() == 4 => {
            not.known_text() == Some("!") && plain_test(words.get(1..).unwrap_or_default(), zsh)
        }
        _ => false,
    }
}

/// Splits the arguments of a wrapper into its own options and the command behind them.
///
/// # Errors
/// Returns the reason if the boundary is not certain.
fn split_options<'a>(
    row: &ProgramGrammar,
    rest: &'a [ShellWord],
) -> Result<(&'a [ShellWord], &'a [ShellWord]), AskReason> {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let head = word.known_prefix();
        if head == "--" && word.known_text().is_some() {
            let (options, behind) = rest.split_at_checked(at).unwrap_or((rest, &[]));
            return own_operands(row, options, behind.get(1..).unwrap_or_default(), rest, at);
        }
        if word.may_be_option() && word.known_text().is_none() {
            return Err(format!("{} may turn out to be an option", word.raw).into());
        }
        if !head.starts_with('-') || head == "-" {
            break;
        }
        at += 1 + usize::from(row.takes_next(head));
    }
    let (options, behind) = rest
        .split_at_checked(at)
        .ok_or("an option without its value")?;
    own_operands(row, options, behind, rest, at)
}

/// Skips the duration of `timeout 5 COMMAND`, which is the only wrapper with an operand of its own.
fn own_operands<'a>(
    row: &ProgramGrammar,
    options: &'a [ShellWord],
    behind: &'a [ShellWord],
    rest: &'a [ShellWord],
    at: usize,
) -> Result<(&'a [ShellWord], &'a [ShellWord]), AskReason> {
    if !row.names.contains(&"timeout") {
        return Ok((options, behind));
    }
    let time = behind
        .first()
        .and_then(ShellWord::known_text)
        .unwrap_or_default();
    let plain = time.starts_with(|c: char| c.is_ascii_digit())
        && time
            .chars()
            .all(|c| c.is_ascii_digit() || ".smhd".contains(c));
    if !plain {
        return Err("the time of timeout is not certain".into());
    }
    Ok((
        rest.get(..at).unwrap_or_default(),
        behind.get(1..).unwrap_or_default(),
    ))
}

/// Checks `set`, `exit`, `return`, `break` and `continue` with plain arguments.
fn plain_control(name: &str, rest: &[ShellWord]) -> PolicyFinding {
    const OPTIONS: [&str; 12] = [
        "-e", "-u", "-x", "-eu", "-ex", "-eux", "+e", "+x", "+u", "-f", "+f", "-o",
    ];
    let plain = |text: &str| match name {
        "set" => {
            OPTIONS.contains(&text) || matches!(text, "pipefail" | "-euo" | "-euxo" | "-eo" | "-uo")
        }
        _ => text.bytes().all(|byte| byte.is_ascii_digit()),
    };
    if rest.iter().all(|word| word.known_text().is_some_and(plain))
        && !(name == "set" && rest.is_empty())
    {
        PolicyFinding::allow("changes nothing but how the line runs")
    } else {
        PolicyFinding::ask(format!("what {name} changes is not certain"))
    }
}

/// Returns the name of a program that is found by `PATH` or lies in a system folder. `None` for any other path.
fn system_name(written: &str) -> Option<&str> {
    if !written.contains('/') {
        return Some(written).filter(|name| !name.is_empty());
    }
    let name = ["/bin/", "/usr/bin/", "/usr/local/bin/"]
        .iter()
        .find_map(|folder| written.strip_prefix(folder))?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Reports whether a name is a builtin of the shell that is checked here and not by a grammar.
fn is_shell_word(name: &str) -> bool {
    matches!(
        name,
        "cd" | "read"
            | "set"
            | "exit"
            | "return"
            | "break"
            | "continue"
            | "test"
            | "["
            | "command"
            | "builtin"
    )
}
