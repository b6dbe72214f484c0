//! What the user says while the task works: where it stands, what it gives up, and what it never does.

use sabir_agent::{
    Delivery, Interactivity, Record, Task, TaskEffect, TaskInput, TaskOutcome, TaskSettings,
    UserQuestion, UserReply,
};
use sabir_call::{MessagePart, Role};
use sabir_policy::PolicyRules;

use crate::machine::{Machine, settings};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";
const TOUCH: &str = "<touch>\n<path>a</path>\n</touch>\n";
const DONE: &str = "<attempt_completion>\n<result>It is done.</result>\n</attempt_completion>";

/// The history in short: a letter for the side, then the parts.
fn shape(machine: &Machine) -> Vec<String> {
    let part = |part: &MessagePart| match part {
        MessagePart::Text { text } => text.clone(),
        MessagePart::Call(call) => format!("{}()", call.name),
        MessagePart::Result(result) => format!("={:?}", result.ending).to_lowercase(),
        other => format!("{other:?}"),
    };
    let message = |message: &sabir_call::Message| {
        let side = if message.role == Role::User { "u" } else { "a" };
        format!(
            "{side}: {}",
            message
                .parts
                .iter()
                .map(part)
                .collect::<Vec<_>>()
                .join(" | ")
        )
    };
    machine.task.history().iter().map(message).collect()
}

fn check(machine: &Machine, expected: &[&str]) {
    assert_eq!(shape(machine), expected);
    machine.check_history();
    if let Ok(again) = Task::replay(
        machine.records.clone(),
        settings(Interactivity::Interactive),
    ) {
        assert_eq!(again.history(), machine.task.history(), "replay");
    }
}

fn said(text: &str) -> TaskInput<'static> {
    TaskInput::queued(text.to_owned())
}

fn steered(text: &str) -> TaskInput<'static> {
    TaskInput::interrupting(text.to_owned())
}

fn asking(attended: Interactivity) -> TaskSettings {
    TaskSettings {
        rules: PolicyRules::default(),
        ..settings(attended)
    }
}

#[test]
fn words_stand_behind_the_answer_that_is_being_written() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let sent = machine.task.model_request().messages;
    machine.step(said("one"));
    assert!(
        matches!(
            machine.records.last(),
            Some(Record::Said {
                when: Delivery::Later,
                ..
            })
        ),
        "kept at once"
    );
    machine.stream("Hm. ");
    machine.step(said("two"));
    assert_eq!(
        machine.task.model_request().messages,
        sent,
        "what was sent stays as it was"
    );
    machine.answer("All is well.");
    check(
        &machine,
        &["u: Do it.", "a: Hm. All is well.", "u: one | two"],
    );
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "they are answered, without a reminder"
    );
    machine.answer(LOOK);
    machine.step(said("three"));
    machine.work(false);
    check(
        &machine,
        &[
            "u: Do it.",
            "a: Hm. All is well.",
            "u: one | two",
            "a: look()",
            "u: =done | three",
        ],
    );
}

#[test]
fn words_stand_behind_the_results_of_calls() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(said("early"));
    machine.answer(LOOK);
    machine.step(said("late"));
    check(&machine, &["u: Do it."]);
    machine.work(false);
    check(
        &machine,
        &["u: Do it.", "a: look()", "u: =done | early | late"],
    );
}

#[test]
fn words_are_no_approval() {
    let mut machine = Machine::new(asking(Interactivity::Interactive));
    machine.answer(TOUCH);
    let Some(TaskEffect::AssessCall(call)) = machine.open.pop() else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(call, access, Default::default()));
    for words in ["y", "yes", "go ahead"] {
        machine.step(said(words));
    }
    assert!(
        matches!(machine.open.as_slice(), [TaskEffect::AskUser(_)]),
        "{:?}",
        machine.open
    );
    assert!(
        machine.results().is_empty()
            && !machine
                .records
                .iter()
                .any(|r| matches!(r, Record::Running { .. }))
    );
    machine.reply(UserReply::No(String::new()));
    check(
        &machine,
        &["u: Do it.", "a: touch()", "u: =denied | y | yes | go ahead"],
    );
}

#[test]
fn a_question_for_words_is_answered_by_them() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.answer("What now?");
    assert!(matches!(
        machine.open.as_slice(),
        [TaskEffect::AskUser(UserQuestion::Next { .. })]
    ));
    machine.step(said("Look."));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.step(TaskInput::UserReplied(UserReply::Text(
        "too late".to_owned(),
    )));
    check(&machine, &["u: Do it.", "a: What now?", "u: Look."]);
}

#[test]
fn nothing_is_completed_over_unread_words() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(said("And the tests?"));
    machine.answer(DONE);
    assert_eq!(machine.results(), ["attempt_completion rejected"]);
    check(
        &machine,
        &[
            "u: Do it.",
            "a: attempt_completion()",
            "u: =rejected | And the tests?",
        ],
    );
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn a_lost_answer_leaves_the_words() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(said("one"));
    machine.stream("Hm");
    machine.break_off();
    check(&machine, &["u: Do it. | one"]);
    machine.step(said("two"));
    let records = machine.records.clone();
    // Killed here: the words were said to an answer that nobody will see.
    let task = Task::replay(records.clone(), settings(Interactivity::Headless)).unwrap();
    let mut resumed = Machine {
        task,
        records,
        open: Vec::new(),
    };
    resumed.step(said("three"));
    check(&resumed, &["u: Do it. | one | two | three"]);
    machine.step(TaskInput::Cancel);
    check(&machine, &["u: Do it. | one | two"]);
}

#[test]
fn steering_gives_up_the_answer() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(said("queued"));
    machine.stream(TOUCH);
    machine.step(steered("Stop, look first."));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    assert!(
        machine
            .records
            .iter()
            .any(|record| matches!(record, Record::Failed(_))),
        "what it took is known"
    );
    check(&machine, &["u: Do it. | queued | Stop, look first."]);
    assert!(machine.results().is_empty());
}

#[test]
fn steering_gives_up_what_has_not_begun_and_waits_for_the_rest() {
    let mut machine = Machine::new(asking(Interactivity::Interactive));
    machine.answer(&format!("{LOOK}{TOUCH}"));
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(call, access, Default::default()));
    machine.step(steered("No."));
    assert!(
        matches!(machine.open.as_slice(), [TaskEffect::RunCall(_)]),
        "what runs goes on: {:?}",
        machine.open
    );
    machine.work(false);
    assert_eq!(machine.results(), ["touch rejected", "look done"]);
    check(
        &machine,
        &[
            "u: Do it.",
            "a: look() | touch()",
            "u: =done | =rejected | No.",
        ],
    );
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn steering_takes_questions_back() {
    for (answer, result) in [
        (TOUCH, "touch rejected"),
        (DONE, "attempt_completion rejected"),
        (
            "<ask_followup_question>\n<question>q</question>\n</ask_followup_question>",
            "ask_followup_question rejected",
        ),
    ] {
        let mut machine = Machine::new(asking(Interactivity::Interactive));
        machine.answer(answer);
        machine.work(false);
        machine.step(steered("yes"));
        assert_eq!(
            (machine.results(), &machine.open[..]),
            (vec![result.to_owned()], &[TaskEffect::RequestModel][..])
        );
        machine.step(TaskInput::UserReplied(UserReply::Yes));
        machine.check_history();
        assert!(
            !machine
                .records
                .iter()
                .any(|record| matches!(record, Record::Running { .. })),
            "no words approve"
        );
    }
}

#[test]
fn a_program_answers_and_holds_no_conversation() {
    let mut machine = Machine::new(asking(Interactivity::Controlled));
    machine.answer(TOUCH);
    machine.work(false);
    machine.reply(UserReply::Yes);
    machine.work(false);
    assert_eq!(machine.results(), ["touch done"]);
    machine.answer("All is well.");
    assert_eq!(machine.open, [TaskEffect::RequestModel], "a reminder");
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn whoever_leaves_denies_what_is_open() {
    let mut machine = Machine::new(asking(Interactivity::Controlled));
    machine.answer(&format!("{TOUCH}{TOUCH}"));
    machine.work(false);
    machine.step(TaskInput::UserLeft);
    machine.work(false);
    assert_eq!(machine.results(), ["touch denied", "touch denied"]);
    machine.step(TaskInput::UserReplied(UserReply::Yes));
    assert!(
        !machine
            .records
            .iter()
            .any(|record| matches!(record, Record::Running { .. }))
    );
    machine.check_history();
    let mut machine = Machine::new(asking(Interactivity::Interactive));
    machine.answer(DONE);
    machine.step(TaskInput::UserLeft);
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::Completed),
        "as if nobody had been there from the beginning"
    );
}

#[test]
fn blank_words_say_nothing() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let before = machine.records.len();
    machine.step(said(" \n"));
    machine.step(steered(""));
    assert_eq!(
        (machine.records.len(), &machine.open[..]),
        (before, &[TaskEffect::RequestModel][..])
    );
}

/// F-STR-51: after every byte of an answer, and at every step of its calls, the history stays whole.
#[test]
fn the_user_may_speak_or_cancel_at_every_moment() {
    let text = format!("Words.\n{LOOK}{LOOK}{TOUCH}{DONE}");
    let inputs: [fn() -> TaskInput<'static>; 4] = [
        || said("x"),
        || steered("x"),
        || TaskInput::Cancel,
        || TaskInput::UserLeft,
    ];
    for input in inputs {
        for at in 0..=text.len() {
            let mut machine = Machine::new(asking(Interactivity::Controlled));
            machine.stream(&text[..at]);
            machine.step(input());
            machine.check_history();
            if machine.ended().is_none() {
                machine.open.clear();
                machine.step(TaskInput::ModelFinished);
                machine.work(false);
                machine.check_history();
            }
        }
        for steps in 0..8 {
            let mut machine = Machine::new(settings(Interactivity::Headless));
            machine.answer(&text);
            for _ in 0..steps {
                let Some(at) = machine.open.iter().position(|open| {
                    matches!(open, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_))
                }) else {
                    break;
                };
                match machine.open.remove(at) {
                    TaskEffect::AssessCall(call) => {
                        let access = machine.access(&call);
                        machine.step(TaskInput::CallAssessed(call, access, Default::default()));
                    }
                    TaskEffect::RunCall(permit) => machine.step(TaskInput::ToolFinished(
                        permit.call,
                        sabir_agent::ToolOutput::done("x"),
                    )),
                    _ => unreachable!(),
                }
            }
            machine.step(input());
            machine.work(false);
            machine.check_history();
            let results = machine.results().len();
            assert!(results <= 4, "one result a call: {:?}", machine.results());
        }
    }
}

#[test]
fn who_leaves_a_task_that_is_stuck_does_not_set_it_going() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    while machine.open == [TaskEffect::RequestModel] {
        machine.answer(LOOK);
        machine.work(false);
    }
    assert!(
        matches!(
            machine.open.as_slice(),
            [TaskEffect::AskUser(UserQuestion::Next { .. })]
        ),
        "{:?}",
        machine.open
    );
    machine.step(TaskInput::UserLeft);
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
}
