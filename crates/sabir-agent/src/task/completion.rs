//! The ends of a task: completion, questions to the user, replies without a call, and too many
//! mistakes.

use sabir_call::{
    Call, CallId, CallResult, Image, MessagePart, Role, StopReason, ToolProtocol, ToolResultStatus,
};
use sabir_check::render_missing_call;
use serde_json::Value;

use crate::control;
use crate::event::{UserQuestion, UserReply};
use crate::record::{DeliveryTime, Record, TaskOutcome};

use super::calls::OpenTurn;
use super::{CompletionForm, Interactivity, Task, TaskEffect, UserMessage};

/// The reminder for a reply that the provider's output limit cut off before it held a call.
const TOO_LONG: &str = "Your message was cut off by the output limit before it held a whole call, so nothing happened. Write \
less at a time: smaller files, or a file in several edits.";

/// The answer to a question of the model in a headless task.
pub(super) const HEADLESS_ANSWER: &str =
    "Nobody can be asked in this task. Decide yourself, and say in the end what you assumed.";

/// The reason given when the model or its provider refused.
const REFUSED: &str = "the model, or its provider's filter, refused to answer";

impl Task {
    /// Answers a control call, or asks the user about it. Returns true if the call has its result
    /// and the turn continues.
    pub(super) fn handle_control_call(
        &mut self,
        call: &Call,
        effects: &mut Vec<TaskEffect>,
    ) -> bool {
        match call.name.as_str() {
            control::FOLLOWUP_TOOL => self.ask_followup(call, effects),
            control::TODO_LIST_TOOL => {
                self.handle_todo_call(call, effects);
                true
            }
            control::SWITCH_MODE_TOOL => {
                self.handle_switch_call(call, effects);
                true
            }
            _ => self.handle_completion(call, effects),
        }
    }

    fn handle_completion(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) -> bool {
        if self.reject_completion(call, effects) {
            return true;
        }
        // The check comes after the objections, which cost nothing.
        if self.settings.completion.check.is_some() {
            self.assess_control_call(&call.id, effects);
        } else {
            self.accept_completion(call, effects);
        }
        false
    }

    /// Refuses a completion if there is an objection, and returns true if it did. Called when the completion is made, and again when it is
    /// accepted without the user's approval, since the user may have sent a message in between.
    pub(super) fn reject_completion(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) -> bool {
        let objection = self
            .turn
            .as_ref()
            .and_then(|turn| turn.completion_objection(&call.id))
            .or_else(|| self.open_todo_objection())
            .or_else(|| self.echoed_completion_objection(call));
        if let Some(objection) = &objection {
            self.record_call_result(
                call,
                ToolResultStatus::Rejected,
                format!("Not completed: {objection}."),
                effects,
            );
        }
        objection.is_some()
    }

    /// Objects to a completion that quotes text that was read, if no user reviews completions.
    fn echoed_completion_objection(&self, call: &Call) -> Option<String> {
        let caution = self.text_call_risk(call);
        let source = caution
            .echo_of
            .as_ref()
            .filter(|_| !self.reviews_completions())?;
        Some(format!(
            "the text of this call occurs in {}, and a quotation completes nothing. Complete with words of your own",
            source.describe()
        ))
    }

    /// Reports whether the user or a program is asked before a completion is accepted.
    fn reviews_completions(&self) -> bool {
        self.settings.completion.review && self.settings.interactivity.can_answer()
    }

    /// Accepts a completion that has no objection: shows it to the user, or ends the task if there is
    /// no reviewer.
    pub(super) fn accept_completion(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        if !self.reviews_completions() {
            return self.finish_completed(call, "Accepted.", effects);
        }
        self.ask_user(
            UserQuestion::Completion {
                call: call.id.clone(),
                result: text_argument(call, "result"),
            },
            effects,
        );
    }

    fn ask_followup(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) -> bool {
        if !self.settings.interactivity.can_answer() {
            self.record_call_result(
                call,
                ToolResultStatus::Failed,
                HEADLESS_ANSWER.to_owned(),
                effects,
            );
            return true;
        }
        let options = call
            .arguments
            .get("follow_up")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let options = options
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        self.ask_user(
            UserQuestion::Followup {
                call: call.id.clone(),
                question: text_argument(call, "question"),
                options,
            },
            effects,
        );
        false
    }

    fn ask_user(&mut self, question: UserQuestion, effects: &mut Vec<TaskEffect>) {
        self.question = Some(question.clone());
        effects.push(TaskEffect::AskUser(question));
    }

    pub(super) fn finish_completed(
        &mut self,
        call: &Call,
        content: &str,
        effects: &mut Vec<TaskEffect>,
    ) {
        // The completion is answered first. The remaining calls of the turn follow it in the
        // message, and never ran.
        self.record_call_result(call, ToolResultStatus::Done, content.to_owned(), effects);
        self.reject_calls_without_result(
            "The task was completed before this call; it was not run.",
            effects,
        );
        let (outcome, message) = self.decide_outcome(text_argument(call, "result"));
        self.end_task(outcome, &message, effects);
    }

    /// Handles the review of a completion: a yes ends the task, a message becomes the call's
    /// result.
    pub(super) fn handle_review(
        &mut self,
        id: &CallId,
        reply: UserReply,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some(call) = self.open_call(id).cloned() else {
            return;
        };
        match reply {
            // A message came while the result was shown. The model has not read it, so the result
            // cannot be final.
            UserReply::Yes | UserReply::YesWithRules(_) if self.has_unread_user_message() => {
                let content = "The user accepted this, and has said more: see below.".to_owned();
                self.record_call_result(&call, ToolResultStatus::Done, content, effects);
                self.advance_calls(effects);
            }
            UserReply::Yes | UserReply::YesWithRules(_) => {
                self.finish_completed(&call, "The user accepted.", effects)
            }
            UserReply::No(words) => self.return_completion(&call, words.into(), effects),
            UserReply::Text(answer) => self.return_completion(&call, answer, effects),
            UserReply::Leave => {}
        }
    }

    /// Reports whether the user said something since the calls of this turn were made.
    fn has_unread_user_message(&self) -> bool {
        self.turn.as_ref().is_some_and(OpenTurn::has_user_message)
    }

    /// Gives the user's feedback on a completion to the model; the task continues.
    fn return_completion(
        &mut self,
        call: &Call,
        UserMessage { text, images }: UserMessage,
        effects: &mut Vec<TaskEffect>,
    ) {
        let words = match text.trim() {
            "" if images.is_empty() => "This is not what I wanted.",
            "" => "See the attached picture.",
            _ => text.as_str(),
        };
        let content =
            format!("The user has seen the result and answers:\n<feedback>\n{words}\n</feedback>");
        self.record_call_result_with_images(call, content, images, effects);
        self.advance_calls(effects);
    }

    /// Answers a call with the words and the pictures of the user.
    fn record_call_result_with_images(
        &mut self,
        call: &Call,
        content: String,
        images: Vec<Image>,
        effects: &mut Vec<TaskEffect>,
    ) {
        let result = CallResult {
            id: call.id.clone(),
            name: call.name.clone(),
            ending: ToolResultStatus::Done,
            content,
            images,
        };
        self.commit_record(Record::Result(result), effects);
    }

    pub(super) fn handle_followup_reply(
        &mut self,
        id: &CallId,
        reply: UserReply,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some(call) = self.open_call(id).cloned() else {
            return;
        };
        let answer: UserMessage = match reply {
            UserReply::Yes | UserReply::YesWithRules(_) => "Yes.".into(),
            UserReply::No(words) if words.trim().is_empty() => "No.".into(),
            UserReply::No(words) => words.into(),
            UserReply::Text(answer) if answer.text.trim().is_empty() && !answer.is_empty() => {
                UserMessage {
                    text: "See the attached picture.".to_owned(),
                    ..answer
                }
            }
            UserReply::Text(answer) => answer,
            UserReply::Leave => return,
        };
        self.record_call_result_with_images(&call, answer.text, answer.images, effects);
        self.advance_calls(effects);
    }

    /// Handles a reply without a call: in a conversation it is the user's turn; a headless task sends reminders and finally gives up.
    pub(super) fn handle_reply_without_call(
        &mut self,
        feedback: Option<String>,
        effects: &mut Vec<TaskEffect>,
    ) {
        if self.last_stop_reason == Some(StopReason::Refused) {
            // Asking the same again would be refused again, and may be held against the user.
            return match self.settings.interactivity {
                Interactivity::Interactive => self.ask_user(
                    UserQuestion::Next {
                        reason: REFUSED.to_owned(),
                    },
                    effects,
                ),
                Interactivity::Controlled | Interactivity::Headless => {
                    self.end_headless(REFUSED, effects)
                }
            };
        }
        if feedback.is_none()
            && let Some(answer) = self.answer_without_call()
        {
            let (outcome, message) = self.decide_outcome(answer);
            return self.end_task(outcome, &message, effects);
        }
        let limit = self.settings.limits.reminders;
        if self.settings.interactivity == Interactivity::Interactive
            // A reply with a broken call is not meant for the user. The model gets feedback first,
            // a few times.
            && (feedback.is_none() || self.progress.replies_without_call() > limit)
        {
            return self.ask_user(
                UserQuestion::Next {
                    reason: String::new(),
                },
                effects,
            );
        }
        if self.progress.replies_without_call() > limit {
            let message = format!(
                "the model replied {} times without a call and did not complete the task",
                self.progress.replies_without_call()
            );
            return self.end_headless(&message, effects);
        }
        let text = feedback.unwrap_or_else(|| self.missing_call_text());
        self.send_reminder(text, effects);
        self.request_next_turn(effects);
    }

    /// Returns the reminder for a reply without a call.
    fn missing_call_text(&self) -> String {
        if self.last_stop_reason == Some(StopReason::Length) {
            return TOO_LONG.to_owned();
        }
        let context = self.feedback_context();
        render_missing_call(
            self.progress.replies_without_call(),
            control::COMPLETION_TOOL,
            &context,
        )
    }

    /// Returns the text of the last reply if it is the task's result: there is no user, and the model has only read. A model that changed
    /// something must complete the task with a call.
    fn answer_without_call(&self) -> Option<String> {
        let conditions = &self.settings.completion;
        let takes_answers = match conditions.form {
            CompletionForm::ByProtocol => self.start.protocol == ToolProtocol::Native,
            form => form == CompletionForm::Answer,
        };
        let may_answer = takes_answers
            && !self.settings.interactivity.is_interactive()
            && conditions.check.is_none()
            && !self.progress.has_acted()
            && self.last_stop_reason != Some(StopReason::Length)
            && self.open_todo_objection().is_none();
        let last = self.history().last().filter(|_| may_answer)?;
        if last.role != Role::Assistant {
            return None;
        }
        let texts = last.parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let answer = texts.collect::<Vec<_>>().join("\n");
        let answer = answer.trim();
        (!answer.is_empty()).then(|| answer.to_owned())
    }

    /// Asks the user for a message, or ends a headless task.
    pub(super) fn stop_or_ask_user(&mut self, message: String, effects: &mut Vec<TaskEffect>) {
        if self.settings.interactivity == Interactivity::Interactive {
            return self.ask_user(UserQuestion::Next { reason: message }, effects);
        }
        self.end_headless(&message, effects);
    }

    /// Ends a headless task that will not be completed. The outcome says if denials were the
    /// reason.
    fn end_headless(&mut self, message: &str, effects: &mut Vec<TaskEffect>) {
        // A task that could not do its work because of denials says so, and how to allow
        // it.
        if self.progress.denials() > 0 {
            let message = format!(
                "{message}; {} calls were denied (see --approve)",
                self.progress.denials()
            );
            return self.end_task(TaskOutcome::Denied, &message, effects);
        }
        self.end_task(TaskOutcome::Unfinished, message, effects);
    }

    pub(super) fn handle_next_reply(&mut self, reply: UserReply, effects: &mut Vec<TaskEffect>) {
        let message = match reply {
            UserReply::Yes | UserReply::YesWithRules(_) => "Go on.".into(),
            UserReply::No(words) => words.into(),
            UserReply::Text(message) => message,
            UserReply::Leave => return,
        };
        self.commit_user_message(message, DeliveryTime::Next, effects);
        self.request_next_turn(effects);
    }

    /// Ends the task because the user left at a question. Calls that wait for an answer do not run.
    pub(super) fn handle_leave(&mut self, question: &UserQuestion, effects: &mut Vec<TaskEffect>) {
        let message = match question {
            UserQuestion::Completion { .. } => "the user left without accepting the completion",
            UserQuestion::Next { .. } => "the user left before the task was completed",
            _ => "the user left without an answer",
        };
        self.shut_down(TaskOutcome::Unfinished, message, effects);
    }
}

fn text_argument(call: &Call, argument: &str) -> String {
    call.arguments
        .get(argument)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
