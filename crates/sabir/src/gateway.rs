//! `gateway`: models served to any client.
//!
//! Everything that a gateway is told comes from here: models, keys, limits, randomness, the clock. What it says goes to standard
//! output once, where it listens and what to paste into clients, and to standard error for each request.

use std::io::Read;
use std::net::SocketAddr;
use std::time::SystemTime;

use sabir_gateway::{Gateway, Limits, ServeError, Settings};
use sabir_model::Secret;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GatewayArguments;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::print;

mod log;
mod paste;
mod routes;

/// Where a gateway listens that is told nothing.
const LISTEN: &str = "127.0.0.1:4747";

/// The variable that holds the token.
const TOKEN: &str = "SABIR_GATEWAY_TOKEN";

/// What clients must show.
enum Token {
    /// It was made here, and is printed.
    Made(Secret),
    /// The user knows it.
    Given(Secret),
    /// Nothing.
    None,
}

/// `sabir gateway`.
pub(crate) fn gateway(arguments: &GatewayArguments) -> Result<Exit, Failure> {
    let config = Config::load(arguments.config.as_deref())?;
    let routes = routes::routes(arguments, &config)?;
    let token = token(arguments)?;
    let listen = arguments.listen.as_deref().unwrap_or(LISTEN);
    let settings = Settings {
        token: token.secret().cloned(),
        hosts: Vec::new(),
        origins: Vec::new(),
        limits: Limits::default(),
        seed: u64::from_le_bytes(random()?),
        clock: SystemTime::now,
    };
    let names: Vec<String> = routes.names().map(str::to_owned).collect();
    let gateway = Gateway::new(routes, settings, log::Log::new(arguments));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the runtime cannot be started: {error}")))?;
    runtime.block_on(async {
        let unusable = |error| Failure::usage(format!("{listen} cannot be listened on: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let end = ended()?;
        if token.secret().is_some() || address.ip().is_loopback() {
            print::out(&announced(arguments, address, &token, &names));
        }
        gateway.serve(listener, end).await.map_err(|error| match error {
            ServeError::Open(_) => Failure::usage(format!("{error}; leave --no-token out")),
            error => Failure::internal(error.to_string()),
        })
    })?;
    Ok(Exit::Completed)
}

fn announced(arguments: &GatewayArguments, address: SocketAddr, token: &Token, names: &[String]) -> String {
    let line = format!("listening on http://{address}\n");
    if arguments.quiet {
        return line;
    }
    let token = match token {
        Token::Made(token) => token.expose().to_owned(),
        Token::Given(_) => format!("${TOKEN}"),
        Token::None => "none".to_owned(),
    };
    let model = names.first().map_or("MODEL", String::as_str);
    line + &print::visible(&paste::settings(&paste::Facts { address, token: &token, model, names }))
}

/// Resolves when the process is asked to end; at the second time it ends at once.
fn ended() -> Result<impl Future<Output = ()> + Send, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::internal(format!("signals cannot be heard: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        asked(&mut interrupt, &mut terminate).await;
        tokio::spawn(async move {
            asked(&mut interrupt, &mut terminate).await;
            std::process::exit(i32::from(Exit::Interrupted.code()));
        });
    })
}

async fn asked(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

impl Token {
    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Made(token) | Self::Given(token) => Some(token),
            Self::None => None,
        }
    }
}

fn token(arguments: &GatewayArguments) -> Result<Token, Failure> {
    if arguments.no_token {
        return Ok(Token::None);
    }
    let given = arguments.token.clone().or_else(|| std::env::var(TOKEN).ok());
    match given.map(Secret::new) {
        Some(token) if token.is_empty() => {
            Err(Failure::usage(format!("the token is empty: give one with --token or {TOKEN}, or neither")))
        }
        Some(token) => Ok(Token::Given(token)),
        None => {
            let bytes: [u8; 24] = random()?;
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Token::Made(Secret::new(format!("sabir-{hex}"))))
        }
    }
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::internal(format!("/dev/urandom cannot be read: {error}")))?;
    Ok(bytes)
}
