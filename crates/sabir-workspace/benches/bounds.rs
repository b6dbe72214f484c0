//! Measures the cost of bounds for listings: 100,000 files in 1,000 folders, listed without bounds,
//! with an ignore file at the top, and with one in each folder; and the list of all hidden paths,
//! which a sandbox needs.
//!
//! `nothing bound` and `no such file` should take the same time. An ignore file is read and matched
//! once for each folder and name, so the cost grows only with the number of names.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fs;

use sabir_workspace::{Bounds, ListOptions, StopFlag, WorkPath, Workspace};
use tempfile::TempDir;

const LINES: &str = "*.pem\n.env*\n!.env.example\n/secrets/\n**/private/**\n";

fn main() {
    divan::main();
}

/// Creates this many files in each of a thousand folders, one of them hidden, with an ignore file
/// at the top or in each folder.
fn tree(files: usize, nested: bool) -> TempDir {
    let root = TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap();
    for folder in 0..1000 {
        let folder = root.path().join(format!("{}/{}", folder / 32, folder % 32));
        fs::create_dir_all(&folder).unwrap();
        for file in 1..files {
            fs::write(folder.join(format!("{file}.rs")), "").unwrap();
        }
        fs::write(folder.join("key.pem"), "").unwrap();
        if nested {
            fs::write(folder.join(".sabirignore"), LINES).unwrap();
        }
    }
    if !nested {
        fs::write(root.path().join(".sabirignore"), LINES).unwrap();
    }
    root
}

fn workspace(root: &TempDir, ignore_file: Option<&str>) -> Workspace {
    Workspace::open(root.path())
        .unwrap()
        .with_bounds(Bounds::new().ignore_files(ignore_file))
}

#[divan::bench(args = ["nothing bound", "no such file", "one ignore file", "one in each folder"], sample_count = 10, sample_size = 1)]
fn listing(bencher: divan::Bencher<'_, '_>, kind: &str) {
    let root = tree(100, kind == "one in each folder");
    let name = match kind {
        "nothing bound" => None,
        "no such file" => Some(".otherignore"),
        _ => Some(".sabirignore"),
    };
    let workspace = workspace(&root, name);
    let options = ListOptions {
        recursive: true,
        max_entries: 200_000,
        ..ListOptions::default()
    };
    bencher.bench_local(|| {
        workspace
            .list_folder(&WorkPath::root(), &options)
            .unwrap()
            .entries
            .len()
    });
}

#[divan::bench(args = [10, 100], sample_count = 10, sample_size = 1)]
fn hidden(bencher: divan::Bencher<'_, '_>, files: usize) {
    let root = tree(files, false);
    let workspace = workspace(&root, Some(".sabirignore"));
    bencher.bench_local(|| {
        assert_eq!(
            workspace
                .list_hidden_paths(&StopFlag::default())
                .unwrap()
                .len(),
            1000
        )
    });
}
