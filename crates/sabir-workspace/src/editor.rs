//! Runs the user's own editor on a text, at the terminal of this process.
//!
//! The editor is the user's choice (`$VISUAL`, `$EDITOR`), and starts only when they press its key. It gets a private file, the
//! whole environment and the terminal, and this process waits for its end.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

/// The reason why a text was not edited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditorError {
    /// The file for the editor cannot be written or read.
    #[error("the file for the editor cannot be used: {0}")]
    File(std::io::Error),
    /// The editor cannot be started.
    #[error("the editor `{editor}` cannot be started: {error}")]
    Start {
        /// The command.
        editor: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The editor failed, or the user left it with an error on purpose.
    #[error("the editor `{0}` failed; the draft is unchanged")]
    Failed(String),
}

/// Lets the user edit a text in an editor, and returns the result. `editor` is a command with its options, as in `$EDITOR`, which a
/// shell splits. The file is in `folder` and removed at the end. Blocks until the editor ends.
///
/// # Errors
/// When the file cannot be used, or the editor cannot be started or fails.
pub fn edit_text(editor: &str, text: &str, folder: &Path) -> Result<String, EditorError> {
    let file = folder.join(format!("sabir-draft-{}.md", std::process::id()));
    // A file of an earlier process of that number, or a link that somebody has put there.
    _ = std::fs::remove_file(&file);
    let edited = edit_file(editor, text, &file);
    _ = std::fs::remove_file(&file);
    edited
}

fn edit_file(editor: &str, text: &str, file: &Path) -> Result<String, EditorError> {
    std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(EditorError::File)?;
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file)
        .status()
        .map_err(|error| EditorError::Start {
            editor: editor.to_owned(),
            error,
        })?;
    if !status.success() {
        return Err(EditorError::Failed(editor.to_owned()));
    }
    let bytes = std::fs::read(file).map_err(EditorError::File)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edited_text_comes_back_and_the_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let edited = edit_text("sed -i s/one/two/", "one ü\n", folder.path()).unwrap();
        assert_eq!(edited, "two ü\n");
        let failed = edit_text("false", "one", folder.path());
        assert!(matches!(failed, Err(EditorError::Failed(_))), "{failed:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
