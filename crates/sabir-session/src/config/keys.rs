//! Finds keys and values in the text of a configuration file, with their lines.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

/// A TOML file with its text, for messages about its lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TomlFile<'a> {
    /// The path, as the user named it or as it was found.
    pub(crate) path: &'a Path,
    /// The content.
    pub(crate) text: &'a str,
}

/// Formats the file and the line of a key, for a message. `keys` is the path to the key; an item of an array is named by its
/// index, counted from 0. Where the path leads to nothing, the line is that of the deepest key that exists.
pub(crate) fn locate_key(file: TomlFile<'_>, keys: &[&str]) -> String {
    let (line, _) = super::line_and_column(file.text, key_offset(file.text, keys));
    format!("{}, line {line}", file.path.display())
}

/// Returns the byte offset of the deepest key on a path that exists. A file that cannot be parsed gives 0.
pub(super) fn key_offset<K: AsRef<str>>(text: &str, keys: &[K]) -> usize {
    let mut at = 0;
    if let Ok(table) = DeTable::parse(text) {
        let root = DeValue::Table(table.into_inner());
        let mut value = &root;
        for key in keys {
            let Some(found) = find_child(value, key.as_ref()) else {
                break;
            };
            at = found.start;
            value = found.value;
        }
    }
    at
}

/// Returns the value at a path as it is written in the file, with the offset of its key.
pub(super) fn written_value(text: &str, keys: &[String]) -> Option<(usize, String)> {
    let root = DeValue::Table(DeTable::parse(text).ok()?.into_inner());
    let mut value = &root;
    let mut found = None;
    for key in keys {
        let next = find_child(value, key)?;
        value = next.value;
        found = Some(next);
    }
    let FoundKey { start, span, .. } = found?;
    Some((start, text.get(span)?.to_owned()))
}

/// Returns the names of the keys, or the indexes of the items, below a path.
pub(super) fn names_below(text: &str, keys: &[String]) -> Vec<String> {
    let Ok(table) = DeTable::parse(text) else {
        return Vec::new();
    };
    let root = DeValue::Table(table.into_inner());
    let mut value = &root;
    for key in keys {
        let Some(found) = find_child(value, key) else {
            return Vec::new();
        };
        value = found.value;
    }
    match value {
        DeValue::Table(table) => table.keys().map(|key| key.get_ref().to_string()).collect(),
        DeValue::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
        _ => Vec::new(),
    }
}

/// Returns the path of the deepest value that spans a byte offset.
pub(super) fn path_at(text: &str, offset: usize) -> Vec<String> {
    fn descend_to(value: &DeValue<'_>, offset: usize, path: &mut Vec<String>) -> bool {
        let mut visit = |key: String, start: usize, span: Range<usize>, value: &DeValue<'_>| {
            path.push(key);
            if descend_to(value, offset, path)
                || (start.min(span.start)..span.end).contains(&offset)
            {
                return true;
            }
            path.pop();
            false
        };
        match value {
            DeValue::Table(table) => table.iter().any(|(key, value)| {
                let name = key.get_ref().to_string();
                visit(name, key.span().start, value.span(), value.get_ref())
            }),
            DeValue::Array(items) => items.iter().enumerate().any(|(at, item)| {
                visit(
                    at.to_string(),
                    item.span().start,
                    item.span(),
                    item.get_ref(),
                )
            }),
            _ => false,
        }
    }
    let mut path = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        descend_to(&DeValue::Table(table.into_inner()), offset, &mut path);
    }
    path
}

/// An entry of a table or an item of an array.
struct FoundKey<'a, 'text> {
    /// The offset of the key, or of the item.
    start: usize,
    /// The bytes of the value.
    span: Range<usize>,
    value: &'a DeValue<'text>,
}

/// Finds an entry of a table, or an item of an array by its index.
fn find_child<'a, 'text>(value: &'a DeValue<'text>, key: &str) -> Option<FoundKey<'a, 'text>> {
    match value {
        DeValue::Table(table) => {
            let (known, value) = table.iter().find(|(known, _)| *known.get_ref() == *key)?;
            Some(FoundKey {
                start: known.span().start,
                span: value.span(),
                value: value.get_ref(),
            })
        }
        DeValue::Array(items) => {
            let item = items.get(key.parse::<usize>().ok()?)?;
            Some(FoundKey {
                start: item.span().start,
                span: item.span(),
                value: item.get_ref(),
            })
        }
        _ => None,
    }
}
