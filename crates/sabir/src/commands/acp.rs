//! Implements `acp` and the command line of the Claude Agent SDK: programs that drive tasks over standard input and output.

use sabir_agent_sdk::{SdkArgumentError, SdkArguments};
use sabir_session::Interactivity;
use sabir_terminal::interrupts::serve_until_signal;
use tokio::io::{BufReader, stdin, stdout};

use crate::cli::{AcpArguments, RecordingOptions};
use crate::commands::init;
use crate::exit::{CommandError, ExitStatus};
use crate::process_environment::{EXIT, host, runtime, start_host};

/// Runs `sabir acp`.
pub(crate) fn run_acp(arguments: &AcpArguments) -> Result<ExitStatus, CommandError> {
    if arguments.setup {
        return init::run_init();
    }
    let tape = RecordingOptions::default();
    let task = &arguments.task;
    let spec = task.session_spec(&tape, Interactivity::Interactive)?;
    let served = serve_until_signal(runtime()?, EXIT, async |end| {
        sabir_acp::serve(host().clone(), spec, stdin(), stdout(), end).await
    });
    served?.map_err(|error| CommandError::internal(error.to_string()))?;
    Ok(ExitStatus::Completed)
}

/// Serves a program that has started this one with the command line of the SDK.
pub(crate) fn run_agent_sdk(
    arguments: Result<SdkArguments, SdkArgumentError>,
) -> Result<ExitStatus, CommandError> {
    let arguments = arguments?;
    start_host(None, true, &[])?;
    let served = serve_until_signal(runtime()?, EXIT, async |end| {
        sabir_agent_sdk::serve(host(), arguments, BufReader::new(stdin()), end).await
    });
    Ok(match served?? {
        true => ExitStatus::Completed,
        false => ExitStatus::Internal,
    })
}
