//! Measures the cost of reading a streamed value, compared to the least work that any reader must
//! do.
//!
//! One call writes a file of source code; its text arrives in chunks of a few bytes, as providers
//! send it. All rows run in one process, in rounds that take each row in turn, so that noise
//! affects all of them alike. The figures are medians.
//!
//! * `memchr` searches for `<` in every chunk: the least work of any reader of tags.
//! * `memcpy` appends every chunk: the least work of anything that stores the text.
//! * `cline`, `invoke`: the reader. Limit: 1.7 times `memchr`.
//! * `serde_json` appends every chunk of a native call's arguments and parses them once at the end.
//! * `json`: the scanner, decoding while it streams. Limit: 1.0 times `serde_json` from 16 bytes
//!   per chunk.
//! * `hermes`: the reader over the same arguments in a `<tool_call>`. Limit: 1.4 times `serde_json`
//!   from 16 bytes per chunk.
//!
//! `-- --test` runs everything once without figures; `-- ROW BYTES` repeats one row with one chunk
//! size, for a profiler.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use sabir_call::dialect::{CLINE, DialectSet, INVOKE};
use sabir_call::json::ArgumentScanner;
use sabir_call::{CallReader, Event, ToolSet, Truncation};
use serde_json::{Map, Value};

const KB: usize = 1000;
const CHUNKS: [usize; 3] = [4, 16, 64];
const ROWS: [&str; 7] = [
    "memchr",
    "memcpy",
    "cline",
    "invoke",
    "serde_json",
    "json",
    "hermes",
];
/// The rows and the row that each is compared to.
const RATIOS: [(&str, &str, f64); 4] = [
    ("cline", "memchr", 1.7),
    ("invoke", "memchr", 1.7),
    ("json", "serde_json", 1.0),
    ("hermes", "serde_json", 1.4),
];

/// A page of TypeScript with generics, comparisons, markup, quotes, blank lines, and some non-ASCII
/// characters.
const PAGE: &str = r##"import { useEffect, useMemo, useState } from "react";
import type { Row, Column } from "./table";

const LIMIT = 250;

/** Groups rows by a key, keeping the order in which the keys first appear. */
export function groupBy<T, K extends string>(rows: readonly T[], key: (row: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (let i = 0; i < rows.length; i++) {
    const k = key(rows[i]);
    const known = groups.get(k);
    if (known === undefined) groups.set(k, [rows[i]]);
    else known.push(rows[i]);
  }
  return groups;
}

export function Table({ rows, columns, onPick }: Props) {
  const [query, setQuery] = useState("");
  const [page, setPage] = useState(0);

  const shown = useMemo(() => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter((row) => words.every((word) => row.text.includes(word))).slice(page * LIMIT, (page + 1) * LIMIT);
  }, [rows, query, page]);

  useEffect(() => {
    if (page > 0 && shown.length === 0) {
      setPage(0); // the filter left nothing here
    }
  }, [page, shown]);

  return (
    <section className="table" aria-label="Größen – results">
      <input value={query} placeholder={'type "name:" or \'id:\''} onChange={(e) => setQuery(e.target.value)} />
      {shown.map((row) => (
        <Line key={row.id} row={row} columns={columns} onPick={() => onPick?.(row)} />
      ))}
    </section>
  );
}

export async function load(url: string, signal: AbortSignal): Promise<Row[]> {
  const response = await fetch(`${url}?limit=${LIMIT}`, { signal, headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${(await response.text()).slice(0, 200)}`);
  const body = (await response.json()) as { rows: Array<Record<string, unknown>>; next?: string | null };
  return body.rows.map((row, index) => ({ id: String(row["id"] ?? index), text: JSON.stringify(row), at: Date.now() }));
}

"##;

/// The texts of one size.
struct Load {
    size: usize,
    tools: ToolSet,
    cline: String,
    invoke: String,
    json: String,
    hermes: String,
}

impl Load {
    fn new(size: usize) -> Self {
        let tools = ToolSet::from_json(
            r#"[{"name": "read_file", "parameters": {"properties": {"path": {"type": "string"}, "start_line": {"type": "integer"}}}},
                {"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
                {"name": "execute_command", "parameters": {"properties": {"command": {"type": "string"}}}},
                {"name": "search_files", "parameters": {"properties": {"path": {"type": "string"}, "regex": {"type": "string"}}}},
                {"name": "attempt_completion", "parameters": {"properties": {"result": {"type": "string"}}}}]"#,
        )
        .unwrap_or_default();
        let mut code = String::new();
        while code.len() < size {
            _ = write!(code, "// part {}\n{PAGE}", code.len());
        }
        let mut arguments = Map::new();
        arguments.insert("path".to_owned(), Value::from("src/table.tsx"));
        arguments.insert("content".to_owned(), Value::from(code));
        let render = |name| {
            DialectSet::built_in()
                .find(name)
                .map_or_else(String::new, |it| {
                    it.render_call("write_to_file", &arguments, &tools)
                })
        };
        let cline = render(CLINE);
        let invoke = render(INVOKE);
        let json = Value::Object(arguments).to_string();
        let hermes = format!(
            "<tool_call>\n{{\"name\": \"write_to_file\", \"arguments\": {json}}}\n</tool_call>"
        );
        Self {
            size,
            cline,
            invoke,
            json,
            hermes,
            tools,
        }
    }

    /// Runs one pass of a row.
    fn run(&self, row: &str, chunk: usize) {
        match row {
            "memchr" => chunks(&self.cline, chunk).for_each(|piece| {
                for found in memchr::memchr_iter(b'<', black_box(piece).as_bytes()) {
                    black_box(found);
                }
            }),
            "memcpy" => append(&self.cline, chunk, |_| {}),
            "cline" => self.read(CLINE, &self.cline, chunk),
            "invoke" => self.read(INVOKE, &self.invoke, chunk),
            "hermes" => self.read("hermes", &self.hermes, chunk),
            "serde_json" => append(&self.json, chunk, |text| {
                _ = black_box(serde_json::from_str::<Map<String, Value>>(text))
            }),
            _ => self.scan(chunk),
        }
    }

    fn read(&self, name: &str, text: &str, chunk: usize) {
        let mut out = sink();
        let mut reader = CallReader::new(
            DialectSet::built_in()
                .select(name)
                .unwrap_or(DialectSet::built_in().all()),
            &self.tools,
        );
        chunks(text, chunk).for_each(|piece| reader.push(piece, &mut out));
        reader.finish(Truncation::Ended, &mut out);
    }

    fn scan(&self, chunk: usize) {
        let mut out = sink();
        let mut scanner = ArgumentScanner::new(0);
        chunks(&self.json, chunk).for_each(|piece| scanner.push(piece, &mut out));
        black_box(scanner.finish(&mut out));
    }
}

/// Returns a sink that reads the text of every event and stores nothing.
fn sink() -> impl FnMut(Event<'_>) {
    |event: Event<'_>| {
        if let Event::ArgDelta { text, .. } = event {
            // Read separately: as a pair, the two loads would wait for the two stores that wrote
            // them, in every row alike.
            black_box(text.as_ptr());
            black_box(text.len());
        }
    }
}

fn append(text: &str, chunk: usize, done: impl FnOnce(&str)) {
    let mut kept = String::new();
    chunks(text, chunk).for_each(|piece| kept.push_str(black_box(piece)));
    done(black_box(&kept));
}

/// Splits a text into pieces of about that many bytes, at character boundaries.
fn chunks(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) =
            rest.split_at_checked(rest.ceil_char_boundary(size.min(rest.len())))?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Returns the median time of every row, in the order of [`ROWS`].
fn measure(load: &Load, chunk: usize, rounds: usize) -> Vec<Duration> {
    let mut times = vec![Vec::with_capacity(rounds); ROWS.len()];
    for _ in 0..rounds {
        for (row, times) in ROWS.iter().zip(&mut times) {
            let start = Instant::now();
            load.run(row, chunk);
            times.push(start.elapsed());
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    times.iter_mut().map(median).collect()
}

fn ratio(times: &[Duration], row: &str, against: &str) -> f64 {
    let time = |row: &str| {
        ROWS.iter()
            .position(|known| *known == row)
            .and_then(|at| times.get(at))
            .copied()
            .unwrap_or_default()
    };
    time(row).as_secs_f64() / time(against).as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [row, bytes] = arguments.as_slice() {
        let load = Load::new(100 * KB);
        let chunk = bytes.parse().unwrap_or(16);
        return (0..20_000).for_each(|_| load.run(row, chunk));
    }
    let test = arguments.iter().any(|argument| argument == "--test");
    let loads = if test {
        vec![Load::new(10 * KB)]
    } else {
        vec![Load::new(100 * KB), Load::new(1000 * KB)]
    };
    let mut table = format!("{:>8} {:>6}", "value", "chunk");
    for row in ROWS {
        _ = write!(table, " {row:>10}");
    }
    for (row, against, most) in RATIOS {
        _ = write!(table, "   {row}/{against} (<= {most})");
    }
    let mut measured = Vec::new();
    for load in &loads {
        for chunk in CHUNKS {
            let times = measure(
                load,
                chunk,
                if test {
                    1
                } else {
                    (40_000 * KB / load.size).min(200)
                },
            );
            _ = write!(table, "\n{:>5} KB {chunk:>4} B", load.size / KB);
            for time in &times {
                _ = write!(table, " {:>7.3} ms", time.as_secs_f64() * 1e3);
            }
            for (row, against, most) in RATIOS {
                let title = format!("   {row}/{against} (<= {most})");
                _ = write!(table, "{:>1$.2}", ratio(&times, row, against), title.len());
            }
            measured.push((chunk, times));
        }
    }
    if test {
        return;
    }
    println!("{table}\n\n1 MB over 100 KB (10 is linear)");
    let (small, large) = measured.split_at(CHUNKS.len());
    for ((chunk, small), (_, large)) in small.iter().zip(large) {
        let growth = |at: usize| Some(large.get(at)?.as_secs_f64() / small.get(at)?.as_secs_f64());
        let growths: Vec<_> = (0..ROWS.len())
            .map(|at| format!("{:>10.1}", growth(at).unwrap_or_default()))
            .collect();
        println!("{:>13} B {}", chunk, growths.join(" "));
    }
}
