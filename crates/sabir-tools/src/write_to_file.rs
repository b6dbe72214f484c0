//! `write_to_file`: writes a whole file, new or in place of an old one.

use std::sync::Arc;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, RefreshFuture, ToolOutput};
use sabir_edit::{DecodedText, TextEncoding};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{FileChange, FileContent, WorkPath, WorkspaceError, WritePrecondition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::edit_error::EditError;
use crate::editor::WriteDestination;
use crate::file_tracker::{FileTracker, decode_whole};
use crate::preconditions;
use crate::preview;
use crate::text::{self, count_noun};
use crate::text_file::encode_content;
use crate::typed_tool::TypedTool;
use crate::write_target::WriteTarget;

/// The tool, over the files of a task.
pub(crate) struct WriteToFile(pub(crate) Arc<FileTracker>);

/// Write a whole file: a new one, or a new content for an old one. Missing folders are made. Change parts of a file
/// with the edit tool instead.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteToFileArguments {
    /// The file, relative to the workspace.
    path: String,
    /// All that the file is to hold; nothing may be left out.
    content: String,
}

/// A prepared call.
pub(crate) struct WriteToFileCall {
    target: WriteTarget,
    content: String,
    /// True if the content was written on lines of its own, so that its last line end is missing.
    is_on_own_lines: bool,
}

/// A file after its write.
pub(crate) struct WrittenFile {
    path: WorkPath,
    /// The number of lines of the new content.
    lines: usize,
    before: PreviousContent,
    /// True if the file had CRLF line endings and has others now.
    lost_crlf: bool,
    /// True if a line end was added to the content.
    line_end_added: bool,
    written: WriteDestination,
}

/// The content of a file before it was written.
enum PreviousContent {
    /// There was no file.
    Absent,
    /// The file had the new content already, so it was not written.
    Same,
    /// Other text.
    Lines {
        /// The number of lines.
        count: usize,
        /// True if the model had seen the file.
        was_read: bool,
    },
    /// No text, or more than is read.
    Bytes {
        /// The size of the file.
        count: u64,
        /// True if the model had seen the file.
        was_read: bool,
    },
}

impl TypedTool for WriteToFile {
    type Arguments = WriteToFileArguments;
    type Call = WriteToFileCall;
    type Output = WrittenFile;
    type Error = EditError;
    const NAME: &'static str = "write_to_file";
    const MANUAL: &'static str = include_str!("specs/write_to_file.md");
    const GROUP: ToolGroup = ToolGroup::Edit;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({"path": "docs/plan.md", "content": "# Plan\n\n- Parse\n- Check\n"})
    }

    fn prepare_call(&self, arguments: WriteToFileArguments) -> WriteToFileCall {
        WriteToFileCall {
            target: WriteTarget::resolve(&self.0, arguments.path),
            content: arguments.content,
            is_on_own_lines: false,
        }
    }

    fn note_values_on_own_lines(call: &mut WriteToFileCall, names: &[String]) {
        call.is_on_own_lines = names.iter().any(|name| name == "content");
    }

    fn refresh_call(&self, call: &WriteToFileCall) -> Option<RefreshFuture> {
        self.0
            .refresh_buffers(vec![call.target.written_path().to_owned()])
    }

    fn call_access(&self, call: &WriteToFileCall) -> Access {
        call.target.write_access()
    }

    fn call_preconditions(&self, call: &WriteToFileCall) -> Preconditions {
        preconditions::write_preconditions(&self.0, [call.target.written_path()])
    }

    fn preview_call(&self, call: &WriteToFileCall) -> Option<String> {
        preview::preview_edit(&self.0, call.target.written_path(), |old| {
            let added = missing_line_end(&call.content, call.is_on_own_lines, Some(old));
            Some(format!("{}{added}", call.content))
        })
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: WriteToFileCall,
        _: ProgressSink<'_>,
    ) -> Result<WrittenFile, EditError> {
        run_blocking(move || write_file(&self.0, call)).await
    }
}

impl From<WrittenFile> for ToolOutput {
    fn from(written: WrittenFile) -> Self {
        let path = &written.path;
        let lines = count_noun(written.lines, "line");
        let mut message = match written.before {
            PreviousContent::Absent => format!("Wrote {lines} to the new file `{path}`."),
            PreviousContent::Same => {
                format!("`{path}` holds exactly this content already; nothing was written.")
            }
            PreviousContent::Lines { count, was_read } => {
                let old = count_noun(count, "line");
                let unread = unread_note(was_read);
                format!("Wrote {lines} to `{path}`, in place of its {old}{unread}.")
            }
            PreviousContent::Bytes { count, was_read } => {
                let old = text::count_bytes(count);
                let unread = unread_note(was_read);
                format!("Wrote {lines} to `{path}`, in place of its {old}{unread}.")
            }
        };
        if written.lost_crlf {
            message.push_str("\n[Its lines ended in CRLF, and do not any more.]");
        }
        if written.line_end_added {
            message.push_str("\n[Its last line ends with a newline.]");
        }
        if let Some(note) = written.written.note() {
            message.push_str(&format!("\n{note}"));
        }
        Self::done(message)
    }
}

/// Returns the line end to append to content that was written on lines of its own: if the file is new, or ended with a line end before.
fn missing_line_end(content: &str, is_on_own_lines: bool, old: Option<&str>) -> &'static str {
    let had_line_end = old.is_none_or(|old| old.is_empty() || old.ends_with('\n'));
    if !is_on_own_lines || !had_line_end || content.is_empty() || content.ends_with('\n') {
        return "";
    }
    if content.contains("\r\n") {
        "\r\n"
    } else {
        "\n"
    }
}

/// Returns the remark on a file that was replaced unseen.
fn unread_note(was_read: bool) -> &'static str {
    if was_read {
        ""
    } else {
        ", which you had not read"
    }
}

/// Writes the file in the encoding that it has, or as UTF-8 if it is new.
fn write_file(tracker: &FileTracker, call: WriteToFileCall) -> Result<WrittenFile, EditError> {
    let WriteToFileCall {
        target,
        content,
        is_on_own_lines,
    } = call;
    let path = target.confirm_file(tracker)?;
    let old = match tracker.read_content(&path) {
        Ok(old) => Some(old),
        Err(WorkspaceError::Missing { .. }) => None,
        Err(error) => return Err(tracker.explain_error(error).into()),
    };
    let text = old.as_ref().and_then(decode_whole);
    let old_text = text.as_ref().map(|text| text.content.as_str());
    let added = missing_line_end(&content, is_on_own_lines, old_text);
    let line_end_added = !added.is_empty();
    let content = content + added;
    let lines = content.lines().count();
    // A new file is written only if none has appeared since.
    let Some(old) = old else {
        let change = FileChange::write(
            path.clone(),
            content.as_bytes().to_vec(),
            WritePrecondition::Missing,
        );
        let written = tracker.apply_changes(&[change], &[&content])?;
        return Ok(WrittenFile {
            path,
            lines,
            before: PreviousContent::Absent,
            lost_crlf: false,
            line_end_added,
            written,
        });
    };
    tracker.check_version(
        &path,
        old.version,
        text.as_ref().map(|text| text.content.as_str()),
    )?;
    let encoding = text
        .as_ref()
        .map_or(TextEncoding::Utf8, |text| text.encoding);
    let bytes = encode_content(&path, encoding, &content)?;
    if old.bytes == bytes && !old.truncated {
        // The model wrote this content, so it knows the file as well as if it had been written.
        tracker.record_version(path.clone(), old.version, Some(&content));
        return Ok(WrittenFile {
            path,
            lines,
            before: PreviousContent::Same,
            lost_crlf: false,
            line_end_added,
            written: WriteDestination::Disk,
        });
    }
    // Before the write, after which the model knows the file in any case.
    let before = previous_content(&old, text.as_ref(), tracker.is_known(&path));
    let lost_crlf =
        text.is_some_and(|text| text.content.contains("\r\n")) && !content.contains("\r\n");
    let change = FileChange::write(path.clone(), bytes, WritePrecondition::Version(old.version));
    let written = tracker.apply_changes(&[change], &[&content])?;
    Ok(WrittenFile {
        path,
        lines,
        before,
        lost_crlf,
        line_end_added,
        written,
    })
}

/// Measures the old content: in lines if it is text, otherwise in bytes.
fn previous_content(
    old: &FileContent,
    text: Option<&DecodedText>,
    was_read: bool,
) -> PreviousContent {
    match text {
        Some(text) => PreviousContent::Lines {
            count: text.content.lines().count(),
            was_read,
        },
        None => PreviousContent::Bytes {
            count: old.size_bytes,
            was_read,
        },
    }
}
