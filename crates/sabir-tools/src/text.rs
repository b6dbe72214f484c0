//! From work to words.

use sabir_workspace::{StopFlag, unified_diff};

/// The most bytes of a file that the tools look at.
pub(crate) const MAX_FILE_BYTES: usize = 32 << 20;

/// Does work that blocks, off the runtime's threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let broken =
        "The tool broke down, which is a defect of Sabir and not of the call. Try another way.";
    // Where the system gives no thread for it, the runtime panics at once.
    let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        tokio::task::spawn_blocking(work)
    }));
    let none = "The system allows no more processes and threads, so nothing was done. Stop what runs, or try again later.";
    let Ok(work) = begun else {
        return Err(none.to_owned());
    };
    work.await.unwrap_or_else(|_| Err(broken.to_owned()))
}

/// As [`run_blocking`], for work that can be told to stop, as it is when the future is dropped.
pub(crate) async fn run_stoppable<T: Send + 'static>(
    work: impl FnOnce(StopFlag) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let stop = StopFlag::default();
    let _dropped = stop.stop_on_drop();
    run_blocking(move || work(stop)).await
}

/// What changed between two texts, with the new line numbers: a unified diff without the names of files. Carriage returns at
/// the ends of lines are left out, as `read_file` does.
pub(crate) fn render_diff(old: &str, new: &str) -> String {
    let diff = unified_diff(old, new, "");
    // The first two lines only name the file.
    let diff: String = diff.split_inclusive('\n').skip(2).collect();
    diff.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// `1 line`, `2 lines`, `12,345 bytes`.
pub(crate) fn count_noun(number: usize, noun: &str) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        // Four digits are read at a glance.
        if index > 0 && digits.len() > 4 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let plural = match noun {
        _ if number == 1 => "",
        noun if noun.ends_with("ch") || noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{grouped} {noun}{plural}")
}

/// As [`count_noun`], of bytes of a file.
pub(crate) fn count_bytes(number: u64) -> String {
    count_noun(usize::try_from(number).unwrap_or(usize::MAX), "byte")
}

/// `1 process`, `2 processes`.
pub(crate) fn count_processes(number: u32) -> String {
    format!("{number} process{}", if number == 1 { "" } else { "es" })
}

/// `1,048,576`.
pub(crate) fn group_digits(number: u64) -> String {
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
pub(crate) fn capitalize_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_uppercase(), chars.as_str())
    })
}

/// The start of a line that is too long, and how much is missing.
pub(crate) fn cut_line(line: &str, max_bytes: usize) -> String {
    let kept = line
        .get(..line.floor_char_boundary(max_bytes))
        .unwrap_or_default();
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
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let words = runtime
            .block_on(run_blocking::<()>(|| panic!("on purpose")))
            .unwrap_err();
        assert!(words.starts_with("The tool broke down"), "{words}");
    }

    #[test]
    fn numbers() {
        assert_eq!(
            [0, 999, 1000, 1_048_576].map(group_digits),
            ["0", "999", "1,000", "1,048,576"]
        );
        assert_eq!([1, 2].map(count_processes), ["1 process", "2 processes"]);
    }

    #[test]
    fn lines_are_cut_at_characters() {
        assert_eq!(cut_line("aé", 3), "aé");
        assert_eq!(cut_line("aéx", 3), "aé… [1 bytes of this line left out]");
        assert_eq!(cut_line("aéx", 2), "a… [3 bytes of this line left out]");
    }

    #[test]
    fn numbers_are_counted() {
        assert_eq!(count_noun(1, "line"), "1 line");
        assert_eq!(count_noun(0, "match"), "0 matches");
        assert_eq!(count_noun(2000, "byte"), "2000 bytes");
        assert_eq!(count_noun(12_345, "byte"), "12,345 bytes");
        assert_eq!(count_bytes(2_147_483_648), "2,147,483,648 bytes");
    }
}
