//! Modes in the task state machine: the switches between them, and their effects.
//!
//! The current mode follows from the records ([`ModeHistory`]). What the task uses in a mode comes
//! from the caller ([`ModeConfig`]) and is applied before the next decision
//! ([`Task::apply_current_mode`]): a call behind a switch is checked in the new mode, and an answer
//! that was requested in the old one costs what it cost there. The instructions at the beginning of
//! the requests stay those of the mode that the task began in; the text of another mode is placed
//! where the switch was made, after everything that was sent.

use sabir_call::{Call, TextRecovery, TokenPrices, ToolResultStatus, ToolSet, nearest_candidate};
use sabir_policy::{Mode, Verdict};

use crate::control;
use crate::event::UserQuestion;
use crate::mode_history::ModeHistory;
use crate::record::{ContextChange, DecisionMaker, DeliveryTime, Record, ToolsChange};

use super::tools::changed_set;
use super::{Task, TaskEffect, TaskPhase, calls, usage};

/// The configuration of a task in a mode.
#[derive(Debug, Clone)]
pub struct ModeConfig {
    /// The mode.
    pub mode: Mode,
    /// True if the mode comes from a repository. Approvals in advance do not apply to such a mode.
    pub from_repository: bool,
    /// The provider's name of the model.
    pub model: String,
    /// The current prices of the model.
    pub prices: TokenPrices,
    /// The size of the context window in tokens, if it is known.
    pub window: Option<u64>,
    /// The treatment of calls in the text of a native session.
    pub recovery: TextRecovery,
    /// True if the server of the model renders a chat template.
    pub renders_template: bool,
    /// The tools that the model is offered.
    pub tools: ToolSet,
}

/// The modes of a task.
#[derive(Debug, Default)]
pub(super) struct TaskModes {
    /// The history, which tells the current mode.
    pub(super) history: ModeHistory,
    configs: Vec<ModeConfig>,
}

impl TaskModes {
    /// Applies a change of the tools to each mode.
    pub(super) fn apply_tools_change(&mut self, change: &ToolsChange) {
        for config in &mut self.configs {
            if let Some(tools) = changed_set(&config.tools, change, Some(&config.mode)) {
                config.tools = tools;
            }
        }
    }

    fn find_config(&self, name: &str) -> Option<&ModeConfig> {
        self.configs.iter().find(|config| config.mode.name == name)
    }
}

impl Task {
    /// Lets the task switch among these modes. Without it, the task has only its own mode.
    #[must_use]
    pub fn with_modes(mut self, configs: Vec<ModeConfig>) -> Self {
        self.modes.configs = configs;
        // The modes were set up without the changes on record.
        if !self.recorded_tools.is_empty() {
            self.modes.apply_tools_change(&self.recorded_tools);
        }
        self
    }

    /// Returns the mode history of the task.
    pub fn mode_history(&self) -> &ModeHistory {
        &self.modes.history
    }

    /// Answers a call for another mode, or asks the user about it.
    pub(super) fn handle_switch_call(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        let name = control::requested_mode(call);
        let Some(config) = self.modes.find_config(name) else {
            let words = self.no_such_mode(name);
            return self.record_call_result(call, ToolResultStatus::Failed, words, effects);
        };
        let rules = &self.settings.rules;
        if rules.mode().is_some_and(|mode| mode.name == name) {
            return self.record_call_result(
                call,
                ToolResultStatus::Done,
                format!("The mode is `{name}` already."),
                effects,
            );
        }
        // The model may give up abilities by itself. To gain some it needs the user.
        let mut decision = rules.decide_mode_switch(&config.mode, config.from_repository);
        let caution = self.text_call_risk(call);
        if let Some(reason) = caution
            .reason()
            .filter(|_| decision.verdict == Verdict::Allow)
        {
            decision.verdict = Verdict::Ask;
            decision.reason = reason;
        }
        match decision.verdict {
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
                    reason: decision.reason,
                    proposals: Vec::new(),
                    recovered_from_text: caution.recovered_from_text,
                    echo_of: caution.echo_of,
                };
                if let Some(turn) = &mut self.turn {
                    turn.set_question(&call.id, question);
                }
            }
            Verdict::Ask => self.deny_call(
                call,
                DecisionMaker::Policy,
                &(calls::unapproved_reason(&decision.reason) + &caution.advice(&call.name)),
                effects,
            ),
            Verdict::Deny => self.deny_call(call, DecisionMaker::Policy, &decision.reason, effects),
        }
    }

    /// Answers a call for another mode as done. The record of that result switches the mode.
    pub(super) fn finish_switch(&mut self, call: &Call, effects: &mut Vec<TaskEffect>) {
        let name = control::requested_mode(call);
        match self
            .modes
            .find_config(name)
            .map(|config| config.mode.mode_switch_message())
        {
            Some(words) => self.record_call_result(call, ToolResultStatus::Done, words, effects),
            None => self.record_call_result(
                call,
                ToolResultStatus::Failed,
                self.no_such_mode(name),
                effects,
            ),
        }
    }

    /// Switches to the mode that the user chose.
    pub(super) fn handle_mode_change(&mut self, name: &str, effects: &mut Vec<TaskEffect>) {
        let name = Mode::canonical_name(name);
        let words = self
            .modes
            .find_config(name)
            .map(|config| config.mode.mode_switch_message());
        let Some(words) =
            words.filter(|_| !matches!(self.phase, TaskPhase::Paused | TaskPhase::Finished))
        else {
            return;
        };
        // Switching to the current mode creates no record, but the open question is still checked
        // again.
        if self.modes.history.current_mode() != name {
            let when = if self.phase == TaskPhase::AwaitingModel {
                // The current answer was requested without it, and a replay knows that only from
                // this value.
                DeliveryTime::Later
            } else {
                DeliveryTime::Next
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
        // A call that asked in the other mode may be allowed or denied now.
        turn.reassess_questions();
        // Withdrawn even if the new decision is the same: a yes to the old question must not count
        // for the new one.
        if matches!(self.question, Some(UserQuestion::Approval { .. })) {
            self.withdraw_question(effects);
        }
        self.advance_calls(effects);
    }

    /// Stops the subtasks if they may do more than the new mode allows.
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

    /// Announces the mode, if the task is resumed in another one than its last.
    pub(super) fn announce_mode(&mut self, effects: &mut Vec<TaskEffect>) {
        let Some(mode) = self
            .settings
            .rules
            .mode()
            .filter(|mode| mode.name != self.modes.history.current_mode())
        else {
            return;
        };
        let name = mode.name.clone();
        let message = mode.mode_switch_message();
        self.commit_mode(&name, &message, DeliveryTime::Next, effects);
    }

    fn commit_mode(
        &mut self,
        name: &str,
        words: &str,
        when: DeliveryTime,
        effects: &mut Vec<TaskEffect>,
    ) {
        let announcement = format!("The user has switched to another mode. {words}");
        self.commit_record(
            Record::Context(ContextChange::Moded {
                mode: name.to_owned(),
                told: announcement,
                when,
            }),
            effects,
        );
    }

    /// Applies the configuration of the current mode, if it is not applied yet.
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
        let Some(config) = self.modes.find_config(name).cloned() else {
            return;
        };
        // Measured before the settings change, so that the size of the old tools can be subtracted.
        let before = usage::fixed_bytes(&self.settings);
        let ModeConfig {
            mode,
            model,
            prices,
            window,
            recovery,
            renders_template,
            tools,
            ..
        } = config;
        let view = &mut self.transcript.view;
        if self.settings.model != model {
            // A size that the other model refused says nothing about this one.
            view.refused_tokens = None;
        }
        view.context.window = window;
        self.settings.rules = std::mem::take(&mut self.settings.rules).with_mode(mode);
        self.checker = self.settings.call_checker(tools.clone());
        self.settings.model = model;
        self.settings.prices = prices;
        self.settings.recovery = recovery;
        self.settings.renders_template = renders_template;
        self.settings.tools = tools;
        self.transcript
            .replace_fixed_bytes(before, usage::fixed_bytes(&self.settings));
    }

    /// Returns the text about the mode for a summary; empty if the instructions still name the current mode.
    pub(super) fn mode_summary(&self) -> String {
        let mode = self
            .settings
            .rules
            .mode()
            .filter(|_| self.modes.history.has_switched());
        mode.map(Mode::mode_switch_message).unwrap_or_default()
    }

    fn no_such_mode(&self, name: &str) -> String {
        let names = || {
            self.modes
                .configs
                .iter()
                .map(|config| config.mode.name.as_str())
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
            .map(|config| format!("\n- `{}`: {}", config.mode.name, config.mode.about));
        format!(
            "There is no mode `{name}`.{near} The modes are:{}",
            rows.collect::<String>()
        )
    }
}
