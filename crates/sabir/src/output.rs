//! Chooses the front end of a session, prints reports in the format that was asked for, and hands
//! out the standard streams. The rendering itself is in `sabir-terminal`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::Ordering;

use sabir_session::custom_commands::CustomCommands;
use sabir_session::{Session, UserMessage};
use sabir_terminal::control_input::{ControlInput, ControlReader};
use sabir_terminal::event_renderer::ProgressFrontEnd;
use sabir_terminal::front_end::{self, SessionPresenter};
use sabir_terminal::stdin_reader::{self, LineContext};
use sabir_terminal::terminal::TerminalFrontEnd;
pub(crate) use sabir_terminal::{event_renderer, print};
use sabir_tui::NextSession;
use serde::Serialize;

use crate::cli::{OutputFormat, ReportFormat};
use crate::exit::CommandError;
use crate::process_environment;

/// The output of a session and the source of answers.
pub(crate) struct SessionOutput {
    /// The output format; `None` for the interactive mode.
    pub(crate) output: Option<OutputFormat>,
    /// The reader of control lines, if they are enabled.
    pub(crate) lines: Option<ControlReader>,
}

impl SessionOutput {
    /// Shows a session until it ends. Returns true if the end of the task was already shown while the session was open, or for a headless
    /// task, if its result is on the screen. `next` is set to the session that the user chose to open next.
    pub(crate) async fn show(self, session: &Session, next: &mut Option<NextSession>) -> bool {
        let events = session.subscribe();
        let handle = session.handle();
        let known = LineContext {
            modes: session.modes().to_vec(),
            image_support: session.image_support(),
            editing: process_environment::line_editing(),
            custom_commands: session.custom_commands().clone(),
        };
        match self.output {
            None => {
                // A terminal that fails here has the line mode.
                if let Some(settings) = process_environment::full_interface()
                    && let Ok(left) = sabir_tui::show_session(session, &settings).await
                {
                    *next = left.next;
                    return left.is_end_shown;
                }
                let user = TerminalFrontEnd::new(io::stdin(), known);
                let front_end = SessionPresenter::new(Box::new(user), handle);
                return front_end.show_until_end(events).await;
            }
            Some(OutputFormat::Text) => {
                let progress = ProgressFrontEnd::default();
                let shown = progress.result_shown_flag();
                let front_end = SessionPresenter::new(Box::new(progress), handle);
                front_end.show_until_end(events).await;
                return shown.load(Ordering::Relaxed);
            }
            Some(OutputFormat::Json) => front_end::print_notices(events).await,
            Some(OutputFormat::Events) => {
                let controls = self.lines.map(|lines| {
                    let controls = ControlInput::default();
                    controls.spawn_reader(lines, known, handle);
                    controls
                });
                front_end::print_json_lines(events, controls).await;
            }
        }
        false
    }
}

/// Returns a reader of the control lines on standard input. The reader buffers, so nothing else may
/// read standard input after it.
pub(crate) fn control_reader() -> ControlReader {
    ControlReader::new(io::BufReader::new(io::stdin()))
}

/// Prints a report in the requested format, and renders only that. Foreign text in it is sanitized.
pub(crate) fn print_report<T: Serialize>(
    output: ReportFormat,
    json: impl FnOnce() -> T,
    text: impl FnOnce() -> String,
) {
    match output {
        ReportFormat::Json => print::print_json(&json()),
        ReportFormat::Text => print::write_stdout(&print::sanitize_text(&text())),
    }
}

/// Asks for the first message of a new or resumed task in this folder; `None` if the user leaves. Instead of a new task, the user may
/// choose another one.
pub(crate) fn ask_first_message(
    is_new: bool,
    folder: &Path,
) -> Result<Option<NextSession>, CommandError> {
    let custom = CustomCommands::find(
        folder,
        &process_environment::load_config().unwrap_or_default(),
    );
    if let Some(settings) = process_environment::full_interface() {
        let settings = settings.for_folder(folder.to_owned());
        let settings = if is_new {
            settings
        } else {
            settings.for_known_task()
        };
        let message = sabir_tui::compose_first_message(&settings, custom);
        return process_environment::runtime()?
            .block_on(message)
            .map_err(input_error);
    }
    print::write_stderr("What should Sabir do? (then Enter; ? lists commands)\n");
    let editing = process_environment::line_editing();
    let line = stdin_reader::read_first_message(&io::stdin(), editing.as_ref(), &custom);
    let text = line.map_err(input_error)?;
    // A user who leaves has failed nothing; a program that says nothing has forgotten the task.
    if text.is_none() && !io::stdin().is_terminal() {
        return Err(CommandError::usage(if is_new {
            "there is no task: say what to do, or see `sabir --help`"
        } else {
            "the task is completed: give a message to continue it, as in `sabir resume TASK WORDS`"
        }));
    }
    Ok(text.map(|text| NextSession::New(UserMessage::from_text(text))))
}

/// Asks a user at a terminal for a yes; without a terminal the answer is no.
pub(crate) fn confirm(prompt: &str) -> Result<bool, CommandError> {
    stdin_reader::confirm(prompt).map_err(input_error)
}

/// Creates the error for standard input that cannot be read.
pub(crate) fn input_error(error: io::Error) -> CommandError {
    CommandError::internal(format!("standard input cannot be read: {error}"))
}
