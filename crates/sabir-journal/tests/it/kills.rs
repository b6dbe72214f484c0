//! `kill -9` of a process that appends: what it acknowledged is there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use sabir_agent::{Record, Store, TaskId};
use sabir_journal::{Journal, JournalError};

use crate::{clock, records_of, said};

const ROUNDS: usize = 100;

/// The n-th record; sizes from a few bytes to half a megabyte, whose write can be cut.
fn record(number: usize) -> Record {
    let size = [10, 200, 500_000, 40, 300_000, 1_000][number % 6];
    said(format!("{number} {}", "x".repeat(size + number % 97)))
}

/// Appends for ever and says the number of each record once it is kept. Started, and killed, by the test below.
#[test]
#[ignore = "runs until it is killed; `acknowledged_records_survive` starts it"]
fn writer() {
    let folder = std::env::var_os("SABIR_TEST_FOLDER").unwrap();
    let (folder, task) = (Path::new(&folder), TaskId::new("task"));
    let (mut journal, first) = match Journal::open(folder, &task, clock()) {
        Ok((journal, entries, _)) => (journal, entries.len()),
        Err(JournalError::Missing { .. }) => (Journal::create(folder, &task, clock()).unwrap(), 0),
        Err(error) => panic!("{error}"),
    };
    for number in first.. {
        journal.append(&record(number)).unwrap();
        writeln!(std::io::stdout(), "kept {number}").unwrap();
    }
}

#[test]
fn acknowledged_records_survive() {
    let mut torn = 0;
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            folder = tempfile::tempdir().unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::writer", "--ignored", "--nocapture"])
            .env("SABIR_TEST_FOLDER", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kept = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("kept ")?.parse::<usize>().ok());
        // A different moment each time: after some records, and anywhere within the next.
        let mut last = kept.nth(round % 7).unwrap();
        let error = Journal::open(folder.path(), &TaskId::new("task"), clock()).unwrap_err();
        assert!(matches!(error, JournalError::Locked { .. }), "{error:?}");
        std::thread::sleep(std::time::Duration::from_micros((round as u64 * 7919) % 20_000));
        child.kill().unwrap();
        // What it said before it died counts too.
        last = kept.last().unwrap_or(last);
        child.wait().unwrap();

        let (_journal, entries, recovery) = Journal::open(folder.path(), &TaskId::new("task"), clock()).unwrap();
        assert_eq!(recovery.damaged_bytes, 0, "round {round}: {recovery:?}");
        torn += usize::from(!recovery.is_clean());
        let found = records_of(entries);
        assert!(found.len() > last, "round {round}: record {last} was acknowledged, {} are there", found.len());
        assert!(found.iter().enumerate().all(|(number, found)| *found == record(number)), "round {round}");
    }
    println!("{ROUNDS} kills, {torn} torn ends");
}
