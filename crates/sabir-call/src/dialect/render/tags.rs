//! Renders calls in tags. A value may contain its own closing tag, so each rendered call is parsed
//! back to verify it.

use serde_json::{Map, Value};

use super::NamedCall;
use crate::dialect::grammar::{NamePosition, TagNotation, TagScheme, TaggedCalls, is_unclosed_key};
use crate::dialect::{Dialect, DialectSelection};
use crate::draft::{DraftCall, DraftResponse, DraftState};
use crate::event::{ArgumentEncoding, Truncation};
use crate::reader::CallReader;
use crate::tool::{ToolSet, json_type_name};

/// The notation for string values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StringStyle {
    /// Raw; texts of several lines go on their own lines.
    Lines,
    /// Raw, directly between the tags.
    Inline,
    /// In a CDATA section.
    Section,
    /// Encoded as JSON strings.
    Json,
}

/// An argument's text, and whether it must be marked as JSON.
struct RenderedValue {
    text: String,
    json: bool,
}

/// Renders the `at`-th call of its run in the simplest style that parses back to the same call.
pub(super) fn render_tagged_call(
    dialect: &Dialect,
    tagged: &TaggedCalls,
    at: usize,
    call: NamedCall<'_>,
    tools: &ToolSet,
) -> String {
    let mut text = String::new();
    // Models are taught `Lines`. `Inline` preserves values that begin or end with a line feed;
    // `Json` preserves everything, because `<` is escaped.
    for style in tagged.string_styles() {
        text = write_call(tagged, at, call, *style);
        if *style == StringStyle::Json || reads_back(dialect, &text, call, tools) {
            break;
        }
    }
    text
}

/// Renders one call without verifying it.
pub(super) fn render_tagged_example(
    tagged: &TaggedCalls,
    name: &str,
    arguments: &Map<String, Value>,
) -> String {
    let style = tagged.string_styles().first();
    let style = style.copied().unwrap_or(StringStyle::Lines);
    write_call(tagged, 0, (name, arguments), style)
}

/// Joins calls and adds the wrappers and section markers.
pub(super) fn wrap_calls(tagged: &TaggedCalls, calls: &[String]) -> String {
    let feed = tagged.line_separator();
    let wrapped = |inner: &str| match tagged.wrappers.first() {
        Some(name) => {
            format!(
                "{}{feed}{inner}{feed}{}",
                tagged.render_open_tag(name, ""),
                tagged.render_close_tag(name)
            )
        }
        None => inner.to_owned(),
    };
    let section = |at: usize, inner: &str| match tagged.sections.get(at) {
        Some((open, close)) => format!("{open}{inner}{close}"),
        None => inner.to_owned(),
    };
    // Section 0 encloses all calls, section 1 each call.
    let calls: Vec<_> = calls
        .iter()
        .map(|call| {
            section(
                1,
                &if tagged.each {
                    wrapped(call)
                } else {
                    call.clone()
                },
            )
        })
        .collect();
    let between = if tagged.sections.is_empty() { feed } else { "" };
    let all = calls.join(between);
    section(0, &if tagged.each { all } else { wrapped(&all) })
}

pub(super) fn write_call(
    tagged: &TaggedCalls,
    at: usize,
    call: NamedCall<'_>,
    style: StringStyle,
) -> String {
    let (name, arguments) = call;
    let feed = tagged.line_separator();
    let (open, close) = match tagged.tags {
        TagScheme::Own => (
            tagged.render_open_tag(name, ""),
            tagged.render_close_tag(name),
        ),
        TagScheme::Fixed { .. } if tagged.header_opens => (
            format!("<|start|>assistant to={name}<|channel|>analysis <|constrain|>xml<|message|>"),
            "<|call|>".to_owned(),
        ),
        TagScheme::Fixed {
            call, call_name, ..
        } => {
            // Kimi K3 numbers the calls of a message.
            let number = match tagged.notation {
                TagNotation::Delimited { .. } => format!(" index=\"{at}\""),
                _ => String::new(),
            };
            (
                tagged.render_open_tag(call, &format!("{}{number}", call_name.render_name(name))),
                tagged.render_close_tag(call),
            )
        }
        TagScheme::Keyed { call, .. } => (
            format!("{}{name}", tagged.render_open_tag(call, "")),
            tagged.render_close_tag(call),
        ),
    };
    let arguments = arguments
        .iter()
        .map(|(name, value)| render_argument(tagged, name, value, style) + feed);
    format!("{open}{feed}{}{close}", arguments.collect::<String>())
}

pub(super) fn render_argument(
    tagged: &TaggedCalls,
    name: &str,
    value: &Value,
    style: StringStyle,
) -> String {
    let RenderedValue { text, json } = style.render_value(value, tagged);
    let mark = if json { " encoding=\"json\"" } else { "" };
    match tagged.tags {
        TagScheme::Own => format!(
            "{}{text}{}",
            tagged.render_open_tag(name, mark),
            tagged.render_close_tag(name)
        ),
        TagScheme::Keyed { key, value, .. } if is_unclosed_key(key) => format!(
            "{}{name}{}{text}{}",
            tagged.render_open_tag(key, ""),
            tagged.render_open_tag(value, mark),
            tagged.render_close_tag(value)
        ),
        TagScheme::Keyed { key, value, .. } => format!(
            "{}{name}{}{}{}{text}{}",
            tagged.render_open_tag(key, ""),
            tagged.render_close_tag(key),
            tagged.line_separator(),
            tagged.render_open_tag(value, mark),
            tagged.render_close_tag(value)
        ),
        TagScheme::Fixed { argument: "", .. } => {
            format!(
                "{}{text}{}",
                tagged.render_open_tag(name, mark),
                tagged.render_close_tag(name)
            )
        }
        TagScheme::Fixed {
            argument,
            argument_name,
            typed,
            ..
        } => {
            let mark = match typed {
                // Dialects with more than two types name the type of each value.
                Some((key, yes, "json")) => {
                    let kind = if json || !value.is_string() {
                        json_type_name(value)
                    } else {
                        yes
                    };
                    let kind = if json && value.is_string() {
                        "json"
                    } else {
                        kind
                    };
                    format!(" {key}=\"{kind}\"")
                }
                Some((key, yes, no)) => {
                    format!(
                        " {key}=\"{}\"",
                        if value.is_string() && !json { yes } else { no }
                    )
                }
                None => mark.to_owned(),
            };
            let open = tagged.render_open_tag(
                argument,
                &format!("{}{mark}", argument_name.render_name(name)),
            );
            format!("{open}{text}{}", tagged.render_close_tag(argument))
        }
    }
}

impl TaggedCalls {
    /// Returns the text between tags: nothing if tags are special tokens.
    pub(super) fn line_separator(&self) -> &'static str {
        if matches!(self.notation, TagNotation::Angle) && !self.header_opens {
            "\n"
        } else {
            ""
        }
    }

    /// Returns the notations for string values, the simplest first.
    pub(super) fn string_styles(&self) -> &'static [StringStyle] {
        let all = &[StringStyle::Lines, StringStyle::Inline, StringStyle::Json];
        if self.sections_of_text {
            return &[StringStyle::Inline, StringStyle::Section, StringStyle::Json];
        }
        match self.exact_values {
            true => &[StringStyle::Inline, StringStyle::Json],
            false => all,
        }
    }

    /// Returns true if every value is written on its own lines.
    fn has_value_lines(&self) -> bool {
        let is_equals = matches!(
            self.tags,
            TagScheme::Fixed {
                argument_name: NamePosition::Equals,
                ..
            }
        );
        (is_equals || self.header_opens) && !self.exact_values
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
    fn render_value(self, value: &Value, tagged: &TaggedCalls) -> RenderedValue {
        let pairs = tagged.has_value_lines();
        let raw = |text: String| RenderedValue { text, json: false };
        match (value, self) {
            // `]` is escaped for MiniMax M3, whose tag marker begins with it.
            (Value::String(text), Self::Json) if text.contains(['<', '\r', ']']) => {
                let text = Value::String(text.clone())
                    .to_string()
                    .replace('<', "\\u003c")
                    .replace(']', "\\u005d");
                RenderedValue { text, json: true }
            }
            (Value::String(text), Self::Inline) => raw(text.clone()),
            (Value::String(text), Self::Section) => raw(format!(
                "<![CDATA[{}]]>",
                text.replace("]]>", "]]]]><![CDATA[>")
            )),
            // Where the reader keeps every line feed, a pair around the value would become part of
            // it.
            (Value::String(text), _) if tagged.exact_values => raw(text.clone()),
            (Value::String(text), _) if pairs || text.contains('\n') => raw(format!("\n{text}\n")),
            (Value::String(text), _) => raw(text.clone()),
            (other, Self::Json) => RenderedValue {
                text: other.to_string().replace('<', "\\u003c"),
                json: true,
            },
            (other, _) if pairs => raw(format!("\n{other}\n")),
            (other, _) => raw(other.to_string()),
        }
    }
}

pub(super) fn reads_back(
    dialect: &Dialect,
    text: &str,
    call: NamedCall<'_>,
    tools: &ToolSet,
) -> bool {
    let (name, arguments) = call;
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSelection::from(dialect), tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    // Anything but exactly one call means that part of a value was taken for markup.
    let [call] = draft.calls().collect::<Vec<_>>()[..] else {
        return false;
    };
    let whole = call.name == name
        && call.state == DraftState::Closed
        && draft.errors_of(call.index).next().is_none();
    whole && call.arguments.len() == arguments.len() && same_arguments(call, arguments)
}

fn same_arguments(call: &DraftCall, arguments: &Map<String, Value>) -> bool {
    call.arguments
        .iter()
        .zip(arguments)
        .all(|(read, (name, value))| {
            let same_value = match (value, read.form) {
                (Value::String(text), ArgumentEncoding::Raw | ArgumentEncoding::String) => {
                    read.text == *text
                }
                _ => serde_json::from_str::<Value>(&read.text).is_ok_and(|read| read == *value),
            };
            read.name == *name && same_value
        })
}
