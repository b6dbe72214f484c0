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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_call::{Cut, Event, Fault, Parallel, Request, Severity, Sink, ToolChoice};
use sabir_check::{CallState, Checked, Checker, Repetition};

use super::attempt::{Attempt, Call, End, Sent, Trouble, Way, cut, is_unreadable, rule};
use super::diary::Diary;
use super::twin::Print;
use super::typed::{Desk, Outgoing};
use super::words::Words;
use super::{Mending, Taken, Terms};

/// A sink that sets right what can be set right, and hands everything on to `out`.
pub(crate) struct Mender<'n, S> {
    pub(super) out: S,
    pub(super) terms: Terms,
    pub(super) checker: Checker,
    pub(super) diary: Diary<'n>,
    pub(super) attempt: Attempt,
    pub(super) sent: Sent,
    pub(super) told: Repetition,
    pub(super) over: Arc<AtomicBool>,
}

impl<'n, S: Sink> Mender<'n, S> {
    /// For answers to that request, of which the client takes calls in that way.
    pub(crate) fn new(request: &Request, mending: Mending, taken: Taken, diary: Diary<'n>, out: S) -> Self {
        let terms = Terms::of(request, mending, taken);
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

    /// An attempt of which nothing has come.
    pub(super) fn begin(&self, number: u32) -> Attempt {
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

    /// What was done, for the client.
    pub(crate) fn report(&self) -> String {
        self.diary.report()
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
            call.way = Way::Going(Box::new(outgoing));
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
        Outgoing::new(index, name, self.terms.opening)
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
        let beginning = &mut self.attempt.beginning;
        match &mut call.way {
            Way::Going(outgoing) => {
                let desk = &mut Desk { checker: &self.checker, diary: &mut self.diary, out: &mut self.out };
                match event {
                    Event::ArgStart { name, form, at, .. } => {
                        beginning.open(index, at);
                        outgoing.start(name, form, desk);
                    }
                    Event::ArgDelta { text, .. } => {
                        if beginning.is_plain(index) {
                            outgoing.begun();
                        }
                        outgoing.delta(text, desk);
                    }
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
    pub(super) fn settle(&mut self, last: bool) {
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
            Event::Source { text } => self.attempt.beginning.push(text),
            Event::Mark(_) => {}
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
