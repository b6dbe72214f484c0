//! Words: what is certain of a word of a command line before the shell expands it.
//!
//! A word is scanned by its own small lexer that knows only what bash and zsh agree on. Everything else makes it [`Form::Odd`],
//! and an odd word is never judged.

use super::facts::Shell;

/// A word after quote removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// As it was written.
    pub(crate) raw: String,
    /// What is certain of it: the whole of a literal, a pattern's text, the beginning of a field.
    pub(crate) text: String,
    pub(crate) form: Form,
}

/// What becomes of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Itself.
    Literal,
    /// The names of files that match, or itself; they all begin with the first so many bytes of the text.
    Glob(usize),
    /// One word with an unknown rest.
    Field(Trait),
    /// Any number of words.
    Fields,
    /// Something that is not judged, and what.
    Odd(&'static str),
}

/// What is known of an unknown text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trait {
    /// It cannot begin with `-`.
    pub(crate) plain: bool,
    /// As a path it stays beneath the folder.
    pub(crate) inside: bool,
    /// It is a part of a path that has no `/` and does not begin with a dot.
    pub(crate) name: bool,
    /// It stays one word without quotes.
    pub(crate) word: bool,
}

/// What a variable is known to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    Literal(String),
    Some(Trait),
}

/// A scanned word, and the command lines of its `$(…)`.
pub(crate) struct Scanned {
    pub(crate) word: Word,
    pub(crate) commands: Vec<String>,
}

/// Scans a word as it was written.
pub(crate) fn scan(raw: &str, shell: Shell, bound: &dyn Fn(&str) -> Option<Bound>) -> Scanned {
    let (text, tail) = (String::new(), String::new());
    let mut scanner = Scanner { rest: raw, shell, bound, text, tail, form: Form::Literal, commands: Vec::new() };
    match (scanner.run(), scanner.form) {
        (Err(odd), _) => scanner.form = Form::Odd(odd),
        (Ok(()), Form::Field(known)) => {
            scanner.form = Form::Field(Trait {
                inside: known.inside && (stays(&scanner.tail) || known.name && !scanner.tail.contains("..")),
                ..known
            });
        }
        // A bracket that nothing closes is no pattern: `[` is a program.
        (Ok(()), Form::Glob(_)) if !scanner.text.contains(['*', '?', ']']) => scanner.form = Form::Literal,
        (Ok(()), _) => {}
    }
    let Scanner { text, form, commands, .. } = scanner;
    Scanned { word: Word { raw: raw.to_owned(), text, form }, commands }
}

impl Word {
    pub(crate) fn literal(text: &str) -> Self {
        Self { raw: text.to_owned(), text: text.to_owned(), form: Form::Literal }
    }

    pub(crate) fn field(raw: &str, text: &str, plain: bool, inside: bool) -> Self {
        Self {
            raw: raw.to_owned(),
            text: text.to_owned(),
            form: Form::Field(Trait { plain, inside, name: false, word: false }),
        }
    }

    /// The whole of it, if that is certain.
    pub(crate) fn known(&self) -> Option<&str> {
        (self.form == Form::Literal).then_some(self.text.as_str())
    }

    /// The beginning that is certain.
    pub(crate) fn head(&self) -> &str {
        match self.form {
            Form::Literal | Form::Field(_) => &self.text,
            Form::Glob(at) => self.text.get(..at).unwrap_or_default(),
            Form::Fields | Form::Odd(_) => "",
        }
    }

    /// Whether it can turn out to be an option, or anything else that begins with `-`.
    pub(crate) fn may_be_option(&self) -> bool {
        let head = self.head();
        head.starts_with('-')
            || head.is_empty()
                && match self.form {
                    Form::Literal => false,
                    Form::Field(known) => !known.plain,
                    Form::Glob(_) | Form::Fields | Form::Odd(_) => true,
                }
    }
}

struct Scanner<'a> {
    rest: &'a str,
    shell: Shell,
    bound: &'a dyn Fn(&str) -> Option<Bound>,
    text: String,
    /// What stands behind the unknown part of a field.
    tail: String,
    form: Form,
    commands: Vec<String>,
}

type Odd = &'static str;

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn run(&mut self) -> Result<(), Odd> {
        let zsh = self.shell == Shell::Zsh;
        let mut first = true;
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    Some(c) if c != '\n' => self.push(c),
                    _ => return Err("a line that goes on behind a backslash"),
                },
                '\'' => self.single()?,
                '"' => self.double()?,
                '$' => self.dollar(false)?,
                '`' => self.backquoted(false)?,
                '*' | '?' | '[' => self.glob(c),
                '{' if zsh && !self.rest.starts_with('}') => return Err("a brace"),
                '}' if zsh && self.text != "{" => return Err("a brace"),
                '{' if is_brace_list(self.rest) => return Err("a brace expansion"),
                // The home folder, whose path begins with a `/`.
                '~' if first && (self.rest.is_empty() || self.rest.starts_with('/')) => {
                    self.unknown(Trait { plain: true, inside: false, name: false, word: true }, true);
                }
                '~' if first || self.text.ends_with([':', '=']) => return Err("a tilde"),
                '=' if zsh && first => return Err("an expansion of zsh"),
                '(' | ')' | '<' | '>' | '|' | '&' | ';' => return Err("an operator inside of a word"),
                _ if c.is_whitespace() => return Err("a blank inside of a word"),
                _ => self.push(c),
            }
            first = false;
        }
        Ok(())
    }

    /// A character that stands for itself.
    fn push(&mut self, c: char) {
        match self.form {
            Form::Field(_) => self.tail.push(c),
            Form::Fields | Form::Odd(_) => {}
            Form::Literal | Form::Glob(_) => self.text.push(c),
        }
    }

    fn glob(&mut self, c: char) {
        match self.form {
            Form::Literal => {
                self.form = Form::Glob(self.text.len());
                self.text.push(c);
            }
            Form::Glob(_) => self.text.push(c),
            Form::Field(_) => self.form = Form::Fields,
            Form::Fields | Form::Odd(_) => {}
        }
    }

    fn single(&mut self) -> Result<(), Odd> {
        let (quoted, rest) = self.rest.split_once('\'').ok_or("a quotation without an end")?;
        self.rest = rest;
        quoted.chars().for_each(|c| self.push(c));
        Ok(())
    }

    fn double(&mut self) -> Result<(), Odd> {
        loop {
            match self.next().ok_or("a quotation without an end")? {
                '"' => return Ok(()),
                '\\' => match self.next().ok_or("a quotation without an end")? {
                    '\n' => return Err("a line that goes on behind a backslash"),
                    c @ ('$' | '`' | '"' | '\\') => self.push(c),
                    c => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                '`' => self.backquoted(true)?,
                '$' => self.dollar(true)?,
                c => self.push(c),
            }
        }
    }

    /// The rest of a command in backquotes, which is one as in `$(…)` where nothing in it is escaped.
    fn backquoted(&mut self, quoted: bool) -> Result<(), Odd> {
        let (inner, rest) = self.rest.split_once('`').ok_or("a quotation without an end")?;
        let odd = inner.trim().is_empty() || inner.contains(['\\', '#']) || inner.contains("<<");
        if odd || quoted && inner.contains('"') {
            return Err("a command in backquotes");
        }
        self.rest = rest;
        self.commands.push(inner.to_owned());
        self.unknown(Trait { plain: false, inside: false, name: false, word: false }, quoted);
        Ok(())
    }

    /// What a `$` begins.
    fn dollar(&mut self, quoted: bool) -> Result<(), Odd> {
        let unknown = Trait { plain: false, inside: false, name: false, word: false };
        if self.shell == Shell::Zsh && is_subscripted(self.rest) {
            return Err("a subscript or modifier of zsh");
        }
        match self.peek() {
            Some('(') if self.rest.starts_with("((") => {
                self.arithmetic()?;
                self.unknown(unknown, quoted);
            }
            Some('(') => {
                self.next();
                let line = self.command()?;
                self.commands.push(line);
                self.unknown(unknown, quoted);
            }
            Some('{') => {
                self.next();
                self.braced(quoted)?;
            }
            Some('\'') if !quoted && self.shell != Shell::Plain && self.blank() => {}
            Some('\'' | '"') if !quoted => return Err("a quotation that begins with $"),
            Some('[') => return Err("arithmetic in $[…]"),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let (name, rest) = self.rest.split_at_checked(end).ok_or("a name")?;
                self.rest = rest;
                self.variable(name, quoted);
            }
            Some('?' | '#') => {
                self.next();
                self.unknown(Trait { plain: true, inside: true, name: true, word: true }, true);
            }
            Some('@') => {
                self.next();
                self.form = Form::Fields;
            }
            Some('0'..='9' | '$' | '!' | '*' | '-') => {
                self.next();
                self.unknown(unknown, quoted);
            }
            Some(_) if self.shell == Shell::Zsh && !quoted => return Err("an expansion of zsh"),
            _ => self.push('$'),
        }
        Ok(())
    }

    /// A tab or a line feed as `$'…'`, and nothing else.
    fn blank(&mut self) -> bool {
        let blanks = [("'\\t'", '\t'), ("'\\n'", '\n')];
        let Some((c, rest)) = blanks.iter().find_map(|(text, c)| Some((*c, self.rest.strip_prefix(text)?))) else {
            return false;
        };
        self.rest = rest;
        self.push(c);
        true
    }

    fn variable(&mut self, name: &str, quoted: bool) {
        match (self.bound)(name) {
            Some(Bound::Literal(value)) if quoted || is_one_word(&value) => value.chars().for_each(|c| self.push(c)),
            // A file's name may hold blanks.
            Some(Bound::Some(known)) if quoted || known.word => {
                let fits = self.text.is_empty() || self.text.ends_with('/') || known.name && !self.text.ends_with('.');
                self.unknown(Trait { inside: known.inside && fits, ..known }, true);
            }
            _ => self.unknown(Trait { plain: false, inside: false, name: false, word: false }, quoted),
        }
    }

    /// `${…}`: a name, its length, a piece of it, or one with a default, a prefix, a suffix or a change of plain characters.
    fn braced(&mut self, quoted: bool) -> Result<(), Odd> {
        let (inner, rest) = self.rest.split_once('}').ok_or("an expansion without an end")?;
        self.rest = rest;
        if self.shell == Shell::Zsh && rest.starts_with('[') {
            return Err("a subscript or modifier of zsh");
        }
        let counted = inner.strip_prefix('#').filter(|name| is_name(name));
        if counted.is_some() {
            self.unknown(Trait { plain: true, inside: true, name: true, word: true }, true);
            return Ok(());
        }
        let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, operation) = inner.split_at_checked(end).ok_or("a name")?;
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_./-*?, :".contains(c));
        let known = match operation {
            "" if is_name(name) => {
                self.variable(name, quoted);
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
            return Err("an expansion that is not judged");
        }
        self.unknown(Trait { plain: false, inside: false, name: false, word: false }, quoted);
        Ok(())
    }

    /// `((…))` of numbers, and of names that are known to hold one: any other is evaluated again, and can run a command.
    fn arithmetic(&mut self) -> Result<(), Odd> {
        let (inner, rest) = self.rest.split_once("))").ok_or("arithmetic without an end")?;
        let plain = inner.strip_prefix("((").unwrap_or("?");
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let certain = |name: &str| matches!((self.bound)(name), Some(Bound::Literal(value)) if number(&value));
        let names: Vec<&str> =
            plain.split(|c: char| "+-*/% $".contains(c)).filter(|part| !part.is_empty() && !number(part)).collect();
        // A name may also be changed.
        let changed = !names.is_empty() && (plain.contains("++") || plain.contains("--") || plain.contains("$ "));
        if rest.starts_with(')') || changed || !names.iter().all(|name| is_name(name) && certain(name)) {
            return Err("arithmetic with names in it");
        }
        self.rest = rest;
        Ok(())
    }

    fn unknown(&mut self, known: Trait, quoted: bool) {
        self.form = match self.form {
            Form::Literal if quoted => Form::Field(known),
            Form::Field(before) if quoted => Form::Field(Trait { inside: false, ..before }),
            Form::Odd(odd) => Form::Odd(odd),
            _ => Form::Fields,
        };
    }

    /// The rest of a `$(…)`, up to its end, which must be certain.
    fn command(&mut self) -> Result<String, Odd> {
        let end = substitution_end(self.rest).ok_or("a command substitution that is not judged")?;
        let (inner, rest) = self.rest.split_at_checked(end).ok_or("a command substitution that is not judged")?;
        self.rest = rest.strip_prefix(')').unwrap_or(rest);
        if inner.trim().is_empty() {
            return Err("a command substitution that is not judged");
        }
        Ok(inner.to_owned())
    }
}

/// Where the `)` of a `$(` stands: nothing before it may be read in two ways.
fn substitution_end(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut before) = (0_usize, Vec::new(), ' ');
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
            '#' if before.is_whitespace() || matches!(before, ';' | '&' | '|' | '(') => return None,
            // Not the beginning of a document, but a word: `<<<`.
            '<' if before == '<' && text.get(at + 1..).is_some_and(|rest| rest.starts_with('<')) => {
                _ = characters.next();
            }
            '<' if before == '<' => return None,
            _ => {}
        }
        before = c;
    }
    None
}

/// Whether a path that stays beneath a folder still does with this behind it.
fn stays(tail: &str) -> bool {
    let suffix = tail.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
    tail.is_empty() || (tail.starts_with('/') || suffix) && !tail.contains("..")
}

/// `:0:7` of `${name:0:7}`, in numbers: a piece of a value.
fn is_slice(operation: &str) -> bool {
    let mut parts = operation.split(':');
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some("") && operation.matches(':').count() <= 2 && operation.contains(':') && parts.all(digits)
}

/// Whether what stands behind a `{` makes it a list or a range.
fn is_brace_list(rest: &str) -> bool {
    // `@{u}..` is none, as long as it is certain where the brace ends.
    let closed = rest.split_once('}').map(|(inner, _)| inner);
    let inner = closed.filter(|inner| !inner.contains(['{', '\\', '\'', '"', '$', '`'])).unwrap_or(rest);
    inner.contains(',') || inner.contains("..")
}

pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether behind `$` stands a parameter with a subscript or modifier of zsh, which are evaluated: `$?[x]`, `$1:h`, `$#name[x]`.
fn is_subscripted(rest: &str) -> bool {
    let behind = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_?#@$!*-".contains(c));
    behind.len() < rest.len() && behind.starts_with(['[', ':'])
}

/// Whether a value stays one word without quotes, in any locale.
pub(crate) fn is_one_word(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c))
}
