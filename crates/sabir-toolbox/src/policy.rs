//! Explains how the rules decide on a command line: the command `policy explain`.

use std::io::{self, Write};

use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, PolicyDecision, PolicyRules, ShellKind, Verdict,
    describe_proposal,
};
use serde::Serialize;

use crate::error::ToolboxError;
use crate::report::Report;
use crate::text::quote_short;

/// Decides on a command line as if a model had asked for it. Nothing is run.
///
/// `facts` describe the place where it would run, which only the caller can see.
pub fn explain_command(rules: &PolicyRules, command: String, facts: CommandFacts) -> PolicyReport {
    PolicyReport::new(&rules.decide(&Access::Command {
        command,
        facts,
        beyond: ExtraPermissions::Nothing,
    }))
}

/// Finds a shell by its name or path.
///
/// # Errors
/// The policy knows no such shell.
pub fn find_shell(name: &str) -> Result<ShellKind, ToolboxError> {
    // `SABIR_SHELL` usually holds a path, of which only the program matters.
    match name.rsplit('/').next() {
        Some("bash") => Ok(ShellKind::Bash),
        Some("sh" | "dash") => Ok(ShellKind::Plain),
        Some("zsh") => Ok(ShellKind::Zsh),
        _ => Err(ToolboxError::UnknownShell(name.to_owned())),
    }
}

/// Builds the command line: a single argument is the line itself, several arguments are quoted and
/// joined.
pub fn command_line(words: &[String]) -> String {
    // An empty word needs quotes too, or it would vanish.
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c))
    };
    match words {
        // One argument is already a line, with operators and quotes of its own.
        [line] => line.clone(),
        _ => {
            let quoted = words.iter().map(|word| {
                if plain(word) {
                    word.clone()
                } else {
                    // Single quotes keep everything but themselves, so nothing else needs an
                    // escape.
                    format!("'{}'", word.replace('\'', "'\\''"))
                }
            });
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

/// A decision of the rules: the report of `policy explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyReport {
    /// The verdict: `allow`, `ask` or `deny`.
    pub verdict: &'static str,
    /// The reason, as a phrase.
    pub reason: String,
    /// The parts of a command, in the order in which they were checked.
    pub segments: Vec<SegmentReport>,
    /// Narrow approval rules that would answer this question in the future.
    pub proposals: Vec<String>,
}

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// The text of the part.
    pub command: String,
    /// The verdict on this part alone.
    pub verdict: &'static str,
    /// The reason, as a phrase.
    pub reason: String,
}

impl PolicyReport {
    /// Converts a decision into its public form.
    pub fn new(decision: &PolicyDecision) -> Self {
        let segments = decision.segments.iter().map(|segment| SegmentReport {
            command: segment.command.clone(),
            verdict: verdict_word(segment.verdict),
            reason: segment.reason.clone(),
        });
        Self {
            verdict: verdict_word(decision.verdict),
            reason: decision.reason.clone(),
            segments: segments.collect(),
            proposals: decision.proposals.clone(),
        }
    }
}

impl Report for PolicyReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}", self.verdict, self.reason)?;
        for segment in &self.segments {
            writeln!(
                out,
                "  {:<5}  {}\n         {}",
                segment.verdict,
                quote_short(&segment.command),
                segment.reason
            )?;
        }
        for proposal in &self.proposals {
            writeln!(
                out,
                // The proposal is quoted for a shell, because it is made to be pasted.
                "  to allow this kind from now on: --approve '{proposal}'\n         {}",
                describe_proposal(proposal).unwrap_or_default()
            )?;
        }
        Ok(())
    }
}

/// Returns the public name of a verdict.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn several_words_are_quoted() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(command_line(&words), expected);
        };
        check(&["ls | wc"], "ls | wc");
        check(&["echo", "a b", "it's", ""], "echo 'a b' 'it'\\''s' ''");
    }
}
