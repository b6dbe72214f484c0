//! Tracks the open blocks of a message, for wires that start, fill and end them by an index.

use sabir_call::{Event, EventSink, Fault, FaultKind, Span};

use crate::response_decoder::ResponseCalls;

/// The most blocks that may be open at once. Real responses have a handful; the limit bounds
/// memory.
const MAX_OPEN: usize = 256;

/// The state that a wire keeps for an open block.
pub(crate) trait OpenBlock {
    /// Returns the position of the block's call among all calls, if it is one.
    fn call_position(&self) -> Option<usize>;
}

/// Blocks that were started and not ended, in the order of their starts.
///
/// A block is found by its label, which is the index that the provider gave it: labels may have
/// gaps, start anywhere, or be missing.
#[derive(Debug)]
pub(crate) struct OpenBlocks<B>(Vec<(Option<u64>, B)>);

impl<B> Default for OpenBlocks<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: OpenBlock> OpenBlocks<B> {
    /// Returns true if a block may start under this index: false if the start only repeats the open call with the same id. Abandons any
    /// other open block with that index, with a fault.
    pub(crate) fn may_start(
        &mut self,
        label: Option<u64>,
        id: &str,
        calls: &mut ResponseCalls,
        out: &mut dyn EventSink,
    ) -> bool {
        // Without an index nothing can be repeated: the block is a new one.
        let Some(at) = self
            .0
            .iter()
            .position(|(known, _)| label.is_some() && *known == label)
        else {
            return true;
        };
        let call = self
            .0
            .get(at)
            .and_then(|(_, block)| block.call_position())
            .and_then(|call| calls.list.get(call));
        // Some gateways send a start twice. The deltas continue the first one.
        if !id.is_empty() && call.is_some_and(|call| call.id == id) {
            return false;
        }
        let message =
            "a content block was started while the one before it with the same index was open";
        out.push_event(Event::Fault(&Fault::warning(
            FaultKind::Provider,
            Span::default(),
            message,
        )));
        self.abandon_block(at, calls);
        true
    }

    /// Opens a block. Above the limit, the oldest one is abandoned with a fault.
    pub(crate) fn push_block(
        &mut self,
        label: Option<u64>,
        block: B,
        calls: &mut ResponseCalls,
        out: &mut dyn EventSink,
    ) {
        // A real response closes its blocks, so the oldest one is the least likely to continue.
        if self.0.len() >= MAX_OPEN {
            let fault = Fault::error(
                FaultKind::Limit,
                Span::default(),
                "too many content blocks are open",
            );
            out.push_event(Event::Fault(&fault));
            self.abandon_block(0, calls);
        }
        self.0.push((label, block));
    }

    /// Returns the position of the block that a delta of this index belongs to: the newest one if
    /// there is no index.
    pub(crate) fn find_position(&self, label: Option<u64>) -> Option<usize> {
        match label {
            // The newest block with this index, if an older one was never ended.
            Some(_) => self.0.iter().rposition(|(known, _)| *known == label),
            None => self.newest_position(),
        }
    }

    /// Returns the position of the block that was opened last.
    pub(crate) fn newest_position(&self) -> Option<usize> {
        self.0.len().checked_sub(1)
    }

    /// Returns the block at a position.
    pub(crate) fn get_mut(&mut self, position: usize) -> Option<&mut B> {
        self.0.get_mut(position).map(|(_, block)| block)
    }

    /// Closes the block of this index and returns it.
    ///
    /// Without an index, that is the newest block. `None` means that no such block is open, for
    /// example because its end came twice.
    pub(crate) fn end_block(&mut self, label: Option<u64>) -> Option<B> {
        self.find_position(label)
            .map(|position| self.0.remove(position).1)
    }

    /// Iterates over the open blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &B> {
        self.0.iter().map(|(_, block)| block)
    }

    /// Forgets all blocks.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets a block whose end never came. A call in it will be truncated.
    fn abandon_block(&mut self, at: usize, calls: &mut ResponseCalls) {
        let (_, block) = self.0.remove(at);
        if let Some(call) = block
            .call_position()
            .and_then(|call| calls.list.get_mut(call))
        {
            call.mark_damaged();
        }
    }
}
