//! The `sabir` binary: parses flags, loads the configuration, and runs commands. Only this crate
//! reads the environment and writes to the terminal.

mod cli;
mod commands;
mod crash;
mod exit;
mod interrupts;
mod output;
mod surroundings;

use std::process::ExitCode;

use cli::{Cli, Command, PolicyCommand, WireCommand};
use commands::{
    check_task, checkpoint_history, context, dialects, doctor, edit, explain, export, fork,
    gateway, help, import, journal, lint, models, modes, parse, policy, prompt, run, sandbox,
    tasks, tour, trust, undo, wire,
};
use exit::{CommandError, ExitStatus};
use output::print;

fn main() -> ExitCode {
    // A copy of this program supervises each command and outlives it just long enough to clean up
    // its processes. This mode must be recognised before anything else happens, because it forks,
    // and threads do not survive a fork.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == sabir_workspace::supervise::ARGUMENT)
    {
        return sabir_workspace::supervise::main(arguments);
    }
    crash::install_panic_hook();
    match dispatch() {
        Ok(ExitStatus::Completed) if print::is_output_lost() => {
            print::write_stderr("sabir: standard output could not be written to the end\n");
            ExitStatus::Internal.into()
        }
        Ok(exit) => exit.into(),
        Err(failure) => {
            print::write_stderr(&print::sanitize_text(&format!(
                "sabir: {}\n",
                failure.message
            )));
            failure.exit.into()
        }
    }
}

/// Parses the arguments and runs the command.
fn dispatch() -> Result<ExitStatus, CommandError> {
    let (mut files, arguments) = dialects::split_leading_options(std::env::args_os());
    let cli = Cli::parse_arguments(&arguments)?;
    files.extend(cli.dialects.iter().cloned());
    // `doctor` reports problems of the configuration itself.
    let configured = !matches!(cli.command, Some(Command::Doctor(_)));
    surroundings::start_host(cli.config_path(), configured, &files)?;
    match &cli.command {
        None => run::run_interactive(&cli.task, &cli.pictures.image, &cli.words),
        Some(Command::Run(arguments)) => run::run_headless(arguments),
        Some(Command::Resume(arguments)) => run::run_resume(arguments),
        Some(Command::Fork(arguments)) => fork::run_fork(arguments),
        Some(Command::Log(arguments)) => journal::run_log(arguments),
        Some(Command::Context(arguments)) => context::run_context(arguments),
        Some(Command::Tasks(arguments)) => tasks::run_tasks(arguments),
        Some(Command::Export(arguments)) => export::run_export(arguments),
        Some(Command::Import(arguments)) => import::run_import(arguments),
        Some(Command::Checkpoints(arguments)) => checkpoint_history::run_checkpoints(arguments),
        Some(Command::Diff(arguments)) => checkpoint_history::run_diff(arguments),
        Some(Command::Undo(arguments)) => undo::run_undo(arguments),
        Some(Command::Restore(arguments)) => undo::run_restore(arguments),
        Some(Command::Tour { folder }) => tour::run_tour(folder.as_deref()),
        Some(Command::Parse(arguments)) => parse::run_parse(arguments),
        Some(Command::Check(arguments)) => check_task::run_check(arguments),
        Some(Command::Explain(arguments)) => explain::run_explain(arguments),
        Some(Command::Prompt(arguments)) => prompt::run_prompt(arguments),
        Some(Command::Dialects { name, output }) => {
            dialects::run_dialects(name.as_deref(), *output)
        }
        Some(Command::Doctor(arguments)) => doctor::run_doctor(arguments),
        Some(Command::Gateway(arguments)) => gateway::run_gateway(arguments),
        Some(Command::Edit(arguments)) => edit::run_edit(arguments),
        Some(Command::Sandbox(arguments)) => sandbox::run_sandbox(arguments),
        Some(Command::Models(arguments)) => models::run_models(arguments),
        Some(Command::Lint(arguments)) => lint::run_lint(arguments),
        Some(Command::Help { topic }) => help::run_help(topic),
        Some(Command::Policy {
            command: PolicyCommand::Explain(arguments),
        }) => policy::run_policy_explain(arguments),
        Some(Command::Policy {
            command: PolicyCommand::Simulate(arguments),
        }) => policy::run_policy_simulate(arguments),
        Some(Command::Modes(arguments)) => modes::modes(arguments),
        Some(Command::Trust(arguments)) => trust::run_trust(arguments),
        Some(Command::Wire {
            command: WireCommand::Decode(arguments),
        }) => wire::run_decode(arguments),
        Some(Command::Wire {
            command: WireCommand::Encode(arguments),
        }) => wire::run_encode(arguments),
    }
}
