//! The machine of gemma's notation, from the inside of a call on.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::Readers;

const OPENINGS: &[(&str, &str)] = &[
    ("gemma", "<|tool_call>call:write_to_file{"),
    ("gemma", "<|tool_call>call:write_to_file{content:<|\"|>"),
    ("functiongemma", "<start_function_call>call:write_to_file{content:<escape>"),
];

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

fuzz_target!(|input: &[u8]| READERS.with_borrow_mut(|readers| readers.check_behind(OPENINGS, input)));
