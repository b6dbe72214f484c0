//! The end of an answer of the model: whether it is the client's answer too, an error, or a reason to ask again.

use std::sync::atomic::Ordering;

use sabir_call::{Event, Fault, FaultKind, ModelError, Request, Severity, Sink, StopReason, ToolChoice};

use super::again;
use super::attempt::{Attempt, Trouble};
use super::mender::Mender;

/// What follows an attempt.
pub(crate) enum Next {
    /// The answer is complete.
    Done,
    /// It cannot be completed.
    Failed(ModelError),
    /// This is to be asked.
    Ask(Box<Request>),
}

impl<S: Sink> Mender<'_, S> {
    /// The model's answer has ended, or failed, or was given up because nothing more of it was wanted.
    pub(crate) fn ended(&mut self, request: &Request, result: Result<(), ModelError>) -> Next {
        if self.terms.passes {
            return result.map_or_else(Next::Failed, |()| Next::Done);
        }
        self.finish_words();
        self.settle(true);
        self.sent.usage.add(self.attempt.usage);
        if let Err(error) = result {
            return Next::Failed(error);
        }
        let trouble = self.attempt.trouble.take().or_else(|| self.missing());
        match trouble {
            None => self.done(),
            Some(trouble) if self.terms.tries == 0 => {
                self.diary.mended("broken_call", trouble.checked.as_ref().map_or("", |checked| &checked.name));
                Next::Failed(trouble.error())
            }
            // What went out is whole, and the client answers it; the model will come back to the rest.
            Some(_) if self.sent.calls > 0 => {
                self.diary.mended("dropped_call", "");
                self.done()
            }
            Some(trouble) if self.attempt.number < self.terms.tries => self.again(request, &trouble),
            Some(_) if self.sent.words => {
                self.diary.mended("given_up", "");
                self.done()
            }
            Some(trouble) => Next::Failed(trouble.error()),
        }
    }

    fn again(&mut self, request: &Request, trouble: &Trouble) -> Next {
        let number = self.attempt.number + 1;
        let (request, feedback) = again::request(request, &self.attempt, trouble, &self.told);
        let faults = trouble.checked.as_ref().map(|checked| sabir_check::Told {
            tool: &checked.name,
            passed: false,
            faults: &checked.faults,
        });
        self.told.note(faults);
        self.diary.again(number, &feedback);
        self.over.store(false, Ordering::Relaxed);
        self.attempt = self.begin(number);
        Next::Ask(Box::new(request))
    }

    /// What the answer lacks, where the model can be told.
    fn missing(&self) -> Option<Trouble> {
        if self.terms.tries == 0 || self.sent.calls > 0 {
            return None;
        }
        let unread = |fault: &&Fault| {
            fault.call.is_none() && fault.severity == Severity::Error && fault.kind != FaultKind::Provider
        };
        let message = match (&self.terms.choice, self.attempt.draft.faults.iter().find(unread)) {
            (ToolChoice::None, _) => return None,
            (_, Some(fault)) => fault.message.clone(),
            (ToolChoice::Required, _) => "the answer must hold a call, and holds none".to_owned(),
            (ToolChoice::Tool(name), _) => format!("the answer must call `{name}`, and does not"),
            (ToolChoice::Auto, _) => return None,
        };
        Some(Trouble { message, limit: false, checked: None })
    }

    /// Says why the answer ended.
    fn done(&mut self) -> Next {
        let (reason, raw) = self.attempt.stop.take().unwrap_or((StopReason::End, String::new()));
        let (reason, raw) = match reason {
            _ if self.sent.calls > 0 => (StopReason::Calls, ""),
            StopReason::Calls => (StopReason::End, ""),
            reason => (reason, raw.as_str()),
        };
        self.out.event(Event::Stop { reason, raw });
        Next::Done
    }

    /// Says what is held of the words, unless it is the remains of markup.
    pub(super) fn finish_words(&mut self) {
        let cut = self.attempt.is_short();
        let (out, Attempt { words, thoughts, .. }) = (&mut self.out, &mut self.attempt);
        let mut dropped = thoughts.finish(cut, &mut |text| out.event(Event::Thought { text }));
        let said = &mut self.sent.words;
        dropped += words.finish(cut, &mut |text| {
            *said |= !text.trim().is_empty();
            out.event(Event::Text { text });
        });
        for _ in 0..dropped {
            self.diary.mended("markup", "");
        }
    }
}
