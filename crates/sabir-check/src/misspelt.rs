//! Values that are spelled for something else: JSON between tags, tags in JSON, entities in raw text.
//!
//! Each is told for what it is, since "wrong type" would send a model looking for another value instead of another
//! spelling. Nothing here changes a value. JSON in a raw value is a mistake only where the call is wrong anyway: a string may
//! well be a JSON object (law 5).

use std::borrow::Cow;

use sabir_call::{ArgForm, DraftArgument, Fault, FaultKind, Severity, Span};
use serde_json::{Map, Value};

use crate::arguments::{Given, excerpt};
use crate::coerce::{self, Mismatch};
use crate::notes::{Notes, names};
use crate::relaxed::{self, Broken};
use crate::repair::shortened;
use crate::schema::Shape;

/// The longest right spelling that a hint shows, in bytes.
const SHOWN: usize = 120;

/// What an argument should be.
pub(crate) struct Wanted<'a> {
    /// Its declared name.
    pub(crate) name: &'a str,
    pub(crate) shape: Shape<'a>,
    /// The names of all arguments that the tool declares.
    pub(crate) declared: &'a [&'a str],
}

/// The fault of a tag that is no argument and holds the arguments as JSON.
pub(crate) fn json_in_tag(argument: &DraftArgument, declared: &[&str], notes: &Notes<'_>) -> Option<Fault> {
    let object = arguments_in(argument, declared)?;
    let place =
        if argument.name.is_empty() { "the call".to_owned() } else { format!("`{}`", shortened(&argument.name)) };
    Some(in_one(&place, argument, &object, notes))
}

/// The fault of an argument that holds all those that are missing, as JSON.
pub(crate) fn all_in_one(given: &[Given<'_>], gone: &[&str], declared: &[&str], notes: &Notes<'_>) -> Option<Fault> {
    let objects = given.iter().filter_map(|given| Some((given, arguments_in(&given.written, declared)?)));
    for (given, object) in objects {
        let place = format!("`{}`", given.name);
        if !gone.is_empty() && gone.iter().all(|name| object.contains_key(*name)) {
            return Some(in_one(&place, &given.written, &object, notes));
        }
        // Nothing is missing, and the text may be meant: a search for JSON, say.
        if gone.is_empty()
            && notes.call.arguments.len() == 1
            && object.contains_key(&given.name)
            && given.value.is_string()
        {
            let fault = in_one(&place, &given.written, &object, notes);
            return Some(Fault { severity: Severity::Warning, ..fault });
        }
    }
    None
}

/// The arguments that a raw value holds as one JSON object, if that is all it holds.
fn arguments_in(argument: &DraftArgument, declared: &[&str]) -> Option<Map<String, Value>> {
    let begins = argument.form == ArgForm::Raw && !argument.partial && argument.text.trim_start().starts_with('{');
    let value = begins.then(|| relaxed::strict(argument.text.trim()))?.ok()?;
    let Value::Object(object) = value else { return None };
    (!object.is_empty() && object.keys().all(|key| declared.contains(&key.as_str()))).then_some(object)
}

fn in_one(place: &str, argument: &DraftArgument, object: &Map<String, Value>, notes: &Notes<'_>) -> Fault {
    let found = excerpt(&Value::String(argument.text.trim().to_owned()));
    let message =
        format!("{place} holds arguments as one JSON object, where a tag for each was expected; found {found}");
    let fault = notes.fault(FaultKind::JsonInTag, bare(argument), message);
    let hint = format!(
        "write {} in a tag of its own, with nothing but the value in it",
        names(object.keys().map(String::as_str))
    );
    fault.in_argument(argument.name.clone()).hint(hint)
}

/// Where a value stands, without the white space around it.
fn bare(argument: &DraftArgument) -> Span {
    let text = argument.text.trim();
    part_of(argument, argument.text.len() - argument.text.trim_start().len(), text.len())
}

/// The fault of a value that cannot be read as the schema wants it.
pub(crate) fn misread(wanted: &Wanted<'_>, written: &DraftArgument, mismatch: Mismatch, notes: &Notes<'_>) -> Fault {
    let name = wanted.name;
    let found = excerpt(&Value::String(written.text.clone()));
    match mismatch {
        Mismatch::Type(types) => {
            if let Some(object) = arguments_in(written, wanted.declared) {
                return in_one(&format!("`{name}`"), written, &object, notes);
            }
            let tags = coerce::tagged(&written.text, wanted.shape, types).filter(|_| written.form != ArgForm::Raw);
            if let Some(value) = tags {
                let message = format!("`{name}` must be {} in JSON, but holds tags: {found}", types.words());
                let right = value.to_string();
                let hint = if right.len() <= SHOWN { right } else { format!("{} without tags", types.words()) };
                let fault = notes.fault(FaultKind::TagInJson, written.span, message);
                return fault.in_argument(name).hint(format!("write {hint} in `{name}`"));
            }
            let message = format!("`{name}` must be {}, but is {found}", types.words());
            let fault = notes.fault(FaultKind::WrongType, written.span, message);
            fault.in_argument(name).hint(format!("write {} in `{name}`", types.words()))
        }
        Mismatch::Json(broken) if broken.doubled => {
            let message = format!("in `{name}` {}; each key was expected once", broken.message);
            let fault = notes.fault(FaultKind::InvalidValue, part_of(written, broken.at, 1), message);
            fault.in_argument(name).hint("give the key once: which of its values is meant cannot be known")
        }
        Mismatch::Json(broken) => {
            malformed(&format!("`{name}` is no valid JSON"), written, &broken, notes).in_argument(name)
        }
    }
}

/// The fault of text that should be JSON: tags in it are told as such.
pub(crate) fn malformed(what: &str, written: &DraftArgument, broken: &Broken, notes: &Notes<'_>) -> Fault {
    let rest = written.text.get(written.text.floor_char_boundary(broken.at)..).unwrap_or_default();
    let tag = rest.strip_prefix('<').is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '/'));
    let found = match (rest.trim(), written.text.trim()) {
        ("", "") => "no text".to_owned(),
        ("", all) => format!("its end in {}", excerpt(&Value::String(all.to_owned()))),
        (rest, _) => excerpt(&Value::String(rest.to_owned())),
    };
    let message = format!("{what}: {}; found {found}", broken.message);
    let (kind, hint) = match tag {
        true => (FaultKind::TagInJson, "write the value as JSON, not in tags"),
        false => (FaultKind::MalformedJson, "write valid JSON: double quotes, no comma before a closing bracket"),
    };
    notes.fault(kind, part_of(written, broken.at, 1), message).hint(hint)
}

/// A value that an unknown argument was read into, without that argument: what is said of it should be said of what was meant.
pub(crate) fn before_stranger<'d>(written: Cow<'d, DraftArgument>, notes: &Notes<'_>) -> Cow<'d, DraftArgument> {
    let Span { start, end } = written.span;
    let inside = |fault: &Fault| fault.kind == FaultKind::UnknownArgument && (start..end).contains(&fault.span.start);
    let close = format!("</{}>", written.name);
    match written.text.find(&close) {
        Some(at) if written.form == ArgForm::Raw && notes.faults.iter().any(inside) => {
            let mut meant = written.into_owned();
            meant.text.truncate(at);
            meant.span = Span::new(start, start + at);
            Cow::Owned(meant)
        }
        _ => written,
    }
}

/// A warning where a raw value was probably escaped: it holds entities, and neither `<` nor an `&` of its own, which whoever
/// escapes leaves no raw one of. A page of HTML holds both, and is as it should be.
pub(crate) fn entities(name: &str, written: &DraftArgument, notes: &Notes<'_>) -> Option<Fault> {
    const ENTITIES: [(&str, char); 4] = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"')];
    let text = written.text.as_str();
    if written.form != ArgForm::Raw || text.contains('<') {
        return None;
    }
    let entity = |(at, _): (usize, &str)| {
        let (entity, raw) =
            ENTITIES.iter().find(|(entity, _)| text.get(at..).is_some_and(|rest| rest.starts_with(entity)))?;
        Some((at, *entity, *raw))
    };
    let mut found = text.match_indices('&').map(entity);
    let (at, entity, raw) = found.next()??;
    if found.any(|other| other.is_none()) {
        return None;
    }
    let message = format!("`{name}` holds `{entity}`; values are taken as they stand, so this is no `{raw}`");
    let fault = notes.fault(FaultKind::Entities, part_of(written, at, entity.len()), message);
    let fault = fault.in_argument(name).hint(format!("write `{raw}` itself if that is what you mean"));
    Some(Fault { severity: Severity::Warning, ..fault })
}

/// Where a piece of a value stands. It can be pointed at only where the span covers exactly the value's bytes, but for the
/// wrapper's line feed before a raw one.
pub(crate) fn part_of(written: &DraftArgument, at: usize, length: usize) -> Span {
    let Span { start, end } = written.span;
    match (end - start).checked_sub(written.text.len()) {
        Some(0) => Span::new(start + at, start + at + length),
        Some(feed @ (1 | 2)) if written.form == ArgForm::Raw => {
            Span::new(start + feed + at, start + feed + at + length)
        }
        _ => written.span,
    }
}
