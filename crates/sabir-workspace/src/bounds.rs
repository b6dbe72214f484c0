//! What a workspace does not show and does not change, whoever approved it.
//!
//! A policy answers before a call runs, and by the name that the call gives. Bounds hold where the file is opened, by the name
//! under which the kernel found it: a path is resolved, judged, and then opened through no link at all, so what is opened is what
//! was judged. They are judgements of names: a hidden file that is given another name is that other name's affair, and so is
//! a second hard link.
//!
//! Names are compared byte by byte: a rule for `.env` says nothing of `.ENV`, which is another file on Linux.
//!
//! | what | says | holds for |
//! | --- | --- | --- |
//! | ignore files | which names are hidden, in git's own syntax | reading, writing, listing, searching |
//! | hidden globs | the same, as rules of the policy say it | reading, writing, listing, searching |
//! | a limit | what may be written | writing |

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

/// What may not be seen and what may not be written. Set with [`Workspace::with_bounds`], and changed with
/// [`Workspace::set_bounds`].
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Names of the files that say what is hidden, in every folder.
    ignore_files: Vec<String>,
    hidden: PathGlobs,
    limit: WriteLimit,
    because: Option<String>,
    lists: IgnoreFileCache,
}

/// What may be written.
#[derive(Debug, Clone, Default)]
enum WriteLimit {
    /// Whatever is not hidden.
    #[default]
    None,
    /// Only what matches.
    Only(Box<WritablePatterns>),
    /// Nothing.
    Nothing,
}

/// The files that may be written, where not all may be.
#[derive(Debug, Clone)]
struct WritablePatterns {
    globs: PathGlobs,
    expressions: PathRegexes,
}

/// A pattern that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path pattern {glob:?} is not valid: {reason}")]
pub struct BoundsError {
    /// The pattern as it was written; all of them where they are too many together.
    pub glob: String,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

/// Who hides a path: the words that stand after "is hidden by".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HiddenBy {
    /// A line of a file of this name.
    File(String),
    /// A file of this name that cannot be read, so that nobody knows what it hides.
    Unreadable(String),
    /// A hidden glob.
    Rule,
}

impl Bounds {
    /// Nothing is bound.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides what files of these names say, in the syntax of `.gitignore`. They are read in every folder of the workspace, each
    /// time anew. Each name is judged by itself: what one hides, a `!` in another does not show. The files themselves can be
    /// read, and [`protection_reason`](Workspace::protection_reason) says that they are.
    #[must_use]
    pub fn ignore_files(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.ignore_files.extend(names.into_iter().map(Into::into).filter(|name| is_name(name)));
        self
    }

    /// Hides what matches one of these globs, and what lies below it. The globs are those of `path=GLOB` rules: `*` is any
    /// characters of one name, `**` any characters, everything else itself. One that begins with `/` is about absolute paths.
    ///
    /// # Errors
    /// A glob that is empty or too long.
    pub fn hide_globs(mut self, globs: impl IntoIterator<Item = String>) -> Result<Self, BoundsError> {
        self.hidden = self.hidden.with_globs(globs)?;
        Ok(self)
    }

    /// Lets only paths be written that match one of these globs, or lie below such a path.
    ///
    /// # Errors
    /// As [`hide_globs`](Self::hide_globs).
    pub fn write_only(self, globs: impl IntoIterator<Item = String>) -> Result<Self, BoundsError> {
        let globs = PathGlobs::default().with_globs(globs)?;
        Ok(self.limit_writes_to(WritablePatterns { globs, expressions: PathRegexes::default() }))
    }

    /// Lets also paths be written in which one of these regular expressions occurs; without [`write_only`](Self::write_only) before
    /// it, only those.
    ///
    /// # Errors
    /// An expression that cannot be understood, or is too large.
    pub fn or_write_matching(self, expressions: impl IntoIterator<Item = String>) -> Result<Self, BoundsError> {
        let expressions = PathRegexes::new(expressions)?;
        let globs = match &self.limit {
            WriteLimit::Only(writable) => writable.globs.clone(),
            _ => PathGlobs::default(),
        };
        Ok(self.limit_writes_to(WritablePatterns { globs, expressions }))
    }

    /// What may not be written at all may not be written by a second limit either.
    fn limit_writes_to(mut self, writable: WritablePatterns) -> Self {
        if !matches!(self.limit, WriteLimit::Nothing) {
            self.limit = WriteLimit::Only(Box::new(writable));
        }
        self
    }

    /// Lets nothing be written.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.limit = WriteLimit::Nothing;
        self
    }

    /// What to say of the limit, such as "the mode `plan` writes nothing; finish the plan, or ask the user for another mode".
    #[must_use]
    pub fn with_limit_reason(mut self, words: impl Into<String>) -> Self {
        self.because = Some(words.into());
        self
    }

    /// Whether anything can be hidden.
    pub(crate) fn hides_anything(&self) -> bool {
        !self.ignore_files.is_empty() || !self.hidden.is_empty()
    }

    /// Whether anything but ignore files says what is hidden.
    pub(crate) fn has_globs(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether a file of that name says what is hidden.
    pub(crate) fn is_ignore_file(&self, name: &[u8]) -> bool {
        self.ignore_files.iter().any(|known| known.as_bytes() == name)
    }

    /// Why a path may not be written, if it may not be.
    fn write_refusal(&self, root: &Path, path: &Path) -> Option<String> {
        let otherwise = match &self.limit {
            WriteLimit::None => return None,
            WriteLimit::Only(only)
                if only.globs.matches_path_or_above(root, path) || only.expressions.matches_path(path) =>
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
    /// The same folder within bounds. They hold for its files, not for commands: see [`list_hidden_paths`](Self::list_hidden_paths) for those.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        self.set_bounds(bounds);
        self
    }

    /// Whether a path may be read: neither it nor the place that it leads to is hidden. It tells early what every look at the
    /// file tells anyway.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], and those of [`resolve_links`](Self::resolve_links).
    pub fn check_readable(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        if !self.bounds().hides_anything() {
            return Ok(());
        }
        match self.resolve_visible(path, "look at") {
            Err(WorkspaceError::Missing { .. }) => Ok(()),
            reached => reached.map(drop),
        }
    }

    /// Whether a path may be written: it may be read, and no limit forbids it. It tells early what every write tells anyway.
    ///
    /// # Errors
    /// [`WorkspaceError::Hidden`], [`Limited`](WorkspaceError::Limited), and those of [`resolve_links`](Self::resolve_links).
    pub fn check_writable(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        self.check_readable(path)?;
        if matches!(self.bounds().limit, WriteLimit::None) {
            return Ok(());
        }
        [path, &self.resolve_links(path)?].into_iter().try_for_each(|path| self.check_write_limit(path))
    }

    /// Why writing here needs a person: as [`WorkPath::protection_reason`], and for the files that say what is hidden.
    #[must_use]
    pub fn protection_reason(&self, path: &WorkPath) -> Option<&'static str> {
        let name = path.as_path().file_name().unwrap_or_default();
        let ignore_file = self.bounds().is_ignore_file(name.as_encoded_bytes());
        path.protection_reason().or(ignore_file.then_some("a file that says what is hidden from the model"))
    }

    /// Whether the folder is the root of the whole machine, where being inside the workspace says nothing.
    #[must_use]
    pub fn is_whole_machine(&self) -> bool {
        self.root().parent().is_none()
    }

    /// The absolute paths of all that exists and is hidden, folders as a whole, sorted: what a sandbox has to hide from commands.
    /// In place of a link stands the file that it leads to, also outside of the workspace; a link to a folder is left out.
    /// Looks at the whole workspace, with several threads, unless nothing is bound.
    ///
    /// # Errors
    /// [`WorkspaceError::Stopped`], and [`Io`](WorkspaceError::Io) when the workspace folder itself cannot be read.
    pub fn list_hidden_paths(&self, stop: &StopFlag) -> Result<Vec<PathBuf>, WorkspaceError> {
        if self.bounds().hides_anything() { self.scan_hidden_paths(stop) } else { Ok(Vec::new()) }
    }

    /// Fails for a path that no write may touch, by its name alone.
    pub(crate) fn check_write_limit(&self, path: &WorkPath) -> Result<(), WorkspaceError> {
        match self.bounds().write_refusal(self.root(), path.as_path()) {
            Some(because) => Err(WorkspaceError::Limited { path: path.to_string(), because }),
            None => Ok(()),
        }
    }
}

/// "`a`, `b`".
impl fmt::Display for WritablePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.globs.is_empty() || self.expressions.is_empty() { "" } else { ", " };
        write!(f, "{}{between}{}", self.globs, self.expressions)
    }
}

impl fmt::Display for HiddenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Unreadable(name) => write!(f, "{name}, which cannot be read as a text file of at most 1 MiB"),
            Self::Rule => f.write_str("a rule"),
        }
    }
}

/// Whether it is a name that a file can have: one component.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
