//! From a draft to an answer: ids, gates, feedback.

use std::collections::{HashMap, HashSet};

use sabir_call::{CallId, Draft, DraftPart, Part, Role};
use sabir_check::{Audience, CallState, Checked, Told, feedback};

use crate::record::{Answered, Check};

use super::Task;
use super::calls::Turn;
use super::charge::Charge;

impl Task {
    /// Puts the calls of a draft through the gates and gives every call an id of its own.
    pub(super) fn judge_answer(&self, mut draft: Draft) -> Answered {
        draft.drop_blank_text();
        let Charge { usage, estimate, cost } = self.charge(&draft);
        let turn = self.counts.turns.saturating_add(1);
        let mut checked = self.checker.check_all(&draft);
        let mut used = HashSet::new();
        let mut taken = |id: &CallId| self.past.has(id) || !used.insert(id.clone());
        let loose: Vec<_> = draft.faults.iter().filter(|fault| fault.call.is_none()).cloned().collect();
        let say = |checked: &[Checked], loose: &[_]| {
            let (protocol, tools) = (&self.start.protocol, self.checker.tools());
            feedback(checked, loose, &draft.source, &Audience { protocol, tools, told: &self.counts.told })
        };
        let mut parts = Vec::new();
        let mut checks = Vec::new();
        for part in draft.parts {
            match part {
                DraftPart::Text(text) => parts.push(Part::Text { text }),
                DraftPart::Thought(text) => parts.push(Part::Thought { text, opaque: None }),
                DraftPart::Opaque(opaque) => match parts.last_mut() {
                    Some(Part::Thought { opaque: slot @ None, .. }) => *slot = Some(opaque),
                    _ => parts.push(Part::Opaque(opaque)),
                },
                DraftPart::Call(call) => {
                    let Some(at) = checked.iter().position(|checked| checked.index == call.index) else { continue };
                    let checked = checked.swap_remove(at);
                    let id = unique(call.id.as_deref(), turn, call.index, &mut taken);
                    let passed = checked.state == CallState::Complete;
                    let feedback = if passed { None } else { say(std::slice::from_ref(&checked), &[]) };
                    checks.push(Check {
                        call: id.clone(),
                        passed,
                        repairs: checked.repairs,
                        faults: checked.faults,
                        feedback,
                    });
                    let (name, arguments) = (checked.name, checked.arguments);
                    parts.push(Part::Call(sabir_call::Call { id, name, arguments, dialect: call.dialect }));
                }
            }
        }
        let feedback = say(&[], &loose);
        Answered {
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
    pub(super) fn take_answer(&mut self, answered: &Answered) {
        self.counts.turns = self.counts.turns.saturating_add(1);
        self.counts.failures = 0;
        self.note_mistakes(answered);
        self.take_charge(Charge::of(answered));
        self.note_filling(answered);
        self.stop = answered.stop;
        self.draft = Draft::default();
        match Turn::open(answered) {
            Some(turn) => {
                self.counts.without_call = 0;
                self.turn = Some(turn);
            }
            None => {
                self.counts.without_call = self.counts.without_call.saturating_add(1);
                self.past.push(Role::Assistant, answered.parts.clone());
            }
        }
        self.hear_waiting();
    }

    /// Notes which mistakes of an answer the model is told of, so that the same words are not said again and again.
    pub(super) fn note_mistakes(&mut self, answered: &Answered) {
        let call = |part: &Part| match part {
            Part::Call(call) => Some((call.id.clone(), call.name.clone())),
            _ => None,
        };
        let names: HashMap<_, _> = answered.parts.iter().filter_map(call).collect();
        let calls = answered.checks.iter().map(|check| Told {
            tool: names.get(&check.call).map_or("", String::as_str),
            passed: check.passed,
            faults: &check.faults,
        });
        let loose = Told { tool: "", passed: false, faults: &answered.faults };
        self.counts.told.note(calls.chain([loose]));
    }
}

/// The provider's id if it is new, else one of our own. `taken` says whether one is taken, and takes it.
fn unique(native: Option<&str>, turn: u32, index: u32, taken: &mut dyn FnMut(&CallId) -> bool) -> CallId {
    if let Some(id) = native.filter(|id| !id.is_empty()).map(CallId::new).filter(|id| !taken(id)) {
        return id;
    }
    let mut id = CallId::new(format!("call_{turn}_{index}"));
    while taken(&id) {
        id = CallId::new(format!("{id}x"));
    }
    id
}
