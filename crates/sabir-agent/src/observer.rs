//! Observers of a driver: follow what is kept and shown, and act before and after every tool's
//! work.
//!
//! Telemetry, recordings, checkpoints, hooks and the path limits of modes are observers, so that
//! none of them has to wrap a store, a front end or a tool. An observer cannot change what happens,
//! except that it can make the task do less or continue: it can refuse a tool's work before it begins,
//! add a note to a result, and object to an end.

use std::future::Future;
use std::pin::Pin;

use sabir_call::CallId;
use sabir_policy::Access;

use crate::event::{TransientEvent, UserQuestion};
use crate::record::{CompactionReason, Record};
use crate::tool::{CallArguments, ToolOutput};

/// A tool call that is about to run, or has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCall {
    /// The call.
    pub id: CallId,
    /// The name of the tool that runs: for the check of a completion, the tool of the check.
    pub tool: String,
    /// The arguments that the tool got.
    pub arguments: CallArguments,
    /// The access that the call was checked by.
    pub access: Access,
}

/// The reason why an observer does not let a tool begin. It is for the model: what is wrong, and
/// what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRefusal(pub String);

/// The reason why an observer does not let a task stop. The model gets it as a message of Sabir, and
/// the task continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopObjection(pub String);

/// The decision of an observer that the context must not be compacted now. The observer tells the user why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionObjection;

/// The work of an observer around a tool call, a question or an end.
pub type ObserverFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Observes a driver.
///
/// All methods do nothing unless they are implemented. The synchronous ones must be fast, since the task waits for them.
pub trait DriverObserver: Send + Sync {
    /// Follows a record that has been kept, before it is shown and before anything that follows from it is done.
    fn on_record_stored(&self, _: &Record) {}

    /// Follows an event that is shown and not kept, right before the front end shows it.
    fn on_event(&self, _: &TransientEvent<'_>) {}

    /// Returns true if [`on_preview`](Self::on_preview) is to be called. Previews read files, so they are made only for observers that
    /// want them.
    fn wants_previews(&self) -> bool {
        false
    }

    /// Follows the change of files that a tool is about to make, as a diff. A call without a preview is left out.
    fn on_preview(&self, _: &ObservedCall, _: &str) {}

    /// Called before a tool runs. The call is approved and its preconditions hold; they are
    /// compared again after the observers, since these may take a while.
    ///
    /// # Errors
    /// If the tool must not run. Its result is then the reason.
    fn before_tool<'a>(
        &'a self,
        _: &'a ObservedCall,
    ) -> ObserverFuture<'a, Result<(), ToolRefusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called after a tool has run, or was refused by a later observer or by a changed
    /// precondition. It is not called for work that was dropped.
    fn after_tool<'a>(&'a self, _: &'a ObservedCall, _: &'a ToolOutput) -> ObserverFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns a text to add to the result of a tool, for the model. Called after
    /// [`after_tool`](Self::after_tool), for work that was not refused. Must be quick.
    fn take_result_note(&self, _: &ObservedCall) -> Option<String> {
        None
    }

    /// Called before a question is shown. It is dropped, and called again for the same question, if
    /// a command of the user comes first.
    ///
    /// # Errors
    /// If the model should continue instead of waiting for the next message ([`UserQuestion::Next`]). For other questions the
    /// objection has no effect.
    fn before_question<'a>(
        &'a self,
        _: &'a UserQuestion,
    ) -> ObserverFuture<'a, Result<(), StopObjection>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called when a run of the task has ended with a completion, before it returns. The record of
    /// the end has been kept.
    ///
    /// # Errors
    /// If the task must continue, in the same run: its limits keep counting.
    fn before_return<'a>(&'a self, _: &'a str) -> ObserverFuture<'a, Result<(), StopObjection>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called before the model is asked for a summary.
    ///
    /// # Errors
    /// If the context must not be compacted. After a request that was too long an objection has no effect: the task could not continue.
    fn before_compaction(
        &self,
        _: CompactionReason,
    ) -> ObserverFuture<'_, Result<(), CompactionObjection>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called before the model is asked for its next turn; may return a text for the model.
    fn before_request(&self) -> ObserverFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }
}
