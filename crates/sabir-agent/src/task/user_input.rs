//! What the user says while the task works.
//!
//! Words are kept at once and never stand before something that the model has already seen: what was sent stays a prefix of what
//! is sent next. While calls are open they wait for the results; while an answer is written they wait for its end, and the record
//! says so ([`Delivery::Later`]), since replay could not tell otherwise. Steering gives up what has no consequence yet: an answer
//! that is not whole, calls that have not begun, a question. What runs is left to its end, because half of it may have happened;
//! cancelling stops that. Words approve nothing, and only a question for words is answered by them.

use sabir_call::{DraftResponse, Image, MessagePart, ModelError, ModelErrorKind, ToolResultStatus};

use serde::{Deserialize, Serialize};

use crate::event::UserQuestion;
use crate::record::{DecisionMaker, Delivery, FailedTurn, MessageAuthor, Record};

use super::calls::OpenTurn;
use super::completion::HEADLESS_ANSWER;
use super::usage::UsageDelta;
use super::{Task, TaskEffect, TaskInput, TaskPhase};

/// The result of a call that was given up before it began.
const OVERTAKEN_RESULT: &str = "The user said something before this call was made; it was not run.";

/// Why there is no answer.
const ABANDONED_REASON: &str = "given up for what the user says";

/// A message of the user: text, pictures, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The text.
    pub text: String,
    /// The pictures, which the model sees before the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl UserMessage {
    /// A message without pictures.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            images: Vec::new(),
        }
    }
}

/// When a message of the user reaches the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageDelivery {
    /// After what the model is doing: behind the answer that is being written and the results of the open calls.
    #[default]
    Queue,
    /// At once: the answer that is being written, the calls that have not begun and the open question are given up. Tools that run
    /// continue, and the model is asked when they are done.
    Interrupt,
}

/// What waits for its moment.
#[derive(Debug, Default)]
pub(super) struct PendingInput {
    /// What was said while an answer was written.
    pub(super) messages: Vec<(MessageAuthor, UserMessage)>,
    /// Pictures that go with what is said first when the task goes on.
    pub(super) images: Vec<Image>,
    /// Whether the user wants a compaction.
    pub(super) compaction: bool,
    /// Whether he has spoken while the model was asked for its summary.
    pub(super) user_spoke: bool,
}

/// Whether somebody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interactivity {
    /// A user is there.
    Interactive,
    /// A program answers whether calls may run, and what the model wants to know. It holds no conversation and reviews no
    /// completion: there it is as if nobody was there.
    Controlled,
    /// Nobody is: asking means denying.
    Headless,
}

impl Interactivity {
    /// Whether somebody can approve calls and answer questions.
    pub fn can_answer(self) -> bool {
        self != Self::Headless
    }

    /// Whether somebody talks with the model and looks at its results.
    pub fn is_interactive(self) -> bool {
        self == Self::Interactive
    }
}

impl UserMessage {
    /// Whether nothing is said or shown.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    /// As the model reads them.
    pub(super) fn to_parts(&self) -> Vec<MessagePart> {
        // What is said must be there, be it nothing: the model is asked because of it.
        let text = (self.images.is_empty() || !self.text.is_empty())
            .then(|| MessagePart::text(&self.text));
        self.images
            .iter()
            .cloned()
            .map(MessagePart::Image)
            .chain(text)
            .collect()
    }
}

impl From<String> for UserMessage {
    fn from(text: String) -> Self {
        Self {
            text,
            images: Vec::new(),
        }
    }
}

impl From<&str> for UserMessage {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Task {
    /// Pictures that go with what is said first when the task begins or goes on.
    #[must_use]
    pub fn with_images(mut self, images: Vec<Image>) -> Self {
        self.bring(images);
        self
    }

    /// As [`with_images`](Self::with_images), for a task that is reopened.
    pub fn bring(&mut self, images: Vec<Image>) {
        self.pending_input.images = images;
    }

    pub(super) fn handle_user_message(
        &mut self,
        mut words: UserMessage,
        effects: &mut Vec<TaskEffect>,
    ) {
        if self.phase == TaskPhase::Paused {
            words.images.append(&mut self.pending_input.images);
        }
        let empty = words.is_empty();
        match self.phase {
            TaskPhase::Paused => {
                self.record_lost_answer(effects);
                if !empty {
                    self.commit_user_message(words, Delivery::Next, effects);
                }
                self.resume_work(effects);
            }
            _ if empty => {}
            TaskPhase::AwaitingModel => self.commit_user_message(words, Delivery::Later, effects),
            // A summary is asked for with messages of its own: the next turn has not been sent yet.
            TaskPhase::AwaitingSummary(_) => {
                self.pending_input.user_spoke = true;
                self.commit_user_message(words, Delivery::Next, effects);
            }
            TaskPhase::HandlingCalls => {
                let asked_for = matches!(self.question, Some(UserQuestion::Next { .. }));
                if asked_for {
                    self.withdraw_question(effects);
                }
                self.commit_user_message(words, Delivery::Next, effects);
                if asked_for {
                    self.request_next_turn(effects);
                }
            }
            TaskPhase::Ending(..) | TaskPhase::Finished => {}
        }
    }

    pub(super) fn handle_steering(&mut self, words: UserMessage, effects: &mut Vec<TaskEffect>) {
        match self.phase {
            _ if words.is_empty() => {}
            TaskPhase::AwaitingModel => {
                effects.push(TaskEffect::StopAll);
                self.record_abandoned_answer(ABANDONED_REASON, effects);
                self.commit_user_message(words, Delivery::Next, effects);
                self.request_next_turn(effects);
            }
            TaskPhase::AwaitingSummary(why) => {
                effects.push(TaskEffect::StopAll);
                self.pending_input.user_spoke = true;
                self.commit_user_message(words, Delivery::Next, effects);
                let error = ModelError {
                    kind: ModelErrorKind::Broken,
                    message: ABANDONED_REASON.to_owned(),
                };
                self.handle_summary(why, TaskInput::ModelFailed(error), effects);
            }
            TaskPhase::HandlingCalls if self.turn.is_some() => {
                // A completion that is shown may have run its check; nothing of it is under way.
                let asked = self
                    .question
                    .as_ref()
                    .and_then(UserQuestion::call_id)
                    .cloned();
                self.withdraw_question(effects);
                self.stop_subtasks(effects);
                let open = self
                    .turn
                    .as_ref()
                    .map(OpenTurn::unanswered_calls)
                    .unwrap_or_default();
                for (call, _) in open
                    .into_iter()
                    .filter(|(call, running)| !running || asked.as_ref() == Some(&call.id))
                {
                    self.answer_call(
                        &call,
                        ToolResultStatus::Rejected,
                        OVERTAKEN_RESULT.to_owned(),
                        effects,
                    );
                }
                self.commit_user_message(words, Delivery::Next, effects);
                self.advance_calls(effects);
            }
            _ => self.handle_user_message(words, effects),
        }
    }

    /// Nobody is there any more.
    pub(super) fn handle_user_left(&mut self, effects: &mut Vec<TaskEffect>) {
        self.settings.interactivity = Interactivity::Headless;
        let question = self.question.clone();
        self.withdraw_question(effects);
        for call in self
            .turn
            .as_ref()
            .map(OpenTurn::calls_awaiting_user)
            .unwrap_or_default()
        {
            self.deny_call(
                &call,
                DecisionMaker::Policy,
                "it was asked about, and nobody can be asked any more",
                effects,
            );
        }
        match question {
            Some(UserQuestion::Completion { call, .. }) => match self.open_call(&call).cloned() {
                Some(call) if !self.reject_completion(&call, effects) => {
                    self.finish_completed(&call, "Accepted.", effects)
                }
                _ => self.advance_calls(effects),
            },
            Some(UserQuestion::Followup { call, .. }) => {
                if let Some(call) = self.open_call(&call).cloned() {
                    self.answer_call(
                        &call,
                        ToolResultStatus::Failed,
                        HEADLESS_ANSWER.to_owned(),
                        effects,
                    );
                }
                self.advance_calls(effects);
            }
            Some(UserQuestion::Approval { .. }) => self.advance_calls(effects),
            // Nobody says how to go on from there.
            Some(UserQuestion::Next { .. }) => match self.stuck_reason() {
                Some(reason) => self.stop_or_ask_user(reason, effects),
                None => self.handle_reply_without_call(None, effects),
            },
            None => {}
        }
    }

    /// An answer without a call to somebody who has spoken meanwhile: his words are what the model goes on with.
    pub(super) fn continue_with_message(
        &mut self,
        feedback: Option<String>,
        effects: &mut Vec<TaskEffect>,
    ) {
        if let Some(feedback) = feedback {
            self.send_reminder(feedback, effects);
        }
        self.request_next_turn(effects);
    }

    /// Words that waited for an answer which was lost when Sabir was stopped.
    pub(super) fn record_lost_answer(&mut self, effects: &mut Vec<TaskEffect>) {
        if !self.pending_input.messages.is_empty() {
            self.record_abandoned_answer("lost when Sabir was stopped", effects);
        }
    }

    /// Nothing is kept of the answer that is being written, but for what it took.
    fn record_abandoned_answer(&mut self, why: &str, effects: &mut Vec<TaskEffect>) {
        let began = self.draft != DraftResponse::default();
        let UsageDelta {
            usage,
            estimate,
            cost,
        } = if began {
            self.answer_usage(&self.draft)
        } else {
            UsageDelta::default()
        };
        let (error, message) = (ModelErrorKind::Broken, why.to_owned());
        self.commit_record(
            Record::Failed(FailedTurn {
                error,
                message,
                usage,
                estimate,
                cost,
            }),
            effects,
        );
    }

    pub(super) fn commit_user_message(
        &mut self,
        UserMessage { text, images }: UserMessage,
        when: Delivery,
        effects: &mut Vec<TaskEffect>,
    ) {
        self.commit_record(
            Record::Said {
                by: MessageAuthor::User,
                text,
                images,
                when,
            },
            effects,
        );
    }

    /// Takes over what was said.
    pub(super) fn apply_message(&mut self, by: MessageAuthor, words: UserMessage, when: Delivery) {
        match by {
            MessageAuthor::User => {
                self.counters.reset_after_user();
                self.transcript
                    .view
                    .user_texts
                    .extend(Some(words.text.clone()).filter(|text| !text.trim().is_empty()));
            }
            MessageAuthor::Sabir => self.counters.cycles.mark_announced(),
        }
        match when {
            Delivery::Next => self.deliver_message(by, words),
            Delivery::Later => self.pending_input.messages.push((by, words)),
        }
    }

    pub(super) fn withdraw_question(&mut self, effects: &mut Vec<TaskEffect>) {
        if self.question.take().is_some() {
            effects.push(TaskEffect::WithdrawQuestion);
        }
    }

    /// Words that the model is to read next: joined to the message that is already waiting for it, or to the results of
    /// the calls that are open.
    pub(super) fn deliver_message(&mut self, by: MessageAuthor, words: UserMessage) {
        if let Some(turn) = &mut self.turn {
            return turn.add_message(by, words);
        }
        words
            .to_parts()
            .into_iter()
            .for_each(|part| self.transcript.append_user_part(part));
    }

    /// The answer is there, or will not come: what waited for it is read next.
    pub(super) fn deliver_pending(&mut self) {
        let waiting = std::mem::take(&mut self.pending_input.messages);
        if waiting.iter().any(|(by, _)| *by == MessageAuthor::User) {
            self.counters.replies_without_call = 0;
        }
        waiting
            .into_iter()
            .for_each(|(by, words)| self.deliver_message(by, words));
    }

    /// Whether the user has spoken while the answer was written.
    pub(super) fn has_pending_message(&self) -> bool {
        self.pending_input
            .messages
            .iter()
            .any(|(by, _)| *by == MessageAuthor::User)
    }
}
