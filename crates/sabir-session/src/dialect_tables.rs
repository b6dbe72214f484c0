//! Defines dialects from tables in the configuration and in separate files.
//!
//! In `config.toml` a dialect is a table `[dialects.NAME]`. A separate file has such tables too, or one dialect with its keys at the top
//! of the file and a `name` among them. The keys are those of [`sabir_call::dialect::DialectTable`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_call::dialect::{DialectTable, all_dialects as all, define_dialect};
use sabir_call::nearest_candidate;
use serde::Deserialize;
use toml::de::DeTable;

use crate::config::{self, keys};
use crate::error::SessionError;

/// The tables of dialects, by name.
pub(crate) type Tables = BTreeMap<String, DialectTable>;

/// A file with several tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DialectFile {
    #[serde(default)]
    dialects: Tables,
}

/// Defines the dialects of files.
///
/// # Errors
/// When a file cannot be read, has no dialect, or has one that cannot be defined.
pub fn load_dialect_files(files: &[PathBuf]) -> Result<(), SessionError> {
    files.iter().try_for_each(|file| load_file(file))
}

fn load_file(path: &Path) -> Result<(), SessionError> {
    let text = config::read_text(path)?;
    let unusable = |error: toml::de::Error| {
        let shown = path.display();
        let error = error.to_string();
        SessionError::invalid(format!(
            "{shown} cannot be used: {}\n`sabir help dialects` shows the keys",
            error.trim_end()
        ))
    };
    // Any other key than `dialects` at the top means that the whole file is one dialect.
    let alone = DeTable::parse(&text).map_err(unusable)?.get_ref().iter().any(|(key, _)| *key.get_ref() != "dialects");
    if alone {
        let table: DialectTable = toml::from_str(&text).map_err(unusable)?;
        return define_one((path, &text), None, &table);
    }
    let tables = toml::from_str::<DialectFile>(&text).map_err(unusable)?.dialects;
    if tables.is_empty() {
        return Err(SessionError::invalid(format!(
            "{} holds no dialect; `sabir help dialects` shows how to write one",
            path.display()
        )));
    }
    define_all((path, &text), tables)
}

/// Defines the tables under `[dialects]` of a file.
pub(crate) fn define_all(file: (&Path, &str), tables: Tables) -> Result<(), SessionError> {
    for (name, mut table) in tables {
        if !table.name.is_empty() && table.name != name {
            let place = keys::locate_key(file, &["dialects", &name, "name"]);
            return Err(SessionError::invalid(format!(
                "{place}: `name` must be left out, or be `{name}` as the table is; `sabir help dialects` shows the keys"
            )));
        }
        table.name.clone_from(&name);
        define_one(file, Some(&name), &table)?;
    }
    Ok(())
}

/// Defines one table, which is `[dialects.UNDER]` or the whole file.
fn define_one(file: (&Path, &str), under: Option<&str>, table: &DialectTable) -> Result<(), SessionError> {
    define_dialect(table).map(drop).map_err(|error| {
        let mut path: Vec<&str> = under.map_or(Vec::new(), |name| vec!["dialects", name]);
        path.extend(error.table_key().into_iter().flat_map(|key| key.split('.')));
        SessionError::invalid(format!(
            "{}: {error}; `sabir help dialects` shows the keys",
            keys::locate_key(file, &path)
        ))
    })
}

/// Returns the error for an unknown dialect. It lists the known names; `also` is put before them, for further valid words.
pub fn unknown(name: &str, also: &str) -> SessionError {
    let all = all();
    let names = all.iter().flat_map(|dialect| std::iter::once(dialect.name).chain(dialect.aliases.iter().copied()));
    let hint = match nearest_candidate(name, names) {
        Some(near) => format!("did you mean `{near}`? "),
        None => String::new(),
    };
    let names: Vec<_> = all.iter().map(|dialect| dialect.name).collect();
    SessionError::invalid(format!("`{name}` is no dialect: {hint}use {also}{}", names.join(", ")))
}
