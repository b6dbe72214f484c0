//! Makes the attempts of a confined command, as raw system calls without a library.
#![expect(
    unsafe_code,
    reason = "the calls are made as an attacker would make them"
)]
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper of tests fails by panicking"
)]

use std::ffi::{CString, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::ptr::{null, null_mut};

use libc::{c_int, c_long};

/// Makes one attempt; exits with 0 if it was allowed, 1 if it was denied.
pub(crate) fn attempt(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let name = args.next().unwrap_or_default().into_string().unwrap();
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    match make(&name, &args) {
        Ok(()) => println!("allowed"),
        Err(error) => {
            println!("denied: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn make(name: &str, args: &[String]) -> io::Result<()> {
    let made = on_files(name, args)
        .or_else(|| on_kernel(name, args))
        .or_else(|| on_sockets(name, args));
    made.unwrap_or_else(|| panic!("no attempt {name}"))
}

fn path(args: &[String]) -> PathBuf {
    PathBuf::from(&args[0])
}

fn on_files(name: &str, args: &[String]) -> Option<io::Result<()>> {
    let path = || path(args);
    let text = || CString::new(path().as_os_str().as_bytes()).unwrap();
    Some(match name {
        "write" => fs::write(path(), "written\n"),
        "open-write" => OpenOptions::new().write(true).open(path()).map(drop),
        "append" => OpenOptions::new().append(true).open(path()).map(drop),
        "read" => fs::File::open(path()).map(drop),
        "list" => fs::read_dir(path()).map(drop),
        // SAFETY: here and below, the arguments are numbers, or point to what lives until the call
        // returns.
        "truncate" => done(unsafe { libc::truncate(text().as_ptr(), 0) }.into()),
        "link" => fs::hard_link(path(), &args[1]).and_then(|()| fs::write(&args[1], "written\n")),
        "rename" => fs::rename(path(), &args[1]),
        "mkdir" => fs::create_dir(path()),
        "rmdir" => fs::remove_dir(path()),
        "unlink" => fs::remove_file(path()),
        "symlink" => std::os::unix::fs::symlink("/", path()),
        "mkfifo" => done(unsafe { libc::mkfifo(text().as_ptr(), 0o600) }.into()),
        "mknod" => done(
            unsafe { libc::mknod(text().as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) }
                .into(),
        ),
        "chmod" => done(unsafe { libc::chmod(text().as_ptr(), 0o777) }.into()),
        "fchmod" => on_read(&args[0], |file| unsafe { libc::fchmod(file, 0o777) }),
        "chown" => {
            done(unsafe { libc::chown(text().as_ptr(), libc::getuid(), libc::getgid()) }.into())
        }
        "utime" => done(
            unsafe {
                libc::utime(
                    text().as_ptr(),
                    &libc::utimbuf {
                        actime: 1,
                        modtime: 1,
                    },
                )
            }
            .into(),
        ),
        "futimens" => on_read(&args[0], |file| unsafe {
            libc::futimens(file, [zeroed(), zeroed()].as_ptr())
        }),
        "setxattr" => done(
            unsafe {
                libc::setxattr(
                    text().as_ptr(),
                    c"user.sabir".as_ptr(),
                    c"x".as_ptr().cast(),
                    1,
                    0,
                )
            }
            .into(),
        ),
        "chattr" => on_read(&args[0], |file| unsafe {
            libc::ioctl(file, 0x4008_6602, &NODUMP)
        }),
        _ => return None,
    })
}

fn on_kernel(name: &str, args: &[String]) -> Option<io::Result<()>> {
    let text = || CString::new(args[0].as_str()).unwrap();
    let number = || args[0].parse::<i32>().unwrap();
    Some(match name {
        "mount" => done(
            unsafe {
                libc::mount(
                    c"none".as_ptr(),
                    c"/mnt".as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    null(),
                )
            }
            .into(),
        ),
        "remount" => done(
            unsafe {
                libc::mount(
                    null(),
                    text().as_ptr(),
                    null(),
                    libc::MS_REMOUNT | libc::MS_BIND,
                    null(),
                )
            }
            .into(),
        ),
        "unmount" => done(unsafe { libc::umount2(text().as_ptr(), libc::MNT_DETACH) }.into()),
        "unshare" => done(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) }.into()),
        "clone-user" => clone(libc::CLONE_NEWUSER | libc::CLONE_NEWNS),
        "clone3" => call(libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
        "setns" => on_read("/proc/self/ns/net", |file| unsafe { libc::setns(file, 0) }),
        "chroot" => done(unsafe { libc::chroot(text().as_ptr()) }.into()),
        "ptrace" => done(unsafe { libc::ptrace(libc::PTRACE_ATTACH, number(), 0, 0) }),
        "process-vm" => call(libc::SYS_process_vm_readv, [number().into(), 0, 0, 0, 0, 0]),
        "kill" => done(unsafe { libc::kill(number(), 0) }.into()),
        "prlimit" => {
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 4096,
            };
            done(
                unsafe { libc::prlimit(number(), libc::RLIMIT_CORE, &raw const limit, null_mut()) }
                    .into(),
            )
        }
        "io_uring" => call(
            libc::SYS_io_uring_setup,
            [
                1,
                (&raw mut *Box::leak(Box::new([0_u8; 256]))) as c_long,
                0,
                0,
                0,
                0,
            ],
        ),
        "bpf" => call(libc::SYS_bpf, [0, 0, 0, 0, 0, 0]),
        "perf" => call(libc::SYS_perf_event_open, [0, 0, -1, -1, 0, 0]),
        "keyctl" => call(libc::SYS_keyctl, [0, -3, 0, 0, 0, 0]),
        "userfaultfd" => call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
        "kexec" => call(libc::SYS_kexec_load, [0, 0, 0, 0, 0, 0]),
        "by-handle" => call(libc::SYS_open_by_handle_at, [-100, 0, 0, 0, 0, 0]),
        "shmget" => done(unsafe { libc::shmget(0x5ab1, 4096, libc::IPC_CREAT | 0o600) }.into()),
        "tiocsti" => done(unsafe { libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()) }.into()),
        "tiocsti-high" => call(
            libc::SYS_ioctl,
            [0, 0x5412 | 1 << 40, c"x".as_ptr() as c_long, 0, 0, 0],
        ),
        _ => return None,
    })
}

fn on_sockets(name: &str, args: &[String]) -> Option<io::Result<()>> {
    let path = || path(args);
    Some(match name {
        "socket" => socket(
            &args
                .iter()
                .map(|arg| arg.parse().unwrap())
                .collect::<Vec<c_int>>(),
        ),
        "pair-datagram" => {
            let mut pair = [0; 2];
            done(
                unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr()) }
                    .into(),
            )
        }
        "pair" => UnixStream::pair().map(drop),
        "unix" => UnixStream::connect(path()).map(drop),
        "abstract" => SocketAddr::from_abstract_name(&args[0])
            .and_then(|name| UnixStream::connect_addr(&name))
            .map(drop),
        "tcp" => TcpStream::connect(&args[0]).map(drop),
        "tcp-within" => TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| TcpStream::connect(listener.local_addr()?))
            .map(drop),
        "unix-within" => unix_within(),
        "udp-within" => UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
            socket.send_to(b"x", socket.local_addr()?)?;
            socket.recv(&mut [0; 4]).map(drop)
        }),
        "fast-open" => fast_open(args[0].parse().unwrap()),
        "udp" => UdpSocket::bind("0.0.0.0:0")
            .and_then(|socket| socket.send_to(b"leaked", &args[0]))
            .map(drop),
        "foreign" => foreign(),
        "privileges" => privileges(),
        "exec" => Err(Command::new(path()).args(&args[1..]).exec()),
        "euid-0" => {
            if unsafe { libc::geteuid() } == 0 {
                Ok(())
            } else {
                Err(io::Error::other("not root"))
            }
        }
        _ => return None,
    })
}

/// Listens on a path and on an abstract name, and connects to both.
fn unix_within() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("probe-{}", std::process::id()));
    let _listener = UnixListener::bind(&path)?;
    UnixStream::connect(&path)?;
    fs::remove_file(&path)?;
    let name = SocketAddr::from_abstract_name(path.as_os_str().as_bytes())?;
    let _listener = UnixListener::bind_addr(&name)?;
    UnixStream::connect_addr(&name).map(drop)
}

static NODUMP: c_long = 0x40;

fn done(answer: c_long) -> io::Result<()> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn call(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> io::Result<()> {
    done(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

fn on_read(path: &str, act: impl FnOnce(c_int) -> c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    done(act(fs::File::open(path)?.as_raw_fd()).into())
}

fn socket(args: &[c_int]) -> io::Result<()> {
    done(unsafe { libc::socket(args[0], args[1], args[2]) }.into())
}

/// Mounts in a child with a new user namespace; its exit code is the answer.
fn clone(flags: c_int) -> io::Result<()> {
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            c_long::from(flags | libc::SIGCHLD),
            0,
            0,
            0,
            0,
        )
    };
    if pid == 0 {
        let mounted = unsafe {
            libc::mount(
                c"none".as_ptr(),
                c"/mnt".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                null(),
            )
        };
        unsafe { libc::_exit(if mounted == 0 { 0 } else { 1 }) };
    }
    done(pid)?;
    let mut status = 0;
    done(unsafe { libc::waitpid(pid as c_int, &raw mut status, 0) }.into())?;
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::other("the mount failed"))
    }
}

/// Connects without `connect`.
fn fast_open(address: SocketAddrV4) -> io::Result<()> {
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    done(socket.into())?;
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    };
    let size = size_of::<libc::sockaddr_in>() as u32;
    done(unsafe {
        libc::sendto(
            socket,
            c"x".as_ptr().cast(),
            1,
            libc::MSG_FASTOPEN,
            (&raw const to).cast(),
            size,
        )
    } as c_long)
}

/// A 32-bit call: `getpid` of i386, whose number is 64-bit `writev`.
#[cfg(target_arch = "x86_64")]
fn foreign() -> io::Result<()> {
    let answer: i64;
    unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => answer) };
    done(answer)
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign() -> io::Result<()> {
    Err(io::Error::other("no foreign calls on this architecture"))
}

/// Checks that no capability is left or can come back.
fn privileges() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    let none = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"]
        .iter()
        .all(|name| field(name) == "0000000000000000");
    if none && field("NoNewPrivs:") == "1" && field("Seccomp:") == "2" {
        return Err(io::Error::other("no privileges"));
    }
    Ok(())
}

/// Makes a system call answer `ENOSYS` for this process, as on a kernel without it, and then
/// executes the other arguments.
pub(crate) fn without(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let number = match args.next().unwrap().to_str().unwrap() {
        "landlock" => libc::SYS_landlock_create_ruleset,
        "namespaces" => libc::SYS_unshare,
        "seccomp" => libc::SYS_seccomp,
        "mounts" => libc::SYS_mount_setattr,
        other => panic!("no call {other}"),
    };
    let row = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let program = [
        row(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        row(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            number as u32,
        ),
        row(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        row(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program
            ),
            0
        );
    }
    let error = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .exec();
    panic!("{error}");
}
