//! Implements the fork server: a copy of the program that has started, and forks supervisors ahead.
//!
//! To start a large program costs more than the rest of a supervisor: loading it, and relocating its tables. A fork of a small process
//! with one thread does not. The agent keeps one fork server for a workspace; `command/fork_server.rs` is its side.
//!
//! The server keeps one supervisor, the standby, with its parent, the reaper, and, if the last command had a network of its own, with
//! a [launcher](PreparedLauncher) for the next one. The standby itself waits for the request, on the socket of packets that is the server's
//! standard input. A request is one message with five descriptors: the socket of the command, its standard output and error, its folder,
//! and a file in memory with its environment and the arguments of the [`SupervisorPlan`](super::SupervisorPlan). The answer is the process id of
//! the reaper, or 0 if nothing was started.
//!
//! Reapers are children of the *agent*, not of the server, so commands do not depend on the server's life. Each writes its process
//! id to the server's standard output, so that the agent can reap one that was never used. The server and the standby end when the agent
//! closes its end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut, PipeReader, PipeWriter, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{getpid, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin, stdout};

use super::SupervisorPlan;
use super::reaper::{self, ReaperLink};
use crate::kernel;
use crate::platform::{self, ForkSide};
use crate::sandbox::SandboxPlan;
use crate::sandbox::prepared_launcher::{AssignedLauncher, PreparedLauncher};
use crate::sandbox::syscalls::{self, ForkRelation};

/// The argument of a fork server, behind that of a supervisor.
pub(crate) const MODE: &str = "fork-server";
/// The number of descriptors of a request.
pub(crate) const REQUEST_DESCRIPTORS: usize = 5;
/// The time after which the next standby is made. Until then the command that was just started has the processors.
const QUIET_TIME: Duration = Duration::from_millis(20);

/// What a supervisor starts with, except for its descriptors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SupervisorOrder {
    /// The arguments of the [`SupervisorPlan`](super::SupervisorPlan).
    pub(crate) arguments: Vec<OsString>,
    /// The whole environment of the command.
    pub(crate) environment: Vec<(OsString, OsString)>,
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
    /// Reads an order from the start of a file, wherever the position is that several processes share.
    pub(crate) fn read_at_start(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        Self::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
    }

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

/// A standby that has received its order.
pub(super) struct AssignedStandby {
    pub(super) order: SupervisorOrder,
    pub(super) reaper: ReaperLink,
    /// A launcher for the command, if it can use it.
    pub(super) launcher: Option<AssignedLauncher>,
}

/// Keeps a standby until the agent closes its end. Returns in each standby that has received its order; `None` in the server itself, in
/// reapers, and in a standby without an order.
pub(super) fn serve_requests() -> io::Result<Option<AssignedStandby>> {
    // Ctrl-C is for the agent, whose terminal this process would otherwise share.
    kernel::block_signals()?;
    let _ = setsid();
    let _ = rustix::process::chdir("/");
    platform::forbid_inspection()?;
    // What the agent's parent forgot to close would stay open. A kernel before 5.9 cannot do it.
    let _ = platform::close_other_descriptors();
    let mut need = LauncherNeed::None;
    let mut has_died = false;
    loop {
        // A new pipe for each standby: it is closed when the standby has its order or dies.
        let (taken, announce_taken) = io::pipe()?;
        // Forked as a sibling, so that the agent can wait for the reaper even if this server is
        // killed.
        match syscalls::fork_process(ForkRelation::Sibling) {
            Ok(ForkSide::Child) => {
                drop(taken);
                return stand_by(announce_taken, need);
            }
            Ok(ForkSide::Parent(_)) => {
                drop(announce_taken);
                match wait_for_standby(taken)? {
                    StandbyEnd::Taken(next) => {
                        need = next;
                        has_died = false;
                        continue;
                    }
                    StandbyEnd::AgentGone => return Ok(None),
                    // The next one may live, so the request that waits, or will come, gets one.
                    StandbyEnd::Died if !has_died => {
                        has_died = true;
                        wait_for_request(None);
                        continue;
                    }
                    StandbyEnd::Died => {}
                }
            }
            Err(_) => {}
        }
        // No standby is available, for instance because no process can be forked: the agent starts
        // the supervisor itself. Repeated attempts would only leave zombies to the agent.
        match receive_request()? {
            Some(_) => answer_request(0)?,
            None => return Ok(None),
        }
    }
}

/// The way in which the wait for a standby ended.
enum StandbyEnd {
    /// It has received its order. The next standby should prepare this launcher.
    Taken(LauncherNeed),
    /// It was killed, or failed, without an order.
    Died,
    AgentGone,
}

/// The launcher that is worth starting ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LauncherNeed {
    None,
    /// A launcher with namespaces, including an isolated network.
    OwnNetwork,
}

impl LauncherNeed {
    /// Returns what a command with this order can use.
    fn of_order(order: &SupervisorOrder) -> Self {
        let plan = SupervisorPlan::from_args(order.arguments.iter().cloned())
            .and_then(|plan| SandboxPlan::from_args(&plan.sandbox));
        match plan {
            Some(plan) if plan.has_own_network() => Self::OwnNetwork,
            _ => Self::None,
        }
    }
}

/// Waits until the standby has received its order or was killed, and then a moment longer, so that the next standby is not forked while the
/// command starts, unless a request arrives.
fn wait_for_standby(mut taken: PipeReader) -> io::Result<StandbyEnd> {
    let agent = io::stdin();
    loop {
        let mut waited = [
            // Not for input: the standby reads a queued request, which would make this loop spin.
            // The kernel reports the end of the connection even without a requested event.
            PollFd::new(&agent, PollFlags::empty()),
            PollFd::new(&taken, PollFlags::IN),
        ];
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [agent, taken] = waited;
        if agent.revents().contains(PollFlags::HUP) {
            return Ok(StandbyEnd::AgentGone);
        }
        if !taken.revents().is_empty() {
            break;
        }
    }
    let mut need = [0; 1];
    if taken.read_exact(&mut need).is_err() {
        return Ok(StandbyEnd::Died);
    }
    // A second command may follow at once. No standby reads the queue now, so this poll waits for
    // input. A launcher is then not prepared, because that would delay the command.
    let is_urgent = wait_for_request(Some(QUIET_TIME));
    Ok(StandbyEnd::Taken(match need {
        [1] if !is_urgent => LauncherNeed::OwnNetwork,
        _ => LauncherNeed::None,
    }))
}

/// Waits until a request is in the queue, the agent has closed its end, or the time is over. Returns false if the time is over.
fn wait_for_request(limit: Option<Duration>) -> bool {
    let agent = io::stdin();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    loop {
        let mut waited = [PollFd::new(&agent, PollFlags::IN)];
        match poll(&mut waited, limit.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return !matches!(ready, Ok(0)),
        }
    }
}

/// Becomes a reaper and its supervisor, and waits for the order of the latter.
fn stand_by(announce_taken: PipeWriter, need: LauncherNeed) -> io::Result<Option<AssignedStandby>> {
    // As after a start: the reaper can only rename itself while it may be inspected.
    platform::allow_inspection()?;
    // Before there is a supervisor that could answer. If the agent is gone, nobody has to reap.
    let id = getpid().as_raw_nonzero().get().to_ne_bytes();
    let _ = rustix::io::write(stdout(), &id);
    let mut announce_taken = Some(announce_taken);
    let reaper = match reaper::fork_supervisor(&mut announce_taken)? {
        reaper::SupervisorRole::Done => return Ok(None),
        reaper::SupervisorRole::Supervisor(reaper) => reaper,
    };
    platform::forbid_inspection()?;
    // Like everything that a command starts, the launcher must not be adopted by others.
    platform::adopt_orphans()?;
    let launcher = match need {
        LauncherNeed::None => None,
        // Where it cannot be started, the one that is started for the command says why.
        LauncherNeed::OwnNetwork => PreparedLauncher::start().ok(),
    };
    let launcher = launcher.filter(|launcher| launcher.wait_for_input(stdin()));
    let descriptors = match receive_request()? {
        None => return Ok(None),
        Some(None) => {
            answer_request(0)?;
            return Ok(None);
        }
        Some(Some(descriptors)) => descriptors,
    };
    // Sent before the streams are replaced, while standard input is still the agent's socket. If
    // the agent has given up, this fails, and nothing is started.
    answer_request(reaper.reaper().as_raw_nonzero().get())?;
    let EnteredRequest { order, file } = enter_request(descriptors)?;
    if let Some(mut announce_taken) = announce_taken {
        let need = LauncherNeed::of_order(&order);
        // If the server was killed, no further standby is needed.
        let _ = announce_taken.write_all(&[u8::from(need == LauncherNeed::OwnNetwork)]);
    }
    Ok(Some(AssignedStandby {
        order,
        reaper,
        launcher: launcher.map(|launcher| launcher.with_order(file)),
    }))
}

/// Waits for a request; `None` if the agent has closed its end. Without all of its descriptors there is nothing to start.
fn receive_request() -> io::Result<Option<Option<[OwnedFd; REQUEST_DESCRIPTORS]>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REQUEST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 1];
    let received = recvmsg(
        io::stdin(),
        &mut [IoSliceMut::new(&mut word)],
        &mut control,
        // A command that inherited one of these could read the order of its supervisor.
        RecvFlags::CMSG_CLOEXEC,
    )?;
    // Each request has a byte, so only the end of the connection has none.
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

/// Sends the process id of a reaper, or 0.
fn answer_request(reaper: i32) -> io::Result<()> {
    send(io::stdin(), &reaper.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Gives this process the streams, the folder and the state of a program that was just started, and reads its order.
fn enter_request(descriptors: [OwnedFd; REQUEST_DESCRIPTORS]) -> io::Result<EnteredRequest> {
    let [socket, output, errors, folder, order] = descriptors;
    dup2_stdin(&socket)?;
    dup2_stdout(&output)?;
    dup2_stderr(&errors)?;
    rustix::process::fchdir(&folder)?;
    let file = File::from(order);
    Ok(EnteredRequest {
        order: SupervisorOrder::read_at_start(&file)?,
        file,
    })
}

/// An order, and the file that it was read from.
struct EnteredRequest {
    order: SupervisorOrder,
    file: File,
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
