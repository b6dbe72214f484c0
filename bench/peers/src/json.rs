//! JSON arguments of a native call: decoded while they stream, parsed again with each chunk, or parsed once at the end.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use jiter::{JsonValue, PartialMode};
use sabir_call::Event;
use sabir_call::json::ArgumentScanner;
use sabir_streams::{code, pieces, write};
use serde_json::{Map, Value};

use crate::parser::now;
use crate::times::median;

const KB: usize = 1000;
/// Sizes of file and chunk, and whether jiter gets so far in a reasonable time.
const LOADS: [(usize, usize, bool); 4] =
    [(100 * KB, 16, true), (100 * KB, 64, true), (1000 * KB, 16, false), (1000 * KB, 64, false)];

/// Looks for `<` in every piece.
pub(crate) fn memchr_pass(stream: &[&str]) {
    for piece in stream {
        for found in memchr::memchr_iter(b'<', black_box(piece).as_bytes()) {
            black_box(found);
        }
    }
}

/// The table for JSON arguments.
pub(crate) fn table() -> String {
    let mut text = String::from("### JSON arguments of one native call, ms\n\n");
    text.push_str("| file | chunk | memchr | Sabir, streamed | append + serde_json once | of serde_json | ");
    text.push_str("jiter, each chunk | × Sabir |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size, chunk, patient) in LOADS {
        let arguments = Value::Object(write(code(size)).1).to_string();
        let stream = pieces(&arguments, chunk);
        let ms = |pass: fn(&[&str])| time(pass, &stream);
        let (base, sabir, serde) = (ms(memchr_pass), ms(scan), ms(append));
        // A tenth of the text takes a hundredth of the time.
        let jiter = if patient { ms(again) } else { time(again, &pieces(tenth(&arguments), chunk)) * 100.0 };
        _ = writeln!(
            text,
            "| {} KB | {chunk} B | {base:.3} | {sabir:.3} | {serde:.3} | {:.2} | {}{jiter:.0} | {:.0} |",
            size / KB,
            sabir / serde,
            if patient { "" } else { "~" },
            jiter / sabir
        );
    }
    text
}

fn tenth(text: &str) -> &str {
    text.get(..text.floor_char_boundary(text.len() / 10)).unwrap_or_default()
}

fn time(pass: fn(&[&str]), stream: &[&str]) -> f64 {
    let timed = || {
        let start = now();
        pass(stream);
        Some(now().saturating_sub(start))
    };
    median(timed).unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}

fn scan(stream: &[&str]) {
    let mut sink = |event: Event<'_>| {
        if let Event::ArgDelta { text, .. } = event {
            black_box(text.as_ptr());
            black_box(text.len());
        }
    };
    let mut scanner = ArgumentScanner::new(0);
    stream.iter().for_each(|piece| scanner.push(black_box(piece), &mut sink));
    black_box(scanner.finish(&mut sink));
}

fn append(stream: &[&str]) {
    let mut kept = String::new();
    stream.iter().for_each(|piece| kept.push_str(black_box(piece)));
    _ = black_box(serde_json::from_str::<Map<String, Value>>(&kept));
}

fn again(stream: &[&str]) {
    let mut kept = String::new();
    for piece in stream {
        kept.push_str(black_box(piece));
        _ = black_box(JsonValue::parse_with_config(kept.as_bytes(), false, PartialMode::TrailingStrings));
    }
}
