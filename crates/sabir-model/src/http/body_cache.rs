//! Caches the serialized beginning of a growing history, so that each turn serializes only the
//! newest messages.
//!
//! The cache holds the JSON text of the oldest messages, up to the beginning of an answer. No wire
//! merges messages across such a boundary, and cache marks are only set at the end of a request.
//! The body is the same, byte for byte, as without the cache; a property test over all wires checks
//! that. Messages are compared, not assumed to be equal, so that a compacted or edited history is
//! serialized from scratch.
//!
//! Measured with the tool calls of a task whose requests have 320 KB (release build, two cores, the
//! fastest of 20 turns): with the cache a turn's body takes 0.1 to 0.2 ms natively and 0.4 to 0.6
//! ms in a dialect; without it 0.8 to 1.4 ms and 4.8 to 9.7 ms, depending on the wire, and the
//! difference grows with the history.

use std::sync::{Mutex, PoisonError};

use sabir_call::{CacheControl, Message, ModelError, Request, Role};
use sabir_wire::WireOptions;
use serde_json::{Map, Value};

/// The number of newest messages that are always serialized. Once there are twice as many, the
/// older half is cached.
const MIN_OPEN_MESSAGES: usize = 32;

/// The encoding of requests: wire, options and protocol.
pub(super) struct BodyEncoder<'a> {
    /// The member of the body that holds the messages.
    pub(super) key: &'a str,
    /// The options of the wire.
    pub(super) form: &'a WireOptions,
    /// Encodes a request as a JSON value.
    pub(super) encode: &'a dyn Fn(&Request, &WireOptions) -> Result<Value, ModelError>,
}

/// A cache with the text of the oldest messages of the last request.
#[derive(Default)]
pub(super) struct BodyCache(Mutex<Option<CachedPrefix>>);

/// The cached beginning of one history.
struct CachedPrefix {
    /// The request without its messages.
    template: Request,
    /// The messages whose text is cached. They are kept for the comparison.
    messages: Vec<Message>,
    /// The number of items before those of the messages: the system prompt, on some wires.
    leading_items: usize,
    /// The serialized items, with commas between them.
    text: Vec<u8>,
}

impl BodyCache {
    /// Encodes the body of a request.
    ///
    /// # Errors
    /// The errors of `encode`.
    pub(super) fn encode_body(
        &self,
        request: &Request,
        encoder: &BodyEncoder<'_>,
    ) -> Result<Vec<u8>, ModelError> {
        self.encode_body_keeping(MIN_OPEN_MESSAGES, request, encoder)
    }

    /// Encodes the body of a request; `open` is the number of newest messages that are not cached.
    fn encode_body_keeping(
        &self,
        open: usize,
        request: &Request,
        encoder: &BodyEncoder<'_>,
    ) -> Result<Vec<u8>, ModelError> {
        let whole = |request: &Request| (encoder.encode)(request, encoder.form);
        // The prefix is taken out while it is used, so that an error leaves no half-extended one.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prefix = match kept.take_if(|prefix| prefix.is_prefix_of(request)) {
            Some(prefix) => prefix,
            None if request.messages.len() <= 2 * open => {
                return Ok(to_json_bytes(&whole(request)?));
            }
            None => CachedPrefix::new(request, encoder)?,
        };
        if request.messages.len() - prefix.messages.len() > 2 * open {
            prefix.extend_prefix(open, request, encoder)?;
        }
        let rest = request
            .messages
            .iter()
            .skip(prefix.messages.len())
            .cloned()
            .collect();
        // Only the newest messages are encoded here.
        let value = whole(&Request {
            messages: rest,
            ..request.clone()
        })?;
        if array_items(encoder.key, &value).len() <= prefix.leading_items {
            // No new item follows the cached ones, so the cache mark of the last message belongs in
            // the cached part.
            return Ok(to_json_bytes(&whole(request)?));
        }
        let body = prefix.splice_body(encoder.key, &value);
        *kept = Some(prefix);
        Ok(body)
    }
}

impl CachedPrefix {
    /// Makes an empty prefix for requests like this one.
    fn new(request: &Request, encoder: &BodyEncoder<'_>) -> Result<Self, ModelError> {
        let basis = Request {
            messages: Vec::new().into(),
            ..request.clone()
        };
        // A request without messages shows the items that come before them.
        let head = array_items(encoder.key, &(encoder.encode)(&basis, encoder.form)?).len();
        Ok(Self {
            template: basis,
            messages: Vec::new(),
            leading_items: head,
            text: Vec::new(),
        })
    }

    /// Returns true if the request begins with the cached messages and is otherwise the same.
    fn is_prefix_of(&self, request: &Request) -> bool {
        let basis = &self.template;
        basis.model == request.model
            && basis.system == request.system
            && basis.protocol == request.protocol
            && basis.reasoning == request.reasoning
            && basis.options == request.options
            // Compares identity only: a task keeps the same set for all its requests.
            && basis.tools.is_same(&request.tools)
            && request.messages.starts_with(&self.messages)
    }

    /// Moves all but the `open` newest messages into the cache.
    fn extend_prefix(
        &mut self,
        open: usize,
        request: &Request,
        encoder: &BodyEncoder<'_>,
    ) -> Result<(), ModelError> {
        let all = request.messages.as_slice();
        let from = self.messages.len();
        let begins_answer = |at: &usize| {
            let role = |at: usize| all.get(at).map(|message| message.role);
            role(*at) == Some(Role::Assistant) && role(*at - 1) == Some(Role::User)
        };
        let Some(to) = (from + 1..all.len().saturating_sub(open))
            .rev()
            .find(begins_answer)
        else {
            return Ok(());
        };
        let new: Vec<_> = all.iter().take(to).skip(from).cloned().collect();
        // Without cache marks: in the whole request they come after the cached part.
        let mut part = Request {
            messages: new.clone().into(),
            ..self.template.clone()
        };
        part.options.cache = CacheControl::default();
        let value = (encoder.encode)(
            &part,
            &WireOptions {
                cached: false,
                ..encoder.form.clone()
            },
        )?;
        for item in array_items(encoder.key, &value)
            .iter()
            .skip(self.leading_items)
        {
            push_item(&mut self.text, &to_json_bytes(item));
        }
        self.messages.extend(new);
        Ok(())
    }

    /// Serializes the body of the newest messages, after the cached text.
    fn splice_body(&self, key: &str, rest: &Value) -> Vec<u8> {
        let mut body = vec![b'{'];
        for (name, value) in rest.as_object().unwrap_or(&Map::new()) {
            push_item(&mut body, &to_json_bytes(&Value::String(name.clone())));
            body.push(b':');
            if name != key {
                body.extend(to_json_bytes(value));
                continue;
            }
            let rest = value.as_array().map_or(&[][..], Vec::as_slice);
            let (head, tail) = rest
                .split_at_checked(self.leading_items)
                .unwrap_or_default();
            body.push(b'[');
            head.iter()
                .for_each(|item| push_item(&mut body, &to_json_bytes(item)));
            push_item(&mut body, &self.text);
            tail.iter()
                .for_each(|item| push_item(&mut body, &to_json_bytes(item)));
            body.push(b']');
        }
        body.push(b'}');
        body
    }
}

/// Appends an item of a list or a member of an object, with a comma if it is not the first.
fn push_item(to: &mut Vec<u8>, item: &[u8]) {
    if !item.is_empty() {
        if !matches!(to.last(), None | Some(b'[' | b'{')) {
            to.push(b',');
        }
        to.extend_from_slice(item);
    }
}

/// Returns the items of a list member; none if it is missing.
fn array_items<'v>(key: &str, value: &'v Value) -> &'v [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Serializes a value. That cannot fail, because its keys are strings.
fn to_json_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sabir_call::dialect::DialectSet;
    use sabir_call::{
        Call, CallId, CallResult, Image, MessagePart, OpaqueState, ToolProtocol, ToolResultStatus,
        ToolSet, ToolSpec, render_request,
    };
    use sabir_wire::Wire;
    use serde_json::json;

    use super::*;

    fn tools() -> ToolSet {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSet::new(vec![ToolSpec::new("look", "Looks.", schema)]).unwrap()
    }

    fn part() -> impl Strategy<Value = (Role, MessagePart)> {
        let id = || (0..4_u32).prop_map(|id| CallId::new(format!("c{id}")));
        let picture = || Image {
            media_type: "image/png".to_owned(),
            data: "iVBORw0KGgo=".to_owned(),
        };
        let call = (id(), "[a-z\"\\\\<>é]{0,6}").prop_map(|(id, path)| {
            let arguments = json!({"path": path}).as_object().cloned().unwrap();
            MessagePart::Call(Call {
                id,
                name: "look".to_owned(),
                arguments,
                dialect: None,
            })
        });
        let result = (id(), "[a-z \n<]{0,9}", any::<bool>(), any::<bool>()).prop_map(
            move |(id, content, good, shown)| {
                let ending = if good {
                    ToolResultStatus::Done
                } else {
                    ToolResultStatus::Failed
                };
                let images = if shown { vec![picture()] } else { Vec::new() };
                MessagePart::Result(CallResult {
                    id,
                    name: "look".to_owned(),
                    ending,
                    content,
                    images,
                })
            },
        );
        let opaque = prop_oneof![
            Just(OpaqueState {
                wire: "anthropic".to_owned(),
                origin: None,
                data: json!({"type": "thinking", "signature": "s"})
            }),
            Just(OpaqueState {
                wire: "openai-responses".to_owned(),
                origin: None,
                data: json!({"type": "reasoning", "encrypted_content": "e"})
            }),
            Just(OpaqueState {
                wire: "gemini".to_owned(),
                origin: None,
                data: json!({"thoughtSignature": "g"})
            }),
        ];
        prop_oneof![
            4 => "[a-z \n]{0,9}".prop_map(|text| (Role::User, MessagePart::Text { text })),
            4 => "[a-z <]{0,9}".prop_map(|text| (Role::Assistant, MessagePart::Text { text })),
            4 => call.prop_map(|part| (Role::Assistant, part)),
            4 => result.prop_map(|part| (Role::User, part)),
            1 => Just((Role::User, MessagePart::Image(picture()))),
            1 => opaque.prop_map(|opaque| (Role::Assistant, MessagePart::Thought { text: "hm".to_owned(), opaque: Some(opaque) })),
            1 => Just((Role::Assistant, MessagePart::Thought { text: "hm".to_owned(), opaque: None })),
        ]
    }

    fn history() -> impl Strategy<Value = Vec<Message>> {
        let message =
            (any::<bool>(), prop::collection::vec(part(), 0..4)).prop_map(|(user, parts)| {
                let role = if user { Role::User } else { Role::Assistant };
                Message {
                    role,
                    parts: parts
                        .into_iter()
                        .filter(|(own, _)| *own == role)
                        .map(|(_, part)| part)
                        .collect(),
                }
            });
        prop::collection::vec(message, 0..24)
    }

    fn encoded(wire: Wire, request: &Request, form: &WireOptions) -> Value {
        match &request.protocol {
            ToolProtocol::Native => wire.encode_request(request, form),
            ToolProtocol::Prompted(name) => wire.encode_request(
                &render_request(request, DialectSet::built_in().find(name).unwrap()),
                form,
            ),
        }
    }

    proptest! {
        // Each case is twelve tasks: all wires, native and prompted.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn cached_bodies_equal_uncached_ones(
            messages in history(),
            steps in prop::collection::vec(0_usize..5, 1..12),
            changed in prop::option::of(0_usize..24),
            (system, cached) in (any::<bool>(), any::<bool>()),
        ) {
            let form = WireOptions { streamed: true, cached, thought_field: Some("reasoning_content".to_owned()), ..WireOptions::default() };
            for (wire, protocol) in Wire::ALL.into_iter().flat_map(|wire| [(wire, None), (wire, Some("invoke"))]) {
                let protocol = protocol.map_or(ToolProtocol::Native, |name: &str| ToolProtocol::Prompted(name.to_owned()));
                let system = if system { "Be brief." } else { "" }.to_owned();
                let basis = Request { model: "gemini-3-pro".to_owned(), system, protocol, tools: tools(), ..Request::default() };
                let (written, mut count, mut all) = (BodyCache::default(), 0, messages.clone());
                for (turn, step) in steps.iter().enumerate() {
                    count = (count + step).min(all.len());
                    if let (Some(at), 6) = (changed, turn) && let Some(message) = all.get_mut(at) {
                        message.parts.push(MessagePart::Text { text: "changed".to_owned() });
                    }
                    let request = Request { messages: all.iter().take(count).cloned().collect(), ..basis.clone() };
                    let encode = |request: &Request, form: &WireOptions| Ok(encoded(wire, request, form));
                    let encoder = BodyEncoder { key: wire.history_member(), form: &form, encode: &encode };
                    let body = written.encode_body_keeping(2, &request, &encoder).unwrap();
                    let expected = to_json_bytes(&encoded(wire, &request, &form));
                    prop_assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(expected).unwrap(), "{}", wire);
                }
            }
        }
    }

    #[test]
    fn the_oldest_messages_are_serialized_once() {
        let turn = |at: usize| {
            [
                Message::user(format!("u{at}")),
                Message {
                    role: Role::Assistant,
                    parts: vec![MessagePart::text("a")],
                },
            ]
        };
        let (written, counted, tools) = (BodyCache::default(), std::cell::Cell::new(0), tools());
        for turns in 1..200 {
            let messages = (0..turns).flat_map(turn).collect();
            let request = Request {
                messages,
                tools: tools.clone(),
                ..Request::default()
            };
            let encode = |request: &Request, form: &WireOptions| {
                counted.set(counted.get() + request.messages.len());
                Ok(Wire::OpenAiChat.encode_request(request, form))
            };
            let encoder = BodyEncoder {
                key: "messages",
                form: &WireOptions::default(),
                encode: &encode,
            };
            written.encode_body(&request, &encoder).unwrap();
        }
        // All 400 messages are serialized once, and some of the newest for each of the 200
        // requests; without the cache it would be 40,000.
        assert!(counted.get() < 12_000, "{}", counted.get());
    }
}
