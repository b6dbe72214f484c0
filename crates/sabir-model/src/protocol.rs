//! Native or prompted: which protocol a task uses.

use sabir_call::Protocol;
use sabir_call::dialect::CLINE;

use crate::catalogue::Entry;

/// What decided the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
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
pub fn resolve(explicit: Option<Protocol>, journal: Option<Protocol>, catalogue: Option<&Entry>) -> (Protocol, Why) {
    if let Some(protocol) = explicit {
        return (protocol, Why::Explicit);
    }
    if let Some(protocol) = journal {
        return (protocol, Why::Journal);
    }
    let entry = catalogue.filter(|entry| entry.native.is_some() || entry.dialect.is_some());
    match entry {
        Some(entry) if entry.native == Some(true) => (Protocol::Native, Why::Catalogue),
        Some(entry) => {
            let dialect = entry.dialect.clone().unwrap_or_else(|| CLINE.to_owned());
            (Protocol::Prompted(dialect), Why::Catalogue)
        }
        None => (Protocol::Native, Why::Default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_explicit_journal_catalogue_native() {
        let prompted = |dialect: &str| Protocol::Prompted(dialect.to_owned());
        let entry =
            |native, dialect: Option<&str>| Entry { native, dialect: dialect.map(str::to_owned), ..Entry::default() };
        let without = entry(Some(false), None);
        assert_eq!(
            resolve(Some(Protocol::Native), Some(prompted("x")), Some(&without)),
            (Protocol::Native, Why::Explicit)
        );
        assert_eq!(resolve(None, Some(prompted("x")), Some(&without)), (prompted("x"), Why::Journal));
        assert_eq!(resolve(None, None, Some(&without)), (prompted("cline"), Why::Catalogue));
        assert_eq!(resolve(None, None, Some(&entry(None, Some("invoke")))), (prompted("invoke"), Why::Catalogue));
        assert_eq!(resolve(None, None, Some(&entry(Some(true), None))), (Protocol::Native, Why::Catalogue));
        assert_eq!(resolve(None, None, Some(&entry(None, None))), (Protocol::Native, Why::Default));
        assert_eq!(resolve(None, None, None), (Protocol::Native, Why::Default));
    }
}
