//! Selects the sandbox for the commands of a task, and reports which one is in force.

use sabir_workspace::{
    NetworkAccess, Sandbox, SandboxLevel, SandboxReport, ShellCommand, Workspace, WorkspaceError,
};

use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::spec::SandboxSpec;

/// Returns the sandbox of a task's commands: the level of the spec, else that of the configuration, else the best available.
pub(crate) fn of_task(spec: &SandboxSpec, config: &Config) -> Result<Sandbox, SessionError> {
    let sandbox = configured(spec.level.as_deref(), config)?;
    Ok(if spec.network {
        sandbox.with_network(NetworkAccess::Allowed)
    } else {
        sandbox
    })
}

/// Returns the configured sandbox; `level` overrides the configured level.
///
/// # Errors
/// When there is no such level.
pub fn configured(level: Option<&str>, config: &Config) -> Result<Sandbox, SessionError> {
    let level = level
        .or(config.sandbox.as_deref())
        .map_or(Ok(SandboxLevel::Best), str::parse)
        .map_err(SessionError::invalid)?;
    let network = if config.network == Some(true) {
        NetworkAccess::Allowed
    } else {
        NetworkAccess::Denied
    };
    Ok(with_secrets(Sandbox::new(level), &config.environment)
        .with_network(network)
        .share_temp_dir())
}

/// Finds out which confinement is in force, by running `true` in the sandbox; `None` means that the sandbox is off. Blocks for some
/// milliseconds, and must not be called on a thread of a tokio runtime.
///
/// # Errors
/// With the reason, for the user, why no command can run.
pub fn in_force(
    sandbox: &Sandbox,
    workspace: &Workspace,
    environment: &Environment,
) -> Result<Option<SandboxReport>, String> {
    if !sandbox.is_on() {
        return Ok(None);
    }
    let command = ShellCommand::new("true", environment.helper_program.clone())
        .env(environment.command_variables());
    let running = command.sandbox(sandbox.clone()).run(workspace, |_, _| {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(|error| format!("the runtime cannot be started: {error}"))?
        .block_on(running);
    outcome
        .map(|outcome| outcome.sandbox)
        .map_err(|error| match error {
            WorkspaceError::Sandbox { reason } => reason,
            error => error.to_string(),
        })
}

/// Formats the result of [`in_force`] as one sentence for the user.
pub fn words(sandbox: &Sandbox, found: &Result<Option<SandboxReport>, String>) -> String {
    let network = if sandbox.has_network() {
        "with the network"
    } else {
        "without network"
    };
    match found {
        Ok(Some(confined)) => format!("commands run in a sandbox, {network} ({confined})"),
        Ok(None) => "commands run without a sandbox, with all your rights".to_owned(),
        Err(reason) => format!(
            "commands cannot run, because their sandbox cannot be had: {reason}. `--sandbox off`, or `sandbox = \"off\"` in \
             config.toml, runs them without"
        ),
    }
}

/// Hides the secrets in the home folder, and Sabir's own folders, from commands.
pub fn with_secrets(sandbox: Sandbox, environment: &Environment) -> Sandbox {
    let Some(home) = &environment.home_folder else {
        // Without a home there are no secrets in it.
        return sandbox;
    };
    let ours = [&environment.config_folder, &environment.data_folder];
    let ours = ours
        .into_iter()
        .flatten()
        .map(|folder| folder.join("sabir"));
    sandbox.hide_home_secrets(home).hide_paths(ours)
}
