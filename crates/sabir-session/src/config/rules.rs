//! Builds policy rules from the keys of the configuration file and from flags.

use std::collections::BTreeMap;
use std::path::Path;

use sabir_policy::{PolicyRules, RuleKind};
use serde::Deserialize;

use super::pattern_check;
use crate::error::SessionError;
use crate::spec::RuleSpec;

/// The keys of the file for rules, modes and ignore files.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuleKeys {
    approve: Vec<String>,
    allow: Vec<String>,
    ask: Vec<String>,
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
}

impl RuleKeys {
    /// Parses every rule of the file, so that a mistake is reported before a task begins in some folder.
    pub(super) fn check_rules(&self, home: Option<&Path>) -> Result<(), ConfigProblem> {
        let mut rules = PolicyRules::default();
        for (kind, name, patterns) in self.rule_patterns() {
            for (at, pattern) in patterns.iter().enumerate() {
                add_rule(&mut rules, kind, pattern, Path::new("/"), home).map_err(|why| {
                    ConfigProblem::new(&[name, &at.to_string()], format!("{name}: {why}"))
                })?;
            }
        }
        for (at, rule) in self.approve.iter().enumerate() {
            add_approval(&mut rules, rule).map_err(|why| {
                ConfigProblem::new(&["approve", &at.to_string()], format!("approve: {why}"))
            })?;
        }
        Ok(())
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

fn add_rule(
    rules: &mut PolicyRules,
    kind: RuleKind,
    pattern: &str,
    root: &Path,
    home: Option<&Path>,
) -> Result<(), String> {
    pattern_check::rule_problem(pattern).map_or(Ok(()), Err)?;
    let forms = path_forms(pattern, root, home);
    forms
        .iter()
        .try_for_each(|form| rules.add_rule(kind, form))
        .map_err(|error| error.to_string())
}

fn add_approval(rules: &mut PolicyRules, rule: &str) -> Result<(), String> {
    pattern_check::rule_problem(rule).map_or(Ok(()), Err)?;
    rules.add_approval(rule).map_err(|error| error.to_string())
}

/// Returns the equivalent spellings of a path rule: as written, with `~` replaced by the home folder, and relative to the
/// workspace if the path is inside it. Paths are judged in any of these forms, so each needs its rule.
fn path_forms(pattern: &str, root: &Path, home: Option<&Path>) -> Vec<String> {
    let Some(path) = pattern.trim().strip_prefix("path=").map(str::trim) else {
        return vec![pattern.to_owned()];
    };
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
    fn forms_of_path_rules() {
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
