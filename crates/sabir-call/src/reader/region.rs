//! Defines the interface between the reader and the region parsers.
//!
//! A region is a stretch of text in which one parser reads calls. The reader passes the text from
//! the parser's position on; the parser consumes a prefix, emits its events, and returns its
//! progress. Text that it could not decide is passed again with more text after it, so a parser
//! holds nothing itself. A parser must not examine a byte more than a fixed number of times: it may
//! wait for a short marker, but never for a value.

use crate::event::{EventSink, Truncation};

use super::gemma::GemmaRegionParser;
use super::payload::JsonRegionParser;
use super::python::PythonRegionParser;

/// The text that a parser receives.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextView<'w> {
    /// The text from the parser's position on.
    pub(super) text: &'w str,
    /// The offset of its first byte in the assistant text.
    pub(super) offset: usize,
    /// True if no more text will arrive.
    pub(super) last: bool,
}

/// The progress of a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionProgress {
    /// Consumed this many bytes; the rest must be passed again with more text. If the view was the
    /// last one, the text ended inside the region.
    More(usize),
    /// The region ended after this many bytes.
    Over(usize),
}

/// The result of one step of a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// Consumed everything up to this byte.
    To(usize),
    /// Consumed everything up to this byte and needs more text.
    Wait(usize),
    /// The region ended before this byte.
    Over(usize),
}

/// Runs the steps of a parser, each from the end of the previous one.
pub(super) fn run_steps(mut turn: impl FnMut(usize) -> StepOutcome) -> RegionProgress {
    let mut at = 0;
    loop {
        match turn(at) {
            StepOutcome::To(next) => at = next,
            StepOutcome::Wait(at) => return RegionProgress::More(at),
            StepOutcome::Over(at) => return RegionProgress::Over(at),
        }
    }
}

/// A region parser of any kind, without the cost of a trait object on the hot path.
#[derive(Debug)]
pub(super) enum AnyRegionParser {
    /// JSON between markers, with or without a name before it.
    Json(Box<JsonRegionParser>),
    /// A list of Python calls.
    Python(Box<PythonRegionParser>),
    /// Gemma's calls, with quote tokens around strings.
    Gemma(Box<GemmaRegionParser>),
}

impl AnyRegionParser {
    /// Returns the parser as a trait object, for the methods that are called once per region.
    fn as_parser(&self) -> &dyn RegionParser {
        match self {
            Self::Json(region) => &**region,
            Self::Python(region) => &**region,
            Self::Gemma(region) => &**region,
        }
    }

    fn as_parser_mut(&mut self) -> &mut dyn RegionParser {
        match self {
            Self::Json(region) => &mut **region,
            Self::Python(region) => &mut **region,
            Self::Gemma(region) => &mut **region,
        }
    }
}

impl RegionParser for AnyRegionParser {
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress {
        self.as_parser_mut().parse_view(view, out)
    }

    #[inline]
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool {
        match self {
            // Dispatched by a match, so that the compiler can inline the three hot paths.
            Self::Json(region) => region.take_chunk(chunk, out),
            Self::Python(region) => region.take_chunk(chunk, out),
            Self::Gemma(region) => region.take_chunk(chunk, out),
        }
    }

    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        self.as_parser_mut().cut_region(why, at, out);
    }

    fn close_whole_call(&mut self, out: &mut dyn EventSink) -> bool {
        self.as_parser_mut().close_whole_call(out)
    }

    fn next_index(&self) -> u32 {
        self.as_parser().next_index()
    }

    fn was_skipped(&self) -> bool {
        self.as_parser().was_skipped()
    }

    fn is_escaped(&self) -> bool {
        self.as_parser().is_escaped()
    }

    fn close_marker(&self) -> &'static str {
        self.as_parser().close_marker()
    }
}

/// A parser for one region.
pub(super) trait RegionParser: std::fmt::Debug + Send {
    /// Consumes a prefix of the text.
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress;

    /// Consumes a whole chunk that lies inside a value, and emits it. Returns false, with nothing
    /// consumed, if the chunk needs [`Self::parse_view`].
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool;

    /// Ends the region at that offset because the text ended. An open call is cut, unless its
    /// grammar allows a missing closing marker at the end and `why` is [`Truncation::Ended`].
    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink);

    /// Ends the open call at the end of the text, with a warning, if all that it lacks is closing markup behind its
    /// arguments. Returns false, with nothing emitted, if it lacks more.
    fn close_whole_call(&mut self, out: &mut dyn EventSink) -> bool;

    /// Returns the index of the next call.
    fn next_index(&self) -> u32;

    /// Returns true if a mistake made the parser skip text, so that a call may end elsewhere.
    fn was_skipped(&self) -> bool;

    /// Returns true if the text is written as inside a JSON string, which may hold the calls before, too.
    fn is_escaped(&self) -> bool {
        false
    }

    /// Returns the marker at the end of the region; `""` if it has none.
    fn close_marker(&self) -> &'static str;
}
