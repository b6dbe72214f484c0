//! Reads the arguments of one call: resolves their names, types their values, and reports the missing ones.

use std::borrow::Cow;
use std::collections::HashSet;

use sabir_call::compatibility::hinted_argument;
use sabir_call::{ArgumentEncoding, DraftArgument, Fault, FaultKind, ToolSpec};
use serde_json::Value;

use crate::call_diagnostics::{
    CallDiagnostics, is_placeholder, is_placeholder_value, placeholder_fault, suggestion_hint,
};
use crate::coerce::{self, CoercedValue};
use crate::misspelling;
use crate::repair::{RepairSet, UndeclaredArgument, shorten_text};
use crate::schema::{JsonTypes, SchemaView};
use crate::trailing_arguments;

/// The number of superfluous names above which no misspelled name is looked for. Comparing every name with every other is quadratic, and
/// more unknown names are no typing error.
const MAX_EXTRA_NAMES: usize = 64;

/// The most arguments of a call beyond those that the tool declares. Each would have a fault of its own.
const MAX_EXTRA_ARGUMENTS: usize = 1_000;

/// An argument with its typed value.
///
/// It keeps the written form beside the value, because faults and repairs point into that form.
pub(crate) struct TypedArgument<'a> {
    /// Its declared name.
    pub(crate) name: String,
    pub(crate) value: Value,
    /// The argument as the model wrote it.
    /// Owned only if it differs from the argument that the parser delivered.
    pub(crate) written: Cow<'a, DraftArgument>,
    /// The alternative reading of a string whose schema is a union; validation chooses.
    pub(crate) alternative: Option<CoercedValue>,
}

/// A reader for the arguments of a call to a known tool.
pub(crate) struct ArgumentReader<'t> {
    pub(crate) tool: &'t ToolSpec,
    pub(crate) repairs: RepairSet,
}

impl ArgumentReader<'_> {
    /// Runs the check "arguments complete" and coerces each value.
    ///
    /// Names come before values, as the schema of a value depends on the argument that is meant. An
    /// undeclared argument is coerced too, by `additionalProperties` if that is a schema.
    pub(crate) fn read_arguments<'d>(
        &self,
        notes: &mut CallDiagnostics<'d>,
    ) -> Vec<TypedArgument<'d>> {
        let shape = SchemaView::new(&self.tool.parameters);
        let declared = shape.property_names();
        let required = shape.required_names();
        notes.suggest_near_names(&declared);
        let written = trailing_arguments::resolve_arguments(notes, self.repairs);
        if written.len() > declared.len() + MAX_EXTRA_ARGUMENTS {
            let message = format!(
                "the call has {} arguments, more than any tool takes",
                written.len()
            );
            let fault = notes.new_fault(FaultKind::UnknownArgument, notes.name_span(), message);
            notes.push(fault.with_hint(suggestion_hint("", &declared)));
            return Vec::new();
        }
        // Copied, because the loop below consumes the arguments while the rules still compare all
        // names.
        let names: Vec<String> = written
            .iter()
            .map(|argument| argument.name.clone())
            .collect();
        let spelled: Vec<&str> = names.iter().map(String::as_str).collect();
        let slot = |name| UndeclaredArgument {
            name,
            declared: &declared,
            required: &required,
            given: &spelled,
            closed: shape.is_closed(),
        };
        let crowded = spelled.len() > declared.len() + MAX_EXTRA_NAMES;
        let mut given: Vec<TypedArgument<'d>> = Vec::new();
        let mut seen = HashSet::new();
        for (argument, spelling) in written.into_iter().zip(&names) {
            let mut name = argument.name.clone();
            if !declared.contains(&name.as_str()) {
                let meant = if crowded {
                    None
                } else {
                    self.repairs.resolve_argument(&slot(spelling))
                };
                if let Some((rule, meant)) = meant {
                    notes.push_repair(rule, argument.span, &name, &meant);
                    name = meant;
                } else if let Some(fault) =
                    misspelling::json_in_tag_fault(&argument, &declared, notes)
                {
                    notes.push(fault);
                } else if let Some(fault) = self.unknown_argument_fault(&argument, shape, notes) {
                    notes.push(fault);
                }
            }
            // Compared after renaming: `path` and `Path` in one call are the same argument twice.
            // It is unknown which value was meant, so neither is used silently.
            if !seen.insert(name.clone()) {
                let message = format!(
                    "`{}` is given twice; one value was expected",
                    shorten_text(&name)
                );
                let fault = notes.new_fault(
                    FaultKind::DoubledArgument,
                    notes.argument_name_span(&argument),
                    message,
                );
                notes.push(
                    fault
                        .in_argument(name)
                        .with_hint("give it once; the first value was kept, and nothing was run"),
                );
                continue;
            }
            given.extend(self.coerce_argument(name, argument, shape, notes));
        }
        // Arguments that could not be read are not missing; reporting them would mislead the model.
        if !notes.is_unreadable() && !notes.has_json_in_tag() {
            self.report_missing(&given, shape, notes);
        }
        given
    }

    /// Returns the fault of an undeclared argument; `None` if the schema allows further arguments.
    ///
    /// A placeholder from the instructions is reported even for an open schema: no tool wants an
    /// argument `parameter1_name`.
    fn unknown_argument_fault(
        &self,
        argument: &DraftArgument,
        shape: SchemaView<'_>,
        notes: &CallDiagnostics<'_>,
    ) -> Option<Fault> {
        if is_placeholder(&argument.name) {
            return Some(placeholder_fault(notes, argument));
        }
        if !shape.is_closed() {
            return None;
        }
        let name = shorten_text(&argument.name);
        let message = format!("`{}` has no argument `{name}`", self.tool.name);
        let fault = notes.new_fault(
            FaultKind::UnknownArgument,
            notes.argument_name_span(argument),
            message,
        );
        Some(
            fault
                .in_argument(argument.name.clone())
                .with_hint(suggestion_hint(&argument.name, &shape.property_names())),
        )
    }

    /// Reports the required arguments that are missing, or that another argument holds as JSON.
    ///
    /// The span is the tool's name, since a missing argument has no position.
    fn report_missing(
        &self,
        given: &[TypedArgument<'_>],
        shape: SchemaView<'_>,
        notes: &mut CallDiagnostics<'_>,
    ) {
        let declared = shape.property_names();
        // An undeclared name is probably a misspelling of the missing one.
        let stray: Vec<&str> = given
            .iter()
            .map(|given| given.name.as_str())
            .filter(|name| !declared.contains(name))
            .collect();
        let gone: Vec<&str> = shape
            .required_names()
            .into_iter()
            .filter(|name| !given.iter().any(|given| given.name == *name))
            .collect();
        if let Some(fault) = misspelling::combined_arguments_fault(given, &gone, &declared, notes) {
            return notes.push(fault);
        }
        for name in gone {
            let expected = shape
                .property_schema(name)
                .allowed_types()
                .map_or_else(String::new, |types| {
                    format!(" ({})", types.describe_types())
                });
            let message = format!(
                "`{}` needs the argument `{name}`{expected}, which is missing",
                self.tool.name
            );
            let fault = notes
                .new_fault(FaultKind::MissingArgument, notes.name_span(), message)
                .in_argument(name);
            notes.push(match likely_spelling(name, &stray) {
                Some(near) => {
                    fault.with_hint(format!("`{near}` was given; did you mean `{name}`?"))
                }
                None => fault.with_hint(format!("add `{name}`")),
            });
        }
    }

    /// Coerces one value. A cut value stays text and is never checked, because the rest of it is unknown.
    ///
    /// Returns `None` for an argument that is dropped: a cut JSON value, or a `null` that is read as "left out".
    fn coerce_argument<'d>(
        &self,
        name: String,
        written: Cow<'d, DraftArgument>,
        shape: SchemaView<'_>,
        notes: &mut CallDiagnostics<'_>,
    ) -> Option<TypedArgument<'d>> {
        let written = misspelling::truncate_at_unknown(written, notes);
        let text = written.text.as_str();
        // Half a JSON value is not a value, while half a text can still be shown to the user.
        if written.partial {
            let shown = written.form != ArgumentEncoding::Json;
            let value = Value::String(text.to_owned());
            return shown.then_some(TypedArgument {
                name,
                value,
                written,
                alternative: None,
            });
        }
        // The value is kept beside the fault, so that the call can be shown as it was written.
        if written.form != ArgumentEncoding::Json && is_placeholder_value(text) {
            let message = format!(
                "`{name}` holds `{}`, a placeholder of the instructions",
                shorten_text(text.trim())
            );
            let fault = notes.new_fault(FaultKind::Placeholder, written.span, message);
            notes.push(
                fault
                    .in_argument(name.clone())
                    .with_hint("put the real value in its place"),
            );
        }
        notes
            .faults
            .extend(misspelling::entity_warning(&name, &written, notes));
        let declared = shape.property_names();
        let optional = !shape.required_names().contains(&name.as_str());
        let shape = shape.property_schema(&name);
        let types = shape.allowed_types();
        // OpenAI's strict mode makes every argument required and nullable, so models trained on it
        // write `null` for what they leave out.
        let null = written.form == ArgumentEncoding::Json && text.trim() == "null";
        let left_out = null && optional && types.is_some_and(|types| !types.has(JsonTypes::NULL));
        if left_out && self.repairs.has_rule("null_argument") {
            notes.push_repair("null_argument", written.span, text, "");
            return None;
        }
        let value = match coerce::coerce_value(text, written.form, shape, types, self.repairs) {
            Ok(CoercedValue { value, rules }) => {
                for rule in rules {
                    notes.push_repair(rule, written.span, text, &value.to_string());
                }
                value
            }
            Err(mismatch) => {
                let wanted = misspelling::ExpectedArgument {
                    name: &name,
                    shape,
                    declared: &declared,
                };
                notes.push(misspelling::mismatch_fault(
                    &wanted, &written, mismatch, notes,
                ));
                Value::String(text.to_owned())
            }
        };
        // A union that allows strings keeps the text. Other types are tried later, and only
        // if validation refuses the string.
        let others = types
            .filter(|types| types.has(JsonTypes::STRING))
            .map(|types| types.without(JsonTypes::STRING));
        let others =
            others.filter(|types| !types.is_empty() && written.form != ArgumentEncoding::Json);
        let alternative = others.and_then(|types| {
            coerce::coerce_value(text, written.form, shape, Some(types), self.repairs).ok()
        });
        Some(TypedArgument {
            name,
            value,
            written,
            alternative,
        })
    }
}

/// Returns the given name that is probably a misspelled missing argument.
fn likely_spelling<'a>(missing: &str, stray: &[&'a str]) -> Option<&'a str> {
    stray
        .iter()
        .copied()
        .find(|name| hinted_argument(name, &[missing]).is_some())
        .or_else(|| sabir_call::nearest_candidate(missing, stray.iter().copied()))
}

/// Renders a value as JSON, cut after 80 characters, so that feedback never repeats a whole file.
///
/// Escapes are shown as JSON writes them, so that white space at the ends of a value is visible.
pub(crate) fn json_excerpt(value: &Value) -> String {
    match value {
        // A long string is cut before it is rendered, so that the excerpt keeps its closing quote.
        Value::String(text) => Value::String(truncate_excerpt(text)).to_string(),
        other => truncate_excerpt(&other.to_string()),
    }
}

/// Cuts a text after 80 characters.
pub(crate) fn truncate_excerpt(text: &str) -> String {
    const CHARS: usize = 80;
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
