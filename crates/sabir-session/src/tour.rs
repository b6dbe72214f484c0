//! Prepares the tour: a recorded model drives the real agent, tools and checks in a scratch folder.

use std::path::{Path, PathBuf};

use sabir_workspace::{Workspace, WritePrecondition};

use crate::{Environment, Host, RuleSpec, SandboxSpec, Session, SessionError, SessionSpec};

/// The name of the script that the recorded model edits.
pub const SCRIPT_NAME: &str = "greet.sh";

/// The script as the tour begins.
const SCRIPT: &str = "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n";

/// The maximum size of the script after the tour, in bytes.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;

/// A scratch folder with a script to edit.
#[derive(Debug)]
pub struct Tour {
    folder: PathBuf,
    workspace: Workspace,
}

impl Tour {
    /// Creates the scratch folder, which must not exist yet; by default one with a unique name in the temporary folder.
    ///
    /// # Errors
    /// When the folder or the script cannot be created.
    pub fn prepare(environment: &Environment, folder: Option<&Path>) -> Result<Self, SessionError> {
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => environment
                .temporary_folder
                .join(format!("sabir-tour-{}", environment.unique_id().simple())),
        };
        std::fs::create_dir(&folder).map_err(|error| {
            SessionError::invalid(format!(
                "the scratch folder {} cannot be made: {error}",
                folder.display()
            ))
        })?;
        let workspace = Workspace::open(&folder).map_err(internal)?;
        let path = workspace.parse_path(SCRIPT_NAME).map_err(internal)?;
        workspace
            .write_file(&path, SCRIPT.as_bytes(), WritePrecondition::Missing)
            .map_err(internal)?;
        Ok(Self { folder, workspace })
    }

    /// Returns the scratch folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Plays the recording in the folder; its journal is written there too.
    ///
    /// # Errors
    /// When the recording cannot be played, or the journal cannot be created.
    pub async fn play(&self, host: &Host, recording: &[u8]) -> Result<Session, SessionError> {
        let approve = ["edits", "command=sh greet.sh Ada Grace && wc -l < greet.sh"]
            .map(str::to_owned)
            .to_vec();
        let spec = SessionSpec {
            workspace: Some(self.folder.clone()),
            // The user's configuration is ignored, so that the tour is the same for everybody.
            config: Some(PathBuf::from("/dev/null")),
            rules: RuleSpec {
                approve,
                ..RuleSpec::default()
            },
            sandbox: SandboxSpec {
                level: Some("off".to_owned()),
                network: None,
            },
            // No checkpoints: the scratch folder can simply be deleted.
            no_checkpoints: true,
            ..SessionSpec::default()
        };
        let journals = self.folder.join("journal");
        host.replay_with_journal(recording, spec, &journals).await
    }

    /// Reads the script as it is now, with replacement characters for invalid UTF-8.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_script(&self) -> Result<String, SessionError> {
        let path = self.workspace.parse_path(SCRIPT_NAME).map_err(internal)?;
        let script = self
            .workspace
            .read_file(&path, MAX_SCRIPT_BYTES)
            .map_err(internal)?;
        Ok(String::from_utf8_lossy(&script.bytes).into_owned())
    }
}

fn internal(error: impl std::fmt::Display) -> SessionError {
    SessionError::internal(error.to_string())
}
