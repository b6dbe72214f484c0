//! Implements `mcp`, which is in `sabir-terminal`.

use sabir_terminal::mcp_command::{McpArguments, run_mcp_command};

use crate::exit::{CommandError, ExitStatus};
use crate::process_environment::{self, EXIT};

/// Runs `sabir mcp`.
pub(crate) fn run_mcp(arguments: &McpArguments) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let named = process_environment::named_config();
    let runtime = process_environment::runtime()?;
    let done = runtime.block_on(run_mcp_command(arguments, &config, named, EXIT))?;
    // The thread that reads standard input cannot be stopped, and must not delay the end.
    runtime.shutdown_background();
    Ok(ExitStatus::from_confirmation(done))
}
