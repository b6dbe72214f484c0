//! Tests the command tools with real processes.

use std::time::{Duration, Instant};

use sabir_agent::CallPermit;
use serde_json::json;

use crate::{Place, object};

#[track_caller]
fn check(command: &str, expected: &str, failed: bool) {
    let (output, _) = Place::new().run("execute_command", json!({"command": command}));
    assert_eq!(
        (output.content.as_str(), output.failed),
        (expected, failed),
        "{command}"
    );
}

#[test]
fn ends() {
    check(
        "echo hello; echo; echo",
        "Exit code 0. Output:\nhello",
        false,
    );
    check("true", "Exit code 0, no output.", false);
    check(
        "printf ' é\\n\\xff'; exit 3",
        "Exit code 3. Output:\n é\n\u{fffd}",
        true,
    );
    check(
        "kill -9 $$",
        "Ended by SIGKILL (9), no output.\n[Killed from outside, perhaps for want of memory.]",
        true,
    );
    check(
        "cat; read x || echo none",
        "Exit code 0. Output:\nnone",
        false,
    );
    check(
        "  ",
        "the command cannot be run: it is empty; write the command to run.",
        true,
    );
    check(
        "a\0b",
        "the command cannot be run: it holds a NUL byte; write it without.",
        true,
    );
}

#[test]
fn the_environment_is_the_settings() {
    check(
        "echo $PATH $HOME",
        "Exit code 0. Output:\n/usr/local/bin:/usr/bin:/bin",
        false,
    );
}

#[test]
fn a_time_out_kills() {
    let place = Place::new();
    let start = Instant::now();
    place.fails(
        "execute_command",
        json!({"command": "echo begun; sleep 1000 & sleep 1000", "timeout": 3}),
        "Killed after 3 seconds, with all that it had started. Output:\nbegun\n[If it needs longer, give a timeout of up to 600. If it \
         waits for input, give that on its command line. If it is a server, use background.]",
    );
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(alive(&place), 0);
}

#[test]
fn nothing_stays_in_the_background() {
    let place = Place::new();
    let start = Instant::now();
    place.done(
        "execute_command",
        json!({"command": "(setsid sleep 1000 &) ; sleep 1000 & echo done"}),
        "Exit code 0. Output:\ndone\n[2 processes that it left running were ended. For a server, use background, without `&`.]",
    );
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(alive(&place), 0);
}

#[test]
fn a_flood_is_capped() {
    let place = Place::new();
    let (output, streamed) = place.run("execute_command", json!({"command": "seq 1 200000"}));
    assert!(!output.failed);
    assert_eq!(streamed.len(), 1_288_895);
    assert!(output.content.len() < 34_000, "{}", output.content.len());
    assert!(output.content.starts_with("Exit code 0. Output:\n1\n2\n"));
    assert!(
        output.content.contains(
            "[… 1,256,127 bytes left out; read_command_output with output 1 shows them …]"
        ),
        "{}",
        output.content
    );
    assert!(output.content.ends_with("199999\n200000"));
}

#[test]
fn a_flood_is_shown_for_a_while() {
    let (output, streamed) =
        Place::new().run("execute_command", json!({"command": "yes | head -c 20M"}));
    assert!(!output.failed);
    assert!(streamed.len() < 5 << 20, "{}", streamed.len());
    assert!(streamed.ends_with("y\n\n[… the rest is not shown while it comes …]\n"));
}

#[test]
fn output_streams_while_the_command_runs() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let tool = place.registry.get("execute_command").unwrap();
    let arguments = object(
        json!({"command": "printf 'é'; while [ ! -e go ]; do sleep 0.05; done; echo end", "timeout": 60}),
    );
    let mut pieces = Vec::new();
    let output = runtime.block_on(tool.prepare(&arguments).run(
        &CallPermit::unchecked(sabir_call::CallId::new("1")),
        &mut |piece| {
            pieces.push(piece.to_owned());
            // The command continues only after this.
            std::fs::write(place.inner("go"), "").unwrap();
        },
    ));
    assert_eq!(output.content, "Exit code 0. Output:\néend");
    assert_eq!(pieces, ["é", "end\n"]);
}

#[test]
fn dropping_the_future_ends_the_command() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let tool = place.registry.get("execute_command").unwrap();
    let arguments = object(json!({"command": "touch begun; sleep 1000 & sleep 1000"}));
    runtime.block_on(async {
        let (mut quiet, begun) = (|_: &str| {}, place.inner("begun"));
        let permit = CallPermit::unchecked(sabir_call::CallId::new("1"));
        let work = tool.prepare(&arguments).run(&permit, &mut quiet);
        tokio::select! {
            output = work => panic!("{output:?}"),
            () = async { while !begun.exists() { tokio::time::sleep(Duration::from_millis(5)).await; } } => {}
        }
    });
    let start = Instant::now();
    while alive(&place) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of processes that run in the place's folder.
fn alive(place: &Place) -> usize {
    let root = place.root.path().canonicalize().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == root))
        .count()
}
