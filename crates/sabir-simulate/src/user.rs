//! The user: sees what happens, is asked, and answers, hesitates, leaves or never comes back.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sabir_agent::{Heard, Moment, Question, Reply, TaskEvent, User};
use sabir_call::CallId;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use crate::family::AtWork;
use crate::laws::Law;
use crate::sabotage::Sabotage;
use crate::scene::{Scene, State, Stuck};

/// The simulated user.
pub(crate) struct SimulatedUser {
    pub(crate) scene: Scene,
    /// Where the task is a subtask: it is at work as long as it is watched.
    pub(crate) _at_work: Option<AtWork>,
}

/// Says that nobody is asked any more, however that came.
struct Asked(Scene);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.with(|state| state.moment.asking = false);
    }
}

impl User for SimulatedUser {
    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.scene.with(|state| {
            let speaks = state.plan.user.talks > 0 || state.plan.user.by_channel;
            speaks.then(|| state.listen())
        })
    }

    fn show(&mut self, event: TaskEvent<'_>) {
        self.scene.with(|state| match event {
            TaskEvent::Record(record) => {
                state.happens(|| "a record is shown".to_owned());
                if !state.crashed() {
                    let checked = state.witness.show(record);
                    state.check(checked);
                }
            }
            TaskEvent::Moment(Moment::Delta(_)) => {}
            TaskEvent::Moment(moment) => {
                if let Moment::Question(question) = moment {
                    state.talk.asked = question.call().cloned();
                    if matches!(question, Question::Next { reason } if reason.contains("the same result")) {
                        state.figures.count("cycles stopped");
                    }
                }
                state.witness.reading.waits |= matches!(moment, Moment::Asking { .. });
                state.happens(|| format!("shown: {}", serde_json::to_string(&moment).unwrap_or_default()));
            }
        });
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(async move {
            let _asked = Asked(self.scene.clone());
            let (time, reply) = self.scene.with(|state| {
                if state.witness.user.gone {
                    state.broken(Law::NobodyAsked, format!("{question:?} is put to somebody who went away"));
                }
                state.moment.asking = true;
                let most = state.chance.pick(5, &[0, 2_000, 600_000]);
                (state.chance.below(most), decide(state, question))
            });
            let Some(reply) = reply else {
                self.scene.with(|state| {
                    state.figures.count("user never answered");
                    state.get_stuck(Stuck::User);
                });
                return std::future::pending().await;
            };
            sleep(Duration::from_millis(time)).await;
            match self.scene.with(|state| answer(state, question, reply)) {
                Some(reply) => reply,
                // It comes where words come, or not at all.
                None => std::future::pending().await,
            }
        })
    }
}

/// What the user makes of a question; `None`: nothing, ever.
fn decide(state: &mut State, question: &Question) -> Option<Reply> {
    let moody = match question {
        Question::Completion { .. } => state.plan.user.moody / 2,
        _ => state.plan.user.moody,
    };
    if !state.chance.permille(moody) {
        return Some(match question {
            Question::Followup { .. } | Question::Next { .. } => Reply::Words(state.talk.words("like this")),
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
        2 | 3 if question.call().is_some() => Reply::No(String::new()),
        4 | 5 => Reply::No(state.talk.words("not this")),
        6 | 7 => Reply::Words(state.talk.words("yes, but look at it first")),
        8 | 9 if !rules.is_empty() => Reply::Always(rules),
        _ => Reply::Yes,
    })
}

/// Notes what the user does, and says it to the driver; `None`: not here.
fn answer(state: &mut State, question: &Question, reply: Reply) -> Option<Reply> {
    state.happens(|| format!("the user answers {reply:?}"));
    if state.crashed() || state.witness.user.gone {
        return None;
    }
    state.figures.count(match &reply {
        Reply::Yes => "user said yes",
        Reply::Always(_) => "user said always",
        Reply::No(_) => "user said no",
        Reply::Leave => "user left",
        _ => "user said words",
    });
    match question.call() {
        Some(call) => note(state, question, call, &reply),
        None if state.plan.user.by_channel => {
            if reply == Reply::Leave {
                state.cancelled();
                state.send(Heard::Cancelled);
            } else {
                state.tell(Heard::Said);
            }
            return None;
        }
        None => state.witness.user.replied.extend(match &reply {
            Reply::Yes | Reply::Always(_) => Some("Go on.".to_owned()),
            Reply::No(words) | Reply::Words(words) => Some(words.clone()),
            _ => None,
        }),
    }
    let reply = match (state.sabotage, &reply) {
        (Some(Sabotage::TurnNoIntoYes), Reply::No(_)) | (Some(Sabotage::TakeWordsForYes), Reply::Words(_)) => {
            Reply::Yes
        }
        _ => reply,
    };
    let Some(call) = question.call().filter(|_| state.plan.user.by_channel) else { return Some(reply) };
    state.figures.count("answers by the channel");
    state.send(Heard::Replied(call.clone(), reply));
    if state.chance.below(10) == 0 {
        // Said twice, the second time too late.
        state.send(Heard::Replied(call.clone(), Reply::Yes));
    }
    None
}

/// Notes what the user says about a call.
fn note(state: &mut State, question: &Question, call: &CallId, reply: &Reply) {
    let yes = matches!(reply, Reply::Yes | Reply::Always(_));
    let deeds = &mut state.witness.user;
    match question {
        _ if *reply == Reply::Leave => deeds.left = true,
        Question::Approval { .. } => {
            if let Reply::Always(rules) = reply {
                deeds.always.extend(rules.iter().cloned());
            }
            if yes { &mut deeds.yes } else { &mut deeds.no }.push(call.clone());
        }
        Question::Followup { .. } => deeds.answered.push(call.clone()),
        Question::Completion { .. } if yes => {
            deeds.accepted = Some(call.clone());
            state.witness.settle();
        }
        _ => state.figures.count("completions sent back"),
    }
}
