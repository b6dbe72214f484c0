//! Folders that the cases of the policy name, and the cases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The script that creates the folders, which can also be run by hand.
const SCRIPT: &str = include_str!("folders.sh");
const CASES: [&str; 2] = [
    include_str!("../../../../sabir-policy/tests/it/cases.txt"),
    include_str!("../../../../sabir-policy/tests/it/more.txt"),
];

/// A line of the tables.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) harmless: bool,
    pub(crate) shell: String,
    pub(crate) folder: String,
    pub(crate) line: String,
}

/// The cases of the first table, or of both.
pub(crate) fn cases(tables: usize) -> Vec<Case> {
    let lines = CASES
        .iter()
        .take(tables)
        .flat_map(|table| table.lines())
        .filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        Case {
            harmless: fields[0] == "benign",
            shell: fields[1].to_owned(),
            folder: fields[2].to_owned(),
            line: serde_json::from_str(fields[3]).unwrap(),
        }
    };
    lines.map(read).collect()
}

/// The folders, each with a `proj` in it.
pub(crate) struct Folders(TempDir);

impl Folders {
    /// Creates the folders; prints a note and returns `None` without git.
    pub(crate) fn new() -> Option<Self> {
        let base = TempDir::new_in(sabir_testkit::find_temp_base()).unwrap();
        if !has("git") || !has("sh") {
            crate::world::skipped("there is no git to lay out the folders with");
            return None;
        }
        let made = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(base.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let folders = Self(base);
        assert_eq!(
            folders.given_away(),
            Vec::<PathBuf>::new(),
            "laying out runs what it lays out"
        );
        Some(folders)
    }

    pub(crate) fn project(&self, name: &str) -> PathBuf {
        self.0.path().join(name).join("proj")
    }

    /// Returns the names of all files that an attack created.
    pub(crate) fn given_away(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        search(self.0.path(), &mut found);
        found
    }
}

/// Finds the files whose name contains PWNED, except the one that exists from the beginning.
pub(crate) fn search(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if name.to_string_lossy().contains("PWNED") && name != "w PWNED" {
            found.push(path.clone());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&path, found);
        }
    }
}

pub(crate) fn has(program: &str) -> bool {
    let found = |folder: PathBuf| folder.join(program).exists();
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(found)
}
