//! Chooses themes and checkpoints from their lists, with previews.

use sabir_session::Command;

use super::{App, Destination, Effect};
use crate::keys::BackgroundColor;
use crate::picker::{CheckpointedCall, PickedItem, Picker, PickerItem, RewindScope};
use crate::theme::{Background, Theme};

impl App {
    /// Previews the selected row of the open list: a theme at once, the changes of a checkpoint as
    /// soon as they are known.
    pub fn preview_selected(&mut self) -> Vec<Effect> {
        match self.picker.as_ref().and_then(Picker::selected) {
            Some(PickerItem {
                item: PickedItem::Theme(name),
                ..
            }) => {
                let theme = self.themes.find(name);
                self.set_theme(theme);
                Vec::new()
            }
            Some(PickerItem {
                item: PickedItem::Checkpoint(call),
                preview,
                ..
            // An empty preview was not compared yet: a comparison without changes has a text.
            }) if preview.is_empty() => vec![Effect::CompareCheckpoint(call.clone())],
            _ => Vec::new(),
        }
    }

    /// Uses a theme from now on.
    pub(super) fn use_theme(&mut self, name: &str) {
        name.clone_into(&mut self.theme_name);
        let theme = self.themes.find(name);
        self.set_theme(theme);
    }

    pub(super) fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
        self.transcript.set_theme(theme);
        self.subtasks.set_theme(theme);
    }

    /// Takes the colour of the terminal's background.
    pub(super) fn set_background(&mut self, color: BackgroundColor) {
        let background = match color.is_light() {
            true => Background::Light,
            false => Background::Dark,
        };
        // The answer may come late; it must not replace the theme that is being tried.
        if self.themes.set_background(background) && !self.is_choosing_theme {
            self.set_theme(self.themes.find(&self.theme_name));
        }
    }

    /// Opens the list of themes. The selected one is shown at once.
    pub(super) fn open_themes(&mut self) {
        // The present one first, so that opening the list changes nothing.
        let now = self.theme_name.clone();
        let others = self.themes.names().filter(|name| *name != now);
        let names: Vec<_> = std::iter::once(now.as_str()).chain(others).collect();
        let items = names.iter().map(|name| PickerItem {
            label: (*name).to_owned(),
            note: if **name == now { "now" } else { "" }.to_owned(),
            preview: String::new(),
            item: PickedItem::Theme((*name).to_owned()),
        });
        let items = items.collect();
        self.is_choosing_theme = true;
        self.open_picker("themes", "uses it only now", items);
    }

    /// Restores everything that was changed since a call: files by undoing the calls since then,
    /// the conversation by a fork.
    pub(super) fn restore_call(
        &mut self,
        scope: RewindScope,
        call: &CheckpointedCall,
    ) -> Vec<Effect> {
        if scope == RewindScope::Files {
            return vec![Effect::Submit(Command::Undo {
                calls: None,
                checkpoint: Some(call.number),
            })];
        }
        let records = self.records_before_call(call);
        let (Some(task), Some(records)) = (self.task.clone(), records) else {
            self.hint = "the conversation before this call is not in this task".to_owned();
            return Vec::new();
        };
        self.destination = Some(Destination::Fork {
            task,
            records: Some(records),
            restores_files: scope == RewindScope::Both,
        });
        self.hint =
            "your message continues before the answer with this call; Esc cancels".to_owned();
        Vec::new()
    }

    /// Shows an answer as it was received, or says that it is not kept.
    pub(super) fn show_answer(&mut self, number: usize) {
        let transcript = self.shown_transcript();
        if !transcript.push_answer(number) {
            let kept = transcript.answers().kept_text();
            self.hint = format!("there is no answer {number}: {kept}");
        }
    }

    /// Lists the answers, with the first one after a message selected.
    pub(super) fn list_answers_after(&mut self, message: usize) {
        // The messages are those of the task, also while a subtask is shown.
        let items = self.transcript.answers().list_items();
        let said = self.said.messages().get(message);
        let number = said.map_or(0, |said| said.answers_before) + 1;
        self.open_picker("answers", "", items);
        if let Some(picker) = &mut self.picker {
            picker.select(&PickedItem::Answer(number));
        }
    }

    /// Returns the number of records before the answer that a call is in; `None` if this task does not have it.
    pub fn records_before_call(&self, call: &CheckpointedCall) -> Option<usize> {
        self.said.records_before_call(&call.call)
    }

    /// Asks whether to restore files, the conversation or both to the state before a call. `files`
    /// names the files that would change without the conversation, and `answer` those that would
    /// change with it: the conversation can only continue before the answer that contains the call.
    pub fn open_restore_choice(&mut self, call: &CheckpointedCall, files: &str, answer: &str) {
        let item = |label: &str, note: &str, scope, preview: &str| PickerItem {
            label: label.to_owned(),
            note: note.to_owned(),
            preview: preview.to_owned(),
            item: PickedItem::Restore {
                scope,
                call: call.clone(),
            },
        };
        let kept = "the current task is kept, and can be resumed";
        let items = vec![
            item(
                "files",
                "the conversation continues",
                RewindScope::Files,
                files,
            ),
            item(
                "conversation and files",
                "to before the whole answer",
                RewindScope::Both,
                &format!("undoes all calls of the answer that this one is in\n{answer}"),
            ),
            item(
                "conversation",
                "files stay as they are",
                RewindScope::Conversation,
                kept,
            ),
        ];
        self.open_picker("restore", "", items);
    }

    /// Sets the preview of a checkpoint in the open list.
    pub fn set_checkpoint_preview(&mut self, call: &CheckpointedCall, preview: &str) {
        // An empty one would be compared again with each key.
        let preview = match preview.trim().is_empty() {
            true => "no line of text is changed since",
            false => preview,
        };
        if let Some(picker) = &mut self.picker {
            picker.set_preview(&PickedItem::Checkpoint(call.clone()), preview);
        }
    }
}
