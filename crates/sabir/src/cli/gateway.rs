//! The command line of `gateway`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sabir_gateway::RepairMode;

#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayArguments {
    /// Where the models are: the base URL of a server, such as `http://127.0.0.1:11434`, or a provider, such as `openrouter`.
    /// Without it `--model` says it, as for a task, or the models are those of the configuration.
    #[arg(long, value_name = "URL", requires = "models")]
    pub(crate) to: Option<String>,
    /// A model that clients can name. May be given several times.
    #[arg(long = "model", value_name = "NAME")]
    pub(crate) models: Vec<String>,
    /// What the server of `--to` speaks, if not Chat Completions. `sabir help wires` lists the wires.
    #[arg(long, requires = "to")]
    pub(crate) wire: Option<String>,
    /// The environment variable that holds the key of the server of `--to`.
    #[arg(long, value_name = "NAME", requires = "to")]
    pub(crate) key_env: Option<String>,
    /// How the models are asked for calls: `native`, or a dialect to prompt in. Without it the catalogue decides.
    #[arg(long, requires = "models")]
    pub(crate) protocol: Option<String>,
    /// What is done about calls that are not right: `pass`, `heal`, or `retry N`, which tells the model and asks again, at most N
    /// times.
    #[arg(long, value_name = "WAY", requires = "models", default_value_t)]
    pub(crate) mend: RepairMode,
    /// Answer for any other name too, with the first model.
    #[arg(long, requires = "models")]
    pub(crate) any_model: bool,
    /// The address to listen on; port 0 takes a free one. Without it 127.0.0.1:4747.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// A name under which clients may address the gateway, beside those of this machine: `HOST` or `HOST:PORT`. May be given
    /// several times.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// What clients must show. Others on this machine can see a command line: `SABIR_GATEWAY_TOKEN` in the environment says it
    /// too. Without either a random one is made and printed.
    #[arg(long, conflicts_with = "no_token")]
    pub(crate) token: Option<String>,
    /// Let anybody ask who reaches the address, which must be one of this machine.
    #[arg(long)]
    pub(crate) no_token: bool,
    /// Show on standard error what is taught, left out, understood, set right and asked again.
    #[arg(long)]
    pub(crate) explain: bool,
    /// How requests are told of on standard error. Without it as `log` in the configuration says, else as text.
    #[arg(long, value_enum)]
    pub(crate) log: Option<LogFormat>,
    /// Print only where it listens, and no settings for clients.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
}

/// How requests are told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// Not at all.
    Off,
}

impl From<sabir_session::config::LogForm> for LogFormat {
    fn from(form: sabir_session::config::LogForm) -> Self {
        match form {
            sabir_session::config::LogForm::Text => Self::Text,
            sabir_session::config::LogForm::Json => Self::Json,
            sabir_session::config::LogForm::Off => Self::Off,
        }
    }
}
