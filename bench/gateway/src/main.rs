//! Loads a gateway with streams. The three parts are processes of their own, so that each can be pinned:
//!
//! - `upstream ADDRESS DELTAS INTERVAL_MS`: answers each request with that many deltas of the chat completions API, one every
//!   interval; each holds the time at which it was sent;
//! - `proxy ADDRESS TARGET`: passes bytes on, as the floor for every gateway;
//! - `client ADDRESS STREAMS REQUESTS DELTAS MODEL TOKEN`: keeps that many streams open until so many requests were sent, and prints a
//!   line: requests, failures, deltas, the median latency of a delta, its 99th percentile, and the worst, in microseconds.
//!
//! All run on this machine, whose monotonic clock they share.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

type AnyError = Box<dyn Error + Send + Sync>;

/// The beginning of the text that holds the time of a delta.
const MARK: &str = "at=";

/// Returns the time of the monotonic clock in microseconds, which all processes share.
fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["upstream", address, deltas, interval] => {
            serve_upstream(address, deltas.parse()?, interval.parse()?).await
        }
        ["proxy", address, target] => serve_proxy(address, target).await,
        ["client", address, streams, requests, deltas, model, token] => {
            run_client(&ClientPlan {
                address: (*address).to_owned(),
                streams: streams.parse()?,
                requests: requests.parse()?,
                deltas: deltas.parse()?,
                model: (*model).to_owned(),
                token: (*token).to_owned(),
            })
            .await
        }
        _ => Err("usage: see the head of main.rs".into()),
    }
}

/// Reads the head and the body of an HTTP message whose body has a length. Returns false at the end of the connection.
async fn read_request(
    stream: &mut BufReader<TcpStream>,
    body: &mut Vec<u8>,
) -> Result<bool, AnyError> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    body.resize(length, 0);
    stream.read_exact(body).await?;
    Ok(true)
}

/// Serves streams of deltas, any number of them at once.
async fn serve_upstream(address: &str, deltas: u32, interval_ms: u64) -> Result<(), AnyError> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A client may break off.
            _ = answer_requests(stream, deltas, interval_ms).await;
        });
    }
}

/// Answers the requests of a connection.
async fn answer_requests(stream: TcpStream, deltas: u32, interval_ms: u64) -> Result<(), AnyError> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut body = Vec::new();
    while read_request(&mut stream, &mut body).await? {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        // Spread over the interval, so that the streams do not send in step.
        let offset = now_us() % (interval_ms * 1000).max(1);
        let first = Instant::now() + Duration::from_micros(offset);
        let mut ticks = interval_at(first, Duration::from_millis(interval_ms.max(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..deltas {
            ticks.tick().await;
            let content = format!("{MARK}{} ", now_us());
            send_event(&mut stream, &delta_json(&content, "null")).await?;
        }
        send_event(&mut stream, &delta_json("", "\"stop\"")).await?;
        send_event(&mut stream, "[DONE]").await?;
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

/// Renders a chunk of the chat completions API.
fn delta_json(content: &str, reason: &str) -> String {
    format!(
        "{{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":{reason}}}]}}"
    )
}

/// Sends an event in a chunk of its own.
async fn send_event(stream: &mut BufReader<TcpStream>, data: &str) -> Result<(), AnyError> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk.as_bytes()).await?;
    Ok(())
}

/// Passes bytes on in both directions.
async fn serve_proxy(address: &str, target: &str) -> Result<(), AnyError> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (mut near, _) = listener.accept().await?;
        near.set_nodelay(true)?;
        let target = target.to_owned();
        tokio::spawn(async move {
            if let Ok(mut far) = TcpStream::connect(target).await
                && far.set_nodelay(true).is_ok()
            {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}

/// The load of a client.
struct ClientPlan {
    address: String,
    streams: u64,
    requests: u64,
    deltas: u64,
    model: String,
    token: String,
}

/// The results of all streams.
#[derive(Default)]
struct ClientCounts {
    started: AtomicU64,
    failures: AtomicU64,
}

/// Keeps streams open until all requests were sent, and prints the figures.
async fn run_client(plan: &ClientPlan) -> Result<(), AnyError> {
    let counts = Arc::new(ClientCounts::default());
    let body = format!(
        "{{\"model\":\"{}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"go\"}}],\"tools\":[{{\"type\":\"function\",\
         \"function\":{{\"name\":\"read_file\",\"parameters\":{{\"type\":\"object\",\"properties\":{{\"path\":{{\"type\":\"string\"}}}}}}}}}}]}}",
        plan.model
    );
    let request = Arc::new(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        plan.address,
        plan.token,
        body.len()
    ));
    let mut running = Vec::new();
    for _ in 0..plan.streams {
        let request = Arc::clone(&request);
        let counts = Arc::clone(&counts);
        let address = plan.address.clone();
        let (requests, deltas) = (plan.requests, plan.deltas);
        running.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut open = None;
            while counts.started.fetch_add(1, Ordering::Relaxed) < requests {
                let answered = ask(&mut open, &address, &request, deltas, &mut latencies).await;
                if answered.is_err() {
                    open = None;
                    counts.failures.fetch_add(1, Ordering::Relaxed);
                }
            }
            latencies
        }));
    }
    let mut all = Vec::new();
    for stream in running {
        all.extend(stream.await?);
    }
    all.sort_unstable();
    let at = |share: f64| -> u32 {
        let index = (all.len() as f64 * share) as usize;
        all.get(index.min(all.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0)
    };
    println!(
        "{} {} {} {} {} {}",
        plan.requests,
        counts.failures.load(Ordering::Relaxed),
        all.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

/// Sends a request, and reads its answer to the end. An answer without all its deltas is an error.
async fn ask(
    open: &mut Option<BufReader<TcpStream>>,
    address: &str,
    request: &str,
    deltas: u64,
    latencies: &mut Vec<u32>,
) -> Result<(), AnyError> {
    if open.is_none() {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        *open = Some(BufReader::with_capacity(2048, stream));
    }
    let Some(stream) = open.as_mut() else {
        return Err("no connection".into());
    };
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(line.into());
    }
    let mut got = 0;
    let mut is_done = false;
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err("the answer broke off".into());
        }
        if let Some((_, rest)) = line.split_once(MARK) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let latency = now_us().saturating_sub(digits.parse()?);
            latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
            got += 1;
        }
        is_done |= line.starts_with("data: [DONE]");
        // The last chunk.
        if is_done && line == "0\r\n" {
            stream.read_line(&mut line).await?;
            break;
        }
    }
    if got == deltas {
        Ok(())
    } else {
        Err(format!("{got} deltas of {deltas}").into())
    }
}
