//! Describes calls to hooks in the names and arguments of Claude Code, which the hooks of repositories are written for.

use std::path::Path;

use sabir_agent::ObservedCall;
use sabir_policy::Access;
use serde_json::{Map, Value, json};

/// The tool through which prompted models call the tools of servers. A direct call may have an argument of the same name.
const USE_MCP_TOOL: &str = "use_mcp_tool";
/// The most bytes of a result that a hook gets.
const MAX_RESULT_BYTES: usize = 64 * 1024;

/// A call as hooks see it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HookCall {
    /// The name of the tool in Claude Code, or Sabir's own if there is no such tool there.
    pub(super) tool: String,
    /// The arguments.
    pub(super) input: Map<String, Value>,
    /// The commands or paths that a condition may examine.
    pub(super) subjects: Vec<String>,
}

impl HookCall {
    /// Describes a call. A call that touches several files is described once for each, since hooks get one path.
    pub(super) fn from_call(call: &ObservedCall, root: &Path) -> Vec<Self> {
        let accesses = match &call.access {
            Access::Several(all) if !all.is_empty() => all.as_slice(),
            access => std::slice::from_ref(access),
        };
        accesses
            .iter()
            .map(|access| Self::of_access(call, access, root))
            .collect()
    }

    fn of_access(call: &ObservedCall, access: &Access, root: &Path) -> Self {
        // All of its own arguments stay, so that a hook for Sabir finds what it knows.
        let mut input = call.arguments.clone();
        let own = call.tool.as_str();
        let mut subjects = Vec::new();
        let tool = match access {
            Access::Command { command, .. } => {
                subjects.push(command.clone());
                subjects.extend(split_commands(command));
                input.insert("command".to_owned(), Value::from(command.as_str()));
                if let Some(seconds) = input.get("timeout").and_then(Value::as_u64) {
                    let milliseconds = seconds.saturating_mul(1000);
                    input.insert("timeout".to_owned(), Value::from(milliseconds));
                }
                // Seconds here, milliseconds there.
                rename(&mut input, "background", "run_in_background");
                "Bash".to_owned()
            }
            Access::Server { server, tool, .. } => {
                // Of a call through `use_mcp_tool` the arguments of the server's tool.
                if own == USE_MCP_TOOL
                    && let Some(Value::Object(inner)) = input.get("arguments")
                {
                    input = inner.clone();
                }
                format!("mcp__{server}__{tool}")
            }
            Access::Fetch { url } => {
                subjects.push(url.clone());
                input.insert("url".to_owned(), Value::from(url.as_str()));
                "WebFetch".to_owned()
            }
            Access::Write { path, .. } => {
                set_path(&mut input, &mut subjects, "file_path", path, root);
                match own {
                    "write_to_file" => "Write".to_owned(),
                    _ => "Edit".to_owned(),
                }
            }
            Access::Read { path, .. } => {
                let name = match own {
                    "read_file" => Some(("Read", "file_path")),
                    "search_files" => Some(("Grep", "path")),
                    "list_files" => Some(("LS", "path")),
                    _ => None,
                };
                let (tool, key) = name.unwrap_or((own, "file_path"));
                set_path(&mut input, &mut subjects, key, path, root);
                if own == "search_files" {
                    rename(&mut input, "regex", "pattern");
                    rename(&mut input, "file_pattern", "glob");
                }
                tool.to_owned()
            }
            Access::Nothing | Access::Several(_) | Access::Invalid { .. } => match own {
                sabir_agent::control::NEW_TASK_TOOL => {
                    rename(&mut input, "message", "prompt");
                    rename(&mut input, "mode", "subagent_type");
                    "Task".to_owned()
                }
                own => own.to_owned(),
            },
        };
        Self {
            tool,
            input,
            subjects,
        }
    }
}

/// Returns the commands of a command line, roughly: a piece too many only runs a hook that has nothing to say.
pub(super) fn split_commands(line: &str) -> Vec<String> {
    // Quotes too: in `sh -c 'git push'` the quoted part is a command.
    let pieces = line.split(|c: char| ";&|\n()`{}'\"".contains(c));
    let without_assignments = |piece: &str| {
        let is_assignment = |word: &&str| word.contains('=') && !word.starts_with('-');
        let words = piece.split_whitespace().skip_while(is_assignment);
        words.collect::<Vec<_>>().join(" ")
    };
    // The unchanged line is examined anyway.
    pieces
        .map(without_assignments)
        .filter(|piece| !piece.is_empty() && piece != line)
        .collect()
}

fn rename(input: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = input.remove(from) {
        input.insert(to.to_owned(), value);
    }
}

/// Sets the path that a call touches: absolute, as hooks expect it.
fn set_path(
    input: &mut Map<String, Value>,
    subjects: &mut Vec<String>,
    key: &str,
    path: &str,
    root: &Path,
) {
    // A path outside is absolute already, and stays what it is.
    let absolute = root.join(path).display().to_string();
    input.remove("path");
    input.insert(key.to_owned(), Value::from(absolute.as_str()));
    // Conditions are written with either spelling.
    subjects.push(path.to_owned());
    subjects.push(absolute);
}

/// Returns the result of a call for hooks.
pub(super) fn describe_result(call: &HookCall, content: &str) -> Value {
    let end = content.floor_char_boundary(MAX_RESULT_BYTES);
    let content = content.get(..end).unwrap_or_default();
    match call.tool.as_str() {
        "Bash" => json!({"stdout": content, "stderr": "", "interrupted": false}),
        "Write" | "Edit" => {
            json!({"filePath": call.input.get("file_path"), "success": true, "content": content})
        }
        _ => json!({"content": content}),
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::CallId;

    use super::*;

    fn described(tool: &str, arguments: Value, access: Access) -> Vec<(String, Value)> {
        let call = ObservedCall {
            id: CallId::new("1"),
            tool: tool.to_owned(),
            arguments: arguments.as_object().cloned().unwrap(),
            access,
        };
        HookCall::from_call(&call, Path::new("/srv/app"))
            .into_iter()
            .map(|call| (call.tool, Value::Object(call.input)))
            .collect()
    }

    fn write(path: &str) -> Access {
        Access::Write {
            path: path.to_owned(),
            protected: None,
        }
    }

    #[test]
    fn each_command_of_a_line_is_looked_at() {
        assert_eq!(split_commands("git push"), [] as [&str; 0]);
        assert_eq!(
            split_commands("cd a && X=1 git push|cat"),
            ["cd a", "git push", "cat"]
        );
        assert_eq!(split_commands("echo $(git push)"), ["echo $", "git push"]);
    }

    #[test]
    fn calls_have_the_names_that_hooks_are_written_for() {
        let check = |tool: &str, arguments: Value, access: Access, expected: Value| {
            let all = described(tool, arguments, access);
            let all: Vec<_> = all
                .into_iter()
                .map(|(tool, input)| json!([tool, input]))
                .collect();
            assert_eq!(Value::Array(all), expected);
        };
        check(
            "write_to_file",
            json!({"path": "a.rs", "content": "x"}),
            write("a.rs"),
            json!([["Write", {"file_path": "/srv/app/a.rs", "content": "x"}]]),
        );
        check(
            "edit_file",
            json!({"path": "a.rs", "old_string": "x", "new_string": "y"}),
            write("a.rs"),
            json!([["Edit", {"file_path": "/srv/app/a.rs", "old_string": "x", "new_string": "y"}]]),
        );
        check(
            "apply_patch",
            json!({"patch": "p"}),
            Access::Several(vec![write("a"), write("b")]),
            json!([["Edit", {"file_path": "/srv/app/a", "patch": "p"}], ["Edit", {"file_path": "/srv/app/b", "patch": "p"}]]),
        );
        check(
            "read_file",
            json!({"path": "a.rs"}),
            Access::Read {
                path: "a.rs".to_owned(),
                outside: false,
            },
            json!([["Read", {"file_path": "/srv/app/a.rs"}]]),
        );
        check(
            "search_files",
            json!({"path": "src", "regex": "x"}),
            Access::Read {
                path: "src".to_owned(),
                outside: false,
            },
            json!([["Grep", {"path": "/srv/app/src", "pattern": "x"}]]),
        );
        check(
            "use_mcp_tool",
            json!({"server_name": "s", "tool_name": "t", "arguments": {"a": 1}}),
            Access::Server {
                server: "s".to_owned(),
                tool: "t".to_owned(),
                caution: None,
            },
            json!([["mcp__s__t", {"a": 1}]]),
        );
        check(
            "s__t",
            json!({"cmd": "rm", "arguments": {"cmd": "ls"}}),
            Access::Server {
                server: "s".to_owned(),
                tool: "t".to_owned(),
                caution: None,
            },
            json!([["mcp__s__t", {"cmd": "rm", "arguments": {"cmd": "ls"}}]]),
        );
        check(
            "new_task",
            json!({"message": "m", "mode": "plan"}),
            Access::Nothing,
            json!([["Task", {"prompt": "m", "subagent_type": "plan"}]]),
        );
        check(
            "odd",
            json!({"a": 1}),
            Access::Nothing,
            json!([["odd", {"a": 1}]]),
        );
    }
}
