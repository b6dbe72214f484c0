//! Surveys the whole workspace for files that a command could read without naming them: files with secrets, and files whose
//! names a shell would split.
//!
//! The caller decides which names count, because the tables of names belong to the policy.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::files::Workspace;
use crate::links::TooManyFiles;

/// The maximum number of files that are visited.
const MAX_FILES: usize = 200_000;

/// The files of a workspace that matter to commands that do not name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSurvey {
    /// The files that hold secrets, and the links that lead to one.
    pub secret_files: Vec<SecretPath>,
    /// The first path whose name is not plain.
    pub odd_name: Option<String>,
}

/// A file that holds secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPath {
    /// The path relative to the workspace.
    pub path: String,
    /// True if search programs skip the file by default, because it is hidden or ignored.
    pub ignored: bool,
}

impl Workspace {
    /// Visits every file of the workspace, `.git` and ignored folders included. `is_secret` and `is_plain` get paths relative
    /// to the workspace. Blocks for a while.
    ///
    /// # Errors
    /// [`TooManyFiles`] for more than 200,000 files.
    pub fn survey_files(
        &self,
        is_secret: &dyn Fn(&str) -> bool,
        is_plain: &dyn Fn(&str) -> bool,
    ) -> Result<FileSurvey, TooManyFiles> {
        let root = self.root();
        let mut found = FileSurvey::default();
        let mut open = vec![root.to_path_buf()];
        let mut count = 0;
        while let Some(folder) = open.pop() {
            // Folders that this process cannot list cannot be listed by a command either.
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                count += 1;
                if count > MAX_FILES {
                    return Err(TooManyFiles);
                }
                let path = entry.path();
                let name = relative_name(root, &path);
                // A name that is not UTF-8 can be split in ways that cannot be checked.
                let plain = path.to_str().is_some() && is_plain(&name);
                if !plain && found.odd_name.is_none() {
                    found.odd_name = Some(name.clone());
                }
                let kind = entry.file_type().ok();
                if kind.is_some_and(|kind| kind.is_dir()) {
                    open.push(path);
                    continue;
                }
                let target = kind
                    .is_some_and(|kind| kind.is_symlink())
                    .then(|| path.canonicalize().ok())
                    .flatten();
                let leads = target.is_some_and(|target| is_secret(&relative_name(root, &target)));
                if leads || is_secret(&name) {
                    found.secret_files.push(SecretPath {
                        path: name,
                        ignored: true,
                    });
                }
            }
        }
        if !found.secret_files.is_empty() {
            self.mark_searched(&mut found.secret_files);
        }
        Ok(found)
    }

    /// Marks the files that a search of the whole workspace with `rg` or `fd` reads. Both also read an ignore file of their own, in which a
    /// line such as `!.env` brings a hidden file back.
    fn mark_searched(&self, secrets: &mut [SecretPath]) {
        for own_file in [None, Some(".rgignore"), Some(".fdignore")] {
            let mut walk = WalkBuilder::new(self.root());
            if let Some(name) = own_file {
                walk.add_custom_ignore_filename(name);
            }
            for entry in walk.build().flatten().take(MAX_FILES) {
                let name = relative_name(self.root(), entry.path());
                // Links are not followed. A secret file behind a link is visited under its own
                // path.
                for secret in secrets.iter_mut().filter(|secret| secret.path == name) {
                    secret.ignored = false;
                }
            }
        }
    }
}

/// Returns a path relative to the workspace; a path elsewhere stays as it is.
fn relative_name(root: &Path, path: &Path) -> String {
    let inside: PathBuf = path.strip_prefix(root).unwrap_or(path).to_path_buf();
    inside.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_survey_finds_files_and_odd_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in [
            "a.txt",
            ".env",
            "keys/server.pem",
            ".gitignore",
            "out/b.pem",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(root.join(".git")).unwrap();
        fs::write(root.join(".gitignore"), "out/\n").unwrap();
        std::os::unix::fs::symlink(".env", root.join("settings")).unwrap();
        let workspace = Workspace::open(root).unwrap();
        let is_secret = |path: &str| path.ends_with(".env") || path.ends_with(".pem");
        let is_plain = |path: &str| !path.contains(' ');
        let found = workspace.survey_files(&is_secret, &is_plain).unwrap();
        let mut secrets: Vec<_> = found
            .secret_files
            .iter()
            .map(|secret| (secret.path.as_str(), secret.ignored))
            .collect();
        secrets.sort_unstable();
        assert_eq!(
            secrets,
            [
                (".env", true),
                ("keys/server.pem", false),
                ("out/b.pem", true),
                ("settings", false)
            ]
        );
        assert_eq!(found.odd_name, None);
        fs::write(root.join(".rgignore"), "!.env\n").unwrap();
        let found = workspace.survey_files(&is_secret, &is_plain).unwrap();
        let env = found
            .secret_files
            .iter()
            .find(|secret| secret.path == ".env");
        assert!(!env.unwrap().ignored, "rg searches it");
        fs::write(root.join("a b"), "x").unwrap();
        let found = workspace.survey_files(&is_secret, &is_plain).unwrap();
        assert_eq!(found.odd_name.as_deref(), Some("a b"));
    }
}
