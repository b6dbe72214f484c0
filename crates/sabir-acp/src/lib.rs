//! A server of the Agent Client Protocol: editors and other programs start, follow and answer Sabir's tasks over standard input and
//! output.
//!
//! * [`serve`] drives one connection until its input ends. Any number of sessions work in it at the same time.
//! * An ACP session is a task: its id is the task's, so a session can be loaded after a crash, and `sabir log ID` shows it.
//! * A session that has no prompt yet has no task. Loading a session replays its history and runs nothing; the next prompt continues it.
//!
//! # Guarantees
//!
//! * Only the client's answer to a permission request approves a call. A queued prompt is a
//!   message, never an answer to a question about a call. If the client fails, or names an option
//!   that was not offered, the call is denied.
//! * Each prompt gets exactly one response. Prompts of one session are processed in the order in
//!   which they arrive.
//! * A line that is not JSON, or not a request, gets a JSON-RPC error, and the connection
//!   continues.
//! * Only capabilities that the client announced are used.
//! * When the input ends, all sessions end, with everything that they started.
//!
//! The crate itself starts no process, touches no file and reads no environment; tasks do so
//! through `sabir-session`.

mod client_terminal;
mod draft_calls;
mod editor_connection;
mod file_diff;
mod form;
mod message_text;
mod permission;
mod prompt_content;
mod server;
mod session;
mod session_settings;
mod tool_view;
mod transport;
mod update_mapper;

pub use server::{AcpError, serve};
