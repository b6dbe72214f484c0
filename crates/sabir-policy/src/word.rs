//! Scans words of a command line and finds the part that is certain before the shell expands them.
//!
//! The lexer knows only the syntax on which bash and zsh agree. Any other syntax makes a word [`WordForm::Odd`], and a command with
//! an odd word is never allowed without a question.
//!
//! | written | form |
//! | --- | --- |
//! | `a.txt`, `'a b'`, `a\ b`, `"a"` | literal: the text after quote removal |
//! | `*.rs`, `src/?.c`, `[ab]` | pattern |
//! | `"$x"`, `"$HOME/x"`, `~/x` | field: one word with a certain beginning |
//! | `$x`, `$(cmd)`, `"$@"` | fields: any number of words |
//! | `${x@P}`, `$[1+1]`, `{a,$x}`, `$'\x41'`, `a(b)` | odd: not analyzed |
//!
//! The distinction matters most for options. `sort "$x"` may get `-o file`, which writes; `sort "./$x"` cannot. So a field knows its
//! certain beginning, and [`TextTraits`] what is known of the rest: that it cannot begin with `-`, that it stays inside of the
//! folder, that it is one component of a path.

use super::command_facts::ShellKind;

/// A word of a command line after quote removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellWord {
    /// The word as it was written.
    pub(crate) raw: String,
    /// The certain part: the whole text of a literal or pattern, the beginning of a field.
    pub(crate) text: String,
    /// The certain text behind the unknown part of a field; empty for other forms.
    pub(crate) tail: String,
    /// The possible results of expanding the word.
    pub(crate) form: WordForm,
}

/// The possible results of expanding a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordForm {
    /// The text itself.
    Literal,
    /// The names of the matching files, or the pattern itself if none matches. They all begin with this many bytes of the text.
    Glob(usize),
    /// One word that begins with the text and continues with something unknown.
    Field(TextTraits),
    /// Any number of words.
    Fields,
    /// Syntax that is not analyzed; holds its description.
    Odd(&'static str),
}

/// Known properties of an unknown text.
///
/// The traits of several possible values are those that all of them share, as for a loop variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextTraits {
    /// True if it cannot begin with `-`.
    pub(crate) plain: bool,
    /// True if, as a path, it stays inside of the current folder.
    pub(crate) inside: bool,
    /// True if it is one component of a path: without `/` and not beginning with a dot.
    pub(crate) name: bool,
    /// True if it stays one word without quotes.
    pub(crate) word: bool,
}

/// The known value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VariableValue {
    /// Exactly this text.
    Literal(String),
    /// Some text with these properties.
    Some(TextTraits),
}

/// A scanned word and the command lines of its command substitutions.
pub(crate) struct ScannedWord {
    pub(crate) word: ShellWord,
    pub(crate) commands: Vec<String>,
}

/// Scans a word as it was written. `bound` returns the known value of a variable.
pub(crate) fn scan_word(
    raw: &str,
    shell: ShellKind,
    bound: &dyn Fn(&str) -> Option<VariableValue>,
) -> ScannedWord {
    let text = String::new();
    let tail = String::new();
    let mut scanner = WordScanner {
        rest: raw,
        shell,
        variables: bound,
        text,
        tail,
        form: WordForm::Literal,
        commands: Vec::new(),
    };
    match (scanner.scan_all(), scanner.form) {
        (Err(odd), _) => scanner.form = WordForm::Odd(odd),
        (Ok(()), WordForm::Field(known)) => {
            scanner.form = WordForm::Field(TextTraits {
                inside: known.inside
                    && (keeps_path_inside(&scanner.tail)
                        || known.name && !scanner.tail.contains("..")),
                ..known
            });
        }
        // A `[` without `]` is not a pattern; it is, for example, the name of a program.
        (Ok(()), WordForm::Glob(_)) if !scanner.text.contains(['*', '?', ']']) => {
            scanner.form = WordForm::Literal
        }
        (Ok(()), _) => {}
    }
    let WordScanner {
        text,
        tail,
        form,
        commands,
        ..
    } = scanner;
    ScannedWord {
        word: ShellWord {
            raw: raw.to_owned(),
            text,
            tail,
            form,
        },
        commands,
    }
}

impl ShellWord {
    /// Returns a word that is certain.
    pub(crate) fn literal(text: &str) -> Self {
        Self {
            raw: text.to_owned(),
            text: text.to_owned(),
            tail: String::new(),
            form: WordForm::Literal,
        }
    }

    /// Returns a word with a certain beginning and an unknown rest.
    pub(crate) fn field(raw: &str, text: &str, plain: bool, inside: bool) -> Self {
        Self {
            raw: raw.to_owned(),
            text: text.to_owned(),
            tail: String::new(),
            form: WordForm::Field(TextTraits {
                plain,
                inside,
                name: false,
                word: false,
            }),
        }
    }

    /// Returns a word that becomes any number of names of files in the current folder, none of which begins with `-`.
    pub(crate) fn file_names(raw: &str) -> Self {
        let text = "./*.names".to_owned();
        Self {
            raw: raw.to_owned(),
            form: WordForm::Glob(2),
            text,
            tail: String::new(),
        }
    }

    /// Returns the whole text if it is certain.
    pub(crate) fn known_text(&self) -> Option<&str> {
        (self.form == WordForm::Literal).then_some(self.text.as_str())
    }

    /// Returns the certain beginning.
    pub(crate) fn known_prefix(&self) -> &str {
        match self.form {
            WordForm::Literal | WordForm::Field(_) => &self.text,
            WordForm::Glob(at) => self.text.get(..at).unwrap_or_default(),
            WordForm::Fields | WordForm::Odd(_) => "",
        }
    }

    /// Reports whether the word may expand to something that begins with `-`.
    pub(crate) fn may_be_option(&self) -> bool {
        let head = self.known_prefix();
        head.starts_with('-')
            || head.is_empty()
                && match self.form {
                    WordForm::Literal => false,
                    WordForm::Field(known) => !known.plain,
                    WordForm::Glob(_) | WordForm::Fields | WordForm::Odd(_) => true,
                }
    }
}

/// The lexer for one word.
struct WordScanner<'a> {
    rest: &'a str,
    shell: ShellKind,
    variables: &'a dyn Fn(&str) -> Option<VariableValue>,
    text: String,
    /// The certain text behind the unknown part of a field.
    tail: String,
    form: WordForm,
    commands: Vec<String>,
}

/// The description of syntax that is not analyzed, as a phrase that follows "holds".
type UnsupportedSyntax = &'static str;

impl WordScanner<'_> {
    /// Takes the next character of the word.
    fn next_char(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    /// Returns the next character without taking it.
    fn peek_char(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Scans the whole word.
    fn scan_all(&mut self) -> Result<(), UnsupportedSyntax> {
        let zsh = self.shell == ShellKind::Zsh;
        let mut first = true;
        while let Some(c) = self.next_char() {
            match c {
                '\\' => match self.next_char() {
                    Some(c) if c != '\n' => self.push_char(c),
                    _ => return Err("a line that continues after a backslash"),
                },
                '\'' => self.scan_single_quoted()?,
                '"' => self.scan_double_quoted()?,
                '$' => self.scan_dollar(false)?,
                '`' => self.scan_backquoted(false)?,
                '*' | '?' | '[' => self.push_glob(c),
                '{' if zsh && !self.rest.starts_with('}') => return Err("a brace"),
                '}' if zsh && self.text != "{" => return Err("a brace"),
                // `expand_braces` takes care of the braces that are certain.
                '{' if is_brace_list(self.rest) => return Err("a brace expansion"),
                // The path of the home folder is unknown, but begins with `/`, and shells do not
                // split it into words.
                '~' if first && (self.rest.is_empty() || self.rest.starts_with('/')) => {
                    self.mark_unknown(
                        TextTraits {
                            plain: true,
                            inside: false,
                            name: false,
                            word: true,
                        },
                        true,
                    );
                }
                '~' if first || self.text.ends_with([':', '=']) => return Err("a tilde"),
                '=' if zsh && first => return Err("an expansion of zsh"),
                '(' | ')' | '<' | '>' | '|' | '&' | ';' => {
                    return Err("an operator inside of a word");
                }
                _ if c.is_whitespace() => return Err("a blank inside of a word"),
                _ => self.push_char(c),
            }
            first = false;
        }
        Ok(())
    }

    /// Adds a literal character.
    fn push_char(&mut self, c: char) {
        match self.form {
            WordForm::Field(_) => self.tail.push(c),
            WordForm::Fields | WordForm::Odd(_) => {}
            WordForm::Literal | WordForm::Glob(_) => self.text.push(c),
        }
    }

    /// Adds a character of a pattern.
    fn push_glob(&mut self, c: char) {
        match self.form {
            WordForm::Literal => {
                self.form = WordForm::Glob(self.text.len());
                self.text.push(c);
            }
            WordForm::Glob(_) => self.text.push(c),
            WordForm::Field(_) => self.form = WordForm::Fields,
            WordForm::Fields | WordForm::Odd(_) => {}
        }
    }

    /// Scans the rest of `'…'`, in which every character means itself.
    fn scan_single_quoted(&mut self) -> Result<(), UnsupportedSyntax> {
        let (quoted, rest) = self
            .rest
            .split_once('\'')
            .ok_or("a quotation without an end")?;
        self.rest = rest;
        quoted.chars().for_each(|c| self.push_char(c));
        Ok(())
    }

    /// Scans the rest of `"…"`, in which variables and commands are expanded but never split.
    fn scan_double_quoted(&mut self) -> Result<(), UnsupportedSyntax> {
        loop {
            match self.next_char().ok_or("a quotation without an end")? {
                '"' => return Ok(()),
                '\\' => match self.next_char().ok_or("a quotation without an end")? {
                    '\n' => return Err("a line that continues after a backslash"),
                    // In double quotes a backslash escapes only these characters; otherwise it
                    // stays.
                    c @ ('$' | '`' | '"' | '\\') => self.push_char(c),
                    c => {
                        self.push_char('\\');
                        self.push_char(c);
                    }
                },
                '`' => self.scan_backquoted(true)?,
                '$' => self.scan_dollar(true)?,
                c => self.push_char(c),
            }
        }
    }

    /// Scans the rest of a command in backquotes. It equals `$(…)` only if nothing in it is escaped.
    fn scan_backquoted(&mut self, quoted: bool) -> Result<(), UnsupportedSyntax> {
        let (inner, rest) = self
            .rest
            .split_once('`')
            .ok_or("a quotation without an end")?;
        let odd = inner.trim().is_empty() || inner.contains(['\\', '#']) || inner.contains("<<");
        if odd || quoted && inner.contains('"') {
            return Err("a command in backquotes");
        }
        self.rest = rest;
        self.commands.push(inner.to_owned());
        self.mark_unknown(
            TextTraits {
                plain: false,
                inside: false,
                name: false,
                word: false,
            },
            quoted,
        );
        Ok(())
    }

    /// Scans the expansion behind a `$`.
    fn scan_dollar(&mut self, quoted: bool) -> Result<(), UnsupportedSyntax> {
        let unknown = TextTraits {
            plain: false,
            inside: false,
            name: false,
            word: false,
        };
        if self.shell == ShellKind::Zsh && is_subscripted(self.rest) {
            return Err("a subscript or modifier of zsh");
        }
        match self.peek_char() {
            Some('(') if self.rest.starts_with("((") => {
                self.scan_arithmetic()?;
                self.mark_unknown(unknown, quoted);
            }
            Some('(') => {
                self.next_char();
                let line = self.scan_command()?;
                self.commands.push(line);
                self.mark_unknown(unknown, quoted);
            }
            Some('{') => {
                self.next_char();
                self.scan_braced(quoted)?;
            }
            Some('\'')
                if !quoted && self.shell != ShellKind::Plain && self.scan_escaped_blank() => {}
            Some('\'' | '"') if !quoted => return Err("a quotation that begins with $"),
            Some('[') => return Err("arithmetic in $[…]"),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let end = self
                    .rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(self.rest.len());
                let (name, rest) = self.rest.split_at_checked(end).ok_or("a name")?;
                self.rest = rest;
                self.scan_variable(name, quoted);
            }
            // `$?` and `$#` are always numbers.
            Some('?' | '#') => {
                self.next_char();
                self.mark_unknown(
                    TextTraits {
                        plain: true,
                        inside: true,
                        name: true,
                        word: true,
                    },
                    true,
                );
            }
            // `"$@"` expands to any number of words, even in quotes.
            Some('@') => {
                self.next_char();
                self.form = WordForm::Fields;
            }
            Some('0'..='9' | '$' | '!' | '*' | '-') => {
                self.next_char();
                self.mark_unknown(unknown, quoted);
            }
            Some(_) if self.shell == ShellKind::Zsh && !quoted => {
                return Err("an expansion of zsh");
            }
            _ => self.push_char('$'),
        }
        Ok(())
    }

    /// Scans `$'\t'` or `$'\n'`, the only accepted forms of `$'…'`. Returns false for any other.
    fn scan_escaped_blank(&mut self) -> bool {
        let blanks = [("'\\t'", '\t'), ("'\\n'", '\n')];
        let Some((c, rest)) = blanks
            .iter()
            .find_map(|(text, c)| Some((*c, self.rest.strip_prefix(text)?)))
        else {
            return false;
        };
        self.rest = rest;
        self.push_char(c);
        true
    }

    /// Adds the value of a variable.
    fn scan_variable(&mut self, name: &str, quoted: bool) {
        match (self.variables)(name) {
            Some(VariableValue::Literal(value)) if quoted || is_one_word(&value) => {
                value.chars().for_each(|c| self.push_char(c))
            }
            // Without quotes the value is used only if it stays one word: a file name may contain
            // blanks.
            Some(VariableValue::Some(known)) if quoted || known.word => {
                let fits = self.text.is_empty()
                    || self.text.ends_with('/')
                    || known.name && !self.text.ends_with('.');
                self.mark_unknown(
                    TextTraits {
                        inside: known.inside && fits,
                        ..known
                    },
                    true,
                );
            }
            _ => self.mark_unknown(
                TextTraits {
                    plain: false,
                    inside: false,
                    name: false,
                    word: false,
                },
                quoted,
            ),
        }
    }

    /// Scans `${…}`. Accepts a name, its length (`#`), a slice, a change of case, and a default, prefix, suffix or replacement of plain
    /// characters.
    fn scan_braced(&mut self, quoted: bool) -> Result<(), UnsupportedSyntax> {
        let (inner, rest) = self
            .rest
            .split_once('}')
            .ok_or("an expansion without an end")?;
        self.rest = rest;
        // In zsh `${name}[…]` subscripts the value.
        if self.shell == ShellKind::Zsh && rest.starts_with('[') {
            return Err("a subscript or modifier of zsh");
        }
        // `${#name}` is always a number.
        let counted = inner.strip_prefix('#').filter(|name| is_name(name));
        if counted.is_some() {
            self.mark_unknown(
                TextTraits {
                    plain: true,
                    inside: true,
                    name: true,
                    word: true,
                },
                true,
            );
            return Ok(());
        }
        let end = inner
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(inner.len());
        let (name, operation) = inner.split_at_checked(end).ok_or("a name")?;
        let plain = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || "_./-*?, :".contains(c))
        };
        let known = match operation {
            "" if is_name(name) => {
                self.scan_variable(name, quoted);
                return Ok(());
            }
            "" => !name.is_empty(),
            "^" | "^^" | "," | ",," => is_name(name),
            _ if is_slice(operation) => is_name(name),
            _ => ["##", "#", "%%", "%", ":-", "-", ":+", "+", "//", "/"]
                .iter()
                .find_map(|sign| operation.strip_prefix(sign))
                .is_some_and(|text| is_name(name) && plain(text)),
        };
        if !known {
            return Err("an expansion that is not understood");
        }
        self.mark_unknown(
            TextTraits {
                plain: false,
                inside: false,
                name: false,
                word: false,
            },
            quoted,
        );
        Ok(())
    }

    /// Scans the rest of `$((…))`. Accepts numbers and variables that are known to hold numbers. The shell evaluates the value of any
    /// other variable as arithmetic again, which can run a command (`a[$(cmd)]`).
    fn scan_arithmetic(&mut self) -> Result<(), UnsupportedSyntax> {
        let (inner, rest) = self
            .rest
            .split_once("))")
            .ok_or("arithmetic without an end")?;
        let plain = inner.strip_prefix("((").unwrap_or("?");
        let number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let certain = |name: &str| matches!((self.variables)(name), Some(VariableValue::Literal(value)) if number(&value));
        let names: Vec<&str> = plain
            .split(|c: char| "+-*/% $".contains(c))
            .filter(|part| !part.is_empty() && !number(part))
            .collect();
        // `++` and `--` would change the variable.
        let changed = !names.is_empty()
            && (plain.contains("++") || plain.contains("--") || plain.contains("$ "));
        if rest.starts_with(')')
            || changed
            || !names.iter().all(|name| is_name(name) && certain(name))
        {
            return Err("arithmetic with names in it");
        }
        self.rest = rest;
        Ok(())
    }

    /// Adds an unknown text with known properties. `quoted` is true if it cannot be split into several words.
    fn mark_unknown(&mut self, known: TextTraits, quoted: bool) {
        self.form = match self.form {
            WordForm::Literal if quoted => WordForm::Field(known),
            WordForm::Field(before) if quoted => WordForm::Field(TextTraits {
                inside: false,
                ..before
            }),
            WordForm::Odd(odd) => WordForm::Odd(odd),
            _ => WordForm::Fields,
        };
    }

    /// Takes the command line of a `$(…)`, whose end must be certain.
    fn scan_command(&mut self) -> Result<String, UnsupportedSyntax> {
        let end =
            substitution_end(self.rest).ok_or("a command substitution that is not understood")?;
        let (inner, rest) = self
            .rest
            .split_at_checked(end)
            .ok_or("a command substitution that is not understood")?;
        self.rest = rest.strip_prefix(')').unwrap_or(rest);
        if inner.trim().is_empty() {
            return Err("a command substitution that is not understood");
        }
        Ok(inner.to_owned())
    }
}

/// Finds the offset of the `)` that closes a `$(`. Returns `None` if the text before it can be read in two ways.
fn substitution_end(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    // The depths at which double quotes are open.
    let mut quoted = Vec::new();
    let mut before = ' ';
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => _ = characters.next(),
            '`' => {
                let (inner, _) = text.get(at + 1..)?.split_once('`')?;
                if inner.contains(['\\', '(', ')', '"', '\'', '#']) {
                    return None;
                }
                _ = characters.find(|(_, c)| *c == '`')?;
            }
            '"' if quoted.last() == Some(&depth) => _ = quoted.pop(),
            '"' => quoted.push(depth),
            '(' if before == '$' => depth += 1,
            ')' if depth > 0 && quoted.last() != Some(&depth) => depth -= 1,
            _ if quoted.last() == Some(&depth) => {}
            '(' => depth += 1,
            ')' => return Some(at),
            '\'' if before == '$' => return None,
            '\'' => _ = characters.find(|(_, c)| *c == '\'')?,
            '#' if before.is_whitespace() || matches!(before, ';' | '&' | '|' | '(') => {
                return None;
            }
            // `<<<` is a here string, which is only a word; `<<` begins a here document, which is
            // not accepted.
            '<' if before == '<'
                && text.get(at + 1..).is_some_and(|rest| rest.starts_with('<')) =>
            {
                _ = characters.next();
            }
            '<' if before == '<' => return None,
            _ => {}
        }
        before = c;
    }
    None
}

/// Reports whether a path inside of a folder stays inside with this text behind it.
fn keeps_path_inside(tail: &str) -> bool {
    let suffix = tail
        .strip_prefix('.')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
    tail.is_empty() || (tail.starts_with('/') || suffix) && !tail.contains("..")
}

/// Reports whether an operation is a slice with plain numbers, such as `:0:7` in `${name:0:7}`.
fn is_slice(operation: &str) -> bool {
    let mut parts = operation.split(':');
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some("")
        && operation.matches(':').count() <= 2
        && operation.contains(':')
        && parts.all(digits)
}

/// Reports whether the text behind a `{` makes it a brace expansion with a list or a range.
fn is_brace_list(rest: &str) -> bool {
    // Looks only at the text inside of the brace, so that `@{u}..` is accepted; at the whole rest
    // if the end of the brace is not certain.
    let closed = rest.split_once('}').map(|(inner, _)| inner);
    let inner = closed
        .filter(|inner| !inner.contains(['{', '\\', '\'', '"', '$', '`']))
        .unwrap_or(rest);
    inner.contains(',') || inner.contains("..")
}

/// Reports whether a text is a valid name of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reports whether a parameter behind `$` has a subscript or modifier, which zsh evaluates: `$?[x]`, `$1:h`, `$#name[x]`.
fn is_subscripted(rest: &str) -> bool {
    let behind =
        rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_?#@$!*-".contains(c));
    behind.len() < rest.len() && behind.starts_with(['[', ':'])
}

/// Reports whether a value stays one word without quotes, for any locale and the default `IFS`.
pub(crate) fn is_one_word(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c))
}
