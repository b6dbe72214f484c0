//! The trial: each tool's call is written in each dialect and read back. Whatever no other rule foresees shows here.

use sabir_call::dialect::{Dialect, Selection};
use sabir_call::{Call, CallId, Cut, Draft, DraftCall, DraftState, Reader, ToolSpec};
use serde_json::{Map, Value, json};

use super::{About, Findings, Tools, argument_path};
use crate::schema::{Shape, Types};

pub(super) fn unreadable(tools: &Tools<'_>, found: &mut Findings) {
    let calls: Vec<Call> = tools.set.iter().map(|spec| call(spec, |_| true)).collect();
    let mut bad: Vec<(String, Option<String>, Vec<&'static str>)> = Vec::new();
    for dialect in &tools.scope.dialects {
        // All at once first: that is right nearly always, and one by one takes its time.
        if is_read(tools, dialect, &calls) {
            continue;
        }
        for (spec, call) in tools.set.iter().zip(&calls) {
            if is_read(tools, dialect, std::slice::from_ref(call)) {
                continue;
            }
            let culprit = spec.arguments().map(|argument| argument.name).find(|name| {
                let alone = self::call(spec, |other| other == *name);
                !is_read(tools, dialect, &[alone])
            });
            let bare = is_read(tools, dialect, &[self::call(spec, |_| false)]);
            let culprit = culprit.filter(|_| bare).map(str::to_owned);
            match bad.iter_mut().find(|(name, argument, _)| *name == spec.name && *argument == culprit) {
                Some((.., dialects)) => dialects.push(dialect.name),
                None => bad.push((spec.name.clone(), culprit, vec![dialect.name])),
            }
        }
    }
    for (name, argument, dialects) in bad {
        let Some((at, _)) = tools.specs().find(|(_, spec)| spec.name == name) else { continue };
        let (path, what) = match &argument {
            Some(argument) => (argument_path(argument), format!("calls of `{name}` with `{argument}`")),
            None => ("/name".to_owned(), format!("calls of `{name}`")),
        };
        let message = format!("{what}, written as they are taught, are not read back");
        found.push(at, &name, &path, About::error(message, "choose names of letters, digits and `_`").within(dialects));
    }
}

/// Whether calls are read as they were written, by the dialect alone and among all.
fn is_read(tools: &Tools<'_>, dialect: &'static Dialect, calls: &[Call]) -> bool {
    let text = dialect.render_calls(calls, &tools.set);
    [Selection::from(dialect), Selection::AUTO].into_iter().all(|selection| {
        let mut draft = Draft::default();
        let mut reader = Reader::new(selection, &tools.set);
        reader.push(&text, &mut draft);
        reader.finish(Cut::Ended, &mut draft);
        let read: Vec<_> = draft.calls().collect();
        read.len() == calls.len() && read.iter().zip(calls).all(|(read, call)| is_same(&draft, read, call))
    })
}

fn is_same(draft: &Draft, read: &DraftCall, call: &Call) -> bool {
    let whole = read.state == DraftState::Closed && draft.errors_of(read.index).next().is_none();
    let names = read.arguments.iter().map(|argument| argument.name.as_str());
    whole && read.name == call.name && names.eq(call.arguments.keys().map(String::as_str))
}

/// A call with those of its arguments.
fn call(spec: &ToolSpec, holds: impl Fn(&str) -> bool) -> Call {
    let shape = Shape::new(&spec.parameters);
    let names = spec.arguments().map(|argument| argument.name).filter(|name| holds(name));
    let arguments: Map<String, Value> = names.map(|name| (name.to_owned(), value(shape.property(name)))).collect();
    Call { id: CallId::new("lint"), name: spec.name.clone(), arguments, dialect: None }
}

/// A value of a type that the schema allows, as plain as can be.
fn value(shape: Shape<'_>) -> Value {
    let types = shape.types().unwrap_or(Types::STRING);
    let rows = [
        (Types::STRING, json!("text")),
        (Types::INTEGER, json!(1)),
        (Types::NUMBER, json!(1.5)),
        (Types::BOOLEAN, json!(true)),
        (Types::ARRAY, json!(["text"])),
        (Types::OBJECT, json!({"key": "text"})),
    ];
    rows.into_iter().find(|(one, _)| types.has(*one)).map_or(Value::Null, |(_, value)| value)
}
