//! Finds the files that the model of a task has seen, from the task's journal.

use std::collections::HashMap;

use sabir_agent::{Record, call_paths};
use sabir_call::{Call, CallId, MessagePart, ToolResultStatus};
use sabir_journal::JournalEntry;
use sabir_tools::SeenFile;

/// The tool that shows the model a file. After it a file is known as it was when the call began.
const READER: &str = "read_file";
/// The tools that change files. After them a file is known as the call left it.
const WRITERS: [&str; 4] = [
    "write_to_file",
    "replace_in_file",
    "edit_file",
    "apply_patch",
];

/// Returns the files that the calls of these records read or wrote, each with the time until which the model knows it.
pub(crate) fn find_seen_files(entries: &[JournalEntry]) -> Vec<SeenFile> {
    let mut calls: HashMap<&CallId, &Call> = HashMap::new();
    let mut begun: HashMap<&CallId, u64> = HashMap::new();
    let mut seen = Vec::new();
    for entry in entries {
        match &entry.record {
            Record::Answered(turn) => {
                calls.extend(turn.parts.iter().filter_map(|part| match part {
                    MessagePart::Call(call) => Some((&call.id, call)),
                    _ => None,
                }))
            }
            Record::Running { call, .. } => _ = begun.insert(call, entry.at),
            Record::Result(result) if result.ending == ToolResultStatus::Done => {
                let Some(call) = calls.get(&result.id) else {
                    continue;
                };
                let seen_ms = match call.name.as_str() {
                    READER => begun.get(&result.id).copied(),
                    name if WRITERS.contains(&name) => Some(entry.at),
                    _ => None,
                };
                let paths = seen_ms.into_iter().flat_map(|seen_ms| {
                    let paths = call_paths(call).into_iter();
                    paths.map(move |path| SeenFile { path, seen_ms })
                });
                seen.extend(paths);
            }
            _ => {}
        }
    }
    seen
}
