//! Decodes response bodies of any wire, streamed or whole, into events.
//!
//! # Supported
//! Server-sent events; binary event streams; one JSON object; several JSON objects in a row or in a
//! list, each decoded like an event of the stream as soon as it is complete. The first byte that is
//! not white space tells which of them a body is.
//!
//! # Unsupported
//! Other binary framings. A body that begins with `<` is called foreign: it is a proxy's page and
//! no response.

use std::borrow::Cow;
use std::sync::Arc;

use sabir_call::{
    Event, EventSink, Fault, FaultKind, ModelErrorKind, OpaqueState, Span, StopReason, Truncation,
};

use crate::frames::{EventFrame, FrameDecoder, FrameEvent};
use crate::json_splitter::{SplitValue, ValueSplitter};
use crate::native_call::{MAX_CALLS, NativeCall};
use crate::provider_error::ProviderError;
use crate::sse::{MAX_EVENT, SseDecoder, SseEvent};
use crate::surrogates::replace_lone_surrogates;
use crate::wire::Wire;

/// The most bytes of a body's beginning that a [`DecodeReport`] keeps, enough to recognize a
/// proxy's error page.
const MAX_OPENING: usize = 256;

/// The way in which the body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The transport says that the body is complete.
    ///
    /// For a body of known length or in chunks, that is the length or the last chunk.
    Clean,
    /// The connection broke, or an idle limit was reached.
    Broken,
    /// The user cancelled.
    Cancelled,
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// At most white space.
    #[default]
    Empty,
    /// Server-sent events.
    Stream,
    /// Binary frames.
    Frames,
    /// JSON values.
    Whole,
    /// Markup, which is none of the others.
    Foreign,
}

/// A decoder's report on a body as a whole.
///
/// A report says nothing about calls: those that may lack a piece were truncated by events before
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeReport {
    /// The kind of the body.
    pub form: BodyForm,
    /// True if the provider ended the response itself (a terminal event or a finish reason was
    /// seen).
    ///
    /// `false` need not be an error: some servers send neither a finish reason nor an end marker.
    pub ended: bool,
    /// The error that the provider reported, or the finding that the body is not a response at all.
    pub error: Option<ProviderError>,
    /// The number of events that were read.
    pub events: u64,
    /// The number of events and deltas of unknown kinds; any number of them is normal.
    ///
    /// Providers add event types without notice, so this is not an error and no fault.
    pub skipped: u64,
    /// The number of events that could not be read; each was also reported as a fault.
    pub unreadable: u64,
    /// The reason why the first of these could not be read; empty if there are none.
    pub unreadable_cause: String,
    /// The first bytes of the body, at most 256, for messages about foreign ones.
    pub opening: String,
}

/// Decodes one response body into events. Push bytes as they arrive, then call
/// [`finish`](Self::finish).
///
/// Memory is bounded by a small multiple of [`MAX_EVENT`]. The split of the
/// bytes never changes the events once adjacent deltas are merged.
pub struct ResponseDecoder {
    /// The reader of the wire's events.
    reader: EventReader,
    /// The kind of body, known from its first byte that is not white space.
    form: BodyForm,
    /// The decoder of server-sent events; used for `BodyForm::Stream` only.
    sse: SseDecoder,
    /// The decoder of binary frames; used for `BodyForm::Frames` only.
    frames: FrameDecoder,
    /// The splitter of JSON values; used for `BodyForm::Whole` only.
    values: ValueSplitter,
    /// The first bytes of the body, for the report.
    opening: Vec<u8>,
}

/// A function that removes secrets from the bytes of an event; it returns `None` if there are none.
pub type EventRedaction = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Hands events to the decoder of their wire, without secrets and lone surrogates.
struct EventReader {
    /// The decoder of the wire's events.
    decoder: Box<dyn WireDecoder>,
    /// Removes secrets from each event.
    redaction: Option<EventRedaction>,
    /// True once a lone surrogate was reported.
    has_reported: bool,
}

/// The decoder that every wire implements.
///
/// A decoder never fails. It reports what it cannot read as faults, and keeps no text that it has
/// emitted.
pub(crate) trait WireDecoder: Send {
    /// Decodes the data of one event, or one JSON value of a whole body. The name is empty if the
    /// event has none.
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink);
    /// Returns the state that all wires share.
    fn state(&self) -> &ResponseState;
    /// Returns the state that all wires share, for changes.
    fn state_mut(&mut self) -> &mut ResponseState;
}

/// The facts about a response as a whole that every wire's decoder collects.
#[derive(Debug, Default)]
pub(crate) struct DecodeStatus {
    /// True once the provider ended the response itself.
    pub(crate) ended: bool,
    /// The first error that the provider reported.
    pub(crate) error: Option<ProviderError>,
    /// The events so far, with those that were skipped or unreadable.
    pub(crate) events: u64,
    /// The events and deltas of unknown kinds.
    pub(crate) skipped: u64,
    /// The events that could not be read.
    pub(crate) unreadable: u64,
    /// The reason why the first of these could not be read.
    pub(crate) unreadable_cause: String,
}

/// The state of a response that every wire's decoder needs.
#[derive(Debug, Default)]
pub(crate) struct ResponseState {
    /// The facts for the report.
    pub(crate) status: DecodeStatus,
    /// All calls so far.
    pub(crate) calls: ResponseCalls,
    /// The stop reason, once it is known.
    pub(crate) reason: Option<StopReason>,
    /// The number of choices that were requested. If there are several, each becomes state for a
    /// decoder of its own.
    pub(crate) choices: u32,
    /// The end of the prompt that each of the choices continues.
    pub(crate) prefill: String,
    /// True if a last call of a choice without its closing markup is accepted.
    pub(crate) closes_last_call: bool,
    /// True if each choice that has begun has finished: a provider may send fewer than were requested.
    pub(crate) has_finished_choices: bool,
    /// True if details that only clients of the same wire understand are emitted as opaque state.
    pub(crate) keeps_details: bool,
}

/// The prefix of the types of state that only tells an encoder of the same wire more about an answer.
pub(crate) const DETAIL_PREFIX: &str = OpaqueState::DETAIL_PREFIX;

/// Returns true for state that only an encoder of the same wire understands, and that must not be
/// sent back to a provider ([`ResponseDecoder::with_details`]).
pub fn is_answer_detail(state: &OpaqueState) -> bool {
    state.is_answer_detail()
}

/// Returns true for data of a type that only this crate creates. It is not accepted from a provider: an encoder would write it into the
/// answer unchecked.
pub(crate) fn is_detail_data(data: &serde_json::Value) -> bool {
    OpaqueState::is_detail_data(data)
}

impl std::fmt::Debug for ResponseDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseDecoder")
            .field("form", &self.form)
            .field("status", &self.reader.decoder.state().status)
            .finish_non_exhaustive()
    }
}

impl ResponseDecoder {
    /// Creates a decoder for one body of a wire.
    pub fn new(wire: Wire) -> Self {
        Self {
            reader: EventReader {
                decoder: wire.new_decoder(),
                redaction: None,
                has_reported: false,
            },
            form: BodyForm::Empty,
            sse: SseDecoder::new(),
            frames: FrameDecoder::new(),
            values: ValueSplitter::default(),
            opening: Vec::new(),
        }
    }

    /// Also emits details that only clients of the same wire understand. They are opaque state for
    /// an encoder of that wire, and must not be sent back to a provider.
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.reader.decoder.state_mut().keeps_details = true;
        self
    }

    /// Splits an answer with several choices: each piece of a choice becomes state
    /// ([`ChoiceChunk`](crate::ChoiceChunk)), for a decoder of that choice. Usage and errors, which
    /// belong to all of them, are decoded as usual. A count below 2 changes nothing.
    #[must_use]
    pub fn with_choices(mut self, count: u32, prefill: &str, closes_last_call: bool) -> Self {
        let state = self.reader.decoder.state_mut();
        state.choices = count;
        prefill.clone_into(&mut state.prefill);
        state.closes_last_call = closes_last_call;
        self
    }

    /// Removes secrets from the data of each event before it is decoded.
    #[must_use]
    pub fn with_redaction(mut self, redaction: EventRedaction) -> Self {
        self.reader.redaction = Some(redaction);
        self
    }

    /// Decodes the next bytes.
    ///
    /// The bytes may be cut anywhere, inside a character as well. Only an unfinished event, and the
    /// first bytes for the report, are kept.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn EventSink) {
        let mut bytes = bytes;
        if self.form == BodyForm::Empty {
            // White space and a byte order mark may precede any kind of body. The mark may be
            // split, so its bytes are skipped one by one.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let skip = bytes.iter().take_while(|byte| blank(byte)).count();
            bytes = bytes.get(skip..).unwrap_or_default();
            self.form = match bytes.first() {
                None => return,
                // A frame starts with its length in four bytes. Any other first byte than 0 would
                // mean more than 16 MiB, above the limit.
                Some(0) => BodyForm::Frames,
                Some(b'{' | b'[') => BodyForm::Whole,
                // An HTML page of a proxy, which may come with status 200.
                Some(b'<') => BodyForm::Foreign,
                Some(_) => BodyForm::Stream,
            };
        }
        // Kept for messages only; the decoder does not read it.
        let room = MAX_OPENING - self.opening.len();
        self.opening
            .extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        match self.form {
            BodyForm::Stream => {
                let reader = &mut self.reader;
                self.sse
                    .push(bytes, &mut |event| take_sse_event(reader, event, out));
            }
            BodyForm::Frames => {
                let reader = &mut self.reader;
                self.frames
                    .push(bytes, &mut |event| take_frame(reader, event, out));
            }
            BodyForm::Whole => {
                let reader = &mut self.reader;
                self.values
                    .push(bytes, &mut |value| take_value(reader, value, out));
            }
            BodyForm::Foreign | BodyForm::Empty => {}
        }
    }

    /// Returns true if the provider has ended its response. Some providers keep the connection open
    /// afterwards.
    ///
    /// A caller may then stop reading. If it reads on, trailing usage and errors are still
    /// understood.
    pub fn is_ended(&self) -> bool {
        self.reader.decoder.state().status.ended
    }

    /// Returns the number of events that have been read so far, without comments.
    pub fn event_count(&self) -> u64 {
        self.reader.decoder.state().status.events
    }

    /// Ends the response: every open call is ended or truncated.
    ///
    /// After a clean end, an unfinished event is decoded: providers leave out the blank line after
    /// the last one. After a broken connection it is dropped, because its text may be cut.
    pub fn finish(mut self, how: BodyEnd, out: &mut dyn EventSink) -> DecodeReport {
        match self.form {
            BodyForm::Stream if how == BodyEnd::Clean => {
                let reader = &mut self.reader;
                self.sse
                    .finish(&mut |event| take_sse_event(reader, event, out));
            }
            BodyForm::Frames if how == BodyEnd::Clean => {
                let reader = &mut self.reader;
                self.frames
                    .finish(&mut |event| take_frame(reader, event, out));
            }
            // A value that ends in the middle is expected after a broken connection, but a fault in
            // a complete body.
            BodyForm::Whole if how == BodyEnd::Clean && self.values.is_inside() => {
                let message = "the body ends inside a JSON value";
                self.reader.note_unreadable(message, out);
            }
            BodyForm::Stream
            | BodyForm::Frames
            | BodyForm::Whole
            | BodyForm::Foreign
            | BodyForm::Empty => {}
        }
        let state = self.reader.decoder.state_mut();
        state.status.ended |= how == BodyEnd::Clean && state.has_finished_choices;
        state.finish_body(how, out);
        let opening = String::from_utf8_lossy(&self.opening).into_owned();
        let status = std::mem::take(&mut self.reader.decoder.state_mut().status);
        let error = status.error.or_else(|| {
            // One event may contribute several skipped deltas, since deltas are counted separately.
            let known = status.events > status.unreadable + status.skipped;
            // A broken or cancelled body may be empty. A clean one without any known event is not a
            // response.
            let answered = known || status.ended || how != BodyEnd::Clean;
            let words = "the body is not an answer of this wire".to_owned();
            (!answered).then(|| ProviderError {
                kind: ModelErrorKind::Format,
                ..ProviderError::new("", words)
            })
        });
        DecodeReport {
            form: self.form,
            ended: status.ended,
            error,
            events: status.events,
            skipped: status.skipped,
            unreadable: status.unreadable,
            unreadable_cause: status.unreadable_cause,
            opening,
        }
    }
}

/// Decodes an event, or reports that it was too long. A request to reconnect is ignored: a response
/// cannot be resumed.
fn take_sse_event(reader: &mut EventReader, event: SseEvent<'_>, out: &mut dyn EventSink) {
    match event {
        SseEvent::Message { name, data, .. } => reader.read_event(name, data, out),
        SseEvent::TooLong => {
            reader.note_unreadable(&too_long_message("an event of the stream"), out)
        }
        SseEvent::Retry(_) => {}
    }
}

/// Decodes a frame, or reports its damage.
fn take_frame(reader: &mut EventReader, event: FrameEvent<'_>, out: &mut dyn EventSink) {
    match event {
        FrameEvent::Frame(frame) => read_frame(reader, &frame, out),
        FrameEvent::Damaged(what) => reader.note_unreadable(what, out),
        FrameEvent::TooLong => {
            reader.note_unreadable(&too_long_message("a frame of the stream"), out)
        }
    }
}

/// Decodes a frame by its `:message-type`: an event of the wire, an error that the API defines
/// (`exception`), or another error.
fn read_frame(reader: &mut EventReader, frame: &EventFrame<'_>, out: &mut dyn EventSink) {
    // A frame without the header is taken for an event.
    let kind = frame.text_header(":message-type").unwrap_or("event");
    let text = String::from_utf8_lossy(frame.payload);
    if kind == "event" {
        return reader.read_event(
            frame.text_header(":event-type").unwrap_or_default(),
            &text,
            out,
        );
    }
    let known = ProviderError::from_body(frame.payload);
    // Modeled exceptions have the first header, other errors the second. The payload is read only
    // without both.
    let code = [":exception-type", ":error-code"]
        .iter()
        .find_map(|name| frame.text_header(name))
        .map(str::to_owned);
    let code = code
        .or(known.as_ref().map(|error| error.code.clone()))
        .unwrap_or_default();
    let words = frame
        .text_header(":error-message")
        .map(str::to_owned)
        .or(known.map(|error| error.message));
    // An error ends the response, so calls that are still open may lack their rest.
    let state = reader.decoder.state_mut();
    state.status.events += 1;
    state.calls.mark_open_calls_damaged();
    state.note_provider_error(
        ProviderError::reported(code, words.unwrap_or_else(|| text.into_owned())),
        out,
    );
}

/// Decodes a JSON object, or reports that there is none.
fn take_value(reader: &mut EventReader, value: SplitValue<'_>, out: &mut dyn EventSink) {
    match value {
        SplitValue::Object(data) => reader.read_event("", data, out),
        SplitValue::TooLong => {
            reader.note_unreadable(&too_long_message("a value of the body"), out)
        }
        SplitValue::Stray => {
            reader.note_unreadable("the body holds something that is not JSON object", out);
        }
    }
}

/// Describes an event above [`MAX_EVENT`].
fn too_long_message(what: &str) -> String {
    format!(
        "{what} is longer than {} MiB, the most that is read; check that the server ends its lines and events",
        MAX_EVENT >> 20
    )
}

impl EventReader {
    /// Decodes an event, and reports the first replacement of a lone surrogate.
    fn read_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink) {
        let redaction = self.redaction.as_ref();
        let redacted = redaction.and_then(|redact| redact(data.as_bytes()));
        let redacted = redacted.as_deref().map(String::from_utf8_lossy);
        let data = redacted.as_deref().unwrap_or(data);
        let replaced = replace_lone_surrogates(data);
        let is_changed = matches!(replaced, Cow::Owned(_));
        if is_changed && !std::mem::replace(&mut self.has_reported, true) {
            out.push_event(Event::Fault(&Fault::warning(
                FaultKind::InvalidUtf8,
                Span::default(),
                "the answer has halves of characters (lone surrogates), which were replaced by U+FFFD",
            )));
        }
        self.decoder.decode_event(name, &replaced, out);
    }

    /// Reports an event that could not be read.
    fn note_unreadable(&mut self, message: &str, out: &mut dyn EventSink) {
        note_unreadable(self.decoder.as_mut(), message, out);
    }
}

/// Reports an event that could not be read.
///
/// The stream continues: one unreadable event must not lose the rest of a response.
pub(crate) fn note_unreadable(
    decoder: &mut dyn WireDecoder,
    message: &str,
    out: &mut dyn EventSink,
) {
    let state = decoder.state_mut();
    // The lost event may have held a piece of any open call.
    state.calls.mark_open_calls_damaged();
    state.status.events += 1;
    state.status.note_unreadable(message);
    out.push_event(Event::Fault(&Fault::error(
        FaultKind::Provider,
        Span::default(),
        message,
    )));
}

impl DecodeStatus {
    /// Counts an event that could not be read, and keeps the reason of the first one.
    pub(crate) fn note_unreadable(&mut self, cause: &str) {
        if self.unreadable == 0 {
            cause.clone_into(&mut self.unreadable_cause);
        }
        self.unreadable += 1;
    }
}

impl ResponseState {
    /// Adds a new call and returns its position, or `None` if there are too many.
    pub(crate) fn begin_call(
        &mut self,
        call: NativeCall,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        self.calls.begin_call(call, &self.status, out)
    }

    /// Records an error that the provider reported. A later one does not replace the first.
    ///
    /// It also becomes a fault, so that callers that only read events have it.
    pub(crate) fn note_provider_error(&mut self, error: ProviderError, out: &mut dyn EventSink) {
        let code = if error.code.is_empty() {
            "error"
        } else {
            &error.code
        };
        let message = format!("the provider reported {code}: {}", error.message);
        out.push_event(Event::Fault(&Fault::error(
            FaultKind::Provider,
            Span::default(),
            message,
        )));
        // The first error is the cause; later ones are often its consequences.
        self.status.error.get_or_insert(error);
    }

    /// Records an error that an event reports, with the provider's message if there is one. Open
    /// calls will be truncated.
    pub(crate) fn note_error_event(
        &mut self,
        error: Option<ProviderError>,
        out: &mut dyn EventSink,
    ) {
        let error =
            error.unwrap_or_else(|| ProviderError::new("error", "the provider sent no text"));
        self.note_provider_error(error, out);
        self.calls.mark_open_calls_damaged();
    }

    /// Reports a delta for a block that is not open. Any open call may lack that piece.
    pub(crate) fn note_stray_delta(&mut self, out: &mut dyn EventSink) {
        self.calls.mark_open_calls_damaged();
        let message = "a delta names a content block that is not open";
        out.push_event(Event::Fault(&Fault::error(
            FaultKind::Provider,
            Span::default(),
            message,
        )));
        self.status.note_unreadable(message);
    }

    /// Truncates every open call of a response that the provider ended.
    pub(crate) fn truncate_unfinished(&mut self, out: &mut dyn EventSink) {
        self.calls
            .truncate_open_calls(truncation_reason(BodyEnd::Clean, true, self.reason), out);
    }

    /// Ends the body: truncates every call that is still open.
    fn finish_body(&mut self, how: BodyEnd, out: &mut dyn EventSink) {
        // An end after an error proves nothing about the calls before it.
        let ended = self.status.ended && self.status.error.is_none();
        self.calls
            .truncate_open_calls(truncation_reason(how, ended, self.reason), out);
    }
}

/// Emits a text or a thought, unless it is empty.
pub(crate) fn emit_text(thought: bool, text: &str, out: &mut dyn EventSink) {
    match (text.is_empty(), thought) {
        (true, _) => {}
        (_, true) => out.push_event(Event::Thought { text }),
        (_, false) => out.push_event(Event::Text { text }),
    }
}

/// Reports that a limit was exceeded.
pub(crate) fn emit_limit_fault(message: String, out: &mut dyn EventSink) {
    out.push_event(Event::Fault(&Fault::error(
        FaultKind::Limit,
        Span::default(),
        message,
    )));
}

/// Counts the bytes of provider state (opaque blocks) that a decoder has kept or emitted for one
/// response.
#[derive(Debug, Default)]
pub(crate) struct OpaqueBudget {
    /// The bytes so far, with those above the limit.
    bytes: usize,
}

impl OpaqueBudget {
    /// Adds `more` bytes and returns true if the total stays within the limit. The first excess is
    /// reported as a fault.
    pub(crate) fn try_reserve(&mut self, more: usize, out: &mut dyn EventSink) -> bool {
        let before = self.bytes;
        // The sum grows even above the limit, so that the excess is reported once and no state is
        // kept afterwards.
        self.bytes = before.saturating_add(more);
        if before <= MAX_EVENT && self.bytes > MAX_EVENT {
            emit_limit_fault(
                format!("the response holds more than {MAX_EVENT} bytes of provider state"),
                out,
            );
        }
        self.bytes <= MAX_EVENT
    }
}

/// All calls of a response in order, and the index of the next one to start.
#[derive(Debug, Default)]
pub(crate) struct ResponseCalls {
    /// The calls in the order of their beginnings; a position in it never changes.
    pub(crate) list: Vec<NativeCall>,
    /// The index of the next call that starts. Indexes follow the order of starts, which differs
    /// from the list where a name comes late.
    pub(crate) next_index: u32,
    /// True once the excess of calls was reported.
    full: bool,
}

impl ResponseCalls {
    /// Adds a new call and returns its position, or `None` if there are too many, which is reported
    /// once.
    fn begin_call(
        &mut self,
        mut call: NativeCall,
        status: &DecodeStatus,
        out: &mut dyn EventSink,
    ) -> Option<usize> {
        if self.list.len() >= MAX_CALLS {
            if !std::mem::replace(&mut self.full, true) {
                emit_limit_fault(format!("more than {MAX_CALLS} calls in one response"), out);
            }
            return None;
        }
        // After a provider error, nothing can be trusted to be complete.
        if status.error.is_some() {
            call.mark_damaged();
        }
        self.list.push(call);
        Some(self.list.len() - 1)
    }

    /// Notes that the provider moved on: an ended call without arguments is really empty.
    pub(crate) fn confirm_empty_calls(&mut self, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.confirm_empty(out);
        }
    }

    /// Applies the stop reason to every call.
    pub(crate) fn apply_stop_reason(&mut self, reason: StopReason, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.apply_stop_reason(reason, &mut self.next_index, out);
        }
    }

    /// Ends every open call.
    pub(crate) fn mark_ends_seen(&mut self, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.mark_end_seen(&mut self.next_index, out);
        }
    }

    /// Ends the call at this position.
    ///
    /// `reason` is the stop reason if it came before the end of the call, as some servers send it.
    pub(crate) fn end_call(
        &mut self,
        position: usize,
        reason: Option<StopReason>,
        out: &mut dyn EventSink,
    ) {
        if let Some(call) = self.list.get_mut(position) {
            call.mark_end_seen(&mut self.next_index, out);
            if let Some(reason) = reason {
                call.apply_stop_reason(reason, &mut self.next_index, out);
            }
        }
    }

    /// Truncates every call that has not ended.
    pub(crate) fn truncate_open_calls(&mut self, why: Truncation, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.truncate_call(why, &mut self.next_index, out);
        }
    }

    /// Marks every open call as possibly incomplete.
    pub(crate) fn mark_open_calls_damaged(&mut self) {
        for call in self.list.iter_mut().filter(|call| call.is_open()) {
            call.mark_damaged();
        }
    }
}

/// Returns why calls that are still open at the end of a body are truncated.
fn truncation_reason(how: BodyEnd, ended: bool, reason: Option<StopReason>) -> Truncation {
    // The caller's knowledge of the transport overrides the provider's stop reason.
    match how {
        BodyEnd::Cancelled => Truncation::Cancelled,
        BodyEnd::Broken => Truncation::Broken,
        BodyEnd::Clean if !ended => Truncation::Broken,
        BodyEnd::Clean if reason == Some(StopReason::Length) => Truncation::Limit,
        BodyEnd::Clean => Truncation::Ended,
    }
}
