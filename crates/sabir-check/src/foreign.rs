//! Converts calls of other agents' tools into calls of the declared ones.
//!
//! The table ([`sabir_call::compatibility`]) says which tool is meant and what each argument becomes.
//! A conversion is exact or it does not happen: what cannot be expressed is refused with a hint. The
//! converted call is then validated and checked as if the model had written it.

use sabir_call::compatibility::{ArgumentEffect, ArgumentKind, ForeignMeaning, ForeignTool};
use sabir_call::{ToolSet, ToolSpec};
use serde_json::{Map, Value, json};

pub(crate) use self::values::Refusal;
use self::values::{
    choice_texts, command_line, line_range, requested_files, single_question, todo_text,
};

mod values;

/// A call in the form that a declared tool has.
#[derive(Debug, PartialEq)]
pub(crate) struct ConvertedCall {
    /// The name of the declared tool.
    pub(crate) tool: &'static str,
    pub(crate) arguments: Map<String, Value>,
}

/// Returns the definition by which the arguments of a foreign call are read.
///
/// `own` is the declared tool of the same name, whose arguments the row extends.
pub(crate) fn foreign_spec(
    name: &str,
    row: &ForeignTool,
    own: Option<&ToolSpec>,
    given: &[&str],
) -> ToolSpec {
    let own = own.filter(|_| row.is_extension());
    let mut properties = own
        .and_then(|own| own.parameters.get("properties")?.as_object())
        .cloned()
        .unwrap_or_default();
    let mut required: Vec<Value> = own
        .and_then(|own| own.parameters.get("required")?.as_array())
        .cloned()
        .unwrap_or_default();
    for argument in row.arguments {
        let schema = match argument.kind {
            ArgumentKind::Text => json!({"type": "string"}),
            ArgumentKind::Integer => json!({"type": "integer"}),
            ArgumentKind::Number => json!({"type": "number"}),
            ArgumentKind::Flag => json!({"type": "boolean"}),
            ArgumentKind::Any => json!({}),
        };
        properties.insert(argument.name.to_owned(), schema);
        if argument.required {
            required.push(json!(argument.name));
        }
        // These name the file themselves.
        if argument.effect == ArgumentEffect::Files && given.contains(&argument.name) {
            required.retain(|name| name != "path");
        }
    }
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec::new(name, "", parameters)
}

/// Converts typed arguments of a foreign call.
///
/// # Errors
/// Returns the argument without an exact counterpart, with a hint.
pub(crate) fn convert_call(
    row: &'static ForeignTool,
    given: Map<String, Value>,
    tools: &ToolSet,
) -> Result<ConvertedCall, Refusal> {
    let converted = match row.meaning {
        ForeignMeaning::Refused(hint) => return Err(Refusal::of_tool(hint)),
        ForeignMeaning::Tool(tool) | ForeignMeaning::ToolIfOffered { tool, .. } => ConvertedCall {
            tool,
            arguments: convert_arguments(row, given)?,
        },
        ForeignMeaning::SubCommand { argument, cases } => {
            let wanted = given
                .get(argument)
                .and_then(Value::as_str)
                .unwrap_or_default();
            let Some((_, case)) = cases.iter().find(|(value, _)| *value == wanted) else {
                let known: Vec<String> = cases
                    .iter()
                    .map(|(value, _)| format!("`{value}`"))
                    .collect();
                return Err(Refusal::of_argument(
                    argument,
                    format!("its values are {}", known.join(", ")),
                ));
            };
            let tool = match case.meaning {
                ForeignMeaning::Tool(tool) => tool,
                ForeignMeaning::Refused(hint) => return Err(Refusal::of_argument(argument, hint)),
                ForeignMeaning::ToolIfOffered { .. } | ForeignMeaning::SubCommand { .. } => {
                    return Err(Refusal::of_tool(""));
                }
            };
            let mut rest = Map::new();
            for (name, value) in given {
                let is_used = case.arguments.iter().any(|own| own.name == name);
                let is_ignored = name == argument || name == "security_risk" || is_left_out(&value);
                if is_used {
                    rest.insert(name, value);
                } else if !is_ignored {
                    return Err(Refusal::of_argument(
                        &name,
                        format!("`{}` does not take it", case.names.join("`, `")),
                    ));
                }
            }
            for needed in case.arguments.iter().filter(|own| own.required) {
                if !rest.contains_key(needed.name) {
                    return Err(Refusal::of_argument(
                        needed.name,
                        format!("add `{}`", needed.name),
                    ));
                }
            }
            ConvertedCall {
                tool,
                arguments: convert_arguments(case, rest)?,
            }
        }
    };
    if tools.get(converted.tool).is_none() {
        return Err(Refusal::of_tool(
            "use one of the tools of the system prompt",
        ));
    }
    Ok(converted)
}

/// Returns true if a value says that an argument is not given.
fn is_left_out(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The arguments of a converted call, while they are collected.
#[derive(Default)]
struct ConvertedArguments {
    arguments: Map<String, Value>,
    /// A number of lines that depends on another argument, applied after all are collected.
    line_count: Option<u64>,
    shown_command: Option<String>,
    ignores_case: bool,
}

fn convert_arguments(
    row: &ForeignTool,
    given: Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let mut converted = ConvertedArguments::default();
    for (name, value) in given {
        let effect = row
            .arguments
            .iter()
            .find(|argument| argument.name == name)
            .map(|argument| argument.effect);
        match effect {
            // The row only extends a tool, which has this argument itself.
            None => converted.set_argument(&name, &name, value)?,
            Some(effect) => converted.apply_effect(&name, effect, value)?,
        }
    }
    converted.finish()
}

impl ConvertedArguments {
    fn set_argument(&mut self, name: &str, target: &str, value: Value) -> Result<(), Refusal> {
        // JSON Schema counts 30.0 as an integer, the tools do not.
        let value = match value.as_f64() {
            Some(number) if value.is_f64() && number.fract() == 0.0 => {
                serde_json::from_str(&format!("{number:.0}")).unwrap_or(value)
            }
            _ => value,
        };
        if self.arguments.insert(target.to_owned(), value).is_some() {
            return Err(Refusal::of_argument(
                name,
                format!("`{target}` is given by another argument too; give it once"),
            ));
        }
        Ok(())
    }

    fn apply_effect(
        &mut self,
        name: &str,
        effect: ArgumentEffect,
        value: Value,
    ) -> Result<(), Refusal> {
        let refuse = |hint: &str| Refusal::of_argument(name, hint);
        if value.is_null() {
            return Ok(());
        }
        match effect {
            ArgumentEffect::Value(target) => self.set_argument(name, target, value)?,
            ArgumentEffect::Ignored => {}
            ArgumentEffect::Only(only, hint) => {
                let text = match &value {
                    Value::String(text) => text.trim().trim_end_matches('/').to_lowercase(),
                    other => other.to_string(),
                };
                if !text.is_empty() && text != only {
                    return Err(refuse(hint));
                }
            }
            ArgumentEffect::Refused(hint) => {
                if !is_left_out(&value) && value != Value::Bool(false) {
                    return Err(refuse(hint));
                }
            }
            ArgumentEffect::Milliseconds(target) => {
                let given = value.as_f64().unwrap_or_default();
                if given < 1000.0 {
                    return Err(refuse(
                        "it counts milliseconds, and this is less than a second; give seconds as `timeout` of `execute_command`",
                    ));
                }
                let seconds = (given / 1000.0).ceil();
                self.set_argument(name, target, json!(seconds))?;
            }
            ArgumentEffect::CommandLine => {
                let command = command_line(&value)
                    .ok_or_else(|| refuse("write the command line as one string"))?;
                // Codex's shell has such a program; here it is a tool.
                if command.starts_with("apply_patch") && command.contains("*** Begin Patch") {
                    return Err(refuse(
                        "call the tool `apply_patch` with the patch, from `*** Begin Patch` to `*** End Patch`",
                    ));
                }
                self.set_argument(name, "command", Value::String(command))?;
            }
            ArgumentEffect::LineRange => {
                let range = line_range(&value)
                    .ok_or_else(|| refuse("use `start_line` and `end_line`, which count from 1"))?;
                self.set_argument(name, "start_line", json!(range.first))?;
                if let Some(last) = range.last {
                    self.set_argument(name, "end_line", json!(last))?;
                }
            }
            ArgumentEffect::FirstLine => {
                let first = value
                    .as_u64()
                    .ok_or_else(|| refuse("use `start_line`, which counts from 1"))?;
                if first > 0 {
                    self.set_argument(name, "start_line", value)?;
                }
            }
            ArgumentEffect::LineCount => {
                let count = value.as_u64().filter(|count| *count > 0);
                self.line_count = Some(count.ok_or_else(|| {
                    refuse("use `start_line` and `end_line`, which count from 1")
                })?);
            }
            ArgumentEffect::Files => {
                let files = requested_files(&value).ok_or_else(|| {
                    refuse(
                        "give the first file as `path`, with `start_line` and `end_line`, and the others in `more_paths` as `PATH` or `PATH:FIRST-LAST`",
                    )
                })?;
                let mut files = files.into_iter();
                if let Some(file) = files.next() {
                    self.set_argument(name, "path", Value::String(file.path))?;
                    if let Some(range) = file.range {
                        self.set_argument(name, "start_line", json!(range.first))?;
                        if let Some(last) = range.last {
                            self.set_argument(name, "end_line", json!(last))?;
                        }
                    }
                }
                let more: Option<Vec<String>> = files.map(|file| file.as_path_argument()).collect();
                let more = more.ok_or_else(|| {
                    refuse("read the file whose name holds a colon in a call of its own")
                })?;
                if !more.is_empty() {
                    self.set_argument(name, "more_paths", json!(more))?;
                }
            }
            ArgumentEffect::Choices => {
                let choices = choice_texts(&value)
                    .ok_or_else(|| refuse("give the answers as a list of texts in `follow_up`"))?;
                if !choices.is_empty() {
                    self.set_argument(name, "follow_up", json!(choices))?;
                }
            }
            ArgumentEffect::Questions => {
                let (question, choices) = single_question(&value).ok_or_else(|| {
                    refuse("ask one question in a call, with `question` and `follow_up`")
                })?;
                self.set_argument(name, "question", Value::String(question))?;
                if !choices.is_empty() {
                    self.set_argument(name, "follow_up", json!(choices))?;
                }
            }
            ArgumentEffect::Todos => {
                let todos = todo_text(&value).ok_or_else(|| {
                    refuse("give `todos` as text: a line for each, `[ ] open`, `[-] in progress`, `[x] done`")
                })?;
                self.set_argument(name, "todos", Value::String(todos))?;
            }
            ArgumentEffect::ShownCommand => {
                self.shown_command = value
                    .as_str()
                    .map(str::trim)
                    .filter(|command| !command.is_empty())
                    .map(str::to_owned);
            }
            ArgumentEffect::IgnoreCase => self.ignores_case |= value == Value::Bool(true),
            ArgumentEffect::CaseSensitive => self.ignores_case |= value == Value::Bool(false),
        }
        Ok(())
    }

    /// Applies what depends on other arguments.
    fn finish(mut self) -> Result<Map<String, Value>, Refusal> {
        if let Some(count) = self.line_count {
            let first = self.arguments.get("start_line").and_then(Value::as_u64);
            let last = first.unwrap_or(1).saturating_add(count - 1);
            self.set_argument("limit", "end_line", json!(last))?;
        }
        if let Some(command) = self.shown_command
            && let Some(Value::String(result)) = self.arguments.get_mut("result")
        {
            result.push_str(&format!("\n\nTo see it: `{command}`"));
        }
        if self.ignores_case
            && let Some(Value::String(regex)) = self.arguments.get_mut("regex")
        {
            regex.insert_str(0, "(?i)");
        }
        Ok(self.arguments)
    }
}

#[cfg(test)]
mod tests;
