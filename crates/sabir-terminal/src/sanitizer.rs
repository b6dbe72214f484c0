//! Cleans foreign text (of models, tools, files and servers) before it reaches a terminal.
//!
//! Foreign text must not move the cursor, set a title or a colour, query the terminal, or hide
//! itself. No control character except line feed and tab is passed on. Escape sequences are parsed
//! as terminals parse them, including the 8-bit forms (ECMA-48). Colours and other renditions (SGR)
//! are removed without a trace, since they carry no text. Any other sequence, and any run of
//! control characters, becomes one U+FFFD, so that the reader sees that something was there.
//! Invisible characters and those that change the direction of text become their code points, as in
//! `<U+202E>`. Runs of more than 16 combining marks are cut: no script needs them, and
//! they slow terminals down.
//!
//! The result does not depend on how the stream is split into chunks, even within a sequence.

pub use sabir_toolbox::text::is_invisible_char;

/// The maximum number of combining marks on one character; no script comes near it.
const MAX_MARKS: usize = 16;
/// The maximum length in characters of a string sequence (a title, a picture). A longer sequence
/// counts as unterminated, and the text after it is shown again, so that one stray introducer
/// cannot hide the rest.
const MAX_STRING_CHARS: usize = 4096;

/// Cleans a stream of text, chunk by chunk.
#[derive(Debug, Default)]
pub struct Sanitizer {
    state: SequenceState,
    /// The kind of the last output, as far as the next character depends on it.
    last: LastOutput,
    /// The number of combining marks since the last other character.
    marks: usize,
    /// True if joiners are allowed next: the last character was not ASCII, so it may belong to an
    /// emoji or a script with joiners.
    joins: bool,
}

/// The position in an escape sequence.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SequenceState {
    #[default]
    Text,
    /// After ESC and any intermediate characters.
    Escape,
    /// In a control sequence (CSI); `plain` while it may still be a rendition (SGR).
    Control { plain: bool },
    /// In a string that BEL or ST ends, after that many characters.
    String(usize),
    /// In a string, after ESC, which may begin ST.
    StringEscape(usize),
}

/// The kind of the last output.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LastOutput {
    #[default]
    Text,
    /// A carriage return, shown as a line feed. A line feed that follows belongs to it.
    Return,
    /// Something shown as U+FFFD.
    Mark,
}

/// Cleans a complete text.
///
/// ```
/// use sabir_terminal::sanitizer::sanitize_text;
///
/// // A rendition leaves nothing, a command to the terminal one mark, a direction mark its name.
/// assert_eq!(sanitize_text("\u{1b}[31mred\u{1b}[0m"), "red");
/// assert_eq!(sanitize_text("a\u{1b}[2Jb \u{202e}c"), "a\u{fffd}b <U+202E>c");
/// ```
pub fn sanitize_text(text: &str) -> String {
    Sanitizer::default().sanitize_chunk(text)
}

impl Sanitizer {
    /// Cleans the next chunk of the stream. A sequence may begin in one chunk and end in a later one.
    pub fn sanitize_chunk(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            self.push_char(c, &mut shown);
        }
        shown
    }

    /// Processes one character in any state.
    fn push_char(&mut self, c: char, shown: &mut String) {
        match self.state {
            SequenceState::Text => self.push_text(c, shown),
            SequenceState::Escape => match c {
                '[' => self.state = SequenceState::Control { plain: true },
                // OSC, DCS, APC, PM and SOS carry a string.
                ']' | 'P' | '_' | '^' | 'X' => self.begin_string(shown),
                ' '..='/' => {}
                '0'..='~' => self.end_sequence(shown),
                _ => self.push_broken(c, shown),
            },
            SequenceState::Control { plain } => match c {
                '0'..='9' | ';' | ':' => {}
                'm' if plain => self.state = SequenceState::Text,
                // Private parameters or intermediates: not SGR, so the sequence leaves a mark.
                '<'..='?' | ' '..='/' => self.state = SequenceState::Control { plain: false },
                '@'..='~' => self.end_sequence(shown),
                _ => self.push_broken(c, shown),
            },
            SequenceState::String(_) if matches!(c, '\u{7}' | '\u{9c}') => {
                self.state = SequenceState::Text
            }
            SequenceState::String(count) if c == '\u{1b}' => {
                self.state = SequenceState::StringEscape(count)
            }
            SequenceState::StringEscape(_) if c == '\\' => self.state = SequenceState::Text,
            SequenceState::String(count) | SequenceState::StringEscape(count) => {
                let longer = SequenceState::String(count + 1);
                self.state = if count < MAX_STRING_CHARS {
                    longer
                } else {
                    SequenceState::Text
                };
            }
        }
    }

    /// Processes one character outside of sequences.
    fn push_text(&mut self, c: char, shown: &mut String) {
        let last = std::mem::take(&mut self.last);
        match c {
            '\u{1b}' => {
                self.state = SequenceState::Escape;
                self.last = last;
            }
            '\u{9b}' => {
                self.state = SequenceState::Control { plain: true };
                self.last = last;
            }
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                self.last = last;
                self.begin_string(shown);
            }
            '\n' if last == LastOutput::Return => {}
            '\n' | '\t' => self.push_shown(c, shown),
            // A carriage return would move to the start of the line. It becomes a line feed, so
            // that nothing is overwritten.
            '\r' => {
                self.push_shown('\n', shown);
                self.last = LastOutput::Return;
            }
            _ if c.is_control() => {
                self.last = last;
                self.push_mark(shown);
            }
            '\u{200c}' | '\u{200d}' if self.joins => shown.push(c),
            _ if is_invisible_char(c) => {
                self.marks = 0;
                self.joins = false;
                shown.push_str(&format!("<U+{:04X}>", u32::from(c)));
            }
            _ if is_combining(c) => {
                self.marks += 1;
                if self.marks <= MAX_MARKS {
                    shown.push(c);
                }
            }
            _ => self.push_shown(c, shown),
        }
    }

    fn push_shown(&mut self, c: char, shown: &mut String) {
        self.marks = 0;
        self.joins = !c.is_ascii();
        shown.push(c);
    }

    /// Writes one mark for a run of hidden characters.
    fn push_mark(&mut self, shown: &mut String) {
        if self.last != LastOutput::Mark {
            self.push_shown('\u{fffd}', shown);
        }
        self.last = LastOutput::Mark;
    }

    /// Ends a sequence that leaves a mark.
    fn end_sequence(&mut self, shown: &mut String) {
        self.state = SequenceState::Text;
        self.push_mark(shown);
    }

    /// Begins a string sequence. The mark is written at once, since the string may never end.
    fn begin_string(&mut self, shown: &mut String) {
        self.push_mark(shown);
        self.state = SequenceState::String(0);
    }

    /// Handles an invalid sequence: writes a mark and processes the character as text.
    fn push_broken(&mut self, c: char, shown: &mut String) {
        self.end_sequence(shown);
        self.push_char(c, shown);
    }
}

/// Returns true for the combining marks of the common Unicode blocks.
fn is_combining(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as it is shown, whole and in every split.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(sanitize_text(text), expected, "{text:?}");
        let mut bytewise = Sanitizer::default();
        let shown: String = text
            .chars()
            .map(|c| bytewise.sanitize_chunk(c.encode_utf8(&mut [0; 4])))
            .collect();
        assert_eq!(shown, expected, "{text:?}, one at a time");
        for (at, _) in text.char_indices().take(100) {
            let (one, two) = text.split_at(at);
            let mut sanitizer = Sanitizer::default();
            let shown = sanitizer.sanitize_chunk(one) + &sanitizer.sanitize_chunk(two);
            assert_eq!(shown, expected, "{text:?}, split at {at}");
        }
    }

    #[test]
    fn plain_text_is_kept() {
        check("a\r\nb\tc", "a\nb\tc");
        check("evil\rgood", "evil\ngood");
        check("a\r\r\nb\n\nc", "a\n\nb\n\nc");
        check("Grüße, 世界 🌍 e\u{301}", "Grüße, 世界 🌍 e\u{301}");
    }

    #[test]
    fn control_sequences_are_removed() {
        check(
            "\u{1b}[1;31merror\u{1b}[0m: x\u{1b}[38:2::1:2:3m",
            "error: x",
        );
        check("\u{1b}[8mhidden\u{1b}[0m", "hidden");
        check("a\u{1b}[2J\u{1b}[Hb", "a\u{fffd}b");
        check("a\u{1b}[?1049hb\u{1b}[6nc", "a\u{fffd}b\u{fffd}c");
        check("\u{1b}[>4;1mx", "\u{fffd}x");
        check("a\u{1b}]52;c;aGk=\u{7}b", "a\u{fffd}b");
        check(
            "a\u{1b}]8;;https://evil\u{1b}\\good.com\u{1b}]8;;\u{1b}\\b",
            "a\u{fffd}good.com\u{fffd}b",
        );
        check(
            "a\u{1b}P$qm\u{1b}\\b\u{1b}_Gx\u{1b}\\c\u{1b}^x\u{1b}\\d\u{1b}Xx\u{1b}\\e",
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e",
        );
        check("\u{1b}Ptmux;\u{1b}\u{1b}]52;c;x\u{7}b", "\u{fffd}b");
        check("a\u{1b}(0b\u{1b}cc", "a\u{fffd}b\u{fffd}c");
        check("a\u{9b}2Jb\u{9d}52;c;x\u{9c}c", "a\u{fffd}b\u{fffd}c");
        check("a\u{1b}", "a");
        check("a\u{1b}\u{1b}[31mb", "a\u{fffd}b");
        check("a\u{1b}[3\nb", "a\u{fffd}\nb");
    }

    #[test]
    fn long_runs_are_shortened() {
        check(&format!("a{}b", "\u{7}".repeat(1000)), "a\u{fffd}b");
        check(
            &format!("e{}x", "\u{301}".repeat(1000)),
            &format!("e{}x", "\u{301}".repeat(MAX_MARKS)),
        );
        let text = format!("\u{1b}]0;{}more", "x".repeat(MAX_STRING_CHARS - 1));
        assert_eq!(sanitize_text(&text), "\u{fffd}more");
    }

    #[test]
    fn invisible_characters_are_named() {
        check("ls \u{202e}hs.live", "ls <U+202E>hs.live");
        check(
            "👩\u{200d}🔬 می\u{200c}خواهم",
            "👩\u{200d}🔬 می\u{200c}خواهم",
        );
        check("git\u{200d} push", "git<U+200D> push");
        check(
            "a\u{200b}b\u{feff}c\u{2028}d\u{e0041}",
            "a<U+200B>b<U+FEFF>c<U+2028>d<U+E0041>",
        );
    }
}
