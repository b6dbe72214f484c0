//! Converts reasoning efforts to token budgets and to the words that most wires use for them.

use sabir_call::{ReasoningConfig, ReasoningEffort};

use crate::client_request::RequestError;
use crate::field::JsonField;

/// The token budget of each effort, for wires that count tokens. Anthropic requires at least 1,024.
const BUDGETS: [(ReasoningEffort, u64); 4] = [
    (ReasoningEffort::Minimal, 1024),
    (ReasoningEffort::Low, 4096),
    (ReasoningEffort::Medium, 8192),
    (ReasoningEffort::High, 16384),
];

/// Returns the token budget of an effort.
pub(crate) fn budget_for_effort(effort: ReasoningEffort) -> u64 {
    BUDGETS
        .iter()
        .find(|(known, _)| *known == effort)
        .map_or(0, |(_, tokens)| *tokens)
}

/// Returns the lowest effort that may use this number of tokens.
pub(crate) fn effort_for_budget(tokens: u64) -> ReasoningEffort {
    BUDGETS
        .iter()
        .find(|(_, budget)| tokens <= *budget)
        .map_or(ReasoningEffort::High, |(effort, _)| *effort)
}

/// Returns OpenAI's word for a reasoning setting; `None` if it is the default.
///
/// `none` is OpenAI's newer word.
pub(crate) fn encode_effort(thinking: ReasoningConfig) -> Option<&'static str> {
    let effort = match thinking {
        ReasoningConfig::Default => return None,
        ReasoningConfig::Off => return Some("none"),
        ReasoningConfig::Effort(effort) => effort,
        // These wires have no budgets, so the nearest effort replaces one.
        ReasoningConfig::Tokens(tokens) => effort_for_budget(tokens),
    };
    Some(match effort {
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
    })
}

/// Decodes such a word. Efforts above `high` are read as `high`.
///
/// # Errors
/// The word is none of the known ones.
pub(crate) fn decode_effort(field: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    if field.is_absent() {
        return Ok(ReasoningConfig::Default);
    }
    Ok(ReasoningConfig::Effort(match field.required_text()? {
        "none" => return Ok(ReasoningConfig::Off),
        "minimal" => ReasoningEffort::Minimal,
        "low" => ReasoningEffort::Low,
        "medium" => ReasoningEffort::Medium,
        // Newer words of OpenAI and Anthropic for more than `high`.
        "high" | "xhigh" | "max" => ReasoningEffort::High,
        _ => return Err(field.mismatch_error("none, minimal, low, medium or high")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_and_budgets_convert() {
        for (known, tokens) in BUDGETS {
            assert_eq!(
                (budget_for_effort(known), effort_for_budget(tokens)),
                (tokens, known)
            );
            assert_eq!(
                encode_effort(ReasoningConfig::Tokens(tokens)),
                encode_effort(ReasoningConfig::Effort(known))
            );
        }
        assert_eq!(
            (effort_for_budget(0), effort_for_budget(u64::MAX)),
            (ReasoningEffort::Minimal, ReasoningEffort::High)
        );
        assert_eq!(encode_effort(ReasoningConfig::Default), None);
    }
}
