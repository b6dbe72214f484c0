//! Opens folders and journals outside of any task, for commands that show journals or explain
//! decisions of the rules.

use std::path::Path;
use std::sync::Arc;

use sabir_agent::{Record, TaskId, TaskStart, Tool};
use sabir_call::Call;
use sabir_journal::{JournalEntry, RecoveryReport};
use sabir_policy::{Access, PolicyRules};
use sabir_tools::{EditTool, NetworkScope, ToolSettings};
use sabir_workspace::Workspace;

use crate::config::Config;
use crate::error::SessionError;
use crate::host::Host;
use crate::modes;
use crate::sandbox::configured_sandbox;
use crate::setup::temporary_jobs;
use crate::spec::RuleSpec;
use crate::trust::load_trust;

/// Opens a folder with its bounds and trusted repositories, and combines the rules of the configuration, of a spec and of the mode.
///
/// # Errors
/// When the folder cannot be opened, a rule cannot be parsed, or there is no such mode.
pub fn open_policy_folder(
    config: &Config,
    folder: &Path,
    rules: &RuleSpec,
    mode: Option<&str>,
) -> Result<(Workspace, PolicyRules), SessionError> {
    let environment = &config.environment;
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    let mut rules = config.policy_rules(rules, workspace.root())?;
    if let Some(mode) = mode.or(config.default_mode()) {
        rules = rules.with_mode(modes::find_mode(mode, config, &workspace)?);
    }
    let home = environment.home_folder.as_deref();
    if let Some(why) = modes::wide_folder_warning(workspace.root(), home) {
        rules = rules.ask_before_writes(why);
    }
    let bounds = modes::file_access_bounds(&rules, config)?;
    let trust =
        load_trust(environment, &config.notices).with_builds(config.allows_trusted_builds());
    Ok((workspace.with_bounds(bounds).with_trust(trust), rules))
}

/// The tools of a folder, to learn which access a call would request. None of them runs.
pub struct PolicyTools(Vec<Arc<dyn Tool>>);

/// Creates the tools of a folder.
///
/// # Errors
/// When the configured sandbox is not a level.
pub fn policy_tools(config: &Config, workspace: Workspace) -> Result<PolicyTools, SessionError> {
    let environment = &config.environment;
    Ok(PolicyTools(sabir_tools::builtin_tools(ToolSettings {
        workspace: Arc::new(workspace),
        helper: environment.helper_program.clone(),
        environment: environment.command_variables(),
        edit_tool: EditTool::default(),
        jobs: temporary_jobs(environment),
        reach: NetworkScope::Public,
        editor: None,
        // No command runs; the sandbox only determines which access a call would request beyond it.
        sandbox: configured_sandbox(None, config)?,
    })))
}

impl PolicyTools {
    /// Returns the access that a call would request; `None` if there is no such tool.
    pub fn find_access(&self, call: &Call) -> Option<Access> {
        let tool = self.0.iter().find(|tool| tool.spec().name == call.name)?;
        Some(tool.prepare(&call.arguments).access())
    }
}

/// Returns the start of the task in its records.
pub fn find_start(records: &[Record]) -> Option<&TaskStart> {
    records.iter().find_map(|record| match record {
        Record::Started(start) => Some(start),
        _ => None,
    })
}

/// Reads the records of a task, given its name or the file of its journal.
///
/// # Errors
/// When there is no such task, or its journal cannot be read.
pub fn read_task_records(
    host: &Host,
    task: &str,
) -> Result<(Vec<Record>, RecoveryReport), SessionError> {
    let path = Path::new(task);
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let (folder, id) = match (path.parent(), stem) {
        (Some(folder), Some(stem)) if path.is_file() => {
            let here = folder.as_os_str().is_empty();
            let folder = if here { Path::new(".") } else { folder };
            (folder.to_owned(), TaskId::new(stem))
        }
        _ => (
            host.environment().tasks_folder()?,
            host.find_task(Some(task))?,
        ),
    };
    let (entries, recovery) = sabir_journal::read_journal(&folder, &id)
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    let records = entries.into_iter().map(|entry| entry.record).collect();
    Ok((records, recovery))
}

/// Reads the entries of the task of that name, or of the newest one of this folder.
///
/// # Errors
/// When there is no such task, or its journal cannot be read.
pub fn read_task_entries(
    host: &Host,
    name: Option<&str>,
) -> Result<(TaskId, Vec<JournalEntry>, RecoveryReport), SessionError> {
    let folder = host.environment().tasks_folder()?;
    let id = host.find_task(name)?;
    let (entries, recovery) = sabir_journal::read_journal(&folder, &id)
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    Ok((id, entries, recovery))
}

/// Returns the start record of the task with these entries.
///
/// # Errors
/// When the journal begins with something else.
pub fn entries_start<'a>(
    id: &TaskId,
    entries: &'a [JournalEntry],
) -> Result<&'a TaskStart, SessionError> {
    match entries.first().map(|entry| &entry.record) {
        Some(Record::Started(start)) => Ok(start),
        _ => Err(SessionError::invalid(format!(
            "the journal of {id} does not begin with the start of a task"
        ))),
    }
}
