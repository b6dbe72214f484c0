//! Implements `modes`: lists the modes of a folder.

use std::path::Path;

use sabir_policy::Mode;
use sabir_session::modes::{all_modes, model_of};
use sabir_workspace::Workspace;
use serde_json::json;

use crate::cli::{ModesArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;

/// Runs `sabir modes`.
pub(crate) fn modes(arguments: &ModesArguments) -> Result<ExitStatus, CommandError> {
    let config = surroundings::load_config(arguments.config.as_deref())?;
    let folder = arguments
        .folder
        .as_deref()
        .unwrap_or_else(|| Path::new("."));
    let workspace =
        Workspace::open(folder).map_err(|error| CommandError::usage(error.to_string()))?;
    let (all, faults) = all_modes(&config, &workspace);
    let groups = |mode: &Mode| {
        mode.groups
            .iter()
            .map(|group| group.name())
            .collect::<Vec<_>>()
    };
    match arguments.output {
        ReportFormat::Json => {
            let rows = all.iter().map(|mode| {
                let write: Vec<_> = mode.write.iter().map(ToString::to_string).collect();
                json!({
                    "name": mode.name, "about": mode.about, "tools": groups(mode), "write": write,
                    "instructions": mode.instructions, "model": model_of(&config, &mode.name),
                })
            });
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            print::print_json(&json!({"modes": rows.collect::<Vec<_>>(), "faults": faults}));
        }
        ReportFormat::Text => {
            let width = all
                .iter()
                .map(|mode| mode.name.chars().count())
                .max()
                .unwrap_or_default();
            let lines = all.iter().map(|mode| {
                let limit = if mode.write.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", mode.writable_patterns())
                };
                let model = model_of(&config, &mode.name)
                    .map(|model| format!("; model: {model}"))
                    .unwrap_or_default();
                let groups = groups(mode).join(", ");
                format!(
                    "{:<width$}  {}\n{:<width$}  tools: {groups}{limit}{model}\n",
                    mode.name, mode.about, ""
                )
            });
            print::write_stdout(&print::sanitize_text(&lines.collect::<String>()));
            faults.iter().for_each(|fault| {
                print::write_stderr(&print::sanitize_text(&format!("sabir: {fault}\n")))
            });
        }
    }
    Ok(ExitStatus::Completed)
}
