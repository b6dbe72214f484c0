//! A server of the Agent Client Protocol: editors and other programs start, follow and answer Sabir's tasks over standard input and
//! output.
//!
//! * [`serve`] drives one connection until its input ends. Any number of sessions work in it at the same time.
//! * An ACP session is a task: its id is the task's, so a session can be loaded after a crash, and `sabir log ID` shows it.
//! * A session that has no prompt yet has no task. Loading a session replays its history and runs nothing; the next prompt continues it.
//!
//! # Guarantees
//!
//! * Only an answer to a permission request that the client was asked approves a call. A prompt that waits is a message and never an
//!   answer to a question about a call; a client that fails, or names an option that was not offered, denies.
//! * Each prompt gets exactly one response. Prompts of one session are worked on in the order in which they came.
//! * A line that is not JSON, or no request, gets a JSON-RPC error, and the connection continues.
//! * What the client did not announce is not asked of it.
//! * When the input ends, all sessions end, with everything that they started.
//!
//! The crate starts no process, touches no file and reads no environment: tasks do, through `sabir-session`.

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
