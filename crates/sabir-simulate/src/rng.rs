//! The random number generator: one seed decides everything that is random in a simulated task.
//!
//! It is SplitMix64, written out here because the same seed must give the same task on every machine and with every version of every
//! library.
//!
//! Simulated parts draw from one sequence, so a change in one of them changes the rest of the run.
//! That is fine: a seed identifies a run of this version only.

/// A sequence of random numbers that follows from a seed.
#[derive(Debug, Clone)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    /// Creates the sequence of a seed. Neighbouring seeds give unrelated sequences.
    pub(crate) fn new(seed: u64) -> Self {
        // Any constant will do. It must not change: the seeds of known failures are written down.
        Self(seed ^ 0x5ab1_0000_5ab1)
    }

    /// Returns the next number; every number of 64 bits is equally likely.
    fn next_u64(&mut self) -> u64 {
        // The constants are those of the published algorithm (Steele, Lea and Flood, 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The remainder slightly prefers small numbers, which does no harm: no check depends on
        // frequencies.
        self.next_u64().checked_rem(end).unwrap_or(0)
    }

    /// Draws an index for a collection of that length; 0 if it is empty.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Draws a number from `least` to `most`, both included.
    pub(crate) fn in_range(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Returns true in this many of a thousand cases.
    pub(crate) fn hits_permille(&mut self, cases: u64) -> bool {
        self.below(1000) < cases
    }

    /// Draws one of the values, all with the same probability. The first one is a separate
    /// parameter, so that there is always a value to draw.
    pub(crate) fn pick_one<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let at = self.index(others.len() + 1);
        at.checked_sub(1)
            .and_then(|at| others.get(at).copied())
            .unwrap_or(first)
    }
}
