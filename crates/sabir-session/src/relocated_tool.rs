//! Runs the tools of a replay in another folder than the recorded one.
//!
//! The recorded model names files by the recorded folder, while the tools work in the actual one. So the paths in the arguments of a
//! call are mapped to the actual folder, and the paths in its results back to the recorded one.
//!
//! A command that prints on both streams prints its lines in another order each time. A result with the same lines as a recorded one
//! gets the recorded order, since the next request must equal the recorded request.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{CallArguments, CallPermit, Preconditions, ProgressSink, Tool, ToolOutput, ToolWork};
use sabir_call::{CallId, ToolSpec};
use sabir_policy::Access;
use serde_json::Value;

/// A tool that seems to work in another folder than it does.
pub(crate) struct RelocatedTool {
    tool: Arc<dyn Tool>,
    recorded_folder: String,
    actual_folder: String,
    /// The recorded results that were not used yet, shared by all tools.
    recorded_results: Arc<Mutex<Vec<String>>>,
}

impl RelocatedTool {
    /// Wraps all tools. They work in the folder `here` and seem to work in `there`. `recorded` holds the results of commands
    /// whose order of lines is kept.
    pub(crate) fn wrap_all(
        tools: Vec<Arc<dyn Tool>>,
        there: &str,
        here: &str,
        recorded: Vec<String>,
    ) -> Vec<Arc<dyn Tool>> {
        let recorded = Arc::new(Mutex::new(recorded));
        let moved = |tool| {
            Arc::new(Self {
                tool,
                recorded_folder: there.to_owned(),
                actual_folder: here.to_owned(),
                recorded_results: Arc::clone(&recorded),
            }) as Arc<dyn Tool>
        };
        tools.into_iter().map(moved).collect()
    }

    /// Returns the first unused recorded result with the same lines, else the content as it is.
    fn in_recorded_order(&self, content: String) -> String {
        let mut recorded = self.recorded_results.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = sorted_lines(&content);
        match recorded.iter().position(|known| sorted_lines(known) == lines) {
            Some(at) => recorded.remove(at),
            None => content,
        }
    }

    fn map_arguments(&self, arguments: &CallArguments) -> CallArguments {
        arguments.iter().map(|(name, value)| (name.clone(), self.map_value(value))).collect()
    }

    fn map_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(replace_path(text, &self.recorded_folder, &self.actual_folder)),
            Value::Array(items) => items.iter().map(|item| self.map_value(item)).collect(),
            Value::Object(fields) => Value::Object(self.map_arguments(fields)),
            other => other.clone(),
        }
    }

    fn map_output(&self, text: &str) -> String {
        replace_path(text, &self.actual_folder, &self.recorded_folder)
    }

    fn map_access(&self, access: Access) -> Access {
        match access {
            Access::Read { path, outside } => Access::Read { path: self.map_output(&path), outside },
            Access::Write { path, protected } => Access::Write { path: self.map_output(&path), protected },
            Access::Command { command, facts, beyond } => {
                Access::Command { command: self.map_output(&command), facts, beyond }
            }
            Access::Invalid { reason } => Access::Invalid { reason: self.map_output(&reason) },
            Access::Several(all) => Access::Several(all.into_iter().map(|one| self.map_access(one)).collect()),
            other => other,
        }
    }
}

impl Tool for RelocatedTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn is_offered(&self) -> bool {
        self.tool.is_offered()
    }

    fn is_read_only(&self) -> bool {
        self.tool.is_read_only()
    }

    fn is_polling(&self) -> bool {
        self.tool.is_polling()
    }

    fn call_access(&self, arguments: &CallArguments) -> Access {
        self.map_access(self.tool.call_access(&self.map_arguments(arguments)))
    }

    fn preconditions(&self, arguments: &CallArguments) -> Preconditions {
        self.tool.preconditions(&self.map_arguments(arguments))
    }

    fn preview(&self, arguments: &CallArguments) -> Option<String> {
        self.tool.preview(&self.map_arguments(arguments)).map(|preview| self.map_output(&preview))
    }

    fn run<'a>(
        &'a self,
        permit: &'a CallPermit,
        arguments: &'a CallArguments,
        progress: ProgressSink<'a>,
    ) -> ToolWork<'a> {
        Box::pin(async move {
            let arguments = self.map_arguments(arguments);
            let output = self.tool.run(permit, &arguments, progress).await;
            ToolOutput { content: self.in_recorded_order(self.map_output(&output.content)), ..output }
        })
    }

    fn request_stop(&self, call: &CallId) {
        self.tool.request_stop(call);
    }
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Replaces a path where it is a whole path or the beginning of a longer one: not `/a` in `/ab` or in `x/a`.
fn replace_path(text: &str, from: &str, to: &str) -> String {
    if from == to {
        return text.to_owned();
    }
    let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(from) {
        result.push_str(before);
        // A dot may end a sentence (`/a.`) or begin an extension (`/a.txt`), which is part of another name.
        let dotted = behind.strip_prefix('.').is_some_and(|behind| behind.starts_with(name));
        let part = before.ends_with(|c| name(c) || c == '.') || behind.starts_with(name) || dotted;
        result.push_str(if part { from } else { to });
        rest = behind;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::replace_path;

    #[test]
    fn only_whole_paths_are_moved() {
        let check = |text: &str, expected: &str| assert_eq!(replace_path(text, "/w/a", "/new"), expected);
        check("/w/a", "/new");
        check("cd /w/a && cat '/w/a/x' file:///w/a.", "cd /new && cat '/new/x' file:///new.");
        check("/w/ab /w/a-b /w/a.txt x/w/a /w/a.", "/w/ab /w/a-b /w/a.txt x/w/a /new.");
    }
}
