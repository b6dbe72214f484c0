//! Shows an answer as the model wrote it beside what was understood: markers in colour, calls, faults and repairs at their place.
//!
//! Only a dialect has a text in which calls are written. A native answer consists of events, which are listed instead.

use ratatui_core::style::Modifier;
use ratatui_core::text::Line;
use sabir_session::StreamEvent;
use sabir_session::agent::AssistantTurn;
use sabir_session::call::{MarkupRole, Severity, Span as SourceSpan};
use sabir_terminal::print::count_noun;

use crate::lines::{HistoryLine, one_line, span};
use crate::theme::{Role, Theme};

/// The maximum number of bytes of an answer that are kept.
const MAX_SOURCE: usize = 256 << 10;
/// The maximum number of marks and notes that are kept.
const MAX_NOTES: usize = 2000;

/// The last answer as it was received.
#[derive(Debug, Default)]
pub struct WireRecord {
    source: String,
    /// True if the end of the source was left out.
    is_cut: bool,
    marks: Vec<SourceSpan>,
    notes: Vec<WireNote>,
    text_bytes: usize,
    thought_bytes: usize,
}

/// An interpretation of a place in the source.
#[derive(Debug)]
struct WireNote {
    at: usize,
    text: String,
    role: Role,
}

impl WireRecord {
    /// Begins a new answer.
    pub fn begin_answer(&mut self) {
        *self = Self::default();
    }

    /// Adds a piece of the answer.
    pub fn note_delta(&mut self, delta: &StreamEvent) {
        match delta {
            StreamEvent::Source { text } => {
                let room = MAX_SOURCE.saturating_sub(self.source.len());
                self.is_cut |= room < text.len();
                let end = text.floor_char_boundary(room);
                self.source.push_str(text.get(..end).unwrap_or_default());
            }
            StreamEvent::Text { text } => self.text_bytes += text.len(),
            StreamEvent::Thought { text } => self.thought_bytes += text.len(),
            StreamEvent::Mark {
                role,
                dialect,
                span,
                rule,
                ..
            } => {
                if self.marks.len() < MAX_NOTES {
                    self.marks.push(*span);
                }
                let what = match role {
                    MarkupRole::Call => "opens a call",
                    MarkupRole::Wrapper => "encloses calls",
                    MarkupRole::Thought | MarkupRole::PromptedThought => "marks a thought",
                    MarkupRole::Mention => "is only mentioned",
                    MarkupRole::Content => "is content",
                };
                let dialect = dialect.as_deref().unwrap_or("no dialect");
                self.push_note(
                    span.start,
                    format!("{what} ({dialect}, {rule})"),
                    Role::Accent,
                );
            }
            StreamEvent::CallStart { name, at, .. } => {
                self.push_note(*at, format!("call {}", one_line(name)), Role::Success);
            }
            StreamEvent::ArgStart { name, at, .. } => {
                self.push_note(*at, format!("argument {}", one_line(name)), Role::Dim);
            }
            StreamEvent::CallCut { at, .. } => {
                self.push_note(
                    *at,
                    "the call is cut off and never runs".to_owned(),
                    Role::Error,
                );
            }
            StreamEvent::Fault(fault) => {
                let role = match fault.severity {
                    Severity::Error => Role::Error,
                    Severity::Warning => Role::Warning,
                };
                self.push_note(fault.span.start, one_line(&fault.message), role);
            }
            _ => {}
        }
    }

    /// Applies the checks of the finished answer.
    pub fn note_checks(&mut self, answered: &AssistantTurn) {
        for check in &answered.checks {
            for repair in &check.repairs {
                let text = format!(
                    "repaired ({}): {} → {}",
                    repair.rule,
                    one_line(&repair.before),
                    one_line(&repair.after)
                );
                self.push_note(repair.span.start, text, Role::Warning);
            }
            for fault in &check.faults {
                self.push_note(fault.span.start, one_line(&fault.message), Role::Error);
            }
        }
    }

    fn push_note(&mut self, at: usize, text: String, role: Role) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(WireNote { at, text, role });
        }
    }

    /// Returns the lines of the view.
    pub fn lines(&self, theme: Theme) -> Vec<HistoryLine> {
        let dim = theme.style(Role::Dim);
        let title = format!(
            "the last answer: {} of text, {} of reasoning, {}",
            count_noun(self.text_bytes, "byte"),
            count_noun(self.thought_bytes, "byte"),
            match self.source.is_empty() {
                true => "calls as native events".to_owned(),
                false => format!("read from {}", count_noun(self.source.len(), "byte")),
            }
        );
        let mut lines = vec![HistoryLine::words(
            Line::from(span(&title, theme.style(Role::Strong))),
            2,
        )];
        let mut notes: Vec<&WireNote> = self.notes.iter().collect();
        notes.sort_by_key(|note| note.at);
        let mut notes = notes.into_iter().peekable();
        let mut start = 0;
        for (number, text) in self.source.split_inclusive('\n').enumerate() {
            let end = start + text.len();
            let mut spans = vec![span(&format!("{:>4} ", number + 1), dim)];
            spans.extend(self.marked_pieces(start, text.trim_end_matches('\n'), theme));
            lines.push(HistoryLine::whole(Line::from(spans)));
            while let Some(note) = notes.next_if(|note| note.at < end) {
                lines.push(note_line(note, theme));
            }
            start = end;
        }
        lines.extend(notes.map(|note| note_line(note, theme)));
        if self.is_cut {
            let text = "     … the rest was too long to keep";
            lines.push(HistoryLine::whole(Line::from(span(text, dim))));
        }
        lines
    }

    /// Splits a line of the source where markers begin and end.
    fn marked_pieces(
        &self,
        start: usize,
        text: &str,
        theme: Theme,
    ) -> Vec<ratatui_core::text::Span<'static>> {
        let end = start + text.len();
        let mut edges: Vec<usize> = self
            .marks
            .iter()
            .filter(|mark| mark.start < end && mark.end > start)
            .flat_map(|mark| [mark.start.max(start), mark.end.min(end)])
            .chain([start, end])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut pieces = Vec::new();
        for edge in edges.windows(2) {
            let &[from, to] = edge else {
                continue;
            };
            let is_marked = self
                .marks
                .iter()
                .any(|mark| mark.start <= from && mark.end >= to);
            let mut style = theme.style(Role::Plain);
            if is_marked {
                style = theme.style(Role::Accent).add_modifier(Modifier::BOLD);
            }
            // An edge within a character is none of ours; the piece is then left to its neighbour.
            if let Some(piece) = text.get(from - start..to - start) {
                pieces.push(span(piece, style));
            }
        }
        pieces
    }
}

fn note_line(note: &WireNote, theme: Theme) -> HistoryLine {
    let text = format!("     └ {}", note.text);
    HistoryLine::words(Line::from(span(&text, theme.style(note.role))), 7)
}

#[cfg(test)]
mod tests {
    use sabir_session::call::Certainty;

    use super::*;

    #[test]
    fn an_answer_is_shown_beside_what_was_understood() {
        let mut record = WireRecord::default();
        let source = "I read it.\n<read_file>\n<path>a</path>\n";
        for delta in [
            StreamEvent::Source {
                text: source.to_owned(),
            },
            StreamEvent::Text {
                text: "I read it.\n".to_owned(),
            },
            StreamEvent::Mark {
                role: MarkupRole::Call,
                dialect: Some("cline".to_owned()),
                span: SourceSpan { start: 11, end: 22 },
                sure: Certainty::Certain,
                rule: "tag",
            },
            StreamEvent::CallStart {
                index: 0,
                id: None,
                name: "read_file".to_owned(),
                dialect: Some("cline".to_owned()),
                at: 11,
                name_at: 12,
            },
        ] {
            record.note_delta(&delta);
        }
        let lines = record.lines(Theme::new(true));
        let texts: Vec<_> = lines.iter().map(|line| line.line.to_string()).collect();
        assert_eq!(
            texts,
            [
                "the last answer: 11 bytes of text, 0 bytes of reasoning, read from 38 bytes",
                "   1 I read it.",
                "   2 <read_file>",
                "     └ opens a call (cline, tag)",
                "     └ call read_file",
                "   3 <path>a</path>",
            ]
        );
        record.begin_answer();
        assert_eq!(record.lines(Theme::new(true)).len(), 1);
    }
}
