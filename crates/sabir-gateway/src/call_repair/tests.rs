//! Tests the repairer with scripted responses and a draft of the client's response.

use std::sync::Mutex;

use sabir_call::dialect::DialectSet;
use sabir_call::{ArgumentEncoding, Call, CallId, Usage};
use sabir_call::{
    DraftCall, DraftResponse, DraftState, Event, EventSink, Message, MessagePart, ModelError,
    ModelErrorKind, ParallelCalls, PromptedSink, Request, StopReason, ToolChoice, ToolProtocol,
    ToolSet, Truncation,
};
use serde_json::{Map, Value, json};

use super::{CallDelivery, CallRepairer, NextStep, RepairLog, RepairMode};
use crate::gateway_event::GatewayEvent;

mod calls;
mod echoes;
mod values;

fn tools() -> ToolSet {
    let tools = json!([
        {"name": "edit_file", "description": "Edits.", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "content": {"type": "string"}, "count": {"type": "integer"},
            "all": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "properties": {"k": {"type": "number"}}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["path"]}},
        {"name": "stop", "description": "Stops.", "parameters": {"type": "object", "properties": {}}}]);
    ToolSet::from_json(&tools.to_string()).unwrap()
}

fn native() -> Request {
    Request {
        tools: tools(),
        messages: vec![Message::user("go")].into(),
        ..Request::default()
    }
}

/// The outcome for the client.
#[derive(Debug, Default)]
struct Outcome {
    draft: DraftResponse,
    error: Option<ModelError>,
    report: String,
    /// The requests after the first.
    asked: Vec<Request>,
}

impl Outcome {
    /// Returns the calls as a client reads them. A raw value is a failure, since clients cannot read it.
    fn calls(&self) -> Vec<String> {
        let value = |call: &DraftCall| {
            let row = call.arguments.iter().map(|argument| {
                let value = match argument.form {
                    ArgumentEncoding::Raw => panic!("a raw value went out"),
                    ArgumentEncoding::String => Value::from(argument.text.as_str()),
                    ArgumentEncoding::Json => serde_json::from_str(&argument.text).unwrap(),
                };
                (argument.name.clone(), value)
            });
            Value::Object(row.collect()).to_string()
        };
        let closed = |call: &&DraftCall| call.state == DraftState::Closed;
        self.draft
            .calls()
            .filter(closed)
            .map(|call| format!("{} {}", call.name, value(call)))
            .collect()
    }

    fn stop(&self) -> Option<StopReason> {
        self.draft.stop.as_ref().map(|(reason, _)| *reason)
    }
}

/// One answer of the model.
type Answer<'a> = &'a dyn Fn(&mut dyn EventSink);

/// Repairs these answers, each of which is used for one request.
fn run_repair(request: &Request, repair_mode: RepairMode, answers: &[Answer<'_>]) -> Outcome {
    run_repair_as(CallDelivery::InPieces, request, repair_mode, answers)
}

/// The same for a client to which calls are delivered that way.
fn run_repair_as(
    delivery: CallDelivery,
    request: &Request,
    repair_mode: RepairMode,
    answers: &[Answer<'_>],
) -> Outcome {
    let report_event = |_: GatewayEvent<'_>| {};
    let mut outcome = Outcome::default();
    let out = |event: Event<'_>| outcome.draft.push_event(event);
    let mut repairer = CallRepairer::new(
        request,
        repair_mode,
        delivery,
        RepairLog::new(&report_event),
        out,
    );
    let (mut asked, mut requests, mut error) = (request.clone(), Vec::new(), None);
    for answer in answers {
        answer(&mut repairer);
        match repairer.finish_attempt(&asked, Ok(())) {
            NextStep::Done => break,
            NextStep::ModelFailed(failure) | NextStep::CallFailed(failure) => {
                error = Some(failure);
                break;
            }
            NextStep::Ask(next) => {
                asked = *next;
                requests.push(asked.clone());
            }
        }
    }
    let report = repairer.render_report();
    Outcome {
        error,
        report,
        asked: requests,
        ..outcome
    }
}

/// Makes an answer from text in these pieces, parsed as a model's text is.
fn read<'t>(pieces: &[&'t str], why: Truncation) -> impl Fn(&mut dyn EventSink) + use<'t> {
    let pieces = pieces.to_vec();
    move |sink| {
        let mut reader = PromptedSink::new(
            DialectSet::built_in().all(),
            &tools(),
            |event: Event<'_>| sink.push_event(event),
        );
        pieces
            .iter()
            .filter(|text| !text.is_empty())
            .for_each(|text| reader.push_event(Event::Text { text }));
        if why == Truncation::Limit {
            reader.push_event(Event::Stop {
                reason: StopReason::Length,
                raw: "",
            });
        }
        let _ = reader.finish(why);
    }
}

/// A native call, in one piece.
fn call(sink: &mut dyn EventSink, index: u32, id: &str, name: &str, arguments: &Value) {
    sink.push_event(Event::CallStart {
        index,
        id: Some(id),
        name,
        dialect: None,
        at: 0,
        name_at: 0,
    });
    for (name, value) in arguments.as_object().unwrap() {
        let (form, text) = match value {
            Value::String(text) => (ArgumentEncoding::String, text.clone()),
            other => (ArgumentEncoding::Json, other.to_string()),
        };
        sink.push_event(Event::ArgStart {
            index,
            name,
            form,
            at: 0,
        });
        sink.push_event(Event::ArgDelta { index, text: &text });
        sink.push_event(Event::ArgEnd {
            index,
            lead: "",
            at: 0,
        });
    }
    sink.push_event(Event::CallEnd { index, at: 0 });
}

fn repair(text: &str) -> Outcome {
    repair_in(&[text])
}

fn repair_in(pieces: &[&str]) -> Outcome {
    run_repair(
        &native(),
        RepairMode::Repair,
        &[&read(pieces, Truncation::Ended)],
    )
}

fn render_calls(dialect: &str, calls: &[(&str, Value)]) -> String {
    let dialect = sabir_call::dialect::DialectSet::built_in()
        .find(dialect)
        .unwrap();
    let call = |(name, arguments): &(&str, Value)| {
        let (id, name, arguments) = (
            CallId::new("c"),
            (*name).to_owned(),
            arguments.as_object().unwrap().clone(),
        );
        Call {
            id,
            name,
            arguments,
            dialect: None,
        }
    };
    let calls: Vec<Call> = calls.iter().map(call).collect();
    dialect.render_calls(&calls, &tools())
}

fn example(content: &str) -> Value {
    json!({"path": "a.rs", "content": content, "count": 3, "all": true, "list": ["x", "y z"], "map": {"k": 1.5},
           "note": "10"})
}
