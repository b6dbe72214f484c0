//! Runs a command in a sandbox as a task would: `confined LEVEL NETWORK FOLDER MILLISECONDS SHOWN
//! HIDDEN TEXT`. Temporary folders go to one named `temporary` beside the folder, if it exists.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sabir_workspace::{NetworkAccess, Sandbox, ShellCommand, Workspace};

/// Prints the end, the level in force and the note, one per line, and the output; or `error:` and
/// the message.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub(crate) fn confined(args: &[OsString]) -> Option<ExitCode> {
    let [level, network, folder, seconds, shown, hidden, text] = args else {
        return None;
    };
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
    let sandbox = Sandbox::new(level.to_str()?.parse().ok()?)
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
    let command = ShellCommand::new(text.to_str()?, exe)
        .env([
            entry("PATH", "/usr/local/bin:/usr/bin:/bin"),
            entry("SSH_AUTH_SOCK", "/agent"),
            entry("TMPDIR", "link"),
        ])
        .env([
            entry("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
            entry("HOME", "/nowhere"),
        ])
        .timeout(seconds)
        .grace_period(Duration::from_millis(300))
        .sandbox(sandbox);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
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
                outcome.survivors,
                outcome.output.text()
            );
        }
        Err(error) => println!("error: {error}"),
    }
    Some(ExitCode::SUCCESS)
}
