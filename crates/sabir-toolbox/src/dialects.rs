//! Lists the dialects, including those that the user's tables define, and shows their specs: the command `dialects`.

use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use serde::Serialize;

use crate::report::{Report, write_json_line};

/// The facts of a dialect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DialectSummary {
    /// The name.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// The summary, in one sentence.
    pub summary: &'static str,
    /// True if a table of the user defines it.
    pub defined: bool,
    /// The name of the parser that reads it.
    pub machine: &'static str,
    /// The tags that it is recognised by.
    pub tags: Vec<&'static str>,
    /// The other markers that it is recognised by.
    pub markers: Vec<&'static str>,
}

impl DialectSummary {
    /// Collects the facts of a dialect.
    pub fn new(dialect: &Dialect) -> Self {
        Self {
            name: dialect.name,
            aliases: dialect.aliases,
            summary: dialect.summary,
            defined: dialect.is_defined(),
            machine: dialect.parser_kind().name(),
            tags: dialect.tag_names(),
            markers: dialect.marker_texts(),
        }
    }
}

/// The list of all dialects. Serialized as an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DialectList(pub Vec<DialectSummary>);

/// Lists the dialects of a set: the built-in ones, then those of the user's tables.
pub fn list_dialects(dialects: &DialectSet) -> DialectList {
    DialectList(dialects.iter().map(DialectSummary::new).collect())
}

impl Report for DialectList {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for dialect in &self.0 {
            let aliases = if dialect.aliases.is_empty() {
                String::new()
            } else {
                format!(" ({})", dialect.aliases.join(", "))
            };
            let summary = if dialect.defined {
                format!("[defined] {}", dialect.summary)
            } else {
                dialect.summary.to_owned()
            };
            // The summary of a table comes from the user and may begin or end with blanks.
            writeln!(out, "{}{aliases}\n    {}", dialect.name, summary.trim())?;
        }
        Ok(())
    }

    fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|dialect| write_json_line(dialect, out))
    }
}

/// A dialect with its spec. Its text is the spec alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DialectSpec {
    /// The facts of the dialect, at the level of the spec.
    #[serde(flatten)]
    pub dialect: DialectSummary,
    /// The spec in Markdown.
    pub spec: String,
}

/// Returns a dialect with its spec. A dialect from a table has its table and its prompt text instead of a written spec.
pub fn describe_dialect(dialect: &Dialect) -> DialectSpec {
    DialectSpec {
        dialect: DialectSummary::new(dialect),
        spec: render_spec(dialect),
    }
}

impl Report for DialectSpec {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.spec.as_bytes())
    }
}

/// Returns the spec of a dialect. A dialect from a table has its table and its prompt text instead.
fn render_spec(dialect: &Dialect) -> String {
    // Built-in specs are written by hand and tested; a table has no text of its own.
    if !dialect.is_defined() {
        return dialect.spec.to_owned();
    }
    let coded = |names: Vec<&str>| {
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let rows = [
        ("aliases", coded(dialect.aliases.to_vec())),
        ("machine", coded(vec![dialect.parser_kind().name()])),
        ("tags", coded(dialect.tag_names())),
        ("markers", coded(dialect.marker_texts())),
    ];
    let mut text = format!("# The {} dialect\n\n", dialect.name);
    if !dialect.summary.is_empty() {
        text.push_str(&format!("{}\n\n", dialect.summary));
    }
    text.push_str("Defined by a table.\n\n| key | value |\n| --- | --- |\n");
    // Rows without a value would only say that the dialect lacks such markup.
    for (key, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("| {key} | {} |\n", value.replace('|', "\\|")));
    }
    text.push_str(&format!(
        "\n## How it is taught\n\n{}\n",
        fence_text(&dialect.syntax_guide())
    ));
    text
}

/// Encloses a text in a fence of more backticks than the text has in a row, so that it cannot close
/// the fence.
fn fence_text(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_those_in_its_text() {
        assert_eq!(fence_text("a"), "```text\na\n```");
        assert_eq!(fence_text("````"), "`````text\n````\n`````");
    }

    #[test]
    fn built_in_dialects_have_written_specs() {
        let dialects = DialectSet::built_in();
        let list = list_dialects(dialects);
        assert_eq!(list.0.len(), dialects.iter().count());
        let cline = describe_dialect(dialects.find("cline").unwrap());
        assert!(!cline.dialect.defined && cline.spec.starts_with('#'));
    }
}
