//! What lies at the top of a workspace, so that a model need not ask for it first.

use super::fragment::{ContextFragment, FragmentKind};

/// The names, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceListing<'a> {
    /// Names of files, and those of folders with a `/` behind them.
    pub names: &'a [String],
}

impl WorkspaceListing<'_> {
    /// The most bytes: 2 KiB.
    pub const MAX_BYTES: usize = 2 * 1024;

    /// The fragment; `None` of an empty folder.
    pub fn to_fragment(&self) -> Option<ContextFragment> {
        let text = self.names.join("\n");
        let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
        (!text.is_empty()).then(|| {
            ContextFragment::with_cap(
                FragmentKind::Listing,
                "the listing",
                &text,
                size,
                Self::MAX_BYTES,
            )
        })
    }
}
