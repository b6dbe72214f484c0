//! Checks a dialect table and builds the dialect from it.

use super::{DefineError, DialectTable, JsonTable, ParserKind, TagTable};
use crate::dialect::Dialect;
use crate::dialect::grammar::{
    GemmaCalls, Grammar, HeaderFormat, JsonCalls, JsonForm, NamePosition, PythonCalls, TagNotation,
};
use crate::dialect::grammar::{TagScheme, TaggedCalls};

/// The maximum length of a marker, in bytes: a reader may have to hold back that much.
const MARKER_CAP: usize = 64;
/// The minimum length of a marker, in bytes; shorter ones occur in prose by chance.
const MIN_MARKER_BYTES: usize = 3;
/// Tags that the reader takes for thoughts in every dialect.
const THOUGHTS: [&str; 2] = ["thinking", "think"];

// The conditions in words, as error messages quote them. Each belongs to a predicate below.
const MARKER: &str = "3 to 64 bytes without white space at its ends, with a letter or digit and another character in it; \
a `<`, `[`, `{` or `(` at its start needs its counterpart, and it is neither a closing tag nor a thought's";
const CLOSE: &str = "3 to 64 bytes without white space at its ends, with a letter or digit in it, and must not begin with \
what JSON or Python may hold there";
const QUOTE: &str =
    "2 to 64 bytes without white space, quotes or backslashes, that begin with no letter or digit";
const HEAD_END: &str = "1 to 64 bytes that do not begin with what a name holds (letters, digits, `_ - . :`), a space or `{`";
const TAG: &str = "a tag's name: letters, digits and `_ - .`, at most 64 bytes, and no thought's";
const WRAPPER: &str = "a tag's name other than those of `tags.call` and `tags.argument`";
const PREFIX: &str = "letters, digits and `_ - . :` with a `:` at the end";
const KEY: &str = "1 to 64 letters, digits or `_`";
const UNUSED: &str = "left out, since this machine does not read it";

/// Builds the dialect from a table.
pub(in crate::dialect) fn build_dialect(table: &DialectTable) -> Result<Dialect, DefineError> {
    for name in std::iter::once(&table.name).chain(&table.aliases) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        // These two words choose a protocol, so no dialect may have them as its name.
        let reserved = matches!(name.as_str(), "auto" | "native");
        if name.is_empty() || name.len() > MARKER_CAP || !name.chars().all(allowed) || reserved {
            return Err(DefineError::Name(name.clone()));
        }
    }
    // Leaked on purpose: built-in rows are static data, and both kinds share one type.
    let aliases: Vec<&'static str> = table.aliases.iter().map(|alias| leak_str(alias)).collect();
    Ok(Dialect {
        tokens: &[],
        thought: None,
        grammar: Box::leak(Box::new(build_grammar(table)?)),
        name: leak_str(&table.name),
        aliases: aliases.leak(),
        summary: leak_str(&table.summary),
        spec: "",
        instructions: table
            .lesson
            .as_deref()
            .map_or_else(|| default_instructions(table), leak_str),
    })
}

/// Returns the instructions for a parser's dialects in general.
fn default_instructions(table: &DialectTable) -> &'static str {
    let headed = table
        .json
        .as_ref()
        .is_some_and(|json| json.head_end.is_some());
    match table.machine {
        ParserKind::Tagged => {
            "Write each call in a tag with the tool's name, and in it one tag for each argument."
        }
        ParserKind::Json if headed => {
            "Write each call as the tool's name and a JSON object with its arguments, between the markers."
        }
        ParserKind::Json => {
            "Write each call as JSON with the tool's name and its arguments, between the markers."
        }
        ParserKind::Python => {
            "Write calls as one Python list, with keyword arguments only, between the markers."
        }
        ParserKind::Gemma | ParserKind::Harmony => {
            "Write each call between the markers, every string between two quote markers."
        }
    }
}

/// Builds the grammar for the parser that the table chooses. Harmony has channels and message
/// headers that a table cannot describe, so it is refused.
fn build_grammar(table: &DialectTable) -> Result<Grammar, DefineError> {
    check_unused_keys(table)?;
    match table.machine {
        ParserKind::Tagged => build_tagged(table).map(Grammar::Tagged),
        ParserKind::Json => build_json(table).map(Grammar::Json),
        ParserKind::Python => Ok(Grammar::Python(PythonCalls {
            open: checked_open(table)?,
            close: checked_close(table)?,
            list: true,
        })),
        ParserKind::Gemma => Ok(Grammar::Gemma(GemmaCalls {
            open: checked_open(table)?,
            close: checked_value(table, "close", &table.close, CLOSE, is_close_marker)?,
            quote: checked_value(table, "quote", &table.quote, QUOTE, is_quote)?,
        })),
        ParserKind::Harmony => Err(value_error(
            table,
            "machine",
            "`tagged`, `json`, `python` or `gemma`",
            "harmony",
        )),
    }
}

/// Rejects keys that the chosen parser does not read: such a mistake would otherwise go unnoticed.
fn check_unused_keys(table: &DialectTable) -> Result<(), DefineError> {
    let tagged = table.machine == ParserKind::Tagged;
    let given = [
        ("tags", table.tags.is_some() && !tagged, "a table"),
        (
            "json",
            table.json.is_some() && table.machine != ParserKind::Json,
            "a table",
        ),
        (
            "open",
            !table.open.is_empty() && tagged,
            table.open.as_str(),
        ),
        ("close", !table.close.is_empty() && tagged, &table.close),
        (
            "quote",
            !table.quote.is_empty() && table.machine != ParserKind::Gemma,
            &table.quote,
        ),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((key, _, found)) => Err(value_error(table, key, UNUSED, found)),
        None => Ok(()),
    }
}

/// Builds the grammar of calls in tags. Only the built-in dialect may use a tool's own name as its tag, since such tags collide most with
/// prose.
fn build_tagged(table: &DialectTable) -> Result<TaggedCalls, DefineError> {
    let none = TagTable::default();
    let tags = table.tags.as_ref().unwrap_or(&none);
    let call = checked_value(table, "tags.call", &tags.call, TAG, is_tag)?;
    let argument = match tags.argument.as_str() {
        "" => "",
        name => checked_value(
            table,
            "tags.argument",
            name,
            "another tag than `tags.call`, named as tags are",
            |name| is_tag(name) && name != call,
        )?,
    };
    let name_in = match tags.name_in.as_str() {
        "" => NamePosition::Attribute("name"),
        "=" => NamePosition::Equals,
        attribute => {
            let need = "`=`, or the attribute that holds the name: letters, digits, `_` and `-`";
            NamePosition::Attribute(checked_value(
                table,
                "tags.name_in",
                attribute,
                need,
                |text| is_word(text, "_-"),
            )?)
        }
    };
    let prefix = match tags.prefix.as_str() {
        "" => "",
        text => checked_value(table, "tags.prefix", text, PREFIX, |text| {
            text.ends_with(':') && is_word(text, "_-.:")
        })?,
    };
    let wrapper = tags.wrapper.as_deref().map(|name| {
        checked_value(table, "tags.wrapper", name, WRAPPER, |name| {
            is_word(name, "_-.:") && !THOUGHTS.contains(&name) && name != call && name != argument
        })
    });
    let wrappers: &'static [&'static str] =
        wrapper.transpose()?.map_or(&[], |name| vec![name].leak());
    if tags.each && wrappers.is_empty() {
        return Err(value_error(
            table,
            "tags.each",
            "left out where there is no `tags.wrapper`",
            "true",
        ));
    }
    let typed = None;
    Ok(TaggedCalls {
        frames: &[],
        channels: false,
        header_opens: false,
        exact_values: false,
        sections_of_text: false,
        notation: TagNotation::Angle,
        tags: TagScheme::Fixed {
            call,
            argument,
            call_name: name_in,
            argument_name: name_in,
            typed,
        },
        wrappers,
        each: tags.each,
        sections: &[],
        prefixes: vec![prefix].leak(),
    })
}

/// Builds the grammar of JSON between markers. Calls without any marker cannot be defined.
fn build_json(table: &DialectTable) -> Result<JsonCalls, DefineError> {
    let none = JsonTable::default();
    let json = table.json.as_ref().unwrap_or(&none);
    let end = json
        .head_end
        .as_deref()
        .map(|end| checked_value(table, "json.head_end", end, HEAD_END, is_head_end));
    let head = end.transpose()?.map(|end| HeaderFormat {
        end,
        prefix: "",
        id: None,
        fenced: false,
        id_first: false,
        echo: false,
    });
    let name_key = json
        .name_key
        .as_deref()
        .map(|key| checked_value(table, "json.name_key", key, KEY, |key| is_word(key, "_")));
    let arguments_key = json.arguments_key.as_deref().map(|key| {
        checked_value(table, "json.arguments_key", key, KEY, |key| {
            is_word(key, "_")
        })
    });
    let keys = (
        name_key.transpose()?.unwrap_or("name"),
        arguments_key.transpose()?.unwrap_or("arguments"),
        None,
    );
    // A name before the JSON leaves no place for an array of calls.
    if head.is_some() && json.list {
        return Err(value_error(
            table,
            "json.list",
            "left out where `json.head_end` is given",
            "true",
        ));
    }
    let form = JsonForm {
        open: checked_open(table)?,
        head,
        close: checked_close(table)?,
        stop: false,
        named_by_key: false,
    };
    Ok(JsonCalls {
        section: None,
        forms: vec![form].leak(),
        keys,
        list: json.list,
        methods: false,
        bare: false,
    })
}

/// Returns the opening marker, which may not be missing.
fn checked_open(table: &DialectTable) -> Result<&'static str, DefineError> {
    checked_value(table, "open", &table.open, MARKER, is_marker)
}

/// Returns the closing marker, which may be missing: the end of the JSON or list then ends the
/// call.
fn checked_close(table: &DialectTable) -> Result<&'static str, DefineError> {
    if table.close.is_empty() {
        Ok("")
    } else {
        checked_value(table, "close", &table.close, CLOSE, is_close_marker)
    }
}

/// Returns true for a text that is unlikely in prose and does not hide other markup.
fn is_marker(text: &str) -> bool {
    let counterpart = match text.chars().next() {
        Some('<') => Some('>'),
        Some('[') => Some(']'),
        Some('{') => Some('}'),
        Some('(') => Some(')'),
        _ => None,
    };
    // An opening bracket without its counterpart could swallow the markup of another dialect.
    let tag = text
        .strip_prefix('<')
        .and_then(|text| text.strip_suffix('>'))
        .unwrap_or_default();
    is_standalone(text)
        && text
            .chars()
            .any(|c| !c.is_alphanumeric() && !c.is_whitespace() && c != '_')
        && counterpart.is_none_or(|counterpart| text.contains(counterpart))
        && !text.starts_with("</")
        && !text.starts_with(['"', '\'', '`', '~', '\\', '>'])
        && !THOUGHTS.contains(&tag)
}

/// Returns true for a text that cannot continue the value before it.
fn is_close_marker(text: &str) -> bool {
    is_standalone(text)
        && !text
            // These characters can continue a JSON or Python value, so a marker that begins with
            // one would be ambiguous there.
            .starts_with(|c: char| {
                c.is_alphanumeric() || "{}[](),:;\"'`_-+.\\=".contains(c) && !text.starts_with("[/")
            })
}

/// Returns true for a text of a marker's length that can be found in prose: no white space at its
/// ends, no control characters, and something more than punctuation.
fn is_standalone(text: &str) -> bool {
    (MIN_MARKER_BYTES..=MARKER_CAP).contains(&text.len())
        && text.trim() == text
        && !text.contains(|c: char| c.is_control() || c == '`')
        && text.chars().any(char::is_alphanumeric)
}

/// Returns true for a quote marker with which no literal begins, so that the first character distinguishes a string from a number or a
/// list.
fn is_quote(text: &str) -> bool {
    (2..=MARKER_CAP).contains(&text.len())
        && !text.contains(|c: char| {
            c.is_control() || c.is_whitespace() || matches!(c, '\'' | '\\' | '`')
        })
        && !text.starts_with(|c: char| c.is_alphanumeric() || "\"{}[],:-+._".contains(c))
}

/// Returns true for a text that ends a name: it must not begin with a character that a name may
/// contain.
fn is_head_end(text: &str) -> bool {
    let odd = |c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ' ' | '\t' | '{' | '`' | '"')
    };
    (1..=MARKER_CAP).contains(&text.len()) && !text.starts_with(odd)
}

/// Returns true for a tag's name that is not a thought's.
fn is_tag(text: &str) -> bool {
    is_word(text, "_-.") && !THOUGHTS.contains(&text)
}

/// Returns true for ASCII letters, digits and these marks, with a letter at the start.
fn is_word(text: &str, marks: &str) -> bool {
    text.len() <= MARKER_CAP
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

/// Returns the text with a static lifetime if it fulfils the condition.
///
/// # Errors
/// Names the key, the condition in words, and the text that was found.
fn checked_value(
    table: &DialectTable,
    key: &'static str,
    text: &str,
    need: &'static str,
    holds: impl FnOnce(&str) -> bool,
) -> Result<&'static str, DefineError> {
    if holds(text) {
        Ok(leak_str(text))
    } else {
        Err(value_error(table, key, need, text))
    }
}

/// Makes the error of one value of a table.
fn value_error(
    table: &DialectTable,
    key: &'static str,
    need: &'static str,
    found: &str,
) -> DefineError {
    DefineError::Value {
        dialect: table.name.clone(),
        key,
        need,
        found: found.to_owned(),
    }
}

/// Returns a copy that lives as long as the process, like every definition.
fn leak_str(text: &str) -> &'static str {
    text.to_owned().leak()
}
