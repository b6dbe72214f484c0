//! Writes reports as text for people or as JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

/// The form in which a report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object on one line.
    Json,
    /// One JSON object a line for each part of the report: an event, a finding, a record.
    JsonLines,
}

/// A finished result that can be serialized, and written in each [`ReportFormat`].
///
/// The JSON forms are public: fields may be added, but not renamed or removed.
pub trait Report: Serialize {
    /// Writes the report for people, exactly as the library found the text in it.
    ///
    /// The writer is flushed between pieces that must not affect each other, so that one which cleans text for a terminal can
    /// start over there: an escape sequence that one piece leaves open must not hide the next.
    ///
    /// # Errors
    /// The error of the writer.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Writes one JSON object and a line feed.
    ///
    /// # Errors
    /// The error of the writer.
    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_json_line(self, out)
    }

    /// Writes one JSON object a line; a report without parts writes itself.
    ///
    /// # Errors
    /// The error of the writer.
    fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_json(out)
    }

    /// Writes the report in that form.
    ///
    /// # Errors
    /// The error of the writer.
    fn write_as(&self, format: ReportFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            ReportFormat::Text => self.write_text(out),
            ReportFormat::Json => self.write_json(out),
            ReportFormat::JsonLines => self.write_json_lines(out),
        }
    }
}

/// Writes a value as JSON on one line.
///
/// # Errors
/// The error of the writer, or that the value has no JSON form.
pub fn write_json_line(value: &(impl Serialize + ?Sized), out: &mut dyn Write) -> io::Result<()> {
    // The whole line is written at once, so that a reader of a pipe never sees half of it.
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// Writes a value as JSON on one line, with known formats of secrets redacted. Used for data of tasks.
///
/// # Errors
/// The error of the writer, or that the value has no JSON form.
#[cfg(feature = "tasks")]
pub(crate) fn write_redacted_line(
    value: &(impl Serialize + ?Sized),
    out: &mut dyn Write,
) -> io::Result<()> {
    let line = serde_json::to_string(value)?;
    // Redacted as JSON text: a secret keeps the string around it, so that the line still parses.
    writeln!(out, "{}", sabir_call::redact::redact_json(&line))
}
