//! Courses of whole tasks, one per test.

use sabir_agent::{
    Interactivity, MessageAuthor, Preconditions, Record, Task, TaskEffect, TaskInput, TaskOutcome,
    ToolOutput, UserQuestion, UserReply,
};
use sabir_call::{ArgumentEncoding, Event, MessagePart, ModelError, ModelErrorKind};

use crate::machine::{Machine, settings};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";
const TOUCH: &str = "<touch>\n<path>a</path>\n</touch>\n";
const DONE: &str = "<attempt_completion>\n<result>It is done.</result>\n</attempt_completion>";

#[test]
fn a_headless_task_completes() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("I look.\n{LOOK}"));
    machine.work(false);
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
    assert_eq!(machine.results(), ["look done", "attempt_completion done"]);
    machine.check_history();
}

#[test]
fn reads_run_together_and_writes_wait() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("{LOOK}{LOOK}{TOUCH}{LOOK}"));
    let weighed = machine
        .open
        .iter()
        .filter(|effect| matches!(effect, TaskEffect::AssessCall(_)))
        .count();
    assert_eq!(weighed, 2, "{:?}", machine.open);
    machine.work(false);
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
}

#[test]
fn repeated_or_missing_ids_are_replaced_by_unique_ones() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    // Gemini and Ollama: the same ids from turn to turn, none at all, or one twice.
    for ids in [
        [Some("0"), Some("1")],
        [Some("0"), Some("1")],
        [None, None],
        [Some("x"), Some("x")],
        [Some(""), None],
    ] {
        assert_eq!(machine.open, [TaskEffect::RequestModel]);
        machine.open.clear();
        for (index, id) in (0..).zip(ids) {
            let name = if index == 0 { "look" } else { "touch" };
            let events = [
                Event::CallStart {
                    index,
                    id,
                    name,
                    dialect: None,
                    at: 0,
                    name_at: 0,
                },
                Event::ArgStart {
                    index,
                    name: "path",
                    form: ArgumentEncoding::String,
                    at: 0,
                },
                Event::ArgDelta { index, text: "a" },
                Event::ArgEnd {
                    index,
                    lead: "",
                    at: 0,
                },
                Event::CallEnd { index, at: 0 },
            ];
            events
                .into_iter()
                .for_each(|event| machine.step(TaskInput::ModelEvent(event)));
        }
        machine.step(TaskInput::ModelFinished);
        machine.work(false);
    }
    machine.check_history();
    let history = machine.task.history();
    let ids: Vec<_> = history
        .iter()
        .flat_map(|message| message.calls())
        .map(|call| call.id.as_str())
        .collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!((ids.len(), unique.len()), (10, 10), "{ids:?}");
    assert_eq!(ids[..2], ["0", "1"], "what is new stays as it is");
}

#[test]
fn completion_is_refused_after_a_failure_in_the_same_message() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("{TOUCH}{DONE}"));
    machine.work(true);
    assert_eq!(
        machine.results(),
        ["touch failed", "attempt_completion rejected"]
    );
    assert_eq!(machine.ended(), None);
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn a_bad_call_is_answered_and_never_run() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer("<look>\n<colour>a</colour>\n</look>");
    machine.work(false);
    assert_eq!(machine.results(), ["look rejected"]);
    let feedback = machine.last_answer().checks[0].feedback_text();
    assert!(
        feedback.contains("path") && feedback.contains('^'),
        "{feedback}"
    );
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn repeated_mistakes_are_counted_across_a_resume() {
    let told = |machine: &Machine| {
        machine.last_answer().checks[0]
            .feedback_text()
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    let bad = |machine: &mut Machine| {
        machine.answer("<look>\n<colour>a</colour>\n</look>");
        machine.work(false);
    };
    let mut machine = Machine::new(settings(Interactivity::Headless));
    bad(&mut machine);
    assert_eq!(told(&machine), "Your call 1 (`look`) was not run.");
    bad(&mut machine);
    assert_eq!(
        told(&machine),
        "Your call 1 (`look`) was not run: the same mistake for the 2nd time."
    );
    let records = machine.records.clone();
    let mut resumed = Machine {
        task: Task::replay(records.clone(), settings(Interactivity::Headless)).unwrap(),
        records,
        open: Vec::new(),
    };
    resumed.step(TaskInput::Begin);
    for machine in [&mut machine, &mut resumed] {
        bad(machine);
        assert_eq!(
            told(machine),
            "Your call 1 (`look`) was not run: the same mistake for the 3rd time."
        );
        machine.answer(LOOK);
        machine.work(false);
        bad(machine);
        assert_eq!(told(machine), "Your call 1 (`look`) was not run.");
    }
}

#[test]
fn a_cut_call_is_never_run() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer("<touch>\n<path>a</path>");
    machine.work(false);
    assert_eq!(machine.results(), ["touch rejected"]);
}

#[test]
fn a_crash_between_answer_and_refusal_runs_nothing() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("<touch>\n<colour>a</colour>\n</touch>\n{LOOK}"));
    let cut = machine
        .records
        .iter()
        .position(|record| matches!(record, Record::Answered(_)))
        .unwrap();
    let mut task = Task::replay(
        machine.records[..=cut].to_vec(),
        settings(Interactivity::Headless),
    )
    .unwrap();
    let effects = task.step(TaskInput::Begin);
    assert!(
        matches!(&effects[0], TaskEffect::PersistRecord(Record::Result(result)) if result.name == "touch"),
        "{effects:?}"
    );
    assert!(matches!(&effects[1], TaskEffect::AssessCall(_)));
}

#[test]
fn approvals_are_denied_in_a_headless_task() {
    let mut strict = settings(Interactivity::Headless);
    strict.rules = sabir_policy::PolicyRules::default();
    let mut machine = Machine::new(strict);
    machine.answer(TOUCH);
    machine.work(false);
    assert_eq!(machine.results(), ["touch denied"]);
    for _ in 0..3 {
        machine.answer("I cannot go on.");
    }
    assert_eq!(machine.ended(), Some(TaskOutcome::Denied));
}

#[test]
fn a_user_approves_refuses_and_reviews() {
    let mut asking = settings(Interactivity::Interactive);
    asking.rules = sabir_policy::PolicyRules::default();
    let mut machine = Machine::new(asking);
    machine.answer(TOUCH);
    machine.work(false);
    machine.reply(UserReply::Text("looks fine to me, go ahead".into()));
    assert_eq!(machine.results(), ["touch denied"], "words never approve");
    machine.answer(TOUCH);
    machine.work(false);
    machine.reply(UserReply::Yes);
    machine.work(false);
    assert_eq!(machine.results().last().unwrap(), "touch done");
    machine.answer(DONE);
    machine.reply(UserReply::Text("The tests are missing.".into()));
    assert_eq!(machine.ended(), None);
    let MessagePart::Result(result) = &machine.task.history().last().unwrap().parts[0] else {
        panic!()
    };
    assert!(
        result
            .content
            .contains("<feedback>\nThe tests are missing.\n</feedback>")
    );
    machine.answer(DONE);
    machine.reply(UserReply::Yes);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
    machine.check_history();
}

#[test]
fn questions_reach_the_user_or_fail_in_a_headless_task() {
    let ask = "<ask_followup_question>\n<question>Which?</question>\n<follow_up>[\"a\", \"b\"]</follow_up>\n</ask_followup_question>";
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.answer(ask);
    let question = machine.question();
    assert!(
        matches!(&question, UserQuestion::Followup { options, .. } if options.len() == 2),
        "{question:?}"
    );
    machine.step(TaskInput::UserReplied(UserReply::Text("b".into())));
    assert_eq!(machine.results(), ["ask_followup_question done"]);
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(ask);
    assert_eq!(machine.results(), ["ask_followup_question failed"]);
}

#[test]
fn replies_without_a_call() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for _ in 0..2 {
        machine.answer("All is well.");
        assert!(matches!(
            machine.records.last(),
            Some(Record::Said {
                by: MessageAuthor::Sabir,
                ..
            })
        ));
    }
    machine.answer("All is well.");
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.answer("What shall I do?");
    machine.reply(UserReply::Text("Look.".into()));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
}

#[test]
fn six_failures_in_a_row_stop_the_task() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for _ in 0..6 {
        machine.answer(TOUCH);
        machine.work(true);
    }
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    for _ in 0..6 {
        machine.answer(TOUCH);
        machine.work(true);
    }
    assert!(matches!(machine.question(), UserQuestion::Next { reason } if reason.contains('6')));
}

#[test]
fn a_broken_answer_is_requested_again_and_runs_nothing() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for _ in 0..3 {
        machine.stream(TOUCH);
        machine.break_off();
        assert!(machine.results().is_empty());
    }
    machine.stream(TOUCH);
    machine.break_off();
    assert_eq!(machine.ended(), Some(TaskOutcome::ProviderFailed));
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.open.clear();
    machine.step(TaskInput::ModelFailed(ModelError {
        kind: ModelErrorKind::Broken,
        message: "before it began".to_owned(),
    }));
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::ProviderFailed),
        "the model has repeated that itself"
    );
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.open.clear();
    machine.step(TaskInput::ModelFailed(ModelError {
        kind: ModelErrorKind::Key,
        message: "no key".to_owned(),
    }));
    assert_eq!(machine.ended(), Some(TaskOutcome::Misconfigured));
}

#[test]
fn turn_and_time_limits_end_the_task() {
    let mut short = settings(Interactivity::Headless);
    short.limits.turns = Some(1);
    let mut machine = Machine::new(short);
    machine.answer(LOOK);
    machine.work(false);
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.step(TaskInput::TimeExpired);
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
}

#[test]
fn a_cancel_interrupts_running_calls_and_a_resume_continues_the_others() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("{TOUCH}{LOOK}"));
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(
        call.clone(),
        access,
        Preconditions::default(),
    ));
    machine.step(TaskInput::Cancel);
    assert_eq!(machine.ended(), Some(TaskOutcome::Cancelled));
    assert_eq!(machine.results(), ["touch interrupted"]);
    machine.step(TaskInput::ToolFinished(call, ToolOutput::done("late")));
    assert_eq!(
        machine.results(),
        ["touch interrupted"],
        "one result, whatever comes late"
    );

    let mut task = Task::replay(machine.records, settings(Interactivity::Headless)).unwrap();
    let effects = task.step(TaskInput::Begin);
    assert!(
        matches!(effects[..], [TaskEffect::AssessCall(_)]),
        "the call that had not begun goes on: {effects:?}"
    );
}

#[test]
fn interrupted_calls_are_not_run_again_after_a_crash() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(TOUCH);
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    let access = machine.access(&call);
    machine.step(TaskInput::CallAssessed(
        call,
        access,
        Preconditions::default(),
    ));
    assert!(matches!(
        machine.records.last(),
        Some(Record::Running { .. })
    ));
    let mut task = Task::replay(machine.records, settings(Interactivity::Headless)).unwrap();
    let effects = task.step(TaskInput::Begin);
    assert!(
        effects
            .iter()
            .all(|effect| !matches!(effect, TaskEffect::RunCall(_) | TaskEffect::AssessCall(_))),
        "{effects:?}"
    );
    assert!(effects.contains(&TaskEffect::RequestModel));
}

#[test]
fn a_completed_task_stays_completed() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(DONE);
    assert!(Task::replay(machine.records, settings(Interactivity::Headless)).is_err());
    assert!(Task::replay([], settings(Interactivity::Headless)).is_err());
}

#[test]
fn completion_waits_for_every_other_call_of_the_message() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("{DONE}\n{TOUCH}"));
    machine.work(false);
    assert_eq!(
        machine.results(),
        ["attempt_completion rejected", "touch done"]
    );
    assert_eq!(machine.ended(), None);
    machine.answer(&format!("{DONE}\n<touch>\n<path>half of"));
    machine.work(false);
    assert_eq!(machine.ended(), None, "a cut call behind it");
    machine.answer(&format!("{DONE}\n<look>words</look>"));
    machine.work(false);
    assert_eq!(machine.ended(), None, "a part that could not be read");
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn unreadable_calls_are_reported_beside_a_good_call() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&format!("<touch>words</touch>\n{LOOK}"));
    machine.work(false);
    assert_eq!(machine.results(), ["look done"]);
    let last = machine.task.history().last().unwrap();
    assert!(
        matches!(&last.parts[1], MessagePart::Text { text } if text.contains("touch")),
        "{last:?}"
    );
    machine.check_history();
}

#[test]
fn a_call_that_comes_twice_runs_once() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.open.clear();
    machine.stream(TOUCH);
    for event in [
        Event::CallStart {
            index: 1,
            id: Some("n"),
            name: "touch",
            dialect: None,
            at: 0,
            name_at: 0,
        },
        Event::ArgStart {
            index: 1,
            name: "path",
            form: ArgumentEncoding::String,
            at: 0,
        },
        Event::ArgDelta {
            index: 1,
            text: "a",
        },
        Event::ArgEnd {
            index: 1,
            lead: "",
            at: 0,
        },
        Event::CallEnd { index: 1, at: 0 },
    ] {
        machine.step(TaskInput::ModelEvent(event));
    }
    machine.step(TaskInput::ModelFinished);
    machine.work(false);
    assert_eq!(machine.results(), ["touch done", "touch rejected"]);
}

#[test]
fn one_good_call_among_bad_ones_is_no_progress() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    for _ in 0..6 {
        machine.answer(&format!("{LOOK}<look>\n<colour>a</colour>\n</look>"));
        machine.work(false);
    }
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
}

#[test]
fn a_call_that_is_refused_or_denied_skips_no_other() {
    let cut = "<touch>\n<path>half of";
    let bad = "<look>\n<colour>a</colour>\n</look>";
    let (other, todo) = (
        "<look>\n<path>b</path>\n</look>",
        "<update_todo_list>\n<todos>none</todos>\n</update_todo_list>",
    );
    let mut strict = settings(Interactivity::Headless);
    strict.rules = sabir_policy::PolicyRules::default();
    let mut machine = Machine::new(strict);
    machine.answer(&format!("{bad}\n{LOOK}\n{TOUCH}\n{todo}\n{other}\n{cut}"));
    machine.work(false);
    // Results are in the order in which they are known: rejected calls are never waited for.
    let mut results = machine.results();
    results.sort_unstable();
    assert_eq!(
        results,
        [
            "look done",
            "look done",
            "look rejected",
            "touch denied",
            "touch rejected",
            "update_todo_list failed"
        ]
    );
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
}

#[test]
fn a_call_with_invalid_access_never_runs() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(TOUCH);
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    machine.step(TaskInput::CallAssessed(
        call,
        sabir_policy::Access::Invalid {
            reason: "no such place".to_owned(),
        },
        Preconditions::default(),
    ));
    assert_eq!(machine.results(), ["touch failed"]);
}

#[test]
fn a_resumed_task_appends_a_new_message() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(TOUCH);
    let records = machine.records.clone();
    let mut resumed = Machine {
        task: Task::replay(records.clone(), settings(Interactivity::Headless)).unwrap(),
        records,
        open: Vec::new(),
    };
    resumed.step(TaskInput::queued("Mind the tests."));
    resumed.work(false);
    resumed.check_history();
    let parts = &resumed.task.history().last().unwrap().parts;
    assert!(
        matches!(&parts[..], [MessagePart::Result(_), MessagePart::Text { text }] if text == "Mind the tests."),
        "{parts:?}"
    );
    let again = Task::replay(resumed.records.clone(), settings(Interactivity::Headless)).unwrap();
    assert_eq!(again.history(), resumed.task.history());
}
