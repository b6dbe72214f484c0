//! Defines the errors of the bindings: input that cannot be used, with its position where there is one.

use sabir_call::Span;
use sabir_call::dialect::DefineError;
use sabir_toolbox::edit::EditProblem;
use sabir_toolbox::{ToolboxError, UnknownDialect};
use serde::Serialize;

/// A reason why a function of the bindings has no result.
///
/// Mistakes of a model are never errors but part of a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The options are not the JSON object that they must be.
    #[error("the options cannot be read: {message}")]
    InvalidOptions {
        /// The reason.
        message: String,
        /// Its position in the JSON text.
        span: Option<Span>,
    },
    /// The tools are not a list of tools in any known form.
    #[error("{message}")]
    InvalidTools {
        /// The reason.
        message: String,
        /// Its position in the JSON text.
        span: Option<Span>,
    },
    /// A tool's schema has keywords that a build without the validator does not support.
    #[error(
        "the schema of `{tool}` has keywords that this build does not support; build it with the feature `validator`"
    )]
    UnsupportedSchema {
        /// The name of the tool.
        tool: String,
    },
    /// The calls to render are not an array of `{name, arguments}`.
    #[error("the calls cannot be read: {message}; write [{{\"name\": …, \"arguments\": {{…}}}}]")]
    InvalidCalls {
        /// The reason.
        message: String,
        /// Its position in the JSON text.
        span: Option<Span>,
    },
    /// No dialect has this name.
    #[error(transparent)]
    UnknownDialect(#[from] UnknownDialect),
    /// A table defines no usable dialect.
    #[error("dialect table: {0}")]
    InvalidDialect(#[from] DefineError),
    /// The function needs one dialect, and none was named.
    #[error("`auto` is only for reading: name the dialect to write")]
    NoDialect,
    /// No repair rule has this name.
    #[error("`{0}` is not a repair rule: use {names}", names = repair_names())]
    UnknownRepair(String),
    /// A word that must be one of a few is another.
    #[error("`{found}` is not {what}: use {known}")]
    UnknownWord {
        /// The kind of word, with its article.
        what: &'static str,
        /// The word.
        found: String,
        /// The possible words.
        known: &'static str,
    },
    /// A response body has no known form.
    #[error("the body does not look like a response of any known API: name its `wire`")]
    UnknownBody,
    /// No API has this name.
    #[error(transparent)]
    UnknownWire(ToolboxError),
    /// A call cannot be written so that it is read back.
    #[error(
        "the call of `{tool}` cannot be written in `{dialect}` so that it is read back: {problem}"
    )]
    UnwritableCall {
        /// The name of the tool.
        tool: String,
        /// The name of the dialect.
        dialect: String,
        /// The reason.
        problem: String,
    },
    /// An edit cannot be applied.
    #[error("{}", render_problems(.0))]
    EditFailed(Vec<EditProblem>),
    /// A chunk came after the end of the text.
    #[error("the reader has finished: create another one for the next text")]
    AlreadyFinished,
}

/// The public form of an error. Serialized as JSON for bindings that pass errors as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorReport<'e> {
    /// The name of the kind; see [`BindingError::code`].
    pub code: &'static str,
    /// The message for people.
    pub message: String,
    /// The position in the input that is at fault, in bytes.
    pub span: Option<Span>,
    /// The problems of an edit.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub problems: &'e [EditProblem],
}

impl BindingError {
    /// Returns the name of the kind. The names are public and do not change.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidOptions { .. } => "invalid_options",
            Self::InvalidTools { .. } => "invalid_tools",
            Self::UnsupportedSchema { .. } => "unsupported_schema",
            Self::InvalidCalls { .. } => "invalid_calls",
            Self::UnknownDialect(_) => "unknown_dialect",
            Self::InvalidDialect(_) => "invalid_dialect",
            Self::NoDialect => "no_dialect",
            Self::UnknownRepair(_) => "unknown_repair",
            Self::UnknownWord { .. } => "unknown_word",
            Self::UnknownBody => "unknown_body",
            Self::UnknownWire(_) => "unknown_word",
            Self::UnwritableCall { .. } => "invalid_calls",
            Self::EditFailed(_) => "edit_failed",
            Self::AlreadyFinished => "already_finished",
        }
    }

    /// Returns the position in the input that is at fault.
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::InvalidOptions { span, .. }
            | Self::InvalidTools { span, .. }
            | Self::InvalidCalls { span, .. } => *span,
            _ => None,
        }
    }

    /// Returns the public form.
    pub fn report(&self) -> ErrorReport<'_> {
        ErrorReport {
            code: self.code(),
            message: self.to_string(),
            span: self.span(),
            problems: match self {
                Self::EditFailed(problems) => problems,
                _ => &[],
            },
        }
    }

    /// Returns the public form as a JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.report()).unwrap_or_default()
    }
}

/// Returns the position of a JSON error in its text.
pub(crate) fn json_error_span(error: &serde_json::Error, text: &str) -> Option<Span> {
    // serde_json counts lines from 1, and columns in bytes from 1; line 0 means that it does not
    // know.
    let line = error.line().checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let at = start
        .saturating_add(error.column().saturating_sub(1))
        .min(text.len());
    Some(Span::new(at, at.saturating_add(1).min(text.len())))
}

/// Returns the names of all repair rules, for a message.
fn repair_names() -> String {
    let names = sabir_check::RULES.iter().map(|rule| rule.name);
    let names: Vec<_> = names.chain(["missing_last_close", "all"]).collect();
    names.join(", ")
}

/// Renders the problems of an edit, one a line.
fn render_problems(problems: &[EditProblem]) -> String {
    let words: Vec<_> = problems
        .iter()
        .map(|problem| problem.words.as_str())
        .collect();
    words.join("\n")
}
