//! Changes of the tools during a task.
//!
//! The first tools come with the settings, like everything else a task is run with. A later change
//! is a record, since requests and the checks of calls depend on it: replaying the records makes
//! the same requests.

use std::sync::Arc;

use sabir_call::{DraftResponse, ToolSet};
use sabir_policy::Mode;

use crate::record::{ContextChange, Record, ToolsChange};

use super::{Task, TaskEffect, usage};

impl Task {
    /// Returns the changes of the tools on record, merged into one.
    pub(crate) fn recorded_tools(&self) -> &ToolsChange {
        &self.recorded_tools
    }

    pub(super) fn handle_tools_change(
        &mut self,
        mut change: ToolsChange,
        effects: &mut Vec<TaskEffect>,
    ) {
        // An answer that has begun was asked for with the other tools.
        if self.draft != DraftResponse::default() {
            return;
        }
        // A tool may have come and gone between two requests.
        change
            .removed
            .retain(|name| self.settings.tools.get(name).is_some());
        if !change.is_empty() && changed_set(&self.settings.tools, &change, None).is_some() {
            self.commit_record(Record::Context(ContextChange::Tools(change)), effects);
        }
    }

    pub(super) fn apply_tools_change(&mut self, change: &ToolsChange) {
        self.modes.apply_tools_change(change);
        self.settings.apply_names(change);
        for name in &change.removed {
            self.recorded_tools.note_removed(name);
        }
        for tool in &change.added {
            self.recorded_tools.note_added(tool.clone());
        }
        let Some(tools) = changed_set(&self.settings.tools, change, self.settings.rules.mode())
        else {
            return;
        };
        let before = usage::fixed_bytes(&self.settings);
        self.checker = self.settings.call_checker(tools.clone());
        self.settings.tools = tools;
        self.transcript
            .replace_fixed_bytes(before, usage::fixed_bytes(&self.settings));
    }
}

impl super::TaskSettings {
    /// Updates the lists of tools that only read and of tools that poll.
    fn apply_names(&mut self, change: &ToolsChange) {
        let is_gone = |name: &String| {
            change.removed.contains(name) || change.added.iter().any(|tool| tool.spec.name == *name)
        };
        self.read_only_tools.retain(|name| !is_gone(name));
        self.polling_tools.retain(|name| !is_gone(name));
        for tool in &change.added {
            if tool.reads_only {
                self.read_only_tools.push(tool.spec.name.clone());
            }
            if tool.polls {
                self.polling_tools.push(tool.spec.name.clone());
            }
        }
    }
}

/// Returns the changed set as a mode offers it; `None` if the tools cannot be offered together.
pub(super) fn changed_set(
    tools: &ToolSet,
    change: &ToolsChange,
    mode: Option<&Mode>,
) -> Option<ToolSet> {
    let mut shown = Vec::new();
    let mut known = Vec::new();
    for spec in tools.all_tools() {
        let is_added = change.added.iter().any(|tool| tool.spec.name == spec.name);
        if is_added || change.removed.contains(&spec.name) {
            continue;
        }
        let list = if tools.is_tool_offered(&spec.name) {
            &mut shown
        } else {
            &mut known
        };
        list.extend(tools.get_shared(&spec.name).cloned());
    }
    for tool in &change.added {
        let fits = mode.is_none_or(|mode| tool.group.is_none_or(|group| mode.has_group(group)));
        let list = if fits && !tool.hidden {
            &mut shown
        } else {
            &mut known
        };
        list.push(Arc::new(tool.spec.clone()));
    }
    let changed = ToolSet::with_unoffered(shown, known).ok()?;
    Some(if tools.knows_foreign_tools() {
        changed.with_foreign_tools()
    } else {
        changed
    })
}
