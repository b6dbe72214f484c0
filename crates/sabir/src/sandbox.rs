//! `sandbox`: a command of the user's in the sandbox that a task's commands get, to try it; and which sandbox that is.

use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use sabir_workspace::{Command, Confined, End, Level, Network, Sandbox, Stop, Stream, Workspace, WorkspaceError};

use crate::cli::{RuleFlags, SandboxArguments, TaskOptions};
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::{modes, print, task};

/// What commands of a task are confined to: the flag's level, else the configuration's, else the best that can be had.
pub(crate) fn of_task(options: &TaskOptions, config: &Config) -> Result<Sandbox, Failure> {
    let sandbox = configured(options.sandbox.as_deref(), config)?;
    Ok(if options.network { sandbox.network(Network::Allowed) } else { sandbox })
}

/// The sandbox of the configuration, with another level if there is one.
pub(crate) fn configured(level: Option<&str>, config: &Config) -> Result<Sandbox, Failure> {
    let level = level.or(config.sandbox.as_deref()).map_or(Ok(Level::Best), str::parse).map_err(Failure::usage)?;
    let network = if config.network == Some(true) { Network::Allowed } else { Network::Denied };
    Ok(with_secrets(Sandbox::new(level)).network(network).shared())
}

/// What is in force when a command runs in it there, found out by running one; or why none can run.
pub(crate) fn in_force(sandbox: &Sandbox, workspace: &Workspace) -> Result<Option<Confined>, String> {
    if !sandbox.is_on() {
        return Ok(None);
    }
    let fail = |failure: Failure| failure.message;
    let command = Command::new("true", helper().map_err(fail)?).env(config::command_environment());
    let running = command.sandbox(sandbox.clone()).run(workspace, |_, _| {});
    let outcome = task::runtime().map_err(fail)?.block_on(running);
    outcome.map(|outcome| outcome.confined).map_err(|error| match error {
        WorkspaceError::Sandbox { reason } => reason,
        error => error.to_string(),
    })
}

/// The same in a line for the user.
pub(crate) fn words(sandbox: &Sandbox, found: &Result<Option<Confined>, String>) -> String {
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

/// This program, which supervises commands.
fn helper() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::internal(format!("this program cannot find itself: {error}")))
}

/// With what is in the home folder hidden.
fn with_secrets(sandbox: Sandbox) -> Sandbox {
    match etcetera::home_dir() {
        Ok(home) => {
            let places = etcetera::choose_base_strategy();
            let ours = places.map(|places| [places.config_dir().join("sabir"), places.data_dir().join("sabir")]);
            sandbox.home(&home).hide(ours.into_iter().flatten())
        }
        // Without a home there are no secrets in it.
        Err(_) => sandbox,
    }
}

/// `sabir sandbox`.
pub(crate) fn sandbox(arguments: &SandboxArguments) -> Result<Exit, Failure> {
    let level = arguments.level.parse().map_err(Failure::usage)?;
    let network = if arguments.network { Network::Allowed } else { Network::Denied };
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::open(folder).map_err(|error| Failure::usage(error.to_string()))?;
    let config = Config::load(None)?;
    let rules = config.rules.rules(&RuleFlags::default(), workspace.root())?;
    let workspace = workspace.bounded(modes::bounds_of(&rules, &config)?);
    let hidden = workspace.hidden(&Stop::default()).map_err(|error| Failure::usage(error.to_string()))?;
    let sandbox =
        with_secrets(Sandbox::new(level)).network(network).write(arguments.write.iter().cloned()).hide(hidden);
    if arguments.profile.is_some() {
        print::out(&sandbox.seatbelt(&workspace).map_err(|error| Failure::usage(error.to_string()))?);
        return Ok(Exit::Completed);
    }
    let command = Command::new(line(&arguments.words), helper()?)
        .env(config::command_environment())
        .captured_bytes(8 << 10, 8 << 10)
        .sandbox(sandbox);
    let plain = [stdout().is_terminal(), stderr().is_terminal()];
    let running = command.run(&workspace, |stream, bytes| match (stream, plain) {
        (Stream::Stdout, [true, _]) => print::out(&print::visible(&String::from_utf8_lossy(bytes))),
        (Stream::Stdout, _) => print::out_bytes(bytes),
        (Stream::Stderr, [_, true]) => print::err(&print::visible(&String::from_utf8_lossy(bytes))),
        (Stream::Stderr, _) => print::err_bytes(bytes),
    });
    let outcome = task::runtime()?.block_on(running).map_err(|error| Failure::usage(error.to_string()))?;
    match &outcome.confined {
        Some(confined) => {
            print::err(&format!("sabir: the sandbox was {confined}\n"));
            if let Some(note) = &confined.note {
                let words = &note.words;
                print::err(&print::visible(&format!("sabir: {words}\n")));
            }
        }
        None => print::err("sabir: there was no sandbox\n"),
    }
    match outcome.end {
        End::Exited(code) => Ok(Exit::Passed(u8::try_from(code).unwrap_or(u8::MAX))),
        // As shells say it.
        End::Signaled(signal) => Ok(Exit::Passed(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
        _ => Err(Failure::internal("the command was lost: its supervisor was killed")),
    }
}

/// One word is a line for the shell, several are a program and its arguments.
fn line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
            format!("exec {}", quoted.join(" "))
        }
    }
}
