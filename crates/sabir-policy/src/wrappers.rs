//! Judges the words of a command, including wrappers such as `timeout` and `xargs`, which are judged by the command that they run.

use super::Verdict;
use super::ask_reason::AskReason;
use super::command_facts::SymlinkTraversal;
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::find;
use super::git;
use super::grammar::OperandKind::{Nothing, Text};
use super::grammar::{PathContext, ProgramGrammar};
use super::pattern::RuleReach;
use super::pipe_input::PipeInput;
use super::programs::{self, BUILTINS, may_name, may_set};
use super::word::{ShellWord, TextTraits, WordForm};

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

impl CommandEvaluator<'_> {
    /// Judges the words of a command: by the user's rules, and then by the grammar of the program.
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
            Some((finding, RuleReach::Wide)) => {
                match super::destructive::destructive_reason(words, scope.folder.path().is_some()) {
                    Some(reason) => PolicyFinding::always_ask(reason),
                    None => finding,
                }
            }
            None => self.evaluate_command_words(words, scope, fed),
        }
    }

    /// Judges the words of a command by its program.
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
            return PolicyFinding::ask(match first.form {
                WordForm::Odd(odd) => format!("{} holds {odd}", first.raw),
                _ => format!("which program {} becomes is not certain", first.raw),
            });
        };
        // A path such as `./ls` runs a file of the workspace, which can be anything.
        let Some(name) = system_name(written) else {
            return PolicyFinding::ask(format!("{written} is not a program of the system"));
        };
        // With a folder of the workspace in `PATH`, a bare name may run a file of the workspace.
        if !self.facts.clean_path
            && written == name
            && !BUILTINS.contains(&name)
            && !is_shell_word(name)
        {
            return PolicyFinding::ask("the search path leads into the workspace, or is not known");
        }
        let finding = match name {
            // `/bin/cd` is another program than the builtin, so builtins are only recognized by their bare name.
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
            "bash" | "sh" | "dash" | "zsh" => self.evaluate_shell(name, rest, scope),
            _ => match WRAPPERS.iter().find(|row| row.names.contains(&name)) {
                Some(row) => self.evaluate_wrapper(row, rest, scope, fed),
                None if programs::find_program(name).is_some() => {
                    let finding = self.evaluate_known_program(name, rest, scope);
                    if follows_symlinks(name, rest) {
                        self.check_symlink_traversal(finding)
                    } else {
                        finding
                    }
                }
                None => self.evaluate_unknown_program(name, rest, scope),
            },
        };
        // Even an approval of all commands does not allow a destructive one.
        match super::destructive::destructive_reason(words, scope.folder.path().is_some()) {
            Some(reason) => finding.stricter(PolicyFinding::always_ask(reason)),
            None => finding,
        }
    }

    /// Judges a program by its grammar.
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
        if name == "printf"
            && self.facts.shell == super::ShellKind::Zsh
            && programs::evaluates_numbers(rest)
        {
            return PolicyFinding::ask("printf evaluates numbers in zsh");
        }
        let judged = match programs::find_program(name) {
            Some(_) if matches!(rest, [only] if matches!(only.known_text(), Some("--version" | "--help"))) => {
                Ok(format!("{name} only tells of itself"))
            }
            Some(row) => row
                .check_arguments(rest, context)
                .map(|()| format!("{name} only reads")),
            None => Err(format!("{name} is not known to only read").into()),
        };
        PolicyFinding::from(judged)
    }

    /// Asks about an unknown program. It may run the command in its arguments, as `sudo` does, so that command is judged, too.
    fn evaluate_unknown_program(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let finding = PolicyFinding::ask(format!("{name} is not known to only read"));
        let runs = |word: &ShellWord| {
            let name = word
                .known_text()
                .and_then(|text| text.rsplit('/').next())
                .unwrap_or_default();
            matches!(name, "bash" | "sh" | "dash" | "zsh" | "find")
                || WRAPPERS.iter().any(|row| row.names.contains(&name))
        };
        match rest.iter().position(runs).and_then(|at| rest.get(at..)) {
            Some(inner) => {
                finding.stricter(self.evaluate_words(inner, &mut scope.clone(), PipeInput::Unknown))
            }
            None => finding,
        }
    }

    /// Judges `cd` and changes the folder of the scope.
    fn evaluate_cd(&self, rest: &[ShellWord], scope: &mut ShellScope) -> PolicyFinding {
        let [folder] = rest else {
            return PolicyFinding::ask("cd with anything but one folder is not judged");
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
            // The question may be answered with yes, and the rest of the line must be judged for that case.
            Err(reason) => {
                scope.folder = super::path_scope::FolderScope::somewhere();
                PolicyFinding::ask(reason)
            }
        }
    }

    /// Judges `read -r name`. Only plain names are accepted, because the shell evaluates a subscript (`a[$(cmd)]`).
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
                .all(|word| word.known_text().is_some_and(may_name));
        let judged = if plain {
            Ok("reads a line".to_owned())
        } else {
            Err("what read sets is not certain".into())
        };
        let names: Vec<_> = seen.operands.iter().map(|word| word.text.clone()).collect();
        names.iter().for_each(|name| scope.forget_variable(name));
        if self.facts.shell == super::ShellKind::Zsh {
            return PolicyFinding::ask("read is not judged in zsh");
        }
        // A line of a pipe of file names is one file name, as long as `read` gets a single variable and no delimiter.
        let whole = seen.options.iter().all(|(option, _)| *option == "-r");
        if let ([name], true, true) = (
            names.as_slice(),
            plain && whole,
            self.input != PipeInput::Unknown,
        ) {
            self.follows_symlinks |= self.facts.symlink_traversal == SymlinkTraversal::Unknown;
            let inside = self.facts.symlink_traversal == SymlinkTraversal::Inside;
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
        PolicyFinding::from(judged)
    }

    /// Judges `find` and the commands that it runs.
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

    /// Judges `git`.
    fn evaluate_git(&mut self, rest: &[ShellWord], scope: &ShellScope) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let looks = git::parse_invocation(rest, context)
            .and_then(|git| git.check_read_only(self.facts, &mut self.wanted_repositories));
        PolicyFinding::from(looks.map(|()| "git only looks".to_owned()))
    }

    /// Judges `bash -c 'TEXT'` by the text.
    fn evaluate_shell(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
    ) -> PolicyFinding {
        let text = match rest {
            [option, text, ..] if option.known_text() == Some("-c") => text.known_text(),
            _ => None,
        };
        match text {
            Some(text) if !(name == "zsh" && self.facts.shell != super::ShellKind::Zsh) => {
                // `sh` may be dash, where `[[` and braces mean nothing.
                let plain = std::mem::replace(&mut self.plain_shell, matches!(name, "sh" | "dash"));
                self.evaluate_line(text, &mut scope.clone());
                self.plain_shell = plain;
                PolicyFinding::allow("is judged by what it runs")
            }
            Some(_) => PolicyFinding::ask("it is another shell"),
            None => PolicyFinding::ask(format!("what {name} would run is not certain")),
        }
    }

    /// Judges a wrapper by its options and by the command that it runs.
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
        let (options, mut command) = match split_options(row, rest) {
            Ok(split) => split,
            Err(reason) => return PolicyFinding::ask(reason),
        };
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        if let Err(reason) = row.check_arguments(options, context) {
            return PolicyFinding::ask(reason);
        }
        let mut finding = match name {
            // nohup writes this file if its output is a terminal.
            "nohup" => PolicyFinding::ask("nohup may write nohup.out"),
            _ => PolicyFinding::allow("is judged by what it runs"),
        };
        if name == "env" {
            while let Some((word, behind)) = command
                .split_first()
                .filter(|(word, _)| word.raw.contains('='))
            {
                let safe = word
                    .known_text()
                    .and_then(|text| text.split_once('='))
                    .is_some_and(|(name, value)| may_set(name, value));
                if !safe {
                    finding = finding.stricter(PolicyFinding::ask(format!(
                        "{} may change what programs do",
                        word.raw
                    )));
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
            _ => finding.stricter(self.evaluate_words(command, own, fed)),
        }
    }

    /// Judges the command of xargs, with an unknown word appended or put in the place of the `-I` mark.
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
        // Without `-0` xargs splits names at blanks, and the second half of a name may begin with `-`.
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let row = WRAPPERS.iter().find(|row| row.names == ["xargs"]);
        let whole = row
            .and_then(|row| row.parse_arguments(options, context).ok())
            .is_some_and(|seen| {
                seen.has_option(&["-0", "--null"]) && !seen.has_option(&["-d=", "--delimiter="])
            });
        let plain = fed == PipeInput::PlainFileNames && whole;
        let inside = fed != PipeInput::Unknown;
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
            // xargs appends any number of names; two words stand for them, so that limits on one operand are noticed.
            None => command.iter().cloned().chain([put.clone(), put]).collect(),
        };
        let finding = self.evaluate_words(&words, &mut scope.clone(), PipeInput::Unknown);
        if inside && opens_files(&words) {
            self.check_symlink_traversal(finding)
        } else {
            finding
        }
    }

    /// Adds a question to the finding of a command that follows symbolic links, if one of them may lead out of the workspace.
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

    /// Judges `test` and `[`. Operators must be certain, because some of them look up variables, which can run commands.
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

/// Judges `set`, `exit`, `return`, `break` and `continue` with plain arguments.
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

/// Reports whether a name is a builtin of the shell that is judged here and not by a grammar.
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
