//! Compares the state of a running task with that of its replayed records.

use proptest::prelude::*;
use sabir_call::{ArgumentEncoding, ToolProtocol, ToolSpec};
use serde_json::json;

use super::*;
use crate::control;
use crate::record::TaskId;

/// One thing that happens, where it fits.
#[derive(Debug, Clone)]
enum Move {
    /// The model makes these calls: each a tool and its one argument.
    Calls(Vec<(usize, usize)>),
    /// It writes only words.
    Words,
    /// A call is assessed, or ends this way.
    Work(bool),
    /// The user answers.
    Reply(usize),
}

const TOOLS: [(&str, &str); 5] = [
    ("look", "path"),
    ("touch", "path"),
    (control::TODO_LIST_TOOL, "todos"),
    (control::COMPLETION_TOOL, "result"),
    ("none", "path"),
];
const VALUES: [&str; 3] = ["[ ] a", "[x] a", "no list"];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let call = (0..TOOLS.len(), 0..VALUES.len());
    let one = prop_oneof![
        6 => proptest::collection::vec(call, 1..4).prop_map(Move::Calls),
        1 => Just(Move::Words),
        12 => prop::bool::weighted(0.8).prop_map(Move::Work),
        2 => (0usize..3).prop_map(Move::Reply),
    ];
    proptest::collection::vec(one, 0..80)
}

fn settings(attended: Interactivity) -> TaskSettings {
    let schema =
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let specs = ["look", "touch"].map(|name| ToolSpec::new(name, "", schema.clone()));
    let mut rules = PolicyRules::default();
    rules.add_approval("edits").unwrap();
    let arguments = json!({"command": "true"}).as_object().unwrap().clone();
    TaskSettings {
        system: String::new(),
        model: "m".to_owned(),
        tools: ToolSet::new(specs.into_iter().chain(control::control_specs()).collect()).unwrap(),
        read_only_tools: vec!["look".to_owned()],
        polling_tools: Vec::new(),
        rules,
        interactivity: attended,
        limits: TaskLimits::default(),
        completion: CompletionConditions {
            review: true,
            open_todos: OpenTodos::Refused,
            check: Some(("run".to_owned(), arguments)),
            ..CompletionConditions::default()
        },
        dialects: sabir_call::dialect::DialectSet::default(),
        repairs: RepairSet::all(),
        recovery: sabir_call::TextRecovery::Ask,
        parallel_calls: sabir_call::ParallelCalls::Many,
        renders_template: false,
        max_output: None,
        prices: TokenPrices::default(),
    }
}

fn start() -> TaskStart {
    let [prompt, workspace, model, version] = ["p", "/w", "m", "1"].map(str::to_owned);
    TaskStart {
        task: TaskId::new("t"),
        prompt,
        workspace,
        model,
        protocol: ToolProtocol::Native,
        version,
        edit_tool: None,
        mode: None,
        from: None,
    }
}

/// Applies a move if something waits for it; the records that follow.
fn apply(task: &mut Task, open: &mut Vec<TaskEffect>, step: &Move) -> Vec<Record> {
    let at = open.iter().position(|effect| match (step, effect) {
        (Move::Calls(_) | Move::Words, effect) => *effect == TaskEffect::RequestModel,
        (Move::Work(_), effect) => {
            matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_))
        }
        (Move::Reply(_), effect) => matches!(effect, TaskEffect::AskUser(_)),
    });
    let Some(at) = at else { return Vec::new() };
    let effects = match (step, open.remove(at)) {
        (Move::Calls(calls), _) => {
            for (index, (tool, value)) in (0..).zip(calls) {
                let (name, argument) = TOOLS[*tool];
                for event in [
                    Event::CallStart {
                        index,
                        id: None,
                        name,
                        dialect: None,
                        at: 0,
                        name_at: 0,
                    },
                    Event::ArgStart {
                        index,
                        name: argument,
                        form: ArgumentEncoding::String,
                        at: 0,
                    },
                    Event::ArgDelta {
                        index,
                        text: VALUES[*value],
                    },
                    Event::ArgEnd {
                        index,
                        lead: "",
                        at: 0,
                    },
                    Event::CallEnd { index, at: 0 },
                ] {
                    task.step(TaskInput::ModelEvent(event));
                }
            }
            task.step(TaskInput::ModelFinished)
        }
        (Move::Words, _) => {
            task.step(TaskInput::ModelEvent(Event::Text { text: "words" }));
            task.step(TaskInput::ModelFinished)
        }
        (Move::Work(_), TaskEffect::AssessCall(call)) => task.step(TaskInput::CallAssessed(
            call,
            Access::Write {
                path: "a".to_owned(),
                protected: None,
            },
            Preconditions::default(),
        )),
        (Move::Work(good), TaskEffect::RunCall(CallPermit { call, .. })) => {
            let output = if *good {
                ToolOutput::done("x")
            } else {
                ToolOutput::failed("x")
            };
            task.step(TaskInput::ToolFinished(call, output))
        }
        (Move::Reply(which), _) => {
            let replies = [
                UserReply::Yes,
                UserReply::No("no".to_owned()),
                UserReply::Text("words".into()),
            ];
            task.step(TaskInput::UserReplied(replies[*which].clone()))
        }
        _ => Vec::new(),
    };
    let mut records = Vec::new();
    for effect in effects {
        match effect {
            TaskEffect::PersistRecord(record) => records.push(record),
            TaskEffect::StopAll => open.clear(),
            other => open.push(other),
        }
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_counts_follow_from_the_records(moves in moves(), attended in any::<bool>()) {
        let attended = if attended { Interactivity::Interactive } else { Interactivity::Headless };
        let (mut task, first) = Task::new(start(), settings(attended));
        let mut again = Task::without_history(start(), settings(attended));
        again.apply_record(&first);
        let mut open: Vec<_> = task.step(TaskInput::Begin);
        for step in &moves {
            for record in apply(&mut task, &mut open, step) {
                again.apply_record(&record);
            }
            prop_assert_eq!(&again.budget, &task.budget);
            prop_assert_eq!(&again.progress, &task.progress);
            prop_assert_eq!(&again.todo_tracker, &task.todo_tracker);
            prop_assert_eq!(again.history(), task.history());
            prop_assert_eq!(again.transcript.request_bytes(), task.transcript.request_bytes());
        }
    }
}
