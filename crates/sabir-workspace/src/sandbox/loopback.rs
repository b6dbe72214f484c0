//! Lets a command reach ports of this machine's loopback from the network of its own that level 2 gives it.
//!
//! Sharing the machine's network would open all of it: no filter tells addresses apart. So the
//! launcher opens listening sockets *inside* the command's network, one for each port that the
//! caller names, and sends them to the agent, which stays outside. The agent accepts the command's
//! connections there and connects each to the same port of the machine's loopback. A socket belongs
//! for ever to the network that it was made in, so nothing else is reachable, and nobody else can
//! use it.
//!
//! Only ports on which a program of the machine listens when the command starts are opened. The
//! others stay free for servers that the command itself starts.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as BlockingListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, recvmsg,
    sendmsg,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{make_private, random_path};
use crate::platform;

/// The most ports of one command.
pub(super) const MAX_PORTS: usize = 16;
/// The most listening sockets: one for each version of the protocol.
const MAX_SOCKETS: usize = 2 * MAX_PORTS;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// The name of the socket in its private folder.
const SOCKET: &str = "s";

/// The agent's side: forwards connections until it is dropped.
#[derive(Debug)]
pub(crate) struct LoopbackBridge {
    folder: PathBuf,
    task: JoinHandle<()>,
}

impl LoopbackBridge {
    /// Starts to wait for the listening sockets of a command, at a path that [`LoopbackPortOpener`] connects
    /// to. Needs a runtime.
    pub(crate) fn start(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(path).to_path_buf();
        make_private(&folder)?;
        let listener = UnixListener::bind(path).inspect_err(|_| _ = fs::remove_dir(&folder))?;
        let task = tokio::spawn(async move {
            // The launcher connects once, before anything of the command runs.
            if let Ok((stream, _)) = listener.accept().await
                && let Ok(doors) = receive_sockets(&stream).await
            {
                forward_all(doors).await;
            }
        });
        Ok(Self { folder, task })
    }
}

impl Drop for LoopbackBridge {
    fn drop(&mut self) {
        self.task.abort();
        _ = fs::remove_file(self.folder.join(SOCKET));
        _ = fs::remove_dir(&self.folder);
    }
}

/// Returns a path for the socket of a bridge, in a new folder of the temporary one.
pub(super) fn new_socket_path(temporary: &Path) -> PathBuf {
    random_path(temporary, "sabir-lo-").join(SOCKET)
}

/// Receives the listening sockets of a command's network.
async fn receive_sockets(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let mut parts = [IoSliceMut::new(&mut byte)];
            recvmsg(
                stream,
                &mut parts,
                &mut control,
                platform::RECEIVE_CLOSED_ON_EXEC,
            )?;
            let mut received = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(sockets) = message {
                    received.extend(sockets);
                }
            }
            Ok(received)
        })
        .await
}

async fn forward_all(doors: Vec<OwnedFd>) {
    let mut running = JoinSet::new();
    for door in doors {
        let door = BlockingListener::from(door);
        if door.set_nonblocking(true).is_ok()
            && let Ok(door) = TcpListener::from_std(door)
        {
            running.spawn(forward_port(door));
        }
    }
    while running.join_next().await.is_some() {}
}

/// Forwards the connections of one port.
async fn forward_port(door: TcpListener) {
    let Ok(port) = door.local_addr().map(|address| address.port()) else {
        return;
    };
    let mut running = JoinSet::new();
    while let Ok((mut inside, _)) = door.accept().await {
        running.spawn(async move {
            let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
            // Where nobody listens any more, the connection is closed at once.
            if let Ok(mut outside) = TcpStream::connect(&[v4, v6][..]).await {
                _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
        while running.try_join_next().is_some() {}
    }
}

/// The launcher's side: the connection to the agent, made while its socket can still be seen.
#[cfg_attr(target_os = "macos", allow(dead_code, reason = "level 2 needs Linux"))]
pub(super) struct LoopbackPortOpener<'a> {
    stream: BlockingStream,
    ports: &'a [u16],
}

#[cfg_attr(target_os = "macos", allow(dead_code, reason = "level 2 needs Linux"))]
impl<'a> LoopbackPortOpener<'a> {
    /// Connects to the agent; `None` if the agent is gone, and then nothing is reachable.
    pub(super) fn connect(path: &Path, ports: &'a [u16]) -> Option<Self> {
        let stream = BlockingStream::connect(path).ok()?;
        Some(Self { stream, ports })
    }

    /// Opens the ports in the network of this process, and sends them to the agent.
    pub(super) fn open(self) -> io::Result<()> {
        let mut doors = Vec::new();
        for &port in self.ports.iter().take(MAX_PORTS) {
            // One of the two may be switched off on this machine.
            doors.extend(BlockingListener::bind((Ipv4Addr::LOCALHOST, port)));
            doors.extend(BlockingListener::bind((Ipv6Addr::LOCALHOST, port)));
        }
        let sockets: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(
            &self.stream,
            &[IoSlice::new(b"p")],
            &mut control,
            platform::SEND_WITHOUT_SIGNAL,
        )?;
        Ok(())
    }
}

/// Returns those of the ports on which a program of this machine listens for local connections.
pub(super) fn filter_listening(ports: &[u16]) -> Vec<u16> {
    if ports.is_empty() {
        return Vec::new();
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let tables = read("/proc/net/tcp") + &read("/proc/net/tcp6");
    let open: Vec<u16> = tables.lines().filter_map(local_listener).collect();
    let mut found: Vec<u16> = ports
        .iter()
        .copied()
        .filter(|port| open.contains(port))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_PORTS);
    found
}

/// Returns the port of a line of `/proc/net/tcp` that is a socket listening on the loopback or on all
/// addresses.
fn local_listener(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    let state = fields.nth(1)?;
    let (address, port) = local.rsplit_once(':')?;
    // An address is printed as 32-bit words in native byte order; 127.x.x.x therefore ends in 7F on
    // little-endian machines.
    let is_local = address.bytes().all(|digit| digit == b'0')
        || address == "00000000000000000000000001000000"
        || address.len() == 8 && (address.ends_with("7F") || address.starts_with("7F"))
        || address == "0000000000000000FFFF00000100007F";
    (state == LISTENING && is_local)
        .then(|| u16::from_str_radix(port, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_listeners_are_recognised() {
        let check =
            |line: &str, port: Option<u16>| assert_eq!(local_listener(line), port, "{line}");
        check("   0: 0100007F:1F90 00000000:0000 0A 0 0 0", Some(8080));
        check("   1: 00000000:0016 00000000:0000 0A 0 0 0", Some(22));
        check("   1: 0500A8C0:0016 00000000:0000 0A 0 0 0", None);
        check("   2: 0100007F:1F90 0100007F:9C40 01 0 0 0", None);
        check(
            "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A",
            Some(80),
        );
        check("  sl  local_address rem_address   st", None);
    }
}
