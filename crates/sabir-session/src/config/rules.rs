//! What may be done: the keys of the file for it, and the rules that they and the flags make.

use std::collections::BTreeMap;
use std::path::Path;

use sabir_policy::{PolicyRules, RuleKind};
use serde::Deserialize;

use super::pattern_check;
use crate::error::SessionError;
use crate::spec::RuleSpec;

/// The keys.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuleKeys {
    approve: Vec<String>,
    allow: Vec<String>,
    ask: Vec<String>,
    deny: Vec<String>,
    /// The mode of tasks that name none.
    pub mode: Option<String>,
    /// Modes of the user's own.
    pub modes: BTreeMap<String, ModeTable>,
    /// The names of the files that say what is hidden.
    pub ignore_files: Option<Vec<String>>,
}

/// A mode of the user's own; of a built-in one, its model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModeTable {
    pub about: String,
    pub instructions: String,
    pub tools: Vec<String>,
    pub write: Vec<String>,
    /// The model of tasks in it, as `--model` has it.
    pub model: Option<String>,
}

/// What is wrong in the file: where, as the keys that lead there, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub keys: Vec<String>,
    pub why: String,
}

impl ConfigProblem {
    pub fn new(keys: &[&str], why: impl Into<String>) -> Self {
        Self { keys: keys.iter().map(|key| (*key).to_owned()).collect(), why: why.into() }
    }
}

impl RuleKeys {
    /// Reads every rule of the file, for whichever folder it will hold.
    pub(super) fn check_rules(&self, home: Option<&Path>) -> Result<(), ConfigProblem> {
        let mut rules = PolicyRules::default();
        for (kind, name, patterns) in self.rule_patterns() {
            for (at, pattern) in patterns.iter().enumerate() {
                add_rule(&mut rules, kind, pattern, Path::new("/"), home)
                    .map_err(|why| ConfigProblem::new(&[name, &at.to_string()], format!("{name}: {why}")))?;
            }
        }
        for (at, rule) in self.approve.iter().enumerate() {
            add_approval(&mut rules, rule)
                .map_err(|why| ConfigProblem::new(&["approve", &at.to_string()], format!("approve: {why}")))?;
        }
        Ok(())
    }

    /// The rules of the file and of the flags, for a workspace in that folder. One that cannot be read is an error: without it
    /// something might be allowed.
    pub fn build_rules(&self, flags: &RuleSpec, root: &Path, home: Option<&Path>) -> Result<PolicyRules, SessionError> {
        let mut rules = PolicyRules::default();
        for ((kind, name, kept), given) in self.rule_patterns().into_iter().zip([&flags.allow, &flags.ask, &flags.deny])
        {
            for pattern in kept.iter().chain(given) {
                add_rule(&mut rules, kind, pattern, root, home)
                    .map_err(|why| SessionError::invalid(format!("{name}: {why}")))?;
            }
        }
        for rule in self.approve.iter().chain(&flags.approve) {
            add_approval(&mut rules, rule).map_err(|why| SessionError::invalid(format!("approve: {why}")))?;
        }
        Ok(rules)
    }

    /// The patterns, with their key.
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
    forms.iter().try_for_each(|form| rules.add_rule(kind, form)).map_err(|error| error.to_string())
}

fn add_approval(rules: &mut PolicyRules, rule: &str) -> Result<(), String> {
    pattern_check::rule_problem(rule).map_or(Ok(()), Err)?;
    rules.add_approval(rule).map_err(|error| error.to_string())
}

/// The ways to write a path rule: as it is, from the home folder as an absolute path, and seen from the workspace if it lies in there.
fn path_forms(pattern: &str, root: &Path, home: Option<&Path>) -> Vec<String> {
    let Some(path) = pattern.trim().strip_prefix("path=").map(str::trim) else { return vec![pattern.to_owned()] };
    let mut forms = vec![pattern.to_owned()];
    let absolute = match (path.strip_prefix('~'), home.and_then(Path::to_str)) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
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
            assert_eq!(path_forms(pattern, Path::new("/home/u/w"), Some(Path::new("/home/u"))), expected);
        };
        check("git push **", &["git push **"]);
        check("path=src/**", &["path=src/**"]);
        check("path=~/.aws/", &["path=~/.aws/", "path=/home/u/.aws/"]);
        check("path=~/w/a/", &["path=~/w/a/", "path=/home/u/w/a/", "path=./a"]);
        check("path=/home/u/w", &["path=/home/u/w", "path=./"]);
        check("path=/etc/", &["path=/etc/"]);
    }
}
