//! Counts the calls that run although none was made, and the true calls that are lost, in every dialect.
//!
//! `confusion FOLDER… [--pieces N] [--examples N] [--seed N] [--held-out]` cuts the text files below the folders (Markdown, HTML, XML, source code) into N
//! pieces, and makes as many pieces of chat about tool calls. Each piece is read by each dialect by name and by all
//! at once (`auto`); no call may run in any. Then it renders as many true calls between pieces of the prose, each
//! read by its own dialect and by `auto`; every call must run, with exactly its arguments. It prints Markdown: a
//! table of the dialects, one of the kinds of text, and examples of each kind of mistake. With `--held-out` the tools and the words
//! around the calls are others, which were written after the rules of the reader. `bench/confusion/run` builds and runs it.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "an example that prints a table, and ends at the first broken assumption"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sabir_call::dialect::DialectSet;
use sabir_call::{Call, CallId, CallReader, DraftResponse, ToolSet, Truncation};
use sabir_check::{CallChecker, CallState};
use serde_json::{Map, Value, json};

/// The tools of a coding agent, among them some whose names are everyday words.
const TOOLS: &str = r#"[
  {"name": "read_file", "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}, "start_line": {"type": "integer"}}}},
  {"name": "write_to_file", "parameters": {"type": "object", "required": ["path", "content"], "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
  {"name": "execute_command", "parameters": {"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}}},
  {"name": "search", "parameters": {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}, "options": {"type": "object"}}}},
  {"name": "view", "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}},
  {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
]"#;

/// The tools of the held-out set: those of a service, with names of other shapes.
const HELD_OUT_TOOLS: &str = r#"[
  {"name": "getWeather", "parameters": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}},
  {"name": "send_email", "parameters": {"type": "object", "required": ["to", "body"], "properties": {"to": {"type": "string"}, "body": {"type": "string"}, "urgent": {"type": "boolean"}}}},
  {"name": "query-database", "parameters": {"type": "object", "required": ["sql"], "properties": {"sql": {"type": "string"}, "limits": {"type": "array", "items": {"type": "integer"}}}}},
  {"name": "calculator", "parameters": {"type": "object", "required": ["expression"], "properties": {"expression": {"type": "string"}}}},
  {"name": "finish", "parameters": {"type": "object", "properties": {}}}
]"#;

/// The largest piece of a file, in bytes.
const PIECE_BYTES: usize = 1500;
/// The files that are cut into pieces.
const SUFFIXES: [&str; 9] = [
    "md", "html", "xml", "rs", "txt", "json", "toml", "py", "svg",
];

/// The dialects whose calls have no marker, or one of ordinary words: they begin on a line of their own, since nothing else tells
/// them from prose. Their parsers read them only at the start of a message, models write them on lines of their own.
const UNMARKED: [&str; 3] = ["json", "pythonic", "react"];

/// The counts of one dialect.
#[derive(Default)]
struct Counts {
    ran: usize,
    lost: usize,
    lost_by_all: usize,
}

/// The mistakes of one kind: where a text was read wrongly, what it is, and in which dialect its call is written.
type MistakeKind = (&'static str, &'static str, &'static str);

/// A text with its kind, and the dialect of the call that it shows.
struct Piece {
    kind: &'static str,
    dialect: &'static str,
    text: String,
}

/// The name and the arguments of a call.
type NamedCall = (String, Map<String, Value>);

/// A message with calls, and the calls that were rendered into it.
struct TrueText {
    text: String,
    meant: Vec<NamedCall>,
}

/// The texts of a set: the tools, and the words before true calls.
#[derive(Clone, Copy)]
struct TextSet {
    is_held_out: bool,
    tools: &'static str,
    before: &'static [&'static str],
}

const USUAL_SET: TextSet = TextSet {
    is_held_out: false,
    tools: TOOLS,
    before: &[
        "",
        "I will look at it.\n\n",
        "Let me check the file first:\n",
        "Now I know what `x` means. Next: ",
        "1. Read the file\n2. Change it\n\n",
        "It's in \"main\" (see the docs).\n",
        "```rust\nfn main() {}\n```\n\nI will run it.\n\n",
        "**Step 1**: look.\n\n",
    ],
};

const HELD_OUT_SET: TextSet = TextSet {
    is_held_out: true,
    tools: HELD_OUT_TOOLS,
    before: &[
        "\n",
        "Sure! Here you go.\n\n",
        "The user said “what's the weather?”, so I'll ask the service.\n\n",
        "# Plan\n\n- [x] read\n- [ ] send\n\n",
        "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n",
        "> Please do it now.\n\nRight away.\n\n",
        "Ich sehe nach…\n\n",
        "好的，我来查询。\n",
        "The value of 5 < 6 && 7 > 3 isn't relevant here, so:\n\n",
        "I can't see 'finish' in the list; trying anyway.\n\n",
        "```\nnot a call\n```\n",
        "Note: `finish` ends the task. Thought: I know enough.\n",
    ],
};

/// A generator of numbers that is the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let at = self.roll(all.len());
        all.get(at).expect("a list with items")
    }
}

fn main() {
    let mut folders = Vec::new();
    let mut count = 20_000;
    let mut examples = 1;
    let mut seed = 0;
    let mut set = USUAL_SET;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |known| {
            let given = arguments.next();
            given.and_then(|n| n.parse().ok()).unwrap_or(known)
        };
        match argument.as_str() {
            "--pieces" => count = number(count),
            "--examples" => examples = number(examples),
            "--seed" => seed = number(seed),
            "--held-out" => set = HELD_OUT_SET,
            folder => folders.push(PathBuf::from(folder)),
        }
    }
    let tools = ToolSet::from_json(set.tools).expect("valid tools");
    let checker = CallChecker::new(tools.clone());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ ((seed as u64) << 32));
    let prose = collect_prose(&folders, count, &mut dice);
    let dialects = DialectSet::built_in();
    let names: Vec<&'static str> = dialects.iter().map(|dialect| dialect.name).collect();
    let mut pieces: Vec<Piece> = (0..count)
        .map(|_| make_chat(&prose, &names, set, &tools, &mut dice))
        .collect();
    pieces.extend(prose.iter().map(|text| Piece {
        kind: "a file",
        dialect: "no call",
        text: text.clone(),
    }));
    let mut table: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut mistakes: BTreeMap<MistakeKind, Vec<String>> = BTreeMap::new();
    for name in names.iter().copied().chain(["auto"]) {
        let counts = table.entry(name).or_default();
        let reader = CallReader::new(dialects.select(name).expect("a known dialect"), &tools);
        let reach = if name == "auto" { "auto" } else { "by name" };
        for piece in &pieces {
            if !run_calls(&reader, &checker, &piece.text).is_empty() {
                counts.ran += 1;
                let kind = (reach, piece.kind, piece.dialect);
                mistakes.entry(kind).or_default().push(shorten(&piece.text));
            }
        }
    }
    let all = CallReader::new(dialects.all(), &tools);
    for name in names {
        let counts = table.entry(name).or_default();
        let dialect = dialects.find(name).expect("a known dialect");
        let only = CallReader::new(dialects.only(dialect), &tools);
        for _ in 0..count {
            let TrueText { text, meant } = make_true_text(&prose, name, set, &tools, &mut dice);
            let is_read = |reader| run_calls(reader, &checker, &text) == meant;
            if !is_read(&only) {
                counts.lost += 1;
                let kind = ("by name", "a true call", name);
                mistakes.entry(kind).or_default().push(shorten(&text));
            }
            if !is_read(&all) {
                counts.lost_by_all += 1;
                let kind = ("auto", "a true call", name);
                mistakes.entry(kind).or_default().push(shorten(&text));
            }
        }
    }
    print_table(&table, pieces.len(), count);
    print_mistakes(&mistakes, examples);
}

fn print_table(table: &BTreeMap<&str, Counts>, pieces: usize, calls: usize) {
    println!("| dialect | ran, of {pieces} pieces | lost by name, of {calls} | lost by auto |");
    println!("| --- | --- | --- | --- |");
    let mut sums = Counts::default();
    for (name, counts) in table {
        let Counts {
            ran,
            lost,
            lost_by_all,
        } = counts;
        println!("| {name} | {ran} | {lost} | {lost_by_all} |");
        if *name != "auto" {
            sums.ran += ran;
            sums.lost += lost;
            sums.lost_by_all += lost_by_all;
        }
    }
    println!(
        "| all by name | {} | {} | {} |",
        sums.ran, sums.lost, sums.lost_by_all
    );
}

fn print_mistakes(mistakes: &BTreeMap<MistakeKind, Vec<String>>, examples: usize) {
    println!("\n| read | text | of a call in | mistakes |\n| --- | --- | --- | --- |");
    for ((reach, kind, dialect), texts) in mistakes {
        println!("| {reach} | {kind} | {dialect} | {} |", texts.len());
    }
    for ((reach, kind, dialect), texts) in mistakes {
        for text in texts.iter().take(examples) {
            println!("\n{reach}, {kind}, {dialect}: {text:?}");
        }
    }
}

/// Reads a text and returns the calls that would run.
fn run_calls(reader: &CallReader, checker: &CallChecker, text: &str) -> Vec<NamedCall> {
    let mut draft = DraftResponse::default();
    let mut reader = reader.for_next_text();
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    text.clone_into(&mut draft.source);
    let checked = checker.check_all(&draft).into_iter();
    let complete = checked.filter(|call| call.state == CallState::Complete);
    complete.map(|call| (call.name, call.arguments)).collect()
}

/// Cuts text files below the folders into pieces, spread over all files.
fn collect_prose(folders: &[PathBuf], count: usize, dice: &mut Dice) -> Vec<String> {
    let mut files = Vec::new();
    for folder in folders {
        collect_files(folder, &mut files);
    }
    files.sort();
    let mut pieces = Vec::new();
    // A random file each time, so that the pieces come from all kinds of them.
    for _ in 0..count.saturating_mul(4) {
        if pieces.len() >= count || files.is_empty() {
            break;
        }
        let Ok(text) = fs::read_to_string(dice.pick(&files)) else {
            continue;
        };
        let paragraphs: Vec<&str> = text.split("\n\n").collect();
        let first = dice.roll(paragraphs.len());
        let mut piece = String::new();
        for paragraph in paragraphs.iter().skip(first) {
            if piece.len() + paragraph.len() > PIECE_BYTES {
                break;
            }
            piece.push_str(paragraph);
            piece.push_str("\n\n");
        }
        if piece.trim().len() > 40 {
            pieces.push(piece);
        }
    }
    pieces
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        if path.is_dir() {
            collect_files(&path, files);
        } else if suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix)) {
            files.push(path);
        }
    }
}

/// Makes a call with random arguments, whose values are text from files.
fn make_call(prose: &[String], set: TextSet, dice: &mut Dice) -> Call {
    let line = |dice: &mut Dice| {
        let piece = dice.pick(prose);
        let lines: Vec<&str> = piece.lines().filter(|line| !line.is_empty()).collect();
        (*dice.pick(&lines)).to_owned()
    };
    let (name, arguments) = match dice.roll(5) + if set.is_held_out { 5 } else { 0 } {
        0 => (
            "read_file",
            json!({"path": "src/main.rs", "start_line": dice.roll(90)}),
        ),
        1 => (
            "write_to_file",
            json!({"path": "a.md", "content": dice.pick(prose)}),
        ),
        2 => ("execute_command", json!({"command": line(dice)})),
        3 => (
            "search",
            json!({"query": line(dice), "options": {"max": dice.roll(9)}}),
        ),
        4 => ("get_time", json!({})),
        5 => (
            "getWeather",
            json!({"city": line(dice), "days": dice.roll(9)}),
        ),
        6 => (
            "send_email",
            json!({"to": "ann@example.org", "body": dice.pick(prose), "urgent": dice.roll(2) == 0}),
        ),
        7 => (
            "query-database",
            json!({"sql": line(dice), "limits": [dice.roll(9), 3]}),
        ),
        8 => ("calculator", json!({"expression": line(dice)})),
        _ => ("finish", json!({})),
    };
    Call {
        id: CallId::new("c1"),
        name: name.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    }
}

fn render(
    prose: &[String],
    dialect: &str,
    set: TextSet,
    tools: &ToolSet,
    dice: &mut Dice,
) -> String {
    let dialect = DialectSet::built_in()
        .find(dialect)
        .expect("a known dialect");
    // Short values: nobody quotes a whole file in a sentence.
    let call = loop {
        let call = make_call(prose, set, dice);
        if !matches!(call.name.as_str(), "write_to_file" | "send_email") {
            break call;
        }
    };
    dialect.render_calls(&[call], tools)
}

/// Makes a message that talks about a call and makes none.
fn make_chat(
    prose: &[String],
    names: &[&'static str],
    set: TextSet,
    tools: &ToolSet,
    dice: &mut Dice,
) -> Piece {
    let dialect = *dice.pick(names);
    let call = render(prose, dialect, set, tools, dice);
    if set.is_held_out {
        return make_held_out_chat(dialect, &call, dice);
    }
    let flat = call.replace('\n', " ");
    // A shorter run of backticks would end inside a call that holds such a run.
    let ticks = "`".repeat(longest_backtick_run(&call) + 1);
    let fence = if ticks.len() < 3 { "```" } else { &ticks };
    let (kind, shown) = match dice.roll(8) {
        0 => ("a fence", format!("{fence}\n{call}\n{fence}")),
        1 => ("an XML fence", format!("{fence}xml\n{call}\n{fence}\n")),
        2 => (
            "inline code",
            format!("The model writes {ticks} {flat} {ticks} for that."),
        ),
        3 => (
            "a quotation",
            format!("The model writes \"{flat}\" for that."),
        ),
        4 => ("a block quote", format!("> {}", call.replace('\n', "\n> "))),
        5 => ("an example", format!("<example>\n{call}\n</example>")),
        6 => (
            "a sentence",
            format!("To do so, write {flat} and wait for the result."),
        ),
        _ => (
            "indented code",
            format!("    {}", call.replace('\n', "\n    ")),
        ),
    };
    let text =
        format!("A call of {dialect} looks like this:\n\n{shown}\n\nThat is all there is to it.\n");
    Piece {
        kind,
        dialect,
        text,
    }
}

/// Makes a message of the held-out set that talks about a call and makes none.
fn make_held_out_chat(dialect: &'static str, call: &str, dice: &mut Dice) -> Piece {
    let flat = call.replace('\n', " ");
    let ticks = "`".repeat(longest_backtick_run(call) + 1);
    let fence = "~".repeat(
        3.max(
            call.lines()
                .filter(|line| line.contains("~~~"))
                .map(str::len)
                .max()
                .unwrap_or(0)
                + 1,
        ),
    );
    let (kind, text) = match dice.roll(8) {
        0 => (
            "a tilde fence",
            format!("For instance:\n\n{fence}text\n{call}\n{fence}\n\nNever send it twice."),
        ),
        1 => (
            "a fence in a list",
            format!(
                "1. First, the model answers:\n\n   {ticks}``\n   {}\n   {ticks}``\n\n2. Then the server runs it.",
                call.replace('\n', "\n   ")
            ),
        ),
        2 => (
            "inline code in a table",
            format!(
                "| format | example |\n| --- | --- |\n| {dialect} | {ticks} {flat} {ticks} |\n"
            ),
        ),
        3 => (
            "curly quotation marks",
            format!("Its output is “{flat}”, and the parser turns that into a call."),
        ),
        4 => (
            "a block quote",
            format!(
                "The log says:\n\n> user: hi\n> {}\n\nThat went wrong.",
                call.replace('\n', "\n> ")
            ),
        ),
        5 => (
            "a sentence",
            format!("A reply such as {flat} is what we expect from it, nothing else."),
        ),
        6 => (
            "parentheses",
            format!("The older format (that is {flat} in one line) still works for most servers."),
        ),
        _ => (
            "indented code",
            format!(
                "It prints\n\n\t{}\n\nand stops.",
                call.replace('\n', "\n\t")
            ),
        ),
    };
    Piece {
        kind,
        dialect,
        text,
    }
}

/// Returns the length of the longest run of backticks.
fn longest_backtick_run(text: &str) -> usize {
    let runs = text.split(|c| c != '`');
    runs.map(str::len).max().unwrap_or_default()
}

/// Makes a message with calls behind prose.
fn make_true_text(
    prose: &[String],
    dialect: &str,
    set: TextSet,
    tools: &ToolSet,
    dice: &mut Dice,
) -> TrueText {
    let row = DialectSet::built_in()
        .find(dialect)
        .expect("a known dialect");
    let calls: Vec<Call> = (0..=dice.roll(2))
        .map(|_| make_call(prose, set, dice))
        .collect();
    let before = *dice.pick(set.before);
    let is_on_line = before.is_empty() || before.ends_with('\n');
    let gap = match UNMARKED.contains(&dialect) && !is_on_line {
        true => "\n",
        false => "",
    };
    let text = format!("{before}{gap}{}", row.render_calls(&calls, tools));
    let meant = calls.into_iter().map(|call| (call.name, call.arguments));
    TrueText {
        text,
        meant: meant.collect(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(400).collect()
}
