//! Response bodies of any wire, streamed or whole, turned into events.
//!
//! # Supported
//! Server-sent events; binary event streams; one JSON object; several JSON objects one after the other or in a list, each
//! read like an event of the stream as soon as it is whole. Which of them it is shows in the first byte that is not white
//! space.
//!
//! # Unsupported
//! Other binary framings. A body that begins with `<` is called foreign: a proxy's page, not an answer.

use sabir_call::{Cut, Event, Fault, FaultKind, ModelErrorKind, Sink, Span, StopReason};

use crate::calls::{MAX_CALLS, NativeCall};
use crate::failure::ProviderError;
use crate::frames::{Frame, FrameDecoder, FrameEvent};
use crate::sse::{MAX_EVENT, SseDecoder, SseEvent};
use crate::values::{JsonValue, ValueSplitter};
use crate::wire::Wire;

/// The most bytes of a body's beginning that a [`Report`] keeps.
const MAX_OPENING: usize = 256;

/// How the body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
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
pub struct Report {
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
pub struct Decoder {
    reader: Box<dyn Reader>,
    form: BodyForm,
    sse: SseDecoder,
    frames: FrameDecoder,
    values: ValueSplitter,
    opening: Vec<u8>,
}

/// What every wire's stream reader does. Private to the crate.
pub(crate) trait Reader: Send {
    /// Takes the data of one event, or one JSON value of a whole body. The name is empty where there was none.
    fn message(&mut self, name: &str, data: &str, out: &mut dyn Sink);
    /// An event was lost: calls that are open may lack a piece.
    fn lost(&mut self);
    /// Nothing more will come. Ends or cuts every call.
    fn finish(&mut self, how: Close, out: &mut dyn Sink);
    /// What it has seen so far.
    fn status(&self) -> &Status;
    /// The same, to be changed.
    fn status_mut(&mut self) -> &mut Status;
}

/// What a reader has seen of the response as a whole.
#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) ended: bool,
    pub(crate) error: Option<ProviderError>,
    pub(crate) events: u64,
    pub(crate) skipped: u64,
    pub(crate) unreadable: u64,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("form", &self.form)
            .field("status", self.reader.status())
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder for one body of that wire.
    pub fn new(wire: Wire) -> Self {
        Self {
            reader: wire.reader(),
            form: BodyForm::Empty,
            sse: SseDecoder::new(),
            frames: FrameDecoder::new(),
            values: ValueSplitter::default(),
            opening: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn Sink) {
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
                let reader = self.reader.as_mut();
                self.sse.push(bytes, &mut |event| take(reader, event, out));
            }
            BodyForm::Frames => {
                let reader = self.reader.as_mut();
                self.frames.push(bytes, &mut |event| take_frame(reader, event, out));
            }
            BodyForm::Whole => {
                let reader = self.reader.as_mut();
                self.values.push(bytes, &mut |value| take_value(reader, value, out));
            }
            BodyForm::Foreign | BodyForm::Empty => {}
        }
    }

    /// Whether the provider has ended its answer. Some never close the connection afterwards.
    pub fn is_ended(&self) -> bool {
        self.reader.status().ended
    }

    /// How many events have been read so far; comments are none.
    pub fn events(&self) -> u64 {
        self.reader.status().events
    }

    /// Nothing more will come. Every call that is open is ended or cut; then the response is complete.
    pub fn finish(mut self, how: Close, out: &mut dyn Sink) -> Report {
        match self.form {
            BodyForm::Stream if how == Close::Clean => {
                let reader = self.reader.as_mut();
                self.sse.finish(&mut |event| take(reader, event, out));
            }
            BodyForm::Frames if how == Close::Clean => {
                let reader = self.reader.as_mut();
                self.frames.finish(&mut |event| take_frame(reader, event, out));
            }
            // Half a value is what a broken connection leaves.
            BodyForm::Whole if how == Close::Clean && self.values.is_inside() => {
                unreadable(self.reader.as_mut(), "the body ends inside a JSON value", out);
            }
            BodyForm::Stream | BodyForm::Frames | BodyForm::Whole | BodyForm::Foreign | BodyForm::Empty => {}
        }
        self.reader.finish(how, out);
        let opening = String::from_utf8_lossy(&self.opening).into_owned();
        let status = std::mem::take(self.reader.status_mut());
        let error = status.error.or_else(|| {
            // Deltas that were skipped are counted beside events, so that an answer of one event may have more of them.
            let known = status.events > status.unreadable + status.skipped;
            let answered = known || status.ended || how != Close::Clean;
            let words = "the body is no answer of this wire".to_owned();
            (!answered).then(|| ProviderError { kind: ModelErrorKind::Format, ..ProviderError::new("", words) })
        });
        Report {
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

fn take(reader: &mut dyn Reader, event: SseEvent<'_>, out: &mut dyn Sink) {
    match event {
        SseEvent::Message { name, data, .. } => reader.message(name, data, out),
        SseEvent::TooLong => unreadable(reader, "an event of the stream is too long", out),
        SseEvent::Retry(_) => {}
    }
}

fn take_frame(reader: &mut dyn Reader, event: FrameEvent<'_>, out: &mut dyn Sink) {
    match event {
        FrameEvent::Frame(frame) => read_frame(reader, &frame, out),
        FrameEvent::Damaged(what) => unreadable(reader, what, out),
        FrameEvent::TooLong => unreadable(reader, "a frame of the stream is too long", out),
    }
}

/// Reads a frame by its `:message-type`: an event of the wire, an error that the API knows (`exception`), or another one.
fn read_frame(reader: &mut dyn Reader, frame: &Frame<'_>, out: &mut dyn Sink) {
    let kind = frame.text(":message-type").unwrap_or("event");
    let text = String::from_utf8_lossy(frame.payload);
    if kind == "event" {
        return reader.message(frame.text(":event-type").unwrap_or_default(), &text, out);
    }
    let known = ProviderError::read(frame.payload);
    let code = [":exception-type", ":error-code"].iter().find_map(|name| frame.text(name)).map(str::to_owned);
    let code = code.or(known.as_ref().map(|error| error.code.clone())).unwrap_or_default();
    let words = frame.text(":error-message").map(str::to_owned).or(known.map(|error| error.message));
    reader.status_mut().events += 1;
    reader.lost();
    failed(reader.status_mut(), ProviderError::new(code, words.unwrap_or_else(|| text.into_owned())), out);
}

fn take_value(reader: &mut dyn Reader, value: JsonValue<'_>, out: &mut dyn Sink) {
    match value {
        JsonValue::Object(data) => reader.message("", data, out),
        JsonValue::TooLong => unreadable(reader, "a value of the body is too long", out),
        JsonValue::Stray => unreadable(reader, "the body holds something that is no JSON object", out),
    }
}

/// Notes an event that could not be read.
pub(crate) fn unreadable(reader: &mut dyn Reader, message: &str, out: &mut dyn Sink) {
    reader.lost();
    let status = reader.status_mut();
    status.events += 1;
    status.unreadable += 1;
    out.event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
}

/// Notes an error that the provider reported. A later one does not replace the first.
pub(crate) fn failed(status: &mut Status, error: ProviderError, out: &mut dyn Sink) {
    let code = if error.code.is_empty() { "error" } else { &error.code };
    let message = format!("the provider reported {code}: {}", error.message);
    out.event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
    status.error.get_or_insert(error);
}

/// Notes an error that an event reports, in the provider's words if it has any. Whatever is open is cut.
pub(crate) fn reported(error: Option<ProviderError>, status: &mut Status, calls: &mut Calls, out: &mut dyn Sink) {
    let error = error.unwrap_or_else(|| ProviderError::new("error", "the provider sent no words"));
    failed(status, error, out);
    calls.poison();
}

/// Passes words on, if there are any.
pub(crate) fn say(thought: bool, text: &str, out: &mut dyn Sink) {
    match (text.is_empty(), thought) {
        (true, _) => {}
        (_, true) => out.event(Event::Thought { text }),
        (_, false) => out.event(Event::Text { text }),
    }
}

/// Notes that there is too much of something.
pub(crate) fn too_much(message: String, out: &mut dyn Sink) {
    out.event(Event::Fault(&Fault::error(FaultKind::Limit, Span::default(), message)));
}

/// How much of a provider's state a reader has kept, or passed on, of one response.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: usize,
}

impl Kept {
    /// Whether there is room for so many bytes more; that there is not is told once.
    pub(crate) fn has_room(&mut self, more: usize, out: &mut dyn Sink) -> bool {
        let before = self.bytes;
        self.bytes = before.saturating_add(more);
        if before <= MAX_EVENT && self.bytes > MAX_EVENT {
            too_much(format!("the response holds more than {MAX_EVENT} bytes of provider state"), out);
        }
        self.bytes <= MAX_EVENT
    }
}

/// All calls of a response, in order, and the index of the next one to start.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) list: Vec<NativeCall>,
    pub(crate) next: u32,
    /// Whether it has been told that there are too many.
    full: bool,
}

impl Calls {
    /// Takes a new call, and gives back its position; `None` if there are too many, which is told once.
    pub(crate) fn begin(&mut self, mut call: NativeCall, status: &Status, out: &mut dyn Sink) -> Option<usize> {
        if self.list.len() >= MAX_CALLS {
            if !std::mem::replace(&mut self.full, true) {
                too_much(format!("more than {MAX_CALLS} calls in one response"), out);
            }
            return None;
        }
        // Behind an error nothing can be trusted to be whole.
        if status.error.is_some() {
            call.poison();
        }
        self.list.push(call);
        Some(self.list.len() - 1)
    }

    /// The provider goes on with something else.
    pub(crate) fn went_on(&mut self, out: &mut dyn Sink) {
        for call in &mut self.list {
            call.went_on(out);
        }
    }

    /// The stop reason is known.
    pub(crate) fn stopped(&mut self, reason: StopReason, out: &mut dyn Sink) {
        for call in &mut self.list {
            call.stopped(reason, &mut self.next, out);
        }
    }

    /// Every call that is open ends here.
    pub(crate) fn end_seen(&mut self, out: &mut dyn Sink) {
        for call in &mut self.list {
            call.end_seen(&mut self.next, out);
        }
    }

    /// The end of the call at this position was seen.
    pub(crate) fn end(&mut self, position: usize, reason: Option<StopReason>, out: &mut dyn Sink) {
        if let Some(call) = self.list.get_mut(position) {
            call.end_seen(&mut self.next, out);
            if let Some(reason) = reason {
                call.stopped(reason, &mut self.next, out);
            }
        }
    }

    /// A delta came for no block that is open: whose piece it was, nobody knows.
    pub(crate) fn stray(&mut self, status: &mut Status, out: &mut dyn Sink) {
        self.poison();
        let message = "a delta names a content block that is not open";
        out.event(Event::Fault(&Fault::error(FaultKind::Provider, Span::default(), message)));
        status.unreadable += 1;
    }

    /// Every call that has not ended is cut.
    pub(crate) fn cut(&mut self, why: Cut, out: &mut dyn Sink) {
        for call in &mut self.list {
            call.cut(why, &mut self.next, out);
        }
    }

    /// Every call that is open may lack a piece.
    pub(crate) fn poison(&mut self) {
        for call in self.list.iter_mut().filter(|call| call.is_open()) {
            call.poison();
        }
    }
}

/// Why calls that are still open are cut at the end of a body.
pub(crate) fn cut_of(how: Close, ended: bool, reason: Option<StopReason>) -> Cut {
    match how {
        Close::Cancelled => Cut::Cancelled,
        Close::Broken => Cut::Broken,
        Close::Clean if !ended => Cut::Broken,
        Close::Clean if reason == Some(StopReason::Length) => Cut::Limit,
        Close::Clean => Cut::Ended,
    }
}
