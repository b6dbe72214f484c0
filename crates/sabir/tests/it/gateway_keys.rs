//! Tests the keys of clients, their limits and budgets, with two gateways over one store.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::{Value, json};

use crate::gateway_ways::{Running, TOKEN, message, send_request};
use crate::world::{World, code, stderr, stdout};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Returns the configuration of a gateway with this store, and a model that costs a dollar for a
/// million tokens in and two for a million out.
fn configuration(store: &str, provider: &ScriptedProvider) -> String {
    format!(
        "[gateway]\nkeys = \"{store}\"\n[gateway.models.m]\nto = \"http://{}\"\naliases = [\"other-name\"]\n\
         [[models]]\npattern = \"m\"\nprices = {{ input = 1, output = 2 }}\n",
        provider.address()
    )
}

/// Runs a command about keys; returns its output.
fn keys(world: &World, configuration: &str, arguments: &[&str]) -> String {
    let file = world.write("keys.toml", configuration);
    let mut command: Command = world.sabir();
    command.args(["--config", file.to_str().unwrap(), "gateway", "keys"]);
    let output = command.args(arguments).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

/// Adds a key, and returns the line of a head that sends it.
fn add(world: &World, configuration: &str, arguments: &[&str]) -> String {
    let said = keys(world, configuration, &[&["add"], arguments].concat());
    let key = said.lines().next().unwrap();
    assert!(key.starts_with("sk-sabir-") && key.len() == 57, "{said}");
    format!("Authorization: Bearer {key}\r\n")
}

/// A provider that reports 10 tokens in and 20 out, which cost 50,000 billionths of a dollar.
fn counting(world: &World) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(|_, _| ProviderReply {
        usage: sabir_call::Usage {
            input: Some(10),
            output: Some(20),
            ..sabir_call::Usage::default()
        },
        ..ProviderReply::text("hello")
    }))
}

/// Waits until the usage of a key contains this.
fn until_usage(world: &World, configuration: &str, key: &str, part: &str) -> String {
    let end = std::time::Instant::now() + LONG;
    loop {
        let usage = keys(world, configuration, &["usage", key]);
        if usage.contains(part) {
            return usage;
        }
        assert!(std::time::Instant::now() < end, "no {part}: {usage}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn keys_are_added_limited_counted_and_revoked() {
    let world = World::new();
    let provider = counting(&world);
    let store = world.work.path().join("keys.db");
    let text = configuration(store.to_str().unwrap(), &provider);
    let team = add(&world, &text, &["team", "--limit", "requests=2"]);
    let free = add(&world, &text, &["free"]);
    let running = Running::start(&world, &text, &[]);
    let ask = |path: &str, head: &str| running.ask(path, head, &message("m"));
    assert!(ask("/v1/messages", TOKEN).starts_with("HTTP/1.1 200"));
    assert!(ask("/v1/messages", "").starts_with("HTTP/1.1 401"));
    let wrong = format!("x-api-key: sk-sabir-{}\r\n", "0".repeat(48));
    assert!(ask("/v1/messages", &wrong).starts_with("HTTP/1.1 401"));
    assert!(ask("/v1/messages", &team).starts_with("HTTP/1.1 200"));
    assert!(ask("/v1/chat/completions", &team).starts_with("HTTP/1.1 200"));
    let limited = ask("/v1/messages", &team);
    // A minute may have ended in between; then one more request is needed.
    let limited = if limited.starts_with("HTTP/1.1 200") {
        ask("/v1/messages", &team);
        ask("/v1/messages", &team)
    } else {
        limited
    };
    assert!(limited.starts_with("HTTP/1.1 429"), "{limited}");
    assert!(
        limited.contains("\"type\":\"rate_limit_error\""),
        "{limited}"
    );
    assert!(limited.contains("2 requests per minute"), "{limited}");
    let wait = limited
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .unwrap();
    assert!(
        (1..=60).contains(&wait.trim().parse::<u32>().unwrap()),
        "{wait}"
    );
    assert!(ask("/v1/messages", &free).starts_with("HTTP/1.1 200"));
    until_usage(&world, &text, "free", "m  1 requests  30 tokens  $0.00005");
    // Clients do not see each other.
    assert!(running.get("/metrics", &free).starts_with("HTTP/1.1 403"));
    let metrics = running.get("/metrics", TOKEN);
    for line in [
        "sabir_gateway_key_tokens_total{key=\"free\",direction=\"output\"} 20",
        "sabir_gateway_key_nano_usd_total{key=\"free\"} 50000",
        "sabir_gateway_refusals_total{reason=\"token\"} 2",
        "sabir_gateway_first_output_seconds_count{model=\"m\",",
        "sabir_gateway_output_token_seconds_count{model=\"m\",",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let listed = keys(&world, &text, &["list"]);
    assert!(listed.contains("team  requests=2") && listed.contains("free  no limits"));
    assert!(!listed.contains("sk-sabir-"), "{listed}");
    keys(&world, &text, &["revoke", "free"]);
    assert!(ask("/v1/messages", &free).starts_with("HTTP/1.1 401"));
    assert!(keys(&world, &text, &["list"]).contains("revoked"));
}

#[test]
fn an_alias_does_not_evade_the_limit_of_a_model() {
    let world = World::new();
    let provider = counting(&world);
    let store = world.work.path().join("keys.db");
    let text = configuration(store.to_str().unwrap(), &provider);
    let key = add(&world, &text, &["team", "--limit", "m: dollars=0.00005"]);
    let running = Running::start(&world, &text, &[]);
    assert!(
        running
            .ask("/v1/messages", &key, &message("m"))
            .starts_with("HTTP/1.1 200")
    );
    until_usage(&world, &text, "team", "m  1 requests");
    until_usage(&world, &text, "team", "$0.00005");
    let refused = running.ask("/v1/messages", &key, &message("other-name"));
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("0.00005 dollars per day"), "{refused}");
    assert_eq!(provider.received_requests().len(), 1);
}

#[test]
fn a_budget_needs_a_price() {
    let world = World::new();
    let provider = counting(&world);
    let store = world.work.path().join("keys.db");
    let text = format!(
        "[gateway]\nkeys = \"{}\"\n[gateway.models.m]\nto = \"http://{}#m:cloud\"\n",
        store.display(),
        provider.address()
    );
    let key = add(&world, &text, &["team", "--limit", "dollars=5"]);
    let running = Running::start(&world, &text, &[]);
    let refused = running.ask("/v1/messages", &key, &message("m"));
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("price"),
        "{refused}"
    );
}

#[test]
fn keys_without_a_store_are_an_error() {
    let world = World::new();
    let file = world.write("none.toml", "");
    let output = world
        .sabir()
        .args([
            "--config",
            file.to_str().unwrap(),
            "gateway",
            "keys",
            "list",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("there is no store of keys"),
        "{}",
        stderr(&output)
    );
}

/// Sends 200 requests at once through two gateways over one store, and checks the budget.
fn check_shared_budget(store: &str) {
    const BUDGET: u64 = 1_000_000;
    const COST: u64 = 50_000;
    let world = World::new();
    let provider = counting(&world);
    let text = configuration(store, &provider);
    let name = format!("team-{}", std::process::id());
    let key = add(&world, &text, &[&name, "--limit", "dollars=0.001"]);
    let gateways = [
        Running::start(&world, &text, &[]),
        Running::start(&world, &text, &[]),
    ];
    // The estimate of so long a text is more than the 10 tokens that the provider reports.
    let words = "0123456789".repeat(10);
    let body: Value =
        json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": words}]});
    let clients: Vec<_> = (0..200)
        .map(|number| {
            let address = gateways[number % 2].address.clone();
            let body = body.to_string();
            let head = format!("{key}Content-Length: {}\r\n", body.len());
            std::thread::spawn(move || {
                let got = send_request(&address, "POST /v1/messages", &head, &body);
                let status = got[9..12].to_owned();
                assert!(status == "200" || status == "429", "{got}");
                status == "200"
            })
        })
        .collect();
    let answered = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .filter(|answered| *answered)
        .count() as u64;
    // Whatever the reservations kept back for a moment is free now: the rest can be spent.
    let mut all = answered;
    for _ in 0..40 {
        let got = gateways[0].ask("/v1/messages", &key, &body);
        all += u64::from(got.starts_with("HTTP/1.1 200"));
    }
    assert!(all * COST <= BUDGET + COST, "{all} answers");
    assert!(all * COST >= BUDGET, "{all} answers");
    let spent = format!("m  {all} requests  {} tokens", all * 30);
    until_usage(&world, &text, &name, &spent);
    assert_eq!(provider.received_requests().len() as u64, all);
    keys(&world, &text, &["revoke", &name]);
}

#[test]
fn two_gateways_share_a_budget_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    check_shared_budget(folder.path().join("keys.db").to_str().unwrap());
}

#[test]
fn two_gateways_share_a_budget_in_postgres() {
    if TcpStream::connect("127.0.0.1:5432").is_err() {
        eprintln!("SKIPPED: no PostgreSQL at 127.0.0.1:5432");
        return;
    }
    check_shared_budget("postgres://postgres@127.0.0.1:5432/test");
}

#[test]
fn two_gateways_share_a_budget_in_redis() {
    if TcpStream::connect("127.0.0.1:6379").is_err() {
        eprintln!("SKIPPED: no Redis at 127.0.0.1:6379");
        return;
    }
    check_shared_budget("redis://127.0.0.1:6379/7");
}

#[test]
fn exchanges_are_recorded_and_reported() {
    let world = World::new();
    let leaked =
        "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.rs\"}}</tool_call>";
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        ProviderReply::text(leaked)
    }));
    let text = format!(
        "[gateway.models.m]\nto = \"http://{}\"\n",
        provider.address()
    );
    let folder = world.work.path().join("records");
    let running = Running::start(&world, &text, &["--record", folder.to_str().unwrap()]);
    let mut body = message("m");
    body["messages"][0]["content"] = json!(
        [
            "the key is sk-proj-",
            "abcdefghijklmnopqrstuvwxyz0123456789"
        ]
        .concat()
    );
    body["tools"] = json!([{"name": "read_file", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]);
    let got = running.ask("/v1/messages", TOKEN, &body);
    assert!(got.contains("tool_use"), "{got}");
    let report = || {
        let output = world
            .sabir()
            .args(["gateway", "report", folder.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    };
    let end = std::time::Instant::now() + LONG;
    while !report().contains("1 exchanges, 0 failed, 1 calls") {
        assert!(std::time::Instant::now() < end, "{}", report());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(report().contains("1  leaked_call"), "{}", report());
    let line = std::fs::read_to_string(folder.join("exchanges-000001.jsonl")).unwrap();
    assert!(!line.contains("abcdefghijklmnopqrstuvwxyz"), "{line}");
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(record["calls"][0]["arguments"], json!({"path": "a.rs"}));
}

#[test]
fn the_limit_of_a_model_must_apply() {
    let world = World::new();
    let provider = counting(&world);
    let store = world.work.path().join("keys.db");
    let text = configuration(store.to_str().unwrap(), &provider);
    // An alias means its model.
    let key = add(
        &world,
        &text,
        &["team", "--limit", "other-name: requests=1"],
    );
    assert!(keys(&world, &text, &["list"]).contains("m: requests=1"));
    let running = Running::start(&world, &text, &[]);
    let mut statuses = Vec::new();
    // A minute may end in between.
    for _ in 0..3 {
        let got = running.ask("/v1/messages", &key, &message("m"));
        statuses.push(got[9..12].to_owned());
    }
    assert!(statuses.contains(&"429".to_owned()), "{statuses:?}");
    let file = world.write("keys.toml", &text);
    let mut command: Command = world.sabir();
    command.args([
        "--config",
        file.to_str().unwrap(),
        "gateway",
        "keys",
        "add",
        "typo",
    ]);
    let output = command.args(["--limit", "n: requests=1"]).output().unwrap();
    let said = stderr(&output);
    assert!(
        code(&output) != 0 && said.contains("its models are m"),
        "{said}"
    );
}

#[test]
fn an_answer_costs_the_price_of_its_upstream() {
    let world = World::new();
    let provider = counting(&world);
    let store = world.work.path().join("keys.db");
    let text = format!(
        "[gateway]\nkeys = \"{}\"\n[gateway.models.mix]\nbalance = \"order\"\n\
         [[gateway.models.mix.upstreams]]\nname = \"cheap\"\nto = \"http://{address}#cheap\"\n\
         [[gateway.models.mix.upstreams]]\nname = \"dear\"\nto = \"http://{address}#dear\"\n\
         [[models]]\npattern = \"cheap\"\nprices = {{ input = 1, output = 2 }}\n\
         [[models]]\npattern = \"dear\"\nprices = {{ input = 100, output = 200 }}\n",
        store.display(),
        address = provider.address()
    );
    let key = add(&world, &text, &["team"]);
    let running = Running::start(&world, &text, &[]);
    let got = running.ask("/v1/messages", &key, &message("mix"));
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    until_usage(
        &world,
        &text,
        "team",
        "mix  1 requests  30 tokens  $0.00005",
    );
}
