//! Follows the running subtasks: the tree above the draft, and the transcript of each, which the user can enter.
//!
//! While a subtask is entered, its lines are printed instead of those of the task. The task's own lines wait, and are printed when the
//! user leaves the subtask: the last 5,000 of them, and the number of those before.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui_core::text::Line;
use sabir_session::agent::{Record, TaskId};
use sabir_session::call::MessagePart;
use sabir_session::{SessionEventKind, SessionState, SubtaskLabel};
use sabir_terminal::print::count_noun;

use crate::lines::{HistoryLine, fit_text, one_line, span};
use crate::picker::{PickedItem, PickerItem};
use crate::theme::{Role, Theme};
use crate::transcript::{Transcript, call_subject};

/// The maximum number of a subtask's lines that are kept for someone who enters it.
const MAX_KEPT: usize = 200;

/// The maximum number of the task's lines that wait while a subtask is shown.
const MAX_HELD: usize = 5000;

/// A subtask that works.
#[derive(Debug)]
struct WorkingSubtask {
    label: SubtaskLabel,
    /// The beginning of its message.
    prompt: String,
    /// Its latest action.
    last: String,
    transcript: Transcript,
    /// Its last lines.
    kept: VecDeque<HistoryLine>,
}

impl WorkingSubtask {
    fn new(label: &SubtaskLabel, theme: Theme, width: usize) -> Self {
        let mut transcript = Transcript::new(theme);
        transcript.set_width(width);
        Self {
            label: label.clone(),
            prompt: String::new(),
            last: String::new(),
            transcript,
            kept: VecDeque::new(),
        }
    }

    /// Takes the lines that were decided since the last time, and keeps them.
    fn take_final_lines(&mut self) -> Vec<HistoryLine> {
        let lines = self.transcript.take_final_lines();
        self.kept.extend(lines.iter().cloned());
        let surplus = self.kept.len().saturating_sub(MAX_KEPT);
        self.kept.drain(..surplus);
        lines
    }

    fn note_record(&mut self, record: &Record) {
        match record {
            Record::Started(start) => {
                let first = start.prompt.lines().next().unwrap_or_default();
                self.prompt = fit_text(&one_line(first), 60);
                self.transcript.push_user_message(&start.prompt);
            }
            Record::Answered(turn) => {
                let mut calls = turn.parts.iter().filter_map(|part| match part {
                    MessagePart::Call(call) => Some(call),
                    _ => None,
                });
                if let Some(call) = calls.next_back() {
                    let text = format!("{} {}", call.name, call_subject(call));
                    self.last = fit_text(&one_line(text.trim_end()), 40);
                }
            }
            _ => {}
        }
    }
}

/// The subtask that is shown instead of the task.
#[derive(Debug)]
struct EnteredSubtask {
    task: TaskId,
    /// The lines to print.
    fresh: Vec<HistoryLine>,
    /// The last lines of the task, which wait.
    held: VecDeque<HistoryLine>,
    /// The number of lines of the task that were dropped before those.
    dropped: usize,
}

impl EnteredSubtask {
    fn hold(&mut self, lines: Vec<HistoryLine>) {
        self.held.extend(lines);
        let surplus = self.held.len().saturating_sub(MAX_HELD);
        self.held.drain(..surplus);
        self.dropped += surplus;
    }
}

/// The running subtasks.
#[derive(Debug)]
pub struct SubtaskViews {
    theme: Theme,
    width: usize,
    /// The running subtasks, in the order in which they started.
    working: Vec<WorkingSubtask>,
    entered: Option<EnteredSubtask>,
    /// The lines to print after a subtask was left.
    left: Vec<HistoryLine>,
}

impl SubtaskViews {
    /// Creates the views of no subtasks.
    pub fn new(theme: Theme) -> Self {
        Self {
            theme,
            width: 80,
            working: Vec::new(),
            entered: None,
            left: Vec::new(),
        }
    }

    /// Sets the width for lines that are finished from now on.
    pub fn set_width(&mut self, width: usize) {
        self.width = width;
        for subtask in &mut self.working {
            subtask.transcript.set_width(width);
        }
    }

    /// Sets the styles of lines that are finished from now on.
    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
        for subtask in &mut self.working {
            subtask.transcript.set_theme(theme);
        }
    }

    /// Returns true if a subtask works.
    pub fn is_working(&self, task: &TaskId) -> bool {
        self.working.iter().any(|one| one.label.task == *task)
    }

    /// Returns the subtask that is entered.
    pub fn entered(&self) -> Option<&TaskId> {
        self.entered.as_ref().map(|entered| &entered.task)
    }

    /// Returns the transcript of the entered subtask.
    pub fn entered_transcript(&self) -> Option<&Transcript> {
        let task = self.entered()?;
        let found = self.working.iter().find(|one| one.label.task == *task);
        found.map(|one| &one.transcript)
    }

    /// Returns the transcript of the entered subtask, to change it.
    pub fn entered_transcript_mut(&mut self) -> Option<&mut Transcript> {
        let task = self.entered()?.clone();
        let mut working = self.working.iter_mut();
        let found = working.find(|one| one.label.task == task);
        found.map(|one| &mut one.transcript)
    }

    /// Shows a subtask instead of the task, beginning with its last lines. Returns false if it has ended.
    pub fn enter(&mut self, task: &TaskId) -> bool {
        self.leave("");
        let theme = self.theme;
        let Some(subtask) = self.working.iter_mut().find(|one| one.label.task == *task) else {
            return false;
        };
        // Lines that were completed but not stored belong before those that are printed from now
        // on.
        subtask.take_final_lines();
        let title = format!(
            "── subtask {}: {} ──",
            one_line(&subtask.label.mode),
            subtask.prompt
        );
        let mut fresh = vec![divider(&title, theme)];
        fresh.extend(subtask.kept.iter().cloned());
        self.entered = Some(EnteredSubtask {
            task: task.clone(),
            fresh,
            held: VecDeque::new(),
            dropped: 0,
        });
        true
    }

    /// Shows the task again, with its events in the meantime. `why` is added to the line between
    /// them; empty for nothing.
    pub fn leave(&mut self, why: &str) {
        let Some(entered) = self.entered.take() else {
            return;
        };
        // Printed before the divider, because they belong to the subtask, even if the user enters
        // another subtask within one frame.
        self.left.extend(entered.fresh);
        let title = match why {
            "" => "── back in the task ──".to_owned(),
            why => format!("── {}; back in the task ──", one_line(why)),
        };
        self.left.push(divider(&title, self.theme));
        if entered.dropped > 0 {
            let note = format!(
                "… {} of the task left out: there were too many",
                count_noun(entered.dropped, "line")
            );
            self.left.push(divider(&note, self.theme));
        }
        self.left.extend(entered.held);
    }

    /// Returns the lines to print: those of the entered subtask, or else those of the task.
    pub fn select_lines(&mut self, own: Vec<HistoryLine>) -> Vec<HistoryLine> {
        let mut lines = std::mem::take(&mut self.left);
        let Some(entered) = &mut self.entered else {
            lines.extend(own);
            return lines;
        };
        entered.hold(own);
        lines.append(&mut entered.fresh);
        let mut working = self.working.iter_mut();
        if let Some(subtask) = working.find(|one| one.label.task == entered.task) {
            lines.extend(subtask.take_final_lines());
        }
        lines
    }

    /// Takes an event of a subtask.
    pub fn note_event(&mut self, label: &SubtaskLabel, kind: &SessionEventKind, now: Duration) {
        let end = match kind {
            SessionEventKind::State(SessionState::Ended(_)) => Some(""),
            SessionEventKind::Record(record) => match &**record {
                // Its own end comes as a record; a state is only published for the session's task.
                Record::Ended { message, .. } => Some(message.as_str()),
                _ => None,
            },
            _ => None,
        };
        if let Some(message) = end {
            self.note_end(&label.task, message);
            return;
        }
        let known = self
            .working
            .iter()
            .position(|one| one.label.task == label.task);
        let at = match (known, kind) {
            (Some(at), _) => at,
            // The first record that is seen begins it: a late subscriber misses the start.
            (None, SessionEventKind::Record(_)) => {
                let subtask = WorkingSubtask::new(label, self.theme, self.width);
                self.working.push(subtask);
                self.working.len() - 1
            }
            (None, _) => return,
        };
        let is_entered = self.entered() == Some(&label.task);
        if let Some(subtask) = self.working.get_mut(at) {
            if let SessionEventKind::Record(record) = kind {
                subtask.note_record(record);
            }
            subtask.transcript.note_own_event(kind, now);
            // Those of the entered one are taken when they are printed.
            if !is_entered {
                subtask.take_final_lines();
            }
        }
    }

    fn note_end(&mut self, task: &TaskId, message: &str) {
        if self.entered() == Some(task) {
            let mut working = self.working.iter_mut();
            if let Some(subtask) = working.find(|one| one.label.task == *task) {
                subtask.transcript.finish_live();
                let rest = subtask.take_final_lines();
                if let Some(entered) = &mut self.entered {
                    entered.fresh.extend(rest);
                }
            }
            let why = match message.lines().next().unwrap_or_default() {
                "" => "the subtask has ended".to_owned(),
                message => format!(
                    "the subtask has ended: {}",
                    fit_text(&one_line(message), 80)
                ),
            };
            self.leave(&why);
        }
        // After leaving: the transcript of the entered subtask is looked up here.
        self.working.retain(|one| one.label.task != *task);
    }

    /// Forgets all subtasks, because the task has ended, and with it all of them.
    pub fn clear(&mut self) {
        self.leave("the subtask has ended");
        self.working.clear();
    }

    /// Lists the subtasks, for a picker.
    pub fn list_items(&self) -> Vec<PickerItem> {
        let items = self.working.iter().map(|subtask| PickerItem {
            label: format!(
                "{}{}: {}",
                "  ".repeat(subtask.label.depth.saturating_sub(1).min(8) as usize),
                one_line(&subtask.label.mode),
                subtask.prompt
            ),
            note: subtask.last.clone(),
            preview: String::new(),
            item: PickedItem::Subtask(subtask.label.task.clone()),
        });
        items.collect()
    }

    /// Returns the tree of the subtasks that work. The entered one is marked.
    pub fn tree_rows(&self, width: usize, max_rows: usize) -> Vec<Line<'static>> {
        let rows = self.list_items().into_iter().take(max_rows).map(|item| {
            let is_entered =
                matches!(&item.item, PickedItem::Subtask(task) if self.entered() == Some(task));
            let mark = if is_entered { "◉" } else { "◦" };
            let text = match item.note.as_str() {
                "" => format!("{mark} {}", item.label),
                note => format!("{mark} {} · {note}", item.label),
            };
            Line::from(span(
                &fit_text(&text, width),
                self.theme.style(Role::Accent),
            ))
        });
        rows.collect()
    }
}

fn divider(title: &str, theme: Theme) -> HistoryLine {
    HistoryLine::words(Line::from(span(title, theme.style(Role::Accent))), 2)
}
