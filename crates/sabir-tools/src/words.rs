//! From work to words.

/// The most bytes of a file that the tools look at.
pub(crate) const MAX_FILE_BYTES: usize = 32 << 20;

/// Does work that blocks, off the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let broken = "The tool broke down, which is a defect of Sabir and not of the call. Try another way.";
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(broken.to_owned()))
}

/// `1 line`, `2 lines`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `1 process`, `2 processes`.
pub(crate) fn processes(number: u32) -> String {
    format!("{number} process{}", if number == 1 { "" } else { "es" })
}

/// `1,048,576`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut words = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    words
}

/// A sentence that begins with a capital.
pub(crate) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), chars.as_str()))
}

/// The start of a line that is too long, and how much is missing.
pub(crate) fn cut(line: &str, max_bytes: usize) -> String {
    let kept = line.get(..line.floor_char_boundary(max_bytes)).unwrap_or_default();
    match line.len() - kept.len() {
        0 => line.to_owned(),
        missing => format!("{kept}… [{missing} bytes of this line left out]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failed_output() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let words = runtime.block_on(blocking::<()>(|| panic!("on purpose"))).unwrap_err();
        assert!(words.starts_with("The tool broke down"), "{words}");
    }

    #[test]
    fn numbers() {
        assert_eq!([0, 999, 1000, 1_048_576].map(grouped), ["0", "999", "1,000", "1,048,576"]);
        assert_eq!([1, 2].map(processes), ["1 process", "2 processes"]);
    }

    #[test]
    fn lines_are_cut_at_characters() {
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("aéx", 3), "aé… [1 bytes of this line left out]");
        assert_eq!(cut("aéx", 2), "a… [3 bytes of this line left out]");
    }
}
