//! Usage: tokens as the provider reports them, guesses where it reports none, and cost.
//!
//! Prices change from day to day. A record keeps the cost that was known when it was written; a
//! replayed task adds up its records and consults no later price list.

use sabir_call::{BYTES_PER_TOKEN, Cost, DraftPart, DraftResponse, ToolSpec, Usage};

use super::{Task, TaskSettings};
use crate::record::{
    AssistantTurn, CompactionRecord, ContextChange, FailedTurn, Record, SubtaskEnd,
};

/// The total usage of all answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Tokens as the provider reported them.
    pub usage: Usage,
    /// Guesses for answers of which the provider reported none.
    pub estimate: Usage,
    /// The cost.
    pub cost: Cost,
}

/// The usage of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageDelta {
    /// Tokens as the provider reported them.
    pub(super) usage: Usage,
    /// Estimates of the counts that were not reported.
    pub(super) estimate: Usage,
    pub(super) cost: Cost,
}

impl UsageTotals {
    /// Adds the usage that a record reports.
    pub fn add_record(&mut self, record: &Record) {
        match record {
            Record::Answered(answered) => self.add_delta(UsageDelta::from_turn(answered)),
            Record::Failed(failed) => self.add_delta(UsageDelta::from_failure(failed)),
            Record::Subtask {
                ended: Some(end), ..
            } => self.add_delta(UsageDelta::from_subtask(end)),
            Record::Context(ContextChange::Compacted(compacted)) => {
                self.add_delta(UsageDelta::from_compaction(compacted))
            }
            _ => {}
        }
    }

    /// Returns the sum of all tokens, read and written, with guesses where nothing was reported.
    pub(crate) fn total_tokens(&self) -> u64 {
        UsageDelta {
            usage: self.usage,
            estimate: self.estimate,
            cost: self.cost,
        }
        .total_tokens()
    }

    pub(super) fn add_delta(&mut self, delta: UsageDelta) {
        self.usage.add(delta.usage);
        self.estimate.add(delta.estimate);
        self.cost += delta.cost;
    }
}

impl UsageDelta {
    /// Reads the usage from the record of an answer.
    pub(super) fn from_turn(answered: &AssistantTurn) -> Self {
        Self {
            usage: answered.usage,
            estimate: answered.estimate,
            cost: answered.cost,
        }
    }

    /// Returns the sum of all tokens, read and written. Only counts that were not reported are
    /// estimated.
    pub(super) fn total_tokens(self) -> u64 {
        let all = [
            self.usage.input,
            self.usage.output,
            self.estimate.input,
            self.estimate.output,
        ];
        all.into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// Reads the usage from the record of a failure.
    pub(super) fn from_failure(failed: &FailedTurn) -> Self {
        Self {
            usage: failed.usage,
            estimate: failed.estimate,
            cost: failed.cost,
        }
    }

    /// Reads the usage from the record of a compaction.
    pub(super) fn from_compaction(compacted: &CompactionRecord) -> Self {
        Self {
            usage: compacted.usage,
            estimate: compacted.estimate,
            cost: compacted.cost,
        }
    }

    /// Reads the usage from the record of a subtask's end.
    pub(super) fn from_subtask(end: &SubtaskEnd) -> Self {
        Self {
            usage: end.usage,
            estimate: end.estimate,
            cost: end.cost,
        }
    }
}

impl Task {
    /// Returns the usage of an answer, complete or broken off. Must be called before the answer
    /// enters the history.
    pub(super) fn answer_usage(&self, draft: &DraftResponse) -> UsageDelta {
        self.request_usage(draft, self.transcript.request_bytes())
    }

    /// Returns the usage of the answer to a request of `asked` bytes.
    pub(super) fn request_usage(&self, draft: &DraftResponse, asked: usize) -> UsageDelta {
        let usage = draft.usage;
        // Some servers count nothing and say so with a zero, which no request can have taken.
        let written = draft_bytes(draft);
        let counted =
            |count: Option<u64>, least: usize| count.is_some_and(|count| count > 0 || least == 0);
        let estimate = Usage {
            input: (!counted(usage.input, 1)).then(|| estimate_tokens(asked)),
            output: (!counted(usage.output, written)).then(|| estimate_tokens(written)),
            ..Usage::default()
        };
        let mut all = usage;
        all.update(estimate);
        let cost = self.settings.prices.cost_of(all);
        let cost = if estimate == Usage::default() {
            cost
        } else {
            cost.as_estimated()
        };
        UsageDelta {
            usage,
            estimate,
            cost,
        }
    }
}

/// Returns the bytes that go with every request: the instructions and the tools.
pub(super) fn fixed_bytes(settings: &TaskSettings) -> usize {
    let tool = |tool: &ToolSpec| {
        tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
    };
    settings
        .tools
        .iter()
        .map(tool)
        .fold(settings.system.len(), usize::saturating_add)
}

pub(super) fn estimate_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .div_ceil(BYTES_PER_TOKEN)
}

fn draft_bytes(draft: &DraftResponse) -> usize {
    let part = |part: &DraftPart| match part {
        DraftPart::Text(text) | DraftPart::Thought(text) => text.len(),
        DraftPart::Call(call) => {
            let arguments = call
                .arguments
                .iter()
                .map(|argument| argument.name.len() + argument.text.len());
            call.name.len() + arguments.sum::<usize>()
        }
        DraftPart::Opaque(_) => 0,
    };
    draft.parts.iter().map(part).sum()
}
