//! Calls in tags. A value may hold its own closing tag, so what is written is read back before it counts.

use serde_json::{Map, Value};

use crate::dialect::grammar::{NamePosition, TagNotation, TagScheme, TaggedCalls};
use crate::dialect::{Dialect, DialectSelection};
use crate::draft::{DraftCall, DraftResponse, DraftState};
use crate::event::{ArgForm, Truncation};
use crate::reader::CallReader;
use crate::tool::{ToolSet, json_type_name};

/// How strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringStyle {
    /// Raw; several lines on lines of their own.
    Lines,
    /// Raw, right between the tags.
    Inline,
    /// As JSON strings.
    Json,
}

/// An argument's text and how it is to be marked.
struct RenderedValue {
    text: String,
    json: bool,
}

/// One call, the `at`-th of its run, in the simplest style that reads back as it was.
pub(super) fn render_tagged_call(
    dialect: &Dialect,
    tagged: &TaggedCalls,
    (at, name): (usize, &str),
    arguments: &Map<String, Value>,
    tools: &ToolSet,
) -> String {
    let mut text = String::new();
    for style in [StringStyle::Lines, StringStyle::Inline, StringStyle::Json] {
        text = write_call(tagged, (at, name), arguments, style);
        if style == StringStyle::Json || reads_back(dialect, &text, name, arguments, tools) {
            break;
        }
    }
    text
}

/// One call without that proof.
pub(super) fn render_tagged_example(tagged: &TaggedCalls, name: &str, arguments: &Map<String, Value>) -> String {
    write_call(tagged, (0, name), arguments, StringStyle::Lines)
}

/// Calls with their wrappers.
pub(super) fn wrap_calls(tagged: &TaggedCalls, calls: &[String]) -> String {
    let feed = tagged.line_separator();
    let wrapped = |inner: &str| match tagged.wrappers.first() {
        Some(name) => {
            format!("{}{feed}{inner}{feed}{}", tagged.render_open_tag(name, ""), tagged.render_close_tag(name))
        }
        None => inner.to_owned(),
    };
    let section = |at: usize, inner: &str| match tagged.sections.get(at) {
        Some((open, close)) => format!("{open}{inner}{close}"),
        None => inner.to_owned(),
    };
    let calls: Vec<_> =
        calls.iter().map(|call| section(1, &if tagged.each { wrapped(call) } else { call.clone() })).collect();
    let between = if tagged.sections.is_empty() { feed } else { "" };
    let all = calls.join(between);
    section(0, &if tagged.each { all } else { wrapped(&all) })
}

fn write_call(
    tagged: &TaggedCalls,
    (at, name): (usize, &str),
    arguments: &Map<String, Value>,
    style: StringStyle,
) -> String {
    let feed = tagged.line_separator();
    let (open, close) = match tagged.tags {
        TagScheme::Own => (tagged.render_open_tag(name, ""), tagged.render_close_tag(name)),
        TagScheme::Fixed { call, call_name, .. } => {
            let number = match tagged.notation {
                TagNotation::Delimited { .. } => format!(" index=\"{at}\""),
                _ => String::new(),
            };
            (
                tagged.render_open_tag(call, &format!("{}{number}", call_name.render_name(name))),
                tagged.render_close_tag(call),
            )
        }
        TagScheme::Keyed { call, .. } => {
            (format!("{}{name}", tagged.render_open_tag(call, "")), tagged.render_close_tag(call))
        }
    };
    let arguments = arguments.iter().map(|(name, value)| render_argument(tagged, name, value, style) + feed);
    format!("{open}{feed}{}{close}", arguments.collect::<String>())
}

fn render_argument(tagged: &TaggedCalls, name: &str, value: &Value, style: StringStyle) -> String {
    let RenderedValue { text, json } = style.render_value(value, tagged.has_value_lines());
    let mark = if json { " encoding=\"json\"" } else { "" };
    match tagged.tags {
        TagScheme::Own => format!("{}{text}{}", tagged.render_open_tag(name, mark), tagged.render_close_tag(name)),
        TagScheme::Keyed { key, value, .. } => format!(
            "{}{name}{}{}{}{text}{}",
            tagged.render_open_tag(key, ""),
            tagged.render_close_tag(key),
            tagged.line_separator(),
            tagged.render_open_tag(value, mark),
            tagged.render_close_tag(value)
        ),
        TagScheme::Fixed { argument: "", .. } => {
            format!("{}{text}{}", tagged.render_open_tag(name, mark), tagged.render_close_tag(name))
        }
        TagScheme::Fixed { argument, argument_name, typed, .. } => {
            let mark = match typed {
                // The type is told by its name where there are more than two.
                Some((key, yes, "json")) => {
                    let kind = if json || !value.is_string() { json_type_name(value) } else { yes };
                    let kind = if json && value.is_string() { "json" } else { kind };
                    format!(" {key}=\"{kind}\"")
                }
                Some((key, yes, no)) => {
                    format!(" {key}=\"{}\"", if value.is_string() && !json { yes } else { no })
                }
                None => mark.to_owned(),
            };
            let open = tagged.render_open_tag(argument, &format!("{}{mark}", argument_name.render_name(name)));
            format!("{open}{text}{}", tagged.render_close_tag(argument))
        }
    }
}

impl TaggedCalls {
    /// What stands between tags: where tags are special tokens, nothing.
    fn line_separator(&self) -> &'static str {
        if matches!(self.notation, TagNotation::Angle) { "\n" } else { "" }
    }

    /// Every value stands on lines of its own.
    fn has_value_lines(&self) -> bool {
        matches!(self.tags, TagScheme::Fixed { argument_name: NamePosition::Equals, .. })
    }
}

impl NamePosition {
    fn render_name(self, name: &str) -> String {
        match self {
            Self::Attribute(key) => format!(" {key}=\"{name}\""),
            Self::Equals => format!("={name}"),
        }
    }
}

impl StringStyle {
    fn render_value(self, value: &Value, pairs: bool) -> RenderedValue {
        let raw = |text: String| RenderedValue { text, json: false };
        match (value, self) {
            (Value::String(text), Self::Json) if text.contains(['<', '\r', ']']) => {
                let text = Value::String(text.clone()).to_string().replace('<', "\\u003c").replace(']', "\\u005d");
                RenderedValue { text, json: true }
            }
            (Value::String(text), Self::Inline) => raw(text.clone()),
            (Value::String(text), _) if pairs || text.contains('\n') => raw(format!("\n{text}\n")),
            (Value::String(text), _) => raw(text.clone()),
            (other, Self::Json) => RenderedValue { text: other.to_string().replace('<', "\\u003c"), json: true },
            (other, _) if pairs => raw(format!("\n{other}\n")),
            (other, _) => raw(other.to_string()),
        }
    }
}

fn reads_back(dialect: &Dialect, text: &str, name: &str, arguments: &Map<String, Value>, tools: &ToolSet) -> bool {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSelection::from(dialect), tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    let [call] = draft.calls().collect::<Vec<_>>()[..] else { return false };
    let whole = call.name == name && call.state == DraftState::Closed && draft.errors_of(call.index).next().is_none();
    whole && call.arguments.len() == arguments.len() && same_arguments(call, arguments)
}

fn same_arguments(call: &DraftCall, arguments: &Map<String, Value>) -> bool {
    call.arguments.iter().zip(arguments).all(|(read, (name, value))| {
        let same_value = match (value, read.form) {
            (Value::String(text), ArgForm::Raw | ArgForm::String) => read.text == *text,
            _ => serde_json::from_str::<Value>(&read.text).is_ok_and(|read| read == *value),
        };
        read.name == *name && same_value
    })
}
