//! Finds the repository that git would find in a folder, and the places of its files.
//!
//! Git treats any folder with the layout of its own files (`HEAD`, `objects`, `refs`) as a
//! repository, whatever its name. Such folders can come with a clone as plain files, so one that is
//! not called `.git` is refused, as with `safe.bareRepository=explicit`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::GitConfigError;
use super::plain_file::{is_absent, read_plain_file};

/// The maximum size of the small files that point to others.
const MAX_POINTER_BYTES: u64 = 64 << 10;

/// The places of a repository's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepositoryFolders {
    /// The folder that contains `.git`.
    pub(super) holder: PathBuf,
    /// The git folder of this work tree.
    pub(super) own: PathBuf,
    /// The git folder shared with other work trees; mostly the same folder.
    pub(super) common: PathBuf,
}

/// Finds the repository that git would find in a folder.
pub(super) fn find_repository(folder: &Path) -> Result<Option<RepositoryFolders>, GitConfigError> {
    let folder = folder
        .canonicalize()
        .map_err(|_| GitConfigError::File(folder.to_owned()))?;
    for holder in folder.ancestors() {
        match open_repository(holder)? {
            GitEntry::Repository(folders) => return Ok(Some(folders)),
            // Git stops at a pointer to a missing place.
            GitEntry::BrokenPointer => return Err(GitConfigError::File(holder.join(".git"))),
            GitEntry::Nothing => {}
        }
        if read_git_folder(holder)?.is_some() {
            return Err(GitConfigError::Embedded(holder.to_owned()));
        }
    }
    Ok(None)
}

/// The state of a folder's `.git`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GitEntry {
    /// Nothing that git takes for a repository.
    Nothing,
    /// A file that names a folder that is not a repository.
    BrokenPointer,
    /// A repository.
    Repository(RepositoryFolders),
}

/// Examines the `.git` of a folder: a git folder, or a file that points to one.
pub(super) fn open_repository(holder: &Path) -> Result<GitEntry, GitConfigError> {
    let path = holder.join(".git");
    let found = |folder: Option<CommonFolder>, own: PathBuf| {
        folder.map(|CommonFolder(common)| {
            GitEntry::Repository(RepositoryFolders {
                holder: holder.to_owned(),
                own,
                common,
            })
        })
    };
    match fs::metadata(&path) {
        Ok(data) if data.is_file() => {
            let own = holder.join(read_git_file(&path)?);
            Ok(found(read_git_folder(&own)?, own).unwrap_or(GitEntry::BrokenPointer))
        }
        Ok(_) => Ok(found(read_git_folder(&path)?, path).unwrap_or(GitEntry::Nothing)),
        // Git, which runs as the same user, could not enter it either.
        Err(error) if is_out_of_reach(&error) => Ok(GitEntry::Nothing),
        Err(_) => Err(GitConfigError::File(path)),
    }
}

/// The common folder of a git folder.
struct CommonFolder(PathBuf);

/// Returns the common folder if git takes a folder for a git folder. A folder that looks like one
/// but is broken is an error, because another version of git may accept it.
fn read_git_folder(folder: &Path) -> Result<Option<CommonFolder>, GitConfigError> {
    let head = folder.join("HEAD");
    let unclear = || GitConfigError::Embedded(folder.to_owned());
    let is_link = match fs::symlink_metadata(&head) {
        Ok(data) => data.is_symlink(),
        Err(error) if is_out_of_reach(&error) => return Ok(None),
        Err(_) => return Err(unclear()),
    };
    let common = match read_plain_file(&folder.join("commondir"), MAX_POINTER_BYTES)? {
        Some(text) => {
            let common = folder.join(path_of(&text).ok_or_else(unclear)?);
            // Git would treat it as an additional work tree, whose layout its configuration does
            // not define.
            if is_same(&common, folder) {
                return Err(unclear());
            }
            common
        }
        None => folder.to_owned(),
    };
    for name in ["objects", "refs"] {
        match fs::metadata(common.join(name)) {
            Ok(_) if access(common.join(name), Access::EXEC_OK).is_ok() => {}
            Err(error) if is_absent(&error) => return Ok(None),
            _ => return Err(unclear()),
        }
    }
    let is_head = if is_link {
        fs::read_link(&head).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(b"refs/"))
    } else {
        read_plain_file(&head, MAX_POINTER_BYTES)?.is_some_and(|text| is_head(&text))
    };
    if is_head {
        Ok(Some(CommonFolder(common)))
    } else {
        Err(unclear())
    }
}

/// Returns true if two paths lead to the same place.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || one
            .canonicalize()
            .is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns true for the content of a `HEAD`: a reference, or a commit.
fn is_head(text: &[u8]) -> bool {
    match text.strip_prefix(b"ref:") {
        Some(name) => name.trim_ascii_start().starts_with(b"refs/"),
        None => text
            .get(..40)
            .is_some_and(|id| id.iter().all(u8::is_ascii_hexdigit)),
    }
}

/// Reads the path from a `.git` that is a file.
fn read_git_file(path: &Path) -> Result<PathBuf, GitConfigError> {
    let text = read_plain_file(path, MAX_POINTER_BYTES)?;
    let named = text
        .as_deref()
        .and_then(|text| text.strip_prefix(b"gitdir: "))
        .and_then(path_of);
    named.ok_or_else(|| GitConfigError::File(path.to_owned()))
}

/// Returns the path that a small file consists of, without the line ending.
fn path_of(text: &[u8]) -> Option<PathBuf> {
    let end = text
        .iter()
        .rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    let path = text.get(..=end)?;
    (!path.contains(&0)).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns true if an error means that nothing exists for this user, who would also run git.
fn is_out_of_reach(error: &io::Error) -> bool {
    is_absent(error) || error.kind() == io::ErrorKind::PermissionDenied
}
