//! What an answer takes: tokens as the provider reports them, guesses where it reports none, and money.
//!
//! Prices are facts of the day. A record keeps the cost that was known when it was written; a replayed task adds up what its
//! records say, and asks no price list of a later day.

use sabir_call::{BYTES_PER_TOKEN, Cost, DraftPart, DraftResponse, ToolSpec, Usage};

use super::{Task, TaskSettings};
use crate::record::{
    AssistantTurn, CompactionRecord, ContextChange, FailedTurn, Record, SubtaskEnd,
};

/// What all answers took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Tokens as the provider reported them.
    pub usage: Usage,
    /// Guesses for answers of which it reported none.
    pub estimate: Usage,
    /// What they cost.
    pub cost: Cost,
}

/// What one answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageDelta {
    /// As reported.
    pub(super) usage: Usage,
    /// Guesses, for what was not reported.
    pub(super) estimate: Usage,
    pub(super) cost: Cost,
}

impl UsageTotals {
    /// Adds what a record tells.
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

    /// The tokens in all, read and written; guesses where nothing was reported.
    pub(crate) fn total_tokens(&self) -> u64 {
        UsageDelta {
            usage: self.usage,
            estimate: self.estimate,
            cost: self.cost,
        }
        .total_tokens()
    }

    pub(super) fn add_delta(&mut self, charge: UsageDelta) {
        self.usage.add(charge.usage);
        self.estimate.add(charge.estimate);
        self.cost += charge.cost;
    }
}

impl UsageDelta {
    /// What an answer's record tells.
    pub(super) fn from_turn(answered: &AssistantTurn) -> Self {
        Self {
            usage: answered.usage,
            estimate: answered.estimate,
            cost: answered.cost,
        }
    }

    /// Its tokens in all, read and written. There are guesses only of what was not reported.
    pub(super) fn total_tokens(self) -> u64 {
        let all = [
            self.usage.input,
            self.usage.output,
            self.estimate.input,
            self.estimate.output,
        ];
        all.into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// What the record of a failure tells.
    pub(super) fn from_failure(failed: &FailedTurn) -> Self {
        Self {
            usage: failed.usage,
            estimate: failed.estimate,
            cost: failed.cost,
        }
    }

    /// What the record of a compaction tells.
    pub(super) fn from_compaction(compacted: &CompactionRecord) -> Self {
        Self {
            usage: compacted.usage,
            estimate: compacted.estimate,
            cost: compacted.cost,
        }
    }

    /// What the record of a subtask's end tells.
    pub(super) fn from_subtask(end: &SubtaskEnd) -> Self {
        Self {
            usage: end.usage,
            estimate: end.estimate,
            cost: end.cost,
        }
    }
}

impl Task {
    /// What an answer took, whole or broken off. Must be asked before the answer enters the history.
    pub(super) fn answer_usage(&self, draft: &DraftResponse) -> UsageDelta {
        self.request_usage(draft, self.transcript.request_bytes())
    }

    /// What the answer to a request of so many bytes took.
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

    /// The limit of turns that has been reached, in words.
    pub(super) fn turn_limit(&self) -> Option<String> {
        let (limit, turns) = (self.settings.limits.turns?, self.total_turns());
        (turns >= limit).then(|| format!("the limit of {turns} turns was reached"))
    }

    /// The limit of tokens that has been reached, in words.
    pub(super) fn token_limit(&self) -> Option<String> {
        let (limit, tokens) = (self.settings.limits.tokens?, self.counters.tokens);
        (tokens >= limit).then(|| format!("the limit of {limit} tokens was reached: {tokens}"))
    }

    /// The limit of cost that has been reached, in words. Where the cost cannot be told, no limit can be kept: that is
    /// reaching it.
    pub(super) fn cost_limit(&self) -> Option<String> {
        let limit = self.settings.limits.cost?;
        if self.counters.cost.at_least {
            return Some(format!(
                "the limit of {limit} cannot be kept any longer: what the task costs is not known ({})",
                self.counters.cost
            ));
        }
        (self.counters.cost.known >= limit)
            .then(|| format!("the limit of {limit} was reached: {}", self.counters.cost))
    }
}

/// The bytes of what goes with every request: the instructions and the tools.
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
