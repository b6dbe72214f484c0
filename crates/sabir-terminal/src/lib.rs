//! Shows sessions of `sabir-session` line by line: in a terminal, headless, as JSON lines, and under the control of a program.
//!
//! Everything here reads events and reports of the session layer and writes text. The crate decides nothing about tasks: what a user
//! types becomes a command of the session.
//!
//! | To | Use |
//! | --- | --- |
//! | show a task to a person, and ask them | [`SessionPresenter`](front_end::SessionPresenter) over a [`TerminalFrontEnd`](terminal::TerminalFrontEnd) |
//! | show the progress of a headless task | [`SessionPresenter`](front_end::SessionPresenter) over a [`ProgressFrontEnd`](event_renderer::ProgressFrontEnd) |
//! | print a task as JSON lines | [`print_json_lines`](front_end::print_json_lines) |
//! | let a program answer and steer a task | [`ControlInput`](control_input::ControlInput) |
//! | write a report of the toolbox to standard output | [`ReportOutput`](report_output::ReportOutput) |
//! | show foreign text in any other front end | [`sanitizer`] |
//! | run `sabir mcp` | [`mcp_command`] |
//! | render the help, the completions and the man pages of a command line | [`command_names`], [`shell_setup`] |
//! | render a report of the session layer | [`checkpoint_text`], [`config_text`], [`context_text`], [`doctor_text`], [`gateway_text`], [`task_tree`], [`trust_text`] |
//!
//! # Two kinds of text
//!
//! Text of models, tools, files and servers is *foreign*: it could move the cursor, set colours or hide itself. A renderer that ends in
//! `_text` returns foreign parts as they are, and its caller passes the whole through [`print::sanitize_text`]. The event renderer
//! sanitizes by itself, because a stream must be cleaned with a state that spans its chunks. Text that ends up in files and logs is
//! also redacted: JSON lines and progress are.
//!
//! # Boundaries
//!
//! The crate writes to standard output and standard error through [`mod@print`] only, and reads standard input only where its caller passes
//! it. It parses no flags but those of [`mcp_command`], knows no exit codes and does not read the environment. It handles signals only while the terminal is in raw
//! mode ([`screen`]), to restore it.

pub mod approval_preview;
pub mod argument_preview;
pub mod checkpoint_text;
pub mod command_names;
pub mod config_text;
pub mod context_text;
pub mod control_input;
pub mod crash;
pub mod doctor_text;
pub mod draft_cursor;
mod draft_layout;
pub mod event_lines;
pub mod event_renderer;
pub mod folder_text;
pub mod front_end;
pub mod gateway_command;
pub mod gateway_text;
pub mod history_text;
pub mod interrupts;
pub mod line_editor;
mod margin;
pub mod mcp_command;
mod mcp_http;
mod mcp_login;
mod mcp_toolbox;
pub mod output_filter;
pub mod piped_input;
pub mod print;
pub mod report_output;
pub mod sanitizer;
pub mod screen;
pub mod serving_command;
pub mod settings_import;
pub mod shell_setup;
pub mod slash_commands;
pub mod stdin_reader;
pub mod subtask_renderer;
pub mod task_tree;
pub mod terminal;
pub mod tour_front_end;
pub mod trust_review;
pub mod trust_text;
pub mod welcome;
