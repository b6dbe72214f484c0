//! The user: sees what happens, is asked, and answers, hesitates, leaves or never comes back.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sabir_agent::{Moment, Question, Reply, TaskEvent, User};
use sabir_call::CallId;
use tokio::time::sleep;

use crate::sabotage::Sabotage;
use crate::scene::{Scene, State, Stuck};

/// The simulated user.
pub(crate) struct SimulatedUser(pub(crate) Scene);

/// Says that nobody is asked any more, however that came.
struct Asked(Scene);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.with(|state| state.moment.asking = false);
    }
}

impl User for SimulatedUser {
    fn show(&mut self, event: TaskEvent<'_>) {
        self.0.with(|state| match event {
            TaskEvent::Record(record) => {
                state.happens(|| "a record is shown".to_owned());
                if !state.crashed() {
                    let checked = state.witness.show(record);
                    state.check(checked);
                }
            }
            TaskEvent::Moment(Moment::Delta(_)) => {}
            TaskEvent::Moment(moment) => {
                state.happens(|| format!("shown: {}", serde_json::to_string(&moment).unwrap_or_default()));
            }
        });
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(async move {
            let _asked = Asked(self.0.clone());
            let (time, reply) = self.0.with(|state| {
                state.moment.asking = true;
                let most = state.chance.pick(5, &[0, 2_000, 600_000]);
                (state.chance.below(most), decide(state, question))
            });
            let Some(reply) = reply else {
                self.0.with(|state| {
                    state.figures.count("user never answered");
                    state.get_stuck(Stuck::User);
                });
                return std::future::pending().await;
            };
            sleep(Duration::from_millis(time)).await;
            self.0.with(|state| answer(state, question, reply))
        })
    }
}

/// What the user makes of a question; `None`: nothing, ever.
fn decide(state: &mut State, question: &Question) -> Option<Reply> {
    let moody = match question {
        Question::Completion { .. } => state.plan.moody / 2,
        _ => state.plan.moody,
    };
    if !state.chance.permille(moody) {
        return Some(match question {
            Question::Followup { .. } | Question::Next { .. } => Reply::Words("Like this.".to_owned()),
            _ => Reply::Yes,
        });
    }
    let rules: Vec<_> = match question {
        Question::Approval { proposals, .. } => proposals.iter().map(|proposal| proposal.rule.clone()).collect(),
        _ => Vec::new(),
    };
    Some(match state.chance.below(12) {
        0 => return None,
        1 => Reply::Leave,
        2 | 3 => Reply::No(String::new()),
        4 | 5 => Reply::No("Not this.".to_owned()),
        6 | 7 => Reply::Words("yes, but look at it first".to_owned()),
        8 | 9 if !rules.is_empty() => Reply::Always(rules),
        _ => Reply::Yes,
    })
}

/// Notes what the user does, and says it to the driver.
fn answer(state: &mut State, question: &Question, reply: Reply) -> Reply {
    state.happens(|| format!("the user answers {reply:?}"));
    if state.crashed() {
        return Reply::Leave;
    }
    let yes = matches!(reply, Reply::Yes | Reply::Always(_));
    state.figures.count(match &reply {
        Reply::Yes => "user said yes",
        Reply::Always(_) => "user said always",
        Reply::No(_) => "user said no",
        Reply::Leave => "user left",
        _ => "user said words",
    });
    let deeds = &mut state.witness.user;
    match question {
        _ if reply == Reply::Leave => deeds.left = true,
        Question::Approval { call, .. } => {
            if let Reply::Always(rules) = &reply {
                deeds.always.extend(rules.iter().cloned());
            }
            if yes { &mut deeds.yes } else { &mut deeds.no }.push(CallId::clone(call));
        }
        Question::Followup { call, .. } => deeds.answered.push(call.clone()),
        Question::Completion { call, .. } if yes => deeds.accepted = Some(call.clone()),
        Question::Completion { .. } => state.figures.count("completions sent back"),
        _ => deeds.words += 1,
    }
    match (state.sabotage, &reply) {
        (Some(Sabotage::TurnNoIntoYes), Reply::No(_)) | (Some(Sabotage::TakeWordsForYes), Reply::Words(_)) => {
            Reply::Yes
        }
        _ => reply,
    }
}
