//! Runs the filter in a small interpreter: number and arguments in, verdict out.

use super::*;

const EPERM: u32 = SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const OTHER_ARCHITECTURE: u32 = 0x4000_0003;

fn verdict(program: &[sock_filter], architecture: u32, call: i64, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(call_number(call).to_ne_bytes());
    data.extend(architecture.to_ne_bytes());
    data.extend(0_u64.to_ne_bytes());
    data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
    let mut at = 0;
    let mut register = 0_u32;
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        let code = u32::from(code);
        at += 1;
        let test = |yes: bool| usize::from(if yes { jt } else { jf });
        const ABS: u32 = BPF_LD | BPF_W | BPF_ABS;
        const AND: u32 = BPF_ALU | BPF_AND | BPF_K;
        const EQ: u32 = BPF_JMP | BPF_JEQ | BPF_K;
        const GE: u32 = BPF_JMP | BPF_JGE | BPF_K;
        const SET: u32 = BPF_JMP | BPF_JSET | BPF_K;
        const RET: u32 = BPF_RET | BPF_K;
        match code {
            ABS => {
                register = u32::from_ne_bytes(data[k as usize..k as usize + 4].try_into().unwrap())
            }
            AND => register &= k,
            EQ => at += test(register == k),
            GE => at += test(register >= k),
            SET => at += test(register & k != 0),
            BPF_JMP => at += k as usize,
            RET => return k,
            _ => panic!("no such instruction: {code:#x}"),
        }
    }
}

#[track_caller]
fn check(call: i64, arguments: &[u64], expected: [u32; 4]) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let worlds = [
        (EffectiveLevel::One, NetworkAccess::Denied),
        (EffectiveLevel::Two, NetworkAccess::Denied),
        (EffectiveLevel::One, NetworkAccess::Allowed),
        (EffectiveLevel::Two, NetworkAccess::Allowed),
    ];
    let found = worlds.map(|(level, network)| {
        let unix_sockets = level == EffectiveLevel::Two;
        let program = build_filter(level, network, unix_sockets);
        verdict(&program, NATIVE, call, all)
    });
    assert_eq!(found, expected, "{call} {arguments:x?}");
}

const ALLOW: [u32; 4] = [SECCOMP_RET_ALLOW; 4];
const DENY: [u32; 4] = [EPERM; 4];
/// Allowed in the second and the following.
const NOT_ALONE: [u32; 4] = [
    EPERM,
    SECCOMP_RET_ALLOW,
    SECCOMP_RET_ALLOW,
    SECCOMP_RET_ALLOW,
];
/// Allowed in level 2, where the sockets of the machine are covered.
const WHERE_COVERED: [u32; 4] = [EPERM, SECCOMP_RET_ALLOW, EPERM, SECCOMP_RET_ALLOW];

#[test]
fn forbidden_system_calls_are_denied() {
    for call in [
        libc::SYS_read,
        libc::SYS_openat,
        libc::SYS_execve,
        libc::SYS_fchmodat,
        libc::SYS_kill,
        libc::SYS_seccomp,
    ] {
        check(call, &[], ALLOW);
    }
    for &call in DENIED {
        check(call, &[1, 2, 3], DENY);
    }
    for &call in SHARED {
        check(
            call,
            &[],
            [EPERM, SECCOMP_RET_ALLOW, EPERM, SECCOMP_RET_ALLOW],
        );
    }
    check(libc::SYS_clone3, &[], [ENOSYS; 4]);
    check(i64::from(NEWEST) + 1, &[], [ENOSYS; 4]);
    check(i64::from(X32) - 1, &[], [ENOSYS; 4]);
}

#[test]
fn foreign_architectures_end_the_process() {
    let program = build_filter(EffectiveLevel::Two, NetworkAccess::Allowed, true);
    assert_eq!(
        verdict(&program, OTHER_ARCHITECTURE, libc::SYS_read, [0; 6]),
        SECCOMP_RET_KILL_PROCESS
    );
    if cfg!(target_arch = "x86_64") {
        assert_eq!(
            verdict(&program, NATIVE, i64::from(X32), [0; 6]),
            SECCOMP_RET_KILL_PROCESS
        );
        assert_eq!(
            verdict(&program, NATIVE, i64::from(X32) + 165, [0; 6]),
            SECCOMP_RET_KILL_PROCESS
        );
    }
}

#[test]
fn new_namespaces_are_denied() {
    let fork = libc::SIGCHLD as u64;
    check(libc::SYS_clone, &[fork], ALLOW);
    check(libc::SYS_clone, &[0x3d_0f00], ALLOW);
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
    ] {
        check(
            libc::SYS_clone,
            &[fork | u64::from(flag.unsigned_abs())],
            DENY,
        );
        check(libc::SYS_unshare, &[u64::from(flag.unsigned_abs())], DENY);
        check(
            libc::SYS_unshare,
            &[u64::from(flag.unsigned_abs()) | 1 << 32],
            DENY,
        );
    }
    check(libc::SYS_unshare, &[0x80], DENY);
    check(libc::SYS_unshare, &[libc::CLONE_FS as u64], ALLOW);
}

#[test]
fn dangerous_ioctls_are_denied() {
    const TCGETS: u64 = 0x5401;
    check(libc::SYS_ioctl, &[0, TCGETS], ALLOW);
    for &order in IOCTLS {
        check(libc::SYS_ioctl, &[0, order.into()], DENY);
        check(
            libc::SYS_ioctl,
            &[0, u64::from(order) | 0xdead_beef << 32],
            DENY,
        );
    }
    check(libc::SYS_prlimit64, &[0, 7, 0x7fff_0000_0000], ALLOW);
    check(libc::SYS_prlimit64, &[1234, 7, 0], ALLOW);
    check(libc::SYS_prlimit64, &[1234, 7, 0x7fff_0000_0000], DENY);
    check(libc::SYS_prlimit64, &[1234, 7, 0x10], DENY);
}

#[test]
fn socket_families_are_filtered() {
    const NON_BLOCKING: u64 = 0o4000;
    const CLOSE: u64 = 0o2_000_000;
    for family in INTERNET.map(u64::from) {
        for kind in [1, 1 | CLOSE, 1 | CLOSE | NON_BLOCKING] {
            check(libc::SYS_socket, &[family, kind, 0], NOT_ALONE);
            check(libc::SYS_socket, &[family, kind, 6], NOT_ALONE);
            // MPTCP, which Landlock does not know, and SCTP.
            check(libc::SYS_socket, &[family, kind, 262], DENY);
            check(libc::SYS_socket, &[family, kind, 132], DENY);
        }
        check(libc::SYS_socket, &[family | 7 << 32, 1, 0], NOT_ALONE);
        check(libc::SYS_socket, &[family, 2, 0], NOT_ALONE);
        check(libc::SYS_socket, &[family, 2 | CLOSE, 17], NOT_ALONE);
        check(libc::SYS_socket, &[family, 2, 1], DENY);
        check(libc::SYS_socket, &[family, 3, 1], DENY);
        check(libc::SYS_socket, &[family, 3, 255], DENY);
    }
    check(libc::SYS_socket, &[NETLINK.into(), 3, 0], ALLOW);
    check(libc::SYS_socket, &[NETLINK.into(), 3, 12], DENY);
    for kind in [1, 2, 5, 1 | CLOSE | NON_BLOCKING] {
        check(libc::SYS_socket, &[UNIX.into(), kind, 0], WHERE_COVERED);
        let uncovered = build_filter(EffectiveLevel::Two, NetworkAccess::Denied, false);
        let arguments = [UNIX.into(), kind, 0, 0, 0, 0];
        assert_eq!(
            verdict(&uncovered, NATIVE, libc::SYS_socket, arguments),
            EPERM
        );
    }
    // Packet, Bluetooth, ALG, vsock, XDP, SMC.
    for family in [17, 31, 38, 40, 43, 44] {
        for kind in [1, 2, 3, 5] {
            check(libc::SYS_socket, &[family, kind, 0], DENY);
        }
    }
}

#[test]
fn socket_pairs_are_filtered() {
    check(libc::SYS_socketpair, &[1, 1, 0], ALLOW);
    check(libc::SYS_socketpair, &[1, 1 | 0o2_004_000, 0], ALLOW);
    check(libc::SYS_socketpair, &[1, 5, 0], ALLOW);
    check(libc::SYS_socketpair, &[1, 2, 0], WHERE_COVERED);
    check(libc::SYS_socketpair, &[1, 3, 0], DENY);
    check(libc::SYS_socketpair, &[30, 1, 0], DENY);
}
