//! Asks the questions of the model and of MCP servers as forms, if the client can show them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction,
    ElicitationContentValue, ElicitationFormMode, ElicitationSchema, ElicitationSessionScope,
    SessionId, StringPropertySchema,
};
use agent_client_protocol::{Client, Error};
use sabir_session::{ElicitationAnswer, ElicitationForm, ElicitationRequest, FormElicitor};
use sabir_terminal::sanitizer::sanitize_text;
use serde_json::Value;

use crate::message_text::show_hidden_characters;

/// The value of a form that holds one of the proposed answers.
const CHOICE: &str = "choice";
/// The value of a form that holds an answer in the user's words.
const ANSWER: &str = "answer";

/// Builds the form for a question of the model.
pub(crate) fn question_form(
    session: SessionId,
    question: &str,
    options: &[String],
) -> CreateElicitationRequest {
    let schema = ElicitationSchema::new();
    let schema = if options.is_empty() {
        schema.property(
            ANSWER,
            StringPropertySchema::new().title("Answer".to_owned()),
            true,
        )
    } else {
        let options: Vec<_> = options.iter().map(|option| sanitize_text(option)).collect();
        let choice = StringPropertySchema::new()
            .title("Answer".to_owned())
            .enum_values(options);
        let own = StringPropertySchema::new().title("Another answer".to_owned());
        schema
            .property(CHOICE, choice, false)
            .property(ANSWER, own, false)
    };
    build_request(session, schema, sanitize_text(question))
}

fn build_request(
    session: SessionId,
    schema: ElicitationSchema,
    message: String,
) -> CreateElicitationRequest {
    let scope = ElicitationSessionScope::new(session);
    CreateElicitationRequest::new(ElicitationFormMode::new(scope, schema), message)
}

/// Reads the answer to a question of the model; `None` if the form was left.
pub(crate) fn read_answer(answer: Result<CreateElicitationResponse, Error>) -> Option<String> {
    let ElicitationAction::Accept(accepted) = answer.ok()?.action else {
        return None;
    };
    let content = accepted.content?;
    // Own words say more than a choice beside them.
    [ANSWER, CHOICE]
        .iter()
        .find_map(|name| match content.get(*name)? {
            ElicitationContentValue::String(text) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        })
}

/// Asks the questions of MCP servers.
#[derive(Debug)]
pub(crate) struct ServerFormAsker {
    pub(crate) connection: ConnectionTo<Client>,
    pub(crate) session: SessionId,
}

impl FormElicitor for ServerFormAsker {
    fn ask_form<'a>(
        &'a self,
        request: &'a ElicitationRequest,
    ) -> Pin<Box<dyn Future<Output = Option<ElicitationAnswer>> + Send + 'a>> {
        Box::pin(async move {
            let ElicitationForm::Object(schema) = &request.form else {
                return None;
            };
            let mut schema = schema.clone();
            clean_texts(&mut schema);
            let schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
            // Consent without a value needs a question, not an empty form.
            if schema.properties.is_empty() {
                return None;
            }
            let message = format!(
                "The MCP server {} asks: {}",
                show_hidden_characters(&request.server),
                show_hidden_characters(&request.message)
            );
            let form = build_request(self.session.clone(), schema.clone(), message);
            let answer = self.connection.send_request(form).block_task().await;
            Some(read_form(answer.ok()?.action, &schema))
        })
    }
}

/// Removes control characters from the texts of a schema, which a server wrote.
fn clean_texts(schema: &mut Value) {
    match schema {
        Value::String(text) => *text = sanitize_text(text),
        Value::Array(items) => items.iter_mut().for_each(clean_texts),
        Value::Object(fields) => fields.values_mut().for_each(clean_texts),
        _ => {}
    }
}

/// Reads the answer to a form. Values that the form does not have are left out, and one without a required value answers nothing.
fn read_form(action: ElicitationAction, schema: &ElicitationSchema) -> ElicitationAnswer {
    let accepted = match action {
        ElicitationAction::Accept(accepted) => accepted,
        ElicitationAction::Decline => return ElicitationAnswer::Decline,
        _ => return ElicitationAnswer::Cancel,
    };
    let given = accepted.content.unwrap_or_default().into_iter();
    let content: BTreeMap<_, _> = given
        .filter(|(name, _)| schema.properties.contains_key(name))
        .collect();
    let mut required = schema.required.iter().flatten();
    if !required.all(|name| content.contains_key(name)) {
        return ElicitationAnswer::Cancel;
    }
    match serde_json::to_value(content) {
        Ok(content) => ElicitationAnswer::Accept(Some(content)),
        Err(_) => ElicitationAnswer::Cancel,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(value: Value) -> Result<CreateElicitationResponse, Error> {
        Ok(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_form_has_the_proposed_answers_and_room_for_another() {
        let options = ["red".to_owned(), "blue\u{1b}[31m".to_owned()];
        let form = question_form(SessionId::new("s"), "Which?", &options);
        let form = serde_json::to_value(form).unwrap();
        let properties = &form["requestedSchema"]["properties"];
        assert_eq!(properties[CHOICE]["enum"], json!(["red", "blue"]));
        assert_eq!(properties[ANSWER]["type"], "string");
        assert_eq!(form["mode"], "form");
    }

    #[test]
    fn own_words_go_before_a_choice() {
        let read =
            |content: Value| read_answer(response(json!({"action": "accept", "content": content})));
        assert_eq!(
            read(json!({"choice": "red", "answer": "green"})).as_deref(),
            Some("green")
        );
        assert_eq!(
            read(json!({"choice": "red", "answer": " "})).as_deref(),
            Some("red")
        );
        assert_eq!(read(json!({})), None);
        assert_eq!(read_answer(response(json!({"action": "cancel"}))), None);
        assert_eq!(read_answer(Err(Error::method_not_found())), None);
    }

    #[test]
    fn a_form_answers_only_what_it_asked() {
        let schema = ElicitationSchema::new().string("color", true);
        let read = |answer: Value| read_form(response(answer).unwrap().action, &schema);
        let given = json!({"action": "accept", "content": {"color": "red", "other": 1}});
        assert_eq!(
            read(given),
            ElicitationAnswer::Accept(Some(json!({"color": "red"})))
        );
        assert_eq!(read(json!({"action": "accept"})), ElicitationAnswer::Cancel);
        assert_eq!(
            read(json!({"action": "decline"})),
            ElicitationAnswer::Decline
        );
    }
}
