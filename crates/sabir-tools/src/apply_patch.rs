//! `apply_patch`: several files at once, by a patch.

use std::collections::HashSet;
use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink};
use sabir_edit::{FileAction, FileUpdate, Patch};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, WorkPath, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::edits::{ChangedFile, EditOutcome, FileEdit, list_faults, unchanged_message};
use crate::file_tracker::FileTracker;
use crate::preconditions;
use crate::preview;
use crate::text;
use crate::text_file::TextFile;
use crate::typed_tool::TypedTool;

/// The tool.
pub(crate) struct ApplyPatch(pub(crate) Arc<FileTracker>);

/// Add, change, move and delete files with a patch. All of it is applied, or nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// `*** Begin Patch`, then for each file `*** Add File: PATH` and its lines, each with a `+` before it; or
    /// `*** Delete File: PATH`; or `*** Update File: PATH`, perhaps `*** Move to: PATH`, and for each change `@@` and
    /// its lines, with ` `, `-` or `+` before each and enough unchanged ones around it to be found only once; at the
    /// end `*** End Patch`.
    patch: String,
}

impl TypedTool for ApplyPatch {
    type Input = Input;
    type Output = EditOutcome;
    const NAME: &'static str = "apply_patch";
    const MANUAL: &'static str = include_str!("specs/apply_patch.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({
            "patch": "*** Begin Patch\n*** Update File: src/server.rs\n@@ fn main() {\n-    let port = 80;\n+    let port = 8080;\n }\n\
                      *** End Patch",
        })
    }

    fn access(&self, input: &Input) -> Access {
        match Patch::parse(&input.patch) {
            Ok(patch) => {
                let mut all: Vec<_> = written_paths(&patch)
                    .map(|path| self.0.write_access(path))
                    .collect();
                // One path that is none makes the whole patch one that cannot be applied.
                match all
                    .iter()
                    .position(|access| matches!(access, Access::Invalid { .. }))
                {
                    Some(at) => all.swap_remove(at),
                    None => Access::Several(all),
                }
            }
            // It will fail, and then say why.
            Err(_) => Access::Nothing,
        }
    }

    fn preconditions(&self, input: &Input) -> Preconditions {
        Patch::parse(&input.patch).map_or_else(
            |_| Preconditions::default(),
            |patch| preconditions::write_preconditions(&self.0, written_paths(&patch)),
        )
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::preview_patch(&self.0, &Patch::parse(&input.patch).ok()?)
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<EditOutcome, String> {
        text::run_blocking(move || apply_patch(&self.0, &input)).await
    }
}

/// Every path that is written, also by deleting.
fn written_paths(patch: &Patch) -> impl Iterator<Item = &str> {
    patch.files.iter().flat_map(|file| {
        let target = match &file.action {
            FileAction::Update(update) => update.move_to.as_deref(),
            _ => None,
        };
        [Some(file.path.as_str()), target].into_iter().flatten()
    })
}

/// What is to be done, before any of it is.
#[derive(Default)]
struct PatchPlan {
    changes: Vec<FileChange>,
    /// The text that each change writes.
    contents: Vec<String>,
    done: Vec<FileEdit>,
    /// The places that are written, to see that none is twice.
    places: HashSet<WorkPath>,
}

fn apply_patch(ground: &FileTracker, input: &Input) -> Result<EditOutcome, String> {
    let patch = Patch::parse(&input.patch)
        .map_err(|faults| format!("The patch was not applied:{}", list_faults(&faults)))?;
    let (mut plan, mut wrong) = (PatchPlan::default(), Vec::new());
    for file in &patch.files {
        let planned = match &file.action {
            FileAction::Add(content) => plan.plan_add(ground, &file.path, content),
            FileAction::Delete => plan.plan_delete(ground, &file.path),
            FileAction::Update(update) => plan.plan_update(ground, &file.path, update),
            _ => Err(format!(
                "`{}`: such a change of a file is not known.",
                file.path
            )),
        };
        wrong.extend(planned.err());
    }
    if !wrong.is_empty() {
        return Err(format!(
            "The patch was not applied, and no file was changed:\n{}",
            wrong.join("\n")
        ));
    }
    let contents: Vec<_> = plan.contents.iter().map(String::as_str).collect();
    ground.apply_changes(&plan.changes, &contents)?;
    Ok(EditOutcome(plan.done))
}

impl PatchPlan {
    fn plan_add(&mut self, ground: &FileTracker, path: &str, content: &str) -> Result<(), String> {
        let path = self.resolve_target(ground, path)?;
        if ground
            .workspace()
            .exists(&path)
            .map_err(|error| ground.explain_error(&error))?
        {
            return Err(format!(
                "`{path}` exists already, so it cannot be added. Use `*** Update File`, or write_to_file for the whole of it."
            ));
        }
        self.push_change(
            FileChange::write(
                path.clone(),
                content.as_bytes().to_vec(),
                WritePrecondition::Missing,
            ),
            content,
        );
        self.done.push(FileEdit::Added {
            path,
            lines: content.lines().count(),
        });
        Ok(())
    }

    fn plan_delete(&mut self, ground: &FileTracker, path: &str) -> Result<(), String> {
        let path = self.resolve_target(ground, path)?;
        let change = ground.plan_deletion(&path)?;
        self.push_change(change, "");
        self.done.push(FileEdit::Deleted { path });
        Ok(())
    }

    fn plan_update(
        &mut self,
        ground: &FileTracker,
        path: &str,
        update: &FileUpdate,
    ) -> Result<(), String> {
        let file = TextFile::open(ground, self.resolve_target(ground, path)?)?;
        let edited = update
            .apply(&file.content)
            .map_err(|faults| format!("`{}`:{}", file.path, list_faults(&faults)))?;
        let target = update
            .move_to
            .as_deref()
            .map(|to| ground.write_target(to))
            .transpose()?;
        let target = target.filter(|to| *to != file.path);
        match &target {
            None if edited.content == file.content => return Err(unchanged_message(&file.path)),
            None => self.push_change(file.content_change(&edited.content)?, &edited.content),
            Some(to) => {
                if ground
                    .workspace()
                    .exists(to)
                    .map_err(|error| ground.explain_error(&error))?
                {
                    return Err(format!(
                        "`{to}` exists already, so `{}` cannot be moved there.",
                        file.path
                    ));
                }
                self.claim_path(to)?;
                let [written, deleted] = file.move_change(to.clone(), &edited.content)?;
                self.push_change(written, &edited.content);
                self.push_change(deleted, "");
            }
        }
        let changed = ChangedFile::new(file.path, &file.content, &edited, "hunk");
        self.done.push(FileEdit::Changed(ChangedFile {
            moved_to: target,
            ..changed
        }));
        Ok(())
    }

    fn push_change(&mut self, change: FileChange, content: &str) {
        self.changes.push(change);
        self.contents.push(content.to_owned());
    }

    /// The place that a path means, which no other path of the patch may mean.
    fn resolve_target(&mut self, ground: &FileTracker, path: &str) -> Result<WorkPath, String> {
        let real = ground.write_target(path)?;
        self.claim_path(&real)?;
        Ok(real)
    }

    fn claim_path(&mut self, place: &WorkPath) -> Result<(), String> {
        if self.places.insert(place.clone()) {
            return Ok(());
        }
        Err(format!(
            "`{place}` is changed twice. Put all changes of a file under one `*** Update File`."
        ))
    }
}
