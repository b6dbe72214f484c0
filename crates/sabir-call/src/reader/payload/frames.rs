//! Implements the stack of open brackets around and in a call, with two bits per level.
//!
//! Supported: as many levels as `DEPTH` in `value.rs` allows, plus a call in the innermost.
//!
//! Unsupported: more than 32 levels; `DEPTH` prevents them.
//!
//! Grammar as implemented: see `payload.rs`.

use crate::fault::Span;

/// The kind of an open bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BracketFrame {
    /// An array of calls.
    List,
    /// A call's object.
    Item,
    /// An object inside a call that contains parts of the call.
    Inner,
    /// An object that contains an array of calls and is not a call itself.
    Wrapper,
}

/// The stack of open brackets.
#[derive(Debug, Default)]
pub(super) struct FrameStack {
    levels: u64,
    depth: u8,
    /// The strings in single quotes found in wrappers, with each wrapper's level; the next call
    /// reports them.
    slips: Option<Box<QuoteSpans>>,
}

#[derive(Debug, Default)]
struct QuoteSpans {
    all: Vec<(u8, Span)>,
}

impl FrameStack {
    pub(super) fn len(&self) -> usize {
        usize::from(self.depth)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// Returns the innermost bracket.
    pub(super) fn last(&self) -> Option<BracketFrame> {
        self.innermost_first().next()
    }

    /// Iterates over the brackets, innermost first.
    pub(super) fn innermost_first(&self) -> impl Iterator<Item = BracketFrame> {
        let levels = self.levels;
        (0..self.depth).map(move |up| match levels >> (2 * u32::from(up)) & 3 {
            0 => BracketFrame::List,
            1 => BracketFrame::Item,
            2 => BracketFrame::Inner,
            _ => BracketFrame::Wrapper,
        })
    }

    pub(super) fn push(&mut self, frame: BracketFrame) {
        let kind = match frame {
            BracketFrame::List => 0,
            BracketFrame::Item => 1,
            BracketFrame::Inner => 2,
            BracketFrame::Wrapper => 3,
        };
        self.levels = self.levels << 2 | kind;
        self.depth += 1;
    }

    /// Opens a wrapper, with the position of its string in single quotes, if any.
    pub(super) fn push_wrapper(&mut self, slip: Option<Span>) {
        self.push(BracketFrame::Wrapper);
        if let Some(slip) = slip {
            self.slips
                .get_or_insert_default()
                .all
                .push((self.depth, slip));
        }
    }

    pub(super) fn pop(&mut self) -> Option<BracketFrame> {
        let last = self.last()?;
        // No later call is inside this wrapper, so nothing will report its strings.
        if let Some(slips) = &mut self.slips {
            slips.all.retain(|(depth, _)| *depth < self.depth);
        }
        self.levels >>= 2;
        self.depth -= 1;
        Some(last)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes the strings in single quotes that were not reported yet.
    pub(super) fn take_quote_spans(&mut self) -> impl Iterator<Item = Span> + use<> {
        self.slips
            .take()
            .into_iter()
            .flat_map(|slips| slips.all)
            .map(|(_, slip)| slip)
    }
}
