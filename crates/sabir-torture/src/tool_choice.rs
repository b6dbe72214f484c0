//! Finds the tool of an agent that runs commands, and writes its arguments.

use sabir_call::{ToolSet, ToolSpec};
use serde_json::{Map, Value, json};

/// Words in the names of tools that run commands.
const SHELL_WORDS: [&str; 6] = ["bash", "shell", "exec", "command", "terminal", "run"];
/// The names of the argument that holds the command.
const COMMAND_ARGUMENTS: [&str; 4] = ["command", "cmd", "code", "script"];

/// A tool that runs commands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShellCall {
    /// The tool's name.
    pub(crate) name: String,
    /// The argument that holds the command.
    argument: String,
    /// True if the command is a list of words.
    is_list: bool,
    /// Values of the other required arguments.
    others: Map<String, Value>,
}

impl ShellCall {
    /// Finds the tool among those that the agent offers.
    pub(crate) fn find(tools: &ToolSet) -> Option<Self> {
        // The order of the words decides, not that of the tools, because names like `run_tests`
        // contain `run` too.
        let by_word = SHELL_WORDS.iter().flat_map(|word| {
            tools
                .iter()
                .filter(move |tool| tool.name.to_lowercase().contains(word))
        });
        by_word.into_iter().find_map(Self::of_tool)
    }

    fn of_tool(tool: &ToolSpec) -> Option<Self> {
        let argument = COMMAND_ARGUMENTS
            .iter()
            .find_map(|name| tool.find_argument(name))?;
        let others = tool
            .declared_arguments()
            .filter(|other| other.required && other.name != argument.name)
            .map(|other| (other.name.to_owned(), plain_value(other.schema)))
            .collect();
        let types = argument.type_names();
        Some(Self {
            name: tool.name.clone(),
            argument: argument.name.to_owned(),
            is_list: types.contains(&"array") && !types.contains(&"string"),
            others,
        })
    }

    /// Returns the arguments of a call that runs this command.
    pub(crate) fn arguments(&self, command: &str) -> Value {
        let value = match self.is_list {
            true => json!(["bash", "-c", command]),
            false => json!(command),
        };
        let mut arguments = Map::from_iter([(self.argument.clone(), value)]);
        arguments.extend(self.others.clone());
        Value::Object(arguments)
    }
}

/// Returns a harmless value for a required argument, such as a description or a time limit.
fn plain_value(schema: &Value) -> Value {
    let listed = schema.get("enum").and_then(Value::as_array);
    if let Some(value) = listed.and_then(|values| values.first()) {
        return value.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(30),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("Write the file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_found_in_the_tools_of_different_agents() {
        for (tools, expected) in [
            (
                r#"[{"name": "Read", "parameters": {"properties": {"command": {"type": "string"}}}}, {"name": "Bash", "parameters": {"required": ["command", "description"], "properties": {"command": {"type": "string"}, "description": {"type": "string"}}}}]"#,
                Some((
                    "Bash",
                    json!({"command": "x", "description": "Write the file"}),
                )),
            ),
            (
                r#"[{"name": "exec_command", "parameters": {"required": ["cmd"], "properties": {"cmd": {"type": "string"}}}}]"#,
                Some(("exec_command", json!({"cmd": "x"}))),
            ),
            (
                r#"[{"name": "shell", "parameters": {"properties": {"command": {"type": "array", "items": {"type": "string"}}}}}]"#,
                Some(("shell", json!({"command": ["bash", "-c", "x"]}))),
            ),
            (
                r#"[{"name": "execute_command", "parameters": {"required": ["command", "requires_approval"], "properties": {"command": {"type": "string"}, "requires_approval": {"type": "boolean"}}}}]"#,
                Some((
                    "execute_command",
                    json!({"command": "x", "requires_approval": false}),
                )),
            ),
            (
                r#"[{"name": "read_file", "parameters": {"properties": {"path": {"type": "string"}}}}]"#,
                None,
            ),
        ] {
            let tools = ToolSet::from_json(tools).unwrap();
            let found =
                ShellCall::find(&tools).map(|call| (call.name.clone(), call.arguments("x")));
            assert_eq!(
                found,
                expected.map(|(name, arguments)| (name.to_owned(), arguments))
            );
        }
    }
}
