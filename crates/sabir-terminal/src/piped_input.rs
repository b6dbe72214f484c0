//! Reads what is piped into a headless task: `cat FILE | sabir run "explain"`, and `sabir run -`.
//!
//! Many programs start others with a pipe that nobody writes to and nobody closes, so a pipe is
//! read only if data arrives within a short time. With a `-` among the words, it is always read.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::print;

/// The maximum number of bytes that are read (4 MiB), since more fits into no context window.
const MAX_BYTES: usize = 4 << 20;
/// The wait for the first byte of a pipe, in seconds: a shell starts all parts of a pipeline at once.
const PIPE_SECONDS: i64 = 3;
/// The wait for the first byte of a socket, which no shell makes.
const SOCKET_SECONDS: i64 = 1;

/// The reason why standard input cannot be a part of the task.
#[derive(Debug, thiserror::Error)]
pub enum PipedInputError {
    /// It cannot be read.
    #[error("standard input cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too long for any model.
    #[error("standard input has more than 4 MiB: write it into a file, and name that in the task")]
    TooLong,
    /// It is not text.
    #[error("standard input is not UTF-8 text: write it into a file, and name that in the task")]
    NotText,
}

/// Returns the task that these words and standard input describe.
///
/// # Errors
/// When standard input cannot be read, or is not text of a usable length.
pub fn read_task(words: &[String], input: &impl AsFd) -> Result<String, PipedInputError> {
    let is_dash = |word: &&String| word.as_str() == "-";
    let insists = words.iter().any(|word| is_dash(&word));
    let said: Vec<_> = words
        .iter()
        .filter(|word| !is_dash(word))
        .cloned()
        .collect();
    let said = said.join(" ");
    let piped = if insists || has_piped_input(input)? {
        read_text(input)?
    } else {
        String::new()
    };
    Ok(match (said.trim().is_empty(), piped.trim().is_empty()) {
        (_, true) => said,
        (true, false) => piped,
        // The words come first, so that a long text does not hide them.
        (false, false) => format!(
            "{said}\n\n<stdin>\n{}\n</stdin>",
            piped.trim_end_matches('\n')
        ),
    })
}

/// Reports whether standard input is a file, or a pipe with something in it.
fn has_piped_input(input: &impl AsFd) -> io::Result<bool> {
    // A closed descriptor offers nothing.
    let Ok(found) = fstat(input) else {
        return Ok(false);
    };
    let seconds = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(true),
        FileType::Fifo => PIPE_SECONDS,
        FileType::Socket => SOCKET_SECONDS,
        // A terminal or /dev/null.
        _ => return Ok(false),
    };
    let is_ready = wait_for_input(input, seconds)?;
    if !is_ready {
        print::write_stderr(
            "sabir: standard input is a pipe that stays empty: going on without it; `-` among the words waits for it\n",
        );
    }
    Ok(is_ready)
}

/// Waits until a read would return, at most this long.
fn wait_for_input(input: &impl AsFd, seconds: i64) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    loop {
        let mut polled = [PollFd::new(input, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the input to its end.
fn read_text(input: &impl AsFd) -> Result<String, PipedInputError> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match rustix::io::read(input, &mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => _ = wait_for_input(input, PIPE_SECONDS)?,
            Err(error) => return Err(io::Error::from(error).into()),
        }
        if bytes.len() > MAX_BYTES {
            return Err(PipedInputError::TooLong);
        }
    }
    String::from_utf8(bytes).map_err(|_| PipedInputError::NotText)
}
