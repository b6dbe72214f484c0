//! Summarizes a run of a task: the calls that were denied or failed, and the files that were changed.
//! Subtasks are part of it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::{
    DriverObserver, ObservedCall, ObserverFuture, Record, ToolOutput, call_subject, control,
};
use sabir_call::{Call, CallId, MessagePart, ToolResultStatus};
use sabir_policy::Access;
use serde::Serialize;

use crate::checkpoint_history::display_path;
use crate::checkpointer::TaskCheckpointer;

/// The longest subject or reason of a call, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The denied calls, failed calls and changed files of a run. Its fields are keys of the JSON of
/// `sabir run --output json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    /// The calls that were denied, in this order.
    pub denied: Vec<SummarizedCall>,
    /// The calls that ran and failed, in this order.
    pub failed: Vec<SummarizedCall>,
    /// The files that were changed, relative to the folder, sorted.
    pub changed_files: Vec<String>,
    /// The changed files that git ignores, such as caches of a test run.
    #[serde(skip)]
    pub ignored_files: BTreeSet<String>,
}

/// A call of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummarizedCall {
    /// The id of the call.
    pub call: CallId,
    /// The name of its tool.
    pub tool: String,
    /// The subject of the call: a path, a command or an address, or else its arguments.
    pub subject: String,
    /// The first line of its result.
    pub reason: String,
}

/// Collects the summary of a run. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunLedger(Arc<Mutex<LedgerState>>);

#[derive(Debug, Default)]
struct LedgerState {
    denied: Vec<SummarizedCall>,
    failed: Vec<SummarizedCall>,
    changed: BTreeSet<String>,
    /// They know what commands changed.
    checkpointers: Vec<Arc<TaskCheckpointer>>,
}

/// Follows one task for a ledger: ids of calls are unique only within a task.
#[derive(Debug)]
struct TaskFollower {
    ledger: RunLedger,
    /// The calls without a result.
    open_calls: Mutex<HashMap<CallId, Call>>,
}

impl RunLedger {
    /// Forgets the run before.
    pub(crate) fn begin_run(&self) {
        *self.lock_state() = LedgerState::default();
    }

    /// Returns an observer that enters what happens to one task, whose checkpoints are asked at the end.
    pub(crate) fn follow_task(
        &self,
        checkpointer: Option<&Arc<TaskCheckpointer>>,
    ) -> Arc<dyn DriverObserver> {
        self.lock_state()
            .checkpointers
            .extend(checkpointer.cloned());
        Arc::new(TaskFollower {
            ledger: self.clone(),
            open_calls: Mutex::default(),
        })
    }

    /// Enters paths that were changed. Git's own files are not work of the task.
    fn note_changed<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) {
        let own = |path: &&Path| !path.components().any(|part| part.as_os_str() == ".git");
        let names = paths.into_iter().filter(own).map(display_path);
        self.lock_state().changed.extend(names);
    }

    /// Returns the summary of the run, which has ended.
    pub(crate) fn summarize(&self) -> RunSummary {
        let checkpointers = std::mem::take(&mut self.lock_state().checkpointers);
        let mut ignored_files = BTreeSet::new();
        for checkpointer in checkpointers {
            let paths = checkpointer.take_changed_paths();
            self.note_changed(paths.iter().map(PathBuf::as_path));
            let ignored = checkpointer.ignored_paths(&paths);
            ignored_files.extend(ignored.map(|path| display_path(path)));
        }
        let state = self.lock_state();
        RunSummary {
            denied: state.denied.clone(),
            failed: state.failed.clone(),
            changed_files: state.changed.iter().cloned().collect(),
            ignored_files,
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DriverObserver for TaskFollower {
    fn on_record_stored(&self, record: &Record) {
        let mut open_calls = self
            .open_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match record {
            Record::Answered(answered) => {
                let calls = answered.parts.iter().filter_map(|part| match part {
                    MessagePart::Call(call) => Some((call.id.clone(), call.clone())),
                    _ => None,
                });
                open_calls.extend(calls);
            }
            Record::Result(result) => {
                let call = open_calls.remove(&result.id);
                // A question that nobody could answer, or a refused completion, is not work that
                // failed.
                if control::is_control(&result.name) {
                    return;
                }
                let line = result.content.lines().next().unwrap_or_default();
                let entry = || SummarizedCall {
                    call: result.id.clone(),
                    tool: result.name.clone(),
                    subject: shorten(&call.as_ref().map(call_subject).unwrap_or_default()),
                    reason: shorten(line),
                };
                let mut state = self.ledger.lock_state();
                match result.ending {
                    ToolResultStatus::Denied => state.denied.push(entry()),
                    ToolResultStatus::Failed => state.failed.push(entry()),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn after_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
        output: &'a ToolOutput,
    ) -> ObserverFuture<'a, ()> {
        if !output.failed {
            let mut paths = Vec::new();
            written_paths(&call.access, &mut paths);
            self.ledger.note_changed(paths);
        }
        Box::pin(std::future::ready(()))
    }
}

/// Collects the paths that an access writes.
fn written_paths<'a>(access: &'a Access, paths: &mut Vec<&'a Path>) {
    match access {
        Access::Write { path, .. } => paths.push(Path::new(path)),
        Access::Several(all) => all.iter().for_each(|one| written_paths(one, paths)),
        _ => {}
    }
}

/// Cuts a text to the length that a summary shows.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_TEXT_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
