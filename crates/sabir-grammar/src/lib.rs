//! Derives grammars for constrained decoding from the dialects of tool calls and the schemas of tools.
//!
//! A server that restricts decoding by a grammar cannot produce a malformed call, if the grammar
//! describes exactly the notation that the model was taught and that the parser reads. Here all
//! three come from one row of [`sabir_call::dialect`]: the layout of a call is taken from the
//! renderer, and the values from the schemas of the tools.
//!
//! Three properties are tested for every dialect: each text that the grammar accepts is read as
//! exactly the calls that it contains; these calls are valid, except where [`Relaxation`]s name a
//! keyword that the grammar leaves to the check; and what the renderer writes, with the arguments
//! in their declared order, is accepted. One class of texts is an exception to the last one: a
//! value in a tag that contains a closing tag of its own call, which a reader can only place by
//! what follows it. The grammar accepts such a value as escaped JSON only.
//!
//! ```
//! use sabir_call::dialect::DialectSet;
//! use sabir_call::{ParallelCalls, ToolSet};
//! use sabir_grammar::{build_grammar, write_gbnf};
//!
//! let tools = ToolSet::from_json(
//!     r#"[{"name": "read_file", "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}}]"#,
//! )?;
//! let dialect = DialectSet::built_in().find("hermes").ok_or("a dialect")?;
//! let built = build_grammar(dialect, &tools, ParallelCalls::One)?;
//! assert!(built.grammar.accepts("<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>"));
//! assert!(write_gbnf(&built.grammar).starts_with("root ::= "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod disjoint;
mod expression;
mod formats;
mod keyword_locations;
mod plain_text;
mod recognizer;
mod sampler;
mod value;

pub use builder::{CallGrammar, ToolRule, build_grammar};
pub use expression::{CharClass, CharRange, Expression, Grammar, Rule};
pub use formats::{
    GrammarFormat, ParseGrammarFormatError, write_gbnf, write_grammar, write_json_schema,
    write_lark, write_regex, write_structural_tag,
};
pub use sampler::{SampleTooLong, Sampler};
pub use value::Relaxation;

/// The most bytes of a sample, and of a grammar in a format that repeats definitions.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A reason why there is no grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// The list of tools is empty.
    #[error("there is no tool, so there is no call that a grammar could describe")]
    NoTools,
    /// The dialect cannot write calls of a tool.
    #[error(
        "the dialect `{dialect}` cannot write calls of `{tool}`: its parser does not read {text:?} as one call of it; \
         rename the tool or its arguments, or choose another dialect"
    )]
    Unwritable {
        /// The dialect.
        dialect: String,
        /// The tool.
        tool: String,
        /// The text that was not read.
        text: String,
    },
    /// No call of a tool would ever come to an end.
    #[error(
        "no finite value satisfies the parameters of `{tool}`: a required part of them is, or contains, itself, or has no values; \
         make that part optional, or give it another branch"
    )]
    NoFiniteValue {
        /// The tool.
        tool: String,
    },
    /// A rule can begin with itself.
    #[error(
        "the rule `{rule}` can begin with itself, which no decoder can follow: a schema is, or chooses, a reference to itself; \
         remove that reference"
    )]
    LeftRecursive {
        /// The name of the rule, which holds that of the tool or of the definition.
        rule: String,
    },
    /// The bounds of a place exclude every value.
    #[error(
        "`{place}` of `{tool}`: `{least}` is greater than `{most}`, so no value is valid; correct one of them"
    )]
    Contradictory {
        /// The tool.
        tool: String,
        /// The place in the tool's parameters.
        place: String,
        /// The keyword of the least value.
        least: &'static str,
        /// The keyword of the greatest value.
        most: &'static str,
    },
    /// Even short calls of a tool are too long.
    #[error(
        "calls of `{tool}` have more than {MAX_TEXT_BYTES} bytes: at `{rule}`, the schemas ask for too many repetitions or \
         members; lower `minLength`, `minItems` or the number of required members there"
    )]
    LongCalls {
        /// The tool.
        tool: String,
        /// The rule in which the limit was reached.
        rule: String,
    },
    /// A grammar is too long in a format.
    #[error(
        "the grammar has more than {MAX_TEXT_BYTES} bytes in the format {format}, which repeats definitions wherever they are \
         used, at `{rule}`; use gbnf, or refer to fewer definitions"
    )]
    LongGrammar {
        /// The name of the format.
        format: &'static str,
        /// The rule in which the limit was reached.
        rule: String,
    },
    /// A format cannot express the dialect.
    #[error("the format {format} cannot express the dialect `{dialect}`: {reason}")]
    Inexpressible {
        /// The name of the format.
        format: &'static str,
        /// The dialect.
        dialect: String,
        /// The reason.
        reason: String,
    },
}
