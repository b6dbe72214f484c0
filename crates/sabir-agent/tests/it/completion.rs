//! The conditions for accepting a completion: todos, the check, and how often it may fail.

use sabir_agent::{
    CallArguments, CallPermit, Interactivity, OpenTodos, Preconditions, Record, Task, TaskEffect,
    TaskInput, TaskOutcome, TaskSettings, ToolOutput, UserQuestion, UserReply,
};
use sabir_call::{CallResult, ToolResultStatus};
use sabir_policy::Access;
use serde_json::json;

use crate::machine::{Machine, settings};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";
const DONE: &str = "<attempt_completion>\n<result>It is done.</result>\n</attempt_completion>";

fn list(todos: &str) -> String {
    format!("<update_todo_list>\n<todos>\n{todos}\n</todos>\n</update_todo_list>")
}

fn with_todos(attended: Interactivity) -> TaskSettings {
    let mut settings = settings(attended);
    settings.completion.open_todos = OpenTodos::Refused;
    settings
}

fn checked(attended: Interactivity) -> TaskSettings {
    let mut settings = settings(attended);
    // No approval is given: the user configured the check, so it needs none.
    settings.rules = sabir_policy::PolicyRules::default();
    let arguments = CallArguments::from_iter([("command".to_owned(), json!("make test"))]);
    settings.completion.check = Some(("run".to_owned(), arguments));
    settings
}

/// Runs the check with this output.
fn check(machine: &mut Machine, output: ToolOutput) {
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!("{:?}", machine.open)
    };
    let work = machine.task.effective_call(&call).unwrap().into_owned();
    assert_eq!(
        (work.name.as_str(), &work.arguments["command"]),
        ("run", &json!("make test"))
    );
    let mut bound = Preconditions::default();
    bound.insert("program make", "1");
    machine.step(TaskInput::CallAssessed(
        call.clone(),
        Access::Nothing,
        bound.clone(),
    ));
    assert!(
        matches!(machine.records.last(), Some(Record::Running { call: running, seal: Some(_) }) if *running == call)
    );
    let TaskEffect::RunCall(CallPermit {
        preconditions: held,
        read_only: false,
        ..
    }) = machine.open.remove(0)
    else {
        panic!()
    };
    assert_eq!(held, bound);
    machine.step(TaskInput::ToolFinished(call, output));
}

fn last_result(machine: &Machine) -> &CallResult {
    let mut records = machine.records.iter().rev();
    records
        .find_map(|record| {
            if let Record::Result(result) = record {
                Some(result)
            } else {
                None
            }
        })
        .unwrap()
}

#[test]
fn messages_during_the_check_are_read_before_the_completion() {
    for words in [
        TaskInput::queued as fn(&'static str) -> TaskInput<'static>,
        TaskInput::interrupting,
    ] {
        let mut machine = Machine::new(checked(Interactivity::Headless));
        machine.answer(DONE);
        let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
            panic!("{:?}", machine.open)
        };
        machine.step(TaskInput::CallAssessed(
            call.clone(),
            Access::Nothing,
            Preconditions::default(),
        ));
        machine.step(words("And the docs?"));
        machine.step(TaskInput::ToolFinished(
            call,
            ToolOutput::done("all is well"),
        ));
        assert_eq!(machine.ended(), None);
        assert_eq!(machine.results(), ["attempt_completion rejected"]);
        assert!(
            last_result(&machine)
                .content
                .contains("the user has said something"),
            "{:?}",
            last_result(&machine)
        );
        machine.open = vec![TaskEffect::RequestModel];
        machine.answer(DONE);
        check(&mut machine, ToolOutput::done("all is well"));
        assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
    }
}

#[test]
fn a_message_before_the_user_leaves_rejects_the_completion() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.answer(DONE);
    machine.step(TaskInput::queued("And the docs?"));
    machine.step(TaskInput::UserLeft);
    assert_eq!(machine.ended(), None);
    // The message answers the result that was shown.
    assert!(last_result(&machine).content.starts_with("Not completed"));
    machine.answer(DONE);
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
}

#[test]
fn open_todos_refuse_a_completion_where_configured() {
    let mut machine = Machine::new(with_todos(Interactivity::Headless));
    machine.answer(&list("[x] a\n[ ] b\n[-] c\n[ ] d\n[ ] e"));
    machine.answer(DONE);
    assert_eq!(
        last_result(&machine).content,
        "Not completed: 4 todos are not done: `b`, `c`, `d` and 1 more. Do them, or bring the list up to date with \
         update_todo_list, then complete."
    );
    machine.answer(&format!("{}{DONE}", list("[x] a\n[x] b")));
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::Completed),
        "a list that is brought up to date in the same message counts"
    );

    let mut machine = Machine::new(with_todos(Interactivity::Headless));
    machine.answer(DONE);
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::Completed),
        "no list, nothing left"
    );
    let mut machine = Machine::new(settings(Interactivity::Headless));
    machine.answer(&list("[ ] a"));
    machine.answer(DONE);
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::Completed),
        "not asked for"
    );
}

#[test]
fn a_check_that_fails_goes_back_to_the_model() {
    let mut machine = Machine::new(checked(Interactivity::Headless));
    machine.answer(DONE);
    assert_eq!(
        machine.ended(),
        None,
        "nothing is accepted before the check"
    );
    check(&mut machine, ToolOutput::failed("Exit code 2. Output:\nno"));
    assert_eq!(machine.results(), ["attempt_completion rejected"]);
    assert_eq!(
        last_result(&machine).content,
        "Not completed: the check `make test` did not succeed. Put that right, then complete again.\nExit code 2. Output:\nno"
    );
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.answer(DONE);
    check(&mut machine, ToolOutput::done("ok"));
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
    assert_eq!(machine.results().last().unwrap(), "attempt_completion done");
    machine.check_history();
}

#[test]
fn a_check_comes_before_the_user_is_asked() {
    let mut machine = Machine::new(checked(Interactivity::Interactive));
    machine.answer(DONE);
    check(&mut machine, ToolOutput::done("ok"));
    assert!(
        matches!(
            &machine.open[..],
            [TaskEffect::AskUser(UserQuestion::Completion { .. })]
        ),
        "{:?}",
        machine.open
    );
    machine.reply(UserReply::Text("The docs are missing.".into()));
    assert!(
        last_result(&machine)
            .content
            .contains("The docs are missing.")
    );
    machine.answer(DONE);
    check(&mut machine, ToolOutput::done("ok"));
    machine.reply(UserReply::Leave);
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
    assert_eq!(last_result(&machine).ending, ToolResultStatus::Interrupted);
    machine.check_history();
}

#[test]
fn no_check_runs_for_a_refused_completion() {
    let mut machine = Machine::new(TaskSettings {
        completion: checked(Interactivity::Headless).completion,
        ..with_todos(Interactivity::Headless)
    });
    machine.answer(&format!("<touch><colour>a</colour></touch>{DONE}"));
    assert_eq!(
        machine.results(),
        ["touch rejected", "attempt_completion rejected"]
    );
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn a_check_that_cannot_be_run_has_not_succeeded() {
    let mut machine = Machine::new(checked(Interactivity::Headless));
    machine.answer(DONE);
    let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
        panic!()
    };
    let access = Access::Invalid {
        reason: "there is no such tool".to_owned(),
    };
    machine.step(TaskInput::CallAssessed(
        call.clone(),
        access.clone(),
        Preconditions::default(),
    ));
    assert_eq!(machine.results(), ["attempt_completion rejected"]);
    machine.step(TaskInput::CallAssessed(
        call.clone(),
        access,
        Preconditions::default(),
    ));
    machine.step(TaskInput::ToolFinished(call, ToolOutput::done("late")));
    assert_eq!(
        (machine.results().len(), machine.ended()),
        (1, None),
        "what comes late changes nothing"
    );
}

#[test]
fn a_cancelled_or_crashed_check_interrupts_the_completion() {
    let running = || {
        let mut machine = Machine::new(checked(Interactivity::Headless));
        machine.answer(DONE);
        let TaskEffect::AssessCall(call) = machine.open.remove(0) else {
            panic!()
        };
        machine.step(TaskInput::CallAssessed(
            call,
            Access::Nothing,
            Preconditions::default(),
        ));
        machine
    };
    let mut machine = running();
    machine.step(TaskInput::Cancel);
    assert_eq!(
        (machine.ended(), machine.results()),
        (
            Some(TaskOutcome::Cancelled),
            vec!["attempt_completion interrupted".to_owned()]
        )
    );
    let mut machine = running();
    machine.step(TaskInput::TimeExpired);
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));

    let records = running().records;
    let task = Task::replay(records.clone(), checked(Interactivity::Headless)).unwrap();
    let mut machine = Machine {
        task,
        records,
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    assert_eq!(machine.results(), ["attempt_completion interrupted"]);
    assert!(
        last_result(&machine)
            .content
            .starts_with("Not completed: this was interrupted.")
    );
    machine.answer(DONE);
    check(&mut machine, ToolOutput::done("ok"));
    assert_eq!(machine.ended(), Some(TaskOutcome::Completed));
    machine.check_history();
}

#[test]
fn refusals_have_a_limit() {
    let refuse = |machine: &mut Machine| {
        machine.answer(DONE);
        check(machine, ToolOutput::failed("no"));
    };
    let mut machine = Machine::new(checked(Interactivity::Headless));
    for _ in 0..4 {
        refuse(&mut machine);
        // Successful calls between refusals do not reset their count.
        machine.answer(LOOK);
        machine.work(false);
    }
    refuse(&mut machine);
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));

    let mut machine = Machine::new(checked(Interactivity::Interactive));
    (0..5).for_each(|_| refuse(&mut machine));
    assert!(
        matches!(machine.question(), UserQuestion::Next { reason } if reason == "the completion was refused 5 times")
    );
    machine.step(TaskInput::UserReplied(UserReply::Text(
        "Try once more.".into(),
    )));
    refuse(&mut machine);
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "the user's words begin a new count"
    );
}

#[test]
fn an_invalid_completion_call_does_not_count_as_refused() {
    let mut machine = Machine::new(checked(Interactivity::Headless));
    for _ in 0..5 {
        machine.answer("<attempt_completion>\n<colour>x</colour>\n</attempt_completion>");
    }
    assert_eq!(
        machine.ended(),
        None,
        "it is a mistake, and there may be six of them"
    );
}

#[test]
fn an_interrupting_message_rejects_a_shown_completion() {
    let mut machine = Machine::new(checked(Interactivity::Interactive));
    machine.answer(DONE);
    check(&mut machine, ToolOutput::done("all is well"));
    assert!(
        matches!(
            machine.open.as_slice(),
            [TaskEffect::AskUser(UserQuestion::Completion { .. })]
        ),
        "{:?}",
        machine.open
    );
    machine.step(TaskInput::interrupting("And the docs?"));
    assert_eq!(machine.results(), ["attempt_completion rejected"]);
    assert_eq!(machine.open, [TaskEffect::RequestModel], "the task goes on");
}
