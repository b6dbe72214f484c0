//! Passes one descriptor from the agent to the supervisor, through the socket between them.
//!
//! A new process inherits only its three standard streams, and those of the supervisor are taken: its input is the socket,
//! and its outputs are those of the program. A server needs an input of its own.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, recvmsg, sendmsg,
};

use crate::platform;

/// Sends a descriptor. It waits in the socket until the other end receives it.
pub(crate) fn send_descriptor(socket: &impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        socket,
        &[IoSlice::new(b"d")],
        &mut control,
        platform::SEND_WITHOUT_SIGNAL,
    )?;
    Ok(())
}

/// Receives the descriptor that was sent. It is closed when another program starts.
pub(crate) fn receive_descriptor(socket: &impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 1];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut word)],
        &mut control,
        RecvFlags::DONTWAIT | platform::RECEIVE_CLOSED_ON_EXEC,
    )?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
}
