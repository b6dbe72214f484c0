//! An examination: what a model and the server before it really do, found out by asking.
//!
//! A handful of small requests: words, a native call, two calls at once, a call's result going back, and, where native calls
//! do not come whole, the same call in the dialects. What is found is what was seen in this one try; models are not
//! deterministic, so a "no" may be a "not this time". Costs at most a few thousand tokens.

use std::time::Duration;

use sabir_call::dialect::{CLINE, dialect};
use sabir_call::{
    ArgForm, Call, CallId, CallResult, Draft, DraftCall, DraftState, Ending, Event, Message, Model, ModelError,
    ModelErrorKind, Part, Protocol, Request, Role, Sink, StopReason, ToolSet, ToolSpec,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The dialects that are tried where native calls do not work, in this order, behind the one that leaked.
const DIALECTS: [&str; 3] = [CLINE, "invoke", "hermes"];

/// The most tokens of one answer. Models that think need room for it.
const ROOM: u64 = 4096;

/// The text that the model is to pass on: long enough to come in several pieces, and with what is escaped in JSON.
const NOTE: &str = "three \"quoted\" words, a backslash \\ and an ampersand & at the end";

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    /// One row for each thing that was looked at.
    pub findings: Vec<Finding>,
    /// How calls are best asked for: `native`, or a dialect. `None`: no way worked.
    pub protocol: Option<String>,
    /// Why, in a sentence.
    pub why: String,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: `answers`, `streams`, `usage`, `stop_reason`, `native_calls`, `call_ids`, `argument_deltas`,
    /// `call_stop_reason`, `parallel_calls`, `results`, `leaks`, or `dialect NAME`.
    pub name: String,
    /// What was seen.
    pub verdict: Verdict,
    /// What was seen, in words.
    pub detail: String,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It works.
    Yes,
    /// It does not, this time at least.
    No,
    /// It could not be looked at.
    Unknown,
}

/// An examination under way.
struct Examiner<'a> {
    model: &'a dyn Model,
    name: &'a str,
    clock: &'a (dyn Fn() -> Duration + Sync),
    told: &'a mut (dyn FnMut(&Finding) + Send),
    findings: Vec<Finding>,
    /// The dialect in which a call came as text although it was asked for natively.
    leaked: Option<String>,
}

/// One answer, as it came.
struct Heard<'a> {
    draft: Draft,
    words: u32,
    pieces: u32,
    clock: &'a (dyn Fn() -> Duration + Sync),
    first: Option<Duration>,
}

impl Sink for Heard<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Text { .. } | Event::Thought { .. } => self.words += 1,
            Event::ArgDelta { .. } => self.pieces += 1,
            _ => {}
        }
        if matches!(event, Event::Text { .. } | Event::Thought { .. } | Event::CallStart { .. }) && self.first.is_none()
        {
            self.first = Some((self.clock)());
        }
        self.draft.event(event);
    }
}

/// Examines a model. `clock` tells the time since any fixed moment; each finding is told as soon as it is known.
pub async fn examine(
    model: &dyn Model,
    name: &str,
    clock: &(dyn Fn() -> Duration + Sync),
    told: &mut (dyn FnMut(&Finding) + Send),
) -> Examination {
    let mut examiner = Examiner { model, name, clock, told, findings: Vec::new(), leaked: None };
    if !examiner.words().await {
        let why = "the model does not answer".to_owned();
        return Examination { findings: examiner.findings, protocol: None, why };
    }
    let native = examiner.native().await;
    if native.is_some() && examiner.leaked.is_none() {
        examiner.parallel().await;
        let results = examiner.results(native).await;
        examiner.leaks();
        if results && examiner.leaked.is_none() {
            let why = "native calls came whole, and their results were taken back".to_owned();
            return Examination { findings: examiner.findings, protocol: Some("native".to_owned()), why };
        }
    } else {
        examiner.leaks();
    }
    let protocol = examiner.dialects().await;
    let why = match &protocol {
        Some(dialect) => format!("native calls do not work well here; a call in the dialect {dialect} came whole"),
        None => "neither a native call nor one in a dialect came whole".to_owned(),
    };
    Examination { findings: examiner.findings, protocol, why }
}

impl<'a> Examiner<'a> {
    fn find(&mut self, name: impl Into<String>, verdict: Verdict, detail: impl Into<String>) {
        let finding = Finding { name: name.into(), verdict, detail: detail.into() };
        (self.told)(&finding);
        self.findings.push(finding);
    }

    async fn ask(&mut self, request: Request) -> Result<(Heard<'a>, Duration), ModelError> {
        let mut heard = Heard { draft: Draft::default(), words: 0, pieces: 0, clock: self.clock, first: None };
        let request = Request { model: self.name.to_owned(), max_output: Some(ROOM), ..request };
        let start = (self.clock)();
        self.model.answer(&request, &mut heard).await?;
        let leaked = heard.draft.calls().find_map(|call| call.dialect.clone());
        if request.protocol == Protocol::Native {
            self.leaked = self.leaked.take().or(leaked);
        }
        let wait = heard.first.unwrap_or(start).saturating_sub(start);
        Ok((heard, wait))
    }

    /// Whether it answers at all, and how words come.
    async fn words(&mut self) -> bool {
        let words = "Count from 1 to 20 in digits, separated by spaces. Write nothing else.";
        let (heard, wait) = match self.ask(user(words)).await {
            Ok(answer) => answer,
            Err(error) => {
                self.find("answers", Verdict::No, error.message);
                return false;
            }
        };
        let milliseconds = wait.as_millis();
        self.find("answers", Verdict::Yes, format!("the first words came after {milliseconds} ms"));
        match heard.words {
            0 => self.find("streams", Verdict::Unknown, "the answer held no words"),
            1 => self.find("streams", Verdict::No, "the whole answer came in one piece"),
            count => self.find("streams", Verdict::Yes, format!("the answer came in {count} pieces")),
        }
        let usage = heard.draft.usage;
        match (usage.input, usage.output) {
            (Some(input), Some(output)) => {
                let cached = usage.cache_read.map_or(String::new(), |count| format!(", {count} of them cached"));
                self.find("usage", Verdict::Yes, format!("{input} tokens in{cached}, {output} out"));
            }
            _ => self.find("usage", Verdict::No, "tokens are not reported; they will be estimated"),
        }
        match &heard.draft.stop {
            Some((StopReason::End, raw)) => self.find("stop_reason", Verdict::Yes, format!("`{raw}`")),
            Some((reason, raw)) => {
                self.find("stop_reason", Verdict::No, format!("`{raw}` ({reason:?}) at the end of a finished answer"));
            }
            None => self.find("stop_reason", Verdict::No, "none was given"),
        }
        true
    }

    /// A native call. Gives it back if it came whole.
    async fn native(&mut self) -> Option<DraftCall> {
        let words = format!("Call the tool `note` once, with exactly this text: {NOTE}");
        let heard = match self.ask(Request { tools: tools(), ..user(&words) }).await {
            Ok((heard, _)) => heard,
            Err(error) => {
                self.find("native_calls", Verdict::No, error.message);
                return None;
            }
        };
        let call = heard.draft.calls().find(|call| call.dialect.is_none()).cloned();
        let Some(call) = call else {
            let detail = match &self.leaked {
                Some(dialect) => format!("the call came as text, in the dialect {dialect}"),
                None => "the model wrote words instead of a call".to_owned(),
            };
            self.find("native_calls", Verdict::No, detail);
            return None;
        };
        let right = is_note(&call, &heard.draft);
        let verdict = if right { Verdict::Yes } else { Verdict::No };
        self.find("native_calls", verdict, said(&call, right));
        match call.id.as_deref().filter(|id| !id.is_empty()) {
            Some(_) => self.find("call_ids", Verdict::Yes, "the call has an id"),
            None => self.find("call_ids", Verdict::No, "the call has no id; Sabir gives it one"),
        }
        match heard.pieces {
            0 | 1 => self.find("argument_deltas", Verdict::No, "the arguments came in one piece"),
            count => self.find("argument_deltas", Verdict::Yes, format!("the arguments came in {count} pieces")),
        }
        match &heard.draft.stop {
            Some((StopReason::Calls, raw)) => self.find("call_stop_reason", Verdict::Yes, format!("`{raw}`")),
            Some((_, raw)) => self.find("call_stop_reason", Verdict::No, format!("`{raw}` behind a call")),
            None => self.find("call_stop_reason", Verdict::No, "none was given"),
        }
        right.then_some(call)
    }

    /// Two calls in one answer.
    async fn parallel(&mut self) {
        let words = "Call the tool `note` twice in one and the same answer: once with the text `one`, once with `two`.";
        match self.ask(Request { tools: tools(), ..user(words) }).await {
            Err(error) => self.find("parallel_calls", Verdict::No, error.message),
            Ok((heard, _)) => {
                let closed = heard.draft.calls().filter(|call| call.state == DraftState::Closed).count();
                let verdict = if closed == 2 { Verdict::Yes } else { Verdict::No };
                self.find("parallel_calls", verdict, format!("two were asked for, {closed} came"));
            }
        }
    }

    /// Whether the result of a call is taken back.
    async fn results(&mut self, call: Option<DraftCall>) -> bool {
        let id = CallId::new(call.and_then(|call| call.id).unwrap_or_else(|| "call-1".to_owned()));
        let arguments = Map::from_iter([("text".to_owned(), Value::from(NOTE))]);
        let call = Call { id: id.clone(), name: "note".to_owned(), arguments, dialect: None };
        let result = CallResult {
            id,
            name: "note".to_owned(),
            ending: Ending::Done,
            content: "noted as number 7341".to_owned(),
            images: Vec::new(),
        };
        let words = format!("Call the tool `note` with this text: {NOTE}\nThen tell me the number of the note.");
        let messages = vec![
            Message::user(words),
            Message { role: Role::Assistant, parts: vec![Part::Call(call)] },
            Message { role: Role::User, parts: vec![Part::Result(result)] },
        ];
        match self.ask(Request { tools: tools(), messages: messages.into(), ..Request::default() }).await {
            Err(error) => self.find("results", Verdict::No, error.message),
            Ok((heard, _)) if heard.draft.text().contains("7341") => {
                self.find("results", Verdict::Yes, "the model read the result of a call");
            }
            Ok(_) => {
                self.find("results", Verdict::Unknown, "the server took the result; the model did not speak of it");
            }
        }
        self.findings.last().is_some_and(|finding| finding.verdict != Verdict::No)
    }

    /// Whether anything that was asked for natively came as text.
    fn leaks(&mut self) {
        match self.leaked.clone() {
            Some(dialect) => self.find("leaks", Verdict::Yes, format!("a call came as text, in the dialect {dialect}")),
            None => self.find("leaks", Verdict::No, "no call came as text"),
        }
    }

    /// The same call in the dialects, up to the first that works.
    async fn dialects(&mut self) -> Option<String> {
        let mut names: Vec<String> = self.leaked.iter().cloned().collect();
        names.extend(DIALECTS.map(str::to_owned).into_iter().filter(|name| self.leaked.as_ref() != Some(name)));
        for name in names.into_iter().filter(|name| dialect(name).is_some()) {
            let words = format!("Use the tool `note` once, with exactly this text: {NOTE}");
            let protocol = Protocol::Prompted(name.clone());
            let row = format!("dialect {name}");
            match self.ask(Request { tools: tools(), protocol, ..user(&words) }).await {
                Err(error) => {
                    let hopeless = !error.kind.is_transient() && error.kind != ModelErrorKind::Format;
                    self.find(row, Verdict::No, error.message);
                    if hopeless {
                        return None;
                    }
                }
                Ok((heard, _)) => {
                    let call = heard.draft.calls().next().cloned();
                    let right = call.as_ref().is_some_and(|call| is_note(call, &heard.draft));
                    let detail = call.map_or("the model wrote no call".to_owned(), |call| said(&call, right));
                    self.find(row, if right { Verdict::Yes } else { Verdict::No }, detail);
                    if right {
                        return Some(name);
                    }
                }
            }
        }
        None
    }
}

fn user(words: &str) -> Request {
    Request { messages: vec![Message::user(words)].into(), ..Request::default() }
}

fn tools() -> ToolSet {
    let schema = json!({
        "type": "object", "properties": {"text": {"type": "string", "description": "The text to keep."}},
        "required": ["text"], "additionalProperties": false,
    });
    ToolSet::new(vec![ToolSpec::new("note", "Keeps a text.", schema)]).unwrap_or_default()
}

/// Whether it is the call that was asked for, whole.
fn is_note(call: &DraftCall, draft: &Draft) -> bool {
    let [argument] = call.arguments.as_slice() else { return false };
    call.state == DraftState::Closed
        && call.name == "note"
        && argument.name == "text"
        && argument.form != ArgForm::Json
        && argument.text.trim() == NOTE
        && draft.errors_of(call.index).next().is_none()
}

fn said(call: &DraftCall, right: bool) -> String {
    match (right, call.state) {
        (true, _) => "the call came whole".to_owned(),
        (_, DraftState::Closed) => {
            let arguments: Vec<_> = call.arguments.iter().map(|argument| argument.text.as_str()).collect();
            let arguments: String = arguments.join(", ").chars().take(80).collect();
            format!("the call is not the one that was asked for: {}({arguments})", call.name)
        }
        _ => "the call was cut".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Reply, ScriptedModel};

    fn words(text: &str) -> Reply {
        let mut draft = Draft::default();
        draft.event(Event::Text { text });
        draft.event(Event::Usage(sabir_call::Usage { input: Some(9), output: Some(3), ..Default::default() }));
        draft.event(Event::Stop { reason: StopReason::End, raw: "stop" });
        Reply::Events(draft)
    }

    fn calls(id: Option<&str>, texts: &[&str]) -> Reply {
        let mut draft = Draft::default();
        for (index, text) in (0..).zip(texts) {
            draft.event(Event::CallStart { index, id, name: "note", dialect: None, at: 0, name_at: 0 });
            draft.event(Event::ArgStart { index, name: "text", form: ArgForm::String, at: 0 });
            draft.event(Event::ArgDelta { index, text });
            draft.event(Event::ArgEnd { index, lead: "", at: 0 });
            draft.event(Event::CallEnd { index, at: 0 });
        }
        draft.event(Event::Stop { reason: StopReason::Calls, raw: "tool_calls" });
        Reply::Events(draft)
    }

    fn check(replies: Vec<Reply>, protocol: Option<&str>, expected: &[(&str, Verdict)]) {
        let model = ScriptedModel::new(replies).pieces(5);
        let mut told = Vec::new();
        let clock = || Duration::ZERO;
        let mut tell = |finding: &Finding| told.push(finding.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(examine(&model, "m", &clock, &mut tell));
        assert_eq!(found.protocol.as_deref(), protocol, "{found:#?}");
        assert_eq!(told, found.findings);
        for (name, verdict) in expected {
            let finding = found.findings.iter().find(|finding| finding.name == *name);
            assert_eq!(finding.map(|finding| finding.verdict), Some(*verdict), "{name} in {found:#?}");
        }
    }

    #[test]
    fn a_model_that_calls_natively() {
        let replies = vec![
            words("1 2 3 4 5"),
            calls(Some("c"), &[NOTE]),
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
        let mut expected = yes.map(|name| (name, Verdict::Yes)).to_vec();
        expected.push(("leaks", Verdict::No));
        check(replies, Some("native"), &expected);
    }

    #[test]
    fn a_model_whose_calls_leak() {
        let json = json!({"name": "note", "arguments": {"text": NOTE}});
        let leaked = Reply::Text(format!("<tool_call>\n{json}\n</tool_call>"));
        let expected = [("native_calls", Verdict::No), ("leaks", Verdict::Yes), ("dialect hermes", Verdict::Yes)];
        check(vec![words("1 2"), leaked.clone(), leaked], Some("hermes"), &expected);
    }

    #[test]
    fn a_model_that_takes_no_results() {
        let refused = ModelError { kind: ModelErrorKind::Rejected, message: "no role `tool`".to_owned() };
        let cline = Reply::Text(format!("<note>\n<text>{NOTE}</text>\n</note>"));
        let replies = vec![words("1 2"), calls(None, &[NOTE]), calls(None, &["one"]), Reply::Error(refused), cline];
        let expected = [("call_ids", Verdict::No), ("parallel_calls", Verdict::No), ("results", Verdict::No)];
        check(replies, Some("cline"), &expected);
    }

    #[test]
    fn a_model_that_cannot_call_or_answer() {
        check(vec![words("1"); 5], None, &[("native_calls", Verdict::No), ("dialect hermes", Verdict::No)]);
        check(vec![], None, &[("answers", Verdict::No)]);
    }
}
