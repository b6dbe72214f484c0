//! Lists the dialects without tags or JSON: Python calls, Gemma's notation, and the channels of
//! harmony.

use super::Dialect;
use super::grammar::{GemmaCalls, Grammar, PythonCalls};

const PYTHON_INSTRUCTIONS: &str = "Write all calls of a message as one Python list: `tool(argument=value, …)` for each, with keyword \
arguments only. Strings are in quotes, with Python's escapes.";
const GEMMA_INSTRUCTIONS: &str = "Write each call between the markers: `call:`, the tool's name, and its arguments in braces. Every \
string is between two quote markers, as it is.";

pub(super) static ROWS: &[Dialect] = &[
    Dialect {
        name: "pythonic",
        aliases: &["llama4", "llama4_pythonic"],
        summary: "A Python list of calls: [f(a=\"x\", b=1), g()] (Llama 4 and others).",
        spec: spec_text!("pythonic"),
        grammar: &Grammar::Python(PythonCalls {
            open: "",
            close: "",
            list: true,
        }),
        tokens: &["<|python_end|>", "<|eom|>", "<|eot|>"],
        thought: None,
        instructions: PYTHON_INSTRUCTIONS,
    },
    Dialect {
        name: "lfm2",
        aliases: &[],
        summary: "A Python list of calls between special tokens (LFM2).",
        spec: spec_text!("lfm2"),
        grammar: &Grammar::Python(PythonCalls {
            open: "<|tool_call_start|>",
            close: "<|tool_call_end|>",
            list: true,
        }),
        tokens: &["<|im_end|>"],
        thought: None,
        instructions: PYTHON_INSTRUCTIONS,
    },
    Dialect {
        name: "olmo3",
        aliases: &[],
        summary: "Python calls in a <function_calls> block (OLMo 3).",
        spec: spec_text!("olmo3"),
        grammar: &Grammar::Python(PythonCalls {
            open: "<function_calls>",
            close: "</function_calls>",
            list: false,
        }),
        tokens: &[],
        thought: None,
        instructions: PYTHON_INSTRUCTIONS,
    },
    Dialect {
        name: "gemma",
        aliases: &["gemma4"],
        summary: "call:f{k:v} between special tokens, strings between quote tokens (Gemma 4).",
        spec: spec_text!("gemma"),
        grammar: &Grammar::Gemma(GemmaCalls {
            open: "<|tool_call>",
            close: "<tool_call|>",
            quote: "<|\"|>",
        }),
        tokens: &["<turn|>", "<|tool_response>"],
        // The channel name is part of the opening marker.
        thought: Some(("<|channel>thought", "<channel|>")),
        instructions: GEMMA_INSTRUCTIONS,
    },
    Dialect {
        name: "functiongemma",
        aliases: &[],
        summary: "call:f{k:v} between tags, strings between <escape> tags (FunctionGemma).",
        spec: spec_text!("functiongemma"),
        grammar: &Grammar::Gemma(GemmaCalls {
            open: "<start_function_call>",
            close: "<end_function_call>",
            quote: "<escape>",
        }),
        tokens: &[],
        thought: None,
        instructions: GEMMA_INSTRUCTIONS,
    },
    Dialect {
        name: "harmony",
        aliases: &["gpt_oss", "openai"],
        summary: "Channels: a message on the commentary channel to functions.NAME is a call (gpt-oss).",
        spec: spec_text!("harmony"),
        grammar: &Grammar::Harmony,
        tokens: &["<|end|>", "<|return|>", "<|call|>"],
        thought: None,
        instructions: "Write each call as a message of its own on the commentary channel, addressed to `functions.` and the tool's \
name, with the arguments as a JSON object.",
    },
];
