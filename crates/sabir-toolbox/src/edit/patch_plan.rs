//! Matches the sections of a patch with the file named on the command line, and plans all of them.

use std::path::{Path, PathBuf};

use sabir_edit::{FileAction, FilePatch, FileUpdate, Patch, TextEncoding};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};

use super::file_edit::{
    EditError, EditPlan, FileDiff, FileError, encode_content, expected_version,
};
use super::target::{EditTarget, LoadedFile};
use super::{EditProblem, to_problems};

/// The root of a patch's paths, and the section for the named file.
struct PatchTarget {
    /// The folder that the paths are relative to.
    root: PathBuf,
    /// The index of the section, and its path relative to the root.
    section: Option<(usize, String)>,
}

/// The files that a section is about.
struct SectionFiles {
    path: WorkPath,
    /// The path that the file is moved to.
    moved: Option<WorkPath>,
    /// True if this is the file that the caller named.
    is_target: bool,
}

/// A file that is written or deleted.
struct PlannedFile {
    path: WorkPath,
    /// The text before the edit.
    old: String,
    /// The content after the edit; `None` deletes the file.
    new: Option<NewContent>,
    expect: WritePrecondition,
    /// True if this is the file that the caller named.
    is_target: bool,
}

/// The content of a file after the edit.
struct NewContent {
    /// The content in the encoding of the file.
    bytes: Vec<u8>,
    /// The same as text.
    text: String,
}

/// Plans the changes of a patch to its files.
pub(super) fn plan_patch(file: &Path, patch: &Patch) -> Result<EditPlan, EditError> {
    let aim = find_target(file, patch)?;
    let target = EditTarget::open(&aim.root)?;
    // A root that does not exist yet lies below the folder that was opened.
    let below = aim
        .root
        .canonicalize()
        .map_or_else(|_| Some(aim.root.clone()), |_| None);
    let mut plan = EditPlan {
        target,
        changes: Vec::new(),
        diffs: Vec::new(),
        content: String::new(),
        hunks: Vec::new(),
        moved_to: None,
    };
    let mut found = Vec::new();
    for (index, section) in patch.files.iter().enumerate() {
        let (is_target, path) = match &aim.section {
            Some((chosen, path)) if *chosen == index => (true, path.as_str()),
            _ => (false, section.path.as_str()),
        };
        let resolve = |path: &str| match &below {
            Some(root) => plan.target.resolve_path(&root.join(path).to_string_lossy()),
            None => plan.target.resolve_path(path),
        };
        let path = resolve(path)?;
        let moved = match &section.action {
            FileAction::Update(FileUpdate {
                move_to: Some(to), ..
            }) => Some(resolve(to)?),
            _ => None,
        };
        let files = SectionFiles {
            path,
            moved,
            is_target,
        };
        match plan_section(&mut plan, section, files) {
            Ok(()) => {}
            // Problems of all sections are collected, because a model should learn of them at once.
            Err(EditError::Problems(more)) => found.extend(more),
            // A file that cannot be read makes the rest of the plan pointless.
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() {
        Ok(plan)
    } else {
        Err(EditError::Problems(found))
    }
}

/// Adds one section of a patch to the plan.
fn plan_section(
    plan: &mut EditPlan,
    section: &FilePatch,
    files: SectionFiles,
) -> Result<(), EditError> {
    let SectionFiles {
        path,
        moved,
        is_target,
    } = files;
    let free = |path: &WorkPath| match plan.target.workspace.exists(path) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let hint = "update it, or delete it first";
            let fault = EditProblem::new("file_exists", format!("`{path}` exists already"), hint);
            Err(EditError::Problems(vec![fault.at_line(section.line)]))
        }
        Err(error) => Err(error.into()),
    };
    if let FileAction::Add(content) = &section.action {
        // The user named this file, so an `Add` section may overwrite it, as the reference
        // `apply_patch` program does.
        let held = plan.target.read_file(&path)?;
        let encoding = held
            .as_ref()
            .map_or(TextEncoding::Utf8, |held| held.text.encoding);
        let bytes = encode_content(encoding, content)?;
        let expect = expected_version(held.as_ref());
        let old = held.map(|held| held.text.content).unwrap_or_default();
        let new = NewContent {
            bytes,
            text: content.clone(),
        };
        add_file(
            plan,
            PlannedFile {
                path,
                old,
                new: Some(new),
                expect,
                is_target,
            },
        );
        return Ok(());
    }
    let Some(LoadedFile { text, version }) = plan.target.read_file(&path)? else {
        return Err(EditError::File(FileError::MissingInPatch {
            path: path.to_string(),
            line: section.line,
        }));
    };
    let update = match &section.action {
        FileAction::Update(update) => update,
        _ => {
            let expect = WritePrecondition::Version(version);
            add_file(
                plan,
                PlannedFile {
                    path,
                    old: text.content,
                    new: None,
                    expect,
                    is_target,
                },
            );
            return Ok(());
        }
    };
    let edited = update
        .apply(&text.content)
        .map_err(|found| EditError::Problems(to_problems(found)))?;
    let bytes = encode_content(text.encoding, &edited.content)?;
    if is_target {
        plan.hunks = edited.hunks;
    }
    let held = LoadedFile { text, version };
    let expect = expected_version(Some(&held));
    match moved {
        None => {
            let new = NewContent {
                bytes,
                text: edited.content,
            };
            let old = held.text.content;
            add_file(
                plan,
                PlannedFile {
                    path,
                    old,
                    new: Some(new),
                    expect,
                    is_target,
                },
            );
        }
        Some(to) => {
            // A move must not overwrite a file that the patch does not mention.
            free(&to)?;
            plan.moved_to = plan
                .moved_to
                .take()
                .or_else(|| is_target.then(|| to.to_string()));
            if is_target {
                plan.content.clone_from(&edited.content);
            }
            // Shown under the new path, as one change instead of a deletion and a new file.
            plan.diffs.push(FileDiff {
                path: to.to_string(),
                old: held.text.content,
                new: edited.content,
            });
            plan.changes
                .extend(FileChange::move_file(path, expect, to, bytes));
        }
    }
    Ok(())
}

/// Adds a file to the plan.
fn add_file(plan: &mut EditPlan, file: PlannedFile) {
    let (bytes, text) = file
        .new
        .map_or((None, String::new()), |new| (Some(new.bytes), new.text));
    if file.is_target {
        plan.content.clone_from(&text);
    }
    plan.diffs.push(FileDiff {
        path: file.path.to_string(),
        old: file.old,
        new: text,
    });
    plan.changes.push(match bytes {
        Some(bytes) => FileChange::write(file.path, bytes, file.expect),
        None => FileChange::delete(file.path, file.expect),
    });
}

/// Finds the section for the named file, and the folder that the other paths are relative to.
fn find_target(file: &Path, patch: &Patch) -> Result<PatchTarget, EditError> {
    let whole = std::path::absolute(file).map_err(|error| FileError::Unresolvable {
        file: file.to_path_buf(),
        error,
    })?;
    if whole.is_dir() {
        return Ok(PatchTarget {
            root: whole,
            section: None,
        });
    }
    let named = patch
        .files
        .iter()
        .enumerate()
        .filter_map(|(index, section)| {
            let path = Path::new(section.path.strip_prefix("./").unwrap_or(&section.path));
            whole.ends_with(path).then_some((index, path))
        });
    // The longest matching path is the most specific one.
    if let Some((index, path)) = named.max_by_key(|(_, path)| path.components().count()) {
        let depth = if path.is_absolute() {
            1
        } else {
            path.components().count()
        };
        let root = whole.ancestors().nth(depth).unwrap_or(&whole).to_path_buf();
        let path = whole
            .strip_prefix(&root)
            .unwrap_or(&whole)
            .to_string_lossy()
            .into_owned();
        return Ok(PatchTarget {
            root,
            section: Some((index, path)),
        });
    }
    // A single section applies to the named file, whatever path the model wrote.
    if patch.files.len() == 1 {
        let root = whole.parent().unwrap_or(&whole).to_path_buf();
        let name = whole
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        return Ok(PatchTarget {
            root,
            section: Some((0, name)),
        });
    }
    let names: Vec<_> = patch
        .files
        .iter()
        .map(|section| format!("`{}`", section.path))
        .collect();
    let message = format!(
        "no section of the patch is about {}: they name {}",
        file.display(),
        names.join(", ")
    );
    let hint = "name one of these files, or the folder that their paths begin in";
    Err(EditError::Problems(vec![EditProblem::new(
        "unknown_path",
        message,
        hint,
    )]))
}
