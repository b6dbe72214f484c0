//! Records exchanges of a gateway in a folder, and reports the repairs in them.
//!
//! Records are JSON lines, one for each exchange, with known secret formats redacted. A file is at
//! most 64 MiB long, and the oldest ones are deleted. A thread writes them, so that no answer waits
//! for the disk; what cannot be written in time is left out and counted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::redact::redact_json;
use sabir_gateway::{ExchangeRecord, ExchangeRecorder};
use serde::Serialize;
use serde_json::Value;

use crate::error::SessionError;

/// The longest file of records.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The most files of records.
const MAX_FILES: usize = 16;

/// The longest record. Of a longer one the request is left out.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// The most records that wait to be written.
const MAX_WAITING: usize = 1024;

/// The most memory that waiting records may take, roughly, in bytes.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The time to wait for the last records when the gateway ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes records into a folder.
#[derive(Debug)]
pub struct RecordWriter {
    records: Mutex<Option<SyncSender<WaitingRecord>>>,
    /// The memory of the records that wait.
    waiting_bytes: Arc<AtomicUsize>,
    done: Mutex<Receiver<()>>,
    lost: Arc<AtomicU64>,
}

/// A record with the memory that it takes.
struct WaitingRecord {
    record: ExchangeRecord,
    bytes: usize,
}

/// The present file of a folder.
struct RecordFile {
    folder: PathBuf,
    number: u64,
    file: File,
    length: u64,
}

impl RecordWriter {
    /// Creates the folder if it is missing, and starts the thread that writes into it.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn open(folder: &Path) -> Result<Self, SessionError> {
        let unusable = |error: io::Error| {
            SessionError::invalid(format!(
                "records cannot be written to {}: {error}",
                folder.display()
            ))
        };
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let mut file = RecordFile::open(folder).map_err(unusable)?;
        let (records, waiting) = sync_channel::<WaitingRecord>(MAX_WAITING);
        // Nothing is sent here: the end of the thread drops its half, and that wakes `finish`.
        let (writing, done) = sync_channel::<()>(0);
        let lost = Arc::new(AtomicU64::new(0));
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lost);
        let queued_bytes = Arc::clone(&waiting_bytes);
        let write_records = move || {
            for WaitingRecord { record, bytes } in waiting {
                if file.write_record(record).is_err() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            drop(writing);
        };
        std::thread::Builder::new()
            .name("records".to_owned())
            .spawn(write_records)
            .map_err(unusable)?;
        Ok(Self {
            records: Mutex::new(Some(records)),
            waiting_bytes,
            done: Mutex::new(done),
            lost,
        })
    }

    /// Waits until the waiting records are written, for a limited time. Returns the number of records
    /// that were left out.
    pub fn finish(&self) -> u64 {
        drop(
            self.records
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        _ = done.recv_timeout(FLUSH_TIMEOUT);
        self.lost.load(Ordering::Relaxed)
    }
}

impl ExchangeRecorder for RecordWriter {
    fn record_exchange(&self, record: ExchangeRecord) {
        let bytes = record.text.len()
            + estimate_memory(&record.request)
            + record
                .calls
                .iter()
                .map(|call| call.name.len() + estimate_memory(&call.arguments))
                .sum::<usize>();
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted before the thread can subtract it.
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_queued = before.saturating_add(bytes) <= MAX_WAITING_BYTES
            && records
                .as_ref()
                .is_some_and(|records| records.try_send(WaitingRecord { record, bytes }).is_ok());
        if !is_queued {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RecordFile {
    /// Opens a new file after those that are there.
    fn open(folder: &Path) -> io::Result<Self> {
        // The last file may end in the middle of a line, if the machine stopped.
        let last = record_files(folder)?
            .last()
            .map_or(0, |(number, _)| *number);
        Self::create(folder, last + 1)
    }

    /// Creates a file, which only its owner may read.
    fn create(folder: &Path, number: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(folder.join(format!("exchanges-{number:06}.jsonl")))?;
        Ok(Self {
            folder: folder.to_owned(),
            number,
            length: file.metadata()?.len(),
            file,
        })
    }

    /// Writes a record, into a new file if this one is full.
    fn write_record(&mut self, mut record: ExchangeRecord) -> io::Result<()> {
        let mut line = serde_json::to_string(&record)?;
        if line.len() > MAX_RECORD_BYTES {
            let length = record.request.to_string().len();
            record.request = format!("[left out: {length} bytes]").into();
            line = serde_json::to_string(&record)?;
        }
        // The finished line is redacted, so that no field can be forgotten.
        let mut line = redact_json(&line).into_owned();
        line.push('\n');
        // A record that is longer than a whole file gets a file of its own.
        if self.length > 0 && self.length + line.len() as u64 > MAX_FILE_BYTES {
            // A failure loses no record: the present file grows, and the next record tries again.
            _ = self.rotate();
        }
        self.length += line.len() as u64;
        self.file.write_all(line.as_bytes())
    }

    /// Begins a new file, and deletes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        *self = Self::create(&self.folder, self.number + 1)?;
        let files = record_files(&self.folder)?;
        let surplus = files.len().saturating_sub(MAX_FILES);
        for (_, path) in files.iter().take(surplus) {
            // One that cannot be deleted keeps no other one.
            _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Estimates the memory of a value in bytes.
fn estimate_memory(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(estimate_memory).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, field)| name.len() + estimate_memory(field))
                .sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// Returns the files of records in a folder, oldest first.
fn record_files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name
            .and_then(|name| name.strip_prefix("exchanges-")?.strip_suffix(".jsonl"))
            .and_then(|number| number.parse().ok());
        if let Some(number) = number {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Sums the records of a model at an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordedModel {
    /// The exchanges.
    pub exchanges: u64,
    /// The exchanges with repairs.
    pub repaired_exchanges: u64,
    /// The exchanges that ended with an error.
    pub failed: u64,
    /// The exchanges whose clients left before the end.
    pub left: u64,
    /// The calls in answers.
    pub calls: u64,
    /// The number of times that the model was asked again.
    pub retries: u64,
    /// The repairs by rule.
    pub repairs: BTreeMap<String, u64>,
    /// The faults that were found.
    pub faults: u64,
    /// Input and output tokens, with the estimates.
    pub tokens: u64,
    /// The part of the tokens that providers did not report.
    pub estimated_tokens: u64,
    /// The cost in billionths of a dollar.
    pub nano_usd: u64,
    /// The cost of the repaired exchanges, which would have been lost without repairs.
    pub repaired_nano_usd: u64,
}

/// A summary of records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordReport {
    /// The models by their names and upstreams.
    pub models: BTreeMap<String, RecordedModel>,
    /// The number of lines that are not records, such as a line that was cut when the machine
    /// stopped.
    pub unreadable: u64,
}

/// Summarizes the records in a folder.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn report_records(folder: &Path) -> Result<RecordReport, SessionError> {
    let unreadable = |error: io::Error| {
        SessionError::invalid(format!("{} cannot be read: {error}", folder.display()))
    };
    let mut report = RecordReport::default();
    for (_, path) in record_files(folder).map_err(unreadable)? {
        let file = BufReader::new(File::open(path).map_err(unreadable)?);
        // Bytes, since a line may have been cut within a character.
        for line in file.split(b'\n') {
            let line = line.map_err(unreadable)?;
            match serde_json::from_slice::<ExchangeRecord>(&line) {
                Ok(record) => report.add_record(&record),
                Err(_) => report.unreadable += 1,
            }
        }
    }
    Ok(report)
}

impl RecordReport {
    /// Adds a record.
    fn add_record(&mut self, record: &ExchangeRecord) {
        let name = match &record.upstream {
            Some(upstream) => format!("{} at {upstream}", record.model),
            None => record.model.clone(),
        };
        let model = self.models.entry(name).or_default();
        let cost = record.nano_usd.unwrap_or(0);
        model.exchanges += 1;
        model.failed += u64::from(record.error.is_some());
        model.left += u64::from(record.error.is_none() && !record.whole && record.status < 400);
        model.calls += record.calls.len() as u64;
        model.retries += u64::from(record.retries);
        model.faults += record.faults.len() as u64;
        // Records of earlier versions have no counts.
        let counts = [
            (record.input_tokens, record.counted_input_tokens),
            (record.output_tokens, record.counted_output_tokens),
        ];
        for (reported, counted) in counts {
            let reported = reported.unwrap_or(0);
            let counted = counted.unwrap_or(reported);
            model.tokens = model.tokens.saturating_add(counted);
            let estimated = counted.saturating_sub(reported);
            model.estimated_tokens = model.estimated_tokens.saturating_add(estimated);
        }
        model.nano_usd += cost;
        for rule in &record.repairs {
            *model.repairs.entry(rule.clone()).or_default() += 1;
        }
        if !record.repairs.is_empty() {
            model.repaired_exchanges += 1;
            model.repaired_nano_usd += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kept_if_no_new_file_can_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = RecordFile::open(folder.path()).unwrap();
        file.length = MAX_FILE_BYTES;
        let second = folder.path().join("exchanges-000002.jsonl");
        std::fs::create_dir(&second).unwrap();
        file.write_record(ExchangeRecord::default()).unwrap();
        std::fs::remove_dir(&second).unwrap();
        file.write_record(ExchangeRecord::default()).unwrap();
        for number in 1..=2 {
            let path = folder.path().join(format!("exchanges-{number:06}.jsonl"));
            assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
        }
    }

    #[test]
    fn huge_records_do_not_wait_in_any_number() {
        let folder = tempfile::tempdir().unwrap();
        let records = RecordWriter::open(folder.path()).unwrap();
        records.record_exchange(ExchangeRecord {
            request: Value::String("x".repeat(MAX_WAITING_BYTES)),
            ..ExchangeRecord::default()
        });
        records.record_exchange(ExchangeRecord::default());
        assert_eq!(records.finish(), 1);
        assert_eq!(records.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn records_are_redacted_rotated_and_summed() {
        let folder = tempfile::tempdir().unwrap();
        let secret = ["sk-proj-", "abcdefghijklmnopqrstuvwxyz0123456789"].concat();
        let record = ExchangeRecord {
            model: "m".to_owned(),
            text: format!("the key is {secret}"),
            repairs: vec!["leaked_call".to_owned()],
            nano_usd: Some(3),
            ..ExchangeRecord::default()
        };
        let records = RecordWriter::open(folder.path()).unwrap();
        records.record_exchange(record.clone());
        records.record_exchange(ExchangeRecord {
            repairs: Vec::new(),
            ..record.clone()
        });
        assert_eq!(records.finish(), 0);
        // Later records are counted as lost, not written.
        records.record_exchange(record.clone());
        assert_eq!(records.finish(), 1);
        let path = folder.path().join("exchanges-000001.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            !text.contains(&secret) && text.lines().count() == 2,
            "{text}"
        );
        let report = report_records(folder.path()).unwrap();
        let model = &report.models["m"];
        assert_eq!((model.exchanges, model.repaired_exchanges), (2, 1));
        assert_eq!((model.nano_usd, model.repaired_nano_usd), (6, 3));
        assert_eq!(model.repairs["leaked_call"], 1);

        let mut file = RecordFile::open(folder.path()).unwrap();
        assert_eq!(file.number, 2);
        for _ in 0..MAX_FILES + 3 {
            file.length = MAX_FILE_BYTES;
            file.write_record(record.clone()).unwrap();
        }
        let files = record_files(folder.path()).unwrap();
        assert_eq!(files.len(), MAX_FILES);
        assert_eq!(files.last().unwrap().0, 2 + MAX_FILES as u64 + 3);
    }

    #[test]
    fn exchanges_whose_clients_left_are_counted_with_their_estimates() {
        let left = ExchangeRecord {
            model: "m".to_owned(),
            status: 200,
            counted_input_tokens: Some(100),
            counted_output_tokens: Some(7),
            ..ExchangeRecord::default()
        };
        let mut report = RecordReport::default();
        report.add_record(&left);
        // Its client left after the provider had reported the input, and in the midst of the
        // output.
        report.add_record(&ExchangeRecord {
            input_tokens: Some(90),
            counted_input_tokens: Some(90),
            output_tokens: Some(1),
            ..left.clone()
        });
        report.add_record(&ExchangeRecord {
            whole: true,
            ..left.clone()
        });
        report.add_record(&ExchangeRecord {
            error: Some("broken".to_owned()),
            ..left.clone()
        });
        let earlier = ExchangeRecord {
            whole: true,
            input_tokens: Some(5),
            output_tokens: Some(6),
            counted_input_tokens: None,
            counted_output_tokens: None,
            ..left
        };
        report.add_record(&earlier);
        let model = &report.models["m"];
        assert_eq!([model.exchanges, model.failed, model.left], [5, 1, 2]);
        assert_eq!(model.tokens, 107 + 97 + 107 + 107 + 11);
        assert_eq!(model.estimated_tokens, 107 + 6 + 107 + 107);
    }

    #[test]
    fn a_line_that_was_cut_within_a_character_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let whole = serde_json::to_string(&ExchangeRecord::default()).unwrap();
        let mut lines = format!("{whole}\n{{\"model\": \"\u{e9}").into_bytes();
        lines.pop();
        lines.extend_from_slice(format!("\n{whole}\n").as_bytes());
        std::fs::write(folder.path().join("exchanges-000001.jsonl"), lines).unwrap();
        let report = report_records(folder.path()).unwrap();
        assert_eq!((report.models[""].exchanges, report.unreadable), (2, 1));
    }
}
