//! Holds the rules against this very tree.

use std::fs;
use std::path::Path;

use sabir_tidy::{SourceTree, check_tree};

/// Folders that hold no source of ours.
const ASIDE: [&str; 4] = ["target", "node_modules", "corpus", ".git"];

fn read(root: &Path, folder: &Path, tree: &mut SourceTree) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !ASIDE.contains(&name.as_str()) {
            read(root, &path, tree)?;
        } else if name.ends_with(".rs") || ["Cargo.toml", "Cargo.lock", "processes.md"].contains(&name.as_str()) {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            tree.add_file(relative, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut tree = SourceTree::default();
    read(root, root, &mut tree).unwrap();
    assert!(tree.rust_file_count() > 20, "the tree was not found");
    let found = check_tree(&tree);
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{} rules are broken:\n{}", found.len(), lines.join("\n"));
}
