//! Holds the documents that `sabir help TOPIC` shows, so that other front ends can show them as well.

use sabir_check::lint::LINTS;

/// The names and texts of the documents.
const DOCUMENTS: [(&str, &str); 31] = [
    ("acp", include_str!("../../../docs/acp.md")),
    ("agent-sdk", include_str!("../../../docs/agent-sdk.md")),
    ("approval", include_str!("../../../docs/approval.md")),
    ("bindings", include_str!("../../../docs/bindings.md")),
    ("checkpoints", include_str!("../../../docs/checkpoints.md")),
    (
        "compatibility",
        include_str!("../../../docs/compatibility.md"),
    ),
    ("conventions", include_str!("../../../docs/conventions.md")),
    ("corpus", include_str!("../../../docs/corpus.md")),
    ("dialects", include_str!("../../../docs/dialects.md")),
    ("edits", include_str!("../../../docs/edits.md")),
    ("events", include_str!("../../../docs/events.md")),
    ("gateway", include_str!("../../../docs/gateway.md")),
    ("grammars", include_str!("../../../docs/grammars.md")),
    ("guide", include_str!("../../../docs/guide.md")),
    ("headless", include_str!("../../../docs/headless.md")),
    ("hooks", include_str!("../../../docs/hooks.md")),
    ("ignore", include_str!("../../../docs/ignore.md")),
    ("journal", include_str!("../../../docs/journal.md")),
    ("mcp", include_str!("../../../docs/mcp.md")),
    ("modes", include_str!("../../../docs/modes.md")),
    ("policy", include_str!("../../../docs/policy.md")),
    ("recording", include_str!("../../../docs/recording.md")),
    ("sandbox", include_str!("../../../docs/sandbox.md")),
    ("secrets", include_str!("../../../docs/secrets.md")),
    ("subtasks", include_str!("../../../docs/subtasks.md")),
    ("telemetry", include_str!("../../../docs/telemetry.md")),
    ("terminal", include_str!("../../../docs/terminal.md")),
    ("torture", include_str!("../../../docs/torture.md")),
    ("translation", include_str!("../../../docs/translation.md")),
    (
        "troubleshooting",
        include_str!("../../../docs/troubleshooting.md"),
    ),
    ("wires", include_str!("../../../docs/wires.md")),
];

/// Returns the text of the document with this name, such as `policy`, in Markdown.
pub fn find_document(name: &str) -> Option<&'static str> {
    let (_, text) = DOCUMENTS.iter().find(|(known, _)| *known == name)?;
    Some(text)
}

/// Returns the names of all documents.
pub fn document_names() -> impl Iterator<Item = &'static str> {
    DOCUMENTS.into_iter().map(|(name, _)| name)
}

/// Lists the lints of `sabir lint` with their descriptions.
pub fn describe_lints() -> String {
    LINTS
        .iter()
        .map(|lint| format!("{}\n    {}\n", lint.name, lint.doc))
        .collect()
}
