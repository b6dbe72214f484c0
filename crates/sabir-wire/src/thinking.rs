//! How much to think: between efforts, tokens and the words that most wires use for them.

use sabir_call::{ReasoningConfig, ReasoningEffort};

use crate::client_request::RequestError;
use crate::field::JsonField;

/// The tokens that an effort stands for where a wire counts tokens. The least is what Anthropic insists on.
const BUDGETS: [(ReasoningEffort, u64); 4] = [
    (ReasoningEffort::Minimal, 1024),
    (ReasoningEffort::Low, 4096),
    (ReasoningEffort::Medium, 8192),
    (ReasoningEffort::High, 16384),
];

/// The tokens that an effort stands for.
pub(crate) fn budget_for_effort(effort: ReasoningEffort) -> u64 {
    BUDGETS.iter().find(|(known, _)| *known == effort).map_or(0, |(_, tokens)| *tokens)
}

/// The least effort that may use so many tokens.
pub(crate) fn effort_for_budget(tokens: u64) -> ReasoningEffort {
    BUDGETS.iter().find(|(_, budget)| tokens <= *budget).map_or(ReasoningEffort::High, |(effort, _)| *effort)
}

/// The word for a wish, as OpenAI writes it; `None` where nothing is wished.
pub(crate) fn encode_effort(thinking: ReasoningConfig) -> Option<&'static str> {
    let effort = match thinking {
        ReasoningConfig::Default => return None,
        ReasoningConfig::Off => return Some("none"),
        ReasoningConfig::Effort(effort) => effort,
        ReasoningConfig::Tokens(tokens) => effort_for_budget(tokens),
    };
    Some(match effort {
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
    })
}

/// Reads such a word. The efforts above `high` are read as `high`.
///
/// # Errors
/// A word that is none of them.
pub(crate) fn decode_effort(field: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    if field.is_absent() {
        return Ok(ReasoningConfig::Default);
    }
    Ok(ReasoningConfig::Effort(match field.required_text()? {
        "none" => return Ok(ReasoningConfig::Off),
        "minimal" => ReasoningEffort::Minimal,
        "low" => ReasoningEffort::Low,
        "medium" => ReasoningEffort::Medium,
        "high" | "xhigh" | "max" => ReasoningEffort::High,
        _ => return Err(field.mismatch_error("none, minimal, low, medium or high")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_and_tokens_stand_for_each_other() {
        for (known, tokens) in BUDGETS {
            assert_eq!((budget_for_effort(known), effort_for_budget(tokens)), (tokens, known));
            assert_eq!(encode_effort(ReasoningConfig::Tokens(tokens)), encode_effort(ReasoningConfig::Effort(known)));
        }
        assert_eq!(
            (effort_for_budget(0), effort_for_budget(u64::MAX)),
            (ReasoningEffort::Minimal, ReasoningEffort::High)
        );
        assert_eq!(encode_effort(ReasoningConfig::Default), None);
    }
}
