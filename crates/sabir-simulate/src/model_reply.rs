//! Draws the responses of the simulated model: text, good and bad calls, and the way in which the response ends.
//!
//! Each call that is written carries a unique token in its arguments. The observations record, for each
//! token, how and how often it was written; the tool that receives the token looks up there what
//! it may do.
//! Flaws are drawn one at a time, so that a rejected call has one reason.

use sabir_agent::{Record, control};
use sabir_call::{ModelErrorKind, StopReason, Usage};

use crate::model::{draw_usage, stop_reason};
use crate::observations::{CallQuality, WrittenCall};
use crate::request_checks::has_open_todos;
use crate::simulated_tools::SIMULATED_TOOLS;
use crate::simulation_state::SimulationState;

/// A response before it is sent.
#[derive(Debug)]
pub(crate) struct ModelReply {
    /// The parts, in the order in which they are sent.
    pub(crate) parts: Vec<ModelReplyPart>,
    /// The way in which it ends.
    pub(crate) end: ReplyEnd,
    /// The usage that the provider reports at the end.
    pub(crate) usage: Usage,
}

/// One part of a response.
#[derive(Debug)]
pub(crate) enum ModelReplyPart {
    /// Text for the user.
    Text(String),
    /// Reasoning. In a prompted answer it is written as text.
    Thought(String),
    /// A call.
    Call {
        /// The name of the tool, as the model writes it.
        name: String,
        /// The provider's id; `None` if it gives none.
        id: Option<String>,
        /// The arguments in order. The first one holds the token.
        arguments: Vec<(&'static str, String)>,
        /// True if the call is never closed.
        cut: bool,
    },
}

/// The end of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyEnd {
    /// The response is complete.
    Whole(StopReason),
    /// The request failed before the response began.
    FailedBefore(ModelErrorKind),
    /// The connection failed in the middle of the response.
    BrokenOff(ModelErrorKind),
}

/// A flaw of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallFlaw {
    /// None: the call may run.
    None,
    /// The required argument is missing.
    Missing,
    /// A number is written as a word.
    WrongType,
    /// There is no such tool.
    Unknown,
    /// The name is in capital letters, which a repair understands.
    Misspelled,
    /// The call is never closed.
    Cut,
    /// The call is written twice, with the same id.
    Doubled,
}

impl ModelReply {
    /// Reports whether the connection fails in the middle of the response.
    pub(crate) fn breaks_off(&self) -> bool {
        matches!(self.end, ReplyEnd::BrokenOff(_))
    }

    /// Iterates over the tokens of the calls, one for each time that a call is written.
    pub(crate) fn call_tokens(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            ModelReplyPart::Call { arguments, .. } => {
                arguments.first().map(|(_, token)| token.as_str())
            }
            _ => None,
        })
    }
}

/// Draws the next response of the model.
pub(crate) fn draw_reply(state: &mut SimulationState) -> ModelReply {
    if state.rng.hits_permille(state.plan.model.trouble) && state.rng.below(2) == 0 {
        state.counters.count_event("answers failed before");
        let kind = state.rng.pick_one(
            ModelErrorKind::Unavailable,
            // A compaction may help after `TooLong`; `Key` means a wrong setup.
            &[
                ModelErrorKind::RateLimited,
                ModelErrorKind::Unreachable,
                ModelErrorKind::Key,
                ModelErrorKind::TooLong,
            ],
        );
        return ModelReply {
            parts: Vec::new(),
            end: ReplyEnd::FailedBefore(kind),
            usage: Usage::default(),
        };
    }
    let mut parts = Vec::new();
    if state.rng.below(3) == 0 {
        parts.push(ModelReplyPart::Thought("Let me think.".to_owned()));
    }
    if state.rng.below(2) == 0 {
        parts.push(ModelReplyPart::Text("I shall do it.".to_owned()));
    }
    // Rare, because an answer that refuses has no calls to test.
    if state.rng.below(300) == 0 {
        state.counters.count_event("answers refused");
        parts.push(ModelReplyPart::Text("I must not.".to_owned()));
        return ModelReply {
            parts,
            end: ReplyEnd::Whole(StopReason::Refused),
            usage: draw_usage(state),
        };
    }
    draw_calls(state, &mut parts);
    let breaks = state.rng.hits_permille(state.plan.model.trouble);
    let mut cut = parts
        .iter()
        .any(|part| matches!(part, ModelReplyPart::Call { cut: true, .. }));
    let end = if breaks {
        state.counters.count_event("answers broken off");
        // At least one part is sent, or it would be a request that failed before its answer.
        parts.truncate(1 + state.rng.index(parts.len()));
        if let Some(ModelReplyPart::Call { cut: last, .. }) = parts.last_mut()
            && state.rng.below(2) == 0
        {
            // The connection ended inside the call, or right after it.
            *last = true;
        }
        let kinds = [ModelErrorKind::Unavailable, ModelErrorKind::Format];
        ReplyEnd::BrokenOff(state.rng.pick_one(ModelErrorKind::Broken, &kinds))
    } else {
        let any = parts
            .iter()
            .any(|part| matches!(part, ModelReplyPart::Call { .. }));
        // Some providers report a normal end for a response with a cut call.
        cut &= state.rng.below(2) == 0;
        ReplyEnd::Whole(stop_reason(any, cut))
    };
    ModelReply {
        parts,
        end,
        usage: draw_usage(state),
    }
}

/// Draws the calls of a response. A call that is cut must be the last one.
fn draw_calls(state: &mut SimulationState, parts: &mut Vec<ModelReplyPart>) {
    // Not at once and not for sure: a completion that is refused must not end every task.
    let wants_to_end = count_answers(state) as u64 >= u64::from(state.plan.model.length)
        && state.rng.below(10) < 7;
    let most = state.rng.pick_one(1, &[1, 1, 2, 3, 5, 0]);
    // A completion usually comes alone.
    let alone = wants_to_end && state.rng.below(4) > 0;
    for _ in 0..if alone { 0 } else { most } {
        let cut_before = matches!(parts.last(), Some(ModelReplyPart::Call { cut: true, .. }));
        // Nothing can follow a call that was never closed.
        if cut_before {
            break;
        }
        if state.rng.below(12) == 0 {
            draw_control_call(state, control::FOLLOWUP_TOOL, "question", parts);
        } else if state.rng.hits_permille(state.plan.model.delegates)
            && state.plan.terms.limits.subtasks.depth > 0
        {
            draw_control_call(state, control::NEW_TASK_TOOL, "message", parts);
        } else if state.rng.hits_permille(state.plan.model.repeats) {
            repeat_call(state, parts);
        } else {
            draw_tool_call(state, parts);
        }
    }
    let cut_before = matches!(parts.last(), Some(ModelReplyPart::Call { cut: true, .. }));
    if !cut_before && state.rng.hits_permille(state.plan.model.todos) {
        draw_todos(state, wants_to_end, parts);
    }
    // Sometimes too early, before anything was done.
    if !cut_before && (wants_to_end || state.rng.below(40) == 0) {
        draw_control_call(state, control::COMPLETION_TOOL, "result", parts);
        if state.rng.below(10) == 0 {
            draw_tool_call(state, parts);
        }
    }
    match parts
        .iter()
        .filter(|part| matches!(part, ModelReplyPart::Call { .. }))
        .count()
    {
        0 => state.counters.count_event("answers without a call"),
        1 => {}
        _ => state.counters.count_event("answers of several calls"),
    }
    if parts.is_empty() {
        parts.push(ModelReplyPart::Text("Well.".to_owned()));
    }
}

/// Counts the answers on record, over all processes.
fn count_answers(state: &SimulationState) -> usize {
    state
        .observations
        .records
        .iter()
        .filter(|record| matches!(record, Record::Answered(_)))
        .count()
}

/// Adds a call of a control tool whose only argument is a new token.
fn draw_control_call(
    state: &mut SimulationState,
    name: &str,
    argument: &'static str,
    parts: &mut Vec<ModelReplyPart>,
) {
    let token = new_token(state);
    push_control_call(state, name, argument, token, parts);
}

/// Adds a call of a control tool with this value. Control calls have no flaws.
fn push_control_call(
    state: &mut SimulationState,
    name: &str,
    argument: &'static str,
    value: String,
    parts: &mut Vec<ModelReplyPart>,
) {
    let id = new_id(state, parts);
    record_written_call(state, &value, CallQuality::Good, 1);
    parts.push(ModelReplyPart::Call {
        name: name.to_owned(),
        id,
        arguments: vec![(argument, value)],
        cut: false,
    });
}

/// Draws a list of todos, or text that is not a list. If `done`, all todos are finished, because the model wants to complete.
fn draw_todos(state: &mut SimulationState, done: bool, parts: &mut Vec<ModelReplyPart>) {
    let token = new_token(state);
    // The token is part of the list, so that the list can be found in later requests.
    let list = match state.rng.below(6) {
        0 => format!("{token} first this, then that"),
        1 | 2 if !done => format!("[x] one\n[x] {token}"),
        3 | 4 if !done => format!("[x] one\n[-] two\n  [ ] {token}"),
        _ if done => format!("[x] all\n- [x] {token}"),
        _ => format!("[ ] {token}\n[ ] more"),
    };
    let name = match list.starts_with('[') {
        true if has_open_todos(control::TODO_LIST_TOOL, &list) => "todos left open",
        true => "todos done",
        false => "todos that are not a list",
    };
    state.counters.count_event(name);
    push_control_call(state, control::TODO_LIST_TOOL, "todos", list, parts);
}

/// Repeats one of the last calls that only read.
fn repeat_call(state: &mut SimulationState, parts: &mut Vec<ModelReplyPart>) {
    let looks = |written: &WrittenCall| matches!(written.name, "look" | "list");
    let mut all: Vec<_> = state
        .observations
        .written
        .iter()
        .filter(|(_, written)| looks(written))
        .collect();
    // The latest first: repeating an old call would be no cycle.
    all.sort_by_key(|(_, written)| std::cmp::Reverse(written.number));
    // Some models alternate between two calls.
    let back = if state.plan.model.length.is_multiple_of(2) {
        0
    } else {
        count_answers(state) % 2
    };
    let Some((token, name)) = all
        .get(back)
        .or(all.first())
        .map(|(token, written)| (String::clone(token), written.name))
    else {
        return draw_tool_call(state, parts);
    };
    state.counters.count_event("calls repeated");
    let id = new_id(state, parts);
    // Written once more, so it may run once more.
    if let Some(written) = state.observations.written.get_mut(&token) {
        written.times += 1;
    }
    state.trace_line(|| format!("the model writes {token} again"));
    parts.push(ModelReplyPart::Call {
        name: name.to_owned(),
        id,
        arguments: vec![("path", token)],
        cut: false,
    });
}

/// Draws a call of a simulated tool, possibly with a flaw.
fn draw_tool_call(state: &mut SimulationState, parts: &mut Vec<ModelReplyPart>) {
    let at = state.rng.index(SIMULATED_TOOLS.len());
    let name = SIMULATED_TOOLS.get(at).map_or("look", |(name, _)| *name);
    // Calls of the forbidden tool are rare, because denials end a task early.
    let name = if name == "forbid" && state.rng.below(3) > 0 {
        "look"
    } else {
        name
    };
    let token = new_token(state);
    let id = new_id(state, parts);
    let flaw = draw_flaw(state);
    // The token moves to an optional argument, since the call must stay recognizable.
    let argument = if flaw == CallFlaw::Missing {
        "note"
    } else {
        "path"
    };
    let mut arguments = vec![(argument, token.clone())];
    let mut name = name.to_owned();
    let mut quality = CallQuality::Good;
    let mut times = 1;
    match flaw {
        CallFlaw::None => {}
        CallFlaw::Missing => {
            quality = CallQuality::Bad;
            state.counters.count_event("calls missing an argument");
        }
        CallFlaw::WrongType => {
            arguments.push(("count", "many".to_owned()));
            quality = CallQuality::Bad;
            state.counters.count_event("calls of a wrong type");
        }
        CallFlaw::Unknown => {
            "teleport".clone_into(&mut name);
            quality = CallQuality::Bad;
            state.counters.count_event("calls of unknown tools");
        }
        // Still good: a repair finds the tool, and the call runs.
        CallFlaw::Misspelled => {
            name = name.to_uppercase();
            state.counters.count_event("calls misspelled");
        }
        CallFlaw::Cut => {
            quality = CallQuality::Cut;
            state.counters.count_event("calls cut");
        }
        // Good as well: some models repeat a call, and each of the two may run once.
        CallFlaw::Doubled => {
            times = 2;
            state.counters.count_event("calls doubled");
        }
    }
    record_written_call(state, &token, quality, times);
    // Only flawless calls are repeated later; the name of any other stays empty.
    if flaw == CallFlaw::None
        && let Some((name, _)) = SIMULATED_TOOLS.get(at).filter(|(known, _)| *known == name)
        && let Some(written) = state.observations.written.get_mut(&token)
    {
        written.name = name;
    }
    for _ in 0..times {
        parts.push(ModelReplyPart::Call {
            name: name.clone(),
            id: id.clone(),
            arguments: arguments.clone(),
            cut: flaw == CallFlaw::Cut,
        });
    }
}

/// Draws the flaw of a call, as often as the plan says. Cut calls are drawn twice as often as
/// others.
fn draw_flaw(state: &mut SimulationState) -> CallFlaw {
    if !state.rng.hits_permille(state.plan.model.bad_calls) {
        return CallFlaw::None;
    }
    let others = [
        CallFlaw::WrongType,
        CallFlaw::Unknown,
        CallFlaw::Misspelled,
        CallFlaw::Cut,
        CallFlaw::Cut,
        CallFlaw::Doubled,
    ];
    state.rng.pick_one(CallFlaw::Missing, &others)
}

/// Returns the next unique token. It ends in a dot, so that no token is the beginning of another one.
fn new_token(state: &SimulationState) -> String {
    format!("t{}.", state.observations.written.len())
}

/// Draws the id that the provider gives a call. Some ids repeat in every response.
fn new_id(state: &mut SimulationState, parts: &[ModelReplyPart]) -> Option<String> {
    match state.rng.below(3) {
        0 => None,
        1 => Some(format!("native-{}", state.observations.written.len())),
        _ => {
            state.counters.count_event("ids used again");
            Some(format!("call_{}", parts.len()))
        }
    }
}

/// Tells the observer about a call that the model writes.
fn record_written_call(state: &mut SimulationState, token: &str, quality: CallQuality, times: u32) {
    let spelling = if state.plan.model.prompted {
        "calls prompted"
    } else {
        "calls native"
    };
    state.counters.add_events("calls written", u64::from(times));
    state.counters.add_events(spelling, u64::from(times));
    state.trace_line(|| format!("the model writes {token} {quality:?} {times}"));
    let number = state.observations.written.len();
    state.observations.written.insert(
        token.to_owned(),
        WrittenCall {
            quality,
            times,
            number,
            ..WrittenCall::default()
        },
    );
}
