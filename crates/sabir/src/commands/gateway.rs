//! Implements `gateway`: serves models to any client.
//!
//! All input of a gateway comes from here: models, keys, limits, randomness, the clock. It prints
//! its address and the settings for clients to standard output once, and a log line for each
//! request to standard error.

use std::io::Read;
use std::net::SocketAddr;
use std::time::SystemTime;

use rustix::process::{Resource, getrlimit, setrlimit};
use sabir_gateway::{Gateway, GatewaySettings, ServeError};
use sabir_model::Secret;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GatewayArguments;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::config::{Config, GatewayKeys};

mod client_settings;
mod log;
mod reload;
mod routes;

/// The default address; only this machine can reach it.
const DEFAULT_LISTEN: &str = "127.0.0.1:4747";

/// The environment variable that holds the token.
const TOKEN_VARIABLE: &str = "SABIR_GATEWAY_TOKEN";

/// The token that clients must send.
enum GatewayToken {
    /// A random token made here, which is printed.
    Generated(Secret),
    /// A token given by the user, with the name of its environment variable, if any.
    Given(Secret, Option<String>),
    /// No token.
    None,
}

/// Runs `sabir gateway`.
pub(crate) fn run_gateway(arguments: &GatewayArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let routes = routes::build_routes(arguments, &config)?;
    let keys = config.gateway_keys();
    let token = resolve_token(arguments, keys)?;
    let listen = listen_address(arguments, keys);
    let settings = gateway_settings(
        arguments,
        &config,
        token.secret(),
        u64::from_le_bytes(random_bytes()?),
    );
    let names: Vec<String> = routes.model_names().map(str::to_owned).collect();
    let dial = log::SharedLogOptions::default();
    dial.set(log::LogOptions::from_flags(arguments, keys));
    let (log, pen) = log::start_log(&dial)?;
    let gateway = Gateway::new(routes, settings, log);
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            CommandError::internal(format!("the runtime cannot be started: {error}"))
        })?;
    let served = runtime.block_on(async {
        let unusable =
            |error| CommandError::usage(format!("{listen} cannot be listened on: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let end = shutdown_signal()?;
        reload::reload_on_signal(reload::RunningGateway::new(
            arguments, keys, &gateway, &dial, &token,
        ))?;
        if token.secret().is_some() || address.ip().is_loopback() {
            print::write_stdout(&startup_text(arguments, address, &token, &names));
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
    // Dropping the runtime ends the running exchanges, and their ends are logged too. The log is
    // finished only after that.
    drop(runtime);
    drop(gateway);
    pen.finish();
    served.map(|()| ExitStatus::Completed)
}

/// Returns the address to listen on: the flag's, the file's, or the default.
fn listen_address<'a>(arguments: &'a GatewayArguments, keys: &'a GatewayKeys) -> &'a str {
    arguments
        .listen
        .as_deref()
        .or(keys.listen.as_deref())
        .unwrap_or(DEFAULT_LISTEN)
}

/// Collects the settings of the gateway: access rules and limits.
fn gateway_settings(
    arguments: &GatewayArguments,
    config: &Config,
    token: Option<&Secret>,
    seed: u64,
) -> GatewaySettings {
    let keys = config.gateway_keys();
    GatewaySettings {
        token: token.cloned(),
        hosts: keys
            .hosts
            .iter()
            .chain(&arguments.allow_host)
            .cloned()
            .collect(),
        origins: keys.origins.clone(),
        limits: keys.gateway_limits(),
        dialects: config.dialects().clone(),
        seed,
        clock: SystemTime::now,
    }
}

/// Returns the text printed at the start.
fn startup_text(
    arguments: &GatewayArguments,
    address: SocketAddr,
    token: &GatewayToken,
    names: &[String],
) -> String {
    let line = format!("listening on http://{address}\n");
    if arguments.quiet {
        return match token {
            GatewayToken::Generated(token) => format!("{line}token {}\n", token.expose()),
            _ => line,
        };
    }
    let token = match token {
        GatewayToken::Generated(token) => token.expose().to_owned(),
        GatewayToken::Given(_, variable) => format!("${}", variable.as_deref().unwrap_or("TOKEN")),
        GatewayToken::None => "none".to_owned(),
    };
    let model = names.first().map_or("MODEL", String::as_str);
    line + &print::sanitize_text(&client_settings::render_settings(
        &client_settings::ClientFacts {
            address,
            token: &token,
            model,
            names,
        },
    ))
}

fn signal_stream(kind: SignalKind) -> Result<Signal, CommandError> {
    signal(kind)
        .map_err(|error| CommandError::internal(format!("signals cannot be heard: {error}")))
}

/// Returns a future that resolves when the process receives SIGINT or SIGTERM. A second signal
/// exits at once.
fn shutdown_signal() -> Result<impl Future<Output = ()> + Send, CommandError> {
    let mut interrupt = signal_stream(SignalKind::interrupt())?;
    let mut terminate = signal_stream(SignalKind::terminate())?;
    Ok(async move {
        stop_requested(&mut interrupt, &mut terminate).await;
        tokio::spawn(async move {
            stop_requested(&mut interrupt, &mut terminate).await;
            std::process::exit(i32::from(ExitStatus::Interrupted.code()));
        });
    })
}

/// Waits for SIGINT or SIGTERM.
async fn stop_requested(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Raises the limit of open files as far as the system permits, because every answer uses two
/// connections. If that fails, the current limit stays.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    _ = setrlimit(Resource::Nofile, limit);
}

impl GatewayToken {
    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Generated(token) | Self::Given(token, _) => Some(token),
            Self::None => None,
        }
    }
}

/// Returns the token from the flags, the file or the environment, or makes a random one.
fn resolve_token(
    arguments: &GatewayArguments,
    keys: &GatewayKeys,
) -> Result<GatewayToken, CommandError> {
    if arguments.no_token {
        return Ok(GatewayToken::None);
    }
    if let Some(token) = &arguments.token {
        return given_token(Secret::new(token), None);
    }
    if let Some(token) = &keys.token {
        return given_token(token.clone(), None);
    }
    if let Some(variable) = &keys.token_env {
        let unset = |_| {
            CommandError::usage(format!(
                "{variable} holds no token: set it, or leave `token_env` out"
            ))
        };
        return given_token(
            Secret::new(std::env::var(variable).map_err(unset)?),
            Some(variable),
        );
    }
    if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
        return given_token(Secret::new(token), Some(TOKEN_VARIABLE));
    }
    let bytes: [u8; 24] = random_bytes()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(GatewayToken::Generated(Secret::new(format!("sabir-{hex}"))))
}

/// Checks a token given by the user, which must not be empty.
fn given_token(token: Secret, variable: Option<&str>) -> Result<GatewayToken, CommandError> {
    if token.is_empty() {
        let place = variable.unwrap_or("--token");
        return Err(CommandError::usage(format!(
            "the token in {place} is empty: without one a random token is made"
        )));
    }
    Ok(GatewayToken::Given(token, variable.map(str::to_owned)))
}

/// Returns cryptographically secure random bytes from `/dev/urandom`.
fn random_bytes<const N: usize>() -> Result<[u8; N], CommandError> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| CommandError::internal(format!("/dev/urandom cannot be read: {error}")))?;
    Ok(bytes)
}
