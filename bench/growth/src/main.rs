//! Instructions that the reader takes for a text and for ten times as much of it.
//!
//! `sabir-growth list [FILTER]` names the cases; `sabir-growth read FILTER GROUP` reads those of a group in three sizes (none,
//! 100 KB, 1 MB), in chunks of 16 bytes, inside the function [`counted`], and prints a line each time: the case, the bytes and
//! the pushes. Under callgrind, which is told to count in that function alone and to write down its counter after each call
//! of it, line and counter belong together; `bench/growth/run` does that and makes the table.
//!
//! A case that takes too long at 100 KB is not read at 1 MB but at 10 KB, so that a quadratic one shows and ends.

#![expect(clippy::print_stdout, reason = "its lines are read by the script beside it")]

mod cases;

use std::hint::black_box;
use std::time::{Duration, Instant};

use sabir_call::dialect::{DialectSelection, DialectSet};
use sabir_call::{Truncation, Event, CallReader, ToolSet};
use sabir_streams::{Dice, Tokens, cut};

use cases::{Case, cases};

const KB: usize = 1000;
const CHUNK: usize = 16;
/// Reading 100 KB takes milliseconds under callgrind where it is linear.
const PATIENCE: Duration = Duration::from_secs(4);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let (what, filter, group) = (next(), next(), next());
    let tools = sabir_streams::tools();
    let wanted = |case: &&Case| case.name.contains(&filter) && case.name.starts_with(&group);
    for case in cases(&tools).iter().filter(wanted) {
        match what.as_str() {
            "read" => read(case, &tools),
            _ => println!("{}", case.name),
        }
    }
}

fn read(case: &Case, tools: &ToolSet) {
    let pass = |size: usize| {
        let text = case.text(size, tools);
        let pieces = pieces(&text);
        let reader = case.selection.map(|selection| CallReader::new(selection, tools));
        let start = Instant::now();
        counted(reader, &pieces);
        println!("{} {} {}", case.name, text.len(), pieces.len());
        start.elapsed()
    };
    pass(0);
    pass(if pass(100 * KB) < PATIENCE { 1000 * KB } else { 10 * KB });
}

/// Chunks of 16 bytes, but for every 32nd. Where a tag falls in its chunks decides what it costs, so all ways of falling must
/// occur alike in a short text and in a long one, also where the text repeats itself every 16 bytes.
fn pieces(text: &str) -> Vec<&str> {
    let (mut dice, mut count) = (Dice::new(1), 0);
    cut(text, Tokens::Cut, || {
        count += 1;
        if count % 32 == 0 { dice.roll(CHUNK) } else { CHUNK }
    })
}

/// What is counted: reading the pieces; without a reader, looking for `<` in them.
#[inline(never)]
fn counted(reader: Option<CallReader>, pieces: &[&str]) {
    let mut sink = |event: Event<'_>| {
        if let Event::ArgDelta { text, .. } = event {
            black_box(text.as_ptr());
            black_box(text.len());
        }
    };
    let Some(mut reader) = reader else {
        for piece in pieces {
            for found in memchr::memchr_iter(b'<', black_box(piece).as_bytes()) {
                black_box(found);
            }
        }
        return;
    };
    pieces.iter().for_each(|piece| reader.push(black_box(piece), &mut sink));
    reader.finish(Truncation::Ended, &mut sink);
}

/// The reader of one dialect, or of all.
fn selection(dialect: &str) -> DialectSelection<'static> {
    DialectSet::built_in().select(dialect).unwrap_or(DialectSet::built_in().all())
}
