//! The command line of `gateway`.

use clap::{Args, ValueEnum};
use sabir_gateway::RepairMode;
use sabir_session::gateway_setup::{self, GatewaySpec};

#[derive(Debug, Args)]
pub(crate) struct GatewayArguments {
    /// The models' server: a base URL, such as `http://127.0.0.1:11434`, or a provider, such as
    /// `openrouter`. By default `--model` names it, as for a task, or the models are those of the
    /// configuration.
    #[arg(long, value_name = "URL", requires = "models")]
    pub(crate) to: Option<String>,
    /// A model that clients can name. May be given several times.
    #[arg(long = "model", value_name = "NAME")]
    pub(crate) models: Vec<String>,
    /// The wire of the server of `--to`, if not Chat Completions. `sabir help wires` lists the wires.
    #[arg(long, requires = "to")]
    pub(crate) wire: Option<String>,
    /// The environment variable that holds the key of the server of `--to`.
    #[arg(long, value_name = "NAME", requires = "to")]
    pub(crate) key_env: Option<String>,
    /// The protocol for calls: `native`, or a dialect to prompt in. By default the catalogue decides.
    #[arg(long, requires = "models")]
    pub(crate) protocol: Option<String>,
    /// The treatment of invalid calls: `pass`, `heal`, or `retry N`, which sends the model feedback and asks again, at most N times.
    #[arg(long, value_name = "WAY", requires = "models", default_value_t)]
    pub(crate) mend: RepairMode,
    /// Use the first model for any other name too.
    #[arg(long, requires = "models")]
    pub(crate) any_model: bool,
    /// The address to listen on; port 0 picks a free one. The default is 127.0.0.1:4747.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// A name by which clients may address the gateway, besides those of this machine: `HOST` or
    /// `HOST:PORT`. May be given several times.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// The token that clients must send. Others on this machine can see a command line, so
    /// `SABIR_GATEWAY_TOKEN` in the environment sets it too. By default a random one is created and
    /// printed.
    #[arg(long, conflicts_with = "no_token")]
    pub(crate) token: Option<String>,
    /// Require no token. Only for an address of this machine.
    #[arg(long)]
    pub(crate) no_token: bool,
    /// Show on standard error what the gateway teaches, leaves out, understands, repairs and asks again.
    #[arg(long)]
    pub(crate) explain: bool,
    /// The format of the request log on standard error. By default `log` in the configuration decides, then text.
    #[arg(long, value_enum)]
    pub(crate) log: Option<LogFormat>,
    /// Print only the address, and no settings for clients.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// The format of the request log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
    /// No log.
    Off,
}

impl GatewayArguments {
    /// Returns what a user asks of the gateway.
    pub(crate) fn gateway_spec(&self) -> GatewaySpec {
        GatewaySpec {
            to: self.to.clone(),
            models: self.models.clone(),
            wire: self.wire.clone(),
            key_env: self.key_env.clone(),
            protocol: self.protocol.clone(),
            repair_mode: self.mend,
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
