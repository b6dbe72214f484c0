//! Measures the latency and memory that the gateway adds: many streams at once through it, compared to the same streams directly
//! to the back end, and through another gateway.
//!
//! `cargo bench -p sabir-gateway --bench load -- [--streams N] [--seconds N] [--rate N] [--litellm PROGRAM]`
//!
//! Every record of a stream carries the stream's number, its own number and the time at which the back end wrote it. Back end,
//! gateway and clients are separate processes. `--rate` is the number of records a second of each stream; `--litellm` is the path of an
//! installed litellm, which translates the same at a lower rate. `--test` is a short run that fails if a stream does.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking, and prints"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sabir_call::ToolProtocol;
use sabir_call::dialect::DialectSet;
use sabir_gateway::{
    Gateway, GatewayLimits, GatewaySettings, ModelRoute, NullObserver, ProviderWire, RepairMode,
    RouteTable,
};
use sabir_model::{CallerScope, HttpModel, Provider};
use sabir_wire::{Wire, WireOptions};
use tokio::net::TcpListener;

#[path = "load/back.rs"]
mod back;
#[path = "load/client.rs"]
mod client;
#[path = "load/process.rs"]
mod process;

use back::Order;
use client::{Asked, Outcome};
use process::{Process, Used};

const FRONTS: [Wire; 3] = [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses];
const BACKS: [Wire; 3] = [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses];

/// A mode: its name, how the back end writes calls, and how the request asks for them.
type Mode = (&'static str, &'static str, &'static str);
const NATIVE: Mode = ("native", "native", "native");
const CLINE: Mode = ("cline", "cline", "cline");
const MODES: [Mode; 5] = [
    NATIVE,
    CLINE,
    ("invoke", "invoke", "invoke"),
    ("hermes", "hermes", "hermes"),
    ("leaks", "qwen_coder", "native"),
];

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct Load {
    streams: u32,
    seconds: u32,
    rate: u32,
    size: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    match arguments.first().map(String::as_str) {
        Some("back") => return runtime.block_on(serve_back()),
        Some("gateway") => return runtime.block_on(serve_gateway(&arguments[1])),
        _ => {}
    }
    let number = |name: &str, other: u32| value(name).map_or(other, |value| value.parse().unwrap());
    let test = arguments.iter().any(|argument| argument == "--test");
    let load = if test {
        Load {
            streams: 50,
            seconds: 3,
            rate: 10,
            size: 64,
        }
    } else {
        Load {
            streams: number("--streams", 1000),
            seconds: number("--seconds", 60),
            rate: number("--rate", 10),
            size: 64,
        }
    };
    runtime.block_on(async {
        let back = Process::role(&["back"]);
        if !test {
            first_deltas(&back).await;
        }
        loads(&back, load, test).await;
        if let Some(program) = value("--litellm") {
            beside(&back, &program, load).await;
        }
    });
}

async fn serve_back() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    back::serve(listener).await;
}

async fn serve_gateway(back: &str) {
    let mut routes = RouteTable::default();
    for wire in BACKS {
        for (name, written, protocol) in MODES {
            let version = if wire.name().starts_with("openai") {
                "/v1"
            } else {
                ""
            };
            let mut provider = Provider::new("back", wire, format!("http://{back}{version}"), None);
            provider.form = WireOptions {
                streamed: true,
                ..WireOptions::default()
            };
            let back = vec![ProviderWire {
                wire,
                form: provider.form.clone(),
            }];
            let model = HttpModel::new(provider).caller_scope(CallerScope::Many);
            let protocol = if protocol == "native" {
                ToolProtocol::Native
            } else {
                ToolProtocol::Prompted(protocol.to_owned())
            };
            let route = ModelRoute {
                name: "model".to_owned(),
                model: Arc::new(model),
                id: format!("as-{written}"),
                protocol,
                repair_mode: RepairMode::Heal,
                provider_wires: back,
                limits: sabir_gateway::ModelLimits::default(),
                prices: Vec::new(),
                group: None,
            };
            routes = routes.with_route(format!("{wire}.{name}"), route);
        }
    }
    let settings = GatewaySettings {
        token: None,
        hosts: Vec::new(),
        origins: Vec::new(),
        limits: GatewayLimits::default(),
        dialects: DialectSet::default(),
        seed: 1,
        clock: std::time::SystemTime::now,
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    Gateway::new(routes, settings, NullObserver)
        .serve(listener, std::future::pending())
        .await
        .unwrap();
}

/// Measures the delays of a 100 KB argument that is written over five seconds.
async fn first_deltas(back: &Process) {
    let gateway = Process::role(&["gateway", &back.address.to_string()]);
    println!(
        "\nAn argument of 100 KB over 5 s, five times; ms from the writing of a piece to its reading\n"
    );
    println!(
        "| front | back end | mode | the first piece, at the most | of the others, at the most |"
    );
    println!("| --- | --- | --- | ---: | ---: |");
    for front in FRONTS {
        for (wire, modes) in [
            (Wire::Anthropic, &MODES[..1]),
            (Wire::OpenAiChat, &MODES[..]),
        ] {
            for (name, ..) in modes {
                let asked = Asked {
                    address: gateway.address,
                    front,
                    model: format!("{wire}.{name}"),
                };
                let order = |stream| Order {
                    stream,
                    events: 200,
                    gap: Duration::from_millis(25),
                    size: 500,
                };
                let clients: Vec<_> = (0..5)
                    .map(|stream| {
                        let asked = asked.clone();
                        tokio::spawn(async move { client::ask(&asked, order(stream)).await })
                    })
                    .collect();
                let (mut first, mut later) = (0, 0);
                for client in clients {
                    let outcome = client.await.unwrap();
                    assert_eq!(
                        (outcome.error, outcome.crossed),
                        (None, 0),
                        "{front} {wire} {name}"
                    );
                    first = first.max(outcome.late[0]);
                    later = later.max(
                        outcome
                            .late
                            .iter()
                            .skip(1)
                            .copied()
                            .max()
                            .unwrap_or_default(),
                    );
                }
                println!(
                    "| {front} | {wire} | {name} | {:.1} | {:.1} |",
                    milliseconds(first),
                    milliseconds(later)
                );
            }
        }
    }
}

/// The pairs of front and back whose streams are counted.
const PAIRS: [(Wire, Wire, Mode); 4] = [
    (Wire::OpenAiChat, Wire::Anthropic, NATIVE),
    (Wire::Anthropic, Wire::OpenAiChat, NATIVE),
    (Wire::Anthropic, Wire::OpenAiChat, CLINE),
    (Wire::OpenAiResponses, Wire::OpenAiChat, CLINE),
];

async fn loads(back: &Process, load: Load, test: bool) {
    let Load {
        streams,
        seconds,
        rate,
        size,
    } = load;
    println!("\n{streams} streams of {rate} records of {size} bytes a second for {seconds} s\n");
    println!("{HEADS}");
    for (front, wire, mode) in PAIRS {
        // Measures streams directly from the back end, with the requests that the gateway would
        // send.
        let straight = Asked {
            address: back.address,
            front: wire,
            model: format!("as-{}", mode.1),
        };
        let (direct, _) = run(&straight, load, back).await;
        println!(
            "{}",
            row(&format!("{wire}, {}: straight", mode.0), &direct, None)
        );
        let gateway = Process::role(&["gateway", &back.address.to_string()]);
        let asked = Asked {
            address: gateway.address,
            front,
            model: format!("{wire}.{}", mode.0),
        };
        let (through, held) = run(&asked, load, &gateway).await;
        println!(
            "{}",
            row(
                &format!("{front} to {wire}, {}", mode.0),
                &through,
                Some((&direct, held))
            )
        );
        if test {
            assert_eq!(
                (through.errors, through.crossed),
                (0, 0),
                "{}",
                through.example
            );
        }
    }
}

/// Measures the same translation by litellm, at a rate that it can keep up with.
async fn beside(back: &Process, program: &str, load: Load) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("litellm.yaml");
    let address = back.address;
    let models = format!(
        "model_list:\n- model_name: anthropic.native\n  litellm_params: {{model: anthropic/as-native, api_base: \"http://{address}\", api_key: k}}\n\
         - model_name: openai-chat.native\n  litellm_params: {{model: openai/as-native, api_base: \"http://{address}/v1\", api_key: k}}\n\
         litellm_settings: {{telemetry: false}}\n"
    );
    std::fs::write(&config, models).unwrap();
    println!("\nBeside litellm\n\n{HEADS}");
    for (front, wire) in [
        (Wire::OpenAiChat, Wire::Anthropic),
        (Wire::Anthropic, Wire::OpenAiChat),
    ] {
        for streams in [20, 50] {
            let load = Load {
                streams,
                seconds: load.seconds.min(20),
                ..load
            };
            let gateway = Process::role(&["gateway", &address.to_string()]);
            let Some(litellm) = Process::litellm(program, &config) else {
                println!("skipped: litellm did not answer within two minutes");
                return;
            };
            let mut costs = Vec::new();
            for (name, process) in [("Sabir", &gateway), ("litellm", &litellm)] {
                let asked = Asked {
                    address: process.address,
                    front,
                    model: format!("{wire}.native"),
                };
                // The first request of a process loads what it needs.
                let order = Order {
                    stream: 0,
                    events: 5,
                    gap: Duration::from_millis(10),
                    size: load.size,
                };
                client::ask(&asked, order).await;
                let (through, held) = run(&asked, load, process).await;
                println!(
                    "{}",
                    row(
                        &format!("{name}: {front} to {wire}, {streams} streams"),
                        &through,
                        Some((&through, held))
                    )
                );
                if !through.example.is_empty() {
                    println!(
                        "  {}",
                        through.example.chars().take(300).collect::<String>()
                    );
                }
                costs.push(held.cpu / f64::from(through.events.max(1)));
            }
            println!(
                "CPU of litellm an event, of Sabir's: {:.0} ×",
                costs[1] / costs[0].max(1e-9)
            );
        }
    }
}

/// The totals over all streams of a load.
#[derive(Debug, Default)]
struct Total {
    streams: u32,
    events: u32,
    errors: u32,
    crossed: u32,
    /// An error.
    example: String,
    late: Vec<u32>,
}

/// Returns the CPU time and memory of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    cpu: f64,
    before: u64,
    most: u64,
    after: u64,
}

async fn run(asked: &Asked, load: Load, process: &Process) -> (Total, Held) {
    let Used { cpu, memory } = process.used();
    let gap = Duration::from_secs(1) / load.rate;
    let clients: Vec<_> = (0..load.streams)
        .map(|stream| {
            let asked = asked.clone();
            tokio::spawn(async move {
                // Real clients do not all connect in the same millisecond.
                tokio::time::sleep(Duration::from_millis(u64::from(stream))).await;
                client::ask(
                    &asked,
                    Order {
                        stream,
                        events: load.seconds * load.rate,
                        gap,
                        size: load.size,
                    },
                )
                .await
            })
        })
        .collect();
    let most = Arc::new(AtomicU64::new(memory));
    let watch = tokio::spawn(watched(process.id(), Arc::clone(&most)));
    let mut total = Total::default();
    for client in clients {
        total.add(client.await.unwrap());
    }
    watch.abort();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = process.used();
    let most = most.load(Ordering::Relaxed);
    total.late.sort_unstable();
    (
        total,
        Held {
            cpu: now.cpu - cpu,
            before: memory,
            most,
            after: now.memory,
        },
    )
}

/// Samples the memory of a process twice a second.
async fn watched(id: u32, most: Arc<AtomicU64>) {
    loop {
        most.fetch_max(process::used(id).memory, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.streams += 1;
        self.events += u32::try_from(outcome.late.len()).unwrap();
        self.crossed += outcome.crossed;
        if let Some(error) = outcome.error {
            self.errors += 1;
            self.example = error;
        }
        self.late.extend(outcome.late);
    }

    fn late(&self, share: f64) -> f64 {
        let at = (self.late.len() as f64 * share) as usize;
        self.late
            .get(at.min(self.late.len().saturating_sub(1)))
            .map_or(0.0, |late| milliseconds(*late))
    }
}

const HEADS: &str = "| | records | errors | crossed | p50, ms | p99, ms | added p99, ms | CPU a record, µs | MB before / most / after | KB a stream |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

fn row(name: &str, total: &Total, beside: Option<(&Total, Held)>) -> String {
    let Total {
        streams,
        events,
        errors,
        crossed,
        ..
    } = total;
    let (p50, p99) = (total.late(0.5), total.late(0.99));
    let start = format!("| {name} | {events} | {errors} | {crossed} | {p50:.2} | {p99:.2} |");
    let Some((direct, held)) = beside else {
        return format!("{start} | | | |");
    };
    let stream = held.most.saturating_sub(held.before) / u64::from((*streams).max(1));
    let cpu = held.cpu * 1e6 / f64::from((*events).max(1));
    let megabytes = |kilobytes: u64| kilobytes as f64 / 1024.0;
    let memory = format!(
        "{:.0} / {:.0} / {:.0}",
        megabytes(held.before),
        megabytes(held.most),
        megabytes(held.after)
    );
    format!(
        "{start} {:.2} | {cpu:.1} | {memory} | {stream} |",
        p99 - direct.late(0.99)
    )
}

fn milliseconds(microseconds: u32) -> f64 {
    f64::from(microseconds) / 1000.0
}
