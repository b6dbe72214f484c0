//! Renders a draft as readable lines, the notation of the specs.

use sabir_call::dialect::DialectSelection;
use sabir_call::{CallReader, DraftPart, DraftResponse, DraftState, ToolSet, Truncation};

/// Reads `input` in the given chunks and returns the draft.
pub(crate) fn read_chunks<'a>(
    selection: DialectSelection,
    tools: &ToolSet,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> DraftResponse {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(selection, tools);
    for chunk in chunks {
        reader.push_bytes(chunk, &mut draft);
    }
    reader.finish(Truncation::Ended, &mut draft);
    draft
}

/// Reads `input` in one piece.
pub(crate) fn read(selection: DialectSelection, tools: &ToolSet, input: &str) -> DraftResponse {
    read_chunks(selection, tools, [input.as_bytes()])
}

/// Renders one line for each part, argument and fault.
///
/// The lines are `text "…"`, `thought "…"`, `call NAME (DIALECT) STATE` (with `id="…"` before the
/// state if there is one), indented `NAME "…"`, `fault KIND LINE:COLUMN` (errors) and `warning KIND
/// LINE:COLUMN`.
pub(crate) fn lines(draft: &DraftResponse, input: &str) -> String {
    let mut out = String::new();
    for part in &draft.parts {
        match part {
            DraftPart::Text(text) => out += &format!("text {text:?}\n"),
            DraftPart::Thought(text) => out += &format!("thought {text:?}\n"),
            DraftPart::Call(call) => {
                let state = match call.state {
                    DraftState::Open => "open",
                    DraftState::Closed => "closed",
                    DraftState::Cut(_) => "cut",
                };
                let id = call
                    .id
                    .as_ref()
                    .map(|id| format!(" id={id:?}"))
                    .unwrap_or_default();
                let dialect = call.dialect.as_deref().unwrap_or("native");
                out += &format!("call {} ({dialect}){id} {state}\n", call.name);
                for argument in &call.arguments {
                    let mark = if argument.partial { "…" } else { "" };
                    out += &format!("  {}{mark} {:?}\n", argument.name, argument.text);
                }
            }
            DraftPart::Opaque(_) => {}
        }
    }
    for fault in &draft.faults {
        let word = if fault.severity == sabir_call::Severity::Error {
            "fault"
        } else {
            "warning"
        };
        let place = fault.position_in(input);
        out += &format!(
            "{word} {} {}:{}\n",
            fault.kind.name(),
            place.line,
            place.column
        );
    }
    out
}
