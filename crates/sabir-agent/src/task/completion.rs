//! How a task ends, and how it does not: completion, questions to the user, replies without a call, too many mistakes.

use sabir_call::{Call, CallId, Ending, StopReason};
use serde_json::Value;

use crate::control;
use crate::event::{Question, Reply};
use crate::record::{Outcome, When};

use super::cycles::Cycle;
use super::{Attended, Effect, Task};

/// What a headless task says to a reply without a call.
const REMINDER: &str = "Your message held no call, so nothing happened. If the task is done, call attempt_completion; if not, \
call the tool that brings it forward.";

/// What it says where the provider's output limit ended the reply.
const TOO_LONG: &str = "Your message was cut off by the output limit before it held a whole call, so nothing happened. Write \
less at a time: smaller files, or a file in several edits.";

/// What a question to nobody is answered.
pub(super) const NOBODY: &str =
    "Nobody can be asked in this task. Decide yourself, and say in the end what you assumed.";

/// What is said where the model or its provider refused.
const REFUSED: &str = "the model, or its provider's filter, refused to answer";

impl Task {
    /// Answers a control call, or asks the user about it. True: it has its result, and the turn goes on.
    pub(super) fn control(&mut self, call: &Call, effects: &mut Vec<Effect>) -> bool {
        match call.name.as_str() {
            control::FOLLOWUP => self.follow_up(call, effects),
            control::TODOS => {
                self.list(call, effects);
                true
            }
            control::SWITCH => {
                self.switch(call, effects);
                true
            }
            _ => self.complete(call, effects),
        }
    }

    fn complete(&mut self, call: &Call, effects: &mut Vec<Effect>) -> bool {
        if self.objects(call, effects) {
            return true;
        }
        if self.settings.completion.check.is_some() {
            self.weigh(&call.id, effects);
        } else {
            self.accept(call, effects);
        }
        false
    }

    /// Refuses a completion if something speaks against it. That is asked when it is made, and again when it is taken without a yes:
    /// the user may have said something in between.
    pub(super) fn objects(&mut self, call: &Call, effects: &mut Vec<Effect>) -> bool {
        let objection = self.turn.as_ref().and_then(|turn| turn.objection(&call.id)).or_else(|| self.todos_left());
        if let Some(objection) = &objection {
            self.answer(call, Ending::Rejected, format!("Not completed: {objection}."), effects);
        }
        objection.is_some()
    }

    /// Nothing speaks against it any more.
    pub(super) fn accept(&mut self, call: &Call, effects: &mut Vec<Effect>) {
        if !self.settings.attended.converses() {
            return self.completed(call, "Accepted.", effects);
        }
        self.put(Question::Completion { call: call.id.clone(), result: text(call, "result") }, effects);
    }

    fn follow_up(&mut self, call: &Call, effects: &mut Vec<Effect>) -> bool {
        if !self.settings.attended.answers() {
            self.answer(call, Ending::Failed, NOBODY.to_owned(), effects);
            return true;
        }
        let options = call.arguments.get("follow_up").and_then(Value::as_array).into_iter().flatten();
        let options = options.filter_map(Value::as_str).map(str::to_owned).collect();
        self.put(Question::Followup { call: call.id.clone(), question: text(call, "question"), options }, effects);
        false
    }

    fn put(&mut self, question: Question, effects: &mut Vec<Effect>) {
        self.question = Some(question.clone());
        effects.push(Effect::Question(question));
    }

    pub(super) fn completed(&mut self, call: &Call, content: &str, effects: &mut Vec<Effect>) {
        self.answer(call, Ending::Done, content.to_owned(), effects);
        self.skip_rest("The task was completed before this call; it was not run.", effects);
        self.end(Outcome::Completed, &text(call, "result"), effects);
    }

    /// The user has seen the result: a yes ends the task, words go back as the call's result.
    pub(super) fn reviewed(&mut self, id: &CallId, reply: Reply, effects: &mut Vec<Effect>) {
        let Some(call) = self.call(id).cloned() else { return };
        match reply {
            Reply::Yes | Reply::Always(_) => self.completed(&call, "The user accepted.", effects),
            Reply::No(words) | Reply::Words(words) => {
                let words = if words.trim().is_empty() { "This is not what I wanted." } else { words.as_str() };
                let content = format!("The user has seen the result and answers:\n<feedback>\n{words}\n</feedback>");
                self.answer(&call, Ending::Done, content, effects);
                self.advance(effects);
            }
            Reply::Leave => {}
        }
    }

    pub(super) fn followed_up(&mut self, id: &CallId, reply: Reply, effects: &mut Vec<Effect>) {
        let Some(call) = self.call(id).cloned() else { return };
        let content = match reply {
            Reply::Yes | Reply::Always(_) => "Yes.".to_owned(),
            Reply::No(words) if words.trim().is_empty() => "No.".to_owned(),
            Reply::No(words) | Reply::Words(words) => words,
            Reply::Leave => return,
        };
        self.answer(&call, Ending::Done, content, effects);
        self.advance(effects);
    }

    /// A reply without a call: in a conversation the user's turn, headless a reminder, and in the end an honest end.
    pub(super) fn without_call(&mut self, feedback: Option<String>, effects: &mut Vec<Effect>) {
        if self.stop == Some(StopReason::Refused) {
            // Asking the same again would be refused again, and may be held against the user.
            return match self.settings.attended {
                Attended::Yes => self.put(Question::Next { reason: REFUSED.to_owned() }, effects),
                Attended::Program | Attended::No => self.give_up(REFUSED, effects),
            };
        }
        let limit = self.settings.limits.reminders;
        if self.settings.attended == Attended::Yes && (feedback.is_none() || self.counts.without_call > limit) {
            return self.put(Question::Next { reason: String::new() }, effects);
        }
        if self.counts.without_call > limit {
            let message = format!(
                "the model replied {} times without a call and did not complete the task",
                self.counts.without_call
            );
            return self.give_up(&message, effects);
        }
        let reminder = if self.stop == Some(StopReason::Length) { TOO_LONG } else { REMINDER };
        self.remind(feedback.unwrap_or_else(|| reminder.to_owned()), effects);
        self.ask(effects);
    }

    /// Why the model should not simply go on, if there is a reason.
    pub(super) fn stuck(&self) -> Option<String> {
        let (counts, limits) = (&self.counts, &self.settings.limits);
        if counts.mistakes >= limits.mistakes {
            return Some(format!("{} calls in a row failed", counts.mistakes));
        }
        if counts.refusals >= limits.refusals {
            return Some(format!("the completion was refused {} times", counts.refusals));
        }
        counts.cycles.going_on().filter(|cycle| cycle.times >= limits.cycles).map(Cycle::reason)
    }

    /// Asks the user what next, or ends a headless task.
    pub(super) fn stop_here(&mut self, message: String, effects: &mut Vec<Effect>) {
        if self.settings.attended == Attended::Yes {
            return self.put(Question::Next { reason: message }, effects);
        }
        self.give_up(&message, effects);
    }

    /// Ends a headless task that will not be completed, and says whether denials were the reason.
    fn give_up(&mut self, message: &str, effects: &mut Vec<Effect>) {
        if self.counts.denials > 0 {
            let message = format!("{message}; {} calls were denied (see --approve)", self.counts.denials);
            return self.end(Outcome::Denied, &message, effects);
        }
        self.end(Outcome::Unfinished, message, effects);
    }

    pub(super) fn next_words(&mut self, reply: Reply, effects: &mut Vec<Effect>) {
        let text = match reply {
            Reply::Yes | Reply::Always(_) => "Go on.".to_owned(),
            Reply::No(words) | Reply::Words(words) => words,
            Reply::Leave => return,
        };
        self.say(text.into(), When::Next, effects);
        self.ask(effects);
    }

    /// The user leaves while being asked. Nothing that waits for an answer is run.
    pub(super) fn leave(&mut self, question: &Question, effects: &mut Vec<Effect>) {
        let message = match question {
            Question::Completion { .. } => "left without accepting the completion",
            Question::Next { .. } => "left without a completion",
            _ => "left without an answer",
        };
        self.wind_up(Outcome::Unfinished, message, effects);
    }
}

fn text(call: &Call, argument: &str) -> String {
    call.arguments.get(argument).and_then(Value::as_str).unwrap_or_default().to_owned()
}
