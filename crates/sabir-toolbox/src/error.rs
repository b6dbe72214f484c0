//! Errors of the toolbox: input or options that cannot be used.

use std::io;

use sabir_call::ToolError;
use sabir_call::dialect::DialectSet;
use sabir_call::nearest_candidate;
use sabir_wire::{RequestError, Wire};

/// A reason why a command has no result. Every one but [`Output`](Self::Output) is for the user to fix.
///
/// Mistakes of a model are never errors but part of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolboxError {
    /// No dialect has this name.
    #[error(transparent)]
    UnknownDialect(#[from] UnknownDialect),
    /// A line of standard input is not a case of the corpus.
    #[error(
        "standard input is not a case of the corpus: {0}; `sabir corpus export` writes them, one per line"
    )]
    CorpusCase(serde_json::Error),
    /// There is no grammar for the dialect, the tools or the format.
    #[error(transparent)]
    Grammar(#[from] sabir_grammar::GrammarError),
    /// A response body has no form that is recognised.
    #[error(
        "standard input does not look like a response of any known API: name its wire with --wire {names}",
        names = wire_names()
    )]
    UnknownResponse,
    /// No wire has this name.
    #[error("`{0}` is not a wire: use {names}", names = wire_names())]
    UnknownWire(String),
    /// No shell that the policy knows has this name.
    #[error("the shell `{0}` is not known: bash, sh or zsh")]
    UnknownShell(String),
    /// A list of tools cannot be used.
    #[error("{source_name}: {error}")]
    Tools {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The reason.
        error: ToolError,
    },
    /// A text that should hold tools is not JSON.
    #[error("{source_name}: not JSON: {error}")]
    ToolsNotJson {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The reason.
        error: serde_json::Error,
    },
    /// A text that should contain tools is JSON, but contains no list of tools.
    #[error(
        "{source_name}: a list of tools was expected, but this is {found} without one: write an array of \
         {{name, description, parameters}}, or the `tools` of OpenAI, Anthropic, Gemini, Bedrock or MCP"
    )]
    ToolsNotArray {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The JSON type of the value.
        found: &'static str,
    },
    /// A list of MCP servers cannot be used.
    #[error("{source_name}: not a JSON array of servers: {error}")]
    Servers {
        /// The name of the file, as shown to the user.
        source_name: String,
        /// The reason.
        error: serde_json::Error,
    },
    /// The neutral request of `wire encode` cannot be read.
    #[error(
        "{source_name} is not a request: {error}; write {{\"model\": …, \"messages\": [{{\"role\": \"user\", \"parts\": \
         [{{\"type\": \"text\", \"text\": …}}]}}]}}, or name the wire of a client's request with --from"
    )]
    NeutralRequest {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The reason.
        error: serde_json::Error,
    },
    /// A client's request cannot be decoded.
    #[error("{source_name}, {error}")]
    ClientRequest {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The reason, with its place.
        error: RequestError,
    },
    /// A part of a message that a message of its role cannot have.
    #[error(
        "{source_name}, messages[{message}].parts[{part}]: {found} belongs in a message of the {role}"
    )]
    MisplacedPart {
        /// The name of the file or stream, as shown to the user.
        source_name: String,
        /// The index of the message.
        message: usize,
        /// The index of the part in it.
        part: usize,
        /// The kind of part, with its article.
        found: &'static str,
        /// The role that such a part belongs to.
        role: &'static str,
    },
    /// The tools in a request cannot be used.
    #[error("tools: {0}")]
    RequestTools(ToolError),
    /// A wire cannot express a request.
    #[error("{wire}, {error}")]
    Unsupported {
        /// The name of the wire.
        wire: &'static str,
        /// The reason, with its place.
        error: RequestError,
    },
    /// A range of records is not written as one.
    #[error("`{0}` is not a range of records: write `3..7`, `3..`, `..7` or `5`, counted from 1")]
    RecordRange(String),
    /// The report cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// An unknown name of a dialect. The message lists the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not a dialect: {hint}use {also}{list}",
    hint = hint_text(.nearest.as_deref()),
    list = .known.join(", ")
)]
pub struct UnknownDialect {
    /// The name.
    pub name: String,
    /// The most similar name or alias, if one is similar.
    pub nearest: Option<String>,
    /// Other valid words, each followed by a comma and a blank: `auto, `.
    pub also: &'static str,
    /// The names of all dialects.
    pub known: Vec<&'static str>,
}

impl UnknownDialect {
    /// Creates the error. `also` lists other valid words, as in [`UnknownDialect::also`].
    pub fn new(dialects: &DialectSet, name: &str, also: &'static str) -> Self {
        // An alias can be the nearest name, although the list only shows names.
        let names = dialects.iter().flat_map(|dialect| {
            std::iter::once(dialect.name).chain(dialect.aliases.iter().copied())
        });
        Self {
            name: name.to_owned(),
            nearest: nearest_candidate(name, names).map(str::to_owned),
            also,
            known: dialects.iter().map(|dialect| dialect.name).collect(),
        }
    }
}

/// Returns the names of all wires, for a message.
pub(crate) fn wire_names() -> String {
    Wire::ALL.map(Wire::name).join(", ")
}

fn hint_text(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("did you mean `{nearest}`? "))
}
