//! Cycles: detects the same calls made again and again with the same results.
//!
//! A call counts with its result, so any difference (another output, another file content, another
//! failure) is progress and ends a cycle. The calls of a cycle may have changed files; exact
//! repetition leaves them as they were before. Polling is not a repetition
//! ([`Tool::is_polling`](crate::Tool::is_polling)).
//!
//! For each period of up to [`MAX_PERIOD`] calls, the detector counts how many calls in a row
//! equalled the one that many calls before. This takes a few comparisons for each call, and only
//! the last calls are kept.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use sabir_call::{Call, CallResult, ToolResultStatus};

use super::{Task, TaskEffect};

/// The longest cycle that is detected, in calls.
const MAX_PERIOD: usize = 4;
/// The number of rounds at which the model is first reminded.
const REMINDER_THRESHOLD: u32 = 3;

/// The repetitions among the last calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CycleDetector {
    /// The fingerprints of the last calls, the newest first.
    recent_calls: VecDeque<u64>,
    /// For each period, the number of consecutive calls that equalled the call one period earlier.
    repeats_by_period: [u32; MAX_PERIOD],
    /// The fingerprint of the last polling call.
    polled: Option<u64>,
    /// The number of rounds when the model was last reminded.
    announced_times: u32,
}

/// A cycle that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallCycle {
    /// The number of calls in a round.
    pub(super) calls: usize,
    /// The number of rounds.
    pub(super) times: u32,
}

impl CycleDetector {
    /// Notes a call by its fingerprint.
    fn note_call(&mut self, pair: u64) {
        for (equal, before) in self
            .repeats_by_period
            .iter_mut()
            .zip((0..MAX_PERIOD).map(|at| self.recent_calls.get(at)))
        {
            *equal = if before == Some(&pair) {
                equal.saturating_add(1)
            } else {
                0
            };
        }
        self.recent_calls.push_front(pair);
        self.recent_calls.truncate(MAX_PERIOD);
        if self
            .current_cycle()
            .is_none_or(|cycle| cycle.times < REMINDER_THRESHOLD)
        {
            // No cycle is under way any more: the next one gets its first reminder again.
            self.announced_times = 0;
        }
    }

    /// Notes a polling call by its fingerprint. One that found something new is progress.
    fn note_poll(&mut self, pair: u64) {
        if self.polled.replace(pair) != Some(pair) {
            *self = Self {
                polled: self.polled,
                ..Self::default()
            };
        }
    }

    /// Returns the cycle with the most rounds, the shortest among equals.
    pub(super) fn current_cycle(&self) -> Option<CallCycle> {
        let cycles = (1u32..)
            .zip(self.repeats_by_period)
            // The first round has nothing to equal, hence the one more.
            .map(|(period, equal)| (period, equal / period + 1));
        let (period, times) = cycles.max_by_key(|(period, times)| (*times, u32::MAX - period))?;
        (times > 1).then_some(CallCycle {
            calls: usize::try_from(period).unwrap_or(MAX_PERIOD),
            times,
        })
    }

    /// Notes that the model was reminded of the present cycle.
    pub(super) fn mark_announced(&mut self) {
        self.announced_times = self.current_cycle().map_or(0, |cycle| cycle.times);
    }
}

impl CallCycle {
    /// Returns the reminder for the model.
    fn reminder_text(self) -> String {
        let Self { calls, times } = self;
        let what = if calls == 1 {
            format!("The same call was made {times} times, with the same result each time")
        } else {
            format!(
                "The same {calls} calls were made {times} times one after the other, with the same results each time"
            )
        };
        format!(
            "{what}. Repeating it will bring nothing new: find out which of your assumptions is wrong, or try another way."
        )
    }

    /// Returns the reason for asking the user or ending the task.
    pub(super) fn stop_reason(self) -> String {
        let Self { calls, times } = self;
        if calls == 1 {
            format!("the same call was made {times} times with the same result")
        } else {
            format!("the same {calls} calls were made {times} times with the same results")
        }
    }
}

impl Task {
    /// Notes a call with its result.
    pub(super) fn note_cycle(&mut self, call: &Call, result: &CallResult) {
        // The interrupt came from outside, and says nothing about what the model does.
        if result.ending == ToolResultStatus::Interrupted {
            return;
        }
        // A deduplicated result counts as the one to which it refers, or saving tokens would hide a
        // cycle.
        let pair = call_fingerprint(call, self.transcript.original_result(call, result));
        if self.settings.polling_tools.contains(&call.name) {
            self.progress.cycles.note_poll(pair);
        } else {
            self.progress.cycles.note_call(pair);
        }
    }

    /// Reminds the model of a cycle that has completed another round.
    pub(super) fn remind_of_cycle(&mut self, effects: &mut Vec<TaskEffect>) {
        let cycles = &self.progress.cycles;
        if let Some(cycle) = cycles.current_cycle().filter(|cycle| {
            cycle.times >= REMINDER_THRESHOLD && cycle.times > cycles.announced_times
        }) {
            self.send_reminder(cycle.reminder_text(), effects);
        }
    }
}

/// Hashes a call with its result. The texts of checks and rules are left out, because they may vary.
fn call_fingerprint(call: &Call, result: &CallResult) -> u64 {
    // The hash has fixed keys and is never stored, so a replay makes the same comparisons even if
    // another version hashes differently.
    let mut hash = DefaultHasher::new();
    call.name.hash(&mut hash);
    serde_json::to_string(&call.arguments)
        .unwrap_or_default()
        .hash(&mut hash);
    std::mem::discriminant(&result.ending).hash(&mut hash);
    if matches!(
        result.ending,
        ToolResultStatus::Done | ToolResultStatus::Failed
    ) {
        result.content.hash(&mut hash);
        result
            .images
            .iter()
            .for_each(|image| image.data.hash(&mut hash));
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the cycle of a series: letters are calls with their results, `?` a poll that finds
    /// nothing new, `!` one that does.
    #[track_caller]
    fn check(calls: &str, expected: Option<(usize, u32)>) {
        let mut cycles = CycleDetector::default();
        let mut news = 0;
        for call in calls.chars() {
            match call {
                '?' => cycles.note_poll(news),
                '!' => {
                    news += 1;
                    cycles.note_poll(news);
                }
                other => cycles.note_call(u64::from(u32::from(other))),
            }
        }
        assert_eq!(
            cycles
                .current_cycle()
                .map(|cycle| (cycle.calls, cycle.times)),
            expected,
            "{calls}"
        );
    }

    #[test]
    fn cycles_of_up_to_four_calls_are_detected() {
        check("", None);
        check("abcdef", None);
        check("aa", Some((1, 2)));
        check("aaa", Some((1, 3)));
        check("xabab", Some((2, 2)));
        check("ababab", Some((2, 3)));
        check("ababa", Some((2, 2)));
        check("abcabcabc", Some((3, 3)));
        check("abcdabcdabcd", Some((4, 3)));
        check("abcdeabcdeabcde", None);
        check("aaab", None);
        check("aabaab", Some((3, 2)));
    }

    #[test]
    fn new_results_and_polling_are_no_repetition() {
        check("aab", None);
        check("?????", None);
        // The first look is news.
        check("a?a?a", Some((1, 2)));
        check("?a?a?a", Some((1, 3)));
        check("a!a!a", None);
        check("aaa!", None);
    }
}
