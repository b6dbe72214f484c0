//! Keeps the fork server of a workspace, and has it fork supervisors. `supervise/fork_server.rs` says why and how.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, PipeReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::kernel;
use crate::platform;
use crate::supervise::ARGUMENT;
use crate::supervise::fork_server::{self, MODE, REQUEST_DESCRIPTORS};

/// The time that a fork server may take for an answer. A fork takes a fraction of a millisecond; only a stopped server takes longer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The interval at which a process is checked if the kernel has no process handles.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The fork server of a workspace, started with the first command.
#[derive(Debug, Default)]
pub(crate) struct ForkServerSlot {
    server: Mutex<Option<ForkServer>>,
}

/// A request to fork a supervisor, with what its process starts with.
pub(crate) struct ForkRequest<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) errors: BorrowedFd<'a>,
    pub(crate) folder: BorrowedFd<'a>,
    /// The arguments of the supervisor, without the first one.
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a [(OsString, OsString)],
}

/// The way a request ended that started nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForkFailure {
    /// The server did not receive the request, or could not start anything, so the supervisor can be started in another way.
    #[error("the fork server cannot start a supervisor: {0}")]
    Unreachable(io::Error),
    /// The server may already have started a supervisor, so no other one may be started instead.
    #[error("the fork server did not answer: {0}")]
    Lost(io::Error),
}

impl ForkServerSlot {
    /// Has the fork server of this program fork a supervisor; starts the server if there is none, or if it was killed.
    pub(crate) fn fork(
        &self,
        helper: &Path,
        request: &ForkRequest<'_>,
    ) -> Result<ForkedProcess, ForkFailure> {
        // Sent as a file, since an environment may exceed the size of a socket message. Written
        // before the lock is taken, so that no other command waits for it.
        let order = write_order(request).map_err(ForkFailure::Unreachable)?;
        let mut slot = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = slot.as_ref().filter(|server| server.helper == helper) {
            match server.send_request(request, &order) {
                Ok(()) => return finish_fork(&mut slot),
                // Killed since the last command. Nothing has received the request.
                Err(Errno::PIPE | Errno::CONNRESET) => *slot = None,
                Err(error) => return Err(ForkFailure::Unreachable(error.into())),
            }
        }
        let server = ForkServer::start(helper).map_err(ForkFailure::Unreachable)?;
        let server = slot.insert(server);
        server
            .send_request(request, &order)
            .map_err(|error| ForkFailure::Unreachable(error.into()))?;
        finish_fork(&mut slot)
    }
}

/// Receives the answer. A server that gives none is killed: it must not fork later.
fn finish_fork(slot: &mut Option<ForkServer>) -> Result<ForkedProcess, ForkFailure> {
    let answer = match slot.as_mut() {
        Some(server) => server.receive_answer(),
        None => Err(io::ErrorKind::NotConnected.into()),
    };
    match answer {
        Ok(Some(process)) => Ok(ForkedProcess::new(process)),
        Ok(None) => Err(ForkFailure::Unreachable(io::ErrorKind::OutOfMemory.into())),
        Err(error) => {
            *slot = None;
            Err(ForkFailure::Lost(error))
        }
    }
}

/// Waits in a thread for a process that nobody else waits for, so that no zombie is left.
fn reap_in_background(process: Pid) {
    let waiter = thread::Builder::new().stack_size(64 << 10);
    // Without a thread it stays until this program ends.
    let _ = waiter.spawn(move || {
        while matches!(
            waitpid(Some(process), WaitOptions::empty()),
            Err(Errno::INTR)
        ) {}
    });
}

/// Writes the order into a file in memory.
fn write_order(request: &ForkRequest<'_>) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("command", MemfdFlags::CLOEXEC)?);
    file.write_all(&fork_server::encode_order(
        request.arguments,
        request.environment,
    ))?;
    Ok(file.into())
}

/// A running fork server. Dropping it ends the server, and none of what it forked.
#[derive(Debug)]
struct ForkServer {
    helper: PathBuf,
    process: Child,
    socket: OwnedFd,
    /// The process ids of all reapers that the server has forked.
    forked: PipeReader,
    /// The process ids of the reapers that have not been given a command.
    unused: Vec<i32>,
}

impl ForkServer {
    fn start(helper: &Path) -> io::Result<Self> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME))?;
        let (forked, announce_forked) = io::pipe()?;
        // Non-blocking, because the pipe is read until it is empty while the server keeps its end
        // open. The kernel writes the four bytes of an id atomically, so no id is read in part.
        ioctl_fionbio(&forked, true)?;
        let process = Command::new(helper)
            .args([ARGUMENT, MODE])
            .env_clear()
            .stdin(theirs)
            .stdout(announce_forked)
            // Nobody reads what the server says; an order brings its own standard error.
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            helper: helper.to_path_buf(),
            process,
            socket,
            forked,
            unused: Vec::new(),
        })
    }

    fn send_request(&self, request: &ForkRequest<'_>, order: &OwnedFd) -> Result<(), Errno> {
        let descriptors = [
            request.socket,
            request.output,
            request.errors,
            request.folder,
            order.as_fd(),
        ];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REQUEST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        // A full queue means that the server takes no requests. It may be stopped, so the caller
        // starts the program itself instead of waiting.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(b"f")], &mut control, flags).map(drop)
    }

    /// Returns the reaper of the new supervisor; `None` if the server could not start one.
    fn receive_answer(&mut self) -> io::Result<Option<Pid>> {
        let mut answer = [0; size_of::<i32>()];
        let (received, _) = loop {
            match recv(&self.socket, &mut answer, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if received != answer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reaper = i32::from_ne_bytes(answer);
        self.read_forked();
        // Now only the caller waits for this id. If two did, one could reap a later process that
        // reuses it.
        self.unused.retain(|unused| *unused != reaper);
        Ok(Pid::from_raw(reaper))
    }

    /// Reads the process ids of the reapers forked so far. A reaper writes its id before it forks
    /// the supervisor that could answer.
    fn read_forked(&mut self) {
        let mut id = [0; size_of::<i32>()];
        while self.forked.read_exact(&mut id).is_ok() {
            self.unused.push(i32::from_ne_bytes(id));
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // Waiting until the server notices the closed socket could take as long as it is stopped.
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.read_forked();
        // They end when the socket closes, right after this.
        for unused in self.unused.drain(..).filter_map(Pid::from_raw) {
            reap_in_background(unused);
        }
    }
}

/// A process that the fork server forked. It is a child of this process.
pub(crate) struct ForkedProcess {
    process: Pid,
    /// Readable when the process has ended; none where the kernel has no handles.
    handle: Option<AsyncFd<OwnedFd>>,
    has_ended: bool,
}

impl ForkedProcess {
    fn new(process: Pid) -> Self {
        Self {
            process,
            handle: platform::open_process_handle(process)
                .and_then(|handle| kernel::register_fd(handle).ok()),
            has_ended: false,
        }
    }

    /// Waits for the end, and reaps the process.
    pub(crate) async fn wait(&mut self) {
        while !self.has_ended {
            // The only error is that the process was already reaped, or was never a child of this
            // process.
            let waited = waitpid(Some(self.process), WaitOptions::NOHANG);
            self.has_ended = !matches!(waited, Ok(None));
            match &self.handle {
                _ if self.has_ended => {}
                // The readiness is never cleared: the handle becomes readable once, at the end, and
                // stays readable.
                Some(handle) => _ = handle.readable().await,
                None => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Returns the process id; `None` when it may belong to another process.
    pub(crate) fn id(&self) -> Option<u32> {
        u32::try_from(self.process.as_raw_nonzero().get())
            .ok()
            .filter(|_| !self.has_ended)
    }

    pub(crate) fn kill(&self) {
        if !self.has_ended {
            let _ = kill_process(self.process, Signal::KILL);
        }
    }
}

impl Drop for ForkedProcess {
    fn drop(&mut self) {
        if !self.has_ended {
            reap_in_background(self.process);
        }
    }
}
