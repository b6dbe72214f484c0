//! What can the model do to the world?
//!
//! Tools, a file each: [`builtin_tools`] makes those of one task. Each is a thin reading of its arguments over
//! [`sabir_workspace`], which is what really touches the machine; what this crate adds is **the words**. The decision that
//! shapes it is that a result is written for its only reader, a model that must choose its next call: what happened, in numbers
//! that let it go on (lines, bytes left out, the nearest names), and nothing that differs from machine to machine or from one
//! time to the next, so that the same task has the same history.
//!
//! | tool | touches | judged as |
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
//! | `read_command_output` | what commands of the task printed | nothing |
//! | `stop_command` | a job of the task | nothing |
//!
//! A model is offered one of the three tools that change parts of files, the one that models of its kind are trained on
//! ([`EditTool`]); a call of another is understood all the same.
//!
//! The tools of a task remember which version of each file the model has seen, and write none in place of another: a formatter
//! or the user was there in between, so the model is shown first what changed. They also remember where a path led when a write
//! was judged, and do not write elsewhere.
//!
//! A command's result holds the beginning and the end of what it printed, as plain text; the whole is kept by [`JobManager`] under a
//! number, by which `read_command_output` reads it. Commands in the background are jobs, of the same numbers. They end with the
//! `JobManager`, so a task that is over should [end](JobManager::stop_all) them.
//!
//! A tool that is dropped while it works kills its command. File work goes on to its end, unseen: a file is then old or new,
//! never half.
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
mod command_facts;
mod definitions;
mod edit_file;
mod edit_tool;
mod edits;
mod execute_command;
mod fetch_url;
mod file_tracker;
mod list_code_definition_names;
mod list_files;
mod missing_path;
mod picture;
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
mod write_to_file;

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::Tool;
use sabir_call::ToolSpec;
use sabir_workspace::{JobManager, Sandbox, Workspace};

pub use crate::command_facts::gather_facts;
pub use crate::picture::{
    MAX_BYTES as MAX_PICTURE_BYTES, decode_picture as encoded_picture, load_picture,
};
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

pub use crate::edit_tool::{EditTool, EditToolError};

/// What the tools of a task work on.
#[derive(Clone)]
pub struct ToolSettings {
    /// The folder in which the task works.
    pub workspace: Arc<Workspace>,
    /// The program that supervises commands: one that calls [`sabir_workspace::supervise::main`] when its first argument is
    /// [`sabir_workspace::supervise::ARGUMENT`]. Sabir itself, that is.
    pub helper: PathBuf,
    /// The whole environment of commands. Nothing else is inherited, so this has to hold `PATH` and `HOME`, and no secrets.
    pub environment: Vec<(String, String)>,
    /// The tool that the model is offered to change parts of files.
    pub edit_tool: EditTool,
    /// What commands are confined to.
    pub sandbox: Sandbox,
    /// What commands leave: outputs and jobs.
    pub jobs: Arc<JobManager>,
    /// Which machines `fetch_url` may ask.
    pub reach: NetworkScope,
}

/// The built-in tools of one task, in the order in which a model reads of them. A second task needs its own: they remember what
/// the model has seen. The edit tools that are not the chosen one are there, and [not offered](Tool::is_offered).
#[must_use]
pub fn builtin_tools(settings: ToolSettings) -> Vec<Arc<dyn Tool>> {
    let (ground, jobs) = (
        Arc::new(FileTracker::new(Arc::clone(&settings.workspace))),
        Arc::clone(&settings.jobs),
    );
    let edit_tool = settings.edit_tool;
    vec![
        TypedToolAdapter::into_tool(ReadFile(Arc::clone(&ground))),
        TypedToolAdapter::into_tool(ListFiles(Arc::clone(&ground))),
        TypedToolAdapter::into_tool(SearchFiles(Arc::clone(&ground))),
        TypedToolAdapter::into_tool(ListCodeDefinitionNames(Arc::clone(&ground))),
        TypedToolAdapter::into_tool(WriteToFile(Arc::clone(&ground))),
        TypedToolAdapter::with_offered(
            ReplaceInFile(Arc::clone(&ground)),
            edit_tool == EditTool::ReplaceInFile,
        ),
        TypedToolAdapter::with_offered(
            EditFile(Arc::clone(&ground)),
            edit_tool == EditTool::EditFile,
        ),
        TypedToolAdapter::with_offered(ApplyPatch(ground), edit_tool == EditTool::ApplyPatch),
        TypedToolAdapter::into_tool(FetchUrl::new(settings.reach.clone())),
        TypedToolAdapter::into_tool(ExecuteCommand(settings)),
        TypedToolAdapter::into_tool(ReadCommandOutput(Arc::clone(&jobs))),
        TypedToolAdapter::into_tool(StopCommand(jobs)),
    ]
}

/// What a model reads of the built-in tools, in their order, wherever they may work; of the edit tools the usual one.
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

/// Every built-in tool by its name, with its Markdown: what it does, what it takes, and the exact words of its results.
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

/// What can be said of the edit tools that [`builtin_specs`] leaves out.
#[must_use]
pub fn unoffered_specs() -> Vec<ToolSpec> {
    vec![typed_spec::<EditFile>(), typed_spec::<ApplyPatch>()]
}

/// The environment stays out of it: its values may be nobody's business.
impl std::fmt::Debug for ToolSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("workspace", &self.workspace)
            .field("helper", &self.helper)
            .finish_non_exhaustive()
    }
}
