//! Renders short unified diffs, shown before or after a write.

use std::fmt::Write;
use std::time::Duration;

use similar::TextDiff;

const MAX_DIFF_BYTES: usize = 16 << 10;
const MAX_TIME: Duration = Duration::from_millis(500);

/// Returns the unified diff of two texts with three lines of context, headed by `a/PATH` and
/// `b/PATH`; empty if they are equal.
///
/// The result has at most about 16 KiB of whole lines (a single longer line is left out); a last
/// line in brackets gives the number of missing lines. If half a second is not enough for very
/// different texts, the diff is coarser.
#[must_use]
pub fn unified_diff(old: &str, new: &str, path: &str) -> String {
    if old == new {
        return String::new();
    }
    let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
    let whole = diff
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    if whole.len() <= MAX_DIFF_BYTES {
        return whole;
    }
    let mut short = String::new();
    let mut lines = whole.split_inclusive('\n').peekable();
    while let Some(line) = lines.next_if(|line| short.len() + line.len() <= MAX_DIFF_BYTES) {
        short.push_str(line);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        short,
        "[… {} more lines of the diff left out …]",
        lines.count()
    );
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_diffs_are_whole() {
        assert_eq!(unified_diff("a\n", "a\n", "x"), "");
        assert_eq!(
            unified_diff("a\nb\n", "a\nc\n", "x.rs"),
            "--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        );
        assert!(unified_diff("a", "b", "x").contains("\\ No newline at end of file"));
    }

    #[test]
    fn large_diffs_are_cut() {
        let new: String = (0..20_000)
            .map(|number| format!("line {number}\n"))
            .collect();
        let diff = unified_diff("", &new, "x");
        assert!(diff.len() < MAX_DIFF_BYTES + 100);
        assert!(
            diff.ends_with("more lines of the diff left out …]\n"),
            "{diff}"
        );
        assert!(unified_diff("", &"x".repeat(1 << 20), "x").len() < 1000);
    }
}
