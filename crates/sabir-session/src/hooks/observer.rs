//! Runs the hooks about calls, questions and ends, as an observer of the driver.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use sabir_agent::{
    CompactionObjection, CompactionReason, ContextChange, DriverObserver, ObservedCall,
    ObserverFuture, Record, StopObjection, ToolOutput, ToolRefusal, UserQuestion,
};
use serde_json::{Value, json};

use super::event::HookEvent;
use super::payload::{HookCall, describe_result};
use super::runner::{EventSubject, HookRunner, HookVerdict, quote_for_model};

/// The number of times in a row that hooks can make a finished model continue, as in Claude Code.
const MAX_OBJECTIONS: usize = 8;

/// Observes the driver of a task for its hooks.
#[derive(Debug)]
pub(crate) struct HookObserver(pub(crate) Arc<HookRunner>);

impl HookRunner {
    /// Runs the hooks before a call.
    async fn check_call(&self, call: &ObservedCall) -> Result<(), ToolRefusal> {
        // A patch of several files is checked file by file; one refusal refuses all of it.
        for described in HookCall::from_call(call, self.workspace().root()) {
            let verdict = self
                .run_call_event(HookEvent::PreToolUse, call, &described, Value::Null)
                .await;
            if let Some(reason) = verdict.stop {
                self.stop_task(&reason);
                return Err(ToolRefusal(format!("A hook stopped the task: {reason}")));
            }
            if let Some(reason) = verdict.block {
                return Err(ToolRefusal(format!(
                    "Not run: a hook of the user refused this call. {reason}"
                )));
            }
            let asked = Value::Object(described.input.clone());
            let mut other = verdict.wanted_inputs.into_iter();
            if let Some((hook, wanted)) = other.find(|(_, wanted)| *wanted != asked) {
                // Unchanged, the call would do what the hook wanted to prevent; changed, nobody has
                // checked it.
                return Err(ToolRefusal(format!(
                    "Not run: the hook {hook} wants other arguments, in the names of Claude Code: {wanted}. If they serve you, call again with them."
                )));
            }
            // Asked last: a call that is refused anyway costs the user no answer.
            for reason in verdict.asks {
                let subject = described.subjects.first().cloned().unwrap_or_default();
                let question = format!(
                    "A hook wants you to confirm this call. {reason}\n\n{} {subject}",
                    described.tool
                );
                if !self.ask_user(question).await {
                    return Err(ToolRefusal(format!(
                        "Not run: a hook wants the user to confirm this call, and they did not. {reason}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Runs the hooks after a call that did not fail, and keeps their texts for its result.
    async fn inspect_result(&self, call: &ObservedCall, output: &ToolOutput) {
        // As in Claude Code: what has failed has changed nothing that a formatter could format.
        if output.failed {
            return;
        }
        for described in HookCall::from_call(call, self.workspace().root()) {
            let response = describe_result(&described, &output.content);
            let verdict = self
                .run_call_event(HookEvent::PostToolUse, call, &described, response)
                .await;
            let mut texts = verdict.context;
            texts.extend(verdict.block);
            if !texts.is_empty() {
                let note = quote_for_model(HookEvent::PostToolUse, &texts);
                let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push((call.id.clone(), note));
            }
            if let Some(reason) = verdict.stop {
                self.stop_task(&reason);
                return;
            }
        }
    }

    async fn run_call_event(
        &self,
        event: HookEvent,
        call: &ObservedCall,
        described: &HookCall,
        response: Value,
    ) -> HookVerdict {
        // Both names, since hooks are written for either program.
        let names = [described.tool.as_str(), call.tool.as_str()];
        let subject = EventSubject {
            names: &names,
            texts: &described.subjects,
            access: Some(&call.access),
        };
        let mut fields = json!({
            "tool_name": described.tool,
            "tool_input": described.input,
            "tool_use_id": call.id,
            "sabir_tool_name": call.tool,
        });
        if !response.is_null()
            && let Some(fields) = fields.as_object_mut()
        {
            fields.insert("tool_response".to_owned(), response);
        }
        self.run_event(event, subject, fields).await
    }

    /// Runs the hooks of an end of the model's work.
    async fn object_to_stop(&self, message: &str) -> Result<(), StopObjection> {
        let is_subtask = self.attached_task().is_some_and(|place| place.is_subtask);
        // A subtask has an event of its own: most hooks about ends are meant for the whole work.
        let event = match is_subtask {
            true => HookEvent::SubagentStop,
            false => HookEvent::Stop,
        };
        let earlier = self.objections.load(Ordering::Relaxed);
        let fields = json!({"stop_hook_active": earlier > 0, "last_assistant_message": message});
        let verdict = self.run_event(event, EventSubject::default(), fields).await;
        let Some(reason) = verdict.block.filter(|_| verdict.stop.is_none()) else {
            // The next end belongs to other work, of which no hook has said anything.
            self.objections.store(0, Ordering::Relaxed);
            return Ok(());
        };
        // Each of them costs a turn, so a hook that never agrees must not continue for ever.
        if earlier >= MAX_OBJECTIONS {
            self.objections.store(0, Ordering::Relaxed);
            self.notify(format!(
                "hooks have let the model continue {MAX_OBJECTIONS} times in a row, so it stops now: {reason}"
            ));
            return Ok(());
        }
        // Tells the next run of the hook that it has objected already.
        self.objections.store(earlier + 1, Ordering::Relaxed);
        let text = quote_for_model(event, &[reason]);
        Err(StopObjection(format!(
            "You are not done yet: a hook of the user objects to the end. {text}"
        )))
    }
}

impl DriverObserver for HookObserver {
    fn before_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
    ) -> ObserverFuture<'a, Result<(), ToolRefusal>> {
        if !self.0.has_event(HookEvent::PreToolUse) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(self.0.check_call(call))
    }

    fn after_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
        output: &'a ToolOutput,
    ) -> ObserverFuture<'a, ()> {
        if !self.0.has_event(HookEvent::PostToolUse) {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(self.0.inspect_result(call, output))
    }

    fn take_result_note(&self, call: &ObservedCall) -> Option<String> {
        let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: Vec<String> = notes
            .extract_if(.., |(id, _)| *id == call.id)
            .map(|(_, note)| note)
            .collect();
        (!taken.is_empty()).then(|| taken.join("\n\n"))
    }

    fn before_question<'a>(
        &'a self,
        question: &'a UserQuestion,
    ) -> ObserverFuture<'a, Result<(), StopObjection>> {
        Box::pin(async move {
            // A reason means that the task stops because of a limit or a refusal: continuing would
            // not help.
            let is_end = matches!(question, UserQuestion::Next { reason } if reason.is_empty());
            if is_end {
                self.0.object_to_stop("").await?;
            }
            let (name, message) = match question {
                UserQuestion::Approval { tool, .. } => (
                    "permission_prompt",
                    format!("Sabir needs your permission to use {tool}"),
                ),
                _ => ("idle_prompt", "Sabir is waiting for your input".to_owned()),
            };
            let fields = json!({"message": message, "notification_type": name});
            // It must not delay the question.
            self.0
                .run_in_background(HookEvent::Notification, name, fields);
            Ok(())
        })
    }

    fn before_return<'a>(
        &'a self,
        message: &'a str,
    ) -> ObserverFuture<'a, Result<(), StopObjection>> {
        Box::pin(self.0.object_to_stop(message))
    }

    fn on_record_stored(&self, record: &Record) {
        if let Record::Context(ContextChange::Compacted(_)) = record {
            self.0.compacted.store(true, Ordering::Relaxed);
        }
    }

    fn before_compaction(
        &self,
        reason: CompactionReason,
    ) -> ObserverFuture<'_, Result<(), CompactionObjection>> {
        Box::pin(self.0.run_pre_compact_hooks(reason))
    }

    fn before_request(&self) -> ObserverFuture<'_, Option<String>> {
        if !self.0.compacted.swap(false, Ordering::Relaxed) {
            return Box::pin(std::future::ready(None));
        }
        Box::pin(self.0.run_compact_start_hooks())
    }
}
