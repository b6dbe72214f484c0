//! Implements `checkpoints` and `diff`: lists what a task changed in a folder, by its checkpoints.

use sabir_session::checkpoint_history::CheckpointFolder;
use sabir_terminal::checkpoint_text;

use crate::cli::{HistoryArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::process_environment::host;

/// Runs `sabir checkpoints`.
pub(crate) fn run_checkpoints(arguments: &HistoryArguments) -> Result<ExitStatus, CommandError> {
    let folder = CheckpointFolder::open(host(), arguments.folder.as_deref())?;
    let (name, count) = arguments.task_and_count();
    let task = folder.find_task(name.as_deref())?;
    let list = folder.list(&task, count)?;
    output::print_report(
        arguments.output,
        || checkpoint_text::list_json(&list),
        || checkpoint_text::list_text(&list),
    );
    Ok(ExitStatus::Completed)
}

/// Runs `sabir diff`.
pub(crate) fn run_diff(arguments: &HistoryArguments) -> Result<ExitStatus, CommandError> {
    let folder = CheckpointFolder::open(host(), arguments.folder.as_deref())?;
    let (name, count) = arguments.task_and_count();
    let task = folder.find_task(name.as_deref())?;
    let diff = folder.diff(&task, count)?;
    let heading = checkpoint_text::diff_heading(&diff);
    print::write_stderr(&print::sanitize_text(&heading));
    if let Some(through) = diff.pruned_through {
        print::write_stderr(&format!(
            "sabir: the checkpoints up to call {through} were removed; this is what changed since\n"
        ));
    }
    if arguments.output == ReportFormat::Json {
        print::print_json(&checkpoint_text::diff_json(&diff));
        return Ok(ExitStatus::Completed);
    }
    // Cleaned on a terminal alone: unchanged when redirected, so that the patch can be applied.
    print::write_stdout(&checkpoint_text::diff_text(&diff));
    Ok(ExitStatus::Completed)
}

impl HistoryArguments {
    /// Returns the task's name and the number of calls. A single argument of up to three digits is the number of calls.
    pub(crate) fn task_and_count(&self) -> (Option<String>, Option<usize>) {
        let number = |text: &String| Some(text.parse().ok()?).filter(|_| text.len() <= 3);
        match (&self.task, self.count) {
            (Some(task), None) => match number(task) {
                Some(count) => (None, Some(count)),
                None => (Some(task.clone()), None),
            },
            (task, count) => (task.clone(), count),
        }
    }
}
