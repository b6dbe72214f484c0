//! Implements `sandbox`: runs a command in the same sandbox as a task's commands, or prints the
//! sandbox profile.

use std::io::{IsTerminal, stderr, stdout};
use std::path::Path;

use sabir_session::RuleSpec;
use sabir_session::sandbox::{exec_line, extra_registries, with_hidden_secrets};
use sabir_workspace::{CommandExit, OutputStream, Sandbox, ShellCommand, StopFlag, Workspace};

use crate::cli::SandboxArguments;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use sabir_session::modes;

/// Runs `sabir sandbox`.
pub(crate) fn run_sandbox(arguments: &SandboxArguments) -> Result<ExitStatus, CommandError> {
    let level = arguments.level.parse().map_err(CommandError::usage)?;
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    let workspace =
        Workspace::open(folder).map_err(|error| CommandError::usage(error.to_string()))?;
    let config = process_environment::load_config()?;
    let rules = config.policy_rules(&RuleSpec::default(), workspace.root())?;
    let workspace = workspace.with_bounds(modes::file_access_bounds(&rules, &config)?);
    let hidden = workspace
        .list_hidden_paths(&StopFlag::default())
        .map_err(|error| CommandError::usage(error.to_string()))?;
    let sandbox = with_hidden_secrets(Sandbox::new(level), process_environment::environment())
        .with_network(arguments.network.unwrap_or_default().into())
        .with_registries(extra_registries(&config)?)
        .allow_write(arguments.write.iter().cloned())
        .hide_paths(hidden);
    if arguments.profile.is_some() {
        print::write_stdout(
            &sandbox
                .seatbelt_profile(&workspace)
                .map_err(|error| CommandError::usage(error.to_string()))?,
        );
        return Ok(ExitStatus::Completed);
    }
    let command = ShellCommand::new(
        exec_line(&arguments.words),
        process_environment::environment().helper_program.clone(),
    )
    .env(process_environment::environment().command_variables())
    .captured_bytes(8 << 10, 8 << 10)
    .sandbox(sandbox);
    // Output is sanitized only on a terminal, so that redirected output keeps its bytes.
    let plain = [stdout().is_terminal(), stderr().is_terminal()];
    let running = command.run(&workspace, |stream, bytes| match (stream, plain) {
        (OutputStream::Stdout, [true, _]) => {
            print::write_stdout(&print::sanitize_text(&String::from_utf8_lossy(bytes)))
        }
        (OutputStream::Stdout, _) => print::write_stdout_bytes(bytes),
        (OutputStream::Stderr, [_, true]) => {
            print::write_stderr(&print::sanitize_text(&String::from_utf8_lossy(bytes)))
        }
        (OutputStream::Stderr, _) => print::write_stderr_bytes(bytes),
    });
    let outcome = process_environment::runtime()?
        .block_on(running)
        .map_err(|error| CommandError::usage(error.to_string()))?;
    match &outcome.sandbox {
        Some(confined) => confined.describe().iter().for_each(|line| {
            print::write_stderr(&print::sanitize_text(&format!("sabir: {line}\n")));
        }),
        None => print::write_stderr("sabir: there was no sandbox\n"),
    }
    match outcome.end {
        CommandExit::Exited(code) => Ok(ExitStatus::Passed(u8::try_from(code).unwrap_or(u8::MAX))),
        // The convention of shells: 128 plus the number of the signal.
        CommandExit::Signaled(signal) => Ok(ExitStatus::Passed(
            u8::try_from(128 + signal).unwrap_or(u8::MAX),
        )),
        CommandExit::SupervisorLost => Err(CommandError::internal(
            "the command was lost: its supervisor was killed",
        )),
        // The convention for a program that was killed.
        end => {
            print::write_stderr(&format!("sabir: the command was {end}\n"));
            Ok(ExitStatus::Passed(137))
        }
    }
}
