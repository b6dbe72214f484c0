//! Prints reports of the toolbox: maps formats and cleans foreign text.

pub(crate) use sabir_terminal::report_output::ReportOutput;
use sabir_toolbox::ToolboxError;
use sabir_toolbox::report::{Report, ReportFormat};

use crate::cli;
use crate::exit::CommandError;

/// Returns standard output as a writer for a report in that format.
pub(crate) fn report_output(format: ReportFormat) -> ReportOutput {
    if format == ReportFormat::Text {
        ReportOutput::cleaned()
    } else {
        ReportOutput::json()
    }
}

/// Prints a report. Text is cleaned.
pub(crate) fn print_report(
    report: &impl Report,
    format: impl Into<ReportFormat>,
) -> Result<(), CommandError> {
    let format = format.into();
    Ok(report
        .write_as(format, &mut report_output(format))
        .map_err(ToolboxError::from)?)
}

/// Prints a report whose text must arrive unchanged, because it is input for another program.
pub(crate) fn print_exact_report(
    report: &impl Report,
    format: impl Into<ReportFormat>,
) -> Result<(), CommandError> {
    let format = format.into();
    let mut out = match format {
        ReportFormat::Text => ReportOutput::exact(),
        _ => ReportOutput::json(),
    };
    Ok(report
        .write_as(format, &mut out)
        .map_err(ToolboxError::from)?)
}

impl From<cli::OutputFormat> for ReportFormat {
    fn from(format: cli::OutputFormat) -> Self {
        match format {
            cli::OutputFormat::Text => Self::Text,
            cli::OutputFormat::Json => Self::Json,
            cli::OutputFormat::Events => Self::JsonLines,
        }
    }
}

impl From<cli::ReportFormat> for ReportFormat {
    fn from(format: cli::ReportFormat) -> Self {
        match format {
            cli::ReportFormat::Text => Self::Text,
            cli::ReportFormat::Json => Self::Json,
        }
    }
}
