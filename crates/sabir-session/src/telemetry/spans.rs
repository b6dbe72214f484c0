//! Turns records into spans, with the names of the GenAI semantic conventions of OpenTelemetry.
//!
//! | span | from | to |
//! | --- | --- | --- |
//! | `invoke_agent sabir` | the beginning of the run | `ended` |
//! | `chat MODEL` | the record before the answer | `answered`, `failed`, or a compaction by the model |
//! | `execute_tool NAME` | `running` | `result` |
//!
//! A model request starts right after a record was appended, so the record before an answer gives its start; queued messages do not
//! count. A call that did not run has a span without a duration, with the reason. Unless the user enables `content`, a span holds
//! names, numbers and kinds, and no text of the task.

use std::collections::{BTreeMap, HashMap};

use sabir_agent::{
    ContextChange, DeliveryTime, ModeHistory, Record, SummaryAuthor, TaskId, TaskOutcome,
    TaskUsage, ToolUsage, control,
};
use sabir_call::{Call, CallId, MessagePart, ToolResultStatus, Usage};
use serde::Serialize;
use serde_json::{Value, json};

/// The ids of the spans of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceIds {
    /// The trace id, which all spans share.
    pub(crate) trace: u128,
    /// The id of the run's own span; the other ids count up from it.
    pub(crate) base: u64,
}

/// The model that requests go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetModel {
    /// The provider's name in Sabir.
    pub(crate) provider: String,
    /// The model's name at the provider.
    pub(crate) model: String,
}

/// The task's model, and those of its modes.
type TargetModels = (TargetModel, BTreeMap<String, TargetModel>);

/// One span of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceSpan {
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// The id of the enclosing span.
    pub(crate) parent: Option<u64>,
    pub(crate) name: String,
    /// True for a request to another program.
    pub(crate) is_client: bool,
    /// The start and the end, in nanoseconds since 1970.
    pub(crate) time: (u64, u64),
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// True if the span gets the status of an error.
    pub(crate) failed: bool,
}

/// Turns the records of one run into spans.
#[derive(Debug)]
pub(crate) struct RunTracer {
    ids: TraceIds,
    count: u64,
    started_at: u64,
    /// The time of the last record that a model request may have followed.
    last_record_at: u64,
    task: String,
    mode_history: ModeHistory,
    asked: TargetModels,
    content: bool,
    prompt: Option<String>,
    /// The calls of the last answer, with the times at which they began to run.
    calls: HashMap<CallId, (Call, Option<u64>)>,
    usage: Usage,
}

impl RunTracer {
    /// Creates the tracer of a run that begins now. `content` adds the text of messages, arguments and results.
    pub(crate) fn new(
        ids: TraceIds,
        task: &TaskId,
        asked: (TargetModel, BTreeMap<String, TargetModel>),
        content: bool,
        now: u64,
    ) -> Self {
        Self {
            ids,
            // The base itself is the id of the run's span.
            count: 1,
            started_at: now,
            last_record_at: now,
            task: task.to_string(),
            mode_history: ModeHistory::default(),
            asked,
            content,
            prompt: None,
            calls: HashMap::new(),
            usage: Usage::default(),
        }
    }

    /// Sets the modes that a resumed task had before this run.
    pub(crate) fn with_history(self, trail: ModeHistory) -> Self {
        Self {
            mode_history: trail,
            ..self
        }
    }

    /// Takes a record that was appended at the time `now`; returns the spans that it ends.
    pub(crate) fn note_record(&mut self, now: u64, record: &Record) -> Vec<TraceSpan> {
        let span = match record {
            Record::Started(start) => {
                self.prompt = Some(start.prompt.clone());
                None
            }
            Record::Answered(answered) => {
                let calls = answered.parts.iter().filter_map(|part| match part {
                    MessagePart::Call(call) => Some((call.id.clone(), (call.clone(), None))),
                    _ => None,
                });
                // Replaces the calls of the answer before, which all have their results.
                self.calls = calls.collect();
                let mut more = vec![(
                    "gen_ai.response.finish_reasons",
                    json!([kind_name(
                        &answered.stop.unwrap_or(sabir_call::StopReason::Other)
                    )]),
                )];
                if self.content {
                    more.push((
                        "gen_ai.output.messages",
                        json!(messages_json("assistant", &answered.parts)),
                    ));
                }
                Some(self.chat_span(now, answered.usage, more, None))
            }
            Record::Failed(failed) => Some(self.chat_span(
                now,
                failed.usage,
                Vec::new(),
                Some(kind_name(&failed.error)),
            )),
            Record::Context(ContextChange::Compacted(compacted))
                if compacted.by == SummaryAuthor::Model =>
            {
                Some(self.chat_span(now, compacted.usage, Vec::new(), None))
            }
            Record::Running { call, .. } => {
                if let Some((_, begun)) = self.calls.get_mut(call) {
                    *begun = Some(now);
                }
                None
            }
            Record::Result(result) => self.tool_span(now, result),
            Record::Ended { outcome, used, .. } => {
                Some(self.run_span(now, *outcome, used.as_deref()))
            }
            _ => None,
        };
        // A message that waits for its turn does not start a request.
        let waits = match record {
            Record::Said { when, .. } | Record::Context(ContextChange::Moded { when, .. }) => {
                *when == DeliveryTime::Later
            }
            _ => false,
        };
        if !waits {
            self.last_record_at = now;
        }
        self.mode_history.apply_record(record);
        span.into_iter().collect()
    }

    fn chat_span(
        &mut self,
        now: u64,
        usage: Usage,
        more: Vec<(&'static str, Value)>,
        error: Option<String>,
    ) -> TraceSpan {
        let mut attributes = self.base_attributes("chat");
        attributes.extend(usage_attributes(usage));
        attributes.extend(more);
        // A provider that reports no usage leaves the sum of the others.
        for (sum, count) in [
            (&mut self.usage.input, usage.input),
            (&mut self.usage.output, usage.output),
        ] {
            *sum = Some(sum.unwrap_or(0).saturating_add(count.unwrap_or(0)));
        }
        let name = format!("chat {}", self.current_model().model);
        let time = (self.last_record_at, now);
        TraceSpan {
            is_client: true,
            ..self.child_span(name, time, attributes, error)
        }
    }

    fn tool_span(&mut self, now: u64, result: &sabir_call::CallResult) -> Option<TraceSpan> {
        // A result without a call is of an earlier run: its span belongs to that run's trace.
        let (call, begun) = self.calls.remove(&result.id)?;
        // Control calls run no tool. What they do is in the spans of the run and the answers.
        if control::is_control(&call.name) {
            return None;
        }
        // For a rejected call, the model may have invented the name. `_OTHER` is OpenTelemetry's
        // value for names that are not listed.
        let known = || {
            result.ending != ToolResultStatus::Rejected
                || crate::setup::built_in_tools().get(&call.name).is_some()
        };
        let name = if self.content || known() {
            call.name.as_str()
        } else {
            "_OTHER"
        };
        let title = format!("execute_tool {name}");
        let mut attributes = vec![
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(name)),
            ("gen_ai.tool.type", json!("function")),
            ("gen_ai.tool.call.id", json!(call.id)),
        ];
        if self.content {
            let arguments = Value::Object(call.arguments).to_string();
            attributes.push(("gen_ai.tool.call.arguments", json!(arguments)));
            attributes.push(("gen_ai.tool.call.result", json!(result.content)));
        }
        let error = (result.ending != ToolResultStatus::Done).then(|| kind_name(&result.ending));
        Some(self.child_span(title, (begun.unwrap_or(now), now), attributes, error))
    }

    /// Builds the span of the whole run.
    fn run_span(&mut self, now: u64, outcome: TaskOutcome, used: Option<&TaskUsage>) -> TraceSpan {
        let mut attributes = self.base_attributes("invoke_agent");
        attributes.push(("gen_ai.agent.name", json!("sabir")));
        attributes.push(("gen_ai.agent.version", json!(env!("CARGO_PKG_VERSION"))));
        attributes.extend(usage_attributes(self.usage));
        attributes.extend(used.map(task_attributes).unwrap_or_default());
        if let Some(prompt) = self.prompt.take().filter(|_| self.content) {
            attributes.push((
                "gen_ai.input.messages",
                json!(messages_json("user", &[MessagePart::text(prompt)])),
            ));
        }
        // Anything else is an error to a collector, also an interruption: the task did not do its
        // work.
        let error = (outcome != TaskOutcome::Completed).then(|| kind_name(&outcome));
        let span = self.child_span(
            "invoke_agent sabir".to_owned(),
            (self.started_at, now),
            attributes,
            error,
        );
        TraceSpan {
            id: self.ids.base,
            parent: None,
            ..span
        }
    }

    fn child_span(
        &mut self,
        name: String,
        time: (u64, u64),
        mut attributes: Vec<(&'static str, Value)>,
        error: Option<String>,
    ) -> TraceSpan {
        // Unique within the trace, which is all that OpenTelemetry asks of a span's id.
        let id = self.ids.base.wrapping_add(self.count);
        self.count = self.count.wrapping_add(1);
        attributes.push(("gen_ai.conversation.id", json!(self.task)));
        let failed = error.is_some();
        attributes.extend(error.map(|error| ("error.type", json!(error))));
        let trace = self.ids.trace;
        let parent = Some(self.ids.base);
        TraceSpan {
            trace,
            id,
            parent,
            name,
            is_client: false,
            time,
            attributes,
            failed,
        }
    }

    fn base_attributes(&self, operation: &str) -> Vec<(&'static str, Value)> {
        let TargetModel { provider, model } = self.current_model();
        vec![
            ("gen_ai.operation.name", json!(operation)),
            ("gen_ai.provider.name", json!(provider_name(provider))),
            ("gen_ai.request.model", json!(model)),
        ]
    }

    /// Returns the model of the current mode. Until the first switch it is the task's model.
    fn current_model(&self) -> &TargetModel {
        let (usual, others) = &self.asked;
        others
            .get(self.mode_history.current_mode())
            .filter(|_| self.mode_history.has_switched())
            .unwrap_or(usual)
    }
}

/// Returns the value of `gen_ai.provider.name`, which differs from Sabir's name for some providers.
fn provider_name(name: &str) -> &str {
    match name {
        "gemini" => "gcp.gemini",
        "bedrock" => "aws.bedrock",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    }
}

pub(super) fn usage_attributes(usage: Usage) -> impl Iterator<Item = (&'static str, Value)> {
    let counts = [
        ("gen_ai.usage.input_tokens", usage.input),
        ("gen_ai.usage.output_tokens", usage.output),
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            usage.cache_write,
        ),
    ];
    counts
        .into_iter()
        .filter_map(|(name, count)| Some((name, json!(count?))))
}

/// Returns the total usage of the task, for which the conventions have no names.
fn task_attributes(used: &TaskUsage) -> Vec<(&'static str, Value)> {
    let mut attributes = Vec::new();
    let total = |reported: Option<u64>, guessed: Option<u64>| {
        reported.unwrap_or(0).saturating_add(guessed.unwrap_or(0))
    };
    attributes.push((
        "sabir.task.input_tokens",
        json!(total(used.usage.input, used.estimate.input)),
    ));
    attributes.push((
        "sabir.task.output_tokens",
        json!(total(used.usage.output, used.estimate.output)),
    ));
    if !used.cost.is_unknown() {
        let cost = json!(used.cost);
        attributes.extend(
            cost.get("nano_usd")
                .map(|nano| ("sabir.task.cost_nano_usd", nano.clone())),
        );
    }
    // Lists of texts, because an attribute cannot hold a table: `read_file=3`.
    let counts = |count: fn(&ToolUsage) -> u32| {
        let list: Vec<_> = used
            .tools
            .iter()
            .filter(|(_, tool)| count(tool) > 0)
            .map(|(name, tool)| format!("{name}={}", count(tool)))
            .collect();
        json!(list)
    };
    attributes.push(("sabir.task.tool_calls", counts(|tool| tool.calls)));
    attributes.push(("sabir.task.tool_failures", counts(|tool| tool.failures)));
    attributes.push(("sabir.task.tool_denials", counts(|tool| tool.denials)));
    attributes
}

/// Returns the word for a kind, as records spell it in JSON.
fn kind_name(kind: &impl Serialize) -> String {
    match serde_json::to_value(kind) {
        Ok(Value::String(word)) => word,
        _ => "_OTHER".to_owned(),
    }
}

/// Encodes a message as the conventions do: JSON in a string.
fn messages_json(role: &str, parts: &[MessagePart]) -> String {
    let parts = parts.iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(json!({"type": "text", "content": text})),
        MessagePart::Thought { text, .. } => Some(json!({"type": "reasoning", "content": text})),
        MessagePart::Call(Call {
            id,
            name,
            arguments,
            ..
        }) => Some(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments})),
        _ => None,
    });
    json!([{"role": role, "parts": parts.collect::<Vec<_>>()}]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Value) -> Record {
        serde_json::from_value(value).unwrap()
    }

    fn story() -> Vec<Record> {
        let call = |id: &str, name: &str| json!({"type": "call", "id": id, "name": name, "arguments": {"path": "secret words", "mode": "plan"}});
        let answered = |calls: &[Value]| json!({"kind": "answered", "turn": 1, "parts": calls, "checks": [], "usage": {"input": 10, "output": 2, "cache_read": 4}, "stop": "calls"});
        let result = |id: &str, name: &str, ending: &str| json!({"kind": "result", "id": id, "name": name, "ending": ending, "content": "secret words"});
        let all = [
            json!({"kind": "started", "task": "t", "prompt": "secret words", "workspace": "/w", "model": "openai/m", "protocol": "native", "version": "1"}),
            json!({"kind": "failed", "error": "unavailable", "message": "secret words"}),
            answered(&[
                call("1", "read_file"),
                call("2", "write_to_file"),
                call("3", "switch_mode"),
            ]),
            json!({"kind": "running", "call": "1"}),
            json!({"kind": "said", "by": "user", "text": "secret words", "when": "later"}),
            result("1", "read_file", "done"),
            result("2", "write_to_file", "denied"),
            json!({"kind": "context", "change": "moded", "mode": "plan", "told": "secret words"}),
            result("3", "switch_mode", "done"),
            answered(&[]),
            json!({"kind": "ended", "outcome": "unfinished", "message": "secret words"}),
        ];
        all.into_iter().map(record).collect()
    }

    fn spans(content: bool) -> Vec<TraceSpan> {
        let asked = |provider: &str, model: &str| TargetModel {
            provider: provider.to_owned(),
            model: model.to_owned(),
        };
        let others = [("plan".to_owned(), asked("gemini", "thinker"))].into();
        let mut tracer = RunTracer::new(
            TraceIds {
                trace: 7,
                base: 100,
            },
            &TaskId::new("t"),
            (asked("openai", "m"), others),
            content,
            0,
        );
        (1..)
            .zip(story())
            .flat_map(|(at, record)| tracer.note_record(at * 10, &record))
            .collect()
    }

    #[test]
    fn records_become_spans() {
        let told: Vec<_> = spans(false)
            .iter()
            .map(|span| {
                let of = |name: &str| {
                    span.attributes
                        .iter()
                        .find(|(known, _)| *known == name)
                        .map(|(_, value)| value.to_string())
                };
                let error = of("error.type").unwrap_or_default();
                format!(
                    "{} {:?} {} {:?} {}{}",
                    span.id,
                    span.parent,
                    span.name,
                    span.time,
                    of("gen_ai.provider.name").unwrap_or_default(),
                    error
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                r#"101 Some(100) chat m (10, 20) "openai""unavailable""#,
                r#"102 Some(100) chat m (20, 30) "openai""#,
                "103 Some(100) execute_tool read_file (40, 60) ",
                r#"104 Some(100) execute_tool write_to_file (70, 70) "denied""#,
                r#"105 Some(100) chat thinker (90, 100) "gcp.gemini""#,
                r#"100 None invoke_agent sabir (0, 110) "gcp.gemini""unfinished""#,
            ]
        );
        let of = |at: usize, name: &str| {
            spans(false)[at]
                .attributes
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.clone())
        };
        assert_eq!(
            of(1, "gen_ai.response.finish_reasons"),
            Some(json!(["calls"]))
        );
        assert_eq!(
            of(1, "gen_ai.usage.cache_read.input_tokens"),
            Some(json!(4))
        );
        assert_eq!(of(5, "gen_ai.usage.input_tokens"), Some(json!(20)));
        assert_eq!(of(2, "gen_ai.tool.call.id"), Some(json!("1")));
    }

    #[test]
    fn text_is_sent_only_with_content() {
        assert!(!format!("{:?}", spans(false)).contains("secret words"));
        let told = spans(true);
        for (at, name) in [
            (1, "gen_ai.output.messages"),
            (2, "gen_ai.tool.call.result"),
            (5, "gen_ai.input.messages"),
        ] {
            let value = told[at].attributes.iter().find(|(known, _)| *known == name);
            assert!(
                value.is_some_and(|(_, value)| value.to_string().contains("secret words")),
                "{name}"
            );
        }
    }
}
