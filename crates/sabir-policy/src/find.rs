//! Judges `find`, whose expression is a language of its own.

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

/// Returns the commands of all `-exec` actions; the caller judges them. Everything else of the expression only reads.
///
/// # Errors
/// Returns the reason if a path, test or action is not known to only read.
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
