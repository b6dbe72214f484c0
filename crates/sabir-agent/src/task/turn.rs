//! From a draft to an answer: ids, gates, feedback.

use std::collections::{HashMap, HashSet};

use sabir_call::{CallId, DraftPart, DraftResponse, MessagePart, Role};
use sabir_check::{CallState, CheckedCall, CheckedOutcome, FeedbackContext, render_feedback};

use crate::record::{AssistantTurn, CallCheck};

use super::Task;
use super::calls::OpenTurn;
use super::usage::UsageDelta;

impl Task {
    /// Puts the calls of a draft through the gates and gives every call an id of its own.
    pub(super) fn check_answer(&self, mut draft: DraftResponse) -> AssistantTurn {
        draft.drop_blank_text();
        let UsageDelta {
            usage,
            estimate,
            cost,
        } = self.answer_usage(&draft);
        let turn = self.counters.turns.saturating_add(1);
        let mut checked = self.checker.check_all(&draft);
        let mut used = HashSet::new();
        let mut taken = |id: &CallId| self.transcript.has_call(id) || !used.insert(id.clone());
        let loose: Vec<_> = draft
            .faults
            .iter()
            .filter(|fault| fault.call.is_none())
            .cloned()
            .collect();
        let say = |checked: &[CheckedCall], loose: &[_]| {
            render_feedback(
                checked,
                loose,
                &draft.source,
                &FeedbackContext {
                    protocol: &self.start.protocol,
                    dialects: &self.settings.dialects,
                    tools: self.checker.tools(),
                    repetition: &self.counters.reported_mistakes,
                },
            )
        };
        let mut parts = Vec::new();
        let mut checks = Vec::new();
        for part in draft.parts {
            match part {
                DraftPart::Text(text) => parts.push(MessagePart::Text { text }),
                DraftPart::Thought(text) => parts.push(MessagePart::Thought { text, opaque: None }),
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
                    let id = unique_call_id(call.id.as_deref(), turn, call.index, &mut taken);
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
                    });
                    let (name, arguments) = (checked.name, checked.arguments);
                    parts.push(MessagePart::Call(sabir_call::Call {
                        id,
                        name,
                        arguments,
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

    /// Takes over an answer.
    pub(super) fn apply_answer(&mut self, answered: &AssistantTurn) {
        self.counters.turns = self.counters.turns.saturating_add(1);
        self.counters.failures = 0;
        self.note_mistakes(answered);
        self.apply_usage(UsageDelta::from_turn(answered));
        self.note_measured_tokens(answered);
        self.last_stop_reason = answered.stop;
        self.draft = DraftResponse::default();
        match OpenTurn::from_answer(answered) {
            Some(turn) => {
                self.counters.replies_without_call = 0;
                self.turn = Some(turn);
            }
            None => {
                self.counters.replies_without_call =
                    self.counters.replies_without_call.saturating_add(1);
                self.transcript
                    .push_message(Role::Assistant, answered.parts.clone());
            }
        }
        self.deliver_pending();
    }

    /// Notes which mistakes of an answer the model is told of, so that the same words are not said again and again.
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
        self.counters
            .reported_mistakes
            .record_message(calls.chain([loose]));
    }
}

/// The provider's id if it is new, else one of our own. `taken` says whether one is taken, and takes it.
fn unique_call_id(
    native: Option<&str>,
    turn: u32,
    index: u32,
    taken: &mut dyn FnMut(&CallId) -> bool,
) -> CallId {
    if let Some(id) = native
        .filter(|id| !id.is_empty())
        .map(CallId::new)
        .filter(|id| !taken(id))
    {
        return id;
    }
    let mut id = CallId::new(format!("call_{turn}_{index}"));
    while taken(&id) {
        id = CallId::new(format!("{id}x"));
    }
    id
}
