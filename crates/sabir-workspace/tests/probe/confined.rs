//! Runs a command in a sandbox as a task would: `confined LEVEL NETWORK FOLDER MILLISECONDS SHOWN
//! HIDDEN TEXT`. Temporary folders go to one named `temporary` beside the folder, if it exists. `second-LEVEL` runs the command `true`
//! before, at the same level.

use std::ffi::OsString;
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
    let (level, is_second) = match level.strip_prefix("second-") {
        Some(level) => (level, true),
        None => (level, false),
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
    let build_command = |text: &str| {
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
            .timeout(seconds)
            .grace_period(Duration::from_millis(300))
            .sandbox(sandbox.clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    if is_second {
        let first = runtime.block_on(build_command("true").run(&workspace, |_, _| {}));
        assert_eq!(first.ok()?.end, CommandExit::Exited(0));
    }
    let command = build_command(text.to_str()?);
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
