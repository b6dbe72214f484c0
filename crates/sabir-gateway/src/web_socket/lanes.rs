//! Holds the requests of a connection in their order, and its running answers.
//!
//! Requests of one lane (`stream_id`, or none) are answered one after the other, in the order in
//! which they came; requests of different lanes at the same time. The numbers are those of OpenAI's
//! guide: 16 answers at a time, 32 named lanes, and more requests wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};

use super::client_message::CreateMessage;
use super::message_refusal::MessageRefusal;
use crate::request_body::BodyShare;

/// The most answers of one connection at a time.
const MAX_ANSWERS: usize = 16;

/// The most lanes with names.
pub(crate) const MAX_STREAMS: usize = 32;

/// The most requests that wait for their turn. The guide names no number.
pub(crate) const MAX_WAITING: usize = 64;

/// The messages of an answer, as many as came together.
pub(crate) type AnswerEvents = Pin<Box<dyn Stream<Item = Vec<String>> + Send>>;

/// The lanes of a connection.
#[derive(Default)]
pub(crate) struct LaneSet {
    /// The lanes that were used so far.
    lanes: Vec<Lane>,
    /// The requests that wait for their turn, oldest first.
    waiting: VecDeque<WaitingRequest>,
    /// The lane whose answer is polled first, so that none waits for another one that is always ready.
    first: usize,
}

/// A lane.
struct Lane {
    /// The name; `None` for the default lane.
    stream_id: Option<String>,
    /// The answer that is running.
    answer: Option<AnswerEvents>,
}

/// A request that waits for its turn.
pub(crate) struct WaitingRequest {
    /// The place of its lane.
    lane: usize,
    /// The request.
    pub(crate) message: CreateMessage,
    /// The memory that it takes.
    share: BodyShare,
}

impl LaneSet {
    /// Queues a request. With those that wait already it may have `max_bytes`.
    ///
    /// # Errors
    /// There are too many lanes, or too many requests that wait.
    pub(crate) fn enqueue(
        &mut self,
        message: CreateMessage,
        share: BodyShare,
        max_bytes: usize,
    ) -> Result<(), MessageRefusal> {
        let waiting: usize = self
            .waiting
            .iter()
            .map(|other| other.message.body.len())
            .sum();
        let is_full = waiting.saturating_add(message.body.len()) > max_bytes;
        if self.waiting.len() >= MAX_WAITING || is_full {
            return Err(MessageRefusal::TooManyWaiting);
        }
        let known = self
            .lanes
            .iter()
            .position(|lane| lane.stream_id == message.stream_id);
        let lane = match known {
            Some(lane) => lane,
            None => {
                let named = self.lanes.iter().filter(|lane| lane.stream_id.is_some());
                if message.stream_id.is_some() && named.count() >= MAX_STREAMS {
                    return Err(MessageRefusal::TooManyStreams);
                }
                self.lanes.push(Lane {
                    stream_id: message.stream_id.clone(),
                    answer: None,
                });
                self.lanes.len() - 1
            }
        };
        self.waiting.push_back(WaitingRequest {
            lane,
            message,
            share,
        });
        Ok(())
    }

    /// Starts the answers of all requests that need not wait any longer.
    pub(crate) fn start_answers(
        &mut self,
        start: impl Fn(CreateMessage, BodyShare) -> AnswerEvents,
    ) {
        let mut running = self.running();
        let mut at = 0;
        while let Some(request) = self.waiting.get(at).filter(|_| running < MAX_ANSWERS) {
            let is_free = self
                .lanes
                .get(request.lane)
                .is_some_and(|lane| lane.answer.is_none());
            if !is_free {
                at += 1;
                continue;
            }
            if let Some(request) = self.waiting.remove(at)
                && let Some(lane) = self.lanes.get_mut(request.lane)
            {
                lane.answer = Some(start(request.message, request.share));
                running += 1;
            }
        }
    }

    /// Returns the number of running answers.
    fn running(&self) -> usize {
        self.lanes
            .iter()
            .filter(|lane| lane.answer.is_some())
            .count()
    }

    /// Returns true if no answer is running and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running() == 0
    }

    /// Takes all requests out that wait.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<WaitingRequest> {
        std::mem::take(&mut self.waiting)
    }

    /// Polls the running answers for the next messages. An answer that has ended gives none.
    pub(crate) fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Vec<String>> {
        let count = self.lanes.len();
        for step in 0..count {
            let place = (self.first + step) % count;
            let Some(lane) = self.lanes.get_mut(place) else {
                continue;
            };
            let Some(answer) = &mut lane.answer else {
                continue;
            };
            if let Poll::Ready(events) = answer.poll_next_unpin(context) {
                if events.is_none() {
                    lane.answer = None;
                }
                self.first = place + 1;
                return Poll::Ready(events.unwrap_or_default());
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use axum::body::Bytes;
    use futures_util::stream;

    use super::*;

    fn message(stream_id: &str, body: &str) -> CreateMessage {
        CreateMessage {
            stream_id: Some(stream_id.to_owned()).filter(|id| !id.is_empty()),
            body: Bytes::from(body.to_owned()),
            generates: true,
            trace_parent: None,
        }
    }

    fn enqueue(lanes: &mut LaneSet, stream_id: &str, body: &str) -> Result<(), MessageRefusal> {
        lanes.enqueue(message(stream_id, body), BodyShare::default(), 1 << 10)
    }

    /// Answers with the body of the request.
    fn repeat(message: CreateMessage, _: BodyShare) -> AnswerEvents {
        let text = String::from_utf8_lossy(&message.body).into_owned();
        stream::iter([vec![text]]).boxed()
    }

    /// Starts what can start, and returns the next events.
    fn step(lanes: &mut LaneSet) -> Option<Vec<String>> {
        lanes.start_answers(repeat);
        match lanes.poll_events(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(events) => Some(events),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_lane_answers_in_order_and_lanes_take_turns() {
        let mut lanes = LaneSet::default();
        for (stream_id, body) in [("", "d1"), ("a", "a1"), ("a", "a2"), ("", "d2")] {
            enqueue(&mut lanes, stream_id, body).unwrap();
        }
        let mut all = Vec::new();
        while let Some(events) = step(&mut lanes) {
            all.extend(events);
        }
        assert_eq!(all, ["d1", "a1", "d2", "a2"]);
        assert!(lanes.is_idle());
    }

    #[test]
    fn requests_beyond_the_limits_wait_or_are_refused() {
        let mut lanes = LaneSet::default();
        for number in 0..MAX_STREAMS {
            enqueue(&mut lanes, &format!("s{number}"), "x").unwrap();
        }
        let refused = enqueue(&mut lanes, "one-more", "x");
        assert_eq!(refused, Err(MessageRefusal::TooManyStreams));
        enqueue(&mut lanes, "", "x").unwrap();
        enqueue(&mut lanes, "s0", "x").unwrap();
        lanes.start_answers(|_, _| stream::pending().boxed());
        assert_eq!(
            (lanes.running(), lanes.waiting.len()),
            (MAX_ANSWERS, MAX_STREAMS + 2 - MAX_ANSWERS)
        );
        while lanes.waiting.len() < MAX_WAITING {
            enqueue(&mut lanes, "s1", "x").unwrap();
        }
        let refused = enqueue(&mut lanes, "s1", "x");
        assert_eq!(refused, Err(MessageRefusal::TooManyWaiting));
        assert!(!lanes.is_idle());
    }

    #[test]
    fn requests_that_wait_have_a_limit_of_bytes() {
        let mut lanes = LaneSet::default();
        enqueue(&mut lanes, "a", &"x".repeat(1000)).unwrap();
        let refused = enqueue(&mut lanes, "b", &"x".repeat(25));
        assert_eq!(refused, Err(MessageRefusal::TooManyWaiting));
        enqueue(&mut lanes, "b", &"x".repeat(24)).unwrap();
    }
}
