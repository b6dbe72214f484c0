//! Defines dialects from tables in the configuration and in separate files.
//!
//! In `config.toml` a dialect is a table `[dialects.NAME]`. A separate file has such tables too, or one dialect with its keys at the top
//! of the file and a `name` among them. The keys are those of [`sabir_call::dialect::DialectTable`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sabir_call::dialect::{DialectSet, DialectTable};
use sabir_call::nearest_candidate;
use serde::Deserialize;
use toml::de::DeTable;

use crate::config::{self, ConfigProblem, TomlFile};
use crate::error::SessionError;

/// The tables of dialects, by name.
pub(crate) type DialectTables = BTreeMap<String, DialectTable>;

/// A file with several tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DialectFile {
    #[serde(default)]
    dialects: DialectTables,
}

/// Defines the dialects of files.
///
/// # Errors
/// When a file cannot be read, has no dialect, or has one that cannot be defined.
pub fn load_dialect_files(
    files: &[PathBuf],
    dialects: &mut DialectSet,
) -> Result<(), SessionError> {
    files.iter().try_for_each(|file| load_file(file, dialects))
}

fn load_file(path: &Path, dialects: &mut DialectSet) -> Result<(), SessionError> {
    let text = config::read_text(path)?;
    let file = TomlFile { path, text: &text };
    let unusable = |error: toml::de::Error| {
        let shown = path.display();
        let error = error.to_string();
        SessionError::invalid(format!(
            "{shown} cannot be used: {}\n`sabir help dialects` shows the keys",
            error.trim_end()
        ))
    };
    // Any other key than `dialects` at the top means that the whole file is one dialect.
    let alone = DeTable::parse(&text)
        .map_err(unusable)?
        .get_ref()
        .iter()
        .any(|(key, _)| *key.get_ref() != "dialects");
    if alone {
        let table: DialectTable = toml::from_str(&text).map_err(unusable)?;
        return define_one(&[], &table, dialects).map_err(|problem| problem.in_file(file));
    }
    let tables = toml::from_str::<DialectFile>(&text)
        .map_err(unusable)?
        .dialects;
    if tables.is_empty() {
        return Err(SessionError::invalid(format!(
            "{} holds no dialect; `sabir help dialects` shows how to write one",
            path.display()
        )));
    }
    define_all(file, tables, dialects)
}

/// Defines the tables under `[dialects]` of a file.
pub(crate) fn define_all(
    file: TomlFile<'_>,
    tables: DialectTables,
    dialects: &mut DialectSet,
) -> Result<(), SessionError> {
    match define_tables(&tables, dialects).into_iter().next() {
        Some(problem) => Err(problem.in_file(file)),
        None => Ok(()),
    }
}

/// Defines the tables that can be defined, and returns the problems of the others.
pub(crate) fn define_tables(
    tables: &DialectTables,
    dialects: &mut DialectSet,
) -> Vec<ConfigProblem> {
    let define = |(name, table): (&String, &DialectTable)| {
        if !table.name.is_empty() && table.name != *name {
            let why = format!(
                "`name` must be left out, or be `{name}` as the table is; `sabir help dialects` shows the keys"
            );
            return Some(ConfigProblem::new(&["dialects", name, "name"], why));
        }
        // The name of the table is the name of the dialect; `name` is needed only where there is no
        // table around.
        let named = DialectTable {
            name: name.clone(),
            ..table.clone()
        };
        define_one(&["dialects", name], &named, dialects).err()
    };
    tables.iter().filter_map(define).collect()
}

/// Defines the dialect of one table, which is at that path of its file.
fn define_one(
    place: &[&str],
    table: &DialectTable,
    dialects: &mut DialectSet,
) -> Result<(), ConfigProblem> {
    dialects.define(table).map_err(|error| {
        let mut path = place.to_vec();
        path.extend(error.table_key().into_iter().flat_map(|key| key.split('.')));
        ConfigProblem::new(
            &path,
            format!("{error}; `sabir help dialects` shows the keys"),
        )
    })
}

/// Returns the error for an unknown dialect. It lists the known names; `also` is put before them, for further valid words.
pub fn unknown_dialect(dialects: &DialectSet, name: &str, also: &str) -> SessionError {
    let names = dialects
        .iter()
        .flat_map(|dialect| std::iter::once(dialect.name).chain(dialect.aliases.iter().copied()));
    let hint = match nearest_candidate(name, names) {
        Some(near) => format!("did you mean `{near}`? "),
        None => String::new(),
    };
    let names: Vec<_> = dialects.iter().map(|dialect| dialect.name).collect();
    SessionError::invalid(format!(
        "`{name}` is not a dialect: {hint}use {also}{}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sabir_call::dialect::DialectSelection;
    use sabir_call::{CallReader, DraftResponse, ToolSet, Truncation};

    use super::*;
    use crate::config::Config;
    use crate::environment::Environment;
    use crate::notice::NoticeSink;

    /// The names of the calls in a text.
    fn call_names(selection: DialectSelection<'_>, text: &str) -> Vec<String> {
        let tools = ToolSet::from_json(r#"[{"name": "look"}, {"name": "wait"}]"#).unwrap();
        let mut draft = DraftResponse::default();
        let mut reader = CallReader::new(selection, &tools);
        reader.push(text, &mut draft);
        reader.finish(Truncation::Ended, &mut draft);
        draft.calls().map(|call| call.name.clone()).collect()
    }

    /// Sessions of one process give the same name to different tables, at the same time.
    #[test]
    fn sessions_keep_their_tables_apart() {
        let folder = tempfile::tempdir().unwrap();
        let environment = Arc::new(Environment::default());
        let text = "<one>{\"name\": \"look\", \"arguments\": {}}</one>\n\n@@two look=>{}\n\n<one>{\"name\": \"wait\", \"arguments\": {}}</one>";
        let tables = [
            (
                "machine = \"json\"\nopen = \"<one>\"\nclose = \"</one>\"",
                vec!["look", "wait"],
            ),
            (
                "machine = \"json\"\nopen = \"@@two\"\njson = { head_end = \"=>\" }",
                vec!["look"],
            ),
        ];
        std::thread::scope(|scope| {
            for (number, (table, expected)) in tables.iter().enumerate() {
                let path = folder.path().join(format!("{number}.toml"));
                std::fs::write(&path, format!("[dialects.mine]\n{table}\n")).unwrap();
                let environment = &environment;
                scope.spawn(move || {
                    for _ in 0..20 {
                        let config =
                            Config::load(environment, Some(&path), &NoticeSink::default()).unwrap();
                        let mine = config.dialects().select("mine").unwrap();
                        assert_eq!(call_names(mine, text), *expected);
                    }
                });
            }
        });
        assert_eq!(&environment.dialects, DialectSet::built_in());
    }

    /// The files of a session extend its configuration, and neither affects another session.
    #[test]
    fn files_extend_the_configured_dialects() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(
            &path,
            "name = \"mine\"\nmachine = \"json\"\nopen = \"<one>\"\n",
        )
        .unwrap();
        let environment = Environment::default();
        let mut dialects = environment.dialects.clone();
        load_dialect_files(std::slice::from_ref(&path), &mut dialects).unwrap();
        load_dialect_files(std::slice::from_ref(&path), &mut dialects).unwrap();
        assert!(dialects.find("mine").is_some() && environment.dialects.find("mine").is_none());
        std::fs::write(
            &path,
            "name = \"mine\"\nmachine = \"json\"\nopen = \"<two>\"\n",
        )
        .unwrap();
        let error = load_dialect_files(&[path], &mut dialects)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("there is a dialect `mine` already"),
            "{error}"
        );
        assert!(
            unknown_dialect(&dialects, "mien", "")
                .to_string()
                .contains("did you mean `mine`")
        );
    }
}
