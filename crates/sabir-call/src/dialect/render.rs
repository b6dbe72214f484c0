//! Renders calls as text, the reverse of reading.

mod json;
pub(super) mod layout;
mod tags;

use serde_json::{Map, Value};

use super::Dialect;
use super::grammar::{GemmaCalls, Grammar, JsonCalls, JsonForm, PythonCalls, TaggedCalls};
use crate::tool::ToolSet;

/// A call's name and arguments.
type NamedCall<'c> = (&'c str, &'c Map<String, Value>);

/// Renders a run of calls with everything around it.
pub(super) fn render_calls(dialect: &Dialect, calls: &[NamedCall<'_>], tools: &ToolSet) -> String {
    if let Grammar::Tagged(tagged) = *dialect.grammar {
        let calls: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(at, call)| tags::render_tagged_call(dialect, &tagged, at, *call, tools))
            .collect();
        return tags::wrap_calls(&tagged, &calls);
    }
    render_untagged(dialect, calls)
}

/// Renders one call without the wrapper around a run of calls.
pub(super) fn render_call(
    dialect: &Dialect,
    name: &str,
    arguments: &Map<String, Value>,
    tools: &ToolSet,
) -> String {
    match *dialect.grammar {
        Grammar::Tagged(tagged) => {
            tags::render_tagged_call(dialect, &tagged, 0, (name, arguments), tools)
        }
        _ => render_untagged(dialect, &[(name, arguments)]),
    }
}

/// Renders an example call in the simplest style, without verifying that it parses back.
pub(super) fn render_example(
    dialect: &Dialect,
    name: &str,
    arguments: &Map<String, Value>,
) -> String {
    match *dialect.grammar {
        Grammar::Tagged(tagged) => tags::wrap_calls(
            &tagged,
            &[tags::render_tagged_example(&tagged, name, arguments)],
        ),
        _ => render_untagged(dialect, &[(name, arguments)]),
    }
}

/// Renders calls of dialects without tags, in which no value can contain the end of its call.
fn render_untagged(dialect: &Dialect, calls: &[NamedCall<'_>]) -> String {
    match *dialect.grammar {
        Grammar::Tagged(_) => String::new(),
        Grammar::Json(table) => render_json_calls(&table, calls),
        Grammar::Python(PythonCalls { open, close, list }) => {
            let calls = match list {
                true => super::python::render_python(calls),
                false => super::python::render_python_lines(calls),
            };
            format!("{open}{calls}{close}")
        }
        Grammar::Gemma(GemmaCalls { open, close, quote }) => {
            let one = |(name, arguments): &NamedCall<'_>| {
                format!(
                    "{open}{}{close}",
                    super::gemma::render_gemma(name, arguments, quote)
                )
            };
            calls.iter().map(one).collect::<Vec<_>>().join("\n")
        }
        Grammar::Harmony => {
            let one = |(name, arguments): &NamedCall<'_>| {
                let json = json::render_object(arguments);
                format!(
                    "<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json}<|call|>"
                )
            };
            calls.iter().map(one).collect()
        }
    }
}

fn render_json_calls(table: &JsonCalls, calls: &[NamedCall<'_>]) -> String {
    let calls: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(at, call)| render_json_call(table, at, call))
        .collect();
    join_json_calls(table, &calls)
}

/// Returns the form in which calls are written.
fn written_form(table: &JsonCalls) -> JsonForm {
    table.forms.first().copied().unwrap_or(JsonForm {
        open: "",
        head: None,
        close: "",
        stop: false,
        named_by_key: false,
    })
}

/// Renders the `at`-th call of its run, without the markers that belong to the run.
fn render_json_call(table: &JsonCalls, at: usize, call: &NamedCall<'_>) -> String {
    let form = written_form(table);
    if form.head.is_some() {
        return render_headed_call(table, &form, at, call);
    }
    let object = json::render_named_call(table, at, call);
    let JsonForm { open, close, .. } = form;
    if table.list || close.is_empty() && table.bare {
        return object;
    }
    // Without a closing marker, marker and call share a line.
    match close.is_empty() {
        true => format!("{open} {object}"),
        false => format!("{open}\n{object}\n{close}"),
    }
}

/// Joins rendered calls, and adds the markers that belong to the run.
fn join_json_calls(table: &JsonCalls, calls: &[String]) -> String {
    let JsonForm {
        open, head, close, ..
    } = written_form(table);
    let (before, behind) = table.section.unwrap_or_default();
    if head.is_some() {
        let between = if table.section.is_some() { "" } else { "\n" };
        return format!("{before}{}{behind}", calls.join(between));
    }
    if table.list {
        return format!("{before}{open}[{}]{close}{behind}", calls.join(", "));
    }
    if close.is_empty() && table.bare {
        return format!("{before}{open}{}{behind}", calls.join("; "));
    }
    format!("{before}{}{behind}", calls.join("\n"))
}

/// Renders a name before the JSON of its arguments.
fn render_headed_call(
    table: &JsonCalls,
    form: &JsonForm,
    at: usize,
    call: &NamedCall<'_>,
) -> String {
    let (name, arguments) = call;
    let Some(head) = form.head else {
        return String::new();
    };
    let id = if head.id == Some(":") {
        format!(":{at}")
    } else {
        String::new()
    };
    let before = match head.id {
        Some(separator) if head.id_first => format!("{at}{separator}"),
        _ => String::new(),
    };
    let json = match head.echo {
        true => json::render_named_call(table, at, call),
        false => json::render_object(arguments),
    };
    let json = if head.fenced {
        format!("```json\n{json}\n```")
    } else {
        json
    };
    // Markers that are words (`Action:`) need white space around them.
    let spaced = form.open.ends_with(':');
    let gap = if spaced { " " } else { "" };
    let feed = if spaced { "\n" } else { "" };
    format!(
        "{}{gap}{before}{}{name}{id}{feed}{}{gap}{json}{}",
        form.open, head.prefix, head.end, form.close
    )
}

impl TaggedCalls {
    /// Renders an opening tag with the given attributes.
    fn render_open_tag(&self, name: &str, attributes: &str) -> String {
        use super::grammar::TagNotation;
        let prefix = self.prefixes.first().copied().unwrap_or_default();
        match self.notation {
            TagNotation::Angle => format!("<{prefix}{name}{attributes}>"),
            TagNotation::Marked(marker) => format!("{marker}<{prefix}{name}{attributes}>"),
            TagNotation::Delimited { open, end, .. } => {
                format!("{open}{prefix}{name}{attributes}{end}")
            }
        }
    }

    /// Renders a closing tag.
    fn render_close_tag(&self, name: &str) -> String {
        use super::grammar::{TagNotation, render_angle_close};
        let prefix = self.prefixes.first().copied().unwrap_or_default();
        match self.notation {
            TagNotation::Angle => render_angle_close(&format!("{prefix}{name}")),
            TagNotation::Marked(marker) => format!("{marker}</{prefix}{name}>"),
            TagNotation::Delimited { close, end, .. } => format!("{close}{prefix}{name}{end}"),
        }
    }
}
