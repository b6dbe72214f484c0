//! Response bodies of any wire, streamed or whole, turned into events.
//!
//! # Supported
//! Server-sent events; binary event streams; one JSON object; several JSON objects one after the other or in a list, each
//! read like an event of the stream as soon as it is whole. Which of them it is shows in the first byte that is not white
//! space.
//!
//! # Unsupported
//! Other binary framings. A body that begins with `<` is called foreign: a proxy's page, not an answer.

use sabir_call::{Event, EventSink, Fault, FaultKind, ModelErrorKind, Span, StopReason, Truncation};

use crate::frames::{EventFrame, FrameDecoder, FrameEvent};
use crate::json_splitter::{JsonValue, ValueSplitter};
use crate::native_call::{MAX_CALLS, NativeCall};
use crate::provider_error::ProviderError;
use crate::sse::{MAX_EVENT, SseDecoder, SseEvent};
use crate::wire::Wire;

/// The most bytes of a body's beginning that a [`DecodeReport`] keeps.
const MAX_OPENING: usize = 256;

/// How the body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// The transport says that the body is complete.
    Clean,
    /// The connection broke, or an idle limit was reached.
    Broken,
    /// The user cancelled.
    Cancelled,
}

/// What kind of body it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// White space at most.
    #[default]
    Empty,
    /// Server-sent events.
    Stream,
    /// Binary frames.
    Frames,
    /// JSON values.
    Whole,
    /// Neither: markup.
    Foreign,
}

/// What a decoder can say of a body as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeReport {
    /// What kind of body it was.
    pub form: BodyForm,
    /// Whether the provider ended the answer itself (a terminal event or a finish reason was seen).
    pub ended: bool,
    /// The error that the provider reported, or that the body is no answer at all.
    pub error: Option<ProviderError>,
    /// Events that were read.
    pub events: u64,
    /// Events and deltas of unknown kinds, which is normal.
    pub skipped: u64,
    /// Events that could not be read; each has also been a fault.
    pub unreadable: u64,
    /// The first bytes of the body, for messages about foreign ones; at most 256.
    pub opening: String,
}

/// Turns one response body into events. Feed it bytes as they come, then [`finish`](Self::finish) it.
///
/// Memory is bounded by a small multiple of [`MAX_EVENT`](crate::sse::MAX_EVENT). However the bytes are split, the events are the same once
/// adjacent deltas are merged.
pub struct ResponseDecoder {
    decoder: Box<dyn WireDecoder>,
    form: BodyForm,
    sse: SseDecoder,
    frames: FrameDecoder,
    values: ValueSplitter,
    opening: Vec<u8>,
}

/// What every wire's stream reader does. Private to the crate.
pub(crate) trait WireDecoder: Send {
    /// Takes the data of one event, or one JSON value of a whole body. The name is empty where there was none.
    fn decode_event(&mut self, name: &str, data: &str, out: &mut dyn EventSink);
    /// An event was lost: calls that are open may lack a piece.
    fn mark_event_lost(&mut self);
    /// Nothing more will come. Ends or cuts every call.
    fn finish_body(&mut self, how: BodyEnd, out: &mut dyn EventSink);
    /// What it has seen so far.
    fn status(&self) -> &DecodeStatus;
    /// The same, to be changed.
    fn status_mut(&mut self) -> &mut DecodeStatus;
}

/// What a reader has seen of the response as a whole.
#[derive(Debug, Default)]
pub(crate) struct DecodeStatus {
    pub(crate) ended: bool,
    pub(crate) error: Option<ProviderError>,
    pub(crate) events: u64,
    pub(crate) skipped: u64,
    pub(crate) unreadable: u64,
}

impl std::fmt::Debug for ResponseDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("form", &self.form)
            .field("status", self.decoder.status())
            .finish_non_exhaustive()
    }
}

impl ResponseDecoder {
    /// A decoder for one body of that wire.
    pub fn new(wire: Wire) -> Self {
        Self {
            decoder: wire.new_decoder(),
            form: BodyForm::Empty,
            sse: SseDecoder::new(),
            frames: FrameDecoder::new(),
            values: ValueSplitter::default(),
            opening: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn EventSink) {
        let mut bytes = bytes;
        if self.form == BodyForm::Empty {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            let skip = bytes.iter().take_while(|byte| blank(byte)).count();
            bytes = bytes.get(skip..).unwrap_or_default();
            self.form = match bytes.first() {
                None => return,
                // The first byte of a frame's length: with another one the frame would be too long.
                Some(0) => BodyForm::Frames,
                Some(b'{' | b'[') => BodyForm::Whole,
                Some(b'<') => BodyForm::Foreign,
                Some(_) => BodyForm::Stream,
            };
        }
        let room = MAX_OPENING - self.opening.len();
        self.opening.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        match self.form {
            BodyForm::Stream => {
                let reader = self.decoder.as_mut();
                self.sse.push(bytes, &mut |event| take_sse_event(reader, event, out));
            }
            BodyForm::Frames => {
                let reader = self.decoder.as_mut();
                self.frames.push(bytes, &mut |event| take_frame(reader, event, out));
            }
            BodyForm::Whole => {
                let reader = self.decoder.as_mut();
                self.values.push(bytes, &mut |value| take_value(reader, value, out));
            }
            BodyForm::Foreign | BodyForm::Empty => {}
        }
    }

    /// Whether the provider has ended its answer. Some never close the connection afterwards.
    pub fn is_ended(&self) -> bool {
        self.decoder.status().ended
    }

    /// How many events have been read so far; comments are none.
    pub fn event_count(&self) -> u64 {
        self.decoder.status().events
    }

    /// Nothing more will come. Every call that is open is ended or cut; then the response is complete.
    pub fn finish(mut self, how: BodyEnd, out: &mut dyn EventSink) -> DecodeReport {
        match self.form {
            BodyForm::Stream if how == BodyEnd::Clean => {
                let reader = self.decoder.as_mut();
                self.sse.finish(&mut |event| take_sse_event(reader, event, out));
            }
            BodyForm::Frames if how == BodyEnd::Clean => {
                let reader = self.decoder.as_mut();
                self.frames.finish(&mut |event| take_frame(reader, event, out));
            }
            // Half a value is what a broken connection leaves.
            BodyForm::Whole if how == BodyEnd::Clean && self.values.is_inside() => {
                note_unreadable(self.decoder.as_mut(), "the body ends inside a JSON value", out);
            }
            BodyForm::Stream | BodyForm::Frames | BodyForm::Whole | BodyForm::Foreign | BodyForm::Empty => {}
        }
        self.decoder.finish_body(how, out);
        let opening = String::from_utf8_lossy(&self.opening).into_owned();
        let status = std::mem::take(self.decoder.status_mut());
        let error = status.error.or_else(|| {
            // Deltas that were skipped are counted beside events, so that an answer of one event may have more of them.
            let known = status.events > status.unreadable + status.skipped;
            let answered = known || status.ended || how != BodyEnd::Clean;
            let words = "the body is no answer of this wire".to_owned();
            (!answered).then(|| ProviderError { kind: ModelErrorKind::Format, ..ProviderError::new("", words) })
        });
        DecodeReport {
            form: self.form,
            ended: status.ended,
            error,
            events: status.events,
            skipped: status.skipped,
            unreadable: status.unreadable,
            opening,
        }
    }
}

fn take_sse_event(reader: &mut dyn WireDecoder, event: SseEvent<'_>, out: &mut dyn EventSink) {
    match event {
        SseEvent::Message { name, data, .. } => reader.decode_event(name, data, out),
        SseEvent::TooLong => note_unreadable(reader, "an event of the stream is too long", out),
        SseEvent::Retry(_) => {}
    }
}

fn take_frame(reader: &mut dyn WireDecoder, event: FrameEvent<'_>, out: &mut dyn EventSink) {
    match event {
        FrameEvent::Frame(frame) => read_frame(reader, &frame, out),
        FrameEvent::Damaged(what) => note_unreadable(reader, what, out),
        FrameEvent::TooLong => note_unreadable(reader, "a frame of the stream is too long", out),
    }
}

/// Reads a frame by its `:message-type`: an event of the wire, an error that the API knows (`exception`), or another one.
fn read_frame(reader: &mut dyn WireDecoder, frame: &EventFrame<'_>, out: &mut dyn EventSink) {
    let kind = frame.text_header(":message-type").unwrap_or("event");
    let text = String::from_utf8_lossy(frame.payload);
    if kind == "event" {
        return reader.decode_event(frame.text_header(":event-type").unwrap_or_default(), &text, out);
    }
    let known = ProviderError::from_body(frame.payload);
    let code = [":exception-type", ":error-code"].iter().find_map(|name| frame.text_header(name)).map(str::to_owned);
    let code = code.or(known.as_ref().map(|error| error.code.clone())).unwrap_or_default();
    let words = frame.text_header(":error-message").map(str::to_owned).or(known.map(|error| error.message));
    reader.status_mut().events += 1;
    reader.mark_event_lost();
    note_provider_error(reader.status_mut(), ProviderError::new(code, words.unwrap_or_else(|| text.into_owned())), out);
}

fn take_value(reader: &mut dyn WireDecoder, value: JsonValue<'_>, out: &mut dyn EventSink) {
    match value {
        JsonValue::Object(data) => reader.decode_event("", data, out),
        JsonValue::TooLong => note_unreadable(reader, "a value of the body is too long", out),
        JsonValue::Stray => note_unreadable(reader, "the body holds something that is no JSON object", out),
    }
}

/// Notes an event that could not be read.
pub(crate) fn note_unreadable(reader: &mut dyn WireDecoder, message: &str, out: &mut dyn EventSink) {
    reader.mark_event_lost();
    let status = reader.status_mut();
    status.events += 1;
    status.unreadable += 1;
    out.push_event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
}

/// Notes an error that the provider reported. A later one does not replace the first.
pub(crate) fn note_provider_error(status: &mut DecodeStatus, error: ProviderError, out: &mut dyn EventSink) {
    let code = if error.code.is_empty() { "error" } else { &error.code };
    let message = format!("the provider reported {code}: {}", error.message);
    out.push_event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
    status.error.get_or_insert(error);
}

/// Notes an error that an event reports, in the provider's words if it has any. Whatever is open is cut.
pub(crate) fn note_error_event(
    error: Option<ProviderError>,
    status: &mut DecodeStatus,
    calls: &mut ResponseCalls,
    out: &mut dyn EventSink,
) {
    let error = error.unwrap_or_else(|| ProviderError::new("error", "the provider sent no words"));
    note_provider_error(status, error, out);
    calls.mark_open_calls_damaged();
}

/// Passes words on, if there are any.
pub(crate) fn emit_text(thought: bool, text: &str, out: &mut dyn EventSink) {
    match (text.is_empty(), thought) {
        (true, _) => {}
        (_, true) => out.push_event(Event::Thought { text }),
        (_, false) => out.push_event(Event::Text { text }),
    }
}

/// Notes that there is too much of something.
pub(crate) fn emit_limit_fault(message: String, out: &mut dyn EventSink) {
    out.push_event(Event::Fault(&Fault::error(FaultKind::Limit, Span::default(), message)));
}

/// How much of a provider's state a reader has kept, or passed on, of one response.
#[derive(Debug, Default)]
pub(crate) struct OpaqueBudget {
    bytes: usize,
}

impl OpaqueBudget {
    /// Whether there is room for so many bytes more; that there is not is told once.
    pub(crate) fn has_room(&mut self, more: usize, out: &mut dyn EventSink) -> bool {
        let before = self.bytes;
        self.bytes = before.saturating_add(more);
        if before <= MAX_EVENT && self.bytes > MAX_EVENT {
            emit_limit_fault(format!("the response holds more than {MAX_EVENT} bytes of provider state"), out);
        }
        self.bytes <= MAX_EVENT
    }
}

/// All calls of a response, in order, and the index of the next one to start.
#[derive(Debug, Default)]
pub(crate) struct ResponseCalls {
    pub(crate) list: Vec<NativeCall>,
    pub(crate) next_index: u32,
    /// Whether it has been told that there are too many.
    full: bool,
}

impl ResponseCalls {
    /// Takes a new call, and gives back its position; `None` if there are too many, which is told once.
    pub(crate) fn begin_call(
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
        // Behind an error nothing can be trusted to be whole.
        if status.error.is_some() {
            call.mark_damaged();
        }
        self.list.push(call);
        Some(self.list.len() - 1)
    }

    /// The provider goes on with something else.
    pub(crate) fn confirm_empty_calls(&mut self, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.confirm_empty(out);
        }
    }

    /// The stop reason is known.
    pub(crate) fn apply_stop_reason(&mut self, reason: StopReason, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.apply_stop_reason(reason, &mut self.next_index, out);
        }
    }

    /// Every call that is open ends here.
    pub(crate) fn mark_ends_seen(&mut self, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.mark_end_seen(&mut self.next_index, out);
        }
    }

    /// The end of the call at this position was seen.
    pub(crate) fn end_call(&mut self, position: usize, reason: Option<StopReason>, out: &mut dyn EventSink) {
        if let Some(call) = self.list.get_mut(position) {
            call.mark_end_seen(&mut self.next_index, out);
            if let Some(reason) = reason {
                call.apply_stop_reason(reason, &mut self.next_index, out);
            }
        }
    }

    /// A delta came for no block that is open: whose piece it was, nobody knows.
    pub(crate) fn note_stray_delta(&mut self, status: &mut DecodeStatus, out: &mut dyn EventSink) {
        self.mark_open_calls_damaged();
        let message = "a delta names a content block that is not open";
        out.push_event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
        status.unreadable += 1;
    }

    /// Every call that has not ended is cut.
    pub(crate) fn truncate_open_calls(&mut self, why: Truncation, out: &mut dyn EventSink) {
        for call in &mut self.list {
            call.truncate_call(why, &mut self.next_index, out);
        }
    }

    /// Every call that is open may lack a piece.
    pub(crate) fn mark_open_calls_damaged(&mut self) {
        for call in self.list.iter_mut().filter(|call| call.is_open()) {
            call.mark_damaged();
        }
    }
}

/// Why calls that are still open are cut at the end of a body.
pub(crate) fn truncation_reason(how: BodyEnd, ended: bool, reason: Option<StopReason>) -> Truncation {
    match how {
        BodyEnd::Cancelled => Truncation::Cancelled,
        BodyEnd::Broken => Truncation::Broken,
        BodyEnd::Clean if !ended => Truncation::Broken,
        BodyEnd::Clean if reason == Some(StopReason::Length) => Truncation::Limit,
        BodyEnd::Clean => Truncation::Ended,
    }
}
