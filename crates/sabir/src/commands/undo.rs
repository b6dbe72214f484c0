//! Implements `undo` and `restore`: previews the changes, asks for confirmation, and restores
//! files.

use sabir_session::checkpoint_history::{CheckpointFolder, RestorePreview, UndoReport};
use sabir_terminal::checkpoint_text;

use crate::cli::{ConsentFlags, ReportFormat, RestoreArguments, UndoArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::process_environment::host;

/// Runs `sabir undo`.
pub(crate) fn run_undo(arguments: &UndoArguments) -> Result<ExitStatus, CommandError> {
    let UndoArguments { history, consent } = arguments;
    let folder = CheckpointFolder::open(host(), history.folder.as_deref())?;
    let (name, count) = history.task_and_count();
    let task = folder.find_task(name.as_deref())?;
    let preview = folder.preview_undo(&task, count, consent.force)?;
    restore(&folder, preview, *consent, history.output)
}

/// Runs `sabir restore`.
pub(crate) fn run_restore(arguments: &RestoreArguments) -> Result<ExitStatus, CommandError> {
    let folder = CheckpointFolder::open(host(), arguments.folder.as_deref())?;
    let consent = arguments.consent;
    let preview = folder.preview_restore(&arguments.call, &arguments.paths, consent.force)?;
    restore(&folder, preview, consent, arguments.output)
}

/// Shows the preview of a restore, asks for consent, and carries it out.
fn restore(
    folder: &CheckpointFolder,
    preview: RestorePreview,
    consent: ConsentFlags,
    output: ReportFormat,
) -> Result<ExitStatus, CommandError> {
    let is_text = output == ReportFormat::Text;
    if is_text {
        let text = checkpoint_text::preview_text(&preview);
        print::write_stdout(&print::sanitize_text(&text));
    }
    let has_items = preview.restored_items().next().is_some();
    let is_agreed =
        consent.yes || (is_text && has_items && output::confirm("Do it? [y]es, [n]o: ")?);
    let outcome = (is_agreed && has_items)
        .then(|| folder.restore(&preview))
        .transpose()?;
    let report = UndoReport {
        preview,
        outcome,
        is_agreed,
    };
    if is_text {
        let text = checkpoint_text::outcome_text(&report);
        print::write_stderr(&print::sanitize_text(&text));
    } else {
        print::print_json(&checkpoint_text::outcome_json(&report));
    }
    Ok(if report.is_complete() {
        ExitStatus::Completed
    } else {
        ExitStatus::Unfinished
    })
}
