//! Implements `run`, `resume` and the interactive task: runs sessions with different front ends.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sabir_agent::TaskOutcome;
use sabir_session::call::Image;
use sabir_session::first_screen::FirstRunReport;
use sabir_session::images::ImageSupport;
use sabir_session::{
    Interactivity, RecordMode, Session, SessionError, SessionOutcome, SessionSpec, TaskLookup,
    UserMessage,
};
use sabir_terminal::control_input::{self, ControlReader};
use sabir_terminal::front_end;
use sabir_terminal::history_text::LastExchange;
use sabir_terminal::interrupts::listen_for_signals;
use sabir_terminal::piped_input::read_task;
use sabir_terminal::welcome::WelcomeChoice;
use sabir_tui::NextSession;
use tokio::runtime::Runtime;

use crate::cli::{Cli, OutputFormat, RecordingOptions, ResumeArguments, RunArguments, TaskOptions};
use crate::commands::{init, journal, tour};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, SessionOutput, print};
use crate::process_environment::{EXIT, host, runtime};

/// Runs `sabir run`.
pub(crate) fn run_headless(arguments: &RunArguments) -> Result<ExitStatus, CommandError> {
    let output = Some(arguments.output);
    let pictures = arguments.pictures.image.as_slice();
    arguments.tape.mode().check_images(pictures)?;
    let continued = ContinuedTask {
        id: None,
        unfinished_only: false,
        task: &arguments.task,
        output,
        tape: &arguments.tape,
        is_controlled: arguments.control.control,
        pictures,
    };
    // A program that controls the task writes its lines to standard input.
    let text = if arguments.control.control || arguments.tape.replay.is_some() {
        arguments.words.join(" ")
    } else {
        read_task(&arguments.words, &std::io::stdin())?
    };
    if arguments.continues {
        return continued.run(text);
    }
    let mut message = UserMessage::from_text(text);
    let mut lines = None;
    if arguments.control.control {
        let mut read = control_lines(output)?;
        if message.text.trim().is_empty() {
            // As in the interactive mode, a missing model is reported before any input is read.
            message = control_input::first_message(
                &mut read,
                &image_support_of_new_task(&arguments.task)?,
            )?;
        }
        lines = Some(read);
    }
    let spec = arguments
        .task
        .session_spec(&arguments.tape, interactivity(output, lines.is_some()))?;
    begin_task(spec, message, pictures, output, lines)
}

/// Runs `sabir` without a command: an interactive task.
pub(crate) fn run_interactive(cli: &Cli) -> Result<ExitStatus, CommandError> {
    let pictures = cli.pictures.image.as_slice();
    let tape = RecordingOptions::default();
    let mut spec = cli.task.session_spec(&tape, Interactivity::Interactive)?;
    let prompt = cli.words.join(" ");
    if cli.continues {
        let continued = ContinuedTask {
            id: None,
            unfinished_only: false,
            task: &cli.task,
            output: None,
            tape: &tape,
            is_controlled: false,
            pictures,
        };
        return continued.run(prompt);
    }
    if !prompt.trim().is_empty() {
        return begin_task(spec, UserMessage::from_text(prompt), pictures, None, None);
    }
    if FirstRunReport::is_needed(host(), &spec)? {
        match init::welcome(cli.task.folder.as_deref())? {
            WelcomeChoice::Model(model) => spec.model = Some(model),
            WelcomeChoice::Tour => return tour::run_tour(None),
            WelcomeChoice::Leave => return Ok(ExitStatus::Completed),
            // The error names what is missing.
            WelcomeChoice::Unasked => {}
        }
    }
    // A missing model, or one without support for pictures, is reported before the user has typed
    // anything.
    let images = host().image_support(&spec, None)?.load_images(pictures)?;
    begin_chosen_session(spec, images)
}

/// Lets the user begin a task with a message, to which these images belong, or choose another one.
fn begin_chosen_session(spec: SessionSpec, images: Vec<Image>) -> Result<ExitStatus, CommandError> {
    let folder = spec.workspace.as_deref().unwrap_or(Path::new("."));
    let Some(mut next) = output::ask_first_message(true, folder)? else {
        return Ok(ExitStatus::Completed);
    };
    next.message_mut().images.extend(images);
    switch_session(spec, next)
}

/// Returns whether the model of a new task accepts pictures.
fn image_support_of_new_task(options: &TaskOptions) -> Result<ImageSupport, CommandError> {
    let spec = options.session_spec(&RecordingOptions::default(), Interactivity::Headless)?;
    Ok(host().image_support(&spec, None)?)
}

/// Returns a reader of control lines. They need `--output events`, because questions are printed only there.
fn control_lines(output: Option<OutputFormat>) -> Result<ControlReader, CommandError> {
    if output == Some(OutputFormat::Events) {
        return Ok(output::control_reader());
    }
    Err(CommandError::usage(
        "--control needs --output events: questions are asked there",
    ))
}

fn interactivity(output: Option<OutputFormat>, is_controlled: bool) -> Interactivity {
    match (output, is_controlled) {
        (None, _) => Interactivity::Interactive,
        (Some(_), true) => Interactivity::Controlled,
        (Some(_), false) => Interactivity::Headless,
    }
}

/// Starts or replays a task and shows it.
fn begin_task(
    spec: SessionSpec,
    mut message: UserMessage,
    pictures: &[PathBuf],
    output: Option<OutputFormat>,
    lines: Option<ControlReader>,
) -> Result<ExitStatus, CommandError> {
    let is_replay = matches!(spec.record, RecordMode::Replay(_));
    if message.text.trim().is_empty() && !is_replay {
        return Err(CommandError::usage("there is no task: say what to do"));
    }
    let sight = if is_replay {
        ImageSupport::Supported
    } else {
        host().image_support(&spec, None)?
    };
    message.images.extend(sight.load_images(pictures)?);
    let runtime = runtime()?;
    let session = runtime.block_on(host().start(spec.clone(), message));
    let session_output = SessionOutput { output, lines };
    show_until_end(runtime, session, session_output, spec)
}

/// Runs `sabir resume`.
pub(crate) fn run_resume(arguments: &ResumeArguments) -> Result<ExitStatus, CommandError> {
    let continued = ContinuedTask {
        id: arguments.id.as_deref(),
        unfinished_only: true,
        task: &arguments.task,
        output: arguments.output,
        tape: &arguments.tape,
        is_controlled: arguments.control.control,
        pictures: &arguments.pictures.image,
    };
    continued.run(arguments.words.join(" "))
}

/// A task that continues: `resume`, and `--continue`.
struct ContinuedTask<'a> {
    /// The name of the task; by default the newest one of the folder.
    id: Option<&'a str>,
    /// Without a name, continues only a task that did not complete.
    unfinished_only: bool,
    task: &'a TaskOptions,
    output: Option<OutputFormat>,
    tape: &'a RecordingOptions,
    is_controlled: bool,
    pictures: &'a [PathBuf],
}

impl ContinuedTask<'_> {
    fn run(&self, text: String) -> Result<ExitStatus, CommandError> {
        let output = self.output;
        if output.is_none() && (self.tape.record.is_some() || self.tape.replay.is_some()) {
            return Err(CommandError::usage(
                "only unattended tasks are recorded and replayed: give --output",
            ));
        }
        self.tape.mode().check_images(self.pictures)?;
        let lines = self
            .is_controlled
            .then(|| control_lines(output))
            .transpose()?;
        let spec = self
            .task
            .session_spec(self.tape, interactivity(output, lines.is_some()))?;
        let runtime = runtime()?;
        if let RecordMode::Replay(file) = &spec.record {
            let file = file.clone();
            let words = Some(text).filter(|text| !text.trim().is_empty());
            let session =
                runtime.block_on(host().replay_resumed(&file, self.id, spec.clone(), words));
            let session_output = SessionOutput { output, lines };
            return show_until_end(runtime, session, session_output, spec);
        }
        let lookup = TaskLookup::open(host().environment(), self.task.folder.as_deref())?;
        let id = match self.id {
            Some(name) => lookup.find(Some(name))?,
            None => lookup.newest(self.unfinished_only)?,
        };
        // It reads the whole task, which is read once more below.
        let images = match self.pictures.is_empty() {
            true => Vec::new(),
            false => {
                let sight = host().image_support(&spec, Some(&id))?;
                sight.load_images(self.pictures)?
            }
        };
        let mut message = UserMessage { text, images };
        if output.is_none() {
            let (_, entries) = journal::read_entries(Some(id.as_str()))?;
            let last = LastExchange::of_entries(&entries);
            print::write_stderr(&print::sanitize_text(&last.text));
            if last.is_completed && message.text.trim().is_empty() {
                let Some(NextSession::New(asked)) = output::ask_first_message(false, &last.folder)?
                else {
                    return Ok(ExitStatus::Completed);
                };
                message.text = asked.text;
                message.images.splice(0..0, asked.images);
            }
        }
        let draft = message.text.clone();
        let session = runtime.block_on(host().load(&id, spec.clone(), Some(message)));
        if session.is_err() && output.is_none() {
            sabir_tui::save_draft(host(), &draft);
        }
        let session_output = SessionOutput { output, lines };
        show_until_end(runtime, session, session_output, spec)
    }
}

/// Opens the session that the user has chosen in the interface, and shows it.
fn switch_session(spec: SessionSpec, next: NextSession) -> Result<ExitStatus, CommandError> {
    let runtime = runtime()?;
    let images = next.message().images.clone();
    let session = runtime.block_on(sabir_tui::open_next_session(host(), &spec, next));
    if let Err(error) = &session
        && std::io::stdin().is_terminal()
    {
        // The message is the draft again, so that it can be sent once the reason is gone.
        print::write_stderr(&print::sanitize_text(&format!("sabir: {error}\n")));
        return begin_chosen_session(spec, images);
    }
    let session_output = SessionOutput {
        output: None,
        lines: None,
    };
    show_until_end(runtime, session, session_output, spec)
}

/// Shows a session until it ends, and reports its end, unless the user left it for another.
fn show_until_end(
    runtime: Runtime,
    session: Result<Session, SessionError>,
    session_output: SessionOutput,
    spec: SessionSpec,
) -> Result<ExitStatus, CommandError> {
    let session = session?;
    let task = session.task().clone();
    let output = session_output.output;
    let is_replay = session.is_replay();
    listen_for_signals(session.handle(), output.is_none(), EXIT)?;
    let mut is_end_shown = false;
    let mut next = None;
    let mut outcome = runtime.block_on(async {
        is_end_shown = session_output.show(&session, &mut next).await;
        session.wait().await
    })?;
    // The end of a pipe is no user who leaves: a program gets what the task came to.
    outcome.end.follows_answer &= std::io::stdin().is_terminal();
    // Waits only 200 ms for background work, since a search in a large tree must not delay the
    // exit. Interrupting a write is safe, because writes are atomic.
    runtime.shutdown_timeout(Duration::from_millis(200));
    if let Some(next) = next {
        return switch_session(spec, next);
    }
    let text = front_end::SessionEndText {
        task: task.as_str(),
        is_unattended: output.is_some(),
        is_replay,
        is_end_shown,
    };
    Ok(print_end(text, output, &outcome))
}

/// Prints the end of a session and returns the exit status.
fn print_end(
    text: front_end::SessionEndText<'_>,
    output: Option<OutputFormat>,
    session: &SessionOutcome,
) -> ExitStatus {
    let SessionOutcome {
        end,
        recording_error,
    } = session;
    let is_completed = end.outcome == TaskOutcome::Completed;
    let complaint = recording_error.clone().map(CommandError::from);
    let exit = match &complaint {
        // A task that completed but could not be recorded is a failure of the command.
        Some(failure) if is_completed => failure.exit,
        _ => ExitStatus::from(end.session_outcome()),
    };
    match output {
        Some(OutputFormat::Json) => {
            print::print_redacted_json(&front_end::end_json(text.task, end, exit.code()));
        }
        Some(OutputFormat::Events) => {}
        None | Some(OutputFormat::Text) => text.print(end),
    }
    if let Some(failure) = complaint {
        print::write_stderr(&print::sanitize_text(&format!(
            "sabir: {}\n",
            failure.message
        )));
    }
    exit
}
