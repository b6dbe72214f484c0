//! Builds the request for a retry: the history with the model's response and the feedback on it.
//!
//! The response enters the history as it would in a task: the calls as far as they were understood,
//! each with a result that says that it was not run. The result of the first broken call contains
//! the feedback. Rendered for the request's protocol, it is a native tool result or text in a
//! dialect.

use sabir_call::{
    Call, CallId, CallResult, DraftPart, Fault, FaultKind, Message, MessagePart, Request, Role,
    Severity, ToolResultStatus,
};
use sabir_check::{FeedbackContext, MistakeCounter, render_feedback};

use super::attempt::{Attempt, CallProblem};

/// The result of a call that is itself valid.
const NOT_RUN_TEXT: &str = "This call was not run, because another call of the message could not be used. Make it again if it is needed.";

/// Builds the next request, and returns it with the feedback in it.
pub(crate) fn build_retry_request(
    request: &Request,
    attempt: &Attempt,
    problem: &CallProblem,
    repetition: &MistakeCounter,
) -> (Request, String) {
    let words = build_feedback(request, attempt, problem, repetition);
    let mut said = Vec::new();
    let mut results = Vec::new();
    // The feedback goes into exactly one place: the first wrong call's result, or a text.
    let mut open = Some(words.clone());
    for part in &attempt.draft.parts {
        match part {
            DraftPart::Text(text) if text.trim().is_empty() => {}
            DraftPart::Text(text) => said.push(MessagePart::text(text.clone())),
            DraftPart::Thought(text) => said.push(MessagePart::Thought {
                text: text.clone(),
                opaque: None,
            }),
            // A signature belongs to the thought right before it.
            DraftPart::Opaque(opaque) => match said.last_mut() {
                Some(MessagePart::Thought {
                    opaque: slot @ None,
                    ..
                }) => *slot = Some(opaque.clone()),
                _ => said.push(MessagePart::Opaque(opaque.clone())),
            },
            DraftPart::Call(call) => {
                let needs_result = attempt
                    .calls
                    .iter()
                    .any(|known| known.index == call.index && known.needs_feedback());
                if !needs_result || call.name.is_empty() {
                    continue;
                }
                let wrong = problem
                    .checked
                    .as_ref()
                    .filter(|checked| checked.index == call.index);
                let (name, arguments) = match wrong {
                    Some(checked) => (checked.name.clone(), checked.arguments.clone()),
                    None => (call.name.clone(), raw_arguments(call)),
                };
                let content = if wrong.is_some() { open.take() } else { None };
                // The provider's id may be missing or repeated; this one is unique within the
                // request.
                let id = CallId::new(format!("attempt_{}_{}", attempt.number + 1, call.index));
                // Every call in the history gets exactly one result, as all APIs demand.
                results.push(MessagePart::Result(CallResult {
                    id: id.clone(),
                    name: name.clone(),
                    ending: ToolResultStatus::Rejected,
                    content: content.unwrap_or_else(|| NOT_RUN_TEXT.to_owned()),
                    images: Vec::new(),
                }));
                said.push(MessagePart::Call(Call {
                    id,
                    name,
                    arguments,
                    dialect: call.dialect.clone(),
                }));
            }
        }
    }
    // Providers reject an assistant message without content.
    if said.is_empty() {
        said.push(MessagePart::text("(no words)"));
    }
    results.extend(open.map(MessagePart::text));
    let mut next = request.clone();
    next.messages.push(Message {
        role: Role::Assistant,
        parts: said,
    });
    next.messages.push(Message {
        role: Role::User,
        parts: results,
    });
    (next, words)
}

/// Renders the feedback for the model.
fn build_feedback(
    request: &Request,
    attempt: &Attempt,
    problem: &CallProblem,
    repetition: &MistakeCounter,
) -> String {
    let audience = FeedbackContext {
        protocol: &request.protocol,
        dialects: &request.dialects,
        tools: &request.tools,
        repetition,
    };
    let loose = |fault: &&Fault| {
        fault.call.is_none()
            && fault.severity == Severity::Error
            && fault.kind != FaultKind::Provider
    };
    let loose: Vec<Fault> = attempt.draft.faults.iter().filter(loose).cloned().collect();
    let checked = problem.checked.as_slice();
    let of_gates = render_feedback(checked, &loose, &attempt.draft.source, &audience);
    of_gates.unwrap_or_else(|| format!("Your message cannot be used: {}.\n", problem.message))
}

/// Returns the arguments as written, without the gates' typing: strings as strings, JSON as JSON.
fn raw_arguments(call: &sabir_call::DraftCall) -> serde_json::Map<String, serde_json::Value> {
    let value = |text: &str, form| match form {
        sabir_call::ArgumentEncoding::Json => {
            serde_json::from_str(text).unwrap_or_else(|_| text.into())
        }
        _ => text.into(),
    };
    call.arguments
        .iter()
        .map(|argument| (argument.name.clone(), value(&argument.text, argument.form)))
        .collect()
}
