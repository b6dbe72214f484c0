//! Lists the files that a task in a folder reads for its settings, in their order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_workspace::Workspace;
use serde::Serialize;

use super::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::instructions::instruction_paths;
use crate::modes::IGNORE_FILES;
use crate::notice::NoticeSink;
use crate::trust::trust_path;

/// A file that is read, whether it exists or not. Its JSON is an item of the output of `sabir config path --output json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputFile {
    /// The purpose of the file.
    pub purpose: FilePurpose,
    /// The path.
    pub path: PathBuf,
    /// True if it exists.
    pub found: bool,
}

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePurpose {
    /// The configuration.
    Configuration,
    /// Dialects, from `--dialects`.
    Dialects,
    /// The repositories that are trusted.
    Trust,
    /// Instructions for the model.
    Instructions,
    /// The paths that are hidden from tools.
    HiddenPaths,
    /// Modes of the repository.
    Modes,
}

impl FilePurpose {
    /// Returns the purpose in words, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dialects => "dialects",
            Self::Trust => "trusted repositories",
            Self::Instructions => "instructions",
            Self::HiddenPaths => "hidden paths",
            Self::Modes => "modes",
        }
    }
}

/// Lists the files that a task in `folder` reads, in their order. A configuration that cannot be used is listed too, and the rest as if
/// there were none.
///
/// # Errors
/// When the folder cannot be opened.
pub fn list_input_files(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    dialects: &[PathBuf],
    folder: &Path,
) -> Result<Vec<InputFile>, SessionError> {
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    let workspace = Arc::new(workspace);
    let config =
        Config::load(environment, named, &NoticeSink::default()).unwrap_or_else(|_| Config {
            environment: Arc::clone(environment),
            ..Config::default()
        });
    let mut files = Vec::new();
    let mut add = |purpose, path: PathBuf| {
        files.push(InputFile {
            purpose,
            found: path.exists(),
            path,
        });
    };
    if let Some(path) = environment.config_file(named) {
        add(FilePurpose::Configuration, path);
    }
    for path in dialects {
        add(FilePurpose::Dialects, path.clone());
    }
    if let Ok(path) = trust_path(environment) {
        add(FilePurpose::Trust, path);
    }
    for path in instruction_paths(&workspace, &config) {
        add(FilePurpose::Instructions, path);
    }
    let usual = || IGNORE_FILES.map(str::to_owned).to_vec();
    for name in config.rules.ignore_files.clone().unwrap_or_else(usual) {
        add(FilePurpose::HiddenPaths, workspace.root().join(name));
    }
    add(FilePurpose::Modes, workspace.root().join(".roomodes"));
    Ok(files)
}
