//! find: its expression is a language of its own.

use super::grammar::Ground;
use super::place::readable;
use super::word::{Form, Word};

/// A command that find would run for what it finds, the name in the place of `{}`.
pub(crate) type Run = Vec<Word>;

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
pub(crate) fn runs(words: &[Word], ground: Ground<'_>) -> Result<Vec<Run>, String> {
    let mut words = words.iter().peekable();
    while words.next_if(|word| matches!(word.known(), Some("-L" | "-P" | "-H"))).is_some() {}
    while let Some(root) = words.next_if(|word| !begins_expression(word)) {
        readable(root, ground.folder, ground.root)?;
    }
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let name = word.known().ok_or_else(|| format!("{} is not certain, and may be an action of find", word.raw))?;
        match name {
            "-exec" => found.push(command(&mut words)?),
            "-newer" | "-anewer" | "-cnewer" | "-samefile" => {
                let path = words.next().ok_or("find needs a file")?;
                readable(path, ground.folder, ground.root)?;
            }
            _ if PLAIN.contains(&name) => {}
            _ if VALUED.contains(&name) => {
                let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
                if !matches!(value.form, Form::Literal | Form::Field(_)) {
                    return Err(format!("the value of {name}, {}, is not certain", value.raw));
                }
            }
            _ => return Err(format!("{name} of find is not known to only look")),
        }
    }
    Ok(found)
}

/// Where the paths end. What might turn out to begin the expression does.
fn begins_expression(word: &Word) -> bool {
    word.may_be_option() || matches!(word.known(), Some("!" | "(" | ")" | ",")) || matches!(word.form, Form::Odd(_))
}

fn command<'a>(words: &mut impl Iterator<Item = &'a Word>) -> Result<Run, String> {
    let mut run = Vec::new();
    for word in words {
        match word.known() {
            Some(";") => return Ok(run),
            Some("+") if run.last().is_some_and(|last: &Word| last.raw == "{}") => return Ok(run),
            // What is found begins with the path where the search began, which is no option.
            Some(text) if text.contains("{}") => {
                let inside = text == "{}";
                run.push(Word::field("{}", "", inside, inside));
            }
            _ => run.push(word.clone()),
        }
    }
    Err("-exec without an end".to_owned())
}
