//! Regions: what the reader and the machines agree on.
//!
//! A region is a stretch of text in which one machine reads calls until it is over. The reader shows the machine the text
//! from the machine's place on; the machine takes a prefix of it, emits the events of that, and says how it stands. What it
//! could not decide comes again with more text behind it, so that a machine needs to hold nothing itself. It must not look
//! at a byte more often than a fixed number of times: a machine that waits must wait for a short marker, never for a value.

use crate::event::{EventSink, Truncation};

use super::gemma::GemmaRegionParser;
use super::payload::JsonRegionParser;
use super::python::PythonRegionParser;

/// The text that a machine is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextView<'w> {
    /// From the machine's place on.
    pub(super) text: &'w str,
    /// The offset of its first byte in the assistant text.
    pub(super) offset: usize,
    /// No more will come.
    pub(super) last: bool,
}

/// What a machine did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionProgress {
    /// It took this many bytes, and the rest must come again with more behind it. With `last`, the text ended inside the
    /// region.
    More(usize),
    /// The region ended after this many bytes.
    Over(usize),
}

/// What one turn of a machine did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// It took everything up to this byte.
    To(usize),
    /// The same, and it needs more text.
    Wait(usize),
    /// The region ended before this byte.
    Over(usize),
}

/// Lets a machine take its turns, each from where the last one ended.
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

/// The machines.
#[derive(Debug)]
pub(super) enum AnyRegionParser {
    Json(Box<JsonRegionParser>),
    Python(Box<PythonRegionParser>),
    Gemma(Box<GemmaRegionParser>),
}

impl AnyRegionParser {
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
            Self::Json(region) => region.take_chunk(chunk, out),
            Self::Python(region) => region.take_chunk(chunk, out),
            Self::Gemma(region) => region.take_chunk(chunk, out),
        }
    }

    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        self.as_parser_mut().cut_region(why, at, out);
    }

    fn next_index(&self) -> u32 {
        self.as_parser().next_index()
    }
}

/// A machine that reads one region.
pub(super) trait RegionParser: std::fmt::Debug + Send {
    /// Takes a prefix of the text.
    fn parse_view(&mut self, view: TextView<'_>, out: &mut dyn EventSink) -> RegionProgress;

    /// Takes a whole chunk that is nothing but a piece of a value, and emits it. False: look closer, nothing was taken.
    fn take_chunk(&mut self, chunk: &str, out: &mut dyn EventSink) -> bool;

    /// The text ended inside the region, at that offset. Whatever call is open is cut, unless its grammar allows that its
    /// closing marker is missing at the end and `why` is [`Truncation::Ended`].
    fn cut_region(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink);

    /// The index of the next call.
    fn next_index(&self) -> u32;
}
