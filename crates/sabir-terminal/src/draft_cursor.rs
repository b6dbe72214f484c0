//! Finds the places that the keys of an editor move to: characters, words and lines around a cursor.

use unicode_segmentation::UnicodeSegmentation;

/// A cursor in a draft. All places are byte offsets at the beginnings of graphemes, which are what a user sees as one character.
#[derive(Debug, Clone, Copy)]
pub struct DraftCursor<'t> {
    text: &'t str,
    cursor: usize,
    is_whole_word: fn(char) -> bool,
}

impl<'t> DraftCursor<'t> {
    /// Creates the place of a cursor, which must be at the beginning of a character of the text or at its end.
    #[must_use]
    pub fn new(text: &'t str, cursor: usize) -> Self {
        Self {
            text,
            cursor,
            is_whole_word: |_| false,
        }
    }

    /// Sets the characters that are words of their own, such as the mark of a folded paste.
    #[must_use]
    pub fn with_whole_words(self, is_whole_word: fn(char) -> bool) -> Self {
        Self {
            is_whole_word,
            ..self
        }
    }

    /// Returns the text before the cursor.
    #[must_use]
    pub fn before(self) -> &'t str {
        self.text.get(..self.cursor).unwrap_or_default()
    }

    /// Returns the text after the cursor.
    #[must_use]
    pub fn after(self) -> &'t str {
        self.text.get(self.cursor..).unwrap_or_default()
    }

    /// Returns the beginning of the character before the cursor.
    #[must_use]
    pub fn previous_character(self) -> usize {
        let last = self.before().grapheme_indices(true).next_back();
        last.map_or(0, |(at, _)| at)
    }

    /// Returns the end of the character after the cursor.
    #[must_use]
    pub fn next_character(self) -> usize {
        let length = self.after().graphemes(true).next().map_or(0, str::len);
        self.cursor + length
    }

    /// Returns the beginning of the line.
    #[must_use]
    pub fn line_start(self) -> usize {
        self.before().rfind('\n').map_or(0, |at| at + 1)
    }

    /// Returns the end of the line.
    #[must_use]
    pub fn line_end(self) -> usize {
        let end = self.after().find('\n');
        end.map_or(self.text.len(), |at| self.cursor + at)
    }

    /// Returns the place in the line above; `None` in the first line.
    #[must_use]
    pub fn line_above(self) -> Option<usize> {
        let end = self.line_start().checked_sub(1)?;
        let start = Self::new(self.text, end).line_start();
        Some(self.same_column(start))
    }

    /// Returns the place in the line below; `None` in the last line.
    #[must_use]
    pub fn line_below(self) -> Option<usize> {
        let end = self.line_end();
        (end < self.text.len()).then(|| self.same_column(end + 1))
    }

    /// Returns the place with the column of the cursor in the line that begins at `start`.
    fn same_column(self, start: usize) -> usize {
        let own_line = self.text.get(self.line_start()..self.cursor);
        let column = own_line.map_or(0, |line| line.graphemes(true).count());
        let other = Self::new(self.text, start);
        let line = self.text.get(start..other.line_end()).unwrap_or_default();
        let left = line.graphemes(true).take(column).map(str::len);
        start + left.sum::<usize>()
    }

    /// Returns the beginning of the word before the cursor, made of letters and digits.
    #[must_use]
    pub fn word_start(self) -> usize {
        let is_word = |c: char| c.is_alphanumeric() || (self.is_whole_word)(c);
        let trimmed = self.before().trim_end_matches(|c| !is_word(c));
        match trimmed.chars().next_back() {
            Some(c) if (self.is_whole_word)(c) => trimmed.len() - c.len_utf8(),
            _ => self.align(trimmed.trim_end_matches(char::is_alphanumeric).len()),
        }
    }

    /// Returns the end of the word after the cursor.
    #[must_use]
    pub fn word_end(self) -> usize {
        let is_word = |c: char| c.is_alphanumeric() || (self.is_whole_word)(c);
        let trimmed = self.after().trim_start_matches(|c| !is_word(c));
        let rest = match trimmed.chars().next() {
            Some(c) if (self.is_whole_word)(c) => trimmed.get(c.len_utf8()..).unwrap_or_default(),
            _ => trimmed.trim_start_matches(char::is_alphanumeric),
        };
        self.align(self.text.len() - rest.len())
    }

    /// Returns the beginning of the word before the cursor, where blanks alone divide words.
    #[must_use]
    pub fn blank_word_start(self) -> usize {
        let trimmed = self.before().trim_end();
        let start = trimmed.trim_end_matches(|c: char| !c.is_whitespace());
        self.align(start.len())
    }

    /// Returns the first beginning of a grapheme at or after an offset.
    #[must_use]
    pub fn align(self, offset: usize) -> usize {
        let mut starts = self.text.grapheme_indices(true).map(|(at, _)| at);
        starts.find(|at| *at >= offset).unwrap_or(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_graphemes() {
        let text = "ae\u{301}👩\u{200d}🔬z";
        let place = |cursor| DraftCursor::new(text, cursor);
        assert_eq!(place(1).next_character(), 4);
        assert_eq!(place(4).previous_character(), 1);
        assert_eq!(place(4).next_character(), text.len() - 1);
        assert_eq!(place(0).previous_character(), 0);
        assert_eq!(place(text.len()).next_character(), text.len());
    }

    #[test]
    fn lines_keep_the_column() {
        let text = "abc\nü\nabcd";
        let place = |cursor| DraftCursor::new(text, cursor);
        assert_eq!(place(2).line_below(), Some(6));
        assert_eq!(place(6).line_above(), Some(1));
        assert_eq!(place(9).line_above(), Some(6));
        assert_eq!(place(1).line_above(), None);
        assert_eq!(place(8).line_below(), None);
    }

    #[test]
    fn words_end_at_blanks_and_signs() {
        let text = "git log --oneline";
        let place = DraftCursor::new(text, text.len());
        assert_eq!(place.word_start(), 10);
        assert_eq!(place.blank_word_start(), 8);
        assert_eq!(DraftCursor::new(text, 3).word_end(), 7);
        let marked = DraftCursor::new("ab#cd", 3).with_whole_words(|c| c == '#');
        assert_eq!(marked.word_start(), 2);
        assert_eq!(
            DraftCursor {
                cursor: 2,
                ..marked
            }
            .word_end(),
            3
        );
    }
}
