//! Prompted calling: a request with tools becomes a request of words alone, and the words that come back become calls.
//!
//! [`render_request`] teaches the tools and writes earlier calls and results as text; [`Prompted`] is a sink that parses
//! text events and passes everything else on. Between the two stands any model that can only write.
//!
//! Nothing in a rendered history can be mistaken for markup: calls read back as they were
//! ([`Dialect::render_call`](crate::dialect::Dialect::render_call)); an assistant's words that would read as a call are
//! put into a fence; a result stands between tags whose name holds a number that does not occur in it, so that no content
//! can close it.

use crate::dialect::{Dialect, Selection};
use crate::draft::Draft;
use crate::event::{Cut, Event, Sink, StopReason};
use crate::message::{Call, CallResult, Ending, Image, Message, Part, Role};
use crate::model::{Protocol, Request, ToolChoice, Wishes};
use crate::prompt::Lesson;
use crate::reader::Reader;
use crate::tool::ToolSet;

/// The request as a model without tool calling gets it: the tools taught in the system prompt, the history in words.
pub fn render_request(request: &Request, dialect: &Dialect) -> Request {
    let lesson = Lesson::of(request).teach(dialect);
    let system = match (request.system.trim_end(), lesson.as_str()) {
        ("", lesson) => lesson.to_owned(),
        (system, "") => system.to_owned(),
        (system, lesson) => format!("{system}\n\n{lesson}"),
    };
    Request {
        system,
        messages: request.messages.iter().map(|message| render_message(message, dialect, &request.tools)).collect(),
        tools: ToolSet::default(),
        servers: Vec::new(),
        choice: ToolChoice::Auto,
        protocol: Protocol::Native,
        model: request.model.clone(),
        sampling: request.sampling.clone(),
        wishes: Wishes { strict: Vec::new(), native: Vec::new(), ..request.wishes.clone() },
        ..*request
    }
}

/// One message in words. Images stay, those of a result right behind its words; thoughts and provider state are left out.
pub fn render_message(message: &Message, dialect: &Dialect, tools: &ToolSet) -> Message {
    let mut parts = Vec::new();
    let mut words = String::new();
    let mut calls: Vec<&Call> = Vec::new();
    for part in &message.parts {
        if !matches!(part, Part::Call(_)) {
            write_calls(&mut calls, dialect, tools, &mut words);
        }
        match part {
            Part::Text { text } if message.role == Role::Assistant => append(&mut words, &guard(text, dialect, tools)),
            Part::Text { text } => append(&mut words, text),
            Part::Call(call) => calls.push(call),
            Part::Result(result) => {
                append(&mut words, &render_result(result));
                show(&result.images, &mut words, &mut parts);
            }
            Part::Image(image) => show(std::slice::from_ref(image), &mut words, &mut parts),
            Part::ImageUrl { .. } => {
                parts.extend((!words.is_empty()).then(|| Part::text(std::mem::take(&mut words))));
                parts.push(part.clone());
            }
            Part::Thought { .. } | Part::Opaque(_) => {}
        }
    }
    write_calls(&mut calls, dialect, tools, &mut words);
    if !words.is_empty() || parts.is_empty() {
        // Providers refuse empty messages.
        parts.push(Part::text(if words.is_empty() { "(no words)".to_owned() } else { words }));
    }
    Message { role: message.role, parts }
}

fn write_calls(calls: &mut Vec<&Call>, dialect: &Dialect, tools: &ToolSet, words: &mut String) {
    if !calls.is_empty() {
        append(words, &dialect.render_calls(calls.drain(..), tools));
    }
}

/// Puts images behind the words so far.
fn show(images: &[Image], words: &mut String, parts: &mut Vec<Part>) {
    if !images.is_empty() && !words.is_empty() {
        parts.push(Part::text(std::mem::take(words)));
    }
    parts.extend(images.iter().cloned().map(Part::Image));
}

fn append(words: &mut String, text: &str) {
    if !words.is_empty() && !text.is_empty() {
        words.push_str("\n\n");
    }
    words.push_str(text);
}

/// A result in words: which tool, how it ended, and the content between tags that it cannot close.
pub fn render_result(result: &CallResult) -> String {
    let ending = match result.ending {
        Ending::Done => "",
        Ending::Failed => ", failed",
        Ending::Rejected => ", not run: the call was not understood",
        Ending::Denied => ", not run: denied",
        Ending::Interrupted => ", interrupted",
    };
    let mut number =
        result.content.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut tag = format!("result-{:04x}", number & 0xffff);
    while result.content.contains(&tag) {
        number = number.wrapping_add(1);
        tag = format!("result-{number:08x}");
    }
    format!("[{}{ending}]\n<{tag}>\n{}\n</{tag}>", result.name, result.content)
}

/// An assistant's words, in a fence where they would read as a call.
fn guard(text: &str, dialect: &Dialect, tools: &ToolSet) -> String {
    let mut draft = Draft::default();
    let mut reader = Reader::new(Selection::from_name(dialect.name).unwrap_or(Selection::AUTO), tools);
    reader.push(text, &mut draft);
    reader.finish(Cut::Ended, &mut draft);
    if draft.calls().next().is_none() {
        return text.to_owned();
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

/// A sink that reads calls out of text events, and those in special tokens out of thoughts, and hands everything on to
/// `out`.
///
/// Native calls that come all the same pass through; indexes of all kinds are counted together. The source, in which
/// positions count, is thoughts and text in the order in which they came.
#[derive(Debug)]
pub struct Prompted<S> {
    reader: Reader,
    thoughts: Reader,
    out: Numbered<S>,
    stop: Cut,
}

/// Keeps the indexes of two sources apart.
#[derive(Debug)]
struct Numbered<S> {
    out: S,
    next: u32,
    text: Vec<(u32, u32)>,
    thoughts: Vec<(u32, u32)>,
    native: Vec<(u32, u32)>,
}

impl<S: Sink> Prompted<S> {
    /// Reads the dialects of `selection`.
    pub fn new(selection: Selection, tools: &ToolSet, out: S) -> Self {
        let out = Numbered { out, next: 0, text: Vec::new(), thoughts: Vec::new(), native: Vec::new() };
        let reader = Reader::new(selection, tools);
        Self { thoughts: reader.twin(), reader, out, stop: Cut::Ended }
    }

    /// Ends the answer: a call that is still open in the text is cut, by the output limit if that was the provider's
    /// reason to stop, else by `why`. Returns the sink.
    pub fn finish(mut self, why: Cut) -> S {
        let why = if why == Cut::Ended { self.stop } else { why };
        let out = &mut self.out;
        self.thoughts.finish(why, &mut |event: Event<'_>| out.pass(event, Source::Thought));
        self.reader.finish(why, &mut |event: Event<'_>| out.pass(event, Source::Text));
        self.out.out
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Text,
    Thought,
    Native,
}

impl<S: Sink> Numbered<S> {
    fn pass(&mut self, event: Event<'_>, source: Source) {
        let known = match source {
            Source::Text => &mut self.text,
            Source::Thought => &mut self.thoughts,
            Source::Native => &mut self.native,
        };
        let mut number = |index: u32| match known.iter().rev().find(|(from, _)| *from == index) {
            Some((_, to)) => *to,
            None => {
                known.push((index, self.next));
                self.next = self.next.saturating_add(1);
                self.next - 1
            }
        };
        let event = match event {
            Event::CallStart { index, id, name, dialect, at, name_at } => {
                Event::CallStart { index: number(index), id, name, dialect, at, name_at }
            }
            Event::ArgStart { index, name, form, at } => Event::ArgStart { index: number(index), name, form, at },
            Event::ArgDelta { index, text } => Event::ArgDelta { index: number(index), text },
            Event::ArgEnd { index, lead, at } => Event::ArgEnd { index: number(index), lead, at },
            Event::CallEnd { index, at } => Event::CallEnd { index: number(index), at },
            Event::CallCut { index, why, at } => Event::CallCut { index: number(index), why, at },
            Event::Fault(fault) => {
                let mut fault = fault.clone();
                fault.call = fault.call.map(number);
                return self.out.event(Event::Fault(&fault));
            }
            other => other,
        };
        self.out.event(event);
    }
}

impl<S: Sink> Sink for Prompted<S> {
    fn event(&mut self, event: Event<'_>) {
        let out = &mut self.out;
        match event {
            Event::Text { text } => {
                out.pass(Event::Source { text }, Source::Text);
                self.reader.push(text, &mut |event: Event<'_>| out.pass(event, Source::Text));
                self.thoughts.pass(text.len());
            }
            Event::Thought { text } => {
                out.pass(Event::Source { text }, Source::Thought);
                self.thoughts.push(text, &mut |event: Event<'_>| out.pass(event, Source::Thought));
                self.reader.pass(text.len());
            }
            Event::Stop { reason, raw } => {
                if reason == StopReason::Length {
                    self.stop = Cut::Limit;
                }
                out.pass(Event::Stop { reason, raw }, Source::Native);
            }
            other => out.pass(other, Source::Native),
        }
    }
}
