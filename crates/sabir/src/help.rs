//! `help`: a command, a dialect, how to define one, what `lint` finds, how edits are applied, or the wires.

use clap::CommandFactory;
use sabir_call::nearest;
use sabir_check::lint::LINTS;

use crate::cli::{Cli, Output};
use crate::exit::{Exit, Failure};
use crate::{dialects, print};

/// How dialects look, and how to define one.
const DIALECTS: &str = include_str!("../../../docs/dialects.md");

/// How edits are applied.
const EDITS: &str = include_str!("../../../docs/edits.md");

/// What wires are, and how to look at what they carry.
const WIRES: &str = include_str!("../../../docs/wires.md");

/// `sabir help`.
pub(crate) fn help(topic: &[String]) -> Result<Exit, Failure> {
    let words: Vec<_> = topic.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["dialect", name] => return dialects::dialects(Some(name), Output::Text),
        ["dialect"] => return dialects::dialects(None, Output::Text),
        ["dialects"] => print::out(DIALECTS),
        ["edits"] => print::out(EDITS),
        ["wires"] => print::out(WIRES),
        ["lints"] => {
            let lines: String = LINTS.iter().map(|lint| format!("{}\n    {}\n", lint.name, lint.doc)).collect();
            print::out(&lines);
        }
        words => print::out(&of_command(words)?),
    }
    Ok(Exit::Completed)
}

fn of_command(words: &[&str]) -> Result<String, Failure> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in words {
        let names: Vec<String> = command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
        let topics = ["dialect", "dialects", "edits", "lints", "wires"];
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            let near = nearest(word, names.iter().map(String::as_str).chain(topics));
            let hint = near.map_or_else(
                || "`sabir --help` lists the commands".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            Failure::usage(format!("there is no help on `{word}`: {hint}"))
        })?;
    }
    Ok(command.render_long_help().to_string())
}
