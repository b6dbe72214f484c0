//! `read_file`: shows text files, or some of their lines, with line numbers; and pictures.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, RefreshFuture};
use sabir_edit::DecodedText;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileContent, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::file_tracker::FileTracker;
use crate::loaded_image::{ImageFormat, LoadedImage, MAX_IMAGE_BYTES};
use crate::text;
use crate::typed_tool::TypedTool;

use file_view::{FileView, FileViews, LineEndings, NamedView, NumberedLines};
use read_error::ReadError;

mod file_view;
mod read_error;

/// The number of lines of one file that are shown at a time.
const MAX_LINES: usize = 2000;
/// The size above which a line is cut.
const MAX_LINE_BYTES: usize = 2000;
/// The size of the lines of all files together.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// The number of files in one call.
const MAX_FILES: usize = 20;

/// The tool, over the files of a task.
pub(crate) struct ReadFile(pub(crate) Arc<FileTracker>);

/// Read a text file or an image. Each line comes as `NUMBER | LINE`; number and bar are not part of the file.
/// A long file comes in parts; read on with start_line.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFileArguments {
    /// The file, relative to the workspace.
    path: String,
    /// First line to show, from 1.
    #[schemars(range(min = 1))]
    start_line: Option<usize>,
    /// Last line to show.
    #[schemars(range(min = 1))]
    end_line: Option<usize>,
    /// Other files to read, as `PATH` or `PATH:FIRST-LAST`.
    #[serde(default)]
    more_paths: Option<Vec<String>>,
}

/// A file of a call, with the lines that are wanted.
pub(crate) struct RequestedFile {
    path: String,
    lines: LineRange,
}

/// A range of lines, both ends included. The numbers are as the model gave them, so `first` may be
/// 0 or greater than `last`.
#[derive(Debug, Clone, Copy)]
struct LineRange {
    first: usize,
    last: usize,
}

/// The room that is left in the result.
struct OutputBudget {
    text_bytes: usize,
    picture_bytes: usize,
}

impl TypedTool for ReadFile {
    type Arguments = ReadFileArguments;
    type Call = Vec<RequestedFile>;
    type Output = FileViews;
    type Error = ReadError;
    const NAME: &'static str = "read_file";
    const MANUAL: &'static str = include_str!("specs/read_file.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example_arguments() -> Value {
        json!({"path": "src/main.rs", "start_line": 40, "end_line": 80})
    }

    fn prepare_call(&self, arguments: ReadFileArguments) -> Vec<RequestedFile> {
        arguments.into_requested_files(&self.0)
    }

    fn refresh_call(&self, call: &Vec<RequestedFile>) -> Option<RefreshFuture> {
        let paths = call.iter().take(MAX_FILES);
        let paths = paths.map(|requested| requested.path.clone());
        self.0.refresh_buffers(paths.collect())
    }

    fn call_access(&self, call: &Vec<RequestedFile>) -> Access {
        self.0
            .read_access_all(call.iter().map(|requested| requested.path.as_str()))
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: Vec<RequestedFile>,
        _: ProgressSink<'_>,
    ) -> Result<FileViews, ReadError> {
        // Refused as a whole: the model would take a part for everything.
        if call.len() > MAX_FILES {
            return Err(ReadError::TooManyFiles {
                count: call.len(),
                max: MAX_FILES,
            });
        }
        run_blocking(move || {
            let mut budget = OutputBudget {
                text_bytes: MAX_OUTPUT_BYTES,
                picture_bytes: MAX_IMAGE_BYTES,
            };
            let views = call.into_iter().map(|requested| NamedView {
                outcome: read_requested(&self.0, &requested, &mut budget),
                name: requested.path,
            });
            Ok(FileViews(views.collect()))
        })
        .await
    }
}

impl ReadFileArguments {
    /// Returns all files of the call, `path` first.
    fn into_requested_files(self, tracker: &FileTracker) -> Vec<RequestedFile> {
        // Models write `PATH:FIRST-LAST` in `path` too. With explicit lines it is a plain path.
        let first_file = if self.start_line.is_some() || self.end_line.is_some() {
            RequestedFile {
                path: self.path,
                lines: LineRange {
                    first: self.start_line.unwrap_or(1),
                    last: self.end_line.unwrap_or(usize::MAX),
                },
            }
        } else {
            RequestedFile::parse(tracker, &self.path)
        };
        let mut all = vec![first_file];
        all.extend(
            self.more_paths
                .iter()
                .flatten()
                .map(|text| RequestedFile::parse(tracker, text)),
        );
        all
    }
}

impl RequestedFile {
    /// Parses `PATH` or `PATH:FIRST-LAST`. If there is a file with the whole text as its name, it is
    /// a path.
    fn parse(tracker: &FileTracker, text: &str) -> Self {
        let whole = Self {
            path: text.to_owned(),
            lines: LineRange {
                first: 1,
                last: usize::MAX,
            },
        };
        let Some((path, lines)) = text.rsplit_once(':') else {
            return whole;
        };
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else {
            return whole;
        };
        let is_file_name = tracker
            .resolve_path(text)
            .is_ok_and(|real| tracker.workspace().exists(&real).unwrap_or(true));
        if is_file_name {
            whole
        } else {
            Self {
                path: path.to_owned(),
                lines: LineRange { first, last },
            }
        }
    }
}

/// Reads one file of a call, within the budget, and records its version as known to the model.
fn read_requested(
    tracker: &FileTracker,
    requested: &RequestedFile,
    budget: &mut OutputBudget,
) -> Result<FileView, ReadError> {
    let LineRange { first, last } = requested.lines;
    if first == 0 || last < first {
        return Err(ReadError::InvalidRange { first, last });
    }
    let path = tracker.find_path(&requested.path)?;
    let found = match tracker.read_content(&path) {
        Ok(found) => found,
        Err(WorkspaceError::NotAFile {
            found: "a folder", ..
        }) => return Err(ReadError::Folder { path }),
        Err(error) => return Err(tracker.explain_error(error).into()),
    };
    // By the bytes: a picture with a wrong extension is still shown.
    if let Some(format) = ImageFormat::detect(&found.bytes) {
        return view_image(path, &found, format, budget);
    }
    let text = decode_text(&path, &found)?;
    let mut view = view_lines(&path, &found, &text, requested.lines, budget)?;
    if let FileView::Lines(lines) = &mut view {
        lines.is_unsaved = tracker.buffers().unsaved_content(&path).is_some();
    }
    // A part of a file counts as seen: models edit around the lines that they asked for.
    tracker.record_version(
        path,
        found.version,
        (!found.truncated).then_some(text.content.as_str()),
    );
    Ok(view)
}

/// Loads a picture, if it fits the budget.
fn view_image(
    path: WorkPath,
    found: &FileContent,
    format: ImageFormat,
    budget: &mut OutputBudget,
) -> Result<FileView, ReadError> {
    let size_bytes = found.size_bytes;
    let picture = match LoadedImage::from_bytes(format, &found.bytes) {
        Ok(picture) => picture,
        Err(reason) => {
            return Err(ReadError::UnusableImage {
                path,
                format: format.name,
                size_bytes,
                reason,
            });
        }
    };
    if found.bytes.len() > budget.picture_bytes {
        return Err(ReadError::NoRoomForPicture {
            path,
            format: format.name,
            size_bytes,
        });
    }
    budget.picture_bytes -= found.bytes.len();
    Ok(FileView::Image {
        path,
        size_bytes,
        picture,
    })
}

/// Decodes a text file. Only whole lines of a truncated one are decoded.
fn decode_text(path: &WorkPath, found: &FileContent) -> Result<DecodedText, ReadError> {
    // The text of a PDF is compressed, although its start looks like text.
    if found.bytes.starts_with(b"%PDF-") {
        return Err(ReadError::Pdf {
            path: path.clone(),
            size_bytes: found.size_bytes,
        });
    }
    let mut bytes = found.bytes.as_slice();
    if found.truncated {
        // The end may have cut a character, which would make the text look binary.
        let end = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(bytes.len(), |at| at + 1);
        bytes = bytes.get(..end).unwrap_or(bytes);
    }
    DecodedText::decode(bytes).map_err(|_| ReadError::Binary {
        path: path.clone(),
        size_bytes: found.size_bytes,
    })
}

/// Selects the wanted lines, as many as fit the budget.
fn view_lines(
    path: &WorkPath,
    found: &FileContent,
    text: &DecodedText,
    range: LineRange,
    budget: &mut OutputBudget,
) -> Result<FileView, ReadError> {
    let total = text.content.lines().count();
    if total == 0 {
        return Ok(FileView::Empty { path: path.clone() });
    }
    if range.first > total {
        return Err(ReadError::NoSuchLine {
            path: path.clone(),
            first: range.first,
            total,
        });
    }
    if budget.text_bytes == 0 {
        return Err(ReadError::NoRoomForText {
            path: path.clone(),
            total,
        });
    }
    let wanted = range.last.min(total);
    let mut lines = Vec::new();
    for (number, line) in (1..=wanted)
        .zip(text.content.lines())
        .skip(range.first - 1)
        .take(MAX_LINES)
    {
        let line = text::cut_line(line, MAX_LINE_BYTES);
        // The line with its number, ` | ` and the line ending.
        let needed = line.len() + wanted.to_string().len() + 4;
        // The first line is shown in any case, so that reading on always makes progress.
        if number > range.first && needed > budget.text_bytes {
            budget.text_bytes = 0;
            break;
        }
        budget.text_bytes = budget.text_bytes.saturating_sub(needed);
        lines.push(line);
    }
    Ok(FileView::Lines(NumberedLines {
        first: range.first,
        lines,
        wanted,
        total,
        encoding: text.encoding,
        endings: LineEndings {
            crlf: text.content.matches("\r\n").count(),
            all: text.content.matches('\n').count(),
        },
        has_open_end: !found.truncated && !text.content.ends_with('\n'),
        whole_bytes: found.truncated.then_some(found.size_bytes),
        is_unsaved: false,
    }))
}
