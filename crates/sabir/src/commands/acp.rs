//! Implements `acp`, whose work is in `sabir-acp`.

use std::time::Duration;

use sabir_session::Interactivity;
use sabir_terminal::interrupts::shutdown_signal;

use crate::cli::{AcpArguments, RecordingOptions};
use crate::commands::init;
use crate::exit::{CommandError, ExitStatus};
use crate::surroundings::{EXIT, host, runtime};

/// Runs `sabir acp`.
pub(crate) fn run_acp(arguments: &AcpArguments) -> Result<ExitStatus, CommandError> {
    if arguments.setup {
        return init::run_init();
    }
    let tape = RecordingOptions::default();
    let spec = arguments
        .task
        .session_spec(&tape, Interactivity::Interactive)?;
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let end = shutdown_signal(EXIT).map_err(|error| error.to_string())?;
        let input = tokio::io::stdin();
        let output = tokio::io::stdout();
        let served = sabir_acp::serve(host().clone(), spec, input, output, end).await;
        served.map_err(|error| error.to_string())
    });
    // The thread that reads standard input cannot be stopped, and must not delay the end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    served.map_err(CommandError::internal)?;
    Ok(ExitStatus::Completed)
}
