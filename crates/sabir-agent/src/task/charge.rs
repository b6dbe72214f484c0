//! What an answer takes: tokens as the provider reports them, guesses where it reports none, and money.
//!
//! Prices are facts of the day. A record keeps the cost that was known when it was written; a replayed task adds up what its
//! records say, and asks no price list of a later day.

use sabir_call::{BYTES_PER_TOKEN, Cost, Draft, DraftPart, ToolSpec, Usage};

use super::{Settings, Task};
use crate::record::{Answered, Compacted, Failed, Record, Shift, SubtaskEnd};

/// What all answers took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens as the provider reported them.
    pub usage: Usage,
    /// Guesses for answers of which it reported none.
    pub estimate: Usage,
    /// What they cost.
    pub cost: Cost,
}

/// What one answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Charge {
    /// As reported.
    pub(super) usage: Usage,
    /// Guesses, for what was not reported.
    pub(super) estimate: Usage,
    pub(super) cost: Cost,
}

impl Totals {
    /// Adds what a record tells.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Answered(answered) => self.add(Charge::of(answered)),
            Record::Failed(failed) => self.add(Charge::of_failed(failed)),
            Record::Subtask { ended: Some(end), .. } => self.add(Charge::of_subtask(end)),
            Record::Context(Shift::Compacted(compacted)) => self.add(Charge::of_compacted(compacted)),
            _ => {}
        }
    }

    /// The tokens in all, read and written; guesses where nothing was reported.
    pub(crate) fn tokens(&self) -> u64 {
        Charge { usage: self.usage, estimate: self.estimate, cost: self.cost }.tokens()
    }

    pub(super) fn add(&mut self, charge: Charge) {
        self.usage.add(charge.usage);
        self.estimate.add(charge.estimate);
        self.cost += charge.cost;
    }
}

impl Charge {
    /// What an answer's record tells.
    pub(super) fn of(answered: &Answered) -> Self {
        Self { usage: answered.usage, estimate: answered.estimate, cost: answered.cost }
    }

    /// Its tokens in all, read and written. There are guesses only of what was not reported.
    pub(super) fn tokens(self) -> u64 {
        let all = [self.usage.input, self.usage.output, self.estimate.input, self.estimate.output];
        all.into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// What the record of a failure tells.
    pub(super) fn of_failed(failed: &Failed) -> Self {
        Self { usage: failed.usage, estimate: failed.estimate, cost: failed.cost }
    }

    /// What the record of a compaction tells.
    pub(super) fn of_compacted(compacted: &Compacted) -> Self {
        Self { usage: compacted.usage, estimate: compacted.estimate, cost: compacted.cost }
    }

    /// What the record of a subtask's end tells.
    pub(super) fn of_subtask(end: &SubtaskEnd) -> Self {
        Self { usage: end.usage, estimate: end.estimate, cost: end.cost }
    }
}

impl Task {
    /// What an answer took, whole or broken off. Must be asked before the answer enters the history.
    pub(super) fn charge(&self, draft: &Draft) -> Charge {
        self.charge_of(draft, self.past.bytes())
    }

    /// What the answer to a request of so many bytes took.
    pub(super) fn charge_of(&self, draft: &Draft, asked: usize) -> Charge {
        let usage = draft.usage;
        // Some servers count nothing and say so with a zero, which no request can have taken.
        let written = draft_bytes(draft);
        let counted = |count: Option<u64>, least: usize| count.is_some_and(|count| count > 0 || least == 0);
        let estimate = Usage {
            input: (!counted(usage.input, 1)).then(|| tokens(asked)),
            output: (!counted(usage.output, written)).then(|| tokens(written)),
            ..Usage::default()
        };
        let mut all = usage;
        all.update(estimate);
        let cost = self.settings.prices.cost(all);
        let cost = if estimate == Usage::default() { cost } else { cost.guessed() };
        Charge { usage, estimate, cost }
    }

    /// The limit of turns that has been reached, in words.
    pub(super) fn turn_limit(&self) -> Option<String> {
        let (limit, turns) = (self.settings.limits.turns?, self.turns_in_all());
        (turns >= limit).then(|| format!("the limit of {turns} turns was reached"))
    }

    /// The limit of tokens that has been reached, in words.
    pub(super) fn token_limit(&self) -> Option<String> {
        let (limit, tokens) = (self.settings.limits.tokens?, self.counts.tokens);
        (tokens >= limit).then(|| format!("the limit of {limit} tokens was reached: {tokens}"))
    }

    /// The limit of cost that has been reached, in words. Where the cost cannot be told, no limit can be kept: that is
    /// reaching it.
    pub(super) fn cost_limit(&self) -> Option<String> {
        let limit = self.settings.limits.cost?;
        if self.counts.spent.at_least {
            return Some(format!(
                "the limit of {limit} cannot be kept any longer: what the task costs is not known ({})",
                self.counts.spent
            ));
        }
        (self.counts.spent.known >= limit).then(|| format!("the limit of {limit} was reached: {}", self.counts.spent))
    }
}

/// The bytes of what goes with every request: the instructions and the tools.
pub(super) fn fixed_bytes(settings: &Settings) -> usize {
    let tool = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
    settings.tools.iter().map(tool).fold(settings.system.len(), usize::saturating_add)
}

pub(super) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(BYTES_PER_TOKEN)
}

fn draft_bytes(draft: &Draft) -> usize {
    let part = |part: &DraftPart| match part {
        DraftPart::Text(text) | DraftPart::Thought(text) => text.len(),
        DraftPart::Call(call) => {
            let arguments = call.arguments.iter().map(|argument| argument.name.len() + argument.text.len());
            call.name.len() + arguments.sum::<usize>()
        }
        DraftPart::Opaque(_) => 0,
    };
    draft.parts.iter().map(part).sum()
}
