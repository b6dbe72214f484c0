//! What happened?
//!
//! A [`Journal`] is one file that holds the records of one task in the order in which they came. It is the
//! [`RecordStore`](sabir_agent::RecordStore) of that task: a record that [`append`](sabir_agent::RecordStore::append) has taken survives
//! `kill -9`, a full disk and a power cut (law 9).
//!
//! The decision that shapes this crate is that **the file is only ever appended to, one whole frame at a time, each with a
//! checksum**. There is no index that could disagree with it and nothing to repair but its end. What is damaged is told from
//! what was merely not finished: a torn tail was never acknowledged and is cut off; damaged bytes may have been somebody's
//! record, so they are kept beside the journal before it goes on without them. Lines of JSON alone would not do: after a
//! `kill -9` in the middle of a write the last line is torn, and a flipped bit in a number goes unseen.
//!
//! # Format, version 1
//!
//! One file `<task>.journal` for each task, mode 0600, in a folder of mode 0700 that the caller names.
//!
//! ```text
//! file    = header frame*
//! header  = "sabir journal 1\n"
//! frame   = length checksum payload
//! length  = u32, little endian: the bytes of the payload, 1 to 67108864 (64 MiB)
//! checksum = u32, little endian: CRC-32 (IEEE) of the four bytes of length and the payload
//! payload = a JSON object, UTF-8: {"at": milliseconds since 1970, "kind": …, the record's fields}
//! ```
//!
//! The first record is `started`. `at` comes from the caller's clock and may go backwards when that does. Objects and arrays
//! nest at most 256 deep. A version that changes any of this, or adds a kind of record, is not read by an older Sabir, which
//! leaves the file untouched.
//!
//! # When something is wrong
//!
//! | found | done |
//! | --- | --- |
//! | the file ends inside a frame, or in nothing but zeros | cut off, reported as [`RecoveryReport::torn_bytes`] |
//! | a whole frame with a wrong checksum or length | everything from there on goes to `<task>.journal.damaged`, reported |
//! | a header of a newer version, a record of an unknown kind | refused, untouched |
//! | another process has the journal open | refused, with its number |
//! | a write fails (full disk) | the frame is taken back; later appends may succeed |
//! | a sync fails, or the file was removed | no further appends: nobody knows what is on the disk |
//!
//! The functions block, for about as long as the disk takes to sync. They never read a clock or the environment.
//!
//! ```
//! use sabir_agent::{Delivery, MessageAuthor, Record, RecordStore, TaskId};
//! use sabir_journal::Journal;
//!
//! let folder = tempfile::tempdir()?;
//! let task = TaskId::new("task-1");
//! let clock = || 1_700_000_000_000;
//!
//! let mut journal = Journal::create(folder.path(), &task, clock)?;
//! let (by, when) = (MessageAuthor::User, Delivery::Next);
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
