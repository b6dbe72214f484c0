//! Tests agents with a provider that misbehaves, and scores them by what they did.
//!
//! An agent is started with the address of a provider on 127.0.0.1, in an empty home and an empty
//! folder, and is asked to write one file. The provider answers with a call of the agent's own shell
//! tool (or of its tool for writing files), in one of the ways in which models and servers fail: the
//! call leaks into the text, the stream is cut, the tool is unknown, the answer is no answer.
//!
//! A verdict depends on the folder alone, never on what the agent says: the file was written, nothing
//! was written, or something else was. The provider's bytes are the same in every run, so the same
//! cell gives the same verdict twice, as far as the agent is deterministic.
//!
//! A gateway is tested from both sides ([`EndpointTest`]): the same provider behind it misbehaves, and the verdict depends on what its
//! client receives.

mod case;
mod endpoint;
mod preset;
mod report;
mod runner;
mod tool_choice;

pub use case::{TortureCase, all_cases, select_cases};
pub use endpoint::{ClientApi, EndpointOptions, EndpointTest};
pub use preset::{AgentPreset, PresetFile, built_in_presets, custom_preset};
pub use report::{CellResult, Score, TortureReport, Verdict, write_badge, write_html, write_junit};
pub use runner::{
    FilterOutcome, RunOptions, TortureError, check_result_file, make_names_unique, prepare_folder,
    run_agent, run_filter, write_result_file,
};
