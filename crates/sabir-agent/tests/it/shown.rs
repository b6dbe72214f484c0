//! What the user shows, and compactions that he asks for, at any moment.

use sabir_agent::{Attended, Bound, Compaction, Effect, Input, Record, Reply, Task, ToolOutput, Words};
use sabir_call::{Event, Image, Message, Part, Role};
use sabir_policy::Access;

use crate::machine::{Machine, settings};

const SUMMARY: &str = "The files a, b and c were looked at, and nothing was changed; there is nothing else to say.";

fn picture(data: &str) -> Image {
    Image { media_type: "image/png".to_owned(), data: data.to_owned() }
}

fn showed(text: &str, data: &str, at_once: bool) -> Input<'static> {
    Input::Showed { words: Words { text: text.to_owned(), images: vec![picture(data)] }, at_once }
}

/// The pictures and the user's words that a request shows, in order.
fn seen(task: &Task) -> Vec<String> {
    let messages = task.request().messages;
    let parts = messages.iter().filter(|message| message.role == Role::User).flat_map(|message| &message.parts);
    let seen = parts.filter_map(|part| match part {
        Part::Image(image) => Some(format!("<{}>", image.data)),
        Part::Text { text } => Some(text.clone()),
        _ => None,
    });
    seen.collect()
}

fn replayed(machine: &Machine) -> Task {
    Task::replay(machine.records.to_vec(), settings(Attended::Yes)).unwrap()
}

fn look(machine: &mut Machine, path: &str) {
    machine.answer(&format!("<look><path>{path}</path></look>"));
    work(machine);
}

/// Results that are long enough to be worth a compaction.
fn work(machine: &mut Machine) {
    while let Some(at) = machine.open.iter().position(|effect| matches!(effect, Effect::Weigh(_) | Effect::Run(_))) {
        match machine.open.remove(at) {
            Effect::Weigh(call) => machine.step(Input::Weighed(call, Access::Nothing, Bound::default())),
            Effect::Run(permit) => {
                let said = format!("{} says much. ", permit.call).repeat(200);
                machine.step(Input::Ran(permit.call, ToolOutput::done(said)));
            }
            _ => unreachable!(),
        }
    }
}

fn summarise(machine: &mut Machine) {
    assert!(machine.task.is_summarising());
    assert_eq!(machine.open, [Effect::Ask]);
    machine.open.clear();
    machine.step(Input::Event(Event::Text { text: SUMMARY }));
    machine.step(Input::Answered);
}

#[test]
fn pictures_come_before_their_words_and_behind_what_was_seen() {
    let mut machine = Machine::new(settings(Attended::Yes));
    machine.step(showed("later", "A", false));
    assert_eq!(seen(&machine.task), ["Do it."], "an answer is being written");
    machine.answer("<look><path>a</path></look>");
    machine.step(showed("", "B", false));
    machine.work(false);
    assert_eq!(seen(&machine.task), ["Do it.", "<A>", "later", "<B>"]);
    machine.stream("half of");
    machine.step(showed("now", "C", true));
    assert_eq!(machine.open, [Effect::Ask], "asked again at once");
    assert_eq!(seen(&machine.task)[4..], ["<C>", "now"]);
    machine.check_history();
    assert_eq!(replayed(&machine).request().messages, machine.task.request().messages);
    // Nothing is nothing.
    machine.step(Input::Showed { words: " ".into(), at_once: true });
    assert_eq!(machine.open, [Effect::Ask]);
}

#[test]
fn pictures_go_with_what_begins_or_goes_on() {
    let start = crate::machine::start();
    let (task, first) = Task::new(start, settings(Attended::No));
    let mut machine = Machine { task: task.bringing(vec![picture("A")]), records: vec![first], open: Vec::new() };
    machine.step(Input::Begin);
    assert_eq!(seen(&machine.task), ["Do it.", "<A>"]);
    look(&mut machine, "a");
    machine.step(Input::Cancel);
    machine.task = replayed(&machine).bringing(vec![picture("B")]);
    machine.open.clear();
    machine.step(Input::Said("Go on.".to_owned()));
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
    let mut machine = Machine::new(settings(Attended::Yes));
    for path in ["a", "b", "c"] {
        look(&mut machine, path);
    }
    machine.answer("What now?");
    assert!(matches!(machine.open.as_slice(), [Effect::Question(_)]));
    machine
}

#[test]
fn a_compaction_in_the_users_turn_leaves_it_his_turn() {
    let mut machine = resting();
    assert_eq!(machine.task.compaction(), Compaction::Now);
    let question = std::mem::take(&mut machine.open);
    machine.step(Input::Compact(sabir_agent::Author::Model));
    summarise(&mut machine);
    assert!(machine.open.is_empty(), "the question stands, and nothing else is asked");
    assert!(seen(&machine.task).iter().any(|text| text.contains(SUMMARY)));
    machine.open = question;
    machine.open.clear();
    machine.step(Input::Replied(Reply::Words("Go on.".to_owned())));
    assert_eq!(machine.open, [Effect::Ask]);
    machine.check_history();
    assert_eq!(replayed(&machine).request().messages, machine.task.request().messages);
}

#[test]
fn words_during_such_a_compaction_are_what_is_gone_on_with() {
    for at_once in [false, true] {
        let mut machine = resting();
        machine.open.clear();
        machine.step(Input::Compact(sabir_agent::Author::Model));
        let words = "Mind the gap.".to_owned();
        machine.step(if at_once { Input::Steered(words) } else { Input::Said(words) });
        if !at_once {
            summarise(&mut machine);
        }
        assert_eq!(machine.open, [Effect::Ask]);
        assert!(!machine.task.is_summarising());
        assert_eq!(seen(&machine.task).last().map(String::as_str), Some("Mind the gap."));
        machine.check_history();
    }
}

#[test]
fn a_compaction_that_must_wait_comes_before_the_next_turn() {
    let mut machine = Machine::new(settings(Attended::Yes));
    assert_eq!(machine.task.compaction(), Compaction::Nothing);
    machine.step(Input::Compact(sabir_agent::Author::Model));
    assert_eq!(machine.open, [Effect::Ask], "there is nothing to leave out");
    for path in ["a", "b", "c"] {
        look(&mut machine, path);
    }
    assert_eq!(machine.task.compaction(), Compaction::Later);
    machine.step(Input::Compact(sabir_agent::Author::Model));
    machine.step(Input::Compact(sabir_agent::Author::Model));
    machine.answer("<look><path>d</path></look>");
    assert!(!machine.task.is_summarising());
    work(&mut machine);
    summarise(&mut machine);
    assert_eq!(machine.open, [Effect::Ask]);
    assert!(!machine.task.is_summarising(), "once");
    machine.answer("<look><path>e</path></look>");
    work(&mut machine);
    assert!(!machine.task.is_summarising());
    let calls = machine.task.history().iter().flat_map(Message::calls).count();
    assert_eq!(calls, 5, "the history is whole");
    machine.check_history();
}
