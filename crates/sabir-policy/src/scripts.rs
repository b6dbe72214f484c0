//! Checks scripts of sed, awk and yq: accepts only those that can do nothing but print.
//!
//! The parsers accept a subset on which all common implementations agree. They reject any script that could be read in two ways.
//!
//! | language | accepted | rejected |
//! | --- | --- | --- |
//! | sed | `p`, `d`, `s`, `y`, `q`, labels, blocks; `a`, `i`, `c` at the end | `w`, `r`, `e`, `s///w`, `s///e`, `F`, `W`, `R` |
//! | awk | patterns, fields, arithmetic, `print`, string functions | `system`, `getline`, `\|`, `>` in `print`, `@load`, functions, `ARGV` |
//! | yq | paths, comparisons, a list of functions | `load`, `env`, `strenv`, `@sh`, `eval`, `input_filename` |
//!
//! GNU, BSD and busybox differ in where the text of a command ends and whether a blank ends a label. What one of them would read as a
//! command is checked as a command.

use super::ask_reason::AskReason;
use super::grammar::{OptionValue, ParsedArguments};

/// Checks that every script of a sed command is certain and only prints.
pub(crate) fn check_sed(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let given: Vec<Option<&str>> = seen
        .option_values("-e=")
        .chain(seen.option_values("--expression="))
        .map(OptionValue::known_text)
        .collect();
    let scripts = if given.is_empty() {
        seen.operands
            .first()
            .map(|word| word.known_text())
            .into_iter()
            .collect()
    } else {
        given
    };
    if scripts.is_empty() {
        return Err("there is no script".into());
    }
    for script in scripts {
        let script = script.ok_or("a script of sed is not certain")?;
        SedScript(script)
            .parse_script()
            .ok_or_else(|| format!("the sed script {script} may do more than print"))?;
    }
    Ok(())
}

/// A cursor over a sed script; holds the unread rest. Its methods return `None` for anything that may do more than print.
struct SedScript<'a>(&'a str);

impl SedScript<'_> {
    /// Parses the whole script: commands that write files (`w`), read them (`r`) or run programs (`e`) are not accepted.
    fn parse_script(mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            self.skip_while(|c| c == ';' || c.is_ascii_whitespace());
            if self.0.is_empty() {
                return (open == 0).then_some(());
            }
            self.parse_addresses()?;
            match self.next_char()? {
                '{' => {
                    open += 1;
                    continue;
                }
                '}' => open = open.checked_sub(1)?,
                'p' | 'd' | '=' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | 'D' | 'P' | 'z' => {}
                'q' | 'Q' | 'l' => self.skip_while(|c| c.is_ascii_digit()),
                's' => self.parse_substitution()?,
                'y' => {
                    // Any character may be the delimiter of `y` and `s`.
                    let end = self.parse_delimiter()?;
                    self.skip_to_delimiter(end)?;
                    self.skip_to_delimiter(end)?;
                }
                // Versions differ in where the text of `a`, `i` and `c` ends, so nothing may follow
                // it in the script.
                'a' | 'i' | 'c' => {
                    let text = self.0.trim_start_matches(' ');
                    let whole =
                        !matches!(text, "" | "\\") && !text.contains('\n') && !text.ends_with('\\');
                    return (whole && open == 0).then_some(());
                }
                // In some versions a blank ends a label, so the text after it must be a valid
                // command, too.
                'b' | 't' | 'T' | ':' => {
                    self.skip_while(|c| c == ' ');
                    self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
                }
                _ => return None,
            }
            self.skip_while(|c| c == ' ');
            if !(self.0.is_empty() || self.0.starts_with([';', '\n', '}'])) {
                return None;
            }
        }
    }

    /// Takes the next character of the script.
    fn next_char(&mut self) -> Option<char> {
        let c = self.0.chars().next()?;
        self.0 = self.0.get(c.len_utf8()..)?;
        Some(c)
    }

    /// Skips characters as long as they pass.
    fn skip_while(&mut self, skipped: impl Fn(char) -> bool) {
        self.0 = self.0.trim_start_matches(skipped);
    }

    /// Skips the address or address range in front of a command, if there is one.
    fn parse_addresses(&mut self) -> Option<()> {
        if self.parse_address()? {
            self.skip_while(|c| c == ' ');
            if let Some(rest) = self.0.strip_prefix(',') {
                self.0 = rest.trim_start_matches(' ');
                self.0 = self.0.strip_prefix(['+', '~']).unwrap_or(self.0);
                self.parse_address()?.then_some(())?;
            }
        }
        self.skip_while(|c| c == ' ' || c == '!');
        Some(())
    }

    /// Skips one address. Returns false if there is none.
    fn parse_address(&mut self) -> Option<bool> {
        match self.0.chars().next() {
            Some('0'..='9') => {
                self.skip_while(|c| c.is_ascii_digit());
                if let Some(rest) = self.0.strip_prefix('~') {
                    self.0 = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                }
            }
            Some('$') => _ = self.next_char(),
            Some('/') => {
                self.next_char();
                self.0 = skip_pattern(self.0, '/')?;
                self.skip_while(|c| matches!(c, 'I' | 'M'));
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Skips the rest of an `s` command.
    fn parse_substitution(&mut self) -> Option<()> {
        let end = self.parse_delimiter()?;
        self.0 = skip_pattern(self.0, end)?;
        self.skip_to_delimiter(end)?;
        // The flag `e` runs the result and `w` writes it. `m` and `M` are harmless but too rare to
        // be listed.
        self.skip_while(|c| matches!(c, 'g' | 'p' | 'i' | 'I') || c.is_ascii_digit());
        Some(())
    }

    /// Takes the character that delimits the parts of an `s` or `y` command.
    fn parse_delimiter(&mut self) -> Option<char> {
        self.next_char()
            .filter(|c| c.is_ascii_punctuation() && *c != '\\' && *c != ';')
    }

    /// Skips a text up to its delimiter; brackets have no meaning in it.
    fn skip_to_delimiter(&mut self, end: char) -> Option<()> {
        loop {
            match self.next_char()? {
                '\\' => _ = self.next_char().filter(|c| *c != '\n')?,
                '\n' => return None,
                c if c == end => return Some(()),
                _ => {}
            }
        }
    }
}

/// Skips a regular expression up to its delimiter and returns the rest. A delimiter inside of brackets ends the expression in some
/// programs and not in others, so it is not accepted.
fn skip_pattern(text: &str, end: char) -> Option<&str> {
    let mut rest = text;
    loop {
        let c = rest.chars().next()?;
        rest = rest.get(c.len_utf8()..)?;
        match c {
            '\\' => rest = skip_escape(rest)?,
            '\n' => return None,
            c if c == end => return Some(rest),
            '[' => rest = skip_bracket(rest, end)?,
            _ => {}
        }
    }
}

/// Skips the character behind a backslash.
fn skip_escape(text: &str) -> Option<&str> {
    let escaped = text.chars().next().filter(|c| *c != '\n')?;
    text.get(escaped.len_utf8()..)
}

/// Skips a bracket expression behind its `[`. A `]` in the first position belongs to it, and classes such as `[:alpha:]` have their
/// own brackets.
fn skip_bracket(text: &str, end: char) -> Option<&str> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let c = rest.chars().next().filter(|c| *c != '\n' && *c != end)?;
        rest = rest.get(c.len_utf8()..)?;
        match c {
            ']' => return Some(rest),
            // In some programs `\]` is an escaped bracket, in others the bracket ends the list.
            '\\' if rest.starts_with(']') => return None,
            '\\' => rest = skip_escape(rest)?,
            '[' if rest.starts_with([':', '.', '=']) => {
                let (class, behind) = rest.split_once(']')?;
                if class.contains(end) || !class.ends_with([':', '.', '=']) || class.len() < 2 {
                    return None;
                }
                rest = behind;
            }
            _ => {}
        }
    }
}

/// Checks that an expression of yq is certain and holds only paths and harmless functions. Other functions read files or the
/// environment, or run programs.
pub(crate) fn check_yq(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    /// Functions of yq that compute from their input alone.
    const CALLED: [&str; 25] = [
        "keys",
        "length",
        "select",
        "map",
        "has",
        "to_entries",
        "from_entries",
        "type",
        "tag",
        "sort",
        "sort_by",
        "unique",
        "first",
        "last",
        "add",
        "any",
        "all",
        "not",
        "and",
        "or",
        "true",
        "false",
        "null",
        "contains",
        "join",
    ];
    let script = seen
        .operands
        .first()
        .and_then(|word| word.known_text())
        .ok_or("the expression of yq is not certain")?;
    // Text between quotation marks is data, so only every second piece is code. A word behind a dot
    // is a key, not a function.
    let bare: String = script.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let harmless = !script.contains('\\')
        && script.matches('"').count() % 2 == 0
        && bare
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.[]|!=<>(),?*/ ".contains(c))
        && bare
            .split(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)))
            .all(|word| {
                word.is_empty()
                    || !word.starts_with(|c: char| c.is_ascii_alphabetic())
                    || CALLED.contains(&word)
            });
    if harmless {
        Ok(())
    } else {
        Err(format!("the yq expression {script} may do more than print").into())
    }
}

/// Checks that the script of an awk command is certain and only prints.
pub(crate) fn check_awk(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let script = seen
        .operands
        .first()
        .and_then(|word| word.known_text())
        .ok_or("the script of awk is not certain")?;
    let assigned = seen
        .option_values("-v=")
        .chain(seen.option_values("--assign="));
    for value in assigned {
        value
            .known_text()
            .ok_or("a value given to awk is not certain")?;
    }
    AwkScript {
        rest: script,
        preceding: PrecedingToken::Start,
        control_parens: Vec::new(),
        braces: 0,
    }
    .parse_script()
    .ok_or_else(|| format!("the awk script {script} may do more than print").into())
}

/// The kind of the preceding token, which decides whether `/` divides or begins a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrecedingToken {
    Start,
    Value,
    Word,
    /// `if`, `while` or `for`: a pattern may follow its parentheses.
    Control,
}

/// A cursor over an awk script. Its methods return `None` for anything that may do more than print.
struct AwkScript<'a> {
    rest: &'a str,
    preceding: PrecedingToken,
    /// For each open parenthesis, true if it belongs to a control word.
    control_parens: Vec<bool>,
    /// The number of open braces.
    braces: usize,
}

impl AwkScript<'_> {
    fn next_char(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..)?;
        Some(c)
    }

    fn parse_script(mut self) -> Option<()> {
        while let Some(c) = self.next_char() {
            self.preceding = match c {
                ' ' | '\t' => self.preceding,
                '"' => {
                    self.parse_string()?;
                    PrecedingToken::Value
                }
                '/' if self.preceding == PrecedingToken::Value => PrecedingToken::Start,
                '/' if self.preceding == PrecedingToken::Start => {
                    self.rest = skip_pattern(self.rest, '/')?;
                    PrecedingToken::Value
                }
                // Behind a word, `/` may divide or begin a pattern, depending on the word.
                '/' => return None,
                '|' if self.rest.starts_with('|') => {
                    self.next_char();
                    PrecedingToken::Start
                }
                // `>` writes to a file, except where it compares: in parentheses, in a pattern
                // outside of braces, or as `>=`.
                '>' if self.rest.starts_with('=')
                    || !self.control_parens.is_empty()
                    || self.braces == 0 =>
                {
                    if self.rest.starts_with('>') {
                        return None;
                    }
                    PrecedingToken::Start
                }
                // `<` reads a file only behind `getline`, which is not accepted, so here it
                // compares.
                '<' => PrecedingToken::Start,
                '|' | '>' | '@' | '\\' | '`' | '#' => return None,
                '(' => {
                    self.control_parens
                        .push(self.preceding == PrecedingToken::Control);
                    PrecedingToken::Start
                }
                ')' if self.control_parens.pop()? => PrecedingToken::Word,
                ')' => PrecedingToken::Value,
                // After a dot or `++`, a `/` could be either: `x++ / 2` divides and `++ /x/` does
                // not.
                '.' => PrecedingToken::Word,
                '+' | '-' if self.rest.starts_with(c) => {
                    self.next_char();
                    PrecedingToken::Word
                }
                '{' => {
                    self.braces += 1;
                    PrecedingToken::Start
                }
                '}' => {
                    self.braces = self.braces.checked_sub(1)?;
                    PrecedingToken::Start
                }
                ']' | '0'..='9' => PrecedingToken::Value,
                'a'..='z' | 'A'..='Z' | '_' => self.parse_word(c)?,
                _ if c.is_ascii_punctuation() || c == '\n' => PrecedingToken::Start,
                _ => return None,
            };
        }
        (self.control_parens.is_empty() && self.braces == 0).then_some(())
    }

    /// Skips a string up to its closing quotation mark.
    fn parse_string(&mut self) -> Option<()> {
        loop {
            match self.next_char()? {
                '\\' => _ = self.next_char().filter(|c| *c != '\n')?,
                '\n' => return None,
                '"' => return Some(()),
                _ => {}
            }
        }
    }

    /// Parses a name: a statement or function that only prints or computes, or a variable.
    fn parse_word(&mut self, first: char) -> Option<PrecedingToken> {
        /// Functions of awk that compute from their arguments alone.
        const CALLED: [&str; 22] = [
            "length", "substr", "split", "index", "match", "sub", "gsub", "gensub", "toupper",
            "tolower", "sprintf", "int", "sqrt", "log", "exp", "sin", "cos", "rand", "srand",
            "strftime", "systime", "asort",
        ];
        /// Words of awk that steer the program or print.
        const STATEMENTS: [&str; 13] = [
            "BEGIN", "END", "print", "printf", "else", "in", "do", "break", "continue", "next",
            "exit", "delete", "return",
        ];
        // awk reads the files that `ARGV` names, and a pattern may follow `case`.
        /// Words of awk that run programs, open files or name other ones.
        const FORBIDDEN: [&str; 12] = [
            "getline", "system", "function", "func", "PROCINFO", "close", "fflush", "ARGV", "ARGC",
            "switch", "case", "default",
        ];
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (rest, behind) = self.rest.split_at_checked(end)?;
        self.rest = behind;
        let name = format!("{first}{rest}");
        // In `for (;; print > "f")` the `>` is in parentheses but writes a file.
        if name.starts_with("print") && !self.control_parens.is_empty() {
            return None;
        }
        if matches!(name.as_str(), "if" | "while" | "for") {
            return Some(PrecedingToken::Control);
        }
        if STATEMENTS.contains(&name.as_str()) {
            return Some(PrecedingToken::Word);
        }
        let called = behind.starts_with('(');
        let known = CALLED.contains(&name.as_str());
        if FORBIDDEN.contains(&name.as_str()) || called && !known {
            return None;
        }
        // `length` may be called without parentheses, so a `/` behind it could be either.
        Some(if known && !called {
            PrecedingToken::Word
        } else {
            PrecedingToken::Value
        })
    }
}
