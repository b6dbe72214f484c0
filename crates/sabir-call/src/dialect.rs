//! Dialects: calls written as text.
//!
//! A dialect is a row of a [`DialectSet`]: a name, its literate spec (help, site and test suite in one), its grammar as data,
//! and the words that teach it. The [`CallReader`](crate::CallReader) reads all of them; a handful of machines does the work. A
//! row can also come from outside ([`DialectSet::define`]): whatever the machines can read needs no code.
//!
//! Rendering is the reverse of reading: `parse(render(call)) == call` for every call, whatever its values hold. A string
//! that a tagged dialect cannot hold raw (one with its own closing tags in it) is written as a JSON string in a tag that
//! says so, `<content encoding="json">"…"</content>`, with every `<` escaped.

pub mod define;
pub(crate) mod gemma;
pub(crate) mod grammar;
mod introspection;
mod json;
pub(crate) mod python;
mod render;
mod set;
mod tagged;
mod untagged;

use serde_json::{Map, Value};

use crate::message::Call;
use crate::tool::{ToolSet, ToolSpec};

pub use define::{DefineError, DialectTable, JsonTable, ParserKind, TagTable};
use grammar::Grammar;
pub use set::{DialectSelection, DialectSet};

/// The name of the dialect of Cline and Roo: each tool and each argument is a tag of its own name.
pub const CLINE: &str = "cline";
/// The name of the dialect with `<invoke name="…">` and `<parameter name="…">`.
pub const INVOKE: &str = "invoke";

/// One dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The name used on the command line, in events and in histories.
    pub name: &'static str,
    /// Other names that people know it by; accepted wherever the name is.
    pub aliases: &'static [&'static str],
    /// One sentence.
    pub summary: &'static str,
    /// The spec, in Markdown; its examples are the tests. Empty for a dialect that was defined by a table.
    pub spec: &'static str,
    /// How it is read and written.
    pub(crate) grammar: &'static Grammar,
    /// Special tokens that stand around everything else and mean nothing; servers leave them in the text.
    pub(crate) tokens: &'static [&'static str],
    /// The markers around a thought, where it has markers of its own.
    pub(crate) thought: Option<(&'static str, &'static str)>,
    /// How the syntax is taught; an example follows it.
    pub(crate) instructions: &'static str,
}

impl Dialect {
    /// A run of calls as the model would write it, with everything that this dialect puts around it.
    pub fn render_calls<'c>(&self, calls: impl IntoIterator<Item = &'c Call>, tools: &ToolSet) -> String {
        let calls: Vec<_> = calls.into_iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
        render::render_calls(self, &calls, tools)
    }

    /// One call as the model would write it, without a wrapper where the dialect has one around a run of calls.
    pub fn render_call(&self, name: &str, arguments: &Map<String, Value>, tools: &ToolSet) -> String {
        render::render_call(self, name, arguments, tools)
    }

    /// A minimal correct call of the tool: its required arguments, with the values of its first example where it has one.
    pub fn render_example(&self, tool: &ToolSpec) -> String {
        render::render_example(self, &tool.name, &example_arguments(tool))
    }

    /// What to mind when values are written.
    pub(crate) fn escaping_rule(&self) -> &'static str {
        match *self.grammar {
            Grammar::Tagged(_) | Grammar::Gemma(_) => {
                "Values are taken as they stand: do not escape `<`, `&` or quotes"
            }
            Grammar::Json(_) | Grammar::Harmony => {
                "Arguments are strict JSON: escape quotes, backslashes and line feeds inside strings, nothing else"
            }
            Grammar::Python(_) => {
                "Escape quotes, backslashes and line feeds inside strings as Python does, nothing else"
            }
        }
    }

    /// How the syntax is taught: the words, and calls of two well-known tools.
    pub(crate) fn render_instructions(&self) -> String {
        let one = |name: &str, value: Value| (name.to_owned(), value);
        let read = Map::from_iter([one("path", "src/main.rs".into())]);
        let write = Map::from_iter([one("path", "notes.md".into()), one("content", "# Notes\n\nFirst line.".into())]);
        let lines = match *self.grammar {
            Grammar::Tagged(_) => "A text of several lines may stand on lines of its own",
            Grammar::Gemma(_) => "A text of several lines",
            _ => "A text of several lines, escaped",
        };
        let read = render::render_example(self, "read_file", &read);
        format!(
            "{}\n\n{read}\n\n{lines}:\n\n{}",
            self.instructions,
            render::render_example(self, "write_to_file", &write)
        )
    }
}

/// Arguments that a schema accepts: the first example's, or the required ones with plain values.
pub(crate) fn example_arguments(tool: &ToolSpec) -> Map<String, Value> {
    if let Some(example) = tool.examples.first() {
        return example.clone();
    }
    let required = tool.declared_arguments().filter(|argument| argument.required);
    required.map(|argument| (argument.name.to_owned(), example_value(argument.schema))).collect()
}

fn example_value(schema: &Value) -> Value {
    let listed = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first());
    if let Some(value) = schema.get("default").or_else(|| schema.get("const")).or(listed) {
        return value.clone();
    }
    let argument = crate::tool::ArgumentSpec { name: "", required: true, schema };
    let types = argument.type_names();
    let is = |name: &str| types.contains(&name);
    if is("string") || types.is_empty() {
        return Value::from("text");
    }
    if is("integer") || is("number") {
        return Value::from(1);
    }
    if is("boolean") {
        return Value::from(true);
    }
    if is("array") {
        let item = schema.get("items").map_or_else(|| Value::from("text"), example_value);
        return Value::Array(vec![item]);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let object = properties
        .into_iter()
        .flatten()
        .filter(|(name, _)| required.is_some_and(|required| required.iter().any(|item| item == *name)));
    Value::Object(object.map(|(name, schema)| (name.clone(), example_value(schema))).collect())
}
