//! Stores the whole output of one command as printed: in memory while it is short, then in files.
//!
//! One file holds the beginning; a second one, a ring buffer, holds the end. The disk thus holds at
//! most [`MAX_FILE_BYTES`] of an output of any length, and memory at most [`MAX_MEMORY_BYTES`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The size in bytes above which an output is stored in a file.
const MAX_MEMORY_BYTES: usize = 64 << 10;
/// The number of bytes that are kept of one output.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;
const HALF: u64 = MAX_FILE_BYTES / 2;
const CHUNK_BYTES: usize = 64 << 10;

/// A part of an output as it is read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputPiece<'a> {
    Bytes(&'a [u8]),
    /// Bytes that were not kept.
    Gap,
}

/// A growing output. Dropping it removes its files unless they are [kept](Self::keep_as).
#[derive(Debug)]
pub(crate) struct StoredOutput {
    /// The paths of the files without their extensions.
    stem: PathBuf,
    memory: Vec<u8>,
    files: Option<OutputFiles>,
    total: u64,
    /// The reason that the output is not stored.
    fault: Option<io::Error>,
    kept: bool,
}

#[derive(Debug)]
struct OutputFiles {
    head: File,
    tail: Option<File>,
}

/// The content of `<number>.about`, a file beside the output with the data needed to read it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputMetadata {
    pub(crate) total: u64,
    pub(crate) lines: u64,
    /// The way the command ended, in words.
    pub(crate) end: String,
    pub(crate) command: String,
}

impl StoredOutput {
    /// Creates an empty output for these files. No file is created before it is needed.
    pub(crate) fn new(stem: PathBuf) -> Self {
        Self {
            stem,
            memory: Vec::new(),
            files: None,
            total: 0,
            fault: None,
            kept: false,
        }
    }

    /// Opens an output of `total` bytes that was kept before.
    pub(crate) fn open_kept(stem: PathBuf, total: u64) -> Self {
        Self {
            stem,
            memory: Vec::new(),
            files: None,
            total,
            fault: None,
            kept: true,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.fault.is_none() {
            let taken = self.store_bytes(bytes);
            self.record_failure(taken);
        }
        self.total += bytes.len() as u64;
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Returns the error that kept the output from being stored.
    pub(crate) fn write_error(&self) -> Option<&io::Error> {
        self.fault.as_ref()
    }

    fn store_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.files.is_none() {
            if self.memory.len() + bytes.len() <= MAX_MEMORY_BYTES {
                self.memory.extend_from_slice(bytes);
                return Ok(());
            }
            self.spill_to_file()?;
        }
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let room = usize::try_from(HALF.saturating_sub(self.total)).unwrap_or(usize::MAX);
        let (first, mut rest) = bytes.split_at(bytes.len().min(room));
        files.head.write_all_at(first, self.total)?;
        // After the first half, output is written to a ring, so that the newest bytes overwrite the
        // oldest.
        let mut at = (self.total + first.len() as u64).saturating_sub(HALF);
        while !rest.is_empty() {
            let tail = match &mut files.tail {
                Some(tail) => tail,
                none => none.insert(create_file(&self.stem.with_extension("tail"))?),
            };
            let offset = at % HALF;
            let room = usize::try_from(HALF - offset).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            tail.write_all_at(now, offset)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn spill_to_file(&mut self) -> io::Result<()> {
        if let Some(folder) = self.stem.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let head = create_file(&self.stem.with_extension("head"))?;
        head.write_all_at(&self.memory, 0)?;
        self.memory = Vec::new();
        self.files = Some(OutputFiles { head, tail: None });
        Ok(())
    }

    fn record_failure(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.remove_files();
            self.fault = Some(error);
        }
    }

    fn remove_files(&mut self) {
        if self.files.take().is_some() {
            remove_output(&self.stem);
        }
        self.memory = Vec::new();
    }

    /// Writes the whole output to files of that name, which then stay.
    pub(crate) fn keep_as(&mut self, stem: PathBuf, about: &OutputMetadata) {
        if self.fault.is_none() {
            let kept = self.write_kept(stem, about);
            self.record_failure(kept);
        }
    }

    fn write_kept(&mut self, stem: PathBuf, about: &OutputMetadata) -> io::Result<()> {
        if self.files.is_none() {
            self.spill_to_file()?;
        }
        if stem != self.stem {
            let tail = self
                .files
                .as_ref()
                .is_some_and(|files| files.tail.is_some());
            // The `.about` file is written last: without it a resumed task treats the output as
            // incomplete.
            fs::rename(
                self.stem.with_extension("head"),
                stem.with_extension("head"),
            )?;
            if tail {
                fs::rename(
                    self.stem.with_extension("tail"),
                    stem.with_extension("tail"),
                )?;
            }
            self.stem = stem;
        }
        create_file(&self.stem.with_extension("about"))?
            .write_all_at(about.to_text().as_bytes(), 0)?;
        self.kept = true;
        // The files are opened by name again when read: a task may keep many outputs, and
        // descriptors are limited.
        self.files = None;
        Ok(())
    }

    /// Reads the output from its beginning.
    pub(crate) fn read_pieces(
        &self,
        take: &mut dyn FnMut(OutputPiece<'_>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        if self.files.is_none() && !self.kept {
            let _ = take(OutputPiece::Bytes(&self.memory));
            return Ok(());
        }
        read_kept_files(&self.stem, self.total, take)
    }
}

impl Drop for StoredOutput {
    fn drop(&mut self) {
        if !self.kept {
            self.remove_files();
        }
    }
}

/// Reads kept files of an output of `total` bytes.
pub(crate) fn read_kept_files(
    stem: &Path,
    total: u64,
    take: &mut dyn FnMut(OutputPiece<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let head = File::open(stem.with_extension("head"))?;
    if read_range(&head, 0, total.min(HALF), take)?.is_break() || total <= HALF {
        return Ok(());
    }
    let behind = total - HALF;
    if behind > HALF && take(OutputPiece::Gap).is_break() {
        return Ok(());
    }
    let tail = File::open(stem.with_extension("tail"))?;
    // Once the ring has wrapped around, its oldest byte is where the next one would be written.
    let oldest = if behind > HALF { behind % HALF } else { 0 };
    if read_range(&tail, oldest, behind.min(HALF), take)?.is_continue() && oldest > 0 {
        let _ = read_range(&tail, 0, oldest, take)?;
    }
    Ok(())
}

/// Passes on the bytes from `start` to `end`, or to the end of the file.
fn read_range(
    file: &File,
    start: u64,
    end: u64,
    take: &mut dyn FnMut(OutputPiece<'_>) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let mut at = start;
    let mut chunk = vec![0; CHUNK_BYTES];
    while at < end {
        let wanted = chunk
            .len()
            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let count = file.read_at(chunk.get_mut(..wanted).unwrap_or_default(), at)?;
        let Some(bytes) = chunk.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        if take(OutputPiece::Bytes(bytes)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        at += count as u64;
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the size of an output's files in bytes.
pub(crate) fn disk_bytes(stem: &Path) -> u64 {
    head_size(stem) + fs::metadata(stem.with_extension("tail")).map_or(0, |found| found.len())
}

/// Returns the size in bytes of the file that holds the beginning.
pub(crate) fn head_size(stem: &Path) -> u64 {
    fs::metadata(stem.with_extension("head")).map_or(0, |found| found.len())
}

/// Removes the files of an output, as far as they exist.
pub(crate) fn remove_output(stem: &Path) {
    for ending in ["head", "tail", "about"] {
        // Anything that cannot be removed now is removed with its folder.
        let _ = fs::remove_file(stem.with_extension(ending));
    }
}

/// Returns the numbers of the outputs in a folder, with their metadata (`None` if the writer was
/// killed). Outputs without a number were never kept and are removed.
pub(crate) fn scan_outputs(folder: &Path) -> Vec<(u32, Option<OutputMetadata>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "head") {
            return None;
        }
        let number = path.file_stem()?.to_str()?.parse().ok();
        if number.is_none() {
            remove_output(&path.with_extension(""));
        }
        number
    });
    let about = |number: u32| fs::read_to_string(folder.join(format!("{number}.about"))).ok();
    numbers
        .map(|number| {
            (
                number,
                about(number).as_deref().and_then(OutputMetadata::parse),
            )
        })
        .collect()
}

fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

impl OutputMetadata {
    fn to_text(&self) -> String {
        let Self {
            total,
            lines,
            end,
            command,
        } = self;
        format!("bytes {total}\nlines {lines}\nend {end}\ncommand {command}")
    }

    fn parse(text: &str) -> Option<Self> {
        let (total, rest) = text.strip_prefix("bytes ")?.split_once("\nlines ")?;
        let (lines, rest) = rest.split_once("\nend ")?;
        let (end, command) = rest.split_once("\ncommand ")?;
        let end = end.to_owned();
        let command = command.to_owned();
        Some(Self {
            total: total.parse().ok()?,
            lines: lines.parse().ok()?,
            end,
            command,
        })
    }
}

#[cfg(test)]
mod tests;
