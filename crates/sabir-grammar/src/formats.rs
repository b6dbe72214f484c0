//! Writes grammars in the formats that servers read.

mod gbnf;
mod json_schema;
mod lark;
mod regex;
mod structural_tag;

use crate::builder::CallGrammar;
use crate::{CharClass, GrammarError};

pub use gbnf::write_gbnf;
pub use json_schema::write_json_schema;
pub use lark::write_lark;
pub use regex::write_regex;
pub use structural_tag::write_structural_tag;

/// A format of grammars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrammarFormat {
    /// The grammars of llama.cpp, which XGrammar reads too.
    Gbnf,
    /// The Lark dialect of llguidance.
    Lark,
    /// A JSON Schema of the whole message.
    JsonSchema,
    /// The structural tags of XGrammar, for vLLM and SGLang.
    StructuralTag,
    /// One regular expression, which must match the whole message.
    Regex,
}

impl GrammarFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Gbnf,
        Self::Lark,
        Self::JsonSchema,
        Self::StructuralTag,
        Self::Regex,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gbnf => "gbnf",
            Self::Lark => "lark",
            Self::JsonSchema => "json-schema",
            Self::StructuralTag => "structural-tag",
            Self::Regex => "regex",
        }
    }
}

impl std::str::FromStr for GrammarFormat {
    type Err = ParseGrammarFormatError;

    fn from_str(name: &str) -> Result<Self, ParseGrammarFormatError> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| ParseGrammarFormatError(name.to_owned()))
    }
}

/// An unknown name of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format: use gbnf, lark, json-schema, structural-tag or regex")]
pub struct ParseGrammarFormatError(pub String);

/// Writes the grammar in a format, with a line feed at the end.
///
/// # Errors
/// The format cannot express the dialect; the error says why.
pub fn write_grammar(
    built: &CallGrammar,
    tools: &sabir_call::ToolSet,
    calls: sabir_call::ParallelCalls,
    format: GrammarFormat,
) -> Result<String, GrammarError> {
    let json = |value: serde_json::Value| format!("{value:#}\n");
    match format {
        GrammarFormat::Gbnf => Ok(write_gbnf(&built.grammar)),
        GrammarFormat::Lark => write_lark(&built.grammar),
        GrammarFormat::JsonSchema => write_json_schema(built, tools, calls).map(json),
        GrammarFormat::StructuralTag => write_structural_tag(built, calls).map(json),
        GrammarFormat::Regex => write_regex(built).map(|text| format!("{text}\n")),
    }
}

/// Writes a class in square brackets; `escape` writes a character that has a meaning there.
fn write_class(class: &CharClass, escape: &dyn Fn(char) -> String, out: &mut String) {
    out.push('[');
    if class.negated {
        out.push('^');
    }
    let mut is_behind_hex_escape = false;
    let mut write_char = |c: char, out: &mut String| {
        // Not only `]` and `\`: some readers take `[`, `&&` or `~~` for set operations, and Lark
        // ends a terminal at `/`.
        let has_meaning = matches!(c, '[' | ']' | '\\' | '^' | '-' | '/' | '"' | '&' | '~');
        // XGrammar reads more than two digits of an escape: `\x2d0` would be another character.
        let continues_escape = is_behind_hex_escape && c.is_ascii_hexdigit();
        if has_meaning || continues_escape || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
        {
            let escaped = escape(c);
            is_behind_hex_escape = escaped.starts_with("\\x");
            out.push_str(&escaped);
        } else {
            is_behind_hex_escape = false;
            out.push(c);
        }
    };
    for range in &class.ranges {
        write_char(range.first, out);
        if range.last != range.first {
            out.push('-');
            write_char(range.last, out);
        }
    }
    out.push(']');
}
