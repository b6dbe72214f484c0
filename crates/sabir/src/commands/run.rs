//! Implements `run`, `resume` and the interactive task: runs sessions with different front ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sabir_agent::TaskOutcome;
use sabir_session::pictures::ImageSupport;
use sabir_session::{
    Interactivity, RecordMode, Session, SessionError, SessionOutcome, SessionSpec, Subscription,
    TaskEnd, UserMessage,
};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::cli::{OutputFormat, RecordingOptions, ResumeArguments, RunArguments, TaskOptions};
use crate::exit::{CommandError, ExitStatus};
use crate::interrupts;
use crate::output::control_input::{self, ControlInput, ControlReader};
use crate::output::event_renderer::ProgressFrontEnd;
use crate::output::front_end::{self, PersonFrontEnd};
use crate::output::print;
use crate::output::stdin_reader::{self, LineContext};
use crate::output::terminal::TerminalFrontEnd;
use crate::surroundings::{host, runtime};

/// The output of a session and the source of answers.
struct Attendance {
    /// The output format; `None` for the interactive mode.
    output: Option<OutputFormat>,
    /// The reader of control lines, if they are enabled.
    lines: Option<ControlReader>,
    /// The model's support for pictures.
    sight: ImageSupport,
}

/// Runs `sabir run`.
pub(crate) fn run_headless(arguments: &RunArguments) -> Result<ExitStatus, CommandError> {
    let output = Some(arguments.output);
    let pictures = arguments.pictures.image.as_slice();
    refuse_recorded_pictures(&arguments.tape, pictures)?;
    let mut message = UserMessage::from_text(arguments.words.join(" "));
    let mut lines = None;
    if arguments.control.control {
        let mut read = control_lines(output)?;
        if message.text.trim().is_empty() {
            // As in the interactive mode, a missing model is reported before any input is read.
            message =
                control_input::first_message(&mut read, &sight_of_new_task(&arguments.task)?)?;
        }
        lines = Some(read);
    }
    let spec = arguments
        .task
        .session_spec(&arguments.tape, interactivity(output, lines.is_some()))?;
    begin_task(spec, message, pictures, output, lines)
}

/// Runs `sabir` without a command: an interactive task.
pub(crate) fn run_interactive(
    options: &TaskOptions,
    pictures: &[PathBuf],
    words: &[String],
) -> Result<ExitStatus, CommandError> {
    let spec = options.session_spec(&RecordingOptions::default(), Interactivity::Interactive)?;
    let prompt = words.join(" ");
    if !prompt.trim().is_empty() {
        return begin_task(spec, UserMessage::from_text(prompt), pictures, None, None);
    }
    // A missing model, or one without support for pictures, is reported before the user has typed
    // anything.
    read_pictures(&sight_of_new_task(options)?, pictures)?;
    print::write_stderr("What is to be done? (one line, then Enter)\n> ");
    let read = stdin_reader::first_line();
    let line = read.map_err(|error| {
        CommandError::internal(format!("standard input cannot be read: {error}"))
    })?;
    if line.trim().is_empty() {
        return Err(CommandError::usage(
            "there is nothing to do: say what, or see `sabir --help`",
        ));
    }
    begin_task(
        spec,
        UserMessage::from_text(line.trim()),
        pictures,
        None,
        None,
    )
}

/// Refuses pictures in a recorded or replayed task, because recordings do not contain the user's
/// pictures.
fn refuse_recorded_pictures(
    tape: &RecordingOptions,
    pictures: &[PathBuf],
) -> Result<(), CommandError> {
    if pictures.is_empty() || tape.record.is_none() && tape.replay.is_none() {
        return Ok(());
    }
    Err(CommandError::usage(
        "a recording holds no pictures of yours: leave --image out, or --record and --replay",
    ))
}

/// Returns whether the model of a new task accepts pictures.
fn sight_of_new_task(options: &TaskOptions) -> Result<ImageSupport, CommandError> {
    let spec = options.session_spec(&RecordingOptions::default(), Interactivity::Headless)?;
    Ok(host().model_sight(&spec, None)?)
}

/// Loads the pictures in these files, if the model accepts pictures.
fn read_pictures(
    sight: &ImageSupport,
    paths: &[PathBuf],
) -> Result<Vec<sabir_call::Image>, CommandError> {
    Ok(sight.load_images(paths)?)
}

/// Returns a reader of control lines. They need `--output events`, because questions are printed
/// only there.
fn control_lines(output: Option<OutputFormat>) -> Result<ControlReader, CommandError> {
    if output == Some(OutputFormat::Events) {
        return Ok(ControlReader::default());
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
        return Err(CommandError::usage("there is nothing to do: say what"));
    }
    let sight = if is_replay {
        ImageSupport::Supported
    } else {
        host().model_sight(&spec, None)?
    };
    message.images.extend(read_pictures(&sight, pictures)?);
    let runtime = runtime()?;
    let session = runtime.block_on(host().start(spec, message));
    attend(
        runtime,
        session,
        Attendance {
            output,
            lines,
            sight,
        },
    )
}

/// Runs `sabir resume`.
pub(crate) fn run_resume(arguments: &ResumeArguments) -> Result<ExitStatus, CommandError> {
    let output = arguments.output;
    let tape = &arguments.tape;
    if output.is_none() && (tape.record.is_some() || tape.replay.is_some()) {
        return Err(CommandError::usage(
            "only tasks that nobody attends are recorded and replayed: give --output",
        ));
    }
    refuse_recorded_pictures(tape, &arguments.pictures.image)?;
    let lines = arguments
        .control
        .control
        .then(|| control_lines(output))
        .transpose()?;
    let spec = arguments
        .task
        .session_spec(tape, interactivity(output, lines.is_some()))?;
    let text = arguments.words.join(" ");
    let runtime = runtime()?;
    if let RecordMode::Replay(file) = &spec.record {
        let file = file.clone();
        let words = Some(text).filter(|text| !text.trim().is_empty());
        let session =
            runtime.block_on(host().replay_resumed(&file, arguments.id.as_deref(), spec, words));
        return attend(
            runtime,
            session,
            Attendance {
                output,
                lines,
                sight: ImageSupport::Supported,
            },
        );
    }
    let id = match &arguments.id {
        Some(name) => host().find_task(name)?,
        None => {
            host().newest_unfinished(arguments.task.folder.as_deref().unwrap_or(Path::new(".")))?
        }
    };
    let sight = host().model_sight(&spec, Some(&id))?;
    let images = read_pictures(&sight, &arguments.pictures.image)?;
    let session = runtime.block_on(host().load(&id, spec, Some(UserMessage { text, images })));
    attend(
        runtime,
        session,
        Attendance {
            output,
            lines,
            sight,
        },
    )
}

/// Shows a session until it ends, and reports its end.
fn attend(
    runtime: Runtime,
    session: Result<Session, SessionError>,
    attendance: Attendance,
) -> Result<ExitStatus, CommandError> {
    let session = session?;
    let Attendance {
        output,
        lines,
        sight,
    } = attendance;
    let handle = session.handle();
    let task = session.task().clone();
    interrupts::listen(handle.clone(), output.is_none())?;
    let events: Subscription = session.subscribe();
    let known = LineContext {
        modes: session.modes().to_vec(),
        image_support: sight,
    };
    let is_replay = session.is_replay();
    let mut is_end_shown = false;
    let outcome = runtime.block_on(async {
        match output {
            None => {
                is_end_shown = PersonFrontEnd::new(Box::new(TerminalFrontEnd::new(known)), handle)
                    .attend(events)
                    .await
            }
            Some(OutputFormat::Text) => {
                PersonFrontEnd::new(Box::new(ProgressFrontEnd::default()), handle)
                    .attend(events)
                    .await;
            }
            Some(OutputFormat::Json) => front_end::print_notices(events).await,
            Some(OutputFormat::Events) => {
                let controls = lines.map(|lines| {
                    let controls = ControlInput::default();
                    controls.spawn_reader(lines, known, handle);
                    controls
                });
                front_end::print_lines(events, controls).await;
            }
        }
        session.wait().await
    })?;
    // Wait only 200 ms for background work: a search in a large tree must not delay the exit.
    // Interrupting a write is safe because writes are atomic.
    runtime.shutdown_timeout(Duration::from_millis(200));
    let report = EndReport {
        task: task.as_str(),
        output,
        is_replay,
        is_end_shown,
    };
    Ok(report.print(&outcome))
}

/// Prints the end of a session.
struct EndReport<'a> {
    task: &'a str,
    output: Option<OutputFormat>,
    is_replay: bool,
    /// True if the end was already shown while the session was still open.
    is_end_shown: bool,
}

impl EndReport<'_> {
    /// Prints the end of a session and returns the exit status.
    fn print(&self, session: &SessionOutcome) -> ExitStatus {
        let SessionOutcome {
            end,
            recording_error,
        } = session;
        let is_completed = end.outcome == TaskOutcome::Completed;
        let complaint = recording_error.clone().map(CommandError::from);
        let exit = match &complaint {
            // A task that completed but could not be recorded is a failure of the command.
            Some(failure) if is_completed => failure.exit,
            _ => ExitStatus::from(end.outcome),
        };
        match self.output {
            Some(OutputFormat::Json) => {
                print::print_redacted_json(&json!({
                    "task": self.task, "outcome": end.outcome, "exit_code": exit.code(), "message": end.message,
                    "turns": end.turns, "usage": end.totals.usage, "estimate": end.totals.estimate, "cost": end.totals.cost,
                }));
            }
            Some(OutputFormat::Events) => {}
            None | Some(OutputFormat::Text) => self.print_text(end),
        }
        if let Some(failure) = complaint {
            print::write_stderr(&print::sanitize_text(&format!(
                "sabir: {}\n",
                failure.message
            )));
        }
        exit
    }

    fn print_text(&self, end: &TaskEnd) {
        let is_completed = end.outcome == TaskOutcome::Completed;
        if !self.is_end_shown {
            front_end::print_end(end);
        }
        if self.output.is_some() && is_completed {
            print::write_stdout(&print::sanitize_text(&format!("{}\n", end.message)));
        }
        if !is_completed && !self.is_replay {
            print::write_stderr(&format!("Continue with: sabir resume {}\n", self.task));
        }
    }
}
