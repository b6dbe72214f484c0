//! Builds policy rules from the keys of the configuration file and from flags.

use std::collections::BTreeMap;
use std::path::Path;

use sabir_policy::{PolicyRules, RuleError, RuleKind};
use serde::Deserialize;

use super::keys::{TomlFile, locate_key};
use super::pattern_check;
use crate::error::SessionError;
use crate::spec::RuleSpec;

/// The keys of the file for rules, modes and ignore files.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuleConfig {
    /// Calls that run without a question, by kind or by rule.
    approve: Vec<String>,
    /// Patterns of allowed accesses.
    allow: Vec<String>,
    /// Patterns of accesses that need a question, even if another rule allows them.
    ask: Vec<String>,
    /// Patterns of denied accesses.
    deny: Vec<String>,
    /// The mode of tasks that name none.
    pub mode: Option<String>,
    /// The tables `[modes.NAME]`.
    pub modes: BTreeMap<String, ModeTable>,
    /// The names of the files that list hidden paths.
    pub ignore_files: Option<Vec<String>>,
}

/// The table `[modes.NAME]`: a mode that the user defined, or the model of a built-in mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModeTable {
    /// The description in lists of modes.
    pub about: String,
    /// The text that the mode adds to the system prompt.
    pub instructions: String,
    /// The names of the tool groups that the mode offers.
    pub tools: Vec<String>,
    /// Globs of the only files that may be edited; empty for no such limit.
    pub write: Vec<String>,
    /// The model for work in this mode, in the form that `--model` takes.
    pub model: Option<String>,
}

/// A mistake in the configuration file.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The path of keys that leads to the mistake; an item of an array is named by its index, counted from 0.
    pub keys: Vec<String>,
    /// The message for the user.
    pub why: String,
}

impl ConfigProblem {
    /// Creates a problem at a path of keys.
    pub fn new(keys: &[&str], why: impl Into<String>) -> Self {
        Self {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            why: why.into(),
        }
    }

    /// Returns the error for the mistake in a file, with its line.
    pub(crate) fn in_file(&self, file: TomlFile<'_>) -> SessionError {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        SessionError::invalid(format!("{}: {}", locate_key(file, &keys), self.why))
    }
}

impl RuleConfig {
    /// Reports whether the list of this name has a rule.
    pub(crate) fn has_rule(&self, list: &str, rule: &str) -> bool {
        let mut lists = self.rule_patterns().into_iter();
        lists.any(|(_, name, patterns)| name == list && patterns.iter().any(|one| one == rule))
    }

    /// Parses every rule of the file, so that a mistake is reported before a task begins in some folder.
    pub(super) fn find_rule_problems(&self, home: Option<&Path>) -> Vec<ConfigProblem> {
        let mut rules = PolicyRules::default();
        let mut problems = Vec::new();
        let mut note = |name: &str, at: usize, result: Result<(), RulePatternError>| {
            if let Err(why) = result {
                let keys = [name, &at.to_string()];
                problems.push(ConfigProblem::new(&keys, format!("{name}: {why}")));
            }
        };
        for (kind, name, patterns) in self.rule_patterns() {
            for (at, pattern) in patterns.iter().enumerate() {
                // The folder is not known yet. Whether a rule can be parsed does not depend on it.
                let added = add_rule(&mut rules, kind, pattern, Path::new("/"), home);
                note(name, at, added);
            }
        }
        for (at, rule) in self.approve.iter().enumerate() {
            note("approve", at, add_approval(&mut rules, rule));
        }
        problems
    }

    /// Returns the rules of the file and of the flags, for the workspace at `root`.
    ///
    /// # Errors
    /// When a rule cannot be parsed. It is not skipped: without it, something might be allowed.
    pub fn build_rules(
        &self,
        flags: &RuleSpec,
        root: &Path,
        home: Option<&Path>,
    ) -> Result<PolicyRules, SessionError> {
        let mut rules = PolicyRules::default();
        // The file's rules and the spec's are equals: a denial of either wins over an allowance of
        // the other.
        for ((kind, name, kept), given) in
            self.rule_patterns()
                .into_iter()
                .zip([&flags.allow, &flags.ask, &flags.deny])
        {
            for pattern in kept.iter().chain(given) {
                add_rule(&mut rules, kind, pattern, root, home)
                    .map_err(|why| SessionError::invalid(format!("{name}: {why}")))?;
            }
        }
        for rule in self.approve.iter().chain(&flags.approve) {
            add_approval(&mut rules, rule)
                .map_err(|why| SessionError::invalid(format!("approve: {why}")))?;
        }
        Ok(rules)
    }

    /// Returns the patterns of each kind, with the name of their key.
    fn rule_patterns(&self) -> [(RuleKind, &'static str, &[String]); 3] {
        [
            (RuleKind::Allow, "allow", &self.allow),
            (RuleKind::Ask, "ask", &self.ask),
            (RuleKind::Deny, "deny", &self.deny),
        ]
    }
}

/// The reason why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RulePatternError {
    /// The rule is valid, and means something else here than in the program that its spelling comes from.
    #[error("{0}")]
    Misleading(String),
    /// The rule cannot be parsed.
    #[error(transparent)]
    Invalid(#[from] RuleError),
}

/// Rejects a rule whose spelling means something else in other programs.
fn check_spelling(rule: &str) -> Result<(), RulePatternError> {
    match pattern_check::rule_problem(rule) {
        Some(why) => Err(RulePatternError::Misleading(why)),
        None => Ok(()),
    }
}

/// Adds one pattern of a kind, in all its equivalent spellings.
fn add_rule(
    rules: &mut PolicyRules,
    kind: RuleKind,
    pattern: &str,
    root: &Path,
    home: Option<&Path>,
) -> Result<(), RulePatternError> {
    check_spelling(pattern)?;
    for form in path_forms(pattern, root, home) {
        rules.add_rule(kind, &form)?;
    }
    Ok(())
}

/// Returns the reason why a rule cannot be in the list of this name; `None` for a usable rule.
pub(crate) fn rule_mistake(list: &str, pattern: &str, home: Option<&Path>) -> Option<String> {
    let kind = match list {
        "allow" => RuleKind::Allow,
        "ask" => RuleKind::Ask,
        _ => RuleKind::Deny,
    };
    let mut rules = PolicyRules::default();
    let added = add_rule(&mut rules, kind, pattern, Path::new("/"), home);
    added.err().map(|error| error.to_string())
}

/// Adds one rule of `approve`.
fn add_approval(rules: &mut PolicyRules, rule: &str) -> Result<(), RulePatternError> {
    check_spelling(rule)?;
    Ok(rules.add_approval(rule)?)
}

/// Returns the equivalent spellings of a path rule: as written, with `~` replaced by the home folder, and relative to the
/// workspace if the path is inside it. Paths are checked in any of these forms, so each needs its rule.
fn path_forms(pattern: &str, root: &Path, home: Option<&Path>) -> Vec<String> {
    let Some(path) = pattern.trim().strip_prefix("path=").map(str::trim) else {
        return vec![pattern.to_owned()];
    };
    // The pattern as written is one of the forms, because some paths are shown to the model as
    // written.
    let mut forms = vec![pattern.to_owned()];
    let absolute = match (path.strip_prefix('~'), home.and_then(Path::to_str)) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            format!("{home}{rest}")
        }
        _ => path.to_owned(),
    };
    if absolute != path {
        forms.push(format!("path={absolute}"));
    }
    // Calls inside of the workspace name their paths relative to it.
    if let Ok(inside) = Path::new(&absolute).strip_prefix(root)
        && let Some(inside) = inside.to_str()
    {
        forms.push(format!("path=./{inside}"));
    }
    forms
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::path_forms;

    #[test]
    fn path_rules_are_parsed_in_every_form() {
        let check = |pattern: &str, expected: &[&str]| {
            assert_eq!(
                path_forms(pattern, Path::new("/home/u/w"), Some(Path::new("/home/u"))),
                expected
            );
        };
        check("git push **", &["git push **"]);
        check("path=src/**", &["path=src/**"]);
        check("path=~/.aws/", &["path=~/.aws/", "path=/home/u/.aws/"]);
        check(
            "path=~/w/a/",
            &["path=~/w/a/", "path=/home/u/w/a/", "path=./a"],
        );
        check("path=/home/u/w", &["path=/home/u/w", "path=./"]);
        check("path=/etc/", &["path=/etc/"]);
    }
}
