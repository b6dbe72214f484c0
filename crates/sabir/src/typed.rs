//! What the user types: lines, and which of them may answer a question.
//!
//! Lines are read by a thread of their own, so that a task goes on while nobody types. What was typed, pasted or piped before a
//! question stood there does not answer it: at that moment a terminal's queue is thrown away, and lines that have been read are set
//! aside. Reading and that moment exclude one another, so that no line can slip between them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, isatty, tcflush};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What is taken out of a pipe before a question; whoever writes without an end is answering.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// The lines of standard input.
#[derive(Debug)]
pub(crate) struct Typed {
    begun: Arc<Mutex<Begun>>,
    lines: UnboundedReceiver<Line>,
    early: VecDeque<String>,
}

/// A line that has not been typed to its end.
#[derive(Debug, Default)]
struct Begun {
    bytes: Vec<u8>,
    /// Whether it was begun before the question.
    early: bool,
}

#[derive(Debug)]
struct Line {
    text: String,
    early: bool,
}

/// Reads one line and nothing behind it; empty at the end of the input.
pub(crate) fn first_line() -> io::Result<String> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    loop {
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => bytes.push(byte[0]),
            Err(error) if may_go_on(error) => _ = wait(None),
            Err(error) => return Err(error.into()),
        }
        if bytes.ends_with(b"\n") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Typed {
    pub(crate) fn new() -> Self {
        let (sender, lines) = unbounded_channel();
        let begun = Arc::new(Mutex::new(Begun::default()));
        let reading = Arc::clone(&begun);
        std::thread::spawn(move || read_all(&reading, &sender));
        Self { begun, lines, early: VecDeque::new() }
    }

    /// Whether somebody sits at a terminal.
    pub(crate) fn is_terminal() -> bool {
        isatty(io::stdin())
    }

    /// From here on what is typed answers. `draw` says so.
    pub(crate) fn await_answer(&mut self, draw: impl FnOnce()) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(line) = self.lines.try_recv() {
            self.early.push_back(line.text);
        }
        if Self::is_terminal() {
            // A terminal that is gone has nothing to throw away.
            _ = tcflush(io::stdin(), QueueSelector::IFlush);
        } else {
            let mut left = MAX_EARLY_BYTES;
            while left > 0 && is_ready() {
                let Some(count @ 1..) = begun.read(|line| self.early.push_back(line.text)) else { break };
                left = left.saturating_sub(count);
            }
        }
        begun.early = !begun.bytes.is_empty();
        draw();
    }

    /// A line that was typed before it was asked for.
    pub(crate) fn early(&mut self) -> Option<String> {
        while let Ok(line) = self.lines.try_recv() {
            self.early.push_back(line.text);
        }
        self.early.pop_front()
    }

    /// The next line, whenever it was begun; `None`: there will be none.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await.map(|line| line.text)
    }

    /// The next line that answers; `None`: there will be none.
    pub(crate) async fn answer(&mut self) -> Option<String> {
        loop {
            match self.lines.recv().await? {
                Line { text, early: true } => self.early.push_back(text),
                Line { text, .. } => return Some(text),
            }
        }
    }
}

impl Begun {
    /// Reads what is there and hands over the lines that it ends. `None`: nothing can be read; 0: the end.
    fn read(&mut self, mut hand: impl FnMut(Line)) -> Option<usize> {
        let mut buffer = [0; 4096];
        let count = match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(count) => count,
            Err(error) if may_go_on(error) => return None,
            Err(_) => 0,
        };
        for byte in buffer.iter().take(count) {
            if *byte != b'\n' {
                self.bytes.push(*byte);
                continue;
            }
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
            hand(Line { text, early: std::mem::take(&mut self.early) });
        }
        if count == 0 && !self.bytes.is_empty() {
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
            hand(Line { text, early: std::mem::take(&mut self.early) });
        }
        Some(count)
    }
}

/// The thread that reads.
fn read_all(begun: &Mutex<Begun>, sender: &UnboundedSender<Line>) {
    loop {
        wait(None);
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have emptied it meanwhile, and must not wait for a read that has nothing to read.
        if !is_ready() {
            continue;
        }
        let mut open = true;
        let read = begun.read(|line| open &= sender.send(line).is_ok());
        if read == Some(0) || !open {
            return;
        }
    }
}

fn may_go_on(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)
}

/// Whether a read would return at once, be it with the end.
fn is_ready() -> bool {
    wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

fn wait(time: Option<&Timespec>) -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    // What cannot be waited for is read, and then fails.
    poll(&mut polled, time).is_ok_and(|count| count > 0)
}
