//! Manages the store: a folder of packs and one log, used by one process at a time.
//!
//! ```text
//! lock          held by the process that uses the store (flock)
//! log           the list of checkpoints, and small objects
//! packs/N.pack  all other objects
//! stamps        the metadata of files when they were last read; may be lost
//! workspace     the path of the workspace folder, for people
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::error::CheckpointError;
use super::log::{self, AppendDurability, InlineObject, LogRecord};
use super::object::{
    ObjectId, ObjectKind, PathStates, TreeEntries, decode_path_states, decode_tree,
    encode_path_states, encode_tree,
};
use super::pack::{self, ObjectSpan, PackWriter};
use super::{Checkpoint, StateAfter};

/// The number of bytes up to which a checkpoint's objects go into the log, which needs one sync
/// instead of three.
const INLINE_BYTES: u64 = 128 << 10;

/// The file that holds an object.
/// The index knows one location for each object, even while pruning copies it to another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectLocation {
    /// Inline in the log, after the record that was committed with it.
    Log,
    /// In the pack of this number.
    Pack(u64),
}

/// The in-memory index of the store's files.
#[derive(Debug, Default)]
pub(super) struct ObjectStore {
    pub(super) root: PathBuf,
    pub(super) index: HashMap<ObjectId, (ObjectLocation, ObjectSpan)>,
    /// The sizes of the pack files in bytes, including files that are not complete packs.
    pub(super) packs: BTreeMap<u64, u64>,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// The last call of each task whose checkpoint was removed.
    pub(super) pruned: BTreeMap<String, u32>,
    pub(super) log_bytes: u64,
    pub(super) last_id: u64,
    /// The inode of the log that this index was read from. Pruning replaces the file, so a new
    /// inode means that every offset is outdated.
    inode: u64,
    /// Objects that the next commit makes durable.
    pending: PendingObjects,
}

/// Objects that no committed checkpoint refers to yet.
/// They are in memory or in an unfinished pack, so a crash simply loses them.
#[derive(Debug, Default)]
struct PendingObjects {
    inline: Vec<InlineObject>,
    bytes: u64,
    known: HashSet<ObjectId>,
    pack: Option<(u64, PackWriter)>,
}

/// The exclusive right to use the store; other processes wait.
#[derive(Debug)]
pub(super) struct StoreLock(
    #[expect(dead_code, reason = "the lock lasts as long as the file is open")] File,
);

/// Waits for the store's lock. Returns `None` if the store does not exist and `create` is false.
pub(super) fn lock_store(root: &Path, create: bool) -> Result<Option<StoreLock>, CheckpointError> {
    if create {
        // Mode 0700: the store holds copies of files that may be private in the workspace.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root.join("packs"));
        made.map_err(CheckpointError::io_error("make", root))?;
    }
    let path = root.join("lock");
    let opened = File::options()
        .write(true)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !create => return Ok(None),
        opened => opened.map_err(CheckpointError::io_error("lock", &path))?,
    };
    // A signal interrupts the wait with EINTR; it is no reason to give up.
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            locked => {
                locked.map_err(|error| CheckpointError::io_error("lock", &path)(error.into()))?;
                break;
            }
        }
    }
    // The store may have been removed while this process waited; then the lock is on a file that is
    // no longer in it.
    let locked = file
        .metadata()
        .map_err(CheckpointError::io_error("lock", &path))?;
    match std::fs::metadata(&path) {
        Ok(found) if found.ino() == locked.ino() => Ok(Some(StoreLock(file))),
        _ => lock_store(root, create),
    }
}

impl ObjectStore {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            ..Self::default()
        }
    }

    /// Reads what other processes have written since. The caller must hold the lock.
    pub(super) fn refresh(&mut self) -> Result<(), CheckpointError> {
        self.discard_pending();
        let path = self.log_path();
        let found = std::fs::metadata(&path)
            .ok()
            .map(|found| (found.ino(), found.len()));
        // Nothing else writes without the lock, and every write changes the length or replaces the
        // file.
        if found.is_some() && found == Some((self.inode, self.log_bytes)) {
            return Ok(());
        }
        let contents = log::read_log(&path).map_err(CheckpointError::io_error("read", &path))?;
        let contents =
            contents.ok_or_else(|| CheckpointError::UnknownFormat { path: path.clone() })?;
        // Everything is rebuilt from the files, so nothing of an outdated state survives.
        let fresh = Self {
            inode: contents.inode,
            log_bytes: contents.good_bytes,
            ..Self::new(self.root.clone())
        };
        *self = fresh;
        self.read_packs()?;
        // The log comes after the packs, so the newest copy of an object wins.
        self.index.extend(
            contents
                .objects
                .into_iter()
                .map(|(id, span)| (id, (ObjectLocation::Log, span))),
        );
        contents
            .records
            .into_iter()
            .for_each(|record| self.apply_record(record));
        Ok(())
    }

    /// Reads the index of every pack, and removes unfinished ones. The caller must hold the lock.
    fn read_packs(&mut self) -> Result<(), CheckpointError> {
        let folder = self.packs_folder();
        let entries =
            std::fs::read_dir(&folder).map_err(CheckpointError::io_error("read", &folder))?;
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(pack::TEMP_END) {
                // The lock is held, so this is left over from a process that was killed.
                _ = std::fs::remove_file(folder.join(name));
            }
            let Some(number) = name
                .strip_suffix(pack::PACK_END)
                .and_then(|number| number.parse().ok())
            else {
                continue;
            };
            let path = folder.join(name);
            let (objects, size) =
                pack::read_index(&path).map_err(CheckpointError::io_error("read", &path))?;
            self.packs.insert(number, size);
            let objects = objects.into_iter().flatten();
            self.index
                .extend(objects.map(|(id, span)| (id, (ObjectLocation::Pack(number), span))));
        }
        Ok(())
    }

    /// Applies a record of the log to the list of checkpoints. A record that refers to an unknown
    /// checkpoint has no effect.
    fn apply_record(&mut self, record: LogRecord) {
        match record {
            LogRecord::Taken(checkpoint) => {
                self.last_id = self.last_id.max(checkpoint.id);
                self.checkpoints.push(checkpoint);
            }
            LogRecord::Sealed { id, after } => {
                let newest = self.last_id;
                if let Some(checkpoint) = self
                    .checkpoints
                    .iter_mut()
                    .rev()
                    .find(|checkpoint| checkpoint.id == id)
                {
                    checkpoint.after = Some(after);
                    checkpoint.newest_at_seal = newest;
                    // They were those of another state.
                    checkpoint.others = None;
                }
            }
            LogRecord::Attributed { id, others } => {
                let mut known = self.checkpoints.iter_mut().rev();
                if let Some(checkpoint) = known.find(|checkpoint| checkpoint.id == id) {
                    checkpoint.others = Some(others);
                }
            }
            LogRecord::Discarded { id } => {
                self.checkpoints.retain(|checkpoint| checkpoint.id != id)
            }
            LogRecord::Pruned { task, through } => {
                self.checkpoints.retain(|checkpoint| {
                    checkpoint.mark.task != task || checkpoint.number > through
                });
                self.pruned.insert(task, through);
            }
            LogRecord::LastId { id } => self.last_id = self.last_id.max(id),
        }
    }

    /// Appends a record together with all objects put since the last commit.
    pub(super) fn commit(
        &mut self,
        record: LogRecord,
        durable: AppendDurability,
    ) -> Result<(), CheckpointError> {
        // Pending objects go even after a failure: they belong to a checkpoint that does not exist.
        let committed = self.try_commit(&record, durable);
        self.discard_pending();
        committed?;
        self.apply_record(record);
        Ok(())
    }

    /// Finishes the pack, then appends the record. The order matters: the objects of a record in the log must exist.
    fn try_commit(
        &mut self,
        record: &LogRecord,
        durable: AppendDurability,
    ) -> Result<(), CheckpointError> {
        let folder = self.packs_folder();
        if let Some((number, pack)) = self.pending.pack.take() {
            let (objects, size) = pack
                .finish(&folder, number)
                .map_err(CheckpointError::io_error("write", &folder))?;
            self.packs.insert(number, size);
            self.index.extend(
                objects
                    .into_iter()
                    .map(|(id, span)| (id, (ObjectLocation::Pack(number), span))),
            );
        }
        let path = self.log_path();
        let (objects, size) =
            log::append_record(&path, self.log_bytes, record, &self.pending.inline, durable)
                .map_err(CheckpointError::io_error("write", &path))?;
        if self.inode == 0 {
            self.inode = std::fs::metadata(&path)
                .map_err(CheckpointError::io_error("read", &path))?
                .ino();
        }
        self.log_bytes = size;
        self.index.extend(
            objects
                .into_iter()
                .map(|(id, span)| (id, (ObjectLocation::Log, span))),
        );
        Ok(())
    }

    /// Drops objects that were put but not committed.
    pub(super) fn discard_pending(&mut self) {
        self.pending = PendingObjects::default();
    }

    /// Returns true if an object with this id is stored or about to be.
    pub(super) fn has_object(&self, id: &ObjectId) -> bool {
        self.index.contains_key(id) || self.pending.known.contains(id)
    }

    /// Adds an object, which becomes durable with the next [`commit`](Self::commit).
    pub(super) fn put_object(
        &mut self,
        kind: ObjectKind,
        bytes: Vec<u8>,
    ) -> Result<ObjectId, CheckpointError> {
        let id = ObjectId::hash_of(&bytes);
        if self.has_object(&id) {
            return Ok(id);
        }
        let folder = self.packs_folder();
        let fail = CheckpointError::io_error("write", &folder);
        self.pending.known.insert(id);
        self.pending.bytes += bytes.len() as u64;
        self.pending.inline.push((kind, id, bytes));
        // Large additions go to a pack, so the log stays small enough to be read at every start.
        if self.pending.bytes > INLINE_BYTES {
            let number = self.next_pack_number();
            let pack = match self.pending.pack.take() {
                Some((_, pack)) => pack,
                None => PackWriter::create(&folder, number).map_err(&fail)?,
            };
            let (_, pack) = self.pending.pack.insert((number, pack));
            for (kind, id, bytes) in self.pending.inline.drain(..) {
                pack.add_object(kind, id, &bytes).map_err(&fail)?;
            }
        }
        Ok(id)
    }

    /// Returns a number that no file uses, not even one that is not a complete pack.
    pub(super) fn next_pack_number(&self) -> u64 {
        self.packs.keys().next_back().map_or(1, |last| last + 1)
    }

    /// Reads an object and verifies its bytes against its id.
    pub(super) fn read_object(&self, id: &ObjectId) -> Result<Vec<u8>, CheckpointError> {
        let damaged = || CheckpointError::Damaged {
            object: id.to_string(),
        };
        if let Some((_, _, bytes)) = self.pending.inline.iter().find(|(_, known, _)| known == id) {
            return Ok(bytes.clone());
        }
        let &(location, span) = self.index.get(id).ok_or_else(damaged)?;
        let bytes = pack::read_span(&self.file_path(location), span).map_err(|_| damaged())?;
        // Verified at every read: a damaged disk must not restore wrong content.
        if ObjectId::hash_of(&bytes) == *id {
            Ok(bytes)
        } else {
            Err(damaged())
        }
    }

    /// Reads a folder; `Damaged` if the object is missing, wrong, or not a folder.
    pub(super) fn load_tree(&self, id: &ObjectId) -> Result<TreeEntries, CheckpointError> {
        decode_tree(&self.read_object(id)?).ok_or_else(|| CheckpointError::Damaged {
            object: id.to_string(),
        })
    }

    /// Reads the states of single paths; `Damaged` if the object is missing, wrong, or something
    /// else.
    pub(super) fn load_path_states(&self, id: &ObjectId) -> Result<PathStates, CheckpointError> {
        decode_path_states(&self.read_object(id)?).ok_or_else(|| CheckpointError::Damaged {
            object: id.to_string(),
        })
    }

    /// Adds a folder. One that is stored already, such as an unchanged one, takes no space.
    pub(super) fn put_tree(&mut self, tree: &TreeEntries) -> Result<ObjectId, CheckpointError> {
        self.put_object(ObjectKind::Tree, encode_tree(tree))
    }

    /// Adds the states of single paths.
    pub(super) fn put_path_states(
        &mut self,
        places: &PathStates,
    ) -> Result<ObjectId, CheckpointError> {
        self.put_object(ObjectKind::PathStates, encode_path_states(places))
    }

    /// Returns the size of the store in bytes, including uncommitted objects in a pack, without the
    /// stamps.
    pub(super) fn total_bytes(&self) -> u64 {
        let pending = self
            .pending
            .pack
            .as_ref()
            .map_or(0, |(_, pack)| pack.bytes_written());
        self.packs.values().sum::<u64>() + self.log_bytes + pending
    }

    /// Records the state after a call, without waiting for the disk.
    pub(super) fn commit_seal(
        &mut self,
        id: u64,
        after: StateAfter,
    ) -> Result<(), CheckpointError> {
        // If a crash of the machine loses this record, the next scan records the state again.
        self.commit(LogRecord::Sealed { id, after }, AppendDurability::Deferred)
    }

    /// Returns the path of the log. Its content decides which checkpoints exist.
    pub(super) fn log_path(&self) -> PathBuf {
        self.root.join("log")
    }

    pub(super) fn packs_folder(&self) -> PathBuf {
        self.root.join("packs")
    }

    /// Returns the path of the file at a location; spans are offsets into it.
    pub(super) fn file_path(&self, location: ObjectLocation) -> PathBuf {
        match location {
            ObjectLocation::Log => self.log_path(),
            ObjectLocation::Pack(number) => self.packs_folder().join(pack::pack_file_name(number)),
        }
    }

    /// Makes the next [`refresh`](Self::refresh) read everything.
    pub(super) fn force_reload(&mut self) {
        self.inode = 0;
        self.log_bytes = 0;
    }
}
