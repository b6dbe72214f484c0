//! The task machine: inputs in, effects out, no I/O.
//!
//! The terminal, headless mode, resume and tests drive the same machine. Every change of state is a [`Record`]: `step`
//! decides which records happen, [`Task::apply`] alone changes the state by them, and replaying a journal is applying
//! its records. So a resumed task is the same task.
//!
//! Architecture invariant: an assistant message with calls enters the history together with the results of all its
//! calls, when the last of them is there ([`calls::Turn`]). A history with an unanswered or doubly answered call cannot be
//! written down (law 7).

mod approval;
pub(crate) mod calls;
mod charge;
mod completion;
mod turn;
mod words;

use sabir_call::{
    CallId, CallResult, Cost, Dollars, Draft, Ending, Event, Message, ModelError, ModelErrorKind, Part, Prices,
    Request, Role, Sink, StopReason, ToolSet,
};
use sabir_check::{Checker, Repairs, Repetition};

use crate::event::{Question, Reply};
use crate::permit::{Bound, Permit};
use crate::policy::Rules;
use crate::record::{Failed, Outcome, Record, Speaker, Start, When};
use crate::tool::{Access, ToolOutput};

use calls::Turn;
use charge::Charge;
pub use charge::Totals;
pub use words::Attended;

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
    /// What is approved in advance.
    pub rules: Rules,
    /// Whether somebody can be asked.
    pub attended: Attended,
    /// When to stop.
    pub limits: Limits,
    /// The slips that are set right instead of rejected.
    pub repairs: Repairs,
    /// The most tokens of one answer; `None`: the provider's default.
    pub max_output: Option<u64>,
    /// What the model costs today.
    pub prices: Prices,
}

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most turns; `None`: no limit.
    pub turns: Option<u32>,
    /// Mistakes in a row (a bad call, a failed or denied one) before the user is asked, or a headless task ends.
    pub mistakes: u32,
    /// Replies without a call in a row that a headless task answers with a reminder.
    pub reminders: u32,
    /// How often a turn is asked again after its answer broke off.
    pub retries: u32,
    /// The most money, counted since the task was begun or resumed; `None`: no limit. It is looked at before the model is
    /// asked, so the turn that reaches it is finished.
    pub cost: Option<Dollars>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { turns: None, mistakes: 6, reminders: 2, retries: 3, cost: None }
    }
}

/// What the machine is told.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// Go on: after the task was made, or made again from its records.
    Begin,
    /// These words of the user's. At first: go on, with them. Later, at any moment: they are kept at once, and read by the model
    /// behind all that it was shown and writes now. They answer no question but the one for words ([`Question::Next`]).
    Said(String),
    /// As `Said`, but at once: the answer that is being written, the calls that have not begun and the open question are given
    /// up. Tools that run go on, and the model is asked when they are done.
    Steered(String),
    /// From now on nobody can be asked ([`Attended::No`]). What is asked about is denied.
    Left,
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
    /// Drop whatever is under way: the request, the running tools, the question.
    Stop,
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
    history: Vec<Message>,
    draft: Draft,
    phase: Phase,
    turn: Option<Turn>,
    counts: Counts,
    totals: Totals,
    question: Option<Question>,
    /// Answers before the task was resumed.
    earlier_turns: u32,
    /// Why the last answer stopped.
    stop: Option<StopReason>,
    /// What was said while an answer was written.
    waiting: Vec<String>,
}

/// What the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For `Begin`.
    Paused,
    /// For the model.
    Asking,
    /// For calls or the user.
    Acting,
    /// For nothing.
    Over,
}

/// Everything that is counted. All of it follows from the records.
#[derive(Debug, Clone, Default)]
struct Counts {
    turns: u32,
    mistakes: u32,
    without_call: u32,
    failures: u32,
    denials: u32,
    /// What was spent since the task was begun or resumed.
    spent: Cost,
    /// The mistakes that the model was told of.
    told: Repetition,
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
        let mut records = records.into_iter();
        let Some(Record::Started(start)) = records.next() else { return Err(ReplayError::NoStart) };
        let mut task = Self::empty(start.clone(), settings);
        task.apply(&Record::Started(start));
        let mut completed = false;
        for record in records {
            completed = matches!(record, Record::Ended { outcome: Outcome::Completed, .. });
            task.apply(&record);
        }
        if completed {
            return Err(ReplayError::Completed);
        }
        // The new run has its own patience: what made the last one stop must not stop this one at once.
        task.earlier_turns = task.counts.turns;
        let Counts { turns, told, .. } = std::mem::take(&mut task.counts);
        task.counts = Counts { turns, told, ..Counts::default() };
        task.phase = Phase::Paused;
        Ok(task)
    }

    fn empty(start: Start, settings: Settings) -> Self {
        Self {
            checker: Checker::new(settings.tools.clone()).with_repairs(settings.repairs),
            settings,
            start,
            history: Vec::new(),
            draft: Draft::default(),
            phase: Phase::Paused,
            turn: None,
            counts: Counts::default(),
            totals: Totals::default(),
            question: None,
            earlier_turns: 0,
            stop: None,
            waiting: Vec::new(),
        }
    }

    /// How the task began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// The history so far; every call in it has its one result.
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Tokens and money so far, those before a resume included.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Answers so far, counted since the task was begun or resumed.
    pub fn turns(&self) -> u32 {
        self.counts.turns.saturating_sub(self.earlier_turns)
    }

    /// The call of that id, while its turn is open: the tool's name and its arguments.
    pub fn call(&self, id: &CallId) -> Option<&sabir_call::Call> {
        self.turn.as_ref().and_then(|turn| turn.call(id))
    }

    /// What to ask the model now.
    pub fn request(&self) -> Request {
        Request {
            model: self.settings.model.clone(),
            system: self.settings.system.clone(),
            messages: self.history.clone(),
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
            (Phase::Paused, Input::Begin) => self.begin(&mut effects),
            (_, Input::Said(text)) => self.said(text, &mut effects),
            (_, Input::Steered(text)) => self.steered(text, &mut effects),
            (_, Input::Left) => self.left(&mut effects),
            (Phase::Asking, Input::Event(event)) => self.draft.event(event),
            (Phase::Asking, Input::Answered) => self.answered(&mut effects),
            (Phase::Asking, Input::Failed(error)) => self.failed(&error, &mut effects),
            (Phase::Acting, Input::Weighed(call, access, bound)) => self.weighed(&call, &access, bound, &mut effects),
            (Phase::Acting, Input::Ran(call, output)) => self.ran(&call, output, &mut effects),
            (Phase::Acting, Input::Replied(reply)) => self.replied(reply, &mut effects),
            (Phase::Over, _) => {}
            (_, Input::Cancel) => self.interrupt(Outcome::Cancelled, "interrupted", &mut effects),
            (_, Input::Expired) => self.interrupt(Outcome::Limit, "the time limit was reached", &mut effects),
            _ => {}
        }
        effects
    }

    /// Changes the state by a record: the only way in which it changes, but for the draft and the open question.
    fn apply(&mut self, record: &Record) {
        match record {
            Record::Started(start) => self.hear(Speaker::User, &start.prompt),
            Record::Said { by, text, when } => {
                if *by == Speaker::User {
                    (self.counts.mistakes, self.counts.without_call, self.counts.failures) = (0, 0, 0);
                }
                match when {
                    When::Next => self.hear(*by, text),
                    When::Later => self.waiting.push(text.clone()),
                }
            }
            Record::Answered(answered) => {
                self.counts.turns = self.counts.turns.saturating_add(1);
                self.counts.failures = 0;
                self.note_mistakes(answered);
                self.take_charge(Charge::of(answered));
                self.stop = answered.stop;
                self.draft = Draft::default();
                match Turn::open(answered) {
                    Some(turn) => {
                        self.counts.without_call = 0;
                        self.turn = Some(turn);
                    }
                    None => {
                        self.counts.without_call = self.counts.without_call.saturating_add(1);
                        self.push(Role::Assistant, answered.parts.clone());
                    }
                }
                self.hear_waiting();
            }
            Record::Failed(failed) => {
                self.take_charge(Charge::of_failed(failed));
                self.counts.failures = self.counts.failures.saturating_add(1);
                self.draft = Draft::default();
                self.hear_waiting();
            }
            Record::Judged { .. } => {}
            Record::Running { call, .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.start(call);
                }
            }
            Record::Result(result) => self.take_result(result),
            Record::Ended { .. } => {
                self.phase = Phase::Over;
                self.hear_waiting();
            }
        }
    }

    fn take_charge(&mut self, charge: Charge) {
        self.totals.add(charge);
        self.counts.spent += charge.cost;
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
        let Some(turn) = &mut self.turn else { return };
        turn.finish(result);
        // One good call among bad ones is no progress: only a turn without mistakes ends the count.
        if turn.is_clean() {
            self.counts.mistakes = 0;
        }
        if let Some((parts, answers)) = turn.close() {
            self.turn = None;
            self.push(Role::Assistant, parts);
            self.push(Role::User, answers);
        }
    }

    fn push(&mut self, role: Role, parts: Vec<Part>) {
        if !parts.is_empty() {
            self.history.push(Message { role, parts });
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
        if self.turn.is_some() {
            self.give_up_running("Sabir was stopped while this ran. It may have happened in full, in part, or not at all: look before you repeat it.", effects);
            return self.advance(effects);
        }
        match self.history.last() {
            Some(message) if message.role == Role::User => self.ask(effects),
            _ => self.without_call(None, effects),
        }
    }

    /// Asks the model, unless a limit says otherwise.
    fn ask(&mut self, effects: &mut Vec<Effect>) {
        if self.settings.limits.turns.is_some_and(|limit| self.turns() >= limit) {
            let message = format!("the limit of {} turns was reached", self.turns());
            return self.end(Outcome::Limit, &message, effects);
        }
        if let Some(message) = self.cost_limit() {
            return self.end(Outcome::Limit, &message, effects);
        }
        self.phase = Phase::Asking;
        effects.push(Effect::Ask);
    }

    fn answered(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Acting;
        let draft = std::mem::take(&mut self.draft);
        let answered = self.judge_answer(draft);
        let feedback = answered.feedback.clone();
        let (has_calls, spoken_to) = (!answered.checks.is_empty(), !self.waiting.is_empty());
        self.keep(Record::Answered(answered), effects);
        if has_calls {
            self.advance(effects);
        } else if spoken_to {
            self.answer_words(feedback, effects);
        } else {
            self.without_call(feedback, effects);
        }
    }

    /// The answer broke off: nothing of it is kept, and the same is asked again a few times.
    fn failed(&mut self, error: &ModelError, effects: &mut Vec<Effect>) {
        // What failed before its answer began has been repeated by the model itself, with pauses.
        let began = self.draft != Draft::default();
        // Nobody pays for a request that was refused; what broke off has been paid for as far as it came.
        let Charge { usage, estimate, cost } = if began { self.charge(&self.draft) } else { Charge::default() };
        let failed = Failed { error: error.kind, message: error.message.clone(), usage, estimate, cost };
        self.keep(Record::Failed(failed), effects);
        if began && error.kind.is_transient() && self.counts.failures <= self.settings.limits.retries {
            return self.ask(effects);
        }
        let outcome = match error.kind {
            ModelErrorKind::Key | ModelErrorKind::UnknownModel | ModelErrorKind::Cassette => Outcome::Misconfigured,
            _ => Outcome::ProviderFailed,
        };
        self.end(outcome, &error.message, effects);
    }

    /// Ends the task for now. Calls that have not begun keep waiting: a resumed task goes on with them.
    fn end(&mut self, outcome: Outcome, message: &str, effects: &mut Vec<Effect>) {
        self.keep(Record::Ended { outcome, message: message.to_owned() }, effects);
        self.question = None;
        effects.push(Effect::Finish(outcome, message.to_owned()));
    }

    fn interrupt(&mut self, outcome: Outcome, message: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Stop);
        self.give_up_running(INTERRUPTED, effects);
        self.end(outcome, message, effects);
    }

    /// Says something to the model on Sabir's behalf.
    fn remind(&mut self, text: String, effects: &mut Vec<Effect>) {
        self.keep(Record::Said { by: Speaker::Sabir, text, when: When::Next }, effects);
    }
}
