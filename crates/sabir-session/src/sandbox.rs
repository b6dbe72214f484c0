//! Selects the sandbox for the commands of a task, and reports which one is in force.

use sabir_workspace::{
    NetworkAccess, RegistryHost, Sandbox, SandboxLevel, SandboxReport, SecurityReport,
    ShellCommand, Workspace, WorkspaceError,
};
use serde_json::{Value, json};

use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::spec::SandboxSpec;

/// Returns the sandbox of a task's commands: the level of the spec, else that of the configuration, else the best available.
pub(crate) fn task_sandbox(spec: &SandboxSpec, config: &Config) -> Result<Sandbox, SessionError> {
    let sandbox = configured_sandbox(spec.level.as_deref(), config)?;
    Ok(match spec.network {
        Some(network) => sandbox.with_network(network.into()),
        None => sandbox,
    })
}

/// Returns the configured sandbox; `level` overrides the configured level.
///
/// # Errors
/// When there is no such level.
pub fn configured_sandbox(level: Option<&str>, config: &Config) -> Result<Sandbox, SessionError> {
    let level = level
        .or(config.sandbox.as_deref())
        .map_or(Ok(SandboxLevel::Best), str::parse)
        .map_err(SessionError::invalid)?;
    Ok(
        with_hidden_secrets(Sandbox::new(level), &config.environment)
            .with_network(config.network.unwrap_or_default().into())
            .with_loopback(config.loopback != Some(false))
            .with_registries(extra_registries(config)?)
            // One temporary folder for all commands of a task, so that one can leave files for the
            // next.
            .share_temp_dir(),
    )
}

/// Builds the command line for words: a single one is a line for the shell, several are a program and its arguments.
pub fn exec_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted = words
                .iter()
                .map(|word| format!("'{}'", word.replace('\'', "'\\''")));
            format!("exec {}", quoted.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Parses the hosts that the configuration adds to package registries.
///
/// # Errors
/// When an entry names no host.
pub fn extra_registries(config: &Config) -> Result<Vec<RegistryHost>, SessionError> {
    let parse = |text: &String| {
        text.parse::<RegistryHost>()
            .map_err(|error| SessionError::invalid(format!("config.toml: {error}")))
    };
    let private = config
        .private_registries
        .iter()
        .map(|text| parse(text).map(RegistryHost::in_private_network));
    config.registries.iter().map(parse).chain(private).collect()
}

/// The reason why no command can run in its sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// No runtime could be started for the command.
    #[error("the runtime cannot be started: {0}")]
    Runtime(#[source] std::io::Error),
    /// The sandbox cannot be set up; holds the reason, for the user.
    #[error("{0}")]
    Unavailable(String),
    /// The command cannot be run, for another reason than its sandbox.
    #[error(transparent)]
    Command(WorkspaceError),
}

/// Finds out which confinement is in force, by running `true` in the sandbox; `None` means that the sandbox is off. Blocks for some
/// milliseconds, and must not be called on a thread of a tokio runtime.
///
/// # Errors
/// When no command can run.
pub fn probe_confinement(
    sandbox: &Sandbox,
    workspace: &Workspace,
    environment: &Environment,
) -> Result<Option<SandboxReport>, SandboxError> {
    if !sandbox.is_on() {
        return Ok(None);
    }
    let command = ShellCommand::new("true", environment.helper_program.clone())
        .env(environment.command_variables());
    let running = command.sandbox(sandbox.clone()).run(workspace, |_, _| {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime.map_err(SandboxError::Runtime)?.block_on(running);
    outcome
        .map(|outcome| outcome.sandbox)
        .map_err(|error| match error {
            WorkspaceError::Sandbox { reason } => SandboxError::Unavailable(reason),
            error => SandboxError::Command(error),
        })
}

/// Formats the result of [`probe_confinement`] as one sentence for the user.
pub fn describe_confinement(
    sandbox: &Sandbox,
    found: &Result<Option<SandboxReport>, SandboxError>,
) -> String {
    let network = match sandbox.network() {
        NetworkAccess::Allowed => "with the network",
        NetworkAccess::Registries => "with the network of package registries",
        NetworkAccess::Denied => "without network",
    };
    match found {
        Ok(Some(confined)) => format!("commands run in a sandbox, {network} ({confined})"),
        Ok(None) => "commands run without a sandbox, with all your rights".to_owned(),
        Err(reason) => format!(
            "commands cannot run, because their sandbox is not available: {reason}. `--sandbox off`, or `sandbox = \"off\"` in \
             config.toml, runs them without"
        ),
    }
}

/// Returns a report about the walls of the sandbox as a JSON object.
pub fn sandbox_report_json(report: &SecurityReport) -> Value {
    let walls: Vec<_> = report
        .walls
        .iter()
        .map(|wall| json!({"wall": wall.wall.description(), "state": wall.state.to_string()}))
        .collect();
    json!({"sandbox": report.sandbox.to_string(), "walls": walls})
}

/// Hides the secrets in the home folder, and Sabir's own folders, from commands. What the sandbox keeps between commands goes into
/// one of these folders.
pub fn with_hidden_secrets(sandbox: Sandbox, environment: &Environment) -> Sandbox {
    let sandbox = match environment.sabir_data_folder() {
        Ok(data) => sandbox.with_mask_pool(data.join("masks")),
        // The masks are made and removed for each command then.
        Err(_) => sandbox,
    };
    let Some(home) = &environment.home_folder else {
        // Without a home there are no secrets in it.
        return sandbox;
    };
    let ours = [&environment.config_folder, &environment.data_folder];
    let ours = ours
        .into_iter()
        .flatten()
        .map(|folder| folder.join("sabir"));
    let stores = sabir_policy::home_secret_paths().map(|path| home.join(path));
    sandbox.hide_paths(stores.chain(ours))
}
