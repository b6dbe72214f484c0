//! Grammars: what is allowed of a program, as rows of a table.
//!
//! A row lists the options that have no effect but on what is printed; any other word that begins with `-` is not allowed, nor
//! is a word that might turn out to be one. Options are written in one text, parted by blanks:
//!
//! | written | means |
//! | --- | --- |
//! | `-a`, `--all` | an option without a value |
//! | `-n=`, `--lines=` | with a value, attached or the next word |
//! | `-f=@` | with a value that is a path to read |
//! | `--color=?` | with a value only if attached by `=` (of a short one: attached) |
//! | `--arg==` | with two values, the next words |
//! | `-#` | a number of digits: `-5` |

use super::place::{Folder, readable};
use super::word::{Form, Word};

/// What the operands of a program are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// There are none.
    Nothing,
    /// Words that are no paths.
    Text,
    /// Paths to read.
    Paths,
    /// So many paths at most: with more the program does something else.
    AtMost(usize),
    /// So many words first, then paths.
    Then(usize),
}

/// What must hold of the words of a command; why not, in words.
type Check = fn(&Seen<'_>) -> Result<(), String>;

/// A program, or a subcommand of one, and what is allowed of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Its names.
    pub(crate) names: &'static [&'static str],
    pub(crate) options: &'static str,
    pub(crate) operands: Operands,
    /// Whether no option whatsoever has an effect, so that a word may turn out to be one.
    pub(crate) tame: bool,
    /// Whether letters are never put together: what stands behind the first is passed over.
    pub(crate) lone: bool,
    /// What else must hold.
    pub(crate) also: Option<Check>,
}

/// The words of a command, told apart.
#[derive(Debug, Default)]
pub(crate) struct Seen<'a> {
    /// Options as the row writes them, with the certain part of their values.
    pub(crate) options: Vec<(&'a str, Option<Value<'a>>)>,
    pub(crate) operands: Vec<&'a Word>,
    /// Whether an option stands behind an operand: some programs take it for one as well.
    pub(crate) late: bool,
}

/// The value of an option.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    /// Attached to it.
    Attached(&'a str),
    /// The next word.
    Next(&'a Word),
}

/// Where paths are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) root: &'a str,
}

/// How an option takes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Text,
    Path,
    Attached,
    Two,
}

impl Row {
    pub(crate) const fn new(names: &'static [&'static str], options: &'static str, operands: Operands) -> Self {
        Self { names, options, operands, tame: false, lone: false, also: None }
    }

    /// No option whatsoever has an effect.
    pub(crate) const fn tame(self) -> Self {
        Self { tame: true, ..self }
    }

    /// Letters of options are never put together.
    pub(crate) const fn lone(self) -> Self {
        Self { lone: true, ..self }
    }

    /// What else must hold.
    pub(crate) const fn also(self, check: Check) -> Self {
        Self { also: Some(check), ..self }
    }

    /// Whether these words behind the program's name are allowed.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn allows(&self, words: &[Word], ground: Ground<'_>) -> Result<(), String> {
        let seen = self.seen(words, ground)?;
        self.operands(&seen, ground)?;
        self.also.map_or(Ok(()), |check| check(&seen))
    }

    /// Whether an option takes the next word as its value.
    pub(crate) fn takes_next(&self, option: &str) -> bool {
        let takes = |name: &str| self.find(name).is_some_and(|(_, takes)| matches!(takes, Takes::Text | Takes::Path));
        if option.starts_with("--") {
            return takes(option);
        }
        let mut letters = option.chars().skip(1).peekable();
        while let Some(letter) = letters.next() {
            if takes(&format!("-{letter}")) {
                return letters.peek().is_none();
            }
        }
        false
    }

    /// Tells options from operands.
    ///
    /// # Errors
    /// An option that the row does not have, or a word that may be one.
    pub(crate) fn seen<'a>(&self, words: &'a [Word], ground: Ground<'_>) -> Result<Seen<'a>, String> {
        let mut seen = Seen::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Form::Odd(odd) = word.form {
                return Err(format!("{} holds {odd}", word.raw));
            }
            seen.late |= !seen.operands.is_empty() && word.may_be_option();
            match word.known() {
                // xxd takes it for a file, and a second file is written.
                Some("--") if matches!(self.operands, Operands::AtMost(_)) => return Err(not_judged("--")),
                Some("--") => {
                    for word in words.by_ref() {
                        match word.form {
                            Form::Odd(odd) => return Err(format!("{} holds {odd}", word.raw)),
                            _ => seen.operands.push(word),
                        }
                    }
                }
                // What only prints its words prints these, too: `echo ---`.
                Some(_) if self.tame && self.operands == Operands::Text => seen.operands.push(word),
                Some(text) if text.len() > 1 && text.starts_with("--") => {
                    self.long(text, &mut words, &mut seen, ground)?
                }
                Some(text) if text.len() > 1 && text.starts_with('-') => {
                    self.short(text, &mut words, &mut seen, ground)?;
                }
                None if word.may_be_option() && !self.tame => seen.options.push(self.open(word)?),
                _ => seen.operands.push(word),
            }
        }
        Ok(seen)
    }

    /// A word that begins like an option and goes on with something unknown.
    fn open<'a>(&self, word: &'a Word) -> Result<(&'static str, Option<Value<'a>>), String> {
        let name = word.head().split_once('=').map(|(name, _)| name).filter(|name| name.starts_with("--"));
        match name.and_then(|name| self.find(name)) {
            Some((option, Takes::Text | Takes::Attached)) if word.form != Form::Fields => {
                Ok((option, Some(Value::Next(word))))
            }
            _ => Err(format!("{} may turn out to be an option", word.raw)),
        }
    }

    fn long<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, Word>,
        seen: &mut Seen<'a>,
        ground: Ground<'_>,
    ) -> Result<(), String> {
        let (name, attached) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let (option, takes) = self.find(name).ok_or_else(|| not_judged(name))?;
        let value = match (takes, attached) {
            (Takes::Nothing, Some(_)) => return Err(not_judged(text)),
            (Takes::Nothing | Takes::Attached, None) => None,
            (Takes::Two, _) => {
                self.next_value(name, words)?;
                Some(self.next_value(name, words)?)
            }
            (_, Some(value)) => Some(Value::Attached(value)),
            (_, None) => Some(self.next_value(name, words)?),
        };
        keep((option, takes), value, seen, ground)
    }

    fn short<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, Word>,
        seen: &mut Seen<'a>,
        ground: Ground<'_>,
    ) -> Result<(), String> {
        // Words like `-name` of find, or `-version`: one option, whatever its letters.
        if let Some((option, Takes::Nothing)) = self.find(text).filter(|_| text.len() > 2) {
            seen.options.push((option, None));
            return Ok(());
        }
        let digits = text.get(1..).unwrap_or_default();
        if digits.bytes().all(|byte| byte.is_ascii_digit()) && self.find("-#").is_some() {
            return Ok(());
        }
        let behind = digits.get(1..).unwrap_or_default();
        if self.lone && !behind.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(not_judged(text));
        }
        let mut rest = digits;
        while let Some(letter) = rest.chars().next() {
            let mut name = String::from("-");
            name.push(letter);
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            let (option, takes) = self.find(&name).ok_or_else(|| not_judged(&name))?;
            let value = match takes {
                Takes::Nothing => None,
                Takes::Attached => (!rest.is_empty()).then_some(Value::Attached(rest)),
                Takes::Two => return Err(not_judged(&name)),
                _ if rest.is_empty() => Some(self.next_value(&name, words)?),
                _ => Some(Value::Attached(rest)),
            };
            keep((option, takes), value, seen, ground)?;
            if takes != Takes::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// The next word as the value of an option: it must be one word.
    fn next_value<'a>(&self, name: &str, words: &mut std::slice::Iter<'a, Word>) -> Result<Value<'a>, String> {
        let word = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        // If the program does not take a value here after all, the word must not be an option of it.
        let number = word.text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if word.may_be_option() && !self.tame && word.text.len() > 1 && !number {
            return Err(format!("{}, the value of {name}, may be an option", word.raw));
        }
        match word.form {
            Form::Literal | Form::Field(_) => Ok(Value::Next(word)),
            Form::Glob(_) if self.tame => Ok(Value::Next(word)),
            _ => Err(format!("the value of {name}, {}, is not certain", word.raw)),
        }
    }

    /// The option of that name, and how it takes values.
    fn find(&self, name: &str) -> Option<(&'static str, Takes)> {
        self.options.split_ascii_whitespace().find_map(|option| {
            let takes = match option.strip_prefix(name)? {
                "" => Takes::Nothing,
                "=" => Takes::Text,
                "=@" => Takes::Path,
                "=?" => Takes::Attached,
                "==" => Takes::Two,
                _ => return None,
            };
            Some((option, takes))
        })
    }

    fn operands(&self, seen: &Seen<'_>, ground: Ground<'_>) -> Result<(), String> {
        let first = match self.operands {
            Operands::Text => return self.texts(&seen.operands),
            Operands::Nothing => match seen.operands.first() {
                Some(word) => return Err(format!("{} is not judged here", word.raw)),
                None => return Ok(()),
            },
            Operands::Paths => 0,
            Operands::AtMost(most) if seen.operands.len() > most || seen.has_many() => {
                return Err(format!("more than {most} operands are not judged"));
            }
            Operands::AtMost(_) => 0,
            // A pattern given by an option leaves paths alone.
            Operands::Then(_) if seen.has(&["-e=", "-f=@", "--regexp=", "--expression=", "--file=@"]) => 0,
            Operands::Then(count) => count,
        };
        let (texts, paths) = seen.operands.split_at_checked(first).unwrap_or((&seen.operands, &[]));
        self.texts(texts)?;
        // A word that becomes several makes paths of what looks like none, and the other way round; both are read only.
        if let Some(word) = texts.iter().find(|word| matches!(word.form, Form::Glob(_) | Form::Fields)) {
            readable(word, ground.folder, ground.root)?;
        }
        let stdin = |word: &&&Word| word.known() != Some("-");
        paths.iter().filter(stdin).try_for_each(|word| readable(word, ground.folder, ground.root))
    }

    fn texts(&self, words: &[&Word]) -> Result<(), String> {
        match words.iter().find(|word| word.form == Form::Fields && !self.tame) {
            Some(word) => Err(format!("what {} becomes is not known", word.raw)),
            None => Ok(()),
        }
    }
}

/// Keeps an option, if its value may be read.
fn keep<'a>(
    (option, takes): (&'static str, Takes),
    value: Option<Value<'a>>,
    seen: &mut Seen<'a>,
    ground: Ground<'_>,
) -> Result<(), String> {
    if takes == Takes::Path {
        match value {
            Some(Value::Attached(path)) => readable(&Word::literal(path), ground.folder, ground.root)?,
            Some(Value::Next(word)) if word.known() == Some("-") => {}
            Some(Value::Next(word)) => readable(word, ground.folder, ground.root)?,
            None => {}
        }
    }
    seen.options.push((option, value));
    Ok(())
}

impl<'a> Seen<'a> {
    /// Whether one of these options, as the row writes them, was given.
    pub(crate) fn has(&self, options: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| options.contains(option))
    }

    /// The values of an option.
    pub(crate) fn values(&self, option: &'a str) -> impl Iterator<Item = Value<'a>> {
        self.options.iter().filter(move |(name, _)| *name == option).filter_map(|(_, value)| *value)
    }

    /// Whether an operand may become several.
    pub(crate) fn has_many(&self) -> bool {
        self.operands.iter().any(|word| matches!(word.form, Form::Glob(_) | Form::Fields))
    }
}

impl<'a> Value<'a> {
    /// The whole of it, if that is certain.
    pub(crate) fn known(self) -> Option<&'a str> {
        match self {
            Self::Attached(text) => Some(text),
            Self::Next(word) => word.known(),
        }
    }
}

fn not_judged(option: &str) -> String {
    format!("the option {option} is not known to be harmless")
}
