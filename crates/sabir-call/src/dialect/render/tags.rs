//! Calls in tags. A value may hold its own closing tag, so what is written is read back before it counts.

use serde_json::{Map, Value};

use crate::dialect::grammar::{NameIn, Notation, Tagged, Tags};
use crate::dialect::{Dialect, Selection};
use crate::draft::{Draft, DraftCall, DraftState};
use crate::event::{ArgForm, Cut};
use crate::reader::Reader;
use crate::tool::{ToolSet, type_of};

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

/// An argument's text and how it is to be marked.
struct Spelled {
    text: String,
    json: bool,
}

/// One call, the `at`-th of its run, in the simplest style that reads back as it was.
pub(super) fn call(
    dialect: &Dialect,
    tagged: &Tagged,
    (at, name): (usize, &str),
    arguments: &Map<String, Value>,
    tools: &ToolSet,
) -> String {
    let mut text = String::new();
    for style in [Style::Lines, Style::Inline, Style::Json] {
        text = write(tagged, (at, name), arguments, style);
        if style == Style::Json || reads_back(dialect, &text, name, arguments, tools) {
            break;
        }
    }
    text
}

/// One call without that proof.
pub(super) fn example(tagged: &Tagged, name: &str, arguments: &Map<String, Value>) -> String {
    write(tagged, (0, name), arguments, Style::Lines)
}

/// Calls with their wrappers.
pub(super) fn wrap(tagged: &Tagged, calls: &[String]) -> String {
    let feed = tagged.feed();
    let wrapped = |inner: &str| match tagged.wrappers.first() {
        Some(name) => format!("{}{feed}{inner}{feed}{}", tagged.open(name, ""), tagged.close(name)),
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

fn write(tagged: &Tagged, (at, name): (usize, &str), arguments: &Map<String, Value>, style: Style) -> String {
    let feed = tagged.feed();
    let (open, close) = match tagged.tags {
        Tags::Own => (tagged.open(name, ""), tagged.close(name)),
        Tags::Fixed { call, call_name, .. } => {
            let number = match tagged.notation {
                Notation::Delimited { .. } => format!(" index=\"{at}\""),
                _ => String::new(),
            };
            (tagged.open(call, &format!("{}{number}", call_name.spell(name))), tagged.close(call))
        }
        Tags::Keyed { call, .. } => (format!("{}{name}", tagged.open(call, "")), tagged.close(call)),
    };
    let arguments = arguments.iter().map(|(name, value)| argument(tagged, name, value, style) + feed);
    format!("{open}{feed}{}{close}", arguments.collect::<String>())
}

fn argument(tagged: &Tagged, name: &str, value: &Value, style: Style) -> String {
    let Spelled { text, json } = style.spell(value, tagged.pairs());
    let mark = if json { " encoding=\"json\"" } else { "" };
    match tagged.tags {
        Tags::Own => format!("{}{text}{}", tagged.open(name, mark), tagged.close(name)),
        Tags::Keyed { key, value, .. } => format!(
            "{}{name}{}{}{}{text}{}",
            tagged.open(key, ""),
            tagged.close(key),
            tagged.feed(),
            tagged.open(value, mark),
            tagged.close(value)
        ),
        Tags::Fixed { argument: "", .. } => format!("{}{text}{}", tagged.open(name, mark), tagged.close(name)),
        Tags::Fixed { argument, argument_name, typed, .. } => {
            let mark = match typed {
                // The type is told by its name where there are more than two.
                Some((key, yes, "json")) => {
                    let kind = if json || !value.is_string() { type_of(value) } else { yes };
                    let kind = if json && value.is_string() { "json" } else { kind };
                    format!(" {key}=\"{kind}\"")
                }
                Some((key, yes, no)) => {
                    format!(" {key}=\"{}\"", if value.is_string() && !json { yes } else { no })
                }
                None => mark.to_owned(),
            };
            let open = tagged.open(argument, &format!("{}{mark}", argument_name.spell(name)));
            format!("{open}{text}{}", tagged.close(argument))
        }
    }
}

impl Tagged {
    /// What stands between tags: where tags are special tokens, nothing.
    fn feed(&self) -> &'static str {
        if matches!(self.notation, Notation::Angle) { "\n" } else { "" }
    }

    /// Every value stands on lines of its own.
    fn pairs(&self) -> bool {
        matches!(self.tags, Tags::Fixed { argument_name: NameIn::Equals, .. })
    }
}

impl NameIn {
    fn spell(self, name: &str) -> String {
        match self {
            Self::Attribute(key) => format!(" {key}=\"{name}\""),
            Self::Equals => format!("={name}"),
        }
    }
}

impl Style {
    fn spell(self, value: &Value, pairs: bool) -> Spelled {
        let raw = |text: String| Spelled { text, json: false };
        match (value, self) {
            (Value::String(text), Self::Json) if text.contains(['<', '\r', ']']) => {
                let text = Value::String(text.clone()).to_string().replace('<', "\\u003c").replace(']', "\\u005d");
                Spelled { text, json: true }
            }
            (Value::String(text), Self::Inline) => raw(text.clone()),
            (Value::String(text), _) if pairs || text.contains('\n') => raw(format!("\n{text}\n")),
            (Value::String(text), _) => raw(text.clone()),
            (other, Self::Json) => Spelled { text: other.to_string().replace('<', "\\u003c"), json: true },
            (other, _) if pairs => raw(format!("\n{other}\n")),
            (other, _) => raw(other.to_string()),
        }
    }
}

fn reads_back(dialect: &Dialect, text: &str, name: &str, arguments: &Map<String, Value>, tools: &ToolSet) -> bool {
    let mut draft = Draft::default();
    let mut reader = Reader::new(Selection(Some(dialect.name)), tools);
    reader.push(text, &mut draft);
    reader.finish(Cut::Ended, &mut draft);
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
