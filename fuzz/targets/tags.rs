//! The tagged machine, from the inside of a call on.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::Readers;

const OPENINGS: &[(&str, &str)] = &[
    ("cline", "<write_to_file>\n<path>a</path>\n<content>"),
    ("invoke", "<function_calls>\n<invoke name=\"write_to_file\"><parameter name=\"content\">"),
    ("dsml", "<｜DSML｜function_calls><｜DSML｜invoke name=\"write_to_file\"><｜DSML｜parameter name=\"content\" string=\"true\">"),
    ("minimax_m3", "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"write_to_file\">]<]minimax[>[<content>"),
    ("qwen_coder", "<tool_call>\n<function=write_to_file>\n<parameter=content>\n"),
    ("glm", "<tool_call>write_to_file\n<arg_key>content</arg_key>\n<arg_value>"),
    ("kimi_k3", "<|open|>tools<|sep|><|open|>call tool=\"write_to_file\" index=\"0\"<|sep|><|open|>argument key=\"content\" type=\"string\"<|sep|>"),
    ("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"write_to_file\"><steptml:parameter name=\"content\">"),
];

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

fuzz_target!(|input: &[u8]| READERS.with_borrow_mut(|readers| readers.check_behind(OPENINGS, input)));
