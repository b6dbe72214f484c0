//! Walks over a command line and checks every part of it; the strictest part decides.
//!
//! The walk tracks what the shell changes on the way (folder and variables), because `cd x && rm y` and `rm y` differ. Where the
//! result depends on which commands succeed, only the facts that hold in every case are kept.
//!
//! A [`ShellScope`] holds what is known at a point of the line: the folder and the variables with a known value. It changes as
//! the shell would change it:
//!
//! | line | known afterwards |
//! | --- | --- |
//! | `cd src && …` | the folder is `src` for what follows `&&` |
//! | `cd src; …` | `src` or the workspace, because `cd` may fail |
//! | `(cd src; …)`, `… \|`, `… &` | nothing changes: each is a shell of its own (but the last part of a pipeline in zsh) |
//! | `x=a.txt; cat $x` | `x` is `a.txt` |
//! | `for f in *.txt` | `f` is the name of a file inside, which never begins with `-` if a folder is in front |
//! | `if a; then x=1; fi` | only what holds whether or not the branch ran |
//! | `while …; do cd ..; done` | the folder is not known, because each round starts where the last one ended |
//!
//! Lines within lines (`$(…)`, `bash -c`, `eval`) are parsed and walked in turn, so wrapping a command never weakens its verdict; a
//! property test states that. Whatever is not understood becomes a question with its reason, at the part where it occurs.
//!
//! There are two strengths of questions. One that an approval of all commands answers ([`PolicyFinding::ask`]), and one that only
//! the user answers ([`PolicyFinding::always_ask`]): for what cannot be undone, and for what cannot be read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command,
    CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, ForClauseCommand, FunctionBody,
    Pipeline, Program, SeparatorOperator, SimpleCommand,
};

use super::Verdict;
use super::ask_reason::AskReason;
use super::command_facts::{CommandFacts, ShellKind};
use super::path_scope::FolderScope;
use super::pipe_input::{PipeInput, is_redirected};
use super::programs::{is_harmless_assignment, may_assign_variable};
use super::word::{
    ScannedWord, ShellWord, TextTraits, VariableValue, WordForm, is_one_word, scan_word,
};
use super::{CommandDependencies, CommandSegment, PolicyRules, braces, line};

/// The deepest nesting of lines in lines (`$(…)`, `bash -c '…'`) that is checked.
const MAX_LINES: usize = 8;
/// The longest line, in characters, that is allowed without a question, however harmless its parts are.
const MAX_UNASKED: usize = 10_000;
/// The most parts of a line that are checked; a line with more of them asks.
const MAX_SEGMENTS: usize = 500;
/// The deepest nesting of loops. Each body is checked up to twice, so the cost doubles with every level.
const MAX_LOOPS: usize = 4;

/// The verdict on one part of a line, with its reason.
///
/// Findings of the pieces of a command are joined by [`stricter`](Self::stricter), which keeps the reason of the stricter one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyFinding {
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    /// True if it asks even when all commands are approved.
    pub(crate) always_asks: bool,
}

/// The state of the shell at one point of the line.
#[derive(Debug, Clone)]
pub(crate) struct ShellScope {
    pub(crate) folder: FolderScope,
    /// The variables with a known value. A variable that is not listed can hold anything.
    variables: BTreeMap<String, VariableValue>,
    /// The number of loops around this point.
    loops: usize,
}

/// A checked part of a line.
#[derive(Debug)]
pub(crate) struct EvaluatedPart {
    pub(crate) segment: CommandSegment,
    /// True if it asks even when all commands are approved.
    pub(crate) always_asks: bool,
    /// The kind of command whose approval would allow it.
    pub(crate) kind: Option<&'static str>,
}

/// The state of the walk over one command line.
pub(crate) struct CommandEvaluator<'a> {
    pub(crate) rules: &'a PolicyRules,
    pub(crate) facts: &'a CommandFacts,
    pub(crate) parts: Vec<EvaluatedPart>,
    /// The folders whose repository state was needed and is not known.
    pub(crate) wanted_repositories: Vec<String>,
    /// The paths that the line names, each with true for a pattern. `None` if the caller does not need them.
    pub(crate) touched_paths: Option<Vec<(String, bool)>>,
    /// The programs and files that the line depends on.
    pub(crate) dependencies: Vec<CommandDependencies>,
    /// The nesting depth of the current line in other lines.
    pub(crate) line_depth: usize,
    /// The innermost line that is being checked.
    pub(crate) text: String,
    /// True if one of the user's rules asks about a part.
    pub(crate) asked_by_rule: bool,
    /// True if a program of the line follows symbolic links that it meets.
    pub(crate) follows_symlinks: bool,
    /// True if the line could read a file with secrets that it does not name, and the caller has not looked for such files.
    pub(crate) could_match_secret: bool,
    /// True if names of files are passed on as text, and the caller has not looked for names that would be split.
    pub(crate) needs_file_names: bool,
    /// The same for names in the index of the repository.
    pub(crate) needs_index_names: bool,
    /// Files that must be absent and were not looked for.
    pub(crate) wanted_absent: Vec<String>,
    /// The folders of builds whose trust is not known.
    pub(crate) wanted_build_folders: Vec<String>,
    /// True if git shows contents of files that are not named, and the caller has not looked for those with secrets.
    pub(crate) needs_tracked_secrets: bool,
    /// The same for files in commits.
    pub(crate) needs_history_secrets: bool,
    /// The words that may be ids of contents which git would show.
    pub(crate) wanted_object_ids: Vec<String>,
    /// The folder from which git would push.
    pub(crate) wanted_push_folder: Option<String>,
    /// True if a part is allowed only because it is a build in a trusted folder.
    pub(crate) allowed_build: bool,
    /// The text that the current command reads from a here document, if it is certain.
    pub(crate) document: Option<String>,
    /// True if standard input is a pipe from another command of the line.
    pub(crate) piped: bool,
    /// The known content of standard input.
    pub(crate) input: PipeInput,
    /// True if a plain POSIX shell runs the line, where `[[` is an ordinary word.
    pub(crate) plain_shell: bool,
}

impl PolicyFinding {
    /// Returns a finding that lets the part run, with the reason why it is harmless.
    pub(crate) fn allow(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Allow,
            reason: reason.into(),
            always_asks: false,
        }
    }

    /// Returns a question that an approval of all commands, or of the kind, answers.
    pub(crate) fn ask(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ask,
            reason: reason.into(),
            always_asks: false,
        }
    }

    /// Returns a question that no approval of commands answers: for what cannot be undone or cannot be read. The exact line can still
    /// be approved.
    pub(crate) fn always_ask(reason: impl Into<String>) -> Self {
        Self {
            always_asks: true,
            ..Self::ask(reason)
        }
    }

    /// Returns the stricter of two findings, and `self` if they are equally strict.
    pub(crate) fn stricter(self, other: Self) -> Self {
        if (super::strictness_rank(other.verdict), other.always_asks)
            > (super::strictness_rank(self.verdict), self.always_asks)
        {
            other
        } else {
            self
        }
    }
}

impl From<Result<String, AskReason>> for PolicyFinding {
    fn from(result: Result<String, AskReason>) -> Self {
        result.map_or_else(Self::ask, Self::allow)
    }
}

impl ShellScope {
    /// Returns the state in which every line starts: in the workspace folder, with no variable known.
    pub(crate) fn new() -> Self {
        Self {
            folder: FolderScope::root(),
            variables: BTreeMap::new(),
            loops: 0,
        }
    }

    /// Keeps only the facts that hold in both branches.
    fn merge_branch(&mut self, other: &Self) {
        self.folder = self.folder.common_scope(&other.folder);
        self.variables
            .retain(|name, bound| other.variables.get(name) == Some(bound));
    }

    /// Marks that a variable may hold anything from now on.
    pub(crate) fn forget_variable(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Sets a variable to an unknown value with known traits.
    pub(crate) fn bind_variable(&mut self, name: &str, known: TextTraits) {
        self.variables
            .insert(name.to_owned(), VariableValue::Some(known));
    }
}

impl CommandEvaluator<'_> {
    /// Checks a line: the whole command line, or one that is nested in it.
    pub(crate) fn evaluate_line(&mut self, text: &str, scope: &mut ShellScope) {
        self.line_depth += 1;
        let parsed = if self.line_depth > MAX_LINES {
            Err("it is nested too deeply to be checked")
        } else {
            line::parse_line(text)
        };
        match parsed {
            Ok(program) => {
                // The parser and the shell may join such lines in different ways.
                if text.contains("\\\n") {
                    self.push_finding(
                        text,
                        PolicyFinding::ask("a line continues after a backslash"),
                    );
                }
                let outer = std::mem::replace(&mut self.text, text.to_owned());
                self.evaluate_program(&program, scope);
                self.text = outer;
                if text.chars().count() > MAX_UNASKED {
                    self.push_finding(
                        "the line",
                        PolicyFinding::ask("it is too long to run unseen"),
                    );
                }
            }
            Err(reason) => {
                // An unreadable line could do anything, so not even an approval of all commands
                // allows it.
                self.record_unparsed_names(text, scope);
                self.push_finding(text, PolicyFinding::always_ask(reason));
            }
        }
        self.line_depth -= 1;
    }

    /// Records a finding for a part that belongs to no kind.
    pub(crate) fn push_finding(&mut self, command: &str, finding: PolicyFinding) {
        self.push_kind_finding(command, finding, None);
    }

    /// Records a finding, with the kind whose approval would allow the part.
    pub(crate) fn push_kind_finding(
        &mut self,
        command: &str,
        finding: PolicyFinding,
        kind: Option<&'static str>,
    ) {
        let finding = match self.parts.len() {
            // The first part beyond the limit asks for all that follow, which are dropped.
            0..MAX_SEGMENTS => finding,
            MAX_SEGMENTS => PolicyFinding::always_ask("it has too many parts to be checked"),
            _ => return,
        };
        let PolicyFinding {
            verdict,
            reason,
            always_asks,
        } = self.rules.apply_blanket_approval(finding);
        // A kind is offered only where its approval would change the verdict.
        let kind = kind.filter(|_| !always_asks && verdict == Verdict::Ask);
        self.parts.push(EvaluatedPart {
            segment: CommandSegment {
                command: command.to_owned(),
                verdict,
                reason,
            },
            always_asks,
            kind,
        });
    }

    /// Checks the lists of a parsed line, one after the other in the same shell.
    fn evaluate_program(&mut self, program: &Program, scope: &mut ShellScope) {
        for list in &program.complete_commands {
            self.evaluate_list(list, scope);
        }
    }

    /// Checks commands that are separated by `;`, `&` or line feeds.
    pub(crate) fn evaluate_list(&mut self, list: &CompoundList, scope: &mut ShellScope) {
        for item in &list.0 {
            let before = scope.clone();
            self.evaluate_and_or(&item.0, scope);
            // `command &` runs in a subshell, so it changes nothing here.
            if matches!(item.1, SeparatorOperator::Async) {
                *scope = before;
            }
        }
    }

    /// Checks commands joined by `&&` and `||`. Each of them may or may not run, so afterwards only the facts that hold in both
    /// cases are certain.
    fn evaluate_and_or(&mut self, list: &AndOrList, scope: &mut ShellScope) {
        // Each command of the list may be the last one that runs, so every state on the way counts.
        let mut possible = vec![scope.clone()];
        self.evaluate_pipeline(&list.first, scope);
        // `cd` may fail, which leaves the shell in the folder where it was.
        let mut entered = scope.folder
            != possible
                .first()
                .map_or_else(FolderScope::root, |first| first.folder.clone());
        for more in &list.additional {
            let (pipeline, runs_after_success) = match more {
                AndOr::And(pipeline) => (pipeline, true),
                AndOr::Or(pipeline) => (pipeline, false),
            };
            if !runs_after_success {
                let mut merged = scope.clone();
                possible.iter().for_each(|other| merged.merge_branch(other));
                *scope = merged;
            }
            possible.push(scope.clone());
            let folder = scope.folder.clone();
            self.evaluate_pipeline(pipeline, scope);
            entered |= scope.folder != folder;
        }
        // The first command always runs, so its assignments are certain. A change of folder never
        // is, because `cd` may fail.
        let first = possible.get(1).cloned();
        if let Some(after_first) = first {
            scope.merge_branch(&after_first);
            let certain = after_first.variables;
            scope
                .variables
                .retain(|name, bound| certain.get(name) == Some(bound));
        }
        if entered {
            let folders = possible.iter().map(|other| &other.folder);
            scope.folder = folders.fold(scope.folder.clone(), |folder, other| {
                folder.common_scope(other)
            });
        }
    }

    /// Checks the commands of a pipeline, and tracks what each hands to the next.
    ///
    /// A pipeline of one command runs in the current shell, so `cd src` changes the folder; in a longer one each command has a shell of
    /// its own.
    fn evaluate_pipeline(&mut self, pipeline: &Pipeline, scope: &mut ShellScope) {
        if pipeline.seq.is_empty() {
            return self.push_finding("!", PolicyFinding::ask("there is no command"));
        }
        if let [command] = pipeline.seq.as_slice() {
            return self.evaluate_command(command, scope, PipeInput::Unknown);
        }
        // Each command of a pipeline runs in a subshell.
        let mut feeds = PipeInput::Unknown;
        let input = self.input;
        let piped = self.piped;
        for (at, command) in pipeline.seq.iter().enumerate() {
            self.piped = at > 0;
            // The first command reads the standard input of the pipeline.
            self.input = if at == 0 { input } else { feeds };
            self.evaluate_command(command, &mut scope.clone(), feeds);
            feeds = self.pipe_output(command, scope, feeds);
        }
        self.input = input;
        self.piped = piped;
        // In zsh the last command runs in the current shell and may change anything in it.
        if self.facts.shell == ShellKind::Zsh {
            *scope = ShellScope {
                folder: FolderScope::unknown_inside(),
                variables: BTreeMap::new(),
                loops: scope.loops,
            };
        }
    }

    /// Checks one command of a pipeline. `fed` is what the command before it prints.
    ///
    /// A redirection of standard input replaces the pipe, so nothing is known of the input any more.
    fn evaluate_command(&mut self, command: &Command, scope: &mut ShellScope, fed: PipeInput) {
        match command {
            Command::Simple(simple) => {
                let redirected = is_redirected(simple);
                let input = self.input;
                let piped = self.piped;
                self.piped &= !redirected;
                self.input = if redirected {
                    PipeInput::Unknown
                } else {
                    input
                };
                self.evaluate_simple(
                    simple,
                    scope,
                    if redirected { PipeInput::Unknown } else { fed },
                );
                self.input = input;
                self.piped = piped;
            }
            Command::Compound(compound, redirections) => {
                let list = redirections
                    .as_ref()
                    .map(|list| list.0.as_slice())
                    .unwrap_or_default();
                self.evaluate_redirections(list, scope);
                let input = self.input;
                self.input = if list.is_empty() {
                    input
                } else {
                    PipeInput::Unknown
                };
                self.evaluate_compound(compound, scope);
                self.input = input;
            }
            Command::Function(function) => {
                let FunctionBody(body, redirections) = &function.body;
                let name = function.fname.value.as_str();
                // A function that calls itself can be a fork bomb: `:(){ :|:& };:`.
                let finding = match mentions_word(&body.to_string(), name) {
                    true => PolicyFinding::always_ask("it runs itself, perhaps without an end"),
                    false => PolicyFinding::ask("it gives a name to commands"),
                };
                self.push_finding(&format!("{name}()"), finding);
                let list = redirections
                    .as_ref()
                    .map(|list| list.0.as_slice())
                    .unwrap_or_default();
                self.evaluate_redirections(list, scope);
                // The body may run later and elsewhere, so it changes nothing here.
                self.evaluate_compound(body, &mut scope.clone());
            }
            Command::ExtendedTest(test, redirections) => {
                let list = redirections
                    .as_ref()
                    .map(|list| list.0.as_slice())
                    .unwrap_or_default();
                self.evaluate_redirections(list, scope);
                if self.plain_shell {
                    self.push_finding(
                        "[[",
                        PolicyFinding::ask("a plain shell takes [[ for a program"),
                    );
                }
                self.evaluate_extended_test(&test.expr, scope);
            }
        }
    }

    /// Checks groups, subshells, loops, conditions and arithmetic by the commands in them.
    ///
    /// Arithmetic is accepted only without names: the shell evaluates the value of a name as arithmetic again, and an array subscript in
    /// it (`a[$(cmd)]`) runs a command.
    fn evaluate_compound(&mut self, compound: &CompoundCommand, scope: &mut ShellScope) {
        match compound {
            CompoundCommand::BraceGroup(group) => self.evaluate_list(&group.list, scope),
            CompoundCommand::Subshell(group) => self.evaluate_list(&group.list, &mut scope.clone()),
            CompoundCommand::ForClause(clause) => self.evaluate_for(clause, scope),
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.evaluate_loop_body(scope, &mut |evaluator, scope| {
                    evaluator.evaluate_list(&clause.0, scope);
                    evaluator.evaluate_list(&clause.1.list, scope);
                });
            }
            CompoundCommand::IfClause(clause) => {
                self.evaluate_list(&clause.condition, scope);
                let before = scope.clone();
                let mut after = scope.clone();
                self.evaluate_list(&clause.then, &mut after);
                scope.merge_branch(&after);
                let mut branch = before;
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.evaluate_list(condition, &mut branch);
                    }
                    let mut after = branch.clone();
                    self.evaluate_list(&other.body, &mut after);
                    scope.merge_branch(&after);
                    scope.merge_branch(&branch);
                }
            }
            CompoundCommand::CaseClause(clause) => {
                self.evaluate_non_command_words(
                    std::iter::once(clause.value.value.as_str()),
                    scope,
                );
                let before = scope.clone();
                for case in &clause.cases {
                    self.evaluate_non_command_words(
                        case.patterns.iter().map(|word| word.value.as_str()),
                        &before,
                    );
                    let mut after = before.clone();
                    if let Some(list) = &case.cmd {
                        self.evaluate_list(list, &mut after);
                    }
                    scope.merge_branch(&after);
                }
            }
            // Only numbers and operators. A plain shell takes `((…))` for a command, and `>` in it
            // for a redirection.
            CompoundCommand::Arithmetic(command)
                if !self.plain_shell
                    && command
                        .expr
                        .value
                        .chars()
                        .all(|c| c.is_ascii_digit() || "+-*/%<>=!&| ".contains(c)) =>
            {
                self.push_finding(&compound.to_string(), PolicyFinding::allow("only computes"));
            }
            CompoundCommand::Arithmetic(_) | CompoundCommand::ArithmeticForClause(_) => {
                self.push_finding(
                    &compound.to_string(),
                    PolicyFinding::ask("arithmetic can run commands"),
                );
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.push_finding("coproc", PolicyFinding::ask("it starts a coprocess"));
                self.evaluate_command(&coprocess.body, &mut scope.clone(), PipeInput::Unknown);
            }
        }
    }

    /// Checks a `for` loop. The variable gets the traits that all values share, so the body is checked for any of them.
    ///
    /// A value that may be a file with secrets does not count as inside, so that reading the file asks, and printing its name does not.
    fn evaluate_for(&mut self, clause: &ForClauseCommand, scope: &mut ShellScope) {
        let name = clause.variable_name.as_str();
        // The traits that all values share; `None` once a value is not certain enough.
        let mut known = Some(TextTraits {
            plain: true,
            inside: true,
            name: true,
            word: true,
        });
        let in_zsh = self.facts.shell == ShellKind::Zsh;
        if !may_assign_variable(name) || in_zsh && (clause.values.is_none() || !is_common(name)) {
            self.push_finding(
                &format!("for {name}"),
                PolicyFinding::ask(format!("{name} may be a variable that programs look at")),
            );
        }
        let values = clause.values.iter().flatten();
        let values: Vec<Cow<'_, str>> = values
            .flat_map(|value| self.expand_word(&value.value))
            .collect();
        self.evaluate_non_command_words(values.iter().map(Cow::as_ref), scope);
        for value in &values {
            let word = self.scan_in_scope(value, scope).word;
            let reach = self.operand_reach(&[&word], false, scope);
            let inside = super::path_scope::check_readable(&word, &FolderScope::root(), "").is_ok()
                && !word.text.contains("..")
                && !self.may_reach_secret(&reach);
            known = match word.form {
                WordForm::Literal | WordForm::Glob(_) | WordForm::Field(_) => {
                    known.map(|known| TextTraits {
                        plain: known.plain && !word.may_be_option(),
                        inside: known.inside && inside,
                        name: known.name && is_part(&word),
                        word: known.word && word.known_text().is_some_and(is_one_word),
                    })
                }
                WordForm::Fields | WordForm::Odd(_) => None,
            };
        }
        // Without values the loop runs over `$@`, of which nothing is known.
        let bound = known
            .filter(|_| clause.values.is_some())
            .map(VariableValue::Some);
        self.evaluate_loop_body(scope, &mut |evaluator, scope| {
            scope.forget_variable(name);
            if let Some(bound) = &bound {
                scope.variables.insert(name.to_owned(), bound.clone());
            }
            evaluator.evaluate_list(&clause.body.list, scope);
        });
        scope.forget_variable(name);
    }

    /// Checks the body of a loop. Facts that the body changes are not certain in the next round, nor after the loop.
    ///
    /// The body is checked once with the facts from before the loop. If that changes any facts, its findings are dropped, the
    /// changed facts are forgotten, and the body is checked again.
    fn evaluate_loop_body(
        &mut self,
        scope: &mut ShellScope,
        body: &mut dyn FnMut(&mut Self, &mut ShellScope),
    ) {
        if scope.loops >= MAX_LOOPS {
            return self.push_finding(
                "loop",
                PolicyFinding::always_ask("it is nested too deeply to be checked"),
            );
        }
        scope.loops += 1;
        let parts = self.parts.len();
        let wanted = self.wanted_repositories.clone();
        let mut after = scope.clone();
        body(self, &mut after);
        if after.folder != scope.folder || after.variables != scope.variables {
            // The first pass assumed too much, so what it found is dropped.
            self.parts.truncate(parts);
            self.wanted_repositories = wanted;
            if after.folder != scope.folder {
                scope.folder = after.folder.common_scope(&scope.folder).forget_path();
            }
            scope
                .variables
                .retain(|name, bound| after.variables.get(name) == Some(bound));
            let folder = scope.folder.clone();
            let mut again = scope.clone();
            body(self, &mut again);
            if again.folder != folder {
                self.push_finding(
                    "cd",
                    PolicyFinding::ask("it changes the folder again and again"),
                );
                scope.folder = again.folder.common_scope(&scope.folder).forget_path();
            }
        }
        scope.loops -= 1;
    }

    /// Checks words that are not a command themselves but may expand to something that runs commands.
    fn evaluate_non_command_words<'a>(
        &mut self,
        words: impl Iterator<Item = &'a str>,
        scope: &ShellScope,
    ) {
        for word in words {
            let scanned = self.scan_in_scope(word, scope);
            if let Some(finding) = self.check_paths(std::slice::from_ref(&scanned.word), scope) {
                self.push_finding(word, finding);
            }
            if let WordForm::Odd(odd) = scanned.word.form {
                self.push_finding(word, PolicyFinding::ask(format!("it holds {odd}")));
            }
            self.evaluate_substitutions(&scanned, scope);
        }
    }

    /// Scans a word with the variables of a scope.
    pub(crate) fn scan_in_scope(&self, raw: &str, scope: &ShellScope) -> ScannedWord {
        let plain = self.plain_shell && self.facts.shell == ShellKind::Bash;
        scan_word(
            raw,
            if plain {
                ShellKind::Plain
            } else {
                self.facts.shell
            },
            &|name| {
                scope
                    .variables
                    .get(name)
                    .cloned()
                    .or_else(|| self.working_directory_value(name, scope))
            },
        )
    }

    /// Returns the value of `$PWD` if it is certain. Only `cd` changes it; an assignment to it asks.
    fn working_directory_value(&self, name: &str, scope: &ShellScope) -> Option<VariableValue> {
        let root =
            Some(self.facts.root.as_str()).filter(|root| !root.is_empty() && name == "PWD")?;
        let here = match scope.folder.path()? {
            "." => root.to_owned(),
            folder => format!("{root}/{folder}"),
        };
        Some(VariableValue::Literal(here))
    }

    /// Expands the braces of a word, which shells do before any other expansion. Returns the word itself if there are none.
    pub(crate) fn expand_word<'w>(&self, raw: &'w str) -> Vec<Cow<'w, str>> {
        match braces::expand_braces(raw).filter(|_| !self.plain_shell) {
            Some(words) => words.into_iter().map(Cow::Owned).collect(),
            None => vec![Cow::Borrowed(raw)],
        }
    }

    /// Checks the command substitutions of a word as lines of their own.
    pub(crate) fn evaluate_substitutions(&mut self, scanned: &ScannedWord, scope: &ShellScope) {
        for line in &scanned.commands {
            self.evaluate_line(line, &mut scope.clone());
        }
    }

    /// Checks an assignment. `alone` is true if no command follows it, so that it lasts for the rest of the line.
    pub(crate) fn evaluate_assignment(
        &mut self,
        assignment: &Assignment,
        alone: bool,
        scope: &mut ShellScope,
    ) -> PolicyFinding {
        let (AssignmentName::VariableName(name), AssignmentValue::Scalar(value)) =
            (&assignment.name, &assignment.value)
        else {
            return PolicyFinding::ask("arrays are not understood");
        };
        let scanned = self.scan_in_scope(&value.value, scope);
        self.evaluate_substitutions(&scanned, scope);
        if let WordForm::Odd(odd) = scanned.word.form {
            return PolicyFinding::ask(format!("{name} is set to something that holds {odd}"));
        }
        // The old value is gone, even if the new one is unknown.
        if alone {
            scope.forget_variable(name);
        }
        if scanned
            .word
            .known_text()
            .is_some_and(|value| is_harmless_assignment(name, value))
            && !assignment.append
        {
            return PolicyFinding::allow("sets a variable that is harmless");
        }
        // In front of a command an assignment sets the environment of that program.
        // zsh has lower-case variables with a meaning of their own, such as `path`.
        if !alone || !may_assign_variable(name) || self.facts.shell == ShellKind::Zsh {
            return PolicyFinding::ask(format!("sets {name}, which programs may look at"));
        }
        let bound = match (scanned.word.form, assignment.append) {
            (WordForm::Literal, false) => Some(VariableValue::Literal(scanned.word.text)),
            (WordForm::Field(known), false) => Some(VariableValue::Some(TextTraits {
                word: false,
                ..known
            })),
            _ => None,
        };
        scope
            .variables
            .extend(bound.map(|bound| (name.clone(), bound)));
        PolicyFinding::allow("sets a variable of its own")
    }
}

/// Removes the blank that the parser puts behind `>&` and `<&`, so that `2>&1` is shown as it was written. Quoted text stays.
pub(crate) fn tidy_redirections(command: &str) -> String {
    let mut tidy = String::with_capacity(command.len());
    let mut quote = None;
    let mut rest = command.chars().peekable();
    while let Some(c) = rest.next() {
        tidy.push(c);
        match (quote, c) {
            (None | Some('"'), '\\') => tidy.extend(rest.next()),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            // A descriptor directly follows the sign; the name of a file is easier to read after a
            // blank.
            (None, ' ')
                if (tidy.ends_with(">& ") || tidy.ends_with("<& "))
                    && rest
                        .peek()
                        .is_some_and(|next| next.is_ascii_digit() || *next == '-') =>
            {
                tidy.pop();
            }
            _ => {}
        }
    }
    tidy
}

/// Reports whether a text of commands holds a name as a whole word.
fn mentions_word(commands: &str, name: &str) -> bool {
    commands
        .split(|c: char| c.is_whitespace() || ";|&(){}\"'`$".contains(c))
        .any(|word| word == name)
}

/// Reports whether a loop variable has a name without a meaning in zsh. The special variables of zsh are lower case: `path`, for
/// example, is the search path for programs.
fn is_common(name: &str) -> bool {
    const COMMON: [&str; 10] = [
        "file", "dir", "line", "name", "item", "word", "num", "commit", "branch", "test",
    ];
    name.len() == 1 || COMMON.contains(&name)
}

/// Reports whether a word is one component of a path, so that it stays one inside of a longer word.
fn is_part(word: &ShellWord) -> bool {
    word.known_text()
        .is_some_and(|text| !text.is_empty() && !text.contains('/') && !text.starts_with('.'))
}

/// Iterates over the words of a simple command as they were written, its name first.
pub(crate) fn words_of(simple: &SimpleCommand) -> impl Iterator<Item = &str> {
    let behind = simple
        .suffix
        .iter()
        .flat_map(|suffix| &suffix.0)
        .filter_map(|item| match item {
            CommandPrefixOrSuffixItem::Word(word)
            | CommandPrefixOrSuffixItem::AssignmentWord(_, word) => Some(word.value.as_str()),
            _ => None,
        });
    simple
        .word_or_name
        .iter()
        .map(|word| word.value.as_str())
        .chain(behind)
}
