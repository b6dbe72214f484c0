//! Tools in a replay: in another folder than the one that the recording speaks of, and at another time.
//!
//! A model names files by the folder that it was told. In a replay that is the recorded one, while the tools work in the present
//! one: what a call says is put into the terms of here, and what a tool says into the terms of there.
//!
//! A command that prints on both of its streams prints its lines in another order each time. Where a result has the lines of a
//! recorded one, it has them in the recorded order.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{Arguments, Bound, Permit, Progress, Tool, ToolOutput, ToolWork};
use sabir_call::{CallId, ToolSpec};
use sabir_policy::Access;
use serde_json::Value;

/// A tool that is spoken to as if it worked in another folder.
pub(crate) struct Moved {
    tool: Arc<dyn Tool>,
    there: String,
    here: String,
    recorded: Arc<Mutex<Vec<String>>>,
}

impl Moved {
    /// The tools, spoken to as if they worked `there`, while they work `here`, and as if commands had printed what was recorded.
    pub(crate) fn all(tools: Vec<Arc<dyn Tool>>, there: &str, here: &str, recorded: Vec<String>) -> Vec<Arc<dyn Tool>> {
        let recorded = Arc::new(Mutex::new(recorded));
        let moved = |tool| {
            let (there, here, recorded) = (there.to_owned(), here.to_owned(), Arc::clone(&recorded));
            Arc::new(Self { tool, there, here, recorded }) as Arc<dyn Tool>
        };
        tools.into_iter().map(moved).collect()
    }

    /// The first recorded result of the same lines, else the content as it is.
    fn ordered(&self, content: String) -> String {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = sorted(&content);
        match recorded.iter().position(|known| sorted(known) == lines) {
            Some(at) => recorded.remove(at),
            None => content,
        }
    }

    fn inward(&self, arguments: &Arguments) -> Arguments {
        arguments.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(replace(text, &self.there, &self.here)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => Value::Object(self.inward(fields)),
            other => other.clone(),
        }
    }

    fn outward(&self, text: &str) -> String {
        replace(text, &self.here, &self.there)
    }

    fn outward_access(&self, access: Access) -> Access {
        match access {
            Access::Read { path, outside } => Access::Read { path: self.outward(&path), outside },
            Access::Write { path, protected } => Access::Write { path: self.outward(&path), protected },
            Access::Command { command, facts, beyond } => {
                Access::Command { command: self.outward(&command), facts, beyond }
            }
            Access::Invalid { reason } => Access::Invalid { reason: self.outward(&reason) },
            Access::Several(all) => Access::Several(all.into_iter().map(|one| self.outward_access(one)).collect()),
            other => other,
        }
    }
}

impl Tool for Moved {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn offered(&self) -> bool {
        self.tool.offered()
    }

    fn reads_only(&self) -> bool {
        self.tool.reads_only()
    }

    fn polls(&self) -> bool {
        self.tool.polls()
    }

    fn access(&self, arguments: &Arguments) -> Access {
        self.outward_access(self.tool.access(&self.inward(arguments)))
    }

    fn bound(&self, arguments: &Arguments) -> Bound {
        self.tool.bound(&self.inward(arguments))
    }

    fn preview(&self, arguments: &Arguments) -> Option<String> {
        self.tool.preview(&self.inward(arguments)).map(|preview| self.outward(&preview))
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, progress: Progress<'a>) -> ToolWork<'a> {
        Box::pin(async move {
            let arguments = self.inward(arguments);
            let output = self.tool.run(permit, &arguments, progress).await;
            ToolOutput { content: self.ordered(self.outward(&output.content)), ..output }
        })
    }

    fn give_up(&self, call: &CallId) {
        self.tool.give_up(call);
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Replaces a path where it stands for itself or begins a longer one: not `/a` in `/ab` or in `x/a`.
fn replace(text: &str, from: &str, to: &str) -> String {
    if from == to {
        return text.to_owned();
    }
    let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(from) {
        result.push_str(before);
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
    use super::replace;

    #[test]
    fn only_whole_paths_are_moved() {
        let check = |text: &str, expected: &str| assert_eq!(replace(text, "/w/a", "/new"), expected);
        check("/w/a", "/new");
        check("cd /w/a && cat '/w/a/x' file:///w/a.", "cd /new && cat '/new/x' file:///new.");
        check("/w/ab /w/a-b /w/a.txt x/w/a /w/a.", "/w/ab /w/a-b /w/a.txt x/w/a /new.");
    }
}
