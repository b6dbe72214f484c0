//! The user's messages while the task works.
//!
//! A message is recorded at once and never placed before something that the model has already seen:
//! each request stays a prefix of the next one. While calls are open, messages wait for the
//! results; while an answer is written, they wait for its end, and the record says so
//! ([`DeliveryTime::Later`]), since a replay could not tell otherwise. An interrupting message drops
//! everything that has had no effect yet: an incomplete answer, calls that have not begun, a
//! question. Running work is finished, because half of it may have been done; cancelling stops it.
//! A message approves nothing, and answers only a question for a message.

use sabir_call::{DraftResponse, Image, MessagePart, ModelError, ModelErrorKind, ToolResultStatus};

use serde::{Deserialize, Serialize};

use crate::event::UserQuestion;
use crate::record::{DecisionMaker, DeliveryTime, FailedTurn, MessageAuthor, Record};

use super::calls::OpenTurn;
use super::completion::HEADLESS_ANSWER;
use super::usage::UsageDelta;
use super::{Task, TaskEffect, TaskInput, TaskPhase};

/// The result of a completion that the user has seen and answered with a message.
const ANSWERED_BY_MESSAGE: &str =
    "Not completed: the user has seen the result and answers with the message that follows.";

/// The result of a call that was given up before it began.
const SUPERSEDED_RESULT: &str =
    "The user said something before this call was made; it was not run.";

/// The reason why an answer was given up.
const ABANDONED_REASON: &str = "interrupted by the user's message";

/// A message of the user: text, images, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The text.
    pub text: String,
    /// The images, which the model sees before the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl UserMessage {
    /// Creates a message without images.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            images: Vec::new(),
        }
    }
}

/// The moment at which a message of the user reaches the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageDelivery {
    /// After the answer that is being written and the results of the open calls.
    #[default]
    Queue,
    /// At once. The answer that is being written, the calls that have not begun and the open
    /// question are cancelled. Running tools continue, and the model is asked when they are done.
    Interrupt,
}

/// The input that takes effect later.
#[derive(Debug, Default)]
pub(super) struct PendingInput {
    /// The messages that arrived while an answer was written.
    pub(super) messages: Vec<(MessageAuthor, UserMessage)>,
    /// The images for the first message when the task continues.
    pub(super) images: Vec<Image>,
    /// True if the user wants a compaction.
    pub(super) compaction: bool,
    /// True if a full context must stay as it is for the next turn.
    pub(super) keeps_context: bool,
    /// True if the user sent a message while the model was asked for its summary.
    pub(super) includes_user_message: bool,
}

/// The kind of user, if any, that can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interactivity {
    /// A user answers and converses.
    Interactive,
    /// A program decides about calls, answers the model's questions and reviews completions, but does
    /// not converse: a reply without a call is treated as in a headless task.
    Controlled,
    /// There is no user to ask, so calls that need an approval are denied.
    Headless,
}

impl Interactivity {
    /// Reports whether calls can be approved and questions answered.
    pub fn can_answer(self) -> bool {
        self != Self::Headless
    }

    /// Reports whether a user talks with the model.
    pub fn is_interactive(self) -> bool {
        self == Self::Interactive
    }
}

impl UserMessage {
    /// Reports whether the message has neither text nor images.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    /// Returns the message as the model reads it.
    pub(super) fn to_parts(&self) -> Vec<MessagePart> {
        // Even an empty text is sent: the model is asked because of this message.
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
    /// Adds images to the first message with which the task begins or continues.
    #[must_use]
    pub fn with_images(mut self, images: Vec<Image>) -> Self {
        self.set_first_images(images);
        self
    }

    /// Sets the images for the first message of a task that is reopened, like
    /// [`with_images`](Self::with_images).
    pub fn set_first_images(&mut self, images: Vec<Image>) {
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
                    self.commit_user_message(words, DeliveryTime::Next, effects);
                }
                self.resume_work(effects);
            }
            _ if empty => {}
            // The request was sent without the message, and only the record can tell a replay so.
            TaskPhase::AwaitingModel => {
                self.commit_user_message(words, DeliveryTime::Later, effects)
            }
            // A summary is asked for with messages of its own: the next turn has not been sent yet.
            TaskPhase::AwaitingSummary(_) => {
                self.pending_input.includes_user_message = true;
                self.commit_user_message(words, DeliveryTime::Next, effects);
            }
            TaskPhase::HandlingCalls => {
                // A message about a completion that is shown is the answer to it, however it came.
                if let Some(UserQuestion::Completion { call, .. }) = &self.question
                    && let Some(call) = self.open_call(call).cloned()
                {
                    self.withdraw_question(effects);
                    self.commit_user_message(words, DeliveryTime::Next, effects);
                    self.record_call_result(
                        &call,
                        ToolResultStatus::Done,
                        ANSWERED_BY_MESSAGE.to_owned(),
                        effects,
                    );
                    return self.advance_calls(effects);
                }
                let asked_for = matches!(self.question, Some(UserQuestion::Next { .. }));
                if asked_for {
                    self.withdraw_question(effects);
                }
                self.commit_user_message(words, DeliveryTime::Next, effects);
                if asked_for {
                    self.request_next_turn(effects);
                }
            }
            TaskPhase::Ending(..) | TaskPhase::Finished => {}
        }
    }

    /// Makes a task continue that is about to stop, with the reason as a message of Sabir.
    pub(super) fn handle_objection(&mut self, reason: String, effects: &mut Vec<TaskEffect>) {
        match self.phase {
            TaskPhase::Paused => {
                self.record_lost_answer(effects);
                self.send_reminder(reason, effects);
                self.resume_work(effects);
            }
            TaskPhase::HandlingCalls
                if matches!(self.question, Some(UserQuestion::Next { .. })) =>
            {
                self.withdraw_question(effects);
                self.send_reminder(reason, effects);
                self.request_next_turn(effects);
            }
            // The user, or the end of the task, was faster.
            _ => {}
        }
    }

    pub(super) fn handle_steering(&mut self, words: UserMessage, effects: &mut Vec<TaskEffect>) {
        match self.phase {
            _ if words.is_empty() => {}
            TaskPhase::AwaitingModel => {
                // The request is dropped before the record is made, so that no delta can arrive
                // after it.
                effects.push(TaskEffect::StopAll);
                self.record_abandoned_answer(ABANDONED_REASON, effects);
                self.commit_user_message(words, DeliveryTime::Next, effects);
                self.request_next_turn(effects);
            }
            TaskPhase::AwaitingSummary(why) => {
                effects.push(TaskEffect::StopAll);
                self.pending_input.includes_user_message = true;
                self.commit_user_message(words, DeliveryTime::Next, effects);
                let error = ModelError {
                    kind: ModelErrorKind::Broken,
                    message: ABANDONED_REASON.to_owned(),
                };
                self.handle_summary(why, TaskInput::ModelFailed(error), effects);
            }
            TaskPhase::HandlingCalls if self.turn.is_some() => {
                // A completion that is shown may have run its check, which is over.
                let asked = self
                    .question
                    .as_ref()
                    .and_then(UserQuestion::call_id)
                    .cloned();
                self.withdraw_question(effects);
                // Running subtasks are asked to end. They have their own journals, so their effects
                // are known.
                self.stop_subtasks(effects);
                let open = self
                    .turn
                    .as_ref()
                    .map(OpenTurn::calls_without_result)
                    .unwrap_or_default();
                for (call, _) in open
                    .into_iter()
                    // Running calls are left to their end, since half of them may have happened.
                    .filter(|(call, running)| !running || asked.as_ref() == Some(&call.id))
                {
                    self.record_call_result(
                        &call,
                        ToolResultStatus::Rejected,
                        SUPERSEDED_RESULT.to_owned(),
                        effects,
                    );
                }
                self.commit_user_message(words, DeliveryTime::Next, effects);
                self.advance_calls(effects);
            }
            _ => self.handle_user_message(words, effects),
        }
    }

    /// Makes the task headless, because the user has left.
    pub(super) fn handle_user_left(&mut self, effects: &mut Vec<TaskEffect>) {
        // First, so that nothing below asks again.
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
            // Without a reviewer, it is accepted as in a headless task, unless there is an
            // objection.
            Some(UserQuestion::Completion { call, .. }) => match self.open_call(&call).cloned() {
                Some(call) if !self.reject_completion(&call, effects) => {
                    self.finish_completed(&call, "Accepted.", effects)
                }
                _ => self.advance_calls(effects),
            },
            Some(UserQuestion::Followup { call, .. }) => {
                if let Some(call) = self.open_call(&call).cloned() {
                    self.record_call_result(
                        &call,
                        ToolResultStatus::Failed,
                        HEADLESS_ANSWER.to_owned(),
                        effects,
                    );
                }
                self.advance_calls(effects);
            }
            Some(UserQuestion::Approval { .. }) => self.advance_calls(effects),
            // There is no user to say how to continue.
            Some(UserQuestion::Next { .. }) => {
                match self.progress.stuck_reason(&self.settings.limits) {
                    Some(reason) => self.stop_or_ask_user(reason, effects),
                    None => self.handle_reply_without_call(None, effects),
                }
            }
            None => {}
        }
    }

    /// Asks the model again after a reply without a call, because the user has sent a message
    /// meanwhile, which the model reads next.
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

    /// Records that the answer was lost when Sabir was stopped, if messages wait for it.
    pub(super) fn record_lost_answer(&mut self, effects: &mut Vec<TaskEffect>) {
        if !self.pending_input.messages.is_empty() {
            self.record_abandoned_answer("lost when Sabir was stopped", effects);
        }
    }

    /// Records that the answer is given up. Only its usage is kept.
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
        self.commit_record(
            Record::Failed(FailedTurn {
                error: ModelErrorKind::Broken,
                message: why.to_owned(),
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
        when: DeliveryTime,
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

    /// Applies a message.
    pub(super) fn apply_message(
        &mut self,
        by: MessageAuthor,
        words: UserMessage,
        when: DeliveryTime,
    ) {
        match by {
            MessageAuthor::User => {
                self.progress.note_user_message();
                // The end that named them was shown: these words ask for something else.
                self.denials.forget_all();
                self.transcript
                    .view
                    .user_texts
                    .extend(Some(words.text.clone()).filter(|text| !text.trim().is_empty()));
            }
            // Every message of Sabir counts as the reminder, since the record does not identify it.
            MessageAuthor::Sabir => self.progress.cycles.mark_announced(),
        }
        match when {
            DeliveryTime::Next => self.deliver_message(by, words),
            DeliveryTime::Later => self.pending_input.messages.push((by, words)),
        }
    }

    pub(super) fn withdraw_question(&mut self, effects: &mut Vec<TaskEffect>) {
        if self.question.take().is_some() {
            effects.push(TaskEffect::WithdrawQuestion);
        }
    }

    /// Delivers a message to the model: with the results if calls are open, else joined to the
    /// message that already waits for it.
    pub(super) fn deliver_message(&mut self, by: MessageAuthor, words: UserMessage) {
        if let Some(turn) = &mut self.turn {
            return turn.add_message(by, words);
        }
        words
            .to_parts()
            .into_iter()
            .for_each(|part| self.transcript.append_user_part(part));
    }

    /// Delivers the messages that waited for an answer, which is now there or will not come.
    pub(super) fn deliver_pending(&mut self) {
        let waiting = std::mem::take(&mut self.pending_input.messages);
        if waiting.iter().any(|(by, _)| *by == MessageAuthor::User) {
            self.progress.note_user_message_delivered();
        }
        waiting
            .into_iter()
            .for_each(|(by, words)| self.deliver_message(by, words));
    }

    /// Reports whether the user has sent a message while the answer was written.
    pub(super) fn has_pending_message(&self) -> bool {
        self.pending_input
            .messages
            .iter()
            .any(|(by, _)| *by == MessageAuthor::User)
    }
}
