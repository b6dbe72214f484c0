//! Tests `kill -9` of an appending process: every acknowledged record survives.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use sabir_agent::TaskId;
use sabir_journal::{Journal, JournalError};

use crate::record::record;
use crate::{clock, records_of};

#[test]
fn acknowledged_records_survive_some_kills() {
    kill_and_reopen(15);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn acknowledged_records_survive_many_kills() {
    kill_and_reopen(100);
}

/// Kills an appending process this number of times, each time at a different moment, and reads its journal.
fn kill_and_reopen(rounds: usize) {
    let mut torn = 0;
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        if round % 10 == 0 {
            folder = tempfile::tempdir().unwrap();
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_journal-probe"))
            .arg("append")
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kept = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("kept ")?.parse::<usize>().ok());
        // A different moment each time: after some records, and anywhere within the next.
        let mut last = kept.nth(round % 7).unwrap();
        let error = Journal::open(folder.path(), &TaskId::new("task"), clock()).unwrap_err();
        assert!(matches!(error, JournalError::Locked { .. }), "{error:?}");
        std::thread::sleep(std::time::Duration::from_micros(
            (round as u64 * 7919) % 20_000,
        ));
        child.kill().unwrap();
        // Records acknowledged right before its death count too.
        last = kept.last().unwrap_or(last);
        child.wait().unwrap();

        let (_journal, entries, recovery) =
            Journal::open(folder.path(), &TaskId::new("task"), clock()).unwrap();
        assert_eq!(recovery.damaged_bytes, 0, "round {round}: {recovery:?}");
        torn += usize::from(!recovery.is_clean());
        let found = records_of(entries);
        assert!(
            found.len() > last,
            "round {round}: record {last} was acknowledged, {} are there",
            found.len()
        );
        assert!(
            found
                .iter()
                .enumerate()
                .all(|(number, found)| *found == record(number)),
            "round {round}"
        );
    }
    assert!(torn <= rounds);
}
