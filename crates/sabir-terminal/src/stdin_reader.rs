//! Reads lines from the user and decides which of them answer a question.
//!
//! A thread reads the lines, so the task continues while nobody types and receives what is typed
//! meanwhile: such a line is queued as a message to the model (`/now WORDS` interrupts; the picture
//! of `/image FILE` goes with the next message), and a command such as `/compact` or `/mode NAME`
//! runs even while a question is open. Input that was typed, pasted or piped before a question
//! appeared does not answer it: at that moment a terminal's input queue is flushed, and lines
//! already read count as messages. Reading and that moment share one lock, so that no line can slip
//! between them.
//!
//! At a terminal that is not dumb, the lines come from a [`LineEditor`], in raw mode: a paste of
//! any size and number of lines is one message, and a draft that was begun before a question is set
//! aside until the question is closed. A pipe, a file and a dumb terminal have plain lines.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{QueueSelector, isatty, tcflush};
use sabir_session::agent::{CommandQueue, MessageDelivery, UserCommand, UserMessage};
use sabir_session::call::Image;
use sabir_session::custom_commands::CustomCommands;
use sabir_session::draft_store::DraftStore;
use sabir_session::images::{self, CurrentImageSupport};
use sabir_session::input_history::InputHistory;
use sabir_session::{Environment, InterfaceChoice, modes};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::line_editor::{EditorEvent, InputAfterRead, LineEditor};
use crate::print;
use crate::screen::{self, ExitBySignal, InterruptKey};
use crate::slash_commands::{
    SAY_COMMAND, is_builtin_command, is_quit_word, local_reply, login_command,
};

/// The maximum number of bytes drained from a pipe before a question (1 MiB). The limit keeps a
/// program that writes without end from blocking the question.
const MAX_EARLY_BYTES: usize = 1 << 20;

/// The time in which more input must come for a line break to count as pasted: 5 ms, in nanoseconds. No person types that fast.
const BURST_NANOSECONDS: i64 = 5_000_000;

/// The pause after a failure of `poll`, as when the kernel lacks memory. The input is still there, so the reader polls again, but not in a
/// busy loop.
const POLL_RETRY_PAUSE: Duration = Duration::from_millis(100);

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

/// The lines of an input, usually standard input, read by a thread.
#[derive(Debug)]
pub struct StdinReader {
    input: Arc<Input>,
    buffer: Arc<Mutex<LineBuffer>>,
    answers: UnboundedReceiver<TypedLine>,
    commands: Option<CommandQueue>,
}

/// A line that was typed while the user is asked something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypedLine {
    /// It answers the question.
    Answer(UserMessage),
    /// A line for Sabir: show the text and keep the question open.
    Local(String),
}

/// A readable file: a terminal, a pipe or a file.
struct Input(Box<dyn AsFd + Send + Sync>);

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
    answers: Option<UnboundedSender<TypedLine>>,
    commands: CommandQueue,
    context: LineContext,
    /// The editor of lines, at a terminal that can edit.
    editor: Option<LineEditor>,
    /// The draft from before the open question.
    set_aside: String,
}

/// The byte of Ctrl-C in raw mode.
const INTERRUPT_KEY: u8 = 3;

/// The setup of the line editor: the history, the drafts of ended sessions, and the handler for a
/// signal that ends the process.
#[derive(Debug, Clone)]
pub struct LineEditorSettings {
    history: InputHistory,
    drafts: DraftStore,
    exit: ExitBySignal,
}

impl LineEditorSettings {
    /// Returns the editing of lines in this environment; `None` where the input or standard error is not a terminal, or a dumb one
    /// (`$TERM`), and for screen readers, which read everything again that is drawn again. `exit` ends the process by a signal.
    pub fn for_terminal(
        environment: &Environment,
        choice: InterfaceChoice,
        exit: ExitBySignal,
    ) -> Option<Self> {
        let kind = environment.variable("TERM");
        let can_edit = kind.is_some_and(|kind| !matches!(kind, "" | "dumb" | "unknown"));
        let is_terminal = isatty(io::stdin()) && isatty(io::stderr());
        let is_wanted = choice != InterfaceChoice::ScreenReader;
        (can_edit && is_terminal && is_wanted).then(|| Self {
            history: InputHistory::in_environment(environment),
            drafts: DraftStore::in_environment(environment),
            exit,
        })
    }

    /// Returns an editor, with the terminal in raw mode; `None` if that fails.
    fn begin(&self) -> Option<LineEditor> {
        screen::begin_editing(InterruptKey::Byte, self.exit).ok()?;
        Some(LineEditor::new(self.history.load()))
    }
}

/// The names and features that lines are checked against.
#[derive(Debug, Clone)]
pub struct LineContext {
    /// The names of the known modes.
    pub modes: Vec<String>,
    /// The support for pictures of the model that the task asks, which follows its mode.
    pub image_support: CurrentImageSupport,
    /// The editing of lines, where the user has a terminal for it.
    pub editing: Option<LineEditorSettings>,
    /// The commands that the folder and the user define.
    pub custom_commands: CustomCommands,
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
    Answer {
        /// True if pictures can be a part of the answer.
        takes_images: bool,
    },
    /// The message that the idle session waits for.
    Turn,
}

/// Returns true if a line ends the task instead of saying something.
pub fn is_quit_command(line: &str) -> bool {
    matches!(line, "/quit" | "/exit")
}

/// Asks for the first message of a task until there is one. Returns `None` if there is none, or the
/// user leaves. A line that begins with one of the `custom` commands is returned as it is.
///
/// # Errors
/// When the input cannot be read.
pub fn read_first_message(
    input: &impl AsFd,
    editing: Option<&LineEditorSettings>,
    custom: &CustomCommands,
) -> io::Result<Option<String>> {
    let mut editor = editing.and_then(LineEditorSettings::begin);
    if let Some(editor) = &mut editor
        && let Some(editing) = editing
    {
        editor.prepend_text(&editing.drafts.take());
    }
    let message = read_message(input, &mut editor, custom);
    if let Some(editing) = editing {
        if let Ok(Some(message)) = &message {
            editing.history.append(message);
            // Nobody reads until the session has begun, and what is typed meanwhile waits.
            _ = screen::begin_editing(InterruptKey::Signal, editing.exit);
        } else {
            screen::restore();
        }
    }
    message
}

fn read_message(
    input: &impl AsFd,
    editor: &mut Option<LineEditor>,
    custom: &CustomCommands,
) -> io::Result<Option<String>> {
    loop {
        print::write_prompt("> ");
        if let Some(editor) = editor
            && !editor.text().is_empty()
        {
            screen::show_draft(editor.text(), editor.cursor());
        }
        let typed = match editor {
            Some(editor) => edit_first_line(input, editor)?,
            None => Some(read_first_line(input)?).filter(|line| !line.is_empty()),
        };
        let Some(typed) = typed else {
            return Ok(None);
        };
        if typed.trim().contains('\n') {
            return Ok(Some(typed));
        }
        let line = typed.trim();
        // Enter alone is a slip, not a wish to leave.
        if line.is_empty() {
            continue;
        }
        if is_quit_command(line) || is_quit_word(line) {
            return Ok(None);
        }
        if let Some(reply) = local_reply(line, custom) {
            print::write_stderr(&print::sanitize_text(&reply));
            continue;
        }
        if is_command(line) || line.starts_with(NOW_COMMAND) {
            print::write_stderr(&print::sanitize_text(&format!(
                "`{line}` works once the task has begun: say first what to do\n"
            )));
            continue;
        }
        return Ok(Some(match line.strip_prefix(SAY_COMMAND).map(str::trim) {
            // The blank keeps it from being taken for the command.
            Some(words) if custom.is_command_line(words) => format!(" {words}"),
            Some(words) => words.to_owned(),
            None => line.to_owned(),
        }));
    }
}

/// Asks a user at a terminal for a yes; without a terminal the answer is no.
///
/// # Errors
/// When standard input cannot be read.
pub fn confirm(prompt: &str) -> io::Result<bool> {
    if !isatty(io::stdin()) || !isatty(io::stderr()) {
        return Ok(false);
    }
    print::write_stderr(prompt);
    let line = read_first_line(&io::stdin())?.trim().to_lowercase();
    Ok(matches!(line.as_str(), "y" | "yes"))
}

/// Reads until a message is complete. Returns `None` at the end of the input, and if the user leaves.
fn edit_first_line(input: &impl AsFd, editor: &mut LineEditor) -> io::Result<Option<String>> {
    loop {
        let read = match read_keys(input, editor) {
            Ok(read) => read,
            Err(error) if may_continue_reading(error) => {
                wait_for_input(input);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // Nothing follows a complete message: more input would have made it a paste.
        for event in read.events {
            match event {
                EditorEvent::Submitted(text) => return Ok(Some(text)),
                // Nothing runs yet that could be interrupted.
                EditorEvent::Interrupted | EditorEvent::Ended => return Ok(None),
                EditorEvent::EarlyPaste(text) => editor.prepend_text(&text),
            }
        }
        if read.is_over {
            return Ok(Some(editor.take_draft()).filter(|draft| !draft.is_empty()));
        }
    }
}

/// Asks for a line that the terminal does not show, such as a key. Returns `None` if the user leaves. `exit` ends the process by a
/// signal, after the terminal was restored.
///
/// # Errors
/// When the input cannot be read.
pub(crate) fn read_hidden_line(
    prompt: &str,
    input: &impl AsFd,
    exit: ExitBySignal,
) -> io::Result<Option<String>> {
    screen::begin_editing(InterruptKey::Byte, exit)?;
    // Printed only now: input may follow as soon as the prompt is visible, and would be echoed
    // before.
    print::write_stderr(prompt);
    let line = edit_hidden_line(input, exit);
    screen::restore();
    line
}

fn edit_hidden_line(input: &impl AsFd, exit: ExitBySignal) -> io::Result<Option<String>> {
    let mut editor = LineEditor::new(Vec::new());
    loop {
        let read = match feed_keys(input, &mut editor) {
            Ok(read) => read,
            Err(error) if may_continue_reading(error) => {
                wait_for_input(input);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // A draft that nobody sees is not cleared first.
        if read.has_interrupt {
            print::write_stderr("\n");
            screen::restore();
            exit(Signal::INT.as_raw());
            return Ok(None);
        }
        for event in read.events {
            match event {
                EditorEvent::Submitted(text) => return Ok(Some(text)),
                EditorEvent::Interrupted | EditorEvent::Ended => return Ok(None),
                EditorEvent::EarlyPaste(text) => editor.prepend_text(&text),
            }
        }
        // A line that was typed before raw mode, or pasted with its end.
        if editor.text().contains('\n') {
            return Ok(Some(editor.take_draft()));
        }
        if read.is_over {
            return Ok(None);
        }
    }
}

/// The result of reading keys into an editor.
struct KeysRead {
    events: Vec<EditorEvent>,
    /// True at the end of the input.
    is_over: bool,
    /// True if more can be read at once.
    is_more: bool,
    /// True if the key of Ctrl-C was among them.
    has_interrupt: bool,
}

/// Reads what is available into an editor, and shows the draft.
fn read_keys(input: &impl AsFd, editor: &mut LineEditor) -> Result<KeysRead, Errno> {
    let read = feed_keys(input, editor)?;
    for event in &read.events {
        if let EditorEvent::Submitted(text) = event {
            screen::commit_draft(text);
        }
    }
    // A long paste is drawn once, when all of it is there.
    if !read.is_more {
        screen::show_draft(editor.text(), editor.cursor());
    }
    Ok(read)
}

/// Reads what is available into an editor.
fn feed_keys(input: &impl AsFd, editor: &mut LineEditor) -> Result<KeysRead, Errno> {
    let mut buffer = [0; 16 << 10];
    let count = rustix::io::read(input, &mut buffer)?;
    let bytes = buffer.get(..count).unwrap_or_default();
    let burst = Timespec {
        tv_sec: 0,
        tv_nsec: BURST_NANOSECONDS,
    };
    let is_more = count > 0 && poll_input(input, Some(&burst)).unwrap_or(false);
    let following = if is_more {
        InputAfterRead::More
    } else {
        InputAfterRead::Nothing
    };
    Ok(KeysRead {
        events: editor.feed(bytes, following),
        is_over: count == 0,
        is_more,
        has_interrupt: bytes.contains(&INTERRUPT_KEY),
    })
}

/// Sends this process the signal of Ctrl-C, which raw mode has made a key.
fn interrupt_process() {
    _ = kill_process(getpid(), Signal::INT);
}

/// Reads one line byte by byte, so that nothing after it is consumed. Returns an empty string at
/// the end of the input.
///
/// # Errors
/// When the input cannot be read.
pub fn read_first_line(input: &impl AsFd) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    loop {
        match rustix::io::read(input, &mut byte) {
            Ok(0) => break,
            // One byte at a time is slow but exact: what follows the line belongs to the reader
            // that starts after it.
            Ok(_) => bytes.push(byte[0]),
            Err(error) if may_continue_reading(error) => wait_for_input(input),
            Err(error) => return Err(error.into()),
        }
        if bytes.ends_with(b"\n") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl StdinReader {
    /// Starts the thread that reads `input`, which should not be read by anything else.
    pub fn new(input: impl AsFd + Send + Sync + 'static, known: LineContext) -> Self {
        let input = Arc::new(Input(Box::new(input)));
        let (answering, answers) = unbounded_channel();
        let commands = CommandQueue::default();
        let editor = known.editing.as_ref().and_then(LineEditorSettings::begin);
        if editor.is_some() {
            screen::leave_signals_to_session();
        }
        let begun = Arc::new(Mutex::new(LineBuffer {
            bytes: Vec::new(),
            begun_early: false,
            line_target: LineTarget::Message,
            images: Vec::new(),
            wants_to_leave: false,
            answers: Some(answering),
            commands: commands.clone(),
            context: known,
            editor,
            set_aside: String::new(),
        }));
        let reading = Arc::clone(&begun);
        let source = Arc::clone(&input);
        std::thread::spawn(move || read_input(&source, &reading));
        Self {
            input,
            buffer: begun,
            answers,
            commands: Some(commands),
        }
    }

    /// Takes the queue of messages and commands typed while no question is open. Returns `None` the
    /// second time.
    pub fn take_commands(&mut self) -> Option<CommandQueue> {
        self.commands.take()
    }

    /// Returns true if the input is a terminal.
    pub fn is_terminal(&self) -> bool {
        isatty(&*self.input)
    }

    /// Discards earlier input and makes the lines typed from now on answers. Calls `draw`, which
    /// shows the question, under the same lock. `takes_images` says whether pictures can be a part
    /// of the answer; otherwise they go with the next message.
    pub fn accept_answers(&mut self, takes_images: bool, draw: impl FnOnce()) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        // Lines that are drained below were written before the question, so they are messages.
        begun.line_target = LineTarget::Message;
        if begun.editor.is_some() {
            begun.read_early(&*self.input);
            begun.set_draft_aside();
        } else if self.is_terminal() {
            // Fails only if the terminal is gone; then there is nothing to discard.
            _ = tcflush(&*self.input, QueueSelector::IFlush);
        } else {
            begun.read_early(&*self.input);
        }
        // The buffer may hold the beginning of a line that was typed before; completing it must not
        // make it an answer.
        begun.begun_early = !begun.bytes.is_empty();
        begun.line_target = LineTarget::Answer { takes_images };
        draw();
    }

    /// Makes lines, including one that is begun already, answers to the idle session's wait.
    /// Returns false if the user asked to leave.
    pub fn accept_next_message(&mut self) -> bool {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Turn;
        begun.show_draft();
        !begun.wants_to_leave
    }

    /// Makes the lines typed from now on messages again, including answers that nobody has
    /// received.
    pub fn stop_answering(&mut self) {
        let mut begun = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        begun.line_target = LineTarget::Message;
        while let Ok(line) = self.answers.try_recv() {
            match line {
                TypedLine::Answer(answer) => {
                    begun.images.extend(answer.images);
                    match answer.text.trim().contains('\n') {
                        true => begun.end_long_text(answer.text, false),
                        false => begun.handle_line(&answer.text, true),
                    }
                }
                TypedLine::Local(text) => print::write_stderr(&print::sanitize_text(&text)),
            }
        }
        let earlier = std::mem::take(&mut begun.set_aside);
        if let Some(editor) = &mut begun.editor {
            editor.prepend_text(&earlier);
        }
        begun.show_draft();
    }

    /// Returns the next answer, or `None` when there will be none. Cancel-safe: dropping the future
    /// loses nothing.
    pub async fn next_answer(&mut self) -> Option<TypedLine> {
        self.answers.recv().await
    }
}

impl Drop for StdinReader {
    fn drop(&mut self) {
        screen::restore();
    }
}

impl LineBuffer {
    /// Reads the available bytes and passes on complete lines. Returns `None` if nothing can be
    /// read now, 0 at the end of the input.
    fn read_available(&mut self, input: &impl AsFd) -> Option<usize> {
        if let Some(editor) = &mut self.editor {
            return match read_keys(input, editor) {
                Ok(read) => Some(self.handle_events(read)),
                Err(error) if may_continue_reading(error) => None,
                Err(_) => Some(0),
            };
        }
        let mut buffer = [0; 4096];
        let count = match rustix::io::read(input, &mut buffer) {
            Ok(count) => count,
            Err(error) if may_continue_reading(error) => return None,
            // A terminal that is gone (EIO) is the end of the input.
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

    /// Reads what was typed so far, up to a limit.
    fn read_early(&mut self, input: &impl AsFd) {
        let mut left = MAX_EARLY_BYTES;
        while left > 0 && is_ready(input) {
            let Some(count @ 1..) = self.read_available(input) else {
                break;
            };
            left = left.saturating_sub(count);
        }
    }

    /// Executes an action of the user in the editor. Returns 0 at the end of the input.
    fn handle_events(&mut self, read: KeysRead) -> usize {
        let mut is_over = read.is_over;
        for event in read.events {
            match event {
                EditorEvent::Submitted(text) => {
                    // An answer such as `y` is nothing to repeat.
                    if !matches!(self.line_target, LineTarget::Answer { .. }) {
                        if let Some(editing) = &self.context.editing {
                            editing.history.append(&text);
                        }
                        if let Some(editor) = &mut self.editor {
                            editor.add_to_history(&text);
                        }
                    }
                    self.end_text(text);
                }
                EditorEvent::Interrupted => {
                    self.end_question_line();
                    interrupt_process();
                }
                EditorEvent::Ended => {
                    self.end_question_line();
                    is_over = true;
                }
                EditorEvent::EarlyPaste(text) => self.set_aside.push_str(&text),
            }
        }
        // Any number but 0: the caller only needs to know that something was read.
        usize::from(!is_over)
    }

    /// Ends the line of an open question, which gets no answer that would end it.
    fn end_question_line(&self) {
        if self.line_target != LineTarget::Message {
            print::write_stderr("\n");
        }
    }

    /// Keeps the draft until the question is closed, so that it cannot become the answer.
    fn set_draft_aside(&mut self) {
        if let Some(editor) = &mut self.editor {
            let draft = editor.take_draft();
            self.set_aside.push_str(&draft);
        }
        self.show_draft();
    }

    /// Shows the draft, in raw mode again if something has restored the terminal.
    fn show_draft(&self) {
        if let (Some(editor), Some(editing)) = (&self.editor, &self.context.editing) {
            _ = screen::begin_editing(InterruptKey::Byte, editing.exit);
            screen::show_draft(editor.text(), editor.cursor());
        }
    }

    /// Passes the completed line on as an answer, or as a message or command.
    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        self.end_text(text);
    }

    fn end_text(&mut self, text: String) {
        let early = std::mem::take(&mut self.begun_early);
        if text.trim().contains('\n') {
            return self.end_long_text(text, early);
        }
        let line = text.trim();
        // Before everything else, so that no line with a command's name answers a question.
        if !is_builtin_command(line)
            && let Some(expanded) = self.context.custom_commands.expand_line(line)
        {
            return match expanded {
                Ok(message) => self.send_expanded(message, early),
                Err(error) => self.show_locally(format!("{error}\n"), early),
            };
        }
        let takes_images = self.line_target == LineTarget::Answer { takes_images: true } && !early;
        if takes_images && let Some(shown) = line.strip_prefix(IMAGE_COMMAND) {
            // Without words the picture waits for the line that answers.
            if let Some(words) = self.attach_image(shown, early) {
                let images = std::mem::take(&mut self.images);
                self.send_answer(words, images);
            }
            return;
        }
        let command = is_command(line);
        // The idle session waits for a text alone, so a line with pictures must be a message.
        let shows = self.line_target == LineTarget::Turn
            && !self.images.is_empty()
            && !line.is_empty()
            && !is_quit_command(line);
        let answers = self.line_target != LineTarget::Message && !early && !command && !shows;
        let is_asked = self.line_target != LineTarget::Message && !early;
        match &self.answers {
            Some(sender)
                if is_asked
                    && let Some(reply) = local_reply(line, &self.context.custom_commands) =>
            {
                _ = sender.send(TypedLine::Local(reply));
            }
            Some(_) if answers => {
                let words = line
                    .strip_prefix(SAY_COMMAND)
                    .map_or(text.as_str(), str::trim)
                    .to_owned();
                let images = if takes_images && !line.is_empty() && !is_quit_command(line) {
                    std::mem::take(&mut self.images)
                } else {
                    Vec::new()
                };
                self.send_answer(words, images);
            }
            _ => self.handle_line(&text, early),
        }
    }

    /// Sends the text of a command that the folder or the user defines. It never answers a question, but it may be the message that the
    /// idle session waits for.
    fn send_expanded(&mut self, text: String, is_early: bool) {
        let is_turn = self.line_target == LineTarget::Turn && !is_early && self.images.is_empty();
        if is_turn && self.answers.is_some() {
            return self.send_answer(text, Vec::new());
        }
        let command = self.send_command(text, false);
        self.commands.push(command);
    }

    /// Shows a text about a line that was not sent.
    fn show_locally(&self, text: String, is_early: bool) {
        let is_asked = self.line_target != LineTarget::Message && !is_early;
        match &self.answers {
            Some(sender) if is_asked => _ = sender.send(TypedLine::Local(text)),
            _ => print::write_stderr(&print::sanitize_text(&text)),
        }
    }

    /// Passes a text of several lines on as it is: an answer, or a message. Its lines are not commands.
    fn end_long_text(&mut self, text: String, is_early: bool) {
        let is_answer = match self.line_target {
            LineTarget::Message => false,
            LineTarget::Answer { .. } => !is_early,
            LineTarget::Turn => !is_early && self.images.is_empty(),
        };
        if is_answer && self.answers.is_some() {
            let images = match self.line_target {
                LineTarget::Answer { takes_images: true } => std::mem::take(&mut self.images),
                _ => Vec::new(),
            };
            return self.send_answer(text, images);
        }
        if let Some(command) = self.message_command(text) {
            self.commands.push(command);
        }
    }

    /// Passes an answer on to the question.
    fn send_answer(&mut self, text: String, images: Vec<Image>) {
        if let Some(sender) = &self.answers {
            // Fails only when the task is over.
            _ = sender.send(TypedLine::Answer(UserMessage { text, images }));
        }
    }

    /// Handles a line that is not an answer: queues its message or command.
    fn handle_line(&mut self, line: &str, is_early: bool) {
        let line = line.trim();
        let heard = match line {
            "" => return,
            COMPACT_COMMAND => UserCommand::Compact,
            CONTEXT_COMMAND => UserCommand::ShowContextUsage,
            _ if let Some(word) = mode_argument(line) => {
                match modes::resolve_mode_name(word, &self.context.modes) {
                    Ok(name) => UserCommand::SetMode(name),
                    Err(why) => return self.show_locally(format!("sabir: {why}\n"), is_early),
                }
            }
            _ if let Some((server, address)) = login_command(line) => UserCommand::LogIn {
                server: server.to_owned(),
                address: address.map(str::to_owned),
            },
            // Not now: the task works, and the user may have queued messages before this line.
            _ if is_quit_command(line) || is_quit_word(line) => {
                self.wants_to_leave = true;
                return print::write_stderr(
                    "Sabir leaves when it is your turn; Ctrl-C interrupts the task now\n",
                );
            }
            _ if let Some(reply) = local_reply(line, &self.context.custom_commands) => {
                return print::write_stderr(&print::sanitize_text(&reply));
            }
            _ => match self.line_command(line, is_early) {
                Some(heard) => heard,
                None => return,
            },
        };
        self.commands.push(heard);
    }

    /// Turns a line into a message with the attached pictures. Returns `None` if the message is not
    /// complete yet.
    fn line_command(&mut self, line: &str, is_early: bool) -> Option<UserCommand> {
        let (text, at_once) = if let Some(words) = line.strip_prefix(SAY_COMMAND) {
            (words.trim().to_owned(), false)
        } else if let Some(words) = line.strip_prefix(NOW_COMMAND) {
            (words.trim().to_owned(), true)
        } else if let Some(shown) = line.strip_prefix(IMAGE_COMMAND) {
            (self.attach_image(shown, is_early)?, false)
        } else {
            (line.to_owned(), false)
        };
        Some(self.send_command(text, at_once))
    }

    /// Turns a text of several lines into a message. Returns `None` for `/now` or `/say` alone.
    fn message_command(&mut self, text: String) -> Option<UserCommand> {
        let (words, at_once) = match (
            text.strip_prefix(NOW_COMMAND),
            text.strip_prefix(SAY_COMMAND),
        ) {
            (Some(words), _) => (words.to_owned(), true),
            (None, Some(words)) => (words.to_owned(), false),
            (None, None) => (text, false),
        };
        (!words.trim().is_empty()).then(|| self.send_command(words, at_once))
    }

    /// Returns the command that sends a text with the attached pictures.
    fn send_command(&mut self, text: String, at_once: bool) -> UserCommand {
        let delivery = if at_once {
            MessageDelivery::Interrupt
        } else {
            MessageDelivery::Queue
        };
        let message = UserMessage {
            text,
            images: std::mem::take(&mut self.images),
        };
        UserCommand::Send { message, delivery }
    }

    /// Loads the picture of an `/image` command and returns the words after the file name; `None`
    /// if the picture waits for the next message or cannot be loaded.
    fn attach_image(&mut self, rest: &str, is_early: bool) -> Option<String> {
        let (path, words) = split_file_name(rest);
        let shown = images::load_image(Path::new(path)).and_then(|image| {
            let all = self.images.iter().cloned().chain([image]).collect();
            self.context.image_support.get().check_images(all)
        });
        match shown {
            Ok(images) => self.images = images,
            Err(why) => {
                self.show_locally(format!("{why}; no message was sent\n"), is_early);
                return None;
            }
        }
        if words.is_empty() {
            self.show_locally(
                format!("{path} will be attached to your next message\n"),
                is_early,
            );
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
        || login_command(line).is_some()
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
fn read_input(input: &impl AsFd, begun: &Mutex<LineBuffer>) {
    loop {
        wait_for_input(input);
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // `accept_answers` may have drained the input meanwhile. A blocking read would then hold the
        // lock.
        if is_ready(input) && begun.read_available(input) == Some(0) {
            begun.answers = None;
            return;
        }
    }
}

/// Returns true for errors after which reading may continue.
fn may_continue_reading(error: Errno) -> bool {
    matches!(error, Errno::INTR | Errno::AGAIN)
}

/// Returns true if a read would return at once, even with the end of the input.
fn is_ready(input: &impl AsFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // An error counts as not readable; `wait_for_input` meets it next, and pauses.
    poll_input(input, Some(&at_once)).unwrap_or(false)
}

/// Waits until the input may be readable. May return early.
fn wait_for_input(input: &impl AsFd) {
    if let Some(pause) = poll_input(input, None).err().and_then(pause_after) {
        std::thread::sleep(pause);
    }
}

/// Returns the pause before `poll` is tried again after an error; `None` where it may be tried at once.
fn pause_after(error: Errno) -> Option<Duration> {
    (!may_continue_reading(error)).then_some(POLL_RETRY_PAUSE)
}

/// Waits until the input is readable or the time is up (`None`: no limit). Returns true if it is readable.
fn poll_input(input: &impl AsFd, time: Option<&Timespec>) -> Result<bool, Errno> {
    let mut polled = [PollFd::new(input, PollFlags::IN)];
    Ok(poll(&mut polled, time)? > 0)
}

impl AsFd for Input {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Input({:?})", self.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_commands_take_a_file_and_a_message() {
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
    fn a_failing_poll_is_not_tried_in_a_busy_loop() {
        assert_eq!(pause_after(Errno::INTR), None);
        assert_eq!(pause_after(Errno::NOMEM), Some(POLL_RETRY_PAUSE));
        assert_eq!(pause_after(Errno::INVAL), Some(POLL_RETRY_PAUSE));
    }

    fn reader_of_pipe() -> (StdinReader, std::os::fd::OwnedFd) {
        let (input, output) = rustix::pipe::pipe().unwrap();
        let known = LineContext {
            modes: vec!["plan".to_owned()],
            image_support: CurrentImageSupport::default(),
            editing: None,
            custom_commands: CustomCommands::default(),
        };
        (StdinReader::new(input, known), output)
    }

    #[tokio::test]
    async fn only_lines_after_the_question_answer_it() {
        let (mut reader, output) = reader_of_pipe();
        let commands = reader.take_commands().unwrap();
        rustix::io::write(&output, b"early\n").unwrap();
        let early = commands.receive().await;
        assert!(
            matches!(&early, UserCommand::Send { message, .. } if message.text == "early"),
            "{early:?}"
        );
        reader.accept_answers(false, || {});
        rustix::io::write(&output, b"/mode plan\nyes\n").unwrap();
        let answer = TypedLine::Answer("yes".into());
        assert_eq!(reader.next_answer().await, Some(answer));
        let mode = commands.receive().await;
        assert!(
            matches!(&mode, UserCommand::SetMode(mode) if mode == "plan"),
            "{mode:?}"
        );
        drop(output);
        assert_eq!(reader.next_answer().await, None);
    }

    #[test]
    fn reading_the_first_line_leaves_the_rest() {
        let (input, output) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&output, b"one\ntwo").unwrap();
        drop(output);
        assert_eq!(read_first_line(&input).unwrap(), "one\n");
        assert_eq!(read_first_line(&input).unwrap(), "two");
        assert_eq!(read_first_line(&input).unwrap(), "");
    }

    #[test]
    fn slash_commands_are_whole_lines() {
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
