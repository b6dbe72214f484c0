//! A place for the temporary folders of tests that look at what lies above a workspace.

use std::path::{Path, PathBuf};

/// Finds a folder for temporary folders that lies in no git repository: `TMPDIR` where it does not, or else a usual one.
///
/// Ignore files and instructions count up to the top of the repository that a workspace lies in, so that a `.git` in the temporary
/// folder would let whatever lies there into every test.
///
/// # Panics
///
/// If every one of them lies in a repository.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "a test that has no place to run cannot go on"
)]
pub fn find_temp_base() -> PathBuf {
    let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let mut bases = [std::env::temp_dir()].into_iter().chain(usual);
    let base = bases.find(|base| !has_git_above(base) && is_writable(base));
    base.expect("every temporary folder lies in a git repository: set TMPDIR to one that does not")
}

fn has_git_above(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return true;
    };
    folder
        .ancestors()
        .any(|above| above.join(".git").symlink_metadata().is_ok())
}

fn is_writable(folder: &Path) -> bool {
    let probe = folder.join(format!(
        ".sabir-test-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir(&probe)
        .and_then(|()| std::fs::remove_dir(&probe))
        .is_ok()
}
