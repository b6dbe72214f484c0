//! Keeps the store under its size limit by removing the oldest checkpoints and the objects that
//! only they hold.
//!
//! Objects to keep are rewritten before the old files are removed, so a crash in between wastes
//! disk space until the next pruning but loses no checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::error::CheckpointError;
use super::log::{self, LogRecord};
use super::object::{ObjectId, ObjectKind, TreeNode};
use super::pack::PackWriter;
use super::store::{ObjectLocation, ObjectStore};
use super::{Checkpoint, CheckpointStore, LockedStore};

/// The number of newest checkpoints of the running task that outlive older ones of other tasks, as
/// long as there is space.
const PROTECTED_CHECKPOINTS: usize = 3;
/// The log size, in bytes, above which reading it takes too long.
const MAX_LOG_BYTES: u64 = 32 << 20;
/// The number of checkpoints above which searching them takes too long.
const MAX_CHECKPOINTS: usize = 5000;
/// The number of tasks whose removed checkpoints are remembered.
const MAX_PRUNED_TASKS: usize = 1000;

/// The checkpoints and objects to keep. Maps each object to its size in bytes.
#[derive(Default)]
struct LiveSet {
    objects: HashMap<ObjectId, u64>,
    bytes: u64,
    checkpoints: Vec<Checkpoint>,
}

impl CheckpointStore {
    /// Makes sure that the next checkpoint fits: it takes at most a quarter of the limit. The
    /// task's checkpoints from the call number `from` on always stay, because they are about to be
    /// restored.
    pub(super) fn free_space(
        &self,
        work: &mut LockedStore<'_>,
        task: &str,
        from: Option<u32>,
    ) -> Result<(), CheckpointError> {
        let cap = self.caps.store_bytes;
        let store = work.store_mut();
        if store.total_bytes() <= cap / 4 * 3 && store.log_bytes <= MAX_LOG_BYTES.min(cap / 4) {
            return Ok(());
        }
        store.prune_to(task, from, cap / 2, cap / 4 * 3)
    }
}

impl ObjectStore {
    /// Returns the number of a task's next checkpoint.
    pub(super) fn next_number(&self, task: &str) -> u32 {
        let own = self
            .checkpoints
            .iter()
            .filter(|checkpoint| checkpoint.mark.task == task);
        let last = own.map(|checkpoint| checkpoint.number).max().unwrap_or(0);
        last.max(self.pruned.get(task).copied().unwrap_or(0)) + 1
    }

    /// Keeps the newest checkpoints that fit into `target` bytes, and the newest few of this task
    /// if they fit into `most`.
    fn prune_to(
        &mut self,
        task: &str,
        from: Option<u32>,
        target: u64,
        most: u64,
    ) -> Result<(), CheckpointError> {
        let live = self.choose_live(task, from, target, most);
        // The order matters for crashes: first copy the objects that stay, then switch to the new
        // log, then delete old packs.
        self.pack_log_objects(&live)?;
        let mut pruned = self.pruned.clone();
        for gone in &self.checkpoints {
            if !live.checkpoints.iter().any(|kept| kept.id == gone.id) {
                let through = pruned.entry(gone.mark.task.clone()).or_default();
                *through = gone.number.max(*through);
            }
        }
        self.write_log(&live, pruned)?;
        self.sweep_packs(&live)?;
        self.force_reload();
        self.refresh()
    }

    /// Chooses the checkpoints to keep, from the newest to the oldest, with the objects that they
    /// need.
    ///
    /// An object that several checkpoints share counts once, for the newest of them. Half of the
    /// limit is the target, so that pruning is rare.
    fn choose_live(&self, task: &str, from: Option<u32>, target: u64, most: u64) -> LiveSet {
        let mut live = LiveSet::default();
        let mut full = false;
        let mut own = 0;
        let mut cut = HashSet::new();
        for checkpoint in self.checkpoints.iter().rev() {
            let protected = checkpoint.mark.task == task && own < PROTECTED_CHECKPOINTS;
            own += usize::from(protected);
            let needed =
                checkpoint.mark.task == task && from.is_some_and(|from| checkpoint.number >= from);
            full |= live.checkpoints.len() >= MAX_CHECKPOINTS;
            // A restore needs an unbroken chain of checkpoints, so those older than a removed one
            // are useless.
            let ended = cut.contains(checkpoint.mark.task.as_str());
            if !needed && (ended || (full && !protected)) {
                cut.insert(checkpoint.mark.task.as_str());
                continue;
            }
            let mut added = HashMap::new();
            for root in [
                Some(checkpoint.before),
                checkpoint.after.map(|after| after.root),
            ]
            .into_iter()
            .flatten()
            {
                self.mark_reachable(root, &live.objects, &mut added);
            }
            let bytes: u64 = live.bytes + added.values().sum::<u64>();
            // The newest checkpoints of the running task may use more room, since an undo needs
            // them first.
            let room = if protected { most } else { target };
            // The newest one always stays: it may be needed next.
            if bytes <= room || needed || live.checkpoints.is_empty() {
                live.bytes = bytes;
                live.objects.extend(added);
                live.checkpoints.push(checkpoint.clone());
            } else {
                full = true;
                cut.insert(checkpoint.mark.task.as_str());
            }
        }
        live.checkpoints.reverse();
        live
    }

    /// Collects every object reachable from `root` that is not in `known`, with its size.
    fn mark_reachable(
        &self,
        root: ObjectId,
        known: &HashMap<ObjectId, u64>,
        added: &mut HashMap<ObjectId, u64>,
    ) {
        let mut left = vec![root];
        while let Some(id) = left.pop() {
            if known.contains_key(&id) || added.contains_key(&id) {
                continue;
            }
            // A missing object takes no space; reading it reports the error.
            let Some((_, span)) = self.index.get(&id) else {
                continue;
            };
            added.insert(id, span.length);
            let nodes: Vec<TreeNode> = match span.kind {
                ObjectKind::Content => continue,
                ObjectKind::Tree => self
                    .load_tree(&id)
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(_, node)| node)
                    .collect(),
                ObjectKind::PathStates => self
                    .load_path_states(&id)
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|(_, node)| node)
                    .collect(),
            };
            left.extend(nodes.iter().filter_map(|node| match node {
                TreeNode::File { content, .. } => Some(*content),
                TreeNode::Folder { tree, .. } => *tree,
                _ => None,
            }));
        }
    }

    /// Copies the live objects of the log into a pack, since the new log is written without
    /// objects.
    fn pack_log_objects(&mut self, live: &LiveSet) -> Result<(), CheckpointError> {
        self.repack_objects(live, ObjectLocation::Log)?;
        Ok(())
    }

    /// Copies the live objects of a file into a new pack, if there are any.
    fn repack_objects(
        &mut self,
        live: &LiveSet,
        from: ObjectLocation,
    ) -> Result<(), CheckpointError> {
        let needed = |id: &&ObjectId| live.objects.contains_key(*id);
        let on = self
            .index
            .iter()
            .filter(|(_, (location, _))| *location == from);
        let mut objects: Vec<_> = on
            .filter(|(id, _)| needed(id))
            .map(|(id, (_, span))| (*id, *span))
            .collect();
        if objects.is_empty() {
            return Ok(());
        }
        objects.sort_by_key(|(_, span)| span.offset);
        let folder = self.packs_folder();
        let number = self.next_pack_number();
        let fail = CheckpointError::io_error("write", &folder);
        let mut pack = PackWriter::create(&folder, number).map_err(&fail)?;
        for (id, span) in objects {
            // Skip damaged objects instead of storing them under a valid name.
            if let Ok(bytes) = self.read_object(&id) {
                pack.add_object(span.kind, id, &bytes).map_err(&fail)?;
            }
        }
        let (objects, size) = pack.finish(&folder, number).map_err(&fail)?;
        self.packs.insert(number, size);
        self.index.extend(
            objects
                .into_iter()
                .map(|(id, span)| (id, (ObjectLocation::Pack(number), span))),
        );
        Ok(())
    }

    /// Replaces the log by one with the checkpoints to keep. Once it is renamed, the others no
    /// longer exist.
    fn write_log(
        &mut self,
        live: &LiveSet,
        mut pruned: BTreeMap<String, u32>,
    ) -> Result<(), CheckpointError> {
        // Without a limit this map would grow for as long as the store exists.
        while pruned.len() > MAX_PRUNED_TASKS {
            // Task names begin with their time, so the first is the oldest.
            pruned.pop_first();
        }
        let mut records = vec![LogRecord::LastId { id: self.last_id }];
        records.extend(
            pruned
                .into_iter()
                .map(|(task, through)| LogRecord::Pruned { task, through }),
        );
        for checkpoint in &live.checkpoints {
            records.push(LogRecord::Taken(checkpoint.clone()));
            let sealed = checkpoint.after.map(|after| LogRecord::Sealed {
                id: checkpoint.id,
                after,
            });
            records.extend(sealed);
            let others = checkpoint.others.clone();
            records.extend(others.map(|others| LogRecord::Attributed {
                id: checkpoint.id,
                others,
            }));
        }
        let path = self.log_path();
        log::replace_log(&path, &records).map_err(CheckpointError::io_error("write", &path))
    }

    /// Removes packs without live objects, and rewrites packs of which less than three quarters is
    /// live.
    fn sweep_packs(&mut self, live: &LiveSet) -> Result<(), CheckpointError> {
        let mut needed: HashMap<u64, u64> = HashMap::new();
        for (id, (location, span)) in &self.index {
            if let (ObjectLocation::Pack(number), true) = (location, live.objects.contains_key(id))
            {
                *needed.entry(*number).or_default() += span.length;
            }
        }
        for (number, size) in self.packs.clone() {
            let needed = needed.get(&number).copied().unwrap_or(0);
            // Rewriting a mostly live pack would cost more than the space it frees.
            if needed > 0 && needed >= size / 4 * 3 {
                continue;
            }
            // Copied before the old pack is removed, so that a crash in between leaves duplicate
            // objects and loses none.
            self.repack_objects(live, ObjectLocation::Pack(number))?;
            let path = self.file_path(ObjectLocation::Pack(number));
            std::fs::remove_file(&path).map_err(CheckpointError::io_error("remove", &path))?;
            self.packs.remove(&number);
        }
        Ok(())
    }
}
