//! Messages of the user while the task works: where they are placed, what they interrupt, and that they approve nothing.

use sabir_agent::{
    DeliveryTime, Interactivity, Record, Task, TaskEffect, TaskInput, TaskOutcome, TaskSettings,
    UserQuestion, UserReply,
};
use sabir_call::{MessagePart, Role};
use sabir_policy::PolicyRules;

use crate::machine::{Machine, settings};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";
const TOUCH: &str = "<touch>\n<path>a</path>\n</touch>\n";
const DONE: &str = "<attempt_completion>\n<result>It is done.</result>\n</attempt_completion>";

/// Returns the history in a short form: a letter for the role, then the parts.
fn short_history(machine: &Machine) -> Vec<String> {
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
    assert_eq!(short_history(machine), expected);
    machine.check_history();
    if let Ok(again) = Task::replay(
        machine.records.clone(),
        settings(Interactivity::Interactive),
    ) {
        assert_eq!(again.history(), machine.task.history(), "replay");
    }
}

fn queued_message(text: &str) -> TaskInput<'static> {
    TaskInput::queued(text.to_owned())
}

fn interrupting_message(text: &str) -> TaskInput<'static> {
    TaskInput::interrupting(text.to_owned())
}

fn settings_that_ask(attended: Interactivity) -> TaskSettings {
    TaskSettings {
        rules: PolicyRules::default(),
        ..settings(attended)
    }
}

#[test]
fn messages_are_placed_after_the_answer_in_progress() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let sent = machine.task.model_request().messages;
    machine.step(queued_message("one"));
    assert!(
        matches!(
            machine.records.last(),
            Some(Record::Said {
                when: DeliveryTime::Later,
                ..
            })
        ),
        "kept at once"
    );
    machine.stream("Hm. ");
    machine.step(queued_message("two"));
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
    machine.step(queued_message("three"));
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
fn messages_are_placed_after_call_results() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(queued_message("early"));
    machine.answer(LOOK);
    machine.step(queued_message("late"));
    check(&machine, &["u: Do it."]);
    machine.work(false);
    check(
        &machine,
        &["u: Do it.", "a: look()", "u: =done | early | late"],
    );
}

#[test]
fn a_message_approves_nothing() {
    let mut machine = Machine::new(settings_that_ask(Interactivity::Interactive));
    machine.answer(TOUCH);
    let Some(TaskEffect::AssessCall(call)) = machine.open.pop() else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(call, access, Default::default()));
    for words in ["y", "yes", "go ahead"] {
        machine.step(queued_message(words));
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
fn a_message_answers_the_question_for_the_next_step() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.answer("What now?");
    assert!(matches!(
        machine.open.as_slice(),
        [TaskEffect::AskUser(UserQuestion::Next { .. })]
    ));
    machine.step(queued_message("Look."));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.step(TaskInput::UserReplied(UserReply::Text("too late".into())));
    check(&machine, &["u: Do it.", "a: What now?", "u: Look."]);
}

#[test]
fn an_unread_message_rejects_a_completion() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(queued_message("And the tests?"));
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
fn messages_survive_a_lost_answer() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(queued_message("one"));
    machine.stream("Hm");
    machine.break_off();
    check(&machine, &["u: Do it. | one"]);
    machine.step(queued_message("two"));
    let records = machine.records.clone();
    // Killed here: the messages were sent during an answer that is lost.
    let task = Task::replay(records.clone(), settings(Interactivity::Headless)).unwrap();
    let mut resumed = Machine {
        task,
        records,
        open: Vec::new(),
    };
    resumed.step(queued_message("three"));
    check(&resumed, &["u: Do it. | one | two | three"]);
    machine.step(TaskInput::Cancel);
    check(&machine, &["u: Do it. | one | two"]);
}

#[test]
fn an_interrupting_message_discards_the_answer_in_progress() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(queued_message("queued"));
    machine.stream(TOUCH);
    machine.step(interrupting_message("Stop, look first."));
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
fn an_interrupting_message_rejects_calls_that_have_not_begun() {
    let mut machine = Machine::new(settings_that_ask(Interactivity::Interactive));
    machine.answer(&format!("{LOOK}{TOUCH}"));
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(call, access, Default::default()));
    machine.step(interrupting_message("No."));
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
fn an_interrupting_message_withdraws_questions() {
    for (answer, result) in [
        (TOUCH, "touch rejected"),
        (DONE, "attempt_completion rejected"),
        (
            "<ask_followup_question>\n<question>q</question>\n</ask_followup_question>",
            "ask_followup_question rejected",
        ),
    ] {
        let mut machine = Machine::new(settings_that_ask(Interactivity::Interactive));
        machine.answer(answer);
        machine.work(false);
        machine.step(interrupting_message("yes"));
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
fn a_controlled_task_takes_answers_but_no_conversation() {
    let mut machine = Machine::new(settings_that_ask(Interactivity::Controlled));
    machine.answer(TOUCH);
    machine.work(false);
    machine.reply(UserReply::Yes);
    machine.work(false);
    assert_eq!(machine.results(), ["touch done"]);
    machine.answer("All is well.");
    assert_eq!(machine.open, [TaskEffect::RequestModel], "a reminder");
    machine.answer(DONE);
    assert_eq!(machine.ended(), None, "a program reviews completions");
    machine.reply(UserReply::Yes);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn open_questions_are_denied_when_the_user_leaves() {
    let mut machine = Machine::new(settings_that_ask(Interactivity::Controlled));
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
    let mut machine = Machine::new(settings_that_ask(Interactivity::Interactive));
    machine.answer(DONE);
    machine.step(TaskInput::UserLeft);
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::Completed),
        "as if nobody had been there from the beginning"
    );
}

#[test]
fn blank_messages_are_ignored() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let before = machine.records.len();
    machine.step(queued_message(" \n"));
    machine.step(interrupting_message(""));
    assert_eq!(
        (machine.records.len(), &machine.open[..]),
        (before, &[TaskEffect::RequestModel][..])
    );
}

/// F-STR-51: an input after any byte of an answer, or at any step of its calls, leaves a valid history.
#[test]
fn the_user_may_speak_or_cancel_at_every_moment() {
    let text = format!("Words.\n{LOOK}{LOOK}{TOUCH}{DONE}");
    let inputs: [fn() -> TaskInput<'static>; 4] = [
        || queued_message("x"),
        || interrupting_message("x"),
        || TaskInput::Cancel,
        || TaskInput::UserLeft,
    ];
    for input in inputs {
        for at in 0..=text.len() {
            let mut machine = Machine::new(settings_that_ask(Interactivity::Controlled));
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
fn a_stuck_task_ends_when_the_user_leaves() {
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
