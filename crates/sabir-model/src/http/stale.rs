//! Provider state that a provider takes no more: it is left out of the messages that hold it, and the rest is asked again.

use std::borrow::Cow;

use sabir_call::{Part, Request};

use crate::retry::Patience;

/// The request without state that the provider does not take back.
pub(super) fn fresh<'a>(request: &'a Request, patience: &Patience) -> Cow<'a, Request> {
    let stale = patience.stale();
    if stale == 0 {
        return Cow::Borrowed(request);
    }
    let mut fresh = request.clone();
    for message in fresh.messages.iter_mut().take(stale) {
        message.parts.retain(|part| !matches!(part, Part::Opaque(_)));
        for part in &mut message.parts {
            if let Part::Thought { opaque, .. } = part {
                *opaque = None;
            }
        }
    }
    Cow::Owned(fresh)
}

/// Whether a request holds any.
pub(super) fn has_opaque(request: &Request) -> bool {
    let opaque = |part: &Part| matches!(part, Part::Opaque(_) | Part::Thought { opaque: Some(_), .. });
    request.messages.iter().any(|message| message.parts.iter().any(opaque))
}
