//! `doctor`: what is there to work with, or, with a model, what that model and its server really do.
//!
//! Nothing that is printed holds a key: providers are named with the variable that their key is looked for in.

use std::path::Path;
use std::time::{Duration, Instant};

use sabir_model::{Examination, Finding, Place, Server, Verdict, examine, probe};
use sabir_workspace::Workspace;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{DoctorArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::surroundings;
use crate::{models, print};
use sabir_session::config::Config;
use sabir_session::providers::{KeyPlace, Row};
use sabir_session::remember;

/// How long a server is waited for that was named, and may be far away.
const LIMIT: Duration = Duration::from_secs(2);

/// What is there to work with.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    system: String,
    config: ConfigReport,
    tasks: TasksReport,
    sandbox: Sandbox,
    providers: Vec<Row>,
    local: Vec<Server>,
}

/// The configuration file.
#[derive(Debug, Serialize)]
struct ConfigReport {
    path: Option<String>,
    found: bool,
    /// What is wrong with it.
    problem: Option<String>,
}

/// Where tasks are kept.
#[derive(Debug, Serialize)]
struct TasksReport {
    path: Option<String>,
    count: usize,
    problem: Option<String>,
}

/// What keeps commands in their place.
#[derive(Debug, Serialize)]
struct Sandbox {
    /// The level that is asked for.
    asked: String,
    /// The level that was in force for a command that does nothing: `1`, `2`, or `none`.
    level: String,
    /// Both in words, or why no command can run.
    words: String,
}

/// `sabir doctor`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, Failure> {
    match &arguments.model {
        Some(model) => patient(model, arguments),
        None => surroundings(arguments),
    }
}

/// Without a model: what is there.
fn surroundings(arguments: &DoctorArguments) -> Result<Exit, Failure> {
    let path = surroundings::environment().config_file(arguments.config.as_deref());
    let (config, problem) = match surroundings::load_config(arguments.config.as_deref()) {
        Ok(config) => (config, None),
        Err(failure) => (Config::default(), Some(failure.message)),
    };
    let exit = if problem.is_some() { Exit::Usage } else { Exit::Completed };
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        system: system(),
        config: ConfigReport {
            found: path.as_ref().is_some_and(|path| path.exists()),
            path: path.map(|path| path.display().to_string()),
            problem,
        },
        tasks: tasks(),
        sandbox: sandbox(&config)?,
        providers: config.providers(),
        local: models::look(&config)?,
    };
    match arguments.output {
        Whole::Json => print::json(&report),
        Whole::Text => print::out(&print::visible(&report.in_words())),
    }
    Ok(exit)
}

/// With a model: what it does.
fn patient(model: &str, arguments: &DoctorArguments) -> Result<Exit, Failure> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let model = if model.starts_with("http") && !model.contains('#') { only_model(model)? } else { model.to_owned() };
    let chosen = config.choose(Some(&model))?;
    let shown = arguments.output == Whole::Text;
    if shown {
        print::err(&print::visible(&format!("asking {} a few things…\n", chosen.name)));
    }
    let start = Instant::now();
    let clock = move || start.elapsed();
    let mut tell = |finding: &Finding| {
        if shown {
            print::out(&print::visible(&row(finding)));
        }
    };
    let asked = chosen.model(|model| model);
    let found = surroundings::runtime()?.block_on(examine(&asked, &chosen.id, &clock, &mut tell));
    let stored = match (&found.protocol, arguments.store) {
        (Some(protocol), true) => {
            Some(remember::protocol(surroundings::environment(), arguments.config.as_deref(), &chosen.id, protocol)?)
        }
        _ => None,
    };
    match arguments.output {
        Whole::Json => print::json(&json!({
            "model": chosen.name, "findings": found.findings, "protocol": found.protocol, "why": found.why,
            "stored": stored.as_ref().map(|path| path.display().to_string()),
        })),
        Whole::Text => print::out(&print::visible(&verdict(&found, stored.as_deref()))),
    }
    Ok(exit(&found))
}

fn exit(found: &Examination) -> Exit {
    let silent = found.findings.iter().any(|finding| finding.name == "answers" && finding.verdict == Verdict::No);
    match &found.protocol {
        Some(_) => Exit::Completed,
        None if silent => Exit::Provider,
        None => Exit::NotUnderstood,
    }
}

/// The model of a server that serves but one.
fn only_model(url: &str) -> Result<String, Failure> {
    let place = Place { provider: "server".to_owned(), base_url: url.to_owned() };
    let servers = surroundings::runtime()?.block_on(probe(&[place], LIMIT));
    let models = servers.into_iter().next().map(|server| server.models).unwrap_or_default();
    match models.as_slice() {
        [model] => Ok(format!("{url}#{}", model.id)),
        [] => Err(Failure::usage(format!("{url} lists no models: name one, as {url}#NAME"))),
        several => {
            let names: Vec<_> = several.iter().take(20).map(|model| model.id.as_str()).collect();
            Err(Failure::usage(format!("{url} serves several models: name one, as {url}#NAME: {}", names.join(", "))))
        }
    }
}

fn system() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {} {}", std::env::consts::OS, kernel.trim(), std::env::consts::ARCH)
}

/// What commands of tasks get here, found out in a folder of its own.
fn sandbox(config: &Config) -> Result<Sandbox, Failure> {
    let sandbox = sabir_session::sandbox::configured(None, config)?;
    let failed = |error: &dyn std::fmt::Display| Failure::internal(format!("the sandbox cannot be tried: {error}"));
    let folder =
        std::env::temp_dir().join(format!("sabir-doctor-{}", crate::surroundings::environment().unique_id().simple()));
    std::fs::create_dir(&folder).map_err(|error| failed(&error))?;
    let found = Workspace::open(&folder)
        .map(|workspace| sabir_session::sandbox::in_force(&sandbox, &workspace, surroundings::environment()));
    let removed = std::fs::remove_dir(&folder);
    let found = found.map_err(|error| failed(&error))?;
    removed.map_err(|error| failed(&error))?;
    let level = match &found {
        Ok(Some(confined)) => confined.tier.to_string(),
        _ => "none".to_owned(),
    };
    Ok(Sandbox { asked: sandbox.level().to_string(), level, words: sabir_session::sandbox::words(&sandbox, &found) })
}

fn tasks() -> TasksReport {
    let folder = match surroundings::tasks_folder() {
        Ok(folder) => folder,
        Err(failure) => return TasksReport { path: None, count: 0, problem: Some(failure.message) },
    };
    let path = Some(folder.display().to_string());
    match sabir_journal::list(&folder) {
        Ok(listed) => TasksReport { path, count: listed.len(), problem: None },
        Err(error) => TasksReport { path, count: 0, problem: Some(error.to_string()) },
    }
}

/// A finding as a line.
fn row(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::Unknown => "?",
    };
    format!("{:<18} {verdict:<4} {}\n", finding.name, finding.detail)
}

/// What to do with it.
fn verdict(found: &Examination, stored: Option<&Path>) -> String {
    let Some(protocol) = &found.protocol else { return format!("\nno protocol can be recommended: {}\n", found.why) };
    let last = match stored {
        Some(path) => format!("written to {}\n", path.display()),
        None => format!("use --protocol {protocol}, or let --store write it into the configuration\n"),
    };
    format!("\nrecommended: {protocol} ({})\n{last}", found.why)
}

impl Report {
    fn in_words(&self) -> String {
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
                let counted = print::counted(self.tasks.count, "task");
                format!("{} ({counted})", path.as_deref().unwrap_or_default())
            }
        };
        text.push_str(&format!("journals       {tasks}\n"));
        text.push_str(&format!("sandbox        {}\n", self.sandbox.words));
        let keys: Vec<_> = self.providers.iter().filter_map(key).collect();
        let keys = if keys.is_empty() { "none found".to_owned() } else { keys.join(", ") };
        text.push_str(&format!("keys           {keys}\n"));
        for server in &self.local {
            let (models, software) = (server.models.len(), server.software.unwrap_or("unknown software"));
            let counted = print::counted(models, "model");
            text.push_str(&format!("server         {} ({software}): {counted}\n", server.base_url));
        }
        if self.local.is_empty() {
            text.push_str("server         none on this machine answered\n");
        }
        text + "\n`sabir doctor MODEL` asks a model what it can do.\n"
    }
}

/// A provider whose key is there.
fn key(row: &Row) -> Option<String> {
    let place: Value = match &row.key {
        KeyPlace::Nowhere | KeyPlace::Environment { present: None, .. } => return None,
        KeyPlace::File => "configuration".into(),
        KeyPlace::Command => "a command".into(),
        KeyPlace::Environment { present: Some(name), .. } => name.as_str().into(),
    };
    Some(format!("{} ({})", row.name, place.as_str().unwrap_or_default()))
}
