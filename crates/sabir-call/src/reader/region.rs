//! Regions: what the reader and the machines agree on.
//!
//! A region is a stretch of text in which one machine reads calls until it is over. The reader shows the machine the text
//! from the machine's place on; the machine takes a prefix of it, emits the events of that, and says how it stands. What it
//! could not decide comes again with more text behind it, so that a machine needs to hold nothing itself. It must not look
//! at a byte more often than a fixed number of times: a machine that waits must wait for a short marker, never for a value.

use crate::event::{Cut, Sink};

use super::gemma::Gemma;
use super::payload::Payload;
use super::python::Python;

/// The text that a machine is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'w> {
    /// From the machine's place on.
    pub(super) text: &'w str,
    /// The offset of its first byte in the assistant text.
    pub(super) offset: usize,
    /// No more will come.
    pub(super) last: bool,
}

/// What a machine did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It took this many bytes, and the rest must come again with more behind it. With `last`, the text ended inside the
    /// region.
    More(usize),
    /// The region ended after this many bytes.
    Over(usize),
}

/// What one turn of a machine did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It took everything up to this byte.
    To(usize),
    /// The same, and it needs more text.
    Wait(usize),
    /// The region ended before this byte.
    Over(usize),
}

/// Lets a machine take its turns, each from where the last one ended.
pub(super) fn drive(mut turn: impl FnMut(usize) -> Next) -> Taken {
    let mut at = 0;
    loop {
        match turn(at) {
            Next::To(next) => at = next,
            Next::Wait(at) => return Taken::More(at),
            Next::Over(at) => return Taken::Over(at),
        }
    }
}

/// The machines.
#[derive(Debug)]
pub(super) enum Machine {
    Json(Box<Payload>),
    Python(Box<Python>),
    Gemma(Box<Gemma>),
}

impl Machine {
    fn region(&self) -> &dyn Region {
        match self {
            Self::Json(region) => &**region,
            Self::Python(region) => &**region,
            Self::Gemma(region) => &**region,
        }
    }

    fn region_mut(&mut self) -> &mut dyn Region {
        match self {
            Self::Json(region) => &mut **region,
            Self::Python(region) => &mut **region,
            Self::Gemma(region) => &mut **region,
        }
    }
}

impl Region for Machine {
    fn read(&mut self, view: View<'_>, out: &mut dyn Sink) -> Taken {
        self.region_mut().read(view, out)
    }

    #[inline]
    fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool {
        match self {
            Self::Json(region) => region.take(chunk, out),
            Self::Python(region) => region.take(chunk, out),
            Self::Gemma(region) => region.take(chunk, out),
        }
    }

    fn cut(&mut self, why: Cut, at: usize, out: &mut dyn Sink) {
        self.region_mut().cut(why, at, out);
    }

    fn next_index(&self) -> u32 {
        self.region().next_index()
    }
}

/// A machine that reads one region.
pub(super) trait Region: std::fmt::Debug + Send {
    /// Takes a prefix of the text.
    fn read(&mut self, view: View<'_>, out: &mut dyn Sink) -> Taken;

    /// Takes a whole chunk that is nothing but a piece of a value, and emits it. False: look closer, nothing was taken.
    fn take(&mut self, chunk: &str, out: &mut dyn Sink) -> bool;

    /// The text ended inside the region, at that offset. Whatever call is open is cut, unless its grammar allows that its
    /// closing marker is missing at the end and `why` is [`Cut::Ended`].
    fn cut(&mut self, why: Cut, at: usize, out: &mut dyn Sink);

    /// The index of the next call.
    fn next_index(&self) -> u32;
}
