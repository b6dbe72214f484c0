//! `gateway`: models served to any client.
//!
//! Everything that a gateway is told comes from here: models, keys, limits, randomness, the clock. What it says goes to standard
//! output once, where it listens and what to paste into clients, and to standard error for each request.

use std::io::Read;
use std::net::SocketAddr;
use std::time::SystemTime;

use rustix::process::{Resource, getrlimit, setrlimit};
use sabir_gateway::{Gateway, ServeError, Settings};
use sabir_model::Secret;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GatewayArguments;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use sabir_session::config::GatewayKeys;

mod log;
mod paste;
mod reload;
mod routes;

/// Where a gateway listens that is told nothing.
const LISTEN: &str = "127.0.0.1:4747";

/// The variable that holds the token.
const TOKEN: &str = "SABIR_GATEWAY_TOKEN";

/// What clients must show.
enum Token {
    /// It was made here, and is printed.
    Made(Secret),
    /// The user knows it, perhaps by the name of a variable.
    Given(Secret, Option<String>),
    /// Nothing.
    None,
}

/// `sabir gateway`.
pub(crate) fn gateway(arguments: &GatewayArguments) -> Result<Exit, Failure> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let routes = routes::routes(arguments, &config)?;
    let keys = config.gateway();
    let token = token(arguments, keys)?;
    let listen = place(arguments, keys);
    let settings = settings(arguments, keys, token.secret(), u64::from_le_bytes(random()?));
    let names: Vec<String> = routes.names().map(str::to_owned).collect();
    let dial = log::Dial::default();
    dial.set(log::Manner::of(arguments, keys));
    let (log, pen) = log::start(&dial)?;
    let gateway = Gateway::new(routes, settings, log);
    more_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the runtime cannot be started: {error}")))?;
    let served = runtime.block_on(async {
        let unusable = |error| Failure::usage(format!("{listen} cannot be listened on: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let end = ended()?;
        reload::listen(reload::Serving::new(arguments, keys, &gateway, &dial, &token))?;
        if token.secret().is_some() || address.ip().is_loopback() {
            print::out(&announced(arguments, address, &token, &names));
        }
        if !address.ip().is_loopback() {
            print::err(&format!("sabir: {address} can be reached from other machines, and is not encrypted\n"));
        }
        gateway.serve(listener, end).await.map_err(|error| match error {
            ServeError::Open(_) => Failure::usage(format!("{error}; leave --no-token out")),
            error => Failure::internal(error.to_string()),
        })
    });
    // What is still running is dropped with the runtime, and is told of as well.
    drop(runtime);
    drop(gateway);
    pen.put_down();
    served.map(|()| Exit::Completed)
}

/// Where it is to listen.
fn place<'a>(arguments: &'a GatewayArguments, keys: &'a GatewayKeys) -> &'a str {
    arguments.listen.as_deref().or(keys.listen.as_deref()).unwrap_or(LISTEN)
}

/// Who may ask, and how much.
fn settings(arguments: &GatewayArguments, keys: &GatewayKeys, token: Option<&Secret>, seed: u64) -> Settings {
    Settings {
        token: token.cloned(),
        hosts: keys.hosts.iter().chain(&arguments.allow_host).cloned().collect(),
        origins: keys.origins.clone(),
        limits: keys.limits(),
        seed,
        clock: SystemTime::now,
    }
}

/// What is said at the start.
fn announced(arguments: &GatewayArguments, address: SocketAddr, token: &Token, names: &[String]) -> String {
    let line = format!("listening on http://{address}\n");
    if arguments.quiet {
        return match token {
            Token::Made(token) => format!("{line}token {}\n", token.expose()),
            _ => line,
        };
    }
    let token = match token {
        Token::Made(token) => token.expose().to_owned(),
        Token::Given(_, variable) => format!("${}", variable.as_deref().unwrap_or("TOKEN")),
        Token::None => "none".to_owned(),
    };
    let model = names.first().map_or("MODEL", String::as_str);
    line + &print::visible(&paste::settings(&paste::Facts { address, token: &token, model, names }))
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::internal(format!("signals cannot be heard: {error}")))
}

/// Resolves when the process is asked to end; at the second time it ends at once.
fn ended() -> Result<impl Future<Output = ()> + Send, Failure> {
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

/// Allows as many open files as the system lets this process have: every answer takes two connections. If that cannot be, the
/// usual number has to do.
fn more_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    _ = setrlimit(Resource::Nofile, limit);
}

impl Token {
    fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Made(token) | Self::Given(token, _) => Some(token),
            Self::None => None,
        }
    }
}

/// The token: of the flags, of the file, of the environment, or made here.
fn token(arguments: &GatewayArguments, keys: &GatewayKeys) -> Result<Token, Failure> {
    if arguments.no_token {
        return Ok(Token::None);
    }
    if let Some(token) = &arguments.token {
        return given(Secret::new(token), None);
    }
    if let Some(token) = &keys.token {
        return given(token.clone(), None);
    }
    if let Some(variable) = &keys.token_env {
        let unset = |_| Failure::usage(format!("{variable} holds no token: set it, or leave `token_env` out"));
        return given(Secret::new(std::env::var(variable).map_err(unset)?), Some(variable));
    }
    if let Ok(token) = std::env::var(TOKEN) {
        return given(Secret::new(token), Some(TOKEN));
    }
    let bytes: [u8; 24] = random()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Token::Made(Secret::new(format!("sabir-{hex}"))))
}

fn given(token: Secret, variable: Option<&str>) -> Result<Token, Failure> {
    if token.is_empty() {
        let place = variable.unwrap_or("--token");
        return Err(Failure::usage(format!("the token in {place} is empty: without one a random token is made")));
    }
    Ok(Token::Given(token, variable.map(str::to_owned)))
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::internal(format!("/dev/urandom cannot be read: {error}")))?;
    Ok(bytes)
}
