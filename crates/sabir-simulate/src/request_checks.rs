//! Checks model requests against the invariants, by the earlier messages and requests.
//!
//! The checks do not ask the task machine. The required content of a request follows from the acknowledged records and from the
//! requests that were sent.
//!
//! The tracker follows the user's messages from the record to the request: kept ones must be in the
//! next request, late ones after the response during which they were sent. It also keeps the last request,
//! because each request must begin with the content of the one before, and the last one before each
//! compaction, to which undoing the compaction must return.

use sabir_agent::{DeliveryTime, Record, control};
use sabir_call::{History, Message, MessagePart, Request, Role, ToolResultStatus};

use crate::history;
use crate::invariants::{Invariant, Violation};
use crate::observations::TaskObservations;
use crate::plan::{SYSTEM_PROMPT, rule_text};
use crate::sabotage::Sabotage;
use crate::simulation_state::SimulationState;

/// The messages and requests so far.
#[derive(Debug, Default)]
pub(crate) struct RequestTracker {
    /// The messages of the user, in the order of the records.
    kept: Vec<String>,
    /// Messages that came during a request; the model reads them after its response.
    later: Vec<String>,
    /// True if a request was sent and has no response yet.
    pub(crate) waits: bool,
    /// Messages that no request contains yet.
    pub(crate) unread: Vec<String>,
    /// Messages that the user sent before they accepted a completion.
    settled: Vec<String>,
    /// The list of todos, as long as one of them is open.
    pub(crate) todos: String,
    /// The last request.
    sent: Option<SentRequest>,
    /// The last request before each compaction.
    before: Vec<Option<SentRequest>>,
    /// True if a compaction was undone since the last request.
    restored: bool,
    /// The version of the instructions in the folder.
    /// It grows by one when the instructions change between two processes.
    pub(crate) version: u32,
    /// The estimated tokens of the last request.
    pub(crate) asked: u64,
}

/// A request that was sent.
#[derive(Debug, Clone)]
struct SentRequest {
    /// The instructions, unless they may have changed since. `None` after a compaction, which rebuilds the system prompt.
    system: Option<String>,
    /// The messages as they were sent. The history is shared, so this is not a copy.
    messages: History,
}

/// A request as the checks see it, after any sabotage.
struct SeenRequest {
    /// The system prompt.
    system: String,
    /// A copy of the messages, since sabotage changes them.
    messages: Vec<Message>,
}

/// Returns a violation as an error.
fn new_violation(invariant: Invariant, seen: impl Into<String>) -> Result<(), Violation> {
    Err(Violation {
        invariant,
        seen: seen.into(),
    })
}

impl RequestTracker {
    /// Adds a message that was recorded. It must be marked as late exactly if a request is waiting for its response.
    pub(crate) fn record_message(
        &mut self,
        text: &str,
        when: DeliveryTime,
    ) -> Result<(), Violation> {
        // A message sent while an answer streams must come after that answer.
        let list = if self.waits {
            &mut self.later
        } else {
            &mut self.kept
        };
        list.push(text.to_owned());
        if !self.settled.iter().any(|settled| settled == text) {
            self.unread.push(text.to_owned());
        }
        // A replay cannot know when the request was sent, so the record must state that the message
        // came late.
        if self.waits == (when == DeliveryTime::Later) {
            Ok(())
        } else {
            new_violation(Invariant::MessagesKept, format!("{text:?} is {when:?}"))
        }
    }

    /// Notes that the response has arrived or failed.
    pub(crate) fn end_request(&mut self) {
        // However the request ended, late messages follow its answer now.
        self.waits = false;
        self.kept.append(&mut self.later);
    }

    /// Settles all messages that the user sent before accepting a completion.
    pub(crate) fn accept_messages<'a>(&mut self, said: impl Iterator<Item = &'a String>) {
        self.unread.clear();
        self.settled.extend(said.cloned());
    }

    /// Notes a compaction: the next request may begin differently, and undoing it must bring this
    /// one back.
    pub(crate) fn record_compaction(&mut self) {
        let mut sent = self.sent.take();
        // After a compaction the system prompt is built again, with the current instructions.
        sent.iter_mut().for_each(|sent| sent.system = None);
        self.before.push(sent);
    }

    /// Notes that the last compaction was undone. The next request is compared with the one before
    /// it.
    pub(crate) fn record_restore(&mut self) {
        self.sent = self.before.pop().flatten();
        self.restored = true;
    }

    /// Reports whether the history is compacted.
    pub(crate) fn is_compacted(&self) -> bool {
        !self.before.is_empty()
    }

    /// Checks that a request begins with the content of the previous one.
    ///
    /// After an undone compaction, the previous one is the last request before that compaction.
    fn check_prefix(&self, seen: &SeenRequest) -> Result<(), Violation> {
        let invariant = if self.restored {
            Invariant::Restores
        } else {
            Invariant::Prefix
        };
        // The first request, or the first one after a compaction: there is nothing to compare with.
        let Some(SentRequest { system, messages }) = &self.sent else {
            return Ok(());
        };
        if system.as_ref().is_some_and(|system| *system != seen.system) {
            return new_violation(
                invariant,
                format!("the instructions were {system:?} and are {:?}", seen.system),
            );
        }
        // All messages but the last must be equal; the last one may have grown.
        let Some((last, whole)) = messages.split_last() else {
            return Ok(());
        };
        let grown = seen
            .messages
            .get(whole.len())
            .filter(|message| message.role == last.role);
        // The last message may have grown: results and new messages of the user are appended to it.
        let kept = grown.is_some_and(|message| message.parts.starts_with(&last.parts));
        if kept && seen.messages.starts_with(whole) {
            return Ok(());
        }
        new_violation(
            invariant,
            format!("{messages:?} was sent before {:?}", seen.messages),
        )
    }

    /// Checks that a request contains all messages of the user in order.
    fn check_user_messages(&self, seen: &SeenRequest) -> Result<(), Violation> {
        let texts =
            || user_texts(&seen.messages).filter(|text| self.kept.iter().any(|kept| kept == text));
        if !self.is_compacted() && !texts().eq(self.kept.iter().map(String::as_str)) {
            let read: Vec<_> = texts().collect();
            return new_violation(
                Invariant::MessagesKept,
                format!("the user said {:?}, the model reads {read:?}", self.kept),
            );
        }
        // A summary quotes the messages that it replaces, so after a compaction it is enough that
        // they are contained.
        let is_read = |words: &&String| {
            self::user_texts(&seen.messages).any(|text| text.contains(words.as_str()))
        };
        match self.kept.iter().find(|words| !is_read(words)) {
            Some(words) => new_violation(
                Invariant::MessagesKept,
                format!("the model does not read {words:?}"),
            ),
            None => Ok(()),
        }
    }

    /// Checks that the instructions, the prompt and open todos appear verbatim.
    fn check_verbatim(&self, seen: &SeenRequest, prompt: &str) -> Result<(), Violation> {
        // The prompt stays the first part of the first message, also in a compacted history.
        let first = seen
            .messages
            .first()
            .and_then(|message| message.parts.first());
        if first != Some(&MessagePart::text(prompt)) || !seen.system.starts_with(SYSTEM_PROMPT) {
            return new_violation(
                Invariant::Verbatim,
                format!("{:?} begins with {first:?}", seen.system),
            );
        }
        // New instructions are either in the system prompt or in a user message that was appended.
        let rule = rule_text(self.version);
        if !seen.system.contains(&rule)
            && !user_texts(&seen.messages).any(|text| text.contains(&rule))
        {
            return new_violation(
                Invariant::Verbatim,
                format!("{rule:?} is not in the request"),
            );
        }
        // Open todos are either in the summary or still in the call that listed them.
        let in_text = user_texts(&seen.messages).any(|text| text.contains(&self.todos));
        let lists = seen.messages.iter().flat_map(Message::calls);
        let mut lists = lists
            .filter_map(|call| call.arguments.get("todos"))
            .filter_map(|list| list.as_str());
        if self.todos.is_empty() || in_text || lists.any(|list| list == self.todos) {
            return Ok(());
        }
        new_violation(
            Invariant::Verbatim,
            format!("the todos {:?} are not there", self.todos),
        )
    }
}

/// Checks a request against all invariants, and remembers it for the next one.
pub(crate) fn check_request(state: &mut SimulationState, request: &Request) {
    let observations = &mut state.observations;
    let sabotage = state.sabotage;
    let mut seen = SeenRequest {
        system: request.system.clone(),
        messages: request.messages.to_vec(),
    };
    // Applied to the copy: the machine and the next comparison keep the real request.
    if let Some(sabotage) = sabotage {
        tamper_request(sabotage, &observations.request_tracker, &mut seen);
    }
    let reading = &observations.request_tracker;
    // In the order of the invariants, so that the most basic one is reported if a request breaks several.
    let checked = history::check_history(&seen.messages)
        .and_then(|()| reading.check_prefix(&seen))
        .and_then(|()| reading.check_user_messages(&seen))
        .and_then(|()| reading.check_verbatim(&seen, &state.plan.prompt))
        .and_then(|()| check_limits(observations));
    let reading = &mut observations.request_tracker;
    // The simulated provider reports usage in proportion to it, so that contexts fill up.
    reading.asked = estimate_tokens(request);
    // This request shows the model all messages but the late ones.
    reading.unread.retain(|words| reading.later.contains(words));
    reading.restored = false;
    reading.sent = Some(SentRequest {
        system: Some(request.system.clone()),
        messages: request.messages.clone(),
    });
    let short = reading.is_compacted();
    state.record_check(checked);
    if short {
        state
            .counters
            .count_event("requests of a shortened history");
    }
    // The limit of turns holds for a task and its subtasks together.
    if let Some(turns) = state.task_tree.exhausted_turns() {
        state.report_violation(
            Invariant::Limits,
            format!("a model of the task tree is asked after {turns} turns"),
        );
    }
    // The time runs from the opening of the task in this process, not from its first process.
    let late = state.plan.terms.time.is_some_and(|time| {
        let most = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        state
            .elapsed_millis()
            .saturating_sub(state.observations.process.began)
            > most
    });
    if late && sabotage != Some(Sabotage::NeverStop) {
        state.report_violation(
            Invariant::Limits,
            "the model is asked after the time was up",
        );
    }
}

/// Checks that the limits of the current process allow another turn.
///
/// Adds up the records of the process itself, because the task's own counters are what this checks.
fn check_limits(observations: &TaskObservations) -> Result<(), Violation> {
    let limits = &observations.terms.limits;
    let records = observations
        .records
        .get(observations.process.from..)
        .unwrap_or_default();
    // Summed up from the records of this process: a resumed task counts from zero again.
    let turns = |record: &Record| match record {
        Record::Answered(_) => 1,
        Record::Subtask {
            ended: Some(end), ..
        } => end.turns,
        _ => 0,
    };
    let turns: u32 = records.iter().map(turns).sum();
    if limits.turns.is_some_and(|most| turns >= most) {
        return new_violation(
            Invariant::Limits,
            format!("the model is asked again after {turns} turns"),
        );
    }
    let mut tokens = 0;
    let mut nanos = 0;
    // If the provider reported no usage, the estimate counts instead.
    for (usage, estimate, cost) in records.iter().filter_map(usage_charge) {
        tokens += estimate.input.or(usage.input).unwrap_or(0)
            + estimate.output.or(usage.output).unwrap_or(0);
        nanos += cost.known.as_nanos();
    }
    if limits.tokens.is_some_and(|most| tokens >= most) {
        return new_violation(
            Invariant::Limits,
            format!("the model is asked again after {tokens} tokens"),
        );
    }
    if limits.cost.is_some_and(|most| nanos >= most.as_nanos()) {
        return new_violation(
            Invariant::Limits,
            format!("the model is asked again after {nanos} nanodollars"),
        );
    }
    // From here on the machine must have asked the user, reminded the model or ended the task.
    let again = equal_calls(observations, records);
    if again >= limits.cycles {
        return new_violation(
            Invariant::Limits,
            format!("the model is asked again after {again} equal calls"),
        );
    }
    Ok(())
}

/// The reported usage, the estimated usage and the cost of a record.
type UsageCharge<'a> = (sabir_call::Usage, sabir_call::Usage, sabir_call::Cost);

/// Returns what a record adds to the totals; `None` for a record without usage.
fn usage_charge(record: &Record) -> Option<UsageCharge<'_>> {
    match record {
        Record::Answered(answered) => Some((answered.usage, answered.estimate, answered.cost)),
        Record::Failed(failed) => Some((failed.usage, failed.estimate, failed.cost)),
        Record::Context(sabir_agent::ContextChange::Compacted(compacted)) => {
            Some((compacted.usage, compacted.estimate, compacted.cost))
        }
        Record::Subtask {
            ended: Some(end), ..
        } => Some((end.usage, end.estimate, end.cost)),
        _ => None,
    }
}

/// Counts the latest calls that are equal and had equal results, since the last message of the user.
fn equal_calls(observations: &TaskObservations, records: &[Record]) -> u32 {
    let mut last = None;
    let mut times = 0;
    for record in records.iter().rev() {
        match record {
            // A message of the user counts as progress: the count of equal calls restarts.
            Record::Said {
                by: sabir_agent::MessageAuthor::User,
                ..
            } => break,
            Record::Result(result) if result.ending != ToolResultStatus::Interrupted => {
                let call = observations.calls.get(&result.id);
                let ran = matches!(
                    result.ending,
                    ToolResultStatus::Done | ToolResultStatus::Failed
                );
                // The text of a refusal may differ each time, and a refused call has no effect
                // anyway.
                let text = if ran { result.content.as_str() } else { "" };
                let this = call.map(|call| (&call.name, &call.arguments, result.ending, text));
                if last.is_some_and(|last| last != this) {
                    break;
                }
                last = Some(this);
                times += 1;
            }
            _ => {}
        }
    }
    times
}

/// Returns the texts in messages of the user's role, which include reminders by Sabir.
fn user_texts(messages: &[Message]) -> impl Iterator<Item = &str> {
    let text = messages
        .iter()
        .filter(|message| message.role == Role::User)
        .flat_map(|message| &message.parts);
    text.filter_map(|part| {
        if let MessagePart::Text { text } = part {
            Some(text.as_str())
        } else {
            None
        }
    })
}

/// Estimates the tokens of a request: one for four bytes, as the machine does where nothing is
/// reported.
fn estimate_tokens(request: &Request) -> u64 {
    let part = |part: &MessagePart| match part {
        MessagePart::Text { text } | MessagePart::Thought { text, .. } => text.len(),
        MessagePart::Result(result) => result.content.len(),
        _ => 20,
    };
    let bytes: usize = request
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(part)
        .sum();
    u64::try_from((bytes + request.system.len()) / 4).unwrap_or(u64::MAX)
}

/// Changes the request that the checks see (sabotage).
fn tamper_request(sabotage: Sabotage, reading: &RequestTracker, seen: &mut SeenRequest) {
    let messages = &mut seen.messages;
    match sabotage {
        // The first result of each message is enough: one missing result breaks the invariant.
        Sabotage::LoseResult => messages.iter_mut().for_each(|message| {
            if let Some(at) = message
                .parts
                .iter()
                .position(|part| matches!(part, MessagePart::Result(_)))
            {
                message.parts.remove(at);
            }
        }),
        Sabotage::SwapResults => messages.iter_mut().for_each(|message| {
            // Results precede all other parts. With a single result there is no order to check.
            let results = message
                .parts
                .iter()
                .take_while(|part| matches!(part, MessagePart::Result(_)))
                .count();
            message
                .parts
                .get_mut(..results)
                .unwrap_or_default()
                .reverse();
        }),
        Sabotage::MoveMessageFirst => {
            let last = messages
                .last_mut()
                .filter(|message| message.parts.len() > 1);
            let said = last.and_then(|message| {
                message
                    .parts
                    .pop_if(|part| matches!(part, MessagePart::Text { .. }))
            });
            if let (Some(first), Some(said)) = (messages.first_mut(), said) {
                first.parts.insert(1.min(first.parts.len()), said);
            }
        }
        Sabotage::ForgetInstructions if reading.is_compacted() => {
            seen.system = "Be long.".to_owned()
        }
        Sabotage::ForgetTodos if reading.is_compacted() => {
            let head = messages
                .iter_mut()
                .take(1)
                .flat_map(|message| &mut message.parts);
            head.filter(
                |part| matches!(part, MessagePart::Text { text } if text.contains("<todos>")),
            )
            .for_each(|part| {
                *part = MessagePart::text("There is a list.");
            });
        }
        // Only the first request after the undoing is compared with the old history.
        Sabotage::RestoreLess if reading.restored => messages.truncate(1),
        _ => {}
    }
}

/// Reports whether a call is one for a todo list and the list has an open item.
pub(crate) fn has_open_todos(name: &str, list: &str) -> bool {
    name == control::TODO_LIST_TOOL
        && list
            .lines()
            .any(|line| line.starts_with("[ ]") || line.starts_with("[-]"))
}
