//! Converts a stream of text into the deltas of OpenAI's Chat Completions.
//!
//! A client of that API expects the arguments of a call as pieces of one JSON object, typed as the
//! tool declares. Between tags only the schema tells whether `10` is a number, so **strings are
//! sent as they arrive, and anything else when it is complete.** With `whole_calls` all calls wait
//! for the end of the text, and for all checks and repairs of `sabir-check`: text after a call can
//! show that it is only a mention, which is not sent then. A call that fails only the schema is
//! sent, as a native API would do; the client's validation answers it.
//!
//! The first line feed of a value between tags belongs to the value or to the layout of the
//! dialect; only the end of the value shows which. A value that begins with one is held back for up
//! to [`MAX_HELD_START`] bytes. In a longer value the line feed counts as layout, and the end of
//! the stream reports it if that was wrong.
//!
//! A call that is cut or unreadable is never completed: its arguments stay invalid JSON, or with `whole_calls` it is left out. The
//! faults at the end of the stream say why.

use std::collections::{HashMap, HashSet};

use sabir_call::{
    ArgumentEncoding, CallReader, DraftResponse, Event, EventSink, Fault, FaultKind, ParallelCalls,
    Severity, Truncation,
};
use sabir_check::{CallChecker, CallState, CoercionOutcome, StreamingMode};
use serde_json::{Value, json};

use crate::error::BindingError;
use crate::reader_options::ReaderOptions;
use crate::stream_reader::read_reason;

/// The number of bytes of a value that begins with a line feed which are held back until its beginning is certain.
const MAX_HELD_START: usize = 64;

/// A stream of text on its way to a client of OpenAI's Chat Completions.
///
/// ```
/// use sabir_bindings::{OpenAiDeltas, ReaderOptions};
///
/// let options = ReaderOptions::from_json(
///     r#"{"tools": [{"name": "look", "input_schema": {"type": "object", "properties": {"line": {"type": "integer"}}}}]}"#,
/// )?;
/// let mut deltas = OpenAiDeltas::new(&options);
/// let said = deltas.push("Now:\n<look><line>7</line></look>")?;
/// assert_eq!(said.first().map(ToString::to_string).as_deref(), Some(r#"{"content":"Now:\n"}"#));
/// let end = deltas.finish("ended")?;
/// assert_eq!(end.get("finish_reason").and_then(|reason| reason.as_str()), Some("tool_calls"));
/// # Ok::<(), sabir_bindings::BindingError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiDeltas {
    reader: CallReader,
    writer: DeltaWriter,
    /// The beginning of a character whose other bytes have not arrived.
    partial: Vec<u8>,
    has_finished: bool,
}

/// Writes deltas from events.
#[derive(Debug)]
struct DeltaWriter {
    checker: CallChecker,
    id_prefix: String,
    /// True if calls after the first are left out.
    is_single: bool,
    /// True if calls are sent at the end of the text, checked.
    sends_whole: bool,
    /// The response so far, which is checked at its end.
    draft: DraftResponse,
    source: SourceWindow,
    open: Vec<OutgoingCall>,
    /// The number of calls that were begun, which is the index of the next one.
    begun: u32,
    /// The number of calls that were sent in full.
    complete: u32,
    faults: Vec<Fault>,
    /// The ids of the calls that were begun.
    ids: HashSet<String>,
    /// The numbers in the events of a reader, of the calls that were begun.
    call_indexes: Vec<u32>,
    deltas: Vec<Value>,
}

/// The last chunk, in which the first byte of a value can be looked up.
#[derive(Debug, Default)]
struct SourceWindow {
    /// The offset of the chunk in the text.
    start: usize,
    chunk: String,
}

/// A call that is sent while it arrives.
#[derive(Debug)]
struct OutgoingCall {
    /// The number of the call in the events.
    index: u32,
    /// The number of the call in the deltas.
    sent_as: u32,
    /// The name of the declared tool; the name as written if none is meant.
    tool: String,
    /// The names of the arguments so far, as sent.
    given: Vec<String>,
    argument: OpenArgument,
    /// True if a piece of the arguments was sent.
    has_pieces: bool,
    /// The reason why the call is not completed.
    broken: Option<String>,
}

/// The state of the argument that is arriving.
#[derive(Debug)]
enum OpenArgument {
    /// Between arguments.
    None,
    /// A string that is sent as it arrives.
    Streaming,
    /// A raw string that may begin with a line feed: its offset and its text so far.
    Starting { at: usize, held: String },
    /// A value that waits for its end.
    Waiting {
        name: String,
        form: ArgumentEncoding,
        held: String,
    },
    /// The rest of arguments that stopped being strict JSON.
    Rest {
        form: ArgumentEncoding,
        held: String,
    },
    /// An argument that is not sent.
    Dropped,
}

impl OpenAiDeltas {
    /// Creates the converter of one text.
    pub fn new(options: &ReaderOptions) -> Self {
        Self {
            reader: options.create_reader(),
            writer: DeltaWriter {
                checker: options.create_checker(),
                id_prefix: options.id_prefix.clone(),
                is_single: options.parallel_calls() == ParallelCalls::One,
                sends_whole: options.whole_calls,
                draft: DraftResponse::default(),
                source: SourceWindow::default(),
                open: Vec::new(),
                begun: 0,
                complete: 0,
                faults: Vec::new(),
                ids: HashSet::new(),
                call_indexes: Vec::new(),
                deltas: Vec::new(),
            },
            partial: Vec::new(),
            has_finished: false,
        }
    }

    /// Reads a chunk and returns its deltas: objects that belong under `choices[0].delta`.
    ///
    /// # Errors
    /// The text has ended already.
    pub fn push(&mut self, chunk: &str) -> Result<Vec<Value>, BindingError> {
        if self.has_finished {
            return Err(BindingError::AlreadyFinished);
        }
        // Text ends a character that bytes before it began.
        self.read_partial();
        self.read_text(chunk);
        Ok(std::mem::take(&mut self.writer.deltas))
    }

    /// Reads a chunk of bytes, which may end inside a character. Invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// The text has ended already.
    pub fn push_bytes(&mut self, chunk: &[u8]) -> Result<Vec<Value>, BindingError> {
        if self.has_finished {
            return Err(BindingError::AlreadyFinished);
        }
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(chunk);
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        self.partial = invalid.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = invalid.get(length..).unwrap_or_default();
                }
            }
        }
        self.read_text(&text);
        Ok(std::mem::take(&mut self.writer.deltas))
    }

    /// Reads the beginning of a character that will not be completed.
    fn read_partial(&mut self) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.read_text("\u{fffd}");
        }
    }

    fn read_text(&mut self, chunk: &str) {
        self.writer.source.advance_to(chunk);
        self.writer.draft.push_event(Event::Source {
            text: chunk,
            is_thought: false,
        });
        self.reader.push(chunk, &mut self.writer);
    }

    /// Ends the text and returns an object with the last `deltas`, the `finish_reason`, all `faults`, and `call_indexes`: for each call of
    /// the deltas, the `index` that it has in the events of a [`StreamReader`](crate::StreamReader), which also numbers calls that are left out. `reason` is as in
    /// [`StreamReader::finish`](crate::StreamReader::finish). The faults are all: those of the text, of calls that were cut or left out, and
    /// of the schemas.
    ///
    /// # Errors
    /// The reason is unknown, or the text has ended already.
    pub fn finish(&mut self, reason: &str) -> Result<Value, BindingError> {
        let reason = read_reason(reason)?;
        if std::mem::replace(&mut self.has_finished, true) {
            return Err(BindingError::AlreadyFinished);
        }
        self.read_partial();
        self.reader.finish(reason, &mut self.writer);
        let writer = &mut self.writer;
        writer.check_calls();
        let finish_reason = match reason {
            // Checked first: a client must learn of the limit even if some calls were complete
            // before it.
            Truncation::Limit => "length",
            _ if writer.complete > 0 => "tool_calls",
            _ => "stop",
        };
        let faults = std::mem::take(&mut writer.faults);
        Ok(json!({
            "deltas": std::mem::take(&mut writer.deltas),
            "finish_reason": finish_reason,
            "call_indexes": std::mem::take(&mut writer.call_indexes),
            "faults": serde_json::to_value(faults).unwrap_or_default(),
        }))
    }
}

impl EventSink for DeltaWriter {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Text { text } => self.deltas.push(json!({"content": text})),
            Event::Thought { text } => self.deltas.push(json!({"reasoning_content": text})),
            Event::Fault(fault) => self.note_fault(fault),
            Event::CallCut { index, why, at } => self.note_cut_call(index, why, at),
            _ => {}
        }
        self.draft.push_event(event);
        if self.sends_whole {
            return;
        }
        match event {
            Event::CallStart {
                index,
                id,
                name,
                name_at,
                ..
            } => self.start_call(index, id, name, name_at),
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => self.with_call(index, |call, out| call.start_argument(name, form, at, out)),
            Event::ArgDelta { index, text } => {
                self.with_call(index, |call, out| call.push_piece(text, out));
            }
            Event::ArgEnd { index, lead, .. } => {
                self.with_call(index, |call, out| call.end_argument(lead, out));
            }
            Event::CallEnd { index, at } => self.end_call(index, at),
            _ => {}
        }
    }
}

/// The context in which a call is written.
struct CallOutput<'w> {
    checker: &'w CallChecker,
    source: &'w SourceWindow,
    faults: &'w mut Vec<Fault>,
    /// The pieces of arguments to send.
    pieces: String,
}

impl DeltaWriter {
    /// Keeps a fault, which may make its call unreadable.
    fn note_fault(&mut self, fault: &Fault) {
        // Searched from the end, as the call that arrives is nearly always the last one.
        let call = self
            .open
            .iter_mut()
            .rev()
            .find(|call| fault.call == Some(call.index));
        if let Some(call) = call.filter(|_| is_unreadable(fault)) {
            call.broken.get_or_insert_with(|| fault.message.clone());
        }
        self.faults.push(fault.clone());
    }

    /// Keeps the fault of a call that will never be complete.
    fn note_cut_call(&mut self, index: u32, why: Truncation, at: usize) {
        let drafted = self.draft.call_by_index(index);
        let name = drafted.map(|call| call.name.clone());
        let position = self.open.iter().rposition(|call| call.index == index);
        let open = position.map(|position| self.open.swap_remove(position));
        if let Some(call) = &open {
            self.open_invalid_arguments(call);
        }
        let open = open.map(|call| call.tool);
        let reason = match why {
            Truncation::Ended => "the message ended inside it",
            Truncation::Limit => "the output limit was reached inside it",
            Truncation::Broken => "the connection to the model broke inside it",
            Truncation::Cancelled => "it was cancelled",
        };
        let name = name.or(open).unwrap_or_default();
        let message = format!("the call of `{name}` was cut: {reason}");
        let mut fault = Fault::error(FaultKind::CutCall, sabir_call::Span::new(at, at), message);
        fault.call = Some(index);
        self.faults.push(fault);
    }

    /// Checks all calls at the end of the text: keeps the faults that are not known yet, and sends the calls that waited.
    fn check_calls(&mut self) {
        let mut known: HashMap<u32, Vec<Fault>> = HashMap::new();
        for fault in &self.draft.faults {
            if let Some(index) = fault.call {
                known.entry(index).or_default().push(fault.clone());
            }
        }
        for call in self.checker.check_all(&self.draft) {
            // What is known of a cut call was kept when it was cut.
            if call.state == CallState::Cut {
                continue;
            }
            let is_readable = !call.faults.iter().any(is_unreadable);
            let known = known.remove(&call.index).unwrap_or_default();
            let is_new = |fault: &Fault| {
                // Without waiting, what makes a call unreadable was reported when it was left
                // unfinished.
                (self.sends_whole || !is_unreadable(fault)) && !known.contains(fault)
            };
            self.faults
                .extend(call.faults.into_iter().filter(|fault| is_new(fault)));
            if self.sends_whole && is_readable {
                // A call that is left out takes no index, so the indexes of the deltas have no gap.
                let arguments = Value::Object(call.arguments).to_string();
                let id = self.draft.call_by_index(call.index);
                let id = id.and_then(|call| call.id.clone());
                let sent_as = self.announce_call(call.index, &call.name, id.as_deref(), &arguments);
                self.complete = sent_as + 1;
            }
        }
    }

    /// Sends the beginning of a call and returns its number in the deltas. The id is the one that the model wrote, if it wrote one.
    fn announce_call(
        &mut self,
        event_index: u32,
        name: &str,
        id: Option<&str>,
        arguments: &str,
    ) -> u32 {
        let index = self.begun;
        self.call_indexes.push(event_index);
        self.begun = self.begun.saturating_add(1);
        let id = id
            .filter(|id| !id.is_empty() && !self.ids.contains(*id))
            .map_or_else(|| format!("{}{index}", self.id_prefix), str::to_owned);
        self.ids.insert(id.clone());
        self.deltas.push(json!({"tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }]}));
        index
    }

    fn start_call(&mut self, index: u32, id: Option<&str>, name: &str, name_at: usize) {
        if self.is_single && self.begun > 0 {
            // The first call counts even if it is broken: a later one may build on its result.
            let message = format!(
                "the call of `{name}` was left out, because a message may hold only one call"
            );
            let span = sabir_call::Span::new(name_at, name_at + name.len());
            let mut fault = Fault::error(FaultKind::ExtraCall, span, message);
            fault.call = Some(index);
            self.faults.push(fault);
            return;
        }
        let meant = self.checker.guess_tool(name);
        let tool = meant.map_or_else(|| name.to_owned(), |(tool, _)| tool.name.clone());
        let sent_as = self.announce_call(index, &tool, id, "");
        self.open.push(OutgoingCall {
            index,
            sent_as,
            tool,
            given: Vec::new(),
            argument: OpenArgument::None,
            has_pieces: false,
            broken: None,
        });
    }

    fn end_call(&mut self, index: u32, at: usize) {
        let Some(position) = self.open.iter().rposition(|call| call.index == index) else {
            return;
        };
        let call = self.open.swap_remove(position);
        match call.broken {
            None => {
                // The opening brace is sent with the first name, so without arguments both are
                // missing.
                let end = if call.given.is_empty() { "{}" } else { "}" };
                self.send_piece(call.sent_as, end);
                self.complete = self.complete.saturating_add(1);
            }
            Some(ref message) => {
                self.open_invalid_arguments(&call);
                let message = message.clone();
                let is_known = self.faults.iter().any(|fault| fault.message == message);
                if !is_known {
                    let span = sabir_call::Span::new(at, at);
                    self.faults
                        .push(Fault::error(FaultKind::MalformedJson, span, message));
                }
            }
        }
    }

    /// Begins the arguments of a call that is not completed. Many clients take an empty text for a call without arguments.
    fn open_invalid_arguments(&mut self, call: &OutgoingCall) {
        if !call.has_pieces {
            self.send_piece(call.sent_as, "{");
        }
    }

    /// Lets a call write, and sends the pieces.
    fn with_call(
        &mut self,
        index: u32,
        write: impl FnOnce(&mut OutgoingCall, &mut CallOutput<'_>),
    ) {
        let Some(call) = self.open.iter_mut().rev().find(|call| call.index == index) else {
            return;
        };
        let mut output = CallOutput {
            checker: &self.checker,
            source: &self.source,
            faults: &mut self.faults,
            pieces: String::new(),
        };
        write(call, &mut output);
        let sent_as = call.sent_as;
        let pieces = output.pieces;
        call.has_pieces |= !pieces.is_empty();
        if !pieces.is_empty() {
            self.send_piece(sent_as, &pieces);
        }
    }

    fn send_piece(&mut self, sent_as: u32, piece: &str) {
        self.deltas.push(json!({"tool_calls": [{
            "index": sent_as,
            "function": {"arguments": piece},
        }]}));
    }
}

impl OutgoingCall {
    fn start_argument(
        &mut self,
        name: &str,
        form: ArgumentEncoding,
        at: usize,
        out: &mut CallOutput<'_>,
    ) {
        // A nameless argument is not the model's own: the parser delivers unreadable rests that
        // way.
        if name.is_empty() && form != ArgumentEncoding::Raw {
            let held = String::new();
            self.argument = OpenArgument::Rest { form, held };
            return;
        }
        let Some(name) = self.resolve_name(name, out) else {
            self.argument = OpenArgument::Dropped;
            return;
        };
        let tool = out.checker.tools().get(&self.tool);
        let mode = match (tool, form) {
            // A piece of JSON is held until the value is known to be valid; otherwise a broken
            // value would be sent in part.
            (_, ArgumentEncoding::Json) => StreamingMode::Whole,
            (None, _) => StreamingMode::Text,
            (Some(tool), _) => out.checker.streaming_mode(tool, &name, form, None),
        };
        self.argument = if mode == StreamingMode::Text {
            self.write_name(&name, out);
            out.pieces.push('"');
            match form {
                ArgumentEncoding::Raw => OpenArgument::Starting {
                    at,
                    held: String::new(),
                },
                _ => OpenArgument::Streaming,
            }
        } else {
            let held = String::new();
            OpenArgument::Waiting { name, form, held }
        };
    }

    fn push_piece(&mut self, text: &str, out: &mut CallOutput<'_>) {
        match &mut self.argument {
            OpenArgument::Streaming => push_escaped(&mut out.pieces, text),
            OpenArgument::Starting { at, held } => {
                held.push_str(text);
                // Nothing was held back if the value certainly begins with another character.
                let first = out.source.byte_at(*at);
                let is_plain = first.is_some_and(|first| !matches!(first, b'\n' | b'\r'));
                if is_plain || held.len() > MAX_HELD_START {
                    push_escaped(&mut out.pieces, held);
                    self.argument = OpenArgument::Streaming;
                }
            }
            OpenArgument::Waiting { held, .. } | OpenArgument::Rest { held, .. } => {
                held.push_str(text);
            }
            OpenArgument::None | OpenArgument::Dropped => {}
        }
    }

    fn end_argument(&mut self, lead: &str, out: &mut CallOutput<'_>) {
        match std::mem::replace(&mut self.argument, OpenArgument::None) {
            OpenArgument::Streaming => {
                if !lead.is_empty() {
                    let message = format!(
                        "the first line feed of a value of `{}` was sent as layout, but belongs to the value",
                        self.tool
                    );
                    let span = sabir_call::Span::default();
                    out.faults
                        .push(Fault::warning(FaultKind::StrayText, span, message));
                }
                out.pieces.push('"');
            }
            OpenArgument::Starting { held, .. } => {
                push_escaped(&mut out.pieces, lead);
                push_escaped(&mut out.pieces, &held);
                out.pieces.push('"');
            }
            OpenArgument::Waiting { name, form, held } => {
                self.write_whole(&name, form, &format!("{lead}{held}"), out);
            }
            OpenArgument::Rest { form, held } => self.write_rest(form, &held, out),
            OpenArgument::None | OpenArgument::Dropped => {}
        }
    }

    /// Writes the rest of arguments that stopped being strict JSON.
    fn write_rest(&mut self, form: ArgumentEncoding, text: &str, out: &mut CallOutput<'_>) {
        let is_first = self.given.is_empty();
        let Some((_, arguments)) = out.checker.parse_trailing_arguments(form, text, is_first)
        else {
            self.mark_broken(format!(
                "the arguments of the call of `{}` are no JSON object",
                self.tool
            ));
            return;
        };
        for argument in arguments {
            if let Some(name) = self.resolve_name(&argument.name, out) {
                self.write_whole(&name, argument.form, &argument.text, out);
            }
        }
    }

    /// Types and writes a complete value.
    fn write_whole(
        &mut self,
        name: &str,
        form: ArgumentEncoding,
        text: &str,
        out: &mut CallOutput<'_>,
    ) {
        let tool = out.checker.tools().get(&self.tool);
        let typed = tool.map_or(CoercionOutcome::AsWritten, |tool| {
            out.checker.coerce_argument(tool, name, form, text)
        });
        let value = match typed {
            CoercionOutcome::LeftOut(_) => {
                // The value is not sent, so its name can be used again, and the next value may have
                // to open the object.
                self.given.retain(|given| given != name);
                return;
            }
            CoercionOutcome::Value(value, _) => Some(value),
            CoercionOutcome::AsWritten if form == ArgumentEncoding::Json => {
                serde_json::from_str(text).ok()
            }
            CoercionOutcome::AsWritten => Some(Value::from(text)),
            CoercionOutcome::Unreadable => None,
        };
        match value {
            Some(value) => {
                // The name is written here, because a value that is left out has none; `given`
                // holds it already.
                let position = self.given.iter().position(|given| given == name);
                let is_first = position == Some(0) || position.is_none();
                write_name(name, is_first, out);
                out.pieces.push_str(&value.to_string());
            }
            None => self.mark_broken(format!(
                "the argument `{name}` of the call of `{}` is not JSON",
                self.tool
            )),
        }
    }

    /// Returns the name under which an argument is sent; `None` if one of that name was sent before.
    fn resolve_name(&mut self, name: &str, out: &CallOutput<'_>) -> Option<String> {
        let tool = out.checker.tools().get(&self.tool);
        let meant = tool.and_then(|tool| out.checker.guess_argument(tool, name, &self.given));
        let name = meant.map_or_else(|| name.to_owned(), |(_, meant)| meant);
        if self.given.contains(&name) {
            // The client could keep either value, and nobody knows which one was meant.
            self.mark_broken(format!(
                "`{name}` is given twice in the call of `{}`",
                self.tool
            ));
            return None;
        }
        self.given.push(name.clone());
        Some(name)
    }

    fn write_name(&self, name: &str, out: &mut CallOutput<'_>) {
        write_name(name, self.given.len() <= 1, out);
    }

    /// Records that the call cannot be completed. The first reason stays.
    fn mark_broken(&mut self, message: String) {
        self.broken.get_or_insert(message);
    }
}

impl SourceWindow {
    /// Replaces the chunk by the one that follows it.
    fn advance_to(&mut self, chunk: &str) {
        // The offset counts all chunks before, also those that are kept no longer.
        self.start = self.start.saturating_add(self.chunk.len());
        self.chunk.clear();
        self.chunk.push_str(chunk);
    }

    /// Returns the byte at that offset of the text if it is in the chunk.
    fn byte_at(&self, at: usize) -> Option<u8> {
        let at = at.checked_sub(self.start)?;
        self.chunk.as_bytes().get(at).copied()
    }
}

/// Writes the name of an argument, and what precedes it.
fn write_name(name: &str, is_first: bool, out: &mut CallOutput<'_>) {
    out.pieces.push(if is_first { '{' } else { ',' });
    out.pieces.push('"');
    push_escaped(&mut out.pieces, name);
    out.pieces.push_str("\":");
}

/// Appends a text as it is written between the quotes of a JSON string.
fn push_escaped(out: &mut String, text: &str) {
    let quoted = Value::from(text).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|quoted| quoted.strip_suffix('"'));
    out.push_str(inner.unwrap_or_default());
}

/// Returns true if a call with this fault cannot be read. Other faults are left to the client's own validation, as with a native API.
fn is_unreadable(fault: &Fault) -> bool {
    let is_readable = matches!(
        fault.kind,
        FaultKind::UnknownTool
            | FaultKind::UnknownArgument
            | FaultKind::MissingArgument
            | FaultKind::WrongType
            | FaultKind::InvalidValue
            | FaultKind::Placeholder
    );
    fault.severity == Severity::Error && !is_readable
}
