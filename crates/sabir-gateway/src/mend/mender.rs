//! The sink between a model's events and the client: what goes out, what waits, and what never goes.
//!
//! | a call | goes out |
//! | --- | --- |
//! | of a declared tool | while it comes, typed ([`Outgoing`]) |
//! | of a tool that is not declared | when it is whole, since its arguments may say which tool is meant |
//! | that may be a repetition of another | when it is whole, unless it is one |
//! | of any kind, where the model may be asked again | when it passed the gates |
//! | behind the only one that was asked for, or where none was | never |
//!
//! Waiting calls keep their order among each other. Words do not wait for them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_call::{
    Cut, Draft, Event, Fault, FaultKind, ModelError, ModelErrorKind, Parallel, Request, Severity, Sink, StopReason,
    ToolChoice, Usage,
};
use sabir_check::{CallState, Checked, Checker, RULES, Repetition};

use super::diary::Diary;
use super::twin::Print;
use super::typed::{Desk, Outgoing};
use super::words::Words;
use super::{Mending, Terms, again};

/// A sink that sets right what can be set right, and hands everything on to `out`.
pub(crate) struct Mender<'n, S> {
    out: S,
    terms: Terms,
    checker: Checker,
    diary: Diary<'n>,
    attempt: Attempt,
    sent: Sent,
    told: Repetition,
    over: Arc<AtomicBool>,
}

/// One answer of the model.
#[derive(Default)]
pub(crate) struct Attempt {
    /// Which, from 0.
    pub(crate) number: u32,
    pub(crate) calls: Vec<Call>,
    /// The calls that wait; where the model may be asked again, all that it said.
    pub(crate) draft: Draft,
    words: Words,
    thoughts: Words,
    usage: Usage,
    stop: Option<(StopReason, String)>,
    pub(crate) trouble: Option<Trouble>,
    /// Nothing that follows goes out, once the calls that are going out have ended.
    enough: bool,
}

/// What went out, in all attempts.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// How many calls were opened.
    calls: u32,
    ids: HashSet<String>,
    /// Whether any words were said.
    words: bool,
    /// What earlier attempts cost.
    usage: Usage,
}

/// A call that cannot go to the client, or one that is missing.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    /// What is wrong, for the client.
    pub(crate) message: String,
    /// Whether the output limit is the reason.
    pub(crate) limit: bool,
    /// What the gates say of the call.
    pub(crate) checked: Option<Checked>,
}

/// A call of an attempt.
pub(crate) struct Call {
    /// Its index among the model's.
    pub(crate) index: u32,
    id: Option<String>,
    /// The tool that is meant, as far as it is known.
    name: String,
    dialect: Option<String>,
    way: Way,
    pub(crate) end: End,
    /// Why it cannot be read, by the parser.
    broken: Option<String>,
}

enum Way {
    /// It goes out as it comes.
    Going(Outgoing),
    /// It waits, in the draft.
    Waiting,
    /// It has gone out.
    Gone(Print),
    /// It never goes out.
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Closed,
    Cut(Cut),
}

/// What follows an attempt.
pub(crate) enum Next {
    /// The answer is complete.
    Done,
    /// It cannot be completed.
    Failed(ModelError),
    /// This is to be asked.
    Ask(Box<Request>),
}

impl<'n, S: Sink> Mender<'n, S> {
    /// For answers to that request.
    pub(crate) fn new(request: &Request, mending: Mending, diary: Diary<'n>, out: S) -> Self {
        let terms = Terms::of(request, mending);
        let mut mender = Self {
            out,
            terms,
            checker: Checker::new(request.tools.clone()),
            diary,
            attempt: Attempt::default(),
            sent: Sent::default(),
            told: Repetition::default(),
            over: Arc::default(),
        };
        mender.attempt = mender.begin(0);
        mender
    }

    fn begin(&self, number: u32) -> Attempt {
        let words = || match self.terms.reads {
            true => Words::new(self.checker.tools().known().map(|tool| tool.name.as_str())),
            false => Words::default(),
        };
        Attempt { number, words: words(), thoughts: words(), ..Attempt::default() }
    }

    /// Set when nothing more of the answer is wanted.
    pub(crate) fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// The sink, and what was done.
    pub(crate) fn into_parts(self) -> (S, Diary<'n>) {
        (self.out, self.diary)
    }

    /// The model's answer has ended, or failed, or was given up because nothing more of it was wanted.
    pub(crate) fn ended(&mut self, request: &Request, result: Result<(), ModelError>) -> Next {
        if self.terms.passes {
            return result.map_or_else(Next::Failed, |()| Next::Done);
        }
        self.finish_words();
        self.settle(true);
        self.sent.usage.add(self.attempt.usage);
        if let Err(error) = result {
            return Next::Failed(error);
        }
        let trouble = self.attempt.trouble.take().or_else(|| self.missing());
        match trouble {
            None => self.done(),
            Some(trouble) if self.terms.tries == 0 => {
                self.diary.mended("broken_call", trouble.checked.as_ref().map_or("", |checked| &checked.name));
                Next::Failed(trouble.error())
            }
            // What went out is whole, and the client answers it; the model will come back to the rest.
            Some(_) if self.sent.calls > 0 => {
                self.diary.mended("dropped_call", "");
                self.done()
            }
            Some(trouble) if self.attempt.number < self.terms.tries => self.again(request, &trouble),
            Some(_) if self.sent.words => {
                self.diary.mended("given_up", "");
                self.done()
            }
            Some(trouble) => Next::Failed(trouble.error()),
        }
    }

    fn again(&mut self, request: &Request, trouble: &Trouble) -> Next {
        let number = self.attempt.number + 1;
        let (request, feedback) = again::request(request, &self.attempt, trouble, &self.told);
        let faults = trouble.checked.as_ref().map(|checked| sabir_check::Told {
            tool: &checked.name,
            passed: false,
            faults: &checked.faults,
        });
        self.told.note(faults);
        self.diary.again(number, &feedback);
        self.over.store(false, Ordering::Relaxed);
        self.attempt = self.begin(number);
        Next::Ask(Box::new(request))
    }

    /// What the answer lacks, where the model can be told.
    fn missing(&self) -> Option<Trouble> {
        if self.terms.tries == 0 || self.sent.calls > 0 {
            return None;
        }
        let unread = |fault: &&Fault| {
            fault.call.is_none() && fault.severity == Severity::Error && fault.kind != FaultKind::Provider
        };
        let message = match (&self.terms.choice, self.attempt.draft.faults.iter().find(unread)) {
            (ToolChoice::None, _) => return None,
            (_, Some(fault)) => fault.message.clone(),
            (ToolChoice::Required, _) => "the answer must hold a call, and holds none".to_owned(),
            (ToolChoice::Tool(name), _) => format!("the answer must call `{name}`, and does not"),
            (ToolChoice::Auto, _) => return None,
        };
        Some(Trouble { message, limit: false, checked: None })
    }

    /// Says why the answer ended.
    fn done(&mut self) -> Next {
        let (reason, raw) = self.attempt.stop.take().unwrap_or((StopReason::End, String::new()));
        let (reason, raw) = match reason {
            _ if self.sent.calls > 0 => (StopReason::Calls, ""),
            StopReason::Calls => (StopReason::End, ""),
            reason => (reason, raw.as_str()),
        };
        self.out.event(Event::Stop { reason, raw });
        Next::Done
    }

    fn finish_words(&mut self) {
        let (out, Attempt { words, thoughts, .. }) = (&mut self.out, &mut self.attempt);
        let mut dropped = thoughts.finish(&mut |text| out.event(Event::Thought { text }));
        let said = &mut self.sent.words;
        dropped += words.finish(&mut |text| {
            *said |= !text.trim().is_empty();
            out.event(Event::Text { text });
        });
        for _ in 0..dropped {
            self.diary.mended("markup", "");
        }
    }

    fn say(&mut self, text: &str) {
        let spoken = |call: &Call| call.dialect.is_some() && matches!(call.way, Way::Gone(_));
        // What follows the only call was written before its result could be known.
        if self.terms.parallel == Parallel::One && self.attempt.calls.iter().any(spoken) {
            self.attempt.enough |= !text.trim().is_empty();
            return self.rest();
        }
        if !self.terms.reads {
            self.sent.words |= !text.trim().is_empty();
            return self.out.event(Event::Text { text });
        }
        let (out, said) = (&mut self.out, &mut self.sent.words);
        self.attempt.words.push(text, &mut |text| {
            *said |= !text.trim().is_empty();
            out.event(Event::Text { text });
        });
    }

    fn think(&mut self, text: &str) {
        let out = &mut self.out;
        if self.terms.reads {
            self.attempt.thoughts.push(text, &mut |text| out.event(Event::Thought { text }));
        } else {
            out.event(Event::Thought { text });
        }
    }

    /// Whether nothing more is wanted: no call is going out that has not ended.
    fn rest(&self) {
        let going = |call: &Call| call.end == End::Open && matches!(call.way, Way::Going(_) | Way::Waiting);
        if self.attempt.enough && !self.attempt.calls.iter().any(going) {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    fn call_start(&mut self, index: u32, id: Option<&str>, name: &str, dialect: Option<&str>) {
        // What was held of the words stands before the call.
        self.finish_words();
        let (meant, rule) = match self.checker.meant_tool(name) {
            Some((tool, rule)) => (Some(tool.name.clone()), rule),
            None => (None, None),
        };
        let call = Call {
            index,
            id: id.filter(|id| !id.is_empty()).map(str::to_owned),
            name: meant.clone().unwrap_or_else(|| name.to_owned()),
            dialect: dialect.map(str::to_owned),
            way: Way::Waiting,
            end: End::Open,
            broken: None,
        };
        let known = self.attempt.calls.iter().filter(|known| !matches!(known.way, Way::Dropped));
        let (mut extra, mut twin) = (false, false);
        for known in known {
            extra |= self.terms.parallel == Parallel::One;
            twin |= known.may_be(&call);
        }
        let mut call = call;
        if self.terms.choice == ToolChoice::None {
            self.diary.mended("unasked_call", &call.name);
            call.way = Way::Dropped;
        } else if extra {
            self.diary.mended("extra_call", &call.name);
            self.attempt.enough = true;
            call.way = Way::Dropped;
        } else if let (Some(tool), 0, false) = (meant, self.terms.tries, twin) {
            if let Some(rule) = rule {
                self.diary.mended(rule, &tool);
            }
            let outgoing = self.open(&call, &tool);
            call.way = Way::Going(outgoing);
        } else if self.terms.tries == 0 {
            self.attempt.draft.event(Event::CallStart { index, id, name, dialect, at: 0, name_at: 0 });
        }
        self.attempt.calls.push(call);
        self.rest();
    }

    /// Opens a call for the client.
    fn open(&mut self, call: &Call, name: &str) -> Outgoing {
        let index = self.sent.calls;
        self.sent.calls += 1;
        // An id that was seen before would make one call of two.
        let id = call.id.as_deref().filter(|id| self.sent.ids.insert((*id).to_owned()));
        let dialect = call.dialect.as_deref();
        self.diary.called(name, dialect);
        if dialect.is_some() && self.terms.native {
            self.diary.mended("leaked_call", name);
        }
        self.out.event(Event::CallStart { index, id, name, dialect, at: 0, name_at: 0 });
        Outgoing::new(index, name)
    }

    /// An event of one call.
    fn call_event(&mut self, index: u32, event: Event<'_>) {
        let Some(position) = self.attempt.calls.iter().rposition(|call| call.index == index) else { return };
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        match event {
            Event::CallEnd { .. } => call.end = End::Closed,
            Event::CallCut { why, .. } => call.end = End::Cut(why),
            _ => {}
        }
        let over = call.end != End::Open;
        match &mut call.way {
            Way::Going(outgoing) => {
                let desk = &mut Desk { checker: &self.checker, diary: &mut self.diary, out: &mut self.out };
                match event {
                    Event::ArgStart { name, form, .. } => outgoing.start(name, form, desk),
                    Event::ArgDelta { text, .. } => outgoing.delta(text, desk),
                    Event::ArgEnd { lead, .. } => outgoing.close(lead, desk),
                    _ => {}
                }
                if over {
                    self.end_going(position);
                }
            }
            Way::Waiting if self.terms.tries == 0 => self.attempt.draft.event(event),
            Way::Waiting | Way::Gone(_) | Way::Dropped => {}
        }
        if over {
            self.settle(false);
            self.rest();
        }
    }

    /// A call that was going out has ended.
    fn end_going(&mut self, position: usize) {
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        let Way::Going(outgoing) = std::mem::replace(&mut call.way, Way::Dropped) else { return };
        let desk = &mut Desk { checker: &self.checker, diary: &mut self.diary, out: &mut self.out };
        let broken = match (call.end, call.broken.take()) {
            (End::Cut(why), _) => Err(cut(&call.name, why)),
            (_, Some(broken)) => Err(broken),
            (_, None) => outgoing.end(desk),
        };
        let limit = call.end == End::Cut(Cut::Limit);
        call.way = Way::Gone(outgoing.print());
        if let Err(message) = broken {
            let limit = limit || self.attempt.is_short();
            self.trouble(Trouble { message, limit, checked: None });
        }
    }

    /// Something cannot go to the client. Where nobody can be asked again, nothing more is wanted.
    fn trouble(&mut self, trouble: Trouble) {
        if self.terms.tries == 0 {
            self.over.store(true, Ordering::Relaxed);
        }
        self.attempt.trouble.get_or_insert(trouble);
    }

    fn fault(&mut self, fault: &Fault) {
        self.diary.faulty(fault);
        let call = fault.call.and_then(|index| self.attempt.calls.iter_mut().rev().find(|call| call.index == index));
        let Some(call) = call else { return };
        let name = call.name.clone();
        match (&call.way, fault.severity) {
            (Way::Going(_), Severity::Error) if is_unreadable(fault) => {
                call.broken.get_or_insert_with(|| fault.message.clone());
            }
            (Way::Going(_), Severity::Warning) => {
                if let Some(rule) = rule(fault.kind.name()) {
                    self.diary.mended(rule, &name);
                }
            }
            (Way::Gone(_), Severity::Error) if is_unreadable(fault) => {
                self.trouble(Trouble { message: fault.message.clone(), limit: false, checked: None });
            }
            (Way::Waiting, _) if self.terms.tries == 0 => self.attempt.draft.event(Event::Fault(fault)),
            _ => {}
        }
    }

    /// Decides about waiting calls that have ended. `last`: nothing more will come.
    fn settle(&mut self, last: bool) {
        for position in 0..self.attempt.calls.len() {
            let Some(call) = self.attempt.calls.get(position).filter(|call| matches!(call.way, Way::Waiting)) else {
                continue;
            };
            let open = |other: &Call| other.end == End::Open && other.index != call.index && other.may_be(call);
            if call.end == End::Open && self.terms.tries > 0 {
                break;
            }
            if call.end != End::Open && (last || !self.attempt.calls.iter().any(open)) {
                self.judge(position);
            }
        }
    }

    /// Decides about a waiting call.
    fn judge(&mut self, position: usize) {
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        call.way = Way::Dropped;
        let Some(draft_call) = self.attempt.draft.call(call.index) else { return };
        // Behind what cannot be read, nothing goes out: it may build on it.
        if self.attempt.trouble.is_some() {
            return;
        }
        let checked = self.checker.check(&self.attempt.draft, draft_call);
        call.name.clone_from(&checked.name);
        let print = Print::of(&checked.arguments);
        let Some(call) = self.attempt.calls.get(position) else { return };
        let same = |other: &Call| matches!(other.way, Way::Gone(known) if known == print) && other.may_be(call);
        if self.attempt.calls.iter().any(same) {
            return self.diary.mended("doubled_call", &checked.name);
        }
        let error = |fault: &&Fault| fault.severity == Severity::Error;
        let wrong = match checked.state {
            CallState::Complete => self.not_asked(&checked.name),
            CallState::Cut => checked.faults.first().map(|fault| fault.message.clone()),
            CallState::Rejected if self.terms.tries > 0 => {
                checked.faults.iter().find(error).map(|fault| fault.message.clone())
            }
            CallState::Rejected => checked
                .faults
                .iter()
                .find(|fault| error(fault) && is_unreadable(fault))
                .map(|fault| fault.message.clone()),
        };
        if let Some(message) = wrong {
            let limit = call.end == End::Cut(Cut::Limit) || self.attempt.is_short();
            return self.trouble(Trouble { message, limit, checked: Some(checked) });
        }
        self.release(position, &checked, print);
    }

    /// Why a right call is none that was asked for; only said where the model can be told.
    fn not_asked(&self, name: &str) -> Option<String> {
        match &self.terms.choice {
            ToolChoice::Tool(wanted) if wanted != name && self.terms.tries > 0 => {
                Some(format!("the answer must call `{wanted}`, and calls `{name}`"))
            }
            _ => None,
        }
    }

    /// Sends a call that waited.
    fn release(&mut self, position: usize, checked: &Checked, print: Print) {
        for repair in &checked.repairs {
            if let Some(rule) = rule(&repair.rule) {
                self.diary.mended(rule, &checked.name);
            }
        }
        let Some(call) = self.attempt.calls.get_mut(position) else { return };
        let waiting = Call { way: Way::Dropped, ..std::mem::replace(call, Call::nobody()) };
        let mut outgoing = self.open(&waiting, &checked.name);
        let desk = &mut Desk { checker: &self.checker, diary: &mut self.diary, out: &mut self.out };
        for (name, value) in &checked.arguments {
            outgoing.value(name, value, desk);
        }
        let _ = outgoing.end(desk);
        if let Some(call) = self.attempt.calls.get_mut(position) {
            *call = Call { way: Way::Gone(print), ..waiting };
        }
    }
}

impl<S: Sink> Sink for Mender<'_, S> {
    fn event(&mut self, event: Event<'_>) {
        if self.terms.passes {
            return self.out.event(event);
        }
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        if self.terms.tries > 0 {
            self.attempt.draft.event(event);
        }
        match event {
            Event::Source { .. } | Event::Mark(_) => {}
            Event::Text { text } => self.say(text),
            Event::Thought { text } => self.think(text),
            Event::CallStart { index, id, name, dialect, .. } => self.call_start(index, id, name, dialect),
            Event::ArgStart { index, .. }
            | Event::ArgDelta { index, .. }
            | Event::ArgEnd { index, .. }
            | Event::CallEnd { index, .. }
            | Event::CallCut { index, .. } => self.call_event(index, event),
            Event::Fault(fault) => self.fault(fault),
            Event::Usage(usage) => {
                self.attempt.usage.update(usage);
                let mut all = self.sent.usage;
                all.add(self.attempt.usage);
                self.out.event(Event::Usage(all));
            }
            Event::Stop { reason, raw } => self.attempt.stop = Some((reason, raw.to_owned())),
            Event::Opaque(_) => self.out.event(event),
        }
    }
}

impl Attempt {
    /// Whether the output limit ended it.
    fn is_short(&self) -> bool {
        matches!(self.stop, Some((StopReason::Length, _)))
    }
}

impl Call {
    /// Whether both may be one call told twice: the same tool, as text and natively, or under the same id.
    fn may_be(&self, other: &Self) -> bool {
        let id = self.id.is_some() && self.id == other.id;
        self.name == other.name && (id || self.dialect.is_some() != other.dialect.is_some())
    }

    /// Stands for a call while it is taken out.
    fn nobody() -> Self {
        let (name, way, end) = (String::new(), Way::Dropped, End::Closed);
        Self { index: 0, id: None, name, dialect: None, way, end, broken: None }
    }

    /// Whether the model has to be told of it.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.way, Way::Dropped | Way::Waiting)
    }
}

impl Trouble {
    /// What the client is told. What more room would have mended is no use to ask again.
    fn error(self) -> ModelError {
        let kind = if self.limit { ModelErrorKind::Rejected } else { ModelErrorKind::Format };
        ModelError { kind, message: format!("the model's call cannot be used: {}", self.message) }
    }
}

/// Whether a call with this fault cannot be read. Everything else is for whoever knows the tool to say: a client's own
/// validation answers the model as it would behind a native API.
fn is_unreadable(fault: &Fault) -> bool {
    !matches!(
        fault.kind,
        FaultKind::UnknownTool
            | FaultKind::UnknownArgument
            | FaultKind::MissingArgument
            | FaultKind::WrongType
            | FaultKind::InvalidValue
            | FaultKind::Placeholder
    )
}

fn cut(name: &str, why: Cut) -> String {
    let why = match why {
        Cut::Limit => "the output limit was reached inside it; ask for more tokens, or for less in one call",
        Cut::Ended => "the message ended inside it",
        Cut::Broken => "the connection to the model broke inside it",
        Cut::Cancelled => "it was cancelled",
    };
    format!("the call of `{name}` was cut: {why}")
}

/// The repair rule of that name.
fn rule(name: &str) -> Option<&'static str> {
    RULES.iter().find(|rule| rule.name == name).map(|rule| rule.name)
}
