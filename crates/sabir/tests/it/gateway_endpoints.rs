//! Tests the endpoints of the gateway beside those of chat: Gemini's, and those that are forwarded.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::gateway_ways::{Running, TOKEN};
use crate::world::World;

/// A request that a server received: its first line, and its body.
type Received = Arc<Mutex<Vec<(String, String)>>>;

/// A server that answers every request with this status, type and body.
fn fixed_server(status: u16, kind: &'static str, body: &'static str) -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let received = Received::default();
    let kept = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut first = String::new();
                _ = reader.read_line(&mut first);
                let mut length = 0;
                let mut line = String::from("x");
                while !line.trim().is_empty() {
                    line.clear();
                    _ = reader.read_line(&mut line);
                    let lower = line.to_ascii_lowercase();
                    if let Some(given) = lower.strip_prefix("content-length:") {
                        length = given.trim().parse().unwrap();
                    }
                }
                let mut asked = vec![0; length];
                reader.read_exact(&mut asked).unwrap();
                let asked = String::from_utf8(asked).unwrap();
                kept.lock().unwrap().push((first.trim().to_owned(), asked));
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                (&stream).write_all(head.as_bytes()).unwrap();
                (&stream).write_all(body.as_bytes()).unwrap();
            });
        }
    });
    (address, received)
}

/// Posts a body of any type with the gateway's own token.
fn post(running: &Running, path: &str, head: &str, body: &str) -> String {
    running.post(path, &format!("{TOKEN}{head}"), body)
}

#[test]
fn embeddings_go_to_an_upstream_that_has_them() {
    let world = World::new();
    let (broken, _) = fixed_server(500, "application/json", "{}");
    let answer = r#"{"data": [{"embedding": [0.50]}], "model": "bge-m3", "usage": {"prompt_tokens": 7, "total_tokens": 7}}"#;
    let (works, received) = fixed_server(200, "application/json", answer);
    let text = format!(
        "[gateway]\nlog = \"json\"\n[gateway.models.e]\nbalance = \"order\"\n\
         [[gateway.models.e.upstreams]]\nto = \"http://{broken}\"\n\
         [[gateway.models.e.upstreams]]\nto = \"http://{works}#bge-m3\"\n"
    );
    let running = Running::start(&world, &text, &[]);
    let asked = r#"{"model": "e", "input": "hi", "dimensions": 1}"#;
    let got = post(
        &running,
        "/v1/embeddings",
        "Content-Type: application/json\r\n",
        asked,
    );
    // The client gets the name that it asked for, and every other byte of the upstream.
    let renamed = answer.replace("bge-m3", "e");
    assert!(
        got.starts_with("HTTP/1.1 200") && got.contains(&renamed),
        "{got}"
    );
    let (line, body) = received.lock().unwrap()[0].clone();
    assert_eq!(line, "POST /v1/embeddings HTTP/1.1");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"model": "bge-m3", "input": "hi", "dimensions": 1})
    );
    let log: Value = serde_json::from_str(&running.line("\"e\"")).unwrap();
    assert_eq!(log["input_tokens"], 7);
    assert_eq!(log["upstream"], works.as_str());
    let unknown = post(&running, "/v1/rerank", "", r#"{"model": "x"}"#);
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    let nameless = post(&running, "/v1/embeddings", "", r#"{"input": "hi"}"#);
    assert!(nameless.starts_with("HTTP/1.1 400"), "{nameless}");
}

#[test]
fn audio_and_streamed_completions_pass_through() {
    let world = World::new();
    let (address, received) = fixed_server(
        200,
        "text/event-stream",
        "data: {\"choices\": [], \"model\": \"large\"}\n\ndata: [DONE]\n\n",
    );
    let text = format!("[gateway.models.w]\nto = \"http://{address}#large\"\n");
    let running = Running::start(&world, &text, &[]);
    let form = "--q\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nw\r\n\
                --q\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--q--\r\n";
    let kind = "Content-Type: multipart/form-data; boundary=q\r\n";
    let got = post(&running, "/v1/audio/transcriptions", kind, form);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    let (_, body) = received.lock().unwrap()[0].clone();
    assert_eq!(body, form.replace("\r\n\r\nw\r\n", "\r\n\r\nlarge\r\n"));
    let asked = r#"{"model": "w", "prompt": "fn main", "suffix": "}", "stream": true}"#;
    let got = post(&running, "/v1/completions", "", asked);
    assert!(got.contains("\"model\": \"w\""), "{got}");
    assert!(got.contains("data: [DONE]"), "{got}");
    // A page could send such a form to an endpoint that takes JSON.
    let got = post(&running, "/v1/messages", kind, form);
    assert!(got.starts_with("HTTP/1.1 415"), "{got}");
}

#[test]
fn errors_inside_of_forwarded_answers_do_not_show_the_key_of_the_provider() {
    let world = World::new();
    let stream = "text/event-stream";
    for (kind, body, expected) in [
        (
            "application/json",
            r#"{"text": "a", "error": {"message": "bad key of-tests"}}"#,
            r#"{"text": "a", "error": {"message": "bad key [secret]"}}"#,
        ),
        (
            "application/problem+json",
            r#"{"detail": "bad key \u006ff-tests"}"#,
            r#"{"detail": "bad key [secret]"}"#,
        ),
        (
            stream,
            "data: {\"response\": {\"error\":\ndata: \"bad key of-tests\"}}\n\n",
            "data: {\"response\": {\"error\":\ndata: \"bad key [secret]\"}}\n\n",
        ),
        (stream, "data: bad key of-tests", "data: bad key [secret]"),
        ("text/plain", "bad key of-tests", "bad key [secret]"),
        ("", "bad key of-tests", "bad key [secret]"),
    ] {
        let (address, _) = fixed_server(200, kind, body);
        let text = format!(
            "[providers.p]\nwire = \"openai-chat\"\nbase_url = \"http://{address}/v1\"\n\
             key_env = \"SABIR_GATEWAY_TOKEN\"\n[gateway.models.w]\nto = \"p/large\"\n"
        );
        let running = Running::start(&world, &text, &[]);
        for asked in [r#"{"model": "w"}"#, r#"{"model": "w", "stream": true}"#] {
            let got = post(&running, "/v1/completions", "", asked);
            assert!(got.contains(expected), "{kind}: {got}");
        }
    }
}

#[test]
fn headers_of_forwarded_answers_are_redacted_and_encodings_refused() {
    let world = World::new();
    for (headers, expected) in [
        (
            "application/json\r\nx-ratelimit-of-tests: 1\r\nx-ratelimit-host: of-tests at 127.0.0.1",
            "x-ratelimit-host: [secret] at [address]\r\n",
        ),
        (
            "application/json\r\ncontent-encoding: gzip",
            "compressed its answer (`gzip`)",
        ),
    ] {
        let (address, _) = fixed_server(200, headers, "{}");
        let text = format!(
            "[providers.p]\nwire = \"openai-chat\"\nbase_url = \"http://{address}/v1\"\n\
             key_env = \"SABIR_GATEWAY_TOKEN\"\n[gateway.models.w]\nto = \"p/large\"\n"
        );
        let running = Running::start(&world, &text, &[]);
        let got = post(&running, "/v1/embeddings", "", r#"{"model": "w"}"#);
        assert!(got.contains(expected), "{got}");
        assert!(!got.contains("of-tests"), "{got}");
        let status = match headers.contains("gzip") {
            true => "HTTP/1.1 502",
            false => "HTTP/1.1 200",
        };
        assert!(got.starts_with(status), "{got}");
    }
}

#[test]
fn clients_of_gemini_use_any_upstream() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("I read it.").with_call("call_1", "read_file", json!({"path": "a.rs"}))
    }));
    let text = format!(
        "[gateway.models.m]\nto = \"http://{}\"\n",
        provider.address()
    );
    let running = Running::start(&world, &text, &[]);
    let body = json!({
        "contents": [{"role": "user", "parts": [{"text": "read a.rs"}]}],
        "systemInstruction": {"parts": [{"text": "You are careful."}]},
        "tools": [{"functionDeclarations": [{"name": "read_file", "description": "Reads.",
            "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}}}]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100},
    })
    .to_string();
    let whole = post(&running, "/v1beta/models/m:generateContent", "", &body);
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    let begin = whole.find('{').unwrap();
    let end = whole.rfind('}').unwrap();
    let answer: Value = serde_json::from_str(&whole[begin..=end]).unwrap();
    let parts = &answer["candidates"][0]["content"]["parts"];
    assert_eq!(parts[0]["text"], "I read it.");
    assert_eq!(parts[1]["functionCall"]["name"], "read_file");
    assert_eq!(parts[1]["functionCall"]["args"], json!({"path": "a.rs"}));
    let stream = "/v1beta/models/m:streamGenerateContent?alt=sse";
    let streamed = post(&running, stream, "", &body);
    assert!(
        streamed.contains("text/event-stream") && streamed.contains("\"functionCall\""),
        "{streamed}"
    );
    assert!(streamed.contains("\"finishReason\":\"STOP\""), "{streamed}");
    let asked = &provider.received_requests()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.body["temperature"], 0.5);
    assert_eq!(
        asked.body["tools"][0]["function"]["parameters"]["type"],
        "object"
    );
    let counted = post(&running, "/v1beta/models/m:countTokens", "", &body);
    assert!(counted.contains("\"totalTokens\":"), "{counted}");
    let unknown = post(&running, "/v1beta/models/x:generateContent", "", &body);
    assert!(
        unknown.starts_with("HTTP/1.1 404") && unknown.contains("\"status\":\"NOT_FOUND\""),
        "{unknown}"
    );
}

#[test]
fn clients_of_gemini_send_their_key_in_its_own_header() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply::text("hi")));
    let text = format!(
        "[gateway.models.m]\nto = \"http://{}\"\n",
        provider.address()
    );
    let running = Running::start(&world, &text, &[]);
    let get = |head: &str, path: &str| running.get(path, head);
    let key = "x-goog-api-key: of-tests\r\n";
    let listed = get(key, "/v1beta/models");
    assert!(
        listed.starts_with("HTTP/1.1 200") && listed.contains("\"name\":\"models/m\""),
        "{listed}"
    );
    let one = get(key, "/v1beta/models/m");
    assert!(one.contains("\"supportedGenerationMethods\""), "{one}");
    assert!(get("", "/v1beta/models").starts_with("HTTP/1.1 401"));
    // A key in the address would end up in logs.
    assert!(get("", "/v1beta/models?key=of-tests").starts_with("HTTP/1.1 401"));
}

#[test]
fn a_unix_socket_is_served_beside_the_address() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply::text("hi")));
    let socket = world.work.path().join("gateway.sock");
    // A gateway that was killed left its socket.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let text = format!(
        "[gateway]\nsocket = \"{}\"\n[gateway.models.m]\nto = \"http://{}\"\n",
        socket.display(),
        provider.address()
    );
    let running = Running::start(&world, &text, &[]);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let body = crate::gateway_ways::message("m").to_string();
    let lines = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: sabir\r\nConnection: close\r\n{TOKEN}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(lines.as_bytes()).unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).unwrap();
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    drop(running);
}
