//! `run`, `resume`, `fork` and the interactive task: sessions with different front ends.

use std::path::{Path, PathBuf};

use sabir_agent::Outcome;
use sabir_session::pictures::Sight;
use sabir_session::{
    Interactivity, RecordMode, Session, SessionError, SessionOutcome, SessionSpec, Subscription, TaskEnd, UserMessage,
};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::cli::{Output, ResumeArguments, RunArguments, TapeOptions, TaskOptions};
use crate::controls::{self, Controls, Lines};
use crate::exit::{Exit, Failure};
use crate::front_end::{self, PersonFrontEnd};
use crate::screen::Progress;
use crate::surroundings::{host, runtime};
use crate::terminal::Terminal;
use crate::typed::{self, Known};
use crate::{interrupts, print, spent};

/// How a session is shown, and who answers.
struct Attendance {
    output: Option<Output>,
    /// Control lines on standard input.
    lines: Option<Lines>,
    sight: Sight,
}

/// `sabir run`.
pub(crate) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let output = Some(arguments.output);
    let pictures = arguments.pictures.image.as_slice();
    refuse_recorded_pictures(&arguments.tape, pictures)?;
    let mut message = UserMessage::text(arguments.words.join(" "));
    let mut lines = None;
    if arguments.control.control {
        let mut read = control_lines(output)?;
        if message.text.trim().is_empty() {
            // As for a person: who has no model hears of it first.
            message = controls::first_message(&mut read, &sight_of_new_task(&arguments.task)?)?;
        }
        lines = Some(read);
    }
    let spec = arguments.task.session_spec(&arguments.tape, interactivity(output, lines.is_some()))?;
    begin(spec, message, pictures, output, lines)
}

/// `sabir`, with or without words.
pub(crate) fn interactive(options: &TaskOptions, pictures: &[PathBuf], words: &[String]) -> Result<Exit, Failure> {
    let spec = options.session_spec(&TapeOptions::default(), Interactivity::Interactive)?;
    let prompt = words.join(" ");
    if !prompt.trim().is_empty() {
        return begin(spec, UserMessage::text(prompt), pictures, None, None);
    }
    // A person without a model, or with one that reads no pictures, should hear of it before they have typed anything.
    read_pictures(&sight_of_new_task(options)?, pictures)?;
    print::err("What is to be done? (one line, then Enter)\n> ");
    let read = typed::first_line();
    let line = read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    if line.trim().is_empty() {
        return Err(Failure::usage("there is nothing to do: say what, or see `sabir --help`"));
    }
    begin(spec, UserMessage::text(line.trim()), pictures, None, None)
}

/// Recordings hold no pictures of the user's.
fn refuse_recorded_pictures(tape: &TapeOptions, pictures: &[PathBuf]) -> Result<(), Failure> {
    if pictures.is_empty() || tape.record.is_none() && tape.replay.is_none() {
        return Ok(());
    }
    Err(Failure::usage("a recording holds no pictures of yours: leave --image out, or --record and --replay"))
}

/// What the model of a new task can be shown.
fn sight_of_new_task(options: &TaskOptions) -> Result<Sight, Failure> {
    let spec = options.session_spec(&TapeOptions::default(), Interactivity::Headless)?;
    Ok(host().model_sight(&spec, None)?)
}

/// The pictures in these files, if the model can be shown them.
fn read_pictures(sight: &Sight, paths: &[PathBuf]) -> Result<Vec<sabir_call::Image>, Failure> {
    Ok(sight.files(paths)?)
}

/// The control lines, which only a program that reads the events can write.
fn control_lines(output: Option<Output>) -> Result<Lines, Failure> {
    if output == Some(Output::Events) {
        return Ok(Lines::default());
    }
    Err(Failure::usage("--control needs --output events: questions are asked there"))
}

fn interactivity(output: Option<Output>, is_controlled: bool) -> Interactivity {
    match (output, is_controlled) {
        (None, _) => Interactivity::Interactive,
        (Some(_), true) => Interactivity::Controlled,
        (Some(_), false) => Interactivity::Headless,
    }
}

/// Starts a new task, or replays one.
fn begin(
    spec: SessionSpec,
    mut message: UserMessage,
    pictures: &[PathBuf],
    output: Option<Output>,
    lines: Option<Lines>,
) -> Result<Exit, Failure> {
    let is_replay = matches!(spec.record, RecordMode::Replay(_));
    if message.text.trim().is_empty() && !is_replay {
        return Err(Failure::usage("there is nothing to do: say what"));
    }
    let sight = if is_replay { Sight::Sees } else { host().model_sight(&spec, None)? };
    message.images.extend(read_pictures(&sight, pictures)?);
    let runtime = runtime()?;
    let session = runtime.block_on(host().start(spec, message));
    attend(&runtime, session, Attendance { output, lines, sight })
}

/// `sabir resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<Exit, Failure> {
    let output = arguments.output;
    let tape = &arguments.tape;
    if output.is_none() && (tape.record.is_some() || tape.replay.is_some()) {
        return Err(Failure::usage("only tasks that nobody attends are recorded and replayed: give --output"));
    }
    refuse_recorded_pictures(tape, &arguments.pictures.image)?;
    let lines = arguments.control.control.then(|| control_lines(output)).transpose()?;
    let spec = arguments.task.session_spec(tape, interactivity(output, lines.is_some()))?;
    let text = arguments.words.join(" ");
    let runtime = runtime()?;
    if let RecordMode::Replay(file) = &spec.record {
        let file = file.clone();
        let words = Some(text).filter(|text| !text.trim().is_empty());
        let session = runtime.block_on(host().replay_resumed(&file, arguments.id.as_deref(), spec, words));
        return attend(&runtime, session, Attendance { output, lines, sight: Sight::Sees });
    }
    let id = match &arguments.id {
        Some(name) => host().find_task(name)?,
        None => host().newest_unfinished(arguments.task.folder.as_deref().unwrap_or(Path::new(".")))?,
    };
    let sight = host().model_sight(&spec, Some(&id))?;
    let images = read_pictures(&sight, &arguments.pictures.image)?;
    let session = runtime.block_on(host().load(&id, spec, Some(UserMessage { text, images })));
    attend(&runtime, session, Attendance { output, lines, sight })
}

/// Shows a session to its end, and says how it ended.
fn attend(runtime: &Runtime, session: Result<Session, SessionError>, attendance: Attendance) -> Result<Exit, Failure> {
    let session = session?;
    let Attendance { output, lines, sight } = attendance;
    let handle = session.handle();
    let task = session.task().clone();
    interrupts::listen(handle.clone(), output.is_none())?;
    let events: Subscription = session.subscribe();
    let known = Known { modes: session.modes().to_vec(), sight };
    let is_replay = session.is_replay();
    let outcome = runtime.block_on(async {
        match output {
            None => PersonFrontEnd::new(Box::new(Terminal::new(known)), handle).attend(events).await,
            Some(Output::Text) => {
                PersonFrontEnd::new(Box::new(Progress::default()), handle).attend(events).await;
            }
            Some(Output::Json) => front_end::print_notices(events).await,
            Some(Output::Events) => {
                let controls = lines.map(|lines| {
                    let controls = Controls::default();
                    controls.listen(lines, known, handle);
                    controls
                });
                front_end::print_lines(events, controls).await;
            }
        }
        session.wait().await
    })?;
    Ok(report(task.as_str(), &outcome, output, is_replay))
}

/// Prints how a session ended.
fn report(task: &str, outcome: &SessionOutcome, output: Option<Output>, is_replay: bool) -> Exit {
    let SessionOutcome { end, recording_error } = outcome;
    let TaskEnd { outcome, message, turns, totals } = end;
    let is_completed = *outcome == Outcome::Completed;
    if matches!(output, None | Some(Output::Text)) {
        print::err(&format!("{}: {}\n", print::counted(*turns as usize, "turn"), spent::words(totals)));
    }
    let complaint = recording_error.clone().map(Failure::from);
    let exit = complaint.as_ref().filter(|_| is_completed).map_or(Exit::from(*outcome), |failure| failure.exit);
    match output {
        Some(Output::Json) => print::redacted(&json!({
            "task": task, "outcome": outcome, "exit_code": exit.code(), "message": message, "turns": turns,
            "usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost,
        })),
        Some(Output::Events) => {}
        Some(Output::Text) if is_completed => print::out(&print::visible(&format!("{message}\n"))),
        _ if is_completed => {}
        _ => print::err(&print::visible(&format!("sabir: {message}\n"))),
    }
    if matches!(output, None | Some(Output::Text)) && !is_completed && !is_replay {
        print::err(&format!("Continue with: sabir resume {task}\n"));
    }
    if let Some(failure) = complaint {
        print::err(&print::visible(&format!("sabir: {}\n", failure.message)));
    }
    exit
}
