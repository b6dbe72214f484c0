//! Defines the errors of workspace operations.
//!
//! Every message says what happened, where, and what to do next, because a model reads it as the
//! result of its call.

use std::io;
use std::path::PathBuf;

/// An error of a workspace operation.
///
/// Callers distinguish the variants; the `Display` text can be shown to a model as it is. Paths
/// written by the model are repeated up to 200 characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The path holds no characters.
    #[error(
        "the path is empty; give a path relative to the workspace folder, such as `src/main.rs`"
    )]
    PathEmpty,
    /// The path holds a NUL byte, which no file system accepts.
    #[error(
        "the path {input:?} holds a NUL byte; no file can have that name, so send the path without it"
    )]
    PathNul {
        /// The path as it was written.
        input: String,
    },
    /// The text is a URL.
    #[error("{input:?} is a URL, not a path; give a path relative to the workspace folder")]
    PathUrl {
        /// The text as it was written.
        input: String,
    },
    /// A name is longer than 255 bytes, or the whole path is longer than 4095 bytes.
    #[error(
        "the path {input:?} is too long; a name may have 255 bytes and a path 4095, so shorten it"
    )]
    PathTooLong {
        /// The start of the path as it was written.
        input: String,
    },
    /// The path is written so that it leaves the workspace folder.
    #[error(
        "{input:?} is outside the workspace (it means {resolved:?}); use a path inside the workspace folder"
    )]
    PathOutside {
        /// The path as it was written.
        input: String,
        /// The same path without `.` and `..`; relative when it climbs above the workspace folder.
        resolved: PathBuf,
    },
    /// A symbolic link on the way leads out of the workspace folder, or is absolute.
    #[error(
        "`{path}` passes a symbolic link that leaves the workspace; nothing was touched, use the real path inside it"
    )]
    LinkLeaves {
        /// The path inside the workspace.
        path: String,
    },
    /// A write to a path that contains a symbolic link inside the workspace. Writes take real paths
    /// only, so that the checked file is the written one.
    #[error(
        "`{path}` passes a symbolic link; nothing was written, its real path is `{real}`, use that"
    )]
    LinkInPath {
        /// The path inside the workspace.
        path: String,
        /// The place inside the workspace that it leads to.
        real: String,
    },
    /// A symbolic link inside the workspace leads to nothing.
    #[error(
        "`{path}` is a symbolic link to `{target}`, which does not exist; name the file itself"
    )]
    LinkDangling {
        /// The path of the link inside the workspace.
        path: String,
        /// The text of the link.
        target: String,
    },
    /// Symbolic links form a circle.
    #[error("`{path}` follows symbolic links in a circle; name the file itself")]
    LinkLoop {
        /// The path inside the workspace.
        path: String,
    },
    /// Nothing exists at this path.
    #[error("`{path}` does not exist; list its folder to see the names that do")]
    Missing {
        /// The path inside the workspace.
        path: String,
    },
    /// Something exists already, and the write required that nothing does.
    #[error("`{path}` exists already; read it first, and then edit it or choose another name")]
    Exists {
        /// The path inside the workspace.
        path: String,
    },
    /// The file does not have the version that the write requires.
    #[error(
        "`{path}` changed on disk since it was read; nothing was written, read it again and redo the change"
    )]
    Stale {
        /// The path inside the workspace.
        path: String,
    },
    /// Nobody may write the file, not even its owner.
    #[error(
        "`{path}` is read-only, so nothing was changed; ask the user whether it may be changed, and `chmod u+w` it then"
    )]
    ReadOnly {
        /// The path inside the workspace.
        path: String,
    },
    /// The path is hidden from the model.
    #[error("`{path}` is hidden by {by}; work without it, or ask the user")]
    Hidden {
        /// The path inside the workspace.
        path: String,
        /// The name of the ignore file, or "a rule".
        by: String,
    },
    /// A sandbox mask is at the path while a command runs in the sandbox.
    #[error(
        "`{path}` cannot be written while a command runs in the sandbox, which keeps protected names free: wait for it, or end the job, \
         then write it again"
    )]
    Masked {
        /// The path inside the workspace.
        path: String,
    },
    /// The path may be read, but not written.
    #[error("`{path}` cannot be written, and nothing was: {because}")]
    WriteForbidden {
        /// The path inside the workspace.
        path: String,
        /// The reason, and what to do.
        because: String,
    },
    /// Two changes of one set contradict each other.
    #[error(
        "`{other}` and `{path}` cannot both be changed at once; name each file once, and no file that is a folder too"
    )]
    ConflictingChanges {
        /// The path inside the workspace.
        path: String,
        /// The same path, or one below it.
        other: String,
    },
    /// A set of changes failed, and not all of them could be undone.
    #[error("{why}; and these files could not be restored: {files}")]
    NotRestored {
        /// Each file, with the reason and the place of its old content.
        files: String,
        /// The reason that the changes failed.
        why: Box<WorkspaceError>,
    },
    /// The operation was stopped on request.
    #[error("stopped in `{path}`, because the task was")]
    Stopped {
        /// The path inside the workspace.
        path: String,
    },
    /// A folder, FIFO, socket or device was found where a file is needed.
    #[error("`{path}` is {found}, not a regular file; only regular files can be read and written")]
    NotAFile {
        /// The path inside the workspace.
        path: String,
        /// The kind of entry, with its article.
        found: &'static str,
    },
    /// Something else was found where a folder is needed.
    #[error("`{path}` is not a folder; name the folder that holds it")]
    NotAFolder {
        /// The path inside the workspace.
        path: String,
    },
    /// The regular expression does not parse, or is too big once compiled.
    #[error("the regular expression {pattern:?} is not valid: {reason}")]
    Regex {
        /// The expression as it was written.
        pattern: String,
        /// The message of the regex engine.
        reason: String,
    },
    /// The file glob does not parse.
    #[error("the file glob {pattern:?} is not valid: {reason}")]
    Glob {
        /// The glob as it was written.
        pattern: String,
        /// The message of the glob engine.
        reason: String,
    },
    /// The command cannot be passed to a shell: it is empty, contains a NUL byte or is too long.
    #[error("the command cannot be run: {reason}")]
    Command {
        /// The problem, and how to fix it.
        reason: String,
    },
    /// A process could not be started.
    #[error("{program:?} could not be started: {source}")]
    Start {
        /// The program to start.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The requested sandbox is not available, so nothing ran.
    #[error("the command was not run, because its sandbox is not available: {reason}")]
    Sandbox {
        /// The missing part, and what to do.
        reason: String,
    },
    /// The system refused, for any other reason: permissions, a full disk, a broken device.
    #[error("could not {action} `{path}`: {source}{}", advice(source))]
    Io {
        /// The verb: `read`, `write`, `list` and so on.
        action: &'static str,
        /// The path inside the workspace, or the workspace folder itself.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl WorkspaceError {
    /// Converts a system error into a variant. `action` is a verb for the message, `path` the named
    /// path.
    pub(crate) fn from_io(action: &'static str, path: impl ToString, source: io::Error) -> Self {
        let path = path.to_string();
        // cap-std reports a path that leads outside with this kind and no system error number.
        let leaves =
            source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error().is_none();
        let errno = source
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error);
        match errno {
            _ if leaves => Self::LinkLeaves { path },
            // `openat2` reports a lookup that leaves the folder as `EXDEV`.
            Some(rustix::io::Errno::XDEV) => Self::LinkLeaves { path },
            Some(rustix::io::Errno::LOOP) => Self::LinkLoop { path },
            Some(rustix::io::Errno::NAMETOOLONG) => Self::PathTooLong {
                input: shorten_text(&path),
            },
            Some(rustix::io::Errno::ISDIR) => Self::NotAFile {
                path,
                found: "a folder",
            },
            Some(rustix::io::Errno::NOTDIR) => Self::NotAFolder { path },
            _ if source.kind() == io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }
}

/// Returns advice for a system error, if there is more to say than the system does.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; room has to be made on that disk first"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; ask the user, or choose another place"
        }
        _ => "",
    }
}

/// Returns the start of a text for an error message, at most 200 characters.
pub(crate) fn shorten_text(text: &str) -> String {
    let mut start: String = text.chars().take(200).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
