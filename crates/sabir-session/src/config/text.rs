//! Reads text files that the user named. A configuration must be a regular file of limited size.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::SessionError;

/// The largest configuration file. A larger one is surely some other file, and parsing it would take seconds.
const MAX_BYTES: u64 = 4 << 20;

/// The most bytes that are read of any other file that the user named. A device or a pipe may have no end.
const MAX_NAMED_BYTES: u64 = 64 << 20;

/// Reads a text file that the user named, without a byte order mark.
///
/// # Errors
/// When the file cannot be read, is not UTF-8, or has more than 64 MiB.
pub fn read_text(path: &Path) -> Result<String, SessionError> {
    let fail = |error| unreadable_file(path, &error);
    let mut bytes = Vec::new();
    // One byte more tells a file that is too long from one that just fits.
    std::fs::File::open(path)
        .map_err(fail)?
        .take(MAX_NAMED_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > MAX_NAMED_BYTES {
        return Err(SessionError::invalid(format!(
            "{} cannot be read: it has more than {} MiB; give a smaller file",
            path.display(),
            MAX_NAMED_BYTES >> 20
        )));
    }
    decode_text(path, bytes)
}

/// Reads a regular file; returns its text and its mode bits.
///
/// A pipe or a device is refused: a command may read its configuration more than once, and must not block on it.
pub(crate) fn read_regular_file(path: &Path) -> Result<(String, u32), SessionError> {
    let fail = |error| unreadable_file(path, &error);
    let found = std::fs::metadata(path).map_err(fail)?;
    // `/dev/null` is the usual way to ask for no configuration at all.
    if !found.is_file() && path != Path::new("/dev/null") {
        let shown = path.display();
        let is = if found.is_dir() {
            "a folder"
        } else {
            "not a regular file"
        };
        return Err(SessionError::invalid(format!(
            "{shown} cannot be read: it is {is}, and the configuration must be a regular file; write it into one and give that"
        )));
    }
    if found.len() > MAX_BYTES {
        let shown = path.display();
        let size = found.len() >> 20;
        let most = MAX_BYTES >> 20;
        return Err(SessionError::invalid(format!(
            "{shown} cannot be used: it has {size} MiB, and a configuration may have at most {most} MiB; give another file"
        )));
    }
    let text = decode_text(path, std::fs::read(path).map_err(fail)?)?;
    Ok((text, found.permissions().mode()))
}

/// Returns the error for a file that cannot be read.
fn unreadable_file(path: &Path, error: &std::io::Error) -> SessionError {
    SessionError::invalid(format!("{} cannot be read: {error}", path.display()))
}

/// Decodes a file as UTF-8, and removes a byte order mark.
fn decode_text(path: &Path, bytes: Vec<u8>) -> Result<String, SessionError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        SessionError::invalid(format!("{} is not UTF-8 text: {error}", path.display()))
    })?;
    Ok(text
        // Some editors begin a file with a byte order mark, which TOML does not know.
        .strip_prefix('\u{feff}')
        .map_or(text.clone(), str::to_owned))
}
