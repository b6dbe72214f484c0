//! Tests `sabir gateway` as a user runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sabir_testkit::{ChunkSplit, ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::{Value, json};

use crate::world::{World, code, stderr};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A gateway that runs. It ends when it is dropped.
pub(crate) struct Running {
    child: Child,
    address: String,
    /// What it printed at its start.
    said: String,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let Some(address) = said
            .trim()
            .strip_prefix("listening on http://")
            .map(str::to_owned)
        else {
            errors.read_to_string(&mut said).unwrap();
            panic!("{said}");
        };
        let (line, lines) = channel();
        std::thread::spawn(move || {
            errors
                .lines()
                .map_while(Result::ok)
                .all(|text| line.send(text).is_ok())
        });
        let (rest, more) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in out.lines().map_while(Result::ok) {
                text.push_str(&line);
                text.push('\n');
                _ = rest.send(text.clone());
            }
        });
        // All of it comes in one piece.
        while let Ok(text) = more.recv_timeout(Duration::from_millis(200)) {
            said = text;
        }
        Self {
            child,
            address,
            said,
            lines,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line of standard error with this in it.
    fn line(&self, part: &str) -> String {
        let end = Instant::now() + LONG;
        while let Ok(line) = self
            .lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(part) {
                return line;
            }
        }
        panic!("no line with {part}");
    }

    fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nx-api-key: of-tests\r\nConnection: close\r\n"
        );
        stream
            .write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
            .unwrap();
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        all(self.open(method, path, body))
    }

    /// Waits for the end; returns the exit code and the time that it took.
    fn ended(mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        let status = self.child.wait().unwrap();
        (status.code(), start.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn message(model: &str) -> String {
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    json!({"model": model, "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "read_file", "input_schema": parameters}]})
    .to_string()
}

/// Starts a gateway in front of that provider, with a known token.
pub(crate) fn before(world: &World, provider: &ScriptedProvider, arguments: &[&str]) -> Command {
    let mut command = world.sabir();
    command
        .args(["gateway", "--listen", "127.0.0.1:0", "--token", "of-tests"])
        .args(arguments);
    if !arguments.contains(&"--config") {
        command.args([
            "--to",
            &format!("http://{}", provider.address()),
            "--model",
            "qwen",
        ]);
    }
    command
}

#[test]
fn it_listens_on_loopback_and_prints_its_address() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply::text("hello")));
    let mut command = world.sabir();
    command.args([
        "gateway",
        "--to",
        &format!("http://{}", provider.address()),
        "--model",
        "qwen",
        "--listen",
        "127.0.0.1:0",
    ]);
    let (one, two) = (Running::start(&mut command), Running::start(&mut command));
    assert!(one.address.starts_with("127.0.0.1:"), "{}", one.address);
    let token = |running: &Running| {
        let line = running
            .said
            .lines()
            .find_map(|line| line.strip_prefix("export ANTHROPIC_AUTH_TOKEN="));
        line.unwrap_or_else(|| panic!("{}", running.said))
            .to_owned()
    };
    // A different token each time, which cannot be guessed.
    assert!(token(&one) != token(&two) && token(&one).len() > 40);
    for part in [
        "ANTHROPIC_BASE_URL",
        "model_providers.sabir",
        "openai_compatible",
        "OPENAI_BASE_URL",
        "OLLAMA_HOST",
        "OpenAI Compatible",
    ] {
        assert!(one.said.contains(part), "{}", one.said);
    }
    assert!(one.said.contains(&format!("http://{}/v1", one.address)));
    assert!(
        one.ask("POST", "/v1/messages", &message("qwen"))
            .starts_with("HTTP/1.1 401")
    );
    assert!(provider.received_requests().is_empty());
}

#[test]
fn other_hosts_need_a_token() {
    let world = World::new();
    let check = |arguments: &[&str], expected: i32, words: &str| {
        let output = world
            .sabir()
            .arg("gateway")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(code(&output), expected, "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    let to = ["--to", "http://127.0.0.1:1", "--model", "m"];
    check(
        &[&to[..], &["--listen", "0.0.0.0:0", "--no-token"]].concat(),
        2,
        "a token is needed",
    );
    check(
        &[&to[..], &["--listen", "[::]:0", "--no-token"]].concat(),
        2,
        "a token is needed",
    );
    check(&[&to[..], &["--token", ""]].concat(), 2, "empty");
    check(
        &[&to[..], &["--token", "x", "--no-token"]].concat(),
        2,
        "--no-token",
    );
    check(
        &[&to[..], &["--listen", "nonsense"]].concat(),
        2,
        "nonsense",
    );
    check(
        &[&to[..], &["--faulty-calls", "always"]].concat(),
        2,
        "pass, repair, retry",
    );
    check(
        &[&to[..], &["--protocol", "nothing"]].concat(),
        2,
        "nothing",
    );
    check(
        &[&to[..], &["--wire", "smoke"]].concat(),
        2,
        "openai-responses",
    );
    check(
        &[&to[..], &["--key-env", "NO_SUCH_KEY"]].concat(),
        2,
        "NO_SUCH_KEY",
    );
    check(&["--to", "http://127.0.0.1:1"], 2, "--model");
    check(&[], 2, "no model to serve");
}

#[test]
fn a_text_only_model_gets_native_calls() {
    let world = World::new();
    let text = "Let me look.\n<read_file>\n<path>a.rs</path>\n</read_file>";
    let provider = world.provider(ReplyScript::from_fn(move |_, _| ProviderReply::text(text)));
    let running = Running::start(&mut before(
        &world,
        &provider,
        &["--protocol", "cline", "--explain"],
    ));
    let got = running.ask("POST", "/v1/messages", &message("qwen"));
    assert!(
        got.contains("\"tool_use\"")
            && got.contains("\"name\":\"read_file\"")
            && !got.contains("<read_file>"),
        "{got}"
    );
    assert!(running.line("taught in cline").starts_with("sabir_"));
    let line = running.line("anthropic qwen 200");
    assert!(line.contains("1 call") && !line.contains("a.rs"), "{line}");
    let asked = &provider.received_requests()[0];
    assert_eq!(
        (asked.path.as_str(), asked.body.get("tools")),
        ("/v1/chat/completions", None)
    );
    assert!(asked.body.to_string().contains("<read_file>"));
}

#[test]
fn it_shuts_down_in_time_and_informs_clients() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("Let me look.")
            .with_call("c", "read_file", json!({"path": "a"}))
            .in_deltas(3)
            .with_fault(ScriptedFault::StallAfter(500))
    }));
    let file = world.write(
        "gateway.toml",
        &format!(
            "[gateway.limits]\ndrain_seconds = 1\n[gateway.models.qwen]\nto = \"http://{}\"\n",
            provider.address()
        ),
    );
    for signal in [Signal::TERM, Signal::INT] {
        let running = Running::start(&mut before(
            &world,
            &provider,
            &["--config", file.to_str().unwrap(), "--log", "json"],
        ));
        let mut streams: Vec<_> = (0..20)
            .map(|_| running.open("POST", "/v1/messages", &message("qwen")))
            .collect();
        for stream in &mut streams {
            assert!(stream.read(&mut [0; 400]).unwrap() > 0);
        }
        running.signal(signal);
        for stream in streams {
            let rest = all(stream);
            assert!(
                rest.contains("event: error") && rest.contains("shutting down"),
                "{rest}"
            );
        }
        let line: Value = serde_json::from_str(&running.line("\"status\"")).unwrap();
        assert_eq!(
            (&line["status"], &line["whole"]),
            (&json!(200), &json!(false))
        );
        let (code, took) = running.ended();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
}

#[test]
fn its_configuration_is_reloaded_during_streams() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply {
        pause: 60,
        ..ProviderReply::text("word ".repeat(40))
            .in_deltas(5)
            .in_chunks(ChunkSplit::Size(200))
    }));
    let models = |names: &str| {
        names.split(' ').fold(String::new(), |text, name| {
            format!(
                "{text}[gateway.models.{name}]\nto = \"http://{}#behind\"\nprotocol = \"cline\"\n",
                provider.address()
            )
        })
    };
    let file = world.write("gateway.toml", &models("one"));
    let running = Running::start(&mut before(
        &world,
        &provider,
        &["--config", file.to_str().unwrap()],
    ));
    let mut stream = running.open("POST", "/v1/messages", &message("one"));
    assert!(stream.read(&mut [0; 200]).unwrap() > 0);
    world.write("gateway.toml", &models("two three"));
    running.signal(Signal::HUP);
    assert!(running.line("reloaded").contains("three, two"));
    assert!(
        running
            .ask("POST", "/v1/messages", &message("one"))
            .starts_with("HTTP/1.1 404")
    );
    assert!(running.ask("GET", "/v1/models", "").contains("three"));
    world.write(
        "gateway.toml",
        &models("four").replace("protocol", "protokol"),
    );
    running.signal(Signal::HUP);
    let line = running.line("are unchanged");
    assert!(
        line.contains("line 3, column 1") && line.contains("protokol"),
        "{line}"
    );
    assert!(running.ask("GET", "/v1/models", "").contains("three"));
    let rest = all(stream);
    assert!(rest.contains("message_stop"), "{rest}");
    assert!(
        provider
            .received_requests()
            .iter()
            .all(|request| request.body["model"] == "behind")
    );
}

#[test]
fn invalid_configuration_is_named() {
    let world = World::new();
    let check = |text: &str, words: &str| {
        let file = world.write("gateway.toml", text);
        let output = world
            .sabir()
            .args(["gateway", "--config", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(
            stderr(&output).contains(words),
            "{text}: {}",
            stderr(&output)
        );
    };
    let model = "[gateway.models.m]\nto = \"http://127.0.0.1:1\"\n";
    check(
        "[gateway]\nlissen = \"x\"\n",
        "line 2, column 1: unknown key `lissen` in `[gateway]`: did you mean `listen`?",
    );
    check(
        "[gateway.limits]\nbody = 1\n",
        "line 2, column 1: unknown key `body` in `[gateway.limits]`: did you mean `body_mib`?",
    );
    check(
        &format!("{model}faulty_calls = \"retry 0\"\n"),
        "line 3, column 16: `retry 0` is not a way to handle calls",
    );
    check(
        &format!("{model}wire = \"smoke\"\n"),
        "gateway.toml, line 3: [gateway.models.m]: `smoke` is not a wire",
    );
    check(
        "[gateway.models.m]\n[[gateway.models.m.upstreams]]\nto = \"http://127.0.0.1:1\"\n\
         [[gateway.models.m.upstreams]]\nname = \"b\"\nto = \"nobody/x\"\n",
        "gateway.toml, line 6: [gateway.models.m]: the model `nobody/x` is unknown",
    );
    let two = |first: &str, second: &str| {
        format!(
            "[gateway.models.m]\n[[gateway.models.m.upstreams]]\nto = \"http://127.0.0.1:1\"\n{first}\
             [[gateway.models.m.upstreams]]\n{second}to = \"http://127.0.0.1:1\"\n"
        )
    };
    check(
        &two("weight = 1\n", "name = \"b\"\nweight = 0\n"),
        "gateway.toml, line 7: [gateway.models.m.upstreams]: `weight` must be at least 1",
    );
    check(
        &two("", ""),
        "gateway.toml, line 4: [gateway.models.m]: two upstreams are named `127.0.0.1:1`",
    );
    check(
        &format!("{model}[gateway]\ntls_key = \"x\"\n"),
        "gateway.toml, line 4: [gateway]: TLS needs both",
    );
    check(
        &format!("{model}[gateway]\nlisten = \"nowhere\"\n"),
        "gateway.toml, line 4: the gateway cannot listen on nowhere",
    );
    check(
        &format!("{model}[gateway]\nsocket = \"/dev/null/x\"\n"),
        "gateway.toml, line 4: the gateway cannot listen on /dev/null/x",
    );
    check(
        &format!("{model}[gateway]\nkeys = \"/dev/null/x\"\n"),
        "gateway.toml, line 4: /dev/null/x cannot be created",
    );
    check(
        &format!("{model}defaults = \"[]\"\n"),
        "gateway.toml, line 3: [gateway.models.m]: `defaults` is not a JSON object",
    );
    check(
        &format!("{model}[gateway.limits]\nbody_mib = 0\n"),
        "gateway.toml, line 4: [gateway.limits]: `body_mib` must be at least 1",
    );
    check(
        &format!("{model}[gateway]\nhosts = [\"http://x\"]\n"),
        "gateway.toml, line 4: [gateway]: `hosts` has `http://x`",
    );
    check(
        "[gateway.models.m]\nto = \"nobody/x\"\n",
        "gateway.toml, line 2: [gateway.models.m]: the model `nobody/x` is unknown",
    );
    check(
        "[gateway.models.m]\nto = \"openai/x\"\nwire = \"gemini\"\n",
        "belong to an address",
    );
    check(
        &format!("{model}[gateway]\ntls_cert = \"none.pem\"\ntls_key = \"none.key\"\n"),
        "gateway.toml, line 4: none.pem cannot be read",
    );
    check(
        &format!("{model}aliases = [\"x\", \"x\"]\n"),
        "`x` is the name of two models",
    );
    check(
        &format!("[gateway]\ntoken_env = \"NO_TOKEN\"\n{model}"),
        "gateway.toml, line 2: NO_TOKEN holds no token",
    );
    check(
        &format!("[gateway]\ntoken = \"abcdefgh\"\n{model}"),
        "chmod 600",
    );
    // The file keeps its mode from here on.
    let file = world.write("gateway.toml", "");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    check(
        &format!("{model}[gateway]\ntoken = \"t\"\ntoken_env = \"T\"\n"),
        "one of token and token_env",
    );
}

/// A back end with answers of 16 MiB that does not keep them in memory.
fn long_answers() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let piece = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(16 << 10)}}]});
    let event: Arc<str> = format!("data: {piece}\n\n").into();
    let answer = |mut stream: TcpStream, event: &str| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        if stream.read(&mut [0; 16 << 10])? == 0 {
            return Ok(());
        }
        stream.write_all(head.as_bytes())?;
        (0..1 << 10).try_for_each(|_| stream.write_all(event.as_bytes()))
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let event = Arc::clone(&event);
            // An error is a client that has left.
            std::thread::spawn(move || answer(stream, &event).is_ok());
        }
    });
    address
}

/// `SABIR_CLIENTS=500` sets the number.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn slow_clients_cost_little_memory() {
    let clients = std::env::var("SABIR_CLIENTS")
        .ok()
        .and_then(|clients| clients.parse().ok())
        .unwrap_or(30);
    if !std::path::Path::new("/proc/self/status").exists() {
        return crate::world::skipped(
            "this system does not tell the memory of a process under /proc",
        );
    }
    let world = World::new();
    let file = world.write(
        "gateway.toml",
        &format!(
            "[gateway.models.qwen]\nto = \"http://{}\"\n",
            long_answers()
        ),
    );
    let mut command = world.sabir();
    command
        .args([
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--token",
            "of-tests",
            "--log",
            "off",
            "--config",
        ])
        .arg(file);
    let running = Running::start(&mut command);
    let resident = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap()
            .to_owned();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            >> 10
    };
    let before = resident();
    let mut slow: Vec<_> = (0..clients)
        .map(|_| running.open("POST", "/v1/messages", &message("qwen")))
        .collect();
    for stream in &mut slow {
        stream.set_read_timeout(Some(LONG * 10)).unwrap();
        assert!(stream.read(&mut [0; 1]).unwrap() > 0);
    }
    // Each reads a byte now and then; other clients need not wait for them.
    for _ in 0..5 {
        for stream in &mut slow {
            assert!(stream.read(&mut [0; 1]).unwrap() > 0);
        }
        assert!(running.ask("GET", "/v1/models", "").contains("qwen"));
        std::thread::sleep(Duration::from_millis(200));
    }
    let grown = resident().saturating_sub(before);
    // Stored whole, the answers would take 16 MiB for each client.
    eprintln!("{grown} MiB for {clients} slow clients");
    assert!(grown < 4 * clients, "{grown} MiB for {clients} clients");
}
