//! Converts requests with tools to plain text, and text responses back to calls.
//!
//! [`render_request`] describes the tools in the prompt and writes earlier calls and results as
//! text. [`PromptedSink`] parses text events and forwards everything else. Together they give tool
//! calling to any model that can only write text.
//!
//! Nothing in a rendered history can be mistaken for markup. Calls are rendered so that they parse
//! back to the same calls ([`Dialect::render_call`](crate::dialect::Dialect::render_call)).
//! Assistant text that would parse as a call is put into a code fence. A result is enclosed in tags
//! whose name has a number that does not occur in the content, so no content can close it.

use crate::dialect::{Dialect, DialectSelection};
use crate::draft::DraftResponse;
use crate::event::{Event, EventSink, StopReason, Truncation};
use crate::fault::{Fault, Span};
use crate::message::{Call, CallResult, Image, Message, MessagePart, Role, ToolResultStatus};
use crate::model::{ClientBody, Request, RequestOptions, ToolChoice, ToolProtocol};
use crate::prompt::ToolInstructions;
use crate::reader::CallReader;
use crate::tool::ToolSet;

/// Renders a request for a model without tool calling: tools described in the system prompt,
/// history as text.
pub fn render_request(request: &Request, dialect: &Dialect) -> Request {
    let lesson = ToolInstructions::for_request(request).render_prompt(dialect);
    let system = match (request.system.trim_end(), lesson.as_str()) {
        ("", lesson) => lesson.to_owned(),
        (system, "") => system.to_owned(),
        (system, lesson) => format!("{system}\n\n{lesson}"),
    };
    Request {
        system,
        messages: request
            .messages
            .iter()
            .map(|message| render_message(message, dialect, &request.tools))
            .collect(),
        // The prompt describes them. If they were also sent natively, the model would have two ways
        // to call.
        tools: ToolSet::default(),
        servers: Vec::new(),
        tool_choice: ToolChoice::Auto,
        // To the wire this is a request without any tools.
        protocol: ToolProtocol::Native,
        model: request.model.clone(),
        sampling: request.sampling.clone(),
        instructions: Vec::new(),
        report: request.report.clone(),
        client_body: request.client_body.clone().map(|body| ClientBody {
            keeps_history: false,
            ..body
        }),
        dialects: request.dialects.clone(),
        options: RequestOptions {
            strict: Vec::new(),
            native: Vec::new(),
            ..request.options.clone()
        },
        ..*request
    }
}

/// Renders one message as text. Images are kept, those of a result right after its text; thoughts
/// and provider state are left out.
pub fn render_message(message: &Message, dialect: &Dialect, tools: &ToolSet) -> Message {
    let mut parts = Vec::new();
    let mut words = String::new();
    let mut calls: Vec<&Call> = Vec::new();
    for part in &message.parts {
        if !matches!(part, MessagePart::Call(_)) {
            write_calls(&mut calls, dialect, tools, &mut words);
        }
        match part {
            MessagePart::Text { text } if message.role == Role::Assistant => {
                append_paragraph(&mut words, &fence_if_call(text, dialect, tools))
            }
            MessagePart::Text { text } => append_paragraph(&mut words, text),
            MessagePart::Call(call) => calls.push(call),
            MessagePart::Result(result) => {
                append_paragraph(&mut words, &render_result(result));
                push_images(&result.images, &mut words, &mut parts);
            }
            MessagePart::Image(image) => {
                push_images(std::slice::from_ref(image), &mut words, &mut parts)
            }
            MessagePart::ImageUrl { .. } => {
                parts.extend(
                    (!words.is_empty()).then(|| MessagePart::text(std::mem::take(&mut words))),
                );
                parts.push(part.clone());
            }
            // Reasoning of earlier turns is not replayed as text: models imitate text that seems to
            // be theirs.
            MessagePart::Thought { .. } | MessagePart::Opaque(_) => {}
        }
    }
    write_calls(&mut calls, dialect, tools, &mut words);
    if !words.is_empty() || parts.is_empty() {
        // Providers refuse empty messages.
        parts.push(MessagePart::text(if words.is_empty() {
            "(no words)".to_owned()
        } else {
            words
        }));
    }
    Message {
        role: message.role,
        parts,
    }
}

/// Writes the collected calls as one group: a dialect may put a wrapper around all calls of a message.
fn write_calls(calls: &mut Vec<&Call>, dialect: &Dialect, tools: &ToolSet, words: &mut String) {
    if !calls.is_empty() {
        append_paragraph(words, &dialect.render_calls(calls.drain(..), tools));
    }
}

/// Flushes the text so far as a part, then appends the images.
fn push_images(images: &[Image], words: &mut String, parts: &mut Vec<MessagePart>) {
    if !images.is_empty() && !words.is_empty() {
        parts.push(MessagePart::text(std::mem::take(words)));
    }
    parts.extend(images.iter().cloned().map(MessagePart::Image));
}

/// Appends a text on its own line, so that a tag that begins a call comes first on its line.
///
/// Does not add a line end to an existing one. Otherwise each rendering of an already rendered text would add line ends before and after
/// its calls.
fn append_paragraph(words: &mut String, text: &str) {
    let has_line_end = words.ends_with('\n') || text.trim_start_matches('\r').starts_with('\n');
    if !words.is_empty() && !text.is_empty() && !has_line_end {
        words.push_str("\n\n");
    }
    words.push_str(text);
}

/// Renders a result as text: the tool, the outcome, and the content between tags that it cannot
/// close.
pub fn render_result(result: &CallResult) -> String {
    let ending = match result.ending {
        ToolResultStatus::Done => "",
        ToolResultStatus::Failed => ", failed",
        ToolResultStatus::Rejected => ", not run: the call was not understood",
        ToolResultStatus::Denied => ", not run: denied",
        ToolResultStatus::Interrupted => ", interrupted",
    };
    // A hash (FNV-1a) instead of a random number: the same history must render to the same bytes,
    // or the provider's prompt
    // cache misses.
    let mut number = result.content.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let mut tag = format!("result-{:04x}", number & 0xffff);
    // Ends, because a content has only finitely many tags and every number makes another one.
    while result.content.contains(&tag) {
        number = number.wrapping_add(1);
        tag = format!("result-{number:08x}");
    }
    format!(
        "[{}{ending}]\n<{tag}>\n{}\n</{tag}>",
        result.name, result.content
    )
}

/// Puts assistant text into a code fence if it would parse as a call.
fn fence_if_call(text: &str, dialect: &Dialect, tools: &ToolSet) -> String {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSelection::from(dialect), tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    // Only text that would be read as a call is changed; prose stays byte for byte.
    if draft.calls().next().is_none() {
        return text.to_owned();
    }
    // Longer than any run of backticks in the text, so the text cannot close the fence.
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

/// A sink that parses calls out of text events, and calls in special tokens out of thoughts, and
/// forwards all events to another sink.
///
/// Native calls pass through; calls from all sources are numbered together. Positions count in the
/// concatenation of thoughts and text, in order of arrival.
#[derive(Debug)]
pub struct PromptedSink<S> {
    reader: CallReader,
    thoughts: CallReader,
    out: RenumberingSink<S>,
    stop: Truncation,
    /// True once the provider said that the message is complete.
    is_complete: bool,
}

/// Assigns one common numbering to the calls of several sources.
#[derive(Debug)]
struct RenumberingSink<S> {
    out: S,
    next: u32,
    text: Vec<(u32, u32)>,
    thoughts: Vec<(u32, u32)>,
    native: Vec<(u32, u32)>,
    /// The calls in thoughts that no other call follows.
    drafts: Vec<ThoughtCall>,
    /// True inside a thought that is written into the text.
    in_thought: bool,
}

/// A call in a thought.
#[derive(Debug)]
struct ThoughtCall {
    /// The common number.
    index: u32,
    /// The opening markup.
    span: Span,
    source: EventSource,
}

impl<S: EventSink> PromptedSink<S> {
    /// Creates a sink that parses the dialects of `selection`.
    pub fn new(selection: DialectSelection<'_>, tools: &ToolSet, out: S) -> Self {
        Self::with_reader(CallReader::new(selection, tools), out)
    }

    /// Creates a sink that parses with a reader that has read nothing yet.
    pub fn with_reader(reader: CallReader, out: S) -> Self {
        let out = RenumberingSink {
            out,
            next: 0,
            text: Vec::new(),
            thoughts: Vec::new(),
            native: Vec::new(),
            drafts: Vec::new(),
            in_thought: false,
        };
        Self {
            thoughts: reader.reasoning_reader(),
            reader,
            out,
            stop: Truncation::Ended,
            is_complete: false,
        }
    }

    /// Emits a short held end of the text, because something else follows.
    fn flush_short_text(&mut self) {
        let out = &mut self.out;
        self.reader
            .flush_short_end(&mut |event: Event<'_>| out.forward_event(event, EventSource::Text));
    }

    /// Emits a short held end of the thought, because something else follows.
    fn flush_short_thought(&mut self) {
        let out = &mut self.out;
        self.thoughts.flush_short_end(&mut |event: Event<'_>| {
            out.forward_event(event, EventSource::Thought)
        });
    }

    /// Ends the response and returns the inner sink. A call still open in the text is cut, with
    /// reason [`Truncation::Limit`] if the provider stopped at the output limit, else with `why`.
    pub fn finish(mut self, why: Truncation) -> S {
        // Only a normal end is refined: a broken or cancelled stream stays what it was.
        let why = if why == Truncation::Ended {
            self.stop
        } else {
            why
        };
        if !self.is_complete {
            self.reader.reject_missing_last_close();
        }
        let out = &mut self.out;
        self.thoughts.finish(why, &mut |event: Event<'_>| {
            out.forward_event(event, EventSource::Thought)
        });
        self.reader.finish(why, &mut |event: Event<'_>| {
            out.forward_event(event, EventSource::Text)
        });
        self.out.out
    }
}

/// The origin of an event; each origin numbers its calls from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventSource {
    Text,
    Thought,
    Native,
}

impl<S: EventSink> RenumberingSink<S> {
    /// Rejects the calls in thoughts when a call of this source follows them.
    fn reject_thought_calls(&mut self, source: EventSource) {
        for draft in self.drafts.drain(..) {
            // The reader of the text knows about its own.
            if draft.source != source {
                let fault = Fault::call_in_thought(draft.index, draft.span);
                self.out.push_event(Event::Fault(&fault));
            }
        }
    }

    /// Forwards an event with the common number of its call.
    fn forward_event(&mut self, event: Event<'_>, source: EventSource) {
        if source == EventSource::Text {
            self.in_thought = match event {
                Event::Thought { .. } => true,
                Event::Text { .. } => false,
                Event::Mark(mark) => mark.role.is_in_thought().unwrap_or(self.in_thought),
                _ => self.in_thought,
            };
        }
        let is_draft = match source {
            EventSource::Text => self.in_thought,
            EventSource::Thought => true,
            EventSource::Native => false,
        };
        if let Event::CallStart { .. } = event
            && !is_draft
        {
            self.reject_thought_calls(source);
        }
        let known = match source {
            EventSource::Text => &mut self.text,
            EventSource::Thought => &mut self.thoughts,
            EventSource::Native => &mut self.native,
        };
        // From the end, because most events concern the latest call.
        let mut number = |index: u32| match known.iter().rev().find(|(from, _)| *from == index) {
            Some((_, to)) => *to,
            None => {
                known.push((index, self.next));
                self.next = self.next.saturating_add(1);
                self.next - 1
            }
        };
        let event = match event {
            Event::CallStart {
                index,
                id,
                name,
                dialect,
                at,
                name_at,
            } => Event::CallStart {
                index: number(index),
                id,
                name,
                dialect,
                at,
                name_at,
            },
            Event::ArgStart {
                index,
                name,
                form,
                at,
            } => Event::ArgStart {
                index: number(index),
                name,
                form,
                at,
            },
            Event::ArgDelta { index, text } => Event::ArgDelta {
                index: number(index),
                text,
            },
            Event::ArgEnd { index, lead, at } => Event::ArgEnd {
                index: number(index),
                lead,
                at,
            },
            Event::CallEnd { index, at } => Event::CallEnd {
                index: number(index),
                at,
            },
            Event::CallCut { index, why, at } => Event::CallCut {
                index: number(index),
                why,
                at,
            },
            Event::Fault(fault) => {
                let mut fault = fault.clone();
                fault.call = fault.call.map(number);
                return self.out.push_event(Event::Fault(&fault));
            }
            other => other,
        };
        if let Event::CallStart {
            index, at, name_at, ..
        } = event
            && is_draft
        {
            let span = Span::new(at, name_at);
            self.drafts.push(ThoughtCall {
                index,
                span,
                source,
            });
        }
        self.out.push_event(event);
    }
}

impl<S: EventSink> EventSink for PromptedSink<S> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Text { .. } => self.flush_short_thought(),
            Event::Thought { .. } => self.flush_short_text(),
            Event::CallStart { .. } => {
                self.flush_short_thought();
                self.flush_short_text();
            }
            // A signature belongs to the thought or text before it; details may come between two pieces of a marker.
            Event::Opaque(state) if !state.is_answer_detail() => {
                self.flush_short_thought();
                self.flush_short_text();
            }
            _ => {}
        }
        let out = &mut self.out;
        match event {
            Event::Text { text } => {
                out.forward_event(
                    Event::Source {
                        text,
                        is_thought: false,
                    },
                    EventSource::Text,
                );
                self.reader.push(text, &mut |event: Event<'_>| {
                    out.forward_event(event, EventSource::Text)
                });
                // Positions count over thoughts and text together, so the other reader skips this
                // text.
                self.thoughts.skip_bytes(text.len());
            }
            Event::Thought { text } => {
                // The server separates thoughts itself, so the text does not begin inside of one.
                self.reader.drop_prefill();
                out.forward_event(
                    Event::Source {
                        text,
                        is_thought: true,
                    },
                    EventSource::Thought,
                );
                self.thoughts.push(text, &mut |event: Event<'_>| {
                    out.forward_event(event, EventSource::Thought)
                });
                self.reader.skip_bytes(text.len());
            }
            Event::Stop { reason, raw } => {
                if reason == StopReason::Length {
                    self.stop = Truncation::Limit;
                }
                // A stop sequence may have hidden more of the call.
                self.is_complete = matches!(reason, StopReason::End | StopReason::Calls);
                out.forward_event(Event::Stop { reason, raw }, EventSource::Native);
            }
            other => out.forward_event(other, EventSource::Native),
        }
    }
}
