//! Builds the filter that notifies the supervisor before a path is written, and lists which
//! arguments of a system call name the path.
//!
//! It denies nothing. A second filter beside the first one, since the strictest verdict of all
//! filters counts.

use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF, sock_filter};

use super::{ARCHITECTURE, BpfProgram, NATIVE, NUMBER, argument_offset, call_number};

/// The flags of `open` with which a file can be changed.
pub(crate) const WRITE_FLAGS: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
/// The number of `fchmodat2`, which is the same on every architecture.
const FCHMODAT2: i64 = 452;

/// The arguments of a system call that name what it writes. The numbers are those of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathArguments {
    /// A path relative to the current folder.
    Plain(usize),
    /// The handle of a folder; a path relative to it follows.
    At(usize),
    /// The same, with the flags in the struct of the argument after the path.
    AtWithFlags(usize),
    /// Two paths, of which the first becomes the second.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "later ports of Linux have no `rename`")
    )]
    PlainRename,
    /// Two handles of folders, each with a path, of which the first becomes the second.
    AtRename,
}

/// The calls that notify always.
const WRITERS: &[(i64, PathArguments)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, PathArguments::Plain(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, PathArguments::Plain(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, PathArguments::Plain(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, PathArguments::PlainRename),
    #[cfg(not(target_arch = "riscv64"))]
    (libc::SYS_renameat, PathArguments::AtRename),
    (libc::SYS_truncate, PathArguments::Plain(0)),
    (libc::SYS_openat2, PathArguments::AtWithFlags(0)),
    (libc::SYS_unlinkat, PathArguments::At(0)),
    (libc::SYS_mkdirat, PathArguments::At(0)),
    (libc::SYS_mknodat, PathArguments::At(0)),
    (libc::SYS_fchmodat, PathArguments::At(0)),
    (FCHMODAT2, PathArguments::At(0)),
    (libc::SYS_linkat, PathArguments::At(2)),
    (libc::SYS_symlinkat, PathArguments::At(1)),
    (libc::SYS_renameat2, PathArguments::AtRename),
];

/// The calls that notify if their flags say that they write, with the number of that argument.
const OPENERS: &[(i64, PathArguments, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, PathArguments::Plain(0), 1),
    (libc::SYS_openat, PathArguments::At(0), 2),
];

/// Returns the arguments that name the written paths of a call that the filter has notified about.
pub(crate) fn path_arguments(call: i64) -> Option<PathArguments> {
    let openers = OPENERS
        .iter()
        .map(|&(number, arguments, _)| (number, arguments));
    WRITERS
        .iter()
        .copied()
        .chain(openers)
        .find(|(number, _)| *number == call)
        .map(|(_, arguments)| arguments)
}

/// Returns the flags with which a call opens a file; `None` if it opens none. The flags of `openat2` are in memory, so it counts as
/// writing.
pub(crate) fn open_flags(call: i64, arguments: &[u64; 6]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if call == libc::SYS_creat {
        return Some(WRITE_FLAGS);
    }
    if call == libc::SYS_openat2 {
        return Some(libc::O_WRONLY.cast_unsigned());
    }
    let (_, _, at) = OPENERS.iter().find(|(number, _, _)| *number == call)?;
    let flags = usize::try_from(*at).ok().and_then(|at| arguments.get(at));
    // The kernel takes the flags as a 32-bit number.
    flags.map(|flags| *flags as u32)
}

/// Returns true if a call makes an entry that did not exist.
pub(crate) fn is_new_entry(call: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[i64] = &[
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_link,
        libc::SYS_symlink,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[i64] = &[];
    const NEWER: &[i64] = &[
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
    ];
    OLDER.contains(&call) || NEWER.contains(&call)
}

/// Builds the filter.
pub(in crate::sandbox) fn build_write_filter() -> Vec<sock_filter> {
    let mut code = BpfProgram(Vec::new());
    code.load_field(ARCHITECTURE);
    // The first filter ends processes of another architecture.
    code.unless_equal(NATIVE, SECCOMP_RET_ALLOW);
    code.load_field(NUMBER);
    for &(call, _) in WRITERS {
        code.if_equal(call_number(call), SECCOMP_RET_USER_NOTIF);
    }
    for &(call, _, flags) in OPENERS {
        code.match_call(call, |code| {
            code.if_any_bit(argument_offset(flags), WRITE_FLAGS, SECCOMP_RET_USER_NOTIF)
        });
    }
    code.return_verdict(SECCOMP_RET_ALLOW);
    code.0
}
