//! Law 7 by construction: inputs of every kind in any order, fitting or not, make no history with an unanswered or doubly answered
//! call.

use proptest::prelude::*;
use sabir_agent::{Access, Attended, Bound, Effect, Input, Judge, Record, Reply, Task, ToolOutput, Verdict, Words};
use sabir_call::{ArgForm, CallId, Cut, Ending, Event, Image, ModelError, ModelErrorKind, StopReason, Usage};

use crate::machine::{Machine, settings, start};

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
    Cancel,
    Expired,
    /// The process ends, and another one goes on with the records.
    Resumed,
}

/// Ids as providers give them, as the machine makes them, and one that nobody gave.
const IDS: [&str; 8] = ["a", "b", "call_1_0", "call_1_1", "call_2_0", "call_2_1", "call_3_0", "nobody"];
const NAMES: [&str; 6] = ["look", "touch", "teleport", "", "attempt_completion", "ask_followup_question"];

const ARGUMENTS: [&str; 3] = ["path", "result", "question"];

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
        1 => Just(Given::Cancel),
        1 => Just(Given::Expired),
        2 => Just(Given::Resumed),
    ]
}

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError { kind, message: "x".to_owned() }
}

fn argument(machine: &mut Machine, index: u32, name: &str) {
    machine.step(Input::Event(Event::ArgStart { index, name, form: ArgForm::String, at: 0 }));
    machine.step(Input::Event(Event::ArgDelta { index, text: "a" }));
    machine.step(Input::Event(Event::ArgEnd { index, lead: "", at: 0 }));
}

/// Gives it to the machine, whatever that waits for.
fn give(machine: &mut Machine, given: &Given, attended: Attended) {
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
                (Effect::Run(permit), true) => Input::Ran(permit.call, ToolOutput::failed("x")),
                (Effect::Run(permit), false) => Input::Ran(permit.call, ToolOutput::done("x")),
                (other, _) => unreachable!("{other:?}"),
            }
        }
        Given::Argument(index, name) => return argument(machine, *index, ARGUMENTS[*name]),
        Given::Called(index, id, name) => {
            let argument = if *name < 4 { 0 } else { name - 3 };
            give(machine, &Given::Opened(*index, *id, *name), attended);
            give(machine, &Given::Argument(*index, argument), attended);
            Input::Event(Event::CallEnd { index: *index, at: 0 })
        }
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
        Given::Cancel => Input::Cancel,
        Given::Expired => Input::Expired,
        Given::Resumed => {
            if let Ok(task) = Task::replay(machine.records.clone(), settings(attended)) {
                machine.task = task;
                machine.open.clear();
            }
            return;
        }
    };
    machine.step(input);
}

/// Each call of an answer has at most one result, nothing else has one, and no call runs twice or after its result.
fn check_records(records: &[Record]) {
    let (mut called, mut answered, mut begun): (Vec<&CallId>, Vec<&CallId>, Vec<&CallId>) = Default::default();
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
                assert!(!begun.contains(&call) && !answered.contains(&call), "{call} runs twice, or after its result");
                begun.push(call);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_inputs_make_another_history(given in proptest::collection::vec(given(), 0..120), attended in any::<bool>()) {
        let attended = if attended { Attended::Yes } else { Attended::No };
        let (task, first) = Task::new(start(), settings(attended));
        let mut machine = Machine { task, records: vec![first], open: Vec::new() };
        for one in &given {
            give(&mut machine, one, attended);
            machine.check_history();
            check_records(&machine.records);
        }
        // What can be asked of a model at the end is as whole.
        if let Ok(mut again) = Task::replay(machine.records.clone(), settings(attended)) {
            prop_assert_eq!(again.history(), machine.task.history());
            again.step(Input::Cancel);
            prop_assert_eq!(&*again.request().messages, again.history());
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
