//! Offers the toolbox to other agents: reading, checking and linting calls in any format, and applying edits.

use std::sync::Arc;

use sabir_session::agent::ProgressSink;
use sabir_session::built_in_tools;
use sabir_session::call::dialect::DialectSet;
use sabir_session::call::{Event, ToolSpec};
use sabir_session::config::Config;
use sabir_session::mcp::protocol::{ServedFuture, ServedResource, ServedResult, ServedTool};
use sabir_toolbox::ToolboxError;
use sabir_toolbox::documents::{document_names, find_document};
use sabir_toolbox::edit::edit_text;
use sabir_toolbox::lint::{LintOptions, lint_text};
use sabir_toolbox::parse::{ParseOptions, parse_text, parse_tools, select_dialect};
use serde_json::{Map, Value, json};

/// The maximum number of bytes of a text that is read.
const MAX_INPUT_BYTES: usize = 4 << 20;

/// The functions of the toolbox that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolboxFunction {
    Parse,
    Check,
    Lint,
    Edit,
}

/// A function of the toolbox as a tool.
#[derive(Clone)]
struct ToolboxTool {
    function: ToolboxFunction,
    dialects: DialectSet,
}

/// Returns the functions of the toolbox as tools.
pub(crate) fn toolbox_tools(config: &Config) -> Vec<Arc<dyn ServedTool>> {
    [
        ToolboxFunction::Parse,
        ToolboxFunction::Check,
        ToolboxFunction::Lint,
        ToolboxFunction::Edit,
    ]
    .into_iter()
    .map(|function| {
        let dialects = config.dialects().clone();
        Arc::new(ToolboxTool { function, dialects }) as Arc<dyn ServedTool>
    })
    .collect()
}

/// Returns the documents of `sabir help` as resources.
pub(crate) fn help_resources() -> Vec<ServedResource> {
    document_names()
        .filter_map(|name| {
            Some(ServedResource {
                uri: format!("sabir://help/{name}"),
                name: name.to_owned(),
                description: format!("The page that `sabir help {name}` prints."),
                text: find_document(name)?,
            })
        })
        .collect()
}

/// The failure of a call.
#[derive(Debug, thiserror::Error)]
enum ToolboxCallError {
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{0}` has more than {MAX_INPUT_BYTES} bytes")]
    TooLong(&'static str),
    #[error("{0}")]
    Edit(String),
    #[error(transparent)]
    Toolbox(#[from] ToolboxError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl ToolboxTool {
    fn run_function(&self, arguments: &Map<String, Value>) -> Result<String, ToolboxCallError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let needed = |name: &'static str| {
            let value = text(name).ok_or(ToolboxCallError::Missing(name))?;
            match value.len() > MAX_INPUT_BYTES {
                true => Err(ToolboxCallError::TooLong(name)),
                false => Ok(value),
            }
        };
        let dialect = select_dialect(&self.dialects, text("dialect").unwrap_or("auto"))?;
        match self.function {
            ToolboxFunction::Parse | ToolboxFunction::Check => {
                let tools = match arguments.get("tools") {
                    Some(tools) => parse_tools(&tools.to_string(), "tools")?,
                    None => built_in_tools(),
                };
                let options = ParseOptions {
                    dialect,
                    dialects: &self.dialects,
                    ..ParseOptions::new(tools)
                };
                let parsed =
                    parse_text(needed("text")?.as_bytes(), &options, &mut |_: Event<'_>| {});
                if self.function == ToolboxFunction::Parse {
                    Ok(serde_json::to_string(&parsed.report())?)
                } else {
                    Ok(serde_json::to_string(&parsed.check_report())?)
                }
            }
            ToolboxFunction::Lint => {
                let tools = arguments
                    .get("tools")
                    .ok_or(ToolboxCallError::Missing("tools"))?;
                let options = LintOptions {
                    dialects: &self.dialects,
                    dialect,
                    deny_warnings: false,
                    source_name: "tools".to_owned(),
                };
                let report = lint_text(&tools.to_string(), &options)?;
                Ok(serde_json::to_string(&report)?)
            }
            ToolboxFunction::Edit => match edit_text(needed("text")?, needed("edit")?, None) {
                Ok(edited) => Ok(edited.content),
                Err(problems) => Err(ToolboxCallError::Edit(
                    problems
                        .iter()
                        .map(|problem| {
                            format!(
                                "line {}: {}; {}",
                                problem.line, problem.message, problem.hint
                            )
                        })
                        .collect::<Vec<_>>()
                        .join("\n"),
                )),
            },
        }
    }
}

impl ServedTool for ToolboxTool {
    fn spec(&self) -> ToolSpec {
        let text = json!({"type": "string", "description": "The raw text of a model."});
        let dialect = json!({"type": "string", "description": "Listen for this dialect only, such as `cline`."});
        let tools = json!({"type": "array", "items": {"type": "object"}, "description": "Tool definitions: {name, description, parameters}."});
        let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
        match self.function {
            ToolboxFunction::Parse => ToolSpec::new(
                "parse_calls",
                "Reads a model's text and returns the tool calls in it, in any of about fifty formats, as JSON.",
                object(
                    json!({"text": text, "dialect": dialect, "tools": tools}),
                    &["text"],
                ),
            ),
            ToolboxFunction::Check => ToolSpec::new(
                "check_calls",
                "Checks the tool calls in a model's text against tool definitions; returns what is wrong and the feedback for the model.",
                object(
                    json!({"text": text, "dialect": dialect, "tools": tools}),
                    &["text"],
                ),
            ),
            ToolboxFunction::Lint => ToolSpec::new(
                "lint_tools",
                "Finds mistakes in tool definitions: names that collide, schemas that a format cannot express, missing descriptions.",
                object(json!({"tools": tools, "dialect": dialect}), &["tools"]),
            ),
            ToolboxFunction::Edit => ToolSpec::new(
                "edit_text",
                "Applies an edit, as models write it (SEARCH/REPLACE blocks, `*** Begin Patch`), to a text and returns the new text.",
                object(
                    json!({"text": {"type": "string", "description": "The old text."}, "edit": {"type": "string", "description": "The edit."}}),
                    &["text", "edit"],
                ),
            ),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, arguments: Map<String, Value>, _: ProgressSink<'a>) -> ServedFuture<'a> {
        let tool = self.clone();
        Box::pin(async move {
            // A long text must not hold up the other clients.
            let run = tokio::task::spawn_blocking(move || tool.run_function(&arguments));
            match run.await {
                Ok(Ok(text)) => ServedResult::done(text),
                Ok(Err(error)) => ServedResult::failed(error.to_string()),
                Err(error) => ServedResult::failed(format!("the function failed: {error}")),
            }
        })
    }
}
