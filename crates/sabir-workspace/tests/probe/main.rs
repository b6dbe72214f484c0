//! Provides the helper program of the tests: the supervisor, and an agent that can be killed.
//!
//! `workspace-probe __supervise …` supervises; `workspace-probe agent FOLDER TEXT` runs a command
//! as an agent would; `workspace-probe change FOLDER CHANGE…`, `look FOLDER` and `storm FOLDER` are
//! described in [`files`]. `workspace-probe confined …` runs a command in a sandbox, `without CALL
//! ARGUMENTS…` executes the other arguments as on a kernel without a system call, and `try NAME
//! ARGUMENTS…` makes a real system call and prints `allowed` or `denied`, both on Linux only.

#[cfg(target_os = "linux")]
mod attempts;
mod confined;
mod files;

use std::path::Path;
use std::process::ExitCode;

use sabir_workspace::{ShellCommand, Workspace, supervise};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == supervise::ARGUMENT => supervise::main(args),
        Some(first) if first == "agent" => {
            agent(args.next(), args.next()).unwrap_or(ExitCode::FAILURE)
        }
        Some(first) if first == "confined" => {
            confined::confined(&args.collect::<Vec<_>>()).unwrap_or(ExitCode::from(2))
        }
        #[cfg(target_os = "linux")]
        Some(first) if first == "without" => attempts::without(args),
        #[cfg(target_os = "linux")]
        Some(first) if first == "try" => attempts::attempt(args),
        Some(first) => files::main(&first, args).unwrap_or(ExitCode::from(2)),
        None => ExitCode::from(2),
    }
}

fn agent(folder: Option<std::ffi::OsString>, text: Option<std::ffi::OsString>) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&folder?)).ok()?;
    let command = ShellCommand::new(text?.into_string().ok()?, std::env::current_exe().ok()?)
        .env([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(command.run(&workspace, |_, _| {})).ok()?;
    Some(ExitCode::SUCCESS)
}
