//! Images from the user, and compactions that the user requests, at any time.

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

fn image_message(text: &str, data: &str, at_once: bool) -> TaskInput<'static> {
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

/// Returns the images and the user's texts in a request, in order.
fn shown_to_model(task: &Task) -> Vec<String> {
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

fn replay_task(machine: &Machine) -> Task {
    Task::replay(
        machine.records.to_vec(),
        settings(Interactivity::Interactive),
    )
    .unwrap()
}

fn read_path(machine: &mut Machine, path: &str) {
    machine.answer(&format!("<look><path>{path}</path></look>"));
    run_calls(machine);
}

/// Runs the open calls with results that are long enough to be worth a compaction.
fn run_calls(machine: &mut Machine) {
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
    assert!(machine.task.is_summarizing());
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.open.clear();
    machine.step(TaskInput::ModelEvent(Event::Text { text: SUMMARY }));
    machine.step(TaskInput::ModelFinished);
}

#[test]
fn images_precede_their_message_and_follow_the_history() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    machine.step(image_message("later", "A", false));
    assert_eq!(
        shown_to_model(&machine.task),
        ["Do it."],
        "an answer is being written"
    );
    machine.answer("<look><path>a</path></look>");
    machine.step(image_message("", "B", false));
    machine.work(false);
    assert_eq!(
        shown_to_model(&machine.task),
        ["Do it.", "<A>", "later", "<B>"]
    );
    machine.stream("half of");
    machine.step(image_message("now", "C", true));
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "asked again at once"
    );
    assert_eq!(shown_to_model(&machine.task)[4..], ["<C>", "now"]);
    machine.check_history();
    assert_eq!(
        replay_task(&machine).model_request().messages,
        machine.task.model_request().messages
    );
    // A blank message is ignored.
    machine.step(TaskInput::interrupting(" "));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
}

#[test]
fn images_can_begin_or_resume_a_task() {
    let start = crate::machine::start();
    let (task, first) = Task::new(start, settings(Interactivity::Headless));
    let mut machine = Machine {
        task: task.with_images(vec![picture("A")]),
        records: vec![first],
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    assert_eq!(shown_to_model(&machine.task), ["Do it.", "<A>"]);
    read_path(&mut machine, "a");
    machine.step(TaskInput::Cancel);
    machine.task = replay_task(&machine).with_images(vec![picture("B")]);
    machine.open.clear();
    machine.step(TaskInput::queued("Go on."));
    assert_eq!(
        shown_to_model(&machine.task),
        ["Do it.", "<A>", "<B>", "Go on."]
    );
    machine.check_history();
}

#[test]
fn a_record_without_images_round_trips() {
    let old = r#"{"kind":"said","by":"user","text":"x"}"#;
    let record: Record = serde_json::from_str(old).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), old);
}

/// Returns a task that waits for the user after some work.
fn waiting_task() -> Machine {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    for path in ["a", "b", "c"] {
        read_path(&mut machine, path);
    }
    machine.answer("What now?");
    assert!(matches!(machine.open.as_slice(), [TaskEffect::AskUser(_)]));
    machine
}

#[test]
fn a_compaction_while_waiting_for_the_user_keeps_the_question() {
    let mut machine = waiting_task();
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Now);
    let question = std::mem::take(&mut machine.open);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    summarise(&mut machine);
    assert!(
        machine.open.is_empty(),
        "the question stands, and nothing else is asked"
    );
    assert!(
        shown_to_model(&machine.task)
            .iter()
            .any(|text| text.contains(SUMMARY))
    );
    machine.open = question;
    machine.open.clear();
    machine.step(TaskInput::UserReplied(UserReply::Text("Go on.".into())));
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.check_history();
    assert_eq!(
        replay_task(&machine).model_request().messages,
        machine.task.model_request().messages
    );
}

#[test]
fn a_message_during_such_a_compaction_continues_the_task() {
    for at_once in [false, true] {
        let mut machine = waiting_task();
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
        assert!(!machine.task.is_summarizing());
        assert_eq!(
            shown_to_model(&machine.task).last().map(String::as_str),
            Some("Mind the gap.")
        );
        machine.check_history();
    }
}

#[test]
fn a_deferred_compaction_runs_before_the_next_turn() {
    let mut machine = Machine::new(settings(Interactivity::Interactive));
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Nothing);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    assert_eq!(
        machine.open,
        [TaskEffect::RequestModel],
        "there is nothing to leave out"
    );
    for path in ["a", "b", "c"] {
        read_path(&mut machine, path);
    }
    assert_eq!(machine.task.compaction_timing(), CompactionTiming::Later);
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    machine.step(TaskInput::Compact(sabir_agent::SummaryAuthor::Model));
    machine.answer("<look><path>d</path></look>");
    assert!(!machine.task.is_summarizing());
    run_calls(&mut machine);
    summarise(&mut machine);
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    assert!(!machine.task.is_summarizing(), "once");
    machine.answer("<look><path>e</path></look>");
    run_calls(&mut machine);
    assert!(!machine.task.is_summarizing());
    let calls = machine
        .task
        .history()
        .iter()
        .flat_map(Message::calls)
        .count();
    assert_eq!(calls, 5, "the history is whole");
    machine.check_history();
}
