//! Translation from any wire to any other: everything without a note comes back.

use proptest::prelude::*;
use sabir_call::{
    CacheControl, Call, CallId, CallResult, Message, MessagePart, OpaqueState, ParallelCalls,
    Request, RequestOptions, ResponseFormat, Role, SamplingParams, ToolChoice, ToolProtocol,
    ToolResultStatus, ToolSet, ToolSpec,
};
use sabir_wire::{Wire, WireOptions};
use serde_json::{Map, Value, json};

fn sampling() -> impl Strategy<Value = SamplingParams> {
    let share = || proptest::option::of(prop_oneof![Just(0.25), Just(1.0)]);
    (
        (share(), share(), share(), share()),
        proptest::option::of(1_u64..99),
        proptest::option::of(any::<i64>()),
        proptest::collection::vec("[a-z]{1,3}", 0..3),
    )
        .prop_map(
            |((temperature, top_p, presence_penalty, frequency_penalty), top_k, seed, stop)| {
                SamplingParams {
                    temperature,
                    top_p,
                    top_k,
                    seed,
                    presence_penalty,
                    frequency_penalty,
                    stop,
                }
            },
        )
}

fn wishes() -> impl Strategy<Value = RequestOptions> {
    let schema =
        || json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let format = prop_oneof![
        Just(ResponseFormat::Text),
        Just(ResponseFormat::Json),
        any::<bool>().prop_map(move |strict| ResponseFormat::Schema {
            name: "form".into(),
            schema: schema(),
            strict
        }),
    ];
    let word = |words: &[&str]| {
        proptest::option::of(proptest::sample::select(
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        ))
    };
    (
        format,
        word(&["low", "high"]),
        word(&[
            "somebody",
            "a name that is longer than the sixty-four characters which OpenAI takes of one",
        ]),
        word(&["auto", "flex", "standard_only"]),
        word(&["key"]),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(format, verbosity, user, tier, cache_key, marked, strict)| RequestOptions {
                format,
                verbosity,
                user,
                tier,
                cache_key,
                cache: if marked {
                    CacheControl::Marked
                } else {
                    CacheControl::Unmarked
                },
                strict: if strict {
                    vec!["f".to_owned()]
                } else {
                    Vec::new()
                },
                native: Vec::new(),
            },
        )
}

fn history() -> Vec<Message> {
    let arguments = Map::from_iter([("a".to_owned(), json!("ü\n\"x\""))]);
    let id = CallId::new("call-1");
    let name = "f".to_owned();
    let call = Call {
        id: id.clone(),
        name: name.clone(),
        arguments,
        dialect: None,
    };
    let result = CallResult {
        id,
        name,
        ending: ToolResultStatus::Done,
        content: "done".into(),
        images: Vec::new(),
    };
    vec![
        Message::user("hello"),
        Message {
            role: Role::Assistant,
            parts: vec![MessagePart::text("Look."), MessagePart::Call(call)],
        },
        Message {
            role: Role::User,
            parts: vec![MessagePart::Result(result), MessagePart::text("go on")],
        },
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let choices = vec![
        ToolChoice::Auto,
        ToolChoice::Required,
        ToolChoice::None,
        ToolChoice::Tool("f".into()),
    ];
    (sampling(), wishes(), proptest::sample::select(choices), any::<bool>(), 1_u64..9999).prop_map(
        |(sampling, wishes, choice, one, limit)| {
            let schema =
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
            let parallel = if one && choice != ToolChoice::None { ParallelCalls::One } else { ParallelCalls::Many };
            Request {
                model: "anthropic.m".into(),
                system: "Be brief.".into(),
                messages: history().into(),
                tools: ToolSet::new(vec![ToolSpec::new("f", "does f", schema)]).unwrap(),
                tool_choice: choice,
                parallel_calls: parallel,
                max_output_tokens: Some(limit),
                sampling,
                options: wishes,
                ..Request::default()
            }
        },
    )
}

/// Returns the request without what a wire says it leaves out, and with the response format that it
/// supports.
fn without(wire: Wire, form: &WireOptions, request: &Request) -> Request {
    let mut request = request.clone();
    for note in wire.check_support(&request, form).unwrap() {
        let sampling = &mut request.sampling;
        let wishes = &mut request.options;
        match note.path.as_str() {
            "temperature" => sampling.temperature = None,
            "top_p" => sampling.top_p = None,
            "top_k" => sampling.top_k = None,
            "seed" => sampling.seed = None,
            "presence_penalty" => sampling.presence_penalty = None,
            "frequency_penalty" => sampling.frequency_penalty = None,
            "stop" => sampling.stop.clear(),
            "verbosity" => wishes.verbosity = None,
            "user" => wishes.user = None,
            "service_tier" => wishes.tier = None,
            "prompt_cache_key" => wishes.cache_key = None,
            "response_format" => wishes.format = ResponseFormat::Text,
            "cache_control" => wishes.cache = CacheControl::Unmarked,
            "tools" => wishes.strict.clear(),
            "tool_choice" => request.tool_choice = ToolChoice::Auto,
            "parallel_tool_calls" => request.parallel_calls = ParallelCalls::Many,
            other => panic!("{other}: {note}"),
        }
    }
    if let (Wire::Ollama, ToolChoice::None) = (wire, &request.tool_choice) {
        // No tool is offered then, which has the same effect.
        request.tool_choice = ToolChoice::Auto;
        request.tools = ToolSet::default();
        request.options.strict.clear();
    }
    if let ResponseFormat::Schema { name, strict, .. } = &mut request.options.format {
        match wire {
            Wire::OpenAiChat | Wire::OpenAiResponses if name.is_empty() => {
                *name = "answer".to_owned()
            }
            Wire::OpenAiChat | Wire::OpenAiResponses => {}
            _ => (*name, *strict) = (String::new(), true),
        }
    }
    request
}

fn through(wire: Wire, form: &WireOptions, request: &Request) -> Request {
    let body = wire.encode_request(request, form).to_string();
    let incoming = wire.decode_request(
        &wire.endpoint_path(&request.model, form.streamed),
        body.as_bytes(),
    );
    incoming
        .unwrap_or_else(|error| panic!("{wire}: {error}\n{body}"))
        .request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn members_without_a_note_round_trip(request in request(), own in any::<bool>()) {
        let form = WireOptions { completion_limit: own, custom_tools: own, ..WireOptions::default() };
        for first in Wire::ALL {
            let once = through(first, &form, &request);
            let expected = without(first, &form, &request);
            prop_assert_eq!(format!("{once:#?}"), format!("{expected:#?}"), "{}", first);
            // Bedrock declares the tools of a history that comes without them.
            let declared = |wire: &Wire| !(once.tools.is_empty() && *wire == Wire::Bedrock);
            for second in Wire::ALL.into_iter().filter(declared) {
                let twice = through(second, &form, &once);
                let expected = without(second, &form, &once);
                prop_assert_eq!(format!("{twice:#?}"), format!("{expected:#?}"), "{} to {}", first, second);
            }
        }
    }
}

fn shown(part: MessagePart) -> Request {
    Request {
        model: "m".into(),
        messages: vec![Message {
            role: Role::User,
            parts: vec![part],
        }]
        .into(),
        ..Request::default()
    }
}

#[test]
fn user_content_is_never_left_out() {
    let picture = shown(MessagePart::ImageUrl {
        url: "https://x/y.png".into(),
    });
    for wire in Wire::ALL {
        let takes = matches!(
            wire,
            Wire::Anthropic | Wire::OpenAiChat | Wire::OpenAiResponses
        );
        assert_eq!(
            wire.check_support(&picture, &WireOptions::default())
                .is_ok(),
            takes,
            "{wire}"
        );
        let body = wire
            .encode_request(&picture, &WireOptions::default())
            .to_string();
        assert!(
            body.contains("https://x/y.png"),
            "{wire}: not even its address is lost: {body}"
        );
        if takes {
            assert_eq!(
                through(wire, &WireOptions::default(), &picture).messages,
                picture.messages,
                "{wire}"
            );
        }
    }
    let documents = [
        (
            Wire::Anthropic,
            json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}}),
        ),
        (
            Wire::OpenAiChat,
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "x"}}),
        ),
        (
            Wire::OpenAiResponses,
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "x"}),
        ),
    ];
    for (own, data) in documents {
        let mut document = shown(MessagePart::Opaque(OpaqueState {
            wire: own.name().into(),
            origin: None,
            data,
        }));
        for wire in Wire::ALL {
            assert_eq!(
                wire.check_support(&document, &WireOptions::default())
                    .is_ok(),
                // PDF data has a form on every wire with documents.
                wire == own || (own == Wire::Anthropic && wire != Wire::Ollama),
                "{own} to {wire}"
            );
        }
        assert_eq!(
            through(own, &WireOptions::default(), &document).messages,
            document.messages,
            "{own}"
        );
        document.protocol = ToolProtocol::Prompted("cline".into());
        let error = own
            .check_support(&document, &WireOptions::default())
            .unwrap_err();
        assert_eq!(error.path, "messages[0], part 0");
        assert!(error.message.contains("send its text"), "{error}");
    }
}

/// Builds a request with a provider's own tool, and optionally one of the client's.
fn own_tool(wire: Wire, data: Value, with: bool, choice: ToolChoice) -> Request {
    let tools = with.then(|| {
        ToolSpec::new(
            "f",
            "",
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
        )
    });
    let native = vec![OpaqueState {
        wire: wire.name().into(),
        origin: None,
        data,
    }];
    Request {
        model: "m".into(),
        messages: vec![Message::user("hi")].into(),
        tools: ToolSet::new(tools.into_iter().collect()).unwrap(),
        tool_choice: choice,
        options: RequestOptions {
            native,
            ..RequestOptions::default()
        },
        ..Request::default()
    }
}

#[test]
fn native_tools_are_sent_only_to_their_wire() {
    let check =
        |wire: Wire, data: Value, with: bool, choice: ToolChoice, elsewhere: Result<&str, &str>| {
            let request = own_tool(wire, data.clone(), with, choice);
            let body = wire.encode_request(&request, &WireOptions::default());
            assert!(
                body["tools"].as_array().unwrap().contains(&data),
                "{body:#}"
            );
            assert_eq!(
                wire.check_support(&request, &WireOptions::default())
                    .unwrap(),
                [],
                "{wire}"
            );
            let other = if wire == Wire::Anthropic {
                Wire::OpenAiChat
            } else {
                Wire::Anthropic
            };
            let found = other.check_support(&request, &WireOptions::default());
            let found = found.map(|notes| {
                notes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("|")
            });
            let found = found.map_err(|error| error.to_string());
            match (&found, elsewhere) {
                (Ok(found), Ok(words)) | (Err(found), Err(words)) => {
                    assert!(found.contains(words), "{found}")
                }
                _ => panic!("{found:?}, expected {elsewhere:?}"),
            }
        };
    let search = || json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 5});
    let auto = || ToolChoice::Auto;
    check(
        Wire::Anthropic,
        search(),
        true,
        auto(),
        Ok("tools: left out: `web_search_20250305`"),
    );
    check(
        Wire::Anthropic,
        search(),
        false,
        auto(),
        Err("no other tool"),
    );
    check(
        Wire::Anthropic,
        search(),
        true,
        ToolChoice::Tool("web_search".into()),
        Err("no other tool"),
    );
    check(
        Wire::Anthropic,
        json!({"type": "bash_20250124", "name": "bash"}),
        true,
        auto(),
        Err("offer it as a function"),
    );
    check(
        Wire::OpenAiResponses,
        json!({"type": "web_search"}),
        true,
        auto(),
        Ok("left out: `web_search`"),
    );
    check(
        Wire::OpenAiResponses,
        json!({"type": "local_shell"}),
        true,
        auto(),
        Err("offer it as a function"),
    );
    check(
        Wire::OpenAiResponses,
        json!({"type": "custom", "name": "f"}),
        true,
        auto(),
        Ok(""),
    );
}
