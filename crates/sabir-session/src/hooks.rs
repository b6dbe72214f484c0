//! Hooks: commands of the user, or of a trusted repository, that run at fixed points of a task, in
//! the format of Claude Code.
//!
//! A hook gets a JSON object on its standard input, and answers with its exit code (2 blocks) or
//! with a JSON object. It can only restrict: refuse a call, make Sabir ask about it, hold back a
//! message, or let the model continue. It approves nothing, and its output is information for the
//! model, never a permission. It runs under the supervisor and in the sandbox of the task.
//!
//! Hooks of a repository start programs on the user's machine, so they run only after the user has
//! trusted exactly these commands and the files of the folder that they name ([`trust_hooks`]); a
//! changed hook does not run, and everything that it would have checked is refused. The user's own
//! hooks need the same trust if they name a file of the folder, which may be a clone of somebody
//! else's repository.

mod callbacks;
mod event;
mod keys;
mod matcher;
mod observer;
mod payload;
mod pinned_files;
mod prompts;
mod reply;
mod run_words;
mod runner;
mod settings_file;
mod sources;

/// The variables that name the folder of the task: the one of Claude Code, for which hooks are written, and Sabir's own.
const PROJECT_VARIABLES: [&str; 2] = ["CLAUDE_PROJECT_DIR", "SABIR_PROJECT_DIR"];

pub use callbacks::{CallbackError, CallbackHook, HookCallbacks};
pub use event::HookEvent;
pub(crate) use keys::HookConfig;
pub(crate) use observer::HookObserver;
pub(crate) use pinned_files::{UnpinnableCommand, find_launch_files};
pub(crate) use runner::{HookRunner, HookTask};
pub use settings_file::HookSpec;
pub use sources::{
    FolderHooks, FoundHook, HookList, HookState, find_folder_hooks, find_hooks, revoke_hooks,
    trust_hooks,
};
