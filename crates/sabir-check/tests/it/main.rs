//! Integration tests of sabir-check, one binary: each binary has to be linked.

mod feedback;
mod gates;
mod lint;
mod odd;
mod old_engines;
mod reader;
