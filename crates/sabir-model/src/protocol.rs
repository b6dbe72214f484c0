//! Native or prompted: which protocol a task uses.

use sabir_call::ToolProtocol;
use sabir_call::dialect::CLINE;

use crate::catalogue::ModelEntry;

/// What decided the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolSource {
    /// The user said so.
    Explicit,
    /// The task's journal holds it: it is locked.
    Journal,
    /// The model's catalogue entry says so.
    Catalogue,
    /// Nobody said anything: native.
    Default,
}

/// Resolves the protocol: the explicit choice, then what the journal holds, then the catalogue entry, then native.
///
/// A model without native calls is prompted in its entry's dialect, or in `cline` where the entry names none.
pub fn resolve_protocol(
    explicit: Option<ToolProtocol>,
    journal: Option<ToolProtocol>,
    catalogue: Option<&ModelEntry>,
) -> (ToolProtocol, ProtocolSource) {
    if let Some(protocol) = explicit {
        return (protocol, ProtocolSource::Explicit);
    }
    if let Some(protocol) = journal {
        return (protocol, ProtocolSource::Journal);
    }
    let entry = catalogue.filter(|entry| entry.native.is_some() || entry.dialect.is_some());
    match entry {
        Some(entry) if entry.native == Some(true) => (ToolProtocol::Native, ProtocolSource::Catalogue),
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
            resolve_protocol(Some(ToolProtocol::Native), Some(prompted("x")), Some(&without)),
            (ToolProtocol::Native, ProtocolSource::Explicit)
        );
        assert_eq!(
            resolve_protocol(None, Some(prompted("x")), Some(&without)),
            (prompted("x"), ProtocolSource::Journal)
        );
        assert_eq!(resolve_protocol(None, None, Some(&without)), (prompted("cline"), ProtocolSource::Catalogue));
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
        assert_eq!(resolve_protocol(None, None, None), (ToolProtocol::Native, ProtocolSource::Default));
    }
}
