//! Implements `modes`: lists the modes of a folder.

use std::path::Path;

use sabir_session::modes::{all_modes, model_of};
use sabir_toolbox::modes::{ModeListing, ModeSummary};
use sabir_workspace::Workspace;

use crate::cli::{ModesArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment;
use crate::report_output::print_report;

/// Runs `sabir modes`.
pub(crate) fn modes(arguments: &ModesArguments) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let folder = arguments
        .folder
        .as_deref()
        .unwrap_or_else(|| Path::new("."));
    let workspace =
        Workspace::open(folder).map_err(|error| CommandError::usage(error.to_string()))?;
    let (modes, faults) = all_modes(&config, &workspace);
    let listing = ModeListing {
        modes: modes
            .iter()
            .map(|mode| ModeSummary::new(mode, model_of(&config, &mode.name)))
            .collect(),
        faults: faults.iter().map(ToString::to_string).collect(),
    };
    print_report(&listing, arguments.output)?;
    if arguments.output == ReportFormat::Text {
        for fault in &listing.faults {
            print::write_stderr(&print::sanitize_text(&format!("sabir: {fault}\n")));
        }
    }
    Ok(ExitStatus::Completed)
}
