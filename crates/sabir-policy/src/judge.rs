//! The walk over a command line: every part of it is judged, and the strictest part decides.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem, CompoundCommand,
    CompoundList, ForClauseCommand, FunctionBody, Pipeline, Program, SeparatorOperator, SimpleCommand,
};

use super::Verdict;

use super::facts::{Facts, Shell};
use super::feed::{Feed, redirected};
use super::place::Folder;
use super::programs::{may_name, may_set};
use super::word::{Bound, Form, Scanned, Trait, Word, is_one_word, scan};
use super::{Named, Rules, Segment, braces, line};

/// How deep lines may lie in lines: `$(…)`, `bash -c`, `eval`.
const MAX_LINES: usize = 8;
/// A line of more characters asks, whatever it does.
const MAX_UNASKED: usize = 10_000;
/// How many segments are judged.
const MAX_SEGMENTS: usize = 500;
/// How many loops may lie in one another: each body is judged twice.
const MAX_LOOPS: usize = 4;

/// What is said of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    /// Whether no approval of commands as a whole reaches it.
    pub(crate) firm: bool,
}

/// What the shell has changed so far.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) folder: Folder,
    bound: BTreeMap<String, Bound>,
    loops: usize,
}

/// A part that was judged.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) segment: Segment,
    /// The kind of command that would allow it.
    pub(crate) kind: Option<&'static str>,
}

/// The walk.
pub(crate) struct Judge<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) facts: &'a Facts,
    pub(crate) parts: Vec<Part>,
    /// Folders whose repositories are not known.
    pub(crate) wanted: Vec<String>,
    /// The paths that the line names, where they are to be gathered.
    pub(crate) touched: Option<Vec<(String, bool)>>,
    /// What the line names.
    pub(crate) named: Vec<Named>,
    pub(crate) lines: usize,
    /// The line that is being judged.
    pub(crate) text: String,
    /// Whether a rule of the user's asks.
    pub(crate) asked_by_rule: bool,
    /// Whether a program follows links that it meets.
    pub(crate) roams: bool,
    /// What standard input is known to hold.
    pub(crate) input: Feed,
    /// Whether a plain shell reads the line, for which `[[` is a word like any other.
    pub(crate) plain: bool,
}

impl Finding {
    pub(crate) fn allow(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Allow, reason: reason.into(), firm: false }
    }

    pub(crate) fn ask(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ask, reason: reason.into(), firm: false }
    }

    pub(crate) fn firm(reason: impl Into<String>) -> Self {
        Self { firm: true, ..Self::ask(reason) }
    }

    /// The stricter of both, this one of equals.
    pub(crate) fn and(self, other: Self) -> Self {
        if (super::rank(other.verdict), other.firm) > (super::rank(self.verdict), self.firm) { other } else { self }
    }
}

impl From<Result<String, String>> for Finding {
    fn from(result: Result<String, String>) -> Self {
        result.map_or_else(Self::ask, Self::allow)
    }
}

impl Scope {
    pub(crate) fn new() -> Self {
        Self { folder: Folder::root(), bound: BTreeMap::new(), loops: 0 }
    }

    /// Keeps what is certain whichever of both came to be.
    fn merge(&mut self, other: &Self) {
        self.folder = self.folder.or(&other.folder);
        self.bound.retain(|name, bound| other.bound.get(name) == Some(bound));
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.bound.remove(name);
    }

    /// From now on a variable holds something of which this is known.
    pub(crate) fn bind(&mut self, name: &str, known: Trait) {
        self.bound.insert(name.to_owned(), Bound::Some(known));
    }
}

impl Judge<'_> {
    /// Judges a line in the line.
    pub(crate) fn line(&mut self, text: &str, scope: &mut Scope) {
        self.lines += 1;
        let parsed =
            if self.lines > MAX_LINES { Err("it is nested too deeply to be judged") } else { line::parse(text) };
        match parsed {
            Ok(program) => {
                if text.contains("\\\n") {
                    self.push(text, Finding::ask("a line goes on behind a backslash"));
                }
                let outer = std::mem::replace(&mut self.text, text.to_owned());
                self.program(&program, scope);
                self.text = outer;
                if text.chars().count() > MAX_UNASKED {
                    self.push("the line", Finding::ask("it is too long to run unseen"));
                }
            }
            Err(reason) => {
                self.note_unread(text, scope);
                self.push(text, Finding::firm(reason));
            }
        }
        self.lines -= 1;
    }

    pub(crate) fn push(&mut self, command: &str, finding: Finding) {
        self.push_kind(command, finding, None);
    }

    pub(crate) fn push_kind(&mut self, command: &str, finding: Finding, kind: Option<&'static str>) {
        let finding = match self.parts.len() {
            0..MAX_SEGMENTS => finding,
            MAX_SEGMENTS => Finding::firm("it has too many parts to be judged"),
            _ => return,
        };
        let Finding { verdict, reason, firm } = self.rules.approve_as_a_whole(finding);
        let kind = kind.filter(|_| !firm && verdict == Verdict::Ask);
        self.parts.push(Part { segment: Segment { command: command.to_owned(), verdict, reason }, kind });
    }

    fn program(&mut self, program: &Program, scope: &mut Scope) {
        for list in &program.complete_commands {
            self.list(list, scope);
        }
    }

    pub(crate) fn list(&mut self, list: &CompoundList, scope: &mut Scope) {
        for item in &list.0 {
            let before = scope.clone();
            self.and_or(&item.0, scope);
            if matches!(item.1, SeparatorOperator::Async) {
                *scope = before;
            }
        }
    }

    /// Commands behind `&&` and `||` run or do not: afterwards only that is certain which both leave as it was.
    fn and_or(&mut self, list: &AndOrList, scope: &mut Scope) {
        let mut possible = vec![scope.clone()];
        self.pipeline(&list.first, scope);
        // A folder that cannot be entered leaves the shell where it is.
        let mut entered = scope.folder != possible.first().map_or_else(Folder::root, |first| first.folder.clone());
        for more in &list.additional {
            let (pipeline, runs_after_success) = match more {
                AndOr::And(pipeline) => (pipeline, true),
                AndOr::Or(pipeline) => (pipeline, false),
            };
            if !runs_after_success {
                let mut merged = scope.clone();
                possible.iter().for_each(|other| merged.merge(other));
                *scope = merged;
            }
            possible.push(scope.clone());
            let folder = scope.folder.clone();
            self.pipeline(pipeline, scope);
            entered |= scope.folder != folder;
        }
        // Assignments of the first command are made for certain, and changes of the folder never.
        let first = possible.get(1).cloned();
        if let Some(after_first) = first {
            scope.merge(&after_first);
            let certain = after_first.bound;
            scope.bound.retain(|name, bound| certain.get(name) == Some(bound));
        }
        if entered {
            let folders = possible.iter().map(|other| &other.folder);
            scope.folder = folders.fold(scope.folder.clone(), |folder, other| folder.or(other));
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline, scope: &mut Scope) {
        if pipeline.seq.is_empty() {
            return self.push("!", Finding::ask("there is no command"));
        }
        if let [command] = pipeline.seq.as_slice() {
            return self.command(command, scope, Feed::Unknown);
        }
        // Each runs in a shell of its own.
        let (mut feeds, input) = (Feed::Unknown, self.input);
        for (at, command) in pipeline.seq.iter().enumerate() {
            // The first one shares the input of the whole.
            self.input = if at == 0 { input } else { feeds };
            self.command(command, &mut scope.clone(), feeds);
            feeds = self.feeds(command, scope, feeds);
        }
        self.input = input;
        // In zsh the last one runs in this shell.
        if self.facts.shell == Shell::Zsh {
            *scope = Scope { folder: Folder::somewhere(), bound: BTreeMap::new(), loops: scope.loops };
        }
    }

    fn command(&mut self, command: &Command, scope: &mut Scope, fed: Feed) {
        match command {
            Command::Simple(simple) => {
                let redirected = redirected(simple);
                let input = self.input;
                self.input = if redirected { Feed::Unknown } else { input };
                self.simple(simple, scope, if redirected { Feed::Unknown } else { fed });
                self.input = input;
            }
            Command::Compound(compound, redirections) => {
                let list = redirections.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
                self.redirections_alone(list, scope);
                let input = self.input;
                self.input = if list.is_empty() { input } else { Feed::Unknown };
                self.compound(compound, scope);
                self.input = input;
            }
            Command::Function(function) => {
                let FunctionBody(body, redirections) = &function.body;
                let name = function.fname.value.as_str();
                let finding = match runs(&body.to_string(), name) {
                    true => Finding::firm("it runs itself, perhaps without an end"),
                    false => Finding::ask("it gives a name to commands"),
                };
                self.push(&format!("{name}()"), finding);
                let list = redirections.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
                self.redirections_alone(list, scope);
                self.compound(body, &mut scope.clone());
            }
            Command::ExtendedTest(test, redirections) => {
                let list = redirections.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
                self.redirections_alone(list, scope);
                if self.plain {
                    self.push("[[", Finding::ask("a plain shell takes [[ for a program"));
                }
                self.extended_test(&test.expr, scope);
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand, scope: &mut Scope) {
        match compound {
            CompoundCommand::BraceGroup(group) => self.list(&group.list, scope),
            CompoundCommand::Subshell(group) => self.list(&group.list, &mut scope.clone()),
            CompoundCommand::ForClause(clause) => self.for_clause(clause, scope),
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.repeat(scope, &mut |judge, scope| {
                    judge.list(&clause.0, scope);
                    judge.list(&clause.1.list, scope);
                });
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition, scope);
                let (before, mut after) = (scope.clone(), scope.clone());
                self.list(&clause.then, &mut after);
                scope.merge(&after);
                let mut branch = before;
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition, &mut branch);
                    }
                    let mut after = branch.clone();
                    self.list(&other.body, &mut after);
                    scope.merge(&after);
                    scope.merge(&branch);
                }
            }
            CompoundCommand::CaseClause(clause) => {
                self.quiet_words(std::iter::once(clause.value.value.as_str()), scope);
                let before = scope.clone();
                for case in &clause.cases {
                    self.quiet_words(case.patterns.iter().map(|word| word.value.as_str()), &before);
                    let mut after = before.clone();
                    if let Some(list) = &case.cmd {
                        self.list(list, &mut after);
                    }
                    scope.merge(&after);
                }
            }
            // Numbers and signs; a plain shell would run a command, and write where a sign points.
            CompoundCommand::Arithmetic(command)
                if !self.plain
                    && command.expr.value.chars().all(|c| c.is_ascii_digit() || "+-*/%<>=!&| ".contains(c)) =>
            {
                self.push(&compound.to_string(), Finding::allow("only computes"));
            }
            CompoundCommand::Arithmetic(_) | CompoundCommand::ArithmeticForClause(_) => {
                self.push(&compound.to_string(), Finding::ask("arithmetic can run commands"));
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.push("coproc", Finding::ask("it starts a coprocess"));
                self.command(&coprocess.body, &mut scope.clone(), Feed::Unknown);
            }
        }
    }

    fn for_clause(&mut self, clause: &ForClauseCommand, scope: &mut Scope) {
        let name = clause.variable_name.as_str();
        let mut known = Some(Trait { plain: true, inside: true, name: true, word: true });
        let in_zsh = self.facts.shell == Shell::Zsh;
        if !may_name(name) || in_zsh && (clause.values.is_none() || !is_common(name)) {
            self.push(&format!("for {name}"), Finding::ask(format!("{name} may be a variable that programs look at")));
        }
        let values = clause.values.iter().flatten();
        let values: Vec<Cow<'_, str>> = values.flat_map(|value| self.expanded(&value.value)).collect();
        self.quiet_words(values.iter().map(Cow::as_ref), scope);
        for value in &values {
            let word = self.scan(value, scope).word;
            let inside = super::place::readable(&word, &Folder::root(), "").is_ok() && !word.text.contains("..");
            known = match word.form {
                Form::Literal | Form::Glob(_) | Form::Field(_) => known.map(|known| Trait {
                    plain: known.plain && !word.may_be_option(),
                    inside: known.inside && inside,
                    name: known.name && is_part(&word),
                    word: known.word && word.known().is_some_and(is_one_word),
                }),
                Form::Fields | Form::Odd(_) => None,
            };
        }
        let bound = known.filter(|_| clause.values.is_some()).map(Bound::Some);
        self.repeat(scope, &mut |judge, scope| {
            scope.forget(name);
            if let Some(bound) = &bound {
                scope.bound.insert(name.to_owned(), bound.clone());
            }
            judge.list(&clause.body.list, scope);
        });
        scope.forget(name);
    }

    /// Judges the body of a loop: what it changes is not certain in it, nor after it.
    fn repeat(&mut self, scope: &mut Scope, body: &mut dyn FnMut(&mut Self, &mut Scope)) {
        if scope.loops >= MAX_LOOPS {
            return self.push("loop", Finding::firm("it is nested too deeply to be judged"));
        }
        scope.loops += 1;
        let (parts, wanted) = (self.parts.len(), self.wanted.clone());
        let mut after = scope.clone();
        body(self, &mut after);
        if after.folder != scope.folder || after.bound != scope.bound {
            self.parts.truncate(parts);
            self.wanted = wanted;
            if after.folder != scope.folder {
                scope.folder = Folder::somewhere();
            }
            scope.bound.retain(|name, bound| after.bound.get(name) == Some(bound));
            let folder = scope.folder.clone();
            let mut again = scope.clone();
            body(self, &mut again);
            if again.folder != folder {
                self.push("cd", Finding::ask("it changes the folder again and again"));
                scope.folder = Folder::somewhere();
            }
        }
        scope.loops -= 1;
    }

    /// Words that run nothing by themselves: what they expand may.
    fn quiet_words<'a>(&mut self, words: impl Iterator<Item = &'a str>, scope: &Scope) {
        for word in words {
            let scanned = self.scan(word, scope);
            if let Some(finding) = self.paths(std::slice::from_ref(&scanned.word), scope) {
                self.push(word, finding);
            }
            if let Form::Odd(odd) = scanned.word.form {
                self.push(word, Finding::ask(format!("it holds {odd}")));
            }
            self.commands(&scanned, scope);
        }
    }

    pub(crate) fn scan(&self, raw: &str, scope: &Scope) -> Scanned {
        let plain = self.plain && self.facts.shell == Shell::Bash;
        scan(raw, if plain { Shell::Plain } else { self.facts.shell }, &|name| {
            scope.bound.get(name).cloned().or_else(|| self.here(name, scope))
        })
    }

    /// `$PWD`, which nothing but `cd` sets unasked.
    fn here(&self, name: &str, scope: &Scope) -> Option<Bound> {
        let root = Some(self.facts.root.as_str()).filter(|root| !root.is_empty() && name == "PWD")?;
        let here = match scope.folder.path()? {
            "." => root.to_owned(),
            folder => format!("{root}/{folder}"),
        };
        Some(Bound::Literal(here))
    }

    /// The words that a word is before all else: more than one where it holds braces.
    pub(crate) fn expanded<'w>(&self, raw: &'w str) -> Vec<Cow<'w, str>> {
        match braces::expand(raw).filter(|_| !self.plain) {
            Some(words) => words.into_iter().map(Cow::Owned).collect(),
            None => vec![Cow::Borrowed(raw)],
        }
    }

    /// Judges the lines of a word's `$(…)`.
    pub(crate) fn commands(&mut self, scanned: &Scanned, scope: &Scope) {
        for line in &scanned.commands {
            self.line(line, &mut scope.clone());
        }
    }

    /// What stands in front of a command, or alone.
    pub(crate) fn assignment(&mut self, assignment: &Assignment, alone: bool, scope: &mut Scope) -> Finding {
        let (AssignmentName::VariableName(name), AssignmentValue::Scalar(value)) =
            (&assignment.name, &assignment.value)
        else {
            return Finding::ask("arrays are not judged");
        };
        let scanned = self.scan(&value.value, scope);
        self.commands(&scanned, scope);
        if let Form::Odd(odd) = scanned.word.form {
            return Finding::ask(format!("{name} is set to something that holds {odd}"));
        }
        if alone {
            scope.forget(name);
        }
        if scanned.word.known().is_some_and(|value| may_set(name, value)) && !assignment.append {
            return Finding::allow("sets a variable that is harmless");
        }
        if !alone || !may_name(name) || self.facts.shell == Shell::Zsh {
            return Finding::ask(format!("sets {name}, which programs may look at"));
        }
        let bound = match (scanned.word.form, assignment.append) {
            (Form::Literal, false) => Some(Bound::Literal(scanned.word.text)),
            (Form::Field(known), false) => Some(Bound::Some(Trait { word: false, ..known })),
            _ => None,
        };
        scope.bound.extend(bound.map(|bound| (name.clone(), bound)));
        Finding::allow("sets a variable of its own")
    }
}

/// Whether a name stands in commands as a word.
fn runs(commands: &str, name: &str) -> bool {
    commands.split(|c: char| c.is_whitespace() || ";|&(){}\"'`$".contains(c)).any(|word| word == name)
}

/// Names of loops that mean nothing to zsh, whose own variables are in small letters: `path` is where programs are found.
fn is_common(name: &str) -> bool {
    const COMMON: [&str; 10] = ["file", "dir", "line", "name", "item", "word", "num", "commit", "branch", "test"];
    name.len() == 1 || COMMON.contains(&name)
}

/// Whether a word is a part of a path, whatever stands beside it.
fn is_part(word: &Word) -> bool {
    word.known().is_some_and(|text| !text.is_empty() && !text.contains('/') && !text.starts_with('.'))
}

/// The words of a simple command as they were written, its name first.
pub(crate) fn words_of(simple: &SimpleCommand) -> impl Iterator<Item = &str> {
    let behind = simple.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(|item| match item {
        CommandPrefixOrSuffixItem::Word(word) | CommandPrefixOrSuffixItem::AssignmentWord(_, word) => {
            Some(word.value.as_str())
        }
        _ => None,
    });
    simple.word_or_name.iter().map(|word| word.value.as_str()).chain(behind)
}
