//! `apply_patch`: changes several files at once by a patch.

use std::collections::HashSet;
use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, RefreshFuture};
use sabir_edit::{EditFault, FileAction, FilePatch, FileUpdate, Patch};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::edit_error::{EditError, FaultList, PatchError};
use crate::edits::{ChangedFile, EditOutcome, FileEdit};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;
use crate::write_target::WriteTarget;

/// The tool, over the files of a task.
pub(crate) struct ApplyPatch(pub(crate) Arc<FileTracker>);

/// Add, change, move and delete files with a patch. All of it is applied, or nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyPatchArguments {
    /// `*** Begin Patch`, then for each file `*** Add File: PATH` and its lines, each with a `+` before it; or
    /// `*** Delete File: PATH`; or `*** Update File: PATH`, perhaps `*** Move to: PATH`, and for each change `@@` and
    /// its lines, with ` `, `-` or `+` before each and enough unchanged ones around it to be found only once; at the
    /// end `*** End Patch`.
    patch: String,
}

/// A prepared call: the sections of the patch, or the faults of a malformed one.
pub(crate) type ApplyPatchCall = Result<Vec<PatchSection>, Vec<EditFault>>;

/// One section of the patch, with the files that its paths lead to.
pub(crate) struct PatchSection {
    file: FilePatch,
    target: WriteTarget,
    /// The file that it is moved to, if any.
    move_target: Option<WriteTarget>,
}

impl TypedTool for ApplyPatch {
    type Arguments = ApplyPatchArguments;
    type Call = ApplyPatchCall;
    type Output = EditOutcome;
    type Error = EditError;
    const NAME: &'static str = "apply_patch";
    const MANUAL: &'static str = include_str!("specs/apply_patch.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({
            "patch": "*** Begin Patch\n*** Update File: src/server.rs\n@@ fn main() {\n-    let port = 80;\n+    let port = 8080;\n }\n\
                      *** End Patch",
        })
    }

    fn prepare_call(&self, arguments: ApplyPatchArguments) -> ApplyPatchCall {
        let patch = Patch::parse(&arguments.patch)?;
        Ok(patch
            .files
            .into_iter()
            .map(|file| PatchSection::resolve_paths(&self.0, file))
            .collect())
    }

    fn refresh_call(&self, call: &ApplyPatchCall) -> Option<RefreshFuture> {
        let targets = call.iter().flatten().flat_map(PatchSection::write_targets);
        let paths = targets.map(|target| target.written_path().to_owned());
        self.0.refresh_buffers(paths.collect())
    }

    fn call_access(&self, call: &ApplyPatchCall) -> Access {
        // A malformed patch touches nothing; its run fails and says why.
        let Ok(sections) = call else {
            return Access::Nothing;
        };
        let mut all: Vec<_> = sections
            .iter()
            .flat_map(PatchSection::write_targets)
            .map(WriteTarget::write_access)
            .collect();
        // The patch is applied as a whole, so one invalid path makes all of it invalid.
        match all
            .iter()
            .position(|access| matches!(access, Access::Invalid { .. }))
        {
            Some(at) => all.swap_remove(at),
            None => Access::Several(all),
        }
    }

    fn call_preconditions(&self, call: &ApplyPatchCall) -> Preconditions {
        let targets = call
            .iter()
            .flatten()
            .flat_map(PatchSection::write_targets)
            .map(WriteTarget::written_path);
        preconditions::write_preconditions(&self.0, targets)
    }

    fn preview_call(&self, call: &ApplyPatchCall) -> Option<String> {
        let files = call.as_ref().ok()?.iter().map(|section| &section.file);
        preview::preview_patch(&self.0, files)
    }

    fn dry_run(&self, call: &ApplyPatchCall) -> Result<(), EditError> {
        let sections = call.iter().flatten().map(|section| section.file.clone());
        let sections = sections.map(|file| PatchSection::resolve_paths(&self.0, file));
        plan_sections(&self.0, sections.collect()).map(drop)
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: ApplyPatchCall,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, EditError> {
        let sections = call.map_err(|faults| EditError::MalformedPatch(FaultList(faults)))?;
        run_blocking(move || apply_sections(&self.0, sections)).await
    }
}

impl PatchSection {
    /// Resolves the paths of a section.
    fn resolve_paths(tracker: &FileTracker, file: FilePatch) -> Self {
        let move_to = match &file.action {
            FileAction::Update(update) => update.move_to.clone(),
            _ => None,
        };
        Self {
            target: WriteTarget::resolve(tracker, file.path.clone()),
            move_target: move_to.map(|to| WriteTarget::resolve(tracker, to)),
            file,
        }
    }

    /// Returns every file that the section writes or deletes.
    fn write_targets(&self) -> impl Iterator<Item = &WriteTarget> {
        std::iter::once(&self.target).chain(&self.move_target)
    }
}

/// Plans all sections. Reports the failures of all of them together, so that the model can correct the
/// patch at once.
fn plan_sections(
    tracker: &FileTracker,
    sections: Vec<PatchSection>,
) -> Result<PatchPlan, EditError> {
    // Nothing is written before all sections are planned.
    let mut plan = PatchPlan::default();
    let mut errors = Vec::new();
    for section in sections {
        errors.extend(plan.plan_section(tracker, section).err());
    }
    if !errors.is_empty() {
        return Err(EditError::Patch(errors));
    }
    tracker.buffers().check_changes(&plan.changes)?;
    Ok(plan)
}

/// Applies all sections, or none.
fn apply_sections(
    tracker: &FileTracker,
    sections: Vec<PatchSection>,
) -> Result<EditOutcome, EditError> {
    let plan = plan_sections(tracker, sections)?;
    let contents: Vec<_> = plan.contents.iter().map(String::as_str).collect();
    let written = tracker.apply_changes(&plan.changes, &contents)?;
    Ok(EditOutcome::new(plan.edits, written))
}

/// The changes of a patch before any of them is made.
#[derive(Default)]
struct PatchPlan {
    changes: Vec<FileChange>,
    /// The text that each change writes; empty for deletions.
    contents: Vec<String>,
    /// The report of each section, for the model.
    edits: Vec<FileEdit>,
    /// The files that are written, to detect a file that is changed twice by different paths.
    claimed: HashSet<WorkPath>,
}

impl PatchPlan {
    /// Plans the changes of a section.
    fn plan_section(
        &mut self,
        tracker: &FileTracker,
        section: PatchSection,
    ) -> Result<(), PatchError> {
        let PatchSection {
            file,
            target,
            move_target,
        } = section;
        // `FileAction` may grow; nothing is claimed for an action that this tool does not know.
        match file.action {
            FileAction::Add(content) => {
                let path = self.claim_target(tracker, target)?;
                self.plan_addition(tracker, path, &content)
            }
            FileAction::Delete => {
                let path = self.claim_target(tracker, target)?;
                self.plan_deletion(tracker, path)
            }
            FileAction::Update(update) => {
                let path = self.claim_target(tracker, target)?;
                self.plan_update(tracker, path, &update, move_target)
            }
            _ => Err(PatchError::UnknownAction { path: file.path }),
        }
    }

    /// Plans a new file.
    fn plan_addition(
        &mut self,
        tracker: &FileTracker,
        path: WorkPath,
        content: &str,
    ) -> Result<(), PatchError> {
        if tracker.path_exists(&path)? {
            return Err(PatchError::AddedExists { path });
        }
        let change = FileChange::write(
            path.clone(),
            content.as_bytes().to_vec(),
            WritePrecondition::Missing,
        );
        self.push_change(change, content);
        self.edits.push(FileEdit::Added {
            path,
            lines: content.lines().count(),
        });
        Ok(())
    }

    /// Plans the deletion of a file.
    fn plan_deletion(&mut self, tracker: &FileTracker, path: WorkPath) -> Result<(), PatchError> {
        // A deletion needs no reading before it, but a known file must not have changed.
        let change = tracker.plan_deletion(&path)?;
        self.push_change(change, "");
        self.edits.push(FileEdit::Deleted { path });
        Ok(())
    }

    /// Plans the changes in a file, and its move if it has one.
    fn plan_update(
        &mut self,
        tracker: &FileTracker,
        path: WorkPath,
        update: &FileUpdate,
        move_target: Option<WriteTarget>,
    ) -> Result<(), PatchError> {
        let file = TextFile::open_known(tracker, path)?;
        let edited = match update.apply(&file.content) {
            Ok(edited) => edited,
            Err(faults) => {
                return Err(PatchError::Faulty {
                    path: file.path,
                    faults: FaultList(faults),
                });
            }
        };
        let moved_to = move_target
            .map(|to| to.confirm_file(tracker))
            .transpose()?
            // A move onto the file itself is only an edit.
            .filter(|to| *to != file.path);
        match &moved_to {
            None if edited.content == file.content => {
                return Err(PatchError::NoEffect { path: file.path });
            }
            None => self.push_change(file.content_change(&edited.content)?, &edited.content),
            Some(to) => {
                if tracker.path_exists(to)? {
                    return Err(PatchError::MovedOnto {
                        path: file.path,
                        to: to.clone(),
                    });
                }
                self.claim_file(to)?;
                let [written, deleted] = file.move_change(to.clone(), &edited.content)?;
                self.push_change(written, &edited.content);
                self.push_change(deleted, "");
            }
        }
        let mut changed = ChangedFile::from_edit(file.path, &file.content, &edited, "hunk");
        changed.moved_to = moved_to;
        self.edits.push(FileEdit::Changed(changed));
        Ok(())
    }

    /// Adds a change with the text that it writes.
    fn push_change(&mut self, change: FileChange, content: &str) {
        self.changes.push(change);
        self.contents.push(content.to_owned());
    }

    /// Confirms the file of a section, which no other section may change.
    fn claim_target(
        &mut self,
        tracker: &FileTracker,
        target: WriteTarget,
    ) -> Result<WorkPath, PatchError> {
        let path = target.confirm_file(tracker)?;
        self.claim_file(&path)?;
        Ok(path)
    }

    /// Claims a file for one section.
    fn claim_file(&mut self, path: &WorkPath) -> Result<(), PatchError> {
        if self.claimed.insert(path.clone()) {
            return Ok(());
        }
        Err(PatchError::ChangedTwice { path: path.clone() })
    }
}
