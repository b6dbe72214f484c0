//! Finds the hooks of a folder and its user, and decides which of them may run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_checkpoint::ObjectId;
use sabir_workspace::{Workspace, digest_hashes};
use serde::Serialize;

use super::PROJECT_VARIABLES;
use super::settings_file::{HookSpec, parse_hooks};
use crate::config::{self, Config};
use crate::conventions::folder_reader::{ConventionError, read_text_start};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::remember;
use crate::trust::{read_trust_file, trust_path, write_trust_file};

/// The files of a repository that define hooks, in the order in which they run.
const PROJECT_FILES: [&str; 3] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".sabir/hooks.json",
];
/// The file of the user's own hooks, beside their configuration.
const OWN_FILE: &str = "hooks.json";
/// The most bytes of a file of hooks, and of a script that a trusted hook names: all of it is read before each run.
const MAX_FILE_BYTES: usize = 256 * 1024;
const MAX_SCRIPT_BYTES: u64 = 8 << 20;

/// The permission to run a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookState {
    /// It runs.
    Allowed,
    /// It belongs to a repository, and is not trusted.
    Untrusted,
    /// It belongs to a repository, and it or a script that it names has changed since it was trusted.
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
    /// True if the repository brings it.
    pub from_repository: bool,
    /// The permission to run it.
    pub state: HookState,
    /// The digest of a repository's hook and of the scripts in the repository that it names; empty if it cannot be trusted, because a
    /// script cannot be read whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// The scripts in the repository that it names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<String>,
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
            matcher => format!(" {matcher}"),
        };
        format!("{}{matcher} of {}, `{command}`", event.name(), self.file)
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

    /// Returns the digest that trust in the hook holds for: everything that the file says, and the content of its scripts.
    fn digest(&self, root: &Path) -> Result<String, ScriptProblem> {
        let mut parts = BTreeMap::new();
        // The whole entry, so that a change of any key ends the trust.
        parts.insert(
            "hook".to_owned(),
            serde_json::to_string(&self.spec).unwrap_or_default(),
        );
        for script in &self.scripts {
            let digest = script_digest(&root.join(script), script)?;
            parts.insert(format!("script {script}"), digest);
        }
        Ok(digest_hashes(&parts))
    }

    /// Returns true if a hook of a repository is still what was found.
    pub(super) fn is_unchanged(&self, root: &Path) -> bool {
        !self.from_repository
            || named_scripts(&self.spec.command, root) == self.scripts
                && self.digest(root).is_ok_and(|digest| digest == self.sha256)
    }
}

impl HookList {
    fn add_text(&mut self, text: &str, file: &str, from_repository: bool) {
        match parse_hooks(text) {
            Ok(parsed) => {
                let problems = parsed.problems.into_iter();
                self.problems
                    .extend(problems.map(|problem| format!("{file}: {problem}")));
                for spec in parsed.hooks {
                    self.hooks.push(FoundHook {
                        spec,
                        file: file.to_owned(),
                        from_repository,
                        state: HookState::Allowed,
                        sha256: String::new(),
                        scripts: Vec::new(),
                    });
                }
            }
            Err(error) => self.problems.push(format!("{file} is no JSON: {error}")),
        }
    }

    fn add_user_file(&mut self, path: &Path, must_exist: bool) {
        // A file that the configuration names and that is missing is a mistake; the usual one may be missing.
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
        // Through the workspace: a link that leaves the folder, and a hidden file, are no file of hooks.
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

/// Finds the hooks for a folder: the user's, those of the files that the configuration names, and the repository's.
pub fn find_hooks(workspace: &Workspace, config: &Config) -> HookList {
    let mut list = HookList::default();
    let environment = &config.environment;
    // The user's own come first: the first that blocks is the last that runs.
    if let Some(file) = environment.config_file(None) {
        list.add_user_file(&file.with_file_name(OWN_FILE), false);
    }
    let keys = config.hook_keys();
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
        list.judge_project_hooks(workspace.root(), environment);
    }
    list
}

impl HookList {
    /// Sets the states of the repository's hooks.
    fn judge_project_hooks(&mut self, root: &Path, environment: &Environment) {
        if !self.hooks.iter().any(|hook| hook.from_repository) {
            return;
        }
        let file = read_trust_file(environment);
        if let Err(error) = &file {
            self.problems
                .push(format!("{error}; no hook of a repository is trusted"));
        }
        // Fails closed: without the file nothing is trusted.
        let trusted = file
            .ok()
            .and_then(|mut file| file.hooks.remove(root))
            .unwrap_or_default();
        let mut problems = Vec::new();
        for hook in self.hooks.iter_mut().filter(|hook| hook.from_repository) {
            hook.scripts = named_scripts(&hook.spec.command, root);
            let digest = hook.digest(root);
            hook.state = match (trusted.get(&hook.trust_key()), &digest) {
                (None, _) => HookState::Untrusted,
                (Some(known), Ok(digest)) if known == digest => HookState::Allowed,
                (Some(_), _) => HookState::Changed,
            };
            match digest {
                Ok(digest) => hook.sha256 = digest,
                Err(error) => problems.push(format!(
                    "the hook {} cannot be trusted: {error}",
                    hook.describe()
                )),
            }
        }
        self.problems.extend(problems);
    }
}

/// The hooks of a folder, with its real path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderHooks {
    /// The folder.
    pub root: PathBuf,
    /// The hooks.
    pub list: HookList,
}

/// Finds the hooks of the folder with this path, as a task there would.
///
/// # Errors
/// When the folder cannot be opened.
pub fn find_folder_hooks(folder: &Path, config: &Config) -> Result<FolderHooks, SessionError> {
    let workspace =
        Workspace::open(folder).map_err(|error| SessionError::invalid(error.to_string()))?;
    Ok(FolderHooks {
        list: find_hooks(&workspace, config),
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
    let can_be_trusted = |hook: &&FoundHook| hook.from_repository && !hook.sha256.is_empty();
    let of_repository = reviewed.hooks.iter().filter(can_be_trusted);
    // The digests of the review: what changed in the meantime is not trusted.
    let trusted: BTreeMap<String, String> = of_repository
        .clone()
        .map(|hook| (hook.trust_key(), hook.sha256.clone()))
        .collect();
    let new = of_repository.filter(|hook| hook.state != HookState::Allowed);
    let count = new.count();
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

/// Returns the files of the repository that a command line names, relative to the root.
fn named_scripts(command: &str, root: &Path) -> Vec<String> {
    let shown = root.display().to_string();
    let mut text = command.to_owned();
    // Only what the line says itself. What the shell would make of other variables is not known here, and what a script
    // loads in turn is not covered either.
    for variable in PROJECT_VARIABLES.into_iter().chain(["PWD"]) {
        text = text.replace(&format!("${{{variable}}}"), &shown);
        text = text.replace(&format!("${variable}"), &shown);
    }
    // Both ways of reading quotes: `"my hooks/a.sh"` is one word, and in `sh -c "cd x; ./a.sh"` there are several.
    let mut scripts: Vec<String> = [true, false]
        .into_iter()
        .flat_map(|keeps_quoted| split_line(&text, keeps_quoted))
        .filter(|word| !word.is_empty())
        .filter_map(|word| {
            let path = root.join(&word);
            let is_file = path.metadata().is_ok_and(|known| known.is_file());
            let inside = path.strip_prefix(root).ok().filter(|_| is_file)?;
            Some(inside.display().to_string())
        })
        .collect();
    // In a fixed order, since they are a part of the digest.
    scripts.sort();
    scripts.dedup();
    scripts
}

/// Splits a command line into words without quotes. `keeps_quoted`: a quoted part is not split.
fn split_line(line: &str, keeps_quoted: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for letter in line.chars() {
        let is_border = letter.is_whitespace() || ";&|<>()`=".contains(letter);
        match letter {
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if !keeps_quoted => {}
            _ if is_border && !(keeps_quoted && quote.is_some()) => {
                words.push(std::mem::take(&mut word));
            }
            _ => word.push(letter),
        }
    }
    words.push(word);
    words
}

/// Returns the digest of a script, whose name is for the message.
fn script_digest(path: &Path, script: &str) -> Result<String, ScriptProblem> {
    let unreadable = |source| ScriptProblem::Unreadable {
        script: script.to_owned(),
        source,
    };
    // Looked at first, so that a huge file does not hold up the start of a task.
    let size = path.metadata().map_err(unreadable)?.len();
    if size > MAX_SCRIPT_BYTES {
        return Err(ScriptProblem::TooLong {
            script: script.to_owned(),
        });
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    Ok(ObjectId::hash_of(&bytes).to_string())
}

/// The reason why a hook cannot be trusted: a change of its script would not be noticed.
#[derive(Debug, thiserror::Error)]
enum ScriptProblem {
    #[error("{script} has more than {MAX_SCRIPT_BYTES} bytes")]
    TooLong { script: String },
    #[error("{script} cannot be read: {source}")]
    Unreadable {
        script: String,
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_the_repository_are_found_in_a_command() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join(".claude/hooks")).unwrap();
        std::fs::write(root.join(".claude/hooks/a.sh"), "1").unwrap();
        std::fs::write(root.join("b.py"), "2").unwrap();
        let check = |command: &str, expected: &[&str]| {
            assert_eq!(named_scripts(command, root), expected, "{command}");
        };
        check("echo x", &[]);
        check(
            "\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/a.sh",
            &[".claude/hooks/a.sh"],
        );
        check(
            "\"$CLAUDE_PROJECT_DIR/.claude/hooks/a.sh\" x",
            &[".claude/hooks/a.sh"],
        );
        check("cd ${CLAUDE_PROJECT_DIR}; python b.py", &["b.py"]);
        check("python3 ./b.py|cat", &["b.py"]);
        check(&format!("X=1 {}/b.py", root.display()), &["b.py"]);
        check("cat /etc/passwd", &[]);
        check("'sh' ''\"$CLAUDE_PROJECT_DIR\"'/b.py' 'x'", &["b.py"]);
        check("sh -c 'python \"b.py\"; true'", &["b.py"]);
        std::fs::write(root.join("c d.sh"), "3").unwrap();
        check("sh \"c d.sh\"", &["c d.sh"]);
    }

    #[test]
    fn a_script_that_is_too_long_has_no_digest() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("long");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MAX_SCRIPT_BYTES).unwrap();
        assert!(script_digest(&path, "long").is_ok());
        file.set_len(MAX_SCRIPT_BYTES + 1).unwrap();
        let error = script_digest(&path, "long").unwrap_err().to_string();
        assert_eq!(error, "long has more than 8388608 bytes");
        assert!(script_digest(&folder.path().join("absent"), "absent").is_err());
    }
}
