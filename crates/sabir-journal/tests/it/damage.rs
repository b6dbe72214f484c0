//! Flips bits of journals and resumes the tasks with tools that count their runs: no call runs twice, and every loss is reported.

use std::collections::BTreeMap;
use std::path::Path;

use sabir_agent::{
    Interactivity, Preconditions, Record, RecordStore, Task, TaskEffect, TaskInput, TaskSettings,
    TaskStart, ToolOutput, control,
};
use sabir_call::dialect::{CLINE, DialectSet};
use sabir_call::{Event, EventSink, MessagePart, PromptedSink, ToolProtocol, ToolSet, ToolSpec};
use sabir_journal::{Journal, JournalEntry, JournalError, RecoveryReport};
use sabir_policy::Access;
use serde_json::json;
use tempfile::TempDir;

use crate::{Place, clock, records_of, started};

/// The number of times that each effect happened, by the argument of its call.
type Effects = BTreeMap<String, u32>;

/// The turns of the scripted model before it completes: two commands after each other, then two at once.
const TURNS: [&[&str]; 3] = [&["1"], &["2"], &["3", "4"]];

fn tools() -> ToolSet {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}});
    let mut specs = vec![ToolSpec::new("count", "", schema)];
    specs.extend(control::control_specs());
    ToolSet::new(specs).unwrap()
}

fn settings() -> TaskSettings {
    TaskSettings {
        tools: tools(),
        interactivity: Interactivity::Headless,
        ..TaskSettings::new("m")
    }
}

/// Writes the model's next answer from the history: a model that is informed of lost records does not repeat anything.
fn next_answer(task: &Task) -> String {
    let parts: Vec<_> = task
        .history()
        .iter()
        .flat_map(|message| &message.parts)
        .collect();
    let results = parts
        .iter()
        .filter(|part| matches!(part, MessagePart::Result(_)))
        .count();
    let is_warned = parts.iter().any(
        |part| matches!(part, MessagePart::Text { text } if text.contains("what followed this point is lost")),
    );
    let turn = TURNS.get(results).filter(|_| !is_warned);
    turn.map_or_else(
        || "<attempt_completion><result>done</result></attempt_completion>".to_owned(),
        |calls| {
            let calls = calls.iter().map(|n| format!("<count><n>{n}</n></count>"));
            calls.collect()
        },
    )
}

/// Runs a task until it ends, or as if it were killed after this number of further records.
fn drive(task: &mut Task, journal: &mut Journal, effects: &mut Effects, mut records: usize) {
    let mut open = task.step(TaskInput::Begin);
    while !open.is_empty() {
        let effect = open.remove(0);
        let more = match effect {
            TaskEffect::PersistRecord(record) => {
                if records == 0 {
                    return;
                }
                records -= 1;
                journal.append(&record).unwrap();
                Vec::new()
            }
            TaskEffect::RequestModel => {
                let answer = next_answer(task);
                let mut reader = PromptedSink::new(
                    DialectSet::built_in().all(),
                    &tools(),
                    |event: Event<'_>| assert!(task.step(TaskInput::ModelEvent(event)).is_empty()),
                );
                reader.push_event(Event::Text { text: &answer });
                let _ = reader.finish(sabir_call::Truncation::Ended);
                task.step(TaskInput::ModelFinished)
            }
            TaskEffect::AssessCall(call) => {
                let bound = Preconditions::default();
                task.step(TaskInput::CallAssessed(call, Access::Nothing, bound))
            }
            TaskEffect::RunCall(permit) => {
                let call = task.open_call(&permit.call).unwrap();
                let n = call.arguments["n"].as_str().unwrap().to_owned();
                *effects.entry(n).or_default() += 1;
                task.step(TaskInput::ToolFinished(permit.call, ToolOutput::done("ok")))
            }
            _ => Vec::new(),
        };
        open.extend(more);
    }
}

/// A stored task: its journal, the records in it, and the effects that it had.
struct StoredTask {
    bytes: Vec<u8>,
    records: Vec<Record>,
    effects: Effects,
}

/// Runs a task that is killed after this number of records.
fn store_task(records: usize) -> StoredTask {
    let place = Place::new();
    let mut journal = place.create().unwrap();
    let Record::Started(start) = started("task-1", "count") else {
        unreachable!()
    };
    let start = TaskStart {
        protocol: ToolProtocol::Prompted(CLINE.to_owned()),
        ..start
    };
    let (mut task, first) = Task::new(start, settings());
    journal.append(&first).unwrap();
    let mut effects = Effects::new();
    drive(&mut task, &mut journal, &mut effects, records - 1);
    drop(journal);
    let (entries, recovery) = sabir_journal::read_journal(place.path(), &place.task).unwrap();
    assert!(recovery.is_clean());
    StoredTask {
        bytes: std::fs::read(place.file()).unwrap(),
        records: records_of(entries),
        effects,
    }
}

/// Converts a journal to the version without links.
fn without_links(bytes: &[u8]) -> Vec<u8> {
    let mut old = b"sabir journal 1\n".to_vec();
    let mut rest = &bytes[16..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        let payload = &rest[crate::HEAD_BYTES..crate::HEAD_BYTES + length];
        old.extend_from_slice(&rest[..4]);
        let checksum = crc32fast::hash(&[&rest[..4], payload].concat());
        old.extend_from_slice(&checksum.to_le_bytes());
        old.extend_from_slice(payload);
        rest = &rest[crate::HEAD_BYTES + length..];
    }
    old
}

/// The outcomes of resuming damaged journals.
#[derive(Debug, Default)]
struct Figures {
    flips: usize,
    refused: usize,
    marked: usize,
}

/// Opens a journal. A program that another test starts holds all open files, with their locks, from its fork until it runs.
fn open_when_free(
    folder: &Path,
    task: &sabir_agent::TaskId,
) -> Result<(Journal, Vec<JournalEntry>, RecoveryReport), JournalError> {
    loop {
        match Journal::open(folder, task, clock()) {
            Err(JournalError::Locked { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// Flips one bit, and resumes the task twice: killed before its first new record, and then to its end.
fn check_flip(stored: &StoredTask, folder: &Path, bit: usize, figures: &mut Figures) {
    let task = sabir_agent::TaskId::new("task-1");
    let file = folder.join("task-1.journal");
    let mut bytes = stored.bytes.clone();
    bytes[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(&file, &bytes).unwrap();
    figures.flips += 1;
    let mut effects = stored.effects.clone();
    // A process that finds the damage and dies at once must not leave a journal that looks intact.
    for records in [0, usize::MAX] {
        let (mut journal, entries, recovery) = match open_when_free(folder, &task) {
            Ok(opened) => opened,
            Err(error) => {
                assert!(
                    error.to_string().contains("was left as it is")
                        || error.to_string().contains("by a newer"),
                    "{error}"
                );
                assert_eq!(std::fs::read(&file).unwrap(), bytes, "bit {bit}");
                figures.refused += 1;
                return;
            }
        };
        let mut records_left = records_of(entries);
        if records == 0 {
            assert!(
                recovery.damaged_bytes > 0 && recovery.torn_bytes == 0,
                "bit {bit} is lost in silence: {recovery:?}"
            );
            assert!(matches!(records_left.pop(), Some(Record::Damaged { .. })));
            assert!(stored.records.starts_with(&records_left), "bit {bit}");
            figures.marked += 1;
            continue;
        }
        assert!(recovery.is_clean());
        let mut task = Task::replay_for_message(records_left, settings()).unwrap();
        drive(&mut task, &mut journal, &mut effects, records);
    }
    assert!(
        effects.values().all(|count| *count == 1),
        "bit {bit}: {effects:?}"
    );
    for saved in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_file(saved.unwrap().path()).unwrap();
    }
}

/// Returns a folder in memory, where a sync costs nothing.
fn fast_folder() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

/// Flips every `step`-th bit of three journals: of a task that was killed while commands ran, of a completed one, and
/// of the first one in the format without links.
fn flip_bits(step: usize) {
    // At the second of two calls: the first has its result, and the second is running.
    let killed = store_task(11);
    let completed = store_task(usize::MAX);
    assert!(
        matches!(killed.records.last(), Some(Record::Running { .. })),
        "{:?}",
        killed.records
    );
    assert!(matches!(
        completed.records.last(),
        Some(Record::Ended { .. })
    ));
    assert_eq!(completed.effects.len(), 4);
    let old = StoredTask {
        bytes: without_links(&killed.bytes),
        records: killed.records.clone(),
        effects: killed.effects.clone(),
    };
    for stored in [killed, completed, old] {
        let folder = fast_folder();
        let mut figures = Figures::default();
        for bit in (0..stored.bytes.len() * 8).step_by(step) {
            check_flip(&stored, folder.path(), bit, &mut figures);
        }
        assert_eq!(
            figures.flips,
            figures.refused + figures.marked,
            "{figures:?}"
        );
        assert!(figures.marked > figures.refused);
    }
}

#[test]
fn some_flipped_bits_never_repeat_a_call() {
    flip_bits(37);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn no_flipped_bit_ever_repeats_a_call() {
    flip_bits(1);
}
