//! How long one call that writes a file takes, in every dialect and with every parser of it.

use std::fmt::Write as _;
use std::time::Duration;

use sabir_streams::{code, pieces, spell, write};

use crate::parser::{Kit, Parser, now};
use crate::{Row, json};

const KB: usize = 1000;
/// Sizes of file and chunk.
const LOADS: [(usize, usize); 3] = [(100 * KB, 16), (100 * KB, 64), (1000 * KB, 16)];
/// What a pass over 100 KB may take for 1 MB to be measured rather than extrapolated.
const PATIENCE: Duration = Duration::from_millis(250);
/// How many times as fast as each peer the reader is to be, at 100 KB in chunks of 16 bytes.
const TARGETS: [(&str, f64); 2] = [("tool-parser", 5000.0), ("Dynamo v2", 50.0)];

/// A measured time.
#[derive(Clone, Copy)]
struct Time {
    seconds: f64,
    extrapolated: bool,
    /// The call did not come back as it was written.
    wrong: bool,
}

/// The times of one row: memchr, the reader, and the peers in the order of [`TARGETS`].
struct Times {
    base: f64,
    sabir: Option<Time>,
    peers: [Option<Time>; 2],
}

/// Repeats a pass until the median is worth something: for 0.3 s and three times at least, less often where it takes long.
pub(crate) fn median(mut pass: impl FnMut() -> Option<Duration>) -> Option<Duration> {
    let (mut times, mut spent) = (Vec::new(), Duration::ZERO);
    while (times.len() < 3 || spent.as_millis() < 300) && times.len() < 301 && spent.as_secs() < 3 {
        let time = pass()?;
        spent += time;
        times.push(time);
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// The tables of times, one for each load, and whether the targets hold.
pub(crate) fn tables(kit: &Kit, rows: &[Row]) -> String {
    let mut text = String::new();
    let mut seen: [Vec<(f64, &str)>; 2] = Default::default();
    for (size, chunk) in LOADS {
        _ = writeln!(text, "### A file of {} KB in chunks of {chunk} bytes, ms\n", size / KB);
        text.push_str("| dialect | memchr | Sabir | of memchr | tool-parser | × Sabir | Dynamo v2 | × Sabir |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for row in rows {
            let Some(times) = measure(kit, row, size, chunk) else { continue };
            text.push_str(&times.cells(row.dialect));
            // A parser that did not read the call was quick for nothing.
            let ratios = times
                .peers
                .iter()
                .zip(times.ratios())
                .map(|(peer, ratio)| ratio.filter(|_| peer.is_some_and(|it| !it.wrong)));
            for (seen, ratio) in seen.iter_mut().zip(ratios).filter(|_| (size, chunk) == (100 * KB, 16)) {
                seen.extend(ratio.map(|ratio| (ratio, row.dialect)));
            }
        }
        text.push('\n');
    }
    for ((peer, target), seen) in TARGETS.into_iter().zip(&seen) {
        text.push_str(&verdict(peer, target, seen));
    }
    text
}

fn verdict(peer: &str, target: f64, seen: &[(f64, &str)]) -> String {
    let least = seen.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let held = seen.iter().filter(|(ratio, _)| *ratio >= target).count();
    let found = least.map_or_else(
        || "nothing to compare yet".to_owned(),
        |(ratio, dialect)| {
            format!("held in {held} of {} dialects; the least is {} × ({dialect})", seen.len(), factor(*ratio))
        },
    );
    format!("* {target} × {peer} at 100 KB in chunks of 16 bytes: {found}\n")
}

fn measure(kit: &Kit, row: &Row, size: usize, chunk: usize) -> Option<Times> {
    let time = |parser: Option<Parser>| parser.and_then(|parser| clock(kit, row.dialect, parser, size, chunk));
    let stream = spell(row.dialect, &[write(code(size))])?;
    let stream = pieces(&stream, chunk);
    let base = median(|| {
        let start = now();
        json::memchr_pass(&stream);
        Some(now().saturating_sub(start))
    })?;
    Some(Times { base: base.as_secs_f64(), sabir: time(row.sabir), peers: [time(row.tool_parser), time(row.dynamo)] })
}

fn clock(kit: &Kit, dialect: &str, parser: Parser, size: usize, chunk: usize) -> Option<Time> {
    let medians = |size: usize| {
        let stream = spell(dialect, &[write(code(size))])?;
        let stream = pieces(&stream, chunk);
        Some(median(|| parser.time(kit, &stream))?.as_secs_f64())
    };
    let asked = write(code(100 * KB));
    let small = spell(dialect, std::slice::from_ref(&asked))?;
    let understood = parser.read(kit, &pieces(&small, chunk))?;
    let wrong =
        !matches!(understood.calls.as_slice(), [(name, arguments)] if *name == asked.0 && *arguments == asked.1);
    if size <= 100 * KB {
        return Some(Time { seconds: medians(size)?, extrapolated: false, wrong });
    }
    let known = medians(100 * KB)?;
    if known < PATIENCE.as_secs_f64() {
        return Some(Time { seconds: medians(size)?, extrapolated: false, wrong });
    }
    // Time grows as a power of the size; the power is the one seen from 25 KB to 100 KB.
    let power = (known / medians(25 * KB)?).log(4.0);
    #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
    let times = size as f64 / (100 * KB) as f64;
    Some(Time { seconds: known * times.powf(power), extrapolated: true, wrong })
}

impl Times {
    /// How many times as long as the reader each peer takes.
    fn ratios(&self) -> [Option<f64>; 2] {
        self.peers.map(|peer| Some(peer?.seconds / self.sabir?.seconds))
    }

    fn cells(&self, dialect: &str) -> String {
        let sabir = self.sabir.map_or_else(|| "not yet".to_owned(), |time| time.cell());
        let share = self.sabir.map_or_else(String::new, |time| format!("{:.2}", time.seconds / self.base));
        let mut cells = format!("| {dialect} | {:.3} | {sabir} | {share} |", self.base * 1e3);
        for (peer, ratio) in self.peers.iter().zip(self.ratios()) {
            let time = peer.map_or_else(|| "–".to_owned(), Time::cell);
            _ = write!(cells, " {time} | {} |", ratio.map(factor).unwrap_or_default());
        }
        cells.push('\n');
        cells
    }
}

impl Time {
    fn cell(self) -> String {
        let ms = self.seconds * 1e3;
        let figure = match ms {
            ms if ms < 10.0 => format!("{ms:.3}"),
            ms if ms < 100.0 => format!("{ms:.1}"),
            ms => format!("{ms:.0}"),
        };
        format!("{}{figure}{}", if self.extrapolated { "~" } else { "" }, if self.wrong { " !" } else { "" })
    }
}

/// A ratio to three digits or so.
fn factor(ratio: f64) -> String {
    if ratio < 100.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}
