//! Implements the fork server: a copy of the program that has started, and forks a supervisor for each request.
//!
//! To start a large program costs more than the rest of a supervisor: loading it, and relocating its tables. A fork of a small process
//! with one thread does not. The agent keeps one fork server for a workspace; `command/fork_server.rs` is its side.
//!
//! A request is one message on the server's standard input, a socket of packets, with five descriptors: the socket of the command, its
//! standard output and error, its folder, and a file in memory with its environment and the arguments of the [`SupervisorPlan`](super::SupervisorPlan). The
//! answer is the process id of the supervisor's parent, the reaper, or 0 if nothing was started. The new process is a child of the
//! *agent*, not of the server, so commands do not depend on the server's life. The server ends when the agent closes its end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Seek as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::kernel;
use crate::platform::{self, ForkSide};
use crate::sandbox::syscalls::{self, ForkRelation};

/// The argument of a fork server, behind that of a supervisor.
pub(crate) const MODE: &str = "fork-server";
/// The number of descriptors of a request.
pub(crate) const REQUEST_DESCRIPTORS: usize = 5;

/// What a supervisor starts with, except for its descriptors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SupervisorOrder {
    /// The arguments of the [`SupervisorPlan`](super::SupervisorPlan).
    pub(super) arguments: Vec<OsString>,
    /// The whole environment of the command.
    pub(super) environment: Vec<(OsString, OsString)>,
}

/// Writes an order as text: the number of variables, the variables, and the arguments, each of them ended by a NUL byte, which none of
/// them can hold.
pub(crate) fn encode_order(
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> Vec<u8> {
    let mut bytes = environment.len().to_string().into_bytes();
    bytes.push(0);
    for (name, value) in environment {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    for argument in arguments {
        bytes.extend_from_slice(argument.as_bytes());
        bytes.push(0);
    }
    bytes
}

impl SupervisorOrder {
    /// Reads what [`encode_order`] wrote; `None` if it is something else.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let count: usize = str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let mut environment = Vec::new();
        for _ in 0..count {
            let variable = words.next()?;
            let end = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = variable.split_at_checked(end)?;
            environment.push((
                OsStr::from_bytes(name).to_owned(),
                OsStr::from_bytes(value.get(1..)?).to_owned(),
            ));
        }
        Some(Self {
            arguments: words
                .map(|word| OsString::from_vec(word.to_vec()))
                .collect(),
            environment,
        })
    }
}

/// Serves requests until the agent closes its end. Returns the order in each new process, which then has the streams and the folder of
/// its command; `None` in the server itself.
pub(super) fn serve_requests() -> io::Result<Option<SupervisorOrder>> {
    // Ctrl-C is for the agent, whose terminal this process would otherwise share.
    kernel::block_signals()?;
    let _ = setsid();
    let _ = rustix::process::chdir("/");
    platform::forbid_inspection()?;
    // What the agent's parent forgot to close would stay open. A kernel before 5.9 cannot do it.
    let _ = platform::close_others();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    loop {
        let Some(descriptors) = receive_request(&socket)? else {
            return Ok(None);
        };
        let answer = match descriptors {
            None => 0,
            Some(descriptors) => match syscalls::fork_process(ForkRelation::Sibling) {
                Ok(ForkSide::Parent(reaper)) => reaper.as_raw_nonzero().get(),
                Ok(ForkSide::Child) => {
                    drop(socket);
                    return enter_request(descriptors).map(Some);
                }
                Err(_) => 0,
            },
        };
        send(&socket, &answer.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    }
}

/// Waits for a request; `None` if the agent has closed its end. Without all of its descriptors there is nothing to start.
fn receive_request(socket: &OwnedFd) -> io::Result<Option<Option<[OwnedFd; REQUEST_DESCRIPTORS]>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REQUEST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 1];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut word)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let sent: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sent) => Some(sent),
            _ => None,
        })
        .flatten()
        .collect();
    Ok(Some(sent.try_into().ok()))
}

/// Gives this process the streams, the folder and the state of a program that was just started, and reads its order.
fn enter_request(descriptors: [OwnedFd; REQUEST_DESCRIPTORS]) -> io::Result<SupervisorOrder> {
    let [socket, output, errors, folder, order] = descriptors;
    dup2_stdin(&socket)?;
    dup2_stdout(&output)?;
    dup2_stderr(&errors)?;
    rustix::process::fchdir(&folder)?;
    // As after a start: the reaper can only rename itself while it may be inspected.
    platform::allow_inspection()?;
    let mut bytes = Vec::new();
    let mut order = File::from(order);
    order.rewind()?;
    order.read_to_end(&mut bytes)?;
    SupervisorOrder::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_decodes_from_its_bytes() {
        let orders = [
            SupervisorOrder {
                arguments: vec!["100".into(), String::new().into(), "a\nb=c".into()],
                environment: vec![
                    ("PATH".into(), "/bin:/usr/bin".into()),
                    ("EMPTY".into(), String::new().into()),
                    ("EQUALS".into(), "a=b".into()),
                    ("RAW".into(), OsString::from_vec(vec![0xff, 0xfe])),
                ],
            },
            SupervisorOrder {
                arguments: vec![String::new().into()],
                environment: Vec::new(),
            },
        ];
        for order in orders {
            let bytes = encode_order(&order.arguments, &order.environment);
            assert_eq!(SupervisorOrder::decode(&bytes), Some(order));
        }
    }

    #[test]
    fn other_bytes_are_no_order() {
        for bytes in [
            &b""[..],
            b"\0",
            b"x\0",
            b"1\0",
            b"1\0PATH\0",
            b"2\0A=b\0",
            b"18446744073709551616\0",
            b"0",
        ] {
            assert_eq!(SupervisorOrder::decode(bytes), None, "{bytes:?}");
        }
    }
}
