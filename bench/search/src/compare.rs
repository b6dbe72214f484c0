//! The times of both, side by side.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
/// The greatest ratio of the medians.
const TARGET: f64 = 1.5;
const ALL: &str = "1000000";
const LIMIT: usize = 200;

/// What is compared: its name, our arguments after the folder, ripgrep's, and how many lines are wanted.
struct Case {
    name: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
    limit: usize,
}

const CASES: [Case; 5] = [
    Case { name: "all files", ours: &["list", ALL], theirs: &["--files"], limit: usize::MAX },
    Case { name: "a rare word", ours: &["search", "xylophone", ALL], theirs: &["xylophone"], limit: usize::MAX },
    Case { name: "a common word, the first 200 lines", ours: &["search", "common", "200"], theirs: &["common"], limit: LIMIT },
    Case {
        name: "an alternation",
        ours: &["search", "xylo(phone|graph)|[a-z]+_itemize|(buffer|reader)_(pool|lock)", ALL],
        theirs: &["xylo(phone|graph)|[a-z]+_itemize|(buffer|reader)_(pool|lock)"],
        limit: usize::MAX,
    },
    Case { name: "a common word, all lines", ours: &["search", "state_item", ALL], theirs: &["state_item"], limit: usize::MAX },
];

/// Prints the table; fails where a target is missed.
pub(crate) fn table(tree: &Path, rg: &str) -> io::Result<ExitCode> {
    let me = std::env::current_exe()?;
    println!("Medians of {ROUNDS} runs of whole processes, files in the page cache. ripgrep with `--hidden --no-require-git");
    println!("--no-ignore-global --no-config -n`, and unsorted, as it is by default; ours are sorted.\n");
    println!("| | lines | ours | ripgrep | ratio |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut missed = false;
    for case in CASES {
        let mut ours = Command::new(&me);
        let (verb, rest) = case.ours.split_first().unwrap_or((&"", &[]));
        ours.arg(verb).arg(tree).args(rest);
        let mut theirs = Command::new(rg);
        theirs.current_dir(tree).args(["--hidden", "--no-require-git", "--no-ignore-global", "--no-config", "-n"]);
        theirs.args(case.theirs);
        let (mut times, mut lines) = ([Vec::new(), Vec::new()], [0, 0]);
        for _ in 0..=ROUNDS {
            for ((command, times), lines) in [&mut ours, &mut theirs].into_iter().zip(&mut times).zip(&mut lines) {
                let (time, count) = run(command, case.limit)?;
                times.push(time);
                *lines = count;
            }
        }
        let [ours, theirs] = times.map(median);
        let [our_lines, their_lines] = lines;
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        missed |= ratio > TARGET || our_lines != their_lines;
        let lines = if our_lines == their_lines { our_lines.to_string() } else { format!("**{our_lines}, {their_lines}**") };
        println!("| {} | {lines} | {:.0} ms | {:.0} ms | {ratio:.2} |", case.name, millis(ours), millis(theirs));
    }
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One run, read to its end or to the last line that is wanted; then the pipe closes, and ripgrep ends.
fn run(command: &mut Command, limit: usize) -> io::Result<(Duration, usize)> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut lines = 0;
    if let Some(out) = child.stdout.take() {
        let (mut out, mut line) = (BufReader::new(out), Vec::new());
        while lines < limit && out.read_until(b'\n', &mut line)? > 0 {
            lines += 1;
            line.clear();
        }
    }
    child.wait()?;
    Ok((start.elapsed(), lines))
}

/// The first is left out: it warms the cache.
fn median(mut times: Vec<Duration>) -> Duration {
    times.remove(0);
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
