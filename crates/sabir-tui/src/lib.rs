//! The full terminal interface over `sabir-session`: composer, stream, decisions and status, in an inline viewport.
//!
//! * [`app::App`] is the state, and it is pure: keys, pastes, sizes and session events go in, effects and views come out.
//! * [`inline_screen::InlineScreen`] turns decided lines and views into bytes, and is pure as well.
//! * [`driver`] connects both with the terminal and the session. It alone reads, writes and waits.
//!
//! The terminal itself (raw mode, its restoration after a panic, a signal or Ctrl-Z) belongs to [`sabir_terminal::screen`], which
//! the line mode shares. Keys are decoded here ([`keys`]) and not by `crossterm`, because that reads the terminal on its own: the
//! interface must know which keys came before a question, must stop reading while an editor runs, and is tested with bytes.
//!
//! All foreign text is cleaned where it comes in, and once more by [`lines::write_line`], the only way to the terminal.

pub mod app;
pub mod commands;
mod comparisons;
pub mod composer;
pub mod decision;
pub mod diff;
pub mod driver;
pub mod fuzzy;
pub mod highlight;
pub mod inline_screen;
pub mod keys;
pub mod lines;
pub mod links;
pub mod markdown;
pub mod picker;
pub mod pickers;
pub mod rewind;
pub mod subtask_view;
pub mod terminal_capabilities;
pub mod theme;
pub mod transcript;
pub mod vi_keys;
pub mod view;
pub mod wire_view;

pub use driver::{InterfaceOutcome, InterfaceSettings, compose_first_message, show_session};
pub use rewind::{NextSession, open_next_session, save_draft};
