//! The arguments of a native call, streamed.

use crate::event::Sink;

/// Reads the JSON text of one call's arguments and emits `ArgStart`, `ArgDelta`, `ArgEnd` and faults for it.
#[derive(Debug)]
pub struct ArgumentScanner {
    index: u32,
}

/// What [`ArgumentScanner::finish`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// One whole JSON object (or no text at all, or `null`: no arguments).
    Yes,
    /// The text ended inside the object: the call must be cut.
    No,
    /// The text can never be an object of arguments; a fault has been emitted.
    Broken,
}

impl ArgumentScanner {
    /// A scanner for the call of that index.
    pub fn new(index: u32) -> Self {
        Self { index }
    }

    /// Takes the next piece.
    pub fn push(&mut self, _chunk: &str, _out: &mut dyn Sink) {}

    /// Whether the text so far is whole. Nothing may be pushed afterwards.
    pub fn finish(&mut self, _out: &mut dyn Sink) -> Whole {
        let _ = self.index;
        Whole::Yes
    }
}
