//! The launcher: a fresh copy of this program that confines itself and becomes the shell.
//!
//! `__supervise sandbox FD TIER WORDS… -- PROGRAM ARGUMENTS…`. FD is a pipe to the supervisor: `ready VERSION` and the end of the
//! stream when the program starts, else the number of what failed. Whatever fails, nothing runs.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::namespaces::{Role, enter};
use super::rights::{Rights, restrict};
use super::{Order, Stage, Tier, filter, system};

/// What separates the words from the program.
pub(super) const END: &str = "--";

/// A file may grow to this, in bytes.
const LARGEST_FILE: u64 = 64 << 30;
/// How many processes and threads the user may have while the command starts more.
const PROCESSES: u64 = 16_384;

/// Runs the launcher on what follows its word.
pub(crate) fn main(args: &[OsString]) -> ExitCode {
    let Some((number, args)) = args.split_first() else { return ExitCode::from(2) };
    let status = number.to_str().and_then(|number| number.parse().ok()).map(system::inherited);
    let Some(Ok(status)) = status else { return ExitCode::from(2) };
    let mut status = Some(status);
    let error = match launch(args, &mut status) {
        Ok(code) => return code,
        Err(error) => error,
    };
    say(status.as_ref(), &format!("{}\n", error.raw_os_error().unwrap_or(0)));
    ExitCode::FAILURE
}

/// Goes on in the program, or tells what failed.
fn launch(args: &[OsString], status: &mut Option<OwnedFd>) -> io::Result<ExitCode> {
    let malformed = || Stage::Order.failed(&io::Error::from_raw_os_error(libc::EINVAL));
    let end = args.iter().position(|word| word == END).ok_or_else(malformed)?;
    let (words, program) = args.split_at(end);
    let (tier, words) = words.split_first().ok_or_else(malformed)?;
    let tier = if tier == "1" { Tier::One } else { Tier::Two };
    let order = Order::read(words).ok_or_else(malformed)?;
    let [_, program, arguments @ ..] = program else { return Err(malformed()) };
    if let Some(status) = status {
        fcntl_setfd(status, FdFlags::CLOEXEC).map_err(|error| Stage::Launch.failed(&error.into()))?;
    }
    if tier == Tier::Two {
        match enter(&order, status)? {
            Role::Shell => {}
            Role::Done(code) => return Ok(code),
        }
    }
    let landlock = confine(&order, tier)?;
    say(status.as_ref(), &format!("ready {}\n", tier.report(landlock)));
    let tmp = if tier == Tier::Two { "/tmp".into() } else { order.tmp };
    let mut command = Command::new(program);
    command.args(arguments);
    for name in ["TMPDIR", "TMP", "TEMP"] {
        command.env(name, &tmp);
    }
    Err(command.exec())
}

/// Everything that ends in this process and its children alone.
fn confine(order: &Order, tier: Tier) -> io::Result<i32> {
    limit().map_err(|error| Stage::Limits.failed(&error))?;
    drop_privileges().map_err(|error| Stage::Privileges.failed(&error))?;
    let write = order.writable(tier);
    // Only mounts hide what lies in a folder that may be written.
    if tier == Tier::One && order.hide.iter().any(|path| write.iter().any(|folder| path.starts_with(folder))) {
        return Err(Stage::Secrets.failed(&io::Error::from_raw_os_error(0)));
    }
    let rights = Rights { tier, network: order.network, write: &write, read: &order.read, hide: &order.hide };
    let landlock = restrict(&rights).map_err(|error| Stage::Landlock.failed(&cause(&error)))?;
    let program = filter::program(tier, order.network);
    system::install_filter(&program).map_err(|error| Stage::Filter.failed(&error))?;
    Ok(landlock)
}

/// The system's error below another.
fn cause(error: &(dyn Error + 'static)) -> io::Error {
    let mut number = None;
    let mut next = Some(error);
    while let Some(error) = next {
        number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).or(number);
        next = error.source();
    }
    io::Error::from_raw_os_error(number.unwrap_or(0))
}

/// Lowers limits; none is raised.
fn limit() -> io::Result<()> {
    for (resource, most) in [(Resource::Core, 0), (Resource::Fsize, LARGEST_FILE), (Resource::Nproc, PROCESSES)] {
        let Rlimit { current, maximum } = getrlimit(resource);
        let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(resource, Rlimit { current: lower(current), maximum: lower(maximum) })?;
    }
    Ok(())
}

/// Gives up every capability, and every way to get one.
fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    // Who has no right to shorten these lists has no use of them either: programs grant nothing any more.
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            // The first that the kernel does not know is behind the last.
            if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)).is_err() {
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
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

fn say(status: Option<&OwnedFd>, words: &str) {
    // A supervisor that is dead needs no words: this process ends with it.
    let _ = status.map(|status| rustix::io::write(status, words.as_bytes()));
}
