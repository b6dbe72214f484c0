//! What the user says while the task works.
//!
//! Words are kept at once and never stand before something that the model has already seen: what was sent stays a prefix of what
//! is sent next. While calls are open they wait for the results; while an answer is written they wait for its end, and the record
//! says so ([`When::Later`]), since replay could not tell otherwise. Steering gives up what has no consequence yet: an answer
//! that is not whole, calls that have not begun, a question. What runs is left to its end, because half of it may have happened;
//! whoever wants that to stop cancels. Words approve nothing, and only a question for words is answered by them.

use sabir_call::{Draft, Ending, Image, ModelError, ModelErrorKind, Part};

use crate::event::Question;
use crate::record::{Failed, Judge, Record, Speaker, When};

use super::calls::Turn;
use super::charge::Charge;
use super::completion::NOBODY;
use super::{Effect, Input, Phase, Task};

/// The result of a call that was given up before it began.
const OVERTAKEN: &str = "The user said something before this call was made; it was not run.";

/// Why there is no answer.
const GIVEN_UP: &str = "given up for what the user says";

/// What the user says: words, pictures, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// The words.
    pub text: String,
    /// The pictures, which the model sees before the words.
    pub images: Vec<Image>,
}

/// What waits for its moment.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// What was said while an answer was written.
    pub(super) words: Vec<(Speaker, Words)>,
    /// Pictures that go with what is said first when the task goes on.
    pub(super) images: Vec<Image>,
    /// Whether the user wants a compaction.
    pub(super) compaction: bool,
    /// Whether he has spoken while the model was asked for its summary.
    pub(super) spoken: bool,
}

/// Whether somebody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attended {
    /// A user is there.
    Yes,
    /// A program answers whether calls may run, and what the model wants to know. It holds no conversation and reviews no
    /// completion: there it is as if nobody was there.
    Program,
    /// Nobody is: asking means denying.
    No,
}

impl Attended {
    /// Whether somebody can approve calls and answer questions.
    pub fn answers(self) -> bool {
        self != Self::No
    }

    /// Whether somebody talks with the model and looks at its results.
    pub fn converses(self) -> bool {
        self == Self::Yes
    }
}

impl Words {
    /// Whether nothing is said or shown.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    /// As the model reads them.
    pub(super) fn parts(&self) -> Vec<Part> {
        // What is said must be there, be it nothing: the model is asked because of it.
        let text = (self.images.is_empty() || !self.text.is_empty()).then(|| Part::text(&self.text));
        self.images.iter().cloned().map(Part::Image).chain(text).collect()
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self { text, images: Vec::new() }
    }
}

impl From<&str> for Words {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Task {
    /// Pictures that go with what is said first when the task begins or goes on.
    #[must_use]
    pub fn bringing(mut self, images: Vec<Image>) -> Self {
        self.bring(images);
        self
    }

    /// As [`bringing`](Self::bringing), for a task that is reopened.
    pub fn bring(&mut self, images: Vec<Image>) {
        self.unread.images = images;
    }

    pub(super) fn said(&mut self, mut words: Words, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Paused {
            words.images.append(&mut self.unread.images);
        }
        let empty = words.is_empty();
        match self.phase {
            Phase::Paused => {
                self.lose_answer(effects);
                if !empty {
                    self.say(words, When::Next, effects);
                }
                self.begin(effects);
            }
            _ if empty => {}
            Phase::Asking => self.say(words, When::Later, effects),
            // A summary is asked for with messages of its own: the next turn has not been sent yet.
            Phase::Summarising(_) => {
                self.unread.spoken = true;
                self.say(words, When::Next, effects);
            }
            Phase::Acting => {
                let asked_for = matches!(self.question, Some(Question::Next { .. }));
                if asked_for {
                    self.withdraw(effects);
                }
                self.say(words, When::Next, effects);
                if asked_for {
                    self.ask(effects);
                }
            }
            Phase::Ending(..) | Phase::Over => {}
        }
    }

    pub(super) fn steered(&mut self, words: Words, effects: &mut Vec<Effect>) {
        match self.phase {
            _ if words.is_empty() => {}
            Phase::Asking => {
                effects.push(Effect::Stop);
                self.give_up_answer(GIVEN_UP, effects);
                self.say(words, When::Next, effects);
                self.ask(effects);
            }
            Phase::Summarising(why) => {
                effects.push(Effect::Stop);
                self.unread.spoken = true;
                self.say(words, When::Next, effects);
                let error = ModelError { kind: ModelErrorKind::Broken, message: GIVEN_UP.to_owned() };
                self.summarised(why, Input::Failed(error), effects);
            }
            Phase::Acting if self.turn.is_some() => {
                // A completion that is shown may have run its check; nothing of it is under way.
                let asked = self.question.as_ref().and_then(Question::call).cloned();
                self.withdraw(effects);
                self.give_up_subtasks(effects);
                let open = self.turn.as_ref().map(Turn::unanswered).unwrap_or_default();
                for (call, _) in open.into_iter().filter(|(call, running)| !running || asked.as_ref() == Some(&call.id))
                {
                    self.answer(&call, Ending::Rejected, OVERTAKEN.to_owned(), effects);
                }
                self.say(words, When::Next, effects);
                self.advance(effects);
            }
            _ => self.said(words, effects),
        }
    }

    /// Nobody is there any more.
    pub(super) fn left(&mut self, effects: &mut Vec<Effect>) {
        self.settings.attended = Attended::No;
        let question = self.question.clone();
        self.withdraw(effects);
        for call in self.turn.as_ref().map(Turn::asked_about).unwrap_or_default() {
            self.deny(&call, Judge::Policy, "it was asked about, and nobody can be asked any more", effects);
        }
        match question {
            Some(Question::Completion { call, .. }) => match self.call(&call).cloned() {
                Some(call) if !self.objects(&call, effects) => self.completed(&call, "Accepted.", effects),
                _ => self.advance(effects),
            },
            Some(Question::Followup { call, .. }) => {
                if let Some(call) = self.call(&call).cloned() {
                    self.answer(&call, Ending::Failed, NOBODY.to_owned(), effects);
                }
                self.advance(effects);
            }
            Some(Question::Approval { .. }) => self.advance(effects),
            // Nobody says how to go on from there.
            Some(Question::Next { .. }) => match self.stuck() {
                Some(reason) => self.stop_here(reason, effects),
                None => self.without_call(None, effects),
            },
            None => {}
        }
    }

    /// An answer without a call to somebody who has spoken meanwhile: his words are what the model goes on with.
    pub(super) fn answer_words(&mut self, feedback: Option<String>, effects: &mut Vec<Effect>) {
        if let Some(feedback) = feedback {
            self.remind(feedback, effects);
        }
        self.ask(effects);
    }

    /// Words that waited for an answer which was lost when Sabir was stopped.
    pub(super) fn lose_answer(&mut self, effects: &mut Vec<Effect>) {
        if !self.unread.words.is_empty() {
            self.give_up_answer("lost when Sabir was stopped", effects);
        }
    }

    /// Nothing is kept of the answer that is being written, but for what it took.
    fn give_up_answer(&mut self, why: &str, effects: &mut Vec<Effect>) {
        let began = self.draft != Draft::default();
        let Charge { usage, estimate, cost } = if began { self.charge(&self.draft) } else { Charge::default() };
        let (error, message) = (ModelErrorKind::Broken, why.to_owned());
        self.keep(Record::Failed(Failed { error, message, usage, estimate, cost }), effects);
    }

    pub(super) fn say(&mut self, Words { text, images }: Words, when: When, effects: &mut Vec<Effect>) {
        self.keep(Record::Said { by: Speaker::User, text, images, when }, effects);
    }

    /// Takes over what was said.
    pub(super) fn take_said(&mut self, by: Speaker, words: Words, when: When) {
        match by {
            Speaker::User => {
                self.counts.hear_user();
                self.past.view.words.extend(Some(words.text.clone()).filter(|text| !text.trim().is_empty()));
            }
            Speaker::Sabir => self.counts.cycles.note_told(),
        }
        match when {
            When::Next => self.hear(by, words),
            When::Later => self.unread.words.push((by, words)),
        }
    }

    pub(super) fn withdraw(&mut self, effects: &mut Vec<Effect>) {
        if self.question.take().is_some() {
            effects.push(Effect::Withdraw);
        }
    }

    /// Words that the model is to read next: joined to the message that is already waiting for it, or to the results of
    /// the calls that are open.
    pub(super) fn hear(&mut self, by: Speaker, words: Words) {
        if let Some(turn) = &mut self.turn {
            return turn.hear(by, words);
        }
        words.parts().into_iter().for_each(|part| self.past.hear(part));
    }

    /// The answer is there, or will not come: what waited for it is read next.
    pub(super) fn hear_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.unread.words);
        if waiting.iter().any(|(by, _)| *by == Speaker::User) {
            self.counts.without_call = 0;
        }
        waiting.into_iter().for_each(|(by, words)| self.hear(by, words));
    }

    /// Whether the user has spoken while the answer was written.
    pub(super) fn is_spoken_to(&self) -> bool {
        self.unread.words.iter().any(|(by, _)| *by == Speaker::User)
    }
}
