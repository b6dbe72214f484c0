//! Any text in any dialect, or all at once; as text and as reasoning.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use sabir_fuzz::{Readers, pick};

thread_local! {
    static READERS: RefCell<Readers> = RefCell::default();
}

// The first byte says which dialect, the second how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [dialect, cut, bytes @ ..] = input else { return };
    let name = (dialect % 2 == 1).then(|| pick(dialect / 2).name);
    READERS.with_borrow_mut(|readers| match dialect % 8 {
        6 => readers.check_reasoning(name, bytes, *cut),
        _ => readers.check(name, bytes, *cut),
    });
});
