//! Provides the built-in tools of a coding agent, one file each.
//!
//! [`builtin_tools`] creates the tools of one task. Each tool deserializes its arguments and does its
//! work through [`sabir_workspace`], which alone touches the machine; this crate adds **the text that
//! models read**. The guiding decision is that a result is written for its only reader, a model that
//! must choose its next call: it says what happened, with the numbers that are needed to continue
//! (lines, omitted bytes, the nearest names), and contains nothing that differs between machines or
//! runs, so that the same task has the same history.
//!
//! | tool | touches | checked as |
//! | --- | --- | --- |
//! | `read_file` | files, up to 64 KiB of them at a time; pictures | reading |
//! | `list_files` | the names in a folder | reading |
//! | `search_files` | the lines of files | reading |
//! | `list_code_definition_names` | source files, up to 1 MiB each | reading |
//! | `write_to_file` | a whole file | writing |
//! | `replace_in_file`, `edit_file` | parts of a file | writing |
//! | `apply_patch` | several files | writing all of them |
//! | `fetch_url` | public hosts, by GET | fetching |
//! | `execute_command` | anything | a command |
//! | `read_command_output` | the output of the task's commands | nothing |
//! | `stop_command` | a job of the task | nothing |
//!
//! A model is offered one of the three tools that change parts of files, the one that models of its
//! kind are trained on ([`EditTool`]). Calls of the others are also understood and run.
//!
//! The tools of a task remember which version of each file the model has seen, and do not overwrite
//! another one: if a formatter or the user changed the file in between, the model is first shown the
//! change. A prepared call remembers where its path led when it was checked, and does not write
//! elsewhere.
//!
//! A failure is an enum for each tool. Its `Display` text is the result that the model reads: what is
//! wrong, and what to do next.
//!
//! The result of a command holds the beginning and the end of its output as plain text. The
//! [`JobManager`] keeps the whole under a number, by which `read_command_output` reads it. Commands in
//! the background are jobs with numbers of the same series. Dropping the `JobManager` ends them; a
//! task that is over should [end them](JobManager::stop_all) itself.
//!
//! Dropping a running call kills its command. File work continues to its end, unobserved: a file then
//! has its old content or its new one, never a part.
//!
//! ```
//! use std::path::PathBuf;
//! use std::sync::Arc;
//!
//! use sabir_agent::{CallPermit, ToolRegistry};
//! use sabir_policy::Access;
//! use sabir_call::CallId;
//! use sabir_tools::{EditTool, NetworkScope, ToolSettings, builtin_tools};
//! use sabir_workspace::{JobManager, OutputLifetime, Sandbox, SandboxLevel, Workspace};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let folder = tempfile::tempdir()?;
//! let registry = ToolRegistry::new(builtin_tools(ToolSettings {
//!     workspace: Arc::new(Workspace::open(folder.path())?),
//!     helper: PathBuf::from("sabir"),
//!     environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
//!     edit_tool: EditTool::default(),
//!     sandbox: Sandbox::new(SandboxLevel::Best),
//!     jobs: Arc::new(JobManager::new(folder.path().join("outputs"), OutputLifetime::Temporary)),
//!     reach: NetworkScope::Public,
//!     editor: None,
//! }))?;
//!
//! let tool = registry.get("write_to_file").ok_or("no such tool")?;
//! let arguments = json!({"path": "a.txt", "content": "hello\n"});
//! let arguments = arguments.as_object().ok_or("no object")?;
//! let call = tool.prepare(arguments);
//! assert_eq!(call.access(), Access::Write { path: "a.txt".to_owned(), protected: None });
//! let output = call.run(&CallPermit::unchecked(CallId::new("1")), &mut |_| {}).await;
//! assert_eq!(output.content, "Wrote 1 line to the new file `a.txt`.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply_patch;
mod blocking;
mod command_facts;
mod definitions;
mod edit_error;
mod edit_file;
mod edit_tool;
mod editor;
mod edits;
mod execute_command;
mod fetch_url;
mod file_error;
mod file_tracker;
mod full_screen;
mod job_error;
mod list_code_definition_names;
mod list_files;
mod loaded_image;
mod loopback_ports;
mod missing_path;
mod no_match;
mod preconditions;
mod preview;
mod read_command_output;
mod read_file;
mod replace_in_file;
mod search_files;
mod stop_command;
mod text;
mod text_file;
mod typed_tool;
mod web;
mod write_target;
mod write_to_file;

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::Tool;
use sabir_call::ToolSpec;
use sabir_workspace::{JobManager, Sandbox, Workspace};

pub use crate::command_facts::{CommandContext, gather_facts, workspace_programs};
pub use crate::edit_tool::{EditTool, EditToolError};
pub use crate::editor::{
    Editor, EditorFailure, EditorFuture, TerminalCommand, TerminalEnd, TerminalOutcome,
};
pub use crate::file_tracker::SeenFile;
pub use crate::loaded_image::{
    ImageLoadError, MAX_IMAGE_BYTES, image_from_base64, image_from_bytes,
};
pub use crate::preconditions::{launch_files, named_launch_files};
pub use crate::web::network_scope::NetworkScope;

use crate::apply_patch::ApplyPatch;
use crate::edit_file::EditFile;
use crate::execute_command::ExecuteCommand;
use crate::fetch_url::FetchUrl;
use crate::file_tracker::FileTracker;
use crate::list_code_definition_names::ListCodeDefinitionNames;
use crate::list_files::ListFiles;
use crate::read_command_output::ReadCommandOutput;
use crate::read_file::ReadFile;
use crate::replace_in_file::ReplaceInFile;
use crate::search_files::SearchFiles;
use crate::stop_command::StopCommand;
use crate::typed_tool::{TypedTool, TypedToolAdapter, typed_spec};
use crate::write_to_file::WriteToFile;

/// The settings of a task's tools.
#[derive(Clone)]
pub struct ToolSettings {
    /// The folder in which the task works.
    pub workspace: Arc<Workspace>,
    /// The program that supervises commands. It must call [`sabir_workspace::supervise::main`] if its
    /// first argument is [`sabir_workspace::supervise::ARGUMENT`]; Sabir itself does.
    pub helper: PathBuf,
    /// The whole environment of commands. Nothing else is inherited, so this must contain `PATH` and
    /// `HOME`, and should contain no secrets.
    pub environment: Vec<(String, String)>,
    /// The tool that the model is offered to change parts of files.
    pub edit_tool: EditTool,
    /// The sandbox of commands.
    pub sandbox: Sandbox,
    /// The manager of background jobs and of kept outputs.
    pub jobs: Arc<JobManager>,
    /// The hosts that `fetch_url` can reach.
    pub reach: NetworkScope,
    /// The editor in which the user has files open; `None`: there is none.
    pub editor: Option<Arc<dyn Editor>>,
}

/// Creates the built-in tools of one task, in the order in which models are shown them.
///
/// Each task needs its own, because they remember what the model has seen. The edit tools that were
/// not chosen are included and [not offered](Tool::is_offered).
#[must_use]
pub fn builtin_tools(settings: ToolSettings) -> Vec<Arc<dyn Tool>> {
    resumed_tools(settings, &[])
}

/// Creates the built-in tools of a task that is resumed, whose model has seen these files.
#[must_use]
pub fn resumed_tools(settings: ToolSettings, seen: &[SeenFile]) -> Vec<Arc<dyn Tool>> {
    let tracker = FileTracker::new(Arc::clone(&settings.workspace))
        .with_seen_files(seen)
        .with_editor(settings.editor.clone());
    let tracker = Arc::new(tracker);
    let jobs = Arc::clone(&settings.jobs);
    let edit_tool = settings.edit_tool;
    vec![
        TypedToolAdapter::adapt_tool(ReadFile(Arc::clone(&tracker))),
        TypedToolAdapter::adapt_tool(ListFiles(Arc::clone(&tracker))),
        TypedToolAdapter::adapt_tool(SearchFiles(Arc::clone(&tracker))),
        TypedToolAdapter::adapt_tool(ListCodeDefinitionNames(Arc::clone(&tracker))),
        TypedToolAdapter::adapt_tool(WriteToFile(Arc::clone(&tracker))),
        // Models call the edit tool that they were trained on even if they are offered another one.
        TypedToolAdapter::adapt_offered(
            ReplaceInFile(Arc::clone(&tracker)),
            edit_tool == EditTool::ReplaceInFile,
        ),
        TypedToolAdapter::adapt_offered(
            EditFile(Arc::clone(&tracker)),
            edit_tool == EditTool::EditFile,
        ),
        TypedToolAdapter::adapt_offered(ApplyPatch(tracker), edit_tool == EditTool::ApplyPatch),
        TypedToolAdapter::adapt_tool(FetchUrl::new(settings.reach.clone())),
        TypedToolAdapter::adapt_tool(ExecuteCommand::new(settings)),
        TypedToolAdapter::adapt_tool(ReadCommandOutput(Arc::clone(&jobs))),
        TypedToolAdapter::adapt_tool(StopCommand(jobs)),
    ]
}

/// Returns the specs of the built-in tools that a model is offered by default, in the same order.
/// They do not depend on the settings of a task.
#[must_use]
pub fn builtin_specs() -> Vec<ToolSpec> {
    vec![
        typed_spec::<ReadFile>(),
        typed_spec::<ListFiles>(),
        typed_spec::<SearchFiles>(),
        typed_spec::<ListCodeDefinitionNames>(),
        typed_spec::<WriteToFile>(),
        typed_spec::<ReplaceInFile>(),
        typed_spec::<FetchUrl>(),
        typed_spec::<ExecuteCommand>(),
        typed_spec::<ReadCommandOutput>(),
        typed_spec::<StopCommand>(),
    ]
}

/// Returns the name and the manual of every built-in tool. A manual is Markdown: the tool's purpose,
/// its arguments, and the exact text of its results.
#[must_use]
pub fn tool_manuals() -> Vec<(&'static str, &'static str)> {
    fn manual_of<T: TypedTool>() -> (&'static str, &'static str) {
        (T::NAME, T::MANUAL)
    }
    vec![
        manual_of::<ReadFile>(),
        manual_of::<ListFiles>(),
        manual_of::<SearchFiles>(),
        manual_of::<ListCodeDefinitionNames>(),
        manual_of::<WriteToFile>(),
        manual_of::<ReplaceInFile>(),
        manual_of::<EditFile>(),
        manual_of::<ApplyPatch>(),
        manual_of::<FetchUrl>(),
        manual_of::<ExecuteCommand>(),
        manual_of::<ReadCommandOutput>(),
        manual_of::<StopCommand>(),
    ]
}

/// Returns the specs of the edit tools that [`builtin_specs`] leaves out.
#[must_use]
pub fn unoffered_specs() -> Vec<ToolSpec> {
    vec![typed_spec::<EditFile>(), typed_spec::<ApplyPatch>()]
}

/// Leaves out the environment, because a log must not contain its values.
impl std::fmt::Debug for ToolSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSettings")
            .field("workspace", &self.workspace)
            .field("helper", &self.helper)
            .finish_non_exhaustive()
    }
}
