//! The talk: what the user says unasked, at any moment at which something happens.
//!
//! Each of the user's words is another, so that it is known again wherever it turns up.

use sabir_agent::{Heard, Reply};
use sabir_call::CallId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::sabotage::Sabotage;
use crate::scene::State;

/// How the user is heard, and when they next say something.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    mouth: Option<UnboundedSender<Heard>>,
    at: Option<u64>,
    /// Words so far.
    spoken: u32,
    /// The call of the question that is open.
    pub(crate) asked: Option<CallId>,
}

impl Talk {
    /// A process begins, or is gone: nobody hears the user. They speak up next in that happening.
    pub(crate) fn hush(&mut self, at: Option<u64>) {
        (self.mouth, self.asked, self.at) = (None, None, at);
    }

    /// Whether something is said in that happening.
    pub(crate) fn is_due(&self, happening: u64) -> bool {
        self.at.is_some_and(|at| at <= happening) && self.mouth.is_some()
    }

    /// Words that nobody has said before.
    pub(crate) fn words(&mut self, what: &str) -> String {
        self.spoken += 1;
        format!("{what} ({}.)", self.spoken)
    }
}

impl State {
    /// The driver listens.
    pub(crate) fn listen(&mut self) -> UnboundedReceiver<Heard> {
        let (mouth, ears) = unbounded_channel();
        self.talk.mouth = Some(mouth);
        ears
    }

    /// In which happening something is said, from that one on.
    pub(crate) fn next_talk(&mut self, from: u64) -> Option<u64> {
        (self.plan.user.talks > 0).then(|| from + 1 + self.chance.below(self.plan.user.talks))
    }

    /// The user says something, whatever is going on.
    pub(crate) fn speak(&mut self, happening: u64) {
        self.talk.at = self.next_talk(happening);
        if self.witness.user.gone {
            return;
        }
        match self.chance.below(20) {
            0 => {
                self.figures.count("blank words");
                self.send(Heard::Said(" \n".to_owned()));
            }
            1 | 2 => self.answer_late(),
            3 => {
                self.figures.count("user went away");
                self.witness.user.gone = true;
                self.send(Heard::Left);
            }
            4 => {
                self.cancelled();
                self.send(Heard::Cancelled);
            }
            5..=9 => self.tell(Heard::Steered),
            _ => self.tell(Heard::Said),
        }
    }

    /// At what does not come up often, somebody who talks often has something to say.
    pub(crate) fn perhaps_tell(&mut self, rare: bool) {
        let hears = rare && self.plan.user.talks > 0 && self.talk.mouth.is_some();
        if hears && !self.crashed() && !self.witness.user.gone && self.chance.below(4) == 0 {
            self.tell(Heard::Said);
        }
    }

    /// Words that wait for nothing.
    pub(crate) fn tell(&mut self, how: fn(String) -> Heard) {
        let text = self.talk.words("yes, go on like this");
        let heard = how(text.clone());
        self.figures.count(if matches!(heard, Heard::Steered(_)) { "words that steer" } else { "words that wait" });
        self.count_moment();
        self.witness.user.said.push_back(text);
        self.send(heard);
    }

    fn count_moment(&mut self) {
        let moments = [
            (self.moment.asking, "words in a question"),
            (self.moment.answering, "words in an answer"),
            (self.moment.summarising, "words in a summary"),
            (self.moment.checking, "words in a check"),
            (self.witness.tools.any(), "words while tools ran"),
        ];
        moments.into_iter().filter(|(is, _)| *is).for_each(|(_, name)| self.figures.count(name));
    }

    /// A yes to a question that is none, or is none any more.
    fn answer_late(&mut self) {
        let calls = self.witness.calls.iter();
        let over: Vec<_> = calls.filter(|(_, call)| call.result.is_some()).map(|(id, _)| id.clone()).collect();
        let call = over.get(self.chance.index(over.len())).cloned().unwrap_or_else(|| CallId::new("nobody"));
        self.figures.count("answers to no question");
        self.send(Heard::Replied(call, Reply::Yes));
    }

    /// What the driver hears.
    pub(crate) fn send(&mut self, heard: Heard) {
        self.say(|| format!("the user: {heard:?}"));
        let odd = self.talk.spoken % 2 == 1;
        let heard = match (self.sabotage, heard) {
            (Some(Sabotage::SwallowWords), Heard::Said(_) | Heard::Steered(_)) if odd => return,
            (Some(Sabotage::SwallowLeaving), Heard::Left) | (Some(Sabotage::NeverStop), Heard::Cancelled) => return,
            (Some(Sabotage::HearWordsAsYes), Heard::Said(text)) => match &self.talk.asked {
                Some(call) => {
                    self.witness.user.said.pop_back();
                    Heard::Replied(call.clone(), Reply::Yes)
                }
                None => Heard::Said(text),
            },
            (_, heard) => heard,
        };
        if let Some(mouth) = &self.talk.mouth {
            // Nobody may be listening any more.
            _ = mouth.send(heard);
        }
    }
}
