//! Defines dialects from tables in any format that serde can read.
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
//! | key | parsers | meaning |
//! | --- | --- | --- |
//! | `name`, `machine` | all | required; `name` consists of lower-case letters, digits and `_`, `machine` is the parser: `tagged`, `json`, `python` or `gemma` |
//! | `aliases`, `summary`, `lesson` | all | other names; one sentence for lists; the instructions for models, which examples follow |
//! | `open` | json, python, gemma | required: the marker before a call (python: before the list of all calls) |
//! | `close` | json, python, gemma | the marker after it; required for gemma only |
//! | `quote` | gemma | required: the marker on both sides of a string |
//! | `tags.call` | tagged | required: the tag of a call |
//! | `tags.argument` | tagged | the tag of an argument; without it each argument is a tag of its own name |
//! | `tags.name_in` | tagged | `"="` for `<call=f>`, else the attribute with the name; `name` by default |
//! | `tags.wrapper`, `tags.each` | tagged | the tag around all calls, or around each of them |
//! | `tags.prefix` | tagged | the prefix of all these tag names; ends with `:` |
//! | `json.name_key`, `json.arguments_key` | json | the keys that are written; all usual ones are read |
//! | `json.list` | json | several calls are written as one array |
//! | `json.head_end` | json | the tool's name precedes the JSON of its arguments, up to this marker |
//!
//! A marker must be recognizable in prose: 3 to 64 bytes with a letter or digit and a punctuation
//! character; one that begins with a bracket must contain the matching bracket. Beyond these rules
//! each dialect is tested: one that cannot read what it writes, or takes calls away from another
//! dialect, is rejected.
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

/// A dialect in table form; see the [module](self) for the keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialectTable {
    /// The name: lower-case letters, digits and `_`; must be unused. A table whose name is stored
    /// elsewhere may omit it, but it must be filled in before use.
    #[serde(default)]
    pub name: String,
    /// Other names, under the same rules.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// A one-sentence summary.
    #[serde(default)]
    pub summary: String,
    /// The instructions for models, to which examples are added. The default is a sentence for the
    /// parser.
    #[serde(default)]
    pub lesson: Option<String>,
    /// The parser that reads it.
    pub machine: ParserKind,
    /// The marker before a call.
    #[serde(default)]
    pub open: String,
    /// The marker after a call.
    #[serde(default)]
    pub close: String,
    /// The marker on both sides of a string (Gemma only).
    #[serde(default)]
    pub quote: String,
    /// The keys for the tagged parser.
    #[serde(default)]
    pub tags: Option<TagTable>,
    /// The keys for the JSON parser.
    #[serde(default)]
    pub json: Option<JsonTable>,
}

/// The parser that reads a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParserKind {
    /// The name in a tag, each argument in a tag.
    Tagged,
    /// JSON between markers.
    Json,
    /// Calls in Python syntax.
    Python,
    /// Gemma's notation.
    Gemma,
    /// The channels of gpt-oss. Tables cannot define a dialect of this kind.
    #[serde(skip)]
    Harmony,
}

/// The tags of a tagged dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagTable {
    /// The tag of a call.
    pub call: String,
    /// The tag of an argument; empty for the argument's own name.
    pub argument: String,
    /// `"="` for `<call=f>`, else the attribute with the name; empty for `name`.
    pub name_in: String,
    /// The tag around calls.
    pub wrapper: Option<String>,
    /// True if the wrapper encloses each call instead of all of them.
    pub each: bool,
    /// The prefix of all these names; ends with `:`.
    pub prefix: String,
}

/// The JSON of a JSON dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonTable {
    /// The key of the tool's name for writing; all usual ones are read.
    pub name_key: Option<String>,
    /// The key of the arguments for writing.
    pub arguments_key: Option<String>,
    /// True if several calls are written as one array.
    pub list: bool,
    /// The marker after the name, if the name precedes the JSON.
    pub head_end: Option<String>,
}

/// The reason why a table cannot become a dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefineError {
    /// The name, or an alias, is invalid.
    #[error(
        "`{0}` cannot be a dialect's name: use lower-case letters, digits and `_`, and neither `auto` nor `native`"
    )]
    Name(String),
    /// The name, or an alias, is already in use by a different dialect.
    #[error("there is a dialect `{0}` already; choose another name")]
    NameInUse(String),
    /// A value is invalid.
    #[error("`{key}` of the dialect `{dialect}` must be {need}, but is `{found}`")]
    Value {
        /// The dialect.
        dialect: String,
        /// The key in the table.
        key: &'static str,
        /// The requirement for the value.
        need: &'static str,
        /// The value in the table.
        found: String,
    },
    /// The dialect does not read back the calls that it writes.
    #[error(
        "the dialect `{dialect}` cannot read what it writes: `{written}`; choose other markers or keys"
    )]
    Unreadable {
        /// The dialect.
        dialect: String,
        /// A call as the dialect writes it.
        written: String,
    },
    /// The dialect reads back its calls only if it is the only active one.
    #[error(
        "where all dialects are listened for, another one with the same markers takes the calls of `{0}` and does \
             not understand them; choose other markers"
    )]
    Shadowed(String),
    /// The dialect changes how calls in another dialect are read.
    #[error(
        "the markers of the dialect `{dialect}` take calls away from the dialect `{other}`; choose other markers"
    )]
    MarkerConflict {
        /// The dialect.
        dialect: String,
        /// The other dialect.
        other: String,
    },
}

impl DefineError {
    /// Returns the key of the table that must be changed; `None` if any marker may be the cause.
    pub fn table_key(&self) -> Option<&'static str> {
        match self {
            Self::Name(_) | Self::NameInUse(_) => Some("name"),
            Self::Value { key, .. } => Some(key),
            Self::Unreadable { .. } | Self::Shadowed(_) | Self::MarkerConflict { .. } => None,
        }
    }
}
