//! One result for each call, and replay, for any order of inputs and any truncation of the journal.

use proptest::prelude::*;
use sabir_agent::{
    CallArguments, CallPermit, CompletionConditions, Interactivity, OpenTodos, Preconditions,
    Record, Task, TaskEffect, TaskInput, TaskSettings, ToolOutput, UserReply,
};
use sabir_call::{CallId, ModelError, ModelErrorKind};

use crate::machine::{self, Machine};

/// Returns settings in which completions are checked and need all todos done.
fn settings(attended: Interactivity) -> TaskSettings {
    let mut settings = machine::settings(attended);
    settings.completion = CompletionConditions {
        review: true,
        open_todos: OpenTodos::Refused,
        check: Some(("run".to_owned(), CallArguments::new())),
        ..CompletionConditions::default()
    };
    settings
}

/// An input of any kind, expected at that moment or not.
#[derive(Debug, Clone)]
enum Move {
    Answer(usize),
    Broken,
    Do(usize),
    Fail(usize),
    Reply(usize),
    Stray(usize),
    Say(usize),
    Cancel,
}

const MESSAGES: [&str; 10] = [
    "words only",
    "<look>\n<path>a</path>\n</look>",
    "<touch><path>a</path></touch><touch><path>b</path></touch>",
    "<look><path>a</path></look><look><path>b</path></look><touch><path>c</path></touch>",
    "<touch><colour>a</colour></touch><look><path>b</path></look>",
    "<touch>\n<path>a</path>\n",
    "<attempt_completion><result>r</result></attempt_completion><look><path>a</path></look>",
    "<ask_followup_question><question>q</question></ask_followup_question><touch><path>a</path></touch>",
    "<update_todo_list><todos>[ ] a</todos></update_todo_list><attempt_completion><result>r</result></attempt_completion>",
    "<update_todo_list><todos>[x] a</todos></update_todo_list><attempt_completion><result>r</result></attempt_completion>",
];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0..MESSAGES.len()).prop_map(Move::Answer),
        1 => Just(Move::Broken),
        8 => (0usize..4).prop_map(Move::Do),
        2 => (0usize..4).prop_map(Move::Fail),
        4 => (0usize..4).prop_map(Move::Reply),
        1 => (0usize..4).prop_map(Move::Stray),
        3 => (0usize..3).prop_map(Move::Say),
        1 => Just(Move::Cancel),
    ];
    proptest::collection::vec(one, 0..60)
}

fn apply(machine: &mut Machine, step: &Move) {
    let asked = machine
        .open
        .iter()
        .position(|effect| *effect == TaskEffect::RequestModel);
    match step {
        Move::Answer(at) if asked.is_some() => machine.answer(MESSAGES[*at]),
        Move::Broken if asked.is_some() => machine.break_off(),
        Move::Do(at) | Move::Fail(at) => {
            let doable: Vec<_> = (0..machine.open.len())
                .filter(|at| {
                    matches!(
                        machine.open[*at],
                        TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)
                    )
                })
                .collect();
            let Some(at) = doable.get(at % doable.len().max(1)) else {
                return;
            };
            match machine.open.remove(*at) {
                TaskEffect::AssessCall(call) => {
                    let access = machine.access(&call);
                    machine.step(TaskInput::CallAssessed(
                        call,
                        access,
                        Preconditions::default(),
                    ));
                }
                TaskEffect::RunCall(CallPermit { call, .. }) => {
                    let output = if matches!(step, Move::Fail(_)) {
                        ToolOutput::failed("x")
                    } else {
                        ToolOutput::done("x")
                    };
                    machine.step(TaskInput::ToolFinished(call, output));
                }
                _ => unreachable!(),
            }
        }
        Move::Reply(which) => {
            let Some(at) = machine
                .open
                .iter()
                .position(|effect| matches!(effect, TaskEffect::AskUser(_)))
            else {
                return;
            };
            machine.open.remove(at);
            let words = || "words".to_owned();
            let replies = [
                UserReply::Yes,
                UserReply::No(words()),
                UserReply::Text(words().into()),
                UserReply::Leave,
            ];
            machine.step(TaskInput::UserReplied(replies[*which].clone()));
        }
        Move::Stray(which) => match which {
            0 => machine.step(TaskInput::ToolFinished(
                CallId::new("call_1_0"),
                ToolOutput::done("again"),
            )),
            1 => machine.step(TaskInput::ModelFinished),
            2 => machine.step(TaskInput::UserReplied(UserReply::Yes)),
            _ => machine.step(TaskInput::ModelFailed(ModelError {
                kind: ModelErrorKind::Broken,
                message: "x".to_owned(),
            })),
        },
        Move::Say(which) => match which {
            0 => machine.step(TaskInput::queued("said")),
            1 => machine.step(TaskInput::interrupting("steered")),
            _ => machine.step(TaskInput::UserLeft),
        },
        Move::Cancel => machine.step(TaskInput::Cancel),
        _ => {}
    }
}

/// Checks that no call has two results, and that none runs twice.
fn check_records(records: &[Record]) {
    let mut answered = Vec::new();
    let mut begun = Vec::new();
    for record in records {
        match record {
            Record::Result(result) => {
                assert!(
                    !answered.contains(&result.id),
                    "two results for {}",
                    result.id
                );
                answered.push(result.id.clone());
            }
            Record::Running { call, .. } => {
                assert!(!begun.contains(call), "{call} runs twice");
                assert!(!answered.contains(call), "{call} runs after its result");
                begun.push(call.clone());
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(150), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_has_exactly_one_result(moves in moves(), attended in any::<bool>()) {
        let attended = if attended { Interactivity::Interactive } else { Interactivity::Headless };
        let mut machine = Machine::new(settings(attended));
        for step in &moves {
            // A stray answer or failure is only stray where the model is not being asked.
            let asked = machine.open.contains(&TaskEffect::RequestModel);
            if asked && matches!(step, Move::Stray(1 | 3)) {
                continue;
            }
            // Likewise a stray reply where a question is open.
            if matches!(step, Move::Stray(2)) && machine.open.iter().any(|effect| matches!(effect, TaskEffect::AskUser(_))) {
                continue;
            }
            // And a stray result where that very call is running.
            if matches!(step, Move::Stray(0)) && machine.open.iter().any(|effect| matches!(effect, TaskEffect::RunCall(permit) if permit.call == CallId::new("call_1_0"))) {
                continue;
            }
            apply(&mut machine, step);
            machine.check_history();
            check_records(&machine.records);
        }
    }

    #[test]
    fn a_journal_truncated_at_any_record_resumes(moves in moves(), at in 0usize..80) {
        let mut machine = Machine::new(settings(Interactivity::Headless));
        for step in moves.iter().filter(|step| !matches!(step, Move::Stray(_))) {
            apply(&mut machine, step);
        }
        let mut records = machine.records.clone();
        records.truncate(1 + at % records.len());
        let completed = matches!(records.last(), Some(Record::Ended { outcome: sabir_agent::TaskOutcome::Completed, .. }));
        let again = Task::replay(records.clone(), settings(Interactivity::Headless));
        if completed {
            prop_assert!(again.is_err());
            return Ok(());
        }
        let mut resumed = Machine { task: again.unwrap(), records, open: Vec::new() };
        resumed.step(TaskInput::Begin);
        prop_assert!(!resumed.open.is_empty(), "a resumed task waits for something");
        resumed.work(false);
        resumed.check_history();
        check_records(&resumed.records);
    }

    #[test]
    fn replay_gives_the_same_history(moves in moves()) {
        let mut machine = Machine::new(settings(Interactivity::Interactive));
        for step in moves.iter().filter(|step| !matches!(step, Move::Stray(_))) {
            apply(&mut machine, step);
            if let Ok(again) = Task::replay(machine.records.clone(), settings(Interactivity::Interactive)) {
                prop_assert_eq!(again.history(), machine.task.history());
                prop_assert_eq!(again.todos(), machine.task.todos());
            }
        }
    }
}
