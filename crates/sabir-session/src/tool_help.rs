//! Lists the built-in tools and their manuals for people.

use sabir_agent::control;
use sabir_call::nearest_candidate;

use crate::SessionError;

/// Lists the built-in tools with their descriptions for models.
#[must_use]
pub fn list_tools() -> String {
    let known = sabir_tools::builtin_specs()
        .into_iter()
        .chain(sabir_tools::unoffered_specs());
    let known = known
        .chain(control::control_specs())
        .chain(control::mode_dependent_specs());
    let mut text: String = known
        .map(|spec| format!("{}\n    {}\n", spec.name, spec.description))
        .collect();
    text.push_str("`sabir help tool NAME` documents one, with the exact text of its results.\n");
    text
}

/// Returns the manual of a tool.
///
/// # Errors
/// When no tool has this name; the message suggests a similar one.
pub fn tool_manual(name: &str) -> Result<&'static str, SessionError> {
    let manuals: Vec<_> = sabir_tools::tool_manuals()
        .into_iter()
        .chain(control::tool_manuals())
        .collect();
    if let Some((_, manual)) = manuals.iter().find(|(known, _)| *known == name) {
        return Ok(manual);
    }
    let near = nearest_candidate(name, manuals.iter().map(|(known, _)| *known));
    let hint = near.map_or_else(
        || "`sabir help tools` lists them".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    Err(SessionError::invalid(format!(
        "there is no tool `{name}`: {hint}"
    )))
}
