//! What a line names: the programs and the files that its run depends on, so that an approval can be bound to them.
//!
//! Everything in a word position counts, in every part of the line, also in `$(…)`, behind wrappers and in `bash -c '…'`: a word too
//! many costs a look at a file that is not there. What stands in a line that cannot be parsed is guessed, since such lines are asked
//! about too.

use super::Verdict;

use super::PolicyRules;
use super::command_facts::CommandFacts;
use super::evaluator::{CommandEvaluator, ShellScope};
use super::word::ShellWord;

/// Pieces that are guessed of one word or line.
const MAX_PIECES: usize = 200;

/// The words of one command of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandDependencies {
    /// The program as the line names it, if that is certain.
    pub program: Option<String>,
    /// What may name files.
    pub operands: Vec<String>,
    /// The folder it runs in, relative to the workspace, `.` for itself, if that is certain.
    pub folder: Option<String>,
}

/// The commands of a line; none for a line that is known to only read.
pub fn command_dependencies(command: &str, facts: &CommandFacts) -> Vec<CommandDependencies> {
    let rules = PolicyRules::default();
    let mut judge = CommandEvaluator::new(&rules, facts);
    judge.evaluate_line(command, &mut ShellScope::new());
    let asks = judge.parts.iter().any(|part| part.segment.verdict != Verdict::Allow);
    if asks { judge.dependencies } else { Vec::new() }
}

impl CommandEvaluator<'_> {
    /// Notes the words of a command.
    pub(crate) fn note_dependencies(&mut self, words: &[ShellWord], scope: &ShellScope) {
        let program = words.first().and_then(ShellWord::known_text).map(str::to_owned);
        let behind = words.get(usize::from(program.is_some())..).unwrap_or_default();
        let operands = behind.iter().flat_map(|word| match word.known_text() {
            // `--file=build.mk` names one as well.
            Some(text) => match text.split_once('=') {
                Some((_, value)) => vec![text.to_owned(), value.to_owned()],
                None => vec![text.to_owned()],
            },
            None => possible_names(&word.raw),
        });
        let operands = operands.filter(|text| !text.is_empty()).collect();
        self.dependencies.push(CommandDependencies {
            program,
            operands,
            folder: scope.folder.path().map(str::to_owned),
        });
    }

    /// Notes a line that cannot be read.
    pub(crate) fn note_unread(&mut self, text: &str, scope: &ShellScope) {
        let folder = scope.folder.path().map(str::to_owned);
        self.dependencies.push(CommandDependencies { program: None, operands: possible_names(text), folder });
    }
}

/// What could be names in a text that is not understood.
fn possible_names(text: &str) -> Vec<String> {
    let parts = |c: char| c.is_whitespace() || "'\"`$(){}[];|&<>=,\\".contains(c);
    text.split(parts).filter(|piece| !piece.is_empty()).take(MAX_PIECES).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `program operands @folder`.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let facts = CommandFacts { clean_path: true, root: "/w".to_owned(), ..CommandFacts::default() };
        let shown = command_dependencies(line, &facts).into_iter().map(|named| {
            let words: Vec<_> = named.program.iter().chain(&named.operands).map(String::as_str).collect();
            format!("{} @{}", words.join(" "), named.folder.as_deref().unwrap_or("?"))
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{line}");
    }

    #[test]
    fn programs_and_files_are_named() {
        check("ls -l | wc -l", &[]);
        check("./build.sh fast", &["./build.sh fast @."]);
        check("cd src && sh 'x y.sh'", &["cd src @.", "sh x y.sh @src"]);
        check("cat a | sh", &["cat a @.", "sh @."]);
        check("timeout 5 python x.py", &["timeout 5 python x.py @.", "python x.py @."]);
        check("bash -c 'make -f m.mk'", &["bash -c make -f m.mk @.", "make -f m.mk @."]);
        check("make --file=m.mk", &["make --file=m.mk m.mk @."]);
        check("sh < x.sh", &["x.sh @.", "sh @."]);
        check("echo $(./a)", &["./a @.", "echo ./a @."]);
        check("`./a`", &["./a @.", "./a @."]);
        check("if ( ./a", &["if ./a @."]);
    }
}
