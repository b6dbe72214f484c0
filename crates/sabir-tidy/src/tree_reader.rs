//! Reads a source tree from the disk.
//!
//! This is the only file of the crate that touches the disk. It reads everything that a rule could
//! ask for, so that the rules themselves are pure.

use std::fs;
use std::io;
use std::path::Path;

use crate::SourceTree;

/// Folders that hold no source of ours.
const SKIPPED_FOLDERS: [&str; 4] = ["target", "node_modules", "corpus", ".git"];

/// Files that the rules read besides Rust code.
const READ_FILES: [&str; 3] = ["Cargo.toml", "Cargo.lock", "processes.md"];

/// Reads the Rust code, the manifests, the lock file and the table of processes below a folder.
///
/// # Errors
/// Returns the error of the first file or folder that cannot be read, or is not UTF-8.
pub fn read_tree(root: &Path) -> io::Result<SourceTree> {
    let mut tree = SourceTree::default();
    read_folder(root, root, &mut tree)?;
    Ok(tree)
}

/// Reads a folder and all below it. Symbolic links are followed; the tree has none that lead
/// upwards.
fn read_folder(root: &Path, folder: &Path, tree: &mut SourceTree) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // A skipped folder falls through to the second branch, whose names it does not have.
        if path.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            read_folder(root, &path, tree)?;
        } else if name.ends_with(".rs") || READ_FILES.contains(&name.as_str()) {
            let relative = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                // The tables of the rules are written with `/`, whatever the machine uses.
                .replace('\\', "/");
            tree.add_file(relative, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
