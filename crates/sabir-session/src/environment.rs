//! Holds the process environment as a value, so that this crate never reads variables, folders or the clock by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sabir_call::dialect::DialectSet;

use crate::error::SessionError;
use crate::key_command::KeyCommandCache;

/// The names of the variables that commands of a model may see. None of them usually holds a secret.
const COMMAND_VARIABLES: [&str; 22] = [
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

/// Everything that sessions take from the process they run in: variables, well-known folders, the clock.
///
/// A program builds one at its start; a test builds one by hand.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Variables whose value is UTF-8.
    variables: BTreeMap<String, String>,
    /// Names of the variables whose value is not UTF-8.
    undecodable: BTreeSet<String>,
    /// The user's home folder.
    pub home_folder: Option<PathBuf>,
    /// The folder of configuration files: `~/.config` or `$XDG_CONFIG_HOME`.
    pub config_folder: Option<PathBuf>,
    /// The folder of data files: `~/.local/share` or `$XDG_DATA_HOME`.
    pub data_folder: Option<PathBuf>,
    /// The folder of temporary files.
    pub temporary_folder: PathBuf,
    /// The program that supervises commands: a binary whose `main` calls [`sabir_workspace::supervise::main`] first.
    pub helper_program: PathBuf,
    /// The wall clock.
    pub clock: fn() -> SystemTime,
    /// The dialects that every session knows. Each adds those of its configuration for itself.
    pub dialects: DialectSet,
    /// A number that differs between processes: the jitter of retries comes from it, so that processes that start the same work
    /// together do not retry in step. 0 makes waits reproducible.
    pub seed: u64,
    /// The number of seeds that were derived from it so far.
    derived_seeds: Arc<AtomicU64>,
    /// Keys that commands have printed so far.
    pub(crate) printed_keys: KeyCommandCache,
}

impl Default for Environment {
    /// An empty environment whose clock is stopped at 1970.
    fn default() -> Self {
        Self::new([], "", || UNIX_EPOCH)
    }
}

impl Environment {
    /// Creates an environment with these variables, and without home, configuration and data folders.
    ///
    /// `helper_program` supervises commands: see [`Environment::helper_program`].
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        helper_program: impl Into<PathBuf>,
        clock: fn() -> SystemTime,
    ) -> Self {
        let mut decoded = BTreeMap::new();
        let mut undecodable = BTreeSet::new();
        for (name, value) in variables {
            // A variable whose name is not UTF-8 is never requested here.
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => _ = decoded.insert(name, value),
                Err(_) => _ = undecodable.insert(name),
            }
        }
        Self {
            variables: decoded,
            undecodable,
            home_folder: None,
            config_folder: None,
            data_folder: None,
            temporary_folder: PathBuf::from("/tmp"),
            helper_program: helper_program.into(),
            clock,
            dialects: DialectSet::with_shared_definitions(),
            seed: 0,
            derived_seeds: Arc::default(),
            printed_keys: KeyCommandCache::default(),
        }
    }

    /// Returns another seed for each model of the process.
    pub(crate) fn next_seed(&self) -> u64 {
        let count = self.derived_seeds.fetch_add(1, Ordering::Relaxed);
        // The golden ratio in 64 bits spreads the counts over all seeds, as in SplitMix64.
        self.seed
            .wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the value of a variable; `None` if it is not set or not UTF-8.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Reports whether a variable is set to a value that is not UTF-8.
    pub fn is_undecodable(&self, name: &str) -> bool {
        self.undecodable.contains(name)
    }

    /// Returns all variables with a UTF-8 name and value, for the user's own commands, such as one that prints a key.
    pub fn all_variables(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns the variables that commands of a model get: those that programs need to work, and no secrets.
    pub fn command_variables(&self) -> Vec<(String, String)> {
        let is_passed = |name: &str| COMMAND_VARIABLES.contains(&name) || name.starts_with("LC_");
        let mut passed: Vec<_> = self
            .all_variables()
            .filter(|(name, _)| is_passed(name))
            .collect();
        // Without a terminal, colours and progress bars would only fill the output.
        passed.push(("TERM".to_owned(), "dumb".to_owned()));
        passed
    }

    /// Returns the configuration file: `named`, else `sabir/config.toml` in the configuration folder, if there is one.
    pub fn config_file(&self, named: Option<&Path>) -> Option<PathBuf> {
        let usual = || {
            Some(
                self.config_folder
                    .as_ref()?
                    .join("sabir")
                    .join("config.toml"),
            )
        };
        named.map(Path::to_owned).or_else(usual)
    }

    /// Returns the folder of Sabir's own files: `sabir` in the data folder.
    ///
    /// # Errors
    /// When there is no data folder, because the process has no home.
    pub fn sabir_data_folder(&self) -> Result<PathBuf, SessionError> {
        match &self.data_folder {
            Some(folder) => Ok(folder.join("sabir")),
            None => Err(SessionError::invalid(
                "there is no home folder to keep tasks in: set HOME or XDG_DATA_HOME".to_owned(),
            )),
        }
    }

    /// Returns the folder of journals: `sabir/tasks` in the data folder.
    ///
    /// # Errors
    /// When there is no data folder, because the process has no home.
    pub fn tasks_folder(&self) -> Result<PathBuf, SessionError> {
        Ok(self.sabir_data_folder()?.join("tasks"))
    }

    /// Returns the milliseconds since 1970 by the wall clock; 0 for a clock before that.
    pub fn now_milliseconds(&self) -> u64 {
        let since = (self.clock)()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the clock of journals, which counts milliseconds since 1970.
    pub fn journal_clock(&self) -> impl Fn() -> u64 + Send + 'static {
        let clock = self.clock;
        move || {
            let since = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        }
    }

    /// Returns a new unique id that sorts by time (UUID version 7). With a clock before 1970 the ids are still unique, but not in
    /// order.
    pub fn unique_id(&self) -> uuid::Uuid {
        let since = (self.clock)()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let timestamp =
            uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos());
        uuid::Uuid::new_v7(timestamp)
    }
}
