//! Looking at the workspace: whole, or at single paths. Everything is opened from the handle of the folder, name by name, and no
//! link is followed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::StoreLimits;
use super::error::CheckpointError;
use super::gitignore::GitignoreChain;
use super::object::{ObjectId, ObjectKind, OmitReason, PathStates, TreeEntries, TreeNode, encode_tree};
use super::stamps::{FileStamp, StampCache, StampEntry};
use super::store::ObjectStore;
use sabir_workspace::TEMP_START;
use sabir_workspace::sandbox::is_mask;

const MAX_DEPTH: u32 = 200;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What the looker may do with what it reads.
pub(super) enum SnapshotTarget<'a> {
    /// Put it into the store.
    Store(&'a mut ObjectStore),
    /// Know the folders, and only the ids of contents.
    Memory(&'a mut HashMap<ObjectId, TreeEntries>),
}

/// One look at the workspace.
pub(super) struct SnapshotScanner<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) keep: SnapshotTarget<'a>,
    pub(super) stamps: &'a mut StampCache,
    pub(super) caps: StoreLimits,
    /// Folders that are not the user's, by device and inode.
    pub(super) apart: &'a [(u64, u64)],
    pub(super) now_ms: u64,
    pub(super) stop: &'a AtomicBool,
    spent: ScanUsage,
}

/// How much of a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanDepth {
    None,
    All,
}

/// What a look has taken of the caps.
#[derive(Debug, Default)]
struct ScanUsage {
    bytes: u64,
    entries: u64,
    device: u64,
}

/// Where in the tree a look is.
#[derive(Clone, Copy)]
struct ScanPosition<'a> {
    path: &'a Path,
    depth: u32,
    rules: Option<&'a GitignoreChain<'a>>,
    /// Whether it is below an ignored folder, where no rule matters any more.
    ignored: bool,
}

impl<'a> SnapshotScanner<'a> {
    pub(super) fn new(
        (root, apart): (BorrowedFd<'a>, &'a [(u64, u64)]),
        keep: SnapshotTarget<'a>,
        stamps: &'a mut StampCache,
        (caps, now_ms): (StoreLimits, u64),
        stop: &'a AtomicBool,
    ) -> Self {
        Self { root, keep, stamps, caps, apart, now_ms, stop, spent: ScanUsage::default() }
    }

    /// Everything. The id of the root's tree.
    pub(super) fn scan_workspace(&mut self) -> Result<ObjectId, CheckpointError> {
        let fail = |error: Errno| CheckpointError::io_error("read", Path::new("."))(error.into());
        let folder = rustix::fs::openat(self.root, ".", FOLDER, Mode::empty()).map_err(fail)?;
        self.spent = ScanUsage { device: rustix::fs::fstat(&folder).map_err(fail)?.st_dev, ..ScanUsage::default() };
        let before = std::mem::take(&mut self.stamps.folders);
        let known = StampCache { folders: before, fresh: self.stamps.fresh };
        let here = ScanPosition { path: Path::new(""), depth: 0, rules: None, ignored: false };
        let looked = self.scan_folder(folder.as_fd(), here, &known);
        if looked.is_err() {
            self.stamps.folders = known.folders;
        }
        let tree = looked?.ok_or_else(|| fail(Errno::ACCESS))?;
        self.keep_tree(tree)
    }

    /// Single paths, and the folders above them. Of a folder with none of these paths in it, all that it holds.
    pub(super) fn scan_paths(&mut self, paths: &[PathBuf]) -> Result<PathStates, CheckpointError> {
        self.scan_each(paths, ScanDepth::All)
    }

    /// Single paths, and the folders above them; of folders only themselves.
    pub(super) fn scan_paths_shallow(&mut self, paths: &[PathBuf]) -> Result<PathStates, CheckpointError> {
        self.scan_each(paths, ScanDepth::None)
    }

    fn scan_each(&mut self, paths: &[PathBuf], depth: ScanDepth) -> Result<PathStates, CheckpointError> {
        let above = |path: &PathBuf| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
        let mut wanted: Vec<PathBuf> =
            paths.iter().flat_map(above).filter(|path| !path.as_os_str().is_empty()).collect();
        wanted.sort();
        wanted.dedup();
        let mut places = PathStates::new();
        let mut cached: Option<(PathBuf, OwnedFd)> = None;
        for (at, path) in wanted.iter().enumerate() {
            self.check_stop()?;
            let last = wanted.get(at + 1).is_none_or(|next| !next.starts_with(path));
            let node = self.scan_path(path, if last { depth } else { ScanDepth::None }, &mut cached)?;
            places.push((path.clone(), node));
        }
        Ok(places)
    }

    fn scan_path(
        &mut self,
        path: &Path,
        depth: ScanDepth,
        cached: &mut Option<(PathBuf, OwnedFd)>,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Some(TreeNode::Folder { mode: 0o755, tree: None }));
        };
        if cached.as_ref().is_none_or(|(known, _)| known != parent) {
            *cached = open_folder(self.root, parent).map(|folder| (parent.to_path_buf(), folder));
        }
        let Some((_, folder)) = cached else { return Ok(None) };
        let found = match stat_entry(folder.as_fd(), name) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(_) => return Ok(Some(omitted_node(OmitReason::Unreadable, false))),
        };
        self.spent.device = found.st_dev;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory && depth == ScanDepth::None {
            return Ok(Some(TreeNode::Folder { mode: folder_mode(&found), tree: None }));
        }
        let known = std::mem::take(self.stamps);
        let mut fresh = Vec::new();
        let here = ScanPosition { path, depth: 0, rules: None, ignored: false };
        let node = self.scan_node((folder.as_fd(), name), &found, here, (&known, &mut fresh));
        // What single paths look like is not worth remembering.
        *self.stamps = known;
        node
    }

    fn scan_folder(
        &mut self,
        folder: BorrowedFd<'_>,
        here: ScanPosition<'_>,
        known: &StampCache,
    ) -> Result<Option<TreeEntries>, CheckpointError> {
        self.check_stop()?;
        let Ok(names) = list_names(folder) else { return Ok(None) };
        let rules = (!here.ignored).then(|| GitignoreChain::load_folder(folder, here.path, &names, here.rules));
        let mut tree = TreeEntries::with_capacity(names.len());
        let mut fresh = Vec::new();
        for name in names {
            if name.as_os_str().as_bytes().starts_with(TEMP_START.as_bytes()) || is_mask(folder, name.as_os_str()) {
                continue;
            }
            let found = match stat_entry(folder, name.as_os_str()) {
                Ok(found) => found,
                // What is gone since a moment ago was never there.
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    tree.push((name, omitted_node(OmitReason::Unreadable, false)));
                    continue;
                }
            };
            if self.apart.contains(&(found.st_dev, found.st_ino)) {
                continue;
            }
            let path = here.path.join(&name);
            let inner =
                ScanPosition { path: &path, depth: here.depth + 1, rules: rules.as_ref(), ignored: here.ignored };
            if let Some(node) = self.scan_node((folder, name.as_os_str()), &found, inner, (known, &mut fresh))? {
                tree.push((name, node));
            }
        }
        if !fresh.is_empty() {
            self.stamps.folders.insert(here.path.to_path_buf(), fresh);
        }
        Ok(Some(tree))
    }

    fn scan_node(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        here: ScanPosition<'_>,
        (known, fresh): (&StampCache, &mut Vec<StampEntry>),
    ) -> Result<Option<TreeNode>, CheckpointError> {
        self.spent.entries += 1;
        Ok(Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => return self.scan_file((folder, name), found, here.path, (known, fresh)),
            FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
                Ok(target) => TreeNode::Link { target: std::ffi::OsString::from_vec(target.into_bytes()).into() },
                Err(_) => return Ok(None),
            },
            FileType::Directory => return self.scan_subfolder((folder, name), found, here, known),
            _ => TreeNode::Special,
        }))
    }

    fn scan_subfolder(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        here: ScanPosition<'_>,
        known: &StampCache,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let left = |why| Ok(Some(omitted_node(why, true)));
        if found.st_dev != self.spent.device {
            return left(OmitReason::OtherFileSystem);
        }
        if here.depth > MAX_DEPTH {
            return left(OmitReason::TooDeep);
        }
        if self.spent.entries > self.caps.entries {
            return left(OmitReason::CheckpointFull);
        }
        let inner = match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
            Ok(inner) => inner,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(_) => return left(OmitReason::Unreadable),
        };
        let ignored = !here.ignored && here.rules.is_some_and(|rules| rules.ignores_folder(here.path));
        if ignored {
            let mut room = (self.caps.ignored_entries, self.caps.ignored_bytes);
            if !self.fits_limits(inner.as_fd(), &mut room, here.depth)? {
                return left(OmitReason::Ignored);
            }
        }
        let here = ScanPosition { ignored: here.ignored || ignored, ..here };
        let Some(tree) = self.scan_folder(inner.as_fd(), here, known)? else { return left(OmitReason::Unreadable) };
        let tree = self.keep_tree(tree)?;
        Ok(Some(TreeNode::Folder { mode: folder_mode(found), tree: Some(tree) }))
    }

    /// Whether what a folder holds fits into that many entries and bytes. Looks no further than that.
    fn fits_limits(&self, folder: BorrowedFd<'_>, room: &mut (u64, u64), depth: u32) -> Result<bool, CheckpointError> {
        self.check_stop()?;
        let Ok(names) = list_names(folder) else { return Ok(true) };
        for name in names {
            let Ok(found) = stat_entry(folder, name.as_os_str()) else { continue };
            let size = match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => found.st_size.cast_unsigned(),
                _ => 0,
            };
            let (Some(entries), Some(bytes)) = (room.0.checked_sub(1), room.1.checked_sub(size)) else {
                return Ok(false);
            };
            *room = (entries, bytes);
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory
                && depth < MAX_DEPTH
                && let Ok(inner) = rustix::fs::openat(folder, name, FOLDER, Mode::empty())
                && !self.fits_limits(inner.as_fd(), room, depth + 1)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn scan_file(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        path: &Path,
        (known, fresh): (&StampCache, &mut Vec<StampEntry>),
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let size = found.st_size.cast_unsigned();
        let stamp = FileStamp::from_stat(found);
        let left = |why| Ok(Some(TreeNode::Omitted { why, folder: false, size, stamp: stamp.to_number() }));
        if size > self.caps.file_bytes {
            return left(OmitReason::TooLarge);
        }
        if self.spent.bytes.saturating_add(size) > self.caps.checkpoint_bytes()
            || self.spent.entries > self.caps.entries
        {
            return left(OmitReason::CheckpointFull);
        }
        let mode = found.st_mode & 0o1777;
        let parent = path.parent().unwrap_or(path);
        let remembered = known.find_content(parent, Path::new(name), stamp).filter(|content| match &self.keep {
            SnapshotTarget::Store(store) => store.has_object(content),
            SnapshotTarget::Memory(_) => true,
        });
        if let Some(content) = remembered {
            self.spent.bytes += size;
            fresh.push(StampEntry { name: name.into(), stamp, content });
            return Ok(Some(TreeNode::File { mode, size, content }));
        }
        let file = match rustix::fs::openat(folder, name, FILE, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return left(OmitReason::Unreadable),
        };
        let Ok(opened) = rustix::fs::fstat(&file) else { return left(OmitReason::Unreadable) };
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return left(OmitReason::Unreadable);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        if (&file).take(self.caps.file_bytes + 1).read_to_end(&mut bytes).is_err() {
            return left(OmitReason::Unreadable);
        }
        let size = bytes.len() as u64;
        if size > self.caps.file_bytes {
            return left(OmitReason::TooLarge);
        }
        self.spent.bytes += size;
        let content = match &mut self.keep {
            SnapshotTarget::Store(store) => store.put_object(ObjectKind::Content, bytes)?,
            SnapshotTarget::Memory(_) => ObjectId::hash_of(&bytes),
        };
        self.stamps.fresh += 1;
        let still =
            rustix::fs::fstat(&file).is_ok_and(|after| FileStamp::from_stat(&after) == FileStamp::from_stat(&opened));
        let stamp = FileStamp::from_stat(&opened);
        if still && stamp.is_quiet(self.now_ms) {
            fresh.push(StampEntry { name: name.into(), stamp, content });
        }
        Ok(Some(TreeNode::File { mode, size, content }))
    }

    fn keep_tree(&mut self, tree: TreeEntries) -> Result<ObjectId, CheckpointError> {
        match &mut self.keep {
            SnapshotTarget::Store(store) => store.put_tree(&tree),
            SnapshotTarget::Memory(trees) => {
                let id = ObjectId::hash_of(&encode_tree(&tree));
                trees.insert(id, tree);
                Ok(id)
            }
        }
    }

    fn check_stop(&self) -> Result<(), CheckpointError> {
        if self.stop.load(Ordering::Relaxed) { Err(CheckpointError::Cancelled) } else { Ok(()) }
    }
}

/// Opens a folder name by name; none may be a link. `None`: it is not there, or cannot be entered.
pub(super) fn open_folder(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let mut folder = rustix::fs::openat(root, ".", FOLDER, Mode::empty()).ok()?;
    for name in path {
        folder = rustix::fs::openat(&folder, name, FOLDER, Mode::empty()).ok()?;
    }
    Some(folder)
}

pub(super) fn stat_entry(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn folder_mode(found: &Stat) -> u32 {
    found.st_mode & 0o3777
}

fn omitted_node(why: OmitReason, folder: bool) -> TreeNode {
    TreeNode::Omitted { why, folder, size: 0, stamp: 0 }
}

/// The names in a folder, in the order of their bytes.
fn list_names(folder: BorrowedFd<'_>) -> Result<Vec<PathBuf>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    names.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(names)
}
