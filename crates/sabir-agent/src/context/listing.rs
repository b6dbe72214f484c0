//! The names at the top of a workspace, so that a model need not ask for them first.

use sabir_call::escaping::escape_name;

use super::fragment::{ContextFragment, FragmentKind};

/// The names in the top folder of a workspace, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceListing<'a> {
    /// The names of files, and those of folders followed by `/`.
    pub names: &'a [String],
}

impl WorkspaceListing<'_> {
    /// The most bytes of the fragment: 2 KiB.
    pub const MAX_BYTES: usize = 2 * 1024;

    /// Renders the names as a fragment; `None` for an empty folder.
    pub fn to_fragment(&self) -> Option<ContextFragment> {
        // A name that holds a line feed must not look like further names, or like instructions.
        let names: Vec<_> = self.names.iter().map(|name| escape_name(name)).collect();
        let text = names.join("\n");
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
