//! Decodes Responses bodies and streams into events.
//!
//! # Supported
//! All event kinds with text, reasoning, calls, usage or an end, and whole responses. Client calls
//! are items of type `function_call`, and `custom_tool_call` with its text as the one argument
//! `input`; the call's id is `call_id`. Reasoning that must go back, and items of every other type
//! (server tools, compaction), are kept whole as `Opaque` when they are done. A message's `phase`
//! becomes an `Opaque` before its text.
//!
//! # Unsupported
//! Annotations and log probabilities are details for a client of the same wire. Partial images and
//! audio are skipped and counted.
//!
//! # How an event finds its item
//! Copilot gives every event of one item a different id, and other servers repeat an output index.
//! In this order: the latest item with this index and this id; the latest with this index; the
//! latest with this id; for an event without an index, the open item if there is only one. An item
//! that is added or done again is a repetition if type, index and `call_id` agree and it is open or
//! has the same id. A delta for an unknown item begins one.
//!
//! # Repetitions
//! The `…done` events, done items and the final response repeat earlier content; they count only
//! where it is missing. Arguments that a done event continues are added; arguments that contradict
//! the deltas damage the call, unless the deltas were complete.
//!
//! A call ends when its item is done and not incomplete, or when the response is over and its
//! arguments were done.

use sabir_call::{Event, EventSink, Fault, FaultKind, OpaqueState, Span, StopReason};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::NAME;
use super::argument_progress::{ArgumentProgress, TextProgress};
use super::event_types::{
    EventEnvelope, FinalResponse, ITEM_START, OutputItem, TEXT_DETAILS, TextKind, must_be_resent,
};
use crate::lenient::LenientObject;
use crate::native_call::NativeCall;
use crate::native_tools::joined_tool_name;
use crate::openai_chat::decode_response::argument_text;
use crate::provider_error::ProviderError;
use crate::response_decoder::{
    OpaqueBudget, ResponseState, WireDecoder, emit_limit_fault, emit_text, is_detail_data,
    note_unreadable,
};

/// The most items of one response; further ones are dropped with a fault.
const MAX_ITEMS: usize = 1024;

/// The most parts of one item whose text is tracked to recognize repetitions.
const MAX_PARTS: usize = 256;

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct OpenAiResponsesDecoder {
    /// The calls, the stop reason and the status of the response so far.
    state: ResponseState,
    /// All items so far, in the order of their first events.
    items: Vec<KnownItem>,
    /// The size limit of kept items.
    opaque_budget: OpaqueBudget,
    /// True once the excess of items was reported.
    full: bool,
    /// True once a refusal was read, which outweighs the status.
    refused: bool,
}

/// An item of the output.
#[derive(Debug)]
struct KnownItem {
    /// The `output_index`, if there was one.
    label: Option<u64>,
    /// The item's own id, which is not the id of its call; may be empty.
    id: String,
    /// The kind, and for a call its progress.
    kind: ItemKind,
    /// The parts whose text has arrived, with a fingerprint of each.
    text_parts: Vec<((TextKind, u64), TextProgress)>,
    /// True once its end was seen. Later events about it change nothing.
    done: bool,
}

/// The kind of an item.
#[derive(Debug)]
enum ItemKind {
    /// Text or a refusal.
    Message,
    /// Thoughts, perhaps with encrypted content.
    Reasoning,
    /// A call for the client.
    Call(ArgumentProgress),
    /// Any other item, which is emitted whole when it is done.
    Opaque,
}

/// Collects the annotations and log probabilities of a message; `None` if it has neither. A client gets
/// the text in one part, so positions in later parts are shifted.
fn text_details(raw: &str) -> Option<Value> {
    let item: Value = serde_json::from_str(raw).ok()?;
    let mut annotations = Vec::new();
    let mut logprobs = Vec::new();
    let mut offset = 0;
    for part in item.get("content")?.as_array()? {
        let list = |key: &str| {
            part.get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        for annotation in list("annotations") {
            let mut annotation = annotation.clone();
            for key in ["start_index", "end_index"] {
                if let Some(place) = annotation.get_mut(key)
                    && let Some(index) = place.as_u64()
                {
                    *place = json!(index.saturating_add(offset));
                }
            }
            annotations.push(annotation);
        }
        logprobs.extend(list("logprobs").cloned());
        let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
        offset += text.chars().count() as u64;
    }
    let has_details = !annotations.is_empty() || !logprobs.is_empty();
    has_details
        .then(|| json!({"type": TEXT_DETAILS, "annotations": annotations, "logprobs": logprobs}))
}

impl WireDecoder for OpenAiResponsesDecoder {
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink) {
        let trimmed = data.trim_ascii();
        if trimmed.is_empty() {
            return;
        }
        if trimmed == "[DONE]" {
            // After a final response this says nothing new; without one, it is the end.
            if !self.state.status.ended {
                self.end_response(&FinalResponse::default(), "completed", out);
            }
            return;
        }
        let event: EventEnvelope<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(error) => {
                return note_unreadable(
                    self,
                    &format!("an event of the stream cannot be read: {error}"),
                    out,
                );
            }
        };
        self.state.status.events += 1;
        match if event.kind.as_str().is_empty() {
            name
        } else {
            event.kind.as_str()
        } {
            "" => self.decode_whole_response(data, out),
            "error" => self.note_error(ProviderError::from_body(data.as_bytes()), out),
            // After the final response only errors count.
            _ if self.state.status.ended => self.state.status.skipped += 1,
            kind => self.dispatch_event(kind, &event, out),
        }
    }

    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }
}

impl OpenAiResponsesDecoder {
    /// Decodes an event by its type.
    fn dispatch_event(&mut self, kind: &str, event: &EventEnvelope<'_>, out: &mut dyn EventSink) {
        match kind {
            "response.output_item.added" | "response.output_item.done" => {
                self.decode_item_event(kind, event, out)
            }
            "response.output_text.delta" => self.decode_text_delta(TextKind::Text, event, out),
            "response.refusal.delta" => self.decode_text_delta(TextKind::Refusal, event, out),
            "response.reasoning_summary_text.delta" => {
                self.decode_text_delta(TextKind::Summary, event, out)
            }
            "response.reasoning_text.delta" => {
                self.decode_text_delta(TextKind::Reasoning, event, out)
            }
            "response.output_text.done" => {
                self.decode_repeated_text(TextKind::Text, event, event.text.as_str(), out)
            }
            "response.reasoning_summary_text.done" => {
                self.decode_repeated_text(TextKind::Summary, event, event.text.as_str(), out)
            }
            "response.reasoning_text.done" => {
                self.decode_repeated_text(TextKind::Reasoning, event, event.text.as_str(), out)
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                if let Some((kind, words)) =
                    event.part.0.as_ref().and_then(|part| part.kind_and_text())
                {
                    self.decode_repeated_text(kind, event, words, out);
                }
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                self.decode_arguments("function_call", kind.ends_with("done"), event, out);
            }
            "response.custom_tool_call_input.delta" | "response.custom_tool_call_input.done" => {
                self.decode_arguments("custom_tool_call", kind.ends_with("done"), event, out);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let response = event
                    .response
                    .and_then(|raw| serde_json::from_str::<LenientObject<_>>(raw.get()).ok());
                let response = response.and_then(|response| response.0).unwrap_or_default();
                self.end_response(&response, kind.trim_start_matches("response."), out);
            }
            // These announce something, or repeat what other events bring.
            "response.created"
            | "response.in_progress"
            | "response.queued"
            | "response.content_part.added"
            | "response.reasoning_summary_part.added"
            | "response.refusal.done" => {}
            _ => self.state.status.skipped += 1,
        }
    }

    /// Decodes a body that is not streamed, or an error in place of it.
    fn decode_whole_response(&mut self, data: &str, out: &mut dyn EventSink) {
        match serde_json::from_str::<LenientObject<FinalResponse<'_>>>(data)
            .ok()
            .and_then(|response| response.0)
        {
            Some(response) if response.object.as_str() == "response" => {
                self.end_response(&response, "completed", out)
            }
            _ => match ProviderError::from_body(data.as_bytes()) {
                Some(error) => self.note_error(Some(error), out),
                None => self.state.status.skipped += 1,
            },
        }
    }

    /// Notes an error. An `error` event and the failed response after it report the same one.
    fn note_error(&mut self, error: Option<ProviderError>, out: &mut dyn EventSink) {
        if self.state.status.error.is_some() {
            return self.state.calls.mark_open_calls_damaged();
        }
        self.state.note_error_event(error, out);
    }

    /// Decodes the beginning or the end of an item.
    fn decode_item_event(
        &mut self,
        kind: &str,
        event: &EventEnvelope<'_>,
        out: &mut dyn EventSink,
    ) {
        let label = event.output_index.0;
        let raw = event.item.map(RawValue::get).unwrap_or_default();
        match serde_json::from_str::<LenientObject<OutputItem<'_>>>(raw)
            .ok()
            .and_then(|item| item.0)
        {
            Some(item) if kind.ends_with("done") => self.finish_item(label, raw, &item, out),
            Some(item) => match self.find_item(label, &item) {
                Some(position) => self.update_call(position, &item, out),
                None => {
                    self.begin_item(label, &item, out);
                }
            },
            None => self.state.status.skipped += 1,
        }
    }

    /// Returns the position of a known item that is reported again; `None` if it is new.
    fn find_item(&self, label: Option<u64>, item: &OutputItem<'_>) -> Option<usize> {
        let id = item.id.as_str();
        let call_id = item.call_id.as_str();
        let same = |known: &KnownItem| match &known.kind {
            ItemKind::Call(_) => {
                let known = self.call_id(known);
                item.is_call() && (call_id.is_empty() || known.is_empty() || known == call_id)
            }
            ItemKind::Message => item.kind.as_str() == "message",
            ItemKind::Reasoning => item.kind.as_str() == "reasoning",
            ItemKind::Opaque => {
                !item.is_call() && !matches!(item.kind.as_str(), "message" | "reasoning")
            }
        };
        let named = |known: &KnownItem| !id.is_empty() && known.id == id;
        let paired = |known: &KnownItem| !call_id.is_empty() && self.call_id(known) == call_id;
        let open = |known: &KnownItem| {
            !known.done && (label.is_some() || id.is_empty() || known.id.is_empty())
        };
        self.items.iter().rposition(|known| {
            // A missing index fits every item.
            let fits = label.is_none() || known.label.is_none() || known.label == label;
            fits && same(known) && (named(known) || paired(known) || open(known))
        })
    }

    /// Returns the call id of an item; empty if it is not a call.
    fn call_id(&self, known: &KnownItem) -> &str {
        match &known.kind {
            ItemKind::Call(progress) => self
                .state
                .calls
                .list
                .get(progress.position)
                .map_or("", |call| call.id.as_str()),
            _ => "",
        }
    }

    /// Adds an item, and starts its call if it is one.
    fn begin_item(
        &mut self,
        label: Option<u64>,
        item: &OutputItem<'_>,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        if self.items.len() >= MAX_ITEMS {
            if !std::mem::replace(&mut self.full, true) {
                emit_limit_fault(format!("more than {MAX_ITEMS} items in one response"), out);
            }
            return None;
        }
        self.state.calls.confirm_empty_calls(out);
        let kind = match item.kind.as_str() {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            _ if item.is_call() => {
                let call = NativeCall::new(label, item.call_id.as_str());
                let position = self.state.begin_call(call, out)?;
                ItemKind::Call(ArgumentProgress::new(
                    position,
                    item.kind.as_str() == "custom_tool_call",
                ))
            }
            _ => ItemKind::Opaque,
        };
        let id = item.id.as_str();
        if self.state.keeps_details && !id.is_empty() {
            let start = json!({"type": ITEM_START, "kind": item.kind.as_str(), "id": id});
            self.emit_opaque(start, id.len(), out);
        }
        let phase = item.phase.as_str();
        if matches!(kind, ItemKind::Message) && !phase.is_empty() {
            self.emit_opaque(json!({"type": "message", "phase": phase}), phase.len(), out);
        }
        self.items.push(KnownItem {
            label,
            id: item.id.as_str().to_owned(),
            kind,
            text_parts: Vec::new(),
            done: false,
        });
        let position = self.items.len() - 1;
        self.update_call(position, item, out);
        Some(position)
    }

    /// Updates a call with the members of its item.
    fn update_call(&mut self, position: usize, item: &OutputItem<'_>, out: &mut dyn EventSink) {
        let Some(KnownItem {
            kind: ItemKind::Call(progress),
            done: false,
            ..
        }) = self.items.get_mut(position)
        else {
            return;
        };
        let Some(call) = self.state.calls.list.get_mut(progress.position) else {
            return;
        };
        if call.id.is_empty() {
            call.id.push_str(item.call_id.as_str());
        }
        call.set_name(
            &joined_tool_name(item.namespace.as_str(), item.name.as_str()),
            &mut self.state.calls.next_index,
            out,
        );
        let arguments = item
            .arguments
            .map(|raw| argument_text(raw.get()))
            .unwrap_or_default();
        progress.complete_with(
            call,
            if progress.custom {
                item.input.as_str()
            } else {
                &arguments
            },
            out,
        );
    }

    /// Ends an item, adding what its deltas did not bring.
    fn finish_item(
        &mut self,
        label: Option<u64>,
        raw: &str,
        item: &OutputItem<'_>,
        out: &mut dyn EventSink,
    ) {
        let Some(position) = self
            .find_item(label, item)
            .or_else(|| self.begin_item(label, item, out))
        else {
            return;
        };
        self.update_call(position, item, out);
        let Some(known) = self.items.get_mut(position).filter(|known| !known.done) else {
            return;
        };
        known.done = true;
        // If no delta brought text, the done item is the only source of it.
        let silent = known.text_parts.is_empty();
        match &mut known.kind {
            ItemKind::Call(progress) => {
                if let Some(call) = self
                    .state
                    .calls
                    .list
                    .get_mut(progress.position)
                    .filter(|_| !item.is_incomplete())
                {
                    progress.end_arguments(call, &mut self.state.calls.next_index, out);
                }
                return;
            }
            ItemKind::Message | ItemKind::Reasoning if silent => {
                for (index, piece) in (0..).zip(item.summary.0.iter().chain(&item.content.0)) {
                    if let Some((kind, words)) = piece.kind_and_text() {
                        self.emit_part_text(position, (kind, index), words, out);
                    }
                }
            }
            ItemKind::Message | ItemKind::Reasoning | ItemKind::Opaque => {}
        }
        if item.kind.as_str() == "message" {
            if self.state.keeps_details
                && let Some(details) = text_details(raw)
            {
                self.emit_opaque(details, raw.len(), out);
            }
        } else {
            let value = serde_json::from_str::<Value>(raw).unwrap_or_default();
            let goes_back = item.kind.as_str() != "reasoning" || must_be_resent(&value);
            if goes_back && !is_detail_data(&value) {
                self.emit_opaque(value, raw.len(), out);
            }
        }
    }

    /// Returns the position of the item that an event belongs to, beginning one if needed.
    fn find_or_begin_item(
        &mut self,
        kind: &'static str,
        event: &EventEnvelope<'_>,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        let label = event.output_index.0;
        let id = event.item_id.as_str();
        let labelled = |known: &KnownItem| label.is_some() && known.label == label;
        let named = |known: &KnownItem| !id.is_empty() && known.id == id;
        let last = |wanted: &dyn Fn(&KnownItem) -> bool| self.items.iter().rposition(wanted);
        let found = last(&|known| labelled(known) && named(known))
            .or_else(|| last(&labelled))
            .or_else(|| last(&named));
        // Some servers send neither index nor id with deltas of the only open item.
        let only = || {
            let mut open = self
                .items
                .iter()
                .enumerate()
                .filter(|(_, known)| !known.done && label.is_none());
            open.next()
                .filter(|_| open.next().is_none())
                .map(|(position, _)| position)
        };
        found
            .or_else(only)
            .or_else(|| self.begin_item(label, &OutputItem::of_kind(kind, id), out))
    }

    /// Adds a piece of text.
    fn decode_text_delta(
        &mut self,
        kind: TextKind,
        event: &EventEnvelope<'_>,
        out: &mut dyn EventSink,
    ) {
        if let Some(position) = self.find_or_begin_item(kind.item_type(), event, out) {
            self.emit_part_text(
                position,
                (kind, kind.part_index(event)),
                event.delta.as_str(),
                out,
            );
        }
    }

    /// Decodes text that repeats earlier pieces, if there were any.
    fn decode_repeated_text(
        &mut self,
        kind: TextKind,
        event: &EventEnvelope<'_>,
        words: &str,
        out: &mut dyn EventSink,
    ) {
        let Some(position) = self.find_or_begin_item(kind.item_type(), event, out) else {
            return;
        };
        let part = (kind, kind.part_index(event));
        let Some(known) = self.items.get(position).filter(|known| !known.done) else {
            return;
        };
        let progress = known.text_parts.iter().find(|(known, _)| *known == part);
        // The repetition contains pieces that were lost. If it differs from the emitted pieces, it
        // is ignored, since those cannot be taken back.
        let rest = progress.map_or(Some(words), |(_, progress)| progress.remaining_text(words));
        self.emit_part_text(position, part, rest.unwrap_or_default(), out);
    }

    /// Emits text of a part and updates its fingerprint.
    fn emit_part_text(
        &mut self,
        position: usize,
        part: (TextKind, u64),
        words: &str,
        out: &mut dyn EventSink,
    ) {
        let Some(known) = self.items.get_mut(position).filter(|_| !words.is_empty()) else {
            return;
        };
        let thought = part.0.is_thought();
        let said = known
            .text_parts
            .iter()
            .rposition(|(known, _)| *known == part);
        if said.is_none() {
            // Reasoning parts are separate paragraphs of one thought.
            if thought && !known.text_parts.is_empty() {
                out.push_event(Event::Thought { text: "\n\n" });
            }
            if known.text_parts.len() < MAX_PARTS {
                known.text_parts.push((part, TextProgress::default()));
            }
        }
        let position = said.unwrap_or(known.text_parts.len().saturating_sub(1));
        if let Some((_, progress)) = known
            .text_parts
            .get_mut(position)
            .filter(|(known, _)| *known == part)
        {
            progress.push_text(words);
        }
        self.refused |= part.0 == TextKind::Refusal;
        emit_text(thought, words, out);
    }

    /// Adds a piece of arguments, or all of them.
    fn decode_arguments(
        &mut self,
        kind: &'static str,
        done: bool,
        event: &EventEnvelope<'_>,
        out: &mut dyn EventSink,
    ) {
        let known = self
            .find_or_begin_item(kind, event, out)
            .and_then(|position| self.items.get_mut(position));
        let Some(KnownItem {
            kind: ItemKind::Call(progress),
            done: false,
            ..
        }) = known
        else {
            self.state.status.skipped += 1;
            return;
        };
        let Some(call) = self.state.calls.list.get_mut(progress.position) else {
            return;
        };
        if done {
            let arguments = event
                .arguments
                .map(|raw| argument_text(raw.get()))
                .unwrap_or_default();
            progress.complete_with(
                call,
                if progress.custom {
                    event.input.as_str()
                } else {
                    &arguments
                },
                out,
            );
            progress.complete = true;
        } else if progress.complete || call.is_whole() {
            self.state.status.skipped += 1;
        } else {
            progress.push_arguments(call, event.delta.as_str(), out);
        }
    }

    /// Ends the response: emits the text that was missing so far, its usage and its stop reason.
    fn end_response(&mut self, response: &FinalResponse<'_>, kind: &str, out: &mut dyn EventSink) {
        let details = response
            .incomplete_details
            .0
            .as_ref()
            .map(|details| details.reason.as_str());
        let reason = details.filter(|reason| !reason.is_empty());
        let status = if response.status.as_str().is_empty() {
            kind
        } else {
            response.status.as_str()
        };
        // Either of the two says that the end of the output is missing.
        let short = reason.is_some() || status == "incomplete";
        self.decode_output_items(
            response.output.map(RawValue::get).unwrap_or_default(),
            short,
            out,
        );
        let usage = response
            .usage
            .0
            .as_ref()
            .map(super::event_types::TokenCounts::to_usage)
            .unwrap_or_default();
        if usage != sabir_call::Usage::default() {
            out.push_event(Event::Usage(usage));
        }
        self.state.status.ended = true;
        let error = response
            .error
            .map(RawValue::get)
            .filter(|error| *error != "null");
        if status == "failed" || error.is_some() {
            let value: Value = error
                .and_then(|error| serde_json::from_str(error).ok())
                .unwrap_or_default();
            return self.note_error(ProviderError::from_value(&json!({"error": value})), out);
        }
        let word = reason.unwrap_or(status);
        let reason = match word {
            _ if self.refused => StopReason::Refused,
            "completed" if self.state.calls.list.is_empty() => StopReason::End,
            "completed" => StopReason::Calls,
            _ => super::stop_reason(word),
        };
        self.apply_stop(reason, word, out);
    }

    /// Ends all open items and emits the stop reason.
    fn apply_stop(&mut self, reason: StopReason, word: &str, out: &mut dyn EventSink) {
        for known in self.items.iter_mut().filter(|known| !known.done) {
            let ItemKind::Call(progress) = &mut known.kind else {
                continue;
            };
            let Some(call) = self.state.calls.list.get_mut(progress.position) else {
                continue;
            };
            if progress.complete {
                progress.end_arguments(call, &mut self.state.calls.next_index, out);
            // At the limit an open call is expected.
            } else if reason != StopReason::Length {
                let message = "the response ended while a call was open";
                out.push_event(Event::Fault(&Fault::warning(
                    FaultKind::Provider,
                    Span::default(),
                    message,
                )));
            }
            known.done = true;
        }
        self.state.calls.apply_stop_reason(reason, out);
        self.state.reason = Some(reason);
        self.state.truncate_unfinished(out);
        out.push_event(Event::Stop { reason, raw: word });
    }

    /// Decodes the items of a final response: all of them if there were no item events, else only
    /// open calls.
    fn decode_output_items(&mut self, raw: &str, short: bool, out: &mut dyn EventSink) {
        let items = serde_json::from_str::<Vec<&RawValue>>(raw).unwrap_or_default();
        let whole = self.items.is_empty();
        let last = items.len();
        for (label, raw) in (1_u64..).zip(items) {
            let item = serde_json::from_str::<LenientObject<OutputItem<'_>>>(raw.get())
                .ok()
                .and_then(|item| item.0);
            let Some(item) = item else { continue };
            // The positions in the final response are output indexes only if no items were
            // streamed.
            let label = whole.then_some(label);
            // At the output limit, the last call may lack its end unless it says that it is
            // complete.
            let vague = item.is_call()
                && short
                && item.status.as_str() != "completed"
                && label == Some(last as u64);
            let open =
                |known: &KnownItem| !known.done && self.call_id(known) == item.call_id.as_str();
            if vague {
                self.begin_item(label, &item, out);
            } else if whole || (item.is_call() && !short && self.items.iter().any(open)) {
                self.finish_item(label, raw.get(), &item, out);
            }
        }
    }

    /// Emits opaque state of this wire.
    fn emit_opaque(&mut self, data: Value, size: usize, out: &mut dyn EventSink) {
        if self.opaque_budget.try_reserve(size, out) {
            out.push_event(Event::Opaque(&OpaqueState {
                wire: NAME.to_owned(),
                origin: None,
                data,
            }));
        }
    }
}
