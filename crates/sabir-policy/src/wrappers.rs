//! Commands that run commands: they are judged by what they run, where how they are told is known.

use super::Verdict;

use super::facts::Roaming;
use super::feed::Feed;
use super::find;
use super::git;
use super::grammar::Operands::{Nothing, Text};
use super::grammar::{Ground, Row};
use super::judge::{Finding, Judge, Scope};
use super::pattern::Reach;
use super::programs::{self, BUILTINS, may_name, may_set};
use super::word::{Form, Trait, Word};

/// Options of wrappers that stand in front of the command; a name that is not here takes none.
const WRAPPERS: &[Row] = &[
    Row::new(&["timeout"], "-s= -k= -v --signal= --kill-after= --foreground --preserve-status --verbose", Text),
    Row::new(&["nice"], "-n= -# --adjustment=", Nothing),
    Row::new(&["ionice"], "-c= -n= -t --class= --classdata=", Nothing),
    Row::new(&["stdbuf"], "-i= -o= -e= --input= --output= --error=", Nothing),
    Row::new(&["nohup"], "", Nothing),
    Row::new(&["time"], "-p -v --verbose --portability", Nothing),
    Row::new(&["env"], "-i --ignore-environment", Nothing),
    Row::new(&["command"], "-p", Nothing),
    Row::new(&["builtin"], "", Nothing),
    Row::new(
        &["xargs"],
        "-0 -n= -P= -L= -I= -r -t -d= -a=@ -s= -x --null --max-args= --max-procs= --max-lines=? --no-run-if-empty --delimiter= --verbose --replace=?",
        Nothing,
    ),
];

impl Judge<'_> {
    /// Judges the words of a command: the user's rules first, then what is known of the program.
    pub(crate) fn words(&mut self, words: &[Word], scope: &mut Scope, fed: Feed) -> Finding {
        self.note(words, scope);
        let ruled = self.rules.of_the_user(words);
        match ruled {
            // Another part of it may be forbidden altogether.
            Some((finding, _)) if finding.verdict != Verdict::Allow => {
                self.asked_by_rule |= finding.verdict == Verdict::Ask;
                let inner = self.command_words(words, scope, fed);
                finding.and(inner)
            }
            Some((finding, Reach::Exact)) => finding,
            Some((finding, Reach::Wide)) => match super::grave::reason(words, scope.folder.path().is_some()) {
                Some(reason) => Finding::firm(reason),
                None => finding,
            },
            None => self.command_words(words, scope, fed),
        }
    }

    fn command_words(&mut self, words: &[Word], scope: &mut Scope, fed: Feed) -> Finding {
        let Some((first, rest)) = words.split_first() else { return Finding::allow("does nothing") };
        let Some(written) = first.known() else {
            return Finding::ask(match first.form {
                Form::Odd(odd) => format!("{} holds {odd}", first.raw),
                _ => format!("which program {} becomes is not certain", first.raw),
            });
        };
        let Some(name) = system_name(written) else {
            return Finding::ask(format!("{written} is not a program of the system"));
        };
        if !self.facts.clean_path && written == name && !BUILTINS.contains(&name) && !is_shell_word(name) {
            return Finding::ask("the search path leads into the workspace, or is not known");
        }
        let finding = match name {
            "cd" if written == name => self.cd(rest, scope),
            "read" if written == name => self.read(rest, scope),
            "set" | "exit" | "return" | "break" | "continue" if written == name => plain_control(name, rest),
            "test" | "[" => self.test(name, rest),
            "find" => self.find(rest, scope),
            "bash" | "zsh" if matches!(rest, [only] if only.known() == Some("--version")) => {
                Finding::allow("only tells its version")
            }
            "git" => self.git(rest, scope),
            "bash" | "sh" | "dash" | "zsh" => self.shell(name, rest, scope),
            _ => match WRAPPERS.iter().find(|row| row.names.contains(&name)) {
                Some(row) => self.wrapper(row, rest, scope, fed),
                None if programs::row(name).is_some() => {
                    let finding = self.table(name, rest, scope);
                    if follows(name, rest) { self.roaming(finding) } else { finding }
                }
                None => self.unknown(name, rest, scope),
            },
        };
        match super::grave::reason(words, scope.folder.path().is_some()) {
            Some(reason) => finding.and(Finding::firm(reason)),
            None => finding,
        }
    }

    fn table(&self, name: &str, rest: &[Word], scope: &Scope) -> Finding {
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        if name == "printf" && self.facts.shell == super::Shell::Zsh && programs::evaluates(rest) {
            return Finding::ask("printf evaluates numbers in zsh");
        }
        let judged = match programs::row(name) {
            Some(_) if matches!(rest, [only] if matches!(only.known(), Some("--version" | "--help"))) => {
                Ok(format!("{name} only tells of itself"))
            }
            Some(row) => row.allows(rest, ground).map(|()| format!("{name} only reads")),
            None => Err(format!("{name} is not known to only read")),
        };
        Finding::from(judged)
    }

    /// A program that is not known may run what stands behind it, as `sudo` does: rules about that still hold.
    fn unknown(&mut self, name: &str, rest: &[Word], scope: &Scope) -> Finding {
        let finding = Finding::ask(format!("{name} is not known to only read"));
        let runs = |word: &Word| {
            let name = word.known().and_then(|text| text.rsplit('/').next()).unwrap_or_default();
            matches!(name, "bash" | "sh" | "dash" | "zsh" | "find")
                || WRAPPERS.iter().any(|row| row.names.contains(&name))
        };
        match rest.iter().position(runs).and_then(|at| rest.get(at..)) {
            Some(inner) => finding.and(self.words(inner, &mut scope.clone(), Feed::Unknown)),
            None => finding,
        }
    }

    fn cd(&self, rest: &[Word], scope: &mut Scope) -> Finding {
        let [folder] = rest else { return Finding::ask("cd with anything but one folder is not judged") };
        let joined = match folder.known() {
            Some(path) if !path.starts_with('-') => scope.folder.join(path, &self.facts.root),
            _ => Err(format!("where cd {} leads is not certain", folder.raw)),
        };
        match joined {
            Ok(folder) => {
                scope.folder = folder;
                Finding::allow("changes the folder inside the workspace")
            }
            Err(reason) => {
                scope.folder = super::place::Folder::somewhere();
                Finding::ask(reason)
            }
        }
    }

    /// `read -r name`: a name with a subscript is evaluated.
    fn read(&mut self, rest: &[Word], scope: &mut Scope) -> Finding {
        const ROW: Row = Row::new(&["read"], "-r -s -d= -n= -t= -p=", Text);
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        let seen = match ROW.seen(rest, ground) {
            Ok(seen) => seen,
            Err(reason) => return Finding::ask(reason),
        };
        let plain = !seen.operands.is_empty() && seen.operands.iter().all(|word| word.known().is_some_and(may_name));
        let judged =
            if plain { Ok("reads a line".to_owned()) } else { Err("what read sets is not certain".to_owned()) };
        let names: Vec<_> = seen.operands.iter().map(|word| word.text.clone()).collect();
        names.iter().for_each(|name| scope.forget(name));
        if self.facts.shell == super::Shell::Zsh {
            return Finding::ask("read is not judged in zsh");
        }
        // A line of names of files is one, as long as nothing parts it.
        let whole = seen.options.iter().all(|(option, _)| *option == "-r");
        if let ([name], true, true) = (names.as_slice(), plain && whole, self.input != Feed::Unknown) {
            self.roams |= self.facts.roaming == Roaming::Unknown;
            let inside = self.facts.roaming == Roaming::Inside;
            scope.bind(name, Trait { plain: false, inside, name: false, word: false });
        }
        Finding::from(judged)
    }

    fn find(&mut self, rest: &[Word], scope: &Scope) -> Finding {
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        match find::runs(rest, ground) {
            Err(reason) => Finding::ask(reason),
            Ok(runs) => {
                let follows = |word: &Word| matches!(word.known(), Some("-L" | "-follow"));
                let roams = rest.iter().any(follows) || runs.iter().any(|run| opens(run));
                let finding = Finding::allow("find only reads");
                let finding = if roams { self.roaming(finding) } else { finding };
                runs.iter()
                    .fold(finding, |finding, run| finding.and(self.words(run, &mut scope.clone(), Feed::Unknown)))
            }
        }
    }

    fn git(&mut self, rest: &[Word], scope: &Scope) -> Finding {
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        let looks = git::split(rest, ground).and_then(|git| git.looks(self.facts, &mut self.wanted));
        Finding::from(looks.map(|()| "git only looks".to_owned()))
    }

    /// `bash -c 'TEXT'` is judged as the text.
    fn shell(&mut self, name: &str, rest: &[Word], scope: &Scope) -> Finding {
        let text = match rest {
            [option, text, ..] if option.known() == Some("-c") => text.known(),
            _ => None,
        };
        match text {
            Some(text) if !(name == "zsh" && self.facts.shell != super::Shell::Zsh) => {
                let plain = std::mem::replace(&mut self.plain, matches!(name, "sh" | "dash"));
                self.line(text, &mut scope.clone());
                self.plain = plain;
                Finding::allow("is judged by what it runs")
            }
            Some(_) => Finding::ask("it is another shell"),
            None => Finding::ask(format!("what {name} would run is not certain")),
        }
    }

    fn wrapper(&mut self, row: &Row, rest: &[Word], scope: &mut Scope, fed: Feed) -> Finding {
        let name = row.names.first().copied().unwrap_or_default();
        if name == "command" && rest.first().is_some_and(|word| matches!(word.known(), Some("-v" | "-V"))) {
            let names = rest.get(1..).unwrap_or_default();
            return self.table("which", names, scope);
        }
        let (options, mut command) = match front(row, rest) {
            Ok(split) => split,
            Err(reason) => return Finding::ask(reason),
        };
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        if let Err(reason) = row.allows(options, ground) {
            return Finding::ask(reason);
        }
        let mut finding = match name {
            "nohup" => Finding::ask("nohup may write nohup.out"),
            _ => Finding::allow("is judged by what it runs"),
        };
        if name == "env" {
            while let Some((word, behind)) = command.split_first().filter(|(word, _)| word.raw.contains('=')) {
                let safe = word
                    .known()
                    .and_then(|text| text.split_once('='))
                    .is_some_and(|(name, value)| may_set(name, value));
                if !safe {
                    finding = finding.and(Finding::ask(format!("{} may change what programs do", word.raw)));
                }
                command = behind;
            }
        }
        let own = match name {
            "xargs" => return finding.and(self.xargs(options, command, scope, fed)),
            "env" if command.is_empty() => return finding.and(Finding::allow("env only prints")),
            "command" | "builtin" => scope,
            _ => &mut scope.clone(),
        };
        match command {
            [] => Finding::ask("it runs nothing that is known"),
            _ => finding.and(self.words(command, own, fed)),
        }
    }

    /// The command of xargs with what it gets from standard input behind it, or in the place of a mark.
    fn xargs(&mut self, options: &[Word], command: &[Word], scope: &Scope, fed: Feed) -> Finding {
        let mark = options.iter().enumerate().find_map(|(at, word)| match word.known()? {
            "-I" => options.get(at + 1)?.known(),
            "--replace" => Some("{}"),
            text => text.strip_prefix("-I").or_else(|| text.strip_prefix("--replace=")),
        });
        if options.iter().any(|word| word.head().contains('I') && word.head() != "-I" && !word.head().starts_with("-I"))
        {
            return Finding::ask("how xargs puts in what it reads is not certain");
        }
        // A file in the place of standard input may hold anything.
        let from_file = options.iter().any(|word| !word.head().starts_with("--") && word.head().contains('a'));
        let fed = if from_file { Feed::Unknown } else { fed };
        // Without `-0` a name is parted at its blanks.
        let ground = Ground { folder: &scope.folder, root: &self.facts.root };
        let row = WRAPPERS.iter().find(|row| row.names == ["xargs"]);
        let whole = row
            .and_then(|row| row.seen(options, ground).ok())
            .is_some_and(|seen| seen.has(&["-0", "--null"]) && !seen.has(&["-d=", "--delimiter="]));
        let (plain, inside) = (fed == Feed::Plain && whole, fed != Feed::Unknown);
        let put = Word::field("{}", "", plain, inside);
        let words: Vec<Word> = match mark {
            Some("") => return Finding::ask("how xargs puts in what it reads is not certain"),
            Some(mark) => {
                let put_in = |word: &Word| {
                    if word.raw.contains(mark) || word.text.contains(mark) {
                        Word::field(
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
            None if command.is_empty() => vec![Word::literal("echo"), put],
            None => command.iter().cloned().chain([put.clone(), put]).collect(),
        };
        let finding = self.words(&words, &mut scope.clone(), Feed::Unknown);
        if inside && opens(&words) { self.roaming(finding) } else { finding }
    }

    /// What is said of a command that follows links that it meets: some may lead out of the workspace.
    fn roaming(&mut self, finding: Finding) -> Finding {
        match &self.facts.roaming {
            Roaming::Inside => finding,
            Roaming::Outside(link) => {
                finding.and(Finding::ask(format!("{link} leads out of the workspace, and it follows such links")))
            }
            Roaming::Unknown => {
                self.roams = true;
                finding.and(Finding::ask("where the links lead that it follows is not known"))
            }
        }
    }

    /// `test` and `[`: what is an operator must be certain, for some operators look up names.
    fn test(&self, name: &str, rest: &[Word]) -> Finding {
        let words = match (name, rest.split_last()) {
            ("[", Some((last, words))) if last.known() == Some("]") => words,
            ("[", _) => return Finding::ask("[ without its ]"),
            _ => rest,
        };
        if let Some(word) = words.iter().find(|word| matches!(word.form, Form::Fields | Form::Glob(_) | Form::Odd(_))) {
            return Finding::ask(format!("what {} becomes is not certain", word.raw));
        }
        let zsh = self.facts.shell == super::Shell::Zsh;
        let mut parts = words.split(|word| words.len() > 4 && matches!(word.known(), Some("-a" | "-o")));
        let certain = words.len() <= 4 || words.iter().all(|word| word.known().is_some());
        if certain && parts.all(|part| plain_test(part, zsh)) {
            Finding::allow("only tests")
        } else {
            Finding::ask("what it tests is not certain")
        }
    }
}

/// Whether a program that reads follows links that it meets.
fn follows(name: &str, rest: &[Word]) -> bool {
    let (letter, long): (char, &[&str]) = match name {
        "grep" | "egrep" | "fgrep" => ('R', &["--dereference-recursive"]),
        "rg" | "fd" | "fdfind" => ('L', &["--follow"]),
        "ls" | "dir" | "vdir" | "du" => ('L', &["--dereference"]),
        "tree" => ('l', &[]),
        "diff" => ('r', &["--recursive"]),
        _ => return false,
    };
    rest.iter().any(|word| match word.known() {
        Some(text) => long.contains(&text) || text.starts_with('-') && !text.starts_with("--") && text.contains(letter),
        None => word.may_be_option(),
    })
}

/// Whether a command opens the files that it is given.
fn opens(command: &[Word]) -> bool {
    const NAMES: [&str; 9] = ["echo", "printf", "ls", "basename", "dirname", "readlink", "git", "test", "["];
    !command.first().and_then(Word::known).is_some_and(|name| NAMES.contains(&name))
}

/// One test of at most four words.
fn plain_test(words: &[Word], zsh: bool) -> bool {
    const UNARY: [&str; 20] = [
        "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-p", "-r", "-s", "-u", "-w", "-x", "-L", "-S", "-N", "-n",
        "-z", "-O",
    ];
    const TEXTS: [&str; 8] = ["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"];
    const NUMBERS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
    let number = |word: &Word| {
        word.known().is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
            || !zsh && word.known().is_none()
    };
    match words {
        [] | [_] => true,
        [operator, _] if operator.known() == Some("!") => true,
        [operator, _] => operator.known().is_some_and(|text| UNARY.contains(&text)),
        [left, operator, right] => match operator.known() {
            Some(text) if TEXTS.contains(&text) => true,
            Some(text) if NUMBERS.contains(&text) => number(left) && number(right),
            _ => left.known() == Some("!") && plain_test(words.get(1..).unwrap_or_default(), zsh),
        },
        [not, ..] if words.len() == 4 => {
            not.known() == Some("!") && plain_test(words.get(1..).unwrap_or_default(), zsh)
        }
        _ => false,
    }
}

/// The options and own operands of a wrapper, and the command behind them.
fn front<'a>(row: &Row, rest: &'a [Word]) -> Result<(&'a [Word], &'a [Word]), String> {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let head = word.head();
        if head == "--" && word.known().is_some() {
            let (options, behind) = rest.split_at_checked(at).unwrap_or((rest, &[]));
            return own_operands(row, options, behind.get(1..).unwrap_or_default(), rest, at);
        }
        if word.may_be_option() && word.known().is_none() {
            return Err(format!("{} may turn out to be an option", word.raw));
        }
        if !head.starts_with('-') || head == "-" {
            break;
        }
        at += 1 + usize::from(row.takes_next(head));
    }
    let (options, behind) = rest.split_at_checked(at).ok_or("an option without its value")?;
    own_operands(row, options, behind, rest, at)
}

/// `timeout 5 COMMAND`: the time is the wrapper's own.
fn own_operands<'a>(
    row: &Row,
    options: &'a [Word],
    behind: &'a [Word],
    rest: &'a [Word],
    at: usize,
) -> Result<(&'a [Word], &'a [Word]), String> {
    if !row.names.contains(&"timeout") {
        return Ok((options, behind));
    }
    let time = behind.first().and_then(Word::known).unwrap_or_default();
    let plain = time.starts_with(|c: char| c.is_ascii_digit())
        && time.chars().all(|c| c.is_ascii_digit() || ".smhd".contains(c));
    if !plain {
        return Err("the time of timeout is not certain".to_owned());
    }
    Ok((rest.get(..at).unwrap_or_default(), behind.get(1..).unwrap_or_default()))
}

/// Words of the shell that end or set something harmless.
fn plain_control(name: &str, rest: &[Word]) -> Finding {
    const OPTIONS: [&str; 12] = ["-e", "-u", "-x", "-eu", "-ex", "-eux", "+e", "+x", "+u", "-f", "+f", "-o"];
    let plain = |text: &str| match name {
        "set" => OPTIONS.contains(&text) || matches!(text, "pipefail" | "-euo" | "-euxo" | "-eo" | "-uo"),
        _ => text.bytes().all(|byte| byte.is_ascii_digit()),
    };
    if rest.iter().all(|word| word.known().is_some_and(plain)) && !(name == "set" && rest.is_empty()) {
        Finding::allow("changes nothing but how the line runs")
    } else {
        Finding::ask(format!("what {name} changes is not certain"))
    }
}

/// The name of a program found by `PATH`, or in one of the folders that hold the system's.
fn system_name(written: &str) -> Option<&str> {
    if !written.contains('/') {
        return Some(written).filter(|name| !name.is_empty());
    }
    let name = ["/bin/", "/usr/bin/", "/usr/local/bin/"].iter().find_map(|folder| written.strip_prefix(folder))?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Names that the shell itself knows, and what they run is judged again.
fn is_shell_word(name: &str) -> bool {
    matches!(
        name,
        "cd" | "read" | "set" | "exit" | "return" | "break" | "continue" | "test" | "[" | "command" | "builtin"
    )
}
