//! OpenAI Responses: response bodies to events.
//!
//! # Supported
//! All event kinds that bring words, reasoning, calls, usage or an end, and whole responses. Client calls are items of
//! type `function_call`, and `custom_tool_call` with its text as the one argument `input`; the call's id is `call_id`.
//! Reasoning that must go back, and items of every other type (server tools, compaction), are kept whole as `Opaque` when
//! they are done. A message's `phase` is an `Opaque` before its words.
//!
//! # Unsupported
//! Annotations, log probabilities, partial images and audio are skipped and counted.
//!
//! # Which item an event belongs to
//! Copilot gives every event of one item another id, and other servers repeat an output index. In this order: the latest
//! item with this index and this id; the latest with this index; the latest with this id; for an event without index, the
//! item that is open, if only one is. An item that is begun or done again is the same one told twice, if type, index and
//! `call_id` agree and it is open or has the same id. Pieces of an item that was never begun begin one.
//!
//! # Things told twice
//! What `…done` events, done items and the final response repeat counts only where nothing came before. Arguments that a
//! done event goes on with are taken; arguments that it contradicts poison the call, unless the deltas were whole.
//!
//! A call ends when its item is done and not incomplete, or when the response is over and its arguments were done.

use sabir_call::{Event, Fault, FaultKind, Opaque, Sink, Span, StopReason};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use super::shape::{Envelope, Item, Over, Way, must_go_back};
use super::told::{Heard, Told};
use crate::calls::NativeCall;
use crate::failure::ProviderError;
use crate::loose::Maybe;
use crate::native::joined;
use crate::openai_chat::stream::argument_text;
use crate::response::{Calls, Close, Kept, Reader, Status, cut_of, reported, say, too_much, unreadable};

/// The most items of one response; further ones are dropped with a fault.
const MAX_ITEMS: usize = 1024;

/// The most parts of one item of which is noted that words of them came.
const MAX_PARTS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Stream {
    status: Status,
    calls: Calls,
    items: Vec<Known>,
    kept: Kept,
    /// Whether it has been told that there are too many items.
    full: bool,
    reason: Option<StopReason>,
    refused: bool,
}

/// An item of the output.
#[derive(Debug)]
struct Known {
    label: Option<u64>,
    id: String,
    kind: Kind,
    /// Parts of which words have come, and which.
    said: Vec<((Way, u64), Heard)>,
    done: bool,
}

#[derive(Debug)]
enum Kind {
    Message,
    Reasoning,
    Call(Told),
    Kept,
}

impl Reader for Stream {
    fn message(&mut self, name: &str, data: &str, out: &mut dyn Sink) {
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() {
            return;
        }
        if trimmed == "[DONE]" {
            // Behind a final response it says nothing new; where none came, it is the end.
            if !self.status.ended {
                self.over(&Over::default(), "completed", out);
            }
            return;
        }
        let event: Envelope<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(error) => return unreadable(self, &format!("an event of the stream cannot be read: {error}"), out),
        };
        self.status.events += 1;
        match if event.kind.as_str().is_empty() { name } else { event.kind.as_str() } {
            "" => self.whole(data, out),
            "error" => self.error(ProviderError::read(data.as_bytes()), out),
            _ if self.status.ended => self.status.skipped += 1,
            kind => self.event(kind, &event, out),
        }
    }

    fn lost(&mut self) {
        self.calls.poison();
    }

    fn finish(&mut self, how: Close, out: &mut dyn Sink) {
        let ended = self.status.ended && self.status.error.is_none();
        self.calls.cut(cut_of(how, ended, self.reason), out);
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}

impl Stream {
    fn event(&mut self, kind: &str, event: &Envelope<'_>, out: &mut dyn Sink) {
        match kind {
            "response.output_item.added" | "response.output_item.done" => self.item(kind, event, out),
            "response.output_text.delta" => self.delta(Way::Text, event, out),
            "response.refusal.delta" => self.delta(Way::Refusal, event, out),
            "response.reasoning_summary_text.delta" => self.delta(Way::Summary, event, out),
            "response.reasoning_text.delta" => self.delta(Way::Reasoning, event, out),
            "response.output_text.done" => self.repeated(Way::Text, event, event.text.as_str(), out),
            "response.reasoning_summary_text.done" => self.repeated(Way::Summary, event, event.text.as_str(), out),
            "response.reasoning_text.done" => self.repeated(Way::Reasoning, event, event.text.as_str(), out),
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                if let Some((way, words)) = event.part.0.as_ref().and_then(|part| part.words()) {
                    self.repeated(way, event, words, out);
                }
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                self.arguments("function_call", kind.ends_with("done"), event, out);
            }
            "response.custom_tool_call_input.delta" | "response.custom_tool_call_input.done" => {
                self.arguments("custom_tool_call", kind.ends_with("done"), event, out);
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let response = event.response.and_then(|raw| serde_json::from_str::<Maybe<_>>(raw.get()).ok());
                let response = response.and_then(|response| response.0).unwrap_or_default();
                self.over(&response, kind.trim_start_matches("response."), out);
            }
            "response.created"
            | "response.in_progress"
            | "response.queued"
            | "response.content_part.added"
            | "response.reasoning_summary_part.added"
            | "response.refusal.done" => {}
            _ => self.status.skipped += 1,
        }
    }

    /// A body that was not streamed, or an error in place of it.
    fn whole(&mut self, data: &str, out: &mut dyn Sink) {
        match serde_json::from_str::<Maybe<Over<'_>>>(data).ok().and_then(|response| response.0) {
            Some(response) if response.object.as_str() == "response" => self.over(&response, "completed", out),
            _ => match ProviderError::read(data.as_bytes()) {
                Some(error) => self.error(Some(error), out),
                None => self.status.skipped += 1,
            },
        }
    }

    /// An error; an event of its own and the failed response behind it tell the same one.
    fn error(&mut self, error: Option<ProviderError>, out: &mut dyn Sink) {
        if self.status.error.is_some() {
            return self.calls.poison();
        }
        reported(error, &mut self.status, &mut self.calls, out);
    }

    fn item(&mut self, kind: &str, event: &Envelope<'_>, out: &mut dyn Sink) {
        let label = event.output_index.0;
        let raw = event.item.map(RawValue::get).unwrap_or_default();
        match serde_json::from_str::<Maybe<Item<'_>>>(raw).ok().and_then(|item| item.0) {
            Some(item) if kind.ends_with("done") => self.done(label, raw, &item, out),
            Some(item) => match self.position(label, &item) {
                Some(position) => self.call(position, &item, out),
                None => {
                    self.begin(label, &item, out);
                }
            },
            None => self.status.skipped += 1,
        }
    }

    /// The item that is told of once more; `None`: it is new.
    fn position(&self, label: Option<u64>, item: &Item<'_>) -> Option<usize> {
        let (id, call_id) = (item.id.as_str(), item.call_id.as_str());
        let same = |known: &Known| match &known.kind {
            Kind::Call(_) => {
                let known = self.call_id(known);
                item.is_call() && (call_id.is_empty() || known.is_empty() || known == call_id)
            }
            Kind::Message => item.kind.as_str() == "message",
            Kind::Reasoning => item.kind.as_str() == "reasoning",
            Kind::Kept => !item.is_call() && !matches!(item.kind.as_str(), "message" | "reasoning"),
        };
        let named = |known: &Known| !id.is_empty() && known.id == id;
        let paired = |known: &Known| !call_id.is_empty() && self.call_id(known) == call_id;
        let open = |known: &Known| !known.done && (label.is_some() || id.is_empty() || known.id.is_empty());
        self.items.iter().rposition(|known| {
            let fits = label.is_none() || known.label.is_none() || known.label == label;
            fits && same(known) && (named(known) || paired(known) || open(known))
        })
    }

    fn call_id(&self, known: &Known) -> &str {
        match &known.kind {
            Kind::Call(told) => self.calls.list.get(told.position).map_or("", |call| call.id.as_str()),
            _ => "",
        }
    }

    fn begin(&mut self, label: Option<u64>, item: &Item<'_>, out: &mut dyn Sink) -> Option<usize> {
        if self.items.len() >= MAX_ITEMS {
            if !std::mem::replace(&mut self.full, true) {
                too_much(format!("more than {MAX_ITEMS} items in one response"), out);
            }
            return None;
        }
        self.calls.went_on(out);
        let kind = match item.kind.as_str() {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            _ if item.is_call() => {
                let call = NativeCall::new(label, item.call_id.as_str());
                let position = self.calls.begin(call, &self.status, out)?;
                Kind::Call(Told::new(position, item.kind.as_str() == "custom_tool_call"))
            }
            _ => Kind::Kept,
        };
        let phase = item.phase.as_str();
        if matches!(kind, Kind::Message) && !phase.is_empty() {
            self.keep(json!({"type": "message", "phase": phase}), phase.len(), out);
        }
        self.items.push(Known { label, id: item.id.as_str().to_owned(), kind, said: Vec::new(), done: false });
        let position = self.items.len() - 1;
        self.call(position, item, out);
        Some(position)
    }

    /// Takes over what an item says of its call.
    fn call(&mut self, position: usize, item: &Item<'_>, out: &mut dyn Sink) {
        let Some(Known { kind: Kind::Call(told), done: false, .. }) = self.items.get_mut(position) else { return };
        let Some(call) = self.calls.list.get_mut(told.position) else { return };
        if call.id.is_empty() {
            call.id.push_str(item.call_id.as_str());
        }
        call.set_name(&joined(item.namespace.as_str(), item.name.as_str()), &mut self.calls.next, out);
        let arguments = item.arguments.map(|raw| argument_text(raw.get())).unwrap_or_default();
        told.all(call, if told.custom { item.input.as_str() } else { &arguments }, out);
    }

    fn done(&mut self, label: Option<u64>, raw: &str, item: &Item<'_>, out: &mut dyn Sink) {
        let Some(position) = self.position(label, item).or_else(|| self.begin(label, item, out)) else { return };
        self.call(position, item, out);
        let Some(known) = self.items.get_mut(position).filter(|known| !known.done) else { return };
        known.done = true;
        let silent = known.said.is_empty();
        match &mut known.kind {
            Kind::Call(told) => {
                if let Some(call) = self.calls.list.get_mut(told.position).filter(|_| !item.is_incomplete()) {
                    told.end(call, &mut self.calls.next, out);
                }
                return;
            }
            Kind::Message | Kind::Reasoning if silent => {
                for (index, piece) in (0..).zip(item.summary.0.iter().chain(&item.content.0)) {
                    if let Some((way, words)) = piece.words() {
                        self.say(position, (way, index), words, out);
                    }
                }
            }
            Kind::Message | Kind::Reasoning | Kind::Kept => {}
        }
        if item.kind.as_str() != "message" {
            let value = serde_json::from_str::<Value>(raw).unwrap_or_default();
            if item.kind.as_str() != "reasoning" || must_go_back(&value) {
                self.keep(value, raw.len(), out);
            }
        }
    }

    /// The item that an event brings a piece of; if it was never begun, it begins here.
    fn find(&mut self, kind: &'static str, event: &Envelope<'_>, out: &mut dyn Sink) -> Option<usize> {
        let (label, id) = (event.output_index.0, event.item_id.as_str());
        let labelled = |known: &Known| label.is_some() && known.label == label;
        let named = |known: &Known| !id.is_empty() && known.id == id;
        let last = |wanted: &dyn Fn(&Known) -> bool| self.items.iter().rposition(wanted);
        let found = last(&|known| labelled(known) && named(known)).or_else(|| last(&labelled)).or_else(|| last(&named));
        let only = || {
            let mut open = self.items.iter().enumerate().filter(|(_, known)| !known.done && label.is_none());
            open.next().filter(|_| open.next().is_none()).map(|(position, _)| position)
        };
        found.or_else(only).or_else(|| self.begin(label, &Item::of_kind(kind, id), out))
    }

    fn delta(&mut self, way: Way, event: &Envelope<'_>, out: &mut dyn Sink) {
        if let Some(position) = self.find(way.item(), event, out) {
            self.say(position, (way, way.index(event)), event.delta.as_str(), out);
        }
    }

    /// Words that were told in pieces before, if they were.
    fn repeated(&mut self, way: Way, event: &Envelope<'_>, words: &str, out: &mut dyn Sink) {
        let Some(position) = self.find(way.item(), event, out) else { return };
        let part = (way, way.index(event));
        let Some(known) = self.items.get(position).filter(|known| !known.done) else { return };
        let heard = known.said.iter().find(|(known, _)| *known == part);
        // What was lost on the way is told once more here; what is told differently has been said.
        let rest = heard.map_or(Some(words), |(_, heard)| heard.rest(words));
        self.say(position, part, rest.unwrap_or_default(), out);
    }

    fn say(&mut self, position: usize, part: (Way, u64), words: &str, out: &mut dyn Sink) {
        let Some(known) = self.items.get_mut(position).filter(|_| !words.is_empty()) else { return };
        let thought = part.0.is_thought();
        let said = known.said.iter().rposition(|(known, _)| *known == part);
        if said.is_none() {
            if thought && !known.said.is_empty() {
                out.event(Event::Thought { text: "\n\n" });
            }
            if known.said.len() < MAX_PARTS {
                known.said.push((part, Heard::default()));
            }
        }
        let position = said.unwrap_or(known.said.len().saturating_sub(1));
        if let Some((_, heard)) = known.said.get_mut(position).filter(|(known, _)| *known == part) {
            heard.push(words);
        }
        self.refused |= part.0 == Way::Refusal;
        say(thought, words, out);
    }

    fn arguments(&mut self, kind: &'static str, done: bool, event: &Envelope<'_>, out: &mut dyn Sink) {
        let known = self.find(kind, event, out).and_then(|position| self.items.get_mut(position));
        let Some(Known { kind: Kind::Call(told), done: false, .. }) = known else {
            self.status.skipped += 1;
            return;
        };
        let Some(call) = self.calls.list.get_mut(told.position) else { return };
        if done {
            let arguments = event.arguments.map(|raw| argument_text(raw.get())).unwrap_or_default();
            told.all(call, if told.custom { event.input.as_str() } else { &arguments }, out);
            told.complete = true;
        } else if told.complete || call.is_whole() {
            self.status.skipped += 1;
        } else {
            told.push(call, event.delta.as_str(), out);
        }
    }

    /// The response is over: what it holds that was not told before, its usage and its reason.
    fn over(&mut self, response: &Over<'_>, kind: &str, out: &mut dyn Sink) {
        let details = response.incomplete_details.0.as_ref().map(|details| details.reason.as_str());
        let reason = details.filter(|reason| !reason.is_empty());
        let status = if response.status.as_str().is_empty() { kind } else { response.status.as_str() };
        let short = reason.is_some() || status == "incomplete";
        self.output(response.output.map(RawValue::get).unwrap_or_default(), short, out);
        let usage = response.usage.0.as_ref().map(super::shape::Tokens::usage).unwrap_or_default();
        if usage != sabir_call::Usage::default() {
            out.event(Event::Usage(usage));
        }
        self.status.ended = true;
        let error = response.error.map(RawValue::get).filter(|error| *error != "null");
        if status == "failed" || error.is_some() {
            let value: Value = error.and_then(|error| serde_json::from_str(error).ok()).unwrap_or_default();
            return self.error(ProviderError::from_value(&json!({"error": value})), out);
        }
        let word = reason.unwrap_or(status);
        let reason = match word {
            _ if self.refused => StopReason::Refused,
            "completed" if self.calls.list.is_empty() => StopReason::End,
            "completed" => StopReason::Calls,
            _ => super::stop_reason(word),
        };
        self.stop(reason, word, out);
    }

    fn stop(&mut self, reason: StopReason, word: &str, out: &mut dyn Sink) {
        for known in self.items.iter_mut().filter(|known| !known.done) {
            let Kind::Call(told) = &mut known.kind else { continue };
            let Some(call) = self.calls.list.get_mut(told.position) else { continue };
            if told.complete {
                told.end(call, &mut self.calls.next, out);
            } else if reason != StopReason::Length {
                let message = "the response ended while a call was open";
                out.event(Event::Fault(&Fault::warning(FaultKind::Provider, Span::default(), message)));
            }
            known.done = true;
        }
        self.calls.stopped(reason, out);
        self.calls.cut(cut_of(Close::Clean, true, Some(reason)), out);
        self.reason = Some(reason);
        out.event(Event::Stop { reason, raw: word });
    }

    /// Reads the items of a final response: all of them if no event told of any, else only calls that are open.
    fn output(&mut self, raw: &str, short: bool, out: &mut dyn Sink) {
        let items = serde_json::from_str::<Vec<&RawValue>>(raw).unwrap_or_default();
        let (whole, last) = (self.items.is_empty(), items.len());
        for (label, raw) in (1_u64..).zip(items) {
            let item = serde_json::from_str::<Maybe<Item<'_>>>(raw.get()).ok().and_then(|item| item.0);
            let Some(item) = item else { continue };
            let label = whole.then_some(label);
            // At the limit, a call that does not say that it is complete may lack its end.
            let vague = item.is_call() && short && item.status.as_str() != "completed" && label == Some(last as u64);
            let open = |known: &Known| !known.done && self.call_id(known) == item.call_id.as_str();
            if vague {
                self.begin(label, &item, out);
            } else if whole || (item.is_call() && !short && self.items.iter().any(open)) {
                self.done(label, raw.get(), &item, out);
            }
        }
    }

    fn keep(&mut self, data: Value, size: usize, out: &mut dyn Sink) {
        if self.kept.has_room(size, out) {
            out.event(Event::Opaque(&Opaque { wire: NAME.to_owned(), data }));
        }
    }
}
