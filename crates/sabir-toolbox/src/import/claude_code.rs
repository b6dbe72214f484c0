//! Reads a history of Claude Code: a file with one JSON object per line.
//!
//! # Supported
//! Lines of type `user` and `assistant`, whose `message` has the form of the Anthropic API. An
//! answer is spread over several lines, one for each of its blocks, with the same `message.id`.
//! Lines are taken in the order of the file.
//!
//! # Unsupported
//! Subagents (`isSidechain`) are skipped. Branches are not distinguished: all of them follow one
//! another. Lines of other types are counted.

use std::collections::HashSet;
use std::path::Path;

use sabir_agent::MessageAuthor;
use sabir_call::dialect::DialectSet;
use sabir_call::{ToolProtocol, Usage};
use serde_json::Value;

use crate::timestamps;

use super::blocks::{ContentBlock, parse_blocks};
use super::record_builder::{ImportNotes, RecordBuilder, short_name};
use super::source_files::{modified_at, read_text_lossy};
use super::{ImportError, ImportedHistory, string_field};

/// The state of reading a file line by line.
struct TranscriptReader<'d> {
    builder: RecordBuilder<'d>,
    /// The answer whose lines are arriving.
    answer: Option<PendingAnswer>,
    /// The ids of lines and answers seen so far.
    seen: HashSet<String>,
    prompt: Option<String>,
    model: Option<String>,
    workspace: Option<String>,
    at: Option<u64>,
}

/// An answer whose blocks are still arriving.
struct PendingAnswer {
    id: String,
    blocks: Vec<ContentBlock>,
    usage: Usage,
}

/// Reads a transcript file.
pub(super) fn read_transcript(
    path: &Path,
    dialects: &DialectSet,
) -> Result<ImportedHistory, ImportError> {
    let mut notes = ImportNotes::default();
    let text = read_text_lossy(path, &mut notes)?;
    let mut reading = TranscriptReader {
        builder: RecordBuilder::new(dialects, false, 0, notes),
        answer: None,
        seen: HashSet::new(),
        prompt: None,
        model: None,
        workspace: None,
        at: None,
    };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(line) => reading.add_line(&line),
            Err(_) => reading
                .builder
                .notes
                .add_count("lines that are not JSON, which are left out", 1),
        }
    }
    // No message follows the last answer.
    reading.flush_answer();
    let TranscriptReader {
        builder: mut scribe,
        prompt,
        model,
        workspace,
        at,
        ..
    } = reading;
    let at = at.unwrap_or_else(|| modified_at(path, &mut scribe.notes));
    let prompt = prompt.ok_or_else(|| ImportError::NoPrompt {
        path: path.to_owned(),
        advice: ": it is not a history of Claude Code",
    })?;
    let (entries, notes) = scribe.finish();
    Ok(ImportedHistory {
        program: "claude_code",
        source: path.to_owned(),
        prompt,
        workspace: workspace.unwrap_or_default(),
        model: model.unwrap_or_else(|| "unknown".to_owned()),
        protocol: ToolProtocol::Native,
        at,
        entries,
        notes: notes.to_sentences(),
    })
}

impl TranscriptReader<'_> {
    /// Takes one line of the file, or counts it in a note.
    fn add_line(&mut self, line: &Value) {
        let kind = string_field(line, "type").unwrap_or("none");
        let Some(message) = line
            .get("message")
            .filter(|_| matches!(kind, "user" | "assistant"))
        else {
            let note = format!(
                "lines of type `{}`, which are not imported",
                short_name(kind)
            );
            return self.builder.notes.add_count(&note, 1);
        };
        // Their answers would mix with those of the main conversation.
        if is_true(line, "isSidechain") {
            return self
                .builder
                .notes
                .add_count("lines of subagents, which are not imported", 1);
        }
        if string_field(line, "uuid").is_some_and(|id| !self.seen.insert(id.to_owned())) {
            return self
                .builder
                .notes
                .add_count("lines that are there twice, and taken over once", 1);
        }
        let at = string_field(line, "timestamp").and_then(timestamps::parse_timestamp);
        // The first time that is known is the start of the task.
        self.at = self.at.or(at);
        self.workspace = self
            .workspace
            .take()
            .or_else(|| string_field(line, "cwd").map(str::to_owned));
        let content = parse_blocks(
            message.get("content").unwrap_or(&Value::Null),
            &mut self.builder.notes,
        );
        if kind == "assistant" {
            self.add_assistant_line(message, content);
            self.builder.set_time(at);
        } else {
            // The pending answer keeps the time of its own lines.
            self.flush_answer();
            self.builder.set_time(at);
            self.add_user_line(line, content);
        }
    }

    /// Adds the blocks of a line to the pending answer, or begins a new answer.
    fn add_assistant_line(&mut self, message: &Value, content: Vec<ContentBlock>) {
        let id = string_field(message, "id").unwrap_or_default();
        let usage = message.get("usage").map(parse_usage).unwrap_or_default();
        // The program's own messages have this model.
        let model = string_field(message, "model").filter(|model| *model != "<synthetic>");
        self.model = self.model.take().or(model.map(str::to_owned));
        match &mut self.answer {
            Some(answer) if !id.is_empty() && answer.id == id => {
                answer.blocks.extend(content);
                // Every line of an answer carries its usage; the latest counts.
                answer.usage = usage;
            }
            _ => {
                self.flush_answer();
                // An answer can continue after a result; its tokens count only once.
                let usage = if self.seen.insert(format!("message {id}")) {
                    usage
                } else {
                    Usage::default()
                };
                self.answer = Some(PendingAnswer {
                    id: id.to_owned(),
                    blocks: content,
                    usage,
                });
            }
        }
    }

    /// Takes a message of the user, or one that the program added in their name.
    fn add_user_line(&mut self, line: &Value, mut content: Vec<ContentBlock>) {
        let by_program = is_true(line, "isMeta") || is_true(line, "isCompactSummary");
        // The first words of the user begin the task; what the program said for them does not.
        if self.prompt.is_none() && !by_program {
            let words = |block: &ContentBlock| matches!(block, ContentBlock::Text(text) if !text.trim().is_empty());
            let at = content.iter().position(words);
            if let Some(ContentBlock::Text(text)) = at.map(|at| content.remove(at)) {
                self.prompt = Some(text);
            }
        }
        self.builder.add_user(
            content,
            if by_program {
                MessageAuthor::Sabir
            } else {
                MessageAuthor::User
            },
        );
    }

    /// Adds the pending answer, which is complete when another message comes.
    fn flush_answer(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.builder.add_answer(answer.blocks, answer.usage);
        }
    }
}

fn is_true(line: &Value, name: &str) -> bool {
    line.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn parse_usage(usage: &Value) -> Usage {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let read = count("cache_read_input_tokens");
    let written = count("cache_creation_input_tokens");
    // Anthropic counts cached tokens apart from `input_tokens`; `Usage::input` includes them.
    let all = |input: u64| {
        input
            .saturating_add(read.unwrap_or(0))
            .saturating_add(written.unwrap_or(0))
    };
    Usage {
        input: count("input_tokens").map(all),
        output: count("output_tokens"),
        cache_read: read,
        cache_write: written,
        reasoning: None,
    }
}
