//! The machine of Python lists, from the inside of a call on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::behind;

const OPENINGS: &[(&str, &str)] = &[
    ("pythonic", "[write_to_file("),
    ("lfm2", "<|tool_call_start|>[write_to_file(content="),
    ("olmo3", "<function_calls>write_to_file("),
    ("pythonic", "["),
];

fuzz_target!(|input: &[u8]| behind(OPENINGS, input));
