//! A list to choose from: filtered by what is typed, with a preview of the chosen row.

use std::collections::VecDeque;

use ratatui_core::text::Line;
use sabir_session::agent::TaskId;

use crate::fuzzy::best_matches;
use crate::keys::{Key, KeyCode};
use crate::lines::{fit_line, fit_text, one_line, span, text_width};
use crate::theme::{Role, Theme};
use crate::transcript::diff_role;
use crate::wire_view::NOTE_MARK;

/// The maximum number of rows in a preview.
const MAX_PREVIEW: usize = 6;
/// The maximum number of rows whose previews are kept after they were set later.
const MAX_PREVIEWS: usize = 64;
/// The maximum number of lines of such a preview.
const MAX_KEPT_LINES: usize = 200;
/// The maximum number of characters in such a line.
const MAX_KEPT_CHARS: usize = 1000;
/// The maximum number of rows after filtering.
const MAX_MATCHES: usize = 500;

/// The action of a row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickedItem {
    /// A task to continue, or to fork.
    Task(TaskId),
    /// A model.
    Model(String),
    /// A mode.
    Mode(String),
    /// An earlier message to go back to, by its number among [`crate::rewind::SentMessage`]s.
    Message(usize),
    /// A way to rewind to a message.
    Rewind {
        /// The parts that are rewound.
        scope: RewindScope,
        /// The number of the message.
        message: usize,
    },
    /// A subtask that works.
    Subtask(TaskId),
    /// A theme.
    Theme(String),
    /// A call that changed files.
    Checkpoint(CheckpointedCall),
    /// A way to restore the state before a call.
    Restore {
        /// The parts that are restored.
        scope: RewindScope,
        /// The call.
        call: CheckpointedCall,
    },
    /// An answer of the model, by its number.
    Answer(usize),
    /// No action: the row is only for reading.
    Note,
}

/// A call with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointedCall {
    /// The number of the checkpoint in its task.
    pub number: u32,
    /// The id of the call.
    pub call: String,
}

/// The parts that a rewind changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindScope {
    /// The conversation; files stay as they are.
    Conversation,
    /// The files only; the conversation does not change.
    Files,
    /// Both.
    Both,
}

/// A row of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickerItem {
    /// The text that is searched.
    pub label: String,
    /// A remark after it.
    pub note: String,
    /// The text that is shown while the row is selected.
    pub preview: String,
    /// The action of the row.
    pub item: PickedItem,
}

/// The effect of a key on a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickerKeyEffect {
    /// The key was used.
    Handled,
    /// The list was closed.
    Closed,
    /// This row was chosen.
    Chosen(PickedItem),
    /// This row was chosen with the second key, which forks a task or stops a subtask.
    ChosenSecond(PickedItem),
}

/// An open list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picker {
    title: &'static str,
    /// The meaning of the key for a second action; empty for none.
    second: &'static str,
    /// The key of the second action.
    second_key: String,
    items: Vec<PickerItem>,
    query: String,
    /// The indexes of the rows that match.
    found: Vec<usize>,
    chosen: usize,
    /// The indexes of the rows whose previews were set later, in the order of setting.
    previewed: VecDeque<usize>,
}

impl Picker {
    /// Opens a list. `second` says what the key for a second action does; empty for nothing.
    pub fn new(title: &'static str, second: &'static str, items: Vec<PickerItem>) -> Self {
        let found = (0..items.len()).collect();
        Self {
            title,
            second,
            second_key: "Ctrl-X".to_owned(),
            items,
            query: String::new(),
            found,
            chosen: 0,
            previewed: VecDeque::new(),
        }
    }

    /// Names the key of the second action.
    #[must_use]
    pub fn with_second_key(self, second_key: String) -> Self {
        Self { second_key, ..self }
    }

    /// Selects the row with this action, if it is in the list.
    pub fn select(&mut self, item: &PickedItem) {
        let is_wanted = |at: &usize| self.items.get(*at).is_some_and(|known| known.item == *item);
        self.chosen = self.found.iter().position(is_wanted).unwrap_or(self.chosen);
    }

    /// Returns the selected row.
    pub fn selected(&self) -> Option<&PickerItem> {
        self.chosen_item()
    }

    /// Sets the beginning of a preview for the row with this action. The previews that were set first are forgotten where there are
    /// too many.
    pub fn set_preview(&mut self, item: &PickedItem, preview: &str) {
        let mut kept = String::new();
        for line in preview.lines().take(MAX_KEPT_LINES) {
            // Wider than any terminal; a line of a minified file may have megabytes.
            kept.extend(line.chars().take(MAX_KEPT_CHARS));
            kept.push('\n');
        }
        let mut items = self.items.iter_mut().enumerate();
        let Some((at, known)) = items.find(|(_, known)| known.item == *item) else {
            return;
        };
        known.preview = kept;
        self.previewed.retain(|other| *other != at);
        self.previewed.push_back(at);
        if self.previewed.len() > MAX_PREVIEWS
            && let Some(oldest) = self.previewed.pop_front()
            && let Some(oldest) = self.items.get_mut(oldest)
        {
            oldest.preview = String::new();
        }
    }

    fn chosen_item(&self) -> Option<&PickerItem> {
        self.items.get(*self.found.get(self.chosen)?)
    }

    /// Takes a key.
    pub fn press(&mut self, key: Key) -> PickerKeyEffect {
        let last = self.found.len().saturating_sub(1);
        match key.code {
            KeyCode::Escape => return PickerKeyEffect::Closed,
            KeyCode::Enter => {
                return match self.chosen_item() {
                    Some(chosen) => PickerKeyEffect::Chosen(chosen.item.clone()),
                    None => PickerKeyEffect::Handled,
                };
            }
            KeyCode::Up => self.chosen = self.chosen.checked_sub(1).unwrap_or(last),
            KeyCode::Down if self.chosen >= last => self.chosen = 0,
            KeyCode::Down => self.chosen += 1,
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(10),
            KeyCode::PageDown => self.chosen = (self.chosen + 10).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Backspace => {
                self.query.pop();
                self.filter();
            }
            _ => {
                if let Some(c) = key.written_char() {
                    self.query.push(c);
                    self.filter();
                }
            }
        }
        PickerKeyEffect::Handled
    }

    /// Takes the second action of the selected row, if there is one.
    pub fn choose_second(&mut self) -> PickerKeyEffect {
        match self.chosen_item() {
            Some(chosen) if !self.second.is_empty() => {
                PickerKeyEffect::ChosenSecond(chosen.item.clone())
            }
            _ => PickerKeyEffect::Handled,
        }
    }

    /// Adds pasted text to the filter.
    pub fn paste(&mut self, text: &str) {
        let line = text.lines().next().unwrap_or_default();
        // A filter is a few words; the rest of a paste cannot match anything.
        self.query.extend(line.chars().take(200));
        self.filter();
    }

    /// Finds the rows that match the typed text.
    fn filter(&mut self) {
        // Another filter makes other rows, so the old place means nothing.
        self.chosen = 0;
        if self.query.trim().is_empty() {
            self.found = (0..self.items.len()).collect();
            return;
        }
        let labels = self.items.iter().map(|item| item.label.as_str());
        let matches = best_matches(&self.query, labels, MAX_MATCHES);
        // The same label may be there twice.
        let mut found: Vec<usize> = Vec::new();
        for label in matches {
            let same = self
                .items
                .iter()
                .enumerate()
                .filter(|(_, item)| item.label == label)
                .map(|(at, _)| at);
            for at in same {
                if !found.contains(&at) {
                    found.push(at);
                }
            }
        }
        self.found = found;
    }

    /// Returns the rows of the selected row's preview.
    fn preview_rows(&self, theme: Theme, width: usize, max_rows: usize) -> Vec<Line<'static>> {
        let Some(chosen) = self.chosen_item() else {
            return Vec::new();
        };
        let most = match chosen.item {
            // A change is what the list is for.
            PickedItem::Checkpoint(_) | PickedItem::Answer(_) => max_rows / 2,
            _ => MAX_PREVIEW.min(max_rows / 3),
        };
        if matches!(chosen.item, PickedItem::Theme(_)) {
            return sample_rows(theme).into_iter().take(most).collect();
        }
        let rows = chosen.preview.lines().take(most).map(|line| {
            let role = match chosen.item {
                PickedItem::Checkpoint(_) => diff_role(line),
                PickedItem::Answer(_) if line.starts_with(NOTE_MARK) => Role::Accent,
                PickedItem::Answer(_) => Role::Plain,
                _ => Role::Dim,
            };
            let room = width.saturating_sub(4);
            Line::from(vec![
                span("  │ ", theme.style(Role::Dim)),
                span(&fit_text(&one_line(line), room), theme.style(role)),
            ])
        });
        rows.collect()
    }

    /// Returns the rows on the screen.
    pub fn rows(&self, theme: Theme, width: usize, max_rows: usize) -> Vec<Line<'static>> {
        let dim = theme.style(Role::Dim);
        let second = match (self.second, self.second_key.as_str()) {
            ("", _) | (_, "") => String::new(),
            (second, key) => format!(", {key} {second}"),
        };
        let title = format!(
            "{} {}/{}: {}",
            self.title,
            self.found.len(),
            self.items.len(),
            one_line(&self.query)
        );
        let mut rows = vec![Line::from(vec![
            span(&title, theme.style(Role::Heading)),
            span(&format!("  Enter chooses{second}, Esc leaves"), dim),
        ])];
        let preview = self.preview_rows(theme, width, max_rows);
        let left = max_rows.saturating_sub(1 + preview.len()).max(1);
        // The chosen row is always on the screen.
        let first = (self.chosen + 1).saturating_sub(left);
        for (at, index) in self.found.iter().enumerate().skip(first).take(left) {
            let Some(item) = self.items.get(*index) else {
                continue;
            };
            let is_chosen = at == self.chosen;
            let role = if is_chosen {
                Role::Selected
            } else {
                Role::Plain
            };
            let mark = if is_chosen { "> " } else { "  " };
            let note_width = text_width(&item.note) + 4;
            // The label matters more than the remark where both do not fit.
            let label_width = width.saturating_sub(note_width).max(width / 2);
            rows.push(Line::from(vec![
                span(mark, theme.style(Role::Plain)),
                span(
                    &fit_text(&one_line(&item.label), label_width),
                    theme.style(role),
                ),
                span(&format!("  {}", item.note), dim),
            ]));
        }
        if self.found.is_empty() {
            rows.push(Line::from(span("  nothing matches", dim)));
        }
        rows.extend(preview);
        rows.truncate(max_rows);
        rows.into_iter().map(|row| fit_line(row, width)).collect()
    }
}

/// Returns a sample of a theme's styles.
fn sample_rows(theme: Theme) -> Vec<Line<'static>> {
    let row = |pieces: &[(&str, Role)]| {
        let start = span("  │ ", theme.style(Role::Dim));
        let pieces = pieces
            .iter()
            .map(|(text, role)| span(text, theme.style(*role)));
        Line::from_iter(std::iter::once(start).chain(pieces))
    };
    vec![
        row(&[
            ("Heading ", Role::Heading),
            ("text ", Role::Plain),
            ("strong ", Role::Strong),
            ("code ", Role::Code),
            ("https://a.example ", Role::Link),
            ("hint", Role::Dim),
        ]),
        row(&[
            ("fn ", Role::Keyword),
            ("name() ", Role::Plain),
            ("\"text\" ", Role::Literal),
            ("// comment", Role::Comment),
        ]),
        row(&[("+ added ", Role::Added), ("- removed", Role::Removed)]),
        row(&[
            ("● works ", Role::Accent),
            ("✓ done ", Role::Success),
            ("? asks ", Role::Warning),
            ("✗ failed ", Role::Error),
            ("selected", Role::Selected),
        ]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker() -> Picker {
        let items = ["fix the parser", "write docs", "fix the parser"].map(|label| PickerItem {
            label: label.to_owned(),
            note: "today".to_owned(),
            preview: format!("all of {label}"),
            item: PickedItem::Mode(label.to_owned()),
        });
        Picker::new("tasks", "forks", items.to_vec())
    }

    #[test]
    fn previews_are_kept_for_a_bounded_number_of_rows() {
        let rows = (0..MAX_PREVIEWS + 1).map(|at| PickerItem {
            label: at.to_string(),
            note: String::new(),
            preview: String::new(),
            item: PickedItem::Message(at),
        });
        let mut picker = Picker::new("list", "", rows.collect());
        for at in 0..MAX_PREVIEWS {
            picker.set_preview(&PickedItem::Message(at), "+a");
        }
        // Set again, so it is not the oldest any more.
        let long = format!("{}\n", "+b".repeat(900)).repeat(300);
        picker.set_preview(&PickedItem::Message(0), &long);
        assert!(
            picker
                .items
                .iter()
                .take(MAX_PREVIEWS)
                .all(|item| !item.preview.is_empty())
        );
        picker.set_preview(&PickedItem::Message(MAX_PREVIEWS), "+c");
        let empty = picker.items.iter().filter(|item| item.preview.is_empty());
        assert_eq!(
            empty.map(|item| item.label.as_str()).collect::<Vec<_>>(),
            ["1"]
        );
        let kept = picker.items.first().map_or(0, |item| item.preview.len());
        assert_eq!(kept, MAX_KEPT_LINES * (MAX_KEPT_CHARS + 1));
    }

    #[test]
    fn typed_letters_filter_and_arrows_choose() {
        let mut picker = picker();
        for c in "fix".chars() {
            picker.press(Key::plain(KeyCode::Char(c)));
        }
        assert_eq!(picker.found, [0, 2]);
        picker.press(Key::plain(KeyCode::Up));
        assert_eq!(picker.chosen, 1);
        for _ in 0..3 {
            picker.press(Key::plain(KeyCode::Backspace));
        }
        picker.press(Key::plain(KeyCode::Down));
        let chosen = picker.press(Key::plain(KeyCode::Enter));
        assert_eq!(
            chosen,
            PickerKeyEffect::Chosen(PickedItem::Mode("write docs".to_owned()))
        );
        picker.paste("zzz\nx");
        assert_eq!(picker.choose_second(), PickerKeyEffect::Handled);
        assert_eq!(
            picker.press(Key::plain(KeyCode::Escape)),
            PickerKeyEffect::Closed
        );
    }

    #[test]
    fn rows_fit_into_any_screen() {
        let theme = Theme::new(true);
        for width in 8..50 {
            for max_rows in 1..12 {
                let rows = picker().rows(theme, width, max_rows);
                assert!(rows.len() <= max_rows);
                for row in rows {
                    assert!(crate::lines::line_width(&row) <= width);
                }
            }
        }
    }
}
