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
use sabir_agent::{Heard, Words};
use sabir_call::Image;
use sabir_session::modes;
use sabir_session::pictures::{self, Sight};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::print;

/// What is taken out of a pipe before a question; whoever writes without an end is answering.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// What is said at once instead of in its turn.
const NOW: &str = "/now ";
/// What switches to another mode.
const MODE: &str = "/mode";
/// What shows a picture.
const IMAGE: &str = "/image ";
/// What compacts the context, and what says what fills it.
const COMPACT: &str = "/compact";
const CONTEXT: &str = "/context";

/// The lines of standard input.
#[derive(Debug)]
pub(crate) struct Typed {
    begun: Arc<Mutex<Begun>>,
    answers: UnboundedReceiver<String>,
    words: Option<UnboundedReceiver<Heard>>,
}

/// A line that has not been typed to its end, and where lines go.
#[derive(Debug)]
struct Begun {
    bytes: Vec<u8>,
    /// Whether it was begun before the question.
    early: bool,
    /// Whether lines answer.
    asking: Asking,
    /// Pictures that go with what is said next.
    images: Vec<Image>,
    /// Whether the user wants to leave when it is his turn.
    leaves: bool,
    /// Lines that answer; none once there will be no more.
    answers: Option<UnboundedSender<String>>,
    words: UnboundedSender<Heard>,
    known: Known,
}

/// What a line may name.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The modes that there are.
    pub(crate) modes: Vec<String>,
    /// Whether the model can be shown pictures.
    pub(crate) sight: Sight,
}

/// The word behind `/mode`, if the line is one.
fn mode(line: &str) -> Option<&str> {
    line.trim().strip_prefix(MODE).filter(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// What a line is that is no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// Words.
    Nothing,
    /// The answer to a question.
    Answer,
    /// What the user says in his turn.
    Words,
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
    pub(crate) fn new(known: Known) -> Self {
        let ((answering, answers), (saying, words)) = (unbounded_channel(), unbounded_channel());
        let begun = Arc::new(Mutex::new(Begun {
            bytes: Vec::new(),
            early: false,
            asking: Asking::Nothing,
            images: Vec::new(),
            leaves: false,
            answers: Some(answering),
            words: saying,
            known,
        }));
        let reading = Arc::clone(&begun);
        std::thread::spawn(move || read_all(&reading));
        Self { begun, answers, words: Some(words) }
    }

    /// What is said while nothing is asked. There is one.
    pub(crate) fn words(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.words.take()
    }

    /// Whether somebody sits at a terminal.
    pub(crate) fn is_terminal() -> bool {
        isatty(io::stdin())
    }

    /// From here on what is typed answers. `draw` says so.
    pub(crate) fn await_answer(&mut self, draw: impl FnOnce()) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.asking = Asking::Nothing;
        if Self::is_terminal() {
            // A terminal that is gone has nothing to throw away.
            _ = tcflush(io::stdin(), QueueSelector::IFlush);
        } else {
            let mut left = MAX_EARLY_BYTES;
            while left > 0 && is_ready() {
                let Some(count @ 1..) = begun.read() else { break };
                left = left.saturating_sub(count);
            }
        }
        begun.early = !begun.bytes.is_empty();
        begun.asking = Asking::Answer;
        draw();
    }

    /// From here on what is typed answers, also where it was begun before. False: the user has said that he leaves.
    pub(crate) fn await_words(&mut self) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.asking = Asking::Words;
        !begun.leaves
    }

    /// From here on what is typed is words again.
    pub(crate) fn go_on(&mut self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.asking = Asking::Nothing;
        while let Ok(line) = self.answers.try_recv() {
            begun.say(&line);
        }
    }

    /// The next line that answers; `None`: there will be none. Dropping the future loses nothing.
    pub(crate) async fn answer(&mut self) -> Option<String> {
        self.answers.recv().await
    }
}

impl Begun {
    /// Reads what is there and hands on the lines that it ends. `None`: nothing can be read; 0: the end.
    fn read(&mut self) -> Option<usize> {
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
        let early = std::mem::take(&mut self.early);
        let line = text.trim();
        let command = is_command(line);
        // Words with pictures are said, since an answer has no room for them.
        let shows = self.asking == Asking::Words && !self.images.is_empty() && !line.is_empty() && !is_leave(line);
        let answers = self.asking != Asking::Nothing && !early && !command && !shows;
        match &self.answers {
            // Nobody listens once the task is over.
            Some(sender) if answers => _ = sender.send(text),
            _ => self.say(&text),
        }
    }

    fn say(&mut self, line: &str) {
        let line = line.trim();
        let heard = match line {
            "" => return,
            COMPACT => Heard::Compact,
            CONTEXT => Heard::Filling,
            _ if let Some(word) = mode(line) => match modes::named(word, &self.known.modes) {
                Ok(name) => Heard::Moded(name),
                Err(why) => return print::err(&print::visible(&format!("sabir: {why}\n"))),
            },
            _ if is_leave(line) => return self.leaves = true,
            _ => match self.words(line) {
                Some(heard) => heard,
                None => return,
            },
        };
        _ = self.words.send(heard);
    }

    /// What a line says, with the pictures that were shown for it; `None`: nothing yet.
    fn words(&mut self, line: &str) -> Option<Heard> {
        let (text, at_once) = match (line.strip_prefix(NOW), line.strip_prefix(IMAGE)) {
            (Some(words), _) => (words.trim().to_owned(), true),
            (None, Some(shown)) => (self.show(shown)?, false),
            (None, None) => (line.to_owned(), false),
        };
        Some(match (std::mem::take(&mut self.images), at_once) {
            (images, false) if images.is_empty() => Heard::Said(text),
            (images, true) if images.is_empty() => Heard::Steered(text),
            (images, at_once) => Heard::Showed { words: Words { text, images }, at_once },
        })
    }

    /// Takes up the picture of a file, and gives back the words behind it; `None`: it waits for the words that come next.
    fn show(&mut self, rest: &str) -> Option<String> {
        let (path, words) = named(rest);
        let shown = pictures::load(Path::new(path)).and_then(|image| {
            let all = self.images.iter().cloned().chain([image]).collect();
            self.known.sight.shown(all)
        });
        match shown {
            Ok(images) => self.images = images,
            Err(why) => {
                print::err(&print::visible(&format!("{why}; nothing was said\n")));
                return None;
            }
        }
        if words.is_empty() {
            print::err(&print::visible(&format!("{path} goes with what you say next\n")));
            return None;
        }
        Some(words.to_owned())
    }
}

/// Whether a line is for Sabir, whatever is asked.
fn is_command(line: &str) -> bool {
    line == COMPACT || line == CONTEXT || line.starts_with(IMAGE) || mode(line).is_some()
}

/// The file that a line names, in double quotes where it has blanks, and the words behind it.
fn named(line: &str) -> (&str, &str) {
    let line = line.trim();
    let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (path, words) = quoted.or_else(|| line.split_once(char::is_whitespace)).unwrap_or((line, ""));
    (path, words.trim())
}

/// The thread that reads.
fn read_all(begun: &Mutex<Begun>) {
    loop {
        wait(None);
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have emptied it meanwhile, and must not wait for a read that has nothing to read.
        if is_ready() && begun.read() == Some(0) {
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
    wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

fn wait(time: Option<&Timespec>) -> bool {
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
        let check = |line: &str, path: &str, words: &str| assert_eq!(named(line), (path, words), "{line}");
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
