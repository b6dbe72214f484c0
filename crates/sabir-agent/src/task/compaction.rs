//! Compaction: when the context is full, the beginning of the history is left out of what the model sees, and a head stands for it.
//!
//! What stays word for word: the instructions, the first words of the user and the later ones, the todos, the names of the files, and the
//! last turns, each with all its calls and results. Everything else is summarised, by the model in a request of its own, or by a line
//! for each call where that does not come to anything. Nothing is run, and nothing is lost: the history stays as it is.

use sabir_call::{Draft, DraftPart, Message, ModelErrorKind, Part, Protocol, Request, Role, Usage};

use super::charge::{Charge, tokens};
use super::past::message_bytes;
use super::{Effect, Input, Phase, Task, digest};
use crate::context::{Context, Fragment, fragment, summary};
use crate::event::Question;
use crate::record::{Answered, Author, Compacted, Record, Shift, Speaker, When, Why};

/// How often a request that was too long is asked again, each time with less.
const RECOVERIES: u32 = 3;
/// The share of the context that the last turns may keep, by how often there was too much.
const KEPT: [usize; 3] = [5, 20, usize::MAX];

/// What becomes of a user's wish to compact the context of a task that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// There is nothing that could be left out.
    Nothing,
    /// It is done now.
    Now,
    /// It is done before the model is asked for its next turn.
    Later,
}

/// What fills a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    /// The tokens of the next request: as the provider counted the last one, and bytes / 4 of what came since.
    pub tokens: u64,
    /// The tokens that there is room for, if that is known.
    pub window: Option<u64>,
    /// How full it may get before it is compacted, in percent.
    pub threshold: u8,
    /// How many messages of the history are left out, and how many there are.
    pub left_out: (usize, usize),
    /// What it consists of: a name, how many, and how many bytes.
    pub rows: Vec<(String, usize, usize)>,
}

/// What a compaction would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// How many messages more would be left out.
    pub messages: usize,
    /// How many would stay.
    pub stay: usize,
    /// The tokens of a request before it.
    pub before: u64,
    /// Those after it, with a summary that no model wrote.
    pub after: u64,
    /// What the model would read instead; the summary is the last of it.
    pub head: Vec<String>,
}

impl Filling {
    /// How full it is, in percent; `None` where nobody knows how much there is room for.
    pub fn percent(&self) -> Option<u64> {
        percent(self.tokens, self.window)
    }

    /// Bytes as tokens: bytes / 4.
    pub fn tokens_of(bytes: usize) -> u64 {
        tokens(bytes)
    }
}

impl Task {
    /// Puts the task into a context. Without it, nothing is told of the place and the room is not known.
    #[must_use]
    pub fn within(mut self, context: Context) -> Self {
        self.past.view.context = context;
        self
    }

    /// What fills the context of the next request.
    pub fn filling(&self) -> Filling {
        let (view, bytes) = (&self.past.view, self.past.bytes());
        let tools = self.settings.tools.iter();
        let tool_bytes = super::charge::fixed_bytes(&self.settings).saturating_sub(self.settings.system.len());
        let mut rows = vec![
            ("instructions".to_owned(), 1, self.settings.system.len()),
            ("tools".to_owned(), tools.count(), tool_bytes),
        ];
        rows.extend(view.prefix().iter().map(|one| (one.name.clone(), 1, one.words().len())));
        rows.extend(kinds(&self.past.shared()));
        Filling {
            tokens: view.tokens(bytes),
            window: view.window(),
            threshold: view.context.threshold,
            left_out: (view.from(), self.history().len()),
            rows,
        }
    }

    /// How full the context of the next request is, in percent, where it is known how much there is room for.
    pub fn filling_percent(&self) -> Option<u64> {
        percent(self.past.view.tokens(self.past.bytes()), self.past.view.window())
    }

    /// What would become of [`Input::Compact`] now.
    pub fn compaction(&self) -> Compaction {
        match self.phase {
            Phase::Over | Phase::Ending(..) | Phase::Summarising(_) => Compaction::Nothing,
            _ if self.cut(Why::Asked).is_none() => Compaction::Nothing,
            Phase::Paused => Compaction::Now,
            Phase::Acting if self.is_resting() => Compaction::Now,
            Phase::Acting | Phase::Asking => Compaction::Later,
        }
    }

    /// Whether it is the user's turn.
    fn is_resting(&self) -> bool {
        matches!(self.question, Some(Question::Next { .. }))
    }

    /// Why the model is being asked for a summary, and not for the next turn; `None`: it is not.
    pub fn summary_is_for(&self) -> Option<Why> {
        if let Phase::Summarising(why) = self.phase { Some(why) } else { None }
    }

    /// Whether the model is being asked for a summary, and not for the next turn.
    pub fn is_summarising(&self) -> bool {
        matches!(self.phase, Phase::Summarising(_))
    }

    /// What a compaction now would come to; `None`: there is nothing that could be left out.
    pub fn preview(&self) -> Option<Preview> {
        let from = self.past.view.from();
        let messages = self.cut(Why::Asked)?;
        let compacted = self.compacted(Why::Asked, messages, self.digest(messages));
        let (before, after, head) = (compacted.before, compacted.after, compacted.head);
        Some(Preview { messages: messages - from, stay: self.history().len() - messages, before, after, head })
    }

    /// The system prompt: the instructions, and what is told of the place.
    pub(super) fn system(&self) -> String {
        self.settings.system.clone() + &fragment::words(self.past.view.prefix())
    }

    /// Has the model told of its place: at the beginning once, and at the end of a resumed task what is different since.
    pub(super) fn tell_context(&mut self, effects: &mut Vec<Effect>) {
        let fragments = self.past.view.context.fragments.clone();
        let shift = match &self.past.view.told {
            None if fragments.is_empty() => return,
            None => Shift::Begun { fragments },
            Some(before) => match fragment::changes(before, &fragments) {
                Some(told) => Shift::Changed { fragments, told },
                None => return,
            },
        };
        self.keep(Record::Context(shift), effects);
    }

    /// Has the model told what is different from what it was told, behind all that it has seen.
    pub(super) fn looked(&mut self, fragments: Vec<Fragment>, effects: &mut Vec<Effect>) {
        // An answer that has begun was asked for without it.
        if self.draft == Draft::default() {
            self.past.view.context.fragments = fragments;
            self.tell_context(effects);
        }
    }

    pub(super) fn take_shift(&mut self, shift: &Shift) {
        match shift {
            Shift::Begun { fragments } => {
                self.past.view.told = Some(fragments.clone());
                self.past.view.set_prefix(fragments.clone());
            }
            Shift::Changed { fragments, told } => {
                self.past.view.told = Some(fragments.clone());
                self.hear(Speaker::Sabir, told.as_str().into());
            }
            Shift::Compacted(compacted) => self.take_compaction(compacted),
            Shift::Restored => {
                self.past.lengthen();
                self.past.view.measured = None;
                self.past.view.held = true;
            }
            Shift::Moded { told, when, .. } => match when {
                When::Next => self.hear(Speaker::Sabir, told.as_str().into()),
                When::Later => self.unread.words.push((Speaker::Sabir, told.as_str().into())),
            },
        }
    }

    fn take_compaction(&mut self, compacted: &Compacted) {
        self.take_charge(Charge::of_compacted(compacted));
        self.draft = Draft::default();
        self.past.shorten(compacted.messages, &compacted.head);
        let view = &mut self.past.view;
        if compacted.why == Why::Overflow {
            view.overflows = view.overflows.saturating_add(1);
            view.refused = Some(compacted.before);
        }
        // The beginning of the requests is a new one anyway.
        if let Some(told) = view.told.clone() {
            view.set_prefix(told);
        }
        view.held = false;
        let bytes = self.past.bytes();
        self.past.view.measured = Some((bytes, compacted.after));
    }

    /// Notes what the provider counted. Some count nothing, and say so with a zero.
    pub(super) fn note_filling(&mut self, answered: &Answered) {
        let bytes = self.past.bytes();
        let view = &mut self.past.view;
        view.overflows = 0;
        if let Some(input) = answered.usage.input.filter(|input| *input > 0) {
            view.measured = Some((bytes, input));
        }
    }

    /// Compacts a context that is as full as it may get. True: something else than the next turn is to be asked first.
    pub(super) fn make_room(&mut self, effects: &mut Vec<Effect>) -> bool {
        let (view, bytes) = (&self.past.view, self.past.bytes());
        if self.unread.compaction && self.cut(Why::Asked).is_some() {
            self.phase = Phase::Summarising(Why::Asked);
            effects.push(Effect::Ask);
            return true;
        }
        self.unread.compaction = false;
        let limit = view.window().map(|window| window.saturating_mul(view.context.threshold.into()) / 100);
        let is_full = limit.is_some_and(|limit| view.tokens(bytes) >= limit);
        if !is_full || view.held || self.cut(Why::Threshold).is_none() {
            return false;
        }
        self.phase = Phase::Summarising(Why::Threshold);
        effects.push(Effect::Ask);
        true
    }

    /// After a request that was too long: the same with less of the history. False: there is nothing more to leave out.
    pub(super) fn recover(&mut self, kind: ModelErrorKind, effects: &mut Vec<Effect>) -> bool {
        let attempt = self.past.view.overflows;
        let Some(messages) =
            self.cut(Why::Overflow).filter(|_| kind == ModelErrorKind::TooLong && attempt < RECOVERIES)
        else {
            return false;
        };
        if attempt == 0 {
            self.phase = Phase::Summarising(Why::Overflow);
            effects.push(Effect::Ask);
        } else {
            let compacted = self.compacted(Why::Overflow, messages, self.digest(messages));
            self.keep_compaction(compacted, effects);
            self.ask(effects);
        }
        true
    }

    pub(super) fn compact_by_hand(&mut self, by: Author, effects: &mut Vec<Effect>) {
        let Some(messages) = self.cut(Why::Asked) else { return };
        if by == Author::Model {
            self.phase = Phase::Summarising(Why::Asked);
            return effects.push(Effect::Ask);
        }
        let compacted = self.compacted(Why::Asked, messages, self.digest(messages));
        self.keep_compaction(compacted, effects);
    }

    fn keep_compaction(&mut self, compacted: Compacted, effects: &mut Vec<Effect>) {
        self.keep(Record::Context(Shift::Compacted(Box::new(compacted))), effects);
    }

    /// Goes back on the last compaction, if there was one.
    pub(super) fn restore(&mut self, effects: &mut Vec<Effect>) {
        if self.past.view.is_short() {
            self.keep(Record::Context(Shift::Restored), effects);
        }
    }

    /// The request for a summary.
    pub(super) fn summary_request(&self, why: Why) -> Request {
        let text = self.to_summarise(why);
        Request {
            model: self.settings.model.clone(),
            system: summary::INSTRUCTIONS.to_owned(),
            messages: vec![Message::user(text)].into(),
            protocol: Protocol::Native,
            max_output: self.settings.max_output,
            ..Request::default()
        }
    }

    /// The model has written its summary, or has not.
    pub(super) fn summarised(&mut self, why: Why, input: Input<'_>, effects: &mut Vec<Effect>) {
        let draft = std::mem::take(&mut self.draft);
        let began = draft != Draft::default();
        let written: String = draft
            .parts
            .iter()
            .filter_map(|part| if let DraftPart::Text(text) = part { Some(text.as_str()) } else { None })
            .collect();
        let failure = match input {
            Input::Failed(error) => Some(error.message),
            _ if written.trim().len() < summary::LEAST => Some("it wrote no summary".to_owned()),
            _ => None,
        };
        let asked = summary::INSTRUCTIONS.len() + self.to_summarise(why).len();
        // Nobody pays for a request that was refused.
        let Charge { usage, estimate, cost } =
            if began || failure.is_none() { self.charge_of(&draft, asked) } else { Charge::default() };
        if let Some(messages) = self.cut(why) {
            let (by, text) = match failure {
                None => (Author::Model, headed(fragment::beginning(written.trim(), summary::CAP))),
                Some(_) => (Author::Sabir, self.digest(messages)),
            };
            let compacted = Compacted { by, failure, usage, estimate, cost, ..self.compacted(why, messages, text) };
            self.keep_compaction(compacted, effects);
        }
        self.go_on_after(why, effects);
    }

    /// Goes on where the summary came between.
    fn go_on_after(&mut self, why: Why, effects: &mut Vec<Effect>) {
        let spoken = std::mem::take(&mut self.unread.spoken);
        if why != Why::Asked {
            return self.ask(effects);
        }
        if !std::mem::take(&mut self.unread.compaction) {
            self.phase = Phase::Paused;
        } else if self.is_resting() && !spoken {
            self.phase = Phase::Acting;
        } else {
            self.withdraw(effects);
            self.ask(effects);
        }
    }

    /// Compacts the context of a task that goes on: now, where it is the user's turn, else before the model's next one.
    pub(super) fn compact_soon(&mut self, effects: &mut Vec<Effect>) {
        let when = self.compaction();
        self.unread.compaction |= when != Compaction::Nothing;
        if when == Compaction::Now {
            self.phase = Phase::Summarising(Why::Asked);
            effects.push(Effect::Ask);
        }
    }

    fn to_summarise(&self, why: Why) -> String {
        let view = &self.past.view;
        let cap = match view.window() {
            Some(window) if why != Why::Overflow => usize::try_from(window.saturating_mul(2)).unwrap_or(usize::MAX),
            _ => self.past.bytes() / 3,
        };
        let earlier = view.summary().map(|text| format!("{text}\n")).unwrap_or_default();
        let covered = self.cut(why).and_then(|cut| self.history().get(view.from()..cut)).unwrap_or_default();
        summary::transcript(&earlier, covered, cap.max(summary::LEAST))
    }

    /// How many messages would be left out; `None`: no turn more than now, or so few that it is not worth a new beginning.
    fn cut(&self, why: Why) -> Option<usize> {
        let (view, all, bytes) = (&self.past.view, self.history(), self.past.bytes());
        let window = view.window().and_then(|window| usize::try_from(window.saturating_mul(4)).ok());
        let room = window.map_or(bytes, |window| window.min(bytes));
        let cut = match why {
            // Where the last turns alone are what is too much, less of them stays at once.
            Why::Overflow => {
                let attempts = KEPT.iter().skip(usize::try_from(view.overflows).unwrap_or(usize::MAX));
                attempts.copied().find_map(|share| self.cut_to(room / share))
            }
            _ => self.cut_to(room / KEPT[0]),
        };
        let gain = |cut| all.get(view.from()..cut).unwrap_or_default().iter().map(message_bytes).sum::<usize>();
        cut.filter(|cut| why != Why::Threshold || gain(*cut).saturating_mul(10) >= room)
    }

    /// How many messages are left out if those that stay have so many bytes; `None`: no turn more than now.
    fn cut_to(&self, budget: usize) -> Option<usize> {
        let (from, all) = (self.past.view.from(), self.history());
        let (mut cut, mut kept) = (all.len(), 0_usize);
        for (at, message) in all.iter().enumerate().skip(from.max(1)).rev() {
            kept = kept.saturating_add(message_bytes(message));
            // The last turn stays whatever its size, until even that was too much.
            if kept > budget && (cut < all.len() || budget == 0) {
                break;
            }
            if message.role == Role::Assistant {
                cut = at;
            }
        }
        let covered = all.get(from..cut).unwrap_or_default();
        covered.iter().any(|message| message.role == Role::Assistant).then_some(cut)
    }

    fn digest(&self, messages: usize) -> String {
        let covered = self.history().get(self.past.view.from()..messages).unwrap_or_default();
        let earlier = self.past.view.summary().and_then(|text| text.split_once('\n')).map_or("", |(_, rest)| rest);
        headed(&digest::lines(earlier, covered))
    }

    /// The compaction with that summary, by nobody's request.
    fn compacted(&self, why: Why, messages: usize, summary: String) -> Compacted {
        let all = self.history();
        let (gone, stays) = all.split_at_checked(messages).unwrap_or_default();
        let todos = self.todos();
        let todos = if todos.left().next().is_some() {
            format!("Your todo list, as you left it:\n<todos>\n{}\n</todos>", todos.text())
        } else {
            String::new()
        };
        let pieces = [
            self.start.prompt.clone(),
            digest::words(&self.past.view.words, gone, stays),
            digest::files(gone, &self.settings.readers),
            self.mode_words(),
            digest::pictures(gone),
            todos,
            summary,
        ];
        let head: Vec<String> = pieces.into_iter().filter(|piece| !piece.trim().is_empty()).collect();
        let (view, bytes) = (&self.past.view, self.past.bytes());
        let now: usize = self.past.shared().iter().map(message_bytes).sum();
        let then = stays.iter().map(message_bytes).sum::<usize>() + head.iter().map(String::len).sum::<usize>();
        let after = view.tokens(bytes.saturating_sub(now).saturating_add(then));
        Compacted {
            why,
            by: Author::Sabir,
            failure: None,
            messages,
            head,
            before: view.tokens(bytes),
            after,
            usage: Usage::default(),
            estimate: Usage::default(),
            cost: Charge::default().cost,
        }
    }
}

fn percent(tokens: u64, window: Option<u64>) -> Option<u64> {
    window.filter(|window| *window > 0).map(|window| tokens.saturating_mul(100) / window)
}

/// A summary as the model reads it.
fn headed(text: &str) -> String {
    format!("Your own work so far, in short; it is done, and need not be done again:\n{}", text.trim_end())
}

/// The parts of messages by their kinds: a name, how many, and how many bytes.
fn kinds(messages: &[Message]) -> Vec<(String, usize, usize)> {
    let name = |role, part: &Part| match part {
        Part::Text { .. } if role == Role::User => "words to the model",
        Part::Text { .. } => "the model's words",
        Part::Thought { .. } | Part::Opaque(_) => "the model's thoughts",
        Part::Call(_) => "calls",
        Part::Result(_) => "results",
        _ => "pictures",
    };
    let mut rows: Vec<(String, usize, usize)> = Vec::new();
    for message in messages {
        for part in &message.parts {
            let (name, bytes) = (name(message.role, part), super::past::part_bytes(part));
            match rows.iter_mut().find(|row| row.0 == name) {
                Some(row) => (row.1, row.2) = (row.1 + 1, row.2 + bytes),
                None => rows.push((name.to_owned(), 1, bytes)),
            }
        }
    }
    rows
}
