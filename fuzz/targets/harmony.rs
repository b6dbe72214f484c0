//! The channels of harmony, from the inside of a call on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::behind;

const OPENINGS: &[(&str, &str)] = &[
    ("harmony", "<|channel|>"),
    ("harmony", "<|start|>assistant<|channel|>analysis<|message|>"),
    ("harmony", "<|start|>assistant<|channel|>commentary to=functions.write_to_file <|constrain|>json<|message|>{"),
];

fuzz_target!(|input: &[u8]| behind(OPENINGS, input));
