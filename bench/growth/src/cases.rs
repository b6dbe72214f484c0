//! What is read: the dialects as they are meant to be, and what is hostile to each of them and to all.
//!
//! The hostile texts of a dialect are made from how it renders a call, so that a new dialect brings its own: the call is
//! rendered around a mark, and what stands before and behind the mark opens and closes a value.

use sabir_call::dialect::{Dialect, DialectSelection, DialectSet};
use sabir_call::{Call, CallId, ToolSet};
use sabir_streams::{WRITE, code, write};
use serde_json::{Map, Value};

use crate::selection;

/// Stands where a value will be put.
const MARK: &str = "MARK";

/// One text that grows.
pub(crate) struct Case {
    /// `dialect/what`; without blanks.
    pub(crate) name: String,
    /// `None`: no reader, only the least work.
    pub(crate) selection: Option<DialectSelection<'static>>,
    grows: Grows,
}

/// How a text of a given size is made.
enum Grows {
    /// One call of this dialect that writes so many bytes of source code.
    Value(&'static Dialect),
    /// One call of this dialect with so many bytes of small arguments, each with a name of its own.
    Arguments(&'static Dialect),
    /// Calls of this dialect, each with an argument of another name.
    Calls(&'static Dialect),
    /// This, then a piece as often as it fits, then that.
    Repeated(String, String, String),
}

impl Case {
    pub(crate) fn text(&self, size: usize, tools: &ToolSet) -> String {
        match &self.grows {
            Grows::Value(dialect) => render(dialect, &code(size), tools),
            Grows::Arguments(dialect) => asked(dialect, named(0, size / 24), tools),
            Grows::Calls(dialect) => {
                let mut text = String::new();
                for at in (0..).take_while(|_| size > 0) {
                    text.push_str(&asked(dialect, named(at, 1), tools));
                    text.push('\n');
                    if text.len() >= size {
                        break;
                    }
                }
                text
            }
            Grows::Repeated(before, piece, behind) => {
                format!("{before}{}{behind}", piece.repeat(size / piece.len().max(1)))
            }
        }
    }

    fn new(name: String, selection: DialectSelection<'static>, before: &str, piece: &str, behind: &str) -> Self {
        let grows = Grows::Repeated(before.to_owned(), piece.to_owned(), behind.to_owned());
        Self { name, selection: Some(selection), grows }
    }
}

/// All cases.
pub(crate) fn cases(tools: &ToolSet) -> Vec<Case> {
    let mut cases: Vec<Case> = DialectSet::built_in().iter().take(1).map(|dialect| least(dialect)).collect();
    for dialect in DialectSet::built_in().iter() {
        let one = selection(dialect.name);
        for (name, selection) in [("value", one), ("value-auto", DialectSet::built_in().all())] {
            let name = format!("{}/{name}", dialect.name);
            cases.push(Case { name, selection: Some(selection), grows: Grows::Value(dialect) });
        }
        for (name, grows) in [("arguments", Grows::Arguments(dialect)), ("calls-named", Grows::Calls(dialect))] {
            cases.push(Case { name: format!("{}/{name}", dialect.name), selection: Some(one), grows });
        }
        let calls = format!("{}\n", render(dialect, "x", tools));
        cases.push(Case::new(format!("{}/calls", dialect.name), one, "", &calls, ""));
        let marked = render(dialect, MARK, tools);
        if let Some((open, close)) = marked.split_once(MARK) {
            cases.extend(inside(dialect, open, close));
            cases.extend(outside(dialect, open));
        }
    }
    cases.extend(anywhere());
    cases
}

fn least(dialect: &'static Dialect) -> Case {
    Case { name: "memchr/value".to_owned(), selection: None, grows: Grows::Value(dialect) }
}

fn render(dialect: &Dialect, content: &str, tools: &ToolSet) -> String {
    asked(dialect, write(content).1, tools)
}

/// So many arguments, from that number on.
fn named(from: usize, count: usize) -> Map<String, Value> {
    (from..from + count).map(|at| (format!("name_{at}"), Value::from("x"))).collect()
}

fn asked(dialect: &Dialect, arguments: Map<String, Value>, tools: &ToolSet) -> String {
    let call = Call { id: CallId::new("1"), name: WRITE.to_owned(), arguments, dialect: None };
    dialect.render_calls([&call], tools)
}

/// Hostile values: `open` leads into one, `close` out of it.
fn inside(dialect: &Dialect, open: &str, close: &str) -> Vec<Case> {
    let first = first_token(close);
    let near = close.get(..close.floor_char_boundary(close.len().saturating_sub(1))).unwrap_or_default();
    let bare = open.trim_end_matches('"');
    let texts = [
        ("lt", open, "<".to_owned(), close),
        ("blanks", open, " ".to_owned(), close),
        ("lines", open, "\n".to_owned(), close),
        ("ticks", open, "`".to_owned(), close),
        ("escapes", open, "\\\\".to_owned(), close),
        // Candidates for the end of the value, with blanks, nothing, and words behind them.
        ("closers", open, format!("{first} "), close),
        ("closers-tight", open, first.to_owned(), close),
        ("closers-words", open, format!("{first} and "), close),
        ("closed-nearly", open, format!("{near} "), close),
        ("closed-again", open, format!("{close} "), ""),
        ("examples", open, format!("{open}x{close}\n"), close),
        ("closer-blanks", &format!("{open}{first}"), " ".to_owned(), close),
        ("unclosed", open, "let a = b < c; // \n".to_owned(), ""),
        // Where a value begins that is not a string, in dialects of JSON.
        ("arrays", bare, "[".to_owned(), ""),
        ("objects", bare, "{\"a\":".to_owned(), ""),
        ("numbers", bare, "1".to_owned(), ""),
    ];
    let case = |(name, before, piece, behind): (&str, &str, String, &str)| {
        Case::new(format!("{}/in-{name}", dialect.name), selection(dialect.name), before, &piece, behind)
    };
    texts.into_iter().map(case).collect()
}

/// Hostile prose: calls that begin and do not go on.
fn outside(dialect: &Dialect, open: &str) -> Vec<Case> {
    let part = |share: usize| open.get(..open.floor_char_boundary(open.len() * share / 8)).unwrap_or_default();
    let first = first_token(open);
    let cut = first.get(..first.floor_char_boundary(first.len().saturating_sub(1))).unwrap_or_default();
    let texts = [
        ("opened", open.to_owned()),
        ("opened-half", format!("{} ", part(4))),
        ("opened-nearly", format!("{} ", part(7))),
        ("marker", first.to_owned()),
        ("marker-cut", format!("{cut} ")),
        ("marker-words", format!("{first} is how a call begins. ")),
    ];
    let case = |(name, piece): (&str, String)| {
        Case::new(format!("{}/out-{name}", dialect.name), selection(dialect.name), "", &piece, "")
    };
    texts.into_iter().map(case).collect()
}

/// Hostile to whoever listens for all dialects.
fn anywhere() -> Vec<Case> {
    let texts = [
        ("prose", "", "Words and words, 1 < 2, [a], {b}, <b>c</b>, f(x) & \"d\".\n"),
        ("lt", "", "<"),
        ("lt-blank", "", "< "),
        ("near-hermes", "", "<tool_cal"),
        ("near-close", "", "</path"),
        ("near-kimi", "", "<|tool_call_beg"),
        ("near-deepseek", "", "<｜tool▁calls▁beg"),
        ("near-mistral", "", "[TOOL_CALL"),
        ("near-pythonic", "", "[write_to_file(path="),
        ("near-phi", "", "functool"),
        ("bars", "", "<|"),
        ("brackets", "", "["),
        ("braces", "", "{"),
        ("objects", "", "{\"a\":"),
        ("calls-of-python", "", "[f(a="),
        ("ticks", "", "`"),
        ("fences", "", "```json\n{\"name\": \"\n```\n"),
        ("quotes", "", "\""),
        ("backslashes", "\"", "\\"),
        ("lines", "", "\n"),
        ("blanks-in-candidate", "<write_to_file>", " "),
        ("lines-in-candidate", "<tool_call>", "\n"),
        ("blanks-in-list", "[", " "),
        ("blanks-in-object", "{", " "),
        ("thoughts", "", "<think>"),
        ("thought-closers", "<think>", "</think "),
        ("names", "<", "a"),
        ("attributes", "<write_to_file ", "a=\"b\" "),
        ("bare-name", "", "a"),
        ("bare-json", "{\"name\": \"write_to_file\", \"arguments\": {\"content\": \"", "a < b"),
        ("emoji", "", "🦀"),
    ];
    let case = |(name, before, piece): (&str, &str, &str)| {
        Case::new(format!("auto/{name}"), DialectSet::built_in().all(), before, piece, "")
    };
    texts.into_iter().map(case).collect()
}

/// The first tag, marker or sign of a text.
fn first_token(text: &str) -> &str {
    let text_end = text.len();
    let ended = |(at, c): (usize, char)| matches!(c, '>' | ']' | '}' | ')' | '"' | '\n').then(|| at + c.len_utf8());
    let opens = text.trim_start();
    let from = text_end - opens.len();
    let end = opens.char_indices().find_map(ended).unwrap_or(opens.len());
    text.get(..from + end).unwrap_or(text)
}
