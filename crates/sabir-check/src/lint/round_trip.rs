//! Renders a call of each tool in each dialect and parses it back, which finds problems that no other rule foresees.

use sabir_call::dialect::Dialect;
use sabir_call::{
    Call, CallId, CallReader, DraftCall, DraftResponse, DraftState, ToolSpec, Truncation,
};
use serde_json::{Map, Value, json};

use super::{FindingDetails, LintFindings, LintInput, argument_path};
use crate::schema::{JsonTypes, SchemaView};

/// Reports tools whose calls do not survive rendering and parsing, grouped by the argument that
/// causes it.
///
/// One finding covers all dialects with the same tool and argument, so a bad name is not reported for each of about fifty dialects.
pub(super) fn unreadable_call(tools: &LintInput<'_>, found: &mut LintFindings) {
    let calls: Vec<Call> = tools
        .set
        .iter()
        .map(|spec| sample_call(spec, |_| true))
        .collect();
    let mut bad: Vec<(String, Option<String>, Vec<&'static str>)> = Vec::new();
    for dialect in &tools.scope.dialects {
        // All calls at once first: that nearly always succeeds, and is much faster than one by one.
        if round_trips(tools, dialect, &calls) {
            continue;
        }
        for (spec, call) in tools.set.iter().zip(&calls) {
            if round_trips(tools, dialect, std::slice::from_ref(call)) {
                continue;
            }
            // An argument is to blame only if the call succeeds without any arguments.
            let culprit = spec
                .declared_arguments()
                .map(|argument| argument.name)
                .find(|name| {
                    let alone = self::sample_call(spec, |other| other == *name);
                    !round_trips(tools, dialect, &[alone])
                });
            let bare = round_trips(tools, dialect, &[self::sample_call(spec, |_| false)]);
            let culprit = culprit.filter(|_| bare).map(str::to_owned);
            match bad
                .iter_mut()
                .find(|(name, argument, _)| *name == spec.name && *argument == culprit)
            {
                Some((.., dialects)) => dialects.push(dialect.name),
                None => bad.push((spec.name.clone(), culprit, vec![dialect.name])),
            }
        }
    }
    for (name, argument, dialects) in bad {
        let Some((at, _)) = tools.tool_specs().find(|(_, spec)| spec.name == name) else {
            continue;
        };
        let (path, what) = match &argument {
            Some(argument) => (
                argument_path(argument),
                format!("calls of `{name}` with `{argument}`"),
            ),
            None => ("/name".to_owned(), format!("calls of `{name}`")),
        };
        let message = format!("{what}, written as they are taught, are not read back");
        found.push(
            at,
            &name,
            &path,
            FindingDetails::error(message, "choose names of letters, digits and `_`")
                .with_dialects(dialects),
        );
    }
}

/// Returns true if the calls are parsed as they were rendered, by the dialect alone and among all dialects.
fn round_trips(tools: &LintInput<'_>, dialect: &Dialect, calls: &[Call]) -> bool {
    let text = dialect.render_calls(calls, &tools.set);
    let known = &tools.scope.known;
    // Among all dialects as well, because a task listens for all of them, and another dialect may
    // claim the tool's tag.
    [known.only(dialect), known.all()]
        .into_iter()
        .all(|selection| {
            let mut draft = DraftResponse::default();
            let mut reader = CallReader::new(selection, &tools.set);
            reader.push(&text, &mut draft);
            reader.finish(Truncation::Ended, &mut draft);
            let read: Vec<_> = draft.calls().collect();
            read.len() == calls.len()
                && read
                    .iter()
                    .zip(calls)
                    .all(|(read, call)| is_same_call(&draft, read, call))
        })
}

/// Returns true if the call was closed without errors and has the same name and argument names. Values are not compared: they are samples
/// of the linter, which the checks would still coerce.
fn is_same_call(draft: &DraftResponse, read: &DraftCall, call: &Call) -> bool {
    let whole = read.state == DraftState::Closed && draft.errors_of(read.index).next().is_none();
    let names = read.arguments.iter().map(|argument| argument.name.as_str());
    whole && read.name == call.name && names.eq(call.arguments.keys().map(String::as_str))
}

/// Makes a call with the arguments for which the predicate holds.
fn sample_call(spec: &ToolSpec, holds: impl Fn(&str) -> bool) -> Call {
    let shape = SchemaView::new(&spec.parameters);
    let names = spec
        .declared_arguments()
        .map(|argument| argument.name)
        .filter(|name| holds(name));
    let arguments: Map<String, Value> = names
        .map(|name| (name.to_owned(), sample_value(shape.property_schema(name))))
        .collect();
    Call {
        id: CallId::new("lint"),
        name: spec.name.clone(),
        arguments,
        dialect: None,
    }
}

/// Makes a simple value of a type that the schema allows.
fn sample_value(shape: SchemaView<'_>) -> Value {
    let types = shape.allowed_types().unwrap_or(JsonTypes::STRING);
    let rows = [
        (JsonTypes::STRING, json!("text")),
        (JsonTypes::INTEGER, json!(1)),
        (JsonTypes::NUMBER, json!(1.5)),
        (JsonTypes::BOOLEAN, json!(true)),
        (JsonTypes::ARRAY, json!(["text"])),
        (JsonTypes::OBJECT, json!({"key": "text"})),
    ];
    rows.into_iter()
        .find(|(one, _)| types.has(*one))
        .map_or(Value::Null, |(_, value)| value)
}
