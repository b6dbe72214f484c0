//! Keeps the messages that the user typed, for the history of the line editor.
//!
//! One JSON string per line, in a file of the data folder that only its owner can read. Known
//! secret formats are redacted first. If the history cannot be read or written, nothing else fails.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use sabir_call::redact;

use crate::environment::Environment;

/// The name of the file.
const FILE: &str = "history";
/// The most messages that are offered.
const MAX_MESSAGES: usize = 1000;
/// The longest message that is kept, in bytes. A longer one is a pasted file, which nobody repeats.
const MAX_MESSAGE: usize = 64 << 10;
/// The most bytes of the file's end that are read.
const MAX_READ: u64 = 4 << 20;
/// The size at which the file is cut to the messages that are offered.
const MAX_FILE: u64 = 8 << 20;

/// The messages of earlier sessions, in a file.
#[derive(Debug, Clone)]
pub struct InputHistory {
    /// `None` without a data folder: then nothing is kept.
    path: Option<PathBuf>,
}

impl InputHistory {
    /// Returns the history in the data folder of this environment.
    pub fn in_environment(environment: &Environment) -> Self {
        let folder = environment.sabir_data_folder().ok();
        Self {
            path: folder.map(|folder| folder.join(FILE)),
        }
    }

    /// Returns the newest messages, the oldest of them first.
    pub fn load(&self) -> Vec<String> {
        let text = self.read_end().unwrap_or_default();
        let messages = text
            .lines()
            // A line that is cut, by the limit or by a crash, is not JSON.
            .filter_map(|line| serde_json::from_str::<String>(line).ok());
        let mut messages: Vec<_> = messages.collect();
        messages.dedup();
        messages.drain(..messages.len().saturating_sub(MAX_MESSAGES));
        messages
    }

    /// Adds a message. Several sessions may do so at the same time.
    pub fn append(&self, message: &str) {
        if message.trim().is_empty() || message.len() > MAX_MESSAGE {
            return;
        }
        let Ok(mut line) = serde_json::to_string(&redact::redact_text(message)) else {
            return;
        };
        line.push('\n');
        // A message that is not kept is still sent.
        _ = self.write_line(&line);
    }

    fn write_line(&self, line: &str) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(0o600);
        if std::fs::metadata(path).is_ok_and(|known| known.len() > MAX_FILE) {
            let kept: String = self
                .load()
                .iter()
                .filter_map(|message| Some(serde_json::to_string(message).ok()? + "\n"))
                .collect();
            let smaller = path.with_extension("new");
            // One that an interrupted session left behind.
            _ = std::fs::remove_file(&smaller);
            options.open(&smaller)?.write_all(kept.as_bytes())?;
            std::fs::rename(&smaller, path)?;
        }
        // In one write, so that lines of two sessions do not mix.
        options.open(path)?.write_all(line.as_bytes())
    }

    fn read_end(&self) -> Option<String> {
        let mut file = File::open(self.path.as_ref()?).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ)))
            .ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
