//! Matches the sections of a patch with the file named on the command line, and plans all of them.

use std::path::{Path, PathBuf};

use sabir_edit::{FileAction, FilePatch, FileUpdate, Patch, TextEncoding};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};

use super::target::{EditTarget, LoadedFile, usage_refusal};
use super::{
    EditPlan, EditProblem, EditRefusal, FileDiff, encode_content, expected_version, to_problems,
};

/// The root of a patch's paths, and the section for the named file.
struct PatchTarget {
    /// The folder that the paths are relative to.
    root: PathBuf,
    /// The index of the section, and its path relative to the root.
    section: Option<(usize, String)>,
}

/// Plans the changes of a patch to its files.
pub(super) fn plan_patch(file: &Path, text: &str) -> Result<EditPlan, EditRefusal> {
    let patch = Patch::parse(text).map_err(|found| EditRefusal::Faults(to_problems(found)))?;
    let aim = find_target(file, &patch)?;
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
        let place = |path: &str| match &below {
            Some(root) => plan.target.resolve_path(&root.join(path).to_string_lossy()),
            None => plan.target.resolve_path(path),
        };
        let path = place(path)?;
        let moved = match &section.action {
            FileAction::Update(FileUpdate {
                move_to: Some(to), ..
            }) => Some(place(to)?),
            _ => None,
        };
        match plan_section(&mut plan, section, (path, moved), is_target) {
            Ok(()) => {}
            Err(EditRefusal::Faults(more)) => found.extend(more),
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() {
        Ok(plan)
    } else {
        Err(EditRefusal::Faults(found))
    }
}

/// Adds one section of a patch to the plan.
fn plan_section(
    plan: &mut EditPlan,
    section: &FilePatch,
    (path, moved): (WorkPath, Option<WorkPath>),
    is_target: bool,
) -> Result<(), EditRefusal> {
    let free = |path: &WorkPath| match plan.target.workspace.exists(path) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let hint = "update it, or delete it first";
            let fault = EditProblem::new("file_exists", format!("`{path}` exists already"), hint);
            Err(EditRefusal::Faults(vec![fault.at_line(section.line)]))
        }
        Err(error) => Err(usage_refusal(error.to_string())),
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
        add_file(
            plan,
            (path, old),
            Some((bytes, content.clone())),
            expect,
            is_target,
        );
        return Ok(());
    }
    let Some(LoadedFile { text, version }) = plan.target.read_file(&path)? else {
        return Err(usage_refusal(format!(
            "`{path}`, which line {} of the patch names, does not exist",
            section.line
        )));
    };
    let update = match &section.action {
        FileAction::Update(update) => update,
        _ => {
            add_file(
                plan,
                (path, text.content.clone()),
                None,
                WritePrecondition::Version(version),
                is_target,
            );
            return Ok(());
        }
    };
    let edited = update
        .apply(&text.content)
        .map_err(|found| EditRefusal::Faults(to_problems(found)))?;
    let bytes = encode_content(text.encoding, &edited.content)?;
    if is_target {
        plan.hunks = edited.hunks;
    }
    let held = LoadedFile { text, version };
    let expect = expected_version(Some(&held));
    match moved {
        None => add_file(
            plan,
            (path, held.text.content),
            Some((bytes, edited.content)),
            expect,
            is_target,
        ),
        Some(to) => {
            free(&to)?;
            plan.moved_to = plan
                .moved_to
                .take()
                .or_else(|| is_target.then(|| to.to_string()));
            if is_target {
                plan.content.clone_from(&edited.content);
            }
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

/// Adds a file to the plan that is written, or deleted if `new` is `None`.
fn add_file(
    plan: &mut EditPlan,
    (path, old): (WorkPath, String),
    new: Option<(Vec<u8>, String)>,
    expect: WritePrecondition,
    is_target: bool,
) {
    let (bytes, new) = new.map_or((None, String::new()), |(bytes, content)| {
        (Some(bytes), content)
    });
    if is_target {
        plan.content.clone_from(&new);
    }
    plan.diffs.push(FileDiff {
        path: path.to_string(),
        old,
        new,
    });
    plan.changes.push(match bytes {
        Some(bytes) => FileChange::write(path, bytes, expect),
        None => FileChange::delete(path, expect),
    });
}

/// Finds the section for the named file, and the folder that the other paths are relative to.
fn find_target(file: &Path, patch: &Patch) -> Result<PatchTarget, EditRefusal> {
    let whole = std::path::absolute(file)
        .map_err(|error| usage_refusal(format!("{}: {error}", file.display())))?;
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
    Err(EditRefusal::Faults(vec![EditProblem::new(
        "unknown_path",
        message,
        hint,
    )]))
}
