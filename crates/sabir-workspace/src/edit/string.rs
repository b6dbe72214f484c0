//! Exact string replacement.

use super::Edited;
use super::fault::{self, EditFault};

/// One text in place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The text to find. Empty: the file must be empty or new.
    pub old: String,
    /// The text instead.
    pub new: String,
    /// How often it must be found; every place is replaced. `None`: any number of times, but once at least.
    pub count: Option<usize>,
}

/// Replaces a text.
///
/// # Errors
/// Every fault: not found, another number of places, no effect.
pub fn apply_string(original: &str, replacement: &Replacement) -> Result<Edited, Vec<EditFault>> {
    let _ = (original, replacement);
    Err(vec![fault::no_blocks()])
}
