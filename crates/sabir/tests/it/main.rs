//! Tests the binary with real processes, real HTTP and real files.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that fails by panicking is doing its work, and a long one prints its figures"
)]

mod acp;
mod action;
mod again;
mod agent_sdk;
mod approval;
mod attacks;
mod bad_input;
#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod certificates;
mod claims;
mod compat;
mod completion;
mod config;
mod config_cases;
mod context;
mod conventions;
mod corpus;
mod cuts;
mod damage;
mod dialects;
mod docs;
mod doctor;
mod documentation;
mod edit;
mod edit_tools;
mod ends;
mod events;
mod explain;
mod exports;
mod family_kills;
mod faults;
mod first_hour;
mod first_screen;
mod flips;
mod gateway;
mod gateway_endpoints;
mod gateway_examples;
mod gateway_keys;
mod gateway_upstreams;
mod gateway_ways;
mod headless;
mod hooks;
mod imports;
mod interactive;
mod interface;
mod interface_choices;
mod interface_hour;
mod jobs;
mod journals;
mod kills;
mod leaving;
mod limits;
mod line_editor;
mod lint;
mod loopback;
mod mcp;
mod mcp_http;
mod mcp_login;
mod mcp_servers;
mod models;
mod modes;
mod old_journals;
mod parse;
mod pictures;
mod policy;
mod recordings;
mod release;
mod repairs;
mod retries;
mod sandboxes;
mod secrets;
mod settings_import;
mod shells;
mod sinks;
mod subtasks;
mod switching;
mod telemetry;
mod tools;
mod torture;
mod tour;
mod trust;
mod undo;
mod ways;
mod wires;
mod world;
