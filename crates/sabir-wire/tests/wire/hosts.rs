//! Variants of OpenAI Chat and Anthropic Messages at single hosts, each tested with hand-written
//! bodies.
//!
//! The general rules are tested in `rules`; this module has what single hosts omit, add or spell
//! differently.

use sabir_call::{DraftPart, DraftState, ModelErrorKind, StopReason, Truncation};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::merged::{decode_all, runnable};
use crate::rules::{anthropic, chat, delta, finish};

/// Builds a chunk whose choice has this delta.
fn said(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

/// Returns text, thoughts and the calls that would run after these chunks, none of which may cause
/// a fault.
fn check(chunks: &[Value], text: &str, thought: &str, calls: Value) {
    let (merged, report) = decode_all(Wire::OpenAiChat, &chat(chunks));
    assert_eq!(
        (
            merged.draft.text().as_str(),
            &json!(runnable(&merged.draft))
        ),
        (text, &calls),
        "{:#?}",
        merged.events
    );
    let thoughts = merged.draft.parts.iter().filter_map(|part| match part {
        DraftPart::Thought(thought) => Some(thought.as_str()),
        _ => None,
    });
    assert_eq!(thoughts.collect::<String>(), thought);
    assert!(
        report.ended && report.error.is_none() && merged.draft.faults.is_empty(),
        "{report:?}"
    );
}

#[test]
fn azure_begins_without_choices() {
    // As recordings 150 and 244: a first chunk about the filter, in which everything else is empty.
    let filter = json!({"choices": [], "created": 0, "id": "", "model": "", "object": "",
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": false}}}]});
    let words = json!({"choices": [{"content_filter_results": {}, "delta": {"content": "hi", "refusal": null}, "index": 0, "logprobs": null}]});
    check(
        &[filter, words, finish("stop"), json!("[DONE]")],
        "hi",
        "",
        json!([]),
    );
}

#[test]
fn members_may_be_missing_or_of_any_kind() {
    // As recordings 347 and 348: no role, no object, no finish reason, an empty service tier.
    let bare = json!({"choices": [{"delta": {"content": "hi"}}]});
    check(&[bare.clone(), json!("[DONE]")], "hi", "", json!([]));
    // Groq says `on_demand` (recording 204); other hosts say other things.
    for tier in [
        json!(""),
        json!("on_demand"),
        json!("brand_new"),
        json!(7),
        json!({"tier": "x"}),
        Value::Null,
    ] {
        let chunk = json!({"service_tier": tier, "object": tier, "id": tier, "created": tier, "model": tier, "system_fingerprint": tier,
            "choices": [{"index": 0, "delta": {"role": tier, "content": "hi", "refusal": null, "tool_calls": null}, "logprobs": tier}]});
        check(&[chunk, finish("stop")], "hi", "", json!([]));
    }
    // A finish reason that is not one yet.
    for word in ["", "null"] {
        let mut chunk = bare.clone();
        chunk["choices"][0]["finish_reason"] = json!(word);
        check(
            &[chunk, bare.clone(), finish("stop")],
            "hihi",
            "",
            json!([]),
        );
    }
    // An empty choice, and choices that are not a list.
    check(
        &[
            json!({"choices": [{}]}),
            json!({"choices": null, "id": "x"}),
            bare,
            finish("stop"),
        ],
        "hi",
        "",
        json!([]),
    );
}

#[test]
fn mistral_writes_content_as_parts() {
    // As recording 295: thoughts as nested parts, then text as a string or as parts.
    let thinking = |text: &str| {
        said(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}),
        )
    };
    let chunks = [
        said(json!({"role": "assistant", "content": ""})),
        thinking("Okay"),
        thinking(", so"),
        said(
            json!({"content": [{"type": "text", "text": "he"}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "l"}]}),
        ),
        said(json!({"content": "lo"})),
        // Arguments as an object, and no index.
        delta(
            json!([{"id": "D681PevKs", "function": {"name": "f", "arguments": {"a": [1, {"b": null}]}}}]),
        ),
        finish("tool_calls"),
    ];
    check(
        &chunks,
        "hello",
        "Okay, so",
        json!([["f", {"a": [1, {"b": null}]}]]),
    );
}

#[test]
fn reasoning_details_are_thoughts_without_other_reasoning() {
    // As recordings 14 and 347: pieces of a text, and its signature at the end; `reasoning` repeats
    // the text.
    let detail = |key: &str, value: &str| json!([{"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, key: value}]);
    let chunks = [
        said(json!({"content": "", "reasoning_details": detail("text", "15")})),
        said(json!({"reasoning": " * 27", "reasoning_details": detail("text", " * 27")})),
        said(json!({"reasoning_details": detail("signature", "s")})),
        said(json!({"content": "405"})),
        finish("stop"),
    ];
    check(&chunks, "405", "15 * 27", json!([]));
    let (merged, _) = decode_all(Wire::OpenAiChat, &chat(&chunks));
    let [
        DraftPart::Thought(_),
        DraftPart::Opaque(opaque),
        DraftPart::Text(_),
    ] = &merged.draft.parts[..]
    else {
        panic!("{:?}", merged.draft.parts)
    };
    assert_eq!(
        opaque.data,
        json!({"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, "signature": "s"})
    );
    let summary = json!([{"type": "reasoning.summary", "summary": "hm", "index": 0}]);
    check(
        &[said(json!({"reasoning_details": summary})), finish("stop")],
        "",
        "hm",
        json!([]),
    );
}

#[test]
fn the_old_form_of_a_call_comes_in_pieces() {
    // The deprecated `function_call`, which some gateways still send: the name first, then deltas
    // without it.
    let piece = |function: Value| said(json!({"function_call": function}));
    let chunks = [
        piece(json!({"name": "f", "arguments": ""})),
        piece(json!({"arguments": "{\"a\""})),
        piece(json!({"arguments": ":1}"})),
        finish("function_call"),
    ];
    check(&chunks, "", "", json!([["f", {"a": 1}]]));
}

#[test]
fn later_deltas_bring_empty_ids_and_names() {
    // Alibaba and others repeat the members of a call as empty strings.
    let more = |arguments: &str| {
        delta(
            json!([{"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": arguments}}]),
        )
    };
    let first = delta(
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]),
    );
    check(
        &[
            first,
            more("{\"a\""),
            more(":1}"),
            more(""),
            finish("tool_calls"),
        ],
        "",
        "",
        json!([["f", {"a": 1}]]),
    );
}

#[test]
fn groq_writes_null_for_no_arguments() {
    let call = delta(
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "null"}}]),
    );
    check(
        &[call, finish("tool_calls"), json!("[DONE]")],
        "",
        "",
        json!([["f", {}]]),
    );
}

#[test]
fn tools_that_xai_runs_are_no_calls() {
    // The names of the types in its other APIs: only the client's own call is for the client.
    for kind in [
        "web_search_call",
        "x_search_call",
        "code_interpreter_call",
        "mcp_call",
        "TOOL_CALL_TYPE_WEB_SEARCH_TOOL",
        "TOOL_CALL_TYPE_COLLECTIONS_SEARCH_TOOL",
    ] {
        let server = json!({"index": 0, "id": "call_1", "type": kind, "function": {"name": "web_search", "arguments": "{}"}});
        for own in ["function", "", "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL"] {
            let own = json!({"index": 1, "id": "call_2", "type": own, "function": {"name": "f", "arguments": "{\"a\":1}"}});
            check(
                &[
                    said(json!({"content": "hi", "tool_calls": [server, own]})),
                    // A later piece of the server's call has no type.
                    said(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})),
                    finish("stop"),
                    json!("[DONE]"),
                ],
                "hi",
                "",
                json!([["f", {"a": 1}]]),
            );
        }
    }
}

#[test]
fn perplexity_repeats_everything_as_a_message() {
    let chunk = |new: &str, all: &str| json!({"choices": [{"index": 0, "delta": {"content": new}, "message": {"role": "assistant", "content": all}}]});
    check(
        &[chunk("hel", "hel"), chunk("lo", "hello"), finish("stop")],
        "hello",
        "",
        json!([]),
    );
}

#[test]
fn calls_run_with_any_finish_reason() {
    // vLLM and others say `stop` after calls; the last chunk may bring the call and the reason
    // together.
    let mut call = delta(
        json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]),
    );
    check(
        &[call.clone(), finish("stop")],
        "",
        "",
        json!([["f", {"a": 1}]]),
    );
    check(
        &[call.clone(), json!("[DONE]")],
        "",
        "",
        json!([["f", {"a": 1}]]),
    );
    call["choices"][0]["finish_reason"] = json!("tool_calls");
    check(&[call], "", "", json!([["f", {"a": 1}]]));
}

#[test]
fn tokens_are_counted_in_many_places() {
    let usage = |chunks: &[Value]| decode_all(Wire::OpenAiChat, &chat(chunks)).0.draft.usage;
    let tokens = json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14});
    // In a chunk of its own, after the reason; Groq, as recording 204, in a member of its own; Kimi
    // in the choice.
    let places = [
        json!({"choices": [], "usage": tokens}),
        json!({"choices": [], "x_groq": {"id": "r", "usage": tokens}}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": tokens}]}),
    ];
    for place in places {
        let found = usage(&[
            json!({"choices": [{"delta": {"content": "hi"}}], "usage": null}),
            finish("stop"),
            place,
        ]);
        assert_eq!(
            (found.input, found.output, found.cache_read),
            (Some(9), Some(5), None)
        );
    }
    // DeepSeek, as recording 281.
    let cached = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}});
    assert_eq!(usage(&[finish("stop"), cached]).cache_read, Some(4));
}

#[test]
fn errors_in_the_middle_have_many_shapes() {
    let open = delta(
        json!([{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}]),
    );
    let check = |body: String, kind: ModelErrorKind, words: &str| {
        let (merged, report) = decode_all(Wire::OpenAiChat, &body);
        let error = report.error.unwrap_or_else(|| panic!("no error: {body}"));
        assert_eq!(
            (error.kind, error.message.as_str()),
            (kind, words),
            "{body}"
        );
        assert!(
            merged
                .draft
                .calls()
                .all(|call| call.state == DraftState::Cut(Truncation::Broken)),
            "{body}"
        );
    };
    use ModelErrorKind as K;
    // As recording 354, of Groq.
    let refused = json!({"error": {"message": "Tool call validation failed", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "", "status_code": 400}});
    check(
        chat(&[open.clone(), refused]),
        K::Rejected,
        "Tool call validation failed",
    );
    // As recording 360, of OpenRouter: a chunk like any other, with an error in it.
    let chunk = json!({"id": "gen", "error": {"code": 400, "message": "Token limit reached"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": null}]});
    check(
        chat(&[open.clone(), chunk]),
        K::Rejected,
        "Token limit reached",
    );
    check(
        chat(&[open.clone(), json!({"error": "overloaded"})]),
        K::Unavailable,
        "overloaded",
    );
    check(
        chat(&[
            open.clone(),
            json!({"object": "error", "message": "no", "code": 500}),
        ]),
        K::Unavailable,
        "no",
    );
    let named = format!(
        "{}event: error\ndata: {{\"message\":\"slow down\",\"code\":\"rate_limit_exceeded\"}}\n\n",
        chat(&[open])
    );
    check(named, K::RateLimited, "slow down");
    // Google's endpoint, in a list.
    check(
        json!([{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}])
            .to_string(),
        K::RateLimited,
        "slow",
    );
}

#[test]
fn keep_alive_comments_are_skipped() {
    // As recording 307: comments before and between.
    let body = format!(
        ": OPENROUTER PROCESSING\n\n{}: keep-alive\n\n{}",
        chat(&[said(json!({"content": "hi"}))]),
        chat(&[finish("stop")])
    );
    let (merged, report) = decode_all(Wire::OpenAiChat, &body);
    assert_eq!(
        (merged.draft.text().as_str(), report.events, report.ended),
        ("hi", 2, true)
    );
}

/// Encodes Anthropic events without event names.
fn nameless(events: &[Value]) -> String {
    chat(events)
}

#[test]
fn anthropic_messages_may_hold_empty_or_nameless_things() {
    let block = |index: u64, start: Value| json!({"type": "content_block_start", "index": index, "content_block": start});
    let piece = |index: u64, text: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let text = |index: u64| block(index, json!({"type": "text", "text": ""}));
    let begin = json!({"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}});
    let events = [
        // Several starts, as gateways send; a text block may be empty, or have its text in the
        // start.
        begin.clone(),
        begin,
        json!({"type": "ping"}),
        text(0),
        piece(0, ""),
        stop(0),
        block(1, json!({"type": "text", "text": "he"})),
        piece(1, "llo"),
        stop(1),
        block(
            2,
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}),
        ),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    for body in [
        anthropic(&events),
        nameless(&events),
        anthropic(&events) + "data: [DONE]\n\n",
    ] {
        let (merged, report) = decode_all(Wire::Anthropic, &body);
        assert_eq!(
            (merged.draft.text().as_str(), merged.draft.parts.len()),
            ("hello", 2)
        );
        assert_eq!(json!(runnable(&merged.draft)), json!([["f", {"a": 1}]]));
        assert_eq!(
            (merged.draft.usage.input, merged.draft.usage.output),
            (Some(3), Some(9))
        );
        assert!(
            report.ended && report.error.is_none() && merged.draft.faults.is_empty(),
            "{report:?}"
        );
    }
}

#[test]
fn anthropic_streams_end_in_many_ways() {
    let call = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}});
    let input = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}});
    let stop = json!({"type": "content_block_stop", "index": 0});
    let over = json!({"type": "message_stop"});
    let reason = |word: &str| json!({"type": "message_delta", "delta": {"stop_reason": word}});
    let ending = |events: &[Value]| {
        let (merged, report) = decode_all(Wire::Anthropic, &anthropic(events));
        let state = merged.draft.calls().next().unwrap().state;
        (state, merged.draft.stop.map(|stop| stop.0), report.ended)
    };
    let whole = [call.clone(), input("{\"a\":1}"), stop.clone()];
    let with = |more: &[Value]| [&whole[..], more].concat();
    assert_eq!(
        ending(&with(&[reason("tool_use"), over.clone()])),
        (DraftState::Closed, Some(StopReason::Calls), true)
    );
    assert_eq!(
        ending(&with(&[over.clone()])),
        (DraftState::Closed, None, true)
    );
    assert_eq!(ending(&whole), (DraftState::Closed, None, false));
    assert_eq!(
        ending(&with(&[reason("brand_new"), over.clone()])),
        (DraftState::Closed, Some(StopReason::Other), true)
    );
    // The block ends but its JSON does not: the limit cut it.
    let short = [
        call.clone(),
        input("{\"a\":"),
        stop,
        reason("max_tokens"),
        over,
    ];
    assert_eq!(
        ending(&short),
        (
            DraftState::Cut(Truncation::Limit),
            Some(StopReason::Length),
            true
        )
    );
    assert_eq!(
        ending(&[call, input("{\"a\":1}")]),
        (DraftState::Cut(Truncation::Broken), None, false)
    );
}

#[test]
fn a_whole_call_that_is_contradicted_does_not_run() {
    let call = |arguments: &str| {
        said(
            json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}]}),
        )
    };
    let check = |second: &str, runs: usize| {
        let chunks = [
            call(r#"{"a":1}"#),
            call(second),
            finish("tool_calls"),
            json!("[DONE]"),
        ];
        let (merged, _) = decode_all(Wire::OpenAiChat, &chat(&chunks));
        assert_eq!(
            runnable(&merged.draft).len(),
            runs,
            "{second}: {:#?}",
            merged.events
        );
        assert_eq!(merged.draft.faults.is_empty(), runs == 1, "{second}");
    };
    // A repetition, or nothing new; and two values that contradict each other.
    check(r#"{"a":1}"#, 1);
    check("\n", 1);
    check("", 1);
    check(r#"{"a":2}"#, 0);
    check(r#","b":2}"#, 0);
}
