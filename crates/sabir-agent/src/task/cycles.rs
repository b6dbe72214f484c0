//! Cycles: the same calls again and again, with the same results.
//!
//! A call counts with its result, so whatever makes a difference (another output, another file content, another failure) is progress
//! and ends a cycle. The calls of a cycle may well have changed files; what is repeated exactly leaves them as they were before. Looking
//! whether something has happened is no repetition ([`Tool::is_polling`](crate::Tool::is_polling)).
//!
//! For each period of up to [`MAX_PERIOD`] calls it is counted how many calls in a row equalled the one that period before; that is a
//! few comparisons a call, and nothing but the last calls is kept.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use sabir_call::{Call, CallResult, ToolResultStatus};

use super::{Task, TaskEffect};

/// The longest cycle that is seen, in calls.
const MAX_PERIOD: usize = 4;
/// From so many times on the model is told.
const REMINDER_THRESHOLD: u32 = 3;

/// What has come round, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CycleDetector {
    /// The last calls with their results, the newest first.
    recent_calls: VecDeque<u64>,
    /// For each period, how many calls in a row equalled the one before.
    repeats_by_period: [u32; MAX_PERIOD],
    /// The last result of a call that only looked whether something has happened.
    polled: Option<u64>,
    /// How often a cycle had come round when the model was last told of it.
    announced_times: u32,
}

/// A cycle that is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallCycle {
    /// How many calls it has.
    pub(super) calls: usize,
    /// How often they were made.
    pub(super) times: u32,
}

impl CycleDetector {
    /// Takes a call with its result.
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
            self.announced_times = 0;
        }
    }

    /// Takes a call that only looked: one that found something new is progress.
    fn note_poll(&mut self, pair: u64) {
        if self.polled.replace(pair) != Some(pair) {
            *self = Self {
                polled: self.polled,
                ..Self::default()
            };
        }
    }

    /// The cycle that came round most often, the shortest among equals.
    pub(super) fn current_cycle(&self) -> Option<CallCycle> {
        let cycles = (1u32..)
            .zip(self.repeats_by_period)
            .map(|(period, equal)| (period, equal / period + 1));
        let (period, times) = cycles.max_by_key(|(period, times)| (*times, u32::MAX - period))?;
        (times > 1).then_some(CallCycle {
            calls: usize::try_from(period).unwrap_or(MAX_PERIOD),
            times,
        })
    }

    /// The model has been told of what is going on.
    pub(super) fn mark_announced(&mut self) {
        self.announced_times = self.current_cycle().map_or(0, |cycle| cycle.times);
    }
}

impl CallCycle {
    /// What the model is told.
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
            "{what}. Another time will bring nothing new: find out what is different from what you think, or try another way."
        )
    }

    /// Why the user is asked, or the task ends.
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
        if result.ending == ToolResultStatus::Interrupted {
            return;
        }
        let pair = call_fingerprint(call, self.transcript.original_result(call, result));
        if self.settings.polling_tools.contains(&call.name) {
            self.counters.cycles.note_poll(pair);
        } else {
            self.counters.cycles.note_call(pair);
        }
    }

    /// Tells the model of a cycle that has come round once more.
    pub(super) fn remind_of_cycle(&mut self, effects: &mut Vec<TaskEffect>) {
        let cycles = &self.counters.cycles;
        if let Some(cycle) = cycles.current_cycle().filter(|cycle| {
            cycle.times >= REMINDER_THRESHOLD && cycle.times > cycles.announced_times
        }) {
            self.send_reminder(cycle.reminder_text(), effects);
        }
    }
}

/// A call and its result as one number. What a gate or a rule says of a call may change its words from time to time.
fn call_fingerprint(call: &Call, result: &CallResult) -> u64 {
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

    /// Letters are calls with their results; `?` a look that finds nothing new, `!` one that does.
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
    fn cycles_are_seen_whatever_their_period() {
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
    fn what_is_new_is_progress_and_looking_is_no_repetition() {
        check("aab", None);
        check("?????", None);
        // The first look is news.
        check("a?a?a", Some((1, 2)));
        check("?a?a?a", Some((1, 3)));
        check("a!a!a", None);
        check("aaa!", None);
    }
}
