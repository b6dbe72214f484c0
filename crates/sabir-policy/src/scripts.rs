//! Scripts of sed and awk: what of them can only print.

use super::grammar::{OptionValue, ParsedArguments};

/// Every script of a sed command is known, and only prints.
pub(crate) fn check_sed(seen: &ParsedArguments<'_>) -> Result<(), String> {
    let given: Vec<Option<&str>> =
        seen.option_values("-e=").chain(seen.option_values("--expression=")).map(OptionValue::known_text).collect();
    let scripts = if given.is_empty() {
        seen.operands.first().map(|word| word.known_text()).into_iter().collect()
    } else {
        given
    };
    if scripts.is_empty() {
        return Err("there is no script".to_owned());
    }
    for script in scripts {
        let script = script.ok_or("a script of sed is not certain")?;
        SedScript(script).parse_script().ok_or_else(|| format!("the sed script {script} may do more than print"))?;
    }
    Ok(())
}

/// The rest of a script.
struct SedScript<'a>(&'a str);

impl SedScript<'_> {
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
                    let end = self.parse_delimiter()?;
                    self.skip_to_delimiter(end)?;
                    self.skip_to_delimiter(end)?;
                }
                // A line of text, as long as it is the last of the script.
                'a' | 'i' | 'c' => {
                    let text = self.0.trim_start_matches(' ');
                    let whole = !matches!(text, "" | "\\") && !text.contains('\n') && !text.ends_with('\\');
                    return (whole && open == 0).then_some(());
                }
                // A blank ends the label, and a command may follow it.
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

    fn next_char(&mut self) -> Option<char> {
        let c = self.0.chars().next()?;
        self.0 = self.0.get(c.len_utf8()..)?;
        Some(c)
    }

    fn skip_while(&mut self, skipped: impl Fn(char) -> bool) {
        self.0 = self.0.trim_start_matches(skipped);
    }

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

    /// One address, if there is one.
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

    fn parse_substitution(&mut self) -> Option<()> {
        let end = self.parse_delimiter()?;
        self.0 = skip_pattern(self.0, end)?;
        self.skip_to_delimiter(end)?;
        // `e` runs what comes out, `w` writes it; `m` and `M` are harmless but rare.
        self.skip_while(|c| matches!(c, 'g' | 'p' | 'i' | 'I') || c.is_ascii_digit());
        Some(())
    }

    fn parse_delimiter(&mut self) -> Option<char> {
        self.next_char().filter(|c| c.is_ascii_punctuation() && *c != '\\' && *c != ';')
    }

    /// Up to the next delimiter, where brackets mean nothing.
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

/// What stands behind a regular expression that ends with this mark. A mark inside of brackets ends it for some programs and not
/// for others, so there must be none.
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

fn skip_escape(text: &str) -> Option<&str> {
    let escaped = text.chars().next().filter(|c| *c != '\n')?;
    text.get(escaped.len_utf8()..)
}

/// What stands behind a list in brackets: a `]` that stands first in it belongs to it, and classes have brackets of their own.
fn skip_bracket(text: &str, end: char) -> Option<&str> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let c = rest.chars().next().filter(|c| *c != '\n' && *c != end)?;
        rest = rest.get(c.len_utf8()..)?;
        match c {
            ']' => return Some(rest),
            // To some the backslash is escaped, to others it ends nothing.
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

/// An expression of yq is known, and made of paths and of functions that look at nothing else: there are some that read files, or the
/// environment, or run programs.
pub(crate) fn check_yq(seen: &ParsedArguments<'_>) -> Result<(), String> {
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
    let script =
        seen.operands.first().and_then(|word| word.known_text()).ok_or("the expression of yq is not certain")?;
    // What stands between quotation marks is a text, and what stands behind a point is a key.
    let bare: String = script.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let harmless = !script.contains('\\')
        && script.matches('"').count() % 2 == 0
        && bare.chars().all(|c| c.is_ascii_alphanumeric() || "_-.[]|!=<>(),?*/ ".contains(c))
        && bare.split(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))).all(|word| {
            word.is_empty() || !word.starts_with(|c: char| c.is_ascii_alphabetic()) || CALLED.contains(&word)
        });
    if harmless { Ok(()) } else { Err(format!("the yq expression {script} may do more than print")) }
}

/// The script of an awk command is known, and only prints.
pub(crate) fn check_awk(seen: &ParsedArguments<'_>) -> Result<(), String> {
    let script = seen.operands.first().and_then(|word| word.known_text()).ok_or("the script of awk is not certain")?;
    let assigned = seen.option_values("-v=").chain(seen.option_values("--assign="));
    for value in assigned {
        value.known_text().ok_or("a value given to awk is not certain")?;
    }
    AwkScript { rest: script, preceding: PrecedingToken::Start, control_parens: Vec::new(), braces: 0 }
        .parse_script()
        .ok_or_else(|| format!("the awk script {script} may do more than print"))
}

/// What stood before: it decides whether `/` divides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrecedingToken {
    Start,
    Value,
    Word,
    /// `if`, `while` or `for`, whose brackets a pattern may follow.
    Control,
}

struct AwkScript<'a> {
    rest: &'a str,
    preceding: PrecedingToken,
    /// Whether each open bracket is that of a control word.
    control_parens: Vec<bool>,
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
                // Behind `print` a pattern, behind a name a division: which it is, only awk knows.
                '/' => return None,
                '|' if self.rest.starts_with('|') => {
                    self.next_char();
                    PrecedingToken::Start
                }
                // Output to a file, unless it compares.
                '>' if self.rest.starts_with('=') || !self.control_parens.is_empty() || self.braces == 0 => {
                    if self.rest.starts_with('>') {
                        return None;
                    }
                    PrecedingToken::Start
                }
                // Input of a file, unless it compares, which looks the same without `getline`.
                '<' => PrecedingToken::Start,
                '|' | '>' | '@' | '\\' | '`' | '#' => return None,
                '(' => {
                    self.control_parens.push(self.preceding == PrecedingToken::Control);
                    PrecedingToken::Start
                }
                ')' if self.control_parens.pop()? => PrecedingToken::Word,
                ')' => PrecedingToken::Value,
                // Of a number, or of one and then a division; and `x++` is a value where `++x` begins one.
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

    /// Up to the closing quotation mark.
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

    /// A name: words of the language that can only compute, or a variable, which is not called.
    fn parse_word(&mut self, first: char) -> Option<PrecedingToken> {
        const CALLED: [&str; 22] = [
            "length", "substr", "split", "index", "match", "sub", "gsub", "gensub", "toupper", "tolower", "sprintf",
            "int", "sqrt", "log", "exp", "sin", "cos", "rand", "srand", "strftime", "systime", "asort",
        ];
        const STATEMENTS: [&str; 13] = [
            "BEGIN", "END", "print", "printf", "else", "in", "do", "break", "continue", "next", "exit", "delete",
            "return",
        ];
        // What `ARGV` holds is read; behind `case` stands a pattern.
        const FORBIDDEN: [&str; 12] = [
            "getline", "system", "function", "func", "PROCINFO", "close", "fflush", "ARGV", "ARGC", "switch", "case",
            "default",
        ];
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (rest, behind) = self.rest.split_at_checked(end)?;
        self.rest = behind;
        let name = format!("{first}{rest}");
        // `for (;; print > "f")` prints inside of brackets, where `>` seems to compare.
        if name.starts_with("print") && !self.control_parens.is_empty() {
            return None;
        }
        if matches!(name.as_str(), "if" | "while" | "for") {
            return Some(PrecedingToken::Control);
        }
        if STATEMENTS.contains(&name.as_str()) {
            return Some(PrecedingToken::Word);
        }
        let (called, known) = (behind.starts_with('('), CALLED.contains(&name.as_str()));
        if FORBIDDEN.contains(&name.as_str()) || called && !known {
            return None;
        }
        // Whether a division or a pattern follows `length` is for awk to say.
        Some(if known && !called { PrecedingToken::Word } else { PrecedingToken::Value })
    }
}
