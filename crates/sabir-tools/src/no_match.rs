//! Recognizes commands whose exit code 1 says that a search found nothing, which is an answer and no
//! failure.
//!
//! The reading of the line is cautious: any syntax that it does not follow with certainty, such as
//! a substitution, a group or `||`, makes the exit code count as it is.

/// The programs that end with 1 when nothing matches, and with 2 or more for errors.
const SEARCH_PROGRAMS: [&str; 9] = [
    "grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "pgrep", "pcregrep",
];

/// The programs that may precede a search in a list of `&&`, since exit code 1 seldom comes from
/// them.
const QUIET_PROGRAMS: [&str; 4] = ["cd", "echo", "printf", "true"];

/// Returns true if exit code 1 of this command line can only mean that a search found nothing.
pub(crate) fn is_search_for_exit_code(line: &str) -> bool {
    let Some(parts) = split_line(line) else {
        return false;
    };
    // The exit code is that of the last list of `&&`.
    let start = parts
        .iter()
        .rposition(|(_, before)| *before == Separator::Sequence)
        .unwrap_or(0);
    let last_list = parts.get(start..).unwrap_or_default();
    let Some(((last, _), earlier)) = last_list.split_last() else {
        return false;
    };
    // Commands that feed the search through a pipe do not matter: a pipe ends with the exit code of
    // its last command.
    let pipe_start = last_list
        .iter()
        .rposition(|(_, before)| *before != Separator::Pipe)
        .unwrap_or(0);
    let chained = earlier.get(..pipe_start).unwrap_or_default();
    is_search(last)
        && chained.iter().all(|(command, _)| {
            program_of(command).is_some_and(|name| QUIET_PROGRAMS.contains(&name))
        })
}

/// The operator before a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `;`, a line feed, or the beginning.
    Sequence,
    /// `&&`.
    And,
    /// `|` or `|&`.
    Pipe,
}

/// Splits a line at its operators. Returns `None` if it holds anything else than simple commands.
fn split_line(line: &str) -> Option<Vec<(&str, Separator)>> {
    // The option makes the exit code that of any program of a pipe.
    if line.contains("pipefail") {
        return None;
    }
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = Separator::Sequence;
    let mut quote = None;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => _ = chars.next(),
            (_, '`') => return None,
            (_, '$') if chars.peek().is_some_and(|(_, next)| *next == '(') => return None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | ')' | '{' | '}' | '#') => return None,
            (None, '<') if chars.peek().is_some_and(|(_, next)| *next == '<') => return None,
            (None, '&') if line.get(..at).is_some_and(|text| text.ends_with('>')) => {}
            (None, '&' | '|' | ';' | '\n') => {
                let doubled = chars.next_if(|(_, next)| *next == c).is_some();
                let operator = match (c, doubled) {
                    ('&', true) => Separator::And,
                    ('|', false) => Separator::Pipe,
                    (';', false) | ('\n', _) => Separator::Sequence,
                    _ => return None,
                };
                parts.push((line.get(start..at)?.trim(), before));
                if operator == Separator::Pipe {
                    _ = chars.next_if(|(_, next)| *next == '&');
                }
                start = chars.peek().map_or(line.len(), |(next, _)| *next);
                before = operator;
            }
            (None, _) => {}
        }
    }
    let rest = line.get(start..)?.trim();
    if quote.is_some() {
        return None;
    }
    // A line may end with `;` or with line feeds.
    if !rest.is_empty() || before != Separator::Sequence {
        parts.push((rest, before));
    }
    parts.retain(|(command, before)| !command.is_empty() || *before != Separator::Sequence);
    Some(parts)
}

/// Returns the name of the program that a simple command runs.
fn program_of(command: &str) -> Option<&str> {
    let mut words = command.split_ascii_whitespace();
    let is_assignment = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let program = words.find(|word| !is_assignment(word))?;
    program.rsplit('/').next()
}

fn is_search(command: &str) -> bool {
    match program_of(command) {
        Some("git") => command
            .split_ascii_whitespace()
            .skip_while(|word| *word != "git")
            .nth(1)
            .is_some_and(|word| word == "grep"),
        Some(name) => SEARCH_PROGRAMS.contains(&name),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_recognized() {
        for line in [
            "grep -rn needle src",
            "cd src && rg 'a && b; c'",
            "cargo test 2>&1 | grep FAILED",
            "false; grep x y",
            "LC_ALL=C /usr/bin/grep -c \"a | b\" file",
            "git grep needle",
            "grep x y;",
            "ls |& grep x\n",
            "grep 'a$(b)' file 2>/dev/null",
        ] {
            assert!(is_search_for_exit_code(line), "{line}");
        }
        for line in [
            "",
            "false",
            "npm test && grep x y",
            "grep x y || exit 1",
            "grep x y && false",
            "! grep x y",
            "(grep x y)",
            "echo `grep x y`",
            "grep \"$(false)\" y",
            "set -o pipefail; npm test | grep x",
            "grep x y | wc -l",
            "grep x y &",
            "cat <<E\ngrep\nE",
            "grep x y && npm test | grep z",
            "git grepx",
            "grep 'open",
        ] {
            assert!(!is_search_for_exit_code(line), "{line}");
        }
    }
}
