//! `cargo run --release -p sabir-simulate -- [--seeds N] [--from SEED] [--seed SEED --trace]`: simulates many tasks.
//!
//! Prints how often each event happened. Exits with 1 if an invariant was broken, and prints the command that reproduces it, or if an event
//! that must happen never did.
//!
//! Seeds are independent, so they run on all processors. A failure is reproduced with its seed
//! alone, on any machine, by the same version of the program.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command prints for its caller"
)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use sabir_simulate::{EventCounters, INVARIANTS, SABOTAGES, SimulationReport, simulate};

/// The one line that follows an error in the command line.
const USAGE: &str =
    "usage: sabir-simulate [--seeds N] [--from SEED] [--seed SEED [--trace]] [--invariants]";

/// The parsed command line.
#[derive(Debug, Clone, Copy, Default)]
struct CliOptions {
    /// The first seed.
    from: u64,
    /// The number of seeds.
    seeds: u64,
    /// True to print every event.
    traced: bool,
    /// True to print the invariants instead of simulating.
    invariants: bool,
}

/// An error in the command line.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    #[error("{0} needs a number")]
    /// The option is at the end, without its number.
    Missing(String),
    #[error("{option} {value}: {error}")]
    /// The word after the option is not a number of 64 bits.
    Number {
        option: String,
        value: String,
        error: std::num::ParseIntError,
    },
    #[error("unknown: {0}")]
    /// There is no such option.
    Unknown(String),
}

fn main() -> ExitCode {
    let wanted = match parse_options(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if wanted.invariants {
        for (invariant, _, _, seen) in &INVARIANTS {
            println!("{invariant}\n    seen: {seen}");
            let broken = SABOTAGES
                .iter()
                .filter(|(_, invariants)| invariants.contains(invariant));
            broken.for_each(|(sabotage, _)| println!("    broken by: {sabotage:?}"));
        }
        return ExitCode::SUCCESS;
    }
    // With `--seed` and `--trace` this prints every event; otherwise nothing before the end.
    let (counters, broken) = run_seeds(wanted);
    if let Some(report) = broken {
        println!(
            "seed {}: BROKEN {}",
            report.seed,
            report
                .violation
                .map(|broken| broken.to_string())
                .unwrap_or_default()
        );
        println!(
            "again: cargo run --release -p sabir-simulate -- --seed {} --trace",
            report.seed
        );
        return ExitCode::FAILURE;
    }
    print!("{counters}");
    let missing = counters.missing_events();
    // Fewer seeds need not reach every rare case.
    if wanted.seeds >= EventCounters::ENOUGH_SEEDS && !missing.is_empty() {
        println!("never happened: {}", missing.join(", "));
        return ExitCode::FAILURE;
    }
    println!(
        "{} seeds from {}: no invariant was broken",
        wanted.seeds, wanted.from
    );
    ExitCode::SUCCESS
}

/// Parses the command line. Without options, 1000 seeds from 0 are simulated.
///
/// # Errors
/// When an option is unknown, or its value is missing or not a number.
fn parse_options(mut words: impl Iterator<Item = String>) -> Result<CliOptions, OptionError> {
    let mut wanted = CliOptions {
        seeds: 1000,
        ..CliOptions::default()
    };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words
                .next()
                .ok_or_else(|| OptionError::Missing(word.clone()))?;
            let parsed = value.parse::<u64>();
            parsed.map_err(|error| OptionError::Number {
                option: word.clone(),
                value,
                error,
            })
        };
        match word.as_str() {
            "--seeds" => wanted.seeds = number()?,
            "--from" => wanted.from = number()?,
            "--seed" => {
                wanted.from = number()?;
                wanted.seeds = 1;
            }
            "--trace" => wanted.traced = true,
            "--invariants" => wanted.invariants = true,
            _ => return Err(OptionError::Unknown(word)),
        }
    }
    Ok(wanted)
}

/// Simulates all seeds on as many threads as there are processors. Stops at the first failure, and returns the failed report with the
/// lowest seed among those that were found.
fn run_seeds(wanted: CliOptions) -> (EventCounters, Option<SimulationReport>) {
    // Threads take seeds one by one, since some tasks take a hundred times as long as others.
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let all = Mutex::new((EventCounters::default(), None::<SimulationReport>));
    let threads = if wanted.seeds < 2 {
        1
    } else {
        available_parallelism().map_or(1, usize::from)
    };
    scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut counters = EventCounters::default();
                let mut broken = None;
                while !failed.load(Ordering::Relaxed) {
                    // Relaxed is enough: the counter only hands out numbers, and nothing else is
                    // published with it.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= wanted.seeds {
                        break;
                    }
                    let report = simulate(wanted.from.wrapping_add(at), None, wanted.traced);
                    // Empty without `--trace`. Lines of different seeds would mix with several
                    // threads, so `--trace` requires `--seed`.
                    report.trace.iter().for_each(|line| println!("{line}"));
                    counters.merge(&report.counters);
                    // The other threads finish the seed that they work on. One of them may find a
                    // lower one.
                    if report.violation.is_some() {
                        failed.store(true, Ordering::Relaxed);
                        broken = Some(report);
                    }
                }
                let mut all = all
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                all.0.merge(&counters);
                if let Some(report) = broken {
                    let first = all.1.as_ref().is_none_or(|other| report.seed < other.seed);
                    if first {
                        all.1 = Some(report);
                    }
                }
            });
        }
    });
    all.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
