//! `apply_patch`: several files at once, by a patch.

use std::collections::HashSet;
use std::sync::Arc;

use sabir_agent::{Bound, Permit, Progress};
use sabir_edit::{FileAction, Patch, Update};
use sabir_policy::Access;
use sabir_workspace::{Change, Expect, WorkPath};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bound;
use crate::built_in::BuiltIn;
use crate::edits::{Changed, Done, Edits, listed, unchanged};
use crate::ground::Ground;
use crate::preview;
use crate::text_file::TextFile;
use crate::words;

/// The tool.
pub(crate) struct ApplyPatch(pub(crate) Arc<Ground>);

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

impl BuiltIn for ApplyPatch {
    type Input = Input;
    type Output = Edits;
    const NAME: &'static str = "apply_patch";
    const MANUAL: &'static str = include_str!("specs/apply_patch.md");
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
                let mut all: Vec<_> = paths(&patch).map(|path| self.0.writing(path)).collect();
                // One path that is none makes the whole patch one that cannot be applied.
                match all.iter().position(|access| matches!(access, Access::Invalid { .. })) {
                    Some(at) => all.swap_remove(at),
                    None => Access::Several(all),
                }
            }
            // It will fail, and then say why.
            Err(_) => Access::Nothing,
        }
    }

    fn bound(&self, input: &Input) -> Bound {
        Patch::parse(&input.patch).map_or_else(|_| Bound::default(), |patch| bound::of_writes(&self.0, paths(&patch)))
    }

    fn preview(&self, input: &Input) -> Option<String> {
        preview::of_patch(&self.0, &Patch::parse(&input.patch).ok()?)
    }

    async fn run(self: Arc<Self>, _: &Permit, input: Input, _: Progress<'_>) -> Result<Edits, String> {
        words::blocking(move || apply(&self.0, &input)).await
    }
}

/// Every path that is written, also by deleting.
fn paths(patch: &Patch) -> impl Iterator<Item = &str> {
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
struct Plan {
    changes: Vec<Change>,
    /// The text that each change writes.
    contents: Vec<String>,
    done: Vec<Done>,
    /// The places that are written, to see that none is twice.
    places: HashSet<WorkPath>,
}

fn apply(ground: &Ground, input: &Input) -> Result<Edits, String> {
    let patch =
        Patch::parse(&input.patch).map_err(|faults| format!("The patch was not applied:{}", listed(&faults)))?;
    let (mut plan, mut wrong) = (Plan::default(), Vec::new());
    for file in &patch.files {
        let planned = match &file.action {
            FileAction::Add(content) => plan.add(ground, &file.path, content),
            FileAction::Delete => plan.delete(ground, &file.path),
            FileAction::Update(update) => plan.update(ground, &file.path, update),
            _ => Err(format!("`{}`: such a change of a file is not known.", file.path)),
        };
        wrong.extend(planned.err());
    }
    if !wrong.is_empty() {
        return Err(format!("The patch was not applied, and no file was changed:\n{}", wrong.join("\n")));
    }
    let contents: Vec<_> = plan.contents.iter().map(String::as_str).collect();
    ground.make(&plan.changes, &contents)?;
    Ok(Edits(plan.done))
}

impl Plan {
    fn add(&mut self, ground: &Ground, path: &str, content: &str) -> Result<(), String> {
        let path = self.place(ground, path)?;
        if ground.workspace().exists(&path).map_err(|error| ground.explain(&error))? {
            return Err(format!(
                "`{path}` exists already, so it cannot be added. Use `*** Update File`, or write_to_file for the whole of it."
            ));
        }
        self.push(Change::write(path.clone(), content.as_bytes().to_vec(), Expect::Missing), content);
        self.done.push(Done::Added { path, lines: content.lines().count() });
        Ok(())
    }

    fn delete(&mut self, ground: &Ground, path: &str) -> Result<(), String> {
        let path = self.place(ground, path)?;
        let change = ground.deletion(&path)?;
        self.push(change, "");
        self.done.push(Done::Deleted { path });
        Ok(())
    }

    fn update(&mut self, ground: &Ground, path: &str, update: &Update) -> Result<(), String> {
        let file = TextFile::open(ground, self.place(ground, path)?)?;
        let edited = update.apply(&file.content).map_err(|faults| format!("`{}`:{}", file.path, listed(&faults)))?;
        let target = update.move_to.as_deref().map(|to| ground.target(to)).transpose()?;
        let target = target.filter(|to| *to != file.path);
        match &target {
            None if edited.content == file.content => return Err(unchanged(&file.path)),
            None => self.push(file.change(&edited.content)?, &edited.content),
            Some(to) => {
                if ground.workspace().exists(to).map_err(|error| ground.explain(&error))? {
                    return Err(format!("`{to}` exists already, so `{}` cannot be moved there.", file.path));
                }
                self.claim(to)?;
                let [written, deleted] = file.moved(to.clone(), &edited.content)?;
                self.push(written, &edited.content);
                self.push(deleted, "");
            }
        }
        let changed = Changed::new(file.path, &file.content, &edited, "hunk");
        self.done.push(Done::Changed(Changed { moved_to: target, ..changed }));
        Ok(())
    }

    fn push(&mut self, change: Change, content: &str) {
        self.changes.push(change);
        self.contents.push(content.to_owned());
    }

    /// The place that a path means, which no other path of the patch may mean.
    fn place(&mut self, ground: &Ground, path: &str) -> Result<WorkPath, String> {
        let real = ground.target(path)?;
        self.claim(&real)?;
        Ok(real)
    }

    fn claim(&mut self, place: &WorkPath) -> Result<(), String> {
        if self.places.insert(place.clone()) {
            return Ok(());
        }
        Err(format!("`{place}` is changed twice. Put all changes of a file under one `*** Update File`."))
    }
}
