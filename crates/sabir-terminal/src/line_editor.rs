//! Edits the message that a user types: Emacs keys, several lines, history, and pastes of any size.
//!
//! The editor is pure: bytes of a terminal in raw mode go in, and completed messages come out. It reads
//! nothing and draws nothing, so that the same keys always do the same.
//!
//! A paste never completes a message, whatever line breaks it has. Most terminals mark a paste
//! (bracketed paste). On other terminals a line break counts as pasted if more input follows it at once,
//! which no person types.
//!
//! The libraries for this (`rustyline`, `reedline`) own the terminal while they read. They print whole lines
//! above their prompt, but not the pieces of a streamed answer; they cannot give a draft back when a question
//! interrupts it; and they cannot tell the keys from before a question from those after it. Each of the three
//! is needed here, and the rest of an editor is small.

use crate::draft_cursor::DraftCursor;

/// The end of a bracketed paste.
const PASTE_END: &[u8] = b"\x1b[201~";
/// The longest escape sequence that is understood; a longer one is dropped.
const MAX_SEQUENCE: usize = 32;

/// An action of the user other than editing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorEvent {
    /// The user completed a message. The draft is empty now.
    Submitted(String),
    /// Ctrl-C without a draft.
    Interrupted,
    /// Ctrl-D without a draft.
    Ended,
    /// A paste that began before [`LineEditor::take_draft`] is complete.
    EarlyPaste(String),
}

/// The line breaks at the end of a read, which complete a message if nothing follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputAfterRead {
    /// More input is already available.
    More,
    /// The input is idle.
    Nothing,
}

/// The message that is being typed, and the history of messages.
#[derive(Debug, Default)]
pub struct LineEditor {
    text: String,
    /// A byte offset in the text, at the beginning of a character.
    cursor: usize,
    /// The text that was removed last, which Ctrl-Y inserts.
    killed: String,
    /// Earlier messages, the oldest first.
    history: Vec<String>,
    /// The entry of the history that is shown, with the draft that it replaced.
    shown_entry: Option<ShownEntry>,
    /// The text that Ctrl-R looks for.
    searched: Option<String>,
    /// The bytes of an incomplete character or escape sequence.
    pending: Vec<u8>,
    paste: Option<Paste>,
    /// True while input follows a line break that counted as pasted.
    in_burst: bool,
    /// True if the last byte was a carriage return, whose line feed is skipped.
    after_return: bool,
}

/// An entry of the history that is shown instead of the draft.
#[derive(Debug)]
struct ShownEntry {
    index: usize,
    draft: String,
}

/// A bracketed paste that is not complete.
#[derive(Debug, Default)]
struct Paste {
    bytes: Vec<u8>,
    /// True if the draft was taken since it began.
    is_early: bool,
}

impl LineEditor {
    /// Creates an editor with these earlier messages, the oldest first.
    pub fn new(history: Vec<String>) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    /// Returns the draft.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte offset of the cursor in the draft.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Takes the draft, and lets a paste that is not complete yet become an [`EditorEvent::EarlyPaste`].
    pub fn take_draft(&mut self) -> String {
        if let Some(paste) = &mut self.paste {
            paste.is_early = true;
        }
        self.cursor = 0;
        self.forget_position();
        std::mem::take(&mut self.text)
    }

    /// Puts a text before the draft.
    pub fn prepend_text(&mut self, earlier: &str) {
        self.text.insert_str(0, earlier);
        self.cursor += earlier.len();
    }

    /// Adds a message to the history.
    pub fn add_to_history(&mut self, message: &str) {
        if !message.trim().is_empty() && self.history.last().is_none_or(|last| last != message) {
            self.history.push(message.to_owned());
        }
    }

    /// Handles bytes from the terminal. `following` says whether more bytes can be read at once.
    pub fn feed(&mut self, bytes: &[u8], following: InputAfterRead) -> Vec<EditorEvent> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            let is_last = rest.is_empty() && following == InputAfterRead::Nothing;
            self.take_byte(*byte, is_last, &mut events);
        }
        if following == InputAfterRead::Nothing {
            self.in_burst = false;
        }
        events
    }

    fn take_byte(&mut self, byte: u8, is_last: bool, events: &mut Vec<EditorEvent>) {
        if let Some(paste) = &mut self.paste {
            paste.bytes.push(byte);
            if paste.bytes.ends_with(PASTE_END) {
                self.end_paste(events);
            }
            return;
        }
        let after_return = std::mem::take(&mut self.after_return);
        if self.pending.is_empty() {
            match byte {
                b'\n' if after_return => {}
                b'\r' | b'\n' => {
                    self.after_return = byte == b'\r';
                    self.break_line(is_last, events);
                }
                0x1b | 0x80.. => self.pending.push(byte),
                0x20..=0x7e => self.insert_text(&char::from(byte).to_string()),
                _ => self.press_control(byte, events),
            }
            return;
        }
        self.pending.push(byte);
        if self.pending.first() == Some(&0x1b) {
            self.continue_sequence();
        } else {
            self.continue_character();
        }
    }

    /// Completes the message, or breaks the line if the break was pasted or is wanted.
    fn break_line(&mut self, is_last: bool, events: &mut Vec<EditorEvent>) {
        if !is_last || self.in_burst {
            self.in_burst = true;
            self.insert_text("\n");
        } else if self
            .text
            .get(..self.cursor)
            .is_some_and(|before| before.ends_with('\\'))
        {
            self.delete_to(self.draft_cursor().previous_character());
            self.insert_text("\n");
        } else {
            self.cursor = 0;
            self.forget_position();
            events.push(EditorEvent::Submitted(std::mem::take(&mut self.text)));
        }
    }

    /// Inserts a complete paste, with its line breaks as line feeds.
    fn end_paste(&mut self, events: &mut Vec<EditorEvent>) {
        let Some(mut paste) = self.paste.take() else {
            return;
        };
        let length = paste.bytes.len().saturating_sub(PASTE_END.len());
        paste.bytes.truncate(length);
        let text = String::from_utf8_lossy(&paste.bytes)
            .replace("\r\n", "\n")
            .replace('\r', "\n");
        if paste.is_early {
            events.push(EditorEvent::EarlyPaste(text));
        } else {
            self.insert_text(&text);
        }
    }

    /// Adds a byte to an incomplete character.
    fn continue_character(&mut self) {
        let expected = match self.pending.first() {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf7) => 4,
            _ => 1,
        };
        let is_whole = self.pending.len() >= expected;
        let is_broken = self
            .pending
            .last()
            .is_none_or(|byte| !(0x80..0xc0).contains(byte));
        if is_whole || is_broken {
            let bytes = std::mem::take(&mut self.pending);
            self.insert_text(&String::from_utf8_lossy(&bytes));
        }
    }

    /// Adds a byte to an escape sequence.
    fn continue_sequence(&mut self) {
        let is_complete = match self.pending.as_slice() {
            [_, b'[' | b'O'] => false,
            [_, b'O', ..] => true,
            [_, b'[', .., last] => (0x40..0x7f).contains(last),
            _ => true,
        };
        if !is_complete {
            if self.pending.len() > MAX_SEQUENCE {
                self.pending.clear();
            }
            return;
        }
        let sequence = std::mem::take(&mut self.pending);
        match sequence.get(1..).unwrap_or_default() {
            b"[200~" => self.paste = Some(Paste::default()),
            b"[A" | b"OA" => self.move_up(),
            b"[B" | b"OB" => self.move_down(),
            b"[C" | b"OC" => self.cursor = self.draft_cursor().next_character(),
            b"[D" | b"OD" => self.cursor = self.draft_cursor().previous_character(),
            b"[H" | b"OH" | b"[1~" | b"[7~" => self.cursor = self.draft_cursor().line_start(),
            b"[F" | b"OF" | b"[4~" | b"[8~" => self.cursor = self.draft_cursor().line_end(),
            b"[3~" => self.delete_to(self.draft_cursor().next_character()),
            b"[1;5C" | b"[1;3C" | b"f" | b"F" => self.cursor = self.draft_cursor().word_end(),
            b"[1;5D" | b"[1;3D" | b"b" | b"B" => self.cursor = self.draft_cursor().word_start(),
            b"d" | b"D" => self.kill_to(self.draft_cursor().word_end()),
            [0x7f | 0x08] => self.kill_to(self.draft_cursor().word_start()),
            // Alt-Enter; and Shift-Enter, in the terminals that tell it apart.
            b"\r" | b"\n" | b"[13;2u" | b"[13;3u" | b"[27;2;13~" => self.insert_text("\n"),
            b"<" => self.show_entry(0),
            b">" => self.leave_history(),
            _ => {}
        }
    }

    fn press_control(&mut self, byte: u8, events: &mut Vec<EditorEvent>) {
        let key = char::from(byte | 0x60);
        if key != 'r' {
            self.searched = None;
        }
        match (key, byte) {
            (_, 0x7f) | ('h', _) => self.delete_to(self.draft_cursor().previous_character()),
            ('i', _) => self.insert_text("\t"),
            ('a', _) => self.cursor = self.draft_cursor().line_start(),
            ('e', _) => self.cursor = self.draft_cursor().line_end(),
            ('b', _) => self.cursor = self.draft_cursor().previous_character(),
            ('f', _) => self.cursor = self.draft_cursor().next_character(),
            ('c', _) if self.text.is_empty() => events.push(EditorEvent::Interrupted),
            ('c', _) => {
                // Kept in the history, so that a slip of the finger loses nothing.
                let text = self.take_draft();
                self.add_to_history(&text);
            }
            ('d', _) if self.text.is_empty() => events.push(EditorEvent::Ended),
            ('d', _) => self.delete_to(self.draft_cursor().next_character()),
            ('k', _) if self.cursor == self.draft_cursor().line_end() => {
                self.kill_to(self.draft_cursor().next_character())
            }
            ('k', _) => self.kill_to(self.draft_cursor().line_end()),
            ('n', _) => self.move_down(),
            ('p', _) => self.move_up(),
            ('r', _) => self.search_history(),
            ('t', _) => self.swap_characters(),
            ('u', _) => self.kill_to(self.draft_cursor().line_start()),
            ('w', _) => self.kill_to(self.draft_cursor().blank_word_start()),
            ('y', _) => self.insert_text(&self.killed.clone()),
            _ => {}
        }
    }

    fn insert_text(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.forget_position();
    }

    fn delete_to(&mut self, offset: usize) {
        _ = self.remove_to(offset);
    }

    /// Removes and returns the text between the cursor and a byte offset.
    fn remove_to(&mut self, offset: usize) -> String {
        let start = offset.min(self.cursor);
        let end = offset.max(self.cursor);
        self.cursor = start;
        self.forget_position();
        self.text.drain(start..end).collect()
    }

    fn kill_to(&mut self, offset: usize) {
        let killed = self.remove_to(offset);
        if !killed.is_empty() {
            self.killed = killed;
        }
    }

    /// Swaps the character at the cursor with the one before it.
    fn swap_characters(&mut self) {
        if self.cursor == self.text.len() {
            self.cursor = self.draft_cursor().previous_character();
        }
        let before = self.draft_cursor().previous_character();
        if before == self.cursor {
            return;
        }
        let after = self.draft_cursor().next_character();
        let moved = self.remove_to(before);
        self.cursor += after - before - moved.len();
        self.insert_text(&moved);
    }

    /// Returns the place of the cursor.
    fn draft_cursor(&self) -> DraftCursor<'_> {
        DraftCursor::new(&self.text, self.cursor)
    }

    /// Moves to the line above, or to the entry of the history before.
    fn move_up(&mut self) {
        if let Some(offset) = self.draft_cursor().line_above() {
            self.cursor = offset;
            return;
        }
        let index = match &self.shown_entry {
            Some(shown) => shown.index.checked_sub(1),
            None => self.history.len().checked_sub(1),
        };
        if let Some(index) = index {
            self.show_entry(index);
        }
    }

    /// Moves to the line below, or to the entry of the history after.
    fn move_down(&mut self) {
        if let Some(offset) = self.draft_cursor().line_below() {
            self.cursor = offset;
            return;
        }
        let Some(shown) = &self.shown_entry else {
            return;
        };
        if shown.index + 1 < self.history.len() {
            self.show_entry(shown.index + 1);
        } else {
            self.leave_history();
        }
    }

    /// Shows an entry of the history, and keeps the draft.
    fn show_entry(&mut self, index: usize) {
        let Some(entry) = self.history.get(index) else {
            return;
        };
        let replaced = std::mem::replace(&mut self.text, entry.clone());
        self.cursor = self.text.len();
        let draft = match self.shown_entry.take() {
            Some(shown) => shown.draft,
            None => replaced,
        };
        self.shown_entry = Some(ShownEntry { index, draft });
    }

    /// Shows the draft again.
    fn leave_history(&mut self) {
        match self.shown_entry.take() {
            Some(shown) => {
                self.text = shown.draft;
                self.cursor = self.text.len();
            }
            None => self.cursor = self.text.len(),
        }
    }

    /// Shows the next older message that contains the typed text.
    fn search_history(&mut self) {
        let wanted = self.searched.clone().unwrap_or_else(|| self.text.clone());
        let end = match &self.shown_entry {
            Some(shown) => shown.index,
            None => self.history.len(),
        };
        let found = self
            .history
            .iter()
            .take(end)
            .rposition(|entry| entry.contains(&wanted));
        if let Some(index) = found {
            self.show_entry(index);
        }
        self.searched = Some(wanted);
    }

    /// Makes the shown entry of the history the draft, because it was edited.
    fn forget_position(&mut self) {
        self.shown_entry = None;
        self.searched = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_keys(editor: &mut LineEditor, keys: &str) -> Vec<EditorEvent> {
        editor.feed(keys.as_bytes(), InputAfterRead::Nothing)
    }

    fn submitted(text: &str) -> Vec<EditorEvent> {
        vec![EditorEvent::Submitted(text.to_owned())]
    }

    #[test]
    fn keys_edit_the_draft() {
        let check = |keys: &str, text: &str| {
            let mut editor = LineEditor::default();
            assert_eq!(type_keys(&mut editor, keys), [], "{keys:?}");
            assert_eq!(editor.text(), text, "{keys:?}");
        };
        check("abc\x01x\x05y", "xabcy");
        check("abc\x02\x02\x04", "ac");
        check("abc\x7f\x08", "a");
        check("one two\x17x", "one x");
        check("one two\x1bb\x0b", "one ");
        check("one two\x01\x1bd", " two");
        check("one two\x15\x19\x19", "one twoone two");
        check("ab\x14", "ba");
        check("abc\x1b[D\x1b[3~", "ab");
        check("a\x1b\rb\x1b[Ax", "ax\nb");
        check("häß\x7f\x1b[Dx", "hxä");
        check("e\u{301}x\x02\x02y", "ye\u{301}x");
        check("a\x1b[99;99Zb", "ab");
        check("gone\x03x", "x");
    }

    #[test]
    fn enter_completes_and_a_backslash_continues() {
        let mut editor = LineEditor::default();
        assert_eq!(type_keys(&mut editor, "one\\\r"), []);
        assert_eq!(type_keys(&mut editor, "two\r"), submitted("one\ntwo"));
        assert_eq!(type_keys(&mut editor, "three\n"), submitted("three"));
        assert_eq!(type_keys(&mut editor, "\x03"), [EditorEvent::Interrupted]);
        assert_eq!(type_keys(&mut editor, "\x04"), [EditorEvent::Ended]);
    }

    #[test]
    fn a_paste_is_one_message_in_any_chunks() {
        let body = "fn a() {\r\n\tb();\r\r    c(\u{fc})\r}\r".repeat(900);
        let expected = "fn a() {\n\tb();\n\n    c(\u{fc})\n}\n".repeat(900);
        let bytes = format!("see: \x1b[200~{body}\x1b[201~");
        for size in [1, 2, 3, 7, 4096, bytes.len()] {
            let mut editor = LineEditor::default();
            for chunk in bytes.as_bytes().chunks(size) {
                assert_eq!(editor.feed(chunk, InputAfterRead::Nothing), []);
            }
            let events = type_keys(&mut editor, "\r");
            assert_eq!(events, submitted(&format!("see: {expected}")));
        }
    }

    #[test]
    fn a_paste_without_marks_is_recognised_by_its_pace() {
        let mut editor = LineEditor::default();
        assert_eq!(editor.feed(b"one\r  two\r", InputAfterRead::More), []);
        assert_eq!(editor.feed(b"three\r", InputAfterRead::Nothing), []);
        assert_eq!(
            type_keys(&mut editor, "\r"),
            submitted("one\n  two\nthree\n")
        );
    }

    #[test]
    fn history_is_walked_and_searched() {
        let history = ["fix it", "run tests", "fix that"].map(str::to_owned);
        let mut editor = LineEditor::new(history.to_vec());
        type_keys(&mut editor, "draft\x10\x10");
        assert_eq!(editor.text(), "run tests");
        type_keys(&mut editor, "\x0e\x0e");
        assert_eq!(editor.text(), "draft");
        type_keys(&mut editor, "\x15fix\x12");
        assert_eq!(editor.text(), "fix that");
        type_keys(&mut editor, "\x12");
        assert_eq!(editor.text(), "fix it");
        assert_eq!(type_keys(&mut editor, "!\r"), submitted("fix it!"));
    }

    #[test]
    fn a_draft_from_before_a_question_is_set_aside() {
        let mut editor = LineEditor::default();
        type_keys(&mut editor, "early \x1b[200~pas");
        assert_eq!(editor.take_draft(), "early ");
        let rest = type_keys(&mut editor, "ted\x1b[201~n\r");
        assert_eq!(
            rest,
            [
                EditorEvent::EarlyPaste("pasted".to_owned()),
                EditorEvent::Submitted("n".to_owned())
            ]
        );
        type_keys(&mut editor, "more");
        editor.prepend_text("early pasted");
        assert_eq!(type_keys(&mut editor, "\r"), submitted("early pastedmore"));
    }
}
