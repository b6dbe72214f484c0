//! Removes opaque provider state that must not be sent: state of other models, and state that the
//! provider no longer accepts.

use std::borrow::Cow;

use sabir_call::{
    ClientBody, Event, EventSink, Fault, FaultKind, MessagePart, OpaqueState, Request,
};
use sabir_wire::MAX_MESSAGE_CHARS;

use crate::provider_error::RequestTarget;
use crate::retry::RetryBudget;

/// Passes events on. Adds the origin to opaque state, removes the provider's secrets from faults, which may quote its messages, and cuts them.
pub(super) struct OriginSink<'a> {
    sink: &'a mut (dyn EventSink + Send),
    /// The provider and the model that answer.
    target: RequestTarget<'a>,
}

impl<'a> OriginSink<'a> {
    /// Passes the events of an answer on to `sink`.
    pub(super) fn new(sink: &'a mut (dyn EventSink + Send), target: RequestTarget<'a>) -> Self {
        Self { sink, target }
    }
}

impl EventSink for OriginSink<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Opaque(opaque) => self.sink.push_event(Event::Opaque(&OpaqueState {
                origin: Some(self.target.origin()),
                ..opaque.clone()
            })),
            Event::Fault(fault) if fault.kind == FaultKind::Provider => {
                let message = self.target.provider.redact_secrets(&fault.message);
                let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
                self.sink.push_event(Event::Fault(&Fault {
                    message,
                    ..fault.clone()
                }));
            }
            event => self.sink.push_event(event),
        }
    }
}

/// Returns the request without the state of other models, and without the state that the provider has rejected. `origin` names the provider
/// and the model.
pub(super) fn drop_unusable_state<'a>(
    request: &'a Request,
    origin: &str,
    retry_budget: &RetryBudget,
) -> Cow<'a, Request> {
    // Only the messages up to the rejected request can hold expired state; newer state comes from
    // the current model.
    let expired = retry_budget.expired_messages();
    let is_foreign =
        |opaque: &OpaqueState| opaque.origin.as_deref().is_some_and(|from| from != origin);
    // The usual case costs no copy of the history.
    if expired == 0 && !opaque_states(request).any(is_foreign) {
        return Cow::Borrowed(request);
    }
    let mut fresh = request.clone();
    // A client's body would bring the state back.
    fresh.client_body = fresh.client_body.map(|body| ClientBody {
        keeps_history: false,
        ..body
    });
    for (index, message) in fresh.messages.iter_mut().enumerate() {
        let is_unusable = |opaque: &OpaqueState| index < expired || is_foreign(opaque);
        message
            .parts
            .retain(|part| !matches!(part, MessagePart::Opaque(opaque) if is_unusable(opaque)));
        for part in &mut message.parts {
            // The text of a thought stays: only its signature belongs to a model.
            if let MessagePart::Thought { opaque, .. } = part {
                opaque.take_if(|opaque| is_unusable(opaque));
            }
        }
    }
    Cow::Owned(fresh)
}

/// Returns true if the request contains any opaque provider state.
pub(super) fn has_opaque_state(request: &Request) -> bool {
    opaque_states(request).next().is_some()
}

/// Returns the opaque state in the history of a request.
fn opaque_states(request: &Request) -> impl Iterator<Item = &OpaqueState> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| match part {
        MessagePart::Opaque(opaque)
        | MessagePart::Thought {
            opaque: Some(opaque),
            ..
        } => Some(opaque),
        _ => None,
    })
}
