//! The `sabir` binary: flags, configuration, wiring. The only reader of the environment and the only writer to the
//! terminal.

mod argument;
mod cli;
mod context;
mod controls;
mod crash;
mod dialects;
mod doctor;
mod edit;
mod exit;
mod explain;
mod export;
mod folded;
mod fork;
mod front_end;
mod gateway;
mod help;
mod history;
mod import;
mod interrupts;
mod journal;
mod judged;
mod lines;
mod lint;
mod models;
mod modes;
mod nested;
mod parse;
mod policy;
mod print;
mod prompt;
mod run;
mod sandbox;
mod sanitizer;
mod screen;
mod shown;
mod spent;
mod surroundings;
mod tasks;
mod terminal;
mod time;
mod tour;
mod trust;
mod typed;
mod undo;
mod wire;

use std::process::ExitCode;

use cli::{Cli, Command, PolicyCommand, WireCommand};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    // Commands are run by a copy of this program that outlives it just long enough to leave no process behind. It must be
    // recognised before anything else happens: it forks, and threads do not survive that.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == sabir_workspace::supervise::ARGUMENT) {
        return sabir_workspace::supervise::main(arguments);
    }
    crash::prepare();
    match dispatch() {
        Ok(Exit::Completed) if print::is_lost() => {
            print::err("sabir: standard output could not be written to the end\n");
            Exit::Internal.into()
        }
        Ok(exit) => exit.into(),
        Err(failure) => {
            print::err(&print::visible(&format!("sabir: {}\n", failure.message)));
            failure.exit.into()
        }
    }
}

fn dispatch() -> Result<Exit, Failure> {
    let (mut files, arguments) = dialects::in_front(std::env::args_os());
    let cli = Cli::read(&arguments)?;
    files.extend(cli.dialects.iter().cloned());
    match &cli.command {
        // What is wrong with the configuration is what it tells.
        Some(Command::Doctor(_)) => {}
        _ => drop(surroundings::load_config(cli.config())?),
    }
    sabir_session::dialect_tables::load_dialect_files(&files)?;
    match &cli.command {
        None => run::interactive(&cli.task, &cli.pictures.image, &cli.words),
        Some(Command::Run(arguments)) => run::run(arguments),
        Some(Command::Resume(arguments)) => run::resume(arguments),
        Some(Command::Fork(arguments)) => fork::fork(arguments),
        Some(Command::Log(arguments)) => journal::log(arguments),
        Some(Command::Context(arguments)) => context::context(arguments),
        Some(Command::Tasks(arguments)) => tasks::tasks(arguments),
        Some(Command::Export(arguments)) => export::export(arguments),
        Some(Command::Import(arguments)) => import::import(arguments),
        Some(Command::Checkpoints(arguments)) => history::checkpoints(arguments),
        Some(Command::Diff(arguments)) => history::diff(arguments),
        Some(Command::Undo(arguments)) => undo::undo(arguments),
        Some(Command::Restore(arguments)) => undo::restore(arguments),
        Some(Command::Tour { folder }) => tour::tour(folder.as_deref()),
        Some(Command::Parse(arguments)) => parse::parse(arguments),
        Some(Command::Check(arguments)) => judged::check(arguments),
        Some(Command::Explain(arguments)) => explain::explain(arguments),
        Some(Command::Prompt(arguments)) => prompt::prompt(arguments),
        Some(Command::Dialects { name, output }) => dialects::dialects(name.as_deref(), *output),
        Some(Command::Doctor(arguments)) => doctor::doctor(arguments),
        Some(Command::Gateway(arguments)) => gateway::gateway(arguments),
        Some(Command::Edit(arguments)) => edit::edit(arguments),
        Some(Command::Sandbox(arguments)) => sandbox::sandbox(arguments),
        Some(Command::Models(arguments)) => models::models(arguments),
        Some(Command::Lint(arguments)) => lint::lint(arguments),
        Some(Command::Help { topic }) => help::help(topic),
        Some(Command::Policy { command: PolicyCommand::Explain(arguments) }) => policy::explain(arguments),
        Some(Command::Policy { command: PolicyCommand::Simulate(arguments) }) => policy::simulate(arguments),
        Some(Command::Modes(arguments)) => modes::modes(arguments),
        Some(Command::Trust(arguments)) => trust::trust(arguments),
        Some(Command::Wire { command: WireCommand::Decode(arguments) }) => wire::decode(arguments),
        Some(Command::Wire { command: WireCommand::Encode(arguments) }) => wire::encode(arguments),
    }
}
