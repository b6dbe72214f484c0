//! Implements `context`: prints what fills a task's context, previews or makes a compaction, and undoes it.

use std::path::Path;

use sabir_call::redact;
use sabir_session::agent::TaskId;
use sabir_session::conventions::inspect_folder;
use sabir_session::{SummaryAuthor, TaskContext};
use sabir_terminal::{context_text, folder_text};
use serde_json::json;

use crate::cli::{ContextArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment::{self, host};

/// Runs `sabir context`.
pub(crate) fn run_context(arguments: &ContextArguments) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    if arguments.folder {
        let report = inspect_folder(Path::new("."), &config)?;
        match arguments.output {
            ReportFormat::Json => print::print_redacted_json(&json!(report)),
            ReportFormat::Text => {
                let text = redact::redact_text(&folder_text::render_folder(&report)).into_owned();
                print::write_stdout(&print::sanitize_text(&text));
            }
        }
        return Ok(ExitStatus::Completed);
    }
    let id = host().find_task(arguments.task.as_deref())?;
    let model = arguments.model.as_deref();
    if !arguments.compact && !arguments.undo {
        let context = TaskContext::open_read_only(host(), &id, config, model)?;
        print_usage(&id, &context, arguments);
        return Ok(ExitStatus::Completed);
    }
    let mut context = TaskContext::open_for_change(host(), &id, config, model)?;
    let runtime = process_environment::runtime()?;
    let changed = match (arguments.undo, arguments.plain) {
        (true, _) => runtime.block_on(context.undo_compaction())?,
        (_, true) => runtime.block_on(context.compact_context(SummaryAuthor::Sabir))?,
        _ => runtime.block_on(context.compact_context(SummaryAuthor::Model))?,
    };
    let Some(change) = changed else {
        let why = if arguments.undo {
            "there is no compaction to undo"
        } else {
            "there is nothing that a compaction could leave out"
        };
        return Err(CommandError::usage(format!("{id}: {why}")));
    };
    match arguments.output {
        ReportFormat::Json => print::print_redacted_json(&json!({"task": id, "context": change})),
        ReportFormat::Text => {
            let text = context_text::change_text(&id, &change);
            print::write_stdout(&print::sanitize_text(&text));
        }
    }
    Ok(ExitStatus::Completed)
}

/// Prints what fills the context, with a preview of a compaction if requested.
fn print_usage(id: &TaskId, context: &TaskContext, arguments: &ContextArguments) {
    let usage = context.context_usage();
    let preview = arguments.preview.then(|| context.preview_compaction());
    let preview = preview.as_ref().map(Option::as_ref);
    match arguments.output {
        ReportFormat::Json => {
            print::print_redacted_json(&context_text::usage_json(id, &usage, preview));
        }
        ReportFormat::Text => {
            let usage = context_text::render_usage(&usage);
            let preview = preview
                .map(context_text::render_preview)
                .unwrap_or_default();
            let text = format!("task {id}: {usage}{preview}");
            print::write_stdout(&print::sanitize_text(&redact::redact_text(&text)));
        }
    }
}
