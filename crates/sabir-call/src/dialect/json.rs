//! Lists the JSON dialects: JSON between markers, with the tool's name inside or before it.

use super::Dialect;
use super::grammar::{Grammar, HeaderFormat, JsonCalls, JsonForm};

/// The keys of most dialects: for the name, the arguments and the id.
const KEYS: (&str, &str, Option<&str>) = ("name", "arguments", None);
const JSON_INSTRUCTIONS: &str =
    "Write a call as JSON with the tool's name and its arguments, between the markers.";

pub(super) static ROWS: &[Dialect] = &[
    Dialect {
        name: "hermes",
        aliases: &["qwen", "qwen25", "qwen3", "trinity"],
        summary: "A JSON object with name and arguments in a <tool_call> block (Hermes, Qwen 2.5 and 3).",
        spec: spec_text!("hermes"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<tool_call>", "</tool_call>")],
            ..PLAIN
        }),
        tokens: &["<|im_end|>"],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `arguments`, in a `tool_call` block of its own.",
    },
    Dialect {
        name: "kimi",
        aliases: &["kimi_k2"],
        summary: "functions.NAME:INDEX and JSON arguments between special tokens (Kimi K2).",
        // The section markers occur with singular names too, so those are among the tokens.
        spec: spec_text!("kimi"),
        grammar: &json_grammar(JsonCalls {
            section: Some(("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
            forms: &[JsonForm {
                open: "<|tool_call_begin|>",
                head: Some(HeaderFormat {
                    end: "<|tool_call_argument_begin|>",
                    prefix: "functions.",
                    id: Some(":"),
                    fenced: false,
                    id_first: false,
                    echo: false,
                }),
                close: "<|tool_call_end|>",
                stop: false,
                named_by_key: false,
            }],
            ..PLAIN
        }),
        tokens: &[
            "<|tool_call_section_begin|>",
            "<|tool_call_section_end|>",
            "<|tool_call_end|>",
            "<|im_end|>",
        ],
        thought: None,
        instructions: "Write calls in one section between the markers: for each call `functions.`, the tool's name, `:` and the \
call's number from 0, then the arguments as a JSON object.",
    },
    Dialect {
        name: "deepseek",
        aliases: &["deepseek_v3", "deepseek_v31", "deepseek_r1"],
        summary: "A name and JSON arguments between special tokens (DeepSeek V3, R1 and V3.1).",
        spec: spec_text!("deepseek"),
        grammar: &json_grammar(JsonCalls {
            section: Some(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
            forms: &[
                JsonForm {
                    open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                    head: Some(HeaderFormat {
                        end: "\n",
                        prefix: "",
                        id: None,
                        fenced: true,
                        id_first: false,
                        echo: false,
                    }),
                    close: "<｜tool▁call▁end｜>",
                    stop: false,
                    named_by_key: false,
                },
                JsonForm {
                    open: "<｜tool▁call▁begin｜>",
                    head: Some(HeaderFormat {
                        end: "<｜tool▁sep｜>",
                        prefix: "",
                        id: None,
                        fenced: false,
                        id_first: false,
                        echo: false,
                    }),
                    close: "<｜tool▁call▁end｜>",
                    stop: false,
                    named_by_key: false,
                },
                // The same form after a section marker, for models that omit the marker of the
                // first call.
                JsonForm {
                    open: "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>",
                    head: Some(HeaderFormat {
                        end: "\n",
                        prefix: "",
                        id: None,
                        fenced: true,
                        id_first: false,
                        echo: false,
                    }),
                    close: "<｜tool▁call▁end｜>",
                    stop: false,
                    named_by_key: false,
                },
            ],
            ..PLAIN
        }),
        tokens: &["<｜tool▁call▁end｜>", "<｜end▁of▁sentence｜>"],
        thought: None,
        instructions: "Write calls in one section between the markers: for each call the tool's name, then the arguments as a JSON \
object in a fence.",
    },
    Dialect {
        name: "mistral",
        aliases: &[],
        summary: "[TOOL_CALLS] before a JSON array of calls, or before NAME[ARGS] and JSON arguments (Mistral).",
        // The first form is that of tokenizers up to v7, the second one that of v11 and later.
        spec: spec_text!("mistral"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                named_form("[TOOL_CALLS]", ""),
                JsonForm {
                    open: "[TOOL_CALLS]",
                    head: Some(HeaderFormat {
                        end: "[ARGS]",
                        prefix: "",
                        id: Some("[CALL_ID]"),
                        fenced: false,
                        id_first: false,
                        echo: false,
                    }),
                    close: "",
                    stop: false,
                    named_by_key: false,
                },
            ],
            list: true,
            bare: true,
            ..PLAIN
        }),
        tokens: &["[/TOOL_CALLS]"],
        thought: Some(("[THINK]", "[/THINK]")),
        instructions: "Write all calls of a message as one JSON array behind the marker: for each an object with the tool's `name` \
and its `arguments`.",
    },
    Dialect {
        name: "llama",
        aliases: &["llama3", "llama3_json"],
        summary: "A JSON object with name and parameters behind <|python_tag|>, or bare (Llama 3).",
        // The second form is the one that Meta's prompt for custom tools asks for.
        spec: spec_text!("llama"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                named_form("<|python_tag|>", ""),
                JsonForm {
                    open: "<function=",
                    head: Some(HeaderFormat {
                        end: ">",
                        prefix: "",
                        id: None,
                        fenced: false,
                        id_first: false,
                        echo: false,
                    }),
                    close: "</function>",
                    stop: false,
                    named_by_key: false,
                },
            ],
            keys: ("name", "parameters", None),
            methods: true,
            bare: true,
            ..PLAIN
        }),
        tokens: &["<|eom_id|>", "<|eot_id|>"],
        thought: None,
        instructions: "Write a call as a JSON object with the tool's `name` and its `parameters` behind the marker; several are \
separated by `; `.",
    },
    Dialect {
        name: "granite",
        aliases: &[],
        summary: "A JSON array of calls behind <|tool_call|> (Granite 3).",
        // The second form is that of Granite 3.1, which writes ordinary text instead of a token.
        spec: spec_text!("granite"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                named_form("<|tool_call|>", ""),
                named_form("<tool_call>", ""),
            ],
            list: true,
            ..PLAIN
        }),
        tokens: &["<|/tool_call|>"],
        thought: None,
        instructions: "Write all calls of a message as one JSON array behind the marker: for each an object with the tool's `name` \
and its `arguments`.",
    },
    Dialect {
        name: "granite_20b",
        aliases: &["granite_20b_fc"],
        summary: "<function_call> before each JSON object with name and arguments (Granite 20B).",
        spec: spec_text!("granite_20b"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<function_call>", "")],
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `arguments` behind the marker.",
    },
    Dialect {
        name: "phi",
        aliases: &["phi4_mini", "phi4_mini_json"],
        summary: "A JSON array of calls right behind the word functools (Phi 4 mini).",
        spec: spec_text!("phi"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("functools", "")],
            list: true,
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write all calls of a message as one JSON array right behind the word `functools`: for each an object with the \
tool's `name` and its `arguments`.",
    },
    Dialect {
        name: "cohere",
        aliases: &["command_r", "command_a", "cohere_command4"],
        summary: "A JSON array of tool_call_id, tool_name and parameters between special tokens (Command R7B and A).",
        spec: spec_text!("cohere"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<|START_ACTION|>", "<|END_ACTION|>")],
            keys: ("tool_name", "parameters", Some("tool_call_id")),
            list: true,
            ..PLAIN
        }),
        tokens: &[
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
            "<|END_OF_TURN_TOKEN|>",
        ],
        thought: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
        instructions: "Write all calls of a message as one JSON array between the markers: for each an object with a `tool_call_id` \
(\"0\", \"1\", …), the `tool_name` and its `parameters`.",
    },
    Dialect {
        name: "apertus",
        aliases: &["apertus2509"],
        summary: "A JSON array of objects with the tool's name as their only key, between special tokens (Apertus).",
        spec: spec_text!("apertus"),
        grammar: &json_grammar(JsonCalls {
            forms: &[JsonForm {
                named_by_key: true,
                ..named_form("<|tools_prefix|>", "<|tools_suffix|>")
            }],
            keys: ("", "", None),
            list: true,
            ..PLAIN
        }),
        tokens: &["<|assistant_end|>"],
        thought: Some(("<|inner_prefix|>", "<|inner_suffix|>")),
        instructions: "Write all calls of a message as one JSON array between the markers: for each an object whose only key is the \
tool's name, and whose value is the arguments.",
    },
    Dialect {
        name: "internlm",
        aliases: &["internlm2", "intern_s1"],
        summary: "A JSON object with name and parameters between special tokens (InternLM 2, Intern-S1).",
        spec: spec_text!("internlm"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                named_form("<|action_start|><|plugin|>", "<|action_end|>"),
                named_form("<|action_start|> <|plugin|>", "<|action_end|>"),
                named_form("<|action_start|>\n<|plugin|>", "<|action_end|>"),
            ],
            keys: ("name", "parameters", None),
            ..PLAIN
        }),
        tokens: &["<|im_end|>"],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `parameters`, between the markers.",
    },
    Dialect {
        name: "longcat",
        aliases: &[],
        summary: "A JSON object with name and arguments in a <longcat_tool_call> block (LongCat).",
        spec: spec_text!("longcat"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<longcat_tool_call>", "</longcat_tool_call>")],
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `arguments`, in a `longcat_tool_call` block \
of its own.",
    },
    Dialect {
        name: "inkling",
        aliases: &[],
        summary: "A JSON object with name and args behind <|content_invoke_tool_json|> (Inkling).",
        // The tool's name is the header of the message, and again in the JSON. The marker before it
        // is mostly in the prompt.
        spec: spec_text!("inkling"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                JsonForm {
                    open: "<|message_model|>",
                    head: Some(HeaderFormat {
                        end: "<|content_invoke_tool_json|>",
                        prefix: "",
                        id: None,
                        fenced: false,
                        id_first: false,
                        echo: true,
                    }),
                    close: "<|end_message|>",
                    stop: true,
                    named_by_key: false,
                },
                JsonForm {
                    stop: true,
                    ..named_form("<|content_invoke_tool_json|>", "<|end_message|>")
                },
            ],
            keys: ("name", "args", None),
            ..PLAIN
        }),
        tokens: &[
            "<|message_model|>",
            "<|content_text|>",
            "<|end_message|>",
            "<|content_model_end_sampling|>",
        ],
        thought: Some(("<|content_thinking|>", "<|end_message|>")),
        instructions: "Write each call as a message of its own: the tool's name, then a JSON object with the tool's `name` and its \
`args` between the markers.",
    },
    Dialect {
        name: "solar",
        aliases: &["solar_open"],
        summary: "An id, a name and JSON arguments between special tokens (Solar Open).",
        spec: spec_text!("solar"),
        grammar: &json_grammar(JsonCalls {
            section: Some(("<|tool_calls|>", "<|calls|>")),
            forms: &[JsonForm {
                open: "<|tool_call:begin|>",
                head: Some(HeaderFormat {
                    end: "<|tool_call:args|>",
                    prefix: "",
                    id: Some("<|tool_call:name|>"),
                    fenced: false,
                    id_first: true,
                    echo: false,
                }),
                close: "<|tool_call:end|>",
                stop: false,
                named_by_key: false,
            }],
            ..PLAIN
        }),
        tokens: &["<|begin|>assistant", "<|content|>", "<|flush|>", "<|end|>"],
        thought: Some(("<|think|>", "<|end|>")),
        instructions: "Write calls in one section between the markers: for each call its number from 0, the tool's name, then the \
arguments as a JSON object.",
    },
    Dialect {
        name: "sarashina",
        aliases: &[],
        summary: "A list of calls, written as JSON or as Python dictionaries, behind <|tool_calls|> (Sarashina).",
        spec: spec_text!("sarashina"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<|tool_calls|>", "")],
            list: true,
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write all calls of a message as one JSON array behind the marker: for each an object with the tool's `name` \
and its `arguments`.",
    },
    Dialect {
        name: "gigachat",
        aliases: &["gigachat3"],
        summary: "A JSON object with name and arguments behind <|function_call|> (GigaChat 3).",
        // The second form is the header of a message with a role of its own.
        spec: spec_text!("gigachat"),
        grammar: &json_grammar(JsonCalls {
            forms: &[
                named_form("<|function_call|>", ""),
                named_form("function call<|role_sep|>", ""),
            ],
            ..PLAIN
        }),
        tokens: &["<|message_sep|>"],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `arguments` behind the marker.",
    },
    Dialect {
        name: "plamo3",
        aliases: &["plamo"],
        summary: "A name and JSON arguments between special tokens (PLaMo 3).",
        spec: spec_text!("plamo3"),
        grammar: &json_grammar(JsonCalls {
            section: Some((
                "<|plamo:begin_tool_requests:plamo|>",
                "<|plamo:end_tool_requests:plamo|>",
            )),
            forms: &[JsonForm {
                open: "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
                head: Some(HeaderFormat {
                    end: "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>",
                    prefix: "",
                    id: None,
                    fenced: false,
                    id_first: false,
                    echo: false,
                }),
                close: "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
                stop: false,
                named_by_key: false,
            }],
            ..PLAIN
        }),
        tokens: &["<|plamo:tag|>"],
        thought: None,
        instructions: "Write calls in one section between the markers: for each call the tool's name, then the arguments as a JSON \
object.",
    },
    Dialect {
        name: "k2_horizon_json",
        aliases: &[],
        summary: "A JSON object with name and arguments in an <ifm|tool_call> block (K2 Horizon with JSON).",
        spec: spec_text!("k2_horizon_json"),
        grammar: &json_grammar(JsonCalls {
            section: Some(("<ifm|tool_calls>", "</ifm|tool_calls>")),
            forms: &[named_form("<ifm|tool_call>", "</ifm|tool_call>")],
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call as a JSON object with the tool's `name` and its `arguments` in an `ifm|tool_call` block, and \
all of them in an `ifm|tool_calls` block.",
    },
    Dialect {
        name: "functionary",
        aliases: &["functionary_v3", "functionary32"],
        summary: "The tool's name behind >>>, and JSON arguments on the next line (Functionary 3.2).",
        // The first marker is part of the prompt.
        spec: spec_text!("functionary"),
        grammar: &json_grammar(JsonCalls {
            forms: &[JsonForm {
                open: ">>>",
                head: Some(HeaderFormat {
                    end: "\n",
                    prefix: "",
                    id: None,
                    fenced: false,
                    id_first: false,
                    echo: false,
                }),
                close: "",
                stop: false,
                named_by_key: false,
            }],
            ..PLAIN
        }),
        tokens: &[">>>all\n", "<|eot_id|>"],
        thought: None,
        instructions: "Write each call as `>>>` and the tool's name on a line of its own, then the arguments as a JSON object. Words \
for the user follow a line `>>>all`.",
    },
    Dialect {
        name: "jamba",
        aliases: &[],
        summary: "A JSON array of calls in a <tool_calls> block (Jamba).",
        spec: spec_text!("jamba"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<tool_calls>", "</tool_calls>")],
            list: true,
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: JSON_INSTRUCTIONS,
    },
    Dialect {
        name: "deci",
        aliases: &["nemotron_deci"],
        summary: "A JSON array of calls in a <TOOLCALL> block (Nemotron, DeciLM).",
        spec: spec_text!("deci"),
        grammar: &json_grammar(JsonCalls {
            forms: &[named_form("<TOOLCALL>", "</TOOLCALL>")],
            list: true,
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: JSON_INSTRUCTIONS,
    },
    Dialect {
        name: "json",
        aliases: &["xlam", "fenced_json", "bare_json"],
        summary: "A JSON object or array of calls at the end of a message, bare or in a fence (xLAM, and models without a form).",
        // No markers at all: `reader/bare_call_guess.rs` finds such calls by shape and position.
        spec: spec_text!("json"),
        grammar: &json_grammar(JsonCalls {
            list: true,
            bare: true,
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write all calls of a message as one JSON array at its end: for each an object with the tool's `name` and its \
`arguments`. Nothing may follow it.",
    },
    Dialect {
        name: "react",
        aliases: &[],
        summary: "Action: NAME, then Action Input: and JSON arguments (ReAct prompts).",
        spec: spec_text!("react"),
        grammar: &json_grammar(JsonCalls {
            forms: &[JsonForm {
                open: "Action:",
                head: Some(HeaderFormat {
                    end: "Action Input:",
                    prefix: "",
                    id: None,
                    fenced: false,
                    id_first: false,
                    echo: false,
                }),
                close: "",
                stop: false,
                named_by_key: false,
            }],
            ..PLAIN
        }),
        tokens: &[],
        thought: None,
        instructions: "Write a call on lines of its own: `Action:` and the tool's name, then `Action Input:` and the arguments as a \
JSON object.",
    },
];

const PLAIN: JsonCalls = JsonCalls {
    section: None,
    forms: &[],
    keys: KEYS,
    list: false,
    methods: false,
    bare: false,
};

const fn json_grammar(calls: JsonCalls) -> Grammar {
    Grammar::Json(calls)
}

/// Creates a form whose JSON includes the tool's name.
const fn named_form(open: &'static str, close: &'static str) -> JsonForm {
    JsonForm {
        open,
        head: None,
        close,
        stop: false,
        named_by_key: false,
    }
}
