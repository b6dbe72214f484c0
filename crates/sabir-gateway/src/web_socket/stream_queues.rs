//! Holds the requests of a connection in their order, and its running answers.
//!
//! Requests of one queue (`stream_id`, or none) are answered one after the other, in the order in
//! which they came; requests of different queues at the same time. The numbers are those of OpenAI's
//! guide: 16 answers at a time, 32 named queues, and more requests wait.
//!
//! An error for a message takes its turn too: clients take an error event for the end of the answer
//! that is running in the queue, and count ends to find out which request is meant.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};

use super::client_message::CreateMessage;
use super::message_refusal::MessageRefusal;
use crate::request_body::BodyShare;

/// The most answers of one connection at a time.
const MAX_ANSWERS: usize = 16;

/// The most queues with names.
pub(crate) const MAX_STREAMS: usize = 32;

/// The most requests that wait for their turn. The guide names no number.
pub(crate) const MAX_WAITING: usize = 64;

/// The most errors that wait for their turn.
pub(crate) const MAX_WAITING_ERRORS: usize = 64;

/// The parts of an answer.
pub(crate) type AnswerParts = Pin<Box<dyn Stream<Item = AnswerPart> + Send>>;

/// The messages of an answer that came together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerPart {
    /// The messages.
    pub(crate) messages: Vec<String>,
    /// The end of the answer, in its last part.
    pub(crate) end: Option<AnswerEnd>,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    /// It was answered or refused.
    Ended,
    /// It was refused because the client's token or key is not valid any more.
    Unauthorized,
}

/// The queues of a connection.
#[derive(Default)]
pub(crate) struct StreamQueues {
    /// The queues that were used so far.
    queues: Vec<StreamQueue>,
    /// The requests and errors that wait for their turn, oldest first.
    waiting: VecDeque<WaitingItem>,
    /// The queue whose answer is polled first, so that none waits for another one that is always ready.
    first: usize,
}

/// The requests of one `stream_id`, of which one is answered at a time.
struct StreamQueue {
    /// The name; `None` for the default queue.
    stream_id: Option<String>,
    /// The answer that is running.
    answer: Option<AnswerParts>,
    /// True after the last part of that answer, until its request is settled.
    is_settling: bool,
}

/// Something that waits for its turn in a queue.
struct WaitingItem {
    /// The position of its queue.
    queue: usize,
    /// The content.
    content: WaitingContent,
}

/// The content of something that waits.
enum WaitingContent {
    /// A request, with the memory that it takes.
    Request(CreateMessage, BodyShare),
    /// An error event.
    Error(String),
    /// The error event of a request that waited, and will not be answered any more.
    Replaced(String),
}

/// An error that cannot wait, because too many errors wait already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyErrors;

impl StreamQueues {
    /// Queues a request. With those that wait already it may have `max_bytes`.
    ///
    /// # Errors
    /// There are too many queues, or too many requests that wait.
    pub(crate) fn enqueue(
        &mut self,
        message: CreateMessage,
        share: BodyShare,
        max_bytes: usize,
    ) -> Result<(), MessageRefusal> {
        let requests = || self.waiting.iter().filter_map(WaitingItem::request);
        let waiting: usize = requests().map(|other| other.body.len()).sum();
        let is_full = waiting.saturating_add(message.body.len()) > max_bytes;
        if requests().count() >= MAX_WAITING || is_full {
            return Err(MessageRefusal::TooManyWaiting);
        }
        let queue = match self.find_stream_queue(message.stream_id.as_deref()) {
            Some(queue) => queue,
            None => {
                let named = self.queues.iter().filter(|queue| queue.stream_id.is_some());
                if message.stream_id.is_some() && named.count() >= MAX_STREAMS {
                    return Err(MessageRefusal::TooManyStreams);
                }
                self.queues.push(StreamQueue {
                    stream_id: message.stream_id.clone(),
                    answer: None,
                    is_settling: false,
                });
                self.queues.len() - 1
            }
        };
        let content = WaitingContent::Request(message, share);
        self.waiting.push_back(WaitingItem { queue, content });
        Ok(())
    }

    /// Queues an error event in a queue. Returns the event if it need not wait.
    ///
    /// # Errors
    /// Too many errors wait.
    pub(crate) fn enqueue_error(
        &mut self,
        stream_id: Option<&str>,
        event: String,
    ) -> Result<Option<String>, TooManyErrors> {
        let is_busy = |queue: &usize| {
            self.queues
                .get(*queue)
                .is_some_and(|queue| queue.answer.is_some() && !queue.is_settling)
                || self.waiting.iter().any(|item| item.queue == *queue)
        };
        let Some(queue) = self.find_stream_queue(stream_id).filter(is_busy) else {
            return Ok(Some(event));
        };
        // Not those of requests that waited: the client cannot know yet that it must send no more.
        let errors = self
            .waiting
            .iter()
            .filter(|item| matches!(item.content, WaitingContent::Error(_)));
        if errors.count() >= MAX_WAITING_ERRORS {
            return Err(TooManyErrors);
        }
        let content = WaitingContent::Error(event);
        self.waiting.push_back(WaitingItem { queue, content });
        Ok(None)
    }

    /// Returns the position of the queue with a name.
    fn find_stream_queue(&self, stream_id: Option<&str>) -> Option<usize> {
        self.queues
            .iter()
            .position(|queue| queue.stream_id.as_deref() == stream_id)
    }

    /// Starts the answers of all requests that need not wait any longer.
    pub(crate) fn start_answers(
        &mut self,
        start: impl Fn(CreateMessage, BodyShare) -> AnswerParts,
    ) {
        // A key may allow no other request until the one that has ended is settled.
        let is_settling = self.queues.iter().any(|queue| queue.is_settling);
        let mut running = self.running();
        let mut passed = Vec::new();
        let mut at = 0;
        while let Some(item) = self.waiting.get(at) {
            let may_run = item.request().is_none() || running < MAX_ANSWERS && !is_settling;
            let is_free = self
                .queues
                .get(item.queue)
                .is_some_and(|queue| queue.answer.is_none());
            if !is_free || !may_run || passed.contains(&item.queue) {
                // What follows in the same queue must not overtake it.
                passed.push(item.queue);
                at += 1;
                continue;
            }
            let Some(item) = self.waiting.remove(at) else {
                return;
            };
            let answer = match item.content {
                WaitingContent::Request(message, share) => start(message, share),
                WaitingContent::Error(event) | WaitingContent::Replaced(event) => {
                    stream::iter([AnswerPart {
                        messages: vec![event],
                        end: Some(AnswerEnd::Ended),
                    }])
                    .boxed()
                }
            };
            if let Some(queue) = self.queues.get_mut(item.queue) {
                queue.answer = Some(answer);
                running += 1;
            }
        }
    }

    /// Returns the number of running answers.
    fn running(&self) -> usize {
        self.queues
            .iter()
            .filter(|queue| queue.answer.is_some())
            .count()
    }

    /// Returns true if no answer is running and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running() == 0
    }

    /// Returns the names of the queues of all requests that wait, oldest first.
    pub(crate) fn waiting_streams(&self) -> Vec<Option<String>> {
        let requests = self.waiting.iter().filter_map(WaitingItem::request);
        requests.map(|request| request.stream_id.clone()).collect()
    }

    /// Replaces all requests that wait by error events, of which there is one for each.
    pub(crate) fn refuse_waiting(&mut self, events: Vec<String>) {
        let requests = self.waiting.iter_mut();
        let requests = requests.filter(|item| item.request().is_some());
        for (item, event) in requests.zip(events) {
            item.content = WaitingContent::Replaced(event);
        }
    }

    /// Polls the running answers for the next part. An answer that is settled gives an empty one.
    pub(crate) fn poll_parts(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart> {
        let count = self.queues.len();
        for step in 0..count {
            let position = (self.first + step) % count;
            let Some(queue) = self.queues.get_mut(position) else {
                continue;
            };
            let Some(answer) = &mut queue.answer else {
                continue;
            };
            if let Poll::Ready(part) = answer.poll_next_unpin(context) {
                if part.is_none() {
                    queue.answer = None;
                }
                queue.is_settling = part.as_ref().is_some_and(|part| part.end.is_some());
                self.first = position + 1;
                return Poll::Ready(part.unwrap_or_default());
            }
        }
        Poll::Pending
    }
}

impl WaitingItem {
    /// Returns the request, unless it is an error.
    fn request(&self) -> Option<&CreateMessage> {
        match &self.content {
            WaitingContent::Request(message, _) => Some(message),
            WaitingContent::Error(_) | WaitingContent::Replaced(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use axum::body::Bytes;

    use super::*;

    fn message(stream_id: &str, body: &str) -> CreateMessage {
        CreateMessage {
            stream_id: Some(stream_id.to_owned()).filter(|id| !id.is_empty()),
            body: Bytes::from(body.to_owned()),
            generates: true,
            trace_parent: None,
        }
    }

    fn enqueue(
        queues: &mut StreamQueues,
        stream_id: &str,
        body: &str,
    ) -> Result<(), MessageRefusal> {
        queues.enqueue(message(stream_id, body), BodyShare::default(), 1 << 10)
    }

    /// Answers with the body of the request.
    fn repeat(message: CreateMessage, _: BodyShare) -> AnswerParts {
        let text = String::from_utf8_lossy(&message.body).into_owned();
        stream::iter([last_part(text)]).boxed()
    }

    fn last_part(text: String) -> AnswerPart {
        AnswerPart {
            messages: vec![text],
            end: Some(AnswerEnd::Ended),
        }
    }

    fn poll(queues: &mut StreamQueues) -> Option<Vec<String>> {
        match queues.poll_parts(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(part) => Some(part.messages),
            Poll::Pending => None,
        }
    }

    /// Starts what can start, and returns the next messages.
    fn step(queues: &mut StreamQueues) -> Option<Vec<String>> {
        queues.start_answers(repeat);
        poll(queues)
    }

    /// Runs all answers, and returns their messages.
    fn run(queues: &mut StreamQueues) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(messages) = step(queues) {
            all.extend(messages);
        }
        all
    }

    #[test]
    fn a_stream_answers_in_order_and_streams_take_turns() {
        let mut queues = StreamQueues::default();
        for (stream_id, body) in [("", "d1"), ("a", "a1"), ("a", "a2"), ("", "d2")] {
            enqueue(&mut queues, stream_id, body).unwrap();
        }
        assert_eq!(run(&mut queues), ["d1", "a1", "d2", "a2"]);
        assert!(queues.is_idle());
    }

    #[test]
    fn errors_take_their_turn() {
        let mut queues = StreamQueues::default();
        let at_once = queues.enqueue_error(None, "e0".to_owned());
        assert_eq!(at_once, Ok(Some("e0".to_owned())));
        enqueue(&mut queues, "", "d1").unwrap();
        queues.start_answers(repeat);
        assert_eq!(queues.enqueue_error(None, "e1".to_owned()), Ok(None));
        let other = queues.enqueue_error(Some("a"), "e2".to_owned());
        assert_eq!(other, Ok(Some("e2".to_owned())));
        enqueue(&mut queues, "", "d2").unwrap();
        for number in 1..MAX_WAITING_ERRORS {
            let event = format!("x{number}");
            assert_eq!(queues.enqueue_error(None, event), Ok(None));
        }
        let refused = queues.enqueue_error(None, "x".to_owned());
        assert_eq!(refused, Err(TooManyErrors));
        assert_eq!(run(&mut queues)[..4], ["d1", "e1", "d2", "x1"]);
        // The client has got the end of the answer that is settling.
        queues.start_answers(repeat);
        enqueue(&mut queues, "", "d3").unwrap();
        assert_eq!(step(&mut queues), Some(vec!["d3".to_owned()]));
        let at_once = queues.enqueue_error(None, "e3".to_owned());
        assert_eq!(at_once, Ok(Some("e3".to_owned())));
    }

    #[test]
    fn errors_do_not_overtake_requests_that_wait_for_other_streams() {
        let mut queues = StreamQueues::default();
        for number in 0..MAX_ANSWERS {
            enqueue(&mut queues, &format!("s{number}"), "x").unwrap();
        }
        enqueue(&mut queues, "a", "a1").unwrap();
        queues.start_answers(|_, _| stream::pending().boxed());
        assert_eq!(queues.enqueue_error(Some("a"), "e".to_owned()), Ok(None));
        assert_eq!(step(&mut queues), None);
        assert_eq!(queues.waiting.len(), 2);
    }

    #[test]
    fn nothing_starts_until_the_request_before_is_settled() {
        let mut queues = StreamQueues::default();
        for (stream_id, body) in [("", "d1"), ("", "d2")] {
            enqueue(&mut queues, stream_id, body).unwrap();
        }
        queues.start_answers(|message, _| {
            let text = String::from_utf8_lossy(&message.body).into_owned();
            let settled = stream::pending();
            stream::iter([last_part(text)]).chain(settled).boxed()
        });
        assert_eq!(poll(&mut queues), Some(vec!["d1".to_owned()]));
        enqueue(&mut queues, "a", "a1").unwrap();
        assert_eq!(step(&mut queues), None);
        assert_eq!((queues.running(), queues.waiting.len()), (1, 2));
    }

    #[test]
    fn requests_beyond_the_limits_wait_or_are_refused() {
        let mut queues = StreamQueues::default();
        for number in 0..MAX_STREAMS {
            enqueue(&mut queues, &format!("s{number}"), "x").unwrap();
        }
        let refused = enqueue(&mut queues, "one-more", "x");
        assert_eq!(refused, Err(MessageRefusal::TooManyStreams));
        enqueue(&mut queues, "", "x").unwrap();
        enqueue(&mut queues, "s0", "x").unwrap();
        queues.start_answers(|_, _| stream::pending().boxed());
        assert_eq!(
            (queues.running(), queues.waiting.len()),
            (MAX_ANSWERS, MAX_STREAMS + 2 - MAX_ANSWERS)
        );
        while queues.waiting.len() < MAX_WAITING {
            enqueue(&mut queues, "s1", "x").unwrap();
        }
        let refused = enqueue(&mut queues, "s1", "x");
        assert_eq!(refused, Err(MessageRefusal::TooManyWaiting));
        assert!(!queues.is_idle());
    }

    #[test]
    fn requests_that_wait_have_a_limit_of_bytes() {
        let mut queues = StreamQueues::default();
        enqueue(&mut queues, "a", &"x".repeat(1000)).unwrap();
        let refused = enqueue(&mut queues, "b", &"x".repeat(25));
        assert_eq!(refused, Err(MessageRefusal::TooManyWaiting));
        enqueue(&mut queues, "b", &"x".repeat(24)).unwrap();
    }
}
