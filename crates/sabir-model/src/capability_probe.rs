//! Probes the capabilities of a model and its server with a few small requests.
//!
//! The requests ask for text, a native call, two calls at once, and the use of a call's result; if
//! native calls do not work, they ask for the same call in several dialects. The findings describe
//! this one run. Models are not deterministic, so a "no" may be a "not this time". A probe costs at
//! most a few thousand tokens.

use std::time::Duration;

use sabir_call::dialect::{CLINE, DialectSet};
use sabir_call::{
    ArgumentEncoding, Call, CallId, CallResult, DraftCall, DraftResponse, DraftState, Event,
    EventSink, Message, MessagePart, Model, ModelError, ModelErrorKind, Request, Role, StopReason,
    ToolProtocol, ToolResultStatus, ToolSet, ToolSpec,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The dialects that are tried if native calls do not work, in this order, after the one that
/// leaked.
const FALLBACK_DIALECTS: [&str; 3] = [CLINE, "invoke", "hermes"];

/// The output limit of one request in tokens. Models that think need some of it for that.
const MAX_ANSWER_TOKENS: u64 = 4096;

/// The text that the model must repeat: long enough to stream in several pieces, with characters
/// that JSON escapes.
const NOTE_TEXT: &str = "three \"quoted\" words, a backslash \\ and an ampersand & at the end";

/// The result of probing a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapabilityReport {
    /// One finding for each capability.
    pub findings: Vec<CapabilityFinding>,
    /// The recommended protocol: `native` or a dialect; `None` if none worked.
    pub protocol: Option<String>,
    /// The reason for it, in a sentence.
    pub why: String,
}

/// The finding about one capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapabilityFinding {
    /// The capability: `answers`, `streams`, `usage`, `stop_reason`, `native_calls`, `call_ids`,
    /// `argument_deltas`, `call_stop_reason`, `parallel_calls`, `results`, `leaks`, or `dialect
    /// NAME`.
    pub name: String,
    /// The verdict.
    pub verdict: CapabilityVerdict,
    /// The observation behind it, in words.
    pub detail: String,
}

/// The verdict on one capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityVerdict {
    /// It works.
    Yes,
    /// It did not work this time.
    No,
    /// It could not be observed.
    Unknown,
}

/// The state of a running probe.
struct CapabilityProbe<'a> {
    /// The model under test, through the same stack that a task uses.
    model: &'a dyn Model,
    /// The model's name in requests.
    name: &'a str,
    /// The dialects in which leaked calls are recognized, and which are tried.
    dialects: &'a DialectSet,
    /// The time since any fixed moment.
    clock: &'a (dyn Fn() -> Duration + Sync),
    /// Receives each finding at once, because a probe may take a minute.
    on_finding: &'a mut (dyn FnMut(&CapabilityFinding) + Send),
    /// All findings so far.
    findings: Vec<CapabilityFinding>,
    /// The dialect of a call that came as text although a native call was requested.
    leaked_dialect: Option<String>,
}

/// The observations about one response.
struct ProbeAnswer<'a> {
    /// The whole response.
    draft: DraftResponse,
    /// The number of deltas of text and thoughts; one alone means that nothing was streamed.
    text_events: u32,
    /// The number of deltas of arguments.
    argument_deltas: u32,
    /// The clock of the probe.
    clock: &'a (dyn Fn() -> Duration + Sync),
    /// The time of the first text, thought or call.
    first_event: Option<Duration>,
}

impl EventSink for ProbeAnswer<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Text { .. } | Event::Thought { .. } => self.text_events += 1,
            Event::ArgDelta { .. } => self.argument_deltas += 1,
            _ => {}
        }
        if matches!(
            event,
            Event::Text { .. } | Event::Thought { .. } | Event::CallStart { .. }
        ) && self.first_event.is_none()
        {
            self.first_event = Some((self.clock)());
        }
        self.draft.push_event(event);
    }
}

/// Probes a model. `clock` returns the time since any fixed moment; `on_finding` is called with
/// each finding at once.
///
/// It stops after the first request if that fails, and tries dialects only if native calls did not
/// work. A failed request is a finding, never an error of the probe.
pub async fn probe_capabilities(
    model: &dyn Model,
    name: &str,
    dialects: &DialectSet,
    clock: &(dyn Fn() -> Duration + Sync),
    on_finding: &mut (dyn FnMut(&CapabilityFinding) + Send),
) -> CapabilityReport {
    let findings = Vec::new();
    let mut probe = CapabilityProbe {
        model,
        name,
        dialects,
        clock,
        on_finding,
        findings,
        leaked_dialect: None,
    };
    if !probe.probe_text().await {
        let why = "the model does not answer".to_owned();
        return CapabilityReport {
            findings: probe.findings,
            protocol: None,
            why,
        };
    }
    let native = probe.probe_native_call().await;
    if native.is_some() && probe.leaked_dialect.is_none() {
        probe.probe_parallel_calls().await;
        // The result answers the call that the model really made, with its id.
        let results = probe.probe_results(native).await;
        probe.report_leaks();
        if results && probe.leaked_dialect.is_none() {
            let why = "native calls arrived complete, and their results were accepted".to_owned();
            return CapabilityReport {
                findings: probe.findings,
                protocol: Some("native".to_owned()),
                why,
            };
        }
    } else {
        probe.report_leaks();
    }
    let protocol = probe.probe_dialects().await;
    let why = match &protocol {
        Some(dialect) => format!(
            "native calls do not work well here; a call in the dialect {dialect} arrived complete"
        ),
        None => "neither a native call nor one in a dialect arrived complete".to_owned(),
    };
    CapabilityReport {
        findings: probe.findings,
        protocol,
        why,
    }
}

impl<'a> CapabilityProbe<'a> {
    /// Records a finding and reports it.
    fn report_finding(
        &mut self,
        name: impl Into<String>,
        verdict: CapabilityVerdict,
        detail: impl Into<String>,
    ) {
        let finding = CapabilityFinding {
            name: name.into(),
            verdict,
            detail: detail.into(),
        };
        (self.on_finding)(&finding);
        self.findings.push(finding);
    }

    /// Sends a request and returns the response with the time to its first event.
    ///
    /// # Errors
    /// The model's error; the caller turns it into a finding.
    async fn send_request(
        &mut self,
        request: Request,
    ) -> Result<(ProbeAnswer<'a>, Duration), ModelError> {
        let mut answer = ProbeAnswer {
            draft: DraftResponse::default(),
            text_events: 0,
            argument_deltas: 0,
            clock: self.clock,
            first_event: None,
        };
        let request = Request {
            model: self.name.to_owned(),
            dialects: self.dialects.clone(),
            max_output_tokens: Some(MAX_ANSWER_TOKENS),
            ..request
        };
        let start = (self.clock)();
        self.model.stream_response(&request, &mut answer).await?;
        // A call with a dialect was written as text. A native request did not ask for that.
        let leaked = answer.draft.calls().find_map(|call| call.dialect.clone());
        if request.protocol == ToolProtocol::Native {
            self.leaked_dialect = self.leaked_dialect.take().or(leaked);
        }
        let wait = answer.first_event.unwrap_or(start).saturating_sub(start);
        Ok((answer, wait))
    }

    /// Tests whether the model answers at all, streams, and reports usage and a stop reason.
    /// Returns false if it does not answer.
    async fn probe_text(&mut self) -> bool {
        let words = "Count from 1 to 20 in digits, separated by spaces. Write nothing else.";
        let (answer, wait) = match self.send_request(user_request(words)).await {
            Ok(answer) => answer,
            Err(error) => {
                self.report_finding("answers", CapabilityVerdict::No, error.message);
                return false;
            }
        };
        let milliseconds = wait.as_millis();
        self.report_finding(
            "answers",
            CapabilityVerdict::Yes,
            format!("the first text arrived after {milliseconds} ms"),
        );
        match answer.text_events {
            0 => self.report_finding(
                "streams",
                CapabilityVerdict::Unknown,
                "the answer contained no text",
            ),
            1 => self.report_finding(
                "streams",
                CapabilityVerdict::No,
                "the whole answer arrived in one piece",
            ),
            count => self.report_finding(
                "streams",
                CapabilityVerdict::Yes,
                format!("the answer arrived in {count} pieces"),
            ),
        }
        let usage = answer.draft.usage;
        match (usage.input, usage.output) {
            (Some(input), Some(output)) => {
                let cached = usage
                    .cache_read
                    .map_or(String::new(), |count| format!(", {count} of them cached"));
                self.report_finding(
                    "usage",
                    CapabilityVerdict::Yes,
                    format!("{input} tokens in{cached}, {output} out"),
                );
            }
            _ => self.report_finding(
                "usage",
                CapabilityVerdict::No,
                "tokens are not reported; they will be estimated",
            ),
        }
        match &answer.draft.stop {
            Some((StopReason::End, raw)) => {
                self.report_finding("stop_reason", CapabilityVerdict::Yes, format!("`{raw}`"))
            }
            Some((reason, raw)) => {
                self.report_finding(
                    "stop_reason",
                    CapabilityVerdict::No,
                    format!("`{raw}` ({reason:?}) at the end of a finished answer"),
                );
            }
            None => self.report_finding("stop_reason", CapabilityVerdict::No, "none was given"),
        }
        true
    }

    /// Requests a native call, and returns it if it arrived complete.
    async fn probe_native_call(&mut self) -> Option<DraftCall> {
        let words = format!("Call the tool `note` once, with exactly this text: {NOTE_TEXT}");
        let answer = match self
            .send_request(Request {
                tools: probe_tools(),
                ..user_request(&words)
            })
            .await
        {
            Ok((answer, _)) => answer,
            Err(error) => {
                self.report_finding("native_calls", CapabilityVerdict::No, error.message);
                return None;
            }
        };
        let call = answer
            .draft
            .calls()
            .find(|call| call.dialect.is_none())
            .cloned();
        let Some(call) = call else {
            let detail = match &self.leaked_dialect {
                Some(dialect) => format!("the call arrived as text, in the dialect {dialect}"),
                None => "the model wrote text instead of a call".to_owned(),
            };
            self.report_finding("native_calls", CapabilityVerdict::No, detail);
            return None;
        };
        let right = is_expected_call(&call, &answer.draft);
        let verdict = if right {
            CapabilityVerdict::Yes
        } else {
            CapabilityVerdict::No
        };
        self.report_finding("native_calls", verdict, describe_call(&call, right));
        match call.id.as_deref().filter(|id| !id.is_empty()) {
            Some(_) => {
                self.report_finding("call_ids", CapabilityVerdict::Yes, "the call has an id")
            }
            None => self.report_finding(
                "call_ids",
                CapabilityVerdict::No,
                "the call has no id; Sabir gives it one",
            ),
        }
        match answer.argument_deltas {
            0 | 1 => self.report_finding(
                "argument_deltas",
                CapabilityVerdict::No,
                "the arguments arrived in one piece",
            ),
            count => self.report_finding(
                "argument_deltas",
                CapabilityVerdict::Yes,
                format!("the arguments arrived in {count} pieces"),
            ),
        }
        match &answer.draft.stop {
            Some((StopReason::Calls, raw)) => self.report_finding(
                "call_stop_reason",
                CapabilityVerdict::Yes,
                format!("`{raw}`"),
            ),
            Some((_, raw)) => self.report_finding(
                "call_stop_reason",
                CapabilityVerdict::No,
                format!("`{raw}` after a call"),
            ),
            None => {
                self.report_finding("call_stop_reason", CapabilityVerdict::No, "none was given")
            }
        }
        right.then_some(call)
    }

    /// Requests two calls in one response.
    async fn probe_parallel_calls(&mut self) {
        let words = "Call the tool `note` twice in one and the same answer: once with the text `one`, once with `two`.";
        match self
            .send_request(Request {
                tools: probe_tools(),
                ..user_request(words)
            })
            .await
        {
            Err(error) => {
                self.report_finding("parallel_calls", CapabilityVerdict::No, error.message)
            }
            Ok((answer, _)) => {
                let closed = answer
                    .draft
                    .calls()
                    .filter(|call| call.state == DraftState::Closed)
                    .count();
                let verdict = if closed == 2 {
                    CapabilityVerdict::Yes
                } else {
                    CapabilityVerdict::No
                };
                self.report_finding(
                    "parallel_calls",
                    verdict,
                    format!("two were requested, {closed} arrived"),
                );
            }
        }
    }

    /// Sends the result of a call. Returns false if the server rejected it.
    async fn probe_results(&mut self, call: Option<DraftCall>) -> bool {
        let id = CallId::new(
            call.and_then(|call| call.id)
                .unwrap_or_else(|| "call-1".to_owned()),
        );
        let arguments = Map::from_iter([("text".to_owned(), Value::from(NOTE_TEXT))]);
        let call = Call {
            id: id.clone(),
            name: "note".to_owned(),
            arguments,
            dialect: None,
        };
        let result = CallResult {
            id,
            name: "note".to_owned(),
            ending: ToolResultStatus::Done,
            content: "noted as number 7341".to_owned(),
            images: Vec::new(),
        };
        let words = format!(
            "Call the tool `note` with this text: {NOTE_TEXT}\nThen tell me the number of the note."
        );
        let messages = vec![
            Message::user(words),
            Message {
                role: Role::Assistant,
                parts: vec![MessagePart::Call(call)],
            },
            Message {
                role: Role::User,
                parts: vec![MessagePart::Result(result)],
            },
        ];
        match self
            .send_request(Request {
                tools: probe_tools(),
                messages: messages.into(),
                ..Request::default()
            })
            .await
        {
            Err(error) => self.report_finding("results", CapabilityVerdict::No, error.message),
            Ok((answer, _)) if answer.draft.text().contains("7341") => {
                self.report_finding(
                    "results",
                    CapabilityVerdict::Yes,
                    "the model read the result of a call",
                );
            }
            Ok(_) => {
                self.report_finding(
                    "results",
                    CapabilityVerdict::Unknown,
                    "the server accepted the result; the model did not mention it",
                );
            }
        }
        self.findings
            .last()
            .is_some_and(|finding| finding.verdict != CapabilityVerdict::No)
    }

    /// Reports whether a call came as text although a native one was requested.
    fn report_leaks(&mut self) {
        match self.leaked_dialect.clone() {
            Some(dialect) => self.report_finding(
                "leaks",
                CapabilityVerdict::Yes,
                format!("a call arrived as text, in the dialect {dialect}"),
            ),
            None => self.report_finding("leaks", CapabilityVerdict::No, "no call arrived as text"),
        }
    }

    /// Requests the same call in each dialect, and returns the first dialect that works.
    async fn probe_dialects(&mut self) -> Option<String> {
        let mut names: Vec<String> = self.leaked_dialect.iter().cloned().collect();
        names.extend(
            FALLBACK_DIALECTS
                .map(str::to_owned)
                .into_iter()
                .filter(|name| self.leaked_dialect.as_ref() != Some(name)),
        );
        for name in names
            .into_iter()
            .filter(|name| self.dialects.find(name).is_some())
        {
            let words = format!("Use the tool `note` once, with exactly this text: {NOTE_TEXT}");
            let protocol = ToolProtocol::Prompted(name.clone());
            let row = format!("dialect {name}");
            match self
                .send_request(Request {
                    tools: probe_tools(),
                    protocol,
                    ..user_request(&words)
                })
                .await
            {
                Err(error) => {
                    // A rejected key or an unreachable server would fail in every dialect alike.
                    let hopeless =
                        !error.kind.is_transient() && error.kind != ModelErrorKind::Format;
                    self.report_finding(row, CapabilityVerdict::No, error.message);
                    if hopeless {
                        return None;
                    }
                }
                Ok((answer, _)) => {
                    let call = answer.draft.calls().next().cloned();
                    let right = call
                        .as_ref()
                        .is_some_and(|call| is_expected_call(call, &answer.draft));
                    let detail = call.map_or("the model wrote no call".to_owned(), |call| {
                        describe_call(&call, right)
                    });
                    self.report_finding(
                        row,
                        if right {
                            CapabilityVerdict::Yes
                        } else {
                            CapabilityVerdict::No
                        },
                        detail,
                    );
                    if right {
                        return Some(name);
                    }
                }
            }
        }
        None
    }
}

/// Makes a request with one user message and no tools.
fn user_request(words: &str) -> Request {
    Request {
        messages: vec![Message::user(words)].into(),
        ..Request::default()
    }
}

/// Makes the tools that the probe offers.
fn probe_tools() -> ToolSet {
    let schema = json!({
        "type": "object", "properties": {"text": {"type": "string", "description": "The text to keep."}},
        "required": ["text"], "additionalProperties": false,
    });
    ToolSet::new(vec![ToolSpec::new("note", "Keeps a text.", schema)]).unwrap_or_default()
}

/// Returns true if this is exactly the requested call, and complete.
fn is_expected_call(call: &DraftCall, draft: &DraftResponse) -> bool {
    let [argument] = call.arguments.as_slice() else {
        return false;
    };
    call.state == DraftState::Closed
        && call.name == "note"
        && argument.name == "text"
        && argument.form != ArgumentEncoding::Json
        && argument.text.trim() == NOTE_TEXT
        && draft.errors_of(call.index).next().is_none()
}

/// Describes a call for the detail of a finding.
fn describe_call(call: &DraftCall, right: bool) -> String {
    match (right, call.state) {
        (true, _) => "the call arrived complete".to_owned(),
        (_, DraftState::Closed) => {
            let arguments: Vec<_> = call
                .arguments
                .iter()
                .map(|argument| argument.text.as_str())
                .collect();
            let arguments: String = arguments.join(", ").chars().take(80).collect();
            format!(
                "the call is not the one that was requested: {}({arguments})",
                call.name
            )
        }
        _ => "the call was cut".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedModel, ScriptedReply};

    fn words(text: &str) -> ScriptedReply {
        let mut draft = DraftResponse::default();
        draft.push_event(Event::Text { text });
        draft.push_event(Event::Usage(sabir_call::Usage {
            input: Some(9),
            output: Some(3),
            ..Default::default()
        }));
        draft.push_event(Event::Stop {
            reason: StopReason::End,
            raw: "stop",
        });
        ScriptedReply::Events(draft)
    }

    fn calls(id: Option<&str>, texts: &[&str]) -> ScriptedReply {
        let mut draft = DraftResponse::default();
        for (index, text) in (0..).zip(texts) {
            draft.push_event(Event::CallStart {
                index,
                id,
                name: "note",
                dialect: None,
                at: 0,
                name_at: 0,
            });
            draft.push_event(Event::ArgStart {
                index,
                name: "text",
                form: ArgumentEncoding::String,
                at: 0,
            });
            draft.push_event(Event::ArgDelta { index, text });
            draft.push_event(Event::ArgEnd {
                index,
                lead: "",
                at: 0,
            });
            draft.push_event(Event::CallEnd { index, at: 0 });
        }
        draft.push_event(Event::Stop {
            reason: StopReason::Calls,
            raw: "tool_calls",
        });
        ScriptedReply::Events(draft)
    }

    fn check(
        replies: Vec<ScriptedReply>,
        protocol: Option<&str>,
        expected: &[(&str, CapabilityVerdict)],
    ) {
        let model = ScriptedModel::new(replies).piece_size(5);
        let mut told = Vec::new();
        let clock = || Duration::ZERO;
        let mut tell = |finding: &CapabilityFinding| told.push(finding.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let found = runtime.block_on(probe_capabilities(
            &model,
            "m",
            DialectSet::built_in(),
            &clock,
            &mut tell,
        ));
        assert_eq!(found.protocol.as_deref(), protocol, "{found:#?}");
        assert_eq!(told, found.findings);
        for (name, verdict) in expected {
            let finding = found.findings.iter().find(|finding| finding.name == *name);
            assert_eq!(
                finding.map(|finding| finding.verdict),
                Some(*verdict),
                "{name} in {found:#?}"
            );
        }
    }

    #[test]
    fn a_model_with_native_calls_is_recognized() {
        let replies = vec![
            words("1 2 3 4 5"),
            calls(Some("c"), &[NOTE_TEXT]),
            calls(Some("c"), &["one", "two"]),
            words("It is 7341."),
        ];
        let yes = [
            "answers",
            "streams",
            "usage",
            "stop_reason",
            "native_calls",
            "call_ids",
            "argument_deltas",
            "call_stop_reason",
            "parallel_calls",
            "results",
        ];
        let mut expected = yes.map(|name| (name, CapabilityVerdict::Yes)).to_vec();
        expected.push(("leaks", CapabilityVerdict::No));
        check(replies, Some("native"), &expected);
    }

    #[test]
    fn a_model_that_leaks_calls_is_recognized() {
        let json = json!({"name": "note", "arguments": {"text": NOTE_TEXT}});
        let leaked = ScriptedReply::Text(format!("<tool_call>\n{json}\n</tool_call>"));
        let expected = [
            ("native_calls", CapabilityVerdict::No),
            ("leaks", CapabilityVerdict::Yes),
            ("dialect hermes", CapabilityVerdict::Yes),
        ];
        check(
            vec![words("1 2"), leaked.clone(), leaked],
            Some("hermes"),
            &expected,
        );
    }

    #[test]
    fn a_model_that_rejects_results_is_recognized() {
        let refused = ModelError {
            kind: ModelErrorKind::Rejected,
            message: "no role `tool`".to_owned(),
        };
        let cline = ScriptedReply::Text(format!("<note>\n<text>{NOTE_TEXT}</text>\n</note>"));
        let replies = vec![
            words("1 2"),
            calls(None, &[NOTE_TEXT]),
            calls(None, &["one"]),
            ScriptedReply::Error(refused),
            cline,
        ];
        let expected = [
            ("call_ids", CapabilityVerdict::No),
            ("parallel_calls", CapabilityVerdict::No),
            ("results", CapabilityVerdict::No),
        ];
        check(replies, Some("cline"), &expected);
    }

    #[test]
    fn a_model_that_fails_every_probe_is_recognized() {
        check(
            vec![words("1"); 5],
            None,
            &[
                ("native_calls", CapabilityVerdict::No),
                ("dialect hermes", CapabilityVerdict::No),
            ],
        );
        check(vec![], None, &[("answers", CapabilityVerdict::No)]);
    }
}
