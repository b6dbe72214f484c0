//! Turns: makes an answer out of a draft, with call ids, results of checks and feedback.

use std::collections::{HashMap, HashSet};

use sabir_call::{CallId, DraftCall, DraftPart, DraftResponse, MessagePart, Role, ToolProtocol};
use sabir_check::{CallState, CheckedCall, CheckedOutcome, FeedbackContext, render_feedback};
use serde_json::Value;

use crate::record::{AssistantTurn, CallCheck, EchoSource};

use super::Task;
use super::calls::OpenTurn;
use super::usage::UsageDelta;

impl Task {
    /// Runs the checks on the calls of a draft, and gives every call a unique id.
    pub(super) fn check_answer(&self, mut draft: DraftResponse) -> AssistantTurn {
        draft.drop_blank_text();
        let UsageDelta {
            usage,
            estimate,
            cost,
        } = self.answer_usage(&draft);
        let turn = self.budget.lifetime_turns().saturating_add(1);
        let mut checked = self.checker.check_all(&draft);
        let mut wrapped: HashMap<u32, Vec<String>> = draft
            .calls()
            .filter_map(|call| {
                let checked = checked.iter().find(|it| it.index == call.index)?;
                Some((call.index, arguments_on_own_lines(call, checked)))
            })
            .collect();
        let escaping = self.content_escaping();
        for value in checked
            .iter_mut()
            .flat_map(|checked| checked.arguments.values_mut())
        {
            escaping.restore_value(value, &|c| self.transcript.was_read(c));
        }
        // Results find their calls by id, so a provider that repeats one must not answer two calls
        // at once.
        let mut used = HashSet::new();
        let mut is_used = |id: &CallId| self.transcript.has_call(id) || !used.insert(id.clone());
        let loose: Vec<_> = draft
            .faults
            .iter()
            .filter(|fault| fault.call.is_none())
            .cloned()
            .collect();
        let say = |checked: &[CheckedCall], loose: &[_]| {
            render_feedback(checked, loose, &draft.source, &self.feedback_context())
        };
        // Before the draft is taken apart: a call's span refers to its source.
        let mut echoes: HashMap<u32, EchoSource> = draft
            .calls()
            .filter_map(|call| Some((call.index, self.find_echo_source(&draft, call)?)))
            .collect();
        let mut parts = Vec::new();
        let mut checks = Vec::new();
        for part in draft.parts {
            match part {
                DraftPart::Text(text) => parts.push(MessagePart::Text { text }),
                DraftPart::Thought(text) => parts.push(MessagePart::Thought { text, opaque: None }),
                // Opaque state belongs to the thought before it, and is sent back with it
                // unchanged.
                DraftPart::Opaque(opaque) => match parts.last_mut() {
                    Some(MessagePart::Thought {
                        opaque: slot @ None,
                        ..
                    }) => *slot = Some(opaque),
                    _ => parts.push(MessagePart::Opaque(opaque)),
                },
                DraftPart::Call(call) => {
                    let Some(at) = checked
                        .iter()
                        .position(|checked| checked.index == call.index)
                    else {
                        continue;
                    };
                    let checked = checked.swap_remove(at);
                    let id = unique_call_id(call.id.as_deref(), turn, call.index, &mut is_used);
                    let native = self.start.protocol == ToolProtocol::Native;
                    // Only a call that was closed and passed every check may run.
                    let passed = checked.state == CallState::Complete;
                    let feedback = if passed {
                        None
                    } else {
                        say(std::slice::from_ref(&checked), &[])
                    };
                    checks.push(CallCheck {
                        call: id.clone(),
                        passed,
                        repairs: checked.repairs,
                        faults: checked.faults,
                        feedback,
                        recovered_from_text: native && call.dialect.is_some(),
                        echo_of: echoes.remove(&call.index),
                        wrapped: wrapped.remove(&call.index).unwrap_or_default(),
                    });
                    parts.push(MessagePart::Call(sabir_call::Call {
                        id,
                        name: checked.name,
                        arguments: checked.arguments,
                        dialect: call.dialect,
                    }));
                }
            }
        }
        let feedback = say(&[], &loose);
        AssistantTurn {
            turn,
            parts,
            checks,
            faults: loose,
            usage,
            estimate,
            cost,
            stop: draft.stop.map(|(reason, _)| reason),
            feedback,
        }
    }

    /// Returns the facts about the task on which feedback depends.
    pub(super) fn feedback_context(&self) -> FeedbackContext<'_> {
        FeedbackContext {
            protocol: &self.start.protocol,
            dialects: &self.settings.dialects,
            tools: self.checker.tools(),
            repetition: self.progress.reported_mistakes(),
        }
    }

    /// Applies an answer.
    pub(super) fn apply_answer(&mut self, answered: &AssistantTurn) {
        self.budget.note_turn();
        self.budget.note_usage(UsageDelta::from_turn(answered));
        self.note_mistakes(answered);
        // Before the answer enters the history: the provider counted the request without it.
        self.note_measured_tokens(answered);
        self.last_stop_reason = answered.stop;
        self.draft = DraftResponse::default();
        let turn = OpenTurn::from_answer(answered);
        self.progress.note_answer(turn.is_some());
        match turn {
            Some(turn) => self.turn = Some(turn),
            None => self
                .transcript
                .push_message(Role::Assistant, answered.parts.clone()),
        }
        // After the answer, which was requested without them.
        self.deliver_pending();
    }

    /// Notes the mistakes that the model gets feedback on, so that the same text is not repeated.
    pub(super) fn note_mistakes(&mut self, answered: &AssistantTurn) {
        let call = |part: &MessagePart| match part {
            MessagePart::Call(call) => Some((call.id.clone(), call.name.clone())),
            _ => None,
        };
        let names: HashMap<_, _> = answered.parts.iter().filter_map(call).collect();
        let calls = answered.checks.iter().map(|check| CheckedOutcome {
            tool: names.get(&check.call).map_or("", String::as_str),
            passed: check.passed,
            faults: &check.faults,
        });
        let loose = CheckedOutcome {
            tool: "",
            passed: false,
            faults: &answered.faults,
        };
        self.progress.note_checks(calls.chain([loose]));
    }
}

/// Returns the names of the arguments whose values were written on lines of their own. They are found by their values, since a repair may
/// have renamed an argument.
fn arguments_on_own_lines(call: &DraftCall, checked: &CheckedCall) -> Vec<String> {
    let is_on_own_lines = |value: &Value| {
        value.as_str().is_some_and(|value| {
            call.arguments
                .iter()
                .any(|written| written.is_on_own_lines() && written.text == value)
        })
    };
    checked
        .arguments
        .iter()
        .filter(|(_, value)| is_on_own_lines(value))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns the provider's id if it is new, else a generated one. `is_used` returns true for a used id, and reserves any other.
fn unique_call_id(
    native: Option<&str>,
    turn: u32,
    index: u32,
    is_used: &mut dyn FnMut(&CallId) -> bool,
) -> CallId {
    if let Some(id) = native
        .filter(|id| !id.is_empty())
        .map(CallId::new)
        .filter(|id| !is_used(id))
    {
        return id;
    }
    let mut id = CallId::new(format!("call_{turn}_{index}"));
    while is_used(&id) {
        id = CallId::new(format!("{id}x"));
    }
    id
}
