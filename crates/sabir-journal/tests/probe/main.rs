//! Provides the helper program of the tests: `journal-probe append FOLDER` appends forever and prints the number of each record
//! once it is stored; `journal-probe fill FOLDER` fills the tiny disk mounted at the folder, and continues once there is room.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helper"
)]

mod record;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use record::{record, said};
use sabir_agent::{RecordStore, TaskId};
use sabir_journal::{Journal, JournalError};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["append", folder] => append(Path::new(folder)),
        ["fill", folder] => fill(Path::new(folder)),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn append(folder: &Path) {
    let task = TaskId::new("task");
    let (mut journal, first) = match Journal::open(folder, &task, || 0) {
        Ok((journal, entries, _)) => (journal, entries.len()),
        Err(JournalError::Missing { .. }) => (Journal::create(folder, &task, || 0).unwrap(), 0),
        Err(error) => panic!("{error}"),
    };
    let mut screen = std::io::stdout().lock();
    for number in first.. {
        journal.append(&record(number)).unwrap();
        writeln!(screen, "kept {number}").unwrap();
    }
}

fn fill(folder: &Path) {
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![0; 64 << 10]).unwrap();
    let mut journal = Journal::create(folder, &TaskId::new("full"), || 0).unwrap();
    let mut kept = Vec::new();
    let mut refused = 0;
    while refused < 200 {
        // Lengths that do not divide a page, so that some writes are partial.
        let record = said(format!(
            "{}-{}",
            kept.len(),
            "x".repeat(300 + 977 * (refused % 7))
        ));
        match journal.append(&record) {
            Ok(()) => kept.push(record),
            Err(error) => {
                assert!(
                    error.to_string().contains("the records before are safe"),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert!(kept.len() > 50, "{}", kept.len());
    // No page is left, not even for the first line of another.
    let _ = std::fs::write(folder.join("filler"), vec![0; 256 << 10]);
    let error = Journal::create(folder, &TaskId::new("other"), || 0).unwrap_err();
    assert!(matches!(error, JournalError::Io { .. }), "{error:?}");
    assert!(!folder.join("other.journal").exists());
    std::fs::remove_file(folder.join("filler")).unwrap_or_default();
    std::fs::remove_file(ballast).unwrap();
    for text in ["space", "again"] {
        kept.push(said(text));
        journal.append(&said(text)).unwrap();
    }
    drop(journal);
    let (_journal, entries, recovery) = Journal::open(folder, &TaskId::new("full"), || 0).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    assert!(entries.into_iter().map(|entry| entry.record).eq(kept));
}
