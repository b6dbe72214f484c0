//! Checks `find`, whose expression is a language of its own.
//!
//! The words behind the paths are an expression: tests (`-name`), operators (`-o`, `!`) and actions (`-print`, `-delete`). Only tests
//! and actions of two lists are accepted. `-exec` is checked by its command, with an unknown word for `{}`: find runs the command once
//! for each file, so a `{}` in the place of the program or in a script (`sh -c 'cat {}'`) is not certain. Not accepted are
//! `-delete`, `-ok` (it asks on a terminal without a user), `-fprint` and `-fls` (they write files), `-execdir` (it finds
//! programs relative to the file's folder) and `-files0-from` (the paths come from a file).

use super::ask_reason::AskReason;
use super::grammar::PathContext;
use super::path_scope::check_readable;
use super::word::{ShellWord, WordForm};

/// A command that find would run for each file, with an unknown word in the place of `{}`.
pub(crate) type ExecCommand = Vec<ShellWord>;

/// Tests and actions that take one value and have no side effects.
const VALUED: [&str; 34] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-size",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-maxdepth",
    "-mindepth",
    "-perm",
    "-user",
    "-group",
    "-newermt",
    "-links",
    "-printf",
    "-lname",
    "-ilname",
    "-inum",
    "-uid",
    "-gid",
    "-fstype",
    "-used",
    "-newerct",
];
/// Tests, actions and operators that take no value and have no side effects.
const PLAIN: [&str; 28] = [
    "-print",
    "-print0",
    "-ls",
    "-prune",
    "-empty",
    "-not",
    "!",
    "-a",
    "-and",
    "-o",
    "-or",
    "(",
    ")",
    ",",
    "-true",
    "-false",
    "-depth",
    "-mount",
    "-xdev",
    "-readable",
    "-executable",
    "-quit",
    "-nouser",
    "-nogroup",
    "-daystart",
    "-noleaf",
    "-writable",
    "-follow",
];

/// Returns the commands of all `-exec` actions, which the caller checks. The other parts of the expression only read.
///
/// # Errors
/// Returns the reason if a path, test or action is not known to only read.
///
/// An unknown word in the expression is rejected, because it may become an action: `find . $x` with `x=-delete`.
pub(crate) fn exec_commands(
    words: &[ShellWord],
    context: PathContext<'_>,
) -> Result<Vec<ExecCommand>, AskReason> {
    let mut words = words.iter().peekable();
    while words
        .next_if(|word| matches!(word.known_text(), Some("-L" | "-P" | "-H")))
        .is_some()
    {}
    while let Some(root) = words.next_if(|word| !begins_expression(word)) {
        check_readable(root, context.folder, context.root)?;
    }
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let name = word
            .known_text()
            .ok_or_else(|| format!("{} is not certain, and may be an action of find", word.raw))?;
        match name {
            "-exec" => found.push(parse_exec(&mut words)?),
            "-newer" | "-anewer" | "-cnewer" | "-samefile" => {
                let path = words.next().ok_or("find needs a file")?;
                check_readable(path, context.folder, context.root)?;
            }
            _ if PLAIN.contains(&name) => {}
            _ if VALUED.contains(&name) => {
                let value = words
                    .next()
                    .ok_or_else(|| format!("{name} needs a value"))?;
                if !matches!(value.form, WordForm::Literal | WordForm::Field(_)) {
                    return Err(
                        format!("the value of {name}, {}, is not certain", value.raw).into(),
                    );
                }
            }
            _ => return Err(format!("{name} of find is not known to only look").into()),
        }
    }
    Ok(found)
}

/// The area that `find` searches, as far as its arguments limit it.
#[derive(Debug, Default)]
pub(crate) struct SearchArea<'a> {
    /// The paths where the search starts; empty for the current folder.
    pub(crate) roots: Vec<&'a ShellWord>,
    /// A glob that every name must match; empty if there is none.
    pub(crate) names: Vec<String>,
    /// True if links are followed, so that any file of the workspace may be found.
    pub(crate) follows_links: bool,
}

impl<'a> SearchArea<'a> {
    /// Reads the area from the words behind `find`.
    pub(crate) fn parse(words: &'a [ShellWord]) -> Self {
        // `-H` follows links that are named as roots, which may lead anywhere in the workspace.
        let follows_links = words
            .iter()
            .any(|word| matches!(word.known_text(), Some("-L" | "-H" | "-follow")));
        let behind_options = words
            .iter()
            .position(|word| !matches!(word.known_text(), Some("-L" | "-P" | "-H")))
            .unwrap_or(words.len());
        let words = words.get(behind_options..).unwrap_or_default();
        let expression = words
            .iter()
            .position(begins_expression)
            .unwrap_or(words.len());
        let (roots, expression) = words.split_at_checked(expression).unwrap_or((words, &[]));
        // A test behind an action does not limit that action.
        let before_action = expression
            .iter()
            .position(|word| word.known_text() == Some("-exec"))
            .unwrap_or(expression.len());
        let tests = expression.get(..before_action).unwrap_or_default();
        // With an alternative or a negation a name test limits nothing.
        let limits = tests.iter().all(|word| {
            !matches!(
                word.known_text(),
                Some("-o" | "-or" | "!" | "-not" | "," | "(" | ")") | None
            )
        });
        let name = first_name_test(tests);
        Self {
            roots: roots.iter().collect(),
            names: name
                .filter(|_| limits)
                .map(str::to_owned)
                .into_iter()
                .collect(),
            follows_links,
        }
    }
}

/// Returns the glob of the first name test. A word such as `-name` that is the value of another test does not count.
fn first_name_test(tests: &[ShellWord]) -> Option<&str> {
    let mut words = tests.iter();
    while let Some(word) = words.next() {
        match word.known_text()? {
            "-name" | "-iname" => return words.next()?.known_text(),
            name if VALUED.contains(&name) || name.contains("newer") || name == "-samefile" => {
                words.next();
            }
            _ => {}
        }
    }
    None
}

/// Reports whether a word ends the list of paths. A word that may begin the expression counts as if it did.
fn begins_expression(word: &ShellWord) -> bool {
    word.may_be_option()
        || matches!(word.known_text(), Some("!" | "(" | ")" | ","))
        || matches!(word.form, WordForm::Odd(_))
}

/// Parses the command of an `-exec` action up to its `;` or `+`.
fn parse_exec<'a>(
    words: &mut impl Iterator<Item = &'a ShellWord>,
) -> Result<ExecCommand, AskReason> {
    let mut run = Vec::new();
    for word in words {
        match word.known_text() {
            Some(";") => return Ok(run),
            Some("+") if run.last().is_some_and(|last: &ShellWord| last.raw == "{}") => {
                return Ok(run);
            }
            // A found path begins with the path where the search started, so it is never an option.
            Some(text) if text.contains("{}") => {
                let inside = text == "{}";
                run.push(ShellWord::field("{}", "", inside, inside));
            }
            _ => run.push(word.clone()),
        }
    }
    Err("-exec without an end".into())
}
