//! Implements `doctor`: reports the environment that Sabir works in or, given a model, tests what
//! the model and its server can do.
//!
//! Keys are never printed: a provider is listed with the variable that holds its key.

use std::path::Path;
use std::time::{Duration, Instant};

use sabir_model::{
    CapabilityFinding, CapabilityReport, CapabilityVerdict, LocalServer, ProbeTarget,
    probe_capabilities, probe_servers,
};
use sabir_workspace::Workspace;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{DoctorArguments, ReportFormat};
use crate::commands::models;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::config::Config;
use sabir_session::providers::{KeySource, ProviderRow};
use sabir_session::remember;

/// The time to wait for a server given by the user, which may be far away.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The environment that Sabir works in.
#[derive(Debug, Serialize)]
struct DoctorReport {
    version: &'static str,
    system: String,
    config: ConfigReport,
    tasks: TasksReport,
    sandbox: SandboxReport,
    providers: Vec<ProviderRow>,
    local: Vec<LocalServer>,
}

/// The state of the configuration file.
#[derive(Debug, Serialize)]
struct ConfigReport {
    path: Option<String>,
    found: bool,
    /// The reason why it cannot be used.
    problem: Option<String>,
}

/// The state of the folder with the journals.
#[derive(Debug, Serialize)]
struct TasksReport {
    path: Option<String>,
    count: usize,
    problem: Option<String>,
}

/// The state of the sandbox for commands.
#[derive(Debug, Serialize)]
struct SandboxReport {
    /// The requested level.
    asked: String,
    /// The level in force in a test run: `1`, `2`, or `none`.
    level: String,
    /// A description of both, or the reason why no command can run.
    words: String,
}

/// Runs `sabir doctor`.
pub(crate) fn run_doctor(arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    match &arguments.model {
        Some(model) => examine_model(model, arguments),
        None => report_environment(arguments),
    }
}

/// Reports the environment (`sabir doctor` without a model).
fn report_environment(arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    let path = surroundings::environment().config_file(arguments.config.as_deref());
    let (config, problem) = match surroundings::load_config(arguments.config.as_deref()) {
        Ok(config) => (config, None),
        Err(failure) => (Config::default(), Some(failure.message)),
    };
    let exit = if problem.is_some() {
        ExitStatus::Usage
    } else {
        ExitStatus::Completed
    };
    let report = DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        system: system_name(),
        config: ConfigReport {
            found: path.as_ref().is_some_and(|path| path.exists()),
            path: path.map(|path| path.display().to_string()),
            problem,
        },
        tasks: report_tasks(),
        sandbox: report_sandbox(&config)?,
        providers: config.provider_rows(),
        local: models::probe_local_servers(&config)?,
    };
    match arguments.output {
        ReportFormat::Json => print::print_json(&report),
        ReportFormat::Text => print::write_stdout(&print::sanitize_text(&report.render_text())),
    }
    Ok(exit)
}

/// Tests the abilities of a model (`sabir doctor MODEL`).
fn examine_model(model: &str, arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let model = if model.starts_with("http") && !model.contains('#') {
        only_model(model)?
    } else {
        model.to_owned()
    };
    let chosen = config.resolve_model(Some(&model))?;
    let shown = arguments.output == ReportFormat::Text;
    if shown {
        print::write_stderr(&print::sanitize_text(&format!(
            "asking {} a few things…\n",
            chosen.name
        )));
    }
    let start = Instant::now();
    let clock = move || start.elapsed();
    let mut tell = |finding: &CapabilityFinding| {
        if shown {
            print::write_stdout(&print::sanitize_text(&finding_row(finding)));
        }
    };
    let asked = chosen.build_model(|model| model);
    let found = surroundings::runtime()?.block_on(probe_capabilities(
        &asked,
        &chosen.id,
        config.dialects(),
        &clock,
        &mut tell,
    ));
    let stored = match (&found.protocol, arguments.store) {
        (Some(protocol), true) => Some(remember::store_protocol(
            surroundings::environment(),
            arguments.config.as_deref(),
            &chosen.id,
            protocol,
        )?),
        _ => None,
    };
    match arguments.output {
        ReportFormat::Json => print::print_json(&json!({
            "model": chosen.name, "findings": found.findings, "protocol": found.protocol, "why": found.why,
            "stored": stored.as_ref().map(|path| path.display().to_string()),
        })),
        ReportFormat::Text => print::write_stdout(&print::sanitize_text(&recommendation_text(
            &found,
            stored.as_deref(),
        ))),
    }
    Ok(exit_status(&found))
}

/// Returns the exit status of a test: a model that never answers is a provider failure.
fn exit_status(found: &CapabilityReport) -> ExitStatus {
    let silent = found
        .findings
        .iter()
        .any(|finding| finding.name == "answers" && finding.verdict == CapabilityVerdict::No);
    match &found.protocol {
        Some(_) => ExitStatus::Completed,
        None if silent => ExitStatus::Provider,
        None => ExitStatus::NotUnderstood,
    }
}

/// Returns the model of a server that serves exactly one.
fn only_model(url: &str) -> Result<String, CommandError> {
    let place = ProbeTarget {
        provider: "server".to_owned(),
        base_url: url.to_owned(),
    };
    let servers = surroundings::runtime()?.block_on(probe_servers(&[place], PROBE_TIMEOUT));
    let models = servers
        .into_iter()
        .next()
        .map(|server| server.models)
        .unwrap_or_default();
    match models.as_slice() {
        [model] => Ok(format!("{url}#{}", model.id)),
        [] => Err(CommandError::usage(format!(
            "{url} lists no models: name one, as {url}#NAME"
        ))),
        several => {
            let names: Vec<_> = several
                .iter()
                .take(20)
                .map(|model| model.id.as_str())
                .collect();
            Err(CommandError::usage(format!(
                "{url} serves several models: name one, as {url}#NAME: {}",
                names.join(", ")
            )))
        }
    }
}

/// Returns the operating system, kernel release and architecture.
fn system_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} {} {}",
        std::env::consts::OS,
        kernel.trim(),
        std::env::consts::ARCH
    )
}

/// Tests the sandbox in a temporary folder of its own.
fn report_sandbox(config: &Config) -> Result<SandboxReport, CommandError> {
    let sandbox = sabir_session::sandbox::configured(None, config)?;
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::internal(format!("the sandbox cannot be tried: {error}"))
    };
    let folder = std::env::temp_dir().join(format!(
        "sabir-doctor-{}",
        crate::surroundings::environment().unique_id().simple()
    ));
    std::fs::create_dir(&folder).map_err(|error| failed(&error))?;
    let found = Workspace::open(&folder).map(|workspace| {
        sabir_session::sandbox::in_force(&sandbox, &workspace, surroundings::environment())
    });
    // Removed before any error is returned, so that no folder is left behind.
    let removed = std::fs::remove_dir(&folder);
    let found = found.map_err(|error| failed(&error))?;
    removed.map_err(|error| failed(&error))?;
    let level = match &found {
        Ok(Some(confined)) => confined.tier.to_string(),
        _ => "none".to_owned(),
    };
    Ok(SandboxReport {
        asked: sandbox.level().to_string(),
        level,
        words: sabir_session::sandbox::words(&sandbox, &found),
    })
}

/// Reports the folder of the journals and the number of tasks in it.
fn report_tasks() -> TasksReport {
    let folder = match surroundings::tasks_folder() {
        Ok(folder) => folder,
        Err(failure) => {
            return TasksReport {
                path: None,
                count: 0,
                problem: Some(failure.message),
            };
        }
    };
    let path = Some(folder.display().to_string());
    match sabir_journal::list_journals(&folder) {
        Ok(listed) => TasksReport {
            path,
            count: listed.len(),
            problem: None,
        },
        Err(error) => TasksReport {
            path,
            count: 0,
            problem: Some(error.to_string()),
        },
    }
}

/// Renders a finding as a line.
fn finding_row(finding: &CapabilityFinding) -> String {
    let verdict = match finding.verdict {
        CapabilityVerdict::Yes => "yes",
        CapabilityVerdict::No => "no",
        CapabilityVerdict::Unknown => "?",
    };
    format!("{:<18} {verdict:<4} {}\n", finding.name, finding.detail)
}

/// Returns the recommendation that follows from the findings.
fn recommendation_text(found: &CapabilityReport, stored: Option<&Path>) -> String {
    let Some(protocol) = &found.protocol else {
        return format!("\nno protocol can be recommended: {}\n", found.why);
    };
    let last = match stored {
        Some(path) => format!("written to {}\n", path.display()),
        None => {
            format!("use --protocol {protocol}, or let --store write it into the configuration\n")
        }
    };
    format!("\nrecommended: {protocol} ({})\n{last}", found.why)
}

impl DoctorReport {
    fn render_text(&self) -> String {
        let mut text = format!("sabir {} on {}\n", self.version, self.system);
        let config = match (&self.config.path, self.config.found, &self.config.problem) {
            (_, _, Some(problem)) => problem.clone(),
            (Some(path), true, None) => path.clone(),
            (Some(path), false, None) => format!("{path} (not there, which is fine)"),
            (None, ..) => "no home folder to look in".to_owned(),
        };
        text.push_str(&format!("configuration  {config}\n"));
        let tasks = match (&self.tasks.path, &self.tasks.problem) {
            (_, Some(problem)) => problem.clone(),
            (path, None) => {
                let counted = print::count_noun(self.tasks.count, "task");
                format!("{} ({counted})", path.as_deref().unwrap_or_default())
            }
        };
        text.push_str(&format!("journals       {tasks}\n"));
        text.push_str(&format!("sandbox        {}\n", self.sandbox.words));
        let keys: Vec<_> = self.providers.iter().filter_map(key_source_text).collect();
        let keys = if keys.is_empty() {
            "none found".to_owned()
        } else {
            keys.join(", ")
        };
        text.push_str(&format!("keys           {keys}\n"));
        for server in &self.local {
            let models = server.models.len();
            let software = server.software.unwrap_or("unknown software");
            let counted = print::count_noun(models, "model");
            text.push_str(&format!(
                "server         {} ({software}): {counted}\n",
                server.base_url
            ));
        }
        if self.local.is_empty() {
            text.push_str("server         none on this machine answered\n");
        }
        text + "\n`sabir doctor MODEL` asks a model what it can do.\n"
    }
}

/// Names a provider and the source of its key; `None` if it has no key.
fn key_source_text(row: &ProviderRow) -> Option<String> {
    let place: Value = match &row.key {
        KeySource::Nowhere | KeySource::Environment { present: None, .. } => return None,
        KeySource::File => "configuration".into(),
        KeySource::Command => "a command".into(),
        KeySource::Environment {
            present: Some(name),
            ..
        } => name.as_str().into(),
    };
    Some(format!(
        "{} ({})",
        row.name,
        place.as_str().unwrap_or_default()
    ))
}
