//! Formats numbers, lines and diffs for the texts that models read.

use sabir_workspace::unified_diff;

/// The size up to which the tools read a file.
pub(crate) const MAX_FILE_BYTES: usize = 32 << 20;

/// Renders the difference between two texts as a unified diff with new line numbers and without
/// file names. Carriage returns at the ends of lines are left out, as `read_file` does.
pub(crate) fn render_diff(old: &str, new: &str) -> String {
    let diff = unified_diff(old, new, "");
    // The first two lines only name the file.
    let diff: String = diff.split_inclusive('\n').skip(2).collect();
    diff.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// Formats a number with its noun: `1 line`, `2 lines`, `12,345 bytes`.
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

/// Formats the size of a file: `12,345 bytes`.
pub(crate) fn count_bytes(number: u64) -> String {
    count_noun(usize::try_from(number).unwrap_or(usize::MAX), "byte")
}

/// Formats a number of processes: `1 process`, `2 processes`.
pub(crate) fn count_processes(number: u32) -> String {
    format!("{number} process{}", if number == 1 { "" } else { "es" })
}

/// Formats a number with a comma between each three digits: `1,048,576`.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Makes the first letter of a sentence a capital.
pub(crate) fn capitalize_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_uppercase(), chars.as_str())
    })
}

/// Cuts a line after at most `max_bytes`, at a character boundary, and notes how much is missing.
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
    fn digits_are_grouped() {
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
    fn nouns_are_counted() {
        assert_eq!(count_noun(1, "line"), "1 line");
        assert_eq!(count_noun(0, "match"), "0 matches");
        assert_eq!(count_noun(2000, "byte"), "2000 bytes");
        assert_eq!(count_noun(12_345, "byte"), "12,345 bytes");
        assert_eq!(count_bytes(2_147_483_648), "2,147,483,648 bytes");
    }
}
