//! Finds the hooks of a folder and its user, and decides which of them may run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_checkpoint::ObjectId;
use sabir_workspace::Workspace;
use serde::Serialize;

use super::pinned_files::{
    HookVariables, PinnedFiles, changed_files, find_pinned_files, has_unknown_parts, names_a_file,
};
use super::settings_file::{HookSpec, parse_hooks};
use crate::config::{self, Config};
use crate::conventions::folder_reader::{ConventionError, read_text_start};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::remember;
use crate::trust::{TrustedHook, read_trust_file, trust_path, write_trust_file};

/// The files of a repository that define hooks, in the order in which they run.
const PROJECT_FILES: [&str; 3] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".sabir/hooks.json",
];
/// The name of the file with the user's own hooks, in their configuration folder.
const OWN_FILE: &str = "hooks.json";
/// The most bytes of a file of hooks.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// The maximum number of problems that are reported for one file.
const MAX_PROBLEMS: usize = 10;

/// The permission to run a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookState {
    /// It runs.
    Allowed,
    /// It belongs to a repository, or runs a file of one, and is not trusted.
    Untrusted,
    /// It, or a file of the folder that it names, has changed since it was trusted.
    Changed,
}

/// A hook with the place that it was found in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundHook {
    /// The hook.
    #[serde(flatten)]
    pub spec: HookSpec,
    /// The file, as a user would name it.
    pub file: String,
    /// True if it comes from the repository.
    pub from_repository: bool,
    /// The permission to run it.
    pub state: HookState,
    /// The SHA-256 of the entry; empty if it cannot be trusted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// The files of the folder that it names, each with a text that identifies its place and content. Only a review and trusted hooks have
    /// them: the files of an unreviewed clone are not even read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// The hooks of a folder and its user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HookList {
    /// The hooks: the user's first.
    pub hooks: Vec<FoundHook>,
    /// The mistakes in files, each as a sentence.
    pub problems: Vec<String>,
}

impl FoundHook {
    /// Describes the hook in one line.
    pub fn describe(&self) -> String {
        let HookSpec {
            event,
            matcher,
            command,
            ..
        } = &self.spec;
        let matcher = match matcher.as_str() {
            "" => String::new(),
            matcher => format!(" {}", one_line(matcher)),
        };
        let command = one_line(command);
        format!("{}{matcher} of {}, `{command}`", event.name(), self.file)
    }

    /// Returns true if only the shell can tell all files that it runs.
    pub fn has_unknown_parts(&self) -> bool {
        has_unknown_parts(&self.spec.command)
    }

    /// Returns the name under which the trust in it is kept.
    fn trust_key(&self) -> String {
        // Without the timeout: a hook that differs in it alone is a changed one, and not another.
        let condition = self.spec.condition.as_deref().unwrap_or_default();
        let HookSpec {
            event,
            matcher,
            command,
            ..
        } = &self.spec;
        format!(
            "{} {} {matcher} {condition} {command}",
            self.file,
            event.name()
        )
    }

    /// Returns the digest of everything that the file says about it.
    fn spec_digest(&self) -> String {
        // The whole entry, so that a change of any key ends the trust.
        let text = serde_json::to_string(&self.spec).unwrap_or_default();
        ObjectId::hash_of(text.as_bytes()).to_string()
    }

    /// Returns true if the files that a hook runs in the folder are unchanged since they were
    /// trusted, or since they were found at the start.
    pub(super) fn is_unchanged(&self, workspace: &Workspace, variables: &HookVariables) -> bool {
        find_pinned_files(workspace, &self.spec.command, variables)
            .is_ok_and(|now| changed_files(&self.files, &now).is_empty())
    }

    /// Returns true if one of the files that it runs is below one of these paths.
    pub(super) fn names_file_below(&self, root: &Path, paths: &[PathBuf]) -> bool {
        self.files.keys().any(|name| {
            let path = root.join(name);
            // Both names of a link, as its target is what runs.
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let is_below = |folder: &PathBuf| path.starts_with(folder) || real.starts_with(folder);
            paths.iter().any(is_below)
        })
    }

    /// Sets the state from the stored trust, and for a review the files that would be trusted.
    fn compare_trust(
        &mut self,
        trusted: Option<TrustedHook>,
        workspace: &Workspace,
        variables: &HookVariables,
        reviews: bool,
    ) -> Option<String> {
        // The files of an untrusted hook are not read: they may be many, large or endless.
        if trusted.is_none() && self.from_repository && !reviews {
            self.state = HookState::Untrusted;
            return None;
        }
        let now = match find_pinned_files(workspace, &self.spec.command, variables) {
            Ok(now) => now,
            Err(error) => {
                self.state = HookState::Changed;
                return Some(format!(
                    "the hook {} cannot be trusted: {error}",
                    self.describe()
                ));
            }
        };
        self.sha256 = self.spec_digest();
        self.state = match trusted {
            // The user's hook needs trust only for the files of this folder that it runs: the
            // folder may be a clone of a stranger's repository.
            None if !self.from_repository && !names_a_file(&now) => HookState::Allowed,
            None => HookState::Untrusted,
            Some(known) if known.sha256 != self.sha256 => HookState::Changed,
            Some(known) if !changed_files(&known.files, &now).is_empty() => HookState::Changed,
            Some(known) => {
                self.files = known.files;
                HookState::Allowed
            }
        };
        if self.state != HookState::Allowed {
            self.files = now;
        }
        None
    }
}

/// Returns a text of a file on one line, so that no part of it can be mistaken for a line of Sabir.
fn one_line(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

impl HookList {
    fn add_text(&mut self, text: &str, file: &str, from_repository: bool) {
        match parse_hooks(text) {
            Ok(parsed) => {
                let more = parsed.problems.len().saturating_sub(MAX_PROBLEMS);
                let problems = parsed.problems.into_iter().take(MAX_PROBLEMS);
                self.problems
                    .extend(problems.map(|problem| format!("{file}: {}", one_line(&problem))));
                if more > 0 {
                    self.problems
                        .push(format!("{file}: and {more} more of its hooks do not run"));
                }
                for spec in parsed.hooks {
                    self.hooks.push(FoundHook {
                        spec,
                        file: file.to_owned(),
                        from_repository,
                        state: HookState::Allowed,
                        sha256: String::new(),
                        files: PinnedFiles::new(),
                    });
                }
            }
            Err(error) => self.problems.push(format!("{file} is not JSON: {error}")),
        }
    }

    fn add_user_file(&mut self, path: &Path, must_exist: bool) {
        // A missing file is an error only if the configuration names it.
        if !path.exists() {
            if must_exist {
                self.problems
                    .push(format!("{} does not exist", path.display()));
            }
            return;
        }
        match config::read_text(path) {
            Ok(text) => self.add_text(&text, &path.display().to_string(), false),
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    fn add_project_file(&mut self, workspace: &Workspace, file: &str) {
        let Ok(path) = workspace.parse_path(file) else {
            return;
        };
        // Through the workspace: a link that leaves the folder is not a file of hooks.
        match read_text_start(workspace, &path, MAX_FILE_BYTES) {
            Ok(read) if read.size <= MAX_FILE_BYTES as u64 => {
                self.add_text(&read.text, file, true);
            }
            Ok(_) => self
                .problems
                .push(format!("{file} has more than {MAX_FILE_BYTES} bytes")),
            Err(error) if ConventionError::is_missing(&error) => {}
            Err(error) => self.problems.push(format!("{file}: {error}")),
        }
    }
}

/// Finds the hooks for a folder: the user's, those of the files that the configuration names, and the repository's. Of an
/// untrusted hook of a repository only the entry is read.
pub fn find_hooks(workspace: &Workspace, config: &Config) -> HookList {
    list_hooks(workspace, config, false)
}

/// Finds the hooks for a folder. `reviews`: also the files that those name which are not trusted.
fn list_hooks(workspace: &Workspace, config: &Config, reviews: bool) -> HookList {
    let mut list = HookList::default();
    let environment = &config.environment;
    // Without the bounds of the task: an ignore file of the folder must hide neither a hook that
    // was trusted, nor a file of the folder that a hook runs.
    let workspace = &workspace.without_bounds();
    // The user's own come first: the first that blocks is the last that runs.
    if let Some(file) = environment.config_file(None) {
        list.add_user_file(&file.with_file_name(OWN_FILE), false);
    }
    let keys = config.hook_config();
    for file in &keys.import {
        let home = environment.home_folder.as_deref();
        let path = match (file.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(file),
        };
        list.add_user_file(&path, true);
    }
    if keys.reads_project_files() {
        for file in PROJECT_FILES {
            list.add_project_file(workspace, file);
        }
    }
    let gone = list.compare_all_trust(workspace, environment, reviews);
    // A review is about what is there, and who does not read these files does not miss them.
    if !reviews && keys.reads_project_files() {
        list.hooks.extend(gone);
    }
    list
}

impl HookList {
    /// Returns the hooks, each with the name under which the trust in it is kept.
    fn keyed_hooks(&mut self) -> Vec<(String, &mut FoundHook)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let keyed = self.hooks.iter_mut().map(|hook| {
            let mut key = hook.trust_key();
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            // Two hooks may differ in their time alone, which is not part of the name.
            if *count > 1 {
                key.push_str(&format!(" #{count}"));
            }
            (key, hook)
        });
        keyed.collect()
    }

    /// Sets the states of the hooks. Returns those of the repository that were trusted and are not there any more.
    fn compare_all_trust(
        &mut self,
        workspace: &Workspace,
        environment: &Environment,
        reviews: bool,
    ) -> Vec<FoundHook> {
        let file = read_trust_file(environment);
        if let Err(error) = &file
            && !self.hooks.is_empty()
        {
            self.problems
                .push(format!("{error}; no hook of a repository is trusted"));
        }
        // Fails closed: without the file nothing is trusted.
        let mut trusted = file
            .ok()
            .and_then(|mut file| file.hooks.remove(workspace.root()))
            .unwrap_or_default();
        let mut problems = Vec::new();
        let variables = HookVariables::from_environment(environment);
        for (key, hook) in self.keyed_hooks() {
            problems.extend(hook.compare_trust(
                trusted.remove(&key),
                workspace,
                &variables,
                reviews,
            ));
        }
        self.problems.extend(problems);
        if !trusted.is_empty() {
            self.problems.push(format!(
                "{} of the hooks that you trusted for this folder are not there any more, or have changed; `sabir trust --hooks` shows \
                 what is there, and `sabir trust --hooks --revoke` ends the trust",
                trusted.len()
            ));
        }
        let lost = trusted.into_iter();
        lost.filter_map(|(key, trusted)| find_lost_hook(&key, trusted))
            .collect()
    }
}

/// Returns a placeholder for a trusted hook that has disappeared from a repository. It refuses
/// everything that the hook would have checked.
fn find_lost_hook(key: &str, trusted: TrustedHook) -> Option<FoundHook> {
    // Only the user changes their own files.
    let is_in = |file: &&&str| {
        key.strip_prefix(**file)
            .is_some_and(|rest| rest.starts_with(' '))
    };
    let file = PROJECT_FILES.iter().find(is_in)?;
    Some(FoundHook {
        spec: trusted.spec?,
        file: (*file).to_owned(),
        from_repository: true,
        state: HookState::Changed,
        sha256: trusted.sha256,
        files: trusted.files,
    })
}

/// The hooks of a folder, with its real path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderHooks {
    /// The folder.
    pub root: PathBuf,
    /// The hooks.
    pub list: HookList,
}

/// Finds the hooks of the folder with this path for a review, with the files that they name.
///
/// # Errors
/// When the folder cannot be opened.
pub fn find_folder_hooks(folder: &Path, config: &Config) -> Result<FolderHooks, SessionError> {
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    Ok(FolderHooks {
        list: list_hooks(&workspace, config, true),
        root: workspace.root().to_owned(),
    })
}

/// Trusts the hooks of a repository as they were reviewed, and no others. Returns the number of those that were not trusted before.
///
/// # Errors
/// When the file of trusted repositories cannot be read or written.
pub fn trust_hooks(
    reviewed: &HookList,
    root: &Path,
    config: &Config,
) -> Result<usize, SessionError> {
    let environment = &config.environment;
    let _alone = remember::lock_folder(&trust_path(environment)?)?;
    let mut file = read_trust_file(environment)?;
    let mut reviewed = reviewed.clone();
    let mut count = 0;
    // The digests of the review: what changed in the meantime is not trusted.
    let mut trusted = BTreeMap::new();
    for (key, hook) in reviewed.keyed_hooks() {
        let needs_trust = hook.from_repository || names_a_file(&hook.files);
        if !needs_trust || hook.sha256.is_empty() {
            continue;
        }
        count += usize::from(hook.state != HookState::Allowed);
        let entry = TrustedHook {
            sha256: hook.sha256.clone(),
            files: hook.files.clone(),
            spec: Some(hook.spec.clone()),
        };
        trusted.insert(key, entry);
    }
    file.hooks.insert(root.to_owned(), trusted);
    write_trust_file(environment, &file)?;
    Ok(count)
}

/// Revokes the trust in all hooks of a folder. Returns false if none were trusted.
///
/// # Errors
/// When the file of trusted repositories cannot be read or written.
pub fn revoke_hooks(root: &Path, config: &Config) -> Result<bool, SessionError> {
    let environment = &config.environment;
    let _alone = remember::lock_folder(&trust_path(environment)?)?;
    let mut file = read_trust_file(environment)?;
    let had_some = file.hooks.remove(root).is_some();
    if had_some {
        write_trust_file(environment, &file)?;
    }
    Ok(had_some)
}
