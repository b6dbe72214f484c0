//! What was written of a history that only grows stands: a task asks with the same messages turn after turn, and writing all of them
//! anew each time costs more the longer it lasts.
//!
//! Kept is the text of the oldest messages, up to a place where an answer begins: no wire puts together what stands on both sides of
//! such a place, and the marks of what may be cached stand at the end. The body is the same, byte for byte, as if all of it
//! were written anew; a property test over all wires holds that. Messages are compared, not taken for the same: a history that was
//! compacted or changed is written anew.

use std::sync::{Mutex, PoisonError};

use sabir_call::{Cache, Message, ModelError, Request, Role};
use sabir_wire::Form;
use serde_json::{Map, Value};

/// How many of the newest messages are written each time, at least; twice as many, and the older half is kept.
const OPEN: usize = 32;

/// How requests are written.
pub(super) struct Manner<'a> {
    /// The member of the body under which the messages stand.
    pub(super) key: &'a str,
    pub(super) form: &'a Form,
    pub(super) encode: &'a dyn Fn(&Request, &Form) -> Result<Value, ModelError>,
}

/// The text of the oldest messages of the last request.
#[derive(Default)]
pub(super) struct Written(Mutex<Option<Settled>>);

struct Settled {
    /// All of the request but its messages.
    basis: Request,
    messages: Vec<Message>,
    /// How many items stand before those of the messages: the system prompt, on some wires.
    head: usize,
    /// The items, with commas between them.
    text: Vec<u8>,
}

impl Written {
    /// The body of a request.
    ///
    /// # Errors
    /// Those of `encode`.
    pub(super) fn body(&self, request: &Request, manner: &Manner<'_>) -> Result<Vec<u8>, ModelError> {
        self.body_keeping(OPEN, request, manner)
    }

    fn body_keeping(&self, open: usize, request: &Request, manner: &Manner<'_>) -> Result<Vec<u8>, ModelError> {
        let whole = |request: &Request| (manner.encode)(request, manner.form);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut settled = match kept.take_if(|settled| settled.fits(request)) {
            Some(settled) => settled,
            None if request.messages.len() <= 2 * open => return Ok(bytes(&whole(request)?)),
            None => Settled::new(request, manner)?,
        };
        if request.messages.len() - settled.messages.len() > 2 * open {
            settled.settle(open, request, manner)?;
        }
        let rest = request.messages.iter().skip(settled.messages.len()).cloned().collect();
        let value = whole(&Request { messages: rest, ..request.clone() })?;
        if items(manner.key, &value).len() <= settled.head {
            // What is marked at the end would stand among what is kept.
            return Ok(bytes(&whole(request)?));
        }
        let body = settled.body(manner.key, &value);
        *kept = Some(settled);
        Ok(body)
    }
}

impl Settled {
    fn new(request: &Request, manner: &Manner<'_>) -> Result<Self, ModelError> {
        let basis = Request { messages: Vec::new().into(), ..request.clone() };
        let head = items(manner.key, &(manner.encode)(&basis, manner.form)?).len();
        Ok(Self { basis, messages: Vec::new(), head, text: Vec::new() })
    }

    /// Whether it is a part of that request.
    fn fits(&self, request: &Request) -> bool {
        let basis = &self.basis;
        basis.model == request.model
            && basis.system == request.system
            && basis.protocol == request.protocol
            && basis.thinking == request.thinking
            && basis.wishes == request.wishes
            && basis.tools.is_same(&request.tools)
            && request.messages.starts_with(&self.messages)
    }

    /// Keeps all but the newest messages.
    fn settle(&mut self, open: usize, request: &Request, manner: &Manner<'_>) -> Result<(), ModelError> {
        let all = request.messages.as_slice();
        let from = self.messages.len();
        let begins_answer = |at: &usize| {
            let role = |at: usize| all.get(at).map(|message| message.role);
            role(*at) == Some(Role::Assistant) && role(*at - 1) == Some(Role::User)
        };
        let Some(to) = (from + 1..all.len().saturating_sub(open)).rev().find(begins_answer) else { return Ok(()) };
        let new: Vec<_> = all.iter().take(to).skip(from).cloned().collect();
        let mut part = Request { messages: new.clone().into(), ..self.basis.clone() };
        part.wishes.cache = Cache::default();
        let value = (manner.encode)(&part, &Form { cached: false, ..manner.form.clone() })?;
        for item in items(manner.key, &value).iter().skip(self.head) {
            push(&mut self.text, &bytes(item));
        }
        self.messages.extend(new);
        Ok(())
    }

    /// The body of the rest, with what is kept in its place.
    fn body(&self, key: &str, rest: &Value) -> Vec<u8> {
        let mut body = vec![b'{'];
        for (name, value) in rest.as_object().unwrap_or(&Map::new()) {
            push(&mut body, &bytes(&Value::String(name.clone())));
            body.push(b':');
            if name != key {
                body.extend(bytes(value));
                continue;
            }
            let rest = value.as_array().map_or(&[][..], Vec::as_slice);
            let (head, tail) = rest.split_at_checked(self.head).unwrap_or_default();
            body.push(b'[');
            head.iter().for_each(|item| push(&mut body, &bytes(item)));
            push(&mut body, &self.text);
            tail.iter().for_each(|item| push(&mut body, &bytes(item)));
            body.push(b']');
        }
        body.push(b'}');
        body
    }
}

/// One more item of a list, or member of an object.
fn push(to: &mut Vec<u8>, item: &[u8]) {
    if !item.is_empty() {
        if !matches!(to.last(), None | Some(b'[' | b'{')) {
            to.push(b',');
        }
        to.extend_from_slice(item);
    }
}

fn items<'v>(key: &str, value: &'v Value) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A value always has a text: its keys are strings.
fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sabir_call::dialect::dialect;
    use sabir_call::{
        Call, CallId, CallResult, Ending, Image, Opaque, Part, Protocol, ToolSet, ToolSpec, render_request,
    };
    use sabir_wire::Wire;
    use serde_json::json;

    use super::*;

    fn tools() -> ToolSet {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSet::new(vec![ToolSpec::new("look", "Looks.", schema)]).unwrap()
    }

    fn part() -> impl Strategy<Value = (Role, Part)> {
        let id = || (0..4_u32).prop_map(|id| CallId::new(format!("c{id}")));
        let picture = || Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
        let call = (id(), "[a-z\"\\\\<>é]{0,6}").prop_map(|(id, path)| {
            let arguments = json!({"path": path}).as_object().cloned().unwrap();
            Part::Call(Call { id, name: "look".to_owned(), arguments, dialect: None })
        });
        let result =
            (id(), "[a-z \n<]{0,9}", any::<bool>(), any::<bool>()).prop_map(move |(id, content, good, shown)| {
                let ending = if good { Ending::Done } else { Ending::Failed };
                let images = if shown { vec![picture()] } else { Vec::new() };
                Part::Result(CallResult { id, name: "look".to_owned(), ending, content, images })
            });
        let opaque = prop_oneof![
            Just(Opaque { wire: "anthropic".to_owned(), data: json!({"type": "thinking", "signature": "s"}) }),
            Just(Opaque {
                wire: "openai-responses".to_owned(),
                data: json!({"type": "reasoning", "encrypted_content": "e"})
            }),
            Just(Opaque { wire: "gemini".to_owned(), data: json!({"thoughtSignature": "g"}) }),
        ];
        prop_oneof![
            4 => "[a-z \n]{0,9}".prop_map(|text| (Role::User, Part::Text { text })),
            4 => "[a-z <]{0,9}".prop_map(|text| (Role::Assistant, Part::Text { text })),
            4 => call.prop_map(|part| (Role::Assistant, part)),
            4 => result.prop_map(|part| (Role::User, part)),
            1 => Just((Role::User, Part::Image(picture()))),
            1 => opaque.prop_map(|opaque| (Role::Assistant, Part::Thought { text: "hm".to_owned(), opaque: Some(opaque) })),
            1 => Just((Role::Assistant, Part::Thought { text: "hm".to_owned(), opaque: None })),
        ]
    }

    fn history() -> impl Strategy<Value = Vec<Message>> {
        let message = (any::<bool>(), prop::collection::vec(part(), 0..4)).prop_map(|(user, parts)| {
            let role = if user { Role::User } else { Role::Assistant };
            Message { role, parts: parts.into_iter().filter(|(own, _)| *own == role).map(|(_, part)| part).collect() }
        });
        prop::collection::vec(message, 0..24)
    }

    fn encoded(wire: Wire, request: &Request, form: &Form) -> Value {
        match &request.protocol {
            Protocol::Native => wire.encode_request(request, form),
            Protocol::Prompted(name) => wire.encode_request(&render_request(request, dialect(name).unwrap()), form),
        }
    }

    proptest! {
        // Each case is twelve tasks: all wires, native and prompted.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_stands_is_what_would_be_written(
            messages in history(),
            steps in prop::collection::vec(0_usize..5, 1..12),
            changed in prop::option::of(0_usize..24),
            (system, cached) in (any::<bool>(), any::<bool>()),
        ) {
            let form = Form { streamed: true, cached, thought_field: Some("reasoning_content".to_owned()), ..Form::default() };
            for (wire, protocol) in Wire::ALL.into_iter().flat_map(|wire| [(wire, None), (wire, Some("invoke"))]) {
                let protocol = protocol.map_or(Protocol::Native, |name: &str| Protocol::Prompted(name.to_owned()));
                let system = if system { "Be brief." } else { "" }.to_owned();
                let basis = Request { model: "gemini-3-pro".to_owned(), system, protocol, tools: tools(), ..Request::default() };
                let (written, mut count, mut all) = (Written::default(), 0, messages.clone());
                for (turn, step) in steps.iter().enumerate() {
                    count = (count + step).min(all.len());
                    if let (Some(at), 6) = (changed, turn) && let Some(message) = all.get_mut(at) {
                        message.parts.push(Part::Text { text: "changed".to_owned() });
                    }
                    let request = Request { messages: all.iter().take(count).cloned().collect(), ..basis.clone() };
                    let encode = |request: &Request, form: &Form| Ok(encoded(wire, request, form));
                    let manner = Manner { key: wire.history(), form: &form, encode: &encode };
                    let body = written.body_keeping(2, &request, &manner).unwrap();
                    let expected = bytes(&encoded(wire, &request, &form));
                    prop_assert_eq!(String::from_utf8(body).unwrap(), String::from_utf8(expected).unwrap(), "{}", wire);
                }
            }
        }
    }

    #[test]
    fn the_oldest_are_written_once() {
        let turn = |at: usize| {
            [Message::user(format!("u{at}")), Message { role: Role::Assistant, parts: vec![Part::text("a")] }]
        };
        let (written, counted, tools) = (Written::default(), std::cell::Cell::new(0), tools());
        for turns in 1..200 {
            let messages = (0..turns).flat_map(turn).collect();
            let request = Request { messages, tools: tools.clone(), ..Request::default() };
            let encode = |request: &Request, form: &Form| {
                counted.set(counted.get() + request.messages.len());
                Ok(Wire::OpenAiChat.encode_request(request, form))
            };
            let manner = Manner { key: "messages", form: &Form::default(), encode: &encode };
            written.body(&request, &manner).unwrap();
        }
        // 400 once, and of each of the 200 requests some of the newest; all of all would be 40,000.
        assert!(counted.get() < 12_000, "{}", counted.get());
    }
}
