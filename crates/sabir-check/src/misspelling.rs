//! Reports values in the syntax of another dialect: JSON between tags, tags in JSON, entities in raw text.
//!
//! Each has a message of its own, since "wrong type" would make a model look for another value instead of another syntax.
//! No value is changed here. JSON in a raw value is an error only if the call is wrong anyway, because a string may well be
//! a JSON object.

use std::borrow::Cow;

use sabir_call::{ArgumentEncoding, DraftArgument, Fault, FaultKind, Severity, Span};
use serde_json::{Map, Value};

use crate::arguments::{TypedArgument, json_excerpt};
use crate::call_diagnostics::{CallDiagnostics, quote_names};
use crate::coerce::{self, CoercionError};
use crate::lenient_json::{self, JsonSyntaxError};
use crate::repair::shorten_text;
use crate::schema::SchemaView;

/// The longest corrected value that a hint shows, in bytes.
const MAX_HINT_BYTES: usize = 120;

/// The declaration of an argument.
pub(crate) struct ExpectedArgument<'a> {
    /// Its declared name.
    pub(crate) name: &'a str,
    pub(crate) shape: SchemaView<'a>,
    /// The names of all arguments that the tool declares.
    pub(crate) declared: &'a [&'a str],
}

/// Returns the fault of a tag that is not an argument and contains the arguments as JSON.
///
/// Seen as `<tool><arguments>{"path": "a"}</arguments></tool>`: the model mixes the JSON of native
/// calls with tags. The keys must all be declared, otherwise the tag is just an unknown argument.
pub(crate) fn json_in_tag_fault(
    argument: &DraftArgument,
    declared: &[&str],
    notes: &CallDiagnostics<'_>,
) -> Option<Fault> {
    let object = parse_json_arguments(argument, declared)?;
    let place = if argument.name.is_empty() {
        "the call".to_owned()
    } else {
        format!("`{}`", shorten_text(&argument.name))
    };
    Some(json_arguments_fault(&place, argument, &object, notes))
}

/// Returns the fault of an argument whose value contains all missing arguments as JSON.
///
/// Seen as `<path>{"path": "a", "content": "b"}</path>`. It replaces the faults of the missing arguments, because those would make the
/// model add tags and keep the JSON in the value.
pub(crate) fn combined_arguments_fault(
    given: &[TypedArgument<'_>],
    gone: &[&str],
    declared: &[&str],
    notes: &CallDiagnostics<'_>,
) -> Option<Fault> {
    let objects = given
        .iter()
        .filter_map(|given| Some((given, parse_json_arguments(&given.written, declared)?)));
    for (given, object) in objects {
        let place = format!("`{}`", given.name);
        if !gone.is_empty() && gone.iter().all(|name| object.contains_key(*name)) {
            return Some(json_arguments_fault(&place, &given.written, &object, notes));
        }
        // No argument is missing, so the JSON may be intended, for instance as a search pattern:
        // only a warning.
        if gone.is_empty()
            && notes.call.arguments.len() == 1
            && object.contains_key(&given.name)
            && given.value.is_string()
        {
            let fault = json_arguments_fault(&place, &given.written, &object, notes);
            return Some(Fault {
                severity: Severity::Warning,
                ..fault
            });
        }
    }
    None
}

/// Parses a raw value that consists of one JSON object whose keys are all declared arguments.
///
/// Strict JSON only. The result only decides about a message, so a text that needs repairs may as well be content.
fn parse_json_arguments(argument: &DraftArgument, declared: &[&str]) -> Option<Map<String, Value>> {
    let begins = argument.form == ArgumentEncoding::Raw
        && !argument.partial
        && argument.text.trim_start().starts_with('{');
    let value = begins
        .then(|| lenient_json::parse_strict(argument.text.trim()))?
        .ok()?;
    let Value::Object(object) = value else {
        return None;
    };
    (!object.is_empty() && object.keys().all(|key| declared.contains(&key.as_str())))
        .then_some(object)
}

/// Makes the fault; `place` says in words where the object was found.
fn json_arguments_fault(
    place: &str,
    argument: &DraftArgument,
    object: &Map<String, Value>,
    notes: &CallDiagnostics<'_>,
) -> Fault {
    let found = json_excerpt(&Value::String(argument.text.trim().to_owned()));
    let message = format!(
        "{place} holds arguments as one JSON object, where a tag for each was expected; found {found}"
    );
    let fault = notes.new_fault(FaultKind::JsonInTag, trimmed_span(argument), message);
    let hint = format!(
        "write {} in a tag of its own, with nothing but the value in it",
        quote_names(object.keys().map(String::as_str))
    );
    fault.in_argument(argument.name.clone()).with_hint(hint)
}

/// Returns the span of a value without the white space around it.
fn trimmed_span(argument: &DraftArgument) -> Span {
    let text = argument.text.trim();
    span_within(
        argument,
        argument.text.len() - argument.text.trim_start().len(),
        text.len(),
    )
}

/// Returns the fault of a value that cannot be read as the schema demands.
///
/// The message names the declared type and quotes the given value; the hint says what to write. JSON
/// arguments in a tag and tags in JSON are recognized first, since they explain the wrong type.
pub(crate) fn mismatch_fault(
    wanted: &ExpectedArgument<'_>,
    written: &DraftArgument,
    mismatch: CoercionError,
    notes: &CallDiagnostics<'_>,
) -> Fault {
    let name = wanted.name;
    let found = json_excerpt(&Value::String(written.text.clone()));
    match mismatch {
        CoercionError::Type(types) => {
            if let Some(object) = parse_json_arguments(written, wanted.declared) {
                return json_arguments_fault(&format!("`{name}`"), written, &object, notes);
            }
            let tags = coerce::parse_tagged(&written.text, wanted.shape, types)
                // Raw values may consist of elements, so a failure to read them is a fault of the
                // type.
                .filter(|_| written.form != ArgumentEncoding::Raw);
            if let Some(value) = tags {
                let message = format!(
                    "`{name}` must be {} in JSON, but holds tags: {found}",
                    types.describe_types()
                );
                let right = value.to_string();
                let hint = if right.len() <= MAX_HINT_BYTES {
                    right
                } else {
                    format!("{} without tags", types.describe_types())
                };
                let fault = notes.new_fault(FaultKind::TagInJson, written.span, message);
                return fault
                    .in_argument(name)
                    .with_hint(format!("write {hint} in `{name}`"));
            }
            let message = format!(
                "`{name}` must be {}, but is {found}",
                types.describe_types()
            );
            let fault = notes.new_fault(FaultKind::WrongType, written.span, message);
            fault
                .in_argument(name)
                .with_hint(format!("write {} in `{name}`", types.describe_types()))
        }
        CoercionError::Json(broken) if broken.is_duplicate_key => {
            let message = format!("in `{name}` {}; each key was expected once", broken.message);
            let fault = notes.new_fault(
                FaultKind::InvalidValue,
                span_within(written, broken.at, 1),
                message,
            );
            fault
                .in_argument(name)
                .with_hint("give the key once: which of its values is meant cannot be known")
        }
        CoercionError::Json(broken) => malformed_json_fault(
            &format!("`{name}` is not valid JSON"),
            written,
            &broken,
            notes,
        )
        .in_argument(name),
    }
}

/// Returns the fault of text that should be JSON; tags in it get a message of their own.
///
/// `what` begins the message; the position and the rest of the text from there on follow. `<` where
/// JSON broke is the sign that the model continued in tags.
pub(crate) fn malformed_json_fault(
    what: &str,
    written: &DraftArgument,
    broken: &JsonSyntaxError,
    notes: &CallDiagnostics<'_>,
) -> Fault {
    let rest = written
        .text
        .get(written.text.floor_char_boundary(broken.at)..)
        .unwrap_or_default();
    let tag = rest
        .strip_prefix('<')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '/'));
    let found = match (rest.trim(), written.text.trim()) {
        ("", "") => "no text".to_owned(),
        ("", all) => format!(
            "its end in {}",
            json_excerpt(&Value::String(all.to_owned()))
        ),
        (rest, _) => json_excerpt(&Value::String(rest.to_owned())),
    };
    let message = format!("{what}: {}; found {found}", broken.message);
    let (kind, hint) = match tag {
        true => (FaultKind::TagInJson, "write the value as JSON, not in tags"),
        false => (
            FaultKind::MalformedJson,
            "write valid JSON: double quotes, no comma before a closing bracket",
        ),
    };
    notes
        .new_fault(kind, span_within(written, broken.at, 1), message)
        .with_hint(hint)
}

/// Cuts a value at its own closing tag if an unknown tag inside it was reported.
///
/// The parser then read the unknown tag as a part of the value, and faults should concern the intended value only.
///
/// Without this, the path in `<path>a</path><pth>b</pth>` would contain the later tags, and the model would get two faults for one mistake.
pub(crate) fn truncate_at_unknown<'d>(
    written: Cow<'d, DraftArgument>,
    notes: &CallDiagnostics<'_>,
) -> Cow<'d, DraftArgument> {
    let Span { start, end } = written.span;
    let inside = |fault: &Fault| {
        fault.kind == FaultKind::UnknownArgument && (start..end).contains(&fault.span.start)
    };
    let close = format!("</{}>", written.name);
    match written.text.find(&close) {
        // Only for messages: the parser's error already stops the call, so the cut value never
        // runs.
        Some(at) if written.form == ArgumentEncoding::Raw && notes.all_faults().any(inside) => {
            let mut meant = written.into_owned();
            meant.text.truncate(at);
            meant.span = Span::new(start, start + at);
            Cow::Owned(meant)
        }
        _ => written,
    }
}

/// Returns a warning if a raw value was probably escaped: it contains entities, and neither a raw `<` nor a raw `&`.
///
/// Escaping would have replaced every raw one, so a value with both is probably intended HTML.
///
/// The value is never changed: the file may really contain `&amp;`, and decoding would corrupt it.
pub(crate) fn entity_warning(
    name: &str,
    written: &DraftArgument,
    notes: &CallDiagnostics<'_>,
) -> Option<Fault> {
    const ENTITIES: [(&str, char); 4] = [
        ("&amp;", '&'),
        ("&lt;", '<'),
        ("&gt;", '>'),
        ("&quot;", '"'),
    ];
    let text = written.text.as_str();
    if written.form != ArgumentEncoding::Raw || text.contains('<') {
        return None;
    }
    let entity = |(at, _): (usize, &str)| {
        let (entity, raw) = ENTITIES
            .iter()
            .find(|(entity, _)| text.get(at..).is_some_and(|rest| rest.starts_with(entity)))?;
        Some((at, *entity, *raw))
    };
    // A single pass: each `&` is compared with four short texts, so the work is linear.
    let mut found = text.match_indices('&').map(entity);
    let (at, entity, raw) = found.next()??;
    // An `&` that begins no entity is a raw one.
    if found.any(|other| other.is_none()) {
        return None;
    }
    let message =
        format!("`{name}` holds `{entity}`; values are taken as they are, so this is not `{raw}`");
    let fault = notes.new_fault(
        FaultKind::Entities,
        span_within(written, at, entity.len()),
        message,
    );
    let fault = fault
        .in_argument(name)
        .with_hint(format!("write `{raw}` itself if that is what you mean"));
    Some(Fault {
        severity: Severity::Warning,
        ..fault
    })
}

/// Returns the span of a piece of a value; `at` and `length` are in bytes of the value.
///
/// A piece has a position of its own only if the span of the value covers exactly its bytes, or those and the line feed of
/// the wrapper before a raw value. Otherwise the span of the whole value is returned.
/// Escapes make a decoded string shorter than its source, and their positions are not kept.
pub(crate) fn span_within(written: &DraftArgument, at: usize, length: usize) -> Span {
    let Span { start, end } = written.span;
    match (end - start).checked_sub(written.text.len()) {
        Some(0) => Span::new(start + at, start + at + length),
        // One byte is `\n`, two are `\r\n`.
        Some(feed @ (1 | 2)) if written.form == ArgumentEncoding::Raw => {
            Span::new(start + feed + at, start + feed + at + length)
        }
        _ => written.span,
    }
}
