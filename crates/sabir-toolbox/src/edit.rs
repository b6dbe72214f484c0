//! Applies edits in the formats that models write, to a text or to files on disk: the command `edit`.
//!
//! [`edit_text`] is pure. With the feature `files`, [`edit_file`] reads the file, checks before writing that nobody changed it
//! meanwhile, and changes the several files of a patch together or not at all.

use std::io::{self, Write};

use sabir_edit::{
    AppliedHunk, EditFault, EditSyntax, EditedText, FileAction, MatchLevel, Patch,
    StringReplacement, TextEncoding,
};
use serde::Serialize;

use crate::report::Report;

#[cfg(feature = "files")]
mod file_edit;
#[cfg(feature = "files")]
mod patch_plan;
mod string_arguments;
#[cfg(feature = "files")]
mod target;

#[cfg(feature = "files")]
pub use file_edit::{EditError, EditOptions, FileError, edit_file, failed_edit};

/// A problem with an edit, in its public form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EditProblem {
    /// The name of the kind.
    pub kind: &'static str,
    /// The line of the edit, counted from 1; always 1 where lines have no meaning.
    pub line: usize,
    /// The problem, in one sentence without its full stop.
    pub message: String,
    /// The advice, in the same form.
    pub hint: String,
    /// The number of the block or hunk, counted from 1.
    pub block: Option<usize>,
    /// Lines of the edited text that help to find the place.
    pub lines: Vec<NearLine>,
    /// The problem as text for people.
    #[serde(skip)]
    pub words: String,
}

/// A line of the edited text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearLine {
    /// The line number, counted from 1.
    pub number: usize,
    /// The line without its ending.
    pub text: String,
}

impl EditProblem {
    /// Creates a problem of the edit as a whole.
    pub(crate) fn new(
        kind: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
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
    #[cfg(feature = "files")]
    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.words = format!("line {line} of the patch: {}", self.words);
        self.line = line;
        self
    }
}

impl From<EditFault> for EditProblem {
    fn from(fault: EditFault) -> Self {
        Self {
            kind: fault.kind.name(),
            line: fault.line,
            words: fault.to_string(),
            lines: fault
                .lines
                .iter()
                .map(|line| NearLine {
                    number: line.number,
                    text: line.text.clone(),
                })
                .collect(),
            block: fault.block,
            hint: fault.hint.to_owned(),
            message: fault.message,
        }
    }
}

/// Converts the faults of an edit into their public form.
pub(crate) fn to_problems(faults: Vec<EditFault>) -> Vec<EditProblem> {
    faults.into_iter().map(EditProblem::from).collect()
}

/// An edit whose format is known.
pub(crate) enum ParsedEdit<'e> {
    /// SEARCH/REPLACE blocks, which are parsed when they are applied.
    Blocks(&'e str),
    /// A patch of one or several files.
    Patch(Patch),
    /// One text replaced by another.
    Replacement(StringReplacement),
    /// The whole new content.
    Whole(&'e str),
}

impl<'e> ParsedEdit<'e> {
    /// Determines the format of an edit, unless it is given, and parses it.
    pub(crate) fn parse(
        edit: &'e str,
        format: Option<EditSyntax>,
    ) -> Result<Self, Vec<EditProblem>> {
        let format = match format {
            Some(format) => format,
            // Asked first: the strings of an object may hold markers of the other formats.
            None if string_arguments::is_object(edit) => EditSyntax::StringReplace,
            None => EditSyntax::detect(edit).ok_or_else(|| {
                vec![EditProblem::new(
                    "no_blocks",
                    "the text is neither SEARCH/REPLACE blocks, nor a patch, nor a JSON object",
                    "say with --format what it is",
                )]
            })?,
        };
        Ok(match format {
            EditSyntax::SearchReplace => Self::Blocks(edit),
            EditSyntax::ApplyPatch => Self::Patch(Patch::parse(edit).map_err(to_problems)?),
            EditSyntax::StringReplace => {
                Self::Replacement(string_arguments::parse_replacement(edit)?)
            }
            EditSyntax::WholeFile => Self::Whole(edit),
        })
    }

    /// Applies the edit to one text, which has this encoding on disk.
    pub(crate) fn apply(
        &self,
        old: &str,
        encoding: TextEncoding,
    ) -> Result<EditedText, Vec<EditProblem>> {
        match self {
            Self::Blocks(blocks) => sabir_edit::apply_blocks(old, blocks).map_err(to_problems),
            Self::Patch(patch) => apply_patch_to_text(patch, old),
            Self::Replacement(replacement) => {
                sabir_edit::apply_string_replacement(old, replacement).map_err(to_problems)
            }
            Self::Whole(content) => {
                // The byte order mark belongs to the encoding, which is kept.
                let is_marked = encoding == TextEncoding::Utf8Bom;
                let content = content
                    .strip_prefix('\u{feff}')
                    .filter(|_| is_marked)
                    .unwrap_or(content);
                sabir_edit::replace_whole_text(old, content).map_err(to_problems)
            }
        }
    }
}

/// Applies the only section of a patch to a text, whatever path it names.
fn apply_patch_to_text(patch: &Patch, old: &str) -> Result<EditedText, Vec<EditProblem>> {
    // No hunk: nothing of the old text was matched.
    let replaced = |content: &str| EditedText {
        content: content.to_owned(),
        hunks: Vec::new(),
    };
    match patch.files.as_slice() {
        [section] => match &section.action {
            FileAction::Update(update) => update.apply(old).map_err(to_problems),
            FileAction::Add(content) => Ok(replaced(content)),
            FileAction::Delete => Ok(replaced("")),
            _ => Err(vec![EditProblem::new(
                "unknown_path",
                "the section has an action that a text cannot have",
                "update the text instead",
            )]),
        },
        // Choosing one of them would drop the others silently.
        sections => Err(vec![EditProblem::new(
            "unknown_path",
            format!(
                "the patch is about {} files, but one text is edited",
                sections.len()
            ),
            "give a patch with one section",
        )]),
    }
}

/// Applies an edit to a text. Without a `format` the edit tells it, except for a whole new content.
///
/// # Errors
/// The problems of the edit, all at once where its format allows that.
///
/// # Examples
///
/// ```
/// use sabir_toolbox::edit::edit_text;
///
/// let edit = r#"{"old_string": "b", "new_string": "B"}"#;
/// assert_eq!(edit_text("a b c\n", edit, None).map(|edited| edited.content), Ok("a B c\n".to_owned()));
///
/// let problems = edit_text("a c\n", edit, None).unwrap_err();
/// assert_eq!(problems.len(), 1);
/// ```
pub fn edit_text(
    old: &str,
    edit: &str,
    format: Option<EditSyntax>,
) -> Result<EditedText, Vec<EditProblem>> {
    ParsedEdit::parse(edit, format)?.apply(old, TextEncoding::Utf8)
}

/// The report of an edit that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedEdit {
    status: AppliedStatus,
    /// The content of the named file after the edit.
    pub content: String,
    /// Always empty, as in the report of an edit that failed.
    faults: [EditProblem; 0],
    /// The places where the blocks were applied in the named file.
    pub hunks: Vec<HunkReport>,
    /// The path that the named file was moved to.
    pub moved_to: Option<String>,
    /// The paths of all changed files.
    pub files: Vec<String>,
    /// The changes as a unified diff.
    #[serde(skip)]
    pub diff: String,
}

/// The status of an edit that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AppliedStatus {
    Applied,
}

/// The place where a block was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HunkReport {
    /// The number of the block or hunk, counted from 1.
    pub block: usize,
    /// The exactness of the match: `exact`, `normalised` or `shifted`.
    pub level: &'static str,
    /// The first line in the old text, counted from 1.
    pub old_line: usize,
    /// The number of lines in the old text.
    pub old_lines: usize,
    /// The first line in the new text, counted from 1.
    pub new_line: usize,
    /// The number of lines in the new text.
    pub new_lines: usize,
}

impl From<&AppliedHunk> for HunkReport {
    fn from(hunk: &AppliedHunk) -> Self {
        Self {
            block: hunk.block,
            level: match hunk.level {
                MatchLevel::Exact => "exact",
                MatchLevel::Normalised => "normalised",
                MatchLevel::Shifted => "shifted",
            },
            old_line: hunk.old_line,
            old_lines: hunk.old_lines,
            new_line: hunk.new_line,
            new_lines: hunk.new_lines,
        }
    }
}

impl AppliedEdit {
    /// Creates the report of one changed text, such as that of [`edit_text`]. No file was changed or moved.
    pub fn new(content: String, hunks: &[AppliedHunk]) -> Self {
        Self {
            status: AppliedStatus::Applied,
            content,
            faults: [],
            hunks: hunks.iter().map(HunkReport::from).collect(),
            moved_to: None,
            files: Vec::new(),
            diff: String::new(),
        }
    }
}

impl Report for AppliedEdit {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.diff.as_bytes())?;
        for hunk in &self.hunks {
            // An exact match needs no remark; the others show a mistake of the model.
            let how = match hunk.level {
                "exact" => continue,
                "shifted" => "with other indentation, which the new lines were given",
                _ => "with other blanks at the ends of lines, or other quotes, dashes or spaces",
            };
            writeln!(
                out,
                "[{} was found in line {} {how}.]",
                hunk.block, hunk.old_line
            )?;
        }
        Ok(())
    }
}

/// The report of an edit that changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedEdit {
    status: FailedStatus,
    /// The unchanged content of the named file; empty if it cannot be read.
    pub content: String,
    /// The problems.
    pub faults: Vec<EditProblem>,
}

/// The status of an edit that changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FailedStatus {
    Failed,
}

impl FailedEdit {
    /// Creates the report.
    pub fn new(content: String, faults: Vec<EditProblem>) -> Self {
        Self {
            status: FailedStatus::Failed,
            content,
            faults,
        }
    }
}

impl Report for FailedEdit {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for fault in &self.faults {
            writeln!(out, "{}", fault.words)?;
            // Each problem quotes the text, and must not hide the next one.
            out.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_of_one_section_edits_a_text() {
        let patch = "*** Begin Patch\n*** Update File: any\n@@\n-b\n+B\n*** End Patch\n";
        assert_eq!(edit_text("a\nb\n", patch, None).unwrap().content, "a\nB\n");
        let patch = "*** Begin Patch\n*** Delete File: one\n*** Delete File: two\n*** End Patch\n";
        let problems = edit_text("a\n", patch, None).unwrap_err();
        assert_eq!(problems[0].kind, "unknown_path");
    }

    #[test]
    fn the_format_must_be_recognisable() {
        let problems = edit_text("a\n", "b\n", None).unwrap_err();
        assert_eq!(problems[0].kind, "no_blocks");
        let whole = edit_text("a\n", "b\n", Some(EditSyntax::WholeFile)).unwrap();
        assert_eq!(whole.content, "b\n");
    }

    #[test]
    fn a_failed_edit_is_encoded_as_json() {
        let failed = FailedEdit::new("a\n".to_owned(), vec![EditProblem::new("kind", "no", "do")]);
        assert_eq!(
            serde_json::to_string(&failed).unwrap(),
            r#"{"status":"failed","content":"a\n","faults":[{"kind":"kind","line":1,"message":"no","hint":"do","block":null,"lines":[]}]}"#
        );
    }
}
