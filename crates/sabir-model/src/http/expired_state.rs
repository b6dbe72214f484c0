//! Removes opaque provider state that the provider no longer accepts, so that the request can be sent without it.

use std::borrow::Cow;

use sabir_call::{MessagePart, Request};

use crate::retry::RetryBudget;

/// Returns the request without the state that the provider has rejected.
pub(super) fn drop_expired_state<'a>(
    request: &'a Request,
    retry_budget: &RetryBudget,
) -> Cow<'a, Request> {
    // Only the messages up to the rejected request can hold expired state; newer state comes from the current model.
    let expired = retry_budget.expired_messages();
    if expired == 0 {
        return Cow::Borrowed(request);
    }
    let mut fresh = request.clone();
    for message in fresh.messages.iter_mut().take(expired) {
        message
            .parts
            .retain(|part| !matches!(part, MessagePart::Opaque(_)));
        for part in &mut message.parts {
            if let MessagePart::Thought { opaque, .. } = part {
                *opaque = None;
            }
        }
    }
    Cow::Owned(fresh)
}

/// Returns true if the request contains any opaque provider state.
pub(super) fn has_opaque_state(request: &Request) -> bool {
    let opaque = |part: &MessagePart| {
        matches!(
            part,
            MessagePart::Opaque(_)
                | MessagePart::Thought {
                    opaque: Some(_),
                    ..
                }
        )
    };
    request
        .messages
        .iter()
        .any(|message| message.parts.iter().any(opaque))
}
