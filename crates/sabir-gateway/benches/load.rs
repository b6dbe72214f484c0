//! Measures the latency, CPU time and memory that the gateway adds: many streams at once through it, compared to the same streams
//! directly to the back end, through a plain TCP proxy, and through other gateways.
//!
//! `cargo bench -p sabir-gateway --bench load -- [--streams N] [--seconds N] [--rate N] [--sabir PROGRAM] [--litellm PROGRAM]
//! [--router PROGRAM] [--portkey PROGRAM]`
//!
//! Every record of a stream carries the stream's number, its own number and the time at which the back end wrote it. Back end,
//! gateway and clients are separate processes; the gateway has processor 0 for itself, the others share the rest. `--rate` is the
//! number of records a second of each stream. `--sabir` measures an installed `sabir gateway` instead of the one that is linked in
//! here. The last three are paths of installed programs (litellm, claude-code-router's `ccr`, and Portkey's `start-server.js`), which
//! translate the same at a lower rate. `--loads` leaves out the measurement of single pieces. `--test` is a short run that fails if a stream does.
//!
//! Three other runs measure nothing, but fail if the gateway does something wrong: `--requests N` sends that many short requests and
//! watches memory and descriptors, `--failover SECONDS` kills and restarts one of two back ends under load, and `--soak MINUTES` mixes
//! answers with faults and clients that disconnect.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking, and prints"
)]

use std::net::SocketAddr;
use std::path::Path;
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
use tokio::net::{TcpListener, TcpStream};

#[path = "load/back.rs"]
mod back;
#[path = "load/client.rs"]
mod client;
#[path = "load/process.rs"]
mod process;
#[path = "load/soak.rs"]
mod soak;

use back::{Fault, Order};
use client::{Asked, Outcome};
use process::{Process, Used};

/// The processor of the gateway that is measured.
const GATEWAY_CORE: &str = "0";

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
    let role = arguments.first().map(String::as_str);
    let measures = !matches!(role, Some("back" | "proxy" | "gateway"));
    let others = (1..cores()).map(|core| core.to_string());
    let others = others.reduce(|list, core| format!("{list},{core}"));
    let others = others.unwrap_or_else(|| GATEWAY_CORE.to_owned());
    if measures {
        process::pin_self(&others);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores())
        .enable_all()
        .build()
        .unwrap();
    match role {
        Some("back") => {
            let port = arguments.get(1).map_or(0, |port| port.parse().unwrap());
            return runtime.block_on(serve_back(port));
        }
        Some("proxy") => return runtime.block_on(serve_proxy(arguments[1].parse().unwrap())),
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
    let sabir = value("--sabir");
    runtime.block_on(async {
        let bench = Bench {
            back: Process::role(&["back"], &others),
            sabir,
        };
        let checks = [
            value("--requests").map(|number| soak::GatewayCheck::Requests(number.parse().unwrap())),
            value("--failover").map(|number| soak::GatewayCheck::Failover(number.parse().unwrap())),
            value("--soak").map(|number| soak::GatewayCheck::Soak(number.parse().unwrap())),
        ];
        if checks.iter().any(Option::is_some) {
            for check in checks.into_iter().flatten() {
                soak::run_check(check, bench.sabir.as_deref(), &others).await;
            }
            return;
        }
        if test {
            for check in [
                soak::GatewayCheck::Requests(500),
                soak::GatewayCheck::Failover(3),
                soak::GatewayCheck::Soak(0),
            ] {
                soak::run_check(check, bench.sabir.as_deref(), &others).await;
            }
        } else if !arguments.iter().any(|argument| argument == "--loads") {
            bench.measure_first_pieces().await;
        }
        bench.measure_loads(load, test).await;
        for peer in [
            PeerGateway::Litellm,
            PeerGateway::Router,
            PeerGateway::Portkey,
        ] {
            if let Some(program) = value(peer.option()) {
                bench.measure_peer(peer, &program, load).await;
            }
        }
    });
}

/// Returns the number of processors.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

async fn serve_back(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    back::serve(listener).await;
}

/// Copies bytes in both directions: the least that a process between client and server can do.
async fn serve_proxy(back: SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut server = TcpStream::connect(back).await.unwrap();
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            // A side that disconnects ends the connection of the other side.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
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
                repair_mode: RepairMode::Repair,
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
        limits: GatewayLimits {
            connections: 10_000,
            answers: 10_000,
            ..GatewayLimits::default()
        },
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

/// The pairs of front and back whose streams are counted.
const PAIRS: [(Wire, Wire, Mode); 5] = [
    (Wire::OpenAiChat, Wire::OpenAiChat, NATIVE),
    (Wire::OpenAiChat, Wire::Anthropic, NATIVE),
    (Wire::Anthropic, Wire::OpenAiChat, NATIVE),
    (Wire::Anthropic, Wire::OpenAiChat, CLINE),
    (Wire::OpenAiResponses, Wire::OpenAiChat, CLINE),
];

/// Another gateway to measure, if it is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerGateway {
    /// litellm's proxy, in Python.
    Litellm,
    /// claude-code-router, for Node: Anthropic's API in front of Chat Completions.
    Router,
    /// Portkey's gateway, for Node: Chat Completions in front of Anthropic's API.
    Portkey,
}

impl PeerGateway {
    /// Returns the option with the path of its program.
    fn option(self) -> &'static str {
        match self {
            Self::Litellm => "--litellm",
            Self::Router => "--router",
            Self::Portkey => "--portkey",
        }
    }

    /// Returns the pairs of front and back that it translates.
    fn pairs(self) -> &'static [(Wire, Wire)] {
        const TO_ANTHROPIC: (Wire, Wire) = (Wire::OpenAiChat, Wire::Anthropic);
        const TO_CHAT: (Wire, Wire) = (Wire::Anthropic, Wire::OpenAiChat);
        match self {
            Self::Litellm => &[TO_ANTHROPIC, TO_CHAT],
            Self::Router => &[TO_CHAT],
            Self::Portkey => &[TO_ANTHROPIC],
        }
    }

    /// Returns the name of the model that a client asks for, for that back.
    fn model_name(self, wire: Wire) -> String {
        match self {
            Self::Litellm => format!("{wire}.native"),
            Self::Router => "back,as-native".to_owned(),
            Self::Portkey => "as-native".to_owned(),
        }
    }

    /// Returns the headers by which it finds the back end.
    fn headers(self, back: SocketAddr) -> String {
        match self {
            Self::Portkey => format!(
                "x-portkey-provider: anthropic\r\nx-portkey-custom-host: http://{back}/v1\r\n"
            ),
            Self::Litellm | Self::Router => String::new(),
        }
    }

    /// Starts it; `None` if it does not answer within two minutes.
    fn start_process(self, program: &str, folder: &Path, back: SocketAddr) -> Option<Process> {
        match self {
            Self::Litellm => {
                let config = folder.join("litellm.yaml");
                let models = format!(
                    "model_list:\n- model_name: anthropic.native\n  litellm_params: {{model: anthropic/as-native, api_base: \"http://{back}\", api_key: k}}\n\
                     - model_name: openai-chat.native\n  litellm_params: {{model: openai/as-native, api_base: \"http://{back}/v1\", api_key: k}}\n\
                     litellm_settings: {{telemetry: false}}\n"
                );
                std::fs::write(&config, models).unwrap();
                Process::litellm(program, &config, GATEWAY_CORE)
            }
            Self::Router => Process::router(program, folder, back, GATEWAY_CORE),
            Self::Portkey => Process::portkey(program, GATEWAY_CORE),
        }
    }
}

/// The processes of a measurement.
struct Bench {
    /// The server behind the gateways.
    back: Process,
    /// The path of an installed `sabir`, if that is measured.
    sabir: Option<String>,
}

impl Bench {
    /// Starts the gateway.
    fn start_gateway(&self) -> Process {
        let back = self.back.address;
        match &self.sabir {
            None => Process::role(&["gateway", &back.to_string()], GATEWAY_CORE),
            Some(program) => Process::sabir(Path::new(program), &configuration(back), GATEWAY_CORE),
        }
    }

    /// Measures the delays of a 100 KB argument that is written over five seconds.
    async fn measure_first_pieces(&self) {
        let gateway = self.start_gateway();
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
                        headers: String::new(),
                        leaves_after: None,
                    };
                    let order = |stream| Order {
                        stream,
                        events: 200,
                        gap: Duration::from_millis(25),
                        size: 500,
                        fault: Fault::None,
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

    async fn measure_loads(&self, load: Load, test: bool) {
        let Load {
            streams,
            seconds,
            rate,
            size,
        } = load;
        println!(
            "\n{streams} streams of {rate} records of {size} bytes a second for {seconds} s\n"
        );
        println!("{HEADS}");
        for (front, wire, mode) in PAIRS {
            // Measures streams directly from the back end, with the requests that the gateway would
            // send.
            let straight = Asked {
                address: self.back.address,
                front: wire,
                model: format!("as-{}", mode.1),
                headers: String::new(),
                leaves_after: None,
            };
            let (direct, _) = run(&straight, load, &self.back).await;
            let name = format!("{wire}, {}: straight", mode.0);
            println!("{}", row(&name, &direct, None));
            let proxy = Process::role(&["proxy", &self.back.address.to_string()], GATEWAY_CORE);
            let through_proxy = Asked {
                address: proxy.address,
                ..straight
            };
            let (copied, held) = run(&through_proxy, load, &proxy).await;
            let name = format!("{wire}, {}: TCP proxy", mode.0);
            println!("{}", row(&name, &copied, Some((&direct, held))));
            drop(proxy);
            let gateway = self.start_gateway();
            let asked = Asked {
                address: gateway.address,
                front,
                model: format!("{wire}.{}", mode.0),
                headers: String::new(),
                leaves_after: None,
            };
            let (through, held) = run(&asked, load, &gateway).await;
            let name = format!("{front} to {wire}, {}", mode.0);
            println!("{}", row(&name, &through, Some((&direct, held))));
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

    /// Measures the same translation by another gateway, at a rate that it can keep up with.
    async fn measure_peer(&self, peer: PeerGateway, program: &str, load: Load) {
        let folder = tempfile::tempdir().unwrap();
        let back = self.back.address;
        println!("\nBeside {peer:?}\n\n{HEADS}");
        for (front, wire) in peer.pairs().iter().copied() {
            for streams in [20, 50, 100] {
                let load = Load {
                    streams,
                    seconds: load.seconds.min(20),
                    ..load
                };
                // One at a time, since they have the same processor.
                let mut costs = Vec::new();
                for is_peer in [false, true] {
                    let process = if is_peer {
                        peer.start_process(program, folder.path(), back)
                    } else {
                        Some(self.start_gateway())
                    };
                    let Some(process) = process else {
                        println!("skipped: {peer:?} did not answer within two minutes");
                        return;
                    };
                    let asked = Asked {
                        address: process.address,
                        front,
                        model: if is_peer {
                            peer.model_name(wire)
                        } else {
                            format!("{wire}.native")
                        },
                        headers: if is_peer {
                            peer.headers(back)
                        } else {
                            String::new()
                        },
                        leaves_after: None,
                    };
                    // The first request of a process loads what it needs.
                    let order = Order {
                        stream: 0,
                        events: 5,
                        gap: Duration::from_millis(10),
                        size: load.size,
                        fault: Fault::None,
                    };
                    client::ask(&asked, order).await;
                    let (through, held) = run(&asked, load, &process).await;
                    let name = if is_peer {
                        format!("{peer:?}")
                    } else {
                        "Sabir".to_owned()
                    };
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
                    "CPU of {peer:?} a record, of Sabir's: {:.0} ×",
                    costs[1] / costs[0].max(1e-9)
                );
            }
        }
    }
}

/// Returns the configuration of an installed gateway with the routes of [`serve_gateway`].
fn configuration(back: SocketAddr) -> String {
    let mut text = "[gateway.limits]\nconnections = 10000\nanswers = 10000\n".to_owned();
    for wire in BACKS {
        for (name, written, protocol) in MODES {
            let version = if wire.name().starts_with("openai") {
                "/v1"
            } else {
                ""
            };
            text += &format!(
                "[gateway.models.\"{wire}.{name}\"]\nto = \"http://{back}{version}#as-{written}\"\n\
                 wire = \"{wire}\"\nprotocol = \"{protocol}\"\nfaulty_calls = \"repair\"\n"
            );
        }
    }
    text
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
                        fault: Fault::None,
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

const HEADS: &str = "| | records | errors | crossed | p50, ms | p99, ms | added p50, ms | added p99, ms | CPU a record, µs | MB before / most / after | KB a stream |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

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
        return format!("{start} | | | | |");
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
        "{start} {:.2} | {:.2} | {cpu:.1} | {memory} | {stream} |",
        p50 - direct.late(0.5),
        p99 - direct.late(0.99)
    )
}

fn milliseconds(microseconds: u32) -> f64 {
    f64::from(microseconds) / 1000.0
}
