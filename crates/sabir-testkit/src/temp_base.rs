//! Finds a place for the temporary folders of tests that depend on the folders above a workspace.

use std::path::{Path, PathBuf};

/// Finds a folder for temporary folders outside of any git repository: `TMPDIR` if it is, else a usual one.
///
/// Ignore files and instructions count up to the top of the repository that a workspace lies in, so a `.git` in the temporary
/// folder would make the files beside it affect every test.
///
/// # Panics
///
/// If all of them are in repositories.
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

/// Returns true if the folder or one above it has a `.git`. A folder that cannot be resolved counts
/// as if it had.
fn has_git_above(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return true;
    };
    folder
        .ancestors()
        .any(|above| above.join(".git").symlink_metadata().is_ok())
}

/// Returns true if a folder can be created inside. The probe is removed at once.
fn is_writable(folder: &Path) -> bool {
    // Process and thread in the name keep tests that run at the same time apart.
    let probe = folder.join(format!(
        ".sabir-test-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir(&probe)
        .and_then(|()| std::fs::remove_dir(&probe))
        .is_ok()
}
