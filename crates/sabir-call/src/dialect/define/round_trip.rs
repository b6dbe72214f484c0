//! Tests a new dialect: it must read what it renders, and must not change what the other dialects
//! read.

use std::sync::LazyLock;

use serde_json::{Map, json};

use super::DefineError;
use crate::dialect::{Dialect, DialectSelection, DialectSet};
use crate::draft::{DraftResponse, DraftState};
use crate::event::Truncation;
use crate::reader::CallReader;
use crate::tool::{ToolSet, ToolSpec};

/// Prose in which no dialect may find a call.
const PROSE: &str = "If a < b and c > d, [see](x) {y}: it (really) works.\n\n- `code` and <b>bold</b>, 1; 2, \"three\"\n";

static TOOLS: LazyLock<ToolSet> = LazyLock::new(|| {
    let properties = json!({"path": {"type": "string"}, "content": {"type": "string"}, "count": {"type": "integer"}});
    let tool = ToolSpec::new(
        "write_to_file",
        "",
        json!({"type": "object", "properties": properties}),
    );
    ToolSet::new(vec![tool]).unwrap_or_default()
});

/// Describes how each dialect's sample call is read if all dialects of the set are active.
fn read_all_dialects(dialects: &DialectSet) -> impl Iterator<Item = (&'static str, String)> {
    dialects.iter().map(|dialect| {
        (
            dialect.name,
            describe_draft(&read_draft(dialects.all(), &render_sample(dialect))),
        )
    })
}

/// Checks that a dialect reads what it writes in `after` (`before` with the dialect added), and that the others still read the same.
///
/// # Errors
/// When the dialect misreads its own call or prose, or changes how another dialect is read.
pub(in crate::dialect) fn check_round_trip(
    made: &Dialect,
    before: &DialectSet,
    after: &DialectSet,
) -> Result<(), DefineError> {
    let text = render_sample(made);
    let works = |selection| {
        // The dialect must not find calls or mistakes in ordinary prose.
        let words = read_draft(selection, PROSE);
        let prose =
            words.calls().next().is_none() && words.faults.is_empty() && words.text() == PROSE;
        prose && is_round_trip(&read_draft(selection, &text))
    };
    if !works(after.only(made)) {
        return Err(DefineError::Unreadable {
            dialect: made.name.to_owned(),
            written: text,
        });
    }
    if !works(after.all()) {
        return Err(DefineError::Shadowed(made.name.to_owned()));
    }
    match read_all_dialects(before)
        .zip(read_all_dialects(after))
        .find(|(before, after)| before != after)
    {
        Some(((other, _), _)) => Err(DefineError::MarkerConflict {
            dialect: made.name.to_owned(),
            other: other.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Renders two calls after some prose, with a value full of markup characters.
fn render_sample(dialect: &Dialect) -> String {
    let calls = [
        sample_arguments("a.txt", "a < b && \"c\"\n\td {e}, [f](g)"),
        sample_arguments("b", "x"),
    ];
    let calls = calls
        .each_ref()
        .map(|arguments| ("write_to_file", arguments));
    format!(
        "Words.\n\n{}",
        super::super::render::render_calls(dialect, &calls, &TOOLS)
    )
}

fn sample_arguments(path: &str, content: &str) -> Map<String, serde_json::Value> {
    let pairs = [
        ("path", json!(path)),
        ("content", json!(content)),
        ("count", json!(2)),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn read_draft(selection: DialectSelection<'_>, text: &str) -> DraftResponse {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(selection, &TOOLS);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft
}

/// Returns true if both calls were read as they were rendered.
fn is_round_trip(draft: &DraftResponse) -> bool {
    let calls: Vec<_> = draft.calls().collect();
    let whole = |call: &&crate::draft::DraftCall| {
        let names: Vec<_> = call
            .arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect();
        call.name == "write_to_file"
            && call.state == DraftState::Closed
            && names == ["path", "content", "count"]
            && draft.errors_of(call.index).next().is_none()
    };
    calls.len() == 2 && calls.iter().all(whole) && draft.text().trim() == "Words."
}

fn describe_draft(draft: &DraftResponse) -> String {
    let mut text = draft.text();
    for call in draft.calls() {
        text.push_str(&format!(
            "\n{} {:?} {:?}",
            call.name, call.dialect, call.state
        ));
    }
    text
}
