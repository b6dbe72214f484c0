//! Keeping the store under its cap: the oldest checkpoints go, and with them what only they held.
//!
//! What is kept is written anew before what is removed goes, so a crash in between costs disk space until the next time, and no
//! checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::error::CheckpointError;
use super::log::{self, LogRecord};
use super::object::{ObjectId, ObjectKind, TreeNode};
use super::pack::PackWriter;
use super::store::{ObjectLocation, ObjectStore};
use super::{Checkpoint, CheckpointStore, LockedStore};

/// The newest checkpoints of the task at work outlive older ones of others, as long as there is room at all.
const PROTECTED_CHECKPOINTS: usize = 3;
/// A log beyond this is read too slowly.
const MAX_LOG_BYTES: u64 = 32 << 20;
/// More checkpoints than this are looked through too slowly.
const MAX_CHECKPOINTS: usize = 5000;
/// Tasks whose removed checkpoints are remembered.
const MAX_PRUNED_TASKS: usize = 1000;

/// What stays.
#[derive(Default)]
struct LiveSet {
    objects: HashMap<ObjectId, u64>,
    bytes: u64,
    checkpoints: Vec<Checkpoint>,
}

impl CheckpointStore {
    /// Sees to it that the next checkpoint fits: it takes at most a quarter of the cap. What the task did from the call of the
    /// number `from` on stays in any case: somebody is about to go back there.
    pub(super) fn make_room(
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
        store.prune_to((task, from), cap / 2, cap / 4 * 3)
    }
}

impl ObjectStore {
    /// The number of a task's next checkpoint.
    pub(super) fn next_number(&self, task: &str) -> u32 {
        let own = self.checkpoints.iter().filter(|checkpoint| checkpoint.mark.task == task);
        let last = own.map(|checkpoint| checkpoint.number).max().unwrap_or(0);
        last.max(self.pruned.get(task).copied().unwrap_or(0)) + 1
    }

    /// Keeps the newest checkpoints that fit into `target` bytes, and the newest few of this task if they fit into `most`.
    fn prune_to(&mut self, needed: (&str, Option<u32>), target: u64, most: u64) -> Result<(), CheckpointError> {
        let live = self.choose_live(needed, target, most);
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

    fn choose_live(&self, (task, from): (&str, Option<u32>), target: u64, most: u64) -> LiveSet {
        let mut live = LiveSet::default();
        let mut full = false;
        let mut own = 0;
        let mut cut = HashSet::new();
        for checkpoint in self.checkpoints.iter().rev() {
            let protected = checkpoint.mark.task == task && own < PROTECTED_CHECKPOINTS;
            own += usize::from(protected);
            let needed = checkpoint.mark.task == task && from.is_some_and(|from| checkpoint.number >= from);
            full |= live.checkpoints.len() >= MAX_CHECKPOINTS;
            // Behind a checkpoint that goes, no older one of its task is of use.
            let ended = cut.contains(checkpoint.mark.task.as_str());
            if !needed && (ended || (full && !protected)) {
                cut.insert(checkpoint.mark.task.as_str());
                continue;
            }
            let mut added = HashMap::new();
            for root in [Some(checkpoint.before), checkpoint.after.map(|after| after.root)].into_iter().flatten() {
                self.mark_reachable(root, &live.objects, &mut added);
            }
            let bytes: u64 = live.bytes + added.values().sum::<u64>();
            let room = if protected { most } else { target };
            // The newest one stays in any case: somebody may be about to need it.
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

    /// Everything that a root holds and that is not known yet.
    fn mark_reachable(&self, root: ObjectId, known: &HashMap<ObjectId, u64>, added: &mut HashMap<ObjectId, u64>) {
        let mut left = vec![root];
        while let Some(id) = left.pop() {
            if known.contains_key(&id) || added.contains_key(&id) {
                continue;
            }
            // What is missing takes no room; that it is missing is said to whoever needs it.
            let Some((_, span)) = self.index.get(&id) else { continue };
            added.insert(id, span.length);
            let nodes: Vec<TreeNode> = match span.kind {
                ObjectKind::Content => continue,
                ObjectKind::Tree => self.load_tree(&id).unwrap_or_default().into_iter().map(|(_, node)| node).collect(),
                ObjectKind::PathStates => {
                    self.load_path_states(&id).unwrap_or_default().into_iter().filter_map(|(_, node)| node).collect()
                }
            };
            left.extend(nodes.iter().filter_map(|node| match node {
                TreeNode::File { content, .. } => Some(*content),
                TreeNode::Folder { tree, .. } => *tree,
                _ => None,
            }));
        }
    }

    /// Moves what is needed of the log's objects into a pack, since the log is written without them.
    fn pack_log_objects(&mut self, live: &LiveSet) -> Result<(), CheckpointError> {
        self.repack_objects(live, ObjectLocation::Log)?;
        Ok(())
    }

    /// Writes the needed objects of a file into a new pack, if there are any.
    fn repack_objects(&mut self, live: &LiveSet, from: ObjectLocation) -> Result<(), CheckpointError> {
        let needed = |id: &&ObjectId| live.objects.contains_key(*id);
        let on = self.index.iter().filter(|(_, (shelf, _))| *shelf == from);
        let mut objects: Vec<_> = on.filter(|(id, _)| needed(id)).map(|(id, (_, span))| (*id, *span)).collect();
        if objects.is_empty() {
            return Ok(());
        }
        objects.sort_by_key(|(_, span)| span.offset);
        let folder = self.packs_folder();
        let number = self.next_pack_number();
        let fail = CheckpointError::io_error("write", &folder);
        let mut pack = PackWriter::create(&folder, number).map_err(&fail)?;
        for (id, span) in objects {
            // A damaged object is not carried on under a good name.
            if let Ok(bytes) = self.read_object(&id) {
                pack.add_object(span.kind, id, &bytes).map_err(&fail)?;
            }
        }
        let (objects, size) = pack.finish(&folder, number).map_err(&fail)?;
        self.packs.insert(number, size);
        self.index.extend(objects.into_iter().map(|(id, span)| (id, (ObjectLocation::Pack(number), span))));
        Ok(())
    }

    fn write_log(&mut self, live: &LiveSet, mut pruned: BTreeMap<String, u32>) -> Result<(), CheckpointError> {
        while pruned.len() > MAX_PRUNED_TASKS {
            // Names of tasks begin with their time.
            pruned.pop_first();
        }
        let mut records = vec![LogRecord::LastId { id: self.last_id }];
        records.extend(pruned.into_iter().map(|(task, through)| LogRecord::Pruned { task, through }));
        for checkpoint in &live.checkpoints {
            records.push(LogRecord::Taken(checkpoint.clone()));
            let sealed = checkpoint.after.map(|after| LogRecord::Sealed { id: checkpoint.id, after });
            records.extend(sealed);
        }
        let path = self.log_path();
        log::replace_log(&path, &records).map_err(CheckpointError::io_error("write", &path))
    }

    /// Removes packs that nobody needs, and writes those anew of which little is needed.
    fn sweep_packs(&mut self, live: &LiveSet) -> Result<(), CheckpointError> {
        let mut needed: HashMap<u64, u64> = HashMap::new();
        for (id, (shelf, span)) in &self.index {
            if let (ObjectLocation::Pack(number), true) = (shelf, live.objects.contains_key(id)) {
                *needed.entry(*number).or_default() += span.length;
            }
        }
        for (number, size) in self.packs.clone() {
            let needed = needed.get(&number).copied().unwrap_or(0);
            if needed > 0 && needed >= size / 4 * 3 {
                continue;
            }
            self.repack_objects(live, ObjectLocation::Pack(number))?;
            let path = self.file_path(ObjectLocation::Pack(number));
            std::fs::remove_file(&path).map_err(CheckpointError::io_error("remove", &path))?;
            self.packs.remove(&number);
        }
        Ok(())
    }
}
