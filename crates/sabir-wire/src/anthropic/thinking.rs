//! Anthropic Messages: how much to think, written and read.
//!
//! Models up to Claude 4.5, and other providers that speak this wire, take a budget of tokens: at least 1,024, and less
//! than the limit of the output, which it is a part of. Later Claude models think as much as they find right, are steered
//! by an effort, and refuse a budget or deprecate it. A model that must call a tool cannot think at all.

use sabir_call::{Effort, Message, Opaque, Part, Request, Role, Thinking, ToolChoice};
use serde_json::{Value, json};

use super::NAME;
use crate::client::RequestError;
use crate::field::Field;
use crate::thinking::{budget, effort, of_word};

/// The least budget.
const LEAST: u64 = 1024;

/// In the names of Claude models that know no efforts. The list is closed: what is not on it is later.
const BUDGETED: [&str; 12] =
    ["claude-2", "claude-3", "claude-instant", "-4-0", "-4-1", "-4-2025", "-4-5", "-4.0", "-4.1", "-4.5", "-4@", "-4:"];

/// What a request says of thinking.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The limit of the output, thinking included.
    pub(crate) limit: u64,
    mode: Mode,
}

#[derive(Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing is said.
    Silent,
    Off,
    Budget(u64),
    /// An effort, and whether the model may think.
    Adaptive(&'static str, bool),
}

/// How a wish is put to the model. A limit that the request names is kept; the usual one makes room for the thinking.
/// `signs`: whether state of the wire that asks is a thought of the model's.
pub(crate) fn plan(request: &Request, usual: u64, signs: fn(&Opaque) -> bool) -> Plan {
    let limit = request.max_output;
    let forced = matches!(request.choice, ToolChoice::Required | ToolChoice::Tool(_)) && !request.tools.is_empty();
    let wish = match request.thinking {
        Thinking::Default => return Plan { limit: limit.unwrap_or(usual), mode: Mode::Silent },
        Thinking::Off => return Plan { limit: limit.unwrap_or(usual), mode: Mode::Off },
        Thinking::Effort(effort) => budget(effort),
        Thinking::Tokens(tokens) => tokens.max(LEAST),
    };
    if is_adaptive(&request.model) {
        let (word, room) = match effort(wish) {
            Effort::Minimal | Effort::Low => ("low", budget(Effort::Low)),
            Effort::Medium => ("medium", budget(Effort::Medium)),
            Effort::High => ("high", budget(Effort::High)),
        };
        let limit = limit.unwrap_or_else(|| usual.saturating_add(room));
        return Plan { limit, mode: Mode::Adaptive(word, !forced) };
    }
    let limit = limit.unwrap_or_else(|| usual.saturating_add(wish));
    let most = if wish < limit { wish } else { limit.saturating_sub(LEAST).max(LEAST) };
    let possible = most < limit && !forced && !in_the_middle(&request.messages, signs);
    Plan { limit, mode: if possible { Mode::Budget(most) } else { Mode::Silent } }
}

impl Plan {
    /// Whether the model may think, and takes no temperature.
    pub(crate) fn thinks(&self) -> bool {
        matches!(self.mode, Mode::Budget(_) | Mode::Adaptive(_, true))
    }

    /// The members of the body.
    pub(crate) fn members(&self) -> Vec<(String, Value)> {
        let mut members = Vec::new();
        match self.mode {
            Mode::Silent => {}
            Mode::Off => members.push(("thinking", json!({"type": "disabled"}))),
            Mode::Budget(tokens) => members.push(("thinking", json!({"type": "enabled", "budget_tokens": tokens}))),
            Mode::Adaptive(effort, thinks) => {
                if thinks {
                    // Later models leave the words out unless asked for them.
                    members.push(("thinking", json!({"type": "adaptive", "display": "summarized"})));
                }
                members.push(("output_config", json!({"effort": effort})));
            }
        }
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Reads what a client says of thinking.
///
/// # Errors
/// A type or an effort that the wire does not know.
pub(crate) fn read(body: &Field<'_>) -> Result<Thinking, RequestError> {
    let thinking = body.get("thinking");
    let effort = of_word(&body.get("output_config").get("effort"))?;
    let kind = thinking.get("type");
    if thinking.is_absent() {
        return Ok(effort);
    }
    Ok(match kind.text()? {
        "disabled" => Thinking::Off,
        "enabled" => match thinking.get("budget_tokens").count()? {
            Some(tokens) => Thinking::Tokens(tokens),
            None => return Err(thinking.get("budget_tokens").wrong("a whole number")),
        },
        // Without an effort, the model's own is the highest of ours.
        "adaptive" | "between_tools" if effort == Thinking::Default => Thinking::Effort(Effort::High),
        "adaptive" | "between_tools" => effort,
        _ => return Err(kind.wrong("`enabled`, `adaptive` or `disabled`")),
    })
}

/// Whether state of this wire is a thought.
pub(crate) fn signs(opaque: &Opaque) -> bool {
    let kind = opaque.data.get("type").and_then(Value::as_str).unwrap_or_default();
    opaque.wire == NAME && kind.ends_with("thinking")
}

fn is_adaptive(model: &str) -> bool {
    let budgeted = model.ends_with("-4") || BUDGETED.iter().any(|part| model.contains(part));
    model.contains("claude") && !budgeted
}

/// Whether the model waits for results of calls that it made without signed thoughts. It cannot begin to think there.
fn in_the_middle(history: &[Message], signs: fn(&Opaque) -> bool) -> bool {
    let results = |message: &Message| message.parts.iter().any(|part| matches!(part, Part::Result(_)));
    let waits = history.last().is_some_and(|message| message.role == Role::User && results(message));
    let answer = history.iter().rfind(|message| message.role == Role::Assistant).filter(|_| waits);
    let signed = |part: &Part| match part {
        Part::Thought { opaque: Some(opaque), .. } | Part::Opaque(opaque) => signs(opaque),
        _ => false,
    };
    answer.is_some_and(|message| message.calls().next().is_some() && !message.parts.iter().any(signed))
}

#[cfg(test)]
mod tests {
    use sabir_call::{ToolSet, ToolSpec};

    use super::*;

    fn members(request: &Request) -> Value {
        let plan = plan(request, 8192, signs);
        let mut members: serde_json::Map<_, _> = plan.members().into_iter().collect();
        members.insert("max_tokens".to_owned(), json!(plan.limit));
        Value::Object(members)
    }

    #[test]
    fn wishes_become_what_a_model_takes() {
        let check = |model: &str, thinking: Thinking, max_output: Option<u64>, expected: Value| {
            let request = Request { model: model.into(), thinking, max_output, ..Request::default() };
            assert_eq!(members(&request), expected, "{model} {thinking:?} {max_output:?}");
        };
        let enabled = |tokens: u64, limit: u64| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}, "max_tokens": limit});
        let adaptive = |effort: &str, limit: u64| json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}, "max_tokens": limit});
        let high = Thinking::Effort(Effort::High);
        for old in [
            "claude-3-7-sonnet-20250219",
            "claude-sonnet-4-20250514",
            "claude-opus-4-5",
            "anthropic/claude-opus-4",
            "glm-5",
        ] {
            check(old, high, None, enabled(16384, 24576));
        }
        for new in ["claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-8", "claude-sonnet-5"] {
            check(new, high, None, adaptive("high", 24576));
        }
        check("m", Thinking::Tokens(5000), Some(9000), enabled(5000, 9000));
        // Below the least, and above the limit.
        check("m", Thinking::Tokens(1), Some(9000), enabled(1024, 9000));
        check("m", high, Some(9000), enabled(7976, 9000));
        check("m", high, Some(1100), enabled(1024, 1100));
        check("m", high, Some(1024), json!({"max_tokens": 1024}));
        check("claude-opus-4-8", Thinking::Tokens(3000), Some(500), adaptive("low", 500));
        check("m", Thinking::Off, None, json!({"thinking": {"type": "disabled"}, "max_tokens": 8192}));
        check("m", Thinking::Default, None, json!({"max_tokens": 8192}));
    }

    #[test]
    fn a_call_that_must_be_made_leaves_no_room_to_think() {
        let tools = ToolSet::new(vec![ToolSpec::new("f", "", json!({}))]).unwrap();
        let (choice, thinking) = (ToolChoice::Required, Thinking::Effort(Effort::Low));
        let mut request = Request { model: "m".into(), tools, choice, thinking, ..Request::default() };
        assert_eq!(members(&request), json!({"max_tokens": 12288}));
        request.model = "claude-opus-4-8".into();
        assert_eq!(members(&request), json!({"max_tokens": 12288, "output_config": {"effort": "low"}}));
    }
}
