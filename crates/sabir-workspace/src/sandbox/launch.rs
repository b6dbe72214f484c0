//! Runs the launcher: a fork of the supervisor that confines itself and becomes the shell.
//!
//! It is forked instead of started: the supervisor is a small, fresh process with one thread, and
//! starting a program costs more than the whole sandbox. Through a pipe it sends the supervisor
//! `ready VERSION`, and the stream ends when the program starts; or it sends the number of the
//! failed stage. If anything fails, nothing runs.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Resource};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

use super::environment::{LaunchProgram, LauncherLinks, prepare_process, write_status};
use super::landlock_rules::{LandlockRights, restrict_process};
use super::loopback::LoopbackPortOpener;
use super::namespaces::{NamespaceRole, enter_namespaces, send_descriptor};
use super::resource_limits::lower_limits;
use super::{
    EffectiveLevel, NetworkAccess, SandboxPlan, SetupStage, host_sockets, syscall_filter, syscalls,
};
use crate::supervise::MAX_USER_TASKS;

/// The variable of cargo's own folder.
const CARGO_HOME: &str = "CARGO_HOME";
/// The first version of Landlock that keeps processes from abstract sockets of others (Linux 6.12).
const LANDLOCK_WITH_SCOPES: i32 = 6;
/// Becomes the program, or reports the failure through its links. Returns the exit code of a process
/// that is done. `parent` is the supervisor.
pub(super) fn run_launcher(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    parent: Pid,
    mut links: LauncherLinks,
) -> i32 {
    let done = launch_program(plan, level, program, parent, &mut links);
    report_end(done, &links)
}

/// Reports a failure to the supervisor, and returns the exit code.
pub(super) fn report_end(done: io::Result<i32>, links: &LauncherLinks) -> i32 {
    match done {
        Ok(code) => code,
        Err(error) => {
            write_status(
                links.status.as_ref(),
                &format!("{}\n", error.raw_os_error().unwrap_or(0)),
            );
            1
        }
    }
}

fn launch_program(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    parent: Pid,
    links: &mut LauncherLinks,
) -> io::Result<i32> {
    prepare_process(parent, program.device, program.input)
        .map_err(|error| SetupStage::Launch.to_error(&error))?;
    // Read here, where the sockets of the machine are listed: the list shows one network namespace.
    let sockets = if level == EffectiveLevel::Two {
        host_sockets::list_host_sockets()
    } else {
        None
    };
    let mut proxy_port = None;
    if level == EffectiveLevel::Two {
        // Before the mounts cover the agent's socket.
        let doors = plan
            .loopback
            .as_ref()
            .and_then(|loopback| LoopbackPortOpener::connect(&loopback.socket, &loopback.ports));
        let sockets = sockets.as_deref().unwrap_or_default();
        let [_, text] = program.arguments;
        match enter_namespaces(plan, sockets, text, doors, links)? {
            NamespaceRole::Shell(port) => proxy_port = port,
            NamespaceRole::Done(code) => return Ok(code),
        }
    }
    // After the namespaces: the filter denies the calls that create and mount them.
    let landlock = confine_process(plan, level, sockets.is_some())?;
    Err(execute_program(
        plan, level, program, landlock, proxy_port, links,
    ))
}

/// Confines the shell of a command that is not known yet, but for its files.
pub(super) fn confine_ahead(network: NetworkAccess) -> io::Result<()> {
    confine_to_user()?;
    let program = syscall_filter::build_filter(EffectiveLevel::Two, network, true);
    syscalls::install_filter(&program).map_err(|error| SetupStage::Filter.to_error(&error))
}

/// Confines this process to files, after [`confine_ahead`], and returns the kernel's Landlock version.
pub(super) fn confine_to_files(plan: &SandboxPlan, level: EffectiveLevel) -> io::Result<i32> {
    let write = plan.writable_folders(level);
    // Without mounts, nothing inside a writable folder can be hidden.
    if level == EffectiveLevel::One
        && plan
            .hide
            .iter()
            .any(|path| write.iter().any(|folder| path.starts_with(folder)))
    {
        return Err(SetupStage::Secrets.to_error(&io::Error::from_raw_os_error(0)));
    }
    // Nothing can look empty to Landlock; what cannot be read at least reveals nothing.
    let empty = plan
        .empty
        .iter()
        .filter(|path| !write.iter().any(|folder| path.starts_with(folder)));
    let hide: Vec<PathBuf> = plan.hide.iter().chain(empty).cloned().collect();
    let rights = LandlockRights {
        level,
        network: plan.network,
        write: &write,
        read: &plan.read,
        hide: &hide,
    };
    restrict_process(&rights).map_err(|error| SetupStage::Landlock.to_error(&root_cause(&error)))
}

/// Becomes the program in a process that is confined. Returns only if that fails.
pub(super) fn execute_program(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    landlock: i32,
    proxy_port: Option<u16>,
    links: &LauncherLinks,
) -> io::Error {
    write_status(
        links.status.as_ref(),
        &format!("ready {}\n", level.report_number(landlock)),
    );
    let mut command = Command::new(program.path);
    command.args(program.arguments);
    program.set_environment(&mut command);
    command
        .envs(plan.temp_environment(level))
        .envs(package_environment(plan, level, proxy_port));
    // Must be the last step: after it, a write of this process would wait for the supervisor, which
    // waits for the program. If there is no watch, the command still runs, but its changes cannot
    // be distinguished from those of others.
    let _ = links.watch.as_ref().map(install_write_watch);
    command.exec()
}

/// Installs the filter that notifies about writes, and sends its handle to the supervisor.
fn install_write_watch(sender: &UnixDatagram) -> io::Result<()> {
    let program = syscall_filter::written_paths::build_write_filter();
    let listener = syscalls::install_notifying_filter(&program)?;
    send_descriptor(sender, listener.as_fd())
}

/// Returns the environment variables that point package managers to the proxy and to writable folders.
///
/// The folders are kept for the task: later commands find the packages that were fetched there, even without a network.
fn package_environment(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    proxy_port: Option<u16>,
) -> Vec<(String, OsString)> {
    if level != EffectiveLevel::Two {
        return Vec::new();
    }
    let cache = Path::new("/tmp/.cache");
    let mut all = Vec::new();
    for name in &plan.package_homes {
        let folder = cache.join(name.to_ascii_lowercase());
        if proxy_port.is_some() {
            // A package manager reports what it cannot write better than this process could.
            let _ = fs::create_dir_all(&folder);
            if name == CARGO_HOME {
                copy_cargo_settings(plan, &folder);
            }
        }
        if folder.is_dir() {
            all.push((name.clone(), folder.into_os_string()));
        }
    }
    let repository = cache.join("maven");
    let mut options = Vec::new();
    if let Some(port) = proxy_port {
        let _ = fs::create_dir_all(&repository);
        let address = format!("http://127.0.0.1:{port}");
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
        all.extend(names.map(|name| (name.to_owned(), address.clone().into())));
        let direct = ["NO_PROXY", "no_proxy"];
        all.extend(direct.map(|name| (name.to_owned(), "localhost,127.0.0.1,::1".into())));
        // Java programs do not read these variables.
        options.extend(
            ["http", "https"].map(|scheme| {
                format!("-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}")
            }),
        );
        all.push(("GRADLE_OPTS".to_owned(), options.join(" ").into()));
    }
    if repository.is_dir() {
        options.push(format!("-Dmaven.repo.local={}", repository.display()));
        all.push(("MAVEN_OPTS".to_owned(), options.join(" ").into()));
    }
    all
}

/// Copies the user's settings of cargo into the folder that takes the place of `CARGO_HOME`.
fn copy_cargo_settings(plan: &SandboxPlan, folder: &Path) {
    let Some(own) = plan.home.as_ref().map(|home| home.join(".cargo")) else {
        return;
    };
    for name in ["config.toml", "config"] {
        // Without settings there is nothing to copy.
        let _ = fs::copy(own.join(name), folder.join(name));
    }
}

/// Applies all restrictions that concern only this process and its children.
fn confine_process(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    sockets_are_covered: bool,
) -> io::Result<i32> {
    confine_to_user()?;
    let landlock = confine_to_files(plan, level)?;
    let unix_sockets = allow_unix_sockets(plan, level, landlock, sockets_are_covered);
    let program = syscall_filter::build_filter(level, plan.network, unix_sockets);
    syscalls::install_filter(&program).map_err(|error| SetupStage::Filter.to_error(&error))?;
    Ok(landlock)
}

/// Lowers the limits of this process, and drops its privileges.
fn confine_to_user() -> io::Result<()> {
    lower_limits(&[(Resource::Nproc, MAX_USER_TASKS)])
        .map_err(|error| SetupStage::Limits.to_error(&error))?;
    drop_privileges().map_err(|error| SetupStage::Privileges.to_error(&error))
}

/// Returns true if a command may use unix sockets: only if mounts cover those of the machine, and
/// the network namespace or Landlock blocks abstract ones.
fn allow_unix_sockets(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    landlock: i32,
    sockets_are_covered: bool,
) -> bool {
    level == EffectiveLevel::Two
        && sockets_are_covered
        && (plan.network != NetworkAccess::Allowed || landlock >= LANDLOCK_WITH_SCOPES)
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

/// Drops every capability, and every way to gain one.
fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    // Without the capability to reduce these sets, they do not matter: with `no_new_privs`, no
    // program gains privileges.
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
