//! Defines dialects: the notations in which models write calls as text.
//!
//! A dialect is a row of a [`DialectSet`]: a name, its spec (help text, website and test suite in
//! one), its grammar as data, and the instructions for models. The
//! [`CallReader`](crate::CallReader) reads all of them with a few parsers. Users can add rows of
//! their own ([`DialectSet::define`]): any notation that an existing parser can read needs no code.
//!
//! Rendering is the reverse of reading: `parse(render(call)) == call` for every call and every
//! value. A string that a tagged dialect cannot contain raw (one with its own closing tags in it)
//! is written as a JSON string in a marked tag, `<content encoding="json">"…"</content>`, with
//! every `<` escaped.

/// Includes the spec of a built-in dialect.
#[cfg(not(target_family = "wasm"))]
macro_rules! spec_text {
    ($name:literal) => {
        include_str!(concat!("../specs/", $name, ".md"))
    };
}

/// Refers to the spec of a built-in dialect. The JavaScript module has no command that shows specs, and they would take an eighth of its
/// size limit.
#[cfg(target_family = "wasm")]
macro_rules! spec_text {
    ($name:literal) => {
        concat!("See the spec ", $name, ".md of sabir-call.\n")
    };
}

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
use crate::prompt::is_plain_name;
use crate::tool::{ToolSet, ToolSpec, resolve_reference};

pub use define::{DefineError, DialectTable, JsonTable, ParserKind, TagTable};
use grammar::Grammar;
pub use render::layout::{ArgumentLayout, ArgumentNotation, CallLayout, LayoutPart, ValueEncoding};
pub use set::{DialectSelection, DialectSet};

/// The name of the dialect of Cline and Roo, in which each tool and each argument has a tag of its
/// own name.
pub const CLINE: &str = "cline";
/// The most levels of an example's value, which ends schemas that refer to themselves.
const MAX_EXAMPLE_DEPTH: usize = 8;

/// The name of the dialect with `<invoke name="…">` and `<parameter name="…">`.
pub const INVOKE: &str = "invoke";

/// A notation for calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The name on the command line, in events and in histories.
    pub name: &'static str,
    /// Alternative names, accepted wherever the name is.
    pub aliases: &'static [&'static str],
    /// A one-sentence summary.
    pub summary: &'static str,
    /// The spec in Markdown, whose examples are the tests. Empty for a dialect defined by a table, and only a reference on
    /// WebAssembly.
    pub spec: &'static str,
    /// The markers of the dialect, and the parser that reads it. Meaningless special tokens, which servers leave in the text.
    pub(crate) grammar: &'static Grammar,
    pub(crate) tokens: &'static [&'static str],
    /// The markers around a thought, if the dialect has its own.
    pub(crate) thought: Option<(&'static str, &'static str)>,
    /// The instructions for the syntax; an example follows them.
    pub(crate) instructions: &'static str,
}

impl Dialect {
    /// Renders a run of calls as a model would write it, including wrappers.
    pub fn render_calls<'c>(
        &self,
        calls: impl IntoIterator<Item = &'c Call>,
        tools: &ToolSet,
    ) -> String {
        let calls: Vec<_> = calls
            .into_iter()
            .map(|call| (call.name.as_str(), &call.arguments))
            .collect();
        render::render_calls(self, &calls, tools)
    }

    /// Renders one call as a model would write it, without the wrapper around a run of calls.
    pub fn render_call(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        tools: &ToolSet,
    ) -> String {
        render::render_call(self, name, arguments, tools)
    }

    /// Returns the layout of calls as this dialect writes them, for programs that derive grammars from it.
    pub fn call_layout(&self) -> CallLayout {
        render::layout::describe_layout(self)
    }

    /// Renders a minimal correct call of the tool: its first example, or else its required
    /// arguments with plain values.
    pub fn render_example(&self, tool: &ToolSpec) -> String {
        render::render_example(self, &tool.name, &example_arguments(tool))
    }

    /// Returns the rule for escaping values.
    pub(crate) fn escaping_rule(&self) -> &'static str {
        match *self.grammar {
            Grammar::Tagged(_) | Grammar::Gemma(_) => {
                "Values are taken as they are: do not escape `<`, `&` or quotes"
            }
            Grammar::Json(_) | Grammar::Harmony => {
                "Arguments are strict JSON: escape quotes, backslashes and line feeds inside strings, nothing else"
            }
            Grammar::Python(_) => {
                "Escape quotes, backslashes and line feeds inside strings as Python does, nothing else"
            }
        }
    }

    /// Returns the rules of the syntax in words, without examples.
    pub fn syntax_rules(&self) -> &str {
        self.instructions
    }

    /// Renders the instructions for the syntax, followed by calls of two well-known tools.
    pub(crate) fn render_instructions(&self) -> String {
        let one = |name: &str, value: Value| (name.to_owned(), value);
        let read = Map::from_iter([one("path", "src/main.rs".into())]);
        let write = Map::from_iter([
            one("path", "notes.md".into()),
            one("content", "# Notes\n\nFirst line.".into()),
        ]);
        let lines = match *self.grammar {
            Grammar::Tagged(_) => "A text of several lines may be on lines of its own",
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

/// Returns arguments that the schema accepts: the first example, or else the required ones with
/// plain values.
pub(crate) fn example_arguments(tool: &ToolSpec) -> Map<String, Value> {
    if let Some(example) = tool.examples.first() {
        return example.clone();
    }
    let required = tool
        .declared_arguments()
        // A name that is not a plain word would write markup of its own into the example.
        .filter(|argument| argument.required && is_plain_name(argument.name));
    required
        .map(|argument| {
            let value = example_value(&tool.parameters, argument.schema, MAX_EXAMPLE_DEPTH);
            (argument.name.to_owned(), value)
        })
        .collect()
}

fn example_value(root: &Value, schema: &Value, depth: usize) -> Value {
    if let Some(target) = resolve_reference(root, schema).filter(|_| depth > 0) {
        return example_value(root, target, depth - 1);
    }
    let listed = schema
        .get("enum")
        .and_then(Value::as_array)
        .and_then(|values| values.first());
    if let Some(value) = schema
        .get("default")
        .or_else(|| schema.get("const"))
        .or(listed)
    {
        return value.clone();
    }
    let argument = crate::tool::ArgumentSpec {
        name: "",
        required: true,
        schema,
    };
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
        let item = schema.get("items").filter(|_| depth > 0).map_or_else(
            || Value::from("text"),
            |items| example_value(root, items, depth - 1),
        );
        return Value::Array(vec![item]);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let object = properties.into_iter().flatten().filter(|(name, _)| {
        required.is_some_and(|required| required.iter().any(|item| item == *name))
    });
    Value::Object(
        object
            .filter(|_| depth > 0)
            .map(|(name, schema)| (name.clone(), example_value(root, schema, depth - 1)))
            .collect(),
    )
}
