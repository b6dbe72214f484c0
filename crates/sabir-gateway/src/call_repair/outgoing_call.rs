//! Sends a call to the client while the model writes it, with arguments typed according to the
//! tool's schema.
//!
//! The main decision: **strings are sent as they arrive, anything else when it is complete.**
//! Between tags only the schema tells whether `10` is a number, so a value that is not a string
//! waits for its end and is typed by the same coercion as in the checks. Of a JSON array or object
//! that the schema allows, only the first [`MAX_HELD_JSON`] bytes wait; a longer one is streamed
//! from there on, as long as it is strict JSON.
//!
//! The first line feed of a raw value may be content or the dialect's wrapper, which is known only
//! at the end of the value. A value without one is sent at once. A value with one waits for up to
//! [`MAX_HELD_START`] bytes, or to its end if the client gets the call in one piece, and is then
//! exact. Of a longer value the line feed is treated as the wrapper's; if that turns out to be
//! wrong, the repair `first_line_feed` is logged.

use sabir_call::{ArgumentEncoding, Event, EventSink, Truncation};
use sabir_check::{CallChecker, CoercionOutcome, StreamingMode};
use serde_json::Value;

use super::fingerprint::{ArgumentFingerprint, CallFingerprint};
use super::repair_log::RepairLog;
use super::strict_json::StrictJson;

/// The number of bytes of a raw string that are held back until its beginning is certain.
pub(crate) const MAX_HELD_START: usize = 64;

/// The number of bytes of an array or object that are held back until its end.
pub(crate) const MAX_HELD_JSON: usize = 4096;

/// The context for sending a call.
pub(crate) struct CallSink<'a, 'n, S> {
    /// The schemas and the coercion.
    pub(crate) checker: &'a CallChecker,
    /// The log of repairs.
    pub(crate) log: &'a mut RepairLog<'n>,
    /// The sink of the client's wire.
    pub(crate) out: &'a mut S,
}

/// A call that is sent while it arrives.
#[derive(Debug)]
pub(crate) struct OutgoingCall {
    /// The call's index in the client's response.
    index: u32,
    /// The tool's declared name.
    tool: String,
    /// The names of the arguments so far, as sent.
    given: Vec<String>,
    /// The argument that is arriving.
    argument: OpenArgument,
    /// The fingerprint of the arguments that have ended.
    print: CallFingerprint,
    /// The number of bytes of a raw string that are held back until its beginning is certain.
    opening: usize,
    /// The reason why the call is unreadable.
    broken: Option<UnreadableCall>,
}

/// A reason why a call is unreadable.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum UnreadableCall {
    /// The client could keep either of two values, and it is unknown which one was meant.
    #[error("`{argument}` is given twice in the call of `{tool}`")]
    Duplicate { argument: String, tool: String },
    /// The arguments as a whole cannot be read.
    #[error("the arguments of the call of `{0}` are not JSON object")]
    NoObject(String),
    /// A value that was announced as JSON is not JSON.
    #[error("the arguments of the call of `{0}` are not JSON")]
    NoJson(String),
}

/// The state of the open argument.
#[derive(Debug)]
enum OpenArgument {
    /// Between arguments.
    None,
    /// It is sent as it arrives; JSON is checked to be strict.
    Open(ArgumentFingerprint, Option<StrictJson>),
    /// A raw string that is still held back.
    Opening(ArgumentFingerprint, String),
    /// JSON of which only white space has arrived: its name and text.
    Json(String, String),
    /// An array or object that is still held back.
    Short(String, String, StrictJson),
    /// A value that waits for its end.
    Waiting(String, ArgumentEncoding, String),
    /// The rest of arguments that stopped being strict JSON.
    Rest(ArgumentEncoding, String),
    /// An argument that was given before.
    Duplicate,
}

impl OutgoingCall {
    /// Makes an open call of a declared tool. `opening` bytes of a raw string are held back until
    /// its beginning is certain.
    pub(crate) fn new(index: u32, tool: &str, opening: usize) -> Self {
        Self {
            index,
            tool: tool.to_owned(),
            given: Vec::new(),
            argument: OpenArgument::None,
            print: CallFingerprint::default(),
            opening,
            broken: None,
        }
    }

    /// Returns the fingerprint of the arguments sent so far.
    pub(crate) fn fingerprint(&self) -> CallFingerprint {
        self.print
    }

    /// Ends the call, or returns the reason why it is unreadable.
    pub(crate) fn end_call<S: EventSink>(
        &self,
        sink: &mut CallSink<'_, '_, S>,
    ) -> Result<(), UnreadableCall> {
        match &self.broken {
            Some(broken) => Err(broken.clone()),
            None => {
                sink.out.push_event(Event::CallEnd {
                    index: self.index,
                    at: 0,
                });
                Ok(())
            }
        }
    }

    /// Ends the call as cut by the output limit, so that the client can distinguish it from a
    /// complete one.
    pub(crate) fn cut_call<S: EventSink>(&self, sink: &mut CallSink<'_, '_, S>) {
        sink.out.push_event(Event::CallCut {
            index: self.index,
            why: Truncation::Limit,
            at: 0,
        });
    }

    /// Handles the start of an argument.
    pub(crate) fn start_argument<S: EventSink>(
        &mut self,
        name: &str,
        form: ArgumentEncoding,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        // The parser delivers unreadable rests of arguments as an argument without a name; it is
        // not the model's.
        if name.is_empty() && form != ArgumentEncoding::Raw {
            self.argument = OpenArgument::Rest(form, String::new());
            return;
        }
        let Some(name) = self.resolve_name(name, sink) else {
            self.argument = OpenArgument::Duplicate;
            return;
        };
        let mode = |sink: &CallSink<'_, '_, S>| {
            let tool = sink.checker.tools().get(&self.tool);
            tool.map_or(StreamingMode::Whole, |tool| {
                sink.checker.streaming_mode(tool, &name, form, None)
            })
        };
        self.argument = match form {
            // The schema may allow several types, and only the first byte shows which one it is.
            ArgumentEncoding::Json => OpenArgument::Json(name, String::new()),
            _ if mode(sink) == StreamingMode::Whole => {
                OpenArgument::Waiting(name, form, String::new())
            }
            _ => {
                self.emit_start(&name, ArgumentEncoding::String, sink);
                let print = ArgumentFingerprint::for_string(&name);
                if form == ArgumentEncoding::Raw {
                    OpenArgument::Opening(print, String::new())
                } else {
                    OpenArgument::Open(print, None)
                }
            }
        };
    }

    /// Records that the beginning of the open argument is certain, so that it need not be held
    /// back.
    pub(crate) fn confirm_start(&mut self) {
        if let OpenArgument::Opening(print, held) = &self.argument
            && held.is_empty()
        {
            self.argument = OpenArgument::Open(print.clone(), None);
        }
    }

    /// Handles a piece of the open argument.
    pub(crate) fn push_delta<S: EventSink>(&mut self, text: &str, sink: &mut CallSink<'_, '_, S>) {
        let index = self.index;
        match &mut self.argument {
            OpenArgument::Open(print, strict) => {
                // Invalid JSON is not sent on, and makes the call unreadable at its end.
                if strict.as_mut().is_none_or(|strict| strict.push(text)) {
                    print.push(text);
                    sink.out.push_event(Event::ArgDelta { index, text });
                }
            }
            // The limit keeps long values streaming; the report tells if the line feed was content.
            OpenArgument::Opening(print, held) => {
                held.push_str(text);
                if held.len() > self.opening {
                    print.push(held);
                    sink.out.push_event(Event::ArgDelta { index, text: held });
                    self.argument = OpenArgument::Open(print.clone(), None);
                }
            }
            OpenArgument::Json(name, held) => {
                held.push_str(text);
                if let Some(first) = held.trim_ascii_start().bytes().next() {
                    let name = std::mem::take(name);
                    let held = std::mem::take(held);
                    self.start_json(name, first, sink);
                    self.push_delta(&held, sink);
                }
            }
            OpenArgument::Short(name, held, strict) => {
                held.push_str(text);
                if !strict.push(text) {
                    self.argument = OpenArgument::Waiting(
                        std::mem::take(name),
                        ArgumentEncoding::Json,
                        std::mem::take(held),
                    );
                } else if held.len() > MAX_HELD_JSON {
                    let name = std::mem::take(name);
                    let held = std::mem::take(held);
                    let strict = std::mem::take(strict);
                    self.flush_long(&name, &held, strict, sink);
                }
            }
            OpenArgument::Waiting(_, _, held) | OpenArgument::Rest(_, held) => held.push_str(text),
            OpenArgument::None | OpenArgument::Duplicate => {}
        }
    }

    /// Handles the first byte of a JSON value, which decides whether a long value may be streamed.
    fn start_json<S: EventSink>(
        &mut self,
        name: String,
        first: u8,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        let tool = sink.checker.tools().get(&self.tool);
        let mode = tool.map(|tool| {
            sink.checker
                .streaming_mode(tool, &name, ArgumentEncoding::Json, Some(first))
        });
        self.argument = match mode {
            Some(StreamingMode::Json) => {
                OpenArgument::Short(name, String::new(), StrictJson::default())
            }
            _ => OpenArgument::Waiting(name, ArgumentEncoding::Json, String::new()),
        };
    }

    /// Begins to stream an array or object that has become long.
    fn flush_long<S: EventSink>(
        &mut self,
        name: &str,
        held: &str,
        strict: StrictJson,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        self.emit_start(name, ArgumentEncoding::Json, sink);
        let mut print = ArgumentFingerprint::for_json(name);
        print.push(held);
        self.emit_delta(held, sink);
        self.argument = OpenArgument::Open(print, Some(strict));
    }

    /// Handles the end of the open argument.
    pub(crate) fn end_argument<S: EventSink>(
        &mut self,
        lead: &str,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        let index = self.index;
        match std::mem::replace(&mut self.argument, OpenArgument::None) {
            OpenArgument::Open(print, strict) => {
                if strict.is_some_and(|strict| !strict.is_whole()) {
                    self.mark_unreadable();
                }
                if !lead.is_empty() {
                    sink.log.log_repair("first_line_feed", &self.tool);
                }
                self.print.add_argument(&print);
                sink.out.push_event(Event::ArgEnd {
                    index,
                    lead: "",
                    at: 0,
                });
            }
            OpenArgument::Opening(mut print, held) => {
                let text = format!("{lead}{held}");
                print.push(&text);
                self.print.add_argument(&print);
                self.emit_delta(&text, sink);
                sink.out.push_event(Event::ArgEnd {
                    index,
                    lead: "",
                    at: 0,
                });
            }
            OpenArgument::Json(name, held) | OpenArgument::Short(name, held, _) => {
                self.send_whole(&name, ArgumentEncoding::Json, &held, sink)
            }
            OpenArgument::Waiting(name, form, held) => {
                self.send_whole(&name, form, &format!("{lead}{held}"), sink)
            }
            OpenArgument::Rest(form, held) => self.parse_rest(form, &held, sink),
            OpenArgument::None | OpenArgument::Duplicate => {}
        }
    }

    /// Returns the name under which an argument is sent; `None` if one of that name was sent
    /// before.
    fn resolve_name<S: EventSink>(
        &mut self,
        name: &str,
        sink: &mut CallSink<'_, '_, S>,
    ) -> Option<String> {
        let tool = sink.checker.tools().get(&self.tool);
        let meant = tool.and_then(|tool| sink.checker.guess_argument(tool, name, &self.given));
        let name = meant.map_or_else(
            || name.to_owned(),
            |(rule, meant)| {
                sink.log.log_repair(rule, &self.tool);
                meant
            },
        );
        if self.given.contains(&name) {
            let short: String = name.chars().take(60).collect();
            self.broken
                .get_or_insert_with(|| UnreadableCall::Duplicate {
                    argument: short,
                    tool: self.tool.clone(),
                });
            return None;
        }
        self.given.push(name.clone());
        Some(name)
    }

    /// Reads the rest of arguments that stopped being strict JSON.
    fn parse_rest<S: EventSink>(
        &mut self,
        form: ArgumentEncoding,
        text: &str,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        let Some((rules, arguments)) =
            sink.checker
                .parse_trailing_arguments(form, text, self.given.is_empty())
        else {
            self.broken
                .get_or_insert_with(|| UnreadableCall::NoObject(self.tool.clone()));
            return;
        };
        rules
            .into_iter()
            .for_each(|rule| sink.log.log_repair(rule, &self.tool));
        for argument in arguments {
            if let Some(name) = self.resolve_name(&argument.name, sink) {
                self.send_whole(&name, argument.form, &argument.text, sink);
            }
        }
    }

    /// Records that a value is not JSON. The first reason stays.
    fn mark_unreadable(&mut self) {
        self.broken
            .get_or_insert_with(|| UnreadableCall::NoJson(self.tool.clone()));
    }

    /// Types and sends an argument whose text is complete.
    fn send_whole<S: EventSink>(
        &mut self,
        name: &str,
        form: ArgumentEncoding,
        text: &str,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        let tool = sink.checker.tools().get(&self.tool);
        let typed = tool.map_or(CoercionOutcome::AsWritten, |tool| {
            sink.checker.coerce_argument(tool, name, form, text)
        });
        match typed {
            CoercionOutcome::Unreadable => self.mark_unreadable(),
            CoercionOutcome::LeftOut(rule) => sink.log.log_repair(rule, &self.tool),
            CoercionOutcome::AsWritten if form == ArgumentEncoding::Json => {
                let mut print = ArgumentFingerprint::for_json(name);
                print.push(text);
                self.send_argument(name, ArgumentEncoding::Json, text, sink);
                self.print.add_argument(&print);
            }
            CoercionOutcome::AsWritten => self.send_value(name, &Value::from(text), sink),
            CoercionOutcome::Value(value, rules) => {
                rules
                    .into_iter()
                    .for_each(|rule| sink.log.log_repair(rule, &self.tool));
                self.send_value(name, &value, sink);
            }
        }
    }

    /// Sends a typed value.
    pub(crate) fn send_value<S: EventSink>(
        &mut self,
        name: &str,
        value: &Value,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        self.print
            .add_argument(&ArgumentFingerprint::of_value(name, value));
        match value {
            Value::String(text) => self.send_argument(name, ArgumentEncoding::String, text, sink),
            other => self.send_argument(name, ArgumentEncoding::Json, &other.to_string(), sink),
        }
    }

    /// Sends an argument whose text is final.
    fn send_argument<S: EventSink>(
        &self,
        name: &str,
        form: ArgumentEncoding,
        text: &str,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        self.emit_start(name, form, sink);
        self.emit_delta(text, sink);
        sink.out.push_event(Event::ArgEnd {
            index: self.index,
            lead: "",
            at: 0,
        });
    }

    /// Sends the start of an argument.
    fn emit_start<S: EventSink>(
        &self,
        name: &str,
        form: ArgumentEncoding,
        sink: &mut CallSink<'_, '_, S>,
    ) {
        sink.out.push_event(Event::ArgStart {
            index: self.index,
            name,
            form,
            at: 0,
        });
    }

    /// Sends a piece of an argument, unless it is empty.
    fn emit_delta<S: EventSink>(&self, text: &str, sink: &mut CallSink<'_, '_, S>) {
        if !text.is_empty() {
            sink.out.push_event(Event::ArgDelta {
                index: self.index,
                text,
            });
        }
    }
}
