//! Implements `gateway`: serves models to any client. The work is that of `sabir-terminal`.

use std::sync::Arc;

use sabir_terminal::gateway_command::{self, GatewayArguments};

use crate::exit::{CommandError, ExitStatus};
use crate::process_environment::{EXIT, host, named_config};

/// Runs `sabir gateway`.
pub(crate) fn run_gateway(arguments: &GatewayArguments) -> Result<ExitStatus, CommandError> {
    let load_config: gateway_command::ConfigLoader =
        Arc::new(|| host().load_config(named_config()));
    gateway_command::run_gateway(arguments, &load_config, EXIT)?;
    Ok(ExitStatus::Completed)
}
