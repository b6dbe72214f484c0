//! `sandbox`: a command of the user's in the sandbox that a task's commands get, to try it; and which sandbox that is.

use std::io::{IsTerminal, stderr, stdout};
use std::path::Path;

use sabir_session::RuleSpec;
use sabir_session::sandbox::with_secrets;
use sabir_workspace::{Command, End, Network, Sandbox, Stop, Stream, Workspace};

use crate::cli::SandboxArguments;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use sabir_session::modes;

/// `sabir sandbox`.
pub(crate) fn sandbox(arguments: &SandboxArguments) -> Result<Exit, Failure> {
    let level = arguments.level.parse().map_err(Failure::usage)?;
    let network = if arguments.network { Network::Allowed } else { Network::Denied };
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::open(folder).map_err(|error| Failure::usage(error.to_string()))?;
    let config = surroundings::load_config(None)?;
    let rules = config.rules(&RuleSpec::default(), workspace.root())?;
    let workspace = workspace.bounded(modes::bounds_of(&rules, &config)?);
    let hidden = workspace.hidden(&Stop::default()).map_err(|error| Failure::usage(error.to_string()))?;
    let sandbox = with_secrets(Sandbox::new(level), surroundings::environment())
        .network(network)
        .write(arguments.write.iter().cloned())
        .hide(hidden);
    if arguments.profile.is_some() {
        print::out(&sandbox.seatbelt(&workspace).map_err(|error| Failure::usage(error.to_string()))?);
        return Ok(Exit::Completed);
    }
    let command = Command::new(line(&arguments.words), surroundings::environment().helper_program.clone())
        .env(surroundings::environment().command_variables())
        .captured_bytes(8 << 10, 8 << 10)
        .sandbox(sandbox);
    let plain = [stdout().is_terminal(), stderr().is_terminal()];
    let running = command.run(&workspace, |stream, bytes| match (stream, plain) {
        (Stream::Stdout, [true, _]) => print::out(&print::visible(&String::from_utf8_lossy(bytes))),
        (Stream::Stdout, _) => print::out_bytes(bytes),
        (Stream::Stderr, [_, true]) => print::err(&print::visible(&String::from_utf8_lossy(bytes))),
        (Stream::Stderr, _) => print::err_bytes(bytes),
    });
    let outcome = surroundings::runtime()?.block_on(running).map_err(|error| Failure::usage(error.to_string()))?;
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
