//! Rules of the OpenAI Responses wire, each tested with hand-written bodies.

use sabir_call::{DraftPart, DraftState, ModelErrorKind, StopReason, Truncation};
use sabir_wire::{BodyEnd, DecodeReport, ResponseEncoder, ResponseMetadata, Wire};
use serde_json::{Value, json};

use crate::merged::{Merged, decode, decode_all, runnable};
use crate::rules::anthropic as stream;

const WIRE: Wire = Wire::OpenAiResponses;

/// Builds an event about an item.
fn item(kind: &str, index: u64, item: Value) -> Value {
    json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item})
}

/// Builds an event with a piece of an item.
fn piece(kind: &str, index: u64, id: &str, key: &str, text: &str) -> Value {
    json!({"type": format!("response.{kind}"), "output_index": index, "item_id": id, "content_index": 0, key: text})
}

fn arguments(kind: &str, index: u64, id: &str, text: &str) -> Value {
    let key = if kind == "done" { "arguments" } else { "delta" };
    piece(
        &format!("function_call_arguments.{kind}"),
        index,
        id,
        key,
        text,
    )
}

fn call(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "arguments": arguments, "name": name})
}

/// Builds the event that repeats a piece as complete.
fn whole(id: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    let mut item = call(id, call_id, name, arguments);
    item["status"] = json!("completed");
    item
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"object": "response", "status": "completed", "output": []}})
}

fn read(events: &[Value]) -> (Merged, DecodeReport) {
    decode_all(WIRE, &stream(events))
}

/// Returns the calls that would run after these events and a proper end.
fn check(events: &[Value], expected: Value) {
    let mut events = events.to_vec();
    events.push(completed());
    let (merged, report) = read(&events);
    assert_eq!(
        json!(runnable(&merged.draft)),
        expected,
        "{:#?}",
        merged.events
    );
    assert!(report.ended);
}

/// A stream with every feature that a split could damage.
pub(crate) fn everything() -> String {
    let message = |status: &str, text: &str| {
        json!({"type": "message", "id": "m1", "status": status, "phase": "commentary", "role": "assistant",
            "content": if text.is_empty() { json!([]) } else { json!([{"type": "output_text", "text": text}]) }})
    };
    let reasoning = |encrypted: &str, summary: Value| json!({"type": "reasoning", "id": "r1", "summary": summary, "encrypted_content": encrypted});
    let summary = |index: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "r1", "summary_index": index, "delta": text});
    let parts =
        json!([{"type": "summary_text", "text": "hmm ü"}, {"type": "summary_text", "text": "so"}]);
    let usage = json!({"input_tokens": 5, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 3}});
    stream(&[
        json!({"type": "response.created", "response": {"id": "x", "object": "response", "status": "in_progress"}}),
        item("added", 0, reasoning("early", json!([]))),
        summary(0, "hmm "),
        summary(0, "ü"),
        summary(1, "so"),
        item("done", 0, reasoning("late", parts)),
        item("added", 1, message("in_progress", "")),
        piece("output_text.delta", 1, "m1", "delta", "Wörter "),
        piece("output_text.delta", 1, "m1", "delta", "😀"),
        piece("output_text.done", 1, "m1", "text", "Wörter 😀"),
        item("done", 1, message("completed", "Wörter 😀")),
        item("added", 2, call("f1", "c1", "write", "")),
        item("added", 3, call("f2", "c2", "list", "")),
        arguments("delta", 2, "f1", "{\"path\":\"ä"),
        arguments("delta", 2, "f1", ".rs\",\"n\":[1,{\"x\":\"}\"}]}"),
        arguments(
            "done",
            2,
            "f1",
            "{\"path\":\"ä.rs\",\"n\":[1,{\"x\":\"}\"}]}",
        ),
        item(
            "done",
            2,
            whole(
                "f1",
                "c1",
                "write",
                "{\"path\":\"ä.rs\",\"n\":[1,{\"x\":\"}\"}]}",
            ),
        ),
        item("done", 3, whole("f2", "c2", "list", "{}")),
        item(
            "added",
            4,
            json!({"type": "custom_tool_call", "id": "t1", "call_id": "c3", "name": "patch", "input": ""}),
        ),
        piece(
            "custom_tool_call_input.delta",
            4,
            "t1",
            "delta",
            "*** \"ü\"\n",
        ),
        item(
            "done",
            4,
            json!({"type": "custom_tool_call", "id": "t1", "call_id": "c3", "input": "*** \"ü\"\nEnd", "name": "patch", "status": "completed"}),
        ),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}}),
    ])
}

/// Generates an event with few labels and ids, for random streams.
pub(crate) fn wild(kind: usize, piece: &str, label: &Value, item: Value) -> Value {
    let names = [
        "function_call_arguments.delta",
        "custom_tool_call_input.delta",
        "output_text.delta",
        "reasoning_text.delta",
    ];
    let event = match kind {
        0 | 1 => "output_item.added",
        2 | 3 => "output_item.done",
        4 => "function_call_arguments.done",
        5 => "output_text.done",
        7 if piece.is_empty() => return json!({"type": "error", "error": {"message": "no"}}),
        7 if piece == "{}" => "completed",
        7 if piece == "}" => "incomplete",
        _ => names[piece.len() % 4],
    };
    let response = json!({"status": "", "output": [item], "incomplete_details": if piece == "}" { json!({"reason": "max_output_tokens"}) } else { Value::Null }});
    json!({"type": format!("response.{event}"), "output_index": label, "item_id": item["id"], "delta": piece,
        "text": piece, "arguments": piece, "item": item, "response": response})
}

#[test]
fn items_are_matched_by_index_where_ids_change() {
    // Copilot gives each event of an item another id; `call_id` is stable.
    let expected = json!([["f", {"a": 1}], ["g", {"b": 2}]]);
    let events = [
        item("added", 0, call("x1", "c1", "f", "")),
        item("added", 1, call("x2", "c2", "g", "")),
        arguments("delta", 1, "x3", "{\"b\":"),
        arguments("delta", 0, "x4", "{\"a\":1"),
        arguments("delta", 1, "x5", "2}"),
        arguments("delta", 0, "x6", "}"),
        arguments("done", 0, "x7", "{\"a\":1}"),
        item("done", 0, whole("x8", "c1", "f", "{\"a\":1}")),
        item("done", 1, whole("x9", "c2", "g", "{\"b\":2}")),
    ];
    check(&events, expected.clone());
    // The same without any index: ids alone.
    let steady = ["f1", "f2", "f2", "f1", "f2", "f1", "f1", "f1", "f2"];
    let mut plain = events.clone();
    for (event, id) in plain.iter_mut().zip(steady) {
        event.as_object_mut().unwrap().remove("output_index");
        let inside = event.get_mut("item").and_then(|item| item.get_mut("id"));
        match inside {
            Some(place) => *place = json!(id),
            None => event["item_id"] = json!(id),
        }
    }
    check(&plain, expected.clone());
    // One index for all items, with stable ids.
    for event in &mut plain {
        event["output_index"] = json!(0);
    }
    check(&plain, expected);
}

#[test]
fn an_id_of_a_call_is_its_call_id() {
    let (merged, _) = read(&[
        item("done", 0, whole("fc_1", "call_1", "f", "{}")),
        completed(),
    ]);
    assert_eq!(
        merged.draft.calls().next().unwrap().id.as_deref(),
        Some("call_1")
    );
}

#[test]
fn arguments_come_at_any_time_and_count_once() {
    let added = item("added", 0, call("f", "c", "f", ""));
    let done = |arguments: &str| item("done", 0, whole("f", "c", "f", arguments));
    let one = json!([["f", {"a": 1}]]);
    let text = "{\"a\":1}";
    // Only at the end; only in `arguments.done`; whole at the beginning; in a done item that was
    // never begun.
    check(&[added.clone(), done(text)], one.clone());
    check(
        &[added.clone(), arguments("done", 0, "f", text), done("")],
        one.clone(),
    );
    check(
        &[item("added", 0, call("f", "c", "f", text)), done(text)],
        one.clone(),
    );
    check(&[done(text)], one.clone());
    // Twice, and three times; as another spelling of the same value; as an object.
    check(
        &[
            added.clone(),
            arguments("delta", 0, "f", text),
            arguments("done", 0, "f", text),
            done(text),
        ],
        one.clone(),
    );
    check(
        &[
            added.clone(),
            arguments("delta", 0, "f", text),
            done("{ \"a\": 1 }"),
        ],
        one.clone(),
    );
    check(
        &[added.clone(), added.clone(), done(text), done(text)],
        one.clone(),
    );
    let mut object = done("");
    object["item"]["arguments"] = json!({"a": 1});
    check(&[added.clone(), object], one.clone());
    // A delta was lost at the end: the done event has the rest.
    check(
        &[
            added.clone(),
            arguments("delta", 0, "f", "{\"a\""),
            done(text),
        ],
        one.clone(),
    );
    // Contradicting pieces never run.
    check(
        &[
            added.clone(),
            arguments("delta", 0, "f", "{\"b\""),
            done(text),
        ],
        json!([]),
    );
    // The item is never done, but the response ended and the arguments were done, or the response
    // holds the item.
    check(
        &[added.clone(), arguments("done", 0, "f", text)],
        one.clone(),
    );
    let response = json!({"status": "completed", "output": [whole("other", "c", "f", text)]});
    check(
        &[
            added.clone(),
            json!({"type": "response.completed", "response": response}),
        ],
        one,
    );
    check(&[added, arguments("delta", 0, "f", text)], json!([]));
    // None at all.
    for none in ["", "{}", "null"] {
        check(&[done(none)], json!([["f", {}]]));
    }
}

#[test]
fn custom_tools_are_called_with_text() {
    // As recording 1284: the text of a patch, in pieces.
    let input = "*** Begin \"Patch\"\n";
    let custom = |input: &str| json!({"type": "custom_tool_call", "id": "t", "call_id": "c", "name": "apply_patch", "input": input});
    let delta = |text: &str| piece("custom_tool_call_input.delta", 0, "t", "delta", text);
    let done = piece("custom_tool_call_input.done", 0, "t", "input", input);
    let expected = json!([["apply_patch", {"input": input}]]);
    check(
        &[
            item("added", 0, custom("")),
            delta("*** Begin "),
            delta("\"Patch\"\n"),
            done.clone(),
            item("done", 0, custom(input)),
        ],
        expected.clone(),
    );
    check(&[item("added", 0, custom("")), done], expected.clone());
    check(&[item("done", 0, custom(input))], expected);
    check(
        &[item("done", 0, custom(""))],
        json!([["apply_patch", {"input": ""}]]),
    );
    check(
        &[item("added", 0, custom("")), delta("*** Begin ")],
        json!([]),
    );
}

#[test]
fn searches_that_xai_runs_are_no_calls() {
    let search = |call_id: &str, status: &str, input: &str| {
        json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": call_id, "status": status,
               "name": "x_keyword_search", "input": input})
    };
    let events = |call_id: &str| {
        vec![
            item("added", 0, search(call_id, "in_progress", "")),
            piece("custom_tool_call_input.delta", 0, "ctc_1", "delta", "{}"),
            item("done", 0, search(call_id, "completed", "{}")),
            completed(),
        ]
    };
    let (merged, _) = read(&events("xs_call_1"));
    let [DraftPart::Opaque(opaque)] = &merged.draft.parts[..] else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(opaque.data, search("xs_call_1", "completed", "{}"));
    // A client's own tool may have the same name.
    let (merged, _) = read(&events("call_1"));
    assert_eq!(merged.draft.calls().count(), 1);
    // Steps with names of later days have ids of the same kind.
    let mut later = search("xs_call_2", "completed", "{}");
    later["name"] = "x_trends".into();
    let events = [
        item("added", 0, later.clone()),
        item("done", 0, later),
        completed(),
    ];
    assert_eq!(read(&events).0.draft.calls().count(), 0);
}

#[test]
fn an_answer_of_xai_with_its_own_tools_and_one_of_the_client_has_one_call() {
    // The order of the events is that of a recorded answer: items begin together and are done
    // together.
    let web = |status: &str| {
        json!({"type": "web_search_call", "id": "ws_1_call_1", "status": status,
               "action": {"type": "search", "query": "", "sources": []}})
    };
    let search = |status: &str, input: &str| {
        json!({"type": "custom_tool_call", "id": "ctc_1_xs_call_2", "call_id": "xs_call_2",
               "name": "x_semantic_search", "status": status, "input": input})
    };
    let image =
        json!({"type": "view_image_call", "id": "vi_1", "status": "completed", "arguments": "{}"});
    let own = json!({"type": "function_call", "id": "fc_1", "call_id": "call_3", "name": "get_weather",
                     "arguments": "{\"city\":\"Oslo\"}", "status": "completed"});
    let query = r#"{"query":"oslo","limit":10}"#;
    let (merged, _) = read(&[
        item("added", 0, web("in_progress")),
        json!({"type": "response.web_search_call.searching", "item_id": "ws_1_call_1", "output_index": 0}),
        item("added", 1, search("in_progress", "")),
        piece(
            "custom_tool_call_input.delta",
            1,
            "ctc_1_xs_call_2",
            "delta",
            query,
        ),
        item("done", 0, web("completed")),
        item("done", 1, search("completed", query)),
        item("done", 2, image),
        item("added", 3, own.clone()),
        item("done", 3, own),
        completed(),
    ]);
    let names: Vec<_> = merged.draft.calls().map(|call| &call.name).collect();
    assert_eq!(names, ["get_weather"]);
    let is_opaque = |part: &&DraftPart| matches!(part, DraftPart::Opaque(_));
    assert_eq!(merged.draft.parts.iter().filter(is_opaque).count(), 3);
}

#[test]
fn server_tools_are_no_calls_and_go_back() {
    // As recordings 107, 304, 309, 320, 404 and 409; shells and computers alike.
    for kind in [
        "web_search_call",
        "code_interpreter_call",
        "mcp_call",
        "file_search_call",
        "tool_search_call",
        "computer_call",
        "local_shell_call",
        "image_generation_call",
        "compaction",
        "brand_new",
    ] {
        let state = json!({"type": kind, "id": "s", "status": "completed", "name": "x", "arguments": "{}", "call_id": "c"});
        let events = [
            item(
                "added",
                0,
                json!({"type": kind, "id": "s", "status": "in_progress"}),
            ),
            json!({"type": format!("response.{kind}.in_progress"), "output_index": 0, "item_id": "s"}),
            piece("code_interpreter_call_code.delta", 0, "s", "delta", "n = 1"),
            item("done", 0, state.clone()),
            completed(),
        ];
        let (merged, report) = read(&events);
        let [DraftPart::Opaque(opaque)] = &merged.draft.parts[..] else {
            panic!("{:?}", merged.draft.parts)
        };
        assert_eq!((&opaque.data, report.skipped), (&state, 2));
    }
}

#[test]
fn reasoning_goes_back_unchanged_before_its_call() {
    // As recording 1281: the item's content when it is done counts.
    let reasoning = |encrypted: &str| json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted, "status": null});
    let events = [
        item("added", 0, reasoning("early")),
        item("done", 0, reasoning("late")),
        item("done", 1, whole("f", "c", "f", "{}")),
        completed(),
    ];
    let (merged, _) = read(&events);
    let [DraftPart::Opaque(opaque), DraftPart::Call(_)] = &merged.draft.parts[..] else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(opaque.data, reasoning("late"));
    // Content that no model could read again is left out: only its text counts.
    let words = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]});
    let (merged, _) = read(&[item("done", 0, words), completed()]);
    assert_eq!(merged.draft.parts, [DraftPart::Thought("hm".into())]);
}

#[test]
fn text_arrives_in_pieces_or_at_the_end() {
    let message = |text: &str| json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let empty = json!({"type": "message", "id": "m", "role": "assistant", "content": []});
    let text = |events: &[Value]| read(events).0.draft.text();
    let delta = |words: &str| piece("output_text.delta", 0, "m", "delta", words);
    let done = piece("output_text.done", 0, "m", "text", "hello");
    let part = json!({"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "hello"}});
    let added = item("added", 0, empty);
    for events in [
        vec![
            added.clone(),
            delta("hel"),
            delta("lo"),
            done.clone(),
            part.clone(),
            item("done", 0, message("hello")),
        ],
        vec![
            added.clone(),
            done.clone(),
            part.clone(),
            item("done", 0, message("hello")),
        ],
        vec![added, part, item("done", 0, message("hello"))],
        vec![item("done", 0, message("hello"))],
        vec![
            item("done", 0, message("hello")),
            item("done", 0, message("hello")),
        ],
        // Text for an item that was never begun.
        vec![delta("hello"), done],
        // Only in the final response.
        vec![json!({"type": "response.completed", "response": {"output": [message("hello")]}})],
    ] {
        assert_eq!(text(&events), "hello", "{events:#?}");
    }
}

#[test]
fn thoughts_are_summaries_or_text() {
    // As recordings 0 (summaries, in parts) and 277 (text).
    let summary = |index: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "r", "summary_index": index, "delta": text});
    let parts =
        json!([{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]);
    let reasoning = json!({"type": "reasoning", "id": "r", "summary": parts});
    let two = [DraftPart::Thought("a\n\nb".into())];
    assert_eq!(
        read(&[
            summary(0, "a"),
            summary(1, "b"),
            item("done", 0, reasoning.clone())
        ])
        .0
        .draft
        .parts,
        two
    );
    assert_eq!(read(&[item("done", 0, reasoning)]).0.draft.parts, two);
    let state = json!({"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "ab"}]});
    let events = [
        piece("reasoning_text.delta", 0, "r", "delta", "a"),
        piece("reasoning_text.delta", 0, "r", "delta", "b"),
        piece("reasoning_text.done", 0, "r", "text", "ab"),
        item("done", 0, state.clone()),
    ];
    let (merged, _) = read(&events);
    let [DraftPart::Thought(words), DraftPart::Opaque(opaque)] = &merged.draft.parts[..] else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!((words.as_str(), &opaque.data), ("ab", &state));
}

#[test]
fn the_phase_is_kept_before_its_text() {
    // As recording 312.
    let message = json!({"type": "message", "id": "m", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I will look."}]});
    let (merged, _) = read(&[item("done", 0, message)]);
    let [DraftPart::Opaque(opaque), DraftPart::Text(_)] = &merged.draft.parts[..] else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(
        opaque.data,
        json!({"type": "message", "phase": "commentary"})
    );
    // It is encoded again as the client received it.
    let mut encoder = ResponseEncoder::new(WIRE, ResponseMetadata::default());
    let mut bytes = Vec::new();
    sabir_wire::replay_draft(&merged.draft, 3, &mut |event: sabir_call::Event<'_>| {
        encoder.encode_event(event, &mut bytes)
    });
    encoder.finish(&mut bytes);
    assert_eq!(
        decode(WIRE, [&bytes[..]], BodyEnd::Clean).0.draft.parts,
        merged.draft.parts
    );
}

#[test]
fn responses_end_in_many_ways() {
    let done = item("done", 0, whole("f", "c", "f", "{}"));
    let open = [
        item("added", 0, call("f", "c", "f", "")),
        arguments("delta", 0, "f", "{\"a\":"),
    ];
    let over = |kind: &str, response: Value| json!({"type": format!("response.{kind}"), "response": response});
    let incomplete = |reason: &str| {
        over(
            "incomplete",
            json!({"status": "incomplete", "incomplete_details": {"reason": reason}}),
        )
    };
    let ending = |events: &[Value]| {
        let (merged, report) = read(events);
        let state = merged.draft.calls().next().map(|call| call.state);
        (merged.draft.stop.map(|stop| stop.0), state, report.ended)
    };
    let text = piece("output_text.delta", 0, "m", "delta", "hi");
    assert_eq!(
        ending(&[text.clone(), completed()]),
        (Some(StopReason::End), None, true)
    );
    assert_eq!(
        ending(&[done.clone(), completed()]),
        (Some(StopReason::Calls), Some(DraftState::Closed), true)
    );
    assert_eq!(
        ending(&[text.clone(), incomplete("content_filter")]),
        (Some(StopReason::Refused), None, true)
    );
    assert_eq!(
        ending(&[text.clone(), incomplete("brand_new")]),
        (Some(StopReason::Other), None, true)
    );
    let refusal = piece("refusal.delta", 0, "m", "delta", "I cannot.");
    assert_eq!(
        ending(&[refusal, completed()]),
        (Some(StopReason::Refused), None, true)
    );
    // The limit inside a call, reported directly and with the item.
    let cut = Some(DraftState::Cut(Truncation::Limit));
    let limit = incomplete("max_output_tokens");
    assert_eq!(
        ending(&[open[0].clone(), open[1].clone(), limit.clone()]),
        (Some(StopReason::Length), cut, true)
    );
    let mut short = item("done", 0, call("f", "c", "f", "{\"a\":1}"));
    short["item"]["status"] = json!("incomplete");
    assert_eq!(
        ending(&[open[0].clone(), short, limit]),
        (Some(StopReason::Length), cut, true)
    );
    // No final response: done items stay done.
    assert_eq!(ending(&[done]), (None, Some(DraftState::Closed), false));
    assert_eq!(
        ending(&open),
        (None, Some(DraftState::Cut(Truncation::Broken)), false)
    );
    let body = stream(&[text]) + "data: [DONE]\n\n";
    assert!(decode_all(WIRE, &body).1.ended);
}

#[test]
fn errors_of_every_shape_are_errors() {
    let open = item("added", 0, call("f", "c", "f", "{}"));
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "sorry"}}});
    let flat = json!({"type": "error", "code": "server_error", "message": "sorry", "param": null, "sequence_number": 3});
    let nested = json!({"type": "error", "error": {"type": "server_error", "message": "sorry"}});
    for error in [failed, flat, nested] {
        let (merged, report) = read(&[open.clone(), error]);
        let found = report.error.unwrap();
        assert_eq!(
            (found.kind, found.message.as_str()),
            (ModelErrorKind::Unavailable, "sorry")
        );
        assert_eq!(
            merged.draft.calls().next().unwrap().state,
            DraftState::Cut(Truncation::Broken)
        );
    }
    let wordless =
        json!({"type": "response.failed", "response": {"status": "failed", "error": null}});
    assert!(read(&[open, wordless]).1.error.is_some());
}

#[test]
fn usage_has_its_details() {
    let usage = json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 14});
    let found = read(&[json!({"type": "response.completed", "response": {"usage": usage}})])
        .0
        .draft
        .usage;
    assert_eq!(
        (
            found.input,
            found.output,
            found.cache_read,
            found.cache_write,
            found.reasoning
        ),
        (Some(9), Some(5), Some(2), Some(1), Some(3))
    );
    // As recording 1279, which omits details.
    let found =
        read(&[json!({"type": "response.completed", "response": {"usage": {"input_tokens": 9}}})])
            .0
            .draft
            .usage;
    assert_eq!((found.input, found.cache_read), (Some(9), None));
}

#[test]
fn whole_responses_decode_too() {
    let body = |status: &str, last: Value| {
        json!({"id": "r", "object": "response", "status": status, "error": null, "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "go"}]},
            call("f1", "c1", "f", "{\"a\":1}"), last],
            "incomplete_details": if status == "completed" { Value::Null } else { json!({"reason": "max_output_tokens"}) },
            "usage": {"input_tokens": 3, "output_tokens": 4}})
    };
    let last = call("f2", "c2", "g", "{}");
    let (merged, report) = decode_all(WIRE, &body("completed", last.clone()).to_string());
    assert_eq!(
        json!(runnable(&merged.draft)),
        json!([["f", {"a": 1}], ["g", {}]])
    );
    assert_eq!(
        (
            merged.draft.text().as_str(),
            report.ended,
            merged.draft.parts.len()
        ),
        ("go", true, 5)
    );
    assert_eq!(merged.draft.usage.output, Some(4));
    // At the limit, the last call is trusted only if it says that it is complete.
    let (merged, _) = decode_all(WIRE, &body("incomplete", last).to_string());
    assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
    assert_eq!(
        merged.draft.call_by_index(1).unwrap().state,
        DraftState::Cut(Truncation::Limit)
    );
    let (merged, _) = decode_all(
        WIRE,
        &body("incomplete", whole("f2", "c2", "g", "{}")).to_string(),
    );
    assert_eq!(runnable(&merged.draft).len(), 2);
}

#[test]
fn unknown_events_are_skipped_and_counted() {
    let events = [
        json!({"type": "response.brand_new", "output_index": 0}),
        json!({"type": "keepalive"}),
        item("added", 0, Value::Null),
        piece("output_text.delta", 0, "m", "delta", "hi"),
        json!({"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {}}),
        completed(),
        piece("output_text.delta", 0, "m", "delta", "too late"),
    ];
    let (merged, report) = read(&events);
    assert_eq!(
        (
            merged.draft.text().as_str(),
            report.skipped,
            report.unreadable
        ),
        ("hi", 5, 0)
    );
}

#[test]
fn lost_text_is_taken_from_the_final_event() {
    let said = |deltas: &[&str], whole: &str| {
        let added = item(
            "added",
            0,
            json!({"type": "message", "id": "m", "content": []}),
        );
        let deltas = deltas
            .iter()
            .map(|text| piece("output_text.delta", 0, "m", "delta", text));
        let done = piece("output_text.done", 0, "m", "text", whole);
        let events: Vec<_> = std::iter::once(added).chain(deltas).chain([done]).collect();
        read(&events).0.draft.text()
    };
    assert_eq!(said(&["he", "l"], "hello"), "hello");
    assert_eq!(said(&["hello"], "hello"), "hello");
    assert_eq!(said(&[], "hello"), "hello");
    // Emitted text cannot be taken back.
    assert_eq!(said(&["hi"], "hello"), "hi");
}

/// Official clients find an item by the id that its start had, and fail without one.
#[test]
fn items_keep_their_ids_from_start_to_end() {
    let summary = json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "rs_1", "summary_index": 0, "delta": "hm"});
    let words = json!([{"type": "summary_text", "text": "hm"}]);
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": words, "encrypted_content": "e"});
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let own = [
        item(
            "added",
            0,
            json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        ),
        summary,
        item("done", 0, reasoning.clone()),
        item("done", 1, search),
        item(
            "done",
            2,
            json!({"type": "compaction", "encrypted_content": "c"}),
        ),
        item("done", 3, whole("f", "c", "f", "{}")),
        piece("output_text.delta", 4, "m", "delta", "hello"),
        // The same state once more, as some servers send it behind the message.
        item("done", 5, reasoning),
        completed(),
    ]
    .iter()
    .map(|event| format!("data: {event}\n\n"))
    .collect::<String>();
    let recorded = crate::corpus::recordings().unwrap_or_default();
    let recorded = recorded
        .into_iter()
        .filter(|recording| recording.wire == WIRE.name())
        .map(|recording| recording.body);
    let mut streams = 0;
    for body in recorded.chain([own.into_bytes()]) {
        let mut encoder = ResponseEncoder::new(WIRE, ResponseMetadata::default());
        let mut bytes = Vec::new();
        let mut decoder = sabir_wire::ResponseDecoder::new(WIRE).with_details();
        decoder.push(&body, &mut |event: sabir_call::Event<'_>| {
            encoder.encode_event(event, &mut bytes)
        });
        decoder.finish(
            sabir_wire::BodyEnd::Clean,
            &mut |event: sabir_call::Event<'_>| encoder.encode_event(event, &mut bytes),
        );
        encoder.finish(&mut bytes);
        let mut begun = std::collections::BTreeMap::new();
        let mut output = Vec::new();
        for line in String::from_utf8(bytes).unwrap().lines() {
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            let event: Value = serde_json::from_str(data).unwrap();
            let index = event["output_index"].as_u64();
            match event["type"].as_str().unwrap() {
                "response.output_item.added" => {
                    let id = event["item"]["id"].clone();
                    assert!(id.is_string(), "{event}");
                    assert!(!begun.values().any(|known| *known == id), "{event}");
                    begun.insert(index.unwrap(), id);
                }
                "response.output_item.done" => {
                    assert_eq!(Some(&event["item"]["id"]), begun.get(&index.unwrap()));
                }
                "response.completed" | "response.incomplete" => {
                    output.clone_from(event["response"]["output"].as_array().unwrap());
                }
                _ if index.is_some() => {
                    assert_eq!(
                        Some(&event["item_id"]),
                        begun.get(&index.unwrap()),
                        "{event}"
                    );
                }
                _ => {}
            }
        }
        let ids: Vec<_> = output.iter().map(|item| item["id"].clone()).collect();
        assert_eq!(ids, begun.into_values().collect::<Vec<_>>());
        streams += 1;
    }
    eprintln!("{streams} streams of items");
}
