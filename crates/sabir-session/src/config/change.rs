//! Changes single values of the configuration file. Comments and the order of keys are kept.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::check::{check_text, format_path, has_secret};
use super::reference::{config_shape, describe_key};
use super::shape::{KeyShape, ValueKind};
use super::values::{find_shape, is_list, is_secret, parse_path};
use super::{keys, text};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::remember::{lock_folder, replace_file};

/// A change that was made. Its JSON is the output of `sabir config set --output json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigChange {
    /// The file.
    pub path: PathBuf,
    /// The key with its tables.
    pub key: String,
    /// The value before, as TOML; `None` if there was none.
    pub old: Option<String>,
    /// The value now; `None` if it was removed.
    pub new: Option<String>,
}

/// Sets a value in the named configuration file, or in the user's. Several words make a list.
///
/// # Errors
/// When the key is unknown, the value cannot be used, or the file cannot be written. The file is then unchanged.
pub fn set_value(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    key: &str,
    words: &[String],
) -> Result<ConfigChange, SessionError> {
    let path = parse_path(key)?;
    let KeyShape::Value(kind) = find_shape(&path)? else {
        return Err(SessionError::invalid(table_message(&path)));
    };
    let value = parse_value(&path, kind, words)?;
    change_file(environment, named, &path, |document| {
        insert_value(document.as_table_mut(), &path, config_shape(), value)
    })
}

/// Removes a key, or a table, from the named configuration file, or from the user's.
///
/// # Errors
/// When the key is unknown or not in the file, or the file cannot be written.
pub fn unset_value(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    key: &str,
) -> Result<ConfigChange, SessionError> {
    let path = parse_path(key)?;
    find_shape(&path)?;
    change_file(environment, named, &path, |document| {
        if remove_value(document.as_item_mut(), &path) {
            return Ok(());
        }
        let shown = format_path(&path);
        Err(SessionError::invalid(format!(
            "`{shown}` is not set in the file"
        )))
    })
}

/// Changes the file with `change`, unless that would bring mistakes into it.
fn change_file(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    path: &[String],
    change: impl FnOnce(&mut DocumentMut) -> Result<(), SessionError>,
) -> Result<ConfigChange, SessionError> {
    let file = environment.config_file(named).ok_or_else(|| {
        SessionError::invalid(
            "there is no home folder to keep a configuration in: use --config FILE",
        )
    })?;
    let _alone = lock_folder(&file)?;
    let before = if file.exists() {
        text::read_regular_file(&file)?.0
    } else {
        String::new()
    };
    let shown = file.display();
    let mut document: DocumentMut = before.parse().map_err(|_| {
        SessionError::invalid(format!(
            "{shown} is left as it is: it is not TOML; `sabir config check` says where"
        ))
    })?;
    change(&mut document)?;
    let after = document.to_string();
    // A mistake that was there before is not this change's.
    let known: Vec<_> = check_text(environment, &before)
        .into_iter()
        .map(|problem| problem.message)
        .collect();
    let new: Vec<_> = check_text(environment, &after)
        .into_iter()
        .map(|problem| problem.message)
        .filter(|message| !known.contains(message))
        .collect();
    if !new.is_empty() {
        let why = new.join("; ");
        return Err(SessionError::invalid(format!(
            "{shown} is left as it is: {why}"
        )));
    }
    write_file(environment, &file, named.is_none(), &after)
        .map_err(|error| SessionError::invalid(format!("{shown} cannot be written: {error}")))?;
    let value = |text: &str| {
        let (_, value) = keys::written_value(text, path)?;
        Some(if is_secret(path) {
            "\"(hidden)\"".to_owned()
        } else {
            value
        })
    };
    Ok(ConfigChange {
        key: format_path(path),
        old: value(&before),
        new: value(&after),
        path: file,
    })
}

/// Replaces the file. The user's own, and one with a key or token, is then readable by its owner only.
fn write_file(
    environment: &Environment,
    file: &Path,
    is_users: bool,
    text: &str,
) -> std::io::Result<()> {
    if file.exists() && (is_users || has_secret(text)) {
        // Before the new text is there: `replace_file` keeps the mode.
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))?;
    }
    replace_file(environment, file, text)
}

/// Builds the value of a kind from the words of a command line.
fn parse_value(path: &[String], kind: &ValueKind, words: &[String]) -> Result<Value, SessionError> {
    let wrong = || {
        let name = format_path(path);
        let example = describe_key(path).map_or("", |known| known.example);
        let kind = kind.with_article();
        SessionError::invalid(format!("`{name}` is {kind}: for example {example}"))
    };
    let is_text = |kind: &ValueKind| matches!(kind, ValueKind::Text | ValueKind::Choice(_));
    if let ValueKind::List(item) = kind {
        if let [word] = words
            && word.trim_start().starts_with('[')
            && let Ok(Value::Array(array)) = word.parse::<Value>()
        {
            return Ok(Value::Array(array));
        }
        let items = words
            .iter()
            .map(|word| parse_value(path, item, std::slice::from_ref(word)));
        return Ok(Value::Array(items.collect::<Result<Array, _>>()?));
    }
    let [word] = words else {
        return Err(wrong());
    };
    if is_text(kind) {
        // Text in quotes is TOML; any other text is used unchanged.
        let quoted = word
            .starts_with(['"', '\''])
            .then(|| word.parse::<Value>().ok())
            .flatten();
        return Ok(quoted
            .filter(Value::is_str)
            .unwrap_or_else(|| Value::from(word.as_str())));
    }
    if *kind == ValueKind::Switch && !matches!(word.trim(), "true" | "false") {
        return Ok(Value::from(word.trim().trim_matches(['"', '\''])));
    }
    let value = word.trim().parse::<Value>().map_err(|_| wrong())?;
    let fits = match kind {
        ValueKind::Boolean | ValueKind::Switch => value.is_bool(),
        ValueKind::Integer => value.is_integer(),
        ValueKind::Number => value.is_integer() || value.is_float(),
        kind => is_list(kind) || is_text(kind),
    };
    fits.then_some(value).ok_or_else(wrong)
}

/// Returns the message for a path that leads to a table.
fn table_message(path: &[String]) -> String {
    let name = format_path(path);
    let known = config_shape().at(path).and_then(|shape| match shape {
        KeyShape::Table(_) => shape.keys().next().map(str::to_owned),
        KeyShape::Named(below) => below.keys().next().map(|key| format!("NAME.{key}")),
        KeyShape::Tables(below) => below.keys().next().map(|key| format!("0.{key}")),
        KeyShape::Value(_) => None,
    });
    let key = known.unwrap_or_default();
    format!(
        "`{name}` is a table: set a key of it, such as {name}.{key}; `sabir help config` lists all keys"
    )
}

/// Sets a value in a table, and adds the tables on the way to it. A value that is replaced leaves its comment.
fn insert_value(
    table: &mut dyn TableLike,
    path: &[String],
    shape: &KeyShape,
    mut value: Value,
) -> Result<(), SessionError> {
    let unusable = || {
        SessionError::invalid(
            "the file has a value where a table belongs: `sabir config check` says where",
        )
    };
    let Some((key, rest)) = path.split_first() else {
        return Err(unusable());
    };
    if rest.is_empty() {
        match table.get_mut(key) {
            Some(item) => {
                if let Some(old) = item.as_value() {
                    *value.decor_mut() = old.decor().clone();
                }
                *item = Item::Value(value);
            }
            None => _ = table.insert(key, Item::Value(value)),
        }
        return Ok(());
    }
    let below = config_shape_below(shape, key);
    if let Some(KeyShape::Tables(entry_shape)) = below {
        let tables = table
            .entry(key)
            .or_insert(Item::ArrayOfTables(Default::default()));
        let tables = tables.as_array_of_tables_mut().ok_or_else(|| {
            SessionError::invalid(format!(
                "the file does not write `{key}` as [[{key}]]: edit it by hand"
            ))
        })?;
        let Some((at, rest)) = rest.split_first() else {
            return Err(unusable());
        };
        let at: usize = at.parse().map_err(|_| unusable())?;
        if at == tables.len() {
            tables.push(Table::new());
        }
        let count = tables.len();
        let entry = tables.get_mut(at).ok_or_else(|| {
            SessionError::invalid(format!(
                "the file has {count} entries of [[{key}]], counted from 0; {count} adds one"
            ))
        })?;
        return insert_value(entry, rest, entry_shape, value);
    }
    if !table.contains_key(key) {
        table.insert(key, new_table(shape, below, rest));
    }
    let inner = table
        .get_mut(key)
        .and_then(Item::as_table_like_mut)
        .ok_or_else(unusable)?;
    match below {
        Some(below) => insert_value(inner, rest, below, value),
        None => Err(unusable()),
    }
}

/// Returns the shape below a key.
fn config_shape_below<'a>(shape: &'a KeyShape, key: &str) -> Option<&'a KeyShape> {
    shape.at(&[key.to_owned()]).or(match shape {
        KeyShape::Tables(below) => Some(below),
        _ => None,
    })
}

/// Returns an empty table for a key that is missing: inside a named table or an entry it is written on one line.
fn new_table(shape: &KeyShape, below: Option<&KeyShape>, rest: &[String]) -> Item {
    let holds_values = matches!(below, Some(KeyShape::Table(_)));
    let is_detail = ["prices", "tags", "json"]
        .iter()
        .any(|name| shape.keys().any(|key| key == *name))
        && holds_values
        && rest.len() == 1;
    if is_detail {
        return Item::Value(Value::InlineTable(InlineTable::new()));
    }
    let mut table = Table::new();
    // Without a header of its own where it only holds other tables.
    table.set_implicit(rest.len() > 1);
    Item::Table(table)
}

/// Removes a value or a table. Returns false if there is none.
fn remove_value(item: &mut Item, path: &[String]) -> bool {
    let Some((key, rest)) = path.split_first() else {
        return false;
    };
    if let Some(tables) = item.as_array_of_tables_mut() {
        let Ok(at) = key.parse::<usize>() else {
            return false;
        };
        if rest.is_empty() {
            let is_there = at < tables.len();
            if is_there {
                tables.remove(at);
            }
            return is_there;
        }
        return tables
            .get_mut(at)
            .is_some_and(|entry| remove_from(entry, rest));
    }
    item.as_table_like_mut()
        .is_some_and(|table| remove_from(table, path))
}

/// Removes a value below a table.
fn remove_from(table: &mut dyn TableLike, path: &[String]) -> bool {
    match path {
        [] => false,
        [key] => table.remove(key).is_some(),
        [key, rest @ ..] => table
            .get_mut(key)
            .is_some_and(|item| remove_value(item, rest)),
    }
}
