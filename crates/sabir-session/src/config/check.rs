//! Finds every mistake in a configuration file at once, with its line.
//!
//! Loading a configuration stops at the first mistake. The check continues: reported keys are left
//! out, and the rest is loaded again, until there are no more mistakes.

use std::path::Path;
use std::sync::Arc;

use sabir_call::nearest_candidate;
use sabir_policy::PolicyRules;
use sabir_wire::Wire;
use serde::Serialize;
use toml::de::{DeTable, DeValue};
use toml_edit::{DocumentMut, Item, TableLike};

use super::reference::{all_keys, config_shape, describe_key};
use super::shape::{KeyShape, NAME, ValueKind};
use super::{Config, ConfigProblem, keys, line_and_column, redacted_message, text};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::{checkpointer, dialect_tables, modes};

/// The most rounds of loading and leaving out. Each round reports something new.
const MAX_ROUNDS: usize = 500;

/// The mistakes in a configuration file. Its JSON is the output of `sabir config check --output json`.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigCheck {
    /// The file; `None` without a home folder.
    pub path: Option<String>,
    /// True if it exists.
    pub found: bool,
    /// The mistakes, in the order of the file.
    pub problems: Vec<LocatedProblem>,
}

/// A mistake with its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LocatedProblem {
    /// The line, counted from 1; `None` for a mistake of the whole file.
    pub line: Option<usize>,
    /// The column, counted from 1.
    pub column: Option<usize>,
    /// The key with its tables, such as `subtasks.at_once`; empty if no key is at fault.
    pub key: String,
    /// The message.
    pub message: String,
}

/// Checks the named configuration file, or the user's.
///
/// # Errors
/// When the file cannot be read, or was named and does not exist.
pub fn check_config(
    environment: &Arc<Environment>,
    named: Option<&Path>,
) -> Result<ConfigCheck, SessionError> {
    let path = environment.config_file(named);
    let shown = path.as_ref().map(|path| path.display().to_string());
    let Some(path) = path.filter(|path| named.is_some() || path.exists()) else {
        return Ok(ConfigCheck {
            path: shown,
            found: false,
            problems: Vec::new(),
        });
    };
    let (content, mode) = text::read_regular_file(&path)?;
    let mut problems = check_text(environment, &content);
    problems.extend(check_mode(&content, mode));
    Ok(ConfigCheck {
        path: shown,
        found: true,
        problems,
    })
}

/// Reports a file that holds a key or a token and can be read by others.
fn check_mode(content: &str, mode: u32) -> Option<LocatedProblem> {
    (mode & 0o077 != 0 && has_secret(content)).then(|| LocatedProblem {
        line: None,
        column: None,
        key: String::new(),
        message: format!(
            "the file holds a key or a token, and others may read it (mode {:03o}): chmod 600",
            mode & 0o777
        ),
    })
}

/// Returns true if a configuration holds a key or a token itself.
pub(super) fn has_secret(content: &str) -> bool {
    Config::parse_groups(content).is_ok_and(|config| {
        let own = &config.own;
        own.providers.has_key()
            || own.gateway.has_token()
            || own.telemetry.has_key()
            || own.mcp.has_secret()
    })
}

/// Finds all mistakes in the text of a configuration.
pub fn check_text(environment: &Arc<Environment>, content: &str) -> Vec<LocatedProblem> {
    let root = match DeTable::parse(content) {
        Ok(table) => DeValue::Table(table.into_inner()),
        Err(error) => return vec![located_error(content, &error)],
    };
    let Ok(mut document) = content.parse::<DocumentMut>() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    check_shape(&root, config_shape(), &mut Vec::new(), &mut found);
    for problem in &found {
        remove_key(document.as_table_mut(), &problem.keys);
    }
    let mut located: Vec<_> = found
        .iter()
        .map(|problem| locate(content, problem))
        .collect();
    for _ in 0..MAX_ROUNDS {
        let rest = document.to_string();
        let found = match Config::parse_groups(&rest) {
            Ok(config) => find_all_problems(config, environment),
            Err(error) => {
                let keys = keys::path_at(&rest, error.span().map_or(0, |span| span.start));
                let why = redacted_message(&rest, &error);
                vec![ConfigProblem { keys, why }]
            }
        };
        let mut is_changed = false;
        for problem in &found {
            let problem_at = locate(content, problem);
            if !located.contains(&problem_at) {
                located.push(problem_at);
            }
            is_changed |= remove_key(document.as_table_mut(), &problem.keys);
        }
        if !is_changed {
            break;
        }
    }
    located.sort();
    located
}

/// Finds the values that cannot be used, including those that loading leaves to their first use.
fn find_all_problems(mut config: Config, environment: &Arc<Environment>) -> Vec<ConfigProblem> {
    let mut problems = config.find_problems(environment.home_folder.as_deref());
    let tables = std::mem::take(&mut config.own.dialects);
    config.dialects = environment.dialects.clone();
    problems.extend(dialect_tables::define_tables(&tables, &mut config.dialects));
    config.environment = Arc::clone(environment);
    problems.extend(config.own.providers.find_incomplete(environment));
    let mut note = |keys: &[&str], why: String| problems.push(ConfigProblem::new(keys, why));
    if let Err(error) = config.approval_timeout() {
        note(&["ask_timeout"], error.to_string());
    }
    if let Err(error) = checkpointer::store_limits(&config) {
        note(&["checkpoints_mib"], error.to_string());
    }
    if let Err(error) = modes::file_access_bounds(&PolicyRules::default(), &config) {
        note(&["ignore_files"], error.to_string());
    }
    if let Some(model) = &config.model
        && !model.contains("://")
        && let Err(error) = config.split_model_name(model)
    {
        note(&["model"], error.to_string());
    }
    let check_protocol = |name: &str| {
        let is_known = name == "native" || config.dialects.find(name).is_some();
        (!is_known).then(|| dialect_tables::unknown_dialect(&config.dialects, name, "native, "))
    };
    if let Some(error) = config.protocol.as_deref().and_then(check_protocol) {
        note(&["protocol"], error.to_string());
    }
    for (at, entry) in config.own.models.iter().enumerate() {
        if let Some(error) = entry.dialect.as_deref().and_then(check_protocol) {
            note(&["models", &at.to_string(), "dialect"], error.to_string());
        }
        if entry.pattern.is_empty() {
            let why = "an entry of [[models]] needs a `pattern`: the beginning of the model's name";
            note(&["models", &at.to_string()], why.to_owned());
        }
    }
    for (name, model) in &config.own.gateway.models {
        if let Some(error) = model.protocol.as_deref().and_then(check_protocol) {
            note(&["gateway", "models", name, "protocol"], error.to_string());
        }
        let unknown_wire = |wire: &str| {
            let known = Wire::ALL.map(Wire::name).join(", ");
            Wire::from_name(wire)
                .is_none()
                .then(|| format!("`{wire}` is not a wire: use {known}"))
        };
        if let Some(why) = model.wire.as_deref().and_then(unknown_wire) {
            note(&["gateway", "models", name, "wire"], why);
        }
        for (at, upstream) in model.upstreams.iter().enumerate() {
            if let Some(why) = upstream.wire.as_deref().and_then(unknown_wire) {
                let at = at.to_string();
                note(&["gateway", "models", name, "upstreams", &at, "wire"], why);
            }
        }
    }
    problems
}

/// Returns the first unknown key in the text of a configuration.
pub(super) fn first_unknown_key(content: &str) -> Option<ConfigProblem> {
    let root = DeValue::Table(DeTable::parse(content).ok()?.into_inner());
    let mut found = Vec::new();
    check_shape(&root, config_shape(), &mut Vec::new(), &mut found);
    found
        .into_iter()
        // About a wrong value the deserializer says more.
        .filter(|problem| config_shape().at(&problem.keys).is_none())
        .min_by_key(|problem| keys::key_offset(content, &problem.keys))
}

/// Compares a value with the keys and kinds that are known at its place.
fn check_shape(
    value: &DeValue<'_>,
    shape: &KeyShape,
    path: &mut Vec<String>,
    found: &mut Vec<ConfigProblem>,
) {
    let below = |key: &str, value: &DeValue<'_>, shape, path: &mut Vec<String>, found: &mut _| {
        path.push(key.to_owned());
        check_shape(value, shape, path, found);
        path.pop();
    };
    match (shape, value) {
        (KeyShape::Table(known), DeValue::Table(table)) => {
            for (key, value) in table.iter() {
                let key = key.get_ref().as_ref();
                match known.get(key) {
                    Some(shape) => below(key, value.get_ref(), shape, path, found),
                    None => found.push(unknown_key(&[&path[..], &[key.to_owned()]].concat())),
                }
            }
        }
        (KeyShape::Named(shape), DeValue::Table(table)) => {
            for (key, value) in table.iter() {
                below(key.get_ref(), value.get_ref(), shape, path, found);
            }
        }
        (KeyShape::Tables(shape), DeValue::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                below(&at.to_string(), item.get_ref(), shape, path, found);
            }
        }
        (KeyShape::Value(kind), value) if fits_kind(value, kind) => {}
        (shape, _) => found.push(wrong_type(path, shape)),
    }
}

/// Returns true if a value is of a kind. Its range is left to the deserializer.
fn fits_kind(value: &DeValue<'_>, kind: &ValueKind) -> bool {
    match (kind, value) {
        (ValueKind::Text, DeValue::String(_))
        | (ValueKind::Boolean, DeValue::Boolean(_))
        | (ValueKind::Switch, DeValue::Boolean(_) | DeValue::String(_))
        | (ValueKind::Integer, DeValue::Integer(_))
        | (ValueKind::Number, DeValue::Integer(_) | DeValue::Float(_) | DeValue::String(_)) => true,
        (ValueKind::Choice(words), DeValue::String(text)) => words.contains(&text.as_ref()),
        (ValueKind::List(kind), DeValue::Array(items)) => {
            items.iter().all(|item| fits_kind(item.get_ref(), kind))
        }
        _ => false,
    }
}

/// Returns the problem of an unknown key, with the key that was probably meant.
pub(super) fn unknown_key(path: &[String]) -> ConfigProblem {
    let (key, table) = match path.split_last() {
        Some((key, table)) => (key.as_str(), table),
        None => ("", path),
    };
    let siblings: Vec<&str> = config_shape()
        .at(table)
        .map_or(Vec::new(), |shape| shape.keys().collect());
    let elsewhere = || {
        let is_named = |known: &&super::reference::ConfigKey| known.key == key && known.path != key;
        all_keys().find(is_named).map(|known| known.path.clone())
    };
    let top = || {
        config_shape()
            .at(&[key.to_owned()])
            .filter(|_| !table.is_empty())
    };
    let hint = if let Some(path) = elsewhere() {
        format!("did you mean `{path}`?")
    } else if top().is_some() {
        format!("did you mean the key `{key}` at the top of the file, before the first table?")
    } else if let Some(near) = nearest_key(key, &siblings) {
        format!("did you mean `{near}`?")
    } else {
        format!("known here: {}", siblings.join(", "))
    };
    let place = match table {
        [] => String::new(),
        table => format!(" in `[{}]`", format_path(table)),
    };
    ConfigProblem {
        keys: path.to_vec(),
        why: format!("unknown key `{key}`{place}: {hint}"),
    }
}

/// Returns the known key that was probably meant: the same letters in another order, or the most similar one.
fn nearest_key<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let sorted = |key: &str| {
        let mut letters: Vec<char> = key.chars().collect();
        letters.sort_unstable();
        letters
    };
    let swapped = known.iter().find(|known| sorted(known) == sorted(key));
    swapped
        .copied()
        .or_else(|| nearest_candidate(key, known.iter().copied()))
}

/// Returns the problem of a value of the wrong type. It does not show the value, which may be a secret in the wrong place.
fn wrong_type(path: &[String], shape: &KeyShape) -> ConfigProblem {
    let name = format_path(path);
    let needed = match (shape, describe_key(path)) {
        (KeyShape::Value(kind), Some(known)) => {
            format!(
                "{}, as in `{} = {}`",
                kind.with_article(),
                known.key,
                known.example
            )
        }
        (KeyShape::Value(kind), None) => kind.with_article(),
        (KeyShape::Table(_) | KeyShape::Named(_), _) => format!("a table: `[{name}]`"),
        (KeyShape::Tables(_), _) => format!("an array of tables: `[[{name}]]`"),
    };
    ConfigProblem {
        keys: path.to_vec(),
        why: format!("`{name}` must be {needed}"),
    }
}

/// Formats a path as in TOML; names with other characters than letters, digits, `_` and `-` are quoted.
pub(super) fn format_path(path: &[String]) -> String {
    let is_plain = |key: &str| {
        !key.is_empty()
            && key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let key = |key: &String| {
        if is_plain(key) || key == NAME {
            key.clone()
        } else {
            format!("{key:?}")
        }
    };
    path.iter().map(key).collect::<Vec<_>>().join(".")
}

/// Adds the place to a problem.
fn locate(content: &str, problem: &ConfigProblem) -> LocatedProblem {
    let (line, column) = line_and_column(content, keys::key_offset(content, &problem.keys));
    LocatedProblem {
        line: Some(line),
        column: Some(column),
        key: format_path(&problem.keys),
        message: problem.why.clone(),
    }
}

/// Returns the problem of a text that is not TOML.
fn located_error(content: &str, error: &toml::de::Error) -> LocatedProblem {
    let (line, column) = line_and_column(content, error.span().map_or(0, |span| span.start));
    LocatedProblem {
        line: Some(line),
        column: Some(column),
        key: String::new(),
        message: redacted_message(content, error),
    }
}

/// Removes a key from a document. Of a list with a wrong item the whole list is removed, so that the other items keep their index.
/// Returns false if nothing was removed.
fn remove_key(table: &mut dyn TableLike, keys: &[String]) -> bool {
    match keys {
        [] => false,
        [key] => table.remove(key).is_some(),
        [key, rest @ ..] => match table.get_mut(key) {
            Some(Item::ArrayOfTables(tables)) => {
                let Some((at, rest)) = rest.split_first() else {
                    return false;
                };
                let entry = at.parse().ok().and_then(|at: usize| tables.get_mut(at));
                entry.is_some_and(|entry| {
                    if rest.is_empty() {
                        // Not removed itself: the entries behind it keep their index.
                        let is_filled = !entry.is_empty();
                        entry.clear();
                        return is_filled;
                    }
                    remove_key(entry, rest)
                })
            }
            Some(item) => match item.as_table_like_mut() {
                Some(inner) => remove_key(inner, rest),
                None => table.remove(key).is_some(),
            },
            None => false,
        },
    }
}
