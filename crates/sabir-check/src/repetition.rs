//! Counts how often a model has made the same mistake.
//!
//! Feedback that did not help once seldom helps again. The owner of a conversation keeps a [`MistakeCounter`], passes it to
//! [`render_feedback`](crate::render_feedback), and records the outcome of each message in it. The tracker depends on the
//! checked calls only, so it can be rebuilt from a recorded history.

use std::collections::{HashMap, HashSet};

use sabir_call::{Fault, FaultKind, Severity};

use crate::repair::shorten_text;

/// The largest number of mistakes that are tracked; further ones always count as new. The limit bounds memory for histories of any length,
/// and a model with more different mistakes is not repeating itself.
const MAX_MISTAKES: usize = 256;

/// The mistakes of a model so far, counted by tool, kind and argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MistakeCounter(HashMap<MistakeKey, u32>);

/// The outcome of one call of a message.
#[derive(Debug, Clone, Copy)]
pub struct CheckedOutcome<'a> {
    /// The tool; empty for faults that belong to no call.
    pub tool: &'a str,
    /// True if the call passed the checks.
    pub passed: bool,
    /// The call's faults; warnings do not count.
    pub faults: &'a [Fault],
}

/// The identity of a mistake. Value and position do not count, because another wrong value for the same argument repeats the mistake.
///
/// Names are shortened, since a model may write text of any length as a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MistakeKey {
    tool: String,
    kind: FaultKind,
    argument: Option<String>,
}

impl MistakeKey {
    /// Makes the key of a fault in a call of `tool`; an empty name means text outside calls.
    fn for_fault(tool: &str, fault: &Fault) -> Self {
        Self {
            tool: shorten_text(tool),
            kind: fault.kind,
            argument: fault.argument.as_deref().map(shorten_text),
        }
    }
}

impl MistakeCounter {
    /// Returns the number of messages with this mistake since a call of the tool last passed.
    pub fn repeat_count(&self, tool: &str, fault: &Fault) -> u32 {
        self.0
            .get(&MistakeKey::for_fault(tool, fault))
            .copied()
            .unwrap_or_default()
    }

    /// Records the calls of one message. A mistake counts once for each message, however many calls share it. A call that
    /// passed clears the mistakes of its tool, and those that belonged to no call.
    pub fn record_message<'a>(&mut self, message: impl IntoIterator<Item = CheckedOutcome<'a>>) {
        // Successes are applied first: a message with one good and one bad call of a tool begins
        // its count at one again, instead of clearing the mistake that it has just made.
        let (passed, stopped): (Vec<_>, Vec<_>) = message.into_iter().partition(|call| call.passed);
        let passed: HashSet<String> = passed.iter().map(|call| shorten_text(call.tool)).collect();
        if !passed.is_empty() {
            self.0
                .retain(|mistake, _| !mistake.tool.is_empty() && !passed.contains(&mistake.tool));
        }
        let errors = stopped.iter().flat_map(|call| {
            let errors = call
                .faults
                .iter()
                .filter(|fault| fault.severity == Severity::Error);
            errors.map(|fault| MistakeKey::for_fault(call.tool, fault))
        });
        // A set, so that five calls with one mistake do not count as five attempts to correct it.
        for mistake in errors.collect::<HashSet<_>>() {
            if self.0.len() < MAX_MISTAKES || self.0.contains_key(&mistake) {
                let count = self.0.entry(mistake).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::{Fault, FaultKind, Severity, Span};

    use super::{CheckedOutcome, MAX_MISTAKES, MistakeCounter};

    fn fault(argument: &str) -> Fault {
        Fault::error(FaultKind::WrongType, Span::default(), "m").in_argument(argument)
    }

    #[test]
    fn mistakes_are_counted_by_message_and_cleared_by_success() {
        let faults = [
            fault("a"),
            fault("a"),
            Fault {
                severity: Severity::Warning,
                ..fault("w")
            },
        ];
        let (bad, good) = (
            CheckedOutcome {
                tool: "t",
                passed: false,
                faults: &faults,
            },
            CheckedOutcome {
                tool: "t",
                passed: true,
                faults: &[],
            },
        );
        let mut told = MistakeCounter::default();
        told.record_message([bad, bad]);
        told.record_message([
            bad,
            CheckedOutcome { tool: "u", ..bad },
            CheckedOutcome { tool: "", ..bad },
        ]);
        assert_eq!(
            (
                told.repeat_count("t", &fault("a")),
                told.repeat_count("u", &fault("a")),
                told.repeat_count("", &fault("a"))
            ),
            (2, 1, 1)
        );
        assert_eq!(
            (
                told.repeat_count("t", &fault("b")),
                told.repeat_count("t", &fault("w"))
            ),
            (0, 0)
        );
        told.record_message([good]);
        assert_eq!(
            (
                told.repeat_count("t", &fault("a")),
                told.repeat_count("u", &fault("a")),
                told.repeat_count("", &fault("a"))
            ),
            (0, 1, 0)
        );
        told.record_message([good, bad]);
        assert_eq!(told.repeat_count("t", &fault("a")), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut told = MistakeCounter::default();
        for number in 0..2 * MAX_MISTAKES {
            told.record_message([CheckedOutcome {
                tool: "t",
                passed: false,
                faults: &[fault(&format!("{number}{}", "x".repeat(1000)))],
            }]);
        }
        assert_eq!(told.0.len(), MAX_MISTAKES);
        assert!(told.0.keys().all(|mistake| {
            mistake
                .argument
                .as_ref()
                .is_some_and(|name| name.len() < 300)
        }));
    }
}
