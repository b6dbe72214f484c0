//! Opens the workspace folder and reads files in it.
//!
//! Every access starts at the handle of the folder, which is opened once, and the kernel resolves
//! the rest beneath it (`openat2` with `RESOLVE_BENEATH`, through cap-std): a link that leads out
//! never resolves, no matter when it was created. Checking a path first and opening it afterwards
//! would leave a gap in which the path can change.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileTypeExt, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::bounds::Bounds;
#[cfg(target_os = "linux")]
use crate::command::ForkServerSlot;
use crate::command_writes::{CommandWatch, WriteLog};
use crate::error::WorkspaceError;
use crate::git_config::{self, GitConfigError, HistorySearch, KnownHistory, PathFilter};
use crate::path::WorkPath;
use crate::sandbox::masks;
use crate::trust::Trust;

mod attributes;
mod change;
mod ignore_rules;
mod list;
mod read_start;
mod swap;
mod temp;
mod walk;
mod write;

pub use change::FileChange;
pub use ignore_rules::IgnoreChecker;
pub use list::{EntryKind, FolderListing, ListEntry, ListOptions};
pub use temp::TEMP_START;
pub(crate) use walk::{FolderReader, PendingFolder, entry_kind};
pub use write::WritePrecondition;

/// The size up to which a file's version is a hash of its content; larger files are identified by
/// size, time and inode.
const HASHED_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: usize = 64 << 10;

/// A workspace folder, opened once. All methods block. Except for what a
/// [`CommandWatch`] collects, no state is kept that a second `Workspace` of the same folder would
/// miss.
#[derive(Debug)]
pub struct Workspace {
    dir: Arc<Dir>,
    root: PathBuf,
    opened_as: PathBuf,
    /// The folders that are already cleared of temporary files left by killed processes.
    swept: Mutex<HashSet<PathBuf>>,
    /// The bounds for every read and write.
    bounds: RwLock<Arc<Bounds>>,
    /// The repositories whose programs git may run.
    pub(crate) trust: Trust,
    /// What the commands of this workspace write.
    writes: WriteLog,
    /// Forks the supervisors of its commands.
    #[cfg(target_os = "linux")]
    pub(crate) fork_servers: Arc<ForkServerSlot>,
    /// What was found in the objects of repositories, by the place of their files.
    history: Mutex<HashMap<PathBuf, KnownHistory>>,
}

/// The result of [`Workspace::read_file`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// The first bytes of the file, as many as the limit allows.
    pub bytes: Vec<u8>,
    /// The version of the whole file, for a later [`WritePrecondition::Version`].
    pub version: FileVersion,
    /// The size of the whole file in bytes.
    pub size_bytes: u64,
    /// True if the file is longer than `bytes`.
    pub truncated: bool,
}

/// The version of a file: the SHA-256 of its content, so no other content matches.
///
/// A file over 64 MiB is identified by size, modification time and inode instead, because hashing
/// gigabytes on every read would take seconds; such a file can be changed unnoticed by someone who
/// resets the time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion([u8; 32]);

/// The metadata of a path, with links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// The kind: file, folder or something else.
    pub kind: EntryKind,
    /// The size in bytes; without meaning for folders.
    pub size_bytes: u64,
    /// The number of hard links; with more than one, a write here leaves the old content under the
    /// other names.
    pub links: u64,
    /// The time of the last change of content, name or metadata, in milliseconds since 1970.
    pub changed_ms: u64,
}

/// Converts a time of the file system to milliseconds since 1970; an earlier time is 0.
pub(crate) fn to_milliseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let whole = seconds.saturating_mul(1000);
    u64::try_from(whole.saturating_add(nanoseconds / 1_000_000)).unwrap_or_default()
}

/// Returns the handle of the workspace folder, which stays valid when the folder is renamed.
impl AsFd for Workspace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Workspace {
    /// Opens a folder. Its path is made canonical once, here; later changes to links above it have
    /// no effect.
    ///
    /// # Errors
    /// [`WorkspaceError::Missing`], [`NotAFolder`](WorkspaceError::NotAFolder) or
    /// [`Io`](WorkspaceError::Io).
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        let fail = |error| WorkspaceError::from_io("open", root.display(), error);
        let canonical = root.canonicalize().map_err(fail)?;
        let dir = Dir::open_ambient_dir(&canonical, ambient_authority()).map_err(fail)?;
        let opened_as = root.to_path_buf();
        let bounds = RwLock::default();
        let trust = Trust::default();
        Ok(Self {
            dir: Arc::new(dir),
            root: canonical,
            opened_as,
            swept: Mutex::default(),
            history: Mutex::default(),
            bounds,
            trust,
            writes: WriteLog::default(),
            #[cfg(target_os = "linux")]
            fork_servers: Arc::default(),
        })
    }

    /// Returns the same folder without bounds, for files that the model must not be able to hide from Sabir itself.
    #[must_use]
    pub fn without_bounds(&self) -> Self {
        Self {
            // The handle and not the path, where another folder may be by now.
            dir: Arc::clone(&self.dir),
            root: self.root.clone(),
            opened_as: self.opened_as.clone(),
            swept: Mutex::default(),
            history: Mutex::default(),
            bounds: RwLock::default(),
            trust: Trust::default(),
            writes: WriteLog::default(),
            #[cfg(target_os = "linux")]
            fork_servers: Arc::default(),
        }
    }

    /// Starts to collect the paths that commands of this `Workspace` write.
    #[must_use]
    pub fn watch_commands(&self) -> CommandWatch {
        self.writes.watch_commands()
    }

    pub(crate) fn write_log(&self) -> &WriteLog {
        &self.writes
    }

    /// Finds the wanted paths among all files that any commit of a folder's repository holds, and which of some ids, or
    /// beginnings of ids, name the content of a file. Reads git's files and starts no program.
    ///
    /// Paths are listed with every beginning left out, so the list holds more than there is. It is kept until the objects of
    /// the repository change; so the filter has to be the same each time.
    ///
    /// # Errors
    /// [`GitConfigError`] if the objects cannot be read with certainty, or are too many.
    pub fn search_history(
        &self,
        folder: &Path,
        environment: &[(String, String)],
        filter: &PathFilter,
        ids: &[String],
    ) -> Result<HistorySearch, GitConfigError> {
        git_config::search_history(folder, environment, filter, ids, &self.history)
    }

    /// Returns the canonical, absolute path of the folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Parses a path as a model wrote it: relative, or absolute below the folder, under its
    /// canonical name or the name it was opened by.
    ///
    /// # Errors
    /// Those of [`WorkPath::parse`].
    pub fn parse_path(&self, text: &str) -> Result<WorkPath, WorkspaceError> {
        match WorkPath::parse(text, &self.root) {
            // The folder may have been opened through a link, and models repeat the name they were
            // shown.
            Err(WorkspaceError::PathOutside { .. })
                if self.opened_as.is_absolute() && Path::new(text).is_absolute() =>
            {
                WorkPath::parse(text, &self.opened_as)
                    .or_else(|_| WorkPath::parse(text, &self.root))
            }
            parsed => parsed,
        }
    }

    /// Resolves the symbolic links of a path; the part that does not exist yet is kept.
    ///
    /// Check writes by the resolved path: `notes` may be a link to `.git`.
    ///
    /// # Errors
    /// [`WorkspaceError::LinkLeaves`], [`LinkLoop`](WorkspaceError::LinkLoop),
    /// [`LinkDangling`](WorkspaceError::LinkDangling), [`NotAFolder`](WorkspaceError::NotAFolder)
    /// or [`Io`](WorkspaceError::Io).
    pub fn resolve_links(&self, path: &WorkPath) -> Result<WorkPath, WorkspaceError> {
        for existing in path
            .as_path()
            .ancestors()
            .filter(|existing| !existing.as_os_str().is_empty())
        {
            match self.dir.canonicalize(existing) {
                Ok(real) => {
                    let rest = path
                        .as_path()
                        .strip_prefix(existing)
                        .unwrap_or(Path::new(""));
                    // Joining an empty rest would add a slash at the end.
                    let whole = if rest.as_os_str().is_empty() {
                        real
                    } else {
                        real.join(rest)
                    };
                    return WorkPath::from_inside(&whole).ok_or_else(|| {
                        WorkspaceError::LinkLeaves {
                            path: path.to_string(),
                        }
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Ok(target) = self.dir.read_link_contents(existing) {
                        let path = existing.display().to_string();
                        let target = target.display().to_string();
                        return Err(WorkspaceError::LinkDangling { path, target });
                    }
                }
                Err(error) => return Err(WorkspaceError::from_io("resolve", path, error)),
            }
        }
        Ok(path.clone())
    }

    /// Reads at most `limit_bytes` of a regular file. Opening never blocks: a FIFO, socket or
    /// device is refused.
    ///
    /// Up to 64 MiB are hashed for the [`FileVersion`], whatever the limit is; memory stays at the
    /// limit.
    ///
    /// # Errors
    /// [`WorkspaceError::Missing`], [`NotAFile`](WorkspaceError::NotAFile),
    /// [`LinkLeaves`](WorkspaceError::LinkLeaves), [`LinkLoop`](WorkspaceError::LinkLoop),
    /// [`Hidden`](WorkspaceError::Hidden) or [`Io`](WorkspaceError::Io).
    pub fn read_file(
        &self,
        path: &WorkPath,
        limit_bytes: usize,
    ) -> Result<FileContent, WorkspaceError> {
        let file = self.open_regular(path)?;
        read_whole(&file, limit_bytes).map_err(|error| WorkspaceError::from_io("read", path, error))
    }

    /// Returns true if something exists at the path, with links followed. A link that leads out is
    /// an error, not an absence.
    ///
    /// # Errors
    /// Those of [`metadata`](Self::metadata), without [`WorkspaceError::Missing`].
    pub fn exists(&self, path: &WorkPath) -> Result<bool, WorkspaceError> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(WorkspaceError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the metadata of a path, with links followed.
    ///
    /// # Errors
    /// [`WorkspaceError::Missing`], [`LinkLeaves`](WorkspaceError::LinkLeaves),
    /// [`LinkLoop`](WorkspaceError::LinkLoop), [`Hidden`](WorkspaceError::Hidden) or
    /// [`Io`](WorkspaceError::Io).
    pub fn metadata(&self, path: &WorkPath) -> Result<FileInfo, WorkspaceError> {
        if self.bounds().hides_anything() {
            return self
                .resolve_visible(path, "look at")
                .map(|reached| reached.file_info());
        }
        self.check_unmasked(path)?;
        let found = self
            .dir
            .metadata(path.as_syscall_path())
            .map_err(|error| WorkspaceError::from_io("look at", path, error))?;
        let kind = match found.file_type() {
            kind if kind.is_file() => EntryKind::File,
            kind if kind.is_dir() => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        Ok(FileInfo {
            kind,
            size_bytes: found.len(),
            links: found.nlink(),
            changed_ms: to_milliseconds(found.ctime(), found.ctime_nsec()),
        })
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(crate) fn bounds(&self) -> Arc<Bounds> {
        Arc::clone(&self.bounds.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the bounds, for all users of this workspace. Operations in progress may still apply
    /// the old ones.
    pub fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
    }

    /// Fails with `Missing` for a sandbox mask: an empty placeholder that exists only while a
    /// sandboxed command runs.
    pub(crate) fn check_unmasked(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        let masked = masks::is_masked_at(self.dir.as_fd(), path.as_path());
        if masked {
            Err(WorkspaceError::Missing {
                path: path.to_string(),
            })
        } else {
            Ok(())
        }
    }

    /// Opens a file that is regular both before and after the opening: before, because opening a
    /// device can have side effects; after, because the file may have been replaced in between.
    pub(crate) fn open_regular(&self, path: &WorkPath) -> Result<std::fs::File, WorkspaceError> {
        if self.bounds().hides_anything() {
            return self.resolve_visible(path, "read")?.open_file(path);
        }
        let fail = |error| WorkspaceError::from_io("read", path, error);
        let regular = |found: cap_std::fs::FileType| match irregular_kind(found) {
            None => Ok(()),
            Some(found) => Err(WorkspaceError::NotAFile {
                path: path.to_string(),
                found,
            }),
        };
        self.check_unmasked(path)?;
        regular(
            self.dir
                .metadata(path.as_syscall_path())
                .map_err(fail)?
                .file_type(),
        )?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
        let file = self
            .dir
            .open_with(path.as_syscall_path(), &options)
            .map_err(fail)?;
        regular(file.metadata().map_err(fail)?.file_type())?;
        Ok(file.into_std())
    }
}

impl FileVersion {
    /// Returns the version of a file with this content. For content over 64 MiB the result matches
    /// no file.
    #[must_use]
    pub fn of_content(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    fn of_large(found: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let mut hash = Sha256::new();
        // A prefix keeps these hashes apart from those of contents.
        hash.update(b"a large file");
        for number in [found.dev(), found.ino(), found.size()] {
            hash.update(number.to_le_bytes());
        }
        hash.update(found.mtime().to_le_bytes());
        hash.update(found.mtime_nsec().to_le_bytes());
        Self(hash.finalize().into())
    }
}

/// Writes sixty-four hexadecimal digits.
impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileVersion({self})")
    }
}

/// Reads to the end for the hash, and keeps the start. A file that grows past the hashing limit
/// meanwhile, as kernel files can, gets the version of a large file.
fn read_whole(mut file: &std::fs::File, limit_bytes: usize) -> io::Result<FileContent> {
    let found = file.metadata()?;
    let mut hash = Sha256::new();
    let mut bytes =
        Vec::with_capacity(limit_bytes.min(usize::try_from(found.len()).unwrap_or(usize::MAX)));
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    let mut seen = 0_u64;
    let hashed = found.len() <= HASHED_BYTES;
    while if hashed {
        seen <= HASHED_BYTES
    } else {
        bytes.len() < limit_bytes
    } {
        let count = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let part = chunk.get(..count).unwrap_or_default();
        if hashed {
            hash.update(part);
        }
        let kept = part.len().min(limit_bytes - bytes.len());
        bytes.extend_from_slice(part.get(..kept).unwrap_or_default());
        seen += count as u64;
    }
    let version = if hashed && seen <= HASHED_BYTES {
        FileVersion(hash.finalize().into())
    } else {
        FileVersion::of_large(&found)
    };
    let size_bytes = seen.max(if hashed { 0 } else { found.len() });
    Ok(FileContent {
        truncated: size_bytes > bytes.len() as u64,
        bytes,
        version,
        size_bytes,
    })
}

/// Returns a name for an entry that is not a regular file.
fn irregular_kind(found: cap_std::fs::FileType) -> Option<&'static str> {
    match found {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_block_device() || kind.is_char_device() => Some("a device"),
        _ => Some("something special"),
    }
}
