//! The folder of a task of Cline's or Roo Code's.
//!
//! # Supported
//! `api_conversation_history.json`: an array of messages of the Anthropic API, with calls in text (`<read_file>…`, results as `[read_file
//! for 'a.txt'] Result:`) or native; of later Roo Code `{"version": 2, "messages": […]}`. `history_item.json` (Roo Code) and
//! `ui_messages.json` for the first words, the folder, times and tokens.
//!
//! # Unsupported
//! What only the screen showed, checkpoints, and which messages a summary had replaced: all messages are taken.

use std::path::Path;

use sabir_agent::Speaker;
use sabir_call::{Protocol, Usage};
use serde_json::Value;

use crate::exit::Failure;

use super::blocks::{Block, blocks};
use super::scribe::{Notes, Scribe};
use super::{History, string, value, written_at};

/// The file with what the model was asked and said.
pub(super) const MESSAGES: &str = "api_conversation_history.json";
const SCREEN: &str = "ui_messages.json";
const ITEM: &str = "history_item.json";

/// What the files beside the messages say.
#[derive(Debug, Default)]
struct Beside {
    roo: bool,
    prompt: Option<String>,
    workspace: Option<String>,
    at: Option<u64>,
    /// Of each request, in order.
    usages: Vec<Usage>,
}

/// Reads a folder.
pub(super) fn read(folder: &Path) -> Result<History, Failure> {
    let mut notes = Notes::default();
    let whole = value(&folder.join(MESSAGES), &mut notes)?;
    let versioned = whole.get("messages").and_then(Value::as_array);
    let messages = whole
        .as_array()
        .or(versioned)
        .ok_or_else(|| Failure::usage(format!("{} holds no array of messages", folder.join(MESSAGES).display())))?;
    let beside = beside(folder, &mut notes)?;
    let native = messages.iter().any(|message| has_call(message.get("content")));
    let first = messages.first().and_then(|message| message.get("ts")).and_then(Value::as_u64);
    let at = beside.at.or(first).unwrap_or_else(|| written_at(&folder.join(MESSAGES), &mut notes));
    let mut scribe = Scribe::new(!native, at, notes);
    let answers = messages.iter().filter(|message| string(message, "role") == Some("assistant")).count();
    let mut usages = beside.usages.into_iter();
    if usages.len() != answers && usages.len() > 0 {
        scribe.notes.add("requests whose tokens cannot be told apart, and are left out", usages.len() as u64);
        usages = Vec::new().into_iter();
    }
    let (mut prompt, mut model) = (beside.prompt, None);
    for (number, message) in messages.iter().enumerate() {
        scribe.clock(message.get("ts").and_then(Value::as_u64));
        model = model.or_else(|| string(message.get("modelInfo")?, "modelId").map(str::to_owned));
        if message.get("isSummary").and_then(Value::as_bool) == Some(true) {
            scribe.notes.add("messages that are summaries of others, which are taken over like any other", 1);
        }
        let mut content = blocks(message.get("content").unwrap_or(&Value::Null), &mut scribe.notes);
        match string(message, "role") {
            Some("assistant") => scribe.assistant(content, usages.next().unwrap_or_default()),
            Some("user" | "tool") => {
                if number == 0 {
                    let first = first_words(&mut content);
                    prompt = prompt.or(first);
                }
                scribe.user(content, Speaker::User);
            }
            _ => scribe.notes.add("messages that are neither the user's nor the model's, which are left out", 1),
        }
    }
    let prompt = prompt.ok_or_else(|| Failure::usage(format!("{} holds no words of a user", folder.display())))?;
    Ok(History {
        program: if beside.roo || versioned.is_some() { "roo" } else { "cline" },
        source: folder.to_owned(),
        prompt,
        workspace: beside.workspace.unwrap_or_default(),
        model: model.unwrap_or_else(|| "unknown".to_owned()),
        protocol: if native { Protocol::Native } else { Protocol::Prompted("cline".to_owned()) },
        at,
        scribe,
    })
}

fn has_call(content: Option<&Value>) -> bool {
    let is_call = |block: &Value| matches!(string(block, "type"), Some("tool_use" | "tool-call"));
    content.and_then(Value::as_array).is_some_and(|blocks| blocks.iter().any(is_call))
}

/// Takes the task's words out of the first message.
fn first_words(content: &mut Vec<Block>) -> Option<String> {
    let at = content.iter().position(|block| matches!(block, Block::Text(text) if !text.trim().is_empty()))?;
    let Block::Text(text) = content.remove(at) else { return None };
    let inner = text.trim().strip_prefix("<task>").and_then(|rest| rest.split_once("</task>"));
    Some(match inner {
        Some((words, rest)) => {
            if !rest.trim().is_empty() {
                content.insert(at, Block::Text(rest.trim().to_owned()));
            }
            words.trim().to_owned()
        }
        None => text,
    })
}

fn beside(folder: &Path, notes: &mut Notes) -> Result<Beside, Failure> {
    let mut beside = Beside::default();
    let item = folder.join(ITEM);
    if item.is_file() {
        let item = value(&item, notes)?;
        beside.roo = true;
        beside.prompt = string(&item, "task").map(str::to_owned);
        beside.workspace = string(&item, "workspace").map(str::to_owned);
        beside.at = item.get("ts").and_then(Value::as_u64);
        if let Some(cost) = item.get("totalCost").and_then(Value::as_f64).filter(|cost| *cost > 0.0) {
            notes.add(&format!("costs that the program counted (${cost} in all) and are not taken over"), 1);
        }
    }
    let screen = folder.join(SCREEN);
    if screen.is_file() {
        let screen = value(&screen, notes)?;
        let lines = screen.as_array().map(Vec::as_slice).unwrap_or_default();
        let first = lines.first();
        beside.at = first.and_then(|line| line.get("ts")).and_then(Value::as_u64).or(beside.at);
        let words = first.filter(|line| matches!(string(line, "say"), Some("task" | "text")));
        beside.prompt = beside.prompt.or(words.and_then(|line| string(line, "text")).map(str::to_owned));
        let requests = lines.iter().filter(|line| string(line, "say") == Some("api_req_started"));
        beside.usages = requests.filter_map(|line| usage(string(line, "text")?)).collect();
        notes
            .add(&format!("entries of {SCREEN}, used for the first words, times and tokens alone"), lines.len() as u64);
    }
    Ok(beside)
}

/// What a request took, of the text of `api_req_started`; `None` where it never came to that.
fn usage(text: &str) -> Option<Usage> {
    let told: Value = serde_json::from_str(text).ok()?;
    let count = |name: &str| told.get(name).and_then(Value::as_u64);
    let (read, written) = (count("cacheReads"), count("cacheWrites"));
    let input = count("tokensIn")?.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0));
    Some(Usage {
        input: Some(input),
        output: count("tokensOut"),
        cache_read: read,
        cache_write: written,
        reasoning: None,
    })
}
