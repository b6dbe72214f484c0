//! Tests the workspace on a real file system, and commands with real processes.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]

mod bounds;
mod changes;
mod commands;
mod faults;
mod files;
#[cfg(target_os = "linux")]
mod fork_server;
mod histories;
mod jobs;
mod looks;
mod sandbox;
mod search;
#[allow(
    unreachable_pub,
    reason = "one file, shared by the tests of several crates"
)]
#[path = "../../../sabir-testkit/src/temp_base.rs"]
mod temp_base;
mod trees;
mod walks;

use std::path::Path;

use sabir_workspace::{WorkPath, Workspace};
use tempfile::TempDir;

/// Reports that a machine lacks what a test needs, even if test output is captured.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A workspace in a temporary folder, beside another temporary folder outside of it.
struct Place {
    workspace: Workspace,
    root: TempDir,
    outside: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = TempDir::new_in(temp_base::find_temp_base()).unwrap();
        let outside = TempDir::new_in(temp_base::find_temp_base()).unwrap();
        std::fs::write(outside.path().join("secret"), "secret\n").unwrap();
        Self {
            workspace: Workspace::open(root.path()).unwrap(),
            root,
            outside,
        }
    }

    /// Creates it in memory if possible: syncing is free there, so more moments can be tested.
    fn quick() -> Self {
        let root = TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .unwrap();
        Self {
            workspace: Workspace::open(root.path()).unwrap(),
            root,
            ..Self::new()
        }
    }

    fn inner(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn path(&self, text: &str) -> WorkPath {
        self.workspace.parse_path(text).unwrap()
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.inner(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.inner(name)).unwrap();
    }
}
