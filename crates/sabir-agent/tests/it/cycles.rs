//! Cycles: when repeated calls are warned about or end the task, and which repetitions are not a cycle.

use sabir_agent::{
    CallPermit, Interactivity, MessageAuthor, Record, Task, TaskEffect, TaskInput, TaskOutcome,
    TaskSettings, ToolOutput, UserQuestion, UserReply,
};

use crate::machine::{Machine, settings};

fn call(name: &str, path: &str) -> String {
    format!("<{name}>\n<path>{path}</path>\n</{name}>\n")
}

/// Answers with calls and gives each of them this result.
fn turn(machine: &mut Machine, text: &str, result: &str) {
    machine.answer(text);
    while let Some(at) = machine
        .open
        .iter()
        .position(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)))
    {
        match machine.open.remove(at) {
            TaskEffect::RunCall(CallPermit { call, .. }) => {
                machine.step(TaskInput::ToolFinished(call, ToolOutput::done(result)))
            }
            TaskEffect::AssessCall(call) => {
                let access = machine.access(&call);
                machine.step(TaskInput::CallAssessed(call, access, Default::default()));
            }
            _ => unreachable!(),
        }
    }
}

/// Returns the texts that Sabir added for the model.
fn warnings(machine: &Machine) -> Vec<&str> {
    let said = machine.records.iter().filter_map(|record| match record {
        Record::Said {
            by: MessageAuthor::Sabir,
            text,
            ..
        } => Some(text.as_str()),
        _ => None,
    });
    said.collect()
}

#[test]
fn a_third_identical_call_warns_and_a_sixth_ends_the_task() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for time in 1..=6 {
        assert_eq!(machine.ended(), None, "{time}");
        turn(&mut machine, &call("look", "a"), "same");
        let words = warnings(&machine);
        assert_eq!(
            words.len(),
            [0, 0, 1, 2, 3, 3][time - 1],
            "{time}: {words:?}"
        );
        if time == 3 {
            assert!(
                words[0]
                    .starts_with("The same call was made 3 times, with the same result each time."),
                "{words:?}"
            );
        }
    }
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
    machine.check_history();
}

#[test]
fn cycles_of_several_calls_are_detected_across_and_within_messages() {
    for calls in [
        vec![call("look", "a"), call("touch", "b")],
        vec![call("look", "a"), call("look", "b"), call("touch", "a")],
        vec![
            call("look", "a"),
            call("touch", "b"),
            call("look", "c"),
            call("touch", "d"),
        ],
    ] {
        let mut apart = Machine::new(settings(Interactivity::Headless));
        for call in calls.iter().cycle().take(3 * calls.len()) {
            turn(&mut apart, call, "same");
        }
        let mut together = Machine::new(settings(Interactivity::Headless));
        (0..3).for_each(|_| turn(&mut together, &calls.concat(), "same"));
        for machine in [apart, together] {
            let expected = format!(
                "The same {} calls were made 3 times one after the other",
                calls.len()
            );
            assert_eq!(warnings(&machine).len(), 1, "{calls:?}");
            assert!(
                warnings(&machine)[0].starts_with(&expected),
                "{:?}",
                warnings(&machine)
            );
            machine.check_history();
        }
    }
}

#[test]
fn changed_results_or_changes_in_between_are_no_cycle() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for time in 0..20 {
        turn(&mut machine, &call("look", "a"), &format!("line {time}"));
    }
    for time in 0..20 {
        // The tests fail in the same way after each of several changes.
        turn(
            &mut machine,
            &call("touch", &format!("change {time}")),
            "changed",
        );
        turn(&mut machine, &call("look", "tests"), "2 tests fail");
    }
    assert_eq!((warnings(&machine).len(), machine.ended()), (0, None));
}

#[test]
fn polling_tools_make_no_cycle() {
    let polling = TaskSettings {
        polling_tools: vec!["look".to_owned()],
        ..settings(Interactivity::Headless)
    };
    let mut machine = Machine::new(polling.clone());
    (0..30).for_each(|_| turn(&mut machine, &call("look", "job"), "nothing new"));
    assert_eq!((warnings(&machine).len(), machine.ended()), (0, None));
    // Repeating another call stays a cycle, with polling in between.
    for _ in 0..3 {
        turn(&mut machine, &call("touch", "a"), "same");
        turn(&mut machine, &call("look", "job"), "nothing new");
    }
    assert_eq!(warnings(&machine).len(), 1);
    // Unless a poll has a new result.
    let mut machine = Machine::new(polling);
    for time in 0..10 {
        turn(&mut machine, &call("touch", "a"), "same");
        turn(&mut machine, &call("look", "job"), &format!("line {time}"));
    }
    assert_eq!(warnings(&machine).len(), 0);
}

#[test]
fn the_users_reply_resets_the_cycle_count() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    (0..6).for_each(|_| turn(&mut machine, &call("look", "a"), "same"));
    let question = machine.question();
    assert!(
        matches!(&question, UserQuestion::Next { reason } if reason == "the same call was made 6 times with the same result"),
        "{question:?}"
    );
    machine.step(TaskInput::UserReplied(UserReply::Text(
        "Go on all the same.".into(),
    )));
    turn(&mut machine, &call("look", "a"), "same");
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn replay_keeps_the_history_and_resets_the_cycle_count() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    (0..5).for_each(|_| turn(&mut machine, &call("look", "a"), "same"));
    let records = machine.records.clone();
    let task = Task::replay(records.clone(), settings(Interactivity::Headless)).unwrap();
    assert_eq!(task.history(), machine.task.history());
    let mut resumed = Machine {
        task,
        records,
        open: Vec::new(),
    };
    resumed.step(TaskInput::Begin);
    turn(&mut resumed, &call("look", "a"), "same");
    assert_eq!(resumed.ended(), None);
}
