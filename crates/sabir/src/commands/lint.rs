//! Implements `lint`: finds mistakes in tool definitions before a model has to work with them.

use std::io::Read;

use sabir_call::dialect::Dialect;
use sabir_call::{ParallelCalls, Severity, ToolChoice, ToolInstructions, ToolSet};
use sabir_check::lint::{LintFinding, LintScope, lint_tools as find};
use serde_json::{Map, Value, json};

use crate::cli::{DenyLevel, LintArguments, OutputFormat};
use crate::exit::unknown_dialect;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::config;

/// Runs `sabir lint`.
pub(crate) fn run_lint(arguments: &LintArguments) -> Result<ExitStatus, CommandError> {
    let known = surroundings::dialects();
    let (scope, taught): (_, Vec<&Dialect>) = match arguments.dialect.as_str() {
        "auto" => (LintScope::all(known), known.iter().collect()),
        name => {
            let dialect = known
                .find(name)
                .ok_or_else(|| unknown_dialect(name, "auto, "))?;
            (LintScope::for_dialect(known, dialect), vec![dialect])
        }
    };
    let (shown, text) = read_tools(arguments)?;
    let tools: Value = serde_json::from_str(&text)
        .map_err(|error| CommandError::usage(format!("{shown}: no JSON: {error}")))?;
    if !tools.is_array() {
        let kind = sabir_call::json_type_name(&tools);
        return Err(CommandError::usage(format!(
            "{shown}: an array of {{name, description, parameters}} was expected, but this is {kind}"
        )));
    }
    let found = find(&tools, &scope);
    let errors = found
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    let warnings = found.len() - errors;
    let sizes = prompt_sizes(&text, &taught);
    match arguments.output {
        OutputFormat::Json => {
            let sizes = sizes.map(|sizes| {
                sizes
                    .into_iter()
                    .map(|(name, size)| (name.to_owned(), json!(size)))
            });
            let sizes: Option<Map<_, _>> = sizes.map(Iterator::collect);
            print::print_json(&json!({
                "findings": found, "errors": errors, "warnings": warnings, "prompt_sizes": sizes,
            }));
        }
        OutputFormat::Events => found.iter().for_each(print::print_json),
        OutputFormat::Text => {
            let mut text: String = found
                .iter()
                .map(|finding| render_text(finding, &shown))
                .collect();
            if let Some(sizes) = sizes {
                let sizes: Vec<_> = sizes
                    .iter()
                    .map(|(name, size)| format!("{name} {size}"))
                    .collect();
                text.push_str(&format!("prompt sizes (tokens): {}\n", sizes.join(", ")));
            }
            let tools = tools.as_array().map_or(0, Vec::len);
            text.push_str(&format!(
                "{}, {}, {}\n",
                print::count_noun(tools, "tool"),
                print::count_noun(errors, "error"),
                print::count_noun(warnings, "warning")
            ));
            print::write_stdout(&print::sanitize_text(&text));
        }
    }
    let denied = arguments.deny == Some(DenyLevel::Warnings) && warnings > 0;
    Ok(if errors > 0 || denied {
        ExitStatus::NotUnderstood
    } else {
        ExitStatus::Completed
    })
}

/// Returns the size of the prompt in each dialect, in tokens (bytes / 4, as in `sabir prompt`);
/// `None` if the tools are not a valid set.
fn prompt_sizes(tools: &str, taught: &[&Dialect]) -> Option<Vec<(&'static str, usize)>> {
    let tools = ToolSet::from_json(tools).ok()?;
    let lesson = ToolInstructions {
        tools: &tools,
        servers: &[],
        parallel_calls: ParallelCalls::Many,
        tool_choice: &ToolChoice::Auto,
    };
    Some(
        taught
            .iter()
            .map(|dialect| {
                (
                    dialect.name,
                    lesson.render_prompt(dialect).len().div_ceil(4),
                )
            })
            .collect(),
    )
}

/// Reads the tools, and returns the name of the source and its text.
fn read_tools(arguments: &LintArguments) -> Result<(String, String), CommandError> {
    if arguments.tools.as_os_str() != "-" {
        return Ok((
            arguments.tools.display().to_string(),
            config::read_text(&arguments.tools)?,
        ));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| CommandError::usage(format!("standard input cannot be read: {error}")))?;
    Ok(("standard input".to_owned(), text))
}

/// Renders a finding in the style of a compiler.
fn render_text(finding: &LintFinding, shown: &str) -> String {
    let LintFinding {
        lint,
        severity,
        pointer,
        dialects,
        message,
        hint,
        ..
    } = finding;
    let word = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    // Names quoted from a tool may contain line breaks.
    let flat = |text: &str| text.replace(['\n', '\r'], " ");
    let message = flat(message);
    let pointer = flat(pointer);
    let mut text = format!("lint[{lint}]: {word}: {message}\n  --> {shown}#{pointer}\n");
    if !dialects.is_empty() {
        text.push_str(&format!("   = in: {}\n", dialects.join(", ")));
    }
    text.push_str(&format!("   = hint: {hint}\n"));
    text
}
