//! Tests journals that are written as a whole, and journals that are followed.

use sabir_agent::{RecordStore, TaskId};
use sabir_journal::{JournalEntry, JournalError, JournalTail, read_journal, write_journal};

use crate::{Place, clock, records_of, said, started};

fn some() -> Vec<JournalEntry> {
    let records = [
        started("task-1", "do it"),
        said("é\u{1f600}\"\\\n"),
        said(""),
    ];
    (7..)
        .zip(records)
        .map(|(at, record)| JournalEntry { at, record })
        .collect()
}

#[test]
fn a_journal_written_at_once_can_be_read_and_continued() {
    let place = Place::new();
    assert_eq!(
        write_journal(place.path(), &place.task, &some()).unwrap(),
        place.file()
    );
    let (entries, recovery) = read_journal(place.path(), &place.task).unwrap();
    assert!(recovery.is_clean());
    assert_eq!(entries, some(), "with the times that they had");
    let (mut journal, _, _) = place.open().unwrap();
    journal.append(&said("more")).unwrap();
    drop(journal);
    assert_eq!(read_journal(place.path(), &place.task).unwrap().0.len(), 4);

    let error = write_journal(place.path(), &place.task, &[]).unwrap_err();
    assert!(matches!(error, JournalError::Exists { .. }), "{error:?}");
    let deep = (0..300).fold("1".to_owned(), |inner, _| format!("[{inner}]"));
    let deep = format!(
        r#"{{"at":1,"kind":"answered","turn":1,"parts":[{{"type":"opaque","wire":"w","data":{deep}}}],"checks":[],"usage":{{}}}}"#
    );
    let mut reader = serde_json::Deserializer::from_str(&deep);
    reader.disable_recursion_limit();
    let deep: JournalEntry = serde::Deserialize::deserialize(&mut reader).unwrap();
    let error = write_journal(place.path(), &TaskId::new("deep"), &[deep]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("record 1 cannot be written: the record nests values"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(place.path()).unwrap().count(),
        1,
        "nothing of it is left"
    );
}

#[test]
fn a_journal_can_be_followed_while_it_grows() {
    let place = Place::new();
    assert!(matches!(
        JournalTail::open(place.path(), &place.task),
        Err(JournalError::Missing { .. })
    ));
    let mut journal = place.create().unwrap();
    let mut tail = JournalTail::open(place.path(), &place.task).unwrap();
    assert!(tail.read_new_entries().unwrap().is_empty());
    for number in 0..3 {
        journal
            .append(&started("task-1", &format!("{number}")))
            .unwrap();
        journal.append(&said("x")).unwrap();
        assert_eq!(
            records_of(tail.read_new_entries().unwrap()),
            [started("task-1", &format!("{number}")), said("x")]
        );
        assert!(tail.read_new_entries().unwrap().is_empty());
    }
    // An incomplete record is not returned yet.
    let (bytes, ends) = place.frames();
    let half = Place::new();
    std::fs::write(half.file(), &bytes[..ends[1] - 1]).unwrap();
    let mut tail = JournalTail::open(half.path(), &half.task).unwrap();
    assert!(tail.read_new_entries().unwrap().is_empty());
    std::fs::write(half.file(), &bytes[..ends[1]]).unwrap();
    assert_eq!(tail.read_new_entries().unwrap().len(), 1);
}

#[test]
fn the_process_that_holds_a_journal_is_found() {
    let place = Place::new();
    let journal = place.create().unwrap();
    let error = place.open().unwrap_err();
    let JournalError::Locked { holder, .. } = error else {
        panic!("{error:?}")
    };
    let tail = JournalTail::open(place.path(), &place.task).unwrap();
    assert_eq!(tail.lock_owner(), holder);
    match holder {
        Some(holder) => {
            assert_eq!(holder, std::process::id());
            assert!(
                error
                    .to_string()
                    .contains(&format!("is in use by process {holder}, which has")),
                "{error}"
            );
            drop(journal);
            assert_eq!(tail.lock_owner(), None);
        }
        None => crate::skipped("this system does not tell who holds a lock"),
    }
    drop(sabir_journal::Journal::open(place.path(), &place.task, clock()).unwrap());
}
