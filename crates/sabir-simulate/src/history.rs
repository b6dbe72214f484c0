//! Checks that in a history each call has exactly one result, in the very next message, in call order.
//!
//! The check looks at messages alone, so it holds for requests, for a running task and for a replay.

use sabir_call::{CallId, Message, MessagePart, Role};

use crate::invariants::{Invariant, Violation};

/// Checks a whole history: roles alternate, each call has one result, and results come in call order.
///
/// # Errors
/// Returns the first violation.
pub fn check_history(history: &[Message]) -> Result<(), Violation> {
    // The calls of the previous message, which this message must answer.
    let mut open: Vec<&CallId> = Vec::new();
    let mut last = None;
    for (at, message) in history.iter().enumerate() {
        let broken = |invariant, seen: String| {
            Err(Violation {
                invariant,
                seen: format!("message {at}: {seen}"),
            })
        };
        // Two messages of one role in a row mean that results were split over two messages, or that
        // the answer to them was dropped. Providers refuse such a history.
        if last.replace(message.role) == Some(message.role) {
            return broken(
                Invariant::OneResult,
                format!("two messages of {:?} in a row", message.role),
            );
        }
        let results: Vec<_> = result_ids(message).collect();
        // Missing and extra results break another invariant than results in the wrong order.
        let mut asked = open.clone();
        let mut told = results.clone();
        asked.sort();
        told.sort();
        if asked != told {
            return broken(
                Invariant::OneResult,
                format!("the calls {asked:?} have the results {told:?}"),
            );
        }
        if open != results {
            return broken(
                Invariant::CallOrder,
                format!("the calls {open:?} have their results as {results:?}"),
            );
        }
        // All earlier calls are answered now, so only the calls of this message are open.
        open = message.calls().map(|call| &call.id).collect();
        if message.role == Role::User && !open.is_empty() {
            return broken(Invariant::OneResult, "the user calls".to_owned());
        }
    }
    // A request may not end with open calls: the task adds a message with calls together with all
    // of its results.
    if open.is_empty() {
        return Ok(());
    }
    Err(Violation {
        invariant: Invariant::OneResult,
        seen: format!("the calls {open:?} have no results"),
    })
}

/// Returns the ids of the calls that a message has results for, in its order.
fn result_ids(message: &Message) -> impl Iterator<Item = &CallId> {
    message.parts.iter().filter_map(|part| match part {
        MessagePart::Result(result) => Some(&result.id),
        _ => None,
    })
}
