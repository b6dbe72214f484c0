//! Repeated reads: shortened once, shown in full when needed, and the same after a replay.

use proptest::prelude::*;
use sabir_agent::{
    CallPermit, Interactivity, Preconditions, Record, RequestContext, SummaryAuthor, Task,
    TaskEffect, TaskInput, TaskOutcome, ToolOutput,
};
use sabir_call::{CallResult, MessagePart};

use crate::machine::{Machine, settings};

const AGAIN: &str = "[Nothing new: ";

/// Returns a file with these line numbers, as a tool shows it; `mark` is in each line.
fn numbered_lines(mark: &str, range: std::ops::RangeInclusive<usize>) -> String {
    let lines =
        range.map(|number| format!("{number:>3} | {mark} and some words to make it long enough"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes a call with this output of its tool, and returns its result.
fn turn(machine: &mut Machine, call: &str, path: &str, said: &str) -> CallResult {
    machine.answer(&format!("<{call}>\n<path>{path}</path>\n</{call}>"));
    while let Some(at) = machine
        .open
        .iter()
        .position(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)))
    {
        match machine.open.remove(at) {
            TaskEffect::AssessCall(call) => {
                let access = machine.access(&call);
                machine.step(TaskInput::CallAssessed(
                    call,
                    access,
                    Preconditions::default(),
                ));
            }
            TaskEffect::RunCall(CallPermit { call, .. }) => {
                machine.step(TaskInput::ToolFinished(call, ToolOutput::done(said)))
            }
            _ => unreachable!(),
        }
    }
    let result = machine
        .records
        .iter()
        .rev()
        .find_map(|record| match record {
            Record::Result(result) => Some(result.clone()),
            _ => None,
        });
    result.unwrap()
}

fn is_shortened(result: &CallResult) -> bool {
    result.content.starts_with(AGAIN)
}

fn replay_task(machine: &Machine) -> Task {
    Task::replay(machine.records.to_vec(), settings(Interactivity::Headless)).unwrap()
}

#[test]
fn a_repeated_read_is_shortened_once_and_then_shown_in_full() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let file = numbered_lines("x", 1..=40);
    let before = turn(&mut machine, "look", "a", &file);
    assert_eq!(before.content, file);
    let sent = machine.task.model_request();
    let second = turn(&mut machine, "look", "a", &file);
    assert!(
        is_shortened(&second) && second.content.len() < 300,
        "{}",
        second.content
    );
    assert_eq!(
        machine.task.model_request().messages[..sent.messages.len()],
        sent.messages[..],
        "the prefix stays"
    );
    assert_eq!(
        turn(&mut machine, "look", "a", &file).content,
        file,
        "the same call once more insists"
    );
    assert!(is_shortened(&turn(&mut machine, "look", "a", &file)));
    // Another file with the same content is not a repetition.
    assert_eq!(turn(&mut machine, "look", "b", &file).content, file);
    assert!(turn(&mut machine, "look", "c", "short").content == "short");
    assert_eq!(
        turn(&mut machine, "look", "c", "short").content,
        "short",
        "nothing would be saved"
    );
}

#[test]
fn results_that_may_have_changed_are_shown_in_full() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let (old, new) = (numbered_lines("old", 1..=40), numbered_lines("new", 1..=40));
    turn(&mut machine, "look", "a", &old);
    assert_eq!(
        turn(&mut machine, "look", "a", &new).content,
        new,
        "changed by somebody"
    );
    assert!(
        is_shortened(&turn(&mut machine, "look", "a", &old)),
        "both are seen"
    );
    turn(&mut machine, "touch", "a", "done");
    assert_eq!(
        turn(&mut machine, "look", "a", &new).content,
        new,
        "after a change of the task's own"
    );
    turn(&mut machine, "touch", "b", "done");
    assert!(
        is_shortened(&turn(&mut machine, "look", "a", &new)),
        "another file was changed"
    );
    let part = numbered_lines("new", 7..=39);
    assert!(!is_shortened(&turn(&mut machine, "look", "b", &new)));
    assert!(
        is_shortened(&turn(&mut machine, "look", "b", &part)),
        "some of what was seen"
    );
    turn(&mut machine, "look", "c", &part);
    assert_eq!(
        turn(&mut machine, "look", "c", &new).content,
        new,
        "more than was seen"
    );
    assert_eq!(turn(&mut machine, "touch", "d", &new).content, new);
    assert_eq!(
        turn(&mut machine, "touch", "d", &new).content,
        new,
        "only what reads is spared"
    );
}

#[test]
fn a_compaction_shows_repeated_reads_in_full_until_it_is_undone() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let file = numbered_lines("x", 1..=60);
    turn(&mut machine, "look", "a", &file);
    for name in ["b", "c", "d", "e"] {
        turn(&mut machine, "look", name, &numbered_lines(name, 1..=60));
    }
    machine.step(TaskInput::Cancel);
    machine.task = replay_task(&machine);
    machine.open.clear();
    machine.step(TaskInput::Compact(SummaryAuthor::Sabir));
    machine.step(TaskInput::Begin);
    assert_eq!(
        turn(&mut machine, "look", "a", &file).content,
        file,
        "what is not seen is shown"
    );
    assert!(is_shortened(&turn(&mut machine, "look", "a", &file)));
    machine.step(TaskInput::Cancel);
    machine.task = replay_task(&machine);
    machine.open.clear();
    machine.step(TaskInput::UndoCompaction);
    machine.step(TaskInput::Begin);
    assert!(is_shortened(&turn(
        &mut machine,
        "look",
        "b",
        &numbered_lines("b", 1..=60)
    )));
}

#[test]
fn shortened_results_count_as_repetitions_in_a_cycle() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    let file = numbered_lines("x", 1..=40);
    for _ in 0..9 {
        if machine.ended().is_some() {
            break;
        }
        turn(&mut machine, "look", "a", &file);
    }
    assert_eq!(machine.ended(), Some(TaskOutcome::Unfinished));
    let said = machine
        .records
        .iter()
        .filter(|record| matches!(record, Record::Result(_)));
    assert_eq!(said.count(), 6, "as if each had come in full");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(25), failure_persistence: None, ..ProptestConfig::default() })]

    /// The request shows the content that each file had when it was last read.
    #[test]
    fn the_request_always_holds_the_last_content_of_a_read_file(steps in proptest::collection::vec((0usize..6, 0usize..2), 1..40)) {
        let mut machine = Machine::new(settings(Interactivity::Headless));
        machine.task = machine.task.with_context(RequestContext::default());
        let mut versions = [0usize; 2];
        for (step, file) in steps {
            if machine.open != [TaskEffect::RequestModel] {
                break;
            }
            let (path, shown) = (["a", "b"][file], |version: usize| numbered_lines(&format!("v{version}"), 1..=40));
            match step {
                0 => versions[file] += 1,
                1 => {
                    versions[file] += 1;
                    turn(&mut machine, "touch", path, "done");
                }
                2 => {
                    machine.step(TaskInput::Cancel);
                    machine.task = replay_task(&machine);
                    machine.open.clear();
                    machine.step(if file == 0 { TaskInput::Compact(SummaryAuthor::Sabir) } else { TaskInput::UndoCompaction });
                    machine.step(TaskInput::Begin);
                }
                _ => {
                    let content = shown(versions[file]);
                    let result = turn(&mut machine, "look", path, &content);
                    let messages = machine.task.model_request().messages;
                    let results = messages.iter().flat_map(|message| &message.parts);
                    let seen = results.filter(|part| matches!(part, MessagePart::Result(result) if result.content == content));
                    prop_assert!(seen.count() > 0, "{}", result.content);
                }
            }
            machine.check_history();
            let replayed = replay_task(&machine);
            prop_assert_eq!(replayed.model_request().messages, machine.task.model_request().messages);
        }
    }
}
