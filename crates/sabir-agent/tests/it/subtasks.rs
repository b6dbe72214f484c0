//! Subtasks, with scripted models and journals in memory, and with crashes at every record.

mod task_family;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use sabir_agent::control::{self, SubtaskRequest};
use sabir_agent::{
    CallArguments, CallPermit, CancelToken, CommandQueue, CompletedSubtask, Interactivity,
    OpenTodos, Preconditions, PreparedCall, ProgressSink, Record, SubtaskEnd, Task, TaskEffect,
    TaskId, TaskInput, TaskOrigin, TaskOutcome, TaskSettings, Tool, ToolFuture, ToolOutput,
    ToolRegistry, UsageTotals, UserCommand,
};
use sabir_call::{CallId, Message, ModelErrorKind, ToolResultStatus, ToolSet, ToolSpec, Usage};
use sabir_policy::{Access, PolicyRules};

use crate::machine::{Machine, settings, start, tools};
use task_family::{FamilyEvent, ScriptedReply, TaskFamily, block, results};

fn done(result: &str) -> ScriptedReply {
    ScriptedReply::Text(format!(
        "<attempt_completion>\n<result>{result}</result>\n</attempt_completion>"
    ))
}

fn touch(path: &str) -> ScriptedReply {
    ScriptedReply::Text(format!("<touch>\n<path>{path}</path>\n</touch>"))
}

fn delegate(messages: &[&str]) -> ScriptedReply {
    let call = |message: &&str| format!("<new_task>\n<message>{message}</message>\n</new_task>\n");
    ScriptedReply::Text(messages.iter().map(call).collect())
}

fn turns(history: &[Message]) -> usize {
    history
        .iter()
        .filter(|message| message.calls().next().is_some())
        .count()
}

/// Scripts subtasks that each touch the file named in the message; the root completes with all their results.
fn touch_in_subtasks(prompt: &str, history: &[Message], messages: &[&str]) -> ScriptedReply {
    match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(messages),
        ("Do it.", _) => done(&results(history).join("; ")),
        (path, 0) => touch(path),
        (path, _) => done(&format!("{path} is there")),
    }
}

/// Describes the records of the root that concern subtasks.
fn subtask_story(family: &TaskFamily) -> Vec<String> {
    let words = |record| match record {
        Record::Running { .. } => Some("running".to_owned()),
        Record::Subtask { ended: None, .. } => Some("begins".to_owned()),
        Record::Subtask {
            ended: Some(end), ..
        } => Some(format!("{:?} after {}", end.outcome, end.turns)),
        Record::Result(result) => Some(format!("{} {:?}", result.name, result.ending)),
        Record::Ended { outcome, .. } => Some(format!("{outcome:?}")),
        _ => None,
    };
    family
        .records(&start().task)
        .into_iter()
        .filter_map(words)
        .collect()
}

/// Returns the usage of all answers in all journals, each counted once.
fn root_totals(family: &TaskFamily) -> UsageTotals {
    let mut totals = UsageTotals::default();
    for entry in family.events() {
        if let FamilyEvent::Recorded(_, record @ (Record::Answered(_) | Record::Failed(_))) = entry
        {
            totals.add_record(&record);
        }
    }
    totals
}

#[test]
fn a_subtask_answers_its_call() {
    let family = TaskFamily::new(|prompt, history| touch_in_subtasks(prompt, history, &["a"]));
    let (outcome, message, task) = block(family.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Completed, "new_task done: a is there")
    );
    let root = start().task;
    let [_, child] = &family.task_ids()[..] else {
        panic!("{:?}", family.task_ids())
    };
    let call = family
        .records(&root)
        .into_iter()
        .find_map(|record| match record {
            Record::Subtask { call, .. } => Some(call),
            _ => None,
        });
    let call = call.unwrap();
    assert_eq!(*child, root.child_id(&call));
    let Record::Started(started) = &family.records(child)[0] else {
        panic!()
    };
    let origin = TaskOrigin::Subtask {
        task: root,
        call,
        depth: 1,
        todos: None,
    };
    assert_eq!(
        (started.prompt.as_str(), started.from.as_ref()),
        ("a", Some(&origin))
    );
    assert_eq!(
        subtask_story(&family),
        [
            "running",
            "begins",
            "Completed after 2",
            "new_task Done",
            "attempt_completion Done",
            "Completed"
        ]
    );
    assert_eq!(family.touched_paths(), ["a"]);
    assert_eq!(
        (task.turn_count(), task.totals()),
        (2, root_totals(&family)),
        "what a subtask took is counted once"
    );
    let mut noted = UsageTotals::default();
    family
        .records(&start().task)
        .iter()
        .for_each(|record| noted.add_record(record));
    assert_eq!(noted, task.totals(), "the records give the same");
}

#[test]
fn the_name_of_a_subtask_follows_from_its_call() {
    let child = |task: &str, call: &str| TaskId::new(task).child_id(&CallId::new(call)).to_string();
    assert_eq!(child("t1", "call_1_0"), "t1-f45ebd8d");
    assert_ne!(child("t1", "call_1_0"), child("t1", "call_1_1"));
    assert_ne!(child("t1", "call_1_0"), child("t2", "call_1_0"));
}

/// Checks the failed result that a parent receives for a subtask with this reply.
#[track_caller]
fn check_failure(mend: impl Fn(&mut TaskFamily), say: ScriptedReply, expected: &str) {
    let mut family = TaskFamily::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a"]),
        ("Do it.", _) => done("seen"),
        _ => say.clone(),
    });
    mend(&mut family);
    let (outcome, message, task) = block(family.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Completed, "seen"),
        "the parent goes on"
    );
    let child = &family.task_ids()[1];
    assert_eq!(
        results(task.history())[0],
        format!("new_task {}", expected.replace("CHILD", child.as_str()))
    );
    assert_eq!(task.totals(), root_totals(&family));
}

#[test]
fn an_incomplete_subtask_fails_its_call_with_the_reason() {
    let log = "The user can see all of it with `sabir log CHILD`.";
    let as_it_is = |_: &mut TaskFamily| {};
    check_failure(
        as_it_is,
        ScriptedReply::Text("I wonder.".to_owned()),
        &format!(
            "failed: The subtask CHILD ended without completing: the model replied 3 times without a call and did not complete \
             the task. What it changed so far is kept.\nThe last that it said:\nI wonder.\n{log}"
        ),
    );
    for (kind, why) in [
        (
            ModelErrorKind::Unavailable,
            "ended because the provider failed",
        ),
        (
            ModelErrorKind::Key,
            "cannot be answered as things are set up",
        ),
    ] {
        let words =
            format!("failed: The subtask CHILD {why}: no. What it changed so far is kept.\n{log}");
        check_failure(as_it_is, ScriptedReply::Fail(kind), &words);
    }
    let strict = |family: &mut TaskFamily| family.settings.rules = PolicyRules::default();
    check_failure(
        strict,
        touch("a"),
        &format!(
            "failed: The subtask CHILD could not continue, since calls were denied: 6 calls in a row failed; 6 calls were denied \
             (see --approve). What it changed so far is kept.\n{log}"
        ),
    );
}

#[test]
fn invalid_arguments_begin_no_subtask() {
    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let call = format!("<new_task>\n{arguments}\n</new_task>");
        let family = TaskFamily::new(move |_, history| match turns(history) {
            0 => ScriptedReply::Text(call.clone()),
            _ => done("seen"),
        });
        let (outcome, _, task) = block(family.run(CancelToken::default()));
        assert_eq!(outcome, TaskOutcome::Completed);
        let results = results(task.history());
        assert!(results[0].starts_with(expected), "{results:?}");
        assert_eq!(family.task_ids().len(), 1);
    }
    check(
        "<message> </message>",
        "new_task failed: The message is empty. Say what to do",
    );
    check(
        "<message>a</message>\n<todos># Plan</todos>",
        "new_task failed: Line 1 of the todos is not an item",
    );
    check(
        "<message>a</message>\n<mode>x</mode>",
        "new_task failed: There is no mode `x`.",
    );
    check("<mode>code</mode>", "new_task rejected: ");
}

#[test]
fn subtask_requests_are_parsed() {
    let read = |value: serde_json::Value| SubtaskRequest::parse(value.as_object().unwrap());
    let full =
        read(serde_json::json!({"message": "a", "mode": " plan ", "todos": "[ ] b"})).unwrap();
    assert_eq!(
        (full.message.as_str(), full.mode.as_deref()),
        ("a", Some("plan"))
    );
    assert_eq!(full.todos.unwrap().text(), "[ ] b");
    let blank = read(serde_json::json!({"message": "a", "mode": "", "todos": "\n"})).unwrap();
    assert_eq!((blank.mode, blank.todos), (None, None));
}

#[test]
fn a_subtask_begins_with_the_given_todos() {
    let call = "<new_task>\n<message>a</message>\n<todos>[ ] one</todos>\n</new_task>";
    let listed = "<update_todo_list>\n<todos>[x] one</todos>\n</update_todo_list>";
    let mut family = TaskFamily::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => ScriptedReply::Text(call.to_owned()),
        ("Do it.", _) | (_, 0) => done("done"),
        (_, 1) => ScriptedReply::Text(listed.to_owned()),
        _ => done("now it is"),
    });
    family.settings.completion.open_todos = OpenTodos::Refused;
    let (_, _, task) = block(family.run(CancelToken::default()));
    assert_eq!(results(task.history())[0], "new_task done: now it is");
    let child = family.records(&family.task_ids()[1]);
    let refused = |record: &Record| matches!(record, Record::Result(result) if result.ending == ToolResultStatus::Rejected && result.content.contains("`one`"));
    assert!(child.iter().any(refused), "{child:?}");
    let again = Task::replay(
        child[..child.len() - 1].to_vec(),
        settings(Interactivity::Headless),
    )
    .unwrap();
    let words = format!("{:?}", again.history()[0]);
    assert!(
        words.contains("Your todo list to begin with:\\n<todos>\\n[ ] one\\n</todos>"),
        "{words}"
    );
}

#[test]
fn subtasks_have_subtasks_to_a_depth() {
    let family = TaskFamily::new(|prompt, history| match (prompt, turns(history)) {
        (_, 0) => delegate(&[&format!("below {prompt}")]),
        _ => done(results(history)[0].split('\n').next().unwrap()),
    });
    let (outcome, message, task) = block(family.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Completed);
    let tasks = family.task_ids();
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    assert!(
        tasks[2].as_str().starts_with(tasks[1].as_str()),
        "{tasks:?}"
    );
    assert!(
        message.contains("replied 3 times without a call"),
        "the deepest has no such tool: {message}"
    );
    assert_eq!(task.totals(), root_totals(&family), "those of all levels");
}

#[test]
fn no_subtask_begins_at_depth_zero() {
    let mut shallow = task_settings();
    shallow.limits.subtasks.depth = 0;
    let mut machine = Machine::new(shallow);
    machine.answer("<new_task>\n<message>a</message>\n</new_task>");
    work(&mut machine, |_| None);
    assert_eq!(machine.results(), ["new_task failed"]);
    assert!(
        !machine
            .records
            .iter()
            .any(|record| matches!(record, Record::Running { .. } | Record::Subtask { .. }))
    );
}

#[test]
fn a_task_begins_at_most_max_total_subtasks() {
    let mut family = TaskFamily::new(|prompt, history| {
        touch_in_subtasks(prompt, history, &["a", "b", "c", "d"])
    });
    family.settings.limits.subtasks.max_total = 3;
    let (_, message, _) = block(family.run(CancelToken::default()));
    assert!(
        message.ends_with(
            "new_task failed: 3 subtasks were begun, and a task has no more than that. Do the rest yourself."
        )
    );
    assert_eq!(family.task_ids().len(), 4);
}

#[test]
fn three_subtasks_run_at_once_and_further_ones_wait() {
    let family = TaskFamily::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a", "b", "c", "d", "e"]),
        ("Do it.", _) => done(&results(history).join("; ")),
        _ => ScriptedReply::Hang,
    });
    block(async {
        let cancel = CancelToken::default();
        let watched = family.clone();
        let watch = async {
            for (at, gone) in ["b", "c", "a", "e", "d"].into_iter().enumerate() {
                watched.wait_for((5 - at).min(3)).await;
                let open = watched.open.lock().unwrap().clone();
                assert_eq!(open.len(), (5 - at).min(3), "{open:?}");
                assert!(
                    open.iter().any(|prompt| prompt == gone),
                    "in their order: {open:?}"
                );
                let queues = watched.queues.lock().unwrap();
                queues
                    .iter()
                    .find(|(prompt, _)| prompt == gone)
                    .unwrap()
                    .1
                    .push(UserCommand::Cancel);
                watched.open.lock().unwrap().retain(|prompt| prompt != gone);
            }
        };
        let ((outcome, message, _), ()) = tokio::join!(family.run(cancel), watch);
        assert_eq!(outcome, TaskOutcome::Completed);
        assert_eq!(
            message
                .matches("new_task interrupted: The subtask t1-")
                .count(),
            5,
            "{message}"
        );
    });
}

fn task_settings() -> TaskSettings {
    settings(Interactivity::Headless)
}

/// Assesses and runs the requested calls, except those whose output is not available yet.
fn work(machine: &mut Machine, mut output: impl FnMut(&CallId) -> Option<ToolOutput>) {
    let mut later = Vec::new();
    while !machine.open.is_empty() {
        match machine.open.remove(0) {
            TaskEffect::AssessCall(call) => {
                let subtask = machine.task.open_call(&call).unwrap().name == control::NEW_TASK_TOOL;
                let access = if subtask {
                    sabir_policy::Access::Nothing
                } else {
                    machine.access(&call)
                };
                machine.step(TaskInput::CallAssessed(
                    call,
                    access,
                    Preconditions::default(),
                ));
            }
            TaskEffect::RunCall(permit) => match output(&permit.call) {
                Some(output) => machine.step(TaskInput::ToolFinished(permit.call, output)),
                None => later.push(TaskEffect::RunCall(permit)),
            },
            other => later.push(other),
        }
    }
    machine.open = later;
}

fn running_calls(machine: &Machine) -> Vec<String> {
    let running = machine.open.iter().filter_map(|effect| match effect {
        TaskEffect::RunCall(CallPermit { call, .. }) => {
            Some(machine.task.open_call(call).unwrap().name.clone())
        }
        _ => None,
    });
    running.collect()
}

fn ended(outcome: TaskOutcome, turns: u32, input: u64) -> ToolOutput {
    let usage = Usage {
        input: Some(input),
        ..Usage::default()
    };
    let end = SubtaskEnd {
        outcome,
        turns,
        usage,
        estimate: Usage::default(),
        cost: sabir_call::Cost::default(),
    };
    ToolOutput {
        subtask: Some(end),
        failed: outcome != TaskOutcome::Completed,
        ..ToolOutput::done("r")
    }
}

#[test]
fn subtasks_run_beside_reads_and_wait_for_writes() {
    let (look, touch) = (
        "<look>\n<path>a</path>\n</look>\n",
        "<touch>\n<path>a</path>\n</touch>\n",
    );
    let new = "<new_task>\n<message>a</message>\n</new_task>\n";
    let mut machine = Machine::new(task_settings());
    machine.answer(&format!(
        "{touch}{new}{look}{new}{new}{new}{look}{touch}{new}"
    ));
    let finish = |machine: &mut Machine, count: usize| {
        let mut left = count;
        work(machine, |_| {
            left = left.checked_sub(1)?;
            Some(ToolOutput::done("yes"))
        });
        running_calls(machine)
    };
    assert_eq!(finish(&mut machine, 0), ["touch"], "they wait for it");
    let (new, look) = (control::NEW_TASK_TOOL, "look");
    assert_eq!(
        finish(&mut machine, 1),
        [new, look, new, new, look],
        "the fourth waits for its turn, reads do not"
    );
    assert_eq!(finish(&mut machine, 1), [look, new, new, look, new]);
    assert_eq!(
        finish(&mut machine, 4),
        [new],
        "what writes waits for all of them"
    );
    assert_eq!(finish(&mut machine, 1), ["touch"]);
    assert_eq!(finish(&mut machine, 1), [new]);
    finish(&mut machine, 1);
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
}

#[test]
fn the_turn_limit_is_shared_with_subtasks() {
    // Without a limit each of them would never end.
    let mut family = TaskFamily::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a", "b", "c"]),
        (prompt, turn) => touch(&format!("{prompt}{turn}")),
    });
    family.settings.limits.turns = Some(8);
    let (outcome, message, task) = block(family.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Limit, "the limit of 8 turns was reached")
    );
    let answers = family
        .events()
        .into_iter()
        .filter(|entry| matches!(entry, FamilyEvent::Recorded(_, Record::Answered(_))));
    assert_eq!(
        (answers.count(), family.asked.load(Ordering::SeqCst)),
        (8, 8),
        "all of them together"
    );
    assert!(
        results(task.history())
            .iter()
            .all(|result| result.contains("reached a limit"))
    );
    // Limits start anew after a resume, also for the subtasks.
    let mut family = family.after_crash(family.events());
    family.settings.limits.turns = Some(3);
    let (outcome, ..) = block(family.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Limit);
    assert_eq!(family.asked.load(Ordering::SeqCst), 3);
}

#[test]
fn token_limits_and_totals_include_subtasks() {
    let words = "words ".repeat(100);
    let mut family = TaskFamily::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a", "b", "c"]),
        (prompt, turn) => ScriptedReply::Text(format!(
            "{words}<touch>\n<path>{prompt}{turn}</path>\n</touch>"
        )),
    });
    family.settings.limits.tokens = Some(8_000);
    let (outcome, _, task) = block(family.run(CancelToken::default()));
    assert_eq!(
        (outcome, task.totals()),
        (TaskOutcome::Limit, root_totals(&family))
    );
    let tokens = own_tokens(&family);
    // The requests that were under way are finished: three of them, each smaller than the sum
    // before.
    assert!((8_000..16_000).contains(&tokens), "{tokens}");
}

fn own_tokens(family: &TaskFamily) -> u64 {
    let UsageTotals {
        usage, estimate, ..
    } = root_totals(family);
    [usage.input, usage.output, estimate.input, estimate.output]
        .into_iter()
        .flatten()
        .sum()
}

/// Resumes a task and its subtasks from the first `entries` journal entries, as after a crash.
fn resume_after(family: &TaskFamily, entries: usize) -> (TaskFamily, TaskOutcome, String, Task) {
    let family = family.after_crash(family.events()[..entries].to_vec());
    let (outcome, message, task) = block(family.run(CancelToken::default()));
    (family, outcome, message, task)
}

/// Checks the invariants that hold for the records of a task and its subtasks.
fn check_family(family: &TaskFamily) {
    let mut touches = HashMap::new();
    family
        .touched_paths()
        .into_iter()
        .for_each(|path| *touches.entry(path).or_insert(0) += 1);
    assert!(
        touches.values().all(|times| *times == 1),
        "done twice: {touches:?}"
    );
    let tasks = family.task_ids();
    assert!(
        tasks
            .iter()
            .enumerate()
            .all(|(at, task)| !tasks[..at].contains(task)),
        "begun twice: {tasks:?}"
    );
    for task in &tasks {
        let records = family.records(task);
        let (mut begun, mut answered) = (Vec::new(), Vec::new());
        for record in &records {
            match record {
                Record::Subtask {
                    call,
                    task: child,
                    ended,
                } => {
                    assert_eq!(*child, task.child_id(call));
                    assert!(!answered.contains(&call), "{call} has its result");
                    assert_eq!(
                        begun.contains(&call),
                        ended.is_some(),
                        "{call} begins once, and ends after that"
                    );
                    begun.push(call);
                }
                Record::Result(result) => {
                    assert!(
                        !answered.contains(&&result.id),
                        "two results for {}",
                        result.id
                    );
                    answered.push(&result.id);
                }
                _ => {}
            }
        }
        let own = |entry: &FamilyEvent| matches!(entry, FamilyEvent::Recorded(of, Record::Started(_)) if of == task);
        let born = family.events().iter().position(own).unwrap();
        let parent = tasks
            .iter()
            .find(|parent| records_name(family, parent, task, born));
        assert!(
            parent.is_some() || *task == start().task,
            "{task} is in no journal that was there before it"
        );
    }
}

/// Reports whether the parent's journal named the subtask before the subtask began.
fn records_name(family: &TaskFamily, parent: &TaskId, child: &TaskId, born: usize) -> bool {
    let names = |entry: &FamilyEvent| matches!(entry, FamilyEvent::Recorded(of, Record::Subtask { task, .. }) if of == parent && task == child);
    family
        .events()
        .iter()
        .position(names)
        .is_some_and(|named| named < born)
}

/// Scripts tasks on three levels, each with work of its own.
fn three_levels() -> TaskFamily {
    TaskFamily::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a", "nest"]),
        ("nest", 0) => delegate(&["b"]),
        ("nest", 1) => touch("c"),
        ("Do it.", 1) => touch("d"),
        // If the process ended between the result of a completion and the end of its task, the task
        // completes once more.
        ("Do it." | "nest", _) => {
            let others = results(history)
                .into_iter()
                .filter(|result| !result.starts_with(control::COMPLETION_TOOL));
            done(&others.collect::<Vec<_>>().join("; "))
        }
        (path, 0) => touch(path),
        (path, _) => done(&format!("{path} is there")),
    })
}

#[test]
fn a_task_cancelled_at_any_record_ends_its_subtasks_and_resumes() {
    let whole = three_levels();
    block(whole.run(CancelToken::default()));
    let (mut cancelled, mut open) = (0, 0);
    for entries in 1..whole.events().len() {
        let family = three_levels();
        let (outcome, _, task) = block(async {
            let cancel = CancelToken::default();
            let stop = async {
                while family.events().len() < entries {
                    tokio::task::yield_now().await;
                }
                cancel.cancel();
            };
            tokio::join!(family.run(cancel.clone()), stop).0
        });
        assert_eq!(
            task.totals(),
            root_totals(&family),
            "at {entries}: what was taken is told"
        );
        if outcome != TaskOutcome::Cancelled {
            continue;
        }
        cancelled += 1;
        for task in family.task_ids() {
            let last = family.records(&task).pop();
            assert!(
                matches!(last, Some(Record::Ended { .. })),
                "at {entries}, {task}: {last:?}"
            );
        }
        open += usize::from(subtask_story(&family).contains(&"Cancelled after 1".to_owned()));
        let (after, outcome, message, task) = resume_after(&family, family.events().len());
        assert_eq!(outcome, TaskOutcome::Completed, "at {entries}: {message}");
        check_family(&after);
        assert_eq!(
            (task.totals(), after.task_ids().len()),
            (root_totals(&after), 4),
            "at {entries}"
        );
    }
    assert!(
        cancelled > 10 && open > 0,
        "{cancelled} were cancelled, {open} with subtasks at work"
    );
}

#[test]
fn a_user_message_at_any_record_does_not_end_the_parent() {
    let whole = three_levels();
    block(whole.run(CancelToken::default()));
    let mut given_up = 0;
    for entries in 1..whole.events().len() {
        let family = three_levels();
        let (outcome, message, task) = block(async {
            let queue = CommandQueue::default();
            let queues = queue.clone();
            let steer = async {
                while family.events().len() < entries {
                    tokio::task::yield_now().await;
                }
                queue.push(UserCommand::interrupt("Mind the tests."));
            };
            tokio::join!(family.run_with_commands(queues), steer).0
        });
        assert_eq!(
            (outcome, task.totals()),
            (TaskOutcome::Completed, root_totals(&family)),
            "at {entries}: {message}"
        );
        check_family(&family);
        given_up += results(task.history())
            .iter()
            .filter(|result| result.starts_with("new_task interrupted"))
            .count();
    }
    assert!(given_up > 5, "{given_up} were given up");
}

#[test]
fn a_task_resumes_after_a_crash_at_any_record() {
    let family = three_levels();
    let (outcome, whole, task) = block(family.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Completed);
    assert_eq!(
        (task.totals(), family.task_ids().len()),
        (root_totals(&family), 4)
    );
    // The same ends follow from the records alone.
    for child in &family.task_ids()[1..] {
        let parent = family
            .task_ids()
            .into_iter()
            .find(|parent| records_name(&family, parent, child, usize::MAX))
            .unwrap();
        let ends = family
            .records(&parent)
            .into_iter()
            .filter_map(|record| match record {
                Record::Subtask {
                    task,
                    ended: Some(end),
                    ..
                } if task == *child => Some(end),
                _ => None,
            });
        assert_eq!(
            ends.collect::<Vec<_>>(),
            [CompletedSubtask::from_records(&family.records(child))
                .unwrap()
                .end]
        );
    }
    let all = family.events();
    // The last record completes the root; before the first there is nothing.
    for entries in 1..all.len() {
        let (after, outcome, message, task) = resume_after(&family, entries);
        assert_eq!(
            outcome,
            TaskOutcome::Completed,
            "after {entries}: {message}"
        );
        check_family(&after);
        assert_eq!(
            task.totals(),
            root_totals(&after),
            "after {entries}: all that was taken is counted, and once"
        );
        // A call that was running has an interrupted result; everything else is as without the
        // crash.
        let interrupted = after.events().iter().any(
            |entry| matches!(entry, FamilyEvent::Recorded(_, Record::Result(result)) if result.ending == ToolResultStatus::Interrupted),
        );
        assert!(
            interrupted || message == whole,
            "after {entries}: {message}"
        );
        assert!(
            !results(task.history())
                .iter()
                .any(|result| result.starts_with("new_task interrupted"))
        );
        if interrupted {
            assert!(
                after.touched_paths().len() >= 3,
                "one call is in doubt, no more: {:?}",
                after.touched_paths()
            );
        } else {
            assert_eq!(after.touched_paths().len(), 4);
        }
        // A second crash during the resumed run.
        for more in [entries + 1, entries + 3, entries + 8] {
            if more < after.events().len() {
                let (last, outcome, message, task) = resume_after(&after, more);
                assert_eq!(
                    outcome,
                    TaskOutcome::Completed,
                    "after {entries}, then {more}: {message}"
                );
                check_family(&last);
                assert_eq!(task.totals(), root_totals(&last));
            }
        }
    }
}

#[test]
fn a_subtask_resumes_from_an_incomplete_journal() {
    let family = TaskFamily::new(|prompt, history| touch_in_subtasks(prompt, history, &["a"]));
    block(family.run(CancelToken::default()));
    let (all, child) = (family.events(), family.task_ids()[1].clone());
    let mine = |entry: &FamilyEvent| matches!(entry, FamilyEvent::Recorded(of, _) if *of == child);
    let last = all.iter().rposition(mine).unwrap();
    let own: Vec<_> = (0..=last).filter(|at| mine(&all[*at])).collect();
    for torn in 0..own.len() {
        // The parent's journal is complete, that of the subtask lost its end, or everything.
        let left = all[..=last]
            .iter()
            .enumerate()
            .filter(|(at, entry)| !mine(entry) || own[..torn].contains(at));
        let left = left
            .map(|(_, entry)| entry.clone())
            .filter(|entry| !matches!(entry, FamilyEvent::Touched(..)));
        let after = family.after_crash(left.collect());
        let (outcome, message, task) = block(after.run(CancelToken::default()));
        assert_eq!(outcome, TaskOutcome::Completed);
        assert_eq!(
            message, "new_task done: a is there",
            "with {torn} of its records"
        );
        assert_eq!(results(task.history()).len(), 2);
    }
}

#[test]
fn a_subtask_that_was_completed_is_not_asked_again() {
    let family = TaskFamily::new(|prompt, history| touch_in_subtasks(prompt, history, &["a"]));
    let (_, whole, _) = block(family.run(CancelToken::default()));
    let completed = family.events().iter().position(
        |entry| matches!(entry, FamilyEvent::Recorded(task, Record::Ended { .. }) if *task != start().task),
    );
    let (after, _, message, task) = resume_after(&family, completed.unwrap() + 1);
    assert_eq!(
        (message, after.asked.load(Ordering::SeqCst)),
        (whole, 1),
        "only the root's completion is asked for"
    );
    assert_eq!(task.totals(), root_totals(&after));
    let child = after.records(&after.task_ids()[1]);
    assert_eq!(
        CompletedSubtask::from_records(&child)
            .map(|completed| completed.result)
            .as_deref(),
        Some("a is there")
    );
    assert_eq!(
        CompletedSubtask::from_records(&child[..child.len() - 1]),
        None
    );
}

/// Scripts subtasks that touch a file and then hang, unless they were resumed.
fn hang_until_resumed(told: &Arc<Mutex<bool>>) -> TaskFamily {
    let told = Arc::clone(told);
    TaskFamily::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["a", "b"]),
        ("Do it.", _) => done(&results(history).join("; ")),
        (path, 0) => touch(path),
        (path, _) if *told.lock().unwrap() => done(&format!("{path} is there")),
        _ => ScriptedReply::Hang,
    })
}

#[test]
fn a_cancelled_parent_cancels_its_subtasks_first_and_resumes_them() {
    let told = Arc::default();
    let family = hang_until_resumed(&told);
    let (outcome, _, task) = block(async {
        let cancel = CancelToken::default();
        let stop = async {
            family.wait_for(2).await;
            while family.touched_paths().len() < 2 || family.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(family.run(cancel.clone()), stop).0
    });
    assert_eq!(outcome, TaskOutcome::Cancelled);
    assert_eq!(
        task.totals(),
        root_totals(&family),
        "what they took so far is told"
    );
    let tasks = family.task_ids();
    for task in &tasks {
        let last = family.records(task).pop();
        assert!(
            matches!(
                last,
                Some(Record::Ended {
                    outcome: TaskOutcome::Cancelled,
                    ..
                })
            ),
            "{task}: {last:?}"
        );
    }
    let Some(FamilyEvent::Recorded(last, _)) = family.events().pop() else {
        panic!()
    };
    assert_eq!(last, start().task, "the parent ends last");
    assert!(
        !new_task_results(&family).contains(&"new_task"),
        "{:?}",
        new_task_results(&family)
    );

    *told.lock().unwrap() = true;
    let (after, outcome, message, task) = resume_after(&family, family.events().len());
    assert_eq!(
        (outcome, message.as_str()),
        (
            TaskOutcome::Completed,
            "new_task done: a is there; new_task done: b is there"
        )
    );
    assert_eq!(
        (after.task_ids().len(), after.touched_paths().len()),
        (3, 2),
        "nothing is begun or done twice"
    );
    assert_eq!(
        task.totals(),
        root_totals(&after),
        "and nothing is counted twice"
    );
    check_family(&after);
    let ends = subtask_story(&after)
        .into_iter()
        .filter(|words| words.contains("after"));
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [
            "Cancelled after 1",
            "Cancelled after 1",
            "Completed after 1",
            "Completed after 1"
        ]
    );
}

#[test]
fn a_cancel_reaches_subtasks_of_subtasks() {
    let family = TaskFamily::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => delegate(&["nest", "a"]),
        ("nest", 0) => delegate(&["b"]),
        _ => ScriptedReply::Hang,
    });
    let (outcome, _, task) = block(async {
        let cancel = CancelToken::default();
        let stop = async {
            while family.asked.load(Ordering::SeqCst) < 4 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(family.run(cancel.clone()), stop).0
    });
    assert_eq!(
        (outcome, task.totals()),
        (TaskOutcome::Cancelled, root_totals(&family))
    );
    assert_eq!(family.task_ids().len(), 4);
    for task in family.task_ids() {
        let last = family.records(&task).pop();
        assert!(
            matches!(
                last,
                Some(Record::Ended {
                    outcome: TaskOutcome::Cancelled,
                    ..
                })
            ),
            "{task}: {last:?}"
        );
    }
    check_family(&family);
}

/// A `new_task` tool whose subtasks do not react to a cancel.
struct Deaf;

impl Tool for Deaf {
    fn spec(&self) -> ToolSpec {
        control::subtask_spec()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn prepare(&self, _: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(Deaf)
    }
}

impl PreparedCall for Deaf {
    fn access(&self) -> Access {
        Access::Nothing
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_subtask_that_does_not_end_is_dropped_and_stays_open() {
    let family = TaskFamily::new(|_, _| delegate(&["a"]));
    let registry = ToolRegistry::new(vec![Arc::new(Deaf)]).unwrap();
    let cancel = CancelToken::default();
    let (outcome, _, task) = block(async {
        let stop = async {
            while !subtask_story(&family).contains(&"begins".to_owned()) {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(family.run_with(&registry, cancel.clone()), stop).0
    });
    assert_eq!(
        (outcome, subtask_story(&family)),
        (
            TaskOutcome::Cancelled,
            ["running", "begins", "Cancelled"]
                .map(str::to_owned)
                .to_vec()
        )
    );
    assert!(
        task.open_call(&CallId::new("call_1_0")).is_some(),
        "its call is open"
    );
}

fn new_task_results(family: &TaskFamily) -> Vec<&'static str> {
    let results = family
        .records(&start().task)
        .into_iter()
        .filter_map(|record| match record {
            Record::Result(result) if result.name == control::NEW_TASK_TOOL => {
                Some(control::NEW_TASK_TOOL)
            }
            _ => None,
        });
    results.collect()
}

#[test]
fn a_subtask_that_is_cancelled_alone_interrupts_its_call() {
    let told = Arc::default();
    let family = hang_until_resumed(&told);
    let (outcome, message, task) = block(async {
        let stop = async {
            while family.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            for (_, queues) in family.queues.lock().unwrap().iter() {
                queues.push(UserCommand::Cancel);
            }
        };
        tokio::join!(family.run(CancelToken::default()), stop).0
    });
    assert_eq!(outcome, TaskOutcome::Completed);
    let child = &family.task_ids()[1];
    let words = format!(
        "new_task interrupted: The subtask {child} was cancelled: interrupted. What it changed so far is kept.\nThe user can see \
         all of it with `sabir log {child}`."
    );
    assert!(message.contains(&words), "{message}");
    assert_eq!(task.totals(), root_totals(&family));
}

#[test]
fn an_interrupting_message_interrupts_subtasks() {
    let told = Arc::default();
    let family = hang_until_resumed(&told);
    let (outcome, message, task) = block(async {
        let queue = CommandQueue::default();
        let queues = queue.clone();
        let steer = async {
            while family.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            queue.push(UserCommand::interrupt("Another way."));
        };
        tokio::join!(family.run_with_commands(queues), steer).0
    });
    assert_eq!(outcome, TaskOutcome::Completed, "{message}");
    assert_eq!(
        message.matches("new_task interrupted").count(),
        2,
        "{message}"
    );
    let said = format!("{:?}", task.history());
    assert!(said.contains("Another way."));
    check_family(&family);
}

#[test]
fn a_begun_subtask_that_does_not_resume_is_interrupted() {
    let mut machine = Machine::new(task_settings());
    machine
        .answer("<touch>\n<path>a</path>\n</touch>\n<new_task>\n<message>a</message>\n</new_task>");
    let touched = machine.last_answer().checks[0].call.clone();
    work(&mut machine, |call| {
        (*call == touched).then(|| ToolOutput::done("yes"))
    });
    assert_eq!(running_calls(&machine), [control::NEW_TASK_TOOL]);
    let records = machine.records.clone();
    let resumed = |settings: TaskSettings| {
        let task = Task::replay(records.clone(), settings).unwrap();
        let mut machine = Machine {
            task,
            records: records.clone(),
            open: Vec::new(),
        };
        machine.step(TaskInput::Begin);
        machine
    };
    let mut machine = resumed(task_settings());
    assert!(
        matches!(machine.open[..], [TaskEffect::AssessCall(_)]),
        "it goes on: {:?}",
        machine.open
    );
    machine.step(TaskInput::interrupting("No."));
    assert_eq!(machine.results(), ["touch done", "new_task interrupted"]);
    machine.check_history();
    // If subtasks are no longer possible, it is an ordinary call.
    let plain = resumed(TaskSettings {
        tools: without_subtasks(),
        ..task_settings()
    });
    assert_eq!(plain.results(), ["touch done", "new_task interrupted"]);
}

fn without_subtasks() -> ToolSet {
    ToolSet::new(
        tools()
            .iter()
            .filter(|spec| spec.name != control::NEW_TASK_TOOL)
            .cloned()
            .collect(),
    )
    .unwrap()
}

#[test]
fn a_fork_names_its_own_subtasks() {
    let mut machine = Machine::new(task_settings());
    machine.answer("<new_task>\n<message>a</message>\n</new_task>");
    work(&mut machine, |_| None);
    let mut records = machine.records.clone();
    let Record::Started(start) = &mut records[0] else {
        panic!()
    };
    let from = Some(TaskOrigin::Fork {
        task: start.task.clone(),
        record: 4,
    });
    (start.task, start.from) = (TaskId::new("t2"), from);
    let mut fork = Machine {
        task: Task::replay(records.clone(), task_settings()).unwrap(),
        records,
        open: Vec::new(),
    };
    fork.step(TaskInput::Begin);
    work(&mut fork, |_| Some(ended(TaskOutcome::Completed, 3, 100)));
    let named = fork.records.iter().filter_map(|record| match record {
        Record::Subtask { task, ended, .. } => Some((task.to_string(), ended.map(|end| end.turns))),
        _ => None,
    });
    let named: Vec<_> = named.collect();
    let (own, other) = (
        TaskId::new("t2")
            .child_id(&fork.last_answer().checks[0].call)
            .to_string(),
        named[0].0.clone(),
    );
    assert_eq!(named, [(other, None), (own.clone(), None), (own, Some(3))]);
}

#[test]
fn a_task_that_ends_waits_for_the_ends_of_its_subtasks() {
    let mut machine = Machine::new(task_settings());
    let new = "<new_task>\n<message>a</message>\n</new_task>\n";
    machine.answer(&format!("{new}{new}{new}<touch>\n<path>a</path>\n</touch>"));
    work(&mut machine, |_| None);
    let calls: Vec<_> = machine
        .last_answer()
        .checks
        .iter()
        .map(|check| check.call.clone())
        .collect();
    machine.step(TaskInput::TimeExpired);
    assert_eq!(machine.ended(), None);
    machine.step(TaskInput::ToolFinished(
        calls[0].clone(),
        ended(TaskOutcome::Cancelled, 2, 20),
    ));
    machine.step(TaskInput::ToolFinished(
        calls[1].clone(),
        ended(TaskOutcome::Completed, 1, 10),
    ));
    machine.step(TaskInput::queued("Too late."));
    assert_eq!(machine.ended(), None);
    // One that did not end in time.
    machine.step(TaskInput::ToolFinished(
        calls[2].clone(),
        ToolOutput::failed("x"),
    ));
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
    assert_eq!(
        machine.results(),
        ["new_task done"],
        "what was completed is"
    );
    assert_eq!(machine.task.totals().usage.input, Some(30));
    let mut again = Task::replay(machine.records.clone(), task_settings()).unwrap();
    assert_eq!(again.totals(), machine.task.totals());
    let weighed = again
        .step(TaskInput::Begin)
        .into_iter()
        .filter(|effect| matches!(effect, TaskEffect::AssessCall(_)))
        .count();
    assert_eq!(weighed, 2, "the others go on, and the write waits");
    // A second cancel does not wait.
    let mut machine = Machine::new(task_settings());
    machine.answer(new);
    work(&mut machine, |_| None);
    machine.step(TaskInput::Cancel);
    machine.step(TaskInput::Cancel);
    assert_eq!(machine.ended(), Some(TaskOutcome::Cancelled));
}
