//! `list_code_definition_names`: what source files define.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{EntryKind, ListOptions, WorkPath, WorkspaceError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::definitions::{self, FileOutline, Language};
use crate::file_tracker::FileTracker;
use crate::text::{self, count_noun};
use crate::typed_tool::TypedTool;

/// The largest file that is parsed.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// For all files of a call.
const MAX_TIME: Duration = Duration::from_secs(5);
const MAX_OUTPUT_BYTES: usize = 32 << 10;
/// Files of a folder that are parsed.
const MAX_FILES: usize = 200;
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 5000;
/// Written by a program that leaves out line ends.
const MAX_LINE_BYTES: usize = 20_000;
/// Where a file says that a program wrote it.
const HEAD_BYTES: usize = 1000;

/// The tool.
pub(crate) struct ListCodeDefinitionNames(pub(crate) Arc<FileTracker>);

/// List what a source file, or each file of a folder, defines: functions, types and so on, with their lines.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// File or folder, relative to the workspace.
    path: String,
}

/// What can be said of a file.
enum OutlineResult {
    Parsed(FileOutline),
    /// Why there is nothing.
    Skipped(String),
}

impl TypedTool for ListCodeDefinitionNames {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "list_code_definition_names";
    const MANUAL: &'static str = include_str!("specs/list_code_definition_names.md");
    const GROUP: ToolGroup = ToolGroup::Read;
    const READS_ONLY: bool = true;

    fn example() -> Value {
        json!({"path": "src/main.rs"})
    }

    fn access(&self, input: &Input) -> Access {
        self.0.read_access(&input.path)
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<ToolOutput, String> {
        text::run_blocking(move || list_definitions(&self.0, &input).map(ToolOutput::done)).await
    }
}

fn list_definitions(ground: &FileTracker, input: &Input) -> Result<String, String> {
    let path = ground
        .resolve_path(&input.path)
        .map_err(|error| ground.explain_error(&error))?;
    let found = ground
        .workspace()
        .metadata(&path)
        .map_err(|error| ground.explain_error(&error))?;
    if found.kind == EntryKind::Folder {
        folder_definitions(ground, &path)
    } else {
        file_definitions(ground, &path)
    }
}

fn file_definitions(ground: &FileTracker, path: &WorkPath) -> Result<String, String> {
    let Some(language) = Language::for_file(&path.to_string()) else {
        return Err(format!(
            "`{path}` is in no language that this tool knows by its name. It knows {}. Use search_files or read_file.",
            definitions::known_languages()
        ));
    };
    match outline_file(ground, path, language, Instant::now() + MAX_TIME)
        .map_err(|error| ground.explain_error(&error))?
    {
        OutlineResult::Skipped(why) => {
            Err(format!("`{path}` {why}. Use search_files or read_file."))
        }
        OutlineResult::Parsed(outline) if outline.definitions.is_empty() => Ok(format!(
            "`{path}` defines nothing that is listed here.{}",
            parse_note(&outline)
        )),
        OutlineResult::Parsed(outline) => {
            let mut words = OutlineText::default();
            words.push_file(path, &outline);
            Ok(words.finish("Read the file for the rest."))
        }
    }
}

fn folder_definitions(ground: &FileTracker, folder: &WorkPath) -> Result<String, String> {
    let options = ListOptions {
        max_entries: MAX_ENTRIES,
        ..ListOptions::default()
    };
    let listing = ground
        .workspace()
        .list_folder(folder, &options)
        .map_err(|error| ground.explain_error(&error))?;
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
    let (mut words, mut passed) = (OutlineText::default(), Vec::new());
    for (path, language) in sources.iter().take(MAX_FILES) {
        match outline_file(ground, path, language, deadline) {
            Ok(OutlineResult::Parsed(outline)) if outline.definitions.is_empty() => {}
            Ok(OutlineResult::Parsed(_)) if words.is_full() => words.left_out += 1,
            Ok(OutlineResult::Parsed(outline)) if is_generated(ground, path) => {
                passed.push(format!(
                    "`{path}` is generated ({})",
                    count_noun(outline.definitions.len(), "definition")
                ));
            }
            Ok(OutlineResult::Parsed(outline)) => words.push_file(path, &outline),
            Ok(OutlineResult::Skipped(why)) => passed.push(format!("`{path}` {why}")),
            Err(error) => passed.push(format!("`{path}` cannot be read: {error}")),
        }
    }
    words.left_out += sources.len().saturating_sub(MAX_FILES);
    if words.text.is_empty() && passed.is_empty() {
        return Ok(format!(
            "The {} directly in `{folder}` define nothing that is listed here.",
            count_noun(sources.len(), "source file")
        ));
    }
    let mut text = words.finish("Name the file that you want.");
    for line in passed.iter().take(20) {
        text.push_str(&format!("\n[{line}.]"));
    }
    Ok(text.trim_start().to_owned())
}

/// Reads and parses a file.
fn outline_file(
    ground: &FileTracker,
    path: &WorkPath,
    language: &Language,
    deadline: Instant,
) -> Result<OutlineResult, WorkspaceError> {
    let found = ground.workspace().read_file(path, MAX_SOURCE_BYTES)?;
    if found.truncated {
        return Ok(OutlineResult::Skipped(format!(
            "has {} bytes, more than the {MAX_SOURCE_BYTES} that are parsed",
            found.size_bytes
        )));
    }
    let text = String::from_utf8_lossy(&found.bytes);
    if text.contains('\0') {
        return Ok(OutlineResult::Skipped("is a binary file".to_owned()));
    }
    if text.lines().any(|line| line.len() > MAX_LINE_BYTES) {
        return Ok(OutlineResult::Skipped(
            "has lines too long for source text, as minified files have".to_owned(),
        ));
    }
    Ok(
        match definitions::parse_outline(&text, language, deadline) {
            Some(outline) => OutlineResult::Parsed(outline),
            None => OutlineResult::Skipped("takes too long to parse".to_owned()),
        },
    )
}

/// Whether the file says that it is not written by hand.
fn is_generated(ground: &FileTracker, path: &WorkPath) -> bool {
    let start = ground
        .workspace()
        .read_file(path, HEAD_BYTES)
        .map(|found| found.bytes)
        .unwrap_or_default();
    let start = String::from_utf8_lossy(&start);
    ["@generated", "DO NOT EDIT", "Code generated by"]
        .iter()
        .any(|mark| start.contains(mark))
}

/// The outlines of files as far as they fit.
#[derive(Default)]
struct OutlineText {
    text: String,
    /// Definitions of the last file, and whole files, that did not fit.
    definitions_left_out: usize,
    left_out: usize,
}

impl OutlineText {
    fn is_full(&self) -> bool {
        self.definitions_left_out > 0 || self.text.len() >= MAX_OUTPUT_BYTES
    }

    fn push_file(&mut self, path: &WorkPath, outline: &FileOutline) {
        self.text.push_str(&format!(
            "{}{path}{}\n",
            if self.text.is_empty() { "" } else { "\n" },
            parse_note(outline)
        ));
        for definition in &outline.definitions {
            let (first, last) = definition.lines;
            let lines = if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            };
            let line = format!(
                "{}{lines}: {}\n",
                "  ".repeat(definition.depth),
                definition.signature
            );
            if self.text.len() + line.len() > MAX_OUTPUT_BYTES {
                self.definitions_left_out += 1;
            } else {
                self.text.push_str(&line);
            }
        }
    }

    fn finish(mut self, hint: &str) -> String {
        let mut missing = Vec::new();
        if self.definitions_left_out > 0 {
            missing.push(count_noun(self.definitions_left_out, "definition"));
        }
        if self.left_out > 0 {
            missing.push(count_noun(self.left_out, "more file"));
        }
        if !missing.is_empty() {
            self.text
                .push_str(&format!("[{} left out. {hint}]", missing.join(" and ")));
        }
        self.text.trim_end().to_owned()
    }
}

fn parse_note(outline: &FileOutline) -> &'static str {
    if outline.errors {
        " [has parts that could not be parsed; what they define may be missing]"
    } else {
        ""
    }
}
