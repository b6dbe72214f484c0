//! Instruction files, in which a user describes how to work: `AGENTS.md` and similar files.

use super::fragment::{ContextFragment, FragmentKind};

/// An instruction file, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionFile<'a> {
    /// Its path, as a user would name it.
    pub path: &'a str,
    /// The text that was read.
    pub text: &'a str,
    /// Its size in bytes.
    pub size: u64,
}

impl InstructionFile<'_> {
    /// The most bytes of one file: 32 KiB.
    pub const MAX_BYTES: usize = 32 * 1024;
    /// The most bytes of all files together: 64 KiB.
    pub const MAX_TOTAL_BYTES: usize = 64 * 1024;

    /// Renders the file as a fragment of at most `room` bytes; `None` if the file is blank.
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
