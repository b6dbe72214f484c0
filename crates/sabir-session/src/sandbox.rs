//! Which sandbox commands of a task get.

use sabir_workspace::{NetworkAccess, Sandbox, SandboxLevel, SandboxReport, ShellCommand, Workspace, WorkspaceError};

use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::spec::SandboxSpec;

/// What commands of a task are confined to: the flag's level, else the configuration's, else the best that can be had.
pub(crate) fn of_task(spec: &SandboxSpec, config: &Config) -> Result<Sandbox, SessionError> {
    let sandbox = configured(spec.level.as_deref(), config)?;
    Ok(if spec.network { sandbox.with_network(NetworkAccess::Allowed) } else { sandbox })
}

/// The sandbox of the configuration, with another level if there is one.
pub fn configured(level: Option<&str>, config: &Config) -> Result<Sandbox, SessionError> {
    let level = level
        .or(config.sandbox.as_deref())
        .map_or(Ok(SandboxLevel::Best), str::parse)
        .map_err(SessionError::invalid)?;
    let network = if config.network == Some(true) { NetworkAccess::Allowed } else { NetworkAccess::Denied };
    Ok(with_secrets(Sandbox::new(level), &config.environment).with_network(network).share_temp_dir())
}

/// What is in force when a command runs in it there, found out by running one; or why none can run.
pub fn in_force(
    sandbox: &Sandbox,
    workspace: &Workspace,
    environment: &Environment,
) -> Result<Option<SandboxReport>, String> {
    if !sandbox.is_on() {
        return Ok(None);
    }
    let command = ShellCommand::new("true", environment.helper_program.clone()).env(environment.command_variables());
    let running = command.sandbox(sandbox.clone()).run(workspace, |_, _| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(|error| format!("the runtime cannot be started: {error}"))?.block_on(running);
    outcome.map(|outcome| outcome.sandbox).map_err(|error| match error {
        WorkspaceError::Sandbox { reason } => reason,
        error => error.to_string(),
    })
}

/// The same in a line for the user.
pub fn words(sandbox: &Sandbox, found: &Result<Option<SandboxReport>, String>) -> String {
    let network = if sandbox.has_network() { "with the network" } else { "without network" };
    match found {
        Ok(Some(confined)) => format!("commands run in a sandbox, {network} ({confined})"),
        Ok(None) => "commands run without a sandbox, with all your rights".to_owned(),
        Err(reason) => format!(
            "commands cannot run, because their sandbox cannot be had: {reason}. `--sandbox off`, or `sandbox = \"off\"` in \
             config.toml, runs them without"
        ),
    }
}

/// With what is in the home folder hidden.
pub fn with_secrets(sandbox: Sandbox, environment: &Environment) -> Sandbox {
    let Some(home) = &environment.home_folder else {
        // Without a home there are no secrets in it.
        return sandbox;
    };
    let ours = [&environment.config_folder, &environment.data_folder];
    let ours = ours.into_iter().flatten().map(|folder| folder.join("sabir"));
    sandbox.hide_home_secrets(home).hide_paths(ours)
}
