//! Tests the grammars of all dialects against the parser, the checks and the renderer.

#[path = "../../../sabir-testkit/src/case_count.rs"]
mod case_count;
mod formats;
mod properties;
mod schemas;
mod tools;
