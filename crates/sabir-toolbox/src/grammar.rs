//! Derives grammars for constrained decoding: the command `grammar`.

use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{ParallelCalls, ToolSet};
use sabir_check::lint::{LintScope, lint_tools};
pub use sabir_grammar::{GrammarFormat, ParseGrammarFormatError};
use sabir_grammar::{Relaxation, build_grammar, write_grammar};
use serde::Serialize;
use serde_json::{Value, json};

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
        relaxations: built.relaxations_in(&options.tools, options.format),
        unchecked_tools: find_unchecked_tools(options),
    })
}

/// Finds the tools by whose schemas the check of a call cannot go.
fn find_unchecked_tools(options: &GrammarOptions<'_>) -> Vec<UncheckedTool> {
    let tools: Vec<_> = options
        .tools
        .iter()
        .map(|tool| json!({"name": tool.name, "parameters": tool.parameters}))
        .collect();
    let scope = LintScope::for_dialect(DialectSet::built_in(), options.dialect);
    let findings = lint_tools(&Value::from(tools), &scope).into_iter();
    findings
        .filter(|finding| matches!(finding.lint, "invalid_schema" | "outside_reference"))
        .filter_map(|finding| {
            Some(UncheckedTool {
                tool: finding.tool?,
                reason: finding.message,
            })
        })
        .collect()
}

/// A tool whose schema is invalid, so that its calls are not checked by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UncheckedTool {
    /// The tool's name.
    pub tool: String,
    /// The reason.
    pub reason: String,
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
    /// The tools whose calls nothing checks by their schemas.
    pub unchecked_tools: Vec<UncheckedTool>,
}

impl GrammarReport {
    /// Renders the relaxations and the unchecked tools for people, one a line.
    pub fn relaxation_text(&self) -> String {
        let is_unchecked = |name: &str| self.unchecked_tools.iter().any(|it| it.tool == name);
        let line = |relaxation: &Relaxation| {
            let Relaxation {
                tool,
                place,
                keyword,
            } = relaxation;
            let consequence = if is_unchecked(tool) {
                format!("the grammar ignores `{keyword}`, and nothing checks it")
            } else if keyword == "format" {
                format!(
                    "the grammar ignores `{keyword}`, and so does the check of the call, unless `$schema` names draft 7 or an older one"
                )
            } else {
                format!("the grammar leaves `{keyword}` to the check of the call")
            };
            format!("note: `{place}` of `{tool}`: {consequence}\n")
        };
        let reason = |it: &UncheckedTool| {
            format!(
                "note: the calls of `{}` are not checked: {}\n",
                it.tool, it.reason
            )
        };
        let relaxations = self.relaxations.iter().map(line);
        relaxations
            .chain(self.unchecked_tools.iter().map(reason))
            .collect()
    }
}

impl Report for GrammarReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.grammar.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(schema: &str, format: GrammarFormat) -> String {
        let tools = format!(
            r#"[{{"name": "f", "parameters": {{"type": "object", "properties": {{"x": {schema}}}}}}}]"#
        );
        let dialect = match format {
            GrammarFormat::JsonSchema => "json",
            _ => "hermes",
        };
        let report = derive_grammar(&GrammarOptions {
            dialect: DialectSet::built_in().find(dialect).unwrap(),
            tools: ToolSet::from_json(&tools).unwrap(),
            format,
            parallel_calls: ParallelCalls::One,
        });
        report.unwrap().relaxation_text()
    }

    #[test]
    fn notes_say_truthfully_that_something_checks() {
        let pattern = notes(r#"{"type": "string", "pattern": "a"}"#, GrammarFormat::Gbnf);
        assert_eq!(
            pattern,
            "note: `x` of `f`: the grammar leaves `pattern` to the check of the call\n"
        );
        let date = notes(
            r#"{"type": "string", "format": "date"}"#,
            GrammarFormat::Gbnf,
        );
        assert!(
            date.contains("ignores `format`, and so does the check"),
            "{date}"
        );
        for schema in [
            r#"{"type": "strin"}"#,
            r##"{"$ref": "#/nowhere"}"##,
            r#"{"$ref": "https://example.com/schema.json"}"#,
        ] {
            let text = notes(schema, GrammarFormat::Gbnf);
            assert!(text.contains("and nothing checks it"), "{schema}: {text}");
            assert!(
                text.contains("the calls of `f` are not checked: "),
                "{schema}: {text}"
            );
        }
        let schema = r#"{"type": "string", "maxLength": 9}"#;
        assert_eq!(notes(schema, GrammarFormat::StructuralTag), "");
        assert!(notes(schema, GrammarFormat::JsonSchema).contains("leaves `maxLength`"));
    }
}
