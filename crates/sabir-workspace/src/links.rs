//! Resolves the links that a command's paths may pass, before the command runs.
//!
//! The file tools cannot be led out of the workspace, because the kernel enforces that. A command
//! opens what it wants, so links are resolved when the command is checked. They may change before
//! the command runs; the sandbox covers that.

use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;

use crate::files::Workspace;

/// The number of names that are examined for one path component.
const MAX_NAMES: usize = 20_000;
/// The number of matching files that are followed for one pattern.
const MAX_PLACES: usize = 2_000;

/// The number of files that are searched for links.
const MAX_FILES: usize = 200_000;
/// The folders of installed programs and their data, readable for everybody.
const INSTALLED: [&str; 8] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/opt",
    "/nix/store",
    "/dev/null",
];

/// The error for a path that leads out of the workspace, or may.
struct EscapesWorkspace;

/// The error for more files than can be searched.
#[derive(Debug)]
pub struct TooManyFiles;

/// A path with links resolved, and whether a link led there.
type LinkedPath = (PathBuf, bool);

impl Workspace {
    /// Returns the paths in the workspace that links lead `path` to, with `None` for an outside or
    /// uncertain target. The result is empty if the path contains no link. If `pattern` is true,
    /// the path is a shell pattern that stands for all matching files.
    pub fn link_targets(&self, path: &str, pattern: bool) -> Vec<Option<String>> {
        let root = self.root();
        let mut locations = vec![(root.to_path_buf(), false)];
        for part in Path::new(path).components() {
            let mut next = Vec::new();
            for location in &locations {
                if resolve_component(root, location, part, pattern, &mut next).is_err() {
                    return vec![None];
                }
            }
            locations = next;
        }
        let inside = locations
            .into_iter()
            .filter(|(_, linked)| *linked)
            .map(|(location, _)| {
                let inside = location.strip_prefix(root).ok()?;
                inside.to_str().map(|inside| {
                    if inside.is_empty() {
                        ".".to_owned()
                    } else {
                        inside.to_owned()
                    }
                })
            });
        inside.collect()
    }
}

impl Workspace {
    /// Searches the whole workspace for a link that leads out of it, to something other than a
    /// program or a folder of installed software, and returns its path. Blocks for a while, since
    /// it visits every file.
    ///
    /// # Errors
    /// [`TooManyFiles`] for more than 200,000 files.
    pub fn find_escaping_link(&self) -> Result<Option<String>, TooManyFiles> {
        let mut open = vec![self.root().to_path_buf()];
        let mut count = 0;
        while let Some(folder) = open.pop() {
            // Folders that this process cannot list cannot be listed by a command either.
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                count += 1;
                if count > MAX_FILES {
                    return Err(TooManyFiles);
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push(entry.path()),
                    Ok(kind) if kind.is_symlink() && self.leaves_workspace(&entry.path()) => {
                        let path = entry.path();
                        return Ok(Some(
                            path.strip_prefix(self.root())
                                .unwrap_or(&path)
                                .to_string_lossy()
                                .into_owned(),
                        ));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Returns true if a link leads out of the workspace, and not to a program.
    fn leaves_workspace(&self, link: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        // Nothing can be read through a dangling link.
        let Ok(real) = link.canonicalize() else {
            return false;
        };
        let program = || {
            real.metadata()
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        };
        !real.starts_with(self.root())
            && !INSTALLED.iter().any(|location| real.starts_with(location))
            && !program()
    }
}

/// Resolves one more component, to every path that it may mean.
fn resolve_component(
    root: &Path,
    here: &LinkedPath,
    part: Component<'_>,
    pattern: bool,
    next: &mut Vec<LinkedPath>,
) -> Result<(), EscapesWorkspace> {
    let (location, linked) = here;
    let name = match part {
        Component::CurDir => return add_location((location.clone(), *linked), next),
        Component::ParentDir => {
            let above = location
                .parent()
                .filter(|above| above.starts_with(root))
                .ok_or(EscapesWorkspace)?;
            return add_location((above.to_path_buf(), *linked), next);
        }
        Component::Normal(name) => name,
        // Only relative paths belong to the workspace, so nothing can be said of others.
        Component::RootDir | Component::Prefix(_) => return Err(EscapesWorkspace),
    };
    let text = name.to_string_lossy();
    // A name that looks like a pattern may also be the name of a file.
    add_location(follow_link(root, &location.join(name), *linked)?, next)?;
    // A bracket that is not closed matches itself.
    let open = text.contains(['*', '?'])
        || text
            .split_once('[')
            .is_some_and(|(_, rest)| rest.contains(']'));
    if !(pattern && open) {
        return Ok(());
    }
    let glob = GlobBuilder::new(&text)
        .backslash_escape(true)
        .build()
        .map_err(|_| EscapesWorkspace)?
        .compile_matcher();
    let Ok(names) = std::fs::read_dir(location) else {
        return Ok(());
    };
    for (at, entry) in names.enumerate() {
        let entry = entry.map_err(|_| EscapesWorkspace)?;
        if at > MAX_NAMES {
            return Err(EscapesWorkspace);
        }
        if glob.is_match(entry.file_name()) {
            add_location(follow_link(root, &entry.path(), *linked)?, next)?;
        }
    }
    Ok(())
}

fn add_location(location: LinkedPath, next: &mut Vec<LinkedPath>) -> Result<(), EscapesWorkspace> {
    if next.len() > MAX_PLACES {
        return Err(EscapesWorkspace);
    }
    next.push(location);
    Ok(())
}

fn follow_link(root: &Path, path: &Path, linked: bool) -> Result<LinkedPath, EscapesWorkspace> {
    let is_link = path.symlink_metadata().is_ok_and(|data| data.is_symlink());
    if !is_link {
        return Ok((path.to_path_buf(), linked));
    }
    // A dangling link may be created by a write through it, and lead anywhere.
    let real = path.canonicalize().map_err(|_| EscapesWorkspace)?;
    if real.starts_with(root) {
        Ok((real, true))
    } else {
        Err(EscapesWorkspace)
    }
}
