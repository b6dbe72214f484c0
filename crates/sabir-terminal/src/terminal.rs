//! Implements the plain interactive mode: line by line, with streaming.
//!
//! A line typed before a question appeared never answers it. Like everything typed while the task
//! works, it is queued as a message to the model; `/now WORDS` interrupts the model, and
//! `/mode NAME` switches the mode. On a terminal an answer counts only a moment after the question
//! was drawn, since keys may be pressed while it appears.

use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::time::Duration;

use sabir_session::agent::{
    CommandQueue, CompactionTiming, FrontEnd, MessageAuthor, Record, RuleProposal, TaskEvent,
    TransientEvent, UserMessage, UserNotice, UserQuestion, UserReply,
};
use sabir_session::images;

use crate::approval_preview::{MAX_CHARS, reveal_hidden_characters, split_pages, truncate_middle};
use crate::event_renderer::EventRenderer;
use crate::front_end::SessionFrontEnd;
use crate::margin::{mark_lines, wrap_rows};
use crate::slash_commands::is_quit_word;
use crate::stdin_reader::{self, LineContext, StdinReader, TypedLine};
use crate::{context_text, print};

/// The maximum number of lines shown of a call's details in an approval question.
const SHOWN_LINES: usize = 120;
/// The number of blanks in a row that are counted instead of shown in the subject of a question.
const LONG_RUN: usize = 16;
/// The same limit for the details, which may be indented code.
const LONG_INDENT: usize = 80;
/// The time before answers count (250 ms, less than a person needs to read a question). Earlier key
/// presses were meant for something else.
const ANSWER_DELAY: Duration = Duration::from_millis(250);

/// A user at a terminal, or at the other end of a pipe.
#[derive(Debug)]
pub struct TerminalFrontEnd {
    renderer: EventRenderer,
    input: StdinReader,
    /// The open question, which lines answer.
    open_question: Option<UserQuestion>,
    /// The question that was shown last, with the pages of it that were not shown yet.
    unseen: Option<(UserQuestion, VecDeque<String>)>,
    /// True if the task is working, rather than waiting for the user's message.
    is_working: bool,
}

impl TerminalFrontEnd {
    /// Creates the front end and starts to read `input`.
    pub fn new(input: impl AsFd + Send + Sync + 'static, known: LineContext) -> Self {
        Self {
            renderer: EventRenderer::with_margin(),
            input: StdinReader::new(input, known),
            open_question: None,
            unseen: None,
            is_working: false,
        }
    }

    /// Asks a question, unless it is already open, and waits for a valid answer.
    async fn ask_question(&mut self, question: &UserQuestion) -> UserReply {
        // The request may be made again after an interruption; the question is then still on the
        // screen.
        if self.open_question.as_ref() != Some(question) {
            if matches!(question, UserQuestion::Next { .. }) {
                if !self.input.accept_next_message() {
                    return UserReply::Leave;
                }
                print::write_prompt(&self.prompt(question));
            } else {
                if self.input.is_terminal() {
                    tokio::time::sleep(ANSWER_DELAY).await;
                }
                let prompt = self.prompt(question);
                let takes_images = !matches!(question, UserQuestion::Approval { .. });
                self.input
                    .accept_answers(takes_images, || print::write_prompt(&prompt));
            }
            self.open_question = Some(question.clone());
        }
        loop {
            let answer = match self.input.next_answer().await {
                None => return UserReply::Leave,
                Some(TypedLine::Answer(answer)) => answer,
                Some(TypedLine::Local(text)) => {
                    let prompt = self.prompt(question);
                    print::write_stderr(&print::sanitize_text(&text));
                    print::write_prompt(&prompt);
                    continue;
                }
            };
            let text = &answer.text;
            let is_long = text.trim().contains('\n');
            // Several lines, which may be indented, are passed on as they are.
            let line = if is_long { text } else { text.trim() };
            if !answer.images.is_empty() {
                return UserReply::Text(UserMessage {
                    text: line.to_owned(),
                    images: answer.images,
                });
            }
            let is_approval = matches!(question, UserQuestion::Approval { .. });
            if is_approval && matches!(line, "v" | "V" | "view") {
                self.show_next_page(question);
                continue;
            }
            match parse_reply(question, line) {
                // A call cannot be approved before all of it was shown.
                Some(UserReply::Yes | UserReply::YesWithRules(_))
                    if is_approval && !self.unseen_pages(question).is_empty() =>
                {
                    print::write_stderr("not all of it was shown yet; v shows more\n");
                }
                Some(reply) => return reply,
                None => {}
            }
            print::write_prompt(&self.prompt(question));
        }
    }

    /// Returns the pages of a question that were not shown yet.
    fn unseen_pages(&mut self, question: &UserQuestion) -> &mut VecDeque<String> {
        // Another question may have been shown since.
        if self
            .unseen
            .as_ref()
            .is_none_or(|(shown, _)| shown != question)
        {
            self.unseen = None;
        }
        let (_, pages) = self
            .unseen
            .get_or_insert_with(|| (question.clone(), question_view(question).unseen));
        pages
    }

    /// Shows the next page of a question's subject, and the prompt.
    fn show_next_page(&mut self, question: &UserQuestion) {
        let page = self.unseen_pages(question).pop_front();
        if let Some(page) = page {
            let page = print::sanitize_text(&print::indent_lines(&page));
            print::write_stderr(&wrap_rows(&page));
            print::write_stderr("\n");
        }
        print::write_prompt(&self.prompt(question));
    }

    /// Returns the prompt of a question: the possible answers, and how much was not shown yet.
    fn prompt(&mut self, question: &UserQuestion) -> String {
        let lines: usize = self
            .unseen_pages(question)
            .iter()
            .map(|page| page.lines().count())
            .sum();
        match lines {
            0 => question_prompt(question).to_owned(),
            1 => "allow it? 1 more line: [v]iew it, [n]o, or say why not: ".to_owned(),
            lines => {
                format!("allow it? {lines} more lines: [v]iew them, [n]o, or say why not: ")
            }
        }
    }

    /// Closes the open question, if any; later lines are messages again.
    fn close_question(&mut self) {
        if self.open_question.take().is_some() {
            self.input.stop_answering();
        }
    }

    /// Shows a queued message of the user, if the task is working.
    fn show_queued(&mut self, text: &str) {
        if self.is_working {
            let text = print::indent_lines(text);
            print::write_stderr(&print::sanitize_text(&format!("\nqueued:\n{text}\n")));
        }
    }
}

impl FrontEnd for TerminalFrontEnd {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        if let TaskEvent::Record(Record::Said {
            by: MessageAuthor::User,
            text,
            images,
            ..
        }) = event
        {
            return self.show_queued(&images::with_image_notes(text, images));
        }
        // Any event but the echo of a message means that the question is settled.
        self.close_question();
        print::write_stderr(&self.renderer.render_event(event));
        match event {
            TaskEvent::Transient(TransientEvent::Asking { .. }) => self.is_working = true,
            TaskEvent::Transient(TransientEvent::Question(question)) => {
                self.is_working = !matches!(question, UserQuestion::Next { .. });
                let view = question_view(question);
                print::write_stderr(&wrap_rows(&print::sanitize_text(&view.shown)));
                self.unseen = Some((question.clone(), view.unseen));
            }
            _ => {}
        }
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        let words = match aside {
            UserNotice::ContextUsage(filling) => context_text::render_usage(filling),
            UserNotice::Compaction(CompactionTiming::Nothing) => {
                "there is nothing that a compaction could leave out of the context\n".to_owned()
            }
            UserNotice::Compaction(CompactionTiming::Now) => return,
            UserNotice::Compaction(CompactionTiming::Later) => {
                "the context is compacted before the model is asked for its next turn\n".to_owned()
            }
        };
        print::write_stderr(&print::sanitize_text(&format!("\n{words}")));
        // The notice follows the prompt of the open question, which must be the last thing shown.
        if let Some(question) = self.open_question.clone() {
            let prompt = self.prompt(&question);
            print::write_prompt(&prompt);
        }
    }

    fn commands(&mut self) -> Option<CommandQueue> {
        self.input.take_commands()
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        Box::pin(self.ask_question(question))
    }
}

impl SessionFrontEnd for TerminalFrontEnd {
    fn write(&mut self, lines: &str) {
        self.close_question();
        print::write_stderr(&self.renderer.render_lines(lines));
    }

    fn show_timeout(&mut self) {
        self.close_question();
        print::write_stderr("\nno answer in time: denied\n");
    }
}

/// A question as it is shown.
struct QuestionView {
    /// The text that is shown at once.
    shown: String,
    /// The pages of the rest, which must be shown before a call can be approved.
    unseen: VecDeque<String>,
}

/// Returns the view of a question; hidden characters of the call are made visible.
fn question_view(question: &UserQuestion) -> QuestionView {
    let UserQuestion::Approval {
        tool,
        subject,
        detail,
        reason,
        proposals,
        ..
    } = question
    else {
        return QuestionView {
            shown: question_text(question),
            unseen: VecDeque::new(),
        };
    };
    let tool = reveal_hidden_characters(tool, LONG_RUN);
    // The reason quotes parts of the call. On several lines it could imitate the prompt.
    let reason = reveal_hidden_characters(reason, LONG_RUN).replace('\n', " ⏎ ");
    let subject = reveal_hidden_characters(subject, LONG_RUN);
    let mut unseen = VecDeque::new();
    if subject.chars().count() > MAX_CHARS {
        unseen = split_pages(&subject, SHOWN_LINES);
    }
    let subject = print::indent_lines(&truncate_middle(&subject));
    let mut pages = split_pages(&reveal_hidden_characters(detail, LONG_INDENT), SHOWN_LINES);
    let detail = pages
        .pop_front()
        .map(|page| format!("{}\n", print::indent_lines(page.trim_end_matches('\n'))))
        .unwrap_or_default();
    unseen.extend(pages);
    QuestionView {
        shown: format!(
            "\n{tool} {}:\n{subject}\n{detail}{}",
            truncate_middle(&reason),
            rules_text(proposals)
        ),
        unseen,
    }
}

/// Returns the text of a question that is not an approval.
fn question_text(question: &UserQuestion) -> String {
    match question {
        UserQuestion::Followup {
            question, options, ..
        } => {
            let options = options
                .iter()
                .enumerate()
                .map(|(at, option)| format!("{}. {option}\n", at + 1));
            let options: String = options.collect();
            format!("\n{}", mark_lines(&format!("{question}\n{options}")))
        }
        UserQuestion::Completion { result, .. } => {
            format!(
                "\nThe model says that the task is done:\n{}",
                mark_lines(result)
            )
        }
        UserQuestion::Next { reason } if reason.is_empty() => "\n".to_owned(),
        UserQuestion::Next { reason } => {
            format!("\n{}. What now?\n", reason.replace('\n', " ⏎ "))
        }
        _ => String::new(),
    }
}

/// Describes the rules that `always` would add.
fn rules_text(proposals: &[RuleProposal]) -> String {
    match proposals {
        [] => String::new(),
        [one] => format!("always, for the rest of this task: {}\n", one.words),
        all => {
            let lines = all
                .iter()
                .enumerate()
                .map(|(at, one)| format!("  {}. {}\n", at + 1, one.words));
            format!(
                "always, for the rest of this task (`a 1` for the first alone):\n{}",
                lines.collect::<String>()
            )
        }
    }
}

/// Returns the prompt that lists the possible answers.
fn question_prompt(question: &UserQuestion) -> &'static str {
    match question {
        UserQuestion::Approval { proposals, .. } if !proposals.is_empty() => {
            "allow it? [y]es, [n]o, [a]lways, or say why not: "
        }
        UserQuestion::Approval { .. } => "allow it? [y]es, [n]o, or say why not: ",
        UserQuestion::Completion { .. } => "is that right? [y]es, or say what is missing: ",
        _ => "> ",
    }
}

/// Parses an answer; `None` means that the question must be asked again.
fn parse_reply(question: &UserQuestion, line: &str) -> Option<UserReply> {
    let word = line.to_lowercase();
    let yes = matches!(word.as_str(), "y" | "yes");
    let no = matches!(word.as_str(), "n" | "no");
    match question {
        _ if stdin_reader::is_quit_command(line) => Some(UserReply::Leave),
        // A question of the model may well have the answer `exit`.
        question if is_quit_word(line) && !matches!(question, UserQuestion::Followup { .. }) => {
            Some(UserReply::Leave)
        }
        _ if line.is_empty() => None,
        UserQuestion::Approval { .. } if yes => Some(UserReply::Yes),
        UserQuestion::Approval { .. } if no => Some(UserReply::No(String::new())),
        // Anything else is the reason for a refusal. Only `y` and the offered rules allow a call.
        UserQuestion::Approval { proposals, .. } => match parse_rules(&word, proposals) {
            Some(rules) => (!rules.is_empty()).then_some(UserReply::YesWithRules(rules)),
            None => Some(UserReply::No(line.to_owned())),
        },
        UserQuestion::Completion { .. } if yes => Some(UserReply::Yes),
        UserQuestion::Completion { .. } if no => Some(UserReply::No(String::new())),
        UserQuestion::Followup { options, .. } => {
            let chosen = line
                .parse::<usize>()
                .ok()
                .and_then(|number| options.get(number.checked_sub(1)?));
            Some(UserReply::Text(chosen.map_or(line, String::as_str).into()))
        }
        _ => Some(UserReply::Text(line.into())),
    }
}

/// Parses `a` or `always`, or `a 1 3` for some of the offered rules. Returns `None` if the line is
/// something else, and no rules if it names a rule that was not offered.
fn parse_rules(line: &str, proposals: &[RuleProposal]) -> Option<Vec<String>> {
    let mut words = line.split_whitespace();
    if !matches!(words.next(), Some("a" | "always")) {
        return None;
    }
    let numbers: Vec<&str> = words.collect();
    if numbers.is_empty() {
        return Some(
            proposals
                .iter()
                .map(|proposal| proposal.rule.clone())
                .collect(),
        );
    }
    let numbers = numbers.iter().map(|number| number.parse::<usize>().ok());
    // With other words after it, the line is a message to the model; a number that was not offered
    // is a typing error.
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let rules = numbers.into_iter().map(|number| {
        proposals
            .get(number.checked_sub(1)?)
            .map(|known| known.rule.clone())
    });
    Some(rules.collect::<Option<Vec<_>>>().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use sabir_session::call::CallId;

    use super::*;

    fn question(rules: &[&str]) -> UserQuestion {
        let proposal = |rule: &&str| RuleProposal {
            rule: (*rule).to_owned(),
            words: format!("all of {rule}"),
        };
        UserQuestion::Approval {
            call: CallId::new("1"),
            tool: "execute_command".to_owned(),
            subject: "make x".to_owned(),
            detail: String::new(),
            reason: "runs make".to_owned(),
            proposals: rules.iter().map(proposal).collect(),
            recovered_from_text: false,
            echo_of: None,
        }
    }

    #[test]
    fn only_offered_rules_can_be_allowed_always() {
        let check = |line: &str, rules: &[&str], expected: Option<UserReply>| {
            assert_eq!(parse_reply(&question(rules), line), expected, "{line}");
        };
        let always = |rules: &[&str]| {
            Some(UserReply::YesWithRules(
                rules.iter().map(|rule| (*rule).to_owned()).collect(),
            ))
        };
        check(
            "a",
            &["kind=make", "edits"],
            always(&["kind=make", "edits"]),
        );
        check("Always", &["edits"], always(&["edits"]));
        check("a 2", &["kind=make", "edits"], always(&["edits"]));
        check("a 3", &["kind=make", "edits"], None);
        check("a 0", &["edits"], None);
        check("a", &[], None);
        check(
            "a better way is cargo",
            &["edits"],
            Some(UserReply::No("a better way is cargo".to_owned())),
        );
        check("", &["edits"], None);
        check("y", &[], Some(UserReply::Yes));
        check(
            "yes please",
            &[],
            Some(UserReply::No("yes please".to_owned())),
        );
    }

    #[test]
    fn a_question_names_the_rules_of_always() {
        let shown = question_view(&question(&["kind=make", "edits"])).shown;
        assert_eq!(
            shown,
            "\nexecute_command runs make:\n    make x\nalways, for the rest of this task (`a 1` for the first alone):\n  1. all of \
             kind=make\n  2. all of edits\n"
        );
        assert!(
            question_view(&question(&["edits"]))
                .shown
                .ends_with("always, for the rest of this task: all of edits\n")
        );
        assert!(!question_view(&question(&[])).shown.contains("always"));
    }
}
