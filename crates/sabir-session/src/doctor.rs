//! Examines the environment of Sabir (configuration, journals, sandbox, providers, local servers), or the abilities of one model.
//!
//! Keys never become part of a report: a provider is listed with the source of its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sabir_model::{ProbeTarget, probe_capabilities, probe_servers};
use sabir_workspace::Workspace;
use serde::Serialize;

pub use sabir_model::{CapabilityFinding, CapabilityReport, CapabilityVerdict, LocalServer};

pub use crate::chat_templates::{ServedTemplate, examine_servers};
use crate::config::{Config, ResolvedModel};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::host::Host;
use crate::providers::ProviderRow;
pub use crate::proxy::NetworkVariable;
use crate::proxy::network_variables;
use crate::{remember, sandbox};

/// The time to wait for the servers on this machine.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The time to wait for a server given by the user, which may be far away.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most models of a server that an error names.
const MAX_NAMED_MODELS: usize = 20;

/// The environment that Sabir works in. Its JSON is the output of `sabir doctor --output json`.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// The version of Sabir.
    pub version: &'static str,
    /// The operating system, kernel release and architecture.
    pub system: String,
    /// The state of the port to this system; `None` where Sabir is tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<&'static str>,
    /// The state of the configuration file.
    pub config: ConfigReport,
    /// The state of the journals.
    pub tasks: TasksReport,
    /// The state of the sandbox.
    pub sandbox: SandboxReport,
    /// The known providers and the sources of their keys.
    pub providers: Vec<ProviderRow>,
    /// The variables that are set and change how providers are reached.
    pub network: Vec<NetworkVariable>,
    /// The servers on this machine that answered. Empty until [`probe_local_servers`] was asked.
    pub local: Vec<LocalServer>,
    /// The dialects that their chat templates teach. Empty until [`examine_servers`] was asked.
    pub templates: Vec<ServedTemplate>,
}

/// The state of the configuration file.
#[derive(Debug, Serialize)]
pub struct ConfigReport {
    /// The path of the file; `None` without a home folder.
    pub path: Option<String>,
    /// True if the file exists.
    pub found: bool,
    /// The reason why it cannot be used.
    pub problem: Option<String>,
}

/// The state of the folder with the journals.
#[derive(Debug, Serialize)]
pub struct TasksReport {
    /// The path of the folder; `None` without a home folder.
    pub path: Option<String>,
    /// The number of tasks in it.
    pub count: usize,
    /// The reason why it cannot be read.
    pub problem: Option<String>,
}

/// The state of the sandbox for commands.
#[derive(Debug, Serialize)]
pub struct SandboxReport {
    /// The requested level.
    pub asked: String,
    /// The level in force in a test run: `1`, `2`, or `none`.
    pub level: String,
    /// A description of both, or the reason why no command can run.
    pub words: String,
}

/// The result of testing one model. It serializes to the output of `sabir doctor MODEL --output json`.
#[derive(Debug, Serialize)]
pub struct ModelExamination {
    /// The name of the model.
    pub model: String,
    /// The findings and the recommended protocol.
    #[serde(flatten)]
    pub report: CapabilityReport,
    /// The configuration file that the protocol was written to.
    #[serde(serialize_with = "serialize_path")]
    pub stored: Option<PathBuf>,
}

/// Writes a path as text, also where it is not UTF-8, which serde would refuse.
fn serialize_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref()
        .map(|path| path.display().to_string())
        .serialize(serializer)
}

impl DoctorReport {
    /// Gathers the report for a configuration, or for the problem that it has. Tries the sandbox in a temporary folder of its own, so
    /// it blocks for some milliseconds; must not be called on a thread of a tokio runtime.
    ///
    /// # Errors
    /// When the configured sandbox is not a level, or it cannot be tried.
    pub fn gather(
        host: &Host,
        named: Option<&Path>,
        config: &Config,
        problem: Option<String>,
    ) -> Result<Self, SessionError> {
        let environment = host.environment();
        let path = environment.config_file(named);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            system: system_name(),
            port: port_state(std::env::consts::OS),
            config: ConfigReport {
                found: path.as_ref().is_some_and(|path| path.exists()),
                path: path.map(|path| path.display().to_string()),
                problem,
            },
            tasks: TasksReport::gather(environment),
            sandbox: SandboxReport::gather(environment, config)?,
            providers: config.provider_rows(),
            network: network_variables(environment),
            local: Vec::new(),
            templates: Vec::new(),
        })
    }
}

impl TasksReport {
    fn gather(environment: &Environment) -> Self {
        let folder = match environment.tasks_folder() {
            Ok(folder) => folder,
            Err(error) => {
                return Self {
                    path: None,
                    count: 0,
                    problem: Some(error.to_string()),
                };
            }
        };
        let listed = sabir_journal::list_journals(&folder);
        Self {
            path: Some(folder.display().to_string()),
            count: listed.as_ref().map_or(0, Vec::len),
            problem: listed.err().map(|error| error.to_string()),
        }
    }
}

impl SandboxReport {
    fn gather(environment: &Environment, config: &Config) -> Result<Self, SessionError> {
        let sandbox = sandbox::configured_sandbox(None, config)?;
        let failed = |error: &dyn std::fmt::Display| {
            SessionError::internal(format!("the sandbox cannot be tried: {error}"))
        };
        let folder = environment
            .temporary_folder
            .join(format!("sabir-doctor-{}", environment.unique_id().simple()));
        std::fs::create_dir(&folder).map_err(|error| failed(&error))?;
        let found = Workspace::open(&folder)
            // Runs a real command in the sandbox, because the kernel's version does not show what
            // it permits.
            .map(|workspace| sandbox::probe_confinement(&sandbox, &workspace, environment));
        // Removed before any error is returned, so that no folder is left behind.
        let removed = std::fs::remove_dir(&folder);
        let found = found.map_err(|error| failed(&error))?;
        removed.map_err(|error| failed(&error))?;
        let level = match &found {
            Ok(Some(confined)) => confined.level.to_string(),
            _ => "none".to_owned(),
        };
        Ok(Self {
            asked: sandbox.level().to_string(),
            level,
            words: sandbox::describe_confinement(&sandbox, &found),
        })
    }
}

/// Returns the servers on this machine that answer.
pub async fn probe_local_servers(config: &Config) -> Vec<LocalServer> {
    probe_servers(&config.local_server_addresses(), LOCAL_TIMEOUT).await
}

/// Examines a model. The model is resolved before it is asked anything, so that a front end can
/// announce it first.
#[derive(Debug)]
pub struct ModelExaminer {
    model: ResolvedModel,
    config: Config,
    environment: Arc<Environment>,
    /// The configuration file, where the user named one.
    config_file: Option<PathBuf>,
}

impl ModelExaminer {
    /// Resolves a model: a name as for a task, or the address of a server with one model, which is asked for its name.
    ///
    /// # Errors
    /// When the configuration cannot be used or knows no such model, or the server does not serve exactly one.
    pub async fn prepare(
        host: &Host,
        config_file: Option<&Path>,
        model: &str,
    ) -> Result<Self, SessionError> {
        let config = host.load_config(config_file)?;
        // An address with a name behind `#` is a model already. Without one, the server is asked
        // for its models.
        let is_bare_address = model.starts_with("http") && !model.contains('#');
        let model = if is_bare_address {
            config.resolve_model(Some(&find_only_model(model).await?))?
        } else {
            config.resolve_model(Some(model))?
        };
        Ok(Self {
            model,
            config,
            environment: Arc::clone(host.environment()),
            config_file: config_file.map(Path::to_owned),
        })
    }

    /// Returns the name of the model.
    pub fn model_name(&self) -> &str {
        &self.model.name
    }

    /// Sends the model some short requests, and passes each finding to `on_finding` at once.
    /// `elapsed` returns the time since any fixed moment. Where `stores` is set, writes the
    /// recommended protocol into the configuration file.
    ///
    /// # Errors
    /// When the configuration cannot be written. A model that does not answer is a finding, not an error.
    pub async fn examine(
        self,
        stores: bool,
        elapsed: &(dyn Fn() -> Duration + Sync),
        on_finding: &mut (dyn FnMut(&CapabilityFinding) + Send),
    ) -> Result<ModelExamination, SessionError> {
        let asked = self.model.build_model(|model| model);
        let id = &self.model.id;
        let dialects = self.config.dialects();
        let report = probe_capabilities(&asked, id, dialects, elapsed, on_finding).await;
        let stored = match (&report.protocol, stores) {
            // Only a recommendation is stored. Without one, the file is not changed.
            (Some(protocol), true) => Some(remember::store_protocol(
                &self.environment,
                self.config_file.as_deref(),
                id,
                protocol,
            )?),
            _ => None,
        };
        Ok(ModelExamination {
            model: self.model.name,
            report,
            stored,
        })
    }
}

/// Returns the only model of a server, as `URL#NAME`.
async fn find_only_model(url: &str) -> Result<String, SessionError> {
    let names = list_models_at(url).await?;
    match names.as_slice() {
        [name] => Ok(format!("{url}#{name}")),
        several => {
            let named: Vec<_> = several.iter().take(MAX_NAMED_MODELS).cloned().collect();
            Err(SessionError::invalid(format!(
                "{url} serves several models: name one, as {url}#NAME: {}",
                named.join(", ")
            )))
        }
    }
}

/// Returns the names of the models that a server lists, at least one.
///
/// # Errors
/// When there is no such list.
pub(crate) async fn list_models_at(url: &str) -> Result<Vec<String>, SessionError> {
    let target = ProbeTarget {
        provider: "server".to_owned(),
        base_url: url.to_owned(),
    };
    let servers = probe_servers(&[target], REMOTE_TIMEOUT).await;
    let Some(server) = servers.into_iter().next() else {
        return Err(SessionError::invalid(format!(
            "no list of models comes from {url}: check that the server runs and that the address is right, or name the model too, as {url}#NAME"
        )));
    };
    if server.models.is_empty() {
        let why = match server.locked {
            true => "lists its models only with a key",
            false => "lists no models",
        };
        return Err(SessionError::invalid(format!(
            "{url} {why}: name one, as {url}#NAME"
        )));
    }
    Ok(server.models.into_iter().map(|model| model.id).collect())
}

/// Returns the operating system, kernel release and architecture.
fn system_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    [std::env::consts::OS, kernel.trim(), std::env::consts::ARCH]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the state of the port to an operating system; `None` where Sabir is tested.
fn port_state(system: &str) -> Option<&'static str> {
    (system != "linux").then_some("builds, not yet run by us")
}

#[cfg(test)]
mod tests {
    use super::port_state;

    #[test]
    fn untested_systems_are_named() {
        assert_eq!(port_state("linux"), None);
        assert_eq!(port_state("macos"), Some("builds, not yet run by us"));
    }
}
