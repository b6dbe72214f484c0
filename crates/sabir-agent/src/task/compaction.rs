//! Compaction: replaces the beginning of the history, in what the model sees, by a
//! summary.
//!
//! Kept word for word are the instructions, the user's first message and the later ones, the todos,
//! the names of the files, and the last turns, each with all its calls and results. Everything else
//! is summarised, by the model in a request of its own, or, if that fails, by one line for each
//! call. Nothing is run again, and nothing is lost: the history stays as it is.

use sabir_call::{
    DraftPart, DraftResponse, Message, MessagePart, ModelErrorKind, Request, Role, ToolProtocol,
    Usage,
};

use super::transcript::message_bytes;
use super::usage::{UsageDelta, estimate_tokens};
use super::{Task, TaskEffect, TaskInput, TaskPhase, digest};
use crate::context::{ContextFragment, RequestContext, fragment, summary};
use crate::event::UserQuestion;
use crate::record::{
    AssistantTurn, CompactionReason, CompactionRecord, ContextChange, DeliveryTime, MessageAuthor,
    Record, SummaryAuthor,
};

/// The maximum number of consecutive retries of a request that was too long, each with less content.
const MAX_OVERFLOW_RETRIES: u32 = 3;
/// The divisors that give the size of the kept turns from that of the context. A later one is used if an earlier one kept too much.
const KEPT_DIVISORS: [usize; 3] = [5, 20, usize::MAX];

/// The moment at which a requested compaction happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionTiming {
    /// Never: no message could be left out.
    Nothing,
    /// Now.
    Now,
    /// Before the model is asked for its next turn.
    Later,
}

/// The contents of a context, by size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextUsage {
    /// The tokens of the next request: the provider's count of the last one, and bytes / 4 for the
    /// rest.
    pub tokens: u64,
    /// The size of the context window in tokens, if it is known.
    pub window: Option<u64>,
    /// The share of the window, in percent, at which the context is compacted.
    pub threshold: u8,
    /// The number of messages that are left out, and the number of all messages.
    pub left_out: (usize, usize),
    /// The kinds of contents: a name, a count, and a size in bytes.
    pub breakdown: Vec<(String, usize, usize)>,
}

/// The effect that a compaction would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPreview {
    /// The number of further messages that would be left out.
    pub messages: usize,
    /// The number of messages that would stay.
    pub kept_messages: usize,
    /// The tokens of a request before it.
    pub before: u64,
    /// The tokens of a request after it, with a summary that is made without a model.
    pub after: u64,
    /// The texts that the model would read instead; the last one is the summary.
    pub head: Vec<String>,
}

impl ContextUsage {
    /// Returns the used share of the window, in percent; `None` if the window's size is not known.
    pub fn percent(&self) -> Option<u64> {
        usage_percent(self.tokens, self.window)
    }

    /// Estimates the tokens of a text: bytes / 4.
    pub fn estimate_tokens(bytes: usize) -> u64 {
        estimate_tokens(bytes)
    }
}

impl Task {
    /// Sets the context. Without it, the model gets no facts about its environment, and the size of
    /// the window is unknown.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.transcript.view.context = context;
        self
    }

    /// Returns the contents of the next request, by size.
    pub fn context_usage(&self) -> ContextUsage {
        let view = &self.transcript.view;
        let bytes = self.transcript.request_bytes();
        let tools = self.settings.tools.iter();
        let tool_bytes =
            super::usage::fixed_bytes(&self.settings).saturating_sub(self.settings.system.len());
        let mut rows = vec![
            ("instructions".to_owned(), 1, self.settings.system.len()),
            ("tools".to_owned(), tools.count(), tool_bytes),
        ];
        rows.extend(
            view.prefix_fragments()
                .iter()
                .map(|one| (one.name.clone(), 1, one.render_text().len())),
        );
        rows.extend(count_part_kinds(&self.transcript.request_messages()));
        ContextUsage {
            tokens: view.request_tokens(bytes),
            window: view.context_window(),
            threshold: view.context.threshold,
            left_out: (view.left_out_count(), self.history().len()),
            breakdown: rows,
        }
    }

    /// Returns the used share of the context window, in percent, if the window's size is known.
    pub fn context_usage_percent(&self) -> Option<u64> {
        usage_percent(
            self.transcript
                .view
                .request_tokens(self.transcript.request_bytes()),
            self.transcript.view.context_window(),
        )
    }

    /// Returns the moment at which [`TaskInput::Compact`] would take effect.
    pub fn compaction_timing(&self) -> CompactionTiming {
        match self.phase {
            TaskPhase::Finished | TaskPhase::Ending(..) | TaskPhase::AwaitingSummary(_) => {
                CompactionTiming::Nothing
            }
            _ if self.compaction_cut(CompactionReason::Asked).is_none() => {
                CompactionTiming::Nothing
            }
            TaskPhase::Paused => CompactionTiming::Now,
            TaskPhase::HandlingCalls if self.is_awaiting_user() => CompactionTiming::Now,
            TaskPhase::HandlingCalls | TaskPhase::AwaitingModel => CompactionTiming::Later,
        }
    }

    /// Reports whether the task waits for a message of the user.
    fn is_awaiting_user(&self) -> bool {
        matches!(self.question, Some(UserQuestion::Next { .. }))
    }

    /// Returns the reason why the model is being asked for a summary; `None` if it is not.
    pub fn summary_reason(&self) -> Option<CompactionReason> {
        if let TaskPhase::AwaitingSummary(why) = self.phase {
            Some(why)
        } else {
            None
        }
    }

    /// Reports whether the model is being asked for a summary instead of its next turn.
    pub fn is_summarizing(&self) -> bool {
        matches!(self.phase, TaskPhase::AwaitingSummary(_))
    }

    /// Previews a compaction; `None` if nothing could be left out.
    pub fn preview_compaction(&self) -> Option<CompactionPreview> {
        let from = self.transcript.view.left_out_count();
        let messages = self.compaction_cut(CompactionReason::Asked)?;
        let compacted = self.build_compaction(
            CompactionReason::Asked,
            messages,
            self.digest_summary(messages),
        );
        Some(CompactionPreview {
            messages: messages - from,
            kept_messages: self.history().len() - messages,
            before: compacted.before,
            after: compacted.after,
            head: compacted.head,
        })
    }

    /// Returns the system prompt: the instructions, and the context fragments.
    pub(super) fn system_prompt(&self) -> String {
        self.settings.system.clone()
            + &fragment::render_fragments(self.transcript.view.prefix_fragments())
    }

    /// Announces the context: all of it when the task begins, later only changes, at the end of the model's view.
    pub(super) fn announce_context(&mut self, effects: &mut Vec<TaskEffect>) {
        let fragments = self.transcript.view.context.fragments.clone();
        let change = match &self.transcript.view.announced {
            None if fragments.is_empty() => return,
            None => ContextChange::Begun { fragments },
            Some(before) => match fragment::describe_changes(before, &fragments) {
                Some(told) => ContextChange::Changed { fragments, told },
                None => return,
            },
        };
        self.commit_record(Record::Context(change), effects);
    }

    /// Announces changes of the context before a request.
    pub(super) fn handle_context_change(
        &mut self,
        fragments: Vec<ContextFragment>,
        effects: &mut Vec<TaskEffect>,
    ) {
        // An answer that has begun was asked for without it.
        if self.draft == DraftResponse::default() {
            self.transcript.view.context.fragments = fragments;
            self.announce_context(effects);
        }
    }

    pub(super) fn apply_context_change(&mut self, change: &ContextChange) {
        match change {
            ContextChange::Begun { fragments } => {
                self.transcript.view.announced = Some(fragments.clone());
                self.transcript.view.set_prefix(fragments.clone());
            }
            ContextChange::Changed { fragments, told } => {
                self.transcript.view.announced = Some(fragments.clone());
                self.deliver_message(MessageAuthor::Sabir, told.as_str().into());
            }
            ContextChange::Compacted(compacted) => self.apply_compaction(compacted),
            ContextChange::Restored => {
                self.transcript.undo_compaction();
                // The count belongs to the shortened requests.
                self.transcript.view.measured = None;
                // Otherwise the context, which is full again, would be compacted at once.
                self.transcript.view.auto_compaction_paused = true;
            }
            ContextChange::Tools(change) => self.apply_tools_change(change),
            ContextChange::Moded { told, when, .. } => match when {
                DeliveryTime::Next => {
                    self.deliver_message(MessageAuthor::Sabir, told.as_str().into())
                }
                DeliveryTime::Later => self
                    .pending_input
                    .messages
                    .push((MessageAuthor::Sabir, told.as_str().into())),
            },
        }
    }

    fn apply_compaction(&mut self, compacted: &CompactionRecord) {
        // Uses the record's figures: a replay must not estimate again, with other prices.
        self.budget
            .note_usage(UsageDelta::from_compaction(compacted));
        self.draft = DraftResponse::default();
        self.transcript.compact(compacted.messages, &compacted.head);
        let view = &mut self.transcript.view;
        if compacted.why == CompactionReason::Overflow {
            view.overflows = view.overflows.saturating_add(1);
            // The provider's limit is lower than the catalogue says, or was unknown. From now on it
            // is known.
            view.refused_tokens = Some(compacted.before);
        }
        // The prefix of the requests changes anyway.
        if let Some(fragments) = view.announced.clone() {
            view.set_prefix(fragments);
        }
        view.auto_compaction_paused = false;
        let bytes = self.transcript.request_bytes();
        self.transcript.view.measured = Some((bytes, compacted.after));
    }

    /// Notes the provider's count of the request's tokens. Some providers do not count, and report
    /// zero.
    pub(super) fn note_measured_tokens(&mut self, answered: &AssistantTurn) {
        let bytes = self.transcript.request_bytes();
        let view = &mut self.transcript.view;
        view.overflows = 0;
        if let Some(input) = answered.usage.input.filter(|input| *input > 0) {
            view.measured = Some((bytes, input));
        }
    }

    /// Compacts a context that is full, or that the user wants compacted. Returns true if the model
    /// is asked for a summary first.
    pub(super) fn compact_if_full(&mut self, effects: &mut Vec<TaskEffect>) -> bool {
        let view = &self.transcript.view;
        let bytes = self.transcript.request_bytes();
        if self.pending_input.compaction && self.compaction_cut(CompactionReason::Asked).is_some() {
            self.phase = TaskPhase::AwaitingSummary(CompactionReason::Asked);
            effects.push(TaskEffect::RequestModel);
            return true;
        }
        self.pending_input.compaction = false;
        let keeps_context = std::mem::take(&mut self.pending_input.keeps_context);
        let limit = view
            .context_window()
            .map(|window| window.saturating_mul(view.context.threshold.into()) / 100);
        let is_full = limit.is_some_and(|limit| view.request_tokens(bytes) >= limit);
        if !is_full
            || keeps_context
            || view.auto_compaction_paused
            || self.compaction_cut(CompactionReason::Threshold).is_none()
        {
            return false;
        }
        self.phase = TaskPhase::AwaitingSummary(CompactionReason::Threshold);
        effects.push(TaskEffect::RequestModel);
        true
    }

    /// Compacts the context after a request that was too long. Returns false if nothing more can be
    /// left out.
    pub(super) fn recover_from_overflow(
        &mut self,
        kind: ModelErrorKind,
        effects: &mut Vec<TaskEffect>,
    ) -> bool {
        let attempt = self.transcript.view.overflows;
        let Some(messages) = self
            .compaction_cut(CompactionReason::Overflow)
            .filter(|_| kind == ModelErrorKind::TooLong && attempt < MAX_OVERFLOW_RETRIES)
        else {
            return false;
        };
        // Only the first overflow causes a summary. If the shorter request is refused as well, a
        // digest is used.
        if attempt == 0 {
            self.phase = TaskPhase::AwaitingSummary(CompactionReason::Overflow);
            effects.push(TaskEffect::RequestModel);
        } else {
            let compacted = self.build_compaction(
                CompactionReason::Overflow,
                messages,
                self.digest_summary(messages),
            );
            self.commit_compaction(compacted, effects);
            self.request_next_turn(effects);
        }
        true
    }

    pub(super) fn compact_on_request(&mut self, by: SummaryAuthor, effects: &mut Vec<TaskEffect>) {
        // This compaction also fulfils an open request of the last run, which would otherwise begin
        // a turn after the summary.
        self.pending_input.compaction = false;
        let Some(messages) = self.compaction_cut(CompactionReason::Asked) else {
            return;
        };
        if by == SummaryAuthor::Model {
            self.phase = TaskPhase::AwaitingSummary(CompactionReason::Asked);
            return effects.push(TaskEffect::RequestModel);
        }
        let compacted = self.build_compaction(
            CompactionReason::Asked,
            messages,
            self.digest_summary(messages),
        );
        self.commit_compaction(compacted, effects);
    }

    fn commit_compaction(&mut self, compacted: CompactionRecord, effects: &mut Vec<TaskEffect>) {
        self.commit_record(
            Record::Context(ContextChange::Compacted(Box::new(compacted))),
            effects,
        );
    }

    /// Undoes the last compaction, if there is one.
    pub(super) fn undo_compaction(&mut self, effects: &mut Vec<TaskEffect>) {
        if self.transcript.view.is_compacted() {
            self.commit_record(Record::Context(ContextChange::Restored), effects);
        }
    }

    /// Builds the request for a summary.
    pub(super) fn summary_request(&self, why: CompactionReason) -> Request {
        let text = self.summary_input(why);
        Request {
            model: self.settings.model.clone(),
            system: summary::INSTRUCTIONS.to_owned(),
            messages: vec![Message::user(text)].into(),
            protocol: ToolProtocol::Native,
            max_output_tokens: self.settings.max_output,
            ..Request::default()
        }
    }

    /// Compacts with the model's summary, or without it if the model failed.
    pub(super) fn handle_summary(
        &mut self,
        why: CompactionReason,
        input: TaskInput<'_>,
        effects: &mut Vec<TaskEffect>,
    ) {
        let draft = std::mem::take(&mut self.draft);
        let began = draft != DraftResponse::default();
        // Calls in the answer are ignored: the request offered no tools.
        let written: String = draft
            .parts
            .iter()
            .filter_map(|part| {
                if let DraftPart::Text(text) = part {
                    Some(text.as_str())
                } else {
                    None
                }
            })
            .collect();
        let failure = match input {
            TaskInput::ModelFailed(error) => Some(error.message),
            _ if written.trim().len() < summary::MIN_SUMMARY_BYTES => {
                Some("it wrote no summary".to_owned())
            }
            _ => None,
        };
        let asked = summary::INSTRUCTIONS.len() + self.summary_input(why).len();
        // A refused request costs nothing.
        let UsageDelta {
            usage,
            estimate,
            cost,
        } = if began || failure.is_none() {
            self.request_usage(&draft, asked)
        } else {
            UsageDelta::default()
        };
        if let Some(messages) = self.compaction_cut(why) {
            let (by, text) = match failure {
                None => (
                    SummaryAuthor::Model,
                    with_summary_heading(fragment::truncate_text(
                        written.trim(),
                        summary::MAX_SUMMARY_BYTES,
                    )),
                ),
                Some(_) => (SummaryAuthor::Sabir, self.digest_summary(messages)),
            };
            let compacted = CompactionRecord {
                by,
                failure,
                usage,
                estimate,
                cost,
                ..self.build_compaction(why, messages, text)
            };
            self.commit_compaction(compacted, effects);
        }
        self.continue_after_summary(why, effects);
    }

    /// Continues without the compaction that is about to happen. One after a request that was too long cannot be refused.
    pub(super) fn refuse_compaction(
        &mut self,
        why: CompactionReason,
        effects: &mut Vec<TaskEffect>,
    ) {
        // A later turn tries again: the objection may be about this moment only.
        self.pending_input.keeps_context = why == CompactionReason::Threshold;
        if why != CompactionReason::Overflow {
            self.continue_after_summary(why, effects);
        }
    }

    /// Adds a text to the end of the model's view. The announced context does not change.
    pub(super) fn note_for_model(&mut self, text: String, effects: &mut Vec<TaskEffect>) {
        let fragments = self.transcript.view.announced.clone().unwrap_or_default();
        let change = ContextChange::Changed {
            fragments,
            told: text,
        };
        self.commit_record(Record::Context(change), effects);
    }

    /// Continues the phase that the summary interrupted.
    fn continue_after_summary(&mut self, why: CompactionReason, effects: &mut Vec<TaskEffect>) {
        let has_spoken = std::mem::take(&mut self.pending_input.includes_user_message);
        if why != CompactionReason::Asked {
            return self.request_next_turn(effects);
        }
        if !std::mem::take(&mut self.pending_input.compaction) {
            // The task was paused when the user asked, outside of any run.
            self.phase = TaskPhase::Paused;
        } else if self.is_awaiting_user() && !has_spoken {
            // The question is still open, and the user has sent no message: the task waits for its
            // answer as before.
            self.phase = TaskPhase::HandlingCalls;
        } else {
            self.withdraw_question(effects);
            self.request_next_turn(effects);
        }
    }

    /// Schedules the compaction that the user requested: now, if the task waits for the user, else
    /// before the model's next turn.
    pub(super) fn schedule_compaction(&mut self, effects: &mut Vec<TaskEffect>) {
        let when = self.compaction_timing();
        self.pending_input.compaction |= when != CompactionTiming::Nothing;
        if when == CompactionTiming::Now {
            self.phase = TaskPhase::AwaitingSummary(CompactionReason::Asked);
            effects.push(TaskEffect::RequestModel);
        }
    }

    fn summary_input(&self, why: CompactionReason) -> String {
        let view = &self.transcript.view;
        let cap = match view.context_window() {
            Some(window) if why != CompactionReason::Overflow => {
                // About half of the window, at four bytes a token.
                usize::try_from(window.saturating_mul(2)).unwrap_or(usize::MAX)
            }
            // The window is unknown or smaller than assumed, and certainly smaller than the refused
            // request.
            _ => self.transcript.request_bytes() / 3,
        };
        let earlier = view
            .summary()
            .map(|text| format!("{text}\n"))
            .unwrap_or_default();
        let covered = self
            .compaction_cut(why)
            .and_then(|cut| self.history().get(view.left_out_count()..cut))
            .unwrap_or_default();
        summary::render_transcript(&earlier, covered, cap.max(summary::MIN_SUMMARY_BYTES))
    }

    /// Returns the number of messages to leave out; `None` if no further turn can be left out, or too few to justify a changed prefix.
    fn compaction_cut(&self, why: CompactionReason) -> Option<usize> {
        let view = &self.transcript.view;
        let all = self.history();
        let bytes = self.transcript.request_bytes();
        let window = view
            .context_window()
            .and_then(|window| usize::try_from(window.saturating_mul(4)).ok());
        let room = window.map_or(bytes, |window| window.min(bytes));
        let cut = match why {
            // If the kept turns alone exceed the limit, the next smaller share is tried at once.
            CompactionReason::Overflow => {
                let attempts = KEPT_DIVISORS
                    .iter()
                    .skip(usize::try_from(view.overflows).unwrap_or(usize::MAX));
                attempts
                    .copied()
                    .find_map(|share| self.cut_for_budget(room / share))
            }
            _ => self.cut_for_budget(room / KEPT_DIVISORS[0]),
        };
        let gain = |cut| {
            all.get(view.left_out_count()..cut)
                .unwrap_or_default()
                .iter()
                .map(message_bytes)
                .sum::<usize>()
        };
        cut.filter(|cut| {
            // A changed prefix invalidates the provider's cache, which a gain of less than a tenth
            // of the room does not justify.
            why != CompactionReason::Threshold || gain(*cut).saturating_mul(10) >= room
        })
    }

    /// Returns the number of messages to leave out so that the others fit into `budget` bytes; `None` if no further turn can be left out.
    fn cut_for_budget(&self, budget: usize) -> Option<usize> {
        let from = self.transcript.view.left_out_count();
        let all = self.history();
        let mut cut = all.len();
        let mut kept = 0_usize;
        for (at, message) in all.iter().enumerate().skip(from.max(1)).rev() {
            kept = kept.saturating_add(message_bytes(message));
            // The last turn stays at any size, until even that exceeded the limit.
            if kept > budget && (cut < all.len() || budget == 0) {
                break;
            }
            // The cut is before an answer, so calls and their results stay or go together.
            if message.role == Role::Assistant {
                cut = at;
            }
        }
        let covered = all.get(from..cut).unwrap_or_default();
        covered
            .iter()
            .any(|message| message.role == Role::Assistant)
            .then_some(cut)
    }

    fn digest_summary(&self, messages: usize) -> String {
        let covered = self
            .history()
            .get(self.transcript.view.left_out_count()..messages)
            .unwrap_or_default();
        let earlier = self
            .transcript
            .view
            .summary()
            // Without the heading, which is put before the whole again.
            .and_then(|text| text.split_once('\n'))
            .map_or("", |(_, rest)| rest);
        with_summary_heading(&digest::render_call_lines(earlier, covered))
    }

    /// Builds the record of a compaction with this summary, as if no model had been asked.
    fn build_compaction(
        &self,
        why: CompactionReason,
        messages: usize,
        summary: String,
    ) -> CompactionRecord {
        let all = self.history();
        let (gone, stays) = all.split_at_checked(messages).unwrap_or_default();
        let todos = self.todos();
        let todos = if todos.open_items().next().is_some() {
            format!(
                "Your todo list, as you left it:\n<todos>\n{}\n</todos>",
                todos.text()
            )
        } else {
            String::new()
        };
        let pieces = [
            self.start.prompt.clone(),
            digest::render_user_texts(&self.transcript.view.user_texts, gone, stays),
            digest::render_files(gone, &self.settings.read_only_tools),
            self.mode_summary(),
            digest::render_image_note(gone),
            todos,
            summary,
        ];
        let head: Vec<String> = pieces
            .into_iter()
            .filter(|piece| !piece.trim().is_empty())
            .collect();
        let view = &self.transcript.view;
        let bytes = self.transcript.request_bytes();
        let now: usize = self
            .transcript
            .request_messages()
            .iter()
            .map(message_bytes)
            .sum();
        let then = stays.iter().map(message_bytes).sum::<usize>()
            + head.iter().map(String::len).sum::<usize>();
        let after = view.request_tokens(bytes.saturating_sub(now).saturating_add(then));
        CompactionRecord {
            why,
            by: SummaryAuthor::Sabir,
            failure: None,
            messages,
            head,
            before: view.request_tokens(bytes),
            after,
            usage: Usage::default(),
            estimate: Usage::default(),
            cost: UsageDelta::default().cost,
        }
    }
}

fn usage_percent(tokens: u64, window: Option<u64>) -> Option<u64> {
    window
        .filter(|window| *window > 0)
        .map(|window| tokens.saturating_mul(100) / window)
}

/// Puts the heading for the model before a summary.
fn with_summary_heading(text: &str) -> String {
    format!(
        "Your own work so far, in short; it is done, and need not be done again:\n{}",
        text.trim_end()
    )
}

/// Counts the parts of messages by kind: a name, a count, and a size in bytes.
fn count_part_kinds(messages: &[Message]) -> Vec<(String, usize, usize)> {
    let name = |role, part: &MessagePart| match part {
        MessagePart::Text { .. } if role == Role::User => "words to the model",
        MessagePart::Text { .. } => "the model's words",
        MessagePart::Thought { .. } | MessagePart::Opaque(_) => "the model's thoughts",
        MessagePart::Call(_) => "calls",
        MessagePart::Result(_) => "results",
        _ => "pictures",
    };
    let mut rows: Vec<(String, usize, usize)> = Vec::new();
    for message in messages {
        for part in &message.parts {
            let name = name(message.role, part);
            let bytes = super::transcript::part_bytes(part);
            match rows.iter_mut().find(|row| row.0 == name) {
                Some((_, count, size)) => {
                    *count += 1;
                    *size += bytes;
                }
                None => rows.push((name.to_owned(), 1, bytes)),
            }
        }
    }
    rows
}
