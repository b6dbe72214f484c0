//! Provides the helper program of the tests: the supervisor, and an agent that can be killed.
//!
//! `workspace-probe __supervise …` supervises; `workspace-probe agent FOLDER TEXT…` runs commands
//! one after the other as an agent would, prints their output, and then how many zombies it has; `workspace-probe abandon FOLDER TEXT`
//! starts a command five times, gives each of them up, and waits until no zombie is left; `workspace-probe change FOLDER CHANGE…`, `look FOLDER` and `storm FOLDER` are
//! described in [`files`]. `workspace-probe confined …` runs a command in a sandbox, `without CALL
//! ARGUMENTS…` executes the other arguments as on a kernel without a system call, and `try NAME
//! ARGUMENTS…` makes a real system call and prints `allowed` or `denied`, both on Linux only.

#[cfg(target_os = "linux")]
mod attempts;
mod confined;
mod files;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use sabir_workspace::{ShellCommand, Workspace, supervise};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == supervise::ARGUMENT => supervise::main(args),
        Some(first) if first == "agent" => agent(args).unwrap_or(ExitCode::FAILURE),
        Some(first) if first == "abandon" => abandon(args).unwrap_or(ExitCode::FAILURE),
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

fn agent(mut args: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&args.next()?)).ok()?;
    let helper = std::env::current_exe().ok()?;
    let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let mut output = std::io::stdout();
    for text in args {
        let text = text.into_string().ok()?;
        let command = ShellCommand::new(text, &helper).env([path.clone()]);
        match runtime.block_on(command.run(&workspace, |_, _| {})) {
            Ok(outcome) => writeln!(
                output,
                "{}: {}",
                outcome.end,
                outcome.output.text().trim_end()
            ),
            Err(error) => writeln!(output, "error: {error}"),
        }
        .ok()?;
    }
    let zombies = count_children("Z").unwrap_or_default();
    writeln!(output, "zombies: {zombies}").ok()?;
    Some(ExitCode::SUCCESS)
}

fn abandon(mut args: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    let workspace = Workspace::open(Path::new(&args.next()?)).ok()?;
    let text = args.next()?.into_string().ok()?;
    let helper = std::env::current_exe().ok()?;
    let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let mut output = std::io::stdout();
    let mut started = 0;
    for _ in 0..5 {
        let command = ShellCommand::new(text.clone(), &helper).env([path.clone()]);
        let run = command.run(&workspace, |_, _| {});
        let limit = std::time::Duration::from_millis(50);
        let is_running =
            runtime.block_on(async { tokio::time::timeout(limit, run).await.is_err() });
        started += usize::from(is_running);
    }
    writeln!(output, "started: {started}").ok()?;
    // The fork server and the reaper of its standby are the children that are left.
    while count_children("")? > 2 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    writeln!(output, "all were reaped").ok()?;
    let again = ShellCommand::new("echo again".to_owned(), &helper).env([path]);
    let outcome = runtime.block_on(again.run(&workspace, |_, _| {})).ok()?;
    writeln!(
        output,
        "{}: {}",
        outcome.end,
        outcome.output.text().trim_end()
    )
    .ok()?;
    Some(ExitCode::SUCCESS)
}

/// Counts the children of this process whose state begins with a letter; those that ended and were not waited for have a `Z`.
fn count_children(state: &str) -> Option<usize> {
    let own = std::process::id().to_string();
    let is_counted = |stat: &String| {
        // State and parent come behind the name, which may contain blanks.
        let mut fields = stat
            .rsplit_once(')')
            .map_or("", |(_, fields)| fields)
            .split_ascii_whitespace();
        fields.next().is_some_and(|word| word.starts_with(state))
            && fields.next() == Some(own.as_str())
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    Some(
        processes
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .filter(is_counted)
            .count(),
    )
}
