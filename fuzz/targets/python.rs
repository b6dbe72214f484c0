//! The machine of Python lists, from the inside of a call on.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::Readers;

const OPENINGS: &[(&str, &str)] = &[
    ("pythonic", "[write_to_file("),
    ("lfm2", "<|tool_call_start|>[write_to_file(content="),
    ("olmo3", "<function_calls>write_to_file("),
    ("pythonic", "["),
];

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

fuzz_target!(|input: &[u8]| READERS.with_borrow_mut(|readers| readers.check_behind(OPENINGS, input)));
