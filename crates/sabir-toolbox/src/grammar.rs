//! Derives grammars for constrained decoding: the command `grammar`.

use std::io::{self, Write};

use sabir_call::dialect::Dialect;
use sabir_call::{ParallelCalls, ToolSet};
pub use sabir_grammar::{GrammarFormat, UnknownFormat};
use sabir_grammar::{Relaxation, build_grammar, write_grammar};
use serde::Serialize;

use crate::error::ToolboxError;
use crate::report::Report;

/// The grammar that is wanted.
#[derive(Debug, Clone)]
pub struct GrammarOptions<'d> {
    /// The dialect of the calls.
    pub dialect: &'d Dialect,
    /// The tools that may be called.
    pub tools: ToolSet,
    /// The format.
    pub format: GrammarFormat,
    /// The number of calls that a message may have.
    pub parallel_calls: ParallelCalls,
}

/// Derives a grammar.
///
/// # Errors
/// The dialect cannot write calls of a tool, or the format cannot express the dialect.
pub fn derive_grammar(options: &GrammarOptions<'_>) -> Result<GrammarReport, ToolboxError> {
    let calls = options.parallel_calls;
    let built = build_grammar(options.dialect, &options.tools, calls)?;
    Ok(GrammarReport {
        dialect: options.dialect.name,
        format: options.format.name(),
        grammar: write_grammar(&built, &options.tools, calls, options.format)?,
        relaxations: built.relaxations,
    })
}

/// The report of `grammar`. Its text is the grammar alone, so that it can be piped into a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrammarReport {
    /// The name of the dialect.
    pub dialect: &'static str,
    /// The name of the format.
    pub format: &'static str,
    /// The grammar.
    pub grammar: String,
    /// The places where the grammar accepts more than the schemas.
    pub relaxations: Vec<Relaxation>,
}

impl GrammarReport {
    /// Renders the relaxations for people, one a line.
    pub fn relaxation_text(&self) -> String {
        let line = |relaxation: &Relaxation| {
            let Relaxation {
                tool,
                place,
                keyword,
            } = relaxation;
            format!(
                "note: `{place}` of `{tool}`: the grammar leaves `{keyword}` to the check of the call\n"
            )
        };
        self.relaxations.iter().map(line).collect()
    }
}

impl Report for GrammarReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.grammar.as_bytes())
    }
}
