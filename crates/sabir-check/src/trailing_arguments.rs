//! Reads the rest of a call's arguments after the point at which they stopped being strict JSON.
//!
//! A parser streams arguments as long as they are strict JSON. At the first deviation it delivers the rest as one last
//! argument without a name: the source text from there on, with the closing `}` of the object. If no argument came before,
//! that is the whole text. This module reads the rest with the repair rules, each recorded, and appends its arguments to
//! those that the parser delivered. A rest that cannot be read is a fault at the exact byte, and the call never runs.
//!
//! Supported: every mistake in JSON that a repair of [`RULES`](crate::RULES) allows; the whole text in a code fence or in a
//! JSON string; a comma before the rest.
//!
//! Unsupported on purpose: a missing comma before the rest. The arguments would be unambiguous, but a model that forgot one
//! punctuation mark may have forgotten a quote as well.

use std::borrow::Cow;
use std::fmt;

use sabir_call::{ArgumentEncoding, DraftArgument, FaultKind};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::call_diagnostics::CallDiagnostics;
use crate::lenient_json::{self, JsonSyntaxError};
use crate::misspelling::{malformed_json_fault, span_within};
use crate::repair::RepairSet;

/// Returns the arguments as written, followed by those that were read from the rest.
///
/// If the rest cannot be read, a fault without an argument's name is recorded, and only the earlier arguments are returned.
pub(crate) fn resolve_arguments<'d>(
    notes: &mut CallDiagnostics<'d>,
    repairs: RepairSet,
) -> Vec<Cow<'d, DraftArgument>> {
    let call = notes.call;
    let all = || call.arguments.iter().map(Cow::Borrowed).collect();
    let Some((last, before)) = call.arguments.split_last() else {
        return all();
    };
    let rest = match before {
        [] => last.form != ArgumentEncoding::Raw,
        _ => last.form == ArgumentEncoding::Json,
    };
    if !rest || !last.name.is_empty() || last.partial {
        return all();
    }
    let read = match before.last() {
        None => parse_all_arguments(last, repairs),
        Some(known) if is_missing_comma(known, last, notes) => {
            Err(JsonSyntaxError::missing_separator())
        }
        Some(_) => parse_trailing_arguments(last, repairs),
    };
    let mut arguments: Vec<_> = before.iter().map(Cow::Borrowed).collect();
    match read {
        Ok((rules, inner)) => {
            let after = inner
                .iter()
                .map(|argument| format!("{}: {}", argument.name, argument.text));
            let after = after.collect::<Vec<_>>().join(", ");
            // The comma before the end belongs to no argument, so the text has only the end.
            let (before, after) = match inner.is_empty() && is_object_end(&last.text) {
                true => (",}", "}"),
                false => (last.text.as_str(), after.as_str()),
            };
            for rule in rules {
                notes.push_repair(rule, last.span, before, after);
            }
            arguments.extend(inner.into_iter().map(Cow::Owned));
        }
        // Tags in place of the arguments were reported in words of their own.
        Err(_) if notes.has_xml_fault() => {}
        Err(broken) => {
            let fault =
                malformed_json_fault("the arguments are not JSON object", last, &broken, notes);
            let example = "write one JSON object, for example {\"path\": \"a.txt\"}";
            let hint = if fault.kind == FaultKind::TagInJson {
                fault.hint.clone()
            } else {
                None
            };
            notes.push(fault.with_hint(hint.unwrap_or_else(|| example.to_owned())));
        }
    }
    arguments
}

/// The repair rules that were needed, and the arguments.
pub(crate) type TrailingArguments =
    Result<(Vec<&'static str>, Vec<DraftArgument>), JsonSyntaxError>;

/// Reads the text of all arguments: an object with repairable mistakes, in a fence, or in a JSON string.
///
/// Removes at most one encoding of each kind: a string in a fence in a string is not decoded.
///
/// # Errors
/// Returns the first byte that cannot be read, as an offset into the argument's text.
pub(crate) fn parse_all_arguments(
    argument: &DraftArgument,
    repairs: RepairSet,
) -> TrailingArguments {
    let mut rules = Vec::new();
    if argument.form == ArgumentEncoding::String {
        if !repairs.has_rule("double_encoding") {
            return Err(JsonSyntaxError::new(0, "an object was expected, no string"));
        }
        rules.push("double_encoding");
    }
    let mut text = argument.text.as_str();
    let mut start = 0;
    if let Some((rule, inner, at)) = repairs.strip_code_fence(text) {
        rules.push(rule);
        text = inner;
        start = at;
    }
    let blank = text.len() - text.trim_ascii_start().len();
    // An empty string means no arguments, as empty arguments do in a native call.
    if argument.form == ArgumentEncoding::String && blank == text.len() {
        return Ok((rules, Vec::new()));
    }
    if !text.trim_ascii_start().starts_with('{') {
        return Err(JsonSyntaxError::new(
            start + blank,
            "an object `{…}` was expected",
        ));
    }
    let place = |at: usize| Some(start + at);
    // Strict JSON first: valid arguments in a fence need only the rule about the fence.
    match parse_entries(text, argument, place) {
        Ok(inner) => Ok((rules, inner)),
        Err(_) => {
            let (slips, relaxed) = repairs
                .repair_json(text)
                .map_err(|broken| JsonSyntaxError {
                    at: start + broken.at,
                    ..broken
                })?;
            rules.extend(slips);
            Ok((
                rules,
                parse_entries(&relaxed.text, argument, |at| {
                    Some(start + relaxed.source_offset(at))
                })?,
            ))
        }
    }
}

/// Reads the rest of an object after arguments that the parser delivered.
///
/// # Errors
/// Returns the first byte that no rule explains, or a missing separator before the rest.
pub(crate) fn parse_trailing_arguments(
    argument: &DraftArgument,
    repairs: RepairSet,
) -> TrailingArguments {
    let rest = argument.text.trim_ascii_start();
    let blank = argument.text.len() - rest.len();
    let (dropped, rest) = match rest.strip_prefix(',') {
        Some(rest) => (blank + 1, rest),
        None => (blank, rest),
    };
    // The rest is parsed behind a `{` of our own, so offsets in it are one too large.
    let back = |broken: JsonSyntaxError| JsonSyntaxError {
        at: dropped + broken.at.saturating_sub(1),
        ..broken
    };
    if rest.trim_ascii() == "}" {
        let rule = Some("trailing_comma").filter(|rule| repairs.has_rule(rule));
        return rule
            .map(|rule| (vec![rule], Vec::new()))
            .ok_or_else(|| JsonSyntaxError::new(dropped, "a key was expected after `,`"));
    }
    // The opening brace was in the part that the parser consumed; the closing one is in the rest.
    let text = format!("{{{rest}");
    // The parser stopped here although the rest is strict JSON: the separator before it must be
    // missing.
    if dropped == blank && lenient_json::parse_strict(&text).is_ok() {
        return Err(JsonSyntaxError::missing_separator());
    }
    let (rules, relaxed) = repairs.repair_json(&text).map_err(back)?;
    let place = |at: usize| (dropped + relaxed.source_offset(at)).checked_sub(1);
    Ok((
        rules,
        parse_entries(&relaxed.text, argument, place).map_err(back)?,
    ))
}

/// Returns true if the rest of an object is only its end, with or without the comma before it.
fn is_object_end(rest: &str) -> bool {
    let rest = rest.trim_ascii();
    rest.strip_prefix(',').unwrap_or(rest).trim_ascii() == "}"
}

/// Returns true if there is certainly no comma between an argument and the rest. False if the source text is not available. Native calls
/// have no source text between their arguments, so only parsing the rest can reveal it.
fn is_missing_comma(
    known: &DraftArgument,
    rest: &DraftArgument,
    notes: &CallDiagnostics<'_>,
) -> bool {
    let between = notes
        .source
        .get(known.span.end..rest.span.start)
        .filter(|_| notes.call.dialect.is_some());
    between.is_some_and(|between| !between.contains(','))
        && !rest.text.trim_ascii_start().starts_with(',')
}

impl JsonSyntaxError {
    /// Makes the error of a rest that follows a value without a comma, at the start of the rest.
    fn missing_separator() -> Self {
        Self::new(0, "`,` or `}` was expected after the value before it")
    }
}

/// Parses the arguments of an object in strict JSON; an argument given twice is returned twice.
///
/// `place` maps an offset in `text` to an offset in the source; `None` if the byte is not from the source.
///
/// Values keep their source text instead of becoming `Value`s: the checks coerce by declared type,
/// and a number must not lose digits in the conversion.
fn parse_entries(
    text: &str,
    source: &DraftArgument,
    place: impl Fn(usize) -> Option<usize>,
) -> Result<Vec<DraftArgument>, JsonSyntaxError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader
        .deserialize_map(ObjectVisitor)
        .and_then(|found| reader.end().map(|()| found));
    let found = found.map_err(|error| JsonSyntaxError::from_serde(text, &error))?;
    let argument = |(name, value): (String, &RawValue)| {
        let json = value.get();
        // A raw value borrows from `text`, so the difference of the addresses is its offset.
        let at = json.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        // Like a parser's, the span of a string leaves its quotes out.
        let quote = usize::from(json.starts_with('"'));
        let span = match (place(at + quote), place(at + json.len() - quote)) {
            (Some(start), Some(end)) => span_within(source, start, end.saturating_sub(start)),
            _ => source.span,
        };
        let (form, text) = match json.starts_with('"') {
            true => (
                ArgumentEncoding::String,
                serde_json::from_str(json)
                    .map_err(|error| JsonSyntaxError::from_serde(json, &error))?,
            ),
            false => (ArgumentEncoding::Json, json.to_owned()),
        };
        Ok(DraftArgument {
            name,
            form,
            text,
            partial: false,
            span,
        })
    };
    found.into_iter().map(argument).collect()
}

/// A serde visitor that collects every key of an object, in order, with the text of its value.
struct ObjectVisitor;

// A `Map` would keep one of two equal keys, and the fault about the other would be lost.
impl<'t> Visitor<'t> for ObjectVisitor {
    type Value = Vec<(String, &'t RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
