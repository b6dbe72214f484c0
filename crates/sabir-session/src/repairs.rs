//! Selects repairs of wrong calls by the names of those that the user switched off.

use sabir_call::{CallReader, nearest_candidate};
use sabir_check::{RULES, RepairSet};

use crate::error::SessionError;

/// The name that switches off every rule.
const ALL: &str = "all";

/// Returns all repairs without the named rules; the name `all` removes every rule.
///
/// # Errors
/// When no rule has one of the names.
pub fn without_rules<'a>(
    names: impl IntoIterator<Item = &'a String>,
) -> Result<RepairSet, SessionError> {
    names
        .into_iter()
        .try_fold(RepairSet::all(), |repairs, name| {
            match repairs.without_rule(name) {
                Some(fewer) => Ok(fewer),
                None if name == ALL => Ok(RepairSet::none()),
                None => Err(unknown_repair(name)),
            }
        })
}

/// Reports whether the named repairs, which are off by default, include `missing_last_close`.
///
/// # Errors
/// When a name is not that of a repair that is off by default.
pub fn closes_last_call<'a>(
    names: impl IntoIterator<Item = &'a String>,
) -> Result<bool, SessionError> {
    let mut is_on = false;
    for name in names {
        if !RULES
            .iter()
            .any(|rule| rule.is_off_by_default() && rule.name == name)
        {
            return Err(not_optional(name));
        }
        is_on |= name == CallReader::MISSING_LAST_CLOSE;
    }
    Ok(is_on)
}

fn not_optional(name: &str) -> SessionError {
    let rules = RULES.iter().filter(|rule| rule.is_off_by_default());
    SessionError::invalid(format!(
        "`{name}` is not a repair that is off by default: use {}",
        rules.map(|rule| rule.name).collect::<Vec<_>>().join(", ")
    ))
}

fn unknown_repair(name: &str) -> SessionError {
    let names = || std::iter::once(ALL).chain(RULES.iter().map(|rule| rule.name));
    let hint = nearest_candidate(name, names())
        .map(|near| format!("did you mean `{near}`? "))
        .unwrap_or_default();
    SessionError::invalid(format!(
        "`{name}` is not a repair: {hint}use {}",
        names().collect::<Vec<_>>().join(", ")
    ))
}
