//! The arguments of one call: which there are, what they mean, and what the schema says of them.

use std::borrow::Cow;
use std::collections::HashSet;

use sabir_call::{ArgForm, DraftArgument, Fault, FaultKind, ToolSpec};
use serde_json::Value;

use crate::coerce::{self, Reading};
use crate::misspelt;
use crate::notes::{Notes, is_placeholder, is_placeholder_value, meant, placeholder};
use crate::repair::{Repairs, Slot, shortened};
use crate::rest;
use crate::schema::{Shape, Types};

/// With so many names too many no slip of the pen can be made out, and nobody waits for it.
const CROWD: usize = 64;

/// One argument that was read.
pub(crate) struct Given<'a> {
    /// Its declared name.
    pub(crate) name: String,
    pub(crate) value: Value,
    /// What the model wrote.
    pub(crate) written: Cow<'a, DraftArgument>,
    /// The other reading of a string in a union.
    pub(crate) other: Option<Reading>,
}

/// Reads the arguments of a call of a known tool.
pub(crate) struct Reader<'t> {
    pub(crate) tool: &'t ToolSpec,
    pub(crate) repairs: Repairs,
}

impl Reader<'_> {
    /// The gate "arguments complete", and coercion.
    pub(crate) fn read<'d>(&self, notes: &mut Notes<'d>) -> Vec<Given<'d>> {
        let shape = Shape::new(&self.tool.parameters);
        let (declared, required) = (shape.names(), shape.required());
        notes.name_near(&declared);
        let written = rest::resolve(notes, self.repairs);
        let names: Vec<String> = written.iter().map(|argument| argument.name.clone()).collect();
        let spelled: Vec<&str> = names.iter().map(String::as_str).collect();
        let slot =
            |name| Slot { name, declared: &declared, required: &required, given: &spelled, closed: shape.closed() };
        let crowded = spelled.len() > declared.len() + CROWD;
        let mut given: Vec<Given<'d>> = Vec::new();
        let mut seen = HashSet::new();
        for (argument, spelling) in written.into_iter().zip(&names) {
            let mut name = argument.name.clone();
            if !declared.contains(&name.as_str()) {
                let meant = if crowded { None } else { self.repairs.argument(&slot(spelling)) };
                if let Some((rule, meant)) = meant {
                    notes.repair(rule, argument.span, &name, &meant);
                    name = meant;
                } else if let Some(fault) = misspelt::json_in_tag(&argument, &declared, notes) {
                    notes.push(fault);
                } else if let Some(fault) = self.unknown(&argument, shape, notes) {
                    notes.push(fault);
                }
            }
            if !seen.insert(name.clone()) {
                let message = format!("`{}` is given twice; one value was expected", shortened(&name));
                let fault = notes.fault(FaultKind::DoubledArgument, notes.argument_name(&argument), message);
                notes.push(fault.in_argument(name).hint("give it once; the first value was kept, and nothing was run"));
                continue;
            }
            given.extend(self.value(name, argument, shape, notes));
        }
        if !notes.unread() && !notes.is_swallowed() {
            self.missing(&given, shape, notes);
        }
        given
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
        let fault = notes.fault(FaultKind::UnknownArgument, notes.argument_name(argument), message);
        Some(fault.in_argument(argument.name.clone()).hint(meant(&argument.name, &shape.names())))
    }

    fn missing(&self, given: &[Given<'_>], shape: Shape<'_>, notes: &mut Notes<'_>) {
        let declared = shape.names();
        let stray: Vec<&str> =
            given.iter().map(|given| given.name.as_str()).filter(|name| !declared.contains(name)).collect();
        let gone: Vec<&str> =
            shape.required().into_iter().filter(|name| !given.iter().any(|given| given.name == *name)).collect();
        if let Some(fault) = misspelt::all_in_one(given, &gone, &declared, notes) {
            return notes.push(fault);
        }
        for name in gone {
            let expected =
                shape.property(name).types().map_or_else(String::new, |types| format!(" ({})", types.words()));
            let message = format!("`{}` needs the argument `{name}`{expected}, which is missing", self.tool.name);
            let fault = notes.fault(FaultKind::MissingArgument, notes.name_span(), message).in_argument(name);
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
        let written = misspelt::before_stranger(written, notes);
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
        notes.faults.extend(misspelt::entities(&name, &written, notes));
        let (declared, optional) = (shape.names(), !shape.required().contains(&name.as_str()));
        let shape = shape.property(&name);
        let types = shape.types();
        let null = written.form == ArgForm::Json && text.trim() == "null";
        let left_out = null && optional && types.is_some_and(|types| !types.has(Types::NULL));
        if left_out && self.repairs.has("null_argument") {
            notes.repair("null_argument", written.span, text, "");
            return None;
        }
        let value = match coerce::read(text, written.form, shape, types, self.repairs) {
            Ok(Reading { value, rules }) => {
                for rule in rules {
                    notes.repair(rule, written.span, text, &value.to_string());
                }
                value
            }
            Err(mismatch) => {
                let wanted = misspelt::Wanted { name: &name, shape, declared: &declared };
                notes.push(misspelt::misread(&wanted, &written, mismatch, notes));
                Value::String(text.to_owned())
            }
        };
        let others = types.filter(|types| types.has(Types::STRING)).map(|types| types.without(Types::STRING));
        let other = others.filter(|types| !types.is_empty() && written.form != ArgForm::Json);
        let other = other.and_then(|types| coerce::read(text, written.form, shape, Some(types), self.repairs).ok());
        Some(Given { name, value, written, other })
    }
}

/// A value as JSON, cut after some eighty characters: feedback never repeats a whole file.
pub(crate) fn excerpt(value: &Value) -> String {
    match value {
        // A long string is cut before it is written, not after.
        Value::String(text) => Value::String(capped(text)).to_string(),
        other => capped(&other.to_string()),
    }
}

pub(crate) fn capped(text: &str) -> String {
    const CHARS: usize = 80;
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
