//! The task machine: inputs in, effects out, no I/O.
//!
//! The terminal, headless mode, resume and tests drive the same machine. Every change of state is a [`Record`]: `step`
//! decides which records happen, [`Task::apply`] alone changes the state by them, and replaying a journal is applying
//! its records. So a resumed task is the same task.
//!
//! Architecture invariant: an assistant message with calls enters the history together with the results of all its
//! calls, when the last of them is there ([`calls::Turn`]). A history with an unanswered or doubly answered call cannot be
//! written down (law 7).

mod again;
mod approval;
pub(crate) mod calls;
mod charge;
mod check;
mod compaction;
mod completion;
mod counts;
mod cycles;
mod digest;
mod failure;
mod limits;
mod modes;
mod past;
mod subtask;
#[cfg(test)]
mod tests;
mod todos;
mod turn;
mod view;
mod words;

use sabir_call::{
    CallId, CallResult, Draft, Ending, Event, Message, ModelError, Part, Prices, Request, Role, Sink, StopReason,
    ToolSet,
};
use sabir_check::{Checker, Repairs};
use sabir_policy::{Access, Rules, Verdict};

use crate::context::Fragment;
use crate::event::{Question, Reply};
use crate::permit::{Bound, Permit};
use crate::record::{Author, Outcome, Record, Speaker, Start, When, Why};
use crate::tool::ToolOutput;

use calls::Turn;
use charge::Charge;
pub use charge::Totals;
pub use check::Conditions;
pub use compaction::{Compaction, Filling, Preview};
use counts::Counts;
pub use limits::{Limits, SubtaskLimits};
use modes::Modes;
pub use modes::Outfit;
use past::Past;
use todos::Listed;
pub use todos::OpenTodos;
use words::Unread;
pub use words::{Attended, Words};

/// The result of a call that was stopped while it ran.
const INTERRUPTED: &str = "This was interrupted. It may have happened in part: look before you repeat it.";

/// How a task is run. Not part of its history: a resumed task may be given others.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The system prompt, without any teaching of tools.
    pub system: String,
    /// The provider's name of the model.
    pub model: String,
    /// What the model is offered.
    pub tools: ToolSet,
    /// The names of the tools that only read.
    pub readers: Vec<String>,
    /// The names of the tools that look whether something has happened, and may be called again and again.
    pub pollers: Vec<String>,
    /// What is approved in advance.
    pub rules: Rules,
    /// Whether somebody can be asked.
    pub attended: Attended,
    /// When to stop.
    pub limits: Limits,
    /// What must hold before a completion is accepted.
    pub completion: Conditions,
    /// The slips that are set right instead of rejected.
    pub repairs: Repairs,
    /// The most tokens of one answer; `None`: the provider's default.
    pub max_output: Option<u64>,
    /// What the model costs today.
    pub prices: Prices,
}

/// What the machine is told.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// Go on: after the task was made, or made again from its records.
    Begin,
    /// These words of the user's. At first: go on, with them. Later, at any moment: they are kept at once, and read by the model
    /// behind all that it was shown and writes now. They answer no question but the one for words ([`Question::Next`]).
    Said(String),
    /// As `Said`, with pictures; or as `Steered`, if they are not to wait.
    Showed {
        /// What is said and shown.
        words: Words,
        /// Whether it gives up what the model is doing.
        at_once: bool,
    },
    /// Compact the context, with a summary by whom. A model is then to be asked, once. A task that goes on does it with the model's
    /// summary, at the next moment that is possible ([`Task::compaction`]).
    Compact(Author),
    /// Go back on the last compaction of a task that does not go on.
    Restore,
    /// As `Said`, but at once: the answer that is being written, the calls that have not begun and the open question are given
    /// up. Tools that run go on, and the model is asked when they are done.
    Steered(String),
    /// The user switches to that mode. It holds at once, and what is asked about is judged anew; a name that is none changes nothing.
    Moded(String),
    /// From now on nobody can be asked ([`Attended::No`]). What is asked about is denied.
    Left,
    /// What is to be told of the place, looked at right before the model is asked. What is different from what it was told goes to the
    /// end of that request.
    Looked(Vec<Fragment>),
    /// A piece of the answer.
    Event(Event<'a>),
    /// The answer is whole.
    Answered,
    /// The answer will not come, or broke off.
    Failed(ModelError),
    /// What a call would touch, and what it depends on.
    Weighed(CallId, Access, Bound),
    /// The user's answer to the open question.
    Replied(Reply),
    /// A tool is finished.
    Ran(CallId, ToolOutput),
    /// The user interrupts.
    Cancel,
    /// The time is up.
    Expired,
    /// What the task is a part of has used up what all of it may take, in words. It is not asked for any more.
    Spent(String),
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Keep the record, then show it. What follows must not be done unless it was kept.
    Keep(Record),
    /// Ask the model, with [`Task::request`].
    Ask,
    /// Find out what a call would touch.
    Weigh(CallId),
    /// Run a call, unless it is no longer the permitted one.
    Run(Permit),
    /// Ask the user.
    Question(Question),
    /// Take the open question back.
    Withdraw,
    /// Drop whatever is under way: the request, the running tools, the question. Subtasks are asked to end instead, and each is told
    /// of with [`Input::Ran`] when it has.
    Stop,
    /// Ask the subtask of that call to end. Its result comes as always.
    GiveUp(CallId),
    /// The task is over, for now.
    Finish(Outcome, String),
}

/// Why records make no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The first record does not say how the task began.
    #[error("the journal does not begin with the start of a task")]
    NoStart,
    /// The task was completed.
    #[error("the task is completed; there is nothing to resume")]
    Completed,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    settings: Settings,
    checker: Checker,
    start: Start,
    past: Past,
    draft: Draft,
    phase: Phase,
    turn: Option<Turn>,
    counts: Counts,
    totals: Totals,
    listed: Listed,
    modes: Modes,
    question: Option<Question>,
    /// Why the last answer stopped.
    stop: Option<StopReason>,
    /// What waits for its moment.
    unread: Unread,
}

/// What the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For `Begin`.
    Paused,
    /// For the model.
    Asking,
    /// For the model's summary.
    Summarising(Why),
    /// For calls or the user.
    Acting,
    /// For subtasks to end, to end so.
    Ending(Outcome, &'static str),
    /// For nothing.
    Over,
}

impl Task {
    /// A new task. The record of its start must be kept before anything else; `step(Begin)` says so.
    pub fn new(start: Start, settings: Settings) -> (Self, Record) {
        let record = Record::Started(start.clone());
        let mut task = Self::empty(start, settings);
        task.apply(&record);
        (task, record)
    }

    /// The task that these records tell of, ready to go on.
    ///
    /// # Errors
    /// When the records do not begin with a start, or the task was completed.
    pub fn replay(records: impl IntoIterator<Item = Record>, settings: Settings) -> Result<Self, ReplayError> {
        let (task, is_completed) = Self::replay_all(records, settings)?;
        if is_completed { Err(ReplayError::Completed) } else { Ok(task) }
    }

    /// The task that these records tell of, to go on with a message of the user's; it may be completed.
    ///
    /// # Errors
    /// When the records do not begin with a start.
    pub fn replay_for_message(
        records: impl IntoIterator<Item = Record>,
        settings: Settings,
    ) -> Result<Self, ReplayError> {
        Self::replay_all(records, settings).map(|(task, _)| task)
    }

    /// The task of these records, and whether their last one completes it.
    fn replay_all(records: impl IntoIterator<Item = Record>, settings: Settings) -> Result<(Self, bool), ReplayError> {
        let mut records = records.into_iter();
        let Some(Record::Started(start)) = records.next() else { return Err(ReplayError::NoStart) };
        let mut task = Self::empty(start.clone(), settings);
        task.apply(&Record::Started(start));
        let mut completed = false;
        for record in records {
            completed = matches!(record, Record::Ended { outcome: Outcome::Completed, .. });
            task.apply(&record);
        }
        task.prepare_next_run();
        Ok((task, completed))
    }

    /// Makes an ended task ready for the next run, which counts turns, mistakes and limits from its own beginning: what made the last
    /// run stop must not stop this one at once.
    pub fn prepare_next_run(&mut self) {
        let Counts { turns, family_turns, told, .. } = std::mem::take(&mut self.counts);
        self.counts = Counts {
            turns,
            earlier_turns: turns,
            family_turns,
            earlier_family_turns: family_turns,
            told,
            ..Counts::default()
        };
        self.phase = Phase::Paused;
    }

    fn empty(start: Start, settings: Settings) -> Self {
        let past = Past::new(charge::fixed_bytes(&settings));
        Self {
            checker: Checker::new(settings.tools.clone()).with_repairs(settings.repairs),
            settings,
            start,
            past,
            draft: Draft::default(),
            phase: Phase::Paused,
            turn: None,
            counts: Counts::default(),
            totals: Totals::default(),
            listed: Listed::default(),
            modes: Modes::default(),
            question: None,
            stop: None,
            unread: Unread::default(),
        }
    }

    /// How the task began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// The history so far; every call in it has its one result.
    pub fn history(&self) -> &[Message] {
        self.past.messages()
    }

    /// Tokens and money so far, those before a resume included.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Answers so far, counted since the task was begun or resumed.
    pub fn turns(&self) -> u32 {
        self.counts.turns.saturating_sub(self.counts.earlier_turns)
    }

    /// The call of that id, while its turn is open: the tool's name and its arguments.
    pub fn call(&self, id: &CallId) -> Option<&sabir_call::Call> {
        self.turn.as_ref().and_then(|turn| turn.call(id))
    }

    /// What to ask the model now. The history is shared, not copied: whoever drops the request before the next step spares the
    /// task a copy.
    pub fn request(&self) -> Request {
        if let Phase::Summarising(why) = self.phase {
            return self.summary_request(why);
        }
        Request {
            model: self.settings.model.clone(),
            system: self.system(),
            messages: self.past.shared(),
            tools: self.settings.tools.clone(),
            protocol: self.start.protocol.clone(),
            max_output: self.settings.max_output,
            ..Request::default()
        }
    }

    /// Takes an input and says what is to be done. Inputs that do not fit the moment (the result of a call that was
    /// cancelled, say) change nothing.
    pub fn step(&mut self, input: Input<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        match (self.phase, input) {
            (Phase::Paused, Input::Begin) => self.said(Words::default(), &mut effects),
            (Phase::Paused, Input::Compact(by)) => self.compact_by_hand(by, &mut effects),
            (_, Input::Compact(_)) => self.compact_soon(&mut effects),
            (Phase::Paused, Input::Restore) => self.restore(&mut effects),
            (_, Input::Said(text)) => self.said(text.into(), &mut effects),
            (_, Input::Steered(text)) => self.steered(text.into(), &mut effects),
            (_, Input::Showed { words, at_once: false }) => self.said(words, &mut effects),
            (_, Input::Showed { words, at_once: true }) => self.steered(words, &mut effects),
            (_, Input::Moded(mode)) => self.moded(&mode, &mut effects),
            (_, Input::Left) => self.left(&mut effects),
            (Phase::Summarising(why), input @ (Input::Answered | Input::Failed(_))) => {
                self.summarised(why, input, &mut effects);
            }
            (Phase::Asking, Input::Looked(fragments)) => self.looked(fragments, &mut effects),
            (Phase::Asking | Phase::Summarising(_), Input::Event(event)) => self.draft.event(event),
            (Phase::Asking, Input::Answered) => self.answered(&mut effects),
            (Phase::Asking, Input::Failed(error)) => self.failed(&error, &mut effects),
            (Phase::Acting, Input::Weighed(call, access, bound)) => self.weighed(&call, &access, bound, &mut effects),
            (Phase::Acting, Input::Ran(call, output)) => self.ran(&call, output, &mut effects),
            (Phase::Acting, Input::Replied(reply)) => self.replied(reply, &mut effects),
            (Phase::Over, _) => {}
            (Phase::Ending(..), Input::Ran(call, output)) => self.ran_out(&call, output, &mut effects),
            (Phase::Ending(outcome, message), Input::Cancel | Input::Expired) => {
                self.end(outcome, message, &mut effects)
            }
            (_, Input::Spent(message)) => self.spent(&message, &mut effects),
            (_, Input::Cancel) => self.wind_up(Outcome::Cancelled, "interrupted", &mut effects),
            (_, Input::Expired) => self.wind_up(Outcome::Limit, "the time limit was reached", &mut effects),
            _ => {}
        }
        effects
    }

    /// Changes the state by a record: the only way in which it changes, but for the draft and the open question.
    fn apply(&mut self, record: &Record) {
        self.modes.trail.note(record);
        match record {
            Record::Started(start) => self.take_start(start),
            Record::Said { by, text, images, when } => {
                self.take_said(*by, Words { text: text.clone(), images: images.clone() }, *when);
            }
            Record::Answered(answered) => self.take_answer(answered),
            Record::Failed(failed) => {
                self.take_charge(Charge::of_failed(failed));
                self.counts.failures = self.counts.failures.saturating_add(1);
                self.draft = Draft::default();
                self.hear_waiting();
            }
            Record::Judged { call, verdict: Verdict::Deny, by, reason } => {
                if let Some(turn) = &mut self.turn {
                    turn.deny(call, *by, reason);
                }
            }
            Record::Judged { .. } => {}
            Record::Running { call, .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.start(call);
                }
            }
            Record::Result(result) => self.take_result(result),
            Record::Subtask { call, task, ended } => self.take_subtask(call, task, ended.as_ref()),
            Record::Context(shift) => self.take_shift(shift),
            Record::Ended { .. } => {
                self.phase = Phase::Over;
                self.hear_waiting();
            }
        }
    }

    fn take_charge(&mut self, charge: Charge) {
        self.totals.add(charge);
        self.counts.spent += charge.cost;
        self.counts.tokens = self.counts.tokens.saturating_add(charge.tokens());
    }

    fn take_result(&mut self, result: &CallResult) {
        match result.ending {
            Ending::Done => self.counts.denials = 0,
            Ending::Denied => {
                self.counts.denials = self.counts.denials.saturating_add(1);
                self.counts.mistakes = self.counts.mistakes.saturating_add(1);
            }
            _ => self.counts.mistakes = self.counts.mistakes.saturating_add(1),
        }
        if let Some(call) = self.call(&result.id).cloned() {
            self.note_list(&call, result);
            self.note_cycle(&call, result);
        }
        let Some(turn) = &mut self.turn else { return };
        if turn.refuses(result) {
            self.counts.refusals = self.counts.refusals.saturating_add(1);
        }
        turn.finish(result);
        // One good call among bad ones is no progress: only a turn without mistakes ends the count.
        if turn.is_clean() {
            self.counts.mistakes = 0;
        }
        if let Some((parts, mut answers)) = turn.close() {
            self.turn = None;
            answers.extend(self.list_again().map(Part::text));
            self.past.push(Role::Assistant, parts);
            self.past.push(Role::User, answers);
            self.past.note_readings(&self.settings.readers);
        }
    }

    /// Applies a record and has it kept.
    fn keep(&mut self, record: Record, effects: &mut Vec<Effect>) {
        self.apply(&record);
        effects.push(Effect::Keep(record));
    }

    fn begin(&mut self, effects: &mut Vec<Effect>) {
        self.lose_answer(effects);
        self.phase = Phase::Acting;
        let waits = self.history().last().is_some_and(|message| message.role == Role::User);
        self.tell_context(effects);
        self.tell_mode(effects);
        if self.turn.is_some() {
            self.reopen();
            self.give_up_running("Sabir was stopped while this ran. It may have happened in full, in part, or not at all: look before you repeat it.", effects);
            return self.advance(effects);
        }
        if waits { self.ask(effects) } else { self.without_call(None, effects) }
    }

    /// Asks the model, unless a limit says otherwise.
    fn ask(&mut self, effects: &mut Vec<Effect>) {
        self.settle();
        if let Some(message) = self.turn_limit().or_else(|| self.token_limit()).or_else(|| self.cost_limit()) {
            return self.end(Outcome::Limit, &message, effects);
        }
        if self.make_room(effects) {
            return;
        }
        self.phase = Phase::Asking;
        effects.push(Effect::Ask);
    }

    fn answered(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Acting;
        let draft = std::mem::take(&mut self.draft);
        let answered = self.judge_answer(draft);
        let feedback = answered.feedback.clone();
        let (has_calls, spoken_to) = (!answered.checks.is_empty(), self.is_spoken_to());
        self.keep(Record::Answered(answered), effects);
        if has_calls {
            self.advance(effects);
        } else if spoken_to {
            self.answer_words(feedback, effects);
        } else {
            self.without_call(feedback, effects);
        }
    }

    /// Ends the task for now. Calls that have not begun keep waiting: a resumed task goes on with them.
    fn end(&mut self, outcome: Outcome, message: &str, effects: &mut Vec<Effect>) {
        self.keep(Record::Ended { outcome, message: message.to_owned() }, effects);
        self.question = None;
        effects.push(Effect::Finish(outcome, message.to_owned()));
    }

    /// Says something to the model on Sabir's behalf.
    fn remind(&mut self, text: String, effects: &mut Vec<Effect>) {
        self.keep(Record::Said { by: Speaker::Sabir, text, images: Vec::new(), when: When::Next }, effects);
    }
}
