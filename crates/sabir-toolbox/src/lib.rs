//! Implements Sabir's inspection commands as a library: `parse`, `explain`, `check`, `lint`, `edit`, `wire`, `prompt`, `import`,
//! `export`, `policy explain` and the inspection of journals.
//!
//! The commands of the binary, a binding for another language and a server of tools all need the same three steps, and this crate
//! is the middle one: plain options and bytes go in, a typed report comes out, and the caller decides where the report goes. So
//! the options know nothing of a command line, a [`Report`] is serializable and can also be written as text or JSON into any
//! [`Write`](std::io::Write), and a failure is a [`ToolboxError`] that the caller maps to its own codes. The crate neither prints
//! nor reads the environment, the configuration or the clock.
//!
//! Text in a report comes from models, tools and files. [`Report::write_text`] does not clean it: a caller that writes to a
//! terminal passes a writer that does. JSON output needs no cleaning.
//!
//! # Example
//!
//! ```
//! use sabir_call::{Event, ToolSet};
//! use sabir_toolbox::parse::{ParseOptions, parse_text};
//! use sabir_toolbox::report::{Report, ReportFormat};
//!
//! let tools = ToolSet::from_json(
//!     r#"[{"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]"#,
//! )?;
//! let options = ParseOptions::new(tools);
//! let parsed = parse_text(b"<read_file>\n<path>a.rs</path>\n</read_file>", &options, &mut |_: Event<'_>| {});
//!
//! assert!(parsed.is_understood());
//! let mut text = Vec::new();
//! parsed.report().write_as(ReportFormat::Text, &mut text)?;
//! assert_eq!(String::from_utf8(text)?, "call read_file (cline, complete)\n  path: a.rs\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! All are on by default. Without them the crate does no I/O, which is what a build for WebAssembly wants.
//!
//! * `files`: [`edit::edit_file`], which changes files on disk through `sabir-workspace`.
//! * `tasks`: the modules that need journals: [`export`], [`import`], [`task_check`], [`task_log`] and [`policy_simulation`].
//! * `models`: [`models`], the list of providers, servers and models.
//! * `policy`: [`policy`] and [`modes`], what a task may do.
//! * `templates`: [`template`], the dialects that chat templates teach.
//! * `validator`: validation by JSON Schemas of every keyword, not only of the common ones.

pub mod corpus;
pub mod dialects;
pub mod documents;
pub mod edit;
mod error;
pub mod explain;
#[cfg(feature = "tasks")]
pub mod export;
pub mod grammar;
#[cfg(feature = "tasks")]
pub mod import;
pub mod lint;
#[cfg(feature = "models")]
pub mod models;
#[cfg(feature = "policy")]
pub mod modes;
pub mod parse;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "tasks")]
pub mod policy_simulation;
pub mod prompt;
mod recognition;
pub mod report;
#[cfg(feature = "tasks")]
pub mod task_check;
#[cfg(feature = "tasks")]
pub mod task_log;
#[cfg(feature = "templates")]
pub mod template;
pub mod text;
#[cfg(feature = "tasks")]
mod timestamps;
mod tool_list;
pub mod wire;

pub use error::{ToolboxError, UnknownDialect};
pub use report::{Report, ReportFormat};
