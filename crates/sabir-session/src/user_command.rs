//! Runs the commands that users type themselves, in the folder and the sandbox of their session.
//!
//! The rules check such a command like a call of the model, but a command that would need a
//! question runs, since the user has typed it. A denied command does not run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::TaskStart;
use sabir_call::{Call, CallId, redact};
use sabir_policy::Verdict;
use sabir_workspace::{CommandExit, ShellCommand, StopFlag, WorkspaceError};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::error::SessionError;
use crate::host::Host;
use crate::policy_review::{open_policy_folder, policy_tools};
use crate::sandbox::task_sandbox;
use crate::spec::SessionSpec;

/// The tool that runs commands of the model.
const COMMAND_TOOL: &str = "execute_command";
/// The bytes that are kept from the beginning, and from the end, of an output.
const KEPT_BYTES: usize = 8 << 10;

/// Runs commands of the user in the folder and the sandbox of a session.
#[derive(Debug, Clone)]
pub struct UserCommandRunner {
    host: Host,
    spec: SessionSpec,
    folder: PathBuf,
}

/// The result of a command of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommandOutput {
    /// The output, shortened in the middle; known secret formats are redacted.
    pub output: String,
    /// The way it ended, such as `exit code 1`.
    pub ending: String,
    /// True if it exited with 0.
    pub is_success: bool,
}

/// The reason why a command of the user did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserCommandError {
    /// A rule denies it.
    #[error("it is denied: {0}")]
    Denied(String),
    /// The configuration or the folder cannot be used.
    #[error(transparent)]
    Setup(#[from] SessionError),
    /// It cannot be started, or its sandbox is not available.
    #[error(transparent)]
    Start(#[from] WorkspaceError),
}

impl UserCommandRunner {
    /// Creates a runner for the session of this task.
    pub(crate) fn new(host: Host, spec: SessionSpec, start: &TaskStart) -> Self {
        Self {
            host,
            spec,
            folder: Path::new(&start.workspace).to_owned(),
        }
    }

    /// Runs a command line until it ends, or until `stop` is notified.
    ///
    /// # Errors
    /// When a rule denies it, or it cannot be started.
    pub async fn run(
        &self,
        line: &str,
        stop: Arc<Notify>,
    ) -> Result<UserCommandOutput, UserCommandError> {
        let config = self.host.load_config(self.spec.config.as_deref())?;
        // Without the mode: it limits the model, not the user.
        let open = || open_policy_folder(&config, &self.folder, &self.spec.rules, Some("code"));
        let (workspace, rules) = open()?;
        let tools = policy_tools(&config, workspace)?;
        let call = Call {
            id: CallId::new("user-command"),
            name: COMMAND_TOOL.to_owned(),
            arguments: Map::from_iter([("command".to_owned(), Value::from(line))]),
            dialect: None,
        };
        if let Some(access) = tools.find_access(&call) {
            let decision = rules.decide(&access);
            if decision.verdict == Verdict::Deny {
                return Err(UserCommandError::Denied(decision.reason));
            }
        }
        let (workspace, _) = open()?;
        let hidden = workspace.list_hidden_paths(&StopFlag::default())?;
        let sandbox = task_sandbox(&self.spec.sandbox, &config)?.hide_paths(hidden);
        let environment = self.host.environment();
        let command = ShellCommand::new(line, environment.helper_program.clone())
            .env(environment.command_variables())
            .captured_bytes(KEPT_BYTES, KEPT_BYTES)
            .cancel_when(async move { stop.notified().await })
            .sandbox(sandbox);
        let outcome = command.run(&workspace, |_, _| {}).await?;
        Ok(UserCommandOutput {
            output: redact::redact_text(&outcome.output.text()).into_owned(),
            ending: outcome.end.to_string(),
            is_success: outcome.end == CommandExit::Exited(0),
        })
    }
}
