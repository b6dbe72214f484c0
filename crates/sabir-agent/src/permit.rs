//! Permits: leave to run one call, as it was judged and shown, and nothing else.
//!
//! Between the judgement of a call and its run there may be minutes, in which somebody reads a question. A permit therefore holds
//! for a [`CallDigest`]: a hash of the tool, its arguments, and everything outside of them whose change would make it another call
//! ([`Preconditions`]: the version of a file that is edited, the program that a name leads to, a script, the environment). The driver
//! looks at that again right before the call runs, and does not run another call than the permitted one.
//!
//! Permits are made by the machine alone, and never read from a journal: a resumed task judges and asks anew.

use std::collections::BTreeMap;
use std::fmt;

use sabir_call::CallId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::subtask::SharedBudget;
use crate::task::TaskLimits;
use crate::tool::CallArguments;

/// What a call depends on beside its arguments: each thing by a name that a user understands, with what identifies its state (a
/// hash, a path, a version). Whoever gathers it may look at the file system and must not change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions(BTreeMap<String, String>);

/// The hash that an approval is bound to: SHA-256, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallDigest(String);

/// Leave to run one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPermit {
    /// The call.
    pub call: CallId,
    /// What was judged and, where somebody was asked, shown.
    pub digest: CallDigest,
    /// What the seal was made of beside the call itself.
    pub preconditions: Preconditions,
    /// Whether the call was allowed because it is known to do nothing but read: it may be held to that.
    pub read_only: bool,
    /// What the task's limits still allow a subtask when the call begins to run.
    pub remaining_limits: TaskLimits,
    /// What a family of subtasks shares, if the task belongs to one.
    pub shared_budget: SharedBudget,
}

impl Preconditions {
    /// Adds a thing and what identifies its state.
    pub fn insert(&mut self, thing: impl Into<String>, state: impl Into<String>) {
        self.0.insert(thing.into(), state.into());
    }

    /// Whether a call depends on nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The things that are not in the same state in both, or are in one of them only; sorted.
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
    /// Seals a call.
    pub fn for_call(tool: &str, arguments: &CallArguments, bound: &Preconditions) -> Self {
        let mut hash = Sha256::new();
        let arguments = serde_json::to_vec(arguments).unwrap_or_default();
        let things = bound
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
    /// A permit for whoever calls a tool without a task: nothing was judged, nothing is bound.
    pub fn unchecked(call: CallId) -> Self {
        let bound = Preconditions::default();
        let seal = CallDigest::for_call("", &CallArguments::new(), &bound);
        Self {
            call,
            digest: seal,
            preconditions: bound,
            read_only: false,
            remaining_limits: TaskLimits::default(),
            shared_budget: SharedBudget::default(),
        }
    }

    /// What a model is told whose call has become another one, if it has.
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
                 if it is still right; it will be judged anew."
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_seal_is_broken_by_any_change() {
        let arguments = |value: serde_json::Value| value.as_object().unwrap().clone();
        let of = |tool: &str, value: serde_json::Value, things: &[(&str, &str)]| {
            let mut bound = Preconditions::default();
            things
                .iter()
                .for_each(|(thing, state)| bound.insert(*thing, *state));
            CallDigest::for_call(tool, &arguments(value), &bound)
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
    fn what_changed_is_named() {
        let (mut old, mut new) = (Preconditions::default(), Preconditions::default());
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
