//! Runs the launcher: a fork of the supervisor that confines itself and becomes the shell.
//!
//! It is forked instead of started: the supervisor is a small, fresh process with one thread, and
//! starting a program costs more than the whole sandbox. Through a pipe it sends the supervisor
//! `ready VERSION`, and the stream ends when the program starts; or it sends the number of the
//! failed stage. If anything fails, nothing runs.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::stdio::{dup2_stdin, stdout};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

use super::environment::LaunchProgram;
use super::landlock_rules::{LandlockRights, restrict_process};
use super::namespaces::{NamespaceRole, enter_namespaces};
use super::{SandboxPlan, SandboxTier, SetupStage, syscall_filter, syscalls};
use crate::kernel;
use crate::supervise::OutputDevice;

/// The size limit of a file, in bytes.
const LARGEST_FILE: u64 = 64 << 30;
/// The maximum number of processes and threads that the user may have for the command to start
/// more.
const PROCESSES: u64 = 16_384;

/// Becomes the program, or reports the failure through `status`. Returns the exit code of a process
/// that is done. `parent` is the supervisor.
pub(super) fn run_launcher(
    plan: &SandboxPlan,
    tier: SandboxTier,
    program: &LaunchProgram<'_>,
    parent: Pid,
    status: OwnedFd,
) -> i32 {
    let mut status = Some(status);
    match launch_program(plan, tier, program, parent, &mut status) {
        Ok(code) => code,
        Err(error) => {
            write_status(
                status.as_ref(),
                &format!("{}\n", error.raw_os_error().unwrap_or(0)),
            );
            1
        }
    }
}

fn launch_program(
    plan: &SandboxPlan,
    tier: SandboxTier,
    program: &LaunchProgram<'_>,
    parent: Pid,
    status: &mut Option<OwnedFd>,
) -> io::Result<i32> {
    prepare_process(parent, program.device).map_err(|error| SetupStage::Launch.to_error(&error))?;
    if tier == SandboxTier::Two {
        match enter_namespaces(plan, status)? {
            NamespaceRole::Shell => {}
            NamespaceRole::Done(code) => return Ok(code),
        }
    }
    // After the namespaces: the filter denies the calls that create and mount them.
    let landlock = confine_process(plan, tier)?;
    write_status(
        status.as_ref(),
        &format!("ready {}\n", tier.report_number(landlock)),
    );
    let mut command = Command::new(program.path);
    command
        .args(program.arguments)
        .envs(temp_environment(plan, tier));
    Err(command.exec())
}

/// Puts this process into the state of a new one: no input (or the terminal), a separate session,
/// default signal handling, and writable files in `/proc`.
fn prepare_process(parent: Pid, device: OutputDevice) -> io::Result<()> {
    match device {
        OutputDevice::Pipe => dup2_stdin(rustix::fs::open(
            "/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)?,
        OutputDevice::Terminal => dup2_stdin(stdout())?,
    }
    kernel::detach_process(parent, device)?;
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Returns the environment variables for temporary files and caches.
fn temp_environment(plan: &SandboxPlan, tier: SandboxTier) -> Vec<(String, PathBuf)> {
    let tmp = if tier == SandboxTier::Two {
        Path::new("/tmp")
    } else {
        &plan.tmp
    };
    let caches = plan.caches.iter().map(|name| {
        (
            name.clone(),
            tmp.join(".cache").join(name.to_ascii_lowercase()),
        )
    });
    ["TMPDIR", "TMP", "TEMP"]
        .map(|name| (name.to_owned(), tmp.to_path_buf()))
        .into_iter()
        .chain(caches)
        .collect()
}

/// Applies all restrictions that concern only this process and its children.
fn confine_process(plan: &SandboxPlan, tier: SandboxTier) -> io::Result<i32> {
    lower_limits().map_err(|error| SetupStage::Limits.to_error(&error))?;
    drop_privileges().map_err(|error| SetupStage::Privileges.to_error(&error))?;
    let write = plan.writable_folders(tier);
    // Without mounts, nothing inside a writable folder can be hidden.
    if tier == SandboxTier::One
        && plan
            .hide
            .iter()
            .any(|path| write.iter().any(|folder| path.starts_with(folder)))
    {
        return Err(SetupStage::Secrets.to_error(&io::Error::from_raw_os_error(0)));
    }
    let rights = LandlockRights {
        tier,
        network: plan.network,
        write: &write,
        read: &plan.read,
        hide: &plan.hide,
    };
    let landlock = restrict_process(&rights)
        .map_err(|error| SetupStage::Landlock.to_error(&root_cause(&error)))?;
    let program = syscall_filter::build_filter(tier, plan.network);
    syscalls::install_filter(&program).map_err(|error| SetupStage::Filter.to_error(&error))?;
    Ok(landlock)
}

/// Returns the system error at the root of an error chain.
fn root_cause(error: &(dyn Error + 'static)) -> io::Error {
    let mut number = None;
    let mut next = Some(error);
    while let Some(error) = next {
        number = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
            .or(number);
        next = error.source();
    }
    io::Error::from_raw_os_error(number.unwrap_or(0))
}

/// Lowers resource limits; none is raised.
fn lower_limits() -> io::Result<()> {
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, LARGEST_FILE),
        (Resource::Nproc, PROCESSES),
    ] {
        let Rlimit { current, maximum } = getrlimit(resource);
        let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(
            resource,
            Rlimit {
                current: lower(current),
                maximum: lower(maximum),
            },
        )?;
    }
    Ok(())
}

/// Drops every capability, and every way to gain one.
fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    // Without the right to shorten these lists they do not matter either: with `no_new_privs`,
    // programs grant nothing.
    if capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
        for bit in 0..u64::BITS {
            // The first unknown number is one past the last capability.
            if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit))
                .is_err()
            {
                break;
            }
        }
        set_capabilities_secure_bits(
            CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
        )?;
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?)
}

fn write_status(status: Option<&OwnedFd>, words: &str) {
    // If the supervisor is dead, this process dies with it, so the error does not matter.
    let _ = status.map(|status| rustix::io::write(status, words.as_bytes()));
}
