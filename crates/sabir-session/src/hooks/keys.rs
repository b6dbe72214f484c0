//! The table `[hooks]` of the configuration.

use serde::Deserialize;

/// The table `[hooks]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HookConfig {
    /// Files in the format of Claude Code whose hooks run too.
    pub(crate) import: Vec<String>,
    /// False: the files of repositories are ignored.
    project_files: Option<bool>,
}

impl HookConfig {
    /// Returns true if the files of repositories are read.
    pub(crate) fn reads_project_files(&self) -> bool {
        self.project_files.unwrap_or(true)
    }
}
