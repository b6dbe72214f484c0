//! Provider state that a provider takes no more: it is left out of the messages that hold it, and the rest is asked again.

use std::borrow::Cow;

use sabir_call::{MessagePart, Request};

use crate::retry::RetryBudget;

/// The request without state that the provider does not take back.
pub(super) fn drop_expired_state<'a>(request: &'a Request, patience: &RetryBudget) -> Cow<'a, Request> {
    let stale = patience.expired_messages();
    if stale == 0 {
        return Cow::Borrowed(request);
    }
    let mut fresh = request.clone();
    for message in fresh.messages.iter_mut().take(stale) {
        message.parts.retain(|part| !matches!(part, MessagePart::Opaque(_)));
        for part in &mut message.parts {
            if let MessagePart::Thought { opaque, .. } = part {
                *opaque = None;
            }
        }
    }
    Cow::Owned(fresh)
}

/// Whether a request holds any.
pub(super) fn has_opaque_state(request: &Request) -> bool {
    let opaque =
        |part: &MessagePart| matches!(part, MessagePart::Opaque(_) | MessagePart::Thought { opaque: Some(_), .. });
    request.messages.iter().any(|message| message.parts.iter().any(opaque))
}
