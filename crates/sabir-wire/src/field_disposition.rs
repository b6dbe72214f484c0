//! Decides for each member of a client's body if it is read, left out or refused: one table row per
//! member.
//!
//! Members without a row are left out with a note, because clients keep adding members and most of
//! them mean nothing to another provider. A member that would change what the client gets back is
//! refused.

use serde_json::Value;

use crate::client_request::{LossNote, RequestError};
use crate::field::JsonField;

/// The treatment of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldDisposition {
    /// It is read.
    Read,
    /// It changes nothing here and needs no note.
    Harmless,
    /// It is left out with a note that gives this reason.
    LeftOut(&'static str),
    /// The request is refused if the member has a value; the text says what to do instead.
    Refused(&'static str),
    /// As `Refused`, but a provider of the same wire gets it.
    RefusedElsewhere(&'static str),
    /// It is read, and some of its values are refused, but a provider of the same wire gets all of them.
    CheckedElsewhere,
}

/// The known members of a wire's body.
pub(crate) type MemberDispositions = [(&'static str, FieldDisposition)];

/// Checks the members of a body and notes those that are left out.
///
/// # Errors
/// The first member that is refused.
pub(crate) fn check_members(
    body: &JsonField<'_>,
    members: &MemberDispositions,
    notes: &mut Vec<LossNote>,
) -> Result<(), RequestError> {
    // A body of another type fails where its members are decoded.
    let Some(found) = body.value.as_object() else {
        return Ok(());
    };
    for (key, value) in found {
        // Clients send unused options as `null`, `false` or an empty list, which must not be
        // refused.
        if is_empty_value(value) {
            continue;
        }
        let field = body.get(key);
        match members
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, disposition)| *disposition)
        {
            Some(
                FieldDisposition::Read
                | FieldDisposition::Harmless
                | FieldDisposition::CheckedElsewhere,
            ) => {}
            Some(FieldDisposition::LeftOut(why)) => {
                notes.push(LossNote::new(field.path, format!("left out: {why}")))
            }
            Some(
                FieldDisposition::Refused(instead) | FieldDisposition::RefusedElsewhere(instead),
            ) => {
                return Err(field.mismatch_error(&format!("nothing ({instead})")));
            }
            None => notes.push(LossNote::new(field.path, "left out: not known here")),
        }
    }
    Ok(())
}

/// Returns true if a value means the same as a missing one.
pub(crate) fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{anthropic, gemini, ollama, openai_chat, openai_responses};

    #[test]
    fn the_document_names_every_member() {
        let document = include_str!("../../../docs/translation.md");
        let fronts = [
            (anthropic::NAME, anthropic::decode_request::MEMBERS),
            (openai_chat::NAME, openai_chat::decode_request::MEMBERS),
            (
                openai_responses::NAME,
                openai_responses::decode_request::MEMBERS,
            ),
            (ollama::NAME, ollama::decode_request::MEMBERS),
            (gemini::NAME, gemini::decode_request::MEMBERS),
        ];
        for (name, members) in fronts {
            let (_, paragraph) = document
                .split_once(&format!("\n`{name}`: "))
                .unwrap_or_else(|| panic!("no paragraph of {name}"));
            let paragraph = paragraph.split("\n\n").next().unwrap_or_default();
            // Four sentences: what is read, what says nothing, what is left out, what is refused.
            let sentence = |word: &str| {
                let text = paragraph.replace('\n', " ");
                let found: Vec<_> = text
                    .split(". ")
                    .filter(|it| it.contains(word))
                    .map(str::to_owned)
                    .collect();
                found.join(" ")
            };
            for (member, disposition) in members {
                let word = match disposition {
                    FieldDisposition::Read | FieldDisposition::CheckedElsewhere => "read",
                    FieldDisposition::Harmless => "nothing here",
                    FieldDisposition::LeftOut(_) => "left out",
                    FieldDisposition::Refused(_) | FieldDisposition::RefusedElsewhere(_) => {
                        "refused"
                    }
                };
                assert!(
                    sentence(word).contains(&format!("`{member}`")),
                    "{name}: `{member}` is {word}"
                );
            }
        }
    }

    #[test]
    fn empty_values_are_not_refused() {
        let members: &MemberDispositions = &[
            ("no", FieldDisposition::Refused("x")),
            ("old", FieldDisposition::LeftOut("y")),
            ("ok", FieldDisposition::Read),
        ];
        let look = |body: Value| {
            let mut notes = Vec::new();
            check_members(&JsonField::root(&body), members, &mut notes).map(|()| notes.len())
        };
        for nothing in [
            json!(null),
            json!(false),
            json!(0),
            json!(""),
            json!([]),
            json!({}),
        ] {
            assert_eq!(
                look(json!({"no": nothing, "old": nothing, "unknown": nothing, "ok": 1})),
                Ok(0)
            );
        }
        assert_eq!(look(json!({"old": 1, "unknown": [1]})), Ok(2));
        assert_eq!(
            look(json!({"no": true})).map_err(|error| error.path),
            Err("no".to_owned())
        );
    }
}
