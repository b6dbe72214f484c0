//! The arguments of one call: which there are, what they mean, and what the schema says of them.

use std::borrow::Cow;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use sabir_call::json::{ArgumentScanner, Whole};
use sabir_call::{ArgForm, Draft, DraftArgument, Event, Fault, FaultKind, Severity, Sink, Span, ToolSpec, type_of};
use serde_json::{Map, Value};

use crate::coerce::{self, Mismatch, Reading};
use crate::gate::{Notes, is_placeholder, is_placeholder_value, meant, names, placeholder};
use crate::repair::{Repairs, Slot, shortened};
use crate::schema::{Shape, Types};

/// The most faults that validation may add to one call; a long array can be wrong in every item.
const SHOWN: usize = 16;

/// One argument that was read.
pub(crate) struct Given<'a> {
    /// Its declared name.
    pub(crate) name: String,
    pub(crate) value: Value,
    /// What the model wrote.
    written: Cow<'a, DraftArgument>,
    /// The other reading of a string in a union.
    other: Option<Reading>,
}

/// Reads the arguments of a call of a known tool.
pub(crate) struct Reader<'t> {
    pub(crate) tool: &'t ToolSpec,
    pub(crate) repairs: Repairs,
    /// The call was cut, or its text could not be read to its end: what is missing is no mistake.
    pub(crate) unfinished: bool,
}

impl Reader<'_> {
    /// The gate "arguments complete", and coercion.
    pub(crate) fn read<'d>(&self, notes: &mut Notes<'d>) -> Vec<Given<'d>> {
        let shape = Shape::new(&self.tool.parameters);
        let (declared, required) = (shape.names(), shape.required());
        let Some(written) = self.written(notes) else { return Vec::new() };
        let names: Vec<String> = written.iter().map(|argument| argument.name.clone()).collect();
        let spelled: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut given: Vec<Given<'d>> = Vec::new();
        for argument in written {
            let mut name = argument.name.clone();
            if !declared.contains(&name.as_str()) {
                let slot = Slot { name: &argument.name, declared: &declared, required: &required, given: &spelled };
                if let Some((rule, meant)) = self.repairs.argument(&slot) {
                    notes.repair(rule, argument.span, &name, &meant);
                    name = meant;
                } else if let Some(fault) = self.unknown(&argument, shape, notes) {
                    notes.push(fault);
                }
            }
            if given.iter().any(|known| known.name == name) {
                let fault = notes.fault(
                    FaultKind::DoubledArgument,
                    argument.span,
                    format!("`{}` is given twice", shortened(&name)),
                );
                notes.push(fault.in_argument(name).hint("give it once; the first value was kept, and nothing was run"));
                continue;
            }
            given.extend(self.value(name, argument, shape, notes));
        }
        if !self.unfinished {
            self.missing(&given, shape, notes);
        }
        given
    }

    /// The arguments as written. A lone one without a name is the whole text of the arguments, in need of a repair.
    /// `None`: that text is beyond repair.
    fn written<'d>(&self, notes: &mut Notes<'d>) -> Option<Vec<Cow<'d, DraftArgument>>> {
        let call = notes.call;
        if let [argument] = call.arguments.as_slice()
            && argument.name.is_empty()
            && argument.form != ArgForm::Raw
            && !argument.partial
        {
            if let Some((rules, inner)) = whole(argument, self.repairs) {
                let after = inner.iter().map(|argument| format!("{}: {}", argument.name, argument.text));
                let after = after.collect::<Vec<_>>().join(", ");
                for rule in rules {
                    notes.repair(rule, argument.span, &argument.text, &after);
                }
                return Some(inner.into_iter().map(Cow::Owned).collect());
            }
            let fault = notes.fault(
                FaultKind::MalformedJson,
                argument.span,
                format!("the arguments are no JSON object, but {}", excerpt(&Value::String(argument.text.clone()))),
            );
            notes.push(fault.hint("write one JSON object, for example {\"path\": \"a.txt\"}"));
            return None;
        }
        Some(call.arguments.iter().map(Cow::Borrowed).collect())
    }

    fn unknown(&self, argument: &DraftArgument, shape: Shape<'_>, notes: &Notes<'_>) -> Option<Fault> {
        if is_placeholder(&argument.name) {
            return Some(placeholder(notes, argument));
        }
        if !shape.closed() {
            return None;
        }
        let name = shortened(&argument.name);
        let message = format!("`{}` has no argument `{name}`", self.tool.name);
        let fault = notes.fault(FaultKind::UnknownArgument, argument.span, message);
        Some(fault.in_argument(argument.name.clone()).hint(meant(&argument.name, &shape.names())))
    }

    fn missing(&self, given: &[Given<'_>], shape: Shape<'_>, notes: &mut Notes<'_>) {
        let declared = shape.names();
        let stray: Vec<&str> =
            given.iter().map(|given| given.name.as_str()).filter(|name| !declared.contains(name)).collect();
        for name in shape.required() {
            if given.iter().any(|given| given.name == name) {
                continue;
            }
            let expected =
                shape.property(name).types().map_or_else(String::new, |types| format!(" ({})", types.words()));
            let message = format!("`{}` needs the argument `{name}`{expected}, which is missing", self.tool.name);
            let fault = notes.fault(FaultKind::MissingArgument, notes.call.span, message).in_argument(name);
            notes.push(match sabir_call::nearest(name, stray.iter().copied()) {
                Some(near) => fault.hint(format!("`{near}` was given; did you mean `{name}`?")),
                None => fault.hint(format!("add `{name}`")),
            });
        }
    }

    /// Coerces one value. A value that may still grow is shown as text and never judged.
    fn value<'d>(
        &self,
        name: String,
        written: Cow<'d, DraftArgument>,
        shape: Shape<'_>,
        notes: &mut Notes<'_>,
    ) -> Option<Given<'d>> {
        let written = before_stranger(written, notes);
        let text = written.text.as_str();
        if written.partial {
            let shown = written.form != ArgForm::Json;
            let value = Value::String(text.to_owned());
            return shown.then_some(Given { name, value, written, other: None });
        }
        if written.form != ArgForm::Json && is_placeholder_value(text) {
            let message = format!("`{name}` holds `{}`, a placeholder of the instructions", shortened(text.trim()));
            let fault = notes.fault(FaultKind::Placeholder, written.span, message);
            notes.push(fault.in_argument(name.clone()).hint("put the real value in its place"));
        }
        notes.faults.extend(entities(&name, &written, notes));
        let shape = shape.property(&name);
        let types = shape.types();
        let value = match coerce::read(text, written.form, shape, types, self.repairs) {
            Ok(Reading { value, rules }) => {
                for rule in rules {
                    notes.repair(rule, written.span, text, &value.to_string());
                }
                value
            }
            Err(mismatch) => {
                notes.push(misread(&name, &written, mismatch, notes));
                Value::String(text.to_owned())
            }
        };
        let others = types.filter(|types| types.has(Types::STRING)).map(|types| types.without(Types::STRING));
        let other = others.filter(|types| !types.is_empty() && written.form != ArgForm::Json);
        let other = other.and_then(|types| coerce::read(text, written.form, shape, Some(types), self.repairs).ok());
        Some(Given { name, value, written, other })
    }
}

/// A value that an unknown argument was read into, without that argument: what is said of it should be said of what was meant.
fn before_stranger<'d>(written: Cow<'d, DraftArgument>, notes: &Notes<'_>) -> Cow<'d, DraftArgument> {
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
fn entities(name: &str, written: &DraftArgument, notes: &Notes<'_>) -> Option<Fault> {
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
fn part_of(written: &DraftArgument, at: usize, length: usize) -> Span {
    let Span { start, end } = written.span;
    match (end - start).checked_sub(written.text.len()) {
        Some(0) => Span::new(start + at, start + at + length),
        Some(feed @ (1 | 2)) if written.form == ArgForm::Raw => {
            Span::new(start + feed + at, start + feed + at + length)
        }
        _ => written.span,
    }
}

/// Reads the text of all arguments: a JSON string that holds an object, or an object with slips.
fn whole(argument: &DraftArgument, repairs: Repairs) -> Option<(Vec<&'static str>, Vec<DraftArgument>)> {
    let mut rules = Vec::new();
    if argument.form == ArgForm::String {
        rules.extend(repairs.has("double_encoding").then_some("double_encoding"));
        if rules.is_empty() {
            return None;
        }
    }
    let mut inner = scan(&argument.text);
    if inner.is_none() {
        let (slips, relaxed) = repairs.json(&argument.text)?;
        rules.extend(slips);
        inner = scan(&relaxed.text);
    }
    let mut inner = inner?;
    for argument_inside in &mut inner {
        argument_inside.span = argument.span;
    }
    Some((rules, inner))
}

/// The arguments in the text of one whole JSON object without any fault.
fn scan(text: &str) -> Option<Vec<DraftArgument>> {
    let mut draft = Draft::default();
    draft.event(Event::CallStart { index: 0, id: None, name: "", dialect: None, at: 0, name_at: 0 });
    let mut scanner = ArgumentScanner::new(0);
    scanner.push(text, &mut draft);
    let ended = scanner.finish(&mut draft) == Whole::Yes;
    let call = draft.call(0).filter(|_| ended && draft.faults.is_empty() && text.trim_ascii().starts_with('{'))?;
    let nameless = call.arguments.iter().any(|argument| argument.name.is_empty());
    (!nameless).then(|| call.arguments.clone())
}

fn misread(name: &str, written: &DraftArgument, mismatch: Mismatch, notes: &Notes<'_>) -> Fault {
    let found = excerpt(&Value::String(written.text.clone()));
    match mismatch {
        Mismatch::Type(types) => {
            let message = format!("`{name}` must be {}, but is {found}", types.words());
            let fault = notes.fault(FaultKind::WrongType, written.span, message);
            fault.in_argument(name).hint(format!("write {} in `{name}`", types.words()))
        }
        Mismatch::Json { message, at } => {
            let span = part_of(written, at, 1);
            let fault = notes.fault(
                FaultKind::MalformedJson,
                span,
                format!("`{name}` is no valid JSON: {message}; found {found}"),
            );
            fault.in_argument(name).hint("write valid JSON: double quotes, no comma before a closing bracket")
        }
    }
}

/// Runs the validator over typed arguments, tries the other readings of refused strings, and notes what stays wrong.
pub(crate) fn validate(
    validator: &Validator,
    given: &[Given<'_>],
    arguments: &mut Map<String, Value>,
    notes: &mut Notes<'_>,
) {
    let mut value = Value::Object(std::mem::take(arguments));
    for given in given {
        let Some(other) = given.other.as_ref().filter(|_| refused(validator, &value, &given.name)) else { continue };
        let Some(place) = value.get_mut(&given.name) else { continue };
        let string = std::mem::replace(place, other.value.clone());
        if refused(validator, &value, &given.name) {
            if let Some(place) = value.get_mut(&given.name) {
                *place = string;
            }
            continue;
        }
        for rule in &other.rules {
            notes.repair(rule, given.written.span, &given.written.text, &other.value.to_string());
        }
    }
    for error in validator.iter_errors(&value).take(SHOWN) {
        if let Some(fault) = invalid(&error, given, notes) {
            notes.faults.push(fault);
        }
    }
    if let Value::Object(object) = value {
        *arguments = object;
    }
}

fn refused(validator: &Validator, value: &Value, name: &str) -> bool {
    validator.iter_errors(value).any(|error| split(error.instance_path().as_str()).0 == name)
}

/// The argument's name and the JSON pointer inside its value.
fn split(pointer: &str) -> (String, &str) {
    let rest = pointer.strip_prefix('/').unwrap_or(pointer);
    let end = rest.find('/').unwrap_or(rest.len());
    let (name, inside) = rest.split_at_checked(end).unwrap_or((rest, ""));
    (name.replace("~1", "/").replace("~0", "~"), inside)
}

/// The fault of a validation error; `None` where an earlier gate has said it.
fn invalid(error: &ValidationError<'_>, given: &[Given<'_>], notes: &Notes<'_>) -> Option<Fault> {
    let pointer = error.instance_path().as_str();
    let found = excerpt(error.instance());
    if pointer.is_empty() {
        return whole_invalid(error, notes);
    }
    let (name, inside) = split(pointer);
    if notes.wrong(&name) && inside.is_empty() {
        return None;
    }
    let span = given.iter().find(|given| given.name == name).map_or(notes.call.span, |given| given.written.span);
    let place = if inside.is_empty() { format!("`{name}`") } else { format!("`{name}` at `{}`", shortened(inside)) };
    let (kind, message, hint) = match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(set) => set.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
            };
            let message =
                format!("{place} must be {}, but is {} {found}", article(&expected), type_of(error.instance()));
            (FaultKind::WrongType, message, Some(format!("write {} there", article(&expected))))
        }
        ValidationErrorKind::Enum { options } => {
            let message = format!("{place} must be one of {}, but is {found}", excerpt(options));
            let options = options.as_array().into_iter().flatten().filter_map(Value::as_str);
            let near = error.instance().as_str().and_then(|value| sabir_call::nearest(value, options));
            (FaultKind::InvalidValue, message, near.map(|near| format!("did you mean `{near}`?")))
        }
        ValidationErrorKind::Required { property } => {
            let property = property.as_str().unwrap_or_default();
            let message = format!("{place} needs `{}`, but is {found}", shortened(property));
            (FaultKind::InvalidValue, message, Some(format!("add `{}`", shortened(property))))
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let message = format!("{place} must not have {}", names(unexpected.iter().map(String::as_str)));
            (FaultKind::InvalidValue, message, None)
        }
        _ => {
            (FaultKind::InvalidValue, format!("{place}: {}; found {found}", capped(&error.masked().to_string())), None)
        }
    };
    let mut fault = notes.fault(kind, span, message).in_argument(name);
    fault.hint = hint;
    Some(fault)
}

/// An error about the arguments as a whole.
fn whole_invalid(error: &ValidationError<'_>, notes: &Notes<'_>) -> Option<Fault> {
    let told = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str().is_some_and(|name| notes.wrong(name)),
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.iter().all(|name| notes.wrong(name)),
        _ => false,
    };
    let message = format!("the arguments: {}", capped(&error.masked_with("they").to_string()));
    (!told).then(|| notes.fault(FaultKind::InvalidValue, notes.call.span, message))
}

fn article(word: &str) -> String {
    match word {
        "null" => word.to_owned(),
        _ if word.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {word}"),
        _ => format!("a {word}"),
    }
}

/// A value as JSON, cut after some eighty characters: feedback never repeats a whole file.
fn excerpt(value: &Value) -> String {
    match value {
        // A long string is cut before it is written, not after.
        Value::String(text) => Value::String(capped(text)).to_string(),
        other => capped(&other.to_string()),
    }
}

fn capped(text: &str) -> String {
    const CHARS: usize = 80;
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
