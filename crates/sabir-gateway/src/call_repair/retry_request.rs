//! Asking once more: the history with what the model wrote, and what it is told of it.
//!
//! What was wrong goes into the history as it would in a task: the calls as they were understood, each with a result that says
//! that it was not run. The first broken one holds the feedback. Rendered for the request's protocol, that is a tool result
//! natively and words in a dialect.

use sabir_call::{
    Call, CallId, CallResult, DraftPart, Fault, FaultKind, Message, MessagePart, Request, Role, Severity,
    ToolResultStatus,
};
use sabir_check::{FeedbackContext, RepeatTracker, render_feedback};

use super::attempt::{Attempt, CallProblem};

/// The words for a call that had no mistake of its own.
const NOT_RUN_TEXT: &str =
    "This call was not run, because another call of the message could not be used. Make it again if it is needed.";

/// The next request, and what the model is told in it.
pub(crate) fn build_retry_request(
    request: &Request,
    attempt: &Attempt,
    trouble: &CallProblem,
    told: &RepeatTracker,
) -> (Request, String) {
    let words = build_feedback(request, attempt, trouble, told);
    let (mut said, mut results) = (Vec::new(), Vec::new());
    let mut open = Some(words.clone());
    for part in &attempt.draft.parts {
        match part {
            DraftPart::Text(text) if text.trim().is_empty() => {}
            DraftPart::Text(text) => said.push(MessagePart::text(text.clone())),
            DraftPart::Thought(text) => said.push(MessagePart::Thought { text: text.clone(), opaque: None }),
            DraftPart::Opaque(opaque) => match said.last_mut() {
                Some(MessagePart::Thought { opaque: slot @ None, .. }) => *slot = Some(opaque.clone()),
                _ => said.push(MessagePart::Opaque(opaque.clone())),
            },
            DraftPart::Call(call) => {
                let told = attempt.calls.iter().any(|known| known.index == call.index && known.needs_feedback());
                if !told || call.name.is_empty() {
                    continue;
                }
                let wrong = trouble.checked.as_ref().filter(|checked| checked.index == call.index);
                let (name, arguments) = match wrong {
                    Some(checked) => (checked.name.clone(), checked.arguments.clone()),
                    None => (call.name.clone(), raw_arguments(call)),
                };
                let content = if wrong.is_some() { open.take() } else { None };
                let id = CallId::new(format!("attempt_{}_{}", attempt.number + 1, call.index));
                let (ending, images) = (ToolResultStatus::Rejected, Vec::new());
                let content = content.unwrap_or_else(|| NOT_RUN_TEXT.to_owned());
                results.push(MessagePart::Result(CallResult {
                    id: id.clone(),
                    name: name.clone(),
                    ending,
                    content,
                    images,
                }));
                said.push(MessagePart::Call(Call { id, name, arguments, dialect: call.dialect.clone() }));
            }
        }
    }
    if said.is_empty() {
        said.push(MessagePart::text("(no words)"));
    }
    results.extend(open.map(MessagePart::text));
    let mut next = request.clone();
    next.messages.push(Message { role: Role::Assistant, parts: said });
    next.messages.push(Message { role: Role::User, parts: results });
    (next, words)
}

/// What the model is told.
fn build_feedback(request: &Request, attempt: &Attempt, trouble: &CallProblem, told: &RepeatTracker) -> String {
    let audience = FeedbackContext {
        protocol: &request.protocol,
        dialects: &request.dialects,
        tools: &request.tools,
        repetition: told,
    };
    let loose =
        |fault: &&Fault| fault.call.is_none() && fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
    let loose: Vec<Fault> = attempt.draft.faults.iter().filter(loose).cloned().collect();
    let checked = trouble.checked.as_slice();
    let of_gates = render_feedback(checked, &loose, &attempt.draft.source, &audience);
    of_gates.unwrap_or_else(|| format!("Your message cannot be used: {}.\n", trouble.message))
}

/// The arguments as far as they are known without the gates: strings as strings, JSON as JSON.
fn raw_arguments(call: &sabir_call::DraftCall) -> serde_json::Map<String, serde_json::Value> {
    let value = |text: &str, form| match form {
        sabir_call::ArgForm::Json => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        _ => text.into(),
    };
    call.arguments.iter().map(|argument| (argument.name.clone(), value(&argument.text, argument.form))).collect()
}
