//! Measures what a task costs beside its model: the real binary with a scripted provider, headless, with a synced journal,
//! checkpoints and the default sandbox.
//!
//! `cargo bench -p sabir --bench tasks -- [--turns N] [--binary BINARY] [--beside BINARY]`
//!
//! The cost of a turn is the time from the last byte of an answer to the first byte of the next request: reading the answer, the
//! checks, the journal, the tool, the next request. The provider measures it from outside. `--beside` alternates with another build
//! of `sabir` and prints ratios, since only figures of one run compare. `--binary` measures a build that exists already. `--test` is a short run that fails if a task does.

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

/// Arguments differ from turn to turn: the same call with the same result again and again ends a task as a cycle.
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

/// Measurements of one run of the binary.
struct Run {
    requests: Vec<Request>,
    began: Instant,
    whole: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map(|at| arguments[at + 1].as_str())
    };
    let turns = option("--turns").map_or(500, |turns| turns.parse().unwrap());
    // The binaries run in another folder, so a relative path would not be found there.
    let own = option("--binary").unwrap_or(env!("CARGO_BIN_EXE_sabir"));
    let own = &std::path::absolute(own).unwrap();
    if test {
        KINDS.iter().for_each(|kind| drop(task(own, kind, 3)));
        compare(own, own, 3, 1);
        return;
    }
    if let Some(other) = option("--beside") {
        compare(own, &std::path::absolute(other).unwrap(), turns, 5);
        return;
    }
    starts(own);
    println!(
        "\n| call | turns | task, ms | turn at the beginning / in the middle / at the end, ms | CPU a turn, ms | PSS at turn 50 / at the end, MB | journal a turn, KB: first / second half | request, bytes a turn |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for kind in &KINDS {
        for turns in [1, 50, turns] {
            row(kind, turns, &task(own, kind, turns));
        }
    }
    long_answer(own);
}

/// Prints the time and memory of this build divided by those of another one, which runs in turn with it.
fn compare(own: &Path, other: &Path, turns: usize, rounds: usize) {
    println!("| measured | this build | the other | ratio |");
    println!("| --- | --- | --- | --- |");
    let starts = alternate(own, other, rounds * 6, |binary| {
        let run = task(binary, &KINDS[0], 1);
        ms(run.requests[0].came - run.began)
    });
    ratio("start to first request, ms", &starts);
    for kind in &KINDS {
        let name = kind.name;
        let costs = alternate(own, other, rounds, |binary| {
            median_gap(&task(binary, kind, turns))
        });
        ratio(&format!("a turn of {turns}: {name}, ms"), &costs);
    }
    let memory = alternate(own, other, rounds, |binary| {
        let run = task(binary, &KINDS[0], turns);
        run.requests[run.requests.len() - 1].memory as f64 / 1024.0
    });
    ratio("PSS at the end, MB", &memory);
}

/// Medians of one measurement with both builds.
struct Compared {
    own: f64,
    other: f64,
}

/// Measures both builds alternately, so that a busy moment of the machine meets both.
fn alternate(own: &Path, other: &Path, rounds: usize, measure: impl Fn(&Path) -> f64) -> Compared {
    let mut own_values = Vec::new();
    let mut other_values = Vec::new();
    for round in 0..rounds {
        // The second of a pair finds warmer caches, so the order changes every round.
        if round % 2 == 0 {
            own_values.push(measure(own));
            other_values.push(measure(other));
        } else {
            other_values.push(measure(other));
            own_values.push(measure(own));
        }
    }
    Compared {
        own: median(&mut own_values),
        other: median(&mut other_values),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ratio(name: &str, compared: &Compared) {
    println!(
        "| {name} | {:.2} | {:.2} | {:.2} |",
        compared.own,
        compared.other,
        compared.own / compared.other
    );
}

/// The median time between an answer and the request after it, in milliseconds.
fn median_gap(run: &Run) -> f64 {
    let mut gaps: Vec<f64> = run
        .requests
        .windows(2)
        .map(|pair| ms(pair[1].came - pair[0].answered))
        .collect();
    median(&mut gaps)
}

/// From the start of the process to its first request.
fn starts(own: &Path) {
    let mut times: Vec<_> = (0..20)
        .map(|_| task(own, &KINDS[0], 1))
        .map(|run| run.requests[0].came - run.began)
        .collect();
    times.sort_unstable();
    let first = task(own, &KINDS[0], 1).requests[0].bytes;
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

/// Runs a task of `turns` turns with one call each.
fn task(binary: &Path, kind: &Kind, turns: usize) -> Run {
    let answers = Answers::calls(turns, |turn| (kind.tool, (kind.arguments)(turn)));
    run(binary, answers, &["--output", "json"])
}

/// Reads an answer of 300 KB in pieces of 16 bytes, as event lines.
fn long_answer(own: &Path) {
    let text = "0123456789abcdef".repeat(300 * 1024 / 16);
    let run = run(
        own,
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

fn run(binary: &Path, answers: Answers, output: &[&str]) -> Run {
    let home = TempDir::new().unwrap();
    let work = TempDir::new().unwrap();
    for file in 0..25 {
        std::fs::write(
            work.path().join(format!("f{file}.txt")),
            format!("line of file {file}\n").repeat(20),
        )
        .unwrap();
    }
    let provider = Provider::start(answers, home.path().join(".local/share/sabir/tasks"));
    let mut command = Command::new(binary);
    let base_url = provider.base_url();
    prepare(&mut command, home.path(), work.path(), &base_url);
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

/// Gives the command a fresh home, the workspace and the scripted provider.
fn prepare(command: &mut Command, home: &Path, work: &Path, base_url: &str) {
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(work);
    command
        .env("OPENAI_BASE_URL", base_url)
        .env("OPENAI_API_KEY", "none");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}
