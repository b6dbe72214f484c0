//! A history of Claude Code: a file with one JSON object a line.
//!
//! # Supported
//! Lines of type `user` and `assistant`, whose `message` is one of the Anthropic API. An answer comes in several lines, one for each of
//! its blocks, with one `message.id`. Lines are taken in the order of the file.
//!
//! # Unsupported
//! Subagents (`isSidechain`), and which of several branches was the last: all of them stand one after the other. Lines of other types
//! are counted.

use std::collections::HashSet;
use std::path::Path;

use sabir_agent::Speaker;
use sabir_call::{Protocol, Usage};
use serde_json::Value;

use crate::exit::Failure;
use crate::time;

use super::blocks::{Block, blocks};
use super::scribe::{Notes, Scribe, short};
use super::{History, string, text, written_at};

/// What is found while the lines are read.
struct Reading {
    scribe: Scribe,
    /// The answer whose lines are coming.
    answer: Option<Answer>,
    seen: HashSet<String>,
    prompt: Option<String>,
    model: Option<String>,
    workspace: Option<String>,
    at: Option<u64>,
}

struct Answer {
    id: String,
    blocks: Vec<Block>,
    usage: Usage,
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<History, Failure> {
    let mut notes = Notes::default();
    let text = text(path, &mut notes)?;
    let mut reading = Reading {
        scribe: Scribe::new(false, 0, notes),
        answer: None,
        seen: HashSet::new(),
        prompt: None,
        model: None,
        workspace: None,
        at: None,
    };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(line) => reading.line(&line),
            Err(_) => reading.scribe.notes.add("lines that are no JSON, which are left out", 1),
        }
    }
    reading.flush();
    let Reading { mut scribe, prompt, model, workspace, at, .. } = reading;
    let at = at.unwrap_or_else(|| written_at(path, &mut scribe.notes));
    let prompt = prompt.ok_or_else(|| {
        Failure::usage(format!("{} holds no words of a user: it is no history of Claude Code", path.display()))
    })?;
    Ok(History {
        program: "claude_code",
        source: path.to_owned(),
        prompt,
        workspace: workspace.unwrap_or_default(),
        model: model.unwrap_or_else(|| "unknown".to_owned()),
        protocol: Protocol::Native,
        at,
        scribe,
    })
}

impl Reading {
    fn line(&mut self, line: &Value) {
        let kind = string(line, "type").unwrap_or("none");
        let Some(message) = line.get("message").filter(|_| matches!(kind, "user" | "assistant")) else {
            let note = format!("lines of type `{}`, which are not taken over", short(kind));
            return self.scribe.notes.add(&note, 1);
        };
        if is_true(line, "isSidechain") {
            return self.scribe.notes.add("lines of subagents, which are not taken over", 1);
        }
        if string(line, "uuid").is_some_and(|id| !self.seen.insert(id.to_owned())) {
            return self.scribe.notes.add("lines that are there twice, and taken over once", 1);
        }
        let at = string(line, "timestamp").and_then(time::read);
        self.at = self.at.or(at);
        self.workspace = self.workspace.take().or_else(|| string(line, "cwd").map(str::to_owned));
        let content = blocks(message.get("content").unwrap_or(&Value::Null), &mut self.scribe.notes);
        if kind == "assistant" {
            self.assistant(message, content);
            self.scribe.clock(at);
        } else {
            self.flush();
            self.scribe.clock(at);
            self.user(line, content);
        }
    }

    fn assistant(&mut self, message: &Value, content: Vec<Block>) {
        let id = string(message, "id").unwrap_or_default();
        let usage = message.get("usage").map(usage).unwrap_or_default();
        // Words of the program's own have this model.
        let model = string(message, "model").filter(|model| *model != "<synthetic>");
        self.model = self.model.take().or(model.map(str::to_owned));
        match &mut self.answer {
            Some(answer) if !id.is_empty() && answer.id == id => {
                answer.blocks.extend(content);
                answer.usage = usage;
            }
            _ => {
                self.flush();
                // The rest of an answer that was broken up by a result counts its tokens once.
                let usage = if self.seen.insert(format!("message {id}")) { usage } else { Usage::default() };
                self.answer = Some(Answer { id: id.to_owned(), blocks: content, usage });
            }
        }
    }

    fn user(&mut self, line: &Value, mut content: Vec<Block>) {
        let by_program = is_true(line, "isMeta") || is_true(line, "isCompactSummary");
        if self.prompt.is_none() && !by_program {
            let words = |block: &Block| matches!(block, Block::Text(text) if !text.trim().is_empty());
            let at = content.iter().position(words);
            if let Some(Block::Text(text)) = at.map(|at| content.remove(at)) {
                self.prompt = Some(text);
            }
        }
        self.scribe.user(content, if by_program { Speaker::Sabir } else { Speaker::User });
    }

    /// The answer is whole: another message comes.
    fn flush(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.scribe.assistant(answer.blocks, answer.usage);
        }
    }
}

fn is_true(line: &Value, name: &str) -> bool {
    line.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn usage(told: &Value) -> Usage {
    let count = |name: &str| told.get(name).and_then(Value::as_u64);
    let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let all = |input: u64| input.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0));
    Usage {
        input: count("input_tokens").map(all),
        output: count("output_tokens"),
        cache_read: read,
        cache_write: written,
        reasoning: None,
    }
}
