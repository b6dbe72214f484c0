//! Configuration: one TOML file, the flags, and a few environment variables with conventional names.
//!
//! `~/.config/sabir/config.toml` (or `$XDG_CONFIG_HOME/sabir/config.toml`, or `--config FILE`):
//!
//! ```toml
//! model = "openai/gpt-5"            # PROVIDER/NAME
//! protocol = "native"               # or a dialect
//! edit_tool = "edit_file"           # or "replace_in_file", "apply_patch"; without it the model decides
//! approve = ["edits"]               # as --approve; allow, ask and deny are lists too
//! mode = "code"                     # as --mode
//! ignore_files = [".sabirignore"]   # files that say what is hidden
//! ask_timeout = "5m"                # an approval that nobody answers in that time is a no; without it the question waits
//! sandbox = "best"                  # as --sandbox
//! network = false                   # true: as --network
//! max_turns = 100
//! max_tokens = 2_000_000            # as --max-tokens
//! context_window = 128000           # tokens; without it the model's catalogue says it, if it does
//! compact_at = 80                   # how full the context may get before it is compacted, in percent
//! instructions = true               # false: no AGENTS.md and its like is told to models
//! place = true                      # false: nor the date, the branch and what lies in the folder
//! repairs_off = ["near_name"]       # slips that are rejected, not set right: names of rules, or "all"
//! checkpoints = true                # false: what a task changes cannot be undone
//! checkpoints_mib = 2048            # the most that the checkpoints of one folder take on disk
//!
//! [completion]                      # what must hold before a task is completed
//! check = "cargo test"              # as --check
//! todos = true                      # as --require-todos
//!
//! [subtasks]                        # docs/subtasks.md
//! offered = true                    # as --subtasks
//! at_once = 3                       # how many of a task work at the same time
//! depth = 2                         # how many levels stand below a task
//! most = 20                         # how many a task may begin
//!
//! [providers.box]                   # a provider of your own: then use model = "box/NAME"
//! wire = "openai-chat"
//! base_url = "http://127.0.0.1:8000/v1"
//! key_env = "BOX_KEY"               # or key = "…", or api_key_command = ["pass", "show", "box"]; none: no key
//!
//! [[models]]                        # what is known of a model; goes before the built-in catalogue
//! pattern = "my-model"
//! native = false
//! dialect = "cline"
//!
//! [modes.review]                    # a mode of your own
//! tools = ["read", "command"]       # docs/modes.md has all; `write = ["docs/**"]` limits edit
//! instructions = "Review."          # and `about` for the list; `model = "box/NAME"` for what is done in it
//!
//! [gateway.models.qwen]             # a model that `sabir gateway` serves; docs/gateway.md has all keys
//! to = "box/NAME"
//! mend = "retry 2"
//!
//! [telemetry]                       # spans of tasks, to a collector of yours; docs/telemetry.md
//! endpoint = "http://127.0.0.1:4318"
//!
//! [dialects.mine]                   # a dialect of your own; the keys are those of `sabir help dialects`
//! machine = "json"
//! open = "<mine>"
//! close = "</mine>"
//! ```
//!
//! All keys of providers and models stand in `docs/models.md`. A file that holds a key must be the user's alone to read.
//!
//! Nothing in a workspace is read here: a repository cannot move a base URL or approve anything.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sabir_call::TokenPrices;
use sabir_call::dialect::DialectSet;
use sabir_model::{HttpModel, KeyRefreshingModel, ModelCatalogue, ModelEntry, ProbeTarget, Provider, Secret};
use sabir_policy::{Mode, PolicyRules};
use sabir_tools::EditTool;
use sabir_wire::{Wire, WireOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::dialect_tables::{self, Tables};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::notice::NoticeSink;
use crate::providers::{self, MAX_SECONDS, ProviderConfigs, ProviderConnection, ProviderRow};
use crate::spec::RuleSpec;
use crate::telemetry::TelemetryKeys;
use crate::{modes, repairs};

pub use gateway::{GatewayKeys, GatewayModelKeys, LogForm};
pub(crate) use limits::{CompletionKeys, LimitKeys, SubtaskKeys};
pub use rules::{ConfigProblem, ModeTable, RuleKeys};
pub use text::read_text;

mod gateway;
pub mod keys;
mod limits;
mod pattern_check;
mod rules;
mod text;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    pub(crate) model: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) edit_tool: Option<String>,
    pub(crate) sandbox: Option<String>,
    pub(crate) network: Option<bool>,
    pub(crate) repairs_off: Vec<String>,
    pub(crate) checkpoints: Option<bool>,
    pub(crate) checkpoints_mib: Option<u64>,
    /// When to stop.
    #[serde(skip)]
    pub(crate) limits: LimitKeys,
    /// What may be done.
    #[serde(skip)]
    pub(crate) rules: RuleKeys,
    /// Modes of the user's own.
    #[serde(skip)]
    pub(crate) modes: Vec<Mode>,
    /// Variables, folders and the clock.
    #[serde(skip)]
    pub(crate) environment: Arc<Environment>,
    /// The dialects that sessions with this configuration know.
    #[serde(skip)]
    pub(crate) dialects: DialectSet,
    /// Gets what the user should know.
    #[serde(skip)]
    pub(crate) notices: NoticeSink,
    /// What the user adds to what is built in.
    #[serde(skip)]
    own: OwnKeys,
}

/// Providers, models and dialects of the user's own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OwnKeys {
    providers: ProviderConfigs,
    models: Vec<ModelEntry>,
    dialects: Tables,
    gateway: GatewayKeys,
    telemetry: TelemetryKeys,
}

/// A model that can be asked.
#[derive(Debug)]
pub struct ResolvedModel {
    /// The name as the user gave it.
    pub name: String,
    /// The provider's name of it.
    pub id: String,
    /// What is known of it.
    pub entry: Option<ModelEntry>,
    /// What it costs there.
    pub prices: TokenPrices,
    catalogue: ModelCatalogue,
    pub reached: ProviderConnection,
}

/// Why the glob of a path in the workspace cannot mean what it says.
pub fn glob_problem(glob: &str) -> Option<String> {
    let home =
        glob.starts_with("~/").then(|| format!("`{glob}` is not in the workspace: write a path seen from there"));
    home.or_else(|| pattern_check::path_problem(glob))
}

impl Config {
    /// Reads the named file, or the one in its usual place, which need not exist, and defines its dialects.
    ///
    /// # Errors
    /// When the file cannot be read, holds a key that others may read, or a value that cannot be used.
    pub fn load(
        environment: &Arc<Environment>,
        named: Option<&Path>,
        notices: &NoticeSink,
    ) -> Result<Self, SessionError> {
        let config = Self::load_file(environment, named)?;
        Ok(Self { environment: Arc::clone(environment), notices: notices.clone(), ..config })
    }

    fn load_file(environment: &Environment, named: Option<&Path>) -> Result<Self, SessionError> {
        // Without a home there is no usual place, and nothing to read.
        let dialects = environment.dialects.clone();
        let Some(path) = environment.config_file(named) else { return Ok(Self { dialects, ..Self::default() }) };
        if named.is_none() && !path.exists() {
            return Ok(Self { dialects, ..Self::default() });
        }
        let (text, mode) = text::read_regular_file(&path)?;
        let mut config = Self { dialects, ..Self::parse_file(&path, &text)? };
        let OwnKeys { providers, gateway, telemetry, .. } = &config.own;
        if (providers.has_key() || gateway.has_token() || telemetry.has_key()) && mode & 0o077 != 0 {
            let shown = path.display();
            return Err(SessionError::invalid(format!(
                "{shown} holds a key or a token, and others may read the file (mode {:03o}): chmod 600 {shown}",
                mode & 0o777
            )));
        }
        let wrong = |message: String| SessionError::invalid(format!("{}: {message}", path.display()));
        config.own.providers.check_providers().map_err(wrong)?;
        config.own.gateway.check_keys().map_err(wrong)?;
        config.own.telemetry.check_keys().map_err(wrong)?;
        for name in edit_tools(&config) {
            name.parse::<EditTool>().map_err(|error| wrong(format!("edit_tool: {error}")))?;
        }
        if let Some(level) = &config.sandbox {
            level.parse::<sabir_workspace::SandboxLevel>().map_err(|error| wrong(format!("sandbox: {error}")))?;
        }
        config.limits.check_limits().map_err(wrong)?;
        let at = |ConfigProblem { keys, why }: ConfigProblem| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            SessionError::invalid(format!("{}: {why}", keys::locate_key((&path, &text), &keys)))
        };
        config.rules.check_rules(environment.home_folder.as_deref()).map_err(at)?;
        config.modes = modes::own_modes(&config.rules).map_err(at)?;
        // Said of the file, by whatever command reads it first.
        repairs::without_rules(&config.repairs_off)
            .map_err(|failure| wrong(format!("repairs_off: {}", failure.to_string())))?;
        dialect_tables::define_all((&path, &text), std::mem::take(&mut config.own.dialects), &mut config.dialects)?;
        Ok(config)
    }

    /// How long an approval waits for its answer; `None`: as long as it takes.
    pub fn answer_limit(&self) -> Result<Option<Duration>, SessionError> {
        let limit = self.limits.ask_timeout.as_deref().map(parse_duration).transpose();
        limit.map_err(|error| SessionError::invalid(format!("ask_timeout: {error}")))
    }

    /// Reads the text, once for each group of keys.
    fn parse_file(path: &Path, text: &str) -> Result<Self, SessionError> {
        fn group<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, SessionError> {
            toml::from_str(text).map_err(|error| unusable_file(path, text, &error))
        }
        let groups = (group::<LimitKeys>(path, text)?, group::<RuleKeys>(path, text)?, group::<OwnKeys>(path, text)?);
        let config: Self = group(path, text)?;
        let known = [
            keys::field_names::<Self>(),
            keys::field_names::<LimitKeys>(),
            keys::field_names::<RuleKeys>(),
            keys::field_names::<OwnKeys>(),
        ]
        .concat();
        if let Some((start, key)) = keys::first_unknown_key(text, &known) {
            let ((line, column), known) = (line_and_column(text, start), known.join("`, `"));
            return Err(SessionError::invalid(format!(
                "{} cannot be used: line {line}, column {column}: unknown field `{key}`, expected one of `{known}`",
                path.display()
            )));
        }
        let (limits, rules, own) = groups;
        Ok(Self { limits, rules, own, ..config })
    }

    /// The model of that name, or the configured one.
    pub fn resolve_model(&self, name: Option<&str>) -> Result<ResolvedModel, SessionError> {
        let name = name.or(self.model.as_deref()).ok_or_else(|| {
            SessionError::invalid(
                "no model is chosen: use --model PROVIDER/NAME, or set `model` in config.toml (for example openai/gpt-5)",
            )
        })?;
        let (reached, id) = if name.starts_with("http://") || name.starts_with("https://") {
            let (url, id) = name.split_once('#').unwrap_or((name, ""));
            let reached = providers::connect_address(url)?;
            if id.is_empty() {
                return Err(SessionError::invalid(
                    "an address in --model needs a name behind it: http://HOST:PORT/v1#NAME",
                ));
            }
            (reached, id.to_owned())
        } else {
            let (provider, id) = self.split_model_name(name)?;
            (self.own.providers.connect_provider(&provider, &self.environment, &self.notices)?, id)
        };
        Ok(self.model_at(name, id, reached))
    }

    /// The model of that id at that provider.
    pub fn model_at(&self, name: &str, id: String, reached: ProviderConnection) -> ResolvedModel {
        let catalogue = self.model_catalogue();
        let entry = catalogue.find_model(&id);
        let prices = catalogue.resolve_prices(&reached.provider, &id);
        ResolvedModel { name: name.to_owned(), id, entry, prices, catalogue, reached }
    }

    /// What is known of models, the user's entries first.
    pub fn model_catalogue(&self) -> ModelCatalogue {
        ModelCatalogue::new(self.own.models.clone())
    }

    /// The rules of the configuration and of a spec, for a workspace in that folder.
    ///
    /// # Errors
    /// When a rule cannot be read.
    pub fn rules(&self, spec: &RuleSpec, root: &Path) -> Result<PolicyRules, SessionError> {
        self.rules.build_rules(spec, root, self.environment.home_folder.as_deref())
    }

    /// The mode of tasks that name none, where the configuration sets it.
    pub fn usual_mode(&self) -> Option<&str> {
        self.rules.mode.as_deref()
    }

    /// The dialects: those of the environment, and those of the file.
    pub fn dialects(&self) -> &DialectSet {
        &self.dialects
    }

    /// The names of the repairs that are switched off.
    pub fn disabled_repairs(&self) -> &[String] {
        &self.repairs_off
    }

    /// What a gateway is told.
    pub fn gateway_keys(&self) -> &GatewayKeys {
        &self.own.gateway
    }

    /// Where spans of tasks are sent.
    pub(crate) fn telemetry_keys(&self) -> &TelemetryKeys {
        &self.own.telemetry
    }

    /// All providers, for a list.
    pub fn provider_rows(&self) -> Vec<ProviderRow> {
        self.own.providers.provider_rows(&self.environment)
    }

    /// Where servers of this machine may be.
    pub fn local_places(&self) -> Vec<ProbeTarget> {
        self.own.providers.local_places(&self.environment)
    }

    /// The provider's name and the model's. A bare name is given to the provider that its beginning speaks of, or to the
    /// one whose base URL is set.
    fn split_model_name(&self, name: &str) -> Result<(String, String), SessionError> {
        const BEGINNINGS: [(&str, &[&str]); 6] = [
            ("anthropic", &["claude"]),
            ("openai", &["gpt-", "o1", "o3", "o4", "chatgpt"]),
            ("gemini", &["gemini-"]),
            ("xai", &["grok-"]),
            ("deepseek", &["deepseek-"]),
            ("mistral", &["mistral-", "magistral-", "codestral-", "devstral-"]),
        ];
        if let Some((provider, id)) = name.split_once('/')
            && !id.is_empty()
            && self.own.providers.contains(provider)
        {
            return Ok((provider.to_owned(), id.to_owned()));
        }
        let speaks = |(_, starts): &&(_, &[&str])| starts.iter().any(|start| name.starts_with(start));
        let spoken = BEGINNINGS.iter().find(speaks).map(|(provider, _)| *provider);
        // OpenAI's address is often moved to a server of other models.
        let moved = ["openai", "anthropic"]
            .into_iter()
            .find(|provider| providers::base_url_of(provider, &self.environment).is_some());
        let whose = spoken.filter(|provider| matches!(*provider, "anthropic" | "openai")).or(moved).or(spoken);
        match whose {
            Some(provider) if !name.contains('/') || moved.is_some() => Ok((provider.to_owned(), name.to_owned())),
            _ => Err(SessionError::invalid(format!(
                "the model `{name}` is unknown: write PROVIDER/NAME with one of {}",
                self.own.providers.provider_names().join(", ")
            ))),
        }
    }
}

impl ResolvedModel {
    /// The model itself, which has opened nothing yet. `set_up` is applied to it, and to each that takes its place with a
    /// new key.
    pub fn build_model(
        &self,
        set_up: impl Fn(HttpModel) -> HttpModel + Send + Sync + 'static,
    ) -> KeyRefreshingModel<HttpModel> {
        let (ProviderConnection { provider, deadlines, retries, command }, catalogue) =
            (self.reached.clone(), self.catalogue.clone());
        let make = move |key: Option<Secret>| {
            let model = HttpModel::new(Provider { key, ..provider.clone() });
            set_up(model.deadlines(deadlines).retries(retries).catalogue(catalogue.clone()))
        };
        let model = KeyRefreshingModel::with_key(self.reached.provider.key.clone(), make);
        match command {
            Some(command) => model.with_renewal(move || Box::pin(command.clone().run_command())),
            None => model,
        }
    }

    /// The model with the key at hand, which stays.
    pub fn fixed_key_model(&self) -> HttpModel {
        let ProviderConnection { provider, deadlines, retries, .. } = self.reached.clone();
        HttpModel::new(provider).deadlines(deadlines).retries(retries).catalogue(self.catalogue.clone())
    }

    /// How often a request is sent again, at most.
    pub fn retry_limit(&self) -> u32 {
        self.reached.retries.limit
    }

    /// What its provider speaks.
    pub fn wire_format(&self) -> (Wire, WireOptions) {
        (self.reached.provider.wire, self.reached.provider.form.clone())
    }

    /// Whether a key that is refused is fetched anew.
    pub fn renews_key(&self) -> bool {
        self.reached.command.is_some()
    }

    /// The provider's name.
    pub fn provider_name(&self) -> &str {
        &self.reached.provider.name
    }
}

/// The names of edit tools in the file.
fn edit_tools(config: &Config) -> impl Iterator<Item = &String> {
    config.own.models.iter().filter_map(|entry| entry.edit_tool.as_ref()).chain(&config.edit_tool)
}

/// Why a file cannot be used, without a line of it: the line may hold a key, in whatever place. Of values only plain words are said,
/// such as `retry 0`, and those only where no secret belongs.
fn unusable_file(path: &Path, text: &str, error: &toml::de::Error) -> SessionError {
    let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
    let values = toml::from_str::<toml::Table>(text).map(|table| secret_values(&toml::Value::Table(table), false));
    let message = values
        .unwrap_or_default()
        .iter()
        .fold(error.message().to_owned(), |message, value| Secret::new(value).redact(&message));
    let message = sabir_call::redact::redact_text(&message);
    SessionError::invalid(format!("{} cannot be used: line {line}, column {column}: {message}", path.display()))
}

/// The line and the column of a byte, from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

/// The values that may be secrets, as text: all but plain words, and those too where the name of the key speaks of
/// secrets. `inside`: that of a table around it does.
fn secret_values(value: &toml::Value, inside: bool) -> Vec<String> {
    const NAMES: [&str; 7] = ["providers", "key", "token", "secret", "password", "auth", "header"];
    let named = |name: &str| NAMES.iter().any(|part| name.to_ascii_lowercase().contains(part));
    // No key is made of short words and small numbers alone.
    let plain = |word: &str| {
        let all = |is: fn(&u8) -> bool, most: usize| word.len() <= most && word.bytes().all(|byte| is(&byte));
        all(u8::is_ascii_lowercase, 10) || all(u8::is_ascii_digit, 2)
    };
    let said = |text: &str| !inside && text.split(' ').all(plain);
    match value {
        toml::Value::Table(table) => {
            table.iter().flat_map(|(name, value)| secret_values(value, inside || named(name))).collect()
        }
        toml::Value::Array(items) => items.iter().flat_map(|item| secret_values(item, inside)).collect(),
        toml::Value::String(text) if said(text) => Vec::new(),
        toml::Value::String(text) => vec![text.clone(), format!("{text:?}").trim_matches('"').to_owned()],
        other => vec![other.to_string()],
    }
}

/// `90`, `90s`, `15m` or `2h`.
pub fn parse_duration(text: &str) -> Result<Duration, SessionError> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()).and_then(|at| text.split_at_checked(at)) {
        Some((digits, "s")) => (digits, 1),
        Some((digits, "m")) => (digits, 60),
        Some((digits, "h")) => (digits, 3600),
        None => (text, 1),
        Some(_) => ("", 0),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| SessionError::invalid(format!("`{text}` is no time: write 90, 90s, 15m or 2h, at most 720h")))
}
