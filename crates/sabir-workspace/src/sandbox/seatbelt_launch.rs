//! Runs the launcher on macOS: a fork of the supervisor that becomes `sandbox-exec` with the
//! profile of `seatbelt.rs`, which becomes the shell.
//!
//! Level 1 only: macOS has no namespaces. If the system refuses the profile, `sandbox-exec` says so
//! on standard error and ends with code 65, and nothing runs. CI compiles this file, but we have
//! not run it yet.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;

use super::environment::{LaunchProgram, LauncherLinks, prepare_process, write_status};
use super::resource_limits::lower_limits;
use super::{EffectiveLevel, SandboxPlan, SetupStage, seatbelt};

/// The program of macOS that confines itself by a profile and starts another.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// Becomes the program, or reports the failure through its links. Returns the exit code of a process
/// that is done. `parent` is the supervisor.
pub(super) fn run_launcher(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    parent: Pid,
    links: LauncherLinks,
) -> i32 {
    let LauncherLinks {
        status,
        proxy,
        watch,
        protected,
    } = links;
    // Package registries need level 2, which does not exist here, and writes cannot be watched.
    drop((proxy, watch, protected));
    let error = launch_program(plan, level, program, parent, status.as_ref());
    let number = error.raw_os_error().unwrap_or(0);
    write_status(status.as_ref(), &format!("{number}\n"));
    1
}

/// Returns only if the program could not be started.
fn launch_program(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    parent: Pid,
    status: Option<&OwnedFd>,
) -> io::Error {
    if level == EffectiveLevel::Two {
        return SetupStage::Namespaces.to_error(&io::Error::from_raw_os_error(0));
    }
    if let Err(error) = prepare_process(parent, program.device, program.input) {
        return SetupStage::Launch.to_error(&error);
    }
    if let Err(error) = lower_limits(&[]) {
        return SetupStage::Limits.to_error(&error);
    }
    write_status(status, &format!("ready {}\n", level.report_number(0)));
    let mut command = Command::new(SANDBOX_EXEC);
    program.set_environment(&mut command);
    command
        .arg("-p")
        .arg(seatbelt::build_profile(plan))
        .arg(program.path)
        .args(program.arguments)
        .envs(plan.temp_environment(level));
    let error = command.exec();
    // The last line that the supervisor reads is the one that counts.
    SetupStage::Filter.to_error(&error)
}
