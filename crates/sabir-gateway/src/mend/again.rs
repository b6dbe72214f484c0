//! Asking once more: the history with what the model wrote, and what it is told of it.
//!
//! What was wrong goes into the history as it would in a task: the calls as they were understood, each with a result that says
//! that it was not run. The first broken one holds the feedback. Rendered for the request's protocol, that is a tool result
//! natively and words in a dialect.

use sabir_call::{
    Call, CallId, CallResult, DraftPart, Ending, Fault, FaultKind, Message, Part, Request, Role, Severity,
};
use sabir_check::{Audience, Repetition, feedback};

use super::attempt::{Attempt, Trouble};

/// The words for a call that had no mistake of its own.
const NOT_RUN: &str =
    "This call was not run, because another call of the message could not be used. Make it again if it is needed.";

/// The next request, and what the model is told in it.
pub(crate) fn request(request: &Request, attempt: &Attempt, trouble: &Trouble, told: &Repetition) -> (Request, String) {
    let words = words(request, attempt, trouble, told);
    let (mut said, mut results) = (Vec::new(), Vec::new());
    let mut open = Some(words.clone());
    for part in &attempt.draft.parts {
        match part {
            DraftPart::Text(text) if text.trim().is_empty() => {}
            DraftPart::Text(text) => said.push(Part::text(text.clone())),
            DraftPart::Thought(text) => said.push(Part::Thought { text: text.clone(), opaque: None }),
            DraftPart::Opaque(opaque) => match said.last_mut() {
                Some(Part::Thought { opaque: slot @ None, .. }) => *slot = Some(opaque.clone()),
                _ => said.push(Part::Opaque(opaque.clone())),
            },
            DraftPart::Call(call) => {
                let told = attempt.calls.iter().any(|known| known.index == call.index && known.is_told());
                if !told || call.name.is_empty() {
                    continue;
                }
                let wrong = trouble.checked.as_ref().filter(|checked| checked.index == call.index);
                let (name, arguments) = match wrong {
                    Some(checked) => (checked.name.clone(), checked.arguments.clone()),
                    None => (call.name.clone(), written(call)),
                };
                let content = if wrong.is_some() { open.take() } else { None };
                let id = CallId::new(format!("attempt_{}_{}", attempt.number + 1, call.index));
                let (ending, images) = (Ending::Rejected, Vec::new());
                let content = content.unwrap_or_else(|| NOT_RUN.to_owned());
                results.push(Part::Result(CallResult { id: id.clone(), name: name.clone(), ending, content, images }));
                said.push(Part::Call(Call { id, name, arguments, dialect: call.dialect.clone() }));
            }
        }
    }
    if said.is_empty() {
        said.push(Part::text("(no words)"));
    }
    results.extend(open.map(Part::text));
    let mut next = request.clone();
    next.messages.push(Message { role: Role::Assistant, parts: said });
    next.messages.push(Message { role: Role::User, parts: results });
    (next, words)
}

/// What the model is told.
fn words(request: &Request, attempt: &Attempt, trouble: &Trouble, told: &Repetition) -> String {
    let audience = Audience { protocol: &request.protocol, tools: &request.tools, told };
    let loose =
        |fault: &&Fault| fault.call.is_none() && fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
    let loose: Vec<Fault> = attempt.draft.faults.iter().filter(loose).cloned().collect();
    let checked = trouble.checked.as_slice();
    let of_gates = feedback(checked, &loose, &attempt.draft.source, &audience);
    of_gates.unwrap_or_else(|| format!("Your message cannot be used: {}.\n", trouble.message))
}

/// The arguments as far as they are known without the gates: strings as strings, JSON as JSON.
fn written(call: &sabir_call::DraftCall) -> serde_json::Map<String, serde_json::Value> {
    let value = |text: &str, form| match form {
        sabir_call::ArgForm::Json => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        _ => text.into(),
    };
    call.arguments.iter().map(|argument| (argument.name.clone(), value(&argument.text, argument.form))).collect()
}
