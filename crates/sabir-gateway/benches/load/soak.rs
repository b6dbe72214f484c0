//! Checks a gateway with many requests, with killed upstreams, and with faults over a long time.
//!
//! The gateway is an installed `sabir`, since several upstreams of a model and their health are part of what is checked; without one,
//! the program says so and checks nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sabir_wire::Wire;
use tokio::sync::Mutex;

use crate::back::{Fault, Order};
use crate::client::{self, Asked, Outcome};
use crate::process::{self, Process};
use crate::{FRONTS, GATEWAY_CORE};

/// A check.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GatewayCheck {
    /// Sends this many short requests.
    Requests(u32),
    /// Kills and restarts one of two back ends under load, for this many seconds.
    Failover(u64),
    /// Mixes answers, faults and clients that disconnect, for this many minutes; for ten seconds if 0.
    Soak(u64),
}

/// The clients that ask at the same time.
const CLIENTS: u32 = 64;

/// Runs a check, and panics if the gateway did something wrong.
pub(crate) async fn run_check(check: GatewayCheck, sabir: Option<&str>, cores: &str) {
    let Some(sabir) = sabir else {
        println!("{check:?}: SKIPPED, it needs --sabir PROGRAM");
        return;
    };
    println!("\n{check:?}\n");
    let backs = [
        Process::role(&["back"], cores),
        Process::role(&["back"], cores),
    ];
    let [first, second] = &backs;
    // A fault that comes once must come at one of the upstreams only, so these are the same server.
    let second = match check {
        GatewayCheck::Soak(_) => first,
        GatewayCheck::Requests(_) | GatewayCheck::Failover(_) => second,
    };
    let configuration = configuration([first, second]);
    let gateway = Process::sabir(Path::new(sabir), &configuration, GATEWAY_CORE);
    match check {
        GatewayCheck::Requests(number) => check_requests(&gateway, number).await,
        GatewayCheck::Failover(seconds) => check_failover(&gateway, backs, seconds, cores).await,
        GatewayCheck::Soak(minutes) => check_soak(&gateway, minutes).await,
    }
}

/// Returns a configuration with one model on two upstreams. None is left out for long, or for the
/// faults of others.
fn configuration(backs: [&Process; 2]) -> String {
    let mut text = "[gateway.limits]\nconnections = 10000\nanswers = 10000\nstore_mib = 1\n\
                    [gateway.models.model]\nprotocol = \"native\"\nbalance = \"least\"\neject_seconds = 1\n\
                    max_failures = 100\n"
        .to_owned();
    for (number, back) in backs.into_iter().enumerate() {
        text += &format!(
            "[[gateway.models.model.upstreams]]\nname = \"back-{number}\"\n\
             to = \"http://{}/v1#as-native\"\nwire = \"openai-chat\"\n",
            back.address
        );
    }
    text
}

/// Makes the request of a client.
fn client_request(gateway: &Process, front: Wire) -> Asked {
    Asked {
        address: gateway.address,
        front,
        model: "model".to_owned(),
        headers: String::new(),
        leaves_after: None,
    }
}

/// Returns the front that a stream uses.
fn front_of(stream: u32) -> Wire {
    *FRONTS
        .iter()
        .cycle()
        .nth(stream as usize % FRONTS.len())
        .unwrap()
}

/// Prints memory and open descriptors of a process.
fn print_state(process: &Process, when: &str) {
    println!(
        "| {when} | {:.1} MB | {} descriptors |",
        process.used().memory as f64 / 1024.0,
        process::count_descriptors(process.id())
    );
}

/// Sends short requests, all of which must be answered, and prints memory and descriptors on the way.
async fn check_requests(gateway: &Process, number: u32) {
    let next = Arc::new(AtomicU32::new(0));
    let wrong = Arc::new(AtomicU32::new(0));
    let steps: Vec<u32> = (1..=10).map(|step| number / 10 * step).collect();
    let begun = Instant::now();
    print_state(gateway, "at the start");
    for step in steps {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let next = Arc::clone(&next);
                let wrong = Arc::clone(&wrong);
                let asking = client_request(gateway, Wire::OpenAiChat);
                tokio::spawn(async move {
                    loop {
                        let stream = next.fetch_add(1, Ordering::Relaxed);
                        if stream >= step {
                            return;
                        }
                        let asking = Asked {
                            front: front_of(stream),
                            ..asking.clone()
                        };
                        let outcome = client::ask(&asking, order(stream, 3, Fault::None)).await;
                        if outcome.error.is_some() || outcome.crossed > 0 {
                            wrong.fetch_add(1, Ordering::Relaxed);
                            println!("stream {stream}: {outcome:?}");
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        next.store(step, Ordering::Relaxed);
        print_state(gateway, &format!("{step} requests"));
    }
    let wrong = wrong.load(Ordering::Relaxed);
    let rate = f64::from(number) / begun.elapsed().as_secs_f64();
    println!("{number} requests, {rate:.0} a second, {wrong} wrong");
    assert_eq!(wrong, 0);
}

/// Makes an order of records without pauses.
fn order(stream: u32, events: u32, fault: Fault) -> Order {
    Order {
        stream,
        events,
        gap: Duration::ZERO,
        size: 64,
        fault,
    }
}

/// Kills and restarts the first back end every two seconds. Only answers that had begun may be lost.
async fn check_failover(gateway: &Process, backs: [Process; 2], seconds: u64, cores: &str) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let next = Arc::new(AtomicU32::new(0));
    let tally = Arc::new(Mutex::new(ResultTally::default()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let next = Arc::clone(&next);
            let tally = Arc::clone(&tally);
            let asking = client_request(gateway, Wire::OpenAiChat);
            tokio::spawn(async move {
                while Instant::now() < end {
                    let stream = next.fetch_add(1, Ordering::Relaxed);
                    let asking = Asked {
                        front: front_of(stream),
                        ..asking.clone()
                    };
                    let order = Order {
                        gap: Duration::from_millis(10),
                        ..order(stream, 20, Fault::None)
                    };
                    let outcome = client::ask(&asking, order).await;
                    tally.lock().await.add_failover(stream, &outcome);
                }
            })
        })
        .collect();
    let [mut first, _second] = backs;
    let mut kills = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let port = first.address.port().to_string();
        drop(first);
        kills += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
        first = Process::role(&["back", &port], cores);
    }
    for client in clients {
        client.await.unwrap();
    }
    let tally = tally.lock().await;
    println!("{kills} kills: {tally:?}");
    assert_eq!(tally.wrong, 0);
}

/// The results of many requests.
#[derive(Debug, Default)]
struct ResultTally {
    /// Complete answers.
    complete: u32,
    /// Answers that ended with an error of the client's wire, as ordered.
    failed: u32,
    /// Clients that disconnected.
    left: u32,
    /// Wrong results, with which the check fails.
    wrong: u32,
}

impl ResultTally {
    /// Adds a result of a run in which back ends are killed.
    fn add_failover(&mut self, stream: u32, outcome: &Outcome) {
        match outcome.error {
            _ if outcome.crossed > 0 || !outcome.is_whole => self.add_wrong(stream, outcome),
            None => self.complete += 1,
            Some(_) if outcome.has_begun => self.failed += 1,
            Some(_) => self.add_wrong(stream, outcome),
        }
    }

    /// Adds a result with an ordered fault.
    fn add_fault(&mut self, stream: u32, fault: Fault, leaves: bool, outcome: &Outcome) {
        let may_fail = matches!(fault, Fault::Refused | Fault::Cut | Fault::Garbage);
        let is_right = outcome.crossed == 0
            && (leaves || outcome.is_whole)
            && (outcome.error.is_none() != may_fail || leaves);
        match outcome.error {
            _ if !is_right => {
                println!("ordered {fault:?}");
                self.add_wrong(stream, outcome);
            }
            _ if leaves => self.left += 1,
            None => self.complete += 1,
            Some(_) => self.failed += 1,
        }
    }

    fn add_wrong(&mut self, stream: u32, outcome: &Outcome) {
        self.wrong += 1;
        println!("stream {stream}: {outcome:?}");
    }
}

/// Mixes answers of many sizes with faults and with clients that disconnect.
async fn check_soak(gateway: &Process, minutes: u64) {
    let length = if minutes == 0 {
        Duration::from_secs(10)
    } else {
        Duration::from_secs(60 * minutes)
    };
    let over = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU32::new(0));
    let tally = Arc::new(Mutex::new(ResultTally::default()));
    print_state(gateway, "at the start");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let over = Arc::clone(&over);
            let next = Arc::clone(&next);
            let tally = Arc::clone(&tally);
            let asking = client_request(gateway, Wire::OpenAiChat);
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let stream = next.fetch_add(1, Ordering::Relaxed);
                    // Mixed well, and the same in every run.
                    let number = u64::from(stream).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                    let fault = match number % 100 {
                        0..5 => Fault::BusyOnce,
                        5..10 => Fault::ClosedOnce,
                        10..12 => Fault::Refused,
                        12..16 => Fault::Cut,
                        16..20 => Fault::Garbage,
                        _ => Fault::None,
                    };
                    let leaves = number % 7 == 0;
                    let events = 4 + u32::try_from(number / 100 % 200).unwrap();
                    let asking = Asked {
                        front: front_of(stream),
                        leaves_after: leaves.then_some(events as usize / 3),
                        ..asking.clone()
                    };
                    let order = Order {
                        gap: Duration::from_millis(number / 1000 % 8),
                        size: 64 + usize::try_from(number / 10_000 % 2000).unwrap(),
                        ..order(stream, events, fault)
                    };
                    let outcome = client::ask(&asking, order).await;
                    tally
                        .lock()
                        .await
                        .add_fault(stream, fault, leaves, &outcome);
                }
            })
        })
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < length {
        tokio::time::sleep((length / 12).max(Duration::from_secs(1))).await;
        print_state(gateway, &format!("after {} s", begun.elapsed().as_secs()));
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    print_state(gateway, "at rest");
    let tally = tally.lock().await;
    println!("{tally:?}");
    assert_eq!(tally.wrong, 0);
}
