//! Tests connections that carry several answers, of which some are streamed.

use std::time::Duration;

use sabir_gateway::{GatewayLimits, GatewaySettings};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript};
use sabir_wire::Wire;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::test_gateway::{FRONTS, Got, LONG, TOKEN, TestGateway, body, got, settings};

/// A request that lets the connection live.
fn kept(setup: &TestGateway, method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
        setup.address,
        body.len()
    )
}

fn question(setup: &TestGateway, front: Wire, path: &str, words: &str) -> String {
    kept(setup, "POST", path, &body(front, words, true).to_string())
}

/// Reads one response, and nothing that follows it.
async fn next_response(stream: &mut (impl AsyncRead + Unpin)) -> Got {
    let reading = async {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        let head = got(&bytes).head;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            assert!(!head.contains("transfer-encoding"), "{head}");
            let start = bytes.len();
            bytes.resize(start + length.parse::<usize>().unwrap(), 0);
            stream.read_exact(&mut bytes[start..]).await.unwrap();
            return got(&bytes);
        }
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        loop {
            let start = bytes.len();
            while !bytes[start..].ends_with(b"\r\n") {
                bytes.push(stream.read_u8().await.unwrap());
            }
            let line = std::str::from_utf8(&bytes[start..]).unwrap().trim();
            let size = usize::from_str_radix(line, 16).unwrap();
            let end = bytes.len();
            bytes.resize(end + size + 2, 0);
            stream.read_exact(&mut bytes[end..]).await.unwrap();
            if size == 0 {
                return got(&bytes);
            }
        }
    };
    timeout(LONG, reading).await.expect("a whole response")
}

/// A provider that repeats the last words of the question, slowly.
fn echo(pause: u64) -> ReplyScript {
    ReplyScript::from_fn(move |_, request| {
        let words = request.body.to_string();
        let at = words.find("echo-").unwrap();
        let words: String = words[at..]
            .chars()
            .take_while(|sign| *sign != '"' && *sign != '\\')
            .collect();
        ProviderReply {
            pause,
            ..ProviderReply::text(&words)
                .in_deltas(3)
                .in_chunks(ChunkSplit::Size(200))
        }
    })
}

/// Returns the text of a streamed answer.
fn text(front: Wire, answer: &Got) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    // The gateway's own clock, which hyper does not know: the answer was written without it.
    assert!(answer.head.contains("date: thu, 01 jan 1970"), "{answer:?}");
    answer.read(front).0.text()
}

#[tokio::test]
async fn requests_behind_a_streamed_answer_are_answered_in_order() {
    let setup = TestGateway::with(echo(5), settings()).await;
    for (front, path) in FRONTS {
        let mut stream = setup.open().await;
        let questions = [
            question(&setup, front, path, "echo-first"),
            question(&setup, front, path, "echo-second"),
            kept(&setup, "GET", "/health", ""),
            kept(&setup, "POST", path, "{"),
            question(&setup, front, path, "echo-third"),
        ];
        stream
            .write_all(questions.concat().as_bytes())
            .await
            .unwrap();
        assert_eq!(text(front, &next_response(&mut stream).await), "echo-first");
        assert_eq!(
            text(front, &next_response(&mut stream).await),
            "echo-second"
        );
        assert_eq!(next_response(&mut stream).await.status, 200);
        assert_eq!(next_response(&mut stream).await.status, 400);
        assert_eq!(text(front, &next_response(&mut stream).await), "echo-third");
        // Bytes that come while an answer is streamed, in the middle of a head.
        let fourth = question(&setup, front, path, "echo-fourth");
        let fifth = question(&setup, front, path, "echo-fifth");
        stream.write_all(fourth.as_bytes()).await.unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).await.unwrap();
        let middle = fifth.len() / 3;
        stream.write_all(&fifth.as_bytes()[..middle]).await.unwrap();
        let answer = next_response(&mut (&first[..]).chain(&mut stream)).await;
        assert_eq!(text(front, &answer), "echo-fourth");
        stream.write_all(&fifth.as_bytes()[middle..]).await.unwrap();
        assert_eq!(text(front, &next_response(&mut stream).await), "echo-fifth");
    }
    let ends = setup.ends(6 * FRONTS.len()).await;
    assert_eq!(ends.iter().filter(|end| end.whole).count(), 5 * 4);
}

#[tokio::test]
async fn a_body_that_waits_for_its_permission_gets_a_streamed_answer() {
    let setup = TestGateway::with(echo(0), settings()).await;
    let mut stream = setup.open().await;
    for words in ["echo-first", "echo-second"] {
        let asked = question(&setup, Wire::OpenAiChat, "/v1/chat/completions", words);
        let asked = asked.replacen("\r\n", "\r\nExpect: 100-continue\r\n", 1);
        let head = asked.find("\r\n\r\n").unwrap() + 4;
        stream.write_all(&asked.as_bytes()[..head]).await.unwrap();
        let mut permission = [0; 25];
        stream.read_exact(&mut permission).await.unwrap();
        assert_eq!(&permission, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(&asked.as_bytes()[head..]).await.unwrap();
        let answer = next_response(&mut stream).await;
        assert_eq!(text(Wire::OpenAiChat, &answer), words);
    }
}

#[tokio::test]
async fn a_connection_with_a_streamed_answer_keeps_its_limits() {
    let limits = GatewayLimits {
        idle: Duration::from_millis(200),
        ..GatewayLimits::default()
    };
    let settings = GatewaySettings {
        limits,
        ..settings()
    };
    // An answer takes longer than a connection may be idle.
    let setup = TestGateway::with(echo(150), settings).await;
    let mut stream = setup.open().await;
    let path = "/v1/chat/completions";
    let asked = question(&setup, Wire::OpenAiChat, path, "echo-first");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let answer = next_response(&mut stream).await;
    assert_eq!(text(Wire::OpenAiChat, &answer), "echo-first");
    let mut rest = Vec::new();
    let closed = timeout(LONG, stream.read_to_end(&mut rest)).await;
    _ = closed.expect("an end of the idle connection");
    assert!(rest.is_empty());
    // The next request is announced in a way that can be misread.
    let mut stream = setup.open().await;
    let other = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let both = [asked.as_str(), other, asked.as_str()].concat();
    stream.write_all(both.as_bytes()).await.unwrap();
    let answer = next_response(&mut stream).await;
    match answer.status {
        // Nothing is answered if all arrived at once.
        400 => {}
        _ => {
            assert_eq!(text(Wire::OpenAiChat, &answer), "echo-first");
            assert_eq!(next_response(&mut stream).await.status, 400);
        }
    }
    let closed = timeout(LONG, stream.read_to_end(&mut rest)).await;
    _ = closed.expect("an end of the connection");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_shutdown_closes_a_connection_after_its_streamed_answer() {
    let mut setup = TestGateway::with(echo(40), settings()).await;
    let mut stream = setup.open().await;
    let asked = question(
        &setup,
        Wire::OpenAiChat,
        "/v1/chat/completions",
        "echo-first",
    );
    let twice = [asked.as_str(), asked.as_str()].concat();
    stream.write_all(twice.as_bytes()).await.unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).await.unwrap();
    setup.tell_to_end();
    let answer = next_response(&mut (&first[..]).chain(&mut stream)).await;
    assert_eq!(text(Wire::OpenAiChat, &answer), "echo-first");
    let mut rest = Vec::new();
    let closed = timeout(LONG, stream.read_to_end(&mut rest)).await;
    _ = closed.expect("an end of the connection");
    assert!(rest.is_empty());
    setup.end().await;
    assert_eq!(setup.ends(1).await.len(), 1);
}
