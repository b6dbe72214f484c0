//! Chooses the protocol of a task: native or prompted.

use sabir_call::ToolProtocol;
use sabir_call::dialect::CLINE;

use crate::catalogue::ModelEntry;

/// The source of the decision for a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolSource {
    /// The user's explicit choice.
    Explicit,
    /// The task's journal, which fixes the protocol for the whole task.
    Journal,
    /// The model's catalogue entry.
    Catalogue,
    /// The default, native.
    Default,
}

/// Resolves the protocol from the explicit choice, else the journal, else the catalogue entry, else
/// native.
///
/// A model without native calls is prompted in its entry's dialect, or in `cline` if the entry
/// names none.
pub fn resolve_protocol(
    explicit: Option<ToolProtocol>,
    journal: Option<ToolProtocol>,
    catalogue: Option<&ModelEntry>,
) -> (ToolProtocol, ProtocolSource) {
    if let Some(protocol) = explicit {
        return (protocol, ProtocolSource::Explicit);
    }
    // A task keeps its protocol, even if the catalogue has changed since.
    if let Some(protocol) = journal {
        return (protocol, ProtocolSource::Journal);
    }
    let entry = catalogue.filter(|entry| entry.native.is_some() || entry.dialect.is_some());
    match entry {
        Some(entry) if entry.native == Some(true) => {
            (ToolProtocol::Native, ProtocolSource::Catalogue)
        }
        Some(entry) => {
            let dialect = entry.dialect.clone().unwrap_or_else(|| CLINE.to_owned());
            (ToolProtocol::Prompted(dialect), ProtocolSource::Catalogue)
        }
        None => (ToolProtocol::Native, ProtocolSource::Default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_explicit_journal_catalogue_native() {
        let prompted = |dialect: &str| ToolProtocol::Prompted(dialect.to_owned());
        let entry = |native, dialect: Option<&str>| ModelEntry {
            native,
            dialect: dialect.map(str::to_owned),
            ..ModelEntry::default()
        };
        let without = entry(Some(false), None);
        assert_eq!(
            resolve_protocol(
                Some(ToolProtocol::Native),
                Some(prompted("x")),
                Some(&without)
            ),
            (ToolProtocol::Native, ProtocolSource::Explicit)
        );
        assert_eq!(
            resolve_protocol(None, Some(prompted("x")), Some(&without)),
            (prompted("x"), ProtocolSource::Journal)
        );
        assert_eq!(
            resolve_protocol(None, None, Some(&without)),
            (prompted("cline"), ProtocolSource::Catalogue)
        );
        assert_eq!(
            resolve_protocol(None, None, Some(&entry(None, Some("invoke")))),
            (prompted("invoke"), ProtocolSource::Catalogue)
        );
        assert_eq!(
            resolve_protocol(None, None, Some(&entry(Some(true), None))),
            (ToolProtocol::Native, ProtocolSource::Catalogue)
        );
        assert_eq!(
            resolve_protocol(None, None, Some(&entry(None, None))),
            (ToolProtocol::Native, ProtocolSource::Default)
        );
        assert_eq!(
            resolve_protocol(None, None, None),
            (ToolProtocol::Native, ProtocolSource::Default)
        );
    }
}
