//! Provides the helper program of the tests: `checkpoint-probe FOLDER STORE TASK ROUNDS` changes
//! files, takes checkpoints before and after, and restores now and then.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sabir_checkpoint::{
    CallWrites, CheckpointCall, CheckpointError, CheckpointStore, RestorePoint, SnapshotScope,
    StoreLimits,
};
use sabir_workspace::{Workspace, WritePrecondition};

fn main() -> ExitCode {
    match checkpoints(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes files that repeat one line, so that a mixture of two versions is visible.
fn checkpoints(mut args: impl Iterator<Item = OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let mut next = || args.next().ok_or("an argument is missing");
    let workspace = Arc::new(Workspace::open(Path::new(&next()?))?);
    let store = next()?;
    let task = next()?.into_string().map_err(|_| "no text")?;
    let rounds: u64 = next()?.to_str().ok_or("no text")?.parse()?;
    let caps = StoreLimits {
        store_bytes: 1 << 20,
        ..StoreLimits::default()
    };
    let checkpoints = CheckpointStore::new(store.into(), Arc::clone(&workspace), caps, Vec::new());
    let stop = AtomicBool::new(false);
    for round in 0..rounds {
        let time_ms = 4_000_000_000_000 + round;
        let mark = || CheckpointCall {
            task: task.clone(),
            call: round.to_string(),
            time_ms,
            ..CheckpointCall::default()
        };
        let path = workspace.parse_path(&format!("{task}/{}", round % 7))?;
        let scope = if round.is_multiple_of(4) {
            SnapshotScope::All
        } else {
            SnapshotScope::Files(vec![path.clone()])
        };
        let id = checkpoints.take_snapshot(mark(), &scope, &stop)?;
        workspace.write_file(
            &path,
            format!("{task} {} {round}\n", std::process::id())
                .repeat(1500)
                .as_bytes(),
            WritePrecondition::Any,
        )?;
        checkpoints.seal_checkpoint(id, time_ms, &CallWrites::All, &stop)?;
        if round % 10 == 9 {
            let goal = RestorePoint::Last(2);
            loop {
                let back = checkpoints
                    .plan_restore(&task, &goal)
                    .and_then(|plan| checkpoints.restore(&plan, &goal, mark(), true));
                match back {
                    // Another process may change the files of the plan.
                    Err(CheckpointError::Stale) => {}
                    // The store is small, and other processes need it too.
                    Err(CheckpointError::Pruned { .. } | CheckpointError::NoTask { .. })
                    | Ok(_) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}
