//! Counts the calls that run although none was made, and the true calls that are lost, in every dialect.
//!
//! `confusion FOLDER… [--pieces N]` cuts the text files below the folders (Markdown, HTML, XML, source code) into N
//! pieces, and makes as many pieces of chat about tool calls. Each piece is read by each dialect by name and by all
//! at once (`auto`); no call may run in any. Then it renders as many true calls between pieces of the prose, each
//! read by its own dialect and by `auto`; every call must run, with exactly its arguments. It prints a Markdown
//! table, and an example of each kind of mistake. `bench/confusion/run` builds and runs it.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "an example that prints a table, and ends at the first broken assumption"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sabir_call::dialect::{DialectSelection, DialectSet};
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

/// The largest piece of a file, in bytes.
const PIECE_BYTES: usize = 1500;
/// The files that are cut into pieces.
const SUFFIXES: [&str; 9] = [
    "md", "html", "xml", "rs", "txt", "json", "toml", "py", "svg",
];

/// The counts of one dialect.
#[derive(Default)]
struct Counts {
    ran: usize,
    lost: usize,
    lost_by_all: usize,
    example: Option<String>,
    lost_example: Option<String>,
}

/// The name and the arguments of a call.
type NamedCall = (String, Map<String, Value>);

/// A message with calls, and the calls that were rendered into it.
struct TrueText {
    text: String,
    meant: Vec<NamedCall>,
}

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
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--pieces" => {
                count = arguments
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(count)
            }
            folder => folders.push(PathBuf::from(folder)),
        }
    }
    let tools = ToolSet::from_json(TOOLS).expect("valid tools");
    let checker = CallChecker::new(tools.clone());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let prose = collect_prose(&folders, count, &mut dice);
    let dialects = DialectSet::built_in();
    let chat: Vec<String> = (0..count)
        .map(|_| make_chat(&prose, &tools, &mut dice))
        .collect();
    let mut table: BTreeMap<&str, Counts> = BTreeMap::new();
    let names: Vec<&str> = dialects.iter().map(|dialect| dialect.name).collect();
    for name in names.iter().copied().chain(["auto"]) {
        let counts = table.entry(name).or_default();
        for piece in prose.iter().chain(&chat) {
            let selection = dialects.select(name).expect("a known dialect");
            let ran = run_calls(selection, &checker, piece);
            if !ran.is_empty() {
                counts.ran += 1;
                counts.example.get_or_insert_with(|| shorten(piece));
            }
        }
    }
    for name in names {
        let counts = table.entry(name).or_default();
        let dialect = dialects.find(name).expect("a known dialect");
        for _ in 0..count {
            let TrueText { text, meant } = make_true_text(&prose, name, &tools, &mut dice);
            let is_read = |selection| run_calls(selection, &checker, &text) == meant;
            if !is_read(dialects.only(dialect)) {
                counts.lost += 1;
                counts.lost_example.get_or_insert_with(|| shorten(&text));
            }
            counts.lost_by_all += usize::from(!is_read(dialects.all()));
        }
    }
    print_table(&table, prose.len() + chat.len(), count);
}

fn print_table(table: &BTreeMap<&str, Counts>, pieces: usize, calls: usize) {
    println!("| dialect | ran, of {pieces} pieces | lost by name, of {calls} | lost by auto |");
    println!("| --- | --- | --- | --- |");
    for (name, counts) in table {
        let Counts {
            ran,
            lost,
            lost_by_all,
            ..
        } = counts;
        println!("| {name} | {ran} | {lost} | {lost_by_all} |");
    }
    for (name, counts) in table {
        for (what, example) in [("ran", &counts.example), ("lost", &counts.lost_example)] {
            if let Some(example) = example {
                println!("\n{name}, {what}: {example:?}");
            }
        }
    }
}

/// Reads a text and returns the calls that would run.
fn run_calls(selection: DialectSelection<'_>, checker: &CallChecker, text: &str) -> Vec<NamedCall> {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(selection, checker.tools());
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
fn make_call(prose: &[String], dice: &mut Dice) -> Call {
    let line = |dice: &mut Dice| {
        let piece = dice.pick(prose);
        let lines: Vec<&str> = piece.lines().filter(|line| !line.is_empty()).collect();
        (*dice.pick(&lines)).to_owned()
    };
    let (name, arguments) = match dice.roll(5) {
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
        _ => ("get_time", json!({})),
    };
    Call {
        id: CallId::new("c1"),
        name: name.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    }
}

fn render(prose: &[String], dialect: &str, tools: &ToolSet, dice: &mut Dice) -> String {
    let dialect = DialectSet::built_in()
        .find(dialect)
        .expect("a known dialect");
    // Short values: nobody quotes a whole file in a sentence.
    let call = loop {
        let call = make_call(prose, dice);
        if call.name != "write_to_file" {
            break call;
        }
    };
    dialect.render_calls(&[call], tools)
}

/// Makes a message that talks about a call and makes none.
fn make_chat(prose: &[String], tools: &ToolSet, dice: &mut Dice) -> String {
    let names: Vec<&str> = DialectSet::built_in()
        .iter()
        .map(|dialect| dialect.name)
        .collect();
    let name = *dice.pick(&names);
    let call = render(prose, name, tools, dice);
    let flat = call.replace('\n', " ");
    let shown = match dice.roll(8) {
        0 => format!("```\n{call}\n```"),
        1 => format!("```xml\n{call}\n```\n"),
        2 => format!("The model writes `{flat}` for that."),
        3 => format!("The model writes \"{flat}\" for that."),
        4 => format!("> {}", call.replace('\n', "\n> ")),
        5 => format!("<example>\n{call}\n</example>"),
        6 => format!("To do so, write {flat} and wait for the result."),
        _ => format!("    {}", call.replace('\n', "\n    ")),
    };
    format!("A call of {name} looks like this:\n\n{shown}\n\nThat is all there is to it.\n")
}

/// Makes a message with calls behind prose.
fn make_true_text(prose: &[String], dialect: &str, tools: &ToolSet, dice: &mut Dice) -> TrueText {
    const BEFORE: [&str; 8] = [
        "",
        "I will look at it.\n\n",
        "Let me check the file first:\n",
        "Now I know what `x` means. Next: ",
        "1. Read the file\n2. Change it\n\n",
        "It's in \"main\" (see the docs).\n",
        "```rust\nfn main() {}\n```\n\nI will run it.\n\n",
        "**Step 1**: look.\n\n",
    ];
    let row = DialectSet::built_in()
        .find(dialect)
        .expect("a known dialect");
    let calls: Vec<Call> = (0..=dice.roll(2)).map(|_| make_call(prose, dice)).collect();
    let text = format!("{}{}", dice.pick(&BEFORE), row.render_calls(&calls, tools));
    let meant = calls.into_iter().map(|call| (call.name, call.arguments));
    TrueText {
        text,
        meant: meant.collect(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(400).collect()
}
