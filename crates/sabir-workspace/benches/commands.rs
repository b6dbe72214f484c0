//! Measures the cost of the supervisor for a command, and of capturing a flood of output, beside
//! the plain way.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::io::Read;
use std::process::Stdio;

use divan::Bencher;
use divan::counter::BytesCount;
use sabir_workspace::{JobManager, OutputLifetime, ShellCommand, Workspace};

const PROBE: &str = env!("CARGO_BIN_EXE_workspace-probe");
const FLOOD_BYTES: u64 = 256 << 20;
const FLOODS: [&str; 2] = ["yes | head -c 256M", "head -c 256M /dev/zero | tr '\\0' x"];

fn main() {
    divan::main();
}

fn command(text: &str) -> ShellCommand {
    ShellCommand::new(text, PROBE)
        .env([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())])
}

fn supervised(bencher: Bencher<'_, '_>, command: impl Fn() -> ShellCommand) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let run = || {
        runtime
            .block_on(command().run(&workspace, |_, _| {}))
            .unwrap()
    };
    bencher.bench_local(run);
}

#[divan::bench]
fn true_plainly(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        std::process::Command::new("/bin/bash")
            .args(["-c", "true"])
            .output()
            .unwrap()
    });
}

#[divan::bench]
fn true_supervised(bencher: Bencher<'_, '_>) {
    supervised(bencher, || command("true"));
}

#[divan::bench]
fn true_in_a_terminal(bencher: Bencher<'_, '_>) {
    supervised(bencher, || command("true").with_terminal());
}

#[divan::bench(args = FLOODS, sample_count = 5, sample_size = 1)]
fn flood_thrown_away(bencher: Bencher<'_, '_>, text: &str) {
    bencher
        .counter(BytesCount::new(FLOOD_BYTES))
        .bench_local(|| {
            let mut child = std::process::Command::new("/bin/bash")
                .args(["-c", text])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = child.stdout.take().unwrap();
            let mut buffer = vec![0; 32 << 10];
            let mut all = 0;
            while let count @ 1.. = output.read(&mut buffer).unwrap() {
                all += count;
            }
            child.wait().unwrap();
            all
        });
}

#[divan::bench(args = FLOODS, sample_count = 5, sample_size = 1)]
fn flood_shortened(bencher: Bencher<'_, '_>, text: &str) {
    supervised(bencher.counter(BytesCount::new(FLOOD_BYTES)), || {
        command(text)
    });
}

#[divan::bench(args = FLOODS, sample_count = 5, sample_size = 1)]
fn flood_kept(bencher: Bencher<'_, '_>, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let outputs = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let jobs = JobManager::new(outputs.path().join("outputs"), OutputLifetime::Temporary);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let run = || {
        runtime
            .block_on(jobs.run_command(&workspace, command(text), text, |_, _| {}))
            .unwrap()
    };
    bencher
        .counter(BytesCount::new(FLOOD_BYTES))
        .bench_local(run);
}
