//! Tests of calls in reasoning from its own wire: special tokens make calls, words stay thoughts.

use sabir_call::dialect::DialectSet;
use sabir_call::{
    DraftResponse, DraftState, Event, EventSink, OpaqueState, PromptedSink, ToolSet, Truncation,
};
use serde_json::json;

use crate::chunks::tools;
use crate::notation::read_chunks;

/// Reads thoughts and text as a wire delivers them, in pieces of that size.
fn read(thoughts: &str, text: &str, size: usize) -> DraftResponse {
    let mut prompted = PromptedSink::new(
        DialectSet::built_in().all(),
        &tools(),
        DraftResponse::default(),
    );
    let pieces = |text: &str| -> Vec<String> {
        let all: Vec<char> = text.chars().collect();
        all.chunks(size)
            .map(|piece| piece.iter().collect())
            .collect()
    };
    for text in pieces(thoughts) {
        prompted.push_event(Event::Thought { text: &text });
    }
    for text in pieces(text) {
        prompted.push_event(Event::Text { text: &text });
    }
    prompted.finish(Truncation::Ended)
}

/// Returns the calls with their state and the source text of their name.
fn calls(draft: &DraftResponse) -> Vec<(&str, DraftState, &str)> {
    let name =
        |call: &sabir_call::DraftCall| draft.source.get(call.name_span.start..call.name_span.end);
    draft
        .calls()
        .map(|call| (call.name.as_str(), call.state, name(call).unwrap_or("?")))
        .collect()
}

const KIMI: &str = "I will look. <|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0\
<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";

#[test]
fn special_tokens_are_calls() {
    for size in [1, 3, 7, 1000] {
        let draft = read(KIMI, "And <get_time></get_time>", size);
        let closed = ("get_time", DraftState::Closed, "get_time");
        assert_eq!(calls(&draft), [closed, closed], "in pieces of {size}");
        assert_eq!(draft.text(), "And ");
    }
}

#[test]
fn a_call_cut_in_reasoning_never_closes() {
    let end = KIMI.find("{}").unwrap() + 2;
    for at in KIMI.find("functions").unwrap()..end {
        let draft = read(&KIMI[..at], "", 5);
        assert!(
            draft.calls().all(|call| call.state != DraftState::Closed),
            "{at}"
        );
    }
}

#[test]
fn ordinary_markup_in_reasoning_is_no_call() {
    for thoughts in [
        "<get_time></get_time>",
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>",
        "[get_time()]",
        "{\"name\": \"get_time\", \"arguments\": {}}",
    ] {
        let draft = read(thoughts, "Done.", 4);
        assert_eq!(calls(&draft), [], "{thoughts}");
        assert_eq!(draft.text(), "Done.");
    }
}

#[test]
fn a_text_that_continues_the_thought_of_its_prompt() {
    let tools = ToolSet::from_json(r#"[{"name": "get_time", "parameters": {"properties": {}}}]"#);
    let tools = tools.unwrap();
    let text = "So <tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>?</think>Now.";
    for prefill in ["<think>", "<|im_start|>assistant\n<think>\n"] {
        for size in 1..=text.len() {
            let selection = DialectSet::built_in().all().with_prefill(prefill);
            let draft = read_chunks(selection, &tools, text.as_bytes().chunks(size));
            assert_eq!(draft.calls().count(), 0, "{prefill}");
            assert_eq!(draft.text(), "Now.", "{prefill}");
        }
    }
    // A prompt that opens no thought changes nothing.
    let selection = DialectSet::built_in().all().with_prefill("Hello.");
    let draft = read_chunks(selection, &tools, [&b"Hi <b>you</b>."[..]]);
    assert_eq!(draft.text(), "Hi <b>you</b>.");
}

#[test]
fn what_is_held_of_a_thought_or_text_comes_before_what_follows_it() {
    let state = OpaqueState {
        wire: "anthropic".to_owned(),
        origin: None,
        data: json!({"type": "thinking", "signature": "s"}),
    };
    for end in ["]", "[", "<", "</", "a", "é<"] {
        let thought = format!("thought {end}");
        let text = format!("text {end}");
        let mut order = Vec::<String>::new();
        let record = |event: Event<'_>| {
            let (kind, text) = match event {
                Event::Thought { text } => ("thought", text),
                Event::Text { text } => ("text", text),
                Event::Opaque(_) => ("opaque", ""),
                Event::CallStart { .. } => ("call", ""),
                _ => return,
            };
            match order.last_mut() {
                Some(last) if last.starts_with(kind) => last.push_str(text),
                _ => order.push(format!("{kind} {text}")),
            }
        };
        let mut prompted = PromptedSink::new(DialectSet::built_in().all(), &tools(), record);
        prompted.push_event(Event::Thought { text: &thought });
        prompted.push_event(Event::Opaque(&state));
        prompted.push_event(Event::Text { text: &text });
        prompted.push_event(Event::CallStart {
            index: 0,
            id: None,
            name: "get_time",
            dialect: None,
            at: 0,
            name_at: 0,
        });
        prompted.push_event(Event::CallEnd { index: 0, at: 0 });
        prompted.push_event(Event::Text { text: &text });
        prompted.push_event(Event::Thought { text: &thought });
        let _ = prompted.finish(Truncation::Ended);
        let expected = [
            format!("thought {thought}"),
            "opaque ".to_owned(),
            format!("text {text}"),
            "call ".to_owned(),
            format!("text {text}"),
            format!("thought {thought}"),
        ];
        assert_eq!(order, expected, "{end}");
    }
}

#[test]
fn details_of_an_answer_may_come_inside_of_a_marker() {
    let detail = OpaqueState {
        wire: "openai-chat".to_owned(),
        origin: None,
        data: json!({"type": "sabir.chunk", "logprobs": []}),
    };
    let markup = "Now <tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";
    let draft = DraftResponse::default();
    let mut prompted = PromptedSink::new(DialectSet::built_in().all(), &tools(), draft);
    for character in markup.chars() {
        let text = character.to_string();
        prompted.push_event(Event::Text { text: &text });
        prompted.push_event(Event::Opaque(&detail));
    }
    let draft = prompted.finish(Truncation::Ended);
    let closed = ("get_time", DraftState::Closed, "get_time");
    assert_eq!(calls(&draft), [closed]);
    assert_eq!(draft.text().trim(), "Now");
}
