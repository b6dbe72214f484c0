//! `edit`: an edit as a model writes it, from standard input, applied to a file.

use std::io::Read;
use std::path::Path;

use sabir_edit::{EditFault, Edited, Encoding, Format, Hunk, Level};
use sabir_workspace::{Change, Expect, unified};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{EditArguments, EditFormat, Whole};
use crate::exit::{Exit, Failure};
use crate::print;

mod arguments;
mod sections;
mod target;

use target::{Held, Target};

/// One thing that is wrong with an edit, as it is printed.
#[derive(Debug, Clone, Serialize)]
struct Fault {
    kind: &'static str,
    line: usize,
    message: String,
    hint: String,
    block: Option<usize>,
    lines: Vec<Value>,
    /// As people read it.
    #[serde(skip)]
    words: String,
}

/// Why nothing is changed: what is wrong with the edit, or with the file.
enum Refusal {
    Faults(Vec<Fault>),
    Failure(Failure),
}

/// What an edit makes of files.
struct Plan {
    target: Target,
    changes: Vec<Change>,
    shown: Vec<Shown>,
    /// What the file that was named holds afterwards.
    content: String,
    hunks: Vec<Hunk>,
    moved_to: Option<String>,
}

/// A file before and after.
struct Shown {
    path: String,
    old: String,
    new: String,
}

/// `sabir edit`.
pub(crate) fn edit(arguments: &EditArguments) -> Result<Exit, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("standard input: the edit is not UTF-8, byte {at} is the first that is wrong"))
    })?;
    let plan = plan(arguments, &text);
    let plan = match plan {
        Ok(plan) if arguments.dry_run => Ok(plan),
        Ok(plan) => write(plan).map_err(Refusal::Failure),
        Err(refusal) => Err(refusal),
    };
    match (plan, arguments.output) {
        (Ok(plan), Whole::Json) => {
            print::json(&json!({
                "status": "applied", "content": plan.content, "faults": [],
                "hunks": plan.hunks.iter().map(hunk).collect::<Vec<_>>(), "moved_to": plan.moved_to,
                "files": plan.shown.iter().map(|shown| &shown.path).collect::<Vec<_>>(),
            }));
            Ok(Exit::Completed)
        }
        (Ok(plan), Whole::Text) => {
            print::out(&print::visible(&in_words(&plan)));
            Ok(Exit::Completed)
        }
        (Err(Refusal::Faults(faults)), Whole::Json) => {
            failed(&arguments.file, &faults);
            Ok(Exit::NotUnderstood)
        }
        (Err(Refusal::Faults(faults)), Whole::Text) => {
            faults.iter().for_each(|fault| print::out(&print::visible(&format!("{}\n", fault.words))));
            Ok(Exit::NotUnderstood)
        }
        (Err(Refusal::Failure(failure)), Whole::Json) => {
            failed(&arguments.file, &[Fault::new("file", failure.message.clone(), "nothing was changed")]);
            Err(failure)
        }
        (Err(Refusal::Failure(failure)), Whole::Text) => Err(failure),
    }
}

fn plan(arguments: &EditArguments, text: &str) -> Result<Plan, Refusal> {
    let format = match arguments.format {
        Some(EditFormat::SearchReplace) => Format::SearchReplace,
        Some(EditFormat::ApplyPatch) => Format::ApplyPatch,
        Some(EditFormat::StringReplace) => Format::StringReplace,
        Some(EditFormat::WholeFile) => Format::WholeFile,
        None if arguments::is_object(text) => Format::StringReplace,
        None => Format::of(text).ok_or_else(|| {
            let message = "the text is neither SEARCH/REPLACE blocks, nor a patch, nor a JSON object";
            Refusal::Faults(vec![Fault::new("no_blocks", message, "say with --format what it is")])
        })?,
    };
    match format {
        Format::ApplyPatch => sections::plan(&arguments.file, text),
        Format::SearchReplace => {
            one_file(&arguments.file, |old, _| sabir_edit::apply_blocks(old, text).map_err(faults))
        }
        Format::WholeFile => one_file(&arguments.file, |old, encoding| {
            // The mark belongs to the encoding, which is kept.
            let is_marked = encoding == Encoding::Utf8Mark;
            let content = text.strip_prefix('\u{feff}').filter(|_| is_marked).unwrap_or(text);
            sabir_edit::apply_whole(old, content).map_err(faults)
        }),
        Format::StringReplace => {
            let replacement = arguments::replacement(text).map_err(Refusal::Faults)?;
            one_file(&arguments.file, |old, _| sabir_edit::apply_string(old, &replacement).map_err(faults))
        }
    }
}

/// An edit of one file, which may be missing where the edit makes it.
fn one_file(file: &Path, apply: impl Fn(&str, Encoding) -> Result<Edited, Vec<Fault>>) -> Result<Plan, Refusal> {
    let (target, path) = Target::of_file(file)?;
    let held = target.read(&path)?;
    let (old, encoding) = held.as_ref().map_or(("", Encoding::Utf8), |held| (&held.text.content, held.text.encoding));
    let edited = apply(old, encoding).map_err(|faults| match &held {
        None => Refusal::Failure(Failure::usage(format!(
            "{}: there is no such file, and the edit does not make one",
            file.display()
        ))),
        Some(_) => Refusal::Faults(faults),
    })?;
    let bytes = encoded(encoding, &edited.content)?;
    let shown = Shown { path: path.to_string(), old: old.to_owned(), new: edited.content.clone() };
    let change = Change::write(path, bytes, expected(held.as_ref()));
    let (content, hunks) = (edited.content, edited.hunks);
    Ok(Plan { target, changes: vec![change], shown: vec![shown], content, hunks, moved_to: None })
}

fn expected(held: Option<&Held>) -> Expect {
    held.map_or(Expect::Missing, |held| Expect::Version(held.version))
}

fn encoded(encoding: Encoding, content: &str) -> Result<Vec<u8>, Refusal> {
    encoding.encode(content).map_err(|error| {
        let hint = "use characters that the file's encoding has, or write the file anew";
        Refusal::Faults(vec![Fault::new("not_in_encoding", error.to_string(), hint)])
    })
}

fn write(plan: Plan) -> Result<Plan, Failure> {
    // One file is written as it was read, several are changed together or not at all.
    let written = match plan.changes.as_slice() {
        [Change { path, expect, content: Some(bytes), like: None }] => {
            plan.target.workspace.write(path, bytes, *expect).map(drop)
        }
        changes => plan.target.workspace.apply(changes).map(drop),
    };
    written.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(plan)
}

fn failed(file: &Path, faults: &[Fault]) {
    let held = Target::of_file(file).and_then(|(target, path)| target.read(&path));
    let content = held.ok().flatten().map(|held| held.text.content).unwrap_or_default();
    print::json(&json!({"status": "failed", "content": content, "faults": faults}));
}

fn in_words(plan: &Plan) -> String {
    let mut words: String = plan.shown.iter().map(|shown| unified(&shown.old, &shown.new, &shown.path)).collect();
    for hunk in plan.hunks.iter().filter(|hunk| hunk.level != Level::Exact) {
        let how = match hunk.level {
            Level::Shifted => "with other indentation, which the new lines were given",
            _ => "with other blanks at the ends of lines, or other quotes, dashes or spaces",
        };
        words.push_str(&format!("[{} was found in line {} {how}.]\n", hunk.block, hunk.old_line));
    }
    words
}

fn hunk(hunk: &Hunk) -> Value {
    let level = match hunk.level {
        Level::Exact => "exact",
        Level::Normalised => "normalised",
        Level::Shifted => "shifted",
    };
    json!({
        "block": hunk.block, "level": level, "old_line": hunk.old_line, "old_lines": hunk.old_lines,
        "new_line": hunk.new_line, "new_lines": hunk.new_lines,
    })
}

fn faults(faults: Vec<EditFault>) -> Vec<Fault> {
    faults
        .into_iter()
        .map(|fault| Fault {
            kind: fault.kind.name(),
            line: fault.line,
            words: fault.to_string(),
            lines: fault.lines.iter().map(|line| json!({"number": line.number, "text": line.text})).collect(),
            block: fault.block,
            hint: fault.hint.to_owned(),
            message: fault.message,
        })
        .collect()
}

impl Fault {
    /// A fault about the edit as a whole.
    fn new(kind: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), hint.into());
        let words = format!("{message}; {hint}.");
        Self { kind, line: 1, message, hint, block: None, lines: Vec::new(), words }
    }

    /// The same fault about a line.
    fn at(mut self, line: usize) -> Self {
        self.words = format!("line {line} of the patch: {}", self.words);
        self.line = line;
        self
    }
}
