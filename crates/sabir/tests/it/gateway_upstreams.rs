//! Tests how `sabir gateway` distributes requests over several upstreams of a model.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault, ScriptedProvider};
use serde_json::{Value, json};

use crate::gateway_ways::{Running, TOKEN, hanging_up, message};
use crate::world::{World, code, stderr};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Starts a provider that always answers with this text.
fn saying(world: &World, text: &'static str) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(move |_, _| ProviderReply::text(text)))
}

/// Writes the configuration of a model `m` with these keys and upstreams.
fn group(keys: &str, upstreams: &[&str]) -> String {
    let upstreams: String = upstreams
        .iter()
        .enumerate()
        .map(|(at, upstream)| {
            format!("[[gateway.models.m.upstreams]]\nname = \"u{at}\"\n{upstream}\n")
        })
        .collect();
    format!("[gateway.models.m]\n{keys}\n{upstreams}")
}

fn to(provider: &ScriptedProvider) -> String {
    format!("to = \"http://{}\"", provider.address())
}

/// Returns the text of a whole answer to a conversation that begins with these words.
fn say(running: &Running, words: &str) -> String {
    let body =
        json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": words}]});
    let got = running.ask("/v1/messages", TOKEN, &body);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    let body: Value = serde_json::from_str(json_in(&got)).unwrap();
    body["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Returns the JSON object in a response, which may be sent in chunks.
fn json_in(response: &str) -> &str {
    let begin = response.find('{').unwrap();
    let end = response.rfind('}').unwrap();
    &response[begin..=end]
}

/// Returns a metric of an upstream.
fn metric(running: &Running, name: &str, upstream: &str) -> u64 {
    let text = running.get("/metrics", TOKEN);
    let start = format!("sabir_gateway_{name}{{model=\"m\",upstream=\"{upstream}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value
        .unwrap_or_else(|| panic!("no {start}: {text}"))
        .parse()
        .unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_failed_upstream_loses_no_request_and_is_left_out() {
    let world = World::new();
    let (broken, asked) = hanging_up();
    let works = saying(&world, "from the second");
    let text = group(
        "balance = \"order\"\nmax_failures = 3\neject_seconds = 3600",
        &[&format!("to = \"http://{broken}\""), &to(&works)],
    );
    let running = Running::start(&world, &text, &[]);
    for _ in 0..8 {
        assert_eq!(say(&running, "hi"), "from the second");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(metric(&running, "upstream_failovers_total", "u0"), 3);
    assert_eq!(metric(&running, "upstream_available", "u0"), 0);
    assert_eq!(metric(&running, "upstream_requests_total", "u1"), 8);
    // A reload does not forget that it is failing.
    kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
    running.line("reloaded");
    assert_eq!(say(&running, "hi"), "from the second");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(metric(&running, "upstream_requests_total", "u1"), 9);
}

#[test]
fn an_error_of_the_request_is_not_sent_to_another_upstream() {
    let world = World::new();
    let refusing = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(400).with_body(r#"{"error": {"message": "no such field"}}"#)
    }));
    let other = saying(&world, "no");
    let text = group("balance = \"order\"", &[&to(&refusing), &to(&other)]);
    let running = Running::start(&world, &text, &[]);
    let got = running.ask("/v1/messages", TOKEN, &message("m"));
    assert!(
        got.starts_with("HTTP/1.1 400") && got.contains("no such field"),
        "{got}"
    );
    assert!(other.received_requests().is_empty());
    assert_eq!(metric(&running, "upstream_failures_total", "u0"), 0);
}

#[test]
fn an_answer_that_has_begun_stays_where_it_is() {
    let world = World::new();
    let breaking = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("a text that is long enough to be cut in its midst")
            .in_deltas(4)
            .with_fault(ScriptedFault::CutHalf)
    }));
    let other = saying(&world, "no");
    let text = group("balance = \"order\"", &[&to(&breaking), &to(&other)]);
    let running = Running::start(&world, &text, &[]);
    let mut body = message("m");
    body["stream"] = json!(true);
    let got = running.ask("/v1/messages", TOKEN, &body);
    assert!(
        got.starts_with("HTTP/1.1 200") && got.contains("event: error"),
        "{got}"
    );
    assert!(other.received_requests().is_empty());
    assert_eq!(metric(&running, "upstream_failures_total", "u0"), 1);
}

#[test]
fn an_upstream_that_asks_for_a_pause_gets_one() {
    let world = World::new();
    let limited = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(429).with_header("retry-after", "3600")
    }));
    let other = saying(&world, "other");
    let text = group("balance = \"order\"", &[&to(&limited), &to(&other)]);
    let running = Running::start(&world, &text, &[]);
    assert_eq!(say(&running, "hi"), "other");
    assert_eq!(say(&running, "hi"), "other");
    assert_eq!(limited.received_requests().len(), 1);
}

#[test]
fn conversations_stay_with_their_upstream() {
    let world = World::new();
    let upstreams = [
        saying(&world, "0"),
        saying(&world, "1"),
        saying(&world, "2"),
    ];
    let tos: Vec<String> = upstreams.iter().map(to).collect();
    let tos: Vec<&str> = tos.iter().map(String::as_str).collect();
    let running = Running::start(&world, &group("", &tos), &[]);
    let mut reached = [0; 3];
    for conversation in 0..24 {
        let words = format!("conversation {conversation}");
        let first = say(&running, &words);
        assert_eq!(say(&running, &words), first);
        reached[first.parse::<usize>().unwrap()] += 1;
    }
    assert!(reached.iter().all(|count| *count > 0), "{reached:?}");
    drop(running);
    // Another gateway, and the upstreams in another order: the names decide.
    let again = Running::start(&world, &group("", &tos), &[]);
    assert_eq!(say(&again, "conversation 5"), say(&again, "conversation 5"));
}

#[test]
fn equal_upstreams_take_turns() {
    let world = World::new();
    let (one, two) = (saying(&world, "1"), saying(&world, "2"));
    let text = group("balance = \"least\"", &[&to(&one), &to(&two)]);
    let running = Running::start(&world, &text, &[]);
    let said: Vec<String> = (0..4).map(|_| say(&running, "hi")).collect();
    assert_ne!(said[0], said[1]);
    assert_eq!((&said[0], &said[1]), (&said[2], &said[3]));
}

#[test]
fn a_silent_upstream_is_overtaken() {
    let world = World::new();
    let silent = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::text("late").with_fault(ScriptedFault::StallBeforeHeaders)
    }));
    let other = saying(&world, "in time");
    let text = group(
        "balance = \"order\"\nhedge_ms = 100",
        &[&to(&silent), &to(&other)],
    );
    let running = Running::start(&world, &text, &[]);
    assert_eq!(say(&running, "hi"), "in time");
    // The loser's request was given up.
    until("the loser is given up", || {
        metric(&running, "upstream_outstanding", "u0") == 0
    });
    assert_eq!(metric(&running, "upstream_requests_total", "u0"), 1);
}

#[test]
fn upstreams_may_have_different_wires_and_names() {
    let world = World::new();
    let chat = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(503)
    }));
    let messages = saying(&world, "by Messages");
    let text = group(
        "balance = \"order\"",
        &[
            &format!("to = \"http://{}#one\"", chat.address()),
            &format!(
                "to = \"http://{}#two\"\nwire = \"anthropic\"",
                messages.address()
            ),
        ],
    );
    let running = Running::start(&world, &text, &[]);
    assert_eq!(say(&running, "hi"), "by Messages");
    assert_eq!(chat.received_requests()[0].body["model"], "one");
    assert_eq!(messages.received_requests()[0].body["model"], "two");
    assert!(
        messages.received_requests()[0]
            .path
            .contains("/v1/messages")
    );
}

/// A server whose health can be changed; counts the questions to its model, and answers none.
fn checked_server(healthy: &Arc<AtomicBool>, asked: &Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (healthy, asked) = (Arc::clone(healthy), Arc::clone(asked));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (healthy, asked) = (Arc::clone(&healthy), Arc::clone(&asked));
            std::thread::spawn(move || {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                _ = reader.read_line(&mut line);
                let status = match () {
                    () if line.starts_with("POST") => {
                        asked.fetch_add(1, Ordering::SeqCst);
                        500
                    }
                    () if line.starts_with("GET /health ") && healthy.load(Ordering::SeqCst) => 200,
                    () => 503,
                };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                _ = (&stream).write_all(answer.as_bytes());
                // Until the client closes, so that no reset overtakes the answer.
                _ = reader.read_to_string(&mut line);
            });
        }
    });
    address
}

#[test]
fn an_unhealthy_upstream_is_not_asked() {
    let world = World::new();
    let healthy = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let address = checked_server(&healthy, &asked);
    let text = group(
        "health = \"/health\"\nhealth_seconds = 1\nmax_failures = 1000",
        &[&format!("to = \"http://{address}\"")],
    );
    let running = Running::start(&world, &text, &[]);
    assert!(running.get("/health", TOKEN).starts_with("HTTP/1.1 200"));
    until("it is known to be down", || {
        metric(&running, "upstream_available", "u0") == 0
    });
    assert!(running.get("/ready", TOKEN).starts_with("HTTP/1.1 503"));
    healthy.store(true, Ordering::SeqCst);
    until("it is up again", || {
        running.get("/ready", TOKEN).starts_with("HTTP/1.1 200")
    });
    assert_eq!(asked.load(Ordering::SeqCst), 0, "a probe asks no model");
}

#[test]
fn contradicting_upstreams_are_errors() {
    let world = World::new();
    let check = |text: &str, said: &str| {
        let file = world.write("wrong.toml", text);
        let output = world
            .sabir()
            .args(["gateway", "--config", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    };
    let upstream = "[[gateway.models.m.upstreams]]\nto = \"http://127.0.0.1:1\"\n";
    check(
        "[gateway.models.m]\nfaulty_calls = \"repair\"\n",
        "give one of `to` and `upstreams`",
    );
    check(
        &format!("[gateway.models.m]\nto = \"http://127.0.0.1:2\"\n{upstream}"),
        "give one of `to` and `upstreams`",
    );
    check(
        &format!("{upstream}{upstream}"),
        "two upstreams are named `127.0.0.1:1`",
    );
}

/// A provider that answers with a text, or with a status if the request contains a word.
fn failing_at(world: &World, word: &'static str, status: u16) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(move |_, request| {
        match request.last_text().contains(word) {
            true => ProviderReply::error_status(status),
            false => ProviderReply::text("hello"),
        }
    }))
}

#[test]
fn a_request_that_every_upstream_fails_leaves_none_out() {
    for status in [500, 403, 404] {
        let world = World::new();
        let servers = [(); 2].map(|()| failing_at(&world, "poison", status));
        let text = group(
            "balance = \"order\"\nmax_failures = 2\neject_seconds = 3600",
            &servers.each_ref().map(to).each_ref().map(String::as_str),
        );
        let running = Running::start(&world, &text, &[]);
        let mut poison = message("m");
        poison["messages"][0]["content"] = json!("poison");
        for _ in 0..3 {
            let got = running.ask("/v1/messages", TOKEN, &poison);
            assert!(!got.starts_with("HTTP/1.1 200"), "{got}");
        }
        assert!(running.get("/ready", "").starts_with("HTTP/1.1 200"));
        for upstream in ["u0", "u1"] {
            let is_available = metric(&running, "upstream_available", upstream);
            assert_eq!(is_available, 1, "{status} {upstream}");
        }
        assert_eq!(say(&running, "hi"), "hello");
    }
}

#[test]
fn a_failure_counts_if_another_upstream_answers_the_request() {
    for (status, is_available) in [(500, 0), (403, 1), (404, 1)] {
        let world = World::new();
        let servers = [
            failing_at(&world, "", status),
            saying(&world, "from the second"),
        ];
        let text = group(
            "balance = \"order\"\nmax_failures = 2\neject_seconds = 3600",
            &servers.each_ref().map(to).each_ref().map(String::as_str),
        );
        let running = Running::start(&world, &text, &[]);
        for _ in 0..3 {
            assert_eq!(say(&running, "hi"), "from the second");
        }
        assert_eq!(
            metric(&running, "upstream_available", "u0"),
            is_available,
            "{status}"
        );
    }
}

#[test]
fn a_redirect_is_a_failure_of_its_upstream() {
    let world = World::new();
    let redirecting = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(302)
    }));
    let works = saying(&world, "from the second");
    let text = group("balance = \"order\"", &[&to(&redirecting), &to(&works)]);
    let running = Running::start(&world, &text, &[]);
    assert_eq!(say(&running, "hi"), "from the second");
    let alone = group("", &[&to(&redirecting)]);
    let running = Running::start(&world, &alone, &[]);
    let got = running.ask("/v1/messages", TOKEN, &message("m"));
    assert!(got.starts_with("HTTP/1.1 502"), "{got}");
}
