//! A provider that costs next to nothing: it does not read the requests, only counts and times them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::process;

/// Looked at every so many requests only: it takes longer than a turn.
const MEMORY_EVERY: usize = 49;

/// The bodies of the answers, in their order.
pub(crate) struct Answers(Vec<String>);

/// A request, seen from outside.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When its last byte was here.
    pub(crate) came: Instant,
    /// When the last byte of the answer had left.
    pub(crate) answered: Instant,
    /// Of its body.
    pub(crate) bytes: u64,
    /// Of the process that asked, in seconds.
    pub(crate) cpu: f64,
    /// Of the process that asked, in kilobytes.
    pub(crate) memory: u64,
    /// Of the journal, in bytes.
    pub(crate) journal: u64,
}

pub(crate) struct Provider {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    /// The process that asks.
    process: Arc<AtomicU32>,
}

/// What a connection needs.
#[derive(Clone)]
struct Desk {
    answers: Arc<Vec<String>>,
    requests: Arc<Mutex<Vec<Request>>>,
    process: Arc<AtomicU32>,
    journals: PathBuf,
}

impl Answers {
    /// So many turns with one call each, and the completion.
    pub(crate) fn calls(turns: usize, call: impl Fn(usize) -> (&'static str, Value)) -> Self {
        let mut bodies: Vec<_> = (0..turns)
            .map(|turn| body(&calling(turn, call(turn))))
            .collect();
        bodies.push(completion(turns));
        Self(bodies)
    }

    /// Words in pieces of so many bytes, then the completion.
    pub(crate) fn text_then_completion(text: &str, piece: usize) -> Self {
        let pieces = text
            .as_bytes()
            .chunks(piece)
            .map(|piece| json!({"content": String::from_utf8_lossy(piece)}));
        Self(vec![
            body(&pieces.chain([json!({})]).collect::<Vec<_>>()),
            completion(1),
        ])
    }
}

fn completion(turn: usize) -> String {
    body(&calling(
        turn,
        ("attempt_completion", json!({"result": "done"})),
    ))
}

fn calling(turn: usize, (tool, arguments): (&str, Value)) -> Vec<Value> {
    let function = json!({"name": tool, "arguments": arguments.to_string()});
    let call =
        json!({"index": 0, "id": format!("call_{turn}"), "type": "function", "function": function});
    vec![json!({"role": "assistant", "tool_calls": [call]})]
}

/// A stream of Chat Completions.
fn body(deltas: &[Value]) -> String {
    let reason = if deltas.iter().any(|delta| delta.get("tool_calls").is_some()) {
        "tool_calls"
    } else {
        "stop"
    };
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let events = deltas
        .iter()
        .map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}))
        .chain([last]);
    events
        .map(|event| format!("data: {event}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect()
}

impl Provider {
    pub(crate) fn start(Answers(answers): Answers, journals: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, process) = (Arc::default(), Arc::new(AtomicU32::new(0)));
        let desk = Desk {
            answers: Arc::new(answers),
            requests: Arc::clone(&requests),
            process: Arc::clone(&process),
            journals,
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = desk.clone();
                std::thread::spawn(move || desk.serve(stream));
            }
        });
        Self {
            port,
            requests,
            process,
        }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn watch(&self, process: u32) {
        self.process.store(process, Ordering::Relaxed);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Desk {
    fn serve(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::with_capacity(1 << 20, stream);
        while let Some(bytes) = read(&mut reader) {
            let came = Instant::now();
            let number = self.requests.lock().unwrap().len();
            let process = self.process.load(Ordering::Relaxed);
            let last = number + 1 >= self.answers.len();
            let memory = if number.is_multiple_of(MEMORY_EVERY) || last {
                process::memory(process)
            } else {
                0
            };
            let (cpu, journal) = (process::cpu(process), self.journal());
            let body = self.answers.get(number).map_or("", String::as_str);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // A task that ends early hangs up: its exit code tells.
            _ = reader.get_mut().write_all((head + body).as_bytes());
            let answered = Instant::now();
            self.requests.lock().unwrap().push(Request {
                came,
                answered,
                bytes,
                cpu,
                memory,
                journal,
            });
        }
    }

    fn journal(&self) -> u64 {
        let files = std::fs::read_dir(&self.journals)
            .into_iter()
            .flatten()
            .flatten();
        let journals =
            files.filter(|file| file.path().extension().is_some_and(|end| end == "journal"));
        journals
            .filter_map(|file| file.metadata().ok())
            .map(|file| file.len())
            .sum()
    }
}

/// Reads a request away; the bytes of its body.
fn read(reader: &mut BufReader<TcpStream>) -> Option<u64> {
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            bytes = length.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.by_ref().take(bytes), &mut std::io::sink()).ok()?;
    Some(bytes)
}
