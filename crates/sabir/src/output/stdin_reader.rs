//! Reads lines from the user and decides which of them answer a question.
//!
//! A thread reads the lines, so the task continues while nobody types and receives what is typed
//! meanwhile: such a line is queued as a message to the model (`/now WORDS` interrupts; the picture
//! of `/image FILE` goes with the next message), and a command such as `/compact` or `/mode NAME`
//! runs even while a question is open. Input that was typed, pasted or piped before a question
//! appeared does not answer it: at that moment a terminal's input queue is flushed, and lines
//! already read count as messages. Reading and that moment share one lock, so that no line can slip
//! between them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, isatty, tcflush};
use sabir_agent::{CommandQueue, MessageDelivery, UserCommand, UserMessage};
use sabir_call::Image;
use sabir_session::modes;
use sabir_session::pictures::{self, ImageSupport};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::output::print;

/// The maximum number of bytes drained from a pipe before a question (1 MiB). The limit keeps a
/// program that writes without end from blocking the question.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// The prefix of a message that interrupts the model.
const NOW_COMMAND: &str = "/now ";
/// The command that switches the mode.
const MODE_COMMAND: &str = "/mode";
/// The prefix of a command that attaches a picture.
const IMAGE_COMMAND: &str = "/image ";
/// The command that compacts the context.
const COMPACT_COMMAND: &str = "/compact";
/// The command that shows what fills the context.
const CONTEXT_COMMAND: &str = "/context";

/// The lines of standard input, read by a thread.
#[derive(Debug)]
pub(crate) struct StdinReader {
    buffer: Arc<Mutex<LineBuffer>>,
    answers: UnboundedReceiver<String>,
    commands: Option<CommandQueue>,
}

/// The state shared with the reading thread: the incomplete line, and the destination of lines.
#[derive(Debug)]
struct LineBuffer {
    /// The bytes of the incomplete line.
    bytes: Vec<u8>,
    /// True if the incomplete line was begun before the question appeared.
    begun_early: bool,
    /// The current meaning of a line that is not a command.
    line_target: LineTarget,
    /// The pictures that go with the next message.
    images: Vec<Image>,
    /// True if the user asked to leave at their next turn.
    wants_to_leave: bool,
    /// The channel for answers; `None` after the end of the input.
    answers: Option<UnboundedSender<String>>,
    commands: CommandQueue,
    context: LineContext,
}

/// The names and features that lines are checked against.
#[derive(Debug, Clone)]
pub(crate) struct LineContext {
    /// The names of the known modes.
    pub(crate) modes: Vec<String>,
    /// The model's support for pictures.
    pub(crate) image_support: ImageSupport,
}

/// Returns the text after `/mode` if the line is that command.
fn mode_argument(line: &str) -> Option<&str> {
    line.trim()
        .strip_prefix(MODE_COMMAND)
        .filter(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The meaning of a line that is not a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineTarget {
    /// A message to the model.
    Message,
    /// The answer to a question.
    Answer,
    /// The message that the idle session waits for.
    Turn,
}

/// Returns true if a line ends the task instead of saying something.
pub(crate) fn is_leave(line: &str) -> bool {
    matches!(line, "/quit" | "/exit")
}

/// Reads one line byte by byte, so that nothing after it is consumed. Returns an empty string at
/// the end of the input.
pub(crate) fn first_line() -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    loop {
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => bytes.push(byte[0]),
            Err(error) if may_go_on(error) => _ = wait_readable(None),
            Err(error) => return Err(error.into()),
        }
        if bytes.ends_with(b"\n") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl StdinReader {
    /// Starts the reading thread.
    pub(crate) fn new(known: LineContext) -> Self {
        let (answering, answers) = unbounded_channel();
        let commands = CommandQueue::default();
        let begun = Arc::new(Mutex::new(LineBuffer {
            bytes: Vec::new(),
            begun_early: false,
            line_target: LineTarget::Message,
            images: Vec::new(),
            wants_to_leave: false,
            answers: Some(answering),
            commands: commands.clone(),
            context: known,
        }));
        let reading = Arc::clone(&begun);
        std::thread::spawn(move || read_input(&reading));
        Self {
            buffer: begun,
            answers,
            commands: Some(commands),
        }
    }

    /// Takes the queue of messages and commands typed while no question is open. Returns `None` the
    /// second time.
    pub(crate) fn take_commands(&mut self) -> Option<CommandQueue> {
        self.commands.take()
    }

    /// Returns true if standard input is a terminal.
    pub(crate) fn is_terminal() -> bool {
        isatty(io::stdin())
    }

    /// Discards earlier input and makes the lines typed from now on answers. Calls `draw`, which
    /// shows the question, under the same lock.
    pub(crate) fn await_answer(&mut self, draw: impl FnOnce()) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Message;
        if Self::is_terminal() {
            // Fails only if the terminal is gone; then there is nothing to discard.
            _ = tcflush(io::stdin(), QueueSelector::IFlush);
        } else {
            let mut left = MAX_EARLY_BYTES;
            while left > 0 && is_ready() {
                let Some(count @ 1..) = begun.read_available() else {
                    break;
                };
                left = left.saturating_sub(count);
            }
        }
        begun.begun_early = !begun.bytes.is_empty();
        begun.line_target = LineTarget::Answer;
        draw();
    }

    /// Makes lines, including one that is begun already, answers to the idle session's wait.
    /// Returns false if the user asked to leave.
    pub(crate) fn await_words(&mut self) -> bool {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Turn;
        !begun.wants_to_leave
    }

    /// Makes the lines typed from now on messages again, including answers that nobody has
    /// received.
    pub(crate) fn stop_answering(&mut self) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Message;
        while let Ok(line) = self.answers.try_recv() {
            begun.take_line(&line);
        }
    }

    /// Returns the next answer, or `None` when there will be none. Cancel-safe: dropping the future
    /// loses nothing.
    pub(crate) async fn next_answer(&mut self) -> Option<String> {
        self.answers.recv().await
    }
}

impl LineBuffer {
    /// Reads the available bytes and passes on complete lines. Returns `None` if nothing can be
    /// read now, 0 at the end of the input.
    fn read_available(&mut self) -> Option<usize> {
        let mut buffer = [0; 4096];
        let count = match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(count) => count,
            Err(error) if may_go_on(error) => return None,
            Err(_) => 0,
        };
        for byte in buffer.iter().take(count) {
            match byte {
                b'\n' => self.end_line(),
                _ => self.bytes.push(*byte),
            }
        }
        // The last line may lack its line feed.
        if count == 0 && !self.bytes.is_empty() {
            self.end_line();
        }
        Some(count)
    }

    /// Passes the completed line on as an answer, or as a message or command.
    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        let early = std::mem::take(&mut self.begun_early);
        let line = text.trim();
        let command = is_command(line);
        // With pictures attached the line must be a message, since an answer cannot carry pictures.
        let shows = self.line_target == LineTarget::Turn
            && !self.images.is_empty()
            && !line.is_empty()
            && !is_leave(line);
        let answers = self.line_target != LineTarget::Message && !early && !command && !shows;
        match &self.answers {
            // Fails only when the task is over.
            Some(sender) if answers => _ = sender.send(text),
            _ => self.take_line(&text),
        }
    }

    /// Handles a line that is not an answer: queues its message or command.
    fn take_line(&mut self, line: &str) {
        let line = line.trim();
        let heard = match line {
            "" => return,
            COMPACT_COMMAND => UserCommand::Compact,
            CONTEXT_COMMAND => UserCommand::ShowContextUsage,
            _ if let Some(word) = mode_argument(line) => {
                match modes::resolve_mode_name(word, &self.context.modes) {
                    Ok(name) => UserCommand::SetMode(name),
                    Err(why) => {
                        return print::write_stderr(&print::sanitize_text(&format!(
                            "sabir: {why}\n"
                        )));
                    }
                }
            }
            _ if is_leave(line) => return self.wants_to_leave = true,
            _ => match self.line_command(line) {
                Some(heard) => heard,
                None => return,
            },
        };
        self.commands.push(heard);
    }

    /// Turns a line into a message with the attached pictures. Returns `None` if the message is not
    /// complete yet.
    fn line_command(&mut self, line: &str) -> Option<UserCommand> {
        let (text, at_once) = match (
            line.strip_prefix(NOW_COMMAND),
            line.strip_prefix(IMAGE_COMMAND),
        ) {
            (Some(words), _) => (words.trim().to_owned(), true),
            (None, Some(shown)) => (self.attach_image(shown)?, false),
            (None, None) => (line.to_owned(), false),
        };
        let delivery = if at_once {
            MessageDelivery::Interrupt
        } else {
            MessageDelivery::Queue
        };
        let message = UserMessage {
            text,
            images: std::mem::take(&mut self.images),
        };
        Some(UserCommand::Send { message, delivery })
    }

    /// Loads the picture of an `/image` command and returns the words after the file name; `None`
    /// if the picture waits for the next message or cannot be loaded.
    fn attach_image(&mut self, rest: &str) -> Option<String> {
        let (path, words) = split_file_name(rest);
        let shown = pictures::load_image(Path::new(path)).and_then(|image| {
            let all = self.images.iter().cloned().chain([image]).collect();
            self.context.image_support.check_images(all)
        });
        match shown {
            Ok(images) => self.images = images,
            Err(why) => {
                print::write_stderr(&print::sanitize_text(&format!("{why}; nothing was said\n")));
                return None;
            }
        }
        if words.is_empty() {
            print::write_stderr(&print::sanitize_text(&format!(
                "{path} goes with what you say next\n"
            )));
            return None;
        }
        Some(words.to_owned())
    }
}

/// Returns true for commands to Sabir that are carried out even while a question is open.
fn is_command(line: &str) -> bool {
    line == COMPACT_COMMAND
        || line == CONTEXT_COMMAND
        || line.starts_with(IMAGE_COMMAND)
        || mode_argument(line).is_some()
}

/// Splits an argument into a file name (in double quotes if it has blanks) and the words after it.
fn split_file_name(line: &str) -> (&str, &str) {
    let line = line.trim();
    let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (path, words) = quoted
        .or_else(|| line.split_once(char::is_whitespace))
        .unwrap_or((line, ""));
    (path, words.trim())
}

/// Reads input until its end; the body of the reading thread.
fn read_input(begun: &Mutex<LineBuffer>) {
    loop {
        wait_readable(None);
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // `await_answer` may have drained the input meanwhile. A blocking read would then hold the
        // lock.
        if is_ready() && begun.read_available() == Some(0) {
            begun.answers = None;
            return;
        }
    }
}

/// Returns true for errors after which reading may continue.
fn may_go_on(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)
}

/// Returns true if a read would return at once, even with the end of the input.
fn is_ready() -> bool {
    wait_readable(Some(&Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    }))
}

/// Waits until standard input is readable or the time is up (`None`: no limit). Returns true if it
/// is readable.
fn wait_readable(time: Option<&Timespec>) -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    // An error counts as not readable; callers try again.
    poll(&mut polled, time).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_before_the_words() {
        let check = |line: &str, path: &str, words: &str| {
            assert_eq!(split_file_name(line), (path, words), "{line}")
        };
        check("a.png", "a.png", "");
        check(" a.png  what is this? ", "a.png", "what is this?");
        check("\"my a.png\" and this?", "my a.png", "and this?");
        check("\"my a.png\"", "my a.png", "");
        check("\"a.png", "\"a.png", "");
    }

    #[test]
    fn commands_are_whole_lines() {
        for line in ["/compact", "/context", "/image a.png", "/image a b"] {
            assert!(is_command(line), "{line}");
        }
        for line in [
            "/compact it",
            "compact",
            "/image",
            "/now /compact",
            "/quit",
            "",
        ] {
            assert!(!is_command(line), "{line}");
        }
    }
}
