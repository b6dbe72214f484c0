//! Modes: the built-in ones, the user's own, and those of the folder, by name; and what each offers.

use std::path::Path;

use sabir_agent::control::SWITCH;
use sabir_call::nearest;
use sabir_policy::{FilePattern, Group, Mode, Rules};
use sabir_workspace::{Bounds, Workspace};

use crate::config::{self, Config, ModeTable, RuleKeys, Wrong};
use crate::error::SessionError;

pub use roo::ModeFault;
use roo::RooModes;

mod enter;
mod outfits;
mod roo;

pub(crate) use enter::{Followed, Routed};
pub(crate) use outfits::{Begun, Modes, Now, ToldMode, chosen, name, now};

/// The mode that gives all work to subtasks.
pub(crate) const ORCHESTRATOR: &str = "orchestrator";

/// Files that say what is hidden, unless the configuration names others.
const IGNORE_FILES: [&str; 3] = [".sabirignore", ".clineignore", ".rooignore"];

/// The mode of that name.
pub fn find(name: &str, config: &Config, workspace: &Workspace) -> Result<Mode, SessionError> {
    let usual = Mode::usual_name(name);
    let (all, faults) = all(config, workspace);
    let found = all.iter().find(|mode| mode.name == name || mode.name == usual);
    found.cloned().ok_or_else(|| {
        let fault = faults
            .iter()
            .find(|fault| fault.name == name)
            .or_else(|| faults.iter().find(|fault| fault.name.is_empty()));
        let why = fault.map(|fault| format!(" ({fault})")).unwrap_or_default();
        SessionError::invalid(format!("{}{why}", unknown(name, all.iter())))
    })
}

/// All modes, and what is wrong with those of the folder.
pub fn all(config: &Config, workspace: &Workspace) -> (Vec<Mode>, Vec<ModeFault>) {
    let taken = |name: &str| {
        let own = || config.modes.iter().any(|mode| mode.name == name).then_some("is that of a mode of your own");
        is_built_in(name).then_some("is that of a built-in mode").or_else(own)
    };
    let RooModes { modes, faults } = RooModes::read(workspace, taken);
    (Mode::built_in().into_iter().chain(config.modes.iter().cloned()).chain(modes).collect(), faults)
}

fn is_built_in(name: &str) -> bool {
    Mode::built_in().iter().any(|mode| mode.name == name) || Mode::usual_name(name) != name
}

/// Whether a mode is neither built in nor the user's own.
pub fn is_foreign(name: &str, config: &Config) -> bool {
    !is_built_in(name) && !config.modes.iter().any(|mode| mode.name == name)
}

/// The model that the configuration gives a mode.
pub fn model_of<'a>(config: &'a Config, mode: &str) -> Option<&'a str> {
    let tables = &config.rules.modes;
    let usual = || tables.iter().find(|(name, _)| is_built_in(name) && Mode::usual_name(name) == mode);
    tables.get(mode).or_else(|| usual().map(|(_, table)| table))?.model.as_deref()
}

/// The modes of a configuration; that of tasks that name none must be one of them, or built in.
pub(crate) fn own(keys: &RuleKeys) -> Result<Vec<Mode>, Wrong> {
    let own = keys.modes.iter().map(|(name, table)| {
        if is_built_in(name) && *table == (ModeTable { model: table.model.clone(), ..ModeTable::default() }) {
            return Ok(None);
        }
        if is_built_in(name) || name.trim().is_empty() {
            let why = format!(
                "[modes.{name}]: this name has a meaning already; choose another (of a built-in mode only `model` can be set)"
            );
            return Err(Wrong::new(&["modes", name], why));
        }
        mode(name, table).map(Some)
    });
    let own: Vec<_> = own.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    match &keys.mode {
        Some(name) if !is_built_in(name) && !own.iter().any(|mode| mode.name == *name) => {
            Err(Wrong::new(&["mode"], unknown(name, Mode::built_in().iter().chain(&own))))
        }
        _ => Ok(own),
    }
}

/// Says that there is no mode of that name, and which of these may be meant.
fn unknown<'a>(name: &str, all: impl Iterator<Item = &'a Mode>) -> String {
    no_such(name, all.map(|mode| mode.name.as_str()))
}

/// The mode that a user names by one word, if it is one of these; else what to tell him.
pub fn named(word: &str, names: &[String]) -> Result<String, String> {
    let usual = Mode::usual_name(word.trim());
    let found = names.iter().find(|name| *name == word.trim() || *name == usual);
    match (found, word.trim()) {
        (Some(name), _) => Ok(name.clone()),
        (None, "") => Err(format!("write /mode with one of {}", names.join(", "))),
        (None, word) => Err(no_such(word, names.iter().map(String::as_str))),
    }
}

fn no_such<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> String {
    let hint = match nearest(name, all) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`sabir modes` lists them".to_owned(),
    };
    format!("there is no mode `{name}`: {hint}")
}

fn mode(name: &str, table: &ModeTable) -> Result<Mode, Wrong> {
    let wrong =
        |keys: &[&str], why: String| Wrong::new(&[&["modes", name], keys].concat(), format!("[modes.{name}]: {why}"));
    let mut groups = Vec::new();
    for (at, word) in table.tools.iter().enumerate() {
        groups.push(Group::named(word).ok_or_else(|| {
            let names = Group::ALL.map(Group::name).join(", ");
            wrong(&["tools", &at.to_string()], format!("`{word}` is none of {names}"))
        })?);
    }
    if groups.is_empty() {
        return Err(wrong(&["tools"], "it has no `tools`: name what may be done in it".to_owned()));
    }
    for (at, glob) in table.write.iter().enumerate() {
        let fault = Bounds::new().write_only([glob.clone()]).err().map(|error| error.to_string());
        if let Some(why) = config::glob_fault(glob).or(fault) {
            return Err(wrong(&["write", &at.to_string()], why));
        }
    }
    let ModeTable { about, instructions, write, .. } = table.clone();
    let write = write.into_iter().map(FilePattern::Glob).collect();
    Ok(Mode { name: name.to_owned(), about, instructions, groups, write })
}

/// Whether a mode offers a tool, by its name. Switching is not offered in a built-in mode that takes nothing away: there is nothing to
/// be had by it, and every request would carry its words.
pub fn offers(mode: &Mode, tool: &str) -> bool {
    let has_all = || Group::ALL.iter().all(|group| mode.has(*group)) && mode.changes_freely();
    match group(tool) {
        Some(Group::Switch) if is_built_in(&mode.name) && has_all() => false,
        group => group.is_none_or(|group| mode.has(group)),
    }
}

/// Whether a tool is offered where that mode holds. Where none does there is nothing to be switched.
pub fn offered(mode: Option<&Mode>, tool: &str) -> bool {
    mode.map_or(tool != SWITCH, |mode| offers(mode, tool))
}

/// What a tool does; none of a tool that touches nothing or is not built in, which its accesses are judged by.
fn group(tool: &str) -> Option<Group> {
    Some(match tool {
        "read_file" | "list_files" | "search_files" | "list_code_definition_names" => Group::Read,
        "write_to_file" | "replace_in_file" | "edit_file" | "apply_patch" => Group::Edit,
        "execute_command" | "read_command_output" | "stop_command" => Group::Command,
        "fetch_url" => Group::Fetch,
        "new_task" => Group::Delegate,
        SWITCH => Group::Switch,
        _ => return None,
    })
}

/// What holds for the files of a task, whatever is approved.
pub fn bounds_of(rules: &Rules, config: &Config) -> Result<Bounds, SessionError> {
    let names = config.rules.ignore_files.clone();
    let names = names.unwrap_or_else(|| IGNORE_FILES.map(str::to_owned).to_vec());
    if let Some(name) = names.iter().find(|name| name.is_empty() || name.contains('/')) {
        let wrong =
            format!("ignore_files: `{name}` is no name of a file: write one without a folder, such as .sabirignore");
        return Err(SessionError::invalid(wrong));
    }
    let hidden = rules.denied_paths().filter(|glob| *glob != "~" && !glob.starts_with("~/")).map(str::to_owned);
    let wrong = |error: sabir_workspace::BoundsError| SessionError::invalid(error.to_string());
    let bounds = Bounds::new().ignore_files(names).hide(hidden).map_err(wrong)?;
    match rules.mode() {
        Some(mode) if !mode.has(Group::Edit) => {
            Ok(bounds.read_only().because(format!("the mode `{}` does not change files", mode.name)))
        }
        Some(mode) if !mode.write.is_empty() => {
            let because = format!("the mode `{}` changes only {}", mode.name, mode.writes());
            let (mut globs, mut expressions) = (Vec::new(), Vec::new());
            for pattern in &mode.write {
                match pattern {
                    FilePattern::Glob(glob) => globs.push(glob.clone()),
                    FilePattern::Expression(expression) => expressions.push(expression.as_str().to_owned()),
                }
            }
            let bounds = bounds.write_only(globs).and_then(|bounds| bounds.or_matching(expressions));
            Ok(bounds.map_err(wrong)?.because(because))
        }
        _ => Ok(bounds),
    }
}

/// Why nothing is written unasked in a folder, if it is the whole machine or a whole home.
pub fn too_wide(root: &Path, home: Option<&Path>) -> Option<&'static str> {
    if root.parent().is_none() {
        return Some("the folder is the whole machine");
    }
    let home = home.and_then(|home| home.canonicalize().ok());
    (home.as_deref() == Some(root)).then_some("the folder is your whole home")
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn every_built_in_tool_has_a_group() {
        for spec in sabir_tools::specs().into_iter().chain(sabir_tools::unoffered_specs()) {
            assert!(group(&spec.name).is_some(), "{}", spec.name);
        }
    }
}
