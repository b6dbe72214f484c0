//! Renders one argument of a call on the screen while it streams.
//!
//! A short argument follows its name on the line of the call. An argument with several lines, or a
//! long one, becomes a block under that line, which grows as the text arrives. A block shows up to
//! [`MAX_LINES`] lines and ends with the number of lines left out.

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
pub(crate) struct ArgumentPreview {
    name: String,
    /// The text so far of an argument that may still be short; not shown yet.
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
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the text to write for the next piece.
    pub(crate) fn push_piece(&mut self, piece: &str) -> String {
        if self.lines.is_some() {
            return self.extend_block(piece);
        }
        self.pending.push_str(piece);
        if !self.pending.contains('\n')
            && self.pending.chars().take(SHORT_CHARS + 1).count() <= SHORT_CHARS
        {
            return String::new();
        }
        self.lines = Some(0);
        let held = std::mem::take(&mut self.pending);
        let lines = self.extend_block(&held);
        format!("{}:\n{lines}", self.name)
    }

    /// Returns the text to write at the end of the argument.
    pub(crate) fn finish(&mut self) -> String {
        let Some(lines) = self.lines.take() else {
            return format!("{}={} ", self.name, std::mem::take(&mut self.pending));
        };
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

    /// The same text, however it comes.
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
    fn short_ones_stay_on_the_line() {
        check("", "k= ");
        check("a.rs", "k=a.rs ");
        check(&"é".repeat(60), &format!("k={} ", "é".repeat(60)));
    }

    #[test]
    fn long_ones_are_blocks() {
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
