//! Resolves the settings that a task is locked to from its beginning: its protocol and its edit tool.
//!
//! Both shape the history of the task: a model would be confused by calls in a form that it was not taught.

use sabir_agent::TaskStart;
use sabir_call::ToolProtocol;
use sabir_call::dialect::DialectSet;
use sabir_model::resolve_protocol;
use sabir_tools::{EditTool, EditToolError};

use crate::config::ResolvedModel;
use crate::dialect_tables;
use crate::error::SessionError;
use crate::spec::SessionSpec;

/// Returns the protocol of a task: the explicit one, else that of the journal, else that of the catalogue, else native.
///
/// # Errors
/// When a protocol is neither `native` nor a known dialect.
pub fn task_protocol(
    dialects: &DialectSet,
    explicit: Option<&str>,
    journal: Option<ToolProtocol>,
    chosen: &ResolvedModel,
) -> Result<ToolProtocol, SessionError> {
    let explicit = explicit.map(|name| parse_protocol(dialects, name));
    match resolve_protocol(explicit.transpose()?, journal, chosen.entry.as_ref()).0 {
        ToolProtocol::Prompted(name) => parse_protocol(dialects, &name),
        ToolProtocol::Native => Ok(ToolProtocol::Native),
    }
}

/// Returns the edit tool of a new task: the explicit one, else that of the catalogue, else the default.
///
/// # Errors
/// When there is no edit tool with this name.
pub fn resolve_edit_tool(
    explicit: Option<&str>,
    chosen: &ResolvedModel,
) -> Result<EditTool, SessionError> {
    let known = chosen
        .entry
        .as_ref()
        .and_then(|entry| entry.edit_tool.as_deref());
    parse_edit_tool(explicit.or(known))
}

/// Returns the edit tool that a task is locked to.
///
/// # Errors
/// When the options ask for another edit tool.
pub fn locked_edit_tool(
    start: &TaskStart,
    options: &SessionSpec,
) -> Result<EditTool, SessionError> {
    let kept = parse_edit_tool(start.edit_tool.as_deref())?;
    let wanted = options
        .edit_tool
        .as_deref()
        .map(|name| parse_edit_tool(Some(name)))
        .transpose()?;
    if wanted.is_some_and(|wanted| wanted != kept) {
        return Err(SessionError::invalid(format!(
            "this task is locked to the edit tool `{}`; a new task may use another",
            kept.name()
        )));
    }
    Ok(kept)
}

fn parse_edit_tool(name: Option<&str>) -> Result<EditTool, SessionError> {
    let tool = name.map(str::parse).transpose();
    Ok(tool
        .map_err(|error: EditToolError| SessionError::invalid(error.to_string()))?
        .unwrap_or_default())
}

/// Parses the name of a protocol: `native`, or a dialect's name or alias.
///
/// # Errors
/// When no dialect has this name.
pub fn parse_protocol(dialects: &DialectSet, name: &str) -> Result<ToolProtocol, SessionError> {
    match (name, dialects.find(name)) {
        ("native", _) => Ok(ToolProtocol::Native),
        (_, Some(dialect)) => Ok(ToolProtocol::Prompted(dialect.name.to_owned())),
        _ => {
            let message = dialect_tables::unknown_dialect(dialects, name, "").to_string();
            Err(SessionError::invalid(message.replacen(
                "is not a dialect",
                "is not a protocol, neither `native` nor a dialect",
                1,
            )))
        }
    }
}
