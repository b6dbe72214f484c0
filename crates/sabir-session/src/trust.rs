//! Stores the trusted repositories, which may make git run programs such as hooks and filters, and the trusted hooks for tasks.
//!
//! Trust holds for the reviewed content only: its hashes are stored, and any change ends the trust. The file is beside the tasks, never in
//! a repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_workspace::{GitConfig, GitPrograms, Trust};
use serde::{Deserialize, Serialize};

use crate::config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::hooks::HookSpec;
use crate::notice::{NoticeSink, NoticeTopic};
use crate::remember;

pub use sabir_workspace::TrustState;

/// The trusted repositories, by the folder of their work tree.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TrustFile {
    /// The entries, by the absolute path of the work tree.
    pub repositories: BTreeMap<PathBuf, TrustEntry>,
    /// The hooks that are trusted, by the folder of the task, and by their place and command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<PathBuf, BTreeMap<String, TrustedHook>>,
}

/// A trusted hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedHook {
    /// The SHA-256 of its entry.
    pub sha256: String,
    /// The files of the folder that it names, each with a text that identifies its place and content.
    pub files: BTreeMap<String, String>,
    /// The events that it checks, so that they are refused if the hook disappears. Older files do
    /// not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<HookSpec>,
}

/// A trusted repository, with the hashes of everything in it that can make git run a program.
#[derive(Debug, Serialize, Deserialize)]
pub struct TrustEntry {
    /// The SHA-256 over the hashes of all items.
    pub sha256: String,
    /// The SHA-256 of each thing, by its name.
    pub things: BTreeMap<String, String>,
}

/// A repository whose own configuration makes git run or use something, to be reviewed by the user before they trust it.
#[derive(Debug)]
pub struct TrustReview {
    /// The state of the trust in it.
    pub state: TrustState,
    programs: GitPrograms,
}

/// A configuration key, hook or file that can make git run a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewedItem {
    /// The name of the key or the path of the file.
    pub name: String,
    /// Its value, or the size of the file. Foreign text, which must be quoted before it reaches a terminal.
    pub value: String,
    /// The SHA-256 of it; `None` if it could not be read.
    pub sha256: Option<String>,
    /// True if it runs for commands that only read the repository, such as `git status`.
    pub runs: bool,
}

impl TrustReview {
    /// Reviews the repository that a folder belongs to. Nothing is run.
    ///
    /// # Errors
    /// When the folder is in no repository, or what git would run there cannot be determined.
    pub fn for_folder(
        folder: &Path,
        environment: &Environment,
        notices: &NoticeSink,
    ) -> Result<Self, SessionError> {
        let shown = folder.display();
        let programs = match GitConfig::of(folder, &environment.command_variables()) {
            GitConfig::Repository(programs) => programs,
            GitConfig::NoRepository => {
                return Err(SessionError::invalid(format!(
                    "{shown} is in no git repository: there is nothing to trust"
                )));
            }
            GitConfig::Unknown(why) => {
                return Err(SessionError::invalid(format!(
                    "what git would run in {shown} cannot be found out: {why}"
                )));
            }
        };
        let state = load_trust(environment, notices).state_of(&programs);
        Ok(Self { state, programs })
    }

    /// Returns the folder of the work tree.
    pub fn top(&self) -> &Path {
        &self.programs.top
    }

    /// Returns the SHA-256 over the hashes of all items.
    pub fn digest(&self) -> String {
        self.programs.digest()
    }

    /// Returns everything that can make git run a program, by name.
    pub fn items(&self) -> impl Iterator<Item = ReviewedItem> {
        let hashes = self.programs.hashes();
        let runs = self.programs.running_keys();
        self.programs
            .hashed_items()
            .map(move |(name, value)| ReviewedItem {
                name: name.to_owned(),
                value,
                sha256: hashes.get(name).cloned(),
                runs: runs.iter().any(|key| key == name),
            })
    }

    /// Returns a warning if trust changes nothing, because the programs that commands name may be the repository's own.
    pub fn path_warning(&self, environment: &Environment) -> Option<&'static str> {
        let variables = environment.command_variables();
        let path = variables.iter().rev().find(|(name, _)| name == "PATH");
        let is_open = path
            .is_none_or(|(_, path)| sabir_tools::workspace_programs(path, self.top()).is_none());
        is_open.then_some(
            "your PATH is not set, or leads to programs of this repository that others may start: every command asks here, trusted or not",
        )
    }

    /// Returns the names of the items that changed since the repository was trusted.
    pub fn changed_items(&self) -> &[String] {
        match &self.state {
            TrustState::Changed(names) => names,
            _ => &[],
        }
    }

    /// Trusts the repository as it was reviewed. What changed in the meantime is not trusted, because the hashes of the review are kept.
    ///
    /// # Errors
    /// When the file of trusted repositories cannot be read or written.
    pub fn trust(self, environment: &Environment) -> Result<(), SessionError> {
        // The lock covers reading and writing, so that two processes do not lose each other's
        // entries.
        let _alone = remember::lock_folder(&trust_path(environment)?)?;
        let mut file = read_trust_file(environment)?;
        let entry = TrustEntry {
            sha256: self.programs.digest(),
            things: self.programs.hashes(),
        };
        file.repositories.insert(self.programs.top, entry);
        write_trust_file(environment, &file)
    }
}

/// Revokes the trust in the repository of a folder, and returns its work tree. A repository that no longer exists is given by the path
/// in the file of trusted repositories.
///
/// # Errors
/// When the repository is not trusted, or the file cannot be read or written.
pub fn revoke_trust(folder: &Path, environment: &Environment) -> Result<PathBuf, SessionError> {
    let _alone = remember::lock_folder(&trust_path(environment)?)?;
    let mut file = read_trust_file(environment)?;
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let trusted = real
        .ancestors()
        .find(|folder| file.repositories.contains_key(*folder))
        .map(Path::to_owned);
    let Some(top) = trusted else {
        return Err(SessionError::invalid(format!(
            "{} is not trusted; `sabir trust --list` lists what is",
            real.display()
        )));
    };
    file.repositories.remove(&top);
    write_trust_file(environment, &file)?;
    Ok(top)
}

/// Loads the trusted repositories. A file that cannot be read trusts nothing, and a notice says so.
pub fn load_trust(environment: &Environment, notices: &NoticeSink) -> Trust {
    let mut trust = Trust::default();
    // Fails closed: without the file nothing is trusted, and the task can still begin.
    let file = read_trust_file(environment).unwrap_or_else(|error| {
        notices.send(
            NoticeTopic::Trust,
            format!("{error}; no repository is trusted"),
        );
        TrustFile::default()
    });
    for (top, entry) in file.repositories {
        // An entry that was edited by hand does not match its own hash, and is not trusted.
        if sabir_workspace::digest_hashes(&entry.things) == entry.sha256 {
            trust.trust_repository(top, entry.things);
        }
    }
    trust
}

/// Returns the path of the file with the trusted repositories.
///
/// # Errors
/// When there is no data folder.
pub fn trust_path(environment: &Environment) -> Result<PathBuf, SessionError> {
    Ok(environment.sabir_data_folder()?.join("trust.json"))
}

/// Reads the trusted repositories; there are none without a file.
///
/// # Errors
/// When the file cannot be read or parsed.
pub fn read_trust_file(environment: &Environment) -> Result<TrustFile, SessionError> {
    let Ok(path) = trust_path(environment) else {
        return Ok(TrustFile::default());
    };
    if !path.exists() {
        return Ok(TrustFile::default());
    }
    let text = config::read_text(&path)?;
    serde_json::from_str(&text).map_err(|error| {
        SessionError::invalid(format!("{} cannot be used: {error}", path.display()))
    })
}

/// Writes the trusted repositories.
///
/// # Errors
/// When the file cannot be written.
pub fn write_trust_file(environment: &Environment, file: &TrustFile) -> Result<(), SessionError> {
    let path = trust_path(environment)?;
    let text = serde_json::to_string_pretty(file)
        .map_err(|error| SessionError::internal(error.to_string()))?;
    // Replaced atomically: a torn file would end the trust in all repositories.
    let replaced = remember::replace_file(environment, &path, &format!("{text}\n"));
    replaced.map_err(|error| {
        SessionError::internal(format!("{} cannot be written: {error}", path.display()))
    })
}
