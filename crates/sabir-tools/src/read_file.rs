//! `read_file`: text files, or some lines of them, with their numbers; and pictures.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink};
use sabir_edit::DecodedText;
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileContent, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::file_tracker::FileTracker;
use crate::picture::{self, LoadedPicture};
use crate::text::{self, MAX_FILE_BYTES, count_bytes, count_noun};
use crate::typed_tool::TypedTool;

pub(crate) use file_view::{FileView, FileViews, NumberedLines};

mod file_view;

const MAX_LINES: usize = 2000;
const MAX_LINE_BYTES: usize = 2000;
/// Of all files together.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
const MAX_FILES: usize = 20;

/// The tool.
pub(crate) struct ReadFile(pub(crate) Arc<FileTracker>);

/// Read a text file or look at an image. Each line comes as `NUMBER | LINE`; number and bar are not part of the file.
/// A long file comes in parts; read on with start_line.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// First line to show, counted from 1.
    #[schemars(range(min = 1))]
    start_line: Option<usize>,
    /// Last line to show.
    #[schemars(range(min = 1))]
    end_line: Option<usize>,
    /// Other files to read too, as `PATH` or `PATH:FIRST-LAST`.
    #[serde(default)]
    more_paths: Option<Vec<String>>,
}

/// A file and the lines of it that are wanted.
struct RequestedLines {
    path: String,
    first: usize,
    last: usize,
}

/// How much may still be shown.
struct OutputBudget {
    text_bytes: usize,
    picture_bytes: usize,
}

impl TypedTool for ReadFile {
    type Input = Input;
    type Output = FileViews;
    const NAME: &'static str = "read_file";
    const MANUAL: &'static str = include_str!("specs/read_file.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"path": "src/main.rs", "start_line": 40, "end_line": 80})
    }

    fn access(&self, input: &Input) -> Access {
        let wanted = input.requested_files(&self.0);
        self.0
            .read_access_all(wanted.iter().map(|wanted| wanted.path.as_str()))
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<FileViews, String> {
        text::run_blocking(move || {
            let wanted = input.requested_files(&self.0);
            if wanted.len() > MAX_FILES {
                return Err(format!(
                    "That is {}; read at most {MAX_FILES} at a time.",
                    count_noun(wanted.len(), "file")
                ));
            }
            let mut room = OutputBudget {
                text_bytes: MAX_OUTPUT_BYTES,
                picture_bytes: picture::MAX_BYTES,
            };
            let files = wanted.into_iter().map(|wanted| {
                let seen = read_requested(&self.0, &wanted, &mut room);
                (wanted.path, seen)
            });
            Ok(FileViews(files.collect()))
        })
        .await
    }
}

impl Input {
    fn requested_files(&self, ground: &FileTracker) -> Vec<RequestedLines> {
        let (first, last) = (
            self.start_line.unwrap_or(1),
            self.end_line.unwrap_or(usize::MAX),
        );
        // Where no lines are asked for, they may stand behind this path as behind the others.
        let lines_given = self.start_line.is_some() || self.end_line.is_some();
        let whole = || RequestedLines {
            path: self.path.clone(),
            first,
            last,
        };
        let mut all = vec![if lines_given {
            whole()
        } else {
            RequestedLines::parse(ground, &self.path)
        }];
        all.extend(
            self.more_paths
                .iter()
                .flatten()
                .map(|text| RequestedLines::parse(ground, text)),
        );
        all
    }
}

impl RequestedLines {
    /// `PATH` or `PATH:FIRST-LAST`; a file of that very name goes before.
    fn parse(ground: &FileTracker, text: &str) -> Self {
        let whole = Self {
            path: text.to_owned(),
            first: 1,
            last: usize::MAX,
        };
        let Some((path, lines)) = text.rsplit_once(':') else {
            return whole;
        };
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else {
            return whole;
        };
        let is_name = ground
            .resolve_path(text)
            .is_ok_and(|real| ground.workspace().exists(&real).unwrap_or(true));
        if is_name {
            whole
        } else {
            Self {
                path: path.to_owned(),
                first,
                last,
            }
        }
    }
}

fn read_requested(
    ground: &FileTracker,
    wanted: &RequestedLines,
    room: &mut OutputBudget,
) -> Result<FileView, String> {
    let RequestedLines { path, first, last } = wanted;
    if *first == 0 || last < first {
        return Err(format!(
            "Lines {first} to {last} are no lines: start_line is at least 1, end_line at least start_line."
        ));
    }
    let path = ground
        .resolve_path(path)
        .map_err(|error| ground.explain_error(&error))?;
    let found = ground
        .workspace()
        .read_file(&path, MAX_FILE_BYTES)
        .map_err(|error| match error {
            WorkspaceError::NotAFile {
                found: "a folder", ..
            } => format!("`{path}` is a folder. Use list_files for it."),
            error => ground.explain_error(&error),
        })?;
    if let Some(format) = picture::detect_format(&found.bytes) {
        return load_image(&path, &found, format, room);
    }
    let text = decode_text(&path, &found)?;
    let seen = select_lines(&path, &found, &text, (*first, *last), room)?;
    ground.record_version(
        path,
        found.version,
        (!found.truncated).then_some(text.content.as_str()),
    );
    Ok(seen)
}

fn load_image(
    path: &WorkPath,
    found: &FileContent,
    format: (&'static str, &'static str),
    room: &mut OutputBudget,
) -> Result<FileView, String> {
    let size = count_bytes(found.size_bytes);
    let picture = LoadedPicture::new(format, &found.bytes).map_err(|reason| {
        format!(
            "`{path}` is an image ({}, {size}), and cannot be shown: {reason}. Use execute_command to look into it, or to make \
             another one of it.",
            format.0
        )
    })?;
    if found.bytes.len() > room.picture_bytes {
        return Err(format!(
            "`{path}` is an image ({}, {size}), for which there was no room. Read it by itself.",
            format.0
        ));
    }
    room.picture_bytes -= found.bytes.len();
    Ok(FileView::Picture {
        path: path.to_string(),
        size,
        picture,
    })
}

/// What the file says.
fn decode_text(path: &WorkPath, found: &FileContent) -> Result<DecodedText, String> {
    let size = count_bytes(found.size_bytes);
    if found.bytes.starts_with(b"%PDF-") {
        return Err(format!(
            "`{path}` is a PDF ({size}), which read_file cannot show. Use execute_command with `pdftotext -layout FILE -`."
        ));
    }
    let mut whole = found.bytes.as_slice();
    if found.truncated {
        // A character may have been cut; a line may, anyway.
        let end = whole
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(whole.len(), |at| at + 1);
        whole = whole.get(..end).unwrap_or(whole);
    }
    DecodedText::decode(whole).map_err(|_| {
        format!(
            "`{path}` is a binary file ({size}), which read_file cannot show. Use execute_command, with `file` or `xxd` for \
             instance."
        )
    })
}

/// The lines, as many as fit.
fn select_lines(
    path: &WorkPath,
    found: &FileContent,
    text: &DecodedText,
    (first, last): (usize, usize),
    room: &mut OutputBudget,
) -> Result<FileView, String> {
    let total = text.content.lines().count();
    if total == 0 {
        return Ok(FileView::Empty {
            path: path.to_string(),
        });
    }
    if first > total {
        return Err(format!(
            "`{path}` has {}, so there is no line {first}. Give a smaller start_line.",
            count_noun(total, "line")
        ));
    }
    if room.text_bytes == 0 {
        return Err(format!(
            "`{path}` has {}, for which there was no room. Read it by itself.",
            count_noun(total, "line")
        ));
    }
    let wanted = last.min(total);
    let mut lines = Vec::new();
    for (number, line) in (1..=wanted)
        .zip(text.content.lines())
        .skip(first - 1)
        .take(MAX_LINES)
    {
        let line = text::cut_line(line, MAX_LINE_BYTES);
        // The number, the bar and the end of the line.
        let needed = line.len() + wanted.to_string().len() + 4;
        if number > first && needed > room.text_bytes {
            room.text_bytes = 0;
            break;
        }
        room.text_bytes = room.text_bytes.saturating_sub(needed);
        lines.push(line);
    }
    let endings = text.content.matches('\n').count();
    Ok(FileView::Lines(NumberedLines {
        first,
        lines,
        wanted,
        total,
        encoding: text.encoding,
        crlf: (text.content.matches("\r\n").count(), endings),
        open_end: !found.truncated && !text.content.ends_with('\n'),
        whole_bytes: found.truncated.then_some(found.size_bytes),
    }))
}
