//! Finds modes by name (built-in, user-defined and from the repository), and decides which tools each offers.

use std::path::Path;

use sabir_call::nearest_candidate;
use sabir_policy::{FilePattern, Mode, PolicyRules, ToolGroup};
use sabir_workspace::{Bounds, Workspace};

use crate::config::{self, Config, ConfigProblem, ModeTable, RuleConfig};
use crate::error::SessionError;

pub(crate) use agent_files::PersonalAgents;
pub use roo::ModeFault;
use roo::RooModes;

mod agent_files;
mod mode_runtime;
mod mode_switcher;
mod roo;

pub(crate) use mode_runtime::{
    CurrentMode, InitialMode, RecordedMode, SessionModes, mode_name, resolve_mode_model,
    shared_mode,
};
pub(crate) use mode_switcher::{ModeRoutedModel, ModeSwitcher};

/// The mode that gives all work to subtasks.
pub(crate) const ORCHESTRATOR: &str = "orchestrator";

/// The default names of ignore files. Files that match their patterns are hidden from tools.
pub(crate) const IGNORE_FILES: [&str; 3] = [".sabirignore", ".clineignore", ".rooignore"];

/// Finds the mode with this name, or with the name that it is an alias of.
///
/// # Errors
/// When there is no such mode. The message says so, and why a mode of the repository cannot be used.
pub fn find_mode(name: &str, config: &Config, workspace: &Workspace) -> Result<Mode, SessionError> {
    let usual = Mode::canonical_name(name);
    let is_named = |mode: &Mode| mode.name == name || mode.name == usual;
    // Built-in and configured modes come first. A repository cannot redefine them, so its files are
    // read only if none has this name.
    let own = Mode::built_in_modes().into_iter().find(is_named);
    if let Some(mode) = own.or_else(|| config.modes.iter().find(|mode| is_named(mode)).cloned()) {
        return Ok(mode);
    }
    let (all, faults) = all_modes(config, workspace);
    let found = all.iter().find(|mode| is_named(mode));
    found.cloned().ok_or_else(|| {
        let fault = faults
            .iter()
            .find(|fault| fault.name == name)
            .or_else(|| faults.iter().find(|fault| fault.name.is_empty()));
        let why = fault.map(|fault| format!(" ({fault})")).unwrap_or_default();
        SessionError::invalid(format!("{}{why}", unknown_mode(name, all.iter())))
    })
}

/// Returns all modes that can be used in a workspace, and the faults of those that its repository defines wrongly.
pub fn all_modes(config: &Config, workspace: &Workspace) -> (Vec<Mode>, Vec<ModeFault>) {
    let agents = config.personal_agents();
    // `/mode Plan` must not be another mode than `/mode plan`.
    let taken = |name: &str| {
        let is_named = |mode: &Mode| mode.name.eq_ignore_ascii_case(name);
        let is_own = config.modes.iter().chain(&agents.modes).any(is_named);
        is_builtin(&name.to_ascii_lowercase())
            .then_some("is that of a built-in mode")
            .or(is_own.then_some("is that of a mode of your own"))
    };
    let RooModes {
        mut modes,
        mut faults,
    } = RooModes::read_folder(workspace, taken);
    agent_files::add_agents(workspace, taken, &mut modes, &mut faults);
    faults.extend(agents.faults());
    (
        Mode::built_in_modes()
            .into_iter()
            .chain(config.modes.iter().cloned())
            .chain(agents.modes.iter().cloned())
            .chain(modes)
            .collect(),
        faults,
    )
}

fn is_builtin(name: &str) -> bool {
    Mode::built_in_modes().iter().any(|mode| mode.name == name)
        || Mode::canonical_name(name) != name
}

/// Reports whether a mode comes from the repository: it is neither built in nor defined by the user.
pub fn is_from_repository(name: &str, config: &Config) -> bool {
    let mut own = config.modes.iter().chain(&config.personal_agents().modes);
    !is_builtin(name) && !own.any(|mode| mode.name == name)
}

/// Reads the user's own agents, whose names no mode of the configuration has.
pub(crate) fn read_personal_agents(config: &Config) -> PersonalAgents {
    PersonalAgents::read(&config.environment, |name| {
        let is_named = |mode: &Mode| mode.name.eq_ignore_ascii_case(name);
        let is_own = config.modes.iter().any(is_named);
        is_builtin(&name.to_ascii_lowercase())
            .then_some("is that of a built-in mode")
            .or(is_own.then_some("is that of a mode in your config.toml"))
    })
}

/// Returns the model that the configuration sets for a mode.
pub fn model_of<'a>(config: &'a Config, mode: &str) -> Option<&'a str> {
    let tables = &config.rules.modes;
    let usual = || {
        tables
            .iter()
            .find(|(name, _)| is_builtin(name) && Mode::canonical_name(name) == mode)
    };
    tables
        .get(mode)
        .or_else(|| usual().map(|(_, table)| table))?
        .model
        .as_deref()
}

/// Returns the modes that the configuration defines. Its default mode must be one of them, or built in.
pub(crate) fn configured_modes(keys: &RuleConfig) -> Result<Vec<Mode>, ConfigProblem> {
    let own = keys.modes.iter().map(|(name, table)| {
        // A table with nothing but `model` sets the model of the built-in mode.
        if is_builtin(name) && *table == (ModeTable { model: table.model.clone(), ..ModeTable::default() }) {
            return Ok(None);
        }
        if is_builtin(name) || name.trim().is_empty() {
            let why = format!(
                "[modes.{name}]: this name has a meaning already; choose another (of a built-in mode only `model` can be set)"
            );
            return Err(ConfigProblem::new(&["modes", name], why));
        }
        parse_mode(name, table).map(Some)
    });
    let own: Vec<_> = own
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    match &keys.mode {
        Some(name) if !is_builtin(name) && !own.iter().any(|mode| mode.name == *name) => {
            Err(ConfigProblem::new(
                &["mode"],
                unknown_mode(name, Mode::built_in_modes().iter().chain(&own)).to_string(),
            ))
        }
        _ => Ok(own),
    }
}

/// A word after `/mode` that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeNameError {
    /// There is no word; holds the known names.
    #[error("write /mode with one of {}", .0.join(", "))]
    Missing(Vec<String>),
    /// The word is not a name of a mode.
    #[error(transparent)]
    Unknown(#[from] UnknownMode),
}

/// A name that no mode has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode `{name}`: {}", mode_hint(.nearest.as_deref()))]
pub struct UnknownMode {
    /// The name.
    pub name: String,
    /// The most similar name that a mode has, if one is similar.
    pub nearest: Option<String>,
}

impl UnknownMode {
    /// Creates the error for `name`, where the modes have the names `all`.
    fn among<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Self {
        Self {
            name: name.to_owned(),
            nearest: nearest_candidate(name, all).map(str::to_owned),
        }
    }
}

/// Returns the end of the message for an unknown mode.
fn mode_hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`sabir modes` lists them".to_owned(),
    }
}

/// Returns the error for an unknown mode, with the most similar name of `all`.
fn unknown_mode<'a>(name: &str, all: impl Iterator<Item = &'a Mode>) -> UnknownMode {
    UnknownMode::among(name, all.map(|mode| mode.name.as_str()))
}

/// Returns the mode that a user names with one word, if it is one of `names`.
///
/// # Errors
/// When there is no word, or no such mode.
pub fn resolve_mode_name(word: &str, names: &[String]) -> Result<String, ModeNameError> {
    let usual = Mode::canonical_name(word.trim());
    let found = names
        .iter()
        .find(|name| *name == word.trim() || *name == usual);
    match (found, word.trim()) {
        (Some(name), _) => Ok(name.clone()),
        (None, "") => Err(ModeNameError::Missing(names.to_vec())),
        (None, word) => {
            let known = names.iter().map(String::as_str);
            Err(UnknownMode::among(word, known).into())
        }
    }
}

fn parse_mode(name: &str, table: &ModeTable) -> Result<Mode, ConfigProblem> {
    let wrong = |keys: &[&str], why: String| {
        ConfigProblem::new(
            &[&["modes", name], keys].concat(),
            format!("[modes.{name}]: {why}"),
        )
    };
    let mut groups = Vec::new();
    for (at, word) in table.tools.iter().enumerate() {
        groups.push(ToolGroup::from_name(word).ok_or_else(|| {
            let names = ToolGroup::ALL.map(ToolGroup::name).join(", ");
            wrong(
                &["tools", &at.to_string()],
                format!("`{word}` is none of {names}"),
            )
        })?);
    }
    if groups.is_empty() {
        return Err(wrong(
            &["tools"],
            "it has no `tools`: name what may be done in it".to_owned(),
        ));
    }
    for (at, glob) in table.write.iter().enumerate() {
        let fault = Bounds::new()
            .limit_writes_to_globs([glob.clone()])
            .err()
            .map(|error| error.to_string());
        if let Some(why) = config::glob_problem(glob).or(fault) {
            return Err(wrong(&["write", &at.to_string()], why));
        }
    }
    let ModeTable {
        about,
        instructions,
        write,
        ..
    } = table.clone();
    let write = write.into_iter().map(FilePattern::Glob).collect();
    Ok(Mode {
        name: name.to_owned(),
        about,
        instructions,
        groups,
        write,
    })
}

/// Reports whether a mode offers the tool with this name.
///
/// A built-in mode without any limit does not offer to switch modes: no other mode allows more, and the tool would only
/// make every request longer.
pub fn mode_offers(mode: &Mode, group: Option<ToolGroup>) -> bool {
    let has_all =
        || ToolGroup::ALL.iter().all(|group| mode.has_group(*group)) && mode.can_edit_any_file();
    match group {
        Some(ToolGroup::Switch) if is_builtin(&mode.name) && has_all() => false,
        group => group.is_none_or(|group| mode.has_group(group)),
    }
}

/// Reports whether tools of a group are offered in a mode. Without a mode there is nothing to switch.
pub fn is_offered(mode: Option<&Mode>, group: Option<ToolGroup>) -> bool {
    mode.map_or(group != Some(ToolGroup::Switch), |mode| {
        mode_offers(mode, group)
    })
}

/// Returns the limits on file access that hold in a task, whatever the user approves: hidden files, and the files that the
/// mode may write.
///
/// # Errors
/// When a name under `ignore_files` or a pattern cannot be used.
pub fn file_access_bounds(rules: &PolicyRules, config: &Config) -> Result<Bounds, SessionError> {
    limit_to_mode(hidden_files(rules, config)?, rules.mode())
}

/// Returns the part of the limits that is the same in every mode: the hidden files.
///
/// # Errors
/// When a name under `ignore_files` or a pattern cannot be used.
pub(crate) fn hidden_files(rules: &PolicyRules, config: &Config) -> Result<Bounds, SessionError> {
    let names = config.rules.ignore_files.clone();
    let names = names.unwrap_or_else(|| IGNORE_FILES.map(str::to_owned).to_vec());
    if let Some(name) = names
        .iter()
        .find(|name| name.is_empty() || name.contains('/'))
    {
        let wrong = format!(
            "ignore_files: `{name}` is not a name of a file: write one without a folder, such as .sabirignore"
        );
        return Err(SessionError::invalid(wrong));
    }
    // A path in the home folder is not a path of the workspace. `path_forms` adds its absolute and
    // relative spellings.
    let hidden = rules
        .denied_paths()
        .filter(|glob| *glob != "~" && !glob.starts_with("~/"))
        .map(str::to_owned);
    Bounds::new()
        .ignore_files(names)
        .hide_globs(hidden)
        .map_err(|error| SessionError::invalid(error.to_string()))
}

/// Adds the limit of a mode on the files that may be written.
///
/// # Errors
/// When a pattern of the mode cannot be used.
pub(crate) fn limit_to_mode(bounds: Bounds, mode: Option<&Mode>) -> Result<Bounds, SessionError> {
    let wrong = |error: sabir_workspace::BoundsError| SessionError::invalid(error.to_string());
    match mode {
        Some(mode) if !mode.has_group(ToolGroup::Edit) => Ok(bounds
            .read_only()
            .with_limit_reason(format!("the mode `{}` does not change files", mode.name))),
        Some(mode) if !mode.write.is_empty() => {
            let because = format!(
                "the mode `{}` changes only {}",
                mode.name,
                mode.writable_patterns()
            );
            let mut globs = Vec::new();
            let mut expressions = Vec::new();
            for pattern in &mode.write {
                match pattern {
                    FilePattern::Glob(glob) => globs.push(glob.clone()),
                    FilePattern::Regex(expression) => {
                        expressions.push(expression.as_str().to_owned())
                    }
                }
            }
            let bounds = bounds
                .limit_writes_to_globs(globs)
                .and_then(|bounds| bounds.allow_writes_matching(expressions));
            Ok(bounds.map_err(wrong)?.with_limit_reason(because))
        }
        _ => Ok(bounds),
    }
}

/// Returns the warning for a folder that is the root of the file system or the user's home, where each write needs a question.
pub fn wide_folder_warning(root: &Path, home: Option<&Path>) -> Option<&'static str> {
    if root.parent().is_none() {
        return Some("the folder is the whole machine");
    }
    // The root of a workspace is canonical, so the home must be made so for the comparison.
    let home = home.and_then(|home| home.canonicalize().ok());
    (home.as_deref() == Some(root)).then_some("the folder is your whole home")
}
