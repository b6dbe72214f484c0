//! Decides which checkpoint is compared with the folder next.

use crate::picker::CheckpointedCall;

/// The comparisons of checkpoints that were asked for. At most one runs, and only the newest request waits: a comparison of a large
/// folder takes seconds, and holding an arrow key down asks for dozens.
#[derive(Debug, Default)]
pub(crate) struct ComparisonQueue {
    running: Option<CheckpointedCall>,
    waiting: Option<CheckpointedCall>,
}

impl ComparisonQueue {
    /// Asks for a comparison. Returns the one to start now.
    pub(crate) fn request(&mut self, call: CheckpointedCall) -> Option<CheckpointedCall> {
        match &self.running {
            None => {
                self.running = Some(call.clone());
                Some(call)
            }
            Some(running) => {
                // The running comparison already answers it; a selection made in between is
                // obsolete.
                self.waiting = (*running != call).then_some(call);
                None
            }
        }
    }

    /// Notes that the comparison has ended. Returns the one to start now.
    pub(crate) fn finish(&mut self) -> Option<CheckpointedCall> {
        self.running = self.waiting.take();
        self.running.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32) -> CheckpointedCall {
        CheckpointedCall {
            number,
            call: number.to_string(),
        }
    }

    #[test]
    fn one_comparison_runs_and_the_newest_waits() {
        let mut queue = ComparisonQueue::default();
        assert_eq!(queue.request(call(1)), Some(call(1)));
        for number in 2..100 {
            assert_eq!(queue.request(call(number)), None);
        }
        assert_eq!(queue.finish(), Some(call(99)));
        assert_eq!(queue.request(call(98)), None);
        // Back at the row whose comparison runs.
        assert_eq!(queue.request(call(99)), None);
        assert_eq!(queue.finish(), None);
        assert_eq!(queue.request(call(98)), Some(call(98)));
    }
}
