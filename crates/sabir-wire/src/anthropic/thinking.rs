//! Encodes and decodes Anthropic's thinking options.
//!
//! Models up to Claude 4.5, and other providers with this wire, take a token budget: at least
//! 1,024, and less than the output limit, which includes it. Later Claude models decide themselves
//! how much to think. They take an effort, and refuse or deprecate a budget. A model that must call
//! a tool cannot think at all.

use sabir_call::{
    Message, MessagePart, OpaqueState, ReasoningConfig, ReasoningEffort, Request, Role, ToolChoice,
};
use serde_json::{Value, json};

use super::NAME;
use crate::client_request::RequestError;
use crate::field::JsonField;
use crate::thinking::{budget_for_effort, decode_effort, effort_for_budget};

/// The smallest budget that Anthropic accepts, in tokens.
const MIN_BUDGET: u64 = 1024;

/// Substrings of the names of Claude models that do not support efforts. The list is complete: other names are later models.
const BUDGETED_MODELS: [&str; 12] = [
    "claude-2",
    "claude-3",
    "claude-instant",
    "-4-0",
    "-4-1",
    "-4-2025",
    "-4-5",
    "-4.0",
    "-4.1",
    "-4.5",
    "-4@",
    "-4:",
];

/// The thinking options of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ThinkingPlan {
    /// The output limit in tokens, thinking included.
    pub(crate) limit: u64,
    /// The members to write besides the limit.
    mode: ThinkingMode,
}

/// The thinking mode of a request.
#[derive(Debug, PartialEq, Eq)]
enum ThinkingMode {
    /// No option is written.
    Omitted,
    /// `{"type": "disabled"}`.
    Off,
    /// `{"type": "enabled", "budget_tokens": …}`, for models up to Claude 4.5. The budget is in tokens, and less than the limit.
    Budget(u64),
    /// An effort, and true if the model may think.
    Adaptive(&'static str, bool),
}

/// Plans the thinking options of a request. An output limit in the request is kept; the `usual`
/// limit grows by the thinking budget. `signs` returns true for opaque state that is a thought on
/// the wire that asks.
pub(crate) fn plan_thinking(
    request: &Request,
    usual: u64,
    signs: fn(&OpaqueState) -> bool,
) -> ThinkingPlan {
    let limit = request.max_output_tokens;
    // The API refuses thinking together with a forced call.
    let forced = matches!(
        request.tool_choice,
        ToolChoice::Required | ToolChoice::Tool(_)
    ) && !request.tools.is_empty();
    let wish = match request.reasoning {
        ReasoningConfig::Default => {
            // Nothing was asked for: the model's own default applies, which differs between models.
            return ThinkingPlan {
                limit: limit.unwrap_or(usual),
                mode: ThinkingMode::Omitted,
            };
        }
        ReasoningConfig::Off => {
            return ThinkingPlan {
                limit: limit.unwrap_or(usual),
                mode: ThinkingMode::Off,
            };
        }
        ReasoningConfig::Effort(effort) => budget_for_effort(effort),
        // A smaller budget would be refused.
        ReasoningConfig::Tokens(tokens) => tokens.max(MIN_BUDGET),
    };
    if is_adaptive(&request.model) {
        // The thinking is part of the output limit, so the usual limit grows by what the effort may
        // use.
        let (word, room) = match effort_for_budget(wish) {
            ReasoningEffort::Minimal | ReasoningEffort::Low => {
                ("low", budget_for_effort(ReasoningEffort::Low))
            }
            ReasoningEffort::Medium => ("medium", budget_for_effort(ReasoningEffort::Medium)),
            ReasoningEffort::High => ("high", budget_for_effort(ReasoningEffort::High)),
        };
        let limit = limit.unwrap_or_else(|| usual.saturating_add(room));
        return ThinkingPlan {
            limit,
            mode: ThinkingMode::Adaptive(word, !forced),
        };
    }
    let limit = limit.unwrap_or_else(|| usual.saturating_add(wish));
    // The budget must stay below the limit. Under a small limit it shrinks, so that some room is
    // left for the answer.
    let most = if wish < limit {
        wish
    } else {
        limit.saturating_sub(MIN_BUDGET).max(MIN_BUDGET)
    };
    // If thinking is impossible, the option is left out: an error would lose the whole request.
    let possible = most < limit && !forced && !is_mid_tool_loop(&request.messages, signs);
    ThinkingPlan {
        limit,
        mode: if possible {
            ThinkingMode::Budget(most)
        } else {
            ThinkingMode::Omitted
        },
    }
}

impl ThinkingPlan {
    /// Returns true if the model may think; it then refuses a temperature.
    pub(crate) fn is_thinking(&self) -> bool {
        matches!(
            self.mode,
            ThinkingMode::Budget(_) | ThinkingMode::Adaptive(_, true)
        )
    }

    /// Returns true if the request asks for thoughts, and gets none.
    pub(crate) fn is_impossible(&self, request: &Request) -> bool {
        let is_wanted = matches!(
            request.reasoning,
            ReasoningConfig::Effort(_) | ReasoningConfig::Tokens(_)
        );
        is_wanted && !self.is_thinking()
    }

    /// Returns the members of the body.
    pub(crate) fn body_members(&self) -> Vec<(String, Value)> {
        let mut members = Vec::new();
        match self.mode {
            ThinkingMode::Omitted => {}
            ThinkingMode::Off => members.push(("thinking", json!({"type": "disabled"}))),
            ThinkingMode::Budget(tokens) => members.push((
                "thinking",
                json!({"type": "enabled", "budget_tokens": tokens}),
            )),
            ThinkingMode::Adaptive(effort, thinks) => {
                if thinks {
                    // Later models omit the text of thoughts unless asked for it.
                    members.push((
                        "thinking",
                        json!({"type": "adaptive", "display": "summarized"}),
                    ));
                }
                members.push(("output_config", json!({"effort": effort})));
            }
        }
        members
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

/// Decodes a client's thinking options.
///
/// # Errors
/// The type or effort is not one of the wire's.
pub(crate) fn decode_thinking(body: &JsonField<'_>) -> Result<ReasoningConfig, RequestError> {
    let thinking = body.get("thinking");
    let effort = decode_effort(&body.get("output_config").get("effort"))?;
    let kind = thinking.get("type");
    if thinking.is_absent() {
        return Ok(effort);
    }
    Ok(match kind.required_text()? {
        "disabled" => ReasoningConfig::Off,
        "enabled" => match thinking.get("budget_tokens").optional_count()? {
            Some(tokens) => ReasoningConfig::Tokens(tokens),
            None => {
                return Err(thinking
                    .get("budget_tokens")
                    .mismatch_error("a whole number"));
            }
        },
        // Without an effort, the model uses its highest; our highest is `high`.
        "adaptive" | "between_tools" if effort == ReasoningConfig::Default => {
            ReasoningConfig::Effort(ReasoningEffort::High)
        }
        "adaptive" | "between_tools" => effort,
        _ => return Err(kind.mismatch_error("`enabled`, `adaptive` or `disabled`")),
    })
}

/// Returns true if opaque state of this wire is a thought.
pub(crate) fn is_thought_state(opaque: &OpaqueState) -> bool {
    let kind = opaque
        .data
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    opaque.wire == NAME && kind.ends_with("thinking")
}

/// Returns true for a Claude model that takes efforts instead of budgets.
fn is_adaptive(model: &str) -> bool {
    // `claude-opus-4` without a date or a minor version is the first Claude 4.
    let budgeted = model.ends_with("-4") || BUDGETED_MODELS.iter().any(|part| model.contains(part));
    model.contains("claude") && !budgeted
}

/// Returns true if the model waits for results of calls that it made without signed thoughts. The API refuses to enable thinking at that
/// point.
fn is_mid_tool_loop(history: &[Message], signs: fn(&OpaqueState) -> bool) -> bool {
    let results = |message: &Message| {
        message
            .parts
            .iter()
            .any(|part| matches!(part, MessagePart::Result(_)))
    };
    // In a tool loop the last message has results. The assistant message before it must begin with
    // its signed thoughts.
    let waits = history
        .last()
        .is_some_and(|message| message.role == Role::User && results(message));
    let answer = history
        .iter()
        .rfind(|message| message.role == Role::Assistant)
        .filter(|_| waits);
    let signed = |part: &MessagePart| match part {
        MessagePart::Thought {
            opaque: Some(opaque),
            ..
        }
        | MessagePart::Opaque(opaque) => signs(opaque),
        _ => false,
    };
    answer.is_some_and(|message| {
        message.calls().next().is_some() && !message.parts.iter().any(signed)
    })
}

#[cfg(test)]
mod tests {
    use sabir_call::{ToolSet, ToolSpec};

    use super::*;

    fn members(request: &Request) -> Value {
        let plan = plan_thinking(request, 8192, is_thought_state);
        let mut members: serde_json::Map<_, _> = plan.body_members().into_iter().collect();
        members.insert("max_tokens".to_owned(), json!(plan.limit));
        Value::Object(members)
    }

    #[test]
    fn reasoning_settings_fit_the_model() {
        let check =
            |model: &str, thinking: ReasoningConfig, max_output: Option<u64>, expected: Value| {
                let request = Request {
                    model: model.into(),
                    reasoning: thinking,
                    max_output_tokens: max_output,
                    ..Request::default()
                };
                assert_eq!(
                    members(&request),
                    expected,
                    "{model} {thinking:?} {max_output:?}"
                );
            };
        let enabled = |tokens: u64, limit: u64| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}, "max_tokens": limit});
        let adaptive = |effort: &str, limit: u64| json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}, "max_tokens": limit});
        let high = ReasoningConfig::Effort(ReasoningEffort::High);
        for old in [
            "claude-3-7-sonnet-20250219",
            "claude-sonnet-4-20250514",
            "claude-opus-4-5",
            "anthropic/claude-opus-4",
            "glm-5",
        ] {
            check(old, high, None, enabled(16384, 24576));
        }
        for new in [
            "claude-opus-4-6",
            "claude-sonnet-4-6",
            "claude-opus-4-8",
            "claude-sonnet-5",
        ] {
            check(new, high, None, adaptive("high", 24576));
        }
        check(
            "m",
            ReasoningConfig::Tokens(5000),
            Some(9000),
            enabled(5000, 9000),
        );
        // Below the least, and above the limit.
        check(
            "m",
            ReasoningConfig::Tokens(1),
            Some(9000),
            enabled(1024, 9000),
        );
        check("m", high, Some(9000), enabled(7976, 9000));
        check("m", high, Some(1100), enabled(1024, 1100));
        check("m", high, Some(1024), json!({"max_tokens": 1024}));
        check(
            "claude-opus-4-8",
            ReasoningConfig::Tokens(3000),
            Some(500),
            adaptive("low", 500),
        );
        check(
            "m",
            ReasoningConfig::Off,
            None,
            json!({"thinking": {"type": "disabled"}, "max_tokens": 8192}),
        );
        check(
            "m",
            ReasoningConfig::Default,
            None,
            json!({"max_tokens": 8192}),
        );
    }

    #[test]
    fn forced_calls_disable_thinking() {
        let tools = ToolSet::new(vec![ToolSpec::new("f", "", json!({}))]).unwrap();
        let choice = ToolChoice::Required;
        let thinking = ReasoningConfig::Effort(ReasoningEffort::Low);
        let mut request = Request {
            model: "m".into(),
            tools,
            tool_choice: choice,
            reasoning: thinking,
            ..Request::default()
        };
        assert_eq!(members(&request), json!({"max_tokens": 12288}));
        request.model = "claude-opus-4-8".into();
        assert_eq!(
            members(&request),
            json!({"max_tokens": 12288, "output_config": {"effort": "low"}})
        );
    }
}
