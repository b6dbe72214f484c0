//! Passes a client's own body on to a provider of the same wire.
//!
//! A client may send more than the common form can hold: a server's own parameters, marks on parts
//! of the history, members that were invented after this crate. Where client and provider speak the
//! same wire, all of it goes through: the client's body is sent, and only what belongs to the
//! connection to the provider is replaced in it. Messages that were added to the history since, such
//! as feedback to the model, are appended.

use sabir_call::{ClientBody, Request};
use serde_json::{Map, Value};

use crate::choice_chunk::ChoiceMembers;
use crate::client_request::{DecodedRequest, LossNote, RequestError, ResponsePreferences};
use crate::field_disposition::{FieldDisposition, MemberDispositions, is_empty_value};
use crate::openai_chat::legacy_functions::expect_one_call;
use crate::wire::{WireOptions, WireSpec};

/// The facts about a wire's bodies that are needed to pass them on.
pub(crate) struct PassthroughMembers {
    /// The known members.
    pub(crate) known: &'static MemberDispositions,
    /// The members that the gateway writes itself; lists and objects are merged.
    pub(crate) own: &'static [&'static str],
    /// The members that limit the output, the usual one first. A dot separates an object and its member.
    pub(crate) limits: &'static [&'static str],
    /// The members about thinking. A dot separates an object and its member.
    pub(crate) reasoning: &'static [&'static str],
    /// The members for several choices, on a wire that has them.
    pub(crate) choices: Option<ChoiceMembers>,
    /// Adapts a client's body to the server.
    pub(crate) adapt_body: fn(&mut Map<String, Value>, &Request, &WireOptions),
    /// Rewrites members that have two spellings to the usual one, and records in the preferences which
    /// of them the client expects in the answer.
    pub(crate) unify_spellings:
        fn(&mut Value, &mut ResponsePreferences) -> Result<(), RequestError>,
    /// Removes the items of a history that the provider would refuse.
    pub(crate) clean_history: fn(&mut Vec<Value>),
}

/// Members with which servers such as OpenRouter and LiteLLM use other models than `model`. They are not passed on: the gateway's routes
/// define which models a client may use.
const OTHER_MODELS: [&str; 4] = ["models", "route", "fallbacks", "model_list"];

/// The member that allows several calls in an answer. The common form can only request one call, since OpenAI allows several by default;
/// other servers (llama.cpp) allow one.
const PARALLEL_CALLS: &str = "parallel_tool_calls";

/// Decodes a client's body for a provider of the same wire. The request carries the body.
///
/// # Errors
/// Something that is refused even on the same wire, or an error outside of the history: the provider itself rejects a wrong
/// history.
pub(crate) fn decode_for_same_wire(
    spec: &WireSpec,
    members: &PassthroughMembers,
    body: &Value,
) -> Result<DecodedRequest, RequestError> {
    let mut passed = body.clone();
    let mut spelling = ResponsePreferences::default();
    (members.unify_spellings)(&mut passed, &mut spelling)?;
    let mut withheld = Vec::new();
    if let Some(members) = passed.as_object_mut() {
        for key in OTHER_MODELS {
            if members.shift_remove(key).is_some() {
                withheld.push(LossNote::new(key, "the gateway alone chooses the model"));
            }
        }
    }
    // Hidden while the rest is read, instead of copied: a history may be large.
    let mut hidden = Vec::new();
    for (key, disposition) in members.known {
        if is_for_same_wire(*disposition)
            && let Some(value) = member_mut(&mut passed, key)
        {
            hidden.push((*key, std::mem::take(value)));
        }
    }
    let mut decoded = match (spec.decode_request)(&passed) {
        Err(error) if error.path.starts_with(spec.history_member) => {
            if let Some(history) = passed.get_mut(spec.history_member) {
                let unread = std::mem::replace(history, Value::Array(Vec::new()));
                hidden.push((spec.history_member, unread));
            }
            DecodedRequest {
                unread_history: Some(error),
                ..(spec.decode_request)(&passed)?
            }
        }
        decoded => decoded?,
    };
    if spelling.legacy_functions {
        expect_one_call(&mut decoded, body);
    }
    for (key, value) in hidden {
        if let Some(place) = member_mut(&mut passed, key) {
            *place = value;
        }
    }
    // Members without a place in the common form are kept, unless they are inside of a member that
    // is written anew.
    let is_inside = |note: &LossNote| note.path.contains(['.', '[']);
    for note in std::mem::take(&mut decoded.notes) {
        if is_inside(&note) && body_has_path(&passed, &note.path) {
            decoded.rewrite_notes.push(note);
        } else if is_inside(&note) {
            decoded.notes.push(note);
        }
    }
    decoded.notes.extend(withheld);
    decoded.request.client_body = Some(ClientBody {
        wire: spec.name.to_owned(),
        body: passed.into(),
        headers: Vec::new(),
        messages: decoded.request.messages.len(),
        keeps_history: true,
    });
    Ok(decoded)
}

/// Returns true for a member of which only a provider of the same wire gets every value.
fn is_for_same_wire(disposition: FieldDisposition) -> bool {
    matches!(
        disposition,
        FieldDisposition::RefusedElsewhere(_) | FieldDisposition::CheckedElsewhere
    )
}

/// Returns a member; a dot in its path separates an object and its member.
fn member_mut<'v>(body: &'v mut Value, place: &str) -> Option<&'v mut Value> {
    place
        .split('.')
        .try_fold(body, |value, key| value.get_mut(key))
}

/// Returns true if the first member of a path is in a body.
fn body_has_path(body: &Value, path: &str) -> bool {
    let first = path.split(['.', '[']).next().unwrap_or_default();
    body.get(first).is_some()
}

/// Encodes a request whose body a client wrote.
pub(crate) fn encode_client_body(
    spec: &WireSpec,
    members: &PassthroughMembers,
    client: &ClientBody,
    request: &Request,
    options: &WireOptions,
) -> Value {
    let Some(sent) = client.body.as_object() else {
        return (spec.encode_request)(request, options);
    };
    if !client.keeps_history {
        let mut encoded = (spec.encode_request)(request, options);
        if let Some(encoded) = encoded.as_object_mut() {
            for (key, value) in sent {
                if !encoded.contains_key(key) && has_no_place(members.known, key) {
                    encoded.insert(key.clone(), value.clone());
                }
            }
            restore_checked_members(encoded, members.known, &client.body);
            let wish = sent.get(PARALLEL_CALLS).filter(|wish| wish.is_boolean());
            if let Some(wish) = wish
                && encoded.contains_key("tools")
                && !encoded.contains_key(PARALLEL_CALLS)
            {
                encoded.insert(PARALLEL_CALLS.to_owned(), wish.clone());
            }
        }
        return encoded;
    }
    let added = Request {
        system: String::new(),
        messages: request
            .messages
            .iter()
            .skip(client.messages)
            .cloned()
            .collect(),
        // They are in the client's history.
        instructions: Vec::new(),
        client_body: None,
        ..request.clone()
    };
    let options = WireOptions {
        cached: false,
        ..options.clone()
    };
    let encoded = (spec.encode_request)(&added, &options);
    let mut body = sent.clone();
    for key in members.own {
        replace_member(&mut body, key, encoded.get(*key));
    }
    apply_limit(
        &mut body,
        members.limits,
        request.max_output_tokens,
        &encoded,
    );
    extend_history(&mut body, spec.history_member, &encoded);
    if let Some(Value::Array(history)) = body.get_mut(spec.history_member) {
        (members.clean_history)(history);
    }
    (members.adapt_body)(&mut body, request, &options);
    Value::Object(body)
}

/// Restores the members of a client's body that were not decoded, since only a provider of the same
/// wire gets every value of them. The rest of the body was rewritten.
fn restore_checked_members(
    encoded: &mut Map<String, Value>,
    known: &MemberDispositions,
    client: &Value,
) {
    for (place, disposition) in known {
        let value = place
            .split('.')
            .try_fold(client, |value, key| value.get(key))
            .filter(|value| !is_empty_value(value));
        let Some(value) = value.filter(|_| is_for_same_wire(*disposition)) else {
            continue;
        };
        match (encoded.get_mut(*place), value) {
            // The gateway's own items, which are few, come first.
            (Some(Value::Array(own)), Value::Array(items)) => {
                let more: Vec<_> = items.iter().filter(|item| !own.contains(item)).collect();
                own.extend(more.into_iter().cloned());
            }
            (Some(_), _) => {}
            (None, _) => crate::params::insert_at_path(encoded, place, value.clone()),
        }
    }
}

/// Removes members of a body; a dot in a path separates an object and its member.
pub(crate) fn remove_members(body: &mut Value, places: &[&str]) {
    for place in places {
        let (objects, key) = place.rsplit_once('.').unwrap_or(("", place));
        let inside = objects
            .split('.')
            .filter(|key| !key.is_empty())
            .try_fold(&mut *body, |value, key| value.get_mut(key));
        if let Some(inside) = inside.and_then(Value::as_object_mut) {
            inside.remove(key);
        }
    }
}

/// Returns true if the common form has no place for a member.
fn has_no_place(known: &MemberDispositions, key: &str) -> bool {
    let disposition = known.iter().find(|(known, _)| *known == key);
    disposition.is_none_or(|(_, disposition)| {
        !matches!(
            disposition,
            FieldDisposition::Read | FieldDisposition::Refused(_)
        )
    })
}

/// Replaces a member by the gateway's own. Lists keep the client's items, and objects the client's
/// members.
fn replace_member(body: &mut Map<String, Value>, key: &str, own: Option<&Value>) {
    let Some(own) = own else {
        body.shift_remove(key);
        return;
    };
    match (body.get_mut(key), own) {
        (Some(Value::Array(items)), Value::Array(own)) => {
            for item in own {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
        }
        (Some(Value::Object(members)), Value::Object(own)) => {
            members.extend(own.clone());
        }
        _ => {
            body.insert(key.to_owned(), own.clone());
        }
    }
}

/// Writes the output limit in the place where the client wrote it, or in that of the wire.
fn apply_limit(
    body: &mut Map<String, Value>,
    places: &[&str],
    limit: Option<u64>,
    encoded: &Value,
) {
    let pointer = |place: &str| format!("/{}", place.replace('.', "/"));
    let mut is_given = false;
    let mut whole = Value::Object(std::mem::take(body));
    for place in places {
        if let Some(given) = whole
            .pointer_mut(&pointer(place))
            .filter(|given| given.as_u64().is_some_and(|count| count > 0))
        {
            is_given = true;
            if let Some(limit) = limit.filter(|limit| given.as_u64() > Some(*limit)) {
                *given = limit.into();
            }
        }
    }
    if let Value::Object(whole) = whole {
        *body = whole;
    }
    if !is_given {
        for place in places {
            if let Some(own) = encoded.pointer(&pointer(place)) {
                crate::params::insert_at_path(body, place, own.clone());
            }
        }
    }
}

/// Appends the messages that were added to the client's history.
fn extend_history(body: &mut Map<String, Value>, key: &str, encoded: &Value) {
    let Some(added) = encoded
        .get(key)
        .and_then(Value::as_array)
        .filter(|added| !added.is_empty())
    else {
        return;
    };
    match body.get_mut(key) {
        Some(Value::Array(history)) => history.extend(added.iter().cloned()),
        Some(Value::String(text)) => {
            let question = serde_json::json!({"role": "user", "content": text});
            let history = std::iter::once(question).chain(added.iter().cloned());
            body.insert(key.to_owned(), history.collect());
        }
        _ => {
            body.insert(key.to_owned(), Value::Array(added.clone()));
        }
    }
}
