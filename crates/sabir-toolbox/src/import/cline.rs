//! Reads the task folder of Cline or Roo Code.
//!
//! # Supported
//! `api_conversation_history.json`: an array of messages of the Anthropic API, with calls in text
//! (`<read_file>…`, with results that begin with `[read_file for 'a.txt'] Result:`) or native
//! calls; in later Roo Code an object with `version` 2 and the array in `messages`.
//! `history_item.json` (Roo Code) and `ui_messages.json` for the first message, the folder, times
//! and tokens.
//!
//! # Unsupported
//! Output that only the screen showed, checkpoints, and summaries that replaced messages: all
//! messages are taken.

use std::path::Path;

use sabir_agent::MessageAuthor;
use sabir_call::dialect::DialectSet;
use sabir_call::{ToolProtocol, Usage};
use serde_json::Value;

use super::blocks::{ContentBlock, parse_blocks};
use super::record_builder::{ImportNotes, RecordBuilder};
use super::source_files::{modified_at, read_json};
use super::{ImportError, ImportedHistory, string_field};

/// The file with the conversation.
pub(super) const MESSAGES_FILE: &str = "api_conversation_history.json";
/// The file with the messages on the screen.
const SCREEN_FILE: &str = "ui_messages.json";
/// The file with the entry of the task list (Roo Code).
const ITEM_FILE: &str = "history_item.json";

/// Facts from the other files.
#[derive(Debug, Default)]
struct SideFiles {
    roo: bool,
    prompt: Option<String>,
    workspace: Option<String>,
    at: Option<u64>,
    /// The usage of each request, in order.
    usages: Vec<Usage>,
}

/// Reads a task folder.
pub(super) fn read_task_folder(
    folder: &Path,
    dialects: &DialectSet,
) -> Result<ImportedHistory, ImportError> {
    let mut notes = ImportNotes::default();
    let whole = read_json(&folder.join(MESSAGES_FILE), &mut notes)?;
    // Only later Roo Code wraps the array, so the form also tells the program.
    let versioned = whole.get("messages").and_then(Value::as_array);
    let messages = whole
        .as_array()
        .or(versioned)
        .ok_or_else(|| ImportError::NoMessages(folder.join(MESSAGES_FILE)))?;
    let beside = read_side_files(folder, &mut notes)?;
    // One native call decides: in a task of text calls there is none.
    let native = messages
        .iter()
        .any(|message| has_call(message.get("content")));
    let first = messages
        .first()
        .and_then(|message| message.get("ts"))
        .and_then(Value::as_u64);
    let at = beside
        .at
        .or(first)
        .unwrap_or_else(|| modified_at(&folder.join(MESSAGES_FILE), &mut notes));
    let mut scribe = RecordBuilder::new(dialects, !native, at, notes);
    let answers = messages
        .iter()
        .filter(|message| string_field(message, "role") == Some("assistant"))
        .count();
    let mut usages = beside.usages.into_iter();
    // Usages have no ids. They can be assigned in order only if there is one for each answer.
    if usages.len() != answers && usages.len() > 0 {
        scribe.notes.add_count(
            "requests whose tokens cannot be told apart, and are left out",
            usages.len() as u64,
        );
        usages = Vec::new().into_iter();
    }
    let mut prompt = beside.prompt;
    let mut model = None;
    for (number, message) in messages.iter().enumerate() {
        scribe.set_time(message.get("ts").and_then(Value::as_u64));
        // The first name counts, as the task has one model.
        model =
            model.or_else(|| string_field(message.get("modelInfo")?, "modelId").map(str::to_owned));
        if message.get("isSummary").and_then(Value::as_bool) == Some(true) {
            scribe.notes.add_count(
                "messages that are summaries of others, which are taken over like any other",
                1,
            );
        }
        let mut content = parse_blocks(
            message.get("content").unwrap_or(&Value::Null),
            &mut scribe.notes,
        );
        match string_field(message, "role") {
            Some("assistant") => scribe.add_answer(content, usages.next().unwrap_or_default()),
            Some("user" | "tool") => {
                // Only the first message holds the task.
                if number == 0 {
                    let first = take_prompt(&mut content);
                    prompt = prompt.or(first);
                }
                scribe.add_user(content, MessageAuthor::User);
            }
            _ => scribe.notes.add_count(
                "messages that are neither the user's nor the model's, which are left out",
                1,
            ),
        }
    }
    let prompt = prompt.ok_or_else(|| ImportError::NoPrompt {
        path: folder.to_owned(),
        advice: "",
    })?;
    let (entries, notes) = scribe.finish();
    Ok(ImportedHistory {
        program: if beside.roo || versioned.is_some() {
            "roo"
        } else {
            "cline"
        },
        source: folder.to_owned(),
        prompt,
        workspace: beside.workspace.unwrap_or_default(),
        model: model.unwrap_or_else(|| "unknown".to_owned()),
        protocol: if native {
            ToolProtocol::Native
        } else {
            ToolProtocol::Prompted("cline".to_owned())
        },
        at,
        entries,
        notes: notes.to_sentences(),
    })
}

fn has_call(content: Option<&Value>) -> bool {
    let is_call =
        |block: &Value| matches!(string_field(block, "type"), Some("tool_use" | "tool-call"));
    content
        .and_then(Value::as_array)
        .is_some_and(|blocks| blocks.iter().any(is_call))
}

/// Removes the user's prompt from the first message and returns it, without its `<task>` tags.
fn take_prompt(content: &mut Vec<ContentBlock>) -> Option<String> {
    let at = content
        .iter()
        .position(|block| matches!(block, ContentBlock::Text(text) if !text.trim().is_empty()))?;
    let ContentBlock::Text(text) = content.remove(at) else {
        return None;
    };
    let inner = text
        .trim()
        .strip_prefix("<task>")
        .and_then(|rest| rest.split_once("</task>"));
    Some(match inner {
        Some((words, rest)) => {
            // Behind the task the program adds details of the surroundings.
            if !rest.trim().is_empty() {
                content.insert(at, ContentBlock::Text(rest.trim().to_owned()));
            }
            words.trim().to_owned()
        }
        None => text,
    })
}

fn read_side_files(folder: &Path, notes: &mut ImportNotes) -> Result<SideFiles, ImportError> {
    let mut beside = SideFiles::default();
    let item = folder.join(ITEM_FILE);
    if item.is_file() {
        let item = read_json(&item, notes)?;
        beside.roo = true;
        beside.prompt = string_field(&item, "task").map(str::to_owned);
        beside.workspace = string_field(&item, "workspace").map(str::to_owned);
        beside.at = item.get("ts").and_then(Value::as_u64);
        if let Some(cost) = item
            .get("totalCost")
            .and_then(Value::as_f64)
            .filter(|cost| *cost > 0.0)
        {
            notes.add_count(
                &format!("costs that the program counted (${cost} in all) and are not imported"),
                1,
            );
        }
    }
    let screen = folder.join(SCREEN_FILE);
    if screen.is_file() {
        let screen = read_json(&screen, notes)?;
        let lines = screen.as_array().map(Vec::as_slice).unwrap_or_default();
        let first = lines.first();
        beside.at = first
            .and_then(|line| line.get("ts"))
            .and_then(Value::as_u64)
            .or(beside.at);
        let words = first.filter(|line| matches!(string_field(line, "say"), Some("task" | "text")));
        beside.prompt = beside.prompt.or(words
            .and_then(|line| string_field(line, "text"))
            .map(str::to_owned));
        let requests = lines
            .iter()
            .filter(|line| string_field(line, "say") == Some("api_req_started"));
        beside.usages = requests
            .filter_map(|line| parse_usage(string_field(line, "text")?))
            .collect();
        notes.add_count(
            &format!("entries of {SCREEN_FILE}, used for the first words, times and tokens alone"),
            lines.len() as u64,
        );
    }
    Ok(beside)
}

/// Parses the usage in the text of an `api_req_started` entry; `None` if the request was never
/// made.
fn parse_usage(text: &str) -> Option<Usage> {
    let usage: Value = serde_json::from_str(text).ok()?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let read = count("cacheReads");
    let written = count("cacheWrites");
    // Cached tokens are counted apart from `tokensIn`; `Usage::input` includes them.
    let input = count("tokensIn")?
        .saturating_add(read.unwrap_or(0))
        .saturating_add(written.unwrap_or(0));
    Some(Usage {
        input: Some(input),
        output: count("tokensOut"),
        cache_read: read,
        cache_write: written,
        reasoning: None,
    })
}
