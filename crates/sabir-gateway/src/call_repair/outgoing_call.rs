//! A call on its way to the client while it is written: each argument as the tool's schema wants it.
//!
//! The main decision: **a string goes out as it comes, anything else when it is whole.** Between tags only the schema says whether
//! `10` is a number, so what is no string waits for its end and is typed by the gates' own coercion. Of a list or an object
//! that came as one and that the schema wants, only the first [`MAX_HELD_JSON`] bytes wait: what is longer goes out from there on, as long
//! as it is strict JSON.
//!
//! The first line feed of a raw value may be content or the dialect's wrapper, which is known at its end only. A value that begins
//! with none is certain and goes out at once. One that does waits up to [`MAX_HELD_START`] bytes, or to its end where the client takes the
//! call in one piece, and is exact. A longer one has gone out by then: there a line feed behind the opening tag is the wrapper's,
//! whether or not another stands before the closing tag, and it is told where it was not.

use sabir_call::{ArgForm, Event, EventSink};
use sabir_check::{CallChecker, CoercionOutcome, StreamingMode};
use serde_json::Value;

use super::fingerprint::{ArgumentFingerprint, CallFingerprint};
use super::repair_log::RepairLog;
use super::strict_json::StrictJson;

/// The most bytes of a raw string that wait for their beginning to be certain.
pub(crate) const MAX_HELD_START: usize = 64;

/// The most bytes of a list or an object that wait for its end.
pub(crate) const MAX_HELD_JSON: usize = 4096;

/// What a call needs to go out.
pub(crate) struct CallSink<'a, 'n, S> {
    pub(crate) checker: &'a CallChecker,
    pub(crate) diary: &'a mut RepairLog<'n>,
    pub(crate) out: &'a mut S,
}

/// A call that goes out while it comes.
#[derive(Debug)]
pub(crate) struct OutgoingCall {
    /// Its index in the client's answer.
    index: u32,
    /// The tool, by its declared name.
    tool: String,
    /// The arguments so far, by the names that they went out with.
    given: Vec<String>,
    argument: OpenArgument,
    print: CallFingerprint,
    /// The most bytes of a raw string that wait for their beginning to be certain.
    opening: usize,
    /// Why it cannot be read.
    broken: Option<String>,
}

/// The argument that is open.
#[derive(Debug)]
enum OpenArgument {
    None,
    /// It goes out as it comes; of JSON it is known whether it is strict.
    Open(ArgumentFingerprint, Option<StrictJson>),
    /// A raw string that is short so far.
    Opening(ArgumentFingerprint, String),
    /// JSON of which nothing but white space has come.
    Json(String, String),
    /// A list or an object that is short so far.
    Short(String, String, StrictJson),
    /// It waits for its end.
    Waiting(String, ArgForm, String),
    /// The text where the arguments stopped being strict JSON.
    Rest(ArgForm, String),
    /// It was given before.
    Duplicate,
}

impl OutgoingCall {
    /// A call of a declared tool, which has been opened. So many bytes of a raw string wait for their beginning to be certain.
    pub(crate) fn new(index: u32, tool: &str, opening: usize) -> Self {
        let (tool, given, argument) = (tool.to_owned(), Vec::new(), OpenArgument::None);
        Self { index, tool, given, argument, print: CallFingerprint::default(), opening, broken: None }
    }

    /// What it says.
    pub(crate) fn fingerprint(&self) -> CallFingerprint {
        self.print
    }

    /// Ends it; or says why it cannot be read.
    pub(crate) fn end_call<S: EventSink>(&self, desk: &mut CallSink<'_, '_, S>) -> Result<(), String> {
        match &self.broken {
            Some(broken) => Err(broken.clone()),
            None => {
                desk.out.push_event(Event::CallEnd { index: self.index, at: 0 });
                Ok(())
            }
        }
    }

    /// An argument opens.
    pub(crate) fn start_argument<S: EventSink>(&mut self, name: &str, form: ArgForm, desk: &mut CallSink<'_, '_, S>) {
        if name.is_empty() && form != ArgForm::Raw {
            self.argument = OpenArgument::Rest(form, String::new());
            return;
        }
        let Some(name) = self.resolve_name(name, desk) else {
            self.argument = OpenArgument::Duplicate;
            return;
        };
        let passage = |desk: &CallSink<'_, '_, S>| {
            let tool = desk.checker.tools().get(&self.tool);
            tool.map_or(StreamingMode::Whole, |tool| desk.checker.streaming_mode(tool, &name, form, None))
        };
        self.argument = match form {
            ArgForm::Json => OpenArgument::Json(name, String::new()),
            _ if passage(desk) == StreamingMode::Whole => OpenArgument::Waiting(name, form, String::new()),
            _ => {
                self.emit_start(&name, ArgForm::String, desk);
                let print = ArgumentFingerprint::for_string(&name);
                if form == ArgForm::Raw {
                    OpenArgument::Opening(print, String::new())
                } else {
                    OpenArgument::Open(print, None)
                }
            }
        };
    }

    /// The beginning of the open argument is certain.
    pub(crate) fn confirm_start(&mut self) {
        if let OpenArgument::Opening(print, held) = &self.argument
            && held.is_empty()
        {
            self.argument = OpenArgument::Open(print.clone(), None);
        }
    }

    /// A piece of the open argument.
    pub(crate) fn push_delta<S: EventSink>(&mut self, text: &str, desk: &mut CallSink<'_, '_, S>) {
        let index = self.index;
        match &mut self.argument {
            OpenArgument::Open(print, strict) => {
                // What is no JSON goes no further, and the call with it.
                if strict.as_mut().is_none_or(|strict| strict.push(text)) {
                    print.push(text);
                    desk.out.push_event(Event::ArgDelta { index, text });
                }
            }
            OpenArgument::Opening(print, held) => {
                held.push_str(text);
                if held.len() > self.opening {
                    print.push(held);
                    desk.out.push_event(Event::ArgDelta { index, text: held });
                    self.argument = OpenArgument::Open(print.clone(), None);
                }
            }
            OpenArgument::Json(name, held) => {
                held.push_str(text);
                if let Some(first) = held.trim_ascii_start().bytes().next() {
                    let (name, held) = (std::mem::take(name), std::mem::take(held));
                    self.start_json(name, first, desk);
                    self.push_delta(&held, desk);
                }
            }
            OpenArgument::Short(name, held, strict) => {
                held.push_str(text);
                let (name, held, right) = (name, held, strict.push(text));
                if !right {
                    self.argument = OpenArgument::Waiting(std::mem::take(name), ArgForm::Json, std::mem::take(held));
                } else if held.len() > MAX_HELD_JSON {
                    let (name, held, strict) = (std::mem::take(name), std::mem::take(held), std::mem::take(strict));
                    self.flush_long(&name, &held, strict, desk);
                }
            }
            OpenArgument::Waiting(_, _, held) | OpenArgument::Rest(_, held) => held.push_str(text),
            OpenArgument::None | OpenArgument::Duplicate => {}
        }
    }

    /// The first byte of a JSON value is known: it waits for its end, or as long as it is short.
    fn start_json<S: EventSink>(&mut self, name: String, first: u8, desk: &mut CallSink<'_, '_, S>) {
        let tool = desk.checker.tools().get(&self.tool);
        let passage = tool.map(|tool| desk.checker.streaming_mode(tool, &name, ArgForm::Json, Some(first)));
        self.argument = match passage {
            Some(StreamingMode::Json) => OpenArgument::Short(name, String::new(), StrictJson::default()),
            _ => OpenArgument::Waiting(name, ArgForm::Json, String::new()),
        };
    }

    /// A list or an object is long: it goes out from now on.
    fn flush_long<S: EventSink>(&mut self, name: &str, held: &str, strict: StrictJson, desk: &mut CallSink<'_, '_, S>) {
        self.emit_start(name, ArgForm::Json, desk);
        let mut print = ArgumentFingerprint::for_json(name);
        print.push(held);
        self.emit_delta(held, desk);
        self.argument = OpenArgument::Open(print, Some(strict));
    }

    /// The open argument ends.
    pub(crate) fn end_argument<S: EventSink>(&mut self, lead: &str, desk: &mut CallSink<'_, '_, S>) {
        let index = self.index;
        match std::mem::replace(&mut self.argument, OpenArgument::None) {
            OpenArgument::Open(print, strict) => {
                if strict.is_some_and(|strict| !strict.is_whole()) {
                    self.mark_unreadable();
                }
                if !lead.is_empty() {
                    desk.diary.log_repair("first_line_feed", &self.tool);
                }
                self.print.add_argument(&print);
                desk.out.push_event(Event::ArgEnd { index, lead: "", at: 0 });
            }
            OpenArgument::Opening(mut print, held) => {
                let text = format!("{lead}{held}");
                print.push(&text);
                self.print.add_argument(&print);
                self.emit_delta(&text, desk);
                desk.out.push_event(Event::ArgEnd { index, lead: "", at: 0 });
            }
            OpenArgument::Json(name, held) | OpenArgument::Short(name, held, _) => {
                self.send_whole(&name, ArgForm::Json, &held, desk)
            }
            OpenArgument::Waiting(name, form, held) => self.send_whole(&name, form, &format!("{lead}{held}"), desk),
            OpenArgument::Rest(form, held) => self.parse_rest(form, &held, desk),
            OpenArgument::None | OpenArgument::Duplicate => {}
        }
    }

    /// The name that an argument goes out with; `None` if one of that name did.
    fn resolve_name<S: EventSink>(&mut self, name: &str, desk: &mut CallSink<'_, '_, S>) -> Option<String> {
        let tool = desk.checker.tools().get(&self.tool);
        let meant = tool.and_then(|tool| desk.checker.guess_argument(tool, name, &self.given));
        let name = meant.map_or_else(
            || name.to_owned(),
            |(rule, meant)| {
                desk.diary.log_repair(rule, &self.tool);
                meant
            },
        );
        if self.given.contains(&name) {
            let short: String = name.chars().take(60).collect();
            self.broken.get_or_insert_with(|| format!("`{short}` is given twice in the call of `{}`", self.tool));
            return None;
        }
        self.given.push(name.clone());
        Some(name)
    }

    /// Reads the text where the arguments stopped being strict JSON.
    fn parse_rest<S: EventSink>(&mut self, form: ArgForm, text: &str, desk: &mut CallSink<'_, '_, S>) {
        let Some((rules, arguments)) = desk.checker.parse_trailing_arguments(form, text, self.given.is_empty()) else {
            self.broken
                .get_or_insert_with(|| format!("the arguments of the call of `{}` are no JSON object", self.tool));
            return;
        };
        rules.into_iter().for_each(|rule| desk.diary.log_repair(rule, &self.tool));
        for argument in arguments {
            if let Some(name) = self.resolve_name(&argument.name, desk) {
                self.send_whole(&name, argument.form, &argument.text, desk);
            }
        }
    }

    fn mark_unreadable(&mut self) {
        self.broken.get_or_insert_with(|| format!("the arguments of the call of `{}` are no JSON", self.tool));
    }

    /// Sends an argument whose text is whole.
    fn send_whole<S: EventSink>(&mut self, name: &str, form: ArgForm, text: &str, desk: &mut CallSink<'_, '_, S>) {
        let tool = desk.checker.tools().get(&self.tool);
        let typed =
            tool.map_or(CoercionOutcome::AsWritten, |tool| desk.checker.coerce_argument(tool, name, form, text));
        match typed {
            CoercionOutcome::Unreadable => self.mark_unreadable(),
            CoercionOutcome::LeftOut(rule) => desk.diary.log_repair(rule, &self.tool),
            CoercionOutcome::AsWritten if form == ArgForm::Json => {
                let mut print = ArgumentFingerprint::for_json(name);
                print.push(text);
                self.send_argument(name, ArgForm::Json, text, desk);
                self.print.add_argument(&print);
            }
            CoercionOutcome::AsWritten => self.send_value(name, &Value::from(text), desk),
            CoercionOutcome::Value(value, rules) => {
                rules.into_iter().for_each(|rule| desk.diary.log_repair(rule, &self.tool));
                self.send_value(name, &value, desk);
            }
        }
    }

    /// Sends a value.
    pub(crate) fn send_value<S: EventSink>(&mut self, name: &str, value: &Value, desk: &mut CallSink<'_, '_, S>) {
        self.print.add_argument(&ArgumentFingerprint::of_value(name, value));
        match value {
            Value::String(text) => self.send_argument(name, ArgForm::String, text, desk),
            other => self.send_argument(name, ArgForm::Json, &other.to_string(), desk),
        }
    }

    fn send_argument<S: EventSink>(&self, name: &str, form: ArgForm, text: &str, desk: &mut CallSink<'_, '_, S>) {
        self.emit_start(name, form, desk);
        self.emit_delta(text, desk);
        desk.out.push_event(Event::ArgEnd { index: self.index, lead: "", at: 0 });
    }

    fn emit_start<S: EventSink>(&self, name: &str, form: ArgForm, desk: &mut CallSink<'_, '_, S>) {
        desk.out.push_event(Event::ArgStart { index: self.index, name, form, at: 0 });
    }

    fn emit_delta<S: EventSink>(&self, text: &str, desk: &mut CallSink<'_, '_, S>) {
        if !text.is_empty() {
            desk.out.push_event(Event::ArgDelta { index: self.index, text });
        }
    }
}
