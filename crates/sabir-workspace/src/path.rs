//! Parses the paths that models write, and tells which of them are protected.
//!
//! Supported: relative paths with `.` and `..` that stay inside, and absolute paths inside the
//! workspace folder.
//!
//! Unsupported on purpose: `~`, `$HOME`, URLs and percent encoding. `~/x` is a folder called `~`,
//! and `%2e%2e` is a name.
//!
//! `..` is resolved on the text (`a/../b` is `b`), so a path means the same whether or not `a` is a
//! link. The kernel, not this module, makes sure at the moment of use that no *link* leads out (see
//! [`crate::Workspace`]).

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::error::{WorkspaceError, shorten_text};
use crate::protected_paths;

/// `NAME_MAX` of Linux: the longest name in one folder.
const MAX_NAME_BYTES: usize = 255;
/// `PATH_MAX` of Linux without the NUL at the end.
const MAX_PATH_BYTES: usize = 4095;

/// A normalized path relative to the workspace folder: without `.`, `..` and root, never outside.
/// `.` is the folder itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkPath(PathBuf);

impl WorkPath {
    /// Returns the workspace folder itself.
    #[must_use]
    pub fn root() -> Self {
        Self(PathBuf::new())
    }

    /// Parses a path as a model wrote it. `root` is the absolute folder that absolute paths must
    /// lie in; components are compared, so `/home/ada/app-secrets` is not inside `/home/ada/app`.
    ///
    /// # Errors
    /// [`WorkspaceError::PathEmpty`], [`PathNul`](WorkspaceError::PathNul),
    /// [`PathUrl`](WorkspaceError::PathUrl), [`PathTooLong`](WorkspaceError::PathTooLong) and
    /// [`PathOutside`](WorkspaceError::PathOutside). The file system is not consulted.
    pub fn parse(text: &str, root: &Path) -> Result<Self, WorkspaceError> {
        if text.is_empty() {
            return Err(WorkspaceError::PathEmpty);
        }
        // A C string ends at a NUL, so the kernel would use another path than the one that was
        // checked.
        if text.contains('\0') {
            return Err(WorkspaceError::PathNul {
                input: shorten_text(text),
            });
        }
        if is_url(text) {
            return Err(WorkspaceError::PathUrl {
                input: shorten_text(text),
            });
        }
        let path = Path::new(text);
        if text.len() > MAX_PATH_BYTES
            || path
                .components()
                .any(|part| part.as_os_str().len() > MAX_NAME_BYTES)
        {
            return Err(WorkspaceError::PathTooLong {
                input: shorten_text(text),
            });
        }
        let outside = |resolved| WorkspaceError::PathOutside {
            input: shorten_text(text),
            resolved,
        };
        // Checked after normalizing: `src/../../x` has an inner beginning and an outer end.
        let normal = normalize_path(path).map_err(outside)?;
        if normal.is_absolute() {
            return match normal.strip_prefix(root) {
                Ok(inside) => Ok(Self(inside.to_path_buf())),
                Err(_) => Err(outside(normal)),
            };
        }
        Ok(Self(normal))
    }

    /// Converts a path that the workspace's own walks found, which only yield inner names; `None`
    /// for any other path.
    pub fn from_inside(path: &Path) -> Option<Self> {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
            .then(|| Self(path.to_path_buf()))
    }

    /// Returns the path below the workspace folder; empty for the folder itself.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns the path for system calls relative to the folder's handle, which do not accept an
    /// empty path.
    pub(crate) fn as_syscall_path(&self) -> &Path {
        if self.is_root() {
            Path::new(".")
        } else {
            &self.0
        }
    }

    /// Returns true for the workspace folder itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns the reason that a write needs a person's approval even if edits are approved; `None`
    /// for ordinary files.
    #[must_use]
    pub fn protection_reason(&self) -> Option<&'static str> {
        protection_reason(self)
    }
}

impl fmt::Display for WorkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_syscall_path().display().fmt(f)
    }
}

/// Returns the reason that a path is protected, as a noun phrase such as `git's own files`; `None`
/// for ordinary paths.
///
/// Changing a protected file makes some program run something later: git hooks, editor tasks,
/// configuration of package managers and CI, and the instructions of coding agents, including this
/// one. The path counts whether or not it exists, in any letter case, and with invisible characters
/// removed, because some file systems ignore those. Everything below a protected folder is
/// protected too. The cost is bounded by the path's length.
#[must_use]
pub fn protection_reason(path: &WorkPath) -> Option<&'static str> {
    protected_paths::find_protection_reason(path.as_path())
}

/// Removes `.` and resolves `..` on the text. The error is the path that climbs out, as far as it
/// could be resolved.
fn normalize_path(path: &Path) -> Result<PathBuf, PathBuf> {
    let mut normal = PathBuf::new();
    let mut depth = 0_usize;
    let mut climbed = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => {
                normal.pop();
                depth -= 1;
            }
            // `..` above the root of the file system is the root again; above a relative start it
            // leaves the workspace.
            Component::ParentDir if path.is_absolute() => {}
            Component::ParentDir => climbed.push(".."),
            Component::Normal(name) => {
                normal.push(name);
                depth += 1;
            }
            Component::RootDir | Component::Prefix(_) => normal.push(part),
        }
    }
    if climbed.as_os_str().is_empty() {
        Ok(normal)
    } else {
        Err(climbed.join(normal))
    }
}

/// Returns true for a scheme with `://`, or the `file:` scheme in any form.
fn is_url(text: &str) -> bool {
    if text
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case("file:"))
    {
        return true;
    }
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let found = match WorkPath::parse(input, Path::new("/w")) {
            Ok(path) => path.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert!(
            found.starts_with(expected),
            "{input:?}: expected {expected:?}, found {found:?}"
        );
    }

    #[test]
    fn paths_as_models_write_them() {
        check("a.rs", "a.rs");
        check("./src//main.rs", "src/main.rs");
        check("a/../b", "b");
        check("a/b/../../c/", "c");
        check(".", ".");
        check("a/..", ".");
        check("/w", ".");
        check("/w/a", "a");
        check("/w/../w/a", "a");
        check("/../w/a", "a");
        check("~/.ssh/id_rsa", "~/.ssh/id_rsa");
        check("%2e%2e/%2e%2e/etc/passwd", "%2e%2e/%2e%2e/etc/passwd");
        check("--pre=./evil.sh", "--pre=./evil.sh");
        check("\\\\attacker\\share\\x", "\\\\attacker\\share\\x");
        check("файл.txt", "файл.txt");
    }

    #[test]
    fn paths_that_are_refused() {
        check("", "error: the path is empty");
        check(
            "..",
            "error: \"..\" is outside the workspace (it means \"../\")",
        );
        check(
            "../../etc/passwd",
            "error: \"../../etc/passwd\" is outside the workspace (it means \"../../etc/passwd\")",
        );
        check(
            "a/../../b",
            "error: \"a/../../b\" is outside the workspace (it means \"../b\")",
        );
        check("/etc/passwd", "error: \"/etc/passwd\" is outside");
        check("/w-evil/x", "error: \"/w-evil/x\" is outside");
        check(
            "/w/src/../../w-evil/x",
            "error: \"/w/src/../../w-evil/x\" is outside the workspace (it means \"/w-evil/x\")",
        );
        check(
            "/proc/self/cwd/../etc/passwd",
            "error: \"/proc/self/cwd/../etc/passwd\" is outside",
        );
        check(
            "file:///etc/passwd",
            "error: \"file:///etc/passwd\" is a URL",
        );
        check("FILE:x", "error: \"FILE:x\" is a URL");
        check(
            "https://x.example/y",
            "error: \"https://x.example/y\" is a URL",
        );
        check(
            "a\0../../etc/passwd",
            "error: the path \"a\\0../../etc/passwd\" holds a NUL byte",
        );
        check(
            &format!("x/{}", "y".repeat(5000)),
            "error: the path \"x/yyy",
        );
        check(&"y".repeat(256), "error: the path \"yyy");
    }

    #[test]
    fn a_long_refused_path_is_not_echoed_whole() {
        let error = WorkPath::parse(&"x/".repeat(60_000), Path::new("/w")).unwrap_err();
        assert!(error.to_string().len() < 500, "{error}");
    }

    proptest::proptest! {
        #[test]
        fn parsed_paths_stay_inside_the_workspace(text in "[a-c./~ \\\\]{0,24}") {
            if let Ok(path) = WorkPath::parse(&text, Path::new("/a/b")) {
                assert!(path.as_path().components().all(|part| matches!(part, Component::Normal(_))));
                let again = WorkPath::parse(&path.to_string(), Path::new("/a/b")).unwrap();
                assert_eq!(again, path);
            }
        }
    }
}
