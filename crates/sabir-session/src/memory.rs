//! Adds notes of the user to the instructions of their folder.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of instructions that every model gets.
const FILE: &str = "AGENTS.md";

/// Returns the file to which notes are added.
pub fn note_file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Formats a note as the line that is added.
pub fn note_line(note: &str) -> String {
    let words: Vec<_> = note.split_whitespace().collect();
    format!("- {}", words.join(" "))
}

/// Appends a note to `AGENTS.md` in a folder, which is created if it is missing.
///
/// # Errors
/// When the file cannot be written, or is a symbolic link: it may lead out of the folder.
pub fn append_note(folder: &Path, note: &str) -> std::io::Result<PathBuf> {
    let path = note_file(folder);
    if std::fs::symlink_metadata(&path).is_ok_and(|known| known.is_symlink()) {
        return Err(std::io::Error::other("it is a symbolic link"));
    }
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).read(true).open(&path)?;
    // The path may have become a link since it was examined.
    if std::fs::symlink_metadata(&path)?.ino() != file.metadata()?.ino() {
        return Err(std::io::Error::other("it is a symbolic link"));
    }
    let text = std::io::read_to_string(&mut file)?;
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    // In one write, so that a crash leaves no half of it.
    file.write_all(format!("{gap}{}\n", note_line(note)).as_bytes())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_a_line_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        append_note(folder.path(), " use  tabs\n").unwrap();
        let path = append_note(folder.path(), "test first").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "- use tabs\n- test first\n");
        std::fs::write(&path, "# Rules").unwrap();
        append_note(folder.path(), "one").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# Rules\n- one\n");
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join(FILE)).unwrap();
        assert!(append_note(folder.path(), "one").is_err());
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "");
    }
}
