//! Output to the terminal, standard output and standard error: front ends of sessions, renderers
//! and the sanitizer.

pub(crate) mod approval_preview;
pub(crate) mod argument_preview;
pub(crate) mod control_input;
pub(crate) mod cost_text;
pub(crate) mod event_lines;
pub(crate) mod event_renderer;
pub(crate) mod front_end;
pub(crate) mod output_filter;
pub(crate) mod print;
pub(crate) mod sanitizer;
pub(crate) mod stdin_reader;
pub(crate) mod subtask_renderer;
pub(crate) mod terminal;
pub(crate) mod timestamps;
