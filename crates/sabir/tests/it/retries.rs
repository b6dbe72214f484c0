//! Tests tasks whose provider is busy, silent or cut off, with the real binary.

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use serde_json::json;

use crate::approval::Seat;
use crate::world::{WAYS, Way, World, code, events, stderr, turn};

const NATIVE: Way = WAYS[1];

fn done() -> crate::world::Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// Runs a task of this many turns whose provider answers each request with 429 first.
fn run_with_a_busy_provider(turns: usize) {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(move |count, _| {
        let number = count / 2 + 1;
        if count % 2 == 0 {
            ProviderReply::error_status(429).with_header("retry-after", "0")
        } else if number < turns {
            let command = format!("echo {number} >> log.txt");
            let calls = vec![("execute_command", json!({ "command": command }))];
            NATIVE.reply(&turn("", calls), number)
        } else {
            NATIVE.reply(&done(), number)
        }
    }));
    let ran = world.run(&provider, NATIVE, &["--approve", "all", "count"]);
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(world.read("log.txt").lines().count(), turns - 1);
    assert_eq!(provider.received_requests().len(), 2 * turns);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_429_before_each_turn_ends_no_long_task() {
    // More turns than the budget has retries.
    run_with_a_busy_provider(70);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_429_before_each_of_300_turns_ends_no_long_task() {
    run_with_a_busy_provider(300);
}

#[test]
fn retries_are_limited_by_flags_and_by_the_configuration() {
    for (config, flags, requests, words) in [
        ("", &["--retries", "1"][..], 2, "429"),
        (
            "",
            &["--retries", "5", "--retry-budget", "3"],
            4,
            "all 3 retries since the last complete answer",
        ),
        ("[providers.openai]\nretries = 0\n", &[], 1, "429"),
        (
            "[providers.openai]\nretries = 3\nretry_budget = 2\n",
            &[],
            3,
            "all 2 retries",
        ),
        (
            "[providers.openai]\nretry_budget = 2\n",
            &["--retry-budget", "1"],
            2,
            "all 1 retries",
        ),
    ] {
        let world = World::new();
        world.configure(config);
        let provider = world.provider(ReplyScript::from_fn(|_, _| {
            ProviderReply::error_status(429).with_header("retry-after", "0")
        }));
        let ran = world.run(&provider, NATIVE, &[flags, &["do it"]].concat());
        assert_eq!(code(&ran), 7, "{config}{flags:?}: {}", stderr(&ran));
        assert!(
            stderr(&ran).contains(words),
            "{config}{flags:?}: {}",
            stderr(&ran)
        );
        assert_eq!(
            provider.received_requests().len(),
            requests,
            "{config}{flags:?}"
        );
    }
}

/// Tasks with the same words at the same time do not ask again at the same moments.
#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn identical_tasks_do_not_retry_in_step() {
    let waits = || {
        let world = World::new();
        let provider = world.provider(ReplyScript::from_fn(|count, _| match count {
            0 | 1 => ProviderReply::error_status(503),
            _ => NATIVE.reply(&done(), 1),
        }));
        let ran = world.run(&provider, NATIVE, &["--output", "events", "do it"]);
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        let waiting = events(&ran)
            .into_iter()
            .filter(|it| it["kind"] == "waiting");
        waiting
            .map(|it| it["milliseconds"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let all = [waits(), waits(), waits()];
    assert!(all.iter().all(|waits| waits.len() == 2), "{all:?}");
    assert!(all[0] != all[1] || all[1] != all[2], "{all:?}");
}

/// No attempt has a number beyond the number of attempts.
#[test]
fn attempts_are_counted_within_their_limit() {
    for (config, flags, expected) in [
        (
            "",
            &["--retries", "2"][..],
            &["attempt 1 of 3 failed", "attempt 2 of 3 failed"][..],
        ),
        (
            "[providers.openai]\nretries = 1\nretry_seconds = 60\n",
            &[],
            &["attempt 1 of 2 failed", "attempt 2, with "],
        ),
    ] {
        let world = World::new();
        world.configure(config);
        let provider = world.provider(ReplyScript::from_fn(|count, _| match count {
            0 | 1 => ProviderReply::error_status(429),
            _ => NATIVE.reply(&done(), 1),
        }));
        let ran = world.run(&provider, NATIVE, &[flags, &["do it"]].concat());
        let shown = stderr(&ran);
        assert_eq!(code(&ran), 0, "{shown}");
        for words in expected {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert!(
            !shown.contains("attempt 3") && !shown.contains("attempt 2 of 2"),
            "{shown}"
        );
    }
}

#[test]
fn a_clean_close_inside_the_first_event_is_retried() {
    let world = World::new();
    let cut = |body: &str| {
        ProviderReply::default().with_fault(ScriptedFault::Body {
            content_type: Some("text/event-stream".to_owned()),
            body: body.to_owned(),
        })
    };
    let replies = vec![cut("data: {\"choi"), cut("d"), NATIVE.reply(&done(), 1)];
    let provider = world.provider(ReplyScript::new(replies));
    let ran = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(provider.received_requests().len(), 3);
    assert!(!stderr(&ran).contains("base URL"), "{}", stderr(&ran));
    assert!(
        stderr(&ran).contains("inside the first event"),
        "{}",
        stderr(&ran)
    );
}

#[test]
fn the_wait_for_the_first_byte_can_be_set() {
    let world = World::new();
    world.configure("[providers.openai]\nfirst_byte_seconds = 1\nretries = 0\n");
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::default().with_fault(ScriptedFault::StallAfter(0))
    }));
    let ran = world.run(&provider, NATIVE, &["do it"]);
    assert_eq!(code(&ran), 7, "{}", stderr(&ran));
    assert!(stderr(&ran).contains("within 1s"), "{}", stderr(&ran));
}

/// Runs a task whose provider is rate limited this often, without saying for how long.
fn run_rate_limited(config: &str, refusals: usize) -> (std::process::Output, usize) {
    let world = World::new();
    world.configure(config);
    let provider = world.provider(ReplyScript::from_fn(move |count, _| {
        if count < refusals {
            ProviderReply::error_status(429)
        } else {
            NATIVE.reply(&done(), count)
        }
    }));
    let ran = world.run(&provider, NATIVE, &["do it"]);
    (ran, provider.received_requests().len())
}

#[test]
fn a_rate_limit_is_waited_out_for_the_configured_time() {
    // Two pauses of at most half a second and a second.
    let config = "[providers.openai]\nretries = 0\nretry_seconds = 60\n";
    let (ran, requests) = run_rate_limited(config, 2);
    assert_eq!((code(&ran), requests), (0, 3), "{}", stderr(&ran));
    assert!(stderr(&ran).contains(" left for more"), "{}", stderr(&ran));
    // No pause fits.
    let config = "[providers.openai]\nretries = 0\nretry_seconds = 0\n";
    let (ran, requests) = run_rate_limited(config, 2);
    assert_eq!((code(&ran), requests), (7, 1), "{}", stderr(&ran));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_rate_limit_is_waited_out_for_minutes_by_default() {
    let (ran, requests) = run_rate_limited("", 6);
    assert_eq!((code(&ran), requests), (0, 7), "{}", stderr(&ran));
}

#[test]
fn a_countdown_can_be_interrupted() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|count, _| match count {
        0 => ProviderReply::error_status(429).with_header("retry-after", "50"),
        _ => NATIVE.reply(&turn("Here I am.", vec![]), count),
    }));
    let mut command = world.sabir_with(&provider);
    command
        .env("TERM", "xterm-256color")
        .args(["--interface", "line"])
        .args(["--model", NATIVE.model(), "remember the milk"]);
    let mut seat = Seat::running(command, "");
    seat.wait_for("next attempt in 50 s; Ctrl-C returns to the prompt");
    // It is drawn again each second, and beside what is typed.
    seat.keys("my draft");
    seat.wait_for("next attempt in 4");
    seat.keys("\x03\x03");
    seat.wait_for("sabir: ");
    seat.wait_for("> ");
    seat.keys("go on\r");
    seat.wait_for("Here I am.");
    let requests = provider.received_requests();
    assert_eq!(requests.len(), 2);
    let last = requests.last().unwrap().body.to_string();
    assert!(
        last.contains("remember the milk") && last.contains("go on"),
        "{last}"
    );
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert!(seat.end().code().is_some());
}
