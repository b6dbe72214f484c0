//! Measures the latency of streamed arguments (100 KiB over five seconds, over real sockets), and the time until a provider
//! sees that a client has disconnected.
//!
//! `cargo bench -p sabir-gateway --bench latency` prints, for each spelling of the call, the milliseconds from the moment at which
//! the provider sends the first byte of the argument to the client's first delta of arguments, the same for the first byte of
//! the value, and the most bytes of the value that the client still lacked when the next piece was due. Then, for 200 streams at
//! once, the milliseconds from the client closing its connection to the provider seeing its own connection close.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use sabir_call::{Event, ToolProtocol};
use sabir_gateway::{
    Gateway, GatewayLimits, GatewaySettings, ModelRoute, NullObserver, RepairMode, RouteTable,
};
use sabir_model::{CallerScope, HttpModel, Provider};
use sabir_wire::{BodyEnd, ResponseDecoder, Wire};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

const PIECES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);
const PIECE: usize = 2048;

/// The number of streams whose clients disconnect.
const LEAVING: usize = 200;

/// A way to write a call: its name, and the text before and after the value.
const SPELLINGS: [(&str, &str, &str); 5] = [
    ("native", "{\"content\": \"", "\"}"),
    (
        "hermes",
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
        "\"}}\n</tool_call>",
    ),
    ("cline", "<write><content>", "</content></write>"),
    (
        "cline, on lines of its own",
        "<write>\n<content>\n",
        "\n</content>\n</write>",
    ),
    (
        "qwen3_coder",
        "<tool_call>\n<function=write>\n<parameter=content>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
];

#[tokio::main]
async fn main() -> io::Result<()> {
    // `cargo test` runs this too, and five seconds for each row would be too long.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("| spelling | first delta, ms | first byte of the value, ms | held back, bytes |");
    println!("| --- | --- | --- | --- |");
    for (name, open, close) in SPELLINGS {
        let (delta, byte, held) = measure(name == "native", open, close).await?;
        println!(
            "| {name} | {:.1} | {:.1} | {held} |",
            delta.as_secs_f64() * 1e3,
            byte.as_secs_f64() * 1e3
        );
    }
    let mut times = leave().await?;
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get((LEAVING * share / 100).min(LEAVING - 1))
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    println!("\n| streams that are left | p50, ms | p99, ms | most, ms |");
    println!("| --- | --- | --- | --- |");
    println!(
        "| {LEAVING} | {:.2} | {:.2} | {:.2} |",
        at(50),
        at(99),
        at(100)
    );
    Ok(())
}

/// Measures for each stream the time from the client's close to the provider's.
async fn leave() -> io::Result<Vec<Duration>> {
    let provider = TcpListener::bind("127.0.0.1:0").await?;
    let address = gateway(&provider).await?;
    let mut streams = JoinSet::new();
    for number in 0..LEAVING {
        let client = asking(address).await?;
        let back = begun(&provider).await?;
        streams.spawn(left(
            client,
            back,
            PAUSE * 20 + Duration::from_millis(7) * (number as u32 % 50),
        ));
    }
    let mut times = Vec::new();
    while let Some(left) = streams.join_next().await {
        times.push(left.map_err(io::Error::other)??);
    }
    Ok(times)
}

/// The client disconnects after that time, in the middle of the response.
async fn left(mut client: TcpStream, back: TcpStream, after: Duration) -> io::Result<Duration> {
    let (mut reader, mut writer) = back.into_split();
    let (told, mut tell) = oneshot::channel::<()>();
    let speaking = tokio::spawn(async move {
        let chunk =
            json!({"choices": [{"index": 0, "delta": {"content": "one word after the other "}}]});
        let event = format!("data: {chunk}\n\n");
        let speak = async {
            while writer.write_all(event.as_bytes()).await.is_ok() {
                sleep(PAUSE / 5).await
            }
        };
        let closed =
            async { while reader.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
        tokio::select! { () = speak => {}, () = closed => {} }
        drop(told);
        Instant::now()
    });
    let (end, mut piece) = (sleep(after), [0; 4096]);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            read = client.read(&mut piece) => if read? == 0 { return Err(io::Error::other("the answer ended")) },
            _ = &mut tell => return Err(io::Error::other("the provider was left too soon")),
        }
    }
    let start = Instant::now();
    drop(client);
    Ok(speaking.await?.duration_since(start))
}

/// Starts a gateway in front of that provider.
async fn gateway(provider: &TcpListener) -> io::Result<SocketAddr> {
    let base_url = format!("http://{}/v1", provider.local_addr()?);
    let model = HttpModel::new(Provider::new("bench", Wire::OpenAiChat, base_url, None))
        .caller_scope(CallerScope::Many);
    let (id, protocol) = ("behind".to_owned(), ToolProtocol::Native);
    let route = ModelRoute {
        name: "model".to_owned(),
        model: Arc::new(model),
        id,
        protocol,
        repair_mode: RepairMode::Repair,
        provider_wires: Vec::new(),
        limits: sabir_gateway::ModelLimits::default(),
        prices: Vec::new(),
        group: None,
    };
    let (token, hosts, origins, limits) = (None, Vec::new(), Vec::new(), GatewayLimits::default());
    let settings = GatewaySettings {
        token,
        hosts,
        origins,
        limits,
        dialects: sabir_call::dialect::DialectSet::default(),
        seed: 1,
        clock: || UNIX_EPOCH,
    };
    let gateway = Gateway::new(
        RouteTable::default().with_route("model", route),
        settings,
        NullObserver,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { gateway.serve(listener, std::future::pending()).await });
    Ok(address)
}

/// Connects a client and sends its request.
async fn asking(address: SocketAddr) -> io::Result<TcpStream> {
    let parameters = json!({"type": "object", "properties": {"content": {"type": "string"}}});
    let tool = json!({"type": "function", "function": {"name": "write", "parameters": parameters}});
    let messages = json!([{"role": "user", "content": "go"}]);
    let body = json!({"model": "model", "stream": true, "messages": messages, "tools": [tool]})
        .to_string();
    let mut client = TcpStream::connect(address).await?;
    let head = format!(
        "Host: {address}\r\nConnection: close\r\nContent-Length: {}",
        body.len()
    );
    client
        .write_all(format!("POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").as_bytes())
        .await?;
    Ok(client)
}

/// Accepts the next request as the provider, and sends the head of the response.
async fn begun(provider: &TcpListener) -> io::Result<TcpStream> {
    let (mut stream, _) = provider.accept().await?;
    stream.set_nodelay(true)?;
    let _ = stream.read_buf(&mut Vec::with_capacity(64 << 10)).await?;
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
        )
        .await?;
    Ok(stream)
}

async fn measure(native: bool, open: &str, close: &str) -> io::Result<(Duration, Duration, usize)> {
    let provider = TcpListener::bind("127.0.0.1:0").await?;
    let address = gateway(&provider).await?;
    let mut client = asking(address).await?;
    let mut stream = begun(&provider).await?;
    if native {
        let call = json!({"index": 0, "id": "c", "function": {"name": "write", "arguments": ""}});
        say(&mut stream, &json!({"tool_calls": [call]})).await?;
    }
    speak(&mut stream, native, open).await?;
    let start = Instant::now();
    let (mut bytes, mut first, mut byte, mut held) = (Vec::new(), None, None, 0);
    let piece = "0123456789abcdef".repeat(PIECE / 16);
    for count in 1..=PIECES {
        speak(&mut stream, native, &piece).await?;
        let due = Instant::now() + PAUSE;
        let mut seen = (false, 0);
        while let Ok(read) = tokio::time::timeout_at(due.into(), client.read_buf(&mut bytes)).await
        {
            read?;
            seen = arguments(&bytes);
            first = first.or(seen.0.then(|| start.elapsed()));
            byte = byte.or((seen.1 > 0).then(|| start.elapsed()));
        }
        held = held.max((count * PIECE).saturating_sub(seen.1));
    }
    speak(&mut stream, native, close).await?;
    Ok((first.unwrap_or_default(), byte.unwrap_or_default(), held))
}

async fn speak(stream: &mut TcpStream, native: bool, text: &str) -> io::Result<()> {
    if native {
        return say(
            stream,
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
        )
        .await;
    }
    say(stream, &json!({"content": text})).await
}

async fn say(stream: &mut TcpStream, delta: &Value) -> io::Result<()> {
    let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
    stream
        .write_all(format!("data: {chunk}\n\n").as_bytes())
        .await
}

/// Returns true if an argument has begun, and the number of its bytes that the client has.
fn arguments(bytes: &[u8]) -> (bool, usize) {
    // The lines around the chunks of the transfer are not events, and are not counted.
    let text: String = String::from_utf8_lossy(bytes)
        .lines()
        .filter(|line| line.starts_with("data: "))
        .fold(String::new(), |text, line| format!("{text}{line}\n\n"));
    let (mut begun, mut count) = (false, 0);
    let mut sink = |event: Event<'_>| match event {
        Event::ArgStart { .. } => begun = true,
        Event::ArgDelta { text, .. } => count += text.len(),
        _ => {}
    };
    let mut decoder = ResponseDecoder::new(Wire::OpenAiChat);
    decoder.push(text.as_bytes(), &mut sink);
    let _ = decoder.finish(BodyEnd::Clean, &mut sink);
    (begun, count)
}
