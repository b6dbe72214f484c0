//! Renders one argument of a call on the screen while it streams.
//!
//! A short argument follows its name on the line of the call. An argument with several lines, or a
//! long one, becomes a block under that line, which grows as the text arrives. A block shows up to
//! 40 lines and ends with the number of lines left out. The beginning of a marker of an edit
//! (`====`, `------- SEA`) is not shown before its line continues or ends.

use sabir_session::partial_marker_len;

use crate::sanitizer::{Sanitizer, sanitize_text};

/// The maximum length of a short argument in characters; it has no line feeds.
const SHORT_CHARS: usize = 60;
/// The maximum number of lines shown of a block.
const MAX_LINES: usize = 40;
/// The number of characters at which a line of a block is cut.
const MAX_LINE_CHARS: usize = 160;
/// The text before each line of a block.
const MARGIN: &str = "    │ ";

/// The state of one argument on the screen.
#[derive(Debug, Default)]
pub struct ArgumentPreview {
    name: String,
    /// Cleans the text before its lines are counted: cleaning makes lines of carriage returns.
    sanitizer: Sanitizer,
    /// The text that is not shown yet: an argument that may still be short, or the last line of a
    /// block, which may become a marker.
    pending: String,
    /// The number of lines begun; `None` until the argument becomes a block.
    lines: Option<usize>,
    /// The length of the current line in characters.
    chars: usize,
    /// True if the current line has been begun.
    line_begun: bool,
}

impl ArgumentPreview {
    /// Starts the preview of the argument with that name.
    pub fn new(name: &str) -> Self {
        Self {
            name: sanitize_text(name).replace('\n', " "),
            ..Self::default()
        }
    }

    /// Returns the text to write for the next piece.
    pub fn push_piece(&mut self, piece: &str) -> String {
        let piece = self.sanitizer.sanitize_chunk(piece);
        self.pending.push_str(&piece);
        if self.lines.is_some() {
            return self.extend_with_pending();
        }
        if !self.pending.contains('\n')
            && self.pending.chars().take(SHORT_CHARS + 1).count() <= SHORT_CHARS
        {
            return String::new();
        }
        // From here on the argument is shown as a block, even if the rest is short: printed output
        // stays.
        self.lines = Some(0);
        let lines = self.extend_with_pending();
        format!("{}:\n{lines}", self.name)
    }

    /// Returns the text to write at the end of the argument.
    pub fn finish(&mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        if self.lines.is_none() {
            return format!("{}={pending} ", self.name);
        }
        let rest = self.extend_block(&pending);
        rest + &self.end_block()
    }

    /// Returns the text to write for an argument that was cut off. Half a marker is left out.
    pub fn finish_cut(&mut self) -> String {
        let hidden = partial_marker_len(&self.pending, !self.line_begun);
        self.pending.truncate(self.pending.len() - hidden);
        self.finish()
    }

    /// Returns the text to write for what is pending, except the beginning of a marker.
    fn extend_with_pending(&mut self) -> String {
        let hidden = partial_marker_len(&self.pending, !self.line_begun);
        let rest = self.pending.split_off(self.pending.len() - hidden);
        let shown = std::mem::replace(&mut self.pending, rest);
        self.extend_block(&shown)
    }

    /// Returns the text to write after a block.
    fn end_block(&mut self) -> String {
        let lines = self.lines.take().unwrap_or_default();
        let end = if self.line_begun && lines <= MAX_LINES {
            "\n"
        } else {
            ""
        };
        match lines.saturating_sub(MAX_LINES) {
            0 => end.to_owned(),
            1 => format!("{end}{MARGIN}… 1 more line\n"),
            more => format!("{end}{MARGIN}… {more} more lines\n"),
        }
    }

    /// Returns the text to write for a piece of a block, and counts its lines and characters.
    fn extend_block(&mut self, piece: &str) -> String {
        let mut text = String::new();
        for part in piece.split_inclusive('\n') {
            let bare = part.trim_end_matches('\n');
            if !self.line_begun {
                self.line_begun = true;
                self.chars = 0;
                let lines = self.lines.map_or(1, |lines| lines + 1);
                self.lines = Some(lines);
                if lines <= MAX_LINES {
                    text.push_str(MARGIN);
                }
            }
            let shown = self.lines.is_some_and(|lines| lines <= MAX_LINES);
            let room = MAX_LINE_CHARS.saturating_sub(self.chars);
            // Counted beyond the limit, so that the ellipsis is written once.
            let before = self.chars;
            self.chars = self.chars.saturating_add(bare.chars().count());
            if shown {
                text.extend(bare.chars().take(room));
                if before <= MAX_LINE_CHARS && self.chars > MAX_LINE_CHARS {
                    text.push('…');
                }
            }
            if part.ends_with('\n') {
                self.line_begun = false;
                if shown {
                    text.push('\n');
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text is the same in all splits.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        for size in [1, 7, usize::MAX] {
            let chars: Vec<char> = text.chars().collect();
            let mut preview = ArgumentPreview::new("k");
            let mut shown = String::new();
            for piece in chars.chunks(size.min(chars.len().max(1))) {
                shown.push_str(&preview.push_piece(&piece.iter().collect::<String>()));
            }
            shown.push_str(&preview.finish());
            assert_eq!(shown, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn half_markers_are_hidden_until_they_are_decided() {
        let shown = |pieces: &[&str], is_cut: bool| {
            let mut preview = ArgumentPreview::new("diff");
            let mut shown: String = pieces
                .iter()
                .map(|piece| preview.push_piece(piece))
                .collect();
            shown.push_str(&if is_cut {
                preview.finish_cut()
            } else {
                String::new()
            });
            shown
        };
        let begun = "diff:\n    │ ------- SEARCH\n    │ a\n";
        for half in [
            "=",
            "====",
            "-",
            "---",
            "------- SEA",
            "+++++++ REPLACE",
            ">",
            "<<<<<<<",
        ] {
            let pieces = ["------- SEARCH\n", "a\n", half];
            assert_eq!(shown(&pieces, false), begun, "{half}");
            assert_eq!(shown(&pieces, true), begun, "{half}");
        }
        for line in ["==== x", "-- ", "- item", "=> x", "<a", "+1", "------- SEX"] {
            let text = format!("------- SEARCH\na\n{line}");
            let expected = format!("{begun}    │ {line}");
            let pieces: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(shown(&pieces, false), expected);
        }
        // Inside a line nothing is a marker.
        assert_eq!(
            shown(&["------- SEARCH\na\nb ", "===="], false),
            format!("{begun}    │ b ====")
        );
        assert_eq!(shown(&["---"], true), "diff= ");
    }

    #[test]
    fn short_arguments_stay_on_one_line() {
        check("", "k= ");
        check("a.rs", "k=a.rs ");
        check(&"é".repeat(60), &format!("k={} ", "é".repeat(60)));
    }

    #[test]
    fn long_arguments_become_blocks() {
        check("a\nb", "k:\n    │ a\n    │ b\n");
        check("a\n\nb\n", "k:\n    │ a\n    │ \n    │ b\n");
        check(
            &"x".repeat(200),
            &format!("k:\n    │ {}…\n", "x".repeat(160)),
        );
        check(
            &"x\n".repeat(40),
            &format!("k:\n{}", "    │ x\n".repeat(40)),
        );
        check(
            &"x\n".repeat(41),
            &format!("k:\n{}    │ … 1 more line\n", "    │ x\n".repeat(40)),
        );
        check(
            &"x\n".repeat(60),
            &format!("k:\n{}    │ … 20 more lines\n", "    │ x\n".repeat(40)),
        );
        check(
            &"x\n".repeat(78),
            &format!("k:\n{}    │ … 38 more lines\n", "    │ x\n".repeat(40)),
        );
    }
}
