//! The channels of harmony, from the inside of a call on.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::Readers;

const OPENINGS: &[(&str, &str)] = &[
    ("harmony", "<|channel|>"),
    ("harmony", "<|start|>assistant<|channel|>analysis<|message|>"),
    ("harmony", "<|start|>assistant<|channel|>commentary to=functions.write_to_file <|constrain|>json<|message|>{"),
];

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

fuzz_target!(|input: &[u8]| READERS.with_borrow_mut(|readers| readers.check_behind(OPENINGS, input)));
