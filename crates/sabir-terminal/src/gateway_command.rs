//! Implements `sabir gateway`: its command line, the server, and the commands for its operator.
//!
//! Models, keys and limits are set up by the session layer. Prints the address and the settings for
//! clients to standard output once, and a log line for each request to standard error.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use sabir_session::SessionError;
use sabir_session::build_server_runtime;
use sabir_session::config::Config;
use sabir_session::gateway_setup::{
    self, ExchangeRecorder, ExchangeTracer, Gateway, GatewayObserver, GatewaySpec, KeyLimitText,
    KeyStoreCommand, Listeners, RecordWriter, ReloadableGateway, RepairMode, RequestLog,
    ServeError, SharedLogOptions, build_routes, format_token, load_tls, open_key_store,
    open_unix_socket, random_bytes, report_records, run_key_store_command,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::interrupts::shutdown_signal;
use crate::screen::ExitBySignal;
use crate::{gateway_text, print};

/// Loads the configuration, at the start and for each reload.
pub type ConfigLoader = Arc<dyn Fn() -> Result<Config, SessionError> + Send + Sync>;

/// The options of `sabir gateway`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct GatewayArguments {
    #[command(subcommand)]
    command: Option<GatewayCommand>,
    /// The models' server: a base URL, such as `http://127.0.0.1:11434`, or a provider, such as
    /// `openrouter`. By default `--model` names it, as for a task, or the models are those of the
    /// configuration.
    #[arg(long, value_name = "URL", requires = "models")]
    to: Option<String>,
    /// A model that clients can name. May be given several times.
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// The wire of the server of `--to`, if not Chat Completions. `sabir help wires` lists the
    /// wires.
    #[arg(long, requires = "to")]
    wire: Option<String>,
    /// The environment variable that holds the key of the server of `--to`.
    #[arg(long, value_name = "NAME", requires = "to")]
    key_env: Option<String>,
    /// The protocol for calls: `native`, or a dialect to prompt in. By default the catalogue
    /// decides.
    #[arg(long, requires = "models")]
    protocol: Option<String>,
    /// The treatment of invalid calls: `pass`, `repair`, or `retry N`, which sends the model feedback and asks again, at most N times.
    #[arg(
        long,
        alias = "mend",
        value_name = "WAY",
        requires = "models",
        default_value_t
    )]
    faulty_calls: RepairMode,
    /// Use the first model for any other name too.
    #[arg(long, requires = "models")]
    any_model: bool,
    /// The address to listen on; port 0 picks a free one. The default is 127.0.0.1:4747.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// A name by which clients may address the gateway, besides those of this machine: `HOST` or
    /// `HOST:PORT`. May be given several times.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// The token that clients must send. Others on this machine can see a command line, so
    /// `SABIR_GATEWAY_TOKEN` in the environment sets it too. By default a random one is created and
    /// printed.
    #[arg(long, conflicts_with = "no_token")]
    token: Option<String>,
    /// Require no token. Only for an address of this machine.
    #[arg(long)]
    no_token: bool,
    /// Show on standard error what the gateway teaches, leaves out, understands, repairs and asks again.
    #[arg(long)]
    explain: bool,
    /// The format of the request log on standard error. By default `log` in the configuration decides, then text.
    #[arg(long, value_enum)]
    log: Option<LogFormat>,
    /// Print only the address, and no settings for clients.
    #[arg(long)]
    quiet: bool,
    /// Record each exchange in this folder: the request, the answer and the repairs, with known
    /// secret formats redacted. `sabir gateway report` sums the records up.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// The format of the request log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
    /// No log.
    Off,
}

impl GatewayArguments {
    /// Returns the spec of the gateway from the options.
    fn gateway_spec(&self) -> GatewaySpec {
        GatewaySpec {
            to: self.to.clone(),
            models: self.models.clone(),
            wire: self.wire.clone(),
            key_env: self.key_env.clone(),
            protocol: self.protocol.clone(),
            repair_mode: self.faulty_calls,
            any_model: self.any_model,
            listen: self.listen.clone(),
            hosts: self.allow_host.clone(),
            token: self.token.clone(),
            no_token: self.no_token,
            explain: self.explain,
            log: self.log.map(|format| match format {
                LogFormat::Text => gateway_setup::LogFormat::Text,
                LogFormat::Json => gateway_setup::LogFormat::Json,
                LogFormat::Off => gateway_setup::LogFormat::Off,
            }),
        }
    }
}

/// A command for the operator of a gateway.
#[derive(Debug, Subcommand)]
enum GatewayCommand {
    /// Manage the keys of clients in the store that `keys` under `[gateway]` names.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Sum up the records in a folder of `--record`: what each model leaked, how often, and its cost.
    Report {
        /// The folder.
        folder: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// A command about the keys of clients.
#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Add a key, and print it once.
    Add {
        /// The name of the key in metrics and logs.
        name: String,
        /// A limit, for all models together or for one: `requests=60 tokens=100000 concurrent=4
        /// dollars=5`, or `qwen: requests=10`. Requests and tokens are per minute, dollars per day.
        /// May be given several times.
        #[arg(long = "limit", value_name = "LIMIT")]
        limits: Vec<KeyLimitText>,
    },
    /// List the keys with their limits.
    List,
    /// Revoke a key, from its next request on.
    Revoke {
        /// The name or the id of the key.
        key: String,
    },
    /// Show the usage of a key, by day and model.
    Usage {
        /// The name or the id of the key.
        key: String,
        /// The number of days.
        #[arg(long, default_value_t = 7)]
        days: u32,
    },
}

/// Runs `sabir gateway`, or a command for its operator.
///
/// # Errors
/// The configuration cannot be used, or the gateway cannot listen.
pub fn run_gateway(
    arguments: &GatewayArguments,
    load_config: &ConfigLoader,
    exit: ExitBySignal,
) -> Result<(), SessionError> {
    // Before the configuration is loaded: a report works with a broken one, too.
    if let Some(GatewayCommand::Report { folder, json }) = &arguments.command {
        let report = report_records(folder)?;
        print::write_stdout(&if *json {
            let text = serde_json::to_string(&report)
                .map_err(|error| SessionError::internal(error.to_string()))?;
            text + "\n"
        } else {
            print::sanitize_text(&gateway_text::record_report_text(&report))
        });
        return Ok(());
    }
    let config = load_config()?;
    match &arguments.command {
        Some(GatewayCommand::Keys(command)) => manage_keys(&config, command),
        _ => serve_gateway(arguments, &config, load_config, exit),
    }
}

/// Runs a command about keys, and prints its report.
fn manage_keys(config: &Config, command: &KeysCommand) -> Result<(), SessionError> {
    let command = match command {
        KeysCommand::Add { name, limits } => KeyStoreCommand::Add {
            name: name.clone(),
            limits: limits.iter().map(|limit| limit.0.clone()).collect(),
        },
        KeysCommand::List => KeyStoreCommand::List,
        KeysCommand::Revoke { key } => KeyStoreCommand::Revoke { key: key.clone() },
        KeysCommand::Usage { key, days } => KeyStoreCommand::Usage {
            key: key.clone(),
            days: *days,
        },
    };
    let report = build_server_runtime()?.block_on(run_key_store_command(config, command))?;
    print::write_stdout(&print::sanitize_text(&gateway_text::key_report_text(
        &report,
    )));
    Ok(())
}

/// Serves until SIGINT or SIGTERM.
fn serve_gateway(
    arguments: &GatewayArguments,
    config: &Config,
    load_config: &ConfigLoader,
    exit: ExitBySignal,
) -> Result<(), SessionError> {
    let spec = arguments.gateway_spec();
    let routes = build_routes(&spec, config)?;
    let token = spec.resolve_token(config, || {
        random_bytes::<24>().map(|bytes| format_token(&bytes))
    })?;
    let listen = spec.listen_address(config).to_owned();
    let seed = u64::from_le_bytes(random_bytes()?);
    let settings = spec.gateway_settings(config, token.secret(), seed);
    let names: Vec<String> = routes.model_names().map(str::to_owned).collect();
    let options = SharedLogOptions::new(spec.log_options(config));
    let clock = config.clock();
    let (log, log_writer) = RequestLog::start(&options, clock, gateway_text::write_log_line)
        .map_err(|error| SessionError::internal(format!("the log cannot be written: {error}")))?;
    let mut observers: Vec<Box<dyn GatewayObserver>> = vec![Box::new(log)];
    if let Some(tracer) = ExchangeTracer::from_config(config) {
        observers.push(Box::new(tracer));
    }
    let gateway = Gateway::new(routes, settings, observers);
    let records = match &arguments.record {
        Some(folder) => Some(Arc::new(RecordWriter::open(folder)?)),
        None => None,
    };
    if let Some(records) = &records {
        gateway.use_recorder(Arc::clone(records) as Arc<dyn ExchangeRecorder>);
    }
    let reloadable = ReloadableGateway::new(spec.clone(), config, &gateway, &options, &token);
    raise_file_limit();
    let runtime = build_server_runtime()?;
    let served = runtime.block_on(async {
        let unusable = |error| spec.listen_error(config, &error);
        let tls = load_tls(config)?;
        let is_secure = tls.is_some();
        if let Some(identity) = tls {
            gateway.use_tls(identity);
        }
        let store = open_key_store(config).await?;
        let has_keys = store.is_some();
        if let Some(store) = store {
            gateway.use_key_store(store);
        }
        let listener = TcpListener::bind(&listen).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let listeners = Listeners {
            tcp: listener,
            unix: open_unix_socket(config)?,
        };
        let end = shutdown_signal(exit).map_err(no_signals)?;
        reload_on_signal(reloadable, Arc::clone(load_config))?;
        // Else the gateway refuses to serve below, and must not announce itself first.
        if token.secret().is_some() || has_keys || address.ip().is_loopback() {
            print::write_stdout(&gateway_text::startup_text(
                address,
                is_secure,
                &token,
                &names,
                arguments.quiet,
            ));
        }
        if !address.ip().is_loopback() && !is_secure {
            print::write_stderr(&format!(
                "sabir: {address} can be reached from other machines, and is not encrypted\n"
            ));
        }
        gateway
            .serve_on(listeners, end)
            .await
            .map_err(|error| match error {
                ServeError::MissingToken(_) => {
                    SessionError::invalid(format!("{error}; leave --no-token out"))
                }
                error => SessionError::internal(error.to_string()),
            })
    });
    // Dropping the runtime ends running exchanges, which are logged too, so the log is finished
    // after that.
    drop(runtime);
    let unsettled = gateway.settlement_counts().waiting;
    if unsettled > 0 {
        print::write_stderr(&format!(
            "sabir: the usage of {unsettled} requests was not counted, since the store of keys failed\n"
        ));
    }
    drop(gateway);
    log_writer.finish();
    if let Some(lost @ 1..) = records.map(|records| records.finish()) {
        print::write_stderr(&format!("sabir: {lost} records could not be written\n"));
    }
    served
}

/// Describes a failure to handle signals.
fn no_signals(error: std::io::Error) -> SessionError {
    SessionError::internal(format!("signals cannot be handled: {error}"))
}

/// Reloads the configuration whenever the process receives SIGHUP.
fn reload_on_signal(
    gateway: ReloadableGateway,
    load_config: ConfigLoader,
) -> Result<(), SessionError> {
    let mut signals = signal(SignalKind::hangup()).map_err(no_signals)?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            let gateway = gateway.clone();
            let load_config = Arc::clone(&load_config);
            // A key may be printed by a command, which blocks.
            let reloaded = tokio::task::spawn_blocking(move || {
                let config = load_config()?;
                gateway.apply_config(&config)
            });
            let text = match reloaded.await {
                Ok(Ok(reloaded)) => gateway_text::reload_text(&reloaded),
                Ok(Err(failure)) => {
                    format!("sabir: models and settings are unchanged: {}\n", failure)
                }
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
