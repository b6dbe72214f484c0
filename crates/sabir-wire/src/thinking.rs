//! How much to think: between efforts, tokens and the words that most wires use for them.

use sabir_call::{Effort, Thinking};

use crate::client::RequestError;
use crate::field::Field;

/// The tokens that an effort stands for where a wire counts tokens. The least is what Anthropic insists on.
const BUDGETS: [(Effort, u64); 4] =
    [(Effort::Minimal, 1024), (Effort::Low, 4096), (Effort::Medium, 8192), (Effort::High, 16384)];

/// The tokens that an effort stands for.
pub(crate) fn budget(effort: Effort) -> u64 {
    BUDGETS.iter().find(|(known, _)| *known == effort).map_or(0, |(_, tokens)| *tokens)
}

/// The least effort that may use so many tokens.
pub(crate) fn effort(tokens: u64) -> Effort {
    BUDGETS.iter().find(|(_, budget)| tokens <= *budget).map_or(Effort::High, |(effort, _)| *effort)
}

/// The word for a wish, as OpenAI writes it; `None` where nothing is wished.
pub(crate) fn word(thinking: Thinking) -> Option<&'static str> {
    let effort = match thinking {
        Thinking::Default => return None,
        Thinking::Off => return Some("none"),
        Thinking::Effort(effort) => effort,
        Thinking::Tokens(tokens) => effort(tokens),
    };
    Some(match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    })
}

/// Reads such a word. The efforts above `high` are read as `high`.
///
/// # Errors
/// A word that is none of them.
pub(crate) fn of_word(field: &Field<'_>) -> Result<Thinking, RequestError> {
    if field.is_absent() {
        return Ok(Thinking::Default);
    }
    Ok(Thinking::Effort(match field.text()? {
        "none" => return Ok(Thinking::Off),
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" | "xhigh" | "max" => Effort::High,
        _ => return Err(field.wrong("none, minimal, low, medium or high")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_and_tokens_stand_for_each_other() {
        for (known, tokens) in BUDGETS {
            assert_eq!((budget(known), effort(tokens)), (tokens, known));
            assert_eq!(word(Thinking::Tokens(tokens)), word(Thinking::Effort(known)));
        }
        assert_eq!((effort(0), effort(u64::MAX)), (Effort::Minimal, Effort::High));
        assert_eq!(word(Thinking::Default), None);
    }
}
