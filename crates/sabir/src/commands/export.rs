//! Implements `export`: writes a task as a document.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sabir_toolbox::export::{ExportFormat, render_task};

use sabir_session::policy_review::entries_start;

use crate::cli::{self, ExportArguments};
use crate::commands::journal;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

/// Runs `sabir export`.
pub(crate) fn run_export(arguments: &ExportArguments) -> Result<ExitStatus, CommandError> {
    let format = export_format(arguments)?;
    let (id, entries) = journal::read_entries(arguments.task.as_deref())?;
    let start = entries_start(&id, &entries)?;
    let text = render_task(start, &entries, format);
    match &arguments.output {
        Some(path) => save_file(path, &text)?,
        None if format == ExportFormat::Json => print::write_json_text(&text),
        None => print::write_stdout(&text),
    }
    Ok(ExitStatus::Completed)
}

/// Returns the requested format, or the one that the file's extension implies; Markdown by default.
fn export_format(arguments: &ExportArguments) -> Result<ExportFormat, CommandError> {
    if let Some(format) = arguments.to {
        return Ok(match format {
            cli::ExportFormat::Md => ExportFormat::Markdown,
            cli::ExportFormat::Json => ExportFormat::Json,
            cli::ExportFormat::Html => ExportFormat::Html,
        });
    }
    let extension = arguments
        .output
        .as_deref()
        .and_then(Path::extension)
        .and_then(|extension| extension.to_str());
    let Some(extension) = extension else {
        return Ok(ExportFormat::default());
    };
    ExportFormat::from_extension(extension).ok_or_else(|| {
        CommandError::usage(format!(
            "`.{extension}` is not the extension of a format: give --to md, json or html"
        ))
    })
}

/// Writes a new file that only its owner can read, because a task may contain private text. Never overwrites a file.
fn save_file(path: &Path, text: &str) -> Result<(), CommandError> {
    let fail = |error: std::io::Error| {
        CommandError::usage(format!(
            "{} cannot be written: {error}; give a new file in a folder that is there",
            path.display()
        ))
    };
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // A partial document would look like a complete one.
            let _ = std::fs::remove_file(path);
            fail(error)
        })
}
