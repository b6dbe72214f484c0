//! One result for each call: inputs of every kind in any order, expected or not, never leave a call without a result or give it two
//! results.

use proptest::prelude::*;
use sabir_agent::{
    CallArguments, ContextChange, DecisionMaker, Interactivity, ModeConfig, ModeHistory, OpenTodos,
    Preconditions, Record, SubtaskEnd, SummaryAuthor, Task, TaskEffect, TaskInput, TaskOutcome,
    TaskSettings, ToolOutput, UserMessage, UserReply, control,
};
use sabir_call::{
    ArgumentEncoding, CallId, Cost, Event, Image, ModelError, ModelErrorKind, StopReason,
    ToolResultStatus, Truncation, Usage,
};
use sabir_policy::{Access, Verdict};

use crate::machine::{Machine, settings, start};
use crate::modes::{mode_configs, settings_in_mode};

/// An input, owned.
#[derive(Debug, Clone)]
enum GeneratedInput {
    Begin,
    TextMessage,
    /// A message with an image and perhaps text, perhaps interrupting.
    ImageMessage(bool, bool),
    Text,
    CallStart(u32, usize, usize),
    Argument(u32, usize),
    /// Completes an effect that the machine waits for.
    EffectResult(bool),
    /// A whole call.
    WholeCall(u32, usize, usize),
    CallEnd(u32),
    Cut(u32),
    Stopped(StopReason),
    Used,
    Answered,
    Failed(ModelErrorKind),
    Weighed(usize, Box<Access>),
    Replied(UserReply),
    Ran(usize, bool),
    Moded(usize),
    Cancel,
    Expired,
    Spent,
    Steered,
    Left,
    /// The context is compacted, by the model or without one.
    Compact(SummaryAuthor),
    UndoCompaction,
    Objected,
    /// The process ends, and another one resumes from the records.
    Resumed,
}

/// Ids as providers give them, as the machine makes them, and an unknown one.
const IDS: [&str; 8] = [
    "a", "b", "call_1_0", "call_1_1", "call_2_0", "call_2_1", "call_3_0", "nobody",
];
const NAMES: [&str; 9] = [
    "look",
    "touch",
    "teleport",
    "",
    "attempt_completion",
    "ask_followup_question",
    control::NEW_TASK_TOOL,
    control::TODO_LIST_TOOL,
    "switch_mode",
];

const ARGUMENTS: [&str; 6] = ["path", "result", "question", "message", "todos", "mode"];

const MODES: [&str; 4] = ["code", "plan", "ask", "nothing"];

fn any_generated_input() -> impl Strategy<Value = GeneratedInput> {
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
        3 => Just(UserReply::Yes),
        1 => words().prop_map(UserReply::No),
        1 => words().prop_map(|text| UserReply::Text(text.into())),
        1 => Just(UserReply::YesWithRules(vec!["edits".to_owned()])),
        1 => Just(UserReply::Leave),
    ];
    prop_oneof![
        6 => Just(GeneratedInput::Begin),
        1 => Just(GeneratedInput::TextMessage),
        2 => any::<(bool, bool)>().prop_map(|(speaks, at_once)| GeneratedInput::ImageMessage(speaks, at_once)),
        2 => Just(GeneratedInput::Text),
        8 => (index(), 0..IDS.len(), 0..NAMES.len()).prop_map(|(index, id, name)| GeneratedInput::CallStart(index, id, name)),
        6 => (index(), 0..ARGUMENTS.len()).prop_map(|(index, name)| GeneratedInput::Argument(index, name)),
        12 => (index(), 0..IDS.len(), 0..NAMES.len()).prop_map(|(index, id, name)| GeneratedInput::WholeCall(index, id, name)),
        8 => index().prop_map(GeneratedInput::CallEnd),
        1 => index().prop_map(GeneratedInput::Cut),
        1 => prop_oneof![Just(StopReason::Refused), Just(StopReason::Length)].prop_map(GeneratedInput::Stopped),
        1 => Just(GeneratedInput::Used),
        14 => Just(GeneratedInput::Answered),
        1 => prop_oneof![Just(ModelErrorKind::Broken), Just(ModelErrorKind::Key)].prop_map(GeneratedInput::Failed),
        10 => (0..IDS.len(), access).prop_map(|(id, access)| GeneratedInput::Weighed(id, Box::new(access))),
        5 => reply.prop_map(GeneratedInput::Replied),
        10 => (0..IDS.len(), any::<bool>()).prop_map(|(id, failed)| GeneratedInput::Ran(id, failed)),
        20 => any::<bool>().prop_map(GeneratedInput::EffectResult),
        2 => (0..MODES.len()).prop_map(GeneratedInput::Moded),
        1 => Just(GeneratedInput::Cancel),
        1 => Just(GeneratedInput::Expired),
        1 => Just(GeneratedInput::Spent),
        1 => Just(GeneratedInput::Steered),
        1 => Just(GeneratedInput::Left),
        1 => Just(GeneratedInput::Compact(SummaryAuthor::Model)),
        2 => Just(GeneratedInput::Compact(SummaryAuthor::Sabir)),
        1 => Just(GeneratedInput::UndoCompaction),
        1 => Just(GeneratedInput::Objected),
        2 => Just(GeneratedInput::Resumed),
    ]
}

/// Generates settings: the interactivity, and the conditions for a completion.
fn any_settings() -> impl Strategy<Value = TaskSettings> {
    let attended = prop_oneof![
        Just(Interactivity::Interactive),
        Just(Interactivity::Headless),
        Just(Interactivity::Controlled)
    ];
    (attended, any::<bool>(), any::<bool>()).prop_map(|(attended, todos, check)| {
        let mut terms = settings(attended);
        terms.completion.open_todos = if todos {
            OpenTodos::Refused
        } else {
            OpenTodos::Allowed
        };
        terms.completion.check = check.then(|| ("touch".to_owned(), CallArguments::new()));
        terms
    })
}

fn error(kind: ModelErrorKind) -> ModelError {
    ModelError {
        kind,
        message: "x".to_owned(),
    }
}

fn subtask_end(failed: bool) -> SubtaskEnd {
    let outcome = if failed {
        TaskOutcome::Cancelled
    } else {
        TaskOutcome::Completed
    };
    let usage = Usage {
        input: Some(7),
        ..Usage::default()
    };
    SubtaskEnd {
        outcome,
        turns: 2,
        usage,
        estimate: Usage::default(),
        cost: Cost::default(),
    }
}

fn write_argument(machine: &mut Machine, index: u32, name: &str) {
    machine.step(TaskInput::ModelEvent(Event::ArgStart {
        index,
        name,
        form: ArgumentEncoding::String,
        at: 0,
    }));
    let text = match name {
        "mode" => MODES[1 + machine.records.len() % 3],
        "todos" => "[ ] a",
        _ => "a",
    };
    machine.step(TaskInput::ModelEvent(Event::ArgDelta { index, text }));
    machine.step(TaskInput::ModelEvent(Event::ArgEnd {
        index,
        lead: "",
        at: 0,
    }));
}

/// Gives an input to the machine, in any state.
fn apply_input(machine: &mut Machine, given: &GeneratedInput, terms: &TaskSettings) {
    let id = |at: usize| CallId::new(IDS[at]);
    let input = match given {
        GeneratedInput::Begin => TaskInput::Begin,
        GeneratedInput::TextMessage => TaskInput::queued("words"),
        GeneratedInput::ImageMessage(speaks, at_once) => {
            let image = Image {
                media_type: "image/png".to_owned(),
                data: "A".to_owned(),
            };
            let text = if *speaks {
                "words".to_owned()
            } else {
                String::new()
            };
            let message = UserMessage {
                text,
                images: vec![image],
            };
            if *at_once {
                TaskInput::interrupting(message)
            } else {
                TaskInput::queued(message)
            }
        }
        GeneratedInput::Text => TaskInput::ModelEvent(Event::Text { text: "words" }),
        GeneratedInput::CallStart(index, id, name) => {
            let id = IDS.get(*id).copied().filter(|id| *id != "nobody");
            TaskInput::ModelEvent(Event::CallStart {
                index: *index,
                id,
                name: NAMES[*name],
                dialect: None,
                at: 0,
                name_at: 0,
            })
        }
        GeneratedInput::EffectResult(failed) => {
            let fits = |effect: &TaskEffect| {
                matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_))
            };
            let Some(at) = machine.open.iter().position(fits) else {
                return;
            };
            match (machine.open.remove(at), failed) {
                (TaskEffect::AssessCall(call), _) => {
                    TaskInput::CallAssessed(call, Access::Nothing, Preconditions::default())
                }
                (TaskEffect::RunCall(permit), failed) => {
                    let output = if *failed {
                        ToolOutput::failed("x")
                    } else {
                        ToolOutput::done("x")
                    };
                    let is_one = machine
                        .task
                        .open_call(&permit.call)
                        .is_some_and(|call| call.name == control::NEW_TASK_TOOL);
                    TaskInput::ToolFinished(
                        permit.call,
                        ToolOutput {
                            subtask: is_one.then(|| subtask_end(*failed)),
                            ..output
                        },
                    )
                }
                (other, _) => unreachable!("{other:?}"),
            }
        }
        GeneratedInput::Argument(index, name) => {
            return write_argument(machine, *index, ARGUMENTS[*name]);
        }
        GeneratedInput::WholeCall(index, id, name) => {
            return write_call(machine, (*index, *id, *name), terms);
        }
        GeneratedInput::CallEnd(index) => TaskInput::ModelEvent(Event::CallEnd {
            index: *index,
            at: 0,
        }),
        GeneratedInput::Cut(index) => TaskInput::ModelEvent(Event::CallCut {
            index: *index,
            why: Truncation::Ended,
            at: 0,
        }),
        GeneratedInput::Stopped(reason) => TaskInput::ModelEvent(Event::Stop {
            reason: *reason,
            raw: "",
        }),
        GeneratedInput::Used => TaskInput::ModelEvent(Event::Usage(Usage {
            output: Some(3),
            ..Usage::default()
        })),
        GeneratedInput::Answered => TaskInput::ModelFinished,
        GeneratedInput::Failed(kind) => TaskInput::ModelFailed(error(*kind)),
        GeneratedInput::Weighed(at, access) => {
            TaskInput::CallAssessed(id(*at), (**access).clone(), Preconditions::default())
        }
        GeneratedInput::Replied(reply) => TaskInput::UserReplied(reply.clone()),
        GeneratedInput::Ran(at, true) => TaskInput::ToolFinished(id(*at), ToolOutput::failed("x")),
        GeneratedInput::Ran(at, false) => TaskInput::ToolFinished(id(*at), ToolOutput::done("x")),
        GeneratedInput::Moded(at) => TaskInput::SetMode(MODES[*at].to_owned()),
        GeneratedInput::Cancel => TaskInput::Cancel,
        GeneratedInput::Expired => TaskInput::TimeExpired,
        GeneratedInput::Spent => TaskInput::BudgetExhausted("x".to_owned()),
        GeneratedInput::Steered => TaskInput::interrupting("words"),
        GeneratedInput::Left => TaskInput::UserLeft,
        GeneratedInput::Compact(by) => TaskInput::Compact(*by),
        GeneratedInput::UndoCompaction => TaskInput::UndoCompaction,
        GeneratedInput::Objected => TaskInput::Objection("go on".to_owned()),
        GeneratedInput::Resumed => return resume_task(machine, terms),
    };
    machine.step(input);
}

/// Writes a complete call with the arguments that its tool requires.
fn write_call(machine: &mut Machine, (index, id, name): (u32, usize, usize), terms: &TaskSettings) {
    let argument = if name < 4 { 0 } else { name - 3 };
    apply_input(machine, &GeneratedInput::CallStart(index, id, name), terms);
    apply_input(machine, &GeneratedInput::Argument(index, argument), terms);
    if NAMES[name] == "switch_mode" {
        machine.step(TaskInput::ModelEvent(Event::ArgStart {
            index,
            name: "reason",
            form: ArgumentEncoding::String,
            at: 0,
        }));
        machine.step(TaskInput::ModelEvent(Event::ArgEnd {
            index,
            lead: "",
            at: 0,
        }));
    }
    machine.step(TaskInput::ModelEvent(Event::CallEnd { index, at: 0 }));
}

/// Resumes the task from its records, as another process does.
fn resume_task(machine: &mut Machine, terms: &TaskSettings) {
    let mode = ModeHistory::from_records(&machine.records)
        .current_mode()
        .to_owned();
    if let Ok(task) = Task::replay(
        machine.records.clone(),
        settings_in_mode(&mode, terms.clone()),
    ) {
        machine.task = task.with_modes(modes_with_large_windows());
        machine.open.clear();
    }
}

/// Each call of an answer has at most one result, nothing else has one, and no call runs twice or after its result; but one that
/// begins a subtask may run again, and begins it once.
fn check_records(records: &[Record]) {
    let (mut called, mut answered, mut begun): (Vec<&CallId>, Vec<&CallId>, Vec<&CallId>) =
        Default::default();
    let mut subtasks: Vec<&CallId> = Vec::new();
    for record in records {
        match record {
            Record::Answered(answer) => {
                for check in &answer.checks {
                    assert!(
                        !called.contains(&&check.call),
                        "{} is called twice",
                        check.call
                    );
                    called.push(&check.call);
                }
            }
            Record::Result(result) => {
                assert!(called.contains(&&result.id), "{} is not a call", result.id);
                assert!(
                    !answered.contains(&&result.id),
                    "two results for {}",
                    result.id
                );
                answered.push(&result.id);
            }
            Record::Running { call, .. } => {
                let again = begun.contains(&call) && !subtasks.contains(&call);
                assert!(
                    !again && !answered.contains(&call),
                    "{call} runs twice, or after its result"
                );
                begun.push(call);
            }
            Record::Subtask { call, ended, .. } => {
                assert!(
                    begun.contains(&call) && !answered.contains(&call),
                    "{call} does not run, or has its result"
                );
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

/// Returns modes whose models have large windows, so that nothing is compacted.
fn modes_with_large_windows() -> Vec<ModeConfig> {
    mode_configs()
        .into_iter()
        .map(|outfit| ModeConfig {
            window: None,
            recovery: sabir_call::TextRecovery::Ask,
            renders_template: false,
            ..outfit
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(75), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_inputs_replay_to_the_same_history(given in proptest::collection::vec(any_generated_input(), 0..120), terms in any_settings()) {
        let (task, first) = Task::new(start(), settings_in_mode("code", terms.clone()));
        let mut machine = Machine { task: task.with_modes(modes_with_large_windows()), records: vec![first], open: Vec::new() };
        for one in &given {
            apply_input(&mut machine, one, &terms);
            machine.check_history();
            check_records(&machine.records);
        }
        // The final request is as complete as the history.
        let trail = ModeHistory::from_records(&machine.records);
        prop_assert_eq!(trail.current_mode(), machine.task.mode_history().current_mode());
        if let Ok(mut again) = Task::replay(machine.records.clone(), settings_in_mode(trail.current_mode(), terms)) {
            prop_assert_eq!(again.history(), machine.task.history());
            prop_assert_eq!(again.totals(), machine.task.totals());
            again.step(TaskInput::Cancel);
            let compacted = |record: &Record| matches!(record, Record::Context(ContextChange::Compacted(_)));
            if !machine.records.iter().any(compacted) {
                prop_assert_eq!(&*again.model_request().messages, again.history());
            }
        }
    }
}

#[test]
fn a_denial_holds_when_the_process_ends_before_the_result() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer("<touch>\n<path>a</path>\n</touch>");
    let call = machine.last_answer().checks[0].call.clone();
    let denied = |by| Record::Judged {
        call: call.clone(),
        verdict: Verdict::Deny,
        by,
        reason: "no".to_owned(),
    };
    for (by, who) in [
        (DecisionMaker::User, "The user did not allow this call: no."),
        (DecisionMaker::Policy, "The policy did"),
    ] {
        let mut records = machine.records.clone();
        records.push(denied(by));
        let mut task = Task::replay(records, settings(Interactivity::Headless)).unwrap();
        let effects = task.step(TaskInput::Begin);
        let Some(TaskEffect::PersistRecord(Record::Result(result))) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(result.ending, ToolResultStatus::Denied);
        assert!(result.content.starts_with(who), "{}", result.content);
        assert!(
            !effects
                .iter()
                .any(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_))),
            "{effects:?}"
        );
    }
}
