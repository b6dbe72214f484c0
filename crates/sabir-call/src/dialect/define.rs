//! Dialects from outside: a row as a table that any format of serde's can hold.
//!
//! ```toml
//! name = "acme"
//! aliases = ["acme_v1"]
//! summary = "A JSON object in an <acme> block."
//! lesson = "Write each call as a JSON object in an `acme` block."
//! machine = "json"
//! open = "<acme>"
//! close = "</acme>"
//!
//! [json]
//! name_key = "tool_name"
//! ```
//!
//! | key | of the machines | means |
//! | --- | --- | --- |
//! | `name`, `machine` | all | must be there; `name` is lower-case letters, digits and `_`, `machine` is `tagged`, `json`, `python` or `gemma` |
//! | `aliases`, `summary`, `lesson` | all | other names; one sentence for lists; the words that teach it, which examples follow |
//! | `open` | json, python, gemma | must be there: the marker before a call (python: before the list of all calls) |
//! | `close` | json, python, gemma | the marker behind it; only gemma must have one |
//! | `quote` | gemma | must be there: the marker on both sides of a string |
//! | `tags.call` | tagged | must be there: the tag of a call |
//! | `tags.argument` | tagged | the tag of an argument; without it each argument is a tag of its own name |
//! | `tags.name_in` | tagged | `"="` for `<call=f>`, else the attribute that holds the name; `name` by default |
//! | `tags.wrapper`, `tags.each` | tagged | the tag around all calls, or around each of them |
//! | `tags.prefix` | tagged | stands before the names of all these tags, and ends with `:` |
//! | `json.name_key`, `json.arguments_key` | json | the keys that are written; every usual one is read |
//! | `json.list` | json | several calls are written as one array |
//! | `json.head_end` | json | the tool's name stands before the JSON of its arguments, up to this marker |
//!
//! A marker must be recognisable in any prose: 3 to 64 bytes with a letter or digit and a mark in it; one that begins with a
//! bracket also holds the bracket that closes it. What no rule foresees is tried out: a dialect that cannot read what it
//! writes, or takes calls away from another one, is refused.
//!
//! ```
//! use sabir_call::dialect::{DialectSet, DialectTable};
//! use sabir_call::{CallReader, DraftResponse, ToolSet, Truncation};
//!
//! // From TOML, JSON, or whatever else serde reads.
//! let table: DialectTable = serde_json::from_str(
//!     r#"{"name": "acme", "machine": "json", "open": "<acme>", "close": "</acme>"}"#,
//! )?;
//! let mut dialects = DialectSet::default();
//! dialects.define(&table)?;
//!
//! let tools = ToolSet::from_json(r#"[{"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}}]"#)?;
//! let mut draft = DraftResponse::default();
//! let mut reader = CallReader::new(dialects.select("acme").ok_or("a dialect")?, &tools);
//! reader.push(r#"<acme>{"name": "look", "arguments": {"at": "the sea"}}</acme>"#, &mut draft);
//! reader.finish(Truncation::Ended, &mut draft);
//! let call = draft.call_by_index(0).ok_or("a call")?;
//! assert_eq!((call.name.as_str(), call.dialect.as_deref()), ("look", Some("acme")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod round_trip;
mod table_check;

use serde::Deserialize;

pub(super) use round_trip::check_round_trip;
pub(super) use table_check::build_dialect;

/// A dialect as a table; see the [module](self) for the keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialectTable {
    /// The name: lower-case letters, digits and `_`; not one that is taken. May be left out of a table that has its name
    /// elsewhere, and must then be filled in.
    #[serde(default)]
    pub name: String,
    /// Other names, under the same rules.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// One sentence.
    #[serde(default)]
    pub summary: String,
    /// How it is taught, in words; examples are added. A sentence of the machine's by default.
    #[serde(default)]
    pub lesson: Option<String>,
    /// The machine that reads it.
    pub machine: ParserKind,
    /// The marker before a call.
    #[serde(default)]
    pub open: String,
    /// The marker behind a call.
    #[serde(default)]
    pub close: String,
    /// Gemma: the marker on both sides of a string.
    #[serde(default)]
    pub quote: String,
    /// What is particular to the tagged machine.
    #[serde(default)]
    pub tags: Option<TagTable>,
    /// What is particular to the JSON machine.
    #[serde(default)]
    pub json: Option<JsonTable>,
}

/// The machine that reads a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParserKind {
    /// Name in a tag, each argument in a tag.
    Tagged,
    /// JSON between markers.
    Json,
    /// Python's calls.
    Python,
    /// Gemma's notation.
    Gemma,
    /// The channels of gpt-oss, of which no table can make another dialect.
    #[serde(skip)]
    Harmony,
}

/// The tags of a tagged dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagTable {
    /// The tag of a call.
    pub call: String,
    /// The tag of an argument; empty: the argument's own name.
    pub argument: String,
    /// `"="` for `<call=f>`, else the attribute that holds the name; empty: `name`.
    pub name_in: String,
    /// The tag around calls.
    pub wrapper: Option<String>,
    /// The wrapper stands around each call, not around all of them.
    pub each: bool,
    /// What stands before all these names; ends with `:`.
    pub prefix: String,
}

/// The JSON of a JSON dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonTable {
    /// The key of the tool's name, as it is written; every usual one is read.
    pub name_key: Option<String>,
    /// The key of the arguments, likewise.
    pub arguments_key: Option<String>,
    /// Several calls are written as one array.
    pub list: bool,
    /// The name stands before the JSON, up to this marker.
    pub head_end: Option<String>,
}

/// Why a table is no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefineError {
    /// The name, or an alias, is no name.
    #[error(
        "`{0}` cannot be a dialect's name: use lower-case letters, digits and `_`, and neither `auto` nor `native`"
    )]
    Name(String),
    /// The name, or an alias, is taken by something else than the same table.
    #[error("there is a dialect `{0}` already; choose another name")]
    Taken(String),
    /// A value cannot be what it is to be.
    #[error("`{key}` of the dialect `{dialect}` must be {need}, but is `{found}`")]
    Value {
        /// The dialect.
        dialect: String,
        /// The key in the table.
        key: &'static str,
        /// What it must be.
        need: &'static str,
        /// What it is.
        found: String,
    },
    /// What the dialect writes is not read as it was meant.
    #[error("the dialect `{dialect}` cannot read what it writes: `{written}`; choose other markers or keys")]
    Unreadable {
        /// The dialect.
        dialect: String,
        /// A call as it would be written.
        written: String,
    },
    /// It reads what it writes only where it is the only dialect.
    #[error(
        "where all dialects are listened for, another one with the same markers takes the calls of `{0}` and does \
             not understand them; choose other markers"
    )]
    Unheard(String),
    /// With this dialect, calls in another one are no longer read as before.
    #[error("the markers of the dialect `{dialect}` take calls away from the dialect `{other}`; choose other markers")]
    Clash {
        /// The dialect.
        dialect: String,
        /// The dialect that loses by it.
        other: String,
    },
}

impl DefineError {
    /// The key of the table that is to be changed; `None` where it may be any marker.
    pub fn table_key(&self) -> Option<&'static str> {
        match self {
            Self::Name(_) | Self::Taken(_) => Some("name"),
            Self::Value { key, .. } => Some(key),
            Self::Unreadable { .. } | Self::Unheard(_) | Self::Clash { .. } => None,
        }
    }
}
