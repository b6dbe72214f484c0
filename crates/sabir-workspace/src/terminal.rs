//! Opens a pseudo-terminal for programs that refuse to run, or behave differently, without one.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, ReadBuf};

use crate::kernel;
use crate::platform;
use crate::terminal_text::ROWS;

const COLUMNS: u16 = 120;
/// Ctrl-D, which a terminal interprets as the end of input unless a program reads raw keys.
const END_OF_INPUT: &[u8] = b"\x04";

/// The controlling side of a pseudo-terminal. Clones share it.
#[derive(Clone)]
pub(crate) struct TerminalMaster(Arc<AsyncFd<OwnedFd>>);

/// Opens a terminal and returns our side and the command's side. Needs a runtime.
pub(crate) fn open_terminal() -> io::Result<(TerminalMaster, OwnedFd)> {
    let (ours, theirs) = platform::open_terminal_pair()?;
    let rows = u16::try_from(ROWS).unwrap_or(u16::MAX);
    tcsetwinsize(
        &theirs,
        Winsize {
            ws_row: rows,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )?;
    // Only our side: the flag belongs to the open file, and programs do not expect it on theirs.
    fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
    Ok((TerminalMaster(Arc::new(kernel::register_fd(ours)?)), theirs))
}

impl TerminalMaster {
    /// Types the end of input once. The next program that reads sees it.
    pub(crate) fn type_end_of_input(&self) {
        // A full queue already holds enough of them, and a closed terminal needs none.
        let _ = rustix::io::write(self.0.get_ref(), END_OF_INPUT);
    }
}

impl AsyncRead for TerminalMaster {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let read = ready.try_io(|fd| {
                Ok(rustix::io::read(
                    fd.get_ref(),
                    buffer.initialize_unfilled(),
                )?)
            });
            // The other outcome means that there was nothing to read after all.
            if let Ok(read) = read {
                return Poll::Ready(read.map(|count| buffer.advance(count)));
            }
        }
    }
}
