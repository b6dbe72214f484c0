//! Edits the message that the user types: several lines, Emacs keys, undo, history, search, and pastes of any size.
//!
//! A long paste is folded: the draft holds one character of a private plane for it, which is drawn
//! as a label and is moved over and deleted as one. [`Composer::message`] puts the pasted text
//! back, byte for byte. A text that contains such a character is folded as well, so that nothing
//! that is typed or pasted can be mistaken for a fold.

use std::sync::Arc;

use sabir_session::config::key_bindings::{KeyAction, KeyBindings};
use sabir_session::config::tui::EditingKeys;
use sabir_terminal::draft_cursor::DraftCursor;
use unicode_segmentation::UnicodeSegmentation;

use crate::keys::{Key, KeyCode};
use crate::vi_keys::{ViCommand, ViMotion, ViParser};

/// The first character that marks a folded paste.
const FIRST_FOLD: u32 = 0xF_0000;
/// The number of characters that mark folded pastes.
const FOLD_COUNT: u32 = 0x1000;
/// The minimum number of lines of a folded paste.
const MIN_FOLDED_LINES: usize = 8;
/// The minimum number of bytes of a folded paste.
const MIN_FOLDED_BYTES: usize = 1000;
/// The maximum number of steps that can be undone.
const MAX_UNDO: usize = 200;

/// The effect of a key on the composer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEffect {
    /// The key edits or moves in the draft.
    Handled,
    /// The key means nothing here.
    Ignored,
}

/// The draft of a message.
#[derive(Debug, Default)]
pub struct Composer {
    text: String,
    /// A byte offset in the text, at the beginning of a grapheme.
    cursor: usize,
    /// The folded pastes; the marker of each is [`FIRST_FOLD`] plus its index. They are kept for undo.
    folds: Vec<String>,
    killed: String,
    undo: Vec<Snapshot>,
    redo: Vec<Snapshot>,
    /// True while typed characters extend the last undo step.
    is_typing: bool,
    history: Vec<String>,
    shown_entry: Option<ShownEntry>,
    search: Option<HistorySearch>,
    /// The command mode of vi; `None` while keys insert, and always with the keys of Emacs.
    vi_command: Option<ViParser>,
    has_vi_keys: bool,
    bindings: Arc<KeyBindings>,
}

/// A state of the draft.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    text: String,
    cursor: usize,
}

/// An entry of the history that is shown instead of the draft.
#[derive(Debug)]
struct ShownEntry {
    index: usize,
    draft: Snapshot,
}

/// A search in the history (Ctrl-R).
#[derive(Debug)]
struct HistorySearch {
    query: String,
    /// The entry that was found.
    index: Option<usize>,
    /// The draft from before the search.
    draft: Snapshot,
}

/// A search as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchView<'a> {
    /// The text that is looked for.
    pub query: &'a str,
    /// False if no message contains it.
    pub is_found: bool,
}

/// A piece of the draft as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftPiece<'a> {
    /// A grapheme, or a line feed.
    Text(&'a str),
    /// The label of a folded paste.
    Fold(String),
}

impl Composer {
    /// Creates a composer with these earlier messages, the oldest first.
    pub fn new(history: Vec<String>) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    /// Sets the keys. With vi's keys, the composer starts in insert mode.
    pub fn with_keys(self, keys: EditingKeys) -> Self {
        Self {
            has_vi_keys: keys == EditingKeys::Vi,
            ..self
        }
    }

    /// Sets the keys of the actions.
    pub fn with_bindings(self, bindings: Arc<KeyBindings>) -> Self {
        Self { bindings, ..self }
    }

    /// Returns true while keys are commands of vi.
    pub fn is_in_command_mode(&self) -> bool {
        self.vi_command.is_some()
    }

    /// Enters vi's command mode after Escape. Returns false if Escape has another purpose.
    pub fn leave_insertion(&mut self) -> bool {
        // Without a draft Escape is for the task, as with the keys of Emacs.
        if !self.has_vi_keys || self.vi_command.is_some() || self.is_empty() {
            return false;
        }
        self.vi_command = Some(ViParser::default());
        self.is_typing = false;
        true
    }

    /// Returns true if there is no draft.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the draft, with a marker for each folded paste.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte offset of the cursor in [`Composer::text`].
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the message: the draft with all pastes as they were pasted.
    pub fn message(&self) -> String {
        self.unfold(&self.text)
    }

    /// Returns the search in the history, if there is one.
    pub fn search(&self) -> Option<SearchView<'_>> {
        self.search.as_ref().map(|search| SearchView {
            query: &search.query,
            is_found: search.index.is_some() || search.query.is_empty(),
        })
    }

    /// Returns the pieces of the draft, each with its byte offset.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, DraftPiece<'_>)> {
        self.text.grapheme_indices(true).map(|(at, grapheme)| {
            let fold = grapheme.chars().next().and_then(|c| self.fold_of(c));
            let piece = match fold {
                Some(pasted) => DraftPiece::Fold(fold_label(pasted)),
                None => DraftPiece::Text(grapheme),
            };
            (at, piece)
        })
    }

    /// Returns the message, adds it to the history, and leaves an empty draft.
    pub fn take_message(&mut self) -> String {
        let message = self.message();
        self.add_to_history(&message);
        self.clear_all();
        message
    }

    /// Clears the draft, which stays in the history and can be restored with undo.
    pub fn clear(&mut self) {
        let message = self.message();
        self.add_to_history(&message);
        self.begin_step();
        self.text.clear();
        self.cursor = 0;
        self.leave_modes();
    }

    /// Replaces the draft, as an editor or a completion does. Undo restores the old one.
    pub fn replace(&mut self, text: &str) {
        self.begin_step();
        self.text.clear();
        self.cursor = 0;
        self.leave_modes();
        self.insert_foreign(text, false);
    }

    /// Replaces the bytes from `start` to the cursor.
    pub fn replace_before_cursor(&mut self, start: usize, text: &str) {
        self.begin_step();
        if self.text.is_char_boundary(start) && start <= self.cursor {
            self.text.drain(start..self.cursor);
            self.cursor = start;
        }
        self.insert_foreign(text, false);
    }

    /// Puts a text before the draft.
    pub fn prepend_text(&mut self, earlier: &str) {
        let cursor = self.cursor;
        self.begin_step();
        self.cursor = 0;
        self.insert_foreign(earlier, true);
        self.cursor += cursor;
    }

    /// Adds a message to the history.
    pub fn add_to_history(&mut self, message: &str) {
        if !message.trim().is_empty() && self.history.last().is_none_or(|last| last != message) {
            self.history.push(message.to_owned());
        }
    }

    /// Inserts a paste, folded if it is long.
    pub fn paste(&mut self, text: &str) {
        self.accept_search();
        self.begin_step();
        self.shown_entry = None;
        self.insert_foreign(text, true);
    }

    /// Takes a key.
    pub fn press(&mut self, key: Key) -> KeyEffect {
        if self.search.is_some()
            && let Some(effect) = self.press_in_search(key)
        {
            return effect;
        }
        if let (Some(parser), Some(c)) = (&mut self.vi_command, key.written_char()) {
            if let Some(command) = parser.press(c) {
                self.run_vi_command(command);
            }
            return KeyEffect::Handled;
        }
        if let Some(c) = key.written_char() {
            self.type_char(c);
            return KeyEffect::Handled;
        }
        let is_typing = std::mem::take(&mut self.is_typing);
        let effect = match self.bindings.find_action(key) {
            Some(action) => self.run_action(action),
            None => self.press_named(key),
        };
        if effect == KeyEffect::Ignored {
            self.is_typing = is_typing;
        }
        effect
    }

    fn run_vi_command(&mut self, command: ViCommand) {
        match command {
            ViCommand::Move(ViMotion::Up) => self.move_up(),
            ViCommand::Move(ViMotion::Down) => self.move_down(),
            ViCommand::Move(motion) => self.cursor = self.motion_target(motion),
            ViCommand::Delete(motion) => self.kill_motion(motion),
            ViCommand::Change(motion) => {
                self.kill_motion(motion);
                self.vi_command = None;
            }
            ViCommand::Yank(motion) => {
                // Deleted and brought back: so a yank keeps exactly what a deletion would.
                let cursor = self.cursor;
                self.kill_motion(motion);
                self.undo_step();
                self.redo.clear();
                self.cursor = cursor.min(self.text.len());
                self.align_cursor();
            }
            ViCommand::Insert(motion) => {
                if let Some(motion) = motion {
                    self.cursor = self.motion_target(motion);
                }
                self.vi_command = None;
            }
            ViCommand::OpenBelow => {
                self.cursor = self.draft_cursor().line_end();
                self.insert_line_break();
                self.vi_command = None;
            }
            ViCommand::Put => {
                self.begin_step();
                let killed = self.killed.clone();
                self.insert_own(&killed);
            }
            ViCommand::Undo => self.undo_step(),
        }
    }

    /// Deletes up to the target of a motion.
    fn kill_motion(&mut self, motion: ViMotion) {
        if motion == ViMotion::WholeLine {
            self.cursor = self.draft_cursor().line_start();
            return self.kill_to(self.draft_cursor().line_end());
        }
        self.kill_to(self.motion_target(motion));
    }

    /// Returns the target of a motion.
    fn motion_target(&self, motion: ViMotion) -> usize {
        match motion {
            ViMotion::Left => self
                .draft_cursor()
                .previous_character()
                .max(self.draft_cursor().line_start()),
            ViMotion::Right => self
                .draft_cursor()
                .next_character()
                .min(self.draft_cursor().line_end()),
            ViMotion::Up => self.draft_cursor().line_above().unwrap_or(self.cursor),
            ViMotion::Down => self.draft_cursor().line_below().unwrap_or(self.cursor),
            ViMotion::WordBack => self.draft_cursor().word_start(),
            ViMotion::WordEnd => self.draft_cursor().word_end(),
            ViMotion::NextWord => {
                let end = self.draft_cursor().word_end();
                let after = self.text.get(end..).unwrap_or_default();
                let blanks = after.len() - after.trim_start_matches([' ', '\t']).len();
                // From a blank, the next word begins where the blanks end.
                let here = self.text.get(self.cursor..).unwrap_or_default();
                let own = here.len() - here.trim_start_matches([' ', '\t']).len();
                match own {
                    0 => end + blanks,
                    own => self.cursor + own,
                }
            }
            ViMotion::LineStart | ViMotion::WholeLine => self.draft_cursor().line_start(),
            ViMotion::LineEnd => self.draft_cursor().line_end(),
            ViMotion::Start => 0,
            ViMotion::End => self.text.len(),
        }
    }

    /// Executes an action on the draft.
    fn run_action(&mut self, action: KeyAction) -> KeyEffect {
        match action {
            KeyAction::BreakLine => self.insert_line_break(),
            KeyAction::SearchHistory => self.begin_search(),
            KeyAction::PreviousMessage => self.move_up(),
            KeyAction::NextMessage => self.move_down(),
            KeyAction::Undo => self.undo_step(),
            KeyAction::Redo => self.redo_step(),
            KeyAction::UnfoldPaste => self.unfold_at_cursor(),
            KeyAction::LineStart => self.cursor = self.draft_cursor().line_start(),
            KeyAction::LineEnd => self.cursor = self.draft_cursor().line_end(),
            KeyAction::CharacterBack => self.cursor = self.draft_cursor().previous_character(),
            KeyAction::CharacterForward => self.cursor = self.draft_cursor().next_character(),
            KeyAction::WordBack => self.cursor = self.draft_cursor().word_start(),
            KeyAction::WordForward => self.cursor = self.draft_cursor().word_end(),
            KeyAction::DraftStart => self.cursor = 0,
            KeyAction::DraftEnd => self.cursor = self.text.len(),
            KeyAction::DeleteWordBack => self.kill_to(self.draft_cursor().blank_word_start()),
            KeyAction::DeleteWordForward => self.kill_to(self.draft_cursor().word_end()),
            KeyAction::DeleteToLineStart => self.kill_to(self.draft_cursor().line_start()),
            KeyAction::DeleteToLineEnd if self.cursor == self.draft_cursor().line_end() => {
                self.kill_to(self.draft_cursor().next_character());
            }
            KeyAction::DeleteToLineEnd => self.kill_to(self.draft_cursor().line_end()),
            KeyAction::InsertDeleted => {
                self.begin_step();
                let killed = self.killed.clone();
                self.insert_own(&killed);
            }
            KeyAction::SwapCharacters => self.swap_graphemes(),
            KeyAction::SendNow
            | KeyAction::OpenEditor
            | KeyAction::PastePicture
            | KeyAction::UnfoldOutput
            | KeyAction::NextMode
            | KeyAction::SecondAction
            | KeyAction::Command(_) => return KeyEffect::Ignored,
        }
        KeyEffect::Handled
    }

    /// Handles a key that always means the same.
    fn press_named(&mut self, key: Key) -> KeyEffect {
        let by_word = key.control || key.alt;
        match key.code {
            KeyCode::Char('d') if key.control && !key.alt && !self.text.is_empty() => {
                self.delete_to(self.draft_cursor().next_character());
            }
            KeyCode::Char('h') if key.control && !key.alt => {
                self.delete_to(self.draft_cursor().previous_character());
            }
            KeyCode::Enter if key.alt || key.shift || key.control => self.insert_line_break(),
            KeyCode::Backspace if by_word => self.kill_to(self.draft_cursor().word_start()),
            KeyCode::Backspace => self.delete_to(self.draft_cursor().previous_character()),
            KeyCode::Delete if by_word => self.kill_to(self.draft_cursor().word_end()),
            KeyCode::Delete => self.delete_to(self.draft_cursor().next_character()),
            KeyCode::Left if by_word => self.cursor = self.draft_cursor().word_start(),
            KeyCode::Right if by_word => self.cursor = self.draft_cursor().word_end(),
            KeyCode::Left => self.cursor = self.draft_cursor().previous_character(),
            KeyCode::Right => self.cursor = self.draft_cursor().next_character(),
            KeyCode::Home if by_word => self.cursor = 0,
            KeyCode::End if by_word => self.cursor = self.text.len(),
            KeyCode::Home => self.cursor = self.draft_cursor().line_start(),
            KeyCode::End => self.cursor = self.draft_cursor().line_end(),
            KeyCode::Up => self.move_up(),
            KeyCode::Down => self.move_down(),
            _ => return KeyEffect::Ignored,
        }
        KeyEffect::Handled
    }

    /// Handles a key during a search; `None` if the search is over and the key has its usual meaning.
    fn press_in_search(&mut self, key: Key) -> Option<KeyEffect> {
        if self.bindings.find_action(key) == Some(KeyAction::SearchHistory) {
            self.search_older();
            return Some(KeyEffect::Handled);
        }
        match key.code {
            KeyCode::Char('g') if key.control => self.cancel_search(),
            KeyCode::Escape => self.cancel_search(),
            KeyCode::Backspace => {
                if let Some(search) = &mut self.search {
                    search.query.pop();
                    search.index = None;
                }
                self.search_older();
            }
            _ => match key.written_char() {
                Some(c) => {
                    if let Some(search) = &mut self.search {
                        search.query.push(c);
                        // The entry that is shown may contain the longer text as well.
                        search.index = search.index.map(|index| index + 1);
                    }
                    self.search_older();
                }
                None => {
                    self.accept_search();
                    // Enter takes the found message into the draft, and does not send it unseen.
                    return (key.code == KeyCode::Enter).then_some(KeyEffect::Handled);
                }
            },
        }
        Some(KeyEffect::Handled)
    }

    fn begin_search(&mut self) {
        let draft = self.leave_entry();
        self.search = Some(HistorySearch {
            query: String::new(),
            index: None,
            draft,
        });
    }

    fn search_older(&mut self) {
        let Some(search) = &mut self.search else {
            return;
        };
        let end = search.index.unwrap_or(self.history.len());
        let found = self
            .history
            .iter()
            .take(end)
            .rposition(|entry| entry.contains(&search.query));
        search.index = found;
        let shown = match found.and_then(|index| self.history.get(index)) {
            Some(entry) if !search.query.is_empty() => entry.clone(),
            _ => {
                let draft = search.draft.clone();
                self.restore(draft);
                return;
            }
        };
        self.show_text(&shown);
    }

    fn cancel_search(&mut self) {
        if let Some(search) = self.search.take() {
            self.restore(search.draft);
        }
    }

    /// Makes the found message the draft. Undo restores the old draft.
    fn accept_search(&mut self) {
        if let Some(search) = self.search.take()
            && search.draft.text != self.text
        {
            self.push_undo(search.draft);
        }
    }

    fn type_char(&mut self, c: char) {
        self.keep_entry_as_step();
        // A word is one step of undo.
        if !self.is_typing || c.is_whitespace() {
            self.begin_step();
        }
        self.is_typing = true;
        if is_fold_mark(c) {
            self.insert_foreign(c.encode_utf8(&mut [0; 4]), false);
        } else {
            self.insert_own(c.encode_utf8(&mut [0; 4]));
        }
    }

    fn insert_line_break(&mut self) {
        self.begin_step();
        self.insert_own("\n");
    }

    /// Inserts text from outside; `may_fold` folds a long one.
    fn insert_foreign(&mut self, text: &str, may_fold: bool) {
        let is_long =
            text.len() >= MIN_FOLDED_BYTES || text.matches('\n').count() >= MIN_FOLDED_LINES;
        let must_fold = text.contains(is_fold_mark);
        if !(must_fold || may_fold && is_long) {
            return self.insert_own(text);
        }
        let mark = u32::try_from(self.folds.len())
            .ok()
            .filter(|index| *index < FOLD_COUNT)
            .and_then(|index| char::from_u32(FIRST_FOLD + index));
        if let Some(mark) = mark {
            self.folds.push(text.to_owned());
            self.insert_own(mark.encode_utf8(&mut [0; 4]));
        } else if let Some(last) = self.folds.last_mut() {
            // Thousands of pastes in one draft: the last fold grows, so that nothing is lost.
            last.push_str(text);
        }
    }

    /// Inserts text whose fold marks belong to this draft.
    fn insert_own(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.align_cursor();
    }

    /// Moves the cursor to the end of the grapheme that it is in. Inserted text may join its neighbours.
    fn align_cursor(&mut self) {
        self.cursor = self.draft_cursor().align(self.cursor);
    }

    fn unfold_at_cursor(&mut self) {
        let start = self.draft_cursor().previous_character();
        let mark = self.text.get(start..self.cursor).and_then(|text| {
            let c = text.chars().next()?;
            self.fold_of(c)
                .filter(|pasted| !pasted.contains(is_fold_mark))
        });
        if let Some(pasted) = mark.cloned() {
            self.begin_step();
            self.text.drain(start..self.cursor);
            self.cursor = start;
            self.insert_own(&pasted);
        }
    }

    fn fold_of(&self, c: char) -> Option<&String> {
        let index = u32::from(c).checked_sub(FIRST_FOLD)?;
        self.folds.get(usize::try_from(index).ok()?)
    }

    fn unfold(&self, text: &str) -> String {
        let mut whole = String::with_capacity(text.len());
        for c in text.chars() {
            match self.fold_of(c) {
                Some(pasted) => whole.push_str(pasted),
                None => whole.push(c),
            }
        }
        whole
    }

    fn delete_to(&mut self, offset: usize) {
        _ = self.remove_to(offset);
    }

    fn kill_to(&mut self, offset: usize) {
        let killed = self.remove_to(offset);
        if !killed.is_empty() {
            self.killed = killed;
        }
    }

    fn remove_to(&mut self, offset: usize) -> String {
        let start = offset.min(self.cursor);
        let end = offset.max(self.cursor);
        if start == end {
            return String::new();
        }
        self.begin_step();
        self.cursor = start;
        let removed = self.text.drain(start..end).collect();
        self.align_cursor();
        removed
    }

    fn swap_graphemes(&mut self) {
        if self.cursor == self.text.len() {
            self.cursor = self.draft_cursor().previous_character();
        }
        let before = self.draft_cursor().previous_character();
        let after = self.draft_cursor().next_character();
        if before == self.cursor || after == self.cursor {
            return;
        }
        self.begin_step();
        let moved: String = self.text.drain(before..self.cursor).collect();
        self.cursor = after - moved.len();
        self.align_cursor();
        self.insert_own(&moved);
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            text: self.text.clone(),
            cursor: self.cursor,
        }
    }

    /// Begins a change that is undone as one step.
    fn begin_step(&mut self) {
        self.keep_entry_as_step();
        let snapshot = self.snapshot();
        self.push_undo(snapshot);
        self.is_typing = false;
    }

    fn push_undo(&mut self, snapshot: Snapshot) {
        if self.undo.last() == Some(&snapshot) {
            return;
        }
        if self.undo.len() >= MAX_UNDO {
            self.undo.remove(0);
        }
        self.undo.push(snapshot);
        self.redo.clear();
    }

    fn undo_step(&mut self) {
        self.keep_entry_as_step();
        let now = self.snapshot();
        while let Some(step) = self.undo.pop() {
            if step.text != now.text {
                self.redo.push(now);
                return self.restore(step);
            }
        }
    }

    fn redo_step(&mut self) {
        if let Some(step) = self.redo.pop() {
            let now = self.snapshot();
            self.undo.push(now);
            self.restore(step);
        }
    }

    fn restore(&mut self, snapshot: Snapshot) {
        self.text = snapshot.text;
        self.cursor = snapshot.cursor.min(self.text.len());
        self.align_cursor();
    }

    /// Makes the shown history entry the draft, because it is edited. Undo restores the old draft.
    fn keep_entry_as_step(&mut self) {
        if let Some(shown) = self.shown_entry.take() {
            self.push_undo(shown.draft);
        }
    }

    fn leave_modes(&mut self) {
        self.shown_entry = None;
        self.search = None;
        self.is_typing = false;
    }

    fn clear_all(&mut self) {
        self.text.clear();
        self.cursor = 0;
        self.folds.clear();
        self.undo.clear();
        self.redo.clear();
        self.vi_command = None;
        self.leave_modes();
        self.killed.retain(|c| !is_fold_mark(c));
    }

    /// Returns the place of the cursor. A folded paste is one word.
    fn draft_cursor(&self) -> DraftCursor<'_> {
        DraftCursor::new(&self.text, self.cursor).with_whole_words(is_fold_mark)
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
        let Some(index) = self.shown_entry.as_ref().map(|shown| shown.index) else {
            return;
        };
        if index + 1 < self.history.len() {
            self.show_entry(index + 1);
        } else {
            let draft = self.leave_entry();
            self.restore(draft);
        }
    }

    fn show_entry(&mut self, index: usize) {
        let Some(entry) = self.history.get(index).cloned() else {
            return;
        };
        let draft = self.leave_entry();
        self.show_text(&entry);
        self.shown_entry = Some(ShownEntry { index, draft });
    }

    /// Leaves the history and returns the draft from before.
    fn leave_entry(&mut self) -> Snapshot {
        match self.shown_entry.take() {
            Some(shown) => shown.draft,
            None => self.snapshot(),
        }
    }

    /// Shows a text instead of the draft, with the cursor at its end.
    fn show_text(&mut self, text: &str) {
        self.text.clear();
        self.cursor = 0;
        let folds = self.folds.len();
        self.insert_foreign(text, true);
        // An entry that was shown before has its fold already.
        if self.folds.len() > folds
            && let Some(known) = self
                .folds
                .iter()
                .take(folds)
                .position(|known| known == text)
            && let Some(mark) = u32::try_from(known)
                .ok()
                .and_then(|known| char::from_u32(FIRST_FOLD + known))
        {
            self.folds.truncate(folds);
            self.text = mark.to_string();
            self.cursor = self.text.len();
        }
    }
}

/// Returns true for the characters that mark folded pastes.
fn is_fold_mark(c: char) -> bool {
    (FIRST_FOLD..FIRST_FOLD + FOLD_COUNT).contains(&u32::from(c))
}

/// Returns the label of a folded paste.
fn fold_label(pasted: &str) -> String {
    let lines = pasted.lines().count();
    let size = match pasted.len() {
        bytes @ ..1024 => format!("{bytes} B"),
        bytes @ ..1_048_576 => format!("{:.1} KB", bytes as f64 / 1024.0),
        bytes => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    };
    match lines {
        1 => format!("[pasted 1 line, {size}]"),
        _ => format!("[pasted {lines} lines, {size}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyDecoder, TerminalInput};

    fn type_keys(composer: &mut Composer, keys: &str) {
        // One by one, as a person types.
        for byte in keys.as_bytes() {
            let mut decoder = KeyDecoder::default();
            let mut inputs = decoder.feed(&[*byte]);
            inputs.extend(decoder.finish_escape());
            for input in inputs {
                if let TerminalInput::Key(key) = input {
                    composer.press(key);
                }
            }
        }
    }

    fn typed(keys: &str) -> Composer {
        let mut composer = Composer::default();
        type_keys(&mut composer, keys);
        composer
    }

    #[test]
    fn keys_edit_the_draft() {
        let check = |keys: &str, text: &str| assert_eq!(typed(keys).text(), text, "{keys:?}");
        check("abc\x01x\x05y", "xabcy");
        check("abc\x02\x02\x04", "ac");
        check("abc\x7f\x08", "a");
        check("one two\x17x", "one x");
        check("one two\x15\x19\x19", "one twoone two");
        check("ab\x14", "ba");
        check("abc\x1f", "");
        check("one two\x1f", "one");
    }

    #[test]
    fn vi_keys_edit_the_draft() {
        let check = |typed: &str, commands: &str, text: &str| {
            let mut composer = Composer::default().with_keys(EditingKeys::Vi);
            type_keys(&mut composer, typed);
            assert!(composer.leave_insertion());
            type_keys(&mut composer, commands);
            assert_eq!(composer.text(), text, "{typed:?} {commands:?}");
        };
        check("one two", "bix", "one xtwo");
        check("one two", "0dwix", "xtwo");
        check("one two", "0x$aend", "ne twoend");
        check("one two three", "0wcwfour", "one four three");
        check("one two", "ddix", "x");
        check("one two", "0dwu", "one two");
        check("one two", "bD0p", "twoone ");
        check("one two", "0yw$p", "one twoone ");
        check("one", "onext", "one\nnext");
        check("one two", "0ggG0dzx", "ne two");
    }

    #[test]
    fn undo_and_redo_walk_through_the_changes() {
        let mut composer = typed("one two");
        composer.paste(" three");
        composer.press(Key::control('_'));
        assert_eq!(composer.text(), "one two");
        composer.press(Key::control('_'));
        assert_eq!(composer.text(), "one");
        composer.press(Key::alt(KeyCode::Char('_')));
        composer.press(Key::alt(KeyCode::Char('_')));
        assert_eq!(composer.text(), "one two three");
    }

    #[test]
    fn a_long_paste_is_folded_and_sent_whole() {
        let pasted = "fn main() {\n\tü();\n}\n".repeat(60_000);
        let mut composer = typed("see ");
        composer.paste(&pasted);
        type_keys(&mut composer, " ok");
        assert!(composer.text().len() < 20);
        assert_eq!(composer.message(), format!("see {pasted} ok"));
        let labels: Vec<_> = composer
            .pieces()
            .filter_map(|(_, piece)| match piece {
                DraftPiece::Fold(label) => Some(label),
                DraftPiece::Text(_) => None,
            })
            .collect();
        assert_eq!(labels, ["[pasted 180000 lines, 1.2 MB]"]);
        // It dies as one, and comes back as one.
        type_keys(&mut composer, "\x7f\x7f\x7f\x7f");
        assert_eq!(composer.message(), "see ");
        composer.press(Key::control('_'));
        assert!(composer.message().contains(&pasted));
    }

    #[test]
    fn characters_that_mark_folds_stay_what_they_are() {
        let odd = "a\u{f0000}b\u{f0001}";
        let mut composer = Composer::default();
        composer.paste(odd);
        composer.paste("x\n".repeat(9).as_str());
        composer.press(Key::plain(KeyCode::Char('\u{f0000}')));
        assert_eq!(
            composer.message(),
            format!("{odd}{}\u{f0000}", "x\n".repeat(9))
        );
    }

    #[test]
    fn history_is_walked_and_the_draft_comes_back() {
        let mut composer = Composer::new(vec!["one".to_owned(), "two\nlines".to_owned()]);
        type_keys(&mut composer, "draft\x10");
        assert_eq!(composer.text(), "two\nlines");
        type_keys(&mut composer, "\x10\x10");
        assert_eq!(composer.text(), "one");
        type_keys(&mut composer, "\x0e\x0e");
        assert_eq!(composer.text(), "draft");
    }

    #[test]
    fn history_is_searched() {
        let history = ["fix it", "run tests", "fix that"].map(str::to_owned);
        let mut composer = Composer::new(history.to_vec());
        type_keys(&mut composer, "draft\x12fix");
        assert_eq!(composer.text(), "fix that");
        type_keys(&mut composer, "\x12");
        assert_eq!(composer.text(), "fix it");
        type_keys(&mut composer, "\x07");
        assert_eq!(composer.text(), "draft");
        type_keys(&mut composer, "\x12run");
        composer.press(Key::plain(KeyCode::Enter));
        assert_eq!(composer.text(), "run tests");
        type_keys(&mut composer, "\x1f");
        assert_eq!(composer.text(), "draft");
    }

    #[test]
    fn a_cleared_draft_can_be_brought_back() {
        let mut composer = typed("precious");
        composer.clear();
        assert!(composer.is_empty());
        type_keys(&mut composer, "\x1f");
        assert_eq!(composer.text(), "precious");
        composer.clear();
        type_keys(&mut composer, "\x10");
        assert_eq!(composer.text(), "precious");
    }
}
