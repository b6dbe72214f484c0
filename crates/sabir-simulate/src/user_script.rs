//! The talk: what the user says unasked, at any moment at which something happens.
//!
//! Each of the user's words is another, so that it is known again wherever it turns up.

use sabir_agent::{MessageDelivery, UserCommand, UserReply};
use sabir_call::CallId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::sabotage::Sabotage;
use crate::simulation_state::SimulationState;

/// How the user is heard, and when they next say something.
#[derive(Debug, Default)]
pub(crate) struct UserScript {
    sender: Option<UnboundedSender<UserCommand>>,
    at: Option<u64>,
    /// Words so far.
    spoken: u32,
    /// The call of the question that is open.
    pub(crate) asked: Option<CallId>,
}

impl UserScript {
    /// A process begins, or is gone: nobody hears the user. They speak up next in that happening.
    pub(crate) fn disconnect(&mut self, at: Option<u64>) {
        (self.sender, self.asked, self.at) = (None, None, at);
    }

    /// Whether something is said in that happening.
    pub(crate) fn is_due(&self, happening: u64) -> bool {
        self.at.is_some_and(|at| at <= happening) && self.sender.is_some()
    }

    /// Words that nobody has said before.
    pub(crate) fn unique_words(&mut self, what: &str) -> String {
        self.spoken += 1;
        format!("{what} ({}.)", self.spoken)
    }
}

impl SimulationState {
    /// The driver listens.
    pub(crate) fn open_channel(&mut self) -> UnboundedReceiver<UserCommand> {
        let (mouth, ears) = unbounded_channel();
        self.user_script.sender = Some(mouth);
        ears
    }

    /// In which happening something is said, from that one on.
    pub(crate) fn draw_next_talk(&mut self, from: u64) -> Option<u64> {
        (self.plan.user.talks > 0).then(|| from + 1 + self.rng.below(self.plan.user.talks))
    }

    /// The user says something, whatever is going on.
    pub(crate) fn speak_unasked(&mut self, happening: u64) {
        self.user_script.at = self.draw_next_talk(happening);
        if self.witness.user.gone {
            return;
        }
        match self.rng.below(20) {
            0 => {
                self.counters.count_event("blank words");
                self.send_to_driver(UserCommand::queue(" \n"));
            }
            1 | 2 => self.answer_late(),
            3 => {
                self.counters.count_event("user went away");
                self.witness.user.gone = true;
                self.send_to_driver(UserCommand::Disconnect);
            }
            4 => {
                self.note_cancel();
                self.send_to_driver(UserCommand::Cancel);
            }
            5..=9 => self.tell_words(MessageDelivery::Interrupt),
            _ => self.tell_words(MessageDelivery::Queue),
        }
    }

    /// At what does not come up often, somebody who talks often has something to say.
    pub(crate) fn perhaps_tell(&mut self, rare: bool) {
        let hears = rare && self.plan.user.talks > 0 && self.user_script.sender.is_some();
        if hears && !self.has_crashed() && !self.witness.user.gone && self.rng.below(4) == 0 {
            self.tell_words(MessageDelivery::Queue);
        }
    }

    /// Words that wait for nothing.
    pub(crate) fn tell_words(&mut self, delivery: MessageDelivery) {
        let text = self.user_script.unique_words("yes, go on like this");
        let heard = UserCommand::Send { message: text.clone().into(), delivery };
        self.counters.count_event(match delivery {
            MessageDelivery::Interrupt => "words that steer",
            MessageDelivery::Queue => "words that wait",
        });
        self.count_moment();
        self.witness.user.said.push_back(text);
        self.send_to_driver(heard);
    }

    fn count_moment(&mut self) {
        let moments = [
            (self.moment.asking, "words in a question"),
            (self.moment.answering, "words in an answer"),
            (self.moment.summarising, "words in a summary"),
            (self.moment.checking, "words in a check"),
            (self.witness.tools.is_any_running(), "words while tools ran"),
        ];
        moments.into_iter().filter(|(is, _)| *is).for_each(|(_, name)| self.counters.count_event(name));
    }

    /// A yes to a question that is none, or is none any more.
    fn answer_late(&mut self) {
        let calls = self.witness.calls.iter();
        let over: Vec<_> = calls.filter(|(_, call)| call.result.is_some()).map(|(id, _)| id.clone()).collect();
        let call = over.get(self.rng.index(over.len())).cloned().unwrap_or_else(|| CallId::new("nobody"));
        self.counters.count_event("answers to no question");
        self.send_to_driver(UserCommand::Answer(call, UserReply::Yes));
    }

    /// What the driver hears.
    pub(crate) fn send_to_driver(&mut self, heard: UserCommand) {
        self.trace_line(|| format!("the user: {heard:?}"));
        let odd = self.user_script.spoken % 2 == 1;
        let heard = match (self.sabotage, heard) {
            (Some(Sabotage::SwallowWords), UserCommand::Send { .. }) if odd => return,
            (Some(Sabotage::SwallowLeaving), UserCommand::Disconnect)
            | (Some(Sabotage::NeverStop), UserCommand::Cancel) => return,
            (Some(Sabotage::HearWordsAsYes), heard @ UserCommand::Send { delivery: MessageDelivery::Queue, .. }) => {
                match &self.user_script.asked {
                    Some(call) => {
                        self.witness.user.said.pop_back();
                        UserCommand::Answer(call.clone(), UserReply::Yes)
                    }
                    None => heard,
                }
            }
            (_, heard) => heard,
        };
        if let Some(mouth) = &self.user_script.sender {
            // Nobody may be listening any more.
            _ = mouth.send(heard);
        }
    }
}
