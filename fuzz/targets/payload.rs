//! The JSON machine, from the inside of a call on.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::Readers;

const OPENINGS: &[(&str, &str)] = &[
    ("hermes", "<tool_call>\n"),
    ("hermes", "<tool_call>\n{\"name\": \"write_to_file\", \"arguments\": {\"content\": \""),
    ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_to_file:0<|tool_call_argument_begin|>{"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_to_file\n```json\n{"),
    ("mistral", "[TOOL_CALLS] [{"),
    ("mistral", "[TOOL_CALLS]write_to_file[ARGS]{"),
    ("llama", "<|python_tag|>{"),
    ("cohere", "<|START_ACTION|>[{"),
    ("phi", "functools["),
    ("json", "```json\n{\"name\": \"get_time\""),
];

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

fuzz_target!(|input: &[u8]| READERS.with_borrow_mut(|readers| readers.check_behind(OPENINGS, input)));
