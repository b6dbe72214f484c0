//! What does a task cost beside its model? The real binary with a scripted provider: headless, the journal synced, checkpoints and
//! the sandbox as they are by default.
//!
//! `cargo bench -p sabir --bench tasks -- [--turns N]`
//!
//! What a turn costs is the time from the last byte of an answer to the first of the next request: reading the answer, the gates,
//! the journal, the tool, the next request. The provider sees it from outside. `--test` is a short run that fails if a task does.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking, and prints"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "tasks/process.rs"]
mod process;
#[path = "tasks/provider.rs"]
mod provider;

use provider::{Answers, Provider, Request};

/// The call that each turn makes.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    tool: &'static str,
    arguments: fn(usize) -> serde_json::Value,
}

/// Different ones, since the same call with the same result again and again is taken for a circle.
const KINDS: [Kind; 3] = [
    Kind {
        name: "read a file",
        tool: "read_file",
        arguments: |turn| serde_json::json!({"path": format!("f{}.txt", turn % 25)}),
    },
    Kind {
        name: "write a file",
        tool: "write_to_file",
        arguments: |turn| serde_json::json!({"path": "out.txt", "content": format!("{turn}\n").repeat(50)}),
    },
    Kind {
        name: "run a command",
        tool: "execute_command",
        arguments: |turn| serde_json::json!({"command": format!("echo {turn}")}),
    },
];

/// How much was said of a run.
struct Run {
    requests: Vec<Request>,
    began: Instant,
    whole: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let at = arguments.iter().position(|argument| argument == "--turns");
    let turns = at.map_or(500, |at| arguments[at + 1].parse().unwrap());
    if test {
        KINDS.iter().for_each(|kind| drop(task(kind, 3)));
        return;
    }
    starts();
    println!(
        "\n| call | turns | task, ms | turn at the beginning / in the middle / at the end, ms | CPU a turn, ms | PSS at turn 50 / at the end, MB | journal a turn, KB: first / second half | request, bytes a turn |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for kind in &KINDS {
        for turns in [1, 50, turns] {
            row(kind, turns, &task(kind, turns));
        }
    }
    long_answer();
}

/// From the start of the process to its first request.
fn starts() {
    let mut times: Vec<_> = (0..20)
        .map(|_| task(&KINDS[0], 1))
        .map(|run| run.requests[0].came - run.began)
        .collect();
    times.sort_unstable();
    let first = task(&KINDS[0], 1).requests[0].bytes;
    println!(
        "start to first request: median {:.1} ms, slowest of 20 {:.1} ms; {first} bytes",
        ms(times[10]),
        ms(times[19])
    );
}

fn row(kind: &Kind, turns: usize, run: &Run) {
    let requests = &run.requests;
    let gaps: Vec<_> = requests
        .windows(2)
        .map(|pair| pair[1].came - pair[0].answered)
        .collect();
    let part = |from: usize, to: usize| {
        let mut gaps = gaps[from.min(gaps.len())..to.min(gaps.len())].to_vec();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).map_or(0.0, |gap| ms(*gap))
    };
    let (first, last) = (&requests[0], &requests[requests.len() - 1]);
    let count = gaps.len().max(1) as f64;
    let half = &requests[requests.len() / 2];
    let kilobytes = |from: &Request, to: &Request| {
        (to.journal - from.journal) as f64 / 1024.0 / (count / 2.0).max(1.0)
    };
    println!(
        "| {} | {turns} | {:.0} | {:.2} / {:.2} / {:.2} | {:.2} | {:.1} / {:.1} | {:.2} / {:.2} | {:.0} |",
        kind.name,
        ms(run.whole),
        part(0, turns.min(50)),
        part(turns / 2, turns / 2 + 50),
        part(turns.saturating_sub(50), turns),
        (last.cpu - first.cpu) * 1000.0 / count,
        requests[requests.len().min(50) - 1].memory as f64 / 1024.0,
        last.memory as f64 / 1024.0,
        kilobytes(first, half),
        kilobytes(half, last),
        (last.bytes - first.bytes) as f64 / count,
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A task of so many turns with one call each.
fn task(kind: &Kind, turns: usize) -> Run {
    let answers = Answers::calls(turns, |turn| (kind.tool, (kind.arguments)(turn)));
    run(answers, &["--output", "json"])
}

/// An answer of 300 KB in pieces of 16 bytes, as event lines.
fn long_answer() {
    let text = "0123456789abcdef".repeat(300 * 1024 / 16);
    let run = run(
        Answers::text_then_completion(&text, 16),
        &["--output", "events"],
    );
    let most = run
        .requests
        .iter()
        .map(|request| request.memory)
        .max()
        .unwrap_or_default();
    println!(
        "\n300 KB in pieces of 16 bytes, as event lines: {:.0} ms; PSS behind it {:.1} MB",
        ms(run.whole),
        most as f64 / 1024.0
    );
}

fn run(answers: Answers, output: &[&str]) -> Run {
    let (home, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for file in 0..25 {
        std::fs::write(
            work.path().join(format!("f{file}.txt")),
            format!("line of file {file}\n").repeat(20),
        )
        .unwrap();
    }
    let provider = Provider::start(answers, home.path().join(".local/share/sabir/tasks"));
    let mut command = sabir(home.path(), work.path(), &provider);
    command
        .args(["run", "--model", "openai/scripted", "--approve", "all"])
        .args(output)
        .arg("go");
    let began = Instant::now();
    let child = command.spawn().unwrap();
    provider.watch(child.id());
    let output = child.wait_with_output().unwrap();
    let whole = began.elapsed();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Run {
        requests: provider.requests(),
        began,
        whole,
    }
}

fn sabir(home: &Path, work: &Path, provider: &Provider) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sabir"));
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(work);
    command
        .env("OPENAI_BASE_URL", provider.base_url())
        .env("OPENAI_API_KEY", "none");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}
