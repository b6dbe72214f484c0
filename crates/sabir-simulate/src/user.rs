//! The simulated user: a front end that sees the events and answers questions, hesitates, leaves or never answers.
//!
//! Each decision is recorded in the observations before the driver gets it. So a record in which the
//! user allows, denies or accepts something can be compared with what they really did.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sabir_agent::{
    CommandQueue, FrontEnd, MessageDelivery, TaskEvent, TransientEvent, UserCommand, UserMessage,
    UserQuestion, UserReply,
};
use sabir_call::CallId;
use tokio::time::sleep;

use crate::invariants::Invariant;
use crate::sabotage::Sabotage;
use crate::simulation_state::{SimulationHandle, SimulationState, StuckReason};
use crate::task_tree::ActiveGuard;

/// The simulated user.
pub(crate) struct SimulatedUser {
    /// The state of the task.
    pub(crate) simulation: SimulationHandle,
    /// The guard of a subtask, which counts as running as long as its front end exists.
    pub(crate) _at_work: Option<ActiveGuard>,
}

/// Marks the end of a question when it is dropped, also if the question was cancelled.
struct QuestionGuard(SimulationHandle);

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        self.0.with_state(|state| state.activity.asking = false);
    }
}

impl FrontEnd for SimulatedUser {
    fn commands(&mut self) -> Option<CommandQueue> {
        self.simulation.with_state(|state| {
            // Without a channel the driver gets no commands, as with a plain front end.
            let speaks = state.plan.user.message_interval > 0 || state.plan.user.by_channel;
            speaks.then(|| state.open_channel())
        })
    }

    fn on_event(&mut self, event: TaskEvent<'_>) {
        self.simulation.with_state(|state| match event {
            TaskEvent::Record(record) => {
                state.on_event(|| "a record is shown".to_owned());
                if !state.has_crashed() {
                    let checked = state.observations.check_shown(record);
                    state.record_check(checked);
                }
            }
            // No event of its own: there are many, and the waits of the model are events already.
            TaskEvent::Transient(TransientEvent::Delta(_)) => {}
            TaskEvent::Transient(moment) => {
                if let TransientEvent::Question(question) = moment {
                    state.user_script.asked = question.call_id().cloned();
                    if matches!(question, UserQuestion::Next { reason } if reason.contains("the same result")) {
                        state.counters.count_event("cycles stopped");
                    }
                }
                // From here until the answer is on record, messages are late.
                state.observations.request_tracker.waits |= matches!(moment, TransientEvent::Asking { .. });
                state.on_event(|| format!("shown: {}", serde_json::to_string(&moment).unwrap_or_default()));
            }
        });
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        Box::pin(async move {
            let _asked = QuestionGuard(self.simulation.clone());
            let (time, reply) = self.simulation.with_state(|state| {
                if state.observations.user.gone {
                    state.report_violation(
                        Invariant::NobodyAsked,
                        format!("{question:?} is put to somebody who went away"),
                    );
                }
                state.activity.asking = true;
                // In milliseconds: at once, after two seconds, or after up to ten minutes.
                let most = state.rng.pick_one(5, &[0, 2_000, 600_000]);
                (state.rng.below(most), decide_reply(state, question))
            });
            // The question stays unanswered. The simulation closes the terminal once everything
            // else is idle.
            let Some(reply) = reply else {
                self.simulation.with_state(|state| {
                    state.counters.count_event("user never answered");
                    state.mark_stuck(StuckReason::User);
                });
                return std::future::pending().await;
            };
            sleep(Duration::from_millis(time)).await;
            match self
                .simulation
                .with_state(|state| deliver_reply(state, question, reply))
            {
                Some(reply) => reply,
                // The answer arrives through the command channel, or never.
                None => std::future::pending().await,
            }
        })
    }
}

/// Draws the user's answer to a question; `None` if they never answer.
///
/// Usually the user approves, accepts, and answers questions with a text. The plan sets how often
/// another answer is drawn.
fn decide_reply(state: &mut SimulationState, question: &UserQuestion) -> Option<UserReply> {
    // Completions are sent back less often, or tasks would not end.
    let non_approval_permille = match question {
        UserQuestion::Completion { .. } => state.plan.user.non_approval_permille / 2,
        _ => state.plan.user.non_approval_permille,
    };
    if !state.rng.hits_permille(non_approval_permille) {
        return Some(match question {
            UserQuestion::Followup { .. } | UserQuestion::Next { .. } => {
                UserReply::Text(state.user_script.unique_message("like this").into())
            }
            _ => UserReply::Yes,
        });
    }
    // Only proposed rules can be accepted for more than this call.
    let rules: Vec<_> = match question {
        UserQuestion::Approval { proposals, .. } => proposals
            .iter()
            .map(|proposal| proposal.rule.clone())
            .collect(),
        _ => Vec::new(),
    };
    // Words that begin with "yes" are the hardest case: they must not count as an approval.
    Some(match state.rng.below(12) {
        0 => return None,
        1 => UserReply::Leave,
        2 | 3 if question.call_id().is_some() => UserReply::No(String::new()),
        4 | 5 => UserReply::No(state.user_script.unique_message("not this")),
        6 | 7 => UserReply::Text(
            state
                .user_script
                .unique_message("yes, but look at it first")
                .into(),
        ),
        8 | 9 if !rules.is_empty() => UserReply::YesWithRules(rules),
        _ => UserReply::Yes,
    })
}

/// Records the user's answer and returns it for the driver. `None` if it is sent through the command channel instead.
fn deliver_reply(
    state: &mut SimulationState,
    question: &UserQuestion,
    reply: UserReply,
) -> Option<UserReply> {
    state.on_event(|| format!("the user answers {reply:?}"));
    // The answer never arrives, so it must not count as given either.
    if state.has_crashed() || state.observations.user.gone {
        return None;
    }
    state.counters.count_event(match &reply {
        UserReply::Yes => "user said yes",
        UserReply::YesWithRules(_) => "user said always",
        UserReply::No(_) => "user said no",
        UserReply::Leave => "user left",
        _ => "user said words",
    });
    match question.call_id() {
        Some(call) => record_decision(state, question, call, &reply),
        // A question for words is answered by a message. It arrives in the order in which it was
        // sent.
        None if state.plan.user.by_channel => {
            if reply == UserReply::Leave {
                state.note_cancel();
                state.send_to_driver(UserCommand::Cancel);
            } else {
                state.send_message(MessageDelivery::Queue);
            }
            return None;
        }
        // The machine writes this text into the record of a plain yes to the question for the next
        // message.
        None => state.observations.user.replied.extend(match &reply {
            UserReply::Yes | UserReply::YesWithRules(_) => Some("Go on.".to_owned()),
            UserReply::No(words) | UserReply::Text(UserMessage { text: words, .. }) => {
                Some(words.clone())
            }
            _ => None,
        }),
    }
    // After the decision was recorded, so that the observer knows the true one.
    let reply = match (state.sabotage, &reply) {
        (Some(Sabotage::ApproveDenied), UserReply::No(_))
        | (Some(Sabotage::ApproveTextAnswer), UserReply::Text(_)) => UserReply::Yes,
        _ => reply,
    };
    let Some(call) = question.call_id().filter(|_| state.plan.user.by_channel) else {
        return Some(reply);
    };
    state.counters.count_event("answers by the channel");
    state.send_to_driver(UserCommand::Answer(call.clone(), reply));
    if state.rng.below(10) == 0 {
        // The answer is sent twice; the second one comes too late.
        state.send_to_driver(UserCommand::Answer(call.clone(), UserReply::Yes));
    }
    None
}

/// Records the user's decision about a call.
///
/// Later records that speak for the user are compared with it.
fn record_decision(
    state: &mut SimulationState,
    question: &UserQuestion,
    call: &CallId,
    reply: &UserReply,
) {
    let yes = matches!(reply, UserReply::Yes | UserReply::YesWithRules(_));
    let actions = &mut state.observations.user;
    match question {
        // Leaving decides nothing about the call.
        _ if *reply == UserReply::Leave => actions.left = true,
        UserQuestion::Approval { .. } => {
            if let UserReply::YesWithRules(rules) = reply {
                actions.always.extend(rules.iter().cloned());
            }
            if yes {
                &mut actions.yes
            } else {
                &mut actions.no
            }
            .push(call.clone());
        }
        UserQuestion::Followup { .. } => actions.answered.push(call.clone()),
        // A user who accepts a completion no longer waits for answers to earlier messages.
        UserQuestion::Completion { .. } if yes => {
            actions.accepted = Some(call.clone());
            state.observations.accept_messages();
        }
        _ => state.counters.count_event("completions sent back"),
    }
}
