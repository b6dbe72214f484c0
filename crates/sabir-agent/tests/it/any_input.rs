//! Law 7 by construction: inputs of every kind in any order, fitting or not, make no history with an unanswered or doubly answered
//! call.

use proptest::prelude::*;
use sabir_agent::{
    Arguments, Attended, Author, Bound, Effect, Input, Judge, OpenTodos, Outcome, Outfit, Record, Reply, Settings,
    Shift, SubtaskEnd, Task, ToolOutput, Trail, Words, control,
};
use sabir_call::{ArgForm, CallId, Cost, Cut, Ending, Event, Image, ModelError, ModelErrorKind, StopReason, Usage};
use sabir_policy::{Access, Verdict};

use crate::machine::{Machine, settings, start};
use crate::modes::{in_mode, outfits};

/// An input, owned.
#[derive(Debug, Clone)]
enum Given {
    Begin,
    Said,
    /// Words or none with a picture, perhaps at once.
    Showed(bool, bool),
    Text,
    Opened(u32, usize, usize),
    Argument(u32, usize),
    /// What the machine waits for, done.
    Fitting(bool),
    /// A whole call.
    Called(u32, usize, usize),
    Closed(u32),
    Cut(u32),
    Stopped(StopReason),
    Used,
    Answered,
    Failed(ModelErrorKind),
    Weighed(usize, Access),
    Replied(Reply),
    Ran(usize, bool),
    Moded(usize),
    Cancel,
    Expired,
    Spent,
    Steered,
    Left,
    /// The context is compacted, by the model or without one.
    Compact(Author),
    Restore,
    /// The process ends, and another one goes on with the records.
    Resumed,
}

/// Ids as providers give them, as the machine makes them, and one that nobody gave.
const IDS: [&str; 8] = ["a", "b", "call_1_0", "call_1_1", "call_2_0", "call_2_1", "call_3_0", "nobody"];
const NAMES: [&str; 9] = [
    "look",
    "touch",
    "teleport",
    "",
    "attempt_completion",
    "ask_followup_question",
    control::SUBTASK,
    control::TODOS,
    "switch_mode",
];

const ARGUMENTS: [&str; 6] = ["path", "result", "question", "message", "todos", "mode"];

const MODES: [&str; 4] = ["code", "plan", "ask", "nothing"];

fn given() -> impl Strategy<Value = Given> {
    let index = || 0u32..3;
    let words = || prop_oneof![Just(String::new()), Just("words".to_owned())];
    let path = || "a".to_owned();
    let access = prop_oneof![
        3 => Just(Access::Nothing),
        2 => Just(Access::Write { path: path(), protected: None }),
        1 => Just(Access::Write { path: path(), protected: Some("it is".to_owned()) }),
        1 => Just(Access::Read { path: path(), outside: true }),
        1 => Just(Access::Invalid { reason: "x".to_owned() }),
    ];
    let reply = prop_oneof![
        3 => Just(Reply::Yes),
        1 => words().prop_map(Reply::No),
        1 => words().prop_map(Reply::Words),
        1 => Just(Reply::Always(vec!["edits".to_owned()])),
        1 => Just(Reply::Leave),
    ];
    prop_oneof![
        6 => Just(Given::Begin),
        1 => Just(Given::Said),
        2 => any::<(bool, bool)>().prop_map(|(speaks, at_once)| Given::Showed(speaks, at_once)),
        2 => Just(Given::Text),
        8 => (index(), 0..IDS.len(), 0..NAMES.len()).prop_map(|(index, id, name)| Given::Opened(index, id, name)),
        6 => (index(), 0..ARGUMENTS.len()).prop_map(|(index, name)| Given::Argument(index, name)),
        12 => (index(), 0..IDS.len(), 0..NAMES.len()).prop_map(|(index, id, name)| Given::Called(index, id, name)),
        8 => index().prop_map(Given::Closed),
        1 => index().prop_map(Given::Cut),
        1 => prop_oneof![Just(StopReason::Refused), Just(StopReason::Length)].prop_map(Given::Stopped),
        1 => Just(Given::Used),
        14 => Just(Given::Answered),
        1 => prop_oneof![Just(ModelErrorKind::Broken), Just(ModelErrorKind::Key)].prop_map(Given::Failed),
        10 => (0..IDS.len(), access).prop_map(|(id, access)| Given::Weighed(id, access)),
        5 => reply.prop_map(Given::Replied),
        10 => (0..IDS.len(), any::<bool>()).prop_map(|(id, failed)| Given::Ran(id, failed)),
        20 => any::<bool>().prop_map(Given::Fitting),
        2 => (0..MODES.len()).prop_map(Given::Moded),
        1 => Just(Given::Cancel),
        1 => Just(Given::Expired),
        1 => Just(Given::Spent),
        1 => Just(Given::Steered),
        1 => Just(Given::Left),
        1 => Just(Given::Compact(Author::Model)),
        2 => Just(Given::Compact(Author::Sabir)),
        1 => Just(Given::Restore),
        2 => Just(Given::Resumed),
    ]
}

/// Who is there, and what must hold before a completion is accepted.
fn terms() -> impl Strategy<Value = Settings> {
    let attended = prop_oneof![Just(Attended::Yes), Just(Attended::No), Just(Attended::Program)];
    (attended, any::<bool>(), any::<bool>()).prop_map(|(attended, todos, check)| {
        let mut terms = settings(attended);
        terms.completion.todos = if todos { OpenTodos::Refused } else { OpenTodos::Allowed };
        terms.completion.check = check.then(|| ("touch".to_owned(), Arguments::new()));
        terms
    })
}

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError { kind, message: "x".to_owned() }
}

fn end(failed: bool) -> SubtaskEnd {
    let outcome = if failed { Outcome::Cancelled } else { Outcome::Completed };
    let usage = Usage { input: Some(7), ..Usage::default() };
    SubtaskEnd { outcome, turns: 2, usage, estimate: Usage::default(), cost: Cost::default() }
}

fn argument(machine: &mut Machine, index: u32, name: &str) {
    machine.step(Input::Event(Event::ArgStart { index, name, form: ArgForm::String, at: 0 }));
    let text = match name {
        "mode" => MODES[1 + machine.records.len() % 3],
        "todos" => "[ ] a",
        _ => "a",
    };
    machine.step(Input::Event(Event::ArgDelta { index, text }));
    machine.step(Input::Event(Event::ArgEnd { index, lead: "", at: 0 }));
}

/// Gives it to the machine, whatever that waits for.
fn give(machine: &mut Machine, given: &Given, terms: &Settings) {
    let id = |at: usize| CallId::new(IDS[at]);
    let input = match given {
        Given::Begin => Input::Begin,
        Given::Said => Input::Said("words".to_owned()),
        Given::Showed(speaks, at_once) => {
            let image = Image { media_type: "image/png".to_owned(), data: "A".to_owned() };
            let text = if *speaks { "words".to_owned() } else { String::new() };
            Input::Showed { words: Words { text, images: vec![image] }, at_once: *at_once }
        }
        Given::Text => Input::Event(Event::Text { text: "words" }),
        Given::Opened(index, id, name) => {
            let id = IDS.get(*id).copied().filter(|id| *id != "nobody");
            Input::Event(Event::CallStart { index: *index, id, name: NAMES[*name], dialect: None, at: 0, name_at: 0 })
        }
        Given::Fitting(failed) => {
            let fits = |effect: &Effect| matches!(effect, Effect::Weigh(_) | Effect::Run(_));
            let Some(at) = machine.open.iter().position(fits) else { return };
            match (machine.open.remove(at), failed) {
                (Effect::Weigh(call), _) => Input::Weighed(call, Access::Nothing, Bound::default()),
                (Effect::Run(permit), failed) => {
                    let output = if *failed { ToolOutput::failed("x") } else { ToolOutput::done("x") };
                    let is_one = machine.task.call(&permit.call).is_some_and(|call| call.name == control::SUBTASK);
                    Input::Ran(permit.call, ToolOutput { subtask: is_one.then(|| end(*failed)), ..output })
                }
                (other, _) => unreachable!("{other:?}"),
            }
        }
        Given::Argument(index, name) => return argument(machine, *index, ARGUMENTS[*name]),
        Given::Called(index, id, name) => return called(machine, (*index, *id, *name), terms),
        Given::Closed(index) => Input::Event(Event::CallEnd { index: *index, at: 0 }),
        Given::Cut(index) => Input::Event(Event::CallCut { index: *index, why: Cut::Ended, at: 0 }),
        Given::Stopped(reason) => Input::Event(Event::Stop { reason: *reason, raw: "" }),
        Given::Used => Input::Event(Event::Usage(Usage { output: Some(3), ..Usage::default() })),
        Given::Answered => Input::Answered,
        Given::Failed(kind) => Input::Failed(error(*kind)),
        Given::Weighed(at, access) => Input::Weighed(id(*at), access.clone(), Bound::default()),
        Given::Replied(reply) => Input::Replied(reply.clone()),
        Given::Ran(at, true) => Input::Ran(id(*at), ToolOutput::failed("x")),
        Given::Ran(at, false) => Input::Ran(id(*at), ToolOutput::done("x")),
        Given::Moded(at) => Input::Moded(MODES[*at].to_owned()),
        Given::Cancel => Input::Cancel,
        Given::Expired => Input::Expired,
        Given::Spent => Input::Spent("x".to_owned()),
        Given::Steered => Input::Steered("words".to_owned()),
        Given::Left => Input::Left,
        Given::Compact(by) => Input::Compact(*by),
        Given::Restore => Input::Restore,
        Given::Resumed => return resumed(machine, terms),
    };
    machine.step(input);
}

/// A whole call, with what its tool requires.
fn called(machine: &mut Machine, (index, id, name): (u32, usize, usize), terms: &Settings) {
    let argument = if name < 4 { 0 } else { name - 3 };
    give(machine, &Given::Opened(index, id, name), terms);
    give(machine, &Given::Argument(index, argument), terms);
    if NAMES[name] == "switch_mode" {
        machine.step(Input::Event(Event::ArgStart { index, name: "reason", form: ArgForm::String, at: 0 }));
        machine.step(Input::Event(Event::ArgEnd { index, lead: "", at: 0 }));
    }
    machine.step(Input::Event(Event::CallEnd { index, at: 0 }));
}

/// Another process goes on with the records.
fn resumed(machine: &mut Machine, terms: &Settings) {
    let mode = Trail::of(&machine.records).mode().to_owned();
    if let Ok(task) = Task::replay(machine.records.clone(), in_mode(&mode, terms.clone())) {
        machine.task = task.among(roomy());
        machine.open.clear();
    }
}

/// Each call of an answer has at most one result, nothing else has one, and no call runs twice or after its result; but one that
/// begins a subtask may run again, and begins it once.
fn check_records(records: &[Record]) {
    let (mut called, mut answered, mut begun): (Vec<&CallId>, Vec<&CallId>, Vec<&CallId>) = Default::default();
    let mut subtasks: Vec<&CallId> = Vec::new();
    for record in records {
        match record {
            Record::Answered(answer) => {
                for check in &answer.checks {
                    assert!(!called.contains(&&check.call), "{} is called twice", check.call);
                    called.push(&check.call);
                }
            }
            Record::Result(result) => {
                assert!(called.contains(&&result.id), "{} is no call", result.id);
                assert!(!answered.contains(&&result.id), "two results for {}", result.id);
                answered.push(&result.id);
            }
            Record::Running { call, .. } => {
                let again = begun.contains(&call) && !subtasks.contains(&call);
                assert!(!again && !answered.contains(&call), "{call} runs twice, or after its result");
                begun.push(call);
            }
            Record::Subtask { call, ended, .. } => {
                assert!(begun.contains(&call) && !answered.contains(&call), "{call} does not run, or has its result");
                assert_eq!(
                    subtasks.contains(&call),
                    ended.is_some(),
                    "{call} begins one subtask, which ends after that"
                );
                subtasks.push(call);
            }
            _ => {}
        }
    }
}

/// Modes whose models have room for anything: nothing is compacted.
fn roomy() -> Vec<Outfit> {
    outfits().into_iter().map(|outfit| Outfit { window: None, ..outfit }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_inputs_make_another_history(given in proptest::collection::vec(given(), 0..120), terms in terms()) {
        let (task, first) = Task::new(start(), in_mode("code", terms.clone()));
        let mut machine = Machine { task: task.among(roomy()), records: vec![first], open: Vec::new() };
        for one in &given {
            give(&mut machine, one, &terms);
            machine.check_history();
            check_records(&machine.records);
        }
        // What can be asked of a model at the end is as whole.
        let trail = Trail::of(&machine.records);
        prop_assert_eq!(trail.mode(), machine.task.trail().mode());
        if let Ok(mut again) = Task::replay(machine.records.clone(), in_mode(trail.mode(), terms)) {
            prop_assert_eq!(again.history(), machine.task.history());
            prop_assert_eq!(again.totals(), machine.task.totals());
            again.step(Input::Cancel);
            let compacted = |record: &Record| matches!(record, Record::Context(Shift::Compacted(_)));
            if !machine.records.iter().any(compacted) {
                prop_assert_eq!(&*again.request().messages, again.history());
            }
        }
    }
}

#[test]
fn a_denial_holds_when_the_process_ends_before_the_result() {
    let mut machine = Machine::new(settings(Attended::No));
    machine.answer("<touch>\n<path>a</path>\n</touch>");
    let call = machine.last_answer().checks[0].call.clone();
    let denied = |by| Record::Judged { call: call.clone(), verdict: Verdict::Deny, by, reason: "no".to_owned() };
    for (by, who) in [(Judge::User, "The user did not allow this call: no."), (Judge::Policy, "The policy did")] {
        let mut records = machine.records.clone();
        records.push(denied(by));
        let mut task = Task::replay(records, settings(Attended::No)).unwrap();
        let effects = task.step(Input::Begin);
        let Some(Effect::Keep(Record::Result(result))) = effects.first() else { panic!("{effects:?}") };
        assert_eq!(result.ending, Ending::Denied);
        assert!(result.content.starts_with(who), "{}", result.content);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Weigh(_) | Effect::Run(_))), "{effects:?}");
    }
}
