//! A file in which a user says how to work: `AGENTS.md` and its kin.

use super::fragment::{ContextFragment, FragmentKind};

/// The file, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionFile<'a> {
    /// Its path, as a user would name it.
    pub path: &'a str,
    /// What was read of it.
    pub text: &'a str,
    /// Its size in bytes.
    pub size: u64,
}

impl InstructionFile<'_> {
    /// The most bytes of one file: 32 KiB.
    pub const MAX_BYTES: usize = 32 * 1024;
    /// The most bytes of all files together: 64 KiB.
    pub const MAX_TOTAL_BYTES: usize = 64 * 1024;

    /// The fragment, where so many bytes are left for it; `None`: the file says nothing.
    pub fn to_fragment(&self, room: usize) -> Option<ContextFragment> {
        let cap = Self::MAX_BYTES.min(room);
        let says = !self.text.trim().is_empty();
        says.then(|| {
            ContextFragment::with_cap(
                FragmentKind::Instructions,
                self.path,
                self.text,
                self.size,
                cap,
            )
        })
    }
}
