//! Provides access to one workspace folder: files, search, shell commands, their outputs and the
//! sandbox.
//!
//! One [`Workspace`] is one folder: files are read, written, listed and searched in it, and
//! commands run in it. The guiding decision is that **nothing is checked that the kernel can
//! enforce**. A path that passed a check may lead elsewhere a moment later, and a killed process
//! may have left children; a check describes the past, while a handle stays valid. Therefore:
//!
//! - Files are opened beneath the handle of the workspace folder, and a link that leaves it does
//!   not resolve, no matter when it was created ([`Workspace`]).
//! - Folders are listed and searched through handles too, so no name from outside is ever shown
//!   ([`Workspace::list_folder`]).
//! - Writes are prepared beside the old file and swapped with it, through folders none of which may
//!   be a link, against the [`FileVersion`] that was read ([`WritePrecondition`]). Several writes
//!   happen together, or none does ([`Workspace::apply_changes`]).
//! - A [`ShellCommand`] runs below a supervisor process that adopts every orphan and is connected
//!   to this process by a socket. The whole process tree therefore ends at exit, at a time-out,
//!   when the future is dropped, and after `kill -9` of the agent ([`supervise`]). Output goes to
//!   pipes or to a separate terminal.
//! - A [`JobManager`] stores what commands printed, within limits of memory and disk, and runs
//!   commands in the background until they are stopped or the `JobManager` is dropped.
//!
//! The crate `sabir-checkpoint` saves files before a call changes them. [`Bounds`] define which
//! paths may not be seen or changed at all, even with an approval; they hold where files are
//! opened.
//!
//! Some parts are pure: [`WorkPath`] parses the paths that models write, [`unified_diff`] shows
//! changes, and [`CapturedOutput`] holds the output of commands as plain text, as a screen would
//! show it. Text encodings and the edit formats of models are in `sabir-edit`.
//!
//! The crate never reads the environment and never prints. File functions block: call them outside
//! of the async runtime's threads, and pass a [`StopFlag`] to long ones. It runs on Linux from
//! kernel 5.3 on; it also builds on macOS, with the fallbacks that `platform.rs` lists, but was not
//! run there yet.
//!
//! Not here: the policy decides which calls may run. It should check a write by
//! [`Workspace::resolve_links`] and [`WorkPath::protection_reason`].
//!
//! ```no_run
//! use std::path::Path;
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! use sabir_workspace::{ShellCommand, Workspace, WritePrecondition, supervise, unified_diff};
//!
//! fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
//!     // First thing: this program is its own supervisor.
//!     let mut args = std::env::args_os().skip(1);
//!     if args.next().is_some_and(|first| first == supervise::ARGUMENT) {
//!         return Ok(supervise::main(args));
//!     }
//!
//!     // Read, edit, write against the version that was read.
//!     let workspace = Workspace::open(Path::new("/home/ada/app"))?;
//!     let path = workspace.resolve_links(&workspace.parse_path("src/main.rs")?)?;
//!     let old = workspace.read_file(&path, 1 << 20)?;
//!     let text = String::from_utf8(old.bytes)?;
//!     let diff = "------- SEARCH\nlet x = 1;\n=======\nlet x = 2;\n+++++++ REPLACE\n";
//!     match sabir_edit::apply_blocks(&text, diff) {
//!         Ok(edited) => {
//!             workspace.write_file(&path, edited.content.as_bytes(), WritePrecondition::Version(old.version))?;
//!             println!("{}", unified_diff(&text, &edited.content, &path.to_string()));
//!         }
//!         Err(faults) => faults.iter().for_each(|fault| println!("{fault}")),
//!     }
//!
//!     // Run a command, with everything it starts gone afterwards.
//!     let command = ShellCommand::new("cargo test", std::env::current_exe()?)
//!         .env([("PATH".to_owned(), "/usr/bin:/bin".to_owned())])
//!         .timeout(Duration::from_secs(120));
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//!     let outcome = runtime.block_on(command.run(&workspace, |_, bytes| println!("{} bytes more", bytes.len())))?;
//!     println!("{:?}\n{}", outcome.end, outcome.output.text());
//!     Ok(ExitCode::SUCCESS)
//! }
//! ```

mod bounds;
mod browser;
mod capture;
mod clipboard;
mod command;
mod command_writes;
mod diff;
mod editor;
mod error;
mod executable;
mod file_survey;
mod files;
mod git_config;
mod hide_process;
mod jobs;
mod kernel;
mod links;
mod named_files;
mod ordered_pool;
mod output;
mod output_lines;
mod passed_descriptor;
mod path;
mod platform;
mod protected_paths;
mod public_address;
pub mod sandbox;
mod search;
mod stop_flag;
pub mod supervise;
mod terminal;
mod terminal_guard;
mod terminal_text;
mod trust;

pub use bounds::{Bounds, BoundsError};
pub use browser::{BrowserError, open_web_page};
pub use capture::CapturedOutput;
pub use clipboard::{ClipboardError, read_clipboard_image};
pub use command::{
    CommandExit, CommandOutcome, ExitSummary, OutputStream, QUIET_ENV, ServerCommand, ServerExit,
    ServerInput, ServerProcess, ServerStreams, ShellCommand, default_shell,
};
pub use command_writes::{CommandWatch, ObservedWrites};
pub use diff::unified_diff;
pub use editor::{EditorError, edit_text};
pub use error::WorkspaceError;
pub use executable::ExecutableFile;
pub use file_survey::{FileSurvey, SecretPath};
pub use files::{
    EntryKind, FileChange, FileContent, FileInfo, FileVersion, FolderListing, IgnoreChecker,
    ListEntry, ListOptions, TEMP_START, Workspace, WritePrecondition,
};
pub use git_config::{
    GitConfig, GitConfigError, HistorySearch, PathFilter, find_branch, find_index_name,
    list_push_addresses,
};
pub use hide_process::hide_process;
pub use jobs::{
    FinishedCommand, JobManager, JobState, MAX_JOBS, OutputError, OutputInfo, OutputLifetime,
};
pub use kernel::{is_in_process_group, is_session_leader};
pub use links::TooManyFiles;
pub use output_lines::{OutputLine, PageOptions};
pub use path::{WorkPath, protection_reason};
pub use public_address::{NetworkKind, never_reachable_kind, non_public_kind};
pub use sandbox::{
    ConnectionOutcome, DenialKind, DenialNote, EffectiveLevel, HostConnection, NetworkAccess,
    RegistryHost, RestrictionReport, RestrictionState, Sandbox, SandboxLevel, SandboxReport,
    SandboxRestriction, SecurityCheckError, SecurityReport, UnknownHost, UnknownSandboxLevel,
    WithheldPath, check_security,
};
pub use search::{SearchMatch, SearchOptions, SearchResult};
pub use stop_flag::{StopFlag, StopOnDrop};
pub use terminal_guard::{TerminalGuard, TerminalLock};
pub use trust::{GitPrograms, Trust, TrustState, digest_hashes};
