//! Describes the layout of rendered calls: the fixed texts, and the places of names, numbers and values.
//!
//! The layout is derived by rendering calls whose names are placeholders, so it cannot differ from
//! what [`Dialect::render_calls`] writes, also for the dialects that users define.

use serde_json::{Map, Value, json};

use super::tags::{self, StringStyle};
use super::{NamedCall, join_json_calls, render_json_call};
use crate::dialect::grammar::{GemmaCalls, Grammar, PythonCalls, TagNotation, TaggedCalls};
use crate::dialect::{Dialect, gemma, python};
use crate::tool::{ToolSet, ToolSpec};

/// Stands for the name of a tool; no marker contains a character of the private use area.
const TOOL_NAME: &str = "\u{e000}";
/// Stands for the name of an argument.
const ARGUMENT_NAME: &str = "\u{e001}";
/// Stands for a whole call.
const WHOLE_CALL: &str = "\u{e002}";
/// Stands for the number of a call; no marker contains these digits.
const CALL_NUMBER: usize = 987_654_321;
/// The only argument of the rendered calls.
const SAMPLE_ARGUMENT: &str = "sample_argument";

/// The tool of calls that are read back.
const SAMPLE_TOOL: &str = "sample_tool";

/// The layout of calls: a run of calls in a message, and one call in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLayout {
    /// The text before the first call.
    pub run_open: String,
    /// The text between two calls.
    pub between: String,
    /// The text after the last call.
    pub run_close: String,
    /// One call. [`LayoutPart::Arguments`] is in it exactly once.
    pub call: Vec<LayoutPart>,
    /// The notation of the arguments.
    pub arguments: ArgumentNotation,
}

/// A part of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutPart {
    /// A fixed text.
    Text(String),
    /// The tool's name.
    ToolName,
    /// The number of the call in its message, from 0.
    CallNumber,
    /// All arguments.
    Arguments,
    /// The argument's name; only in an [`ArgumentLayout`].
    ArgumentName,
}

/// The notation of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentNotation {
    /// One JSON object.
    Json,
    /// Keyword arguments in Python syntax.
    Python,
    /// Pairs in braces, whose strings are between this marker.
    Gemma {
        /// The marker on both sides of a string.
        quote: &'static str,
    },
    /// One element for each argument.
    Tagged {
        /// The forms of an element, for each type of value.
        forms: Vec<ArgumentLayout>,
        /// Texts that a value written unchanged must not contain, because they are, or begin, tags of the call.
        stops: Vec<Vec<LayoutPart>>,
    },
}

/// The layout of one argument in a dialect with tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentLayout {
    /// The JSON type of the value, such as `string`.
    pub value_type: &'static str,
    /// The notation of the value.
    pub encoding: ValueEncoding,
    /// The text before the value.
    pub open: Vec<LayoutPart>,
    /// The text after the value, up to the next argument or the end of the call.
    pub close: Vec<LayoutPart>,
}

/// The notation of a value in a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueEncoding {
    /// A string unchanged, or any other value as JSON.
    Raw,
    /// JSON in which `<` and `]` are escaped.
    EscapedJson,
    /// A CDATA section.
    CharacterData,
}

/// Describes the layout of a dialect.
pub(in crate::dialect) fn describe_layout(dialect: &Dialect) -> CallLayout {
    let arguments = Map::from_iter([(SAMPLE_ARGUMENT.to_owned(), json!(0))]);
    let call: NamedCall<'_> = (TOOL_NAME, &arguments);
    let two_calls = [WHOLE_CALL.to_owned(), WHOLE_CALL.to_owned()];
    match *dialect.grammar {
        Grammar::Tagged(tagged) => describe_tagged(dialect, &tagged),
        Grammar::Json(table) => build_layout(
            &join_json_calls(&table, &two_calls),
            &render_json_call(&table, CALL_NUMBER, &call),
            &super::json::render_object(&arguments),
            ArgumentNotation::Json,
        ),
        Grammar::Python(PythonCalls { open, close, list }) => {
            let text = python::render_python_lines(&[call]);
            let run = match list {
                true => format!("{open}[{WHOLE_CALL}, {WHOLE_CALL}]{close}"),
                false => format!("{open}{WHOLE_CALL}\n{WHOLE_CALL}{close}"),
            };
            let sample = format!("{SAMPLE_ARGUMENT}=0");
            build_layout(&run, &text, &sample, ArgumentNotation::Python)
        }
        Grammar::Gemma(GemmaCalls { open, close, quote }) => {
            let text = gemma::render_gemma(TOOL_NAME, &arguments, quote);
            build_layout(
                &format!("{WHOLE_CALL}\n{WHOLE_CALL}"),
                &format!("{open}{text}{close}"),
                &format!("{{{SAMPLE_ARGUMENT}:0}}"),
                ArgumentNotation::Gemma { quote },
            )
        }
        Grammar::Harmony => build_layout(
            &format!("{WHOLE_CALL}{WHOLE_CALL}"),
            &super::render_untagged(dialect, &[call]),
            &super::json::render_object(&arguments),
            ArgumentNotation::Json,
        ),
    }
}

/// Builds a layout from a run of two placeholders, and from a call with the text of its arguments.
fn build_layout(
    run: &str,
    call: &str,
    argument_text: &str,
    arguments: ArgumentNotation,
) -> CallLayout {
    let mut texts = run.split(WHOLE_CALL).map(str::to_owned);
    CallLayout {
        run_open: texts.next().unwrap_or_default(),
        between: texts.next().unwrap_or_default(),
        run_close: texts.next().unwrap_or_default(),
        call: split_parts(call, Some(argument_text)),
        arguments,
    }
}

fn describe_tagged(dialect: &Dialect, tagged: &TaggedCalls) -> CallLayout {
    // A wrapper of each call is in the text between two calls, which makes no difference.
    let run = tags::wrap_calls(tagged, &[WHOLE_CALL.to_owned(), WHOLE_CALL.to_owned()]);
    let one = json!(0);
    let argument = tags::render_argument(tagged, SAMPLE_ARGUMENT, &one, StringStyle::Inline);
    let feed = tagged.line_separator();
    let arguments = Map::from_iter([(SAMPLE_ARGUMENT.to_owned(), one)]);
    let call = tags::write_call(
        tagged,
        CALL_NUMBER,
        (TOOL_NAME, &arguments),
        StringStyle::Inline,
    );
    let mut forms = Vec::new();
    for style in tagged.string_styles() {
        let encoding = match style {
            StringStyle::Lines | StringStyle::Inline => ValueEncoding::Raw,
            StringStyle::Section => ValueEncoding::CharacterData,
            StringStyle::Json => ValueEncoding::EscapedJson,
        };
        // A grammar must not lead the model into a form that is written but not read.
        if !is_style_read(dialect, tagged, *style) {
            continue;
        }
        for sample in SampleValue::all() {
            if encoding == ValueEncoding::CharacterData && sample.value_type != "string" {
                continue;
            }
            let form = describe_argument(tagged, *style, encoding, &sample);
            // Styles differ only for some types of values, and a repeated form would duplicate each
            // choice.
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    let notation = ArgumentNotation::Tagged {
        forms,
        stops: stop_texts(tagged),
    };
    build_layout(&run, &call, &format!("{argument}{feed}"), notation)
}

/// Reports whether the parser reads values in that style: the tags of one dialect have no place for the mark of JSON.
fn is_style_read(dialect: &Dialect, tagged: &TaggedCalls, style: StringStyle) -> bool {
    let arguments = Map::from_iter([(SAMPLE_ARGUMENT.to_owned(), json!("a<b"))]);
    let properties = json!({SAMPLE_ARGUMENT: {"type": "string"}});
    let tool = ToolSpec::new(SAMPLE_TOOL, "", json!({"properties": properties}));
    let tools = ToolSet::new(vec![tool]).unwrap_or_default();
    let call = (SAMPLE_TOOL, &arguments);
    let text = tags::write_call(tagged, 0, call, style);
    tags::reads_back(dialect, &text, call, &tools)
}

/// A value of each type, for the attributes that name it.
struct SampleValue {
    value_type: &'static str,
    value: Value,
    /// The text of the value, as the styles write it.
    text: &'static str,
}

impl SampleValue {
    fn all() -> [Self; 7] {
        let sample = |value_type, value, text| Self {
            value_type,
            value,
            text,
        };
        [
            // The `<` shows whether a style escapes it, and the private character is in no tag.
            sample("string", json!("\u{e003}<"), "\u{e003}<"),
            sample("integer", json!(987), "987"),
            // Not a whole number, since tags that name the type mark those as integers.
            sample("number", json!(98.75), "98.75"),
            sample("boolean", json!(true), "true"),
            sample("null", Value::Null, "null"),
            sample("array", json!([987]), "[987]"),
            sample("object", json!({"\u{e003}": 1}), "{\"\u{e003}\":1}"),
        ]
    }
}

fn describe_argument(
    tagged: &TaggedCalls,
    style: StringStyle,
    encoding: ValueEncoding,
    sample: &SampleValue,
) -> ArgumentLayout {
    let text = tags::render_argument(tagged, ARGUMENT_NAME, &sample.value, style)
        + tagged.line_separator();
    let value = match (encoding, sample.value_type) {
        (ValueEncoding::EscapedJson, "string") => "\"\u{e003}\\u003c\"".to_owned(),
        (ValueEncoding::CharacterData, _) => format!("<![CDATA[{}]]>", sample.text),
        _ => sample.text.to_owned(),
    };
    let (open, close) = text.split_once(&value).unwrap_or((text.as_str(), ""));
    ArgumentLayout {
        value_type: sample.value_type,
        encoding,
        open: split_parts(open, None),
        close: split_parts(close, None),
    }
}

/// Returns the beginnings of the tags that a raw value must not contain.
fn stop_texts(tagged: &TaggedCalls) -> Vec<Vec<LayoutPart>> {
    use crate::dialect::grammar::TagScheme;
    let tags: Vec<&str> = match tagged.tags {
        TagScheme::Own => vec![TOOL_NAME, ARGUMENT_NAME],
        TagScheme::Fixed {
            call, argument: "", ..
        } => vec![call, ARGUMENT_NAME],
        TagScheme::Fixed { call, argument, .. } => vec![call, argument],
        TagScheme::Keyed { call, key, value } => vec![call, key, value],
    };
    let names = tags.into_iter().chain(tagged.wrappers.iter().copied());
    let mut stops = Vec::new();
    for name in names {
        let close = tagged.render_close_tag(name);
        let end = match tagged.notation {
            TagNotation::Delimited { end, .. } => end,
            _ => ">",
        };
        stops.push(split_parts(close.strip_suffix(end).unwrap_or(&close), None));
    }
    stops
}

/// Splits a rendered text at its placeholders.
fn split_parts(text: &str, arguments: Option<&str>) -> Vec<LayoutPart> {
    let number = CALL_NUMBER.to_string();
    let mut parts = Vec::new();
    let mut rest = text;
    // The placeholders come in a different order in each dialect.
    while !rest.is_empty() {
        let places = [
            (rest.find(TOOL_NAME), TOOL_NAME, LayoutPart::ToolName),
            (
                rest.find(ARGUMENT_NAME),
                ARGUMENT_NAME,
                LayoutPart::ArgumentName,
            ),
            (rest.find(&number), &number, LayoutPart::CallNumber),
            (
                arguments.and_then(|text| rest.find(text)),
                arguments.unwrap_or_default(),
                LayoutPart::Arguments,
            ),
        ];
        let nearest = places
            .into_iter()
            .filter_map(|(at, text, part)| Some((at?, text, part)))
            .min_by_key(|(at, _, _)| *at);
        let Some((at, placeholder, part)) = nearest else {
            parts.push(LayoutPart::Text(rest.to_owned()));
            break;
        };
        if at > 0 {
            parts.push(LayoutPart::Text(
                rest.get(..at).unwrap_or_default().to_owned(),
            ));
        }
        parts.push(part);
        rest = rest.get(at + placeholder.len()..).unwrap_or_default();
    }
    parts
}
