//! What becomes of each member of a client's body: one row a member, for every wire that has a front.
//!
//! What no row knows is left out with a note, since clients send new members all the time and most of them mean nothing to
//! another provider. What would change what the client gets back is refused.

use serde_json::Value;

use crate::client::{Note, RequestError};
use crate::field::Field;

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is read.
    Read,
    /// It changes nothing here, and nobody need know.
    Harmless,
    /// It is left out, and noted: why.
    LeftOut(&'static str),
    /// The request is refused if it says anything: what to do instead.
    Refused(&'static str),
}

/// The members of a wire's body.
pub(crate) type Members = [(&'static str, Fate)];

/// Goes through the members of a body: notes what is left out.
///
/// # Errors
/// The first member that is refused.
pub(crate) fn survey(body: &Field<'_>, members: &Members, notes: &mut Vec<Note>) -> Result<(), RequestError> {
    let Some(found) = body.value.as_object() else { return Ok(()) };
    for (key, value) in found {
        if says_nothing(value) {
            continue;
        }
        let field = body.get(key);
        match members.iter().find(|(known, _)| known == key).map(|(_, fate)| *fate) {
            Some(Fate::Read | Fate::Harmless) => {}
            Some(Fate::LeftOut(why)) => notes.push(Note::new(field.path, format!("left out: {why}"))),
            Some(Fate::Refused(instead)) => return Err(field.wrong(&format!("nothing ({instead})"))),
            None => notes.push(Note::new(field.path, "left out: not known here")),
        }
    }
    Ok(())
}

/// Whether a value is the same as none.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}
