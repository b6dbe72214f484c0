//! Scripts of sed and awk: what of them can only print.

use super::grammar::{Seen, Value};

/// Every script of a sed command is known, and only prints.
pub(crate) fn sed(seen: &Seen<'_>) -> Result<(), String> {
    let given: Vec<Option<&str>> = seen.values("-e=").chain(seen.values("--expression=")).map(Value::known).collect();
    let scripts =
        if given.is_empty() { seen.operands.first().map(|word| word.known()).into_iter().collect() } else { given };
    if scripts.is_empty() {
        return Err("there is no script".to_owned());
    }
    for script in scripts {
        let script = script.ok_or("a script of sed is not certain")?;
        Sed(script).script().ok_or_else(|| format!("the sed script {script} may do more than print"))?;
    }
    Ok(())
}

/// The rest of a script.
struct Sed<'a>(&'a str);

impl Sed<'_> {
    fn script(mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            self.skip(|c| c == ';' || c.is_ascii_whitespace());
            if self.0.is_empty() {
                return (open == 0).then_some(());
            }
            self.addresses()?;
            match self.next()? {
                '{' => {
                    open += 1;
                    continue;
                }
                '}' => open = open.checked_sub(1)?,
                'p' | 'd' | '=' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | 'D' | 'P' | 'z' => {}
                'q' | 'Q' | 'l' => self.skip(|c| c.is_ascii_digit()),
                's' => self.substitution()?,
                'y' => {
                    let end = self.delimiter()?;
                    self.text(end)?;
                    self.text(end)?;
                }
                // A line of text, as long as it is the last of the script.
                'a' | 'i' | 'c' => {
                    let text = self.0.trim_start_matches(' ');
                    let whole = !matches!(text, "" | "\\") && !text.contains('\n') && !text.ends_with('\\');
                    return (whole && open == 0).then_some(());
                }
                // A blank ends the label, and a command may follow it.
                'b' | 't' | 'T' | ':' => {
                    self.skip(|c| c == ' ');
                    self.skip(|c| c.is_ascii_alphanumeric() || c == '_');
                }
                _ => return None,
            }
            self.skip(|c| c == ' ');
            if !(self.0.is_empty() || self.0.starts_with([';', '\n', '}'])) {
                return None;
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.0.chars().next()?;
        self.0 = self.0.get(c.len_utf8()..)?;
        Some(c)
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        self.0 = self.0.trim_start_matches(skipped);
    }

    fn addresses(&mut self) -> Option<()> {
        if self.address()? {
            self.skip(|c| c == ' ');
            if let Some(rest) = self.0.strip_prefix(',') {
                self.0 = rest.trim_start_matches(' ');
                self.0 = self.0.strip_prefix(['+', '~']).unwrap_or(self.0);
                self.address()?.then_some(())?;
            }
        }
        self.skip(|c| c == ' ' || c == '!');
        Some(())
    }

    /// One address, if there is one.
    fn address(&mut self) -> Option<bool> {
        match self.0.chars().next() {
            Some('0'..='9') => {
                self.skip(|c| c.is_ascii_digit());
                if let Some(rest) = self.0.strip_prefix('~') {
                    self.0 = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                }
            }
            Some('$') => _ = self.next(),
            Some('/') => {
                self.next();
                self.0 = pattern(self.0, '/')?;
                self.skip(|c| matches!(c, 'I' | 'M'));
            }
            _ => return Some(false),
        }
        Some(true)
    }

    fn substitution(&mut self) -> Option<()> {
        let end = self.delimiter()?;
        self.0 = pattern(self.0, end)?;
        self.text(end)?;
        // `e` runs what comes out, `w` writes it; `m` and `M` are harmless but rare.
        self.skip(|c| matches!(c, 'g' | 'p' | 'i' | 'I') || c.is_ascii_digit());
        Some(())
    }

    fn delimiter(&mut self) -> Option<char> {
        self.next().filter(|c| c.is_ascii_punctuation() && *c != '\\' && *c != ';')
    }

    /// Up to the next delimiter, where brackets mean nothing.
    fn text(&mut self, end: char) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => _ = self.next().filter(|c| *c != '\n')?,
                '\n' => return None,
                c if c == end => return Some(()),
                _ => {}
            }
        }
    }
}

/// What stands behind a regular expression that ends with this mark. A mark inside of brackets ends it for some programs and not
/// for others, so there must be none.
fn pattern(text: &str, end: char) -> Option<&str> {
    let mut rest = text;
    loop {
        let c = rest.chars().next()?;
        rest = rest.get(c.len_utf8()..)?;
        match c {
            '\\' => rest = behind_escape(rest)?,
            '\n' => return None,
            c if c == end => return Some(rest),
            '[' => rest = behind_bracket(rest, end)?,
            _ => {}
        }
    }
}

fn behind_escape(text: &str) -> Option<&str> {
    let escaped = text.chars().next().filter(|c| *c != '\n')?;
    text.get(escaped.len_utf8()..)
}

/// What stands behind a list in brackets: a `]` that stands first in it belongs to it, and classes have brackets of their own.
fn behind_bracket(text: &str, end: char) -> Option<&str> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    loop {
        let c = rest.chars().next().filter(|c| *c != '\n' && *c != end)?;
        rest = rest.get(c.len_utf8()..)?;
        match c {
            ']' => return Some(rest),
            // To some the backslash is escaped, to others it ends nothing.
            '\\' if rest.starts_with(']') => return None,
            '\\' => rest = behind_escape(rest)?,
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
pub(crate) fn yq(seen: &Seen<'_>) -> Result<(), String> {
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
    let script = seen.operands.first().and_then(|word| word.known()).ok_or("the expression of yq is not certain")?;
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
pub(crate) fn awk(seen: &Seen<'_>) -> Result<(), String> {
    let script = seen.operands.first().and_then(|word| word.known()).ok_or("the script of awk is not certain")?;
    let assigned = seen.values("-v=").chain(seen.values("--assign="));
    for value in assigned {
        value.known().ok_or("a value given to awk is not certain")?;
    }
    Awk { rest: script, before: Before::Start, round: Vec::new(), braces: 0 }
        .script()
        .ok_or_else(|| format!("the awk script {script} may do more than print"))
}

/// What stood before: it decides whether `/` divides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Start,
    Value,
    Word,
    /// `if`, `while` or `for`, whose brackets a pattern may follow.
    Control,
}

struct Awk<'a> {
    rest: &'a str,
    before: Before,
    /// Whether each open bracket is that of a control word.
    round: Vec<bool>,
    braces: usize,
}

impl Awk<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..)?;
        Some(c)
    }

    fn script(mut self) -> Option<()> {
        while let Some(c) = self.next() {
            self.before = match c {
                ' ' | '\t' => self.before,
                '"' => {
                    self.string()?;
                    Before::Value
                }
                '/' if self.before == Before::Value => Before::Start,
                '/' if self.before == Before::Start => {
                    self.rest = pattern(self.rest, '/')?;
                    Before::Value
                }
                // Behind `print` a pattern, behind a name a division: which it is, only awk knows.
                '/' => return None,
                '|' if self.rest.starts_with('|') => {
                    self.next();
                    Before::Start
                }
                // Output to a file, unless it compares.
                '>' if self.rest.starts_with('=') || !self.round.is_empty() || self.braces == 0 => {
                    if self.rest.starts_with('>') {
                        return None;
                    }
                    Before::Start
                }
                // Input of a file, unless it compares, which looks the same without `getline`.
                '<' => Before::Start,
                '|' | '>' | '@' | '\\' | '`' | '#' => return None,
                '(' => {
                    self.round.push(self.before == Before::Control);
                    Before::Start
                }
                ')' if self.round.pop()? => Before::Word,
                ')' => Before::Value,
                // Of a number, or of one and then a division; and `x++` is a value where `++x` begins one.
                '.' => Before::Word,
                '+' | '-' if self.rest.starts_with(c) => {
                    self.next();
                    Before::Word
                }
                '{' => {
                    self.braces += 1;
                    Before::Start
                }
                '}' => {
                    self.braces = self.braces.checked_sub(1)?;
                    Before::Start
                }
                ']' | '0'..='9' => Before::Value,
                'a'..='z' | 'A'..='Z' | '_' => self.word(c)?,
                _ if c.is_ascii_punctuation() || c == '\n' => Before::Start,
                _ => return None,
            };
        }
        (self.round.is_empty() && self.braces == 0).then_some(())
    }

    /// Up to the closing quotation mark.
    fn string(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => _ = self.next().filter(|c| *c != '\n')?,
                '\n' => return None,
                '"' => return Some(()),
                _ => {}
            }
        }
    }

    /// A name: words of the language that can only compute, or a variable, which is not called.
    fn word(&mut self, first: char) -> Option<Before> {
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
        if name.starts_with("print") && !self.round.is_empty() {
            return None;
        }
        if matches!(name.as_str(), "if" | "while" | "for") {
            return Some(Before::Control);
        }
        if STATEMENTS.contains(&name.as_str()) {
            return Some(Before::Word);
        }
        let (called, known) = (behind.starts_with('('), CALLED.contains(&name.as_str()));
        if FORBIDDEN.contains(&name.as_str()) || called && !known {
            return None;
        }
        // Whether a division or a pattern follows `length` is for awk to say.
        Some(if known && !called { Before::Word } else { Before::Value })
    }
}
