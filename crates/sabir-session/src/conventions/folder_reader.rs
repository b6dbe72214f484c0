//! Reads the text files of a convention through a workspace, and refuses files that must not get
//! into a request.

use std::io::ErrorKind;
use std::path::{Component, Path};

use sabir_policy::names_secret_file;
use sabir_workspace::{EntryKind, ListOptions, StopFlag, WorkPath, Workspace, WorkspaceError};

/// The most entries that are looked at in a folder of a convention, with its subfolders.
const MAX_ENTRIES: usize = 500;

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConventionError {
    /// The workspace refuses access to the file.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// Its name, or that of the file that it links to, is that of a secret.
    #[error("it is, or links to, a file that usually holds secrets")]
    Secret,
    /// It is one of git's own files, whose URLs may hold passwords.
    #[error("it is, or links to, one of git's own files")]
    GitFile,
    /// It is reached through a link.
    #[error("it is a link")]
    Link,
    /// It is not text.
    #[error("it is not a text file")]
    NotText,
}

impl ConventionError {
    /// Returns true if the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Workspace(WorkspaceError::Missing { .. }))
    }
}

/// The beginning of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextStart {
    /// The text that was read. Bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
    /// The size of the whole file in bytes.
    pub(crate) size: u64,
}

/// Returns true if there is nothing at a path, not even a link. Does not check whether the path may be read.
pub(crate) fn is_absent(path: &Path) -> bool {
    let found = path.symlink_metadata().map_err(|error| error.kind());
    matches!(found, Err(ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Reads the beginning of a text file.
///
/// # Errors
/// When the file cannot or must not be read.
pub(crate) fn read_text_start(
    workspace: &Workspace,
    path: &WorkPath,
    limit_bytes: usize,
) -> Result<TextStart, ConventionError> {
    let target = workspace.resolve_links(path)?;
    // Checked by both names: the file that is opened is the target.
    for name in [path, &target] {
        check_name(name)?;
    }
    // The target and not the link, which could lead elsewhere by now.
    let (bytes, size) = workspace.read_start(&target, limit_bytes)?;
    if bytes.contains(&0) {
        return Err(ConventionError::NotText);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(TextStart { text, size })
}

/// Does the same as [`read_text_start`] for a file that another file names, where a link is refused.
///
/// # Errors
/// When the file cannot or must not be read.
pub(crate) fn read_named_text(
    workspace: &Workspace,
    path: &WorkPath,
    limit_bytes: usize,
) -> Result<TextStart, ConventionError> {
    // The main file of a convention may be a link, but the files that it names may not: its author
    // could otherwise include files that they cannot read.
    if workspace.resolve_links(path)? != *path {
        return Err(ConventionError::Link);
    }
    read_text_start(workspace, path, limit_bytes)
}

fn check_name(path: &WorkPath) -> Result<(), ConventionError> {
    let is_git = |part: Component<'_>| matches!(part, Component::Normal(name) if name.eq_ignore_ascii_case(".git"));
    if path.as_path().components().any(is_git) {
        return Err(ConventionError::GitFile);
    }
    if names_secret_file(&path.to_string()) {
        return Err(ConventionError::Secret);
    }
    Ok(())
}

/// Returns the files below a folder whose names have one of the extensions, in the order of their paths, at most `max_files`. Links
/// are left out. A folder that does not exist has none.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn list_text_files(
    workspace: &Workspace,
    folder: &WorkPath,
    extensions: &[&str],
    max_files: usize,
) -> Result<Vec<WorkPath>, ConventionError> {
    // Most folders of a convention do not exist, which one system call shows.
    if is_absent(&workspace.root().join(folder.as_path())) {
        return Ok(Vec::new());
    }
    let options = ListOptions {
        recursive: true,
        max_entries: MAX_ENTRIES,
        stop: StopFlag::default(),
    };
    let has_extension = |path: &WorkPath| {
        let extension = path.as_path().extension().and_then(|end| end.to_str());
        extension.is_some_and(|end| extensions.contains(&end))
    };
    let mut paths: Vec<WorkPath> = workspace
        .list_folder(folder, &options)?
        .entries
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .map(|entry| entry.path)
        .filter(has_extension)
        .collect();
    // Sorted before they are cut, so that the same files count on every machine.
    paths.sort();
    paths.truncate(max_files);
    Ok(paths)
}
