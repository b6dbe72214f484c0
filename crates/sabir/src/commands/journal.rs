//! Implements `log`, which shows the records of a journal, and reads journals for other commands.

use std::time::Duration;

use sabir_agent::{Record, TaskEvent, TaskId};
use sabir_journal::{JournalEntry, JournalTail};
use sabir_session::policy_review::read_task_entries;
use sabir_toolbox::task_log::{LogReport, LogWriter, RecordRange, RecordRenderer, sum_usage};
use sabir_toolbox::text::usage_text;
use sabir_toolbox::{ReportFormat, ToolboxError};

use crate::cli::{LogArguments, OutputFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::event_renderer::EventRenderer;
use crate::output::print;
use crate::process_environment::{self, host};
use crate::report_output::ReportOutput;

/// The interval at which a followed journal is read.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Reads the entries of the task of that name, or of the newest one of this folder. Reports damage of
/// the journal on standard error.
pub(crate) fn read_entries(
    name: Option<&str>,
) -> Result<(TaskId, Vec<JournalEntry>), CommandError> {
    let (id, entries, recovery) = read_task_entries(host(), name)?;
    if !recovery.is_clean() {
        print::write_stderr(&print::sanitize_text(&format!("sabir: {recovery}\n")));
    }
    Ok((id, entries))
}

/// Renders records as the terminal shows them.
#[derive(Default)]
struct TerminalRecords(EventRenderer);

impl RecordRenderer for TerminalRecords {
    fn render_record(&mut self, record: &Record) -> String {
        self.0.render_event(TaskEvent::Record(record))
    }

    fn clean_text(&self, text: &str) -> String {
        print::sanitize_text(text)
    }
}

/// Runs `sabir log`.
pub(crate) fn run_log(arguments: &LogArguments) -> Result<ExitStatus, CommandError> {
    let range = match &arguments.records {
        None => RecordRange::default(),
        Some(text) => RecordRange::parse(text)?,
    };
    let mut renderer = TerminalRecords::default();
    let mut log = LogWriter::new(&mut renderer, arguments.output.into(), range);
    if arguments.follow {
        return follow_log(arguments, log);
    }
    let (id, entries) = read_entries(arguments.task.as_deref())?;
    let mut out = log_output(arguments.output);
    if arguments.output == OutputFormat::Json {
        LogReport::new(&id, &entries, range)
            .write_json(&mut out)
            .map_err(ToolboxError::from)?;
        return Ok(ExitStatus::Completed);
    }
    for entry in &entries {
        log.write_entry(entry, &mut out)
            .map_err(ToolboxError::from)?;
    }
    if arguments.output == OutputFormat::Text {
        let totals = usage_text(&sum_usage(&entries));
        print::write_stdout(&format!("in all: {totals}\n"));
    }
    Ok(ExitStatus::Completed)
}

/// Returns the output for a log. The text of each record is cleaned and redacted by itself.
fn log_output(format: OutputFormat) -> ReportOutput {
    match format {
        OutputFormat::Text => ReportOutput::exact(),
        OutputFormat::Json | OutputFormat::Events => ReportOutput::json(),
    }
}

/// Prints the records and those that follow, until no process works on the task any more.
fn follow_log(
    arguments: &LogArguments,
    mut log: LogWriter<'_>,
) -> Result<ExitStatus, CommandError> {
    if ReportFormat::from(arguments.output) == ReportFormat::Json {
        return Err(CommandError::usage(
            "one object cannot be followed: give --output text or --output events",
        ));
    }
    let folder = process_environment::tasks_folder()?;
    let fail = |error: sabir_journal::JournalError| CommandError::usage(error.to_string());
    let id = host().find_task(arguments.task.as_deref())?;
    let mut tail = JournalTail::open(&folder, &id).map_err(fail)?;
    loop {
        // The lock is checked before the journal is read, so that the last records are not missed.
        let works = tail.lock_owner().is_some();
        for entry in &tail.read_new_entries().map_err(fail)? {
            log.write_entry(entry, &mut log_output(arguments.output))
                .map_err(ToolboxError::from)?;
        }
        if !works || log.is_past_range() {
            return Ok(ExitStatus::Completed);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}
