//! Which repository git would find in a folder, and where its files lie.
//!
//! A folder that is itself laid out like git's own files (`HEAD`, `objects`, `refs`) is a repository to git, whatever its name. Such
//! folders come with a clone as plain files, so none is accepted that is not called `.git`, as with `safe.bareRepository=explicit`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Unreadable;
use super::plain_file::{is_absent, read_plain_file};

/// How long the small files may be that say where others lie.
const MAX_POINTER_BYTES: u64 = 64 << 10;

/// Where the files of a repository lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folders {
    /// The folder that holds `.git`.
    pub(super) holder: PathBuf,
    /// Git's own files of this work tree.
    pub(super) own: PathBuf,
    /// Those that it shares with other work trees; mostly the same folder.
    pub(super) common: PathBuf,
}

/// Finds the repository that git would find in a folder.
pub(super) fn find_repository(folder: &Path) -> Result<Option<Folders>, Unreadable> {
    let folder = folder.canonicalize().map_err(|_| Unreadable::File(folder.to_owned()))?;
    for holder in folder.ancestors() {
        match open_repository(holder)? {
            Opened::Repository(folders) => return Ok(Some(folders)),
            // Git stops at a pointer that leads nowhere.
            Opened::LeadsNowhere => return Err(Unreadable::File(holder.join(".git"))),
            Opened::Nothing => {}
        }
        if read_git_folder(holder)?.is_some() {
            return Err(Unreadable::Embedded(holder.to_owned()));
        }
    }
    Ok(None)
}

/// What the `.git` of a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opened {
    /// Nothing that git takes for a repository.
    Nothing,
    /// A file that names a folder that is no repository.
    LeadsNowhere,
    /// A repository.
    Repository(Folders),
}

/// Looks at the `.git` of a folder: git's own files, or a file that says where they lie.
pub(super) fn open_repository(holder: &Path) -> Result<Opened, Unreadable> {
    let path = holder.join(".git");
    let found = |folder: Option<Shared>, own: PathBuf| {
        folder.map(|Shared(common)| Opened::Repository(Folders { holder: holder.to_owned(), own, common }))
    };
    match fs::metadata(&path) {
        Ok(data) if data.is_file() => {
            let own = holder.join(read_git_file(&path)?);
            Ok(found(read_git_folder(&own)?, own).unwrap_or(Opened::LeadsNowhere))
        }
        Ok(_) => Ok(found(read_git_folder(&path)?, path).unwrap_or(Opened::Nothing)),
        Err(error) if is_out_of_reach(&error) => Ok(Opened::Nothing),
        Err(_) => Err(Unreadable::File(path)),
    }
}

/// Where the files lie that a folder of git's own files shares.
struct Shared(PathBuf);

/// Looks whether git takes a folder for git's own files. What looks like it and is broken is an error: another git may think otherwise.
fn read_git_folder(folder: &Path) -> Result<Option<Shared>, Unreadable> {
    let head = folder.join("HEAD");
    let unclear = || Unreadable::Embedded(folder.to_owned());
    let is_link = match fs::symlink_metadata(&head) {
        Ok(data) => data.is_symlink(),
        Err(error) if is_out_of_reach(&error) => return Ok(None),
        Err(_) => return Err(unclear()),
    };
    let common = match read_plain_file(&folder.join("commondir"), MAX_POINTER_BYTES)? {
        Some(text) => {
            let common = folder.join(path_of(&text).ok_or_else(unclear)?);
            // Git would take it for that of a further work tree, whose layout is not what its configuration says.
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
    if is_head { Ok(Some(Shared(common))) } else { Err(unclear()) }
}

/// Whether two paths lead to the same place.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Whether a file's text is that of a `HEAD`: a reference, or a commit.
fn is_head(text: &[u8]) -> bool {
    match text.strip_prefix(b"ref:") {
        Some(name) => name.trim_ascii_start().starts_with(b"refs/"),
        None => text.get(..40).is_some_and(|id| id.iter().all(u8::is_ascii_hexdigit)),
    }
}

/// Reads the path in a `.git` that is a file.
fn read_git_file(path: &Path) -> Result<PathBuf, Unreadable> {
    let text = read_plain_file(path, MAX_POINTER_BYTES)?;
    let named = text.as_deref().and_then(|text| text.strip_prefix(b"gitdir: ")).and_then(path_of);
    named.ok_or_else(|| Unreadable::File(path.to_owned()))
}

/// The path that a small file consists of, without the end of its line.
fn path_of(text: &[u8]) -> Option<PathBuf> {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    let path = text.get(..=end)?;
    (!path.contains(&0)).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Whether an error says that nothing is there for this user, which is also who git would run as.
fn is_out_of_reach(error: &io::Error) -> bool {
    is_absent(error) || error.kind() == io::ErrorKind::PermissionDenied
}
