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

use super::Caps;
use super::error::CheckpointError;
use super::ignored::Rules;
use super::object::{Kind, Node, NotKept, ObjectId, Places, Tree, write_tree};
use super::stamps::{Known, Stamp, Stamps};
use super::store::Store;
use sabir_workspace::TEMP_START;
use sabir_workspace::sandbox::is_mask;

const MAX_DEPTH: u32 = 200;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What the looker may do with what it reads.
pub(super) enum Keep<'a> {
    /// Put it into the store.
    Into(&'a mut Store),
    /// Know the folders, and only the ids of contents.
    Memory(&'a mut HashMap<ObjectId, Tree>),
}

/// One look at the workspace.
pub(super) struct Look<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) keep: Keep<'a>,
    pub(super) stamps: &'a mut Stamps,
    pub(super) caps: Caps,
    /// Folders that are not the user's, by device and inode.
    pub(super) apart: &'a [(u64, u64)],
    pub(super) now_ms: u64,
    pub(super) stop: &'a AtomicBool,
    spent: Spent,
}

/// How much of a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    None,
    All,
}

/// What a look has taken of the caps.
#[derive(Debug, Default)]
struct Spent {
    bytes: u64,
    entries: u64,
    device: u64,
}

/// Where in the tree a look is.
#[derive(Clone, Copy)]
struct Here<'a> {
    path: &'a Path,
    depth: u32,
    rules: Option<&'a Rules<'a>>,
    /// Whether it is below an ignored folder, where no rule matters any more.
    ignored: bool,
}

impl<'a> Look<'a> {
    pub(super) fn new(
        (root, apart): (BorrowedFd<'a>, &'a [(u64, u64)]),
        keep: Keep<'a>,
        stamps: &'a mut Stamps,
        (caps, now_ms): (Caps, u64),
        stop: &'a AtomicBool,
    ) -> Self {
        Self { root, keep, stamps, caps, apart, now_ms, stop, spent: Spent::default() }
    }

    /// Everything. The id of the root's tree.
    pub(super) fn whole(&mut self) -> Result<ObjectId, CheckpointError> {
        let fail = |error: Errno| CheckpointError::io("read", Path::new("."))(error.into());
        let folder = rustix::fs::openat(self.root, ".", FOLDER, Mode::empty()).map_err(fail)?;
        self.spent = Spent { device: rustix::fs::fstat(&folder).map_err(fail)?.st_dev, ..Spent::default() };
        let before = std::mem::take(&mut self.stamps.folders);
        let known = Stamps { folders: before, fresh: self.stamps.fresh };
        let here = Here { path: Path::new(""), depth: 0, rules: None, ignored: false };
        let looked = self.folder(folder.as_fd(), here, &known);
        if looked.is_err() {
            self.stamps.folders = known.folders;
        }
        let tree = looked?.ok_or_else(|| fail(Errno::ACCESS))?;
        self.keep_tree(tree)
    }

    /// Single paths, and the folders above them. Of a folder with none of these paths in it, all that it holds.
    pub(super) fn places(&mut self, paths: &[PathBuf]) -> Result<Places, CheckpointError> {
        self.rows(paths, Depth::All)
    }

    /// Single paths, and the folders above them; of folders only themselves.
    pub(super) fn alone(&mut self, paths: &[PathBuf]) -> Result<Places, CheckpointError> {
        self.rows(paths, Depth::None)
    }

    fn rows(&mut self, paths: &[PathBuf], depth: Depth) -> Result<Places, CheckpointError> {
        let above = |path: &PathBuf| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
        let mut wanted: Vec<PathBuf> =
            paths.iter().flat_map(above).filter(|path| !path.as_os_str().is_empty()).collect();
        wanted.sort();
        wanted.dedup();
        let mut places = Places::new();
        let mut cached: Option<(PathBuf, OwnedFd)> = None;
        for (at, path) in wanted.iter().enumerate() {
            self.check()?;
            let last = wanted.get(at + 1).is_none_or(|next| !next.starts_with(path));
            let node = self.place(path, if last { depth } else { Depth::None }, &mut cached)?;
            places.push((path.clone(), node));
        }
        Ok(places)
    }

    fn place(
        &mut self,
        path: &Path,
        depth: Depth,
        cached: &mut Option<(PathBuf, OwnedFd)>,
    ) -> Result<Option<Node>, CheckpointError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Some(Node::Folder { mode: 0o755, tree: None }));
        };
        if cached.as_ref().is_none_or(|(known, _)| known != parent) {
            *cached = open_folder(self.root, parent).map(|folder| (parent.to_path_buf(), folder));
        }
        let Some((_, folder)) = cached else { return Ok(None) };
        let found = match stat(folder.as_fd(), name) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(_) => return Ok(Some(not_kept(NotKept::Unreadable, false))),
        };
        self.spent.device = found.st_dev;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory && depth == Depth::None {
            return Ok(Some(Node::Folder { mode: folder_mode(&found), tree: None }));
        }
        let (known, mut fresh) = (std::mem::take(self.stamps), Vec::new());
        let here = Here { path, depth: 0, rules: None, ignored: false };
        let node = self.node((folder.as_fd(), name), &found, here, (&known, &mut fresh));
        // What single paths look like is not worth remembering.
        *self.stamps = known;
        node
    }

    fn folder(
        &mut self,
        folder: BorrowedFd<'_>,
        here: Here<'_>,
        known: &Stamps,
    ) -> Result<Option<Tree>, CheckpointError> {
        self.check()?;
        let Ok(names) = names(folder) else { return Ok(None) };
        let rules = (!here.ignored).then(|| Rules::of(folder, here.path, &names, here.rules));
        let mut tree = Tree::with_capacity(names.len());
        let mut fresh = Vec::new();
        for name in names {
            if name.as_os_str().as_bytes().starts_with(TEMP_START.as_bytes()) || is_mask(folder, name.as_os_str()) {
                continue;
            }
            let found = match stat(folder, name.as_os_str()) {
                Ok(found) => found,
                // What is gone since a moment ago was never there.
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    tree.push((name, not_kept(NotKept::Unreadable, false)));
                    continue;
                }
            };
            if self.apart.contains(&(found.st_dev, found.st_ino)) {
                continue;
            }
            let path = here.path.join(&name);
            let inner = Here { path: &path, depth: here.depth + 1, rules: rules.as_ref(), ignored: here.ignored };
            if let Some(node) = self.node((folder, name.as_os_str()), &found, inner, (known, &mut fresh))? {
                tree.push((name, node));
            }
        }
        if !fresh.is_empty() {
            self.stamps.folders.insert(here.path.to_path_buf(), fresh);
        }
        Ok(Some(tree))
    }

    fn node(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        here: Here<'_>,
        (known, fresh): (&Stamps, &mut Vec<Known>),
    ) -> Result<Option<Node>, CheckpointError> {
        self.spent.entries += 1;
        Ok(Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => return self.file((folder, name), found, here.path, (known, fresh)),
            FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
                Ok(target) => Node::Link { target: std::ffi::OsString::from_vec(target.into_bytes()).into() },
                Err(_) => return Ok(None),
            },
            FileType::Directory => return self.inner((folder, name), found, here, known),
            _ => Node::Special,
        }))
    }

    fn inner(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        here: Here<'_>,
        known: &Stamps,
    ) -> Result<Option<Node>, CheckpointError> {
        let left = |why| Ok(Some(not_kept(why, true)));
        if found.st_dev != self.spent.device {
            return left(NotKept::Elsewhere);
        }
        if here.depth > MAX_DEPTH {
            return left(NotKept::Deep);
        }
        if self.spent.entries > self.caps.entries {
            return left(NotKept::Full);
        }
        let inner = match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
            Ok(inner) => inner,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(_) => return left(NotKept::Unreadable),
        };
        let ignored = !here.ignored && here.rules.is_some_and(|rules| rules.ignores(here.path));
        if ignored {
            let mut room = (self.caps.ignored_entries, self.caps.ignored_bytes);
            if !self.fits(inner.as_fd(), &mut room, here.depth)? {
                return left(NotKept::Ignored);
            }
        }
        let here = Here { ignored: here.ignored || ignored, ..here };
        let Some(tree) = self.folder(inner.as_fd(), here, known)? else { return left(NotKept::Unreadable) };
        let tree = self.keep_tree(tree)?;
        Ok(Some(Node::Folder { mode: folder_mode(found), tree: Some(tree) }))
    }

    /// Whether what a folder holds fits into that many entries and bytes. Looks no further than that.
    fn fits(&self, folder: BorrowedFd<'_>, room: &mut (u64, u64), depth: u32) -> Result<bool, CheckpointError> {
        self.check()?;
        let Ok(names) = names(folder) else { return Ok(true) };
        for name in names {
            let Ok(found) = stat(folder, name.as_os_str()) else { continue };
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
                && !self.fits(inner.as_fd(), room, depth + 1)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn file(
        &mut self,
        (folder, name): (BorrowedFd<'_>, &OsStr),
        found: &Stat,
        path: &Path,
        (known, fresh): (&Stamps, &mut Vec<Known>),
    ) -> Result<Option<Node>, CheckpointError> {
        let size = found.st_size.cast_unsigned();
        let stamp = Stamp::of(found);
        let left = |why| Ok(Some(Node::NotKept { why, folder: false, size, stamp: stamp.number() }));
        if size > self.caps.file_bytes {
            return left(NotKept::Large);
        }
        if self.spent.bytes.saturating_add(size) > self.caps.checkpoint_bytes()
            || self.spent.entries > self.caps.entries
        {
            return left(NotKept::Full);
        }
        let mode = found.st_mode & 0o1777;
        let parent = path.parent().unwrap_or(path);
        let remembered = known.find(parent, Path::new(name), stamp).filter(|content| match &self.keep {
            Keep::Into(store) => store.has(content),
            Keep::Memory(_) => true,
        });
        if let Some(content) = remembered {
            self.spent.bytes += size;
            fresh.push(Known { name: name.into(), stamp, content });
            return Ok(Some(Node::File { mode, size, content }));
        }
        let file = match rustix::fs::openat(folder, name, FILE, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return left(NotKept::Unreadable),
        };
        let Ok(opened) = rustix::fs::fstat(&file) else { return left(NotKept::Unreadable) };
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return left(NotKept::Unreadable);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        if (&file).take(self.caps.file_bytes + 1).read_to_end(&mut bytes).is_err() {
            return left(NotKept::Unreadable);
        }
        let size = bytes.len() as u64;
        if size > self.caps.file_bytes {
            return left(NotKept::Large);
        }
        self.spent.bytes += size;
        let content = match &mut self.keep {
            Keep::Into(store) => store.put(Kind::Content, bytes)?,
            Keep::Memory(_) => ObjectId::of(&bytes),
        };
        self.stamps.fresh += 1;
        let still = rustix::fs::fstat(&file).is_ok_and(|after| Stamp::of(&after) == Stamp::of(&opened));
        let stamp = Stamp::of(&opened);
        if still && stamp.is_quiet(self.now_ms) {
            fresh.push(Known { name: name.into(), stamp, content });
        }
        Ok(Some(Node::File { mode, size, content }))
    }

    fn keep_tree(&mut self, tree: Tree) -> Result<ObjectId, CheckpointError> {
        match &mut self.keep {
            Keep::Into(store) => store.put_tree(&tree),
            Keep::Memory(trees) => {
                let id = ObjectId::of(&write_tree(&tree));
                trees.insert(id, tree);
                Ok(id)
            }
        }
    }

    fn check(&self) -> Result<(), CheckpointError> {
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

pub(super) fn stat(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn folder_mode(found: &Stat) -> u32 {
    found.st_mode & 0o3777
}

fn not_kept(why: NotKept, folder: bool) -> Node {
    Node::NotKept { why, folder, size: 0, stamp: 0 }
}

/// The names in a folder, in the order of their bytes.
fn names(folder: BorrowedFd<'_>) -> Result<Vec<PathBuf>, Errno> {
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
