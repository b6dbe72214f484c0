//! `run`, `resume`, and the interactive task: the same machine with different watchers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{
    Attended, Cancel, Household, Origin, Outcome, Record, ReplayError, Start, SubtaskLimits, Task, TaskEvent, TaskId,
    User, Words,
};
use sabir_call::Model;
use sabir_journal::Journal;
use sabir_model::{Cassette, HttpModel, Renewing};
use sabir_workspace::{Level, Sandbox};
use serde_json::json;

use crate::cassette::{self, Nowhere, Tape, Taped, Told};
use crate::cli::{Output, ResumeArguments, RunArguments, TapeOptions, TaskOptions};
use crate::config::{self, Chosen, Config};
use crate::controls::Lines;
use crate::exit::{Exit, Failure};
use crate::family::{self, Family};
use crate::looked::Looked;
use crate::modes::{Begun, Routed};
use crate::pictures::Sight;
use crate::task::{self, Bench, Means, Open, Plan};
use crate::typed::Known;
use crate::watchers::Watchers;
use crate::{controls, modes, print, spent, telemetry, typed};

/// How a task is shown, and to whom.
type Watcher = (Option<Output>, Box<dyn User>);

/// Whether a task has subtasks, and what those would need.
struct Wanted<'a> {
    options: &'a TaskOptions,
    workspace: &'a Path,
    tape: &'a TapeOptions,
    output: Option<Output>,
    watchers: Watchers,
    /// How many tasks stand above it.
    depth: u32,
    /// Whether it has begun some.
    has: bool,
}

impl Wanted<'_> {
    /// What makes them, where the user wants them or the task has them.
    fn household(
        self,
        config: &Arc<Config>,
        model: &str,
        task: &TaskId,
        mode: &modes::Now,
    ) -> Result<Option<Arc<dyn Household>>, Failure> {
        let keys = &config.limits.subtasks;
        let levels = keys.depth.unwrap_or(SubtaskLimits::default().depth);
        // A mode that changes nothing itself is nothing without them.
        let wanted = self.options.subtasks || self.has || modes::name(mode) == modes::ORCHESTRATOR;
        if !(wanted || keys.offered == Some(true)) || levels <= self.depth {
            return Ok(None);
        }
        if self.tape.record.is_some() {
            let why = "a recording holds one task: --record and subtasks do not go together";
            if wanted {
                return Err(Failure::usage(why));
            }
            print::err(&format!("sabir: {why}, so none are offered\n"));
            return Ok(None);
        }
        let family = Family {
            options: self.options.clone(),
            config: Arc::clone(config),
            workspace: self.workspace.to_path_buf(),
            journals: config::tasks_folder()?,
            model: model.to_owned(),
            watchers: self.watchers,
            output: self.output,
        };
        Ok(Some(Arc::new(family).children(task, mode, self.depth)))
    }
}

/// `sabir run`.
pub(crate) fn run(arguments: &RunArguments) -> Result<Exit, Failure> {
    let (options, tape, output) = (&arguments.task, &arguments.tape, Some(arguments.output));
    let pictures = arguments.pictures.image.as_slice();
    without_tape(tape, pictures)?;
    let mut words = Words::from(arguments.words.join(" "));
    if arguments.control.control {
        let mut lines = controlled(output)?;
        if words.text.trim().is_empty() {
            // As for a user: who has no model hears of it first.
            words = controls::first_message(&mut lines, &sight(options)?)?;
        }
        return begin(options, (words, pictures), output, tape, Some(lines));
    }
    match &tape.replay {
        None => begin(options, (words, pictures), output, tape, None),
        Some(file) => {
            let (cassette, mut told) = cassette::read(file)?;
            if !told.records.is_empty() {
                return Err(Failure::usage(
                    "the cassette is that of a resumed task: play it with `sabir resume --replay`",
                ));
            }
            if !words.text.trim().is_empty() {
                told.start.prompt = words.text;
            }
            replay(options, cassette, told, output)
        }
    }
}

/// `sabir`, with or without words.
pub(crate) fn interactive(options: &TaskOptions, pictures: &[PathBuf], words: &[String]) -> Result<Exit, Failure> {
    let prompt = words.join(" ");
    if !prompt.trim().is_empty() {
        return begin(options, (prompt.into(), pictures), None, &TapeOptions::default(), None);
    }
    // Whoever has no model, or none that reads his pictures, should hear of it before he has typed anything.
    sight(options)?.files(pictures)?;
    print::err("What is to be done? (one line, then Enter)\n> ");
    let read = typed::first_line();
    let line = read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    if line.trim().is_empty() {
        return Err(Failure::usage("there is nothing to do: say what, or see `sabir --help`"));
    }
    begin(options, (line.trim().into(), pictures), None, &TapeOptions::default(), None)
}

/// Recordings hold no pictures of the user's.
fn without_tape(tape: &TapeOptions, pictures: &[PathBuf]) -> Result<(), Failure> {
    if pictures.is_empty() || tape.record.is_none() && tape.replay.is_none() {
        return Ok(());
    }
    Err(Failure::usage("a recording holds no pictures of yours: leave --image out, or --record and --replay"))
}

/// What the model of a new task can be shown, where there is one.
fn sight(options: &TaskOptions) -> Result<Sight, Failure> {
    let config = Config::load(options.config.as_deref())?;
    let own = || modes::model_of(&config, task::first_mode(options, &config));
    Ok(Sight::of(&config.choose(options.model.as_deref().or_else(own))?))
}

/// The control lines, which only whoever reads the events can write.
fn controlled(output: Option<Output>) -> Result<Lines, Failure> {
    if output == Some(Output::Events) {
        return Ok(Lines::default());
    }
    Err(Failure::usage("--control needs --output events: questions are asked there"))
}

fn begin(
    options: &TaskOptions,
    (words, pictures): (Words, &[PathBuf]),
    output: Option<Output>,
    tape: &TapeOptions,
    lines: Option<Lines>,
) -> Result<Exit, Failure> {
    let Words { text: prompt, mut images } = words;
    if prompt.trim().is_empty() {
        return Err(Failure::usage("there is nothing to do: say what"));
    }
    let config = Arc::new(Config::load(options.config.as_deref())?);
    let patience = config.patience()?;
    let mode = task::first_mode(options, &config);
    let chosen = config.choose(options.model.as_deref().or_else(|| modes::model_of(&config, mode)))?;
    let sight = Sight::of(&chosen);
    images.extend(sight.files(pictures)?);
    let images = sight.shown(images).map_err(Failure::usage)?;
    let edit_tool = task::edit_tool(options.edit_tool.as_deref().or(config.edit_tool.as_deref()), &chosen)?;
    let (folder, id) = (config::tasks_folder()?, task::new_id());
    let sandbox = Sandbox::new(Level::Off);
    let attended = attended(output, lines.as_ref());
    let (cancel, now) = (Cancel::default(), modes::now(mode));
    let known = Known { modes: modes::names(options, &config, Path::new("."))?, sight };
    let (watchers, user) = Watchers::new(output, lines, patience, (&id, &cancel), known);
    let wanted = Wanted { options, workspace: Path::new("."), tape, output, watchers, depth: 0, has: false };
    let household = wanted.household(&config, &chosen.name, &id, &now)?;
    let means = Means { edit_tool, jobs: task::jobs(&folder, &id), keeper: None, sandbox, household };
    let bench =
        Bench::new(options, &config, None, means)?.priced(&chosen)?.below(0, cancel).recorded(tape.record.is_some());
    let explicit = options.protocol.as_deref().or(config.protocol.as_deref());
    let protocol = task::protocol(explicit, None, &chosen)?;
    let begun = Begun { mode, model: &chosen.name, protocol: &protocol };
    let bench = bench.among(&config, options, begun, (&chosen, tape.record.is_some()))?.in_mode(now);
    let plan = Plan { id, prompt, model: &chosen.name, model_id: &chosen.id, protocol, from: None };
    let mut open = task::start(&bench, plan, attended, &folder)?;
    open.task = open.task.bringing(images);
    let mut open = telemetry::trace(open, &config, &bench, &chosen);
    let told = bench.told(open.task.start(), &chosen.id, &config);
    let (model, tape) = taped(&bench, &chosen, tape, told, output)?;
    watch(&bench, &mut open, &model, tape, (output, user))
}

/// `sabir resume`.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<Exit, Failure> {
    let (options, tape, output) = (&arguments.task, &arguments.tape, arguments.output);
    if output.is_none() && (tape.record.is_some() || tape.replay.is_some()) {
        return Err(Failure::usage("only tasks that nobody attends are recorded and replayed: give --output"));
    }
    without_tape(tape, &arguments.pictures.image)?;
    let lines = arguments.control.control.then(|| controlled(output)).transpose()?;
    let words = Some(arguments.words.join(" ")).filter(|words| !words.trim().is_empty());
    if let Some(file) = &tape.replay {
        return resume_replay(arguments, file, words);
    }
    let config = Arc::new(Config::load(options.config.as_deref())?);
    let patience = config.patience()?;
    let folder = config::tasks_folder()?;
    let (id, journal, records) = opened(&folder, arguments)?;
    let start = started(&id, &records)?;
    check_protocol(start, options)?;
    let options = &task::kept_mode(&records, options);
    let mode = task::first_mode(options, &config);
    let begun = Begun { mode: task::begun_mode(start), model: &start.model, protocol: &start.protocol };
    let (chosen, note) = modes::chosen(mode, begun, &config, options)?;
    if let Some(note) = note {
        print::err(&print::visible(&format!("sabir: mode {mode}: {note}\n")));
    }
    let attended = attended(output, lines.as_ref());
    let (cancel, workspace) = (Cancel::default(), task::workspace_of(start));
    let sight = Sight::of(&chosen);
    let images = sight.files(&arguments.pictures.image)?;
    let known = Known { modes: modes::names(options, &config, &workspace)?, sight };
    let (watchers, user) = Watchers::new(output, lines, patience, (&id, &cancel), known);
    let (has, now) = (records.iter().any(family::is_asked_for), modes::now(mode));
    let wanted = Wanted { options, workspace: &workspace, tape, output, watchers, depth: start.depth(), has };
    let means = Means {
        edit_tool: task::kept_edit_tool(start, options)?,
        jobs: task::jobs(&folder, &id),
        keeper: None,
        sandbox: Sandbox::new(Level::Off),
        household: wanted.household(&config, &chosen.name, &id, &now)?,
    };
    let bench = Bench::new(options, &config, Some(&workspace), means)?.priced(&chosen)?.below(start.depth(), cancel);
    let bench = bench.recorded(tape.record.is_some());
    let bench = bench.among(&config, options, begun, (&chosen, tape.record.is_some()))?.in_mode(now);
    let told = bench.told(start, &chosen.id, &config);
    let told = Told { records: records.clone(), words: words.clone(), ..told };
    let settings = bench.settings(&chosen.id, attended);
    let task = Task::replay(records, settings).map_err(|error| match error {
        ReplayError::Completed => {
            Failure::usage(format!("{id}: {error}; `sabir fork {id} WORDS` goes on from it as a new task"))
        }
        error => Failure::usage(format!("{id}: {error}")),
    })?;
    let task = task.within(bench.context.clone()).among(bench.modes.outfits()).bringing(images);
    let open = Open { task, store: Box::new(journal), first: None, words };
    let mut open = telemetry::trace(open, &config, &bench, &chosen);
    let (model, tape) = taped(&bench, &chosen, tape, told, output)?;
    watch(&bench, &mut open, &model, tape, (output, user))
}

/// The journal of the task that is to go on, and what it holds.
fn opened(folder: &Path, arguments: &ResumeArguments) -> Result<(TaskId, Journal, Vec<Record>), Failure> {
    let id = match &arguments.id {
        Some(name) => task::find(folder, name)?,
        None => newest(folder, arguments.task.folder.as_deref().unwrap_or(Path::new(".")))?,
    };
    let (journal, entries, recovery) =
        Journal::open(folder, &id, task::clock()).map_err(|error| Failure::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::err(&format!("sabir: {recovery}\n"));
    }
    let records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
    Ok((id, journal, records))
}

/// How a task began that can go on.
fn started<'r>(id: &TaskId, records: &'r [Record]) -> Result<&'r Start, Failure> {
    let Some(Record::Started(start)) = records.first() else {
        return Err(Failure::usage(format!("the journal of {id} does not begin with the start of a task")));
    };
    if matches!(start.from, Some(Origin::Import { .. })) {
        return Err(Failure::usage(format!(
            "the task {id} is another program's and cannot be resumed; `sabir fork {id} --model MODEL` goes on from it as a new task"
        )));
    }
    Ok(start)
}

/// A resumed task is locked to its protocol.
fn check_protocol(start: &Start, options: &TaskOptions) -> Result<(), Failure> {
    let locked = start.protocol.name();
    if locked != "native" && sabir_call::dialect::dialect(locked).is_none() {
        return Err(Failure::usage(format!(
            "this task is locked to the dialect `{locked}`, which is not defined here: give its table with --dialects FILE"
        )));
    }
    let wanted = options.protocol.as_deref().map(task::named_protocol).transpose()?;
    if wanted.is_some_and(|protocol| protocol != start.protocol) {
        return Err(Failure::usage(format!(
            "this task is locked to the protocol `{locked}`; a new task may use another"
        )));
    }
    Ok(())
}

/// The model with a recorder around it, if one is wanted.
fn taped(
    bench: &Bench,
    chosen: &Chosen,
    tape: &TapeOptions,
    told: Told,
    output: Option<Output>,
) -> Result<(Routed<Renewing<HttpModel>>, Tape), Failure> {
    let Some(file) = &tape.record else {
        let model = |chosen: &Chosen| chosen.model(move |model| tell_retries(model, output));
        return Ok((bench.modes.routed(model(chosen), model), Tape::Without));
    };
    let told = Told { renews: chosen.renews(), ..told };
    let recorder = cassette::record(&chosen.plain(), file, &told)?;
    let tape = Tape::recording(recorder.clone());
    let model = |chosen: &Chosen| {
        let recorder = recorder.clone();
        chosen.model(move |model| tell_retries(model.recorded_by(&recorder), output))
    };
    Ok((bench.modes.routed(model(chosen), model), tape))
}

/// `sabir resume --replay`: the cassette holds what had happened before.
fn resume_replay(arguments: &ResumeArguments, file: &Path, words: Option<String>) -> Result<Exit, Failure> {
    let (cassette, mut told) = cassette::read(file)?;
    let id = &told.start.task;
    if told.records.is_empty() {
        return Err(Failure::usage("the cassette is that of a new task: play it with `sabir run --replay`"));
    }
    if arguments.id.as_ref().is_some_and(|name| !id.as_str().starts_with(name)) {
        return Err(Failure::usage(format!("the cassette is that of the task {id}")));
    }
    told.words = words.or(told.words);
    replay(&arguments.task, cassette, told, arguments.output)
}

/// Plays a cassette to a task that is the recorded one, as far as the options do not say otherwise.
fn replay(options: &TaskOptions, cassette: Cassette, told: Told, output: Option<Output>) -> Result<Exit, Failure> {
    let recorded = &told.start.model;
    if options.model.as_ref().is_some_and(|model| model != recorded) {
        return Err(Failure::usage(format!("the cassette was recorded with the model `{recorded}`")));
    }
    check_protocol(&told.start, options)?;
    let options = &task::kept_mode(std::iter::once(&Record::Started(told.start.clone())).chain(&told.records), options);
    let config = Config::load(options.config.as_deref())?;
    let patience = config.patience()?;
    let bench = Bench::replaying(options, &config, &told, cassette.results.clone())?;
    let bench = bench.among_recorded(&config, task::begun_mode(&told.start), (&told.model, &told.modes))?;
    let (model, tape) = cassette::play(cassette, told.renews, move |model| tell_retries(model, output))?;
    if let (Tape::Playing(player, _), None) = (&tape, bench.max_time) {
        let cancel = bench.cancel.clone();
        player.on_dropped(move || cancel.cancel());
    }
    let settings = bench.settings(&told.model, attended(output, None));
    let Told { start, records, words, .. } = told;
    let (task, first) = if records.is_empty() {
        let (task, first) = Task::new(start, settings);
        (task, Some(first))
    } else {
        (Task::replay(records, settings).map_err(|error| Failure::usage(error.to_string()))?, None)
    };
    let task = task.within(bench.context.clone()).among(bench.modes.outfits());
    let mut open = Open { task, store: Box::new(Nowhere), first, words };
    let known = Known { modes: bench.modes.names(), sight: Sight::Sees };
    let task = open.task.start().task.clone();
    let (_, user) = Watchers::new(output, None, patience, (&task, &bench.cancel), known);
    watch(&bench, &mut open, &model, tape, (output, user))
}

/// The newest task of that workspace that did not complete.
fn newest(folder: &Path, workspace: &Path) -> Result<TaskId, Failure> {
    let here = std::fs::canonicalize(workspace)
        .map_err(|error| Failure::usage(format!("the folder {} cannot be opened: {error}", workspace.display())))?;
    let all = sabir_journal::list(folder).map_err(|error| Failure::internal(error.to_string()))?;
    let mut summaries = all.into_iter().filter_map(|listed| listed.summary.ok());
    let newest = summaries.find(|summary| {
        // A subtask is gone on with by its parent.
        let foreign = matches!(summary.from, Some(Origin::Import { .. } | Origin::Subtask { .. }));
        !foreign && summary.ended != Some(Outcome::Completed) && Path::new(&summary.workspace) == here
    });
    newest
        .map(|summary| summary.id)
        .ok_or_else(|| Failure::usage("there is no task that could be resumed in this folder; `sabir tasks` lists all"))
}

fn attended(output: Option<Output>, lines: Option<&Lines>) -> Attended {
    match (output, lines) {
        (None, _) => Attended::Yes,
        (Some(_), Some(_)) => Attended::Program,
        (Some(_), None) => Attended::No,
    }
}

fn tell_retries(model: HttpModel, output: Option<Output>) -> HttpModel {
    model.on_retry(move |retry| family::tell_retry(retry, output, None))
}

/// Drives a task before the right eyes and says how it ended.
fn watch(
    bench: &Bench,
    open: &mut Open,
    model: &dyn Model,
    mut tape: Tape,
    (output, mut user): Watcher,
) -> Result<Exit, Failure> {
    let id = open.task.start().task.clone();
    if bench.means.keeper.is_none() {
        print::err("sabir: checkpoints are off: `sabir undo` cannot go back on what this task changes\n");
    }
    let mut looked = Looked::begin(user.as_mut(), &bench.means.sandbox, &bench.workspace);
    let end = bench.drive(open, model, &mut Taped { user: &mut looked, tape: &mut tape });
    looked.say();
    let end = end?;
    if end.outcome == Outcome::StoreFailed && output == Some(Output::Events) {
        // No journal holds this one, and whoever reads the lines waits for it all the same.
        user.show(TaskEvent::Record(&Record::Ended { outcome: end.outcome, message: end.message.clone() }));
    }
    let completed = end.outcome == Outcome::Completed;
    if matches!(output, None | Some(Output::Text)) {
        print::err(&format!("{}: {}\n", print::counted(end.turns as usize, "turn"), spent::words(&end.totals)));
    }
    // After a request that was not the recorded one, those behind it are no news.
    let complaint = tape.complaint().filter(|_| end.outcome != Outcome::Misconfigured);
    let exit = complaint.as_ref().filter(|_| completed).map_or(Exit::from(end.outcome), |complaint| complaint.exit);
    match output {
        Some(Output::Json) => print::redacted(&json!({
            "task": id, "outcome": end.outcome, "exit_code": exit.code(), "message": end.message, "turns": end.turns,
            "usage": end.totals.usage, "estimate": end.totals.estimate, "cost": end.totals.cost,
        })),
        Some(Output::Events) => {}
        Some(Output::Text) if completed => print::out(&print::visible(&format!("{}\n", end.message))),
        _ if completed => {}
        _ => print::err(&print::visible(&format!("sabir: {}\n", end.message))),
    }
    if matches!(output, None | Some(Output::Text)) && !completed && !matches!(tape, Tape::Playing(..)) {
        print::err(&format!("Go on with: sabir resume {id}\n"));
    }
    if let Some(complaint) = complaint {
        print::err(&print::visible(&format!("sabir: {}\n", complaint.message)));
    }
    Ok(exit)
}
