//! Runs the tools of a replay in another folder than the recorded one.
//!
//! The recorded model names files by the recorded folder, while the tools work in the actual one. So the paths in the arguments of a
//! call are mapped to the actual folder, and the paths in its results back to the recorded one.
//!
//! A command that prints on both streams prints its lines in another order each time. A result with the same lines as a recorded one
//! gets the recorded order, since the next request must equal the recorded request.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{
    CallArguments, CallFailure, CallPermit, CancelToken, Preconditions, PreparedCall, ProgressSink,
    RefreshFuture, Tool, ToolFuture, ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use serde_json::Value;

/// A tool that seems to work in another folder than it does.
pub(crate) struct RelocatedTool {
    tool: Arc<dyn Tool>,
    relocation: Arc<PathRelocation>,
}

/// The state that the relocated tools of a task share.
struct PathRelocation {
    recorded_folder: String,
    actual_folder: String,
    /// The recorded results that no call has reproduced yet.
    recorded_results: Mutex<Vec<String>>,
}

/// A call of a relocated tool, prepared with arguments for the actual folder.
struct RelocatedCall {
    call: Box<dyn PreparedCall>,
    relocation: Arc<PathRelocation>,
}

impl RelocatedTool {
    /// Wraps the tools so that they can be called as if they worked in `recorded_folder` while they work in `actual_folder`, and
    /// so that commands print in the order of `recorded_results`.
    pub(crate) fn wrap_all(
        tools: Vec<Arc<dyn Tool>>,
        recorded_folder: &str,
        actual_folder: &str,
        recorded_results: Vec<String>,
    ) -> Vec<Arc<dyn Tool>> {
        let relocation = Arc::new(PathRelocation {
            recorded_folder: recorded_folder.to_owned(),
            actual_folder: actual_folder.to_owned(),
            recorded_results: Mutex::new(recorded_results),
        });
        let wrap = |tool| {
            Arc::new(Self {
                tool,
                relocation: Arc::clone(&relocation),
            }) as Arc<dyn Tool>
        };
        tools.into_iter().map(wrap).collect()
    }
}

impl PathRelocation {
    /// Returns the first recorded result with the same lines, else the unchanged content.
    fn in_recorded_order(&self, content: String) -> String {
        let mut recorded = self
            .recorded_results
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let lines = sorted_lines(&content);
        match recorded
            .iter()
            .position(|known| sorted_lines(known) == lines)
        {
            // Removed, so that the next result with the same lines gets the next recording of them.
            Some(at) => recorded.remove(at),
            None => content,
        }
    }

    fn map_arguments(&self, arguments: &CallArguments) -> CallArguments {
        arguments
            .iter()
            .map(|(name, value)| (name.clone(), self.map_value(value)))
            .collect()
    }

    fn map_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(replace_path(
                text,
                &self.recorded_folder,
                &self.actual_folder,
            )),
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
            Access::Read { path, outside } => Access::Read {
                path: self.map_output(&path),
                outside,
            },
            Access::Write { path, protected } => Access::Write {
                path: self.map_output(&path),
                protected,
            },
            Access::Command {
                command,
                facts,
                beyond,
            } => Access::Command {
                command: self.map_output(&command),
                facts,
                beyond,
            },
            Access::Invalid { reason } => Access::Invalid {
                reason: self.map_output(&reason),
            },
            Access::Several(all) => {
                Access::Several(all.into_iter().map(|one| self.map_access(one)).collect())
            }
            // The other kinds name no path of the workspace.
            other => other,
        }
    }
}

impl Tool for RelocatedTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn group(&self) -> Option<ToolGroup> {
        self.tool.group()
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

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        let call = self.tool.prepare(&self.relocation.map_arguments(arguments));
        Box::new(RelocatedCall {
            call,
            relocation: Arc::clone(&self.relocation),
        })
    }
}

impl PreparedCall for RelocatedCall {
    fn refresh(&self) -> Option<RefreshFuture> {
        self.call.refresh()
    }

    fn note_values_on_own_lines(&mut self, names: &[String]) {
        self.call.note_values_on_own_lines(names);
    }

    fn access(&self) -> Access {
        self.relocation.map_access(self.call.access())
    }

    fn preconditions(&self) -> Preconditions {
        // Compared with each other only, never shown: their paths may stay as they are.
        self.call.preconditions()
    }

    fn preview(&self) -> Option<String> {
        self.call
            .preview()
            .map(|preview| self.relocation.map_output(&preview))
    }

    fn dry_run(&self) -> Result<(), CallFailure> {
        let tried = self.call.dry_run();
        tried.map_err(|CallFailure(reason)| CallFailure(self.relocation.map_output(&reason)))
    }

    fn stop_token(&self) -> Option<CancelToken> {
        self.call.stop_token()
    }

    fn run<'a>(
        self: Box<Self>,
        permit: &'a CallPermit,
        progress: ProgressSink<'a>,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let Self { call, relocation } = *self;
            // Streamed output is not mapped. A replay shows the recorded output instead.
            let output = call.run(permit, progress).await;
            let content = relocation.in_recorded_order(relocation.map_output(&output.content));
            ToolOutput { content, ..output }
        })
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
        // A dot may end a sentence (`/a.`) or begin an extension (`/a.txt`), which is part of
        // another name.
        let dotted = behind
            .strip_prefix('.')
            .is_some_and(|behind| behind.starts_with(name));
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
    fn only_whole_paths_are_relocated() {
        let check =
            |text: &str, expected: &str| assert_eq!(replace_path(text, "/w/a", "/new"), expected);
        check("/w/a", "/new");
        check(
            "cd /w/a && cat '/w/a/x' file:///w/a.",
            "cd /new && cat '/new/x' file:///new.",
        );
        check(
            "/w/ab /w/a-b /w/a.txt x/w/a /w/a.",
            "/w/ab /w/a-b /w/a.txt x/w/a /new.",
        );
    }
}
