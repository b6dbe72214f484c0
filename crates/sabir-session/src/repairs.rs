//! Repairs by name: which of them the user switched off.

use sabir_call::nearest;
use sabir_check::{RULES, Repairs};

use crate::error::SessionError;

/// The word for every rule.
const ALL: &str = "all";

/// The repairs that are left without the rules of these names, `all` being every rule.
pub fn without<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<Repairs, SessionError> {
    names.into_iter().try_fold(Repairs::all(), |repairs, name| match repairs.without(name) {
        Some(fewer) => Ok(fewer),
        None if name == ALL => Ok(Repairs::none()),
        None => Err(unknown(name)),
    })
}

fn unknown(name: &str) -> SessionError {
    let names = || std::iter::once(ALL).chain(RULES.iter().map(|rule| rule.name));
    let hint = nearest(name, names()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    SessionError::invalid(format!("`{name}` is no repair: {hint}use {}", names().collect::<Vec<_>>().join(", ")))
}
