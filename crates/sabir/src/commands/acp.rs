//! Implements `acp` and the command line of the Claude Agent SDK: programs that drive tasks over standard input and output.

use std::ffi::OsString;
use std::time::Duration;

use sabir_agent_sdk::SdkArguments;
use sabir_session::Interactivity;
use sabir_terminal::interrupts::shutdown_signal;
use tokio::io::{BufReader, stdin, stdout};

use crate::cli::{AcpArguments, RecordingOptions};
use crate::commands::init;
use crate::exit::{CommandError, ExitStatus};
use crate::surroundings::{EXIT, host, runtime, start_host};

/// Runs `sabir acp`.
pub(crate) fn run_acp(arguments: &AcpArguments) -> Result<ExitStatus, CommandError> {
    if arguments.setup {
        return init::run_init();
    }
    let tape = RecordingOptions::default();
    let spec = arguments
        .task
        .session_spec(&tape, Interactivity::Interactive)?;
    serve(async |end| {
        let served = sabir_acp::serve(host().clone(), spec, stdin(), stdout(), end).await;
        served.map_err(|error| CommandError::internal(error.to_string()))
    })?;
    Ok(ExitStatus::Completed)
}

/// Returns the words of a command line of the SDK; `None` if it is another one.
pub(crate) fn agent_sdk_words(words: &[OsString]) -> Option<Vec<String>> {
    let words = words
        .iter()
        .skip(1)
        .map(|word| word.to_str().map(str::to_owned));
    let words: Vec<_> = words.collect::<Option<_>>()?;
    SdkArguments::is_sdk_command_line(&words).then_some(words)
}

/// Serves a program that has started this one with the command line of the SDK.
pub(crate) fn run_agent_sdk(words: &[String]) -> Result<ExitStatus, CommandError> {
    let arguments =
        SdkArguments::parse(words).map_err(|error| CommandError::usage(error.to_string()))?;
    start_host(None, true, &[])?;
    let has_succeeded = serve(async |end| {
        let input = BufReader::new(stdin());
        Ok(sabir_agent_sdk::serve(host(), arguments, input, end).await?)
    })?;
    Ok(match has_succeeded {
        true => ExitStatus::Completed,
        false => ExitStatus::Internal,
    })
}

/// Runs a server, which gets a future that a signal to end completes.
fn serve<T>(
    server: impl AsyncFnOnce(
        std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let end =
            shutdown_signal(EXIT).map_err(|error| CommandError::internal(error.to_string()))?;
        server(Box::pin(end)).await
    });
    // The thread that reads standard input cannot be stopped, and must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}
