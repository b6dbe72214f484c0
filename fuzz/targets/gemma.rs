//! The machine of gemma's notation, from the inside of a call on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::behind;

const OPENINGS: &[(&str, &str)] = &[
    ("gemma", "<|tool_call>call:write_to_file{"),
    ("gemma", "<|tool_call>call:write_to_file{content:<|\"|>"),
    ("functiongemma", "<start_function_call>call:write_to_file{content:<escape>"),
];

fuzz_target!(|input: &[u8]| behind(OPENINGS, input));
