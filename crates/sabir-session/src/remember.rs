//! Writes findings about a model into the user's configuration file. Comments and the order of keys are kept.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::config;
use crate::environment::Environment;
use crate::error::SessionError;

/// Stores the best protocol of a model in the configuration file, and returns the path of the file.
///
/// # Errors
/// When there is no configuration folder, or the file cannot be parsed or written.
pub fn store_protocol(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    model: &str,
    protocol: &str,
) -> Result<PathBuf, SessionError> {
    edit_config(environment, named, false, |document, kept| {
        set_protocol(document, model, protocol).map_err(|error| kept(error.to_string()))
    })
}

/// The reason why a protocol cannot be stored: `models` is an inline array, or no array, and there is no place for another table.
#[derive(Debug, thiserror::Error)]
#[error("its `models` are not written as [[models]]")]
struct NoModelTables;

/// Writes the protocol into the model's entry of a configuration, which is added if it is missing.
fn set_protocol(
    document: &mut DocumentMut,
    model: &str,
    protocol: &str,
) -> Result<(), NoModelTables> {
    let models = document
        .entry("models")
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let models = models.as_array_of_tables_mut().ok_or(NoModelTables)?;
    let is = |table: &Table| table.get("pattern").and_then(Item::as_str) == Some(model);
    let position = models.iter().position(is);
    if position.is_none() {
        let mut table = Table::new();
        table.insert("pattern", value(model));
        models.push(table);
    }
    let position = position.unwrap_or(models.len().saturating_sub(1));
    let Some(table) = models.get_mut(position) else {
        return Ok(());
    };
    table.insert("native", value(protocol == "native"));
    if protocol == "native" {
        table.remove("dialect");
    } else {
        table.insert("dialect", value(protocol));
    }
    Ok(())
}

/// Changes the user's configuration file, and returns its path. If it cannot be used afterwards, it is left as it is. `change` gets the
/// function that makes the error for a file that is left as it is.
///
/// # Errors
/// When the file cannot be read, changed or written.
pub(crate) fn edit_config(
    environment: &Arc<Environment>,
    named: Option<&Path>,
    owner_only: bool,
    change: impl FnOnce(&mut DocumentMut, &dyn Fn(String) -> SessionError) -> Result<(), SessionError>,
) -> Result<PathBuf, SessionError> {
    let path = environment.config_file(named).ok_or_else(|| {
        SessionError::invalid(
            "there is no home folder to keep a configuration in: use --config FILE",
        )
    })?;
    // Held until the file is written, so that two changes at once do not lose each other.
    let _alone = lock_folder(&path)?;
    let text = match path.exists() {
        true => config::read_text(&path)?,
        false => String::new(),
    };
    let kept =
        |why: String| SessionError::invalid(format!("{} is left as it is: {why}", path.display()));
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| kept(format!("it is not TOML: {error}")))?;
    change(&mut document, &kept)?;
    // Checked as a whole before it is written: a configuration that cannot be loaded would stop
    // every command.
    let changed = document.to_string();
    if let Some(problem) = config::check::check_text(environment, &changed).first() {
        return Err(kept(problem.message.clone()));
    }
    if owner_only && path.exists() {
        // Before the new text is there, which has the permissions of the old one.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(|error| kept(format!("its permissions cannot be changed: {error}")))?;
    }
    replace_file(environment, &path, &changed)
        .map_err(|error| kept(format!("it cannot be written: {error}")))?;
    Ok(path)
}

/// Locks a file against other Sabir processes, until the returned value is dropped. Otherwise, of two processes that read, change and
/// write the same file, one would lose the other's change.
///
/// The lock is on the file's folder, so that no lock file is left behind. On a file system without locks there is no lock.
///
/// # Errors
/// When the folder cannot be created or opened.
pub fn lock_folder(path: &Path) -> Result<File, SessionError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let opened = std::fs::create_dir_all(folder).and_then(|()| File::open(folder));
    let folder = opened.map_err(|error| {
        SessionError::invalid(format!("{} cannot be used: {error}", folder.display()))
    })?;
    _ = folder.lock();
    Ok(folder)
}

/// Replaces a file atomically and keeps its permissions. A new file is readable by its owner only.
///
/// # Errors
/// When the folder or the file cannot be written. The old file is then unchanged.
pub fn replace_file(environment: &Environment, path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Writes through a symbolic link instead of replacing it, since many users link their
    // configuration.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = std::fs::metadata(&path).map_or(0o600, |known| known.permissions().mode() & 0o777);
    // In the same folder, because a rename works within one file system only.
    let beside = path.with_extension(format!("{}.tmp", environment.unique_id().simple()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    // Synced before the rename, so that a power cut leaves the old text or the new one, never an
    // empty file.
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    let moved = written.and_then(|()| std::fs::rename(&beside, &path));
    if moved.is_err() {
        _ = std::fs::remove_file(&beside);
    }
    moved
}

#[cfg(test)]
mod tests {
    use toml_edit::DocumentMut;

    use super::{NoModelTables, set_protocol};

    fn with_protocol(text: &str, model: &str, protocol: &str) -> Result<String, NoModelTables> {
        let mut document: DocumentMut = text.parse().unwrap();
        set_protocol(&mut document, model, protocol)?;
        Ok(document.to_string())
    }

    #[test]
    fn an_entry_is_added_or_changed() {
        let check = |text: &str, protocol: &str, expected: &str| {
            assert_eq!(with_protocol(text, "m:1", protocol).unwrap(), expected);
        };
        check(
            "",
            "cline",
            "[[models]]\npattern = \"m:1\"\nnative = false\ndialect = \"cline\"\n",
        );
        check(
            "# mine\nmodel = \"x\"\n\n[[models]] # known\npattern = \"m:1\"\ndialect = \"invoke\" # old\ncontext = 9\n",
            "native",
            "# mine\nmodel = \"x\"\n\n[[models]] # known\npattern = \"m:1\"\ncontext = 9\nnative = true\n",
        );
        check(
            "[[models]]\npattern = \"other\"\n",
            "hermes",
            "[[models]]\npattern = \"other\"\n\n[[models]]\npattern = \"m:1\"\nnative = false\ndialect = \"hermes\"\n",
        );
        assert!(
            with_protocol("models = 1", "m", "native")
                .unwrap_err()
                .to_string()
                .contains("[[models]]")
        );
    }
}
