//! Any text in any dialect, or all at once; as text and as reasoning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_call::CallReader;
use sabir_call::dialect::{DialectSelection, DialectSet};
use sabir_fuzz::{TOOLS, check, pick};

// The first byte says which dialect, the second how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [dialect, cut, bytes @ ..] = input else { return };
    let selection = if dialect % 2 == 0 { DialectSet::built_in().all() } else { DialectSelection::from(pick(dialect / 2)) };
    match dialect % 8 {
        6 => check(|| CallReader::for_reasoning(selection, &TOOLS), bytes, *cut),
        _ => check(|| CallReader::new(selection, &TOOLS), bytes, *cut),
    }
});
