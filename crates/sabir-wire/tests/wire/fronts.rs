//! Real client requests, and the responses and errors that the clients require.

use std::time::Duration;

use sabir_call::{
    ArgumentEncoding, CacheControl, DraftResponse, DraftState, Event, EventSink, MessagePart,
    ModelError, ModelErrorKind, ParallelCalls, ReasoningConfig, ReasoningEffort, Request,
    ResponseFormat, StopReason, ToolChoice, Truncation, Usage,
};
use sabir_wire::{
    BodyEnd, DecodedRequest, ProviderError, RequestError, ResponseDecoder, ResponseEncoder,
    ResponseMetadata, ResponsePreferences, UsageReporting, Wire, WireOptions,
};
use serde_json::{Value, json};

fn path(wire: Wire) -> String {
    format!("{}?beta=true", wire.endpoint_path("m", false))
}

fn read(wire: Wire, body: &Value) -> Result<DecodedRequest, RequestError> {
    wire.decode_request(&path(wire), body.to_string().as_bytes())
}

/// Decodes a body and checks which members were left out.
fn take(wire: Wire, body: &Value, left_out: &[&str]) -> DecodedRequest {
    let incoming = read(wire, body).unwrap_or_else(|error| panic!("{wire}: {error}"));
    let paths: Vec<_> = incoming
        .notes
        .iter()
        .map(|note| note.path.as_str())
        .collect();
    assert_eq!(paths, left_out, "{wire}");
    incoming
}

/// Adds members to a body.
fn with(mut body: Value, members: &Value) -> Value {
    body.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    body
}

fn plain(wire: Wire) -> Value {
    if wire == Wire::OpenAiResponses {
        return json!({"model": "m", "input": "hi"});
    }
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

#[test]
fn claude_code_requests_decode() {
    let marked = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}});
    let body = json!({
        "model": "claude-sonnet-5", "max_tokens": 32000, "stream": true,
        "system": [{"type": "text", "text": "x-header"}, marked("You are a coding agent.")],
        "metadata": {"user_id": "{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"8a9e2f9c-3a9b-4c8e-8a51-0d5d7f4a1d10\"}"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "betas": ["interleaved-thinking-2025-05-14"],
        "tools": [
            {"name": "Read", "description": "Reads.", "input_schema": {"$schema": "x", "type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"], "additionalProperties": false}, "eager_input_streaming": true, "strict": true, "input_examples": [{"file_path": "a.rs"}]},
            {"name": "Task", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}, "defer_loading": false},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>"}, marked("go")]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a.pdf"}, "caller": {"type": "direct"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": false, "content": [
                    {"type": "text", "text": "one"}, {"type": "tool_reference", "tool_name": "Task"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
                {"type": "document", "title": "Notes", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}]},
        ],
    });
    let incoming = take(
        Wire::Anthropic,
        &body,
        &[
            "context_management",
            "betas",
            "cache_control.ttl",
            "system",
            "messages[].content[].caller",
            "tools[].eager_input_streaming",
        ],
    );
    let request = &incoming.request;
    assert!(incoming.streamed);
    assert_eq!(request.system, "x-header\n\nYou are a coding agent.");
    assert_eq!(
        (request.options.cache, request.reasoning),
        (
            CacheControl::Marked,
            ReasoningConfig::Effort(ReasoningEffort::Medium)
        )
    );
    assert_eq!(request.options.strict, ["Read"]);
    assert_eq!(
        request.tools.get("Read").unwrap().examples[0]["file_path"],
        "a.rs"
    );
    let MessagePart::Result(result) = &request.messages[2].parts[0] else {
        panic!("{request:?}")
    };
    assert_eq!(
        (result.content.as_str(), result.images.len()),
        ("one\n[tool: Task]", 1)
    );
    assert_eq!(
        request.messages[2].parts[1],
        MessagePart::text("Notes\n\nwords")
    );
    // For every provider: nothing that the client always sends is refused.
    for back in Wire::ALL {
        let notes = back
            .check_support(request, &WireOptions::default())
            .unwrap_or_else(|error| panic!("{back}: {error}"));
        let whole = back == Wire::Anthropic;
        assert_eq!(
            notes.iter().any(|note| note.message.contains("web_search")),
            !whole,
            "{notes:?}"
        );
        // The provider of its own gets everything but the examples of a tool.
        let others = notes
            .iter()
            .filter(|note| !note.message.contains("examples"));
        assert_eq!(others.count() == 0, whole, "{back}: {notes:?}");
    }
}

/// A request from Codex, with its patch tool.
fn codex() -> (Value, Value) {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"});
    let patch = json!({"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": grammar});
    let body = json!({
        "model": "gpt-5.5", "instructions": "You are Codex.", "stream": true, "store": false,
        "prompt_cache_key": "019a", "include": ["reasoning.encrypted_content"], "parallel_tool_calls": true,
        "tool_choice": "auto", "reasoning": {"effort": "xhigh", "summary": "auto"}, "text": {"verbosity": "low"},
        "service_tier": "priority", "client_metadata": {"x": "y"},
        "tools": [
            {"type": "function", "name": "exec_command", "description": "Runs.", "strict": false, "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}},
            {"type": "namespace", "name": "mcp__docs", "description": "Documents.", "tools": [
                {"type": "function", "name": "find", "strict": false, "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}]},
            patch, {"type": "web_search", "external_web_access": false},
        ],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be careful."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": null, "encrypted_content": "gAAA"},
            {"type": "function_call", "name": "exec_command", "arguments": "{\"cmd\":\"ls\"}", "call_id": "call_1"},
            {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "function_call", "name": "find", "namespace": "mcp__docs", "arguments": "{}", "call_id": "call_3"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.rs"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Success."},
            {"type": "function_call_output", "call_id": "call_3", "output": "none"},
        ],
    });
    (body, patch)
}

#[test]
fn codex_requests_decode() {
    let (body, patch) = codex();
    let left_out = [
        "client_metadata",
        "include.reasoning.encrypted_content",
        "input[].status",
        "reasoning.summary",
    ];
    let incoming = take(Wire::OpenAiResponses, &body, &left_out);
    let request = &incoming.request;
    assert_eq!(request.system, "You are Codex.\n\nBe careful.");
    assert_eq!(
        (
            incoming.preferences.custom_tool_names.as_slice(),
            request.parallel_calls
        ),
        (&["apply_patch".to_owned()][..], ParallelCalls::Many)
    );
    let tool = request.tools.get("apply_patch").unwrap();
    assert!(
        tool.description.contains("start: begin_patch")
            && tool.find_argument("input").unwrap().required
    );
    for back in Wire::ALL {
        let notes = back
            .check_support(request, &WireOptions::default())
            .unwrap_or_else(|error| panic!("{back}: {error}"));
        assert_eq!(
            notes.is_empty(),
            back == Wire::OpenAiResponses,
            "{back}: {notes:?}"
        );
    }
    // Sent back to its own wire, every item is unchanged.
    let again = Wire::OpenAiResponses.encode_request(request, &WireOptions::default());
    let items = again["input"].as_array().unwrap();
    let kinds: Vec<_> = items
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    let [call, text] = ["function_call", "custom_tool_call"];
    let [output, said] = ["function_call_output", "custom_tool_call_output"];
    assert_eq!(
        kinds,
        [
            "message",
            "reasoning",
            call,
            text,
            call,
            output,
            said,
            output
        ]
    );
    assert_eq!(
        (&items[4]["namespace"], &items[4]["name"]),
        (&json!("mcp__docs"), &json!("find"))
    );
    let mut types: Vec<_> = again["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["type"].as_str().unwrap())
        .collect();
    types.sort_unstable();
    assert_eq!(types, ["custom", "function", "namespace", "web_search"]);
    assert!(again["tools"].as_array().unwrap().contains(&patch));
    assert_eq!(
        (&again["text"]["verbosity"], &again["service_tier"]),
        (&json!("low"), &json!("priority"))
    );
    // Other wires have one name for a tool; its call comes back with both.
    let chat = Wire::OpenAiChat.encode_request(request, &WireOptions::default());
    assert_eq!(
        chat["messages"][2]["tool_calls"][2]["function"]["name"],
        "mcp__docs__find"
    );
    assert!(request.tools.is_tool_offered("mcp__docs__find"));
    let found = streamed(
        Wire::OpenAiResponses,
        incoming.response_metadata("r", 0),
        |sink| {
            called("mcp__docs__find", ArgumentEncoding::String, false, sink);
        },
    );
    let item = &found.last().unwrap()["response"]["output"][0];
    assert_eq!(
        (&item["namespace"], &item["name"]),
        (&json!("mcp__docs"), &json!("find"))
    );
    let body: String = found
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let mut draft = DraftResponse::default();
    let mut decoder = ResponseDecoder::new(Wire::OpenAiResponses);
    decoder.push(body.as_bytes(), &mut draft);
    decoder.finish(BodyEnd::Clean, &mut draft);
    assert_eq!(draft.calls().next().unwrap().name, "mcp__docs__find");
}

#[test]
fn functions_found_by_search_keep_their_name() {
    // As recordings 405 and 409 have it: the namespace of a deferred function is its own name.
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "rate", "namespace": "rate", "arguments": "{}"});
    let body = format!(
        "data: {}\n\n",
        json!({"type": "response.output_item.done", "output_index": 0, "item": item})
    );
    let mut draft = DraftResponse::default();
    let mut decoder = ResponseDecoder::new(Wire::OpenAiResponses);
    decoder.push(body.as_bytes(), &mut draft);
    decoder.finish(BodyEnd::Clean, &mut draft);
    assert_eq!(draft.calls().next().unwrap().name, "rate");
    let tools = json!([{"type": "function", "name": "rate", "defer_loading": true, "parameters": {"type": "object"}}]);
    let body = json!({"model": "m", "tools": tools, "input": [item]});
    let left_out = ["input[].id", "tools[].defer_loading"];
    let request = take(Wire::OpenAiResponses, &body, &left_out).request;
    assert!(request.tools.is_tool_offered("rate"));
    let again = Wire::OpenAiResponses.encode_request(&request, &WireOptions::default());
    assert_eq!(again["input"][0]["name"], "rate");
}

#[test]
fn chat_clients_requests_decode() {
    let tool = json!({"type": "function", "function": {"name": "f", "description": "", "strict": true, "parameters": {"type": "object", "properties": {}}}});
    // Cline and Zed; LangChain; the AI SDK of Vercel.
    let bodies = [
        json!({"stream": true, "stream_options": {"include_usage": true}, "temperature": 0, "max_completion_tokens": 99, "reasoning_effort": "minimal", "prompt_cache_key": "k"}),
        json!({"n": 1, "stream": false, "temperature": 0.7, "logprobs": false, "presence_penalty": 0, "frequency_penalty": 0.0, "top_p": 1, "logit_bias": {}, "stop": null, "user": "u", "seed": 7}),
        json!({"parallel_tool_calls": false, "tool_choice": {"type": "function", "function": {"name": "f"}}, "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}}, "modalities": ["text"]}),
    ];
    let read: Vec<_> = bodies
        .iter()
        .map(|members| {
            take(
                Wire::OpenAiChat,
                &with(
                    with(plain(Wire::OpenAiChat), &json!({"tools": [tool]})),
                    members,
                ),
                &[],
            )
        })
        .collect();
    assert_eq!(
        read[0].preferences.usage_reporting,
        UsageReporting::Reported
    );
    assert_eq!(
        (
            read[0].request.max_output_tokens,
            read[1].request.sampling.seed
        ),
        (Some(99), Some(7))
    );
    assert_eq!(
        (read[2].request.parallel_calls, &read[2].request.tool_choice),
        (ParallelCalls::One, &ToolChoice::Tool("f".into()))
    );
    assert!(
        matches!(&read[2].request.options.format, ResponseFormat::Schema { name, strict: true, .. } if name == "answer")
    );
    assert_eq!(read[2].request.options.strict, ["f"]);
    let silent = take(
        Wire::OpenAiChat,
        &with(plain(Wire::OpenAiChat), &json!({"stream": true})),
        &[],
    );
    assert_eq!(silent.preferences.usage_reporting, UsageReporting::Hidden);
    let noted = json!({"store": true, "metadata": {"a": "b"}, "min_p": 0.1, "top_k": 5, "chat_template_kwargs": {"x": 1}});
    let noted = take(
        Wire::OpenAiChat,
        &with(plain(Wire::OpenAiChat), &noted),
        &["store", "metadata", "min_p", "chat_template_kwargs"],
    );
    assert_eq!(noted.request.sampling.top_k, Some(5));
}

#[test]
fn ollama_clients_requests_decode() {
    let body = with(
        plain(Wire::Ollama),
        &json!({"keep_alive": "5m", "format": "json", "think": false,
            "options": {"num_ctx": 4096, "num_predict": -1, "top_k": 40, "seed": 1, "min_p": 0.0, "stop": ["x"]}}),
    );
    let incoming = take(
        Wire::Ollama,
        &body,
        &["keep_alive", "options.num_ctx", "options.min_p"],
    );
    let request = incoming.request;
    assert_eq!(
        (
            request.sampling.top_k,
            request.sampling.stop.len(),
            request.max_output_tokens
        ),
        (Some(40), 1, None)
    );
    assert_eq!(
        (request.options.format, incoming.streamed),
        (ResponseFormat::Json, true)
    );
}

#[test]
fn allowed_tools_remove_the_others() {
    let check = |wire: Wire, tool: fn(&str) -> Value, choice: Value| {
        let body = with(
            plain(wire),
            &json!({"tools": [tool("f"), tool("g"), tool("h")], "tool_choice": choice}),
        );
        let request = take(wire, &body, &[]).request;
        let names: Vec<_> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(
            (names, request.tool_choice),
            (vec!["f", "h"], ToolChoice::Required),
            "{wire}"
        );
    };
    let some = |tools: Value| json!({"mode": "required", "tools": tools});
    check(
        Wire::OpenAiChat,
        |name| json!({"type": "function", "function": {"name": name}}),
        json!({"type": "allowed_tools", "allowed_tools": some(json!([{"type": "function", "function": {"name": "h"}}, {"type": "function", "function": {"name": "f"}}]))}),
    );
    check(
        Wire::OpenAiResponses,
        |name| json!({"type": "function", "name": name}),
        with(
            json!({"type": "allowed_tools"}),
            &some(json!([{"type": "function", "name": "f"}, {"type": "function", "name": "h"}])),
        ),
    );
}

#[test]
fn members_that_change_the_response_are_refused() {
    let check = |wire: Wire, members: Value, place: &str, words: &str| {
        let error = read(wire, &with(plain(wire), &members)).unwrap_err();
        assert_eq!(error.path, place, "{error}");
        assert!(error.message.contains(words), "{error}");
        let told = ProviderError::from(&error);
        assert_eq!(
            (wire.error_status(&told), told.kind),
            (400, ModelErrorKind::Rejected)
        );
        let body = wire.encode_error(&told);
        assert!(body.to_string().contains(words), "{body}");
        if matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses) {
            assert_eq!(
                (&body["error"]["param"], &body["error"]["type"]),
                (&json!(place), &json!("invalid_request_error"))
            );
        }
    };
    check(Wire::OpenAiChat, json!({"n": 2}), "n", "ask several times");
    check(
        Wire::OpenAiChat,
        json!({"logprobs": true}),
        "logprobs",
        "not known here",
    );
    check(
        Wire::OpenAiChat,
        json!({"top_logprobs": 3}),
        "top_logprobs",
        "not known here",
    );
    check(
        Wire::OpenAiChat,
        json!({"modalities": ["text", "audio"]}),
        "modalities",
        "`text` only",
    );
    check(
        Wire::OpenAiChat,
        json!({"audio": {"voice": "x"}}),
        "audio",
        "only text",
    );
    check(
        Wire::OpenAiChat,
        json!({"functions": [{}]}),
        "functions[0].name",
        "a text",
    );
    check(
        Wire::OpenAiChat,
        json!({"tools": [{"type": "custom"}]}),
        "tools[0].custom.name",
        "a string",
    );
    check(
        Wire::OpenAiChat,
        json!({"tool_choice": "required"}),
        "tool_choice",
        "offer some",
    );
    let unknown = json!({"type": "function", "function": {"name": "g"}});
    check(
        Wire::OpenAiChat,
        json!({"tool_choice": unknown}),
        "tool_choice",
        "`g` is not among the tools",
    );
    check(
        Wire::OpenAiChat,
        json!({"response_format": {"type": "xml"}}),
        "response_format.type",
        "`json_schema`",
    );
    let said = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    check(
        Wire::OpenAiChat,
        said(json!({"type": "input_audio"})),
        "messages[0].content[0].type",
        "`text`",
    );
    check(
        Wire::OpenAiResponses,
        json!({"previous_response_id": "r"}),
        "previous_response_id",
        "whole history",
    );
    check(
        Wire::OpenAiResponses,
        json!({"background": true}),
        "background",
        "stream it",
    );
    check(
        Wire::OpenAiResponses,
        json!({"truncation": "x"}),
        "truncation",
        "`disabled`",
    );
    check(
        Wire::Anthropic,
        json!({"container": "c"}),
        "container",
        "nothing is kept",
    );
    check(
        Wire::Anthropic,
        json!({"tool_choice": {"type": "any"}}),
        "tool_choice",
        "offer some",
    );
    let file = json!({"type": "document", "source": {"type": "file", "file_id": "f"}});
    check(
        Wire::Anthropic,
        said(file),
        "messages[0].content[0].source.type",
        "lie with a provider",
    );
    let upload = json!({"type": "container_upload", "file_id": "f"});
    check(
        Wire::Anthropic,
        said(upload),
        "messages[0].content[0].type",
        "holds its content",
    );
    check(
        Wire::Ollama,
        json!({"logprobs": true}),
        "logprobs",
        "not known here",
    );
    check(
        Wire::Ollama,
        json!({"format": "xml"}),
        "format",
        "JSON Schema",
    );
}

/// A step of a scripted response: a call of a tool with an argument in pieces, closed or truncated.
pub(crate) fn called(name: &str, form: ArgumentEncoding, cut: bool, sink: &mut dyn EventSink) {
    sink.push_event(Event::CallStart {
        index: 0,
        id: Some("c1"),
        name,
        dialect: None,
        at: 0,
        name_at: 0,
    });
    sink.push_event(Event::ArgStart {
        index: 0,
        name: "input",
        form,
        at: 0,
    });
    for text in ["*** Begin", " \"ü\"\n"] {
        sink.push_event(Event::ArgDelta { index: 0, text });
    }
    if cut {
        sink.push_event(Event::CallCut {
            index: 0,
            why: Truncation::Ended,
            at: 0,
        });
    } else {
        sink.push_event(Event::ArgEnd {
            index: 0,
            lead: if form == ArgumentEncoding::Raw {
                "\n"
            } else {
                ""
            },
            at: 0,
        });
        sink.push_event(Event::CallEnd { index: 0, at: 0 });
    }
    sink.push_event(Event::Usage(Usage {
        input: Some(3),
        output: Some(2),
        ..Usage::default()
    }));
    sink.push_event(Event::Stop {
        reason: if cut {
            StopReason::End
        } else {
            StopReason::Calls
        },
        raw: "",
    });
}

/// Returns the types of the events in an encoded stream.
fn events(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let data = text.lines().filter_map(|line| {
        line.strip_prefix("data: ")
            .or(line.starts_with('{').then_some(line))
    });
    data.filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

pub(crate) fn streamed(
    wire: Wire,
    head: ResponseMetadata,
    play: impl Fn(&mut dyn EventSink),
) -> Vec<Value> {
    let mut encoder = ResponseEncoder::new(wire, head);
    let mut bytes = Vec::new();
    play(&mut |event: Event<'_>| encoder.encode_event(event, &mut bytes));
    encoder.set_durations(Duration::from_millis(2), Duration::from_millis(1));
    encoder.finish(&mut bytes);
    events(&bytes)
}

#[test]
fn custom_tool_calls_are_encoded_as_custom_tool_items() {
    let wants = ResponsePreferences {
        custom_tool_names: vec!["apply_patch".to_owned()],
        ..ResponsePreferences::default()
    };
    let head = || ResponseMetadata {
        id: "r".into(),
        preferences: wants.clone(),
        ..ResponseMetadata::default()
    };
    for (form, lead) in [
        (ArgumentEncoding::String, ""),
        (ArgumentEncoding::Raw, "\n"),
    ] {
        let found = streamed(Wire::OpenAiResponses, head(), |sink| {
            called("apply_patch", form, false, sink)
        });
        let of = |kind: &str| {
            found
                .iter()
                .filter(|event| event["type"] == kind)
                .collect::<Vec<_>>()
        };
        let text = format!("{lead}*** Begin \"ü\"\n");
        let deltas: String = of("response.custom_tool_call_input.delta")
            .iter()
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        assert_eq!(deltas, text);
        assert_eq!(
            of("response.custom_tool_call_input.done")[0]["input"],
            text.as_str()
        );
        let item = &of("response.output_item.done")[0]["item"];
        assert_eq!(
            (&item["type"], &item["input"], &item["call_id"]),
            (&json!("custom_tool_call"), &json!(text), &json!("c1"))
        );
        assert_eq!(
            &of("response.completed")[0]["response"]["output"],
            &json!([item])
        );
        let numbers: Vec<_> = found
            .iter()
            .map(|event| event["sequence_number"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    }
    // A truncated text looks complete, so the item is never marked done.
    let found = streamed(Wire::OpenAiResponses, head(), |sink| {
        called("apply_patch", ArgumentEncoding::String, true, sink)
    });
    assert!(
        found
            .iter()
            .all(|event| event["type"] != "response.output_item.done"),
        "{found:#?}"
    );
    assert_eq!(found.last().unwrap()["response"]["output"], json!([]));
    let body: String = found
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let mut draft = DraftResponse::default();
    let mut decoder = ResponseDecoder::new(Wire::OpenAiResponses);
    decoder.push(body.as_bytes(), &mut draft);
    decoder.finish(BodyEnd::Clean, &mut draft);
    assert!(matches!(
        draft.calls().next().unwrap().state,
        DraftState::Cut(_)
    ));
}

#[test]
fn responses_follow_the_clients_preferences() {
    let play = |sink: &mut dyn EventSink| called("f", ArgumentEncoding::String, false, sink);
    for counts in [UsageReporting::Reported, UsageReporting::Hidden] {
        let head = ResponseMetadata {
            preferences: ResponsePreferences {
                usage_reporting: counts,
                ..ResponsePreferences::default()
            },
            ..ResponseMetadata::default()
        };
        let found = streamed(Wire::OpenAiChat, head, play);
        assert_eq!(
            found.iter().any(|chunk| chunk["usage"].is_object()),
            counts == UsageReporting::Reported
        );
    }
    let body = json!({"model": "m", "input": "hi", "temperature": 0.5, "metadata": {"a": "b"}, "tool_choice": "none"});
    let head = read(Wire::OpenAiResponses, &body)
        .unwrap()
        .response_metadata("resp_1", 7);
    let found = streamed(Wire::OpenAiResponses, head, play);
    for response in [&found[0]["response"], &found.last().unwrap()["response"]] {
        assert_eq!(
            (
                &response["temperature"],
                &response["metadata"]["a"],
                &response["tool_choice"]
            ),
            (&json!(0.5), &json!("b"), &json!("none"))
        );
        assert_eq!(
            (&response["id"], &response["created_at"]),
            (&json!("resp_1"), &json!(7))
        );
    }
    let body = with(plain(Wire::Anthropic), &json!({"stop_sequences": ["END"]}));
    let head = read(Wire::Anthropic, &body)
        .unwrap()
        .response_metadata("msg_1", 0);
    let stop = |sink: &mut dyn EventSink| {
        sink.push_event(Event::Text { text: "a" });
        sink.push_event(Event::Stop {
            reason: StopReason::Sequence,
            raw: "stop_sequence",
        });
    };
    let found = streamed(Wire::Anthropic, head.clone(), stop);
    let delta = &found
        .iter()
        .find(|event| event["type"] == "message_delta")
        .unwrap()["delta"];
    assert_eq!(
        delta,
        &json!({"stop_reason": "stop_sequence", "stop_sequence": "END"})
    );
    let mut draft = DraftResponse::default();
    stop(&mut draft);
    assert_eq!(
        Wire::Anthropic.encode_response(&head, &draft)["stop_sequence"],
        "END"
    );
    let last = streamed(Wire::Ollama, ResponseMetadata::default(), play)
        .pop()
        .unwrap();
    assert_eq!(
        (&last["total_duration"], &last["eval_count"], &last["done"]),
        (&json!(2_000_000), &json!(2), &json!(true))
    );
    assert_eq!(
        (&last["eval_duration"], &last["prompt_eval_count"]),
        (&json!(1_000_000), &json!(3))
    );
    // Unknown values are left out, as Ollama itself leaves out zeros.
    assert!(
        last.get("load_duration").is_none() && last.get("prompt_eval_duration").is_none(),
        "{last}"
    );
    let whole =
        Wire::Ollama.encode_response(&ResponseMetadata::default(), &DraftResponse::default());
    assert!(
        whole
            .as_object()
            .unwrap()
            .keys()
            .all(|key| !key.ends_with("_duration")),
        "{whole}"
    );
}

#[test]
fn keep_alive_bytes_are_ignored_by_clients() {
    for wire in Wire::ALL {
        let mut encoder = ResponseEncoder::new(wire, ResponseMetadata::default());
        let mut bytes = Vec::new();
        encoder.keep_alive(&mut bytes);
        encoder.encode_event(Event::Text { text: "a" }, &mut bytes);
        encoder.keep_alive(&mut bytes);
        encoder.finish(&mut bytes);
        let mut draft = DraftResponse::default();
        let mut decoder = ResponseDecoder::new(wire);
        decoder.push(&bytes, &mut draft);
        let report = decoder.finish(BodyEnd::Clean, &mut draft);
        assert_eq!(
            (draft.text().as_str(), report.ended, draft.faults.len()),
            ("a", true, 0),
            "{wire}"
        );
    }
}

#[test]
fn errors_have_the_form_of_each_wire() {
    // A text in which the clients of every wire recognize a history that is too long.
    let words = "the prompt is too long for the context window, whose maximum context length is 9";
    let kinds = |kind: ModelErrorKind| {
        ProviderError::from(&ModelError {
            kind,
            message: words.into(),
        })
    };
    let check = |error: &ProviderError,
                 statuses: [u16; 2],
                 anthropic: &str,
                 openai: (&str, Value)| {
        let found = [Wire::Anthropic, Wire::OpenAiChat].map(|wire| wire.error_status(error));
        assert_eq!(found, statuses, "{error:?}");
        let expected =
            json!({"type": "error", "error": {"type": anthropic, "message": error.message}});
        assert_eq!(Wire::Anthropic.encode_error(error), expected);
        let (kind, code) = openai;
        let expected =
            json!({"error": {"message": error.message, "type": kind, "param": null, "code": code}});
        assert_eq!(Wire::OpenAiChat.encode_error(error), expected);
        assert_eq!(Wire::OpenAiResponses.encode_error(error), expected);
        assert_eq!(
            Wire::Ollama.encode_error(error),
            json!({"error": error.message})
        );
    };
    use ModelErrorKind as K;
    check(
        &kinds(K::Key),
        [401, 401],
        "authentication_error",
        ("authentication_error", json!("authentication_error")),
    );
    check(
        &kinds(K::UnknownModel),
        [404, 404],
        "not_found_error",
        ("invalid_request_error", json!("model_not_found")),
    );
    check(
        &kinds(K::Rejected),
        [400, 400],
        "invalid_request_error",
        ("invalid_request_error", json!("invalid_request_error")),
    );
    check(
        &kinds(K::TooLong),
        [400, 400],
        "invalid_request_error",
        ("invalid_request_error", json!("context_length_exceeded")),
    );
    check(
        &kinds(K::RateLimited),
        [429, 429],
        "rate_limit_error",
        ("rate_limit_error", json!("rate_limit_error")),
    );
    check(
        &kinds(K::Unavailable),
        [529, 503],
        "overloaded_error",
        ("server_error", json!("overloaded_error")),
    );
    check(
        &kinds(K::Broken),
        [502, 502],
        "api_error",
        ("server_error", json!("api_error")),
    );
    let status = |status: u16| ProviderError::new("", "no").with_status(status);
    check(
        &status(403),
        [403, 403],
        "permission_error",
        ("permission_error", json!("permission_denied")),
    );
    check(
        &status(413),
        [413, 413],
        "request_too_large",
        ("invalid_request_error", Value::Null),
    );
    check(
        &status(500),
        [500, 500],
        "api_error",
        ("server_error", json!("server_error")),
    );
    check(
        &status(503),
        [503, 503],
        "api_error",
        ("server_error", json!("server_error")),
    );
    check(
        &status(504),
        [504, 504],
        "timeout_error",
        ("server_error", json!("server_error")),
    );
    check(
        &status(529),
        [529, 503],
        "overloaded_error",
        ("server_error", json!("server_error")),
    );
}

#[test]
fn failed_responses_are_reported_in_both_forms() {
    let (mut encoder, mut bytes) = (
        ResponseEncoder::new(Wire::OpenAiResponses, ResponseMetadata::default()),
        Vec::new(),
    );
    encoder.encode_event(Event::Text { text: "a" }, &mut bytes);
    encoder.encode_error_event(
        &ProviderError::new("context_length_exceeded", "beyond the context window"),
        &mut bytes,
    );
    let found = events(&bytes);
    let [.., error, failed] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (
            &error["type"],
            &error["message"],
            &error["error"]["message"]
        ),
        (
            &json!("error"),
            &json!("beyond the context window"),
            &json!("beyond the context window")
        )
    );
    assert_eq!(
        (&failed["type"], &failed["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    assert_eq!(
        failed["response"]["error"],
        json!({"code": "context_length_exceeded", "message": "beyond the context window"})
    );
    let mut draft = DraftResponse::default();
    let mut decoder = ResponseDecoder::new(Wire::OpenAiResponses);
    decoder.push(&bytes, &mut draft);
    let report = decoder.finish(BodyEnd::Clean, &mut draft);
    assert_eq!(
        (report.error.unwrap().kind, draft.faults.len()),
        (ModelErrorKind::TooLong, 1),
        "one error, told twice"
    );
}

#[test]
fn thoughts_of_another_provider_are_noted() {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "ok"}]}]});
    let request: Request = take(Wire::Anthropic, &body, &[]).request;
    let notes = |wire: Wire, request: &Request| {
        wire.check_support(request, &WireOptions::default())
            .unwrap()
            .len()
    };
    assert_eq!(
        [Wire::Anthropic, Wire::OpenAiChat, Wire::Bedrock].map(|wire| notes(wire, &request)),
        [0, 1, 1]
    );
    // Unsigned thoughts come from another provider: their signature is lost, and some wires keep
    // the text.
    let body = body
        .to_string()
        .replace("\"signature\":\"s\"", "\"signature\":\"\"");
    let request = Wire::Anthropic
        .decode_request("", body.as_bytes())
        .unwrap()
        .request;
    assert_eq!(
        [Wire::Anthropic, Wire::OpenAiChat, Wire::Ollama].map(|wire| notes(wire, &request)),
        [1, 1, 0]
    );
    let form = WireOptions {
        thought_field: Some("reasoning_content".into()),
        ..WireOptions::default()
    };
    assert_eq!(
        Wire::OpenAiChat.check_support(&request, &form),
        Ok(Vec::new())
    );
}
