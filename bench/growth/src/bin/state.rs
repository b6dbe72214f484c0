//! What the reader holds, and what it allocates, in the middle of a value.
//!
//! Prints Markdown: for each dialect the bytes that a reader of that dialect alone, and one of all dialects, hold beside the
//! vocabulary of the tools (its own size, and what it has taken since it was made) in the middle of a value of 100 KB and at
//! the most, and the allocations for each push in the second half of the value. The target: 512 bytes, and none. A binary of
//! its own, because the counting allocator replaces the global one.
//!
//! The exit code is 1 where a target is missed.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::process::ExitCode;

use allocation_counter::measure;
use sabir_call::dialect::{Dialect, DialectSelection, DialectSet};
use sabir_call::{Call, CallId, Truncation, Event, CallReader, ToolSet};

const SIZE: usize = 100_000;
const CHUNKS: [usize; 3] = [4, 16, 64];
const TARGET: usize = 512;

/// What one pass saw.
#[derive(Default, Clone, Copy)]
struct Seen {
    /// Bytes in the middle of the value.
    middle: usize,
    /// Bytes at the most, from the first push on.
    most: usize,
    /// Allocations in the second half of the value, and its pushes.
    allocations: u64,
    pushes: usize,
    /// The value came through.
    whole: bool,
}

fn main() -> ExitCode {
    let tools = sabir_streams::tools();
    println!("`Reader` itself: {} bytes.\n", size_of::<CallReader>());
    println!("| dialect | state, bytes | at the most | among all dialects | at the most | allocations a push |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut held = true;
    for dialect in DialectSet::built_in().iter() {
        let text = render(dialect, &tools);
        let own = DialectSet::built_in().select(dialect.name).unwrap_or(DialectSet::built_in().all());
        let all = |selection| CHUNKS.map(|chunk| pass(&text, selection, chunk, &tools));
        let (alone, among) = (all(own), all(DialectSet::built_in().all()));
        let both = || alone.iter().chain(&among);
        let most = |seen: &[Seen], of: fn(&Seen) -> usize| seen.iter().map(of).max().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let rate = both().map(|seen| seen.allocations as f64 / seen.pushes.max(1) as f64).fold(0.0, f64::max);
        let whole = both().all(|seen| seen.whole);
        held &= whole && rate == 0.0 && both().all(|seen| seen.middle <= TARGET);
        println!(
            "| {}{} | {} | {} | {} | {} | {rate:.4} |",
            dialect.name,
            if whole { "" } else { " (not understood)" },
            most(&alone, |seen| seen.middle),
            most(&alone, |seen| seen.most),
            most(&among, |seen| seen.middle),
            most(&among, |seen| seen.most),
        );
    }
    println!(
        "\nTarget, at most {TARGET} bytes in the middle and no allocation: {}.",
        if held { "held" } else { "missed" }
    );
    ExitCode::from(u8::from(!held))
}

fn render(dialect: &Dialect, tools: &ToolSet) -> String {
    let (name, arguments) = sabir_streams::write(sabir_streams::code(SIZE));
    let call = Call { id: CallId::new("1"), name: name.to_owned(), arguments, dialect: None };
    dialect.render_calls([&call], tools)
}

fn pass(text: &str, selection: DialectSelection, chunk: usize, tools: &ToolSet) -> Seen {
    let pieces = sabir_streams::cut(text, sabir_streams::Tokens::Cut, || chunk);
    // The last of the pieces close the value; the value's second half ends well before them.
    let (first, rest) = pieces.split_at(pieces.len() / 2);
    let (second, last) = rest.split_at(rest.len() - rest.len() / 100);
    let (mut seen, mut written, mut ended) = (Seen::default(), 0, false);
    let mut sink = |event: Event<'_>| match event {
        Event::ArgDelta { text, .. } => written += text.len(),
        Event::CallEnd { .. } => ended = true,
        _ => {}
    };
    let mut reader = CallReader::new(selection, tools);
    let opened = measure(|| first.iter().for_each(|piece| reader.push(piece, &mut sink)));
    let own = size_of::<CallReader>();
    let taken = u64::try_from(opened.bytes_current).unwrap_or_default();
    seen.middle = own + usize::try_from(taken).unwrap_or_default();
    let value = measure(|| second.iter().for_each(|piece| reader.push(piece, &mut sink)));
    seen.most = own + usize::try_from(opened.bytes_max.max(taken + value.bytes_max)).unwrap_or_default();
    (seen.allocations, seen.pushes) = (value.count_total, second.len());
    last.iter().for_each(|piece| reader.push(piece, &mut sink));
    reader.finish(Truncation::Ended, &mut sink);
    seen.whole = ended && written >= SIZE;
    seen
}
