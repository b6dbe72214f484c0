//! Recognises the dialects of chat templates, each rendered in a process of its own with a limit of time and memory.

use std::time::{Duration, Instant};

use sabir_model::LocalServer;
use sabir_template::{RenderedTemplate, TemplateError, render_conversations};
use sabir_workspace::{CommandExit, OutputStream, ShellCommand, Workspace};
use serde::Serialize;

pub use sabir_template::{
    ArgumentForm, ChatTemplate, DialectCandidate, MatchLevel, RENDER_ARGUMENT, RecognizedCall,
    SourceError, TemplateEvidence, TemplateReport, TemplateVerdict, read_templates,
    recognize_template,
};

use crate::environment::Environment;

/// The time that the templates of a file may take together. Real ones take milliseconds.
const RENDER_TIMEOUT: Duration = Duration::from_secs(20);
/// The memory that the process may map, in KiB. Most of it is room for the stack, which is used only if values are nested deeply.
const MAX_MEMORY_KIB: u32 = 1 << 20;
/// The most bytes that are read of the process: 20 texts, each as long as a template may write one, in JSON.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// The dialect that the template of a local server teaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedTemplate {
    /// The address of the server.
    pub base_url: String,
    /// The dialect, if there is exactly one.
    pub dialect: Option<String>,
    /// The reason for it, or for having none.
    pub reason: String,
}

/// Renders a template in a process of its own, within this time limit.
pub async fn render_isolated(
    template: &str,
    limit: Duration,
    environment: &Environment,
) -> RenderedTemplate {
    run_renderer(template, limit, environment)
        .await
        .unwrap_or_else(RenderedTemplate::failed)
}

async fn run_renderer(
    template: &str,
    limit: Duration,
    environment: &Environment,
) -> Result<RenderedTemplate, TemplateError> {
    if limit.is_zero() {
        return Err(TemplateError::TooExpensive);
    }
    let helper = &environment.helper_program;
    let program = helper.display().to_string().replace('\'', "'\\''");
    // Where the limit of memory cannot be set, as on macOS, that of time remains.
    let line =
        format!("ulimit -v {MAX_MEMORY_KIB} 2>/dev/null; exec '{program}' {RENDER_ARGUMENT}");
    let workspace =
        Workspace::open(&environment.temporary_folder).map_err(|_| TemplateError::Engine)?;
    let mut printed = Vec::new();
    let command = ShellCommand::new(line, helper.clone())
        .standard_input(template.as_bytes())
        .timeout(limit)
        .captured_bytes(0, 0);
    let outcome = command
        .run(&workspace, |stream, bytes| {
            if stream == OutputStream::Stdout && printed.len() <= MAX_OUTPUT_BYTES {
                printed.extend_from_slice(bytes);
            }
        })
        .await
        .map_err(|_| TemplateError::Engine)?;
    match outcome.end {
        CommandExit::Exited(0) if printed.len() <= MAX_OUTPUT_BYTES => {
            serde_json::from_slice(&printed).map_err(|_| TemplateError::Engine)
        }
        // A program that gets no memory is aborted, and the shell reports its signal as an exit
        // code.
        _ => Err(TemplateError::TooExpensive),
    }
}

/// Renders the template of a text and returns the JSON for [`render_isolated`]. A process that was started with
/// [`RENDER_ARGUMENT`] calls it.
pub fn render_to_json(template: &str) -> String {
    let rendered = render_conversations(template);
    serde_json::to_string(&rendered).unwrap_or_default()
}

/// Recognises the dialects of the templates of a file.
///
/// # Errors
/// The file holds no Jinja template.
pub async fn examine_templates(
    text: &str,
    environment: &Environment,
) -> Result<Vec<TemplateReport>, SourceError> {
    let mut reports = Vec::new();
    let start = Instant::now();
    for template in read_templates(text)? {
        let limit = RENDER_TIMEOUT.saturating_sub(start.elapsed());
        reports.push(examine_template(&template, limit, environment).await);
    }
    Ok(reports)
}

async fn examine_template(
    template: &ChatTemplate,
    limit: Duration,
    environment: &Environment,
) -> TemplateReport {
    let rendered = render_isolated(&template.text, limit, environment).await;
    recognize_template(template.name.as_deref(), &rendered, &environment.dialects)
}

/// Recognises the dialects of the templates that local servers publish.
pub async fn examine_servers(
    servers: &[LocalServer],
    environment: &Environment,
) -> Vec<ServedTemplate> {
    let mut found = Vec::new();
    for server in servers {
        found.push(examine_server(server, environment).await);
    }
    found
}

async fn examine_server(server: &LocalServer, environment: &Environment) -> ServedTemplate {
    let without = |reason: &str| ServedTemplate {
        base_url: server.base_url.clone(),
        dialect: None,
        reason: reason.to_owned(),
    };
    let Some(template) = &server.chat_template else {
        return without(match server.software {
            Some("ollama") => "Ollama has templates of Go, which are not read",
            _ => "the server does not show its chat template",
        });
    };
    // The text of one template, and never a file with several.
    let template = ChatTemplate {
        name: None,
        text: template.clone(),
    };
    let report = examine_template(&template, RENDER_TIMEOUT, environment).await;
    ServedTemplate {
        dialect: report.dialect,
        ..without(&report.reason)
    }
}
