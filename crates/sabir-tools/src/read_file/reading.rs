//! What was read, and how a model is shown it.

use sabir_agent::ToolOutput;
use sabir_edit::Encoding;

use crate::picture::Picture;
use crate::words::{MAX_FILE_BYTES, bytes};

/// Files under the names that the model gave them, each with what was seen or why nothing was.
pub(crate) struct Reading(pub(crate) Vec<(String, Result<Seen, String>)>);

/// What was seen of a file.
pub(crate) enum Seen {
    Lines(Lines),
    Empty { path: String },
    Picture { path: String, size: String, picture: Picture },
}

/// Lines of a file.
pub(crate) struct Lines {
    /// The number of the first, from 1.
    pub(crate) first: usize,
    /// Without their endings, long ones cut.
    pub(crate) lines: Vec<String>,
    /// The number of the last that was asked for and is there.
    pub(crate) wanted: usize,
    /// How many the file has.
    pub(crate) total: usize,
    pub(crate) encoding: Encoding,
    /// How many line endings are CRLF, of how many.
    pub(crate) crlf: (usize, usize),
    /// Whether the last line has no ending.
    pub(crate) open_end: bool,
    /// The size of a file of which only the start was looked at.
    pub(crate) whole_bytes: Option<u64>,
}

impl From<Reading> for ToolOutput {
    /// Fails if nothing could be read.
    fn from(Reading(files): Reading) -> Self {
        let failed = files.iter().all(|(_, seen)| seen.is_err());
        let alone = files.len() == 1;
        let (mut parts, mut images) = (Vec::new(), Vec::new());
        for (name, seen) in files {
            let words = match seen {
                Ok(Seen::Lines(lines)) => lines.words(),
                Ok(Seen::Empty { path }) => format!("`{path}` is empty."),
                Ok(Seen::Picture { path, size, picture }) => {
                    images.push(picture.image);
                    let (format, width, height) = (picture.format, picture.width, picture.height);
                    format!("`{path}` is an image ({format}, {width} × {height}, {size}), shown below.")
                }
                Err(reason) if alone => reason,
                Err(reason) => format!("[Not read: {reason}]"),
            };
            parts.push(if alone { words } else { format!("{name}\n{words}") });
        }
        Self { images, failed, ..Self::done(parts.join("\n\n")) }
    }
}

impl Lines {
    /// The numbered lines, and notes in brackets where there is more to know.
    fn words(&self) -> String {
        let end = self.first + self.lines.len().saturating_sub(1);
        let width = self.wanted.to_string().len();
        let numbered = (self.first..).zip(&self.lines).map(|(number, line)| format!("{number:>width$} | {line}"));
        let mut all: Vec<_> = numbered.collect();
        let notes = self.notes(end);
        if !notes.is_empty() {
            all.push(format!("[{}]", notes.join(" ")));
        }
        all.join("\n")
    }

    fn notes(&self, end: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(size) = self.whole_bytes {
            notes.push(format!(
                "Lines {} to {end} of {} in the first {} of {}. Use execute_command with `sed -n` for what is behind.",
                self.first,
                self.total,
                bytes(MAX_FILE_BYTES as u64),
                bytes(size)
            ));
        } else if self.first > 1 || end < self.total {
            notes.push(format!("Lines {} to {end} of {}.", self.first, self.total));
        }
        if end < self.wanted {
            notes.push(format!("Read on with start_line {}.", end + 1));
        }
        if self.encoding != Encoding::Utf8 {
            notes.push(format!("The file is {}; edits keep that.", self.encoding.name()));
        }
        match self.crlf {
            (0, _) => {}
            (crlf, all) if crlf == all => notes.push("Lines end in CRLF.".to_owned()),
            (crlf, all) => notes.push(format!("{crlf} of {all} lines end in CRLF.")),
        }
        if self.open_end && end == self.total {
            notes.push("No newline at the end.".to_owned());
        }
        notes
    }
}
