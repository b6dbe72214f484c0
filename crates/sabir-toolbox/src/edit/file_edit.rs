//! Edits files on disk: plans all changes, then writes them together.

use std::io;
use std::path::{Path, PathBuf};

use sabir_edit::{AppliedHunk, EditSyntax, NotText, TextEncoding};
use sabir_workspace::{FileChange, WorkspaceError, WritePrecondition, unified_diff};

use super::patch_plan::plan_patch;
use super::target::{EditTarget, LoadedFile};
use super::{AppliedEdit, EditProblem, FailedEdit, ParsedEdit};

/// The settings of an edit of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EditOptions {
    /// The format of the edit; without it the text tells, except for a whole file.
    pub format: Option<EditSyntax>,
    /// True to write nothing and only report the changes.
    pub dry_run: bool,
}

/// A reason why nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The edit is wrong.
    #[error("{}", .0.iter().map(|problem| problem.words.as_str()).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<EditProblem>),
    /// A file cannot be edited.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A reason why a file cannot be edited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path cannot be made absolute.
    #[error("{}: {error}", file.display())]
    Unresolvable {
        /// The path as it was given.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The file does not exist, and only some edits make one.
    #[error("{}: there is no such file, and the edit does not create one", .0.display())]
    Missing(PathBuf),
    /// A section of a patch names a file that does not exist.
    #[error("`{path}`, which line {line} of the patch names, does not exist")]
    MissingInPatch {
        /// The path in the workspace.
        path: String,
        /// The line of the patch, counted from 1.
        line: usize,
    },
    /// The file is too large.
    #[error("`{path}` has {size_bytes} bytes, and files up to {limit_bytes} are edited")]
    TooLarge {
        /// The path in the workspace.
        path: String,
        /// The size of the file.
        size_bytes: u64,
        /// The size up to which files are edited.
        limit_bytes: usize,
    },
    /// The file is not text.
    #[error("`{path}` is not text: {error}")]
    NotText {
        /// The path in the workspace.
        path: String,
        /// The reason.
        error: NotText,
    },
    /// The workspace refuses the access, or reading or writing failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<WorkspaceError> for EditError {
    fn from(error: WorkspaceError) -> Self {
        Self::File(error.into())
    }
}

/// The changes that an edit makes.
pub(super) struct EditPlan {
    pub(super) target: EditTarget,
    pub(super) changes: Vec<FileChange>,
    pub(super) diffs: Vec<FileDiff>,
    /// The content of the named file after the edit.
    pub(super) content: String,
    pub(super) hunks: Vec<AppliedHunk>,
    pub(super) moved_to: Option<String>,
}

/// The text of a file before and after the edit.
pub(super) struct FileDiff {
    pub(super) path: String,
    pub(super) old: String,
    pub(super) new: String,
}

/// Applies an edit to a file, which may be missing if the edit creates it. For a patch, `file` may be the folder that its paths begin
/// in, and the patch may change other files too.
///
/// # Errors
/// The edit does not fit, or a file cannot be read or written. Nothing was changed then.
pub fn edit_file(file: &Path, edit: &str, options: EditOptions) -> Result<AppliedEdit, EditError> {
    let plan = match ParsedEdit::parse(edit, options.format).map_err(EditError::Problems)? {
        ParsedEdit::Patch(patch) => plan_patch(file, &patch)?,
        parsed => plan_one_file(file, &parsed)?,
    };
    // Nothing was written so far: every refusal before this line leaves all files alone.
    if !options.dry_run {
        write_plan(&plan)?;
    }
    let mut applied = AppliedEdit::new(plan.content, &plan.hunks);
    applied.moved_to = plan.moved_to;
    for changed in &plan.diffs {
        let diff = unified_diff(&changed.old, &changed.new, &changed.path);
        applied.diff.push_str(&diff);
    }
    applied.files = plan.diffs.into_iter().map(|changed| changed.path).collect();
    Ok(applied)
}

/// Returns the report of an edit of `file` that failed.
pub fn failed_edit(file: &Path, error: &EditError) -> FailedEdit {
    // Read again, since the plan that failed did not keep the content.
    let held = EditTarget::for_file(file).and_then(|(target, path)| target.read_file(&path));
    let content = held
        .ok()
        .flatten()
        .map(|held| held.text.content)
        .unwrap_or_default();
    let faults = match error {
        EditError::Problems(problems) => problems.clone(),
        EditError::File(error) => vec![EditProblem::new(
            "file",
            error.to_string(),
            "nothing was changed",
        )],
    };
    FailedEdit::new(content, faults)
}

/// Plans an edit of one file, which may be missing if the edit creates it.
fn plan_one_file(file: &Path, edit: &ParsedEdit<'_>) -> Result<EditPlan, EditError> {
    let (target, path) = EditTarget::for_file(file)?;
    let held = target.read_file(&path)?;
    let (old, encoding) = held.as_ref().map_or(("", TextEncoding::Utf8), |held| {
        (&held.text.content, held.text.encoding)
    });
    let edited = edit.apply(old, encoding).map_err(|problems| match &held {
        // Against a missing file, any problem only means that the edit does not create it.
        None => FileError::Missing(file.to_path_buf()).into(),
        Some(_) => EditError::Problems(problems),
    })?;
    let bytes = encode_content(encoding, &edited.content)?;
    let diff = FileDiff {
        path: path.to_string(),
        old: old.to_owned(),
        new: edited.content.clone(),
    };
    // Another program may change the file while it is planned; the write refuses that.
    let change = FileChange::write(path, bytes, expected_version(held.as_ref()));
    Ok(EditPlan {
        target,
        changes: vec![change],
        diffs: vec![diff],
        content: edited.content,
        hunks: edited.hunks,
        moved_to: None,
    })
}

/// Returns the precondition under which the file is written: unchanged since it was read.
pub(super) fn expected_version(held: Option<&LoadedFile>) -> WritePrecondition {
    held.map_or(WritePrecondition::Missing, |held| {
        WritePrecondition::Version(held.version)
    })
}

/// Encodes the new content in the file's own encoding.
pub(super) fn encode_content(encoding: TextEncoding, content: &str) -> Result<Vec<u8>, EditError> {
    encoding.encode(content).map_err(|error| {
        let hint = "use characters that the file's encoding has, or rewrite the file";
        EditError::Problems(vec![EditProblem::new(
            "not_in_encoding",
            error.to_string(),
            hint,
        )])
    })
}

/// Writes the changes of a plan.
fn write_plan(plan: &EditPlan) -> Result<(), EditError> {
    let workspace = &plan.target.workspace;
    // Several files change together or not at all; one file is written directly.
    match plan.changes.as_slice() {
        [
            FileChange {
                path,
                expect,
                content: Some(bytes),
                like: None,
            },
        ] => workspace.write_file(path, bytes, *expect).map(drop)?,
        changes => workspace.apply_changes(changes).map(drop)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_reports_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        std::fs::write(&file, "a\nb\n").unwrap();
        let edit = r#"{"old_string": "b", "new_string": "B"}"#;
        let dry = EditOptions {
            dry_run: true,
            ..EditOptions::default()
        };
        let applied = edit_file(&file, edit, dry).unwrap();
        assert!(applied.diff.contains("\n-b\n+B\n"), "{}", applied.diff);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\nb\n");
        let applied = edit_file(&file, edit, EditOptions::default()).unwrap();
        assert_eq!(applied.content, std::fs::read_to_string(&file).unwrap());
    }

    #[test]
    fn a_failure_shows_the_unchanged_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        std::fs::write(&file, "a\n").unwrap();
        let edit = r#"{"old_string": "b", "new_string": "B"}"#;
        let error = edit_file(&file, edit, EditOptions::default()).unwrap_err();
        let failed = failed_edit(&file, &error);
        assert!(matches!(error, EditError::Problems(_)));
        assert_eq!(failed.content, "a\n");

        let missing = folder.path().join("missing.txt");
        let error = edit_file(&missing, edit, EditOptions::default()).unwrap_err();
        assert!(matches!(error, EditError::File(FileError::Missing(_))));
        assert_eq!(failed_edit(&missing, &error).faults[0].kind, "file");
    }
}
