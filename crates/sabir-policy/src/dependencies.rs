//! Lists the programs and files that a command line depends on, so that an approval can be bound to their content.
//!
//! Every word of every part counts, including those in `$(…)`, behind wrappers and in `bash -c '…'`. A word too many is cheap: the
//! caller looks for a file that does not exist. Lines that cannot be parsed also ask, so their words are guessed.
//!
//! An approval is for a command as it was shown. Between the question and the answer, `build.sh` may be replaced by another script,
//! so the caller hashes what the words of the line may name and compares before it runs. Only the text is looked at here; which words
//! are files, and what they hold, is for the caller to find out.

use super::Verdict;

use super::PolicyRules;
use super::command_facts::CommandFacts;
use super::evaluator::{CommandEvaluator, ShellScope};
use super::word::ShellWord;

/// The most names that are guessed from one word or line.
const MAX_PIECES: usize = 200;

/// The words of one command of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandDependencies {
    /// The program as the line names it; `None` if it is not certain.
    pub program: Option<String>,
    /// The words that may name files.
    pub operands: Vec<String>,
    /// The folder that the command runs in, relative to the workspace (`.` for the workspace itself); `None` if it is not certain.
    pub folder: Option<String>,
}

/// Returns the commands of a line with their words. Empty for a line that is known to only read, since no approval is needed.
pub fn command_dependencies(command: &str, facts: &CommandFacts) -> Vec<CommandDependencies> {
    let rules = PolicyRules::default();
    let mut evaluator = CommandEvaluator::new(&rules, facts);
    evaluator.evaluate_line(command, &mut ShellScope::new());
    let asks = evaluator
        .parts
        .iter()
        .any(|part| part.segment.verdict != Verdict::Allow);
    if asks {
        evaluator.dependencies
    } else {
        Vec::new()
    }
}

impl CommandEvaluator<'_> {
    /// Records the words of a command.
    pub(crate) fn note_dependencies(&mut self, words: &[ShellWord], scope: &ShellScope) {
        let program = words
            .first()
            .and_then(ShellWord::known_text)
            .map(str::to_owned);
        // Without a certain program every word may be one, so none is skipped.
        let behind = words
            .get(usize::from(program.is_some())..)
            .unwrap_or_default();
        let operands = behind.iter().flat_map(|word| match word.known_text() {
            // An option's value may be a file: `--file=build.mk`.
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

    /// Records the possible names in a line that cannot be parsed.
    pub(crate) fn record_unparsed_names(&mut self, text: &str, scope: &ShellScope) {
        let folder = scope.folder.path().map(str::to_owned);
        self.dependencies.push(CommandDependencies {
            program: None,
            operands: possible_names(text),
            folder,
        });
    }
}

/// Splits a text at shell punctuation and returns the pieces that could be names.
fn possible_names(text: &str) -> Vec<String> {
    let parts = |c: char| c.is_whitespace() || "'\"`$(){}[];|&<>=,\\".contains(c);
    text.split(parts)
        .filter(|piece| !piece.is_empty())
        .take(MAX_PIECES)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `program operands @folder`.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let facts = CommandFacts {
            clean_path: true,
            root: "/w".to_owned(),
            ..CommandFacts::default()
        };
        let shown = command_dependencies(line, &facts).into_iter().map(|named| {
            let words: Vec<_> = named
                .program
                .iter()
                .chain(&named.operands)
                .map(String::as_str)
                .collect();
            format!(
                "{} @{}",
                words.join(" "),
                named.folder.as_deref().unwrap_or("?")
            )
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{line}");
    }

    #[test]
    fn programs_and_files_are_named() {
        check("ls -l | wc -l", &[]);
        check("./build.sh fast", &["./build.sh fast @."]);
        check("cd src && sh 'x y.sh'", &["cd src @.", "sh x y.sh @src"]);
        check("cat a | sh", &["cat a @.", "sh @."]);
        check(
            "timeout 5 python x.py",
            &["timeout 5 python x.py @.", "python x.py @."],
        );
        check(
            "bash -c 'make -f m.mk'",
            &["bash -c make -f m.mk @.", "make -f m.mk @."],
        );
        check("make --file=m.mk", &["make --file=m.mk m.mk @."]);
        check("sh < x.sh", &["x.sh @.", "sh @."]);
        check("echo $(./a)", &["./a @.", "echo ./a @."]);
        check("`./a`", &["./a @.", "./a @."]);
        check("if ( ./a", &["if ./a @."]);
    }
}
