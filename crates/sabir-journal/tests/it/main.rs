//! Tests journals on a real file system, through every kind of accident.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod accidents;
mod damage;
mod document;
mod index;
mod kills;
#[path = "../probe/record.rs"]
mod record;
mod records;
mod whole;

use std::path::{Path, PathBuf};

use record::said;
use sabir_agent::{Record, RecordStore, TaskId, TaskStart};
use sabir_call::ToolProtocol;
use sabir_journal::{Journal, JournalEntry, JournalError, RecoveryReport};
use tempfile::TempDir;

/// Reports that the machine lacks something that a test needs, even if the output of tests is captured.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A folder for journals, and the task in it.
struct Place {
    folder: TempDir,
    task: TaskId,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            task: TaskId::new("task-1"),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("task-1.journal")
    }

    fn create(&self) -> Result<Journal, JournalError> {
        Journal::create(self.path(), &self.task, clock())
    }

    fn open(&self) -> Result<(Journal, Vec<JournalEntry>, RecoveryReport), JournalError> {
        Journal::open(self.path(), &self.task, clock())
    }

    /// Creates a journal with these records.
    fn with(records: &[Record]) -> Self {
        let place = Self::new();
        let mut journal = place.create().unwrap();
        records
            .iter()
            .for_each(|record| journal.append(record).unwrap());
        place
    }

    /// Returns the bytes of the file and the offset at which each frame ends.
    fn frames(&self) -> (Vec<u8>, Vec<usize>) {
        let bytes = std::fs::read(self.file()).unwrap();
        let mut ends = vec![16];
        while let Some(head) = bytes
            .get(ends[ends.len() - 1]..)
            .filter(|rest| !rest.is_empty())
        {
            let length = u32::from_le_bytes(head[..4].try_into().unwrap());
            ends.push(ends[ends.len() - 1] + HEAD_BYTES + length as usize);
        }
        (bytes, ends)
    }
}

/// The bytes of length, checksum and link before a payload.
const HEAD_BYTES: usize = 12;

/// Makes a clock that counts: 1001, 1002, …
fn clock() -> impl Fn() -> u64 + Send + 'static {
    let now = std::sync::atomic::AtomicU64::new(1000);
    move || now.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
}

fn started(task: &str, prompt: &str) -> Record {
    Record::Started(TaskStart {
        task: TaskId::new(task),
        prompt: prompt.to_owned(),
        workspace: "/home/ada/app".to_owned(),
        model: "maker/model".to_owned(),
        protocol: ToolProtocol::Prompted("cline".to_owned()),
        version: "0.1.0".to_owned(),
        edit_tool: None,
        mode: None,
        from: None,
    })
}

fn records_of(entries: Vec<JournalEntry>) -> Vec<Record> {
    entries.into_iter().map(|entry| entry.record).collect()
}
