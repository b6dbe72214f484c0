//! Renders the files that were read, with line numbers and remarks.

use sabir_agent::ToolOutput;
use sabir_edit::TextEncoding;
use sabir_workspace::WorkPath;

use super::read_error::ReadError;
use crate::loaded_image::LoadedImage;
use crate::text::{MAX_FILE_BYTES, count_bytes};

/// The files of a call, in its order.
pub(crate) struct FileViews(pub(crate) Vec<NamedView>);

/// A file under the name that the model gave it.
pub(crate) struct NamedView {
    /// The path as the model wrote it, without line numbers.
    pub(crate) name: String,
    /// The part that was read, or the reason that nothing was.
    pub(crate) outcome: Result<FileView, ReadError>,
}

/// The part of a file that was read.
pub(crate) enum FileView {
    /// Lines of a text file.
    Lines(NumberedLines),
    /// A file without content.
    Empty {
        /// The file.
        path: WorkPath,
    },
    /// A picture.
    Image {
        /// The file.
        path: WorkPath,
        /// The size of the file.
        size_bytes: u64,
        /// The picture.
        picture: LoadedImage,
    },
}

/// Lines of a text file.
pub(crate) struct NumberedLines {
    /// The number of the first line, from 1.
    pub(crate) first: usize,
    /// The lines without their endings; long ones are cut.
    pub(crate) lines: Vec<String>,
    /// The number of the last line that was wanted and exists.
    pub(crate) wanted: usize,
    /// The number of lines of the file.
    pub(crate) total: usize,
    /// The encoding of the file.
    pub(crate) encoding: TextEncoding,
    /// The line endings of the whole file.
    pub(crate) endings: LineEndings,
    /// True if the last line has no ending.
    pub(crate) has_open_end: bool,
    /// The size of a file of which only the start was read; `None` if all of it was.
    pub(crate) whole_bytes: Option<u64>,
    /// True if the editor has this text and has not saved it.
    pub(crate) is_unsaved: bool,
}

/// The numbers of line endings in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineEndings {
    /// The number of CRLF endings.
    pub(crate) crlf: usize,
    /// The number of all endings.
    pub(crate) all: usize,
}

impl From<FileViews> for ToolOutput {
    /// Shows each file under its name. The output is a failure if no file could be read.
    fn from(FileViews(views): FileViews) -> Self {
        let failed = views.iter().all(|view| view.outcome.is_err());
        let is_single = views.len() == 1;
        let mut parts = Vec::new();
        let mut images = Vec::new();
        for NamedView { name, outcome } in views {
            let content = match outcome {
                Ok(FileView::Lines(lines)) => lines.render_lines(),
                Ok(FileView::Empty { path }) => format!("`{path}` is empty."),
                Ok(FileView::Image {
                    path,
                    size_bytes,
                    picture,
                }) => {
                    images.push(picture.image);
                    format!(
                        "`{path}` is an image ({}, {} × {}, {}), shown below.",
                        picture.format.name,
                        picture.width,
                        picture.height,
                        count_bytes(size_bytes)
                    )
                }
                Err(error) if is_single => error.to_string(),
                Err(error) => format!("[Not read: {error}]"),
            };
            parts.push(if is_single {
                content
            } else {
                format!("{name}\n{content}")
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
    /// Renders the numbered lines, and remarks in brackets where there is more to know.
    fn render_lines(&self) -> String {
        let end = self.first + self.lines.len().saturating_sub(1);
        // Uses the width of the last wanted number, not of the last shown one, so that consecutive
        // parts of a file align.
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

    /// Returns the remarks; `end` is the last line that is shown.
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
        if self.is_unsaved {
            notes.push(
                "This is the text in the user's editor, which is not saved: commands see the old file."
                    .to_owned(),
            );
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
        // The numbered lines do not show their endings, and an edit has to match them.
        let LineEndings { crlf, all } = self.endings;
        if crlf > 0 && crlf == all {
            notes.push("Lines end in CRLF.".to_owned());
        } else if crlf > 0 {
            notes.push(format!("{crlf} of {all} lines end in CRLF."));
        }
        if self.has_open_end && end == self.total {
            notes.push("No newline at the end.".to_owned());
        }
        notes
    }
}
