//! The `sabir` binary: parses flags, loads the configuration, and runs commands. Only it reads the environment and writes to terminals.

mod cli;
mod commands;
mod exit;
mod output;
mod process_environment;
mod report_output;

use std::process::ExitCode;

use cli::{Cli, Command, PolicyCommand, WireCommand};
use commands::{
    acp, check_task, checkpoint_history, config, context, dialects, doctor, edit, explain, export,
    fork, gateway, help, import, init, journal, lint, mcp, models, modes, parse, policy, prompt,
    run, sandbox, security, tasks, tour, trust, undo, wire,
};
use exit::{CommandError, ExitStatus};
use output::print;
use sabir_agent_sdk::SdkArguments;
use sabir_session::chat_templates::RENDER_ARGUMENT;
use sabir_terminal::serving_command::run_serving_command;
use sabir_terminal::shell_setup::completion_script;

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
    // A chat template is rendered by a copy of this program, which a limit of time and memory may
    // end.
    if std::env::args_os().skip(1).eq([RENDER_ARGUMENT]) {
        return dialects::render_standard_input();
    }
    // Other processes of the same user could read the provider's key in its memory.
    sabir_workspace::hide_process();
    sabir_terminal::crash::install_panic_hook();
    let result = dispatch();
    sabir_terminal::screen::restore();
    match result {
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
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(arguments) = SdkArguments::from_command_line(&words) {
        return acp::run_agent_sdk(arguments);
    }
    let cli = Cli::parse_arguments(words)?;
    // `doctor`, `config` and `init` report problems of the configuration itself; the others are needed to fix them.
    let configured = !matches!(
        cli.command,
        Some(
            Command::Doctor(_)
                | Command::Config(_)
                | Command::Init
                | Command::Help { .. }
                | Command::Completions { .. }
                | Command::Man { .. }
        )
    );
    process_environment::set_interface(cli.interface);
    process_environment::start_host(cli.config.as_deref(), configured, &cli.dialects)?;
    match &cli.command {
        None => run::run_interactive(&cli),
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
        Some(Command::Init) => init::run_init(),
        Some(Command::Tour { folder }) => tour::run_tour(folder.as_deref()),
        Some(Command::Parse(arguments)) => parse::run_parse(arguments),
        Some(Command::Check(arguments)) => check_task::run_check(arguments),
        Some(Command::Explain(arguments)) => explain::run_explain(arguments),
        Some(Command::Prompt(arguments)) => prompt::run_prompt(arguments),
        Some(Command::Serving(command)) => {
            match run_serving_command(command, process_environment::environment())? {
                true => Ok(ExitStatus::Completed),
                false => Ok(ExitStatus::NotUnderstood),
            }
        }
        Some(Command::Dialects {
            name,
            from_template,
            output,
        }) => match from_template {
            Some(file) => dialects::run_from_template(file, *output),
            None => dialects::run_dialects(name.as_deref(), *output),
        },
        Some(Command::Doctor(arguments)) => doctor::run_doctor(arguments),
        Some(Command::Config(arguments)) => config::run_config(arguments, &cli.dialects),
        Some(Command::Completions { shell }) => {
            print::write_stdout_bytes(&completion_script(*shell, Cli::grouped_command()));
            Ok(ExitStatus::Completed)
        }
        Some(Command::Man { folder }) => help::run_man(folder.as_deref()),
        Some(Command::Gateway(arguments)) => gateway::run_gateway(arguments),
        Some(Command::Acp(arguments)) => acp::run_acp(arguments),
        Some(Command::Edit(arguments)) => edit::run_edit(arguments),
        Some(Command::Sandbox(arguments)) => sandbox::run_sandbox(arguments),
        Some(Command::Security(arguments)) => security::run_security(arguments),
        Some(Command::Models(arguments)) => models::run_models(arguments),
        Some(Command::Lint(arguments)) => lint::run_lint(arguments),
        Some(Command::Mcp(arguments)) => mcp::run_mcp(arguments),
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
