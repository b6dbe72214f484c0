//! Wraps the kernel calls that a sandbox needs and that have no safe interface.
#![expect(
    unsafe_code,
    reason = "fork, mount attributes and seccomp filters have no safe interface"
)]

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use crate::platform::ForkSide;

/// The parent of a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkRelation {
    /// The new process is a child of this process.
    Child,
    /// The parent of this process is the parent.
    Sibling,
}

/// Forks this process, which must have no other threads.
pub(crate) fn fork_process(kin: ForkRelation) -> io::Result<ForkSide> {
    let flags = libc::SIGCHLD
        | if kin == ForkRelation::Sibling {
            libc::CLONE_PARENT
        } else {
            0
        };
    // SAFETY: without CLONE_VM this is a fork; with one thread there is no lock that another could
    // hold. The stack is copied, the remaining arguments are unused with these flags, so their
    // order, which differs between machines, does not matter.
    let number = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        )
    };
    match i32::try_from(number) {
        Ok(0) => Ok(ForkSide::Child),
        Ok(pid @ 1..) => Pid::from_raw(pid)
            .map(ForkSide::Parent)
            .ok_or_else(io::Error::last_os_error),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves this process, or its future children, into new namespaces.
pub(super) fn unshare_namespaces(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only the table of descriptors makes this call unsafe, and it is not unshared.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// The mounts that a change applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountScope {
    /// Only the mount at the handle.
    Mount,
    /// That mount and all below it.
    Tree,
}

/// Adds attributes (`MOUNT_ATTR_…`) to mounts. Needs Linux 5.12.
pub(super) fn add_mount_attributes(
    root: BorrowedFd<'_>,
    attributes: u64,
    reach: MountScope,
) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    change_mounts(root, &change, reach)
}

/// Removes attributes of a mount and all below it. Fails, without a change, if one of them has an attribute from outside of this
/// namespace.
pub(super) fn remove_mount_attributes(root: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: 0,
        attr_clr: attributes,
        propagation: 0,
        userns_fd: 0,
    };
    change_mounts(root, &change, MountScope::Tree)
}

fn change_mounts(
    root: BorrowedFd<'_>,
    change: &libc::mount_attr,
    reach: MountScope,
) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH
        | if reach == MountScope::Tree {
            libc::AT_RECURSIVE
        } else {
            0
        };
    // SAFETY: the path is an empty C string, and `size` tells the kernel the length of the struct.
    let done = unsafe {
        let path = c"".as_ptr();
        let size = size_of::<libc::mount_attr>();
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            path,
            flags,
            std::ptr::from_ref(change),
            size,
        )
    };
    check_result(done)
}

/// Installs a system call filter for this process and all its future children.
pub(super) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// Installs a filter that notifies, and returns the handle that receives the notifications. Fails
/// if a filter of this process has one already.
pub(super) fn install_notifying_filter(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    // With this flag (Linux 5.19) only a fatal signal interrupts a call that waits for the
    // listener.
    const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
    let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let handle = set_filter(program, listens | WAIT_KILLABLE_RECV)
        .or_else(|_| set_filter(program, listens))?;
    let handle = i32::try_from(handle).map_err(io::Error::other)?;
    // SAFETY: with this flag the call returns a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

fn set_filter(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    // The kernel only reads through this pointer, although its type is mutable.
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives until the call returns, by when the kernel has its copy.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}

/// Lets the kernel switch directly between a process that notifies and the one that listens, which
/// costs a fraction of waking it on another processor. Fails before Linux 6.6.
pub(crate) fn enable_sync_wake_up(listener: BorrowedFd<'_>) -> io::Result<()> {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the operation takes a number, and no memory.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SYNC_WAKE_UP,
        )
    };
    check_result(done.into())
}

/// Receives the next notification of a filter. Blocks while there is none.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<libc::seccomp_notif> {
    // SAFETY: the struct is plain data; the kernel requires all zeros.
    let mut notification: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the struct is of the kind that this operation writes.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut notification,
        )
    };
    check_result(done.into())?;
    Ok(notification)
}

/// Lets the call of a notification continue, as if there had been no filter.
pub(crate) fn continue_call(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    // SAFETY: the struct is of the kind that this operation reads.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw const response,
        )
    };
    check_result(done.into())
}

/// Switches a network interface on.
pub(super) fn bring_up_interface(socket: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: an interface request is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (place, &byte) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        // Signed on some processors and not on others.
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request is of the kind that this operation reads.
    let done = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    check_result(done.into())
}

fn check_result(done: libc::c_long) -> io::Result<()> {
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
