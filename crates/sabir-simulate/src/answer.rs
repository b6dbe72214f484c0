//! What a simulated model says: words, calls of every quality, and how the answer ends.

use sabir_agent::{Record, control};
use sabir_call::{ModelErrorKind, StopReason, Usage};

use crate::model::{stop, usage};
use crate::reading::is_open;
use crate::scene::State;
use crate::witness::{Quality, Written};
use crate::work::TOOLS;

/// An answer to be.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) parts: Vec<Spoken>,
    pub(crate) end: End,
    pub(crate) usage: Usage,
}

/// One thing that is said.
#[derive(Debug)]
pub(crate) enum Spoken {
    Text(String),
    Thought(String),
    Call {
        name: String,
        id: Option<String>,
        arguments: Vec<(&'static str, String)>,
        /// Whether it is never closed.
        cut: bool,
    },
}

/// How an answer ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Whole(StopReason),
    FailedBefore(ModelErrorKind),
    BrokenOff(ModelErrorKind),
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Missing,
    WrongType,
    Unknown,
    Misspelled,
    Cut,
    Doubled,
}

impl Reply {
    pub(crate) fn breaks(&self) -> bool {
        matches!(self.end, End::BrokenOff(_))
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Spoken::Call { arguments, .. } => arguments.first().map(|(_, token)| token.as_str()),
            _ => None,
        })
    }
}

/// Decides what the model says now.
pub(crate) fn draw(state: &mut State) -> Reply {
    if state.chance.permille(state.plan.model.trouble) && state.chance.below(2) == 0 {
        state.figures.count("answers failed before");
        let kind = state.chance.pick(
            ModelErrorKind::Unavailable,
            &[ModelErrorKind::RateLimited, ModelErrorKind::Unreachable, ModelErrorKind::Key, ModelErrorKind::TooLong],
        );
        return Reply { parts: Vec::new(), end: End::FailedBefore(kind), usage: Usage::default() };
    }
    let mut parts = Vec::new();
    if state.chance.below(3) == 0 {
        parts.push(Spoken::Thought("Let me think.".to_owned()));
    }
    if state.chance.below(2) == 0 {
        parts.push(Spoken::Text("I shall do it.".to_owned()));
    }
    if state.chance.below(300) == 0 {
        state.figures.count("answers refused");
        parts.push(Spoken::Text("I must not.".to_owned()));
        return Reply { parts, end: End::Whole(StopReason::Refused), usage: usage(state) };
    }
    calls(state, &mut parts);
    let breaks = state.chance.permille(state.plan.model.trouble);
    let mut cut = parts.iter().any(|part| matches!(part, Spoken::Call { cut: true, .. }));
    let end = if breaks {
        state.figures.count("answers broken off");
        parts.truncate(1 + state.chance.index(parts.len()));
        if let Some(Spoken::Call { cut: last, .. }) = parts.last_mut()
            && state.chance.below(2) == 0
        {
            *last = true;
        }
        let kinds = [ModelErrorKind::Unavailable, ModelErrorKind::Format];
        End::BrokenOff(state.chance.pick(ModelErrorKind::Broken, &kinds))
    } else {
        let any = parts.iter().any(|part| matches!(part, Spoken::Call { .. }));
        // What a provider says of it is no proof.
        cut &= state.chance.below(2) == 0;
        End::Whole(stop(any, cut))
    };
    Reply { parts, end, usage: usage(state) }
}

fn calls(state: &mut State, parts: &mut Vec<Spoken>) {
    let wants_to_end = answers(state) as u64 >= u64::from(state.plan.model.length) && state.chance.below(10) < 7;
    let most = state.chance.pick(1, &[1, 1, 2, 3, 5, 0]);
    let (most, alone) = if wants_to_end { (most, state.chance.below(4) > 0) } else { (most, false) };
    for _ in 0..if alone { 0 } else { most } {
        let cut_before = matches!(parts.last(), Some(Spoken::Call { cut: true, .. }));
        if cut_before {
            break;
        }
        if state.chance.below(12) == 0 {
            control_call(state, control::FOLLOWUP, "question", parts);
        } else if state.chance.permille(state.plan.model.delegates) && state.plan.terms.limits.subtasks.depth > 0 {
            control_call(state, control::SUBTASK, "message", parts);
        } else if state.chance.permille(state.plan.model.repeats) {
            again(state, parts);
        } else {
            tool_call(state, parts);
        }
    }
    let cut_before = matches!(parts.last(), Some(Spoken::Call { cut: true, .. }));
    if !cut_before && state.chance.permille(state.plan.model.todos) {
        todos(state, wants_to_end, parts);
    }
    if !cut_before && (wants_to_end || state.chance.below(40) == 0) {
        control_call(state, control::COMPLETION, "result", parts);
        if state.chance.below(10) == 0 {
            tool_call(state, parts);
        }
    }
    match parts.iter().filter(|part| matches!(part, Spoken::Call { .. })).count() {
        0 => state.figures.count("answers without a call"),
        1 => {}
        _ => state.figures.count("answers of several calls"),
    }
    if parts.is_empty() {
        parts.push(Spoken::Text("Well.".to_owned()));
    }
}

fn answers(state: &State) -> usize {
    state.witness.records.iter().filter(|record| matches!(record, Record::Answered(_))).count()
}

fn control_call(state: &mut State, name: &str, argument: &'static str, parts: &mut Vec<Spoken>) {
    let token = new_token(state);
    say_control(state, (name, argument), token, parts);
}

fn say_control(state: &mut State, (name, argument): (&str, &'static str), value: String, parts: &mut Vec<Spoken>) {
    let id = new_id(state, parts);
    write(state, &value, Quality::Good, 1);
    parts.push(Spoken::Call { name: name.to_owned(), id, arguments: vec![(argument, value)], cut: false });
}

/// A list of todos, or what is none; done where the model wants to end.
fn todos(state: &mut State, done: bool, parts: &mut Vec<Spoken>) {
    let token = new_token(state);
    let list = match state.chance.below(6) {
        0 => format!("{token} first this, then that"),
        1 | 2 if !done => format!("[x] one\n[x] {token}"),
        3 | 4 if !done => format!("[x] one\n[-] two\n  [ ] {token}"),
        _ if done => format!("[x] all\n- [x] {token}"),
        _ => format!("[ ] {token}\n[ ] more"),
    };
    let name = match list.starts_with('[') {
        true if is_open(control::TODOS, &list) => "todos left open",
        true => "todos done",
        false => "todos that are no list",
    };
    state.figures.count(name);
    say_control(state, (control::TODOS, "todos"), list, parts);
}

/// One of the last calls that only looked, once more.
fn again(state: &mut State, parts: &mut Vec<Spoken>) {
    let looks = |written: &Written| matches!(written.name, "look" | "list");
    let mut all: Vec<_> = state.witness.written.iter().filter(|(_, written)| looks(written)).collect();
    all.sort_by_key(|(_, written)| std::cmp::Reverse(written.number));
    // Some models go round in a circle of two.
    let back = if state.plan.model.length.is_multiple_of(2) { 0 } else { answers(state) % 2 };
    let Some((token, name)) =
        all.get(back).or(all.first()).map(|(token, written)| (String::clone(token), written.name))
    else {
        return tool_call(state, parts);
    };
    state.figures.count("calls repeated");
    let id = new_id(state, parts);
    if let Some(written) = state.witness.written.get_mut(&token) {
        written.times += 1;
    }
    state.say(|| format!("the model writes {token} again"));
    parts.push(Spoken::Call { name: name.to_owned(), id, arguments: vec![("path", token)], cut: false });
}

fn tool_call(state: &mut State, parts: &mut Vec<Spoken>) {
    let at = state.chance.index(TOOLS.len());
    let name = TOOLS.get(at).map_or("look", |(name, _)| *name);
    // The forbidden one is rare.
    let name = if name == "forbid" && state.chance.below(3) > 0 { "look" } else { name };
    let (token, id) = (new_token(state), new_id(state, parts));
    let flaw = flaw(state);
    let argument = if flaw == Flaw::Missing { "note" } else { "path" };
    let mut arguments = vec![(argument, token.clone())];
    let (mut name, mut quality, mut times) = (name.to_owned(), Quality::Good, 1);
    match flaw {
        Flaw::None => {}
        Flaw::Missing => {
            quality = Quality::Bad;
            state.figures.count("calls missing an argument");
        }
        Flaw::WrongType => {
            arguments.push(("count", "many".to_owned()));
            quality = Quality::Bad;
            state.figures.count("calls of a wrong type");
        }
        Flaw::Unknown => {
            "teleport".clone_into(&mut name);
            quality = Quality::Bad;
            state.figures.count("calls of unknown tools");
        }
        Flaw::Misspelled => {
            name = name.to_uppercase();
            state.figures.count("calls misspelled");
        }
        Flaw::Cut => {
            quality = Quality::Cut;
            state.figures.count("calls cut");
        }
        Flaw::Doubled => {
            times = 2;
            state.figures.count("calls doubled");
        }
    }
    write(state, &token, quality, times);
    if flaw == Flaw::None
        && let Some((name, _)) = TOOLS.get(at).filter(|(known, _)| *known == name)
        && let Some(written) = state.witness.written.get_mut(&token)
    {
        written.name = name;
    }
    for _ in 0..times {
        let (name, id, arguments) = (name.clone(), id.clone(), arguments.clone());
        parts.push(Spoken::Call { name, id, arguments, cut: flaw == Flaw::Cut });
    }
}

fn flaw(state: &mut State) -> Flaw {
    if !state.chance.permille(state.plan.model.bad_calls) {
        return Flaw::None;
    }
    let others = [Flaw::WrongType, Flaw::Unknown, Flaw::Misspelled, Flaw::Cut, Flaw::Cut, Flaw::Doubled];
    state.chance.pick(Flaw::Missing, &others)
}

/// Ends in a dot, so that no part of one is another.
fn new_token(state: &State) -> String {
    format!("t{}.", state.witness.written.len())
}

fn new_id(state: &mut State, parts: &[Spoken]) -> Option<String> {
    match state.chance.below(3) {
        0 => None,
        1 => Some(format!("native-{}", state.witness.written.len())),
        _ => {
            state.figures.count("ids used again");
            Some(format!("call_{}", parts.len()))
        }
    }
}

fn write(state: &mut State, token: &str, quality: Quality, times: u32) {
    let spelling = if state.plan.model.prompted { "calls prompted" } else { "calls native" };
    state.figures.add("calls written", u64::from(times));
    state.figures.add(spelling, u64::from(times));
    state.say(|| format!("the model writes {token} {quality:?} {times}"));
    let number = state.witness.written.len();
    state.witness.written.insert(token.to_owned(), Written { quality, times, number, ..Written::default() });
}
