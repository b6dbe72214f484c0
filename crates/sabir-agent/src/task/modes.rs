//! Modes in the machine: what a task may switch to, and what a switch changes.
//!
//! Which mode holds follows from the records ([`ModeHistory`]); what the task works with in it comes from the caller ([`ModeConfig`]), and
//! taken over before the next thing is decided ([`Task::apply_current_mode`]): a call behind a switch is judged in the new mode, an answer
//! that was asked for in the old one costs what it cost there. The instructions at the beginning of the requests stay those of the mode that
//! the task was begun in; what another one says stands where it came, behind everything that was sent.

use sabir_call::{Call, TokenPrices, ToolResultStatus, ToolSet, nearest_candidate};
use sabir_check::CallChecker;
use sabir_policy::{Mode, Verdict};

use crate::control;
use crate::event::UserQuestion;
use crate::mode_history::ModeHistory;
use crate::record::{ContextChange, DecisionMaker, Delivery, Record, ToolsChange};

use super::tools::changed_set;
use super::{Task, TaskEffect, TaskPhase, calls, usage};

/// What a task works with in a mode.
#[derive(Debug, Clone)]
pub struct ModeConfig {
    /// The mode.
    pub mode: Mode,
    /// Whether it is a repository's: no approval in advance holds for it.
    pub from_repository: bool,
    /// The provider's name of the model.
    pub model: String,
    /// What the model costs today.
    pub prices: TokenPrices,
    /// The tokens that there is room for, if that is known.
    pub window: Option<u64>,
    /// What the model is offered.
    pub tools: ToolSet,
}

/// The modes of a task.
#[derive(Debug, Default)]
pub(super) struct TaskModes {
    /// The one that holds.
    pub(super) history: ModeHistory,
    configs: Vec<ModeConfig>,
}

impl TaskModes {
    /// Changes what each mode offers.
    pub(super) fn apply_tools_change(&mut self, change: &ToolsChange) {
        for config in &mut self.configs {
            if let Some(tools) = changed_set(&config.tools, change, Some(&config.mode)) {
                config.tools = tools;
            }
        }
    }

    fn find_config(&self, name: &str) -> Option<&ModeConfig> {
        self.configs.iter().find(|outfit| outfit.mode.name == name)
    }
}

impl Task {
    /// Lets the task switch among these modes. Without it there is none but its own.
    #[must_use]
    pub fn with_modes(mut self, outfits: Vec<ModeConfig>) -> Self {
        self.modes.configs = outfits;
        // The modes were set up without the changes on record.
        let change = self.recorded_tools.clone();
        self.modes.apply_tools_change(&change);
        self
    }

    /// Which mode holds, and how it came to that.
    pub fn mode_history(&self) -> &ModeHistory {
        &self.modes.history
    }

    /// Answers a call for another mode, or has the user asked about it.
    pub(super) fn handle_switch_call(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        let name = control::requested_mode(call);
        let Some(outfit) = self.modes.find_config(name) else {
            let words = self.no_such_mode(name);
            return self.answer_call(call, ToolResultStatus::Failed, words, effects);
        };
        let rules = &self.settings.rules;
        if rules.mode().is_some_and(|mode| mode.name == name) {
            return self.answer_call(
                call,
                ToolResultStatus::Done,
                format!("The mode is `{name}` already."),
                effects,
            );
        }
        let judgement = rules.decide_mode_switch(&outfit.mode, outfit.from_repository);
        match judgement.verdict {
            Verdict::Allow => self.finish_switch(call, effects),
            Verdict::Ask if self.settings.interactivity.can_answer() => {
                let question = UserQuestion::Approval {
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
                    turn.set_question(&call.id, question);
                }
            }
            Verdict::Ask => self.deny_call(
                call,
                DecisionMaker::Policy,
                &calls::unapproved_reason(&judgement.reason),
                effects,
            ),
            Verdict::Deny => {
                self.deny_call(call, DecisionMaker::Policy, &judgement.reason, effects)
            }
        }
    }

    /// The call's mode holds from now on.
    pub(super) fn finish_switch(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        let name = control::requested_mode(call);
        match self
            .modes
            .find_config(name)
            .map(|outfit| outfit.mode.entry_message())
        {
            Some(words) => self.answer_call(call, ToolResultStatus::Done, words, effects),
            None => self.answer_call(
                call,
                ToolResultStatus::Failed,
                self.no_such_mode(name),
                effects,
            ),
        }
    }

    /// The user switches.
    pub(super) fn handle_mode_change(&mut self, name: &str, effects: &mut Vec<TaskEffect>) {
        let name = Mode::canonical_name(name);
        let words = self
            .modes
            .find_config(name)
            .map(|outfit| outfit.mode.entry_message());
        let Some(words) =
            words.filter(|_| !matches!(self.phase, TaskPhase::Paused | TaskPhase::Finished))
        else {
            return;
        };
        if self.modes.history.current_mode() != name {
            let when = if self.phase == TaskPhase::AwaitingModel {
                Delivery::Later
            } else {
                Delivery::Next
            };
            self.stop_wider_subtasks(name, effects);
            self.commit_mode(name, &words, when, effects);
        }
        let Some(turn) = self
            .turn
            .as_mut()
            .filter(|_| self.phase == TaskPhase::HandlingCalls)
        else {
            return;
        };
        // What was asked about in the other mode may be free or forbidden now.
        turn.reassess_questions();
        if matches!(self.question, Some(UserQuestion::Approval { .. })) {
            self.withdraw_question(effects);
        }
        self.advance_calls(effects);
    }

    /// Subtasks that may do more than that mode allows do not go on.
    fn stop_wider_subtasks(&mut self, name: &str, effects: &mut Vec<TaskEffect>) {
        let old = self.settings.rules.mode();
        let narrows = self
            .modes
            .find_config(name)
            .zip(old)
            .is_some_and(|(new, old)| !old.extra_abilities(&new.mode).is_empty());
        if narrows {
            self.stop_subtasks(effects);
        }
    }

    /// A task that is resumed in another mode than its last one.
    pub(super) fn announce_mode(&mut self, effects: &mut Vec<TaskEffect>) {
        let Some(mode) = self
            .settings
            .rules
            .mode()
            .filter(|mode| mode.name != self.modes.history.current_mode())
        else {
            return;
        };
        let (name, words) = (mode.name.clone(), mode.entry_message());
        self.commit_mode(&name, &words, Delivery::Next, effects);
    }

    fn commit_mode(
        &mut self,
        name: &str,
        words: &str,
        when: Delivery,
        effects: &mut Vec<TaskEffect>,
    ) {
        let told = format!("The user has switched to another mode. {words}");
        self.commit_record(
            Record::Context(ContextChange::Moded {
                mode: name.to_owned(),
                told,
                when,
            }),
            effects,
        );
    }

    /// Takes over what the mode that holds brings with it.
    pub(super) fn apply_current_mode(&mut self) {
        let name = self.modes.history.current_mode();
        if self
            .settings
            .rules
            .mode()
            .is_none_or(|mode| mode.name == name)
        {
            return;
        }
        let Some(outfit) = self.modes.find_config(name).cloned() else {
            return;
        };
        let before = usage::fixed_bytes(&self.settings);
        let ModeConfig {
            mode,
            model,
            prices,
            window,
            tools,
            ..
        } = outfit;
        let view = &mut self.transcript.view;
        if self.settings.model != model {
            // What the other model was seen to refuse says nothing of this one.
            view.refused_tokens = None;
        }
        view.context.window = window;
        self.settings.rules = std::mem::take(&mut self.settings.rules).with_mode(mode);
        self.checker = CallChecker::new(tools.clone()).with_repairs(self.settings.repairs);
        (
            self.settings.model,
            self.settings.prices,
            self.settings.tools,
        ) = (model, prices, tools);
        self.transcript
            .replace_fixed_bytes(before, usage::fixed_bytes(&self.settings));
    }

    /// What a summary says of the mode, where it is not the one of the instructions.
    pub(super) fn mode_summary(&self) -> String {
        let mode = self
            .settings
            .rules
            .mode()
            .filter(|_| self.modes.history.has_switched());
        mode.map(Mode::entry_message).unwrap_or_default()
    }

    fn no_such_mode(&self, name: &str) -> String {
        let names = || {
            self.modes
                .configs
                .iter()
                .map(|outfit| outfit.mode.name.as_str())
        };
        if names().next().is_none() {
            return "This task has no mode but its own.".to_owned();
        }
        let near = nearest_candidate(name, names())
            .map(|near| format!(" Did you mean `{near}`?"))
            .unwrap_or_default();
        let rows = self
            .modes
            .configs
            .iter()
            .map(|outfit| format!("\n- `{}`: {}", outfit.mode.name, outfit.mode.about));
        format!(
            "There is no mode `{name}`.{near} The modes are:{}",
            rows.collect::<String>()
        )
    }
}
