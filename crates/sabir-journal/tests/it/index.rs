//! Tests the list of tasks.

use sabir_agent::{RecordStore, TaskId, TaskOutcome};
use sabir_call::ToolProtocol;
use sabir_journal::{Journal, TaskSummary, count_records, list_journals, list_task_ids};

use crate::{Place, said, started};

fn put(place: &Place, id: &str, at: u64, records: &[sabir_agent::Record]) {
    let mut journal = Journal::create(place.path(), &TaskId::new(id), move || at).unwrap();
    records
        .iter()
        .for_each(|record| journal.append(record).unwrap());
}

#[track_caller]
fn check(place: &Place, expected: &[&str]) {
    let listed = list_journals(place.path()).unwrap();
    let words = listed.iter().map(|listed| match &listed.summary {
        Ok(TaskSummary {
            prompt,
            started_at,
            ended,
            ..
        }) => {
            let records = count_records(place.path(), &listed.id).unwrap();
            format!(
                "{}: {prompt} at {started_at}, {ended:?}, {records}",
                listed.id
            )
        }
        Err(error) => format!(
            "{}: {}",
            listed.id,
            error.to_string().split_once("\" ").unwrap().1
        ),
    });
    assert_eq!(words.collect::<Vec<_>>(), expected);
}

#[test]
fn the_tasks_of_a_folder_are_listed() {
    let place = Place::new();
    assert!(
        list_journals(&place.path().join("none"))
            .unwrap()
            .is_empty()
    );
    check(&place, &[]);
    let ended = sabir_agent::Record::Ended {
        outcome: TaskOutcome::Completed,
        message: String::new(),
        used: None,
    };
    put(
        &place,
        "old",
        5,
        &[
            started("old", "first"),
            said("x".repeat(20_000)),
            ended.clone(),
        ],
    );
    put(
        &place,
        "new",
        9,
        &[started("new", "second"), ended, said("more")],
    );
    put(&place, "one", 7, &[started("one", "third")]);
    put(&place, "bare", 8, &[]);
    std::fs::write(place.path().join("alien.journal"), "hello").unwrap();
    std::fs::write(place.path().join("late.journal"), "sabir journal 9\n").unwrap();
    std::fs::write(place.path().join("old.journal.damaged"), "x").unwrap();
    std::fs::write(place.path().join("no task.journal"), "x").unwrap();
    check(
        &place,
        &[
            "new: second at 9, None, 3",
            "one: third at 7, None, 1",
            "old: first at 5, Some(Completed), 3",
            "alien: is not a journal of Sabir, or its first line is damaged; it was left as it is",
            "bare: holds no task: it ends before its first record; it can be removed",
            "late: was written by a newer Sabir (format 9); use that one, the file was left as it is",
        ],
    );
    let ids: Vec<_> = list_task_ids(place.path())
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(ids, ["alien", "bare", "late", "new", "old", "one"]);
    let listed = list_journals(place.path()).unwrap();
    assert_eq!(
        listed[2].summary.as_ref().unwrap(),
        &TaskSummary {
            id: TaskId::new("old"),
            prompt: "first".to_owned(),
            model: "maker/model".to_owned(),
            protocol: ToolProtocol::Prompted("cline".to_owned()),
            workspace: "/home/ada/app".to_owned(),
            started_at: 5,
            last_at: 5,
            ended: Some(TaskOutcome::Completed),
            from: None,
        }
    );
}

#[test]
fn torn_and_damaged_ends_are_listed() {
    let ended = sabir_agent::Record::Ended {
        outcome: TaskOutcome::Denied,
        message: "no".to_owned(),
        used: None,
    };
    let place = Place::new();
    put(
        &place,
        "task-1",
        5,
        &[started("task-1", "do"), said("x"), ended],
    );
    let (mut bytes, ends) = place.frames();
    for cut in ends[2]..bytes.len() {
        std::fs::write(place.file(), &bytes[..cut]).unwrap();
        check(&place, &["task-1: do at 5, None, 2"]);
    }
    bytes[ends[2] + 20] ^= 1;
    std::fs::write(place.file(), &bytes).unwrap();
    check(&place, &["task-1: do at 5, None, 3"]);
    for cut in 16..=ends[1] - 1 {
        std::fs::write(place.file(), &bytes[..cut]).unwrap();
        check(
            &place,
            &["task-1: holds no task: it ends before its first record; it can be removed"],
        );
    }
}

#[test]
fn a_last_record_of_any_size_is_found() {
    let ended = |words: &str| sabir_agent::Record::Ended {
        outcome: TaskOutcome::Limit,
        message: words.to_owned(),
        used: None,
    };
    // A payload that looks like the head and the beginning of a frame is not taken for one.
    for words in ["", "{\"at\":1}", &"x".repeat(16_000), &"é".repeat(40_000)] {
        let place = Place::new();
        put(
            &place,
            "task-1",
            5,
            &[started("task-1", "do"), said("x"), ended(words)],
        );
        check(&place, &["task-1: do at 5, Some(Limit), 3"]);
    }
}
