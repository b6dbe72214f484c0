//! Tests the gateway's configuration, reload and log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::world::{World, code, stderr};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// A gateway that runs. It ends when it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) address: String,
    lines: Receiver<String>,
}

impl Running {
    /// With this configuration and these flags, at a free address.
    pub(crate) fn start(world: &World, configuration: &str, flags: &[&str]) -> Self {
        Self::start_at(
            world,
            configuration,
            &[&["--listen", "127.0.0.1:0"], flags].concat(),
        )
    }

    /// With this configuration and these flags alone.
    fn start_at(world: &World, configuration: &str, flags: &[&str]) -> Self {
        let file = world.write("gateway.toml", configuration);
        let mut command: Command = world.sabir();
        command.args(["gateway", "--quiet", "--config", file.to_str().unwrap()]);
        let mut child = command
            .args(flags)
            .env("SABIR_GATEWAY_TOKEN", "of-tests")
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (line, lines) = channel();
        std::thread::spawn(move || {
            errors
                .lines()
                .map_while(Result::ok)
                .all(|text| line.send(text).is_ok())
        });
        let address = said
            .trim()
            .strip_prefix("listening on http://")
            .map(str::to_owned);
        let address =
            address.unwrap_or_else(|| panic!("{said}: {:?}", lines.iter().collect::<Vec<_>>()));
        Self {
            child,
            address,
            lines,
        }
    }

    /// Waits for a line of standard error with this in it.
    pub(crate) fn line(&self, part: &str) -> String {
        let (end, mut seen) = (Instant::now() + LONG, Vec::new());
        while let Ok(line) = self
            .lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {part}: {seen:?}");
    }

    /// Posts JSON, with more lines in the head; returns the whole response.
    pub(crate) fn ask(&self, path: &str, head: &str, body: &Value) -> String {
        self.post(path, head, &body.to_string())
    }

    /// Posts a body of any type, with more lines in the head; returns the whole response.
    pub(crate) fn post(&self, path: &str, head: &str, body: &str) -> String {
        let length = body.len();
        self.send(
            &format!("POST {path}"),
            &format!("{head}Content-Length: {length}\r\n"),
            body,
        )
    }

    /// Gets a path, with more lines in the head; returns the whole response.
    pub(crate) fn get(&self, path: &str, head: &str) -> String {
        self.send(&format!("GET {path}"), head, "")
    }

    fn send(&self, target: &str, head: &str, body: &str) -> String {
        send_request(&self.address, target, head, body)
    }
}

/// Sends a request to a gateway: its method and path, more lines of its head, and its body. Returns the whole response.
pub(crate) fn send_request(address: &str, target: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let request =
        format!("{target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).unwrap();
    got
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub(crate) const TOKEN: &str = "Authorization: Bearer of-tests\r\n";

pub(crate) fn message(model: &str) -> Value {
    json!({"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

/// A server that closes every connection, and counts them.
pub(crate) fn hanging_up() -> (String, Arc<AtomicUsize>) {
    let (listener, count) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        Arc::new(AtomicUsize::new(0)),
    );
    let (address, counted) = (
        listener.local_addr().unwrap().to_string(),
        Arc::clone(&count),
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (address, count)
}

#[test]
fn configuration_errors_quote_values_but_no_secrets() {
    let world = World::new();
    let check = |text: &str, said: &str, unsaid: &str| {
        let file = world.write("wrong.toml", text);
        let output = world
            .sabir()
            .args(["gateway", "--config", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(
            stderr(&output).contains(said),
            "{text}: {}",
            stderr(&output)
        );
        assert!(
            unsaid.is_empty() || !stderr(&output).contains(unsaid),
            "{text}: {}",
            stderr(&output)
        );
    };
    let model = "[gateway.models.m]\nto = \"http://127.0.0.1:1\"\n";
    check(
        &format!("{model}faulty_calls = \"always\"\n"),
        "line 3, column 16: `always` is not a way to handle calls: write pass, repair",
        "",
    );
    check(
        "[providers.x]\nkey = 12345678\n",
        "line 2, column 7: a key must be a text in quotes",
        "12345678",
    );
    check(
        "[providers.x]\nkey_env = 12345678\n",
        "invalid type: integer `[secret]`",
        "12345678",
    );
    check(
        "[gateway.limits]\nanswers = \"many\"\n",
        "invalid type: string \"many\"",
        "",
    );
    check(
        "[providers]\nx = \"sk-hush-1\"\n",
        "line 2, column 5",
        "hush",
    );
    let key = ["sk-proj-", "abcdefghijklmnopqrstuvwxyz0123456789"].concat();
    check(
        &format!("[providers.x]\nretries = \"{key}\"\n"),
        "line 2, column 11: invalid type: string",
        &key[8..],
    );
    check(
        &format!("[gateway]\ntoken = [\"{key}\"]\n"),
        "line 2, column 9",
        &key[8..],
    );
}

#[test]
fn an_unreachable_server_is_reported_in_the_clients_format() {
    let world = World::new();
    // Nothing listens there any more.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (rude, count) = hanging_up();
    let models = format!(
        "[gateway.models.gone]\nto = \"http://{nobody}\"\n[gateway.models.once]\nto = \"http://{rude}\"\n\
         [gateway.models.never]\nto = \"http://{rude}\"\nretries = 0\n"
    );
    let running = Running::start(&world, &models, &[]);
    let fronts = [
        ("/v1/messages", "/error/type", "api_error"),
        ("/v1/chat/completions", "/error/type", "server_error"),
        ("/api/chat", "/error", "cannot be reached"),
    ];
    for (model, attempts) in [("gone", 0), ("once", 2), ("never", 1)] {
        for (path, place, word) in fronts {
            let before = count.load(Ordering::SeqCst);
            let got = running.ask(path, TOKEN, &message(model));
            assert!(got.starts_with("HTTP/1.1 502"), "{got}");
            let body: Value = serde_json::from_str(got.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert!(
                body.pointer(place)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .contains(word),
                "{body}"
            );
            // Only the operator learns where the model's server is.
            assert!(
                !body.to_string().contains(&nobody.port().to_string()),
                "{body}"
            );
            assert_eq!(
                count.load(Ordering::SeqCst) - before,
                attempts,
                "{model} {path}"
            );
        }
    }
}

#[test]
fn each_request_is_logged_with_its_time() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply::text("hi")));
    let models = format!(
        "[gateway.models.m]\nto = \"http://{}\"\nprotocol = \"cline\"\n",
        provider.address()
    );
    let is_moment = |text: &str| {
        let pattern = "dddd-dd-ddTdd:dd:dd.dddZ";
        let fits = |(c, p): (char, char)| if p == 'd' { c.is_ascii_digit() } else { c == p };
        text.len() == pattern.len() && text.chars().zip(pattern.chars()).all(fits)
    };
    let running = Running::start(&world, &models, &["--explain"]);
    running.ask("/v1/messages", TOKEN, &message("m"));
    // Without tools there is no explanation before the line.
    let line = running.lines.recv_timeout(LONG).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(
        is_moment(time) && rest.starts_with("sabir_") && rest.contains(" anthropic m 200 "),
        "{line}"
    );
    drop(running);
    let running = Running::start(&world, &format!("[gateway]\nlog = \"json\"\n{models}"), &[]);
    running.ask("/v1/messages", TOKEN, &message("m"));
    let line: Value = serde_json::from_str(&running.line("\"status\"")).unwrap();
    assert!(is_moment(line["time"].as_str().unwrap()), "{line}");
}

#[test]
fn repairs_and_prefills_of_a_model_apply() {
    let world = World::new();
    let cut = "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}";
    let thought = format!("It says {cut}</tool_call></think>Done.");
    let provider = world.provider(ReplyScript::from_fn(move |_, request| {
        let is_cut = request.body["model"] != "thinks";
        ProviderReply::text(if is_cut { cut } else { &thought })
    }));
    let models: String = ["plain", "repaired", "thinks"]
        .map(|name| {
            format!(
                "[gateway.models.{name}]\nto = \"http://{}#{name}\"\n",
                provider.address()
            )
        })
        .concat();
    let text = format!(
        "{models}[[models]]\npattern = \"repaired\"\nrepairs_on = [\"missing_last_close\"]\n\
         [[models]]\npattern = \"thinks\"\nprefill = \"<think>\"\n"
    );
    let running = Running::start(&world, &text, &[]);
    let ask = |model: &str| {
        let mut body = message(model);
        body["tools"] = json!([{"name": "read_file", "input_schema": {"type": "object",
            "properties": {"path": {"type": "string"}}}}]);
        running.ask("/v1/messages", TOKEN, &body)
    };
    let plain = ask("plain");
    assert!(plain.starts_with("HTTP/1.1 502"), "{plain}");
    let repaired = ask("repaired");
    assert!(
        repaired.starts_with("HTTP/1.1 200") && repaired.contains("tool_use"),
        "{repaired}"
    );
    // A call in a thought that the prompt opened is only mentioned.
    let thinks = ask("thinks");
    assert!(
        thinks.contains("Done.") && !thinks.contains("\"tool_use\""),
        "{thinks}"
    );
}

#[test]
fn settings_are_reloaded() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| ProviderReply::text("hi")));
    let write = |keys: &str| {
        let models = format!(
            "[gateway.models.m]\nto = \"http://{}\"\n",
            provider.address()
        );
        let path = world.write("gateway.toml", &format!("[gateway]\n{keys}\n{models}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::read_to_string(world.work.path().join("gateway.toml")).unwrap()
    };
    let running = Running::start(&world, &write("log = \"json\""), &[]);
    let status = |head: &str| running.ask("/v1/messages", head, &message("m"))[9..12].to_owned();
    let page = |token: &str| format!("{token}Origin: https://app.example\r\n");
    assert_eq!(
        (status(TOKEN), status(&page(TOKEN))),
        ("200".to_owned(), "403".to_owned())
    );
    running.line("\"status\":200");
    write(
        "keys = \"keys.db\"\nsocket = \"gateway.sock\"\ntoken = \"another-token\"\nlisten = \"127.0.0.1:1\"\norigins = [\"https://app.example\"]\n\
         [gateway.limits]\nanswers = 7\nbody_mib = 1",
    );
    kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
    running.line("reloaded; models: m");
    // The flag overrides the file, so the address stays the same.
    assert!(running.line("restart").contains("`answers`"));
    assert!(running.line("restart").contains("`keys`"));
    assert!(running.line("restart").contains("`socket`"));
    let other = "x-api-key: another-token\r\n";
    assert_eq!(
        (status(TOKEN), status(other), status(&page(other))),
        ("401".into(), "200".into(), "200".into())
    );
    assert!(running.line("anthropic m 200").starts_with("20"));
    // The token of the environment applies again if the file has none.
    write("log = \"off\"");
    kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
    running.line("reloaded");
    assert_eq!((status(TOKEN), status(other)), ("200".into(), "401".into()));
}

#[test]
fn a_new_address_needs_a_restart() {
    let world = World::new();
    let text = |port: u16| {
        let models = "[gateway.models.m]\nto = \"http://127.0.0.1:1\"\n";
        format!("[gateway]\nlisten = \"127.0.0.1:{port}\"\n{models}")
    };
    let running = Running::start_at(&world, &text(0), &[]);
    world.write("gateway.toml", &text(9));
    kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
    let line = running.line("needs a restart");
    assert!(
        line.contains("still listens on 127.0.0.1:0") && line.contains("127.0.0.1:9"),
        "{line}"
    );
}
