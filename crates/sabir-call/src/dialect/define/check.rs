//! The rules that a table must keep, and the row that it then is.

use super::{DefineError, DialectTable, JsonTable, Machine, TagTable};
use crate::dialect::Dialect;
use crate::dialect::grammar::{GemmaCalls, Grammar, Head, JsonCalls, JsonForm, NameIn, Notation, PythonCalls};
use crate::dialect::grammar::{Tagged, Tags};

/// The longest marker, in bytes: as much as a reader may have to hold back.
const MARKER_CAP: usize = 64;
/// The shortest one that words do not hold by chance, in bytes.
const MARKER_LEAST: usize = 3;
/// Tags that the reader takes for thoughts wherever they stand.
const THOUGHTS: [&str; 2] = ["thinking", "think"];

const MARKER: &str = "3 to 64 bytes without white space at its ends, with a letter or digit and another character in it; \
a `<`, `[`, `{` or `(` at its start needs its counterpart, and it is neither a closing tag nor a thought's";
const CLOSE: &str = "3 to 64 bytes without white space at its ends, with a letter or digit in it, and must not begin with \
what JSON or Python may hold there";
const QUOTE: &str = "2 to 64 bytes without white space, quotes or backslashes, that begin with no letter or digit";
const HEAD_END: &str =
    "1 to 64 bytes that do not begin with what a name holds (letters, digits, `_ - . :`), a space or `{`";
const TAG: &str = "a tag's name: letters, digits and `_ - .`, at most 64 bytes, and no thought's";
const WRAPPER: &str = "a tag's name other than those of `tags.call` and `tags.argument`";
const PREFIX: &str = "letters, digits and `_ - . :` with a `:` at the end";
const KEY: &str = "1 to 64 letters, digits or `_`";
const UNUSED: &str = "left out, since this machine does not read it";

/// The row that a table is.
pub(super) fn row(table: &DialectTable) -> Result<Dialect, DefineError> {
    for name in std::iter::once(&table.name).chain(&table.aliases) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let reserved = matches!(name.as_str(), "auto" | "native");
        if name.is_empty() || name.len() > MARKER_CAP || !name.chars().all(allowed) || reserved {
            return Err(DefineError::Name(name.clone()));
        }
    }
    let aliases: Vec<&'static str> = table.aliases.iter().map(|alias| leak(alias)).collect();
    Ok(Dialect {
        tokens: &[],
        thought: None,
        grammar: grammar(table)?,
        name: leak(&table.name),
        aliases: aliases.leak(),
        summary: leak(&table.summary),
        spec: "",
        lesson: table.lesson.as_deref().map_or_else(|| lesson(table), leak),
    })
}

/// How a machine's dialects are taught in general.
fn lesson(table: &DialectTable) -> &'static str {
    let headed = table.json.as_ref().is_some_and(|json| json.head_end.is_some());
    match table.machine {
        Machine::Tagged => "Write each call in a tag with the tool's name, and in it one tag for each argument.",
        Machine::Json if headed => {
            "Write each call as the tool's name and a JSON object with its arguments, between the markers."
        }
        Machine::Json => "Write each call as JSON with the tool's name and its arguments, between the markers.",
        Machine::Python => "Write calls as one Python list, with keyword arguments only, between the markers.",
        Machine::Gemma | Machine::Harmony => {
            "Write each call between the markers, every string between two quote markers."
        }
    }
}

fn grammar(table: &DialectTable) -> Result<Grammar, DefineError> {
    unused(table)?;
    match table.machine {
        Machine::Tagged => tagged(table).map(Grammar::Tagged),
        Machine::Json => json(table).map(Grammar::Json),
        Machine::Python => Ok(Grammar::Python(PythonCalls { open: open(table)?, close: close(table)? })),
        Machine::Gemma => Ok(Grammar::Gemma(GemmaCalls {
            open: open(table)?,
            close: checked(table, "close", &table.close, CLOSE, is_close)?,
            quote: checked(table, "quote", &table.quote, QUOTE, is_quote)?,
        })),
        Machine::Harmony => Err(wrong(table, "machine", "`tagged`, `json`, `python` or `gemma`", "harmony")),
    }
}

/// A key that nothing reads is a mistake that nobody would notice.
fn unused(table: &DialectTable) -> Result<(), DefineError> {
    let tagged = table.machine == Machine::Tagged;
    let given = [
        ("tags", table.tags.is_some() && !tagged, "a table"),
        ("json", table.json.is_some() && table.machine != Machine::Json, "a table"),
        ("open", !table.open.is_empty() && tagged, table.open.as_str()),
        ("close", !table.close.is_empty() && tagged, &table.close),
        ("quote", !table.quote.is_empty() && table.machine != Machine::Gemma, &table.quote),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((key, _, found)) => Err(wrong(table, key, UNUSED, found)),
        None => Ok(()),
    }
}

fn tagged(table: &DialectTable) -> Result<Tagged, DefineError> {
    let none = TagTable::default();
    let tags = table.tags.as_ref().unwrap_or(&none);
    let call = checked(table, "tags.call", &tags.call, TAG, is_tag)?;
    let argument = match tags.argument.as_str() {
        "" => "",
        name => checked(table, "tags.argument", name, "another tag than `tags.call`, named as tags are", |name| {
            is_tag(name) && name != call
        })?,
    };
    let name_in = match tags.name_in.as_str() {
        "" => NameIn::Attribute("name"),
        "=" => NameIn::Equals,
        attribute => {
            let need = "`=`, or the attribute that holds the name: letters, digits, `_` and `-`";
            NameIn::Attribute(checked(table, "tags.name_in", attribute, need, |text| is_word(text, "_-"))?)
        }
    };
    let prefix = match tags.prefix.as_str() {
        "" => "",
        text => checked(table, "tags.prefix", text, PREFIX, |text| text.ends_with(':') && is_word(text, "_-.:"))?,
    };
    let wrapper = tags.wrapper.as_deref().map(|name| {
        checked(table, "tags.wrapper", name, WRAPPER, |name| {
            is_word(name, "_-.:") && !THOUGHTS.contains(&name) && name != call && name != argument
        })
    });
    let wrappers: &'static [&'static str] = wrapper.transpose()?.map_or(&[], |name| vec![name].leak());
    if tags.each && wrappers.is_empty() {
        return Err(wrong(table, "tags.each", "left out where there is no `tags.wrapper`", "true"));
    }
    let (call_name, argument_name, typed) = (name_in, name_in, None);
    Ok(Tagged {
        frames: &[],
        notation: Notation::Angle,
        tags: Tags::Fixed { call, argument, call_name, argument_name, typed },
        wrappers,
        each: tags.each,
        sections: &[],
        prefixes: vec![prefix].leak(),
    })
}

fn json(table: &DialectTable) -> Result<JsonCalls, DefineError> {
    let none = JsonTable::default();
    let json = table.json.as_ref().unwrap_or(&none);
    let end = json.head_end.as_deref().map(|end| checked(table, "json.head_end", end, HEAD_END, is_head_end));
    let head = end.transpose()?.map(|end| Head { end, prefix: "", id: None, fenced: false });
    let name_key =
        json.name_key.as_deref().map(|key| checked(table, "json.name_key", key, KEY, |key| is_word(key, "_")));
    let arguments_key = json
        .arguments_key
        .as_deref()
        .map(|key| checked(table, "json.arguments_key", key, KEY, |key| is_word(key, "_")));
    let keys = (name_key.transpose()?.unwrap_or("name"), arguments_key.transpose()?.unwrap_or("arguments"), None);
    if head.is_some() && json.list {
        return Err(wrong(table, "json.list", "left out where `json.head_end` is given", "true"));
    }
    let form = JsonForm { open: open(table)?, head, close: close(table)?, stop: false };
    Ok(JsonCalls { section: None, forms: vec![form].leak(), keys, list: json.list, methods: false, bare: false })
}

fn open(table: &DialectTable) -> Result<&'static str, DefineError> {
    checked(table, "open", &table.open, MARKER, is_marker)
}

fn close(table: &DialectTable) -> Result<&'static str, DefineError> {
    if table.close.is_empty() { Ok("") } else { checked(table, "close", &table.close, CLOSE, is_close) }
}

/// A text that is no prose by chance, and does not hide other markup.
fn is_marker(text: &str) -> bool {
    let counterpart = match text.chars().next() {
        Some('<') => Some('>'),
        Some('[') => Some(']'),
        Some('{') => Some('}'),
        Some('(') => Some(')'),
        _ => None,
    };
    let tag = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or_default();
    is_apart(text)
        && text.chars().any(|c| !c.is_alphanumeric() && !c.is_whitespace() && c != '_')
        && counterpart.is_none_or(|counterpart| text.contains(counterpart))
        && !text.starts_with("</")
        && !text.starts_with(['"', '\'', '`', '~', '\\', '>'])
        && !THOUGHTS.contains(&tag)
}

fn is_close(text: &str) -> bool {
    is_apart(text)
        && !text
            .starts_with(|c: char| c.is_alphanumeric() || "{}[](),:;\"'`_-+.\\=".contains(c) && !text.starts_with("[/"))
}

fn is_apart(text: &str) -> bool {
    (MARKER_LEAST..=MARKER_CAP).contains(&text.len())
        && text.trim() == text
        && !text.contains(|c: char| c.is_control() || c == '`')
        && text.chars().any(char::is_alphanumeric)
}

fn is_quote(text: &str) -> bool {
    (2..=MARKER_CAP).contains(&text.len())
        && !text.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '\'' | '\\' | '`'))
        && !text.starts_with(|c: char| c.is_alphanumeric() || "\"{}[],:-+._".contains(c))
}

fn is_head_end(text: &str) -> bool {
    let odd = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ' ' | '\t' | '{' | '`' | '"');
    (1..=MARKER_CAP).contains(&text.len()) && !text.starts_with(odd)
}

fn is_tag(text: &str) -> bool {
    is_word(text, "_-.") && !THOUGHTS.contains(&text)
}

/// ASCII letters, digits and these marks, with a letter at the start.
fn is_word(text: &str, marks: &str) -> bool {
    text.len() <= MARKER_CAP
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

fn checked(
    table: &DialectTable,
    key: &'static str,
    text: &str,
    need: &'static str,
    holds: impl FnOnce(&str) -> bool,
) -> Result<&'static str, DefineError> {
    if holds(text) { Ok(leak(text)) } else { Err(wrong(table, key, need, text)) }
}

fn wrong(table: &DialectTable, key: &'static str, need: &'static str, found: &str) -> DefineError {
    DefineError::Value { dialect: table.name.clone(), key, need, found: found.to_owned() }
}

/// Definitions live as long as the process.
fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}
