//! Scans the whole workspace or single paths. Everything is opened from the handle of the workspace
//! folder, name by name, and no link is followed.

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
use super::object::{
    ObjectId, ObjectKind, OmitReason, PathStates, TreeEntries, TreeNode, encode_tree,
};
use super::platform;
use super::stamps::{FileStamp, StampCache, StampEntry};
use super::store::ObjectStore;
use sabir_workspace::TEMP_START;
use sabir_workspace::sandbox::is_mask;

// Deeper folders are recorded as omitted, which bounds the recursion.
const MAX_DEPTH: u32 = 200;
/// The flags for opening a folder. `O_NOFOLLOW` with `O_DIRECTORY` fails on a link, so no name that
/// is replaced by a link during the scan can lead out of the workspace.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The flags for opening a file. `O_NONBLOCK`, because opening a FIFO for reading blocks until somebody writes to it; `O_NOCTTY`, because a
/// terminal device must not become the controlling terminal.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The destination of scanned content.
pub(super) enum SnapshotTarget<'a> {
    /// Content and folders go into the store.
    Store(&'a mut ObjectStore),
    /// Folders are kept in memory, and of contents only the ids.
    Memory(&'a mut HashMap<ObjectId, TreeEntries>),
}

/// A scan of the workspace.
///
/// It holds no lock on the files. A file that changes during the scan is recorded with the content that was read; the state after the call
/// has later changes.
pub(super) struct SnapshotScanner<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) keep: SnapshotTarget<'a>,
    pub(super) stamps: &'a mut StampCache,
    pub(super) caps: StoreLimits,
    /// Folders to leave out (the program's own files), by device and inode.
    pub(super) excluded: &'a [(u64, u64)],
    pub(super) now_ms: u64,
    pub(super) stop: &'a AtomicBool,
    spent: ScanUsage,
}

/// The depth at which a folder is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanDepth {
    /// The entry itself; of a folder only its mode.
    None,
    /// A folder with everything below it.
    All,
}

/// The amounts that a scan has used, and the device that it stays on.
#[derive(Debug, Default)]
struct ScanUsage {
    /// The bytes of file contents so far, cached ones included.
    bytes: u64,
    /// The number of files and folders so far.
    entries: u64,
    device: u64,
}

/// The position of a scan in the tree.
#[derive(Clone, Copy)]
struct ScanPosition<'a> {
    path: &'a Path,
    depth: u32,
    rules: Option<&'a GitignoreChain<'a>>,
    /// True below an ignored folder, where no further rules apply.
    ignored: bool,
}

impl<'a> SnapshotScanner<'a> {
    pub(super) fn new(
        root: BorrowedFd<'a>,
        excluded: &'a [(u64, u64)],
        keep: SnapshotTarget<'a>,
        stamps: &'a mut StampCache,
        caps: StoreLimits,
        now_ms: u64,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            root,
            keep,
            stamps,
            caps,
            excluded,
            now_ms,
            stop,
            spent: ScanUsage::default(),
        }
    }

    /// Scans everything. Returns the id of the root's tree.
    pub(super) fn scan_workspace(&mut self) -> Result<ObjectId, CheckpointError> {
        let fail = |error: Errno| CheckpointError::io_error("read", Path::new("."))(error.into());
        let folder = rustix::fs::openat(self.root, ".", FOLDER, Mode::empty()).map_err(fail)?;
        self.spent = ScanUsage {
            device: platform::device_number(&rustix::fs::fstat(&folder).map_err(fail)?),
            ..ScanUsage::default()
        };
        // The cache is rebuilt from this scan, so that entries of removed files disappear; a failed
        // scan keeps the old one.
        let before = std::mem::take(&mut self.stamps.folders);
        let known = StampCache {
            folders: before,
            fresh: self.stamps.fresh,
        };
        let here = ScanPosition {
            path: Path::new(""),
            depth: 0,
            rules: None,
            ignored: false,
        };
        let scanned = self.scan_folder(folder.as_fd(), here, &known);
        if scanned.is_err() {
            self.stamps.folders = known.folders;
        }
        let tree = scanned?.ok_or_else(|| fail(Errno::ACCESS))?;
        self.keep_tree(tree)
    }

    /// Scans single paths and the folders above them. A named folder that contains none of the
    /// other paths is scanned with everything in it.
    pub(super) fn scan_paths(&mut self, paths: &[PathBuf]) -> Result<PathStates, CheckpointError> {
        self.scan_each(paths, ScanDepth::All)
    }

    /// Scans single paths and the folders above them, without the content of folders.
    pub(super) fn scan_paths_shallow(
        &mut self,
        paths: &[PathBuf],
    ) -> Result<PathStates, CheckpointError> {
        self.scan_each(paths, ScanDepth::None)
    }

    /// Scans paths in sorted order; `depth` applies to those that contain no other wanted path.
    fn scan_each(
        &mut self,
        paths: &[PathBuf],
        depth: ScanDepth,
    ) -> Result<PathStates, CheckpointError> {
        let above = |path: &PathBuf| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
        let mut wanted: Vec<PathBuf> = paths
            .iter()
            .flat_map(above)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        wanted.sort();
        wanted.dedup();
        let mut places = PathStates::new();
        let mut cached: Option<(PathBuf, OwnedFd)> = None;
        // `wanted` is sorted, so a path with others below it comes right before them.
        for (at, path) in wanted.iter().enumerate() {
            self.check_stop()?;
            let last = wanted
                .get(at + 1)
                .is_none_or(|next| !next.starts_with(path));
            let node = self.scan_path(
                path,
                if last { depth } else { ScanDepth::None },
                &mut cached,
            )?;
            places.push((path.clone(), node));
        }
        Ok(places)
    }

    /// Scans one path; `None` if nothing is there. `cached` holds the folder that was opened last,
    /// since sorted paths often share their parent.
    fn scan_path(
        &mut self,
        path: &Path,
        depth: ScanDepth,
        cached: &mut Option<(PathBuf, OwnedFd)>,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Some(TreeNode::Folder {
                mode: 0o755,
                tree: None,
            }));
        };
        if cached.as_ref().is_none_or(|(known, _)| known != parent) {
            *cached = open_folder(self.root, parent).map(|folder| (parent.to_path_buf(), folder));
        }
        let Some((_, folder)) = cached else {
            return Ok(None);
        };
        let found = match stat_entry(folder.as_fd(), name) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(_) => return Ok(Some(omitted_node(OmitReason::Unreadable, false))),
        };
        self.spent.device = platform::device_number(&found);
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory && depth == ScanDepth::None
        {
            return Ok(Some(TreeNode::Folder {
                mode: folder_mode(&found),
                tree: None,
            }));
        }
        let known = std::mem::take(self.stamps);
        let mut fresh = Vec::new();
        let here = ScanPosition {
            path,
            depth: 0,
            rules: None,
            ignored: false,
        };
        let node = self.scan_node(folder.as_fd(), name, &found, here, &known, &mut fresh);
        // A scan of single paths does not update the cache.
        *self.stamps = known;
        node
    }

    /// Scans a folder and everything in it; `None` if it cannot be listed.
    fn scan_folder(
        &mut self,
        folder: BorrowedFd<'_>,
        here: ScanPosition<'_>,
        known: &StampCache,
    ) -> Result<Option<TreeEntries>, CheckpointError> {
        self.check_stop()?;
        let Ok(names) = list_names(folder) else {
            return Ok(None);
        };
        let rules = (!here.ignored)
            .then(|| GitignoreChain::load_folder(folder, here.path, &names, here.rules));
        let mut tree = TreeEntries::with_capacity(names.len());
        let mut fresh = Vec::new();
        for name in names {
            // Temporary files of atomic writes and the sandbox's mount points are not part of the
            // workspace.
            if name
                .as_os_str()
                .as_bytes()
                .starts_with(TEMP_START.as_bytes())
                || is_mask(folder, name.as_os_str())
            {
                continue;
            }
            let found = match stat_entry(folder, name.as_os_str()) {
                Ok(found) => found,
                // The file was removed after the folder was listed.
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    tree.push((name, omitted_node(OmitReason::Unreadable, false)));
                    continue;
                }
            };
            // Compared by inode: a bind mount or another spelling of the path is the same folder.
            if self
                .excluded
                .contains(&(platform::device_number(&found), found.st_ino))
            {
                continue;
            }
            let path = here.path.join(&name);
            let inner = ScanPosition {
                path: &path,
                depth: here.depth + 1,
                rules: rules.as_ref(),
                ignored: here.ignored,
            };
            if let Some(node) =
                self.scan_node(folder, name.as_os_str(), &found, inner, known, &mut fresh)?
            {
                tree.push((name, node));
            }
        }
        if !fresh.is_empty() {
            self.stamps.folders.insert(here.path.to_path_buf(), fresh);
        }
        Ok(Some(tree))
    }

    /// Scans one entry of a folder; `None` if it disappeared meanwhile. Files that were read or
    /// recognized are added to `fresh`.
    fn scan_node(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        found: &Stat,
        here: ScanPosition<'_>,
        known: &StampCache,
        fresh: &mut Vec<StampEntry>,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        self.spent.entries += 1;
        Ok(Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                return self.scan_file(folder, name, found, here.path, known, fresh);
            }
            FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
                Ok(target) => TreeNode::Link {
                    target: std::ffi::OsString::from_vec(target.into_bytes()).into(),
                },
                Err(_) => return Ok(None),
            },
            FileType::Directory => return self.scan_subfolder(folder, name, found, here, known),
            _ => TreeNode::Special,
        }))
    }

    /// Scans a folder inside a folder, unless a limit or an ignore rule leaves it out.
    fn scan_subfolder(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        found: &Stat,
        here: ScanPosition<'_>,
        known: &StampCache,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let left = |why| Ok(Some(omitted_node(why, true)));
        // A mount point: its content may be huge, and a restore would write to another file system.
        if platform::device_number(found) != self.spent.device {
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
            // Gone, or replaced by a file or a link since it was listed (ENOTDIR or ELOOP).
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(_) => return left(OmitReason::Unreadable),
        };
        let ignored = !here.ignored
            && here
                .rules
                .is_some_and(|rules| rules.ignores_folder(here.path));
        if ignored {
            let mut room = (self.caps.ignored_entries, self.caps.ignored_bytes);
            if !self.fits_limits(inner.as_fd(), &mut room, here.depth)? {
                return left(OmitReason::Ignored);
            }
        }
        let here = ScanPosition {
            ignored: here.ignored || ignored,
            ..here
        };
        let Some(tree) = self.scan_folder(inner.as_fd(), here, known)? else {
            return left(OmitReason::Unreadable);
        };
        let tree = self.keep_tree(tree)?;
        Ok(Some(TreeNode::Folder {
            mode: folder_mode(found),
            tree: Some(tree),
        }))
    }

    /// Returns true if the content of a folder fits into `room` (entries, bytes). Stops as soon as
    /// it does not.
    fn fits_limits(
        &self,
        folder: BorrowedFd<'_>,
        room: &mut (u64, u64),
        depth: u32,
    ) -> Result<bool, CheckpointError> {
        self.check_stop()?;
        let Ok(names) = list_names(folder) else {
            return Ok(true);
        };
        for name in names {
            let Ok(found) = stat_entry(folder, name.as_os_str()) else {
                continue;
            };
            let size = match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => found.st_size.cast_unsigned(),
                _ => 0,
            };
            let (Some(entries), Some(bytes)) = (room.0.checked_sub(1), room.1.checked_sub(size))
            else {
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

    /// Records one file: from the cache if its stamp is unchanged, else by reading it.
    fn scan_file(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        found: &Stat,
        path: &Path,
        known: &StampCache,
        fresh: &mut Vec<StampEntry>,
    ) -> Result<Option<TreeNode>, CheckpointError> {
        let size = found.st_size.cast_unsigned();
        let stamp = FileStamp::from_stat(found);
        let left = |why| {
            Ok(Some(TreeNode::Omitted {
                why,
                folder: false,
                size,
                stamp: stamp.to_number(),
            }))
        };
        if size > self.caps.file_bytes {
            return left(OmitReason::TooLarge);
        }
        if self.spent.bytes.saturating_add(size) > self.caps.checkpoint_bytes()
            || self.spent.entries > self.caps.entries
        {
            return left(OmitReason::CheckpointFull);
        }
        // Without set-user-id and set-group-id: a restore must not bring back a program with
        // privileges.
        let mode = platform::mode_bits(found) & 0o1777;
        let parent = path.parent().unwrap_or(path);
        let remembered = known
            .find_content(parent, Path::new(name), stamp)
            // The cache can outlive the object: pruning removes content whose file is still
            // unchanged.
            .filter(|content| match &self.keep {
                SnapshotTarget::Store(store) => store.has_object(content),
                SnapshotTarget::Memory(_) => true,
            });
        if let Some(content) = remembered {
            self.spent.bytes += size;
            fresh.push(StampEntry {
                name: name.into(),
                stamp,
                content,
            });
            return Ok(Some(TreeNode::File {
                mode,
                size,
                content,
            }));
        }
        let file = match rustix::fs::openat(folder, name, FILE, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return left(OmitReason::Unreadable),
        };
        // The name may lead to another file by now, so the opened file is checked again.
        let Ok(opened) = rustix::fs::fstat(&file) else {
            return left(OmitReason::Unreadable);
        };
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return left(OmitReason::Unreadable);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        if (&file)
            // One byte more than the limit, so that a file that grew meanwhile is noticed.
            .take(self.caps.file_bytes + 1)
            .read_to_end(&mut bytes)
            .is_err()
        {
            return left(OmitReason::Unreadable);
        }
        // The file may have grown or shrunk since it was listed; the bytes that were read count.
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
        // A file that changed while it was read must not be cached with this content.
        let still = rustix::fs::fstat(&file)
            .is_ok_and(|after| FileStamp::from_stat(&after) == FileStamp::from_stat(&opened));
        // The stamp is that of the opened file, taken before it was read.
        let stamp = FileStamp::from_stat(&opened);
        if still && stamp.is_stable(self.now_ms) {
            fresh.push(StampEntry {
                name: name.into(),
                stamp,
                content,
            });
        }
        Ok(Some(TreeNode::File {
            mode,
            size,
            content,
        }))
    }

    /// Keeps a folder's entries in the store or in memory. Both give the same id for the same
    /// folder, so states from either can be compared.
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

    /// Returns `Cancelled` once the caller has asked the scan to stop.
    fn check_stop(&self) -> Result<(), CheckpointError> {
        if self.stop.load(Ordering::Relaxed) {
            Err(CheckpointError::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Opens a folder name by name, none of which may be a link. Returns `None` if it is missing or
/// cannot be entered.
pub(super) fn open_folder(root: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let mut folder = rustix::fs::openat(root, ".", FOLDER, Mode::empty()).ok()?;
    for name in path {
        folder = rustix::fs::openat(&folder, name, FOLDER, Mode::empty()).ok()?;
    }
    Some(folder)
}

/// Returns the metadata of an entry, of a link itself if it is one.
pub(super) fn stat_entry(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns the mode bits of a folder that are kept. Set-group-id is one of them: it decides the
/// group of new files in shared folders.
pub(super) fn folder_mode(found: &Stat) -> u32 {
    platform::mode_bits(found) & 0o3777
}

/// Makes the node of something whose size and stamp are unknown.
fn omitted_node(why: OmitReason, folder: bool) -> TreeNode {
    TreeNode::Omitted {
        why,
        folder,
        size: 0,
        stamp: 0,
    }
}

/// Returns the names in a folder, sorted by their bytes.
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
