//! Creates the namespaces of level 2 and their first process.
//!
//! The launcher creates the namespaces, maps its user to one that is not root, and starts their
//! first process as a child of the *supervisor*, beside itself. That process mounts the file
//! systems, starts the shell, and reaps orphans; when it ends, the kernel ends every process of the
//! namespace. It ends with its last child, with the supervisor (parent death signal), or when the
//! supervisor kills it. The launcher stays outside, and passes on how the shell ended.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, getgid, getpid, getuid, kill_process,
    set_dumpable_behavior, set_parent_process_death_signal, wait,
};
use rustix::thread::UnshareFlags;

use super::environment::LauncherLinks;
use super::loopback::LoopbackPortOpener;
use super::syscalls::{ForkRelation, bring_up_interface, fork_process, unshare_namespaces};
use super::{NetworkAccess, SandboxPlan, SetupStage, mounts};
use crate::kernel;
use crate::platform::ForkSide;

/// The user id that root gets inside; any number except 0.
const NOBODY_SPECIAL: u32 = 1000;

/// The role of the process that returns from [`enter_namespaces`].
pub(super) enum NamespaceRole {
    /// The process that becomes the shell, with the port of the proxy of package registries.
    Shell(Option<u16>),
    /// A process that is done, with its exit code.
    Done(i32),
}

/// The role of the process that returns from [`fork_first_process`].
pub(super) enum NamespaceSide {
    /// The launcher, with the pipe through which it learns how the shell ended.
    Launcher(OwnedFd),
    /// The first process of the namespaces, with the other end.
    First(OwnedFd),
}

/// Creates the namespaces and everything in them. `sockets` are those of the machine, to be covered;
/// `text` is the command line; `doors` are the ports of its loopback to open; `links` lead to the supervisor.
pub(super) fn enter_namespaces(
    plan: &SandboxPlan,
    sockets: &[PathBuf],
    text: &OsStr,
    doors: Option<LoopbackPortOpener<'_>>,
    links: &mut LauncherLinks,
) -> io::Result<NamespaceRole> {
    let folder = rustix::process::getcwd(Vec::new())
        .map_err(|error| SetupStage::Folder.to_error(&error.into()))?;
    create_all_namespaces(plan.network)?;
    let end = match fork_first_process()? {
        NamespaceSide::Launcher(ends) => {
            // The supervisor waits for the end of the status pipe, so this copy must not stay open.
            drop((links.status.take(), doors, links.proxy.take()));
            return Ok(NamespaceRole::Done(exit_like_shell(ends)));
        }
        NamespaceSide::First(end) => end,
    };
    if links.status.as_ref().is_none_or(is_supervisor_gone) {
        return Ok(NamespaceRole::Done(1));
    }
    // In this process, since the supervisor places the masks meanwhile: the mounts wait for the
    // masks last, before any program runs.
    mounts::arrange_mounts(plan, sockets, text, links.protected.take())
        .map_err(|error| SetupStage::Mounts.to_error(&error))?;
    if plan.network != NetworkAccess::Allowed {
        bring_up_loopback().map_err(|error| SetupStage::Loopback.to_error(&error))?;
        // Without them the command runs, and its connections are refused.
        _ = doors.map(LoopbackPortOpener::open);
    }
    let port = match links.proxy.take() {
        Some(sender) => {
            Some(send_listener(sender).map_err(|error| SetupStage::Loopback.to_error(&error))?)
        }
        None => None,
    };
    // Enter the folder again by its name: the inherited handle bypasses the mounts.
    rustix::process::chdir(folder).map_err(|error| SetupStage::Folder.to_error(&error.into()))?;
    let side =
        fork_process(ForkRelation::Child).map_err(|error| SetupStage::Process.to_error(&error))?;
    match side {
        ForkSide::Parent(shell) => {
            drop(links.status.take());
            // Keeps this process's data in /proc unreadable for the command.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            Ok(NamespaceRole::Done(reap_until_empty(shell, end)))
        }
        ForkSide::Child => Ok(NamespaceRole::Shell(port)),
    }
}

/// Forks the first process of the new namespaces as a child of the supervisor. It is killed when
/// the supervisor ends.
pub(super) fn fork_first_process() -> io::Result<NamespaceSide> {
    let (ends, end) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| SetupStage::Process.to_error(&error.into()))?;
    let side = fork_process(ForkRelation::Sibling)
        .map_err(|error| SetupStage::Process.to_error(&error))?;
    match side {
        // A pipe reports its end only when the last writer is closed, so each side keeps one end.
        ForkSide::Parent(_) => Ok(NamespaceSide::Launcher(ends)),
        ForkSide::Child => {
            set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(|error| SetupStage::Process.to_error(&error.into()))?;
            Ok(NamespaceSide::First(end))
        }
    }
}

/// Makes a listening socket in this network namespace and sends it to the supervisor, which is in another one. Returns its port.
fn send_listener(sender: UnixDatagram) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    send_descriptor(&sender, listener.as_fd())?;
    Ok(port)
}

/// Sends a descriptor to the supervisor.
pub(super) fn send_descriptor(sender: &UnixDatagram, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sent = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&sent));
    // A datagram without any byte could be taken for the end.
    sendmsg(
        sender,
        &[IoSlice::new(b"x")],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Moves this process into new namespaces, with this user as their only one.
pub(super) fn create_all_namespaces(network: NetworkAccess) -> io::Result<()> {
    let others = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    create_user_namespace(match network {
        NetworkAccess::Allowed => others,
        NetworkAccess::Denied | NetworkAccess::Registries => others | UnshareFlags::NEWNET,
    })
}

/// Moves this process into a new user namespace that knows only its user, and into further new namespaces.
fn create_user_namespace(others: UnshareFlags) -> io::Result<()> {
    let user = getuid().as_raw();
    let group = getgid().as_raw();
    unshare_namespaces(UnshareFlags::NEWUSER | others)
        .map_err(|error| SetupStage::Namespaces.to_error(&error))?;
    let inner = |number: u32| if number == 0 { NOBODY_SPECIAL } else { number };
    let map = || {
        // The kernel requires this before an unprivileged process may write `gid_map` (since Linux
        // 3.19), because dropping a group could grant access that the group is denied.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{} {user} 1", inner(user)))?;
        fs::write("/proc/self/gid_map", format!("{} {group} 1", inner(group)))
    };
    map().map_err(|error: io::Error| SetupStage::Mapping.to_error(&error))
}

/// Switches on the loopback interface of this network namespace.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    bring_up_interface(socket.as_fd(), c"lo")
}

/// Returns true if the supervisor died before the parent death signal was set. `link` is a pipe or a socket that leads to it alone.
pub(super) fn is_supervisor_gone(link: &OwnedFd) -> bool {
    let mut waited = [PollFd::new(link, PollFlags::empty())];
    !matches!(
        poll(
            &mut waited,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0
            })
        ),
        Ok(0)
    )
}

/// Runs the first process: reaps until no child is left, and reports how the shell ended, as two
/// bytes (kind and number).
pub(super) fn reap_until_empty(shell: Pid, end: OwnedFd) -> i32 {
    let mut end = Some(fs::File::from(end));
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == shell => {
                if let Some(mut end) = end.take() {
                    // If the reader is gone, nobody needs the report.
                    let _ = end.write_all(&encode_status(status));
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}

fn encode_status(status: WaitStatus) -> [u8; 2] {
    let low = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => [0, low(code)],
        (None, signal) => [1, low(signal.unwrap_or(0))],
    }
}

/// Ends this process in the same way as the shell ended.
pub(super) fn exit_like_shell(ends: OwnedFd) -> i32 {
    // An interrupt key is meant for the shell; this process only waits.
    let _ = kernel::block_signals();
    let mut end = [1, 9];
    let _ = fs::File::from(ends).read_exact(&mut end);
    match end {
        [0, code] => code.into(),
        [_, signal] => {
            let _ = kernel::unblock_signals();
            if let Some(signal) = Signal::from_named_raw(signal.into()) {
                let _ = kill_process(getpid(), signal);
            }
            128 + i32::from(signal)
        }
    }
}
