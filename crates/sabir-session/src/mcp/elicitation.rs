//! Asks the user questions of servers, as questions of the session.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sabir_agent::{UserQuestion, UserReply};
use sabir_call::CallId;
use sabir_mcp::{ElicitationAnswer, ElicitationForm, ElicitationRequest, UserElicitor};
use serde_json::{Map, Value};

use crate::hub::EventHub;

/// The most times that a value is asked for again because it does not fit.
const MAX_TRIES: usize = 3;
/// The most values of one form.
const MAX_FIELDS: usize = 20;
/// The answer that refuses the whole form.
const DECLINE: &str = "decline";

/// A front end that can show a whole form.
pub trait FormElicitor: Send + Sync + std::fmt::Debug {
    /// Asks a server's question as a form. Returns `None` if this is not possible; the session then asks one question per value. Dropping
    /// the future withdraws the form.
    fn ask_form<'a>(
        &'a self,
        request: &'a ElicitationRequest,
    ) -> Pin<Box<dyn Future<Output = Option<ElicitationAnswer>> + Send + 'a>>;
}

/// Asks through the hub of a session.
pub(super) struct HubElicitor {
    hub: EventHub,
    /// Asks whole forms, if the front end can.
    forms: Option<Arc<dyn FormElicitor>>,
}

/// The result of one question.
enum FieldAnswer {
    Value(Value),
    Skipped,
    Declined,
    Cancelled,
}

impl HubElicitor {
    pub(super) fn new(hub: &EventHub, forms: Option<Arc<dyn FormElicitor>>) -> Self {
        Self {
            hub: hub.clone(),
            forms,
        }
    }

    /// Asks one question; `None` if nobody answers.
    async fn ask(&self, question: String, options: Vec<String>) -> Option<String> {
        let asked = |call| UserQuestion::Followup {
            call: CallId::new(call),
            question,
            options,
        };
        match self.hub.ask_for_server(asked).await {
            UserReply::Text(message) => Some(message.text),
            UserReply::Yes | UserReply::YesWithRules(_) => Some("yes".to_owned()),
            UserReply::No(_) => Some(DECLINE.to_owned()),
            // A question that was left, or any other kind of answer, gives no value.
            _ => None,
        }
    }

    async fn ask_field(
        &self,
        head: &str,
        name: &str,
        schema: &Value,
        required: bool,
    ) -> FieldAnswer {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut options: Vec<String> = enum_values(schema);
        if text("type") == "boolean" {
            options = vec!["yes".to_owned(), "no".to_owned()];
        }
        options.push(DECLINE.to_owned());
        let about = [text("title"), text("description")].join(" ");
        let default = schema.get("default").filter(|value| !value.is_null());
        let rest = match (default, required) {
            (Some(value), _) => format!(" (an empty answer means {value})"),
            (None, true) => String::new(),
            (None, false) => " (optional: an empty answer leaves it out)".to_owned(),
        };
        let mut problem = String::new();
        for _ in 0..MAX_TRIES {
            let question = format!("{head}\n\n{problem}{name}: {}{rest}", about.trim());
            let Some(answer) = self.ask(question, options.clone()).await else {
                return FieldAnswer::Cancelled;
            };
            let answer = answer.trim();
            if answer == DECLINE {
                return FieldAnswer::Declined;
            }
            match (answer.is_empty(), default) {
                (true, Some(value)) => return FieldAnswer::Value(value.clone()),
                (true, None) if !required => return FieldAnswer::Skipped,
                _ => {}
            }
            match parse_value(schema, answer) {
                Ok(value) => return FieldAnswer::Value(value),
                Err(why) => problem = format!("{why}\n"),
            }
        }
        FieldAnswer::Cancelled
    }

    async fn ask_object(&self, head: &str, schema: &Value) -> ElicitationAnswer {
        let fields = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let mut content = Map::new();
        for (name, field) in fields.into_iter().flatten().take(MAX_FIELDS) {
            let is_required = required.is_some_and(|names| names.iter().any(|known| known == name));
            match self.ask_field(head, name, field, is_required).await {
                FieldAnswer::Value(value) => _ = content.insert(name.clone(), value),
                FieldAnswer::Skipped => {}
                FieldAnswer::Declined => return ElicitationAnswer::Decline,
                FieldAnswer::Cancelled => return ElicitationAnswer::Cancel,
            }
        }
        if fields.is_none_or(Map::is_empty) {
            return self.ask_consent(head.to_owned()).await;
        }
        ElicitationAnswer::Accept(Some(Value::Object(content)))
    }

    async fn ask_consent(&self, question: String) -> ElicitationAnswer {
        let options = vec!["yes".to_owned(), DECLINE.to_owned()];
        match self.ask(question, options).await {
            Some(answer) if answer.trim().eq_ignore_ascii_case("yes") => {
                ElicitationAnswer::Accept(None)
            }
            Some(_) => ElicitationAnswer::Decline,
            None => ElicitationAnswer::Cancel,
        }
    }
}

impl UserElicitor for HubElicitor {
    fn elicit(
        &self,
        request: ElicitationRequest,
    ) -> Pin<Box<dyn Future<Output = ElicitationAnswer> + Send + '_>> {
        Box::pin(async move {
            if let Some(forms) = &self.forms
                && let Some(answer) = forms.ask_form(&request).await
            {
                return answer;
            }
            let head = format!(
                "The MCP server {} asks: {}",
                request.server, request.message
            );
            match &request.form {
                ElicitationForm::Object(schema) => self.ask_object(&head, schema).await,
                // Sabir opens no page; the user may open it.
                ElicitationForm::Url { url, host } => {
                    self.ask_consent(format!(
                        "{head}\n\nIt wants you to visit {host}. The whole address:\n{url}\n\nAnswer `yes` when you have done so."
                    ))
                    .await
                }
            }
        })
    }
}

/// Returns the values that a field may have, if they are listed.
fn enum_values(schema: &Value) -> Vec<String> {
    let listed = schema.get("enum").and_then(Value::as_array);
    let titled = schema.get("oneOf").and_then(Value::as_array);
    let plain = listed.into_iter().flatten().filter_map(Value::as_str);
    let constants = titled
        .into_iter()
        .flatten()
        .filter_map(|choice| choice.get("const")?.as_str());
    plain.chain(constants).map(str::to_owned).collect()
}

/// The reason why an answer does not fit its field, as an instruction for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum AnswerProblem {
    #[error("Answer yes or no.")]
    Boolean,
    #[error("Answer with a whole number.")]
    Integer,
    #[error("Answer with a number.")]
    Number,
    #[error("Answer with one of: {0}.")]
    Choice(String),
}

/// Converts an answer to the type of its field.
fn parse_value(schema: &Value, answer: &str) -> Result<Value, AnswerProblem> {
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("string");
    match kind {
        "boolean" => match answer.to_lowercase().as_str() {
            "yes" | "y" | "true" => Ok(Value::Bool(true)),
            "no" | "n" | "false" => Ok(Value::Bool(false)),
            _ => Err(AnswerProblem::Boolean),
        },
        "integer" => answer
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| AnswerProblem::Integer),
        "number" => answer
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .map(Value::from)
            .ok_or(AnswerProblem::Number),
        "array" => Ok(answer
            .split(',')
            .map(|item| Value::from(item.trim()))
            .collect()),
        _ => {
            let allowed = enum_values(schema);
            match allowed.is_empty() || allowed.iter().any(|value| value == answer) {
                true => Ok(Value::from(answer)),
                false => Err(AnswerProblem::Choice(allowed.join(", "))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_take_the_type_of_their_field() {
        let parse = |kind: &str, answer: &str| parse_value(&json!({"type": kind}), answer);
        assert_eq!(parse("boolean", "Yes").unwrap(), json!(true));
        assert_eq!(parse("integer", "7").unwrap(), json!(7));
        assert_eq!(parse("number", "0.5").unwrap(), json!(0.5));
        assert_eq!(parse("string", "7").unwrap(), json!("7"));
        assert_eq!(parse("array", "a, b").unwrap(), json!(["a", "b"]));
        assert!(parse("integer", "x").is_err());
        let choice = json!({"type": "string", "enum": ["a", "b"]});
        assert_eq!(parse_value(&choice, "b").unwrap(), json!("b"));
        assert!(parse_value(&choice, "c").is_err());
    }
}
