//! Dialects: calls written as text.
//!
//! A dialect is a row of [`dialects`]: a name, its literate spec (help, site and test suite in one), and how its calls are
//! rendered. The [`Reader`] reads all of them.
//!
//! Rendering is the reverse of reading: `parse(render(call)) == call` for every call, whatever its values hold. A string
//! that the dialect cannot hold raw (one with its own closing tags in it) is written as a JSON string in a tag that says
//! so, `<content encoding="json">"…"</content>`, with every `<` escaped.

mod cline;
pub(crate) mod gemma;
pub(crate) mod grammar;
mod invoke;
pub(crate) mod python;

use serde_json::{Map, Value};

use crate::draft::{Draft, DraftCall, DraftState};
use crate::event::{ArgForm, Cut};
use crate::message::Call;
use crate::reader::Reader;
use crate::tool::{ToolSet, ToolSpec};

/// The name of the dialect of Cline and Roo: each tool and each argument is a tag of its own name.
pub const CLINE: &str = "cline";
/// The name of the dialect with `<invoke name="…">` and `<parameter name="…">`.
pub const INVOKE: &str = "invoke";

/// One dialect.
#[derive(Debug)]
pub struct Dialect {
    /// The name used on the command line, in events and in histories.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The spec, in Markdown; its examples are the tests.
    pub spec: &'static str,
    /// Writes a call; the flags say how each argument is written.
    write_call: fn(&str, &[(&str, Spelled)], &mut String),
    /// What stands before and after a run of calls.
    pub(crate) wrapper: (&'static str, &'static str),
    /// How the syntax is taught.
    pub(crate) lesson: &'static str,
}

/// An argument's text and how it is to be marked.
#[derive(Debug)]
struct Spelled {
    text: String,
    json: bool,
}

/// Which dialects a reader listens for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection(Option<&'static str>);

/// All dialects.
pub fn dialects() -> &'static [Dialect] {
    &[cline::DIALECT, invoke::DIALECT]
}

/// The dialect of that name.
pub fn dialect(name: &str) -> Option<&'static Dialect> {
    dialects().iter().find(|dialect| dialect.name == name)
}

impl Selection {
    /// All dialects at once; the first opening tag decides.
    pub const AUTO: Self = Self(None);

    /// `auto`, or the name of a dialect.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::AUTO),
            _ => dialect(name).map(|dialect| Self(Some(dialect.name))),
        }
    }

    /// Whether that dialect is listened for.
    pub fn includes(self, name: &str) -> bool {
        self.0.is_none_or(|only| only == name)
    }
}

impl Dialect {
    /// The call as the model would write it, without the wrapper around a run of calls.
    pub fn render_call(&self, name: &str, arguments: &Map<String, Value>, tools: &ToolSet) -> String {
        let mut text = String::new();
        for style in [Style::Lines, Style::Inline, Style::Json] {
            text.clear();
            let spelled: Vec<_> = arguments.iter().map(|(name, value)| (name.as_str(), style.spell(value))).collect();
            (self.write_call)(name, &spelled, &mut text);
            if style == Style::Json || self.reads_back(&text, name, arguments, tools) {
                break;
            }
        }
        text
    }

    /// A run of calls with the wrapper that this dialect puts around it.
    pub fn render_calls<'c>(&self, calls: impl IntoIterator<Item = &'c Call>, tools: &ToolSet) -> String {
        let calls: Vec<_> =
            calls.into_iter().map(|call| self.render_call(&call.name, &call.arguments, tools)).collect();
        format!("{}{}{}", self.wrapper.0, calls.join("\n"), self.wrapper.1)
    }

    /// A minimal correct call of the tool: its required arguments, with the values of its first example where it has one.
    pub fn example(&self, tool: &ToolSpec) -> String {
        let arguments = example_arguments(tool);
        let mut text = String::new();
        let spelled: Vec<_> =
            arguments.iter().map(|(name, value)| (name.as_str(), Style::Inline.spell(value))).collect();
        (self.write_call)(&tool.name, &spelled, &mut text);
        format!("{}{text}{}", self.wrapper.0, self.wrapper.1)
    }

    fn reads_back(&self, text: &str, name: &str, arguments: &Map<String, Value>, tools: &ToolSet) -> bool {
        let mut draft = Draft::default();
        let mut reader = Reader::new(Selection(Some(self.name)), tools);
        reader.push(text, &mut draft);
        reader.finish(Cut::Ended, &mut draft);
        let [call] = draft.calls().collect::<Vec<_>>()[..] else { return false };
        let whole =
            call.name == name && call.state == DraftState::Closed && draft.errors_of(call.index).next().is_none();
        whole && call.arguments.len() == arguments.len() && same_arguments(call, arguments)
    }
}

fn same_arguments(call: &DraftCall, arguments: &Map<String, Value>) -> bool {
    call.arguments.iter().zip(arguments).all(|(read, (name, value))| {
        let same_value = match (value, read.form) {
            (Value::String(text), ArgForm::Raw) => read.text == *text,
            _ => serde_json::from_str::<Value>(&read.text).is_ok_and(|read| read == *value),
        };
        read.name == *name && same_value
    })
}

/// How strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Raw; several lines on lines of their own.
    Lines,
    /// Raw, right between the tags.
    Inline,
    /// As JSON strings.
    Json,
}

impl Style {
    fn spell(self, value: &Value) -> Spelled {
        let raw = |text: String| Spelled { text, json: false };
        match (value, self) {
            (Value::String(text), Self::Json) if text.contains('<') || text.contains('\r') => {
                Spelled { text: Value::String(text.clone()).to_string().replace('<', "\\u003c"), json: true }
            }
            (Value::String(text), Self::Inline) => raw(text.clone()),
            (Value::String(text), _) if text.contains('\n') => raw(format!("\n{text}\n")),
            (Value::String(text), _) => raw(text.clone()),
            (other, Self::Json) => Spelled { text: other.to_string().replace('<', "\\u003c"), json: true },
            (other, _) => raw(other.to_string()),
        }
    }
}

/// Arguments that a schema accepts: the first example's, or the required ones with plain values.
pub(crate) fn example_arguments(tool: &ToolSpec) -> Map<String, Value> {
    if let Some(example) = tool.examples.first() {
        return example.clone();
    }
    let required = tool.arguments().filter(|argument| argument.required);
    required.map(|argument| (argument.name.to_owned(), example_value(argument.schema))).collect()
}

fn example_value(schema: &Value) -> Value {
    let listed = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first());
    if let Some(value) = schema.get("default").or_else(|| schema.get("const")).or(listed) {
        return value.clone();
    }
    let argument = crate::tool::Argument { name: "", required: true, schema };
    let types = argument.types();
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
