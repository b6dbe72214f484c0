//! Finds mistakes in tool definitions before a model has to work with them: the command `lint`.

use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{ParallelCalls, Severity, ToolChoice, ToolInstructions, ToolSet};
use sabir_check::lint::{LintFinding, LintScope, lint_tools};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::ToolboxError;
use crate::report::{Report, write_json_line};
use crate::text::count_noun;
use crate::tool_list::ToolList;

mod sarif;

/// The settings of a lint.
#[derive(Debug, Clone)]
pub struct LintOptions<'d> {
    /// The known dialects, including the user's.
    pub dialects: &'d DialectSet,
    /// The dialect that the tools are taught in; `None` checks for all of them, and for the wires.
    pub dialect: Option<&'d Dialect>,
    /// True if a warning counts as an error.
    pub deny_warnings: bool,
    /// The name of the file or stream with the tools, as shown to the user.
    pub source_name: String,
}

/// Checks a list of tools: a JSON array of `{name, description, parameters}`, or the list of another API (see [`parse_tools`]).
///
/// [`parse_tools`]: crate::parse::parse_tools
///
/// # Errors
/// The text is not JSON, or holds no list of tools. An element that is not a tool is a finding, not an error.
pub fn lint_text(text: &str, options: &LintOptions<'_>) -> Result<LintReport, ToolboxError> {
    let list = ToolList::parse(text, &options.source_name)?;
    let known = options.dialects;
    // With one dialect the wires are left out: the tools are then taught in words alone.
    let (scope, taught) = match options.dialect {
        None => (LintScope::all(known), known.iter().collect()),
        Some(dialect) => (LintScope::for_dialect(known, dialect), vec![dialect]),
    };
    let mut findings = lint_tools(&list.tools, &scope);
    for finding in &mut findings {
        finding.pointer = list.source_pointer(&finding.pointer);
    }
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    let warnings = findings.len() - errors;
    Ok(LintReport {
        findings,
        errors,
        warnings,
        prompt_sizes: PromptSizes::measure(&list.tools, &taught),
        tool_count: list.tools.as_array().map_or(0, Vec::len),
        is_refused: errors > 0 || options.deny_warnings && warnings > 0,
        source_name: options.source_name.clone(),
    })
}

/// The report of `lint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintReport {
    /// The findings, in the order of the tools.
    pub findings: Vec<LintFinding>,
    /// The number of errors among them.
    pub errors: usize,
    /// The number of warnings among them.
    pub warnings: usize,
    /// The size of the prompt that teaches the tools; `None` if they are not a valid set.
    pub prompt_sizes: Option<PromptSizes>,
    /// The number of elements in the array.
    #[serde(skip)]
    pub tool_count: usize,
    /// True if there are errors, or warnings that count as errors.
    #[serde(skip)]
    pub is_refused: bool,
    #[serde(skip)]
    source_name: String,
}

/// The size of the prompt in each dialect, in tokens (bytes / 4, as in `sabir prompt`). Serialized as an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSizes(Vec<PromptSize>);

/// The size of the prompt in one dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSize {
    /// The name of the dialect.
    pub dialect: &'static str,
    /// The estimated number of tokens.
    pub tokens: usize,
}

impl PromptSizes {
    /// Renders the prompt in each dialect; `None` if the tools are not a valid set.
    fn measure(tools: &Value, taught: &[&Dialect]) -> Option<Self> {
        // Tools that are not valid set have findings that say so; a size would be made up.
        let tools = ToolSet::new(serde_json::from_value(tools.clone()).ok()?).ok()?;
        let instructions = ToolInstructions {
            tools: &tools,
            servers: &[],
            parallel_calls: ParallelCalls::Many,
            tool_choice: &ToolChoice::Auto,
        };
        let sizes = taught.iter().map(|dialect| PromptSize {
            dialect: dialect.name,
            tokens: instructions.render_prompt(dialect).len().div_ceil(4),
        });
        Some(Self(sizes.collect()))
    }

    /// Iterates over the sizes in the order of the dialects.
    pub fn iter(&self) -> impl Iterator<Item = &PromptSize> {
        self.0.iter()
    }
}

impl Serialize for PromptSizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A map in the order of the dialects, which a sorted map would lose.
        serializer.collect_map(self.iter().map(|size| (size.dialect, size.tokens)))
    }
}

impl Report for LintReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for finding in &self.findings {
            out.write_all(render_finding(finding, &self.source_name).as_bytes())?;
        }
        if let Some(sizes) = &self.prompt_sizes {
            let sizes: Vec<_> = sizes
                .iter()
                .map(|size| format!("{} {}", size.dialect, size.tokens))
                .collect();
            writeln!(out, "prompt sizes (tokens): {}", sizes.join(", "))?;
        }
        writeln!(
            out,
            "{}, {}, {}",
            count_noun(self.tool_count, "tool"),
            count_noun(self.errors, "error"),
            count_noun(self.warnings, "warning")
        )
    }

    fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.findings
            .iter()
            .try_for_each(|finding| write_json_line(finding, out))
    }
}

/// Renders a finding in the style of a compiler.
fn render_finding(finding: &LintFinding, source_name: &str) -> String {
    let LintFinding {
        lint,
        severity,
        pointer,
        dialects,
        message,
        hint,
        ..
    } = finding;
    let word = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    // Names quoted from a tool may contain line breaks.
    let flat = |text: &str| text.replace(['\n', '\r'], " ");
    let message = flat(message);
    let pointer = flat(pointer);
    let mut text = format!("lint[{lint}]: {word}: {message}\n  --> {source_name}#{pointer}\n");
    // No dialect means that the finding holds in all of them.
    if !dialects.is_empty() {
        text.push_str(&format!("   = in: {}\n", dialects.join(", ")));
    }
    text.push_str(&format!("   = hint: {hint}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lint(text: &str, deny_warnings: bool) -> Result<LintReport, ToolboxError> {
        let options = LintOptions {
            dialects: DialectSet::built_in(),
            dialect: None,
            deny_warnings,
            source_name: "tools.json".to_owned(),
        };
        lint_text(text, &options)
    }

    #[test]
    fn only_an_array_is_linted() {
        let message = |text: &str| lint(text, false).unwrap_err().to_string();
        assert!(message("[").starts_with("tools.json: not JSON: "));
        let no_list = message("{}");
        assert!(
            no_list.starts_with("tools.json: a list of tools was expected"),
            "{no_list}"
        );
    }

    #[test]
    fn warnings_can_count_as_errors() {
        let tools = r#"[{"name": "look", "parameters": {"type": "object", "properties": {}}}]"#;
        let report = lint(tools, false).unwrap();
        assert!(report.errors == 0 && report.warnings > 0, "{report:?}");
        assert!(!report.is_refused);
        assert!(lint(tools, true).unwrap().is_refused);
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["prompt_sizes"]["cline"].is_u64());
    }
}
