//! Grammars: tables of the arguments that are allowed for each program.
//!
//! A row lists the options that only affect what is printed. Any other word that begins with `-` is rejected, and so is a word
//! that might expand to one. The options are written in one string, separated by blanks:
//!
//! | written | means |
//! | --- | --- |
//! | `-a`, `--all` | an option without a value |
//! | `-n=`, `--lines=` | with a value, attached or the next word |
//! | `-f=@` | with a value that is a path to be read |
//! | `--color=?` | with an optional value, only if attached by `=` (a short option: directly attached) |
//! | `--arg==` | with two values, the next words |
//! | `-#` | a number as an option: `-5` |

use super::ask_reason::AskReason;
use super::path_scope::{FolderScope, check_readable};
use super::word::{ShellWord, WordForm};

/// The meaning of a program's operands.
///
/// `Text` operands are never opened, so they may be anything that stays one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandKind {
    /// No operands are allowed.
    Nothing,
    /// Words that are not paths.
    Text,
    /// Paths to read.
    Paths,
    /// At most this many paths. With more of them, the program does something else, such as writing a file.
    AtMost(usize),
    /// This many words, such as a pattern or script, and then paths.
    Then(usize),
}

/// Options that give the pattern or script, so that all operands are paths.
pub(crate) const PATTERN_OPTIONS: [&str; 5] =
    ["-e=", "-f=@", "--regexp=", "--expression=", "--file=@"];

/// An additional check of a command's arguments.
type ArgumentCheck = fn(&ParsedArguments<'_>) -> Result<(), AskReason>;

/// A program or subcommand, with its allowed arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramGrammar {
    /// The names that share this grammar.
    pub(crate) names: &'static [&'static str],
    /// The allowed options, in the notation of the module.
    pub(crate) options: &'static str,
    pub(crate) operands: OperandKind,
    /// True if no option of the program has a side effect, so that a word may expand to one.
    pub(crate) options_harmless: bool,
    /// True if short options cannot be combined: the program ignores the characters after the first letter.
    pub(crate) no_clusters: bool,
    /// True if the row allows only printing the version: then it does not show that the program has no other effects.
    version_only: bool,
    /// A check that the table cannot express.
    pub(crate) extra_check: Option<ArgumentCheck>,
}

/// The arguments of a command, separated into options and operands.
#[derive(Debug, Default)]
pub(crate) struct ParsedArguments<'a> {
    /// The options, in the notation of the grammar, with their values.
    pub(crate) options: Vec<(&'a str, Option<OptionValue<'a>>)>,
    pub(crate) operands: Vec<&'a ShellWord>,
    /// True if an option follows an operand. Some programs take it for another operand.
    pub(crate) option_after_operand: bool,
}

/// The value of an option.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OptionValue<'a> {
    /// A value attached to the option: `--lines=5`, `-n5`.
    Attached(&'a str),
    /// The following word.
    Next(&'a ShellWord),
}

/// The location from which paths are resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathContext<'a> {
    /// The current folder.
    pub(crate) folder: &'a FolderScope,
    /// The absolute path of the workspace; empty if it is not known.
    pub(crate) root: &'a str,
}

/// The way in which an option takes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueStyle {
    Nothing,
    Text,
    Path,
    Attached,
    Two,
}

impl ProgramGrammar {
    /// Returns a row in which only the listed options are allowed, in any order and cluster.
    pub(crate) const fn new(
        names: &'static [&'static str],
        options: &'static str,
        operands: OperandKind,
    ) -> Self {
        Self {
            names,
            options,
            operands,
            options_harmless: false,
            no_clusters: false,
            version_only: false,
            extra_check: None,
        }
    }

    /// Marks that no option at all has a side effect.
    pub(crate) const fn with_harmless_options(self) -> Self {
        Self {
            options_harmless: true,
            ..self
        }
    }

    /// Marks that short options cannot be combined.
    pub(crate) const fn without_clusters(self) -> Self {
        Self {
            no_clusters: true,
            ..self
        }
    }

    /// Marks that the row only lets the program tell its version.
    pub(crate) const fn for_version_only(self) -> Self {
        Self {
            version_only: true,
            ..self
        }
    }

    /// Reports whether the row only lets the program tell its version.
    pub(crate) fn is_version_only(&self) -> bool {
        self.version_only
    }

    /// Adds a check that the table cannot express.
    pub(crate) const fn with_check(self, check: ArgumentCheck) -> Self {
        Self {
            extra_check: Some(check),
            ..self
        }
    }

    /// Checks that all arguments are allowed.
    ///
    /// # Errors
    /// Returns the reason why an argument is not known to be harmless.
    ///
    /// The order matters: options are separated first, because an option may take the word that looks like an operand; then operands are
    /// checked as paths; the row's own check sees the result of both.
    pub(crate) fn check_arguments(
        &self,
        words: &[ShellWord],
        context: PathContext<'_>,
    ) -> Result<(), AskReason> {
        let seen = self.parse_arguments(words, context)?;
        self.check_operands(&seen, context)?;
        self.extra_check.map_or(Ok(()), |check| check(&seen))
    }

    /// Reports whether an option takes the next word as its value.
    pub(crate) fn takes_next(&self, option: &str) -> bool {
        let takes = |name: &str| {
            self.find_option(name)
                .is_some_and(|(_, takes)| matches!(takes, ValueStyle::Text | ValueStyle::Path))
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

    /// Separates options from operands.
    ///
    /// # Errors
    /// Returns the reason for an option that the grammar does not list, or a word that may expand to an option.
    pub(crate) fn parse_arguments<'a>(
        &self,
        words: &'a [ShellWord],
        context: PathContext<'_>,
    ) -> Result<ParsedArguments<'a>, AskReason> {
        let mut seen = ParsedArguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let WordForm::Odd(odd) = word.form {
                return Err(format!("{} holds {odd}", word.raw).into());
            }
            // BSD programs stop to look for options at the first operand.
            seen.option_after_operand |= !seen.operands.is_empty() && word.may_be_option();
            match word.known_text() {
                // xxd takes `--` for its input file and would write to the operand that follows.
                Some("--") if matches!(self.operands, OperandKind::AtMost(_)) => {
                    return Err(unknown_option("--"));
                }
                Some("--") => {
                    for word in words.by_ref() {
                        match word.form {
                            WordForm::Odd(odd) => {
                                return Err(format!("{} holds {odd}", word.raw).into());
                            }
                            _ => seen.operands.push(word),
                        }
                    }
                }
                // A program that only prints its words also prints unknown options: `echo ---`.
                Some(_) if self.options_harmless && self.operands == OperandKind::Text => {
                    seen.operands.push(word)
                }
                Some(text) if text.len() > 1 && text.starts_with("--") => {
                    self.parse_long_option(text, &mut words, &mut seen, context)?
                }
                Some(text) if text.len() > 1 && text.starts_with('-') => {
                    self.parse_short_options(text, &mut words, &mut seen, context)?;
                }
                None if word.may_be_option() && !self.options_harmless => {
                    seen.options.push(self.parse_uncertain_option(word)?)
                }
                _ => seen.operands.push(word),
            }
        }
        Ok(seen)
    }

    /// Parses a word that begins like an option and ends with something unknown.
    fn parse_uncertain_option<'a>(
        &self,
        word: &'a ShellWord,
    ) -> Result<(&'static str, Option<OptionValue<'a>>), AskReason> {
        let name = word
            .known_prefix()
            .split_once('=')
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("--"));
        match name.and_then(|name| self.find_option(name)) {
            Some((option, ValueStyle::Text | ValueStyle::Attached))
                if word.form != WordForm::Fields =>
            {
                Ok((option, Some(OptionValue::Next(word))))
            }
            _ => Err(format!("{} may turn out to be an option", word.raw).into()),
        }
    }

    /// Parses `--name`, `--name=value` or `--name value`.
    fn parse_long_option<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, ShellWord>,
        seen: &mut ParsedArguments<'a>,
        context: PathContext<'_>,
    ) -> Result<(), AskReason> {
        let (name, attached) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        let (option, takes) = self.find_option(name).ok_or_else(|| unknown_option(name))?;
        let value = match (takes, attached) {
            (ValueStyle::Nothing, Some(_)) => return Err(unknown_option(text)),
            (ValueStyle::Nothing | ValueStyle::Attached, None) => None,
            // Only the second of two values is kept; no check needs the first.
            (ValueStyle::Two, _) => {
                self.next_value(name, words)?;
                Some(self.next_value(name, words)?)
            }
            (_, Some(value)) => Some(OptionValue::Attached(value)),
            (_, None) => Some(self.next_value(name, words)?),
        };
        record_option(option, takes, value, seen, context)
    }

    /// Parses a word of one or more short options: `-l`, `-la`, `-n5`.
    fn parse_short_options<'a>(
        &self,
        text: &'a str,
        words: &mut std::slice::Iter<'a, ShellWord>,
        seen: &mut ParsedArguments<'a>,
        context: PathContext<'_>,
    ) -> Result<(), AskReason> {
        // A long name with one dash (`-version`) is one option, not a cluster of letters.
        if let Some((option, ValueStyle::Nothing)) =
            self.find_option(text).filter(|_| text.len() > 2)
        {
            seen.options.push((option, None));
            return Ok(());
        }
        // `head -5` and `grep -3` take a number as an option.
        let digits = text.get(1..).unwrap_or_default();
        if digits.bytes().all(|byte| byte.is_ascii_digit()) && self.find_option("-#").is_some() {
            return Ok(());
        }
        let behind = digits.get(1..).unwrap_or_default();
        // Such a program ignores the characters after the first letter, so only a number may
        // follow.
        if self.no_clusters && !behind.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(unknown_option(text));
        }
        let mut rest = digits;
        while let Some(letter) = rest.chars().next() {
            let mut name = String::from("-");
            name.push(letter);
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            let (option, takes) = self
                .find_option(&name)
                .ok_or_else(|| unknown_option(&name))?;
            let value = match takes {
                ValueStyle::Nothing => None,
                ValueStyle::Attached => (!rest.is_empty()).then_some(OptionValue::Attached(rest)),
                ValueStyle::Two => return Err(unknown_option(&name)),
                _ if rest.is_empty() => Some(self.next_value(&name, words)?),
                _ => Some(OptionValue::Attached(rest)),
            };
            record_option(option, takes, value, seen, context)?;
            if takes != ValueStyle::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next word as the value of an option. It must be certain that it stays one word.
    fn next_value<'a>(
        &self,
        name: &str,
        words: &mut std::slice::Iter<'a, ShellWord>,
    ) -> Result<OptionValue<'a>, AskReason> {
        let word = words
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        // In another version of the program the option may have no value, so the word must not be
        // an option either.
        let number = word
            .text
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if word.may_be_option() && !self.options_harmless && word.text.len() > 1 && !number {
            return Err(format!("{}, the value of {name}, may be an option", word.raw).into());
        }
        match word.form {
            WordForm::Literal | WordForm::Field(_) => Ok(OptionValue::Next(word)),
            WordForm::Glob(_) if self.options_harmless => Ok(OptionValue::Next(word)),
            _ => Err(format!("the value of {name}, {}, is not certain", word.raw).into()),
        }
    }

    /// Finds an option by its name, and returns it as the grammar writes it, with the way in which it takes values.
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

    /// Returns the operands that are paths, without the pattern or script in front of them.
    pub(crate) fn path_operands<'s, 'a>(
        &self,
        seen: &'s ParsedArguments<'a>,
    ) -> &'s [&'a ShellWord] {
        let texts = match self.operands {
            OperandKind::Text | OperandKind::Nothing => seen.operands.len(),
            OperandKind::Paths | OperandKind::AtMost(_) => 0,
            OperandKind::Then(_) if seen.has_option(&PATTERN_OPTIONS) => 0,
            // A word that expands to several shifts the others, so the first may be a path as well.
            OperandKind::Then(_) if seen.has_many() => 0,
            OperandKind::Then(count) => count,
        };
        seen.operands.get(texts..).unwrap_or_default()
    }

    /// Checks the operands: paths must be readable, and words must be certain enough.
    fn check_operands(
        &self,
        seen: &ParsedArguments<'_>,
        context: PathContext<'_>,
    ) -> Result<(), AskReason> {
        let first = match self.operands {
            OperandKind::Text => return self.check_texts(&seen.operands),
            OperandKind::Nothing => match seen.operands.first() {
                Some(word) => {
                    return Err(format!(
                        "{} is not understood, so the command needs an approval",
                        word.raw
                    )
                    .into());
                }
                None => return Ok(()),
            },
            OperandKind::Paths => 0,
            OperandKind::AtMost(most) if seen.operands.len() > most || seen.has_many() => {
                return Err(format!("more than {most} operands are not understood").into());
            }
            OperandKind::AtMost(_) => 0,
            // With a pattern given by an option, all operands are paths.
            OperandKind::Then(_) if seen.has_option(&PATTERN_OPTIONS) => 0,
            OperandKind::Then(count) => count,
        };
        let (texts, paths) = seen
            .operands
            .split_at_checked(first)
            .unwrap_or((&seen.operands, &[]));
        self.check_texts(texts)?;
        // A word that expands to several shifts the operands behind it, so a word in the position
        // of a text may be read as a path. It is checked as both.
        if let Some(word) = texts
            .iter()
            .find(|word| matches!(word.form, WordForm::Glob(_) | WordForm::Fields))
        {
            check_readable(word, context.folder, context.root)?;
        }
        let stdin = |word: &&&ShellWord| word.known_text() != Some("-");
        paths
            .iter()
            .filter(stdin)
            .try_for_each(|word| check_readable(word, context.folder, context.root))
    }

    /// Checks that the number of words is certain, unless no option could do harm.
    fn check_texts(&self, words: &[&ShellWord]) -> Result<(), AskReason> {
        match words
            .iter()
            .find(|word| word.form == WordForm::Fields && !self.options_harmless)
        {
            Some(word) => Err(format!("what {} becomes is not known", word.raw).into()),
            None => Ok(()),
        }
    }
}

/// Records an option, after checking that a value that is a path may be read.
fn record_option<'a>(
    option: &'static str,
    takes: ValueStyle,
    value: Option<OptionValue<'a>>,
    seen: &mut ParsedArguments<'a>,
    context: PathContext<'_>,
) -> Result<(), AskReason> {
    if takes == ValueStyle::Path {
        match value {
            Some(OptionValue::Attached(path)) => {
                check_readable(&ShellWord::literal(path), context.folder, context.root)?
            }
            Some(OptionValue::Next(word)) if word.known_text() == Some("-") => {}
            Some(OptionValue::Next(word)) => check_readable(word, context.folder, context.root)?,
            None => {}
        }
    }
    seen.options.push((option, value));
    Ok(())
}

impl<'a> ParsedArguments<'a> {
    /// Reports whether one of these options was given; they are written as in the grammar.
    pub(crate) fn has_option(&self, options: &[&str]) -> bool {
        self.options
            .iter()
            .any(|(option, _)| options.contains(option))
    }

    /// Iterates over the values of an option; it is written as in the grammar.
    pub(crate) fn option_values(&self, option: &'a str) -> impl Iterator<Item = OptionValue<'a>> {
        self.options
            .iter()
            .filter(move |(name, _)| *name == option)
            .filter_map(|(_, value)| *value)
    }

    /// Reports whether an operand may expand to several words.
    pub(crate) fn has_many(&self) -> bool {
        self.operands
            .iter()
            .any(|word| matches!(word.form, WordForm::Glob(_) | WordForm::Fields))
    }
}

impl<'a> OptionValue<'a> {
    /// Returns the value if it is certain.
    pub(crate) fn known_text(self) -> Option<&'a str> {
        match self {
            Self::Attached(text) => Some(text),
            Self::Next(word) => word.known_text(),
        }
    }
}

impl OptionValue<'_> {
    /// Returns the value of an option that takes a glob. Unquoted (`--include=*.rs`) the word is a pattern for the shell, too,
    /// which only a file with the option in its name could match.
    pub(crate) fn glob_text(self) -> Option<String> {
        match self {
            Self::Attached(text) => Some(text.to_owned()),
            Self::Next(word) => match word.form {
                WordForm::Literal => Some(word.text.clone()),
                WordForm::Glob(_) => Some(word.text.split_once('=')?.1.to_owned()),
                _ => None,
            },
        }
    }
}

/// The reason for an option that the grammar does not list.
fn unknown_option(option: &str) -> AskReason {
    format!("the option {option} may do more than read").into()
}
