//! Stores the records of a task on disk so that they survive crashes.
//!
//! A [`Journal`] is one file with the records of one task, in the order in which they were written. It implements
//! [`RecordStore`](sabir_agent::RecordStore): once [`append`](sabir_agent::RecordStore::append) has returned, the record
//! survives `kill -9`, a full disk and a power cut.
//!
//! The main decision: **the file is append-only, one whole frame at a time, each with a checksum.** There is no separate
//! index that could disagree with the file, and only its end can need repair. Recovery distinguishes two cases. A torn tail
//! was never acknowledged and is cut off. Damaged bytes may have been an acknowledged record, so they are copied to a file
//! beside the journal before the task continues without them. Plain lines of JSON would not be enough: a `kill -9` in the
//! middle of a write tears the last line, and a flipped bit in a number goes unnoticed.
//!
//! # Format, version 2
//!
//! One file `<task>.journal` for each task, mode 0600, in a folder of mode 0700 that the caller names.
//!
//! ```text
//! file    = header frame*
//! header  = "sabir journal 2\n"
//! frame   = length checksum link payload
//! length  = u32, little endian: the bytes of the payload, 1 to 67108864 (64 MiB)
//! checksum = u32, little endian: CRC-32 (IEEE) of length, link and payload
//! link    = u32, little endian: the checksum of the frame before, or the CRC-32 of the header
//! payload = a JSON object, UTF-8: {"at": milliseconds since 1970, "kind": …, the record's fields}
//! ```
//!
//! The links make a frame that is missing, repeated or out of place as noticeable as a flipped bit. Version 1 had none: `sabir
//! journal 1`, and heads of length and checksum (of length and payload) alone. Such journals are read and continued as they are.
//!
//! The first record is `started`. `at` comes from the caller's clock and goes backwards when that clock does. Objects and
//! arrays nest at most 256 deep. A version of Sabir that does not know the format or a kind of record refuses to read the
//! journal and leaves the file untouched.
//!
//! # Problems and reactions
//!
//! | problem | reaction |
//! | --- | --- |
//! | the file ends inside a frame, or in nothing but zeros | cut off, reported as [`RecoveryReport::torn_bytes`] |
//! | a whole frame with a wrong checksum, length or link | all bytes from there on are moved to `<task>.journal.damaged`, a `damaged` record takes their place, reported |
//! | the same in the first frame | refused, untouched |
//! | a header of a newer version, a record of an unknown kind | refused, untouched |
//! | another process has the journal open | refused, with that process's id |
//! | a write fails (full disk) | the partial frame is removed; later appends may succeed |
//! | a sync fails, or the file was removed, replaced or changed | no further appends, because the contents on disk are unknown |
//!
//! All functions block, about as long as the disk needs to sync. None reads a clock or the environment.
//!
//! ```
//! use sabir_agent::{DeliveryTime, MessageAuthor, Record, RecordStore, TaskId};
//! use sabir_journal::Journal;
//!
//! let folder = tempfile::tempdir()?;
//! let task = TaskId::new("task-1");
//! let clock = || 1_700_000_000_000;
//!
//! let mut journal = Journal::create(folder.path(), &task, clock)?;
//! let (by, when) = (MessageAuthor::User, DeliveryTime::Next);
//! journal.append(&Record::Said { by, text: "hello".to_owned(), images: Vec::new(), when })?;
//! drop(journal);
//!
//! let (_journal, entries, recovery) = Journal::open(folder.path(), &task, clock)?;
//! assert_eq!(entries[0].at, 1_700_000_000_000);
//! assert!(recovery.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod disk;
mod error;
mod frame;
mod index;
mod journal;
mod journal_writer;
mod lock_owner;
mod recovery;
mod tail;

pub use disk::{Disk, DiskFile, OpenMode, SystemDisk};
pub use error::JournalError;
pub use frame::JournalEntry;
pub use index::{JournalListing, TaskSummary, count_records, list_journals, list_task_ids};
pub use journal::{Journal, read_journal, read_journal_on};
pub use journal_writer::write_journal;
pub use recovery::RecoveryReport;
pub use tail::JournalTail;
