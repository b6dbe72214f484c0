//! The helper of the tests: the supervisor, and an agent that can be killed.
//!
//! `workspace-probe __supervise …` supervises; `workspace-probe agent FOLDER TEXT` runs a command as an agent would;
//! `workspace-probe change FOLDER CHANGE…`, `look FOLDER` and `storm FOLDER` do what [`files`] says.
//! `workspace-probe confined …` runs a command in a sandbox, `without CALL ARGUMENTS…` does the rest on a kernel that lacks a
//! system call, `try NAME ARGUMENTS…` makes a real system call and says `allowed` or `denied`.
//! `workspace-probe checkpoints FOLDER STORE TASK ROUNDS` changes files with checkpoints around, and goes back now and then.

mod attempts;
mod confined;
mod files;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sabir_workspace::checkpoint::{Caps, CheckpointError, Checkpoints, Goal, Mark, Scope};
use sabir_workspace::{Command, Expect, Workspace, supervise};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == supervise::ARGUMENT => supervise::main(args),
        Some(first) if first == "agent" => agent(args.next(), args.next()).unwrap_or(ExitCode::FAILURE),
        Some(first) if first == "confined" => {
            confined::confined(&args.collect::<Vec<_>>()).unwrap_or(ExitCode::from(2))
        }
        Some(first) if first == "without" => attempts::without(args),
        Some(first) if first == "try" => attempts::attempt(args),
        Some(first) if first == "checkpoints" => match checkpoints(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "{error}");
                ExitCode::FAILURE
            }
        },
        Some(first) => files::main(&first, args).unwrap_or(ExitCode::from(2)),
        None => ExitCode::from(2),
    }
}

/// Files of one line, again and again, so that a mixture of two versions shows.
fn checkpoints(mut args: impl Iterator<Item = OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let mut next = || args.next().ok_or("an argument is missing");
    let workspace = Arc::new(Workspace::open(Path::new(&next()?))?);
    let (store, task) = (next()?, next()?.into_string().map_err(|_| "no text")?);
    let rounds: u64 = next()?.to_str().ok_or("no text")?.parse()?;
    let caps = Caps { store_bytes: 1 << 20, ..Caps::default() };
    let checkpoints = Checkpoints::new(store.into(), Arc::clone(&workspace), caps, Vec::new());
    let stop = AtomicBool::new(false);
    for round in 0..rounds {
        let time_ms = 4_000_000_000_000 + round;
        let mark = || Mark { task: task.clone(), call: round.to_string(), time_ms, ..Mark::default() };
        let path = workspace.path(&format!("{task}/{}", round % 7))?;
        let scope = if round.is_multiple_of(4) { Scope::All } else { Scope::Files(vec![path.clone()]) };
        let id = checkpoints.take(mark(), &scope, &stop)?;
        workspace.write(
            &path,
            format!("{task} {} {round}\n", std::process::id()).repeat(1500).as_bytes(),
            Expect::Any,
        )?;
        checkpoints.seal(id, time_ms, &stop)?;
        if round % 10 == 9 {
            let goal = Goal::Last(2);
            loop {
                let back =
                    checkpoints.plan(&task, &goal).and_then(|plan| checkpoints.restore(&plan, &goal, mark(), true));
                match back {
                    // Another process may change what was planned for.
                    Err(CheckpointError::Stale) => {}
                    // The store is small, and others need it too.
                    Err(CheckpointError::Pruned { .. } | CheckpointError::NoTask { .. }) | Ok(_) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}

fn agent(folder: Option<std::ffi::OsString>, text: Option<std::ffi::OsString>) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&folder?)).ok()?;
    let command = Command::new(text?.into_string().ok()?, std::env::current_exe().ok()?)
        .env([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(command.run(&workspace, |_, _| {})).ok()?;
    Some(ExitCode::SUCCESS)
}
