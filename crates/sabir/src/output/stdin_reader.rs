//! What the user types: lines, and which of them may answer a question.
//!
//! Lines are read by a thread of their own, so that a task goes on while nobody types, and hears what is typed meanwhile: such a
//! line is said to the model (`/now WORDS` at once; pictures of `/image FILE` go with the next words), and a command such as `/compact`
//! or `/mode NAME` is carried out whatever is asked. What was typed, pasted or piped before a question stood there does not answer
//! it: at that moment a terminal's queue is thrown away, and lines that have been read are words. Reading and that moment exclude
//! one another, so that no line can slip between them.

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

/// What is taken out of a pipe before a question; whoever writes without an end is answering.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// What is said at once instead of in its turn.
const NOW_COMMAND: &str = "/now ";
/// What switches to another mode.
const MODE_COMMAND: &str = "/mode";
/// What shows a picture.
const IMAGE_COMMAND: &str = "/image ";
/// What compacts the context, and what says what fills it.
const COMPACT_COMMAND: &str = "/compact";
const CONTEXT_COMMAND: &str = "/context";

/// The lines of standard input.
#[derive(Debug)]
pub(crate) struct StdinReader {
    buffer: Arc<Mutex<LineBuffer>>,
    answers: UnboundedReceiver<String>,
    commands: Option<CommandQueue>,
}

/// A line that has not been typed to its end, and where lines go.
#[derive(Debug)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// Whether it was begun before the question.
    begun_early: bool,
    /// Whether lines answer.
    line_target: LineTarget,
    /// Pictures that go with what is said next.
    images: Vec<Image>,
    /// Whether the user wants to leave when it is his turn.
    wants_to_leave: bool,
    /// Lines that answer; none once there will be no more.
    answers: Option<UnboundedSender<String>>,
    commands: CommandQueue,
    context: LineContext,
}

/// What a line may name.
#[derive(Debug, Clone)]
pub(crate) struct LineContext {
    /// The modes that there are.
    pub(crate) modes: Vec<String>,
    /// Whether the model can be shown pictures.
    pub(crate) image_support: ImageSupport,
}

/// The word behind `/mode`, if the line is one.
fn mode_argument(line: &str) -> Option<&str> {
    line.trim().strip_prefix(MODE_COMMAND).filter(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// What a line is that is no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineTarget {
    /// Words.
    Message,
    /// The answer to a question.
    Answer,
    /// What the user says in his turn.
    Turn,
}

/// Whether a line ends the task instead of saying something.
pub(crate) fn is_leave(line: &str) -> bool {
    matches!(line, "/quit" | "/exit")
}

/// Reads one line and nothing behind it; empty at the end of the input.
pub(crate) fn first_line() -> io::Result<String> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
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
        Self { buffer: begun, answers, commands: Some(commands) }
    }

    /// What is said while nothing is asked. There is one.
    pub(crate) fn take_commands(&mut self) -> Option<CommandQueue> {
        self.commands.take()
    }

    /// Whether somebody sits at a terminal.
    pub(crate) fn is_terminal() -> bool {
        isatty(io::stdin())
    }

    /// From here on what is typed answers. `draw` says so.
    pub(crate) fn await_answer(&mut self, draw: impl FnOnce()) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Message;
        if Self::is_terminal() {
            // A terminal that is gone has nothing to throw away.
            _ = tcflush(io::stdin(), QueueSelector::IFlush);
        } else {
            let mut left = MAX_EARLY_BYTES;
            while left > 0 && is_ready() {
                let Some(count @ 1..) = begun.read_available() else { break };
                left = left.saturating_sub(count);
            }
        }
        begun.begun_early = !begun.bytes.is_empty();
        begun.line_target = LineTarget::Answer;
        draw();
    }

    /// From here on what is typed answers, also where it was begun before. False: the user has said that he leaves.
    pub(crate) fn await_words(&mut self) -> bool {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Turn;
        !begun.wants_to_leave
    }

    /// From here on what is typed is words again.
    pub(crate) fn stop_answering(&mut self) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Message;
        while let Ok(line) = self.answers.try_recv() {
            begun.take_line(&line);
        }
    }

    /// The next line that answers; `None`: there will be none. Dropping the future loses nothing.
    pub(crate) async fn next_answer(&mut self) -> Option<String> {
        self.answers.recv().await
    }
}

impl LineBuffer {
    /// Reads what is there and hands on the lines that it ends. `None`: nothing can be read; 0: the end.
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
        if count == 0 && !self.bytes.is_empty() {
            self.end_line();
        }
        Some(count)
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        let early = std::mem::take(&mut self.begun_early);
        let line = text.trim();
        let command = is_command(line);
        // Words with pictures are said, since an answer has no room for them.
        let shows =
            self.line_target == LineTarget::Turn && !self.images.is_empty() && !line.is_empty() && !is_leave(line);
        let answers = self.line_target != LineTarget::Message && !early && !command && !shows;
        match &self.answers {
            // Nobody listens once the task is over.
            Some(sender) if answers => _ = sender.send(text),
            _ => self.take_line(&text),
        }
    }

    fn take_line(&mut self, line: &str) {
        let line = line.trim();
        let heard = match line {
            "" => return,
            COMPACT_COMMAND => UserCommand::Compact,
            CONTEXT_COMMAND => UserCommand::ShowContextUsage,
            _ if let Some(word) = mode_argument(line) => match modes::resolve_mode_name(word, &self.context.modes) {
                Ok(name) => UserCommand::SetMode(name),
                Err(why) => return print::write_stderr(&print::sanitize_text(&format!("sabir: {why}\n"))),
            },
            _ if is_leave(line) => return self.wants_to_leave = true,
            _ => match self.line_command(line) {
                Some(heard) => heard,
                None => return,
            },
        };
        self.commands.push(heard);
    }

    /// What a line says, with the pictures that were shown for it; `None`: nothing yet.
    fn line_command(&mut self, line: &str) -> Option<UserCommand> {
        let (text, at_once) = match (line.strip_prefix(NOW_COMMAND), line.strip_prefix(IMAGE_COMMAND)) {
            (Some(words), _) => (words.trim().to_owned(), true),
            (None, Some(shown)) => (self.attach_image(shown)?, false),
            (None, None) => (line.to_owned(), false),
        };
        let delivery = if at_once { MessageDelivery::Interrupt } else { MessageDelivery::Queue };
        let message = UserMessage { text, images: std::mem::take(&mut self.images) };
        Some(UserCommand::Send { message, delivery })
    }

    /// Takes up the picture of a file, and gives back the words behind it; `None`: it waits for the words that come next.
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
            print::write_stderr(&print::sanitize_text(&format!("{path} goes with what you say next\n")));
            return None;
        }
        Some(words.to_owned())
    }
}

/// Whether a line is for Sabir, whatever is asked.
fn is_command(line: &str) -> bool {
    line == COMPACT_COMMAND
        || line == CONTEXT_COMMAND
        || line.starts_with(IMAGE_COMMAND)
        || mode_argument(line).is_some()
}

/// The file that a line names, in double quotes where it has blanks, and the words behind it.
fn split_file_name(line: &str) -> (&str, &str) {
    let line = line.trim();
    let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (path, words) = quoted.or_else(|| line.split_once(char::is_whitespace)).unwrap_or((line, ""));
    (path, words.trim())
}

/// The thread that reads.
fn read_input(begun: &Mutex<LineBuffer>) {
    loop {
        wait_readable(None);
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have emptied it meanwhile, and must not wait for a read that has nothing to read.
        if is_ready() && begun.read_available() == Some(0) {
            begun.answers = None;
            return;
        }
    }
}

fn may_go_on(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)
}

/// Whether a read would return at once, be it with the end.
fn is_ready() -> bool {
    wait_readable(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

fn wait_readable(time: Option<&Timespec>) -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    // What cannot be waited for is read, and then fails.
    poll(&mut polled, time).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_before_the_words() {
        let check = |line: &str, path: &str, words: &str| assert_eq!(split_file_name(line), (path, words), "{line}");
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
        for line in ["/compact it", "compact", "/image", "/now /compact", "/quit", ""] {
            assert!(!is_command(line), "{line}");
        }
    }
}
