//! What touches the machine?
//!
//! One [`Workspace`] is one folder of the user's: files are read, written, listed and searched in it, and commands run in it.
//! The decision that shapes this crate is that **nothing is checked that the kernel can enforce**. A path that was found good
//! may be another place a moment later, and a process that was killed may have left children; a check says what was true, a
//! handle says what is. So
//!
//! * files are opened beneath the handle of the workspace folder, and a link that leaves does not resolve, whoever puts it there
//!   at whatever moment ([`Workspace`]);
//! * folders are listed and searched through handles too, so that no name from outside is ever shown ([`Workspace::list_folder`]);
//! * writes are made ready beside the old file and change places with it, through folders of which none may be a link, against
//!   the [`FileVersion`] that was read ([`WritePrecondition`]); several are made together, or none ([`Workspace::apply_changes`]);
//! * a [`ShellCommand`] runs below a supervisor process that inherits every orphan and hangs on a socket to this process, so
//!   that its whole tree ends with it: at exit, at a time-out, when the future is dropped, and after `kill -9` of the agent
//!   ([`supervise`]). It prints to pipes or to a terminal of its own;
//! * [`JobManager`] keep what commands printed, within caps of memory and disk, and run commands in the background, until they are
//!   stopped or nobody holds the `JobManager` any more.
//!
//! What a call is about to change can be kept before, in a store outside of the workspace: see `sabir-checkpoint`.
//!
//! What may not be seen or changed at all, whoever approved it, is said once ([`Bounds`]) and holds where files are opened.
//!
//! What is pure has no part in that: [`WorkPath`] reads the paths that models write, [`unified_diff`] shows what changed. What
//! commands print is told as plain text, as a screen would show it ([`CapturedOutput`]). Bytes as text, and edits as models write
//! them, are `sabir-edit`'s.
//!
//! The crate never reads the environment and never prints. File functions block; call them off the runtime's threads, and give
//! long ones a [`StopFlag`]. Linux only, from kernel 5.3 on: subreapers, process handles and `/proc` have no equal elsewhere.
//!
//! Not here: which calls may run is the policy's affair. It should judge a write by [`Workspace::resolve_links`] and
//! [`WorkPath::protection_reason`].
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
mod capture;
mod command;
mod diff;
mod error;
mod executable;
mod files;
mod git_config;
mod hide_process;
mod jobs;
mod kernel;
mod links;
mod ordered_pool;
mod output;
mod output_lines;
mod path;
mod protected_paths;
pub mod sandbox;
mod search;
mod stop_flag;
pub mod supervise;
mod terminal;
mod terminal_text;
mod trust;

pub use bounds::{Bounds, BoundsError};
pub use capture::CapturedOutput;
pub use command::{CommandExit, CommandOutcome, ExitSummary, OutputStream, ShellCommand, default_shell};
pub use diff::unified_diff;
pub use error::WorkspaceError;
pub use executable::ExecutableFile;
pub use files::{
    EntryKind, FileChange, FileContent, FileInfo, FileVersion, FolderListing, ListEntry, ListOptions, TEMP_START,
    Workspace, WritePrecondition,
};
pub use git_config::{GitConfig, Unreadable};
pub use hide_process::hide_process;
pub use jobs::{FinishedCommand, JobManager, JobState, MAX_JOBS, OutputError, OutputInfo, OutputLifetime};
pub use links::TooManyFiles;
pub use output_lines::{OutputLine, PageOptions};
pub use path::{WorkPath, protection_reason};
pub use sandbox::{DenialKind, DenialNote, NetworkAccess, Sandbox, SandboxLevel, SandboxReport, SandboxTier};
pub use search::{SearchMatch, SearchOptions, SearchResult};
pub use stop_flag::{StopFlag, StopOnDrop};
pub use trust::{GitPrograms, Trust, TrustState, digest_hashes};
