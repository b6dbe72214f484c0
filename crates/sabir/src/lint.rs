//! `lint`: mistakes in tools, before a model makes them its own.

use std::io::Read;

use sabir_call::dialect::{Dialect, dialect, dialects as all};
use sabir_call::{Lesson, Parallel, Severity, ToolChoice, ToolSet};
use sabir_check::lint::{Finding, Scope, lint as find};
use serde_json::{Map, Value, json};

use crate::cli::{Deny, LintArguments, Output};
use crate::exit::unknown_dialect;
use crate::exit::{Exit, Failure};
use crate::print;
use sabir_session::config;

/// `sabir lint`.
pub(crate) fn lint(arguments: &LintArguments) -> Result<Exit, Failure> {
    let (scope, taught) = match arguments.dialect.as_str() {
        "auto" => (Scope::all(), all()),
        name => {
            let dialect = dialect(name).ok_or_else(|| unknown_dialect(name, "auto, "))?;
            (Scope::only(dialect), vec![dialect])
        }
    };
    let (shown, text) = source(arguments)?;
    let tools: Value =
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{shown}: no JSON: {error}")))?;
    if !tools.is_array() {
        let kind = sabir_call::type_of(&tools);
        return Err(Failure::usage(format!(
            "{shown}: an array of {{name, description, parameters}} was expected, but this is {kind}"
        )));
    }
    let found = find(&tools, &scope);
    let errors = found.iter().filter(|finding| finding.severity == Severity::Error).count();
    let warnings = found.len() - errors;
    let sizes = prompt_sizes(&text, &taught);
    match arguments.output {
        Output::Json => {
            let sizes = sizes.map(|sizes| sizes.into_iter().map(|(name, size)| (name.to_owned(), json!(size))));
            let sizes: Option<Map<_, _>> = sizes.map(Iterator::collect);
            print::json(&json!({
                "findings": found, "errors": errors, "warnings": warnings, "prompt_sizes": sizes,
            }));
        }
        Output::Events => found.iter().for_each(print::json),
        Output::Text => {
            let mut text: String = found.iter().map(|finding| in_words(finding, &shown)).collect();
            if let Some(sizes) = sizes {
                let sizes: Vec<_> = sizes.iter().map(|(name, size)| format!("{name} {size}")).collect();
                text.push_str(&format!("prompt sizes (tokens): {}\n", sizes.join(", ")));
            }
            let tools = tools.as_array().map_or(0, Vec::len);
            text.push_str(&format!(
                "{}, {}, {}\n",
                print::counted(tools, "tool"),
                print::counted(errors, "error"),
                print::counted(warnings, "warning")
            ));
            print::out(&print::visible(&text));
        }
    }
    let denied = arguments.deny == Some(Deny::Warnings) && warnings > 0;
    Ok(if errors > 0 || denied { Exit::NotUnderstood } else { Exit::Completed })
}

/// What the prompt costs in each dialect, in tokens (bytes / 4), as `sabir prompt` counts them; `None` where the tools
/// cannot be offered together.
fn prompt_sizes(tools: &str, taught: &[&'static Dialect]) -> Option<Vec<(&'static str, usize)>> {
    let tools = ToolSet::from_json(tools).ok()?;
    let lesson = Lesson { tools: &tools, servers: &[], parallel: Parallel::Many, choice: &ToolChoice::Auto };
    Some(taught.iter().map(|dialect| (dialect.name, lesson.teach(dialect).len().div_ceil(4))).collect())
}

fn source(arguments: &LintArguments) -> Result<(String, String), Failure> {
    if arguments.tools.as_os_str() != "-" {
        return Ok((arguments.tools.display().to_string(), config::read_text(&arguments.tools)?));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
    Ok(("standard input".to_owned(), text))
}

/// As a compiler would print it.
fn in_words(finding: &Finding, shown: &str) -> String {
    let Finding { lint, severity, pointer, dialects, message, hint, .. } = finding;
    let word = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    // What a message repeats of a tool may have lines of its own.
    let flat = |text: &str| text.replace(['\n', '\r'], " ");
    let (message, pointer) = (flat(message), flat(pointer));
    let mut text = format!("lint[{lint}]: {word}: {message}\n  --> {shown}#{pointer}\n");
    if !dialects.is_empty() {
        text.push_str(&format!("   = in: {}\n", dialects.join(", ")));
    }
    text.push_str(&format!("   = hint: {hint}\n"));
    text
}
