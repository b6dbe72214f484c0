//! Implements `help`: prints help on a command, a dialect, a tool, the lints, or one of the
//! documents.

use clap::CommandFactory;
use sabir_agent::control;
use sabir_call::nearest_candidate;
use sabir_check::lint::LINTS;

use crate::cli::{Cli, OutputFormat};
use crate::commands::dialects;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

/// The topics that have a document of their own.
const TOPICS: [(&str, &str); 14] = [
    ("approval", include_str!("../../../../docs/approval.md")),
    (
        "checkpoints",
        include_str!("../../../../docs/checkpoints.md"),
    ),
    ("dialects", include_str!("../../../../docs/dialects.md")),
    ("edits", include_str!("../../../../docs/edits.md")),
    ("events", include_str!("../../../../docs/events.md")),
    ("gateway", include_str!("../../../../docs/gateway.md")),
    ("headless", include_str!("../../../../docs/headless.md")),
    ("ignore", include_str!("../../../../docs/ignore.md")),
    ("journal", include_str!("../../../../docs/journal.md")),
    ("modes", include_str!("../../../../docs/modes.md")),
    ("policy", include_str!("../../../../docs/policy.md")),
    ("sandbox", include_str!("../../../../docs/sandbox.md")),
    ("subtasks", include_str!("../../../../docs/subtasks.md")),
    ("wires", include_str!("../../../../docs/wires.md")),
];

/// Runs `sabir help`.
pub(crate) fn run_help(topic: &[String]) -> Result<ExitStatus, CommandError> {
    let words: Vec<_> = topic.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["dialect", name] => return dialects::run_dialects(Some(name), OutputFormat::Text),
        ["dialect"] => return dialects::run_dialects(None, OutputFormat::Text),
        ["lints"] => {
            let lines: String = LINTS
                .iter()
                .map(|lint| format!("{}\n    {}\n", lint.name, lint.doc))
                .collect();
            print::write_stdout(&lines);
        }
        ["tools" | "tool"] => print::write_stdout(&list_tools()),
        ["tool", name] => print::write_stdout(tool_manual(name)?),
        words => match TOPICS.iter().find(|(topic, _)| words == [*topic]) {
            Some((_, text)) => print::write_stdout(text),
            None => print::write_stdout(&command_help(words)?),
        },
    }
    Ok(ExitStatus::Completed)
}

/// Lists the built-in tools with their descriptions for models.
fn list_tools() -> String {
    let known = sabir_tools::builtin_specs()
        .into_iter()
        .chain(sabir_tools::unoffered_specs());
    let known = known
        .chain(control::control_specs())
        .chain(control::mode_dependent_specs());
    let mut text: String = known
        .map(|spec| format!("{}\n    {}\n", spec.name, spec.description))
        .collect();
    text.push_str(
        "`sabir help tool NAME` says what one does, and the exact words of its results.\n",
    );
    text
}

/// Returns the manual of a tool, or an error that suggests a similar name.
fn tool_manual(name: &str) -> Result<&'static str, CommandError> {
    let manuals: Vec<_> = sabir_tools::tool_manuals()
        .into_iter()
        .chain(control::tool_manuals())
        .collect();
    if let Some((_, manual)) = manuals.iter().find(|(known, _)| *known == name) {
        return Ok(manual);
    }
    let near = nearest_candidate(name, manuals.iter().map(|(known, _)| *known));
    let hint = near.map_or_else(
        || "`sabir help tools` lists them".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    Err(CommandError::usage(format!(
        "there is no tool `{name}`: {hint}"
    )))
}

/// Returns the long help of a command, or an error that suggests a similar name.
fn command_help(words: &[&str]) -> Result<String, CommandError> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in words {
        let names: Vec<String> = command
            .get_subcommands()
            .map(|known| known.get_name().to_owned())
            .collect();
        let topics = ["dialect", "lints", "tool", "tools"]
            .into_iter()
            .chain(TOPICS.map(|(topic, _)| topic));
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            let near = nearest_candidate(word, names.iter().map(String::as_str).chain(topics));
            let hint = near.map_or_else(
                || "`sabir --help` lists the commands".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            CommandError::usage(format!("there is no help on `{word}`: {hint}"))
        })?;
    }
    Ok(command.render_long_help().to_string())
}
