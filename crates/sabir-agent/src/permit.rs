//! Permits: allow one call to run, exactly as it was checked and shown.
//!
//! Minutes may pass between the decision about a call and its run, while the user reads a question. A
//! permit therefore holds for a [`CallDigest`]: a hash of the tool, its arguments, and everything
//! outside of them whose change would make it another call ([`Preconditions`]: the version of a
//! file that is edited, the program that a name leads to, a script, the environment). The driver
//! compares these again right before the call runs, and runs no other call than the permitted one.
//!
//! Permits are made by the machine alone, and never read from a journal: a resumed task checks and
//! asks again.

use std::collections::BTreeMap;
use std::fmt;

use sabir_call::CallId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::subtask::SharedBudget;
use crate::task::{BudgetPeriod, TaskLimits};
use crate::tool::CallArguments;

/// The state that a call depends on besides its arguments: names for the user, each with a text that identifies the state (a hash, a path,
/// a version). Gathering it may read the file system but must not change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions(BTreeMap<String, String>);

/// The hash that an approval is bound to: SHA-256, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallDigest(String);

/// The permission to run one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPermit {
    /// The call.
    pub call: CallId,
    /// The digest of the call that was checked and, if the user was asked, shown.
    pub digest: CallDigest,
    /// The preconditions that are part of the digest.
    pub preconditions: Preconditions,
    /// True if the call was allowed because it only reads. Its sandbox may then forbid writing.
    pub read_only: bool,
    /// True if the user approved the call, by an answer or by a rule.
    pub user_approved: bool,
    /// The limits that are left for a subtask when the call begins to run.
    pub remaining_limits: TaskLimits,
    /// The period whose subtasks share these limits.
    pub budget_period: BudgetPeriod,
    /// The budget that the task shares with its subtasks, parents and siblings, if it has any.
    pub shared_budget: SharedBudget,
}

impl Preconditions {
    /// Adds a precondition: its name, and a text that identifies its state.
    pub fn insert(&mut self, thing: impl Into<String>, state: impl Into<String>) {
        self.0.insert(thing.into(), state.into());
    }

    /// Iterates over the names and states of the preconditions, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let things = self.0.iter();
        things.map(|(thing, state)| (thing.as_str(), state.as_str()))
    }

    /// Returns true if there are no preconditions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the preconditions whose state differs, or that only one of the two has,
    /// sorted.
    pub fn changed_names<'a>(&'a self, now: &'a Self) -> Vec<&'a str> {
        let gone = self
            .0
            .iter()
            .filter(|(thing, state)| now.0.get(*thing) != Some(state));
        let new = now
            .0
            .iter()
            .filter(|(thing, _)| !self.0.contains_key(*thing));
        let mut things: Vec<_> = gone.chain(new).map(|(thing, _)| thing.as_str()).collect();
        things.sort_unstable();
        things
    }
}

impl CallDigest {
    /// Computes the digest of a call.
    pub fn for_call(tool: &str, arguments: &CallArguments, preconditions: &Preconditions) -> Self {
        let mut hash = Sha256::new();
        let arguments = serde_json::to_vec(arguments).unwrap_or_default();
        let things = preconditions
            .0
            .iter()
            .flat_map(|(thing, state)| [thing.as_bytes(), state.as_bytes()]);
        for field in [tool.as_bytes(), &arguments].into_iter().chain(things) {
            // With its length, so that no two calls make the same bytes.
            hash.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(field);
        }
        Self(
            hash.finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CallPermit {
    /// Creates a permit for a caller without a task: nothing was checked, and it has no preconditions.
    pub fn unchecked(call: CallId) -> Self {
        let preconditions = Preconditions::default();
        let digest = CallDigest::for_call("", &CallArguments::new(), &preconditions);
        Self {
            call,
            digest,
            preconditions,
            read_only: false,
            user_approved: false,
            remaining_limits: TaskLimits::default(),
            budget_period: BudgetPeriod::default(),
            shared_budget: SharedBudget::default(),
        }
    }

    /// Returns the message for the model of a call whose preconditions have changed; `None` if they
    /// have not.
    pub fn violation_message(&self, now: &Preconditions) -> Option<String> {
        const SHOWN: usize = 5;
        let changed = self.preconditions.changed_names(now);
        let mut things = changed
            .iter()
            .take(SHOWN)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        if changed.len() > SHOWN {
            things.push_str(&format!(" and {} more", changed.len() - SHOWN));
        }
        (!changed.is_empty()).then(|| {
            format!(
                "Not run: this changed between the approval of the call and its run: {things}. Look at it, and make the call again \
                 if it is still right; it will be checked again."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_change_of_a_call_changes_its_digest() {
        let arguments = |value: serde_json::Value| value.as_object().unwrap().clone();
        let of = |tool: &str, value: serde_json::Value, things: &[(&str, &str)]| {
            let mut preconditions = Preconditions::default();
            things
                .iter()
                .for_each(|(thing, state)| preconditions.insert(*thing, *state));
            CallDigest::for_call(tool, &arguments(value), &preconditions)
        };
        let one = of("a", json!({"x": "1"}), &[("file b", "7")]);
        assert_eq!(one, of("a", json!({"x": "1"}), &[("file b", "7")]));
        for other in [
            of("b", json!({"x": "1"}), &[("file b", "7")]),
            of("a", json!({"x": "2"}), &[("file b", "7")]),
            of("a", json!({"x": 1}), &[("file b", "7")]),
            of("a", json!({"x": "1"}), &[("file b", "8")]),
            of("a", json!({"x": "1"}), &[("file ", "b7")]),
            of("a", json!({"x": "1"}), &[]),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn changed_preconditions_are_named() {
        let mut old = Preconditions::default();
        let mut new = Preconditions::default();
        old.insert("a", "1");
        old.insert("b", "1");
        old.insert("c", "1");
        new.insert("b", "1");
        new.insert("c", "2");
        new.insert("d", "1");
        assert_eq!(old.changed_names(&new), ["a", "c", "d"]);
        assert_eq!(old.changed_names(&old), [""; 0]);
    }
}
