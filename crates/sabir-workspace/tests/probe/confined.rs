//! Runs a command in a sandbox as a task would: `confined LEVEL NETWORK FOLDER MILLISECONDS SHOWN
//! HIDDEN TEXT`. Temporary folders go to one named `temporary` beside the folder, if it exists. `second-LEVEL` runs the command `true`
//! before, at the same level, and waits until the launcher of the next command has made what it can make ahead; `$PREPARED` is the time
//! at which its shell was forked. `broken-LEVEL` then kills that launcher. `late-LEVEL` then also listens on a socket
//! `doors/late` beside the folder.

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sabir_workspace::{CommandExit, NetworkAccess, Sandbox, ShellCommand, Workspace};

/// Prints the end, the level in force and the note, one per line, and the output; or `error:` and
/// the message.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub(crate) fn confined(args: &[OsString]) -> Option<ExitCode> {
    let [level, network, folder, seconds, shown, hidden, text] = args else {
        return None;
    };
    let level = level.to_str()?;
    let second = level
        .strip_prefix("second-")
        .or_else(|| level.strip_prefix("late-"))
        .or_else(|| level.strip_prefix("broken-"));
    let is_broken = level.starts_with("broken-");
    let is_late = level.starts_with("late-");
    let is_second = second.is_some();
    let level = second.unwrap_or(level);
    let network = if network == "allowed" {
        NetworkAccess::Allowed
    } else {
        NetworkAccess::Denied
    };
    let seconds = Duration::from_millis(seconds.to_str()?.parse().ok()?);
    let exe = std::env::current_exe().ok()?;
    let shown = std::env::split_paths(shown)
        .chain([exe.clone()])
        .filter(|path| !path.as_os_str().is_empty());
    let sandbox = Sandbox::new(level.parse().ok()?)
        .with_network(network)
        .allow_read(shown)
        .hide_paths(std::env::split_paths(hidden).collect::<Vec<PathBuf>>())
        .share_temp_dir();
    let temporary = Path::new(folder).with_file_name("temporary");
    let sandbox = if temporary.exists() {
        sandbox.temp_parent(temporary)
    } else {
        sandbox
    };
    let workspace = Workspace::open(Path::new(folder)).ok()?;
    let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let build_command = |text: &str, prepared: &str| {
        ShellCommand::new(text, &exe)
            .env([
                entry("PATH", "/usr/local/bin:/usr/bin:/bin"),
                entry("SSH_AUTH_SOCK", "/agent"),
                entry("TMPDIR", "link"),
            ])
            .env([
                entry("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
                entry("HOME", "/nowhere"),
            ])
            .env([entry("PREPARED", prepared)])
            .timeout(seconds)
            .grace_period(Duration::from_millis(300))
            .sandbox(sandbox.clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let mut prepared = String::new();
    if is_second {
        let first = runtime.block_on(build_command("true", "").run(&workspace, |_, _| {}));
        assert_eq!(first.ok()?.end, CommandExit::Exited(0));
        #[cfg(target_os = "linux")]
        if level == "2" {
            prepared = wait_for_prepared_shell(is_broken);
        }
    }
    let door = Path::new(folder).with_file_name("doors").join("late");
    let _listener = is_late.then(|| UnixListener::bind(door));
    let command = build_command(text.to_str()?, &prepared);
    match runtime.block_on(command.run(&workspace, |_, _| {})) {
        Ok(outcome) => {
            let (level, note) = match outcome.sandbox {
                Some(confined) => (
                    confined.to_string(),
                    confined.note.map(|note| note.message).unwrap_or_default(),
                ),
                None => ("off".to_owned(), String::new()),
            };
            println!(
                "{:?} {}\n{level}\n{note}\n{}",
                outcome.end,
                outcome.unkillable_processes,
                outcome.output.text()
            );
        }
        Err(error) => println!("error: {error}"),
    }
    Some(ExitCode::SUCCESS)
}

/// Waits until a process below this one is the second in a PID namespace: the shell of a command that is not known yet. Returns its start
/// as `/proc/PID/stat` shows it, which no process has that is forked later.
///
/// # Panics
/// If none appears within a minute.
#[cfg(target_os = "linux")]
fn wait_for_prepared_shell(is_broken: bool) -> String {
    let begun = std::time::Instant::now();
    loop {
        if let Some(status) = process_statuses().find(|status| is_prepared_shell(status)) {
            // The start is counted in hundredths of a second.
            std::thread::sleep(Duration::from_millis(30));
            let start = start_time(&status).unwrap_or_default();
            if is_broken {
                kill_parent(&status);
            }
            return start;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no shell waits");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the first process of the namespace, and waits until the whole namespace has ended.
#[cfg(target_os = "linux")]
fn kill_parent(status: &str) {
    let first = status_field(status, "PPid:").first().copied();
    let first = first.and_then(|first| rustix::process::Pid::from_raw(first.cast_signed()));
    let kill = |first| rustix::process::kill_process(first, rustix::process::Signal::KILL);
    assert_eq!(first.map(kill), Some(Ok(())));
    while process_statuses().any(|status| is_prepared_shell(&status)) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(target_os = "linux")]
fn start_time(status: &str) -> Option<String> {
    let process = status_field(status, "Pid:").first().copied()?;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // The state behind the name is the third of all fields, the start the twenty-second.
    fields.split_whitespace().nth(22 - 3).map(str::to_owned)
}

#[cfg(target_os = "linux")]
fn process_statuses() -> impl Iterator<Item = String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok())
}

#[cfg(target_os = "linux")]
fn is_prepared_shell(status: &str) -> bool {
    let numbers = status_field(status, "NSpid:");
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let depth = status_field(&own, "NSpid:").len();
    numbers.len() == depth + 1
        && numbers.last() == Some(&2)
        && status_field(status, "Seccomp:") == [2]
        && is_descendant(status)
}

/// Returns true if a parent of a process, or one above, is this process.
#[cfg(target_os = "linux")]
fn is_descendant(status: &str) -> bool {
    let mut status = status.to_owned();
    while let Some(&parent) = status_field(&status, "PPid:").first()
        && parent > 1
    {
        if parent == std::process::id() {
            return true;
        }
        status = std::fs::read_to_string(format!("/proc/{parent}/status")).unwrap_or_default();
    }
    false
}

#[cfg(target_os = "linux")]
fn status_field(status: &str, name: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default()
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}
