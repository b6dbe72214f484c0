//! What was read, and how a model is shown it.

use sabir_agent::ToolOutput;
use sabir_edit::TextEncoding;

use crate::picture::LoadedPicture;
use crate::text::{MAX_FILE_BYTES, count_bytes};

/// Files under the names that the model gave them, each with what was seen or why nothing was.
pub(crate) struct FileViews(pub(crate) Vec<(String, Result<FileView, String>)>);

/// What was seen of a file.
pub(crate) enum FileView {
    Lines(NumberedLines),
    Empty {
        path: String,
    },
    Picture {
        path: String,
        size: String,
        picture: LoadedPicture,
    },
}

/// Lines of a file.
pub(crate) struct NumberedLines {
    /// The number of the first, from 1.
    pub(crate) first: usize,
    /// Without their endings, long ones cut.
    pub(crate) lines: Vec<String>,
    /// The number of the last that was asked for and is there.
    pub(crate) wanted: usize,
    /// How many the file has.
    pub(crate) total: usize,
    pub(crate) encoding: TextEncoding,
    /// How many line endings are CRLF, of how many.
    pub(crate) crlf: (usize, usize),
    /// Whether the last line has no ending.
    pub(crate) open_end: bool,
    /// The size of a file of which only the start was looked at.
    pub(crate) whole_bytes: Option<u64>,
}

impl From<FileViews> for ToolOutput {
    /// Fails if nothing could be read.
    fn from(FileViews(files): FileViews) -> Self {
        let failed = files.iter().all(|(_, seen)| seen.is_err());
        let alone = files.len() == 1;
        let (mut parts, mut images) = (Vec::new(), Vec::new());
        for (name, seen) in files {
            let words = match seen {
                Ok(FileView::Lines(lines)) => lines.render_lines(),
                Ok(FileView::Empty { path }) => format!("`{path}` is empty."),
                Ok(FileView::Picture {
                    path,
                    size,
                    picture,
                }) => {
                    images.push(picture.image);
                    let (format, width, height) = (picture.format, picture.width, picture.height);
                    format!(
                        "`{path}` is an image ({format}, {width} × {height}, {size}), shown below."
                    )
                }
                Err(reason) if alone => reason,
                Err(reason) => format!("[Not read: {reason}]"),
            };
            parts.push(if alone {
                words
            } else {
                format!("{name}\n{words}")
            });
        }
        Self {
            images,
            failed,
            ..Self::done(parts.join("\n\n"))
        }
    }
}

impl NumberedLines {
    /// The numbered lines, and notes in brackets where there is more to know.
    fn render_lines(&self) -> String {
        let end = self.first + self.lines.len().saturating_sub(1);
        let width = self.wanted.to_string().len();
        let numbered = (self.first..)
            .zip(&self.lines)
            .map(|(number, line)| format!("{number:>width$} | {line}"));
        let mut all: Vec<_> = numbered.collect();
        let notes = self.view_notes(end);
        if !notes.is_empty() {
            all.push(format!("[{}]", notes.join(" ")));
        }
        all.join("\n")
    }

    fn view_notes(&self, end: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(size) = self.whole_bytes {
            notes.push(format!(
                "Lines {} to {end} of {} in the first {} of {}. Use execute_command with `sed -n` for what is behind.",
                self.first,
                self.total,
                count_bytes(MAX_FILE_BYTES as u64),
                count_bytes(size)
            ));
        } else if self.first > 1 || end < self.total {
            notes.push(format!("Lines {} to {end} of {}.", self.first, self.total));
        }
        if end < self.wanted {
            notes.push(format!("Read on with start_line {}.", end + 1));
        }
        if self.encoding != TextEncoding::Utf8 {
            notes.push(format!(
                "The file is {}; edits keep that.",
                self.encoding.name()
            ));
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
