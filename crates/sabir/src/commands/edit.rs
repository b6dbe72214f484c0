//! Implements `edit`: applies an edit, in a format that models write, from standard input to a
//! file.

use std::io::Read;
use std::path::Path;

use sabir_edit::{AppliedHunk, EditFault, EditSyntax, EditedText, MatchLevel, TextEncoding};
use sabir_workspace::{FileChange, WritePrecondition, unified_diff};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{EditArguments, EditFormat, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

mod arguments;
mod sections;
mod target;

use target::{EditTarget, LoadedFile};

/// A problem with an edit, in its printed form.
#[derive(Debug, Clone, Serialize)]
struct EditProblem {
    kind: &'static str,
    line: usize,
    message: String,
    hint: String,
    block: Option<usize>,
    lines: Vec<Value>,
    /// The problem as text for people.
    #[serde(skip)]
    words: String,
}

/// The reason why nothing is changed.
enum EditRefusal {
    /// The edit is wrong.
    Faults(Vec<EditProblem>),
    /// The file cannot be edited.
    Failure(CommandError),
}

/// The changes that an edit makes.
struct EditPlan {
    target: EditTarget,
    changes: Vec<FileChange>,
    diffs: Vec<FileDiff>,
    /// The content of the named file after the edit.
    content: String,
    hunks: Vec<AppliedHunk>,
    moved_to: Option<String>,
}

/// The text of a file before and after the edit.
struct FileDiff {
    path: String,
    old: String,
    new: String,
}

/// Runs `sabir edit`.
pub(crate) fn run_edit(arguments: &EditArguments) -> Result<ExitStatus, CommandError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| CommandError::usage(format!("standard input: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandError::usage(format!(
            "standard input: the edit is not UTF-8, byte {at} is the first that is wrong"
        ))
    })?;
    let plan = plan_edit(arguments, &text);
    let plan = match plan {
        Ok(plan) if arguments.dry_run => Ok(plan),
        Ok(plan) => write_plan(plan).map_err(EditRefusal::Failure),
        Err(refusal) => Err(refusal),
    };
    match (plan, arguments.output) {
        (Ok(plan), ReportFormat::Json) => {
            print::print_json(&json!({
                "status": "applied", "content": plan.content, "faults": [],
                "hunks": plan.hunks.iter().map(hunk_json).collect::<Vec<_>>(), "moved_to": plan.moved_to,
                "files": plan.diffs.iter().map(|shown| &shown.path).collect::<Vec<_>>(),
            }));
            Ok(ExitStatus::Completed)
        }
        (Ok(plan), ReportFormat::Text) => {
            print::write_stdout(&print::sanitize_text(&render_text(&plan)));
            Ok(ExitStatus::Completed)
        }
        (Err(EditRefusal::Faults(faults)), ReportFormat::Json) => {
            print_failure(&arguments.file, &faults);
            Ok(ExitStatus::NotUnderstood)
        }
        (Err(EditRefusal::Faults(faults)), ReportFormat::Text) => {
            faults.iter().for_each(|fault| {
                print::write_stdout(&print::sanitize_text(&format!("{}\n", fault.words)))
            });
            Ok(ExitStatus::NotUnderstood)
        }
        (Err(EditRefusal::Failure(failure)), ReportFormat::Json) => {
            print_failure(
                &arguments.file,
                &[EditProblem::new(
                    "file",
                    failure.message.clone(),
                    "nothing was changed",
                )],
            );
            Err(failure)
        }
        (Err(EditRefusal::Failure(failure)), ReportFormat::Text) => Err(failure),
    }
}

/// Determines the format of an edit and plans its changes.
fn plan_edit(arguments: &EditArguments, text: &str) -> Result<EditPlan, EditRefusal> {
    let format = match arguments.format {
        Some(EditFormat::SearchReplace) => EditSyntax::SearchReplace,
        Some(EditFormat::ApplyPatch) => EditSyntax::ApplyPatch,
        Some(EditFormat::StringReplace) => EditSyntax::StringReplace,
        Some(EditFormat::WholeFile) => EditSyntax::WholeFile,
        None if arguments::is_object(text) => EditSyntax::StringReplace,
        None => EditSyntax::detect(text).ok_or_else(|| {
            let message =
                "the text is neither SEARCH/REPLACE blocks, nor a patch, nor a JSON object";
            EditRefusal::Faults(vec![EditProblem::new(
                "no_blocks",
                message,
                "say with --format what it is",
            )])
        })?,
    };
    match format {
        EditSyntax::ApplyPatch => sections::plan_patch(&arguments.file, text),
        EditSyntax::SearchReplace => plan_one_file(&arguments.file, |old, _| {
            sabir_edit::apply_blocks(old, text).map_err(to_problems)
        }),
        EditSyntax::WholeFile => plan_one_file(&arguments.file, |old, encoding| {
            // The byte order mark belongs to the encoding, which is kept.
            let is_marked = encoding == TextEncoding::Utf8Mark;
            let content = text
                .strip_prefix('\u{feff}')
                .filter(|_| is_marked)
                .unwrap_or(text);
            sabir_edit::apply_whole(old, content).map_err(to_problems)
        }),
        EditSyntax::StringReplace => {
            let replacement = arguments::parse_replacement(text).map_err(EditRefusal::Faults)?;
            plan_one_file(&arguments.file, |old, _| {
                sabir_edit::apply_string(old, &replacement).map_err(to_problems)
            })
        }
    }
}

/// Plans an edit of one file, which may be missing if the edit creates it.
fn plan_one_file(
    file: &Path,
    apply: impl Fn(&str, TextEncoding) -> Result<EditedText, Vec<EditProblem>>,
) -> Result<EditPlan, EditRefusal> {
    let (target, path) = EditTarget::for_file(file)?;
    let held = target.read_file(&path)?;
    let (old, encoding) = held.as_ref().map_or(("", TextEncoding::Utf8), |held| {
        (&held.text.content, held.text.encoding)
    });
    let edited = apply(old, encoding).map_err(|faults| match &held {
        None => EditRefusal::Failure(CommandError::usage(format!(
            "{}: there is no such file, and the edit does not make one",
            file.display()
        ))),
        Some(_) => EditRefusal::Faults(faults),
    })?;
    let bytes = encode_content(encoding, &edited.content)?;
    let shown = FileDiff {
        path: path.to_string(),
        old: old.to_owned(),
        new: edited.content.clone(),
    };
    let change = FileChange::write(path, bytes, expected_version(held.as_ref()));
    let content = edited.content;
    let hunks = edited.hunks;
    Ok(EditPlan {
        target,
        changes: vec![change],
        diffs: vec![shown],
        content,
        hunks,
        moved_to: None,
    })
}

/// Returns the precondition under which the file is written: unchanged since it was read.
fn expected_version(held: Option<&LoadedFile>) -> WritePrecondition {
    held.map_or(WritePrecondition::Missing, |held| {
        WritePrecondition::Version(held.version)
    })
}

/// Encodes the new content in the file's own encoding.
fn encode_content(encoding: TextEncoding, content: &str) -> Result<Vec<u8>, EditRefusal> {
    encoding.encode(content).map_err(|error| {
        let hint = "use characters that the file's encoding has, or write the file anew";
        EditRefusal::Faults(vec![EditProblem::new(
            "not_in_encoding",
            error.to_string(),
            hint,
        )])
    })
}

/// Writes the changes of a plan.
fn write_plan(plan: EditPlan) -> Result<EditPlan, CommandError> {
    // Several files change together or not at all; one file is written directly.
    let written = match plan.changes.as_slice() {
        [
            FileChange {
                path,
                expect,
                content: Some(bytes),
                like: None,
            },
        ] => plan
            .target
            .workspace
            .write_file(path, bytes, *expect)
            .map(drop),
        changes => plan.target.workspace.apply_changes(changes).map(drop),
    };
    written.map_err(|error| CommandError::usage(error.to_string()))?;
    Ok(plan)
}

/// Prints the problems as JSON, with the unchanged content of the file.
fn print_failure(file: &Path, faults: &[EditProblem]) {
    let held = EditTarget::for_file(file).and_then(|(target, path)| target.read_file(&path));
    let content = held
        .ok()
        .flatten()
        .map(|held| held.text.content)
        .unwrap_or_default();
    print::print_json(&json!({"status": "failed", "content": content, "faults": faults}));
}

/// Renders the changes as a unified diff, with notes about hunks that did not match exactly.
fn render_text(plan: &EditPlan) -> String {
    let mut words: String = plan
        .diffs
        .iter()
        .map(|shown| unified_diff(&shown.old, &shown.new, &shown.path))
        .collect();
    for hunk in plan
        .hunks
        .iter()
        .filter(|hunk| hunk.level != MatchLevel::Exact)
    {
        let how = match hunk.level {
            MatchLevel::Shifted => "with other indentation, which the new lines were given",
            _ => "with other blanks at the ends of lines, or other quotes, dashes or spaces",
        };
        words.push_str(&format!(
            "[{} was found in line {} {how}.]\n",
            hunk.block, hunk.old_line
        ));
    }
    words
}

fn hunk_json(hunk: &AppliedHunk) -> Value {
    let level = match hunk.level {
        MatchLevel::Exact => "exact",
        MatchLevel::Normalised => "normalised",
        MatchLevel::Shifted => "shifted",
    };
    json!({
        "block": hunk.block, "level": level, "old_line": hunk.old_line, "old_lines": hunk.old_lines,
        "new_line": hunk.new_line, "new_lines": hunk.new_lines,
    })
}

/// Converts the faults of an edit into their printed form.
fn to_problems(faults: Vec<EditFault>) -> Vec<EditProblem> {
    faults
        .into_iter()
        .map(|fault| EditProblem {
            kind: fault.kind.name(),
            line: fault.line,
            words: fault.to_string(),
            lines: fault
                .lines
                .iter()
                .map(|line| json!({"number": line.number, "text": line.text}))
                .collect(),
            block: fault.block,
            hint: fault.hint.to_owned(),
            message: fault.message,
        })
        .collect()
}

impl EditProblem {
    /// Creates a problem of the edit as a whole.
    fn new(kind: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let message: String = message.into();
        let hint: String = hint.into();
        let words = format!("{message}; {hint}.");
        Self {
            kind,
            line: 1,
            message,
            hint,
            block: None,
            lines: Vec::new(),
            words,
        }
    }

    /// Sets the line of the patch that has the problem.
    fn at_line(mut self, line: usize) -> Self {
        self.words = format!("line {line} of the patch: {}", self.words);
        self.line = line;
        self
    }
}
