//! Loads the configuration: one TOML file and a few environment variables with conventional names.
//!
//! The file is `~/.config/sabir/config.toml` (or `$XDG_CONFIG_HOME/sabir/config.toml`, or `--config FILE`):
//!
//! ```toml
//! model = "openai/gpt-5"            # PROVIDER/NAME
//! protocol = "native"               # or a dialect
//! recovery = "ask"                  # calls written as text in a native session: "off", "ask" or "on"
//! calls_per_message = 1             # the model may make one call a message; by default several
//! edit_tool = "edit_file"           # or "replace_in_file", "apply_patch"; by default the model's usual one
//! interface = "auto"                # of interactive tasks: "auto", "full" or "line"
//! approve = ["edits"]               # as --approve; allow, ask and deny are lists too
//! mode = "code"                     # as --mode
//! ignore_files = [".sabirignore"]   # files that list the hidden paths
//! ask_timeout = "5m"                # denies an approval that nobody answers in time; by default the question waits
//! sandbox = "best"                  # as --sandbox
//! network = false                   # true: as --network; "registries": as --network registries
//! loopback = true                   # false: approved commands do not reach the ports of this machine's loopback that they name
//! registries = ["npm.corp.example"] # more hosts of package registries: NAME or NAME:PORT
//! private_registries = ["nexus:8081"] # the same, in your own network, and with or without TLS
//! trusted_builds = true             # false: builds of trusted repositories ask, too
//! max_turns = 100
//! max_tokens = 2_000_000            # as --max-tokens
//! context_window = 128000           # in tokens; by default the size in the model catalogue, if it is known
//! compact_at = 80                   # how full the context may get before it is compacted, in percent
//! instructions = true               # false: models do not get AGENTS.md and similar files
//! place = true                      # false: models do not get the date, the branch and the file names of the folder
//! repairs_off = ["near_name"]       # mistakes to reject instead of repairing: names of rules, or "all"
//! checkpoints = true                # false: the changes of a task cannot be undone
//! checkpoints_mib = 2048            # the most disk space for the checkpoints of one folder
//!
//! [completion]                      # what must hold before a task is completed
//! check = "cargo test"              # as --check
//! todos = true                      # as --require-todos
//! review = true                     # false: completions are accepted without asking you
//!
//! [subtasks]                        # docs/subtasks.md
//! offered = true                    # as --subtasks
//! at_once = 3                       # how many subtasks of a task work at the same time
//! depth = 2                         # how many levels of subtasks a task may have
//! most = 20                         # how many subtasks a task may start
//! review = false                    # true: you are asked before a subtask's result goes to its task
//!
//! [providers.box]                   # a provider of your own: then use model = "box/NAME"
//! wire = "openai-chat"
//! base_url = "http://127.0.0.1:8000/v1"
//! key_env = "BOX_KEY"               # or key = "…", or api_key_command = ["pass", "show", "box"]; none: no key
//!
//! [[models]]                        # facts about a model; they override the built-in catalogue
//! pattern = "my-model"
//! native = false
//! dialect = "cline"
//!
//! [modes.review]                    # a mode of your own
//! tools = ["read", "command"]       # docs/modes.md lists all groups; `write = ["docs/**"]` limits edits
//! instructions = "Review."          # also `about` for the list, and `model = "box/NAME"` for work in this mode
//!
//! [gateway.models.qwen]             # a model that `sabir gateway` serves; docs/gateway.md has all keys
//! to = "box/NAME"
//! faulty_calls = "retry 2"
//!
//! [telemetry]                       # sends spans of tasks to your collector; docs/telemetry.md
//! endpoint = "http://127.0.0.1:4318"
//!
//! [tui]                             # the full interface; docs/tui.md
//! status = ["model", "branch"]      # the parts of the status line
//! keys = "vi"                       # by default those of Emacs
//!
//! [mcp.servers.files]               # a server of tools; docs/mcp.md
//! command = "npx"
//! args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
//!
//! [dialects.mine]                   # a dialect of your own; `sabir help dialects` lists the keys
//! machine = "json"
//! open = "<mine>"
//! close = "</mine>"
//! ```
//!
//! `docs/models.md` lists all keys of providers and models. A file that holds a key must be readable by its owner only.
//!
//! This module reads nothing from a workspace: a repository cannot move a base URL or approve anything.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, TextRecovery, TokenPrices};
use sabir_gateway::ModelLimits;
use sabir_model::{
    Deadlines, HttpModel, KeyRefreshingModel, ModelCatalogue, ModelEntry, ProbeTarget, Provider,
    RetryPolicy, Secret, is_loopback,
};
use sabir_policy::{Mode, PolicyRules};
use sabir_tools::{EditTool, Editor};
use sabir_wire::{Wire, WireOptions};
use sabir_workspace::SandboxLevel;
use serde::Deserialize;

use crate::dialect_tables::{self, DialectTables};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::hooks::{HookCallbacks, HookConfig};
use crate::interface_choice::InterfaceChoice;
use crate::mcp::{FormElicitor, McpConfig};
use crate::modes::{PersonalAgents, read_personal_agents};
use crate::notice::NoticeSink;
use crate::providers::{self, MAX_SECONDS, ProviderConfigs, ProviderConnection, ProviderRow};
use crate::proxy::apply_proxy_variables;
use crate::spec::{NetworkChoice, RetryLimits, RuleSpec, SessionSpec};
use crate::telemetry::TelemetryConfig;
use crate::{modes, repairs};

pub use gateway::{
    GatewayConfig, GatewayConfigError, GatewayModelConfig, GatewayUpstreamConfig, UpstreamSelection,
};
pub(crate) use keys::TomlFile;
pub(crate) use limits::{CompletionConfig, LimitConfig, SubtaskConfig};
pub(crate) use rules::rule_mistake;
pub use rules::{ConfigProblem, ModeTable, RuleConfig};
pub(crate) use text::read_regular_file;
pub use text::read_text;
use tui::TuiConfig;

pub mod change;
pub mod check;
pub mod files;
mod gateway;
pub mod key_bindings;
pub mod keys;
mod limits;
mod pattern_check;
pub mod reference;
mod rules;
pub mod shape;
mod text;
pub mod themes;
pub mod tui;
pub mod values;

/// A configuration file with its text, for messages about its lines. The text may hold secrets.
struct LoadedFile {
    path: PathBuf,
    text: String,
}

impl std::fmt::Debug for LoadedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LoadedFile").field(&self.path).finish()
    }
}

/// The user's configuration, with the environment and the notice sink that it was loaded with.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The model of tasks that name none.
    pub(crate) model: Option<String>,
    /// The protocol for tool calls: `native` or a dialect.
    pub(crate) protocol: Option<String>,
    /// The edit tool of new tasks.
    pub(crate) edit_tool: Option<String>,
    /// The treatment of calls that models write as text in native sessions.
    pub(crate) recovery: Option<TextRecovery>,
    /// 1: a message of the model may hold one call.
    pub(crate) calls_per_message: Option<u32>,
    /// The interface of interactive tasks.
    pub(crate) interface: InterfaceChoice,
    /// The level of the sandbox.
    pub(crate) sandbox: Option<String>,
    /// The network of commands.
    pub(crate) network: Option<NetworkChoice>,
    /// Hosts that commands reach where they reach package registries.
    pub(crate) registries: Vec<String>,
    /// The same, with private addresses.
    pub(crate) private_registries: Vec<String>,
    /// False: commands do not reach ports of this machine's loopback.
    pub(crate) loopback: Option<bool>,
    /// False: builds and tests of trusted repositories ask as well.
    pub(crate) trusted_builds: Option<bool>,
    /// The names of repairs that are off.
    pub(crate) repairs_off: Vec<String>,
    /// False: no checkpoints are taken.
    pub(crate) checkpoints: Option<bool>,
    /// The most disk space for the checkpoints of one folder, in MiB.
    pub(crate) checkpoints_mib: Option<u64>,
    // The groups below are deserialized separately: serde's `flatten` cannot be combined with
    // `deny_unknown_fields`.
    /// The limits of tasks, and the settings of their context.
    #[serde(skip)]
    pub(crate) limits: LimitConfig,
    /// The policy rules and the settings of modes.
    #[serde(skip)]
    pub(crate) rules: RuleConfig,
    /// The modes that the user defined.
    #[serde(skip)]
    pub(crate) modes: Vec<Mode>,
    /// Variables, folders and the clock.
    #[serde(skip)]
    pub(crate) environment: Arc<Environment>,
    /// The dialects that sessions with this configuration know.
    #[serde(skip)]
    pub(crate) dialects: DialectSet,
    /// Receives notices for the user.
    #[serde(skip)]
    pub(crate) notices: NoticeSink,
    /// The hooks of the program that drives the session.
    #[serde(skip)]
    pub(crate) hook_callbacks: Option<Arc<dyn HookCallbacks>>,
    /// The editor in which the user has files open.
    #[serde(skip)]
    pub(crate) editor: Option<Arc<dyn Editor>>,
    /// Shows the questions of MCP servers as forms.
    #[serde(skip)]
    pub(crate) form_elicitor: Option<Arc<dyn FormElicitor>>,
    /// The limits of retries that a session sets for all its models.
    #[serde(skip)]
    pub(crate) retry_limits: RetryLimits,
    /// The time for which rate-limited requests of a session are retried, unless the user has set the limits of retries.
    #[serde(skip)]
    pub(crate) default_retry_duration: Duration,
    /// The file that it was loaded from; `None` if there is none.
    #[serde(skip)]
    file: Option<LoadedFile>,
    /// The user's additions to the built-in tables.
    #[serde(skip)]
    own: ExtensionConfig,
    /// The user's own agents, which are read when they are first needed.
    #[serde(skip)]
    agents: OnceLock<PersonalAgents>,
}

/// The tables for additions to the built-in providers, models and dialects, and for the gateway and telemetry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExtensionConfig {
    providers: ProviderConfigs,
    models: Vec<ModelEntry>,
    dialects: DialectTables,
    gateway: GatewayConfig,
    telemetry: TelemetryConfig,
    tui: TuiConfig,
    mcp: McpConfig,
    hooks: HookConfig,
}

/// A model with the connection to its provider and the facts about it.
#[derive(Debug)]
pub struct ResolvedModel {
    /// The model's name as the user gave it.
    pub name: String,
    /// The model's name as its provider knows it.
    pub id: String,
    /// The entry in the model catalogue; `None` for an unknown model.
    pub entry: Option<ModelEntry>,
    /// The prices of its tokens at this provider.
    pub prices: TokenPrices,
    /// The catalogue that the entry is from, with the user's own entries.
    catalogue: ModelCatalogue,
    /// The provider, with its key and its time limits.
    pub reached: ProviderConnection,
}

/// Returns the reason why a glob of workspace paths cannot be used, or `None` for a usable glob.
pub fn glob_problem(glob: &str) -> Option<String> {
    let home = glob
        .starts_with("~/")
        .then(|| format!("`{glob}` is not in the workspace: write a path seen from there"));
    home.or_else(|| pattern_check::path_problem(glob))
}

impl Config {
    /// Returns the interface of interactive tasks.
    pub fn interface(&self) -> InterfaceChoice {
        self.interface
    }

    /// Returns the settings of the full interface.
    pub fn tui(&self) -> &TuiConfig {
        &self.own.tui
    }

    /// Returns true if builds and tests of trusted repositories run unasked, where the sandbox keeps them.
    pub fn allows_trusted_builds(&self) -> bool {
        self.trusted_builds.unwrap_or(true)
    }

    /// Returns true if the changes of tasks are kept in checkpoints.
    pub(crate) fn takes_checkpoints(&self) -> bool {
        self.checkpoints.unwrap_or(true)
    }

    /// Reads the named file, or the one in the configuration folder, and defines its dialects.
    ///
    /// Without `named`, a missing file gives the default configuration. Notices are sent to `notices`.
    ///
    /// # Errors
    /// When the file cannot be read, has a value that cannot be used, or has a key or token that other users of the
    /// machine can read.
    pub fn load(
        environment: &Arc<Environment>,
        named: Option<&Path>,
        notices: &NoticeSink,
    ) -> Result<Self, SessionError> {
        let config = Self::load_file(environment, named)?;
        Ok(Self {
            environment: Arc::clone(environment),
            notices: notices.clone(),
            ..config
        })
    }

    /// Loads the file without the environment and the notice sink.
    fn load_file(environment: &Environment, named: Option<&Path>) -> Result<Self, SessionError> {
        // Without a home folder there is no default file.
        let dialects = environment.dialects.clone();
        let Some(path) = environment.config_file(named) else {
            return Ok(Self {
                dialects,
                ..Self::default()
            });
        };
        if named.is_none() && !path.exists() {
            return Ok(Self {
                dialects,
                ..Self::default()
            });
        }
        let (text, mode) = text::read_regular_file(&path)?;
        let mut config = Self {
            dialects,
            ..Self::parse_file(&path, &text)?
        };
        let ExtensionConfig {
            providers,
            gateway,
            telemetry,
            mcp,
            ..
        } = &config.own;
        // Checked before all values, so that no mistake in one of them hides it.
        let has_secret =
            providers.has_key() || gateway.has_token() || telemetry.has_key() || mcp.has_secret();
        if has_secret && mode & 0o077 != 0 {
            let shown = path.display();
            return Err(SessionError::invalid(format!(
                "{shown} holds a key or a token, and others may read the file (mode {:03o}): chmod 600 {shown}",
                mode & 0o777
            )));
        }
        let file = TomlFile {
            path: &path,
            text: &text,
        };
        let home = environment.home_folder.as_deref();
        // All groups are checked at each load, so a mistake is reported by every command and not at
        // first use.
        if let Some(problem) = config.find_problems(home).into_iter().next() {
            return Err(problem.in_file(file));
        }
        config.modes =
            modes::configured_modes(&config.rules).map_err(|problem| problem.in_file(file))?;
        dialect_tables::define_all(
            file,
            std::mem::take(&mut config.own.dialects),
            &mut config.dialects,
        )?;
        config.file = Some(LoadedFile { path, text });
        Ok(config)
    }

    /// Returns the error for a value that cannot be used, with its file and line. `keys` is the path to
    /// the value, as in [`ConfigProblem`].
    pub(crate) fn error_at(&self, keys: &[&str], why: String) -> SessionError {
        match &self.file {
            Some(LoadedFile { path, text }) => {
                ConfigProblem::new(keys, why).in_file(TomlFile { path, text })
            }
            None => SessionError::invalid(why),
        }
    }

    /// Finds values that cannot be used, except in dialects, which change the known ones when they are defined.
    fn find_problems(&self, home: Option<&Path>) -> Vec<ConfigProblem> {
        let own = &self.own;
        let mut problems = own.providers.find_problems();
        if let Err(error) = own.gateway.check_settings() {
            problems.push(ConfigProblem {
                keys: error.keys(),
                why: error.to_string(),
            });
        }
        let mut note = |keys: &[&str], why: &dyn Display| {
            problems.push(ConfigProblem::new(keys, why.to_string()));
        };
        if let Err(error) = own.telemetry.check_settings() {
            note(&["telemetry"], &error);
        }
        for (name, error) in own.mcp.find_problems() {
            note(&["mcp", "servers", &name], &error);
        }
        if let Err(error) = own.tui.check_theme() {
            note(&["tui", "theme"], &format_args!("tui.theme: {error}"));
        }
        for (keys, name) in edit_tools(self) {
            if let Err(error) = name.parse::<EditTool>() {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                note(&keys, &format_args!("edit_tool: {error}"));
            }
        }
        if let Some(Err(error)) = self.sandbox.as_deref().map(str::parse::<SandboxLevel>) {
            note(&["sandbox"], &format_args!("sandbox: {error}"));
        }
        if let Some(number) = self.calls_per_message.filter(|number| *number != 1) {
            let why = format_args!(
                "calls_per_message: {number} cannot be set: write 1, or leave it out for any number"
            );
            note(&["calls_per_message"], &why);
        }
        for error in self.limits.find_problems() {
            note(error.keys(), &error);
        }
        // Checked here, so that every command reports the mistake, not only those that use repairs.
        if let Err(failure) = repairs::without_rules(&self.repairs_off) {
            note(&["repairs_off"], &format_args!("repairs_off: {failure}"));
        }
        for (at, entry) in self.own.models.iter().enumerate() {
            if let Err(failure) = repairs::closes_last_call(entry.repairs_on.iter().flatten()) {
                let at = at.to_string();
                let keys = ["models", at.as_str(), "repairs_on"];
                note(&keys, &format_args!("repairs_on: {failure}"));
            }
        }
        problems.extend(self.rules.find_rule_problems(home));
        problems.extend(modes::configured_modes(&self.rules).err());
        problems
    }

    /// Returns the keys of MCP servers.
    pub(crate) fn mcp_config(&self) -> &McpConfig {
        &self.own.mcp
    }

    /// Returns the user's own agents.
    pub(crate) fn personal_agents(&self) -> &PersonalAgents {
        self.agents.get_or_init(|| read_personal_agents(self))
    }

    /// Returns the table `[hooks]`.
    pub(crate) fn hook_config(&self) -> &HookConfig {
        &self.own.hooks
    }

    /// Returns the number of calls that a message may hold in a session with this spec.
    pub(crate) fn parallel_calls(&self, spec: &SessionSpec) -> ParallelCalls {
        let configured = self.calls_per_message.map(|_| ParallelCalls::One);
        spec.parallel_calls.or(configured).unwrap_or_default()
    }

    /// Returns how long an approval waits for its answer; `None` means without a limit.
    ///
    /// # Errors
    /// When `ask_timeout` is not a duration.
    pub fn approval_timeout(&self) -> Result<Option<Duration>, SessionError> {
        let limit = self
            .limits
            .ask_timeout
            .as_deref()
            .map(parse_duration)
            .transpose();
        limit.map_err(|error| SessionError::invalid(format!("ask_timeout: {error}")))
    }

    /// Parses the text, once for each group of keys; unknown keys at the top are ignored.
    fn parse_groups(text: &str) -> Result<Self, toml::de::Error> {
        Ok(Self {
            limits: toml::from_str(text)?,
            rules: toml::from_str(text)?,
            own: toml::from_str(text)?,
            ..toml::from_str(text)?
        })
    }

    /// Parses the text and rejects keys that no group knows.
    fn parse_file(path: &Path, text: &str) -> Result<Self, SessionError> {
        let parsed = Self::parse_groups(text);
        // Keys are compared by name first: a similar known name says more than the deserializer's
        // error.
        if let Some(problem) = check::first_unknown_key(text) {
            let (line, column) = line_and_column(text, keys::key_offset(text, &problem.keys));
            return Err(SessionError::invalid(format!(
                "{} cannot be used: line {line}, column {column}: {}",
                path.display(),
                problem.why
            )));
        }
        parsed.map_err(|error| unusable_file(path, text, &error))
    }

    /// Resolves the model with this name, or the configured one, and fetches the key of its provider.
    ///
    /// # Errors
    /// When no model is chosen, its provider is unknown, or there is no key for it.
    pub fn resolve_model(&self, name: Option<&str>) -> Result<ResolvedModel, SessionError> {
        let name = name.or(self.model.as_deref()).ok_or_else(|| {
            SessionError::invalid(
                "no model is chosen: use --model PROVIDER/NAME, or keep one with `sabir config set model openai/gpt-5`",
            )
        })?;
        // An address is not a provider: it has no key, so none can leak to a host from a command
        // line.
        let (reached, id) = if name.starts_with("http://") || name.starts_with("https://") {
            let (url, id) = name.split_once('#').unwrap_or((name, ""));
            let reached = providers::connect_address(url)?;
            if id.is_empty() {
                return Err(SessionError::invalid(
                    "an address in --model needs a name after it: http://HOST:PORT/v1#NAME",
                ));
            }
            (reached, id.to_owned())
        } else {
            let (provider, id) = self.split_model_name(name)?;
            (
                self.own
                    .providers
                    .connect_provider(&provider, &self.environment, &self.notices)?,
                id,
            )
        };
        Ok(self.model_at(name, id, reached))
    }

    /// Returns the model with this id at a provider, with its catalogue entry and prices.
    pub fn model_at(
        &self,
        name: &str,
        id: String,
        mut reached: ProviderConnection,
    ) -> ResolvedModel {
        let sets_limit = self.retry_limits.per_request.is_some()
            || self.own.providers.sets_retries(&reached.provider.name);
        if !sets_limit {
            reached.retries.patience = self.default_retry_duration;
        }
        self.retry_limits.apply_to(&mut reached.retries);
        reached.retries.seed = self.environment.next_seed();
        apply_proxy_variables(&mut reached.provider, &self.environment);
        let catalogue = self.model_catalogue();
        let entry = catalogue.find_model(&reached.provider.name, &id);
        let prices = catalogue.resolve_prices(&reached.provider, &id);
        ResolvedModel {
            name: name.to_owned(),
            id,
            entry,
            prices,
            catalogue,
            reached,
        }
    }

    /// Returns the catalogue of models. The user's entries override the built-in ones.
    pub fn model_catalogue(&self) -> ModelCatalogue {
        ModelCatalogue::new(self.own.models.clone())
    }

    /// Returns the rules of the configuration and of a spec, for the workspace at `root`.
    ///
    /// # Errors
    /// When a rule cannot be read.
    pub fn policy_rules(&self, spec: &RuleSpec, root: &Path) -> Result<PolicyRules, SessionError> {
        self.rules
            .build_rules(spec, root, self.environment.home_folder.as_deref())
    }

    /// Returns the mode that the configuration sets for tasks that name none.
    pub fn default_mode(&self) -> Option<&str> {
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

    /// Returns the clock of the host.
    pub fn clock(&self) -> fn() -> std::time::SystemTime {
        self.environment.clock
    }

    /// Returns the settings of the gateway.
    pub fn gateway_config(&self) -> &GatewayConfig {
        &self.own.gateway
    }

    /// Returns the settings of telemetry.
    pub(crate) fn telemetry_config(&self) -> &TelemetryConfig {
        &self.own.telemetry
    }

    /// Lists all providers, the user's own first.
    pub fn provider_rows(&self) -> Vec<ProviderRow> {
        self.own.providers.provider_rows(&self.environment)
    }

    /// Returns the addresses on this machine where model servers may run.
    pub fn local_server_addresses(&self) -> Vec<ProbeTarget> {
        self.own.providers.local_server_addresses(&self.environment)
    }

    /// Splits a name into the provider's name and the model's. A bare name goes to the provider that its prefix implies, or
    /// to the one whose base URL is set by a variable.
    fn split_model_name(&self, name: &str) -> Result<(String, String), SessionError> {
        const BEGINNINGS: [(&str, &[&str]); 6] = [
            ("anthropic", &["claude"]),
            ("openai", &["gpt-", "o1", "o3", "o4", "chatgpt"]),
            ("gemini", &["gemini-"]),
            ("xai", &["grok-"]),
            ("deepseek", &["deepseek-"]),
            (
                "mistral",
                &["mistral-", "magistral-", "codestral-", "devstral-"],
            ),
        ];
        // Names of models may contain slashes, so the first part counts only if it is a provider.
        if let Some((provider, id)) = name.split_once('/')
            && !id.is_empty()
            && self.own.providers.has_provider(provider)
        {
            return Ok((provider.to_owned(), id.to_owned()));
        }
        let has_prefix =
            |(_, starts): &&(_, &[&str])| starts.iter().any(|start| name.starts_with(start));
        let by_prefix = BEGINNINGS
            .iter()
            .find(has_prefix)
            .map(|(provider, _)| *provider);
        // `OPENAI_BASE_URL` often points to a server with models of other vendors, so it takes
        // precedence over the prefix of any vendor except Anthropic and OpenAI.
        let by_base_url = ["openai", "anthropic"]
            .into_iter()
            .find(|provider| providers::base_url_of(provider, &self.environment).is_some());
        let provider = by_prefix
            .filter(|provider| matches!(*provider, "anthropic" | "openai"))
            .or(by_base_url)
            .or(by_prefix);
        match provider {
            // Behind a moved base URL any name is possible, such as `meta-llama/Llama-3`.
            Some(provider) if !name.contains('/') || by_base_url.is_some() => {
                Ok((provider.to_owned(), name.to_owned()))
            }
            _ => Err(SessionError::invalid(format!(
                "the model `{name}` is unknown: write PROVIDER/NAME with one of {}, or a server's address that begins with http:// or https://",
                self.own.providers.provider_names().join(", ")
            ))),
        }
    }
}

impl ResolvedModel {
    /// Builds the client of the model, which connects only when it is asked. `set_up` is applied to the client, and again to
    /// each client that replaces it after its key was renewed.
    pub fn build_model(
        &self,
        set_up: impl Fn(HttpModel) -> HttpModel + Send + Sync + 'static,
    ) -> KeyRefreshingModel<HttpModel> {
        let ProviderConnection {
            provider,
            deadlines,
            retries,
            command,
        } = self.reached.clone();
        let catalogue = self.catalogue.clone();
        let make = move |key: Option<Secret>| {
            let model = HttpModel::new(Provider {
                key,
                ..provider.clone()
            });
            set_up(
                model
                    .deadlines(deadlines)
                    .retries(retries)
                    .catalogue(catalogue.clone()),
            )
        };
        // The same closure builds the first client and each one after a renewal of the key.
        let model = KeyRefreshingModel::with_key(self.reached.provider.key.clone(), make);
        match command {
            Some(command) => model.with_refresh(move || {
                let command = command.clone();
                async move {
                    command
                        .run_command()
                        .await
                        .map_err(|error| error.to_string())
                }
            }),
            None => model,
        }
    }

    /// Returns the limits to which requests of other programs are adapted: those that the user set.
    pub(crate) fn request_limits(&self) -> ModelLimits {
        let provider = &self.reached.provider.name;
        let entry = self.entry.as_ref();
        ModelLimits {
            output: self.catalogue.user_output_limit(provider, &self.id),
            never_thinks: entry.and_then(|entry| entry.thinking) == Some(false),
        }
    }

    /// Builds a client that keeps its present key: a refused key is not renewed.
    pub fn fixed_key_model(&self) -> HttpModel {
        let ProviderConnection {
            provider,
            deadlines,
            retries,
            ..
        } = self.reached.clone();
        HttpModel::new(provider)
            .deadlines(deadlines)
            .retries(retries)
            .catalogue(self.catalogue.clone())
    }

    /// Reports whether the model's server renders a chat template, so that special tokens in foreign text would take effect: by the
    /// user's entry, else if the server is on this machine. APIs of vendors encode messages themselves.
    pub(crate) fn renders_template(&self) -> bool {
        let known = self.entry.as_ref().and_then(|entry| entry.escape_tokens);
        known.unwrap_or_else(|| is_loopback(&self.reached.provider.base_url))
    }

    /// Returns the limits of retries.
    pub fn retry_policy(&self) -> RetryPolicy {
        self.reached.retries
    }

    /// Returns the API that the provider speaks, with its options.
    pub fn wire_format(&self) -> (Wire, WireOptions) {
        (
            self.reached.provider.wire,
            self.reached.provider.form.clone(),
        )
    }

    /// Returns the prices of the model at its provider.
    pub(crate) fn token_prices(&self) -> TokenPrices {
        self.catalogue
            .resolve_prices(&self.reached.provider, &self.id)
    }

    /// Returns the provider.
    pub(crate) fn provider(&self) -> &Provider {
        &self.reached.provider
    }

    /// Returns the time limits of the provider.
    pub(crate) fn deadlines(&self) -> Deadlines {
        self.reached.deadlines
    }

    /// Reports whether a refused key is fetched again, by running its command.
    pub fn renews_key(&self) -> bool {
        self.reached.command.is_some()
    }

    /// Returns the provider's name.
    pub fn provider_name(&self) -> &str {
        &self.reached.provider.name
    }
}

/// Returns all names of edit tools in the file, with their paths.
fn edit_tools(config: &Config) -> impl Iterator<Item = (Vec<String>, &String)> {
    let entries = config.own.models.iter().enumerate();
    let of_models = entries.filter_map(|(at, entry)| {
        let path = ["models", &at.to_string(), "edit_tool"].map(str::to_owned);
        Some((path.to_vec(), entry.edit_tool.as_ref()?))
    });
    let usual = config.edit_tool.iter();
    of_models.chain(usual.map(|name| (vec!["edit_tool".to_owned()], name)))
}

/// Builds the error for a file that cannot be parsed. It quotes no line, since any line may hold a key.
///
/// The parser's message can quote values. All but plain words are redacted, and under a key that suggests a secret those too.
fn unusable_file(path: &Path, text: &str, error: &toml::de::Error) -> SessionError {
    let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
    SessionError::invalid(format!(
        "{} cannot be used: line {line}, column {column}: {}",
        path.display(),
        redacted_message(text, error)
    ))
}

/// Returns the message of the parser without values that may be secrets.
fn redacted_message(text: &str, error: &toml::de::Error) -> String {
    // The file may be valid TOML with a value of the wrong type. Then the values are known and
    // redacted one by one; otherwise only the patterns of known secrets are.
    let values = toml::from_str::<toml::Table>(text)
        .map(|table| secret_values(&toml::Value::Table(table), false));
    let message = values
        .unwrap_or_default()
        .iter()
        .fold(error.message().to_owned(), |message, value| {
            Secret::new(value).redact(&message)
        });
    sabir_call::redact::redact_text(&message).into_owned()
}

/// Returns the line and the column of a byte offset, both counted from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (before.matches('\n').count() + 1, column)
}

/// Returns the values that may be secrets, as text: all but plain words, and under a key whose name suggests secrets those
/// too. `inside` says that the name of a surrounding table suggests secrets.
fn secret_values(value: &toml::Value, inside: bool) -> Vec<String> {
    const NAMES: [&str; 7] = [
        "providers",
        "key",
        "token",
        "secret",
        "password",
        "auth",
        "header",
    ];
    let named = |name: &str| {
        NAMES
            .iter()
            .any(|part| name.to_ascii_lowercase().contains(part))
    };
    // No key is made of short words and small numbers alone.
    let plain = |word: &str| {
        let all = |is: fn(&u8) -> bool, most: usize| {
            word.len() <= most && word.bytes().all(|byte| is(&byte))
        };
        all(u8::is_ascii_lowercase, 10) || all(u8::is_ascii_digit, 2)
    };
    let said = |text: &str| !inside && text.split(' ').all(plain);
    match value {
        toml::Value::Table(table) => table
            .iter()
            .flat_map(|(name, value)| secret_values(value, inside || named(name)))
            .collect(),
        toml::Value::Array(items) => items
            .iter()
            .flat_map(|item| secret_values(item, inside))
            .collect(),
        toml::Value::String(text) if said(text) => Vec::new(),
        // The parser may quote a string with its escapes, so both forms are redacted.
        toml::Value::String(text) => vec![
            text.clone(),
            format!("{text:?}").trim_matches('"').to_owned(),
        ],
        other => vec![other.to_string()],
    }
}

/// Parses a number of tokens: `200000`, `500k` or `2M`.
///
/// # Errors
/// When the text has another form, or the number is 0 or too large.
pub fn parse_token_count(text: &str) -> Result<u64, SessionError> {
    let thousands = text.strip_suffix(['k', 'K']).map(|digits| (digits, 1000));
    let millions = text
        .strip_suffix(['m', 'M'])
        .map(|digits| (digits, 1_000_000));
    let (digits, unit) = thousands.or(millions).unwrap_or((text, 1));
    let count = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit));
    count.filter(|count| *count > 0).ok_or_else(|| {
        SessionError::invalid(format!(
            "`{text}` is not a number of tokens: write 200000, 500k or 2M"
        ))
    })
}

/// Parses a duration such as `90`, `90s`, `15m` or `2h`; a bare number means seconds.
///
/// # Errors
/// When the text has another form, or the duration is 0 or more than 30 days.
pub fn parse_duration(text: &str) -> Result<Duration, SessionError> {
    let (digits, unit) = match text
        .find(|c: char| !c.is_ascii_digit())
        .and_then(|at| text.split_at_checked(at))
    {
        Some((digits, "s")) => (digits, 1),
        Some((digits, "m")) => (digits, 60),
        Some((digits, "h")) => (digits, 3600),
        None => (text, 1),
        Some(_) => ("", 0),
    };
    // Checked: `99999999999999999999h` is an error, and no short time by overflow.
    let seconds = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        SessionError::invalid(format!(
            "`{text}` is not a time: write 90, 90s, 15m or 2h, at most 720h"
        ))
    })
}
