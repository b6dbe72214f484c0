//! What a task is locked to from its beginning: its protocol, and the tool that edits.

use sabir_agent::Start;
use sabir_call::Protocol;
use sabir_call::dialect::dialect;
use sabir_model::resolve;
use sabir_tools::{EditTool, EditToolError};

use crate::config::Chosen;
use crate::dialect_tables;
use crate::error::SessionError;
use crate::spec::SessionSpec;

/// The protocol of a task: explicit, else the journal's, else the catalogue's, else native.
pub fn protocol(explicit: Option<&str>, journal: Option<Protocol>, chosen: &Chosen) -> Result<Protocol, SessionError> {
    let explicit = explicit.map(named_protocol);
    match resolve(explicit.transpose()?, journal, chosen.entry.as_ref()).0 {
        Protocol::Prompted(name) => named_protocol(&name),
        Protocol::Native => Ok(Protocol::Native),
    }
}

/// The edit tool of a new task: explicit, else the catalogue's, else the usual one.
pub fn edit_tool(explicit: Option<&str>, chosen: &Chosen) -> Result<EditTool, SessionError> {
    let known = chosen.entry.as_ref().and_then(|entry| entry.edit_tool.as_deref());
    named_edit_tool(explicit.or(known))
}

/// The edit tool that a task is locked to.
pub fn kept_edit_tool(start: &Start, options: &SessionSpec) -> Result<EditTool, SessionError> {
    let kept = named_edit_tool(start.edit_tool.as_deref())?;
    let wanted = options.edit_tool.as_deref().map(|name| named_edit_tool(Some(name))).transpose()?;
    if wanted.is_some_and(|wanted| wanted != kept) {
        return Err(SessionError::invalid(format!(
            "this task is locked to the edit tool `{}`; a new task may use another",
            kept.name()
        )));
    }
    Ok(kept)
}

fn named_edit_tool(name: Option<&str>) -> Result<EditTool, SessionError> {
    let tool = name.map(str::parse).transpose();
    Ok(tool.map_err(|error: EditToolError| SessionError::invalid(error.to_string()))?.unwrap_or_default())
}

/// The protocol of that name; of a dialect's alias, the dialect's.
pub fn named_protocol(name: &str) -> Result<Protocol, SessionError> {
    match (name, dialect(name)) {
        ("native", _) => Ok(Protocol::Native),
        (_, Some(dialect)) => Ok(Protocol::Prompted(dialect.name.to_owned())),
        _ => {
            let message = dialect_tables::unknown(name, "").to_string();
            Err(SessionError::invalid(message.replacen(
                "is no dialect",
                "is no protocol, neither `native` nor a dialect",
                1,
            )))
        }
    }
}
