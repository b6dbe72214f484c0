//! Shows answers as the model wrote them, together with how they were read: markers in colour, and
//! calls, faults and repairs at their place.
//!
//! Only a dialect has a text in which calls are written. A native answer consists of events, which are listed instead.

use std::collections::VecDeque;

use ratatui_core::style::Modifier;
use ratatui_core::text::Line;
use sabir_session::StreamEvent;
use sabir_session::agent::AssistantTurn;
use sabir_session::call::{MarkupRole, MessagePart, Severity, Span as SourceSpan};
use sabir_terminal::print::count_noun;
use serde_json::Value;

use crate::lines::{HistoryLine, fit_text, one_line, span};
use crate::picker::{PickedItem, PickerItem};
use crate::theme::{Role, Theme};
use crate::transcript::call_subject;

/// The maximum number of bytes of an answer that are kept.
const MAX_SOURCE: usize = 256 << 10;
/// The maximum number of marks and notes that are kept.
const MAX_NOTES: usize = 2000;
/// The maximum number of columns of an answer's subject.
const MAX_SUBJECT: usize = 80;

/// The maximum number of answers that are kept.
const MAX_ANSWERS: usize = 500;
/// The maximum number of bytes of their sources that are kept.
const MAX_SOURCES: usize = 4 << 20;
/// The maximum number of lines of an answer in the list of answers.
const MAX_PREVIEW_LINES: usize = 40;
/// The beginning of a line that interprets the line above it.
pub const NOTE_MARK: &str = "     └ ";

/// The last answers of a task as they were received, each with its number. The first answer of a task is number 1.
#[derive(Debug, Default)]
pub struct AnswerHistory {
    answers: VecDeque<ReceivedAnswer>,
    /// The number of answers that were dropped before those.
    dropped: usize,
    /// The answer that is being received.
    open: ReceivedAnswer,
}

impl AnswerHistory {
    /// Begins a new answer. An answer that broke off is kept, because its text may tell the reason.
    pub fn begin_answer(&mut self) {
        if !self.open.is_empty() {
            let mut broken = std::mem::take(&mut self.open);
            "(broke off)".clone_into(&mut broken.subject);
            self.push(broken);
        }
    }

    /// Returns the number of answers so far.
    pub fn count(&self) -> usize {
        self.dropped + self.answers.len()
    }

    /// Adds a piece of the answer.
    pub fn note_delta(&mut self, delta: &StreamEvent) {
        self.open.note_delta(delta);
    }

    /// Ends the answer, with its checks.
    pub fn finish_answer(&mut self, turn: &AssistantTurn) {
        let mut answer = std::mem::take(&mut self.open);
        answer.note_turn(turn);
        self.push(answer);
    }

    /// Keeps an answer, and drops the oldest ones if there are too many.
    fn push(&mut self, answer: ReceivedAnswer) {
        self.answers.push_back(answer);
        let mut bytes: usize = self.answers.iter().map(|answer| answer.source.len()).sum();
        while self.answers.len() > MAX_ANSWERS || bytes > MAX_SOURCES {
            let Some(oldest) = self.answers.pop_front() else {
                break;
            };
            bytes -= oldest.source.len();
            self.dropped += 1;
        }
    }

    /// Returns the answers that are kept, the oldest first, with their numbers. The one that is being received is the last.
    fn numbered(&self) -> impl DoubleEndedIterator<Item = (usize, &ReceivedAnswer)> {
        let open = Some(&self.open).filter(|open| !open.is_empty());
        let answers = self.answers.iter().chain(open);
        let numbers = self.dropped + 1..=self.dropped + self.answers.len() + 1;
        // Both ends are known to both, so the list can be read backwards.
        let answers: Vec<_> = numbers.zip(answers).collect();
        answers.into_iter()
    }

    /// Returns the lines that show an answer; `None` if it is not kept.
    pub fn lines(&self, number: usize, theme: Theme) -> Option<Vec<HistoryLine>> {
        let mut answers = self.numbered();
        let (number, answer) = answers.find(|(known, _)| *known == number)?;
        Some(answer.lines(number, usize::MAX, theme))
    }

    /// Returns rows for a list of the answers, the newest first.
    pub fn list_items(&self) -> Vec<PickerItem> {
        let items = self.numbered().rev().map(|(number, answer)| {
            let lines = answer.lines(number, MAX_PREVIEW_LINES, Theme::new(false));
            let lines = lines.iter().skip(1).map(|line| line.line.to_string());
            PickerItem {
                label: format!("{number} {}", answer.subject),
                note: answer.size_text(),
                preview: lines.collect::<Vec<_>>().join("\n"),
                item: PickedItem::Answer(number),
            }
        });
        items.collect()
    }

    /// Describes the answers that are kept.
    pub fn kept_text(&self) -> String {
        let mut numbers = self.numbered().map(|(number, _)| number);
        match (numbers.next(), numbers.next_back()) {
            (Some(first), Some(last)) => format!("answers {first} to {last} are kept"),
            (Some(first), None) => format!("answer {first} is kept"),
            (None, _) => "none was received yet".to_owned(),
        }
    }
}

/// An answer as it was received.
#[derive(Debug, Default)]
struct ReceivedAnswer {
    /// The beginning of its text, or its first call.
    subject: String,
    /// True if its pieces were received before this interface began.
    is_earlier: bool,
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

impl ReceivedAnswer {
    fn is_empty(&self) -> bool {
        self.source.is_empty()
            && self.notes.is_empty()
            && self.text_bytes == 0
            && self.thought_bytes == 0
    }

    /// Describes the size in a few words.
    fn size_text(&self) -> String {
        match self.source.is_empty() {
            true if self.is_earlier => "received earlier".to_owned(),
            true => "native".to_owned(),
            false => count_noun(self.source.len(), "byte"),
        }
    }

    /// Adds a piece of the answer.
    fn note_delta(&mut self, delta: &StreamEvent) {
        match delta {
            StreamEvent::Source { text, .. } => {
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
                    MarkupRole::Thought | MarkupRole::ThoughtEnd | MarkupRole::PromptedThought => {
                        "marks a thought"
                    }
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

    /// Applies the finished answer with its checks.
    fn note_turn(&mut self, answered: &AssistantTurn) {
        self.is_earlier = self.is_empty();
        for part in &answered.parts {
            let subject = match part {
                MessagePart::Text { text } => {
                    text.trim().lines().next().unwrap_or_default().to_owned()
                }
                MessagePart::Call(call) => format!("{} {}", call.name, call_subject(call)),
                _ => continue,
            };
            if self.is_earlier {
                self.note_part(part);
            }
            if self.subject.is_empty() {
                self.subject = fit_text(&one_line(subject.trim()), MAX_SUBJECT);
            }
        }
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

    /// Notes a part of an answer whose pieces were not received.
    fn note_part(&mut self, part: &MessagePart) {
        match part {
            MessagePart::Text { text } => {
                self.text_bytes += text.len();
                for line in text.lines() {
                    self.push_note(0, one_line(line), Role::Plain);
                }
            }
            MessagePart::Call(call) => {
                let arguments = Value::Object(call.arguments.clone()).to_string();
                let text = format!("call {} {}", call.name, arguments);
                self.push_note(0, fit_text(&one_line(&text), 2000), Role::Success);
            }
            _ => {}
        }
    }

    fn push_note(&mut self, at: usize, text: String, role: Role) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(WireNote { at, text, role });
        }
    }

    /// Returns the lines of the view, with at most so many lines of the source.
    fn lines(&self, number: usize, max_lines: usize, theme: Theme) -> Vec<HistoryLine> {
        let dim = theme.style(Role::Dim);
        let title = format!(
            "answer {number}: {} of text, {} of reasoning, {}",
            count_noun(self.text_bytes, "byte"),
            count_noun(self.thought_bytes, "byte"),
            match self.source.is_empty() {
                true if self.is_earlier => "as recorded: it was received earlier".to_owned(),
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
        for (number, text) in self
            .source
            .split_inclusive('\n')
            .enumerate()
            .take(max_lines)
        {
            let end = start + text.len();
            let mut spans = vec![span(&format!("{:>4} ", number + 1), dim)];
            spans.extend(self.marked_pieces(start, text.trim_end_matches('\n'), theme));
            lines.push(HistoryLine::whole(Line::from(spans)));
            while let Some(note) = notes.next_if(|note| note.at < end) {
                lines.push(note_line(note, theme));
            }
            start = end;
        }
        lines.extend(notes.take(max_lines).map(|note| note_line(note, theme)));
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
    let text = format!("{NOTE_MARK}{}", note.text);
    HistoryLine::words(Line::from(span(&text, theme.style(note.role))), 7)
}

#[cfg(test)]
mod tests {
    use sabir_session::call::Certainty;

    use super::*;

    #[test]
    fn an_answer_is_shown_beside_what_was_understood() {
        let mut answers = AnswerHistory::default();
        answers.begin_answer();
        let source = "I read it.\n<read_file>\n<path>a</path>\n";
        for delta in [
            StreamEvent::Source {
                text: source.to_owned(),
                is_thought: false,
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
            answers.note_delta(&delta);
        }
        let lines = answers.lines(1, Theme::new(true)).unwrap();
        let texts: Vec<_> = lines.iter().map(|line| line.line.to_string()).collect();
        assert_eq!(
            texts,
            [
                "answer 1: 11 bytes of text, 0 bytes of reasoning, read from 38 bytes",
                "   1 I read it.",
                "   2 <read_file>",
                "     └ opens a call (cline, tag)",
                "     └ call read_file",
                "   3 <path>a</path>",
            ]
        );
        answers.begin_answer();
        assert_eq!(answers.list_items()[0].label, "1 (broke off)");
        assert_eq!(answers.lines(2, Theme::new(true)), None);
        assert_eq!(answers.kept_text(), "answer 1 is kept");
    }

    fn turn(text: &str) -> AssistantTurn {
        AssistantTurn {
            turn: 1,
            parts: vec![MessagePart::Text {
                text: text.to_owned(),
            }],
            checks: Vec::new(),
            faults: Vec::new(),
            usage: Default::default(),
            estimate: Default::default(),
            cost: sabir_session::call::Cost::UNKNOWN,
            stop: None,
            feedback: None,
        }
    }

    #[test]
    fn any_kept_answer_is_shown_by_its_number() {
        let mut answers = AnswerHistory::default();
        // Of the task before it was resumed.
        answers.finish_answer(&turn("first\x1b[2J\nof two lines"));
        for number in 2..=MAX_ANSWERS + 20 {
            answers.begin_answer();
            let text = format!("answer number {number}\n");
            answers.note_delta(&StreamEvent::Source {
                text: text.clone(),
                is_thought: false,
            });
            answers.finish_answer(&turn(&text));
            if number == 3 {
                let lines = answers.lines(1, Theme::new(true)).unwrap();
                let texts: Vec<_> = lines.iter().map(|line| line.line.to_string()).collect();
                assert!(
                    texts[0].ends_with("as recorded: it was received earlier"),
                    "{texts:?}"
                );
                assert_eq!(texts[1..], ["     └ first\u{fffd}", "     └ of two lines"]);
                let items = answers.list_items();
                let labels: Vec<_> = items.iter().map(|item| item.label.as_str()).collect();
                assert_eq!(
                    labels,
                    ["3 answer number 3", "2 answer number 2", "1 first\u{fffd}"]
                );
            }
        }
        assert_eq!(answers.lines(20, Theme::new(true)), None);
        let lines = answers.lines(21, Theme::new(true)).unwrap();
        assert_eq!(lines[1].line.to_string(), "   1 answer number 21");
        assert_eq!(answers.kept_text(), "answers 21 to 520 are kept");
        // Long ones leave room for fewer.
        for _ in 0..MAX_SOURCES / MAX_SOURCE + 1 {
            answers.begin_answer();
            let text = "x".repeat(MAX_SOURCE + 1);
            answers.note_delta(&StreamEvent::Source {
                text,
                is_thought: false,
            });
            answers.finish_answer(&turn("long"));
        }
        let bytes: usize = answers
            .answers
            .iter()
            .map(|answer| answer.source.len())
            .sum();
        assert!(bytes <= MAX_SOURCES && answers.lines(537, Theme::new(true)).is_some());
    }
}
