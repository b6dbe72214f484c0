//! Tests the Responses API over WebSockets, with a client that checks every frame.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use sabir_gateway::{GatewayLimits, GatewaySettings, RouteTable};
use sabir_model::Secret;
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::test_gateway::{LONG, TOKEN, TestGateway, route_on, settings, until};

/// The client's side of a connection.
pub(crate) struct Client {
    socket: WebSocketStream<TcpStream>,
}

/// A message from the gateway, other than an answer's event.
#[derive(Debug, PartialEq)]
enum Received {
    Event(Value),
    Ping,
    Closed(Option<CloseCode>),
}

impl Client {
    pub(crate) async fn open(setup: &TestGateway) -> Self {
        Self::open_with(setup, TOKEN).await
    }

    pub(crate) async fn open_with(setup: &TestGateway, token: &str) -> Self {
        let (socket, status) = Self::try_open(setup, token, &[]).await.unwrap();
        assert_eq!(status, 101);
        Self { socket }
    }

    /// Makes a handshake. Returns the status of a refusal.
    async fn try_open(
        setup: &TestGateway,
        token: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(WebSocketStream<TcpStream>, u16), u16> {
        let address = format!("ws://{}/v1/responses", setup.address);
        let mut request = address.into_client_request().unwrap();
        let bearer = format!("Bearer {token}");
        for (name, value) in [&[("authorization", bearer.as_str())], headers].concat() {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(setup.address).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, response)) => Ok((socket, response.status().as_u16())),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, message: &Value) {
        let message = Message::text(message.to_string());
        self.socket.send(message).await.unwrap();
    }

    pub(crate) async fn create(&mut self, members: Value) {
        let mut message = json!({"type": "response.create", "model": "model", "input": "hi"});
        let given = members.as_object().cloned().unwrap();
        message.as_object_mut().unwrap().extend(given);
        self.send(&message).await;
    }

    async fn next(&mut self) -> Received {
        loop {
            let message = tokio::time::timeout(LONG, self.socket.next())
                .await
                .expect("a message");
            return match message {
                Some(Ok(Message::Text(text))) => {
                    Received::Event(serde_json::from_str(text.as_str()).unwrap())
                }
                Some(Ok(Message::Ping(_))) => Received::Ping,
                Some(Ok(Message::Pong(_))) => continue,
                Some(Ok(Message::Close(frame))) => Received::Closed(frame.map(|frame| frame.code)),
                None | Some(Err(_)) => Received::Closed(None),
                Some(Ok(other)) => panic!("{other:?}"),
            };
        }
    }

    async fn event(&mut self) -> Value {
        loop {
            match self.next().await {
                Received::Event(event) => return event,
                Received::Ping => {}
                closed => panic!("{closed:?}"),
            }
        }
    }

    /// Reads an answer up to its last event.
    pub(crate) async fn answer(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let is_last = is_last(&event);
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    /// Asks and returns the last event of the answer.
    pub(crate) async fn ask(&mut self, members: Value) -> Value {
        self.create(members).await;
        self.answer().await.pop().unwrap()
    }

    /// Waits for the close message of the gateway, and returns its code with what came before.
    pub(crate) async fn closed(&mut self) -> (Option<CloseCode>, Vec<Value>) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Received::Event(event) => events.push(event),
                Received::Ping => {}
                Received::Closed(code) => return (code, events),
            }
        }
    }
}

fn is_last(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap();
    [
        "error",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    .contains(&kind)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

pub(crate) fn limited(change: impl Fn(&mut GatewayLimits)) -> GatewaySettings {
    let mut settings = settings();
    change(&mut settings.limits);
    settings
}

pub(crate) fn hello() -> ReplyScript {
    ReplyScript::from_fn(|_, _| ProviderReply::text("hello"))
}

/// An answer that takes long, in many pieces.
fn slow() -> ProviderReply {
    ProviderReply {
        pause: 20,
        ..ProviderReply::text("x".repeat(4000))
            .in_deltas(10)
            .in_chunks(ChunkSplit::Size(200))
    }
}

/// Returns the texts of the messages in a request to the provider, by role.
fn history(setup: &TestGateway, number: usize) -> Vec<String> {
    let requests = setup.provider.received_requests();
    let incoming = requests[number].incoming.as_ref().unwrap();
    let messages = &incoming.as_ref().unwrap().request.messages;
    messages
        .iter()
        .flat_map(|message| {
            let role = format!("{:?}", message.role);
            message.parts.iter().map(move |part| match part {
                sabir_call::MessagePart::Text { text } => format!("{role}: {text}"),
                other => format!("{role} {other:?}").chars().take(12).collect(),
            })
        })
        .collect()
}

#[tokio::test]
async fn an_answer_has_the_events_of_a_stream() {
    let leak = "I read it.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}\n</tool_call>";
    let setup = TestGateway::new(ReplyScript::from_fn(move |_, _| {
        ProviderReply::text(leak).in_deltas(3)
    }))
    .await;
    let tools = json!([{"type": "function", "name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]);
    let body = json!({"model": "model", "input": "hi", "tools": tools, "stream": true});
    let streamed = setup.ask("/v1/responses", &body).await.text();
    let expected: Vec<Value> = streamed
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let mut client = Client::open(&setup).await;
    for _ in 0..2 {
        client.create(json!({"tools": tools})).await;
        let events = client.answer().await;
        assert_eq!(kinds(&events), kinds(&expected));
        assert!(events.iter().all(|event| event.get("stream_id").is_none()));
        let response = &events.last().unwrap()["response"];
        // The leaked call was repaired, as in the stream.
        let outputs = response["output"].as_array().unwrap();
        assert_eq!(outputs[1]["name"], "read_file", "{response}");
        assert_eq!(outputs[1]["arguments"], "{\"path\":\"a.rs\"}");
    }
    let ends = setup.ends(4).await;
    let statuses: Vec<_> = ends.iter().map(|end| (end.status, end.whole)).collect();
    assert_eq!(
        statuses,
        [(200, true), (101, true), (200, true), (200, true)]
    );
    assert!(
        ends.iter()
            .all(|end| end.front == Some(Wire::OpenAiResponses))
    );
    assert_eq!(ends.iter().map(|end| end.calls).sum::<u32>(), 3);
    let whole = "sabir_gateway_answers_total{model=\"model\",end=\"whole\"}";
    assert_eq!(setup.metric(whole).await, 3);
}

#[tokio::test]
async fn an_answer_that_is_not_stored_is_continued_on_its_connection_only() {
    for wire in [Wire::OpenAiChat, Wire::OpenAiResponses] {
        let setup = TestGateway::new(hello()).await;
        let routes = RouteTable::default().with_route("model", route_on(&setup.provider, wire));
        setup.gateway.replace_routes(routes);
        let mut client = Client::open(&setup).await;
        // Nothing is generated, but the input is known later.
        client
            .create(json!({"input": [{"role": "developer", "content": "Be brief."}], "generate": false, "store": false}))
            .await;
        let events = client.answer().await;
        assert_eq!(
            kinds(&events),
            [
                "response.created",
                "response.in_progress",
                "response.completed"
            ]
        );
        let first = &events[2]["response"];
        assert_eq!(
            (&first["output"], &first["store"]),
            (&json!([]), &json!(false))
        );
        assert_eq!(first["usage"]["total_tokens"], 0);
        assert!(setup.provider.received_requests().is_empty());

        let second = client
            .ask(json!({"input": "one", "previous_response_id": first["id"], "store": false}))
            .await;
        assert_eq!(second["type"], "response.completed", "{second}");
        let second_id = second["response"]["id"].clone();
        assert_eq!(second["response"]["previous_response_id"], first["id"]);
        let third = json!({"input": "two", "previous_response_id": second_id, "store": false});
        client.ask(third.clone()).await;
        assert_eq!(
            history(&setup, 1)[history(&setup, 1).len() - 3..],
            ["User: one", "Assistant: hello", "User: two"]
        );
        // The provider gets no member of messages.
        let body = setup.provider.received_requests()[1].body.to_string();
        for member in [
            "response.create",
            "\"generate\"",
            "stream_id",
            "previous_response_id\":\"sabir",
        ] {
            assert!(!body.contains(member), "{member}: {body}");
        }
        assert!(body.contains("Be brief."), "{body}");

        let mut other = Client::open(&setup).await;
        let refused = other.ask(third.clone()).await;
        assert_eq!(refused["error"]["code"], "previous_response_not_found");
        assert_eq!(refused["error"]["param"], "previous_response_id");
        assert_eq!(
            (&refused["type"], &refused["status"]),
            (&json!("error"), &json!(400))
        );
        let over_http = setup
            .ask(
                "/v1/responses",
                &json!({"model": "model", "input": "two", "previous_response_id": second_id}),
            )
            .await;
        assert_eq!(over_http.status, 400);
        assert_eq!(
            over_http.json()["error"]["code"],
            "previous_response_not_found"
        );
        // A stored one is known everywhere, and to a connection that refused something before.
        let stored = client.ask(json!({"input": "three"})).await;
        let fourth = json!({"input": "four", "previous_response_id": stored["response"]["id"]});
        assert_eq!(other.ask(fourth).await["type"], "response.completed");
    }
}

#[tokio::test]
async fn errors_are_events_and_the_connection_goes_on() {
    let setup = TestGateway::new(ReplyScript::from_fn(|turn, _| match turn {
        0 => ProviderReply::error_status(429).with_header("retry-after", "7"),
        _ => ProviderReply::text("hello"),
    }))
    .await;
    let mut client = Client::open(&setup).await;
    let limited = client.ask(json!({"stream_id": "a"})).await;
    assert_eq!(
        (&limited["status"], &limited["stream_id"]),
        (&json!(429), &json!("a"))
    );
    assert_eq!(limited["headers"]["retry-after"], "7", "{limited}");
    assert_eq!(limited["error"]["headers"], limited["headers"]);
    assert_eq!(limited["error"]["type"], "rate_limit_error");
    assert!(limited["headers"]["x-request-id"].is_string());
    let unknown = client.ask(json!({"model": "mode1"})).await;
    assert_eq!(
        (&unknown["status"], &unknown["error"]["param"]),
        (&json!(404), &json!("model"))
    );
    assert!(unknown.get("stream_id").is_none());
    for (message, code, param) in [
        (
            json!({"type": "response.create", "stream_id": ""}),
            json!("invalid_stream_id"),
            json!("stream_id"),
        ),
        (
            json!({"type": "response.cancel"}),
            json!("invalid_request_error"),
            json!("type"),
        ),
        (json!([]), json!("invalid_request_error"), Value::Null),
    ] {
        client.send(&message).await;
        let event = client.event().await;
        let error = &event["error"];
        assert_eq!(
            (&event["type"], &event["status"]),
            (&json!("error"), &json!(400)),
            "{event}"
        );
        assert_eq!(
            (&error["code"], &error["param"]),
            (&code, &param),
            "{event}"
        );
    }
    client.socket.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(
        client.event().await["error"]["message"],
        "messages must be text"
    );
    client
        .send(&json!({"type": "response.steer", "previous_response_id": "r", "input": "x"}))
        .await;
    let steer = client.event().await;
    assert_eq!(steer["type"], "response.steer.failed");
    assert_eq!(
        steer["steer"],
        json!({"previous_response_id": "r", "input": "x"})
    );
    // Codex sends this after each answer, and expects nothing.
    client
        .send(&json!({"type": "response.processed", "response_id": "r"}))
        .await;
    assert_eq!(client.ask(json!({})).await["type"], "response.completed");
    // Each refusal is in the log once: the two answers and four messages of six.
    let ends = setup.ends(8).await;
    let refused = ends.iter().filter(|end| end.status >= 400).count();
    assert_eq!(refused, 6, "{ends:?}");
}

#[tokio::test]
async fn a_failure_in_an_answer_is_its_only_end() {
    let setup = TestGateway::new(ReplyScript::from_fn(|turn, _| match turn {
        0 => slow().with_fault(ScriptedFault::CutHalf),
        _ => ProviderReply::text("hello"),
    }))
    .await;
    let mut client = Client::open(&setup).await;
    client.create(json!({})).await;
    let events = client.answer().await;
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed", "{last}");
    assert!(last["response"]["error"]["code"].is_string());
    // What follows belongs to the next answer.
    client.create(json!({})).await;
    let events = client.answer().await;
    assert_eq!(kinds(&events)[0], "response.created");
    assert_eq!(events.last().unwrap()["type"], "response.completed");
}

/// A provider that answers each request when it is allowed to.
fn held(permits: &Arc<Semaphore>) -> ReplyScript {
    let permits = Arc::clone(permits);
    ReplyScript::from_fn(move |_, request| {
        let text = request.last_text();
        // A thread that waits otherwise may be the one that watches all sockets.
        tokio::task::block_in_place(|| {
            // Requests for `free` are not held.
            let begun = std::time::Instant::now();
            while !text.contains("free") && begun.elapsed() < LONG {
                match permits.try_acquire() {
                    Ok(permit) => {
                        permit.forget();
                        break;
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        ProviderReply::text(text)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_answer_at_the_same_time_and_each_in_order() {
    let permits = Arc::new(Semaphore::new(0));
    let setup = TestGateway::new(held(&permits)).await;
    let mut client = Client::open(&setup).await;
    client
        .create(json!({"input": "held one", "stream_id": "a"}))
        .await;
    client
        .create(json!({"input": "free two", "stream_id": "a"}))
        .await;
    client
        .create(json!({"input": "free three", "stream_id": "b"}))
        .await;
    let answer = client.answer().await;
    assert!(
        answer.iter().all(|event| event["stream_id"] == "b"),
        "{answer:?}"
    );
    permits.add_permits(1);
    for text in ["held one", "free two"] {
        let answer = client.answer().await;
        assert!(
            answer.iter().all(|event| event["stream_id"] == "a"),
            "{answer:?}"
        );
        let output = &answer.last().unwrap()["response"]["output"][0]["content"][0]["text"];
        assert!(output.as_str().unwrap().contains(text), "{output}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_request_to_the_model() {
    let setup = TestGateway::with(
        ReplyScript::from_fn(|_, _| slow()),
        limited(|limits| limits.answers = 1),
    )
    .await;
    for is_polite in [true, false] {
        let before = setup.provider.abandoned_requests().len();
        let mut client = Client::open(&setup).await;
        client.create(json!({})).await;
        while client.event().await["type"] != "response.output_text.delta" {}
        // The only slot is taken.
        let mut other = Client::open(&setup).await;
        let refused = other.ask(json!({})).await;
        assert_eq!(
            (&refused["status"], &refused["headers"]["retry-after"]),
            (&json!(503), &json!("1"))
        );
        if is_polite {
            client.socket.close(None).await.unwrap();
            let (code, _) = client.closed().await;
            assert_ne!(code, Some(CloseCode::Away));
        }
        drop(client);
        until("the model to be left", || {
            setup.provider.abandoned_requests().len() > before
        })
        .await;
        // The slot is free again, and so is everything else.
        other.create(json!({})).await;
        while other.event().await["type"] != "response.output_text.delta" {}
    }
    // The connection that asks for the metrics, and nothing else.
    let free = async {
        while setup.metric("sabir_gateway_connections_open").await > 1
            || setup.metric("sabir_gateway_requests_open").await > 1
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, free).await.expect("free places");
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_throttled_and_dropped() {
    let long = ProviderReply {
        pause: 1,
        ..ProviderReply::text("x".repeat(24 << 20))
            .in_deltas(8 << 10)
            .in_chunks(ChunkSplit::Size(256 << 10))
    };
    let limits = limited(|limits| limits.stalled = Duration::from_secs(2));
    let setup = TestGateway::with(ReplyScript::from_fn(move |_, _| long.clone()), limits).await;
    let mut client = Client::open(&setup).await;
    client.create(json!({})).await;
    // The answer would end if the gateway read it ahead of the client.
    until("the end of the model's answer", || {
        setup.provider.abandoned_requests().len() == 1
    })
    .await;
    let ends = setup.ends(2).await;
    assert_eq!((ends[1].status, ends[1].whole), (200, false), "{ends:?}");
    assert_eq!(ends[1].error, None);
}

#[tokio::test]
async fn the_handshake_is_checked_like_a_request() {
    let setup = TestGateway::new(hello()).await;
    let open = async |token: &str, headers: &[(&'static str, &str)]| {
        Client::try_open(&setup, token, headers).await.err()
    };
    assert_eq!(open("wrong", &[]).await, Some(401));
    assert_eq!(open(TOKEN, &[("host", "evil.test")]).await, Some(403));
    assert_eq!(
        open(TOKEN, &[("origin", "https://evil.test")]).await,
        Some(403)
    );
    assert_eq!(open(TOKEN, &[("content-length", "5")]).await, Some(400));
    assert_eq!(
        open(TOKEN, &[("sec-websocket-version", "12")]).await,
        Some(426)
    );
    let raw = async |headers: &str| {
        let wish = format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{headers}");
        let request = setup.request("GET", "/v1/responses", &wish, "");
        setup.raw(&request).await
    };
    let key = "Sec-WebSocket-Key: 86USugBi0Be0sP51jND+HQ==\r\n";
    let older = raw(&format!("{key}Sec-WebSocket-Version: 8\r\n")).await;
    assert_eq!(older.status, 426, "{older:?}");
    for header in [
        "sec-websocket-version: 13",
        "upgrade: websocket",
        "connection: upgrade",
    ] {
        assert!(older.head.contains(header), "{older:?}");
    }
    let odd = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: aaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    assert_eq!(raw(odd).await.status, 400);
    assert_eq!(raw("Sec-WebSocket-Version: 13\r\n").await.status, 400);
    let mut client = Client::open(&setup).await;
    // A token that is no longer valid is refused on the open connection too.
    setup.gateway.replace_settings(GatewaySettings {
        token: Some(Secret::new("another")),
        ..settings()
    });
    let refused = client.ask(json!({})).await;
    assert_eq!(
        (&refused["status"], &refused["error"]["type"]),
        (&json!(401), &json!("authentication_error"))
    );
    assert!(setup.provider.received_requests().is_empty());
}

#[tokio::test]
async fn a_message_has_the_limits_of_a_body() {
    let limits = limited(|limits| {
        limits.body = 100_000;
        limits.upload = Duration::from_millis(300);
    });
    let setup = TestGateway::with(hello(), limits).await;
    let mut client = Client::open(&setup).await;
    let fits = "x".repeat(90_000);
    assert_eq!(
        client.ask(json!({"input": fits})).await["type"],
        "response.completed"
    );
    client.create(json!({"input": "x".repeat(100_000)})).await;
    let (code, events) = client.closed().await;
    assert_eq!(code, Some(CloseCode::Size));
    assert_eq!(events[0]["status"], 413, "{events:?}");
    // A message that does not go on: the head of a masked frame with 100 bytes, and no more.
    let mut client = Client::open(&setup).await;
    let begun = [0x81, 0x80 | 100, 0, 0, 0, 0, b'{'];
    client.socket.get_mut().write_all(&begun).await.unwrap();
    let (code, events) = client.closed().await;
    assert_eq!(code, Some(CloseCode::Again));
    assert_eq!(events[0]["status"], 408, "{events:?}");
    // A frame that is not masked.
    let mut client = Client::open(&setup).await;
    client
        .socket
        .get_mut()
        .write_all(&[0x81, 1, b'{'])
        .await
        .unwrap();
    assert_eq!(client.closed().await.0, Some(CloseCode::Protocol));
}

#[tokio::test]
async fn silence_is_filled_with_pings_and_ends_when_nobody_answers() {
    let limits = limited(|limits| {
        limits.ping = Duration::from_millis(20);
        limits.stalled = Duration::from_millis(200);
    });
    let setup = TestGateway::with(hello(), limits).await;
    let mut client = Client::open(&setup).await;
    for _ in 0..20 {
        assert_eq!(client.next().await, Received::Ping);
    }
    client
        .socket
        .send(Message::Ping("abc".into()))
        .await
        .unwrap();
    let pong = loop {
        if let Message::Pong(pong) = client.socket.next().await.unwrap().unwrap() {
            break pong;
        }
    };
    assert_eq!(pong.as_ref(), b"abc");
    // A client that is there answers pings; this one only takes them from the socket.
    let stream = client.socket.get_mut();
    let mut taken = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut taken))
        .await
        .expect("an end")
        .ok();
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let limits = limited(|limits| limits.websocket_idle = Duration::from_millis(100));
    let setup = TestGateway::with(hello(), limits).await;
    let mut client = Client::open(&setup).await;
    assert_eq!(client.ask(json!({})).await["type"], "response.completed");
    assert_eq!(client.closed().await, (Some(CloseCode::Away), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_answers_end_and_refuses_others() {
    let permits = Arc::new(Semaphore::new(0));
    let mut setup = TestGateway::new(held(&permits)).await;
    let mut idle = Client::open(&setup).await;
    let mut client = Client::open(&setup).await;
    client.create(json!({"input": "held one"})).await;
    client.create(json!({"input": "free two"})).await;
    client
        .create(json!({"input": "free three", "stream_id": "a"}))
        .await;
    assert_eq!(client.answer().await.last().unwrap()["stream_id"], "a");
    setup.tell_to_end();
    assert_eq!(idle.closed().await, (Some(CloseCode::Away), Vec::new()));
    // Until this connection knows of the end too.
    let refused = loop {
        let event = client
            .ask(json!({"input": "free four", "stream_id": "b"}))
            .await;
        assert_eq!(event["stream_id"], "b");
        if event["type"] == "error" {
            break event;
        }
    };
    assert_eq!(refused["status"], 400);
    permits.add_permits(1);
    assert_eq!(
        client.answer().await.last().unwrap()["type"],
        "response.completed"
    );
    // The one that waited for its turn can be asked elsewhere.
    let refused = client.event().await;
    assert_eq!(
        refused["error"]["code"],
        "websocket_connection_limit_reached"
    );
    assert_eq!(client.closed().await, (Some(CloseCode::Away), Vec::new()));
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_do_not_overtake_the_answers_of_their_stream() {
    let permits = Arc::new(Semaphore::new(0));
    let setup = TestGateway::new(held(&permits)).await;
    let mut client = Client::open(&setup).await;
    client.create(json!({"input": "held one"})).await;
    client.create(json!({"input": "held two"})).await;
    client.send(&json!({"type": "response.cancel"})).await;
    client.socket.send(Message::binary(vec![1])).await.unwrap();
    client.create(json!({"input": "free three"})).await;
    // That of another stream need not wait.
    client
        .send(&json!({"type": "response.cancel", "stream_id": "a"}))
        .await;
    assert_eq!(client.event().await["stream_id"], "a");
    permits.add_permits(2);
    for text in ["held one", "held two"] {
        let answer = client.answer().await;
        let output = &answer.last().unwrap()["response"]["output"][0]["content"][0]["text"];
        assert!(output.as_str().unwrap().contains(text), "{output}");
    }
    assert_eq!(client.event().await["error"]["param"], "type");
    assert_eq!(
        client.event().await["error"]["message"],
        "messages must be text"
    );
    let answer = client.answer().await;
    assert_eq!(answer.last().unwrap()["type"], "response.completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_too_many_errors_that_wait_is_dropped() {
    let permits = Arc::new(Semaphore::new(0));
    let setup = TestGateway::new(held(&permits)).await;
    let mut client = Client::open(&setup).await;
    client.create(json!({"input": "held one"})).await;
    for _ in 0..65 {
        client.send(&json!({"type": "response.cancel"})).await;
    }
    assert_eq!(client.closed().await.0, Some(CloseCode::Policy));
    permits.add_permits(1);
}

/// The buffers are replaced after large messages, also with pieces of the next one behind them.
#[tokio::test]
async fn large_messages_follow_one_another() {
    let setup = TestGateway::new(ReplyScript::from_fn(|_, request| {
        ProviderReply::text(request.last_text())
    }))
    .await;
    let mut client = Client::open(&setup).await;
    let mut texts = Vec::new();
    for size in [200_000, 10, 300_000, 70_000, 5] {
        let text = format!("{size}{}", "x".repeat(size));
        client.create(json!({"input": text})).await;
        client.socket.send(Message::Ping("a".into())).await.unwrap();
        texts.push(text);
    }
    for text in texts {
        let answer = client.answer().await;
        let output = &answer.last().unwrap()["response"]["output"][0]["content"][0]["text"];
        assert!(*output == json!(text));
    }
}

#[tokio::test]
async fn an_answer_that_continues_one_of_its_connection_is_continued_elsewhere() {
    let setup = TestGateway::new(hello()).await;
    let mut client = Client::open(&setup).await;
    let first = client.ask(json!({"input": "one", "store": false})).await;
    let first_id = &first["response"]["id"];
    let second = client
        .ask(json!({"input": "two", "previous_response_id": first_id}))
        .await;
    assert_eq!(second["response"]["previous_response_id"], *first_id);
    client.socket.close(None).await.unwrap();
    client.closed().await;
    let third = json!({"model": "model", "input": "three", "previous_response_id": second["response"]["id"]});
    let got = setup.ask("/v1/responses", &third).await;
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(
        history(&setup, 2),
        [
            "User: one",
            "Assistant: hello",
            "User: two",
            "Assistant: hello",
            "User: three"
        ]
    );
}

#[tokio::test]
async fn an_answer_that_outlasts_a_shutdown_is_cut() {
    let limits = limited(|limits| limits.drain = Duration::from_millis(100));
    let reply = ProviderReply {
        pause: 5000,
        ..slow()
    };
    let mut setup =
        TestGateway::with(ReplyScript::from_fn(move |_, _| reply.clone()), limits).await;
    let mut client = Client::open(&setup).await;
    client.create(json!({})).await;
    while client.event().await["type"] != "response.created" {}
    setup.tell_to_end();
    assert_eq!(
        client.answer().await.last().unwrap()["type"],
        "response.failed"
    );
    assert_eq!(client.closed().await.0, Some(CloseCode::Away));
    setup.end().await;
}

#[tokio::test]
async fn without_a_store_or_a_limit_of_idleness_there_are_no_web_sockets() {
    let setup = TestGateway::with(hello(), limited(|limits| limits.store = 0)).await;
    assert_eq!(Client::try_open(&setup, TOKEN, &[]).await.err(), Some(426));
    let off = limited(|limits| limits.websocket_idle = Duration::ZERO);
    let setup = TestGateway::with(hello(), off).await;
    assert_eq!(Client::try_open(&setup, TOKEN, &[]).await.err(), Some(426));
    // After this status Codex uses HTTP at once; after others it tries again.
    let wish = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: 86USugBi0Be0sP51jND+HQ==\r\n";
    let got = setup
        .raw(&setup.request("GET", "/v1/responses", wish, ""))
        .await;
    assert_eq!(got.status, 426, "{got:?}");
    assert!(got.head.contains("\nupgrade: http/1.1"), "{got:?}");
    assert!(got.head.contains("\nconnection: upgrade"), "{got:?}");
    assert!(got.text().contains("use POST"), "{got:?}");
}

#[tokio::test]
async fn only_the_responses_api_has_web_sockets() {
    let setup = TestGateway::new(hello()).await;
    let wish = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: 86USugBi0Be0sP51jND+HQ==\r\n";
    let get = async |path: &str, headers: &str| {
        setup
            .raw(&setup.request("GET", path, headers, ""))
            .await
            .status
    };
    assert_eq!(get("/v1/chat/completions", wish).await, 426);
    assert_eq!(get("/v1/embeddings", wish).await, 405);
    assert_eq!(get("/v1/responses", "").await, 405);
    // HTTP/1.0 cannot be upgraded.
    let request = setup.request("GET", "/v1/responses", wish, "");
    let older = String::from_utf8(request)
        .unwrap()
        .replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(setup.raw(older.as_bytes()).await.status, 400);
}
