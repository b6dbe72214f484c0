//! Tests a model over real HTTP, against a provider that misbehaves in many ways.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use sabir_call::{
    DraftResponse, DraftState, Image, Message, MessagePart, Model, ModelError, ModelErrorKind,
    Request, StopReason, ToolProtocol, ToolSet, Truncation,
};
use sabir_model::{
    Deadlines, HttpModel, ModelCatalogue, ModelEntry, Provider, RetryPolicy, Secret,
    SigningCredentials,
};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::json;

pub(crate) const KEY: &str = "sk-secret-12345";

/// The outcome of one request.
pub(crate) struct Outcome {
    pub(crate) result: Result<(), ModelError>,
    pub(crate) draft: DraftResponse,
    /// The attempt and the wait of each retry.
    pub(crate) retries: Vec<(u32, Duration)>,
    pub(crate) requests: usize,
    pub(crate) took: Duration,
}

impl Outcome {
    pub(crate) fn error(&self) -> &ModelError {
        self.result.as_ref().expect_err("an error")
    }
}

pub(crate) fn request(wire: Wire) -> Request {
    let tools = json!([{"name": "read_file", "description": "reads", "parameters":
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}]);
    Request {
        model: format!("model-on-{wire}"),
        system: "Be brief.".into(),
        messages: vec![Message::user("What is in a.rs?")].into(),
        tools: ToolSet::from_json(&tools.to_string()).unwrap(),
        ..Request::default()
    }
}

pub(crate) fn model(wire: Wire, base_url: &str) -> HttpModel {
    let milliseconds = Duration::from_millis;
    let deadlines = Deadlines {
        // Deadlines that suffice even on a busy machine.
        connect: milliseconds(5000),
        first_byte: milliseconds(1000),
        idle: milliseconds(1000),
        progress: milliseconds(1600),
        linger: milliseconds(100),
    };
    let retries = RetryPolicy {
        limit: 2,
        base: milliseconds(100),
        longest: milliseconds(200),
        longest_asked: milliseconds(300),
        ..RetryPolicy::default()
    };
    HttpModel::new(Provider::new(
        "acme",
        wire,
        base_url,
        Some(Secret::new(KEY)),
    ))
    .deadlines(deadlines)
    .retries(retries)
}

pub(crate) async fn ask(wire: Wire, replies: Vec<ProviderReply>) -> Outcome {
    let provider = ScriptedProvider::start(ReplyScript::new(replies))
        .await
        .unwrap();
    ask_at(wire, &provider, &request(wire)).await
}

pub(crate) async fn ask_at(wire: Wire, provider: &ScriptedProvider, request: &Request) -> Outcome {
    let retries = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&retries);
    let model = model(wire, &provider.base_url(wire))
        .on_retry(move |retry| noted.lock().unwrap().push((retry.attempt, retry.wait)));
    let mut draft = DraftResponse::default();
    let begun = Instant::now();
    let result = model.stream_response(request, &mut draft).await;
    let took = begun.elapsed();
    if let Err(error) = &result {
        assert!(!error.message.contains(KEY), "{error}");
    }
    assert!(
        !draft.has_open_calls(),
        "every call is closed or cut: {draft:?}"
    );
    let retries = retries.lock().unwrap().clone();
    Outcome {
        result,
        draft,
        retries,
        requests: provider.received_requests().len(),
        took,
    }
}

/// Checks every wire, all at once: most of the time such a check waits.
pub(crate) async fn for_every_wire<F: Future<Output = ()> + Send + 'static>(
    check: impl Fn(Wire) -> F,
) {
    check_at_once(Wire::ALL, check).await;
}

/// Checks every case, all at once: most of the time such a check waits.
async fn check_at_once<T, F: Future<Output = ()> + Send + 'static>(
    cases: impl IntoIterator<Item = T>,
    check: impl Fn(T) -> F,
) {
    let mut checks: tokio::task::JoinSet<()> = cases.into_iter().map(check).collect();
    while let Some(checked) = checks.join_next().await {
        checked.unwrap();
    }
}

pub(crate) fn good() -> ProviderReply {
    ProviderReply::text("Reading ü.").with_call("c1", "read_file", json!({"path": "a.rs"}))
}

pub(crate) fn check_good(outcome: &Outcome) {
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(outcome.draft.text(), "Reading ü.");
    let call = outcome.draft.calls().next().unwrap();
    assert_eq!(
        (
            call.name.as_str(),
            call.arguments[0].text.as_str(),
            call.state
        ),
        ("read_file", "a.rs", DraftState::Closed)
    );
    assert_eq!(outcome.draft.faults, []);
    assert_eq!(outcome.draft.stop.as_ref().unwrap().0, StopReason::Calls);
}

/// The offsets at which the call's arguments have begun and not ended.
pub(crate) fn inside(wire: Wire) -> usize {
    let body = good().encode_stream(wire, sabir_wire::ResponseMetadata::default());
    body.windows(4).position(|bytes| bytes == b"a.rs").unwrap()
}

#[tokio::test]
async fn answers_are_read_in_any_chunks() {
    for wire in Wire::ALL {
        for chunks in [
            ChunkSplit::Whole,
            ChunkSplit::Size(1),
            ChunkSplit::Size(7),
            ChunkSplit::Random(3),
        ] {
            check_good(&ask(wire, vec![good().in_chunks(chunks).in_deltas(3)]).await);
        }
        check_good(&ask(wire, vec![good().with_fault(ScriptedFault::NeverClose)]).await);
    }
    check_good(
        &ask(
            Wire::OpenAiChat,
            vec![good().with_fault(ScriptedFault::NoLastEvent)],
        )
        .await,
    );
}

#[tokio::test]
async fn a_request_has_all_its_fields() {
    for wire in Wire::ALL {
        let provider = ScriptedProvider::start(ReplyScript::new([good()]))
            .await
            .unwrap();
        let sent = request(wire);
        check_good(&ask_at(wire, &provider, &sent).await);
        let recorded = &provider.received_requests()[0];
        let incoming = recorded.incoming.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(
            (&incoming.request.messages, &incoming.request.system),
            (&sent.messages, &sent.system)
        );
        assert!(incoming.streamed && incoming.request.tools.get("read_file").is_some());
        let (name, prefix) = wire.key_header();
        assert_eq!(
            recorded.header_value(name),
            Some(format!("{prefix}{KEY}").as_str())
        );
    }
}

#[tokio::test]
async fn requests_to_bedrock_are_signed() {
    let provider = ScriptedProvider::start(ReplyScript::new([
        ProviderReply::error_status(503),
        good(),
        good(),
    ]))
    .await
    .unwrap();
    let base = provider.base_url(Wire::Bedrock);
    let mut target = Provider::new("bedrock", Wire::Bedrock, &base, None);
    target.signing = Some(SigningCredentials {
        access_key: "AKIDEXAMPLE".into(),
        secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        token: Some(Secret::new("temporary")),
        region: "eu-west-1".into(),
        clock: || {
            // A later time for each attempt.
            static CALLS: AtomicU64 = AtomicU64::new(1_440_938_160);
            UNIX_EPOCH + Duration::from_secs(CALLS.fetch_add(1, Ordering::Relaxed))
        },
    });
    let arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/a.b-v1:0";
    let sent = Request {
        model: arn.into(),
        ..request(Wire::Bedrock)
    };
    HttpModel::new(target.clone())
        .stream_response(&sent, &mut DraftResponse::default())
        .await
        .unwrap();
    // A key identifies the caller as well.
    target.key = Some(Secret::new(KEY));
    HttpModel::new(target)
        .stream_response(&sent, &mut DraftResponse::default())
        .await
        .unwrap();

    let requests = provider.received_requests();
    let dates: Vec<_> = requests
        .iter()
        .map(|request| request.header_value("x-amz-date"))
        .collect();
    assert_eq!(
        dates,
        [Some("20150830T123600Z"), Some("20150830T123601Z"), None]
    );
    assert_eq!(
        requests[2].header_value("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    let path = "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fa.b-v1%3A0/converse-stream";
    for request in &requests[..2] {
        assert!(request.path.ends_with(path), "{}", request.path);
        assert_eq!(
            request.header_value("host"),
            Some(provider.address().to_string().as_str())
        );
        assert_eq!(
            request.header_value("x-amz-security-token"),
            Some("temporary")
        );
        let scope = "Credential=AKIDEXAMPLE/20150830/eu-west-1/bedrock/aws4_request";
        let names = "SignedHeaders=host;x-amz-date;x-amz-security-token";
        let signed = request.header_value("authorization").unwrap();
        assert!(
            signed.starts_with(&format!("AWS4-HMAC-SHA256 {scope}, {names}, Signature=")),
            "{signed}"
        );
    }
    assert_ne!(
        requests[0].header_value("authorization"),
        requests[1].header_value("authorization")
    );
}

#[tokio::test]
async fn the_connection_is_used_again() {
    for wire in Wire::ALL {
        let provider = ScriptedProvider::start(ReplyScript::new([good(), good(), good()]))
            .await
            .unwrap();
        let model = model(wire, &provider.base_url(wire));
        for _ in 0..3 {
            model
                .stream_response(&request(wire), &mut DraftResponse::default())
                .await
                .unwrap();
        }
        assert!(
            provider
                .received_requests()
                .iter()
                .all(|request| request.connection == 0)
        );
    }
}

#[tokio::test]
async fn temporary_failures_are_retried() {
    for_every_wire(|wire| async move {
        let statuses = [408, 429, 500, 502, 503, 504, 529];
        check_at_once(statuses, |status| async move {
            let outcome = ask(
                wire,
                vec![
                    ProviderReply::error_status(status),
                    ProviderReply::error_status(status),
                    good(),
                ],
            )
            .await;
            check_good(&outcome);
            assert_eq!(
                (outcome.requests, outcome.retries.len()),
                (3, 2),
                "{status}"
            );
        })
        .await;
        let faults = [
            ScriptedFault::StallBeforeHeaders,
            ScriptedFault::StallAfter(0),
            ScriptedFault::CutAfter(0),
            ScriptedFault::CutAfter(9),
            ScriptedFault::ResetAfter(0),
            ScriptedFault::EndAfter(0),
        ];
        check_at_once(faults, |trouble| async move {
            let outcome = ask(wire, vec![good().with_fault(trouble.clone()), good()]).await;
            check_good(&outcome);
            assert_eq!(outcome.requests, 2, "{trouble:?}");
        })
        .await;
        let overloaded = ScriptedFault::Error {
            code: "overloaded_error".into(),
            message: "Overloaded".into(),
        };
        let outcome = ask(
            wire,
            vec![ProviderReply::default().with_fault(overloaded), good()],
        )
        .await;
        check_good(&outcome);
        assert_eq!(outcome.requests, 2, "an error event before any other");
    })
    .await;
}

#[tokio::test]
async fn persistent_failures_end_in_one_error() {
    let failures = [
        (
            ProviderReply::error_status(429),
            ModelErrorKind::RateLimited,
        ),
        (
            ProviderReply::error_status(503),
            ModelErrorKind::Unavailable,
        ),
        (
            good().with_fault(ScriptedFault::StallBeforeHeaders),
            ModelErrorKind::Unavailable,
        ),
    ];
    check_at_once(failures, |(reply, kind)| async move {
        let outcome = ask(Wire::Anthropic, vec![reply; 3]).await;
        assert_eq!((outcome.error().kind, outcome.requests), (kind, 3));
    })
    .await;
    // Nothing listens at that address.
    let provider = ScriptedProvider::start(ReplyScript::new([])).await.unwrap();
    let address = provider.base_url(Wire::OpenAiChat);
    drop(provider);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = model(Wire::OpenAiChat, &address)
        .stream_response(&request(Wire::OpenAiChat), &mut DraftResponse::default())
        .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn waits_follow_the_provider_within_reason() {
    let wait = async |headers: &[(&str, &str)]| {
        let refused = headers
            .iter()
            .fold(ProviderReply::error_status(429), |reply, (name, value)| {
                reply.with_header(name, value)
            });
        let outcome = ask(Wire::OpenAiChat, vec![refused, good()]).await;
        check_good(&outcome);
        assert!(outcome.took >= outcome.retries[0].1);
        outcome.retries[0].1.as_millis()
    };
    assert_eq!(wait(&[("retry-after-ms", "150")]).await, 150);
    assert_eq!(wait(&[("retry-after", "0.2")]).await, 200);
    assert_eq!(wait(&[("retry-after", "1e12")]).await, 300, "clamped");
    assert_eq!(
        wait(&[("retry-after", "0")]).await,
        100,
        "no loop without a pause"
    );
    let date = ("date", "Fri, 20 Nov 2026 12:00:00 GMT");
    assert_eq!(
        wait(&[date, ("retry-after", "Fri, 20 Nov 2026 12:00:05 GMT")]).await,
        300
    );
    for nonsense in ["-5", "NaN", "Fri, 20 Nov 1999 12:00:00 GMT"] {
        // Our own choice: half to all of the base, and never less than the shortest wait.
        assert_eq!(
            wait(&[date, ("retry-after", nonsense)]).await,
            100,
            "{nonsense}"
        );
    }
}

#[tokio::test]
async fn final_errors_are_final_and_say_what_to_change() {
    use ModelErrorKind as K;
    for wire in Wire::ALL {
        for (status, kind, word) in [
            (400, K::Rejected, "refused"),
            (401, K::Key, "key"),
            (403, K::Key, "key"),
            (404, K::UnknownModel, "base URL"),
            (413, K::Rejected, "shorten"),
        ] {
            let body = format!("{{\"error\":{{\"message\":\"about {KEY}\"}}}}");
            let outcome = ask(
                wire,
                vec![ProviderReply::error_status(status).with_body(&body)],
            )
            .await;
            assert_eq!(
                (outcome.error().kind, outcome.requests),
                (kind, 1),
                "{status}"
            );
            assert!(
                outcome.error().message.contains(word),
                "{}",
                outcome.error()
            );
            assert_eq!(outcome.draft, DraftResponse::default());
        }
        for words in [
            "prompt is too long: 200001 tokens > 200000",
            "This model's maximum context length is 8192 tokens",
        ] {
            let body =
                json!({"error": {"type": "invalid_request_error", "message": words}}).to_string();
            let outcome = ask(
                wire,
                vec![ProviderReply::error_status(400).with_body(&body)],
            )
            .await;
            assert_eq!((outcome.error().kind, outcome.requests), (K::TooLong, 1));
        }
    }
}

#[tokio::test]
async fn a_response_that_is_no_answer_is_an_error() {
    let body = |content_type: Option<&str>, body: &str| {
        let content_type = content_type.map(str::to_owned);
        vec![
            ProviderReply::default().with_fault(ScriptedFault::Body {
                content_type,
                body: body.to_owned(),
            }),
            good(),
        ]
    };
    for wire in Wire::ALL {
        for content_type in [Some("text/html; charset=utf-8"), None] {
            let outcome = ask(wire, body(content_type, "<html><h1>Sign in</h1></html>")).await;
            assert_eq!(
                (outcome.error().kind, outcome.requests),
                (ModelErrorKind::Format, 1)
            );
            assert!(
                outcome.error().message.contains("proxy"),
                "{}",
                outcome.error()
            );
        }
        let outcome = ask(
            wire,
            body(
                Some("application/json"),
                r#"{"error":{"message":"no","code":"invalid_api_key"}}"#,
            ),
        )
        .await;
        assert_eq!(
            (outcome.error().kind, outcome.requests),
            (ModelErrorKind::Key, 1),
            "an error with status 200"
        );
        // Without a content type, and not streamed although a stream was asked for.
        if let Ok(stream) =
            String::from_utf8(good().encode_stream(wire, sabir_wire::ResponseMetadata::default()))
        {
            let outcome = ask(wire, body(None, &stream)).await;
            check_good(&outcome);
            assert_eq!(
                outcome.requests, 1,
                "it is not asked for, and paid for, twice"
            );
        }
        let whole =
            String::from_utf8(good().encode_body(wire, &sabir_wire::ResponseMetadata::default()))
                .unwrap();
        let outcome = ask(wire, body(Some("application/json"), &whole)).await;
        check_good(&outcome);
        assert_eq!(outcome.requests, 1);
    }
}

#[tokio::test]
async fn a_broken_answer_keeps_its_text_and_runs_nothing() {
    for_every_wire(|wire| async move {
        let at = inside(wire);
        let faults = [
            ScriptedFault::StallAfter(at),
            ScriptedFault::PingAfter(at),
            ScriptedFault::CutAfter(at),
            ScriptedFault::ResetAfter(at),
            ScriptedFault::EndAfter(at),
        ];
        check_at_once(faults, |trouble| async move {
            let outcome = ask(wire, vec![good().with_fault(trouble.clone()), good()]).await;
            assert_eq!(
                (outcome.error().kind, outcome.requests),
                (ModelErrorKind::Broken, 1),
                "{wire} {trouble:?}"
            );
            assert_eq!(outcome.draft.text(), "Reading ü.", "{wire} {trouble:?}");
            let states: Vec<_> = outcome.draft.calls().map(|call| call.state).collect();
            assert!(
                states
                    .iter()
                    .all(|state| *state == DraftState::Cut(Truncation::Broken)),
                "{wire} {trouble:?} {states:?}"
            );
            assert!(outcome.took < Duration::from_secs(120));
        })
        .await;
        let overloaded = ScriptedFault::Error {
            code: "overloaded_error".into(),
            message: "Overloaded".into(),
        };
        let outcome = ask(
            wire,
            vec![ProviderReply::text("Hm.").with_fault(overloaded), good()],
        )
        .await;
        assert_eq!(
            (outcome.error().kind, outcome.requests),
            (ModelErrorKind::Unavailable, 1)
        );
        assert_eq!(
            (outcome.draft.text().as_str(), outcome.draft.faults.len()),
            ("Hm.", 1)
        );
    })
    .await;
    // An Anthropic message is complete only after its end event.
    let outcome = ask(
        Wire::Anthropic,
        vec![good().with_fault(ScriptedFault::NoLastEvent)],
    )
    .await;
    assert_eq!(outcome.error().kind, ModelErrorKind::Broken);
}

#[tokio::test]
async fn an_answer_cut_at_any_byte_runs_nothing_unfinished() {
    for_every_wire(|wire| async move {
        let length = good()
            .encode_stream(wire, sabir_wire::ResponseMetadata::default())
            .len();
        check_at_once((1..length).step_by(13), |at| async move {
            let outcome = ask(
                wire,
                vec![
                    good().with_fault(ScriptedFault::EndAfter(at)),
                    ProviderReply::error_status(400),
                    ProviderReply::error_status(400),
                ],
            )
            .await;
            for call in outcome.draft.calls() {
                if call.state == DraftState::Closed {
                    assert_eq!(call.arguments[0].text, "a.rs", "{wire} cut at {at}");
                }
            }
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn dropping_the_future_cancels() {
    let provider = ScriptedProvider::start(ReplyScript::new([
        good().with_fault(ScriptedFault::StallAfter(99_999))
    ]))
    .await
    .unwrap();
    let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic));
    let mut draft = DraftResponse::default();
    let request = request(Wire::Anthropic);
    let answer = model.stream_response(&request, &mut draft);
    assert!(
        tokio::time::timeout(Duration::from_millis(60), answer)
            .await
            .is_err()
            || !draft.parts.is_empty()
    );
}

#[tokio::test]
async fn prompted_calls_arrive_as_text_and_become_calls() {
    for wire in Wire::ALL {
        let text = "I look.\n<read_file>\n<path>a.rs</path>\n</read_file>";
        let provider = ScriptedProvider::start(ReplyScript::new([
            ProviderReply::text(text).in_deltas(3),
            good(),
        ]))
        .await
        .unwrap();
        let mut sent = request(wire);
        sent.protocol = ToolProtocol::Prompted("cline".into());
        let outcome = ask_at(wire, &provider, &sent).await;
        assert_eq!(outcome.result, Ok(()));
        let call = outcome.draft.calls().next().unwrap();
        assert_eq!(
            (call.name.as_str(), call.dialect.as_deref(), call.state),
            ("read_file", Some("cline"), DraftState::Closed)
        );
        let body = &provider.received_requests()[0].body;
        assert!(body.get("tools").is_none(), "tools are words now: {body}");
        assert!(body.to_string().contains("read_file"));
        // A native call to a prompted request is understood all the same.
        let outcome = ask_at(wire, &provider, &sent).await;
        check_good(&outcome);
    }
    let mut sent = request(Wire::Anthropic);
    sent.protocol = ToolProtocol::Prompted("nonsense".into());
    let provider = ScriptedProvider::start(ReplyScript::new([])).await.unwrap();
    let outcome = ask_at(Wire::Anthropic, &provider, &sent).await;
    assert_eq!(
        (outcome.error().kind, outcome.requests),
        (ModelErrorKind::Rejected, 0)
    );
}

#[tokio::test]
async fn the_output_limit_comes_from_the_catalogue() {
    let provider = ScriptedProvider::start(ReplyScript::new([good(), good()]))
        .await
        .unwrap();
    let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic))
        .catalogue(ModelCatalogue::default());
    let mut request = request(Wire::Anthropic);
    request.model = "claude-3-opus-20240229".into();
    model
        .stream_response(&request, &mut DraftResponse::default())
        .await
        .unwrap();
    assert_eq!(provider.received_requests()[0].body["max_tokens"], 4096);
}

#[tokio::test]
async fn a_text_only_model_gets_no_pictures() {
    for (images, sent) in [(Some(false), 0), (Some(true), 1), (None, 1)] {
        let provider = ScriptedProvider::start(ReplyScript::new([good()]))
            .await
            .unwrap();
        let own = ModelEntry {
            pattern: "model-on".into(),
            images,
            ..ModelEntry::default()
        };
        let model = model(Wire::Anthropic, &provider.base_url(Wire::Anthropic))
            .catalogue(ModelCatalogue::new(vec![own]));
        let mut request = request(Wire::Anthropic);
        let picture = Image {
            media_type: "image/png".into(),
            data: "iVBORw0KGgo".into(),
        };
        request.messages[0].parts.push(MessagePart::Image(picture));
        model
            .stream_response(&request, &mut DraftResponse::default())
            .await
            .unwrap();
        let body = provider.received_requests()[0].body.to_string();
        assert_eq!(body.matches("iVBORw0KGgo").count(), sent, "{body}");
        assert_eq!(
            body.matches("you cannot read pictures").count(),
            1 - sent,
            "{body}"
        );
    }
}

#[tokio::test]
async fn unusable_settings_are_errors() {
    let ask = async |provider: Provider| {
        let result = HttpModel::new(provider)
            .stream_response(&request(Wire::OpenAiChat), &mut DraftResponse::default())
            .await;
        result.unwrap_err().kind
    };
    let provider =
        |url: &str, key: &str| Provider::new("p", Wire::OpenAiChat, url, Some(Secret::new(key)));
    assert_eq!(
        ask(provider("not a url", "k")).await,
        ModelErrorKind::Rejected
    );
    assert_eq!(
        ask(provider("http://127.0.0.1:1/v1", "a\nb")).await,
        ModelErrorKind::Key
    );
}
