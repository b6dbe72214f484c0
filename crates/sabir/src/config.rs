//! Configuration: one TOML file, the flags, and a few environment variables with conventional names.
//!
//! `~/.config/sabir/config.toml` (or `$XDG_CONFIG_HOME/sabir/config.toml`, or `--config FILE`):
//!
//! ```toml
//! model = "openai/gpt-5"            # PROVIDER/NAME
//! protocol = "native"               # or a dialect
//! approve = ["edits"]               # as --approve
//! max_turns = 100
//! repairs_off = ["near_name"]       # slips that are rejected, not set right: names of rules, or "all"
//!
//! [providers.box]                   # a provider of your own: then use model = "box/NAME"
//! wire = "openai-chat"              # or "anthropic"
//! base_url = "http://127.0.0.1:8000/v1"
//! key_env = "BOX_KEY"               # or key = "…"; neither: no key
//! idle_seconds = 60                 # how long a stream may be silent
//! retries = 4                       # of a request that failed before its answer began
//!
//! [[models]]                        # what is known of a model; goes before the built-in catalogue
//! pattern = "my-model"
//! native = false
//! dialect = "cline"
//!
//! [dialects.mine]                   # a dialect of your own; the keys are those of `sabir help dialects`
//! machine = "json"
//! open = "<mine>"
//! close = "</mine>"
//! ```
//!
//! Nothing in a workspace is read here: a repository cannot move a base URL or approve anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use sabir_model::{Catalogue, Deadlines, Entry, HttpModel, Known, Provider, Retries, Secret};
use sabir_wire::Wire;
use serde::Deserialize;

use crate::amazon;
use crate::dialects::{self, Tables};
use crate::exit::Failure;
use crate::repairs;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) model: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) approve: Vec<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) repairs_off: Vec<String>,
    providers: BTreeMap<String, ProviderConfig>,
    models: Vec<Entry>,
    dialects: Tables,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderConfig {
    wire: Option<String>,
    base_url: Option<String>,
    key: Option<String>,
    key_env: Option<String>,
    idle_seconds: Option<u64>,
    retries: Option<u32>,
}

/// The longest time that can be asked for, in seconds: 30 days.
const LONGEST: u64 = 30 * 24 * 3600;

/// A model that can be asked.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The name as the user gave it.
    pub(crate) name: String,
    /// The provider's name of it.
    pub(crate) id: String,
    /// What is known of it.
    pub(crate) entry: Option<Entry>,
    pub(crate) catalogue: Catalogue,
    provider: Provider,
    deadlines: Deadlines,
    retries: Retries,
}

/// Reads a text file that the user named.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| Failure::usage(format!("{shown} cannot be read: {error}")))?;
    let text =
        String::from_utf8(bytes).map_err(|error| Failure::usage(format!("{shown} is no UTF-8 text: {error}")))?;
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}

impl Config {
    /// Reads the named file, or the one in its usual place, which need not exist, and defines its dialects.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => match etcetera::choose_base_strategy() {
                Ok(places) => places.config_dir().join("sabir").join("config.toml"),
                // Without a home there is no usual place, and nothing to read.
                Err(_) => return Ok(Self::default()),
            },
        };
        if named.is_none() && !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path)?;
        let mut config: Self = toml::from_str(&text)
            .map_err(|error| Failure::usage(format!("{} cannot be used: {error}", path.display())))?;
        // Said of the file, by whatever command reads it first.
        repairs::without(&config.repairs_off)
            .map_err(|failure| Failure::usage(format!("{}: repairs_off: {}", path.display(), failure.message)))?;
        dialects::define_all((&path, &text), std::mem::take(&mut config.dialects))?;
        Ok(config)
    }

    /// The model of that name, or the configured one.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<Chosen, Failure> {
        let name = name.or(self.model.as_deref()).ok_or_else(|| {
            Failure::usage(
                "no model is chosen: use --model PROVIDER/NAME, or set `model` in config.toml (for example openai/gpt-5)",
            )
        })?;
        let (provider_name, id) = self.split(name)?;
        let (provider, deadlines) = self.provider(&provider_name)?;
        let catalogue = Catalogue::new(self.models.clone());
        let entry = catalogue.find(&id);
        let mut retries = Retries::default();
        if let Some(limit) = self.providers.get(&provider_name).and_then(|own| own.retries) {
            retries.limit = limit;
        }
        Ok(Chosen { name: name.to_owned(), id, entry, catalogue, provider, deadlines, retries })
    }

    /// The provider's name and the model's. A bare name is given to the provider that its beginning speaks of, or to the
    /// one whose base URL is set.
    fn split(&self, name: &str) -> Result<(String, String), Failure> {
        if let Some((provider, id)) = name.split_once('/')
            && !id.is_empty()
            && (self.providers.contains_key(provider) || Known::from_name(provider).is_some())
        {
            return Ok((provider.to_owned(), id.to_owned()));
        }
        let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        let openai = begins(&["gpt-", "o1", "o3", "o4", "chatgpt"]);
        let provider = if begins(&["claude"]) {
            "anthropic"
        } else if openai || base_url_of("openai").is_some() {
            "openai"
        } else if base_url_of("anthropic").is_some() {
            "anthropic"
        } else {
            return Err(self.unknown_model(name));
        };
        Ok((provider.to_owned(), name.to_owned()))
    }

    fn unknown_model(&self, name: &str) -> Failure {
        let own = self.providers.keys().map(String::as_str);
        let names: Vec<_> = own.chain(sabir_model::KNOWN.iter().map(|known| known.name)).collect();
        Failure::usage(format!("the model `{name}` is unknown: write PROVIDER/NAME with one of {}", names.join(", ")))
    }

    fn provider(&self, name: &str) -> Result<(Provider, Deadlines), Failure> {
        let known = Known::from_name(name);
        let own = self.providers.get(name);
        let mut provider = match (known, own) {
            (Some(known), _) => known.provider(None),
            (None, Some(own)) => {
                let wire = own.wire.as_deref().unwrap_or("openai-chat");
                let url = own
                    .base_url
                    .as_deref()
                    .ok_or_else(|| Failure::usage(format!("[providers.{name}] has no base_url")))?;
                Provider::new(name, wire_of(wire, name)?, url, None)
            }
            (None, None) => return Err(self.unknown_model(name)),
        };
        let mut deadlines = Deadlines::default();
        if let Some(own) = own {
            if let Some(wire) = &own.wire {
                provider.wire = wire_of(wire, name)?;
            }
            if let Some(url) = &own.base_url {
                provider.base_url = url.trim().trim_end_matches('/').to_owned();
            }
            if let Some(seconds) = own.idle_seconds {
                deadlines.idle = Duration::from_secs(seconds.clamp(1, LONGEST));
            }
        }
        // The flags of a shell outrank a file.
        let moved = base_url_of(name);
        if let Some(url) = &moved {
            provider.base_url.clone_from(url);
        }
        provider.key = self.key(name, known)?;
        if provider.wire == Wire::Bedrock {
            let usual = known.is_some_and(|known| known.base_url == provider.base_url);
            amazon::equip(&mut provider, usual, amazon::variable);
        }
        if provider.key.is_none() && provider.signing.is_none() && needs_key(known, own) && moved.is_none() {
            let variable = known.and_then(|known| known.key_name).or(own.and_then(|own| own.key_env.as_deref()));
            return Err(Failure::usage(format!(
                "no key for {name}: set {}, or `key` under [providers.{name}] in config.toml",
                variable.unwrap_or("its key")
            )));
        }
        Ok((provider, deadlines))
    }

    fn key(&self, name: &str, known: Option<&Known>) -> Result<Option<Secret>, Failure> {
        let own = self.providers.get(name);
        if let Some(key) = own.and_then(|own| own.key.as_ref()) {
            return Ok(Some(Secret::new(key)));
        }
        let named = own.and_then(|own| own.key_env.as_deref());
        let variable = named.or(known.and_then(|known| known.key_name));
        let Some(variable) = variable else { return Ok(None) };
        match std::env::var(variable) {
            Ok(key) if !key.trim().is_empty() => Ok(Some(Secret::new(key.trim()))),
            Err(std::env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{variable} is no UTF-8 text"))),
            _ => Ok(None),
        }
    }
}

impl Chosen {
    /// The model itself, which has opened nothing yet.
    pub(crate) fn model(&self) -> HttpModel {
        HttpModel::new(self.provider.clone())
            .deadlines(self.deadlines)
            .retries(self.retries)
            .catalogue(self.catalogue.clone())
    }
}

/// Whether a provider is known to want a key. One whose address was moved may be a server that wants none.
fn needs_key(known: Option<&Known>, own: Option<&ProviderConfig>) -> bool {
    let by_file = own.is_some_and(|own| own.key_env.is_some());
    let by_name = known.is_some_and(|known| known.key_name.is_some()) && own.is_none_or(|own| own.base_url.is_none());
    by_file || by_name
}

fn wire_of(wire: &str, provider: &str) -> Result<Wire, Failure> {
    Wire::from_name(wire).ok_or_else(|| {
        let names: Vec<_> = Wire::ALL.iter().map(|wire| wire.name()).collect();
        Failure::usage(format!("[providers.{provider}]: `{wire}` is no wire: use one of {}", names.join(", ")))
    })
}

/// The conventional variables that move a provider.
fn base_url_of(provider: &str) -> Option<String> {
    let variable = match provider {
        "openai" => "OPENAI_BASE_URL",
        "anthropic" => "ANTHROPIC_BASE_URL",
        _ => return None,
    };
    std::env::var(variable).ok().map(|url| url.trim().trim_end_matches('/').to_owned()).filter(|url| !url.is_empty())
}

/// Where tasks are kept: `~/.local/share/sabir/tasks`, or under `$XDG_DATA_HOME`.
pub(crate) fn tasks_folder() -> Result<PathBuf, Failure> {
    let places = etcetera::choose_base_strategy().map_err(|error| {
        Failure::usage(format!("there is no home folder to keep tasks in ({error}): set HOME or XDG_DATA_HOME"))
    })?;
    Ok(places.data_dir().join("sabir").join("tasks"))
}

/// What commands get of our environment: names that programs need to work at all, and none that holds a secret.
pub(crate) fn command_environment() -> Vec<(String, String)> {
    const NAMES: [&str; 22] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "NVM_DIR",
        "PYENV_ROOT",
        "VIRTUAL_ENV",
        "NODE_PATH",
        "EDITOR",
        "XDG_CACHE_HOME",
        "COLUMNS",
    ];
    let keep = |name: &str| NAMES.contains(&name) || name.starts_with("LC_");
    let mut kept: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| keep(name))
        .collect();
    kept.push(("TERM".to_owned(), "dumb".to_owned()));
    kept
}

/// `90`, `90s`, `15m` or `2h`.
pub(crate) fn duration(text: &str) -> Result<Duration, Failure> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()).and_then(|at| text.split_at_checked(at)) {
        Some((digits, "s")) => (digits, 1),
        Some((digits, "m")) => (digits, 60),
        Some((digits, "h")) => (digits, 3600),
        None => (text, 1),
        Some(_) => ("", 0),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Failure::usage(format!("`{text}` is no time: write 90, 90s, 15m or 2h, at most 720h")))
}
