//! What the user shows, and compactions that he asks for, at any moment.

use sabir_agent::{
    CompactionTiming, Interactivity, Preconditions, Record, Task, TaskEffect, TaskInput,
    ToolOutput, UserMessage, UserReply,
};
use sabir_call::{Event, Image, Message, MessagePart, Role};
use sabir_policy::Access;

use crate::machine::{Machine, settings};

const SUMMARY: &str =
    "The files a, b and c were looked at, and nothing was changed; there is nothing else to say.";

fn picture(data: &str) -> Image {
    Image {
        media_type: "image/png".to_owned(),
        data: data.to_owned(),
    }
}

fn showed(text: &str, data: &str, at_once: bool) -> TaskInput<'static> {
    let message = UserMessage {
        text: text.to_owned(),
        images: vec![picture(data)],
    };
    if at_once {
        TaskInput::interrupting(message)
    } else {
        TaskInput::queued(message)
    }
}

/// The pictures and the user's words that a request shows, in order.
fn seen(task: &Task) -> Vec<String> {
    let messages = task.model_request().messages;
    let parts = messages
        .iter()
        .filter(|message| message.role == Role::User)
        .flat_map(|message| &message.parts);
    let seen = parts.filter_map(|part| match part {
        MessagePart::Image(image) => Some(format!("<{}>", image.data)),
        MessagePart::Text { text } => Some(text.clone()),
        _ => None,
    });
    seen.collect()
}

fn replayed(machine: &Machine) -> Task {
    Task::replay(
        machine.records.to_vec(),
        settings(Interactivity::Interactive),
    )
    .unwrap()
}

fn look(machine: &mut Machine, path: &str) {
    machine.answer(&format!("<look><path>{path}</path></look>"));
    work(machine);
}

/// Results that are long enough to be worth a compaction.
fn work(machine: &mut Machine) {
    while let Some(at) = machine
        .open
        .iter()
        .position(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)))
    {
        match machine.open.remove(at) {
            TaskEffect::AssessCall(call) => machine.step(TaskInput::CallAssessed(
                call,
                Access::Nothing,
                Preconditions::default(),
            )),
            TaskEffect::RunCall(permit) => {
                let said = format!("{} says much. ", permit.call).repeat(200);
                machine.step(TaskInput::ToolFinished(permit.call, ToolOutput::done(said)));
            }
            _ => unreachable!(),
        }
    }
}

fn summarise(machine: &mut Machine) {
    assert!(machine.task.is_summarising());
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.open.clear();
    machine.step(TaskInput::ModelEvent(Event::Text { text: SUMMARY }));
    machine.step(TaskInput::ModelFinished);
}

#[test]
fn pictures_come_before_their_words_and_behind_what_was_seen() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.step(showed("later", "A", false));
    assert_eq!(
        seen(&machine.task),
        ["Do it."],
        "an answer is being written"
    );
    machine.answer("<look><path>a</path></look>");
    machine.step(showed("", "B", false));
    machine.work(false);
    assert_eq!(seen(&machine.task), ["Do it.", "<A>", "later", "<B>"]);
    machine.stream("half of");
    machine.step(showed("now", "C", true));
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "asked again at once"
    );
    assert_eq!(seen(&machine.task)[4..], ["<C>", "now"]);
    machine.check_history();
    assert_eq!(
        replayed(&machine).model_request().messages,
        machine.task.model_request().messages
    );
    // Nothing is nothing.
    machine.step(TaskInput::interrupting(" "));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn pictures_go_with_what_begins_or_goes_on() {
    let start = crate::machine::start();
    let (task, first) = Task::new(start, settings(Interactivity::Headless));
    let mut machine = Machine {
        task: task.with_images(vec![picture("A")]),
        records: vec![first],
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    assert_eq!(seen(&machine.task), ["Do it.", "<A>"]);
    look(&mut machine, "a");
    machine.step(TaskInput::Cancel);
    machine.task = replayed(&machine).with_images(vec![picture("B")]);
    machine.open.clear();
    machine.step(TaskInput::queued("Go on."));
    assert_eq!(seen(&machine.task), ["Do it.", "<A>", "<B>", "Go on."]);
    machine.check_history();
}

#[test]
fn a_record_without_pictures_is_as_it_was() {
    let old = r#"{"kind":"said","by":"user","text":"x"}"#;
    let record: Record = serde_json::from_str(old).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), old);
}

/// A user's turn after some work.
fn resting() -> Machine {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    for path in ["a", "b", "c"] {
        look(&mut machine, path);
    }
    machine.answer("What now?");
    assert!(matches!(machine.open.as_slice(), [TaskEffect::AskUser(_)]));
    machine
}

#[test]
fn a_compaction_in_the_users_turn_leaves_it_his_turn() {
    let mut machine = resting();
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Now);
    let question = std::mem::take(&mut machine.open);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    summarise(&mut machine);
    assert!(
        machine.open.is_empty(),
        "the question stands, and nothing else is asked"
    );
    assert!(
        seen(&machine.task)
            .iter()
            .any(|text| text.contains(SUMMARY))
    );
    machine.open = question;
    machine.open.clear();
    machine.step(TaskInput::UserReplied(UserReply::Text("Go on.".to_owned())));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
    assert_eq!(
        replayed(&machine).model_request().messages,
        machine.task.model_request().messages
    );
}

#[test]
fn words_during_such_a_compaction_are_what_is_gone_on_with() {
    for at_once in [false, true] {
        let mut machine = resting();
        machine.open.clear();
        machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
        let words = "Mind the gap.".to_owned();
        machine.step(if at_once {
            TaskInput::interrupting(words)
        } else {
            TaskInput::queued(words)
        });
        if !at_once {
            summarise(&mut machine);
        }
        assert_eq!(machine.open, [TaskEffect::RequestModel]);
        assert!(!machine.task.is_summarising());
        assert_eq!(
            seen(&machine.task).last().map(String::as_str),
            Some("Mind the gap.")
        );
        machine.check_history();
    }
}

#[test]
fn a_compaction_that_must_wait_comes_before_the_next_turn() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Nothing);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "there is nothing to leave out"
    );
    for path in ["a", "b", "c"] {
        look(&mut machine, path);
    }
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Later);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    machine.answer("<look><path>d</path></look>");
    assert!(!machine.task.is_summarising());
    work(&mut machine);
    summarise(&mut machine);
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    assert!(!machine.task.is_summarising(), "once");
    machine.answer("<look><path>e</path></look>");
    work(&mut machine);
    assert!(!machine.task.is_summarising());
    let calls = machine
        .task
        .history()
        .iter()
        .flat_map(Message::calls)
        .count();
    assert_eq!(calls, 5, "the history is whole");
    machine.check_history();
}
