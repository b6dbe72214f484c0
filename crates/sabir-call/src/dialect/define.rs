//! Dialects from outside: a row as a table that any format of serde's can hold.
//!
//! ```toml
//! name = "acme"
//! summary = "A JSON object in an <acme> block."
//! machine = "json"
//! open = "<acme>"
//! close = "</acme>"
//! ```
//!
//! | machine | keys |
//! | --- | --- |
//! | `tagged` | `call`, `argument`: the names of the tags; `wrapper`, `prefix`; `name_in`: `"="` for `<call=f>`, else the attribute |
//! | `json` | `open`, `close`; `name_key`, `arguments_key`; `list`; `head_end`: what stands between a name and its arguments |
//! | `python` | `open`, `close` |
//! | `gemma` | `open`, `close`, `quote` |

use std::sync::PoisonError;

use serde::Deserialize;

use super::grammar::{GemmaCalls, Grammar, Head, JsonCalls, JsonForm, NameIn, Notation, PythonCalls, Tagged, Tags};
use super::{DEFINED, Dialect, dialect};

/// The longest marker, in bytes: as much as a reader may have to hold back.
const MARKER_CAP: usize = 64;

/// A dialect as a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialectTable {
    /// The name: lower-case letters, digits and `_`; not one that is taken.
    pub name: String,
    /// One sentence.
    #[serde(default)]
    pub summary: String,
    /// How it is taught, in words; examples are added. A sentence of the machine's by default.
    #[serde(default)]
    pub lesson: Option<String>,
    /// `tagged`, `json`, `python` or `gemma`.
    pub machine: Machine,
    /// The marker before a call.
    #[serde(default)]
    pub open: String,
    /// The marker behind a call.
    #[serde(default)]
    pub close: String,
    /// What is particular to the tagged machine.
    #[serde(default)]
    pub tags: Option<TagTable>,
    /// What is particular to the JSON machine.
    #[serde(default)]
    pub json: JsonTable,
    /// Gemma: the marker on both sides of a string.
    #[serde(default)]
    pub quote: String,
}

/// The machine that reads a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    /// Name in a tag, each argument in a tag.
    Tagged,
    /// JSON between markers.
    Json,
    /// Python's calls.
    Python,
    /// Gemma's notation.
    Gemma,
}

/// The tags of a tagged dialect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagTable {
    /// The tag of a call.
    pub call: String,
    /// The tag of an argument.
    pub argument: String,
    /// `"="` for `<call=f>`, else the attribute that holds the name.
    #[serde(default = "name_attribute")]
    pub name_in: String,
    /// The tag around calls.
    #[serde(default)]
    pub wrapper: Option<String>,
    /// What stands before all these names.
    #[serde(default)]
    pub prefix: String,
}

/// The JSON of a JSON dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonTable {
    /// The key of the tool's name, as it is written; every usual one is read.
    #[serde(default)]
    pub name_key: Option<String>,
    /// The key of the arguments, likewise.
    #[serde(default)]
    pub arguments_key: Option<String>,
    /// Several calls are written as one array.
    #[serde(default)]
    pub list: bool,
    /// The name stands before the JSON, up to this marker.
    #[serde(default)]
    pub head_end: Option<String>,
}

/// Why a table is no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefineError {
    /// The name is no name.
    #[error(
        "`{0}` cannot be a dialect's name: use lower-case letters, digits and `_`, and neither `auto` nor `native`"
    )]
    Name(String),
    /// The name is taken, by something else than the same table.
    #[error("there is a dialect `{0}` already; choose another name")]
    Taken(String),
    /// A marker cannot be one.
    #[error("the dialect `{dialect}`: `{key}` must be {need}, but is `{found}`")]
    Marker {
        /// The dialect.
        dialect: String,
        /// The key in the table.
        key: &'static str,
        /// What it must be.
        need: &'static str,
        /// What it is.
        found: String,
    },
}

/// Adds a dialect to [`dialects`](super::dialects), for the whole process and for good. The same table twice is the same
/// dialect.
pub fn define(table: &DialectTable) -> Result<&'static Dialect, DefineError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if table.name.is_empty() || !table.name.chars().all(allowed) || matches!(table.name.as_str(), "auto" | "native") {
        return Err(DefineError::Name(table.name.clone()));
    }
    let grammar = grammar(table)?;
    if let Some(known) = dialect(&table.name) {
        let same = known.grammar == grammar && known.spec.is_empty() && known.summary == table.summary;
        return if same { Ok(known) } else { Err(DefineError::Taken(table.name.clone())) };
    }
    let lesson = match (&table.lesson, table.machine) {
        (Some(words), _) => leak(words),
        (None, Machine::Tagged) => {
            "Write each call in a tag with the tool's name, and in it one tag for each argument."
        }
        (None, Machine::Json) => "Write each call as JSON with the tool's name and its arguments, between the markers.",
        (None, Machine::Python) => "Write calls as one Python list, with keyword arguments only, between the markers.",
        (None, Machine::Gemma) => "Write each call between the markers, every string between two quote markers.",
    };
    let (name, summary) = (leak(&table.name), leak(&table.summary));
    let made: &'static Dialect =
        Box::leak(Box::new(Dialect { name, aliases: &[], summary, spec: "", grammar, lesson }));
    DEFINED.write().unwrap_or_else(PoisonError::into_inner).push(made);
    Ok(made)
}

fn grammar(table: &DialectTable) -> Result<Grammar, DefineError> {
    let marker = |key, text: &str| {
        check(table, key, text, "1 to 64 bytes without white space at its ends", |text| {
            !text.is_empty() && text.len() <= MARKER_CAP && text.trim() == text
        })
    };
    let tag = |key, text: &str| {
        check(table, key, text, "a tag's name: letters, digits and `_ - . :`", |text| {
            !text.is_empty()
                && text.len() <= MARKER_CAP
                && text.chars().all(|c| c.is_alphanumeric() || "_-.:｜".contains(c))
        })
    };
    let close = |text: &str| if text.is_empty() { Ok("") } else { marker("close", text) };
    Ok(match table.machine {
        Machine::Tagged => {
            let tags = table.tags.as_ref();
            let name_in = match tags.map_or("", |tags| tags.name_in.as_str()) {
                "=" => NameIn::Equals,
                attribute => NameIn::Attribute(tag("tags.name_in", attribute)?),
            };
            let text = |pick: fn(&TagTable) -> &str| tags.map_or("", pick);
            let prefix = text(|tags| &tags.prefix);
            let prefix = if prefix.is_empty() { "" } else { tag("tags.prefix", prefix)? };
            let wrapper = tags.and_then(|tags| tags.wrapper.as_deref());
            let wrapper = wrapper.map(|name| tag("tags.wrapper", name)).transpose()?;
            Grammar::Tagged(Tagged {
                notation: Notation::Angle,
                tags: Tags::Fixed {
                    call: tag("tags.call", text(|tags| &tags.call))?,
                    argument: tag("tags.argument", text(|tags| &tags.argument))?,
                    call_name: name_in,
                    argument_name: name_in,
                    typed: None,
                },
                wrappers: wrapper.map_or(&[], |name| Box::leak(Box::new([name]))),
                each: false,
                sections: &[],
                prefixes: Box::leak(Box::new([prefix])),
            })
        }
        Machine::Json => {
            let head_end = table.json.head_end.as_deref().map(|end| marker("json.head_end", end)).transpose()?;
            Grammar::Json(json(&table.json, head_end, marker("open", &table.open)?, close(&table.close)?))
        }
        Machine::Python => {
            Grammar::Python(PythonCalls { open: marker("open", &table.open)?, close: close(&table.close)? })
        }
        Machine::Gemma => Grammar::Gemma(GemmaCalls {
            open: marker("open", &table.open)?,
            close: marker("close", &table.close)?,
            quote: marker("quote", &table.quote)?,
        }),
    })
}

fn json(table: &JsonTable, head_end: Option<&'static str>, open: &'static str, close: &'static str) -> JsonCalls {
    let head = head_end.map(|end| Head { end, prefix: "", id: None, fenced: false });
    let key = |given: &Option<String>, usual| given.as_deref().map_or(usual, leak);
    JsonCalls {
        section: None,
        forms: Box::leak(Box::new([JsonForm { open, head, close, stop: false }])),
        keys: (key(&table.name_key, "name"), key(&table.arguments_key, "arguments"), None),
        list: table.list,
        bare: false,
    }
}

fn check(
    table: &DialectTable,
    key: &'static str,
    text: &str,
    need: &'static str,
    holds: impl FnOnce(&str) -> bool,
) -> Result<&'static str, DefineError> {
    if holds(text) {
        return Ok(leak(text));
    }
    Err(DefineError::Marker { dialect: table.name.clone(), key, need, found: text.to_owned() })
}

/// Definitions live as long as the process.
fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn name_attribute() -> String {
    "name".to_owned()
}
