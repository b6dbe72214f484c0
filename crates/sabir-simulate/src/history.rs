//! Checks law 7 on a history: each call has exactly one result, in the very next message, in call order.

use sabir_call::{CallId, Message, MessagePart, Role};

use crate::laws::{Law, Violation};

/// Checks a whole history.
///
/// # Errors
/// Returns the first violation.
pub fn check_history(history: &[Message]) -> Result<(), Violation> {
    let mut open: Vec<&CallId> = Vec::new();
    let mut last = None;
    for (at, message) in history.iter().enumerate() {
        let broken = |law, seen: String| {
            Err(Violation {
                law,
                seen: format!("message {at}: {seen}"),
            })
        };
        if last.replace(message.role) == Some(message.role) {
            return broken(
                Law::OneResult,
                format!("two messages of {:?} in a row", message.role),
            );
        }
        let results: Vec<_> = result_ids(message).collect();
        // Missing and extra results break another law than results in the wrong order.
        let mut asked = open.clone();
        let mut told = results.clone();
        asked.sort();
        told.sort();
        if asked != told {
            return broken(
                Law::OneResult,
                format!("the calls {asked:?} have the results {told:?}"),
            );
        }
        if open != results {
            return broken(
                Law::CallOrder,
                format!("the calls {open:?} have their results as {results:?}"),
            );
        }
        open = message.calls().map(|call| &call.id).collect();
        if message.role == Role::User && !open.is_empty() {
            return broken(Law::OneResult, "the user calls".to_owned());
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    Err(Violation {
        law: Law::OneResult,
        seen: format!("the calls {open:?} have no results"),
    })
}

fn result_ids(message: &Message) -> impl Iterator<Item = &CallId> {
    message.parts.iter().filter_map(|part| match part {
        MessagePart::Result(result) => Some(&result.id),
        _ => None,
    })
}
