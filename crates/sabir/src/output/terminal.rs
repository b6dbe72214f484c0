//! Implements the plain interactive mode: line by line, with streaming.
//!
//! A line typed before a question appeared never answers it. Like everything typed while the task
//! works, it is queued as a message to the model; `/now WORDS` interrupts the model, and
//! `/mode NAME` switches the mode. On a terminal an answer counts only a moment after the question
//! was drawn, since keys may be pressed while it appears.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sabir_agent::{
    CommandQueue, CompactionTiming, FrontEnd, MessageAuthor, Record, RuleProposal, TaskEvent,
    TransientEvent, UserNotice, UserQuestion, UserReply,
};
use sabir_session::pictures;

use crate::commands::context;
use crate::output::approval_preview::{first_lines, show_exactly, truncate_middle};
use crate::output::event_renderer::EventRenderer;
use crate::output::front_end::Audience;
use crate::output::print;
use crate::output::stdin_reader::{self, LineContext, StdinReader};

/// The maximum number of lines shown of a call's details in an approval question.
const SHOWN_LINES: usize = 120;
/// The number of blanks in a row that are counted instead of shown in the subject of a question.
const LONG_RUN: usize = 16;
/// The same limit for the details, which may be indented code.
const LONG_INDENT: usize = 80;
/// The time before answers count (250 ms, less than a person needs to read a question). Keys
/// pressed before were meant for something else.
const ANSWER_DELAY: Duration = Duration::from_millis(250);

/// A user at a terminal, or at the other end of a pipe.
#[derive(Debug)]
pub(crate) struct TerminalFrontEnd {
    renderer: EventRenderer,
    input: StdinReader,
    /// The open question, which lines answer.
    open_question: Option<UserQuestion>,
    /// True if the task is working, rather than waiting for the user's message.
    is_working: bool,
}

impl TerminalFrontEnd {
    /// Creates the front end and starts to read standard input.
    pub(crate) fn new(known: LineContext) -> Self {
        Self {
            renderer: EventRenderer::default(),
            input: StdinReader::new(known),
            open_question: None,
            is_working: false,
        }
    }

    /// Asks a question, unless it is already open, and waits for a valid answer.
    async fn ask_question(&mut self, question: &UserQuestion) -> UserReply {
        // The request may be made again after an interruption; the question is then still on the
        // screen.
        if self.open_question.as_ref() != Some(question) {
            if matches!(question, UserQuestion::Next { .. }) {
                if !self.input.await_words() {
                    return UserReply::Leave;
                }
                print::write_stderr(question_prompt(question));
            } else {
                if StdinReader::is_terminal() {
                    tokio::time::sleep(ANSWER_DELAY).await;
                }
                self.input
                    .await_answer(|| print::write_stderr(question_prompt(question)));
            }
            self.open_question = Some(question.clone());
        }
        loop {
            let Some(line) = self.input.next_answer().await else {
                return UserReply::Leave;
            };
            match parse_reply(question, line.trim()) {
                Some(reply) => return reply,
                None => print::write_stderr(question_prompt(question)),
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
            return self.show_queued(&pictures::with_image_notes(text, images));
        }
        self.close_question();
        print::write_stderr(&self.renderer.render_event(event));
        match event {
            TaskEvent::Moment(TransientEvent::Asking { .. }) => self.is_working = true,
            TaskEvent::Moment(TransientEvent::Question(question)) => {
                self.is_working = !matches!(question, UserQuestion::Next { .. });
                print::write_stderr(&print::sanitize_text(&question_text(question)));
            }
            _ => {}
        }
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        let words = match aside {
            UserNotice::ContextUsage(filling) => context::render_usage(filling),
            UserNotice::Compaction(CompactionTiming::Nothing) => {
                "there is nothing that could be left out of the context\n".to_owned()
            }
            UserNotice::Compaction(CompactionTiming::Now) => return,
            UserNotice::Compaction(CompactionTiming::Later) => {
                "the context is compacted before the model is asked for its next turn\n".to_owned()
            }
        };
        print::write_stderr(&print::sanitize_text(&format!("\n{words}")));
        if let Some(question) = &self.open_question {
            print::write_stderr(question_prompt(question));
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

impl Audience for TerminalFrontEnd {
    fn write(&mut self, lines: &str) {
        self.close_question();
        print::write_stderr(&self.renderer.render_lines(lines));
    }

    fn show_timeout(&mut self) {
        self.close_question();
        print::write_stderr("\nno answer in time: not allowed\n");
    }
}

/// Returns the text of a question; hidden characters are made visible in what is to be approved.
fn question_text(question: &UserQuestion) -> String {
    match question {
        UserQuestion::Approval {
            tool,
            subject,
            detail,
            reason,
            proposals,
            ..
        } => {
            let tool = show_exactly(tool, LONG_RUN);
            let reason = show_exactly(reason, LONG_RUN).replace('\n', " ⏎ ");
            let subject = print::indent_lines(&truncate_middle(&show_exactly(subject, LONG_RUN)));
            let detail = first_lines(&show_exactly(detail, LONG_INDENT), SHOWN_LINES);
            let detail = if detail.is_empty() {
                String::new()
            } else {
                format!("{}\n", print::indent_lines(&truncate_middle(&detail)))
            };
            format!(
                "\n{tool} {}:\n{subject}\n{detail}{}",
                truncate_middle(&reason),
                rules_text(proposals)
            )
        }
        UserQuestion::Followup {
            question, options, ..
        } => {
            let options = options
                .iter()
                .enumerate()
                .map(|(at, option)| format!("  {}. {option}\n", at + 1));
            format!("\n{question}\n{}", options.collect::<String>())
        }
        UserQuestion::Completion { result, .. } => {
            format!("\nThe model says that the task is done:\n{result}\n")
        }
        UserQuestion::Next { reason } if reason.is_empty() => "\n".to_owned(),
        UserQuestion::Next { reason } => format!("\n{reason}. What now?\n"),
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
        _ if stdin_reader::is_leave(line) => Some(UserReply::Leave),
        _ if line.is_empty() => None,
        UserQuestion::Approval { .. } if yes => Some(UserReply::Yes),
        UserQuestion::Approval { .. } if no => Some(UserReply::No(String::new())),
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
            Some(UserReply::Text(
                chosen.map_or(line, String::as_str).to_owned(),
            ))
        }
        _ => Some(UserReply::Text(line.to_owned())),
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
    // With other words after it the line is a message to the model. A number that was not offered
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
    use sabir_call::CallId;

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
        }
    }

    #[test]
    fn only_what_was_offered_is_always() {
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
    fn a_question_says_what_always_would_allow() {
        let shown = question_text(&question(&["kind=make", "edits"]));
        assert_eq!(
            shown,
            "\nexecute_command runs make:\n    make x\nalways, for the rest of this task (`a 1` for the first alone):\n  1. all of \
             kind=make\n  2. all of edits\n"
        );
        assert!(
            question_text(&question(&["edits"]))
                .ends_with("always, for the rest of this task: all of edits\n")
        );
        assert!(!question_text(&question(&[])).contains("always"));
    }
}
