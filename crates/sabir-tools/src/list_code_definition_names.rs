//! `list_code_definition_names`: lists the functions, types and so on that source files define.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{EntryKind, ListOptions, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{WorkerError, run_blocking};
use crate::definitions::{self, FileOutline, Language};
use crate::file_error::FileError;
use crate::file_tracker::FileTracker;
use crate::text::count_noun;
use crate::typed_tool::TypedTool;

/// The size above which a file is not parsed.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// The time to parse all files of a call.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The size of the result.
const MAX_OUTPUT_BYTES: usize = 32 << 10;
/// The number of files of a folder that are parsed.
const MAX_FILES: usize = 200;
/// The number of entries of a folder that are considered.
const MAX_ENTRIES: usize = 5000;
/// The length of a line above which a file is taken for the output of a minifier.
const MAX_LINE_BYTES: usize = 20_000;
/// The size of a file's start in which generators mark their files.
const HEAD_BYTES: usize = 1000;
/// The number of files whose omission is explained.
const MAX_OMISSIONS: usize = 20;

/// The tool, over the files of a task.
pub(crate) struct ListCodeDefinitionNames(pub(crate) Arc<FileTracker>);

/// List what a source file, or each file of a folder, defines: functions, types and so on, with their lines.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDefinitionsArguments {
    /// File or folder, relative to the workspace.
    path: String,
}

/// A failure to list definitions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutlineError {
    /// The extension of the file belongs to no language that can be parsed.
    #[error(
        "`{path}` is in no language that this tool knows by its name. It knows {}. Use search_files or read_file.",
        definitions::known_languages()
    )]
    UnknownLanguage {
        /// The file.
        path: WorkPath,
    },
    /// The file was not parsed.
    #[error("`{path}` {reason}. Use search_files or read_file.")]
    Unparsed {
        /// The file.
        path: WorkPath,
        /// The reason.
        reason: UnparsedReason,
    },
    /// The path or the file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// The reason that a file was not parsed. The text continues a sentence that begins with the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnparsedReason {
    /// The file is too large.
    #[error("has {0} bytes, more than the {MAX_SOURCE_BYTES} that are parsed")]
    TooLarge(u64),
    /// The file has a NUL byte.
    #[error("is a binary file")]
    Binary,
    /// The file has a line that no person wrote.
    #[error("has lines too long for source text, as minified files have")]
    Minified,
    /// The time of the call is over.
    #[error("takes too long to parse")]
    TooSlow,
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] WorkspaceError),
}

impl TypedTool for ListCodeDefinitionNames {
    type Arguments = ListDefinitionsArguments;
    type Call = ListDefinitionsArguments;
    type Output = ToolOutput;
    type Error = OutlineError;
    const NAME: &'static str = "list_code_definition_names";
    const MANUAL: &'static str = include_str!("specs/list_code_definition_names.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example_arguments() -> Value {
        json!({"path": "src/main.rs"})
    }

    fn prepare_call(&self, arguments: ListDefinitionsArguments) -> ListDefinitionsArguments {
        arguments
    }

    fn call_access(&self, call: &ListDefinitionsArguments) -> Access {
        self.0.read_access(&call.path)
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: ListDefinitionsArguments,
        _: ProgressSink<'_>,
    ) -> Result<ToolOutput, OutlineError> {
        run_blocking(move || list_definitions(&self.0, &call.path).map(ToolOutput::done)).await
    }
}

/// Lists the definitions in a file, or in each file of a folder.
fn list_definitions(tracker: &FileTracker, path: &str) -> Result<String, OutlineError> {
    let path = tracker.find_path(path)?;
    let found = tracker
        .workspace()
        .metadata(&path)
        .map_err(|error| tracker.explain_error(error))?;
    if found.kind == EntryKind::Folder {
        folder_definitions(tracker, &path)
    } else {
        file_definitions(tracker, path)
    }
}

/// Lists the definitions in one file.
fn file_definitions(tracker: &FileTracker, path: WorkPath) -> Result<String, OutlineError> {
    let Some(language) = Language::for_file(&path.to_string()) else {
        return Err(OutlineError::UnknownLanguage { path });
    };
    let deadline = Instant::now() + MAX_TIME;
    match outline_file(tracker, &path, language, deadline) {
        Err(UnparsedReason::Unreadable(error)) => Err(tracker.explain_error(error).into()),
        Err(reason) => Err(OutlineError::Unparsed { path, reason }),
        Ok(outline) if outline.definitions.is_empty() => Ok(format!(
            "`{path}` defines nothing that is listed here.{}",
            parse_note(&outline)
        )),
        Ok(outline) => {
            let mut text = OutlineText::default();
            text.push_file(&path, &outline);
            Ok(text.into_text("Read the file for the rest."))
        }
    }
}

/// Lists the definitions in each file directly in a folder.
fn folder_definitions(tracker: &FileTracker, folder: &WorkPath) -> Result<String, OutlineError> {
    let options = ListOptions {
        max_entries: MAX_ENTRIES,
        ..ListOptions::default()
    };
    let listing = tracker
        .workspace()
        .list_folder(folder, &options)
        .map_err(|error| tracker.explain_error(error))?;
    let files = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File);
    let sources: Vec<_> = files
        .filter_map(|entry| {
            Language::for_file(&entry.path.to_string()).map(|language| (&entry.path, language))
        })
        .collect();
    if sources.is_empty() {
        return Ok(format!(
            "No file directly in `{folder}` is in a language that this tool knows: {}. For the folders below, name one of them; \
             list_files shows them.",
            definitions::known_languages()
        ));
    }
    let deadline = Instant::now() + MAX_TIME;
    let mut outlines = OutlineText::default();
    let mut omissions = Vec::new();
    for (path, language) in sources.iter().take(MAX_FILES) {
        match outline_file(tracker, path, language, deadline) {
            Ok(outline) if outline.definitions.is_empty() => {}
            Ok(_) if outlines.is_full() => outlines.omitted_files += 1,
            // A generated file would push out those that people edit.
            Ok(outline) if is_generated(tracker, path) => {
                omissions.push(format!(
                    "`{path}` is generated ({})",
                    count_noun(outline.definitions.len(), "definition")
                ));
            }
            Ok(outline) => outlines.push_file(path, &outline),
            Err(reason) => omissions.push(format!("`{path}` {reason}")),
        }
    }
    outlines.omitted_files += sources.len().saturating_sub(MAX_FILES);
    if outlines.text.is_empty() && omissions.is_empty() {
        return Ok(format!(
            "The {} directly in `{folder}` define nothing that is listed here.",
            count_noun(sources.len(), "source file")
        ));
    }
    let mut text = outlines.into_text("Name the file that you want.");
    for omission in omissions.iter().take(MAX_OMISSIONS) {
        text.push_str(&format!("\n[{omission}.]"));
    }
    Ok(text.trim_start().to_owned())
}

/// Reads and parses a file, if it looks like source text.
fn outline_file(
    tracker: &FileTracker,
    path: &WorkPath,
    language: &Language,
    deadline: Instant,
) -> Result<FileOutline, UnparsedReason> {
    let found = tracker.workspace().read_file(path, MAX_SOURCE_BYTES)?;
    if found.truncated {
        return Err(UnparsedReason::TooLarge(found.size_bytes));
    }
    let text = String::from_utf8_lossy(&found.bytes);
    if text.contains('\0') {
        return Err(UnparsedReason::Binary);
    }
    if text.lines().any(|line| line.len() > MAX_LINE_BYTES) {
        return Err(UnparsedReason::Minified);
    }
    definitions::parse_outline(&text, language, deadline).ok_or(UnparsedReason::TooSlow)
}

/// Reports whether the file says that a program wrote it.
fn is_generated(tracker: &FileTracker, path: &WorkPath) -> bool {
    let start = tracker
        .workspace()
        .read_file(path, HEAD_BYTES)
        .map(|found| found.bytes)
        .unwrap_or_default();
    let start = String::from_utf8_lossy(&start);
    ["@generated", "DO NOT EDIT", "Code generated by"]
        .iter()
        .any(|mark| start.contains(mark))
}

/// The outlines of files, up to the size of the result.
#[derive(Default)]
struct OutlineText {
    text: String,
    /// The number of definitions of the last file that did not fit.
    omitted_definitions: usize,
    /// The number of whole files that did not fit.
    omitted_files: usize,
}

impl OutlineText {
    /// Reports whether another file has no room.
    fn is_full(&self) -> bool {
        self.omitted_definitions > 0 || self.text.len() >= MAX_OUTPUT_BYTES
    }

    /// Adds a file, `LINES: SIGNATURE` for each definition, indented by depth.
    fn push_file(&mut self, path: &WorkPath, outline: &FileOutline) {
        self.text.push_str(&format!(
            "{}{path}{}\n",
            if self.text.is_empty() { "" } else { "\n" },
            parse_note(outline)
        ));
        for definition in &outline.definitions {
            let lines = if definition.first_line == definition.last_line {
                definition.first_line.to_string()
            } else {
                format!("{}-{}", definition.first_line, definition.last_line)
            };
            let line = format!(
                "{}{lines}: {}\n",
                "  ".repeat(definition.depth),
                definition.signature
            );
            if self.text.len() + line.len() > MAX_OUTPUT_BYTES {
                self.omitted_definitions += 1;
            } else {
                self.text.push_str(&line);
            }
        }
    }

    /// Returns the text, with a note about what did not fit and the hint for it.
    fn into_text(mut self, hint: &str) -> String {
        let mut missing = Vec::new();
        if self.omitted_definitions > 0 {
            missing.push(count_noun(self.omitted_definitions, "definition"));
        }
        if self.omitted_files > 0 {
            missing.push(count_noun(self.omitted_files, "more file"));
        }
        if !missing.is_empty() {
            self.text
                .push_str(&format!("[{} left out. {hint}]", missing.join(" and ")));
        }
        self.text.trim_end().to_owned()
    }
}

/// Returns the remark on a file that does not follow its grammar everywhere.
fn parse_note(outline: &FileOutline) -> &'static str {
    if outline.has_errors {
        " [has parts that could not be parsed; what they define may be missing]"
    } else {
        ""
    }
}
