//! Repetition: how often a model has been told of the same mistake.
//!
//! Words that did not help once seldom help again. Whoever speaks to a model keeps a [`Repetition`], asks
//! [`feedback`](crate::feedback) with it, and notes in it what a message held. It follows from the checked calls alone, so
//! whoever keeps those can build it anew.

use std::collections::{HashMap, HashSet};

use sabir_call::{Fault, FaultKind, Severity};

use crate::repair::shortened;

/// The most mistakes that are remembered; further ones always count as new.
const MOST: usize = 256;

/// The mistakes that a model has been told of, counted by tool, kind and argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repetition(HashMap<Mistake, u32>);

/// What came of one call of a message.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The tool; empty for faults that belong to no call.
    pub tool: &'a str,
    /// Whether the call passed the gates.
    pub passed: bool,
    /// Its faults; warnings do not count.
    pub faults: &'a [Fault],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Mistake {
    tool: String,
    kind: FaultKind,
    argument: Option<String>,
}

impl Mistake {
    fn of(tool: &str, fault: &Fault) -> Self {
        Self { tool: shortened(tool), kind: fault.kind, argument: fault.argument.as_deref().map(shortened) }
    }
}

impl Repetition {
    /// In how many messages this mistake was noted since a call of the tool last passed.
    pub fn times(&self, tool: &str, fault: &Fault) -> u32 {
        self.0.get(&Mistake::of(tool, fault)).copied().unwrap_or_default()
    }

    /// Notes one message. A mistake counts once, however many of its calls share it. A call that passed clears what was
    /// noted of its tool, and of faults that belonged to no call.
    pub fn note<'a>(&mut self, message: impl IntoIterator<Item = Told<'a>>) {
        let (passed, stopped): (Vec<_>, Vec<_>) = message.into_iter().partition(|told| told.passed);
        let passed: HashSet<String> = passed.iter().map(|told| shortened(told.tool)).collect();
        if !passed.is_empty() {
            self.0.retain(|mistake, _| !mistake.tool.is_empty() && !passed.contains(&mistake.tool));
        }
        let errors = stopped.iter().flat_map(|told| {
            let errors = told.faults.iter().filter(|fault| fault.severity == Severity::Error);
            errors.map(|fault| Mistake::of(told.tool, fault))
        });
        for mistake in errors.collect::<HashSet<_>>() {
            if self.0.len() < MOST || self.0.contains_key(&mistake) {
                let count = self.0.entry(mistake).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::{Fault, FaultKind, Severity, Span};

    use super::{MOST, Repetition, Told};

    fn fault(argument: &str) -> Fault {
        Fault::error(FaultKind::WrongType, Span::default(), "m").in_argument(argument)
    }

    #[test]
    fn mistakes_are_counted_by_message_and_cleared_by_success() {
        let faults = [fault("a"), fault("a"), Fault { severity: Severity::Warning, ..fault("w") }];
        let (bad, good) =
            (Told { tool: "t", passed: false, faults: &faults }, Told { tool: "t", passed: true, faults: &[] });
        let mut told = Repetition::default();
        told.note([bad, bad]);
        told.note([bad, Told { tool: "u", ..bad }, Told { tool: "", ..bad }]);
        assert_eq!(
            (told.times("t", &fault("a")), told.times("u", &fault("a")), told.times("", &fault("a"))),
            (2, 1, 1)
        );
        assert_eq!((told.times("t", &fault("b")), told.times("t", &fault("w"))), (0, 0));
        told.note([good]);
        assert_eq!(
            (told.times("t", &fault("a")), told.times("u", &fault("a")), told.times("", &fault("a"))),
            (0, 1, 0)
        );
        told.note([good, bad]);
        assert_eq!(told.times("t", &fault("a")), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut told = Repetition::default();
        for number in 0..2 * MOST {
            told.note([Told { tool: "t", passed: false, faults: &[fault(&format!("{number}{}", "x".repeat(1000)))] }]);
        }
        assert_eq!(told.0.len(), MOST);
        assert!(told.0.keys().all(|mistake| mistake.argument.as_ref().is_some_and(|name| name.len() < 300)));
    }
}
