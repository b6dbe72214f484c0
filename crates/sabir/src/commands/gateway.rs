//! Implements `gateway`: serves models to any client.
//!
//! Randomness, signals and the listening socket come from here; models, keys and limits are set up
//! by the session layer. Prints the address and the settings for clients to standard output once,
//! and a log line for each request to standard error.

use rustix::process::{Resource, getrlimit, setrlimit};
use sabir_session::build_server_runtime;
use sabir_session::gateway_setup::{
    Gateway, ReloadableGateway, RequestLog, ServeError, SharedLogOptions, build_routes,
    format_token, random_bytes,
};
use sabir_terminal::gateway_text;
use sabir_terminal::interrupts::shutdown_signal;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::GatewayArguments;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings::{self, EXIT};

/// Runs `sabir gateway`.
pub(crate) fn run_gateway(arguments: &GatewayArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config()?;
    let spec = arguments.gateway_spec();
    let routes = build_routes(&spec, &config)?;
    let token = spec.resolve_token(&config, || {
        random_bytes::<24>().map(|bytes| format_token(&bytes))
    })?;
    let listen = spec.listen_address(&config).to_owned();
    let seed = u64::from_le_bytes(random_bytes()?);
    let settings = spec.gateway_settings(&config, token.secret(), seed);
    let names: Vec<String> = routes.model_names().map(str::to_owned).collect();
    let options = SharedLogOptions::new(spec.log_options(&config));
    let clock = surroundings::environment().clock;
    let (log, log_writer) = RequestLog::start(&options, clock, gateway_text::write_log_line)
        .map_err(|error| CommandError::internal(format!("the log cannot be written: {error}")))?;
    let gateway = Gateway::new(routes, settings, log);
    let reloadable = ReloadableGateway::new(spec, &config, &gateway, &options, &token);
    raise_file_limit();
    let runtime = build_server_runtime()?;
    let served = runtime.block_on(async {
        let unusable =
            |error| CommandError::usage(format!("the gateway cannot listen on {listen}: {error}"));
        let listener = TcpListener::bind(&listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let end = shutdown_signal(EXIT)?;
        reload_on_signal(reloadable)?;
        if token.secret().is_some() || address.ip().is_loopback() {
            print::write_stdout(&gateway_text::startup_text(
                address,
                &token,
                &names,
                arguments.quiet,
            ));
        }
        if !address.ip().is_loopback() {
            print::write_stderr(&format!(
                "sabir: {address} can be reached from other machines, and is not encrypted\n"
            ));
        }
        gateway
            .serve(listener, end)
            .await
            .map_err(|error| match error {
                ServeError::Open(_) => {
                    CommandError::usage(format!("{error}; leave --no-token out"))
                }
                error => CommandError::internal(error.to_string()),
            })
    });
    // Dropping the runtime ends the running exchanges, and their ends are logged too. The log is finished only after that.
    drop(runtime);
    drop(gateway);
    log_writer.finish();
    served.map(|()| ExitStatus::Completed)
}

/// Reloads the configuration whenever the process receives SIGHUP.
fn reload_on_signal(gateway: ReloadableGateway) -> Result<(), CommandError> {
    let mut signals = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            let gateway = gateway.clone();
            // A key may be printed by a command, which blocks.
            let reloaded = tokio::task::spawn_blocking(move || {
                let config = surroundings::load_config()?;
                gateway.apply_config(&config).map_err(CommandError::from)
            });
            let text = match reloaded.await {
                Ok(Ok(reloaded)) => gateway_text::reload_text(&reloaded),
                Ok(Err(failure)) => format!(
                    "sabir: models and settings are unchanged: {}\n",
                    failure.message
                ),
                Err(_) => "sabir: the configuration could not be reloaded\n".to_owned(),
            };
            print::write_stderr(&print::sanitize_text(&text));
        }
    });
    Ok(())
}

/// Raises the limit of open files as far as the system permits, because every answer uses two
/// connections. If that fails, the current limit stays.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    _ = setrlimit(Resource::Nofile, limit);
}
