//! Generates streams of calls, and reads them: the reference with which the bindings are compared.
//!
//!     streams generate COUNT > streams.bin      # the same in every run
//!     streams read < streams.bin                # the events, in the format below
//!
//! A file holds records of two texts, the options and the stream, each preceded by its length as 4 bytes, little-endian. For each
//! record and each size of chunks, a reader prints the JSON array of every chunk that has events, and that of the end, on a line each, and then
//! a line with `--`. The runners in Python, JavaScript and C (crates/sabir-testkit/bindings) do the same.

use std::io::{self, BufWriter, Read, Write};

use sabir_bindings::{ReaderOptions, StreamReader, render_calls};
use sabir_call::dialect::DialectSet;
use serde_json::{Value, json};

/// The sizes of chunks in bytes; 0 means the whole text. The other runners have the same list.
const CHUNK_SIZES: [usize; 5] = [1, 3, 16, 256, 0];

/// A generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next_below(&mut self, end: usize) -> usize {
        // Knuth's constants for a linear congruential generator; the high bits are the random ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % end.max(1)
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.next_below(items.len()))
    }
}

const WORDS: [&str; 16] = [
    "a.rs",
    "\n",
    "if (a < b) f();",
    "\"quoted\"",
    "näïve – “text”",
    "\\n",
    "</content>",
    "{\"k\": [1, 2]}",
    "  ",
    "<tool_call>",
    "日本語",
    "```\ncode\n```",
    "&amp;",
    "true",
    "12",
    "'x'",
];

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "integer"},
            "force": {"type": "boolean"}, "tags": {"type": "array"}}, "required": ["path"]}}},
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}}}}},
    ])
}

fn random_text(numbers: &mut Numbers) -> String {
    (0..numbers.next_below(12))
        .filter_map(|_| numbers.pick(&WORDS).copied())
        .collect::<Vec<_>>()
        .join(" ")
}

fn random_calls(numbers: &mut Numbers) -> Value {
    let calls = (0..=numbers.next_below(3)).map(|_| {
        if numbers.next_below(3) == 0 {
            return json!({"name": "look", "arguments": {"path": random_text(numbers)}});
        }
        json!({"name": "write_file", "arguments": {
            "path": "src/main.rs", "content": random_text(numbers), "lines": numbers.next_below(1000),
            "force": numbers.next_below(2) == 0, "tags": [numbers.next_below(9), random_text(numbers)]}})
    });
    Value::Array(calls.collect())
}

/// Writes one record.
fn write_record(out: &mut impl Write, options: &str, stream: &[u8]) -> io::Result<()> {
    for text in [options.as_bytes(), stream] {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(text)?;
    }
    Ok(())
}

fn generate(count: usize, out: &mut impl Write) -> io::Result<()> {
    let mut numbers = Numbers(20_261_128);
    let dialects: Vec<&str> = DialectSet::built_in()
        .iter()
        .map(|dialect| dialect.name)
        .collect();
    for _ in 0..count {
        let dialect = numbers.pick(&dialects).copied().unwrap_or("cline");
        let written_in = json!({"dialect": dialect, "tools": tools()}).to_string();
        let options = ReaderOptions::from_json(&written_in).map_err(io::Error::other)?;
        let calls = random_calls(&mut numbers).to_string();
        let calls = render_calls(&calls, &options).map_err(io::Error::other)?;
        let text = format!(
            "{}\n\n{calls}\n{}",
            random_text(&mut numbers),
            random_text(&mut numbers)
        );
        let mut stream = text.into_bytes();
        // A third of the streams is damaged: cut, or with a byte that is another, which may be no
        // UTF-8.
        match numbers.next_below(6) {
            0 => stream.truncate(numbers.next_below(stream.len() + 1)),
            1 => {
                let at = numbers.next_below(stream.len());
                let byte = u8::try_from(numbers.next_below(256)).unwrap_or(0);
                if let Some(place) = stream.get_mut(at) {
                    *place = byte;
                }
            }
            _ => {}
        }
        let read_in = if numbers.next_below(2) == 0 {
            "auto"
        } else {
            dialect
        };
        let options =
            json!({"dialect": read_in, "tools": tools(), "marks": numbers.next_below(4) == 0});
        write_record(out, &options.to_string(), &stream)?;
    }
    Ok(())
}

/// Reads one text of a record; `None` at the end of the file.
fn read_text(input: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = input.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *input = rest;
    Some(text.to_vec())
}

fn read(mut input: &[u8], out: &mut impl Write) -> io::Result<()> {
    while let (Some(options), Some(stream)) = (read_text(&mut input), read_text(&mut input)) {
        let options = String::from_utf8(options).map_err(io::Error::other)?;
        let options = ReaderOptions::from_json(&options).map_err(io::Error::other)?;
        for size in CHUNK_SIZES {
            let mut reader = StreamReader::new(&options);
            let size = if size == 0 { stream.len().max(1) } else { size };
            for chunk in stream.chunks(size) {
                let events = reader.push_bytes(chunk).map_err(io::Error::other)?;
                if !events.is_empty() {
                    writeln!(out, "{}", events.to_json())?;
                }
            }
            let events = reader.finish("ended").map_err(io::Error::other)?;
            writeln!(out, "{}\n--", events.to_json())?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["generate", count] => generate(count.parse().map_err(io::Error::other)?, &mut out)?,
        ["read"] => {
            let mut input = Vec::new();
            io::stdin().read_to_end(&mut input)?;
            read(&input, &mut out)?;
        }
        _ => {
            return Err(io::Error::other(
                "usage: streams generate COUNT | streams read",
            ));
        }
    }
    out.flush()
}
