//! Subtasks: over scripted models and a household in memory, with crashes at every record.

mod house;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use sabir_agent::control::{self, SubtaskRequest};
use sabir_agent::{
    CallArguments, CallPermit, CancelToken, CommandQueue, CompletedSubtask, Interactivity,
    OpenTodos, Preconditions, PreparedCall, ProgressSink, Record, SubtaskEnd, Task, TaskEffect,
    TaskId, TaskInput, TaskOrigin, TaskOutcome, TaskSettings, Tool, ToolOutput, ToolRegistry,
    ToolWork, UsageTotals, UserCommand,
};
use sabir_call::{CallId, Message, ModelErrorKind, ToolResultStatus, ToolSet, ToolSpec, Usage};
use sabir_policy::{Access, PolicyRules};

use crate::machine::{Machine, settings, start, tools};
use house::{Entry, House, Say, block, results};

fn done(result: &str) -> Say {
    Say::Text(format!(
        "<attempt_completion>\n<result>{result}</result>\n</attempt_completion>"
    ))
}

fn touch(path: &str) -> Say {
    Say::Text(format!("<touch>\n<path>{path}</path>\n</touch>"))
}

fn hand(messages: &[&str]) -> Say {
    let call = |message: &&str| format!("<new_task>\n<message>{message}</message>\n</new_task>\n");
    Say::Text(messages.iter().map(call).collect())
}

fn turns(history: &[Message]) -> usize {
    history
        .iter()
        .filter(|message| message.calls().next().is_some())
        .count()
}

/// Each subtask touches the file that it is told of; the root completes with what all of them said.
fn touching(prompt: &str, history: &[Message], messages: &[&str]) -> Say {
    match (prompt, turns(history)) {
        ("Do it.", 0) => hand(messages),
        ("Do it.", _) => done(&results(history).join("; ")),
        (path, 0) => touch(path),
        (path, _) => done(&format!("{path} is there")),
    }
}

/// The records of the root that tell of subtasks, in words.
fn tale(house: &House) -> Vec<String> {
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
    house
        .records(&start().task)
        .into_iter()
        .filter_map(words)
        .collect()
}

/// What all answers in all journals took, each once.
fn own_totals(house: &House) -> UsageTotals {
    let mut totals = UsageTotals::default();
    for entry in house.all() {
        if let Entry::Kept(_, record @ (Record::Answered(_) | Record::Failed(_))) = entry {
            totals.add_record(&record);
        }
    }
    totals
}

#[test]
fn a_subtask_answers_its_call() {
    let house = House::new(|prompt, history| touching(prompt, history, &["a"]));
    let (outcome, message, task) = block(house.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Completed, "new_task done: a is there")
    );
    let root = start().task;
    let [_, child] = &house.tasks()[..] else {
        panic!("{:?}", house.tasks())
    };
    let call = house
        .records(&root)
        .into_iter()
        .find_map(|record| match record {
            Record::Subtask { call, .. } => Some(call),
            _ => None,
        });
    let call = call.unwrap();
    assert_eq!(*child, root.child_id(&call));
    let Record::Started(started) = &house.records(child)[0] else {
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
        tale(&house),
        [
            "running",
            "begins",
            "Completed after 2",
            "new_task Done",
            "attempt_completion Done",
            "Completed"
        ]
    );
    assert_eq!(house.touched(), ["a"]);
    assert_eq!(
        (task.turn_count(), task.totals()),
        (2, own_totals(&house)),
        "what a subtask took is counted once"
    );
    let mut noted = UsageTotals::default();
    house
        .records(&start().task)
        .iter()
        .for_each(|record| noted.add_record(record));
    assert_eq!(
        noted,
        task.totals(),
        "whoever reads the records finds the same"
    );
}

#[test]
fn the_name_of_a_subtask_follows_from_its_call() {
    let child = |task: &str, call: &str| TaskId::new(task).child_id(&CallId::new(call)).to_string();
    assert_eq!(child("t1", "call_1_0"), "t1-f45ebd8d");
    assert_ne!(child("t1", "call_1_0"), child("t1", "call_1_1"));
    assert_ne!(child("t1", "call_1_0"), child("t2", "call_1_0"));
}

/// The result of a subtask that goes so, when the parent goes on.
#[track_caller]
fn check_failure(mend: impl Fn(&mut House), say: Say, expected: &str) {
    let mut house = House::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a"]),
        ("Do it.", _) => done("seen"),
        _ => say.clone(),
    });
    mend(&mut house);
    let (outcome, message, task) = block(house.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Completed, "seen"),
        "the parent goes on"
    );
    let child = &house.tasks()[1];
    assert_eq!(
        results(task.history())[0],
        format!("new_task {}", expected.replace("CHILD", child.as_str()))
    );
    assert_eq!(task.totals(), own_totals(&house));
}

#[test]
fn an_end_that_is_no_completion_is_told() {
    let log = "The user can see all of it with `sabir log CHILD`.";
    let as_it_is = |_: &mut House| {};
    check_failure(
        as_it_is,
        Say::Text("I wonder.".to_owned()),
        &format!(
            "failed: The subtask CHILD ended without completing: the model replied 3 times without a call and did not complete \
             the task. What it changed so far stands.\nThe last that it said:\nI wonder.\n{log}"
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
            format!("failed: The subtask CHILD {why}: no. What it changed so far stands.\n{log}");
        check_failure(as_it_is, Say::Fail(kind), &words);
    }
    let strict = |house: &mut House| house.settings.rules = PolicyRules::default();
    check_failure(
        strict,
        touch("a"),
        &format!(
            "failed: The subtask CHILD could not go on, since calls were denied: 6 calls in a row failed; 6 calls were denied \
             (see --approve). What it changed so far stands.\n{log}"
        ),
    );
}

#[test]
fn arguments_that_make_no_subtask_are_told() {
    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let call = format!("<new_task>\n{arguments}\n</new_task>");
        let house = House::new(move |_, history| match turns(history) {
            0 => Say::Text(call.clone()),
            _ => done("seen"),
        });
        let (outcome, _, task) = block(house.run(CancelToken::default()));
        assert_eq!(outcome, TaskOutcome::Completed);
        let results = results(task.history());
        assert!(results[0].starts_with(expected), "{results:?}");
        assert_eq!(house.tasks().len(), 1);
    }
    check(
        "<message> </message>",
        "new_task failed: The message is empty. Say what is to be done",
    );
    check(
        "<message>a</message>\n<todos># Plan</todos>",
        "new_task failed: Line 1 of the todos is no item",
    );
    check(
        "<message>a</message>\n<mode>x</mode>",
        "new_task failed: There is no mode `x`.",
    );
    check("<mode>code</mode>", "new_task rejected: ");
}

#[test]
fn what_is_said_is_read() {
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
fn a_list_that_was_given_is_the_first_list() {
    let call = "<new_task>\n<message>a</message>\n<todos>[ ] one</todos>\n</new_task>";
    let listed = "<update_todo_list>\n<todos>[x] one</todos>\n</update_todo_list>";
    let mut house = House::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => Say::Text(call.to_owned()),
        ("Do it.", _) | (_, 0) => done("done"),
        (_, 1) => Say::Text(listed.to_owned()),
        _ => done("now it is"),
    });
    house.settings.completion.open_todos = OpenTodos::Refused;
    let (_, _, task) = block(house.run(CancelToken::default()));
    assert_eq!(results(task.history())[0], "new_task done: now it is");
    let child = house.records(&house.tasks()[1]);
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
    let house = House::new(|prompt, history| match (prompt, turns(history)) {
        (_, 0) => hand(&[&format!("below {prompt}")]),
        _ => done(results(history)[0].split('\n').next().unwrap()),
    });
    let (outcome, message, task) = block(house.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Completed);
    let tasks = house.tasks();
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    assert!(
        tasks[2].as_str().starts_with(tasks[1].as_str()),
        "{tasks:?}"
    );
    assert!(
        message.contains("replied 3 times without a call"),
        "the deepest has no such tool: {message}"
    );
    assert_eq!(task.totals(), own_totals(&house), "those of all levels");
}

#[test]
fn a_machine_without_depth_begins_none() {
    let mut shallow = delegating();
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
fn a_task_begins_so_many_and_no_more() {
    let mut house = House::new(|prompt, history| touching(prompt, history, &["a", "b", "c", "d"]));
    house.settings.limits.subtasks.max_total = 3;
    let (_, message, _) = block(house.run(CancelToken::default()));
    assert!(
        message.ends_with(
            "new_task failed: 3 subtasks were begun, and a task has no more than that. Do the rest yourself."
        )
    );
    assert_eq!(house.tasks().len(), 4);
}

#[test]
fn several_work_at_once_and_more_wait() {
    let house = House::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a", "b", "c", "d", "e"]),
        ("Do it.", _) => done(&results(history).join("; ")),
        _ => Say::Hang,
    });
    block(async {
        let cancel = CancelToken::default();
        let watched = house.clone();
        let watch = async {
            for (at, gone) in ["b", "c", "a", "e", "d"].into_iter().enumerate() {
                watched.wait_for((5 - at).min(3)).await;
                let open = watched.open.lock().unwrap().clone();
                assert_eq!(open.len(), (5 - at).min(3), "{open:?}");
                assert!(
                    open.iter().any(|prompt| prompt == gone),
                    "in their order: {open:?}"
                );
                let ears = watched.ears.lock().unwrap();
                ears.iter()
                    .find(|(prompt, _)| prompt == gone)
                    .unwrap()
                    .1
                    .push(UserCommand::Cancel);
                watched.open.lock().unwrap().retain(|prompt| prompt != gone);
            }
        };
        let ((outcome, message, _), ()) = tokio::join!(house.run(cancel), watch);
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

fn delegating() -> TaskSettings {
    settings(Interactivity::Headless)
}

/// Weighs and runs what is asked for, but for calls whose output is not there yet.
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

fn running(machine: &Machine) -> Vec<String> {
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
fn subtasks_go_with_what_reads_and_wait_for_what_writes() {
    let (look, touch) = (
        "<look>\n<path>a</path>\n</look>\n",
        "<touch>\n<path>a</path>\n</touch>\n",
    );
    let new = "<new_task>\n<message>a</message>\n</new_task>\n";
    let mut machine = Machine::new(delegating());
    machine.answer(&format!(
        "{touch}{new}{look}{new}{new}{new}{look}{touch}{new}"
    ));
    let finish = |machine: &mut Machine, count: usize| {
        let mut left = count;
        work(machine, |_| {
            left = left.checked_sub(1)?;
            Some(ToolOutput::done("yes"))
        });
        running(machine)
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
fn limits_hold_for_the_whole_family() {
    // Each of them would go on for ever.
    let mut house = House::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a", "b", "c"]),
        (prompt, turn) => touch(&format!("{prompt}{turn}")),
    });
    house.settings.limits.turns = Some(8);
    let (outcome, message, task) = block(house.run(CancelToken::default()));
    assert_eq!(
        (outcome, message.as_str()),
        (TaskOutcome::Limit, "the limit of 8 turns was reached")
    );
    let answers = house
        .all()
        .into_iter()
        .filter(|entry| matches!(entry, Entry::Kept(_, Record::Answered(_))));
    assert_eq!(
        (answers.count(), house.asked.load(Ordering::SeqCst)),
        (8, 8),
        "all of them together"
    );
    assert!(
        results(task.history())
            .iter()
            .all(|result| result.contains("reached a limit"))
    );
    // A resumed task has its limits anew, and so have its subtasks.
    let mut house = house.after(house.all());
    house.settings.limits.turns = Some(3);
    let (outcome, ..) = block(house.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Limit);
    assert_eq!(house.asked.load(Ordering::SeqCst), 3);
}

#[test]
fn tokens_and_money_of_a_family_are_one_sum() {
    let words = "words ".repeat(100);
    let mut house = House::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a", "b", "c"]),
        (prompt, turn) => Say::Text(format!(
            "{words}<touch>\n<path>{prompt}{turn}</path>\n</touch>"
        )),
    });
    house.settings.limits.tokens = Some(8_000);
    let (outcome, _, task) = block(house.run(CancelToken::default()));
    assert_eq!(
        (outcome, task.totals()),
        (TaskOutcome::Limit, own_totals(&house))
    );
    let tokens = own_tokens(&house);
    // The requests that were under way are finished: three of them, each smaller than the sum before.
    assert!((8_000..16_000).contains(&tokens), "{tokens}");
}

fn own_tokens(house: &House) -> u64 {
    let UsageTotals {
        usage, estimate, ..
    } = own_totals(house);
    [usage.input, usage.output, estimate.input, estimate.output]
        .into_iter()
        .flatten()
        .sum()
}

/// What is left of a family's story when the process ends after so many entries, and it is gone on with.
fn gone_on(house: &House, entries: usize) -> (House, TaskOutcome, String, Task) {
    let house = house.after(house.all()[..entries].to_vec());
    let (outcome, message, task) = block(house.run(CancelToken::default()));
    (house, outcome, message, task)
}

/// Laws of a family's records, whatever happened.
fn check_family(house: &House) {
    let mut touches = HashMap::new();
    house
        .touched()
        .into_iter()
        .for_each(|path| *touches.entry(path).or_insert(0) += 1);
    assert!(
        touches.values().all(|times| *times == 1),
        "done twice: {touches:?}"
    );
    let tasks = house.tasks();
    assert!(
        tasks
            .iter()
            .enumerate()
            .all(|(at, task)| !tasks[..at].contains(task)),
        "begun twice: {tasks:?}"
    );
    for task in &tasks {
        let records = house.records(task);
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
        let own =
            |entry: &Entry| matches!(entry, Entry::Kept(of, Record::Started(_)) if of == task);
        let born = house.all().iter().position(own).unwrap();
        let parent = tasks
            .iter()
            .find(|parent| records_name(house, parent, task, born));
        assert!(
            parent.is_some() || *task == start().task,
            "{task} is in no journal that was there before it"
        );
    }
}

/// Whether the parent's journal named the subtask before it was born.
fn records_name(house: &House, parent: &TaskId, child: &TaskId, born: usize) -> bool {
    let names = |entry: &Entry| matches!(entry, Entry::Kept(of, Record::Subtask { task, .. }) if of == parent && task == child);
    house
        .all()
        .iter()
        .position(names)
        .is_some_and(|named| named < born)
}

/// Three levels, each of which does something.
fn nested() -> House {
    House::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a", "nest"]),
        ("nest", 0) => hand(&["b"]),
        ("nest", 1) => touch("c"),
        ("Do it.", 1) => touch("d"),
        // Where the process ended between the result of a completion and the end of its task, it is completed once more.
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
fn a_cancel_at_any_moment_ends_all_and_is_gone_on_from() {
    let whole = nested();
    block(whole.run(CancelToken::default()));
    let (mut cancelled, mut open) = (0, 0);
    for entries in 1..whole.all().len() {
        let house = nested();
        let (outcome, _, task) = block(async {
            let cancel = CancelToken::default();
            let stop = async {
                while house.all().len() < entries {
                    tokio::task::yield_now().await;
                }
                cancel.cancel();
            };
            tokio::join!(house.run(cancel.clone()), stop).0
        });
        assert_eq!(
            task.totals(),
            own_totals(&house),
            "at {entries}: what was taken is told"
        );
        if outcome != TaskOutcome::Cancelled {
            continue;
        }
        cancelled += 1;
        for task in house.tasks() {
            let last = house.records(&task).pop();
            assert!(
                matches!(last, Some(Record::Ended { .. })),
                "at {entries}, {task}: {last:?}"
            );
        }
        open += usize::from(tale(&house).contains(&"Cancelled after 1".to_owned()));
        let (after, outcome, message, task) = gone_on(&house, house.all().len());
        assert_eq!(outcome, TaskOutcome::Completed, "at {entries}: {message}");
        check_family(&after);
        assert_eq!(
            (task.totals(), after.tasks().len()),
            (own_totals(&after), 4),
            "at {entries}"
        );
    }
    assert!(
        cancelled > 10 && open > 0,
        "{cancelled} were cancelled, {open} with subtasks at work"
    );
}

#[test]
fn words_at_any_moment_end_no_parent() {
    let whole = nested();
    block(whole.run(CancelToken::default()));
    let mut given_up = 0;
    for entries in 1..whole.all().len() {
        let house = nested();
        let (outcome, message, task) = block(async {
            let mouth = CommandQueue::default();
            let ears = mouth.clone();
            let steer = async {
                while house.all().len() < entries {
                    tokio::task::yield_now().await;
                }
                mouth.push(UserCommand::interrupt("Mind the tests."));
            };
            tokio::join!(house.spoken_to(ears), steer).0
        });
        assert_eq!(
            (outcome, task.totals()),
            (TaskOutcome::Completed, own_totals(&house)),
            "at {entries}: {message}"
        );
        check_family(&house);
        given_up += results(task.history())
            .iter()
            .filter(|result| result.starts_with("new_task interrupted"))
            .count();
    }
    assert!(given_up > 5, "{given_up} were given up");
}

#[test]
fn a_crash_at_any_record_is_gone_on_from() {
    let house = nested();
    let (outcome, whole, task) = block(house.run(CancelToken::default()));
    assert_eq!(outcome, TaskOutcome::Completed);
    assert_eq!(
        (task.totals(), house.tasks().len()),
        (own_totals(&house), 4)
    );
    // The same is found by whoever looks only at the records.
    for child in &house.tasks()[1..] {
        let parent = house
            .tasks()
            .into_iter()
            .find(|parent| records_name(&house, parent, child, usize::MAX))
            .unwrap();
        let ends = house
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
            [CompletedSubtask::from_records(&house.records(child))
                .unwrap()
                .end]
        );
    }
    let all = house.all();
    // The last record completes the root; before the first there is nothing.
    for entries in 1..all.len() {
        let (after, outcome, message, task) = gone_on(&house, entries);
        assert_eq!(
            outcome,
            TaskOutcome::Completed,
            "after {entries}: {message}"
        );
        check_family(&after);
        assert_eq!(
            task.totals(),
            own_totals(&after),
            "after {entries}: all that was taken is counted, and once"
        );
        // A call that was running has an interrupted result; all else is as if nothing had happened.
        let interrupted = after.all().iter().any(
            |entry| matches!(entry, Entry::Kept(_, Record::Result(result)) if result.ending == ToolResultStatus::Interrupted),
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
                after.touched().len() >= 3,
                "one call is in doubt, no more: {:?}",
                after.touched()
            );
        } else {
            assert_eq!(after.touched().len(), 4);
        }
        // And once more, in the middle of that.
        for more in [entries + 1, entries + 3, entries + 8] {
            if more < after.all().len() {
                let (last, outcome, message, task) = gone_on(&after, more);
                assert_eq!(
                    outcome,
                    TaskOutcome::Completed,
                    "after {entries}, then {more}: {message}"
                );
                check_family(&last);
                assert_eq!(task.totals(), own_totals(&last));
            }
        }
    }
}

#[test]
fn a_torn_journal_of_a_subtask_is_gone_on_from() {
    let house = House::new(|prompt, history| touching(prompt, history, &["a"]));
    block(house.run(CancelToken::default()));
    let (all, child) = (house.all(), house.tasks()[1].clone());
    let mine = |entry: &Entry| matches!(entry, Entry::Kept(of, _) if *of == child);
    let last = all.iter().rposition(mine).unwrap();
    let own: Vec<_> = (0..=last).filter(|at| mine(&all[*at])).collect();
    for torn in 0..own.len() {
        // The parent knows all that it knew, the subtask has lost its end, or everything.
        let left = all[..=last]
            .iter()
            .enumerate()
            .filter(|(at, entry)| !mine(entry) || own[..torn].contains(at));
        let left = left
            .map(|(_, entry)| entry.clone())
            .filter(|entry| !matches!(entry, Entry::Touched(..)));
        let after = house.after(left.collect());
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
    let house = House::new(|prompt, history| touching(prompt, history, &["a"]));
    let (_, whole, _) = block(house.run(CancelToken::default()));
    let completed = house.all().iter().position(
        |entry| matches!(entry, Entry::Kept(task, Record::Ended { .. }) if *task != start().task),
    );
    let (after, _, message, task) = gone_on(&house, completed.unwrap() + 1);
    assert_eq!(
        (message, after.asked.load(Ordering::SeqCst)),
        (whole, 1),
        "only the root's completion is asked for"
    );
    assert_eq!(task.totals(), own_totals(&after));
    let child = after.records(&after.tasks()[1]);
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

/// A subtask that touches something and then waits for ever, unless it was gone on with.
fn waiting(told: &Arc<Mutex<bool>>) -> House {
    let told = Arc::clone(told);
    House::new(move |prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["a", "b"]),
        ("Do it.", _) => done(&results(history).join("; ")),
        (path, 0) => touch(path),
        (path, _) if *told.lock().unwrap() => done(&format!("{path} is there")),
        _ => Say::Hang,
    })
}

#[test]
fn a_cancelled_parent_cancels_its_subtasks_first_and_goes_on_with_them() {
    let told = Arc::default();
    let house = waiting(&told);
    let (outcome, _, task) = block(async {
        let cancel = CancelToken::default();
        let stop = async {
            house.wait_for(2).await;
            while house.touched().len() < 2 || house.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(house.run(cancel.clone()), stop).0
    });
    assert_eq!(outcome, TaskOutcome::Cancelled);
    assert_eq!(
        task.totals(),
        own_totals(&house),
        "what they took so far is told"
    );
    let tasks = house.tasks();
    for task in &tasks {
        let last = house.records(task).pop();
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
    let Some(Entry::Kept(last, _)) = house.all().pop() else {
        panic!()
    };
    assert_eq!(last, start().task, "the parent ends last");
    assert!(
        !told_results(&house).contains(&"new_task"),
        "{:?}",
        told_results(&house)
    );

    *told.lock().unwrap() = true;
    let (after, outcome, message, task) = gone_on(&house, house.all().len());
    assert_eq!(
        (outcome, message.as_str()),
        (
            TaskOutcome::Completed,
            "new_task done: a is there; new_task done: b is there"
        )
    );
    assert_eq!(
        (after.tasks().len(), after.touched().len()),
        (3, 2),
        "nothing is begun or done twice"
    );
    assert_eq!(
        task.totals(),
        own_totals(&after),
        "and nothing is counted twice"
    );
    check_family(&after);
    let ends = tale(&after)
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
    let house = House::new(|prompt, history| match (prompt, turns(history)) {
        ("Do it.", 0) => hand(&["nest", "a"]),
        ("nest", 0) => hand(&["b"]),
        _ => Say::Hang,
    });
    let (outcome, _, task) = block(async {
        let cancel = CancelToken::default();
        let stop = async {
            while house.asked.load(Ordering::SeqCst) < 4 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(house.run(cancel.clone()), stop).0
    });
    assert_eq!(
        (outcome, task.totals()),
        (TaskOutcome::Cancelled, own_totals(&house))
    );
    assert_eq!(house.tasks().len(), 4);
    for task in house.tasks() {
        let last = house.records(&task).pop();
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
    check_family(&house);
}

/// A household whose subtasks hear nothing.
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

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolWork<'a> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_subtask_that_does_not_end_is_dropped_and_stays_open() {
    let house = House::new(|_, _| hand(&["a"]));
    let registry = ToolRegistry::new(vec![Arc::new(Deaf)]).unwrap();
    let cancel = CancelToken::default();
    let (outcome, _, task) = block(async {
        let stop = async {
            while !tale(&house).contains(&"begins".to_owned()) {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        tokio::join!(house.run_with(&registry, cancel.clone()), stop).0
    });
    assert_eq!(
        (outcome, tale(&house)),
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

fn told_results(house: &House) -> Vec<&'static str> {
    let results = house
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
    let house = waiting(&told);
    let (outcome, message, task) = block(async {
        let stop = async {
            while house.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            for (_, ears) in house.ears.lock().unwrap().iter() {
                ears.push(UserCommand::Cancel);
            }
        };
        tokio::join!(house.run(CancelToken::default()), stop).0
    });
    assert_eq!(outcome, TaskOutcome::Completed);
    let child = &house.tasks()[1];
    let words = format!(
        "new_task interrupted: The subtask {child} was cancelled: interrupted. What it changed so far stands.\nThe user can see \
         all of it with `sabir log {child}`."
    );
    assert!(message.contains(&words), "{message}");
    assert_eq!(task.totals(), own_totals(&house));
}

#[test]
fn steering_gives_subtasks_up() {
    let told = Arc::default();
    let house = waiting(&told);
    let (outcome, message, task) = block(async {
        let mouth = CommandQueue::default();
        let ears = mouth.clone();
        let steer = async {
            while house.asked.load(Ordering::SeqCst) < 5 {
                tokio::task::yield_now().await;
            }
            mouth.push(UserCommand::interrupt("Another way."));
        };
        tokio::join!(house.spoken_to(ears), steer).0
    });
    assert_eq!(outcome, TaskOutcome::Completed, "{message}");
    assert_eq!(
        message.matches("new_task interrupted").count(),
        2,
        "{message}"
    );
    let said = format!("{:?}", task.history());
    assert!(said.contains("Another way."));
    check_family(&house);
}

#[test]
fn what_was_begun_and_is_given_up_before_it_goes_on_was_interrupted() {
    let mut machine = Machine::new(delegating());
    machine
        .answer("<touch>\n<path>a</path>\n</touch>\n<new_task>\n<message>a</message>\n</new_task>");
    let touched = machine.last_answer().checks[0].call.clone();
    work(&mut machine, |call| {
        (*call == touched).then(|| ToolOutput::done("yes"))
    });
    assert_eq!(running(&machine), [control::NEW_TASK_TOOL]);
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
    let mut machine = resumed(delegating());
    assert!(
        matches!(machine.open[..], [TaskEffect::AssessCall(_)]),
        "it goes on: {:?}",
        machine.open
    );
    machine.step(TaskInput::interrupting("No."));
    assert_eq!(machine.results(), ["touch done", "new_task interrupted"]);
    machine.check_history();
    // Where subtasks are no longer possible, it is a call like any other.
    let plain = resumed(TaskSettings {
        tools: without_subtasks(),
        ..delegating()
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
fn a_fork_has_subtasks_of_its_own() {
    let mut machine = Machine::new(delegating());
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
        task: Task::replay(records.clone(), delegating()).unwrap(),
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
    let mut machine = Machine::new(delegating());
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
    let mut again = Task::replay(machine.records.clone(), delegating()).unwrap();
    assert_eq!(again.totals(), machine.task.totals());
    let weighed = again
        .step(TaskInput::Begin)
        .into_iter()
        .filter(|effect| matches!(effect, TaskEffect::AssessCall(_)))
        .count();
    assert_eq!(weighed, 2, "the others go on, and the write waits");
    // Whoever cancels again does not wait.
    let mut machine = Machine::new(delegating());
    machine.answer(new);
    work(&mut machine, |_| None);
    machine.step(TaskInput::Cancel);
    machine.step(TaskInput::Cancel);
    assert_eq!(machine.ended(), Some(TaskOutcome::Cancelled));
}
