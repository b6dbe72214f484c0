//! Implements `dialects`: lists the dialects, including those defined in the user's tables.
//!
//! A table is written in `config.toml` as `[dialects.NAME]`, or in a file given with `--dialects`:
//! there in the same form, or alone with its keys at the top level and a `name` among them. For the
//! keys see [`sabir_call::dialect::DialectTable`].

use std::ffi::OsString;
use std::path::PathBuf;

use sabir_call::dialect::Dialect;
use serde_json::{Map, Value, json};

use crate::cli::OutputFormat;
use crate::exit::{CommandError, ExitStatus, unknown_dialect};
use crate::output::print;
use crate::surroundings;

/// Splits off the `--dialects` options before the command, and returns them and the other
/// arguments. Options of the task are not allowed before the command, so that their values cannot
/// be taken for a command; only `--dialects` is.
pub(crate) fn split_leading_options(
    arguments: impl Iterator<Item = OsString>,
) -> (Vec<PathBuf>, Vec<OsString>) {
    let mut files = Vec::new();
    let mut rest = Vec::new();
    let mut arguments = arguments.peekable();
    // The name of the program.
    rest.extend(arguments.next());
    while let Some(argument) =
        arguments.next_if(|argument| argument.as_encoded_bytes().starts_with(b"--dialects"))
    {
        match argument
            .to_str()
            .and_then(|text| text.strip_prefix("--dialects="))
        {
            Some(file) => files.push(PathBuf::from(file)),
            None if argument == "--dialects" && arguments.peek().is_some() => {
                files.extend(arguments.next().map(PathBuf::from));
            }
            None => {
                rest.push(argument);
                break;
            }
        }
    }
    rest.extend(arguments);
    (files, rest)
}

/// Runs `sabir dialects` and `sabir help dialect`.
pub(crate) fn run_dialects(
    name: Option<&str>,
    output: OutputFormat,
) -> Result<ExitStatus, CommandError> {
    let Some(name) = name else {
        match output {
            OutputFormat::Json => print::print_json(
                &surroundings::dialects()
                    .iter()
                    .map(to_json)
                    .collect::<Vec<_>>(),
            ),
            OutputFormat::Events => surroundings::dialects()
                .iter()
                .for_each(|dialect| print::print_json(&to_json(dialect))),
            OutputFormat::Text => print::write_stdout(&print::sanitize_text(&list_dialects())),
        }
        return Ok(ExitStatus::Completed);
    };
    let dialect = surroundings::dialects()
        .find(name)
        .ok_or_else(|| unknown_dialect(name, ""))?;
    match output {
        OutputFormat::Text => print::write_stdout(&print::sanitize_text(&render_spec(dialect))),
        _ => {
            let mut object = to_json(dialect);
            object.insert("spec".to_owned(), json!(render_spec(dialect)));
            print::print_json(&object);
        }
    }
    Ok(ExitStatus::Completed)
}

/// Lists the dialects with their aliases and summaries.
fn list_dialects() -> String {
    let named: Vec<_> = surroundings::dialects()
        .iter()
        .map(|dialect| {
            let aliases = if dialect.aliases.is_empty() {
                String::new()
            } else {
                format!(" ({})", dialect.aliases.join(", "))
            };
            let summary = if dialect.is_defined() {
                format!("[defined] {}", dialect.summary)
            } else {
                dialect.summary.to_owned()
            };
            (format!("{}{aliases}", dialect.name), summary)
        })
        .collect();
    let lines = named
        .iter()
        .map(|(name, summary)| format!("{name}\n    {}\n", summary.trim()));
    lines.collect()
}

fn to_json(dialect: &Dialect) -> Map<String, Value> {
    let object = json!({
        "name": dialect.name, "aliases": dialect.aliases, "summary": dialect.summary,
        "defined": dialect.is_defined(), "machine": dialect.parser_kind().name(),
        "tags": dialect.tag_names(), "markers": dialect.marker_texts(),
    });
    object.as_object().cloned().unwrap_or_default()
}

/// Returns the spec of a dialect. A dialect from a table has its table and its prompt text instead.
fn render_spec(dialect: &Dialect) -> String {
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
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::split_leading_options;

    fn check(arguments: &str, files: &[&str], rest: &str) {
        let split = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        assert_eq!(
            split_leading_options(split(arguments).into_iter()),
            (files, split(rest)),
            "{arguments}"
        );
    }

    #[test]
    fn options_in_front_of_the_command() {
        check("sabir parse", &[], "sabir parse");
        check("sabir --dialects a parse", &["a"], "sabir parse");
        check(
            "sabir --dialects a --dialects=b parse --x",
            &["a", "b"],
            "sabir parse --x",
        );
        check("sabir parse --dialects a", &[], "sabir parse --dialects a");
        check("sabir --dialects", &[], "sabir --dialects");
        check("sabir --dialectsx a", &[], "sabir --dialectsx a");
    }
}
