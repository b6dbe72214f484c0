//! find: its expression is a language of its own.

use super::grammar::PathContext;
use super::path_scope::check_readable;
use super::word::{ShellWord, WordForm};

/// A command that find would run for what it finds, the name in the place of `{}`.
pub(crate) type ExecCommand = Vec<ShellWord>;

/// Tests and actions that take a value and have no effect, then those that take none.
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

/// The commands that find would run; everything else of it only looks.
///
/// # Errors
/// What is not judged.
pub(crate) fn exec_commands(words: &[ShellWord], ground: PathContext<'_>) -> Result<Vec<ExecCommand>, String> {
    let mut words = words.iter().peekable();
    while words.next_if(|word| matches!(word.known_text(), Some("-L" | "-P" | "-H"))).is_some() {}
    while let Some(root) = words.next_if(|word| !begins_expression(word)) {
        check_readable(root, ground.folder, ground.root)?;
    }
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let name =
            word.known_text().ok_or_else(|| format!("{} is not certain, and may be an action of find", word.raw))?;
        match name {
            "-exec" => found.push(parse_exec(&mut words)?),
            "-newer" | "-anewer" | "-cnewer" | "-samefile" => {
                let path = words.next().ok_or("find needs a file")?;
                check_readable(path, ground.folder, ground.root)?;
            }
            _ if PLAIN.contains(&name) => {}
            _ if VALUED.contains(&name) => {
                let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
                if !matches!(value.form, WordForm::Literal | WordForm::Field(_)) {
                    return Err(format!("the value of {name}, {}, is not certain", value.raw));
                }
            }
            _ => return Err(format!("{name} of find is not known to only look")),
        }
    }
    Ok(found)
}

/// Where the paths end. What might turn out to begin the expression does.
fn begins_expression(word: &ShellWord) -> bool {
    word.may_be_option()
        || matches!(word.known_text(), Some("!" | "(" | ")" | ","))
        || matches!(word.form, WordForm::Odd(_))
}

fn parse_exec<'a>(words: &mut impl Iterator<Item = &'a ShellWord>) -> Result<ExecCommand, String> {
    let mut run = Vec::new();
    for word in words {
        match word.known_text() {
            Some(";") => return Ok(run),
            Some("+") if run.last().is_some_and(|last: &ShellWord| last.raw == "{}") => return Ok(run),
            // What is found begins with the path where the search began, which is no option.
            Some(text) if text.contains("{}") => {
                let inside = text == "{}";
                run.push(ShellWord::field("{}", "", inside, inside));
            }
            _ => run.push(word.clone()),
        }
    }
    Err("-exec without an end".to_owned())
}
