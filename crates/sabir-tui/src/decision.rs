//! Shows a question to the user, and turns keys into the answer.
//!
//! The subject is shown exactly: characters that hide something are named, nothing is left out, and
//! a call cannot be approved before its last row was on the screen. A key that was pressed before
//! the question was drawn never answers it, and neither does a key of a sentence that the user is
//! typing when it appears: keys count after [`QUIET_TIME`] without any, and with a draft only after
//! Tab has moved the focus to the question.

use std::time::Duration;

use ratatui_core::text::{Line, Span};
use sabir_session::agent::{RuleProposal, UserQuestion};
use sabir_session::{Decision, RequestId};
use sabir_terminal::approval_preview::reveal_hidden_characters;

use crate::keys::{Key, KeyCode};
use crate::lines::{HistoryLine, fit_line, one_line, span, wrap_words};
use crate::theme::{Role, Theme};
use crate::transcript::diff_role;

/// The time without a key, after the question was drawn, before keys can answer it.
pub const QUIET_TIME: Duration = Duration::from_millis(300);
/// The number of blanks in a row that are counted instead of shown in the subject of a question.
const LONG_RUN: usize = 16;
/// The same limit for the details, which may be indented code.
const LONG_INDENT: usize = 80;

/// A question that waits for the user.
#[derive(Debug)]
pub struct OpenQuestion {
    /// The id of the question.
    pub request: RequestId,
    /// The question.
    pub question: UserQuestion,
    /// The task that asks, if it is a subtask.
    pub subtask: Option<String>,
    /// The exact text of an approval: the subject and the details.
    exact: Vec<HistoryLine>,
    /// The width that the rows were wrapped for, with the rows.
    wrapped: (usize, Vec<Line<'static>>),
    /// The first row that is shown.
    scroll: usize,
    /// The number of rows that were on the screen.
    seen: usize,
    /// The height of the window when it was last drawn.
    height: usize,
    /// The moment at which it was first drawn.
    drawn: Option<Duration>,
    /// The chosen option of a question with options.
    chosen: Option<usize>,
}

/// The effect of a key on an open question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionKeyEffect {
    /// The key answers.
    Answer(Decision),
    /// The key asks for the reason of a refusal.
    AskReason,
    /// The key scrolls or chooses.
    Handled,
    /// The key would approve something that was not shown whole.
    Unseen,
    /// The key means nothing here.
    Ignored,
}

impl OpenQuestion {
    /// Creates the view of a question.
    pub fn new(
        request: RequestId,
        question: UserQuestion,
        subtask: Option<String>,
        theme: Theme,
    ) -> Self {
        let exact = exact_lines(&question, theme);
        Self {
            request,
            question,
            subtask,
            exact,
            wrapped: (0, Vec::new()),
            scroll: 0,
            seen: 0,
            height: 0,
            drawn: None,
            chosen: None,
        }
    }

    /// Returns true if keys choose one of a few answers; other questions are answered with text.
    pub fn is_approval(&self) -> bool {
        matches!(self.question, UserQuestion::Approval { .. })
    }

    /// Records that the question is on the screen.
    pub fn note_drawn(&mut self, now: Duration) {
        self.drawn.get_or_insert(now);
    }

    /// Returns true if the question was on the screen long enough without a key, so that a key may
    /// answer it.
    pub fn accepts_keys(&self, last_key: Duration, now: Duration) -> bool {
        self.drawn
            .is_some_and(|drawn| now.saturating_sub(drawn.max(last_key)) >= QUIET_TIME)
    }

    /// Returns true if the question was on the screen long enough, so that a text may answer it.
    /// The next message may come at once.
    pub fn was_seen(&self, now: Duration) -> bool {
        matches!(self.question, UserQuestion::Next { .. }) || self.accepts_keys(Duration::ZERO, now)
    }

    /// Returns the chosen option of the model's question, if there is one.
    pub fn chosen_option(&self) -> Option<&str> {
        match &self.question {
            UserQuestion::Followup { options, .. } => options.get(self.chosen?).map(String::as_str),
            _ => None,
        }
    }

    /// Moves the choice among the options of the model's question. Returns false if there are none.
    pub fn move_choice(&mut self, is_down: bool) -> bool {
        let UserQuestion::Followup { options, .. } = &self.question else {
            return false;
        };
        if options.is_empty() {
            return false;
        }
        self.chosen = match (self.chosen, is_down) {
            (None, true) => Some(0),
            (None, false) => Some(options.len() - 1),
            (Some(at), true) => (at + 1 < options.len()).then_some(at + 1),
            (Some(at), false) => at.checked_sub(1),
        };
        true
    }

    /// Takes a key that is meant for an approval.
    pub fn press(&mut self, key: Key) -> QuestionKeyEffect {
        let UserQuestion::Approval { proposals, .. } = &self.question else {
            return QuestionKeyEffect::Ignored;
        };
        match (key.code, key.written_char()) {
            (_, Some('y' | 'Y')) => self.approve(Decision::Allow),
            (_, Some('n' | 'N')) => QuestionKeyEffect::AskReason,
            (_, Some('a' | 'A')) if !proposals.is_empty() => {
                let rules = proposals.iter().map(|one| one.rule.clone()).collect();
                self.approve(Decision::AllowAlways { rules })
            }
            (_, Some(digit @ '1'..='9')) => {
                let index = digit.to_digit(10).map_or(0, |digit| digit as usize);
                match proposals.get(index - 1) {
                    Some(one) => {
                        let rules = vec![one.rule.clone()];
                        self.approve(Decision::AllowAlways { rules })
                    }
                    None => QuestionKeyEffect::Ignored,
                }
            }
            (_, Some('v' | ' ')) | (KeyCode::PageDown, _) => {
                self.scroll_by(self.height.max(1), true)
            }
            (_, Some('b')) | (KeyCode::PageUp, _) => self.scroll_by(self.height.max(1), false),
            (KeyCode::Down, _) => self.scroll_by(1, true),
            (KeyCode::Up, _) => self.scroll_by(1, false),
            _ => QuestionKeyEffect::Ignored,
        }
    }

    fn approve(&self, decision: Decision) -> QuestionKeyEffect {
        if self.unseen_rows() > 0 {
            return QuestionKeyEffect::Unseen;
        }
        QuestionKeyEffect::Answer(decision)
    }

    fn scroll_by(&mut self, rows: usize, is_down: bool) -> QuestionKeyEffect {
        let last = self.wrapped.1.len().saturating_sub(self.height.max(1));
        if is_down {
            // The shown rows count as read only if no row before them was skipped.
            if self.scroll <= self.seen {
                self.seen = self.seen.max(self.scroll + self.height);
            }
            self.scroll = (self.scroll + rows).min(last);
        } else {
            self.scroll = self.scroll.saturating_sub(rows);
        }
        QuestionKeyEffect::Handled
    }

    fn unseen_rows(&self) -> usize {
        self.wrapped.1.len().saturating_sub(self.seen)
    }

    /// Lays the question out for a screen of this width. Called before each drawing. `beside_answers` are the rows that are left
    /// where the possible answers are shown, `alone` those before they are.
    pub fn lay_out(&mut self, width: usize, beside_answers: usize, alone: usize) {
        if self.wrapped.0 != width {
            let wrap = |line: &HistoryLine| wrap_words(&line.line, width, 4);
            self.wrapped = (width, self.exact.iter().flat_map(wrap).collect());
            // Which rows were seen at another width is unknown.
            self.seen = 0;
            self.scroll = 0;
        }
        let count = self.wrapped.1.len();
        if count <= beside_answers {
            self.seen = count;
        }
        let room = if self.seen < count {
            alone
        } else {
            beside_answers
        };
        self.height = room.min(count);
        self.scroll = self.scroll.min(count - self.height);
    }

    /// Returns the number of rows that an approval takes besides the exact text, once all of that was shown.
    pub fn fixed_rows(&self, theme: Theme, width: usize, position: &str, hint: &str) -> usize {
        match &self.question {
            UserQuestion::Approval { proposals, .. } => {
                let answers = self.answer_rows(theme, width, proposals, hint, 0);
                self.title_rows(theme, width, position).len() + answers.len()
            }
            _ => 0,
        }
    }

    /// Returns the first rows of an approval: the tool and the reason why it is asked about.
    pub fn title_rows(&self, theme: Theme, width: usize, position: &str) -> Vec<Line<'static>> {
        let UserQuestion::Approval {
            tool,
            reason,
            recovered_from_text,
            ..
        } = &self.question
        else {
            return Vec::new();
        };
        let dim = theme.style(Role::Dim);
        let reason = reveal_hidden_characters(reason, LONG_RUN).replace('\n', " ⏎ ");
        let tool = reveal_hidden_characters(tool, LONG_RUN);
        let mut title = vec![span("? ", theme.style(Role::Warning))];
        if let Some(subtask) = &self.subtask {
            title.push(span(&format!("{subtask}: "), dim));
        }
        title.push(span(&tool, theme.style(Role::Strong)));
        title.push(span(&format!(" {reason}"), theme.style(Role::Warning)));
        title.push(span(position, dim));
        let mut rows = wrap_words(&Line::from(title), width, 2);
        if *recovered_from_text {
            let text = "  the call was read out of text, not made natively";
            rows.push(Line::from(span(text, theme.style(Role::Warning))));
        }
        rows
    }

    /// Returns the rows of the question. `hint` says how to give it the focus, if it does not have it.
    pub fn rows(
        &self,
        theme: Theme,
        width: usize,
        position: &str,
        hint: &str,
    ) -> Vec<Line<'static>> {
        let dim = theme.style(Role::Dim);
        let mut rows = Vec::new();
        match &self.question {
            UserQuestion::Approval { proposals, .. } => {
                rows.extend(self.title_rows(theme, width, position));
                let shown = self.wrapped.1.iter().skip(self.scroll).take(self.height);
                rows.extend(shown.cloned());
                let unseen = self.unseen_rows();
                rows.extend(self.answer_rows(theme, width, proposals, hint, unseen));
            }
            UserQuestion::Followup {
                question, options, ..
            } => {
                for line in sabir_terminal::sanitizer::sanitize_text(question).lines() {
                    let line = Line::from(span(&format!("? {line}"), theme.style(Role::Strong)));
                    rows.extend(wrap_words(&line, width, 2));
                }
                for (at, option) in options.iter().enumerate() {
                    let role = match self.chosen == Some(at) {
                        true => Role::Selected,
                        false => Role::Plain,
                    };
                    let text = format!("  {}. {}", at + 1, one_line(option));
                    rows.extend(wrap_words(
                        &Line::from(span(&text, theme.style(role))),
                        width,
                        5,
                    ));
                }
                let text = match options.is_empty() {
                    true => "  type your answer",
                    false => "  ↑ ↓ and Enter choose, or type an answer or a number",
                };
                rows.push(Line::from(span(text, dim)));
            }
            UserQuestion::Completion { .. } => {
                rows.push(Line::from(vec![
                    span("? Is that right? ", theme.style(Role::Strong)),
                    span("Enter: yes · or say what is missing", dim),
                ]));
            }
            _ => {}
        }
        rows.into_iter().map(|row| fit_line(row, width)).collect()
    }

    fn answer_rows(
        &self,
        theme: Theme,
        width: usize,
        proposals: &[RuleProposal],
        hint: &str,
        unseen: usize,
    ) -> Vec<Line<'static>> {
        let dim = theme.style(Role::Dim);
        let key = |key: &str| Span::styled(key.to_owned(), theme.style(Role::Strong));
        if !hint.is_empty() {
            return vec![Line::from(span(hint, theme.style(Role::Warning)))];
        }
        let mut rows = Vec::new();
        if unseen > 0 {
            let text = format!(" v shows more, {unseen} rows left · ");
            rows.push(Line::from(vec![
                span(&text, theme.style(Role::Warning)),
                key("n"),
                span(" no", dim),
            ]));
            return rows;
        }
        rows.push(Line::from(vec![
            key(" y"),
            span(" yes · ", dim),
            key("n"),
            span(" no, because … · ", dim),
            key("Tab"),
            span(" to your message · ", dim),
            key("Esc"),
            span(" stop", dim),
        ]));
        for (at, one) in proposals.iter().enumerate() {
            let name = if proposals.len() == 1 {
                " a".to_owned()
            } else {
                format!(" {}", at + 1)
            };
            let words = reveal_hidden_characters(&one.words, LONG_RUN);
            let line = Line::from(vec![
                key(&name),
                span(" yes, and for the rest of this task: ", dim),
                span(&words, theme.style(Role::Plain)),
            ]);
            rows.extend(wrap_words(&line, width, 3));
        }
        if proposals.len() > 1 {
            rows.push(Line::from(vec![
                key(" a"),
                span(" yes, and all of these", dim),
            ]));
        }
        rows
    }
}

/// Returns the lines of what would be done, exactly.
fn exact_lines(question: &UserQuestion, theme: Theme) -> Vec<HistoryLine> {
    let UserQuestion::Approval {
        subject, detail, ..
    } = question
    else {
        return Vec::new();
    };
    let subject = reveal_hidden_characters(subject, LONG_RUN);
    let detail = reveal_hidden_characters(detail, LONG_INDENT);
    let is_diff = detail.lines().any(|line| line.starts_with("@@"));
    let subject = subject
        .lines()
        .map(|line| exact_line(line, theme.style(Role::Accent)));
    let detail = detail.lines().map(|line| {
        let role = if is_diff {
            diff_role(line)
        } else {
            Role::Plain
        };
        exact_line(line, theme.style(role))
    });
    subject.chain(detail).collect()
}

fn exact_line(line: &str, style: ratatui_core::style::Style) -> HistoryLine {
    // Tabs were kept as they are.
    let text = line.replace('\t', "    ");
    HistoryLine::words(Line::from(span(&format!("    {text}"), style)), 4)
}

#[cfg(test)]
mod tests {
    use sabir_session::agent::TaskId;
    use sabir_session::call::CallId;

    use super::*;

    fn decision(detail: &str, rules: &[&str]) -> OpenQuestion {
        let call = CallId::new("1");
        let request = RequestId {
            task: TaskId::new("t"),
            call: Some(call.clone()),
        };
        let proposal = |rule: &&str| RuleProposal {
            rule: (*rule).to_owned(),
            words: format!("all of {rule}"),
        };
        let question = UserQuestion::Approval {
            call,
            tool: "execute_command".to_owned(),
            subject: "make x".to_owned(),
            detail: detail.to_owned(),
            reason: "runs make".to_owned(),
            proposals: rules.iter().map(proposal).collect(),
            recovered_from_text: false,
            echo_of: None,
        };
        OpenQuestion::new(request, question, None, Theme::new(true))
    }

    fn press(decision: &mut OpenQuestion, c: char) -> QuestionKeyEffect {
        decision.press(Key::plain(KeyCode::Char(c)))
    }

    #[test]
    fn only_offered_rules_can_be_allowed() {
        let mut open = decision("", &["kind=make", "edits"]);
        open.lay_out(80, 20, 20);
        let always = |rules: &[&str]| {
            QuestionKeyEffect::Answer(Decision::AllowAlways {
                rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            })
        };
        assert_eq!(
            press(&mut open, 'y'),
            QuestionKeyEffect::Answer(Decision::Allow)
        );
        assert_eq!(press(&mut open, 'a'), always(&["kind=make", "edits"]));
        assert_eq!(press(&mut open, '2'), always(&["edits"]));
        assert_eq!(press(&mut open, '3'), QuestionKeyEffect::Ignored);
        assert_eq!(press(&mut open, 'n'), QuestionKeyEffect::AskReason);
        assert_eq!(press(&mut open, 'x'), QuestionKeyEffect::Ignored);
        let mut plain = decision("", &[]);
        plain.lay_out(80, 20, 20);
        assert_eq!(press(&mut plain, 'a'), QuestionKeyEffect::Ignored);
    }

    #[test]
    fn a_call_is_approved_only_after_all_of_it_was_shown() {
        let mut open = decision(&"+line\n".repeat(30), &[]);
        for page in 0..4 {
            open.lay_out(80, 8, 10);
            assert_eq!(
                press(&mut open, 'y'),
                QuestionKeyEffect::Unseen,
                "page {page}"
            );
            assert_eq!(press(&mut open, 'v'), QuestionKeyEffect::Handled);
        }
        open.lay_out(80, 8, 10);
        assert_eq!(
            press(&mut open, 'y'),
            QuestionKeyEffect::Answer(Decision::Allow)
        );
        // At another width it must be shown again.
        open.lay_out(60, 8, 10);
        assert_eq!(press(&mut open, 'y'), QuestionKeyEffect::Unseen);
    }

    #[test]
    fn keys_count_after_a_quiet_moment() {
        let mut open = decision("", &[]);
        let at = Duration::from_millis;
        assert!(!open.accepts_keys(at(0), at(5000)));
        open.note_drawn(at(5000));
        assert!(!open.accepts_keys(at(0), at(5100)));
        assert!(open.accepts_keys(at(0), at(5300)));
        assert!(!open.accepts_keys(at(5200), at(5400)));
    }
}
