//! Who understands what, however the stream is cut.
//!
//! Each meaning (prose and calls) is spelled in the dialect and read under forty splits: whole, character by character, and in
//! random pieces. A split is right where the calls have the names and the typed arguments that were written, byte for byte, and
//! the prose is all there, white space aside.

use std::fmt::Write as _;

use sabir_streams::{Asked, Dice, Tokens, cut, spell, write};
use serde_json::{Map, Value};

use crate::Row;
use crate::parser::{Kit, Parser, Understood};

const SPLITS: usize = 40;

/// What a message says.
struct Meaning {
    name: &'static str,
    prose: &'static str,
    calls: Vec<Asked>,
}

/// The table of right splits.
pub(crate) fn table(kit: &Kit, rows: &[Row]) -> String {
    let count = meanings("cline").len();
    let mut text = format!("### Right under {SPLITS} splits of {count} messages each, with what went wrong\n\n");
    text.push_str("| dialect | Sabir | tool-parser | tool-parser, special tokens whole | Dynamo v2 |\n");
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for row in rows {
        let tally = |parser, tokens| cell(kit, row.dialect, parser, tokens);
        let sabir = row.sabir.map_or_else(|| "not yet".to_owned(), |parser| tally(parser, Tokens::Cut));
        let peers = [(row.tool_parser, Tokens::Cut), (row.tool_parser, Tokens::Whole), (row.dynamo, Tokens::Cut)];
        let peers = peers.map(|(parser, tokens)| parser.map_or_else(|| "–".to_owned(), |it| tally(it, tokens)));
        _ = writeln!(text, "| {} | {sabir} | {} |", row.dialect, peers.join(" | "));
    }
    text.push_str("\nThe messages: ");
    text.push_str(&WORDS.map(|(name, words)| format!("{name}, {words}")).join("; "));
    text.push_str(".\n");
    text
}

/// What the names of the messages stand for.
const WORDS: [(&str, &str); 7] = [
    ("plain", "prose and a call"),
    ("code", "quotes, comparisons, entities, backslashes and an accent in a value"),
    ("two", "two calls, one with a number"),
    ("edges", "blanks and line feeds around a value"),
    ("closers", "closing tags and markers inside a value"),
    ("example", "a whole call of the same dialect inside a value"),
    ("prose", "no call, but markup, brackets and braces"),
];

fn meanings(dialect: &str) -> Vec<Meaning> {
    const LEAD: &str = "I will write it now, if 1 < 2.\n\n";
    let one = |name, content: &str| Meaning { name, prose: LEAD, calls: vec![write(content)] };
    let mut lines = Map::new();
    lines.insert("path".to_owned(), Value::from("a.rs"));
    lines.insert("start_line".to_owned(), Value::from(12));
    let example = spell(dialect, &[write("inner")]).unwrap_or_default();
    let closers =
        "<b>a</content> b </parameter> c </arg_value> d </tool_call> e <|tool_call_end|> f [/TOOL_CALLS] g\"})]";
    let code = "fn f<T: Ord>(a: &T) -> bool {\n\tprintln!(\"größer &amp; \\\"quoted\\\" \\n\");\n\ta < b && c > d\n}";
    vec![
        one("plain", "hello"),
        one("code", code),
        Meaning { name: "two", prose: LEAD, calls: vec![write("one"), ("read_file", lines)] },
        one("edges", "  two blanks before, two line feeds behind\n\n"),
        one("closers", closers),
        one("example", &format!("Write it like this:\n{example}\nand no other way.")),
        Meaning { name: "prose", prose: "If a < b then <b>bold</b>, see [1, 2] and {\"x\": 1} or <T>.", calls: vec![] },
    ]
}

fn cell(kit: &Kit, dialect: &str, parser: Parser, tokens: Tokens) -> String {
    let meanings = meanings(dialect);
    let (mut right, mut failures) = (0, Vec::new());
    for (seed, meaning) in meanings.iter().enumerate() {
        let calls = if meaning.calls.is_empty() { None } else { spell(dialect, &meaning.calls) };
        let stream = format!("{}{}", meaning.prose, calls.unwrap_or_default());
        let good = (0..SPLITS).filter(|at| {
            let mut dice = Dice::new((seed * SPLITS + at) as u64);
            let pieces = match at {
                0 => vec![stream.as_str()],
                1 => cut(&stream, tokens, || 1),
                at => cut(&stream, tokens, || dice.roll(2 << (at % 7))),
            };
            parser.read(kit, &pieces).is_some_and(|understood| meaning.is(&understood))
        });
        let good = good.count();
        right += good;
        if good < SPLITS {
            failures.push(format!("{} {}", meaning.name, SPLITS - good));
        }
    }
    let all = meanings.len() * SPLITS;
    if failures.is_empty() {
        format!("{right} of {all}")
    } else {
        format!("{right} of {all} ({})", failures.join(", "))
    }
}

impl Meaning {
    fn is(&self, understood: &Understood) -> bool {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        let calls = self.calls.iter().map(|(name, arguments)| (*name, arguments));
        let same = calls.eq(understood.calls.iter().map(|(name, arguments)| (name.as_str(), arguments)));
        same && bare(self.prose) == bare(&understood.text)
    }
}
