//! Builds the system call filter, which denies what no command needs and what the other parts of
//! the sandbox do not stop.
//!
//! The filter is a deny list, but everything newer than the list is answered as an older kernel
//! would (`ENOSYS`), so a system call that does not exist yet cannot be a hole. Calls of a foreign
//! architecture (32-bit, x32) kill the process, because their numbers have other meanings. Denied
//! calls return `EPERM`; `clone3` returns `ENOSYS`, because its flags are in memory where no filter
//! can see them, and every C library then falls back to `clone`.
//!
//! Arguments that the kernel takes as 32-bit numbers are compared as 32-bit numbers: the kernel
//! ignores their upper half, so the filter must ignore it too.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, sock_filter,
};

use super::{EffectiveLevel, NetworkAccess};

pub(crate) mod written_paths;

/// The offsets in the data that a filter sees: call number and architecture. The lower halves of
/// the arguments follow.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const fn argument_offset(argument: u32) -> u32 {
    16 + 8 * argument + if cfg!(target_endian = "big") { 4 } else { 0 }
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const NATIVE: u32 = 0xc000_00f3;

/// The first number of x32 calls, which have the same architecture value as 64-bit ones.
const X32: u32 = 0x4000_0000;
/// The highest call that was considered for this list: `file_setattr`.
const NEWEST: u32 = 469;

/// The flags of new namespaces: time, mount, cgroup, uts, ipc, user, pid, net.
const NEW_NAMESPACES: u32 = 0x80
    | 0x2_0000
    | 0x0200_0000
    | 0x0400_0000
    | 0x0800_0000
    | 0x1000_0000
    | 0x2000_0000
    | 0x4000_0000;
/// The same flags for `clone`, where the bit of the time namespace belongs to the exit signal.
const CLONE_NAMESPACES: u32 = NEW_NAMESPACES & !0x80;

/// Recent calls, which have the same number on every architecture; the C library may not know them
/// yet.
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;

/// The calls that are always denied, whatever the arguments.
const DENIED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64")))]
    libc::SYS_kexec_file_load,
    // The number of kexec_file_load, which `libc` leaves out for musl.
    #[cfg(target_arch = "aarch64")]
    294,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_nfsservctl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // Keys, which are shared by all processes of a user.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    // Rings do file and socket operations that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Flags of files, which need no more than a descriptor that reads.
    FILE_SETATTR,
];

/// The calls denied in a level without an IPC namespace: memory, queues and semaphores shared by all
/// processes of the user.
const SHARED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The denied device and file requests: forged terminal input, and flags of files.
const IOCTLS: &[u32] = &[
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x4008_7602, // FS_IOC_SETVERSION
    0x4004_7602, // FS_IOC32_SETVERSION
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// A kind of socket: family, type, protocol. `None` allows any.
type SocketKind = (u32, Option<u32>, Option<u32>);

const STREAM: u32 = 1;
const SEQUENCE: u32 = 5;
/// The bits of a socket's type that are not flags.
const KIND: u32 = 0xf;

const UNIX: u32 = 1;
const INTERNET: [u32; 2] = [2, 10];
const NETLINK: u32 = 16;
const TCP: u32 = 6;
const UDP: u32 = 17;
const DATAGRAM: u32 = 2;

/// Returns the sockets that may be opened. Unix sockets are allowed only where mounts cover those of
/// the machine, because no filter sees the path that a socket is connected to.
fn allowed_sockets(
    level: EffectiveLevel,
    network: NetworkAccess,
    unix_sockets: bool,
) -> Vec<SocketKind> {
    // Programs list their own interfaces and addresses with it; changing them needs privileges.
    let routes = (NETLINK, None, Some(0));
    let tcp = INTERNET
        .iter()
        .flat_map(|&family| [0, TCP].map(|protocol| (family, Some(STREAM), Some(protocol))));
    match (level, network) {
        // Landlock controls only TCP, and not every way to connect, so no sockets at all.
        (EffectiveLevel::One, NetworkAccess::Denied | NetworkAccess::Registries) => vec![routes],
        // In level 2 inside a private network, where tests may talk to their own servers.
        _ => {
            let udp = INTERNET.iter().flat_map(|&family| {
                [0, UDP].map(|protocol| (family, Some(DATAGRAM), Some(protocol)))
            });
            let unix = unix_sockets
                .then(|| [STREAM, DATAGRAM, SEQUENCE].map(|kind| (UNIX, Some(kind), None)));
            tcp.chain(udp)
                .chain([routes])
                .chain(unix.into_iter().flatten())
                .collect()
        }
    }
}

/// Builds the whole filter program.
pub(super) fn build_filter(
    level: EffectiveLevel,
    network: NetworkAccess,
    unix_sockets: bool,
) -> Vec<sock_filter> {
    let mut code = BpfProgram(Vec::new());
    code.load_field(ARCHITECTURE);
    // The architecture is checked first, because call numbers mean nothing without it.
    code.unless_equal(NATIVE, SECCOMP_RET_KILL_PROCESS);
    code.load_field(NUMBER);
    if cfg!(target_arch = "x86_64") {
        code.if_at_least(X32, SECCOMP_RET_KILL_PROCESS);
    }
    // `ENOSYS` makes programs use their fallback for older kernels.
    code.if_at_least(NEWEST + 1, errno_verdict(libc::ENOSYS));
    code.if_equal(call_number(libc::SYS_clone3), errno_verdict(libc::ENOSYS));
    let shared = if level == EffectiveLevel::One {
        SHARED
    } else {
        &[]
    };
    for &call in DENIED.iter().chain(shared) {
        code.if_equal(call_number(call), errno_verdict(libc::EPERM));
    }
    code.match_call(libc::SYS_unshare, |code| {
        code.if_any_bit(
            argument_offset(0),
            NEW_NAMESPACES,
            errno_verdict(libc::EPERM),
        )
    });
    code.match_call(libc::SYS_clone, |code| {
        code.if_any_bit(
            argument_offset(0),
            CLONE_NAMESPACES,
            errno_verdict(libc::EPERM),
        )
    });
    code.match_call(libc::SYS_ioctl, |code| {
        code.load_field(argument_offset(1));
        for &request in IOCTLS {
            code.if_equal(request, errno_verdict(libc::EPERM));
        }
    });
    // Denies changing the limits of another process, such as the agent.
    code.match_call(libc::SYS_prlimit64, |code| {
        code.load_field(argument_offset(0));
        code.if_equal(0, SECCOMP_RET_ALLOW);
        // The new limits are a 64-bit pointer, so both halves have to be zero (a query).
        for half in [argument_offset(2), argument_offset(2) ^ 4] {
            code.load_field(half);
            code.unless_equal(0, errno_verdict(libc::EPERM));
        }
    });
    code.match_call(libc::SYS_socket, |code| {
        code.allow_sockets_only(&allowed_sockets(level, network, unix_sockets))
    });
    // A pair of datagram sockets can be connected to a path; stream pairs cannot.
    code.match_call(libc::SYS_socketpair, |code| {
        let mut pairs = vec![(UNIX, Some(STREAM), None), (UNIX, Some(SEQUENCE), None)];
        if unix_sockets {
            pairs.push((UNIX, Some(DATAGRAM), None));
        }
        code.allow_sockets_only(&pairs)
    });
    code.return_verdict(SECCOMP_RET_ALLOW);
    code.0
}

fn call_number(call: i64) -> u32 {
    // A number that does not fit is none of the kernel's; the maximum never matches.
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn errno_verdict(error: i32) -> u32 {
    SECCOMP_RET_ERRNO | error.unsigned_abs()
}

/// A program for the kernel's filter machine, which has one register and only jumps forward.
struct BpfProgram(Vec<sock_filter>);

impl BpfProgram {
    /// Appends an instruction; a jump skips `if_true` or `if_false` instructions.
    fn push_instruction(&mut self, code: u32, operand: u32, if_true: u8, if_false: u8) {
        // All codes fit 16 bits.
        self.0.push(sock_filter {
            code: code as u16,
            jt: if_true,
            jf: if_false,
            k: operand,
        });
    }

    fn load_field(&mut self, offset: u32) {
        self.push_instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
    }

    fn return_verdict(&mut self, verdict: u32) {
        self.push_instruction(BPF_RET | BPF_K, verdict, 0, 0);
    }

    fn if_equal(&mut self, value: u32, verdict: u32) {
        self.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
        self.return_verdict(verdict);
    }

    fn unless_equal(&mut self, value: u32, verdict: u32) {
        self.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
        self.return_verdict(verdict);
    }

    fn if_at_least(&mut self, value: u32, verdict: u32) {
        self.push_instruction(BPF_JMP | BPF_JGE | BPF_K, value, 0, 1);
        self.return_verdict(verdict);
    }

    /// Returns the verdict if a field has any of the bits.
    fn if_any_bit(&mut self, offset: u32, bits: u32, verdict: u32) {
        self.load_field(offset);
        self.push_instruction(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
        self.return_verdict(verdict);
    }

    /// Adds the checks for one call: the call is allowed unless the body denies it. The register
    /// holds the call number before, and afterwards for every other call.
    fn match_call(&mut self, call: i64, body: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        body(&mut inner);
        inner.return_verdict(SECCOMP_RET_ALLOW);
        // A conditional jump reaches 255 instructions, an unconditional one any.
        self.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, call_number(call), 1, 0);
        self.push_instruction(
            BPF_JMP,
            u32::try_from(inner.0.len()).unwrap_or(u32::MAX),
            0,
            0,
        );
        self.0.append(&mut inner.0);
    }

    /// Denies every socket except these.
    fn allow_sockets_only(&mut self, sockets: &[SocketKind]) {
        for &(family, kind, protocol) in sockets {
            let mut inner = Self(Vec::new());
            // Each failed comparison jumps past the row, which is at most nine instructions long.
            let rows = [
                (0, None, Some(family)),
                (1, Some(KIND), kind),
                (2, None, protocol),
            ];
            let mut tests = Vec::new();
            for (argument, mask, wanted) in rows {
                let Some(wanted) = wanted else { continue };
                inner.load_field(argument_offset(argument));
                if let Some(mask) = mask {
                    inner.push_instruction(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
                }
                tests.push(inner.0.len());
                inner.push_instruction(BPF_JMP | BPF_JEQ | BPF_K, wanted, 0, 0);
            }
            inner.return_verdict(SECCOMP_RET_ALLOW);
            let end = inner.0.len();
            for at in tests {
                if let Some(test) = inner.0.get_mut(at) {
                    test.jf = u8::try_from(end - at - 1).unwrap_or(u8::MAX);
                }
            }
            self.0.append(&mut inner.0);
        }
        self.return_verdict(errno_verdict(libc::EPERM));
    }
}

#[cfg(test)]
mod tests;
