//! Measures the start of a command: the time from asking for it to the first thing that its shell does.
//!
//! `[SABIR=PROGRAM] [CODEX=PROGRAM] [ROUNDS=N] [ROWS=WORDS] cargo bench -p sabir-workspace --bench start`. The commands of Sabir are started as a
//! session starts them, from a running process; bubblewrap (from `PATH`) and Codex's sandbox are started by the same process. `SABIR` is
//! the program of the supervisor, by default the benchmark itself, which is smaller. The rows take turns, so that a busy moment meets
//! all of them; `ROWS` keeps those with these words in their name. `chrt -f 50` before the program keeps other work of the machine from
//! delaying it.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking, and prints a table"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sabir_workspace::{Sandbox, ShellCommand, Workspace, supervise};
use tokio::runtime::Runtime;

/// Prints the time at which the shell runs it.
const STAMP: &str = "echo $EPOCHREALTIME";

fn main() {
    // The benchmark is its own supervisor, as the binary is.
    let mut arguments = env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == supervise::ARGUMENT)
    {
        let _ = supervise::main(arguments);
        return;
    }
    let rounds = env::var("ROUNDS").map_or(50, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut rows = list_rows(folder.path());
    let words = env::var("ROWS").unwrap_or_default();
    rows.retain(|row| row.name.contains(&words) && row.start.measure_start().is_some());
    for _ in 0..rounds {
        for row in &mut rows {
            // As in a session, where a model answers between two commands. What is made for the
            // next command of this row must not disturb the next row.
            thread::sleep(Duration::from_millis(40));
            row.times.extend(row.start.measure_start());
        }
    }
    println!("| command | fastest, ms | median, ms | slowest of ten, ms |");
    println!("| --- | ---: | ---: | ---: |");
    for row in &mut rows {
        row.times.sort();
        let at = |part: usize| row.times[(row.times.len() - 1) * part / 10].as_secs_f64() * 1000.0;
        println!(
            "| {} | {:.1} | {:.1} | {:.1} |",
            row.name,
            at(0),
            at(5),
            at(9)
        );
    }
}

struct Row {
    name: String,
    start: Box<dyn MeasuredStart>,
    times: Vec<Duration>,
}

/// A way to start a command.
trait MeasuredStart {
    /// Returns the time to the first thing that the shell does; `None` if the command does not run here.
    fn measure_start(&self) -> Option<Duration>;
}

fn list_rows(folder: &Path) -> Vec<Row> {
    let work = folder.join("work");
    std::fs::create_dir(&work).unwrap();
    let mut rows = Vec::new();
    let mut add = |name: &str, start: Box<dyn MeasuredStart>| {
        rows.push(Row {
            name: name.to_owned(),
            start,
            times: Vec::new(),
        });
    };
    add(
        "bash alone",
        Box::new(OtherProgram {
            words: Vec::new(),
            work: work.clone(),
        }),
    );
    for (name, level, reads) in [
        ("sabir, off", "off", false),
        ("sabir, level 1", "1", false),
        ("sabir, level 2, reading", "2", true),
        ("sabir, level 2, writing", "2", false),
    ] {
        let sandbox = Sandbox::new(level.parse().unwrap())
            .share_temp_dir()
            .with_mask_pool(folder.join("masks"));
        let sandbox = if reads { sandbox.read_only() } else { sandbox };
        add(name, Box::new(SabirCommand::new(&work, sandbox)));
    }
    let walls = format!(
        "bwrap --ro-bind / / --bind {0} {0} --dev /dev --proc /proc --tmpfs /tmp --unshare-all --die-with-parent",
        work.display()
    );
    let words = walls.split(' ').map(str::to_owned).collect();
    add(
        "bubblewrap",
        Box::new(OtherProgram {
            words,
            work: work.clone(),
        }),
    );
    if let Ok(codex) = env::var("CODEX") {
        let words = [&codex, "sandbox", "--"].map(str::to_owned).to_vec();
        add("codex", Box::new(OtherProgram { words, work }));
    }
    rows
}

/// Returns the variables that a session always gives to commands. Without them bash looks the user up first. The working folder is
/// the home, so that a program that keeps files there leaves none behind.
fn command_variables(work: &Path) -> [(String, String); 4] {
    [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", &work.to_string_lossy()),
        ("USER", "user"),
        ("SHELL", "/bin/bash"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

struct SabirCommand {
    workspace: Workspace,
    sandbox: Sandbox,
    runtime: Runtime,
    helper: PathBuf,
}

impl SabirCommand {
    fn new(work: &Path, sandbox: Sandbox) -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        Self {
            workspace: Workspace::open(work).unwrap(),
            sandbox,
            runtime: runtime.enable_all().build().unwrap(),
            helper: env::var_os("SABIR").map_or_else(|| env::current_exe().unwrap(), PathBuf::from),
        }
    }
}

impl MeasuredStart for SabirCommand {
    fn measure_start(&self) -> Option<Duration> {
        let begun = SystemTime::now();
        let command = ShellCommand::new(STAMP, &self.helper)
            .env(command_variables(self.workspace.root()))
            .sandbox(self.sandbox.clone());
        let outcome = self
            .runtime
            .block_on(command.run(&self.workspace, |_, _| {}))
            .ok()?;
        since(begun, &outcome.output.text())
    }
}

/// A program that runs a shell, or the shell itself.
struct OtherProgram {
    words: Vec<String>,
    work: PathBuf,
}

impl MeasuredStart for OtherProgram {
    fn measure_start(&self) -> Option<Duration> {
        let begun = SystemTime::now();
        let shell = ["/bin/bash", "-c", STAMP].map(str::to_owned);
        let words = [self.words.as_slice(), &shell].concat();
        let mut command = Command::new(&words[0]);
        let output = command
            .args(&words[1..])
            .envs(command_variables(&self.work))
            .current_dir(&self.work)
            .output()
            .ok()?;
        since(begun, &String::from_utf8_lossy(&output.stdout))
    }
}

/// Returns the time until a moment that a shell printed, in seconds with six decimals.
fn since(begun: SystemTime, printed: &str) -> Option<Duration> {
    let digits = printed.trim().replace(['.', ','], "");
    let moment = Duration::from_micros(digits.parse().ok()?);
    Some(moment.saturating_sub(begun.duration_since(UNIX_EPOCH).ok()?))
}
