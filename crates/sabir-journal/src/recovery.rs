//! Reads a journal to its end, and distinguishes a torn end from damage.
//!
//! An interrupted append leaves a prefix of its frame: a head whose length exceeds the remaining bytes, and the beginning of
//! a JSON object. A file system may also have allocated room that was never written, which reads as zeros. Neither was ever
//! acknowledged. Anything else that is wrong is damage to bytes that were once valid; so is a whole frame that is not linked to
//! the one before it, because frames were removed, repeated or moved.

use std::fmt;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::disk::{DiskFile, DiskFileReader};
use crate::error::JournalError;
use crate::frame::{
    self, FormatVersion, FrameChain, FrameHeader, HEADER_BYTES, HEADER_START, JournalEntry,
    MAX_PAYLOAD_BYTES,
};

/// The problems that were found in a journal. The `Display` text is for the user, and empty if there were none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// The bytes of a record that was being written when the process or the machine stopped. They were never acknowledged.
    pub torn_bytes: u64,
    /// The bytes from the first damaged record to the end of the file.
    pub damaged_bytes: u64,
    /// The file with a copy of the damaged bytes; `None` if nothing was damaged, or if the journal was only read.
    pub saved_path: Option<PathBuf>,
}

impl RecoveryReport {
    /// Returns true if no problem was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.torn_bytes == 0 && self.damaged_bytes == 0
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.torn_bytes > 0 {
            write!(
                f,
                "The last record was not finished ({} bytes); what came before it is whole.",
                self.torn_bytes
            )?;
        }
        if self.damaged_bytes > 0 {
            write!(
                f,
                "The journal is damaged; the task continues from the last record before the damage, and calls whose results are lost are not run again."
            )?;
        }
        match &self.saved_path {
            Some(path) => write!(
                f,
                " The {} bytes from there on are kept in {path:?}.",
                self.damaged_bytes
            ),
            None => Ok(()),
        }
    }
}

/// The contents of a journal.
#[derive(Debug)]
pub(crate) struct JournalScan {
    pub(crate) entries: Vec<JournalEntry>,
    /// The offset at which the last whole frame ends; 0 if even the header is incomplete.
    pub(crate) valid_bytes: u64,
    /// The offset at which that frame, or the header, begins.
    pub(crate) last_frame_offset: u64,
    pub(crate) recovery: RecoveryReport,
    /// The chain after the last whole frame.
    pub(crate) chain: FrameChain,
}

/// The result of reading the first line of a file.
pub(crate) enum HeaderLine {
    /// The first line of a journal of that version.
    Whole(FormatVersion),
    /// The file ends before the line is complete, after this many bytes.
    Torn(u64),
}

/// Reads all whole frames from the beginning of the file.
///
/// # Errors [`JournalError::DamagedStart`] if not even the first record can be read although bytes follow; and the errors of the first
/// line, of records from another version, and of the system.
pub(crate) fn scan_journal(file: &dyn DiskFile, path: &Path) -> Result<JournalScan, JournalError> {
    let fail = |error| JournalError::io_error("read", path)(error);
    let mut input = BufReader::new(DiskFileReader::starting_at(file, 0));
    let mut scan = JournalScan {
        entries: Vec::new(),
        valid_bytes: 0,
        last_frame_offset: 0,
        recovery: RecoveryReport::default(),
        chain: FrameChain::new(FormatVersion::CURRENT),
    };
    let version = match read_header(&mut input, path)? {
        HeaderLine::Whole(version) => version,
        HeaderLine::Torn(bytes) => {
            scan.recovery.torn_bytes = bytes;
            return Ok(scan);
        }
    };
    scan.chain = FrameChain::new(version);
    scan.valid_bytes = HEADER_BYTES as u64;
    let mut payload = Vec::new();
    while let Some(head) = scan
        .chain
        .read_next(&mut input, &mut payload)
        .map_err(fail)?
    {
        // A complete but unknown record is an error and is not removed: a newer version wrote it
        // and can still read it.
        let number = scan.entries.len() as u64 + 1;
        let unknown = |error| JournalError::unknown_record(path, number, &error);
        scan.entries
            .push(frame::decode_payload(&payload).map_err(unknown)?);
        scan.last_frame_offset = scan.valid_bytes;
        scan.valid_bytes += (version.head_bytes() + head.length) as u64;
    }
    let whole = file.byte_length().map_err(fail)?;
    let left = whole.saturating_sub(scan.valid_bytes);
    if left > 0 {
        input
            .seek(SeekFrom::Start(scan.valid_bytes))
            .map_err(fail)?;
        let mut rest = Vec::new();
        input
            .take((version.head_bytes() + MAX_PAYLOAD_BYTES) as u64)
            .read_to_end(&mut rest)
            .map_err(fail)?;
        // More bytes than the largest frame cannot come from one interrupted append.
        if rest.len() as u64 == left && is_torn(&rest, version) {
            scan.recovery.torn_bytes = left;
        } else if scan.entries.is_empty() {
            // Nothing could continue from here, and all the later records are still in the file.
            return Err(JournalError::DamagedStart {
                path: path.to_path_buf(),
            });
        } else {
            scan.recovery.damaged_bytes = left;
        }
    }
    Ok(scan)
}

/// Reads the first line.
///
/// # Errors
/// [`JournalError::Newer`], [`NotAJournal`](JournalError::NotAJournal) or [`Io`](JournalError::Io).
pub(crate) fn read_header(input: &mut impl Read, path: &Path) -> Result<HeaderLine, JournalError> {
    let mut line = Vec::new();
    input
        .by_ref()
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut line)
        .map_err(JournalError::io_error("read", path))?;
    for version in FormatVersion::ALL {
        if line == version.header() {
            return Ok(HeaderLine::Whole(version));
        }
        // Also an empty file: the process died right after it had created the journal.
        if version.header().starts_with(&line) {
            return Ok(HeaderLine::Torn(line.len() as u64));
        }
    }
    // A version number of more digits needs more bytes; twenty are enough for any `u64`.
    input
        .by_ref()
        .take(20)
        .read_to_end(&mut line)
        .map_err(JournalError::io_error("read", path))?;
    let number = line
        .strip_prefix(HEADER_START)
        .and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let version = number
        .and_then(|number| std::str::from_utf8(number).ok())
        .and_then(|number| number.parse().ok());
    Err(match version {
        Some(version) if version > 2 => JournalError::Newer {
            path: path.to_path_buf(),
            version,
        },
        _ => JournalError::NotAJournal {
            path: path.to_path_buf(),
        },
    })
}

/// Returns true if these bytes, which are not a whole frame, can be left by an interrupted append.
fn is_torn(rest: &[u8], version: FormatVersion) -> bool {
    // Fewer bytes than a head has: the append was interrupted within the head.
    let Some(head) = FrameHeader::parse(rest, version) else {
        return true;
    };
    if rest.iter().all(|byte| *byte == 0) {
        return true;
    }
    let begun = rest.get(version.head_bytes()..).unwrap_or_default();
    // A damaged length can also exceed the remaining bytes, but then a complete object follows,
    // with other frames behind it.
    head.is_possible() && head.length > begun.len() && frame::is_unfinished(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_ends_differ_from_damage() {
        let json = r#"{"at":1,"text":"é\u00e9\\\"","n":[1.5e3,true,null,{}]}"#.as_bytes();
        let length = u32::try_from(json.len()).unwrap();
        for version in FormatVersion::ALL {
            let framed = |length: u32, payload: &[u8]| {
                let rest = vec![9; version.head_bytes() - 4];
                [&length.to_le_bytes(), &rest[..], payload].concat()
            };
            for cut in 0..json.len() {
                assert!(is_torn(&framed(length, &json[..cut]), version), "{cut}");
            }
            assert!(is_torn(&[1, 2, 3], version) && is_torn(&[0; 4096], version));
            for (length, payload) in [
                (length, json),
                (length + 1, json),
                (length + 100, &[json, b"\x09\0\0\0"].concat()),
                (0, b"{"),
                (u32::MAX, b"{"),
                (length, b"{\"at\":1,\0"),
                (length, b"[1"),
            ] {
                let rest = framed(length, payload);
                assert!(!is_torn(&rest, version), "{length} {payload:?}");
            }
        }
    }

    #[test]
    fn recovery_notes_are_readable() {
        let describe = |torn_bytes, damaged_bytes, kept: Option<&str>| {
            RecoveryReport {
                torn_bytes,
                damaged_bytes,
                saved_path: kept.map(PathBuf::from),
            }
            .to_string()
        };
        assert_eq!(describe(0, 0, None), "");
        assert_eq!(
            describe(5, 0, None),
            "The last record was not finished (5 bytes); what came before it is whole."
        );
        assert_eq!(
            describe(0, 7, Some("a.journal.damaged")),
            "The journal is damaged; the task continues from the last record before the damage, and calls whose results are lost \
             are not run again. The 7 bytes from there on are kept in \"a.journal.damaged\"."
        );
    }
}
