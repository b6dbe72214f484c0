//! Recognizes the prefix that a search prints before a line, to compare calls with texts that the
//! model has read.

/// Returns the length of a place such as `docs/a.md:12:` or `a.md-12-` at the beginning of a line, as
/// `grep -n` prints it; 0 if there is none.
pub fn location_prefix_length(line: &str) -> usize {
    let bytes = line.as_bytes();
    // Markup does not begin with a path, and a path that holds blanks is not worth the search.
    let end = bytes
        .iter()
        .take(300)
        .position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'<' | b'{' | b'['))
        .unwrap_or(bytes.len().min(300));
    let head = bytes.get(..end).unwrap_or_default();
    let is_separator = |byte: &u8| matches!(byte, b':' | b'-');
    let mut digits = 0;
    for (at, byte) in head.iter().enumerate() {
        // A number between two separators: the one before it ends the path.
        let before = at.checked_sub(digits + 1).and_then(|at| head.get(at));
        if byte.is_ascii_digit() {
            digits += 1;
        } else if digits > 0 && is_separator(byte) && before.is_some_and(is_separator) {
            return at + 1;
        } else {
            digits = 0;
        }
    }
    0
}
