//! Modes in the machine: what a task may switch to, and what a switch changes.
//!
//! Which mode holds follows from the records ([`Trail`]); what the task works with in it is given by whoever runs it ([`Outfit`]), and
//! taken over before the next thing is decided ([`Task::settle`]): a call behind a switch is judged in the new mode, an answer
//! that was asked for in the old one costs what it cost there. The instructions at the beginning of the requests stay those of the mode that
//! the task was begun in; what another one says stands where it came, behind everything that was sent.

use sabir_call::{Call, Ending, Prices, ToolSet, nearest};
use sabir_check::Checker;
use sabir_policy::{Mode, Verdict};

use crate::control;
use crate::event::Question;
use crate::record::{Judge, Record, Shift, When};
use crate::trail::Trail;

use super::{Effect, Phase, Task, calls, charge};

/// What a task works with in a mode.
#[derive(Debug, Clone)]
pub struct Outfit {
    /// The mode.
    pub mode: Mode,
    /// Whether it is a repository's: no approval in advance holds for it.
    pub foreign: bool,
    /// The provider's name of the model.
    pub model: String,
    /// What the model costs today.
    pub prices: Prices,
    /// The tokens that there is room for, if that is known.
    pub window: Option<u64>,
    /// What the model is offered.
    pub tools: ToolSet,
}

/// The modes of a task.
#[derive(Debug, Default)]
pub(super) struct Modes {
    /// The one that holds.
    pub(super) trail: Trail,
    all: Vec<Outfit>,
}

impl Modes {
    fn find(&self, name: &str) -> Option<&Outfit> {
        self.all.iter().find(|outfit| outfit.mode.name == name)
    }
}

impl Task {
    /// Lets the task switch among these modes. Without it there is none but its own.
    #[must_use]
    pub fn among(mut self, outfits: Vec<Outfit>) -> Self {
        self.modes.all = outfits;
        self
    }

    /// Which mode holds, and how it came to that.
    pub fn trail(&self) -> &Trail {
        &self.modes.trail
    }

    /// Answers a call for another mode, or has the user asked about it.
    pub(super) fn switch(&mut self, call: &Call, effects: &mut Vec<Effect>) {
        let name = control::wanted(call);
        let Some(outfit) = self.modes.find(name) else {
            let words = self.no_such_mode(name);
            return self.answer(call, Ending::Failed, words, effects);
        };
        let rules = &self.settings.rules;
        if rules.mode().is_some_and(|mode| mode.name == name) {
            return self.answer(call, Ending::Done, format!("The mode is `{name}` already."), effects);
        }
        let judgement = rules.switch(&outfit.mode, outfit.foreign);
        match judgement.verdict {
            Verdict::Allow => self.switched(call, effects),
            Verdict::Ask if self.settings.attended.answers() => {
                let question = Question::Approval {
                    call: call.id.clone(),
                    tool: call.name.clone(),
                    subject: name.to_owned(),
                    detail: call
                        .arguments
                        .get("reason")
                        .and_then(|reason| reason.as_str())
                        .unwrap_or_default()
                        .to_owned(),
                    reason: judgement.reason,
                    proposals: Vec::new(),
                };
                if let Some(turn) = &mut self.turn {
                    turn.ask(&call.id, question);
                }
            }
            Verdict::Ask => self.deny(call, Judge::Policy, &calls::unapproved(&judgement.reason), effects),
            Verdict::Deny => self.deny(call, Judge::Policy, &judgement.reason, effects),
        }
    }

    /// The call's mode holds from now on.
    pub(super) fn switched(&mut self, call: &Call, effects: &mut Vec<Effect>) {
        let name = control::wanted(call);
        match self.modes.find(name).map(|outfit| outfit.mode.entered()) {
            Some(words) => self.answer(call, Ending::Done, words, effects),
            None => self.answer(call, Ending::Failed, self.no_such_mode(name), effects),
        }
    }

    /// The user switches.
    pub(super) fn moded(&mut self, name: &str, effects: &mut Vec<Effect>) {
        let name = Mode::usual_name(name);
        let words = self.modes.find(name).map(|outfit| outfit.mode.entered());
        let Some(words) = words.filter(|_| !matches!(self.phase, Phase::Paused | Phase::Over)) else { return };
        if self.modes.trail.mode() != name {
            let when = if self.phase == Phase::Asking { When::Later } else { When::Next };
            self.give_up_wider(name, effects);
            self.keep_mode(name, &words, when, effects);
        }
        let Some(turn) = self.turn.as_mut().filter(|_| self.phase == Phase::Acting) else { return };
        // What was asked about in the other mode may be free or forbidden now.
        turn.reconsider();
        if matches!(self.question, Some(Question::Approval { .. })) {
            self.withdraw(effects);
        }
        self.advance(effects);
    }

    /// Subtasks that may do more than that mode allows do not go on.
    fn give_up_wider(&mut self, name: &str, effects: &mut Vec<Effect>) {
        let old = self.settings.rules.mode();
        let narrows = self.modes.find(name).zip(old).is_some_and(|(new, old)| !old.beyond(&new.mode).is_empty());
        if narrows {
            self.give_up_subtasks(effects);
        }
    }

    /// A task that is resumed in another mode than its last one.
    pub(super) fn tell_mode(&mut self, effects: &mut Vec<Effect>) {
        let Some(mode) = self.settings.rules.mode().filter(|mode| mode.name != self.modes.trail.mode()) else { return };
        let (name, words) = (mode.name.clone(), mode.entered());
        self.keep_mode(&name, &words, When::Next, effects);
    }

    fn keep_mode(&mut self, name: &str, words: &str, when: When, effects: &mut Vec<Effect>) {
        let told = format!("The user has switched to another mode. {words}");
        self.keep(Record::Context(Shift::Moded { mode: name.to_owned(), told, when }), effects);
    }

    /// Takes over what the mode that holds brings with it.
    pub(super) fn settle(&mut self) {
        let name = self.modes.trail.mode();
        if self.settings.rules.mode().is_none_or(|mode| mode.name == name) {
            return;
        }
        let Some(outfit) = self.modes.find(name).cloned() else { return };
        let before = charge::fixed_bytes(&self.settings);
        let Outfit { mode, model, prices, window, tools, .. } = outfit;
        let view = &mut self.past.view;
        if self.settings.model != model {
            // What the other model was seen to refuse says nothing of this one.
            view.refused = None;
        }
        view.context.window = window;
        self.settings.rules = std::mem::take(&mut self.settings.rules).within(mode);
        self.checker = Checker::new(tools.clone()).with_repairs(self.settings.repairs);
        (self.settings.model, self.settings.prices, self.settings.tools) = (model, prices, tools);
        self.past.exchange(before, charge::fixed_bytes(&self.settings));
    }

    /// What a summary says of the mode, where it is not the one of the instructions.
    pub(super) fn mode_words(&self) -> String {
        let mode = self.settings.rules.mode().filter(|_| self.modes.trail.has_switched());
        mode.map(Mode::entered).unwrap_or_default()
    }

    fn no_such_mode(&self, name: &str) -> String {
        let names = || self.modes.all.iter().map(|outfit| outfit.mode.name.as_str());
        if names().next().is_none() {
            return "This task has no mode but its own.".to_owned();
        }
        let near = nearest(name, names()).map(|near| format!(" Did you mean `{near}`?")).unwrap_or_default();
        let rows = self.modes.all.iter().map(|outfit| format!("\n- `{}`: {}", outfit.mode.name, outfit.mode.about));
        format!("There is no mode `{name}`.{near} The modes are:{}", rows.collect::<String>())
    }
}
