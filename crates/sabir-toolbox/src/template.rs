//! Reports the dialects that chat templates teach: `dialects --from-template`.

use std::io::{self, Write};

use sabir_template::{ArgumentForm, TemplateEvidence, TemplateReport, TemplateVerdict};
use serde::Serialize;

use crate::report::{Report, write_json_line};
use crate::text::indent_lines;

/// The reports about the templates of a file. Serialized as an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TemplateReports(pub Vec<TemplateReport>);

impl TemplateReports {
    /// Returns true if each template teaches exactly one dialect. Templates that show no tools do not count beside one that does: models
    /// ship `default` and `tool_use` in one file.
    pub fn is_recognized(&self) -> bool {
        let has_tools = self.0.iter().any(|report| report.shows_tools);
        let is_without_tools = |report: &TemplateReport| {
            !report.shows_tools && report.verdict != TemplateVerdict::Failed
        };
        self.0
            .iter()
            .all(|report| report.dialect.is_some() || has_tools && is_without_tools(report))
    }
}

impl Report for TemplateReports {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for report in &self.0 {
            write_template(report, out)?;
        }
        Ok(())
    }

    fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|report| write_json_line(report, out))
    }
}

fn write_template(report: &TemplateReport, out: &mut dyn Write) -> io::Result<()> {
    if let Some(name) = &report.name {
        writeln!(out, "template {name}")?;
        out.flush()?;
    }
    let closest = report.closest_dialects();
    let dialect = match closest.as_slice() {
        [] => "none".to_owned(),
        names => names.join(" or "),
    };
    writeln!(out, "dialect: {dialect}\n    {}", report.reason)?;
    let others: Vec<_> = report
        .candidates
        .iter()
        .map(|candidate| candidate.dialect.as_str())
        .filter(|name| !closest.contains(name))
        .collect();
    if !others.is_empty() {
        writeln!(out, "also possible: {}", others.join(", "))?;
    }
    if !report.shows_tools && report.verdict != TemplateVerdict::Failed {
        writeln!(out, "The template does not show the tools to the model.")?;
    }
    if let Some(proof) = &report.proof {
        write_proof(proof, out)?;
    }
    Ok(())
}

fn write_proof(proof: &TemplateEvidence, out: &mut dyn Write) -> io::Result<()> {
    let form = match proof.arguments {
        ArgumentForm::Object => "an object",
        ArgumentForm::Text => "a text",
    };
    writeln!(
        out,
        "\nThe template writes a call, whose arguments it gets as {form}, as:"
    )?;
    out.flush()?;
    writeln!(out, "{}", indent_lines(proof.text.trim_matches('\n')))?;
    out.flush()?;
    writeln!(out, "\nThe reader of all dialects understands:")?;
    if proof.understood.is_empty() {
        writeln!(out, "    no call")?;
    }
    for call in &proof.understood {
        let arguments = serde_json::to_string(&call.arguments)?;
        let dialect = call.dialect.as_deref().unwrap_or("no dialect");
        let state = serde_json::to_value(call.state)?;
        let state = state.as_str().unwrap_or_default();
        writeln!(out, "    {} {arguments} ({dialect}, {state})", call.name)?;
    }
    Ok(())
}
