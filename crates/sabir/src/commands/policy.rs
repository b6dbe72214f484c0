//! Implements `policy`: shows how the rules decide on a command line, or on the calls of a past task.

use std::path::Path;

use sabir_policy::{CommandFacts, PolicyRules, ShellKind};
use sabir_session::config::Config;
use sabir_session::policy_review::{
    find_start, open_policy_folder, policy_tools, read_task_records,
};
use sabir_toolbox::policy::{command_line, explain_command, find_shell};
use sabir_toolbox::policy_simulation::simulate_calls;
use sabir_workspace::Workspace;

use crate::cli::{PolicyExplainArguments, RuleOptions, SimulateArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::print_report;

/// Runs `sabir policy explain`. The verdict is printed; the exit code only reports that there is one.
pub(crate) fn run_policy_explain(
    arguments: &PolicyExplainArguments,
) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let (workspace, rules) = open_folder(&config, Path::new("."), &arguments.rules, None)?;
    let command = command_line(&arguments.command);
    let sandbox = sabir_session::sandbox::configured_sandbox(None, &config)?;
    let variables = process_environment::environment().command_variables();
    let context = sabir_tools::CommandContext {
        workspace: &workspace,
        environment: &variables,
        sandbox: &sandbox,
        helper: &process_environment::environment().helper_program,
    };
    let gathered = sabir_tools::gather_facts(&context, &command);
    let facts = CommandFacts {
        shell: named_shell(arguments.shell.as_deref())?.unwrap_or(gathered.shell),
        ..gathered
    };
    print_report(&explain_command(&rules, command, facts), arguments.output)?;
    Ok(ExitStatus::Completed)
}

/// Runs `sabir policy simulate`: decides again on the calls of a task, in its folder as it is now.
pub(crate) fn run_policy_simulate(
    arguments: &SimulateArguments,
) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let (records, recovery) = read_task_records(process_environment::host(), &arguments.task)?;
    if !recovery.is_clean() {
        print::write_stderr(&format!("sabir: {recovery}\n"));
    }
    let start = find_start(&records)
        .ok_or_else(|| CommandError::usage(format!("`{}` has no beginning", arguments.task)))?;
    let folder = Path::new(&start.workspace);
    let (workspace, rules) = open_folder(&config, folder, &arguments.rules, start.mode.as_deref())?;
    let tools = policy_tools(&config, workspace)?;
    let report = simulate_calls(&records, &rules, |call| tools.find_access(call));
    print_report(&report, arguments.output)?;
    Ok(ExitStatus::Completed)
}

/// Opens a folder with the rules that hold there; `mode` is used unless the options name one.
fn open_folder(
    config: &Config,
    folder: &Path,
    options: &RuleOptions,
    mode: Option<&str>,
) -> Result<(Workspace, PolicyRules), CommandError> {
    let mode = options.mode.as_deref().or(mode);
    let rules = options.rules.rule_spec();
    Ok(open_policy_folder(config, folder, &rules, mode)?)
}

/// Returns the shell in the option or in `SABIR_SHELL`, by name or path, if one is given.
fn named_shell(named: Option<&str>) -> Result<Option<ShellKind>, CommandError> {
    let set = std::env::var("SABIR_SHELL")
        .ok()
        .filter(|name| !name.is_empty());
    let name = named.map(str::to_owned).or(set);
    Ok(name.map(|name| find_shell(&name)).transpose()?)
}
