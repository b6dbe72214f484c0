//! Checks that a path stays inside the workspace, relative to the folder that the line has changed to.
//!
//! All of this works on the text of paths; links are resolved by the caller ([`CommandFacts::links`](super::CommandFacts::links)). The
//! folder of a command is often not certain (`cd a || cd b/c`), so a [`FolderScope`] keeps the least depth: from any folder at
//! least one level down, `../x` is inside. After a `cd` that may have left the workspace nothing relative is inside any more.

use super::ask_reason::AskReason;
use super::word::{ShellWord, WordForm};

/// The folder where a command would run, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderScope {
    /// The path relative to the workspace (`.` for the workspace itself); `None` if it is not certain.
    path: Option<String>,
    /// The least number of folders between it and the workspace, which is the number of `..` that are safe.
    depth: usize,
    /// True if it may lie outside of the workspace, so that no relative path is known to be inside.
    maybe_outside: bool,
}

/// Files outside of the workspace that any program may read: devices, and descriptions of the machine without data of its users.
const HARMLESS: [&str; 24] = [
    "/dev/null",
    "/dev/stdin",
    "/dev/zero",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/alpine-release",
    "/etc/redhat-release",
    "/etc/fedora-release",
    "/etc/issue",
    "/etc/hostname",
    "/etc/timezone",
    "/etc/shells",
    "/etc/services",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/filesystems",
    "/proc/stat",
    "/proc/self/cgroup",
    "/proc/1/cgroup",
];
/// Patterns for such files.
const HARMLESS_PATTERNS: [&str; 3] = ["/etc/*release", "/etc/*-release", "/etc/*_version"];
/// Folders of installed packages, which all users may read.
const INSTALLED: [&str; 3] = ["/usr/include/", "/usr/share/doc/", "/usr/share/dict/"];

impl FolderScope {
    /// Returns the workspace folder.
    pub(crate) fn root() -> Self {
        Self {
            path: Some(".".to_owned()),
            depth: 0,
            maybe_outside: false,
        }
    }

    /// Returns an unknown folder inside of the workspace.
    pub(crate) fn unknown_inside() -> Self {
        Self {
            path: None,
            depth: 0,
            maybe_outside: false,
        }
    }

    /// Returns an unknown folder that may lie outside of the workspace.
    pub(crate) fn outside() -> Self {
        Self {
            maybe_outside: true,
            ..Self::unknown_inside()
        }
    }

    /// Returns an unknown folder that may lie outside of the workspace if this one may.
    pub(crate) fn forget_path(&self) -> Self {
        Self {
            maybe_outside: self.maybe_outside,
            ..Self::unknown_inside()
        }
    }

    /// Returns the path if it is certain.
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the scope that covers both.
    pub(crate) fn common_scope(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        Self {
            path: None,
            depth: self.depth.min(other.depth),
            maybe_outside: self.maybe_outside || other.maybe_outside,
        }
    }

    /// Resolves a path from this folder.
    ///
    /// # Errors
    /// Returns the reason if the path lies, or may lie, outside of the workspace.
    pub(crate) fn join(&self, path: &str, root: &str) -> Result<Self, AskReason> {
        let (from, rest) = match strip_root(path, root) {
            Some(rest) => (Self::root(), rest),
            None if path.starts_with('/') => {
                return Err(format!("{path} lies outside of the workspace").into());
            }
            None if self.maybe_outside => {
                return Err(format!("{path} may lie outside of the workspace").into());
            }
            None => (self.clone(), path),
        };
        let mut depth = from.depth;
        let mut names = from.path.map(path_components);
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                // Every `..` must be covered by a folder that is certain to be there.
                ".." => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or_else(|| format!("{path} may lie outside of the workspace"))?;
                    names = names.map(|mut names| {
                        names.pop();
                        names
                    });
                }
                name => {
                    depth += 1;
                    if let Some(names) = &mut names {
                        names.push(name.to_owned());
                    }
                }
            }
        }
        let path = names.map(|names| {
            if names.is_empty() {
                ".".to_owned()
            } else {
                names.join("/")
            }
        });
        Ok(Self {
            path,
            depth,
            maybe_outside: false,
        })
    }
}

/// Splits a normalized path into its components; `.` has none.
fn path_components(path: String) -> Vec<String> {
    path.split('/')
        .filter(|part| *part != ".")
        .map(str::to_owned)
        .collect()
}

/// Strips the workspace folder from an absolute path. The rest begins with `/` or is empty.
pub(super) fn strip_root<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root).filter(|_| !root.is_empty())?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Checks that the paths a word may name are inside of the workspace and usually hold no secrets.
///
/// # Errors
/// Returns the reason if reading such a path may not be harmless.
pub(crate) fn check_readable(
    word: &ShellWord,
    folder: &FolderScope,
    root: &str,
) -> Result<(), AskReason> {
    match word.form {
        WordForm::Literal if HARMLESS.contains(&word.text.as_str()) => Ok(()),
        WordForm::Literal if is_installed(&word.text) => Ok(()),
        WordForm::Literal => check_path(&word.text, folder, root),
        WordForm::Glob(_) if HARMLESS_PATTERNS.contains(&word.text.as_str()) => Ok(()),
        WordForm::Glob(_) => {
            // In some shells `.*` also matches `..`.
            let up = word
                .text
                .split('/')
                .filter_map(|part| {
                    part.strip_prefix('.')
                        .filter(|rest| !rest.starts_with("[!.]"))
                })
                .any(|rest| rest.starts_with(['*', '?', '[']));
            if up {
                return Err(format!("{} may lead out of the folder", word.raw).into());
            }
            check_path(&word.text, folder, root)
        }
        WordForm::Field(known) if known.inside && !word.text.starts_with('/') => {
            folder.join(&word.text, root)?;
            Ok(())
        }
        WordForm::Field(_) | WordForm::Fields => {
            Err(format!("what {} becomes is not known", word.raw).into())
        }
        WordForm::Odd(odd) => Err(format!("{} holds {odd}", word.raw).into()),
    }
}

/// Reports whether a path is in a folder of installed software that all users may read.
fn is_installed(path: &str) -> bool {
    INSTALLED.iter().any(|folder| path.starts_with(folder))
        && !path.split('/').any(|part| part == "..")
        && super::secret_paths::secret_reason(path).is_none()
}

/// Checks a certain path.
fn check_path(path: &str, folder: &FolderScope, root: &str) -> Result<(), AskReason> {
    let joined = folder.join(path, root)?;
    // `cd .ssh && cat config` names the folder elsewhere in the line.
    let reason = super::secret_paths::secret_reason(path)
        .or_else(|| super::secret_paths::secret_reason(joined.path()?));
    match reason {
        Some(why) => Err(format!("{path} {why}").into()),
        None => Ok(()),
    }
}
