//! Buffers a report on its way to standard output, and cleans its foreign text.

use std::io::{self, Write};

use crate::print;
use crate::sanitizer::Sanitizer;

/// The number of bytes that are collected before they are printed.
const BUFFER_BYTES: usize = 64 << 10;

/// Standard output as a buffered writer for reports. Writes never fail here: [`print::is_output_lost`] reports lost output.
#[derive(Debug)]
pub struct ReportOutput {
    /// Cleans foreign text; `None` writes bytes as they are.
    sanitizer: Option<Sanitizer>,
    /// True if the report is JSON.
    is_json: bool,
    pending: Vec<u8>,
}

impl ReportOutput {
    /// Creates an output that writes bytes as they are, except on a terminal: for text that is clean or goes into a file.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            sanitizer: None,
            is_json: false,
            pending: Vec::new(),
        }
    }

    /// Creates an output for JSON. Its strings are escaped on a terminal, so that it stays the same JSON.
    #[must_use]
    pub fn json() -> Self {
        let mut output = Self::exact();
        output.is_json = true;
        output
    }

    /// Creates an output that cleans foreign text.
    #[must_use]
    pub fn cleaned() -> Self {
        let mut output = Self::exact();
        output.sanitizer = Some(Sanitizer::default());
        output
    }

    fn print_pending(&mut self) {
        print::write_stdout_bytes(&self.pending);
        self.pending.clear();
    }
}

impl Write for ReportOutput {
    /// Takes one piece of text, which is cleaned as UTF-8: reports write whole strings.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sanitizer {
            None if self.is_json => {
                let json = String::from_utf8_lossy(bytes);
                self.pending
                    .extend_from_slice(print::escape_for_terminal(&json).as_bytes());
            }
            None => self.pending.extend_from_slice(bytes),
            Some(sanitizer) => {
                let text = sanitizer.sanitize_chunk(&String::from_utf8_lossy(bytes));
                self.pending.extend_from_slice(text.as_bytes());
            }
        }
        if self.pending.len() >= BUFFER_BYTES {
            self.print_pending();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.print_pending();
        // A sequence that one piece of a report leaves open must not hide the next piece.
        if let Some(sanitizer) = &mut self.sanitizer {
            *sanitizer = Sanitizer::default();
        }
        Ok(())
    }
}

impl Drop for ReportOutput {
    fn drop(&mut self) {
        self.print_pending();
    }
}
