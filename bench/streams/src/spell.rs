//! How each dialect spells calls, in the form of the models' chat templates.

use serde_json::{Map, Value};

use crate::Asked;

/// Spells the call of that index.
type Spell<'s> = dyn Fn(usize, &str, &Map<String, Value>) -> String + 's;

/// These calls in that dialect, without prose around them; `None` for a dialect that is not known here.
pub fn spell(dialect: &str, calls: &[Asked]) -> Option<String> {
    let each = |spell: &Spell<'_>, between: &str| {
        let calls = calls.iter().enumerate().map(|(at, (name, arguments))| spell(at, name, arguments));
        calls.collect::<Vec<_>>().join(between)
    };
    let objects = |name_key: &str, arguments_key: &str, between: &str| {
        let spell = |_, name: &str, arguments: &_| {
            format!("{{\"{name_key}\": \"{name}\", \"{arguments_key}\": {}}}", object(arguments))
        };
        each(&spell, between)
    };
    Some(match dialect {
        "hermes" => {
            format!("<tool_call>\n{}\n</tool_call>", objects("name", "arguments", "\n</tool_call>\n<tool_call>\n"))
        }
        "qwen_coder" => each(&qwen_coder, "\n"),
        "glm" => each(&glm, ""),
        "minimax" => format!("<minimax:tool_call>\n{}\n</minimax:tool_call>", each(&invoke, "\n")),
        "dsml" => format!("<｜DSML｜tool_calls>\n{}\n</｜DSML｜tool_calls>", each(&dsml, "\n")),
        "kimi" => format!("<|tool_calls_section_begin|>{}<|tool_calls_section_end|>", each(&kimi, "")),
        "deepseek" => format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", each(&deepseek, "\n")),
        "harmony" => each(&harmony, ""),
        "mistral" => format!("[TOOL_CALLS] [{}]", objects("name", "arguments", ", ")),
        "llama" => format!("<|python_tag|>{}", objects("name", "parameters", ";")),
        "pythonic" => format!("[{}]", each(&pythonic, ", ")),
        "cohere" => format!("<|START_ACTION|>[\n{}\n]<|END_ACTION|>", each(&cohere, ",\n")),
        "phi" => format!("functools[{}]", objects("name", "arguments", ", ")),
        "deci" => format!("<TOOLCALL>[{}]</TOOLCALL>", objects("name", "arguments", ", ")),
        "cline" => each(&cline, "\n"),
        "invoke" => format!("<function_calls>\n{}\n</function_calls>", each(&invoke, "\n")),
        _ => return None,
    })
}

/// An object with a blank behind each `:` and `,`, as Python writes it.
fn object(arguments: &Map<String, Value>) -> String {
    let members = arguments.iter().map(|(key, value)| format!("{}: {value}", Value::from(key.as_str())));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

/// A string as it is, anything else as JSON.
fn raw(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Each argument by itself.
fn members(arguments: &Map<String, Value>, between: &str, spell: impl Fn(&str, &Value) -> String) -> String {
    arguments.iter().map(|(key, value)| spell(key, value)).collect::<Vec<_>>().join(between)
}

fn qwen_coder(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all = members(arguments, "\n", |key, value| format!("<parameter={key}>\n{}\n</parameter>", raw(value)));
    format!("<tool_call>\n<function={name}>\n{all}\n</function>\n</tool_call>")
}

/// As 4.7 and later write it: no line feeds.
fn glm(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all =
        members(arguments, "", |key, value| format!("<arg_key>{key}</arg_key><arg_value>{}</arg_value>", raw(value)));
    format!("<tool_call>{name}{all}</tool_call>")
}

fn invoke(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all = members(arguments, "\n", |key, value| format!("<parameter name=\"{key}\">{}</parameter>", raw(value)));
    format!("<invoke name=\"{name}\">\n{all}\n</invoke>")
}

fn dsml(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all = members(arguments, "\n", |key, value| {
        format!("<｜DSML｜parameter name=\"{key}\" string=\"{}\">{}</｜DSML｜parameter>", value.is_string(), raw(value))
    });
    format!("<｜DSML｜invoke name=\"{name}\">\n{all}\n</｜DSML｜invoke>")
}

fn kimi(at: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let arguments = object(arguments);
    format!("<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
}

/// As version 3 writes it.
fn deepseek(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let arguments = object(arguments);
    format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>")
}

fn harmony(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let arguments = object(arguments);
    format!(
        "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
    )
}

fn cohere(at: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let arguments = object(arguments);
    format!("    {{\"tool_call_id\": \"{at}\", \"tool_name\": \"{name}\", \"parameters\": {arguments}}}")
}

/// Python's literals; a JSON string of printable text is one.
fn pythonic(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all = members(arguments, ", ", |key, value| match value {
        Value::Bool(true) => format!("{key}=True"),
        Value::Bool(false) => format!("{key}=False"),
        Value::Null => format!("{key}=None"),
        other => format!("{key}={other}"),
    });
    format!("{name}({all})")
}

fn cline(_: usize, name: &str, arguments: &Map<String, Value>) -> String {
    let all = members(arguments, "\n", |key, value| format!("<{key}>{}</{key}>", raw(value)));
    format!("<{name}>\n{all}\n</{name}>")
}
