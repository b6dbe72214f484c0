//! Lists the dialects in which the tool's name is in a tag and each argument is in a tag.

use super::grammar::{Grammar, NamePosition, TagNotation, TagScheme, TaggedCalls};
use super::{CLINE, Dialect, INVOKE};

/// `invoke` tags with `parameter` tags, with any prefix.
const INVOKE_TAGS: TagScheme = TagScheme::Fixed {
    call: "invoke",
    argument: "parameter",
    call_name: NamePosition::Attribute("name"),
    argument_name: NamePosition::Attribute("name"),
    typed: None,
};

/// `<function=f>` with `<parameter=k>`.
const FUNCTION_TAGS: TagScheme = TagScheme::Fixed {
    call: "function",
    argument: "parameter",
    call_name: NamePosition::Equals,
    argument_name: NamePosition::Equals,
    typed: None,
};

/// The tool's name as text, then keys and values.
const GLM_TAGS: TagScheme = TagScheme::Keyed {
    call: "tool_call",
    key: "arg_key",
    value: "arg_value",
};

pub(super) static ROWS: &[Dialect] = &[
    Dialect {
        name: CLINE,
        aliases: &["roo", "xml"],
        summary: "The tool's name is the tag, each argument is a tag of its own inside it (Cline, Roo Code).",
        // No prefix: the tags are the names of tools and arguments themselves.
        spec: spec_text!("cline"),
        grammar: &tagged_grammar(TagScheme::Own, &[], &[""]),
        tokens: &[],
        thought: None,
        instructions: "Write a call as XML-style tags: the tool's name is the tag, and each argument is a tag of its own inside it, \
named exactly as declared.",
    },
    Dialect {
        name: INVOKE,
        aliases: &["claude", "function_calls"],
        summary: "Calls are <invoke name=\"…\"> tags in a <function_calls> block, arguments <parameter name=\"…\"> tags.",
        spec: spec_text!("invoke"),
        grammar: &tagged_grammar(INVOKE_TAGS, &["function_calls"], &["", ":"]),
        tokens: &[],
        thought: None,
        instructions: "Write calls in a `function_calls` block: one `invoke` tag with the tool's name for each call, and in it one \
`parameter` tag with the argument's name for each argument, named exactly as declared.",
    },
    Dialect {
        name: "muse",
        aliases: &["muse_glimmer", "atem"],
        summary: "The tags of invoke with the prefix atem: in messages that are addressed to a tool (Muse).",
        spec: spec_text!("muse"),
        grammar: &Grammar::Tagged(TaggedCalls {
            channels: true,
            ..angle_calls(INVOKE_TAGS, &["function_calls"], false, &["atem:"])
        }),
        tokens: &["<|eom|>", "<|eot|>"],
        thought: None,
        instructions: "Write calls in an `atem:function_calls` block: one `atem:invoke` tag with the tool's name for each call, and \
in it one `atem:parameter` tag with the argument's name for each argument.",
    },
    Dialect {
        name: "beam",
        aliases: &[],
        summary: "The header of a message to a tool, then <rfl:parameter name=\"…\"> tags up to <|call|> (Beam).",
        spec: spec_text!("beam"),
        grammar: &Grammar::Tagged(TaggedCalls {
            channels: true,
            header_opens: true,
            ..angle_calls(
                TagScheme::Fixed {
                    call: "call",
                    argument: "parameter",
                    call_name: NamePosition::Attribute("name"),
                    argument_name: NamePosition::Attribute("name"),
                    typed: None,
                },
                &[],
                false,
                &["rfl:"],
            )
        }),
        tokens: &["<|end|>", "<|return|>", "<|call|>"],
        thought: None,
        instructions: "Write each call as a message of its own that is addressed to the tool, and in it one `rfl:parameter` tag with \
the argument's name for each argument. Each value goes on lines of its own.",
    },
    Dialect {
        name: "dsml",
        aliases: &["deepseek_v32", "deepseek_v4"],
        summary: "The tags of invoke behind a sentinel: <｜DSML｜invoke name=\"…\"> (DeepSeek V3.2, V4).",
        // The block was renamed with V4; the first name is the one that is written.
        spec: spec_text!("dsml"),
        grammar: &tagged_grammar(
            TagScheme::Fixed {
                call: "invoke",
                argument: "parameter",
                call_name: NamePosition::Attribute("name"),
                argument_name: NamePosition::Attribute("name"),
                typed: Some(("string", "true", "false")),
            },
            &["function_calls", "tool_calls", "calls"],
            &["｜DSML｜"],
        ),
        tokens: &[],
        thought: None,
        instructions: "Write calls in a block of tags that all begin with the sentinel. An argument that is a string carries \
`string=\"true\"` and is written as it is; any other value carries `string=\"false\"` and is written as JSON.",
    },
    Dialect {
        name: "gigachat35",
        aliases: &["gigachat3_5"],
        summary: "The tags of dsml behind another sentinel: <｜GCML｜invoke name=\"…\"> (GigaChat 3.5).",
        spec: spec_text!("gigachat35"),
        grammar: &tagged_grammar(
            TagScheme::Fixed {
                call: "invoke",
                argument: "parameter",
                call_name: NamePosition::Attribute("name"),
                argument_name: NamePosition::Attribute("name"),
                typed: Some(("string", "true", "false")),
            },
            &["tool_calls"],
            &["｜GCML｜"],
        ),
        tokens: &[],
        thought: None,
        instructions: "Write calls in a block of tags that all begin with the sentinel. An argument that is a string carries \
`string=\"true\"` and is written as it is; any other value carries `string=\"false\"` and is written as JSON.",
    },
    Dialect {
        name: "dots",
        aliases: &[],
        summary: "The tags of invoke in a <dots_function_call> block (dots).",
        spec: spec_text!("dots"),
        grammar: &tagged_grammar(INVOKE_TAGS, &["dots_function_call"], &[""]),
        tokens: &[],
        thought: None,
        instructions: "Write calls in a `dots_function_call` block: one `invoke` tag with the tool's name for each call, and in it \
one `parameter` tag with the argument's name for each argument.",
    },
    Dialect {
        name: "minimax",
        aliases: &["minimax_m2"],
        summary: "The tags of invoke in a <minimax:tool_call> block (MiniMax M2).",
        spec: spec_text!("minimax"),
        grammar: &tagged_grammar(INVOKE_TAGS, &["minimax:tool_call"], &["", ":"]),
        tokens: &[],
        thought: None,
        instructions: "Write calls in a `minimax:tool_call` block: one `invoke` tag with the tool's name for each call, and in it \
one `parameter` tag with the argument's name for each argument.",
    },
    Dialect {
        name: "minimax_m3",
        aliases: &[],
        summary: "Every tag follows ]<]minimax[>[, arguments are tags of their own names (MiniMax M3).",
        // An empty argument tag means that each argument is a tag of its own name.
        spec: spec_text!("minimax_m3"),
        grammar: &Grammar::Tagged(TaggedCalls {
            notation: TagNotation::Marked("]<]minimax[>["),
            tags: TagScheme::Fixed {
                call: "invoke",
                argument: "",
                call_name: NamePosition::Attribute("name"),
                argument_name: NamePosition::Attribute("name"),
                typed: None,
            },
            wrappers: &["tool_call"],
            each: false,
            sections: &[],
            prefixes: &[""],
            frames: &[],
            channels: false,
            header_opens: false,
            exact_values: false,
            sections_of_text: false,
        }),
        tokens: &[],
        thought: None,
        instructions: "Every tag follows the same marker. Write one `invoke` tag with the tool's name for each call, and in \
it one tag for each argument, named as the argument.",
    },
    Dialect {
        name: "qwen_coder",
        aliases: &["qwen3_coder", "qwen_xml", "nemotron", "step3_5", "step5"],
        summary: "<function=f> tags with <parameter=k> tags in a <tool_call> block (Qwen3-Coder, Nemotron, Step 3.5).",
        // The block is shared with hermes and glm, so only its content selects this dialect.
        spec: spec_text!("qwen_coder"),
        grammar: &grammar_wrapping_each(FUNCTION_TAGS, &["tool_call"]),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `tool_call` block: one `function` tag with the tool's name, and in it one `parameter` \
tag for each argument, its value on lines of its own.",
    },
    Dialect {
        name: "mimo",
        aliases: &[],
        summary: "The tags of qwen_coder with each value right between its tags, line feeds included (MiMo).",
        spec: spec_text!("mimo"),
        grammar: &Grammar::Tagged(TaggedCalls {
            exact_values: true,
            ..angle_calls(FUNCTION_TAGS, &["tool_call"], true, &[""])
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `tool_call` block: one `function` tag with the tool's name, and in it one `parameter` \
tag for each argument, its value directly between the tags.",
    },
    Dialect {
        name: "minicpm5",
        aliases: &["minicpm"],
        summary: "XML: <function name=\"…\"> with <param name=\"…\">, values as they are or in CDATA (MiniCPM5).",
        spec: spec_text!("minicpm5"),
        grammar: &Grammar::Tagged(TaggedCalls {
            sections_of_text: true,
            ..angle_calls(
                TagScheme::Fixed {
                    call: "function",
                    argument: "param",
                    call_name: NamePosition::Attribute("name"),
                    argument_name: NamePosition::Attribute("name"),
                    typed: None,
                },
                &[],
                false,
                &[""],
            )
        }),
        tokens: &["<|im_end|>"],
        thought: None,
        instructions: "Write each call as a `function` tag with the tool's name, and in it one `param` tag with the argument's name for \
each argument.",
    },
    Dialect {
        name: "seed_oss",
        aliases: &["seed"],
        summary: "The tags of qwen_coder in a <seed:tool_call> block (Seed-OSS).",
        spec: spec_text!("seed_oss"),
        grammar: &grammar_wrapping_each(FUNCTION_TAGS, &["seed:tool_call"]),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `seed:tool_call` block: one `function` tag with the tool's name, and in it one \
`parameter` tag for each argument.",
    },
    Dialect {
        name: "glm",
        aliases: &["glm45", "glm47", "ling3", "poolside_v1"],
        summary: "The tool's name, then <arg_key> and <arg_value> pairs, in a <tool_call> block (GLM 4.5 and later).",
        spec: spec_text!("glm"),
        grammar: &tagged_grammar(GLM_TAGS, &[], &[""]),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `tool_call` block: the tool's name, then for each argument an `arg_key` and an \
`arg_value`.",
    },
    Dialect {
        name: "spark25",
        aliases: &["spark"],
        summary: "The tags of glm with each value as it is between its tags, line feeds included (Spark 2.5).",
        spec: spec_text!("spark25"),
        grammar: &Grammar::Tagged(TaggedCalls {
            exact_values: true,
            ..angle_calls(GLM_TAGS, &[], false, &[""])
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `tool_call` block: the tool's name, then for each argument an `arg_key` and an \
`arg_value`, the value directly between its tags.",
    },
    Dialect {
        name: "hunyuan",
        aliases: &["hy_v3", "hy_v4"],
        summary: "The tags of glm in a <tool_calls> block (Hunyuan v3 and v4).",
        spec: spec_text!("hunyuan"),
        grammar: &tagged_grammar(GLM_TAGS, &["tool_calls"], &[""]),
        tokens: &[],
        thought: None,
        instructions: "Write each call in a `tool_call` block, and all of them in a `tool_calls` block: the tool's name, then for \
each argument an `arg_key` and an `arg_value`.",
    },
    Dialect {
        name: "hy3",
        aliases: &["hunyuan3"],
        summary: "The tags of hunyuan, each with the suffix :opensource (Hy3).",
        spec: spec_text!("hy3"),
        grammar: &tagged_grammar(
            TagScheme::Keyed {
                call: "tool_call:opensource",
                key: "arg_key:opensource",
                value: "arg_value:opensource",
            },
            &["tool_calls:opensource"],
            &[""],
        ),
        tokens: &[],
        thought: Some(("<think:opensource>", "</think:opensource>")),
        instructions: "Write each call in a `tool_call:opensource` block, and all of them in a `tool_calls:opensource` block: the \
tool's name, then for each argument an `arg_key:opensource` and an `arg_value:opensource`.",
    },
    Dialect {
        name: "iquest_q1",
        aliases: &["iquest"],
        summary: "The tags of glm in an <iquest_tool_call> block, values as they are (IQuest Q1).",
        spec: spec_text!("iquest_q1"),
        grammar: &Grammar::Tagged(TaggedCalls {
            exact_values: true,
            ..angle_calls(
                TagScheme::Keyed {
                    call: "iquest_tool_call",
                    key: "arg_key",
                    value: "arg_value",
                },
                &[],
                false,
                &[""],
            )
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call in an `iquest_tool_call` block: the tool's name, then for each argument an `arg_key` and an \
`arg_value`, the value directly between its tags.",
    },
    Dialect {
        name: "k2_horizon",
        aliases: &[],
        summary: "The tags of glm with the prefix ifm| in a block around all calls (K2 Horizon).",
        spec: spec_text!("k2_horizon"),
        grammar: &tagged_grammar(
            TagScheme::Keyed {
                call: "ifm|tool_call",
                key: "ifm|arg_key",
                value: "ifm|arg_value",
            },
            &["ifm|tool_calls"],
            &[""],
        ),
        tokens: &[],
        thought: None,
        instructions: "Write each call in an `ifm|tool_call` block, and all of them in an `ifm|tool_calls` block: the tool's name, \
then for each argument an `ifm|arg_key` and an `ifm|arg_value`.",
    },
    Dialect {
        name: "solar2",
        aliases: &["solar_open2", "solar_pro4"],
        summary: "Keys and values between special tokens (Solar Open 2).",
        spec: spec_text!("solar2"),
        grammar: &Grammar::Tagged(TaggedCalls {
            exact_values: true,
            ..angle_calls(
                TagScheme::Keyed {
                    call: "|tool_call:start|",
                    key: "|tool_arg:start|",
                    value: "|tool_arg:value|",
                },
                &[],
                false,
                &[""],
            )
        }),
        tokens: &["<|im:end|>", "<|im:content|>"],
        thought: Some(("<|think:start|>", "<|think:end|>")),
        instructions: "Write the tool's name behind the first marker, then for each argument its name and its value between the \
others, the value as it is.",
    },
    Dialect {
        name: "kimi_k3",
        aliases: &[],
        summary: "Tags between <|open|>, <|close|> and <|sep|> (Kimi K3).",
        // Values carry a JSON type name, of which `string` is raw text.
        spec: spec_text!("kimi_k3"),
        grammar: &Grammar::Tagged(TaggedCalls {
            notation: TagNotation::Delimited {
                open: "<|open|>",
                close: "<|close|>",
                end: "<|sep|>",
            },
            tags: TagScheme::Fixed {
                call: "call",
                argument: "argument",
                call_name: NamePosition::Attribute("tool"),
                argument_name: NamePosition::Attribute("key"),
                typed: Some(("type", "string", "json")),
            },
            wrappers: &["tools"],
            each: false,
            sections: &[],
            prefixes: &[""],
            frames: &["response", "message"],
            channels: false,
            header_opens: false,
            exact_values: false,
            sections_of_text: false,
        }),
        tokens: &[],
        thought: Some(("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
        instructions: "Write calls in a `tools` block: one `call` with the tool's name and its number for each call, and in it one \
`argument` with key and type for each argument.",
    },
    Dialect {
        name: "step3",
        aliases: &[],
        summary: "The tags of invoke with the prefix steptml: between DeepSeek's markers (Step 3).",
        spec: spec_text!("step3"),
        grammar: &Grammar::Tagged(TaggedCalls {
            notation: TagNotation::Angle,
            tags: INVOKE_TAGS,
            wrappers: &[],
            each: false,
            sections: &[
                ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
                (
                    "<｜tool_call_begin｜>function<｜tool_sep｜>",
                    "<｜tool_call_end｜>",
                ),
                ("<｜tool_call_begin｜>", "<｜tool_sep｜>"),
            ],
            prefixes: &["steptml:"],
            frames: &[],
            channels: false,
            header_opens: false,
            exact_values: false,
            sections_of_text: false,
        }),
        tokens: &[],
        thought: None,
        instructions: "Write each call between the markers: one `steptml:invoke` tag with the tool's name, and in it one \
`steptml:parameter` tag for each argument.",
    },
];

const fn tagged_grammar(
    tags: TagScheme,
    wrappers: &'static [&'static str],
    prefixes: &'static [&'static str],
) -> Grammar {
    Grammar::Tagged(angle_calls(tags, wrappers, false, prefixes))
}

/// Creates a grammar in which each call has its own wrapper.
const fn grammar_wrapping_each(tags: TagScheme, wrappers: &'static [&'static str]) -> Grammar {
    Grammar::Tagged(angle_calls(tags, wrappers, true, &[""]))
}

/// Creates a grammar of angle-bracket tags that has only wrappers around them.
pub(super) const fn angle_calls(
    tags: TagScheme,
    wrappers: &'static [&'static str],
    each: bool,
    prefixes: &'static [&'static str],
) -> TaggedCalls {
    TaggedCalls {
        notation: TagNotation::Angle,
        tags,
        wrappers,
        each,
        sections: &[],
        prefixes,
        frames: &[],
        channels: false,
        header_opens: false,
        exact_values: false,
        sections_of_text: false,
    }
}
