//! A call on its way to the client while it is written: each argument as the tool's schema wants it.
//!
//! The main decision: **a string goes out as it comes, anything else when it is whole.** Between tags only the schema says whether
//! `10` is a number, so what is no string waits for its end and is typed by the gates' own coercion. Of a list or an object
//! that came as one and that the schema wants, only the first [`LONG`] bytes wait: what is longer goes out from there on, as long
//! as it is strict JSON.
//!
//! The first line feed of a raw value may be content or the dialect's wrapper, which is known at its end only. A value that begins
//! with none is certain and goes out at once. One that does waits up to [`OPENING`] bytes, or to its end where the client takes the
//! call in one piece, and is exact. A longer one has gone out by then: there a line feed behind the opening tag is the wrapper's,
//! whether or not another stands before the closing tag, and it is told where it was not.

use sabir_call::{ArgForm, Event, Sink};
use sabir_check::{Checker, Passage, Typed};
use serde_json::Value;

use super::diary::Diary;
use super::strict::Strict;
use super::twin::{ArgumentPrint, Print};

/// The most bytes of a raw string that wait for their beginning to be certain.
pub(crate) const OPENING: usize = 64;

/// The most bytes of a list or an object that wait for its end.
pub(crate) const LONG: usize = 4096;

/// What a call needs to go out.
pub(crate) struct Desk<'a, 'n, S> {
    pub(crate) checker: &'a Checker,
    pub(crate) diary: &'a mut Diary<'n>,
    pub(crate) out: &'a mut S,
}

/// A call that goes out while it comes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its index in the client's answer.
    index: u32,
    /// The tool, by its declared name.
    tool: String,
    /// The arguments so far, by the names that they went out with.
    given: Vec<String>,
    argument: Argument,
    print: Print,
    /// The most bytes of a raw string that wait for their beginning to be certain.
    opening: usize,
    /// Why it cannot be read.
    broken: Option<String>,
}

/// The argument that is open.
#[derive(Debug)]
enum Argument {
    None,
    /// It goes out as it comes; of JSON it is known whether it is strict.
    Open(ArgumentPrint, Option<Strict>),
    /// A raw string that is short so far.
    Opening(ArgumentPrint, String),
    /// JSON of which nothing but white space has come.
    Json(String, String),
    /// A list or an object that is short so far.
    Short(String, String, Strict),
    /// It waits for its end.
    Waiting(String, ArgForm, String),
    /// The text where the arguments stopped being strict JSON.
    Rest(ArgForm, String),
    /// It was given before.
    Doubled,
}

impl Outgoing {
    /// A call of a declared tool, which has been opened. So many bytes of a raw string wait for their beginning to be certain.
    pub(crate) fn new(index: u32, tool: &str, opening: usize) -> Self {
        let (tool, given, argument) = (tool.to_owned(), Vec::new(), Argument::None);
        Self { index, tool, given, argument, print: Print::default(), opening, broken: None }
    }

    /// What it says.
    pub(crate) fn print(&self) -> Print {
        self.print
    }

    /// Ends it; or says why it cannot be read.
    pub(crate) fn end<S: Sink>(&self, desk: &mut Desk<'_, '_, S>) -> Result<(), String> {
        match &self.broken {
            Some(broken) => Err(broken.clone()),
            None => {
                desk.out.event(Event::CallEnd { index: self.index, at: 0 });
                Ok(())
            }
        }
    }

    /// An argument opens.
    pub(crate) fn start<S: Sink>(&mut self, name: &str, form: ArgForm, desk: &mut Desk<'_, '_, S>) {
        if name.is_empty() && form != ArgForm::Raw {
            self.argument = Argument::Rest(form, String::new());
            return;
        }
        let Some(name) = self.name(name, desk) else {
            self.argument = Argument::Doubled;
            return;
        };
        let passage = |desk: &Desk<'_, '_, S>| {
            let tool = desk.checker.tools().get(&self.tool);
            tool.map_or(Passage::Whole, |tool| desk.checker.passage(tool, &name, form, None))
        };
        self.argument = match form {
            ArgForm::Json => Argument::Json(name, String::new()),
            _ if passage(desk) == Passage::Whole => Argument::Waiting(name, form, String::new()),
            _ => {
                self.open(&name, ArgForm::String, desk);
                let print = ArgumentPrint::string(&name);
                if form == ArgForm::Raw { Argument::Opening(print, String::new()) } else { Argument::Open(print, None) }
            }
        };
    }

    /// The beginning of the open argument is certain.
    pub(crate) fn begun(&mut self) {
        if let Argument::Opening(print, held) = &self.argument
            && held.is_empty()
        {
            self.argument = Argument::Open(print.clone(), None);
        }
    }

    /// A piece of the open argument.
    pub(crate) fn delta<S: Sink>(&mut self, text: &str, desk: &mut Desk<'_, '_, S>) {
        let index = self.index;
        match &mut self.argument {
            Argument::Open(print, strict) => {
                // What is no JSON goes no further, and the call with it.
                if strict.as_mut().is_none_or(|strict| strict.push(text)) {
                    print.push(text);
                    desk.out.event(Event::ArgDelta { index, text });
                }
            }
            Argument::Opening(print, held) => {
                held.push_str(text);
                if held.len() > self.opening {
                    print.push(held);
                    desk.out.event(Event::ArgDelta { index, text: held });
                    self.argument = Argument::Open(print.clone(), None);
                }
            }
            Argument::Json(name, held) => {
                held.push_str(text);
                if let Some(first) = held.trim_ascii_start().bytes().next() {
                    let (name, held) = (std::mem::take(name), std::mem::take(held));
                    self.json(name, first, desk);
                    self.delta(&held, desk);
                }
            }
            Argument::Short(name, held, strict) => {
                held.push_str(text);
                let (name, held, right) = (name, held, strict.push(text));
                if !right {
                    self.argument = Argument::Waiting(std::mem::take(name), ArgForm::Json, std::mem::take(held));
                } else if held.len() > LONG {
                    let (name, held, strict) = (std::mem::take(name), std::mem::take(held), std::mem::take(strict));
                    self.long(&name, &held, strict, desk);
                }
            }
            Argument::Waiting(_, _, held) | Argument::Rest(_, held) => held.push_str(text),
            Argument::None | Argument::Doubled => {}
        }
    }

    /// The first byte of a JSON value is known: it waits for its end, or as long as it is short.
    fn json<S: Sink>(&mut self, name: String, first: u8, desk: &mut Desk<'_, '_, S>) {
        let tool = desk.checker.tools().get(&self.tool);
        let passage = tool.map(|tool| desk.checker.passage(tool, &name, ArgForm::Json, Some(first)));
        self.argument = match passage {
            Some(Passage::Json) => Argument::Short(name, String::new(), Strict::default()),
            _ => Argument::Waiting(name, ArgForm::Json, String::new()),
        };
    }

    /// A list or an object is long: it goes out from now on.
    fn long<S: Sink>(&mut self, name: &str, held: &str, strict: Strict, desk: &mut Desk<'_, '_, S>) {
        self.open(name, ArgForm::Json, desk);
        let mut print = ArgumentPrint::json(name);
        print.push(held);
        self.say(held, desk);
        self.argument = Argument::Open(print, Some(strict));
    }

    /// The open argument ends.
    pub(crate) fn close<S: Sink>(&mut self, lead: &str, desk: &mut Desk<'_, '_, S>) {
        let index = self.index;
        match std::mem::replace(&mut self.argument, Argument::None) {
            Argument::Open(print, strict) => {
                if strict.is_some_and(|strict| !strict.is_whole()) {
                    self.unreadable();
                }
                if !lead.is_empty() {
                    desk.diary.mended("first_line_feed", &self.tool);
                }
                self.print.add(&print);
                desk.out.event(Event::ArgEnd { index, lead: "", at: 0 });
            }
            Argument::Opening(mut print, held) => {
                let text = format!("{lead}{held}");
                print.push(&text);
                self.print.add(&print);
                self.say(&text, desk);
                desk.out.event(Event::ArgEnd { index, lead: "", at: 0 });
            }
            Argument::Json(name, held) | Argument::Short(name, held, _) => {
                self.whole(&name, ArgForm::Json, &held, desk)
            }
            Argument::Waiting(name, form, held) => self.whole(&name, form, &format!("{lead}{held}"), desk),
            Argument::Rest(form, held) => self.rest(form, &held, desk),
            Argument::None | Argument::Doubled => {}
        }
    }

    /// The name that an argument goes out with; `None` if one of that name did.
    fn name<S: Sink>(&mut self, name: &str, desk: &mut Desk<'_, '_, S>) -> Option<String> {
        let tool = desk.checker.tools().get(&self.tool);
        let meant = tool.and_then(|tool| desk.checker.meant_argument(tool, name, &self.given));
        let name = meant.map_or_else(
            || name.to_owned(),
            |(rule, meant)| {
                desk.diary.mended(rule, &self.tool);
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
    fn rest<S: Sink>(&mut self, form: ArgForm, text: &str, desk: &mut Desk<'_, '_, S>) {
        let Some((rules, arguments)) = desk.checker.rest(form, text, self.given.is_empty()) else {
            self.broken
                .get_or_insert_with(|| format!("the arguments of the call of `{}` are no JSON object", self.tool));
            return;
        };
        rules.into_iter().for_each(|rule| desk.diary.mended(rule, &self.tool));
        for argument in arguments {
            if let Some(name) = self.name(&argument.name, desk) {
                self.whole(&name, argument.form, &argument.text, desk);
            }
        }
    }

    fn unreadable(&mut self) {
        self.broken.get_or_insert_with(|| format!("the arguments of the call of `{}` are no JSON", self.tool));
    }

    /// Sends an argument whose text is whole.
    fn whole<S: Sink>(&mut self, name: &str, form: ArgForm, text: &str, desk: &mut Desk<'_, '_, S>) {
        let tool = desk.checker.tools().get(&self.tool);
        let typed = tool.map_or(Typed::AsWritten, |tool| desk.checker.typed(tool, name, form, text));
        match typed {
            Typed::Unreadable => self.unreadable(),
            Typed::LeftOut(rule) => desk.diary.mended(rule, &self.tool),
            Typed::AsWritten if form == ArgForm::Json => {
                let mut print = ArgumentPrint::json(name);
                print.push(text);
                self.send(name, ArgForm::Json, text, desk);
                self.print.add(&print);
            }
            Typed::AsWritten => self.value(name, &Value::from(text), desk),
            Typed::Value(value, rules) => {
                rules.into_iter().for_each(|rule| desk.diary.mended(rule, &self.tool));
                self.value(name, &value, desk);
            }
        }
    }

    /// Sends a value.
    pub(crate) fn value<S: Sink>(&mut self, name: &str, value: &Value, desk: &mut Desk<'_, '_, S>) {
        self.print.add(&ArgumentPrint::of(name, value));
        match value {
            Value::String(text) => self.send(name, ArgForm::String, text, desk),
            other => self.send(name, ArgForm::Json, &other.to_string(), desk),
        }
    }

    fn send<S: Sink>(&self, name: &str, form: ArgForm, text: &str, desk: &mut Desk<'_, '_, S>) {
        self.open(name, form, desk);
        self.say(text, desk);
        desk.out.event(Event::ArgEnd { index: self.index, lead: "", at: 0 });
    }

    fn open<S: Sink>(&self, name: &str, form: ArgForm, desk: &mut Desk<'_, '_, S>) {
        desk.out.event(Event::ArgStart { index: self.index, name, form, at: 0 });
    }

    fn say<S: Sink>(&self, text: &str, desk: &mut Desk<'_, '_, S>) {
        if !text.is_empty() {
            desk.out.event(Event::ArgDelta { index: self.index, text });
        }
    }
}
