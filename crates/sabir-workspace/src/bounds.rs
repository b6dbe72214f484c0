//! Restricts which paths of a workspace can be seen and changed, even with an approval.
//!
//! A policy decides before a call runs, by the name that the call gives. Bounds hold where the file
//! is opened, by the name under which the kernel found it: a path is resolved, checked, and then
//! opened without following any link, so exactly what was checked is opened. Bounds check names: a
//! hidden file that gets another name, or a second hard link, is checked by that name.
//!
//! Names are compared byte by byte: a rule for `.env` does not match `.ENV`, which is another file
//! on Linux.
//!
//! | source | defines | applies to |
//! | --- | --- | --- |
//! | ignore files | hidden names, in git's syntax | reading, writing, listing, searching |
//! | hidden globs | hidden names, in the syntax of policy rules | reading, writing, listing, searching |
//! | a write limit | the writable paths | writing |

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::WorkspaceError;
use crate::files::Workspace;
use crate::path::WorkPath;
use crate::stop_flag::StopFlag;

pub(crate) use globs::PathGlobs;
pub(crate) use hidden_rules::{HiddenRules, IgnoreFileCache};
use path_regexes::PathRegexes;
pub(crate) use visible_entry::AccessError;

mod globs;
mod hidden_rules;
mod hidden_scan;
mod path_regexes;
mod visible_entry;

/// The bounds of a workspace: hidden paths and a write limit. Set with [`Workspace::with_bounds`],
/// changed with [`Workspace::set_bounds`].
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// The names of the ignore files, which count in every folder.
    ignore_files: Vec<String>,
    hidden: PathGlobs,
    limit: WriteLimit,
    because: Option<String>,
    lists: IgnoreFileCache,
}

/// The limit on writing.
#[derive(Debug, Clone, Default)]
enum WriteLimit {
    /// Everything that is not hidden may be written.
    #[default]
    None,
    /// Only matching paths may be written.
    Only(Box<WritablePatterns>),
    /// Nothing may be written.
    Nothing,
}

/// The patterns of writable paths.
#[derive(Debug, Clone)]
struct WritablePatterns {
    globs: PathGlobs,
    expressions: PathRegexes,
}

/// The error for an invalid path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path pattern {glob:?} is not valid: {reason}")]
pub struct BoundsError {
    /// The pattern as written; all patterns if together they are too many.
    pub glob: String,
    /// The problem, and how to fix it.
    pub reason: String,
}

/// The source that hides a path. Its `Display` text completes "is hidden by".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HiddenBy {
    /// A line of an ignore file of this name.
    File(String),
    /// An ignore file of this name that cannot be read, so that everything counts as hidden.
    Unreadable(String),
    /// One of the hidden globs.
    Rule,
}

impl Bounds {
    /// Returns bounds that restrict nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides the paths that files of these names list, in the syntax of `.gitignore`. The files are
    /// read in every folder of the workspace at each access. Each file name is checked on its own: a
    /// `!` in one does not show what another hides. The files themselves stay readable, and
    /// [`protection_reason`](Workspace::protection_reason) protects them from writes.
    #[must_use]
    pub fn ignore_files(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.ignore_files.extend(
            names
                .into_iter()
                .map(Into::into)
                .filter(|name| is_name(name)),
        );
        self
    }

    /// Hides paths that match one of these globs, and everything below them. The globs have the
    /// syntax of `path=GLOB` rules: `*` matches any characters within one name, `**` any
    /// characters, and everything else matches itself. A glob that begins with `/` applies to
    /// absolute paths.
    ///
    /// # Errors
    /// [`BoundsError`] for a glob that is empty or too long.
    pub fn hide_globs(
        mut self,
        globs: impl IntoIterator<Item = String>,
    ) -> Result<Self, BoundsError> {
        self.hidden = self.hidden.with_globs(globs)?;
        Ok(self)
    }

    /// Allows writing only to paths that match one of these globs, or lie below such a path.
    ///
    /// # Errors
    /// Those of [`hide_globs`](Self::hide_globs).
    pub fn limit_writes_to_globs(
        self,
        globs: impl IntoIterator<Item = String>,
    ) -> Result<Self, BoundsError> {
        let globs = PathGlobs::default().with_globs(globs)?;
        Ok(self.limit_writes_to(WritablePatterns {
            globs,
            expressions: PathRegexes::default(),
        }))
    }

    /// Also allows writing to paths in which one of these regular expressions matches; without a
    /// preceding [`limit_writes_to_globs`](Self::limit_writes_to_globs), only to those.
    ///
    /// # Errors
    /// [`BoundsError`] for an expression that does not parse or is too large.
    pub fn allow_writes_matching(
        self,
        expressions: impl IntoIterator<Item = String>,
    ) -> Result<Self, BoundsError> {
        let expressions = PathRegexes::new(expressions)?;
        let globs = match &self.limit {
            WriteLimit::Only(writable) => writable.globs.clone(),
            _ => PathGlobs::default(),
        };
        Ok(self.limit_writes_to(WritablePatterns { globs, expressions }))
    }

    /// Sets the write limit; a limit that forbids all writes is never loosened.
    fn limit_writes_to(mut self, writable: WritablePatterns) -> Self {
        if !matches!(self.limit, WriteLimit::Nothing) {
            self.limit = WriteLimit::Only(Box::new(writable));
        }
        self
    }

    /// Forbids all writes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.limit = WriteLimit::Nothing;
        self
    }

    /// Sets the text that explains the limit, such as "the mode `plan` writes nothing; finish the
    /// plan, or ask the user for another mode".
    #[must_use]
    pub fn with_limit_reason(mut self, words: impl Into<String>) -> Self {
        self.because = Some(words.into());
        self
    }

    /// Returns true if anything can be hidden.
    pub(crate) fn hides_anything(&self) -> bool {
        !self.ignore_files.is_empty() || !self.hidden.is_empty()
    }

    /// Returns true if globs hide anything, in addition to the ignore files.
    pub(crate) fn has_globs(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Returns true if a file of this name is an ignore file.
    pub(crate) fn is_ignore_file(&self, name: &[u8]) -> bool {
        self.ignore_files
            .iter()
            .any(|known| known.as_bytes() == name)
    }

    /// Returns the reason that a path may not be written, if any.
    fn write_refusal(&self, root: &Path, path: &Path) -> Option<String> {
        let otherwise = match &self.limit {
            WriteLimit::None => return None,
            WriteLimit::Only(only)
                if only.globs.matches_path_or_above(root, path)
                    || only.expressions.matches_path(path) =>
            {
                return None;
            }
            WriteLimit::Only(only) => format!("only {only} may be written now"),
            WriteLimit::Nothing => "nothing may be written now".to_owned(),
        };
        Some(self.because.clone().unwrap_or(otherwise))
    }
}

impl Workspace {
    /// Applies bounds to the workspace. They hold for its files, not for commands: see
    /// [`list_hidden_paths`](Self::list_hidden_paths) for those.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        self.set_bounds(bounds);
        self
    }

    /// Checks that a path may be read: neither it nor its resolved target is hidden. Every access
    /// checks the same; this only reports it early.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], and those of [`resolve_links`](Self::resolve_links).
    pub fn check_readable(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        if !self.bounds().hides_anything() {
            return Ok(());
        }
        self.resolve_readable(path).map(drop)
    }

    /// Resolves the symbolic links of a path as [`resolve_links`](Self::resolve_links) does, and checks that it may be read.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], and those of [`resolve_links`](Self::resolve_links).
    pub fn resolve_readable(&self, path: &WorkPath) -> Result<WorkPath, WorkspaceError> {
        if !self.bounds().hides_anything() {
            return self.resolve_links(path);
        }
        match self.resolve_visible(path, "look at") {
            Ok(reached) => Ok(reached.path),
            // A missing path may be created; whether that is allowed is decided by the write limit.
            Err(WorkspaceError::Missing { .. }) => self.resolve_links(path),
            Err(error) => Err(error),
        }
    }

    /// Checks that a path may be written: it is readable, and no limit forbids it. Every write
    /// checks the same; this only reports it early.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], [`WriteForbidden`](WorkspaceError::WriteForbidden), and those of
    /// [`resolve_links`](Self::resolve_links).
    pub fn check_writable(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        if matches!(self.bounds().limit, WriteLimit::None) {
            return self.check_readable(path);
        }
        self.resolve_writable(path).map(drop)
    }

    /// Resolves the symbolic links of a path as [`resolve_links`](Self::resolve_links) does, and checks that it may be written.
    ///
    /// # Errors
    /// Those of [`check_writable`](Self::check_writable).
    pub fn resolve_writable(&self, path: &WorkPath) -> Result<WorkPath, WorkspaceError> {
        let real = self.resolve_readable(path)?;
        // Both names count: neither a link nor its target may bypass the limit.
        self.check_write_limit(path)?;
        self.check_write_limit(&real)?;
        Ok(real)
    }

    /// Returns the reason that a write needs a person's approval: that of
    /// [`WorkPath::protection_reason`], or that the path is an ignore file.
    #[must_use]
    pub fn protection_reason(&self, path: &WorkPath) -> Option<&'static str> {
        let name = path.as_path().file_name().unwrap_or_default();
        let ignore_file = self.bounds().is_ignore_file(name.as_encoded_bytes());
        path.protection_reason()
            .or(ignore_file.then_some("a file that says what is hidden from the model"))
    }

    /// Returns true if the folder is the root of the file system, so that every path is inside the
    /// workspace.
    #[must_use]
    pub fn is_filesystem_root(&self) -> bool {
        self.root().parent().is_none()
    }

    /// Returns the absolute paths of everything that exists and is hidden, folders as a whole,
    /// sorted, so that a sandbox can hide it from commands. A link is replaced by the file it leads
    /// to, even outside the workspace; a link to a folder is left out. Scans the whole workspace
    /// with several threads, unless nothing can be hidden.
    ///
    /// # Errors
    /// [`WorkspaceError::Stopped`], and [`Io`](WorkspaceError::Io) when the workspace folder itself
    /// cannot be read.
    pub fn list_hidden_paths(&self, stop: &StopFlag) -> Result<Vec<PathBuf>, WorkspaceError> {
        if self.bounds().hides_anything() {
            self.scan_hidden_paths(stop)
        } else {
            Ok(Vec::new())
        }
    }

    /// Fails for a path that the write limit forbids, by its name alone: links are not resolved, and nothing is looked up.
    ///
    /// # Errors
    /// [`WorkspaceError::WriteForbidden`].
    pub fn check_write_limit(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        match self.bounds().write_refusal(self.root(), path.as_path()) {
            Some(because) => Err(WorkspaceError::WriteForbidden {
                path: path.to_string(),
                because,
            }),
            None => Ok(()),
        }
    }
}

/// Writes the patterns as "`a`, `b`".
impl fmt::Display for WritablePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.globs.is_empty() || self.expressions.is_empty() {
            ""
        } else {
            ", "
        };
        write!(f, "{}{between}{}", self.globs, self.expressions)
    }
}

impl fmt::Display for HiddenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Unreadable(name) => write!(
                f,
                "{name}, which cannot be read as a text file of at most 1 MiB"
            ),
            Self::Rule => f.write_str("a rule"),
        }
    }
}

/// Returns true for a valid file name: one component.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
