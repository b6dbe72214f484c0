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

use super::path_scope::{FolderScope, check_readable};
use super::word::{ShellWord, WordForm};

/// What the operands of a program are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandKind {
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
type ArgumentCheck = fn(&ParsedArguments<'_>) -> Result<(), String>;

/// A program, or a subcommand of one, and what is allowed of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramGrammar {
    /// Its names.
    pub(crate) names: &'static [&'static str],
    pub(crate) options: &'static str,
    pub(crate) operands: OperandKind,
    /// Whether no option whatsoever has an effect, so that a word may turn out to be one.
    pub(crate) options_harmless: bool,
    /// Whether letters are never put together: what stands behind the first is passed over.
    pub(crate) no_clusters: bool,
    /// What else must hold.
    pub(crate) extra_check: Option<ArgumentCheck>,
}

/// The words of a command, told apart.
#[derive(Debug, Default)]
pub(crate) struct ParsedArguments<'a> {
    /// Options as the row writes them, with the certain part of their values.
    pub(crate) options: Vec<(&'a str, Option<OptionValue<'a>>)>,
    pub(crate) operands: Vec<&'a ShellWord>,
    /// Whether an option stands behind an operand: some programs take it for one as well.
    pub(crate) option_after_operand: bool,
}

/// The value of an option.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OptionValue<'a> {
    /// Attached to it.
    Attached(&'a str),
    /// The next word.
    Next(&'a ShellWord),
}

/// Where paths are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathContext<'a> {
    pub(crate) folder: &'a FolderScope,
    pub(crate) root: &'a str,
}

/// How an option takes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueStyle {
    Nothing,
    Text,
    Path,
    Attached,
    Two,
}

impl ProgramGrammar {
    pub(crate) const fn new(names: &'static [&'static str], options: &'static str, operands: OperandKind) -> Self {
        Self { names, options, operands, options_harmless: false, no_clusters: false, extra_check: None }
    }

    /// No option whatsoever has an effect.
    pub(crate) const fn with_harmless_options(self) -> Self {
        Self { options_harmless: true, ..self }
    }

    /// Letters of options are never put together.
    pub(crate) const fn without_clusters(self) -> Self {
        Self { no_clusters: true, ..self }
    }

    /// What else must hold.
    pub(crate) const fn with_check(self, check: ArgumentCheck) -> Self {
        Self { extra_check: Some(check), ..self }
    }

    /// Whether these words behind the program's name are allowed.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn check_arguments(&self, words: &[ShellWord], ground: PathContext<'_>) -> Result<(), String> {
        let seen = self.parse_arguments(words, ground)?;
        self.check_operands(&seen, ground)?;
        self.extra_check.map_or(Ok(()), |check| check(&seen))
    }

    /// Whether an option takes the next word as its value.
    pub(crate) fn takes_next(&self, option: &str) -> bool {
        let takes = |name: &str| {
            self.find_option(name).is_some_and(|(_, takes)| matches!(takes, ValueStyle::Text | ValueStyle::Path))
        };
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
    pub(crate) fn parse_arguments<'a>(
        &self,
        words: &'a [ShellWord],
        ground: PathContext<'_>,
    ) -> Result<ParsedArguments<'a>, String> {
        let mut seen = ParsedArguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let WordForm::Odd(odd) = word.form {
                return Err(format!("{} holds {odd}", word.raw));
            }
            seen.option_after_operand |= !seen.operands.is_empty() && word.may_be_option();
            match word.known_text() {
                // xxd takes it for a file, and a second file is written.
                Some("--") if matches!(self.operands, OperandKind::AtMost(_)) => return Err(not_judged("--")),
                Some("--") => {
                    for word in words.by_ref() {
                        match word.form {
                            WordForm::Odd(odd) => return Err(format!("{} holds {odd}", word.raw)),
                            _ => seen.operands.push(word),
                        }
                    }
                }
                // What only prints its words prints these, too: `echo ---`.
                Some(_) if self.options_harmless && self.operands == OperandKind::Text => seen.operands.push(word),
                Some(text) if text.len() > 1 && text.starts_with("--") => {
                    self.parse_long_option(text, &mut words, &mut seen, ground)?
                }
                Some(text) if text.len() > 1 && text.starts_with('-') => {
                    self.parse_short_options(text, &mut words, &mut seen, ground)?;
                }
                None if word.may_be_option() && !self.options_harmless => {
                    seen.options.push(self.parse_uncertain_option(word)?)
                }
                _ => seen.operands.push(word),
            }
        }
        Ok(seen)
    }

    /// A word that begins like an option and goes on with something unknown.
    fn parse_uncertain_option<'a>(
        &self,
        word: &'a ShellWord,
    ) -> Result<(&'static str, Option<OptionValue<'a>>), String> {
        let name = word.known_prefix().split_once('=').map(|(name, _)| name).filter(|name| name.starts_with("--"));
        match name.and_then(|name| self.find_option(name)) {
            Some((option, ValueStyle::Text | ValueStyle::Attached)) if word.form != WordForm::Fields => {
                Ok((option, Some(OptionValue::Next(word))))
            }
            _ => Err(format!("{} may turn out to be an option", word.raw)),
        }
    }

    fn parse_long_option<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, ShellWord>,
        seen: &mut ParsedArguments<'a>,
        ground: PathContext<'_>,
    ) -> Result<(), String> {
        let (name, attached) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let (option, takes) = self.find_option(name).ok_or_else(|| not_judged(name))?;
        let value = match (takes, attached) {
            (ValueStyle::Nothing, Some(_)) => return Err(not_judged(text)),
            (ValueStyle::Nothing | ValueStyle::Attached, None) => None,
            (ValueStyle::Two, _) => {
                self.next_value(name, words)?;
                Some(self.next_value(name, words)?)
            }
            (_, Some(value)) => Some(OptionValue::Attached(value)),
            (_, None) => Some(self.next_value(name, words)?),
        };
        record_option((option, takes), value, seen, ground)
    }

    fn parse_short_options<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, ShellWord>,
        seen: &mut ParsedArguments<'a>,
        ground: PathContext<'_>,
    ) -> Result<(), String> {
        // Words like `-name` of find, or `-version`: one option, whatever its letters.
        if let Some((option, ValueStyle::Nothing)) = self.find_option(text).filter(|_| text.len() > 2) {
            seen.options.push((option, None));
            return Ok(());
        }
        let digits = text.get(1..).unwrap_or_default();
        if digits.bytes().all(|byte| byte.is_ascii_digit()) && self.find_option("-#").is_some() {
            return Ok(());
        }
        let behind = digits.get(1..).unwrap_or_default();
        if self.no_clusters && !behind.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(not_judged(text));
        }
        let mut rest = digits;
        while let Some(letter) = rest.chars().next() {
            let mut name = String::from("-");
            name.push(letter);
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            let (option, takes) = self.find_option(&name).ok_or_else(|| not_judged(&name))?;
            let value = match takes {
                ValueStyle::Nothing => None,
                ValueStyle::Attached => (!rest.is_empty()).then_some(OptionValue::Attached(rest)),
                ValueStyle::Two => return Err(not_judged(&name)),
                _ if rest.is_empty() => Some(self.next_value(&name, words)?),
                _ => Some(OptionValue::Attached(rest)),
            };
            record_option((option, takes), value, seen, ground)?;
            if takes != ValueStyle::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// The next word as the value of an option: it must be one word.
    fn next_value<'a>(
        &self,
        name: &str,
        words: &mut std::slice::Iter<'a, ShellWord>,
    ) -> Result<OptionValue<'a>, String> {
        let word = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        // If the program does not take a value here after all, the word must not be an option of it.
        let number = word.text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if word.may_be_option() && !self.options_harmless && word.text.len() > 1 && !number {
            return Err(format!("{}, the value of {name}, may be an option", word.raw));
        }
        match word.form {
            WordForm::Literal | WordForm::Field(_) => Ok(OptionValue::Next(word)),
            WordForm::Glob(_) if self.options_harmless => Ok(OptionValue::Next(word)),
            _ => Err(format!("the value of {name}, {}, is not certain", word.raw)),
        }
    }

    /// The option of that name, and how it takes values.
    fn find_option(&self, name: &str) -> Option<(&'static str, ValueStyle)> {
        self.options.split_ascii_whitespace().find_map(|option| {
            let takes = match option.strip_prefix(name)? {
                "" => ValueStyle::Nothing,
                "=" => ValueStyle::Text,
                "=@" => ValueStyle::Path,
                "=?" => ValueStyle::Attached,
                "==" => ValueStyle::Two,
                _ => return None,
            };
            Some((option, takes))
        })
    }

    fn check_operands(&self, seen: &ParsedArguments<'_>, ground: PathContext<'_>) -> Result<(), String> {
        let first = match self.operands {
            OperandKind::Text => return self.check_texts(&seen.operands),
            OperandKind::Nothing => match seen.operands.first() {
                Some(word) => return Err(format!("{} is not judged here", word.raw)),
                None => return Ok(()),
            },
            OperandKind::Paths => 0,
            OperandKind::AtMost(most) if seen.operands.len() > most || seen.has_many() => {
                return Err(format!("more than {most} operands are not judged"));
            }
            OperandKind::AtMost(_) => 0,
            // A pattern given by an option leaves paths alone.
            OperandKind::Then(_) if seen.has_option(&["-e=", "-f=@", "--regexp=", "--expression=", "--file=@"]) => 0,
            OperandKind::Then(count) => count,
        };
        let (texts, paths) = seen.operands.split_at_checked(first).unwrap_or((&seen.operands, &[]));
        self.check_texts(texts)?;
        // A word that becomes several makes paths of what looks like none, and the other way round; both are read only.
        if let Some(word) = texts.iter().find(|word| matches!(word.form, WordForm::Glob(_) | WordForm::Fields)) {
            check_readable(word, ground.folder, ground.root)?;
        }
        let stdin = |word: &&&ShellWord| word.known_text() != Some("-");
        paths.iter().filter(stdin).try_for_each(|word| check_readable(word, ground.folder, ground.root))
    }

    fn check_texts(&self, words: &[&ShellWord]) -> Result<(), String> {
        match words.iter().find(|word| word.form == WordForm::Fields && !self.options_harmless) {
            Some(word) => Err(format!("what {} becomes is not known", word.raw)),
            None => Ok(()),
        }
    }
}

/// Keeps an option, if its value may be read.
fn record_option<'a>(
    (option, takes): (&'static str, ValueStyle),
    value: Option<OptionValue<'a>>,
    seen: &mut ParsedArguments<'a>,
    ground: PathContext<'_>,
) -> Result<(), String> {
    if takes == ValueStyle::Path {
        match value {
            Some(OptionValue::Attached(path)) => check_readable(&ShellWord::literal(path), ground.folder, ground.root)?,
            Some(OptionValue::Next(word)) if word.known_text() == Some("-") => {}
            Some(OptionValue::Next(word)) => check_readable(word, ground.folder, ground.root)?,
            None => {}
        }
    }
    seen.options.push((option, value));
    Ok(())
}

impl<'a> ParsedArguments<'a> {
    /// Whether one of these options, as the row writes them, was given.
    pub(crate) fn has_option(&self, options: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| options.contains(option))
    }

    /// The values of an option.
    pub(crate) fn option_values(&self, option: &'a str) -> impl Iterator<Item = OptionValue<'a>> {
        self.options.iter().filter(move |(name, _)| *name == option).filter_map(|(_, value)| *value)
    }

    /// Whether an operand may become several.
    pub(crate) fn has_many(&self) -> bool {
        self.operands.iter().any(|word| matches!(word.form, WordForm::Glob(_) | WordForm::Fields))
    }
}

impl<'a> OptionValue<'a> {
    /// The whole of it, if that is certain.
    pub(crate) fn known_text(self) -> Option<&'a str> {
        match self {
            Self::Attached(text) => Some(text),
            Self::Next(word) => word.known_text(),
        }
    }
}

fn not_judged(option: &str) -> String {
    format!("the option {option} is not known to be harmless")
}
