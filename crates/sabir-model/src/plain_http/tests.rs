//! Compares the client to reqwest, with servers that write given bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use sabir_wire::Wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::network::NetworkTransport;
use crate::provider::Provider;
use crate::transport::Transport;

/// A time that no test waits for.
const LONG: Duration = Duration::from_secs(3600);

/// A response as a client received it: status, headers, body, and whether it ended without an error.
type Seen = Result<(u16, Vec<(String, String)>, Vec<u8>, bool), TransportErrorKind>;

/// A server that gives each request the next of its answers, and then closes the connection, unless the
/// answer says otherwise.
struct Server {
    /// Its base URL.
    url: String,
    /// The number of connections so far.
    connections: Arc<AtomicUsize>,
    /// The heads and bodies of the requests so far.
    requests: Arc<Mutex<Vec<String>>>,
}

/// An answer: its bytes, the size of the pieces in which they are written, and whether another request
/// follows on the connection.
#[derive(Clone)]
struct Answer {
    bytes: Vec<u8>,
    piece: usize,
    keeps: bool,
}

fn answer(text: &str) -> Answer {
    Answer {
        bytes: text.as_bytes().to_vec(),
        piece: usize::MAX,
        keeps: false,
    }
}

fn kept(text: &str) -> Answer {
    Answer {
        keeps: true,
        ..answer(text)
    }
}

/// Reads a request with a length.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .unwrap();
            if body.len() >= length.parse().unwrap() {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

impl Server {
    async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (counter, log) = (Arc::clone(&connections), Arc::clone(&requests));
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                while let Some(request) = read_request(&mut stream).await {
                    log.lock().unwrap().push(request);
                    let Some(answer) = answers.next() else {
                        return;
                    };
                    for piece in answer.bytes.chunks(answer.piece.max(1)) {
                        if stream.write_all(piece).await.is_err() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    if !answer.keeps {
                        break;
                    }
                }
            }
        });
        Self {
            url,
            connections,
            requests,
        }
    }

    fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn transport(plain: bool) -> NetworkTransport {
    let provider = Provider::new("p", Wire::OpenAiChat, "http://127.0.0.1", None);
    let network = NetworkTransport::new(&provider, LONG);
    match plain {
        true => network.with_many_connections(),
        false => network,
    }
}

fn post(url: &str, body: &str) -> HttpRequest {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    HttpRequest {
        url: format!("{url}/v1/chat?a=b%20c"),
        headers,
        body: body.as_bytes().to_vec(),
    }
}

/// Sends a request and reads its response to the end.
async fn receive(network: &NetworkTransport, request: &HttpRequest) -> Seen {
    let mut response = network
        .send(request, LONG)
        .await
        .map_err(|error| error.kind)?;
    let mut body = Vec::new();
    let is_whole = loop {
        match response.body.next_chunk(LONG).await {
            Ok(Some(chunk)) => body.extend(chunk),
            Ok(None) => break true,
            Err(error) => {
                assert_eq!(error.kind, TransportErrorKind::Broken);
                break false;
            }
        }
    };
    let mut headers = response.headers;
    headers.sort();
    Ok((response.status, headers, body, is_whole))
}

#[tokio::test]
async fn responses_are_read_as_reqwest_reads_them() {
    let texts = [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200\r\n\r\nno reason",
        "HTTP/1.1 200 Alles gut, ja\r\nx-y:  z \r\nx-y: second\r\n\r\nx",
        "HTTP/1.0 200 OK\r\n\r\nold",
        "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 500 Error\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nt: u\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nx: \u{e4}\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nbad header: x\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2",
        "HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 99 Short\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "<html>not HTTP</html>\r\n\r\n",
        "",
    ];
    for text in texts {
        for piece in [1, 7, usize::MAX] {
            let given = Answer {
                piece,
                ..answer(text)
            };
            let server = Server::start(vec![given.clone(), given]).await;
            let request = post(&server.url, "{}");
            let reqwest = receive(&transport(false), &request).await;
            let plain = receive(&transport(true), &request).await;
            assert_eq!(plain, reqwest, "{text:?} in pieces of {piece}");
        }
    }
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}\r\nok",
        "x: y\r\n".repeat(MAX_HEADERS + 1)
    );
    let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES + 1));
    for text in [many, long] {
        let server = Server::start(vec![answer(&text)]).await;
        let seen = receive(&transport(true), &post(&server.url, "{}")).await;
        assert_eq!(seen, Err(TransportErrorKind::Broken), "{:.20}", text);
    }
}

#[tokio::test]
async fn the_same_request_is_sent_as_by_reqwest() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let server = Server::start(vec![answer(ok), answer(ok)]).await;
    let request = post(&server.url, "{\"a\": 1}");
    for plain in [false, true] {
        receive(&transport(plain), &request).await.unwrap();
    }
    let requests = server.requests.lock().unwrap();
    let lines = |index: usize| {
        let mut lines: Vec<_> = requests[index].lines().collect();
        // The order of the headers has no meaning.
        lines[1..].sort_unstable();
        lines
    };
    assert_eq!(lines(1), lines(0));
}

#[tokio::test]
async fn a_connection_is_used_again_where_the_server_keeps_it() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let surplus = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more";
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    for (first, connections) in [
        (kept(ok), 1),
        (kept(chunked), 1),
        (kept(empty), 1),
        (kept(closing), 2),
        (kept(surplus), 2),
        (kept(old), 2),
        // It says nothing, and closes.
        (answer(ok), 2),
    ] {
        let server = Server::start(vec![first.clone(), kept(ok)]).await;
        let network = transport(true);
        let request = post(&server.url, "{}");
        receive(&network, &request).await.unwrap();
        if !first.keeps {
            // Until the end has arrived.
            let pool = &network.plain_http_client().unwrap().pool;
            while pool.lock_state().connections[0].is_usable() {
                tokio::task::yield_now().await;
            }
        }
        // The server serves one connection after the other.
        let text = String::from_utf8_lossy(&first.bytes).into_owned();
        let (status, ..) = receive(&network, &request).await.expect(&text);
        assert_eq!(
            (status, server.connection_count()),
            (200, connections),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_received() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        // Reads nothing, and stays open.
        std::future::pending::<()>().await;
    });
    let network = transport(true);
    let request = post(&url, &"x".repeat(16 << 20));
    let (status, _, body, is_whole) = receive(&network, &request).await.unwrap();
    assert_eq!((status, body.as_slice(), is_whole), (413, &b"no"[..], true));
    // The rest of the request would be read as the next one.
    let pool = &network.plain_http_client().unwrap().pool;
    assert!(pool.lock_state().connections.is_empty());
}

#[tokio::test]
async fn the_rest_of_a_request_is_sent_after_the_head_of_the_response() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
        let end = "2\r\ncd\r\n0\r\n\r\n";
        let mut sizes = Vec::new();
        // The connection is used again.
        for _ in 0..2 {
            stream.readable().await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            sizes.push(read_request(&mut stream).await.unwrap().len());
            stream.write_all(end.as_bytes()).await.unwrap();
        }
        sizes
    });
    let network = transport(true);
    let request = post(&url, &"x".repeat(16 << 20));
    for _ in 0..2 {
        let (status, _, body, is_whole) = receive(&network, &request).await.unwrap();
        assert_eq!(
            (status, body.as_slice(), is_whole),
            (200, &b"abcd"[..], true)
        );
    }
    let sizes = serving.await.unwrap();
    assert!(sizes.iter().all(|size| *size > request.body.len()));
}

#[tokio::test]
async fn deadlines_and_dropped_bodies_close_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let network = transport(true);
    let request = post(&url, "{}");
    let soon = Duration::from_millis(50);
    let serve = async {
        for head in ["", "HTTP/1.1 200 OK\r\n\r\nx", "HTTP/1.1 200 OK\r\n\r\nx"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            // Ends when the client closes.
            let mut rest = Vec::new();
            _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        }
    };
    let request_thrice = async {
        let silent = network.send(&request, network.now() + soon).await;
        assert_eq!(silent.err(), Some(TransportError::timed_out()));
        let mut response = network.send(&request, LONG).await.unwrap();
        let first = response.body.next_chunk(LONG).await;
        assert_eq!(first, Ok(Some(b"x".to_vec())));
        let second = response.body.next_chunk(network.now() + soon).await;
        assert_eq!(second, Err(TransportError::timed_out()));
        drop(response);
        drop(network.send(&request, LONG).await.unwrap());
    };
    tokio::join!(serve, request_thrice);
}

#[tokio::test]
async fn a_host_that_refuses_or_does_not_exist_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let refused = transport(true).send(&post(&url, "{}"), LONG).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.kind, TransportErrorKind::Connect);
    assert!(refused.cause.contains("refused"), "{}", refused.cause);
    let unknown = transport(true)
        .send(&post("http://host.invalid", "{}"), LONG)
        .await;
    assert_eq!(unknown.err().unwrap().kind, TransportErrorKind::Connect);
}

#[tokio::test]
async fn unused_connections_are_closed() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let server = Server::start(vec![kept(ok)]).await;
    let network = transport(true);
    receive(&network, &post(&server.url, "{}")).await.unwrap();
    let pool = Arc::clone(&network.plain_http_client().unwrap().pool);
    assert_eq!(pool.lock_state().connections.len(), 1);
    tokio::time::pause();
    tokio::time::sleep(IDLE_LIMIT + 2 * SWEEP_INTERVAL).await;
    assert!(pool.lock_state().connections.is_empty());
    assert!(!pool.lock_state().is_swept);
}

#[test]
fn targets_are_addresses_without_tls_and_passwords() {
    let target = |host: &str, port: u16, authority: &str, path: &str| {
        Some(PlainHttpTarget {
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    };
    for (url, expected) in [
        (
            "http://a.example/v1",
            target("a.example", 80, "a.example", "/v1"),
        ),
        (
            "http://a.example:80",
            target("a.example", 80, "a.example", "/"),
        ),
        (
            "http://127.0.0.1:8000/v1?x=1",
            target("127.0.0.1", 8000, "127.0.0.1:8000", "/v1?x=1"),
        ),
        ("http://[::1]:8000/", target("::1", 8000, "[::1]:8000", "/")),
        (
            "http://b\u{fc}cher.example/ \r\n",
            target("xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/"),
        ),
        ("https://a.example/", None),
        ("http://user:word@a.example/", None),
        ("http://user@a.example/", None),
        ("a.example", None),
        ("", None),
    ] {
        assert_eq!(PlainHttpTarget::from_url(url), expected, "{url}");
    }
}
