//! How a task ends, and how it does not: completion, questions to the user, replies without a call, too many mistakes.

use sabir_call::{Call, CallId, StopReason, ToolResultStatus};
use serde_json::Value;

use crate::control;
use crate::event::{UserQuestion, UserReply};
use crate::record::{Delivery, TaskOutcome};

use super::cycles::CallCycle;
use super::{Interactivity, Task, TaskEffect};

/// What a headless task says to a reply without a call.
const REMINDER: &str = "Your message held no call, so nothing happened. If the task is done, call attempt_completion; if not, \
call the tool that brings it forward.";

/// What it says where the provider's output limit ended the reply.
const TOO_LONG: &str = "Your message was cut off by the output limit before it held a whole call, so nothing happened. Write \
less at a time: smaller files, or a file in several edits.";

/// What a question to nobody is answered.
pub(super) const HEADLESS_ANSWER: &str =
    "Nobody can be asked in this task. Decide yourself, and say in the end what you assumed.";

/// What is said where the model or its provider refused.
const REFUSED: &str = "the model, or its provider's filter, refused to answer";

impl Task {
    /// Answers a control call, or asks the user about it. True: it has its result, and the turn goes on.
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
        if self.settings.completion.check.is_some() {
            self.assess_control_call(&call.id, effects);
        } else {
            self.accept_completion(call, effects);
        }
        false
    }

    /// Refuses a completion if something speaks against it. That is asked when it is made, and again when it is taken without a yes:
    /// the user may have said something in between.
    pub(super) fn reject_completion(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) -> bool {
        let objection = self
            .turn
            .as_ref()
            .and_then(|turn| turn.completion_objection(&call.id))
            .or_else(|| self.open_todo_objection());
        if let Some(objection) = &objection {
            self.answer_call(
                call,
                ToolResultStatus::Rejected,
                format!("Not completed: {objection}."),
                effects,
            );
        }
        objection.is_some()
    }

    /// Nothing speaks against it any more.
    pub(super) fn accept_completion(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        if !self.settings.interactivity.is_interactive() {
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
            self.answer_call(
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
        self.answer_call(call, ToolResultStatus::Done, content.to_owned(), effects);
        self.reject_unanswered(
            "The task was completed before this call; it was not run.",
            effects,
        );
        self.end_task(
            TaskOutcome::Completed,
            &text_argument(call, "result"),
            effects,
        );
    }

    /// The user has seen the result: a yes ends the task, words go back as the call's result.
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
            UserReply::Yes | UserReply::YesWithRules(_) => {
                self.finish_completed(&call, "The user accepted.", effects)
            }
            UserReply::No(words) | UserReply::Text(words) => {
                let words = if words.trim().is_empty() {
                    "This is not what I wanted."
                } else {
                    words.as_str()
                };
                let content = format!(
                    "The user has seen the result and answers:\n<feedback>\n{words}\n</feedback>"
                );
                self.answer_call(&call, ToolResultStatus::Done, content, effects);
                self.advance_calls(effects);
            }
            UserReply::Leave => {}
        }
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
        let content = match reply {
            UserReply::Yes | UserReply::YesWithRules(_) => "Yes.".to_owned(),
            UserReply::No(words) if words.trim().is_empty() => "No.".to_owned(),
            UserReply::No(words) | UserReply::Text(words) => words,
            UserReply::Leave => return,
        };
        self.answer_call(&call, ToolResultStatus::Done, content, effects);
        self.advance_calls(effects);
    }

    /// A reply without a call: in a conversation the user's turn, headless a reminder, and in the end an honest end.
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
        let limit = self.settings.limits.reminders;
        if self.settings.interactivity == Interactivity::Interactive
            && (feedback.is_none() || self.counters.replies_without_call > limit)
        {
            return self.ask_user(
                UserQuestion::Next {
                    reason: String::new(),
                },
                effects,
            );
        }
        if self.counters.replies_without_call > limit {
            let message = format!(
                "the model replied {} times without a call and did not complete the task",
                self.counters.replies_without_call
            );
            return self.end_headless(&message, effects);
        }
        let reminder = if self.last_stop_reason == Some(StopReason::Length) {
            TOO_LONG
        } else {
            REMINDER
        };
        self.send_reminder(feedback.unwrap_or_else(|| reminder.to_owned()), effects);
        self.request_next_turn(effects);
    }

    /// Why the model should not simply go on, if there is a reason.
    pub(super) fn stuck_reason(&self) -> Option<String> {
        let (counts, limits) = (&self.counters, &self.settings.limits);
        if counts.mistakes >= limits.mistakes {
            return Some(format!("{} calls in a row failed", counts.mistakes));
        }
        if counts.refusals >= limits.refusals {
            return Some(format!(
                "the completion was refused {} times",
                counts.refusals
            ));
        }
        counts
            .cycles
            .current_cycle()
            .filter(|cycle| cycle.times >= limits.cycles)
            .map(CallCycle::stop_reason)
    }

    /// Asks the user what next, or ends a headless task.
    pub(super) fn stop_or_ask_user(&mut self, message: String, effects: &mut Vec<TaskEffect>) {
        if self.settings.interactivity == Interactivity::Interactive {
            return self.ask_user(UserQuestion::Next { reason: message }, effects);
        }
        self.end_headless(&message, effects);
    }

    /// Ends a headless task that will not be completed, and says whether denials were the reason.
    fn end_headless(&mut self, message: &str, effects: &mut Vec<TaskEffect>) {
        if self.counters.denials > 0 {
            let message = format!(
                "{message}; {} calls were denied (see --approve)",
                self.counters.denials
            );
            return self.end_task(TaskOutcome::Denied, &message, effects);
        }
        self.end_task(TaskOutcome::Unfinished, message, effects);
    }

    pub(super) fn handle_next_reply(&mut self, reply: UserReply, effects: &mut Vec<TaskEffect>) {
        let text = match reply {
            UserReply::Yes | UserReply::YesWithRules(_) => "Go on.".to_owned(),
            UserReply::No(words) | UserReply::Text(words) => words,
            UserReply::Leave => return,
        };
        self.commit_user_message(text.into(), Delivery::Next, effects);
        self.request_next_turn(effects);
    }

    /// The user leaves while being asked. Nothing that waits for an answer is run.
    pub(super) fn handle_leave(&mut self, question: &UserQuestion, effects: &mut Vec<TaskEffect>) {
        let message = match question {
            UserQuestion::Completion { .. } => "left without accepting the completion",
            UserQuestion::Next { .. } => "left without a completion",
            _ => "left without an answer",
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
